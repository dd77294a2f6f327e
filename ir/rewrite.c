// Walking, mapping, cloning.
//
// All of it stands on two enumerations: the expressions that a statement holds itself (each_slot) and the blocks below
// it (stmt_bodies). A new kind of statement is added there, once.
#include "ir/rewrite.h"
#include "ir/build.h"
#include "ir/query.h"

// ---- what a statement holds ----
typedef struct SlotFn {
    void (*expr)(void *user, Expr **slot);                       // the slot is never NULL
    void (*arg)(void *user, Arg *arg, const Operand *operand);   // operand NULL: of a launch
    void *user;
} SlotFn;

static void slot(const SlotFn *fn, Expr **expr) {
    if (*expr) fn->expr(fn->user, expr);
}

static void slots(const SlotFn *fn, int count, Expr **exprs) {
    for (int i = 0; i < count; i++) slot(fn, &exprs[i]);
}

static void iter_slots(const SlotFn *fn, Iter *iter) {
    slot(fn, &iter->begin);
    slot(fn, &iter->end);
    slot(fn, &iter->step);
}

int stmt_iters(const Stmt *stmt, Iter **iters) {
    switch (stmt->kind) {
    case STMT_FOR: return *iters = stmt->loop.iters, stmt->loop.count;
    case STMT_GRID: return *iters = stmt->grid.iters, stmt->grid.count;
    case STMT_THREAD: return *iters = stmt->thread.iters, stmt->thread.count;
    case STMT_ROLE: return *iters = stmt->role.iters, stmt->role.count;
    default: *iters = NULL; return 0;
    }
}

// All but the bounds of iterators.
static void plain_slots(Stmt *stmt, const SlotFn *fn) {
    switch (stmt->kind) {
    case STMT_LET:
    case STMT_VAR:
    case STMT_ASSIGN: slot(fn, &stmt->let.value); break;
    case STMT_STORE:
        slots(fn, stmt->store.count, stmt->store.indices);
        slot(fn, &stmt->store.value);
        break;
    case STMT_DECL: slots(fn, stmt->decl->rank, stmt->decl->shape); break;
    case STMT_FOR: slot(fn, &stmt->loop.stages); break;
    case STMT_WHILE: slot(fn, &stmt->while_.condition); break;
    case STMT_IF: slot(fn, &stmt->if_.condition); break;
    case STMT_GRID: slot(fn, &stmt->grid.threads); break;
    case STMT_CALL:
        for (int i = 0; i < stmt->call.count; i++) fn->arg(fn->user, &stmt->call.args[i], op_operand(stmt->call.op, i));
        break;
    case STMT_LAUNCH:
        for (int i = 0; i < stmt->launch.count; i++) fn->arg(fn->user, &stmt->launch.args[i], NULL);
        break;
    case STMT_ASSUME: slot(fn, &stmt->assume); break;
    case STMT_BREAK:
    case STMT_BLOCK:
    case STMT_THREAD:
    case STMT_ROLE: break;
    }
}

static void each_slot(Stmt *stmt, const SlotFn *fn) {
    Iter *iters;
    for (int i = 0, count = stmt_iters(stmt, &iters); i < count; i++) iter_slots(fn, &iters[i]);
    plain_slots(stmt, fn);
}

int stmt_bodies(Stmt *stmt, Block *bodies[2]) {
    switch (stmt->kind) {
    case STMT_FOR: return bodies[0] = &stmt->loop.body, 1;
    case STMT_WHILE: return bodies[0] = &stmt->while_.body, 1;
    case STMT_IF: return bodies[0] = &stmt->if_.then, bodies[1] = &stmt->if_.otherwise, 2;
    case STMT_BLOCK: return bodies[0] = &stmt->block, 1;
    case STMT_GRID: return bodies[0] = &stmt->grid.body, 1;
    case STMT_ROLE: return bodies[0] = &stmt->role.body, 1;
    case STMT_THREAD: return bodies[0] = &stmt->thread.body, 1;
    default: return 0;
    }
}

