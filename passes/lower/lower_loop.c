// Tile loops (parallel, copy, fill, transpose) for one thread.
//
// The map numbers the thread's iterations: value v of thread t is iteration map(t, v). They run in groups of n =
// @vector consecutive iterations along the fast dim:
//
//     unroll (q in V / n) {
//         let i = ..., j = ...;                                  the group's first iteration, by Forward of the map
//         local x_v: bf16[8];
//         if (guard) vectorized (e in 8) x_v[e] = x[i, j + e];   unit-stride memory is read in one access,
//         else unroll (e in 8) x_v[e] = 0;
//         unroll (e in 8) { y_v[e] = ... x_v[e] ... v[q * 8 + e] ...; }
//         if (guard) vectorized (e in 8) y[i, j + e] = y_v[e];   and written (or added to) in one
//     }
//
// A fragment element is the thread's own slot, known from the group and e. Guards are conditions that facts could not
// prove. If a guard differs between the elements of a group, there are two versions, chosen by one test for the whole
// tile: an unguarded one, and one in which a group that is not all inside goes element by element. Iterations beyond
// the loop's extents (a padded map) and memory writes by replicas are masked. A condition on a few registers around the
// whole body, like that of a row, is first tested by the warp: `if (vote_any(alpha[0] != 1 || alpha[1] != 1))`; if it
// is false for all threads, the loop is skipped. Started copies become cp_async with the number of valid elements; the
// indices of a gather are read before the first one.
//
// This file: groups and versions. lower_loop_body.c, lower_loop_access.c, lower_loop_guards.c: the rest.
#include "passes/lower/lower_loop.h"
#include "passes/layout/fragment.h"

// ---- one version of the loop ----

Expr *bind_index(Version *version, Block *out) {
    Arena *arena = version->arena;
    Facts *facts = version->lower->facts;
    const TileLoop *loop = version->loop;
    Expr *in[2] = {lower_thread(version->lower), e_times(arena, version->group, version->vector)};
    Expr *coordinates[LAYOUT_MAX_RANK], *padding = NULL;
    layout_forward(arena, facts, version->map, in, coordinates);
    for (int d = 0; d < loop->rank; d++) {
        Expr *value = lower_named(version->lower, loop->iters[d]->name, coordinates[d], loop->origin->loc, out);
        version->first[d] = version->index_[d] = value;
        Expr *inside = e_lt(arena, value, e_int(arena, loop->extents[d]));
        if (version->map->out_shape[d] > loop->extents[d] && !prove(facts, inside))
            padding = e_both(arena, padding, inside);
    }
    return padding;
}

bool touches_registers(const Version *version, bool writes) {
    VEC_EACH (const TileAccess, access, version->accesses)
        if (access->buf->scope == SCOPE_FRAGMENT && (access->is_store || !writes)) return true;
    return false;
}

// Registers have constant indices, so groups that use them are unrolled. Other groups are unrolled only until enough
// loads are in flight.
static int64_t unrolled_groups(const Version *version, int64_t groups) {
    enum { UNDER_WAY = 8 };
    int64_t count = shifted_access(version) ? UNDER_WAY / 2 : UNDER_WAY;   // (of two vectors each)
    if (touches_registers(version, false) || groups <= count) return groups;
    while (groups % count != 0) count--;
    return count;
}

Block *group_loop(Version *version, LoopKind kind, const char *name, int64_t count, Expr **number, Block *out) {
    Arena *arena = version->arena;
    *number = e_int(arena, 0);
    if (count == 1) return out;
    Block *body = lower_counted(version->lower, kind, name, 0, count, version->loop->origin->loc, number, out);
    version->group = e_add(arena, e_times(arena, version->group, count), *number);
    return body;
}

// A block under the condition (NULL: always true), with the condition as a fact.
static Block *where(Version *version, Expr *condition, Block *out) {
    if (condition) facts_assume(version->lower->facts, condition, true);
    return block_if(version->arena, out, condition);
}

// Each version has a copy of the body, with its own variables.
static void own_body(Version *version, TileLoop *loop, TileAccessVec *accesses) {
    *loop = *version->loop;
    loop->body = (Block){0};
    clone_block(version->arena, NULL, &version->loop->body, &loop->body);
    tile_accesses(version->arena, loop, accesses);
    version->loop = loop;
    version->accesses = accesses;
}

// What the padding of the map stands for is no element of the fragment: the loop goes over all of its dims.
static bool stores_whole_dims(const TileLoop *loop, const TileAccess *store) {
    for (int d = 0; d < store->count; d++) {
        int64_t at, covered = expr_const(store->indices[d], &at) ? buf_extent(store->buf, d) : 0;
        for (int i = 0; i < loop->rank; i++)
            if (expr_is_var(store->indices[d], loop->iters[i])) covered = loop->extents[i];
        if (covered < buf_extent(store->buf, d)) return false;
    }
    return true;
}

// The body only loads elements of tensors into registers, under guards of their own: that the iteration is no padding of the
// map may be one more of them. In a branch around the load each would wait for the one before (is_guarded_load in codegen/expr.c).
static bool only_guarded_loads(Version *version) {
    bool guarded = false;
    VEC_EACH (const TileAccess, access, version->accesses) {
        bool load = !access->is_store && !access->is_atomic && access->buf->scope == SCOPE_GLOBAL;
        bool store = access->is_store && access->buf->scope == SCOPE_FRAGMENT;
        if ((!load && !store) || access->conditional || access->condition) return false;
        if (store && !stores_whole_dims(version->loop, access)) return false;
        if (!load) continue;
        if (!buf_is_constant(access->buf)) return false;
        Expr **first = access_at(version, access, version->first);
        guarded |= guard_of(version, access->buf, access->count, first) != NULL;
    }
    FOR_EACH_ITEM (stmt, &version->loop->body)
        if (stmt->kind != STMT_STORE) return false;
    return guarded;
}

