// Every rule of the verifier, broken once. The sound kernel that each test starts from:
//
//     kernel k(A: f32[64], B: out f32[64]) {
//         grid (b in 4) threads 64 { shared s: f32[64]; fragment f: f32[64]; ... }
//     }
#include "ir/build.h"
#include "ir/verify.h"
#include "tests/unit/unit.h"
#include <string.h>

typedef struct Fixture {
    Arena *arena;
    Module *module;
    Func *func;
    Buf *a, *b, *s, *f;
    Stmt *grid;
    Block *body;
} Fixture;

static Buf *add_tensor(Fixture *x, const char *name, Mode mode) {
    Buf *buf = buf_new_const(x->arena, name, SCOPE_GLOBAL, TYPE_F32, 1, (int64_t[]){64}, (Span){0});
    buf->is_param = true;
    buf->mode = mode;
    Param param = {.buf = buf};
    vec_push(x->arena, &x->func->params, param);
    return buf;
}

static Buf *declare(Fixture *x, const char *name, Scope scope, Type type, int64_t extent) {
    Buf *buf = buf_new_const(x->arena, name, scope, type, 1, &extent, (Span){0});
    block_push(x->arena, x->body, s_decl(x->arena, buf));
    return buf;
}

static Fixture fixture(Arena *arena) {
    Fixture x = {.arena = arena, .func = NEW(arena, Func)};
    x.module = module_new(arena, NULL, diag_sink_new(arena));
    vec_push(arena, &x.module->funcs, x.func);
    x.func->name = "k";
    x.a = add_tensor(&x, "A", MODE_IN);
    x.b = add_tensor(&x, "B", MODE_OUT);
    x.grid = stmt_new(arena, STMT_GRID, (Span){0});
    x.grid->grid.count = 1;
    x.grid->grid.iters = NEW(arena, Iter);
    Var *block = var_new(arena, "b", VAR_ITER, TYPE_I64, (Span){0});
    x.grid->grid.iters[0] = (Iter){block, e_int(arena, 0), e_int(arena, 4), e_int(arena, 1)};
    x.grid->grid.threads = e_int(arena, 64);
    block_push(arena, &x.func->body, x.grid);
    x.body = &x.grid->grid.body;
    x.s = declare(&x, "s", SCOPE_SHARED, TYPE_F32, 64);
    x.f = declare(&x, "f", SCOPE_FRAGMENT, TYPE_F32, 64);
    return x;
}

static bool has_code(const Fixture *x, DiagCode code) {
    for (int i = 0; i < diag_count(x->module->sink); i++)
        if (diag_view(x->module->sink, i).code == code) return true;
    return false;
}

static void expect_code(const Fixture *x, DiagCode code) {
    assert_false(verify_module(x->module, true));
    if (has_code(x, code)) return;
    for (int i = 0; i < diag_count(x->module->sink); i++)
        print_message("reported instead: %s\n", diag_view(x->module->sink, i).message);
    fail_msg("T%04d is not reported", code);
}

static void expect_sound(const Fixture *x) {
    bool sound = verify_module(x->module, true);
    for (int i = 0; i < diag_count(x->module->sink); i++) print_message("%s\n", diag_view(x->module->sink, i).message);
    assert_true(sound);
}

#define PUSH(stmt) block_push(x.arena, x.body, (stmt))
#define INT(n) e_int(x.arena, (n))
#define FLOAT(n) e_float(x.arena, TYPE_F32, (n))
#define VAR(var) e_var(x.arena, (var))
#define ITER(name) var_new(x.arena, (name), VAR_ITER, TYPE_I64, (Span){0})
#define LET(name, type) var_new(x.arena, (name), VAR_LET, (type), (Span){0})
#define START Fixture x = fixture(*state)

static Stmt *parallel(Fixture *x, Var *i, int64_t n) {
    return s_for(x->arena, LOOP_PARALLEL, i, e_int(x->arena, 0), e_int(x->arena, n));
}

static Stmt *copy(Fixture *x, Buf *from, Buf *to) {
    Arg args[] = {arg_region(region_whole(x->arena, from)), arg_region(region_whole(x->arena, to))};
    return s_call(x->arena, OP_COPY, 2, args);
}

static Stmt *thread_region(Fixture *x, Var *t) {
    Stmt *stmt = stmt_new(x->arena, STMT_THREAD, (Span){0});
    stmt->thread.count = 1;
    stmt->thread.iters = NEW(x->arena, Iter);
    stmt->thread.iters[0] = (Iter){t, e_int(x->arena, 0), e_int(x->arena, 64), e_int(x->arena, 1)};
    return stmt;
}

static void a_sound_kernel_passes(void **state) {
    START;
    Var *i = ITER("i");
    PUSH(copy(&x, x.a, x.s));
    PUSH(copy(&x, x.s, x.f));
    Stmt *loop = parallel(&x, i, 64);
    Expr *read = e_load1(x.arena, x.f, VAR(i));
    block_push(x.arena, &loop->loop.body, s_store1(x.arena, x.b, VAR(i), e_mul(x.arena, read, FLOAT(2))));
    PUSH(loop);
    Var *t = ITER("t"), *r = ITER("r");
    Stmt *region = thread_region(&x, t);
    x.body = &region->thread.body;
    Buf *l = declare(&x, "l", SCOPE_LOCAL, TYPE_F32, 4);
    Stmt *unroll = s_for(x.arena, LOOP_UNROLL, r, INT(0), INT(4));
    block_push(x.arena, &unroll->loop.body, s_store1(x.arena, l, e_sub(x.arena, INT(3), VAR(r)), FLOAT(0)));
    PUSH(unroll);
    PUSH(s_call(x.arena, OP_BARRIER, 0, NULL));
    block_push(x.arena, &x.grid->grid.body, region);
    expect_sound(&x);
}

