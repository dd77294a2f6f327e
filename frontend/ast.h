// The syntax tree: what was written, without meaning. One generic node; the table says what its fields hold.
//
// `kids` may hold NULL where something optional was left out. Trees live in the arena of the parse. A tree is at most
// AST_MAX_DEPTH nodes deep (the builder reports deeper ones), so that everything after the parser may recurse.
#pragma once
#include "ir/ir.h"
#include <string.h>

typedef enum {
    // kind        text        op         kids
    N_LIST,   //                        any number
    // items
    N_KERNEL,      // name                   [list of N_CPARAM, list of N_PARAM, when?, block, list of cost?]
    N_PROGRAM,     // name                   the same
    N_FN,          // name                   [list of N_PARAM, N_NAME of the result type, block]
    N_MACRO,       // name                   [list of N_PARAM, block]
    N_IMPORT,      // path
    N_CONST,       // name                   [value]; also a statement
    N_REFERENCE,   // name                [block]
    N_TEST,        // name                   [list of N_NAMED, block?, tolerance]
    N_CPARAM,   // name                   [N_NAME after the colon?, list of N_NAME: types, the first is the usual one?]
    N_PARAM,    // name        AstMode    [N_NAME of the type, dims?, strides?, list of N_ITER?, list of indices?]
    N_ATTR,     // name                   arguments
    // statements
    N_BLOCK,     //                        statements
    N_TUNE,      //                        N_TUNABLE...
    N_TUNABLE,   // name                   [list of candidates]
    N_ASSUME,    //                        [condition]
    N_DECLS,     //             AstScope   N_DECL...
    N_DECL,      // name                   [N_NAME of the type, dims?, N_STRING or N_CALL of the layout?]
    N_GRID,      //                        [list of N_ITER, threads, list of options, block]
    N_CLUSTER,   //                        extents
    N_PERSISTENT,
    N_RASTER,   //                        [rows]
    N_VAR,      // name                   [N_NAME of the type, value?]
    N_LET,      // name                   [value]
    N_LOOP,     //             LoopKind   [list of N_ITER and N_NAMED, block]
    N_ITER,     // name                   [begin?, end, step?]
    N_WHILE,    //                        [condition, block]
    N_IF,       //                        [condition, block, block?]
    N_BREAK,
    N_RETURN,   //                        [value]
    N_ROLE,   // name                   [N_NAME, threads, regs?, block]; of an array also [.., count, N_NAME of the index]
    N_CHANNEL,   // name                   [N_DECL without a name, or N_DECLS, or none?; list of N_NAMED and N_ATTR]
    N_PRODUCE,   // channel                [N_NAME, block]; N_CONSUME and N_ORDERED too
    N_CONSUME,
    N_ORDERED,
    N_THREAD,   //                        [list of N_ITER, block]
    N_ASYNC,    //                        [call]
    N_ASSIGN,   //             BinaryOp or AST_PLAIN   [place, value]
    N_EVAL,     //                        [call]
    // expressions
    N_NAME,      // name
    N_INT,       // as written             `integer` holds the value
    N_FLOAT,     // as written             `real` holds the value
    N_STRING,    // the characters
    N_INDEX,     //                        [base, index...]
    N_ALL,       // the index `:`
    N_SPAN,      // the index `a +: n`     [start, extent, step?]
    N_DOT,       // name                   [base]
    N_CALL,      // name                   arguments
    N_NAMED,     // name                   [value]; `name = value` in a list
    N_UNARY,     //             UnaryOp    [a]
    N_BINARY,    //             BinaryOp   [a, b]
    N_TERNARY,   //                        [condition, yes, no]
} NodeKind;

typedef enum { AST_IN, AST_OUT, AST_INOUT, AST_SHARED, AST_FRAGMENT, AST_LOCAL } AstMode;
typedef enum { DECL_SHARED, DECL_FRAGMENT, DECL_LOCAL, DECL_SCRATCH } AstScope;

enum { AST_PLAIN = -1 };           // `=` without an operation
enum { AST_LEADING = 1 };          // a parameter's dims: the first stands for all leading ones
enum { AST_MAX_NESTING = 256 };    // brackets, and bodies, inside each other
enum { AST_MAX_PRINTED = 1024 };   // brackets in printed IR, where inlining may have nested more
enum { AST_MAX_DEPTH = 1024 };     // nodes: a chain such as a + b + c... and statements without braces count too

typedef struct Node Node;
struct Node {
    NodeKind kind;
    Span span;
    const char *text;
    int op;
    int depth, bodies;   // nodes and N_BLOCKs inside each other, with this one
    uint64_t integer;
    double real;
    Node **kids;
    int count, capacity;   // VEC(Node *) by name
    Node *attrs;           // list of N_ATTR, NULL when there are none
};

Node *ast_new(Arena *arena, NodeKind kind, Span span);
void ast_push(Arena *arena, Node *node, Node *kid);   // kid may be NULL
void ast_set(Node *node, int at, Node *kid);          // a kid that is there, and NULL so far
// The place of the name of a call or an attribute, whose own span has its arguments too.
static inline Span ast_name_span(const Node *node) {
    Span span = node->span;
    span.end_line = span.line;
    span.end_column = span.column + (int)strlen(node->text) + (node->kind == N_ATTR);
    return span;
}
static inline bool ast_is_launchable(const Node *node) {
    return node->kind == N_KERNEL || node->kind == N_PROGRAM;
}
static inline Node *ast_kid(const Node *node, int at) {
    return node && at < node->count ? node->kids[at] : NULL;
}
