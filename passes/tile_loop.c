#include "passes/tile_loop.h"
#include "ir/build.h"
#include "ir/rewrite.h"
#include "passes/util.h"
#include <string.h>

// ---- regions as elements ----

Expr **region_indices(Arena *arena, const Region *region, Expr *const *at) {
    Expr **indices = NEW_ARRAY(arena, Expr *, region->count);
    int rank = region_rank(region), kept = 0;
    for (int d = 0; d < region->count; d++) {
        const RegionDim *dim = &region->dims[d];
        indices[d] = dim->start;
        if (!dim->extent) continue;
        int from = kept++;
        if (region->transposed && rank >= 2 && from >= rank - 2) from = from == rank - 1 ? rank - 2 : rank - 1;
        indices[d] = e_add(arena, dim->start, at[from]);
    }
    return indices;
}

Expr *region_clip(Arena *arena, const Region *region, Expr *const *at) {
    Expr *inside = NULL;
    int rank = region_rank(region), kept = 0;
    for (int d = 0; d < region->count; d++) {
        const RegionDim *dim = &region->dims[d];
        if (!dim->extent) continue;
        int from = kept++;
        int64_t extent;
        if (expr_const(dim->extent, &extent) && extent >= dim->tile) continue;
        if (region->transposed && rank >= 2 && from >= rank - 2) from = from == rank - 1 ? rank - 2 : rank - 1;
        Expr *here = e_lt(arena, at[from], dim->extent);
        inside = inside ? e_and(arena, inside, here) : here;
    }
    return inside;
}

static void space_of_region(Arena *arena, const Region *region, TileLoop *loop) {
    static const char *const names[] = {"i", "j", "k", "l", "i4", "i5", "i6", "i7"};
    loop->rank = region_rank(region);
    for (int d = 0; d < loop->rank; d++) {
        loop->iters[d] = var_new(arena, names[d], VAR_ITER, TYPE_I64, region->loc);
        loop->extents[d] = region_extent(region, d);
    }
}

static void iter_exprs(Arena *arena, const TileLoop *loop, Expr **at) {
    for (int d = 0; d < loop->rank; d++) at[d] = e_var(arena, loop->iters[d]);
}

// What a tensor does not get is left away point by point; of other buffers passes ask whether all is stored.
static void push_clipped(Arena *arena, TileLoop *loop, Expr *clip, Stmt *store) {
    if (clip && store->store.buf->scope == SCOPE_GLOBAL) loop->clip = clip, clip = NULL;
    if (!clip) {
        block_push(arena, &loop->body, store);
        return;
    }
    Stmt *guard = s_if(arena, clip);
    block_push(arena, &guard->if_.then, store);
    block_push(arena, &loop->body, guard);
}

static void loop_of_copy(Arena *arena, const Region *src, const Region *dst, bool transpose, TileLoop *loop) {
    Expr *at[LAYOUT_MAX_RANK], *from[LAYOUT_MAX_RANK];
    space_of_region(arena, dst, loop);
    iter_exprs(arena, loop, at);
    for (int d = 0; d < loop->rank; d++) from[d] = at[transpose ? loop->rank - 1 - d : d];
    Expr *value = e_load(arena, src->buf, src->count, region_indices(arena, src, from));
    Expr *clip = region_clip(arena, src, from);
    if (clip) value = e_select(arena, clip, value, e_zero(arena, value->type));
    value = e_cast(arena, dst->buf->type, value);
    Stmt *store = s_store(arena, dst->buf, dst->count, region_indices(arena, dst, at), value);
    push_clipped(arena, loop, region_clip(arena, dst, at), store);
}

static void loop_of_fill(Arena *arena, const Region *dst, Expr *value, TileLoop *loop) {
    Expr *at[LAYOUT_MAX_RANK];
    space_of_region(arena, dst, loop);
    iter_exprs(arena, loop, at);
    Stmt *store =
        s_store(arena, dst->buf, dst->count, region_indices(arena, dst, at), e_cast(arena, dst->buf->type, value));
    push_clipped(arena, loop, region_clip(arena, dst, at), store);
}