static void names_are_declared(void **state) {   // covers T0401
    START;
    PUSH(s_let(x.arena, LET("y", TYPE_I64), VAR(ITER("nobody"))));
    expect_code(&x, T_IR_SCOPE);
}

static void names_end_with_their_block(void **state) {
    START;
    Var *y = LET("y", TYPE_I64);
    Stmt *block = s_block(x.arena);
    block_push(x.arena, &block->block, s_let(x.arena, y, INT(1)));
    PUSH(block);
    PUSH(s_let(x.arena, LET("z", TYPE_I64), VAR(y)));
    expect_code(&x, T_IR_SCOPE);
}

static void names_are_declared_once(void **state) {
    START;
    PUSH(s_decl(x.arena, x.s));
    expect_code(&x, T_IR_SCOPE);
}

static void inputs_are_not_written(void **state) {
    START;
    PUSH(s_store1(x.arena, x.a, INT(0), FLOAT(1)));
    expect_code(&x, T_READ_ONLY);
}

static void inputs_are_not_copied_to(void **state) {
    START;
    PUSH(copy(&x, x.s, x.a));
    expect_code(&x, T_READ_ONLY);
}

static void only_var_is_assigned(void **state) {
    START;
    Var *y = LET("y", TYPE_I64);
    PUSH(s_let(x.arena, y, INT(1)));
    PUSH(s_assign(x.arena, y, INT(2)));
    expect_code(&x, T_NOT_ASSIGNABLE);
}

static void operands_agree(void **state) {
    START;
    Var *i = LET("i", TYPE_I64), *h = LET("h", TYPE_F16);
    PUSH(s_let(x.arena, i, INT(1)));
    PUSH(s_let(x.arena, h, e_float(x.arena, TYPE_F16, 1)));
    PUSH(s_let(x.arena, LET("y", TYPE_I64), e_add(x.arena, VAR(i), VAR(h))));
    expect_code(&x, T_OPERAND_TYPES);
}

static void constants_have_their_type(void **state) {   // covers T0402
    START;
    Expr *wrong = INT(300);
    wrong->type = TYPE_I8;
    PUSH(s_let(x.arena, LET("y", TYPE_I8), wrong));
    expect_code(&x, T_IR_TYPE);
}

static void conditions_are_bool(void **state) {
    START;
    PUSH(s_if(x.arena, INT(1)));
    expect_code(&x, T_NOT_CONDITION);
}

static void indices_fit_the_rank(void **state) {
    START;
    Expr *indices[] = {INT(0), INT(0)};
    PUSH(s_store(x.arena, x.s, 2, indices, FLOAT(1)));
    expect_code(&x, T_RANK);
}

static void constant_indices_are_inside(void **state) {
    START;
    PUSH(s_store1(x.arena, x.s, INT(64), FLOAT(1)));
    expect_code(&x, T_INDEX_RANGE);
}

static void constant_regions_are_inside(void **state) {
    START;
    RegionDim dim = {INT(32), INT(64), 64};
    Arg args[] = {arg_region(region_new(x.arena, x.s, &dim, false, (Span){0})), arg_region(region_whole(x.arena, x.f))};
    PUSH(s_call(x.arena, OP_COPY, 2, args));
    expect_code(&x, T_INDEX_RANGE);
}

static void there_is_one_grid(void **state) {
    START;
    block_push(x.arena, &x.func->body, stmt_new(x.arena, STMT_GRID, (Span){0}));
    x.func->body.items[1]->grid.threads = INT(32);
    expect_code(&x, T_ONE_GRID);
}

static void there_is_a_grid(void **state) {
    START;
    x.func->body.count = 0;
    expect_code(&x, T_NO_GRID);
}

static void break_leaves_a_loop(void **state) {
    START;
    Stmt *loop = parallel(&x, ITER("i"), 4);
    block_push(x.arena, &loop->loop.body, stmt_new(x.arena, STMT_BREAK, (Span){0}));
    PUSH(loop);
    expect_code(&x, T_BREAK_OUTSIDE);
}

static void steps_are_positive(void **state) {
    START;
    Stmt *loop = s_for(x.arena, LOOP_SERIAL, ITER("i"), INT(0), INT(4));
    loop->loop.iters[0].step = INT(0);
    PUSH(loop);
    expect_code(&x, T_STEP);
}

static void programs_do_no_device_work(void **state) {
    START;
    x.func->kind = FUNC_PROGRAM;
    expect_code(&x, T_MISPLACED);
}

static void extents_are_positive(void **state) {
    START;
    declare(&x, "none", SCOPE_SHARED, TYPE_F32, 0);
    expect_code(&x, T_EXTENT_POSITIVE);
}

static void locals_are_declared_in_thread_regions(void **state) {   // covers T0403
    START;
    declare(&x, "l", SCOPE_LOCAL, TYPE_F32, 4);
    expect_code(&x, T_IR_PLACE);
}

