// Names: scopes, file consts, defines.
#include "frontend/parse.h"
#include "frontend/sema.h"
#include <ctype.h>
#include <string.h>

// ---- scopes ----
void scope_open(Sema *s, NameScope *scope) {
    *scope = (NameScope){.outer = s->scope, .symbols = strmap_new(s->arena)};
    s->scope = scope;
}

void scope_close(Sema *s) {
    s->scope = s->scope->outer;
}

static bool predefined(const char *name) {
    return strcmp(name, "inf") == 0 || strcmp(name, "nan") == 0 || strcmp(name, "true") == 0 ||
           strcmp(name, "false") == 0;
}

Symbol *declare(Sema *s, SymbolKind kind, const char *name, Span span) {
    Symbol *before = strmap_get(s->scope->symbols, name);
    if (predefined(name)) {
        diag(s->sink, span, T_BUILTIN_NAME, name);
    } else if (before) {
        Diag *d = diag(s->sink, span, T_DUPLICATE_NAME, name);
        diag_label(d, before->span, "first declared here");
    }
    Symbol *symbol = NEW(s->arena, Symbol);
    *symbol = (Symbol){.kind = kind, .name = name, .span = span, .type = TYPE_NONE};
    strmap_put(s->scope->symbols, name, symbol);
    return symbol;
}

void declare_value(Sema *s, const char *name, SemaValue value, Span span) {
    declare(s, SYMBOL_VALUE, name, span)->value = value;
}

void declare_type(Sema *s, const char *name, Type type, Span span) {
    declare(s, SYMBOL_TYPE, name, span)->type = type;
}

Var *declare_var(Sema *s, const char *name, VarKind kind, Type type, Span span) {
    Symbol *symbol = declare(s, SYMBOL_VAR, name, span);
    symbol->var = var_new(s->arena, name, kind, type, place_of(s, span));
    return symbol->var;
}

void declare_buf(Sema *s, Buf *buf, Span span) {
    declare(s, SYMBOL_BUF, buf->name, span)->buf = buf;
}

void declare_view(Sema *s, const char *name, const View *view, Span span) {
    if (view->whole && !view->buf->im2col) declare(s, SYMBOL_BUF, name, span)->buf = view->buf;
    else declare(s, SYMBOL_VIEW, name, span)->view = view;
}

// ---- file consts ----
static void force_const(Sema *s, Symbol *symbol);

Symbol *find(Sema *s, const char *name) {
    for (NameScope *scope = s->scope; scope; scope = scope->outer) {
        Symbol *symbol = strmap_get(scope->symbols, name);
        if (!symbol) continue;
        if (symbol->kind == SYMBOL_CONST) force_const(s, symbol);
        return symbol;
    }
    return NULL;
}

// Consts stand in any order, so each is computed when it is first used, in the file's scope.
static void force_const(Sema *s, Symbol *symbol) {
    if (symbol->busy) {
        diag(s->sink, symbol->span, T_RECURSION, "const", symbol->name);
        symbol->kind = SYMBOL_VALUE;
        symbol->value = value_poison(symbol->span);
        return;
    }
    symbol->busy = true;
    NameScope *scope = s->scope;
    s->scope = s->file;
    const Define *define = define_of(s, symbol->name);
    Type type = TYPE_NONE;
    SemaValue value =
        define ? define_value(s, define, symbol->span, &type) : constant(s, symbol->node->kids[0], "a const");
    if (type != TYPE_NONE) {
        diag(s->sink, symbol->span, T_DEFINE_VALUE, define->name, define->value, "a number");
        value = value_poison(symbol->span);
    }
    s->scope = scope;
    symbol->busy = false;
    if (symbol->kind != SYMBOL_CONST) return;   // found to be recursive meanwhile
    symbol->kind = SYMBOL_VALUE;
    symbol->value = value;
}

void reconsider_consts(Sema *s) {
    for (int i = 0; i < s->syntax->items.count; i++) {
        const Node *node = s->syntax->items.items[i].node;
        Symbol *symbol = node->kind == N_CONST ? strmap_get(s->file->symbols, node->text) : NULL;
        if (symbol && symbol->kind == SYMBOL_VALUE && is_poison(symbol->value)) symbol->kind = SYMBOL_CONST;
    }
}

void declare_file(Sema *s) {
    s->file = NEW(s->arena, NameScope);
    scope_open(s, s->file);
    for (int i = 0; i < s->syntax->items.count; i++) {
        const Node *node = s->syntax->items.items[i].node;
        if (node->kind == N_CONST) declare(s, SYMBOL_CONST, node->text, node->span)->node = node;
    }
    s->defines = strmap_new(s->arena);
    s->wrong_defines = strmap_new(s->arena);
    for (int i = 0; i < s->options->define_count; i++)
        strmap_put(s->defines, s->options->defines[i].name, (void *)&s->options->defines[i]);
}

const Define *define_of(Sema *s, const char *name) {
    return strmap_get(s->defines, name);
}

const Define *define_of_own(Sema *s, const char *kernel, const char *name) {
    const Define *own = strmap_get(s->defines, arena_printf(s->arena, "%s.%s", kernel, name));
    return own ? own : define_of(s, name);
}

