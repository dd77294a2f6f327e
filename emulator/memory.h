// Elements of tensors, shared memory, fragments and local arrays, as agents access them.
//
// In: a Place (code.h) and the lanes that access it. Out: element offsets, values, and reports of what is out of range,
// not initialised, still being written, or misaligned. Counts of bank conflicts and sectors.
//
// Files in order: memory.c, thread.c (vector accesses), conflicts.c.
#pragma once
#include "emulator/code.h"

typedef struct Machine Machine;
typedef struct Cta Cta;

typedef struct LocalArray {
    Lanes *data;
    Mask *init;
    int64_t elements, capacity;
    int64_t shape[MAX_RANK];
    uint16_t *busy;     // watched ones, by element: wgmmas that have it
    uint8_t *touched;   // by other instructions since the last wgmma_fence
} LocalArray;

// Of an element; WRITING and READING: by an asynchronous operation. Above these, at tile stage, whose value it holds: the number of
// the buffer among those that have one storage by @alias.
enum { STATE_NONE = 0, STATE_READY = 1, STATE_WRITING = 2, STATE_READING = 4, STATE_OWNER = 8, STATE_OWNERS = 32 };

// ---- places ----
Mem *machine_mem(const Machine *machine, int mem);
void mem_declare(Agent *agent, int mem);
uint8_t *mem_data(const Cta *cta, const Mem *mem);
uint8_t *mem_state(const Cta *cta, const Mem *mem);   // NULL: all initialised
const char *element_text(Arena *arena, const Mem *mem, int64_t offset);
// Element offsets of the active lanes; returns the lanes that are in range (the others are reported where that is an
// error). `spans`: elements that follow from there, by lane; NULL: one.
Mask place_offsets(Agent *agent, const Place *place, Mask mask, const int64_t *spans, int64_t *offsets);
// Element of the agent's local array at which an access of `span` elements begins; -1: out of range and reported.
int64_t local_offset(Agent *agent, const Place *place, int lane, int64_t span);
int64_t local_place(Agent *agent, const Place *place, int lane, int64_t span);   // the same, but it is no access

// ---- accesses ----
void access_load(Agent *agent, const Instr *in, const Place *place, Lanes *out);
void access_store(Agent *agent, const Instr *in, const Place *place, const Lanes *value, Type from);
void local_load(Agent *agent, const Instr *in, const Place *place, Lanes *out);
void local_store(Agent *agent, const Instr *in, const Place *place, const Lanes *value, Type from);

// ---- checks: each reports, and returns false, when its condition does not hold ----
bool local_ready(Agent *agent, const Mem *mem, int64_t element, Mask mask);   // it is initialised in these lanes
bool state_readable(Agent *agent, const Mem *mem, int64_t offset, int64_t count, int lane);
bool state_writable(Agent *agent, const Mem *mem, int64_t offset, int64_t count, int lane);
// The same, in the memory of another CTA.
bool state_readable_in(Agent *agent, const Cta *cta, const Mem *mem, int64_t offset, int64_t count, int lane);
bool state_writable_in(Agent *agent, const Cta *cta, const Mem *mem, int64_t offset, int64_t count, int lane);
bool access_aligned(Agent *agent, const Mem *mem, int64_t offset, int64_t bytes, int lane);
void state_set(const Cta *cta, const Mem *mem, int64_t offset, int64_t count, int value);

// ---- traffic (conflicts.c) ----
void conflicts_count(Agent *agent, const Mem *mem, const int64_t *bytes_at, Mask mask, int bytes);
void conflicts_rows(Agent *agent, const Mem *mem, const int64_t *rows, int count);   // of `count` 8x8 matrices
void sectors_count(Agent *agent, const int64_t *bytes_at, Mask mask, int bytes);
void conflicts_sites(const Machine *machine, Arena *keep);   // fills the report's sites
