// Names of a syntax tree, by the scopes of the language (names.c has them for elaboration).
#include "frontend/outline.h"
#include "frontend/syntax.h"
#include <string.h>

typedef struct OutlineScope {
    const struct OutlineScope *outer;
    StrMap *names;   // name -> index of its declaration + 1
    Span span;       // line 0: the file
} OutlineScope;

typedef struct Walk {
    Arena *arena;
    Outline *out;
    OutlineScope *scope;
    StrMap *items;   // name of a kernel or program -> its OutlineScope, for calls, references and tests
} Walk;

// ---- scopes ----
static OutlineScope *open_scope(Walk *w, const OutlineScope *outer, Span span) {
    OutlineScope *scope = NEW(w->arena, OutlineScope);
    *scope = (OutlineScope){outer, strmap_new(w->arena), span};
    w->scope = scope;
    return scope;
}

static void add_use(Walk *w, Span span, intptr_t number) {
    NameUse use = {span, (int)number - 1};
    if (number) vec_push(w->arena, &w->out->uses, use);
}

static void declare_unused(Walk *w, NameKind kind, const char *text, Span span) {
    DeclaredName name = {kind, text, span, w->scope->span};
    vec_push(w->arena, &w->out->declared, name);
    strmap_put(w->scope->names, text, (void *)(intptr_t)w->out->declared.count);
}

static void declare_name(Walk *w, NameKind kind, const char *text, Span span) {
    declare_unused(w, kind, text, span);
    add_use(w, span, w->out->declared.count);
}

static intptr_t look_up(const OutlineScope *scope, const char *text) {
    for (; scope; scope = scope->outer) {
        intptr_t number = (intptr_t)strmap_get(scope->names, text);
        if (number) return number;
    }
    return 0;
}

static void use_name(Walk *w, const char *text, Span span) {
    add_use(w, span, look_up(w->scope, text));
}

// From the first place to the end of the second.
static Span join(Span first, Span last) {
    first.end_line = last.end_line;
    first.end_column = last.end_column;
    return first;
}

// ---- statements and expressions ----
static void walk(Walk *w, const Node *node);

static void walk_all(Walk *w, const Node *node) {
    for (int i = 0; node && i < node->count; i++) walk(w, node->kids[i]);
    if (node && node->attrs) walk_all(w, node->attrs);
}

static void walk_within(Walk *w, Span span, const Node *node) {
    OutlineScope *outer = w->scope;
    open_scope(w, outer, span);
    walk_all(w, node);
    w->scope = outer;
}

static void declare_behind(Walk *w, NameKind kind, const Node *node) {
    walk_all(w, node);
    declare_name(w, kind, node->text, node->span);
}

// `N = 64` of a call or a test names what the kernel declares.
static void walk_binding(Walk *w, const OutlineScope *item, const Node *node) {
    if (item) add_use(w, node->span, (intptr_t)strmap_get(item->names, node->text));
    walk_all(w, node);
}

static void walk_call(Walk *w, const Node *node) {
    const OutlineScope *item = strmap_get(w->items, node->text);
    use_name(w, node->text, ast_name_span(node));
    for (int i = 0; i < node->count; i++) {
        const Node *kid = node->kids[i];
        if (kid && kid->kind == N_NAMED) walk_binding(w, item, kid);
        else walk(w, kid);
    }
}

// `slot.As`: a tile of the channel, which has its own name.
static void walk_dot(Walk *w, const Node *node) {
    walk(w, node->kids[0]);
    Span span = node->span;
    span.line = span.end_line;
    span.column = span.end_column - (int)strlen(node->text);
    intptr_t number = look_up(w->scope, node->text);
    if (number && w->out->declared.items[number - 1].kind == NAME_BUFFER) add_use(w, span, number);
}

static void walk_role(Walk *w, const Node *node) {
    enum { NAME, THREADS, REGISTERS, BODY, COUNT, INDEX };
    OutlineScope *outer = w->scope;
    declare_name(w, NAME_ROLE, node->text, node->kids[NAME]->span);
    open_scope(w, outer, join(node->span, node->kids[BODY]->span));
    walk(w, node->kids[THREADS]);
    walk(w, node->kids[REGISTERS]);
    walk(w, ast_kid(node, COUNT));
    const Node *index = ast_kid(node, INDEX);
    if (index) declare_name(w, NAME_ITERATOR, index->text, index->span);
    walk(w, node->kids[BODY]);
    w->scope = outer;
}

static void walk_channel(Walk *w, const Node *node) {
    const Node *tiles = node->kids[0];
    if (tiles && tiles->kind == N_DECLS) walk(w, tiles);
    else walk_all(w, tiles);
    walk(w, node->kids[1]);
    declare_name(w, NAME_CHANNEL, node->text, node->span);
}

static const Node *last_block(const Node *node) {
    for (int i = node->count - 1; i >= 0; i--)
        if (node->kids[i] && node->kids[i]->kind == N_BLOCK) return node->kids[i];
    return node;
}

