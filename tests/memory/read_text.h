#pragma once
#include <stdio.h>

// The text of a file of at most 1 MB; NULL: it cannot be read. The next call overwrites it.
static inline char *read_text(const char *path, size_t *length) {
    static char text[1 << 20];
    FILE *file = fopen(path, "rb");
    *length = file ? fread(text, 1, sizeof text, file) : 0;
    if (file) fclose(file);
    return *length ? text : NULL;
}
