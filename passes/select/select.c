// select: chooses the mechanism of each copy and gemm, and the facts that it needs.
//
// In: tile-stage kernels. Out: the same with `@via` on copies and gemms, as variants with and without facts (`when`).
//
//     select.c       the pass
//     tma.h          legality and layouts of TMA copies and wgmma     tma_simple.h   TMA without warp specialization
//     tma_reduce.h   TMA reduce                                       bulk.h         bulk copies
//
// Two decisions for every tile loop (tile_loop.h: copies and parallel loops in one form). First, which facts make its
// global accesses wide? A tile that is contiguous along the loop's fast dim, with an extent that a vector divides,
// needs
//
//     aligned(A, 16)        the base address
//     K % 8 == 0            each stride of another dim: every row starts on a vector
//     K < 2147483648        every dynamic dim: indices fit 32 bits
//
// Facts that are not yet proven become the `when` of the kernel, and a clone without them follows, `@fallback`. So one
// artefact serves every shape, and a kernel that needs no facts has one variant. (Between the two of a kernel with roles stands one
// with the facts of its loads alone: "rows that start anywhere".) Of several tiles those with
// @with_fallback (or the last one) have such a clone, behind all tiles; a launch compares the clones by costs of their own.
// Second, what is the widest access that is provably aligned under the facts of each variant (loop_vector)?
//
//     @via(tma)        global to shared by TMA, and @via(wgmma): in kernels that warp-specialize will specialize
//     @via(wgmma)      in others, none of whose loops loads tiles: nothing could be loaded ahead, and roles would leave fewer
//                      CTAs on a multiprocessor. (Where a loop loads, mma.sync has fragments ahead.)
//     @via(tma)        in other kernels: tiles to and from shared memory, where possible and faster (tma_simple.c)
//     @via(tma)        TMA reduce: additions of a tile to a tensor, where possible and faster (tma_reduce.h)
//     @via(tma_store)  the epilogue of a warp-specialized kernel: accumulators to global via shared memory and TMA
//     @via(transpose)  transposition of a tile of bytes in shared memory, in a warp-specialized kernel
//     @via(cp_async)   global to shared, one type, whole vectors or zeros (`condition ? x[..] : 0`), 4, 8 or 16 bytes
//                      each. Asynchronous: in a pipelined loop at any of these widths, elsewhere at 16
//     @via(vector)     several elements per access, through registers
//     @via(shifted)    the same where rows of a tensor start anywhere: two aligned vectors, shifted
//     @via(plain)      element by element
//
// A parallel loop whose body is one such store is a gather and gets its @via like a copy. A gemm goes to the tensor
// cores (`mma`) when the target has an instruction for its types and the tile divides over the warps, else it is
// computed by FMAs (`fma`). Whether a copy is asynchronous is decided here, before pipelining; in all measurements it
// was faster.
#include "ir/channels.h"
#include "ir/schedule.h"
#include "passes/analysis/kernel_walk.h"
#include "passes/cost/cost.h"
#include "passes/pipeline/async_copy_legality.h"
#include "passes/select/bulk.h"
#include "passes/select/tma.h"
#include "passes/select/tma_reduce.h"
#include "passes/select/tma_simple.h"
#include "passes/specialize/warp_specialize.h"
#include <string.h>

typedef struct Selector {
    PassContext *context;
    Arena *arena;
    const Target *target;
    Func *kernel;
    ExprVec wanted;     // facts that are not proven
    Map *pipelined;     // statements within a pipelined loop of several stages -> the loop
    bool fallback;      // the variant without facts: gives no remarks about them
    bool specialized;   // its loop will be warp-specialized, with TMA and wgmma
    bool channels;      // it has channels, so that its roles take wgmma and TMA
    bool whole;         // its CTAs multiply by wgmma without roles
    bool multiplies;    // by wgmma: this pass ran, or a person wrote it
    bool boxes;         // it has tensor maps
    bool changed;
    const KernelUses *uses;   // NULL: not asked for yet
} Selector;

// A tile loop with its accesses.
typedef struct Candidate {
    TileLoop loop;
    TileAccessVec accesses;
    int fast;
} Candidate;

static bool candidate_of(Selector *s, Stmt *stmt, Candidate *candidate) {
    *candidate = (Candidate){0};
    if (!tile_loop_of(s->arena, stmt, &candidate->loop) || candidate->loop.rank == 0) return false;
    tile_accesses(s->arena, &candidate->loop, &candidate->accesses);
    candidate->fast = loop_fast_dim(&candidate->loop, &candidate->accesses);
    return true;
}

static bool is_unit(const Candidate *c, const TileAccess *access) {
    return run_stride(access, c->loop.iters[c->fast]) == STRIDE_UNIT;
}

static void find_pipelined(Selector *s, const Block *block, Stmt *around) {
    FOR_EACH_ITEM (stmt, block) {
        Stmt *loop = is_loop(stmt, LOOP_PIPELINED) ? (loop_stages(stmt) > 1 ? stmt : NULL) : around;
        if (loop) map_put(s->pipelined, stmt, loop);
        FOR_EACH_BODY (body, stmt) find_pipelined(s, body, loop);
    }
}

// ---- facts ----

static bool is_conjunct(const Expr *condition, const Expr *fact) {
    if (!condition) return false;
    if (condition->kind == EXPR_BINARY && condition->binary.op == BIN_LOGICAL_AND)
        return is_conjunct(condition->binary.a, fact) || is_conjunct(condition->binary.b, fact);
    return expr_equal(condition, fact);
}

