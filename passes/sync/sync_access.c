#include "layout/distribution.h"
#include "passes/lower/lower.h"
#include "passes/select/tma_reduce.h"
#include "passes/sync/sync.h"
#include <string.h>

bool is_leaf(const Stmt *stmt) {
    switch (stmt->kind) {
    case STMT_FOR: return stmt->loop.kind == LOOP_PARALLEL;
    case STMT_WHILE:
    case STMT_IF:
    case STMT_BLOCK:
    case STMT_GRID: return false;
    default: return true;
    }
}

static MemAccess *add(Arena *arena, MemAccessVec *out, const Stmt *stmt, Buf *buf, Who who, bool write) {
    MemAccess *access = NEW(arena, MemAccess);
    *access = (MemAccess){.stmt = stmt, .who = who, .write = write, .update = OP_COUNT, .rank = buf ? buf->rank : 0};
    access->buf = buf && buf->scope == SCOPE_GLOBAL ? buf_root(buf) : buf;   // tensors that may be one have one shape
    for (int d = 0; d < access->rank; d++) access->dims[d].length = -1;
    vec_push(arena, out, access);
    return access;
}

static void set_element(MemAccess *access, int count, Expr *const *indices) {
    for (int d = 0; d < count; d++) access->dims[d] = (BoxDim){.start = indices[d], .length = 1};
}

static void set_region(MemAccess *access, const Region *region) {
    for (int d = 0; d < region->count; d++) {
        const RegionDim *dim = &region->dims[d];
        access->dims[d] = (BoxDim){.start = dim->start, .length = dim->extent ? dim->tile : 1};
    }
}

// What comes to the same in any order.
static OpId update_of(OpId op) {
    return op_is(op, OP_CLASS_COMMUTES) ? op : OP_COUNT;
}

// ---- tile loops ----

// Variables that are declared in the body: they differ between iterations.
static Map *locals_of(Arena *arena, const Block *body) {
    Map *locals = map_new(arena);
    FOR_EACH_STMT (stmt, body) {
        bool binds = stmt->kind == STMT_LET || stmt->kind == STMT_VAR || stmt->kind == STMT_ASSIGN;
        if (binds) map_put(locals, stmt->let.var, stmt->let.var);
        Iter *iters;
        for (int i = 0, count = stmt_iters(stmt, &iters); i < count; i++) map_put(locals, iters[i].var, iters[i].var);
    }
    return locals;
}

// False: its box has no such length.
static bool add_reach(BoxDim *dim, int64_t reach) {
    if (reach > 0) return !__builtin_add_overflow(dim->length, reach, &dim->length);
    return !__builtin_sub_overflow(dim->length, reach, &dim->length) &&
           !__builtin_add_overflow(dim->low, reach, &dim->low);
}

// The box that an index sweeps as the loop's iterators run; unknown where it is not linear in them.
static BoxDim swept_dim(Arena *arena, const TileLoop *loop, const Map *locals, Expr *index) {
    BoxDim dim = {.length = 1};
    Subst *origin = subst_new(arena);
    if (expr_uses_any(index, locals)) return (BoxDim){.length = -1};
    for (int i = 0; i < loop->rank; i++) {
        if (!linear_in(index, loop->iters[i], &dim.factors[i])) return (BoxDim){.length = -1};
        int64_t reach;
        if (__builtin_mul_overflow(dim.factors[i], loop->extents[i] - 1, &reach) || !add_reach(&dim, reach))
            return (BoxDim){.length = -1};
        subst_var(origin, loop->iters[i], e_int(arena, 0));
    }
    dim.start = subst_expr(origin, index);
    return dim;
}

