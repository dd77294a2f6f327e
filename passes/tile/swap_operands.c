// swap-operands: computes the transposed product where a tile has too few rows for the tensor cores.
//
// wgmma multiplies strips of 64 rows. A tile of 16 rows, right for few rows of A, would leave three quarters of every
// product unused, but its columns may make whole strips:
//
//     fragment acc: f32[16, 64];                            fragment acc: f32[64, 16];
//     pipelined (k in steps, stages = 8) {                  pipelined (k in steps, stages = 8) {
//         copy(A[bm * 16, k * 64], As);                         copy(A[bm * 16, k * 64], As);
//         copy(B[bn * 64, k * 64], Bs);              =>         copy(B[bn * 64, k * 64], Bs);
//         gemm(As, Bs.T, acc);                                  gemm(Bs, As.T, acc);
//     }                                                     }
//     copy(acc, C[bm * 16, bn * 64]);                       copy(acc, C[bm * 16 +: 16, bn * 64 +: 64].T);
//
// Each element is the sum of the same products in the same order. The pass applies where the kernel cannot be
// warp-specialized as it is and can be afterwards (warp_specialize.h), and where every use of the accumulators can be
// transposed: fills, copies to and from memory, reductions, and loops over elements.
#include "ir/build.h"
#include "ir/rewrite.h"
#include "passes/analysis/util.h"
#include "passes/lower/lower.h"
#include "passes/specialize/warp_specialize.h"
#include "passes/tile/tile.h"

typedef struct OperandSwap {
    Arena *arena;
    Func *kernel;
    Map *swapped;   // an accumulator -> what takes its place
    const char *problem;
} OperandSwap;

static Region *other_way(OperandSwap *swap, const Region *region) {
    Region *out = clone_region(swap->arena, NULL, region);
    out->transposed = !region->transposed;
    return out;
}

static bool is_transposed_tile(const OperandSwap *swap, const Arg *arg) {
    return arg->region && map_has(swap->swapped, arg->region->buf);
}

// A whole accumulator.
static Arg accumulator(OperandSwap *swap, const Arg *arg) {
    if (arg->region->transposed || !region_is_whole(arg->region))
        swap->problem = "only a part of its accumulator is used";
    return arg_region(region_whole(swap->arena, map_get(swap->swapped, arg->region->buf)));
}

static void swap_copy(OperandSwap *swap, Arg *args) {
    Arg *acc = is_transposed_tile(swap, &args[COPY_FROM]) ? &args[COPY_FROM] : &args[COPY_TO];
    Arg *other = acc == &args[COPY_FROM] ? &args[COPY_TO] : &args[COPY_FROM];
    const Region *memory = other->region;
    int rank = memory->count;
    if (memory->buf->scope == SCOPE_FRAGMENT || rank < 2 || !memory->dims[rank - 1].extent ||
        !memory->dims[rank - 2].extent)
        swap->problem = "its accumulator is not copied to a tile in memory";
    *acc = accumulator(swap, acc);
    *other = arg_region(other_way(swap, memory));
}

static void swap_gemm(OperandSwap *swap, Arg *args) {
    Arg a = args[GEMM_A];
    if (a.region->buf->scope == SCOPE_FRAGMENT) swap->problem = "its left operand is in registers";
    args[GEMM_A] = arg_region(other_way(swap, args[GEMM_B].region));
    args[GEMM_B] = arg_region(other_way(swap, a.region));
    args[GEMM_ACC] = accumulator(swap, &args[GEMM_ACC]);
}

static void swap_call(OperandSwap *swap, Stmt *stmt) {
    Arg *args = stmt->call.args;
    int uses = 0;
    for (int i = 0; i < stmt->call.count; i++) uses += is_transposed_tile(swap, &args[i]);
    if (uses == 0) return;
    if (stmt->call.op == OP_GEMM && is_transposed_tile(swap, &args[GEMM_ACC]) && uses == 1) {
        swap_gemm(swap, args);
    } else if (stmt->call.op == OP_COPY && uses == 1) {
        swap_copy(swap, args);
    } else if (stmt->call.op == OP_FILL) {
        args[0] = accumulator(swap, &args[0]);
    } else if (is_reduction(stmt) && is_transposed_tile(swap, &args[REDUCE_SRC]) && uses == 1) {
        args[REDUCE_SRC] = accumulator(swap, &args[REDUCE_SRC]);
        args[REDUCE_AXIS] = arg_value(e_int(swap->arena, 1 - reduce_op_axis(stmt)));
    } else {
        swap->problem = "its accumulator is used in another way";
    }
}

