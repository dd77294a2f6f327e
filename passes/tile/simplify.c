// simplify: rewrites expressions and statements by what is known about their values.
//
// One walk carries facts (ir/facts.h) down the tree: bounds of iterators, values of lets, conditions on the way. Each
// expression is rebuilt under the facts of its place; then structure follows:
//
//     let a = 5; ... a ...                  the constant (and `let a = b` the name) goes to its uses
//     if (decided) x else y                 the taken branch
//     for (i in 1) x                        x with i = 0                     (not `parallel`: its maps count iterators)
//     for (i in 0) x, for (i in n) { }      nothing
//     A[i +: n, :] with n >= the tile       A[i +: tile, :], which does not clip; also where A ends there: n is M - i
//     parallel { let r = id[i]; As[i, c] = X[r, c]; }    As[i, c] = X[id[i], c]: a gather, which is copied asynchronously;
//                                           and if (r < n) As[i, c] = X[r, c]; else As[i, c] = 0; is ... = r < n ? X[r, c] : 0,
//                                           and r >= 0 ? X[r, c] : 0 is X[r, c], which is 0 there
//
// and last, lets, vars and buffers without a use are dropped. First, indices that nest deeper than a gather's get names
// (bind_indices.c). A fact holds in the whole scope of its variables, so nothing is assumed about a `var` or about
// memory, whose values change. `assume` and `when` are contracts with the caller: they give facts and are never
// simplified by them.
//
// Contraction. The language says that `a * b + c` contracts in a pass, so that emulator and device round alike: here
// f32 and f64 sums of a product become `fma`, outside of `ieee(...)`, also of a product that a let of the same block
// names for this one sum; and exp(x) of f32 becomes exp2(x * log2(e)), which is how the language defines it.
#include "passes/analysis/tile_loop.h"
#include "passes/analysis/util.h"
#include "passes/tile/tile.h"

typedef struct Simplifier {
    PassContext *context;
    Arena *arena;
    Facts *facts;
    Subst *copies;          // lets that are constants or names
    Map *used, *several;    // variables that are used, and more than once
    const Stmt *loop;       // the parallel loop; NULL: none
    VEC(Stmt *) products;   // lets of products that would have the same value here
    bool changed;
} Simplifier;

static void simplify_block(Simplifier *s, Block *block);

// ---- contraction ----

static const double log2_e = 1.44269504088896340736;

static bool protect_expr(Visitor *visitor, Expr *expr) {
    map_put(visitor->user, expr, expr);
    return true;
}

// Everything below an ieee() keeps its roundings.
static bool find_ieee(Visitor *visitor, Expr *expr) {
    if (!is_expr_call(expr, OP_IEEE)) return true;
    visit_expr(&(Visitor){.expr = protect_expr, .user = visitor->user}, expr);
    return false;
}

typedef struct Contraction {
    const Simplifier *s;
    Map *kept;   // what ieee() has
} Contraction;

// The product that the operand of a sum is; NULL: none.
static const Expr *product_of(const Contraction *contraction, const Expr *expr) {
    if (expr->kind == EXPR_VAR)
        VEC_EACH_PTR (Stmt, let, &contraction->s->products)
            if (let->let.var == expr->var) return let->let.value;
    return is_binary(expr, BIN_MUL) && !map_has(contraction->kept, expr) ? expr : NULL;
}

static Expr *fma_of(Arena *arena, Expr *a, Expr *b, Expr *c) {
    return E_CALL(arena, OP_FMA, arg_value(a), arg_value(b), arg_value(c));
}

static Expr *contract_sum(Arena *arena, Expr *sum, const Contraction *contraction) {
    Expr *a = sum->binary.a, *b = sum->binary.b;
    bool minus = sum->binary.op == BIN_SUB;
    const Expr *product = product_of(contraction, a);
    if (product) return fma_of(arena, product->binary.a, product->binary.b, minus ? e_unary(arena, UNARY_NEG, b) : b);
    product = product_of(contraction, b);
    if (!product) return sum;
    Expr *factor = minus ? e_unary(arena, UNARY_NEG, product->binary.a) : product->binary.a;
    return fma_of(arena, factor, product->binary.b, a);
}

