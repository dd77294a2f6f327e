// libtilec: compiles `.tile` kernels to GPU code and launches them on CUDA streams.
//
//     source text --tilec_compile--> TilecArtefact --tilec_load--> TilecModule --tilec_launch--> work in a CUDA stream
//                   (no GPU needed)  PTX, cubin, manifest         (libcuda, loaded at run time)
//
// An artefact holds the code of a file's kernels and their launch plan: all variants, the conditions to choose among
// them, grids, workspace sizes. The plan is a section of the cubin, so a deployment needs one file, opened with
// tilec_artefact_open.
//
// Conventions
//   Errors      Every function that can fail returns a TilecStatus; details are in a TilecDiagnostics object.
//   Ownership   `create`, `compile`, `open` and `load` return an object that the matching `destroy` or `unload` frees;
//               these accept NULL. Strings and arrays that a query returns belong to the queried object and live as
//               long.
//   NULL        A query of NULL returns the value for an empty object: "", 0, false, NULL. NULL for a required argument
//               is TILEC_ERROR_USAGE.
//   Memory      Host memory comes from the context's allocator, except memory of the C library and of the CUDA driver. Out
//               of memory, wherever, is TILEC_ERROR_ENVIRONMENT, and everything of the call is released.
//   Processes   tilec_compile compiles in a process of the program `tilec`, started with posix_spawn and kept for later
//               compiles of the context; it ends with the context, and when the host ends. A compiler that crashes, or
//               is ended, is a status. The library itself never calls exit or abort, starts no threads and has no
//               global state. docs/design/threat-model.md says what a source can do, and which limits hold.
//   Threads     Any number of threads may use a context, an artefact or a module at the same time (if the allocator is
//               thread-safe). A TilecDiagnostics belongs to one thread at a time. Compiles of several threads run in as
//               many processes, each with up to one thread per processor of the caller's affinity mask
//               (TilecCompileOptions.threads: at most so many).
//   Versions    Every structure that a caller makes starts with `size`, set by TILEC_INIT (a pair of strings, TilecDefine,
//               alone has none), so that a program built against an older header keeps working. Elements of an array of
//               structures all have one size. docs/design/launch.md says what a minor version may change.
//
// docs/tutorial/09-embedding.md is a complete program.
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

// The version of this header; tilec_version is the library's, "1.0.0". A program runs with libraries of the same major version that
// are not older.
#define TILEC_VERSION_MAJOR 1
#define TILEC_VERSION_MINOR 0
#define TILEC_VERSION_PATCH 0
TILEC_API const char *tilec_version(void);

// ---- status ----

// The result of a call. The numbers are the exit codes of the command `tilec`.
typedef enum TilecStatus {
    TILEC_OK = 0,
    TILEC_ERROR_SOURCE = 1,        // the source, an argument of a launch, or a test is wrong
    TILEC_ERROR_USAGE = 2,         // the call is wrong: an unknown target, NULL for a required argument
    TILEC_ERROR_ENVIRONMENT = 3,   // a resource is missing: a file, ptxas, the CUDA driver, memory
    TILEC_ERROR_TARGET = 4,        // the program does not fit the target: shared memory, registers, threads
    TILEC_ERROR_DEVICE = 5,        // the device reported a fault
    TILEC_CANCELLED = 6,           // TilecCompileOptions.cancelled said so
    TILEC_ERROR_INTERNAL = 70      // a bug in tilec
} TilecStatus;

// A short English name of a status, never NULL.
TILEC_API const char *tilec_status_text(TilecStatus status);

// The initial value of a structure that starts with `size`:  TilecLaunch launch = TILEC_INIT(TilecLaunch);
#ifdef __cplusplus
extern "C++" {
template <class Type> inline Type tilec_init() {
    Type initial = Type();
    initial.size = sizeof(Type);
    return initial;
}
}
#define TILEC_INIT(Type) (tilec_init<Type>())
#else
#define TILEC_INIT(Type)                                                                                               \
    { .size = sizeof(Type) }
#endif

