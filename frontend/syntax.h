// A parsed file with its imports: the declarations by name. Not for other folders.
#pragma once
#include "frontend/ast.h"
#include "frontend/frontend.h"
#include "support/map.h"

typedef struct SyntaxItem {
    Node *node;
    bool imported;   // its tests and its uncalled kernels are not the file's
} SyntaxItem;

struct Syntax {
    Arena *arena;
    Failure *failure;
    DiagSink *sink;
    const ImportReader *reader;
    VEC(SyntaxItem) items;   // in source order, imports where they stand
    StrMap *consts;          // name -> N_CONST
    StrMap *inlines;         // name -> N_FN, N_MACRO
    StrMap *launchables;     // name -> the last N_KERNEL or N_PROGRAM of that name
    StrMap *references;      // name -> N_REFERENCE
    StrMap *files;           // resolved name of a file -> whether it is being read or done
    int depth;               // imports around the file that is being read
    int nesting;             // brackets that may stand inside each other
};

// syntax_parse with another limit for nesting.
Syntax *syntax_parse_nested(Arena *arena, Failure *failure, DiagSink *sink, const char *name, const char *text,
                            size_t length, const ImportReader *reader, int nesting);
