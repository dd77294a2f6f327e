// multi-buffer: multi-buffering of shared tiles. A tile gets one buffer slot per pipeline stage, so that copies of
// later iterations do not overwrite the tile that is in use.
//
//     pipelined (k in n, stages = 3) {                    shared As: bf16[3, 128, 64];
//         copy(A[...], As);                               ...
//         gemm(As, Bs.T, acc);                                copy(A[...], As[k % 3, :, :]);
//     }                                                       gemm(As[k % 3, :, :], Bs[...].T, acc);
//
// A tile is multi-buffered when
//
//   - an asynchronous copy in the loop body, or under a condition in it, or several to its pieces, one behind the other, fill all of it, before any read
//     in the iteration, and nothing else writes it;
//   - nothing outside of pipelined loops accesses it (several loops may share it, if each fills it);
//   - the copy may start in an earlier iteration (async_copy_legality.h).
//
// Other tiles keep one buffer, and -R gives the reason. What groups load a single time for each tile of a persistent grid has
// as many slots as `@stages` of the grid says.
//
// The loop is rewritten to count from 0 by 1, so that k % stages is the slot. Of several iterators the innermost is
// pipelined, the others become loops around it. Each entry to the loop starts at slot 0: slots depend on the iteration
// count, not on the values of the indices. A tile that the loop declares is declared before the loop afterwards.
#include "ir/schedule.h"
#include "passes/pipeline/async_copy_legality.h"
#include "passes/specialize/warp_specialize.h"
#include "support/numbers.h"

enum { MOST_TILES = 128 };   // of a loop: what is asked of a tile is asked of the loop's other statements

typedef struct MultiBuffer {
    PassContext *context;
    Arena *arena;
    VEC(Stmt *) loops;     // pipelined, with stages
    Map *multi_buffered;   // buffers that have got slots
    Func *kernel;
    bool changed;
} MultiBuffer;

// ---- may it? ----

// What a statement fills that may have slots: by an asynchronous copy or, of a role that loads, any; or by one from a
// tile that has some (the role that transposes it works ahead).
static Buf *multi_buffer_target(const MultiBuffer *m, const Stmt *stmt) {
    if (via_is(stmt, VIA_TRANSPOSE) && copy_of(stmt).src->buf->stage_dims > 0) return copy_of(stmt).dst->buf;
    Buf *started = async_target(stmt), *loaded = started ? NULL : loaded_tile(stmt);
    if (!loaded || planned_kind(m->kernel) != WS_COOPERATIVE) return started;
    return loaded;
}

static int first_fill(const MultiBuffer *m, const Block *block, const Buf *buf) {
    for (int i = 0; i < block->count; i++)
        if (multi_buffer_target(m, block->items[i]) == buf) return i;
    return -1;
}

// The block of the loop that fills the buffer: its body or, where roles load, that of a condition in it (each role counts
// the slots that it passes). NULL: none.
static const Block *filling_block(const MultiBuffer *m, const Block *block, const Buf *buf) {
    if (first_fill(m, block, buf) >= 0) return block;
    FOR_EACH_ITEM (stmt, block) {
        if (stmt->kind != STMT_IF || planned_kind(m->kernel) != WS_COOPERATIVE) continue;
        FOR_EACH_BODY (body, stmt) {
            const Block *inner = filling_block(m, body, buf);
            if (inner) return inner;
        }
    }
    return NULL;
}

static const Block *filled_in(const MultiBuffer *m, const Stmt *loop, const Buf *buf) {
    return filling_block(m, &loop->loop.body, buf);
}

static int count_uses(MultiBuffer *m, const Block *block, const Buf *buf) {
    int uses = 0;
    FOR_EACH_ITEM (stmt, block) uses += count_effects(m->arena, stmt, buf);
    return uses;
}

