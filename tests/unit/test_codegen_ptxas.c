// The assemblers, what they report, and errors inside LLVM.
#include "codegen/assembler.h"
#include "tests/unit/codegen_unit.h"

static void make_copy(Kernel *k) {
    Buf *x = tensor(k, "x", TYPE_F32, MODE_IN, e_int(k->arena, 128));
    Buf *y = tensor(k, "y", TYPE_F32, MODE_OUT, e_int(k->arena, 128));
    block_push(k->arena, k->body, s_store1(k->arena, y, thread(k), e_load1(k->arena, x, thread(k))));
}

static void expect_kernel(const Cubin *cubin) {
    assert_true(cubin->size > 64);
    assert_memory_equal(cubin->data, "\177ELF", 4);
    assert_int_equal(cubin->kernel_count, 1);
    assert_string_equal(cubin->kernels[0].symbol, "test");
    assert_in_range(cubin->kernels[0].registers, 2, 32);
    assert_int_equal(cubin->kernels[0].spill_stores, 0);
}

static void test_ptxas(void **state) {
    START(k, 128);
    make_copy(&k);
    AssembleOptions options = {.target = target_named("sm_90a"), .lines = true};
    Cubin cubin;
    assert_true(assemble(k.arena, &failure, k.module->sink, ptx_of(&k, "sm_90a"), &options, &cubin));
    expect_kernel(&cubin);
    assert_memory_equal(cubin.assembler, "ptxas ", 6);
    assert_true(cubin.seconds > 0);
}

static void test_library(void **state) {
    START(k, 128);
    make_copy(&k);
    AssembleOptions options = {.target = target_named("sm_80")};
    Assembly assembly = {
        .arena = k.arena, .failure = &failure, .sink = k.module->sink, .options = &options, .few_registers = true};
    assembly.ptx = ptx_of(&k, "sm_80");
    AssembleStatus status = run_nvjitlink(&assembly);
    if (status == UNAVAILABLE) {   // (skip() would leave past the arena)
        print_message("no libnvJitLink here\n");
        return;
    }
    assert_int_equal(status, ASSEMBLED);
    assert_memory_equal(assembly.data, "\177ELF", 4);
    assert_non_null(strstr(assembly.log, "registers"));
}

// covers T0812
static void test_refused(void **state) {
    START(k, 128);
    AssembleOptions options = {.target = target_named("sm_80")};
    Cubin cubin;
    assert_false(assemble(k.arena, &failure, k.module->sink, "no PTX at all", &options, &cubin));
    assert_int_equal(diag_view(k.module->sink, 0).code, T_PTXAS_REFUSED);
}

// covers T0811
static void test_missing(void **state) {
    START(k, 128);
    AssembleOptions options = {.target = target_named("sm_80"), .ptxas = "/nowhere/ptxas"};
    Cubin cubin;
    assert_false(assemble(k.arena, &failure, k.module->sink, "", &options, &cubin));
    assert_int_equal(diag_view(k.module->sink, 0).code, T_PTXAS_START);
}

// Sums 200 values that all live at once, in a kernel of 1024 threads: they cannot all be registers.
static void test_spills(void **state) {
    START(k, 1024);
    Arena *a = k.arena;
    Buf *x = tensor(&k, "x", TYPE_F32, MODE_INOUT, e_int(a, 1 << 20));
    Buf *v = local_buf(&k, "v", SCOPE_LOCAL, TYPE_F32, 200);
    for (int i = 0; i < 200; i++) {
        Expr *at = e_add(a, thread(&k), e_int(a, 1024 * i));
        block_push(a, k.body, s_store1(a, v, e_int(a, i), e_load1(a, x, at)));
    }
    block_push(a, k.body, s_call(a, OP_BARRIER, 0, NULL));
    for (int i = 0; i < 200; i++) {
        Expr *at = e_add(a, e_mul(a, thread(&k), e_int(a, 200)), e_int(a, i));
        block_push(a, k.body, s_store1(a, x, at, e_load1(a, v, e_int(a, i))));
    }
    AssembleOptions options = {.target = target_named("sm_80")};
    Cubin cubin;
    assert_true(assemble(a, &failure, k.module->sink, ptx_of(&k, "sm_80"), &options, &cubin));
    assert_true(cubin.kernels[0].spill_stores > 0);
    assert_true(cubin.kernels[0].stack > 0);
    assert_int_equal(cubin.kernels[0].barriers, 1);
}

