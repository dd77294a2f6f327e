// libtilec: compiles `.tile` kernels to GPU code, in process, and launches them on CUDA streams.
//
//     source text --tilec_compile--> TilecArtefact --tilec_load--> TilecModule --tilec_launch--> work on a CUDA stream
//                   (no GPU needed)  PTX, cubin, manifest         (libcuda, found at run time)
//
// An artefact is a launch plan: the kernels of a file in all their variants, and what a launch needs to choose among
// them and to size grids and workspace. Its cubin carries the plan in a section of its own, so the one file, saved and
// opened again with tilec_artefact_open, is all that a deployment needs.
//
// Conventions
//   Errors      Every function that can fail returns a TilecStatus; details are a TilecDiagnostics object.
//   Ownership   `create`, `compile`, `open` and `load` give an object that the matching `destroy` or `unload` frees;
//               NULL is allowed there. Texts and arrays that a query returns belong to the object asked and live as
//               long as it.
//   NULL        A query of NULL has the answer of an empty object: "", 0, false, NULL. Where a call cannot do without it is
//               TILEC_ERROR_USAGE.
//   Memory      Host memory of the compiler comes from the context's allocator, except what LLVM, the threads of a
//               compile and the CUDA driver take for themselves. The library never calls exit or abort and has no
//               global state.
//   Threads     A context, an artefact and a module are immutable once made: any number of threads may use one at once
//               (with an allocator that allows it). A TilecDiagnostics belongs to one thread at a time. A compile has
//               several kernels compiled side by side, by as many threads as the calling one may use processors;
//               they block all signals, call nothing of the host's and end before the call returns. ptxas, a process
//               of its own, does likewise.
//   Versions    Structures that a caller fills begin with `size`; TILEC_INIT sets it, so that a program built against
//               an older header keeps working.
//
// docs/embedding.md is a complete program.
#ifndef TILEC_H
#define TILEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define TILEC_API __attribute__((visibility("default")))
#else
#define TILEC_API
#endif

// The library's version, "0.1.0".
TILEC_API const char *tilec_version(void);

// ---- status ----

// What came of a call. The numbers are the exit codes of the command `tilec`.
typedef enum TilecStatus {
    TILEC_OK = 0,
    TILEC_ERROR_SOURCE = 1,        // the source, an argument of a launch, or a test is wrong
    TILEC_ERROR_USAGE = 2,         // the call is wrong: an unknown target, a NULL where something must be
    TILEC_ERROR_ENVIRONMENT = 3,   // something outside is missing: a file, ptxas, the CUDA driver, memory
    TILEC_ERROR_TARGET = 4,        // the program does not fit the target: shared memory, registers, threads
    TILEC_ERROR_DEVICE = 5,        // the device reported a fault
    TILEC_ERROR_INTERNAL = 70      // a bug in tilec
} TilecStatus;

// A short English name of a status, never NULL.
TILEC_API const char *tilec_status_text(TilecStatus status);

// ---- diagnostics ----

typedef struct TilecDiagnostics TilecDiagnostics;

typedef enum TilecSeverity { TILEC_SEVERITY_ERROR, TILEC_SEVERITY_WARNING, TILEC_SEVERITY_REMARK } TilecSeverity;

// One diagnostic. Lines and columns count from 1 (columns in bytes); line 0: it has no place.
typedef struct TilecDiagnostic {
    int code;   // the number of T0123: `tilec explain T0123` says more
    TilecSeverity severity;
    const char *file;   // "" without a place
    int line, column, end_line, end_column;
    const char *message;
    const char *remedy;   // what to do about it; may be ""
} TilecDiagnostic;

// Number of diagnostics; 0 for NULL.
TILEC_API size_t tilec_diagnostics_count(const TilecDiagnostics *diagnostics);
// The diagnostic `index`, in order of appearance. False when there is none.
TILEC_API bool tilec_diagnostics_get(const TilecDiagnostics *diagnostics, size_t index, TilecDiagnostic *out);
// All of them for people: `file:line:col: error[T0123]: text`, an excerpt with a caret, notes. "" for NULL.
TILEC_API const char *tilec_diagnostics_text(const TilecDiagnostics *diagnostics);
// All of them for programs: one JSON object a line. "" for NULL.
TILEC_API const char *tilec_diagnostics_json(const TilecDiagnostics *diagnostics);
TILEC_API void tilec_diagnostics_destroy(TilecDiagnostics *diagnostics);

// ---- context ----

typedef struct TilecContext TilecContext;

