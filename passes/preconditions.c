// What passes rely on (preconditions.def), and whether it holds.
#include "ir/build.h"
#include "ir/query.h"
#include "passes/pass.h"

static bool has_stages(const Stmt *stmt) {
    int64_t stages;
    return !is_loop(stmt, LOOP_PIPELINED) || !stmt->loop.stages || expr_const(stmt->loop.stages, &stages);
}

static bool has_via(const Stmt *stmt) {
    return (!is_call(stmt, OP_GEMM) && !is_global_to_shared_copy(stmt)) || via_of(stmt) != VIA_NONE;
}

static bool has_flat_grid(const Stmt *stmt) {
    return stmt->kind != STMT_GRID || stmt->grid.count <= 1;
}

static bool has_layout(const Stmt *stmt) {
    return stmt->kind != STMT_DECL || stmt->decl->scope != SCOPE_FRAGMENT || stmt->decl->layout;
}

// A buffer that the source lays out itself has no layout.
static bool has_place(const Stmt *stmt) {
    const Buf *buf = stmt->kind == STMT_DECL && stmt->decl->scope == SCOPE_SHARED ? stmt->decl : NULL;
    return !buf || buf->alias_of || buf->offset >= 0;
}

static bool is_lowered(const Stmt *stmt) {
    return !is_call_of(stmt, OP_CLASS_TILE) && !is_loop(stmt, LOOP_PARALLEL) && !is_loop(stmt, LOOP_PIPELINED);
}

static const struct {
    const char *text;
    bool (*holds)(const Stmt *stmt);
} rows[] = {
#define PRECONDITION(NAME, text, check) [PRE_##NAME] = {text, check},
#include "passes/preconditions.def"
#undef PRECONDITION
};
_Static_assert(COUNT_OF(rows) == PRE_COUNT, "a precondition without its row");

const char *precondition_text(Precondition which) {
    return rows[which].text;
}

const Stmt *precondition_broken(Precondition which, const Func *kernel) {
    FOR_EACH_STMT (stmt, &kernel->body)
        if (!rows[which].holds(stmt)) return stmt;
    return NULL;
}
