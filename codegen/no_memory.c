// LLVM without memory: it gives up for good, in C++'s `new` or in its own handler. There the process ends, with a
// diagnostic and the exit code of TILEC_ERROR_ENVIRONMENT. (LLVM cannot be left by a longjmp there: it would keep its
// locks, and lose what it holds.) Only a process of tilec's own may do that: this file is linked into the tool alone.
#include "codegen/codegen.h"
#include <unistd.h>

// C++ functions under their C++ names: LLVM's C interface has none for these.
typedef void LeaveAllocation(void *user, const char *reason, bool diagnose);
extern void llvm_on_bad_alloc(LeaveAllocation *leave,
                              void *user) __asm__("_ZN4llvm31install_bad_alloc_error_handlerEPFvPvPKcbES0_");
typedef void LeaveNew(void);
extern LeaveNew *std_set_new_handler(LeaveNew *leave) __asm__("_ZSt15set_new_handlerPFvvE");

_Noreturn static void leave_now(void) {
    static const char text[] = "error[T9902]: out of memory\n";
    ssize_t written = write(STDERR_FILENO, text, sizeof text - 1);
    (void)written;
    _exit(EXIT_NO_MEMORY);
}

static void on_bad_alloc(void *user, const char *reason, bool diagnose) {
    (void)user, (void)reason, (void)diagnose;
    leave_now();
}

// Before LLVM's own constructors, which allocate.
__attribute__((constructor(101))) void leave_without_memory(void);

void leave_without_memory(void) {
    llvm_on_bad_alloc(on_bad_alloc, NULL);
    std_set_new_handler(leave_now);
}

// ---- one use of it ----
