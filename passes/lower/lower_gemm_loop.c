// A loop over tiles that waits for its copies first and ends with a gemm on the tensor cores, for one thread.
//
// The fragments of the next k step are loaded while the current one is multiplied, also across iterations, so that the
// tensor cores idle neither at the barrier nor after a burst of copies:
//
//     if (0 < steps) { wait; barrier; load(tile 0, step 0) }
//     for (k in steps) unroll (kk in 4) {
//         if (kk < 3) {
//             load(tile k, step kk + 1);
//             a third of the copies of a later tile; after the last third their commit;
//         }
//         multiply(step kk, upper rows);
//         if (kk == 3) { wait; barrier; load(tile min(k + 1, steps - 1), step 0) }
//         multiply(step kk, lower rows);
//     }
//
// Two sets of operand registers alternate. At the wait and the barrier as many groups are committed as at the top of
// the next iteration, and the last load of tile k is over, so they order the same accesses as before. There are MMAs on
// both sides, so a waiting warp has some in flight.
//
// Branches would separate the copies and loads from the MMAs that hide them, so there are none: the last iteration
// loads its own tile again, and `if (k + 2 < steps) copy` becomes a copy with nothing valid, which reads nothing and
// writes zeros to the slot. These zeros are never read, but that memory may be used again: insert-sync counts with them
// (sync_model.c) and places the wait.
#include "ir/build.h"
#include "ir/rewrite.h"
#include "passes/analysis/util.h"
#include "passes/layout/fragment.h"
#include "passes/lower/lower_gemm.h"
#include "support/numbers.h"
#include <string.h>

static bool is_wait(const Stmt *stmt) {
    return is_call(stmt, OP_CP_ASYNC_WAIT) || is_call(stmt, OP_BARRIER) || is_call(stmt, OP_AWAIT);
}

static int leading_waits(const Block *body) {
    int waits = 0;
    while (waits < body->count && is_wait(body->items[waits]) && !is_call(body->items[waits], OP_AWAIT)) waits++;
    return waits;
}

static bool only_starts_copies(const Stmt *stmt) {
    if (stmt->kind == STMT_IF) {
        FOR_EACH_ITEM (inner, &stmt->if_.then)
            if (!only_starts_copies(inner)) return false;
        return stmt->if_.otherwise.count == 0;
    }
    if (stmt->kind == STMT_FOR) return is_loop(stmt, LOOP_PARALLEL) && via_of(stmt) && !via_is(stmt, VIA_TMA);
    return is_call(stmt, OP_CP_ASYNC_COMMIT) || (is_call(stmt, OP_COPY) && stmt->call.is_async);
}

bool may_be_gemm_loop(const Target *target, const Stmt *loop) {
    const Block *body = &loop->loop.body;
    GemmOp gemm;
    if (!is_loop(loop, LOOP_SERIAL) || loop->loop.count != 1 || body->count < 2) return false;
    if (!expr_is_int(loop->loop.iters[0].begin, 0) || !expr_is_int(loop->loop.iters[0].step, 1)) return false;
    const Stmt *last = vec_last(body);
    if (!match_gemm(last, &gemm) || !gemm_instruction(target, last)) return false;
    bool alternates = region_extent(gemm.a, 1) / gemm_step(target, last) % 2 == 0;   // of the sets of registers
    if (gemm.accumulate || !alternates || !matrix_load_possible(target, last, GEMM_A) ||
        !matrix_load_possible(target, last, GEMM_B))
        return false;
    for (int i = 0; i < body->count - 1; i++)
        if (!is_wait(body->items[i]) && !only_starts_copies(body->items[i])) return false;
    return true;
}

bool is_gemm_loop(const Target *target, const Stmt *loop) {
    const Block *body = &loop->loop.body;
    int waits = leading_waits(body);
    for (int i = waits; i < body->count - 1; i++)
        if (!only_starts_copies(body->items[i])) return false;
    return waits > 0 && may_be_gemm_loop(target, loop);
}

// ---- fragments across iterations ----

// The waits from the top of the loop, then the first fragments of tile `tile`.
static void enter_tile(Gemm *gemm, const Stmt *loop, Expr *tile, Block *out) {
    Arena *arena = gemm->arena;
    const Block *body = &loop->loop.body;
    Subst *subst = subst_new(arena);
    subst_var(subst, loop->loop.iters[0].var, tile);
    for (int i = 0; i < leading_waits(body); i++) block_push(arena, out, clone_stmt(arena, NULL, body->items[i]));
    Gemm at = *gemm;
    at.stmt = clone_stmt(arena, subst, gemm->stmt);
    at.operands[GEMM_A].region = gemm_of(at.stmt).a;
    at.operands[GEMM_B].region = gemm_of(at.stmt).b;
    at.set = e_int(arena, 0);
    gemm_load(&at, e_int(arena, 0), out);
}

