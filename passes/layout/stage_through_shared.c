// stage-through-shared: declares the shared memory that lowering needs, with plain copies, so that lowering creates no
// storage, and swizzle-allocation and insert-sync see all of it.
//
//     copy(f, g) of fragments in two layouts    @via(shuffle) copy(f, g), or shared s; copy(f, s); copy(s, g)
//     gemm with an operand in the wrong place   shared s; copy(a, s); gemm(s, ...)
//     reduction across warps                    reduce_sum(v, sum, axis = 0, scratch = s): a row of s per warp
//     scan across warps                         scan_sum(v, w, axis = 0, scratch = s)
//     either from or to shared memory           fragment f; copy(s, f); reduce_sum(f, ...)
//     copy(s, f), copy(f, s)                    @via(ldmatrix), @via(stmatrix), where they move more at once
//     store of an accumulator to global memory  shared s; copy(acc, s); copy(s, C): whole 16-byte vectors per thread
//     the same by TMA, in a role                copy(acc, C, stage = s)
//     let x = atomic_add(n[0], 1) of a CTA      shared s; s[0] = atomic_add(n[0], 1); let x = s[0]: added once
//
// Work on an accumulator before a TMA store is marked (@epilogue_subtile). layout-inference runs again and gives the
// new copies their maps.
#include "ir/build.h"
#include "ir/facts.h"
#include "ir/rewrite.h"
#include "passes/analysis/kernel_walk.h"
#include "passes/analysis/tile_loop.h"
#include "passes/analysis/util.h"
#include "passes/layout/conversion_way.h"
#include "passes/layout/fragment.h"
#include "passes/layout/shared_lifetimes.h"
#include "passes/lower/lower.h"
#include "passes/pass.h"
#include "passes/select/tma.h"
#include "support/map.h"
#include <string.h>

typedef struct Staging {
    PassContext *context;
    Arena *arena;
    Func *kernel;
    Map *staged;                 // copies from a fragment to global memory that are faster staged
    Map *effects;                // lets of the CTA with the result of an effect
    SharedLifetimes lifetimes;   // before the pass
    bool changed;
} Staging;

static Region *declare(Staging *m, Scope scope, const char *name, Type type, int rank, const int64_t *shape, Span loc,
                       Block *out) {
    Buf *buf = buf_new_const(m->arena, name, scope, type, rank, shape, loc);
    if (scope == SCOPE_SHARED) attr_set_ints(m->arena, &buf->attrs, ATTR_SCRATCH, 0, NULL);
    block_push(m->arena, out, s_decl(m->arena, buf));
    m->changed = true;
    return region_whole(m->arena, buf);
}

static void push_copy(Staging *m, Region *from, Region *to, Span loc, Block *out) {
    BLOCK_CALL(m->arena, out, loc, OP_COPY, arg_region(from), arg_region(to));
}

// A buffer for the operand `region`: declared at the end of `out`.
static Region *buffer_like(Staging *m, Scope scope, const char *name, Type type, const Region *region, Span loc,
                           Block *out) {
    int64_t shape[LAYOUT_MAX_RANK];
    for (int d = 0; d < region_rank(region); d++) shape[d] = region_extent(region, d);
    return declare(m, scope, name, type, region_rank(region), shape, loc, out);
}

// from -> shared -> to, two regions of the same shape.
static void crosses_shared(Staging *m, const char *name, Type type, const Stmt *stmt, Block *out) {
    CopyOp copy = copy_of(stmt);
    Region *scratch = buffer_like(m, SCOPE_SHARED, name, type, copy.dst, stmt->loc, out);
    push_copy(m, copy.src, scratch, stmt->loc, out);
    push_copy(m, scratch, copy.dst, stmt->loc, out);
}

// ---- conversions between fragment layouts ----

