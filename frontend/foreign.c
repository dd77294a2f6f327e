// Looks for rows of foreign.def in the text around a place. A program that is wrong has no syntax tree, so patterns are matched
// with tokens: those of all languages, of a window of the text. Where a row fits in several ways, the part nearest to the place
// is taken, and of it the shortest.
//
//     for (int i = 0; i < n; i++) y[i] = 1;        the place is the first `i`
//     for ( TYPE NAME = 0 ; NAME < EXPR ; NAME ++ )    ->    for ($2 in $4)
#include "frontend/foreign.h"
#include "ir/ir.h"
#include "support/utf8.h"
#include <ctype.h>
#include <limits.h>
#include <string.h>

static const char FOREIGN_MEMBER[] = "of a member";   // the note of a row: that of the name behind the module

typedef struct Row {
    ForeignKind kind;
    const char *pattern, *fix, *note;
} Row;

static const Row rows[] = {
#define SYNTAX(pattern, fix, note) {FOREIGN_SYNTAX, pattern, fix, note},
#define NAME(pattern, fix, note) {FOREIGN_NAME, pattern, fix, note},
#define ATTRIBUTE(pattern, fix, note) {FOREIGN_ATTRIBUTE, pattern, fix, note},
#define ARGUMENT(pattern, fix, note) {FOREIGN_ARGUMENT, pattern, fix, note},
#define LINE(pattern, fix, note) {FOREIGN_LINE, pattern, fix, note},
#define GUESS(pattern, fix, note) {FOREIGN_GUESS, pattern, fix, note},
#define INDEXED(pattern, fix, note) {FOREIGN_INDEXED, pattern, fix, note},
#define OPERATOR(pattern, fix, note) {FOREIGN_OPERATOR, pattern, fix, note},
#include "frontend/foreign.def"
#undef SYNTAX
#undef NAME
#undef ATTRIBUTE
#undef ARGUMENT
#undef INDEXED
#undef OPERATOR
#undef LINE
#undef GUESS
};

// ---- tokens ----
typedef enum { TOKEN_WORD, TOKEN_NUMBER, TOKEN_STRING, TOKEN_COMMENT, TOKEN_SIGN } TokenKind;

typedef struct Token {
    const char *text;
    size_t length;
    TokenKind kind;
    bool first, code;   // of its line; behind a comment that ends as a statement does
} Token;

enum {
    LINES_BEFORE = 30,    // of the window
    BYTES_AFTER = 4000,   // of the window
    MOST_TOKENS = 2000,   // of the window
    REACH = 60,           // tokens that a pattern may have before the place
    LONGEST = 120,        // tokens of an EXPR
    MOST_PIECES = 12,     // of a pattern
    MOST_ATOMS = 32,      // of a pattern
    MOST_ERRORS = 100,
    MOST_STEPS = 200000   // of one search: patterns with several EXPR try many lengths
};

typedef struct Atom {
    const char *text;
    size_t length;
    char role;   // '^', '<' or '>' of foreign.def, else 0
} Atom;

typedef struct Piece {
    int from, to;       // tokens
    const char *text;   // as it is given in a fix; NULL: as it is written
} Piece;

typedef struct Search {
    Arena *arena;
    const char *text;
    size_t length;
    Token *tokens;
    int count, place;   // the token at the place
    Atom atoms[MOST_ATOMS];
    int atom_count, start, end, piece_count;
    bool marked;   // the pattern names the unexpected token
    Piece pieces[MOST_PIECES];
    int steps;
} Search;

static bool in_word(char c) {
    return isalnum((unsigned char)c) || c == '_';
}

static size_t sign_length(const char *at, size_t left) {
    static const char *const signs[] = {"<<<", ">>>", "<<=", ">>=", "**=", "...", "===", "//=", "->", "++", "--", "**",
                                        ":=",  "::",  "==",  "!=",  "<=",  ">=",  "<>",  "&&",  "||", "<<", ">>", "+=",
                                        "-=",  "*=",  "/=",  "%=",  "&=",  "|=",  "^=",  "..",  "+:", "=>"};
    for (int i = 0; i < COUNT_OF(signs); i++) {
        size_t length = strlen(signs[i]);
        if (length <= left && memcmp(at, signs[i], length) == 0) return length;
    }
    uint32_t point;
    int bytes = utf8_decode(at, left, &point);
    return bytes > 1 ? (size_t)bytes : 1;
}

