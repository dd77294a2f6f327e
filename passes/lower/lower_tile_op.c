// lower-tile-op: converts statements of the CTA to statements of each thread.
//
// The grid's body becomes the shared buffers in their physical shape and one `thread (t in T)` region. In it
//   - every fragment is a `local` array: the thread's values, in the order of the fragment's layout (lower_buffers.c);
//   - every index into a shared buffer goes through the layout's Forward:  As[k, i, j]  ->  As[k, tc, ts, index];
//   - loops, copies, fills run over the values of their map (lower_loop.c), gemms become ldmatrix and mma or FMAs
//     (lower_gemm.c), reductions and scans become shuffles and, across warps, an exchange through their scratch
//     (lower_reduce.c, lower_scan.c);
//   - accesses to global tensors are guarded, unless facts prove them inside: loads outside give 0, stores do nothing;
//   - stores of the CTA are executed by thread 0, scalars of the CTA by every thread;
//   - roles become thread regions of their own (lower_roles.c), order barriers of their warpgroups named barriers.
//
// Layouts have been chosen. This pass makes no decisions, and no storage except per-thread temporaries.
#include "ir/build.h"
#include "ir/rewrite.h"
#include "passes/analysis/kernel_walk.h"
#include "passes/analysis/util.h"
#include "passes/lower/lower.h"
#include "passes/select/bulk.h"
#include "passes/select/tma.h"
#include "passes/select/tma_reduce.h"
#include "passes/select/tma_simple.h"
#include "support/map.h"
#include <string.h>

// ---- statements ----

static void not_lowered(Lower *lower, const Stmt *stmt, const char *what) {
    diag(lower->context->sink, stmt->loc, T_NOT_LOWERED, what);
}

Block *lower_single_thread(Lower *lower, Expr *guard, Block *out) {
    Arena *arena = lower->arena;
    if (lower->one) return block_if(arena, out, guard);
    return block_if(arena, out, e_both(arena, e_eq(arena, lower_thread(lower), e_int(arena, 0)), guard));
}

static void lower_block_store(Lower *lower, const Stmt *stmt, Block *out) {
    Arena *arena = lower->arena;
    Buf *buf = stmt->store.buf;
    int count = stmt->store.count;
    Expr *value = lower_expr(lower, stmt->store.value), *indices[LAYOUT_MAX_RANK], *guard = NULL;
    if (buf->scope == SCOPE_FRAGMENT) {
        Expr *slot = lower_replicated_slot(lower, buf, count, stmt->store.indices, stmt->loc);
        block_store1(arena, out, lower_local(lower, buf), slot, value);
        return;
    }
    for (int d = 0; d < count; d++) indices[d] = lower_expr(lower, stmt->store.indices[d]);
    if (buf->scope == SCOPE_GLOBAL) guard = access_guard(arena, lower->facts, buf, count, indices);
    if (buf->scope != SCOPE_LOCAL) out = lower_single_thread(lower, guard, out);
    Stmt *store = s_store_at(arena, lower_place(lower, buf, count, indices), value);
    store->loc = stmt->loc;
    block_push(arena, out, store);
}

static void lower_decl(Lower *lower, Stmt *stmt, Block *out) {
    if (stmt->decl->scope == SCOPE_SHARED) return;   // declared at the top of the grid
    if (stmt->decl->scope == SCOPE_FRAGMENT) stmt->decl = lower_local(lower, stmt->decl);
    block_push(lower->arena, out, stmt);
}

// An arrival by each of several groups of the role's threads: the first thread of each group arrives.
static bool lower_counted_arrival(Lower *lower, const Stmt *arrive, Block *out) {
    Arena *arena = lower->arena;
    int at =
        arrive->call.op == OP_PEER_ARRIVE ? OPERAND_INDEX(PEER_ARRIVE, count) : OPERAND_INDEX(MBARRIER_ARRIVE, count);
    const Expr *count = arrive->call.count > at ? arrive->call.args[at].value : NULL;
    int64_t groups;
    if (!count || !expr_const(count, &groups) || groups < 1 || lower->one) return false;
    EXPECT(lower->context->failure, lower->threads % groups == 0, "%lld arrivals of %lld threads", (long long)groups,
           (long long)lower->threads);
    Expr *within = e_rem(arena, lower_thread(lower), lower->threads / groups);
    Block *first = block_if(arena, out, e_eq(arena, within, e_int(arena, 0)));
    block_call(arena, first, arrive->loc, arrive->call.op, at, arrive->call.args);
    vec_last(first)->attrs = arrive->attrs;
    return true;
}