static void want(Selector *s, Expr *fact) {
    VEC_EACH_PTR (Expr, wanted, &s->wanted)
        if (expr_equal(wanted, fact)) return;
    if (!is_conjunct(s->kernel->when, fact)) vec_push(s->arena, &s->wanted, fact);
}

static void want_aligned(Selector *s, const Facts *facts, Buf *buf, int64_t bytes) {
    if (!prove_aligned(facts, buf, bytes)) want(s, aligned_fact(s->arena, buf, bytes));
}

static void want_multiple(Selector *s, Expr *value, int64_t factor) {
    want(s, e_eq(s->arena, e_rem(s->arena, value, factor), e_int(s->arena, 0)));
}

// The vector width that extents and first indices allow, if bases and rows were aligned.
static int64_t possible_vector(Selector *s, const Facts *facts, const Candidate *c) {
    int widest = 1;
    int64_t common = c->loop.extents[c->fast];   // its trailing zeros are the common alignment
    VEC_EACH (const TileAccess, access, &c->accesses) {
        if (!is_memory(access->buf) || !is_unit(c, access)) continue;
        int bytes = type_bytes(access->buf->type);
        if (bytes > widest) widest = bytes;
        if (starts_on_vector(facts, access, c->loop.iters[c->fast], s->target->vector_bytes / bytes)) continue;
        Expr *start = simplify_expr(s->arena, facts, run_start(s->arena, access, c->loop.iters[c->fast]));
        common |= multiple_of(facts, start);
    }
    const char *why;
    int64_t vector = s->target->vector_bytes / widest,
            atomics = loop_atomics(&c->loop, &c->accesses, c->fast, s->target, &why);
    vector = vector < atomics ? vector : atomics;
    while (vector > 1 && common % vector != 0) vector /= 2;
    return vector;
}

static void want_access(Selector *s, const Facts *facts, const TileAccess *access, Var *iter, int64_t vector) {
    Buf *buf = access->buf;
    want_aligned(s, facts, buf, s->target->vector_bytes);
    if (starts_on_vector(facts, access, iter, vector)) return;
    for (int d = 0; d < buf->rank - 1; d++) {
        Expr *stride = simplify_expr(s->arena, facts, global_stride(s->arena, buf, d));
        Expr *offset = simplify_expr(s->arena, facts, e_mul(s->arena, access->indices[d], stride));
        if (multiple_of(facts, stride) % vector == 0 || multiple_of(facts, offset) % vector == 0) continue;
        // (dense: every outer stride is a multiple of the last extent)
        want_multiple(s, buf->strides ? stride : buf->shape[buf->rank - 1], vector);
    }
}

// Next to products by wgmma, those to be and those of an earlier run of this pass: a thread has one element at most, so
// vectors are not worth a fact. (What waits in slots is loaded by cp.async, whose elements are vectors.)
static bool is_small(const Selector *s, const Stmt *stmt, const TileLoop *loop) {
    int64_t elements = 1;
    if (!s->specialized && !s->whole && !s->multiplies) return false;
    for (int d = 0; d < loop->rank; d++) elements *= loop->extents[d];
    return elements <= kernel_threads(s->kernel) && !loaded_tile(stmt);
}

static void want_stmt(void *user, Stmt *stmt, const Facts *facts) {
    Selector *s = user;
    Candidate c;
    if (!candidate_of(s, stmt, &c) || is_small(s, stmt, &c.loop)) return;
    int64_t vector = possible_vector(s, facts, &c);
    if (vector <= 1) return;
    VEC_EACH (const TileAccess, access, &c.accesses)
        if (access->buf->scope == SCOPE_GLOBAL && (!access->is_atomic || access->adds) && is_unit(&c, access))
            want_access(s, facts, access, c.loop.iters[c.fast], vector);
}

// ---- TMA and wgmma ----

// (An index without an upper bound may wrap.)
#define STARTS_ANYWHERE                                                                                                \
    "it may start before the begin of its tensor: `assume` bounds of its index, as in `assume(n >= 0 && n < 1 << 31)`"

static bool stores_by_tma(Selector *s, const Stmt *stmt) {
    TmaStore store;
    const char *why;
    if (via_of(stmt) != VIA_NONE && !via_is(stmt, VIA_TMA_STORE)) return false;
    bool stores = stores_tile(s->arena, s->target, s->kernel, stmt, &store, &why);
    bool made =
        attr_get(s->kernel->attrs, ATTR_GIVEN_FACTS) != NULL;   // for rows, or sums, that are no results of the source
    if (why && !made) REMARK(s->context, stmt->loc, T_STORED_BY_THREADS, why);
    return stores;
}

static void want_units(Selector *s, const Facts *facts, const Buf *tensor, Expr *extent) {
    int64_t elements = tma_unit_elements(tensor);
    if (multiple_of(facts, extent) % elements != 0) want_multiple(s, extent, elements);
}

// Requirements of a tensor map: an aligned base, rows that start on a unit, and for `boxes` no empty dim. (CUDA driver
// API, cuTensorMapEncodeTiled.) TMA writes whole units, so rows that it writes end on one too.
static void want_fact(Selector *s, const Facts *facts, Expr *fact) {
    if (!prove(facts, fact)) want(s, fact);
}

