// Diagnostics: the table, the sink, and rendering as JSON. Rendering as text is in diag_text.c,
// sending to another process in diag_wire.c.
#include "support/diag_impl.h"
#include "support/json.h"
#include "support/utf8.h"
#include <limits.h>
#include <string.h>

enum { MOST_ERRORS = 100 };   // listed; further ones are only counted

#define DIAG(NAME, number, severity, text, remedy) {NAME, SEVERITY_##severity, text, remedy},
static const DiagRow rows[] = {
#include "support/diagnostics.def"
};
#undef DIAG

const DiagRow *diag_row(int number) {
    for (int i = 0; i < COUNT_OF(rows); i++)
        if ((int)rows[i].code == number) return &rows[i];
    return NULL;
}

// Two rows with one number do not compile here.
static inline void numbers_are_distinct(DiagCode code) {
    switch (code) {
#define DIAG(NAME, number, severity, text, remedy) case NAME:
#include "support/diagnostics.def"
#undef DIAG
        break;
    }
}

DiagSink *diag_sink_new(Arena *arena) {
    DiagSink *sink = NEW(arena, DiagSink);
    sink->arena = arena;
    (void)numbers_are_distinct;
    return sink;
}

int diag_add_source(DiagSink *sink, const char *name, const char *text, size_t length) {
    Source source = {arena_strdup(sink->arena, name), arena_strndup(sink->arena, text, length), length};
    vec_push(sink->arena, &sink->sources, source);
    return sink->sources.count - 1;
}

const char *diag_source_name(const DiagSink *sink, int file) {
    return file >= 0 && file < sink->sources.count ? sink->sources.items[file].name : "<none>";
}

bool diag_source(const DiagSink *sink, int file, const char **text, size_t *length) {
    if (file < 0 || file >= sink->sources.count) return false;
    *text = sink->sources.items[file].text;
    *length = sink->sources.items[file].length;
    return true;
}

// The variants of a kernel go through the same passes: each gives the same diagnostics. Code, place and message
// identify one; what differs between variants is in its notes. (What a program prints is a remark, too: a line may be
// printed several times.)
static bool is_repeated(const DiagSink *sink, const Diag *again) {
    bool placed = again->row->severity == SEVERITY_REMARK || again->span.line > 0;
    if (!placed || again->row->code == T_EMU_PRINT) return false;
    for (int i = 0; i < sink->diags.count; i++) {
        const Diag *d = sink->diags.items[i];
        if (d->row == again->row && memcmp(&d->span, &again->span, sizeof d->span) == 0 &&
            !strcmp(d->message, again->message))
            return true;
    }
    return false;
}

Diag *diag_add(DiagSink *sink, Diag *d) {
    bool repeated = is_repeated(sink, d);   // takes labels, is not listed
    bool error = d->row->severity == SEVERITY_ERROR;
    if (error && sink->errors++ >= MOST_ERRORS) return d;
    sink->repeated += repeated && error;
    if (repeated) return d;
    vec_push(sink->arena, &sink->diags, d);
    return d;
}

Diag *diag_v(DiagSink *sink, Span span, DiagCode code, va_list args) {
    Diag *d = NEW(sink->arena, Diag);
    d->arena = sink->arena;
    d->row = diag_row((int)code);
    d->span = span;
    d->message = arena_vprintf(sink->arena, d->row->text, args);
    return diag_add(sink, d);
}

Diag *diag(DiagSink *sink, Span span, DiagCode code, ...) {
    va_list args;
    va_start(args, code);
    Diag *d = diag_v(sink, span, code, args);
    va_end(args);
    return d;
}

void diag_label(Diag *d, Span span, const char *format, ...) {
    va_list args;
    va_start(args, format);
    DiagLabel label = {span, arena_vprintf(d->arena, format, args)};
    va_end(args);
    vec_push(d->arena, &d->labels, label);
}

void diag_note(Diag *d, const char *format, ...) {
    va_list args;
    va_start(args, format);
    const char *note = arena_vprintf(d->arena, format, args);
    va_end(args);
    vec_push(d->arena, &d->notes, note);
}

void diag_fix(Diag *d, Span span, const char *text) {
    DiagLabel fix = {span, arena_strdup(d->arena, text)};
    vec_push(d->arena, &d->fixes, fix);
}

void diag_suggest(Diag *d, Span span, const char *text) {
    if (!text) return;
    diag_note(d, "did you mean '%s'?", text);
    if (span.line) diag_fix(d, span, text);
}

int diag_errors(const DiagSink *sink) {
    return sink->errors;
}

int diag_count(const DiagSink *sink) {
    return sink->diags.count;
}

int diag_listed_errors(const DiagSink *sink) {
    int errors = 0;
    for (int i = 0; i < sink->diags.count; i++) errors += sink->diags.items[i]->row->severity == SEVERITY_ERROR;
    return errors;
}

