// Questions about programs as loops, without callbacks:
//
//     FOR_EACH_STMT(stmt, &kernel->body) {        every statement of the block and below, outermost first, in order
//         if (is_loop(stmt, LOOP_PARALLEL)) SKIP_BODY(stmt);      go on behind it
//         if (is_call(stmt, OP_GEMM)) return true;                break, continue and return are those of any loop
//     }
//
// The statement is const; FOR_EACH_STMT_MUT takes a block that may be changed and gives a Stmt *. There, statements may
// be changed in place, and ones behind the current one in its block added or removed. FOR_EACH_STMT_IN starts with a
// statement itself. What needs the expressions, too, is any_expr below or a Visitor (rewrite.h).
#pragma once
#include "ir/match.h"
#include "ir/rewrite.h"
#include "support/map.h"

bool param_takes_rank(const Buf *param, int rank);   // the argument's
// The dims of an argument for a parameter of `rank` dims whose first stands for all leading ones (Buf.leading), as that
// many, in place; the arrays hold one more than *given. NULL, or why they are not one dim.
const char *merge_leading(Arena *arena, const char *name, int rank, int *given, int64_t *shape, int64_t *strides);

// The dims that an argument has in the place of the first of its parameter.
typedef struct LeadingDims {
    const char *name;
    int count;
    const int64_t *shape;
} LeadingDims;
// Of two parameters with one extent for them. NULL: they are the same; else why not.
const char *leading_differ(Arena *arena, const LeadingDims *a, const LeadingDims *b);

// The argument's dim that is dim d of its parameter (Buf.moved), and the parameter's extents or strides in the argument's
// order.
int moved_dim(int moved, int rank, int d);
// Buf.moved for a tensor that has the argument's dims.
int moved_by_strides(int rank, bool leading, Expr *const *shape, Expr *const *strides);
Expr **argument_dims(Arena *arena, const Buf *param, Expr *const *dims);

enum { WALK_LEVELS = 32 };   // that are remembered; the way back into more is looked up again

// Where a loop over statements is: a path of blocks from its root to the current statement.
typedef struct StmtWalk {
    Stmt *only;   // FOR_EACH_STMT_IN: the root, as a block of one
    Block only_block;
    Block *top;     // where it began
    Stmt *stmt;     // the current one
    Block *block;   // where it stands
    int index;
    int depth, lost;   // of the current block; levels before `lost` are not remembered
    bool skip;         // go on behind it
    struct {
        Stmt *owner;
        Block *block;
        int next;
    } levels[WALK_LEVELS];   // the last ones, by depth modulo their number
} StmtWalk;

StmtWalk *walk_block(StmtWalk *walk, const Block *block);
StmtWalk *walk_stmt(StmtWalk *walk, const Stmt *stmt);
Stmt *walk_next(StmtWalk *walk);   // NULL: it was the last one

