// Memory accesses of a group of consecutive elements: vector loads and stores, and started copies (cp_async).
#include "passes/lower/lower_loop.h"

// ---- vectors: memory is read before the body and written after it, in one access each ----

static bool keeps_runs(const Buf *buf, int64_t vector) {
    if (buf->scope != SCOPE_SHARED) return true;
    bool stages = buf->stage_dims == 0 || layout_size_out(buf->layout) % vector == 0;
    return stages && layout_keeps_runs(buf->layout, vector);
}

bool is_vector_access(const Version *version, const TileAccess *access) {
    return version->vector > 1 && (access->buf->scope == SCOPE_GLOBAL || access->buf->scope == SCOPE_SHARED) &&
           access_in_vectors(version->loop, version->accesses, access, version->fast) &&
           keeps_runs(access->buf, version->vector);
}

// What the source asks of the group, and that it lies in the tensor.
static Expr *group_guard(Version *version, const TileAccess *access) {
    Expr *condition = access->condition ? at_index(version, access->condition, version->first) : NULL;
    Expr **indices = access_at(version, access, version->first);
    return both(version, condition, guard_of(version, access->buf, access->count, indices));
}

Expr **run_indices(Version *version, const TileAccess *access, Expr *e, Buf **buf, int *count) {
    Expr **indices = access_at(version, access, version->first);
    *count = access->count;
    *buf = access->buf;
    if (access->buf->scope == SCOPE_SHARED) {
        indices = lower_indices(version->lower, access->buf, access->count, indices, count);
        *buf = lower_physical(version->lower, access->buf);
    }
    indices[*count - 1] = e_add(version->arena, indices[*count - 1], e);
    return indices;
}

static Buf *new_temporary(Version *version, const TileAccess *access, Block *out) {
    const char *name = arena_printf(version->arena, "%s_v", access->buf->name);
    Buf *local = buf_new_const(version->arena, name, SCOPE_LOCAL, access->buf->type, 1, &version->vector,
                               version->loop->origin->loc);
    block_push(version->arena, out, s_decl(version->arena, local));
    return local;
}

static Stmt *element_loop(Version *version, LoopKind kind, Var **var) {
    Arena *arena = version->arena;
    *var = var_new(arena, "e", VAR_ITER, TYPE_I64, version->loop->origin->loc);
    return s_for(arena, kind, *var, e_int(arena, 0), e_int(arena, version->vector));
}

static void load_group(Version *version, const TileAccess *access, Block *out) {
    Arena *arena = version->arena;
    Buf *local = new_temporary(version, access, out), *buf;
    Var *var;
    int count;
    Stmt *load = element_loop(version, LOOP_VECTORIZED, &var);
    Expr *e = e_var(arena, var), **indices = run_indices(version, access, e, &buf, &count);
    block_store1(arena, &load->loop.body, local, e, e_load(arena, buf, count, indices));
    map_put(version->temporaries, access->load, local);
    Expr *guard = group_guard(version, access);
    if (!guard) {
        block_push(arena, out, load);
        return;
    }
    Stmt *choice = s_if(arena, guard), *zero = element_loop(version, LOOP_UNROLL, &var);
    block_store1(arena, &zero->loop.body, local, e_var(arena, var), e_zero(arena, local->type));
    block_push(arena, &choice->if_.then, load);
    block_push(arena, &choice->if_.otherwise, zero);
    block_push(arena, out, choice);
}

static void store_group(Version *version, const TileAccess *access, Block *out) {
    Arena *arena = version->arena;
    Buf *local = map_get(version->temporaries, access->store), *buf;
    Var *var;
    int count;
    Stmt *store = element_loop(version, LOOP_VECTORIZED, &var);
    store->loc = access->store->loc;
    Expr *e = e_var(arena, var), **indices = run_indices(version, access, e, &buf, &count);
    Expr *value = e_load1(arena, local, e);
    Arg args[] = {arg_region(region_element(arena, buf, count, indices)), arg_value(value)};
    block_push(arena, &store->loop.body,
               access->adds ? s_call(arena, OP_ATOMIC_ADD, COUNT_OF(args), args)
                            : s_store(arena, buf, count, indices, value));
    Expr *guard = group_guard(version, access);
    push_guarded(version, both(version, guard, version->first_replica), store, out);
}

void group_in_vectors(Version *version, Block *out) {
    Arena *arena = version->arena;
    for (int a = 0; a < version->accesses->count; a++) {
        const TileAccess *access = &version->accesses->items[a];
        if (!is_vector_access(version, access)) continue;
        if (access->is_store) map_put(version->temporaries, access->store, new_temporary(version, access, out));
        else load_group(version, access, out);
    }
    Var *var;
    Stmt *elements = element_loop(version, LOOP_UNROLL, &var);
    int mark = facts_mark(version->lower->facts);
    facts_iter(version->lower->facts, &elements->loop.iters[0]);
    version->element = e_var(arena, var);
    version->index_[version->fast] = e_add(arena, version->first[version->fast], version->element);
    version_block(version, &version->loop->body, &elements->loop.body);
    facts_release(version->lower->facts, mark);
    block_push(arena, out, elements);
    for (int a = 0; a < version->accesses->count; a++) {
        const TileAccess *access = &version->accesses->items[a];
        if (access->is_store && is_vector_access(version, access)) store_group(version, access, out);
    }
}

