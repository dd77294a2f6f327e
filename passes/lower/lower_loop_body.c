// The body of a loop at one iteration, for one thread: elements of fragments become its own slots, those of shared
// buffers physical, those of global tensors guarded.
#include "passes/analysis/kernel_walk.h"
#include "passes/layout/fragment.h"
#include "passes/lower/lower_loop.h"
#include <string.h>

// ---- iterations ----

static Expr *value_number(Version *version) {
    Arena *arena = version->arena;
    return e_add(arena, e_times(arena, version->group, version->vector), version->element);
}

Expr *at_index(Version *version, Expr *expr, Expr *const *index_) {
    Subst *subst = subst_new(version->arena);
    for (int d = 0; d < version->loop->rank; d++) subst_var(subst, version->loop->iters[d], index_[d]);
    return simplify_expr(version->arena, version->lower->facts, subst_expr(subst, expr));
}

// An index that is read from memory is itself a load of this version: guarded, and from the thread's slots.
static Expr *read_at(Version *version, Expr *expr, Expr *const *index_) {
    Expr *outer[LAYOUT_MAX_RANK], *element = version->element;
    memcpy(outer, version->index_, sizeof outer);
    for (int d = 0; d < version->loop->rank; d++) version->index_[d] = index_[d];
    version->element = e_int(version->arena, 0);
    Expr *result = version_expr(version, expr);
    memcpy(version->index_, outer, sizeof outer);
    version->element = element;
    return result;
}

Expr **access_at(Version *version, const TileAccess *access, Expr *const *index_) {
    Expr **indices = NEW_ARRAY(version->arena, Expr *, access->count);
    for (int d = 0; d < access->count; d++)
        indices[d] = expr_reads_memory(access->indices[d]) ? read_at(version, access->indices[d], index_)
                                                           : at_index(version, access->indices[d], index_);
    return indices;
}

// ---- elements ----

static Expr *fragment_slot(Version *version, Buf *buf, int count, Expr *const *indices) {
    Arena *arena = version->arena;
    FragmentDigits at;
    int dims[LAYOUT_MAX_RANK];
    bool known = fragment_digits(version->loop, buf, count, indices, &at) && buf->layout;
    const Layout *own = known ? digits_split(arena, &at, buf->layout) : NULL;
    EXPECT(version->lower->context->failure, own, "fragment '%s' has another layout than its loop", buf->name);
    for (int k = 0; k < at.count; k++) dims[k] = at.items[k].iterator;
    Expr *slot = fragment_projected_value(arena, version->map, at.count, dims, value_number(version));
    int64_t weight = tv_values(digits_project(arena, &at, version->map, false));
    for (int k = 0; k < at.count; k++) {
        if (dims[k] >= 0) continue;
        slot = e_add(arena, slot, e_int(arena, at.items[k].value * weight));
        weight *= at.items[k].extent;
    }
    const Layout *seen = digits_covering(arena, &at, digits_project(arena, &at, version->map, true));
    if (!layout_equal(seen, own)) slot = fragment_same_thread(arena, seen, own, slot);
    EXPECT(version->lower->context->failure, slot, "fragment '%s' has another layout than its loop", buf->name);
    return lower_simple(version->lower, slot);
}

Expr *guard_of(Version *version, const Buf *buf, int count, Expr *const *indices) {
    if (buf->scope != SCOPE_GLOBAL) return NULL;
    Expr *guard = version->inside ? NULL : access_guard(version->arena, version->lower->facts, buf, count, indices);
    return e_both(version->arena, version->padding, guard);
}

static Expr *version_load(Version *version, const Expr *expr) {
    Arena *arena = version->arena;
    Buf *buf = expr->load.buf, *temporary = map_get(version->temporaries, expr);
    int count = expr->load.count;
    if (temporary) return e_load1(arena, temporary, version->element);
    if (buf->scope == SCOPE_FRAGMENT)
        return e_load1(arena, lower_local(version->lower, buf), fragment_slot(version, buf, count, expr->load.indices));
    Expr *indices[LAYOUT_MAX_RANK];
    for (int d = 0; d < count; d++) indices[d] = version_expr(version, expr->load.indices[d]);
    Expr *guard = guard_of(version, buf, count, indices);
    Expr *load = e_load_at(arena, lower_place(version->lower, buf, count, indices));
    return guard ? e_select(arena, guard, load, e_zero(arena, load->type)) : load;
}

static Expr *version_replace(Mapper *mapper, Expr *expr) {
    Version *version = mapper->user;
    if (expr->kind == EXPR_LOAD) return version_load(version, expr);
    Buf *joined = expr->kind == EXPR_BINARY ? map_get(version->temporaries, expr) : NULL;
    if (joined) return e_load1(version->arena, joined, e_int(version->arena, 0));
    for (int d = 0; d < version->loop->rank && expr->kind == EXPR_VAR; d++)
        if (version->loop->iters[d] == expr->var) return version->index_[d];
    return NULL;
}

