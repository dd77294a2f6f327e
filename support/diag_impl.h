// What diag.c, diag_text.c and diag_wire.c share. Not for other folders.
#pragma once
#include "support/diag.h"
#include "support/vec.h"

typedef struct DiagRow {
    DiagCode code;
    Severity severity;
    const char *text, *remedy;
} DiagRow;

typedef struct Source {
    const char *name, *text;
    size_t length;
} Source;

struct Diag {
    Arena *arena;
    const DiagRow *row;
    Span span;
    const char *message;
    VEC(DiagLabel) labels;
    VEC(const char *) notes;
    VEC(DiagLabel) fixes;
};

struct DiagSink {
    Arena *arena;
    VEC(Source) sources;
    VEC(Diag *) diags;
    int errors, repeated;   // listed or not; those that were listed before
};

const DiagRow *diag_row(int number);       // NULL for an unknown number
Diag *diag_add(DiagSink *sink, Diag *d);   // lists it, unless it repeats another one or there are too many
int diag_listed_errors(const DiagSink *sink);
const char *diag_severity_name(Severity severity);
// The line's text without its end; false when the source has no such line.
bool diag_line(const DiagSink *sink, int file, int line, const char **text, size_t *length);
int diag_column(const DiagSink *sink, int file, int line, int column);   // byte column -> character column
void diag_render_text(const DiagSink *sink, const Diag *d, bool color, StrBuf *out);
