// Layouts of fragments that depend on instructions, expressions over layouts, and one view of a fragment per loop.
#include "passes/layout/fragment.h"
#include "ir/build.h"
#include "ir/query.h"
#include "passes/analysis/tile_loop.h"
#include "passes/analysis/util.h"
#include "passes/select/tma.h"
#include <string.h>

// ---- tensor cores ----

const Layout *instruction_layout(Arena *arena, const char *text) {
    const char *why = NULL;
    const Layout *layout = layout_parse(arena, text, 0, &why);
    EXPECT(arena_failure(arena), layout, "the layout %s of an instruction: %s", text, why);
    return layout;
}

const Layout *fragment_of_instruction(Arena *arena, const char *instruction, int64_t rows, int64_t columns,
                                      int64_t warps_m, int64_t warps_n, int64_t threads) {
    int64_t shape[] = {rows, columns}, warps[] = {warps_m, warps_n};
    return tv_of_instruction(arena, instruction_layout(arena, instruction), shape, warps, threads);
}

const Layout *fragment_wgmma_a(Arena *arena, const Func *kernel, const Stmt *stmt, const WgmmaInfo *info,
                               int64_t warpgroups, int64_t threads) {
    GemmOp gemm = gemm_of(stmt);
    const char *instruction = wgmma_pairs(arena, kernel, stmt, info) ? info->a_paired : info->a_layout;
    return fragment_of_instruction(arena, instruction, region_extent(gemm.acc, 0), buf_extent(gemm.a->buf, 1),
                                   warpgroups, 1, threads);
}

const Layout *fragment_mma_a(Arena *arena, const Stmt *stmt, const MmaInfo *info, int64_t warps_m, int64_t warps_n,
                             int64_t threads) {
    const Region *a = gemm_of(stmt).a;
    if (warps_n != 1 || !region_has_columns(a, info->k) || region_extent(a, 1) % info->k) return NULL;
    int64_t rows = buf_extent(a->buf, 0), columns = buf_extent(a->buf, 1);
    if (columns % info->k) return NULL;
    return fragment_of_instruction(arena, info->a_layout, rows, columns, warps_m, 1, threads);
}

// ---- digits as expressions ----

// The digit of `index` with stride `weight`; the slowest digit (of `total`) needs no remainder.
static Expr *digit_of(Arena *arena, Expr *index, int64_t weight, int64_t extent, int64_t total) {
    Expr *digit = e_over(arena, index, weight);
    return weight * extent < total ? e_rem(arena, digit, extent) : digit;
}

static bool is_used(const LayoutMode *mode, int rank, const int *dims) {
    for (int d = 0; d < rank; d++)
        if (mode->stride != 0 && dims[d] == mode->out) return true;
    return false;
}

Expr *fragment_projected_value(Arena *arena, const Layout *map, int rank, const int *dims, Expr *value) {
    Expr *slot = e_int(arena, 0);
    int64_t weight = 1, place = 1, total = tv_values(map);
    for (int i = 0; i < map->in[TV_VALUE].count; i++) {
        const LayoutMode *mode = &map->in[TV_VALUE].modes[i];
        if (is_used(mode, rank, dims)) {
            Expr *digit = digit_of(arena, value, weight, mode->extent, total);
            slot = e_add(arena, slot, e_times(arena, digit, place));
            place *= mode->extent;
        }
        weight *= mode->extent;
    }
    return place == total ? value : slot;   // all digits kept, in order: the same number
}

Expr *fragment_first_replica(Arena *arena, const Layout *map, Expr *thread) {
    Expr *first = NULL;
    int64_t weight = 1;
    for (int i = 0; i < map->in[TV_THREAD].count; i++) {
        const LayoutMode *mode = &map->in[TV_THREAD].modes[i];
        if (mode->stride == 0) {
            Expr *digit = digit_of(arena, thread, weight, mode->extent, tv_threads(map));
            first = e_both(arena, first, e_eq(arena, digit, e_int(arena, 0)));
        }
        weight *= mode->extent;
    }
    return first;
}

static bool same_modes(const LayoutInput *a, const LayoutInput *b) {
    bool same = a->count == b->count;
    for (int i = 0; i < a->count && same; i++)
        same = a->modes[i].extent == b->modes[i].extent && a->modes[i].stride == b->modes[i].stride &&
               (a->modes[i].stride == 0 || a->modes[i].out == b->modes[i].out);
    return same;
}

