#include "passes/select/tma_reduce.h"
#include "passes/analysis/kernel_walk.h"
#include "passes/analysis/util.h"
#include "passes/select/bulk.h"
#include "passes/select/tma.h"
#include "passes/select/tma_simple.h"

// ---- the loop ----

typedef struct Body {
    Stmt *atomic;
    const Expr *condition;   // NULL: none
    Subst *lets;             // pure ones before it
} Body;

static bool body_of(const Stmt *stmt, Body *body) {
    if (!is_loop(stmt, LOOP_PARALLEL)) return false;
    const Block *block = &stmt->loop.body;
    while (block->count > 0) {
        Stmt *last = vec_last(block);
        for (int i = 0; i + 1 < block->count; i++) {
            const Stmt *let = block->items[i];
            if (let->kind != STMT_LET || !expr_is_pure(let->let.value)) return false;
            if (body->lets && !subst_let(body->lets, let->let.var, let->let.value)) return false;
        }
        if (is_call(last, OP_ATOMIC_ADD)) {
            body->atomic = last;
            return ARG(last, ATOMIC_ADD, x).region->buf->scope == SCOPE_GLOBAL;
        }
        if (last->kind != STMT_IF || last->if_.otherwise.count > 0 || body->condition) return false;
        body->condition = last->if_.condition;
        if (body->lets) body->condition = subst_expr(body->lets, last->if_.condition);
        block = &last->if_.then;
    }
    return false;
}

bool is_addition(const Stmt *stmt) {
    Body body = {0};
    return body_of(stmt, &body);
}

static bool has_plain_iters(const Stmt *loop) {
    int64_t end;
    for (int i = 0; i < loop->loop.count; i++) {
        const Iter *iter = &loop->loop.iters[i];
        if (!iter_is_plain(iter) || !expr_const(iter->end, &end) || end < 1) return false;
    }
    return true;
}

enum { NO_ITERATOR = -1 };

// Index `at` of the element is the tile's begin *start, plus the loop's iterator `own`, or NO_ITERATOR.
static bool starts_at(Arena *arena, const Stmt *loop, Expr *at, int own, Expr **start) {
    Subst *first = subst_new(arena);
    for (int i = 0; i < loop->loop.count; i++) {
        int64_t coefficient;
        if (!linear_in(at, loop->loop.iters[i].var, &coefficient) || coefficient != (i == own)) return false;
        subst_var(first, loop->loop.iters[i].var, e_int(arena, 0));
    }
    if (!expr_is_stable(at)) return false;
    *start = simplify_expr(arena, NULL, subst_expr(first, at));
    return true;
}

// The condition only says that the element is within the tensor, which TMA checks too.
static bool is_inside(const Expr *condition, const Buf *tensor, Expr *const *at) {
    if (condition->kind != EXPR_BINARY) return false;
    const Expr *a = condition->binary.a, *b = condition->binary.b;
    if (condition->binary.op == BIN_LOGICAL_AND) return is_inside(a, tensor, at) && is_inside(b, tensor, at);
    for (int d = 0; d < tensor->rank && condition->binary.op == BIN_LT; d++)
        if (expr_equal(a, at[d]) && expr_equal(b, tensor->shape[d])) return true;
    return false;
}

// The whole tile in shared memory that `value` reads at the loop's indices; NULL: `value` is something else.
static Region *shared_tile(Arena *arena, const Stmt *loop, const Expr *value) {
    if (value->kind != EXPR_LOAD || value->load.buf->scope != SCOPE_SHARED) return NULL;
    Buf *buf = value->load.buf;
    if (buf->rank - buf->stage_dims != loop->loop.count) return NULL;
    Region *tile = region_whole(arena, buf);
    for (int d = 0; d < buf->rank; d++) {
        const Expr *at = value->load.indices[d];
        int own = d - buf->stage_dims;
        if (own < 0) {
            Expr *slot;
            if (!starts_at(arena, loop, (Expr *)at, NO_ITERATOR, &slot)) return NULL;
            tile->dims[d] = (RegionDim){.start = slot};
            continue;
        }
        const Iter *iter = &loop->loop.iters[own];
        int64_t end;
        if (at->kind != EXPR_VAR || at->var != iter->var || !expr_const(iter->end, &end)) return NULL;
        if (end != buf_extent(buf, d)) return NULL;
    }
    return tile;
}

