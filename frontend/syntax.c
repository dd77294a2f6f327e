// From files to one list of declarations: parsing, imports, names given twice.
#include "frontend/syntax.h"
#include "frontend/parse.h"
#include <string.h>

static void read_file(Syntax *syntax, const char *name, const char *identity, const char *text, size_t length,
                      bool imported);

static char reading, done;   // marks of a file in Syntax.files; only their addresses matter

enum { IMPORT_MAX_DEPTH = 64 };

static void import_file(Syntax *syntax, const Node *node, const char *from) {
    const char *resolved = node->text, *identity = NULL, *why = "imports are not read here";
    size_t length = 0;
    const char *text = NULL;
    if (syntax->depth >= IMPORT_MAX_DEPTH) why = "imports are nested too deep";
    else if (syntax->reader && syntax->reader->read)
        text = syntax->reader->read(syntax->reader->user, syntax->arena, from, node->text, &resolved, &identity,
                                    &length, &why);
    if (!text) {
        diag(syntax->sink, node->span, T_CANNOT_IMPORT, node->text, why ? why : "unknown reason");
        return;
    }
    if (!identity) identity = resolved;
    const char *state = strmap_get(syntax->files, identity);
    if (state == &done) return;   // imported twice is imported once
    if (state == &reading) {
        diag(syntax->sink, node->span, T_IMPORT_CYCLE, node->text);
        return;
    }
    read_file(syntax, resolved, identity, text, length, true);
}

// Enters a declaration under its name. Kernels and programs may share a name when all but the last have a condition or
// a cost: variants.
static void declare(Syntax *syntax, StrMap *map, Node *node) {
    const Node *before = strmap_get(map, node->text);
    bool variants = before && map == syntax->launchables && (ast_kid(before, 2) || ast_kid(before, 4));
    if (!before || variants) {
        strmap_put(map, node->text, node);
        return;
    }
    Diag *d = diag(syntax->sink, node->span, T_DUPLICATE_NAME, node->text);
    diag_label(d, before->span, "first declared here");
    if (map == syntax->launchables)
        diag_note(d, "variants of a kernel share its name: each but the last has a condition, `when ...`, or a cost");
}

static void check_builtin(Syntax *syntax, const Node *node) {
    if (op_named(node->text) == OP_COUNT && type_named(node->text) == TYPE_NONE) return;
    diag(syntax->sink, node->span, T_BUILTIN_NAME, node->text);
}

// Attributes stand at kernels and programs, and at their parameters.
static void check_attributes(Syntax *syntax, const Node *node) {
    const Node *attrs = node->attrs, *params = node->kind == N_FN || node->kind == N_MACRO ? node->kids[0] : NULL;
    if (attrs && !ast_is_launchable(node))
        diag(syntax->sink, attrs->kids[0]->span, T_ATTRIBUTE_PLACE, attrs->kids[0]->text);
    for (int i = 0; params && i < params->count; i++)
        if ((attrs = params->kids[i]->attrs))
            diag(syntax->sink, attrs->kids[0]->span, T_ATTRIBUTE_PLACE, attrs->kids[0]->text);
}

static void add_item(Syntax *syntax, Node *node, const char *from, bool imported) {
    check_attributes(syntax, node);
    switch (node->kind) {
    case N_IMPORT: import_file(syntax, node, from); return;
    case N_CONST: declare(syntax, syntax->consts, node); break;
    case N_FN:
    case N_MACRO:
        check_builtin(syntax, node);
        declare(syntax, syntax->inlines, node);
        break;
    case N_REFERENCE: declare(syntax, syntax->references, node); break;
    case N_KERNEL:
    case N_PROGRAM: declare(syntax, syntax->launchables, node); break;
    default: break;
    }
    SyntaxItem item = {node, imported};
    vec_push(syntax->arena, &syntax->items, item);
}

static void read_file(Syntax *syntax, const char *name, const char *identity, const char *text, size_t length,
                      bool imported) {
    strmap_put(syntax->files, identity, &reading);
    syntax->depth++;
    int file = diag_add_source(syntax->sink, name, text, length);
    Node *items =
        parse_text(syntax->arena, syntax->failure, syntax->sink, file, text, length, PARSE_FILE, syntax->nesting);
    for (int i = 0; items && i < items->count; i++) add_item(syntax, items->kids[i], name, imported);
    syntax->depth--;
    strmap_put(syntax->files, identity, &done);
}

Syntax *syntax_parse(Arena *arena, Failure *failure, DiagSink *sink, const char *name, const char *text, size_t length,
                     const ImportReader *reader) {
    return syntax_parse_nested(arena, failure, sink, name, text, length, reader, AST_MAX_NESTING);
}

Syntax *syntax_parse_nested(Arena *arena, Failure *failure, DiagSink *sink, const char *name, const char *text,
                            size_t length, const ImportReader *reader, int nesting) {
    Syntax *syntax = NEW(arena, Syntax);
    *syntax = (Syntax){.arena = arena, .failure = failure, .sink = sink, .reader = reader, .nesting = nesting};
    syntax->consts = strmap_new(arena);
    syntax->inlines = strmap_new(arena);
    syntax->launchables = strmap_new(arena);
    syntax->references = strmap_new(arena);
    syntax->files = strmap_new(arena);
    int before = diag_errors(sink);
    const char *identity = reader && reader->identity ? reader->identity(reader->user, arena, name) : name;
    read_file(syntax, name, identity, text, length, false);
    if (diag_errors(sink) == before && syntax->items.count == 0) {
        Span start = {.file = 0, .line = 1, .column = 1, .end_line = 1, .end_column = 2};
        start.file = diag_add_source(sink, name, text, length);
        diag(sink, start, T_EMPTY_FILE, name);
    }
    return diag_errors(sink) > before ? NULL : syntax;
}

bool syntax_check(Arena *arena, Failure *failure, DiagSink *sink, const char *name, const char *text, size_t length) {
    int file = diag_add_source(sink, name, text, length);
    return parse_text(arena, failure, sink, file, text, length, PARSE_FILE, AST_MAX_NESTING) != NULL;
}