// A thread that already holds the elements moves them itself, as a plain copy: always those of a part of a fragment or a
// transposed one, which layout-inference gives the layouts that the copy needs.
static bool is_conversion(Arena *arena, const Stmt *stmt) {
    if (!is_fragment_copy(stmt) || via_is(stmt, VIA_SHUFFLE)) return false;
    CopyOp copy = copy_of(stmt);
    const Layout *from = copy.src->buf->layout, *to = copy.dst->buf->layout;
    bool whole = region_is_whole(copy.src) && region_is_whole(copy.dst) && copy.src->transposed == copy.dst->transposed;
    if (!from || !to || !whole || layout_equal(from, to)) return false;
    return copy.src->transposed || !fragment_same_thread(arena, to, from, e_int(arena, 0));
}

static void stage_conversion(Staging *m, Stmt *stmt, Block *out) {
    const Buf *from = copy_of(stmt).src->buf, *to = copy_of(stmt).dst->buf;
    ConversionWay way = conversion_way(m->context, stmt);
    const Attr *instead = attr_get(stmt->attrs, ATTR_INSTEAD);
    REMARK_NOTE(m->context, stmt->loc, T_LAYOUT_CONVERSION, from->name, "from %s to %s: %s%s%s",
                layout_text(m->arena, from->layout), layout_text(m->arena, to->layout), way.text,
                instead ? "; instead " : "", instead ? instead->args[0].text : "");
    if (!way.within_warps) {
        int at = out->count;
        crosses_shared(m, from->name, conversion_type(from, to), stmt, out);
        Stmt *decl = out->items[at], *store = out->items[at + 1], *load = out->items[at + 2];
        if (way.clocks > 0) attr_set_int(m->arena, &store->attrs, ATTR_CLOCKS, way.clocks);
        if (!way.scratch) return;
        decl->decl->layout = way.scratch;
        decl->decl->stage_dims = decl->decl->rank - way.scratch->rank_in;
        if (way.by_loops) return;
        via_set(m->arena, store, way.store == SHARED_VECTORS ? VIA_LINEAR : VIA_STMATRIX);
        via_set(m->arena, load, way.load == SHARED_VECTORS ? VIA_LINEAR : VIA_LDMATRIX);
        return;
    }
    via_set(m->arena, stmt, VIA_SHUFFLE);
    attr_set_int(m->arena, &stmt->attrs, ATTR_CLOCKS, way.clocks);
    block_push(m->arena, out, stmt);
    m->changed = true;
}

// ---- gemm operands ----

static bool a_is_usable(Staging *m, const Stmt *stmt) {
    const Attr *warps = attr_get(stmt->attrs, ATTR_WARPS);
    const Buf *a = gemm_of(stmt).a->buf;
    if (!warps) return false;
    const MmaInfo *info = gemm_instruction(m->context->target, stmt);
    EXPECT(m->context->failure, info, "a gemm with @warps has no instruction");
    if (strcmp(info->a_type, type_text(a->type)) != 0) return false;
    const Layout *required =
        fragment_mma_a(m->arena, stmt, info, warps->args[0].integer, warps->args[1].integer, kernel_threads(m->kernel));
    return required && a->layout && layout_equal(a->layout, required);
}

static void operand_to_shared(Staging *m, Stmt *gemm, Arg *operand, Block *out) {
    Region *whole = region_whole(m->arena, operand->region->buf);
    Region *scratch = buffer_like(m, SCOPE_SHARED, whole->buf->name, whole->buf->type, whole, gemm->loc, out);
    push_copy(m, whole, scratch, gemm->loc, out);
    operand->region = clone_region(m->arena, NULL, operand->region);
    operand->region->buf = scratch->buf;
}

static void stage_gemm(Staging *m, Stmt *stmt, Block *out) {
    GemmOp gemm = gemm_of(stmt);
    bool by_mma = !via_is(stmt, VIA_WGMMA);   // for wgmma, layout-inference has converted the operand in registers
    if (gemm.a->buf->scope == SCOPE_FRAGMENT && by_mma && !a_is_usable(m, stmt))
        operand_to_shared(m, stmt, &ARG(stmt, GEMM, a), out);
    if (gemm.b->buf->scope == SCOPE_FRAGMENT) operand_to_shared(m, stmt, &ARG(stmt, GEMM, b), out);
    block_push(m->arena, out, stmt);
}

