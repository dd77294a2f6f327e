// The body of a loop at one point, as one thread does it: elements of fragments become its own slots, those of shared
// buffers physical, those of global tensors guarded.
#include "passes/layout/fragment.h"
#include "passes/lower/lower_loop.h"
#include <string.h>

// ---- points ----

static Expr *value_number(Version *version) {
    Arena *arena = version->arena;
    return e_add(arena, e_times(arena, version->group, version->vector), version->element);
}

Expr *at_index(Version *version, Expr *expr, Expr *const *index_) {
    Subst *subst = subst_new(version->arena);
    for (int d = 0; d < version->loop->rank; d++) subst_var(subst, version->loop->iters[d], index_[d]);
    return simplify_expr(version->arena, version->lower->facts, subst_expr(subst, expr));
}

// An index that is itself read from memory is a load of this version: guarded, and from the thread's slots.
static Expr *read_at(Version *version, Expr *expr, Expr *const *index_) {
    Expr *outer[LAYOUT_MAX_RANK], *element = version->element;
    memcpy(outer, version->index_, sizeof outer);
    for (int d = 0; d < version->loop->rank; d++) version->index_[d] = index_[d];
    version->element = e_int(version->arena, 0);
    Expr *result = version_expr(version, expr);
    memcpy(version->index_, outer, sizeof outer);
    version->element = element;
    return result;
}

Expr **access_at(Version *version, const TileAccess *access, Expr *const *index_) {
    Expr **indices = NEW_ARRAY(version->arena, Expr *, access->count);
    for (int d = 0; d < access->count; d++)
        indices[d] = expr_reads_memory(access->indices[d]) ? read_at(version, access->indices[d], index_)
                                                           : at_index(version, access->indices[d], index_);
    return indices;
}

// ---- elements ----

static Expr *fragment_slot(Version *version, Buf *buf, int count, Expr *const *indices) {
    int dims[LAYOUT_MAX_RANK];
    TileAccess access = {.buf = buf, .count = count, .indices = (Expr **)indices};
    bool known = access_dims(version->loop, &access, dims);
    int64_t held[LAYOUT_MAX_RANK];
    for (int d = 0; d < count; d++) held[d] = buf_extent(buf, d);
    const Layout *seen = tv_project(version->arena, version->map, count, dims, held);
    Expr *slot = fragment_projected_value(version->arena, version->map, count, dims, value_number(version));
    if (known && buf->layout && !layout_equal(seen, buf->layout))
        slot = fragment_same_thread(version->arena, seen, buf->layout, slot);
    EXPECT(version->lower->context->failure, known && buf->layout && slot,
           "fragment '%s' has another layout than its loop", buf->name);
    int64_t weight = tv_values(tv_project(version->arena, version->map, count, dims, NULL));
    for (int d = 0; d < count; d++) {
        if (dims[d] >= 0) continue;
        slot = e_add(version->arena, slot, e_times(version->arena, indices[d], weight));
        weight *= held[d];
    }
    return simplify_expr(version->arena, version->lower->facts, slot);
}

Expr *both(Version *version, Expr *a, Expr *b) {
    if (!a || !b) return a ? a : b;
    return e_and(version->arena, a, b);
}

Expr *guard_of(Version *version, const Buf *buf, int count, Expr *const *indices) {
    if (version->inside || buf->scope != SCOPE_GLOBAL) return NULL;
    return access_guard(version->arena, version->lower->facts, buf, count, indices);
}

static Expr *version_load(Version *version, Expr *expr) {
    Arena *arena = version->arena;
    Lower *lower = version->lower;
    Buf *buf = expr->load.buf, *temporary = map_get(version->temporaries, expr);
    if (temporary) return e_load1(arena, temporary, version->element);
    if (buf->scope == SCOPE_FRAGMENT)
        return e_load1(arena, lower_local(lower, buf),
                       fragment_slot(version, buf, expr->load.count, expr->load.indices));
    Expr **indices = NEW_ARRAY(arena, Expr *, expr->load.count);
    for (int d = 0; d < expr->load.count; d++) indices[d] = version_expr(version, expr->load.indices[d]);
    if (buf->scope == SCOPE_SHARED) {
        int count;
        Expr **physical = lower_indices(lower, buf, expr->load.count, indices, &count);
        return e_load(arena, lower_physical(lower, buf), count, physical);
    }
    Expr *guard = guard_of(version, buf, expr->load.count, indices);
    Expr *load = e_load(arena, buf, expr->load.count, indices);
    return guard ? e_select(arena, guard, load, e_zero(arena, load->type)) : load;
}