// An im2col map exists where its windows' last places are within what it can say.
static void want_corners(Selector *s, const Facts *facts, const Buf *view) {
    int64_t low, high;
    tensor_map_corner_range(view, &low, &high);
    for (int i = 0; i < view->im2col->count; i++) {
        Expr *corner = tensor_map_corner(s->arena, view, i);
        want_fact(s, facts, e_ge(s->arena, corner, e_int(s->arena, low)));
        want_fact(s, facts, e_binary(s->arena, BIN_LE, corner, e_int(s->arena, high)));
        want_fact(s, facts, e_lt(s->arena, e_int(s->arena, 0), view->im2col->windows[i].positions));
    }
}

static Expr *below_limit(Selector *s, Expr *extent) {
    return e_lt(s->arena, extent, e_int(s->arena, INT64_C(1) << 31));
}

// A start beyond all coordinates becomes the last one that is a unit, which no row reaches. (Rows of dense tensors are whole units.)
static void want_short_rows(Selector *s, const Facts *facts, const Buf *tensor) {
    int64_t most = (INT64_C(1) << 31) - tma_unit_elements(tensor);
    Expr *extent = tensor->shape[tensor->rank - 1];
    if (tensor->strides && range_of(facts, extent).high > most)
        want_fact(s, facts, e_binary(s->arena, BIN_LE, extent, e_int(s->arena, most)));
}

// Coordinates reach every element. (Dims are small anyway: want_small_dims.)
static void want_reach(Selector *s, Expr *extent) {
    Facts *facts = facts_new(s->arena, s->kernel);
    for (int i = 0; i < s->kernel->dims.count; i++)
        facts_assume(facts, below_limit(s, e_var(s->arena, s->kernel->dims.items[i])), true);
    want_fact(s, facts, below_limit(s, extent));
}

// Rows of boxes begin at units.
static void want_start(Selector *s, const Facts *facts, const Region *region) {
    ExprVec multiples = {0};
    if (!tma_start_known(facts, region, &multiples)) return;
    VEC_EACH_PTR (Expr, value, &multiples) want_multiple(s, value, tma_unit_elements(region->buf));
}

static void want_map(Selector *s, const Facts *facts, const Region *region, bool boxes, bool writes) {
    Buf *buf = region->buf, *tensor = buf_viewed(buf);
    if (boxes) want_start(s, facts, region);
    s->boxes |= boxes;
    for (int d = 0; boxes && d < tensor->rank; d++) want_reach(s, tensor->shape[d]);
    if (boxes) want_short_rows(s, facts, tensor);
    if (boxes && buf->im2col && im2col_is_merged(buf)) want_reach(s, buf->shape[0]);
    if (buf->im2col && !im2col_is_merged(buf)) want_corners(s, facts, buf);
    want_aligned(s, facts, tensor, tma_facts.unit_bytes);
    for (int d = 0; boxes && d < tensor->rank; d++) {
        want_fact(s, facts, e_lt(s->arena, e_int(s->arena, 0), tensor->shape[d]));
    }
    for (int d = 0; d < tensor->rank - 1; d++)
        want_units(s, facts, tensor,
                   tensor->strides ? global_stride(s->arena, tensor, d) : tensor->shape[tensor->rank - 1]);
    if (boxes && writes) want_units(s, facts, tensor, tensor->shape[tensor->rank - 1]);
}

// ---- TMA without warp specialization ----

static bool begins_inside(const Facts *facts, const Region *to) {
    for (int d = 0; d < to->count; d++)
        if (range_of(facts, to->dims[d].start).low < 0) return false;
    return true;
}

static const KernelUses *uses_in(Selector *s) {
    if (!s->uses) s->uses = kernel_uses_new(s->arena, s->target, s->kernel);
    return s->uses;
}

static bool is_operand(const Selector *s, const Buf *tile) {
    FOR_EACH_STMT (stmt, &s->kernel->body) {
        GemmOp gemm;
        if (match_gemm(stmt, &gemm) && (gemm.a->buf == tile || gemm.b->buf == tile)) return true;
    }
    return false;
}

// Whether the CTA copies by TMA, because of `@via(tma)` in the source or because it is faster; `say`: remark why not.
static bool copies_by_tma(Selector *s, const Stmt *stmt, const Facts *facts, bool say) {
    bool away = is_shared_to_global_copy(stmt), asked = via_is(stmt, VIA_TMA);
    asked |= s->whole && !away && is_global_to_shared_copy(stmt) && is_operand(s, copy_of(stmt).dst->buf);
    if (s->specialized || s->fallback || !target_has(s->target, FEATURE_TMA) ||
        (!away && !is_global_to_shared_copy(stmt)))
        return false;
    const Stmt *loop = map_get(s->pipelined, stmt);
    bool costs = !asked && tma_simple_cost(s->target, s->kernel, stmt, loop);
    if (costs && !s->context->remarks) return false;   // the problem is a walk of the kernel, for each copy
    const char *why = tma_simple_problem(s->arena, s->target, uses_in(s), stmt, loop);
    if (away && !why && !begins_inside(facts, copy_of(stmt).dst)) why = STARTS_ANYWHERE;
    if (!why && !asked) why = tma_simple_cost(s->target, s->kernel, stmt, loop);
    if (why && say) REMARK(s->context, stmt->loc, T_NOT_BY_TMA, why);
    return !why;
}

// The same in a kernel that will be warp-specialized, whose producer loads and whose consumers store accumulators.
static bool role_copies_by_tma(Selector *s, const Stmt *stmt) {
    const char *why =
        is_shared_to_global_copy(stmt)
            ? "a warp-specialized kernel stores fragments by TMA: copy one to the tensor, or write `@no_specialize`"
            : tma_piece_problem(s->target, stmt);
    if (why) REMARK(s->context, stmt->loc, T_NOT_BY_TMA, why);
    return !why;
}