// An operation that threads execute unchanged, with operands in physical coordinates.
static void lower_thread_call(Lower *lower, Stmt *stmt, Block *out) {
    OpId op = stmt->call.op;
    bool single = is_single_thread(stmt);
    for (int i = 0; i < stmt->call.count; i++) {
        Arg *arg = &stmt->call.args[i];
        if (arg->value) arg->value = lower_expr(lower, arg->value);
        if (arg->region) arg->region = lower_element(lower, arg->region);
    }
    if ((op == OP_MBARRIER_ARRIVE || op == OP_PEER_ARRIVE) && lower_counted_arrival(lower, stmt, out)) return;
    if (op == OP_MBARRIER_WAIT && lower_leader_wait(lower, stmt, out)) return;
    if (attr_get(stmt->attrs, ATTR_WARPGROUP)) {
        lower_warpgroup_barrier(lower, stmt->loc, out);
        return;
    }
    Expr *guard = op_is(op, OP_CLASS_ELEMENT) ? lower_call_guard(lower, stmt->call.count, stmt->call.args) : NULL;
    block_push(lower->arena, single ? lower_single_thread(lower, guard, out) : out, stmt);
}

static Expr *lower_whole(Mapper *mapper, Expr *expr) {
    return lower_expr(mapper->user, expr);
}

// Where its slices begin, and whether it adds, may be read from shared memory.
static void lower_product(Lower *lower, Stmt *gemm, Block *out) {
    map_own(&(Mapper){.arena = lower->arena, .expr = lower_whole, .user = lower, .whole = true}, gemm);
    if (via_is(gemm, VIA_WGMMA)) lower_wgmma(lower, gemm, out);
    else lower_gemm(lower, gemm, out);
}

static void lower_call(Lower *lower, Stmt *stmt, Block *out) {
    const OpInfo *info = op_info(stmt->call.op);
    bool lowered = true;
    if (stmt->call.op == OP_GEMM) lower_product(lower, stmt, out);
    else if (is_reduction(stmt)) lower_reduce(lower, stmt, out);
    else if (is_scan(stmt)) lowered = lower_scan(lower, stmt, out);
    else if (lower_order(lower, stmt, out)) return;
    else if (info->stages & STAGE_BIT_THREAD) lower_thread_call(lower, stmt, out);
    else lowered = false;
    if (!lowered) not_lowered(lower, stmt, info->text);
}

static void lower_body(Lower *lower, const Stmt *stmt, Block *body) {
    Block lowered = {0};
    int mark = facts_mark(lower->facts);
    facts_enter_body(lower->facts, stmt, body);
    lower_block(lower, body, &lowered);
    facts_release(lower->facts, mark);
    *body = lowered;
}

// A scalar that another role has handed over: by shuffle, so that it, and the control flow that depends on it, is
// warp-uniform for the assembler.
static void make_uniform(Lower *lower, Stmt *stmt) {
    const Expr *load = stmt->kind == STMT_LET ? stmt->let.value : NULL;
    bool handed = load && load->kind == EXPR_LOAD && attr_get(load->load.buf->attrs, ATTR_HANDED);
    if (!handed || lower->one || lower->threads % lower->target->warp_lanes) return;
    stmt->let.value = e_call2(lower->arena, OP_SHFL_IDX, stmt->let.value, e_int(lower->arena, 0));
}

// A statement that every thread executes: its own expressions, then its bodies.
static void lower_in_place(Lower *lower, Stmt *stmt, Block *out) {
    bool repeats = lower->repeats;
    Mapper mapper = {.arena = lower->arena, .expr = lower_whole, .user = lower, .whole = true};
    if (is_loop(stmt, LOOP_PIPELINED)) stmt->loop.kind = LOOP_SERIAL, stmt->loop.stages = NULL;
    make_uniform(lower, stmt);
    if (stmt->kind != STMT_ASSUME) map_own(&mapper, stmt);
    if (is_gemm_loop(lower->target, stmt)) {
        lower_gemm_loop(lower, stmt, out);
        return;
    }
    lower->repeats |= stmt->kind == STMT_FOR || stmt->kind == STMT_WHILE;
    FOR_EACH_BODY (body, stmt) lower_body(lower, stmt, body);
    lower->repeats = repeats;
    if (stmt->kind == STMT_LET || stmt->kind == STMT_ASSUME) facts_enter(lower->facts, stmt);
    block_push(lower->arena, out, stmt);
}

