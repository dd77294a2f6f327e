#pragma once
#include <stdint.h>

// The next number of the file's own sequence, in [0, count): xorshift, the same in each run.
static inline int64_t below(int64_t count) {
    static uint64_t seed = 88172645463325252u;
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (int64_t)(seed % (uint64_t)count);
}
