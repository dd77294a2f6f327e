// Loads in the two branches of a condition are one load:
//
//     if (k * 64 < lens[m]) copy(A[m * 64, k * 64], As);          let needed = k * 64 < lens[m];
//     else fill(As, 0);                                       =>  copy(A[needed ? m * 64 : M, k * 64], As);
//
//     if (k < split) copy(B[k * 64, 0], Bs);                      let needed = k < split;
//     else copy(B[(k + 9) * 64, 0], Bs);                      =>  copy(B[needed ? k * 64 : (k + 9) * 64, 0], Bs);
//
// Loads from two tensors stay two, and have a condition for each tile: as one load, a condition has slots and a role, too.
//
// What lies beyond a tensor is 0, so a load that a condition leaves out begins behind the last row. A gather stores 0 by itself. A fill before the
// condition counts as its other branch.
//
// Each branch writes the same regions of shared tiles, does nothing else, and has names only for itself. A load of a tensor of one dim
// stays: where elements are neighbours, TMA begins at certain ones only.
#include "ir/build.h"
#include "ir/match.h"
#include "ir/query.h"
#include "ir/rewrite.h"
#include "passes/analysis/util.h"
#include "passes/pipeline/async_copy_legality.h"
#include "passes/tile/loop_stores.h"
#include "passes/tile/tile.h"
#include <string.h>

enum { MOST_LOADS = 8 };   // of a branch

typedef struct Branch {
    int count;
    Stmt *loads[MOST_LOADS];   // or fills with 0
} Branch;

// ---- the branches ----

static bool is_zeros(const Stmt *stmt) {
    FillOp fill;
    return match_fill(stmt, &fill) && !stmt->attrs && expr_is_zero(fill.value) && fill.dst->buf->scope == SCOPE_SHARED;
}

// A loop that moves elements of tensors to all of a tile, whatever names and conversions it has: those go by themselves.
static bool is_gather(Arena *arena, const Stmt *stmt, Store *store) {
    if (!tile_store(arena, stmt, store) || store->to.buf->scope != SCOPE_SHARED) return false;
    const Expr *element = moved_element(store->value);
    return element && element->load.buf->scope == SCOPE_GLOBAL;
}

static bool is_plain_copy(const Stmt *stmt) {
    if (!is_bare_copy(stmt) || !is_global_to_shared_copy(stmt)) return false;
    const Buf *tensor = copy_of(stmt).src->buf;
    return !tensor->im2col && !attr_get(tensor->attrs, ATTR_ALIAS);
}

// The tile that the statement loads, or fills with zeros; NULL: it does something else.
static Buf *written_tile(Arena *arena, const Stmt *stmt) {
    Store store;
    Buf *tile = NULL;
    if (is_zeros(stmt)) tile = fill_of(stmt).dst->buf;
    else if (is_plain_copy(stmt)) tile = copy_of(stmt).dst->buf;
    else if (stmt->kind == STMT_IF) tile = loaded_tile(stmt);
    else if (is_gather(arena, stmt, &store)) tile = store.to.buf;
    return tile && buf_is_free(tile) ? tile : NULL;
}

// A loop that fills a tile with zeros as that fill; any other statement itself.
static Stmt *as_fill(Arena *arena, Stmt *stmt) {
    Store store;
    if (!tile_store(arena, stmt, &store) || store.to.buf->scope != SCOPE_SHARED || !expr_is_zero(store.value))
        return stmt;
    Arg args[] = {arg_region(region_whole(arena, store.to.buf)), arg_value(e_zero(arena, store.value->type))};
    Stmt *fill = s_call(arena, OP_FILL, COUNT_OF(args), args);
    fill->loc = stmt->loc;
    return fill;
}

