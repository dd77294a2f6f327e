#include "support/fail.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

_Noreturn void fail_out_of_memory(Failure *failure) {
    failure->kind = FAIL_OUT_OF_MEMORY;
    snprintf(failure->message, sizeof failure->message, "out of memory");
    longjmp(failure->point, 1);
}

_Noreturn void fail_internal(Failure *failure, const char *file, int line, const char *format, ...) {
    failure->kind = FAIL_INTERNAL;
    va_list args;
    va_start(args, format);
    int length = vsnprintf(failure->message, sizeof failure->message, format, args);
    va_end(args);
    if (length < 0) length = 0;
    if ((size_t)length < sizeof failure->message)
        snprintf(failure->message + length, sizeof failure->message - (size_t)length, " (%s:%d)", file, line);
    longjmp(failure->point, 1);
}

bool fail_scope(Failure *failure, bool (*work)(void *user), void (*after)(void *user), void *user) {
    jmp_buf callers;
    memcpy(&callers, &failure->point, sizeof callers);
    if (setjmp(failure->point)) {
        memcpy(&failure->point, &callers, sizeof callers);
        after(user);
        longjmp(failure->point, 1);
    }
    bool answer = work(user);
    memcpy(&failure->point, &callers, sizeof callers);
    after(user);
    return answer;
}
