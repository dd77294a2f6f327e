// What an editor asks of the text of a `.tile` file (`tilec lsp` speaks the protocol).
//
// In: a text, as often as it changes. Out: diagnostics with edits that mend them, the names and where they are used, and
// facts about places: types, layouts, costs, what the passes decided. Places are Spans: lines and columns from 1,
// columns in bytes. Files:
//
//     analysis   a text through the frontend, or through the passes up to swizzle-allocation
//     facts      types, layouts, costs and decisions of a module by their places in the text
//     places     the name at a place, hover, completion
//     textmate   colors
#pragma once
#include "frontend/outline.h"
#include "support/strbuf.h"
#include "target/target.h"

typedef struct Fact {
    int line, column;   // where the name or the call begins
    const char *text;   // Markdown
} Fact;

typedef struct InlayHint {
    int line, column;   // it stands behind this place
    const char *text;
} InlayHint;

typedef struct EditorText {
    const char *path;   // of the file; imports are looked up next to it
    const char *text;
    size_t length;
    const Target *target;      // NULL: no passes run, so there are no layouts and decisions
    const char *import_root;   // imports outside of this folder are refused; NULL: none is
} EditorText;

typedef struct Analysis {
    Arena *arena;   // of all that the analysis has; its own
    Failure failure;
    DiagSink *sink;
    const Outline *outline;   // NULL: the text does not parse
    VEC(Fact) facts;
    VEC(InlayHint) hints;
} Analysis;

// Analyses a text. Internal errors are diagnostics of the result. NULL: out of memory. Safe in several threads.
Analysis *editor_analyse(const EditorText *text);
void editor_free(Analysis *analysis);   // NULL: nothing

// ---- facts.c: adds to the analysis what the module says of the text's file ----
void facts_of_types(Analysis *analysis, const Module *module, int file);
void facts_of_passes(Analysis *analysis, Module *module, const Target *target, int file);

// ---- places.c ----
// The use of a name at a place; NULL: none.
const NameUse *editor_use_at(const Outline *outline, int file, int line, int column);
// Markdown about the word at a place; false: there is nothing to say. The facts are those of `facts`, the last analysis
// with passes, whose places need not be those of `now`; NULL: none.
bool editor_hover(const Analysis *now, const Analysis *facts, const char *text, size_t length, int line, int column,
                  StrBuf *out);

typedef enum { SUGGEST_NAME, SUGGEST_OPERATION, SUGGEST_ATTRIBUTE, SUGGEST_TYPE, SUGGEST_KEYWORD } SuggestionKind;
typedef struct Suggestion {
    SuggestionKind kind;
    NameKind name;   // of SUGGEST_NAME
    const char *label, *detail;
} Suggestion;
typedef VEC(Suggestion) SuggestionVec;

// What may stand at a place: names that are visible there, operations, types and keywords; behind `@` attributes.
void editor_complete(Arena *arena, const Outline *outline, const char *text, size_t length, int line, int column,
                     SuggestionVec *out);
const char *name_kind_text(NameKind kind);

void editor_textmate(StrBuf *out);   // textmate.c: the grammar by which editors color programs, as JSON
