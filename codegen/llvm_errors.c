// LLVM never ends the process.
//
// Where LLVM cannot go on (an instruction that the target does not have, say) it calls a handler that must not return,
// or ends the process. The handler belongs to the process; which compile an error belongs to is known by the thread. It
// leaves by longjmp through LLVM's frames, whose own memory is then lost: such an error is a bug in tilec, and losing
// some kilobytes is better than losing the process. For the same reason the objects of a compile that LLVM gave up on
// are abandoned, not disposed: their state is unknown.
#include "codegen/gen.h"
#include <llvm-c/ErrorHandling.h>
#include <pthread.h>

typedef struct Watch {
    Gen *gen;
    bool broken;   // LLVM gave up in the middle of something
} Watch;

static _Thread_local Watch *watch;

static void on_fatal_error(const char *reason) {
    if (!watch) return;   // another user of LLVM in this process
    watch->broken = true;
    fail_internal(watch->gen->failure, __FILE__, __LINE__, "LLVM: %s", reason);
}

static void install_handler(void) {
    LLVMInstallFatalErrorHandler(on_fatal_error);
}

const char *take_message(Gen *gen, char *message) {
    if (!message) fail_out_of_memory(gen->failure);
    gen->llvm.message = message;
    const char *copy = arena_strdup(gen->arena, message);
    gen->llvm.message = NULL;
    LLVMDisposeMessage(message);
    return copy;
}

// Errors that LLVM reports without giving up; its default handler would print them and end the process.
static void on_diagnostic(LLVMDiagnosticInfoRef info, void *user) {
    Gen *gen = user;
    if (LLVMGetDiagInfoSeverity(info) != LLVMDSError) return;
    if (watch) watch->broken = true;
    on_fatal_error(take_message(gen, LLVMGetDiagInfoDescription(info)));
}

static void open_llvm(Gen *gen) {
    gen->llvm.context = LLVMContextCreate();
    LLVMContextSetDiagnosticHandler(gen->llvm.context, on_diagnostic, gen);
    gen->llvm.module = LLVMModuleCreateWithNameInContext("tilec", gen->llvm.context);
    gen->builder = LLVMCreateBuilderInContext(gen->llvm.context);
    gen->llvm.entry = LLVMCreateBuilderInContext(gen->llvm.context);
}

static void close_llvm(Gen *gen) {
    if (gen->llvm.message) LLVMDisposeMessage(gen->llvm.message);
    if (gen->llvm.ptx) LLVMDisposeMemoryBuffer(gen->llvm.ptx);
    if (gen->debug_lines.builder) LLVMDisposeDIBuilder(gen->debug_lines.builder);
    if (gen->llvm.entry) LLVMDisposeBuilder(gen->llvm.entry);
    if (gen->builder) LLVMDisposeBuilder(gen->builder);
    if (gen->llvm.module) LLVMDisposeModule(gen->llvm.module);
    if (gen->llvm.machine) LLVMDisposeTargetMachine(gen->llvm.machine);
    if (gen->llvm.context) LLVMContextDispose(gen->llvm.context);
}

typedef struct Use {
    Watch here, *outer;
    void (*work)(Gen *gen, void *user);
    void *user;
} Use;

static bool use_llvm(void *user) {
    const Use *use = user;
    open_llvm(use->here.gen);
    use->work(use->here.gen, use->user);
    return true;
}

static void after_use(void *user) {
    const Use *use = user;
    watch = use->outer;
    if (!use->here.broken) close_llvm(use->here.gen);
}

void with_llvm(Gen *gen, void (*work)(Gen *gen, void *user), void *user) {
    static pthread_once_t installed = PTHREAD_ONCE_INIT;
    pthread_once(&installed, install_handler);
    Use use = {.here = {.gen = gen}, .outer = watch, .work = work, .user = user};
    watch = &use.here;
    fail_scope(gen->failure, use_llvm, after_use, &use);
}