static void swap_indices(OperandSwap *swap, Expr ***indices) {   // of accumulators, whose rank is 2
    Expr **swapped = NEW_ARRAY(swap->arena, Expr *, 2);
    swapped[0] = (*indices)[1];
    swapped[1] = (*indices)[0];
    *indices = swapped;
}

static Expr *swap_load(Mapper *mapper, Expr *expr) {
    OperandSwap *swap = mapper->user;
    if (expr->kind != EXPR_LOAD || !map_has(swap->swapped, expr->load.buf)) return expr;
    EXPECT(arena_failure(swap->arena), expr->load.count == 2, "an accumulator with %d indices", expr->load.count);
    Expr *out = arena_copy(swap->arena, expr, sizeof *expr);
    swap_indices(swap, &out->load.indices);
    out->load.buf = map_get(swap->swapped, expr->load.buf);
    return out;
}

static void swap_stmt(StmtMapper *mapper, Stmt *stmt, Block *out) {
    OperandSwap *swap = mapper->user;
    if (stmt->kind == STMT_CALL) swap_call(swap, stmt);
    if (stmt->kind == STMT_DECL && map_has(swap->swapped, stmt->decl)) stmt->decl = map_get(swap->swapped, stmt->decl);
    if (stmt->kind == STMT_STORE && map_has(swap->swapped, stmt->store.buf)) {
        swap_indices(swap, &stmt->store.indices);
        stmt->store.buf = map_get(swap->swapped, stmt->store.buf);
    }
    block_push(mapper->arena, out, stmt);
}

static void find_accumulator(OperandSwap *swap, Buf *acc) {
    if (acc->scope != SCOPE_FRAGMENT || acc->rank != 2 || acc->layout || !is_accumulator(swap->kernel, acc)) return;
    Expr *shape[] = {acc->shape[1], acc->shape[0]};
    map_put(swap->swapped, acc, buf_new(swap->arena, acc->name, acc->scope, acc->type, 2, shape, acc->loc));
}

// In place. False: the accumulator has a use that cannot be transposed, and the kernel is left half changed.
static bool swap_kernel(Arena *arena, Func *kernel) {
    OperandSwap swap = {.arena = arena, .kernel = kernel, .swapped = map_new(arena)};
    FOR_EACH_STMT (stmt, &kernel->body)
        if (stmt->kind == STMT_DECL) find_accumulator(&swap, stmt->decl);
    Mapper loads = {.arena = arena, .expr = swap_load, .user = &swap};
    map_block(&loads, &kernel->body);
    StmtMapper mapper = {.arena = arena, .stmt = swap_stmt, .user = &swap};
    rewrite_block(&mapper, &kernel->body);
    return !swap.problem;
}

static bool has_few_rows(const Func *kernel) {
    int64_t m, n;
    specialized_tile(kernel, &m, &n);
    return m % WGMMA_ROWS != 0 && n % WGMMA_ROWS == 0;
}

// In place: swaps operands if `swap`, and pads tiles. False: nothing to do, or the kernel is left half changed.
static bool shape_kernel(Arena *arena, const Target *target, Func *kernel, bool swap) {
    if (swap && !swap_kernel(arena, kernel)) return false;
    return pad_tiles(arena, target, kernel) || swap;
}

Func *operands_swapped(Arena *arena, const Target *target, const Func *kernel) {
    if (!target_has(target, FEATURE_WGMMA) || kernel->stage != STAGE_TILE) return NULL;
    bool swap = has_few_rows(kernel);
    if (!swap && !tiles_lack_columns(target, kernel)) return NULL;
    Func *shaped = clone_func(arena, kernel);
    if (!shape_kernel(arena, target, shaped, swap)) return NULL;
    SpecializeKind kind = specialization_of(arena, target, shaped).kind;
    return kind == WS_PINGPONG || (!swap && kind == WS_COOPERATIVE) ? shaped : NULL;
}

bool pass_swap_operands(PassContext *context, Func *kernel) {
    return operands_swapped(context->arena, context->target, kernel) &&
           shape_kernel(context->arena, context->target, kernel, has_few_rows(kernel));
}