static Expr *contract_node(Mapper *mapper, Expr *expr) {
    const Contraction *contraction = mapper->user;
    if ((expr->type != TYPE_F32 && expr->type != TYPE_F64) || map_has(contraction->kept, expr)) return expr;
    if (is_binary(expr, BIN_ADD) || is_binary(expr, BIN_SUB)) return contract_sum(mapper->arena, expr, contraction);
    if (is_expr_call(expr, OP_EXP) && expr->type == TYPE_F32) {
        Expr *scale = e_float(mapper->arena, TYPE_F32, log2_e);
        return e_call1(mapper->arena, OP_EXP2, e_binary(mapper->arena, BIN_MUL, expr->call.args[0].value, scale));
    }
    return expr;
}

static bool is_float(const Expr *expr, const void *what) {
    (void)what;
    return type_is_float(expr->type);
}

static Expr *contract(const Simplifier *s, Expr *expr) {
    if (!any_expr(expr, is_float, NULL)) return expr;
    Contraction contraction = {s, map_new(s->arena)};
    visit_expr(&(Visitor){.expr = find_ieee, .user = contraction.kept}, expr);
    return map_expr(&(Mapper){.arena = s->arena, .expr = contract_node, .user = &contraction}, expr);
}

// ---- products with a name ----

static void add_product(Simplifier *s, Stmt *let) {
    bool rounds = let->let.var->type == TYPE_F32 || let->let.var->type == TYPE_F64;
    if (rounds && is_binary(let->let.value, BIN_MUL) && !map_has(s->several, let->let.var))
        vec_push(s->arena, &s->products, let);
}

static bool reads_buf(const Expr *expr, const void *root) {
    return expr->kind == EXPR_LOAD && buf_root(expr->load.buf) == root;
}

// Behind the statement. What others do than to store to a buffer may change anything.
static void drop_products(Simplifier *s, const Stmt *stmt) {
    int kept = 0;
    if (stmt->kind == STMT_LET || stmt->kind == STMT_DECL) return;
    for (int i = 0; i < s->products.count && stmt->kind == STMT_STORE; i++) {
        Stmt *let = s->products.items[i];
        if (!any_expr(let->let.value, reads_buf, buf_root(stmt->store.buf))) s->products.items[kept++] = let;
    }
    s->products.count = kept;
}

static bool count_use(Visitor *visitor, Expr *expr) {
    Simplifier *s = visitor->user;
    if (expr->kind != EXPR_VAR) return true;
    map_put(map_has(s->used, expr->var) ? s->several : s->used, expr->var, s);
    return true;
}

// ---- comparisons ----

// The number of the last iterator of the parallel loop in the expression; -1: none is.
static int last_iterator(const Stmt *loop, const Expr *expr) {
    int last = loop->loop.count - 1;
    while (last >= 0 && !expr_uses_var(expr, loop->loop.iters[last].var)) last--;
    return last;
}

// In a parallel loop the operand with the later iterator comes first: LLVM makes other code of `i >= j` than of `j <= i`.
static Expr *mirror_comparison(Mapper *mapper, Expr *expr) {
    static const BinaryOp mirrored[][2] = {{BIN_LT, BIN_GT}, {BIN_GT, BIN_LT}, {BIN_LE, BIN_GE}, {BIN_GE, BIN_LE}};
    if (expr->kind != EXPR_BINARY || !type_is_int(expr->binary.a->type)) return expr;
    for (int i = 0; i < COUNT_OF(mirrored); i++) {
        if (expr->binary.op != mirrored[i][0]) continue;
        Expr *a = expr->binary.a, *b = expr->binary.b;
        if (last_iterator(mapper->user, a) >= last_iterator(mapper->user, b)) return expr;
        return e_binary(mapper->arena, mirrored[i][1], b, a);
    }
    return expr;
}

// ---- expressions ----