// Host memory: resize(user, NULL, n) allocates, resize(user, p, 0) frees, and NULL means that there is none left.
typedef struct TilecAllocator {
    void *(*resize)(void *user, void *block, size_t bytes);
    void *user;
} TilecAllocator;

// Makes a context. `allocator` is copied; NULL: the C library's.
TILEC_API TilecStatus tilec_context_create(const TilecAllocator *allocator, TilecContext **out);
// Frees the context. Everything made with it must have been destroyed before.
TILEC_API void tilec_context_destroy(TilecContext *context);

// ---- compiling ----

typedef struct TilecArtefact TilecArtefact;

// The value of a compile-time name, a tunable or a const of the file, as text: {"BM", "128"}, {"E", "bf16"}.
typedef struct TilecDefine {
    const char *name, *value;
} TilecDefine;

typedef struct TilecCompileOptions {
    size_t size;
    const char *target;   // "sm_90a"; `tilec targets` lists them. No default
    const TilecDefine *defines;
    size_t define_count;
    int optimize;         // LLVM's effort: 0 (the default: a small pipeline, enough for tile code) or 2 (its O2)
    bool no_lines;        // leaves out the source places of instructions
    bool no_assemble;     // stops at PTX: tilec_artefact_cubin is then empty, and the artefact cannot be loaded
    const char *only;     // this kernel or program alone, with what it calls; NULL: all of the file
    const char *ptxas;    // path; NULL: found on PATH, in CUDA's usual folders, else libnvJitLink
    const char *record;   // path of the tuning record that `tilec tune` wrote; NULL: none is read
} TilecCompileOptions;

// The initial value of a structure that begins with `size`:  TilecLaunch launch = TILEC_INIT(TilecLaunch);
#ifdef __cplusplus
#define TILEC_INIT(Type) (Type{sizeof(Type)})
#else
#define TILEC_INIT(Type)                                                                                               \
    { .size = sizeof(Type) }
#endif

// Compiles `length` bytes of source. `name` stands in messages and is where imports are looked for.
// On success *artefact is the result; else NULL. *diagnostics gets errors, warnings and remarks, NULL when there are
// none (or when there is no memory for them: the status says so). `diagnostics` may be NULL.
TILEC_API TilecStatus tilec_compile(TilecContext *context, const char *name, const char *text, size_t length,
                                    const TilecCompileOptions *options, TilecArtefact **artefact,
                                    TilecDiagnostics **diagnostics);

// Opens an artefact that was saved: the bytes of a cubin made by tilec. They are copied.
TILEC_API TilecStatus tilec_artefact_open(TilecContext *context, const void *cubin, size_t size,
                                          TilecArtefact **artefact, TilecDiagnostics **diagnostics);
TILEC_API void tilec_artefact_destroy(TilecArtefact *artefact);

// The PTX text; "" for an artefact that was opened.
TILEC_API const char *tilec_artefact_ptx(const TilecArtefact *artefact);
// The cubin with its plan; *size is set. NULL and 0 when the artefact stopped at PTX.
TILEC_API const void *tilec_artefact_cubin(const TilecArtefact *artefact, size_t *size);
// The launch plan as JSON; docs/manifest.md describes it.
TILEC_API const char *tilec_artefact_manifest(const TilecArtefact *artefact);
// The target that it was compiled for.
TILEC_API const char *tilec_artefact_target(const TilecArtefact *artefact);

// ---- what an artefact holds ----

// A kernel or a program of the source, with all its variants. Belongs to its artefact.
typedef struct TilecKernel TilecKernel;

TILEC_API size_t tilec_artefact_kernel_count(const TilecArtefact *artefact);
// In source order; NULL past the end.
TILEC_API const TilecKernel *tilec_artefact_kernel(const TilecArtefact *artefact, size_t index);
// By name; NULL when there is none.
TILEC_API const TilecKernel *tilec_artefact_find(const TilecArtefact *artefact, const char *name);

TILEC_API const char *tilec_kernel_name(const TilecKernel *kernel);
TILEC_API bool tilec_kernel_is_program(const TilecKernel *kernel);
TILEC_API size_t tilec_kernel_param_count(const TilecKernel *kernel);
TILEC_API size_t tilec_kernel_variant_count(const TilecKernel *kernel);

typedef enum TilecMode { TILEC_IN, TILEC_OUT, TILEC_INOUT } TilecMode;

enum { TILEC_MAX_RANK = 8 };

typedef struct TilecParam {
    const char *name;
    const char *type;   // "bf16", "f32", "i64", ...: of the element or the scalar
    bool is_tensor;
    TilecMode mode;                      // tensors
    int rank;                            // tensors
    const char *shape[TILEC_MAX_RANK];   // each dim as text: a name, a number, or an expression of names
} TilecParam;