// False: the block does something else.
static bool find_loads(Arena *arena, const Block *block, Branch *branch) {
    Subst *lets = subst_new(arena);
    branch->count = 0;
    FOR_EACH_ITEM (stmt, block) {
        if (stmt->kind == STMT_LET && expr_is_pure(stmt->let.value) && subst_let(lets, stmt->let.var, stmt->let.value))
            continue;
        Stmt *load = as_fill(arena, stmt);
        if (branch->count == MOST_LOADS || !written_tile(arena, load)) return false;
        load = clone_stmt(arena, lets, load);
        for (int i = 0; i < branch->count; i++)
            if (stmt_touches(arena, load, written_tile(arena, branch->loads[i])) ||
                stmt_touches(arena, branch->loads[i], written_tile(arena, load)))
                return false;
        branch->loads[branch->count++] = load;
    }
    return true;
}

// Zeros that the statements directly before give the tile; -1: they do not.
static int fill_before(Arena *arena, const Block *out, const Buf *tile) {
    for (int i = out->count - 1; i >= 0 && is_zeros(out->items[i]); i--)
        if (written_tile(arena, out->items[i]) == tile) return i;
    return -1;
}

// ---- two loads as one ----

static bool same_extents(const Region *a, const Region *b) {
    bool same = a->count == b->count && a->transposed == b->transposed;
    for (int d = 0; same && d < a->count; d++) {
        const RegionDim *x = &a->dims[d], *y = &b->dims[d];
        same = !x->extent == !y->extent && x->tile == y->tile && (!x->extent || expr_equal(x->extent, y->extent));
    }
    return same;
}

static bool same_region(const Region *a, const Region *b) {
    bool same = a->buf == b->buf && same_extents(a, b);
    for (int d = 0; same && d < a->count; d++) same = expr_equal(a->dims[d].start, b->dims[d].start);
    return same;
}

static const Region *written_region(const Stmt *stmt) {
    return is_zeros(stmt) ? fill_of(stmt).dst : copy_of(stmt).dst;
}

static Stmt *copy_from(Arena *arena, const Stmt *copy, const RegionDim *dims) {
    const Region *from = copy_of(copy).src;
    Region *chosen = region_new(arena, from->buf, dims, from->transposed, from->loc);
    return s_copy(arena, chosen, copy_of(copy).dst, copy->loc);
}

// The copy, or zeros where the condition does not have the value.
static Stmt *copy_if(Arena *arena, Expr *condition, bool value, const Stmt *copy) {
    RegionDim dims[LAYOUT_MAX_RANK];
    const Region *from = copy_of(copy).src;
    if (from->count < 2) return NULL;
    memcpy(dims, from->dims, sizeof *dims * (size_t)from->count);
    Expr *start = e_cast(arena, TYPE_I64, dims[0].start), *behind = e_cast(arena, TYPE_I64, from->buf->shape[0]);
    dims[0].start = e_select(arena, condition, value ? start : behind, value ? behind : start);
    return copy_from(arena, copy, dims);
}

static Stmt *gather_if(Arena *arena, Expr *condition, bool value, const Stmt *gather) {
    Store store;
    if (!is_gather(arena, gather, &store)) return NULL;
    Expr *zero = e_zero(arena, store.value->type);
    store.value = e_select(arena, condition, value ? store.value : zero, value ? zero : store.value);
    return loop_storing(arena, gather, &store, store.to.buf);
}

static Stmt *chosen_copy(Arena *arena, Expr *condition, const Stmt *yes, const Stmt *no) {
    RegionDim dims[LAYOUT_MAX_RANK];
    const Region *a = copy_of(yes).src, *b = copy_of(no).src;
    if (a->buf != b->buf || !same_extents(a, b)) return NULL;
    memcpy(dims, a->dims, sizeof *dims * (size_t)a->count);
    for (int d = 0; d < a->count; d++)
        if (!expr_equal(a->dims[d].start, b->dims[d].start))
            dims[d].start = e_select(arena, condition, e_cast(arena, TYPE_I64, a->dims[d].start),
                                     e_cast(arena, TYPE_I64, b->dims[d].start));
    return copy_from(arena, yes, dims);
}