// An iterator that indexes a fragment stays, also where a condition leaves it one value: the element is the executing
// thread's own because the index is the loop's. With v[63, c] in its place, layout inference would have to give element
// (63, c) to the threads that execute the loop.
typedef struct Hiding {
    Subst *shown;   // stand-ins, which facts know nothing about -> iterators
    bool any;
} Hiding;

static Expr *hide_iterators(Mapper *mapper, Expr *expr) {
    Hiding *hiding = mapper->user;
    if (expr->kind != EXPR_LOAD || expr->load.buf->scope != SCOPE_FRAGMENT) return expr;
    Expr *indices[LAYOUT_MAX_RANK];
    for (int d = 0; d < expr->load.count; d++) {
        indices[d] = expr->load.indices[d];
        if (indices[d]->kind != EXPR_VAR || indices[d]->var->kind != VAR_ITER) continue;
        Var *stand_in = var_new(mapper->arena, indices[d]->var->name, VAR_MUTABLE, indices[d]->type, indices[d]->loc);
        subst_var(hiding->shown, stand_in, indices[d]);
        indices[d] = e_var(mapper->arena, stand_in);
        hiding->any = true;
    }
    Expr *hidden = e_load(mapper->arena, expr->load.buf, expr->load.count, indices);
    hidden->loc = expr->loc;
    return hidden;
}

// What names no element of a fragment is never reached: a fact has made a constant of its index. Registers have no place
// for it.
static bool names_no_register(const Buf *buf, int count, Expr *const *indices) {
    bool outside = false;
    for (int d = 0; d < count && buf->scope == SCOPE_FRAGMENT && count == buf->rank; d++) {
        int64_t at;
        outside |= expr_const(indices[d], &at) && (at < 0 || at >= buf_extent(buf, d));
    }
    return outside;
}

static Expr *drop_outside(Mapper *mapper, Expr *expr) {
    if (expr->kind != EXPR_LOAD || !names_no_register(expr->load.buf, expr->load.count, expr->load.indices))
        return expr;
    return e_zero(mapper->arena, expr->type);
}

static Expr *simplified(Simplifier *s, Expr *expr) {
    Hiding hiding = {subst_new(s->arena), false};
    Mapper hide = {.arena = s->arena, .expr = hide_iterators, .user = &hiding};
    Expr *hidden = map_expr(&hide, subst_expr(s->copies, expr));
    Expr *result = contract(s, simplify_expr(s->arena, s->facts, hidden));
    if (hiding.any) result = subst_expr(hiding.shown, result);
    if (s->loop)
        result = map_expr(&(Mapper){.arena = s->arena, .expr = mirror_comparison, .user = (void *)s->loop}, result);
    result = map_expr(&(Mapper){.arena = s->arena, .expr = drop_outside}, result);
    return expr_equal(result, expr) ? expr : result;
}

static Expr *simplify_whole(Mapper *mapper, Expr *expr) {
    return simplified(mapper->user, expr);
}

static void simplify_own(Simplifier *s, Stmt *stmt) {
    Mapper mapper = {.arena = s->arena, .expr = simplify_whole, .user = s, .whole = true};
    map_own(&mapper, stmt);
    s->changed |= mapper.changed;
}

static void replace(Simplifier *s, Expr **expr, Expr *by) {
    s->changed |= by != *expr;
    *expr = by;
}

static void simplify_in(Simplifier *s, Expr **expr) {
    replace(s, expr, simplified(s, *expr));
}

static bool provably(Simplifier *s, BinaryOp op, Expr *a, Expr *b) {
    Expr *condition = e_binary(s->arena, op, a, b);
    return expr_is_int(condition, 1) || prove(s->facts, condition);
}

static Expr *decide(Simplifier *s, Expr *condition) {
    if (condition->kind == EXPR_INT || !expr_is_stable(condition)) return condition;
    if (prove(s->facts, condition)) return e_bool(s->arena, true);
    if (prove(s->facts, e_unary(s->arena, UNARY_NOT, condition))) return e_bool(s->arena, false);
    return condition;
}