static void tile_ops_stand_outside_of_parallel(void **state) {
    START;
    Stmt *loop = parallel(&x, ITER("i"), 4);
    block_push(x.arena, &loop->loop.body, copy(&x, x.a, x.s));
    PUSH(loop);
    expect_code(&x, T_IR_PLACE);
}

static void tile_ops_stand_outside_of_thread_regions(void **state) {
    START;
    Stmt *region = thread_region(&x, ITER("t"));
    block_push(x.arena, &region->thread.body, copy(&x, x.a, x.s));
    PUSH(region);
    expect_code(&x, T_IR_PLACE);
}

static void thread_ops_stand_inside_of_them(void **state) {
    START;
    PUSH(s_call(x.arena, OP_LAUNCH_DEPENDENTS, 0, NULL));
    expect_code(&x, T_IR_PLACE);
}

static void thread_stage_has_no_fragments(void **state) {
    START;
    x.func->stage = STAGE_THREAD;
    expect_code(&x, T_IR_PLACE);
}

static void operands_are_there(void **state) {   // covers T0404
    START;
    Arg args[] = {arg_region(region_whole(x.arena, x.a))};
    PUSH(s_call(x.arena, OP_COPY, 1, args));
    expect_code(&x, T_IR_OPERAND);
}

static void operands_are_in_their_memory(void **state) {
    START;
    Arg args[] = {arg_region(region_whole(x.arena, x.a)), arg_region(region_whole(x.arena, x.s)),
                  arg_region(region_whole(x.arena, x.f))};
    PUSH(s_call(x.arena, OP_GEMM, 3, args));
    expect_code(&x, T_IR_OPERAND);
}

static void constant_operands_are_constant(void **state) {
    START;
    Var *n = LET("n", TYPE_I64);
    PUSH(s_let(x.arena, n, e_load1(x.arena, x.s, INT(0))));
    n->type = TYPE_F32;
    Arg args[] = {arg_value(VAR(n))};
    PUSH(s_call(x.arena, OP_CP_ASYNC_WAIT, 1, args));
    expect_code(&x, T_IR_OPERAND);
}

static void shapes_of_copies_agree(void **state) {
    START;
    PUSH(copy(&x, x.s, declare(&x, "small", SCOPE_FRAGMENT, TYPE_F32, 32)));
    expect_code(&x, T_SHAPES);
}

static void shapes_of_reductions_agree(void **state) {
    START;
    Buf *larger = declare(&x, "larger", SCOPE_FRAGMENT, TYPE_F32, 65);   // no partial results: more than terms
    Arg args[] = {arg_region(region_whole(x.arena, x.s)), arg_region(region_whole(x.arena, larger)), arg_value(INT(0))};
    PUSH(s_call(x.arena, OP_REDUCE_SUM, 3, args));
    expect_code(&x, T_REDUCE_SHAPES);
}

static void barriers_are_uniform(void **state) {   // covers T0405
    START;
    Var *t = ITER("t"), *warp = LET("warp", TYPE_I64);
    Stmt *region = thread_region(&x, t);
    block_push(x.arena, &region->thread.body, s_let(x.arena, warp, e_div(x.arena, VAR(t), INT(32))));
    Stmt *branch = s_if(x.arena, e_lt(x.arena, VAR(warp), INT(1)));
    block_push(x.arena, &branch->if_.then, s_call(x.arena, OP_BARRIER, 0, NULL));
    block_push(x.arena, &region->thread.body, branch);
    PUSH(region);
    expect_code(&x, T_IR_UNIFORM);
}

static void effects_stand_in_no_index(void **state) {   // covers T0414
    START;
    Expr *zero = INT(0);
    Buf *n = declare(&x, "n", SCOPE_SHARED, TYPE_I64, 4), *s = declare(&x, "s", SCOPE_SHARED, TYPE_F32, 4);
    Arg args[2] = {arg_region(region_element(x.arena, n, 1, &zero)), arg_value(INT(1))};
    PUSH(s_store1(x.arena, s, e_call(x.arena, OP_ATOMIC_ADD, 2, args), FLOAT(0)));
    expect_code(&x, T_IR_REPEATED);
}

static void effects_decide_where_a_block_goes_once(void **state) {
    START;
    Expr *zero = INT(0);
    Buf *n = declare(&x, "n", SCOPE_SHARED, TYPE_I64, 4);
    Arg args[2] = {arg_region(region_element(x.arena, n, 1, &zero)), arg_value(INT(1))};
    PUSH(s_if(x.arena, e_lt(x.arena, e_call(x.arena, OP_ATOMIC_ADD, 2, args), INT(1))));
    expect_code(&x, T_IR_REPEATED);
}

static void threads_may_wait_each_for_itself(void **state) {
    START;
    Expr *zero = INT(0);
    Buf *n = declare(&x, "n", SCOPE_SHARED, TYPE_I64, 4);
    Arg args[3] = {arg_region(region_element(x.arena, n, 1, &zero)), arg_name("acquire"), arg_name("block")};
    Stmt *wait = stmt_new(x.arena, STMT_WHILE, (Span){0});
    wait->while_.condition = e_lt(x.arena, e_call(x.arena, OP_LOAD, 3, args), INT(1));
    PUSH(wait);
    expect_sound(&x);
    Var *sum = var_new(x.arena, "sum", VAR_MUTABLE, TYPE_I64, (Span){0});
    PUSH(s_var(x.arena, sum, INT(0)));
    Stmt *other = stmt_new(x.arena, STMT_WHILE, (Span){0});   // whose rounds would differ between threads
    other->while_.condition = wait->while_.condition;
    block_push(x.arena, &other->while_.body, s_assign(x.arena, sum, e_add(x.arena, VAR(sum), INT(1))));
    PUSH(other);
    expect_code(&x, T_IR_REPEATED);
}