// ---- diagnostics ----

typedef struct TilecDiagnostics TilecDiagnostics;

typedef enum TilecSeverity { TILEC_SEVERITY_ERROR, TILEC_SEVERITY_WARNING, TILEC_SEVERITY_REMARK } TilecSeverity;

// One diagnostic. Lines and columns count from 1, columns in bytes; line 0: no source location.
typedef struct TilecDiagnostic {
    size_t size;
    int code;   // 123 for T0123; `tilec explain T0123` explains it
    TilecSeverity severity;
    const char *file;   // "": no source location
    int line, column, end_line, end_column;
    const char *message;
    const char *remedy;   // how to fix it; may be ""
} TilecDiagnostic;

// Number of diagnostics; 0 for NULL.
TILEC_API size_t tilec_diagnostics_count(const TilecDiagnostics *diagnostics);
// Fills *out, whose `size` is set, with the diagnostic `index`, in order of appearance. False: out of range.
TILEC_API bool tilec_diagnostics_get(const TilecDiagnostics *diagnostics, size_t index, TilecDiagnostic *out);
// All diagnostics as text: `file:line:col: error[T0123]: text`, an excerpt with a caret, notes. "" for NULL.
TILEC_API const char *tilec_diagnostics_text(const TilecDiagnostics *diagnostics);
// All diagnostics as JSON, one object per line. "" for NULL.
TILEC_API const char *tilec_diagnostics_json(const TilecDiagnostics *diagnostics);
TILEC_API void tilec_diagnostics_destroy(TilecDiagnostics *diagnostics);

// ---- context ----

typedef struct TilecContext TilecContext;

// Host memory: resize(user, NULL, n) allocates, resize(user, p, 0) frees; the result NULL means out of memory.
typedef struct TilecAllocator {
    size_t size;
    void *(*resize)(void *user, void *block, size_t bytes);
    void *user;
} TilecAllocator;

// Creates a context. `allocator` is copied; NULL: malloc and free.
TILEC_API TilecStatus tilec_context_create(const TilecAllocator *allocator, TilecContext **out);
// Frees the context. All objects created with it must be destroyed first.
TILEC_API void tilec_context_destroy(TilecContext *context);

// ---- compiling ----

typedef struct TilecArtefact TilecArtefact;
struct TilecArg;   // below

// The value of a compile-time name, a tunable or a const of the file, as text: {"BM", "128"}, {"E", "bf16"}.
typedef struct TilecDefine {
    const char *name, *value;
} TilecDefine;