// A thread region in the source is unchanged, except for the buffers that it uses.
static Expr *thread_region_expr(Mapper *mapper, Expr *expr) {
    Lower *lower = mapper->user;
    if (expr->kind != EXPR_LOAD) return expr;
    Buf *buf = expr->load.buf;
    if (buf->scope == SCOPE_FRAGMENT) return e_load(lower->arena, lower_local(lower, buf), 1, expr->load.indices);
    return buf->scope == SCOPE_SHARED ? lower_load(lower, expr) : expr;
}

static Region *thread_region_operand(Mapper *mapper, Region *region) {
    Lower *lower = mapper->user;
    return region->buf->scope == SCOPE_SHARED ? lower_element(lower, region) : region;
}

static void lower_thread_region(Lower *lower, Stmt *stmt, Block *out) {
    Subst *subst = subst_new(lower->arena);
    subst_digits(subst, stmt->thread.count, stmt->thread.iters, lower_thread(lower));
    subst_block(subst, &stmt->thread.body);
    Mapper mapper = {.arena = lower->arena, .expr = thread_region_expr, .region = thread_region_operand, .user = lower};
    map_block(&mapper, &stmt->thread.body);
    FOR_EACH_STMT_MUT (inner, &stmt->thread.body) {
        if (inner->kind != STMT_STORE) continue;
        Buf *buf = inner->store.buf;
        if (buf->scope == SCOPE_FRAGMENT) buf = lower_local(lower, buf);
        const Region *place = lower_place(lower, buf, inner->store.count, inner->store.indices);
        inner->store = s_store_at(lower->arena, place, inner->store.value)->store;
    }
    block_append(lower->arena, block_nested(lower->arena, out, (Span){0}), &stmt->thread.body);
}

void lower_stmt(Lower *lower, Stmt *stmt, Block *out) {
    TileLoop loop;
    const Stmt *copy = tma_copy(lower->arena, stmt);
    if (copy) {
        Block *to = lower_single_thread(lower, NULL, out);
        if (by_bulk(copy)) lower_bulk(lower, copy, to);
        else if (is_shared_to_global_copy(copy))
            lower_tma_away(lower, copy, copy == stmt ? OP_TMA_STORE : OP_TMA_ADD, to);
        else lower_tma(lower, copy, to);
        return;
    }
    if (via_is(stmt, VIA_TRANSPOSE)) {
        lower_transpose(lower, stmt, out);
        return;
    }
    if (via_is(stmt, VIA_SHUFFLE)) {
        lower_conversion(lower, stmt, out);
        return;
    }
    MatrixCopy matrices;
    if (moves_by_matrices(stmt) && matrix_copy_of(lower->target, stmt, &matrices)) {
        lower_matrix_copy(lower, stmt, &matrices, out);
        return;
    }
    LinearCopy linear;
    if (via_is(stmt, VIA_LINEAR) && linear_copy_of(lower->target, stmt, &linear)) {
        lower_linear_copy(lower, stmt, &linear, out);
        return;
    }
    if (moves_by_warps(stmt)) {   // as a source asked
        diag(lower->context->sink, stmt->loc, T_VIA, via_text(via_of(stmt)),
             "the layouts of its tile and its fragment do not fit");
        return;
    }
    if (tile_loop_of(lower->arena, stmt, &loop)) {
        lower_loop(lower, stmt, &loop, 0, 0, out);
        return;
    }
    if (is_loop(stmt, LOOP_PARALLEL)) {
        not_lowered(lower, stmt, "this loop");
        return;
    }
    switch (stmt->kind) {
    case STMT_DECL: lower_decl(lower, stmt, out); return;
    case STMT_STORE: lower_block_store(lower, stmt, out); return;
    case STMT_CALL: lower_call(lower, stmt, out); return;
    case STMT_THREAD: lower_thread_region(lower, stmt, out); return;
    case STMT_ROLE: not_lowered(lower, stmt, "role"); return;
    default: lower_in_place(lower, stmt, out); return;
    }
}