static Expr *next_tile(Arena *arena, const Iter *iter) {
    Expr *last = e_sub(arena, iter->end, e_int(arena, 1));
    return e_min(arena, e_plus(arena, e_var(arena, iter->var), 1), last);
}

// ---- copies without branches, in pieces ----

typedef struct Copies {
    Gemm *gemm;
    const Stmt *loop;
    Block spread;        // unrolled loops of copies
    Block first, last;   // other statements before and after the copies
} Copies;

static bool only_cp_async(const Block *block) {
    FOR_EACH_STMT (stmt, block)
        if (stmt->kind != STMT_FOR && stmt->kind != STMT_LET && !is_call(stmt, OP_CP_ASYNC)) return false;
    return true;
}

// Where the condition is false the copies are of iterations that do not exist, into their slots: nothing reads these
// any more. It is not so where the condition selects iterations (`if (k <= 0) copy(.., As[1])`), or every other one.
static bool reaches_loop_end(const Copies *copies, const Expr *condition, const Block *block) {
    Facts *facts = copies->gemm->lower->facts;
    bool reaches = true;
    int mark = facts_mark(facts);
    facts_assume(facts, condition, false);
    FOR_EACH_STMT (stmt, block) {
        if (!is_call(stmt, OP_CP_ASYNC)) continue;
        const Expr *slot = ARG(stmt, CP_ASYNC, dst).region->dims[0].start;
        reaches = reaches && is_binary(slot, BIN_MOD) &&
                  prove(facts, e_ge(copies->gemm->arena, slot->binary.a, copies->loop->loop.iters[0].end));
    }
    facts_release(facts, mark);
    return reaches;
}

static Expr *where(Arena *arena, Expr *condition, Expr *valid) {
    Expr *zero = e_int(arena, 0);
    if (valid->kind != EXPR_SELECT || !expr_is_int(valid->select.no, 0)) return e_select(arena, condition, valid, zero);
    return e_select(arena, e_and(arena, condition, valid->select.condition), valid->select.yes, zero);
}

// Makes copies have nothing valid if the condition is false.
static void mask_copies(Arena *arena, Expr *condition, Block *block) {
    FOR_EACH_STMT_MUT (stmt, block) {
        if (!is_call(stmt, OP_CP_ASYNC)) continue;
        CP_ASYNC_Operands copy;
        call_operands(stmt, &copy);
        Expr *valid = where(arena, condition, copy.valid ? copy.valid : copy.n);
        call_set_arg(arena, stmt, OPERAND_INDEX(CP_ASYNC, valid), arg_value(valid));
    }
}

static bool is_unrolled(const Stmt *stmt) {
    if (!is_loop(stmt, LOOP_UNROLL) || stmt->loop.count != 1) return false;
    const Iter *iter = &stmt->loop.iters[0];
    return expr_is_int(iter->begin, 0) && expr_is_int(iter->step, 1) && iter_count(iter) >= 0;
}

// Sorts the lowered copies of one iteration: spread (masked, or unconditional), first, last.
static void sort_copies(Copies *copies, Block *block) {
    Arena *arena = copies->gemm->arena;
    FOR_EACH_ITEM (stmt, block) {
        bool masks = stmt->kind == STMT_IF && stmt->if_.otherwise.count == 0 && only_cp_async(&stmt->if_.then) &&
                     reaches_loop_end(copies, stmt->if_.condition, &stmt->if_.then);
        if (masks) {
            mask_copies(arena, stmt->if_.condition, &stmt->if_.then);
            sort_copies(copies, &stmt->if_.then);
        } else if (is_call(stmt, OP_CP_ASYNC_COMMIT)) {
            block_push(arena, &copies->last, stmt);
        } else if (is_unrolled(stmt) && only_cp_async(&stmt->loop.body)) {
            block_push(arena, &copies->spread, stmt);
        } else {
            block_push(arena, &copies->first, stmt);
        }
    }
}

static int64_t copies_count(const Copies *copies) {
    int64_t count = 0;
    FOR_EACH_ITEM (loop, &copies->spread) count += iter_count(&loop->loop.iters[0]);
    return count;
}

