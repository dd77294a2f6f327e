// Arithmetic on sizes.
#pragma once
#include <stdbool.h>
#include <stdint.h>

__extension__ typedef __int128 Int128;   // products of two int64_t

static inline int64_t round_up(int64_t n, int64_t to) {   // to a multiple of `to`; n >= 0, to > 0
    return (n + to - 1) / to * to;
}

static inline bool is_power_of_two(int64_t n) {
    return n > 0 && (n & (n - 1)) == 0;
}