// What LLVM gave up on is abandoned (llvm_errors.c), which the leak sanitizer need not report.
void __lsan_disable(void) __attribute__((weak));
void __lsan_enable(void) __attribute__((weak));

// LLVM ends the process over a PTX version below the target's, unless it is stopped.
static void test_llvm_gives_up(void **state) {
    Arena *arena = *state;
    Failure failure;
    Target target = *target_named("sm_90a");
    target.ptx_feature = "+ptx70";
    if (FAILURE_CAUGHT(&failure)) {
        if (__lsan_enable) __lsan_enable();
        assert_int_equal(failure.kind, FAIL_INTERNAL);
        assert_non_null(strstr(failure.message, "LLVM"));
        return;
    }
    Kernel k;
    kernel_start(&k, arena, &failure, 128);
    make_copy(&k);
    CodegenOptions options = {.target = &target, .optimize = 1};
    CodegenResult result;
    if (__lsan_disable) __lsan_disable();
    codegen_module(k.module, &options, false, &result);
    fail_msg("compiled");
}

// A broken promise of tilec's own leaves too, with LLVM's objects released (the sanitizer would tell).
static void test_broken_promise(void **state) {
    Arena *arena = *state;
    Failure failure;
    if (FAILURE_CAUGHT(&failure)) {
        assert_non_null(strstr(failure.message, "is not a constant"));
        return;
    }
    Kernel k;
    kernel_start(&k, arena, &failure, 128);
    Buf *v = local_buf(&k, "v", SCOPE_LOCAL, TYPE_F32, 8);
    block_push(arena, k.body, s_store1(arena, v, thread(&k), e_float(arena, TYPE_F32, 1)));
    CodegenOptions options = {.target = target_named("sm_80"), .optimize = 1};
    CodegenResult result;
    codegen_module(k.module, &options, false, &result);
    fail_msg("compiled");
}

// covers T0810
static void test_none(void **state) {
    START(k, 128);
    Assembly assembly = {.arena = k.arena, .failure = &failure, .sink = k.module->sink, .ptx = ""};
    AssembleOptions options = {.target = target_named("sm_80")};
    assembly.options = &options;
    char *path = arena_strdup(k.arena, getenv("PATH") ? getenv("PATH") : "");
    setenv("PATH", "", 1);
    setenv("CUDA_HOME", "/nowhere", 1);
    Cubin cubin;
    bool has_library = run_nvjitlink(&assembly) != UNAVAILABLE;
    bool done = assemble(k.arena, &failure, k.module->sink, "", &options, &cubin);
    setenv("PATH", path, 1);
    unsetenv("CUDA_HOME");
    assert_false(done);
    if (!has_library) assert_int_equal(diag_view(k.module->sink, 0).code, T_NO_PTXAS);
}

