// What passes rely on (passes/preconditions.def): each precondition that a row of passes.def declares is broken once,
// and the runner names the pass and the precondition.
// covers T0509
// covers T0511
#include "ir/build.h"
#include "ir/match.h"
#include "passes/pass.h"
#include "tests/unit/unit.h"
#include <string.h>

static Stmt *statement(Arena *arena, Precondition which, bool broken) {
    Buf *global = buf_new_const(arena, "g", SCOPE_GLOBAL, TYPE_F32, 1, (int64_t[]){64}, (Span){0});
    Buf *shared = buf_new_const(arena, "s", SCOPE_SHARED, TYPE_F32, 1, (int64_t[]){64}, (Span){0});
    Buf *fragment = buf_new_const(arena, "f", SCOPE_FRAGMENT, TYPE_F32, 1, (int64_t[]){64}, (Span){0});
    Var *i = var_new(arena, "i", VAR_ITER, TYPE_I64, (Span){0});
    switch (which) {
    case PRE_STAGES: {
        Stmt *loop = s_for(arena, LOOP_PIPELINED, i, e_int(arena, 0), e_int(arena, 4));
        loop->loop.stages = broken ? e_var(arena, i) : e_int(arena, 2);
        return loop;
    }
    case PRE_VIA: {
        Arg args[] = {arg_region(region_whole(arena, global)), arg_region(region_whole(arena, shared))};
        Stmt *copy = s_call(arena, OP_COPY, COUNT_OF(args), args);
        if (!broken) via_set(arena, copy, VIA_PLAIN);
        return copy;
    }
    case PRE_NO_CHANNELS: {
        Type type = broken ? TYPE_CHANNEL : TYPE_MBARRIER;
        return s_decl(arena, buf_new_const(arena, "c", SCOPE_SHARED, type, 1, (int64_t[]){2}, (Span){0}));
    }
    case PRE_FLAT_GRID: {
        Stmt *grid = stmt_new(arena, STMT_GRID, (Span){0});
        grid->grid.count = broken ? 2 : 1;
        grid->grid.iters = NEW_ARRAY(arena, Iter, 2);
        for (int d = 0; d < 2; d++) grid->grid.iters[d] = (Iter){i, e_int(arena, 0), e_int(arena, 4), e_int(arena, 1)};
        return grid;
    }
    case PRE_LAYOUTS:
        if (!broken) fragment->layout = NEW(arena, Layout);
        return s_decl(arena, fragment);
    case PRE_MAPS: {
        Stmt *loop = s_for(arena, LOOP_PARALLEL, i, e_int(arena, 0), e_int(arena, 64));
        if (!broken) attr_set_layout(arena, &loop->attrs, ATTR_MAP, layout_row_major(arena, 1, (int64_t[]){32}));
        return loop;
    }
    case PRE_SCRATCH: {   // 64 elements of two warps
        Buf *sum = buf_new_const(arena, "sum", SCOPE_FRAGMENT, TYPE_F32, 1, (int64_t[]){1}, (Span){0});
        const char *why;
        fragment->layout = layout_parse(arena, broken ? "(64,1):(1,0)" : "(32,2):(1,32)", 64, &why);
        sum->layout = layout_parse(arena, "(1,1):(0,0)", 1, &why);
        Arg args[OPERAND_INDEX(REDUCE_SUM, end)] = {arg_region(region_whole(arena, fragment)),
                                                    arg_region(region_whole(arena, sum)), arg_int(arena, 0)};
        return s_call(arena, OP_REDUCE_SUM, COUNT_OF(args), args);
    }
    case PRE_SHARED: shared->offset = broken ? -1 : 0; return s_decl(arena, shared);
    case PRE_NO_TILE_OPS:
        return s_for(arena, broken ? LOOP_PARALLEL : LOOP_SERIAL, i, e_int(arena, 0), e_int(arena, 4));
    case PRE_COUNT: break;
    }
    fail_msg("precondition %d has no statement here that breaks it", which);
    return NULL;
}

