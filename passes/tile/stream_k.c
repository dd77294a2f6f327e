// stream-k: CTAs share all k steps of all tiles equally, so no last wave fills the device in part.
//
//     k steps     tile 0         tile 1         tile 2
//     CTA         0 0 0 0 0 0 1 1 1 1 1 1 2 2 2 2 2 2
//
// A CTA goes on where the one before it stops, in the middle of a tile if need be. The one that has a tile's first step
// finishes the tile: it adds what the next CTAs have of it, always in the same order (the same bits in each run), and
// runs what stands behind the loop.
//
//     @split(stream)                        grid (block in S) {
//     grid (bm in X, bn in Y) {                 let worker = S - 1 - block;
//         fill(acc, 0);                         var at = worker * total / S;                    total = X * Y * n
//         pipelined (k in n) {                  while (at < (worker + 1) * total / S) {
//             copy(A[.., k * BK], As);              tile = at / n, first = at % n; bm, bn: of the tile
//             copy(B[.., k * BK], Bs);              fill(acc, 0);
//             gemm(As, Bs.T, acc);                  pipelined (k in count) { .. first + k .. }
//         }                                         at += count;
//         copy(acc, C[..]);                         if (first > 0) {
//     }                                                 slices[worker, ..] = acc;
//                                                       store(flags[worker], 1, release, device);
//                                                   } else {
//                                                       for (CTAs with other steps of the tile, the last one first) {
//                                                           while (load(flags[from], acquire, device) == 0) {}
//                                                           acc += slices[from, ..];
//                                                           store(flags[from], 0, relaxed, device);
//                                                       }
//                                                       copy(acc, C[..]);
//                                               } } }
//
// A CTA does not wait long: it begins with the tile that it does not finish, and stores its slice before it waits. The
// last slice of a tile is there first, so slices are added from the last one on. Shares are dealt out from the last one
// on, so a CTA waits for CTAs of lower numbers only, which started before it and have stored their slices before they
// wait: so it works where other kernels leave room for few CTAs, even for one at a time. The CTA that has waited for a
// flag clears it, so the next launch finds zeros.
//
// A slice is stored in columns of 8, as the tensor cores leave them in registers: a warp reads and writes whole lines.
//
// CTAs are at different k's at any time, so what they load is in the L2 cache only if nothing else pushes it out. Tiles
// come in lanes, rows of them or columns, whichever divide the CTAs: then each lane has as many CTAs, those of
// different lanes are at the same k of the same tiles across, and read one of the two matrices together. (1920 x 1920 x
// 6144 on an H200, 15 rows: rows one after the other read 224 MB from memory, 12 columns of 160 56 MB, and take a fifth
// less.)
//
// Declined: other forms of the loop and before it; trip counts that depend on the tile or on data; statements behind
// the loop that use what the last step has left in shared memory. A product without steps is one share a tile, of no
// step.
#include "passes/tile/stream_k.h"
#include "ir/build.h"
#include "ir/query.h"
#include "ir/rewrite.h"
#include "ir/schedule.h"
#include "passes/analysis/util.h"
#include "passes/grid/workspace.h"
#include "passes/tile/k_loop.h"
#include "support/numbers.h"
#include "target/target.h"

typedef struct Stream {
    Arena *arena;
    Stmt *grid;
    KLoop k;
    Expr *steps;   // of a tile, in terms of the kernel's dims and parameters
    Span loc;
    Buf *slices, *flags;
    Expr *ctas, *worker;
    Expr *workers, *rows, *columns, *each, *total;   // in 32 bits; `each`: steps of a tile, at least 1
    Expr *tile, *first, *count;   // of the share, in 32 bits: `count` steps of the tile from `first` on
} Stream;

// ---- the form ----

