#include "runtime/json.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 200 };   // nesting; deeper input is refused, so that no input exhausts the stack

typedef struct Reader {
    Arena *arena;
    const char *text, *at, *end;
    const char *why;
    int depth;
} Reader;

static Json *read_value(Reader *r);

static void *refuse(Reader *r, const char *what) {
    if (!r->why) r->why = arena_printf(r->arena, "%s at byte %zu", what, (size_t)(r->at - r->text));
    return NULL;
}

static void skip_space(Reader *r) {
    while (r->at < r->end && strchr(" \t\r\n", *r->at) && *r->at) r->at++;
}

static bool accept(Reader *r, const char *word) {
    size_t length = strlen(word);
    if ((size_t)(r->end - r->at) < length || memcmp(r->at, word, length) != 0) return false;
    r->at += length;
    return true;
}

static void put_utf8(StrBuf *out, unsigned point) {
    if (point < 0x80) {
        sb_char(out, (char)point);
        return;
    }
    int tail = point < 0x800 ? 1 : point < 0x10000 ? 2 : 3;
    static const unsigned char lead[] = {0, 0xC0, 0xE0, 0xF0};
    sb_char(out, (char)(lead[tail] | point >> (6 * tail)));
    while (tail-- > 0) sb_char(out, (char)(0x80 | (point >> (6 * tail) & 0x3F)));
}

// The four digits after \u; -1 when they are not there.
static int read_hex4(Reader *r) {
    int value = 0;
    for (int i = 0; i < 4; i++, r->at++) {
        static const char digits[] = "0123456789abcdef";
        const char *digit = r->at < r->end && *r->at ? strchr(digits, *r->at | 32) : NULL;
        if (!digit) return -1;
        value = value * 16 + (int)(digit - digits);
    }
    return value;
}

static bool read_escape(Reader *r, StrBuf *out) {
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    char name = r->at < r->end ? *r->at++ : 0;
    const char *found = name ? strchr(names, name) : NULL;
    if (found) {
        sb_char(out, values[found - names]);
        return true;
    }
    int high = name == 'u' ? read_hex4(r) : -1, low;
    if (high <= 0) return false;   // also refuses \u0000: texts end at a zero byte
    if (high >= 0xD800 && high < 0xDC00) {
        if (!accept(r, "\\u") || (low = read_hex4(r)) < 0xDC00 || low >= 0xE000) return false;
        high = 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
    }
    put_utf8(out, (unsigned)high);
    return true;
}

static const char *read_text(Reader *r) {
    StrBuf out;
    sb_init(&out, r->arena);
    r->at++;
    while (r->at < r->end && *r->at != '"') {
        unsigned char c = (unsigned char)*r->at++;
        if (c < 0x20) return refuse(r, "control character in a string");
        if (c != '\\') sb_char(&out, (char)c);
        else if (!read_escape(r, &out)) return refuse(r, "bad escape");
    }
    if (r->at == r->end) return refuse(r, "unterminated string");
    r->at++;
    return sb_text(&out);
}

static Json *read_number(Reader *r, Json *value) {
    char digits[64];
    size_t length = 0;
    while (r->at + length < r->end && length < sizeof digits - 1 && r->at[length] &&
           strchr("+-0123456789.eE", r->at[length])) {
        digits[length] = r->at[length];
        length++;
    }
    digits[length] = 0;
    char *end;
    value->kind = strpbrk(digits, ".eE") ? JSON_REAL : JSON_INTEGER;
    errno = 0;
    value->integer = strtoll(digits, &end, 10);
    bool too_large = value->kind == JSON_INTEGER && errno == ERANGE;
    value->real = strtod(digits, &end);
    if (length == 0 || *end || too_large) return refuse(r, "bad number");
    r->at += length;
    return value;
}

// Elements up to `close`; members of an object begin with a key.
static Json *read_items(Reader *r, Json *value, char close) {
    Json **link = &value->first;
    r->at++;
    skip_space(r);
    if (r->at < r->end && *r->at == close) {
        r->at++;
        return value;
    }
    for (;;) {
        const char *key = NULL;
        skip_space(r);
        if (close == '}') {
            if (r->at == r->end || *r->at != '"' || !(key = read_text(r))) return refuse(r, "expected a key");
            skip_space(r);
            if (!accept(r, ":")) return refuse(r, "expected ':'");
        }
        Json *item = read_value(r);
        if (!item) return NULL;
        item->key = key;
        *link = item;
        link = &item->next;
        value->count++;
        skip_space(r);
        if (accept(r, ",")) continue;
        if (r->at == r->end || *r->at++ != close) return refuse(r, "expected ',' or the end of a list");
        return value;
    }
}

static Json *read_value(Reader *r) {
    Json *value = NEW(r->arena, Json);
    skip_space(r);
    if (r->at == r->end) return refuse(r, "unexpected end");
    if (*r->at == '"') {
        value->kind = JSON_STRING;
        return (value->text = read_text(r)) ? value : NULL;
    }
    if (*r->at == '{' || *r->at == '[') {
        if (++r->depth > MAX_DEPTH) return refuse(r, "nested too deeply");
        bool object = *r->at == '{';
        value->kind = object ? JSON_OBJECT : JSON_ARRAY;
        value = read_items(r, value, object ? '}' : ']');
        r->depth--;
        return value;
    }
    if (accept(r, "null")) return value;
    value->kind = JSON_BOOL;
    if (accept(r, "false")) return value;
    if ((value->boolean = accept(r, "true"))) return value;
    return read_number(r, value);
}

const Json *json_read(Arena *arena, const char *text, size_t length, const char **why) {
    Reader r = {.arena = arena, .text = text, .at = text, .end = text + length};
    Json *value = read_value(&r);
    skip_space(&r);
    if (value && r.at != r.end) value = refuse(&r, "text after the value");
    if (!value) *why = r.why;
    return value;
}

const Json *json_get(const Json *object, const char *key) {
    if (!object || object->kind != JSON_OBJECT) return NULL;
    for (const Json *member = object->first; member; member = member->next)
        if (strcmp(member->key, key) == 0) return member;
    return NULL;
}

const char *json_text(const Json *value, const char *otherwise) {
    return value && value->kind == JSON_STRING ? value->text : otherwise;
}

int64_t json_integer(const Json *value, int64_t otherwise) {
    return value && value->kind == JSON_INTEGER ? value->integer : otherwise;
}

bool json_boolean(const Json *value, bool otherwise) {
    return value && value->kind == JSON_BOOL ? value->boolean : otherwise;
}

void json_quote(StrBuf *out, const char *text) {
    sb_char(out, '"');
    for (const char *c = text; *c; c++) {
        if (*c == '"' || *c == '\\') sb_printf(out, "\\%c", *c);
        else if (*c == '\n') sb_str(out, "\\n");
        else if ((unsigned char)*c < 0x20) sb_printf(out, "\\u%04x", *c);
        else sb_char(out, *c);
    }
    sb_char(out, '"');
}
