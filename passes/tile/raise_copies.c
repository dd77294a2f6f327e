// raise-copies: loops over elements that are copies become the operation `copy`, which has mechanisms that a loop has not.
//
//     parallel (r in 128, c in 64)                                        copy(A[i * 128, k * 64], As);
//         As[r, c] = i * 128 + r < M ? A[i * 128 + r, k * 64 + c] : 0;
//     gemm(As, Bs, acc);                                              =>  gemm(As, Bs, acc);
//     parallel (r in 128, c in 128)                                       parallel (r in 128, c in 128) acc[r, c] += bias[c];
//         C[i * 128 + r, c] = acc[r, c] + bias[c];                        copy(acc, C[i * 128, 0]);
//
// Reads beyond a tensor are 0, and nothing is written there, in a loop as in a copy. So a condition goes that holds wherever
// the tensor has the element: of `?:` and `if` with zeros elsewhere, of an `if` behind a fill with zeros, of an `if` around a store to
// the tensor. A loop of several such stores is as many copies.
//
// Loops that gather get one form (normal_gathers.c), and so do `for` loops that copy rows. First, gathers to registers that only go on to a
// shared tile go there (direct_gathers.c).
//
// A loop that stores what it computes of an accumulator computes it in the accumulator, if that has no later use, and
// copies it.
//
// Then come loads in two branches (join_branches.c), pieces of one copy (join_copies.c), tiles that only hand elements on (direct_copies.c) and tiles that are
// transposed as they are loaded (transposed_tiles.c). Kernels with roles or channels stay as they are written; so do loops
// and tiles with attributes or a layout, and loops that fill fragments, where each thread loads its own elements.
//
// Last, in every kernel, copies whose rows may begin between two units of TMA are marked (`@unaligned`): what comes later asks
// tma.h for mechanisms, and has no facts.
#include "ir/build.h"
#include "ir/linear.h"
#include "ir/match.h"
#include "ir/query.h"
#include "ir/rewrite.h"
#include "passes/analysis/kernel_walk.h"
#include "passes/analysis/live_ranges.h"
#include "passes/analysis/util.h"
#include "passes/select/tma.h"
#include "passes/tile/loop_stores.h"
#include "passes/tile/tile.h"

typedef struct Raising {
    Arena *arena;
    Func *kernel;
    Map *fills;     // loop -> the zero fill directly before it
    Map *raised;    // loop -> what takes its place, a Block
    Map *dropped;   // fills
    Facts *facts;   // where the walk is
    const Stmt *loop;
} Raising;

// ---- elements as regions ----

// start + iterator. (Arithmetic of 64 bits, as that of a region.)
bool is_offset(const Expr *index, const Var *iterator) {
    if (expr_is_var(index, iterator)) return true;
    if (index->type != TYPE_I64 || index->kind != EXPR_BINARY) return false;
    const Expr *a = index->binary.a, *b = index->binary.b;
    if (index->binary.op == BIN_SUB) return !expr_uses_var(b, iterator) && is_offset(a, iterator);
    if (index->binary.op != BIN_ADD) return false;
    return expr_uses_var(a, iterator) ? !expr_uses_var(b, iterator) && is_offset(a, iterator) : is_offset(b, iterator);
}

// The iterator that the index moves with; -1: none; -2: it is no start of a region, or several.
static int iterator_of(const Stmt *loop, const Expr *index) {
    int found = -1;
    for (int i = 0; i < loop->loop.count; i++) {
        const Var *var = loop->loop.iters[i].var;
        if (!expr_uses_var(index, var)) continue;
        if (found >= 0 || !is_offset(index, var)) return -2;
        found = i;
    }
    return found;
}

// The region that the element moves over; `order`: the iterator of each kept dim. NULL: it is none.
static Region *region_over(Arena *arena, const Stmt *loop, const Element *element, int *order) {
    RegionDim dims[LAYOUT_MAX_RANK] = {0};
    int kept = 0;
    if (element->buf->im2col || element->count != element->buf->rank) return NULL;
    for (int d = 0; d < element->count; d++) {
        Expr *index = element->indices[d];
        int at = iterator_of(loop, index);
        if (at == -2 || !expr_is_pure(index)) return NULL;
        dims[d].start = index;
        if (at < 0) continue;
        for (int i = 0; i < kept; i++)
            if (order[i] == at) return NULL;
        const Iter *iter = &loop->loop.iters[at];
        int64_t extent = iter_count(iter);
        Subst *subst = subst_new(arena);
        subst_var(subst, iter->var, iter->begin);
        dims[d] = (RegionDim){subst_expr(subst, index), e_int(arena, extent), extent};
        order[kept++] = at;
    }
    return kept == loop->loop.count ? region_new(arena, element->buf, dims, false, loop->loc) : NULL;
}