// With the values of the names before it; NULL: it depends on the tile, or on data.
static Expr *steps_of(Arena *arena, const Func *kernel, const Block *body, int loop) {
    Subst *lets = subst_new(arena);
    FOR_EACH_ITEM (stmt, &kernel->body)
        if (stmt->kind == STMT_LET) subst_let(lets, stmt->let.var, stmt->let.value);
    for (int i = 0; i < loop; i++)
        if (body->items[i]->kind == STMT_LET) subst_let(lets, body->items[i]->let.var, body->items[i]->let.value);
    Expr *steps = subst_expr(lets, body->items[loop]->loop.iters[0].end);
    return !expr_known_at_launch(steps) || !expr_is_pure(steps) ? NULL : steps;
}

// What a step leaves in shared memory is not that of the tile's last step.
static const Stmt *use_of_step(Arena *arena, const Block *body, const KLoop *k) {
    FOR_EACH_EFFECT (effect, arena, body->items[k->loop]) {
        if (effect->access == ACCESS_READ || !effect->region || effect->region->buf == k->acc) continue;
        for (int i = k->loop + 1; i < body->count; i++)
            if (stmt_touches(arena, body->items[i], effect->region->buf)) return body->items[i];
    }
    return NULL;
}

static const char *find_stream(Arena *arena, const Func *kernel, Stream *s) {
    *s = (Stream){.arena = arena, .grid = (Stmt *)func_grid(kernel)};
    const char *why = find_k_loop(s->arena, kernel, &s->k);
    s->loc = s->k.loc;
    if (why) return why;
    const Block *body = &s->grid->grid.body;
    const Stmt *use = use_of_step(arena, body, &s->k);
    s->steps = steps_of(arena, kernel, body, s->k.loop);
    if (!s->steps) return "the trip count of the `pipelined` loop depends on the tile or on data";
    if (s->k.acc->rank != 2) return "the accumulator has no two dims";
    if (grid_cluster(s->grid) > 1) return "the CTAs of a cluster are at the same k of neighbouring tiles: leave it out";
    if (use) s->loc = use->loc;
    return use ? "behind the `pipelined` loop a statement uses what the last step has left in shared memory" : NULL;
}

static void slice_extents(const Buf *acc, int64_t extents[STREAM_SLICE_DIMS]) {
    extents[0] = ceil_div(buf_extent(acc, 1), FRAGMENT_COLUMNS);
    extents[1] = buf_extent(acc, 0);
    extents[2] = FRAGMENT_COLUMNS;
}

bool stream_slice(Arena *arena, const Func *kernel, Type *type, int64_t extents[STREAM_SLICE_DIMS]) {
    Stream s;
    if (kernel_split(kernel).kind != SPLIT_STREAM || find_stream(arena, kernel, &s)) return false;
    *type = s.k.acc->type;
    slice_extents(s.k.acc, extents);
    return true;
}

static const char *find_workspace(const Func *kernel, Stream *s) {
    int64_t extents[STREAM_SLICE_DIMS];
    slice_extents(s->k.acc, extents);
    s->slices = kernel_workspace(kernel, WORKSPACE_SLICES);
    s->flags = kernel_workspace(kernel, WORKSPACE_FLAGS);
    bool fits = s->slices && s->flags && s->slices->rank == 1 + STREAM_SLICE_DIMS && s->flags->rank == 1;
    fits = fits && s->slices->type == s->k.acc->type && s->flags->type == TYPE_I32;
    fits = fits && expr_equal(s->slices->shape[0], s->flags->shape[0]);
    for (int i = 0; fits && i < STREAM_SLICE_DIMS; i++) fits = buf_extent(s->slices, 1 + i) == extents[i];
    return fits ? NULL : "its workspace has other shapes: leave it out";
}

// ---- the rewriting ----

static Expr *of_i32(Arena *arena, int64_t value) {
    return e_int_of(arena, TYPE_I32, value);
}

static void push_assume(Stream *s, Expr *condition, Block *out) {
    block_push(s->arena, out, s_assume(s->arena, condition, s->grid->loc));
}

// worker * total / workers: the first step of its share.
static Expr *share_begin(Stream *s, Expr *worker) {
    return e_div(s->arena, e_mul(s->arena, worker, s->total), s->workers);
}