// What is behind a dim of a tensor reads 0 and is not written, as what is behind a clipped extent. (Of a view of one that is
// not so: rows of an im2col view must be there.)
static bool has_nothing_behind(const Buf *buf) {
    return buf->scope == SCOPE_GLOBAL && !buf->im2col;
}

// The extent always reaches the tile's end, or that of the tensor.
static bool reaches_end(Simplifier *s, const Region *region, int d, Expr *extent) {
    const RegionDim *dim = &region->dims[d];
    if (extent->kind == EXPR_CALL && extent->call.op == OP_MIN)
        return reaches_end(s, region, d, extent->call.args[0].value) &&
               reaches_end(s, region, d, extent->call.args[1].value);
    if (extent->kind == EXPR_SELECT)
        return reaches_end(s, region, d, extent->select.yes) && reaches_end(s, region, d, extent->select.no);
    if (provably(s, BIN_GE, extent, e_int(s->arena, dim->tile))) return true;
    if (!has_nothing_behind(region->buf)) return false;
    return provably(s, BIN_GE, e_add(s->arena, dim->start, extent), region->buf->shape[d]);
}

// A clipped extent that always reaches an end clips nothing.
static void unclip(Simplifier *s, Arg *arg) {
    Region *region = arg->region;
    for (int i = 0; region && i < region->count; i++) {
        RegionDim dim = region->dims[i];
        int64_t extent;
        if (!dim.extent || (expr_const(dim.extent, &extent) && extent <= dim.tile)) continue;
        if (!reaches_end(s, region, i, dim.extent)) continue;
        RegionDim *dims = arena_copy(s->arena, region->dims, sizeof *dims * (size_t)region->count);
        dims[i].extent = e_int(s->arena, dim.tile);
        region = arg->region = region_new(s->arena, region->buf, dims, region->transposed, region->loc);
        s->changed = true;
    }
}

// ---- statements ----

static bool is_name_or_constant(const Expr *expr) {
    if (expr->kind == EXPR_VAR) return expr->var->kind != VAR_MUTABLE;
    return expr->kind == EXPR_INT || expr->kind == EXPR_FLOAT;
}

// A let of something that changes later keeps the range it has now.
static void bind_range(Simplifier *s, Var *var, Expr *value) {
    if (!type_is_int(var->type)) return;
    Range range = range_of(s->facts, value);
    Expr *x = e_var(s->arena, var);
    if (range.low != INT64_MIN)
        facts_assume(s->facts, e_binary(s->arena, BIN_GE, x, e_int_of(s->arena, var->type, range.low)), true);
    if (range.high != INT64_MAX)
        facts_assume(s->facts, e_binary(s->arena, BIN_LE, x, e_int_of(s->arena, var->type, range.high)), true);
}

static void simplify_let(Simplifier *s, Stmt *stmt) {
    if (is_name_or_constant(stmt->let.value)) subst_var(s->copies, stmt->let.var, stmt->let.value);
    else if (expr_is_stable(stmt->let.value)) facts_bind(s->facts, stmt->let.var, stmt->let.value);
    else bind_range(s, stmt->let.var, stmt->let.value);
    add_product(s, stmt);
}

// A block under the condition or its negation.
static void simplify_under(Simplifier *s, const Expr *condition, bool holds, Block *block) {
    int mark = facts_mark(s->facts);
    facts_assume(s->facts, condition, holds);
    simplify_block(s, block);
    facts_release(s->facts, mark);
}

static void simplify_if(Simplifier *s, Stmt *stmt, Block *out) {
    replace(s, &stmt->if_.condition, decide(s, stmt->if_.condition));
    const Expr *condition = stmt->if_.condition;
    bool decided = condition->kind == EXPR_INT;
    if (!expr_is_int(condition, 0)) simplify_under(s, condition, true, &stmt->if_.then);
    if (!expr_is_int(condition, 1)) simplify_under(s, condition, false, &stmt->if_.otherwise);

    bool empty = stmt->if_.then.count + stmt->if_.otherwise.count == 0 && expr_is_pure(condition);
    s->changed |= decided || empty;
    if (decided) block_append(s->arena, out, condition->integer ? &stmt->if_.then : &stmt->if_.otherwise);
    else if (!empty) block_push(s->arena, out, stmt);
}

