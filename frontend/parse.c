// Drives the scanner and the grammar over one text, and the builders that the grammar's actions call.
#include "frontend/parse.h"
#include "frontend/frontend.h"
#include "support/strbuf.h"
#include <ctype.h>
#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lang.tab.h"
#define YYSTYPE LANG_STYPE
#define YYLTYPE LANG_LTYPE
#include "lang.lex.h"

// ---- builders ----
Span parse_join(Span first, Span last) {
    first.end_line = last.end_line;
    first.end_column = last.end_column;
    return first;
}

void parse_too_many_operators(Parse *p, Span span) {
    diag(p->sink, span, T_NESTING, "operators (each one of a sum counts)", AST_MAX_DEPTH);
    p->too_deep = true;
}

static void check_depth(Parse *p, const Node *node) {
    if ((node->depth <= AST_MAX_DEPTH && node->bodies <= p->nesting) || p->too_deep) return;
    bool bodies = node->bodies > p->nesting;
    if (!bodies) {
        parse_too_many_operators(p, node->span);
        return;
    }
    diag(p->sink, node->span, T_NESTING, "bodies", p->nesting);
    p->too_deep = true;
}

Node *parse_node(Parse *p, NodeKind kind, Span span, const char *text, int op, int count, ...) {
    Node *node = ast_new(p->arena, kind, span);
    node->text = text;
    node->op = op;
    va_list kids;
    va_start(kids, count);
    for (int i = 0; i < count; i++) ast_push(p->arena, node, va_arg(kids, Node *));
    va_end(kids);
    check_depth(p, node);
    return node;
}

Node *parse_push(Parse *p, Node *list, Node *kid) {
    ast_push(p->arena, list, kid);
    if (kid) list->span = parse_join(list->span, kid->span);
    check_depth(p, list);
    return list;
}

Node *parse_index(Parse *p, Node *index, Node *base, Span span) {
    index->span = span;
    ast_set(index, 0, base);
    check_depth(p, index);
    return index;
}

Node *parse_body(Parse *p, Node *stmt) {
    if (stmt->kind == N_BLOCK && !stmt->attrs) return stmt;
    return parse_node(p, N_BLOCK, stmt->span, NULL, 0, 1, stmt);
}

Node *parse_param(Parse *p, Span span, const char *name, int mode, Node *type, Node *dims, Node *strides, Node *map) {
    Node *coordinates = ast_kid(dims, 0) && dims->kids[0]->kind == N_ITER ? dims : NULL;
    if (coordinates) {
        dims = parse_node(p, N_LIST, coordinates->span, NULL, 0, 0);
        for (int i = 0; i < coordinates->count; i++) parse_push(p, dims, coordinates->kids[i]->kids[1]);
    }
    return parse_node(p, N_PARAM, span, name, mode, 5, type, dims, strides, coordinates, map);
}

Node *parse_attrs(Node *stmt, Node *attrs) {
    if (attrs) stmt->attrs = attrs;
    return stmt;
}

static double read_double(const char *text) {
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);   // a host may have set another decimal point
    if (!c) return strtod(text, NULL);
    double value = strtod_l(text, NULL, c);
    freelocale(c);
    return value;
}

Node *parse_number(Parse *p, Span span, const char *text, bool is_float) {
    Node *node = parse_node(p, is_float ? N_FLOAT : N_INT, span, text, 0, 0);
    bool large;
    if (is_float) {
        node->real = read_double(text);
        large = isinf(node->real);
    } else {
        errno = 0;
        bool hex = text[0] == '0' && (text[1] == 'x' || text[1] == 'X');
        node->integer = strtoull(text, NULL, hex ? 16 : 10);
        large = errno == ERANGE;
    }
    if (large) diag(p->sink, span, T_NUMBER_TOO_LARGE, (int)strnlen(text, 40), text);
    return node;
}

char *parse_unquote(Parse *p, const char *text, size_t length) {
    char *out = arena_alloc(p->arena, length + 1);
    size_t count = 0;
    for (size_t i = 1; i + 1 < length; i++) {
        char c = text[i];
        if (c == '\\') {
            c = text[++i];
            c = c == 'n' ? '\n' : c == 't' ? '\t' : c;
        }
        out[count++] = c;
    }
    return out;
}

void parse_open(Parse *p, Span span) {
    if (p->opened < p->nesting) {
        p->open[p->opened++] = span;
    } else if (!p->too_deep) {
        diag(p->sink, span, T_NESTING, "brackets", p->nesting);
        p->too_deep = true;
    }
}

void parse_close(Parse *p) {
    if (p->opened > 0) p->opened--;
}

// Of the first byte in the text.
static size_t offset_of(const Parse *p, Span span) {
    size_t at = 0;
    for (int line = 1; line < span.line && at < p->length; at++) line += p->text[at] == '\n';
    return at + (size_t)(span.column - 1);
}

const char *parse_source_text(Parse *p, Span span) {
    size_t start = offset_of(p, span), count = (size_t)(span.end_column - span.column);
    if (start > p->length || count > p->length - start) return "this";
    return arena_printf(p->arena, "'%.*s'", count > 40 ? 40 : (int)count, p->text + start);
}

bool parse_is_explained(const Parse *p, Span at) {
    return at.line < p->explained.end_line || (at.line == p->explained.end_line && at.column < p->explained.end_column);
}

