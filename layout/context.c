#include "layout/context.h"
#include "support/utf8.h"
#include <stdio.h>
#include <string.h>

// Reasons quote what was asked, whatever it is: control characters and bytes that are no UTF-8 become question marks.
static void make_printable(char *text) {
    for (size_t left = strlen(text); left;) {
        uint32_t point = 0;
        int bytes = utf8_decode(text, left, &point);
        if (!bytes || point < ' ' || point == 0x7f) *text = '?';
        text += bytes ? bytes : 1;
        left -= bytes ? (size_t)bytes : 1;
    }
}

bool layout_refuse(LayoutContext *cx, const char *format, ...) {
    if (cx->failed) return false;
    cx->failed = true;
    va_list args;
    va_start(args, format);
    vsnprintf(cx->reason, sizeof cx->reason, format, args);
    va_end(args);
    make_printable(cx->reason);
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
