// split-tiles: tiles that one declaration holds become tiles of their own.
//
//     shared As: bf16[2, 64, 64];                              shared As0: bf16[64, 64], As1: bf16[64, 64];
//     fragment acc: f32[2, 64, 128];                           fragment acc0: f32[64, 128], acc1: f32[64, 128];
//     unroll (h in 2) copy(A[i + h * 64, k], As[h]);           copy(A[i, k], As0); copy(A[i + 64, k], As1);
//     unroll (h in 2) gemm(As[h], Bs, acc[h]);           =>    gemm(As0, Bs, acc0); gemm(As1, Bs, acc1);
//     parallel (h in 2, r in 64, c in 128)                     parallel (r in 64, c in 128) acc0[r, c] *= s;
//         acc[h, r, c] *= s;                                   parallel (r in 64, c in 128) acc1[r, c] *= s;
//
// A copy to As[0] fills a whole tile then, so that it has slots, a role that loads it by TMA, and MMAs that read it. So this comes
// before all that asks what a copy fills.
//
// (1) `unroll` loops are expanded that choose a tile by their variable (normalize-loops has done so with those of loads and products);
//     `for` loops of few rounds that do, where (2) follows.
// (2) A shared buffer or fragment is split along its first dim where each access has a constant there, or the variable of a
//     `parallel` loop, which then becomes one loop for each value; `fill`, and a copy of as many tiles, may take all of it. Some
//     operation has to take one of the tiles whole or in pieces: what loops alone index is no tile.
//
// (3) A tile that a loop fills anew becomes one of its own (loop_tiles.c).
//
// Kernels with roles, channels or thread regions stay as they are written, and so do buffers with a layout or an attribute.
#include "ir/build.h"
#include "ir/facts.h"
#include "ir/match.h"
#include "ir/query.h"
#include "ir/rewrite.h"
#include "passes/analysis/util.h"
#include "passes/pass.h"
#include "passes/tile/tile.h"

enum { MOST_TILES = 8 };   // also copies of a loop: code grows with them

static bool is_tile(const Buf *buf) {
    return buf->scope == SCOPE_SHARED || buf->scope == SCOPE_FRAGMENT;
}

// ---- (1) loops over tiles ----

// A buffer that may hold tiles.
static bool is_candidate(const Buf *buf) {
    if (!is_tile(buf) || buf->rank < 3 || buf->layout || buf->alias_of || buf->attrs || buf->align) return false;
    return buf->offset < 0 && !buf->channel && buf->stage_dims == 0 && buf_extent(buf, 0) > 1 &&
           buf_extent(buf, 0) <= MOST_TILES;
}

typedef struct Choice {
    const Var *var;
    bool made;   // of a tile, by the variable
} Choice;

static void note_choice(Choice *choice, const Buf *buf, const Expr *index) {
    choice->made |= is_candidate(buf) && expr_uses_var(index, choice->var);
}

static bool load_chooses(Visitor *visitor, Expr *expr) {
    if (expr->kind == EXPR_LOAD) note_choice(visitor->user, expr->load.buf, expr->load.indices[0]);
    return true;
}

static bool store_chooses(Visitor *visitor, Stmt *stmt) {
    if (stmt->kind == STMT_STORE) note_choice(visitor->user, stmt->store.buf, stmt->store.indices[0]);
    return true;
}

static void region_chooses(Visitor *visitor, Region *region, const Operand *operand) {
    (void)operand;
    if (!region->dims[0].extent) note_choice(visitor->user, region->buf, region->dims[0].start);
}

static bool chooses_tile(Stmt *loop) {
    Choice choice = {.var = loop->loop.iters[0].var};
    Visitor visitor = {.expr = load_chooses, .stmt = store_chooses, .region = region_chooses, .user = &choice};
    visit_block(&visitor, &loop->loop.body);
    return choice.made;
}

static Expr *folded(Mapper *mapper, Expr *expr) {
    return simplify_expr(mapper->arena, mapper->user, expr);
}

typedef struct Expansion {
    const Facts *facts;
    LoopKind kind;
} Expansion;