// Evaluation may fail where the condition is false: a memory access, a division.
static bool is_risky(const Expr *expr, const void *what) {
    (void)what;
    bool divides = expr->kind == EXPR_BINARY && (expr->binary.op == BIN_DIV || expr->binary.op == BIN_MOD) &&
                   type_is_int(expr->type);
    bool reads = expr->kind == EXPR_LOAD && expr->load.buf->scope != SCOPE_FRAGMENT;
    return divides || reads || expr->kind == EXPR_CALL;
}

static Region *new_tile(Arena *arena, const Stmt *loop, Type type) {
    int64_t shape[LAYOUT_MAX_RANK];
    for (int i = 0; i < loop->loop.count; i++) expr_const(loop->loop.iters[i].end, &shape[i]);
    return region_whole(arena, buf_new_const(arena, "stage", SCOPE_SHARED, type, loop->loop.count, shape, loop->loc));
}

// The tile of the tensor that the loop adds to: its dims, each with one iterator in the loop's order, and the element's
// indices `at`.
static bool tile_added_to(Arena *arena, const Stmt *loop, const Body *body, RegionDim *dims, Expr **at) {
    const Region *element = ARG(body->atomic, ATOMIC_ADD, x).region;
    int own = 0;
    for (int d = 0; d < element->buf->rank; d++) {
        at[d] = subst_expr(body->lets, element->dims[d].start);
        if (starts_at(arena, loop, at[d], NO_ITERATOR, &dims[d].start)) continue;
        if (own == loop->loop.count || !starts_at(arena, loop, at[d], own, &dims[d].start)) return false;
        dims[d].extent = loop->loop.iters[own++].end;
        expr_const(dims[d].extent, &dims[d].tile);
    }
    return own == loop->loop.count;
}

const char *tma_reduce_problem(Arena *arena, const Stmt *stmt, TmaReduce *out) {
    Body body = {.lets = subst_new(arena)};
    if (!body_of(stmt, &body)) return "its loop has other statements than one addition to a tensor";
    Buf *tensor = ARG(body.atomic, ATOMIC_ADD, x).region->buf;
    RegionDim dims[LAYOUT_MAX_RANK] = {0};
    Expr *at[LAYOUT_MAX_RANK];
    if (tensor->rank < stmt->loop.count || stmt->loop.count > LAYOUT_MAX_RANK || !has_plain_iters(stmt) ||
        !tile_added_to(arena, stmt, &body, dims, at))
        return "TMA adds tiles of dims of the tensor";
    if (body.condition && !is_inside(body.condition, tensor, at)) return "the addition has a condition";
    Expr *value = e_cast(arena, tensor->type, subst_expr(body.lets, ARG(body.atomic, ATOMIC_ADD, v).value));
    if (!expr_is_pure(value)) return "the added value has side effects";
    Region *from = shared_tile(arena, stmt, value);
    if (!from && body.condition && any_expr(value, is_risky, NULL))   // not evaluated where nothing is added
        value = e_select(arena, (Expr *)body.condition, value, e_zero(arena, value->type));
    Arg args[] = {arg_region(from ? from : new_tile(arena, stmt, tensor->type)),
                  arg_region(region_new(arena, tensor, dims, false, stmt->loc))};
    Stmt *copy = s_call(arena, OP_COPY, COUNT_OF(args), args);
    copy->loc = stmt->loc;
    *out = (TmaReduce){.copy = copy, .value = from ? NULL : value, .atomic = body.atomic};
    return NULL;
}

