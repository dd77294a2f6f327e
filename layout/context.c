#include "layout/context.h"
#include <stdio.h>

bool layout_refuse(LayoutContext *cx, const char *format, ...) {
    if (cx->failed) return false;
    cx->failed = true;
    va_list args;
    va_start(args, format);
    vsnprintf(cx->reason, sizeof cx->reason, format, args);
    va_end(args);
    return false;
}

static int64_t within_limit(LayoutContext *cx, bool overflow, int64_t value) {
    if (!overflow && value <= LAYOUT_LIMIT && value >= -LAYOUT_LIMIT) return value;
    layout_refuse(cx, "overflow: a size or offset exceeds 2^62");
    return 0;
}

int64_t layout_mul(LayoutContext *cx, int64_t a, int64_t b) {
    int64_t product;
    bool overflow = __builtin_mul_overflow(a, b, &product);
    return within_limit(cx, overflow, product);
}

int64_t layout_sum(LayoutContext *cx, int64_t a, int64_t b) {
    int64_t sum;
    bool overflow = __builtin_add_overflow(a, b, &sum);
    return within_limit(cx, overflow, sum);
}
