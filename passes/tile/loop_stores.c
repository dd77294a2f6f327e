// The stores of a `parallel` loop: through names, variables and conditions (loop_stores.h).
#include "passes/tile/loop_stores.h"
#include "ir/build.h"
#include "ir/match.h"
#include "ir/query.h"
#include "passes/analysis/util.h"

static bool same_element(const Element *a, const Element *b) {
    bool same = a->buf == b->buf && a->count == b->count;
    for (int d = 0; same && d < a->count; d++) same = expr_equal(a->indices[d], b->indices[d]);
    return same;
}

// Behind others of the same loop: of one element the last one counts.
static bool add_store(Stores *stores, Store store) {
    VEC_EACH (Store, other, &stores->all) {
        if (other->to.buf != store.to.buf) continue;
        if (other->guard || !same_element(&other->to, &store.to)) return false;
        other->value = store.guard ? e_select(stores->arena, store.guard, store.value, other->value) : store.value;
        return true;
    }
    vec_push(stores->arena, &stores->all, store);
    return true;
}

// ---- values of variables ----

typedef struct Value {
    const Var *var;
    Expr *value;
} Value;
typedef VEC(Value) Values;

// An expression where its value has to be taken here, since variables change.
static Expr *value_here(const Stores *stores, Expr *expr) {
    return stores->vars ? subst_expr(stores->lets, expr) : expr;
}

// Of those that the statement assigns to.
static Values values_of(const Stores *stores, const Stmt *stmt) {
    Values values = {0};
    FOR_EACH_STMT_IN (below, stmt) {
        if (below->kind != STMT_ASSIGN) continue;
        Expr *value = subst_expr(stores->lets, e_var(stores->arena, below->let.var));
        vec_push(stores->arena, &values, ((Value){below->let.var, value}));
    }
    return values;
}

// False: a value is too long.
static bool set_values(const Stores *stores, const Values *values) {
    bool fits = true;
    VEC_EACH (const Value, each, values) fits &= subst_let(stores->lets, each->var, each->value);
    return fits;
}

static bool is_declared(const Stores *stores, const Var *var) {
    return !expr_is_var(subst_expr(stores->lets, e_var(stores->arena, (Var *)var)), var);
}

// As one expression with what comes before or behind, it might be rounded only once.
static bool rounds(const Expr *e, const void *what) {
    (void)what;
    bool computes = e->kind == EXPR_BINARY || e->kind == EXPR_UNARY || e->kind == EXPR_CALL;
    return computes && type_is_float(e->type);
}

static bool assign(Stores *stores, const Stmt *stmt) {
    Expr *value = stmt->let.value ? stmt->let.value : e_zero(stores->arena, stmt->let.var->type);
    return expr_is_pure(value) && !any_expr(value, rounds, NULL) && subst_let(stores->lets, stmt->let.var, value);
}

// ---- stores ----

// A branch on its own.
static bool collect_branch(Stores *stores, const Block *block, Stores *branch) {
    *branch = (Stores){.arena = stores->arena, .lets = stores->lets, .names = stores->names, .vars = stores->vars};
    bool done = collect_stores(branch, block);
    stores->names = branch->names;
    stores->vars = branch->vars;
    return done;
}

static bool collect_if(Stores *stores, const Stmt *stmt) {
    Arena *a = stores->arena;
    if (!expr_is_pure(stmt->if_.condition)) return false;
    Expr *condition = value_here(stores, stmt->if_.condition), *otherwise = e_unary(a, UNARY_NOT, condition);
    Stores yes, no;
    Values before = values_of(stores, stmt);
    if (!collect_branch(stores, &stmt->if_.then, &yes)) return false;
    Values then = values_of(stores, stmt);
    if (!set_values(stores, &before) || !collect_branch(stores, &stmt->if_.otherwise, &no)) return false;
    Values after = values_of(stores, stmt);
    for (int i = 0; i < after.count; i++)
        after.items[i].value = e_select(a, condition, then.items[i].value, after.items[i].value);
    if (!set_values(stores, &after)) return false;
    VEC_EACH (Store, each, &yes.all) {
        Store store = {each->to, each->value, e_both(a, condition, each->guard)};
        VEC_EACH (Store, other, &no.all) {
            if (other->guard || each->guard || !same_element(&each->to, &other->to)) continue;
            store = (Store){each->to, e_select(a, condition, each->value, other->value), NULL};
            other->to.buf = NULL;
        }
        if (!add_store(stores, store)) return false;
    }
    VEC_EACH (const Store, each, &no.all)
        if (each->to.buf && !add_store(stores, (Store){each->to, each->value, e_both(a, otherwise, each->guard)}))
            return false;
    return true;
}