static bool lower_subtiles(Lower *lower, const Stmt *stmt, const Block *loops, Block *out) {
    MatrixCopy matrices;
    return via_is(stmt, VIA_STMATRIX) && matrix_copy_of(lower->target, stmt, &matrices) &&
           lower_matrix_subtiles(lower, stmt, &matrices, loops, out);
}

void lower_block(Lower *lower, const Block *from, Block *to) {
    int mark = facts_mark(lower->facts);
    Block loops = {0};   // fused with the next store
    FOR_EACH_ITEM (stmt, from) {
        if (attr_get(stmt->attrs, ATTR_EPILOGUE_SUBTILE)) block_push(lower->arena, &loops, stmt);
        else if (stores_staged(stmt)) lower_staged_store(lower, stmt, &loops, to), loops = (Block){0};
        else if (loops.count && lower_subtiles(lower, stmt, &loops, to)) loops = (Block){0};
        else lower_stmt(lower, stmt, to);
    }
    FOR_EACH_ITEM (loop, &loops)   // without their store
        diag(lower->context->sink, loop->loc, T_ATTRIBUTE_PLACE, attr_name(ATTR_EPILOGUE_SUBTILE));
    facts_release(lower->facts, mark);
}

// ---- the pass ----

Stmt *open_region(Lower *lower, int64_t threads, Span loc) {
    Arena *arena = lower->arena;
    lower->threads = threads;
    lower->thread = var_new(arena, "t", VAR_ITER, TYPE_I64, loc);
    Stmt *region = stmt_new(arena, STMT_THREAD, loc);
    region->thread.count = 1;
    region->thread.iters = NEW(arena, Iter);
    *region->thread.iters = (Iter){lower->thread, e_int(arena, 0), e_int(arena, threads), e_int(arena, 1)};
    facts_iter(lower->facts, region->thread.iters);
    return region;
}

// Programmatic dependent launch (`@pdl`).
//
// Each role waits for the previous kernels before its first use of global memory, and all of them at a scalar that roles
// use. Loads of `@independent` tensors do not wait. The next kernel may begin when all CTAs of this one have begun, since
// it waits likewise.

static bool map_waits(const Func *kernel, const Stmt *call) {
    if (call->call.op == OP_TMA_PREFETCH) return false;   // a hint
    TensorMap map;
    const char *why;
    for (int i = 0; i < call->call.count; i++) {
        const Expr *value = call->call.args[i].value;
        if (!value || value->type != TYPE_TENSORMAP) continue;
        return !tensor_map_read(kernel, func_hidden(kernel, value->var), &map, &why) ||
               !tensor_is_independent(kernel, map.tensor);
    }
    return false;
}

// But for load(x, early, ..).
static bool is_late_load(const Expr *e, const void *user) {
    const Lower *lower = user;
    if (!is_expr_call(e, OP_LOAD)) return false;
    const Arg *args = e->call.args;
    const Buf *buf = buf_root(args[OPERAND_INDEX(LOAD, x)].region->buf);
    return buf->scope == SCOPE_GLOBAL && !tensor_is_independent(lower->kernel, buf) &&
           strcmp(args[OPERAND_INDEX(LOAD, order)].name, "early") != 0;
}

static bool waits(const Lower *lower, const Stmt *stmt) {
    FOR_EACH_EFFECT (effect, lower->arena, stmt)
        if (effect->op != OP_LOAD && effect->buf->scope == SCOPE_GLOBAL &&
            !tensor_is_independent(lower->kernel, effect->buf))
            return true;
    FOR_EACH_STMT_IN (inner, stmt) {
        if (inner->kind == STMT_CALL && map_waits(lower->kernel, inner)) return true;
        if (stmt_any_expr(inner, is_late_load, lower)) return true;
    }
    return false;
}

static bool insert_wait(Lower *lower, Block *body) {
    for (int at = 0; at < body->count; at++) {
        if (!waits(lower, body->items[at])) continue;
        block_insert(lower->arena, body, at, s_call(lower->arena, OP_DEPENDENCY_WAIT, 0, NULL));
        return true;
    }
    return false;
}