static void loop_accesses(Arena *arena, Stmt *stmt, const TileLoop *loop, MemAccessVec *out) {
    const Layout *map = moves_by_warps(stmt) ? NULL : stmt_layout(stmt);   // a row is another thread's
    const Map *locals = locals_of(arena, &loop->body);
    TileAccessVec accesses = {0};
    bool first_replica = !starts_copy(stmt) && !moves_by_warps(stmt);   // lowering guards all of it (lower_loop.c)
    tile_accesses(arena, loop, &accesses);
    VEC_EACH (const TileAccess, tile, &accesses) first_replica &= !tile->is_store || tile->buf->scope != SCOPE_FRAGMENT;
    VEC_EACH (const TileAccess, tile, &accesses) {
        if (!is_memory(tile->buf)) continue;
        MemAccess *access = add(arena, out, stmt, tile->buf, map ? WHO_MAPPED : WHO_ALL, tile->is_store);
        access->update = update_of(tile->update);
        access->flag = tile->is_atomic && !tile->is_peer;
        access->every = tile->is_store && !tile->is_atomic && !tile->condition && !tile->conditional;
        access->first_replica = first_replica || tile->is_store;
        access->async = starts_copy(stmt);
        access->elsewhere = tile->elsewhere;
        access->map = map;
        access->loop_rank = loop->rank;
        memcpy(access->extents, loop->extents, sizeof access->extents);
        for (int d = 0; d < tile->count; d++) access->dims[d] = swept_dim(arena, loop, locals, tile->indices[d]);
    }
}

// ---- other statements ----

typedef struct Collect {
    Arena *arena;
    MemAccessVec *out;
    const Stmt *stmt;
    OpId op;      // of the call whose operands come
    bool alone;   // it is a statement: its result is not used
    Who who;
    bool opaque;   // within a thread region or role: indices mean nothing here
} Collect;

static bool collect_expr(Visitor *visitor, Expr *expr) {
    Collect *c = visitor->user;
    if (expr->kind == EXPR_CALL) c->op = expr->call.op, c->alone = false;
    if (expr->kind != EXPR_LOAD || !is_memory(expr->load.buf)) return true;
    MemAccess *access = add(c->arena, c->out, c->stmt, expr->load.buf, WHO_ALL, false);
    if (!c->opaque) set_element(access, expr->load.count, expr->load.indices);
    return true;
}

static void collect_region(Visitor *visitor, Region *region, const Operand *operand) {
    Collect *c = visitor->user;
    if (!operand || operand->access == ACCESS_NAME || !is_memory(region->buf)) return;
    if (region == stmt_scratch(c->stmt)) return;   // scratch_accesses
    bool atomic = op_is(c->op, OP_CLASS_ELEMENT), write = operand->access != ACCESS_READ;
    bool single =
        atomic && write && !c->opaque;   // at block level; one thread does it and the others get the old value
    MemAccess *access = add(c->arena, c->out, c->stmt, region->buf, single ? WHO_ONE : c->who, write);
    if (c->alone) access->update = update_of(c->op);
    access->flag = atomic;
    access->elsewhere = c->op == OP_PEER_STORE;
    access->proxy = !write && via_is(c->stmt, VIA_WGMMA);
    if (!c->opaque) set_region(access, region);
}

static bool collect_stmt(Visitor *visitor, Stmt *stmt) {
    Collect *c = visitor->user;
    if (stmt->kind == STMT_CALL) c->op = stmt->call.op, c->alone = true;
    if (stmt->kind != STMT_STORE || !is_memory(stmt->store.buf)) return true;
    MemAccess *access = add(c->arena, c->out, c->stmt, stmt->store.buf, c->opaque ? WHO_ALL : WHO_ONE, true);
    if (!c->opaque) set_element(access, stmt->store.count, stmt->store.indices);
    return true;
}

bool orders_memory(const Stmt *stmt) {
    if (stmt->kind != STMT_CALL) return false;
    bool orders = stmt->call.op == OP_FENCE;
    for (const Arg *arg = stmt->call.args; arg < stmt->call.args + stmt->call.count; arg++)
        orders |= arg->name && !arg->is_string && !strcmp(arg->name, "release");
    return orders;
}

