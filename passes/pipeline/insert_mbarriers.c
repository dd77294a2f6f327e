// insert-mbarriers: copies by TMA outside of roles get the mbarrier that their bytes complete on.
//
// One thread starts a copy, all threads wait for its tile. Copies that always stand together share a barrier a slot:
//
//     shared full: mbarrier[3];   var phases: i32 = 0;
//     mbarrier_init(full[s], 1) ...; fence_mbarrier_init(); barrier();
//     for (p in 2) if (p < steps) {                            prologue (software-pipeline)
//         mbarrier_expect(full[p % 3], 24576);
//         async copy(A.., As[p % 3, :, :], bar = full[p % 3]);
//         async copy(B.., Bs[p % 3, :, :], bar = full[p % 3]);
//     }
//     for (k in steps) {
//         mbarrier_wait(full[k % 3], phases >> k % 3 & 1);     in the place of await(As[k % 3]); await(Bs[k % 3])
//         phases = phases ^ 1 << k % 3;
//         if (k + 2 < steps) { expect, the copies of k + 2 }
//         work on slot k % 3
//     }
//
// Each wait ends one phase of its slot, and the bit of the slot in `phases` is the parity of the next: that is right
// however often and with whatever trips the loop is entered, also in persistent CTAs. A copy that is
// not started early is waited for before the first statement that touches its tile.
//
// That all threads have left a slot before one of them starts the next copy into it, and that what threads wrote there
// before is fenced, insert-sync sees to.
#include "passes/analysis/util.h"
#include "passes/select/bulk.h"
#include "passes/select/tma.h"
#include "passes/select/tma_reduce.h"
#include <string.h>

// Tiles that are always copied together.
typedef struct Arrival {
    VEC(Buf *) tiles;
    VEC(int) runs;   // in which they are
    Buf *full;
    Var *phases;   // NULL: there is one wait
    int64_t slots, bytes;
    bool repeats;
} Arrival;

typedef struct Waits {
    PassContext *context;
    Arena *arena;
    VEC(Arrival *) arrivals;
    Map *by_tile;   // Buf -> Arrival
    int runs;
    bool published;   // lower-channels has mbarriers, whose fence and barrier are for these, too
} Waits;

static bool is_load(const Stmt *stmt) {
    return (via_is(stmt, VIA_TMA) || by_bulk(stmt)) && is_global_to_shared_copy(stmt) && !copy_of(stmt).bar;
}

static Buf *tile_of(const Stmt *copy) {
    return copy_of(copy).dst->buf;
}

static Expr *slot_of(Waits *w, const Region *tile) {
    return tile->buf->stage_dims ? tile->dims[0].start : e_int(w->arena, 0);
}

// ---- which copies stand together ----

// The end of the run of copies into one slot, of different tiles, that begins at `at`.
static int run_end(Waits *w, const Block *block, int at) {
    Expr *slot = slot_of(w, copy_of(block->items[at]).dst);
    int end = at + 1;
    for (int i = at + 1; i < block->count; i++) {
        const Stmt *stmt = block->items[i];
        if (stmt->kind == STMT_ASSUME || (stmt->kind == STMT_LET && !expr_reads_memory(stmt->let.value))) continue;
        if (!is_load(stmt) || !expr_equal(slot, slot_of(w, copy_of(stmt).dst))) break;
        if (stmt->call.is_async != block->items[at]->call.is_async) break;
        for (int before = at; before < i; before++)
            if (is_load(block->items[before]) && tile_of(block->items[before]) == tile_of(stmt)) return end;
        end = i + 1;
    }
    return end;
}

static void join(Waits *w, Buf *tile, bool repeats) {
    Arrival *arrival = map_get(w->by_tile, tile);
    if (!arrival) {
        arrival = NEW(w->arena, Arrival);
        vec_push(w->arena, &arrival->tiles, tile);
        vec_push(w->arena, &w->arrivals, arrival);
        map_put(w->by_tile, tile, arrival);
    }
    vec_push(w->arena, &arrival->runs, w->runs);
    arrival->repeats |= repeats || arrival->runs.count > 1;
}

static void find_runs(Waits *w, const Block *block, bool repeats) {
    for (int i = 0; i < block->count; i++) {
        Stmt *stmt = block->items[i];
        bool loop = stmt->kind == STMT_FOR || stmt->kind == STMT_WHILE;
        FOR_EACH_BODY (body, stmt) find_runs(w, body, repeats || loop);
        if (!is_load(stmt)) continue;
        int end = run_end(w, block, i);
        for (; i < end; i++)
            if (is_load(block->items[i])) join(w, tile_of(block->items[i]), repeats);
        i--;
        w->runs++;
    }
}

