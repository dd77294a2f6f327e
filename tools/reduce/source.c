#include "tools/reduce/source.h"
#include <ctype.h>
#include <string.h>

// ---- tokens ----

static const char *const symbols[] = {"<<=", "..", "+:", "->", "<<", ">>", "<=", ">=", "==", "!=",
                                      "&&",  "||", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^="};

static bool is_word(char c) {
    return isalnum((unsigned char)c) || c == '_';
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static int blank_length(const char *text, int length) {
    int at = 0;
    while (at < length) {
        if (text[at] && strchr(" \t\r\n", text[at])) at++;
        else if (at + 1 < length && text[at] == '/' && text[at + 1] == '/')
            while (at < length && text[at] != '\n') at++;
        else break;
    }
    return at;
}

// Digits, letters, a point that is not one of `..`, and the sign of an exponent.
static int number_length(const char *text, int length) {
    int at = 1;
    for (bool hex = length > 1 && (text[1] | 32) == 'x'; at < length; at++) {
        char exponent = hex ? 'p' : 'e';
        bool sign = (text[at] == '+' || text[at] == '-') && (text[at - 1] | 32) == exponent;
        bool point = text[at] == '.' && !(at + 1 < length && text[at + 1] == '.');
        if (!is_word(text[at]) && !sign && !point) break;
    }
    return at;
}

static int string_length(const char *text, int length) {
    int at = 1;
    while (at < length && text[at] != '"' && text[at] != '\n') at += text[at] == '\\' && at + 1 < length ? 2 : 1;
    return at < length && text[at] == '"' ? at + 1 : at;
}

static int symbol_length(const char *text, int length) {
    for (int i = 0; i < COUNT_OF(symbols); i++) {
        int size = (int)strlen(symbols[i]);
        if (size <= length && !memcmp(text, symbols[i], (size_t)size)) return size;
    }
    int at = 1;
    while ((text[0] & 0x80) && at < length && (text[at] & 0x80)) at++;   // bytes outside of ASCII stay together
    return at;
}

static Token next_token(const char *text, int length) {
    bool number = is_digit(text[0]) || (text[0] == '.' && length > 1 && is_digit(text[1]));
    if (number) return (Token){.kind = TOKEN_NUMBER, .length = number_length(text, length)};
    if (text[0] == '"') return (Token){.kind = TOKEN_STRING, .length = string_length(text, length)};
    if (!is_word(text[0])) return (Token){.kind = TOKEN_SYMBOL, .length = symbol_length(text, length)};
    int at = 1;
    while (at < length && is_word(text[at])) at++;
    return (Token){.kind = TOKEN_WORD, .length = at};
}

static void scan(SourceTree *tree) {
    for (int at = 0;;) {
        int blank = blank_length(tree->text + at, tree->length - at);
        at += blank;
        if (at == tree->length) return;
        Token token = next_token(tree->text + at, tree->length - at);
        token.start = at;
        token.blank = blank;
        vec_push(tree->arena, &tree->tokens, token);
        at += token.length;
    }
}

bool token_is(const SourceTree *tree, int token, const char *text) {
    if (token < 0 || token >= tree->tokens.count) return false;
    const Token *t = &tree->tokens.items[token];
    return (size_t)t->length == strlen(text) && !memcmp(tree->text + t->start, text, (size_t)t->length);
}

bool token_same(const SourceTree *tree, int a, int b) {
    const Token *x = &tree->tokens.items[a], *y = &tree->tokens.items[b];
    return x->length == y->length && !memcmp(tree->text + x->start, tree->text + y->start, (size_t)x->length);
}

char *token_text(const SourceTree *tree, int token) {
    const Token *t = &tree->tokens.items[token];
    return arena_strndup(tree->arena, tree->text + t->start, (size_t)t->length);
}

// ---- the tree ----

// For an opening bracket: its closing one; -1 for all other tokens. A bracket without a partner is a token like others.
static int *match_brackets(const SourceTree *tree) {
    int count = tree->tokens.count, open = 0;
    int *match = NEW_ARRAY(tree->arena, int, count + 1), *stack = NEW_ARRAY(tree->arena, int, count + 1);
    for (int i = 0; i < count; i++) {
        match[i] = -1;
        const Token *token = &tree->tokens.items[i];
        char c = tree->text[token->start], partner = c == ')' ? '(' : c == ']' ? '[' : c == '}' ? '{' : 0;
        if (c == '(' || c == '[' || c == '{') stack[open++] = i;
        if (!partner) continue;
        int level = open;
        while (level > 0 && tree->text[tree->tokens.items[stack[level - 1]].start] != partner) level--;
        if (level == 0) continue;
        match[stack[level - 1]] = i;
        open = level - 1;
    }
    return match;
}

typedef struct Builder {
    SourceTree *tree;
    const int *match;
} Builder;

static SourceNode *add_node(Builder *b, SourceNodeKind kind, SourceNode *parent, int from, int to) {
    SourceNode *node = NEW(b->tree->arena, SourceNode);
    *node = (SourceNode){.kind = kind, .from = from, .to = to, .parent = parent};
    if (parent) {
        node->index = parent->kids.count;
        vec_push(b->tree->arena, &parent->kids, node);
    }
    if (kind == NODE_ITEM) vec_push(b->tree->arena, &b->tree->items, node);
    if (kind == NODE_GROUP) vec_push(b->tree->arena, &b->tree->groups, node);
    return node;
}

static int after(const Builder *b, int token) {
    return b->match[token] < 0 ? token + 1 : b->match[token] + 1;
}

// Braces around values (`tune T in {1, 2}`) hold no statement.
static bool is_block(const Builder *b, int from, int to) {
    if (!token_is(b->tree, from, "{")) return false;
    for (int i = from + 1; i < to - 1; i = after(b, i))
        if (token_is(b->tree, i, ";") || token_is(b->tree, i, "{")) return true;
    return to - from == 2;
}

static bool goes_on(const Builder *b, int token) {
    static const char *const words[] = {"else", "tolerance", ";", ","};
    for (int i = 0; i < COUNT_OF(words); i++)
        if (token_is(b->tree, token, words[i])) return true;
    return false;
}

static int statement_end(const Builder *b, int at, int end) {
    while (at < end) {
        bool brace = token_is(b->tree, at, "{") && b->match[at] >= 0, semicolon = token_is(b->tree, at, ";");
        at = after(b, at);
        if (semicolon || (brace && !goes_on(b, at))) break;
    }
    return at;
}

static int list_end(const Builder *b, int at, int end) {
    while (at < end && !token_is(b->tree, at, ",")) at = after(b, at);
    return at;
}

static void split_group(Builder *b, SourceNode *group) {
    int at = group->from + group->brackets, end = group->to - group->brackets;
    while (at < end) {
        int to = group->block ? statement_end(b, at, end) : list_end(b, at, end);
        add_node(b, NODE_ITEM, group, at, to);
        at = group->block ? to : to + 1;
    }
}

static void add_elements(Builder *b, SourceNode *item, int from, int to) {
    for (int i = from; i < to; i = after(b, i)) {
        bool bracket = b->match[i] >= 0;
        SourceNode *node = add_node(b, bracket ? NODE_GROUP : NODE_TOKEN, item, i, after(b, i));
        node->brackets = bracket;
        node->block = bracket && is_block(b, i, node->to);
    }
}

// `shared a: f32[4], b: f32[4];`: the word, a list without brackets, the semicolon.
static void split_item(Builder *b, SourceNode *item) {
    int from = item->from, to = item->to;
    bool commas = item->parent->block && list_end(b, from, to) < to;
    if (!commas) {
        add_elements(b, item, from, to);
        return;
    }
    bool semicolon = token_is(b->tree, to - 1, ";");
    add_elements(b, item, from, from + 1);
    if (after(b, from) == from + 1) from++;
    add_node(b, NODE_GROUP, item, from, to - semicolon);
    if (semicolon) add_elements(b, item, to - 1, to);
}

SourceTree *source_parse(Arena *arena, const char *text, int length) {
    SourceTree *tree = NEW(arena, SourceTree);
    *tree = (SourceTree){.arena = arena, .text = text, .length = length};
    scan(tree);
    Builder b = {tree, match_brackets(tree)};
    add_node(&b, NODE_GROUP, NULL, 0, tree->tokens.count)->block = true;
    for (int group = 0, item = 0; group < tree->groups.count; group++) {   // both lists grow
        split_group(&b, tree->groups.items[group]);
        for (; item < tree->items.count; item++) split_item(&b, tree->items.items[item]);
    }
    return tree;
}

// ---- printing ----

static bool starts_value(const SourceTree *tree, int token) {
    return tree->tokens.items[token].kind != TOKEN_SYMBOL || token_is(tree, token, "(");
}

static bool any_of(const SourceTree *tree, int token, const char *symbols) {
    const Token *t = &tree->tokens.items[token];
    return t->length == 1 && strchr(symbols, tree->text[t->start]);
}

// A sign, not an operator between two values.
static bool is_sign(const SourceTree *tree, int token) {
    if (!any_of(tree, token, "-!~")) return false;
    bool value_before = token > 0 && (starts_value(tree, token - 1) || any_of(tree, token - 1, ")]"));
    return !value_before || any_of(tree, token, "!~");
}

static bool keyword_before_bracket(const SourceTree *tree, int token) {
    static const char *const words[] = {"in",       "for",       "if",   "while", "grid",   "thread", "unroll",
                                        "parallel", "pipelined", "when", "role",  "return", "cluster"};
    for (int i = 0; i < COUNT_OF(words); i++)
        if (token_is(tree, token, words[i])) return true;
    return false;
}

// Whether white space stands between a token and the one before it. Never where two tokens would become another one.
static bool spaced(const SourceTree *tree, int token) {
    TokenKind kind = tree->tokens.items[token].kind, before = tree->tokens.items[token - 1].kind;
    if (any_of(tree, token, ".")) return before == TOKEN_NUMBER;
    if (any_of(tree, token, ",;)]")) return false;
    if (any_of(tree, token, ":")) return before == TOKEN_SYMBOL;
    if (any_of(tree, token - 1, "([")) return false;
    if (any_of(tree, token - 1, ".@")) return kind != TOKEN_WORD;
    if (is_sign(tree, token - 1)) return !starts_value(tree, token);
    if (!any_of(tree, token, "([")) return true;
    return before == TOKEN_SYMBOL ? !any_of(tree, token - 1, ")]") : keyword_before_bracket(tree, token - 1);
}

enum { OPENS = 1, CLOSES = 2 };   // marks of the braces of blocks

static char *mark_blocks(const Builder *b) {
    int count = b->tree->tokens.count;
    char *marks = arena_alloc(b->tree->arena, (size_t)count + 1);
    for (int i = 0; i < count; i++) {
        if (b->match[i] < 0 || !is_block(b, i, b->match[i] + 1)) continue;
        marks[i] = OPENS;
        marks[b->match[i]] = CLOSES;
    }
    return marks;
}

void source_format(SourceTree *tree, StrBuf *out) {
    Builder b = {tree, match_brackets(tree)};
    const char *marks = mark_blocks(&b);
    bool line_ends = false;
    for (int i = 0, depth = 0; i < tree->tokens.count; i++) {
        const Token *token = &tree->tokens.items[i];
        depth -= marks[i] == CLOSES;
        if (line_ends) sb_printf(out, "\n%*s", 4 * depth, "");
        else if (i > 0 && spaced(tree, i) && !(marks[i] == CLOSES && marks[i - 1] == OPENS)) sb_char(out, ' ');
        sb_bytes(out, tree->text + token->start, (size_t)token->length);
        depth += marks[i] == OPENS;
        line_ends = token_is(tree, i, ";") || (marks[i] == CLOSES && !goes_on(&b, i + 1)) ||
                    (marks[i] == OPENS && marks[i + 1] != CLOSES);
    }
    if (tree->tokens.count) sb_char(out, '\n');
}
