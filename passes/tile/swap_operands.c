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
// A tile of one strip and more columns than a warpgroup's registers hold, as [64, 512], is computed by two warpgroups with half
// of the columns each (cooperative_warpgroups). For that left operands in registers get tiles: each warpgroup has made
// some of their columns, and multiplies all. More columns yet are turned: as rows, they are strips of several warpgroups.
//
// Operands that wgmma cannot read where they are get tiles or are converted in registers (operand_tiles.c).
//
// Each element is the sum of the same products in the same order. The pass applies where the kernel cannot be
// warp-specialized as it is and can be afterwards (warp_specialize.h), and where every use of the accumulators can be
// transposed: fills, copies to and from memory, reductions, and loops over elements.
#include "ir/build.h"
#include "ir/rewrite.h"
#include "passes/analysis/util.h"
#include "passes/lower/lower.h"
#include "passes/tile/tile.h"

typedef struct OperandSwap {
    Arena *arena;
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

static void swap_copy(OperandSwap *swap, Stmt *stmt) {
    Arg *src = &ARG(stmt, COPY, src), *dst = &ARG(stmt, COPY, dst);
    bool stores = is_transposed_tile(swap, src);
    Arg *acc = stores ? src : dst, *other = stores ? dst : src;
    const Region *memory = other->region;
    int rank = memory->count;
    if (memory->buf->scope == SCOPE_FRAGMENT || rank < 2 || !memory->dims[rank - 1].extent ||
        !memory->dims[rank - 2].extent)
        swap->problem = "its accumulator is not copied to a tile in memory";
    if (via_is(stmt, VIA_VECTOR_STORE)) swap->problem = "its vectors are stored by rows of the accumulator";
    *acc = accumulator(swap, acc);
    *other = arg_region(other_way(swap, memory));
}

static void swap_gemm(OperandSwap *swap, Stmt *stmt) {
    GemmOp gemm = gemm_of(stmt);
    if (gemm.a->buf->scope == SCOPE_FRAGMENT) swap->problem = "its left operand is in registers";
    if (gemm.b->buf->scope == SCOPE_FRAGMENT && !gemm.b->transposed) swap->problem = "its right operand is not along k";
    ARG(stmt, GEMM, a) = arg_region(other_way(swap, gemm.b));
    ARG(stmt, GEMM, b) = arg_region(other_way(swap, gemm.a));
    ARG(stmt, GEMM, acc) = accumulator(swap, &ARG(stmt, GEMM, acc));
}

static void swap_call(OperandSwap *swap, Stmt *stmt) {
    Arg *first = stmt->call.args;   // of a fill its tile, of a reduction its source
    int uses = 0;
    for (int i = 0; i < stmt->call.count; i++) uses += is_transposed_tile(swap, &stmt->call.args[i]);
    if (uses == 0) return;
    if (stmt->call.op == OP_GEMM && is_transposed_tile(swap, &ARG(stmt, GEMM, acc)) && uses == 1) {
        swap_gemm(swap, stmt);
    } else if (stmt->call.op == OP_COPY && uses == 1) {
        swap_copy(swap, stmt);
    } else if (stmt->call.op == OP_FILL) {
        *first = accumulator(swap, first);
    } else if (is_reduction(stmt) && is_transposed_tile(swap, first) && uses == 1) {
        *first = accumulator(swap, first);
        ARG(stmt, REDUCE_SUM, axis) = arg_int(swap->arena, 1 - reduce_op_axis(stmt));
    } else {
        swap->problem = "its accumulator is used in another way";
    }
}
_Static_assert(OPERAND_INDEX(FILL, dst) == 0 && OPERAND_INDEX(REDUCE_SUM, src) == 0, "the first operands");

static Expr *swap_load(Mapper *mapper, Expr *expr) {
    const OperandSwap *swap = mapper->user;
    Buf *by = expr->kind == EXPR_LOAD ? map_get(swap->swapped, expr->load.buf) : NULL;
    if (!by) return expr;
    EXPECT(arena_failure(swap->arena), expr->load.count == 2, "an accumulator with %d indices", expr->load.count);
    return e_load(swap->arena, by, 2, (Expr *[]){expr->load.indices[1], expr->load.indices[0]});
}

static void swap_stmt(StmtMapper *mapper, Stmt *stmt, Block *out) {
    OperandSwap *swap = mapper->user;
    if (stmt->kind == STMT_CALL) swap_call(swap, stmt);
    if (stmt->kind == STMT_DECL && map_has(swap->swapped, stmt->decl)) stmt->decl = map_get(swap->swapped, stmt->decl);
    Buf *by = stmt->kind == STMT_STORE ? map_get(swap->swapped, stmt->store.buf) : NULL;
    if (by) {
        Expr *at[] = {stmt->store.indices[1], stmt->store.indices[0]};
        stmt->store = s_store(mapper->arena, by, 2, at, stmt->store.value)->store;
    }
    block_push(mapper->arena, out, stmt);
}

// In place. False: the accumulator has a use that cannot be transposed, and the kernel is left half changed.
static bool swap_kernel(Arena *arena, Func *kernel) {
    OperandSwap swap = {.arena = arena, .swapped = map_new(arena)};
    FOR_EACH_STMT (stmt, &kernel->body) {
        const Buf *acc = stmt->kind == STMT_DECL ? stmt->decl : NULL;
        if (!acc || acc->layout || !is_accumulator(kernel, acc)) continue;
        Expr *shape[] = {acc->shape[1], acc->shape[0]};
        map_put(swap.swapped, acc, buf_new(arena, acc->name, acc->scope, acc->type, 2, shape, acc->loc));
    }
    map_block(&(Mapper){.arena = arena, .expr = swap_load, .user = &swap}, &kernel->body);
    rewrite_block(&(StmtMapper){.arena = arena, .stmt = swap_stmt, .user = &swap}, &kernel->body);
    return !swap.problem;
}

static bool has_few_rows(const Func *kernel) {
    int64_t m, n;
    specialized_tile(kernel, &m, &n);
    return m % WGMMA_ROWS != 0 && n % WGMMA_ROWS == 0;
}

// One strip, without roles as it is.
static bool is_wide_strip(Arena *arena, const Target *target, const Func *kernel) {
    int64_t m, n;
    specialized_tile(kernel, &m, &n);
    if (m != WGMMA_ROWS || n % WGMMA_ROWS != 0 || n <= WGMMA_COLUMNS) return false;
    return specialization_of(arena, target, kernel).kind == WS_NONE;
}

// Of each product, in registers or converted there.
static bool right_operands_are_computed(const Func *kernel) {
    FOR_EACH_STMT (stmt, &kernel->body) {
        GemmOp gemm;
        if (!match_gemm(stmt, &gemm)) continue;
        if (gemm.b->buf->scope != SCOPE_FRAGMENT && !multiplies_narrow(stmt, true)) return false;
    }
    return true;
}

// Left operands may be in registers, so right ones that are computed there become left ones, if accumulators allow it.
static Func *operands_converted(Arena *arena, const Target *target, const Func *kernel, bool swap,
                                Specialization *how) {
    Func *shaped = clone_func(arena, kernel);
    if (swap && !swap_kernel(arena, shaped)) return NULL;
    convert_operands(arena, shaped);
    pad_tiles(arena, target, shaped);
    if (operands_lack(shaped) && !add_operand_tiles(arena, target, shaped, false)) return NULL;
    *how = specialization_of(arena, target, shaped);
    bool serves = how->kind == WS_COOPERATIVE && specialized_fits(arena, target, shaped, how) != FITS_NOT;
    return serves ? shaped : NULL;
}

static Func *computed_on_the_left(Arena *arena, const Target *target, const Func *kernel, Specialization *how) {
    Func *direct = clone_func(arena, kernel);
    bool changed = read_computed_directly(arena, direct);
    if (!changed && !operands_lack(kernel)) return NULL;
    return right_operands_are_computed(direct) ? operands_converted(arena, target, direct, true, how) : NULL;
}

// One strip that a warpgroup's registers do not hold: two share its columns, with left operands in tiles.
static Func *columns_shared(Arena *arena, const Target *target, const Func *kernel, Specialization *how) {
    bool computed = false;
    FOR_EACH_STMT (stmt, &kernel->body) {
        GemmOp gemm;
        if (!match_gemm(stmt, &gemm)) continue;
        if (region_extent(gemm.acc, 0) != WGMMA_ROWS) return NULL;
        computed |= gemm.a->buf->scope == SCOPE_FRAGMENT;
    }
    if (!computed || specialization_of(arena, target, kernel).kind != WS_NONE) return NULL;
    Func *shaped = clone_func(arena, kernel);
    if (!add_operand_tiles(arena, target, shaped, true)) return NULL;
    *how = specialization_of(arena, target, shaped);
    bool serves = how->kind == WS_COOPERATIVE && specialized_fits(arena, target, shaped, how) != FITS_NOT;
    return serves ? shaped : NULL;
}

Func *operands_swapped(Arena *arena, const Target *target, const Func *kernel, Specialization *how) {
    if (!target_has(target, FEATURE_WGMMA) || kernel->stage != STAGE_TILE) return NULL;
    bool free = !func_has_roles(kernel) && func_grid(kernel);
    bool wide = free && is_wide_strip(arena, target, kernel), swap = wide || has_few_rows(kernel);
    OperandLack lack = free ? operands_lack(kernel) : LACK_NONE;
    Func *computed = free ? computed_on_the_left(arena, target, kernel, how) : NULL;
    if (!computed && free) computed = columns_shared(arena, target, kernel, how);
    if (computed) return computed;
    if (lack == LACK_TYPE) {
        Func *swapped = swap ? operands_converted(arena, target, kernel, true, how) : NULL;
        return swapped ? swapped : operands_converted(arena, target, kernel, false, how);
    }
    if (swap) lack = LACK_NONE;
    if (!swap && !lack && !tiles_lack_columns(target, kernel)) return NULL;
    Func *shaped = clone_func(arena, kernel);
    if (swap && !swap_kernel(arena, shaped)) return NULL;
    if (!pad_tiles(arena, target, shaped) && !swap && !lack) return NULL;
    if (lack && !add_operand_tiles(arena, target, shaped, false)) return NULL;
    *how = specialization_of(arena, target, shaped);
    if (lack == LACK_ORDER && specialized_fits(arena, target, shaped, how) == FITS_NOT) return NULL;
    if (wide && specialized_fits(arena, target, shaped, how) == FITS_NOT) return NULL;
    bool serves = how->kind == WS_PINGPONG || ((wide || !swap) && how->kind == WS_COOPERATIVE) || lack == LACK_TILE;
    return serves ? shaped : NULL;
}

bool pass_swap_operands(PassContext *context, Func *kernel) {
    Specialization how;
    const Func *shaped = operands_swapped(context->arena, context->target, kernel, &how);
    if (shaped) *kernel = *shaped;
    return shaped != NULL;
}
