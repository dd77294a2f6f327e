// A loop may read a fragment in several ways: v[i, j], transposed as v[j, i], one row of it as v[0, j]. A thread-value
// layout makes one of them the executing thread's own element. Each further way gets a fragment of its own, copied before the
// loop; layout inference then gives it the layout that the loop needs, and the copy becomes the conversion:
//
//     parallel (i in 8, j in 8) w[i, j] = v[i, j] + v[j, i];
//     ~>  fragment v_1: f32[8, 8];
//         copy(v, v_1);
//         parallel (i in 8, j in 8) w[i, j] = v[i, j] + v_1[j, i];
//
// The way in which the loop writes the fragment keeps its name, else the first one read.
#include "passes/layout/fragment_views.h"
#include "ir/build.h"
#include "ir/rewrite.h"
#include "support/map.h"

typedef struct View View;
struct View {
    int dims[LAYOUT_MAX_RANK];   // by dim: which iterator, -1 for a constant
    Buf *buf;                    // the fragment itself for the first view
    View *next;
};

typedef struct Views {
    PassContext *context;
    Arena *arena;
    Stmt *loop;
    Map *of;        // fragment -> first View
    Block before;   // declarations and copies
    bool changed;
} Views;

static int iterator_of(const Stmt *loop, const Expr *index) {
    while (index->kind == EXPR_CAST) index = index->operand;
    for (int i = 0; i < loop->loop.count; i++)
        if (index->kind == EXPR_VAR && index->var == loop->loop.iters[i].var) return i;
    return -1;
}

// False when some index is neither an iterator nor a constant: layout inference reports it.
static bool view_dims(const Views *views, int count, Expr *const *indices, int *dims) {
    for (int d = 0; d < count; d++) {
        int64_t constant;
        dims[d] = iterator_of(views->loop, indices[d]);
        if (dims[d] < 0 && !expr_const(indices[d], &constant)) return false;
    }
    return true;
}

static bool same_dims(const int *a, const int *b, int count) {
    for (int d = 0; d < count; d++)
        if (a[d] != b[d]) return false;
    return true;
}

static View *add_view(Views *views, View *after, Buf *buf, int count, const int *dims) {
    View *view = NEW(views->arena, View);
    view->buf = buf;
    for (int d = 0; d < count; d++) view->dims[d] = dims[d];
    if (after) after->next = view;
    return view;
}

static Buf *copy_before(Views *views, Buf *buf) {
    Arena *arena = views->arena;
    Buf *copy = buf_new(arena, buf->name, SCOPE_FRAGMENT, buf->type, buf->rank, buf->shape, views->loop->loc);
    Arg args[] = {arg_region(region_whole(arena, buf)), arg_region(region_whole(arena, copy))};
    Stmt *made = s_call(arena, OP_COPY, 2, args);
    made->loc = views->loop->loc;
    block_push(arena, &views->before, s_decl(arena, copy));
    block_push(arena, &views->before, made);
    views->changed = true;
    return copy;
}

static bool store_view(Visitor *visitor, Stmt *stmt) {
    Views *views = visitor->user;
    int dims[LAYOUT_MAX_RANK];
    if (stmt->kind != STMT_STORE || stmt->store.buf->scope != SCOPE_FRAGMENT || map_has(views->of, stmt->store.buf))
        return true;
    if (view_dims(views, stmt->store.count, stmt->store.indices, dims))
        map_put(views->of, stmt->store.buf, add_view(views, NULL, stmt->store.buf, stmt->store.count, dims));
    return true;
}

static Expr *load_view(Mapper *mapper, Expr *expr) {
    Views *views = mapper->user;
    int dims[LAYOUT_MAX_RANK], count;
    if (expr->kind != EXPR_LOAD || expr->load.buf->scope != SCOPE_FRAGMENT) return expr;
    Buf *buf = expr->load.buf;
    count = expr->load.count;
    if (!view_dims(views, count, expr->load.indices, dims)) return expr;
    View *view = map_get(views->of, buf), *last = NULL;
    if (!view) map_put(views->of, buf, view = add_view(views, NULL, buf, count, dims));
    for (; view && !same_dims(view->dims, dims, count); view = view->next) last = view;
    if (!view) view = add_view(views, last, copy_before(views, buf), count, dims);
    if (view->buf == buf) return expr;
    Expr *load = e_load(views->arena, view->buf, count, expr->load.indices);
    load->loc = expr->loc;
    return load;
}

static void separate_in_loop(StmtMapper *mapper, Stmt *stmt, Block *out) {
    Views *views = mapper->user;
    if (stmt->kind == STMT_FOR && stmt->loop.kind == LOOP_PARALLEL) {
        views->loop = stmt;
        views->of = map_new(views->arena);
        views->before = (Block){0};
        Visitor stores = {.stmt = store_view, .user = views};
        visit_block(&stores, &stmt->loop.body);
        Mapper loads = {.arena = views->arena, .expr = load_view, .user = views};
        map_block(&loads, &stmt->loop.body);
        block_append(views->arena, out, &views->before);
    }
    block_push(views->arena, out, stmt);
}

bool separate_views(PassContext *context, Func *kernel) {
    Views views = {.context = context, .arena = context->arena};
    StmtMapper mapper = {.arena = context->arena, .stmt = separate_in_loop, .user = &views};
    rewrite_block(&mapper, &kernel->body);
    return views.changed;
}