// ---- reductions and scans ----

// Replaces an operand in shared memory by a fragment.
static void operand_in_registers(Staging *m, Span loc, Arg *operand, Block *out) {
    const Buf *buf = operand->region->buf;
    operand->region = buffer_like(m, SCOPE_FRAGMENT, buf->name, buf->type, operand->region, loc, out);
}

// One that the source gives.
static void check_scratch(Staging *m, const Stmt *stmt, const Region *scratch, Type type, int rank,
                          const int64_t *shape) {
    bool fits = scratch->buf->type == type && scratch->count == rank && region_is_whole(scratch);
    const char *text = "";
    for (int d = 0; d < rank; d++) {
        fits = fits && buf_extent(scratch->buf, d) == shape[d];
        text = arena_printf(m->arena, "%s%s%lld", text, d ? ", " : "", (long long)shape[d]);
    }
    if (fits) return;
    const char *why = arena_printf(m->arena, "must be %s[%s]; without one the compiler adds it", type_text(type), text);
    diag(m->context->sink, stmt->loc, T_IR_OPERAND, "scratch", op_info(stmt->call.op)->text, why);
}

// Scratch for the exchange between warps: one row per partial result; in a cluster a slice per CTA, with all partials.
static void give_scratch(Staging *m, Stmt *stmt, Block *out) {
    Arg *scratch = is_scan(stmt) ? &ARG(stmt, SCAN_SUM, scratch) : &ARG(stmt, REDUCE_SUM, scratch);
    const Buf *dst = ARG(stmt, REDUCE_SUM, dst).region->buf;
    int64_t blocks = grid_blocks(func_grid(m->kernel)), rows = scratch_rows(m->arena, m->context->target, stmt);
    int64_t shape[] = {blocks, rows, 1};
    int first = blocks > 1 ? 0 : 1;
    if (rows == 0) return;
    for (int d = 0; d < dst->rank && !is_scan(stmt); d++) shape[2] *= buf_extent(dst, d);
    if (scratch->region) {
        check_scratch(m, stmt, scratch->region, type_compute(dst->type), COUNT_OF(shape) - first, shape + first);
        return;
    }
    scratch->region = declare(m, SCOPE_SHARED, "partial", type_compute(dst->type), COUNT_OF(shape) - first,
                              shape + first, stmt->loc, out);
    if (blocks == 1) return;
    scratch->region->buf->stage_dims = 1;
    attr_set_int(m->arena, &scratch->region->buf->attrs, ATTR_CTAS, blocks);
}

// Moves operands to registers and the result from registers; scratch is added when layouts are known.
static void stage_across(Staging *m, Stmt *stmt, Block *out) {
    ReduceOp reduce = {0};
    bool reduces = match_reduce(stmt, &reduce);
    Arg *src = &ARG(stmt, REDUCE_SUM, src), *dst = &ARG(stmt, REDUCE_SUM, dst);
    Region *from = src->region, *to = dst->region;
    bool loaded = from->buf->scope != SCOPE_FRAGMENT, stored = to->buf->scope != SCOPE_FRAGMENT;
    if (loaded) {
        operand_in_registers(m, stmt->loc, src, out);
        push_copy(m, from, src->region, stmt->loc, out);
    }
    if (stored) operand_in_registers(m, stmt->loc, dst, out);
    bool accumulates = reduces && reduce.accumulate && !expr_is_int(reduce.accumulate, 0);
    if (stored && accumulates) push_copy(m, to, dst->region, stmt->loc, out);
    if (!loaded && !stored) give_scratch(m, stmt, out);
    block_push(m->arena, out, stmt);
    if (stored) push_copy(m, dst->region, to, stmt->loc, out);
}

// ---- effects of the CTA with a result ----

