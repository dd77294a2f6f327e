#include "tools/source.h"
#include <ctype.h>
#include <string.h>

// ---- tokens ----

static const char *const symbols[] = {"<<=", ">>=", "..", "+:", "->", "<<", ">>", "<=", ">=", "==", "!=",
                                      "&&",  "||",  "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^="};

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

static SourceNode *add_node(SourceTree *tree, SourceNodeKind kind, SourceNode *parent, int from, int to) {
    SourceNode *node = NEW(tree->arena, SourceNode);
    *node = (SourceNode){.kind = kind, .from = from, .to = to, .parent = parent};
    if (parent) {
        node->index = parent->kids.count;
        vec_push(tree->arena, &parent->kids, node);
    }
    if (kind == NODE_ITEM) vec_push(tree->arena, &tree->items, node);
    if (kind == NODE_GROUP) vec_push(tree->arena, &tree->groups, node);
    return node;
}

static int after(const SourceTree *tree, int token) {
    return tree->match[token] < 0 ? token + 1 : tree->match[token] + 1;
}

// Braces around values (`tune T in {1, 2}`) hold no statement.
static bool is_block(const SourceTree *tree, int from, int to) {
    if (!token_is(tree, from, "{")) return false;
    for (int i = from + 1; i < to - 1; i = after(tree, i))
        if (token_is(tree, i, ";") || token_is(tree, i, "{")) return true;
    return to - from == 2;
}

static const char *mark_blocks(const SourceTree *tree) {
    int count = tree->tokens.count;
    char *marks = arena_alloc(tree->arena, (size_t)count + 1);
    for (int i = 0; i < count; i++) {
        if (tree->match[i] < 0 || !is_block(tree, i, tree->match[i] + 1)) continue;
        marks[i] = BLOCK_OPENS;
        marks[tree->match[i]] = BLOCK_CLOSES;
    }
    return marks;
}

static bool goes_on(const SourceTree *tree, int token) {
    static const char *const words[] = {"else", "tolerance", ";", ","};
    for (int i = 0; i < COUNT_OF(words); i++)
        if (token_is(tree, token, words[i])) return true;
    return false;
}

static int statement_end(const SourceTree *tree, int at, int end) {
    while (at < end) {
        bool brace = token_is(tree, at, "{") && tree->match[at] >= 0, semicolon = token_is(tree, at, ";");
        at = after(tree, at);
        if (semicolon || (brace && !goes_on(tree, at))) break;
    }
    return at;
}

static int list_end(const SourceTree *tree, int at, int end) {
    while (at < end && !token_is(tree, at, ",")) at = after(tree, at);
    return at;
}

static void split_group(SourceTree *tree, SourceNode *group) {
    int at = group->from + group->brackets, end = group->to - group->brackets;
    while (at < end) {
        int to = group->block ? statement_end(tree, at, end) : list_end(tree, at, end);
        add_node(tree, NODE_ITEM, group, at, to);
        at = group->block ? to : to + 1;
    }
}

static void add_elements(SourceTree *tree, SourceNode *item, int from, int to) {
    for (int i = from; i < to; i = after(tree, i)) {
        bool bracket = tree->match[i] >= 0;
        SourceNode *node = add_node(tree, bracket ? NODE_GROUP : NODE_TOKEN, item, i, after(tree, i));
        node->brackets = bracket;
        node->block = bracket && is_block(tree, i, node->to);
    }
}

// `shared a: f32[4], b: f32[4];`: the word, a list without brackets, the semicolon.
static void split_item(SourceTree *tree, SourceNode *item) {
    int from = item->from, to = item->to;
    bool commas = item->parent->block && list_end(tree, from, to) < to;
    if (!commas) {
        add_elements(tree, item, from, to);
        return;
    }
    bool semicolon = token_is(tree, to - 1, ";");
    add_elements(tree, item, from, from + 1);
    if (after(tree, from) == from + 1) from++;
    add_node(tree, NODE_GROUP, item, from, to - semicolon);
    if (semicolon) add_elements(tree, item, to - 1, to);
}

SourceTree *source_parse(Arena *arena, const char *text, int length) {
    SourceTree *tree = NEW(arena, SourceTree);
    *tree = (SourceTree){.arena = arena, .text = text, .length = length};
    scan(tree);
    tree->match = match_brackets(tree);
    tree->braces = mark_blocks(tree);
    add_node(tree, NODE_GROUP, NULL, 0, tree->tokens.count)->block = true;
    for (int group = 0, item = 0; group < tree->groups.count; group++) {   // both lists grow
        split_group(tree, tree->groups.items[group]);
        for (; item < tree->items.count; item++) split_item(tree, tree->items.items[item]);
    }
    return tree;
}

// ---- printing ----

static bool any_of(const SourceTree *tree, int token, const char *symbols) {
    if (token < 0) return false;
    const Token *t = &tree->tokens.items[token];
    return t->length == 1 && strchr(symbols, tree->text[t->start]);
}

static bool in_words(const SourceTree *tree, int token, const char *const *words) {
    for (; *words; words++)
        if (token_is(tree, token, *words)) return true;
    return false;
}

static bool ends_value(const SourceTree *tree, int token);