// ---- visiting ----
static void visit_arg(void *user, Arg *arg, const Operand *operand) {
    Visitor *visitor = user;
    if (arg->value) visit_expr(visitor, arg->value);
    if (!arg->region) return;
    if (visitor->region) visitor->region(visitor, arg->region, operand);
    for (int i = 0; i < arg->region->count; i++) {
        visit_expr(visitor, arg->region->dims[i].start);
        if (arg->region->dims[i].extent) visit_expr(visitor, arg->region->dims[i].extent);
    }
}

void visit_expr(Visitor *visitor, Expr *expr) {
    if (visitor->expr && !visitor->expr(visitor, expr)) return;
    switch (expr->kind) {
    case EXPR_INT:
    case EXPR_FLOAT:
    case EXPR_VAR: break;
    case EXPR_LOAD:
        for (int i = 0; i < expr->load.count; i++) visit_expr(visitor, expr->load.indices[i]);
        break;
    case EXPR_UNARY: visit_expr(visitor, expr->unary.a); break;
    case EXPR_BINARY:
        visit_expr(visitor, expr->binary.a);
        visit_expr(visitor, expr->binary.b);
        break;
    case EXPR_SELECT:
        visit_expr(visitor, expr->select.condition);
        visit_expr(visitor, expr->select.yes);
        visit_expr(visitor, expr->select.no);
        break;
    case EXPR_CAST:
    case EXPR_BITCAST: visit_expr(visitor, expr->operand); break;
    case EXPR_CALL:
        for (int i = 0; i < expr->call.count; i++)
            visit_arg(visitor, &expr->call.args[i], op_operand(expr->call.op, i));
        break;
    }
}

static void visit_slot(void *user, Expr **expr) {
    visit_expr(user, *expr);
}

void visit_stmt(Visitor *visitor, Stmt *stmt) {
    if (visitor->stmt && !visitor->stmt(visitor, stmt)) return;
    each_slot(stmt, &(SlotFn){visit_slot, visit_arg, visitor});
    Block *bodies[2];
    for (int i = 0, count = stmt_bodies(stmt, bodies); i < count; i++) visit_block(visitor, bodies[i]);
}

void visit_block(Visitor *visitor, Block *block) {
    for (int i = 0; i < block->count; i++) visit_stmt(visitor, block->items[i]);
}

// ---- mapping expressions ----
static Region *map_region(Mapper *mapper, Region *region) {
    Region *result = region;
    for (int i = 0; i < region->count; i++) {
        Expr *start = map_expr(mapper, region->dims[i].start);
        Expr *extent = region->dims[i].extent ? map_expr(mapper, region->dims[i].extent) : NULL;
        if (start == region->dims[i].start && extent == region->dims[i].extent) continue;
        if (result == region) {   // the first change: a copy
            result = arena_copy(mapper->arena, region, sizeof *region);
            result->dims = arena_copy(mapper->arena, region->dims, sizeof *region->dims * (size_t)region->count);
        }
        result->dims[i].start = start;
        result->dims[i].extent = extent;
    }
    return mapper->region ? mapper->region(mapper, result) : result;
}

static bool map_arg(Mapper *mapper, const Arg *from, Arg *to) {
    *to = *from;
    if (from->value) to->value = map_expr(mapper, from->value);
    if (from->region) to->region = map_region(mapper, from->region);
    return to->value != from->value || to->region != from->region;
}

static Expr *map_call(Mapper *mapper, Expr *expr) {
    Arg *args = NEW_ARRAY(mapper->arena, Arg, expr->call.count);
    bool changed = false;
    for (int i = 0; i < expr->call.count; i++) changed |= map_arg(mapper, &expr->call.args[i], &args[i]);
    return changed ? e_call(mapper->arena, expr->call.op, expr->call.count, args) : expr;
}

static Expr *map_load(Mapper *mapper, Expr *expr) {
    Expr *indices[LAYOUT_MAX_RANK];
    bool changed = false;
    for (int i = 0; i < expr->load.count; i++) {
        indices[i] = map_expr(mapper, expr->load.indices[i]);
        changed |= indices[i] != expr->load.indices[i];
    }
    return changed ? e_load(mapper->arena, expr->load.buf, expr->load.count, indices) : expr;
}

