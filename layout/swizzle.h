// Swizzles: XOR some bits of an offset with others, so that a column of a row-major tile spreads over all banks.
//
// Sw<B,M,S>: bits [M, M+B) of x are XORed with the B bits |S| above (S >= 0) or the other way round (S < 0):
//
//     x ^ ((x & (2^B - 1) << (M + max(0, S))) >> S)         Sw<3,4,3>:  bits 4..6 ^= bits 7..9
//
// It is a permutation of every aligned block of 2^(B + M + |S|) units, and its own inverse. The unit is whatever the
// offsets count: Sw<3,4,3> on bytes is Sw<3,3,3> on 16-bit elements.
#pragma once
#include "layout/context.h"
#include "support/strbuf.h"

typedef struct Swizzle {
    int bits, base, shift;   // B >= 0 (0: none), M >= 0, |S| >= B
} Swizzle;

bool swizzle_check(LayoutContext *cx, Swizzle s);   // refuses what is not a swizzle, or reaches beyond bit 62
int64_t swizzle_apply(Swizzle s, int64_t offset);
int64_t swizzle_period(Swizzle s);   // 2^(B + M + |S|)
// Of bytes: what TMA, wgmma and TileLang's banks do to rows of `span` bytes (128, 64, 32; 0: nothing).
enum { SWIZZLE_CHUNK_BYTES = 16 };
Swizzle swizzle_of_span(int span);
void swizzle_print(StrBuf *out, Swizzle s);   // Sw<3,4,3>
