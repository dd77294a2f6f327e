// codegen/: thread-stage IR to LLVM IR, PTX and cubin. The only folder that includes llvm-c. Comes in: a module that
// annotate-kernel has run on. Goes out: one PTX text, a cubin, machine code as text. gen.h lists the files in order.
//
// ABI of a kernel: one parameter per Func parameter in order (tensor: 64-bit global pointer; scalar: its type; tensor
// map: its 128 bytes by value, aligned to 64), then one i64 per entry of func->dims. The grid is one-dimensional.
// Shared memory is dynamic, kernel_shared_bytes() of it.
#pragma once
#include "ir/ir.h"
#include "support/strbuf.h"

typedef struct CodegenOptions {
    const Target *target;
    int optimize;   // 0, 1 (small pipeline), 2 (LLVM's O2); default 1
    bool lines;     // .loc
} CodegenOptions;

typedef struct CodegenResult {
    const char *ptx;                                        // text in the arena
    const char *llvm;                                       // LLVM IR text, when asked with emit_llvm
    double seconds;                                         // from start to end
    double build_seconds, optimize_seconds, emit_seconds;   // LLVM's, of all threads together
} CodegenResult;

// Compiles every kernel of the module (all at thread stage) into one PTX text; entry names by kernel_symbol(). Kernels
// are compiled side by side, on threads of its own that end before it returns; the text does not depend on how many.
bool codegen_module(const Module *module, const CodegenOptions *options, bool emit_llvm, CodegenResult *result);
enum { EXIT_NO_MEMORY = 3 };   // of the tool where LLVM gets no memory (no_memory.c)
bool op_has_code(OpId op);     // codegen can emit it (at thread stage)
// Unique entry name of a kernel variant: its name, with `__1`, `__2`, ... for later variants.
const char *kernel_symbol(const Module *module, const Func *kernel, Arena *arena);
Func *kernel_with_symbol(const Module *module, const char *symbol);   // NULL: none
int64_t kernel_shared_bytes(const Func *kernel);                      // from the shared buffers' offsets and sizes

// ---- ptxas ----
typedef struct KernelResources {
    const char *symbol;
    int registers, spill_stores, spill_loads, stack, barriers;   // bytes for spills and stack
    int64_t shared_static;
} KernelResources;

typedef struct Cubin {
    const uint8_t *data;
    size_t size;
    const char *assembler;   // "ptxas 13.0.88" or "nvJitLink 13.0"
    const char *log;         // its messages
    int kernel_count;
    const KernelResources *kernels;
    double seconds;
} Cubin;

typedef struct Process Process;

typedef struct AssembleOptions {
    const Target *target;
    const Module *module;   // of the kernels, for their shared memory, which ptxas does not know; NULL: any
    const char *ptxas;      // --ptxas; NULL: PATH, then CUDA's usual folders, then libnvJitLink by dlopen
    bool lines;
    Process *started;   // NULL: none
} AssembleOptions;

// ptxas, loading while there is no PTX yet; NULL: there is none, or it cannot be had to wait. `assemble` finishes it.
const char *llvm_version(Arena *arena);   // "22.1.0"
Process *start_assembler(Arena *arena, Failure *failure, const AssembleOptions *options);
void stop_assembler(Process *started);   // one that `assemble` did not get to; NULL and a finished one are allowed

// False when none of the assemblers is there (T_NO_PTXAS) or it refused (its text in the diagnostic).
bool assemble(Arena *arena, Failure *failure, DiagSink *sink, const char *ptx, const AssembleOptions *options,
              Cubin *out);

// The cubin's machine code as text, added to `out`, by nvdisasm or cuobjdump (found as ptxas is). False: reported
// (T_NO_DISASSEMBLER, T_PTXAS_START, T_DISASSEMBLER_REFUSED).
bool disassemble(Arena *arena, Failure *failure, DiagSink *sink, const uint8_t *cubin, size_t size, StrBuf *out);
