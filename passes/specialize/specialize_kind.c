// The decision on warp specialization: is a kernel specialized, and are its consumers ping-pong or cooperative? It
// depends on the main loop, its trip count, and the registers and shared memory of the roles. select, tile-scheduler
// and the cost models ask too (warp_specialize.h). The transformation: warp_specialize.c and cooperative.c.
#include "passes/lower/lower.h"
#include "passes/specialize/builder.h"

// ---- can it? ----

static const char *loop_problem(const Target *target, const Stmt *loop) {
    const Block *body = &loop->loop.body;
    const char *why = NULL;
    WgmmaInfo info;
    int64_t stages = 0;
    int copies = 0, gemms = 0;
    if (!loop->loop.stages || !expr_const(loop->loop.stages, &stages) || stages < 2)
        return "its loop has one stage: use `stages = 2` or more";
    if (loop->loop.count != 1 || !expr_is_int(loop->loop.iters[0].begin, 0) ||
        !expr_is_int(loop->loop.iters[0].step, 1))
        return "its loop does not count from 0 by 1";
    FOR_EACH_ITEM (stmt, body) {
        if (stmt->kind == STMT_LET || stmt->kind == STMT_ASSUME) continue;
        if (is_call(stmt, OP_COPY)) {
            if (gemms > 0) return "its loop copies after a gemm: move the copies to the top";
            if (!tma_serves(target, stmt, &why)) return why;
            copies++;
        } else if (is_call(stmt, OP_GEMM)) {
            if (!wgmma_serves(target, stmt, &info, &why)) return why;
            if (stmt->call.args[0].region->buf->scope != SCOPE_SHARED)
                return "an operand is not in shared memory: copy it to a `shared` buffer";
            gemms++;
        } else {
            return "its loop has statements other than copies and gemms";
        }
    }
    return copies > 0 && gemms > 0 ? NULL : "its loop has no copy or no gemm";
}

static bool is_target(const Stmt *loop, const Buf *buf) {
    FOR_EACH_ITEM (stmt, &loop->loop.body) {
        if (is_call(stmt, OP_COPY) && stmt->call.args[1].region->buf == buf) return true;
    }
    return false;
}

typedef struct Search {
    const Specialization *shape;
    const char *problem;
} Search;

static bool find_problem(Visitor *visitor, Stmt *stmt) {
    Search *search = visitor->user;
    if (stmt->kind == STMT_ROLE || stmt->kind == STMT_THREAD) search->problem = "the kernel uses thread indices";
    else if (is_pipelined(stmt) && stmt != search->shape->loop) search->problem = "it has more than one pipelined loop";
    else if (stmt->kind == STMT_DECL && stmt->decl->scope == SCOPE_SHARED && !is_scratch(stmt) &&
             !is_target(search->shape->loop, stmt->decl))
        search->problem = "it has a shared buffer that is not loaded by `copy` in the loop: use a fragment";
    else if (stmt->kind == STMT_VAR || stmt->kind == STMT_WHILE) search->problem = "it has a `var` or a `while`";
    return !search->problem;
}

static bool meets(const Stmt *stmt, void *user) {
    (void)user;
    return is_call(stmt, OP_CLUSTER_BARRIER);
}

// Blocks of a cluster go through their loops alone, and meet behind them.
static bool meets_early(const Specialization *shape) {
    const Block *body = &shape->grid->grid.body;
    int at = 0;
    while (body->items[at] != shape->loop) at++;
    const Block before = {.items = body->items, .count = at + 1, .capacity = at + 1};
    return block_any(&before, meets, NULL);
}

static const char *shape_of(const Target *target, const Func *kernel, Specialization *shape) {
    shape->grid = func_grid(kernel);
    if (!target_has(target, FEATURE_TMA) || !target_has(target, FEATURE_WGMMA)) return "the target has no wgmma";
    if (!shape->grid) return "it has no grid";
    const Block *body = &shape->grid->grid.body;
    for (int i = 0; i < body->count && !shape->loop; i++)
        if (is_pipelined(body->items[i])) shape->loop = body->items[i];
    if (!shape->loop) return "no loop loads its tiles ahead: use `pipelined`";
    const char *problem = loop_problem(target, shape->loop);
    if (!problem && func_cluster(kernel) > 1 && meets_early(shape))
        problem = "its loop synchronizes the CTAs of a cluster";
    if (problem) return problem;
    Search search = {shape, NULL};
    Visitor visitor = {.stmt = find_problem, .user = &search};
    visit_block(&visitor, (Block *)&shape->grid->grid.body);
    return search.problem;
}