// Whether bulk copies are used, because of `@via(bulk)` in the source only: cp.async is as fast in all measurements
// (docs/notebook/performance.md, "Rows").
static bool copies_by_bulk(Selector *s, const Stmt *stmt, const Facts *facts, bool say) {
    if (!by_bulk(stmt) || s->fallback || (!is_shared_to_global_copy(stmt) && !is_global_to_shared_copy(stmt)))
        return false;
    const char *why =
        s->specialized ? "the producer of a warp-specialized kernel loads boxes: write `@no_specialize`"
                       : block_bulk_problem(s->arena, s->target, uses_in(s), facts, stmt, map_get(s->pipelined, stmt));
    if (why && say) REMARK(s->context, stmt->loc, T_NOT_BY_TMA, why);
    return !why;
}

// Whether TMA adds the tile to the tensor, by the same rules.
static bool adds_by_tma(Selector *s, const Stmt *stmt, const Facts *facts, bool say, TmaReduce *tile) {
    if (s->fallback || !target_has(s->target, FEATURE_TMA) || !is_addition(stmt)) return false;
    const char *why = tma_reduce_problem(s->arena, stmt, tile);
    bool costs = !why && !via_is(stmt, VIA_TMA) && tma_reduce_cost(s->target, s->kernel, tile);
    if (costs && !s->context->remarks) return false;   // as for copies
    if (!why) why = tma_reduce_target_problem(s->target, s->kernel, uses_in(s), tile);
    if (!why && !tma_start_serves(s->kernel, facts, copy_of(tile->copy).dst)) why = TMA_ANYWHERE;
    if (!why && !begins_inside(facts, copy_of(tile->copy).dst)) why = STARTS_ANYWHERE;
    if (!why && !via_is(stmt, VIA_TMA)) why = tma_reduce_cost(s->target, s->kernel, tile);
    if (why && say) REMARK(s->context, stmt->loc, T_NOT_ADDED, why);
    return !why;
}

// ---- products of roles written by hand, and their stores ----

// *first: the number of its first thread among those of the roles around it.
static const Stmt *role_of(const Func *kernel, const Stmt *stmt, int64_t *first) {
    FOR_EACH_STMT (role, &kernel->body) {
        if (role->kind != STMT_ROLE || !stmt_contains(role, stmt)) continue;
        const Block *block = BLOCK_OF(role);
        *first = 0;
        for (int i = INDEX_OF(role) - 1; i >= 0 && block->items[i]->kind == STMT_ROLE; i--)
            *first += role_span(block->items[i]);
        return role;
    }
    return NULL;
}

// It is ready for the asynchronous proxy: a channel says when it is full.
static bool is_handed(const Region *operand) {
    return operand->buf->scope == SCOPE_FRAGMENT || operand->buf->channel;
}

// By wgmma where the role is whole warpgroups and the operands are slots that it has received.
static bool role_wgmma(Selector *s, const Stmt *stmt) {
    int64_t first, group = target_warpgroup(s->target);
    const Stmt *role = s->channels ? role_of(s->kernel, stmt, &first) : NULL;
    GemmOp gemm = gemm_of(stmt);
    WgmmaInfo info;
    if (s->fallback || !role || stmt->call.is_async || !is_handed(gemm.a) || !is_handed(gemm.b)) return false;
    const char *why = wgmma_reason(s->arena, s->target, stmt, &info);
    if (why && !info.n) return false;   // no instruction
    if (!why && (role->role.threads % group || first % group))
        why = "the role is not whole warpgroups: give it a multiple of 128 threads, behind roles of such sizes only";
    if (why) {
        REMARK(s->context, stmt->loc, T_ROLE_NO_WGMMA, role->role.name, why);
        return false;
    }
    WgmmaSplit split;
    return wgmma_split(s->arena, s->target, stmt, role->role.threads / group, &info, &split);
}

// ---- products of CTAs without roles ----

// By all warpgroups of the CTA. (Of tf32 only TMA rounds what it copies.)
static bool whole_wgmma(const Selector *s, const Stmt *gemm) {
    WgmmaInfo info;
    WgmmaSplit split;
    int64_t threads = kernel_threads(s->kernel), group = target_warpgroup(s->target);
    if (gemm->call.is_async || wgmma_problem(s->arena, s->target, gemm, &info)) return false;
    if (strcmp(gemm_type(gemm, 0), "tf32") == 0 || threads % group) return false;
    return wgmma_split(s->arena, s->target, gemm, threads / group, &info, &split);
}

static bool multiplies_whole(const Selector *s) {
    const Stmt *grid = func_grid(s->kernel);
    int products = 0;
    if (s->fallback || s->specialized || s->channels || !grid || grid_blocks(grid) > 1) return false;
    FOR_EACH_STMT (stmt, &grid->grid.body) {
        if (stmt->kind == STMT_ROLE || stmt->kind == STMT_THREAD) return false;
        if (!is_call(stmt, OP_GEMM)) continue;
        if (!whole_wgmma(s, stmt)) return false;
        products++;
    }
    return products > 0 && !loads_in_loop(&grid->grid.body) && whole_registers_fit(s->arena, s->target, s->kernel);
}

static bool is_role_accumulator(Selector *s, const Stmt *role, const Buf *fragment) {
    FOR_EACH_STMT (stmt, &role->role.body)
        if (is_call(stmt, OP_GEMM) && gemm_of(stmt).acc->buf == fragment && role_wgmma(s, stmt)) return true;
    return false;
}

