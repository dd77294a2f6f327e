// What a statement or expression uses: what it reads and writes, and whether it has effects. By walks (rewrite.c).
#include "ir/build.h"
#include "ir/query.h"
#include <string.h>

// ---- expressions ----

static bool is_var(const Expr *e, const void *var) {
    return e->kind == EXPR_VAR && e->var == var;
}

bool expr_is_var(const Expr *expr, const Var *var) {
    return is_var(expr, var);
}

bool expr_uses_var(const Expr *expr, const Var *var) {
    return any_expr(expr, is_var, var);
}

bool stmt_uses_var(const Stmt *stmt, const Var *var) {
    return stmt_any_expr(stmt, is_var, var);
}

static bool add_name(Visitor *visitor, Expr *expr) {
    if (expr->kind == EXPR_VAR) map_put(visitor->user, expr->var, expr->var);
    return true;
}

void expr_names(const Expr *expr, Map *names) {
    Visitor visitor = {.expr = add_name, .user = names};
    visit_expr(&visitor, (Expr *)expr);
}

void stmt_names(const Stmt *stmt, Map *names) {
    Visitor visitor = {.expr = add_name, .user = names};
    visit_stmt(&visitor, (Stmt *)stmt);
}

bool region_uses_var(const Region *region, const Var *var) {
    for (int d = 0; d < region->count; d++)
        if (expr_uses_var(region->dims[d].start, var)) return true;
    return false;
}

static bool loads_buf(const Expr *e, const void *buf) {
    bool loads = e->kind == EXPR_LOAD && e->load.buf == buf;
    for (int i = 0; e->kind == EXPR_CALL && i < e->call.count; i++)
        loads |= e->call.args[i].region && e->call.args[i].region->buf == buf;
    return loads;
}

bool block_loads(const Block *block, const Buf *buf) {
    return block_any_expr(block, loads_buf, buf);
}

static bool is_any_var(const Expr *e, const void *vars) {
    return e->kind == EXPR_VAR && map_has(vars, e->var);
}

bool expr_uses_any(const Expr *expr, const Map *vars) {
    return any_expr(expr, is_any_var, vars);
}

static bool calls_op(const Expr *e, const void *op) {
    return is_expr_call(e, *(const OpId *)op);
}

bool expr_calls(const Expr *expr, OpId op) {
    return any_expr(expr, calls_op, &op);
}

static bool has_effect(const Expr *e, const void *what) {
    (void)what;
    return e->kind == EXPR_CALL && !op_is_pure(e->call.op);
}

bool expr_is_pure(const Expr *expr) {
    return !any_expr(expr, has_effect, NULL);
}

static bool reads_memory(const Expr *e, const void *what) {
    (void)what;
    return e->kind == EXPR_LOAD || (e->kind == EXPR_CALL && !op_is_pure(e->call.op));
}

bool expr_reads_memory(const Expr *expr) {
    return any_expr(expr, reads_memory, NULL);
}

static bool is_mutable(const Expr *e, const void *what) {
    (void)what;
    return e->kind == EXPR_VAR && e->var->kind == VAR_MUTABLE;
}

bool expr_is_stable(const Expr *expr) {
    return !expr_reads_memory(expr) && !any_expr(expr, is_mutable, NULL);
}

bool region_is_stable(const Region *region) {
    for (int d = 0; d < region->count; d++) {
        const RegionDim *dim = &region->dims[d];
        if (!expr_is_stable(dim->start) || (dim->extent && !expr_is_stable(dim->extent))) return false;
    }
    return true;
}

static bool must_not_repeat(const Expr *e, const void *what) {
    (void)what;
    return e->kind == EXPR_CALL && op_must_not_repeat(e->call.op);
}

bool expr_must_not_repeat(const Expr *expr) {
    return any_expr(expr, must_not_repeat, NULL);
}

static bool writes_memory(const Expr *e, const void *what) {
    (void)what;
    const OpInfo *info = e->kind == EXPR_CALL ? op_info(e->call.op) : NULL;
    for (int i = 0; info && i < info->operand_count; i++)
        if (info->operands[i].access == ACCESS_WRITE || info->operands[i].access == ACCESS_UPDATE) return true;
    return false;
}

bool expr_writes_memory(const Expr *expr) {
    return any_expr(expr, writes_memory, NULL);
}

// ---- what must be a constant ----

static bool any_uses(int count, Expr *const *exprs, const Map *vars) {
    for (int i = 0; i < count; i++)
        if (expr_uses_any(exprs[i], vars)) return true;
    return false;
}