static void stage_effect(Staging *m, Stmt *stmt, Block *out) {
    int64_t one = 1;
    Expr *value = stmt->let.value, *zero = e_int(m->arena, 0);
    Buf *result = declare(m, SCOPE_SHARED, stmt->let.var->name, value->type, 1, &one, stmt->loc, out)->buf;
    block_store1(m->arena, out, result, zero, value);
    vec_last(out)->loc = stmt->loc;
    stmt->let.value = e_load1(m->arena, result, zero);
    block_push(m->arena, out, stmt);
}

// ---- staged stores ----

static void find_effect(void *user, Stmt *stmt, const Facts *facts) {
    Staging *m = user;
    (void)facts;
    if (binds_effect(stmt)) map_put(m->effects, stmt, stmt);
}

// A staged store is faster if the global side takes wider vectors than the fragment's runs, or if a thread would test
// bounds for many single elements (registers need unrolled code; a copy from shared memory can loop).
static void find_work(void *user, Stmt *stmt, const Facts *facts) {
    enum { MANY = 32 };
    Staging *m = user;
    TileLoop loop;
    find_effect(user, stmt, facts);
    if (!is_copy_between(stmt, SCOPE_FRAGMENT, SCOPE_GLOBAL) || stmt->call.is_async) return;
    CopyOp copy = copy_of(stmt);
    const Layout *layout = copy.src->buf->layout;
    if (!region_is_whole(copy.src) || copy.src->buf->rank != 2 || copy.src->transposed || copy.dst->transposed) return;
    if (!tile_loop_of(m->arena, stmt, &loop)) return;
    TileAccessVec accesses = {0};
    tile_accesses(m->arena, &loop, &accesses);
    int fast = loop_fast_dim(&loop, &accesses);
    int64_t possible = loop_vector(facts, &loop, &accesses, fast, m->context->target);
    int64_t taken = attr_int(stmt->attrs, ATTR_VECTOR, 1);
    bool wider = possible > taken && fast == loop.rank - 1;
    if (wider || (taken == 1 && tv_values(layout) > MANY && tv_replicas(layout) == 1)) map_put(m->staged, stmt, stmt);
}

static int64_t shared_bytes(const Block *block) {
    int64_t total = 0;
    FOR_EACH_STMT (stmt, block)
        if (stmt->kind == STMT_DECL && stmt->decl->scope == SCOPE_SHARED && !stmt->decl->alias_of)
            total += buf_space(stmt->decl);
    return total;
}

// The stage is no larger than the kernel's input tiles, whose memory is mostly free by then. Where it is not, as in a
// loop, there is memory for both.
static bool stage_fits(const Staging *m, const Stmt *store) {
    const Region *to = copy_of(store).dst;
    EXPECT(m->context->failure, region_rank(to) == 2, "a staged store of rank %d", region_rank(to));
    int64_t bytes = type_bytes(to->buf->type) * region_extent(to, 0) * region_extent(to, 1);
    return bytes <= shared_bytes(&m->kernel->body) &&
           shared_live_bytes(&m->lifetimes, store) + bytes <= m->context->target->shared_block;
}

// ---- stores by TMA of roles written by hand ----
//
// The stores of a role share a buffer of TMA_STORE_SLOTS boxes. A store begins when the one before has landed, so that
// they land in the order of the text. (@via(vector_store) is staged alike.)

static bool is_unstaged(const Stmt *stmt) {
    return stores_staged(stmt) && !copy_of(stmt).stage && !copy_of(stmt).tail;
}

static Region *store_stage(Staging *m, const Stmt *copy, const TmaStore *store, Block *body) {
    Type type = copy_of(copy).dst->buf->type;
    int64_t whole[] = {TMA_STORE_SLOTS, store->slot[0], store->slot[1]}, tail[] = {store->rows, store->tail_columns};
    int rank = store->chunks ? 3 : 2;
    const int64_t *shape = store->chunks ? whole : tail;
    FOR_EACH_ITEM (stmt, body) {
        Buf *buf = stmt->kind == STMT_DECL ? stmt->decl : NULL;
        bool same = buf && buf->stage_dims == rank - 2 && buf->type == type && strcmp(buf->name, "stage") == 0;
        for (int d = buf ? buf->stage_dims : 0; same && d < rank; d++) same = buf_extent(buf, d) == shape[d];
        if (same) return region_whole(m->arena, buf);
    }
    Buf *buf = buf_new_const(m->arena, "stage", SCOPE_SHARED, type, rank, shape, copy->loc);
    buf->stage_dims = rank - 2;
    block_insert(m->arena, body, 0, s_decl(m->arena, buf));
    return region_whole(m->arena, buf);
}

