// orient: a product whose tile has too few rows for the tensor cores is turned around.
//
// wgmma multiplies strips of 64 rows. A tile of 16 rows, right for few rows of A, would leave three quarters of every product
// unused, but its columns may make whole strips:
//
//     fragment acc: f32[16, 64];                            fragment acc: f32[64, 16];
//     pipelined (k in steps, stages = 8) {                  pipelined (k in steps, stages = 8) {
//         copy(A[bm * 16, k * 64], As);                         copy(A[bm * 16, k * 64], As);
//         copy(B[bn * 64, k * 64], Bs);              =>         copy(B[bn * 64, k * 64], Bs);
//         gemm(As, Bs.T, acc);                                  gemm(Bs, As.T, acc);
//     }                                                     }
//     copy(acc, C[bm * 16, bn * 64]);                       copy(acc, C[bm * 16 +: 16, bn * 64 +: 64].T);
//
// Each element is the sum of the same products in the same order. It happens where the kernel could not be parted into roles as
// it stands and can be afterwards (warp_specialize.h), and where every use of the accumulators can be turned: fills, copies to
// and from memory, reductions, and loops over elements.
#include "passes/tile/swap_operands.h"
#include "ir/build.h"
#include "ir/rewrite.h"
#include "passes/analysis/util.h"
#include "passes/lower/lower.h"
#include "passes/specialize/warp_specialize.h"
#include "passes/tile/pad_tiles.h"

typedef struct Turn {
    Arena *arena;
    Func *kernel;
    Map *turned;   // an accumulator -> what takes its place
    const char *problem;
} Turn;

static Region *other_way(Turn *turn, const Region *region) {
    Region *out = clone_region(turn->arena, NULL, region);
    out->transposed = !region->transposed;
    return out;
}

static bool is_turned(const Turn *turn, const Arg *arg) {
    return arg->region && map_has(turn->turned, arg->region->buf);
}

// A whole accumulator.
static Arg accumulator(Turn *turn, const Arg *arg) {
    if (arg->region->transposed || !region_is_whole(arg->region)) turn->problem = "a part of its accumulator is used";
    return arg_region(region_whole(turn->arena, map_get(turn->turned, arg->region->buf)));
}

static void turn_copy(Turn *turn, Arg *args) {
    Arg *acc = is_turned(turn, &args[COPY_FROM]) ? &args[COPY_FROM] : &args[COPY_TO];
    Arg *other = acc == &args[COPY_FROM] ? &args[COPY_TO] : &args[COPY_FROM];
    const Region *memory = other->region;
    int rank = memory->count;
    if (memory->buf->scope == SCOPE_FRAGMENT || rank < 2 || !memory->dims[rank - 1].extent ||
        !memory->dims[rank - 2].extent)
        turn->problem = "its accumulator is copied to what is no tile of memory";
    *acc = accumulator(turn, acc);
    *other = arg_region(other_way(turn, memory));
}

static void turn_gemm(Turn *turn, Arg *args) {
    Arg a = args[GEMM_A];
    if (a.region->buf->scope == SCOPE_FRAGMENT) turn->problem = "its left operand is in registers";
    args[GEMM_A] = arg_region(other_way(turn, args[GEMM_B].region));
    args[GEMM_B] = arg_region(other_way(turn, a.region));
    args[GEMM_ACC] = accumulator(turn, &args[GEMM_ACC]);
}

static void turn_call(Turn *turn, Stmt *stmt) {
    Arg *args = stmt->call.args;
    int uses = 0;
    for (int i = 0; i < stmt->call.count; i++) uses += is_turned(turn, &args[i]);
    if (uses == 0) return;
    if (stmt->call.op == OP_GEMM && is_turned(turn, &args[GEMM_ACC]) && uses == 1) {
        turn_gemm(turn, args);
    } else if (stmt->call.op == OP_COPY && uses == 1) {
        turn_copy(turn, args);
    } else if (stmt->call.op == OP_FILL) {
        args[0] = accumulator(turn, &args[0]);
    } else if (is_reduction(stmt) && is_turned(turn, &args[REDUCE_SRC]) && uses == 1) {
        args[REDUCE_SRC] = accumulator(turn, &args[REDUCE_SRC]);
        args[REDUCE_AXIS] = arg_value(e_int(turn->arena, 1 - reduce_op_axis(stmt)));
    } else {
        turn->problem = "its accumulator is used in another way";
    }
}

