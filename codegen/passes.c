// LLVM's part: the target machine, the passes, the PTX text.
//
// Pipelines (always with the target machine: without its knowledge of divergence, jump threading breaks barriers).
#include "codegen/gen.h"
#include <llvm-c/Error.h>
#include <llvm-c/Transforms/PassBuilder.h>
#include <string.h>

static const char *const TRIPLE = "nvptx64-nvidia-cuda";

static LLVMCodeGenOptLevel codegen_level(const Gen *gen) {
    return gen->options->optimize >= 2 ? LLVMCodeGenLevelDefault : LLVMCodeGenLevelNone;
}

bool target_machine(Gen *gen) {
    LLVMInitializeNVPTXTargetInfo();
    LLVMInitializeNVPTXTarget();
    LLVMInitializeNVPTXTargetMC();
    LLVMInitializeNVPTXAsmPrinter();
    LLVMTargetRef target = NULL;
    char *message = NULL;
    if (LLVMGetTargetFromTriple(TRIPLE, &target, &message)) {
        const char *text = arena_strdup(gen->arena, message);
        LLVMDisposeMessage(message);
        fail_internal(gen->failure, __FILE__, __LINE__, "LLVM has no NVPTX target: %s", text);
    }
    gen->machine = LLVMCreateTargetMachine(target, TRIPLE, gen->target->name, gen->target->ptx_feature,
                                           codegen_level(gen), LLVMRelocDefault, LLVMCodeModelDefault);
    LLVMSetTarget(gen->llvm, TRIPLE);
    LLVMTargetDataRef layout = LLVMCreateTargetDataLayout(gen->machine);
    LLVMSetModuleDataLayout(gen->llvm, layout);
    LLVMDisposeTargetData(layout);
    return true;
}

static const char *pipeline(const Gen *gen) {
    switch (gen->options->optimize) {
    case 0: return "function(mem2reg)";
    case 1: return "function(mem2reg,early-cse,instcombine<max-iterations=1;no-verify-fixpoint>,simplifycfg,"
                   "separate-const-offset-from-gep,early-cse)";
    default: return "default<O2>";
    }
}

void run_llvm_passes(Gen *gen) {
    LLVMPassBuilderOptionsRef options = LLVMCreatePassBuilderOptions();
    LLVMErrorRef error = LLVMRunPasses(gen->llvm, pipeline(gen), gen->machine, options);
    LLVMDisposePassBuilderOptions(options);
    if (!error) return;
    char *message = LLVMGetErrorMessage(error);
    const char *text = arena_strdup(gen->arena, message);
    LLVMDisposeErrorMessage(message);
    fail_internal(gen->failure, __FILE__, __LINE__, "LLVM's passes: %s", text);
}

const char *emit_ptx(Gen *gen) {
    char *message = NULL;
    LLVMMemoryBufferRef buffer = NULL;
    if (LLVMTargetMachineEmitToMemoryBuffer(gen->machine, gen->llvm, LLVMAssemblyFile, &message, &buffer)) {
        const char *text = arena_strdup(gen->arena, message);
        LLVMDisposeMessage(message);
        fail_internal(gen->failure, __FILE__, __LINE__, "LLVM's code generator: %s", text);
    }
    const char *ptx = arena_strndup(gen->arena, LLVMGetBufferStart(buffer), LLVMGetBufferSize(buffer));
    LLVMDisposeMemoryBuffer(buffer);
    return ptx;
}