// The statement is an addition by TMA of a value that must first be staged in shared memory.
static bool tma_adds_staged(Arena *arena, const Stmt *stmt, TmaReduce *out) {
    return via_is(stmt, VIA_TMA) && is_addition(stmt) && !tma_reduce_problem(arena, stmt, out) && out->value;
}

Stmt *tma_copy(Arena *arena, Stmt *stmt) {
    TmaReduce tile;
    if (!by_bulk(stmt) && !via_is(stmt, VIA_TMA)) return NULL;
    if (stmt->kind == STMT_CALL) return is_global_to_shared_copy(stmt) || is_shared_to_global_copy(stmt) ? stmt : NULL;
    return is_addition(stmt) && !tma_reduce_problem(arena, stmt, &tile) && !tile.value ? tile.copy : NULL;
}

static Buf *stage_of(const TmaReduce *tile) {
    return copy_of(tile->copy).src->buf;
}

static int64_t whole_bytes(const TmaReduce *tile) {   // with alignment
    return buf_slot_bytes(stage_of(tile)) + tma_facts.shared_align;
}

// ---- legality and cost ----

// (A fence or release makes earlier additions visible to others, but does not wait for those of TMA.)
const char *tma_reduce_target_problem(const Target *target, const Func *kernel, const KernelUses *uses,
                                      const TmaReduce *tile) {
    const char *why = tma_store_problem(target, tile->copy);
    if (why) return why;
    if (!type_can_be_added(copy_of(tile->copy).dst->buf->type)) return "TMA does not add this type";
    if (func_calls(kernel, OP_FENCE) || func_calls(kernel, OP_STORE))
        return "a fence or release follows, which does not order TMA";
    return block_add_problem(uses, tile->copy, !tile->value);
}

// TMA is as fast as vector additions of threads with many elements, and faster if each thread adds single elements or
// pairs, as of an accumulator (measured: docs/notebook/hopper.md).
const char *tma_reduce_cost(const Target *target, const Func *kernel, const TmaReduce *tile) {
    int64_t least = kernel_threads(kernel) * target->vector_bytes;   // a vector per thread
    return buf_slot_bytes(stage_of(tile)) < least ? "each thread adds too few elements to gain from TMA" : NULL;
}

// ---- staging ----

typedef struct Staging {
    PassContext *context;
    Arena *arena;
    int64_t room;      // unused shared memory
    const Stmt *in;    // the current role; NULL: none
    int64_t members;   // groups with its text, each with tiles of its own
    bool tight;        // no space for whole tiles of all roles
    bool changed;
} Staging;

// Waits until TMA no longer reads the tile, in the threads that started the additions; the barrier synchronizes the
// others.
static void push_tile_wait(Staging *staging, int64_t pending, Span loc, Block *out) {
    Arena *arena = staging->arena;
    BLOCK_CALL(arena, out, loc, OP_BULK_WAIT, arg_int(arena, pending), arg_name("read"));
    block_barrier(arena, out, loc);
}

// Orders writes of threads to a shared tile before TMA reads it.
static void push_tile_fence(Staging *staging, Span loc, Block *out) {
    block_call(staging->arena, out, loc, OP_FENCE_ASYNC, 0, NULL);
    block_barrier(staging->arena, out, loc);
}

static bool is_repeated(const Staging *staging, const Stmt *stmt) {
    EXPECT(staging->context->failure, staging->in, "repetition is asked for outside of roles");
    FOR_EACH_STMT (loop, &staging->in->role.body) {
        bool repeats = loop->kind == STMT_FOR || loop->kind == STMT_WHILE;
        if (repeats && stmt_contains(loop, stmt)) return true;
    }
    return false;
}