static bool is_expanded(const Expansion *expansion, Stmt *stmt, int64_t *rounds) {
    bool few = is_loop(stmt, expansion->kind) && !stmt->attrs && loop_is_plain(stmt) &&
               expr_const(stmt->loop.iters[0].end, rounds) && *rounds <= MOST_TILES && !block_breaks(&stmt->loop.body);
    return few && chooses_tile(stmt);
}

static void expand_choosing(StmtMapper *mapper, Stmt *stmt, Block *out) {
    const Expansion *expansion = mapper->user;
    int64_t rounds;
    if (!is_expanded(expansion, stmt, &rounds)) {
        block_push(mapper->arena, out, stmt);
        return;
    }
    Block body = {0};
    clone_iterations(mapper->arena, stmt, &body);
    map_block(&(Mapper){.arena = mapper->arena, .expr = folded, .user = (void *)expansion->facts, .whole = true},
              &body);
    block_append(mapper->arena, out, &body);
    mapper->changed = true;
}

static bool expand_loops(Arena *arena, Func *kernel, LoopKind kind) {
    Expansion expansion = {facts_new(arena, kernel), kind};
    return rewrite_block(&(StmtMapper){.arena = arena, .stmt = expand_choosing, .user = &expansion}, &kernel->body);
}

// ---- (2) whether a buffer holds tiles ----

typedef struct Split {
    Arena *arena;
    Func *kernel;
    Map *parallel;   // variable -> its parallel loop
    Map *chosen;     // loops that become several
    const Buf *buf;
    int64_t count;
    int whole, taken;   // operands that are all of it; one of its tiles
    bool refused;
    Buf *tiles[MOST_TILES];
} Split;

static bool is_number(const Split *s, const Expr *index) {
    int64_t number;
    return expr_const(index, &number) && number >= 0 && number < s->count;
}

// False: of another buffer; one that shares the storage keeps it as it is.
static bool is_of(Split *s, const Buf *buf) {
    s->refused |= buf != s->buf && buf_root(buf) == s->buf;
    return buf == s->buf;
}

static void check_element(Split *s, const Buf *buf, int count, Expr *const *indices) {
    if (!is_of(s, buf) || (count == buf->rank && is_number(s, indices[0]))) return;
    Var *var = indices[0]->kind == EXPR_VAR ? indices[0]->var : NULL, *other;
    Stmt *loop = var ? map_get(s->parallel, var) : NULL;
    if (!loop || count != buf->rank || ((other = map_get(s->chosen, loop)) && other != var)) s->refused = true;
    else map_put(s->chosen, loop, var);
}

static bool check_load(Visitor *visitor, Expr *expr) {
    if (expr->kind == EXPR_LOAD) check_element(visitor->user, expr->load.buf, expr->load.count, expr->load.indices);
    return true;
}

// The dim of the other side of a copy of the whole buffer that counts its tiles; -1: it is no such copy.
static int counting_dim(const Split *s, const Stmt *stmt) {
    CopyOp copy;
    if (!is_bare_copy(stmt) || !match_copy(stmt, &copy) || (copy.src->buf == s->buf) == (copy.dst->buf == s->buf))
        return -1;
    const Region *whole = copy.src->buf == s->buf ? copy.src : copy.dst,
                 *other = whole == copy.src ? copy.dst : copy.src;
    if (!region_is_whole(whole) || whole->transposed || other->transposed || other->buf->im2col) return -1;
    if (region_rank(other) != s->buf->rank) return -1;
    int dim = 0;
    while (!other->dims[dim].extent) dim++;
    return expr_is_int(other->dims[dim].extent, s->count) ? dim : -1;
}

static bool check_stmt(Visitor *visitor, Stmt *stmt) {
    Split *s = visitor->user;
    if (stmt->kind == STMT_DECL) is_of(s, stmt->decl);
    if (counting_dim(s, stmt) >= 0) s->whole--;   // check_region counts it
    if (stmt->kind == STMT_STORE) check_element(s, stmt->store.buf, stmt->store.count, stmt->store.indices);
    FillOp fill;
    if (match_fill(stmt, &fill) && fill.dst->buf == s->buf && region_is_whole(fill.dst) && !fill.dst->transposed)
        s->whole--;   // check_region counts it
    return true;
}