static void local_indices_are_constant(void **state) {   // covers T0406
    START;
    Var *i = ITER("i");
    Stmt *region = thread_region(&x, ITER("t")), *loop = s_for(x.arena, LOOP_SERIAL, i, INT(0), INT(4));
    PUSH(region);
    x.body = &region->thread.body;
    Buf *l = declare(&x, "l", SCOPE_LOCAL, TYPE_F32, 4);
    block_push(x.arena, &loop->loop.body, s_store1(x.arena, l, VAR(i), FLOAT(0)));
    PUSH(loop);
    expect_code(&x, T_IR_LOCAL_INDEX);
}

static void iterations_do_not_conflict(void **state) {   // covers T0409
    START;
    Var *i = ITER("i");
    Stmt *loop = parallel(&x, i, 64);
    block_push(x.arena, &loop->loop.body, s_store1(x.arena, x.b, INT(0), e_load1(x.arena, x.f, VAR(i))));
    PUSH(loop);
    expect_code(&x, T_IR_CONFLICT);
}

static void iterations_that_guards_tell_apart_are_fine(void **state) {
    START;
    Var *i = ITER("i");
    Stmt *loop = parallel(&x, i, 64), *guard = s_if(x.arena, e_binary(x.arena, BIN_EQ, VAR(i), INT(5)));
    block_push(x.arena, &guard->if_.then, s_store1(x.arena, x.b, INT(0), e_load1(x.arena, x.f, VAR(i))));
    block_push(x.arena, &loop->loop.body, guard);
    PUSH(loop);
    expect_sound(&x);
}

static void iterations_do_not_assign_outer_variables(void **state) {
    START;
    Var *sum = var_new(x.arena, "sum", VAR_MUTABLE, TYPE_F32, (Span){0}), *i = ITER("i");
    PUSH(s_var(x.arena, sum, FLOAT(0)));
    Stmt *loop = parallel(&x, i, 64);
    block_push(x.arena, &loop->loop.body, s_assign(x.arena, sum, e_load1(x.arena, x.f, VAR(i))));
    PUSH(loop);
    expect_code(&x, T_IR_CONFLICT);
}

static void attributes_stand_in_their_place(void **state) {
    START;
    attr_set_int(x.arena, &x.s->attrs, ATTR_VECTOR, 8);
    expect_code(&x, T_ATTRIBUTE_PLACE);
}

static void attributes_have_their_arguments(void **state) {
    START;
    Stmt *stmt = copy(&x, x.a, x.s);
    attr_set_int(x.arena, &stmt->attrs, ATTR_VIA, 8);
    PUSH(stmt);
    expect_code(&x, T_ATTRIBUTE);
}

static void layouts_cover_their_buffer(void **state) {   // covers T0407
    START;
    const char *why = NULL;
    x.f->layout = layout_parse(x.arena, "(32,1):(1,0)", 32, &why);
    expect_code(&x, T_IR_LAYOUT);
}

static void layouts_have_the_rank_of_their_buffer(void **state) {
    START;
    const char *why = NULL;
    x.s->layout = layout_parse(x.arena, "(8,8):(8,1)", 32, &why);
    expect_code(&x, T_LAYOUT_RANK);
}

static void storage_does_not_overlap(void **state) {   // covers T0408
    START;
    Buf *other = declare(&x, "other", SCOPE_SHARED, TYPE_F32, 64);
    x.s->offset = 0;
    other->offset = 128;
    PUSH(copy(&x, x.a, x.s));
    PUSH(copy(&x, x.a, other));
    expect_sound(&x);   // one after the other
    PUSH(copy(&x, x.s, x.f));
    expect_code(&x, T_IR_ALLOCATION);
}

static void storage_is_aligned(void **state) {
    START;
    x.s->offset = 8;
    x.s->align = 16;
    expect_code(&x, T_IR_ALLOCATION);
}

// ---- one rule, each way to break it ----

typedef struct Operand3 {   // an operation of two of the fixture's lets, by their letters
    BinaryOp op;
    char a, b;
    Type type;
    bool fits;
} Operand3;

// Lets of each kind of scalar: 'i' i64, 'h' f32, 'q' bool.
static Expr *let_of(Fixture *x, char letter) {
    Type type = letter == 'i' ? TYPE_I64 : letter == 'h' ? TYPE_F32 : TYPE_BOOL;
    Expr *value = letter == 'i'   ? e_int(x->arena, 1)
                  : letter == 'h' ? e_float(x->arena, type, 1)
                                  : e_bool(x->arena, true);
    Var *var = var_new(x->arena, "v", VAR_LET, type, (Span){0});
    block_push(x->arena, x->body, s_let(x->arena, var, value));
    return e_var(x->arena, var);
}

static Expr *made(Fixture *x, ExprKind kind, Type type) {   // without what build.h folds and checks
    Expr *e = NEW(x->arena, Expr);
    e->kind = kind;
    e->type = type;
    return e;
}

static void bind(Fixture *x, Expr *value) {
    Var *var = var_new(x->arena, "result", VAR_LET, value->type, (Span){0});
    block_push(x->arena, x->body, s_let(x->arena, var, value));
}