// All of it is there whatever the condition was.
static bool lies_inside(const Region *region) {
    for (int d = 0; d < region->count; d++) {
        const RegionDim *dim = &region->dims[d];
        int64_t start, extent = dim->extent ? dim->tile : 1;
        if (!expr_const(dim->start, &start) || start < 0 || start + extent > buf_extent(region->buf, d)) return false;
    }
    return true;
}

// ---- conditions ----

static bool same_number(Arena *arena, const Expr *a, const Expr *b) {
    LinearSum sum = linear_new(TYPE_I64);
    linear_add(arena, &sum, a, 1);
    linear_add(arena, &sum, b, -1);
    return !sum.full && linear_is_constant(&sum, 0);
}

// The comparison is one of those that say that the tensor has the element, also where they might wrap around.
static bool says_inside(Arena *arena, const Element *inside, BinaryOp op, const Expr *a, const Expr *b) {
    if (op == BIN_GT || op == BIN_LE) return says_inside(arena, inside, op == BIN_GT ? BIN_LT : BIN_GE, b, a);
    if (a->type != TYPE_I64 || (op != BIN_LT && op != BIN_GE)) return false;
    for (int d = 0; d < inside->count; d++) {
        bool bounds = op == BIN_LT ? same_number(arena, b, inside->buf->shape[d]) : expr_is_int(b, 0);
        if (bounds && same_number(arena, a, inside->indices[d])) return true;
    }
    return false;
}

// It is so wherever the tensor has the element, as the facts say, too.
static bool implied(const Facts *facts, const Element *inside, const Expr *condition, bool holds) {
    if (condition->kind == EXPR_UNARY && condition->unary.op == UNARY_NOT)
        return implied(facts, inside, condition->unary.a, !holds);
    if (is_binary(condition, holds ? BIN_LOGICAL_AND : BIN_LOGICAL_OR))
        return implied(facts, inside, condition->binary.a, holds) && implied(facts, inside, condition->binary.b, holds);
    if (!is_comparison(condition) || !type_is_int(condition->binary.a->type)) return holds && prove(facts, condition);
    Arena *arena = facts_arena(facts);
    Expr *a = condition->binary.a, *b = condition->binary.b;
    BinaryOp op = holds ? condition->binary.op : comparison_negated(condition->binary.op);
    return says_inside(arena, inside, op, a, b) || prove(facts, e_binary(arena, op, a, b));
}

static void assume_inside(const Raising *r, const Element *element) {
    for (int i = 0; i < r->loop->loop.count; i++) facts_iter(r->facts, &r->loop->loop.iters[i]);
    for (int d = 0; d < element->count; d++) {
        facts_assume(r->facts, e_ge(r->arena, element->indices[d], e_int(r->arena, 0)), true);
        facts_assume(r->facts, e_lt(r->arena, element->indices[d], element->buf->shape[d]), true);
    }
}

// Each value of the one type is one of the other.
static bool holds_exactly(Type wide, Type narrow) {
    if (type_bits(wide) <= type_bits(narrow) || narrow == TYPE_BOOL) return false;
    if (type_is_float(narrow)) return type_is_float(wide);
    return type_is_int(narrow) && type_is_int(wide) && (type_kind(wide) == KIND_INT || type_kind(narrow) == KIND_UINT);
}

// The load of a stored value that a copy converts in the same way: conversions below the last one are exact. `selects`: the conditions on
// the way, those under which the element counts; the value is 0 elsewhere. NULL: it is something else. (A conversion to e5m2 makes
// infinities the largest number, where a copy keeps them.)
typedef struct Selected {
    const Expr *condition;
    bool holds;
} Selected;
typedef VEC(Selected) SelectedVec;

static Expr *loaded_value(Arena *arena, Expr *value, SelectedVec *selects) {
    Type stored = value->type;
    bool converted = false;
    while (value->kind != EXPR_LOAD) {
        if (value->kind == EXPR_SELECT) {
            bool holds = expr_is_zero(value->select.no);
            if (!holds && !expr_is_zero(value->select.yes)) return NULL;
            vec_push(arena, selects, ((Selected){value->select.condition, holds}));
            value = holds ? value->select.yes : value->select.no;
        } else if (value->kind == EXPR_CAST) {
            if (converted && !holds_exactly(value->type, value->operand->type)) return NULL;
            converted = true;
            value = value->operand;
        } else {
            return NULL;
        }
    }
    bool clamps = converted && stored == TYPE_E5M2 && value->type == stored;
    return clamps ? NULL : value;
}

