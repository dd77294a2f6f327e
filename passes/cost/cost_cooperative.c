// A step of the loop takes what its products take on the tensor cores, and a part of what stands between them that the
// warpgroups do not hide from one another: the more of them there are, the less.
//
//     products     each strip of 64 rows by n columns and `strip_bytes` of k: 2 n clocks
//     the rest     `hidden_clocks` for `hidden_elements` of all tile statements in the loop, divided by the warpgroups
//
// (`work_clocks` for `work_elements` where no product runs beside it) and `wait_clocks` besides, and a point
// `tile_clocks` (its first scores and last product run alone, its results are written), and `alone_clocks` where it is
// a block, so that nothing was loaded ahead for it, `alias_clocks` where its results leave by way of the tile that
// the next point waits for. How many steps a point takes is asked of the point in the middle of the grid: where their
// number grows along it, as under a causal mask, that is the mean. (Measured on an H200 with examples/attention.tile,
// head dims 64, 128 and 256, causal or not, lengths 1024, 4096 and 16384: of its tiles it names the fastest in all
// eighteen cases; docs/hopper.md.)
#include "ir/build.h"
#include "ir/rewrite.h"
#include "passes/cost/cost.h"
#include "passes/lower/lower.h"
#include "passes/specialize/builder.h"
#include <stdint.h>

typedef struct Sum {
    Arena *arena;
    const Target *target;
    int64_t multiplying, elements;
    int64_t products;   // multiplications
    int64_t rows;       // of the first product
} Sum;

static int64_t fragment_elements(const Region *region) {
    if (!region || region->buf->scope != SCOPE_FRAGMENT) return 0;
    int64_t elements = 1;
    for (int d = 0; d < region->buf->rank; d++) elements *= buf_extent(region->buf, d);
    return elements;
}

static void add_gemm(Sum *sum, const Stmt *gemm) {
    const Region *a = gemm->call.args[GEMM_A].region, *acc = gemm->call.args[GEMM_ACC].region;
    int64_t m = region_extent(acc, 0), n = region_extent(acc, 1),
            bytes = region_extent(a, 1) * type_bytes(a->buf->type);
    WgmmaInfo info;
    const char *why;
    if (!wgmma_serves(sum->target, gemm, &info, &why)) return;
    sum->multiplying += m / info.m * bytes * 2 * n / sum->target->wgmma.strip_bytes;
    sum->products += m * n * region_extent(a, 1);
    if (!sum->rows) sum->rows = m;
}

static bool add_work(Visitor *visitor, Stmt *stmt) {
    Sum *sum = visitor->user;
    if (is_call(stmt, OP_GEMM)) {
        add_gemm(sum, stmt);
    } else if (stmt->kind == STMT_CALL) {
        int64_t most = 0;
        for (int i = 0; i < stmt->call.count; i++) {
            int64_t elements = fragment_elements(stmt->call.args[i].region);
            most = elements > most ? elements : most;
        }
        sum->elements += most;
    } else if (is_loop(stmt, LOOP_PARALLEL)) {
        int64_t elements = 1, extent;
        for (int i = 0; i < stmt->loop.count; i++)
            if (expr_const(iter_trips(sum->arena, &stmt->loop.iters[i]), &extent)) elements *= extent;
        sum->elements += elements;
        return false;
    }
    return true;
}

// The loop that loads, and the loops around it.
static const Stmt *find_loop(const Block *block) {
    FOR_EACH_ITEM (stmt, block) {
        if (is_pipelined(stmt)) return stmt;
        FOR_EACH_BODY (body, stmt) {
            const Stmt *inner = find_loop(body);
            if (inner) return inner;
        }
    }
    return NULL;
}

// What stands between the products, in elements of a warpgroup.
static int64_t work_elements(Arena *arena, const Target *target, const Func *kernel, Sum *sum) {
    const Stmt *loop = find_loop(&func_grid(kernel)->grid.body);
    *sum = (Sum){.arena = arena, .target = target};
    Visitor visitor = {.stmt = add_work, .user = sum};
    if (loop) visit_block(&visitor, (Block *)&loop->loop.body);
    return sum->elements / cooperative_warpgroups(target, kernel);
}

static int64_t clocks_of(int64_t elements, int64_t clocks, int64_t each) {
    return each > 0 ? elements * clocks / each : 0;
}

