// A group of consecutive points whose memory is read before the body, and written behind it, in one access each.
#include "passes/lower/lower_loop.h"

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
    block_push(arena, &load->loop.body, s_store1(arena, local, e, e_load(arena, buf, count, indices)));
    map_put(version->temporaries, access->load, local);
    Expr *guard = group_guard(version, access);
    if (!guard) {
        block_push(arena, out, load);
        return;
    }
    Stmt *choice = s_if(arena, guard), *zero = element_loop(version, LOOP_UNROLL, &var);
    block_push(arena, &zero->loop.body, s_store1(arena, local, e_var(arena, var), e_zero(arena, local->type)));
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
