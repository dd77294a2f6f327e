// Layouts of fragments and shared memory.
//
// In: tile-stage kernels with mechanisms, pipelines and roles. Out: a layout and an offset for every buffer, a map for
// every tile loop, and copies through shared memory where layouts differ.
//
//     layout_inference.c       layout-inference: layouts of fragments, maps of loops
//     layout_items.c           ... collects the tile ops and the fragments that they use
//     fragment.c               ... layouts of instructions, expressions over layouts, one view of a fragment per loop
//     register_selects.c       ... elements at dynamic indices
//     placement.c              ... where fragments are converted
//     layout_cost.c            ... what conversions cost
//     conversion_way.c         the cheapest way between two layouts of a fragment
//     stage_through_shared.c   stage-through-shared: declares the shared memory that lowering needs
//     swizzle_allocation.c     swizzle-allocation: layouts and offsets of shared buffers
//
// This header: items, shared by the files of layout-inference.
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
} ItemKind;   // SCALAR: reads and writes of the CTA

typedef struct FragmentUse {
    Buf *buf;
    int rank;
    int dims[LAYOUT_MAX_RANK];   // iterator of each index; -1: constant
    bool is_store;
    bool keeps;   // a store that leaves some elements unchanged
} FragmentUse;

typedef struct Item {
    ItemKind kind;
    Stmt *stmt;
    const Layout *map;   // NULL: unknown. The map of a reduction is its source's layout, of a gemm its accumulator's
    VEC(FragmentUse) uses;
    // loops
    TileLoop loop;
    int fast;
    int64_t vector, fast_threads;
    int64_t line_threads;   // threads that access one line of memory
    bool has_memory;
    bool unreplicated;   // replicas are wrong: registers receive the result of an atomic or of a memory update
    // gemms
    const MmaInfo *mma;   // NULL: fma, or
    bool is_wgmma;
    WgmmaInfo wgmma;
    int64_t m, n, k, warps_m, warps_n;
    int group;   // gemms and reductions that share fragments (union-find parent)
} Item;

typedef struct KnownCost {   // of a conversion
    const Layout *from, *to;
    int bits;
    int64_t quarters;
} KnownCost;

typedef struct Inference {
    PassContext *context;
    Arena *arena;
    const Func *kernel;
    const Stmt *role;   // NULL: outside of roles
    int64_t threads;
    VEC(Item *) items;
    VEC(Buf *) fragments;
    Block *body;   // of the scope
    VEC(KnownCost) costs;
    bool changed, failed;
} Inference;

void collect_item(void *inference, Stmt *stmt, const Facts *facts);   // layout_items.c; for scope_walk

// The layout that the item needs the fragment in, under a map of it; items of the CTA's scalars have none.
const Layout *required_layout(Inference *inference, const Item *item, const FragmentUse *use, const Layout *map);
bool is_conversion(const Item *item);   // a copy between whole fragments

// ---- placement.c, in units of WarpCosts ----
int64_t placement_quarters(Inference *inference);   // of all conversions that the layouts and maps need
bool place_conversions(Inference *inference);       // true: it changed something
// ---- layout_cost.c ----
int64_t conversion_quarters(Inference *inference, const Buf *from, const Buf *to);
