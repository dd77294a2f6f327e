// Reading of texts: one place that advances, refusals that say where.
#pragma once
#include "layout/swizzle.h"

// A place in a text; the parsers of this folder advance it.
typedef struct Scan {
    LayoutContext *cx;
    const char *start, *at;
} Scan;

static inline Scan scan_text(LayoutContext *cx, const char *text) {
    return (Scan){cx, text, text};
}
void scan_space(Scan *scan);
bool scan_accept(Scan *scan, char c);              // skips spaces, then takes c if it is next
bool scan_expect(Scan *scan, char c);              // the same, else refuses
bool scan_keyword(Scan *scan, const char *word);   // skips spaces, then takes the word if it is next
bool scan_end(Scan *scan);                         // refuses when text is left
int64_t scan_integer(Scan *scan);                  // digits, at most 2^62; `_8` reads 8
Swizzle scan_swizzle(Scan *scan);                  // `B,M,S`; S may be negative
