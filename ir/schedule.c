#include "ir/schedule.h"
#include "ir/build.h"
#include "ir/query.h"
#include <string.h>

static const char *const orders[] = {NULL, "plain", "raster", "hilbert", "longest", "sections"};
static const char *const claims[] = {NULL, "one", "static", "dynamic"};
static const char *const splits[] = {NULL, "cluster", "workspace", "stream"};
static const char *const workspaces[] = {"counter", "slices", "flags"};
_Static_assert(COUNT_OF(workspaces) == WORKSPACE_COUNT, "a workspace without its name");
static const char *const ends[] = {"first", "last"}, *const rounds[] = {"waves", "snake"};

static int index_of(const char *text, int count, const char *const *names) {
    for (int i = 0; i < count; i++)
        if (text && names[i] && strcmp(text, names[i]) == 0) return i;
    return -1;
}

#define PLACE_IN(text, names) index_of(text, COUNT_OF(names), names)

static TileOrder order_of(const Attr *attr) {
    int kind = attr ? PLACE_IN(attr->args[0].text, orders) : ORDER_OPEN;
    TileOrder order = {.kind = kind < 0 ? ORDER_OPEN : (OrderKind)kind};
    if (attr && attr->count > 1) {
        order.rows = attr->args[1].integer;
        order.iter = (int)attr->args[1].integer - 1;
    }
    order.last = attr && attr->count > 2 && PLACE_IN(attr->args[2].text, ends) == 1;
    return order;
}

TileOrder grid_order(const Stmt *grid) {
    return order_of(attr_get(grid->attrs, ATTR_ORDER));
}

TileClaim grid_claim(const Stmt *grid) {
    const Attr *attr = attr_get(grid->attrs, ATTR_CLAIM);
    int kind = attr ? PLACE_IN(attr->args[0].text, claims) : CLAIM_OPEN;
    TileClaim claim = {.kind = kind < 0 ? CLAIM_OPEN : (ClaimKind)kind, .given = attr && attr->count > 1};
    claim.snake = claim.given && PLACE_IN(attr->args[1].text, rounds) == 1;
    return claim;
}

ClusterShapes grid_cluster_shapes(Arena *arena, const Stmt *grid) {
    ClusterShapes shapes = {0};
    for (const Attr *attr = attr_get(grid->attrs, ATTR_CLUSTER); attr; attr = attr_get(attr->next, ATTR_CLUSTER)) {
        ClusterShape shape = {{(int)attr->args[0].integer, (int)attr->args[1].integer}};
        vec_push(arena, &shapes, shape);
    }
    return shapes;
}

void add_cluster_shape(Arena *arena, Stmt *grid, int x, int y) {
    Attr *attr = attr_add(arena, &grid->attrs, ATTR_CLUSTER, CLUSTER_NAMES);
    attr->args[0].integer = x;
    attr->args[1].integer = y;
}

void drop_cluster_shapes(Stmt *grid) {
    while (chooses_cluster(grid)) attr_remove(&grid->attrs, ATTR_CLUSTER);
    set_cluster(grid, 1);
}

int cluster_most(const Stmt *grid, int name) {
    const Attr *attr = attr_get(grid->attrs, ATTR_CLUSTER);
    int most = attr ? 1 : grid->grid.cluster[name];
    if (name >= CLUSTER_NAMES) return most > 1 ? most : 1;
    for (; attr; attr = attr_get(attr->next, ATTR_CLUSTER))
        if (attr->args[name].integer > most) most = (int)attr->args[name].integer;
    return most > 1 ? most : 1;
}

int cluster_largest(const Stmt *grid) {
    int64_t most = grid_cluster(grid);
    for (const Attr *attr = attr_get(grid->attrs, ATTR_CLUSTER); attr; attr = attr_get(attr->next, ATTR_CLUSTER)) {
        int64_t ctas = attr->args[0].integer * attr->args[1].integer;
        if (ctas > most) most = ctas;
    }
    return (int)most;
}

// A grid of one name may be what the tile scheduler made of one with several.
const char *cluster_problem(const Attr *first, const Stmt *grid) {
    const int *given = grid->grid.cluster;
    bool flat = grid->grid.count == 1;
    for (const Attr *attr = first; attr; attr = attr_get(attr->next, ATTR_CLUSTER)) {
        int64_t x = attr->args[0].integer, y = attr->args[1].integer;
        if (x < 1 || y < 1 || x > MOST_CLUSTER || y > MOST_CLUSTER || x * y > MOST_CLUSTER)
            return "of one CTA or more, and of no more than a cluster has";
        if ((x & (x - 1)) || (y & (y - 1))) return "powers of two";
    }
    int64_t x = first->args[0].integer, y = first->args[1].integer;
    bool known = flat ? x * y == grid_cluster(grid) : x == given[0] && y == given[1] && given[2] <= 1;
    return known ? NULL : "the first that of `cluster (x, y)`";
}

bool is_tile_loop(const Stmt *stmt, void *user) {
    (void)user;
    return stmt->kind == STMT_FOR && attr_get(stmt->attrs, ATTR_TILES);
}

bool has_tile_loops(const Stmt *grid) {
    return block_any(&grid->grid.body, is_tile_loop, NULL);
}

const char *workspace_name(WorkspaceKind kind) {
    return workspaces[kind];
}

