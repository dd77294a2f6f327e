// Statements.
#include "frontend/sema.h"
#include "ir/query.h"
#include "ir/rewrite.h"
#include "ir/schedule.h"
#include "ir/verify.h"
#include <string.h>

void emit(Sema *s, Stmt *stmt) {
    block_push(s->arena, s->block, stmt);
}

static Stmt *new_stmt(Sema *s, StmtKind kind, const Node *node) {
    return stmt_new(s->arena, kind, place_of(s, node->span));
}

// ---- bodies ----
void statements(Sema *s, const Node *block) {
    for (int i = 0; i < block->count; i++) statement(s, block->kids[i]);
}

void body(Sema *s, const Node *block, Block *out) {
    NameScope scope;
    Block *outer = s->block;
    s->block = out;
    scope_open(s, &scope);
    s->nested++;
    statements(s, block);
    s->nested--;
    scope_close(s);
    s->block = outer;
}

static void loop_body(Sema *s, const Node *block, Block *out) {
    s->loops++;
    body(s, block, out);
    s->loops--;
}

// A block has one control flow: what decides it and has an effect happens once, and all threads are told.
static bool is_block_level(const Sema *s) {
    return s->context == IN_BLOCK && !s->in_thread && !s->in_parallel && !s->verbatim;
}

static Expr *told(Sema *s, Expr *condition, Span span) {
    if (!is_block_level(s) || !expr_must_not_repeat(condition)) return condition;
    Var *var = var_new(s->arena, "holds", VAR_LET, TYPE_BOOL, place_of(s, span));
    Stmt *stmt = s_let(s->arena, var, condition);
    stmt->loc = var->loc;
    emit(s, stmt);
    return e_var(s->arena, var);
}

// An element of a fragment is told to all threads by a statement: one of its own, where a loop asks for it.
static bool is_fragment_element(const Expr *expr, const void *what) {
    (void)what;
    return expr->kind == EXPR_LOAD && expr->load.buf->scope == SCOPE_FRAGMENT;
}

static bool asks_fragment(const Sema *s, const Expr *expr) {
    return is_block_level(s) && any_expr(expr, is_fragment_element, NULL);
}

// So does a bound that the body may write: a barrier may stand behind the statement, and none between a loop's bound and its
// first iteration.
static bool may_change(const Expr *expr, const void *what) {
    (void)what;
    return expr->kind == EXPR_LOAD && expr->load.buf->scope != SCOPE_LOCAL && !buf_is_constant(expr->load.buf);
}

static Expr *loop_bound(Sema *s, const Node *node, bool first) {
    Expr *bound = index_expression(s, node);
    if (!first || !is_block_level(s) || !any_expr(bound, may_change, NULL)) return bound;
    Var *var = var_new(s->arena, "bound", VAR_LET, TYPE_I64, place_of(s, node->span));
    Stmt *stmt = s_let(s->arena, var, bound);
    stmt->loc = var->loc;
    emit(s, stmt);
    return e_var(s->arena, var);
}

// ---- scalars ----
static void let_view(Sema *s, const Node *node) {
    const View *view = view_named(s, node->kids[0]);
    if (view) declare_view(s, node->text, view, node->span);
    else declare_value(s, node->text, value_poison(node->span), node->span);
}

static void const_statement(Sema *s, const Node *node) {
    static const char *const remedy = "`let` names a value that is computed, also by an index of the grid or a loop";
    declare_value(s, node->text, constant_or(s, node->kids[0], "a const", remedy), node->span);
}