// Copies from .. to, numbered through all loops.
static void push_copies(const Copies *copies, int64_t from, int64_t to, Block *out) {
    Arena *arena = copies->gemm->arena;
    int64_t begin = 0;
    FOR_EACH_ITEM (loop, &copies->spread) {
        int64_t count = iter_count(&loop->loop.iters[0]);
        int64_t low = larger(from - begin, 0), high = smaller(to - begin, count);
        begin += count;
        if (low >= high) continue;
        Stmt *piece = clone_stmt(arena, NULL, loop);
        piece->loop.iters[0].begin = e_int(arena, low);
        piece->loop.iters[0].end = e_int(arena, high);
        block_push(arena, out, piece);
    }
}

static Block *at_step(Gemm *gemm, Expr *kk, int64_t step, Block *out) {
    return block_if(gemm->arena, out, e_eq(gemm->arena, kk, e_int(gemm->arena, step)));
}

// Distributes the copies over all steps but the last; the commit follows the last piece.
static void interleave_copies(const Copies *copies, Expr *kk, Block *out) {
    Gemm *gemm = copies->gemm;
    int64_t pieces = gemm->k_steps - 1, count = copies_count(copies);
    for (int64_t p = 0; p < pieces; p++) {
        Block piece = {0};
        if (p == 0) block_append(gemm->arena, &piece, &copies->first);
        push_copies(copies, count * p / pieces, count * (p + 1) / pieces, &piece);
        if (p == pieces - 1) block_append(gemm->arena, &piece, &copies->last);
        if (piece.count > 0) block_append(gemm->arena, at_step(gemm, kk, p, out), &piece);
    }
}

// ---- the loop ----

static void next_fragments(Gemm *gemm, Expr *kk, Block *out) {
    Arena *arena = gemm->arena;
    Expr *next = e_plus(arena, kk, 1), *within = e_lt(arena, next, e_int(arena, gemm->k_steps));
    Gemm at = *gemm;
    int mark = facts_mark(gemm->lower->facts);
    facts_assume(gemm->lower->facts, within, true);
    at.set = e_rem(arena, next, 2);
    gemm_load(&at, next, block_if(arena, out, within));
    facts_release(gemm->lower->facts, mark);
}

static void push_steps(Gemm *gemm, const Stmt *loop, const Copies *copies, Block *out) {
    int64_t rows = gemm->operands[GEMM_A].tiles;
    // Step 0 of the next tile is loaded to set 0 in the last step, which uses the other one.
    EXPECT(gemm->lower->context->failure, gemm->k_steps > 0 && gemm->k_steps % 2 == 0,
           "%lld steps with two sets of registers", (long long)gemm->k_steps);
    Expr *kk;
    Block *body = gemm_counted(gemm, LOOP_UNROLL, "kk", gemm->k_steps, &kk, out);
    next_fragments(gemm, kk, body);
    interleave_copies(copies, kk, body);
    gemm->set = e_rem(gemm->arena, kk, 2);
    gemm_convert(gemm, body);
    gemm_multiply(gemm, kk, 0, rows / 2, body);
    Expr *tile = next_tile(gemm->arena, &loop->loop.iters[0]);
    enter_tile(gemm, loop, tile, at_step(gemm, kk, gemm->k_steps - 1, body));
    gemm_multiply(gemm, kk, rows / 2, rows, body);
}

void lower_gemm_loop(Lower *lower, Stmt *loop, Block *out) {
    Arena *arena = lower->arena;
    Block *body = &loop->loop.body, lowered = {0}, steps = {0}, *block = block_nested(arena, out, (Span){0});
    Gemm gemm = gemm_new(lower, vec_last(body));
    int mark = facts_mark(lower->facts);
    gemm_begin(&gemm, 2, block);
    Expr *zero = e_int(arena, 0), *runs = e_lt(arena, zero, loop->loop.iters[0].end);
    enter_tile(&gemm, loop, zero, block_if(arena, block, runs));
    facts_iter(lower->facts, &loop->loop.iters[0]);
    for (int i = leading_waits(body); i < body->count - 1; i++) lower_stmt(lower, body->items[i], &lowered);
    Copies copies = {.gemm = &gemm, .loop = loop};
    sort_copies(&copies, &lowered);
    push_steps(&gemm, loop, &copies, &steps);
    *body = steps;
    block_push(arena, block, loop);
    facts_release(lower->facts, mark);
}
