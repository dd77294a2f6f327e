// Memory accesses of a group of consecutive elements: vector loads and stores, and started copies (cp_async).
#include "passes/lower/lower_loop.h"
#include <string.h>

// ---- vectors: memory is read before the body and written after it, in one access each ----
//
// Where it splits a group, its widest pieces are accesses. `alike`: all elements get one value, in any order.
static int64_t kept_run(const Buf *buf, int64_t vector, bool alike) {
    if (buf->scope != SCOPE_SHARED) return vector;
    int64_t tile = buf->stage_dims ? layout_size_out(buf->layout) : vector;
    while (vector > 1) {
        bool kept = alike ? layout_keeps_sets(buf->layout, vector) : layout_keeps_runs(buf->layout, vector);
        if (kept && tile % vector == 0) break;
        vector /= 2;
    }
    return vector;
}

// Elements of an access; 1: it is none of vectors, or loads of a peer, which stay calls until LLVM joins them.
static int64_t access_width(const Version *version, const TileAccess *access) {
    if (access->is_peer) return 1;
    bool possible = version->vector > 1 && (access->buf->scope == SCOPE_GLOBAL || access->buf->scope == SCOPE_SHARED) &&
                    access_in_vectors(version->loop, version->accesses, access, version->fast);
    return possible ? kept_run(access->buf, version->vector, is_call(version->loop->origin, OP_FILL)) : 1;
}

static bool is_vector_access(const Version *version, const TileAccess *access) {
    return access_width(version, access) > 1;
}

// The source's condition of the access, and that the group is within the tensor.
static Expr *group_guard(Version *version, const TileAccess *access) {
    Expr *condition = access->condition ? at_index(version, access->condition, version->first) : NULL;
    Expr **indices = access_at(version, access, version->first);
    return e_both(version->arena, condition, guard_of(version, access->buf, access->count, indices));
}

// Element e of the group's piece that begins with element `first`, in physical coordinates.
static Region *run_place(Version *version, const TileAccess *access, int64_t first, Expr *e) {
    Expr *at[LAYOUT_MAX_RANK];
    for (int d = 0; d < version->loop->rank; d++)
        at[d] = d == version->fast && first ? e_plus(version->arena, version->first[d], first) : version->first[d];
    Expr **indices = access_at(version, access, at);
    Region *place = lower_place(version->lower, access->buf, access->count, indices);
    RegionDim *last = &place->dims[place->count - 1];
    last->start = e_add(version->arena, last->start, e);
    return place;
}

static Buf *new_temporary(Version *version, const TileAccess *access, Block *out) {
    const char *name = arena_printf(version->arena, "%s_v", access->buf->name);
    return block_local(version->arena, out, name, access->buf->type, version->vector, version->loop->origin->loc);
}

static Block *element_loop(Version *version, LoopKind kind, int64_t count, Span loc, Expr **e, Block *out) {
    return lower_counted(version->lower, kind, "e", 0, count, loc, e, out);
}

// The group is inside of the tensor with its first and its last element, so with all.
static Expr *whole_group_guard(Version *version, const TileAccess *access) {
    Expr *at[LAYOUT_MAX_RANK], *guard = group_guard(version, access);
    if (guard_is_uniform(version, access)) return guard;
    memcpy(at, version->first, sizeof at);
    at[version->fast] = e_plus(version->arena, at[version->fast], version->vector - 1);
    Expr **last = access_at(version, access, at);
    return e_both(version->arena, guard, guard_of(version, access->buf, access->count, last));
}

// The guard of element e of a group that is not all inside. NULL: none of its elements is.
static Expr *element_guard(Version *version, const TileAccess *access, Expr *e) {
    Expr *at[LAYOUT_MAX_RANK];
    Expr *condition = access->condition ? at_index(version, access->condition, version->first) : NULL;
    if (guard_is_uniform(version, access)) return NULL;
    memcpy(at, version->first, sizeof at);
    at[version->fast] = e_add(version->arena, at[version->fast], e);
    return e_both(version->arena, condition,
                  guard_of(version, access->buf, access->count, access_at(version, access, at)));
}

