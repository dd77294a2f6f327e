// merge-fragments: fragments that only hand elements on.
//
// (1) What one loop computes for another of the same elements is a name in it; sums contract (simplify), and there are no
//     registers for the fragment:
//
//     parallel (i in 128, j in 64) e[i, j] = s[i, j] * c;      parallel (i in 128, j in 64) {
//     parallel (i in 128, j in 64)                         =>      let e = s[i, j] * c;
//         s[i, j] = exp2(e[i, j] - top[i]);                        s[i, j] = exp2(e - top[i]);
//                                                              }
//
// (2) A fragment whose first values come from the last ones of another, element by element, has that one's registers:
//
//     parallel (i in 128, j in 64) e[i, j] = exp2(s[i, j]);    parallel (i in 128, j in 64) s[i, j] = exp2(s[i, j]);
//     reduce_sum(e, sum, axis = 1, accumulate = true);     =>  reduce_sum(s, sum, axis = 1, accumulate = true);
//     copy(e, p);                                              copy(s, p);
//
// Which tiles fit, and in which groups of threads, depends on the registers of all fragments; so this comes before all
// that asks. Kernels with roles or channels stay as they are written; so do those with a layout that the source gives, and
// fragments of fewer than 32 bits: where layouts meet, such a one is the cheapest to convert.
#include "ir/build.h"
#include "ir/match.h"
#include "ir/query.h"
#include "ir/rewrite.h"
#include "passes/analysis/live_ranges.h"
#include "passes/analysis/util.h"
#include "passes/tile/tile.h"

// ---- loops over elements ----

// A fragment that the passes may have or leave out.
static bool is_free(const Buf *buf) {
    return buf->scope == SCOPE_FRAGMENT && type_bits(buf->type) >= 32 && !buf->layout && !buf->given &&
           !buf->alias_of && !buf->attrs;
}

static bool runs_over(const Stmt *loop, const Buf *buf) {
    if (!is_loop(loop, LOOP_PARALLEL) || loop->attrs || loop->loop.count != buf->rank) return false;
    for (int d = 0; d < buf->rank; d++) {
        const Iter *iter = &loop->loop.iters[d];
        if (!iter_is_plain(iter) || !expr_equal(iter->end, buf->shape[d])) return false;
    }
    return true;
}

// `parallel { lets; e[i, j] = ..; }` over all elements of e, in whose body nothing has an effect: the store. NULL: it is
// something else.
static Stmt *defining_store(const Stmt *loop) {
    if (!is_loop(loop, LOOP_PARALLEL) || loop->loop.body.count == 0) return NULL;
    const Block *body = &loop->loop.body;
    Stmt *store = body->items[body->count - 1];
    if (store->kind != STMT_STORE || !runs_over(loop, store->store.buf)) return NULL;
    Buf *buf = store->store.buf;
    if (!is_free(buf) || !is_loop_element(loop, store->store.count, store->store.indices)) return NULL;
    for (int i = 0; i < body->count; i++) {
        const Stmt *stmt = body->items[i];
        if (stmt != store && stmt->kind != STMT_LET) return NULL;
        const Expr *value = stmt == store ? store->store.value : stmt->let.value;
        if (!expr_is_pure(value) || expr_uses_buf(value, buf)) return NULL;
    }
    return store;
}

typedef struct Elements {
    const Stmt *loop;
    const Buf *buf;
    bool own;   // all that the loop accesses of the buffer are elements of the iterations
} Elements;

static bool check_load(Visitor *visitor, Expr *expr) {
    Elements *e = visitor->user;
    if (expr->kind == EXPR_LOAD && expr->load.buf == e->buf)
        e->own &= is_loop_element(e->loop, expr->load.count, expr->load.indices);
    return true;
}

static void check_region(Visitor *visitor, Region *region, const Operand *operand) {
    (void)operand;
    Elements *e = visitor->user;
    e->own &= region->buf != e->buf;
}

static bool check_store(Visitor *visitor, Stmt *stmt) {
    Elements *e = visitor->user;
    if (stmt->kind == STMT_STORE && stmt->store.buf == e->buf)
        e->own &= is_loop_element(e->loop, stmt->store.count, stmt->store.indices);
    return true;
}

static bool only_own_elements(const Stmt *loop, const Buf *buf) {
    Elements e = {loop, buf, runs_over(loop, buf)};
    Visitor visitor = {.expr = check_load, .stmt = check_store, .region = check_region, .user = &e};
    visit_block(&visitor, (Block *)&loop->loop.body);
    return e.own;
}

