// The decision on warp specialization: is a kernel specialized, and are its consumers ping-pong or cooperative? It
// depends on the main loop, its trip count, and the registers and shared memory of the roles. `plan` asks for it and the
// cost models do (warp_specialize.h). Cooperative kernels are judged by ws_analysis.c. The transformation,
// warp_specialize.c and cooperative.c, falls back if its copies have no slots after all.
#include "ir/channels.h"
#include "ir/schedule.h"
#include "passes/cost/occupancy.h"
#include "passes/pipeline/async_copy_legality.h"
#include "passes/specialize/builder.h"

// ---- can it? ----

static bool multiplies_before(const Stmt *loop, const Stmt *copy) {
    FOR_EACH_ITEM (stmt, &loop->loop.body) {
        GemmOp gemm;
        if (stmt == copy) break;
        if (match_gemm(stmt, &gemm) && (gemm.a->buf == copy_of(copy).dst->buf || gemm.b->buf == copy_of(copy).dst->buf))
            return true;
    }
    return false;
}

// A loop of TMA copies, MMAs by wgmma of their tiles, each behind its copies, and scalars.
static bool loop_multiplies(Arena *arena, const Target *target, const Stmt *loop) {
    int copies = 0, gemms = 0;
    if (loop_stages(loop) < 2 || !loop_is_plain(loop)) return false;
    FOR_EACH_ITEM (stmt, &loop->loop.body) {
        WgmmaInfo info;
        if (is_scalar(stmt)) continue;
        if (is_call(stmt, OP_COPY)) {
            if (multiplies_before(loop, stmt) || tma_load_problem(target, stmt)) return false;
            copies++;
        } else {
            if (!is_call(stmt, OP_GEMM) || wgmma_problem(arena, target, stmt, &info)) return false;
            if (gemm_of(stmt).a->buf->scope != SCOPE_SHARED) return false;
            gemms++;
        }
    }
    return copies > 0 && gemms > 0;
}

static bool is_target(const Stmt *loop, const Buf *buf) {
    FOR_EACH_ITEM (stmt, &loop->loop.body)
        if (is_call(stmt, OP_COPY) && copy_of(stmt).dst->buf == buf) return true;
    return false;
}

// The rest of the kernel needs no thread indices, no other loop of loads, no mutable state and none of the loop's tiles.
static bool surrounds(Arena *arena, const Stmt *grid, const Stmt *loop) {
    FOR_EACH_ITEM (stmt, &grid->grid.body)
        FOR_EACH_EFFECT (effect, arena, stmt)
            if (stmt != loop && effect->buf->scope == SCOPE_SHARED && is_target(loop, effect->buf)) return false;
    FOR_EACH_STMT (stmt, &grid->grid.body) {
        bool threads = stmt->kind == STMT_ROLE || stmt->kind == STMT_THREAD;
        if (threads || stmt->kind == STMT_VAR || stmt->kind == STMT_WHILE) return false;
        if (is_pipelined(stmt) && stmt != loop) return false;
        if (is_shared_decl(stmt) && !is_scratch(stmt) && !is_target(loop, stmt->decl)) return false;
    }
    return true;
}

// CTAs of a cluster execute their loops independently; they may synchronize only behind the loops.
static bool meets_early(const Stmt *grid, const Stmt *loop) {
    FOR_EACH_ITEM (stmt, &grid->grid.body) {
        FOR_EACH_STMT_IN (below, stmt)
            if (is_call(below, OP_CLUSTER_BARRIER)) return true;
        if (stmt == loop) break;
    }
    return false;
}

const Stmt *pipelined_loop(const Stmt *grid) {
    FOR_EACH_ITEM (stmt, &grid->grid.body)
        if (is_pipelined(stmt)) return stmt;
    return NULL;
}

// The loop, if the kernel is one loop of loads and MMAs only; else NULL. (Why: ws_analyze gives the reason that counts.)
static const Stmt *only_loop(Arena *arena, const Target *target, const Func *kernel) {
    const Stmt *grid = func_grid(kernel);
    if (!grid || !target_has(target, FEATURE_TMA) || !target_has(target, FEATURE_WGMMA)) return NULL;
    const Stmt *loop = pipelined_loop(grid);
    if (!loop || !loop_multiplies(arena, target, loop)) return NULL;
    return (func_cluster(kernel) == 1 || !meets_early(grid, loop)) && surrounds(arena, grid, loop) ? loop : NULL;
}