static void load_elements(Version *version, const TileAccess *access, Buf *local, Block *out) {
    Arena *arena = version->arena;
    Expr *e, *zero = e_zero(arena, local->type);
    Block *body = element_loop(version, LOOP_UNROLL, version->vector, version->loop->origin->loc, &e, out);
    Expr *guard = element_guard(version, access, e);
    Expr *value = guard ? e_load_at(arena, run_place(version, access, 0, e)) : zero;
    block_store1(arena, body, local, e, guard ? e_select(arena, guard, value, zero) : value);
}

// Wherever the row starts: where the units that hold the tile lie in the tensor, as two of them, else element by element.
static void load_shifted(Version *version, const TileAccess *access, Buf *local, Block *out) {
    Arena *arena = version->arena;
    Facts *facts = version->lower->facts;
    Span loc = version->loop->origin->loc;
    Expr *condition = access->condition ? at_index(version, access->condition, version->first) : NULL, *e;
    if (version->inside && access == shifted_access(version)) {
        Expr **at = access_at(version, access, version->first);
        Expr *rows = e_both(arena, condition, access_guard(arena, facts, access->buf, access->count - 1, at));
        Region *place = lower_place(version->lower, access->buf, access->count, at);
        BLOCK_CALL(arena, out, loc, OP_ULOAD, arg_element(arena, local, e_int(arena, 0)), arg_region(place),
                   arg_int(arena, version->vector), arg_value(e_both(arena, version->padding, rows)));
        return;
    }
    Block *body = element_loop(version, LOOP_UNROLL, version->vector, loc, &e, out);
    Expr *at[LAYOUT_MAX_RANK], *zero = e_zero(arena, local->type);
    memcpy(at, version->first, sizeof at);
    at[version->fast] = e_add(arena, at[version->fast], e);
    Expr *guard =
        e_both(arena, condition, guard_of(version, access->buf, access->count, access_at(version, access, at)));
    Expr *value = e_load_at(arena, run_place(version, access, 0, e));
    block_store1(arena, body, local, e, guard ? e_select(arena, guard, value, zero) : value);
}

static void load_group(Version *version, const TileAccess *access, Block *out) {
    Arena *arena = version->arena;
    Span loc = version->loop->origin->loc;
    Buf *local = new_temporary(version, access, out);
    if (access_is_shifted(version->lower->facts, version->loop, access, version->fast)) {
        load_shifted(version, access, local, out);
        map_put(version->temporaries, access->load, local);
        return;
    }
    Expr *guard = whole_group_guard(version, access), *e;
    if (guard) {
        Stmt *choice = s_if(arena, guard);
        block_push(arena, out, choice);
        load_elements(version, access, local, &choice->if_.otherwise);
        out = &choice->if_.then;
    }
    int64_t width = access_width(version, access);
    for (int64_t first = 0; first < version->vector; first += width) {
        Block *body = element_loop(version, LOOP_VECTORIZED, width, loc, &e, out);
        Expr *value = e_load_at(arena, run_place(version, access, first, e));
        block_store1(arena, body, local, e_plus(arena, e, first), value);
    }
    map_put(version->temporaries, access->load, local);
}

static void store_place(Version *version, const TileAccess *access, Region *place, Expr *e, Block *out) {
    Expr *value = e_load1(version->arena, map_get(version->temporaries, access->store), e);
    if (access->adds) BLOCK_CALL(version->arena, out, (Span){0}, OP_ATOMIC_ADD, arg_region(place), arg_value(value));
    else block_push(version->arena, out, s_store_at(version->arena, place, value));
}

static void store_elements(Version *version, const TileAccess *access, Block *out) {
    Arena *arena = version->arena;
    Expr *e;
    Block *body = element_loop(version, LOOP_UNROLL, version->vector, access->store->loc, &e, out);
    Expr *guard = e_both(arena, element_guard(version, access, e), version->first_replica);
    store_place(version, access, run_place(version, access, 0, e), e, block_if(arena, body, guard));
}

