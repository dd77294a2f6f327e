// What the files of the printer share. Not for other folders.
#pragma once
#include "ir/build.h"
#include "ir/print.h"
#include "support/map.h"

typedef struct Printer {
    Arena *arena;
    StrBuf *out;
    const Module *module;   // for the names of source files; may be NULL
    PrintOptions options;
    int indent;
    Map *names;                // Var, Buf -> its text
    StrMap *taken;             // text -> the object that has it now
    VEC(const char *) order;   // texts in order of declaration: a block ends by taking them back
    Span place;                // what @loc said around
    bool in_thread;
} Printer;

// What decides the type of a literal in some place.
typedef enum { TYPE_FREE, TYPE_PROMOTED, TYPE_EXACT } LiteralRule;
typedef struct LiteralPlace {
    LiteralRule rule;   // nothing; the other operand's type; the type that is stored to
    Type type;
} LiteralPlace;
static const LiteralPlace anywhere = {TYPE_FREE, TYPE_NONE};
LiteralPlace exactly(Type type);

// How tightly binds what an expression stands in; 0: it stands alone.
enum { LEVEL_SELECT = 1, LEVEL_OR, LEVEL_AND, LEVEL_UNARY = 12, LEVEL_PRIMARY };

// print_expr.c

// The name that a Var or Buf has from here on; forget_texts takes back those since `mark` (order.count).
const char *declare_text(Printer *p, const void *object, const char *name);
void forget_texts(Printer *p, int mark);
const char *var_text(const Printer *p, const Var *var);
const char *buf_text(const Printer *p, const Buf *buf);

void put_real(StrBuf *out, Type type, double value);
void put_string(StrBuf *out, const char *text);   // quoted
void put_expr(Printer *p, const Expr *e, int level, LiteralPlace place);
void put_indices(Printer *p, int count, Expr *const *indices);
void put_buffer(Printer *p, const Buf *buf);
void put_region(Printer *p, const Region *region);
void put_args(Printer *p, OpId op, int count, const Arg *args);