static void drop_decl(StmtMapper *mapper, Stmt *stmt, Block *out) {
    if (stmt->kind != STMT_DECL || stmt->decl != mapper->user) block_push(mapper->arena, out, stmt);
}

void undeclare(Arena *arena, Func *kernel, Buf *buf) {
    rewrite_block(&(StmtMapper){.arena = arena, .stmt = drop_decl, .user = buf}, &kernel->body);
}

// ---- (1) from one loop to another, and within one ----

typedef struct Named {
    const Buf *buf;
    Var *value;
} Named;

static Expr *named_value(Mapper *mapper, Expr *expr) {
    const Named *named = mapper->user;
    return expr->kind == EXPR_LOAD && expr->load.buf == named->buf ? e_var(mapper->arena, named->value) : NULL;
}

// `e[i, j] = ..;` of a fragment that nothing else than the loop uses, and of the loop only what comes behind.
static bool can_name(Arena *arena, const Func *kernel, const Stmt *loop, int at) {
    const Block *body = &loop->loop.body;
    const Stmt *store = body->items[at];
    if (store->kind != STMT_STORE || !is_free(store->store.buf) || !expr_is_pure(store->store.value)) return false;
    const Buf *buf = store->store.buf;
    if (store->store.value->type != buf->type || expr_uses_buf(store->store.value, buf)) return false;
    if (!only_own_elements(loop, buf) || uses_of(arena, kernel, buf) != 1) return false;
    for (int i = 0; i < body->count; i++)
        if (i < at ? stmt_touches(arena, body->items[i], buf) : i > at && stmt_writes(arena, body->items[i], buf))
            return false;
    return true;
}

static bool name_values(Arena *arena, Func *kernel) {
    FOR_EACH_STMT_MUT (loop, &kernel->body) {
        Block *body = &loop->loop.body;
        for (int i = 0; is_loop(loop, LOOP_PARALLEL) && i < body->count; i++) {
            if (!can_name(arena, kernel, loop, i)) continue;
            const Stmt *store = body->items[i];
            Buf *buf = store->store.buf;
            Named named = {buf, var_new(arena, buf->name, VAR_LET, buf->type, store->loc)};
            body->items[i] = s_let(arena, named.value, store->store.value);
            map_block(&(Mapper){.arena = arena, .replace = named_value, .user = &named}, body);
            undeclare(arena, kernel, buf);
            return true;
        }
    }
    return false;
}

static bool is_name(const Stmt *stmt) {
    return stmt->kind == STMT_LET || stmt->kind == STMT_DECL;
}

// The statement changes nothing that the loop reads, but for its own elements where it is a loop of the same elements.
static bool leaves_operands(Arena *arena, const Stmt *loop, const Stmt *stmt, bool same) {
    FOR_EACH_EFFECT (effect, arena, stmt) {
        if (effect->access == ACCESS_READ || !stmt_touches(arena, loop, effect->buf)) continue;
        bool own = same && effect->buf->scope == SCOPE_FRAGMENT && only_own_elements(loop, effect->buf) &&
                   only_own_elements(stmt, effect->buf);
        if (!own) return false;
    }
    return true;
}

// The one statement behind the loop that uses the fragment, a loop of the same elements; -1: another thing uses it.
static int reader_of(Arena *arena, const Func *kernel, const Block *block, int at, const Buf *buf) {
    int reader = -1;
    for (int i = at + 1; i < block->count && reader < 0; i++)
        if (block->items[i]->kind != STMT_DECL && stmt_touches(arena, block->items[i], buf)) reader = i;
    if (uses_of(arena, kernel, buf) != 2 || reader < 0 || !only_own_elements(block->items[reader], buf)) return -1;
    if (stmt_writes(arena, block->items[reader], buf)) return -1;
    for (int i = at + 1; i <= reader; i++) {
        const Stmt *stmt = block->items[i];
        if (i < reader && !is_name(stmt) && !is_loop(stmt, LOOP_PARALLEL) && !is_call(stmt, OP_FILL)) return -1;
        if (!leaves_operands(arena, block->items[at], stmt, i == reader)) return -1;
    }
    return reader;
}

