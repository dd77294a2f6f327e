// LLVM's part: the target machine, the passes, the PTX text.
//
// Always with the target machine: without its knowledge of divergence, jump threading breaks barriers.
//
// The IR that arrives here is straight: loops are as they should be, addresses are simplified and split, local arrays
// are scalars. What is left for LLVM is to make registers of stack slots, to merge what unrolled copies have in common,
// and to select instructions. ptxas schedules, hoists and allocates; whatever LLVM does of that makes its work harder.
// So the code generator runs at level "none" (its straight-line strength reduction is quadratic in the accesses of an
// unrolled body, and with its loop strength reduction keeps one address alive for each of them), after a short pipeline
// of ours. Measured on examples/, both variants of gemm and all four of attention for sm_80, on a busy 4-core machine
// (ms for LLVM, registers and instructions of the fast variant after ptxas):
//
//                                  gemm                            attention
//     -O0  mem2reg                 81 ms  255 regs  1632 instr     143 ms  162 regs  1400 instr
//     -O1  the pipeline below      52 ms  255 regs  1224 instr     115 ms  177 regs  1200 instr
//     -O2  default<O2>, level 2   345 ms  255 regs  1360 instr     513 ms  178 regs  1208 instr
//
// Level "none" does not coalesce registers: every phi and every tied operand of assembly is a move in the PTX. ptxas
// removes them, but not before it looks at wgmma: a move of an accumulator in flight makes it insert a wait (C7517). So
// a module with wgmma is generated at level "less", which coalesces; that its kernels are marked optnone keeps the
// passes of that level away which level "none" was chosen to avoid. (ms for LLVM, a ping-pong GEMM of 128 x 192 on
// Hopper: 11 at level none, 13 so, 18 at level less; for sm_80's gemm 20, 28 and 100.) So is one in which an `if`
// writes many registers, which are joined after it: there ptxas leaves moves in, on the way past the `if` too.
// (Attention on sm_80's path, instructions of the loop: 1167, of which 100 moves, and 1049.)
//
// Shared memory has 64-bit pointers: 32-bit ones are an option of the whole process (--nvptx-short-ptr), which a
// library must not set. ptxas drops the upper halves, since its shared-memory instructions take 32-bit addresses.
#include "codegen/gen.h"
#include <llvm-c/Error.h>
#include <llvm-c/Transforms/PassBuilder.h>
#include <pthread.h>
#include <string.h>

static const char *const TRIPLE = "nvptx64-nvidia-cuda";

static LLVMCodeGenOptLevel codegen_level(const Gen *gen) {
    if (gen->options->optimize >= 2) return LLVMCodeGenLevelDefault;
    return gen->common->coalesces ? LLVMCodeGenLevelLess : LLVMCodeGenLevelNone;
}

// LLVM's list of targets belongs to the process and has no lock.
static void register_target(void) {
    LLVMInitializeNVPTXTargetInfo();
    LLVMInitializeNVPTXTarget();
    LLVMInitializeNVPTXTargetMC();
    LLVMInitializeNVPTXAsmPrinter();
}

void target_machine(Gen *gen) {
    static pthread_once_t registered = PTHREAD_ONCE_INIT;
    pthread_once(&registered, register_target);
    LLVMTargetRef target = NULL;
    char *message = NULL;
    if (LLVMGetTargetFromTriple(TRIPLE, &target, &message))
        fail_internal(gen->failure, __FILE__, __LINE__, "LLVM has no NVPTX target: %s", take_message(gen, message));
    gen->llvm.machine = LLVMCreateTargetMachine(target, TRIPLE, gen->target->name, gen->target->ptx_feature,
                                                codegen_level(gen), LLVMRelocDefault, LLVMCodeModelDefault);
    LLVMSetTarget(gen->llvm.module, TRIPLE);
    LLVMTargetDataRef layout = LLVMCreateTargetDataLayout(gen->llvm.machine);
    LLVMSetModuleDataLayout(gen->llvm.module, layout);
    LLVMDisposeTargetData(layout);
}

// Loads of other CTAs' shared memory are elements until here; all others have their widths from the passes.
#define SHORT_PIPELINE                                                                                                 \
    "mem2reg,early-cse,instcombine<max-iterations=1;no-verify-fixpoint>,simplifycfg,separate-const-offset-from-gep,"   \
    "early-cse"

static const char *pipeline(const Gen *gen) {
    switch (gen->options->optimize) {
    case 0: return "function(mem2reg)";
    case 1:
        return gen->llvm.loads_of_peers ? "function(" SHORT_PIPELINE ",load-store-vectorizer)"
                                        : "function(" SHORT_PIPELINE ")";
    default: return "default<O2>";
    }
}

void run_llvm_passes(Gen *gen) {
    LLVMPassBuilderOptionsRef options = LLVMCreatePassBuilderOptions();
    LLVMErrorRef error = LLVMRunPasses(gen->llvm.module, pipeline(gen), gen->llvm.machine, options);
    LLVMDisposePassBuilderOptions(options);
    if (!error) return;
    char *message = LLVMGetErrorMessage(error);
    const char *text = arena_strdup(gen->arena, message);
    LLVMDisposeErrorMessage(message);
    fail_internal(gen->failure, __FILE__, __LINE__, "LLVM's passes: %s", text);
}

static void add_attribute(Gen *gen, Value function, const char *name) {
    unsigned kind = LLVMGetEnumAttributeKindForName(name, strlen(name));
    LLVMAddAttributeAtIndex(function, (LLVMAttributeIndex)LLVMAttributeFunctionIndex,
                            LLVMCreateEnumAttribute(gen->llvm.context, kind, 0));
}

static void skip_late_passes(Gen *gen) {
    for (Value f = LLVMGetFirstFunction(gen->llvm.module); f; f = LLVMGetNextFunction(f)) {
        if (LLVMIsDeclaration(f)) continue;
        add_attribute(gen, f, "optnone");
        add_attribute(gen, f, "noinline");   // optnone demands it
    }
}

const char *emit_ptx(Gen *gen) {
    char *message = NULL;
    if (codegen_level(gen) == LLVMCodeGenLevelLess) skip_late_passes(gen);
    LLVMMemoryBufferRef *text = &gen->llvm.ptx;
    if (LLVMTargetMachineEmitToMemoryBuffer(gen->llvm.machine, gen->llvm.module, LLVMAssemblyFile, &message, text))
        fail_internal(gen->failure, __FILE__, __LINE__, "LLVM's code generator: %s", take_message(gen, message));
    if (!*text) fail_out_of_memory(gen->failure);   // LLVM says nothing of that
    const char *ptx = arena_strndup(gen->arena, LLVMGetBufferStart(*text), LLVMGetBufferSize(*text));
    LLVMDisposeMemoryBuffer(*text);
    *text = NULL;
    return ptx;
}