// Made of what is loaded. A `var` may be.
static bool is_loaded(const Expr *expr, const void *kernel) {
    if (expr->kind == EXPR_LOAD) return true;
    if (expr->kind != EXPR_VAR) return false;
    if (expr->var->kind == VAR_MUTABLE) return true;
    FOR_EACH_STMT (stmt, &((const Func *)kernel)->body)
        if (stmt->kind == STMT_LET && stmt->let.var == expr->var) return any_expr(stmt->let.value, is_loaded, kernel);
    return false;
}

// What may fail for a tile beyond the grid, whose loads give 0; or what others see.
static bool is_hazard(const Expr *expr, const void *kernel) {
    if (has_effect(expr, NULL)) return true;
    const Expr *divisor = expr_divisor(expr);
    if (divisor && !expr_known_at_launch(divisor)) return true;
    bool element = expr->kind == EXPR_LOAD && expr->load.buf->scope != SCOPE_GLOBAL;   // (tensors have guards)
    for (int d = 0; element && d < expr->load.count; d++)
        if (any_expr(expr->load.indices[d], is_loaded, kernel)) return true;
    return false;
}

bool may_fail_beyond_grid(const Func *kernel, const Stmt *stmt) {
    return stmt_any_expr(stmt, is_hazard, kernel);
}

static bool has_constant_trips(const Stmt *loop) {
    for (int i = 0; i < loop->loop.count; i++)
        if (iter_count(&loop->loop.iters[i]) < 0) return false;
    return true;
}

// A statement of a `parallel` loop that only computes, and ends for any values.
static bool is_safe(const Func *kernel, const Stmt *stmt) {
    if (stmt->kind == STMT_FOR) return has_constant_trips(stmt);
    if (stmt->kind != STMT_STORE)
        return is_scalar(stmt) || stmt->kind == STMT_VAR || stmt->kind == STMT_ASSIGN || stmt->kind == STMT_IF;
    for (int d = 0; d < stmt->store.count; d++)
        if (any_expr(stmt->store.indices[d], is_loaded, kernel)) return false;
    return stmt->store.buf->scope != SCOPE_GLOBAL;
}

static bool is_safe_loop(const Func *kernel, const Stmt *loop) {
    FOR_EACH_STMT (stmt, &loop->loop.body)
        if (!is_safe(kernel, stmt)) return false;
    return true;
}

// A statement of a step that computes with what the step loads, for any tile and for one beyond the grid.
static bool is_of_step(const Func *kernel, const Stmt *stmt) {
    if (may_fail_beyond_grid(kernel, stmt)) return false;
    if (is_loop(stmt, LOOP_PARALLEL)) return is_safe_loop(kernel, stmt);
    CopyOp copy;
    if (match_copy(stmt, &copy)) return copy.dst->buf->scope != SCOPE_GLOBAL;
    return is_scalar(stmt) || stmt->kind == STMT_DECL || is_call(stmt, OP_GEMM) || is_call(stmt, OP_FILL) ||
           is_reduction(stmt);
}

bool loads_in_one_loop(const Target *target, const Func *kernel) {
    const Stmt *grid = func_grid(kernel), *loop = grid ? pipelined_loop(grid) : NULL;
    if (!loop || loop_stages(loop) < 2 || !loop_is_plain(loop)) return false;
    FOR_EACH_ITEM (stmt, &loop->loop.body)
        if (!is_of_step(kernel, stmt) || (is_global_to_shared_copy(stmt) && tma_load_problem(target, stmt)))
            return false;
    FOR_EACH_ITEM (stmt, &grid->grid.body) {
        if (stmt == loop) continue;
        FOR_EACH_STMT_IN (below, stmt)
            if (is_global_to_shared_copy(below) || is_pipelined(below)) return false;
    }
    return true;
}

// ---- trips ----

typedef struct Trips {
    const Block *work;
    Subst *known;
    bool differ;
} Trips;

static Expr *let_value(const Block *work, const Var *var) {
    FOR_EACH_ITEM (stmt, work)
        if (stmt->kind == STMT_LET && stmt->let.var == var) return stmt->let.value;
    return NULL;
}

static Expr *open_let(Mapper *mapper, Expr *expr) {
    Trips *trips = mapper->user;
    if (trips->differ) return expr;   // the result is known; substituting nested lets takes time
    if (expr->kind == EXPR_LOAD || (expr->kind == EXPR_CALL && !op_is_pure(expr->call.op))) trips->differ = true;
    if (expr->kind != EXPR_VAR || expr->var->kind == VAR_DIM || expr->var->kind == VAR_PARAM) return expr;
    Expr *value = let_value(trips->work, expr->var), *known = trips->known ? subst_expr(trips->known, expr) : expr;
    if (value) return map_expr(mapper, value);
    trips->differ |= known == expr;
    return known;
}