static void operations_have_operands_of_their_types(void **state) {
    static const Operand3 rows[] = {
        {BIN_SHL, 'i', 'i', TYPE_I64, true},          {BIN_SHL, 'i', 'h', TYPE_I64, false},
        {BIN_SHR, 'h', 'i', TYPE_F32, false},         {BIN_MOD, 'i', 'i', TYPE_I64, true},
        {BIN_MOD, 'h', 'h', TYPE_F32, false},         {BIN_AND, 'q', 'q', TYPE_BOOL, true},
        {BIN_OR, 'h', 'h', TYPE_F32, false},          {BIN_XOR, 'i', 'q', TYPE_I64, false},
        {BIN_ADD, 'q', 'q', TYPE_BOOL, false},        {BIN_ADD, 'i', 'i', TYPE_I32, false},
        {BIN_DIV, 'h', 'h', TYPE_F32, true},          {BIN_LT, 'i', 'i', TYPE_BOOL, true},
        {BIN_LT, 'i', 'i', TYPE_I64, false},          {BIN_EQ, 'q', 'q', TYPE_BOOL, true},
        {BIN_LOGICAL_AND, 'q', 'q', TYPE_BOOL, true}, {BIN_LOGICAL_AND, 'q', 'i', TYPE_BOOL, false},
        {BIN_LOGICAL_OR, 'i', 'q', TYPE_BOOL, false},
    };
    for (int row = 0; row < COUNT_OF(rows); row++) {
        START;
        Expr *e = made(&x, EXPR_BINARY, rows[row].type);
        e->binary.op = rows[row].op;
        e->binary.a = let_of(&x, rows[row].a);
        e->binary.b = let_of(&x, rows[row].b);
        bind(&x, e);
        if (rows[row].fits) expect_sound(&x);
        else expect_code(&x, T_OPERAND_TYPES);
    }
}

static void operations_have_an_operand_of_their_type(void **state) {
    static const struct {
        UnaryOp op;
        char a;
        bool fits;
    } rows[] = {{UNARY_NOT, 'q', true},  {UNARY_NOT, 'i', false},   {UNARY_NEG, 'i', true},    {UNARY_NEG, 'h', true},
                {UNARY_NEG, 'q', false}, {UNARY_BITNOT, 'i', true}, {UNARY_BITNOT, 'h', false}};
    for (int row = 0; row < COUNT_OF(rows); row++) {
        START;
        Expr *a = let_of(&x, rows[row].a), *e = made(&x, EXPR_UNARY, a->type);
        e->unary.op = rows[row].op;
        e->unary.a = a;
        bind(&x, e);
        if (rows[row].fits) expect_sound(&x);
        else expect_code(&x, T_OPERAND_TYPE);
    }
}

#define REFUSED(CODE, ...)                                                                                             \
    do {                                                                                                               \
        START;                                                                                                         \
        __VA_ARGS__;                                                                                                   \
        expect_code(&x, CODE);                                                                                         \
    } while (0)

static Expr *conversion(Fixture *x, ExprKind kind, Type type, Expr *operand) {
    Expr *e = made(x, kind, type);
    e->operand = operand;
    return e;
}

static Expr *choice(Fixture *x, Expr *condition, Expr *yes, Expr *no) {
    Expr *e = made(x, EXPR_SELECT, yes->type);
    e->select.condition = condition;
    e->select.yes = yes;
    e->select.no = no;
    return e;
}

static void expressions_have_the_type_of_what_they_name(void **state) {
    REFUSED(T_IR_TYPE, Expr *e = FLOAT(1); e->type = TYPE_I32; bind(&x, e));
    REFUSED(T_IR_TYPE, Expr *e = INT(1); e->type = TYPE_F32; bind(&x, e));
    REFUSED(T_IR_TYPE, Expr *e = made(&x, EXPR_VAR, TYPE_I32); e->var = let_of(&x, 'i')->var; bind(&x, e));
    REFUSED(T_IR_TYPE, Expr *e = e_load1(x.arena, x.s, INT(0)); e->type = TYPE_F16; bind(&x, e));
    REFUSED(T_OPERAND_TYPES, bind(&x, choice(&x, let_of(&x, 'q'), let_of(&x, 'i'), let_of(&x, 'h'))));
    REFUSED(T_NOT_CONDITION, bind(&x, choice(&x, let_of(&x, 'i'), let_of(&x, 'h'), let_of(&x, 'h'))));
    REFUSED(T_NOT_CONVERTIBLE, bind(&x, conversion(&x, EXPR_CAST, TYPE_MBARRIER, let_of(&x, 'i'))));
    REFUSED(T_BITCAST, bind(&x, conversion(&x, EXPR_BITCAST, TYPE_I32, let_of(&x, 'i'))));
    REFUSED(T_OPERAND_TYPES, PUSH(s_let(x.arena, LET("y", TYPE_I32), let_of(&x, 'i'))));
    REFUSED(T_NOT_INDEX, bind(&x, e_load1(x.arena, x.s, let_of(&x, 'h'))));
}

static Arg piece(Fixture *x, Buf *buf, int count, Expr *start, bool transposed) {
    RegionDim dims[] = {{start, e_int(x->arena, 64), 64}, {start, NULL, 1}};
    Region *region = region_new(x->arena, buf, dims, transposed, (Span){0});
    region->count = count;
    return arg_region(region);
}

