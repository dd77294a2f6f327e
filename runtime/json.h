// JSON in an arena: a reader for manifests and a writer of quoted strings.
//
// A library of its own is not used here because a compile's memory must come from the host's allocator and be gone when
// the arena is, also when reading stops halfway (support/fail.h).
#pragma once
#include "support/arena.h"
#include "support/strbuf.h"
#include <stdbool.h>

typedef enum { JSON_NULL, JSON_BOOL, JSON_INTEGER, JSON_REAL, JSON_STRING, JSON_ARRAY, JSON_OBJECT } JsonKind;

typedef struct Json Json;
struct Json {
    JsonKind kind;
    bool boolean;
    int64_t integer;      // INTEGER
    double real;          // INTEGER and REAL
    const char *text;     // STRING
    const char *key;      // of a member of an object
    Json *first, *next;   // elements or members in order; the next of this one's siblings
    int count;
};

// NULL when the text is no JSON; *why then says what is wrong and where.
const Json *json_read(Arena *arena, const char *text, size_t length, const char **why);

// The member of that name; NULL when `object` is NULL, no object, or has none. So look-ups can be chained.
const Json *json_get(const Json *object, const char *key);
// Values with a fallback, for members that may be missing or of another kind.
const char *json_text(const Json *value, const char *otherwise);
int64_t json_integer(const Json *value, int64_t otherwise);
bool json_boolean(const Json *value, bool otherwise);

void json_quote(StrBuf *out, const char *text);   // "text", escaped