// ---- copies ----

static bool moves_between(const Buf *from, const Buf *to) {
    bool in = from->scope == SCOPE_GLOBAL && to->scope == SCOPE_SHARED;
    bool out = (from->scope == SCOPE_SHARED || from->scope == SCOPE_FRAGMENT) && to->scope == SCOPE_GLOBAL;
    return (in && buf_is_free(to) && !attr_get(from->attrs, ATTR_ALIAS)) || (out && buf_is_free(from));
}

// The same order, or that of `.T`.
static bool same_order(const int *a, const int *b, int count, bool *transposed) {
    *transposed = false;
    for (int d = 0; d < count; d++) {
        if (a[d] == b[d]) continue;
        if (d != count - 2 || a[d] != b[d + 1] || a[d + 1] != b[d]) return false;
        return *transposed = true;
    }
    return true;
}

// A copy of the region, seen as it lies in the tensor.
static Stmt *copy_between(const Raising *r, Region *from, Region *to, bool transposed) {
    Region *tensor = from->buf->scope == SCOPE_GLOBAL ? from : to;
    tensor->transposed = transposed;
    return s_copy(r->arena, from, to, r->loop->loc);
}

// The store as a copy; NULL: it is none. Of a store under a condition the elements that it leaves are 0, or outside of the tensor.
static Stmt *raised_store(const Raising *r, Store store, const Stmt *fill) {
    SelectedVec selects = {0};
    bool transposed;
    const Expr *load = loaded_value(r->arena, store.value, &selects);
    if (!load || !moves_between(load->load.buf, store.to.buf)) return NULL;
    Element from = {load->load.buf, load->load.count, load->load.indices};
    int source_order[LAYOUT_MAX_RANK], target_order[LAYOUT_MAX_RANK];
    Region *source = region_over(r->arena, r->loop, &from, source_order);
    Region *target = region_over(r->arena, r->loop, &store.to, target_order);
    if (!source || !target || !same_order(source_order, target_order, r->loop->loop.count, &transposed)) return NULL;
    bool loads = from.buf->scope == SCOPE_GLOBAL;
    if (from.buf->scope == SCOPE_FRAGMENT && !region_is_whole(source)) return NULL;
    if (store.guard) vec_push(r->arena, &selects, ((Selected){store.guard, true}));
    if (store.guard && loads && (!fill || fill_of(fill).dst->buf != store.to.buf)) return NULL;
    if ((loads ? store.guard != NULL : selects.count > 0) && !lies_inside(loads ? target : source)) return NULL;
    int mark = facts_mark(r->facts);
    const Element *inside = loads ? &from : &store.to;
    assume_inside(r, inside);
    bool follows = true;
    VEC_EACH (const Selected, each, &selects) follows &= implied(r->facts, inside, each->condition, each->holds);
    facts_release(r->facts, mark);
    return follows ? copy_between(r, source, target, transposed) : NULL;
}

// ---- results of accumulators ----

typedef struct Results {
    const Raising *r;
    const Buf *to;
    Buf *accumulator;   // NULL: none is read
    bool safe;          // it may be computed of each element, and reads accumulators only at its own
} Results;

static bool within(const Stmt *loop, const Expr *index, int64_t extent) {
    int64_t value, end;
    if (expr_const(index, &value)) return value >= 0 && value < extent;
    for (int i = 0; i < loop->loop.count; i++) {
        const Iter *iter = &loop->loop.iters[i];
        if (expr_is_var(index, iter->var)) return iter_is_plain(iter) && expr_const(iter->end, &end) && end <= extent;
    }
    return false;
}

static bool check_result(Visitor *visitor, Expr *expr) {
    Results *results = visitor->user;
    const Raising *r = results->r;
    if (expr_divisor(expr)) results->safe = false;
    if (expr->kind != EXPR_LOAD) return true;
    Buf *buf = expr->load.buf;
    if (buf == results->to || attr_get(buf->attrs, ATTR_ALIAS)) results->safe = false;
    if (buf->scope == SCOPE_GLOBAL) return true;
    for (int d = 0; d < expr->load.count; d++)
        results->safe &= within(r->loop, expr->load.indices[d], buf_extent(buf, d));
    if (buf->scope != SCOPE_FRAGMENT || !is_accumulator(r->kernel, buf) || results->accumulator == buf) return true;
    LiveRange live = live_range(r->arena, &r->kernel->body, buf);
    bool last = live.block && live.block->items[live.last] == r->loop && buf->rank == r->loop->loop.count;
    if (last && buf_is_free(buf) && !results->accumulator) results->accumulator = buf;
    return true;
}