// What both write, as one load; NULL: it takes two.
static Stmt *joined_load(Arena *arena, Expr *condition, const Stmt *yes, const Stmt *no) {
    bool value = is_zeros(no);
    const Stmt *load = value ? yes : no, *other = value ? no : yes;
    if (is_zeros(load) || load->kind == STMT_IF || other->kind == STMT_IF) return NULL;
    if (load->kind == STMT_FOR)
        return is_zero_fill(other) && written_tile(arena, other) == written_tile(arena, load)
                   ? gather_if(arena, condition, value, load)
                   : NULL;
    if (other->kind == STMT_FOR || !same_region(written_region(load), written_region(other))) return NULL;
    return is_zeros(other) ? copy_if(arena, condition, value, load) : chosen_copy(arena, condition, yes, no);
}

static bool fills_all(const Stmt *load) {
    return load->kind != STMT_CALL || region_is_whole(written_region(load));
}

// One tile's loads, each in its branch; NULL: one is none, or leaves some of the tile out.
static Stmt *chosen_load(Arena *arena, Expr *condition, Stmt *yes, Stmt *no) {
    if (is_zeros(yes) || is_zeros(no) || !fills_all(yes) || !fills_all(no)) return NULL;
    Stmt *choice = s_if(arena, condition);
    choice->loc = yes->loc;
    block_push(arena, &choice->if_.then, yes);
    block_push(arena, &choice->if_.otherwise, no);
    return choice;
}

// ---- the condition ----

static Stmt *load_to(Arena *arena, const Branch *branch, const Stmt *like) {
    for (int i = 0; i < branch->count; i++)
        if (written_tile(arena, branch->loads[i]) == written_tile(arena, like)) return branch->loads[i];
    return NULL;
}

// The condition, which reads nothing that the loads write, has a name, unless it is one.
static Expr *condition_of(Arena *arena, Stmt *stmt, Block *out) {
    Expr *condition = stmt->if_.condition;
    if (condition->kind == EXPR_VAR && condition->var->kind != VAR_MUTABLE) return condition;
    return block_let(arena, out, "needed", condition, stmt->loc);
}

// False: the condition stays.
static bool join_branches_of(Arena *arena, Stmt *stmt, Block *out) {
    Branch yes, no;
    Block before = {0}, loads = {0};
    if (stmt->kind != STMT_IF || !expr_is_pure(stmt->if_.condition)) return false;
    if (!find_loads(arena, &stmt->if_.then, &yes) || !find_loads(arena, &stmt->if_.otherwise, &no)) return false;
    block_append(arena, &before, out);
    for (int i = 0; i < yes.count && no.count < yes.count && stmt->if_.otherwise.count == 0; i++) {
        int fill = fill_before(arena, &before, written_tile(arena, yes.loads[i]));
        if (fill < 0 || expr_uses_buf(stmt->if_.condition, written_tile(arena, yes.loads[i]))) return false;
        FOR_EACH_EFFECT (effect, arena, yes.loads[i])   // it reads the zeros
            if (effect->access == ACCESS_READ && effect->buf == written_tile(arena, yes.loads[i])) return false;
        no.loads[no.count++] = before.items[fill];
        block_remove(&before, fill);
    }
    if (yes.count == 0 || yes.count != no.count) return false;
    Expr *condition = condition_of(arena, stmt, &before);
    for (int i = 0; i < yes.count; i++) {
        Stmt *other = load_to(arena, &no, yes.loads[i]);
        Stmt *load = other ? joined_load(arena, condition, yes.loads[i], other) : NULL;
        if (!load && other && yes.count > 1) load = chosen_load(arena, condition, yes.loads[i], other);
        if (!load || expr_uses_buf(stmt->if_.condition, written_tile(arena, other))) return false;
        block_push(arena, &loads, load);
    }
    *out = before;
    block_append(arena, out, &loads);
    return true;
}

static bool join_block(Arena *arena, Block *block) {
    bool changed = false;
    Block out = {0};
    FOR_EACH_ITEM (stmt, block) {
        if (!is_loop(stmt, LOOP_PARALLEL) && stmt->kind != STMT_THREAD)
            FOR_EACH_BODY (body, stmt) changed |= join_block(arena, body);
        if (join_branches_of(arena, stmt, &out)) changed = true;
        else block_push(arena, &out, stmt);
    }
    *block = out;
    return changed;
}

bool join_branches(Arena *arena, Func *kernel) {
    return join_block(arena, &kernel->body);
}
