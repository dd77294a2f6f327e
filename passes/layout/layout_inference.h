// Layouts of fragments and shared memory.
//
// In: tile-stage kernels with mechanisms, pipelines and roles. Out: a layout and an offset for every buffer, a map for
// every tile loop, and copies through shared memory where layouts differ.
//
//     layout_inference.c       layout-inference: layouts of fragments, maps of loops
//     layout_items.c           ... collects the tile ops and the fragments that they use
//     fragment.c               ... layouts of instructions, expressions over layouts, one view of a fragment per loop
//     iterator_digits.c        ... iterators whose digits index a fragment
//     register_selects.c       ... elements at dynamic indices
//     common_stores.c          ... elements that several iterations store
//     placement.c              ... where fragments are converted
//     layout_cost.c            ... what conversions, and items under a map, cost
//     layout_search.c          ... other layouts and maps, where they cost less
//     conversion_way.c         the cheapest way between two layouts of a fragment
//     digit_order.c            ... by plain loops: the layout of the tile
//     stage_through_shared.c   stage-through-shared: declares the shared memory that lowering needs
//     swizzle_allocation.c     swizzle-allocation: layouts and offsets of shared buffers
//     shared_choice.c          ... the layout that costs the accesses of a buffer least
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
    FragmentDigits at;
    bool is_store;
    bool keeps;   // a store that leaves some elements unchanged
} FragmentUse;

enum { MOST_RUNS = 4 };   // of a loop, each under another map
typedef struct Rerun Rerun;
struct Rerun {
    const Layout *map;
    const Rerun *next;
};

typedef struct Item Item;
typedef VEC(Item *) ItemVec;

struct Item {
    ItemKind kind;
    Stmt *stmt;
    const Layout *map;    // NULL: unknown. The map of a reduction is its source's layout, of a gemm its accumulator's
    const Rerun *again;   // maps under which a loop is executed once more, for other versions of what it stores
    bool fixed;           // the map is not to be chosen
    bool propagated;      // to its fragments: there is nothing more to follow
    int number;           // in inference->items, for layout_search.c
    int64_t trips;        // of the loops around, likewise
    VEC(FragmentUse) uses;
    // loops
    TileLoop loop;
    int fast;
    int64_t vector, fast_threads;
    TileAccessVec accesses;
    int64_t line_threads;   // threads that access one line of memory
    bool has_memory;
    bool unreplicated;   // replicas are wrong: registers receive the result of an atomic or of a memory update
    // gemms
    const MmaInfo *mma;   // NULL: fma, or
    bool is_wgmma;
    WgmmaInfo wgmma;
    int64_t m, n, k, warps_m, warps_n;
    int group;                    // of items that share fragments (union-find parent)
    const ItemVec *group_items;   // the items of its group, in order
};

typedef struct KnownCost {   // of a conversion
    const Layout *from, *to;
    int bits;
    int64_t quarters;
} KnownCost;

// What another choice of layouts than the one taken would cost.
typedef struct Alternative {
    const Buf *buf;   // a fragment that is converted
    const char *text;
    int64_t more;   // in units of WarpCosts
} Alternative;

typedef VEC(Buf *) FragmentVec;
typedef VEC(const Layout *) LayoutVec;

typedef struct Inference {
    PassContext *context;
    Arena *arena;
    const Func *kernel;
    const Stmt *role;   // NULL: outside of roles
    int64_t threads;
    ItemVec items;
    Map *item_of;   // by statement
    Map *trips;     // of serial loops, as integers
    FragmentVec fragments;
    Map *is_fragment;   // of these
    Block *body;        // of the scope
    VEC(KnownCost) costs;
    VEC(Alternative) alternatives;
    Map *fixed;      // fragments whose layout is given, or an instruction's
    Span reported;   // place of the last index that no layout follows: a statement that became several has one report
    bool changed, failed;
} Inference;

void collect_item(void *inference, Stmt *stmt, const Facts *facts);   // layout_items.c; for scope_walk
int64_t space_size(const Item *item);                                 // iterations of its loop

// The layout that the item needs the fragment in, under a map of it; items of the CTA's scalars have none.
const Layout *required_layout(Inference *inference, const Item *item, const FragmentUse *use, const Layout *map);
bool is_conversion(const Item *item);   // a copy between whole fragments
// The map of an item that has the fragment as it is, and the layout of a fragment that the item has it in; NULL: none.
const Layout *map_following(Inference *inference, const Item *item, const FragmentUse *use, const Layout *layout);
const Layout *layout_following(Inference *inference, const Item *item, const FragmentUse *use);

// ---- layout_cost.c: in units of WarpCosts ----
const Layout *layout_copy(Arena *arena, const Layout *layout);   // NULL of NULL
int64_t conversion_quarters(Inference *inference, const Buf *from, const Buf *to);
int64_t item_quarters(Inference *inference, const Item *item, const Layout *map);   // one execution by all threads
int64_t vector_under(const Item *item, const Layout *map);                          // elements of a memory access

// ---- placement.c ----
typedef struct Placement Placement;
Placement *placement_new(Inference *inference,
                         const FragmentVec *fragments);                // those that copies join are together in it
int64_t placement_quarters(Placement *placement);                      // of all conversions that layouts and maps need
int64_t placement_steps(const Placement *placement);                   // of its walks so far
bool placement_converts(const Placement *placement, const Buf *buf);   // ... this fragment among them
bool placement_takes(const Placement *placement,
                     const Buf *buf);           // some statement takes it in its layout, whatever that is
bool place_conversions(Inference *inference);   // true: it changed something

// ---- layout_search.c ----
void search_layouts(Inference *inference);   // changes layouts and maps, where all together cost less then