static size_t number_length(const char *at, size_t left) {
    size_t n = 0;
    bool hex = left > 1 && at[0] == '0' && (at[1] == 'x' || at[1] == 'X');
    if (hex) n = 2;
    while (n < left) {
        bool exponent = !hex && (at[n] == 'e' || at[n] == 'E') && n + 1 < left &&
                        (isdigit((unsigned char)at[n + 1]) || at[n + 1] == '-' || at[n + 1] == '+');
        bool point = at[n] == '.' && !(n + 1 < left && at[n + 1] == '.');
        if (exponent) n += 2;
        else if (point || (hex ? isxdigit((unsigned char)at[n]) : isdigit((unsigned char)at[n]))) n++;
        else break;
    }
    return n;
}

static size_t text_to(const char *at, size_t left, const char *end) {
    size_t length = strlen(end);
    for (size_t n = length; n + length <= left; n++)
        if (memcmp(at + n, end, length) == 0) return n + length;
    return left;
}

static size_t string_length(const char *at, size_t left) {
    for (size_t n = 1; n < left && at[n] != '\n'; n++) {
        if (at[n] == '\\') n++;
        else if (at[n] == at[0]) return n + 1;
    }
    return 1;
}

static Token token_at(const char *at, size_t left) {
    Token token = {.text = at, .length = 1, .kind = TOKEN_SIGN};
    if (isdigit((unsigned char)*at) || (*at == '.' && left > 1 && isdigit((unsigned char)at[1]))) {
        token.kind = TOKEN_NUMBER;
        token.length = number_length(at, left);
    } else if (in_word(*at)) {
        token.kind = TOKEN_WORD;
        while (token.length < left && in_word(at[token.length])) token.length++;
    } else if (*at == '"' || *at == '\'') {
        token.length = string_length(at, left);
        token.kind = token.length > 1 ? TOKEN_STRING : TOKEN_SIGN;
    } else if (*at == '/' && left > 1 && at[1] == '*') {
        token.kind = TOKEN_COMMENT;
        token.length = text_to(at, left, "*/");
    } else {
        token.length = sign_length(at, left);
    }
    return token;
}

// A comment to the end of the line, which ends as a statement does: of code that is no comment elsewhere.
static bool is_code(const char *comment, size_t length) {
    while (length && isspace((unsigned char)comment[length - 1])) length--;
    return length && (comment[length - 1] == ';' || comment[length - 1] == ')');
}

// The tokens of [from, to).
static void tokenise(Search *s, size_t from, size_t to, size_t place) {
    bool first = true, code = false;
    s->tokens = NEW_ARRAY(s->arena, Token, MOST_TOKENS);
    s->place = -1;
    for (size_t i = from; i < to && s->count < MOST_TOKENS;) {
        const char *at = s->text + i;
        if (isspace((unsigned char)*at)) {
            first |= *at == '\n';
            i++;
            continue;
        }
        if (at[0] == '/' && i + 1 < to && at[1] == '/' && !(i + 2 < to && at[2] == '=')) {
            const char *newline = memchr(at, '\n', to - i);
            size_t length = newline ? (size_t)(newline - at) : to - i;
            code = !first && is_code(at, length);
            i += length;
            continue;
        }
        Token token = token_at(at, to - i);
        token.first = first;
        token.code = code;
        if (place >= i && place < i + token.length) s->place = s->count;
        s->tokens[s->count++] = token;
        i += token.length;
        first = code = false;
    }
}

static bool is_text(const Token *token, const char *text, size_t length) {
    return token->length == length && memcmp(token->text, text, length) == 0;
}

static bool is_sign(const Search *s, int at, const char *text) {
    return at >= 0 && at < s->count && is_text(&s->tokens[at], text, strlen(text));
}

static bool is_name(const Search *s, int at) {
    return at >= 0 && at < s->count && s->tokens[at].kind == TOKEN_WORD;
}

