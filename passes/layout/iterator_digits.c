// Iterators whose digits index a fragment: each digit becomes an iterator of its own, which layouts can map.
//
//     parallel (i in 16, j in 64) y[i, j] = t[i, j / 8, j % 8];
//     =>    parallel (i in 16, j in 8, j_1 in 8) y[i, j * 8 + j_1] = t[i, j, j_1];
//
// A fragment that has the dim whole is indexed by the sum, whose terms are digits of it (analysis/fragment_digits.c).
#include "ir/build.h"
#include "ir/facts.h"
#include "ir/query.h"
#include "ir/rewrite.h"
#include "passes/analysis/tile_loop.h"
#include "passes/layout/fragment.h"

typedef struct Cuts {   // the places at which digits of an iterator begin, each a divisor of the next
    const Var *var;
    int count;
    int64_t at[LAYOUT_MAX_RANK];
    bool mixed;   // places that are no digits of one number
} Cuts;

static void add_cut(Cuts *cuts, int64_t place) {
    int i = cuts->count;
    for (int k = 0; k < cuts->count; k++)
        if (cuts->at[k] == place) return;
    if (place == 1) return;
    if (cuts->count == LAYOUT_MAX_RANK) {
        cuts->mixed = true;
        return;
    }
    for (; i > 0 && cuts->at[i - 1] > place; i--) cuts->at[i] = cuts->at[i - 1];
    cuts->at[i] = place;
    cuts->count++;
    for (int k = 0; k + 1 < cuts->count; k++) cuts->mixed |= cuts->at[k + 1] % cuts->at[k] != 0;
}

// A quotient or remainder of a sum cuts each of its iterators at the multiple of the divisor: (i * 24 + j * 3 + k) / 12 cuts
// j at 4.
static bool cut_index(Visitor *visitor, Expr *e) {
    Cuts *cuts = visitor->user;
    int64_t by, divisor = 1, weight;
    const Expr *sum = e;
    if (is_binary(e, BIN_MOD) && expr_const(e->binary.b, &by)) divisor = by, sum = e->binary.a;
    for (; is_binary(sum, BIN_DIV) && expr_const(sum->binary.b, &by); sum = sum->binary.a)
        divisor = by < 1 || divisor > INT32_MAX ? 0 : divisor * by;
    if (sum == e || divisor < 1 || !linear_in(sum, cuts->var, &weight) || weight == 0) return true;
    cuts->mixed |= weight < 0 || (divisor % weight && weight % divisor);
    if (weight > 0 && divisor % weight == 0) add_cut(cuts, divisor / weight);
    return true;
}

static void cut_indices(Cuts *cuts, const Buf *buf, int count, Expr *const *indices) {
    Visitor visitor = {.expr = cut_index, .user = cuts};
    for (int d = 0; d < count && buf->scope == SCOPE_FRAGMENT; d++) visit_expr(&visitor, indices[d]);
}

static bool cut_load(Visitor *visitor, Expr *e) {
    if (e->kind == EXPR_LOAD) cut_indices(visitor->user, e->load.buf, e->load.count, e->load.indices);
    return true;
}

static bool cut_store(Visitor *visitor, Stmt *stmt) {
    if (stmt->kind == STMT_STORE) cut_indices(visitor->user, stmt->store.buf, stmt->store.count, stmt->store.indices);
    return true;
}

static Cuts cuts_of(Stmt *loop, const Iter *iter) {
    Cuts cuts = {.var = iter->var};
    visit_block(&(Visitor){.expr = cut_load, .stmt = cut_store, .user = &cuts}, &loop->loop.body);
    int64_t count = iter_count(iter);
    bool from_zero = expr_is_int(iter->begin, 0) && expr_is_int(iter->step, 1);
    for (int k = 0; k < cuts.count; k++) cuts.mixed |= count % cuts.at[k] != 0;
    while (cuts.count > 0 && cuts.at[cuts.count - 1] >= count) cuts.count--;
    if (cuts.mixed || count < 1 || !from_zero) cuts.count = 0;
    return cuts;
}

// Puts the digits in the place of iterator `at`, the slowest first.
static void split_iterator(Arena *arena, Facts *facts, Stmt *loop, int at, const Cuts *cuts) {
    Iter old = loop->loop.iters[at], *iters = NEW_ARRAY(arena, Iter, loop->loop.count + cuts->count);
    Expr *number = e_int(arena, 0);
    int64_t above = iter_count(&old);
    int count = 0;
    for (int i = 0; i < loop->loop.count; i++) {
        if (i != at) iters[count++] = loop->loop.iters[i];
        for (int k = cuts->count; i == at && k >= 0; k--) {
            int64_t place = k ? cuts->at[k - 1] : 1;
            Var *var = var_new(arena, old.var->name, VAR_ITER, old.var->type, old.var->loc);
            iters[count] = iter_new(arena, var, e_int_of(arena, old.var->type, above / place));
            facts_iter(facts, &iters[count++]);
            number = e_add(arena, number, e_times(arena, e_var(arena, var), place));
            above = place;
        }
    }
    Subst *subst = subst_new(arena);
    subst_var(subst, old.var, number);
    subst_block(subst, &loop->loop.body);
    loop->loop.iters = iters;
    loop->loop.count = count;
}

typedef struct Simplified {
    Arena *arena;
    const Facts *facts;
} Simplified;

static Expr *simpler(Mapper *mapper, Expr *e) {
    const Simplified *s = mapper->user;
    bool divides = is_binary(e, BIN_DIV) || is_binary(e, BIN_MOD);
    return divides ? simplify_expr(s->arena, s->facts, e) : e;
}

static void split_in_loop(StmtMapper *mapper, Stmt *stmt, Block *out) {
    Arena *arena = mapper->arena;
    const Func *kernel = mapper->user;
    block_push(arena, out, stmt);
    if (!is_loop(stmt, LOOP_PARALLEL)) return;
    Facts *facts = facts_new(arena, kernel);
    bool split = false;
    for (int i = stmt->loop.count - 1; i >= 0; i--) {
        Cuts cuts = cuts_of(stmt, &stmt->loop.iters[i]);
        if (cuts.count == 0 || stmt->loop.count + cuts.count > LAYOUT_MAX_RANK) continue;
        split_iterator(arena, facts, stmt, i, &cuts);
        split = true;
    }
    if (!split) return;
    Simplified simplified = {arena, facts};
    map_block(&(Mapper){.arena = arena, .expr = simpler, .user = &simplified}, &stmt->loop.body);
    mapper->changed = true;
}

bool split_iterators(PassContext *context, Func *kernel) {
    return rewrite_block(&(StmtMapper){.arena = context->arena, .stmt = split_in_loop, .user = kernel}, &kernel->body);
}