static void lower_waits(Lower *lower, int64_t threads, Block *top) {
    for (int i = 0; i < top->count; i++) {
        Stmt *stmt = top->items[i];
        if (stmt->kind == STMT_ROLE) {
            insert_wait(lower, &stmt->role.body.items[0]->thread.body);
        } else if (stmt->kind == STMT_THREAD) {
            if (insert_wait(lower, &stmt->thread.body)) return;
        } else if (waits(lower, stmt)) {
            block_insert(lower->arena, top, i, open_region(lower, threads, (Span){0}));
            block_call(lower->arena, &top->items[i]->thread.body, (Span){0}, OP_DEPENDENCY_WAIT, 0, NULL);
            return;
        }
    }
}

// Where the next kernel may begin: behind the CTA's place in the grid. ptxas moves the wait up to it, past what it is to hide.
static int behind_indices(const Block *body) {
    int at = 0;
    for (; at < body->count; at++) {
        const Stmt *stmt = body->items[at];
        bool index = stmt->kind == STMT_LET && !expr_reads_memory(stmt->let.value);
        if (!index && stmt->kind != STMT_DECL && stmt->kind != STMT_ASSUME) break;
    }
    return at;
}

static void lower_pdl(Lower *lower, int64_t threads, Block *top) {
    lower_waits(lower, threads, top);
    int first = 0;
    while (first < top->count && top->items[first]->kind != STMT_THREAD && top->items[first]->kind != STMT_ROLE)
        first++;
    if (first == top->count) return;
    if (top->items[first]->kind == STMT_ROLE)
        block_insert(lower->arena, top, first, open_region(lower, threads, (Span){0}));
    Block *body = &top->items[first]->thread.body;
    block_insert(lower->arena, body, behind_indices(body), s_call(lower->arena, OP_LAUNCH_DEPENDENTS, 0, NULL));
}

// Declares shared buffers at the top of the grid, in their physical shape. `array`: whose members each have one; NULL: none.
static void declare_shared(Lower *lower, const Block *body, const Stmt *array, Block *top) {
    FOR_EACH_STMT (stmt, body) {
        if (stmt->kind == STMT_ROLE && stmt->role.count) {
            declare_shared(lower, &stmt->role.body, stmt, top);
            SKIP_BODY(stmt);
            continue;
        }
        if (stmt->kind != STMT_DECL || stmt->decl->scope != SCOPE_SHARED) continue;
        if (array) map_put(lower->arrays, stmt->decl, (Stmt *)array);
        Stmt *decl = s_decl(lower->arena, lower_physical(lower, stmt->decl));
        decl->loc = stmt->loc;
        block_push(lower->arena, top, decl);
    }
}

static bool multiplies_by_wgmma(const Stmt *stmt, void *user) {
    (void)user;
    return via_is(stmt, VIA_WGMMA);
}

static void lower_grid(Lower *lower, Stmt *grid) {
    Block top = {0};
    int64_t threads = kernel_threads(lower->kernel);
    declare_shared(lower, &grid->grid.body, NULL, &top);
    facts_enter(lower->facts, grid);
    if (func_has_roles(lower->kernel)) {
        lower_roles(lower, &grid->grid.body, threads, &top);
    } else {
        Stmt *region = open_region(lower, threads, grid->loc);
        if (block_any(&grid->grid.body, multiplies_by_wgmma, NULL))
            lower_warpgroup(lower, &grid->grid.body, grid->loc, &region->thread.body);
        lower_block(lower, &grid->grid.body, &region->thread.body);
        block_push(lower->arena, &top, region);
    }
    bool pdl = attr_get(grid->attrs, ATTR_PDL) && target_has(lower->target, FEATURE_PDL);
    if (pdl) lower_pdl(lower, threads, &top);
    grid->grid.body = top;
}

bool pass_lower_tile_op(PassContext *context, Func *kernel) {
    Stmt *grid = (Stmt *)func_grid(kernel);
    if (kernel->stage == STAGE_THREAD || !grid) return false;
    Lower lower = {.context = context, .arena = context->arena, .kernel = kernel, .target = context->target};
    lower.facts = facts_new(context->arena, kernel);
    lower.locals = map_new(context->arena);
    lower.physical = map_new(context->arena);
    lower.arrays = map_new(context->arena);
    FOR_EACH_ITEM (stmt, &kernel->body) {
        if (stmt == grid) break;
        facts_enter(lower.facts, stmt);
    }
    lower_grid(&lower, grid);
    kernel->stage = STAGE_THREAD;
    return true;
}
