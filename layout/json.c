#include "layout/json.h"
#include "support/vec.h"
#include <string.h>

enum { DEEPEST = 32 };

typedef struct Reader {
    LayoutContext *cx;
    const char *start, *at;
} Reader;

static Json fail(Reader *r, const char *what) {
    layout_refuse(r->cx, "JSON: %s at column %d", what, (int)(r->at - r->start) + 1);
    return (Json){.kind = JSON_NULL};
}

static char peek(Reader *r) {
    while (*r->at == ' ' || *r->at == '\t' || *r->at == '\n' || *r->at == '\r') r->at++;
    return *r->at;
}

static bool accept(Reader *r, char c) {
    if (r->cx->failed || peek(r) != c) return false;
    r->at++;
    return true;
}

static Json read_number(Reader *r) {
    bool negative = *r->at == '-';
    if (negative) r->at++;
    if (*r->at < '0' || *r->at > '9') return fail(r, "expected a value");
    int64_t value = 0;
    for (; *r->at >= '0' && *r->at <= '9'; r->at++) {
        int digit = *r->at - '0';
        if (value > (LAYOUT_LIMIT - digit) / 10) return fail(r, "overflow: a number exceeds 2^62");
        value = value * 10 + digit;
    }
    if (*r->at == '.' || *r->at == 'e' || *r->at == 'E') return fail(r, "a number is not an integer");
    return (Json){.kind = JSON_INT, .number = negative ? -value : value};
}

static int hex4(Reader *r) {
    int value = 0;
    for (int i = 0; i < 4; i++, r->at++) {
        char c = *r->at;
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0) return fail(r, "bad \\u escape"), -1;
        value = value * 16 + digit;
    }
    return value;
}

static void put_utf8(StrBuf *out, int c) {
    if (c < 0x80) {
        sb_char(out, (char)c);
    } else if (c < 0x800) {
        sb_char(out, (char)(0xc0 | c >> 6));
        sb_char(out, (char)(0x80 | (c & 63)));
    } else {
        sb_char(out, (char)(0xe0 | c >> 12));
        sb_char(out, (char)(0x80 | (c >> 6 & 63)));
        sb_char(out, (char)(0x80 | (c & 63)));
    }
}

static void read_escape(Reader *r, StrBuf *out) {
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char *found = *r->at ? strchr(from, *r->at) : NULL;
    if (found) {
        sb_char(out, to[found - from]);
        r->at++;
    } else if (*r->at == 'u') {
        r->at++;
        int c = hex4(r);
        if (c == 0 || (c >= 0xd800 && c < 0xe000)) fail(r, "\\u0000 and surrogates are not names");
        else if (c > 0) put_utf8(out, c);
    } else {
        fail(r, "bad escape");
    }
}

static const char *read_string(Reader *r) {
    const char *start = ++r->at;
    size_t plain = strcspn(start, "\"\\");
    r->at += plain;
    if (*r->at == '"') return r->at++, arena_strndup(r->cx->arena, start, plain);
    StrBuf out;
    sb_init(&out, r->cx->arena);
    sb_bytes(&out, start, plain);
    while (*r->at && *r->at != '"' && !r->cx->failed) {
        if (*r->at == '\\') r->at++, read_escape(r, &out);
        else sb_char(&out, *r->at++);
    }
    if (*r->at == '"') r->at++;
    else fail(r, "unterminated string");
    return sb_text(&out);
}

static Json read_value(Reader *r, int depth);

static Json read_items(Reader *r, int depth, bool object) {
    char close = object ? '}' : ']';
    Json few[8];
    VEC(Json) items = {few, 0, COUNT_OF(few)};
    VEC(const char *) keys = {0};
    r->at++;
    if (!accept(r, close)) {
        do {
            if (object) {
                if (peek(r) != '"') return fail(r, "expected a member's name");
                vec_push(r->cx->arena, &keys, read_string(r));
                if (!accept(r, ':')) return fail(r, "expected ':'");
            }
            vec_push(r->cx->arena, &items, read_value(r, depth + 1));
        } while (accept(r, ','));
        if (!accept(r, close)) return fail(r, object ? "expected ',' or '}'" : "expected ',' or ']'");
    }
    const Json *copy = arena_copy(r->cx->arena, items.items, sizeof *items.items * (size_t)items.count);
    return (Json){.kind = object ? JSON_OBJECT : JSON_ARRAY, .count = items.count, .items = copy, .keys = keys.items};
}

static Json read_value(Reader *r, int depth) {
    static const struct {
        const char *word;
        Json value;
    } words[] = {
        {"null", {.kind = JSON_NULL}}, {"true", {.kind = JSON_BOOL, .number = 1}}, {"false", {.kind = JSON_BOOL}}};
    if (depth > DEEPEST) return fail(r, "nested too deeply");
    char c = peek(r);
    if ((c >= '0' && c <= '9') || c == '-') return read_number(r);
    if (c == '[' || c == '{') return read_items(r, depth, c == '{');
    if (c == '"') {
        const char *text = read_string(r);
        return (Json){.kind = JSON_STRING, .text = text};
    }
    for (int i = 0; i < COUNT_OF(words); i++)
        if (!strncmp(r->at, words[i].word, strlen(words[i].word)))
            return r->at += strlen(words[i].word), words[i].value;
    return fail(r, "expected a value");
}

Json json_parse(LayoutContext *cx, const char *text) {
    Reader r = {cx, text, text};
    Json value = read_value(&r, 0);
    if (peek(&r)) fail(&r, "text after the value");
    return value;
}

const Json *json_member(Json object, const char *key) {
    if (object.kind != JSON_OBJECT) return NULL;
    for (int i = 0; i < object.count; i++)
        if (!strcmp(object.keys[i], key)) return &object.items[i];
    return NULL;
}

void json_string(StrBuf *out, const char *text) {
    sb_char(out, '"');
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\') sb_char(out, '\\');
        if (c < 0x20) sb_printf(out, "\\u%04x", c);
        else sb_char(out, *text);
    }
    sb_char(out, '"');
}
