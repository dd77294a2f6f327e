#include "support/utf8.h"
#include <string.h>

int utf8_decode(const char *text, size_t length, uint32_t *point) {
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};   // smaller values have a shorter form
    unsigned char first = length ? (unsigned char)text[0] : 0xff;
    int bytes = first < 0x80 ? 1 : first >> 5 == 6 ? 2 : first >> 4 == 14 ? 3 : first >> 3 == 30 ? 4 : 0;
    if (bytes == 0 || (size_t)bytes > length) return 0;
    *point = bytes == 1 ? first : first & (0x7fu >> bytes);
    for (int i = 1; i < bytes; i++) {
        if (((unsigned char)text[i] & 0xc0) != 0x80) return 0;
        *point = *point << 6 | ((unsigned char)text[i] & 0x3f);
    }
    bool valid = *point >= least[bytes] && *point <= 0x10ffff && (*point < 0xd800 || *point > 0xdfff);
    return valid ? bytes : 0;
}

int utf8_encode(uint32_t point, char out[4]) {
    static const unsigned char lead[] = {0, 0xc0, 0xe0, 0xf0};
    int tail = point < 0x80 ? 0 : point < 0x800 ? 1 : point < 0x10000 ? 2 : 3;
    out[0] = (char)(lead[tail] | point >> (6 * tail));
    for (int i = 1; i <= tail; i++) out[i] = (char)(0x80 | (point >> (6 * (tail - i)) & 0x3f));
    return tail + 1;
}

bool text_line(const char *text, size_t length, int line, const char **start, size_t *size) {
    const char *at = text, *end = text + length;
    if (line < 1) return false;
    for (int i = 1; i < line; i++) {
        at = at < end ? memchr(at, '\n', (size_t)(end - at)) : NULL;
        if (!at) return false;
        at++;
    }
    const char *newline = at < end ? memchr(at, '\n', (size_t)(end - at)) : NULL;
    *start = at;
    *size = (size_t)((newline ? newline : end) - at);
    if (*size && at[*size - 1] == '\r') --*size;
    return true;
}