static void let(Sema *s, const Node *node) {
    if (is_view(s, node->kids[0]) && !is_held_scalar(s, node->kids[0])) {
        let_view(s, node);
        return;
    }
    SemaValue value = expression(s, node->kids[0]);
    if (is_host_value(s) && !is_poison(value)) {
        if (is_untyped(value)) value = value_expr(s, settle(s, value), value.span);
        if (!is_poison(value) && !expr_is_stable(value.expr)) {
            report_on_host(s->sink, value.span, node->text);
            value = value_poison(node->span);
        }
        if (value.kind == VALUE_EXPR && !host_value_fits(s, value.expr, value.span)) value = value_poison(node->span);
        declare_value(s, node->text, value, node->span);
        return;
    }
    Expr *expr = settle(s, value);
    int64_t truth;
    if (is_poison(value)) {
        declare_value(s, node->text, value, node->span);
        return;
    }
    if (!s->verbatim && expr->type == TYPE_BOOL && expr_const(expr, &truth)) {   // it decides as its text would
        declare_value(s, node->text, value_expr(s, expr, node->span), node->span);
        return;
    }
    Var *var = declare_var(s, node->text, VAR_LET, expr->type, node->span);
    channel_holds(s, var, expr);
    if (expr_is_stable(expr)) facts_bind(known_facts(s), var, expr);
    emit(s, s_let(s->arena, var, expr));
}

static void variable(Sema *s, const Node *node) {
    Type type = find_type(s, node->kids[0]);
    if (type != TYPE_NONE && type_kind(type) == KIND_OPAQUE && !(type == TYPE_SLOT && node->kids[1])) {
        diag(s->sink, node->kids[0]->span, T_NOT_SCALAR_TYPE, type_text(type));
        type = TYPE_NONE;
    }
    Expr *value = node->kids[1] ? value_of_type(s, node->kids[1], type) : NULL;
    if (type == TYPE_NONE) {
        declare_value(s, node->text, value_poison(node->span), node->span);
        return;
    }
    if (!value && !s->verbatim) value = e_zero(s->arena, type);
    Var *var = declare_var(s, node->text, VAR_MUTABLE, type, node->span);
    if (value) channel_holds(s, var, value);
    emit(s, s_var(s->arena, var, value));
}

static void assign_scalar(Sema *s, const Node *node) {
    const Node *place = node->kids[0];
    Symbol *symbol = find_or_report(s, place);
    if (!symbol) {
        expression(s, node->kids[1]);   // for its own errors
        return;
    }
    if (symbol->kind == SYMBOL_VALUE && is_poison(symbol->value)) return;
    if (symbol->kind != SYMBOL_VAR || symbol->var->kind != VAR_MUTABLE) {
        Diag *d = diag(s->sink, place->span, T_NOT_ASSIGNABLE, place->text);
        diag_label(d, symbol->span, "declared here");
        if (symbol->kind == SYMBOL_BUF || symbol->kind == SYMBOL_VIEW)
            diag_note(d, "all of a buffer: fill(%s, ...), copy, or a parallel loop", place->text);
        return;
    }
    Var *var = symbol->var;
    Expr *value;
    if (node->op == AST_PLAIN) {
        value = value_of_type(s, node->kids[1], var->type);
    } else {
        SemaValue old = value_expr(s, e_var(s->arena, var), place->span);
        value = to_type(s, binary(s, (BinaryOp)node->op, old, expression(s, node->kids[1]), node->span), var->type);
    }
    Stmt *stmt = s_assign(s->arena, var, value);
    stmt->loc = place_of(s, node->span);
    emit(s, stmt);
}

// ---- stores ----
static bool may_write(Sema *s, const Buf *buf, Span span) {
    if (!buf->is_param || buf->mode != MODE_IN || s->context == IN_FILL) return true;
    Diag *d = diag(s->sink, span, T_READ_ONLY, buf->name);
    diag_label(d, buf->loc, "declared here");
    return false;
}

static void store(Sema *s, const Node *node) {
    Place place;
    Span span = node->kids[0]->span;
    if (!element_place(s, node->kids[0], &place) || !may_write(s, place.buf, span)) return;
    if (!place_may_be_stored(s, &place, span)) return;
    Buf *buf = place.buf;
    int count = place.count;
    Expr **indices = place.indices;
    SemaValue *earlier = NEW_ARRAY(s->arena, SemaValue, count + 1);
    for (int i = 0; i < count; i++) earlier[i] = value_expr(s, indices[i], span);
    bool plain = node->op == AST_PLAIN;
    if (!plain) earlier[count] = value_expr(s, place_value(s, &place), span);
    // Beyond the end nothing is stored, but what the value does happens; into its registers each thread stores.
    bool copied = buf->scope == SCOPE_GLOBAL || (buf->scope == SCOPE_FRAGMENT && is_block_level(s));
    s->copied += copied;
    SemaValue given = value_after(s, plain ? count : count + 1, earlier, node->kids[1]);
    s->copied -= copied;
    for (int i = 0; i < count; i++) indices[i] = earlier[i].expr;
    Type type = place_type(&place);
    Expr *value = plain ? as_type(s, given, type)
                        : to_type(s, binary(s, (BinaryOp)node->op, earlier[count], given, node->span), type);
    place_store(s, s->block, &place, value, node->span);
}