static bool loads_register(const Expr *e, const void *vars) {
    return e->kind == EXPR_LOAD && e->load.buf->scope == SCOPE_LOCAL && any_uses(e->load.count, e->load.indices, vars);
}

static bool arg_needs_constant(const Arg *arg, const Operand *operand, const Map *vars) {
    if (arg->value && operand->flags & OPERAND_CONST) return expr_uses_any(arg->value, vars);
    for (int d = 0; arg->region && arg->region->buf->scope == SCOPE_LOCAL && d < arg->region->count; d++)
        if (expr_uses_any(arg->region->dims[d].start, vars)) return true;
    return false;
}

static bool own_constants_use(const Stmt *stmt, const Map *vars) {
    if (stmt->kind == STMT_STORE && stmt->store.buf->scope == SCOPE_LOCAL)
        if (any_uses(stmt->store.count, stmt->store.indices, vars)) return true;
    for (int i = 0; stmt->kind == STMT_FOR && i < stmt->loop.count; i++) {
        const Iter *iter = &stmt->loop.iters[i];
        if (any_uses(3, (Expr *[]){iter->begin, iter->end, iter->step}, vars)) return true;
    }
    for (int i = 0; stmt->kind == STMT_CALL && i < stmt->call.count && i < op_info(stmt->call.op)->operand_count; i++)
        if (arg_needs_constant(&stmt->call.args[i], &op_info(stmt->call.op)->operands[i], vars)) return true;
    return stmt->kind == STMT_BREAK || stmt_any_own_expr(stmt, loads_register, vars);
}

bool needs_constant(Arena *arena, const Block *block, const Var *var) {
    Map *vars = map_new(arena);   // whose values come from the variable
    map_put(vars, var, vars);
    FOR_EACH_STMT (stmt, block) {
        if (own_constants_use(stmt, vars)) return true;
        if (stmt->kind == STMT_LET && expr_uses_any(stmt->let.value, vars)) map_put(vars, stmt->let.var, vars);
    }
    return false;
}

// ---- buffers ----

typedef struct BufSearch {
    const Buf *buf;
    bool found;
} BufSearch;

static bool find_buf_in_expr(Visitor *visitor, Expr *expr) {
    BufSearch *search = visitor->user;
    search->found |= expr->kind == EXPR_LOAD && expr->load.buf == search->buf;
    return !search->found;
}

static bool find_buf_in_stmt(Visitor *visitor, Stmt *stmt) {
    BufSearch *search = visitor->user;
    search->found |= stmt->kind == STMT_STORE && stmt->store.buf == search->buf;
    return !search->found;
}

static void find_buf_in_region(Visitor *visitor, Region *region, const Operand *operand) {
    (void)operand;
    BufSearch *search = visitor->user;
    search->found |= region->buf == search->buf;
}

bool expr_uses_buf(const Expr *expr, const Buf *buf) {
    BufSearch search = {buf, false};
    Visitor visitor = {.expr = find_buf_in_expr, .region = find_buf_in_region, .user = &search};
    visit_expr(&visitor, (Expr *)expr);
    return search.found;
}

bool stmt_uses_buf(const Stmt *stmt, const Buf *buf) {
    BufSearch search = {buf, false};
    Visitor visitor = {find_buf_in_expr, find_buf_in_stmt, find_buf_in_region, &search};
    visit_stmt(&visitor, (Stmt *)stmt);
    return search.found;
}

bool block_uses_buf(const Block *block, const Buf *buf) {
    bool found = false;
    for (int i = 0; i < block->count && !found; i++) found = stmt_uses_buf(block->items[i], buf);
    return found;
}

// ---- operations ----
bool func_calls(const Func *func, OpId op) {
    return block_calls(&func->body, op);
}

static bool is_role(const Stmt *stmt, void *user) {
    (void)user;
    return stmt->kind == STMT_ROLE;
}

bool func_has_roles(const Func *func) {
    return block_any(&func->body, is_role, NULL);
}

// ---- clusters ----
static bool is_of_cluster(OpId op, int count, const Arg *args) {   // or an order of memory among its CTAs
    bool scoped = op == OP_LOAD || op == OP_STORE || op == OP_FENCE;
    for (int i = 0; scoped && i < count; i++)
        if (args[i].name && !args[i].is_string && strcmp(args[i].name, "cluster") == 0) return true;
    return op_info(op)->feature == FEATURE_CLUSTER && op != OP_CLUSTER_EXTENT;
}

static bool is_cluster_call(const Expr *e, const void *what) {
    (void)what;
    return e->kind == EXPR_CALL && is_of_cluster(e->call.op, e->call.count, e->call.args);
}

