// Answers to requests. Each takes the request's params and adds a result.
#include "support/files.h"
#include "tools/format.h"
#include "tools/lsp/server.h"
#include <string.h>
#include <tilec/tilec.h>

Document *document_of(const LspServer *server, const Json *params) {
    const char *uri = json_text(json_get(json_get(params, "textDocument"), "uri"), "");
    for (Document *document = server->documents; document; document = document->next)
        if (strcmp(document->uri, uri) == 0) return document;
    return NULL;
}

// ---- places in files ----
typedef struct FileOfSpan {
    const char *path, *text;   // NULL: cannot be read
    size_t length;
} FileOfSpan;

// File 0 of an analysis is the document; the others are its imports.
static FileOfSpan file_of_span(const LspServer *server, Arena *arena, const Document *document,
                               const Analysis *analysis, int number) {
    const char *why;
    FileText file;
    if (number == 0) return (FileOfSpan){document->path, document->text, document->length};
    const char *path = path_canonical(arena, diag_source_name(analysis->sink, number));
    for (const Document *open = server->documents; open; open = open->next)
        if (strcmp(open->path, path) == 0) return (FileOfSpan){path, open->text, open->length};
    bool ok = file_load(arena, path, SOURCE_LIMIT, &file, &why);
    return (FileOfSpan){path, ok ? file.text : NULL, ok ? file.length : 0};
}

static void put_location(const LspServer *server, Arena *arena, const Document *document, const Analysis *analysis,
                         Span span, StrBuf *out) {
    FileOfSpan file = file_of_span(server, arena, document, analysis, span.file);
    sb_str(out, "{\"uri\":");
    put_uri(out, file.path);
    sb_str(out, ",\"range\":");
    put_range(out, file.text, file.length, span, server->utf8);
    sb_char(out, '}');
}

static void put_own_range(const LspServer *server, const Document *document, Span span, StrBuf *out) {
    put_range(out, document->text, document->length, span, server->utf8);
}

// ---- the name at a place ----
typedef struct Asked {
    const Document *document;
    const Analysis *analysis;   // of the last text that parses
    TextPlace place;
    const NameUse *use;   // NULL: no name
} Asked;

static Asked asked_at(const LspServer *server, const Json *params) {
    Asked asked = {.document = document_of(server, params)};
    if (!asked.document) return asked;
    asked.analysis = asked.document->parsed;
    asked.place =
        document_place(asked.document->text, asked.document->length, json_get(params, "position"), server->utf8);
    if (asked.analysis) asked.use = editor_use_at(asked.analysis->outline, 0, asked.place.line, asked.place.column);
    return asked;
}

static const DeclaredName *declared(const Asked *asked) {
    return &asked->analysis->outline->declared.items[asked->use->declared];
}

static bool definition(LspServer *server, Arena *arena, const Json *params, StrBuf *result) {
    Asked asked = asked_at(server, params);
    if (asked.use) put_location(server, arena, asked.document, asked.analysis, declared(&asked)->span, result);
    else sb_str(result, "null");
    return true;
}

static bool references(LspServer *server, Arena *arena, const Json *params, StrBuf *result) {
    Asked asked = asked_at(server, params);
    bool with_own = json_boolean(json_get(json_get(params, "context"), "includeDeclaration"), true);
    int count = 0;
    sb_char(result, '[');
    for (int i = 0; asked.use && i < asked.analysis->outline->uses.count; i++) {
        const NameUse *use = &asked.analysis->outline->uses.items[i];
        bool own = memcmp(&use->span, &declared(&asked)->span, sizeof use->span) == 0;
        if (use->declared != asked.use->declared || (own && !with_own)) continue;
        if (count++) sb_char(result, ',');
        put_location(server, arena, asked.document, asked.analysis, use->span, result);
    }
    sb_char(result, ']');
    return true;
}

