// Where a fragment or tile has a value that is used later.
#pragma once
#include "ir/ir.h"

typedef struct LiveRange {
    const Block *block;   // NULL: nothing uses it
    int first, last;      // statements of the block
} LiveRange;

// The innermost block whose statements have all uses of the fragment. Of a loop that it is: the loop's body, where each
// round writes the fragment before it reads it; the loop, where a round reads what one before has written.
LiveRange live_range(Arena *arena, const Block *block, const Buf *buf);
// A round of the loop may read what the fragment or tile had before that round.
bool loop_carries(Arena *arena, const Stmt *loop, const Buf *buf);
// Something behind the statement, in the block or what is in it, or another CTA may read the value that the statement leaves.
bool is_read_behind(Arena *arena, const Block *block, const Stmt *stmt, const Buf *buf);
int uses_of(Arena *arena, const Func *kernel, const Buf *buf);   // statements that use it, a parallel loop being one
bool is_compound(const Stmt *stmt);   // it has bodies of statements; a parallel loop counts as one statement

typedef struct Live {
    LiveRange range;
    int64_t registers;
} Live;

typedef VEC(Live) LiveVec;

int64_t most_live(const LiveVec *ranges, const Block *block);   // registers at a time