// covers T0815
static void test_messages(void **state) {
    START(k, 128);
    static const char log[] =
        "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to "
        "insufficient register resources for the wgmma pipeline in the function 'attention'\n"
        "ptxas info    : 0 bytes gmem\n"
        "ptxas info    : Compiling entry function 'attention' for 'sm_90a'\n"
        "ptxas info    : Function properties for attention\n"
        "    16 bytes stack frame, 12 bytes spill stores, 8 bytes spill loads\n"
        "ptxas info    : Used 255 registers, used 3 barriers, 1024 bytes smem\n"
        "ptxas info    : Compiling entry function 'gemm' for 'sm_90a'\n"
        "ptxas info    : Used 90 registers, 400 bytes cmem[0]\n";
    Assembly assembly = {.arena = k.arena, .failure = &failure, .sink = k.module->sink, .log = log};
    Cubin cubin = {0};
    read_assembler_log(&assembly, &cubin);
    assert_int_equal(cubin.kernel_count, 2);
    const KernelResources *attention = &cubin.kernels[0], *gemm = &cubin.kernels[1];
    assert_string_equal(attention->symbol, "attention");
    assert_int_equal(attention->stack, 16);
    assert_int_equal(attention->spill_stores, 12);
    assert_int_equal(attention->spill_loads, 8);
    assert_int_equal(attention->registers, 255);
    assert_int_equal(attention->barriers, 3);
    assert_int_equal(attention->shared_static, 1024);
    assert_string_equal(gemm->symbol, "gemm");
    assert_int_equal(gemm->registers, 90);
    assert_int_equal(gemm->stack, 0);
    assert_int_equal(diag_count(k.module->sink), 1);
    DiagView note = diag_view(k.module->sink, 0);
    assert_int_equal(note.code, T_PTXAS_NOTE);
    assert_non_null(strstr(note.message, "'attention'"));
}

// Lines of another form change nothing that is known; a note names the function that it can.
static void test_odd_messages(void **state) {
    START(k, 128);
    static const char log[] = "ptxas info    : (C7501) Potential Performance Loss: waits were added\n"
                              "ptxas info    : Used 7 registers\n"
                              "ptxas info    : Compiling entry function gemm for 'sm_90a'\n"
                              "ptxas info    : Used 90 registers, used 2 barriers\n"
                              "ptxas info    : Used many registers\n"
                              " registers\n"
                              "64 bytes smem\n"
                              "ptxas info    : (C7502) Potential Performance Loss: waits were added";
    Assembly assembly = {.arena = k.arena, .failure = &failure, .sink = k.module->sink, .log = log};
    Cubin cubin = {0};
    read_assembler_log(&assembly, &cubin);
    assert_int_equal(cubin.kernel_count, 1);
    assert_string_equal(cubin.kernels[0].symbol, "gemm");
    assert_int_equal(cubin.kernels[0].registers, 90);
    assert_int_equal(cubin.kernels[0].barriers, 2);
    assert_int_equal(cubin.kernels[0].shared_static, 64);
    assert_int_equal(diag_count(k.module->sink), 2);
    assert_non_null(strstr(diag_view(k.module->sink, 0).message, "'?'"));
    assert_non_null(strstr(diag_view(k.module->sink, 1).message, "'gemm'"));
    assembly.log = NULL;
    read_assembler_log(&assembly, &cubin);
    assert_int_equal(cubin.kernel_count, 0);
}

static void test_symbols(void **state) {
    START(k, 128);
    Func *variant = NEW(k.arena, Func), *other = NEW(k.arena, Func);
    *variant = *other = *k.func;
    other->name = "test__1";
    vec_push(k.arena, &k.module->funcs, variant);
    vec_push(k.arena, &k.module->funcs, other);
    assert_string_equal(kernel_symbol(k.module, k.func, k.arena), "test");
    assert_string_equal(kernel_symbol(k.module, variant, k.arena), "test__1_");
    assert_string_equal(kernel_symbol(k.module, other, k.arena), "test__1");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_ARENA(test_ptxas),    IN_ARENA(test_library),       IN_ARENA(test_refused),        IN_ARENA(test_missing),
        IN_ARENA(test_spills),   IN_ARENA(test_llvm_gives_up), IN_ARENA(test_broken_promise), IN_ARENA(test_none),
        IN_ARENA(test_messages), IN_ARENA(test_odd_messages),  IN_ARENA(test_symbols),
    };
    return run(tests);
}