static bool check_element(Visitor *visitor, Expr *expr) {
    Results *results = visitor->user;
    if (expr->kind != EXPR_LOAD || expr->load.buf != results->accumulator) return true;
    int order[LAYOUT_MAX_RANK];
    Element element = {expr->load.buf, expr->load.count, expr->load.indices};
    const Region *region = region_over(results->r->arena, results->r->loop, &element, order);
    results->safe &= region && region_is_whole(region);
    for (int d = 0; results->safe && d < element.count; d++) results->safe &= order[d] == d;
    return true;
}

// parallel tensor[..] = f(accumulator[r, c]): the accumulator takes the values, and is copied. False: it is something else.
static bool raise_result(const Raising *r, const Stores *stores, Block *out) {
    Store store = stores->all.items[0], seen = store;
    look_through(stores, &seen);
    if (stores->all.count != 1 || store.to.buf->scope != SCOPE_GLOBAL) return false;
    Results results = {.r = r, .to = store.to.buf, .safe = true};
    visit_expr(&(Visitor){.expr = check_result, .user = &results}, seen.value);
    if (!results.safe || !results.accumulator) return false;
    FOR_EACH_ITEM (let, &stores->names) {
        visit_expr(&(Visitor){.expr = check_result, .user = &results}, let->let.value);
        visit_expr(&(Visitor){.expr = check_element, .user = &results}, let->let.value);
    }
    visit_expr(&(Visitor){.expr = check_element, .user = &results}, store.value);
    Expr *value = store.value->kind == EXPR_CAST && store.value->type != results.accumulator->type
                      ? store.value->operand
                      : store.value;
    if (!results.safe || value->type != results.accumulator->type) return false;
    Expr *at[LAYOUT_MAX_RANK];
    for (int i = 0; i < r->loop->loop.count; i++) at[i] = e_var(r->arena, r->loop->loop.iters[i].var);
    int rank = r->loop->loop.count;
    Expr *element = e_load(r->arena, results.accumulator, rank, at);
    store.value = seen.value = e_cast(r->arena, store.to.buf->type, element);
    Stmt *copy = raised_store(r, seen, NULL), *loop = clone_stmt(r->arena, NULL, r->loop);
    if (!copy || copy_of(copy).dst->transposed) return false;   // (columns have no mechanism of their own)
    Subst *names = subst_new(r->arena);
    for (int i = 0; i < rank; i++)
        subst_var(names, r->loop->loop.iters[i].var, e_var(r->arena, loop->loop.iters[i].var));
    Block body = {0};
    block_append(r->arena, &body, &stores->names);
    block_push(r->arena, &body, s_store(r->arena, results.accumulator, rank, at, value));
    loop->loop.body = (Block){0};
    clone_block(r->arena, names, &body, &loop->loop.body);
    block_push(r->arena, out, loop);
    block_push(r->arena, out, copy);
    return true;
}

// ---- loops ----

static bool raise_stores(const Raising *r, const Stores *stores, const Stmt *fill, Block *out) {
    VEC_EACH (const Store, each, &stores->all) {
        Store store = *each;
        look_through(stores, &store);
        Stmt *copy = raised_store(r, store, fill);
        if (!copy) return false;
        block_push(r->arena, out, copy);
    }
    return true;
}

static bool has_constant_steps(const Stmt *loop) {
    for (int i = 0; i < loop->loop.count; i++)
        if (iter_count(&loop->loop.iters[i]) <= 0 || !expr_is_int(loop->loop.iters[i].step, 1)) return false;
    return loop->loop.count <= LAYOUT_MAX_RANK;
}

static void raise_loop(void *user, Stmt *stmt, const Facts *facts) {
    Raising *r = user;
    if (stmt->kind != STMT_FOR || stmt->attrs) return;
    Stmt *loop = is_loop(stmt, LOOP_PARALLEL) ? flattened(r->arena, stmt) : rows_as_loop(r->arena, stmt);
    if (!loop) return;
    Stores stores = {.arena = r->arena, .lets = subst_new(r->arena)};
    if (!has_constant_steps(loop) || !collect_stores(&stores, &loop->loop.body)) return;
    if (stores.all.count == 0 || !are_independent(&stores)) return;
    Block *out = NEW(r->arena, Block);
    Stmt *fill = map_get(r->fills, stmt);
    r->loop = loop;
    r->facts = (Facts *)facts;   // as they were when we return
    if (!raise_stores(r, &stores, fill, out)) {
        *out = (Block){0};
        fill = NULL;
        bool raised = loop == stmt && !stores.vars && raise_result(r, &stores, out);
        if (!raised && !normal_gathers(r->arena, facts, stmt, loop, &stores, out)) return;
    }
    map_put(r->raised, stmt, out);
    FOR_EACH_ITEM (copy, out)
        if (fill && is_call(copy, OP_COPY) && copy_of(copy).dst->buf == fill_of(fill).dst->buf &&
            region_is_whole(copy_of(copy).dst))
            map_put(r->dropped, fill, fill);
}

