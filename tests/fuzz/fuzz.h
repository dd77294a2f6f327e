// What the fuzzers share. A fuzzer is a file fuzz_NAME.c with one function:
//
//     void fuzz(Arena *arena, Failure *failure, const uint8_t *data, size_t size);
//
// It reads any bytes. Input that is wrong is refused; an internal error, a crash, a sanitizer's report, a leak or a hang is
// a finding. `data` is a copy of exactly `size` bytes, so a sanitizer sees a byte read past the end.
//
// Files: input.c (the entry points of libFuzzer), tokens.c (its mutator for texts), replay.c (main without libFuzzer).
#pragma once
#include "support/fail.h"
#include "support/strbuf.h"
#include <stdint.h>

void fuzz(Arena *arena, Failure *failure, const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed);
size_t LLVMFuzzerCustomCrossOver(const uint8_t *a, size_t a_size, const uint8_t *b, size_t b_size, uint8_t *out,
                                 size_t max_size, unsigned seed);