static void assignment(Sema *s, const Node *node) {
    const Node *place = node->kids[0];
    const Symbol *named = place->kind == N_NAME ? find(s, place->text) : NULL;
    bool handle = named && named->kind == SYMBOL_VAR && named->var->type == TYPE_SLOT;
    bool scalar = !handle && is_view(s, place) && place->kind != N_INDEX && view_named(s, place) &&
                  view_named(s, place)->rank == 0;
    if (place->kind == N_INDEX || scalar) store(s, node);
    else if (place->kind == N_NAME) assign_scalar(s, node);
    else diag(s->sink, place->span, T_NOT_A_PLACE);
}

// ---- loops ----
static Iter iterator(Sema *s, const Node *node, bool first) {
    Iter iter = {.begin = e_int(s->arena, 0), .step = e_int(s->arena, 1)};
    if (node->kids[0]) iter.begin = loop_bound(s, node->kids[0], first);
    iter.end = loop_bound(s, node->kids[1], first);
    int64_t step;
    if (node->kids[2] && constant_int(s, node->kids[2], "the step of a loop", INT64_MIN, INT64_MAX, &step)) {
        iter.step = e_int(s->arena, step);
        if (step <= 0) diag(s->sink, node->kids[2]->span, T_STEP, (long long)step);
    }
    iter.var = declare_var(s, node->text, VAR_ITER, TYPE_I64, node->span);
    int64_t begin;
    if (expr_const(iter.begin, &begin) && begin >= 0) map_put(s->naturals, iter.var, iter.var);
    facts_iter(known_facts(s), &iter);
    return iter;
}

static int iterators(Sema *s, const Node *list, Iter **out, bool from_zero) {
    int count = 0;
    *out = NEW_ARRAY(s->arena, Iter, list->count + 1);
    for (int i = 0; i < list->count; i++) {
        const Node *item = list->kids[i];
        if (item->kind != N_ITER) continue;
        if (from_zero && (item->kids[0] || item->kids[2]))
            diag(s->sink, item->span, T_GRID_RANGE, item->text, "start at 0 and step by 1");
        (*out)[count] = iterator(s, item, count == 0);
        count++;
    }
    return count;
}

static void loop_option(Sema *s, const Node *node, const Node *option, Stmt *loop) {
    const Node *value = option->kids[0];
    if (strcmp(option->text, "stages") == 0 && node->op == LOOP_PIPELINED) {
        int64_t stages;
        if (loop->loop.stages) diag(s->sink, option->span, T_DUPLICATE_NAME, option->text);
        if (constant_int(s, value, "the number of stages", 1, 64, &stages)) loop->loop.stages = e_int(s->arena, stages);
    } else if (strcmp(option->text, "step") == 0 && loop->loop.count > 0) {   // of the last iterator before it
        loop->loop.iters[loop->loop.count - 1].step = index_expression(s, value);
    } else {
        diag(s->sink, option->span, T_LOOP_OPTION, option->text);
    }
}

// `for (tile in tiles)`: over those of the CTA. Until tile-scheduler has dealt them out, that is one.
static bool is_over_tiles(Sema *s, const Node *node) {
    const Node *item = node->kids[0]->count == 1 ? node->kids[0]->kids[0] : NULL;
    if (node->op != LOOP_SERIAL || !item || item->kind != N_ITER || item->kids[0] || item->kids[2]) return false;
    return item->kids[1]->kind == N_NAME && !strcmp(item->kids[1]->text, "tiles") && !find(s, "tiles");
}