static void regions_fit_their_buffer(void **state) {
#define COPY_PIECE(COUNT, START_AT, TRANSPOSED)                                                                        \
    Arg args[] = {piece(&x, x.s, COUNT, START_AT, TRANSPOSED), arg_region(region_whole(x.arena, x.f))};                \
    PUSH(s_call(x.arena, OP_COPY, 2, args))
    REFUSED(T_RANK, COPY_PIECE(0, INT(0), false));
    REFUSED(T_NOT_INDEX, COPY_PIECE(1, let_of(&x, 'h'), false));
    REFUSED(T_TRANSPOSED_RANK, COPY_PIECE(1, INT(0), true));
    REFUSED(T_INDEX_RANGE, COPY_PIECE(1, INT(-1), false));
}

static void buffers_are_what_their_place_takes(void **state) {
    REFUSED(T_DIMS_COUNT, declare(&x, "none", SCOPE_SHARED, TYPE_F32, 4)->rank = 0);
    REFUSED(T_DIMS_COUNT, Buf *many = declare(&x, "many", SCOPE_SHARED, TYPE_F32, 4); many->rank = LAYOUT_MAX_RANK + 1;
            many->shape = NEW_ARRAY(x.arena, Expr *, LAYOUT_MAX_RANK + 1);
            for (int i = 0; i <= LAYOUT_MAX_RANK; i++) many->shape[i] = INT(4));
    REFUSED(T_ATTRIBUTE, x.s->align = 24);
    REFUSED(T_ATTRIBUTE, x.s->align = -16);
    REFUSED(T_ATTRIBUTE_PLACE, attr_add(x.arena, &x.s->attrs, ATTR_ZEROED, 0));
    REFUSED(T_NOT_CONSTANT, x.s->shape[0] = let_of(&x, 'i'));
    REFUSED(T_NOT_SCALAR_TYPE, declare(&x, "bars", SCOPE_FRAGMENT, TYPE_MBARRIER, 4));
    REFUSED(T_IR_PLACE, declare(&x, "work", SCOPE_GLOBAL, TYPE_F32, 4)->is_scratch = true);
    REFUSED(T_IR_PLACE, x.s->alias_of = x.a);
    REFUSED(T_IR_PLACE, x.f->alias_of = declare(&x, "other", SCOPE_FRAGMENT, TYPE_F32, 64));
    REFUSED(T_IR_ALLOCATION, Buf *all = declare(&x, "all", SCOPE_SHARED, TYPE_F64, 64); all->alias_of = x.s);
    REFUSED(T_IR_SCOPE, x.b->strides = NEW_ARRAY(x.arena, Expr *, 1); x.b->strides[0] = VAR(ITER("undeclared")));
}

static void grids_have_constant_threads_and_begin_at_0(void **state) {
    REFUSED(T_NOT_CONSTANT, x.grid->grid.threads = e_var(x.arena, var_new(x.arena, "n", VAR_DIM, TYPE_I64, (Span){0})));
    REFUSED(T_NOT_CONSTANT, x.grid->grid.threads = INT(0));
    REFUSED(T_GRID_RANGE, x.grid->grid.iters[0].begin = INT(1));
    REFUSED(T_GRID_RANGE, x.grid->grid.iters[0].step = INT(2));
    REFUSED(T_GRID_RANGE, Iter *both = NEW_ARRAY(x.arena, Iter, 2); both[0] = x.grid->grid.iters[0];
            both[1] = (Iter){ITER("j"), INT(0), VAR(both[0].var), INT(1)}; x.grid->grid.iters = both;
            x.grid->grid.count = 2);
    REFUSED(T_CLUSTER, x.grid->grid.cluster[0] = MOST_CLUSTER + 1);
    REFUSED(T_CLUSTER, x.grid->grid.cluster[1] = 2);   // the grid has one name
    REFUSED(T_IR_TYPE, x.grid->grid.iters[0].var->type = TYPE_F32);
}

static Stmt *role(Fixture *x, int64_t threads) {
    Stmt *stmt = stmt_new(x->arena, STMT_ROLE, (Span){0});
    stmt->role.name = "r";
    stmt->role.threads = threads;
    return stmt;
}

static void inside(Fixture *x, Block *body, Stmt *stmt) {
    block_push(x->arena, body, stmt);
}

static void roles_are_warps_at_block_level(void **state) {
    REFUSED(T_ROLE_THREADS, PUSH(role(&x, 48)));
    REFUSED(T_IR_PLACE, PUSH(role(&x, 0)));
    REFUSED(T_IR_PLACE, Stmt *outer = role(&x, 32); inside(&x, &outer->role.body, role(&x, 32)); PUSH(outer));
    REFUSED(T_IR_PLACE, Stmt *loop = s_for(x.arena, LOOP_SERIAL, ITER("i"), INT(0), INT(4));
            inside(&x, &loop->loop.body, role(&x, 32)); PUSH(loop));
    REFUSED(T_IR_PLACE, Stmt *region = thread_region(&x, ITER("t")); inside(&x, &region->thread.body, role(&x, 32));
            PUSH(region));
    REFUSED(T_NOT_CONSTANT, Stmt *none = role(&x, 32); none->role.count = 1; none->role.iters = NEW(x.arena, Iter);
            none->role.iters[0] = (Iter){ITER("r"), INT(0), INT(0), INT(1)}; PUSH(none));
}

