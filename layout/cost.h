// What an access costs, by layout: wavefronts of shared memory, sectors of global memory, vector width.
//
// Two ways to the same numbers: from the addresses of the lanes, by counting; and from a linear layout, by ranks,
// exact and without enumerating. The machine is an argument: banks, bytes per bank, bytes per sector.
//
// Model of shared memory: lanes that move up to a word go together; with wider accesses 16 or 8 lanes (64 or 128 bits)
// make a phase, so that a phase asks for at most one word per bank if all goes well. A phase takes as many wavefronts
// as the busiest bank has distinct words; lanes that read the same word share it.
#pragma once
#include "layout/linear.h"

typedef struct MemoryShape {
    int banks, bank_bytes, sector_bytes;   // at most 256 banks
} MemoryShape;

typedef struct SharedCost {
    int64_t phases;       // what a conflict-free access takes
    int64_t wavefronts;   // what this one takes
} SharedCost;

// ---- by counting ----
// `addresses` are the byte addresses of `lanes` lanes, each moving `bytes` (a power of two) from an address aligned to
// it; lanes with a negative address are inactive.
SharedCost shared_cost_counted(const int64_t *addresses, int lanes, int bytes, MemoryShape memory);
int64_t sectors_counted(LayoutContext *cx, const int64_t *addresses, int lanes, int bytes, MemoryShape memory);

// ---- by rank ----
// `conversion` maps (register, lane, ...) to an offset of elements, its first output; the first `width` registers (a
// power of two) are moved at once and are consecutive. The cost is the same for every such access of every warp.
SharedCost shared_cost_linear(LayoutContext *cx, Linear conversion, int element_bits, int64_t width,
                              MemoryShape memory);
int64_t sectors_linear(LayoutContext *cx, Linear conversion, int element_bits, int64_t width, MemoryShape memory);
// Consecutive registers at consecutive, aligned offsets; `most` elements at the most.
int64_t vector_width_linear(Linear conversion, int64_t most);
