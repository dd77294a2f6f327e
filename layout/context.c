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