// Before the loops that may run a box at a time with the store.
static void stage_store(Staging *m, Stmt *copy, Block *block, Block *body) {
    TmaStore store;
    if (tma_epilogue_problem(m->context->target, copy, &store)) return;
    Arg stage = arg_region(store_stage(m, copy, &store, body));
    call_set_arg(m->arena, copy, store.chunks ? OPERAND_INDEX(COPY, stage) : OPERAND_INDEX(COPY, tail), stage);
    Block wait = {0};
    if (via_is(copy, VIA_TMA_STORE))
        BLOCK_CALL(m->arena, &wait, copy->loc, OP_BULK_WAIT, arg_int(m->arena, 0), (Arg){0});
    block_barrier(m->arena, &wait, copy->loc);
    int at = 0;
    while (block->items[at] != copy) at++;
    while (at > 0 && is_loop(block->items[at - 1], LOOP_PARALLEL)) at--;
    FOR_EACH_ITEM (stmt, &wait) block_insert(m->arena, block, at++, stmt);
}

static bool stage_role_stores(Staging *m, Stmt *role) {
    VEC(Stmt *) stores = {0};
    VEC(Block *) blocks = {0};
    FOR_EACH_STMT_MUT (stmt, &role->role.body) {
        if (!is_unstaged(stmt)) continue;
        vec_push(m->arena, &stores, stmt);
        vec_push(m->arena, &blocks, (Block *)BLOCK_OF(stmt));
    }
    for (int i = 0; i < stores.count; i++) stage_store(m, stores.items[i], blocks.items[i], &role->role.body);
    if (stores.count) push_last_store_wait(m->arena, role->loc, &role->role.body);
    return stores.count > 0;
}

// ---- epilogue fusion ----
//
// Fuses arithmetic on an accumulator with its TMA store, one epilogue sub-tile at a time.
//
// A TMA store takes a box of the fragment at a time (lower_hopper.c), with barriers between. A separate loop before it
// would hold all its inputs in registers in addition to the fragment: 128 by 128 sums and as many terms of another
// tensor are more than a warpgroup has. Fused with each box, it needs the inputs of one box.
//     @epilogue_subtile parallel (i in 128, j in 128) acc[i, j] += R[bm * 128 + i, bn * 128 + j];
//     @via(tma_store) copy(acc, C[bm * 128, bn * 128]);          4 times: terms of a box, sums, stmatrix, store
//
// Legal if the loop runs over the fragment in the order of its registers, writes registers only, and does not read what
// the copy writes. It must not read shared memory: barriers for that would separate the loop from the copy.

static bool leaves_registers(const Stmt *stmt, void *user) {
    (void)user;
    if (stmt->kind == STMT_STORE) return stmt->store.buf->scope != SCOPE_FRAGMENT;
    return stmt->kind != STMT_LET && stmt->kind != STMT_VAR && stmt->kind != STMT_ASSIGN && stmt->kind != STMT_IF &&
           stmt->kind != STMT_BLOCK;
}

static bool runs_over(Arena *arena, Stmt *stmt, const Region *from, const Buf *to) {
    TileLoop loop;
    TileAccessVec accesses = {0};
    const Layout *map = stmt_layout(stmt);
    if (!is_loop(stmt, LOOP_PARALLEL) || !map || !from->buf->layout || !region_is_whole(from)) return false;
    if (!layout_equal(map, from->buf->layout) || !tile_loop_of(arena, stmt, &loop)) return false;
    if (block_any(&loop.body, leaves_registers, NULL)) return false;
    tile_accesses(arena, &loop, &accesses);
    VEC_EACH (const TileAccess, access, &accesses)
        if (access->is_atomic || access->buf->scope == SCOPE_SHARED || access->buf == to) return false;
    return true;
}

