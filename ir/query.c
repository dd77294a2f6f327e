// Walks without recursion. A walk remembers the last levels of its path; deeper programs are legal but rare, and there
// the way back is looked up from the root.
#include "ir/query.h"
#include "ir/build.h"

// ---- walking over statements ----

static void enter(StmtWalk *walk, Stmt *owner, Block *block) {
    walk->depth++;
    walk->levels[walk->depth % WALK_LEVELS].owner = owner;
    walk->levels[walk->depth % WALK_LEVELS].block = block;
    walk->levels[walk->depth % WALK_LEVELS].next = 0;
    if (walk->depth >= walk->lost + WALK_LEVELS) walk->lost = walk->depth - WALK_LEVELS + 1;
}

StmtWalk *walk_block(StmtWalk *walk, const Block *block) {
    walk->top = (Block *)block;
    walk->depth = -1;
    walk->lost = 0;
    walk->stmt = NULL;
    walk->skip = true;   // there is no current statement to go into
    enter(walk, NULL, walk->top);
    return walk;
}

StmtWalk *walk_stmt(StmtWalk *walk, const Stmt *stmt) {
    walk->only = (Stmt *)stmt;
    walk->only_block = (Block){&walk->only, 1, 1};
    return walk_block(walk, &walk->only_block);
}

// Fills the levels up to `depth` again, which lead to the block `to`. False: not below `block`, which is at level `at`.
static bool look_up(StmtWalk *walk, Block *block, Stmt *owner, int at, int depth, const Stmt *to) {
    for (int i = 0; i < block->count; i++) {
        Block *bodies[2];
        bool found = at == depth && block->items[i] == to;
        for (int b = 0, count = at < depth ? stmt_bodies(block->items[i], bodies) : 0; b < count && !found; b++)
            found = look_up(walk, bodies[b], block->items[i], at + 1, depth, to);
        if (!found) continue;
        if (at <= depth - WALK_LEVELS) return true;
        walk->levels[at % WALK_LEVELS].owner = owner;
        walk->levels[at % WALK_LEVELS].block = block;
        walk->levels[at % WALK_LEVELS].next = i + 1;
        return true;
    }
    return false;
}

// One level up: into the other branch of the same `if`, or behind the statement.
static void leave(StmtWalk *walk) {
    Stmt *owner = walk->levels[walk->depth % WALK_LEVELS].owner;
    bool then = owner && owner->kind == STMT_IF && walk->levels[walk->depth % WALK_LEVELS].block == &owner->if_.then;
    walk->depth--;
    if (walk->depth >= 0 && walk->depth < walk->lost) {
        walk->lost = walk->depth < WALK_LEVELS ? 0 : walk->depth - WALK_LEVELS + 1;
        look_up(walk, walk->top, NULL, 0, walk->depth, owner);
    }
    if (then) enter(walk, owner, &owner->if_.otherwise);
}

Stmt *walk_next(StmtWalk *walk) {
    Block *bodies[2];
    if (!walk->skip && stmt_bodies(walk->stmt, bodies) > 0) enter(walk, walk->stmt, bodies[0]);
    walk->skip = false;
    while (walk->depth >= 0) {
        Block *block = walk->levels[walk->depth % WALK_LEVELS].block;
        int *next = &walk->levels[walk->depth % WALK_LEVELS].next;
        if (*next < block->count) {
            walk->block = block;
            walk->index = (*next)++;
            return walk->stmt = block->items[walk->index];
        }
        leave(walk);
    }
    return NULL;
}

// ---- statements ----

bool block_any(const Block *block, StmtTest *is, void *user) {
    FOR_EACH_STMT (stmt, block)
        if (is(stmt, user)) return true;
    return false;
}

bool stmt_any(const Stmt *stmt, StmtTest *is, void *user) {
    FOR_EACH_STMT_IN (below, stmt)
        if (is(below, user)) return true;
    return false;
}

bool below_any(const Stmt *stmt, StmtTest *is, void *user) {
    FOR_EACH_BODY (body, stmt)
        if (block_any(body, is, user)) return true;
    return false;
}

bool stmt_contains(const Stmt *stmt, const Stmt *inner) {
    FOR_EACH_STMT_IN (below, stmt)
        if (below == inner && below != stmt) return true;
    return false;
}

bool iter_is_plain(const Iter *iter) {
    return expr_is_int(iter->begin, 0) && expr_is_int(iter->step, 1);
}

bool loop_is_plain(const Stmt *loop) {
    return loop->loop.count == 1 && iter_is_plain(&loop->loop.iters[0]);
}

int64_t trip_count(int64_t begin, int64_t end, int64_t step) {
    if (end <= begin || step <= 0) return 0;
    uint64_t count = ((uint64_t)end - (uint64_t)begin - 1) / (uint64_t)step + 1;
    return count > INT64_MAX ? INT64_MAX : (int64_t)count;
}

int64_t iter_count(const Iter *iter) {
    int64_t begin, end, step;
    bool known = expr_const(iter->begin, &begin) && expr_const(iter->end, &end) && expr_const(iter->step, &step);
    return known ? trip_count(begin, end, step) : -1;
}

Expr *iter_trips(Arena *arena, const Iter *iter) {
    Expr *span = e_sub(arena, iter->end, iter->begin);
    if (!expr_is_int(iter->begin, 0)) span = e_max(arena, span, e_int(arena, 0));
    return expr_is_int(iter->step, 1) ? span : e_call2(arena, OP_CEILDIV, span, iter->step);
}

bool is_loop_element(const Stmt *loop, int count, Expr *const *indices) {
    bool same = count == loop->loop.count;
    for (int d = 0; d < count && same; d++) same = expr_is_var(indices[d], loop->loop.iters[d].var);
    return same;
}