Expr *common_value(Arena *arena, const Block *work, Subst *known, Expr *expr) {
    Trips trips = {work, known, false};
    Mapper mapper = {.arena = arena, .expr = open_let, .user = &trips};
    Expr *value = map_expr(&mapper, expr);
    return trips.differ ? NULL : value;
}

Expr *common_trips(Arena *arena, const Block *work, const Stmt *loop) {
    return common_value(arena, work, NULL, loop->loop.iters[0].end);
}

// An upper bound of a trip count, for all tiles; NULL: unknown.
static Expr *most_of(Arena *arena, const Block *work, Expr *expr) {
    Expr *common = common_value(arena, work, NULL, expr), *a, *b;
    if (common) return common;
    if (expr->kind == EXPR_VAR) return (a = let_value(work, expr->var)) ? most_of(arena, work, a) : NULL;
    if (expr->kind != EXPR_SELECT) return NULL;
    a = most_of(arena, work, expr->select.yes);
    b = most_of(arena, work, expr->select.no);
    if (!a || !b) return NULL;
    return expr_is_int(a, 0) ? b : expr_is_int(b, 0) || expr_equal(a, b) ? a : e_max(arena, a, b);
}

// Trip counts may differ between tiles if each role computes the same number: no statement changes their inputs.
static bool roles_agree(const Stmt *grid, const Stmt *loop) {
    FOR_EACH_ITEM (stmt, &grid->grid.body) {
        if (stmt == loop) break;
        if (stmt->kind == STMT_LET && any_expr(stmt->let.value, is_computed, NULL)) return false;
    }
    return !any_expr(loop->loop.iters[0].end, is_computed, NULL);
}

static Expr *most_trips(Arena *arena, const Stmt *grid, const Stmt *loop) {
    const Block *work = &grid->grid.body;
    Expr *common = common_trips(arena, work, loop);
    if (common || !roles_agree(grid, loop)) return common;
    return most_of(arena, work, loop->loop.iters[0].end);
}

static bool has_own_cta(const Func *kernel) {   // each tile
    return func_cluster(kernel) > 1 || grid_claim(func_grid(kernel)).kind == CLAIM_ONE;
}

// Persistent CTAs need a bound on the trip counts, to balance tiles. With one tile per CTA any trip count is allowed.
static bool trips_serve(Arena *arena, const Func *kernel, const Stmt *loop) {
    const Stmt *grid = func_grid(kernel);
    return has_own_cta(kernel) ? roles_agree(grid, loop) : most_trips(arena, grid, loop) != NULL;
}

// One consumer if the tile has one strip of wgmma rows (64): such tiles are for problems that hardly fill the device.
// One consumer also with one tile per CTA.
static int pingpong_consumers(Arena *arena, const Target *target, const Func *kernel, const Stmt *loop) {
    if (has_own_cta(kernel)) return 1;
    FOR_EACH_ITEM (stmt, &loop->loop.body) {
        WgmmaInfo info;
        GemmOp gemm;
        if (!match_gemm(stmt, &gemm) || wgmma_problem(arena, target, stmt, &info)) continue;
        if (region_extent(gemm.acc, 0) > info.m) return PINGPONG_MOST;
    }
    return 1;
}

// ---- registers ----

int64_t buf_registers(const Target *target, const Buf *fragment, int warpgroups) {
    enum { REGISTER_BITS = 32 };
    int64_t row_bits = (int64_t)warpgroups * target_warpgroup(target) * REGISTER_BITS, bits = type_bits(fragment->type);
    for (int d = 0; d < fragment->rank; d++) bits *= buf_extent(fragment, d);
    return (bits + row_bits - 1) / row_bits;
}

// Of an `if` either arm's.
static int64_t registers_in(const Target *target, const Block *block, int warpgroups) {
    int64_t registers = 0;
    FOR_EACH_ITEM (stmt, block) {
        if (stmt->kind == STMT_DECL && stmt->decl->scope == SCOPE_FRAGMENT)
            registers += buf_registers(target, stmt->decl, warpgroups);
        if (stmt->kind == STMT_IF) {
            registers += larger(registers_in(target, &stmt->if_.then, warpgroups),
                                registers_in(target, &stmt->if_.otherwise, warpgroups));
            continue;
        }
        FOR_EACH_BODY (body, stmt) registers += registers_in(target, body, warpgroups);
    }
    return registers;
}

int64_t fragment_registers(const Target *target, const Func *kernel, int warpgroups) {
    return registers_in(target, &kernel->body, warpgroups);
}

