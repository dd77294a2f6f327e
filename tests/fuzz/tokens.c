// Mutations of a text by its tokens: a text whose bytes change at random seldom gets beyond the scanner.
//
// A mutation picks a run of tokens (half the time one token, else up to a few lines) and deletes it, doubles it, swaps it
// with another or replaces it; or it gives a number another value. Splicing takes the run from another input, so the
// inputs are each other's vocabulary.
#include "tests/fuzz/fuzz.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TOKENS = 1 << 14, LONGEST_RUN = 60 };

typedef struct Tokens {
    const char *text;
    size_t count;
    uint32_t ends[MOST_TOKENS + 1];   // token i is text[ends[i] .. ends[i + 1]), white space before it included
} Tokens;

typedef struct Run {
    const char *text;
    size_t at, size;
} Run;

typedef struct Random {
    uint64_t state;
} Random;

static size_t draw(Random *random, size_t bound) {
    random->state = random->state * 6364136223846793005u + 1442695040888963407u;
    return bound ? (size_t)(random->state >> 33) % bound : 0;
}

static bool in_word(char c) {
    return isalnum((unsigned char)c) || c == '_' || c == '.';
}

static size_t token_end(const char *text, size_t at, size_t size) {
    while (at < size && isspace((unsigned char)text[at])) at++;
    if (at == size) return at;
    if (!in_word(text[at])) return at + 1;
    while (at < size && in_word(text[at])) at++;
    return at;
}

static void tokenize(Tokens *out, const uint8_t *data, size_t size) {
    out->text = (const char *)data;
    out->count = 0;
    out->ends[0] = 0;
    while (out->ends[out->count] < size && out->count < MOST_TOKENS) {
        out->ends[out->count + 1] = (uint32_t)token_end(out->text, out->ends[out->count], size);
        out->count++;
    }
}

static Run pick(const Tokens *tokens, Random *random) {
    size_t first = draw(random, tokens->count);
    size_t length = draw(random, 2) ? 1 : 1 + draw(random, LONGEST_RUN);
    if (first + length > tokens->count) length = tokens->count - first;
    return (Run){tokens->text, tokens->ends[first], tokens->ends[first + length] - tokens->ends[first]};
}

static size_t append(uint8_t *out, size_t size, size_t max_size, const void *bytes, size_t count) {
    if (count > max_size - size) count = max_size - size;
    memcpy(out + size, bytes, count);
    return size + count;
}

// The text with the run `old` replaced by `with`.
static size_t replaced(uint8_t *out, size_t max_size, const Tokens *in, Run old, const void *with, size_t with_size) {
    size_t end = old.at + old.size;
    size_t size = append(out, 0, max_size, in->text, old.at);
    size = append(out, size, max_size, with, with_size);
    return append(out, size, max_size, in->text + end, in->ends[in->count] - end);
}

static const char *const numbers[] = {" 0",          " 1",          " -1",         " 2",
                                      " 3",          " 7",          " 16",         " 31",
                                      " 64",         " 128",        " 255",        " 4096",
                                      " 65536",      " 2147483647", " 2147483648", " 1e30",
                                      " 4294967296", " 1000000007", " 0.5",        " 9223372036854775807",
                                      " 33",         " 24",         " 5",          " 18446744073709551615"};

static size_t other_number(uint8_t *out, size_t max_size, const Tokens *in, Random *random) {
    const char *number = numbers[draw(random, sizeof numbers / sizeof *numbers)];
    size_t first = draw(random, in->count);
    for (size_t i = 0; i < in->count; i++) {
        size_t at = (first + i) % in->count;
        Run run = {in->text, in->ends[at], in->ends[at + 1] - in->ends[at]};
        if (isdigit((unsigned char)run.text[run.at + run.size - 1]))
            return replaced(out, max_size, in, run, number, strlen(number));
    }
    return append(out, 0, max_size, in->text, in->ends[in->count]);
}

static size_t swapped(uint8_t *out, size_t max_size, const Tokens *in, Run a, Run b) {
    if (a.at > b.at) return swapped(out, max_size, in, b, a);
    if (a.at + a.size > b.at) return replaced(out, max_size, in, a, b.text + b.at, b.size);
    size_t between = a.at + a.size, end = b.at + b.size;
    size_t size = append(out, 0, max_size, in->text, a.at);
    size = append(out, size, max_size, in->text + b.at, b.size);
    size = append(out, size, max_size, in->text + between, b.at - between);
    size = append(out, size, max_size, in->text + a.at, a.size);
    return append(out, size, max_size, in->text + end, in->ends[in->count] - end);
}

static size_t edited(uint8_t *out, size_t max_size, const Tokens *in, Random *random) {
    Run run = pick(in, random), other = pick(in, random);
    Run before = {run.text, run.at, 0};
    switch (draw(random, 5)) {
    case 0: return replaced(out, max_size, in, run, "", 0);
    case 1: return replaced(out, max_size, in, before, run.text + run.at, run.size);
    case 2: return replaced(out, max_size, in, run, other.text + other.at, other.size);
    case 3: return swapped(out, max_size, in, run, other);
    default: return other_number(out, max_size, in, random);
    }
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed) {
    Random random = {seed * 0x9E3779B97F4A7C15u + 1};
    if (size == 0 || draw(&random, 8) == 0) return LLVMFuzzerMutate(data, size, max_size);
    Tokens *tokens = malloc(sizeof *tokens);
    uint8_t *out = malloc(max_size);
    for (size_t edits = 1 + draw(&random, 3); edits > 0 && size > 0; edits--) {
        tokenize(tokens, data, size);
        size = edited(out, max_size, tokens, &random);
        memcpy(data, out, size);
    }
    free(out);
    free(tokens);
    return size;
}

size_t LLVMFuzzerCustomCrossOver(const uint8_t *a, size_t a_size, const uint8_t *b, size_t b_size, uint8_t *out,
                                 size_t max_size, unsigned seed) {
    if (a_size == 0 || b_size == 0) return append(out, 0, max_size, a, a_size);
    Random random = {seed * 0x9E3779B97F4A7C15u + 1};
    Tokens *tokens = malloc(2 * sizeof *tokens);
    tokenize(&tokens[0], a, a_size);
    tokenize(&tokens[1], b, b_size);
    Run old = pick(&tokens[0], &random), with = pick(&tokens[1], &random);
    if (draw(&random, 2)) old.size = 0;
    size_t size = replaced(out, max_size, &tokens[0], old, with.text + with.at, with.size);
    free(tokens);
    return size;
}
