// stage-through-shared: what lowering will need in shared memory becomes declared buffers and plain copies, so that
// lowering creates no storage and swizzle-allocation and insert-sync see all of it.
//
//     copy(f, g) of fragments in two layouts    shared s; copy(f, s); copy(s, g)
//     gemm with an operand in the wrong place   shared s; copy(a, s); gemm(s, ...)
//     reduction across warps                    reduce_sum(v, sum, axis = 0, scratch = s): a row of s per warp
//     scan across warps                         scan_sum(v, w, axis = 0, scratch = s)
//     either from or to shared memory           fragment f; copy(s, f); reduce_sum(f, ...)
//     store of an accumulator to global memory  shared s; copy(acc, s); copy(s, C): whole 16-byte vectors a thread
//     let x = atomic_add(n[0], 1) of a block    shared s; s[0] = atomic_add(n[0], 1); let x = s[0]: once, and all see it
//
// What is done to an accumulator before a store by TMA is marked (@epilogue_subtile). The new copies get their maps
// from layout-inference, which is run again on what is new.
#include "ir/build.h"
#include "ir/facts.h"
#include "ir/rewrite.h"
#include "passes/analyses.h"
#include "passes/analysis/kernel_walk.h"
#include "passes/analysis/tile_loop.h"
#include "passes/analysis/util.h"
#include "passes/layout/fragment.h"
#include "passes/lower/lower.h"
#include "passes/pass.h"
#include "support/map.h"
#include <string.h>

typedef struct Staging {
    PassContext *context;
    Arena *arena;
    Func *kernel;
    Map *staged;    // copies from a fragment to global memory that are worth staging
    Map *effects;   // block-level lets of what an effect returned
    bool changed;
} Staging;

static Buf *shared_like(Staging *m, const char *name, Type type, int rank, const int64_t *shape, Block *out, Span loc) {
    Buf *buf = buf_new_const(m->arena, name, SCOPE_SHARED, type, rank, shape, loc);
    Stmt *decl = s_decl(m->arena, buf);
    decl->loc = loc;
    attr_set_ints(m->arena, &buf->attrs, ATTR_SCRATCH, 0, NULL);
    block_push(m->arena, out, decl);
    m->changed = true;
    return buf;
}

static void push_copy(Staging *m, Region *from, Region *to, Span loc, Block *out) {
    BLOCK_CALL(m->arena, out, loc, OP_COPY, arg_region(from), arg_region(to));
}

static void operand_shape(const Region *region, int *rank, int64_t *shape) {
    *rank = region_rank(region);
    for (int d = 0; d < *rank; d++) shape[d] = region_extent(region, d);
}

// from -> shared -> to, both regions of the same shape.
static void crosses_shared(Staging *m, const char *name, Type type, Region *from, Region *to, Span loc, Block *out) {
    int64_t shape[LAYOUT_MAX_RANK];
    int rank;
    operand_shape(to, &rank, shape);
    Buf *scratch = shared_like(m, name, type, rank, shape, out, loc);
    push_copy(m, from, region_whole(m->arena, scratch), loc, out);
    push_copy(m, region_whole(m->arena, scratch), to, loc, out);
}

// ---- conversions between fragment layouts ----

// What every thread has already is moved within it: a plain copy does that.
static bool is_conversion(Arena *arena, const Stmt *stmt) {
    if (stmt->kind != STMT_CALL || stmt->call.op != OP_COPY) return false;
    const Region *from = stmt->call.args[0].region, *to = stmt->call.args[1].region;
    if (from->buf->scope != SCOPE_FRAGMENT || to->buf->scope != SCOPE_FRAGMENT) return false;
    if (!from->buf->layout || !to->buf->layout || layout_equal(from->buf->layout, to->buf->layout)) return false;
    bool whole = region_is_whole(from) && region_is_whole(to) && !from->transposed && !to->transposed;
    return !whole || !fragment_same_thread(arena, to->buf->layout, from->buf->layout, e_int(arena, 0));
}

// ---- gemm operands ----