// A signal to other blocks (a fence, then an atomic; or a release) is one thread's: what the others did must come
// before it. One that they give is seen by one thread, at an acquire, which needs nothing more: the others wait for the
// value that it left in shared memory; or at an atomic, and known after that thread's fence, which therefore comes
// before what the others do. (PTX ISA, "Release and acquire patterns".)
static void order_accesses(Arena *arena, const Stmt *call, MemAccessVec *out) {
    if (orders_memory(call)) add(arena, out, call, NULL, WHO_ONE, true)->orders_later = call->call.op == OP_FENCE;
}

// Partial results of warps go through the scratch: all write, the statement's own barrier, all read.
static void scratch_accesses(Arena *arena, const Stmt *reduce, MemAccessVec *out) {
    const Region *scratch = stmt_scratch(reduce);
    if (!scratch) return;
    set_region(add(arena, out, reduce, scratch->buf, WHO_ALL, true), scratch);
    MemAccess *read = add(arena, out, reduce, scratch->buf, WHO_ALL, false);
    set_region(read, scratch);
    read->after_barrier = true;
}

// By expressions alone: indices of the operands.
static void index_accesses(Arena *arena, const Stmt *stmt, const Stmt *visited, MemAccessVec *out) {
    Collect c = {.arena = arena, .out = out, .stmt = stmt, .op = OP_COUNT, .who = WHO_ALL};
    visit_stmt(&(Visitor){.expr = collect_expr, .user = &c}, (Stmt *)visited);
}

_Static_assert(OPERAND_INDEX(MBARRIER_INIT, bar) == 0 && OPERAND_INDEX(MBARRIER_WAIT, bar) == 0 &&
                   OPERAND_INDEX(MBARRIER_ARRIVE, bar) == 0 && OPERAND_INDEX(MBARRIER_EXPECT, bar) == 0,
               "operations on an mbarrier have it first");

// What is done at an mbarrier needs no order but after its mbarrier_init, which one thread does.
static bool mbarrier_accesses(Arena *arena, const Stmt *call, MemAccessVec *out) {
    OpId op = call->call.op;
    bool first = op == OP_MBARRIER_INIT, waits = op == OP_MBARRIER_WAIT;
    if (!first && !waits && op != OP_MBARRIER_ARRIVE && op != OP_MBARRIER_EXPECT) return false;
    const Region *bar = call_region(call, 0);   // all of them have it first
    EXPECT(arena_failure(arena), bar && bar->buf->type == TYPE_MBARRIER, "'%s' has no mbarrier", op_info(op)->text);
    MemAccess *access = add(arena, out, call, bar->buf, waits ? WHO_ALL : WHO_ONE, true);
    set_region(access, bar);
    index_accesses(arena, call, call, out);
    if (!first) access->update = OP_MBARRIER_ARRIVE;
    return true;
}

// By the statement, and all below it unless `visited` is the statement alone.
static void visited_accesses(Arena *arena, const Stmt *stmt, Stmt *visited, MemAccessVec *out) {
    Collect c = {.arena = arena, .out = out, .stmt = stmt, .op = OP_COUNT, .who = WHO_ALL};
    if (stmt->kind == STMT_CALL && op_info(stmt->call.op)->stages & STAGE_BIT_THREAD) c.who = WHO_ONE;
    c.opaque = stmt->kind == STMT_THREAD || stmt->kind == STMT_ROLE || is_loop(stmt, LOOP_PARALLEL);
    visit_stmt(&(Visitor){.expr = collect_expr, .stmt = collect_stmt, .region = collect_region, .user = &c}, visited);
}

// What a copy to a clipped region reads to know where that ends.
static void clip_accesses(Arena *arena, const TileLoop *loop, MemAccessVec *out) {
    Collect c = {.arena = arena, .out = out, .stmt = loop->origin, .op = OP_COUNT, .who = WHO_ALL};
    if (loop->clip) visit_expr(&(Visitor){.expr = collect_expr, .user = &c}, loop->clip);
}