static char *token_text(const Search *s, int at) {
    return arena_strndup(s->arena, s->tokens[at].text, s->tokens[at].length);
}

static char *text_of(const Search *s, int from, int to) {
    if (from >= to) return arena_strdup(s->arena, "");
    const Token *last = &s->tokens[to - 1];
    return arena_strndup(s->arena, s->tokens[from].text, (size_t)(last->text + last->length - s->tokens[from].text));
}

// ---- classes ----

// One of `a|b|c`.
static bool is_one_of(const char *words, size_t length, const Token *token) {
    for (const char *at = words, *end = words + length; at < end;) {
        const char *bar = memchr(at, '|', (size_t)(end - at));
        const char *stop = bar && bar > at ? bar : end;
        if (is_text(token, at, (size_t)(stop - at))) return true;
        at = stop + 1;
    }
    return false;
}

// The type that a name of another language means, else NULL.
static const char *type_meant(const Search *s, int at) {
    if (!is_name(s, at)) return NULL;
    const char *name = token_text(s, at);
    if (type_named(name) != TYPE_NONE) return name;
    for (int i = 0; i < COUNT_OF(rows); i++) {
        const Row *row = &rows[i];
        bool type =
            row->kind == FOREIGN_NAME && row->fix && !strchr(row->pattern, ' ') && type_named(row->fix) != TYPE_NONE;
        if (type && is_one_of(row->pattern, strlen(row->pattern), &s->tokens[at])) return row->fix;
    }
    return NULL;
}

// Behind `tl.`, `std::` and the like.
static int behind_modules(const Search *s, int at) {
    while (is_name(s, at) && (is_sign(s, at + 1, ".") || is_sign(s, at + 1, "::")) && is_name(s, at + 2)) at += 2;
    return at;
}

// `const unsigned long long`, `tl.float16`: its end, and the type; the end is -1 where there is none.
static int type_end(const Search *s, int at, const char **type) {
    static const char ahead[] = "const|volatile|static|register|constexpr";
    bool is_unsigned = false;
    while (is_name(s, at) && is_one_of(ahead, sizeof ahead - 1, &s->tokens[at])) at++;
    at = behind_modules(s, at);
    if (is_sign(s, at, "unsigned") || is_sign(s, at, "signed")) {
        is_unsigned = is_sign(s, at, "unsigned");
        *type = is_unsigned ? "u32" : "i32";
        if (!type_meant(s, at + 1)) return at + 1;
        at++;
    }
    const char *meant = type_meant(s, at);
    if (!meant) return -1;
    bool is_long = is_sign(s, at, "long");
    if (is_long && (is_sign(s, at + 1, "long") || is_sign(s, at + 1, "int") || is_sign(s, at + 1, "double"))) at++;
    if (is_sign(s, at, "long") && is_sign(s, at + 1, "int")) at++;
    *type = is_unsigned && meant[0] == 'i' ? arena_printf(s->arena, "u%s", meant + 1) : meant;
    return at + 1;
}

// Behind a type or a word that declares; `at` where there is none.
static int declarator_end(const Search *s, int at) {
    static const char words[] = "auto|let|var|mut|const";
    const char *type;
    int behind = at;
    while (is_name(s, behind) && is_one_of(words, sizeof words - 1, &s->tokens[behind])) behind++;
    int end = type_end(s, behind, &type);
    return end > behind ? end : behind;
}

// Behind the bracket that closes the one at `at`; -1: none does.
static int behind_bracket(const Search *s, int at) {
    int depth = 0;
    for (; at < s->count; at++) {
        char c = s->tokens[at].length == 1 ? s->tokens[at].text[0] : 0;
        if (c && strchr("([{", c)) depth++;
        if (c && strchr(")]}", c) && --depth == 0) return at + 1;
    }
    return -1;
}

// Where a place goes on behind `at`: [..] or .member, with `calls` also (..). -1: it does not.
static int place_on(const Search *s, int at, bool calls) {
    if (is_sign(s, at, ".") && is_name(s, at + 1)) return at + 2;
    if (is_sign(s, at, "[") || (calls && is_sign(s, at, "("))) return behind_bracket(s, at);
    return -1;
}