// ---- trips ----

typedef struct Trips {
    Arena *arena;
    const Block *work;
    bool differ;
} Trips;

static Expr *let_value(const Block *work, const Var *var) {
    FOR_EACH_ITEM (stmt, work) {
        if (stmt->kind == STMT_LET && stmt->let.var == var) return stmt->let.value;
    }
    return NULL;
}

static Expr *open_let(Mapper *mapper, Expr *expr) {
    Trips *trips = mapper->user;
    if (trips->differ) return expr;   // enough is known, and lets of lets of lets are many
    if (expr->kind == EXPR_LOAD || (expr->kind == EXPR_CALL && !op_is_pure(expr->call.op))) trips->differ = true;
    if (expr->kind != EXPR_VAR || expr->var->kind == VAR_DIM || expr->var->kind == VAR_PARAM) return expr;
    Expr *value = let_value(trips->work, expr->var);
    if (value) return map_expr(mapper, value);
    trips->differ = true;
    return expr;
}

// In names that are the same for all points; NULL: it differs.
static Expr *common_value(Arena *arena, const Block *work, Expr *expr) {
    Trips trips = {arena, work, false};
    Mapper mapper = {.arena = arena, .expr = open_let, .user = &trips};
    Expr *value = map_expr(&mapper, expr);
    return trips.differ ? NULL : value;
}

Expr *common_trips(Arena *arena, const Block *work, const Stmt *loop) {
    return common_value(arena, work, loop->loop.iters[0].end);
}

// What no point has more of, of a number of trips; NULL: that differs.
static Expr *most_of(Arena *arena, const Block *work, Expr *expr) {
    Expr *common = common_value(arena, work, expr), *a, *b;
    if (common) return common;
    if (expr->kind == EXPR_VAR) return (a = let_value(work, expr->var)) ? most_of(arena, work, a) : NULL;
    if (expr->kind != EXPR_SELECT) return NULL;
    a = most_of(arena, work, expr->select.yes);
    b = most_of(arena, work, expr->select.no);
    if (!a || !b) return NULL;
    return expr_is_int(a, 0) ? b : expr_is_int(b, 0) || expr_equal(a, b) ? a : e_max(arena, a, b);
}

// Not equal trips, but which each role finds out for itself: what they come of is not written meanwhile.
static bool find_changing(Visitor *visitor, Expr *expr) {
    bool *changes = visitor->user;
    *changes |= expr->kind == EXPR_CALL && !op_is_pure(expr->call.op);
    *changes |= expr->kind == EXPR_LOAD && (!expr->load.buf->is_param || expr->load.buf->mode != MODE_IN);
    return !*changes;
}

static bool roles_agree(const Specialization *shape) {
    const Block *work = &shape->grid->grid.body;
    bool changes = false;
    Visitor visitor = {.expr = find_changing, .user = &changes};
    for (int i = 0; work->items[i] != shape->loop; i++)
        if (work->items[i]->kind == STMT_LET) visit_stmt(&visitor, work->items[i]);
    visit_expr(&visitor, shape->loop->loop.iters[0].end);
    return !changes;
}

static Expr *most_trips(Arena *arena, const Specialization *shape) {
    const Block *work = &shape->grid->grid.body;
    Expr *common = common_trips(arena, work, shape->loop);
    if (common || !roles_agree(shape)) return common;
    return most_of(arena, work, shape->loop->loop.iters[0].end);
}

// Blocks that stay have to balance their points: of those that have one, each may take what it likes.
static bool trips_serve(Arena *arena, const Func *kernel, const Specialization *shape) {
    return func_cluster(kernel) > 1 ? roles_agree(shape) : most_trips(arena, shape) != NULL;
}

// Tiles of one strip of wgmma's rows are for problems that hardly fill the device: a second consumer would have nothing
// to do. Nor has it where a block has one point.
int pingpong_consumers(const Target *target, const Func *kernel, const Stmt *loop) {
    if (func_cluster(kernel) > 1) return 1;
    FOR_EACH_ITEM (stmt, &loop->loop.body) {
        WgmmaInfo info;
        const char *why;
        if (!is_call(stmt, OP_GEMM) || !wgmma_serves(target, stmt, &info, &why)) continue;
        if (region_extent(stmt->call.args[2].region, 0) > info.m) return PINGPONG_MOST;
    }
    return 1;
}

// ---- registers ----

typedef struct Count {
    int64_t threads, registers;
} Count;

