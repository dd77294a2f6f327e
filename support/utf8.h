// UTF-8, one code point at a time; lines of a text.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Bytes of the code point at the front of the text; 0 when there is none, or it is overlong, a surrogate or too large.
int utf8_decode(const char *text, size_t length, uint32_t *point);
int utf8_encode(uint32_t point, char out[4]);   // returns the number of bytes; `point` is one that utf8_decode gives

// Line `line`, from 1 on, without its end. False: the text has no such line.
bool text_line(const char *text, size_t length, int line, const char **start, size_t *size);
