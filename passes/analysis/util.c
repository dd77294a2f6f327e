#include "passes/analysis/util.h"
#include "ir/channels.h"
#include "ir/facts.h"

const MmaInfo *gemm_mma(const Target *target, const Stmt *gemm) {
    int64_t m = region_extent(gemm_of(gemm).acc, 0), k = region_extent(gemm_of(gemm).a, 1);
    return mma_holding(target, gemm_type(gemm, 0), gemm_type(gemm, 1), gemm_type(gemm, 2), m, k);
}

bool gemm_wgmma(const Target *target, const Stmt *gemm, int64_t columns, WgmmaInfo *info) {
    return wgmma_find(target, gemm_type(gemm, 0), gemm_type(gemm, 1), gemm_type(gemm, 2), (int)columns, info);
}

bool moves_by_matrices(const Stmt *stmt) {
    return via_is(stmt, VIA_LDMATRIX) || via_is(stmt, VIA_STMATRIX);
}

bool moves_by_warps(const Stmt *stmt) {
    return moves_by_matrices(stmt) || via_is(stmt, VIA_TRANSPOSE) || via_is(stmt, VIA_SHUFFLE) ||
           via_is(stmt, VIA_LINEAR);
}

static bool rows_begin_at(const Buf *buf, int64_t unit) {
    if (buf->layout) return layout_keeps_runs(buf->layout, unit);
    bool one = true;
    for (int d = 0; d + 1 < buf->rank; d++) one = one && buf_extent(buf, d) == 1;
    return one || buf_extent(buf, buf->rank - 1) % unit == 0;
}

bool region_keeps_runs(const Region *region, int64_t run) {
    const RegionDim *last = &region->dims[region->count - 1];
    return last->extent && multiple_of(NULL, last->start) % run == 0 && rows_begin_at(region->buf, run);
}

bool region_has_columns(const Region *region, int64_t unit) {
    const RegionDim *rows = &region->dims[0], *columns = &region->dims[1];
    int64_t first;
    if (region->buf->rank != 2 || region->transposed) return false;
    bool all = expr_is_int(rows->start, 0) && rows->extent && expr_is_int(rows->extent, buf_extent(region->buf, 0));
    bool known = columns->extent && expr_is_int(columns->extent, columns->tile) && expr_const(columns->start, &first);
    return all && known && first % unit == 0;
}

bool starts_copy(const Stmt *stmt) {
    if (via_of(stmt)) return via_is(stmt, VIA_CP_ASYNC);
    return stmt->kind == STMT_CALL && stmt->call.is_async;
}

const Stmt *gathering_store(const Stmt *loop) {
    const Stmt *store = loop->kind == STMT_FOR && loop->loop.body.count == 1 ? loop->loop.body.items[0] : NULL;
    return store && store->kind == STMT_STORE ? store : NULL;
}

Expr *copy_slot(const Stmt *copy) {
    CopyOp call;
    if (match_copy(copy, &call)) return call.dst->buf->stage_dims == 1 ? call.dst->dims[0].start : NULL;
    const Stmt *store = gathering_store(copy);
    return store && store->store.buf->stage_dims == 1 ? store->store.indices[0] : NULL;
}

bool has_free_form(const Func *kernel) {
    return kernel->stage == STAGE_TILE && func_grid(kernel) && !func_has_roles(kernel) && !has_channels(kernel);
}

bool is_bare_copy(const Stmt *stmt) {
    return is_call(stmt, OP_COPY) && !stmt->attrs && !stmt->call.is_async && !copy_of(stmt).bar &&
           !copy_of(stmt).evict_first;
}

bool buf_is_free(const Buf *buf) {
    return !buf->layout && !buf->given && !buf->attrs && !buf->alias_of && !buf->channel;
}

bool is_zero_fill(const Stmt *stmt) {
    FillOp fill;
    return match_fill(stmt, &fill) && region_is_whole(fill.dst) && expr_is_zero(fill.value);
}

bool has_effect(const Expr *expr, const void *what) {
    (void)what;
    return expr->kind == EXPR_CALL && !op_is_pure(expr->call.op) && expr->call.op != OP_CLUSTER_RANK;
}

bool is_computed(const Expr *expr, const void *what) {
    if (has_effect(expr, what)) return true;
    return expr->kind == EXPR_LOAD && !buf_is_constant(expr->load.buf);
}
