// What an access costs: wavefronts of shared memory, sectors of global memory, from the addresses of the lanes.
//
// The machine is an argument: banks, bytes per bank, bytes per sector.
//
// Model of shared memory: lanes that move up to a word go together; with wider accesses 16 or 8 lanes (64 or 128 bits)
// make a phase, so that a phase asks for at most one word per bank if all goes well. A phase takes as many wavefronts
// as the busiest bank has distinct words; lanes that read the same word share it.
#pragma once
#include "layout/context.h"

typedef struct MemoryShape {
    int banks, bank_bytes, sector_bytes;   // at most 256 banks
} MemoryShape;

typedef struct SharedCost {
    int64_t phases;       // what a conflict-free access takes
    int64_t wavefronts;   // what this one takes
} SharedCost;

// Lanes of a phase, of so many that move `bytes` each.
int phase_lanes(int lanes, int bytes, MemoryShape memory);
// `addresses` are the byte addresses of `lanes` lanes, each moving `bytes` (a power of two) from an address aligned to
// it; lanes with a negative address are inactive.
SharedCost shared_cost_counted(const int64_t *addresses, int lanes, int bytes, MemoryShape memory);