static bool a_is_usable(Staging *m, const Stmt *gemm) {
    const Attr *warps = attr_get(gemm->attrs, ATTR_WARPS);
    const Region *a = gemm->call.args[0].region, *acc = gemm->call.args[2].region;
    if (!warps || warps->args[1].integer != 1 || a->transposed || !region_is_whole(a)) return false;
    const MmaInfo *info = gemm_instruction(m->context->target, gemm);
    if (strcmp(info->a_type, type_text(a->buf->type)) != 0) return false;
    const Layout *required = fragment_operand_a(m->arena, info, region_extent(acc, 0), region_extent(a, 1),
                                                warps->args[0].integer, kernel_threads(m->kernel));
    return a->buf->layout && layout_equal(a->buf->layout, required);
}

static void operand_to_shared(Staging *m, Stmt *gemm, int operand, Block *out) {
    Region *region = gemm->call.args[operand].region;
    int64_t shape[2] = {buf_extent(region->buf, 0), buf_extent(region->buf, 1)};
    Buf *scratch = shared_like(m, region->buf->name, region->buf->type, 2, shape, out, gemm->loc);
    push_copy(m, region_whole(m->arena, region->buf), region_whole(m->arena, scratch), gemm->loc, out);
    Region *other = clone_region(m->arena, NULL, region);
    other->buf = scratch;
    gemm->call.args[operand].region = other;
}

static void stage_gemm(Staging *m, Stmt *gemm, Block *out) {
    bool by_mma = !via_is(gemm, VIA_WGMMA);   // whose operand in registers layout-inference has converted
    if (gemm->call.args[0].region->buf->scope == SCOPE_FRAGMENT && by_mma && !a_is_usable(m, gemm))
        operand_to_shared(m, gemm, 0, out);
    if (gemm->call.args[1].region->buf->scope == SCOPE_FRAGMENT) operand_to_shared(m, gemm, 1, out);
    block_push(m->arena, out, gemm);
}

// ---- reductions ----

// A fragment in place of an operand in shared memory.
static Region *operand_in_registers(Staging *m, Stmt *call, int operand, Block *out) {
    const Region *region = call->call.args[operand].region;
    int64_t shape[LAYOUT_MAX_RANK];
    int rank;
    operand_shape(region, &rank, shape);
    Buf *fragment =
        buf_new_const(m->arena, region->buf->name, SCOPE_FRAGMENT, region->buf->type, rank, shape, call->loc);
    block_push(m->arena, out, s_decl(m->arena, fragment));
    call->call.args[operand].region = region_whole(m->arena, fragment);
    m->changed = true;
    return call->call.args[operand].region;
}

static bool load_source(Staging *m, Stmt *call, Block *out) {
    Region *src = call->call.args[0].region;
    if (src->buf->scope == SCOPE_FRAGMENT) return false;
    push_copy(m, src, operand_in_registers(m, call, 0, out), call->loc, out);
    return true;
}

static Region *scratch_of(Staging *m, Type type, int64_t blocks, int rank, const int64_t *shape, Span loc, Block *out) {
    Buf *scratch = shared_like(m, "partial", type, rank, shape, out, loc);
    if (blocks > 1) {   // each block has all parts
        scratch->stage_dims = 1;
        attr_set_int(m->arena, &scratch->attrs, ATTR_BLOCKS, blocks);
    }
    return region_whole(m->arena, scratch);
}

static void stage_scan(Staging *m, Stmt *scan, Block *out) {
    Region *dst = scan->call.args[SCAN_DST].region;
    bool loaded = load_source(m, scan, out), stored = dst->buf->scope != SCOPE_FRAGMENT;
    Region *result = stored ? operand_in_registers(m, scan, SCAN_DST, out) : dst;
    const Layout *layout = scan->call.args[SCAN_SRC].region->buf->layout;
    int64_t size = loaded || stored ? 0 : scan_scratch(layout, scan_axis(scan), m->context->target->warp_lanes);
    if (size > 0 && !scan->call.args[SCAN_SCRATCH].region) {
        int64_t blocks = grid_blocks(func_grid(m->kernel)), shape[3] = {blocks, size, 1};
        int rank = blocks > 1 ? 3 : 2;
        scan->call.args[SCAN_SCRATCH] =
            arg_region(scratch_of(m, type_compute(dst->buf->type), blocks, rank, shape + 3 - rank, scan->loc, out));
    }
    block_push(m->arena, out, scan);
    if (stored) push_copy(m, result, dst, scan->loc, out);
}