// [a][b] as [a, b].
static const char *joined_dims(const Search *s, int from, int to) {
    const char *text = "[";
    for (int at = from; at < to;) {
        int end = behind_bracket(s, at);
        text = arena_printf(s->arena, "%s%s%s", text, at > from ? ", " : "", text_of(s, at + 1, end - 1));
        at = end;
    }
    return arena_printf(s->arena, "%s]", text);
}

// A comment between /* and */ as comments to the ends of lines.
static const char *line_comments(const Search *s, int at) {
    const Token *token = &s->tokens[at];
    StrBuf out;
    sb_init(&out, s->arena);
    const char *from = token->text + 2, *end = token->text + token->length;
    if (token->length >= 4 && end[-1] == '/' && end[-2] == '*') end -= 2;
    for (const char *line = from; line <= end;) {
        const char *newline = memchr(line, '\n', (size_t)(end - line)), *stop = newline ? newline : end;
        size_t indent = 0;
        while (line > from && line + indent < stop && strchr(" \t", line[indent])) indent++;
        bool starred = line > from && line + indent < stop && line[indent] == '*';
        const char *text = line + indent + starred;
        while (stop > text && isspace((unsigned char)stop[-1])) stop--;
        bool empty = stop == text && (!newline || line == from) && out.length;
        if (!empty)
            sb_printf(&out, "%s%.*s//%.*s", out.length ? "\n" : "", (int)indent - (starred && indent), line,
                      (int)(stop - text), text);
        if (!newline) break;
        line = newline + 1;
    }
    if (at + 1 < s->count && !s->tokens[at + 1].first) sb_char(&out, '\n');
    return sb_text(&out);
}

// ---- matching ----
static bool match(Search *s, int atom, int at);

static bool piece_match(Search *s, int atom, int from, int to, const char *text) {
    if (s->piece_count == MOST_PIECES) return false;
    s->pieces[s->piece_count++] = (Piece){from, to, text};
    if (match(s, atom + 1, to)) return true;
    s->piece_count--;
    return false;
}

// Texts of growing length, balanced.
static bool match_text(Search *s, int atom, int at, bool commas) {
    if (commas && piece_match(s, atom, at, at, NULL)) return true;
    for (int end = at; end < s->count && end - at < LONGEST;) {
        const Token *token = &s->tokens[end];
        char c = token->kind == TOKEN_SIGN && token->length == 1 ? token->text[0] : 0;
        if (c && strchr(commas ? ";)]}" : ";,={)]}", c)) return false;
        if (c && strchr("([{", c)) end = behind_bracket(s, end);
        else end++;
        if (end < 0) return false;
        if (piece_match(s, atom, at, end, NULL)) return true;
    }
    return false;
}

// The longest first, since `x[i].to(f16)` is a place in front of the `.to` too.
static bool match_place(Search *s, int atom, int at, bool calls) {
    int ends[LONGEST], count = 0;
    bool begins =
        is_name(s, at) || (calls && at < s->count && (s->tokens[at].kind == TOKEN_NUMBER || is_sign(s, at, "(")));
    if (!begins) return false;
    int end = is_sign(s, at, "(") ? behind_bracket(s, at) : at + 1;
    while (end > 0 && count < LONGEST) {
        ends[count++] = end;
        end = place_on(s, end, calls);
    }
    while (count > 0)
        if (piece_match(s, atom, at, ends[--count], NULL)) return true;
    return false;
}

static bool match_dims(Search *s, int atom, int at) {
    int end = at;
    while (is_sign(s, end, "[")) {
        end = behind_bracket(s, end);
        if (end < 0) return false;
    }
    return end > at && piece_match(s, atom, at, end, joined_dims(s, at, end));
}

static bool match_rest(Search *s, int atom, int at) {
    int end = at;
    while (end < s->count && !is_sign(s, end, "}")) {
        bool opens = s->tokens[end].length == 1 && strchr("([{", s->tokens[end].text[0]);
        end = opens ? behind_bracket(s, end) : end + 1;
        if (end < 0) return false;
    }
    if (end >= s->count) return false;
    const char *from =
        at > 0 ? s->tokens[at - 1].text + s->tokens[at - 1].length : s->text;   // with the spaces before and after
    return piece_match(s, atom, at, end, arena_strndup(s->arena, from, (size_t)(s->tokens[end].text - from)));
}