static void emit_groups(const Version *plan, Block *out) {
    Arena *arena = plan->arena;
    Version version = *plan;
    TileLoop loop;
    TileAccessVec accesses = {0};
    Expr *chunk;
    own_body(&version, &loop, &accesses);
    int64_t groups = version.values / version.vector, unrolled = unrolled_groups(&version, groups);
    int mark = facts_mark(version.lower->facts);
    version.group = version.element = e_int(arena, 0);
    version.temporaries = map_new(arena);
    version.indices = map_new(arena);
    Block *body = groups > 1 ? out : block_nested(arena, out, loop.origin->loc);
    body = group_loop(&version, LOOP_SERIAL, "c", groups / unrolled, &chunk, body);
    if (can_start(&version)) load_indices(&version, unrolled, body);
    body = group_loop(&version, LOOP_UNROLL, "q", unrolled, &version.number, body);
    version.group = e_plus(arena, version.group, version.from / version.vector);
    Expr *work = bind_index(&version, body);
    if (work) facts_assume(version.lower->facts, work, true);
    if (work && only_guarded_loads(&version)) version.padding = work;
    else body = block_if(arena, body, work);
    Expr *clip = loop.clip ? at_index(&version, loop.clip, version.first) : NULL;   // the same for a group
    if (clip) body = where(&version, lower_expr(version.lower, clip), body);
    if (version.first_replica && !touches_registers(&version, true)) {   // once per element is enough
        body = block_if(arena, body, version.first_replica);
        version.first_replica = NULL;
    }
    if (can_start(&version)) start_group(&version, body);
    else if (version.vector > 1) group_in_vectors(&version, body);
    else version_block(&version, &loop.body, body);
    facts_release(version.lower->facts, mark);
}

// `@voted if (a != b) x = x * f`: where a warp does it, all of its threads may: x * 1 is x. That f is 1 where a is b, as where the test
// is `f != 1`, the source says by the attribute: what f is made of may be known long before f.
static const Block *without_test(const TileLoop *loop) {
    const Stmt *stmt = loop->body.items[0], *scale;
    if (loop->body.count != 1 || stmt->kind != STMT_IF || stmt->if_.otherwise.count) return &loop->body;
    scale = stmt->if_.then.count == 1 ? stmt->if_.then.items[0] : NULL;
    const Expr *factor = scale ? scale_of(scale) : NULL, *test = stmt->if_.condition;
    bool all = factor && is_binary(test, BIN_NE) && type_is_float(factor->type);
    return all ? &stmt->if_.then : &loop->body;
}

static void emit_unless_skipped(const Version *version, Block *out) {
    Block *voted = unless_skipped(version, out);
    TileLoop loop = *version->loop;
    Version voting = *version;
    if (voted != out && attr_get(loop.origin->attrs, ATTR_VOTED)) loop.body = *without_test(&loop);
    voting.loop = &loop;
    emit_groups(&voting, voted);
}

void lower_loop(Lower *lower, Stmt *stmt, const TileLoop *loop, int64_t first, int64_t count, Block *out) {
    Arena *arena = lower->arena;
    TileAccessVec accesses = {0};
    Version version = {.lower = lower, .arena = arena, .loop = loop, .accesses = &accesses};
    version.map = stmt_layout(stmt);
    EXPECT(lower->context->failure, version.map && tv_threads(version.map) == lower->threads,
           "a loop without a map for %lld threads", (long long)lower->threads);
    version.from = first;
    version.values = count > 0 ? count : tv_values(version.map);
    tile_accesses(arena, loop, &accesses);
    version.fast = loop_fast_dim(loop, &accesses);
    version.vector = attr_int(stmt->attrs, ATTR_VECTOR, 1);
    if (loop->clip && expr_uses_var(loop->clip, loop->iters[version.fast])) version.vector = 1;
    version.first_replica = fragment_first_replica(arena, version.map, lower_thread(lower));
    int mark = facts_mark(lower->facts);
    for (int d = 0; d < loop->rank; d++) {
        Iter iter = {loop->iters[d], e_int(arena, 0), e_int(arena, loop->extents[d]), e_int(arena, 1)};
        facts_iter(lower->facts, &iter);
    }
    const TileAccess *shifted = shifted_access(&version);
    bool two = shifted || needs_two_versions(&version);
    Expr *whole = two ? whole_tile_inside(&version, shifted) : NULL;
    if (shifted) whole = e_both(arena, whole, units_inside(arena, lower->facts, loop, shifted, version.vector));
    facts_release(lower->facts, mark);
    leave_out(&version);
    if (!two) {
        emit_unless_skipped(&version, out);
    } else if (!whole) {
        emit_groups(&version, out);
    } else {
        Stmt *choice = s_if(arena, lower_expr(lower, whole));
        Version inside = version;
        inside.inside = true;
        emit_groups(&inside, &choice->if_.then);
        emit_groups(&version, &choice->if_.otherwise);
        block_push(arena, out, choice);
    }
}
