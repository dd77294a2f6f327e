// Makes tiles wider, so that wgmma can read them in place: part of swap-operands.
#pragma once
#include "ir/ir.h"
#include "target/target.h"

// In place: adds columns to right operands that are contiguous along n and whose rows are no whole swizzle spans.
// False: no tile can be padded. The caller decides whether the kernel is better for it.
bool pad_tiles(Arena *arena, const Target *target, Func *kernel);
bool tiles_lack_columns(const Target *target, const Func *kernel);