// The scratch where warps meet; nothing as long as the layouts are not known.
static void give_scratch(Staging *m, Stmt *reduce, Block *out) {
    const Buf *src = reduce->call.args[REDUCE_SRC].region->buf, *dst = reduce->call.args[REDUCE_DST].region->buf;
    const Layout *layout = reduce_source(m->arena, reduce, src->layout);
    int64_t pieces = tv_warps_along(layout, reduce_op_axis(reduce), m->context->target->warp_lanes);
    if (pieces <= 1 || reduce->call.args[REDUCE_SCRATCH].region) return;
    int64_t blocks = grid_blocks(func_grid(m->kernel)), shape[3] = {blocks, pieces, 1};
    for (int d = 0; d < dst->rank; d++) shape[2] *= buf_extent(dst, d);
    int rank = blocks > 1 ? 3 : 2;
    reduce->call.args[REDUCE_SCRATCH] =
        arg_region(scratch_of(m, type_compute(dst->type), blocks, rank, shape + 3 - rank, reduce->loc, out));
}

static void stage_reduce(Staging *m, Stmt *reduce, Block *out) {
    Region *dst = reduce->call.args[REDUCE_DST].region;
    const Expr *accumulate = reduce->call.args[REDUCE_ACCUMULATE].value;
    bool loaded = load_source(m, reduce, out), stored = dst->buf->scope != SCOPE_FRAGMENT;
    Region *result = stored ? operand_in_registers(m, reduce, REDUCE_DST, out) : dst;
    if (stored && accumulate && !expr_is_int(accumulate, 0)) push_copy(m, dst, result, reduce->loc, out);
    if (!loaded && !stored) give_scratch(m, reduce, out);
    block_push(m->arena, out, reduce);
    if (stored) push_copy(m, result, dst, reduce->loc, out);
}

// ---- block-level effects with a result ----

static bool find_effect(Visitor *visitor, Expr *expr) {
    bool *found = visitor->user;
    bool same = expr->kind != EXPR_CALL || op_is_pure(expr->call.op) || expr->call.op == OP_PEER ||
                expr->call.op == OP_CLUSTER_RANK;   // for all threads: nobody writes what a peer holds until a barrier
    *found |= !same;
    return !*found;
}

static bool is_broadcast_effect(const Stmt *stmt) {
    if (stmt->kind != STMT_LET && stmt->kind != STMT_VAR && stmt->kind != STMT_ASSIGN) return false;
    bool found = false;
    Visitor visitor = {.expr = find_effect, .user = &found};
    if (stmt->let.value) visit_expr(&visitor, stmt->let.value);
    return found;
}

static void stage_effect(Staging *m, Stmt *stmt, Block *out) {
    int64_t one = 1;
    Buf *result = shared_like(m, stmt->let.var->name, stmt->let.value->type, 1, &one, out, stmt->loc);
    Expr *zero = e_int(m->arena, 0);
    Stmt *store = s_store1(m->arena, result, zero, stmt->let.value);
    store->loc = stmt->loc;
    block_push(m->arena, out, store);
    stmt->let.value = e_load1(m->arena, result, zero);
    block_push(m->arena, out, stmt);
}

// ---- staged stores ----