// The expression with mapped operands, folded again when one of them changed; itself when none did.
static Expr *map_operands(Mapper *mapper, Expr *expr) {
    Arena *arena = mapper->arena;
    switch (expr->kind) {
    case EXPR_INT:
    case EXPR_FLOAT:
    case EXPR_VAR: return expr;
    case EXPR_LOAD: return map_load(mapper, expr);
    case EXPR_UNARY: {
        Expr *a = map_expr(mapper, expr->unary.a);
        return a == expr->unary.a ? expr : e_unary(arena, expr->unary.op, a);
    }
    case EXPR_BINARY: {
        Expr *a = map_expr(mapper, expr->binary.a), *b = map_expr(mapper, expr->binary.b);
        return a == expr->binary.a && b == expr->binary.b ? expr : e_binary(arena, expr->binary.op, a, b);
    }
    case EXPR_SELECT: {
        Expr *condition = map_expr(mapper, expr->select.condition);
        Expr *yes = map_expr(mapper, expr->select.yes), *no = map_expr(mapper, expr->select.no);
        bool same = condition == expr->select.condition && yes == expr->select.yes && no == expr->select.no;
        return same ? expr : e_select(arena, condition, yes, no);
    }
    case EXPR_CAST: {
        Expr *a = map_expr(mapper, expr->operand);
        return a == expr->operand ? expr : e_cast(arena, expr->type, a);
    }
    case EXPR_BITCAST: {
        Expr *a = map_expr(mapper, expr->operand);
        return a == expr->operand ? expr : e_bitcast(arena, expr->type, a);
    }
    case EXPR_CALL: return map_call(mapper, expr);
    }
    return expr;
}

Expr *map_expr(Mapper *mapper, Expr *expr) {
    Expr *mapped = mapper->replace ? mapper->replace(mapper, expr) : mapper->whole ? expr : NULL;
    if (!mapped) mapped = map_operands(mapper, expr);
    if (mapper->expr) mapped = mapper->expr(mapper, mapped);
    if (mapped != expr) {
        mapper->changed = true;
        if (mapped->loc.line == 0) mapped->loc = expr->loc;   // new nodes stand where the old one stood
    }
    return mapped;
}

static void map_slot(void *user, Expr **expr) {
    *expr = map_expr(user, *expr);
}

static void map_arg_slot(void *user, Arg *arg, const Operand *operand) {
    (void)operand;
    Mapper *mapper = user;
    Arg mapped;
    if (!map_arg(mapper, arg, &mapped)) return;
    *arg = mapped;
    mapper->changed = true;
}

void map_own(Mapper *mapper, Stmt *stmt) {
    each_slot(stmt, &(SlotFn){map_slot, map_arg_slot, mapper});
}

void map_stmt(Mapper *mapper, Stmt *stmt) {
    map_own(mapper, stmt);
    Block *bodies[2];
    for (int i = 0, count = stmt_bodies(stmt, bodies); i < count; i++) map_block(mapper, bodies[i]);
}

void map_block(Mapper *mapper, Block *block) {
    for (int i = 0; i < block->count; i++) map_stmt(mapper, block->items[i]);
}

// ---- mapping statements ----
bool rewrite_block(StmtMapper *mapper, Block *block) {
    Block out = {0};
    for (int i = 0; i < block->count; i++) {
        Stmt *stmt = block->items[i];
        Block *bodies[2];
        for (int b = 0, count = stmt_bodies(stmt, bodies); b < count; b++) rewrite_block(mapper, bodies[b]);
        mapper->stmt(mapper, stmt, &out);
    }
    *block = out;
    return mapper->changed;
}

// ---- substitution ----
struct Subst {
    Arena *arena;
    Map *vars;   // Var -> Expr
    Map *bufs;   // Buf -> Buf
};

Subst *subst_new(Arena *arena) {
    Subst *subst = NEW(arena, Subst);
    *subst = (Subst){arena, map_new(arena), map_new(arena)};
    return subst;
}

void subst_var(Subst *subst, const Var *var, Expr *by) {
    map_put(subst->vars, var, by);
}

