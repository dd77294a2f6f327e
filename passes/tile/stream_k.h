// Stream-K: what a kernel with `@split(stream)` keeps in global memory, and what it becomes.
#pragma once
#include "ir/ir.h"

enum { STREAM_SLICE_DIMS = 3 };   // of a CTA's part of a tile

// The part of a tile that a CTA hands to another one; false: the kernel has no `@split(stream)`, or cannot be split.
bool stream_slice(Arena *arena, const Func *kernel, Type *type, int64_t extents[STREAM_SLICE_DIMS]);
// A copy as the pass will make it, with its parameters for workspace; a kernel that is not split: itself.
const Func *as_streamed(Arena *arena, const Func *kernel);