// Words in front of a value, so that a sign may follow.
static bool precedes_value(const SourceTree *tree, int token) {
    static const char *const words[] = {"in", "step", "tolerance",
                                        NULL};   // behind a value; elsewhere `step` is a name
    bool statement = token_is(tree, token, "return") || token_is(tree, token, "else");
    return statement || (in_words(tree, token, words) && ends_value(tree, token - 1));
}

static bool ends_value(const SourceTree *tree, int token) {
    if (token < 0) return false;
    bool name = tree->tokens.items[token].kind != TOKEN_SYMBOL && !precedes_value(tree, token);
    return name || any_of(tree, token, ")]");
}

// A sign, not an operator between two values.
static bool is_sign(const SourceTree *tree, int token) {
    return any_of(tree, token, "!~") || (any_of(tree, token, "-") && !ends_value(tree, token - 1));
}

static bool keyword_before_bracket(const SourceTree *tree, int token) {
    static const char *const words[] = {"in",      "for",      "if",         "while",   "grid",    "thread",
                                        "unroll",  "parallel", "pipelined",  "when",    "role",    "return",
                                        "cluster", "else",     "vectorized", "threads", "strides", NULL};
    bool layout = token_is(tree, token, "layout") && any_of(tree, token - 1, "]");   // of a parameter, behind its dims
    bool cost = token_is(tree, token, "cost") && any_of(tree, token - 1, ")");       // of a variant, behind its parameters
    return layout || cost || (in_words(tree, token, words) && !any_of(tree, token - 1, ".@"));
}

// `test NAME (...)`, `channel NAME (...)`: what follows are no arguments.
static bool names_list(const SourceTree *tree, int token) {
    bool declares = token_is(tree, token - 1, "test") || token_is(tree, token - 1, "channel");
    return declares && tree->tokens.items[token].kind == TOKEN_WORD;
}

// The `:` of `a ? b : c`: what stands before it up to the `?` has pairs of its own only.
static bool is_alternative(const SourceTree *tree, int token) {
    if (!any_of(tree, token, ":")) return false;
    int pairs = 0, depth = 0;
    for (int i = token - 1; i >= 0 && !any_of(tree, i, ";"); i--) {
        depth += any_of(tree, i, ")]}") - any_of(tree, i, "([{");
        if (depth < 0) return false;
        if (depth > 0) continue;
        if (any_of(tree, i, ",")) return false;
        pairs += any_of(tree, i, ":") - any_of(tree, i, "?");
        if (pairs < 0) return true;
    }
    return false;
}

// Next to a brace, on its inner side: values (`{128, 64}`) stand close to it, statements do not; nothing is `{}`.
static bool within_block(const SourceTree *tree, int token) {
    bool opens = tree->braces[token - 1] == BLOCK_OPENS, closes = tree->braces[token] == BLOCK_CLOSES;
    return opens != closes || (opens && tree->match[token - 1] != token);
}

bool token_spaced(const SourceTree *tree, int token) {
    TokenKind kind = tree->tokens.items[token].kind, before = tree->tokens.items[token - 1].kind;
    if (any_of(tree, token, ".")) return before == TOKEN_NUMBER;
    if (any_of(tree, token, ",;)]")) return false;
    if (any_of(tree, token - 1, "([")) return false;
    if (token_is(tree, token - 1, "..") && any_of(tree, token - 2, "[")) return false;   // all leading dims
    if (any_of(tree, token, ":"))
        return is_alternative(tree, token) || (before == TOKEN_SYMBOL && !any_of(tree, token - 1, ")]"));
    if (any_of(tree, token - 1, ".@")) return kind != TOKEN_WORD;
    if (any_of(tree, token, "}") || any_of(tree, token - 1, "{")) return within_block(tree, token);
    if (is_sign(tree, token - 1))
        return kind == TOKEN_SYMBOL && !any_of(tree, token, any_of(tree, token - 1, "-") ? "(!~" : "(-!~");
    if (!any_of(tree, token, "([")) return true;
    if (before == TOKEN_SYMBOL) return !any_of(tree, token - 1, ")]");
    return keyword_before_bracket(tree, token - 1) || (any_of(tree, token, "(") && names_list(tree, token - 1));
}

void source_format(SourceTree *tree, StrBuf *out) {
    const char *marks = tree->braces;
    bool line_ends = false;
    for (int i = 0, depth = 0; i < tree->tokens.count; i++) {
        const Token *token = &tree->tokens.items[i];
        depth -= marks[i] == BLOCK_CLOSES;
        if (line_ends) sb_printf(out, "\n%*s", 4 * depth, "");
        else if (i > 0 && token_spaced(tree, i) && !(marks[i] == BLOCK_CLOSES && marks[i - 1] == BLOCK_OPENS))
            sb_char(out, ' ');
        sb_bytes(out, tree->text + token->start, (size_t)token->length);
        depth += marks[i] == BLOCK_OPENS;
        line_ends = token_is(tree, i, ";") || (marks[i] == BLOCK_CLOSES && !goes_on(tree, i + 1)) ||
                    (marks[i] == BLOCK_OPENS && marks[i + 1] != BLOCK_CLOSES);
    }
    if (tree->tokens.count) sb_char(out, '\n');
}