Stmt stmt_alone(const Stmt *stmt) {
    Stmt alone = *stmt;
    FOR_EACH_BODY (body, &alone) *body = (Block){0};
    return alone;
}

Region *call_region(const Stmt *call, int index) {
    return index < call->call.count ? call->call.args[index].region : NULL;
}

bool stmt_breaks(const Stmt *stmt) {
    if (stmt->kind == STMT_FOR || stmt->kind == STMT_WHILE) return false;
    FOR_EACH_BODY (body, stmt)
        if (block_breaks(body)) return true;
    return stmt->kind == STMT_BREAK;
}

bool block_breaks(const Block *block) {
    FOR_EACH_ITEM (stmt, block)
        if (stmt_breaks(stmt)) return true;
    return false;
}

const Stmt *block_first_call(const Block *block, OpId op) {
    FOR_EACH_STMT (stmt, block)
        if (is_call(stmt, op)) return stmt;
    return NULL;
}

EffectVec effects_of(Arena *arena, const Stmt *stmt) {
    EffectVec effects = {0};
    stmt_effects(arena, stmt, &effects);
    return effects;
}

int count_effects(Arena *arena, const Stmt *stmt, const Buf *buf) {
    int count = 0;
    FOR_EACH_EFFECT (effect, arena, stmt) count += effect->buf == buf;
    return count;
}

bool stmt_touches(Arena *arena, const Stmt *stmt, const Buf *buf) {
    return count_effects(arena, stmt, buf) > 0;
}

bool stmt_writes(Arena *arena, const Stmt *stmt, const Buf *buf) {
    FOR_EACH_EFFECT (effect, arena, stmt)
        if (effect->buf == buf && effect->access != ACCESS_READ) return true;
    return false;
}

// ---- expressions ----

typedef struct Search {
    ExprTest *is;
    const void *what;
    bool found;
    const Stmt *top;   // whose own expressions are searched
} Search;

static bool look_at(Visitor *visitor, Expr *expr) {
    Search *search = visitor->user;
    search->found |= search->is(expr, search->what);
    return !search->found;
}

static bool is_top(Visitor *visitor, Stmt *stmt) {
    return stmt == ((const Search *)visitor->user)->top;
}

static bool go_on(Visitor *visitor, Stmt *stmt) {
    (void)stmt;
    return !((const Search *)visitor->user)->found;
}

bool any_expr(const Expr *expr, ExprTest *is, const void *what) {
    Search search = {is, what, false, NULL};
    Visitor visitor = {.expr = look_at, .user = &search};
    visit_expr(&visitor, (Expr *)expr);
    return search.found;
}

static bool is_unknown_at_launch(const Expr *e, const void *what) {
    (void)what;
    bool inner = e->kind == EXPR_VAR && e->var->kind != VAR_DIM && e->var->kind != VAR_PARAM;
    return inner || e->kind == EXPR_LOAD || (e->kind == EXPR_CALL && !op_is_pure(e->call.op));
}

bool expr_known_at_launch(const Expr *expr) {
    return !any_expr(expr, is_unknown_at_launch, NULL);
}

bool stmt_any_expr(const Stmt *stmt, ExprTest *is, const void *what) {
    Search search = {is, what, false, NULL};
    Visitor visitor = {.expr = look_at, .stmt = go_on, .user = &search};
    visit_stmt(&visitor, (Stmt *)stmt);
    return search.found;
}

bool stmt_any_own_expr(const Stmt *stmt, ExprTest *is, const void *what) {
    Search search = {is, what, false, stmt};
    Visitor visitor = {.expr = look_at, .stmt = is_top, .user = &search};
    visit_stmt(&visitor, (Stmt *)stmt);
    return search.found;
}

bool block_any_expr(const Block *block, ExprTest *is, const void *what) {
    for (int i = 0; i < block->count; i++)
        if (stmt_any_expr(block->items[i], is, what)) return true;
    return false;
}

Expr *expr_divisor(const Expr *expr) {
    bool divides = (is_binary(expr, BIN_DIV) || is_binary(expr, BIN_MOD)) && type_is_int(expr->type);
    Expr *by = divides ? expr->binary.b : is_expr_call(expr, OP_CEILDIV) ? ARG(expr, CEILDIV, b).value : NULL;
    int64_t constant;
    return by && !expr_const(by, &constant) ? by : NULL;
}

static bool has_divisor(const Expr *expr, const void *what) {
    (void)what;
    return expr_divisor(expr) != NULL;
}

bool expr_divides(const Expr *expr) {
    return any_expr(expr, has_divisor, NULL);
}

bool is_single_thread(const Stmt *stmt) {
    if (stmt->kind == STMT_STORE)
        return stmt->store.buf->scope != SCOPE_LOCAL && stmt->store.buf->scope != SCOPE_FRAGMENT;
    if (stmt->kind != STMT_CALL || stmt->call.op == OP_MBARRIER_WAIT) return false;
    for (int i = 0; i < stmt->call.count; i++)
        if (stmt->call.args[i].region) return true;
    return stmt->call.op == OP_PRINT;
}

// A read of a peer's memory is the same for all threads: no CTA writes it before the next barrier. `any` is each warp's.
bool is_joint_effect(const Expr *expr, const void *what) {
    (void)what;
    return expr->kind == EXPR_CALL && !op_is_pure(expr->call.op) && expr->call.op != OP_PEER &&
           expr->call.op != OP_CLUSTER_RANK && expr->call.op != OP_ANY;
}

bool binds_effect(const Stmt *stmt) {
    bool binds = stmt->kind == STMT_LET || stmt->kind == STMT_VAR || stmt->kind == STMT_ASSIGN;
    return binds && stmt->let.value && any_expr(stmt->let.value, is_joint_effect, NULL);
}
