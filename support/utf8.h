// UTF-8, one code point at a time.
#pragma once
#include <stddef.h>
#include <stdint.h>

// Bytes of the code point at the front of the text; 0 when there is none, or it is overlong, a surrogate or too large.
int utf8_decode(const char *text, size_t length, uint32_t *point);
int utf8_encode(uint32_t point, char out[4]);   // returns the number of bytes; `point` is one that utf8_decode gives