typedef struct TilecCompileOptions {
    size_t size;
    const char *target;   // "sm_90a"; `tilec targets` lists them. Required
    const TilecDefine *defines;
    size_t define_count;
    int optimize;   // LLVM's optimization level: 0 or 1 (the default: a short pipeline that suffices for tile code), 2 (O2)
    bool no_lines;        // omits the line table
    bool no_assemble;     // stops at PTX: the artefact has no cubin and cannot be loaded
    const char *only;     // compile this kernel or program, with what it calls; NULL: the whole file
    const char *ptxas;    // path of ptxas; NULL: searched on PATH, in CUDA's usual folders, else libnvJitLink
    const char *record;   // path of a tuning record, written by `tilec tune`; NULL: none
    // Path of the program `tilec` that compiles; NULL: the environment variable TILEC_COMPILER, else the first `tilec`
    // in: the library's folder, the `bin` next to that folder, the running program's folder, PATH.
    const char *compiler;
    int64_t time_limit;        // milliseconds; the compile is then ended (ENVIRONMENT). 0: none
    int64_t memory_limit;      // bytes of data of the compiling process, and of ptxas. 0: none
    const char *import_root;   // imports outside of this folder are refused; NULL: any file may be imported
    // After an internal error or a crash the program is written to this folder; NULL: it is not.
    const char *repro_dir;
    // Asked every 10 ms or so, in the calling thread; true ends the compile, and its ptxas, with TILEC_CANCELLED. NULL: never.
    bool (*cancelled)(void *user);
    void *cancelled_user;
    // Folder of the compile cache; "off": none. NULL: the environment variable TILEC_CACHE, else the user's cache folder.
    const char *cache;
    bool remarks;   // says which optimizations were not applied, and why
    int threads;   // at most so many processors compile, those of ptxas included; 0: all that the calling thread may use
    // Called in the calling thread as a phase begins: "elaborate", "passes", "codegen", "ptxas". Not where the result is
    // kept from an earlier compile. NULL: never.
    void (*progress)(void *user, const char *phase);
    void *progress_user;
    // Only parses: the artefact has no kernels and no code, its manifest says what the source declares (docs/reference/launch-plan.md).
    bool declarations;
    const char *print_after;   // a pass, or "all": the program after it is in tilec_artefact_listing. NULL: none
    const char
        *layouts;   // "text", "svg" or "html": the layouts of its tiles are in tilec_artefact_layouts. NULL: none
    // Called in the calling thread, once a call, with a line on where its result is from (the context, the compile cache, a
    // compile or the emulator), or that it failed, and how long it took. NULL: never.
    void (*log)(void *user, const char *line);
    void *log_user;
    bool
        pdl;   // every grid is `@pdl`: its launch may overlap with the end of the kernel before (docs/reference/language.md)
    int multiprocessors;   // of the device, for tilec_compile_for; 0: as many as the target usually has
    // Names of tensors of kernels, separated by commas, that are `@independent`: no kernel that was launched before and may
    // still run writes them, so with `pdl` their loads start at once. NULL: as the source says.
    const char *independent;
    // Called in the calling thread for each program of the listing that print_after asks for, also of a compile that then fails:
    // the kernel after the pass, as the language has it. NULL: never.
    void (*dump)(void *user, const char *pass, const char *kernel, const char *program);
    void *dump_user;
} TilecCompileOptions;

// Compiles `length` bytes of source. `name`: the file name for messages; imports are relative to its folder. At the
// time limit the compile is ended, and so it is when the calling process ends.
// A compile of the same text, imports, options and programs gives the artefact of an earlier one, with its diagnostics:
// that of the context, or one from the compile cache on disk (docs/reference/c-api.md).
// *artefact: the result, NULL on failure. *diagnostics: errors, warnings and remarks; NULL: none, or out of memory (see
// the status). `diagnostics` may be NULL.
TILEC_API TilecStatus tilec_compile(TilecContext *context, const char *name, const char *text, size_t length,
                                    const TilecCompileOptions *options, TilecArtefact **artefact,
                                    TilecDiagnostics **diagnostics);

// The same for one launch: the variant of `kernel` that these arguments take, and what it launches, and nothing else. That is a
// fraction of the work; launches that it does not serve are refused (T0906), and want a compile of their own. What counts is
// types, shapes, strides, scalars and the alignment of addresses. Where the same compile for any launch is kept, from
// an earlier tilec_compile, that is the artefact.
TILEC_API TilecStatus tilec_compile_for(TilecContext *context, const char *name, const char *text, size_t length,
                                        const TilecCompileOptions *options, const char *kernel,
                                        const struct TilecArg *args, size_t arg_count, TilecArtefact **artefact,
                                        TilecDiagnostics **diagnostics);

// Opens an artefact from the bytes of a cubin that tilec made. The bytes are copied.
TILEC_API TilecStatus tilec_artefact_open(TilecContext *context, const void *cubin, size_t size,
                                          TilecArtefact **artefact, TilecDiagnostics **diagnostics);
TILEC_API void tilec_artefact_destroy(TilecArtefact *artefact);

