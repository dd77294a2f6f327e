// The entry points: from syntax to a module.
#include "frontend/parse.h"
#include "frontend/sema.h"
#include "ir/verify.h"
#include <string.h>

Sema *sema_new(Syntax *syntax, Arena *arena, Failure *failure, DiagSink *sink, const ElaborateOptions *options) {
    Sema *s = NEW(arena, Sema);
    *s = (Sema){.arena = arena, .failure = failure, .sink = sink, .syntax = syntax, .options = options};
    s->naturals = map_new(arena);
    s->tiles = map_new(arena);
    s->held = map_new(arena);
    s->item_done = NEW_ARRAY(arena, bool, syntax->items.count + 1);
    declare_file(s);
    return s;
}

// ---- -D ----
// BM, and gemm.BM for that of one kernel.
static void add_name(Sema *s, const char *kernel, const char *name, StrMap *known) {
    strmap_put(known, name, known);
    strmap_put(known, arena_printf(s->arena, "%s.%s", kernel, name), known);
}

static bool defines_something(Sema *s, const char *name, StrMap *known) {
    for (int i = 0; i < s->syntax->items.count; i++) {
        const Node *node = s->syntax->items.items[i].node;
        if (node->kind == N_CONST) strmap_put(known, node->text, known);
        if (!ast_is_launchable(node)) continue;
        for (int k = 0; k < node->kids[0]->count; k++) add_name(s, node->text, node->kids[0]->kids[k]->text, known);
        const Node *block = node->kids[3];
        for (int b = 0; b < block->count; b++)
            for (int k = 0; block->kids[b]->kind == N_TUNE && k < block->kids[b]->count; k++)
                add_name(s, node->text, block->kids[b]->kids[k]->text, known);
    }
    return strmap_has(known, name);
}

static void check_defines(Sema *s) {
    for (int i = 0; i < s->options->define_count; i++) {
        StrMap *known = strmap_new(s->arena);
        const char *name = s->options->defines[i].name;
        if (defines_something(s, name, known)) continue;
        Diag *d = diag(s->sink, (Span){0}, T_UNKNOWN_DEFINE, name);
        diag_suggest(d, (Span){0}, strmap_nearest(known, name));
    }
}

// ---- the module ----

typedef VEC(const Made *) MadeVec;

// What calls ask for is made before what stands in front of it.
static void insert_variant(Sema *s, MadeVec *variants, const Made *made) {
    vec_push(s->arena, variants, made);
    int at = variants->count - 1;
    for (; at > 0 && variants->items[at - 1]->variant > made->variant; at--)
        variants->items[at] = variants->items[at - 1];
    variants->items[at] = made;
}

// In source order, variants of one name together: the launch tries them in this order.
static void collect_functions(Sema *s) {
    bool *taken = NEW_ARRAY(s->arena, bool, s->made.count + 1);
    for (int item = 0; item < s->syntax->items.count; item++)
        for (int i = 0; i < s->made.count; i++) {
            if (s->made.items[i].item != item || taken[i]) continue;
            MadeVec variants = {0};
            for (int k = i; k < s->made.count; k++) {
                if (taken[k] || strcmp(s->made.items[k].func->name, s->made.items[i].func->name) != 0) continue;
                taken[k] = true;
                insert_variant(s, &variants, &s->made.items[k]);
            }
            for (int v = 0; v < variants.count; v++) vec_push(s->arena, &s->module->funcs, variants.items[v]->func);
        }
}

// Of an imported file only what programs call, and variants of what the file itself declares.
static bool wanted(Sema *s, const SyntaxItem *item) {
    const Syntax *syntax = s->syntax;
    if (s->options->only) return strcmp(item->node->text, s->options->only) == 0;
    for (int i = 0; i < syntax->items.count && item->imported; i++) {
        const SyntaxItem *other = &syntax->items.items[i];
        if (!other->imported && ast_is_launchable(other->node) && strcmp(other->node->text, item->node->text) == 0)
            return true;
    }
    return !item->imported;
}