static Expr *push_i32(Stream *s, const char *name, Expr *value, Block *out) {
    return block_let(s->arena, out, name, e_cast(s->arena, TYPE_I32, value), s->grid->loc);
}

static Expr *extent_of(Stream *s, int iter) {
    return iter < s->grid->grid.count ? s->grid->grid.iters[iter].end : e_int(s->arena, 1);
}

static void push_sizes(Stream *s, Var *block, Block *out) {
    Arena *a = s->arena;
    Expr *ctas = s->ctas;
    Span loc = s->grid->loc;
    s->worker = block_let(a, out, "worker", e_sub(a, e_sub(a, ctas, e_int(a, 1)), e_var(a, block)), loc);
    push_assume(s, e_and(a, e_ge(a, s->worker, e_int(a, 0)), e_lt(a, s->worker, ctas)), out);
    s->rows = push_i32(s, "rows", extent_of(s, 0), out);
    s->columns = push_i32(s, "columns", extent_of(s, 1), out);
    s->each = push_i32(s, "steps", e_max(a, s->steps, e_int(a, 1)), out);
    s->total = block_let(a, out, "total", e_mul(a, e_mul(a, s->rows, s->columns), s->each), loc);
    s->workers = push_i32(s, "workers", ctas, out);
}

// The names of the grid, of the share's tile. Lanes are rows if these divide the CTAs.
static void push_names(Stream *s, Expr *by_rows, Block *out) {
    Arena *a = s->arena;
    Expr *of_row = e_select(a, by_rows, e_div(a, s->tile, s->columns), e_mod(a, s->tile, s->rows));
    Expr *of_column = e_select(a, by_rows, e_mod(a, s->tile, s->columns), e_div(a, s->tile, s->rows));
    Expr *values[] = {of_row, of_column};
    for (int i = 0; i < s->grid->grid.count; i++) {
        const Iter *iter = &s->grid->grid.iters[i];
        Expr *name = e_var(a, iter->var);
        iter->var->kind = VAR_LET;
        block_push(a, out, s_let(a, iter->var, e_cast(a, TYPE_I64, values[i])));
        push_assume(s, e_and(a, e_ge(a, name, e_int(a, 0)), e_lt(a, name, iter->end)), out);
    }
}

static void push_share(Stream *s, Expr *at, Expr *end, Expr *by_rows, Block *out) {
    Arena *a = s->arena;
    Span loc = s->grid->loc;
    Expr *here = block_let(a, out, "here", at, loc), *zero = of_i32(a, 0);
    push_assume(s, e_and(a, e_ge(a, here, zero), e_lt(a, here, s->total)), out);
    s->tile = block_let(a, out, "tile", e_div(a, here, s->each), loc);
    s->first = block_let(a, out, "first", e_sub(a, here, e_mul(a, s->tile, s->each)), loc);
    s->count = block_let(a, out, "count", e_min(a, e_sub(a, s->each, s->first), e_sub(a, end, here)), loc);
    push_assume(s, e_and(a, e_ge(a, s->first, zero), e_lt(a, zero, s->count)), out);
    push_names(s, by_rows, out);
}

// The steps from `first` on; none where the product has none.
static void push_loop(Stream *s, const Stmt *loop, Block *out) {
    Arena *a = s->arena;
    Stmt *own = clone_stmt(a, NULL, loop);
    Iter *iter = &own->loop.iters[0];
    Var *step = var_new(a, iter->var->name, VAR_ITER, TYPE_I64, iter->var->loc);
    Subst *subst = subst_new(a);
    subst_var(subst, iter->var, e_add(a, e_cast(a, TYPE_I64, s->first), e_var(a, step)));
    Block body = {0};
    clone_block(a, subst, &own->loop.body, &body);
    own->loop.body = body;
    iter->var = step;
    iter->end = e_select(a, e_lt(a, e_int(a, 0), s->steps), e_cast(a, TYPE_I64, s->count), e_int(a, 0));
    block_push(a, out, own);
}

