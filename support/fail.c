#include "support/fail.h"
#include <stdarg.h>
#include <stdio.h>

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