static Expr *version_call(Version *version, Expr *expr) {
    Arg *args = NEW_ARRAY(version->arena, Arg, expr->call.count);
    for (int i = 0; i < expr->call.count; i++) {
        args[i] = expr->call.args[i];
        if (args[i].value) args[i].value = version_expr(version, args[i].value);
        if (!args[i].region) continue;
        Region *region = args[i].region;
        Expr *indices[LAYOUT_MAX_RANK], **physical = indices;
        int count = region->count;
        for (int d = 0; d < count; d++) indices[d] = version_expr(version, region->dims[d].start);
        Buf *buf = region->buf;
        if (buf->scope == SCOPE_SHARED) {
            physical = lower_indices(version->lower, buf, count, indices, &count);
            buf = lower_physical(version->lower, buf);
        }
        args[i].region = region_element(version->arena, buf, count, physical);
    }
    return e_call(version->arena, expr->call.op, expr->call.count, args);
}

// Where the elements of global tensors that a lowered call accesses are there. NULL: always.
static Expr *call_guard(Version *version, const Expr *call) {
    Expr *guard = NULL;
    for (int i = 0; i < call->call.count; i++) {
        const Region *region = call->call.args[i].region;
        if (!region || region->buf->scope != SCOPE_GLOBAL) continue;
        Expr *indices[LAYOUT_MAX_RANK];
        for (int d = 0; d < region->count; d++) indices[d] = region->dims[d].start;
        guard = both(version, guard, guard_of(version, region->buf, region->count, indices));
    }
    return guard;
}

// An atomic's old value; 0 beyond the tensor, as a load gives.
static Expr *version_call_value(Version *version, Expr *expr) {
    Expr *call = version_call(version, expr), *guard = call_guard(version, call);
    return guard ? e_select(version->arena, guard, call, e_zero(version->arena, call->type)) : call;
}

static Expr *version_node(Version *version, Expr *expr) {
    Arena *arena = version->arena;
    switch (expr->kind) {
    case EXPR_INT:
    case EXPR_FLOAT: return expr;
    case EXPR_VAR:
        for (int d = 0; d < version->loop->rank; d++)
            if (version->loop->iters[d] == expr->var) return version->index_[d];
        return subst_expr(version->vars, expr);
    case EXPR_LOAD: return version_load(version, expr);
    case EXPR_UNARY: return e_unary(arena, expr->unary.op, version_expr(version, expr->unary.a));
    case EXPR_BINARY:
        return e_binary(arena, expr->binary.op, version_expr(version, expr->binary.a),
                        version_expr(version, expr->binary.b));
    case EXPR_SELECT:
        return e_select(arena, version_expr(version, expr->select.condition), version_expr(version, expr->select.yes),
                        version_expr(version, expr->select.no));
    case EXPR_CAST: return e_cast(arena, expr->type, version_expr(version, expr->operand));
    case EXPR_BITCAST: return e_bitcast(arena, expr->type, version_expr(version, expr->operand));
    case EXPR_CALL: return version_call_value(version, expr);
    }
    return expr;
}

Expr *version_expr(Version *version, Expr *expr) {
    Expr *result = version_node(version, expr);
    if (type_is_int(result->type) || result->type == TYPE_BOOL)
        result = simplify_expr(version->arena, version->lower->facts, result);
    return result;
}

// ---- statements of the body ----

void push_guarded(Version *version, Expr *guard, Stmt *stmt, Block *out) {
    if (!guard) {
        block_push(version->arena, out, stmt);
        return;
    }
    Stmt *only = s_if(version->arena, guard);
    block_push(version->arena, &only->if_.then, stmt);
    block_push(version->arena, out, only);
}

static void version_store(Version *version, Stmt *stmt, Block *out) {
    Arena *arena = version->arena;
    Lower *lower = version->lower;
    Buf *buf = stmt->store.buf, *temporary = map_get(version->temporaries, stmt);
    Expr *value = version_expr(version, stmt->store.value);
    if (temporary) {
        block_store1(arena, out, temporary, version->element, value);
        return;
    }
    if (buf->scope == SCOPE_FRAGMENT) {
        Expr *slot = fragment_slot(version, buf, stmt->store.count, stmt->store.indices);
        block_store1(arena, out, lower_local(lower, buf), slot, value);
        return;
    }
    int count = stmt->store.count;
    Expr **indices = NEW_ARRAY(arena, Expr *, count);
    for (int d = 0; d < count; d++) indices[d] = version_expr(version, stmt->store.indices[d]);
    Expr *guard = both(version, guard_of(version, buf, count, indices), version->first_replica);
    if (buf->scope == SCOPE_LOCAL) guard = NULL;
    if (buf->scope == SCOPE_SHARED) {
        indices = lower_indices(lower, buf, count, indices, &count);
        buf = lower_physical(lower, buf);
    }
    Stmt *store = s_store(arena, buf, count, indices, value);
    store->loc = stmt->loc;
    push_guarded(version, guard, store, out);
}