void subst_buf(Subst *subst, const Buf *buf, Buf *by) {
    map_put(subst->bufs, buf, by);
}

static bool count_node(const Expr *e, const void *most) {
    (void)e;
    return --*(int *)most < 0;
}

bool expr_is_short(const Expr *expr) {
    int most = MOST_OPENED;
    return !any_expr(expr, count_node, &most);
}

bool subst_let(Subst *subst, const Var *var, Expr *value) {
    Expr *opened = subst_expr(subst, value);
    if (!expr_is_short(opened)) return false;
    subst_var(subst, var, opened);
    return true;
}

void subst_digits(Subst *subst, int count, const Iter *iters, Expr *number) {
    for (int i = 0; i < count; i++) {
        int64_t extent = 1;
        expr_const(iters[i].end, &extent);
        subst_var(subst, iters[i].var, i + 1 < count ? e_rem(subst->arena, number, extent) : number);
        number = e_over(subst->arena, number, extent);
    }
}

// A view follows its tensor, with windows whose dims are those of the new one.
static Buf *replaced_view(const Subst *subst, Buf *view) {
    Buf *tensor = map_get(subst->bufs, view->alias_of);
    if (!tensor) return view;
    Window windows[MOST_WINDOWS];
    for (int i = 0; i < view->im2col->count; i++) {
        windows[i] = view->im2col->windows[i];
        windows[i].positions = subst_expr((Subst *)subst, windows[i].positions);
    }
    Buf *by = im2col_new(subst->arena, tensor, view->im2col->count, windows, view->loc);
    map_put(subst->bufs, view, by);
    return by;
}

static Buf *replaced_buf(const Subst *subst, Buf *buf) {
    Buf *by = buf ? map_get(subst->bufs, buf) : NULL;
    if (!by && buf && buf->im2col) return replaced_view(subst, buf);
    return by ? by : buf;
}

// A place that binds or assigns can only become another variable.
static Var *replaced_var(const Subst *subst, Var *var) {
    const Expr *by = map_get(subst->vars, var);
    return by && by->kind == EXPR_VAR ? by->var : var;
}

static Expr *subst_node(Mapper *mapper, Expr *expr) {
    const Subst *subst = mapper->user;
    if (expr->kind == EXPR_VAR) {
        Expr *by = map_get(subst->vars, expr->var);
        return by ? by : expr;
    }
    if (expr->kind == EXPR_LOAD) {
        Buf *by = replaced_buf(subst, expr->load.buf);
        if (by != expr->load.buf) return e_load(mapper->arena, by, expr->load.count, expr->load.indices);
    }
    return expr;
}

static Region *subst_region(Mapper *mapper, Region *region) {
    Buf *by = replaced_buf(mapper->user, region->buf);
    if (by == region->buf) return region;
    Region *result = arena_copy(mapper->arena, region, sizeof *region);
    result->buf = by;
    return result;
}

static Mapper subst_mapper(Subst *subst) {
    return (Mapper){.arena = subst->arena, .expr = subst_node, .region = subst_region, .user = subst};
}

Expr *subst_expr(Subst *subst, Expr *expr) {
    Mapper mapper = subst_mapper(subst);
    return map_expr(&mapper, expr);
}

// Variables and buffers that statements name outside expressions.
static bool subst_names(Visitor *visitor, Stmt *stmt) {
    const Subst *subst = visitor->user;
    bool binds = stmt->kind == STMT_LET || stmt->kind == STMT_VAR || stmt->kind == STMT_ASSIGN;
    if (binds) stmt->let.var = replaced_var(subst, stmt->let.var);
    if (stmt->kind == STMT_STORE) stmt->store.buf = replaced_buf(subst, stmt->store.buf);
    if (stmt->kind == STMT_DECL) {
        stmt->decl = replaced_buf(subst, stmt->decl);
        stmt->decl->alias_of = replaced_buf(subst, stmt->decl->alias_of);
        stmt->decl->channel = replaced_buf(subst, stmt->decl->channel);
    }
    Iter *iters;
    for (int i = 0, count = stmt_iters(stmt, &iters); i < count; i++) iters[i].var = replaced_var(subst, iters[i].var);
    return true;
}