static void tile_iterator(Sema *s, const Node *node, Stmt *loop) {
    loop->loop.iters = NEW(s->arena, Iter);
    Var *var = declare_var(s, node->text, VAR_ITER, TYPE_I64, node->span);
    loop->loop.iters[loop->loop.count++] = iter_new(s->arena, var, e_int(s->arena, 1));
    attr_set_ints(s->arena, &loop->attrs, ATTR_TILES, 0, NULL);
}

static void loop(Sema *s, const Node *node) {
    NameScope scope;
    Stmt *stmt = new_stmt(s, STMT_FOR, node);
    bool scalar = s->context == IN_REFERENCE || s->context == IN_FILL;   // where `unroll`, as in a macro, is `for`
    stmt->loop.kind = scalar ? LOOP_SERIAL : (LoopKind)node->op;
    scope_open(s, &scope);
    if (is_over_tiles(s, node)) tile_iterator(s, node->kids[0]->kids[0], stmt);
    else stmt->loop.count = iterators(s, node->kids[0], &stmt->loop.iters, false);
    for (int i = 0; i < node->kids[0]->count; i++)
        if (node->kids[0]->kids[i]->kind == N_NAMED) loop_option(s, node, node->kids[0]->kids[i], stmt);
    if (stmt->loop.count == 0) diag(s->sink, node->span, T_NO_ITERATOR);
    bool in_parallel = s->in_parallel, in_pipelined = s->in_pipelined;
    int loops = s->loops;
    if (node->op == LOOP_PARALLEL) s->in_parallel = true, s->loops = -1;
    s->in_pipelined |= node->op == LOOP_PIPELINED;
    loop_body(s, node->kids[1], &stmt->loop.body);
    s->in_parallel = in_parallel;
    s->in_pipelined = in_pipelined;
    s->loops = loops;
    scope_close(s);
    emit(s, stmt);
}

// `while (load(...) == 0) {}`: every thread waits by itself, and all know the same behind it.
static bool is_wait(const Node *node, const Expr *condition) {
    return node->kids[1]->count == 0 && !expr_writes_memory(condition);
}

static void while_loop(Sema *s, const Node *node) {
    Stmt *stmt = new_stmt(s, STMT_WHILE, node);
    Block extra = {0}, *outer = s->block;
    s->block = &extra;   // what the condition emits is computed anew each time
    Expr *condition = to_condition(s, expression(s, node->kids[0]));
    if (!is_wait(node, condition)) condition = told(s, condition, node->kids[0]->span);
    s->block = outer;
    stmt->while_.condition = condition;
    if (extra.count > 0 || asks_fragment(s, condition)) {
        Stmt *leave = s_if(s->arena, e_unary(s->arena, UNARY_NOT, condition));
        leave->loc = stmt->loc;
        block_push(s->arena, &leave->if_.then, stmt_new(s->arena, STMT_BREAK, stmt->loc));
        block_push(s->arena, &extra, leave);
        stmt->while_.condition = e_bool(s->arena, true);
        stmt->while_.body = extra;
    }
    loop_body(s, node->kids[1], &stmt->while_.body);
    if (!s->verbatim && expr_is_int(condition, 0)) return;
    emit(s, stmt);
}

// A condition that is constant chooses at compile time: the other branch is not even looked at.
static void if_statement(Sema *s, const Node *node) {
    Expr *condition = told(s, to_condition(s, expression(s, node->kids[0])), node->kids[0]->span);
    int64_t known;
    if (!s->verbatim && expr_const(condition, &known)) {
        const Node *taken = node->kids[known ? 1 : 2];
        if (taken) body(s, taken, s->block);
        return;
    }
    Stmt *stmt = new_stmt(s, STMT_IF, node);
    stmt->if_.condition = condition;
    body(s, node->kids[1], &stmt->if_.then);
    if (node->kids[2]) body(s, node->kids[2], &stmt->if_.otherwise);
    emit(s, stmt);
}

static void break_statement(Sema *s, const Node *node) {
    if (s->loops <= 0) {
        diag(s->sink, node->span, T_BREAK_OUTSIDE);
        return;
    }
    emit(s, new_stmt(s, STMT_BREAK, node));
}

// ---- the grid and what stands in it ----

