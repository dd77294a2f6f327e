// Loops of a tile (parallel, copy, fill, transpose) as what one thread does.
//
// The map numbers the thread's iterations: value v of thread t is the point map(t, v). They run in groups of n = @vector
// consecutive points along the fast dim:
//
//     unroll (q in V / n) {
//         let i = ..., j = ...;                                  the group's first point, by Forward of the map
//         local x_v: bf16[8];
//         if (guard) vectorized (e in 8) x_v[e] = x[i, j + e];   unit-stride memory is read in one access,
//         else unroll (e in 8) x_v[e] = 0;
//         unroll (e in 8) { y_v[e] = ... x_v[e] ... v[q * 8 + e] ...; }
//         if (guard) vectorized (e in 8) y[i, j + e] = y_v[e];   and written (or added to) in one
//     }
//
// A fragment element is the thread's own slot, known from the group and e. Guards are what facts could not prove; when a
// guard differs between the elements of a group there are two versions, chosen by one test for the whole tile: an
// unguarded one in vectors, and a guarded one element by element. Points beyond the loop's extents (a padded map) and
// memory writes by replicas are masked. A condition on a few registers around all of the body, like that of a row, is put to the
// warp first: `if (vote_any(alpha[0] != 1 || alpha[1] != 1))`, and none of its threads goes through the loop for nothing.
// Started copies become cp_async with the number of valid elements; the indices of a gather are read before the first one.
#include "ir/build.h"
#include "ir/rewrite.h"
#include "passes/fragment.h"
#include "passes/kernel_walk.h"
#include "passes/lower.h"
#include "passes/util.h"
#include "support/map.h"
#include <string.h>

typedef struct Version {
    Lower *lower;
    Arena *arena;
    const TileLoop *loop;
    const Layout *map;
    const TileAccessVec *accesses;
    int fast;
    int64_t vector;                 // n
    int64_t from, values;           // of the thread's values, those that are done
    bool inside;                    // the whole tile was tested: no guards
    Expr *group;                    // q
    Expr *element;                  // e, or constant 0
    Expr *point[LAYOUT_MAX_RANK];   // of this element: the loop's iterators
    Expr *first[LAYOUT_MAX_RANK];   // of the group
    Expr *first_replica;            // NULL: no replicas
    Map *temporaries;               // Expr (load) or Stmt (store) -> local Buf holding the group
    Map *indices;                   // of a gather: Expr (index) -> local Buf of those of `unrolled` groups
    Expr *number;                   // of the group among these
    Subst *vars;                    // the body's lets and iterators in this version
} Version;

static void version_block(Version *version, const Block *from, Block *to);
static Expr *version_expr(Version *version, Expr *expr);

// ---- points ----

static Expr *value_number(Version *version) {
    Arena *arena = version->arena;
    return e_add(arena, e_mul(arena, version->group, e_int(arena, version->vector)), version->element);
}

static Expr *at_point(Version *version, Expr *expr, Expr *const *point) {
    Subst *subst = subst_new(version->arena);
    for (int d = 0; d < version->loop->rank; d++) subst_var(subst, version->loop->iters[d], point[d]);
    return simplify_expr(version->arena, version->lower->facts, subst_expr(subst, expr));
}

// An index that is itself read from memory is a load of this version: guarded, and from the thread's slots.
static Expr *read_at(Version *version, Expr *expr, Expr *const *point) {
    Expr *outer[LAYOUT_MAX_RANK], *element = version->element;
    memcpy(outer, version->point, sizeof outer);
    for (int d = 0; d < version->loop->rank; d++) version->point[d] = point[d];
    version->element = e_int(version->arena, 0);
    Expr *result = version_expr(version, expr);
    memcpy(version->point, outer, sizeof outer);
    version->element = element;
    return result;
}

static Expr **access_at(Version *version, const TileAccess *access, Expr *const *point) {
    Expr **indices = NEW_ARRAY(version->arena, Expr *, access->count);
    for (int d = 0; d < access->count; d++)
        indices[d] = expr_reads_memory(access->indices[d]) ? read_at(version, access->indices[d], point)
                                                           : at_point(version, access->indices[d], point);
    return indices;
}

// ---- elements ----