void subst_stmt(Subst *subst, Stmt *stmt) {
    Mapper mapper = subst_mapper(subst);
    map_stmt(&mapper, stmt);
    Visitor visitor = {.stmt = subst_names, .user = subst};
    visit_stmt(&visitor, stmt);
}

void subst_block(Subst *subst, Block *block) {
    for (int i = 0; i < block->count; i++) subst_stmt(subst, block->items[i]);
}

// ---- cloning ----
static Attr *clone_attrs(Arena *arena, const Attr *list) {
    Attr *first = NULL, **end = &first;
    for (; list; list = list->next, end = &(*end)->next) *end = arena_copy(arena, list, sizeof *list);
    return first;
}

// A new variable in place of `var` from here on.
static Var *clone_var(Subst *subst, const Var *var) {
    Var *copy = arena_copy(subst->arena, var, sizeof *var);
    subst_var(subst, var, e_var(subst->arena, copy));
    return copy;
}

static Expr **clone_exprs(Subst *subst, int count, Expr *const *exprs) {
    if (!exprs) return NULL;
    Expr **copy = NEW_ARRAY(subst->arena, Expr *, count);
    for (int i = 0; i < count; i++) copy[i] = subst_expr(subst, exprs[i]);
    return copy;
}

static Buf *clone_buf(Subst *subst, const Buf *buf) {
    Buf *copy = arena_copy(subst->arena, buf, sizeof *buf);
    copy->shape = clone_exprs(subst, buf->rank, buf->shape);
    copy->strides = clone_exprs(subst, buf->rank, buf->strides);
    copy->alias_of = replaced_buf(subst, buf->alias_of);
    copy->channel = replaced_buf(subst, buf->channel);
    copy->attrs = clone_attrs(subst->arena, buf->attrs);
    subst_buf(subst, buf, copy);
    return copy;
}

Region *clone_region(Arena *arena, Subst *subst, const Region *region) {
    Region *copy = arena_copy(arena, region, sizeof *region);
    copy->dims = arena_copy(arena, region->dims, sizeof *region->dims * (size_t)region->count);
    if (!subst) return copy;
    copy->buf = replaced_buf(subst, region->buf);
    for (int i = 0; i < copy->count; i++) {
        copy->dims[i].start = subst_expr(subst, copy->dims[i].start);
        if (copy->dims[i].extent) copy->dims[i].extent = subst_expr(subst, copy->dims[i].extent);
    }
    return copy;
}

static void clone_slot(void *user, Expr **expr) {
    *expr = subst_expr(user, *expr);
}

static void clone_arg(void *user, Arg *arg, const Operand *operand) {
    (void)operand;
    Subst *subst = user;
    if (arg->value) arg->value = subst_expr(subst, arg->value);
    if (arg->region) arg->region = clone_region(subst->arena, subst, arg->region);
}

// Gives the copy its own arrays, so that filling in its slots leaves the original alone.
static void own_arrays(Arena *arena, Stmt *stmt) {
#define OWN(array, count) ((array) = arena_copy(arena, (array), sizeof *(array) * (size_t)(count)))
    stmt->attrs = clone_attrs(arena, stmt->attrs);
    switch (stmt->kind) {
    case STMT_STORE: OWN(stmt->store.indices, stmt->store.count); break;
    case STMT_FOR: OWN(stmt->loop.iters, stmt->loop.count); break;
    case STMT_GRID: OWN(stmt->grid.iters, stmt->grid.count); break;
    case STMT_THREAD: OWN(stmt->thread.iters, stmt->thread.count); break;
    case STMT_ROLE: OWN(stmt->role.iters, stmt->role.count); break;
    case STMT_CALL: OWN(stmt->call.args, stmt->call.count); break;
    case STMT_LAUNCH: OWN(stmt->launch.args, stmt->launch.count); break;
    default: break;
    }
#undef OWN
}