static bool highlight(LspServer *server, Arena *arena, const Json *params, StrBuf *result) {
    (void)arena;
    Asked asked = asked_at(server, params);
    int count = 0;
    sb_char(result, '[');
    for (int i = 0; asked.use && i < asked.analysis->outline->uses.count; i++) {
        const NameUse *use = &asked.analysis->outline->uses.items[i];
        if (use->declared != asked.use->declared || use->span.file != 0) continue;
        sb_str(result, count++ ? ",{\"range\":" : "{\"range\":");
        put_own_range(server, asked.document, use->span, result);
        sb_char(result, '}');
    }
    sb_char(result, ']');
    return true;
}

// ---- rename ----
static const char word_bytes[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";

static bool is_name(const char *text) {
    if (!*text || strchr("0123456789", *text)) return false;
    return strspn(text, word_bytes) == strlen(text);
}

static bool is_keyword(Arena *arena, const char *text) {
    const char *const *words;
    int count = syntax_keywords(arena, &words);
    for (int i = 0; i < count; i++)
        if (strcmp(words[i], text) == 0) return true;
    return false;
}

// A new name must not be one that means something else at any of these places.
static bool is_taken(const Outline *outline, const DeclaredName *renamed, const char *text) {
    VEC_EACH (const DeclaredName, name, &outline->declared) {
        bool disjoint = name->scope.line && renamed->scope.line &&
                        (name->scope.line > renamed->scope.end_line || renamed->scope.line > name->scope.end_line);
        if (name != renamed && !disjoint && strcmp(name->text, text) == 0) return true;
    }
    return false;
}

static const char *why_not_renamed(Arena *arena, const Asked *asked, const char *name) {
    if (!asked->use) return "there is no name here";
    if (asked->document->parsed != asked->document->now) return "the text does not parse";
    if (!is_name(name)) return arena_printf(arena, "'%s' is no name", name);
    if (is_keyword(arena, name)) return arena_printf(arena, "'%s' is a word of the language", name);
    if (is_taken(asked->analysis->outline, declared(asked), name))
        return arena_printf(arena, "there is a '%s' already", name);
    VEC_EACH (const NameUse, use, &asked->analysis->outline->uses)
        if (use->declared == asked->use->declared && use->span.file != 0) return "it is a name of an imported file";
    return NULL;
}

static bool rename_all(LspServer *server, Arena *arena, const Json *params, StrBuf *result) {
    Asked asked = asked_at(server, params);
    const char *name = json_text(json_get(params, "newName"), "");
    const char *why = why_not_renamed(arena, &asked, name);
    if (why) {
        sb_str(result, why);
        return false;
    }
    int count = 0;
    sb_str(result, "{\"changes\":{");
    json_quote(result, asked.document->uri);
    sb_str(result, ":[");
    VEC_EACH (const NameUse, use, &asked.analysis->outline->uses) {
        if (use->declared != asked.use->declared) continue;
        sb_str(result, count++ ? ",{\"range\":" : "{\"range\":");
        put_own_range(server, asked.document, use->span, result);
        sb_printf(result, ",\"newText\":\"%s\"}", name);
    }
    sb_str(result, "]}}");
    return true;
}

static bool prepare_rename(LspServer *server, Arena *arena, const Json *params, StrBuf *result) {
    (void)arena;
    Asked asked = asked_at(server, params);
    if (asked.use) put_own_range(server, asked.document, asked.use->span, result);
    else sb_str(result, "null");
    return true;
}

// ---- hover, completion, symbols, hints ----
static bool hover(LspServer *server, Arena *arena, const Json *params, StrBuf *result) {
    Asked asked = asked_at(server, params);
    StrBuf text;
    sb_init(&text, arena);
    const Document *document = asked.document;
    if (!asked.analysis || !editor_hover(asked.analysis, document->compiled, document->text, document->length,
                                         asked.place.line, asked.place.column, &text)) {
        sb_str(result, "null");
        return true;
    }
    sb_str(result, "{\"contents\":{\"kind\":\"markdown\",\"value\":");
    json_quote(result, sb_text(&text));
    sb_str(result, "}}");
    return true;
}

// Numbers of CompletionItemKind and SymbolKind.
enum {
    ITEM_FUNCTION = 3,
    ITEM_VARIABLE = 6,
    ITEM_PROPERTY = 10,
    ITEM_KEYWORD = 14,
    ITEM_CONSTANT = 21,
    ITEM_TYPE = 25
};
enum { SYMBOL_FUNCTION = 12, SYMBOL_CONSTANT = 14 };

static bool is_function(NameKind kind) {
    return kind == NAME_KERNEL || kind == NAME_PROGRAM || kind == NAME_FN || kind == NAME_MACRO;
}

static bool is_constant(NameKind kind) {
    return kind == NAME_CONST || kind == NAME_COMPILE_TIME || kind == NAME_TUNABLE;
}

static int item_kind(const Suggestion *completion) {
    switch (completion->kind) {
    case SUGGEST_OPERATION: return ITEM_FUNCTION;
    case SUGGEST_ATTRIBUTE: return ITEM_PROPERTY;
    case SUGGEST_TYPE: return ITEM_TYPE;
    case SUGGEST_KEYWORD: return ITEM_KEYWORD;
    case SUGGEST_NAME: break;
    }
    return is_function(completion->name)   ? ITEM_FUNCTION
           : is_constant(completion->name) ? ITEM_CONSTANT
                                           : ITEM_VARIABLE;
}

static bool completion(LspServer *server, Arena *arena, const Json *params, StrBuf *result) {
    Asked asked = asked_at(server, params);
    SuggestionVec all = {0};
    const Document *document = asked.document;
    if (document)
        editor_complete(arena, asked.analysis ? asked.analysis->outline : NULL, document->text, document->length,
                        asked.place.line, asked.place.column, &all);
    sb_char(result, '[');
    for (int i = 0; i < all.count; i++) {
        sb_str(result, i ? ",{\"label\":" : "{\"label\":");
        json_quote(result, all.items[i].label);
        sb_printf(result, ",\"kind\":%d,\"detail\":", item_kind(&all.items[i]));
        json_quote(result, all.items[i].detail);
        sb_char(result, '}');
    }
    sb_char(result, ']');
    return true;
}

static bool symbols(LspServer *server, Arena *arena, const Json *params, StrBuf *result) {
    (void)arena;
    const Document *document = document_of(server, params);
    int count = 0;
    sb_char(result, '[');
    for (int i = 0; document && document->parsed && i < document->parsed->outline->declared.count; i++) {
        const DeclaredName *name = &document->parsed->outline->declared.items[i];
        bool shown = is_function(name->kind) || name->kind == NAME_CONST;
        if (!shown || name->span.file != 0) continue;
        sb_str(result, count++ ? ",{\"name\":" : "{\"name\":");
        json_quote(result, name->text);
        sb_printf(result, ",\"detail\":\"%s\",\"kind\":%d,\"range\":", name_kind_text(name->kind),
                  is_function(name->kind) ? SYMBOL_FUNCTION : SYMBOL_CONSTANT);
        put_own_range(server, document, name->span, result);
        sb_str(result, ",\"selectionRange\":");
        put_own_range(server, document, name->span, result);
        sb_char(result, '}');
    }
    sb_char(result, ']');
    return true;
}

// Only while the text is the one that the passes had: elsewhere hints would stand at wrong places.
static bool inlay_hints(LspServer *server, Arena *arena, const Json *params, StrBuf *result) {
    (void)arena;
    const Document *document = document_of(server, params);
    bool fresh = document && document->compiled && document->compiled_version == document->version;
    sb_char(result, '[');
    for (int i = 0; fresh && i < document->compiled->hints.count; i++) {
        const InlayHint *hint = &document->compiled->hints.items[i];
        sb_str(result, i ? ",{\"position\":" : "{\"position\":");
        put_position(result, document->text, document->length, hint->line, hint->column, server->utf8);
        sb_str(result, ",\"label\":");
        json_quote(result, hint->text);
        sb_char(result, '}');
    }
    sb_char(result, ']');
    return true;
}

// ---- edits ----
static bool formatting(LspServer *server, Arena *arena, const Json *params, StrBuf *result) {
    const Document *document = document_of(server, params);
    StrBuf text;
    sb_init(&text, arena);
    sb_char(result, '[');
    if (document && document->now && document->now->outline) {
        format_source(source_parse(arena, document->text, (int)document->length), &text);
        int lines = 1;
        for (const char *at = document->text; (at = strchr(at, '\n')); at++) lines++;
        sb_printf(result, "{\"range\":{\"start\":{\"line\":0,\"character\":0},\"end\":{\"line\":%d,\"character\":0}},",
                  lines);
        sb_str(result, "\"newText\":");
        json_quote(result, sb_text(&text));
        sb_char(result, '}');
    }
    (void)server;
    sb_char(result, ']');
    return true;
}

static bool overlaps(Span span, TextPlace first, TextPlace last) {
    return span.line <= last.line && span.end_line >= first.line;
}

static void put_fix(const LspServer *server, const Document *document, const DiagView *view, const DiagLabel *fix,
                    StrBuf *result) {
    bool inserts = fix->span.line == fix->span.end_line && fix->span.column == fix->span.end_column;
    sb_printf(result, "{\"title\":\"%s '%s'\",\"kind\":\"quickfix\",\"edit\":{\"changes\":{",
              inserts ? "Insert" : "Change to", fix->text);
    json_quote(result, document->uri);
    sb_str(result, ":[{\"range\":");
    put_own_range(server, document, fix->span, result);
    sb_str(result, ",\"newText\":");
    json_quote(result, fix->text);
    sb_str(result, "}]}},\"diagnostics\":[{\"range\":");
    put_own_range(server, document, view->span, result);
    sb_str(result, ",\"message\":");
    json_quote(result, view->message);
    sb_str(result, "}]}");
}

static bool code_actions(LspServer *server, Arena *arena, const Json *params, StrBuf *result) {
    (void)arena;
    const Document *document = document_of(server, params);
    const Json *range = json_get(params, "range");
    int found = 0;
    sb_char(result, '[');
    for (int i = 0; document && document->now && i < diag_count(document->now->sink); i++) {
        DiagView view = diag_view(document->now->sink, i);
        TextPlace first = document_place(document->text, document->length, json_get(range, "start"), server->utf8);
        TextPlace last = document_place(document->text, document->length, json_get(range, "end"), server->utf8);
        for (int k = 0; k < view.fix_count; k++) {
            if (view.span.file != 0 || !overlaps(view.span, first, last)) continue;
            if (found++) sb_char(result, ',');
            put_fix(server, document, &view, &view.fixes[k], result);
        }
    }
    sb_char(result, ']');
    return true;
}

// ---- diagnostics ----
static void put_message(const DiagView *view, StrBuf *out) {
    StrBuf text;
    sb_init(&text, out->arena);
    sb_str(&text, view->message);
    for (int i = 0; i < view->note_count; i++) sb_printf(&text, "\n%s", view->notes[i]);
    if (view->remedy[0]) sb_printf(&text, "\n%s", view->remedy);
    json_quote(out, sb_text(&text));
}

static void put_diagnostic(const LspServer *server, const Document *document, const Analysis *analysis,
                           const DiagView *view, StrBuf *out) {
    static const int severities[] = {[SEVERITY_ERROR] = 1, [SEVERITY_WARNING] = 2, [SEVERITY_REMARK] = 3};
    sb_str(out, "{\"range\":");
    if (view->span.line && view->span.file == 0) put_own_range(server, document, view->span, out);
    else sb_str(out, "{\"start\":{\"line\":0,\"character\":0},\"end\":{\"line\":0,\"character\":0}}");
    sb_printf(out, ",\"severity\":%d,\"code\":\"T%04d\",\"source\":\"tilec\",\"message\":", severities[view->severity],
              (int)view->code);
    put_message(view, out);
    sb_str(out, ",\"relatedInformation\":[");
    bool elsewhere = view->span.line && view->span.file != 0;
    if (elsewhere) {
        sb_str(out, "{\"location\":");
        put_location(server, out->arena, document, analysis, view->span, out);
        sb_str(out, ",\"message\":\"in this imported file\"}");
    }
    for (int i = 0; i < view->label_count; i++) {
        sb_str(out, i || elsewhere ? ",{\"location\":" : "{\"location\":");
        put_location(server, out->arena, document, analysis, view->labels[i].span, out);
        sb_str(out, ",\"message\":");
        json_quote(out, view->labels[i].text);
        sb_char(out, '}');
    }
    sb_str(out, "]}");
}

void publish_diagnostics(const LspServer *server, Arena *arena, const Document *document, const Analysis *analysis) {
    StrBuf out;
    sb_init(&out, arena);
    sb_str(&out, "{\"jsonrpc\":\"2.0\",\"method\":\"textDocument/publishDiagnostics\",\"params\":{\"uri\":");
    json_quote(&out, document->uri);
    sb_printf(&out, ",\"version\":%lld,\"diagnostics\":[", (long long)document->numbered);
    for (int i = 0; analysis && i < diag_count(analysis->sink); i++) {
        DiagView view = diag_view(analysis->sink, i);
        if (i) sb_char(&out, ',');
        put_diagnostic(server, document, analysis, &view, &out);
    }
    sb_str(&out, "]}}");
    message_put(&out);
}

// ---- the table ----
static bool initialize(LspServer *server, Arena *arena, const Json *params, StrBuf *result) {
    const Json *capabilities = json_get(params, "capabilities");
    (void)arena;
    JSON_EACH(encoding, json_get(json_get(capabilities, "general"), "positionEncodings"))
    server->utf8 |= strcmp(json_text(encoding, ""), "utf-8") == 0;
    server->refreshes =
        json_boolean(json_get(json_get(json_get(capabilities, "workspace"), "inlayHint"), "refreshSupport"), false);
    sb_printf(result,
              "{\"capabilities\":{\"positionEncoding\":\"%s\","
              "\"textDocumentSync\":{\"openClose\":true,\"change\":2},"
              "\"hoverProvider\":true,\"definitionProvider\":true,\"referencesProvider\":true,"
              "\"documentHighlightProvider\":true,\"documentSymbolProvider\":true,"
              "\"documentFormattingProvider\":true,\"inlayHintProvider\":true,"
              "\"renameProvider\":{\"prepareProvider\":true},"
              "\"completionProvider\":{\"triggerCharacters\":[\"@\"]},"
              "\"codeActionProvider\":{\"codeActionKinds\":[\"quickfix\"]}},"
              "\"serverInfo\":{\"name\":\"tilec\",\"version\":\"%s\"}}",
              server->utf8 ? "utf-8" : "utf-16", tilec_version());
    return true;
}

static bool shut_down(LspServer *server, Arena *arena, const Json *params, StrBuf *result) {
    (void)arena;
    (void)params;
    server->stopped = true;
    sb_str(result, "null");
    return true;
}

LspAnswer *lsp_answer(const char *method) {
    static const struct {
        const char *method;
        LspAnswer *answer;
    } rows[] = {
        {"initialize", initialize},
        {"shutdown", shut_down},
        {"textDocument/hover", hover},
        {"textDocument/definition", definition},
        {"textDocument/references", references},
        {"textDocument/documentHighlight", highlight},
        {"textDocument/prepareRename", prepare_rename},
        {"textDocument/rename", rename_all},
        {"textDocument/completion", completion},
        {"textDocument/documentSymbol", symbols},
        {"textDocument/inlayHint", inlay_hints},
        {"textDocument/formatting", formatting},
        {"textDocument/codeAction", code_actions},
    };
    for (int i = 0; i < COUNT_OF(rows); i++)
        if (strcmp(rows[i].method, method) == 0) return rows[i].answer;
    return NULL;
}
