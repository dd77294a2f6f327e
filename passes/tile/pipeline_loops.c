// pipeline-loops: serial loops that load tiles for products load them ahead.
//
//     for (k in ceildiv(K, 64)) {                       pipelined (k in ceildiv(K, 64), stages = 2) {
//         copy(A[bm * 128, k * 64], As);                    copy(A[bm * 128, k * 64], As);
//         copy(B[bn * 128, k * 64], Bs);         =>         copy(B[bn * 128, k * 64], Bs);
//         gemm(As, Bs.T, acc);                              gemm(As, Bs.T, acc);
//     }                                                 }
//
// `pipelined` means `for`, so results stay. The pass applies where the source has no such loop and the kernel is warp-specialized
// with it, and fits. (`plan` gives the tiles more slots where there is room.) Without roles a second slot may cost more
// CTAs than it gains: there the source decides.
#include "ir/channels.h"
#include "passes/analysis/util.h"
#include "passes/pipeline/async_copy_legality.h"
#include "passes/specialize/builder.h"
#include "passes/tile/tile.h"

enum { SLOTS = 2 };

static bool may_change(const Func *kernel) {
    if (kernel->stage != STAGE_TILE || !func_grid(kernel) || func_has_roles(kernel) || has_channels(kernel))
        return false;
    FOR_EACH_STMT (stmt, &kernel->body)
        if (is_loop(stmt, LOOP_PIPELINED) || stmt->kind == STMT_THREAD) return false;
    return block_calls(&kernel->body, OP_GEMM);
}

// Loads stand in the loop itself, not in one within.
static bool loads_itself(const Block *body) {
    FOR_EACH_ITEM (stmt, body) {
        if (loaded_tile(stmt)) return true;
        if (stmt->kind == STMT_FOR || stmt->kind == STMT_WHILE) continue;
        FOR_EACH_BODY (inner, stmt)
            if (loads_itself(inner)) return true;
    }
    return false;
}

static bool pipeline_in(Arena *arena, Block *block) {
    bool changed = false;
    FOR_EACH_ITEM (stmt, block) {
        if (is_loop(stmt, LOOP_PARALLEL) || loaded_tile(stmt)) continue;
        bool inside = false;
        FOR_EACH_BODY (body, stmt) inside |= pipeline_in(arena, body);
        if (!inside && is_loop(stmt, LOOP_SERIAL) && stmt->loop.count == 1 && loads_itself(&stmt->loop.body)) {
            stmt->loop.kind = LOOP_PIPELINED;
            stmt->loop.stages = e_int(arena, SLOTS);
            inside = true;
        }
        changed |= inside;
    }
    return changed;
}

bool pipeline_loops(Arena *arena, const Target *target, Func *kernel) {
    if (!target_has(target, FEATURE_WGMMA) || !may_change(kernel)) return false;
    Func *changed = clone_func(arena, kernel);
    Specialization how;
    if (!pipeline_in(arena, &changed->body)) return false;
    const Func *shaped = operands_swapped(arena, target, changed, &how);
    if (!shaped) how = specialization_of(arena, target, changed);
    if (how.kind == WS_NONE || specialized_fits(arena, target, shaped ? shaped : changed, &how) == FITS_NOT)
        return false;
    *kernel = *changed;
    return true;
}

bool pass_pipeline_loops(PassContext *context, Func *kernel) {
    return pipeline_loops(context->arena, context->target, kernel);
}
