#include "support/wire.h"
#include <string.h>

Wire wire_to(StrBuf *out) {
    return (Wire){.out = out};
}

Wire wire_from(Arena *arena, const char *data, size_t size) {
    return (Wire){.arena = arena, .at = data, .left = size};
}

bool wire_whole(const Wire *wire) {
    return !wire->broken && wire->left == 0;
}

static const char *take(Wire *wire, uint64_t size) {
    const char *at = wire->at;
    if (wire->broken || size > wire->left) {
        wire->broken = true;
        return NULL;
    }
    wire->at += size;
    wire->left -= size;
    return at;
}

void wire_number(Wire *wire, int64_t *value) {
    if (wire->out) {
        sb_bytes(wire->out, (const char *)value, sizeof *value);
        return;
    }
    const char *from = take(wire, sizeof *value);
    if (from) memcpy(value, from, sizeof *value);
    else *value = 0;
}

void wire_bytes(Wire *wire, const void **data, size_t *size) {
    int64_t length = *data ? (int64_t)*size : -1;
    wire_number(wire, &length);
    if (wire->out) {
        if (*data) sb_bytes(wire->out, *data, *size), sb_char(wire->out, 0);
        return;
    }
    const char *from = length >= 0 ? take(wire, (uint64_t)length + 1) : NULL;
    if (from && from[length]) wire->broken = true;
    *data = wire->broken ? NULL : from;
    *size = *data ? (size_t)length : 0;
}

void wire_text(Wire *wire, const char **value) {
    const void *data = *value;
    size_t size = data ? strlen(data) : 0;
    wire_bytes(wire, &data, &size);
    *value = data;
}

void *wire_list(Wire *wire, const void *items, int64_t *count, size_t item) {
    wire_number(wire, count);
    if (wire->out) return (void *)items;
    if (*count < 0 || (uint64_t)*count > wire->left / sizeof *count) wire->broken = true;
    if (wire->broken) *count = 0;
    return arena_alloc(wire->arena, item * (size_t)(*count + 1));
}