static bool begins_statement(const Search *s, int at) {
    if (at == 0 || s->tokens[at].first) return true;
    return is_one_of(";|{|}|)|else", 12, &s->tokens[at - 1]);
}

// Behind 0: `b101` and `o17` of another base, as a number of this language; NULL: none.
static const char *other_base(const Search *s, const Token *token) {
    char letter = (char)tolower((unsigned char)token->text[0]);
    int bits = letter == 'b' ? 1 : letter == 'o' ? 3 : 0, digits = 0;
    uint64_t value = 0;
    for (size_t i = 1; i < token->length && bits; i++) {
        char c = token->text[i];
        if (c == '_') continue;
        if (c < '0' || c >= '0' + (1 << bits) || value >> (64 - bits)) return NULL;
        value = value << bits | (uint64_t)(c - '0');
        digits++;
    }
    return digits ? arena_printf(s->arena, "0x%llx", (unsigned long long)value) : NULL;
}

// Digits between separators, behind the first ones: `_000_000`; NULL: it is something else.
static const char *separated(const Search *s, const Token *token) {
    char *out = arena_strndup(s->arena, token->text, token->length), *end = out;
    for (size_t i = 0; i < token->length; i++) {
        if (token->text[i] == '_') continue;
        if (!isdigit((unsigned char)token->text[i])) return NULL;
        *end++ = token->text[i];
    }
    *end = 0;
    return out;
}

static bool match_class(Search *s, int atom, int at, const char *class) {
    const Token *token = at < s->count ? &s->tokens[at] : NULL;
    if (!strcmp(class, "BEGIN")) return token && begins_statement(s, at) && match(s, atom + 1, at);
    if (!strcmp(class, "END")) return (!token || token->first) && match(s, atom + 1, at);
    if (!strcmp(class, "DECL")) return match(s, atom + 1, declarator_end(s, at)) || match(s, atom + 1, at);
    if (!strcmp(class, "FILE")) return match(s, atom + 1, s->count);
    if (!strcmp(class, "CODE")) return token && token->code && at == s->place && match(s, atom + 1, at + 1);
    if (!token) return !strcmp(class, "ARGS") && piece_match(s, atom, at, at, NULL);
    if (!strcmp(class, "ADJ"))
        return at > 0 && token->text == token[-1].text + token[-1].length && match(s, atom + 1, at);
    if (!strcmp(class, "ANY")) return match(s, atom + 1, at + 1);
    if (!strcmp(class, "NAME")) return token->kind == TOKEN_WORD && piece_match(s, atom, at, at + 1, NULL);
    if (!strcmp(class, "NUMBER")) return token->kind == TOKEN_NUMBER && piece_match(s, atom, at, at + 1, NULL);
    bool other = !strcmp(class, "BASE");
    if (other || !strcmp(class, "DIGITS")) {
        const char *number = token->kind != TOKEN_WORD ? NULL : other ? other_base(s, token) : separated(s, token);
        return number && piece_match(s, atom, at, at + 1, number);
    }
    if (!strcmp(class, "HERE")) return at == s->place && match(s, atom + 1, at);
    if (!strcmp(class, "QUOTED")) return token->text[0] == '\'' && piece_match(s, atom, at, at + 1, NULL);
    if (!strcmp(class, "STRING")) return token->kind == TOKEN_STRING && piece_match(s, atom, at, at + 1, NULL);
    if (!strcmp(class, "COMMENT"))
        return token->kind == TOKEN_COMMENT && piece_match(s, atom, at, at + 1, line_comments(s, at));
    if (!strcmp(class, "EXPR") || !strcmp(class, "ARGS")) return match_text(s, atom, at, class[0] == 'A');
    if (!strcmp(class, "PLACE") || !strcmp(class, "OPERAND")) return match_place(s, atom, at, class[0] == 'O');
    if (!strcmp(class, "DIMS")) return match_dims(s, atom, at);
    if (!strcmp(class, "REST")) return match_rest(s, atom, at);
    if (!strcmp(class, "TYPE")) {
        const char *type = NULL;
        int end = type_end(s, at, &type);
        return end > at && piece_match(s, atom, at, end, type);
    }
    if (!strcmp(class, "MODULE")) {
        int name = behind_modules(s, at);
        bool member = is_sign(s, at - 1, ".") || is_sign(s, at - 1, "::");
        return !member && name > at && piece_match(s, atom, at, name, NULL);
    }
    int end = is_sign(s, at, "{") ? behind_bracket(s, at) : -1;   // BLOCK
    return end > 0 && piece_match(s, atom, at, end, NULL);
}