// Iterators that take one value (`once`) go to their uses; true when none is left. `parallel` keeps them: its map
// counts them.
static bool drop_single_iters(Simplifier *s, Stmt *loop, const bool *single) {
    if (loop->loop.kind == LOOP_PARALLEL || block_breaks(&loop->loop.body)) return false;
    if (attr_get(loop->attrs, ATTR_TILES)) return false;   // it has as many iterations as tile-scheduler gives it
    Subst *subst = subst_new(s->arena);
    int kept = 0, count = loop->loop.count;
    for (int i = 0; i < count; i++) {
        Iter iter = loop->loop.iters[i];
        iter.begin = subst_expr(subst, iter.begin), iter.end = subst_expr(subst, iter.end);
        if (single[i]) subst_var(subst, iter.var, iter.begin);
        else loop->loop.iters[kept++] = iter;
    }
    if (kept == count) return false;
    subst_block(subst, &loop->loop.body);
    loop->loop.count = kept;
    s->changed = true;
    return kept == 0;
}

// Arithmetic of floats stays a statement: in one expression it would contract.
static bool goes_into_gather(const Stmt *stmt) {
    if (stmt->kind != STMT_LET || !expr_is_pure(stmt->let.value)) return false;
    return !type_is_float(stmt->let.var->type) || stmt->let.value->kind == EXPR_LOAD;
}

static Expr *negated(Simplifier *s, Expr *condition) {
    if (!is_binary(condition, BIN_LOGICAL_OR)) return simplified(s, e_unary(s->arena, UNARY_NOT, condition));
    return e_both(s->arena, negated(s, condition->binary.a), negated(s, condition->binary.b));
}

// condition ? yes : no, with what is 0 last, and one condition around the other operand.
static Expr *gathered_value(Simplifier *s, Expr *condition, Expr *yes, Expr *no) {
    Arena *a = s->arena;
    Expr *zero = e_zero(a, yes->type);
    if (expr_equal(yes, zero) && !expr_equal(no, zero)) return gathered_value(s, negated(s, condition), no, yes);
    if (yes->kind != EXPR_SELECT || !expr_equal(no, zero)) return e_select(a, condition, yes, no);
    Expr *value = gathered_value(s, yes->select.condition, yes->select.yes, yes->select.no);
    if (value->kind != EXPR_SELECT || !expr_equal(value->select.no, zero)) return e_select(a, condition, value, no);
    return e_select(a, e_both(a, condition, value->select.condition), value->select.yes, no);
}

static const Expr *widened(const Expr *index) {   // the same number in a narrower type
    while (index->kind == EXPR_CAST && type_is_int(index->operand->type) &&
           type_kind(index->type) == type_kind(index->operand->type) &&
           type_bits(index->type) >= type_bits(index->operand->type))
        index = index->operand;
    return index;
}

// Where the comparison does not hold, the index is out of range: `i >= 0`, `i != -1`, `i < extent`.
static bool fails_outside(Simplifier *s, const Expr *test, const Expr *index, Expr *extent) {
    if (test->kind != EXPR_BINARY) return false;
    BinaryOp op = test->binary.op;
    const Expr *i = test->binary.a;
    Expr *limit = test->binary.b;
    if (expr_equal(widened(limit), widened(index))) {
        op = op == BIN_LT ? BIN_GT : op == BIN_LE ? BIN_GE : op == BIN_GT ? BIN_LT : op == BIN_GE ? BIN_LE : op;
        i = limit, limit = test->binary.a;
    }
    if (!expr_equal(widened(i), widened(index))) return false;
    int64_t value;
    bool known = expr_const(limit, &value);
    if (op == BIN_GE) return known && value <= 0;
    if (op == BIN_GT || op == BIN_NE) return known && value < 0;
    return op == BIN_LT && provably(s, BIN_GE, e_cast(s->arena, TYPE_I64, limit), extent);
}