static void call_accesses(Arena *arena, Stmt *stmt, MemAccessVec *out) {
    AwaitOp await;
    order_accesses(arena, stmt, out);
    if (mbarrier_accesses(arena, stmt, out)) return;
    if (match_await(stmt, &await)) {
        const Region *x = await.x->region;
        if (!x || await.what->name || !is_memory(x->buf)) return;
        MemAccess *access = add(arena, out, stmt, x->buf, WHO_ALL, false);
        set_region(access, x);
        access->pseudo = true;
        return;
    }
    if (stmt->call.op == OP_CLUSTER_BARRIER) add(arena, out, stmt, NULL, WHO_ALL, true)->pseudo = true;
    visited_accesses(arena, stmt, stmt, out);
    scratch_accesses(arena, stmt, out);
}

// One thread starts it, also where it comes to the place of a tile by numbers in shared memory.
static void tma_accesses(Arena *arena, Stmt *stmt, const Stmt *copy, MemAccessVec *out) {
    CopyOp op = copy_of(copy);
    index_accesses(arena, stmt, copy, out);
    const Region *sides[] = {op.src, op.dst};
    for (int i = 0; i < COUNT_OF(sides); i++) {
        MemAccess *access = add(arena, out, stmt, sides[i]->buf, WHO_ONE, i == 1);
        set_region(access, sides[i]);
        if (access->write && copy != stmt) access->update = OP_ATOMIC_ADD;
        if (sides[i]->buf->scope != SCOPE_SHARED) continue;
        access->tma = access->async = true;
        access->bar = access->write ? op.bar : NULL;
    }
}

void stmt_accesses(Arena *arena, Stmt *stmt, MemAccessVec *out) {
    TileLoop loop;
    Stmt alone = stmt_alone(stmt);
    const Stmt *copy = tma_copy(arena, stmt);
    if (!is_leaf(stmt)) {
        visited_accesses(arena, stmt, &alone, out);
    } else if (copy) {
        tma_accesses(arena, stmt, copy, out);
    } else if (tile_loop_of(arena, stmt, &loop)) {
        loop_accesses(arena, stmt, &loop, out);
        clip_accesses(arena, &loop, out);
    } else if (stmt->kind == STMT_CALL) {
        call_accesses(arena, stmt, out);
    } else {
        visited_accesses(arena, stmt, stmt, out);
    }
}

// ---- storage ----

bool shared_range(const MemAccess *access, const Affine *start, int64_t *begin, int64_t *end) {
    const Buf *buf = access->buf, *root = buf_root(buf);
    if (root->scope != SCOPE_SHARED || root->offset < 0) return false;
    int64_t slots = 1, slot = 0, bytes = buf_slot_space(buf), at;
    bool known = true;
    for (int d = 0; d < buf->stage_dims; d++) {
        known = known && access->dims[d].length == 1 && affine_is_const(&start[d], &at);
        if (known) slot = slot * buf_extent(buf, d) + at;
        slots *= buf_extent(buf, d);
    }
    *begin = root->offset + (known ? slot * bytes : 0);
    *end = known ? *begin + bytes : root->offset + slots * bytes;
    return true;
}

// ---- threads ----

static bool same_walk(const MemAccess *a, const MemAccess *b) {
    if (a->loop_rank != b->loop_rank || !layout_equal(a->map, b->map)) return false;
    for (int i = 0; i < a->loop_rank; i++) {
        if (a->extents[i] != b->extents[i]) return false;
        for (int d = 0; d < a->rank; d++)
            if (a->dims[d].factors[i] != b->dims[d].factors[i]) return false;
    }
    return true;
}

