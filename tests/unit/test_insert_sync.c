// ring, pipeline and insert-sync on programs made by hand: how many barriers and waits, and that each is needed.
#include "ir/build.h"
#include "layout/distribution.h"
#include "passes/pass.h"
#include "passes/sync/sync.h"
#include "tests/unit/unit.h"
#include <string.h>

typedef struct Program {
    Arena *arena;
    Module *module;
    PassContext context;
    Func *kernel;
    Stmt *grid;
} Program;

static Program program_new(Arena *arena) {
    static Failure failure;   // never used: nothing here fails
    Program p = {.arena = arena};
    DiagSink *sink = diag_sink_new(arena);
    p.module = module_new(arena, &failure, sink);
    p.kernel = NEW(arena, Func);
    p.kernel->name = "k";
    p.grid = stmt_new(arena, STMT_GRID, (Span){0});
    p.grid->grid.threads = e_int(arena, 128);
    block_push(arena, &p.kernel->body, p.grid);
    p.context = (PassContext){.module = p.module,
                              .arena = arena,
                              .failure = &failure,
                              .sink = sink,
                              .target = target_named("sm_80"),
                              .remarks = false};
    return p;
}

static Buf *declare(Program *p, const char *name, Scope scope, Type type, int64_t rows, int64_t columns) {
    int64_t shape[] = {rows, columns};
    Buf *buf = buf_new_const(p->arena, name, scope, type, 2, shape, (Span){0});
    if (scope != SCOPE_GLOBAL) block_push(p->arena, &p->grid->grid.body, s_decl(p->arena, buf));
    buf->offset = -1;
    return buf;
}

static Stmt *call(Program *p, Block *out, OpId op, Region *a, Region *b, Region *c) {
    Arg args[OP_MAX_OPERANDS] = {arg_region(a), b ? arg_region(b) : (Arg){0}, c ? arg_region(c) : (Arg){0}};
    Stmt *stmt = s_call(p->arena, op, op_info(op)->operand_count, args);
    block_push(p->arena, out, stmt);
    return stmt;
}

static Region *tile(Program *p, Buf *buf, Expr *row, Expr *column, int64_t rows, int64_t columns) {
    RegionDim dims[] = {{row, e_int(p->arena, rows), rows}, {column, e_int(p->arena, columns), columns}};
    return region_new(p->arena, buf, dims, false, (Span){0});
}

// pipelined (k in n, stages = S) { copy(A.., As); copy(B.., Bs); gemm(As, Bs, acc); }
static void push_gemm(Program *p, int64_t stages, Expr *trips) {
    Arena *a = p->arena;
    Buf *A = declare(p, "A", SCOPE_GLOBAL, TYPE_BF16, 64, 4096),
        *B = declare(p, "B", SCOPE_GLOBAL, TYPE_BF16, 4096, 64);
    Buf *As = declare(p, "As", SCOPE_SHARED, TYPE_BF16, 64, 32),
        *Bs = declare(p, "Bs", SCOPE_SHARED, TYPE_BF16, 32, 64);
    Buf *acc = declare(p, "acc", SCOPE_FRAGMENT, TYPE_F32, 64, 64);
    Var *k = var_new(a, "k", VAR_ITER, TYPE_I64, (Span){0});
    Stmt *loop = s_for(a, LOOP_PIPELINED, k, e_int(a, 0), trips);
    loop->loop.stages = e_int(a, stages);
    Expr *at = e_mul(a, e_var(a, k), e_int(a, 32)), *zero = e_int(a, 0);
    Stmt *first = call(p, &loop->loop.body, OP_COPY, tile(p, A, zero, at, 64, 32), region_whole(a, As), NULL);
    Stmt *second = call(p, &loop->loop.body, OP_COPY, tile(p, B, at, zero, 32, 64), region_whole(a, Bs), NULL);
    via_set(a, first, VIA_CP_ASYNC);
    via_set(a, second, VIA_CP_ASYNC);
    call(p, &loop->loop.body, OP_GEMM, region_whole(a, As), region_whole(a, Bs), region_whole(a, acc));
    block_push(a, &p->grid->grid.body, loop);
}

typedef struct Count {
    int barriers, waits, commits, awaits, groups;
} Count;

static bool count_stmt(Visitor *visitor, Stmt *stmt) {
    Count *count = visitor->user;
    if (stmt->kind != STMT_CALL) return true;
    count->barriers += stmt->call.op == OP_BARRIER;
    count->commits += stmt->call.op == OP_CP_ASYNC_COMMIT;
    count->awaits += stmt->call.op == OP_AWAIT;
    if (stmt->call.op == OP_CP_ASYNC_WAIT) count->waits++, count->groups = (int)stmt->call.args[0].value->integer;
    return true;
}

static Count counts(Program *p) {
    Count count = {0};
    Visitor visitor = {.stmt = count_stmt, .user = &count};
    visit_block(&visitor, &p->kernel->body);
    return count;
}

static bool is_sync(const Stmt *stmt) {
    return stmt->kind == STMT_CALL && (stmt->call.op == OP_BARRIER || stmt->call.op == OP_CP_ASYNC_WAIT);
}

// The program as it stands is synchronised.
static bool is_enough(Program *p) {
    SyncPlan plan = {.by_place = map_new(p->arena), .commits = map_new(p->arena)};
    return sync_model_check(sync_model_new(p->arena, p->context.target, &p->kernel->body, NULL, &plan, MOST_SCENARIOS));
}