// A parallel loop keeps its body; iterators that do not run from 0 by 1 are replaced by ones that do.
static bool loop_of_parallel(Arena *arena, Stmt *stmt, TileLoop *loop) {
    Subst *subst = subst_new(arena);
    bool plain = true;
    loop->rank = stmt->loop.count;
    if (loop->rank > LAYOUT_MAX_RANK) return false;
    for (int d = 0; d < loop->rank; d++) {
        const Iter *iter = &stmt->loop.iters[d];
        int64_t begin, end, step;
        if (!expr_const(iter->step, &step)) return false;
        Expr *count = e_sub(arena, iter->end, iter->begin);
        if (!expr_const(count, &end)) return false;
        loop->extents[d] = end <= 0 ? 0 : (end - 1) / step + 1;
        loop->iters[d] = iter->var;
        if (expr_const(iter->begin, &begin) && begin == 0 && step == 1) continue;
        plain = false;
        loop->iters[d] = var_new(arena, iter->var->name, VAR_ITER, TYPE_I64, iter->var->loc);
        Expr *scaled = e_mul(arena, e_var(arena, loop->iters[d]), e_int(arena, step));
        subst_var(subst, iter->var, e_add(arena, iter->begin, scaled));
    }
    if (plain) loop->body = stmt->loop.body;
    else clone_block(arena, subst, &stmt->loop.body, &loop->body);
    return true;
}

bool tile_loop_of(Arena *arena, Stmt *stmt, TileLoop *loop) {
    memset(loop, 0, sizeof *loop);
    loop->origin = stmt;
    loop->is_async = starts_copy(stmt);
    if (stmt->kind == STMT_FOR && stmt->loop.kind == LOOP_PARALLEL) return loop_of_parallel(arena, stmt, loop);
    if (stmt->kind != STMT_CALL) return false;
    const Arg *args = stmt->call.args;
    switch (stmt->call.op) {
    case OP_COPY: loop_of_copy(arena, args[0].region, args[1].region, false, loop); return true;
    case OP_TRANSPOSE: loop_of_copy(arena, args[0].region, args[1].region, true, loop); return true;
    case OP_FILL: loop_of_fill(arena, args[0].region, args[1].value, loop); return true;
    default: return false;
    }
}

// ---- accesses ----

typedef struct Collector {
    Arena *arena;
    TileAccessVec *out;
    int depth;         // of conditions around that are no expression over the iterators
    Expr *condition;   // the others; NULL: none
    Subst *lets;       // pure lets of the body
    Map *own;          // other variables of the body
} Collector;

static void collect_block(Collector *c, const Block *block);

typedef struct OwnSearch {
    const Map *own;
    bool found;
} OwnSearch;

static bool find_own(Visitor *visitor, Expr *expr) {
    OwnSearch *search = visitor->user;
    search->found |= expr->kind == EXPR_VAR && map_has(search->own, expr->var);
    return !search->found;
}

static bool uses_own(const Collector *c, Expr *expr) {
    OwnSearch search = {c->own, false};
    Visitor visitor = {.expr = find_own, .user = &search};
    visit_expr(&visitor, expr);
    return search.found;
}

static bool find_impure(Visitor *visitor, Expr *expr) {
    bool *impure = visitor->user;
    *impure |= expr->kind == EXPR_LOAD || (expr->kind == EXPR_CALL && !op_is_pure(expr->call.op));
    return true;
}

// A value that depends on the iterators alone.
static bool is_known(const Collector *c, Expr *value) {
    bool impure = false;
    Visitor visitor = {.expr = find_impure, .user = &impure};
    visit_expr(&visitor, value);
    return !impure && !uses_own(c, value);
}

static void declare(Collector *c, Var *var, Expr *value) {
    if (value && is_known(c, value)) subst_var(c->lets, var, subst_expr(c->lets, value));
    else map_put(c->own, var, var);
}

static void collect_access(Collector *c, Buf *buf, int count, Expr **from, Expr *load, Stmt *store) {
    Expr **indices = NEW_ARRAY(c->arena, Expr *, count);
    bool own = false;
    for (int d = 0; d < count; d++) {
        indices[d] = subst_expr(c->lets, from[d]);
        own |= uses_own(c, indices[d]);
    }
    TileAccess access = {.buf = buf,
                         .count = count,
                         .indices = indices,
                         .is_store = store != NULL,
                         .update = OP_COUNT,
                         .load = load,
                         .store = store,
                         .conditional = c->depth > 0,
                         .condition = c->condition,
                         .is_local = own};
    vec_push(c->arena, c->out, access);
}

