// Statements by what they are: operations with named operands, from ops.def, and the mechanism that does them.
//
//     CopyOp copy;
//     if (match_copy(stmt, &copy) && copy.dst->buf->scope == SCOPE_SHARED) ...    a copy, else false
//     GemmOp gemm = gemm_of(stmt);                                               known to be a gemm
//     ARG(stmt, COPY, bar) = arg_region(bar);                                    one operand, to change it
//
// An operand that is read or written is a Region *, a value an Expr *, a word a const Arg *. An optional one that is
// absent is NULL (a word: an Arg without anything).
#pragma once
#include "ir/ir.h"
#include <stddef.h>

// ---- operands by name: one struct for each row of ops.def, with a pointer for each operand ----
#define MEMBER_READ(name) Region *name;
#define MEMBER_WRITE(name) Region *name;
#define MEMBER_UPDATE(name) Region *name;
#define MEMBER_VALUE(name) Expr *name;
#define MEMBER_NAME(name) const Arg *name;
#define OPERAND(name, access, ...) MEMBER_##access(name)
#define OPERANDS(...) __VA_ARGS__
#define OP(NAME, text, stages, result, by, done, feature, classes, summary, operands)                                  \
    typedef struct NAME##_Operands {                                                                                   \
        operands void *end;                                                                                            \
    } NAME##_Operands;
#include "ir/ops.def"
#undef OP
#undef OPERANDS
#undef OPERAND
#undef MEMBER_READ
#undef MEMBER_WRITE
#undef MEMBER_UPDATE
#undef MEMBER_VALUE
#undef MEMBER_NAME

// The place of an operand among the arguments, and the argument itself: of a statement or an expression.
#define OPERAND_INDEX(NAME, operand) (offsetof(NAME##_Operands, operand) / sizeof(void *))
#define ARG(node, NAME, operand) ((node)->call.args[OPERAND_INDEX(NAME, operand)])

static inline bool is_call(const Stmt *stmt, OpId op) {
    return stmt->kind == STMT_CALL && stmt->call.op == op;
}
static inline bool is_call_of(const Stmt *stmt, int classes) {   // OP_CLASS_ bits
    return stmt->kind == STMT_CALL && op_is(stmt->call.op, classes);
}
static inline bool is_loop(const Stmt *stmt, LoopKind kind) {
    return stmt->kind == STMT_FOR && stmt->loop.kind == kind;
}
static inline bool is_pipelined(const Stmt *stmt) {
    return is_loop(stmt, LOOP_PIPELINED);
}
static inline bool is_shared_decl(const Stmt *stmt) {
    return stmt->kind == STMT_DECL && stmt->decl->scope == SCOPE_SHARED;
}

// ---- expressions by what they are ----
static inline bool is_binary(const Expr *expr, BinaryOp op) {
    return expr->kind == EXPR_BINARY && expr->binary.op == op;
}
_Static_assert(BIN_GE - BIN_EQ == 5, "comparisons are neighbours");
static inline bool op_compares(BinaryOp op) {
    return op >= BIN_EQ && op <= BIN_GE;
}
static inline bool is_comparison(const Expr *expr) {
    return expr->kind == EXPR_BINARY && op_compares(expr->binary.op);
}
static inline bool is_expr_call(const Expr *expr, OpId op) {
    return expr->kind == EXPR_CALL && expr->call.op == op;
}

// Fills the operands' struct of the call's op.
void call_operands(const Stmt *call, void *operands);

#define MATCHER(NAME, Type, name)                                                                                      \
    typedef NAME##_Operands Type;                                                                                      \
    static inline Type name##_of(const Stmt *stmt) {                                                                   \
        Type operands;                                                                                                 \
        call_operands(stmt, &operands);                                                                                \
        return operands;                                                                                               \
    }                                                                                                                  \
    static inline bool match_##name(const Stmt *stmt, Type *out) {                                                     \
        bool matches = is_call(stmt, OP_##NAME);                                                                       \
        if (matches) call_operands(stmt, out);                                                                         \
        return matches;                                                                                                \
    }
MATCHER(COPY, CopyOp, copy)
MATCHER(FILL, FillOp, fill)
MATCHER(GEMM, GemmOp, gemm)
MATCHER(AWAIT, AwaitOp, await)
MATCHER(MBARRIER_WAIT, WaitOp, wait)
#undef MATCHER

// Reductions have the same operands, and scans.
typedef REDUCE_SUM_Operands ReduceOp;
typedef SCAN_SUM_Operands ScanOp;
ReduceOp reduce_of(const Stmt *stmt);
ScanOp scan_of(const Stmt *stmt);
static inline bool is_reduction(const Stmt *stmt) {
    return is_call_of(stmt, OP_CLASS_REDUCTION);
}
static inline bool is_scan(const Stmt *stmt) {
    return is_call_of(stmt, OP_CLASS_SCAN);
}
bool match_reduce(const Stmt *stmt, ReduceOp *out);

// ---- copies by where they read and write ----
bool is_copy_between(const Stmt *stmt, Scope from, Scope to);
static inline bool is_global_to_shared_copy(const Stmt *stmt) {
    return is_copy_between(stmt, SCOPE_GLOBAL, SCOPE_SHARED);
}
static inline bool is_shared_to_global_copy(const Stmt *stmt) {
    return is_copy_between(stmt, SCOPE_SHARED, SCOPE_GLOBAL);
}
static inline bool is_fragment_to_global_copy(const Stmt *stmt) {
    return is_copy_between(stmt, SCOPE_FRAGMENT, SCOPE_GLOBAL);
}
static inline bool is_fragment_copy(const Stmt *stmt) {
    return is_copy_between(stmt, SCOPE_FRAGMENT, SCOPE_FRAGMENT);
}
// The side of a copy from or to a tensor that is the tensor, and the other one.
static inline Region *copy_tensor(const Stmt *copy) {
    return copy_of(copy).dst->buf->scope == SCOPE_GLOBAL ? copy_of(copy).dst : copy_of(copy).src;
}
static inline Region *copy_tile(const Stmt *copy) {
    return copy_of(copy).dst->buf->scope == SCOPE_GLOBAL ? copy_of(copy).src : copy_of(copy).dst;
}

// ---- products ----
// It adds to its accumulator, in each case.
bool gemm_adds(const GemmOp *gemm);
// The name that instructions use for the type of a gemm's operand (0, 1) or accumulator (2): f32 is "tf32" if the
// source allows it.
const char *gemm_type(const Stmt *gemm, int operand);

// ---- stores by what they do ----
bool loads_stored(const Expr *expr, const Stmt *store);   // the expression loads the element that the statement stores
Expr *scale_of(const Stmt *stmt);                         // of a store x = x * f or f * x: f; NULL: another statement
