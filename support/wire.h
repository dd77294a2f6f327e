// Structures as bytes: numbers of 8 bytes, and bytes behind their number, with a zero after them. The same function
// writes and reads the fields of a structure, so the two sides cannot differ. For messages between processes of one
// machine and for entries of the compile cache: the order of bytes is the machine's.
//
//     static void point_fields(Wire *wire, Point *p) {
//         wire_number(wire, &p->x);
//         wire_text(wire, &p->name);
//     }
#pragma once
#include "support/arena.h"
#include "support/strbuf.h"
#include <stdbool.h>

typedef struct Wire {
    Arena *arena;     // for lists that are read
    StrBuf *out;      // NULL: it is read
    const char *at;   // what is still to be read
    size_t left;
    bool broken;   // what is read is not what was written
} Wire;

Wire wire_to(StrBuf *out);
Wire wire_from(Arena *arena, const char *data, size_t size);
bool wire_whole(const Wire *wire);   // all was read, and was as written

void wire_number(Wire *wire, int64_t *value);
void wire_bytes(Wire *wire, const void **data, size_t *size);   // what is read points into the message. NULL stays NULL
void wire_text(Wire *wire, const char **value);
// Writes the number of items; the caller writes them. Reading: the number, and an array for so many.
void *wire_list(Wire *wire, const void *items, int64_t *count, size_t item);
