// Conditions around a loop: bounds predicates of the whole tile, warp-uniform branches, values that no thread executes.
#include "passes/layout/fragment.h"
#include "passes/lower/lower_loop.h"

// ---- bounds of the whole tile: one test in place of a predicate for each element ----

bool guard_is_uniform(const Version *version, const TileAccess *access) {
    Arena *arena = version->arena;
    const Facts *facts = version->lower->facts;
    const Var *fast = version->loop->iters[version->fast];
    if (access->is_local) return false;
    for (int d = 0; d < access->count; d++) {
        int64_t coefficient;
        Expr *inside = e_lt(arena, access->indices[d], access->buf->shape[d]);
        bool proven = prove(facts, inside) && prove(facts, e_ge(arena, access->indices[d], e_int(arena, 0)));
        if (proven || (linear_in(access->indices[d], fast, &coefficient) && coefficient == 0)) continue;
        if (d != access->count - 1 || run_stride(access, fast) != STRIDE_UNIT) return false;
        Expr *base = simplify_expr(arena, facts, e_sub(arena, access->indices[d], e_var(arena, (Var *)fast)));
        if (multiple_of(facts, base) % version->vector != 0) return false;
        if (multiple_of(facts, access->buf->shape[d]) % version->vector != 0) return false;
    }
    return true;
}

Expr *whole_tile_inside(Version *version, const TileAccess *except) {
    Arena *arena = version->arena;
    Facts *facts = version->lower->facts;
    Expr *all = NULL;
    VEC_EACH (const TileAccess, access, version->accesses) {
        if (access->buf->scope != SCOPE_GLOBAL || access == except) continue;
        if (access->is_local) return NULL;
        for (int d = 0; d < access->count; d++) {
            Expr *high = tile_corner(arena, facts, version->loop, access->indices[d], true);
            Expr *low = tile_corner(arena, facts, version->loop, access->indices[d], false);
            if (!high || !low) return NULL;
            Expr *tests[2] = {e_lt(arena, high, access->buf->shape[d]), e_ge(arena, low, e_int(arena, 0))};
            for (int i = 0; i < 2; i++)
                if (!prove(facts, tests[i])) all = e_both(arena, all, simplify_expr(arena, facts, tests[i]));
        }
    }
    return all;
}

const TileAccess *shifted_access(const Version *version) {
    VEC_EACH (const TileAccess, access, version->accesses)
        if (access_is_shifted(version->lower->facts, version->loop, access, version->fast)) {
            int64_t bytes = version->vector * type_bytes(access->buf->type);
            return bytes == version->lower->target->vector_bytes ? access : NULL;
        }
    return NULL;
}

bool needs_two_versions(const Version *version) {
    if (version->vector == 1 || version->loop->is_async) return false;
    VEC_EACH (const TileAccess, access, version->accesses)
        if (access->buf->scope == SCOPE_GLOBAL && !guard_is_uniform(version, access)) return true;
    return false;
}

// ---- tests by warps ----

typedef struct Registers {
    const TileLoop *loop;
    bool only;
} Registers;

// Only fragment loads depend on the iteration.
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

// The `if` without `else` around the whole body. NULL: none.
static const Stmt *only_if(const TileLoop *loop) {
    const Stmt *stmt = loop->body.count == 1 ? loop->body.items[0] : NULL;
    return stmt && stmt->kind == STMT_IF && stmt->if_.otherwise.count == 0 ? stmt : NULL;
}

// The condition around the whole body, if it is the same for many of the thread's iterations, such as a condition on
// the registers of a row. NULL: none.
static const Expr *shared_condition(const Version *version) {
    const TileLoop *loop = version->loop;
    const Stmt *stmt = only_if(loop);
    if (!stmt || version->lower->threads % version->lower->target->warp_lanes != 0) return NULL;
    Registers registers = {loop, true};
    visit_expr(&(Visitor){.expr = find_other_reads, .user = &registers}, stmt->if_.condition);
    if (!registers.only || !expr_reads_memory(stmt->if_.condition) || block_any(&stmt->if_.then, find_memory, NULL))
        return NULL;
    for (int d = 0; d < loop->rank; d++)
        if (version->map->out_shape[d] > loop->extents[d]) return NULL;   // registers without elements
    return stmt->if_.condition;
}

static bool is_among(const ExprVec *tests, const Expr *test) {
    VEC_EACH_PTR (Expr, known, tests)
        if (expr_equal(known, test)) return true;
    return false;
}

// The condition at all iterations of the thread, combined by `||`; NULL if there are too many different ones.
static Expr *holds_for_thread(Version *version, const Expr *condition) {
    enum { ELEMENTS_FOR_A_TEST = 8 };
    Arena *arena = version->arena;
    int64_t values = tv_values(version->map);
    ExprVec tests = {0};
    Expr *any = e_bool(arena, false);
    version->element = e_int(arena, 0);
    version->temporaries = map_new(arena);
    for (int64_t v = 0; v < values; v++) {
        version->group = e_int(arena, v);
        Expr *test = version_expr(version, (Expr *)condition);
        if (is_among(&tests, test)) continue;
        if ((tests.count + 1) * ELEMENTS_FOR_A_TEST > values) return NULL;
        vec_push(arena, &tests, test);
        any = e_binary(arena, BIN_LOGICAL_OR, any, test);
    }
    return tests.count > 0 ? any : NULL;
}

Block *unless_skipped(const Version *version, Block *out) {
    Arena *arena = version->arena;
    Version elements = *version;
    elements.vector = 1;
    const Expr *condition = shared_condition(version);
    Expr *any = condition ? holds_for_thread(&elements, condition) : NULL;
    if (!any) return out;
    Expr *vote = e_call1(arena, OP_VOTE_ANY, any);
    return block_if(arena, out, block_let(arena, out, "some", vote, version->loop->origin->loc));
}

// ---- values without work in any thread ----

static bool never_holds(Version *version, const Expr *condition, Expr *const *index_) {
    if (condition->kind == EXPR_BINARY && condition->binary.op == BIN_LOGICAL_AND)
        return never_holds(version, condition->binary.a, index_) || never_holds(version, condition->binary.b, index_);
    Expr *holds = at_index(version, (Expr *)condition, index_);
    int64_t known;
    if (expr_const(holds, &known)) return known == 0;
    return holds->kind == EXPR_BINARY && holds->binary.op == BIN_EQ &&
           prove(version->lower->facts, e_binary(version->arena, BIN_NE, holds->binary.a, holds->binary.b));
}

// If the whole body is under a condition that is false for the first or last values of all threads, the unrolled loop
// over registers begins after the former and ends before the latter.
void leave_out(Version *version) {
    const Stmt *stmt = only_if(version->loop);
    if (!stmt || !touches_registers(version, false)) return;
    if (expr_reads_memory(stmt->if_.condition) || !expr_is_pure(stmt->if_.condition)) return;
    int64_t first = version->values, last = -1;
    for (int64_t v = 0; v < version->values; v++) {
        Expr *in[2] = {lower_thread(version->lower), e_int(version->arena, version->from + v)};
        Expr *index_[LAYOUT_MAX_RANK];
        layout_forward(version->arena, version->lower->facts, version->map, in, index_);
        if (never_holds(version, stmt->if_.condition, index_)) continue;
        first = v < first ? v : first;
        last = v;
    }
    if (last < 0) return;
    first -= first % version->vector;
    version->from += first;
    version->values = (last / version->vector + 1) * version->vector - first;
}