// `parallel (i in rows, j in columns)` over the accumulator and the slice of a CTA: slices[cta, j / 8, i, j % 8].
static void push_elements(Stream *s, Expr *cta, bool adds, Block *out) {
    Arena *a = s->arena;
    Buf *acc = s->k.acc;
    Var *i = var_new(a, "i", VAR_ITER, TYPE_I64, s->grid->loc), *j = var_new(a, "j", VAR_ITER, TYPE_I64, s->grid->loc);
    Stmt *loop = s_for(a, LOOP_PARALLEL, i, e_int(a, 0), acc->shape[0]);
    iter_insert(a, &loop->loop.iters, &loop->loop.count, 1, iter_new(a, j, acc->shape[1]));
    loop->loc = s->grid->loc;
    Expr *element[] = {e_var(a, i), e_var(a, j)};
    Expr *place[] = {cta, e_over(a, element[1], FRAGMENT_COLUMNS), element[0], e_rem(a, element[1], FRAGMENT_COLUMNS)};
    Expr *value = e_load(a, acc, COUNT_OF(element), element);
    Expr *sum = adds ? e_add(a, value, e_load(a, s->slices, COUNT_OF(place), place)) : NULL;
    block_push(a, &loop->loop.body,
               adds ? s_store(a, acc, COUNT_OF(element), element, sum)
                    : s_store(a, s->slices, COUNT_OF(place), place, value));
    block_push(a, out, loop);
}

static void push_flag(Stream *s, Expr *cta, int value, const char *order, Block *out) {
    Arena *a = s->arena;
    BLOCK_CALL(a, out, s->grid->loc, OP_STORE, arg_element(a, s->flags, cta), arg_value(of_i32(a, value)),
               arg_name(order), arg_name("device"));
}

static void push_wait(Stream *s, Expr *cta, Block *out) {
    Arena *a = s->arena;
    Stmt *wait = stmt_new(a, STMT_WHILE, s->grid->loc);
    Expr *flag = E_CALL(a, OP_LOAD, arg_element(a, s->flags, cta), arg_name("acquire"), arg_name("device"));
    wait->while_.condition = e_eq(a, flag, of_i32(a, 0));
    block_push(a, out, wait);
}

// What other CTAs have of the tile, from the one with its last step on. CTAs without a step have nothing.
static void push_sums(Stream *s, Block *out) {
    Arena *a = s->arena;
    Span loc = s->grid->loc;
    Expr *stop = block_let(a, out, "stop", e_mul(a, e_add(a, s->tile, of_i32(a, 1)), s->each), loc);
    Var *next = var_new(a, "next", VAR_MUTABLE, TYPE_I32, loc);
    Expr *last = e_sub(a, e_mul(a, stop, s->workers), of_i32(a, 1));
    block_push(a, out, s_var(a, next, e_div(a, last, s->total)));
    Stmt *loop = stmt_new(a, STMT_WHILE, loc);
    loop->while_.condition = e_lt(a, e_cast(a, TYPE_I32, s->worker), e_var(a, next));
    block_push(a, out, loop);
    Block *body = &loop->while_.body;
    Expr *from = block_let(a, body, "from", e_var(a, next), loc), *cta = e_cast(a, TYPE_I64, from);
    push_assume(s, e_and(a, e_ge(a, from, of_i32(a, 0)), e_lt(a, cta, s->ctas)), body);
    Expr *after = share_begin(s, e_add(a, from, of_i32(a, 1)));
    Block *some = block_if(a, body, e_lt(a, share_begin(s, from), after));
    push_wait(s, cta, some);
    push_elements(s, cta, true, some);
    push_flag(s, cta, 0, "relaxed", some);
    block_push(a, body, s_assign(a, next, e_sub(a, e_var(a, next), of_i32(a, 1))));
}