// The parameter `index` as the first variant declares it. False when there is none.
TILEC_API bool tilec_kernel_param(const TilecKernel *kernel, size_t index, TilecParam *out);

typedef struct TilecVariant {
    const char *symbol;     // its name in the cubin; "" for a program
    const char *when;       // the condition under which it is chosen; "" when there is none
    int threads;            // of a block
    int64_t shared_bytes;   // of a block
    int registers;          // of a thread; -1 when unknown (no cubin)
    int spill_bytes, stack_bytes;
} TilecVariant;

// The variant `index`, in the order in which a launch tries them. False when there is none.
TILEC_API bool tilec_kernel_variant(const TilecKernel *kernel, size_t index, TilecVariant *out);

// ---- launching ----

typedef struct TilecModule TilecModule;

typedef enum TilecArgKind { TILEC_TENSOR, TILEC_INTEGER, TILEC_REAL } TilecArgKind;

// An argument of a launch: a tensor on the device, or a scalar.
typedef struct TilecArg {
    TilecArgKind kind;
    void *data;   // tensors: the device address of element [0, ..., 0]
    int rank;
    int64_t shape[TILEC_MAX_RANK];
    int64_t strides[TILEC_MAX_RANK];   // in elements
    int64_t integer;                   // integers and bool
    double real;                       // floats
} TilecArg;

// A dense row-major tensor.
TILEC_API TilecArg tilec_tensor(void *data, int rank, const int64_t *shape);
// A tensor with strides, in elements.
TILEC_API TilecArg tilec_strided_tensor(void *data, int rank, const int64_t *shape, const int64_t *strides);
TILEC_API TilecArg tilec_integer(int64_t value);
TILEC_API TilecArg tilec_real(double value);

// Loads the artefact's code into the CUDA context that is current in this thread (when there is none: into device 0's
// primary context, which is made current). A primary context is retained until unload; one that the caller has created must
// live as long. TILEC_ERROR_ENVIRONMENT without a driver. The artefact must outlive the module.
TILEC_API TilecStatus tilec_load(const TilecArtefact *artefact, TilecModule **out, TilecDiagnostics **diagnostics);
// Unloads it, in any thread (a module in a context that the caller has created: in one where that is current). No launch of it may
// be running, here or on the device. The context that is current stays so, unless it was retained for this module alone: it ends then.
TILEC_API void tilec_unload(TilecModule *module);

typedef struct TilecLaunch {
    size_t size;
    void *stream;   // a CUstream (cudaStream_t); NULL: the default stream
    // Device memory for scratch, 256-byte aligned; NULL: taken for this launch from the driver's stream-ordered pool.
    void *workspace;
    size_t workspace_size;   // bytes
    // The same for scratch that kernels leave zero (`@zeroed`): all zero, as every launch leaves it again, and for one launch at a
    // time. NULL: see tilec_zeroed_size.
    void *zeroed;
    size_t zeroed_size;   // bytes
} TilecLaunch;

// Bytes of workspace that launching `kernel` with these arguments needs; 0 for one that has no scratch. Those of tilec_zeroed_size are
// among them, and need not be there where `zeroed` is given.
TILEC_API TilecStatus tilec_workspace_size(const TilecModule *module, const TilecKernel *kernel, const TilecArg *args,
                                           size_t arg_count, size_t *bytes, TilecDiagnostics **diagnostics);

// Bytes of `zeroed` that it needs. Where that is given, nothing has to be cleared before a kernel, which costs a launch of its own (1 to
// 2 us). Where it is NULL, and `workspace` too, the module keeps such memory for each stream until it is unloaded, but for launches
// into a graph that is being captured; else it is part of the workspace, and each launch clears it.
TILEC_API TilecStatus tilec_zeroed_size(const TilecModule *module, const TilecKernel *kernel, const TilecArg *args,
                                        size_t arg_count, size_t *bytes, TilecDiagnostics **diagnostics);

// Launches a kernel or program of the module's artefact on a stream and returns at once. Arguments are in the order of the parameters. What the
// program assumes about shapes, strides and scalars is checked here; nothing is launched when it does not hold.
// A thread without a CUDA context gets the module's, if that is a primary one. `launch` may be NULL. Faults of
// the device show up at the caller's next synchronisation.
TILEC_API TilecStatus tilec_launch(const TilecModule *module, const TilecKernel *kernel, const TilecArg *args,
                                   size_t arg_count, const TilecLaunch *launch, TilecDiagnostics **diagnostics);

#ifdef __cplusplus
}
#endif
#endif