// Worth it when the global side takes wider vectors than the fragment's runs, or when a thread would test bounds for
// many single elements (registers need unrolled code; a copy from shared memory can loop). The kernel must have as much
// shared memory that is free by then: its input tiles.
static void find_work(void *user, Stmt *stmt, const Facts *facts) {
    Staging *m = user;
    TileLoop loop;
    if (is_broadcast_effect(stmt)) map_put(m->effects, stmt, stmt);
    if (stmt->kind != STMT_CALL || stmt->call.op != OP_COPY || stmt->call.is_async) return;
    const Region *from = stmt->call.args[0].region, *to = stmt->call.args[1].region;
    if (from->buf->scope != SCOPE_FRAGMENT || to->buf->scope != SCOPE_GLOBAL || !region_is_whole(from)) return;
    if (from->buf->rank != 2 || from->transposed || to->transposed || !tile_loop_of(m->arena, stmt, &loop)) return;
    TileAccessVec accesses = {0};
    tile_accesses(m->arena, &loop, &accesses);
    int fast = loop_fast_dim(&loop, &accesses);
    int64_t possible = loop_vector(facts, &loop, &accesses, fast, m->context->target);
    enum { MANY = 32 };
    int64_t taken = attr_int(stmt->attrs, ATTR_VECTOR, 1), values = tv_values(from->buf->layout);
    bool wider = possible > taken && fast == loop.rank - 1;
    if (wider || (taken == 1 && values > MANY && tv_replicas(from->buf->layout) == 1)) map_put(m->staged, stmt, stmt);
}

static int64_t shared_bytes(const Block *block) {
    int64_t total = 0;
    for (int i = 0; i < block->count; i++) {
        const Stmt *stmt = block->items[i];
        if (stmt->kind == STMT_GRID) total += shared_bytes(&stmt->grid.body);
        if (stmt->kind == STMT_FOR) total += shared_bytes(&stmt->loop.body);
        if (stmt->kind == STMT_DECL && stmt->decl->scope == SCOPE_SHARED) total += buf_space(stmt->decl);
    }
    return total;
}

static bool stage_fits(const Staging *m, const Stmt *copy) {
    const Region *to = copy->call.args[1].region;
    int64_t bytes = type_bytes(to->buf->type) * region_extent(to, 0) * region_extent(to, 1);
    return bytes <= shared_bytes(&m->kernel->body);
}

static void find_role_work(void *user, Stmt *stmt, const Facts *facts) {
    Staging *m = user;
    (void)facts;
    if (is_broadcast_effect(stmt)) map_put(m->effects, stmt, stmt);
}

// ---- epilogue fusion ----
//
// Arithmetic on an accumulator on its way to memory, box by box with the store.
//
// A store by TMA takes a box of the fragment at a time (lower_hopper.c), with barriers between. A loop before it that
// does its work for the whole fragment first has all that it reads in registers at once, beside the fragment: 128 by
// 128 sums and as many terms of another tensor are more than a warpgroup has. Done with each box it needs a box's
// terms.
//
//     @epilogue_subtile parallel (i in 128, j in 128) acc[i, j] += R[bm * 128 + i, bn * 128 + j];
//     @via(tma_store) copy(acc, C[bm * 128, bn * 128]);          4 times: terms of a box, sums, stmatrix, store
//
// It may be so when the loop runs over the fragment as the threads hold it, writes registers only, and does not read
// what the copy writes. Shared memory is not read: barriers for it would stand between the loop and the copy.

static bool leaves_registers(const Stmt *stmt, void *user) {
    (void)user;
    if (stmt->kind == STMT_STORE) return stmt->store.buf->scope != SCOPE_FRAGMENT;
    return stmt->kind != STMT_LET && stmt->kind != STMT_VAR && stmt->kind != STMT_ASSIGN && stmt->kind != STMT_IF &&
           stmt->kind != STMT_BLOCK;
}

static bool runs_over(Arena *arena, Stmt *stmt, const Region *from, const Buf *to) {
    TileLoop loop;
    TileAccessVec accesses = {0};
    const char *map = attr_text(stmt->attrs, ATTR_MAP);
    if (stmt->kind != STMT_FOR || stmt->loop.kind != LOOP_PARALLEL || !map || !from->buf->layout) return false;
    if (strcmp(map, layout_text(arena, from->buf->layout)) != 0 || !tile_loop_of(arena, stmt, &loop)) return false;
    if (block_any(&loop.body, leaves_registers, NULL)) return false;
    tile_accesses(arena, &loop, &accesses);
    for (int a = 0; a < accesses.count; a++) {
        const TileAccess *access = &accesses.items[a];
        if (access->is_atomic || access->buf->scope == SCOPE_SHARED || access->buf == to) return false;
    }
    return true;
}