// Nothing but stores of accumulators touches the tensor: what TMA writes lands in no order with other accesses.
static bool is_only_stored(Selector *s, const Buf *tensor) {
    FOR_EACH_STMT (stmt, &s->kernel->body) {
        Stmt alone = stmt_alone(stmt);
        int64_t first;
        const Stmt *role = stmt_touches(s->arena, &alone, tensor) ? role_of(s->kernel, stmt, &first) : NULL;
        bool touches = stmt->kind != STMT_ROLE && stmt_touches(s->arena, &alone, tensor);
        if (!touches) continue;
        if (!role || !is_fragment_to_global_copy(stmt) || !is_role_accumulator(s, role, copy_of(stmt).src->buf))
            return false;
    }
    return true;
}

// By TMA what wgmma has computed in a role.
static bool role_stores(Selector *s, const Stmt *stmt, const Facts *facts, bool say) {
    int64_t first;
    const Stmt *role = s->channels && is_fragment_to_global_copy(stmt) ? role_of(s->kernel, stmt, &first) : NULL;
    if (s->fallback || !role || !is_role_accumulator(s, role, copy_of(stmt).src->buf)) return false;
    TmaStore store;
    const char *why = tma_epilogue_problem(s->target, stmt, &store);
    if (!why && role->role.threads != target_warpgroup(s->target)) why = "its role is not one warpgroup";
    if (!why && !begins_inside(facts, copy_of(stmt).dst)) why = STARTS_ANYWHERE;
    if (!why && !is_only_stored(s, copy_of(stmt).dst->buf)) why = "its tensor has other uses";
    if (why && say) REMARK(s->context, stmt->loc, T_STORED_BY_THREADS, why);
    return !why;
}

static void want_map_stmt(void *user, Stmt *stmt, const Facts *facts) {
    Selector *s = user;
    TmaReduce tile;
    if (adds_by_tma(s, stmt, facts, false, &tile)) want_map(s, facts, copy_of(tile.copy).dst, true, true);
    bool line = copies_by_bulk(s, stmt, facts, false);
    bool loads = is_global_to_shared_copy(stmt) && !tma_piece_problem(s->target, stmt);
    bool box = s->specialized ? loads || stores_by_tma(s, stmt)
                              : copies_by_tma(s, stmt, facts, false) || role_stores(s, stmt, facts, false);
    if (line || box) want_map(s, facts, copy_tensor(stmt), !line, !is_global_to_shared_copy(stmt));
}

static void want_small_dims(Selector *s) {
    Facts *facts = facts_new(s->arena, s->kernel);
    for (int i = 0; i < s->kernel->dims.count; i++)
        want_fact(s, facts, below_limit(s, e_var(s->arena, s->kernel->dims.items[i])));
}

// ---- mechanisms ----

static void set_via(Selector *s, Stmt *stmt, Via via) {
    via_set(s->arena, stmt, via);
    s->changed = true;
}

// Both sides move along the fast dim, in whole vectors. (`vector` alone also holds for the index loads of a gather.)
static bool is_contiguous_move(const Candidate *c, const Expr *load) {
    const Stmt *store = c->loop.body.items[0];
    VEC_EACH (const TileAccess, access, &c->accesses) {
        bool end = access->store == store || access->load == load;
        if (end && !access_in_runs(&c->loop, access, c->fast)) return false;
    }
    return true;
}

static bool moves_along(const Candidate *c, const TileAccess *access) {
    for (int d = 0; d < c->loop.rank; d++)
        if (d != c->fast && access_stride(access, c->loop.iters[d]) == STRIDE_UNIT) return true;
    return false;
}

// Why no cp.async moves its elements: they are not together on both sides, or not in aligned groups.
static const char *cp_async_problem(Selector *s, const Candidate *c, const Expr *load) {
    const Stmt *store = c->loop.body.items[0];
    int64_t bytes = c->loop.extents[c->fast] * type_bytes(store->store.buf->type);
    VEC_EACH (const TileAccess, access, &c->accesses) {
        bool end = access->store == store || access->load == load;
        if (!end || access_in_runs(&c->loop, access, c->fast)) continue;
        TileAccess always = *access;
        always.condition = NULL;
        if (access_in_runs(&c->loop, &always, c->fast))
            return "its condition may change within a vector: `assume` that its bound is a multiple of one, as in "
                   "`assume(C % 8 == 0)`";
        if (access->load && tma_tensor_problem(access->buf))
            return "no stride of its tensor is the constant 1: declare one so";
        if (moves_along(c, access))
            return "its tile and its tensor are contiguous along different dims: copy the tile as it is in memory, and use "
                   "it with `.T`";
        return "its elements are not next to each other in memory";
    }
    if (bytes % 4)
        return arena_printf(s->arena,
                            "its rows have %lld bytes: give them a multiple of 4, as cp.async takes 4, 8 or 16",
                            (long long)bytes);
    return "cp.async takes 4, 8 or 16 aligned bytes, and its rows are not known to begin at such: `assume` that the index at "
           "which they begin is a multiple, as in `assume(first % 8 == 0)`";
}

static void say_converted(Selector *s, const Stmt *stmt, Via slow) {
    CopyOp copy;
    if (s->fallback || !map_has(s->pipelined, stmt) || !is_global_to_shared_copy(stmt) || !match_copy(stmt, &copy))
        return;
    Type from = copy.src->buf->type, to = copy.dst->buf->type;
    if (from == to) return;
    REMARK(s->context, stmt->loc, T_COPY_SLOW, via_text(slow),
           arena_printf(s->arena,
                        "it converts from %s to %s: copy to a tile of %s, and convert what is read from there",
                        type_text(from), type_text(to), type_text(from)));
}