// Why the buffer gets no slots for what fills it in this body, of the loop or (NULL) of the grid; NULL when it may.
static const char *body_problem(MultiBuffer *m, const Block *body, const Stmt *loop, const Buf *buf) {
    const Block *block = filling_block(m, body, buf);
    EXPECT(m->context->failure, block, "no copy in the body fills '%s'", buf->name);
    int at = first_fill(m, block, buf), end = fill_end(block, at, buf);
    if (end < 0) return partial_fill_problem(block, buf);
    for (int i = 0; i < block->count; i++) {
        const Stmt *stmt = block->items[i];
        if (i < at && stmt_touches(m->arena, stmt, buf))
            return "it is read before the copy that fills it: read it after that";
        if (i > end && stmt_writes(m->arena, stmt, buf))
            return "it is written again after the copy: write to another buffer";
    }
    bool in_condition = block != body;   // (what the role that loads needs there was found with the roles)
    if (in_condition && count_uses(m, block, buf) != count_uses(m, body, buf))
        return "it is used outside of the condition under which it is filled: use it inside";
    const char *problem = NULL;
    for (int i = at; i <= end && !problem; i++) {
        if (!stmt_touches(m->arena, block->items[i], buf) || via_is(block->items[i], VIA_TRANSPOSE)) continue;
        bool starts = multi_buffer_target(m, block->items[i]) == buf;
        if (!starts) problem = "not all of its pieces are copied asynchronously: T0523 says why";
        else if (!in_condition && loop) problem = early_start_problem(m->arena, loop, i);
    }
    return problem;
}

static const char *loop_problem(MultiBuffer *m, const Stmt *loop, const Buf *buf) {
    if (block_breaks(&loop->loop.body)) return "a `break` leaves the loop: give the loop the bound at which it ends";
    return body_problem(m, &loop->loop.body, loop, buf);
}

// The loops that fill the buffer; NULL when all of them may multi-buffer it and nothing else uses it, else the reason.
static const char *multi_buffer_problem(MultiBuffer *m, const Buf *buf) {
    int inside = 0;
    bool filled = false;
    if (buf->alias_of || buf->offset >= 0) return "it has an @offset or @alias: leave them out";
    FOR_EACH_ITEM (loop, &m->loops) {
        if (!filled_in(m, loop, buf)) continue;
        const char *problem = loop_problem(m, loop, buf);
        if (problem) return problem;
        inside += count_uses(m, &loop->loop.body, buf);
        filled = true;
    }
    if (!filled) return "it is filled under a condition, and no role loads it: T0526 says why";
    return inside == count_uses(m, &m->kernel->body, buf) ? NULL : "it is used outside of the loop: declare it inside";
}

// ---- the loop: from 0 by 1, one iterator ----

static void normalise_loop(MultiBuffer *m, Stmt *loop) {
    Arena *a = m->arena;
    while (loop->loop.count > 1) {   // the innermost stays pipelined
        Stmt *inner = stmt_new(a, STMT_FOR, loop->loc);
        inner->loop = loop->loop;
        inner->loop.iters = loop->loop.iters + 1;
        inner->loop.count = loop->loop.count - 1;
        inner->attrs = loop->attrs;
        loop->attrs = NULL;
        loop->loop.kind = LOOP_SERIAL;
        loop->loop.stages = NULL;
        loop->loop.count = 1;
        loop->loop.body = (Block){0};
        block_push(a, &loop->loop.body, inner);
        loop = inner;
    }
    Iter *iter = &loop->loop.iters[0];
    if (iter_is_plain(iter)) return;
    Var *count = var_new(a, "trip", VAR_ITER, TYPE_I64, iter->var->loc);
    Subst *subst = subst_new(a);
    subst_var(subst, iter->var, e_add(a, e_mul(a, e_var(a, count), iter->step), iter->begin));
    subst_block(subst, &loop->loop.body);
    *iter = (Iter){count, e_int(a, 0), iter_trips(a, iter), e_int(a, 1)};
}

// ---- slots ----

typedef struct Slot {
    Buf *buf;
    Expr *index;
} Slot;

static Expr **with_first(Arena *arena, Expr *first, int count, Expr *const *rest) {
    Expr **result = NEW_ARRAY(arena, Expr *, count + 1);
    result[0] = first;
    for (int i = 0; i < count; i++) result[i + 1] = rest[i];
    return result;
}

static Expr **with_slot(Arena *arena, const Slot *slot, int count, Expr *const *indices) {
    EXPECT(arena_failure(arena), count + 1 == slot->buf->rank, "%d indices of '%s' in its slot", count,
           slot->buf->name);
    return with_first(arena, slot->index, count, indices);
}