static Func *kernel_of(Arena *arena, Stage stage, Stmt *inner) {
    Func *kernel = NEW(arena, Func);
    kernel->name = "k";
    kernel->stage = stage;
    Stmt *branch = s_if(arena, e_bool(arena, true));
    block_push(arena, &branch->if_.otherwise, inner);   // below another statement
    block_push(arena, &kernel->body, branch);
    return kernel;
}

static PassContext context_of(Arena *arena, const Func *kernel) {
    return (PassContext){.arena = arena, .target = target_named("sm_90a"), .kernel = kernel};
}

static void each_is_looked_at(void **state) {
    Arena *arena = *state;
    for (int which = 0; which < PRE_COUNT; which++) {
        Stmt *good = statement(arena, (Precondition)which, false), *bad = statement(arena, (Precondition)which, true);
        PassContext context = context_of(arena, NULL);
        assert_null(precondition_broken((Precondition)which, &context, kernel_of(arena, STAGE_TILE, good)));
        assert_ptr_equal(precondition_broken((Precondition)which, &context, kernel_of(arena, STAGE_TILE, bad)), bad);
    }
}

// The runner's report of a pass on a kernel where just this precondition is broken.
static void breaks(Arena *arena, const Pass *pass, Precondition which) {
    Failure failure;
    if (FAILURE_CAUGHT(&failure)) fail_msg("%s", failure.message);
    Module *module = module_new(arena, &failure, diag_sink_new(arena));
    Func *kernel = kernel_of(arena, pass->from, statement(arena, which, true));
    vec_push(arena, &module->funcs, kernel);
    PassOptions options = {.passes = pass->name, .bisect_limit = -1};
    assert_false(run_passes(module, target_named("sm_90a"), &options, NULL));
    assert_int_equal(diag_count(module->sink), 1);
    assert_int_equal(diag_view(module->sink, 0).code, T_PRECONDITION);
    const char *message = diag_view(module->sink, 0).message;
    assert_non_null(strstr(message, pass->name));
    assert_non_null(strstr(message, precondition_text(which)));
}

static void each_pass_says_what_it_relies_on(void **state) {
    int declared = 0, used = 0;
    for (int p = 0; pass_at(p); p++) {
        used |= pass_at(p)->relies;
        for (int which = 0; which < PRE_COUNT; which++)
            if (pass_at(p)->relies & 1 << which) breaks(*state, pass_at(p), (Precondition)which), declared++;
    }
    assert_true(declared >= PRE_COUNT);
    assert_int_equal(used, (1 << PRE_COUNT) - 1);   // none is declared by no pass
}

// ---- what a pass changes and does not say ----

static Func *grid_kernel(Arena *arena, Stmt **grid) {
    Func *kernel = NEW(arena, Func);
    kernel->name = "k";
    *grid = NEW(arena, Stmt);
    (*grid)->kind = STMT_GRID;
    (*grid)->grid.threads = e_int(arena, 128);
    block_push(arena, &kernel->body, *grid);
    return kernel;
}

static void hidden_changes_are_found(void **state) {
    Stmt *grid;
    Func *kernel = grid_kernel(*state, &grid);
    PassContext context = context_of(*state, kernel);
    Failure failure;
    context.sink = diag_sink_new(*state);
    context.module = module_new(*state, &failure, context.sink);
    const char *before = kernel_text(context.module, kernel, (PrintOptions){0});
    report_hidden_change(&context, "select", before);
    assert_int_equal(diag_errors(context.sink), 0);
    grid->grid.threads = e_int(*state, 256);
    report_hidden_change(&context, "select", before);
    assert_int_equal(diag_view(context.sink, 0).code, T_HIDDEN_CHANGE);
}

int main(void) {
    const struct CMUnitTest tests[] = {IN_ARENA(each_is_looked_at), IN_ARENA(each_pass_says_what_it_relies_on),
                                       IN_ARENA(hidden_changes_are_found)};
    return run(tests);
}