SemaValue define_value(Sema *s, const Define *define, Span span, Type *type) {
    *type = type_named(define->value);
    if (*type != TYPE_NONE) return value_poison(span);
    const char *name = arena_printf(s->arena, "-D %s", define->name);
    const char *text = arena_strdup(s->arena, define->value);
    int file = diag_add_source(s->sink, name, text, strlen(text));
    const Node *node = parse_text(s->arena, s->failure, s->sink, file, text, strlen(text), PARSE_EXPR, AST_MAX_NESTING);
    return node ? constant(s, node, "a -D value") : value_poison(span);
}

// ---- what a name may mean ----
static void collect(const char *key, void *value, void *user) {
    strmap_put(user, key, value);
}

static const char *nearest_name(Sema *s, const char *name) {
    StrMap *all = strmap_new(s->arena);
    for (NameScope *scope = s->scope; scope; scope = scope->outer) strmap_each(scope->symbols, collect, all);
    return strmap_nearest(all, name);
}

static NameScope *function_scope(const Sema *s) {
    NameScope *top = s->scope;
    while (top->outer && top->outer != s->file) top = top->outer;
    return top;
}

void forget_unknown_names(Sema *s) {
    function_scope(s)->unknown = NULL;
    function_scope(s)->explained = (Span){0};
}

// Each name once in a function, a `fn` or a macro: the scope below the file's remembers it.
static bool is_reported(Sema *s, const char *name) {
    NameScope *top = function_scope(s);
    if (top == s->file) return false;
    if (!top->unknown) top->unknown = strmap_new(s->arena);
    if (strmap_has(top->unknown, name)) return true;
    strmap_put(top->unknown, name, top);
    return false;
}

bool note_foreign(Sema *s, Diag *d, ForeignKind kind, Span at) {
    Foreign found;
    if (!foreign_find(s->arena, s->sink, kind, at, &found)) return false;
    foreign_add(d, &found);
    function_scope(s)->explained = found.span;
    return true;
}

bool is_explained(const Sema *s, Span at) {
    Span by = function_scope(s)->explained;
    bool behind = at.line > by.line || (at.line == by.line && at.column >= by.column);
    return at.file == by.file && behind &&
           (at.line < by.end_line || (at.line == by.end_line && at.column < by.end_column));
}

Span end_of(Span span) {
    return (Span){span.file, span.end_line, span.end_column - 1, span.end_line, span.end_column};
}

// What is written otherwise here or in another language, else a name that is nearly the same.
static void suggest(Sema *s, Diag *d, Span span, const char *nearest) {
    if (!note_foreign(s, d, FOREIGN_NAME, span)) diag_suggest(d, span, nearest);
}

Symbol *find_or_report(Sema *s, const Node *node) {
    Symbol *symbol = find(s, node->text);
    if (symbol || is_explained(s, node->span) || is_reported(s, node->text)) return symbol;
    Diag *d = diag(s->sink, node->span, T_UNKNOWN_NAME, node->text);
    if (op_named(node->text) != OP_COUNT) diag_note(d, "it is an operation, which is called: %s(..)", node->text);
    else suggest(s, d, node->span, nearest_name(s, node->text));
    return NULL;
}

// A value that is named as a type hides none: printed text has types in its scope.
Type type_by_name(Sema *s, const char *name) {
    Symbol *symbol = find(s, name);
    return symbol && symbol->kind == SYMBOL_TYPE ? symbol->type : type_named(name);
}

static void put_types(StrMap *map) {
    for (int i = 0; i < TYPE_COUNT; i++) strmap_put(map, type_text((Type)i), map);
}

static const char *nearest_type(const Sema *s, const char *name) {
    StrMap *all = strmap_new(s->arena);
    put_types(all);
    return strmap_nearest(all, name);
}

Type find_type(Sema *s, const Node *name) {
    Type type = type_by_name(s, name->text);
    if (type != TYPE_NONE) return type;
    Diag *d = diag(s->sink, name->span, T_UNKNOWN_TYPE, name->text);
    suggest(s, d, name->span, nearest_type(s, name->text));
    return TYPE_NONE;
}

Type bind_type(Sema *s, const Node *name, Type type) {
    bool is_new = isupper((unsigned char)name->text[0]) && type_by_name(s, name->text) == TYPE_NONE &&
                  !find(s, name->text) && !nearest_type(s, name->text);
    if (!is_new) return find_type(s, name);
    declare_type(s, name->text, type, name->span);
    return type;
}

// x(i) of a buffer.
static void element_meant(Diag *d, const Node *call) {
    Span name = ast_name_span(call), end = end_of(call->span);
    diag_note(d, "an element is %s[i]", call->text);
    diag_fix(d, (Span){name.file, name.end_line, name.end_column, name.end_line, name.end_column + 1}, "[");
    diag_fix(d, end, "]");
}

void unknown_function(Sema *s, const Node *call) {
    Diag *d = diag(s->sink, call->span, T_UNKNOWN_FUNCTION, call->text);
    StrMap *all = strmap_new(s->arena);
    put_types(all);
    for (int i = 0; i < OP_COUNT; i++) strmap_put(all, op_info((OpId)i)->text, all);
    strmap_each(s->syntax->inlines, collect, all);
    if (s->context == IN_PROGRAM) strmap_each(s->syntax->launchables, collect, all);
    Symbol *symbol = find(s, call->text);
    if (symbol && symbol->kind == SYMBOL_BUF) element_meant(d, call);
    else suggest(s, d, ast_name_span(call), strmap_nearest(all, call->text));
    if (s->context != IN_PROGRAM && strmap_has(s->syntax->launchables, call->text))
        diag_note(d, "'%s' is a kernel: only a program calls it", call->text);
}
