// What the files of the verifier share. Not for other folders.
#pragma once
#include "ir/ir.h"
#include "ir/verify.h"
#include "support/map.h"
#include "support/vec.h"

typedef struct Verifier {
    const Module *module;
    const Func *func;
    Arena *arena;
    DiagSink *sink;
    bool broken, fills;   // a violation was found; a test's block, which writes inputs
    bool written;         // by a person (verify.h)
    int grids;
    Map *visible;                 // Var or Buf -> anything, while in scope
    VEC(const void *) declared;   // the same as a stack
    Map *depends;                 // Var -> Depends
    Map *inner;                   // `var`s declared inside of parallel or of a thread region -> anything
    Map *misplaced;               // Buf, declared where none is -> anything: nothing else is said of it
    int parallel_count;           // iterators of enclosing parallel loops
} Verifier;

// Where a statement or expression stands.
enum {
    MOST_ALIGNED = 1 << 30,   // bytes
    NAMED_BARRIERS = 16,      // of a CTA (PTX ISA, "bar")
    WARP_LANES = 32,          // of any target
    MOST_BLOCK_THREADS = 1024,
    MOST_ARRIVALS = (1 << 20) - 1,   // of a phase of an mbarrier, and bytes that it expects
    MOST_UNROLLED = 1 << 14          // iterations
};

typedef struct Context {
    FuncKind kind;
    bool grid, thread, parallel, breakable, role, tiles;
    bool divergent;                // under a condition or loop that names the thread index
    bool by_warp;                  // under a condition that each warp has of its own: any(..)
    uint64_t parallel_iterators;   // bits of those with more than one iteration
    uint64_t guards;               // bits of those that conditions around it name
    bool nested;                   // in a loop, or under a condition that is no constant
    bool conditional, dead;        // some condition decides whether it is reached; a constant one that it is not
    bool uncertain;                // in a loop of an unknown number of iterations
    bool undecided;                // a condition that is a constant only after loops are unrolled
    int64_t threads;               // that do what stands here together; 0: not known
    int64_t declared_threads;      // of the grid or role, as it says; 0: it does not
    int64_t block_threads;         // of the CTA, all roles; 0: not known
} Context;

// What a value depends on.
typedef struct Depends {
    const Map *of;        // Var -> Depends, for the walk
    uint64_t iterators;   // of enclosing parallel loops
    bool thread;          // the thread index
    bool warp;            // what a warp is told of its own elements: any(..)
    bool varies;          // not constant once loops are unrolled
    bool unknown;         // memory or a `var`: possibly on anything
    bool ranged;          // an iterator with constant bounds, or a let that is a constant:
    int64_t low, high;    // its first and last value
} Depends;

#define REPORT(v, loc, ...) ((v)->broken = true, (void)diag((v)->sink, (loc), __VA_ARGS__))

// verify_expr.c
// A Var or Buf is visible from here on; undeclare_names leaves a scope: what was declared since `mark` (declared.count)
// is gone.
void declare_name(Verifier *v, const void *object, const char *name, Span loc);
void undeclare_names(Verifier *v, int mark);
void check_visible(Verifier *v, const void *object, const char *name, Span loc);
void set_depends(Verifier *v, const Var *var, Depends depends);
bool value_known(const Verifier *v, Expr *e, int64_t *value);   // a constant, once lets are put in
// One control flow of all threads.
bool is_block_level(const Context *c);
// It may never be reached, and a pass may have made constants of what excludes it.
bool may_be_excluded(const Verifier *v, const Context *c);
// An expression that passes copy (into guards, vectors, addresses), so that nothing in it may happen once.
void check_copied(Verifier *v, const Context *c, const Expr *e, const char *what, Span loc);
void check_indices(Verifier *v, const Context *c, const Buf *buf, int count, Expr *const *indices, Span loc);
void check_condition(Verifier *v, const Context *c, Expr *e);
Depends expr_depends(const Verifier *v, const Expr *expr);
void check_expr(Verifier *v, const Context *c, const Expr *expr);
void check_region(Verifier *v, const Context *c, const Region *region);
void check_call(Verifier *v, const Context *c, OpId op, int count, const Arg *args, Span loc);   // verify_ops.c
void report_operand(Verifier *v, const OpInfo *info, int at, const char *why, Span loc);
bool type_fits(Type type, const char *name);   // a type text of an instruction's row: tf32 is f32
void check_thread_op(Verifier *v, const Context *c, const OpInfo *info, int count, const Arg *args,
                     Span loc);                           // verify_thread.c
void check_allocation(Verifier *v, const Func *kernel);   // verify_memory.c
void check_places(Verifier *v, const Buf *buf);           // of the elements, by the layout
void check_conflicts(Verifier *v, const Func *kernel);    // verify_conflicts.c
void check_launches(Verifier *v, const Func *program);
void check_channels(Verifier *v, const Func *kernel);   // verify_channels.c