Buf *kernel_workspace(const Func *kernel, WorkspaceKind kind) {
    VEC_EACH (const Param, param, &kernel->params) {
        const Attr *attr = attr_get(param->attrs, ATTR_WORKSPACE);
        if (attr && strcmp(attr->args[0].text, workspaces[kind]) == 0) return param->buf;
    }
    return NULL;
}

TileSplit kernel_split(const Func *kernel) {
    const Attr *attr = attr_get(kernel->attrs, ATTR_SPLIT);
    int kind = attr ? PLACE_IN(attr->args[0].text, splits) : SPLIT_NONE;
    TileSplit split = {.kind = kind < 0 ? SPLIT_NONE : (SplitKind)kind};
    if (attr && attr->count > 1) split.ctas = (int)attr->args[1].integer;
    for (int i = 0; attr && i + 2 < attr->count; i++) split.more[i] = (int)attr->args[i + 2].integer;
    return split;
}

int split_most(const TileSplit *split) {
    int most = split->ctas;
    for (int i = 0; i < COUNT_OF(split->more); i++)
        if (split->more[i] > most) most = split->more[i];
    return most;
}

void set_split(Arena *arena, Func *kernel, TileSplit split) {
    attr_remove(&kernel->attrs, ATTR_SPLIT);
    if (split.kind == SPLIT_NONE) return;
    int count = 1 + (split.ctas > 0) + (split.more[0] > 0) + (split.more[1] > 0);
    Attr *attr = attr_add(arena, &kernel->attrs, ATTR_SPLIT, count);
    attr->args[0].text = splits[split.kind];
    for (int i = 1; i < count; i++) attr->args[i].integer = i == 1 ? split.ctas : split.more[i - 2];
}

Expr *next_claim(Arena *arena, Buf *counter, Expr *tiles, Expr *ctas) {
    Expr *last = e_cast(arena, TYPE_I32, e_sub(arena, tiles, e_int(arena, 1)));
    Arg args[] = {arg_element(arena, counter, e_int(arena, 0)), {.value = last}};
    return e_add(arena, ctas, e_cast(arena, TYPE_I64, e_call(arena, OP_ATOMIC_INC, COUNT_OF(args), args)));
}

const char *order_problem(const Attr *attr, int names) {
    TileOrder order = order_of(attr);
    int count = order.kind == ORDER_RASTER ? 2 : order_is_longest(order) ? 3 : 1;
    if (order.kind == ORDER_OPEN || attr->count != count)
        return "plain, `raster, R`, hilbert, `longest, n, last` or `sections, n, last` (or `first`)";
    if (count == 3 && PLACE_IN(attr->args[2].text, ends) < 0) return "last or first";
    return count == 3 && order.iter >= names ? "the number of one of its names, counted from 1" : NULL;
}

const char *claim_problem(const Attr *attr) {
    int kind = PLACE_IN(attr->args[0].text, claims);
    if (kind < 0) return "one, static or dynamic";
    if (attr->count == 1) return NULL;
    return kind == CLAIM_STATIC && PLACE_IN(attr->args[1].text, rounds) >= 0 ? NULL
                                                                             : "`static, waves` or `static, snake`";
}

// The search alone writes `workspace`, which a program replaces at once.
const char *split_problem(const Attr *attr) {
    int kind = PLACE_IN(attr->args[0].text, splits);
    bool fits = kind == SPLIT_CLUSTER ? attr->count >= 2 : kind == SPLIT_STREAM && attr->count <= 2;
    for (int i = 2; fits && i < attr->count; i++) {
        int64_t before = attr->args[i - 1].integer, n = attr->args[i].integer;
        if (before < 2 || n <= before || (n & (n - 1)) || (before & (before - 1))) return "powers of two, rising";
    }
    return fits ? NULL : "`cluster, N`, stream or `stream, N`";
}

const char *workspace_problem(const Attr *attr) {
    return PLACE_IN(attr->args[0].text, workspaces) < 0 ? "counter, slices or flags" : NULL;
}

bool set_order(Arena *arena, Stmt *grid, TileOrder order) {
    TileOrder old = grid_order(grid);
    bool same = order.kind == old.kind;
    if (order.kind == ORDER_RASTER) same &= order.rows == old.rows;
    if (order_is_longest(order)) same &= order.iter == old.iter && order.last == old.last;
    if (same) return false;
    attr_remove(&grid->attrs, ATTR_ORDER);
    if (order.kind == ORDER_OPEN) return true;
    Attr *attr = attr_add(arena, &grid->attrs, ATTR_ORDER,
                          order.kind == ORDER_RASTER ? 2
                          : order_is_longest(order)  ? 3
                                                     : 1);
    attr->args[0].text = orders[order.kind];
    if (attr->count > 1) attr->args[1].integer = order.kind == ORDER_RASTER ? order.rows : order.iter + 1;
    if (attr->count > 2) attr->args[2].text = ends[order.last];
    return true;
}

bool set_claim(Arena *arena, Stmt *grid, TileClaim claim) {
    TileClaim old = grid_claim(grid);
    if (claim.kind == old.kind && claim.snake == old.snake) return false;
    attr_remove(&grid->attrs, ATTR_CLAIM);
    if (claim.kind == CLAIM_OPEN) return true;
    bool rounds_given = claim.kind == CLAIM_STATIC && (claim.snake || claim.given);
    Attr *attr = attr_add(arena, &grid->attrs, ATTR_CLAIM, rounds_given ? 2 : 1);
    attr->args[0].text = claims[claim.kind];
    if (rounds_given) attr->args[1].text = rounds[claim.snake];
    return true;
}