// A slice of a digit: `extent` of its steps, from `stride` on.
typedef struct Piece {
    int64_t extent, weight;   // weight: of the slice in the value
} Piece;

// The slice of a digit of `values` that continues from `stride`, at most `extent` steps. Extent 0: none.
static Piece piece_from(const LayoutInput *values, int64_t stride, int out, int64_t extent) {
    int64_t weight = 1;
    for (int i = 0; i < values->count; weight *= values->modes[i++].extent) {
        const LayoutMode *mode = &values->modes[i];
        if (mode->out != out || mode->stride == 0 || stride % mode->stride != 0) continue;
        int64_t before = stride / mode->stride;
        if (before >= mode->extent || mode->extent % before != 0) continue;
        int64_t rest = mode->extent / before;
        return (Piece){rest < extent ? rest : extent, weight * before};
    }
    return (Piece){0};
}

Expr *fragment_same_thread(Arena *arena, const Layout *seen, const Layout *own, Expr *value) {
    Expr *slot = e_int(arena, 0);
    int64_t place = 1, total = tv_values(seen);
    if (!same_modes(&seen->in[TV_THREAD], &own->in[TV_THREAD]) || tv_values(own) > total) return NULL;   // seen: padded
    for (int i = 0; i < own->in[TV_VALUE].count; i++) {
        LayoutMode left = own->in[TV_VALUE].modes[i];
        while (left.extent > 1) {
            if (left.stride == 0) return NULL;
            Piece piece = piece_from(&seen->in[TV_VALUE], left.stride, left.out, left.extent);
            if (piece.extent < 2 || left.extent % piece.extent != 0) return NULL;
            Expr *digit = digit_of(arena, value, piece.weight, piece.extent, total);
            slot = e_add(arena, slot, e_times(arena, digit, place));
            place *= piece.extent;
            left.extent /= piece.extent;
            left.stride *= piece.extent;
        }
    }
    return slot;
}

// ---- one view of a fragment per loop ----
//
// A loop may read a fragment in several views: v[i, j], transposed as v[j, i], one row as v[0, j]. A thread-value
// layout makes one of them the executing thread's own element. Each other view gets a fragment of its own, copied
// before the loop. Layout inference then gives it the layout that the loop needs, and the copy becomes the conversion:
//
//     parallel (i in 8, j in 8) w[i, j] = v[i, j] + v[j, i];
//     ~>  fragment v_1: f32[8, 8];
//         copy(v, v_1);
//         parallel (i in 8, j in 8) w[i, j] = v[i, j] + v_1[j, i];
//
// The view in which the loop writes the fragment keeps the name, else the first view read.

typedef struct View View;
struct View {
    FragmentDigits at;
    Buf *buf;   // the fragment itself for the first view
    View *next;
};

typedef struct Views {
    Arena *arena;
    TileLoop loop;
    Map *of;        // fragment -> first View
    Block before;   // declarations and copies
} Views;

static View *add_view(Views *views, View *after, Buf *buf, const FragmentDigits *at) {
    View *view = NEW(views->arena, View);
    view->buf = buf;
    view->at = *at;
    if (after) after->next = view;
    else map_put(views->of, buf, view);
    return view;
}

static Buf *copy_before(Views *views, Buf *buf) {
    Arena *arena = views->arena;
    Buf *copy = buf_new(arena, buf->name, SCOPE_FRAGMENT, buf->type, buf->rank, buf->shape, views->loop.origin->loc);
    block_push(arena, &views->before, s_decl(arena, copy));
    BLOCK_CALL(arena, &views->before, views->loop.origin->loc, OP_COPY, arg_region(region_whole(arena, buf)),
               arg_region(region_whole(arena, copy)));
    return copy;
}

static void store_views(Views *views) {
    FragmentDigits at;
    FOR_EACH_STMT (stmt, &views->loop.origin->loop.body) {
        if (stmt->kind != STMT_STORE || stmt->store.buf->scope != SCOPE_FRAGMENT) continue;
        Buf *buf = stmt->store.buf;
        if (!map_has(views->of, buf) && fragment_digits(&views->loop, buf, stmt->store.count, stmt->store.indices, &at))
            add_view(views, NULL, buf, &at);
    }
}