static void walk(Walk *w, const Node *node) {
    if (!node) return;
    switch (node->kind) {
    case N_NAME: use_name(w, node->text, node->span); break;
    case N_CALL: walk_call(w, node); break;
    case N_DOT: walk_dot(w, node); break;
    case N_CONST: declare_behind(w, NAME_CONST, node); break;
    case N_TUNABLE: declare_behind(w, NAME_TUNABLE, node); break;
    case N_DECL: declare_behind(w, NAME_BUFFER, node); break;
    case N_LET:
    case N_VAR: declare_behind(w, NAME_VARIABLE, node); break;
    case N_ITER: declare_behind(w, NAME_ITERATOR, node); break;
    case N_ROLE: walk_role(w, node); break;
    case N_CHANNEL: walk_channel(w, node); break;
    case N_BLOCK: walk_within(w, node->span, node); break;
    case N_GRID:
    case N_LOOP:
    case N_THREAD: walk_within(w, join(node->span, last_block(node)->span), node); break;
    default: walk_all(w, node); break;
    }
}

// ---- items ----
// A bare name in the dims or strides of a parameter that means nothing else is a dim. The walk over the parameter finds it as a use.
static void declare_dims(Walk *w, const Node *list) {
    for (int i = 0; list && i < list->count; i++) {
        const Node *dim = list->kids[i];
        if (dim->kind == N_NAME && !look_up(w->scope, dim->text)) declare_unused(w, NAME_DIM, dim->text, dim->span);
    }
}

// Coordinates are names in the indices of the layout alone; their extents are the dims.
static void walk_param(Walk *w, const Node *param) {
    const Node *coordinates = ast_kid(param, 3), *map = ast_kid(param, 4);
    OutlineScope *outer = w->scope;
    for (int i = 0; i < 3; i++) walk(w, ast_kid(param, i));
    if (coordinates && map) {
        open_scope(w, outer, join(coordinates->span, map->span));
        for (int k = 0; k < coordinates->count; k++)
            declare_name(w, NAME_ITERATOR, coordinates->kids[k]->text, coordinates->kids[k]->span);
        walk_all(w, map);
        w->scope = outer;
    }
    walk_all(w, param->attrs);
    declare_name(w, NAME_PARAMETER, param->text, param->span);
}

static void walk_params(Walk *w, const Node *params) {
    for (int i = 0; i < params->count; i++) {
        declare_dims(w, ast_kid(params->kids[i], 1));
        declare_dims(w, ast_kid(params->kids[i], 2));
    }
    for (int i = 0; i < params->count; i++) walk_param(w, params->kids[i]);
}

static void walk_launchable(Walk *w, const Node *node) {
    strmap_put(w->items, node->text, open_scope(w, w->scope, join(node->span, node->kids[3]->span)));
    const Node *names = node->kids[0];
    for (int i = 0; i < names->count; i++) declare_behind(w, NAME_COMPILE_TIME, names->kids[i]);
    walk_params(w, node->kids[1]);
    walk(w, node->kids[2]);
    walk_all(w, node->kids[3]);   // in the same scope: tests and calls name tunables
    if (node->attrs) walk_all(w, node->attrs);
}

static void walk_inline(Walk *w, const Node *node) {
    open_scope(w, w->scope, join(node->span, last_block(node)->span));
    walk_params(w, node->kids[0]);
    for (int i = 1; i < node->count; i++) walk(w, node->kids[i]);
}

static void walk_test(Walk *w, const Node *node) {
    OutlineScope *item = strmap_get(w->items, node->text);
    use_name(w, node->text, node->span);
    for (int i = 0; i < node->kids[0]->count; i++) walk_binding(w, item, node->kids[0]->kids[i]);
    if (item) w->scope = item;
    walk(w, node->kids[1]);
    walk(w, node->kids[2]);
}

static void walk_reference(Walk *w, const Node *node) {
    OutlineScope *item = strmap_get(w->items, node->text);
    use_name(w, node->text, node->span);
    if (item) w->scope = item;
    walk(w, node->kids[0]);
}

static void declare_item(Walk *w, const Node *node) {
    switch (node->kind) {
    case N_KERNEL: declare_name(w, NAME_KERNEL, node->text, node->span); break;
    case N_PROGRAM: declare_name(w, NAME_PROGRAM, node->text, node->span); break;
    case N_FN: declare_name(w, NAME_FN, node->text, node->span); break;
    case N_MACRO: declare_name(w, NAME_MACRO, node->text, node->span); break;
    case N_CONST: declare_name(w, NAME_CONST, node->text, node->span); break;
    default: break;
    }
}

static void walk_item(Walk *w, const Node *node) {
    OutlineScope *file = w->scope;
    switch (node->kind) {
    case N_KERNEL:
    case N_PROGRAM: walk_launchable(w, node); break;
    case N_FN:
    case N_MACRO: walk_inline(w, node); break;
    case N_REFERENCE: walk_reference(w, node); break;
    case N_TEST: walk_test(w, node); break;
    default: walk_all(w, node); break;
    }
    w->scope = file;
}

const Outline *syntax_outline(const Syntax *syntax, Arena *arena) {
    Outline *out = NEW(arena, Outline);
    *out = (Outline){0};
    Walk w = {.arena = arena, .out = out, .items = strmap_new(arena)};
    open_scope(&w, NULL, (Span){0});
    for (int i = 0; i < syntax->items.count; i++) declare_item(&w, syntax->items.items[i].node);
    for (int i = 0; i < syntax->items.count; i++) walk_item(&w, syntax->items.items[i].node);
    return out;
}