static Via move_mechanism(Selector *s, const Facts *facts, Stmt *stmt, const Candidate *c) {
    int64_t vector = loop_vector(facts, &c->loop, &c->accesses, c->fast, s->target);
    Via slow = vector > 1 ? VIA_VECTOR : VIA_PLAIN;
    const Expr *load = tile_move(s->arena, &c->loop);
    if (!target_has(s->target, FEATURE_CP_ASYNC)) return slow;
    if (!load) {
        say_converted(s, stmt, slow);
        return slow;
    }
    int64_t bytes = is_contiguous_move(c, load) ? vector * type_bytes(c->loop.body.items[0]->store.buf->type) : 0;
    bool pipelined = map_has(s->pipelined, stmt);
    if (bytes >= (pipelined ? 4 : s->target->vector_bytes)) return VIA_CP_ASYNC;
    if (2 * bytes < s->target->vector_bytes && loop_shifts(facts, &c->loop, &c->accesses, c->fast, s->target))
        slow = VIA_SHIFTED;   // two vectors for one
    if (pipelined && !s->fallback)
        REMARK(s->context, stmt->loc, T_COPY_SLOW, via_text(slow), cp_async_problem(s, c, load));
    return slow;
}

// False: registers on both sides, so no memory access to choose.
static bool touches_memory(const Candidate *c) {
    VEC_EACH (const TileAccess, access, &c->accesses)
        if (access->buf->scope != SCOPE_FRAGMENT) return true;
    return false;
}

// What the source could change for the tensor cores to compute it; `mma`: the instruction for its types, or NULL.
static const char *gemm_problem(Selector *s, const Stmt *gemm, const MmaInfo *mma) {
    const char *a = gemm_type(gemm, 0), *b = gemm_type(gemm, 1);
    if (!mma && strcmp(a, b) == 0) return NULL;
    if (!mma) return arena_printf(s->arena, "its operands have the types %s and %s: convert one to the other's", a, b);
    if (kernel_threads(s->kernel) % s->target->warp_lanes) return "the threads of a CTA must be a multiple of 32";
    return gemm_extent_problem(s->arena, gemm, mma->m, mma->n, 0);   // k is filled up with zeros
}

static Via gemm_mechanism(Selector *s, const Stmt *stmt) {
    if (s->whole || role_wgmma(s, stmt)) return VIA_WGMMA;
    const MmaInfo *mma = gemm_mma(s->target, stmt);
    const char *problem = gemm_problem(s, stmt, mma);
    if (mma && !problem) return VIA_MMA;
    if (problem) diag(s->context->sink, stmt->loc, T_GEMM_BY_FMA, problem);
    else REMARK(s->context, stmt->loc, T_GEMM_SLOW, "the target has no instruction for these types");
    return VIA_FMA;
}

// In a kernel that will be warp-specialized; VIA_NONE: as in other kernels.
static Via specialized_mechanism(Selector *s, const Stmt *stmt) {
    if (stores_by_tma(s, stmt)) return VIA_TMA_STORE;
    if (is_call(stmt, OP_GEMM)) {
        WgmmaInfo info;
        const char *why = wgmma_reason(s->arena, s->target, stmt, &info);
        if (why) REMARK(s->context, stmt->loc, T_ROLE_NO_WGMMA, "compute", why);
        return why ? VIA_NONE : VIA_WGMMA;
    }
    if (is_global_to_shared_copy(stmt)) return tma_piece_problem(s->target, stmt) ? VIA_NONE : VIA_TMA;
    return transposes_tile(s->arena, s->target, stmt) ? VIA_TRANSPOSE : VIA_NONE;
}

// Remarks why additions are scalar (threads add vectors to tensors where possible: vectorize).
static void say_added_singly(Selector *s, Stmt *stmt, const Facts *facts) {
    const char *why = "its elements are not aligned vectors";
    Candidate c;
    bool adds = false;
    if (s->fallback || !candidate_of(s, stmt, &c)) return;
    VEC_EACH (const TileAccess, access, &c.accesses)
        adds |= access->adds && access->buf->scope == SCOPE_GLOBAL && is_unit(&c, access);
    if (!adds || loop_vector(facts, &c.loop, &c.accesses, c.fast, s->target) > 1) return;
    loop_atomics(&c.loop, &c.accesses, c.fast, s->target, &why);
    REMARK(s->context, stmt->loc, T_ADDED_SINGLY, why);
}

static void select_addition(Selector *s, Stmt *stmt, const Facts *facts) {
    TmaReduce tile;
    bool asked = via_is(stmt, VIA_TMA);
    if (!asked && via_of(stmt) != VIA_NONE) return;
    bool by_tma = adds_by_tma(s, stmt, facts, true, &tile);
    if (by_tma && !asked) set_via(s, stmt, VIA_TMA);
    if (!by_tma && asked) set_via(s, stmt, VIA_NONE);
    if (!by_tma) say_added_singly(s, stmt, facts);
}

typedef struct Division {
    const Var *iter;
    const Expr *divisor;   // NULL: none that depends on the launch
} Division;

static bool find_division(Visitor *visitor, Expr *expr) {
    Division *division = visitor->user;
    int64_t known;
    bool divides = is_binary(expr, BIN_DIV) || is_binary(expr, BIN_MOD);
    if (divides && !expr_const(expr->binary.b, &known) && expr_uses_var(expr->binary.a, division->iter))
        division->divisor = expr->binary.b;
    return true;
}