// The addition of the stage's elements stage[slot.., i, j] to the tile from `first` on: a loop like `stmt`.
static Stmt *new_addition(Staging *staging, Stmt *stmt, const TmaReduce *tile, Buf *stage, Expr *slot,
                          const int64_t *first) {
    Arena *arena = staging->arena;
    const Region *to = copy_of(tile->copy).dst;
    int slots = stage->stage_dims;
    EXPECT(staging->context->failure,
           slots <= 1 && stage->rank == slots + stmt->loop.count && stage->rank <= LAYOUT_MAX_RANK,
           "the stage of %d loops has rank %d", stmt->loop.count, stage->rank);
    Expr *at[LAYOUT_MAX_RANK] = {slot}, *place[LAYOUT_MAX_RANK];
    Stmt addition = *stmt;
    addition.loop.iters = arena_copy(arena, stmt->loop.iters, sizeof *stmt->loop.iters * (size_t)stmt->loop.count);
    for (int i = 0; i < stmt->loop.count; i++) {
        at[slots + i] = e_var(arena, stmt->loop.iters[i].var);
        addition.loop.iters[i].end = e_int(arena, buf_extent(stage, slots + i));
    }
    for (int d = 0, own = 0; d < to->count; d++) {
        place[d] = to->dims[d].start;
        if (!to->dims[d].extent) continue;
        place[d] = e_add(arena, place[d], e_add(arena, at[slots + own], e_int(arena, first ? first[own] : 0)));
        own++;
    }
    addition.loop.body = (Block){0};
    BLOCK_CALL(arena, &addition.loop.body, tile->atomic->loc, OP_ATOMIC_ADD,
               arg_region(region_element(arena, to->buf, to->count, place)),
               arg_value(e_load(arena, stage, stage->rank, at)));
    return clone_stmt(arena, subst_new(arena), &addition);
}

// ---- staging in boxes ----
//
// An accumulator of a role is staged in two boxes, of the rows that its warpgroups have per instruction and of a
// swizzle span of columns: one is written while TMA reads the other. The loops run over the whole tile, in the order of
// the registers; the elements of a box are known when the loops are unrolled.

static bool is_accumulator_of(const Block *role, const Buf *fragment) {
    FOR_EACH_STMT (stmt, role)
        if (is_call(stmt, OP_GEMM) && via_is(stmt, VIA_WGMMA) && gemm_of(stmt).acc->buf == fragment) return true;
    return false;
}

typedef struct Source {
    const Stmt *loop;
    const Block *role;
} Source;

static bool is_fragment_load(const Expr *expr) {
    return expr->kind == EXPR_LOAD && expr->load.buf->scope == SCOPE_FRAGMENT;
}

// An element of an accumulator, at the loop's own indices.
static bool is_sum(const Expr *expr, const void *what) {
    const Source *source = what;
    return is_fragment_load(expr) && is_loop_element(source->loop, expr->load.count, expr->load.indices) &&
           is_accumulator_of(source->role, expr->load.buf);
}

static bool is_other_fragment(const Expr *expr, const void *source) {
    return is_fragment_load(expr) && !is_sum(expr, source);
}

typedef struct ReduceBoxes {
    int64_t rows, columns;   // per box
    int64_t strips, chunks;
} ReduceBoxes;

static bool boxes_of(const Staging *staging, const Stmt *stmt, const TmaReduce *tile, ReduceBoxes *out) {
    const Buf *stage = stage_of(tile);
    const Source source = {.loop = stmt, .role = &staging->in->role.body};
    if (stmt->loop.count != 2 || !any_expr(tile->value, is_sum, &source)) return false;
    if (any_expr(tile->value, is_other_fragment, &source)) return false;
    int64_t m = buf_extent(stage, 0), n = buf_extent(stage, 1);
    int64_t rows = staging->in->role.threads / target_warpgroup(staging->context->target) * WGMMA_ROWS;
    int64_t columns = tma_facts.spans[0] * 8 / type_bits(stage->type);
    if (rows < 1 || m % rows || n % columns) return false;
    *out = (ReduceBoxes){rows, columns, m / rows, n / columns};
    return out->strips * out->chunks > TMA_STORE_SLOTS;
}

