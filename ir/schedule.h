// The tile scheduler of a kernel: in which order its tiles come (`@order`), how CTAs come to them (`@claim`), and which
// of them share the k steps of a product (`@split`).
//
// In: a grid or kernel, or what to write on it. Out: its attributes as values. Absent ones are ORDER_PLAIN and
// CLAIM_ONE behind `plan`, and open before it.
#pragma once
#include "ir/ir.h"

typedef enum { ORDER_OPEN, ORDER_PLAIN, ORDER_RASTER, ORDER_HILBERT, ORDER_LONGEST, ORDER_SECTIONS } OrderKind;
typedef struct TileOrder {
    OrderKind kind;
    int64_t rows;   // RASTER: of a group
    int iter;       // LONGEST, SECTIONS: the iterator that decides; its last values first, or its first ones
    bool last;
} TileOrder;

typedef enum { CLAIM_OPEN, CLAIM_ONE, CLAIM_STATIC, CLAIM_DYNAMIC } ClaimKind;
typedef struct TileClaim {
    ClaimKind kind;
    bool snake, given;   // STATIC: in snake order; the source says whether
} TileClaim;

typedef enum { SPLIT_NONE, SPLIT_CLUSTER, SPLIT_WORKSPACE, SPLIT_STREAM } SplitKind;
typedef struct TileSplit {
    SplitKind kind;
    int ctas;      // CLUSTER: of a cluster; STREAM: of the grid, 0: as many as the device has multiprocessors
    int more[2];   // CLUSTER: a launch chooses among these, too; 0: none
} TileSplit;

// What a schedule keeps in global memory: parameters of the kernel (`@workspace`).
typedef enum { WORKSPACE_COUNTER, WORKSPACE_SLICES, WORKSPACE_FLAGS, WORKSPACE_COUNT } WorkspaceKind;

TileOrder grid_order(const Stmt *grid);
TileClaim grid_claim(const Stmt *grid);
static inline bool grid_is_persistent(const Stmt *grid) {
    return grid_claim(grid).kind > CLAIM_ONE;
}
// Slots of what groups load a single time for each tile of the grid (`@stages`).
static inline int64_t grid_stages(const Stmt *grid) {
    return attr_int(grid->attrs, ATTR_STAGES, 1);
}
// Shapes of cluster that a launch chooses among (`@cluster`), for one kernel: its operations ask for the extents (cluster_extent).
enum { CLUSTER_NAMES = 2 };   // the grid's first names
typedef struct ClusterShape {
    int extents[CLUSTER_NAMES];
} ClusterShape;
typedef VEC(ClusterShape) ClusterShapes;
ClusterShapes grid_cluster_shapes(Arena *arena, const Stmt *grid);   // none: its extents are fixed
void add_cluster_shape(Arena *arena, Stmt *grid, int x, int y);
void drop_cluster_shapes(Stmt *grid);           // then it has no cluster
int cluster_most(const Stmt *grid, int name);   // CTAs of a cluster along the name, of the largest shape
int cluster_largest(const Stmt *grid);          // CTAs of the largest shape, 1 without clusters
static inline bool chooses_cluster(const Stmt *grid) {
    return attr_get(grid->attrs, ATTR_CLUSTER) != NULL;
}
const char *cluster_problem(const Attr *first, const Stmt *grid);   // NULL: the shapes are right
// Loops over the tiles of a CTA that the source writes (`@tiles`).
bool is_tile_loop(const Stmt *stmt, void *user);   // for block_any
bool has_tile_loops(const Stmt *grid);
Buf *kernel_workspace(const Func *kernel, WorkspaceKind kind);   // NULL: it has none
const char *workspace_name(WorkspaceKind kind);
TileSplit kernel_split(const Func *kernel);
int split_most(const TileSplit *split);                        // CTAs of the largest that a launch may choose
void set_split(Arena *arena, Func *kernel, TileSplit split);   // SPLIT_NONE: removes it
// ORDER_OPEN, CLAIM_OPEN: removes it. False: the grid has it.
bool set_order(Arena *arena, Stmt *grid, TileOrder order);
bool set_claim(Arena *arena, Stmt *grid, TileClaim claim);
// The tile that a CTA takes next, by one thread of it; no less than `tiles`: there is none. All CTAs together take
// `tiles`, and each of `ctas` begins with one, so that the counter is zero again when the last one gets none.
Expr *next_claim(Arena *arena, Buf *counter, Expr *tiles, Expr *ctas);
// What an order or a claim may say; NULL: the attribute of a grid of so many names is right.
const char *order_problem(const Attr *attr, int names);
const char *claim_problem(const Attr *attr);
const char *split_problem(const Attr *attr);
const char *workspace_problem(const Attr *attr);

static inline bool order_is_longest(TileOrder order) {
    return order.kind == ORDER_LONGEST || order.kind == ORDER_SECTIONS;
}