static void raster(Sema *s, const Node *node, Stmt *grid) {
    TileOrder order = {.kind = ORDER_RASTER};
    const Symbol *constant = node->kind == N_NAME ? find(s, node->text) : NULL;   // the program's own name comes first
    bool own = constant && (constant->kind == SYMBOL_CONST || constant->kind == SYMBOL_VALUE);
    if (node->kind == N_NAME && !own && strcmp(node->text, "hilbert") == 0) order.kind = ORDER_HILBERT;
    else if (!constant_int(s, node, "raster", 1, INT32_MAX, &order.rows)) return;
    set_order(s->arena, grid, order);
}

static void grid_options(Sema *s, const Node *list, Stmt *grid) {
    options_differ(s, list);
    for (int i = 0; i < list->count; i++) {
        const Node *option = list->kids[i];
        int64_t value;
        if (option->kind == N_PERSISTENT) set_claim(s->arena, grid, (TileClaim){.kind = CLAIM_STATIC});
        if (option->kind == N_RASTER) raster(s, option->kids[0], grid);
        if (option->kind != N_CLUSTER) continue;
        if (option->count > 3) diag(s->sink, option->span, T_CLUSTER, MOST_CLUSTER);
        for (int d = 0; d < option->count && d < 3; d++)
            if (constant_int(s, option->kids[d], "a cluster extent", 1, MOST_CLUSTER, &value))
                grid->grid.cluster[d] = (int)value;
    }
}

enum { MOST_TILE_THREADS = 1 << 14 };   // of the largest cluster of blocks; what fits is the target's to say

static void grid(Sema *s, const Node *node) {
    if (s->context != IN_KERNEL || s->grids++ > 0) {
        diag(s->sink, node->span, T_ONE_GRID);
        return;
    }
    NameScope scope;
    Stmt *stmt = new_stmt(s, STMT_GRID, node);
    int64_t threads = 1;
    scope_open(s, &scope);
    stmt->grid.count = iterators(s, node->kids[0], &stmt->grid.iters, true);
    constant_int(s, node->kids[1], "the number of threads", 1, MOST_TILE_THREADS, &threads);
    stmt->grid.threads = e_int(s->arena, threads);
    for (int d = 0; d < 3; d++) stmt->grid.cluster[d] = 1;
    grid_options(s, node->kids[2], stmt);
    s->context = IN_BLOCK;
    body(s, node->kids[3], &stmt->grid.body);
    s->context = IN_KERNEL;
    scope_close(s);
    emit(s, stmt);
}

static void thread(Sema *s, const Node *node) {
    NameScope scope;
    Stmt *stmt = new_stmt(s, STMT_THREAD, node);
    bool outer = s->in_thread;
    scope_open(s, &scope);
    stmt->thread.count = iterators(s, node->kids[0], &stmt->thread.iters, true);
    s->in_thread = true;
    body(s, node->kids[1], &stmt->thread.body);
    s->in_thread = outer;
    scope_close(s);
    emit(s, stmt);
}

static void assumption(Sema *s, const Node *node) {
    s->copied++;
    Expr *condition = to_condition(s, expression(s, node->kids[0]));
    s->copied--;
    int64_t known;
    if (!s->verbatim && expr_const(condition, &known)) {
        if (!known) diag(s->sink, node->span, T_ASSUME_FALSE);
        return;
    }
    Stmt *stmt = new_stmt(s, STMT_ASSUME, node);
    stmt->assume = condition;
    emit(s, stmt);
    facts_assume(known_facts(s), condition, true);
}

// ---- which statements stand where ----
enum {
    K = 1 << IN_KERNEL,
    B = 1 << IN_BLOCK,
    P = 1 << IN_PROGRAM,
    R = 1 << IN_REFERENCE | 1 << IN_FILL,
    ALL = K | B | P | R
};

static int contexts_of(const Node *node) {
    switch (node->kind) {
    case N_TUNE:
    case N_GRID: return K;
    case N_CONST:
    case N_LET:
    case N_IF:
    case N_BLOCK: return ALL;
    case N_ASSUME: return K | B | P;
    case N_EVAL: return B | P | R;
    case N_DECLS: return node->op == DECL_SCRATCH ? P : node->op == DECL_LOCAL ? B | R : B;
    case N_ROLE:
    case N_CHANNEL:
    case N_PRODUCE:
    case N_CONSUME:
    case N_ORDERED:
    case N_THREAD:
    case N_ASYNC: return B;
    case N_LOOP: return node->op == LOOP_SERIAL || node->op == LOOP_UNROLL ? B | R : B;
    case N_RETURN: return ALL;   // reported where it is looked at
    default: return B | R;
    }
}