static void elaborate_all(Sema *s) {
    const Syntax *syntax = s->syntax;
    for (int i = 0; i < syntax->items.count; i++) {
        const SyntaxItem *item = &syntax->items.items[i];
        if (ast_is_launchable(item->node) && wanted(s, item)) elaborate_item(s, i);
    }
    collect_functions(s);
    link_launches(s);
    for (int i = 0; i < syntax->items.count; i++) {
        const SyntaxItem *item = &syntax->items.items[i];
        if (item->node->kind != N_REFERENCE) continue;
        elaborate_reference(s, item->node);
        if (item_named(syntax, item->node->text) < 0)
            diag(s->sink, item->node->span, T_NO_TARGET, "reference", item->node->text);
    }
    elaborate_tests(s);
}

static void unknown_entry(Sema *s, const char *name) {
    Diag *d = diag(s->sink, (Span){0}, T_NO_ENTRY, name);
    diag_suggest(d, (Span){0}, strmap_nearest(s->syntax->launchables, name));
}

// Consts that nothing used are wrong all the same.
static void force_consts(Sema *s) {
    for (int i = 0; i < s->syntax->items.count; i++)
        if (s->syntax->items.items[i].node->kind == N_CONST) find(s, s->syntax->items.items[i].node->text);
}

static Module *elaborate_mode(Syntax *syntax, Arena *arena, Failure *failure, DiagSink *sink,
                              const ElaborateOptions *options, bool verbatim) {
    static const ElaborateOptions none = {0};
    int before = diag_errors(sink);
    Sema *s = sema_new(syntax, arena, failure, sink, options ? options : &none);
    s->verbatim = verbatim;
    s->module = module_new(arena, failure, sink);
    check_defines(s);
    force_consts(s);
    check_type_lists(s);
    if (diag_errors(sink) == before) elaborate_all(s);
    if (s->options->only && item_named(syntax, s->options->only) < 0) unknown_entry(s, s->options->only);
    if (diag_errors(sink) > before) return NULL;
    return s->options->again || verify_module(s->module, !verbatim) ? s->module : NULL;
}

Module *elaborate(Syntax *syntax, Arena *arena, Failure *failure, DiagSink *sink, const ElaborateOptions *options) {
    return elaborate_mode(syntax, arena, failure, sink, options, false);
}

Module *parse_module(Arena *arena, Failure *failure, DiagSink *sink, const char *name, const char *text) {
    Syntax *syntax = syntax_parse_nested(arena, failure, sink, name, text, strlen(text), NULL, AST_MAX_PRINTED);
    return syntax ? elaborate_mode(syntax, arena, failure, sink, NULL, true) : NULL;
}

Expr *parse_host_expr(Arena *arena, Failure *failure, DiagSink *sink, const char *text, const char *const *names,
                      int count, Var **vars) {
    int before = diag_errors(sink), file = diag_add_source(sink, "<expression>", text, strlen(text));
    const Node *node = parse_text(arena, failure, sink, file, text, strlen(text), PARSE_EXPR, AST_MAX_PRINTED);
    if (!node) return NULL;
    Syntax syntax = {.arena = arena, .failure = failure, .sink = sink};
    syntax.inlines = syntax.launchables = syntax.consts = strmap_new(arena);
    static const ElaborateOptions none = {0};
    Sema *s = sema_new(&syntax, arena, failure, sink, &none);
    Block nowhere = {0};
    s->block = &nowhere;
    s->context = IN_PROGRAM;
    for (int i = 0; i < count; i++) {
        if (!vars[i]) vars[i] = var_new(arena, names[i], VAR_DIM, TYPE_I64, (Span){0});
        declare(s, SYMBOL_VAR, names[i], (Span){0})->var = vars[i];
    }
    Expr *e = settle(s, expression(s, node));
    return diag_errors(sink) > before ? NULL : e;
}