// The condition reads tensors that nothing writes, and it may be evaluated where it need not be.
static bool can_choose_index(const Expr *condition) {
    return expr_reads_memory(condition) && !expr_divides(condition) && !any_expr(condition, is_computed, NULL);
}

// What is left of a gather's condition. An index out of range reads 0 by itself; so a test of tensors chooses such an index,
// since an asynchronous copy has indices from memory, and no condition. NULL: nothing.
static Expr *needed_condition(Simplifier *s, Expr *condition, Expr *load) {
    if (is_binary(condition, BIN_LOGICAL_AND)) {
        Expr *a = needed_condition(s, condition->binary.a, load), *b = needed_condition(s, condition->binary.b, load);
        return a && b ? e_both(s->arena, a, b) : a ? a : b;
    }
    for (int d = 0; d < load->load.count; d++)
        if (fails_outside(s, condition, load->load.indices[d], load->load.buf->shape[d])) return NULL;
    if (load->load.count < 2 || !can_choose_index(condition)) return condition;
    Expr **row = &load->load.indices[0];
    *row = e_select(s->arena, condition, *row, e_int_of(s->arena, (*row)->type, -1));
    return NULL;
}

static Expr *without_range_tests(Simplifier *s, Expr *value) {
    if (value->kind != EXPR_SELECT || value->select.yes->kind != EXPR_LOAD) return value;
    const Expr *from = value->select.yes;
    if (!has_nothing_behind(from->load.buf) || !expr_equal(value->select.no, e_zero(s->arena, from->type)))
        return value;
    Expr *load = e_load(s->arena, from->load.buf, from->load.count, from->load.indices);   // (of indices of its own)
    load->loc = from->loc;
    Expr *condition = needed_condition(s, value->select.condition, load);
    return condition ? e_select(s->arena, condition, load, value->select.no) : load;
}

static bool at_one_place(const Stmt *a, const Stmt *b) {
    bool same = a->store.buf == b->store.buf && a->store.count == b->store.count;
    for (int d = 0; same && d < a->store.count; d++) same = expr_equal(a->store.indices[d], b->store.indices[d]);
    return same;
}

// The one store that the statements are: lets go to their uses in it, and what is stored to one place under a condition
// and otherwise is chosen by `?:`. NULL: they are more.
static Stmt *joined_store(Arena *a, Subst *subst, const Block *body) {
    int last = body->count - 1;
    if (last < 0) return NULL;
    for (int i = 0; i < last; i++) {
        const Stmt *let = body->items[i];
        if (!goes_into_gather(let) || !subst_let(subst, let->let.var, let->let.value)) return NULL;
    }
    const Stmt *stmt = body->items[last];
    if (stmt->kind == STMT_STORE) return clone_stmt(a, subst, stmt);
    if (stmt->kind != STMT_IF || !expr_is_pure(stmt->if_.condition)) return NULL;
    Stmt *yes = joined_store(a, subst, &stmt->if_.then), *no = joined_store(a, subst, &stmt->if_.otherwise);
    if (!yes || !no || !at_one_place(yes, no)) return NULL;
    yes->store.value = e_select(a, subst_expr(subst, stmt->if_.condition), yes->store.value, no->store.value);
    return yes;
}

// A gather is one store, of an element or of 0. It stays short, since each let may double it.
static void join_gather(Simplifier *s, Stmt *loop) {
    if (loop->loop.kind != LOOP_PARALLEL) return;
    Stmt *store = joined_store(s->arena, subst_new(s->arena), &loop->loop.body);
    if (!store || !expr_is_short(store->store.value)) return;
    Expr *value = store->store.value;
    if (value->kind == EXPR_SELECT)
        value = gathered_value(s, value->select.condition, value->select.yes, value->select.no);
    value = without_range_tests(s, value);
    const Stmt *before = loop->loop.body.items[0];
    if (before->kind == STMT_STORE && expr_equal(value, before->store.value)) return;
    store->store.value = value;
    TileLoop joined = {0};
    block_push(s->arena, &joined.body, store);
    if (!tile_move(s->arena, &joined) || indices_nest(store)) return;
    loop->loop.body = joined.body;
    s->changed = true;
}

