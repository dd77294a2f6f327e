// stage-vectors: a vector of a tensor that each step of a loop of products reads comes with the step's tiles.
//
//     pipelined (k in steps, stages = 4) {              shared scale_step: bf16[128];
//         copy(W[n0 +: 128, k * 64 +: 64], Ws);         pipelined (k in steps, stages = 4) {
//         parallel (n in 128)                               copy(W[n0 +: 128, k * 64 +: 64], Ws);
//             s[n] = scale[k, n0 + n];          =>          copy(scale[k, n0 +: 128], scale_step);
//         parallel (n in 128, j in 64)                      parallel (n in 128, j in 64)
//             w[n, j] = Ws[n, j] * s[n];                        w[n, j] = Ws[n, j] * scale_step[n];
//     }                                                 }
//
// Else the threads that compute wait for it: while all multiprocessors load tiles, what comes from the L2 cache takes as long as a
// step does, loaded a step ahead or not. (H200, examples/gemm_w4.tile, 16 to 2048 rows: 1.10 to 1.19 of the speed.)
//
// The vector lies along its tensor's last dim, moves with the loop, and TMA serves it wherever it serves the tiles: the pass adds no
// condition to those that the kernel has.
#include "ir/build.h"
#include "ir/facts.h"
#include "ir/match.h"
#include "ir/query.h"
#include "ir/rewrite.h"
#include "passes/analysis/live_ranges.h"
#include "passes/analysis/util.h"
#include "passes/pipeline/async_copy_legality.h"
#include "passes/select/tma.h"
#include "passes/tile/tile.h"

enum { MOST_BYTES = 1024 };   // of a vector: more is a tile, whose place the source chooses

typedef struct Vector {
    const Expr *load;   // its first element
    Buf *tile;
} Vector;

typedef struct Staging {
    Arena *arena;
    const Target *target;
    Func *kernel;
    Facts *facts;
    const Stmt *loop;    // of products
    const Stmt *use;     // a `parallel` loop in it that computes: one that gathers a tile is a load itself
    VEC(Vector) known;   // of this loop
    Block copies;        // that the use needs
    Block tiles;         // declarations
    VEC(Buf *) gone;     // fragments
} Staging;

// ---- what TMA serves ----

// In elements.
static Expr *pitch_of(const Buf *tensor, int d) {
    return tensor->strides ? tensor->strides[d] : tensor->shape[tensor->rank - 1];
}

// Where the kernel uses TMA, rows of its tiles begin at units.
static void assume_rows(Staging *s, const Buf *tensor) {
    for (int d = 0; d < tensor->rank - 1; d++) {
        Expr *rest = e_rem(s->arena, pitch_of(tensor, d), tma_unit_elements(tensor));
        facts_assume(s->facts, e_eq(s->arena, rest, e_int(s->arena, 0)), true);
    }
}

// False: the loop's tiles are not all loaded by TMA.
static bool assume_tiles(Staging *s) {
    int loads = 0;
    FOR_EACH_STMT (stmt, &s->kernel->body) {
        TmaStore store;
        if (is_fragment_to_global_copy(stmt) && !tma_epilogue_problem(s->target, stmt, &store))
            assume_rows(s, copy_of(stmt).dst->buf);
        if (!is_global_to_shared_copy(stmt)) continue;
        if (tma_load_problem(s->target, stmt)) return false;
        assume_rows(s, copy_of(stmt).src->buf);
        loads++;
    }
    return loads > 0;
}

static bool is_loaded_by_tma(const Staging *s, const Stmt *copy) {
    const Region *from = copy_of(copy).src;
    const Buf *tensor = from->buf;
    bool loads = multiple_of(s->facts, from->dims[from->count - 1].start) % tma_unit_elements(tensor) == 0;
    for (int d = 0; d < tensor->rank - 1; d++)
        loads &= multiple_of(s->facts, pitch_of(tensor, d)) % tma_unit_elements(tensor) == 0;
    return loads && !tma_load_problem(s->target, copy);
}

// ---- vectors ----

// A name that the loop binds: what it is known to be, the copy before the use knows, too.
static bool moves_with(const Expr *expr, const void *user) {
    const Stmt *loop = user;
    if (expr->kind != EXPR_VAR) return false;
    if (expr->var == loop->loop.iters[0].var) return true;
    FOR_EACH_ITEM (stmt, &loop->loop.body)
        if (stmt->kind == STMT_LET && stmt->let.var == expr->var) return true;
    return false;
}

// A name that the `parallel` loop binds, or a loop in it.
static bool is_bound_by_use(const Expr *expr, const void *use) {
    if (expr->kind != EXPR_VAR) return false;
    FOR_EACH_STMT_IN (stmt, (const Stmt *)use) {
        if ((stmt->kind == STMT_LET || stmt->kind == STMT_VAR) && stmt->let.var == expr->var) return true;
        for (int i = 0; stmt->kind == STMT_FOR && i < stmt->loop.count; i++)
            if (stmt->loop.iters[i].var == expr->var) return true;
    }
    return false;
}