static int64_t box_bytes(const ReduceBoxes *boxes, Type type) {
    return TMA_STORE_SLOTS * boxes->rows * boxes->columns * type_bytes(type) + tma_facts.shared_align;
}

// if (i / rows == strip && j / columns == chunk) stage[slot, i - strip * rows, j - chunk * columns] = value;
static Stmt *new_box_store(Staging *staging, Stmt *stmt, const TmaReduce *tile, const ReduceBoxes *boxes, Buf *stage,
                           int64_t box) {
    Arena *a = staging->arena;
    Expr *i = e_var(a, stmt->loop.iters[0].var), *j = e_var(a, stmt->loop.iters[1].var), *inside = NULL;
    int64_t strip = box / boxes->chunks, chunk = box % boxes->chunks;
    if (boxes->strips > 1) inside = e_eq(a, e_over(a, i, boxes->rows), e_int(a, strip));
    if (boxes->chunks > 1) inside = e_both(a, inside, e_eq(a, e_over(a, j, boxes->columns), e_int(a, chunk)));
    Expr *at[] = {e_int(a, box % TMA_STORE_SLOTS), e_sub(a, i, e_int(a, strip * boxes->rows)),
                  e_sub(a, j, e_int(a, chunk * boxes->columns))};
    Stmt loop = *stmt, *only = s_if(a, inside), *store = s_store(a, stage, COUNT_OF(at), at, tile->value);
    only->loc = store->loc = tile->atomic->loc;
    block_push(a, &only->if_.then, store);
    loop.loop.body = (Block){0};
    block_push(a, &loop.loop.body, only);
    Stmt *out = clone_stmt(a, subst_new(a), &loop);
    via_set(staging->arena, out, VIA_NONE);
    return out;
}

// Additions that may still be reading when a box is written: those since the last use of its slot, in this tile or the
// previous one.
static int64_t pending_at(int64_t boxes, int64_t box) {
    int64_t since = 0;
    while ((box + boxes - 1 - since) % boxes % TMA_STORE_SLOTS != box % TMA_STORE_SLOTS) since++;
    return since;
}

static void stage_in_boxes(Staging *staging, Stmt *stmt, const TmaReduce *tile, const ReduceBoxes *boxes, Block *out) {
    Arena *arena = staging->arena;
    int64_t shape[] = {TMA_STORE_SLOTS, boxes->rows, boxes->columns}, count = boxes->strips * boxes->chunks;
    Type type = stage_of(tile)->type;
    Buf *stage = buf_new_const(arena, "stage", SCOPE_SHARED, type, COUNT_OF(shape), shape, stmt->loc);
    stage->stage_dims = 1;
    bool again = is_repeated(staging, stmt);
    block_push(arena, out, s_decl(arena, stage));
    for (int64_t box = 0; box < count; box++) {
        int64_t first[] = {box / boxes->chunks * boxes->rows, box % boxes->chunks * boxes->columns};
        if (again || box >= TMA_STORE_SLOTS) push_tile_wait(staging, pending_at(count, box), stmt->loc, out);
        block_push(arena, out, new_box_store(staging, stmt, tile, boxes, stage, box));
        push_tile_fence(staging, stmt->loc, out);
        block_push(arena, out, new_addition(staging, stmt, tile, stage, e_int(arena, box % TMA_STORE_SLOTS), first));
    }
}

// ---- the pass ----

// stage[i, j] = value; then the addition of stage. (insert-sync adds waits, fences and barriers.)
static void stage_addition(Staging *staging, Stmt *stmt, const TmaReduce *tile, Block *out) {
    Arena *arena = staging->arena;
    Buf *stage = stage_of(tile);
    Expr *at[LAYOUT_MAX_RANK];
    for (int i = 0; i < stmt->loop.count; i++) at[i] = e_var(arena, stmt->loop.iters[i].var);
    Stmt *addition = new_addition(staging, stmt, tile, stage, NULL, NULL);
    Stmt *store = s_store(arena, stage, stmt->loop.count, at, tile->value);
    store->loc = tile->atomic->loc;
    block_push(arena, out, s_decl(arena, stage));
    block_push(arena, out, stmt);
    block_push(arena, out, addition);
    via_set(staging->arena, stmt, VIA_NONE);
    stmt->loop.body = (Block){0};
    block_push(arena, &stmt->loop.body, store);
}