// A view that joins or splits dims of unknown extents divides for each element.
static void say_divided(Selector *s, const Stmt *stmt, const Candidate *c) {
    if (s->fallback) return;
    VEC_EACH (const TileAccess, access, &c->accesses) {
        Division division = {c->loop.iters[c->fast], NULL};
        Visitor visitor = {.expr = find_division, .user = &division};
        for (int d = 0; d < access->count && access->buf->scope == SCOPE_GLOBAL; d++)
            visit_expr(&visitor, access->indices[d]);
        if (!division.divisor) continue;
        REMARK(s->context, stmt->loc, T_INDEX_DIVIDES, access->buf->name, expr_text(s->arena, division.divisor));
        return;
    }
}

// For a copy, or a parallel loop that is a copy; VIA_NONE: neither.
static Via loop_mechanism(Selector *s, Stmt *stmt, const Facts *facts) {
    bool is_copy = is_call(stmt, OP_COPY);
    Candidate c;
    if ((stmt->kind == STMT_CALL && !is_copy) || !candidate_of(s, stmt, &c)) return VIA_NONE;
    say_divided(s, stmt, &c);
    if (!is_copy && !tile_move(s->arena, &c.loop)) {
        say_added_singly(s, stmt, facts);
        return VIA_NONE;
    }
    return touches_memory(&c) ? move_mechanism(s, facts, stmt, &c) : VIA_PLAIN;
}

static void select_way(Selector *s, Stmt *stmt, const Facts *facts) {
    if (is_addition(stmt)) {
        select_addition(s, stmt, facts);
        return;
    }
    if (stmt->kind == STMT_FOR && via_is(stmt, VIA_TMA)) {
        if (!s->fallback)
            REMARK(s->context, stmt->loc, T_NOT_ADDED, "its loop has other statements than one addition to a tensor");
        set_via(s, stmt, VIA_NONE);
    }
    bool line = by_bulk(stmt), asked = line || via_is(stmt, VIA_TMA);
    asked &= (is_global_to_shared_copy(stmt) || is_shared_to_global_copy(stmt)) && !copy_of(stmt).bar;
    if (asked && (line             ? copies_by_bulk(s, stmt, facts, true)
                  : s->specialized ? role_copies_by_tma(s, stmt)
                                   : copies_by_tma(s, stmt, facts, true)))
        return;
    if (asked) via_set(s->arena, stmt, VIA_NONE);   // another mechanism
    if (via_of(stmt) != VIA_NONE) return;
    Via via = s->specialized ? specialized_mechanism(s, stmt) : VIA_NONE;
    if (via == VIA_NONE && !asked && copies_by_tma(s, stmt, facts, true)) via = VIA_TMA;
    if (via == VIA_NONE && role_stores(s, stmt, facts, true)) via = VIA_TMA_STORE;
    if (via == VIA_NONE && is_call(stmt, OP_GEMM)) via = gemm_mechanism(s, stmt);
    if (via == VIA_NONE) via = loop_mechanism(s, stmt, facts);
    if (via != VIA_NONE) set_via(s, stmt, via);
}

static void select_stmt(void *user, Stmt *stmt, const Facts *facts) {
    Selector *s = user;
    select_way(s, stmt, facts);
    if (via_is(stmt, VIA_TMA) && is_global_to_shared_copy(stmt) && !attr_get(stmt->attrs, ATTR_TF32) &&
        tma_rounds_to_tf32(s->kernel, stmt)) {
        attr_set_ints(s->arena, &stmt->attrs, ATTR_TF32, 0, NULL);
        s->changed = true;
    }
}

// ---- kernels ----

static Selector selector_of(PassContext *context, Func *kernel) {
    Selector s = {.context = context,
                  .arena = context->arena,
                  .target = context->target,
                  .kernel = kernel,
                  .pipelined = map_new(context->arena),
                  .fallback = attr_get(kernel->attrs, ATTR_FALLBACK) != NULL,
                  .channels = has_channels(kernel)};
    find_pipelined(&s, &kernel->body, NULL);
    s.specialized = !s.fallback && planned_kind(kernel) != WS_NONE;
    s.whole = multiplies_whole(&s);
    FOR_EACH_STMT (stmt, &kernel->body) s.multiplies |= is_call(stmt, OP_GEMM) && via_is(stmt, VIA_WGMMA);
    return s;
}

static bool select_kernel(PassContext *context, Func *kernel) {
    Selector s = selector_of(context, kernel);
    kernel_walk(s.arena, kernel, select_stmt, &s);
    return s.changed;
}

// Of tiles that are compared, those with @with_fallback have a variant without facts; else the last one.
static bool needs_fallback(const Module *module, const Func *kernel) {
    if (attr_get(kernel->attrs, ATTR_WITH_FALLBACK)) return true;
    if (attr_get(kernel->attrs, ATTR_TILE_VARIANT)) return false;
    bool needs = true, reached = false;
    for (int i = module->funcs.count - 1; i >= 0 && needs; i--) {
        const Func *tile = module->funcs.items[i];
        if (reached && (strcmp(tile->name, kernel->name) || !attr_get(tile->attrs, ATTR_TILE_VARIANT))) break;
        needs = !reached || !attr_get(tile->attrs, ATTR_WITH_FALLBACK);
        reached |= tile == kernel;
    }
    return needs;
}