// ---- started copies: one cp_async with the number of elements that exist; what lies beyond the tensor is zeros ----

// The elements of the group that exist: all, none, or those before the tensor's end.
static Expr *valid_elements(Version *version, const TileAccess *load, Expr *const *at) {
    Arena *arena = version->arena;
    Facts *facts = version->lower->facts;
    Expr *n = e_int(arena, version->vector);
    int last = load->count - 1;
    Expr *condition = load->condition ? version_expr(version, load->condition) : NULL;
    Expr *guard = both(version, condition, access_guard(arena, facts, load->buf, last, at));
    Expr *room = e_sub(arena, load->buf->shape[last], at[last]);
    bool low = prove(facts, e_ge(arena, at[last], e_int(arena, 0)));
    if (!low) guard = both(version, guard, e_ge(arena, at[last], e_int(arena, 0)));
    Expr *valid = n;
    if (!prove(facts, e_ge(arena, room, n))) {
        bool whole = multiple_of(facts, simplify_expr(arena, facts, room)) % version->vector == 0;
        if (whole) guard = both(version, guard, e_lt(arena, at[last], load->buf->shape[last]));
        else valid = e_max(arena, e_min(arena, room, n), e_int(arena, 0));
    }
    if (guard) valid = e_select(arena, guard, valid, e_int(arena, 0));
    return valid == n ? NULL : simplify_expr(arena, facts, valid);
}

// Loads within the indices (of a gather) come before the two ends.
static bool is_plain_copy(Arena *arena, const TileLoop *loop, const TileAccessVec *accesses) {
    const Expr *load = tile_move(arena, loop);
    return load && accesses->items[accesses->count - 2].load == load &&
           !accesses->items[accesses->count - 2].conditional;
}

bool can_start(const Version *version) {
    const TileAccessVec *accesses = version->accesses;
    if (!version->loop->is_async || !is_plain_copy(version->arena, version->loop, accesses)) return false;
    int64_t bytes = version->vector * type_bytes(vec_last(accesses).buf->type);
    for (int a = accesses->count - 2; a < accesses->count && version->vector > 1; a++)
        if (!is_vector_access(version, &accesses->items[a])) return false;
    return bytes == 4 || bytes == 8 || bytes == 16;   // what cp.async takes (PTX ISA, cp.async)
}

static bool find_load(Visitor *visitor, Expr *expr) {
    bool *found = visitor->user;
    *found |= expr->kind == EXPR_LOAD;
    return !*found;
}

static bool has_load(Expr *expr) {
    bool found = false;
    Visitor visitor = {.expr = find_load, .user = &found};
    visit_expr(&visitor, expr);
    return found;
}

// The index of the load at dim d: of a gather, what load_indices has read.
static Expr *start_index(Version *version, const TileAccess *load, int d) {
    Buf *read = map_get(version->indices, load->indices[d]);
    return read ? e_load1(version->arena, read, version->number) : version_expr(version, load->indices[d]);
}

void start_group(Version *version, Block *out) {
    Arena *arena = version->arena;
    const TileAccess *store = &vec_last(version->accesses), *load = store - 1;
    Buf *buf;
    int count;
    Expr **to = run_indices(version, store, e_int(arena, 0), &buf, &count),
         **from = NEW_ARRAY(arena, Expr *, load->count);
    for (int d = 0; d < load->count; d++) from[d] = start_index(version, load, d);
    Expr *valid = valid_elements(version, load, from);
    Arg args[4] = {arg_region(region_element(arena, buf, count, to)),
                   arg_region(region_element(arena, load->buf, load->count, from)),
                   arg_int(arena, version->vector),
                   {0}};
    if (valid) args[3] = arg_value(valid);
    Stmt *copy = s_call(arena, OP_CP_ASYNC, 4, args);
    copy->loc = version->loop->origin->loc;
    push_guarded(version, version->first_replica, copy, out);
}

void load_indices(Version *version, int64_t unrolled, Block *out) {
    Arena *arena = version->arena;
    Facts *facts = version->lower->facts;
    const TileAccess *load = &vec_last(version->accesses) - 1;
    Expr *outer = version->group;
    for (int d = 0; d < load->count; d++) {
        if (!has_load(load->indices[d])) continue;
        Buf *read = buf_new_const(arena, "index", SCOPE_LOCAL, TYPE_I64, 1, &unrolled, version->loop->origin->loc);
        block_push(arena, out, s_decl(arena, read));
        map_put(version->indices, load->indices[d], read);
    }
    if (map_count(version->indices) == 0) return;
    int mark = facts_mark(facts);
    Block *body = group_loop(version, LOOP_UNROLL, "q", unrolled, out);
    Expr *number = unrolled > 1 ? e_var(arena, out->items[out->count - 1]->loop.iters[0].var) : e_int(arena, 0);
    bind_index(version, body);
    for (int d = 0; d < load->count; d++) {
        Buf *read = map_get(version->indices, load->indices[d]);
        Expr *index = read ? e_cast(arena, TYPE_I64, version_expr(version, load->indices[d])) : NULL;
        if (read) block_store1(arena, body, read, number, index);
    }
    facts_release(facts, mark);
    version->group = outer;
}
