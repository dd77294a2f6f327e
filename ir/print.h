// IR to text: the `.tile` language. Printing, parsing and printing again gives the same text.
#pragma once
#include "ir/ir.h"
#include "support/strbuf.h"

typedef struct PrintOptions {
    bool places;     // @loc(...) on statements and declarations, so that the text carries its source places
    bool comments;   // notes for people after `//`: predicted conflicts, sizes
    bool tests;      // references and tests too
} PrintOptions;

// Names: a Var or Buf prints as its name; where two objects that are visible at once share a name the later one gets a
// suffix (`i_1`), so the text means the same program.
void print_module(const Module *module, PrintOptions options, StrBuf *out);
void print_func(const Module *module, const Func *func, PrintOptions options, StrBuf *out);
void print_stmt(const Stmt *stmt, int indent, StrBuf *out);   // for messages and debugging
void print_expr(const Expr *expr, StrBuf *out);
char *expr_text(Arena *arena, const Expr *expr);
char *region_text(Arena *arena, const Region *region);
