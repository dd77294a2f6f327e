#include "tools/lsp/document.h"
#include "support/utf8.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- URIs ----
static int hex_digit(char c) {
    return isdigit((unsigned char)c) ? c - '0' : isxdigit((unsigned char)c) ? tolower((unsigned char)c) - 'a' + 10 : -1;
}

char *path_of_uri(Arena *arena, const char *uri) {
    StrBuf path;
    sb_init(&path, arena);
    const char *at = strncmp(uri, "file://", 7) == 0 ? uri + 7 : uri;
    for (; *at; at++) {
        int high = *at == '%' ? hex_digit(at[1]) : -1, low = high >= 0 ? hex_digit(at[2]) : -1;
        sb_char(&path, low >= 0 ? (char)(16 * high + low) : *at);
        if (low >= 0) at += 2;
    }
    return arena_strdup(arena, sb_text(&path));
}

void put_uri(StrBuf *out, const char *path) {
    sb_str(out, "\"file://");
    for (const char *at = path; *at; at++) {
        if (isalnum((unsigned char)*at) || strchr("/-._~", *at)) sb_char(out, *at);
        else sb_printf(out, "%%%02X", (unsigned char)*at);
    }
    sb_char(out, '"');
}

// ---- places ----
typedef struct LineText {
    const char *text;
    size_t length;
} LineText;

// Behind the last line is the end of the text.
static LineText line_of(const char *text, size_t length, int64_t line) {
    LineText found = {text + length, 0};
    if (line >= 0 && line < INT32_MAX) text_line(text, length, (int)line + 1, &found.text, &found.length);
    return found;
}

static int units_of(uint32_t point, int bytes, bool utf8) {
    return utf8 ? bytes : point >= 0x10000 ? 2 : 1;
}

static size_t byte_of(LineText line, int64_t units, bool utf8) {
    size_t at = 0;
    while (at < line.length && units > 0) {
        uint32_t point = 0;
        int bytes = utf8_decode(line.text + at, line.length - at, &point);
        if (bytes == 0) bytes = 1;
        units -= units_of(point, bytes, utf8);
        at += (size_t)bytes;
    }
    return at;
}

static size_t units_before(LineText line, size_t byte, bool utf8) {
    size_t units = 0;
    for (size_t at = 0; at < byte && at < line.length;) {
        uint32_t point = 0;
        int bytes = utf8_decode(line.text + at, line.length - at, &point);
        if (bytes == 0) bytes = 1;
        units += (size_t)units_of(point, bytes, utf8);
        at += (size_t)bytes;
    }
    return units;
}

static size_t offset_of(const char *text, size_t length, const Json *position, bool utf8) {
    LineText line = line_of(text, length, json_integer(json_get(position, "line"), 0));
    return (size_t)(line.text - text) + byte_of(line, json_integer(json_get(position, "character"), 0), utf8);
}

TextPlace document_place(const char *text, size_t length, const Json *position, bool utf8) {
    int64_t number = json_integer(json_get(position, "line"), 0);
    LineText line = line_of(text, length, number);
    int64_t units = json_integer(json_get(position, "character"), 0);
    return (TextPlace){(int)number + 1, (int)byte_of(line, units, utf8) + 1};
}

void put_position(StrBuf *out, const char *text, size_t length, int line, int column, bool utf8) {
    size_t at = (size_t)(column > 0 ? column - 1 : 0);
    if (text) at = units_before(line_of(text, length, line - 1), at, utf8);
    sb_printf(out, "{\"line\":%d,\"character\":%zu}", line > 0 ? line - 1 : 0, at);
}

void put_range(StrBuf *out, const char *text, size_t length, Span span, bool utf8) {
    sb_str(out, "{\"start\":");
    put_position(out, text, length, span.line, span.column, utf8);
    sb_str(out, ",\"end\":");
    put_position(out, text, length, span.end_line, span.end_column, utf8);
    sb_char(out, '}');
}

// ---- documents ----
// `text` is of malloc and ends in a zero; it is the document's now.
static void take_text(Document *document, char *text, size_t length) {
    free(document->text);
    document->text = text;
    document->length = length;
    document->version++;
}

static bool set_text(Document *document, const char *text) {
    char *copy = strdup(text);
    if (copy) take_text(document, copy, strlen(copy));
    return copy != NULL;
}

Document *document_open(const char *uri, const char *text) {
    Document *document = calloc(1, sizeof *document);
    if (!document) return NULL;
    document->uri = strdup(uri);
    if (document->uri && set_text(document, text)) return document;
    document_close(document);
    return NULL;
}

void document_close(Document *document) {
    if (document->parsed != document->now) editor_free(document->parsed);
    editor_free(document->now);
    editor_free(document->compiled);
    free(document->uri);
    free(document->path);
    free(document->text);
    free(document);
}

bool document_change(Document *document, const Json *change, bool utf8) {
    const Json *range = json_get(change, "range");
    const char *text = json_text(json_get(change, "text"), "");
    if (!range) return set_text(document, text);
    size_t from = offset_of(document->text, document->length, json_get(range, "start"), utf8);
    size_t to = offset_of(document->text, document->length, json_get(range, "end"), utf8);
    if (to < from) to = from;
    char *changed;
    int length = asprintf(&changed, "%.*s%s%s", (int)from, document->text, text, document->text + to);
    if (length < 0) return false;
    take_text(document, changed, (size_t)length);
    return true;
}

void document_analysed(Document *document, Analysis *analysis) {
    bool parses = analysis && analysis->outline;
    if (document->now != document->parsed) editor_free(document->now);
    if (parses) editor_free(document->parsed);
    document->now = analysis;
    if (parses) document->parsed = analysis;
}
