// Arithmetic on an accumulator on its way to memory, box by box with the store.
//
// A store by TMA takes a box of the fragment at a time (lower_hopper.c), with barriers between. A loop before it that does its
// work for the whole fragment first has all that it reads in registers at once, beside the fragment: 128 by 128 sums and as many
// terms of another tensor are more than a warpgroup has. Done with each box it needs a box's terms.
//
//     @epilogue_subtile parallel (i in 128, j in 128) acc[i, j] += R[bm * 128 + i, bn * 128 + j];
//     @via(tma_store) copy(acc, C[bm * 128, bn * 128]);          4 times: terms of a box, sums, stmatrix, store
//
// It may be so when the loop runs over the fragment as the threads hold it, writes registers only, and does not read what the
// copy writes. Shared memory is not read: barriers for it would stand between the loop and the copy.
#include "passes/layout/epilogue_fusion.h"
#include "ir/rewrite.h"
#include "passes/analysis/tile_loop.h"
#include "passes/analysis/util.h"
#include <string.h>

static bool has_effect(const Stmt *stmt, void *user) {
    (void)user;
    if (stmt->kind == STMT_STORE) return stmt->store.buf->scope != SCOPE_FRAGMENT;
    return stmt->kind != STMT_LET && stmt->kind != STMT_VAR && stmt->kind != STMT_ASSIGN && stmt->kind != STMT_IF &&
           stmt->kind != STMT_BLOCK;
}

static bool runs_over(Arena *arena, Stmt *stmt, const Region *from, const Buf *to) {
    TileLoop loop;
    TileAccessVec accesses = {0};
    const char *map = attr_text(stmt->attrs, ATTR_MAP);
    if (stmt->kind != STMT_FOR || stmt->loop.kind != LOOP_PARALLEL || !map || !from->buf->layout) return false;
    if (strcmp(map, layout_text(arena, from->buf->layout)) != 0 || !tile_loop_of(arena, stmt, &loop)) return false;
    if (block_any(&loop.body, has_effect, NULL)) return false;
    tile_accesses(arena, &loop, &accesses);
    for (int a = 0; a < accesses.count; a++) {
        const TileAccess *access = &accesses.items[a];
        if (access->is_atomic || access->buf->scope == SCOPE_SHARED || access->buf == to) return false;
    }
    return true;
}

typedef struct Marker {
    Arena *arena;
    bool changed;
} Marker;

static void mark_before(Marker *marker, const Block *block, int copy) {
    const Arg *args = block->items[copy]->call.args;
    for (int i = copy - 1; i >= 0 && runs_over(marker->arena, block->items[i], args[0].region, args[1].region->buf);
         i--) {
        if (attr_get(block->items[i]->attrs, ATTR_EPILOGUE_SUBTILE)) continue;
        attr_set_ints(marker->arena, &block->items[i]->attrs, ATTR_EPILOGUE_SUBTILE, 0, NULL);
        marker->changed = true;
    }
}

static void mark_block(Marker *marker, const Block *block) {
    for (int i = 0; i < block->count; i++) {
        Block *bodies[2];
        if (via_is(block->items[i], VIA_TMA_STORE)) mark_before(marker, block, i);
        for (int b = 0, count = stmt_bodies(block->items[i], bodies); b < count; b++) mark_block(marker, bodies[b]);
    }
}

bool mark_epilogue_subtile(Arena *arena, const Block *body) {
    Marker marker = {arena, false};
    mark_block(&marker, body);
    return marker.changed;
}