void diag_truncate(DiagSink *sink, int count) {
    if (count >= sink->diags.count) return;
    sink->diags.count = count;
    sink->repeated = 0;
    sink->errors = diag_listed_errors(sink);   // unlisted ones came after those just dropped
}

DiagView diag_view(const DiagSink *sink, int index) {
    const Diag *d = sink->diags.items[index];
    return (DiagView){
        .code = d->row->code,
        .severity = d->row->severity,
        .file = diag_source_name(sink, d->span.line ? d->span.file : -1),
        .message = d->message,
        .remedy = d->row->remedy,
        .span = d->span,
        .label_count = d->labels.count,
        .labels = d->labels.items,
        .note_count = d->notes.count,
        .notes = d->notes.items,
        .fix_count = d->fixes.count,
        .fixes = d->fixes.items,
    };
}

const char *diag_severity_name(Severity severity) {
    return severity == SEVERITY_ERROR ? "error" : severity == SEVERITY_WARNING ? "warning" : "remark";
}

bool diag_line(const DiagSink *sink, int file, int line, const char **text, size_t *length) {
    const char *whole;
    size_t size;
    return diag_source(sink, file, &whole, &size) && text_line(whole, size, line, text, length);
}

int diag_column(const DiagSink *sink, int file, int line, int column) {
    const char *text;
    size_t length;
    if (!diag_line(sink, file, line, &text, &length)) return column;
    int characters = 1;
    size_t at = 0, end = column > 0 ? (size_t)column - 1 : 0;
    while (at < end && at < length) {
        uint32_t point;
        int bytes = utf8_decode(text + at, length - at, &point);
        at += bytes ? (size_t)bytes : 1;
        characters++;
    }
    return characters + (int)(end > at ? end - at : 0);
}

static void json_member(StrBuf *out, const char *name, const char *text) {
    sb_printf(out, ",\"%s\":", name);
    json_quote(out, text);
}

// Columns in JSON are those of the text form: characters, counted from 1. No place: no members.
static void json_span(StrBuf *out, const DiagSink *sink, Span span) {
    if (!span.line) return;
    json_member(out, "file", diag_source_name(sink, span.file));
    sb_printf(out, ",\"line\":%d,\"column\":%d,\"end_line\":%d,\"end_column\":%d", span.line,
              diag_column(sink, span.file, span.line, span.column), span.end_line,
              diag_column(sink, span.file, span.end_line, span.end_column));
}

static void json_labels(StrBuf *out, const DiagSink *sink, const char *name, const DiagLabel *labels, int count) {
    sb_printf(out, ",\"%s\":[", name);
    for (int i = 0; i < count; i++) {
        sb_str(out, i ? ",{\"text\":" : "{\"text\":");
        json_quote(out, labels[i].text);
        json_span(out, sink, labels[i].span);
        sb_char(out, '}');
    }
    sb_char(out, ']');
}

static void render_json(const DiagSink *sink, const Diag *d, StrBuf *out) {
    sb_printf(out, "{\"code\":\"T%04d\",\"severity\":\"%s\"", (int)d->row->code, diag_severity_name(d->row->severity));
    json_member(out, "message", d->message);
    json_span(out, sink, d->span);
    json_member(out, "remedy", d->row->remedy);
    json_labels(out, sink, "labels", d->labels.items, d->labels.count);
    json_labels(out, sink, "fixes", d->fixes.items, d->fixes.count);
    sb_str(out, ",\"notes\":[");
    for (int i = 0; i < d->notes.count; i++) {
        if (i) sb_char(out, ',');
        json_quote(out, d->notes.items[i]);
    }
    sb_str(out, "]}\n");
}

void diag_render(const DiagSink *sink, int first, DiagFormat format, StrBuf *out) {
    for (int i = first; i < sink->diags.count; i++) {
        if (format == DIAG_JSON) render_json(sink, sink->diags.items[i], out);
        else diag_render_text(sink, sink->diags.items[i], format == DIAG_TEXT_COLOR, out);
    }
    int unlisted = sink->errors - sink->repeated - diag_listed_errors(sink);
    if (unlisted == 0) return;
    if (format == DIAG_JSON) sb_printf(out, "{\"unlisted_errors\":%d}\n", unlisted);
    else sb_printf(out, "... and %d more error%s\n", unlisted, unlisted == 1 ? "" : "s");
}

bool diag_explain(int number, Arena *arena, DiagExplanation *explanation) {
    const DiagRow *row = diag_row(number);
    if (!row) return false;
    StrBuf out;
    sb_init(&out, arena);
    for (const char *at = row->text; *at; at++) {
        if (*at != '%') {
            sb_char(&out, *at);
        } else if (at[1] == '%') {
            sb_char(&out, *at++);
        } else {   // a conversion: flags, width, length, and the letter that ends it
            at += 1 + strspn(at + 1, "-+ #0123456789.*hljzt");
            sb_str(&out, "...");
        }
    }
    *explanation = (DiagExplanation){diag_severity_name(row->severity), sb_text(&out), row->remedy};
    return true;
}
