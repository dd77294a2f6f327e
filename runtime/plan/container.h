// One file for everything: the manifest travels as the section `.tilec.plan` of the cubin, an ELF file.
#pragma once
#include "support/arena.h"
#include "support/strbuf.h"
#include <stdbool.h>

// The cubin with the plan added, in the arena. NULL with *why when it is no ELF file that we understand.
const uint8_t *container_pack(Arena *arena, const uint8_t *cubin, size_t size, const char *plan, size_t plan_length,
                              size_t *packed_size, const char **why);
// Finds the plan in a packed cubin: points into `cubin`. NULL with *why when there is none.
const char *container_plan(const uint8_t *cubin, size_t size, size_t *length, const char **why);