static void swap_indices(Turn *turn, Expr ***indices) {
    Expr **swapped = NEW_ARRAY(turn->arena, Expr *, 2);
    swapped[0] = (*indices)[1];
    swapped[1] = (*indices)[0];
    *indices = swapped;
}

static Expr *turn_load(Mapper *mapper, Expr *expr) {
    Turn *turn = mapper->user;
    if (expr->kind != EXPR_LOAD || !map_has(turn->turned, expr->load.buf)) return expr;
    Expr *out = arena_copy(turn->arena, expr, sizeof *expr);
    swap_indices(turn, &out->load.indices);
    out->load.buf = map_get(turn->turned, expr->load.buf);
    return out;
}

static void turn_stmt(StmtMapper *mapper, Stmt *stmt, Block *out) {
    Turn *turn = mapper->user;
    if (stmt->kind == STMT_CALL) turn_call(turn, stmt);
    if (stmt->kind == STMT_DECL && map_has(turn->turned, stmt->decl)) stmt->decl = map_get(turn->turned, stmt->decl);
    if (stmt->kind == STMT_STORE && map_has(turn->turned, stmt->store.buf)) {
        swap_indices(turn, &stmt->store.indices);
        stmt->store.buf = map_get(turn->turned, stmt->store.buf);
    }
    block_push(mapper->arena, out, stmt);
}

static bool find_accumulator(Visitor *visitor, Stmt *stmt) {
    Turn *turn = visitor->user;
    if (stmt->kind != STMT_DECL || stmt->decl->scope != SCOPE_FRAGMENT) return true;
    Buf *acc = stmt->decl;
    if (acc->rank != 2 || acc->layout || !is_accumulator(turn->kernel, acc)) return true;
    Expr *shape[] = {acc->shape[1], acc->shape[0]};
    map_put(turn->turned, acc, buf_new(turn->arena, acc->name, acc->scope, acc->type, 2, shape, acc->loc));
    return true;
}

// In place; false: what is left is of no use.
static bool turn_kernel(Arena *arena, Func *kernel) {
    Turn turn = {.arena = arena, .kernel = kernel, .turned = map_new(arena)};
    Visitor visitor = {.stmt = find_accumulator, .user = &turn};
    visit_block(&visitor, &kernel->body);
    Mapper loads = {.arena = arena, .expr = turn_load, .user = &turn};
    map_block(&loads, &kernel->body);
    StmtMapper mapper = {.arena = arena, .stmt = turn_stmt, .user = &turn};
    rewrite_block(&mapper, &kernel->body);
    return !turn.problem;
}

static bool has_few_rows(const Func *kernel) {
    int64_t m, n;
    specialized_tile(kernel, &m, &n);
    return m % WGMMA_ROWS != 0 && n % WGMMA_ROWS == 0;
}

// In place, turned where that is asked for; false: what is left is of no use, or nothing was to be done.
static bool shape_kernel(Arena *arena, const Target *target, Func *kernel, bool turn) {
    if (turn && !turn_kernel(arena, kernel)) return false;
    return widen_tiles(arena, target, kernel) || turn;
}

Func *oriented(Arena *arena, const Target *target, const Func *kernel) {
    const char *why;
    if (!target_has(target, FEATURE_WGMMA) || kernel->stage != STAGE_TILE) return NULL;
    bool turn = has_few_rows(kernel);
    if (!turn && !tiles_lack_columns(target, kernel)) return NULL;
    Func *shaped = clone_func(arena, kernel);
    if (!shape_kernel(arena, target, shaped, turn)) return NULL;
    bool serves = turn ? specialized_in_turn(arena, target, shaped) : can_specialize(arena, target, shaped, &why);
    return serves ? shaped : NULL;
}

bool pass_orient(PassContext *context, Func *kernel) {
    return oriented(context->arena, context->target, kernel) &&
           shape_kernel(context->arena, context->target, kernel, has_few_rows(kernel));
}