static Expr *slot_load(Mapper *mapper, Expr *expr) {
    const Slot *slot = mapper->user;
    if (expr->kind != EXPR_LOAD || expr->load.buf != slot->buf || expr->load.count == slot->buf->rank) return expr;
    Expr **indices = with_slot(mapper->arena, slot, expr->load.count, expr->load.indices);
    return e_load(mapper->arena, slot->buf, slot->buf->rank, indices);
}

static Region *slot_region(Mapper *mapper, Region *region) {
    const Slot *slot = mapper->user;
    if (region->buf != slot->buf || region->count == slot->buf->rank) return region;
    RegionDim *dims = NEW_ARRAY(mapper->arena, RegionDim, slot->buf->rank);
    dims[0] = (RegionDim){slot->index, NULL, 1};
    for (int d = 0; d < region->count; d++) dims[d + 1] = region->dims[d];
    return region_new(mapper->arena, slot->buf, dims, region->transposed, region->loc);
}

static void index_body(MultiBuffer *m, Block *body, Buf *buf, Expr *index) {
    Slot slot = {buf, index};
    Mapper mapper = {.arena = m->arena, .expr = slot_load, .region = slot_region, .user = &slot};
    map_block(&mapper, body);
    FOR_EACH_STMT_MUT (stmt, body) {
        if (stmt->kind != STMT_STORE || stmt->store.buf != buf || stmt->store.count == buf->rank) continue;
        stmt->store.indices = with_slot(m->arena, &slot, stmt->store.count, stmt->store.indices);
        stmt->store.count++;
    }
}

static void index_slots(MultiBuffer *m, Stmt *loop, Buf *buf) {
    Expr *count = e_var(m->arena, loop->loop.iters[0].var);
    EXPECT(m->context->failure, loop->loop.count == 1 && expr_is_int(loop->loop.iters[0].step, 1),
           "a multi-buffered loop of %d iterators", loop->loop.count);
    EXPECT(m->context->failure, loop_stages(loop) <= buf_extent(buf, 0), "%lld stages of '%s'",
           (long long)loop_stages(loop), buf->name);
    index_body(m, &loop->loop.body, buf, e_rem(m->arena, count, loop_stages(loop)));
}

static void add_slot_dim(MultiBuffer *m, Buf *buf, int64_t slots) {
    buf->shape = with_first(m->arena, e_int(m->arena, slots), buf->rank, buf->shape);
    buf->rank++;
    buf->stage_dims++;
}

static void multi_buffer(MultiBuffer *m, Buf *buf) {
    int64_t slots = 0;
    Block filling = {0};
    FOR_EACH_ITEM (loop, &m->loops) {
        if (!filled_in(m, loop, buf)) continue;
        slots = larger(slots, loop_stages(loop));
        block_push(m->arena, &filling, loop);
    }
    EXPECT(m->context->failure, slots > 1, "%lld slots of '%s'", (long long)slots, buf->name);
    add_slot_dim(m, buf, slots);
    FOR_EACH_ITEM (loop, &filling) index_slots(m, loop, buf);
    map_put(m->multi_buffered, buf, buf);
    m->changed = true;
}

// A buffer that the loop declares would be another one in each iteration.
static void declare_outside(StmtMapper *mapper, Stmt *stmt, Block *out) {
    const MultiBuffer *m = mapper->user;
    Block body = {0};
    for (int i = 0; stmt->kind == STMT_FOR && i < stmt->loop.body.count; i++) {
        Stmt *item = stmt->loop.body.items[i];
        bool multi_buffered = item->kind == STMT_DECL && map_has(m->multi_buffered, item->decl);
        block_push(mapper->arena, multi_buffered ? out : &body, item);
    }
    if (stmt->kind == STMT_FOR) stmt->loop.body = body;
    block_push(mapper->arena, out, stmt);
}

// ---- the kernel ----

// The statement that fills one tile more than a loop may have; NULL: none.
static const Stmt *fill_beyond(const MultiBuffer *m, const Stmt *loop) {
    int tiles = 0;
    FOR_EACH_ITEM (stmt, &loop->loop.body) {
        const Buf *buf = multi_buffer_target(m, stmt);
        if (!buf || buf->scope != SCOPE_SHARED || buf->stage_dims > 0) continue;
        if (++tiles > MOST_TILES) return stmt;
    }
    return NULL;
}