bool collect_stores(Stores *stores, const Block *block) {
    FOR_EACH_ITEM (stmt, block) {
        bool done = false;
        if (stmt->attrs) return false;
        if (stmt->kind == STMT_LET && expr_is_pure(stmt->let.value)) {
            done = subst_let(stores->lets, stmt->let.var, stmt->let.value);
            block_push(stores->arena, &stores->names, stmt);
        }
        if (stmt->kind == STMT_STORE && expr_is_pure(stmt->store.value)) {
            Store store = {{stmt->store.buf, stmt->store.count, stmt->store.indices}, stmt->store.value, NULL};
            if (stores->vars) look_through(stores, &store);
            done = add_store(stores, store);
        }
        if (stmt->kind == STMT_VAR || stmt->kind == STMT_ASSIGN) {
            done = (stmt->kind == STMT_VAR || is_declared(stores, stmt->let.var)) && assign(stores, stmt);
            stores->vars = true;
        }
        if (stmt->kind == STMT_IF) done = collect_if(stores, stmt);
        if (stmt->kind == STMT_BLOCK) done = collect_stores(stores, &stmt->block);
        if (!done) return false;
    }
    return true;
}

void look_through(const Stores *stores, Store *store) {
    Expr **indices = NEW_ARRAY(stores->arena, Expr *, store->to.count);
    for (int d = 0; d < store->to.count; d++) indices[d] = subst_expr(stores->lets, store->to.indices[d]);
    store->to.indices = indices;
    store->value = subst_expr(stores->lets, store->value);
    if (store->guard) store->guard = subst_expr(stores->lets, store->guard);
}

static bool uses_element(const Element *element, const Buf *buf) {
    for (int d = 0; d < element->count; d++)
        if (expr_uses_buf(element->indices[d], buf)) return true;
    return false;
}

bool are_independent(const Stores *stores) {
    VEC_EACH (const Store, each, &stores->all) {
        Store store = *each;
        look_through(stores, &store);
        VEC_EACH (const Store, other, &stores->all) {
            const Buf *buf = other->to.buf;
            if (expr_uses_buf(store.value, buf) || uses_element(&store.to, buf)) return false;
            if (store.guard && expr_uses_buf(store.guard, buf)) return false;
        }
    }
    return true;
}

// ---- moves of whole tiles ----

// The loop stores to each element of a tile that the compiler may leave out, one time and by its own iterators.
static bool stores_whole(const Stmt *loop, const Element *to) {
    if (to->count != to->buf->rank || !buf_is_free(to->buf) || !is_loop_element(loop, to->count, to->indices))
        return false;
    for (int d = 0; d < to->count; d++) {
        const Iter *iter = &loop->loop.iters[d];
        if (!iter_is_plain(iter) || !expr_equal(iter->end, to->buf->shape[d])) return false;
    }
    return true;
}

bool tile_store(Arena *arena, const Stmt *loop, Store *store) {
    Stores stores = {.arena = arena, .lets = subst_new(arena)};
    if (!is_loop(loop, LOOP_PARALLEL) || loop->attrs || !collect_stores(&stores, &loop->loop.body)) return false;
    if (stores.all.count != 1 || !are_independent(&stores)) return false;
    *store = stores.all.items[0];
    look_through(&stores, store);
    return !store->guard && stores_whole(loop, &store->to);
}