static int64_t step_clocks(Arena *arena, const Target *target, const Func *kernel, Sum *sum) {
    int64_t elements = work_elements(arena, target, kernel, sum);
    return sum->multiplying + clocks_of(elements, target->wgmma.hidden_clocks, target->wgmma.hidden_elements);
}

int64_t cooperative_rate(Arena *arena, const Target *target, const Func *kernel, int64_t *rows) {
    enum { SCALE = 1 << 30 };
    Sum sum;
    int64_t clocks = step_clocks(arena, target, kernel, &sum);
    *rows = sum.rows;
    return sum.products > 0 ? clocks * SCALE / sum.products : INT64_MAX;
}

// ---- kernels whose points are tiles of the result ----

typedef struct Result {
    const Func *kernel;
    const Stmt *store;
    const Region *product;      // the first one
    const Region *seen[2][8];   // left and right operands
    int count[2];
    int64_t k[2];   // of different ones
    bool others;
} Result;

static bool same_share(const Region *a, const Region *b) {
    int64_t x = 0, y = 0;
    bool same = a->buf == b->buf && a->count == b->count;
    for (int d = 0; d < a->count && same; d++)
        same = expr_const(a->dims[d].start, &x) == expr_const(b->dims[d].start, &y) && x == y;
    return same;
}

static void add_operand(Result *result, const Region *operand, int side, int64_t k) {
    enum { MOST = COUNT_OF(result->seen[0]) };
    for (int i = 0; i < result->count[side]; i++)
        if (same_share(result->seen[side][i], operand)) return;
    if (result->count[side] < MOST) result->seen[side][result->count[side]++] = operand;
    result->k[side] += k;
}

static bool find_result(Visitor *visitor, Stmt *stmt) {
    Result *result = visitor->user;
    if (is_call(stmt, OP_GEMM)) {
        const Region *a = stmt->call.args[GEMM_A].region, *b = stmt->call.args[GEMM_B].region;
        if (!result->product) result->product = stmt->call.args[GEMM_ACC].region;
        for (int side = 0; side < 2; side++) add_operand(result, side ? b : a, side, region_extent(a, 1));
    }
    if (!is_call(stmt, OP_COPY) && !is_call(stmt, OP_TRANSPOSE)) return true;
    if (stmt->call.args[COPY_TO].region->buf->scope != SCOPE_GLOBAL) return true;
    result->others |= result->store || !is_accumulator(result->kernel, stmt->call.args[COPY_FROM].region->buf);
    result->store = stmt;
    return true;
}

// A loop makes elements of one fragment of those of the other.
typedef struct Link {
    const Buf *from, *to;
    bool reads, writes, found;
} Link;

static bool find_read(Visitor *visitor, Expr *expr) {
    Link *link = visitor->user;
    link->reads |= expr->kind == EXPR_LOAD && expr->load.buf == link->from;
    return true;
}

static bool find_link(Visitor *visitor, Stmt *stmt) {
    Link *link = visitor->user;
    link->writes |= stmt->kind == STMT_STORE && stmt->store.buf == link->to;
    if (!is_loop(stmt, LOOP_PARALLEL)) return true;
    link->reads = link->writes = false;
    Visitor inside = {.stmt = find_link, .expr = find_read, .user = link};
    visit_block(&inside, &stmt->loop.body);
    link->found |= link->reads && link->writes;
    return false;
}

static bool is_made_of(const Func *kernel, const Buf *to, const Buf *from) {
    Link link = {.from = from, .to = to};
    Visitor visitor = {.stmt = find_link, .user = &link};
    visit_block(&visitor, (Block *)&kernel->body);
    return to == from || link.found;
}

// Of what loads take beside the products a part counts: of two tiles that wait for the same the smaller is faster.
static int64_t hidden_share(const Target *target, int64_t moving) {
    return target->wgmma.hidden_share > 0 ? moving / target->wgmma.hidden_share : 0;
}