static Expr *fragment_slot(Version *version, Buf *buf, int count, Expr *const *indices) {
    int dims[LAYOUT_MAX_RANK];
    TileAccess access = {.buf = buf, .count = count, .indices = (Expr **)indices};
    bool known = access_dims(version->loop, &access, dims);
    int64_t held[LAYOUT_MAX_RANK];
    for (int d = 0; d < count; d++) held[d] = buf_extent(buf, d);
    const Layout *seen = tv_project(version->arena, version->map, count, dims, held);
    Expr *slot = fragment_projected_value(version->arena, version->map, count, dims, value_number(version));
    if (known && buf->layout && !layout_equal(seen, buf->layout))
        slot = fragment_same_thread(version->arena, seen, buf->layout, slot);
    EXPECT(version->lower->context->failure, known && buf->layout && slot,
           "fragment '%s' has another layout than its loop", buf->name);
    int64_t weight = tv_values(tv_project(version->arena, version->map, count, dims, NULL));
    for (int d = 0; d < count; d++) {
        if (dims[d] >= 0) continue;
        slot = e_add(version->arena, slot, e_mul(version->arena, indices[d], e_int(version->arena, weight)));
        weight *= held[d];
    }
    return simplify_expr(version->arena, version->lower->facts, slot);
}

static Expr *both(Version *version, Expr *a, Expr *b) {
    if (!a || !b) return a ? a : b;
    return e_and(version->arena, a, b);
}

static Expr *guard_of(Version *version, const Buf *buf, int count, Expr *const *indices) {
    if (version->inside || buf->scope != SCOPE_GLOBAL) return NULL;
    return access_guard(version->arena, version->lower->facts, buf, count, indices);
}

static Expr *version_load(Version *version, Expr *expr) {
    Arena *arena = version->arena;
    Lower *lower = version->lower;
    Buf *buf = expr->load.buf, *temporary = map_get(version->temporaries, expr);
    if (temporary) return e_load1(arena, temporary, version->element);
    if (buf->scope == SCOPE_FRAGMENT)
        return e_load1(arena, lower_local(lower, buf),
                       fragment_slot(version, buf, expr->load.count, expr->load.indices));
    Expr **indices = NEW_ARRAY(arena, Expr *, expr->load.count);
    for (int d = 0; d < expr->load.count; d++) indices[d] = version_expr(version, expr->load.indices[d]);
    if (buf->scope == SCOPE_SHARED) {
        int count;
        Expr **physical = lower_indices(lower, buf, expr->load.count, indices, &count);
        return e_load(arena, lower_physical(lower, buf), count, physical);
    }
    Expr *guard = guard_of(version, buf, expr->load.count, indices);
    Expr *load = e_load(arena, buf, expr->load.count, indices);
    return guard ? e_select(arena, guard, load, e_zero(arena, load->type)) : load;
}

static Expr *version_call(Version *version, Expr *expr) {
    Arg *args = NEW_ARRAY(version->arena, Arg, expr->call.count);
    for (int i = 0; i < expr->call.count; i++) {
        args[i] = expr->call.args[i];
        if (args[i].value) args[i].value = version_expr(version, args[i].value);
        if (!args[i].region) continue;
        Region *region = args[i].region;
        Expr *indices[LAYOUT_MAX_RANK], **physical = indices;
        int count = region->count;
        for (int d = 0; d < count; d++) indices[d] = version_expr(version, region->dims[d].start);
        Buf *buf = region->buf;
        if (buf->scope == SCOPE_SHARED) {
            physical = lower_indices(version->lower, buf, count, indices, &count);
            buf = lower_physical(version->lower, buf);
        }
        args[i].region = region_element(version->arena, buf, count, physical);
    }
    return e_call(version->arena, expr->call.op, expr->call.count, args);
}

static Expr *version_node(Version *version, Expr *expr) {
    Arena *arena = version->arena;
    switch (expr->kind) {
    case EXPR_INT:
    case EXPR_FLOAT: return expr;
    case EXPR_VAR:
        for (int d = 0; d < version->loop->rank; d++)
            if (version->loop->iters[d] == expr->var) return version->point[d];
        return subst_expr(version->vars, expr);
    case EXPR_LOAD: return version_load(version, expr);
    case EXPR_UNARY: return e_unary(arena, expr->unary.op, version_expr(version, expr->unary.a));
    case EXPR_BINARY:
        return e_binary(arena, expr->binary.op, version_expr(version, expr->binary.a),
                        version_expr(version, expr->binary.b));
    case EXPR_SELECT:
        return e_select(arena, version_expr(version, expr->select.condition), version_expr(version, expr->select.yes),
                        version_expr(version, expr->select.no));
    case EXPR_CAST: return e_cast(arena, expr->type, version_expr(version, expr->operand));
    case EXPR_BITCAST: return e_bitcast(arena, expr->type, version_expr(version, expr->operand));
    case EXPR_CALL: return version_call(version, expr);
    }
    return expr;
}