static void stage_stmt(StmtMapper *mapper, Stmt *stmt, Block *out) {
    Staging *staging = mapper->user;
    TmaReduce tile;
    if (!tma_adds_staged(staging->arena, stmt, &tile)) {
        block_push(mapper->arena, out, stmt);
        return;
    }
    staging->changed = true;
    ReduceBoxes boxes;
    bool in_boxes = staging->tight && staging->in && boxes_of(staging, stmt, &tile, &boxes);
    int64_t bytes = in_boxes ? box_bytes(&boxes, stage_of(&tile)->type) : whole_bytes(&tile);
    bytes *= staging->members;
    if (bytes <= staging->room) {
        staging->room -= bytes;
        if (in_boxes) stage_in_boxes(staging, stmt, &tile, &boxes, out);
        else stage_addition(staging, stmt, &tile, out);
        return;
    }
    REMARK(staging->context, stmt->loc, T_NOT_ADDED,
           "shared memory has no space for its tile: use smaller tiles or fewer stages");
    via_set(staging->arena, stmt, VIA_NONE);
    block_push(mapper->arena, out, stmt);
}

static bool adds_tile(Arena *arena, Stmt *role) {
    FOR_EACH_STMT_MUT (stmt, &role->role.body)
        if (is_addition(stmt) && tma_copy(arena, stmt)) return true;
    return false;
}

// For a role. Shared memory must outlive the additions that read it.
static void stage_in_role(Staging *staging, Stmt *role) {
    bool changed = staging->changed,
         waits = role->role.body.count > 0 && is_call(vec_last(&role->role.body), OP_BULK_WAIT);
    StmtMapper mapper = {.arena = staging->arena, .stmt = stage_stmt, .user = staging};
    staging->in = role;
    staging->members = role_members(role);
    staging->changed = false;
    rewrite_block(&mapper, &role->role.body);
    if (!waits && adds_tile(staging->arena, role)) {
        push_store_wait(staging->arena, role->loc, &role->role.body);
        staging->changed = true;
    }
    staging->changed |= changed;
    staging->in = NULL;
    staging->members = 1;
}

// Takes shared memory that is declared from the room. Returns what whole tiles of all additions would take.
static int64_t count_bytes(Staging *staging, const Block *block, int64_t members) {
    int64_t wholes = 0;
    FOR_EACH_ITEM (stmt, block) {
        TmaReduce tile;
        if (stmt->kind == STMT_DECL && stmt->decl->scope == SCOPE_SHARED)
            staging->room -= members * (buf_slots(stmt->decl) * buf_slot_bytes(stmt->decl) + tma_facts.shared_align);
        if (tma_adds_staged(staging->arena, stmt, &tile)) wholes += members * whole_bytes(&tile);
        else
            FOR_EACH_BODY (body, stmt)
                wholes += count_bytes(staging, body, stmt->kind == STMT_ROLE ? role_members(stmt) : members);
    }
    return wholes;
}

bool stage_additions(PassContext *context, Func *kernel) {
    Staging staging = {
        .context = context, .arena = context->arena, .room = context->target->shared_block, .members = 1};
    staging.tight = count_bytes(&staging, &kernel->body, 1) > staging.room;
    StmtMapper mapper = {.arena = context->arena, .stmt = stage_stmt, .user = &staging};
    FOR_EACH_ITEM (stmt, &func_grid(kernel)->grid.body)
        if (stmt->kind == STMT_ROLE) stage_in_role(&staging, stmt);
    rewrite_block(&mapper, &kernel->body);   // statements outside of roles
    return staging.changed;
}