static Expr *load_view(Mapper *mapper, Expr *expr) {
    Views *views = mapper->user;
    FragmentDigits at;
    if (expr->kind != EXPR_LOAD || expr->load.buf->scope != SCOPE_FRAGMENT) return expr;
    Buf *buf = expr->load.buf;
    int count = expr->load.count;
    if (!fragment_digits(&views->loop, buf, count, expr->load.indices, &at)) return expr;   // layout inference reports
    View *view = map_get(views->of, buf), *last = NULL;
    if (!view) view = add_view(views, NULL, buf, &at);
    for (; view && !digits_equal(&view->at, &at); view = view->next) last = view;
    if (!view) view = add_view(views, last, copy_before(views, buf), &at);
    return view->buf == buf ? expr : e_load(views->arena, view->buf, count, expr->load.indices);
}

// Reductions, scans and accumulators of products are whole fragments: a part of one, or a transposed one, is copied to
// one of its own before, and back after.
static bool is_view(const Region *region) {
    return region->buf->scope == SCOPE_FRAGMENT && (region->transposed || !region_is_whole(region));
}

// The operand's place is taken by a fragment; the view that it was comes back, NULL if it stays.
static Region *view_taken(Arena *arena, Arg *operand, Span loc, Block *out) {
    Region *view = operand->region;
    int64_t shape[LAYOUT_MAX_RANK];
    if (!is_view(view)) return NULL;
    for (int d = 0; d < region_rank(view); d++) shape[d] = region_extent(view, d);
    Buf *own = buf_new_const(arena, view->buf->name, SCOPE_FRAGMENT, view->buf->type, region_rank(view), shape, loc);
    block_push(arena, out, s_decl(arena, own));
    operand->region = region_whole(arena, own);
    return view;
}

// The operand that reads, if it is a fragment.
static void separate_source(Arena *arena, Stmt *stmt, Arg *src, Block *out) {
    Region *from = view_taken(arena, src, stmt->loc, out);
    if (from) BLOCK_CALL(arena, out, stmt->loc, OP_COPY, arg_region(from), arg_region(src->region));
}

static bool separate_operands(Arena *arena, Stmt *stmt, Block *out) {
    int mark = out->count;
    bool product = is_call(stmt, OP_GEMM);
    Arg *dst = product ? &ARG(stmt, GEMM, acc) : &ARG(stmt, REDUCE_SUM, dst);
    const Expr *accumulate = product         ? ARG(stmt, GEMM, accumulate).value
                             : is_scan(stmt) ? NULL
                                             : reduce_of(stmt).accumulate;
    bool updates = accumulate ? !expr_is_int(accumulate, 0) : product;
    if (!product) separate_source(arena, stmt, &ARG(stmt, REDUCE_SUM, src), out);
    Region *to = view_taken(arena, dst, stmt->loc, out);
    if (to && updates) BLOCK_CALL(arena, out, stmt->loc, OP_COPY, arg_region(to), arg_region(dst->region));
    block_push(arena, out, stmt);
    if (to) BLOCK_CALL(arena, out, stmt->loc, OP_COPY, arg_region(dst->region), arg_region(to));
    return out->count > mark + 1;
}

static void separate_in_stmt(StmtMapper *mapper, Stmt *stmt, Block *out) {
    if (is_reduction(stmt) || is_scan(stmt) || is_call(stmt, OP_GEMM)) {
        mapper->changed |= separate_operands(mapper->arena, stmt, out);
        return;
    }
    if (is_loop(stmt, LOOP_PARALLEL) && stmt->loop.count <= LAYOUT_MAX_RANK) {
        Views views = {.arena = mapper->arena, .of = map_new(mapper->arena), .loop = loop_space(stmt)};
        store_views(&views);
        map_block(&(Mapper){.arena = mapper->arena, .expr = load_view, .user = &views}, &stmt->loop.body);
        block_append(mapper->arena, out, &views.before);
        mapper->changed |= views.before.count > 0;
    }
    block_push(mapper->arena, out, stmt);
}

bool separate_views(PassContext *context, Func *kernel) {
    return rewrite_block(&(StmtMapper){.arena = context->arena, .stmt = separate_in_stmt}, &kernel->body);
}
