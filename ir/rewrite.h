// Walking and rebuilding programs: what every pass is written with.
#pragma once
#include "ir/ir.h"
#include "support/map.h"

// The blocks directly below a statement, in order; at most 2.
int stmt_bodies(Stmt *stmt, Block *bodies[2]);
// The iterators that a statement declares (loop, grid, thread region) in *iters; returns 0 without iterators.
int stmt_iters(const Stmt *stmt, Iter **iters);

// ---- visiting (without expressions: query.h): `expr` is called for every expression before its operands, `stmt` for
// every statement before its body; returning false skips what is below ----
typedef struct Visitor {
    bool (*expr)(struct Visitor *visitor, Expr *expr);
    bool (*stmt)(struct Visitor *visitor, Stmt *stmt);
    void (*region)(struct Visitor *visitor, Region *region, const Operand *operand);   // operands of calls
    void *user;
} Visitor;
void visit_block(Visitor *visitor, Block *block);
void visit_stmt(Visitor *visitor, Stmt *stmt);
void visit_expr(Visitor *visitor, Expr *expr);

// ---- mapping expressions: bottom-up; `expr` gets a node whose operands are done and returns it or another ----
typedef struct Mapper {
    Arena *arena;
    // Before the operands: what stands for the node and all in it, NULL: nothing does. May be NULL.
    Expr *(*replace)(struct Mapper *mapper, Expr *expr);
    Expr *(*expr)(struct Mapper *mapper, Expr *expr);
    Region *(*region)(struct Mapper *mapper, Region *region);   // may be NULL
    void *user;
    bool whole;     // `expr` gets whole expressions, not their nodes
    bool changed;   // set when something differs
} Mapper;
Expr *map_expr(Mapper *mapper, Expr *expr);
void map_stmt(Mapper *mapper, Stmt *stmt);   // all expressions of the statement and below, in place
void map_block(Mapper *mapper, Block *block);
void map_own(Mapper *mapper, Stmt *stmt);   // those of the statement itself: bounds and conditions, not its bodies

// ---- mapping statements: `stmt` may push any number of statements to `out` in place of the given one (pushing the
// same one keeps it). Bodies are rewritten first (post-order) ----
typedef struct StmtMapper {
    Arena *arena;
    void (*stmt)(struct StmtMapper *mapper, Stmt *stmt, Block *out);
    void *user;
    bool changed;   // `stmt` sets it when it changes something
} StmtMapper;
bool rewrite_block(StmtMapper *mapper, Block *block);   // returns mapper->changed

// ---- substitution and cloning ----
typedef struct Subst Subst;   // Var -> Expr, Buf -> Buf
Subst *subst_new(Arena *arena);
void subst_var(Subst *subst, const Var *var, Expr *by);
void subst_buf(Subst *subst, const Buf *buf, Buf *by);
// Looks through a let: by its value, in which the lets before it are looked through. False: not, since that is too large
// (lets of products of lets double it each time); the variable stays.
enum { MOST_OPENED = 512 };             // nodes of it
bool expr_is_short(const Expr *expr);   // no more than that
bool subst_let(Subst *subst, const Var *var, Expr *value);
// The iterators by the number of their combination, the first one fastest; of constant extents, from 0.
void subst_digits(Subst *subst, int count, const Iter *iters, Expr *number);
Expr *subst_expr(Subst *subst, Expr *expr);
void subst_block(Subst *subst, Block *block);   // in place
void subst_stmt(Subst *subst, Stmt *stmt);
// Deep copies. Everything declared inside (vars, buffers) becomes new objects; what is free stays, unless in `subst`.
Stmt *clone_stmt(Arena *arena, Subst *subst, const Stmt *stmt);   // subst may be NULL
void clone_block(Arena *arena, Subst *subst, const Block *from, Block *to);
// Appends a copy of the body for each iteration of a loop with one iterator, of known values.
void clone_iterations(Arena *arena, const Stmt *loop, Block *to);
Func *clone_func(Arena *arena, const Func *func);
Region *clone_region(Arena *arena, Subst *subst, const Region *region);

bool expr_uses_var(const Expr *expr, const Var *var);
bool expr_reads_memory(const Expr *expr);      // any load
bool expr_is_stable(const Expr *expr);         // the value changes only where it is bound: no memory, no `var`
bool region_is_stable(const Region *region);   // so do its starts and extents
bool expr_must_not_repeat(const Expr *expr);   // a call inside may be evaluated only once (op_must_not_repeat)
bool expr_writes_memory(const Expr *expr);     // an atomic inside
bool expr_uses_buf(const Expr *expr, const Buf *buf);
bool stmt_uses_buf(const Stmt *stmt, const Buf *buf);   // it or what is below
bool block_uses_buf(const Block *block, const Buf *buf);
bool func_calls(const Func *func, OpId op);   // as a statement
bool func_has_roles(const Func *func);
// Blocks of a cluster of the kernel, where some operation reaches from one to another; else 1: that a grid declares
// clusters changes nothing by itself.
int func_cluster(const Func *kernel);

// ---- effects: which buffers a statement reads and writes, from the op table ----
typedef struct Effect {
    Buf *buf;         // the storage's root when it is an alias
    Region *region;   // NULL: a single element (or elements of a loop)
    Access access;    // READ, WRITE, UPDATE
    Proxy proxy;
    OpId op;   // OP_COUNT for plain loads and stores
} Effect;
typedef VEC(Effect) EffectVec;
void stmt_effects(Arena *arena, const Stmt *stmt, EffectVec *out);   // the statement and everything below it
// The same on one path through it: only one branch of an `if` is executed, so a write in both branches counts once.
void path_effects(Arena *arena, const Stmt *stmt, EffectVec *out);