static void collect_expr(Collector *c, Expr *expr);

// The element operand of an atomic, or of a load or store with an order.
static void collect_region(Collector *c, const Region *region, bool writes, Stmt *store) {
    Expr **indices = NEW_ARRAY(c->arena, Expr *, region->count);
    for (int d = 0; d < region->count; d++) collect_expr(c, indices[d] = region->dims[d].start);
    collect_access(c, region->buf, region->count, indices, NULL, store);
    vec_last(c->out).is_atomic = true;
    vec_last(c->out).is_store = writes;
}

static void collect_args(Collector *c, OpId op, int count, Arg *args, Stmt *stmt) {
    for (int i = 0; i < count; i++) {
        if (args[i].value) collect_expr(c, args[i].value);
        if (!args[i].region) continue;
        collect_region(c, args[i].region, op != OP_LOAD && op != OP_PEER, stmt);
        vec_last(c->out).is_peer = op == OP_PEER;
        vec_last(c->out).elsewhere = op == OP_PEER_STORE;
        vec_last(c->out).adds = op == OP_ATOMIC_ADD && stmt;
        if (stmt) vec_last(c->out).update = op;
    }
}

static void collect_lazily(Collector *c, Expr *expr) {
    c->depth++;
    collect_expr(c, expr);
    c->depth--;
}

// What follows happens under one more condition, until the mark is restored.
typedef struct ConditionMark {
    int depth;
    Expr *condition;
} ConditionMark;

static ConditionMark collect_under(Collector *c, Expr *condition, bool holds) {
    ConditionMark mark = {c->depth, c->condition};
    if (!is_known(c, condition)) {
        c->depth++;
        return mark;
    }
    Expr *more = subst_expr(c->lets, condition);
    if (!holds) more = e_unary(c->arena, UNARY_NOT, more);
    c->condition = c->condition ? e_and(c->arena, c->condition, more) : more;
    return mark;
}

static void collect_again(Collector *c, ConditionMark mark) {
    c->depth = mark.depth;
    c->condition = mark.condition;
}

static void collect_choice(Collector *c, const Expr *select) {
    ConditionMark mark = collect_under(c, select->select.condition, true);
    collect_expr(c, select->select.yes);
    collect_again(c, mark);
    collect_under(c, select->select.condition, false);
    collect_expr(c, select->select.no);
    collect_again(c, mark);
}

static void collect_expr(Collector *c, Expr *expr) {
    switch (expr->kind) {
    case EXPR_INT:
    case EXPR_FLOAT:
    case EXPR_VAR: return;
    case EXPR_LOAD:
        for (int i = 0; i < expr->load.count; i++) collect_expr(c, expr->load.indices[i]);
        collect_access(c, expr->load.buf, expr->load.count, expr->load.indices, expr, NULL);
        return;
    case EXPR_UNARY: collect_expr(c, expr->unary.a); return;
    case EXPR_BINARY:
        collect_expr(c, expr->binary.a);
        if (expr->binary.op >= BIN_LOGICAL_AND) collect_lazily(c, expr->binary.b);
        else collect_expr(c, expr->binary.b);
        return;
    case EXPR_SELECT:
        collect_expr(c, expr->select.condition);
        collect_choice(c, expr);
        return;
    case EXPR_CAST:
    case EXPR_BITCAST: collect_expr(c, expr->operand); return;
    case EXPR_CALL: collect_args(c, expr->call.op, expr->call.count, expr->call.args, NULL); return;
    }
}

static void collect_body(Collector *c, const Block *block) {
    c->depth++;
    collect_block(c, block);
    c->depth--;
}

static void collect_if(Collector *c, const Stmt *stmt) {
    ConditionMark mark = collect_under(c, stmt->if_.condition, true);
    collect_block(c, &stmt->if_.then);
    collect_again(c, mark);
    collect_under(c, stmt->if_.condition, false);
    collect_block(c, &stmt->if_.otherwise);
    collect_again(c, mark);
}