static bool count_fragment(Visitor *visitor, Stmt *stmt) {
    Count *count = visitor->user;
    if (stmt->kind != STMT_DECL || stmt->decl->scope != SCOPE_FRAGMENT) return true;
    int64_t bits = type_bits(stmt->decl->type), threads = count->threads;
    for (int d = 0; d < stmt->decl->rank; d++) bits *= buf_extent(stmt->decl, d);
    enum { REGISTER_BITS = 32 };
    count->registers += (bits + threads * REGISTER_BITS - 1) / (threads * REGISTER_BITS);
    return true;
}

int64_t fragment_registers(const Target *target, const Func *kernel, int warpgroups) {
    Count count = {(int64_t)warpgroups * target_warpgroup(target), 0};
    Visitor visitor = {.stmt = count_fragment, .user = &count};
    visit_block(&visitor, (Block *)&kernel->body);
    return count.registers;
}

// Roles trade what they start with: equal shares, in whole units. Two start with all that a thread can have.
int64_t consumer_registers(const Target *target, int consumers, int producers, int64_t producer) {
    int64_t threads = (int64_t)(producers + consumers) * target_warpgroup(target), unit = target->register_unit;
    int64_t share = target->registers_multiprocessor / threads / unit * unit;
    if (share > target->registers_thread) return 0;
    int64_t regs = ((producers + consumers) * share - producers * producer) / consumers / unit * unit;
    return regs < target->registers_thread ? regs : target->registers_thread / unit * unit;
}

// A producer with few registers spills; it gets less only where the accumulators need the rest.
int64_t producer_registers(const Target *target, int consumers, int producers, int64_t fragments, int64_t room) {
    enum { MOST = 40 };
    int64_t producer = MOST;
    if (!consumer_registers(target, consumers, producers, producer)) return 0;
    while (producer > target->registers_least &&
           fragments + room > consumer_registers(target, consumers, producers, producer))
        producer -= target->register_unit;
    return producer;
}

static bool holds_pingpong(const Target *target, const Func *kernel) {
    int64_t limit = consumer_registers(target, PINGPONG_MOST, 1, target->registers_least) - PINGPONG_ROOM;
    return fragment_registers(target, kernel, 1) <= limit;
}

// ---- in which way? ----

Specialization specialization_of(Arena *arena, const Target *target, const Func *kernel) {
    Specialization how = {.grid = func_grid(kernel)};
    if (how.grid && attr_get(how.grid->attrs, ATTR_NO_SPECIALIZE)) return how.why = "its grid has @no_specialize", how;
    bool is_plain = !shape_of(target, kernel, &how) && trips_serve(arena, kernel, &how);
    if (is_plain && holds_pingpong(target, kernel)) return how.kind = WS_PINGPONG, how;
    how.why = cooperative_problem(arena, target, kernel);
    how.kind = how.why ? WS_NONE : WS_COOPERATIVE;
    how.too_large = is_plain;
    return how;
}

// ---- stores ----

typedef struct Product {
    const Buf *fragment;
    bool found;
} Product;

static bool find_product(Visitor *visitor, Stmt *stmt) {
    Product *product = visitor->user;
    product->found |= is_call(stmt, OP_GEMM) && stmt->call.args[2].region->buf == product->fragment;
    return !product->found;
}

static bool is_multiplied_to(const Func *kernel, const Buf *fragment) {
    Product product = {.fragment = fragment};
    Visitor visitor = {.stmt = find_product, .user = &product};
    visit_block(&visitor, (Block *)&kernel->body);
    return product.found;
}

// Sums of products: a loop adds what a gemm made, element by element, so that layout inference gives both one layout.
typedef struct Sums {
    const Func *kernel;
    const Buf *fragment;
    const Stmt *loop;
    bool stored, product, found;
    bool operand;   // of a gemm: it lies as that wants
} Sums;

static bool is_element(const Sums *sums, const Buf *buf, int count, Expr *const *indices) {
    const Iter *iters = sums->loop->loop.iters;
    bool same = count == 2 && sums->loop->loop.count == 2 && buf->scope == SCOPE_FRAGMENT;
    for (int d = 0; d < 2 && same; d++)
        same = indices[d]->kind == EXPR_VAR && indices[d]->var == iters[d].var &&
               buf_extent(buf, d) == buf_extent(sums->fragment, d);
    return same;
}

static bool find_term(Visitor *visitor, Expr *expr) {
    Sums *sums = visitor->user;
    if (expr->kind == EXPR_LOAD && is_element(sums, expr->load.buf, expr->load.count, expr->load.indices))
        sums->product |= is_multiplied_to(sums->kernel, expr->load.buf);
    return true;
}