static void store_group(Version *version, const TileAccess *access, Block *out) {
    Arena *arena = version->arena;
    Expr *guard = e_both(arena, whole_group_guard(version, access), version->first_replica), *e;
    int64_t width = access_width(version, access);
    if (guard) {
        Stmt *choice = s_if(arena, guard);
        block_push(arena, out, choice);
        if (!guard_is_uniform(version, access)) store_elements(version, access, &choice->if_.otherwise);
        out = &choice->if_.then;
    }
    for (int64_t first = 0; first < version->vector; first += width) {
        Block *body = element_loop(version, LOOP_VECTORIZED, width, access->store->loc, &e, out);
        store_place(version, access, run_place(version, access, first, e), e_plus(arena, e, first), body);
    }
}

void group_in_vectors(Version *version, Block *out) {
    Arena *arena = version->arena;
    Facts *facts = version->lower->facts;
    VEC_EACH (const TileAccess, access, version->accesses) {
        if (!is_vector_access(version, access)) continue;
        if (access->is_store) map_put(version->temporaries, access->store, new_temporary(version, access, out));
        else load_group(version, access, out);
    }
    int mark = facts_mark(facts);
    Block *body =
        element_loop(version, LOOP_UNROLL, version->vector, version->loop->origin->loc, &version->element, out);
    version->index_[version->fast] = e_add(arena, version->first[version->fast], version->element);
    version_block(version, &version->loop->body, body);
    facts_release(facts, mark);
    VEC_EACH (const TileAccess, access, version->accesses)
        if (access->is_store && is_vector_access(version, access)) store_group(version, access, out);
}

// ---- started copies: one cp_async with the number of valid elements; the rest is filled with zeros ----

// The number of valid elements of the group: all, none, or those before the tensor's end.
static Expr *valid_elements(Version *version, const TileAccess *load, Expr *const *at) {
    Arena *arena = version->arena;
    Facts *facts = version->lower->facts;
    Expr *n = e_int(arena, version->vector);
    int last = load->count - 1;
    Expr *condition = load->condition ? version_expr(version, load->condition) : NULL;
    Expr *guard = e_both(arena, condition, access_guard(arena, facts, load->buf, last, at));
    Expr *room = e_sub(arena, load->buf->shape[last], at[last]);
    bool low = prove(facts, e_ge(arena, at[last], e_int(arena, 0)));
    if (!low) guard = e_both(arena, guard, e_ge(arena, at[last], e_int(arena, 0)));
    Expr *valid = n;
    if (!prove(facts, e_ge(arena, room, n))) {
        bool whole = multiple_of(facts, simplify_expr(arena, facts, room)) % version->vector == 0;
        if (whole) guard = e_both(arena, guard, e_lt(arena, at[last], load->buf->shape[last]));
        else valid = e_max(arena, e_min(arena, room, n), e_int(arena, 0));
    }
    if (guard) valid = e_select(arena, guard, valid, e_int(arena, 0));
    return valid == n ? NULL : simplify_expr(arena, facts, valid);
}

// (Loads within the indices, of a gather, come before the copy's load and store.)
static bool is_plain_copy(Arena *arena, const TileLoop *loop, const TileAccessVec *accesses) {
    const Expr *load = tile_move(arena, loop);
    EXPECT(arena_failure(arena), !load || accesses->count >= 2, "a move with %d accesses", accesses->count);
    return load && accesses->items[accesses->count - 2].load == load &&
           !accesses->items[accesses->count - 2].conditional;
}

bool can_start(const Version *version) {
    const TileAccessVec *accesses = version->accesses;
    if (!version->loop->is_async || !is_plain_copy(version->arena, version->loop, accesses)) return false;
    int64_t bytes = version->vector * type_bytes(vec_last(accesses).buf->type);
    for (int a = accesses->count - 2; a < accesses->count && version->vector > 1; a++)
        if (access_width(version, &accesses->items[a]) != version->vector) return false;
    return bytes == 4 || bytes == 8 || bytes == 16;   // widths of cp.async (PTX ISA, cp.async)
}

// The index of the load at dim d. The copy starts whatever the source's condition, so that guards the index's divisions.
static Expr *own_index(Version *version, const TileAccess *load, int d) {
    Expr *index = version_expr(version, load->indices[d]);
    if (!load->condition || !expr_divides(index)) return index;
    return e_select(version->arena, version_expr(version, load->condition), index, e_zero(version->arena, index->type));
}