static void collect_stmt(Collector *c, Stmt *stmt) {
    switch (stmt->kind) {
    case STMT_LET:
    case STMT_VAR:
    case STMT_ASSIGN:
        if (stmt->let.value) collect_expr(c, stmt->let.value);
        if (stmt->kind != STMT_ASSIGN) declare(c, stmt->let.var, stmt->kind == STMT_LET ? stmt->let.value : NULL);
        return;
    case STMT_STORE:
        for (int i = 0; i < stmt->store.count; i++) collect_expr(c, stmt->store.indices[i]);
        collect_expr(c, stmt->store.value);
        collect_access(c, stmt->store.buf, stmt->store.count, stmt->store.indices, NULL, stmt);
        return;
    case STMT_FOR:
        for (int i = 0; i < stmt->loop.count; i++) {
            collect_expr(c, stmt->loop.iters[i].begin);
            collect_expr(c, stmt->loop.iters[i].end);
            declare(c, stmt->loop.iters[i].var, NULL);
        }
        collect_body(c, &stmt->loop.body);
        return;
    case STMT_WHILE:
        collect_lazily(c, stmt->while_.condition);
        collect_body(c, &stmt->while_.body);
        return;
    case STMT_IF:
        collect_expr(c, stmt->if_.condition);
        collect_if(c, stmt);
        return;
    case STMT_BLOCK: collect_block(c, &stmt->block); return;
    case STMT_CALL: collect_args(c, stmt->call.op, stmt->call.count, stmt->call.args, stmt); return;
    default: return;
    }
}

static void collect_block(Collector *c, const Block *block) {
    for (int i = 0; i < block->count; i++) collect_stmt(c, block->items[i]);
}

void tile_accesses(Arena *arena, const TileLoop *loop, TileAccessVec *out) {
    Collector collector = {.arena = arena, .out = out, .lets = subst_new(arena), .own = map_new(arena)};
    collect_block(&collector, &loop->body);
}

const Expr *tile_move(Arena *arena, const TileLoop *loop) {
    if (loop->body.count != 1) return NULL;
    const Stmt *store = loop->body.items[0];
    if (store->kind != STMT_STORE || store->store.buf->scope != SCOPE_SHARED) return NULL;
    const Expr *value = store->store.value;
    if (value->kind == EXPR_SELECT && expr_equal(value->select.no, e_zero(arena, value->type)))
        value = value->select.yes;
    bool global = value->kind == EXPR_LOAD && value->load.buf->scope == SCOPE_GLOBAL;
    return global && value->type == store->store.buf->type ? value : NULL;
}

// ---- index arithmetic ----

static bool linear_in_product(const Expr *a, const Expr *b, const Var *var, int64_t *coefficient) {
    int64_t factor, inner;
    if (expr_const(b, &factor) && linear_in(a, var, &inner)) return *coefficient = inner * factor, true;
    if (expr_const(a, &factor) && linear_in(b, var, &inner)) return *coefficient = inner * factor, true;
    return false;
}

bool linear_in(const Expr *expr, const Var *var, int64_t *coefficient) {
    if (!expr_uses_var(expr, var)) return *coefficient = 0, true;
    int64_t a, b;
    switch (expr->kind) {
    case EXPR_VAR: return *coefficient = 1, true;
    case EXPR_CAST: return type_is_int(expr->type) && linear_in(expr->operand, var, coefficient);
    case EXPR_BINARY:
        if (expr->binary.op == BIN_MUL) return linear_in_product(expr->binary.a, expr->binary.b, var, coefficient);
        if (expr->binary.op != BIN_ADD && expr->binary.op != BIN_SUB) return false;
        if (!linear_in(expr->binary.a, var, &a) || !linear_in(expr->binary.b, var, &b)) return false;
        *coefficient = expr->binary.op == BIN_ADD ? a + b : a - b;
        return true;
    default: return false;
    }
}

static bool last_dim_is_dense(const Buf *buf) {
    return !buf->strides || expr_is_int(buf->strides[buf->rank - 1], 1);
}