static Var *version_var(Version *version, const Var *var) {
    Var *copy = var_new(version->arena, var->name, var->kind, var->type, var->loc);
    subst_var(version->vars, var, e_var(version->arena, copy));
    return copy;
}

static void version_for(Version *version, Stmt *stmt, Block *out) {
    Stmt *loop = stmt_new(version->arena, STMT_FOR, stmt->loc);
    loop->loop = stmt->loop;
    loop->loop.body = (Block){0};
    loop->loop.iters = NEW_ARRAY(version->arena, Iter, stmt->loop.count);
    int mark = facts_mark(version->lower->facts);
    for (int i = 0; i < stmt->loop.count; i++) {
        const Iter *from = &stmt->loop.iters[i];
        Iter *to = &loop->loop.iters[i];
        to->begin = version_expr(version, from->begin);
        to->end = version_expr(version, from->end);
        to->step = version_expr(version, from->step);
        to->var = version_var(version, from->var);
        facts_iter(version->lower->facts, to);
    }
    version_block(version, &stmt->loop.body, &loop->loop.body);
    facts_release(version->lower->facts, mark);
    block_push(version->arena, out, loop);
}

static void version_if(Version *version, Stmt *stmt, Block *out) {
    Stmt *copy = s_if(version->arena, version_expr(version, stmt->if_.condition));
    int mark = facts_mark(version->lower->facts);
    facts_assume(version->lower->facts, copy->if_.condition, true);
    version_block(version, &stmt->if_.then, &copy->if_.then);
    facts_release(version->lower->facts, mark);
    facts_assume(version->lower->facts, copy->if_.condition, false);
    version_block(version, &stmt->if_.otherwise, &copy->if_.otherwise);
    facts_release(version->lower->facts, mark);
    block_push(version->arena, out, copy);
}

static void version_call_stmt(Version *version, Stmt *stmt, Block *out) {
    Buf *temporary = map_get(version->temporaries, stmt);
    if (temporary) {
        Expr *value = e_cast(version->arena, temporary->type, version_expr(version, stmt->call.args[1].value));
        block_store1(version->arena, out, temporary, version->element, value);
        return;
    }
    Expr call = {.kind = EXPR_CALL};
    call.call.op = stmt->call.op;
    call.call.count = stmt->call.count;
    call.call.args = stmt->call.args;
    Expr *lowered = version_call(version, &call);
    Stmt *copy = s_call(version->arena, stmt->call.op, lowered->call.count, lowered->call.args);
    copy->loc = stmt->loc;
    push_guarded(version, both(version, call_guard(version, lowered), version->first_replica), copy, out);
}

static void version_stmt(Version *version, Stmt *stmt, Block *out) {
    Arena *arena = version->arena;
    Stmt *copy;
    switch (stmt->kind) {
    case STMT_STORE: version_store(version, stmt, out); return;
    case STMT_FOR: version_for(version, stmt, out); return;
    case STMT_IF: version_if(version, stmt, out); return;
    case STMT_BLOCK: version_block(version, &stmt->block, out); return;
    case STMT_CALL: version_call_stmt(version, stmt, out); return;
    case STMT_LET:
    case STMT_VAR:
    case STMT_ASSIGN:
        copy = stmt_new(arena, stmt->kind, stmt->loc);
        copy->let.value = stmt->let.value ? version_expr(version, stmt->let.value) : NULL;
        if (stmt->kind == STMT_ASSIGN) {
            Expr *target = subst_expr(version->vars, e_var(arena, stmt->let.var));
            copy->let.var = target->var;
        } else {
            copy->let.var = version_var(version, stmt->let.var);
        }
        if (stmt->kind == STMT_LET) facts_bind(version->lower->facts, copy->let.var, copy->let.value);
        block_push(arena, out, copy);
        return;
    case STMT_WHILE:
        copy = stmt_new(arena, STMT_WHILE, stmt->loc);
        copy->while_.condition = version_expr(version, stmt->while_.condition);
        version_block(version, &stmt->while_.body, &copy->while_.body);
        block_push(arena, out, copy);
        return;
    default: block_push(arena, out, stmt); return;
    }
}

void version_block(Version *version, const Block *from, Block *to) {
    int mark = facts_mark(version->lower->facts);
    for (int i = 0; i < from->count; i++) version_stmt(version, from->items[i], to);
    facts_release(version->lower->facts, mark);
}
