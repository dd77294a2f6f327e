// Text that grows, in an arena.
#pragma once
#include "support/arena.h"

typedef struct StrBuf {
    Arena *arena;
    char *text;   // always terminated once something was added; NULL before
    size_t length, capacity;
} StrBuf;

void sb_init(StrBuf *sb, Arena *arena);
void sb_char(StrBuf *sb, char c);
void sb_str(StrBuf *sb, const char *text);
void sb_bytes(StrBuf *sb, const char *bytes, size_t count);
void sb_printf(StrBuf *sb, const char *format, ...) __attribute__((format(printf, 2, 3)));
void sb_vprintf(StrBuf *sb, const char *format, va_list args);
const char *sb_text(const StrBuf *sb);   // "" when empty