static Expr *version_expr(Version *version, Expr *expr) {
    Expr *result = version_node(version, expr);
    if (type_is_int(result->type) || result->type == TYPE_BOOL)
        result = simplify_expr(version->arena, version->lower->facts, result);
    return result;
}

// ---- statements of the body ----

static void push_guarded(Version *version, Expr *guard, Stmt *stmt, Block *out) {
    if (!guard) {
        block_push(version->arena, out, stmt);
        return;
    }
    Stmt *only = s_if(version->arena, guard);
    block_push(version->arena, &only->if_.then, stmt);
    block_push(version->arena, out, only);
}

static void version_store(Version *version, Stmt *stmt, Block *out) {
    Arena *arena = version->arena;
    Lower *lower = version->lower;
    Buf *buf = stmt->store.buf, *temporary = map_get(version->temporaries, stmt);
    Expr *value = version_expr(version, stmt->store.value);
    if (temporary) {
        block_push(arena, out, s_store1(arena, temporary, version->element, value));
        return;
    }
    if (buf->scope == SCOPE_FRAGMENT) {
        Expr *slot = fragment_slot(version, buf, stmt->store.count, stmt->store.indices);
        block_push(arena, out, s_store1(arena, lower_local(lower, buf), slot, value));
        return;
    }
    int count = stmt->store.count;
    Expr **indices = NEW_ARRAY(arena, Expr *, count);
    for (int d = 0; d < count; d++) indices[d] = version_expr(version, stmt->store.indices[d]);
    Expr *guard = both(version, guard_of(version, buf, count, indices), version->first_replica);
    if (buf->scope == SCOPE_LOCAL) guard = NULL;
    if (buf->scope == SCOPE_SHARED) {
        indices = lower_indices(lower, buf, count, indices, &count);
        buf = lower_physical(lower, buf);
    }
    Stmt *store = s_store(arena, buf, count, indices, value);
    store->loc = stmt->loc;
    push_guarded(version, guard, store, out);
}

static Var *version_var(Version *version, const Var *var) {
    Var *copy = var_new(version->arena, var->name, var->kind, var->type, var->loc);
    subst_var(version->vars, var, e_var(version->arena, copy));
    return copy;
}

static void version_for(Version *version, Stmt *stmt, Block *out) {
    Stmt *loop = stmt_new(version->arena, STMT_FOR, stmt->loc);
    loop->loop = stmt->loop;
    loop->loop.body = (Block){0};
    loop->loop.iters = NEW_ARRAY(version->arena, Iter, stmt->loop.count);
    int mark = facts_mark(version->lower->facts);
    for (int i = 0; i < stmt->loop.count; i++) {
        const Iter *from = &stmt->loop.iters[i];
        Iter *to = &loop->loop.iters[i];
        to->begin = version_expr(version, from->begin);
        to->end = version_expr(version, from->end);
        to->step = version_expr(version, from->step);
        to->var = version_var(version, from->var);
        facts_iter(version->lower->facts, to);
    }
    version_block(version, &stmt->loop.body, &loop->loop.body);
    facts_release(version->lower->facts, mark);
    block_push(version->arena, out, loop);
}

static void version_if(Version *version, Stmt *stmt, Block *out) {
    Stmt *copy = s_if(version->arena, version_expr(version, stmt->if_.condition));
    int mark = facts_mark(version->lower->facts);
    facts_assume(version->lower->facts, copy->if_.condition, true);
    version_block(version, &stmt->if_.then, &copy->if_.then);
    facts_release(version->lower->facts, mark);
    facts_assume(version->lower->facts, copy->if_.condition, false);
    version_block(version, &stmt->if_.otherwise, &copy->if_.otherwise);
    facts_release(version->lower->facts, mark);
    block_push(version->arena, out, copy);
}