static void check_region(Visitor *visitor, Region *region, const Operand *operand) {
    Split *s = visitor->user;
    (void)operand;
    if (!is_of(s, region->buf)) return;
    bool one = region->count == s->buf->rank && !region->dims[0].extent && is_number(s, region->dims[0].start);
    if (one) s->taken += region_rank(region) > 1;
    else if (region_is_whole(region)) s->whole++;
    else s->refused = true;
}

// Variables of parallel loops that may become one loop for each value.
static void find_parallel(Split *s) {
    FOR_EACH_STMT_MUT (loop, &s->kernel->body) {
        if (!is_loop(loop, LOOP_PARALLEL) || loop->attrs || loop->loop.count < 2) continue;
        for (int i = 0; i < loop->loop.count; i++) {
            const Iter *iter = &loop->loop.iters[i];
            if (iter_is_plain(iter) && expr_is_int(iter->end, s->count)) map_put(s->parallel, iter->var, loop);
        }
    }
}

static bool holds_tiles(Split *s) {
    Visitor visitor = {.expr = check_load, .stmt = check_stmt, .region = check_region, .user = s};
    find_parallel(s);
    visit_block(&visitor, &s->kernel->body);
    return !s->refused && s->whole == 0 && s->taken > 0;
}

// ---- (2) the tiles ----

static void expand_parallel(StmtMapper *mapper, Stmt *stmt, Block *out) {
    const Split *s = mapper->user;
    const Var *var = map_get(s->chosen, stmt);
    if (!var) {
        block_push(mapper->arena, out, stmt);
        return;
    }
    for (int64_t i = 0; i < s->count; i++) {
        Subst *subst = subst_new(mapper->arena);
        Stmt *one = stmt_new(mapper->arena, STMT_FOR, stmt->loc);
        *one = *stmt;
        one->loop.iters = NULL;
        one->loop.count = 0;
        for (int d = 0; d < stmt->loop.count; d++)
            if (stmt->loop.iters[d].var != var)
                iter_insert(mapper->arena, &one->loop.iters, &one->loop.count, one->loop.count, stmt->loop.iters[d]);
        subst_var(subst, var, e_int(mapper->arena, i));
        block_push(mapper->arena, out, clone_stmt(mapper->arena, subst, one));
    }
}

static Expr *tile_element(Mapper *mapper, Expr *expr) {
    const Split *s = mapper->user;
    if (expr->kind != EXPR_LOAD || expr->load.buf != s->buf) return expr;
    Buf *tile = s->tiles[expr->load.indices[0]->integer];
    return e_load(mapper->arena, tile, expr->load.count - 1, expr->load.indices + 1);
}

static Region *tile_region(Mapper *mapper, Region *region) {
    const Split *s = mapper->user;
    if (region->buf != s->buf || region_is_whole(region)) return region;   // (a fill of all of it: split_stmt)
    Region *of_tile = clone_region(mapper->arena, NULL, region);
    of_tile->buf = s->tiles[region->dims[0].start->integer];
    of_tile->dims++;
    of_tile->count--;
    return of_tile;
}

// The copy of one of the tiles.
static void take_tile(const Split *s, Stmt *copy, int dim, int tile) {
    Arena *arena = s->arena;
    Arg *src = &ARG(copy, COPY, src), *dst = &ARG(copy, COPY, dst);
    bool stores = src->region->buf == s->buf;
    Region *other = clone_region(arena, NULL, stores ? dst->region : src->region);
    other->dims[dim] = (RegionDim){e_plus(arena, other->dims[dim].start, tile), NULL, 0};
    *(stores ? dst : src) = arg_region(other);
    *(stores ? src : dst) = arg_region(region_whole(arena, s->tiles[tile]));
}