static void find_fills(Raising *r, const Block *block) {
    for (int i = 0; i < block->count; i++) {
        if (i > 0 && is_zero_fill(block->items[i - 1])) map_put(r->fills, block->items[i], block->items[i - 1]);
        FOR_EACH_BODY (body, block->items[i]) find_fills(r, body);
    }
}

static void put_copies(StmtMapper *mapper, Stmt *stmt, Block *out) {
    const Raising *r = mapper->user;
    const Block *copies = map_get(r->raised, stmt);
    if (copies) block_append(mapper->arena, out, copies);
    else if (!map_has(r->dropped, stmt)) block_push(mapper->arena, out, stmt);
}

static bool raise_loops(Arena *arena, Func *kernel) {
    Raising r = {
        .arena = arena, .kernel = kernel, .fills = map_new(arena), .raised = map_new(arena), .dropped = map_new(arena)};
    find_fills(&r, &kernel->body);
    kernel_walk(arena, kernel, raise_loop, &r);
    if (map_count(r.raised) == 0) return false;
    rewrite_block(&(StmtMapper){.arena = arena, .stmt = put_copies, .user = &r}, &kernel->body);
    return true;
}

static bool raise_all(Arena *arena, Func *kernel) {
    bool changed = gather_directly(arena, kernel);
    changed |= raise_loops(arena, kernel);
    changed |= join_branches(arena, kernel);
    changed |= join_copies(arena, kernel);
    changed |= copy_directly(arena, kernel);
    return load_as_stored(arena, kernel) || changed;
}

// ---- rows that may begin anywhere ----

typedef struct Marking {
    Arena *arena;
    const Func *kernel;
    bool changed;
} Marking;

static void mark_copy(void *user, Stmt *stmt, const Facts *facts) {
    Marking *marking = user;
    TmaPanels panels;
    bool moves = is_global_to_shared_copy(stmt) || is_shared_to_global_copy(stmt),
         stores = is_fragment_to_global_copy(stmt);
    if ((!moves && !stores) || attr_get(stmt->attrs, ATTR_UNALIGNED)) return;
    if (moves ? tma_boxes_problem(copy_tile(stmt)->buf, &panels) || !panels.swizzle : copy_of(stmt).src->buf->rank != 2)
        return;
    if (tma_start_serves(marking->kernel, facts, copy_tensor(stmt))) return;
    attr_set_ints(marking->arena, &stmt->attrs, ATTR_UNALIGNED, 0, NULL);
    marking->changed = true;
}

static bool mark_unaligned(Arena *arena, Func *kernel) {
    Marking marking = {arena, kernel, false};
    kernel_walk(arena, kernel, mark_copy, &marking);
    return marking.changed;
}

// Results are stored by TMA where `.T` is said of the tensor.
static bool transpose_tensors(Arena *arena, Func *kernel) {
    bool changed = false;
    FOR_EACH_STMT_MUT (stmt, &kernel->body) {
        if (!is_fragment_to_global_copy(stmt) || !copy_of(stmt).src->transposed) continue;
        Region *from = clone_region(arena, NULL, copy_of(stmt).src), *to = clone_region(arena, NULL, copy_of(stmt).dst);
        place_transposition(from, to);
        call_set_arg(arena, stmt, OPERAND_INDEX(COPY, src), arg_region(from));
        call_set_arg(arena, stmt, OPERAND_INDEX(COPY, dst), arg_region(to));
        changed = true;
    }
    return changed;
}

bool raise_copies(Arena *arena, Func *kernel) {
    bool raised = has_free_form(kernel) && raise_all(arena, kernel);
    raised |= has_free_form(kernel) && transpose_tensors(arena, kernel);
    return mark_unaligned(arena, kernel) || raised;
}

bool pass_raise_copies(PassContext *context, Func *kernel) {
    return raise_copies(context->arena, kernel);
}