static Stmt *clone_with(Subst *subst, const Stmt *stmt) {
    Stmt *copy = arena_copy(subst->arena, stmt, sizeof *stmt);
    if (stmt->kind == STMT_DECL) {
        copy->attrs = clone_attrs(subst->arena, stmt->attrs);
        copy->decl = clone_buf(subst, stmt->decl);
        return copy;
    }
    // 1. What it reads, in the scope outside; an iterator is seen by the ones after it (for (i in n, j in i .. n)).
    own_arrays(subst->arena, copy);
    SlotFn fn = {clone_slot, clone_arg, subst};
    Iter *iters;
    for (int i = 0, count = stmt_iters(copy, &iters); i < count; i++) {
        iter_slots(&fn, &iters[i]);
        iters[i].var = clone_var(subst, iters[i].var);
    }
    plain_slots(copy, &fn);
    // 2. What it declares or writes.
    if (copy->kind == STMT_LET || copy->kind == STMT_VAR) copy->let.var = clone_var(subst, stmt->let.var);
    if (copy->kind == STMT_ASSIGN) copy->let.var = replaced_var(subst, stmt->let.var);
    if (copy->kind == STMT_STORE) copy->store.buf = replaced_buf(subst, stmt->store.buf);
    // 3. What is below, which sees the declarations.
    Block *bodies[2];
    for (int i = 0, count = stmt_bodies(copy, bodies); i < count; i++) {
        Block from = *bodies[i];
        *bodies[i] = (Block){0};
        clone_block(subst->arena, subst, &from, bodies[i]);
    }
    return copy;
}

Stmt *clone_stmt(Arena *arena, Subst *subst, const Stmt *stmt) {
    return clone_with(subst ? subst : subst_new(arena), stmt);
}

void clone_block(Arena *arena, Subst *subst, const Block *from, Block *to) {
    if (!subst) subst = subst_new(arena);
    for (int i = 0; i < from->count; i++) block_push(arena, to, clone_with(subst, from->items[i]));
}

void clone_iterations(Arena *arena, const Stmt *loop, Block *to) {
    const Iter *iter = &loop->loop.iters[0];
    for (int64_t i = 0; i < iter_count(iter); i++) {
        Subst *subst = subst_new(arena);
        subst_var(subst, iter->var, e_add(arena, iter->begin, e_times(arena, iter->step, i)));
        clone_block(arena, subst, &loop->loop.body, to);
    }
}

Func *clone_func(Arena *arena, const Func *func) {
    Subst *subst = subst_new(arena);
    Func *copy = arena_copy(arena, func, sizeof *func);
    copy->attrs = clone_attrs(arena, func->attrs);
    copy->dims.items = NULL;
    copy->dims.count = copy->dims.capacity = 0;
    copy->params.items = NULL;
    copy->params.count = copy->params.capacity = 0;
    copy->body = (Block){0};
    for (int i = 0; i < func->dims.count; i++) vec_push(arena, &copy->dims, clone_var(subst, func->dims.items[i]));
    for (int i = 0; i < func->params.count; i++) {
        Param param = func->params.items[i];
        if (param.var) param.var = clone_var(subst, param.var);
        param.attrs = clone_attrs(arena, param.attrs);
        vec_push(arena, &copy->params, param);
    }
    for (int i = 0; i < copy->params.count; i++) {   // tensors last: their shapes may name scalars
        Param *param = &copy->params.items[i];
        if (param->buf) param->buf = clone_buf(subst, param->buf);
    }
    for (int i = 0; i < copy->params.count; i++) {   // one may be an alias of a later one
        Buf *buf = copy->params.items[i].buf;
        if (buf) buf->alias_of = replaced_buf(subst, buf->alias_of);
        Attr *tma = (Attr *)attr_get(copy->params.items[i].attrs, ATTR_TMA);
        if (tma) tma->args[0].view = replaced_buf(subst, tma->args[0].view);
    }
    if (func->when) copy->when = subst_expr(subst, func->when);
    if (func->cost) {
        copy->cost = arena_copy(arena, func->cost, sizeof *func->cost);
        for (int i = 0; i < COST_EXTENTS; i++) copy->cost->extents[i] = subst_expr(subst, func->cost->extents[i]);
    }
    clone_block(arena, subst, &func->body, &copy->body);
    return copy;
}