// Before what the other loop does, for the same elements.
static void move_into(Arena *arena, const Stmt *from, Stmt *to) {
    Subst *subst = subst_new(arena);
    for (int d = 0; d < from->loop.count; d++)
        subst_var(subst, from->loop.iters[d].var, e_var(arena, to->loop.iters[d].var));
    Block body = {0};
    clone_block(arena, subst, &from->loop.body, &body);
    block_append(arena, &body, &to->loop.body);
    to->loop.body = body;
}

static bool hand_on(Arena *arena, Func *kernel, Block *block) {
    for (int i = 0; i < block->count; i++) {
        FOR_EACH_BODY (body, block->items[i])
            if (is_compound(block->items[i]) && hand_on(arena, kernel, body)) return true;
        Stmt *loop = block->items[i], *store = defining_store(loop);
        Buf *buf = store ? store->store.buf : NULL;
        if (!store || store->store.value->type != buf->type) continue;
        int reader = reader_of(arena, kernel, block, i, buf);
        if (reader < 0) continue;
        move_into(arena, loop, block->items[reader]);
        block_remove(block, i);
        return true;   // name_values finds it there
    }
    return false;
}

// ---- (2) the registers of another ----

static bool multiplies(const Func *kernel, const Buf *buf) {   // the layout of an operand is not that of a result
    FOR_EACH_STMT (stmt, &kernel->body) {
        GemmOp gemm;
        if (match_gemm(stmt, &gemm) && (gemm.a->buf == buf || gemm.b->buf == buf)) return true;
    }
    return false;
}

static bool same_elements(const Buf *a, const Buf *b) {
    bool same = a->type == b->type && a->rank == b->rank;
    for (int d = 0; d < a->rank && same; d++) same = expr_equal(a->shape[d], b->shape[d]);
    return same;
}

// A copy of all of a fragment to another one.
static bool is_renaming(const Stmt *stmt) {
    if (!is_call(stmt, OP_COPY) || stmt->attrs || stmt->call.is_async) return false;
    CopyOp copy = copy_of(stmt);
    return is_free(copy.src->buf) && is_free(copy.dst->buf) && region_is_whole(copy.src) && region_is_whole(copy.dst) &&
           copy.src->transposed == copy.dst->transposed;
}

// The statement has the last use of `from`, of the elements that it makes the first ones of `to` of.
static bool takes_over(Arena *arena, Func *kernel, const Block *block, int at, const Buf *from, const Buf *to) {
    const Stmt *stmt = block->items[at];
    if (from == to || !is_free(from) || !same_elements(from, to) || !stmt_touches(arena, stmt, from)) return false;
    if (!is_renaming(stmt) && !only_own_elements(stmt, from)) return false;
    if (multiplies(kernel, from) || multiplies(kernel, to)) return false;
    LiveRange before = live_range(arena, &kernel->body, from), behind = live_range(arena, &kernel->body, to);
    return before.block == block && behind.block == block && before.last == at && behind.first == at;
}

static bool take_over(Arena *arena, Func *kernel, Block *block) {
    for (int i = 0; i < block->count; i++) {
        FOR_EACH_BODY (body, block->items[i])
            if (is_compound(block->items[i]) && take_over(arena, kernel, body)) return true;
        Stmt *stmt = block->items[i], *store = defining_store(stmt);
        Buf *to = store ? store->store.buf : is_renaming(stmt) ? copy_of(stmt).dst->buf : NULL, *from = NULL;
        if (!to) continue;
        FOR_EACH_STMT (decl, &kernel->body)
            if (decl->kind == STMT_DECL && takes_over(arena, kernel, block, i, decl->decl, to)) from = decl->decl;
        if (!from) continue;
        if (!store) block_remove(block, i);
        undeclare(arena, kernel, to);
        Subst *subst = subst_new(arena);
        subst_buf(subst, to, from);
        subst_block(subst, &kernel->body);
        return true;
    }
    return false;
}

static bool gives_layouts(const Func *kernel) {
    FOR_EACH_STMT (stmt, &kernel->body)
        if (stmt->kind == STMT_DECL && stmt->decl->scope == SCOPE_FRAGMENT && stmt->decl->layout) return true;
    return false;
}

bool merge_fragments(Arena *arena, Func *kernel) {
    bool changed = false;
    if (!has_free_form(kernel)) return false;
    if (gives_layouts(kernel)) return false;
    while (name_values(arena, kernel) || hand_on(arena, kernel, &kernel->body) ||
           take_over(arena, kernel, &kernel->body))
        changed = true;
    return changed;
}

bool pass_merge_fragments(PassContext *context, Func *kernel) {
    return merge_fragments(context->arena, kernel);
}
