// What the parts of layout-inference share: the items of a kernel, with the fragments that each uses, and what is known
// of them.
#pragma once
#include "ir/facts.h"
#include "ir/ir.h"
#include "ir/rewrite.h"
#include "passes/analysis/tile_loop.h"
#include "passes/pass.h"
#include "support/map.h"

typedef enum {
    ITEM_LOOP,
    ITEM_REDUCE,
    ITEM_SCAN,
    ITEM_GEMM,
    ITEM_SCALAR
} ItemKind;   // SCALAR: block-level reads and writes

typedef struct FragmentUse {
    Buf *buf;
    int rank;
    int dims[LAYOUT_MAX_RANK];   // which iterator each index is; -1: constant
    bool is_store;
    bool keeps;   // a store that leaves some elements as they were
} FragmentUse;

typedef struct Item {
    ItemKind kind;
    Stmt *stmt;
    const Layout *map;   // NULL: not yet known. A reduction's is its source's layout, a gemm's its accumulator's
    VEC(FragmentUse) uses;
    // loops
    TileLoop loop;
    int fast;
    int64_t vector, fast_threads;
    int64_t line_threads;   // that access a line of memory together
    bool has_memory;
    bool unreplicated;   // replicas would do harm: registers get what an atomic or an update of memory gives
    // gemms
    const MmaInfo *mma;   // NULL: fma, or
    bool is_wgmma;
    WgmmaInfo wgmma;
    int64_t m, n, k, warps_m, warps_n;
    int group;   // gemms and reductions that share fragments (union-find parent)
} Item;

typedef struct Inference {
    PassContext *context;
    Arena *arena;
    const Func *kernel;
    int64_t threads;
    VEC(Item *) items;
    VEC(Buf *) fragments;
    Map *before, *after;   // Stmt -> Block: conversions to insert
    bool changed, failed;
} Inference;

void collect_item(void *inference, Stmt *stmt, const Facts *facts);   // layout_items.c; for scope_walk