static void simplify_for(Simplifier *s, Stmt *stmt, Block *out) {
    int mark = facts_mark(s->facts);
    bool *single = NEW_ARRAY(s->arena, bool, stmt->loop.count);
    for (int i = 0; i < stmt->loop.count; i++) {
        Iter *iter = &stmt->loop.iters[i];
        simplify_in(s, &iter->begin);
        simplify_in(s, &iter->end);
        if (provably(s, BIN_LE, iter->end, iter->begin)) stmt->loop.body.count = 0;
        single[i] = provably(s, BIN_LT, iter->begin, iter->end) &&
                    provably(s, BIN_LE, iter->end, e_add(s->arena, iter->begin, iter->step));
        facts_iter(s->facts, iter);   // only now: that an iteration runs at all is true inside of the loop alone
    }
    bool inlined = stmt->loop.body.count > 0 && drop_single_iters(s, stmt, single);
    const Stmt *around = s->loop;
    if (is_loop(stmt, LOOP_PARALLEL)) s->loop = stmt;
    simplify_block(s, &stmt->loop.body);
    s->loop = around;
    join_gather(s, stmt);
    facts_release(s->facts, mark);
    if (stmt->loop.body.count == 0) s->changed = true;
    else if (inlined) block_append(s->arena, out, &stmt->loop.body);
    else block_push(s->arena, out, stmt);
}

static void simplify_while(Simplifier *s, Stmt *stmt, Block *out) {
    if (expr_is_int(stmt->while_.condition, 0)) {
        s->changed = true;
        return;
    }
    simplify_under(s, stmt->while_.condition, true, &stmt->while_.body);
    block_push(s->arena, out, stmt);
}

// Grids, roles, thread regions and plain blocks: iterators' facts around a body.
static void simplify_region(Simplifier *s, Stmt *stmt, Block *out) {
    int mark = facts_mark(s->facts);
    Iter *iters;
    Block *bodies[2];
    for (int i = 0, count = stmt_iters(stmt, &iters); i < count; i++) {
        simplify_in(s, &iters[i].begin);
        simplify_in(s, &iters[i].end);
        facts_iter(s->facts, &iters[i]);
    }
    EXPECT(s->context->failure, stmt_bodies(stmt, bodies) == 1, "a statement of kind %d with two bodies", stmt->kind);
    simplify_block(s, bodies[0]);
    facts_release(s->facts, mark);
    if (stmt->kind == STMT_BLOCK && bodies[0]->count == 0) s->changed = true;
    else block_push(s->arena, out, stmt);
}

// A contract gives facts and is not simplified by them; only names change.
static void simplify_assume(Simplifier *s, Stmt *stmt) {
    replace(s, &stmt->assume, subst_expr(s->copies, stmt->assume));
    facts_assume(s->facts, stmt->assume, true);
}

// An iterator stays an index, as hide_iterators does within expressions.
static void simplify_fragment_store(Simplifier *s, Stmt *stmt) {
    for (int d = 0; d < stmt->store.count; d++) {
        Expr *index = subst_expr(s->copies, stmt->store.indices[d]);
        bool iterator = index->kind == EXPR_VAR && index->var->kind == VAR_ITER;
        replace(s, &stmt->store.indices[d], iterator ? index : simplified(s, index));
    }
    simplify_in(s, &stmt->store.value);
}