typedef struct Marker {
    Arena *arena;
    bool changed;
} Marker;

static void mark_before(Marker *marker, const Block *block, int copy) {
    const Arg *args = block->items[copy]->call.args;
    for (int i = copy - 1; i >= 0 && runs_over(marker->arena, block->items[i], args[0].region, args[1].region->buf);
         i--) {
        if (attr_get(block->items[i]->attrs, ATTR_EPILOGUE_SUBTILE)) continue;
        attr_set_ints(marker->arena, &block->items[i]->attrs, ATTR_EPILOGUE_SUBTILE, 0, NULL);
        marker->changed = true;
    }
}

static void mark_block(Marker *marker, const Block *block) {
    for (int i = 0; i < block->count; i++) {
        Block *bodies[2];
        if (via_is(block->items[i], VIA_TMA_STORE)) mark_before(marker, block, i);
        for (int b = 0, count = stmt_bodies(block->items[i], bodies); b < count; b++) mark_block(marker, bodies[b]);
    }
}

static bool mark_epilogue_subtile(Arena *arena, const Block *body) {
    Marker marker = {arena, false};
    mark_block(&marker, body);
    return marker.changed;
}

// ---- the pass ----

static void stage_stmt(StmtMapper *mapper, Stmt *stmt, Block *out) {
    Staging *m = mapper->user;
    if (is_conversion(m->arena, stmt)) {
        const Buf *from = stmt->call.args[0].region->buf, *to = stmt->call.args[1].region->buf;
        Type narrow = type_bits(to->type) < type_bits(from->type) ? to->type : from->type;   // less to write and read
        crosses_shared(m, from->name, narrow, stmt->call.args[0].region, stmt->call.args[1].region, stmt->loc, out);
    } else if (map_has(m->staged, stmt) && stage_fits(m, stmt)) {
        const Region *to = stmt->call.args[1].region;
        crosses_shared(m, "stage", to->buf->type, stmt->call.args[0].region, stmt->call.args[1].region, stmt->loc, out);
    } else if (stmt->kind == STMT_CALL && stmt->call.op == OP_GEMM) {
        stage_gemm(m, stmt, out);
    } else if (is_reduction(stmt)) {
        stage_reduce(m, stmt, out);
    } else if (is_scan(stmt)) {
        stage_scan(m, stmt, out);
    } else if (map_has(m->effects, stmt)) {
        map_remove(m->effects, stmt);
        stage_effect(m, stmt, out);
    } else {
        block_push(mapper->arena, out, stmt);
    }
}

bool pass_stage_through_shared(PassContext *context, Func *kernel) {
    int errors = diag_errors(context->sink);   // of what came before: another choice of a file's tests
    Staging m = {.context = context, .arena = context->arena, .kernel = kernel};
    m.staged = map_new(context->arena);
    m.effects = map_new(context->arena);
    const ThreadScopeVec *scopes = kernel_scopes(context, kernel);
    for (int i = 0; i < scopes->count; i++)   // a role's registers store by themselves
        scope_walk(context->arena, kernel, &scopes->items[i], i == 0 ? find_work : find_role_work, &m);
    StmtMapper mapper = {.arena = context->arena, .stmt = stage_stmt, .user = &m};
    bool any = false;
    do {   // a reduction from shared memory needs a second round, with its source's layout
        m.changed = false;
        rewrite_block(&mapper, &kernel->body);
        if (m.changed) drop_analyses(context), pass_layout_inference(context, kernel);
        any |= m.changed;
    } while (m.changed && diag_errors(context->sink) == errors);
    return mark_epilogue_subtile(context->arena, &kernel->body) || any;
}
