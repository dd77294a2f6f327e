// Loops that are done box by box with a store by TMA (@epilogue_subtile).
#pragma once
#include "ir/ir.h"

// Marks those right before such stores, in the block and below. Needs layouts and maps. True when some were marked.
bool mark_epilogue_subtile(Arena *arena, const Block *body);