// The role that loads cannot know it: it is computed from memory.
static bool is_computed_name(const Expr *expr, const void *user) {
    const Stmt *loop = user;
    if (expr->kind == EXPR_LOAD) return true;
    if (expr->kind != EXPR_VAR) return false;
    FOR_EACH_ITEM (stmt, &loop->loop.body)
        if (stmt->kind == STMT_LET && stmt->let.var == expr->var)
            return any_expr(stmt->let.value, is_computed_name, loop);
    return false;
}

static bool changes(const Expr *expr, const void *unused) {
    return is_computed(expr, unused) || (expr->kind == EXPR_VAR && expr->var->kind == VAR_MUTABLE);
}

// The iterator of the use along which the load goes over a vector; NULL: it is something else.
static const Iter *along(const Staging *s, const Expr *load) {
    const Buf *buf = load->load.buf;
    int last = load->load.count - 1;
    bool tensor =
        buf->scope == SCOPE_GLOBAL && buf_is_constant(buf) && !buf->im2col && !attr_get(buf->attrs, ATTR_ALIAS);
    if (!tensor || load->load.count != buf->rank) return NULL;
    bool moves = false;
    for (int d = 0; d <= last; d++) {
        if (any_expr(load->load.indices[d], changes, NULL)) return NULL;
        if (any_expr(load->load.indices[d], is_computed_name, s->loop)) return NULL;
        if (d < last && any_expr(load->load.indices[d], is_bound_by_use, s->use)) return NULL;
        moves |= any_expr(load->load.indices[d], moves_with, s->loop);
    }
    for (int i = 0; moves && i < s->use->loop.count; i++) {
        const Iter *iter = &s->use->loop.iters[i];
        if (iter_is_plain(iter) && iter_count(iter) > 0 && is_offset(load->load.indices[last], iter->var)) return iter;
    }
    return NULL;
}

static Expr *first_element(const Staging *s, const Expr *load, const Iter *iter) {
    Subst *at = subst_new(s->arena);
    subst_var(at, iter->var, e_int(s->arena, 0));
    return subst_expr(at, (Expr *)load);
}

// The tile, of a vector that the loop loads already or can load; NULL: neither.
static Buf *tile_of(Staging *s, const Expr *load, const Iter *iter) {
    int64_t extent = iter_count(iter), bytes = extent * type_bytes(load->type);
    Expr *first = first_element(s, load, iter);
    int last = first->load.count - 1;
    if (any_expr(first->load.indices[last], is_bound_by_use, s->use)) return NULL;
    VEC_EACH (const Vector, known, &s->known)
        if (expr_equal(known->load, first) && buf_extent(known->tile, 0) == extent) return known->tile;
    if (bytes % tma_facts.unit_bytes != 0 || bytes > MOST_BYTES) return NULL;
    RegionDim dims[LAYOUT_MAX_RANK] = {0};
    for (int d = 0; d <= last; d++) dims[d].start = first->load.indices[d];
    dims[last].extent = e_int(s->arena, extent), dims[last].tile = extent;
    Buf *buf = load->load.buf;
    Region *from = region_new(s->arena, buf, dims, false, s->use->loc);
    const char *name = arena_printf(s->arena, "%s_step", buf->name);
    Buf *tile = buf_new(s->arena, name, SCOPE_SHARED, buf->type, 1, (Expr *[]){e_int(s->arena, extent)}, s->use->loc);
    Stmt *copy = s_copy(s->arena, from, region_whole(s->arena, tile), s->use->loc);
    if (!is_loaded_by_tma(s, copy)) return NULL;
    block_push(s->arena, &s->copies, copy);
    vec_push(s->arena, &s->known, ((Vector){first, tile}));
    return tile;
}

static Expr *read_tile(Mapper *mapper, Expr *expr) {
    Staging *s = mapper->user;
    const Iter *iter = expr->kind == EXPR_LOAD ? along(s, expr) : NULL;
    Buf *tile = iter ? tile_of(s, expr, iter) : NULL;
    return tile ? e_load1(s->arena, tile, e_var(s->arena, iter->var)) : expr;
}

// ---- fragments that hand a vector on ----
//
// Read where it is used, the vector's tile is done with when the step's other tiles are, and shares their barriers. (gemm_w4, 16 rows:
// 1.12 of the speed.)