StrideKind access_stride(const TileAccess *access, const Var *iter) {
    bool used = false;
    if (access->is_local) return STRIDE_OTHER;
    for (int d = 0; d < access->count; d++) {
        int64_t coefficient;
        if (!linear_in(access->indices[d], iter, &coefficient)) return STRIDE_OTHER;
        if (coefficient == 0) continue;
        if (used || d != access->count - 1 || coefficient != 1 || !last_dim_is_dense(access->buf)) return STRIDE_OTHER;
        used = true;
    }
    return used ? STRIDE_UNIT : STRIDE_NONE;
}

// iter op n: n; else 0.
static int64_t digit(const Expr *index, BinaryOp op, const Var *iter) {
    int64_t n;
    bool is_digit = index->kind == EXPR_BINARY && index->binary.op == op && index->binary.a->kind == EXPR_VAR &&
                    index->binary.a->var == iter && expr_const(index->binary.b, &n) && n > 0;
    return is_digit ? n : 0;
}

// x[.., iter / n, .., iter % n] of a tensor whose rows are n, a power of two, long: n; else 0.
static int64_t pieces(const TileAccess *access, const Var *iter) {
    const Buf *buf = access->buf;
    int64_t row;
    if (access->count == 0 || buf->scope != SCOPE_GLOBAL || !last_dim_is_dense(buf)) return 0;
    int64_t n = digit(access->indices[access->count - 1], BIN_MOD, iter);
    for (int d = 0; d + 1 < access->count; d++)
        if (expr_uses_var(access->indices[d], iter) && digit(access->indices[d], BIN_DIV, iter) != n) return 0;
    return expr_const(buf->shape[buf->rank - 1], &row) && row == n && (n & (n - 1)) == 0 ? n : 0;
}

StrideKind run_stride(const TileAccess *access, const Var *iter) {
    return !access->is_local && pieces(access, iter) > 0 ? STRIDE_UNIT : access_stride(access, iter);
}

Expr *run_start(Arena *arena, const TileAccess *access, Var *iter) {
    int64_t n = pieces(access, iter);
    return n > 0 ? e_int(arena, n) : e_sub(arena, access->indices[access->count - 1], e_var(arena, iter));
}

static int iterator_number(const TileLoop *loop, const Expr *index) {
    while (index->kind == EXPR_CAST) index = index->operand;
    if (index->kind != EXPR_VAR) return -1;
    for (int i = 0; i < loop->rank; i++)
        if (loop->iters[i] == index->var) return i;
    return -1;
}

typedef struct Runs {
    const Var *iter;
    int64_t common;   // what all divisors are multiples of; 0: there is none
} Runs;

static bool find_divisor(Visitor *visitor, Expr *expr) {
    Runs *runs = visitor->user;
    int64_t divisor;
    const Expr *of = expr->kind == EXPR_BINARY && expr->binary.op == BIN_DIV ? expr->binary.a : NULL;
    while (of && of->kind == EXPR_CAST) of = of->operand;
    if (of && of->kind == EXPR_VAR && of->var == runs->iter && expr_const(expr->binary.b, &divisor) && divisor > 0) {
        runs->common |= divisor;   // its trailing zeros count
        return false;
    }
    if (expr->kind == EXPR_VAR && expr->var == runs->iter) runs->common |= 1;
    return true;
}

// For so many iterations, a power of two, from multiples of that on the condition is the same; 0: for all.
static int64_t condition_run(const Expr *condition, const Var *iter) {
    Runs runs = {.iter = iter};
    Visitor visitor = {.expr = find_divisor, .user = &runs};
    if (condition) visit_expr(&visitor, (Expr *)condition);
    return runs.common & -runs.common;
}

bool access_in_runs(const TileLoop *loop, const TileAccess *access, int fast) {
    const Var *iter = loop->iters[fast];
    bool adds = access->adds && access->buf->scope == SCOPE_GLOBAL;
    if (access->conditional || (access->is_atomic && !adds) || run_stride(access, iter) != STRIDE_UNIT) return false;
    return condition_run(access->condition, iter) != 1;
}