// For a gather the value that load_indices has read.
static Expr *start_index(Version *version, const TileAccess *load, int d) {
    Buf *read = map_get(version->indices, load->indices[d]);
    return read ? e_load1(version->arena, read, version->number) : own_index(version, load, d);
}

// Whether the group begins before the row: cp_async can leave out its last elements, not its first. NULL: no group does, or all of it lies
// there.
static Expr *begins_before_row(const Version *version, Expr *start) {
    Facts *facts = version->lower->facts;
    Expr *inside = e_ge(version->arena, start, e_int(version->arena, 0));
    if (prove(facts, inside) || multiple_of(facts, simplify_expr(version->arena, facts, start)) % version->vector == 0)
        return NULL;
    return e_lt(version->arena, start, e_int(version->arena, 0));
}

static void move_elements(Version *version, const TileAccess *load, const TileAccess *store, Expr *const *from,
                          Block *out) {
    Arena *arena = version->arena;
    int last = load->count - 1;
    Expr *at[LAYOUT_MAX_RANK], *e, *zero = e_zero(arena, load->buf->type);
    Expr *condition = load->condition ? version_expr(version, load->condition) : NULL;
    Block *body = element_loop(version, LOOP_UNROLL, version->vector, version->loop->origin->loc, &e, out);
    memcpy(at, from, sizeof at);
    at[last] = e_add(arena, from[last], e);
    Expr *guard = e_both(arena, condition, access_guard(arena, version->lower->facts, load->buf, load->count, at));
    Expr *value = e_load_at(arena, region_element(arena, load->buf, load->count, at));
    block_push(arena, body,
               s_store_at(arena, run_place(version, store, 0, e), guard ? e_select(arena, guard, value, zero) : value));
}

void start_group(Version *version, Block *out) {
    Arena *arena = version->arena;
    Facts *facts = version->lower->facts;
    const TileAccess *store = &vec_last(version->accesses), *load = store - 1;
    Expr *from[LAYOUT_MAX_RANK];
    for (int d = 0; d < load->count; d++) from[d] = start_index(version, load, d);
    out = block_if(arena, out, version->first_replica);
    int mark = facts_mark(facts);
    Expr *before = begins_before_row(version, from[load->count - 1]);
    if (before) {
        Stmt *choice = s_if(arena, before);
        block_push(arena, out, choice);
        move_elements(version, load, store, from, &choice->if_.then);
        out = &choice->if_.otherwise;
        facts_assume(facts, before, false);
    }
    Expr *valid = valid_elements(version, load, from);
    BLOCK_CALL(arena, out, version->loop->origin->loc, OP_CP_ASYNC,
               arg_region(run_place(version, store, 0, e_int(arena, 0))),
               arg_region(region_element(arena, load->buf, load->count, from)), arg_int(arena, version->vector),
               arg_value(valid));
    facts_release(facts, mark);
}

void load_indices(Version *version, int64_t unrolled, Block *out) {
    Arena *arena = version->arena;
    const TileAccess *load = &vec_last(version->accesses) - 1;
    Expr *outer = version->group, *number;
    for (int d = 0; d < load->count; d++)
        if (expr_reads_memory(load->indices[d]))
            map_put(version->indices, load->indices[d],
                    block_local(arena, out, "index", TYPE_I64, unrolled, version->loop->origin->loc));
    if (map_count(version->indices) == 0) return;
    int mark = facts_mark(version->lower->facts);
    Block *body = group_loop(version, LOOP_UNROLL, "q", unrolled, &number, out);
    Expr *inside = bind_index(version, body), *none = e_zero(arena, TYPE_I64);
    for (int d = 0; d < load->count; d++) {
        Buf *read = map_get(version->indices, load->indices[d]);
        if (!read) continue;
        Expr *index = e_cast(arena, TYPE_I64, own_index(version, load, d));
        block_store1(arena, body, read, number, inside ? e_select(arena, inside, index, none) : index);
    }
    facts_release(version->lower->facts, mark);
    version->group = outer;
}
