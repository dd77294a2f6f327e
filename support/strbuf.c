#include "support/strbuf.h"
#include <stdio.h>
#include <string.h>

void sb_init(StrBuf *sb, Arena *arena) {
    *sb = (StrBuf){.arena = arena};
}

// Makes room for `count` more bytes and the terminator.
static void reserve(StrBuf *sb, size_t count) {
    size_t required = sb->length + count + 1;
    if (required <= sb->capacity) return;
    size_t capacity = sb->capacity ? 2 * sb->capacity : 64;
    if (capacity < required) capacity = required;
    sb->text = arena_grow(sb->arena, sb->text, sb->length, capacity);
    sb->capacity = capacity;
}

void sb_bytes(StrBuf *sb, const char *bytes, size_t count) {
    reserve(sb, count);
    if (count) memcpy(sb->text + sb->length, bytes, count);
    sb->length += count;
    sb->text[sb->length] = 0;
}

void sb_char(StrBuf *sb, char c) {
    sb_bytes(sb, &c, 1);
}

void sb_str(StrBuf *sb, const char *text) {
    sb_bytes(sb, text, strlen(text));
}

void sb_vprintf(StrBuf *sb, const char *format, va_list args) {
    va_list again;
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, again);
    va_end(again);
    if (length <= 0) return;
    reserve(sb, (size_t)length);
    vsnprintf(sb->text + sb->length, (size_t)length + 1, format, args);
    sb->length += (size_t)length;
}

void sb_printf(StrBuf *sb, const char *format, ...) {
    va_list args;
    va_start(args, format);
    sb_vprintf(sb, format, args);
    va_end(args);
}

const char *sb_text(const StrBuf *sb) {
    return sb->text ? sb->text : "";
}