static void report_beyond(const MultiBuffer *m) {
    FOR_EACH_STMT (loop, &m->kernel->body) {
        const Stmt *fill = loop_stages(loop) > 1 ? fill_beyond(m, loop) : NULL;
        if (fill)
            REMARK(m->context, fill->loc, T_NOT_MULTI_BUFFERED, multi_buffer_target(m, fill)->name,
                   "nor is another tile of this loop, which fills more than 128");
    }
}

// Loops of one iterator from 0 by 1, after those that need it were rewritten.
static void find_loops(MultiBuffer *m, const Block *block) {
    m->loops.count = 0;
    FOR_EACH_STMT_MUT (stmt, block)
        if (loop_stages(stmt) > 1 && !fill_beyond(m, stmt)) vec_push(m->arena, &m->loops, stmt);
}

// `fill`: for a remark why not; NULL: none.
static bool wants_multi_buffer(MultiBuffer *m, const Buf *buf, const Stmt *fill) {
    if (!buf || buf->scope != SCOPE_SHARED || buf->stage_dims > 0) return false;
    const char *problem = multi_buffer_problem(m, buf);
    if (problem && fill) REMARK(m->context, fill->loc, T_NOT_MULTI_BUFFERED, buf->name, problem);
    return !problem;
}

static bool loop_is_multi_buffered(MultiBuffer *m, const Stmt *loop) {
    FOR_EACH_STMT (stmt, &loop->loop.body) {
        if (stmt->kind == STMT_FOR) SKIP_BODY(stmt);
        if (wants_multi_buffer(m, multi_buffer_target(m, stmt), NULL)) return true;
    }
    return false;
}

// What groups load a single time for each tile of the grid. They count its slots (cooperative.c); here all have the first.
static void buffer_tiles(MultiBuffer *m, Block *body, int64_t slots, Block *grid) {
    FOR_EACH_ITEM (stmt, body) {
        Buf *buf = multi_buffer_target(m, stmt);
        if (stmt->kind == STMT_IF)
            FOR_EACH_BODY (inner, stmt) buffer_tiles(m, inner, slots, grid);
        if (!buf || buf->scope != SCOPE_SHARED || buf->stage_dims > 0 || buf->alias_of || buf->offset >= 0) continue;
        if (!filling_block(m, grid, buf) || body_problem(m, grid, NULL, buf)) continue;
        add_slot_dim(m, buf, slots);
        index_body(m, grid, buf, e_int(m->arena, 0));
        m->changed = true;
    }
}

bool pass_multi_buffer(PassContext *context, Func *kernel) {
    MultiBuffer m = {
        .context = context, .arena = context->arena, .kernel = kernel, .multi_buffered = map_new(context->arena)};
    report_beyond(&m);
    find_loops(&m, &kernel->body);
    FOR_EACH_ITEM (loop, &m.loops) {
        if (loop_is_plain(loop) || !loop_is_multi_buffered(&m, loop)) continue;
        normalise_loop(&m, loop);
        m.changed = true;
    }
    find_loops(&m, &kernel->body);
    FOR_EACH_ITEM (loop, &m.loops)
        FOR_EACH_STMT (stmt, &loop->loop.body) {
            if (stmt->kind == STMT_FOR) SKIP_BODY(stmt);
            Buf *buf = multi_buffer_target(&m, stmt);
            if (wants_multi_buffer(&m, buf, stmt)) multi_buffer(&m, buf);
        }
    Stmt *grid = (Stmt *)func_grid(kernel);
    if (grid && grid_stages(grid) > 1 && grid_is_persistent(grid) && planned_kind(kernel) == WS_COOPERATIVE)
        buffer_tiles(&m, &grid->grid.body, grid_stages(grid), &grid->grid.body);
    StmtMapper declare = {.arena = context->arena, .stmt = declare_outside, .user = &m};
    if (map_count(m.multi_buffered) > 0) rewrite_block(&declare, &kernel->body);
    return m.changed;
}
