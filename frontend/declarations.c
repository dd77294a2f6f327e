// What a file declares, before any meaning: names and types as they are written. docs/reference/launch-plan.md has the format.
#include "frontend/sema.h"
#include "frontend/syntax.h"
#include "support/json.h"
#include <string.h>

static const char *const modes[] = {[AST_IN] = "in", [AST_OUT] = "out", [AST_INOUT] = "inout"};
static const char *const unary_texts[] = {[UNARY_NEG] = "-", [UNARY_NOT] = "!", [UNARY_BITNOT] = "~"};

static void put(const Node *node, StrBuf *out);

static void put_list(const Node *list, const char *separator, StrBuf *out) {
    for (int i = 0; i < list->count; i++) {
        sb_str(out, i ? separator : "");
        put(list->kids[i], out);
    }
}

// An expression of constants and dims, each operation in parentheses.
static void put(const Node *node, StrBuf *out) {
    switch (node->kind) {
    case N_INT:
    case N_FLOAT:
    case N_NAME: sb_str(out, node->text); break;
    case N_UNARY:
        sb_printf(out, "(%s", unary_texts[node->op]);
        put(node->kids[0], out);
        sb_char(out, ')');
        break;
    case N_BINARY:
        sb_char(out, '(');
        put(node->kids[0], out);
        sb_printf(out, " %s ", operator_text((BinaryOp)node->op));
        put(node->kids[1], out);
        sb_char(out, ')');
        break;
    case N_TERNARY:
        sb_char(out, '(');
        put(node->kids[0], out);
        sb_str(out, " ? ");
        put(node->kids[1], out);
        sb_str(out, " : ");
        put(node->kids[2], out);
        sb_char(out, ')');
        break;
    case N_CALL:
        sb_printf(out, "%s(", node->text);
        put_list(node, ", ", out);
        sb_char(out, ')');
        break;
    default: sb_char(out, '?');   // no expression of a number, which elaboration reports
    }
}

static void put_member(const char *name, const char *text, StrBuf *out) {
    sb_printf(out, "\"%s\": ", name);
    json_quote(out, text);
}

static void put_expr(const Node *node, StrBuf *out) {
    StrBuf text;
    sb_init(&text, out->arena);
    put(node, &text);
    json_quote(out, sb_text(&text));
}

static void put_exprs(const char *name, const Node *list, StrBuf *out) {
    sb_printf(out, ", \"%s\": [", name);
    for (int i = 0; list && i < list->count; i++) {
        sb_str(out, i ? ", " : "");
        put_expr(list->kids[i], out);
    }
    sb_char(out, ']');
}

// ---- shapes of arguments ----
static const char *text_of(const Node *node, Arena *arena) {
    StrBuf text;
    sb_init(&text, arena);
    put(node, &text);
    return sb_text(&text);
}

static const char *extent_of_binary(const Node *param, const Node *index, Arena *arena);

// One more than the largest value of an index of a layout (as index_map.c finds it).
static const char *extent_of(const Node *param, const Node *index, Arena *arena) {
    const Node *coordinates = ast_kid(param, 3);
    for (int k = 0; index->kind == N_NAME && k < coordinates->count; k++)
        if (strcmp(coordinates->kids[k]->text, index->text) == 0) return text_of(param->kids[1]->kids[k], arena);
    if (index->kind == N_BINARY) return extent_of_binary(param, index, arena);
    return arena_printf(arena, "(%s + 1)", text_of(index, arena));
}

static const char *extent_of_binary(const Node *param, const Node *index, Arena *arena) {
    const char *a = extent_of(param, index->kids[0], arena), *by = text_of(index->kids[1], arena);
    switch (index->op) {
    case BIN_DIV: return arena_printf(arena, "ceildiv(%s, %s)", a, by);
    case BIN_MOD: return by;
    case BIN_MUL: return arena_printf(arena, "(((%s - 1) * %s) + 1)", a, by);
    default: return arena_printf(arena, "((%s + %s) - 1)", a, extent_of(param, index->kids[1], arena));
    }
}