int64_t initial_registers(const Target *target, int warpgroups) {
    int64_t threads = (int64_t)warpgroups * target_warpgroup(target), unit = target->register_unit;
    return target->registers_multiprocessor / threads / unit * unit;
}

// Registers are reallocated from equal initial shares, in whole units. Two warpgroups start with a thread's maximum.
int64_t consumer_registers(const Target *target, int consumers, int producers, int64_t producer) {
    int64_t share = initial_registers(target, producers + consumers), unit = target->register_unit;
    if (share > target->registers_thread) return 0;
    int64_t regs = ((producers + consumers) * share - producers * producer) / consumers / unit * unit;
    return regs < target->registers_thread ? regs : target->registers_thread / unit * unit;
}

// A producer with few registers spills. It gets fewer only if the accumulators need the rest.
int64_t producer_registers(const Target *target, int consumers, int producers, int64_t most, int64_t needed) {
    int64_t producer = most;
    if (initial_registers(target, producers + consumers) > target->registers_thread) return 0;
    while (producer > target->registers_least && needed > consumer_registers(target, consumers, producers, producer))
        producer -= target->register_unit;
    return producer;
}

int64_t pingpong_limit(const Target *target) {
    return consumer_registers(target, PINGPONG_MOST, 1, target->registers_least) - PINGPONG_ROOM;
}

static bool holds_pingpong(const Target *target, const Func *kernel) {
    return fragment_registers(target, kernel, 1) <= pingpong_limit(target);
}

// ---- ping-pong or cooperative ----

static Specialization none(const Stmt *grid, const char *why) {
    return (Specialization){.why = why, .at = grid ? grid->loc : (Span){0}};
}

// Ping-pong if the kernel is one loop of loads and MMAs, its trips are known and one warpgroup holds the tile; else
// cooperative, unless ws_analyze finds a reason against that; else neither, for that reason.
Specialization specialization_of(Arena *arena, const Target *target, const Func *kernel) {
    const Stmt *grid = func_grid(kernel);
    const Attr *whole = grid ? attr_get(grid->attrs, ATTR_NO_SPECIALIZE) : NULL;
    Groups asked = kernel_groups(kernel);
    int count = (int)asked.of[GROUP_COMPUTE].count, most = grid && has_own_cta(kernel) ? 1 : PINGPONG_MOST;
    if (whole) return none(grid, whole->count ? whole->args[0].text : "its grid has @no_specialize");
    if (has_channels(kernel)) return none(NULL, "it has channels of its own");
    const Stmt *loop = only_loop(arena, target, kernel);
    bool claims = grid && grid_claim(grid).kind == CLAIM_DYNAMIC;   // by one role for all
    bool is_plain = loop && !claims && trips_serve(arena, kernel, loop),
         holds = is_plain && holds_pingpong(target, kernel);
    if (asked.each && count > most)
        return none(grid, arena_printf(arena, "groups with tiles of their own: at most %d", most));
    if (asked.each && !is_plain)
        return none(grid, "it is not one loop of loads by TMA and products by wgmma, of a known length");
    if (asked.each && !holds) return none(grid, "one warpgroup has too few registers for its tile");
    if (holds && (asked.each || !count)) {
        int consumers = count ? count : pingpong_consumers(arena, target, kernel, loop);
        return (Specialization){
            .kind = WS_PINGPONG, .loop = loop, .consumers = consumers, .producers = 1, .sharers = 1};
    }
    Specialization how = cooperative_specialization(arena, target, kernel);
    how.too_large = is_plain;
    return how;
}

// ---- stores ----

static bool is_multiplied_to(const Func *kernel, const Buf *fragment) {
    FOR_EACH_STMT (stmt, &kernel->body)
        if (is_call(stmt, OP_GEMM) && gemm_of(stmt).acc->buf == fragment) return true;
    return false;
}

// Sums of MMA results: a loop adds them element by element, so layout inference gives both fragments one layout.
typedef struct Sums {
    const Func *kernel;
    const Buf *fragment;
    const Stmt *loop;
} Sums;

static bool is_element(const Sums *sums, const Buf *buf, int count, Expr *const *indices) {
    if (count != 2 || buf->scope != SCOPE_FRAGMENT || !is_loop_element(sums->loop, count, indices)) return false;
    return buf_extent(buf, 0) == buf_extent(sums->fragment, 0) && buf_extent(buf, 1) == buf_extent(sums->fragment, 1);
}

static bool is_product(const Expr *expr, const void *user) {
    const Sums *sums = user;
    return expr->kind == EXPR_LOAD && is_element(sums, expr->load.buf, expr->load.count, expr->load.indices) &&
           is_multiplied_to(sums->kernel, expr->load.buf);
}