const char *context_text(CodeContext context) {
    static const char *const texts[] = {[IN_FILE] = "a file",           [IN_KERNEL] = "a kernel outside its grid",
                                        [IN_BLOCK] = "a grid",          [IN_PROGRAM] = "a program",
                                        [IN_REFERENCE] = "a reference", [IN_FILL] = "the block of a test"};
    return texts[context];
}

// Braces are around names: without buffers, which end with them, the statements are those of the block around, so that no pass has
// to look into it.
static void block_statement(Sema *s, const Node *node, Stmt *stmt) {
    bool keeps = s->verbatim || node->attrs;
    FOR_EACH_ITEM (item, &stmt->block) keeps |= item->kind == STMT_DECL;
    if (keeps) emit(s, stmt);
    for (int i = 0; i < stmt->block.count && !keeps; i++) emit(s, stmt->block.items[i]);
}

static void dispatch(Sema *s, const Node *node) {
    switch (node->kind) {
    case N_BLOCK: {
        Stmt *stmt = new_stmt(s, STMT_BLOCK, node);
        body(s, node, &stmt->block);
        block_statement(s, node, stmt);
        break;
    }
    case N_CONST: const_statement(s, node); break;
    case N_TUNE: tune_statement(s, node); break;
    case N_ASSUME: assumption(s, node); break;
    case N_DECLS: declarations(s, node); break;
    case N_GRID: grid(s, node); break;
    case N_VAR: variable(s, node); break;
    case N_LET: let(s, node); break;
    case N_LOOP: loop(s, node); break;
    case N_WHILE: while_loop(s, node); break;
    case N_IF: if_statement(s, node); break;
    case N_BREAK: break_statement(s, node); break;
    case N_RETURN: diag(s->sink, node->span, T_RETURN_OUTSIDE); break;
    case N_ROLE: role(s, node); break;
    case N_CHANNEL: channel_statement(s, node); break;
    case N_PRODUCE:
    case N_CONSUME:
    case N_ORDERED: channel_block(s, node); break;
    case N_THREAD: thread(s, node); break;
    case N_ASYNC: call_statement(s, node->kids[0], true); break;
    case N_ASSIGN: assignment(s, node); break;
    case N_EVAL: call_statement(s, node->kids[0], false); break;
    default: fail_internal(s->failure, __FILE__, __LINE__, "a statement of kind %d", node->kind);
    }
}

// Attributes in front of a statement go to what it became; a @loc holds for all that is inside too.
void statement(Sema *s, const Node *node) {
    if (!(contexts_of(node) & 1 << s->context)) {
        Diag *d = diag(s->sink, node->span, T_MISPLACED, context_text(s->context));
        if (s->context == IN_PROGRAM)
            diag_note(d,
                      "a program declares scratch NAME: f32[N]; and calls kernels, k(x, NAME); which have no result");
        if (node->kind == N_VAR) declare_value(s, node->text, value_poison(node->span), node->span);
        return;
    }
    bool placed = s->placed;
    Span place = s->place, loc = {.line = -1};
    Attr *attrs = attributes(s, node->attrs, 's', &loc);
    if (loc.line >= 0) s->placed = true, s->place = loc;
    Block *block = s->block;
    int before = block->count;
    s->nested++;
    dispatch(s, node);
    s->nested--;
    s->placed = placed;
    s->place = place;
    int first = node->kind == N_ROLE ? before : block->count - 1;   // of an array: all its roles
    if (!attrs || block->count == before) return;
    Attr **last = &block->items[first]->attrs;   // a grid has those of its options
    while (*last) last = &(*last)->next;
    *last = attrs;
    for (int i = first + 1; i < block->count; i++) block->items[i]->attrs = attributes(s, node->attrs, 's', &loc);
}