static void push_rest(Stream *s, const Block *body, Block *out) {
    Arena *a = s->arena;
    Stmt *hands = s_if(a, e_lt(a, of_i32(a, 0), s->first));
    push_elements(s, s->worker, false, &hands->if_.then);
    push_flag(s, s->worker, 1, "release", &hands->if_.then);
    push_sums(s, &hands->if_.otherwise);
    for (int i = s->k.loop + 1; i < body->count; i++)
        if (body->items[i]->kind != STMT_DECL) block_push(a, &hands->if_.otherwise, body->items[i]);
    block_push(a, out, hands);
}

// Numbers of steps and CTAs fit 32 bits.
static void add_condition(Stream *s, Func *kernel) {
    Arena *a = s->arena;
    Expr *total = e_mul(a, grid_tiles(a, s->grid), e_max(a, s->steps, e_int(a, 1)));
    Expr *most = e_mul(a, total, e_add(a, s->ctas, e_int(a, 1)));
    kernel->when = e_both(a, kernel->when, e_lt(a, most, e_int(a, (int64_t)INT32_MAX + 1)));
}

static void split_kernel(Stream *s, Func *kernel) {
    Arena *a = s->arena;
    Span loc = s->grid->loc;
    Block out = {0}, body = s->grid->grid.body;
    Var *block = var_new(a, "block", VAR_ITER, TYPE_I64, loc), *at = var_new(a, "at", VAR_MUTABLE, TYPE_I32, loc);
    s->ctas = s->slices->shape[0];
    add_condition(s, kernel);
    push_sizes(s, block, &out);
    Expr *worker = e_cast(a, TYPE_I32, s->worker);
    Expr *begin = block_let(a, &out, "begin", share_begin(s, worker), loc);
    Expr *end = block_let(a, &out, "end", share_begin(s, e_add(a, worker, of_i32(a, 1))), loc);
    Expr *rest = e_mod(a, s->workers, e_max(a, s->rows, of_i32(a, 1)));
    Expr *by_rows = block_let(a, &out, "by_rows", e_eq(a, rest, of_i32(a, 0)), loc);
    block_push(a, &out, s_var(a, at, begin));
    Stmt *shares = stmt_new(a, STMT_WHILE, loc);
    shares->while_.condition = e_lt(a, e_var(a, at), end);
    Block *share = &shares->while_.body;
    push_share(s, e_var(a, at), end, by_rows, share);
    for (int i = 0; i < body.count; i++)
        if (i < s->k.loop || body.items[i]->kind == STMT_DECL) block_push(a, share, body.items[i]);
    push_loop(s, body.items[s->k.loop], share);
    block_push(a, share, s_assign(a, at, e_add(a, e_var(a, at), s->count)));
    push_rest(s, &body, share);
    block_push(a, &out, shares);
    s->grid->grid.body = out;
    s->grid->grid.count = 0;
    iter_insert(a, &s->grid->grid.iters, &s->grid->grid.count, 0, iter_new(a, block, s->ctas));
    drop_cluster_shapes(s->grid);
    set_order(a, s->grid, (TileOrder){0});
    set_claim(a, s->grid, (TileClaim){0});
}

// In place. Why not; NULL: it is done.
static const char *split_stream(Arena *arena, Func *kernel, Stream *s) {
    const char *why = find_stream(arena, kernel, s);
    if (!why) why = find_workspace(kernel, s);
    if (!why) split_kernel(s, kernel);
    return why;
}

const Func *as_streamed(Arena *arena, const Func *kernel) {
    Stream s;
    if (kernel_split(kernel).kind != SPLIT_STREAM) return kernel;
    Func *func = clone_func(arena, kernel);
    add_workspace_params(arena, func);
    set_split(arena, func, (TileSplit){0});
    return split_stream(arena, func, &s) ? kernel : func;
}

bool pass_stream_k(PassContext *context, Func *kernel) {
    Stream s;
    if (kernel_split(kernel).kind != SPLIT_STREAM) return false;
    set_split(context->arena, kernel, (TileSplit){0});
    const char *why = split_stream(context->arena, kernel, &s);
    if (why) REMARK(context, s.loc, T_GRID_HINT, "@split", why);
    return true;
}