static void simplify_stmt(Simplifier *s, Stmt *stmt, Block *out) {
    switch (stmt->kind) {
    case STMT_FOR: simplify_for(s, stmt, out); return;
    case STMT_BLOCK:
    case STMT_GRID:
    case STMT_ROLE:
    case STMT_THREAD: simplify_region(s, stmt, out); return;
    default: break;
    }
    if (stmt->kind == STMT_ASSUME) simplify_assume(s, stmt);
    else if (stmt->kind == STMT_STORE && stmt->store.buf->scope == SCOPE_FRAGMENT) simplify_fragment_store(s, stmt);
    else simplify_own(s, stmt);
    switch (stmt->kind) {
    case STMT_IF: simplify_if(s, stmt, out); return;
    case STMT_WHILE: simplify_while(s, stmt, out); return;
    case STMT_LET: simplify_let(s, stmt); break;
    case STMT_CALL:
        for (int i = 0; i < stmt->call.count; i++) unclip(s, &stmt->call.args[i]);
        break;
    default: break;
    }
    bool never = stmt->kind == STMT_STORE && names_no_register(stmt->store.buf, stmt->store.count, stmt->store.indices);
    s->changed |= never;
    if (!never) block_push(s->arena, out, stmt);
}

static void simplify_block(Simplifier *s, Block *block) {
    Block out = {0};
    int mark = facts_mark(s->facts);
    s->products.count = 0;
    FOR_EACH_ITEM (stmt, block) {
        simplify_stmt(s, stmt, &out);
        drop_products(s, stmt);
    }
    s->products.count = 0;
    facts_release(s->facts, mark);
    *block = out;
}

// ---- names without a use ----

static void use(Map *used, const void *name) {
    map_put(used, name, used);
}

static bool use_expr(Visitor *visitor, Expr *expr) {
    if (expr->kind == EXPR_VAR) use(visitor->user, expr->var);
    if (expr->kind == EXPR_LOAD) use(visitor->user, expr->load.buf);
    return true;
}

static void use_region(Visitor *visitor, Region *region, const Operand *operand) {
    (void)operand;
    use(visitor->user, region->buf);
}

static bool use_stmt(Visitor *visitor, Stmt *stmt) {
    if (stmt->kind == STMT_STORE) use(visitor->user, stmt->store.buf);
    if (stmt->kind == STMT_ASSIGN) use(visitor->user, stmt->let.var);
    if (stmt->kind == STMT_DECL && stmt->decl->alias_of) use(visitor->user, stmt->decl->alias_of);
    return true;
}

static void sweep_stmt(StmtMapper *mapper, Stmt *stmt, Block *out) {
    const Map *used = mapper->user;
    bool binds = stmt->kind == STMT_LET || stmt->kind == STMT_VAR, dead = false;
    if (binds) dead = !map_has(used, stmt->let.var) && (!stmt->let.value || expr_is_pure(stmt->let.value));
    if (stmt->kind == STMT_DECL) dead = !map_has(used, stmt->decl);
    if (dead) mapper->changed = true;
    else block_push(mapper->arena, out, stmt);
}

static bool sweep_over(Arena *arena, Func *kernel) {
    Map *used = map_new(arena);
    visit_block(&(Visitor){.expr = use_expr, .stmt = use_stmt, .region = use_region, .user = used}, &kernel->body);
    return rewrite_block(&(StmtMapper){.arena = arena, .stmt = sweep_stmt, .user = used}, &kernel->body);
}

bool pass_simplify(PassContext *context, Func *kernel) {
    Simplifier s = {.context = context, .arena = context->arena, .copies = subst_new(context->arena)};
    s.facts = facts_new(context->arena, kernel);
    s.used = map_new(context->arena), s.several = map_new(context->arena);
    visit_block(&(Visitor){.expr = count_use, .user = &s}, &kernel->body);
    s.changed = bind_indices(context->arena, &kernel->body);
    s.changed |= kernel->stage == STAGE_TILE && join_pieces(context->arena, &kernel->body);
    simplify_block(&s, &kernel->body);
    if (kernel->stage == STAGE_TILE && read_side_tables(context->arena, kernel)) {
        s.changed = true;
        simplify_block(&s, &kernel->body);
    }
    while (sweep_over(context->arena, kernel)) s.changed = true;
    return s.changed;
}
