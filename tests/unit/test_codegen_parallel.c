// Kernels side by side: the text is one that ptxas takes, the same on any number of threads, and what goes wrong in a
// thread is reported as if there were none.
#include "codegen/gen.h"
#include "tests/unit/codegen_unit.h"
#include <sched.h>

enum { KERNELS = 6, STORES = 400 };

// Kernels large enough for a unit each, every other one from a second file; with `print` each prints.
static void make_kernels(Kernel *kernels, Arena *arena, Failure *failure, bool print) {
    for (int i = 0; i < KERNELS; i++) {
        Kernel *k = &kernels[i];
        kernel_start(k, arena, failure, 128);
        Span loc = {.file = i % 2, .line = i + 1, .column = 1};
        k->func->name = arena_printf(arena, "kernel%d", i);
        k->func->loc = loc;
        Buf *x = tensor(k, "x", TYPE_F32, MODE_INOUT, e_int(arena, 1 << 20));
        for (int s = 0; s < STORES; s++) {
            Expr *at = e_add(arena, thread(k), e_int(arena, 128 * s));
            Stmt *store = s_store1(arena, x, at, e_add(arena, e_load1(arena, x, at), e_float(arena, TYPE_F32, i)));
            store->loc = loc;
            block_push(arena, k->body, store);
        }
        if (print) {
            Arg text = {.name = i < 3 ? "early" : "late", .is_string = true}, args[] = {text, arg_value(thread(k))};
            block_push(arena, k->body, s_call(arena, OP_PRINT, 2, args));
        }
        if (i > 0) vec_push(arena, &kernels[0].module->funcs, k->func);
    }
    diag_add_source(kernels[0].module->sink, "other.tile", "kernel\n", 7);
}

static int count_of(const char *text, const char *piece) {
    int count = 0;
    for (const char *at = strstr(text, piece); at; at = strstr(at + 1, piece)) count++;
    return count;
}

static const char *compile(const Kernel *kernels) {
    CodegenOptions options = {.target = target_named("sm_80"), .optimize = 1, .lines = true};
    CodegenResult result;
    assert_true(codegen_module(kernels[0].module, &options, false, &result));
    assert_true(result.seconds > 0 && result.emit_seconds > 0);
    return result.ptx;
}

#define START_KERNELS(print)                                                                                           \
    Arena *arena = *state;                                                                                             \
    Failure failure;                                                                                                   \
    Kernel kernels[KERNELS];                                                                                           \
    if (FAILURE_CAUGHT(&failure)) fail_msg("%s", failure.message);                                                     \
    make_kernels(kernels, arena, &failure, print)

static void test_one_text(void **state) {
    START_KERNELS(true);
    Unit *units;
    assert_int_equal(make_units(kernels[0].module, false, &units), KERNELS);
    const char *ptx = compile(kernels), *before = ptx;
    for (int i = 0; i < KERNELS; i++) {   // in their order, with their lines
        const char *entry = strstr(before, arena_printf(arena, ".entry kernel%d(", i));
        assert_non_null(entry);
        const char *place = strstr(entry, "\t.loc\t");
        assert_non_null(place);
        const char *expected = arena_printf(arena, "\t.loc\t%d %d ", i % 2 + 1, i + 1);
        assert_memory_equal(place, expected, strlen(expected));
        before = entry;
    }
    const char *const single[] = {".version",    ".target",      ".extern .shared", ".extern .func",
                                  "test.tile\"", "other.tile\"", ".section"};
    for (size_t i = 0; i < sizeof single / sizeof single[0]; i++) assert_int_equal(count_of(ptx, single[i]), 1);
    assert_int_equal(count_of(ptx, "\t.file\t"), 2);
    AssembleOptions options = {.target = target_named("sm_80"), .lines = true};
    Cubin cubin;
    assert_true(assemble(arena, &failure, kernels[0].module->sink, ptx, &options, &cubin));
    assert_int_equal(cubin.kernel_count, KERNELS);
}

static void test_any_number_of_threads(void **state) {
    START_KERNELS(false);
    const char *many = compile(kernels);
    cpu_set_t all, one;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    sched_setaffinity(0, sizeof one, &one);
    const char *single = compile(kernels);
    sched_setaffinity(0, sizeof all, &all);
    assert_string_equal(many, single);
}

// Small kernels share a unit; where LLVM's text is wanted all do.
static void test_units(void **state) {
    START_KERNELS(false);
    Module *module = kernels[0].module;
    Unit *units;
    assert_int_equal(make_units(module, true, &units), 1);
    assert_true(units[0].alone && units[0].first == 0 && units[0].end == KERNELS);
    for (int i = 1; i < KERNELS; i += 2) kernels[i].body->count = 10;
    assert_int_equal(make_units(module, false, &units), KERNELS / 2);
    for (int i = 0; i < KERNELS / 2; i++) assert_int_equal(units[i].first, i ? units[i - 1].end : 0);
    assert_int_equal(units[KERNELS / 2 - 1].end, KERNELS);
}

static void test_single_report(void **state) {
    START_KERNELS(false);
    for (int i = 2; i < 4; i++) {
        Buf *shared = local_buf(&kernels[i], "s", SCOPE_SHARED, TYPE_BF16, 1024);
        Buf *local = local_buf(&kernels[i], "l", SCOPE_LOCAL, TYPE_BF16, 8);
        Arg args[] = {place(&kernels[i], shared, e_int(arena, 0)), place(&kernels[i], local, e_int(arena, 0)),
                      arg_value(e_int(arena, 4)), arg_value(e_bool(arena, false))};
        shared->offset = 0;
        Stmt *call = s_call(arena, OP_STMATRIX, 4, args);
        call->loc = kernels[i].func->loc;
        block_push(arena, kernels[i].body, call);
    }
    CodegenOptions options = {.target = target_named("sm_80"), .optimize = 1};
    CodegenResult result;
    assert_false(codegen_module(kernels[0].module, &options, false, &result));
    const DiagSink *sink = kernels[0].module->sink;
    assert_int_equal(diag_count(sink), 2);
    for (int i = 0; i < 2; i++) assert_int_equal(diag_view(sink, i).code, T_NEEDS_FEATURE);
}

// A broken promise leaves by the caller's failure point, from the caller's thread, and nothing is lost.
static void test_leaves(void **state) {
    Arena *arena = *state;
    Failure failure;
    if (FAILURE_CAUGHT(&failure)) {
        assert_int_equal(failure.kind, FAIL_INTERNAL);
        assert_non_null(strstr(failure.message, "is not a constant"));
        return;
    }
    Kernel kernels[KERNELS];
    make_kernels(kernels, arena, &failure, false);
    Buf *v = local_buf(&kernels[4], "v", SCOPE_LOCAL, TYPE_F32, 8);
    block_push(arena, kernels[4].body, s_store1(arena, v, thread(&kernels[4]), e_float(arena, TYPE_F32, 1)));
    compile(kernels);
    fail_msg("compiled");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_ARENA(test_one_text), IN_ARENA(test_any_number_of_threads),
        IN_ARENA(test_units),    IN_ARENA(test_single_report),
        IN_ARENA(test_leaves),
    };
    return run(tests);
}
