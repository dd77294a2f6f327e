// How many slots the tiles have that groups load: decided by plan, where shared memory has room.
//
//   @stages(2) grid     what is loaded a single time for each tile of a persistent grid: the next tile's is loaded while this one
//                       is computed
//   stages = N          of the only pipelined loop: at least what the source says
//
// Room is what tiles, staging and conversions of fragments leave.
#include "ir/build.h"
#include "ir/schedule.h"
#include "passes/select/tma_reduce.h"
#include "passes/specialize/ws_analysis.h"
#include "support/numbers.h"

enum { TILE_SLOTS = 2 };   // this tile's and the next one's

// ---- conversions of fragments ----

// An accumulator's rows are its warps', and a left operand of 16 bits has its layout.
static bool has_rows(const Func *kernel, const Buf *fragment) {
    if (is_accumulator(kernel, fragment)) return true;
    FOR_EACH_STMT (stmt, &kernel->body) {
        GemmOp gemm;
        if (match_gemm(stmt, &gemm) && gemm.a->buf == fragment && !gemm.a->transposed)
            return type_bits(fragment->type) == 16;
    }
    return false;
}

static bool is_row_element(const Stmt *loop, int count, Expr *const *indices) {
    return is_loop_element(loop, count, indices) || (count == 1 && expr_is_var(indices[0], loop->loop.iters[0].var));
}

static bool is_elsewhere(const Expr *expr, const void *loop) {
    if (expr->kind != EXPR_LOAD || expr->load.buf->scope != SCOPE_FRAGMENT) return false;
    return !is_row_element(loop, expr->load.count, expr->load.indices);
}

// Each of its threads has the elements that it computes in the layout that accumulators have, whole rows of them.
static bool keeps_rows(const Func *kernel, const Stmt *stmt) {
    if (stmt->kind == STMT_DECL && stmt->decl->scope == SCOPE_FRAGMENT)
        return stmt->decl->rank == 1 || (stmt->decl->rank == 2 && has_rows(kernel, stmt->decl));
    if (is_scan(stmt)) return false;
    if (is_reduction(stmt)) return buf_slot_rank(reduce_of(stmt).src->buf) == 2 && expr_is_int(reduce_of(stmt).axis, 1);
    if (is_fragment_copy(stmt)) return region_is_whole(copy_of(stmt).src) && region_is_whole(copy_of(stmt).dst);
    if (!is_loop(stmt, LOOP_PARALLEL)) return true;
    FOR_EACH_STMT_IN (store, stmt)
        if (store->kind == STMT_STORE && store->store.buf->scope == SCOPE_FRAGMENT &&
            !is_row_element(stmt, store->store.count, store->store.indices))
            return false;
    return !block_any_expr(&stmt->loop.body, is_elsewhere, stmt);
}

bool has_one_layout(const Func *kernel) {
    FOR_EACH_STMT (stmt, &kernel->body)
        if (!keeps_rows(kernel, stmt)) return false;
    return true;
}

static bool is_stored_by_tma(Arena *arena, const Target *target, const Func *kernel, const Buf *fragment) {
    TmaStore store;
    const char *why;
    FOR_EACH_STMT (stmt, &kernel->body)
        if (stores_tile(arena, target, kernel, stmt, &store, &why) && copy_of(stmt).src->buf == fragment) return true;
    return false;
}

static bool is_stored(const Func *kernel, const Buf *fragment) {
    FOR_EACH_STMT (stmt, &kernel->body)
        if (is_fragment_to_global_copy(stmt) && copy_of(stmt).src->buf == fragment) return true;
    return false;
}