// Without any one barrier or wait it is not.
static void expect_all_required(Program *p, Block *block) {
    for (int i = 0; i < block->count; i++) {
        Stmt *stmt = block->items[i];
        Block *bodies[2];
        for (int b = 0, count = stmt_bodies(stmt, bodies); b < count; b++) expect_all_required(p, bodies[b]);
        if (!is_sync(stmt)) continue;
        block_remove(block, i);
        assert_false(is_enough(p));
        block_insert(p->arena, block, i, stmt);
    }
}

static void synchronise(Program *p) {
    pass_multi_buffer(&p->context, p->kernel);
    pass_software_pipeline(&p->context, p->kernel);
    assert_true(pass_insert_sync(&p->context, p->kernel));
    assert_true(is_enough(p));
    expect_all_required(p, &p->kernel->body);
    assert_false(pass_insert_sync(&p->context, p->kernel));
}

static Expr *dim(Program *p, const char *name) {
    Var *var = var_new(p->arena, name, VAR_DIM, TYPE_I64, (Span){0});
    vec_push(p->arena, &p->kernel->dims, var);
    return e_var(p->arena, var);
}

static void test_gemm(void **state) {
    for (int stages = 2; stages <= 6; stages++) {
        Program p = program_new(*state);
        push_gemm(&p, stages, dim(&p, "n"));
        synchronise(&p);
        Count count = counts(&p);
        assert_int_equal(count.barriers, 1);
        assert_int_equal(count.waits, 1);
        assert_int_equal(count.groups, stages - 2);
        assert_int_equal(count.commits, 2);
        assert_int_equal(count.awaits, 0);
    }
}

// Both loops have their own buffers: one barrier each.
static void test_two_loops(void **state) {
    Program p = program_new(*state);
    push_gemm(&p, 3, dim(&p, "n"));
    push_gemm(&p, 2, dim(&p, "m"));
    synchronise(&p);
    assert_int_equal(counts(&p).barriers, 2);
}

// A loop around: the next round's first copies must find the last round's slots left.
static void test_nested(void **state) {
    Program p = program_new(*state);
    push_gemm(&p, 3, dim(&p, "n"));
    Block *body = &p.grid->grid.body;
    Stmt *outer = s_for(p.arena, LOOP_SERIAL, var_new(p.arena, "t", VAR_ITER, TYPE_I64, (Span){0}), e_int(p.arena, 0),
                        dim(&p, "m"));
    block_push(p.arena, &outer->loop.body, body->items[body->count - 1]);
    body->items[body->count - 1] = outer;
    synchronise(&p);
    assert_int_equal(counts(&p).barriers, 2);
}

// copy(f, s); copy(s, g): a barrier between, and one for the next round when there is one.
static void push_exchange(Program *p, Block *out, Buf *f, Buf *s, Buf *g) {
    call(p, out, OP_COPY, region_whole(p->arena, f), region_whole(p->arena, s), NULL);
    call(p, out, OP_COPY, region_whole(p->arena, s), region_whole(p->arena, g), NULL);
}

static void test_exchange(void **state) {
    Program p = program_new(*state);
    Buf *f = declare(&p, "f", SCOPE_FRAGMENT, TYPE_F32, 16, 32), *s = declare(&p, "s", SCOPE_SHARED, TYPE_F32, 16, 32);
    Buf *g = declare(&p, "g", SCOPE_FRAGMENT, TYPE_F32, 16, 32);
    Stmt *loop = s_for(p.arena, LOOP_SERIAL, var_new(p.arena, "t", VAR_ITER, TYPE_I64, (Span){0}), e_int(p.arena, 0),
                       dim(&p, "m"));
    push_exchange(&p, &loop->loop.body, f, s, g);
    block_push(p.arena, &p.grid->grid.body, loop);
    synchronise(&p);
    assert_int_equal(counts(&p).barriers, 2);
}

// Element by element of the same threads: nothing between.
static void test_same_threads(void **state) {
    Program p = program_new(*state);
    Buf *f = declare(&p, "f", SCOPE_FRAGMENT, TYPE_F32, 16, 32), *s = declare(&p, "s", SCOPE_SHARED, TYPE_F32, 16, 32);
    push_exchange(&p, &p.grid->grid.body, f, s, f);
    Block *body = &p.grid->grid.body;
    int64_t shape[] = {16, 32};
    const Layout *layout = tv_blocked(p.arena, 2, shape, 128, 1, 1, 0);
    for (int i = body->count - 2; i < body->count; i++)
        attr_set_layout(p.arena, &body->items[i]->attrs, ATTR_MAP, layout);
    assert_false(pass_insert_sync(&p.context, p.kernel));
    layout = tv_blocked(p.arena, 2, shape, 128, 1, 4, 0);
    attr_set_layout(p.arena, &body->items[body->count - 1]->attrs, ATTR_MAP, layout);
    synchronise(&p);
    assert_int_equal(counts(&p).barriers, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {IN_ARENA(test_gemm), IN_ARENA(test_two_loops), IN_ARENA(test_nested),
                                       IN_ARENA(test_exchange), IN_ARENA(test_same_threads)};
    return run(tests);
}
