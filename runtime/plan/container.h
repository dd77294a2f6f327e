// The manifest as the section `.tilec.plan` of the cubin, an ELF file: an artefact is one file.
#pragma once
#include "support/arena.h"
#include "support/strbuf.h"
#include <stdbool.h>

// A copy of the cubin with the plan added and without its PTX text, in `arena`. NULL, with *why: not a supported ELF file.
const uint8_t *container_pack(Arena *arena, const uint8_t *cubin, size_t size, const char *plan, size_t plan_length,
                              size_t *packed_size, const char **why);
// The plan of a packed cubin, as a pointer into `cubin`. NULL, with *why: there is none.
const char *container_plan(const uint8_t *cubin, size_t size, size_t *length, const char **why);