static bool reaches_cluster(const Block *block) {
    FOR_EACH_STMT (stmt, block)
        if (stmt->kind == STMT_CALL && is_of_cluster(stmt->call.op, stmt->call.count, stmt->call.args)) return true;
    return block_any_expr(block, is_cluster_call, NULL);
}

int func_cluster(const Func *kernel) {
    const Stmt *grid = func_grid(kernel);
    return grid && reaches_cluster(&grid->grid.body) ? grid_cluster(grid) : 1;
}

// ---- effects ----
typedef struct EffectWalk {
    Arena *arena;
    EffectVec *out;
} EffectWalk;

static void add_effect(EffectWalk *walk, Buf *buf, Region *region, Access access, Proxy proxy, OpId op) {
    Effect effect = {(Buf *)buf_root(buf), region, access, proxy, op};
    vec_push(walk->arena, walk->out, effect);
}

// Whether a reduction accumulates: then dst is also read.
static bool accumulates(OpId op, int count, const Arg *args) {
    enum { ACCUMULATE = OPERAND_INDEX(REDUCE_SUM, accumulate) };
    return op_is(op, OP_CLASS_REDUCTION) && count > ACCUMULATE && args[ACCUMULATE].value &&
           !expr_is_int(args[ACCUMULATE].value, 0);
}

static void call_effects(EffectWalk *walk, OpId op, int count, const Arg *args) {
    for (int i = 0; i < count; i++) {
        const Operand *operand = op_operand(op, i);
        if (!args[i].region || operand->access == ACCESS_NAME) continue;
        Access access = operand->access;
        if (access == ACCESS_WRITE && accumulates(op, count, args)) access = ACCESS_UPDATE;
        add_effect(walk, args[i].region->buf, args[i].region, access, operand->proxy, op);
    }
}

static void launch_effects(EffectWalk *walk, const Stmt *stmt) {
    static const Access by_mode[] = {[MODE_IN] = ACCESS_READ, [MODE_OUT] = ACCESS_WRITE, [MODE_INOUT] = ACCESS_UPDATE};
    for (int i = 0; i < stmt->launch.count; i++) {
        Region *region = stmt->launch.args[i].region;
        if (!region) continue;
        const Func *callee = stmt->launch.func;
        const Param *argument = callee ? func_argument(callee, i) : NULL;
        const Buf *param = argument ? argument->buf : NULL;
        add_effect(walk, region->buf, region, param ? by_mode[param->mode] : ACCESS_UPDATE, PROXY_GENERIC, OP_COUNT);
    }
}

static bool effects_of_expr(Visitor *visitor, Expr *expr) {
    EffectWalk *walk = visitor->user;
    if (expr->kind == EXPR_LOAD) add_effect(walk, expr->load.buf, NULL, ACCESS_READ, PROXY_GENERIC, OP_COUNT);
    if (expr->kind == EXPR_CALL) call_effects(walk, expr->call.op, expr->call.count, expr->call.args);
    return true;
}

static bool effects_of_stmt(Visitor *visitor, Stmt *stmt) {
    EffectWalk *walk = visitor->user;
    if (stmt->kind == STMT_STORE) add_effect(walk, stmt->store.buf, NULL, ACCESS_WRITE, PROXY_GENERIC, OP_COUNT);
    if (stmt->kind == STMT_CALL) call_effects(walk, stmt->call.op, stmt->call.count, stmt->call.args);
    if (stmt->kind == STMT_LAUNCH) launch_effects(walk, stmt);
    return true;
}

void stmt_effects(Arena *arena, const Stmt *stmt, EffectVec *out) {
    EffectWalk walk = {arena, out};
    Visitor visitor = {.expr = effects_of_expr, .stmt = effects_of_stmt, .user = &walk};
    visit_stmt(&visitor, (Stmt *)stmt);
}

static bool writes(const EffectVec *effects, const Buf *buf) {
    for (int i = 0; i < effects->count; i++)
        if (effects->items[i].buf == buf && effects->items[i].access == ACCESS_WRITE) return true;
    return false;
}

void path_effects(Arena *arena, const Stmt *stmt, EffectVec *out) {
    Stmt alone = stmt_alone(stmt);
    EffectVec first = {0};   // of the first body
    stmt_effects(arena, &alone, out);
    FOR_EACH_BODY (body, stmt) {
        EffectVec effects = {0};
        FOR_EACH_ITEM (below, body) path_effects(arena, below, &effects);
        VEC_EACH (const Effect, effect, &effects)
            if (effect->access != ACCESS_WRITE || !writes(&first, effect->buf)) vec_push(arena, out, *effect);
        first = effects;
    }
}