// `parallel (n in N) f[n] = tile[n]`: the store; NULL: it is something else.
static const Stmt *handing_store(const Stmt *loop) {
    if (!is_loop(loop, LOOP_PARALLEL) || loop->loop.count != 1 || loop->loop.body.count != 1) return NULL;
    const Stmt *store = loop->loop.body.items[0];
    if (store->kind != STMT_STORE || store->store.value->kind != EXPR_LOAD) return NULL;
    const Buf *to = store->store.buf, *from = store->store.value->load.buf;
    bool whole = to->rank == 1 && from->rank == 1 && buf_extent(to, 0) == buf_extent(from, 0) &&
                 iter_count(&loop->loop.iters[0]) == buf_extent(to, 0);
    bool free = to->scope == SCOPE_FRAGMENT && buf_is_free(to) && to->type == from->type;
    if (!whole || !free || !is_loop_element(loop, 1, store->store.indices)) return NULL;
    return is_loop_element(loop, 1, store->store.value->load.indices) ? store : NULL;
}

static bool is_vector(const Staging *s, const Buf *buf) {
    VEC_EACH (const Vector, known, &s->known)
        if (known->tile == buf) return true;
    return false;
}

// `parallel` loops behind the statement that read the fragment; 0: something else touches it there.
static int readers_behind(const Staging *s, const Block *block, int at, const Buf *fragment) {
    int readers = 0;
    for (int i = at + 1; i < block->count; i++) {
        const Stmt *stmt = block->items[i];
        if (!stmt_touches(s->arena, stmt, fragment)) continue;
        if (!is_loop(stmt, LOOP_PARALLEL) || stmt_writes(s->arena, stmt, fragment)) return 0;
        readers++;
    }
    return readers;
}

typedef struct Handed {
    Arena *arena;
    const Buf *from;
    Buf *to;
} Handed;

static Expr *read_source(Mapper *mapper, Expr *expr) {
    const Handed *handed = mapper->user;
    bool reads = expr->kind == EXPR_LOAD && expr->load.buf == handed->from;
    return reads ? e_load1(handed->arena, handed->to, expr->load.indices[0]) : expr;
}

// Readers take the tile's elements, and the fragment goes.
static void hand_on(Staging *s, Block *block) {
    Block kept = {0};
    for (int i = 0; i < block->count; i++) {
        Stmt *stmt = block->items[i];
        const Stmt *store = handing_store(stmt);
        Buf *fragment = store ? store->store.buf : NULL;
        int readers = store && is_vector(s, store->store.value->load.buf) ? readers_behind(s, block, i, fragment) : 0;
        if (readers == 0 || uses_of(s->arena, s->kernel, fragment) != readers + 1) {
            block_push(s->arena, &kept, stmt);
            continue;
        }
        Handed handed = {s->arena, fragment, store->store.value->load.buf};
        for (int j = i + 1; j < block->count; j++)
            map_stmt(&(Mapper){.arena = s->arena, .expr = read_source, .user = &handed}, block->items[j]);
        vec_push(s->arena, &s->gone, fragment);
    }
    *block = kept;
}

// ---- loops ----

static void stage_in(Staging *s, Stmt *loop) {
    Block out = {0};
    s->loop = loop;
    s->known.count = 0;
    FOR_EACH_ITEM (stmt, &loop->loop.body) {
        if (is_loop(stmt, LOOP_PARALLEL) && !loaded_tile(stmt)) {
            s->use = stmt;
            s->copies = (Block){0};
            map_stmt(&(Mapper){.arena = s->arena, .expr = read_tile, .user = s}, stmt);
            block_append(s->arena, &out, &s->copies);
        }
        block_push(s->arena, &out, stmt);
        facts_enter(s->facts, stmt);
    }
    loop->loop.body = out;
    hand_on(s, &loop->loop.body);
    VEC_EACH (const Vector, vector, &s->known) block_push(s->arena, &s->tiles, s_decl(s->arena, vector->tile));
}

static bool is_loop_of_products(const Stmt *stmt) {
    return is_loop(stmt, LOOP_PIPELINED) && loop_stages(stmt) > 1 && loop_is_plain(stmt) &&
           block_calls(&stmt->loop.body, OP_GEMM);
}

bool stage_vectors(Arena *arena, const Target *target, Func *kernel) {
    if (!target_has(target, FEATURE_TMA) || !target_has(target, FEATURE_WGMMA) || !has_free_form(kernel)) return false;
    Staging s = {.arena = arena, .target = target, .kernel = kernel, .facts = facts_new(arena, kernel)};
    if (!assume_tiles(&s)) return false;
    FOR_EACH_STMT_MUT (stmt, &kernel->body) {
        if (is_loop_of_products(stmt)) {
            stage_in(&s, stmt);
            SKIP_BODY(stmt);
        } else {
            facts_enter(s.facts, stmt);
        }
    }
    if (s.tiles.count == 0) return false;
    Block *body = &((Stmt *)func_grid(kernel))->grid.body;
    block_append(arena, &s.tiles, body);
    *body = s.tiles;
    VEC_EACH_PTR (Buf, fragment, &s.gone) undeclare(arena, kernel, fragment);
    return true;
}

bool pass_stage_vectors(PassContext *context, Func *kernel) {
    return stage_vectors(context->arena, context->target, kernel);
}
