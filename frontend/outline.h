// The names of a file and its imports: where each is declared, and where it is used. For editors (runtime/editor/).
//
// Works on the syntax tree alone, so also where elaboration finds errors; a name that nothing declares has no entry. A
// declaration in a macro is one declaration, however often the macro is called.
#pragma once
#include "frontend/frontend.h"

typedef enum {
    NAME_KERNEL,
    NAME_PROGRAM,
    NAME_FN,
    NAME_MACRO,
    NAME_CONST,
    NAME_COMPILE_TIME,   // `[D]` behind a kernel's name
    NAME_DIM,
    NAME_PARAMETER,
    NAME_TUNABLE,
    NAME_BUFFER,
    NAME_CHANNEL,
    NAME_VARIABLE,   // let, var
    NAME_ITERATOR,
    NAME_ROLE,
} NameKind;

typedef struct DeclaredName {
    NameKind kind;
    const char *text;
    Span span;    // of the name
    Span scope;   // where it is visible; line 0: everywhere in the file and in those that import it
} DeclaredName;

typedef struct NameUse {
    Span span;
    int declared;   // index in Outline.declared
} NameUse;

typedef struct Outline {
    VEC(DeclaredName) declared;   // imports where they stand, else in the order of the text
    VEC(NameUse) uses;            // declarations too: each is a use of itself
} Outline;

// `arena`: for the result.
const Outline *syntax_outline(const Syntax *syntax, Arena *arena);
