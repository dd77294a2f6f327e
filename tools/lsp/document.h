// A file that is open in the editor, and its places.
//
// The protocol counts lines and columns from 0, columns in units of UTF-16 unless both sides take UTF-8; spans count from 1,
// columns in bytes.
#pragma once
#include "runtime/editor/editor.h"
#include "support/json.h"

typedef struct Document Document;
struct Document {
    Document *next;
    char *uri, *path, *text;   // of malloc, as all here: documents outlive messages
    size_t length;
    int64_t version;            // of the text, counted by the server
    int64_t numbered;           // the editor's number of that version
    Analysis *now;              // of this text, by the frontend
    Analysis *parsed;           // of the last text that parsed: `now`, or an earlier one; NULL: none
    Analysis *compiled;         // the last one with passes; NULL: none
    int64_t compiled_version;   // of the text that it is of
};

// NULL: out of memory.
Document *document_open(const char *uri, const char *text);
void document_close(Document *document);
// Applies an element of contentChanges: a text for a range, or the whole text. False: out of memory; the text is the old one.
bool document_change(Document *document, const Json *change, bool utf8);
// Takes the analysis of its present text.
void document_analysed(Document *document, Analysis *analysis);

// Where a place of the protocol is in a text: line and column of a Span.
typedef struct TextPlace {
    int line, column;
} TextPlace;
TextPlace document_place(const char *text, size_t length, const Json *position, bool utf8);
// A place and the range of a span as JSON. `text` NULL: the file is not known, its columns are taken as they are.
void put_position(StrBuf *out, const char *text, size_t length, int line, int column, bool utf8);
void put_range(StrBuf *out, const char *text, size_t length, Span span, bool utf8);

char *path_of_uri(Arena *arena, const char *uri);   // itself where it is no file: URI
void put_uri(StrBuf *out, const char *path);        // as a JSON string