static bool find_sum(Visitor *visitor, Stmt *stmt) {
    Sums *sums = visitor->user;
    if (stmt->kind == STMT_STORE && stmt->store.buf == sums->fragment)
        sums->stored |= is_element(sums, stmt->store.buf, stmt->store.count, stmt->store.indices);
    return true;
}

static bool find_sums(Visitor *visitor, Stmt *stmt) {
    Sums *sums = visitor->user;
    for (int i = GEMM_A; i <= GEMM_B && is_call(stmt, OP_GEMM); i++)
        sums->operand |= stmt->call.args[i].region->buf == sums->fragment;
    if (!is_loop(stmt, LOOP_PARALLEL)) return true;
    sums->loop = stmt;
    sums->stored = sums->product = false;
    Visitor inside = {.stmt = find_sum, .expr = find_term, .user = sums};
    visit_block(&inside, &stmt->loop.body);
    sums->found |= sums->stored && sums->product;
    return false;
}

bool is_accumulator(const Func *kernel, const Buf *fragment) {
    if (fragment->scope != SCOPE_FRAGMENT || fragment->rank != 2) return false;
    if (is_multiplied_to(kernel, fragment)) return true;
    Sums sums = {.kernel = kernel, .fragment = fragment};
    Visitor visitor = {.stmt = find_sums, .user = &sums};
    visit_block(&visitor, (Block *)&kernel->body);
    return sums.found && !sums.operand;
}

static bool find_tile(Visitor *visitor, Stmt *stmt) {
    const Region **acc = visitor->user;
    if (is_call(stmt, OP_GEMM) && !*acc) *acc = stmt->call.args[2].region;
    return !*acc;
}

void specialized_tile(const Func *kernel, int64_t *m, int64_t *n) {
    const Region *acc = NULL;
    Visitor visitor = {.stmt = find_tile, .user = &acc};
    visit_block(&visitor, (Block *)&kernel->body);
    *m = acc ? region_extent(acc, 0) : 1;
    *n = acc ? region_extent(acc, 1) : 1;
}

Expr *specialized_steps(Arena *arena, const Func *kernel) {
    Specialization shape = {.grid = func_grid(kernel)};
    const Block *body = &shape.grid->grid.body;
    for (int i = 0; i < body->count && !shape.loop; i++)
        if (is_pipelined(body->items[i])) shape.loop = body->items[i];
    return shape.loop ? most_trips(arena, &shape) : e_int(arena, 1);
}

bool stores_tile(Arena *arena, const Target *target, const Func *kernel, const Stmt *stmt, TmaStore *out) {
    const char *why;
    return is_call(stmt, OP_COPY) && is_accumulator(kernel, stmt->call.args[0].region->buf) &&
           tma_stores(target, stmt, out, &why) && written_last(arena, kernel, stmt->call.args[1].region->buf);
}

int64_t pingpong_barriers(int64_t slots) {
    return 2 * slots * type_bytes(TYPE_MBARRIER);
}

typedef struct Staging {
    Arena *arena;
    const Target *target;
    const Func *kernel;
    int consumers;
    int64_t bytes;
} Staging;

static bool count_staging(Visitor *visitor, Stmt *stmt) {
    Staging *staging = visitor->user;
    TmaStore store;
    if (!stores_tile(staging->arena, staging->target, staging->kernel, stmt, &store)) return true;
    int64_t columns = store.chunks ? TMA_STORE_SLOTS * store.columns : store.tail_columns;
    staging->bytes += staging->consumers * store.rows * columns * type_bytes(stmt->call.args[1].region->buf->type);
    return true;
}

int64_t specialized_staging(Arena *arena, const Target *target, const Func *kernel, int64_t shared) {
    Specialization how = specialization_of(arena, target, kernel);
    if (how.kind == WS_NONE) return 0;
    int consumers =
        how.kind == WS_PINGPONG ? pingpong_consumers(target, kernel, how.loop) : cooperative_warpgroups(target, kernel);
    int64_t slots = how.kind == WS_COOPERATIVE ? cooperative_slots(arena, target, kernel) : 0;
    Staging staging = {arena, target, kernel, consumers, slots};
    Visitor visitor = {.stmt = count_staging, .user = &staging};
    visit_block(&visitor, (Block *)&kernel->body);
    bool aliased = how.kind == WS_COOPERATIVE && shared + staging.bytes > target->shared_block &&
                   cooperative_alias_epilogue(arena, target, kernel);
    return aliased ? 0 : staging.bytes;
}