static Stmt *region_of(Fixture *x, Expr *begin, Expr *end) {
    Stmt *region = thread_region(x, var_new(x->arena, "t", VAR_ITER, TYPE_I64, (Span){0}));
    region->thread.iters[0].begin = begin;
    region->thread.iters[0].end = end;
    return region;
}

static void thread_regions_count_the_threads_there_are(void **state) {
    REFUSED(T_NOT_CONSTANT, PUSH(region_of(&x, INT(1), INT(64))));
    REFUSED(T_NOT_CONSTANT, PUSH(region_of(&x, INT(0), let_of(&x, 'i'))));
    REFUSED(T_OUT_OF_BOUNDS, PUSH(region_of(&x, INT(0), INT(0))));
    REFUSED(T_OUT_OF_BOUNDS, PUSH(region_of(&x, INT(0), INT(1 << 20))));
    REFUSED(T_REGION_THREADS, PUSH(region_of(&x, INT(0), INT(65))));
    REFUSED(T_IR_PLACE, Stmt *outer = region_of(&x, INT(0), INT(64));
            inside(&x, &outer->thread.body, region_of(&x, INT(0), INT(64))); PUSH(outer));
    REFUSED(T_IR_PLACE, Stmt *loop = parallel(&x, ITER("i"), 4);
            inside(&x, &loop->loop.body, region_of(&x, INT(0), INT(64))); PUSH(loop));
    REFUSED(T_IR_PLACE, Stmt *region = region_of(&x, INT(0), INT(64));
            inside(&x, &region->thread.body, parallel(&x, ITER("i"), 4)); PUSH(region));
}

// program p(A: f32[64], B: out f32[64], n: f32) { k(A, B); }, with the arguments given.
static void launch(Fixture *x, int count, const Arg *args) {
    Func *program = NEW(x->arena, Func);
    program->name = "p";
    program->kind = FUNC_PROGRAM;
    for (int i = 0; i < x->func->params.count; i++) vec_push(x->arena, &program->params, x->func->params.items[i]);
    Stmt *stmt = stmt_new(x->arena, STMT_LAUNCH, (Span){0});
    stmt->launch.callee = "k";
    stmt->launch.func = x->func;
    stmt->launch.count = count;
    stmt->launch.args = arena_copy(x->arena, args, sizeof *args * (size_t)count);
    block_push(x->arena, &program->body, stmt);
    vec_push(x->arena, &x->module->funcs, program);
}

static void launches_fit_their_kernel(void **state) {
#define WHOLE(BUF) arg_region(region_whole(x.arena, (BUF)))
#define LAUNCH(...)                                                                                                    \
    Arg args[] = {__VA_ARGS__};                                                                                        \
    launch(&x, COUNT_OF(args), args)
    START;
    LAUNCH(WHOLE(x.a), WHOLE(x.b));
    expect_sound(&x);
    REFUSED(T_ARGUMENTS, LAUNCH(WHOLE(x.a)));
    REFUSED(T_LAUNCH_TENSOR, LAUNCH(WHOLE(x.a), arg_value(INT(1))));
    REFUSED(T_LAUNCH_TENSOR, Buf *b = x.b; Buf *other = add_tensor(&x, "C", MODE_OUT); x.func->params.count = 2;
            other->type = TYPE_F16; (void)b; LAUNCH(WHOLE(x.a), WHOLE(other)));
    REFUSED(T_LAUNCH_TENSOR, int64_t shape[] = {64, 1};
            Buf *other = buf_new_const(x.arena, "C", SCOPE_GLOBAL, TYPE_F32, 2, shape, (Span){0});
            LAUNCH(WHOLE(x.a), WHOLE(other)));
    REFUSED(T_READ_ONLY, LAUNCH(WHOLE(x.a), WHOLE(x.a)));
    REFUSED(T_IR_PLACE, Stmt *stmt = stmt_new(x.arena, STMT_LAUNCH, (Span){0}); stmt->launch.callee = "k"; PUSH(stmt));
}

static void statements_stand_where_their_function_takes_them(void **state) {
    REFUSED(T_MISPLACED, block_push(x.arena, &x.func->body, s_store1(x.arena, x.b, INT(0), FLOAT(1))));
    REFUSED(T_MISPLACED, block_push(x.arena, &x.func->body, s_for(x.arena, LOOP_SERIAL, ITER("i"), INT(0), INT(4))));
    REFUSED(T_MISPLACED, x.func->kind = FUNC_REFERENCE);
    REFUSED(T_ONE_GRID, PUSH(stmt_new(x.arena, STMT_GRID, (Span){0}));
            x.body->items[x.body->count - 1]->grid.threads = INT(32));
}

static void mechanisms_are_of_what_they_do(void **state) {
    static const char *const nothing[] = {"tma",     "cp_async", "ldmatrix",  "stmatrix", "mma",
                                          "shuffle", "linear",   "transpose", "bulk"};
    for (int i = 0; i < COUNT_OF(nothing); i++) {   // a fill is done by none of them
        START;
        Arg args[] = {arg_region(region_whole(x.arena, x.s)), arg_value(FLOAT(0))};
        Stmt *fill = s_call(x.arena, OP_FILL, 2, args);
        attr_set_text(x.arena, &fill->attrs, ATTR_VIA, nothing[i]);
        PUSH(fill);
        expect_code(&x, T_ATTRIBUTE_PLACE);
    }
    REFUSED(T_ATTRIBUTE, Stmt *stmt = copy(&x, x.a, x.s); attr_set_text(x.arena, &stmt->attrs, ATTR_VIA, "magic");
            PUSH(stmt));
    REFUSED(T_ATTRIBUTE_PLACE, Stmt *stmt = copy(&x, x.s, x.f); attr_add(x.arena, &stmt->attrs, ATTR_TF32, 0);
            PUSH(stmt));
    START;
    Stmt *rounds = copy(&x, x.a, x.s);
    attr_add(x.arena, &rounds->attrs, ATTR_TF32, 0);
    PUSH(rounds);
    expect_sound(&x);
}