bool parse_foreign(Parse *p, ForeignKind kind, Span at, Foreign *found) {
    if (!foreign_find(p->arena, p->sink, kind, at, found)) return false;
    p->explained = found->span;
    return true;
}

static Span word_before(const Parse *p, Span at) {
    size_t end = offset_of(p, at);
    Span word = at;
    while (end > 0 && (p->text[end - 1] == ' ' || p->text[end - 1] == '\t')) end--, word.column--;
    word.end_line = word.line;
    word.end_column = word.column;
    while (end > 0 && (isalnum((unsigned char)p->text[end - 1]) || p->text[end - 1] == '_')) end--, word.column--;
    return word;
}

static char *text_in(const Parse *p, Span span) {
    size_t start = offset_of(p, span), count = span.line == span.end_line ? (size_t)(span.end_column - span.column) : 0;
    if (start > p->length || count > p->length - start) count = 0;
    return arena_strndup(p->arena, p->text + (count ? start : 0), count);
}

static bool begins_statement(const Parse *p, Span word) {
    size_t at = offset_of(p, word);
    while (at > 0 && (p->text[at - 1] == ' ' || p->text[at - 1] == '\t')) at--;
    return at == 0 || strchr(";{})\n", p->text[at - 1]);
}

enum { SHORTEST_KEYWORD = 3 };   // of two letters one edit makes any other

static bool suggest_word(Parse *p, Diag *d, Span span, const StrMap *words) {
    const char *word = text_in(p, span), *meant = strlen(word) >= SHORTEST_KEYWORD ? strmap_nearest(words, word) : NULL;
    if (!meant || strmap_has(words, word)) return false;
    diag_suggest(d, span, meant);
    return true;
}

bool parse_suggest_keyword(Parse *p, Diag *d, Span at, StrMap *words) {
    const char *const *keywords;
    int count = syntax_keywords(p->arena, &keywords);
    StrMap *all = strmap_new(p->arena);
    for (int i = 0; i < count; i++) strmap_put(all, keywords[i], all);
    if (suggest_word(p, d, at, words)) return true;
    Span before = word_before(p, at);
    if (begins_statement(p, before) && suggest_word(p, d, before, all)) return true;
    if (!p->opened) return false;
    before = word_before(p, p->open[p->opened - 1]);
    return begins_statement(p, before) && suggest_word(p, d, before, all);
}

void parse_label_bracket(const Parse *p, Diag *d) {
    if (p->opened < p->nesting && p->open[p->opened].line) diag_label(d, p->open[p->opened], "opened here");
}

// ---- the text ----

// Bytes of the UTF-8 character at `text`; 0 when it is none (overlong forms, surrogates and NUL are none).
static int utf8_length(const unsigned char *text, size_t left) {
    if (text[0] < 0x80) return text[0] != 0;
    int count = text[0] >= 0xf5 ? 0 : text[0] >= 0xf0 ? 4 : text[0] >= 0xe0 ? 3 : text[0] >= 0xc2 ? 2 : 0;
    if (count == 0 || (size_t)count > left) return 0;
    for (int i = 1; i < count; i++)
        if ((text[i] & 0xc0) != 0x80) return 0;
    if (text[0] == 0xe0 && text[1] < 0xa0) return 0;
    if (text[0] == 0xed && text[1] > 0x9f) return 0;
    if (text[0] == 0xf0 && text[1] < 0x90) return 0;
    if (text[0] == 0xf4 && text[1] > 0x8f) return 0;
    return count;
}

static bool check_utf8(const Parse *p) {
    Span at = {.file = p->file, .line = 1, .column = 1};
    for (size_t i = 0; i < p->length;) {
        int count = utf8_length((const unsigned char *)p->text + i, p->length - i);
        if (count == 0) {
            at.end_line = at.line;
            at.end_column = at.column + 1;
            diag(p->sink, at, T_NOT_UTF8, p->text[i] ? "is not valid UTF-8" : "is no text: it has a NUL character",
                 (int)i);
            return false;
        }
        if (p->text[i] == '\n') at = (Span){.file = p->file, .line = at.line + 1, .column = 1};
        else at.column += count;
        i += (size_t)count;
    }
    return true;
}

Node *parse_text(Arena *arena, Failure *failure, DiagSink *sink, int file, const char *text, size_t length,
                 ParseStart start, int nesting) {
    Parse *p = NEW(arena, Parse);
    *p = (Parse){.arena = arena, .text = text, .length = length, .failure = failure, .sink = sink, .file = file};
    p->start = start;
    p->nesting = nesting;
    p->line = p->column = 1;
    if (length > SOURCE_LIMIT) {
        diag(sink, (Span){.file = file}, T_FILE_TOO_LARGE, "the text", (long long)length, (long long)SOURCE_LIMIT);
        return NULL;
    }
    if (!check_utf8(p)) return NULL;
    int before = diag_errors(sink);
    if (length >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) {   // a byte order mark is no character of the program
        text += 3;
        length -= 3;
        p->column = 4;
    }
    yyscan_t scanner;
    if (lang_lex_init_extra(p, &scanner) != 0) fail_internal(failure, __FILE__, __LINE__, "no scanner");
    lang__scan_bytes(text, (int)length, scanner);
    int failed = lang_parse(p, scanner);
    lang_lex_destroy(scanner);
    return failed || diag_errors(sink) > before ? NULL : p->result;
}