static void version_call_stmt(Version *version, Stmt *stmt, Block *out) {
    Buf *temporary = map_get(version->temporaries, stmt);
    if (temporary) {
        Expr *value = e_cast(version->arena, temporary->type, version_expr(version, stmt->call.args[1].value));
        block_push(version->arena, out, s_store1(version->arena, temporary, version->element, value));
        return;
    }
    Expr call = {.kind = EXPR_CALL};
    call.call.op = stmt->call.op;
    call.call.count = stmt->call.count;
    call.call.args = stmt->call.args;
    Expr *lowered = version_call(version, &call);
    Stmt *copy = s_call(version->arena, stmt->call.op, lowered->call.count, lowered->call.args);
    copy->loc = stmt->loc;
    Expr *guard = version->first_replica;
    for (int i = 0; i < stmt->call.count; i++) {
        const Region *region = lowered->call.args[i].region;
        if (!region || region->buf->scope != SCOPE_GLOBAL) continue;
        Expr *indices[LAYOUT_MAX_RANK];
        for (int d = 0; d < region->count; d++) indices[d] = region->dims[d].start;
        guard = both(version, guard_of(version, region->buf, region->count, indices), guard);
    }
    push_guarded(version, guard, copy, out);
}

static void version_stmt(Version *version, Stmt *stmt, Block *out) {
    Arena *arena = version->arena;
    Stmt *copy;
    switch (stmt->kind) {
    case STMT_STORE: version_store(version, stmt, out); return;
    case STMT_FOR: version_for(version, stmt, out); return;
    case STMT_IF: version_if(version, stmt, out); return;
    case STMT_BLOCK: version_block(version, &stmt->block, out); return;
    case STMT_CALL: version_call_stmt(version, stmt, out); return;
    case STMT_LET:
    case STMT_VAR:
    case STMT_ASSIGN:
        copy = stmt_new(arena, stmt->kind, stmt->loc);
        copy->let.value = stmt->let.value ? version_expr(version, stmt->let.value) : NULL;
        if (stmt->kind == STMT_ASSIGN) {
            Expr *target = subst_expr(version->vars, e_var(arena, stmt->let.var));
            copy->let.var = target->var;
        } else {
            copy->let.var = version_var(version, stmt->let.var);
        }
        if (stmt->kind == STMT_LET) facts_bind(version->lower->facts, copy->let.var, copy->let.value);
        block_push(arena, out, copy);
        return;
    case STMT_WHILE:
        copy = stmt_new(arena, STMT_WHILE, stmt->loc);
        copy->while_.condition = version_expr(version, stmt->while_.condition);
        version_block(version, &stmt->while_.body, &copy->while_.body);
        block_push(arena, out, copy);
        return;
    default: block_push(arena, out, stmt); return;
    }
}

static void version_block(Version *version, const Block *from, Block *to) {
    int mark = facts_mark(version->lower->facts);
    for (int i = 0; i < from->count; i++) version_stmt(version, from->items[i], to);
    facts_release(version->lower->facts, mark);
}

// ---- vectors ----

static bool keeps_runs(const Buf *buf, int64_t vector) {
    if (buf->scope != SCOPE_SHARED) return true;
    bool stages = buf->stage_dims == 0 || layout_size_out(buf->layout) % vector == 0;
    return stages && layout_keeps_runs(buf->layout, vector);
}

static bool is_vector_access(const Version *version, const TileAccess *access) {
    return version->vector > 1 && (access->buf->scope == SCOPE_GLOBAL || access->buf->scope == SCOPE_SHARED) &&
           access_in_vectors(version->loop, version->accesses, access, version->fast) &&
           keeps_runs(access->buf, version->vector);
}

// What the source asks of the group, and that it lies in the tensor.
static Expr *group_guard(Version *version, const TileAccess *access) {
    Expr *condition = access->condition ? at_point(version, access->condition, version->first) : NULL;
    Expr **indices = access_at(version, access, version->first);
    return both(version, condition, guard_of(version, access->buf, access->count, indices));
}