static void put_shape(const Node *param, StrBuf *out) {
    const Node *dims = ast_kid(param, 1), *map = ast_kid(param, 4);
    const char *before = dims && dims->op == AST_LEADING ? ".." : "";
    sb_str(out, ", \"shape\": [");
    for (int i = 0; dims && i < (map ? map : dims)->count; i++) {
        const char *text = map ? extent_of(param, map->kids[i], out->arena) : text_of(dims->kids[i], out->arena);
        sb_str(out, i ? ", " : "");
        json_quote(out, i ? text : arena_printf(out->arena, "%s%s", before, text));
    }
    sb_char(out, ']');
}

static const char *alias_of(const Node *param) {
    for (int i = 0; param->attrs && i < param->attrs->count; i++) {
        const Node *attr = param->attrs->kids[i], *name = ast_kid(attr, 0);
        if (attr_named(attr->text) == ATTR_ALIAS && name && name->text) return name->text;
    }
    return NULL;
}

static void put_param(const Node *param, StrBuf *out) {
    const Node *dims = ast_kid(param, 1), *strides = ast_kid(param, 2);
    const char *alias = alias_of(param);
    sb_char(out, '{');
    put_member("name", param->text, out);
    sb_str(out, ", ");
    put_member("type", param->kids[0]->text, out);
    if ((dims || param->op != AST_IN) && param->op <= AST_INOUT) {
        sb_printf(out, ", \"mode\": \"%s\"", modes[param->op]);
        put_shape(param, out);
        if (strides) put_exprs("strides", strides, out);
        if (alias) sb_str(out, ", "), put_member("alias", alias, out);
    }
    sb_char(out, '}');
}

static void put_tunables(const Node *block, StrBuf *out) {
    bool first = true;
    sb_str(out, ", \"tunables\": [");
    for (int i = 0; block && i < block->count; i++) {
        const Node *tune = block->kids[i];
        for (int k = 0; tune->kind == N_TUNE && k < tune->count; k++, first = false) {
            sb_str(out, first ? "" : ", ");
            json_quote(out, tune->kids[k]->text);
        }
    }
    sb_char(out, ']');
}

static void put_launchable(const Node *node, StrBuf *out) {
    const Node *names = node->kids[0], *params = node->kids[1];
    sb_str(out, "\n  {");
    put_member("name", node->text, out);
    sb_printf(out, ", \"kind\": \"%s\", \"names\": [", node->kind == N_KERNEL ? "kernel" : "program");
    for (int i = 0; i < names->count; i++) {
        sb_str(out, i ? ", {" : "{");
        put_member("name", names->kids[i]->text, out);
        sb_printf(out, ", \"kind\": \"%s\"}", is_type_param(names->kids[i]) ? "type" : "number");
    }
    sb_char(out, ']');
    put_tunables(ast_kid(node, 3), out);
    sb_str(out, ",\n   \"params\": [");
    for (int i = 0; i < params->count; i++) {
        sb_str(out, i ? ", " : "");
        put_param(params->kids[i], out);
    }
    sb_str(out, "]}");
}

static bool is_launchable(const SyntaxItem *item) {
    return !item->imported && ast_is_launchable(item->node);
}

// Of variants, which share a name, the first.
static bool is_first(const Syntax *syntax, int at) {
    const Node *node = syntax->items.items[at].node;
    for (int i = 0; i < at; i++) {
        const SyntaxItem *before = &syntax->items.items[i];
        if (is_launchable(before) && strcmp(before->node->text, node->text) == 0) return false;
    }
    return true;
}

void syntax_declarations(const Syntax *syntax, StrBuf *out) {
    const char *separator = "";
    sb_str(out, "{\"consts\": [");
    for (int i = 0; i < syntax->items.count; i++) {
        const Node *node = syntax->items.items[i].node;
        if (node->kind != N_CONST) continue;
        sb_printf(out, "%s{", separator);
        put_member("name", node->text, out);
        sb_str(out, ", \"value\": ");
        put_expr(node->kids[0], out);
        sb_char(out, '}');
        separator = ", ";
    }
    sb_str(out, "],\n \"kernels\": [");
    separator = "";
    for (int i = 0; i < syntax->items.count; i++) {
        if (!is_launchable(&syntax->items.items[i]) || !is_first(syntax, i)) continue;
        sb_str(out, separator);
        put_launchable(syntax->items.items[i].node, out);
        separator = ",";
    }
    sb_str(out, "]}");
}