// The PTX text; "" for an artefact from tilec_artefact_open.
TILEC_API const char *tilec_artefact_ptx(const TilecArtefact *artefact);
// The cubin with its launch plan; sets *size. NULL and 0 if compiled with no_assemble.
TILEC_API const void *tilec_artefact_cubin(const TilecArtefact *artefact, size_t *size);
// The launch plan as JSON; docs/reference/launch-plan.md describes it.
TILEC_API const char *tilec_artefact_manifest(const TilecArtefact *artefact);
// What TilecCompileOptions.print_after asked for: for each pass and kernel a line `// after PASS (KERNEL)`, and the kernel as
// the language has it. Else "".
TILEC_API const char *tilec_artefact_listing(const TilecArtefact *artefact);
// What TilecCompileOptions.layouts asked for: layouts of all tiles, bank conflicts of all accesses, and pictures but in
// "text". Else "".
TILEC_API const char *tilec_artefact_layouts(const TilecArtefact *artefact);
// The target, "sm_90a".
TILEC_API const char *tilec_artefact_target(const TilecArtefact *artefact);
// Whether it has what one launch takes, and lacks what others would: of tilec_compile_for. False: all of what was
// compiled.
TILEC_API bool tilec_artefact_one_launch(const TilecArtefact *artefact);

// ---- contents of an artefact ----

// A kernel or a program of the source, with all its variants. Belongs to its artefact.
typedef struct TilecKernel TilecKernel;

TILEC_API size_t tilec_artefact_kernel_count(const TilecArtefact *artefact);
// In source order; NULL past the end.
TILEC_API const TilecKernel *tilec_artefact_kernel(const TilecArtefact *artefact, size_t index);
// By name; NULL: no such kernel.
TILEC_API const TilecKernel *tilec_artefact_find(const TilecArtefact *artefact, const char *name);

TILEC_API const char *tilec_kernel_name(const TilecKernel *kernel);
TILEC_API bool tilec_kernel_is_program(const TilecKernel *kernel);
TILEC_API size_t tilec_kernel_param_count(const TilecKernel *kernel);
TILEC_API size_t tilec_kernel_variant_count(const TilecKernel *kernel);

// Types of elements and scalars. The numbers are part of the ABI.
typedef enum TilecType {
    TILEC_UNKNOWN_TYPE,
    TILEC_BOOL,
    TILEC_I8,
    TILEC_I16,
    TILEC_I32,
    TILEC_I64,
    TILEC_U8,
    TILEC_U16,
    TILEC_U32,
    TILEC_U64,
    TILEC_F16,
    TILEC_BF16,
    TILEC_F32,
    TILEC_F64,
    TILEC_E4M3,
    TILEC_E5M2
} TilecType;

// The name of a type in the language, "bf16"; "unknown" for another number.
TILEC_API const char *tilec_type_name(TilecType type);

typedef enum TilecMode { TILEC_IN, TILEC_OUT, TILEC_INOUT } TilecMode;

enum { TILEC_MAX_RANK = 8 };

typedef struct TilecParam {
    size_t size;
    const char *name;
    const char *type;   // name of the element or scalar type: "bf16", "f32", "i64", ...
    bool is_tensor;
    TilecMode mode;                      // of a tensor
    int rank;                            // of a tensor
    const char *shape[TILEC_MAX_RANK];   // each dim: a name, a number, or an expression
    TilecType element;                   // `type` as a number
} TilecParam;

// Fills *out, whose `size` is set, with the parameter `index` of the first variant. False: out of range.
TILEC_API bool tilec_kernel_param(const TilecKernel *kernel, size_t index, TilecParam *out);

typedef struct TilecVariant {
    size_t size;
    const char *symbol;     // name of the function in the cubin; "" for a program
    const char *when;       // the condition for choosing this variant; "": always
    int threads;            // per CTA
    int64_t shared_bytes;   // per CTA
    int registers;          // per thread; -1: unknown (no cubin)
    int spill_bytes, stack_bytes;
} TilecVariant;

// Fills *out, whose `size` is set, with the variant `index`, in the order in which a launch tries them. False: out of
// range.
TILEC_API bool tilec_kernel_variant(const TilecKernel *kernel, size_t index, TilecVariant *out);

// ---- launching ----

typedef struct TilecModule TilecModule;
struct DLTensor;

typedef enum TilecArgKind { TILEC_TENSOR, TILEC_INTEGER, TILEC_REAL } TilecArgKind;

