// JSON in an arena: reading, and writing quoted strings.
//
// A library of its own is not used here because a compile's memory must come from the host's allocator and be gone when
// the arena is, also when reading stops halfway (support/fail.h). And this one is fast: `tilec layout --batch` reads a
// hundred megabytes a second with it.
//
// Strings are valid UTF-8 without zero bytes, escapes resolved. Numbers are integers of 64 bits, or reals. An object
// has each member once.
#pragma once
#include "support/arena.h"
#include "support/strbuf.h"
#include <stdbool.h>

typedef enum { JSON_NULL, JSON_BOOL, JSON_INTEGER, JSON_REAL, JSON_STRING, JSON_ARRAY, JSON_OBJECT } JsonKind;

typedef struct Json {
    JsonKind kind;
    int count;             // of elements or members
    union {                // by kind
        int64_t integer;   // of a boolean too: 0 or 1
        double real;
        const char *text;
        struct {
            const struct Json *items;   // elements, or the members' values
            const char *const *keys;    // of an object: the members' names
        };
    };
} Json;

// NULL when the text is no JSON; *why then says what is wrong and where.
const Json *json_read(Arena *arena, const char *text, size_t length, const char **why);

// The member of that name; NULL when `object` is NULL or no object, or has none. So look-ups can be chained.
const Json *json_get(const Json *object, const char *key);
// An element of an array or a member's value; NULL beyond the end, and when `list` is NULL or neither.
const Json *json_at(const Json *list, int index);
// Values with a fallback, for members that may be missing or of another kind.
const char *json_text(const Json *value, const char *otherwise);
int64_t json_integer(const Json *value, int64_t otherwise);
bool json_boolean(const Json *value, bool otherwise);

void json_quote(StrBuf *out, const char *text);   // "text", escaped; bytes that are no UTF-8 become U+FFFD

// For each element: `JSON_EACH(item, list) use(item);`
#define JSON_EACH(item, list)                                                                                          \
    for (const Json *item = json_at(list, 0), *item##_end = item ? item + (list)->count : NULL; item != item##_end;    \
         item++)