static bool match(Search *s, int atom, int at) {
    if (++s->steps > MOST_STEPS) return false;
    if (atom == s->atom_count) {
        s->end = at;
        return s->marked || (s->start <= s->place && s->place < at);
    }
    const Atom *a = &s->atoms[atom];
    bool bars = a->length > 2 && memchr(a->text, '|', a->length) && strncmp(a->text, "||", 2) != 0;
    if (a->role == '<' || a->role == '>') {
        int there = a->role == '<' ? at - 1 : at;
        return there >= 0 && there < s->count && is_one_of(a->text, a->length, &s->tokens[there]) &&
               match(s, atom + 1, at);
    }
    if (a->role == '^' && at != s->place) return false;
    if (a->length > 2 && isupper((unsigned char)a->text[0]) && isupper((unsigned char)a->text[1]) && !bars)
        return match_class(s, atom, at, arena_strndup(s->arena, a->text, a->length));
    if (at >= s->count || !is_one_of(a->text, a->length, &s->tokens[at])) return false;
    return bars ? piece_match(s, atom, at, at + 1, NULL) : match(s, atom + 1, at + 1);
}

static void read_pattern(Search *s, const char *pattern) {
    s->atom_count = 0;
    s->marked = false;
    for (const char *at = pattern; *at && s->atom_count < MOST_ATOMS;) {
        size_t length = strcspn(at, " ");
        Atom atom = {at, length, 0};
        if (length > 1 && (*at == '^' || ((*at == '<' || *at == '>') && strchr("[](){|,;:?", at[1]))))
            atom = (Atom){at + 1, length - 1, *at};
        s->marked |= atom.role == '^';
        s->atoms[s->atom_count++] = atom;
        at += length + (at[length] == ' ');
    }
}

static bool fits(Search *s, const Row *row) {
    read_pattern(s, row->pattern);
    bool here = row->kind == FOREIGN_NAME || row->kind == FOREIGN_ARGUMENT || row->kind == FOREIGN_ATTRIBUTE;
    for (s->start = s->place; s->start >= 0 && s->place - s->start <= (here ? 0 : REACH); s->start--) {
        s->piece_count = 0;
        if (match(s, 0, s->start)) return true;
    }
    return false;
}

// ---- what is said ----
static const char *piece_text(const Search *s, int number) {
    if (number < 0 || number >= s->piece_count) return "";
    const Piece *piece = &s->pieces[number];
    return piece->text ? piece->text : text_of(s, piece->from, piece->to);
}

static const char *filled_in(const Search *s, const char *template) {
    StrBuf out;
    sb_init(&out, s->arena);
    for (const char *at = template; *at; at++) {
        if (*at == '$' && isdigit((unsigned char)at[1])) sb_str(&out, piece_text(s, *++at - '1'));
        else sb_char(&out, *at);
    }
    return sb_text(&out);
}

// Where the tokens [from, to) stand, counted on from `at`, which is the place.
static Span span_of(const Search *s, Span at, int from, int to) {
    const char *here = s->tokens[s->place].text, *first = s->tokens[from].text;
    const char *end = to > from ? s->tokens[to - 1].text + s->tokens[to - 1].length : first;
    Span span = {.file = at.file, .line = at.line, .end_line = at.line};
    for (const char *c = first; c < here; c++) span.line -= *c == '\n';
    const char *line = first;
    while (line > s->text && line[-1] != '\n') line--;
    span.column = (int)(first - line) + 1;
    span.end_line = span.line;
    for (const char *c = first; c < end; c++) {
        if (*c != '\n') continue;
        span.end_line++;
        line = c + 1;
    }
    span.end_column = (int)(end - line) + 1;
    return span;
}