static bool same_runs(const Arrival *a, const Arrival *b) {
    if (a->runs.count != b->runs.count) return false;
    return memcmp(a->runs.items, b->runs.items, sizeof *a->runs.items * (size_t)a->runs.count) == 0;
}

static void group_tiles(Waits *w) {
    int kept = 0;
    for (int i = 0; i < w->arrivals.count; i++) {
        Arrival *arrival = w->arrivals.items[i], *with = NULL;
        Buf *tile = arrival->tiles.items[0];
        for (int j = 0; j < kept && !with; j++) {
            Arrival *other = w->arrivals.items[j];
            if (same_runs(arrival, other) && buf_slots(tile) == buf_slots(other->tiles.items[0])) with = other;
        }
        if (!with) w->arrivals.items[kept++] = with = arrival;
        else vec_push(w->arena, &with->tiles, tile);
        map_put(w->by_tile, tile, with);
        with->slots = buf_slots(tile);
        with->bytes += buf_slot_bytes(tile);
    }
    w->arrivals.count = kept;
}

// ---- statements ----

static Arg barrier_at(Waits *w, const Arrival *arrival, Expr *slot) {
    EXPECT(w->context->failure, arrival && arrival->full && arrival->bytes > 0, "a copy completes on no mbarrier");
    return arg_element(w->arena, arrival->full, slot);
}

static Stmt *with_barrier(Waits *w, Stmt *copy, const Arrival *arrival) {
    call_set_arg(w->arena, copy, OPERAND_INDEX(COPY, bar), barrier_at(w, arrival, slot_of(w, copy_of(copy).dst)));
    copy->call.is_async = true;
    return copy;
}

static void push_wait(Waits *w, const Arrival *arrival, Expr *slot, Span loc, Block *out) {
    Arena *a = w->arena;
    Expr *one = e_int_of(a, TYPE_I32, 1), *parity = e_int_of(a, TYPE_I32, 0), *bit = one;
    if (arrival->phases && arrival->slots > 1) {
        EXPECT(w->context->failure, arrival->slots < type_bits(TYPE_I32), "%lld phases in 32 bits",
               (long long)arrival->slots);
        Expr *at = e_cast(a, TYPE_I32, slot);
        parity = e_binary(a, BIN_AND, e_binary(a, BIN_SHR, e_var(a, arrival->phases), at), one);
        bit = e_binary(a, BIN_SHL, one, at);
    } else if (arrival->phases) parity = e_var(a, arrival->phases);
    BLOCK_CALL(a, out, loc, OP_MBARRIER_WAIT, barrier_at(w, arrival, slot), arg_value(parity));
    if (!arrival->phases) return;
    Stmt *next = s_assign(a, arrival->phases, e_xor(a, e_var(a, arrival->phases), bit));
    next->loc = loc;
    block_push(a, out, next);
}

// ---- blocks ----

static bool touches(Waits *w, const Stmt *stmt, const Arrival *arrival) {
    VEC_EACH_PTR (Buf, tile, &arrival->tiles)
        if (stmt_touches(w->arena, stmt, tile)) return true;
    return false;
}

// The first statement from `from` on that touches what has arrived or may leave the block; where none does, `from`: the
// wait comes at once.
static int wait_place(Waits *w, const Block *block, int from, const Arrival *arrival) {
    for (int i = from; i < block->count; i++)
        if (touches(w, block->items[i], arrival) || stmt_breaks(block->items[i])) return i;
    return from;
}

typedef struct Due {
    const Arrival *arrival;
    Expr *slot;
    int at;   // before this statement
    Span loc;
} Due;
typedef VEC(Due) Dues;

static void push_dues(Waits *w, const Dues *dues, int at, Block *out) {
    VEC_EACH (const Due, due, dues)
        if (due->at == at) push_wait(w, due->arrival, due->slot, due->loc, out);
}

static void push_run(Waits *w, const Block *block, int from, int end, Dues *dues, Block *out) {
    Map *expected = map_new(w->arena);
    for (int i = from; i < end; i++) {
        Stmt *stmt = block->items[i];
        if (i > from) push_dues(w, dues, i, out);   // of an earlier run
        if (!is_load(stmt)) {
            block_push(w->arena, out, stmt);
            continue;
        }
        Arrival *arrival = map_get(w->by_tile, tile_of(stmt));
        Expr *slot = slot_of(w, copy_of(stmt).dst);
        if (!map_has(expected, arrival)) {
            BLOCK_CALL(w->arena, out, stmt->loc, OP_MBARRIER_EXPECT, barrier_at(w, arrival, slot),
                       arg_int(w->arena, arrival->bytes));
            map_put(expected, arrival, arrival);
            Due due = {arrival, slot, wait_place(w, block, end, arrival), stmt->loc};
            if (!stmt->call.is_async) vec_push(w->arena, dues, due);
        }
        block_push(w->arena, out, with_barrier(w, stmt, arrival));
    }
}