static bool is_followed(const Module *module, const Func *kernel) {
    int next = 1;
    while (module->funcs.items[next - 1] != kernel) next++;
    return next < module->funcs.count && strcmp(module->funcs.items[next]->name, kernel->name) == 0;
}

// Bytes in slots, by warps of roles written by hand. Before the copies into the tiles, which it reads by rows.
static bool select_transposed(PassContext *context, Func *kernel) {
    bool changed = false;
    if (!has_channels(kernel)) return false;
    FOR_EACH_STMT_MUT (stmt, &kernel->body) {
        if (stmt->kind != STMT_ROLE) continue;
        FOR_EACH_STMT_MUT (copy, &stmt->role.body) {
            bool whole = stmt->role.threads % context->target->warp_lanes == 0 && via_of(copy) == VIA_NONE;
            if (!whole || !transposes_tile(context->arena, context->target, copy)) continue;
            via_set(context->arena, copy, VIA_TRANSPOSE);
            changed = true;
        }
        SKIP_BODY(stmt);
    }
    return changed;
}

// ---- rows that start anywhere ----
//
// Roles, TMA and wgmma need facts of what they load, and few others: where only those hold, threads store results wherever
// rows start, and read what is no operand element by element. (Programs that copy operands first have such kernels of their
// own: repack.)

static void want_load_stmt(void *user, Stmt *stmt, const Facts *facts) {
    if (loaded_tile(stmt)) want_stmt(user, stmt, facts);
    if (!is_fragment_to_global_copy(stmt)) want_map_stmt(user, stmt, facts);
}

static bool has_program(const Module *module, const Func *kernel) {
    VEC_EACH_PTR (Func, func, &module->funcs)
        if (func->kind == FUNC_PROGRAM && strcmp(func->name, kernel->name) == 0) return true;
    return false;
}

// Without TMA no operand's tile serves as staging.
static bool has_staging(const Selector *s) {
    Specialization how = specialization_of(s->arena, s->target, s->kernel);
    how.aliased = 0;
    return specialized_fits(s->arena, s->target, s->kernel, &how) == FITS_STAGED;
}

static void store_anywhere(const Selector *s, bool staged, Stmt *stmt) {
    TmaStore store;
    const char *why;
    if (via_of(stmt) != VIA_NONE || !stores_tile(s->arena, s->target, s->kernel, stmt, &store, &why)) return;
    via_set(s->arena, stmt, staged ? rows_store(s->target, stmt) : VIA_PLAIN);
}

// Adds the variant with the facts that loads need, where this one wants more of them. True: it needs none, so it serves all.
static bool add_anywhere(PassContext *context, const Selector *all) {
    if ((!all->specialized && !all->whole) || has_program(context->module, all->kernel)) return false;
    Selector s = selector_of(context, clone_func(all->arena, all->kernel));
    bool staged = s.specialized && has_staging(&s);
    FOR_EACH_STMT_MUT (stmt, &s.kernel->body) store_anywhere(&s, staged, stmt);
    kernel_walk(s.arena, s.kernel, want_load_stmt, &s);
    if (s.wanted.count > 0 || s.boxes) want_small_dims(&s);
    if (s.wanted.count >= all->wanted.count) return false;
    VEC_EACH_PTR (Expr, fact, &s.wanted) s.kernel->when = e_both(s.arena, s.kernel->when, fact);
    attr_set_ints(s.arena, &s.kernel->attrs, ATTR_GIVEN_FACTS, 0, NULL);
    attr_remove(&s.kernel->attrs, ATTR_WITH_FALLBACK);
    vec_push(s.arena, &context->variants, s.kernel);
    return s.wanted.count == 0;
}

// Adds the variant without the facts, and the facts to this variant.
static bool split_variants(PassContext *context, Func *kernel) {
    Selector s = selector_of(context, kernel);
    if (s.fallback || attr_get(kernel->attrs, ATTR_GIVEN_FACTS)) return false;
    kernel_walk(s.arena, kernel, want_stmt, &s);
    kernel_walk(s.arena, kernel, want_map_stmt, &s);
    if (s.wanted.count > 0 || s.boxes) want_small_dims(&s);
    if (s.wanted.count == 0) return false;

    if (needs_fallback(context->module, kernel) && !add_anywhere(context, &s)) {
        bool behind = attr_get(kernel->attrs, ATTR_WITH_FALLBACK) || is_followed(context->module, kernel);
        Func *fallback = clone_func(s.arena, kernel);
        attr_set_ints(s.arena, &fallback->attrs, ATTR_FALLBACK, 0, NULL);
        attr_remove(&fallback->attrs, ATTR_WITH_FALLBACK);
        if (!behind) fallback->cost = NULL;
        else if (kernel->cost && target_has(s.target, FEATURE_WGMMA))   // (others have no costs of a tile)
            fallback->cost->terms = cost_fallback(s.arena, s.target, fallback, &kernel->cost->terms);
        drop_groups((Stmt *)func_grid(fallback));
        set_claim(s.arena, (Stmt *)func_grid(fallback), (TileClaim){0});   // its grid is one of tiles
        vec_push(s.arena, &context->variants, fallback);
    }
    VEC_EACH_PTR (Expr, fact, &s.wanted) kernel->when = e_both(s.arena, kernel->when, fact);
    return true;
}

bool pass_select(PassContext *context, Func *kernel) {
    bool transposed = select_transposed(context, kernel), split = split_variants(context, kernel);
    bool changed = select_kernel(context, kernel) || transposed;
    VEC_EACH_PTR (Func, variant, &context->variants) select_kernel(context, variant);
    return changed || split;
}
