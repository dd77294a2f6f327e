// Im2col views: `im2col(X, window(positions, taps, stride = 1, padding = 0, dilation = 1), ...)` in front of brackets.
#include "frontend/sema.h"
#include "ir/rewrite.h"
#include <string.h>

typedef struct Given {   // the arguments of a window, by place or by name
    const Node *positions, *taps, *stride, *padding, *dilation;
} Given;

bool is_im2col(const Node *node) {
    return node->kind == N_CALL && strcmp(node->text, "im2col") == 0;
}

static const Node **given_named(Given *given, const char *name) {
    const struct {
        const char *name;
        const Node **at;
    } names[] = {{"positions", &given->positions},
                 {"taps", &given->taps},
                 {"stride", &given->stride},
                 {"padding", &given->padding},
                 {"dilation", &given->dilation}};
    for (int i = 0; i < COUNT_OF(names); i++)
        if (strcmp(names[i].name, name) == 0) return names[i].at;
    return NULL;
}

static bool take_window(Sema *s, const Node *node, Given *given) {
    bool fine = node->kind == N_CALL && strcmp(node->text, "window") == 0;
    int next = 0;
    const char *const places[] = {"positions", "taps"};
    for (int i = 0; fine && i < node->count; i++) {
        const Node *arg = node->kids[i];
        bool named = arg->kind == N_NAMED;
        const Node **at = named                     ? given_named(given, arg->text)
                          : next < COUNT_OF(places) ? given_named(given, places[next++])
                                                    : NULL;
        fine = at && !*at;
        if (fine) *at = named ? arg->kids[0] : arg;
    }
    fine = fine && given->positions && given->taps;
    if (!fine) diag(s->sink, node->span, T_IM2COL, "has something other than window(positions, taps, ...)");
    return fine;
}

// A `let` before the grid is what it was given: the launch knows it too.
static Expr *let_value(Mapper *mapper, Expr *expr) {
    const Sema *s = mapper->user;
    if (expr->kind != EXPR_VAR || expr->var->kind != VAR_LET) return expr;
    for (int i = 0; i < s->func->body.count; i++) {
        const Stmt *stmt = s->func->body.items[i];
        if (stmt->kind == STMT_LET && stmt->let.var == expr->var) return map_expr(mapper, stmt->let.value);
    }
    return expr;
}

static bool window_of(Sema *s, const Node *node, Window *out) {
    enum { MOST = 1 << 20 };
    Given given = {0};
    *out = (Window){.stride = 1, .dilation = 1};
    if (!take_window(s, node, &given)) return false;
    Mapper mapper = {.arena = s->arena, .expr = let_value, .user = s};
    out->positions = map_expr(&mapper, index_expression(s, given.positions));
    return constant_int(s, given.taps, "a window's number of taps", 1, MOST, &out->taps) &&
           (!given.stride || constant_int(s, given.stride, "a window's stride", 1, MOST, &out->stride)) &&
           (!given.padding || constant_int(s, given.padding, "a window's padding", -MOST, MOST, &out->padding)) &&
           (!given.dilation || constant_int(s, given.dilation, "a window's dilation", 1, MOST, &out->dilation));
}

static bool has_layout(Sema *s, const Node *name) {
    const Symbol *symbol = find(s, name->text);
    return symbol->kind == SYMBOL_VIEW && symbol->view->mapped;
}

Buf *im2col_view(Sema *s, const Node *node) {
    Window windows[MOST_WINDOWS];
    Buf *tensor = node->count > 0 ? buffer_named(s, node->kids[0]) : NULL;
    int count = node->count - 1;
    const char *why = NULL;
    if (node->count == 0) why = "has no tensor";
    else if (!tensor) return NULL;
    else if (tensor->scope != SCOPE_GLOBAL || !tensor->is_param) why = "is of something other than a tensor parameter";
    else if (has_layout(s, node->kids[0])) why = "is of a tensor with a layout";
    else if (count < 1 || count > MOST_WINDOWS || tensor->rank != count + 2)
        why = "has not a window for each dim of its tensor but the first and the last";
    if (why) {
        diag(s->sink, node->span, T_IM2COL, why);
        return NULL;
    }
    for (int i = 0; i < count; i++)
        if (!window_of(s, node->kids[i + 1], &windows[i])) return NULL;
    Buf *view = im2col_new(s->arena, tensor, count, windows, place_of(s, node->span));
    if (!(why = im2col_problem(view))) return view;
    diag(s->sink, node->span, T_IM2COL, why);
    return NULL;
}

void resolve_view(Sema *s, const Node *param, Attr *tma) {
    for (int i = 0; param->attrs && i < param->attrs->count; i++) {
        const Node *attr = param->attrs->kids[i];
        if (strcmp(attr->text, attr_name(ATTR_TMA)) == 0 && attr->count > 0 && is_im2col(attr->kids[0]))
            tma->args[0].view = im2col_view(s, attr->kids[0]);
    }
}