static bool is_sum(const Stmt *stmt, void *user) {
    const Sums *sums = user;
    return stmt->kind == STMT_STORE && stmt->store.buf == sums->fragment &&
           is_element(sums, stmt->store.buf, stmt->store.count, stmt->store.indices);
}

bool is_accumulator(const Func *kernel, const Buf *fragment) {
    bool found = false;
    if (fragment->scope != SCOPE_FRAGMENT || fragment->rank != 2) return false;
    if (is_multiplied_to(kernel, fragment)) return true;
    FOR_EACH_STMT (stmt, &kernel->body) {
        GemmOp gemm;   // (an operand has the layout that its gemm requires)
        if (match_gemm(stmt, &gemm) && (gemm.a->buf == fragment || gemm.b->buf == fragment)) return false;
        if (!is_loop(stmt, LOOP_PARALLEL)) continue;
        Sums sums = {kernel, fragment, stmt};
        found |= block_any(&stmt->loop.body, is_sum, &sums) && block_any_expr(&stmt->loop.body, is_product, &sums);
        SKIP_BODY(stmt);
    }
    return found;
}

void specialized_tile(const Func *kernel, int64_t *m, int64_t *n) {
    const Stmt *gemm = block_first_call(&kernel->body, OP_GEMM);
    *m = gemm ? region_extent(gemm_of(gemm).acc, 0) : 1;
    *n = gemm ? region_extent(gemm_of(gemm).acc, 1) : 1;
}

Expr *specialized_steps(Arena *arena, const Func *kernel) {
    const Stmt *loop = pipelined_loop(func_grid(kernel));
    return loop ? most_trips(arena, func_grid(kernel), loop) : e_int(arena, 1);
}

bool stores_tile(Arena *arena, const Target *target, const Func *kernel, const Stmt *stmt, TmaStore *out,
                 const char **why) {
    *why = NULL;
    if (!is_fragment_to_global_copy(stmt) || !is_accumulator(kernel, copy_of(stmt).src->buf)) return false;
    *why = tma_epilogue_problem(target, stmt, out);
    if (!*why && !written_last(arena, kernel, copy_of(stmt).dst->buf))
        *why = "the kernel uses its tensor elsewhere too: store to it in one place";
    return !*why;
}

int64_t pingpong_barriers(int64_t slots) {
    return 2 * slots * type_bytes(TYPE_MBARRIER);
}

int64_t store_staging(Arena *arena, const Target *target, const Func *kernel, const Stmt *stmt, int stagers) {
    TmaStore store;
    const char *why;
    if (!stores_tile(arena, target, kernel, stmt, &store, &why)) return 0;
    int64_t columns = store.chunks ? TMA_STORE_SLOTS * store.columns : store.tail_columns;
    return stagers * store.rows * columns * type_bytes(copy_of(stmt).dst->buf->type);
}

int64_t specialized_staging(Arena *arena, const Target *target, const Func *kernel, const Specialization *how) {
    int64_t bytes = how->slot_bytes;
    int stagers = how->kind == WS_COOPERATIVE ? how->sharers : how->consumers;
    if (how->kind == WS_NONE) return 0;
    FOR_EACH_STMT (stmt, &kernel->body) bytes += store_staging(arena, target, kernel, stmt, stagers);
    return bytes;
}

int64_t specialized_shared(const Target *target, const Specialization *how, int64_t staging, int64_t shared) {
    bool aliases = shared + staging > target->shared_block;
    return shared + staging - (aliases ? how->aliased : 0);
}

int64_t buffer_bytes(Arena *arena, const Target *target, const Func *kernel) {
    Occupancy estimate = occupancy_estimate(arena, kernel, target);
    int64_t bytes = estimate.shared;
    VEC_EACH (const OccupancyBuffer, b, &estimate.buffers) {
        bool loaded = b->buf->scope == SCOPE_SHARED && (b->is_loaded || b->stages > 1);
        if (loaded) bytes += pingpong_barriers(b->stages);
    }
    return bytes;
}

StoreFit specialized_fits(Arena *arena, const Target *target, const Func *kernel, const Specialization *how) {
    int64_t shared = buffer_bytes(arena, target, kernel);
    int64_t staging = specialized_staging(arena, target, kernel, how);
    int64_t others = other_products_bytes(arena, target, kernel, how->sharers);
    if (specialized_shared(target, how, staging + others, shared) <= target->shared_block) return FITS_STAGED;
    return shared + how->slot_bytes + others <= target->shared_block ? FITS_UNSTAGED : FITS_NOT;
}