// buf[..., first + e] of the group as an lvalue: physical indices with e added to the last one.
static Expr **run_indices(Version *version, const TileAccess *access, Expr *e, Buf **buf, int *count) {
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

static void group_in_vectors(Version *version, Block *out) {
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
    version->point[version->fast] = e_add(arena, version->first[version->fast], version->element);
    version_block(version, &version->loop->body, &elements->loop.body);
    facts_release(version->lower->facts, mark);
    block_push(arena, out, elements);
    for (int a = 0; a < version->accesses->count; a++) {
        const TileAccess *access = &version->accesses->items[a];
        if (access->is_store && is_vector_access(version, access)) store_group(version, access, out);
    }
}

// ---- started copies ----

// The elements of the group that exist: all, none, or those before the tensor's end.
static Expr *valid_elements(Version *version, const TileAccess *load, Expr *const *at) {
    Arena *arena = version->arena;
    Facts *facts = version->lower->facts;
    Expr *n = e_int(arena, version->vector);
    int last = load->count - 1;
    Expr *condition = load->condition ? version_expr(version, load->condition) : NULL;
    Expr *guard = both(version, condition, access_guard(arena, facts, load->buf, last, at));
    Expr *room = e_sub(arena, load->buf->shape[last], at[last]);
    bool low = prove(facts, e_binary(arena, BIN_GE, at[last], e_int(arena, 0)));
    if (!low) guard = both(version, guard, e_binary(arena, BIN_GE, at[last], e_int(arena, 0)));
    Expr *valid = n;
    if (!prove(facts, e_binary(arena, BIN_GE, room, n))) {
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

static bool can_start(const Version *version) {
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

static void start_group(Version *version, Block *out) {
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
                   arg_value(e_int(arena, version->vector)),
                   {0}};
    if (valid) args[3] = arg_value(valid);
    Stmt *copy = s_call(arena, OP_CP_ASYNC, 4, args);
    copy->loc = version->loop->origin->loc;
    push_guarded(version, version->first_replica, copy, out);
}

// ---- one version of the loop ----

// The coordinates of the group's first point as lets, with what is known of them.
static Expr *bind_point(Version *version, Block *out) {
    Arena *arena = version->arena;
    Facts *facts = version->lower->facts;
    Expr *in[2] = {lower_thread(version->lower), e_mul(arena, version->group, e_int(arena, version->vector))};
    Expr *coordinates[LAYOUT_MAX_RANK], *padding = NULL;
    layout_forward(arena, facts, version->map, in, coordinates);
    for (int d = 0; d < version->loop->rank; d++) {
        Expr *value = simplify_expr(arena, facts, coordinates[d]);
        if (value->kind != EXPR_INT && value->kind != EXPR_VAR) {
            Var *var = var_new(arena, version->loop->iters[d]->name, VAR_LET, TYPE_I64, version->loop->origin->loc);
            block_push(arena, out, s_let(arena, var, value));
            facts_bind(facts, var, value);
            value = e_var(arena, var);
        }
        version->first[d] = version->point[d] = value;
        Expr *inside = e_lt(arena, value, e_int(arena, version->loop->extents[d]));
        if (version->map->out_shape[d] > version->loop->extents[d] && !prove(facts, inside))
            padding = both(version, padding, inside);
    }
    return padding;
}

static bool touches_registers(const Version *version) {
    for (int a = 0; a < version->accesses->count; a++)
        if (version->accesses->items[a].buf->scope == SCOPE_FRAGMENT) return true;
    return false;
}

static bool writes_registers(const Version *version) {
    for (int a = 0; a < version->accesses->count; a++)
        if (version->accesses->items[a].buf->scope == SCOPE_FRAGMENT && version->accesses->items[a].is_store)
            return true;
    return false;
}

// Registers have constant indices, so groups that touch them are unrolled; others only so far that enough loads are under
// way at once.
static int64_t unrolled_groups(const Version *version, int64_t groups) {
    enum { UNDER_WAY = 8 };
    if (touches_registers(version) || groups <= UNDER_WAY) return groups;
    int64_t count = UNDER_WAY;
    while (groups % count != 0) count--;
    return count;
}

static Block *group_loop(Version *version, LoopKind kind, const char *name, int64_t count, Block *out) {
    Arena *arena = version->arena;
    if (count == 1) return out;
    Var *var = var_new(arena, name, VAR_ITER, TYPE_I64, version->loop->origin->loc);
    Stmt *loop = s_for(arena, kind, var, e_int(arena, 0), e_int(arena, count));
    loop->loc = version->loop->origin->loc;
    facts_iter(version->lower->facts, &loop->loop.iters[0]);
    version->group = e_add(arena, e_mul(arena, version->group, e_int(arena, count)), e_var(arena, var));
    block_push(arena, out, loop);
    return &loop->loop.body;
}

// The indices of a gather are read before its first copy starts: each would wait for the one before.
static void load_indices(Version *version, int64_t unrolled, Block *out) {
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
    bind_point(version, body);
    for (int d = 0; d < load->count; d++) {
        Buf *read = map_get(version->indices, load->indices[d]);
        Expr *index = read ? e_cast(arena, TYPE_I64, version_expr(version, load->indices[d])) : NULL;
        if (read) block_push(arena, body, s_store1(arena, read, number, index));
    }
    facts_release(facts, mark);
    version->group = outer;
}

static void emit_groups(Version *version, Block *out) {
    Arena *arena = version->arena;
    Facts *facts = version->lower->facts;
    int64_t groups = version->values / version->vector, unrolled = unrolled_groups(version, groups);
    int mark = facts_mark(facts);
    Stmt *scope = s_block(arena);
    version->group = e_int(arena, 0);
    version->element = e_int(arena, 0);
    version->temporaries = map_new(arena);
    version->vars = subst_new(arena);
    scope->loc = version->loop->origin->loc;
    version->indices = map_new(arena);
    version->number = e_int(arena, 0);
    Block *body = group_loop(version, LOOP_SERIAL, "c", groups / unrolled, &scope->block);
    if (can_start(version)) load_indices(version, unrolled, body);
    Block *around = body;
    body = group_loop(version, LOOP_UNROLL, "q", unrolled, body);
    if (unrolled > 1) version->number = e_var(arena, around->items[around->count - 1]->loop.iters[0].var);
    version->group = e_add(arena, version->group, e_int(arena, version->from / version->vector));
    Expr *padding = bind_point(version, body);
    if (padding) {
        Stmt *inside = s_if(arena, padding);
        block_push(arena, body, inside);
        body = &inside->if_.then;
        facts_assume(facts, padding, true);
    }
    if (version->loop->clip) {   // the same for all of a group
        Stmt *inside = s_if(arena, at_point(version, version->loop->clip, version->first));
        block_push(arena, body, inside);
        body = &inside->if_.then;
        facts_assume(facts, inside->if_.condition, true);
    }
    if (version->first_replica && !writes_registers(version)) {   // nothing of it is needed twice
        Stmt *only = s_if(arena, version->first_replica);
        block_push(arena, body, only);
        body = &only->if_.then;
        version->first_replica = NULL;
    }
    if (can_start(version)) start_group(version, body);
    else if (version->vector > 1) group_in_vectors(version, body);
    else version_block(version, &version->loop->body, body);
    facts_release(facts, mark);
    if (groups > 1) block_append(arena, out, &scope->block);
    else block_push(arena, out, scope);
}

// ---- guards of the whole tile ----

// The guard of an access in a group is the same for all its elements.
static bool guard_is_uniform(const Version *version, const TileAccess *access) {
    Arena *arena = version->arena;
    const Facts *facts = version->lower->facts;
    const Var *fast = version->loop->iters[version->fast];
    if (access->is_local) return false;
    for (int d = 0; d < access->count; d++) {
        int64_t coefficient;
        Expr *inside = e_lt(arena, access->indices[d], access->buf->shape[d]);
        bool proven =
            prove(facts, inside) && prove(facts, e_binary(arena, BIN_GE, access->indices[d], e_int(arena, 0)));
        if (proven || (linear_in(access->indices[d], fast, &coefficient) && coefficient == 0)) continue;
        if (d != access->count - 1 || run_stride(access, fast) != STRIDE_UNIT) return false;
        Expr *base = simplify_expr(arena, facts, e_sub(arena, access->indices[d], e_var(arena, (Var *)fast)));
        if (multiple_of(facts, base) % version->vector != 0) return false;
        if (multiple_of(facts, access->buf->shape[d]) % version->vector != 0) return false;
    }
    return true;
}

// The index at the tile's corner where it is largest (or smallest). NULL when it is not linear in the iterators.
static Expr *corner(const Version *version, Expr *index, bool largest) {
    Arena *arena = version->arena;
    Subst *subst = subst_new(arena);
    for (int d = 0; d < version->loop->rank; d++) {
        int64_t coefficient;
        if (!linear_in(index, version->loop->iters[d], &coefficient)) return NULL;
        bool far = (coefficient > 0) == largest;
        subst_var(subst, version->loop->iters[d], e_int(arena, far ? version->loop->extents[d] - 1 : 0));
    }
    return simplify_expr(arena, version->lower->facts, subst_expr(subst, index));
}

// The condition that the whole tile of every guarded access is inside. NULL: there is none.
static Expr *whole_tile_inside(Version *version) {
    Arena *arena = version->arena;
    Facts *facts = version->lower->facts;
    Expr *all = NULL;
    for (int a = 0; a < version->accesses->count; a++) {
        const TileAccess *access = &version->accesses->items[a];
        if (access->buf->scope != SCOPE_GLOBAL) continue;
        if (access->is_local) return NULL;
        for (int d = 0; d < access->count; d++) {
            Expr *high = corner(version, access->indices[d], true), *low = corner(version, access->indices[d], false);
            if (!high || !low) return NULL;
            Expr *tests[2] = {e_lt(arena, high, access->buf->shape[d]), e_binary(arena, BIN_GE, low, e_int(arena, 0))};
            for (int i = 0; i < 2; i++)
                if (!prove(facts, tests[i])) all = both(version, all, simplify_expr(arena, facts, tests[i]));
        }
    }
    return all;
}

static bool needs_two_versions(const Version *version) {
    if (version->vector == 1 || version->loop->is_async) return false;
    for (int a = 0; a < version->accesses->count; a++)
        if (version->accesses->items[a].buf->scope == SCOPE_GLOBAL &&
            !guard_is_uniform(version, &version->accesses->items[a]))
            return true;
    return false;
}

static void emit_guarded_elements(Version *version, Block *out) {
    Version plain = *version;
    plain.vector = 1;
    emit_groups(&plain, out);
}

// ---- skipping by warps ----

typedef struct Registers {
    const TileLoop *loop;
    bool only;
} Registers;

// All that depends on the point is read from fragments.
static bool find_other_reads(Visitor *visitor, Expr *expr) {
    Registers *registers = visitor->user;
    if (expr->kind == EXPR_LOAD) registers->only &= expr->load.buf->scope == SCOPE_FRAGMENT;
    else if (expr->kind == EXPR_CALL) registers->only &= op_is_pure(expr->call.op);
    for (int d = 0; d < registers->loop->rank && expr->kind == EXPR_VAR; d++)
        registers->only &= expr->var != registers->loop->iters[d];
    return expr->kind != EXPR_LOAD && registers->only;
}

static bool find_memory(const Stmt *stmt, void *user) {
    (void)user;
    return stmt->kind == STMT_CALL || (stmt->kind == STMT_STORE && stmt->store.buf->scope != SCOPE_FRAGMENT);
}

// The condition around all of the body, where it is the same for many of the thread's points: one of registers that belong
// to a row, say. NULL: there is none.
static const Expr *shared_condition(const Version *version) {
    const TileLoop *loop = version->loop;
    if (loop->body.count != 1 || loop->body.items[0]->kind != STMT_IF) return NULL;
    const Stmt *stmt = loop->body.items[0];
    Registers registers = {loop, true};
    Visitor visitor = {.expr = find_other_reads, .user = &registers};
    visit_expr(&visitor, stmt->if_.condition);
    if (!registers.only || !expr_reads_memory(stmt->if_.condition) || stmt->if_.otherwise.count > 0 ||
        block_any(&stmt->if_.then, find_memory, NULL))
        return NULL;
    if (version->lower->threads % version->lower->target->warp_lanes != 0) return NULL;
    for (int d = 0; d < loop->rank; d++)
        if (version->map->out_shape[d] > loop->extents[d]) return NULL;   // registers that hold nothing
    return stmt->if_.condition;
}

// The condition at each of the thread's points, or-ed; NULL when there are too many different ones for it to pay.
static Expr *holds_for_thread(Version *version, const Expr *condition) {
    enum { POINTS_FOR_A_TEST = 8 };
    Arena *arena = version->arena;
    int64_t values = tv_values(version->map);
    ExprVec tests = {0};
    Expr *any = e_bool(arena, false);
    version->element = e_int(arena, 0);
    version->temporaries = map_new(arena);
    version->vars = subst_new(arena);
    for (int64_t v = 0; v < values; v++) {
        version->group = e_int(arena, v);
        Expr *test = version_expr(version, (Expr *)condition);
        bool known = false;
        for (int t = 0; t < tests.count && !known; t++) known = expr_equal(tests.items[t], test);
        if (known) continue;
        if ((tests.count + 1) * POINTS_FOR_A_TEST > values) return NULL;
        vec_push(arena, &tests, test);
        any = e_binary(arena, BIN_LOGICAL_OR, any, test);
    }
    return tests.count > 0 ? any : NULL;
}

// Where a warp's threads can say at once that the loop has nothing to do for any of them: the block for what it does.
static Block *unless_skipped(const Version *version, Block *out) {
    Arena *arena = version->arena;
    Version asked = *version;
    asked.vector = 1;
    const Expr *condition = shared_condition(version);
    Expr *any = condition ? holds_for_thread(&asked, condition) : NULL;
    if (!any) return out;
    Var *some = var_new(arena, "some", VAR_LET, TYPE_BOOL, version->loop->origin->loc);
    block_push(arena, out, s_let(arena, some, e_call1(arena, OP_VOTE_ANY, any)));
    Stmt *only = s_if(arena, e_var(arena, some));
    only->loc = version->loop->origin->loc;
    block_push(arena, out, only);
    return &only->if_.then;
}

// ---- leaving out what is never done ----

static bool never_holds(Version *version, const Expr *condition, Expr *const *point) {
    if (condition->kind == EXPR_BINARY && condition->binary.op == BIN_LOGICAL_AND)
        return never_holds(version, condition->binary.a, point) || never_holds(version, condition->binary.b, point);
    Expr *holds = at_point(version, (Expr *)condition, point);
    int64_t known;
    if (expr_const(holds, &known)) return known == 0;
    return holds->kind == EXPR_BINARY && holds->binary.op == BIN_EQ &&
           prove(version->lower->facts, e_binary(version->arena, BIN_NE, holds->binary.a, holds->binary.b));
}

// All of the body is under a condition that no thread's first or last values can fulfil: the loop over registers, each an instruction of
// its own, begins behind the former and ends before the latter.
static void leave_out(Version *version) {
    const Block *body = &version->loop->body;
    if (body->count != 1 || body->items[0]->kind != STMT_IF || !touches_registers(version)) return;
    const Stmt *stmt = body->items[0];
    if (stmt->if_.otherwise.count > 0 || expr_reads_memory(stmt->if_.condition) || !expr_is_pure(stmt->if_.condition))
        return;
    int64_t first = version->values, last = -1;
    for (int64_t v = 0; v < version->values; v++) {
        Expr *in[2] = {lower_thread(version->lower), e_int(version->arena, version->from + v)};
        Expr *point[LAYOUT_MAX_RANK];
        layout_forward(version->arena, version->lower->facts, version->map, in, point);
        if (never_holds(version, stmt->if_.condition, point)) continue;
        first = v < first ? v : first;
        last = v;
    }
    if (last < 0) return;
    first -= first % version->vector;
    version->from += first;
    version->values = (last / version->vector + 1) * version->vector - first;
}

void lower_loop(Lower *lower, Stmt *stmt, const TileLoop *loop, Block *out) {
    lower_loop_part(lower, stmt, loop, 0, 0, out);
}

void lower_loop_part(Lower *lower, Stmt *stmt, const TileLoop *loop, int64_t first, int64_t count, Block *out) {
    Arena *arena = lower->arena;
    const char *text = attr_text(stmt->attrs, ATTR_MAP), *why = "";
    TileAccessVec accesses = {0};
    EXPECT(lower->context->failure, text, "a loop has no map");
    Version version = {.lower = lower, .arena = arena, .loop = loop, .accesses = &accesses};
    version.map = layout_parse(arena, text, 0, &why);
    EXPECT(lower->context->failure, version.map && tv_threads(version.map) == lower->threads, "bad map %s: %s", text,
           why);
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
    bool two = needs_two_versions(&version);
    Expr *whole = two ? whole_tile_inside(&version) : NULL;
    facts_release(lower->facts, mark);
    leave_out(&version);
    if (!two) {
        emit_groups(&version, unless_skipped(&version, out));
    } else if (!whole) {
        emit_guarded_elements(&version, out);
    } else {
        Stmt *choice = s_if(arena, whole);
        Version inside = version;
        inside.inside = true;
        emit_groups(&inside, &choice->if_.then);
        emit_guarded_elements(&version, &choice->if_.otherwise);
        block_push(arena, out, choice);
    }
}