// Of a tensor: not said; memory that no device reads; on a device that is not CUDA's.
enum { TILEC_ANY_DEVICE = -1, TILEC_HOST = -2, TILEC_OTHER_DEVICE = -3 };

// An argument of a launch: a tensor in device memory, or a scalar. Made by the functions below.
typedef struct TilecArg {
    size_t size;
    TilecArgKind kind;
    TilecType type;   // of a tensor's elements
    int device;       // of a tensor: the ordinal of its device, or one of the numbers above
    int rank;
    void *data;   // tensor: device address of element [0, ..., 0]; NULL only where it has no element
    int64_t shape[TILEC_MAX_RANK];
    int64_t strides[TILEC_MAX_RANK];   // in elements
    int64_t integer;                   // integers and bool
    double real;                       // floats
} TilecArg;

// A dense row-major tensor.
TILEC_API TilecArg tilec_tensor(TilecType type, void *data, int rank, const int64_t *shape);
// A tensor with strides, in elements.
TILEC_API TilecArg tilec_strided_tensor(TilecType type, void *data, int rank, const int64_t *shape,
                                        const int64_t *strides);
// A tensor of DLPack, whose structure `DLTensor` is that of dlpack.h (ABI 0.6 to 1.x), with its type and device. A type
// that tilec does not have is TILEC_UNKNOWN_TYPE, which no launch takes.
TILEC_API TilecArg tilec_dlpack(const struct DLTensor *tensor);
// An integer or bool. A launch refuses one that the parameter's type cannot hold; u64 takes the 64 bits.
TILEC_API TilecArg tilec_integer(int64_t value);
TILEC_API TilecArg tilec_real(double value);

// Loads the artefact's code into the current CUDA context of this thread; if there is none, into the primary context of
// device 0, which becomes current. A primary context is retained until unload; a context of the caller must live as
// long as the module. Without a driver: TILEC_ERROR_ENVIRONMENT. The artefact must outlive the module.
TILEC_API TilecStatus tilec_load(const TilecArtefact *artefact, TilecModule **out, TilecDiagnostics **diagnostics);
// Loads the code for a device, by its ordinal, into the primary context of the device, whatever context is current. So do
// launches of this module: the current context is the same before and after. With TILEC_ANY_DEVICE the module serves all
// devices of the artefact's architecture: a launch takes that of its first tensor that says one, else the current one, and
// the first one on a device loads the code there.
TILEC_API TilecStatus tilec_load_on(const TilecArtefact *artefact, int device, TilecModule **out,
                                    TilecDiagnostics **diagnostics);
// Unloads a module, in any thread; if it is in a context of the caller, that context must be current. No launch of the
// module may be running on host or device. The current context stays current, unless only this module retained it: then
// it is destroyed.
TILEC_API void tilec_unload(TilecModule *module);

// A CUDA device.
typedef struct TilecDevice {
    size_t size;
    const char *target;   // to compile for it, "sm_90a"; "": none of `tilec targets`
    int multiprocessors;
} TilecDevice;

// Fills *out, whose `size` is set, with the device of that ordinal. Without a driver, or such a device:
// TILEC_ERROR_ENVIRONMENT.
TILEC_API TilecStatus tilec_device(TilecContext *context, int ordinal, TilecDevice *out,
                                   TilecDiagnostics **diagnostics);

typedef struct TilecLaunch {
    size_t size;
    void *stream;   // a CUstream (cudaStream_t); NULL: the default stream
    // Device memory for scratch, 256-byte aligned; NULL: allocated for this launch from the stream-ordered memory pool.
    void *workspace;
    size_t workspace_size;   // bytes
    // Device memory for `@zeroed` scratch, 256-byte aligned: zero before the launch, and zero again after it. For one
    // launch at a time. NULL: see tilec_zeroed_size.
    void *zeroed;
    size_t zeroed_size;   // bytes
    // Where `workspace` is NULL: takes scratch of so many bytes, 256-byte aligned, for work in `stream`, and gives it back
    // after the launch was enqueued, in stream order (as the allocators of PyTorch and RMM do). NULL: the memory pool of
    // the stream. `allocate` returns NULL for failure.
    void *(*allocate)(void *user, size_t bytes, void *stream);
    void (*release)(void *user, void *memory, void *stream);
    void *allocate_user;
} TilecLaunch;