static void split_stmt(StmtMapper *mapper, Stmt *stmt, Block *out) {
    const Split *s = mapper->user;
    Arena *arena = mapper->arena;
    bool declares = stmt->kind == STMT_DECL && stmt->decl == s->buf;
    FillOp fill;
    bool fills = match_fill(stmt, &fill) && fill.dst->buf == s->buf;   // all of it: the others are of tiles by now
    int dim = counting_dim(s, stmt);
    for (int i = 0; i < s->count && (declares || fills || dim >= 0); i++) {
        Stmt *one = clone_stmt(arena, NULL, stmt);
        if (declares) one->decl = s->tiles[i];
        else if (fills) one->call.args[0] = arg_region(region_whole(arena, s->tiles[i]));
        else take_tile(s, one, dim, i);
        block_push(arena, out, one);
    }
    if (declares || fills || dim >= 0) return;
    if (stmt->kind == STMT_STORE && stmt->store.buf == s->buf) {
        stmt->store.buf = s->tiles[stmt->store.indices[0]->integer];
        stmt->store.indices++;
        stmt->store.count--;
    }
    block_push(arena, out, stmt);
}

static void split_tiles_of(Split *s) {
    Arena *arena = s->arena;
    for (int i = 0; i < s->count; i++) {
        const char *name = arena_printf(arena, "%s%d", s->buf->name, i);
        s->tiles[i] =
            buf_new(arena, name, s->buf->scope, s->buf->type, s->buf->rank - 1, s->buf->shape + 1, s->buf->loc);
        s->tiles[i]->made_of = s->buf;
    }
    rewrite_block(&(StmtMapper){.arena = arena, .stmt = expand_parallel, .user = s}, &s->kernel->body);
    map_block(&(Mapper){.arena = arena, .expr = tile_element, .region = tile_region, .user = s}, &s->kernel->body);
    rewrite_block(&(StmtMapper){.arena = arena, .stmt = split_stmt, .user = s}, &s->kernel->body);
}

static bool split_one(Arena *arena, Func *kernel) {
    FOR_EACH_STMT (decl, &kernel->body) {
        if (decl->kind != STMT_DECL || !is_candidate(decl->decl)) continue;
        Split s = {.arena = arena, .kernel = kernel, .parallel = map_new(arena), .chosen = map_new(arena)};
        s.buf = decl->decl;
        s.count = buf_extent(s.buf, 0);
        if (!holds_tiles(&s)) continue;
        split_tiles_of(&s);
        return true;
    }
    return false;
}

static bool has_choosing_loop(Func *kernel) {
    Expansion expansion = {NULL, LOOP_SERIAL};
    int64_t rounds;
    FOR_EACH_STMT_MUT (stmt, &kernel->body)
        if (is_expanded(&expansion, stmt, &rounds)) return true;
    return false;
}

// `for` loops are expanded where a buffer can be split then.
static bool split_by_serial_loops(Arena *arena, Func *kernel) {
    Block as_written = kernel->body, expanded = {0};
    if (!has_choosing_loop(kernel)) return false;
    clone_block(arena, NULL, &as_written, &expanded);
    kernel->body = expanded;
    bool split = expand_loops(arena, kernel, LOOP_SERIAL) && split_one(arena, kernel);
    if (!split) kernel->body = as_written;
    while (split && split_one(arena, kernel)) continue;
    return split;
}

static bool has_thread_regions(const Func *kernel) {
    FOR_EACH_STMT (stmt, &kernel->body)
        if (stmt->kind == STMT_THREAD) return true;
    return false;
}

bool split_tiles(Arena *arena, const Target *target, Func *kernel) {
    if (!has_free_form(kernel) || has_thread_regions(kernel)) return false;
    bool changed = expand_loops(arena, kernel, LOOP_UNROLL);
    while (split_one(arena, kernel)) changed = true;
    changed |= split_by_serial_loops(arena, kernel);
    return split_loop_tiles(arena, target, kernel) || changed;
}

bool pass_split_tiles(PassContext *context, Func *kernel) {
    return split_tiles(context->arena, context->target, kernel);
}
