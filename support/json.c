#include "support/json.h"
#include "support/utf8.h"
#include "support/vec.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    DEEPEST = 200,         // nesting: no input exhausts the stack
    MOST_MEMBERS = 1000,   // of an object: no input makes the search for duplicates long
};

// Reads a copy of the text, which ends with a zero byte. Strings stay in the copy: what escapes stand for is never
// longer than the escapes, and the closing quote makes room for the end.
typedef struct Reader {
    Arena *arena;
    char *text, *at;
    const char *why;
    int depth;
} Reader;

static bool refuse(Reader *r, const char *what) {
    if (!r->why) r->why = arena_printf(r->arena, "%s at byte %zu", what, (size_t)(r->at - r->text));
    return false;
}

static char peek(Reader *r) {   // skips white space
    while (*r->at == ' ' || *r->at == '\t' || *r->at == '\n' || *r->at == '\r') r->at++;
    return *r->at;
}

static bool accept(Reader *r, char c) {
    if (peek(r) != c) return false;
    r->at++;
    return true;
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

// ---- numbers ----

static bool skip_digits(Reader *r) {
    const char *start = r->at;
    while (is_digit(*r->at)) r->at++;
    return r->at > start;
}

static bool read_real(Reader *r, Json *value, char *start) {
    bool good = true;
    if (*r->at == '.') r->at++, good = skip_digits(r);
    if (good && (*r->at == 'e' || *r->at == 'E')) {
        r->at++;
        if (*r->at == '+' || *r->at == '-') r->at++;
        good = skip_digits(r);
    }
    char *end;
    *value = (Json){.kind = JSON_REAL, .real = strtod(start, &end)};
    return (good && end == r->at) || refuse(r, "bad number");
}

static bool read_number(Reader *r, Json *value) {
    char *start = r->at;
    bool negative = *r->at == '-', overflow = false;
    if (negative) r->at++;
    if (!is_digit(*r->at)) return refuse(r, "expected a value");
    if (*r->at == '0' && is_digit(r->at[1])) return refuse(r, "bad number");
    int64_t number = 0;
    for (; is_digit(*r->at); r->at++) {
        int digit = *r->at - '0';
        overflow |= __builtin_mul_overflow(number, 10, &number);
        overflow |= __builtin_sub_overflow(number, digit, &number);   // negative numbers reach one further
    }
    if (*r->at == '.' || *r->at == 'e' || *r->at == 'E') return read_real(r, value, start);
    if (!negative) overflow |= __builtin_sub_overflow(0, number, &number);
    *value = (Json){.kind = JSON_INTEGER, .integer = number};
    return !overflow || refuse(r, "a number beyond 64 bits");
}

// ---- strings ----

// The four digits after \u; -1 when they are not there.
static int read_hex4(Reader *r) {
    int value = 0;
    for (int i = 0; i < 4; i++, r->at++) {
        static const char digits[] = "0123456789abcdef";
        const char *digit = *r->at ? strchr(digits, *r->at | 32) : NULL;
        if (!digit) return -1;
        value = value * 16 + (int)(digit - digits);
    }
    return value;
}

static bool read_escape(Reader *r, char **out) {
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    const char *found = *r->at ? strchr(names, *r->at) : NULL;
    if (found) return r->at++, *(*out)++ = values[found - names], true;
    int high = *r->at++ == 'u' ? read_hex4(r) : -1, low;
    if (high <= 0 || (high >= 0xDC00 && high < 0xE000)) return false;   // \u0000: texts end at a zero byte
    if (high >= 0xD800 && high < 0xDC00) {
        if (*r->at++ != '\\' || *r->at++ != 'u' || (low = read_hex4(r)) < 0xDC00 || low >= 0xE000) return false;
        high = 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
    }
    *out += utf8_encode((uint32_t)high, *out);
    return true;
}

static const char *read_text(Reader *r) {
    char *start = ++r->at, *out = start;
    while (*r->at != '"') {
        unsigned char c = (unsigned char)*r->at;
        uint32_t point;
        int bytes = c < 0x80 ? 1 : utf8_decode(r->at, strnlen(r->at, 4), &point);
        if (c < 0x20) return refuse(r, c ? "control character in a string" : "unterminated string"), NULL;
        if (!bytes) return refuse(r, "no UTF-8"), NULL;
        if (c == '\\') {
            char *escape = r->at++;
            if (!read_escape(r, &out)) return r->at = escape, refuse(r, "bad escape"), NULL;
        } else
            while (bytes--) *out++ = *r->at++;
    }
    r->at++;
    *out = 0;
    return start;
}

// ---- values ----

static bool read_value(Reader *r, Json *value);

static bool read_items(Reader *r, Json *value, bool object) {
    char close = object ? '}' : ']';
    Json few[8];
    VEC(Json) items = {few, 0, COUNT_OF(few)};
    VEC(const char *) keys = {0};
    r->at++;
    if (!accept(r, close)) {
        do {
            Json item;
            if (object) {
                const char *key = peek(r) == '"' ? read_text(r) : NULL;
                if (!key) return refuse(r, "expected a key");
                if (keys.count == MOST_MEMBERS) return refuse(r, "too many members");
                for (int i = 0; i < keys.count; i++)
                    if (*keys.items[i] == *key && !strcmp(keys.items[i], key))
                        return refuse(r, "a second member of one name");
                vec_push(r->arena, &keys, key);
                if (!accept(r, ':')) return refuse(r, "expected ':'");
            }
            if (!read_value(r, &item)) return false;
            vec_push(r->arena, &items, item);
        } while (accept(r, ','));
        if (!accept(r, close)) return refuse(r, "expected ',' or the end of a list");
    }
    *value = (Json){.kind = object ? JSON_OBJECT : JSON_ARRAY,
                    .count = items.count,
                    .items = arena_copy(r->arena, items.items, sizeof *items.items * (size_t)items.count),
                    .keys = keys.items};
    return true;
}

static bool read_word(Reader *r, const char *word) {
    size_t length = strlen(word);
    if (strncmp(r->at, word, length) != 0) return refuse(r, "expected a value");
    r->at += length;
    return true;
}

static bool read_value(Reader *r, Json *value) {
    char c = peek(r);
    if (c == '[' || c == '{') {
        if (++r->depth > DEEPEST) return refuse(r, "nested too deeply");
        bool good = read_items(r, value, c == '{');
        r->depth--;
        return good;
    }
    if (c == '"') {
        *value = (Json){.kind = JSON_STRING, .text = read_text(r)};
        return value->text != NULL;
    }
    if (c == 'n') return *value = (Json){.kind = JSON_NULL}, read_word(r, "null");
    if (c == 't' || c == 'f') {
        *value = (Json){.kind = JSON_BOOL, .integer = c == 't'};
        return read_word(r, c == 't' ? "true" : "false");
    }
    return read_number(r, value);
}

const Json *json_read(Arena *arena, const char *text, size_t length, const char **why) {
    Reader r = {.arena = arena, .text = arena_strndup(arena, text, length)};
    r.at = r.text;
    Json value;
    if (read_value(&r, &value) && (peek(&r) || r.at != r.text + length)) refuse(&r, "text after the value");
    if (r.why) *why = r.why;
    return r.why ? NULL : arena_copy(arena, &value, sizeof value);
}

// ---- looking up ----

const Json *json_get(const Json *object, const char *key) {
    if (!object || object->kind != JSON_OBJECT) return NULL;
    for (int i = 0; i < object->count; i++)
        if (*object->keys[i] == *key && !strcmp(object->keys[i], key)) return &object->items[i];
    return NULL;
}

const Json *json_at(const Json *list, int index) {
    bool is_list = list && (list->kind == JSON_ARRAY || list->kind == JSON_OBJECT);
    return is_list && index < list->count ? &list->items[index] : NULL;
}

const char *json_text(const Json *value, const char *otherwise) {
    return value && value->kind == JSON_STRING ? value->text : otherwise;
}

int64_t json_integer(const Json *value, int64_t otherwise) {
    return value && value->kind == JSON_INTEGER ? value->integer : otherwise;
}

bool json_boolean(const Json *value, bool otherwise) {
    return value && value->kind == JSON_BOOL ? value->integer != 0 : otherwise;
}

// ---- writing ----

void json_quote(StrBuf *out, const char *text) {
    sb_char(out, '"');
    for (size_t length = strlen(text); length;) {
        size_t plain = 0;
        while (plain < length && text[plain] >= 0x20 && text[plain] != '"' && text[plain] != '\\' && text[plain] < 0x7f)
            plain++;
        sb_bytes(out, text, plain);
        text += plain;
        length -= plain;
        if (!length) break;
        uint32_t point = 0;
        int bytes = utf8_decode(text, length, &point);
        if (!bytes) sb_str(out, "\\ufffd");
        else if (point == '"' || point == '\\') sb_printf(out, "\\%c", (char)point);
        else if (point == '\n') sb_str(out, "\\n");
        else if (point < 0x20 || point == 0x7f) sb_printf(out, "\\u%04x", point);
        else sb_bytes(out, text, (size_t)bytes);
        text += bytes ? bytes : 1;
        length -= bytes ? (size_t)bytes : 1;
    }
    sb_char(out, '"');
}
