// How the language writes what a program writes as another language does: notes and fixes for diagnostics (foreign.def).
#pragma once
#include "support/diag.h"

typedef enum {
    FOREIGN_SYNTAX,
    FOREIGN_LINE,
    FOREIGN_GUESS,
    FOREIGN_NAME,
    FOREIGN_ARGUMENT,
    FOREIGN_ATTRIBUTE,
    FOREIGN_INDEXED,
    FOREIGN_OPERATOR
} ForeignKind;   // macros of foreign.def

typedef struct Foreign {
    const char *note;
    const char *fix;   // what mends it in the place of `span`; NULL: no edit does
    Span span;
} Foreign;

// What is known of the token at `at`; of the operator behind the operand that ends there. False: nothing.
bool foreign_find(Arena *arena, const DiagSink *sink, ForeignKind kind, Span at, Foreign *found);
void foreign_add(Diag *d, const Foreign *found);