static Arrival *awaited(Waits *w, const Stmt *stmt) {
    return is_call(stmt, OP_AWAIT) ? map_get(w->by_tile, await_of(stmt).x->region->buf) : NULL;
}

// The awaits of an arrival's tiles stand together; the first one waits for all.
static bool is_first_await(Waits *w, const Block *block, int at, const Arrival *arrival) {
    for (int i = at - 1; i >= 0 && awaited(w, block->items[i]); i--)
        if (awaited(w, block->items[i]) == arrival) return false;
    return true;
}

static void rewrite(Waits *w, Block *block) {
    Block out = {0};
    Dues dues = {0};
    for (int i = 0; i < block->count; i++) {
        Stmt *stmt = block->items[i];
        push_dues(w, &dues, i, &out);
        FOR_EACH_BODY (body, stmt) rewrite(w, body);
        Arrival *arrival = awaited(w, stmt);
        if (arrival) {
            if (is_first_await(w, block, i, arrival))
                push_wait(w, arrival, slot_of(w, await_of(stmt).x->region), stmt->loc, &out);
        } else if (is_load(stmt)) {
            int end = run_end(w, block, i);
            push_run(w, block, i, end, &dues, &out);
            i = end - 1;
        } else {
            block_push(w->arena, &out, stmt);
        }
    }
    push_dues(w, &dues, block->count, &out);
    *block = out;
}

// ---- the kernel ----

static void declare(Waits *w, Span loc, Block *out) {
    Arena *a = w->arena;
    VEC_EACH_PTR (Arrival, arrival, &w->arrivals) {
        arrival->full = buf_new_const(a, "full", SCOPE_SHARED, TYPE_MBARRIER, 1, &arrival->slots, loc);
        block_push(a, out, s_decl(a, arrival->full));
        if (arrival->repeats) arrival->phases = var_new(a, "phases", VAR_MUTABLE, TYPE_I32, loc);
    }
}

static void set_up(Waits *w, Span loc, Block *out) {
    Arena *a = w->arena;
    VEC_EACH_PTR (Arrival, arrival, &w->arrivals) {
        for (int64_t s = 0; s < arrival->slots; s++)
            BLOCK_CALL(a, out, loc, OP_MBARRIER_INIT, barrier_at(w, arrival, e_int(a, s)), arg_int(a, 1));
    }
    if (!w->published) block_publish_mbarriers(a, out, false, loc);
    VEC_EACH_PTR (Arrival, arrival, &w->arrivals)
        if (arrival->phases) block_push(a, out, s_var(a, arrival->phases, e_int_of(a, TYPE_I32, 0)));
}

static bool is_store(const Stmt *stmt, void *user) {
    (void)user;
    return (via_is(stmt, VIA_TMA) && is_addition(stmt)) ||
           ((via_is(stmt, VIA_TMA) || by_bulk(stmt)) && is_shared_to_global_copy(stmt));
}

static bool waits_last(const Block *body) {
    return body->count > 0 && is_call(vec_last(body), OP_BULK_WAIT);
}

static bool is_published(const Block *body) {
    FOR_EACH_ITEM (stmt, body)
        if (stmt->kind != STMT_DECL && !is_call(stmt, OP_MBARRIER_INIT)) return is_call(stmt, OP_FENCE_MBARRIER_INIT);
    return false;
}

static void add_barriers(Waits *w, Stmt *grid) {
    Block setup = {0}, *body = &grid->grid.body;
    int at = 0;
    group_tiles(w);
    w->published = is_published(body);
    declare(w, grid->loc, &setup);
    set_up(w, grid->loc, &setup);
    rewrite(w, body);
    FOR_EACH_ITEM (stmt, &setup) block_insert(w->arena, body, at++, stmt);
}

bool pass_insert_mbarriers(PassContext *context, Func *kernel) {
    Stmt *grid = (Stmt *)func_grid(kernel);
    Waits w = {.context = context, .arena = context->arena, .by_tile = map_new(context->arena)};
    if (!grid) return false;
    bool staged = stage_additions(context, kernel);
    if (func_has_roles(kernel)) return staged;
    find_runs(&w, &grid->grid.body, false);
    bool stores = block_any(&grid->grid.body, is_store, NULL);
    if (w.arrivals.count > 0) add_barriers(&w, grid);
    bool last = stores && !waits_last(&grid->grid.body);
    if (last)   // shared memory outlives the stores that read it
        push_store_wait(w.arena, grid->loc, &grid->grid.body);
    return w.arrivals.count > 0 || last || staged;
}
