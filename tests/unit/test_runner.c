// The runner: what it says when a pass breaks the rules, when the text reads back differently, when a test fails.
// covers T0503
// covers T0504
// covers T0505
#include "ir/build.h"
#include "passes/pass.h"
#include "tests/unit/unit.h"
#include <string.h>

// kernel k() { grid (b in 1) threads 32 { if (true) { x = ...; } } }, which simplify changes. `wrong`: a store with an
// index too few.
static Module *module_of(Arena *arena, Failure *failure, bool wrong) {
    Module *module = module_new(arena, failure, diag_sink_new(arena));
    Func *kernel = NEW(arena, Func);
    kernel->name = "k";
    int64_t shape[] = {4, 4};
    Buf *y = buf_new_const(arena, "y", SCOPE_GLOBAL, TYPE_F32, 2, shape, (Span){0});
    y->is_param = true;
    y->mode = MODE_OUT;
    vec_push(arena, &kernel->params, ((Param){.buf = y}));
    Stmt *grid = stmt_new(arena, STMT_GRID, (Span){0}), *branch = s_if(arena, e_bool(arena, true));
    Iter iter = {var_new(arena, "b", VAR_ITER, TYPE_I64, (Span){0}), e_int(arena, 0), e_int(arena, 1), e_int(arena, 1)};
    grid->grid.count = 1;
    grid->grid.iters = arena_copy(arena, &iter, sizeof iter);
    grid->grid.threads = e_int(arena, 32);
    grid->grid.cluster[0] = grid->grid.cluster[1] = grid->grid.cluster[2] = 1;
    Expr *at[] = {e_int(arena, 0), e_int(arena, 0)};
    block_push(arena, &branch->if_.then, s_store(arena, y, wrong ? 1 : 2, at, e_float(arena, TYPE_F32, 1)));
    block_push(arena, &grid->grid.body, branch);
    block_push(arena, &kernel->body, grid);
    vec_push(arena, &module->funcs, kernel);
    return module;
}

static Module *parse_nothing(void *user, Arena *arena, Failure *failure, DiagSink *sink, const char *name,
                             const char *text) {
    (void)user, (void)arena, (void)failure, (void)sink, (void)name, (void)text;
    return NULL;
}

static Module *parse_another(void *user, Arena *arena, Failure *failure, DiagSink *sink, const char *name,
                             const char *text) {
    (void)user, (void)sink, (void)name, (void)text;
    return module_new(arena, failure, diag_sink_new(arena));
}

static bool emulate_wrong(void *user, Module *module, const char *after, const char **why) {
    (void)user, (void)module;
    *why = "it is wrong";
    return strcmp(after, "simplify") != 0;
}

static DiagCode only_code(const Module *module) {
    assert_true(diag_count(module->sink) > 0);
    return diag_view(module->sink, diag_count(module->sink) - 1).code;
}

static void run_simplify(Arena *arena, bool wrong, PassOptions options, PassHooks hooks, DiagCode expected) {
    Failure failure;
    if (FAILURE_CAUGHT(&failure)) fail_msg("%s", failure.message);
    Module *module = module_of(arena, &failure, wrong);
    options.passes = "simplify";
    options.bisect_limit = -1;
    bool passed = run_passes(module, target_named("sm_80"), &options, &hooks);
    assert_int_equal(passed, expected == 0);
    if (expected) assert_int_equal(only_code(module), expected);
}

static void test_checks(void **state) {
    PassOptions plain = {0}, verify = {.verify_each = true}, trip = {.roundtrip_each = true},
                emulate = {.emulate_each = true};
    PassHooks none = {0}, nothing = {.parse = parse_nothing}, another = {.parse = parse_another},
              wrong = {.emulate = emulate_wrong};
    run_simplify(*state, false, plain, none, 0);
    run_simplify(*state, true, verify, none, T_PASS_BROKE);
    run_simplify(*state, false, trip, nothing, T_ROUNDTRIP);
    run_simplify(*state, false, trip, another, T_ROUNDTRIP);
    run_simplify(*state, false, emulate, wrong, T_EMULATE_AFTER);
}

static void test_names(void **state) {
    PassOptions unknown = {.stop_after = "simplyfy"};
    run_simplify(*state, false, unknown, (PassHooks){0}, T_UNKNOWN_PASS);
}

static void test_bisect(void **state) {
    Failure failure;
    if (FAILURE_CAUGHT(&failure)) fail_msg("%s", failure.message);
    Module *module = module_of(*state, &failure, false);
    PassOptions none = {.passes = "simplify", .bisect_limit = 0};
    assert_true(run_passes(module, target_named("sm_80"), &none, NULL));
    assert_int_equal(func_grid(module->funcs.items[0])->grid.body.items[0]->kind, STMT_IF);
    none.bisect_limit = 1;
    assert_true(run_passes(module, target_named("sm_80"), &none, NULL));
    assert_int_equal(func_grid(module->funcs.items[0])->grid.body.items[0]->kind, STMT_STORE);
}

// The rows of the registry and the steps of the pipeline agree, and the document names all of them.
static void test_registry(void **state) {
    StrBuf text;
    sb_init(&text, *state);
    passes_document(&text);
    for (int i = 0; pass_at(i); i++) {
        assert_ptr_equal(pass_named(pass_at(i)->name), pass_at(i));
        assert_non_null(strstr(sb_text(&text), pass_at(i)->summary + 1));
        assert_true(!*pass_at(i)->needs || pass_named(pass_at(i)->needs));
    }
    assert_null(pass_named("no-such-pass"));
}

int main(void) {
    const struct CMUnitTest tests[] = {IN_ARENA(test_checks), IN_ARENA(test_names), IN_ARENA(test_bisect),
                                       IN_ARENA(test_registry)};
    return run(tests);
}