// The elements that thread `t` accesses, as numbers in the box by `strides`; how many they are. `out` has room for all
// values of a thread.
static int64_t thread_elements(const MemAccess *access, const int64_t *strides, int64_t t, int64_t *out) {
    int64_t count = 0;
    for (int64_t v = 0; v < layout_extent_in(access->map, TV_VALUE); v++) {
        int64_t in[2] = {t, v}, at[LAYOUT_MAX_RANK], element = 0;
        bool inside = true;
        layout_eval(access->map, in, at);
        for (int i = 0; i < access->loop_rank; i++) inside &= at[i] < access->extents[i];
        for (int d = 0; d < access->rank; d++) {
            int64_t index = -access->dims[d].low;
            for (int i = 0; i < access->loop_rank; i++) index += access->dims[d].factors[i] * at[i];
            element += index * strides[d];
        }
        if (inside) out[count++] = element;
    }
    return count;
}

static int64_t *element_buffer(Arena *arena, const MemAccess *access) {
    EXPECT(arena_failure(arena), access->map && access->map->rank_out >= access->loop_rank,
           "the map of an access in %d loops", access->loop_rank);
    return NEW_ARRAY(arena, int64_t, layout_extent_in(access->map, TV_VALUE));
}

// Numbers of the elements of an access's box: strides by dim; their number.
static int64_t box_strides(const MemAccess *access, int64_t *strides) {
    int64_t size = 1;
    for (int d = access->rank - 1; d >= 0; d--) {
        strides[d] = size;
        size *= access->dims[d].length;
    }
    return size;
}

// Each thread accesses the same elements in both, thread by thread, so that a difference shows soon.
static bool same_owners(Arena *arena, const MemAccess *a, const MemAccess *b) {
    int64_t strides[LAYOUT_MAX_RANK], threads = layout_extent_in(a->map, TV_THREAD);
    EXPECT(arena_failure(arena), a->rank == b->rank, "accesses of ranks %d and %d", a->rank, b->rank);
    if (tv_replicas(a->map) != 1 || tv_replicas(b->map) != 1) return false;
    if (layout_extent_in(b->map, TV_THREAD) != threads) return false;
    for (int d = 0; d < a->rank; d++)
        if (a->dims[d].length != b->dims[d].length || a->dims[d].low != b->dims[d].low) return false;
    int64_t *marks = NEW_ARRAY(arena, int64_t, box_strides(a, strides));
    int64_t *in_a = element_buffer(arena, a), *in_b = element_buffer(arena, b);
    for (int64_t t = 0; t < threads; t++) {
        int64_t count = thread_elements(a, strides, t, in_a);
        if (thread_elements(b, strides, t, in_b) != count) return false;
        for (int64_t e = 0; e < count; e++) marks[in_a[e]] = t + 1;
        for (int64_t e = 0; e < count; e++)
            if (marks[in_b[e]] != t + 1) return false;
    }
    return true;
}

// No element is accessed by two threads.
static bool partial_elements(Arena *arena, const MemAccess *access) {
    int64_t strides[LAYOUT_MAX_RANK], *elements = element_buffer(arena, access);
    int64_t *marks = NEW_ARRAY(arena, int64_t, box_strides(access, strides));
    for (int64_t t = 0; t < layout_extent_in(access->map, TV_THREAD); t++) {
        int64_t count = thread_elements(access, strides, t, elements);
        for (int64_t e = 0; e < count; e++) {
            if (marks[elements[e]] && marks[elements[e]] != t + 1) return false;
            marks[elements[e]] = t + 1;
        }
    }
    return true;
}

bool same_threads(Arena *arena, const MemAccess *a, const MemAccess *b) {
    if (a->who == WHO_ONE && b->who == WHO_ONE) return true;
    if (a->who != WHO_MAPPED || b->who != WHO_MAPPED || a->buf != b->buf) return false;
    for (int d = 0; d < a->rank; d++)
        if (a->dims[d].length < 0 || b->dims[d].length < 0) return false;
    if (!a->every && !b->every && !partial_elements(arena, a)) return false;
    if (same_walk(a, b)) return (a->first_replica && b->first_replica) || tv_replicas(a->map) == 1;
    return same_owners(arena, a, b);
}