// An iteration that has written to the buffer comes back to it: its elements go to memory one by one then.
static bool comes_back(const TileLoop *loop, const TileAccessVec *accesses, const Buf *buf, int fast) {
    bool written = false, in_runs = true;
    for (int a = 0; a < accesses->count; a++) {
        const TileAccess *access = &accesses->items[a];
        if (buf_root(access->buf) != buf_root(buf)) continue;
        in_runs &= access_in_runs(loop, access, fast);
        if (written && (!access->is_store || !in_runs)) return true;
        written |= access->is_store;
    }
    return false;
}

bool access_in_vectors(const TileLoop *loop, const TileAccessVec *accesses, const TileAccess *access, int fast) {
    return access_in_runs(loop, access, fast) && !comes_back(loop, accesses, access->buf, fast);
}

bool access_dims(const TileLoop *loop, const TileAccess *access, int *dims) {
    for (int d = 0; d < access->count; d++) {
        int64_t constant;
        dims[d] = iterator_number(loop, access->indices[d]);
        if (dims[d] < 0 && !expr_const(access->indices[d], &constant)) return false;
        for (int other = 0; other < d; other++)
            if (dims[d] >= 0 && dims[other] == dims[d])
                return false;   // v[i, i]: no thread-value layout has the diagonal
    }
    return true;
}

static bool is_memory(const Buf *buf) {
    return buf->scope == SCOPE_GLOBAL || buf->scope == SCOPE_SHARED;
}

// Elements that the access touches: indices of a gather are read once a row.
static int64_t touched(const TileLoop *loop, const TileAccess *access) {
    int64_t count = 1;
    for (int i = 0; i < loop->rank; i++) {
        bool moves = false;
        for (int d = 0; d < access->count; d++) moves |= expr_uses_var(access->indices[d], loop->iters[i]);
        if (moves) count *= loop->extents[i];
    }
    return count;
}

int loop_fast_dim(const TileLoop *loop, const TileAccessVec *accesses) {
    int fast = loop->rank - 1;
    int64_t most = 0;
    for (int i = loop->rank - 1; i >= 0; i--) {
        int64_t bytes = 0;
        for (int a = 0; a < accesses->count; a++) {
            const TileAccess *access = &accesses->items[a];
            if (access->buf->scope == SCOPE_GLOBAL && run_stride(access, loop->iters[i]) == STRIDE_UNIT)
                bytes += touched(loop, access) * type_bytes(access->buf->type) * (access->is_store ? 2 : 1);
        }
        if (bytes > most) most = bytes, fast = i;
    }
    return fast;
}

// As many elements of the access as one instruction takes, of a vector of the loop.
static int64_t taken_at_once(const TileAccess *access, int64_t vector, const Target *target) {
    int64_t most = target->vector_bytes / type_bytes(access->buf->type);
    return vector < most ? vector : most;
}

static bool aligned_for(const Facts *facts, const TileLoop *loop, const TileAccess *access, int fast, int64_t vector) {
    Arena *arena = facts_arena(facts);
    const Buf *buf = access->buf;
    if (buf->scope == SCOPE_GLOBAL && !prove_aligned(facts, buf, vector * type_bytes(buf->type))) return false;
    for (int d = 0; d < access->count; d++) {
        Expr *index = access->indices[d];
        if (d == access->count - 1) index = run_start(arena, access, loop->iters[fast]);
        Expr *stride = buf->scope == SCOPE_GLOBAL ? global_stride(arena, buf, d) : NULL;
        if (!stride) {
            stride = e_int(arena, 1);
            for (int i = d + 1; i < buf->rank; i++) stride = e_mul(arena, stride, buf->shape[i]);
        }
        Expr *offset = simplify_expr(arena, facts, e_mul(arena, index, stride));
        if (multiple_of(facts, offset) % vector != 0) return false;
    }
    return true;
}

