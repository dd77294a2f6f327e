// Nested tuples of integers (CuTe's IntTuple): shapes, coordinates, profiles. `_` stands for "all of this mode".
//
// Text: `5`, `_`, `(3,(2,4))`, `(4)` is a tuple of one; CuTe's mark of a static integer (`_8`) reads as the integer.
#pragma once
#include "layout/scan.h"
#include "support/strbuf.h"

// Arithmetic on magnitudes up to LAYOUT_LIMIT; beyond it: refused, result 0.
int64_t layout_mul(LayoutContext *cx, int64_t a, int64_t b);
int64_t layout_sum(LayoutContext *cx, int64_t a, int64_t b);

typedef enum { TUPLE_INT, TUPLE_ANY, TUPLE_LIST } TupleKind;

typedef struct Tuple {
    TupleKind kind;
    int count;                   // of items, for a list
    int64_t value;               // for an integer
    const struct Tuple *items;   // for a list
} Tuple;

static inline Tuple tuple_int(int64_t value) {
    return (Tuple){.kind = TUPLE_INT, .value = value};
}

Tuple tuple_list(LayoutContext *cx, const Tuple *items, int count);   // copies the items

// The top-level modes: an integer is its own single mode.
static inline int tuple_rank(Tuple t) {
    return t.kind == TUPLE_LIST ? t.count : 1;
}
static inline Tuple tuple_mode(Tuple t, int mode) {
    return t.kind == TUPLE_LIST ? t.items[mode] : t;
}

int tuple_leaves(Tuple t);                           // number of integers and `_`
int64_t tuple_product(LayoutContext *cx, Tuple t);   // refuses `_`
void tuple_print(StrBuf *out, Tuple t);
void tuple_print_integer(StrBuf *out, int64_t value);   // what printf("%lld") prints, faster

Tuple scan_tuple(Scan *scan);

Tuple tuple_parse(LayoutContext *cx, const char *text);   // the whole text