// Of shared memory, in all groups: if each fragment is converted to another layout, or those that are stored where the others have
// one layout or a product of another kind has them, and for additions by TMA. Results that TMA stores have staging of their own.
static int64_t conversion_bytes(Arena *arena, const Target *target, const Func *kernel, const Specialization *how) {
    int64_t bytes = other_products_bytes(arena, target, kernel, how->sharers);
    bool rows = has_one_layout(kernel);
    FOR_EACH_STMT (stmt, &kernel->body) {
        bool fragment = stmt->kind == STMT_DECL && stmt->decl->scope == SCOPE_FRAGMENT;
        bool converts = fragment && (!rows || is_stored(kernel, stmt->decl));
        if (converts && !is_stored_by_tma(arena, target, kernel, stmt->decl)) bytes += buf_slot_bytes(stmt->decl);
        TmaReduce tile;
        if (is_addition(stmt) && !tma_reduce_problem(arena, stmt, &tile) && tile.value)
            bytes += buf_slot_bytes(copy_of(tile.copy).src->buf);
    }
    return how->kind == WS_PINGPONG ? how->consumers * bytes : bytes;
}

// ---- the grid's ----

static int64_t ctas_of(const Target *target, int64_t shared) {
    return target->shared_multiprocessor / (shared + target->shared_reserved);
}

// Where registers are moved from group to group, a CTA has all that a multiprocessor has; else as many CTAs as before must fit.
static bool add_tile_slots(Arena *arena, const Target *target, Func *kernel, const Specialization *how,
                           const Groups *groups, int64_t others) {
    Stmt *grid = (Stmt *)func_grid(kernel);
    bool shares_steps = how->consumers != how->sharers;
    bool open = how->kind == WS_COOPERATIVE && !shares_steps && !how->transposes && grid_is_persistent(grid);
    if (!open || attr_get(grid->attrs, ATTR_STAGES)) return false;
    int64_t before = buffer_bytes(arena, target, kernel), stages = TILE_SLOTS;
    attr_set_ints(arena, &grid->attrs, ATTR_STAGES, 1, &stages);
    int64_t after = buffer_bytes(arena, target, kernel);
    bool alone =
        groups->of[GROUP_COMPUTE].registers > 0 || ctas_of(target, after + others) == ctas_of(target, before + others);
    if (after > before && after + others <= target->shared_block && alone) return true;
    attr_remove(&grid->attrs, ATTR_STAGES);
    return false;
}

// ---- the loop's ----

// The only pipelined loop, if its slots are alike: no groups share steps, and no transposed tiles have slots of their own.
static Stmt *loop_of_slots(Func *kernel, const Specialization *how) {
    Stmt *found = NULL;
    bool shares_steps = how->kind == WS_COOPERATIVE && how->consumers != how->sharers;
    if (shares_steps || how->transposes) return NULL;
    FOR_EACH_STMT_MUT (stmt, &kernel->body) {
        if (!is_loop(stmt, LOOP_PIPELINED)) continue;
        if (found) return NULL;
        found = stmt;
    }
    return found && loop_stages(found) > 1 ? found : NULL;
}

// As long as that gains something. Tunables choose their number themselves.
static bool add_loop_slots(Arena *arena, const Target *target, Func *kernel, const Specialization *how,
                           int64_t others) {
    Stmt *loop = loop_of_slots(kernel, how);
    if (!loop || attr_get(kernel->attrs, ATTR_TUNED)) return false;
    int64_t stages = loop_stages(loop), shared = buffer_bytes(arena, target, kernel);
    loop->loop.stages = e_int(arena, stages + 1);
    int64_t slot = buffer_bytes(arena, target, kernel) - shared, room = target->shared_block - shared - others,
            slots = stages;
    if (slot > 0 && room > 0) {
        int64_t wanted = smaller(target->ring_slots, (target->ring_bytes + slot - 1) / slot);
        slots = larger(stages, smaller(wanted, stages + room / slot));
    }
    loop->loop.stages = e_int(arena, slots);
    return slots > stages;
}

bool plan_slots(Arena *arena, const Target *target, Func *kernel, const Specialization *how, const Groups *groups) {
    int64_t others = specialized_staging(arena, target, kernel, how) + conversion_bytes(arena, target, kernel, how);
    bool tiles = add_tile_slots(arena, target, kernel, how, groups, others);
    return add_loop_slots(arena, target, kernel, how, others) || tiles;
}