// The bytes of the widest elements that move along `fast`. Global ones that the loop comes back to do not count where others are
// new each time: they are in a cache, and two instructions for a vector of them are as good as one.
static int widest_type(const TileLoop *loop, const TileAccessVec *accesses, int fast) {
    int64_t points = 1;
    for (int i = 0; i < loop->rank; i++) points *= loop->extents[i];
    int widest = 0, widest_new = 0;
    for (int a = 0; a < accesses->count; a++) {
        const TileAccess *access = &accesses->items[a];
        if (!is_memory(access->buf) || run_stride(access, loop->iters[fast]) != STRIDE_UNIT) continue;
        if (comes_back(loop, accesses, access->buf, fast)) continue;
        int bytes = type_bytes(access->buf->type);
        bool again = access->buf->scope == SCOPE_GLOBAL && !access->is_store && touched(loop, access) < points;
        widest = bytes > widest ? bytes : widest;
        if (!again) widest_new = bytes > widest_new ? bytes : widest_new;
    }
    return widest_new > 0 ? widest_new : widest;
}

static bool is_used_elsewhere(const TileAccessVec *accesses, const TileAccess *access) {
    for (int a = 0; a < accesses->count; a++)
        if (&accesses->items[a] != access && accesses->items[a].buf == access->buf) return true;
    return false;
}

int64_t loop_atomics(const TileLoop *loop, const TileAccessVec *accesses, int fast, const Target *target,
                     const char **why) {
    int64_t most = target->vector_bytes;
    for (int a = 0; a < accesses->count; a++) {
        const TileAccess *access = &accesses->items[a];
        const Buf *buf = access->buf;
        if (!access->is_atomic || buf->scope != SCOPE_GLOBAL || run_stride(access, loop->iters[fast]) != STRIDE_UNIT)
            continue;
        int64_t elements = access->adds ? red_elements(target, type_text(buf->type)) : 1;
        if (elements == 1) return *why = "the target has no instruction for vectors of them", 1;
        if (!access_in_runs(loop, access, fast)) return *why = "it is asked of each element whether it is added", 1;
        if (is_used_elsewhere(accesses, access)) return *why = "the loop uses the tensor elsewhere too", 1;
        most = elements < most ? elements : most;
    }
    return most;
}

int64_t loop_vector(const Facts *facts, const TileLoop *loop, const TileAccessVec *accesses, int fast,
                    const Target *target) {
    int widest = widest_type(loop, accesses, fast);
    const char *why;
    int64_t vector = widest > 0 ? target->vector_bytes / widest : 1,
            atomics = loop_atomics(loop, accesses, fast, target, &why);
    vector = vector < atomics ? vector : atomics;
    while (vector > 1 && loop->extents[fast] % vector != 0) vector /= 2;
    for (int a = 0; a < accesses->count; a++) {
        const TileAccess *access = &accesses->items[a];
        if (!is_memory(access->buf)) continue;
        if (access->is_atomic && (!access->adds || access->buf->scope != SCOPE_GLOBAL)) continue;
        if (run_stride(access, loop->iters[fast]) != STRIDE_UNIT) continue;
        int64_t n = pieces(access, loop->iters[fast]);
        while (n > 0 && vector > n) vector /= 2;
        int64_t same = condition_run(access->condition, loop->iters[fast]);
        while (same > 1 && vector > same) vector /= 2;
        while (vector > 1 && !aligned_for(facts, loop, access, fast, taken_at_once(access, vector, target)))
            vector /= 2;
    }
    return vector < 1 ? 1 : vector;
}

bool loop_has_transposed_side(const TileLoop *loop, const TileAccessVec *accesses, int fast) {
    for (int a = 0; a < accesses->count; a++)
        if (accesses->items[a].buf->scope == SCOPE_SHARED &&
            run_stride(&accesses->items[a], loop->iters[fast]) == STRIDE_OTHER)
            return true;
    return false;
}

// ---- bounds ----

Expr *access_guard(Arena *arena, const Facts *facts, const Buf *buf, int count, Expr *const *indices) {
    Expr *guard = NULL;
    for (int d = 0; d < count; d++) {
        Expr *index = simplify_expr(arena, facts, indices[d]);
        Expr *tests[2] = {e_binary(arena, BIN_GE, index, e_int(arena, 0)), e_lt(arena, index, buf->shape[d])};
        for (int i = 0; i < 2; i++) {
            if (prove(facts, tests[i])) continue;
            guard = guard ? e_and(arena, guard, tests[i]) : tests[i];
        }
    }
    return guard;
}
