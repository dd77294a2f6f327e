// Diagnostics: errors, warnings and remarks with a code, a place, an excerpt and a caret.
//
// Every code is one row of diagnostics.def: its number, severity, short name, text (a printf format) and remedy. A
// diagnostic is collected, not printed; the caller renders all of them as text (rustc-like) or JSON.
//
//     Diag *d = diag(sink, span, T_UNKNOWN_NAME, name);
//     diag_label(d, other_span, "declared here");
//     diag_note(d, "did you mean '%s'?", near);
#pragma once
#include "support/arena.h"
#include "support/strbuf.h"
#include <stdbool.h>

typedef struct Span {   // a place in a source; lines and columns count from 1, columns in bytes; line 0: no place
    int file;           // index of a source of the sink
    int line, column;
    int end_line, end_column;   // one past the last byte
} Span;

typedef enum { SEVERITY_ERROR, SEVERITY_WARNING, SEVERITY_REMARK } Severity;

typedef enum DiagCode {
#define DIAG(NAME, number, severity, text, remedy) NAME = number,
#include "support/diagnostics.def"
#undef DIAG
} DiagCode;

typedef struct DiagSink DiagSink;
typedef struct Diag Diag;

DiagSink *diag_sink_new(Arena *arena);
// Registers a source for excerpts, and keeps a copy; `text` need not be terminated. Returns the file index.
int diag_add_source(DiagSink *sink, const char *name, const char *text, size_t length);
const char *diag_source_name(const DiagSink *sink, int file);                          // "<none>" out of range
bool diag_source(const DiagSink *sink, int file, const char **text, size_t *length);   // false: there is none

// Adds a diagnostic; the variadic arguments fill the code's format. After 100 errors the rest are counted only. One
// with the code, place and text of an earlier one is not listed again.
Diag *diag(DiagSink *sink, Span span, DiagCode code, ...);
Diag *diag_v(DiagSink *sink, Span span, DiagCode code, va_list args);
void diag_label(Diag *d, Span span, const char *format, ...) __attribute__((format(printf, 3, 4)));
void diag_note(Diag *d, const char *format, ...) __attribute__((format(printf, 2, 3)));
// An edit that mends it: `text` in the place of the span, which may be empty. Editors offer it; the text form does not show it.
void diag_fix(Diag *d, Span span, const char *text);
// What was meant instead of the text of the span: a note, and the edit where the span has a place. `text` NULL: nothing.
void diag_suggest(Diag *d, Span span, const char *text);

int diag_errors(const DiagSink *sink);           // errors so far
int diag_count(const DiagSink *sink);            // diagnostics so far
void diag_truncate(DiagSink *sink, int count);   // drops those after the first `count` (for trial runs)

typedef struct DiagLabel {   // a place with a text: what stands there, or (a fix) what should stand there
    Span span;
    const char *text;
} DiagLabel;

// A diagnostic as data (for the public API, editors and tests).
typedef struct DiagView {
    DiagCode code;
    Severity severity;
    const char *file, *message, *remedy;
    Span span;
    int label_count, note_count, fix_count;
    const DiagLabel *labels, *fixes;
    const char *const *notes;
} DiagView;
DiagView diag_view(const DiagSink *sink, int index);

typedef enum { DIAG_TEXT, DIAG_TEXT_COLOR, DIAG_JSON } DiagFormat;
// All diagnostics from `first` on, in order. Text: `file:line:col: error[T0123]: text`, excerpt, caret, labels, notes.
// JSON: one object a line.
void diag_render(const DiagSink *sink, int first, DiagFormat format, StrBuf *out);

// All diagnostics as bytes, with the sources that they name; diag_read adds them to another sink, of this process or
// another one, in which they look the same. False: the bytes are no such diagnostics, and none was added.
void diag_write(const DiagSink *sink, StrBuf *out);
bool diag_read(DiagSink *sink, const char *data, size_t size);

// The table's row, of which `message` has `...` for what varies. False: an unknown number.
typedef struct DiagExplanation {
    const char *severity, *message, *remedy;
} DiagExplanation;
bool diag_explain(int number, Arena *arena, DiagExplanation *out);