const Expr *moved_element(const Expr *value) {
    if (value->kind == EXPR_CAST) return moved_element(value->operand);
    if (value->kind == EXPR_LOAD) return value;
    if (value->kind != EXPR_SELECT) return NULL;
    const Expr *no = value->select.no, *yes = value->select.yes;
    return expr_is_zero(no) ? moved_element(yes) : expr_is_zero(yes) ? moved_element(no) : NULL;
}

// The value of the other type: that of what it selects.
static Expr *converted(Arena *arena, Type type, Expr *value) {
    if (value->type == type) return value;
    if (value->kind != EXPR_SELECT) return e_cast(arena, type, value);
    return e_select(arena, value->select.condition, converted(arena, type, value->select.yes),
                    converted(arena, type, value->select.no));
}

Stmt *loop_storing(Arena *arena, const Stmt *loop, const Store *store, Buf *to) {
    Stmt *direct = clone_stmt(arena, NULL, loop);
    Subst *subst = subst_new(arena);
    for (int d = 0; d < loop->loop.count; d++)
        subst_var(subst, loop->loop.iters[d].var, e_var(arena, direct->loop.iters[d].var));
    Expr *at[LAYOUT_MAX_RANK];
    for (int d = 0; d < to->rank; d++) at[d] = e_var(arena, direct->loop.iters[d].var);
    Expr *value = subst_expr(subst, converted(arena, to->type, store->value));
    direct->loop.body = (Block){0};
    block_push(arena, &direct->loop.body, s_store(arena, to, to->rank, at, value));
    return direct;
}

// ---- loops in the loop ----

Stmt *last_behind_names(const Block *block) {
    for (int i = 0; i + 1 < block->count; i++)
        if (block->items[i]->kind != STMT_LET || block->items[i]->attrs) return NULL;
    return block->count > 0 ? block->items[block->count - 1] : NULL;
}

static bool can_flatten(const Stmt *inner) {
    bool loops = inner && (is_loop(inner, LOOP_SERIAL) || is_loop(inner, LOOP_UNROLL));
    return loops && !inner->attrs && loop_is_plain(inner) && iter_count(&inner->loop.iters[0]) > 0 &&
           !block_breaks(&inner->loop.body);
}

static bool moves_element(const Store *store, const Var *var) {
    for (int d = 0; d < store->to.count; d++)
        if (expr_uses_var(store->to.indices[d], var)) return true;
    return false;
}

// Necessary for iterations to come in any order: what they store moves with each iterator. (That no two of them store one element is
// known where a loop becomes a copy or a gather.)
static bool stores_move(Arena *arena, const Stmt *loop, int first) {
    Stores stores = {.arena = arena, .lets = subst_new(arena)};
    if (!collect_stores(&stores, &loop->loop.body) || !are_independent(&stores)) return false;
    VEC_EACH (const Store, each, &stores.all) {
        Store store = *each;
        look_through(&stores, &store);
        for (int i = first; i < loop->loop.count; i++)
            if (!moves_element(&store, loop->loop.iters[i].var)) return false;
    }
    return stores.all.count > 0;
}

Stmt *flattened(Arena *arena, Stmt *loop) {
    Stmt *flat = arena_copy(arena, loop, sizeof *loop);
    flat->loop.iters = arena_copy(arena, loop->loop.iters, sizeof *loop->loop.iters * (size_t)loop->loop.count);
    for (Stmt *inner; can_flatten(inner = last_behind_names(&flat->loop.body));) {
        Block body = {0};
        for (int i = 0; i + 1 < flat->loop.body.count; i++) block_push(arena, &body, flat->loop.body.items[i]);
        block_append(arena, &body, &inner->loop.body);
        iter_insert(arena, &flat->loop.iters, &flat->loop.count, flat->loop.count, inner->loop.iters[0]);
        flat->loop.body = body;
    }
    bool more = flat->loop.count > loop->loop.count;
    return more && stores_move(arena, flat, loop->loop.count) ? flat : loop;
}
