// Tiles that are made wider, so that wgmma can take them as they lie: swap-operands does it, with what it turns.
#pragma once
#include "ir/ir.h"
#include "target/target.h"

// In place: right operands along n whose rows are no whole swizzle span get the columns that are lacking. False: there
// are none that can. Whether the kernel is any better for it is the caller's to find out.
bool pad_tiles(Arena *arena, const Target *target, Func *kernel);
bool tiles_lack_columns(const Target *target, const Func *kernel);