bool cooperative_tile(Arena *arena, const Target *target, const Func *kernel, int64_t *m, int64_t *n,
                      PingpongCost *cost) {
    Result result = {.kernel = kernel};
    Visitor visitor = {.stmt = find_result, .user = &result};
    visit_block(&visitor, (Block *)&kernel->body);
    if (!result.store || result.others || !result.product || !cooperative_equal_tiles(arena, kernel)) return false;
    const Region *from = result.store->call.args[COPY_FROM].region, *to = result.store->call.args[COPY_TO].region;
    int64_t rows = region_extent(from, 0), columns = region_extent(from, 1);
    if (rows != region_extent(result.product, 0) || columns != region_extent(result.product, 1)) return false;
    if (!is_made_of(kernel, from->buf, result.product->buf)) return false;
    bool transposed = is_call(result.store, OP_TRANSPOSE) != (to->transposed != from->transposed);
    *m = transposed ? columns : rows;
    *n = transposed ? rows : columns;
    Sum sum;
    *cost = cost_pingpong(target, kernel, cooperative_warpgroups(target, kernel));
    int64_t elements = work_elements(arena, target, kernel, &sum);
    cost->step += clocks_of(elements, target->wgmma.work_clocks, target->wgmma.work_elements) +
                  hidden_share(target, cost->moving) + target->wgmma.latency_clocks;
    cost->k = result.k[0] < result.k[1] ? result.k[0] : result.k[1];
    cost->hidden = false;
    return cost->k > 0;
}

// ---- how many steps ----

typedef struct Middle {
    Arena *arena;
    const Stmt *grid;
    bool unknown;   // it depends on what only the kernel sees
} Middle;

// Lets in the words of the kernel, at the point in the middle.
static Expr *at_middle(Mapper *mapper, Expr *expr) {
    Middle *middle = mapper->user;
    if (middle->unknown) return expr;   // enough is known, and lets of lets of lets are many
    middle->unknown |= expr->kind == EXPR_LOAD;
    if (expr->kind != EXPR_VAR || expr->var->kind == VAR_DIM || expr->var->kind == VAR_PARAM) return expr;
    for (int i = 0; i < middle->grid->grid.count; i++)
        if (middle->grid->grid.iters[i].var == expr->var)
            return e_over(middle->arena, e_sub(middle->arena, middle->grid->grid.iters[i].end, e_int(middle->arena, 1)),
                          2);
    const Block *body = &middle->grid->grid.body;
    for (int i = 0; i < body->count; i++)
        if (body->items[i]->kind == STMT_LET && body->items[i]->let.var == expr->var)
            return map_expr(mapper, body->items[i]->let.value);
    middle->unknown = true;
    return expr;
}

static Expr *steps_of(Arena *arena, const Func *kernel) {
    Middle middle = {arena, func_grid(kernel), false};
    Mapper mapper = {.arena = arena, .expr = at_middle, .user = &middle};
    const Stmt *loop = find_loop(&middle.grid->grid.body);
    Expr *steps = map_expr(&mapper, iter_trips(arena, &loop->loop.iters[0]));
    return middle.unknown ? NULL : steps;
}

Expr *cost_cooperative(Arena *arena, const Target *target, const Func *kernel, bool aliased) {
    enum { UNEVEN = 8 };   // of a point one part in so many: what blocks that stay differ by
    Sum sum;
    const Stmt *grid = func_grid(kernel);
    const WgmmaCosts *costs = &target->wgmma;
    Expr *tiles = e_int(arena, 1), *step = e_int(arena, step_clocks(arena, target, kernel, &sum) + costs->wait_clocks);
    for (int i = 0; i < grid->grid.count; i++) tiles = e_mul(arena, tiles, grid->grid.iters[i].end);
    Expr *steps = steps_of(arena, kernel);
    if (!steps) return NULL;
    bool equal = cooperative_equal_tiles(arena, kernel), stays = !equal && grid->grid.persistent;
    bool alone = !equal && !stays;
    Expr *besides =
        e_int(arena, costs->tile_clocks + (alone ? costs->alone_clocks : 0) + (aliased ? costs->alias_clocks : 0));
    Expr *point = e_add(arena, e_mul(arena, steps, step), besides), *sms = e_call(arena, OP_SMS, 0, NULL);
    if (equal) return e_mul(arena, e_call2(arena, OP_CEILDIV, tiles, sms), point);
    if (alone) return e_max(arena, e_div(arena, e_mul(arena, tiles, point), sms), point);   // the device balances them
    Expr *even = e_add(arena, e_mul(arena, tiles, point), e_mul(arena, e_over(arena, point, UNEVEN), sms));
    return e_max(arena, e_div(arena, even, sms), point);
}