static Stmt *mapped(Fixture *x, const char *map) {
    const char *why = NULL;
    Var *i = var_new(x->arena, "i", VAR_ITER, TYPE_I64, (Span){0});
    Stmt *loop = parallel(x, i, 64);
    attr_set_layout(x->arena, &loop->attrs, ATTR_MAP, layout_parse(x->arena, map, 32, &why));
    return loop;
}

static void maps_give_each_iteration_to_a_thread(void **state) {
    START;
    PUSH(mapped(&x, "(64,1):(1@0,0)"));
    expect_sound(&x);
    REFUSED(T_IR_MAP, PUSH(mapped(&x, "(64,2):(1@0,0)")));                 // values of stride 0
    REFUSED(T_IR_MAP, PUSH(mapped(&x, "(32,(2,2)):(1@0,(32@0,32@0))")));   // twice the same
    REFUSED(T_IR_MAP, PUSH(mapped(&x, "64:1")));                           // no values
    REFUSED(T_IR_MAP, PUSH(mapped(&x, "(8,8):(1@0,1@1)")));                // two dims
    REFUSED(T_IR_MAP, x.grid->grid.threads = INT(32); PUSH(mapped(&x, "(64,1):(1@0,0)")));
}

static void every_violation_is_reported(void **state) {
    START;
    PUSH(s_store1(x.arena, x.s, INT(64), FLOAT(1)));
    PUSH(s_store1(x.arena, x.a, INT(0), FLOAT(1)));
    PUSH(s_if(x.arena, INT(1)));
    assert_false(verify_func(x.module, x.func, true));
    assert_int_equal(diag_errors(x.module->sink), 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_ARENA(a_sound_kernel_passes),
        IN_ARENA(names_are_declared),
        IN_ARENA(names_end_with_their_block),
        IN_ARENA(names_are_declared_once),
        IN_ARENA(inputs_are_not_written),
        IN_ARENA(inputs_are_not_copied_to),
        IN_ARENA(only_var_is_assigned),
        IN_ARENA(operands_agree),
        IN_ARENA(constants_have_their_type),
        IN_ARENA(conditions_are_bool),
        IN_ARENA(indices_fit_the_rank),
        IN_ARENA(constant_indices_are_inside),
        IN_ARENA(constant_regions_are_inside),
        IN_ARENA(there_is_one_grid),
        IN_ARENA(there_is_a_grid),
        IN_ARENA(break_leaves_a_loop),
        IN_ARENA(steps_are_positive),
        IN_ARENA(programs_do_no_device_work),
        IN_ARENA(extents_are_positive),
        IN_ARENA(locals_are_declared_in_thread_regions),
        IN_ARENA(tile_ops_stand_outside_of_parallel),
        IN_ARENA(tile_ops_stand_outside_of_thread_regions),
        IN_ARENA(thread_ops_stand_inside_of_them),
        IN_ARENA(thread_stage_has_no_fragments),
        IN_ARENA(operands_are_there),
        IN_ARENA(operands_are_in_their_memory),
        IN_ARENA(constant_operands_are_constant),
        IN_ARENA(shapes_of_copies_agree),
        IN_ARENA(shapes_of_reductions_agree),
        IN_ARENA(barriers_are_uniform),
        IN_ARENA(effects_stand_in_no_index),
        IN_ARENA(effects_decide_where_a_block_goes_once),
        IN_ARENA(threads_may_wait_each_for_itself),
        IN_ARENA(local_indices_are_constant),
        IN_ARENA(iterations_do_not_conflict),
        IN_ARENA(iterations_that_guards_tell_apart_are_fine),
        IN_ARENA(iterations_do_not_assign_outer_variables),
        IN_ARENA(attributes_stand_in_their_place),
        IN_ARENA(attributes_have_their_arguments),
        IN_ARENA(layouts_cover_their_buffer),
        IN_ARENA(layouts_have_the_rank_of_their_buffer),
        IN_ARENA(storage_does_not_overlap),
        IN_ARENA(storage_is_aligned),
        IN_ARENA(operations_have_operands_of_their_types),
        IN_ARENA(operations_have_an_operand_of_their_type),
        IN_ARENA(expressions_have_the_type_of_what_they_name),
        IN_ARENA(regions_fit_their_buffer),
        IN_ARENA(buffers_are_what_their_place_takes),
        IN_ARENA(grids_have_constant_threads_and_begin_at_0),
        IN_ARENA(roles_are_warps_at_block_level),
        IN_ARENA(thread_regions_count_the_threads_there_are),
        IN_ARENA(launches_fit_their_kernel),
        IN_ARENA(statements_stand_where_their_function_takes_them),
        IN_ARENA(mechanisms_are_of_what_they_do),
        IN_ARENA(maps_give_each_iteration_to_a_thread),
        IN_ARENA(every_violation_is_reported),
    };
    return run(tests);
}
