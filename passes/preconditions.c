// What passes rely on (preconditions.def), and whether it holds.
#include "ir/build.h"
#include "ir/query.h"
#include "passes/analysis/util.h"
#include "passes/lower/lower.h"
#include "passes/select/tma_reduce.h"

static bool has_stages(const PassContext *context, const Stmt *stmt) {
    (void)context;
    int64_t stages;
    return !is_loop(stmt, LOOP_PIPELINED) || !stmt->loop.stages || expr_const(stmt->loop.stages, &stages);
}

static bool has_via(const PassContext *context, const Stmt *stmt) {
    (void)context;
    return (!is_call(stmt, OP_GEMM) && !is_global_to_shared_copy(stmt)) || via_of(stmt) != VIA_NONE;
}

static bool has_no_channel(const PassContext *context, const Stmt *stmt) {
    (void)context;
    return stmt->kind != STMT_DECL || stmt->decl->type != TYPE_CHANNEL;
}

static bool has_flat_grid(const PassContext *context, const Stmt *stmt) {
    (void)context;
    return stmt->kind != STMT_GRID || stmt->grid.count <= 1;
}

static bool has_layout(const PassContext *context, const Stmt *stmt) {
    (void)context;
    return stmt->kind != STMT_DECL || stmt->decl->scope != SCOPE_FRAGMENT || stmt->decl->layout;
}

// TMA and matrix loads compute their own addresses.
static bool has_map(const PassContext *context, const Stmt *stmt) {
    TileLoop loop;
    if (attr_get(stmt->attrs, ATTR_MAP) || moves_by_warps(stmt) || tma_copy(context->arena, (Stmt *)stmt)) return true;
    return !tile_loop_of(context->arena, (Stmt *)stmt, &loop);
}

static bool has_scratch(const PassContext *context, const Stmt *stmt) {
    if (!is_reduction(stmt) && !is_scan(stmt)) return true;
    const Buf *src = ARG(stmt, REDUCE_SUM, src).region->buf, *dst = ARG(stmt, REDUCE_SUM, dst).region->buf;
    bool in_registers = src->scope == SCOPE_FRAGMENT && dst->scope == SCOPE_FRAGMENT && src->layout;
    return in_registers && (stmt_scratch(stmt) || !scratch_rows(context->arena, context->target, stmt));
}

// A buffer that the source lays out itself has no layout.
static bool has_place(const PassContext *context, const Stmt *stmt) {
    (void)context;
    const Buf *buf = stmt->kind == STMT_DECL && stmt->decl->scope == SCOPE_SHARED ? stmt->decl : NULL;
    return !buf || buf->alias_of || buf->offset >= 0;
}

static bool is_lowered(const PassContext *context, const Stmt *stmt) {
    (void)context;
    return !is_call_of(stmt, OP_CLASS_TILE) && !is_loop(stmt, LOOP_PARALLEL) && !is_loop(stmt, LOOP_PIPELINED);
}

static const struct {
    const char *text;
    bool (*holds)(const PassContext *context, const Stmt *stmt);
} rows[] = {
#define PRECONDITION(NAME, text, check) [PRE_##NAME] = {text, check},
#include "passes/preconditions.def"
#undef PRECONDITION
};
_Static_assert(COUNT_OF(rows) == PRE_COUNT, "a precondition without its row");

const char *precondition_text(Precondition which) {
    return rows[which].text;
}

const Stmt *precondition_broken(Precondition which, const PassContext *context, const Func *kernel) {
    FOR_EACH_STMT (stmt, &kernel->body)
        if (!rows[which].holds(context, stmt)) return stmt;
    return NULL;
}
