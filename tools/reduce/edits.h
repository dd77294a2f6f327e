// What `tilec reduce` tries: families of edits to a program, each family ordered from large cuts to small ones.
//
// An edit knows nothing of the language but its brackets and separators, so most of them make programs that are wrong;
// the command that is the oracle says which ones still show the failure.
#pragma once
#include "tools/source.h"

typedef struct Change {   // tokens from..to-1 become `text`; "": they go
    int from, to;
    const char *text;
} Change;

typedef struct Edit {
    int count;
    Change *changes;   // by place, none within another; of two at one place the first holds
} Edit;

typedef VEC(Edit) Edits;

typedef void (*EditFamily)(SourceTree *tree, Edits *out);

void edits_delete(SourceTree *tree,
                  Edits *out);   // runs of statements or list items: halves, quarters, ... single ones
void edits_unwrap(SourceTree *tree, Edits *out);   // `for (i in N) {...}` becomes what is in its braces, with i = 0
void edits_names(SourceTree *tree,
                 Edits *out);   // all that names a thing; an argument in all calls; a name's value in its place
void edits_numbers(SourceTree *tree,
                   Edits *out);   // smaller numbers: a number in all its places, all large ones, single ones
void edits_hoist(SourceTree *tree, Edits *out);   // `f(a, b)` becomes a, or b
void edits_elements(SourceTree *tree,
                    Edits *out);   // runs of tokens and brackets within a statement: operands, attributes
void edits_constants(SourceTree *tree, Edits *out);   // an expression becomes 0 or 1
void edits_rename(SourceTree *tree, Edits *out);      // long names become short ones

// The text after an edit, as the file would have it, with white space and comments of what stays.
void edit_apply(const SourceTree *tree, const Edit *edit, StrBuf *out);