// The bytes of workspace for a launch of `kernel` with these arguments; 0: it has no scratch. They include the bytes of
// tilec_zeroed_size, which a launch with `zeroed` memory does not use.
TILEC_API TilecStatus tilec_workspace_size(const TilecModule *module, const TilecKernel *kernel, const TilecArg *args,
                                           size_t arg_count, size_t *bytes, TilecDiagnostics **diagnostics);

// The bytes of `zeroed` memory for a launch. With `zeroed` memory, no clearing kernel (1 to 2 us) runs before the
// launch. If both `zeroed` and `workspace` are NULL, the module keeps zeroed memory for each stream until it is
// unloaded (not while the stream is captured into a graph). Otherwise zeroed scratch is taken from the workspace, and
// each launch clears it.
TILEC_API TilecStatus tilec_zeroed_size(const TilecModule *module, const TilecKernel *kernel, const TilecArg *args,
                                        size_t arg_count, size_t *bytes, TilecDiagnostics **diagnostics);

// Enqueues a kernel or program of the module's artefact in a stream and returns. Arguments are in the order of the
// parameters. Types, devices, shapes, strides, overlaps and `assume` contracts are checked; if a check fails, nothing is
// launched. A thread
// without a current CUDA context gets the module's, if it is a primary context. `launch` may be NULL. Device faults are
// reported by the caller's next synchronisation.
TILEC_API TilecStatus tilec_launch(const TilecModule *module, const TilecKernel *kernel, const TilecArg *args,
                                   size_t arg_count, const TilecLaunch *launch, TilecDiagnostics **diagnostics);

// What a launch would do, without a device or a driver.
typedef struct TilecSelection {
    size_t size;
    int launches;           // of kernels and fills; 0: there is nothing to do
    int variant;            // index of the variant that is chosen
    const char *symbol;     // of the first kernel launched; "": none
    int64_t grid;           // CTAs of that kernel
    int threads;            // per CTA
    int64_t shared_bytes;   // per CTA
    int64_t workspace;      // bytes, of tilec_workspace_size
    double
        microseconds;   // that the launch takes on the device, as the cost model predicts; 0: the variant has no cost
} TilecSelection;

// Fills *out, whose `size` is set, with what a launch with these arguments does on a device of `multiprocessors`. Types
// are checked; addresses are not read.
TILEC_API TilecStatus tilec_select(const TilecArtefact *artefact, const TilecKernel *kernel, const TilecArg *args,
                                   size_t arg_count, int multiprocessors, TilecSelection *out,
                                   TilecDiagnostics **diagnostics);

// ---- running on the host ----

typedef struct TilecEmulation {
    size_t size;
    uint64_t seed;       // of the order in which warps and asynchronous copies run
    int64_t max_steps;   // steps of all CTAs (T0715) before the call ends with a diagnostic; 0: 10^9
} TilecEmulation;

// Runs a kernel or program of a source on the CPU, without a device: for tests, and where there is no GPU. Tensors are in
// memory of the host; `out` and `inout` ones hold the results after TILEC_OK, and are as they were after anything else.
// Arguments are checked as those of a launch. What the kernel does wrong (a race, an access outside of a tensor, a failed
// assert, an element read that was never written) is a diagnostic; what it prints is one, a remark.
// The kernel runs in a process of its own, within the limits of `options`, of which those for code are not used.
// `emulation` may be NULL.
TILEC_API TilecStatus tilec_emulate(TilecContext *context, const char *name, const char *text, size_t length,
                                    const TilecCompileOptions *options, const char *kernel, const TilecArg *args,
                                    size_t arg_count, const TilecEmulation *emulation, TilecDiagnostics **diagnostics);

#ifdef __cplusplus
}
#endif
#endif