// Two loops, of which the outer one runs once: it declares the walk.
#define WALK_EACH(Type, stmt, start)                                                                                   \
    for (StmtWalk stmt##_walk, *stmt##_at = start; stmt##_at; stmt##_at = NULL)                                        \
        for (Type stmt; (stmt = walk_next(&stmt##_walk)) != NULL;)
#define FOR_EACH_STMT(stmt, block) WALK_EACH(const Stmt *, stmt, walk_block(&stmt##_walk, block))
#define FOR_EACH_STMT_IN(stmt, top) WALK_EACH(const Stmt *, stmt, walk_stmt(&stmt##_walk, top))
#define FOR_EACH_STMT_MUT(stmt, block) WALK_EACH(Stmt *, stmt, walk_block(&stmt##_walk, block))
#define FOR_EACH_STMT_IN_MUT(stmt, top) WALK_EACH(Stmt *, stmt, walk_stmt(&stmt##_walk, top))
#define SKIP_BODY(stmt) ((void)(stmt##_walk.skip = true))
// The statements of the block itself, while none is added or removed; the bodies of a statement.
#define FOR_EACH_ITEM(stmt, block) VEC_EACH_PTR (Stmt, stmt, block)
#define FOR_EACH_BODY(body, stmt)                                                                                      \
    for (Block * body, *body##_all[2], **body##_at = body##_all,                                                       \
                                       **body##_end = body##_all + stmt_bodies((Stmt *)(stmt), body##_all);            \
         body##_at != body##_end && (body = *body##_at, true); body##_at++)
// What the statement and everything below it does to buffers.
#define FOR_EACH_EFFECT(effect, arena, stmt)                                                                           \
    for (EffectVec effect##_all = effects_of(arena, stmt), *effect##_outer = &effect##_all; effect##_outer;            \
         effect##_outer = NULL)                                                                                        \
        VEC_EACH (const Effect, effect, &effect##_all)
// Where the statement stands.
#define BLOCK_OF(stmt) (stmt##_walk.block)
#define INDEX_OF(stmt) (stmt##_walk.index)

// ---- statements of a block and below ----
typedef bool StmtTest(const Stmt *stmt, void *user);
bool block_any(const Block *block, StmtTest *is, void *user);
bool stmt_any(const Stmt *stmt, StmtTest *is, void *user);   // it or one below
const Stmt *block_first_call(const Block *block, OpId op);   // NULL: none
static inline bool block_calls(const Block *block, OpId op) {
    return block_first_call(block, op) != NULL;
}

bool below_any(const Stmt *stmt, StmtTest *is, void *user);     // one in its bodies
bool stmt_contains(const Stmt *stmt, const Stmt *inner);        // below it
bool iter_is_plain(const Iter *iter);                           // from 0 by 1
bool loop_is_plain(const Stmt *loop);                           // one such iterator
int64_t trip_count(int64_t begin, int64_t end, int64_t step);   // of a loop; INT64_MAX: these or more
int64_t iter_count(const Iter *iter);                           // how many values it takes; -1: not known
// The same as an expression: (end - begin) divided by the step, rounded up.
Expr *iter_trips(Arena *arena, const Iter *iter);
// The indices are the loop's own iterators, in their order.
bool is_loop_element(const Stmt *loop, int count, Expr *const *indices);
Stmt stmt_alone(const Stmt *stmt);                  // the statement with empty bodies
Region *call_region(const Stmt *call, int index);   // an operand; NULL: absent or no region
bool block_breaks(const Block *block);              // a `break` in it leaves the loop around it
bool stmt_breaks(const Stmt *stmt);                 // it is such a `break`, or contains one

EffectVec effects_of(Arena *arena, const Stmt *stmt);
int count_effects(Arena *arena, const Stmt *stmt, const Buf *buf);   // on the buffer
bool stmt_touches(Arena *arena, const Stmt *stmt, const Buf *buf);   // reads or writes it
bool stmt_writes(Arena *arena, const Stmt *stmt, const Buf *buf);

// ---- expressions: of an expression and all in it; of a statement and all below it ----
typedef bool ExprTest(const Expr *expr, const void *what);
bool any_expr(const Expr *expr, ExprTest *is, const void *what);
bool expr_known_at_launch(const Expr *expr);   // made of dims, scalars and constants
bool stmt_any_expr(const Stmt *stmt, ExprTest *is, const void *what);
bool stmt_any_own_expr(const Stmt *stmt, ExprTest *is, const void *what);   // not of the statements in its bodies
bool block_any_expr(const Block *block, ExprTest *is, const void *what);
bool expr_uses_any(const Expr *expr, const Map *vars);   // one of the variables that are keys of the map
bool expr_is_var(const Expr *expr, const Var *var);      // the variable itself
bool expr_calls(const Expr *expr, OpId op);

// ---- outside of thread regions: what one thread of the CTA (or role) executes ----
bool is_single_thread(const Stmt *stmt);   // a store, an operation on memory, print
bool is_joint_effect(const Expr *expr,
                     const void *what);   // for any_expr: an operation that one thread executes for all
bool binds_effect(const Stmt *stmt);    // a let, var or assignment of such an operation's result, which all threads get
Expr *expr_divisor(const Expr *expr);   // of an integer division, where it is no constant; NULL: none
bool expr_divides(const Expr *expr);    // it, or what it is made of, divides by what may be 0
bool expr_is_pure(const Expr *expr);    // its evaluation has no effect, so it may be dropped
bool block_loads(const Block *block, const Buf *buf);         // an element of it, in an expression
bool region_uses_var(const Region *region, const Var *var);   // where it begins
bool stmt_uses_var(const Stmt *stmt, const Var *var);         // in its expressions, or below
void expr_names(const Expr *expr, Map *names);                // adds the variables in it, as keys
void stmt_names(const Stmt *stmt, Map *names);
// Something in the block that must be a constant comes from the variable: an index of a local array, a bound of a loop,
// an operand of an instruction, or which iteration has a `break`.
bool needs_constant(Arena *arena, const Block *block, const Var *var);