static bool mark_before(Arena *arena, const Block *block, int at) {
    CopyOp copy = copy_of(block->items[at]);
    bool changed = false;
    for (int i = at - 1; i >= 0; i--) {
        if (is_stable_let(block->items[i])) continue;   // the loops come after it
        if (!runs_over(arena, block->items[i], copy.src, copy.dst->buf)) break;
        if (attr_get(block->items[i]->attrs, ATTR_EPILOGUE_SUBTILE)) continue;
        attr_set_ints(arena, &block->items[i]->attrs, ATTR_EPILOGUE_SUBTILE, 0, NULL);
        changed = true;
    }
    return changed;
}

static bool mark_epilogue_subtile(Arena *arena, const Block *body) {
    bool changed = false;
    FOR_EACH_STMT (stmt, body)
        if (stores_staged(stmt)) changed |= mark_before(arena, BLOCK_OF(stmt), INDEX_OF(stmt));
    return changed;
}

// ---- matrix instructions ----

// One instruction moves more of the fragment than the vectors of a thread.
static bool mark_matrix_copies(PassContext *context, Func *kernel) {
    bool changed = false;
    FOR_EACH_STMT_MUT (stmt, &kernel->body) {
        MatrixCopy matrices;
        if (moves_by_warps(stmt) || !matrix_copy_of(context->target, stmt, &matrices)) continue;
        if (matrices.word * matrices.matrices <= attr_int(stmt->attrs, ATTR_VECTOR, 1)) continue;
        via_set(context->arena, stmt, matrices.load ? VIA_LDMATRIX : VIA_STMATRIX);
        changed = true;
    }
    return changed;
}

// ---- the pass ----

static void stage_stmt(StmtMapper *mapper, Stmt *stmt, Block *out) {
    Staging *m = mapper->user;
    if (is_conversion(m->arena, stmt)) {
        stage_conversion(m, stmt, out);
    } else if (map_has(m->staged, stmt) && stage_fits(m, stmt)) {
        crosses_shared(m, "stage", copy_of(stmt).dst->buf->type, stmt, out);
    } else if (is_call(stmt, OP_GEMM)) {
        stage_gemm(m, stmt, out);
    } else if (is_reduction(stmt) || is_scan(stmt)) {
        stage_across(m, stmt, out);
    } else if (map_has(m->effects, stmt)) {
        map_remove(m->effects, stmt);
        stage_effect(m, stmt, out);
    } else {
        block_push(mapper->arena, out, stmt);
    }
}

bool pass_stage_through_shared(PassContext *context, Func *kernel) {
    int errors = diag_errors(context->sink);   // of earlier passes: another combination of a file's tests
    Staging m = {.context = context, .arena = context->arena, .kernel = kernel};
    bool any = false;
    FOR_EACH_STMT_MUT (stmt, &kernel->body) {
        if (stmt->kind != STMT_ROLE) continue;
        any |= stage_role_stores(&m, stmt);
        SKIP_BODY(stmt);
    }
    m.lifetimes = shared_lifetimes(context->arena, kernel);
    m.staged = map_new(context->arena);
    m.effects = map_new(context->arena);
    ThreadScopeVec scopes = thread_scopes(context->arena, kernel);
    for (int i = 0; i < scopes.count; i++)   // the registers of a role are stored by TMA
        scope_walk(context->arena, kernel, &scopes.items[i], i == 0 ? find_work : find_effect, &m);
    StmtMapper mapper = {.arena = context->arena, .stmt = stage_stmt, .user = &m};
    do {   // a reduction from shared memory needs a second round, with its source's layout
        m.changed = false;
        rewrite_block(&mapper, &kernel->body);
        if (m.changed) pass_layout_inference(context, kernel);
        any |= m.changed;
    } while (m.changed && diag_errors(context->sink) == errors);
    any |= mark_matrix_copies(context, kernel);
    return mark_epilogue_subtile(context->arena, &kernel->body) || any;
}
