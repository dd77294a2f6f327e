// Accesses of memory by statements of the tile stage, as insert-sync sees them: which elements, by which threads.
#pragma once
#include "passes/analysis/affine.h"
#include "passes/analysis/tile_loop.h"
#include "passes/analysis/util.h"

typedef enum {
    WHO_MAPPED,   // element by element, by the threads that the statement's @map names
    WHO_ONE,      // by one thread
    WHO_ALL,      // by all threads, or by threads unknown
} Who;

// A dim of the accessed box: elements start + low .. start + low + length - 1. length -1: unknown elements.
typedef struct BoxDim {
    Expr *start;
    int64_t low, length;
    int64_t factors[LAYOUT_MAX_RANK];   // of the tile loop's iterators (WHO_MAPPED)
} BoxDim;

typedef struct MemAccess {
    Buf *
        buf;   // NULL: all of global memory (of a fence or a release, which come after what the block did); of an await, all memory
    const Stmt *stmt;
    int id;   // for the user's tables
    bool write;
    bool flag;            // an atomic, or an access with a memory order: what blocks tell each other
    OpId update;          // atomic, and in any order among its like: nobody asks what was there before; OP_COUNT: none
    bool async;           // lands later, at a wait for its cp.async group
    bool elsewhere;       // in another block's memory: who reads it here waits for its mbarrier
    bool tma;             // by TMA: lands at a wait for its mbarrier, or (a store, which reads) at a bulk_wait
    const Region *bar;    // that mbarrier
    bool pseudo;          // an await, a cluster's barrier: asks for what has landed, touches nothing
    bool orders_later;    // a fence: what all threads do in global memory after it comes after it
    bool after_barrier;   // behind the statement's own barrier (reductions through scratch)
    Who who;
    int rank;
    BoxDim dims[LAYOUT_MAX_RANK];
    const Layout *map;   // WHO_MAPPED
    int loop_rank;
    int64_t extents[LAYOUT_MAX_RANK];
} MemAccess;

typedef VEC(MemAccess *) MemAccessVec;

// Accesses of global and shared memory by a leaf (bodies of parallel loops and thread regions included), or by the
// bounds and conditions of other statements.
void leaf_accesses(Arena *arena, Stmt *stmt, MemAccessVec *out);
void own_accesses(Arena *arena, Stmt *stmt, MemAccessVec *out);
// A fence or a release: what the block did comes before it.
bool orders_memory(const Stmt *stmt);
// Leaves are executed as one; other statements' bodies are walked.
bool is_leaf(const Stmt *stmt);

// Two accesses that meet in an element do so in one thread: the boxes start at the same element (the caller's check)
// and every element belongs to one and the same thread in both maps. By enumeration.
bool same_threads(Arena *arena, const MemAccess *a, const MemAccess *b);
// Bytes of the block's shared memory that an access with these starts may touch: its slot's where that is known. False
// when the buffer has no place yet.
bool shared_range(const MemAccess *access, const Affine *start, int64_t *begin, int64_t *end);
