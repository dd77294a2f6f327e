// Reading JSON into an arena: what the batch's questions need, and fast. Integers only (a fraction or an exponent is
// refused); nesting is bounded; strings are UTF-8 with escapes resolved. Writing is done by hand with StrBuf and
// `json_string`.
#pragma once
#include "layout/context.h"
#include "support/strbuf.h"

typedef enum { JSON_NULL, JSON_BOOL, JSON_INT, JSON_STRING, JSON_ARRAY, JSON_OBJECT } JsonKind;

typedef struct Json {
    JsonKind kind;
    int count;              // of items
    union {                 // by kind
        int64_t number;     // of an integer; 0 or 1 of a bool
        const char *text;   // of a string
        struct {
            const struct Json *items;   // of an array or object
            const char **keys;          // of an object
        };
    };
} Json;

Json json_parse(LayoutContext *cx, const char *text);    // the whole text
const Json *json_member(Json object, const char *key);   // NULL when absent
void json_string(StrBuf *out, const char *text);         // quoted and escaped