static bool has_operation(const char *name) {
    for (int i = 0; i < OP_COUNT; i++)
        if (strcmp(op_info((OpId)i)->text, name) == 0) return true;
    return type_named(name) != TYPE_NONE;
}

static bool find_row(Search *s, ForeignKind kind, Span at, Foreign *found);

// module.name(: what is said of the name, if it is one of another language; else that modules are none.
static void find_member(Search *s, Span at, Foreign *found) {
    Search of_name = *s;
    int name = s->place - 1;
    of_name.place = name;
    Span there = span_of(s, at, name, name + 1);
    if (find_row(&of_name, FOREIGN_NAME, there, found)) {
        Span first = span_of(s, at, s->start, name);
        found->span.line = first.line;
        found->span.column = first.column;
    } else if (has_operation(token_text(s, name))) {
        *found = (Foreign){.fix = token_text(s, name), .span = span_of(s, at, s->start, name + 1)};
    } else {
        *found = (Foreign){.note = "there are no modules and no methods: operations are called as f(x, y)", .span = at};
    }
    if (found->fix && has_operation(found->fix))
        found->note = arena_printf(s->arena, "a name has no module before it: write %s(..)", found->fix);
}

static bool find_row(Search *s, ForeignKind kind, Span at, Foreign *found) {
    for (int i = 0; i < COUNT_OF(rows); i++) {
        const Row *row = &rows[i];
        if (row->kind != kind || !fits(s, row)) continue;
        if (row->note == FOREIGN_MEMBER) {
            find_member(s, at, found);
            return true;
        }
        const char *fix = row->fix ? filled_in(s, row->fix) : NULL;
        *found = (Foreign){.fix = fix, .span = span_of(s, at, s->start, s->end)};
        if (s->end == s->count) found->span.end_line = INT_MAX;   // FILE: behind the window too
        if (row->note) found->note = filled_in(s, row->note);
        else if (kind == FOREIGN_SYNTAX || kind == FOREIGN_LINE) found->note = arena_printf(s->arena, "write %s", fix);
        else found->note = arena_printf(s->arena, "did you mean '%s'?", fix);
        return true;
    }
    return false;
}

static bool bounds_of_window(const char *text, size_t length, Span at, size_t *from, size_t *to, size_t *place) {
    const char *line;
    size_t size;
    if (!text_line(text, length, at.line, &line, &size)) return false;
    const char *first = line;
    for (int i = 0; i < LINES_BEFORE && first > text; i++) {
        first--;
        while (first > text && first[-1] != '\n') first--;
    }
    *place = (size_t)(line - text) + (size_t)(at.column - 1);
    *from = (size_t)(first - text);
    *to = *place < length && length - *place > BYTES_AFTER ? *place + BYTES_AFTER : length;
    return *place < length;
}

// The place moves on from behind an operand, which may stand in brackets, to its operator.
static void to_operator(Search *s, size_t from, Span *at) {
    const char *behind = s->text + from;
    s->place = 0;
    while (s->place < s->count && (s->tokens[s->place].text < behind || is_sign(s, s->place, ")"))) s->place++;
    if (s->place == s->count) s->place = -1;
    for (const char *c = behind; s->place >= 0 && c < s->tokens[s->place].text; c++) at->line += *c == '\n';
}

bool foreign_find(Arena *arena, const DiagSink *sink, ForeignKind kind, Span at, Foreign *found) {
    Search *s = NEW(arena, Search);
    s->arena = arena;
    size_t from, to, place;
    if (diag_errors(sink) > MOST_ERRORS) return false;   // which is not listed
    if (!at.line || !diag_source(sink, at.file, &s->text, &s->length)) return false;
    if (!bounds_of_window(s->text, s->length, at, &from, &to, &place)) return false;
    tokenise(s, from, to, place);
    if (kind == FOREIGN_OPERATOR) to_operator(s, place, &at);
    return s->place >= 0 && find_row(s, kind, at, found);
}

void foreign_add(Diag *d, const Foreign *found) {
    diag_note(d, "%s", found->note);
    if (found->fix) diag_fix(d, found->span, found->fix);
}