static Expr *call_guard(const Version *version, int count, const Arg *args) {
    return version->inside ? NULL : lower_call_guard(version->lower, count, args);
}

// An atomic outside of the tensor returns 0, as a load does.
static Expr *version_simple(Mapper *mapper, Expr *expr) {
    Version *version = mapper->user;
    bool known = type_is_int(expr->type) || expr->type == TYPE_BOOL;
    Expr *guard = expr->kind == EXPR_CALL ? call_guard(version, expr->call.count, expr->call.args) : NULL;
    if (guard) expr = e_select(version->arena, guard, expr, e_zero(version->arena, expr->type));
    return known ? simplify_top(version->arena, version->lower->facts, expr) : expr;
}

static Region *version_operand(Mapper *mapper, Region *region) {
    const Version *version = mapper->user;
    Expr *indices[LAYOUT_MAX_RANK];
    for (int d = 0; d < region->count; d++) indices[d] = region->dims[d].start;
    return lower_place(version->lower, region->buf, region->count, indices);
}

static Mapper mapper_of(Version *version) {
    return (Mapper){.arena = version->arena,
                    .replace = version_replace,
                    .expr = version_simple,
                    .region = version_operand,
                    .user = version};
}

Expr *version_expr(Version *version, Expr *expr) {
    Mapper mapper = mapper_of(version);
    return map_expr(&mapper, expr);
}

// ---- statements of the body, in place ----

static void version_store(Version *version, const Stmt *stmt, Block *out) {
    Arena *arena = version->arena;
    Buf *buf = stmt->store.buf, *temporary = map_get(version->temporaries, stmt);
    int count = stmt->store.count;
    load_joined_elements(version, stmt, out);
    Expr *value = version_expr(version, stmt->store.value), *indices[LAYOUT_MAX_RANK];
    if (temporary) {
        block_store1(arena, out, temporary, version->element, value);
        return;
    }
    if (buf->scope == SCOPE_FRAGMENT) {
        Expr *slot = fragment_slot(version, buf, count, stmt->store.indices);
        block_store1(arena, out, lower_local(version->lower, buf), slot, value);
        return;
    }
    for (int d = 0; d < count; d++) indices[d] = version_expr(version, stmt->store.indices[d]);
    Expr *guard = e_both(arena, guard_of(version, buf, count, indices), version->first_replica);
    Stmt *store = s_store_at(arena, lower_place(version->lower, buf, count, indices), value);
    store->loc = stmt->loc;
    block_push(arena, block_if(arena, out, buf->scope == SCOPE_LOCAL ? NULL : guard), store);
}

static void version_body(Version *version, const Stmt *stmt, Block *body) {
    Facts *facts = version->lower->facts;
    Block lowered = {0};
    int mark = facts_mark(facts);
    facts_enter_body(facts, stmt, body);
    version_block(version, body, &lowered);
    facts_release(facts, mark);
    *body = lowered;
}

static void version_call(Version *version, Stmt *stmt, Block *out) {
    Arena *arena = version->arena;
    Buf *temporary = map_get(version->temporaries, stmt);
    if (temporary) {
        Expr *value = e_cast(arena, temporary->type, version_expr(version, stmt->call.args[1].value));
        block_store1(arena, out, temporary, version->element, value);
        return;
    }
    Mapper mapper = mapper_of(version);
    map_stmt(&mapper, stmt);
    Expr *guard = e_both(arena, call_guard(version, stmt->call.count, stmt->call.args), version->first_replica);
    block_push(arena, block_if(arena, out, guard), stmt);
}

static void version_stmt(Version *version, Stmt *stmt, Block *out) {
    switch (stmt->kind) {
    case STMT_STORE: version_store(version, stmt, out); return;
    case STMT_CALL: version_call(version, stmt, out); return;
    case STMT_BLOCK: version_block(version, &stmt->block, out); return;
    default: break;
    }
    Mapper mapper = mapper_of(version);
    map_own(&mapper, stmt);
    FOR_EACH_BODY (body, stmt) version_body(version, stmt, body);
    if (stmt->kind == STMT_LET) facts_enter(version->lower->facts, stmt);
    block_push(version->arena, out, stmt);
}

void version_block(Version *version, const Block *from, Block *to) {
    int mark = facts_mark(version->lower->facts);
    for (int i = 0, done; i < from->count; i += done) {
        done = store_joined_elements(version, from, i, to);
        if (!done) version_stmt(version, from->items[i], to), done = 1;
    }
    facts_release(version->lower->facts, mark);
}
