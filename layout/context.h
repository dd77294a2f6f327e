// What every function of the layout algebra is given: an arena for its results, and the place for a refusal.
//
// The algebra never aborts. A function that cannot answer calls `layout_refuse`, which stores a reason (the first one
// wins), and returns any value; functions called with a context that has already failed return early or compute
// something harmless. So a formula is written as a formula and checked once, at its end:
//
//     Cute rest = cute_composition(cx, a, cute_complement(cx, b, cute_size(a)));
//     if (cx->failed) report(cx->reason);
#pragma once
#include "support/arena.h"
#include <stdbool.h>
#include <stdint.h>

typedef struct LayoutContext {
    Arena *arena;
    bool failed;
    char reason[240];   // of the first refusal
} LayoutContext;

// Extents, strides, sizes and offsets stay below this; whatever would exceed it is refused.
#define LAYOUT_LIMIT ((int64_t)1 << 62)

static inline LayoutContext layout_context(Arena *arena) {
    return (LayoutContext){.arena = arena};
}

// Stores the reason unless there is one. Always returns false, for `return layout_refuse(...)`.
bool layout_refuse(LayoutContext *cx, const char *format, ...) __attribute__((format(printf, 2, 3)));

static inline int log2_exact(int64_t n) {   // -1: no power of two
    return n > 0 && !(n & (n - 1)) ? __builtin_ctzll((unsigned long long)n) : -1;
}
static inline int log2_above(int64_t n) {   // the bits that count n things
    return n > 1 ? 64 - __builtin_clzll((unsigned long long)n - 1) : 0;
}
