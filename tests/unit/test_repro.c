// Reproducers: what is written where a promise of tilec is broken, and when nothing is.
#include "frontend/frontend.h"
#include "runtime/compile/repro.h"
#include "support/files.h"
#include "tests/unit/unit.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char text[] = "kernel k(x: f32[N], y: out f32[N]) {\n"
                           "    grid (b in ceildiv(N, 64)) threads 64 {\n"
                           "        shared s: f32[64];\n"
                           "        if (true) copy(x[b * 64], s);\n"
                           "        copy(s, y[b * 64]);\n"
                           "    }\n"
                           "}\n"
                           "reference k { for (i in N) y[i] = x[i]; }\n"
                           "test k (N = 64) tolerance 0;\n";

typedef struct Case {
    Failure failure;
    CompileOptions options;
    Module *module;
    char folder[32];
} Case;

static void begin(Case *c, Arena *arena) {
    *c = (Case){0};
    c->options = compile_options(target_named("sm_80"));
    c->module = parse_module(arena, &c->failure, diag_sink_new(arena), "k.tile", text);
    assert_non_null(c->module);
    strcpy(c->folder, "repro.XXXXXX");
    assert_non_null(mkdtemp(c->folder));
    c->options.passes.verify_each = true;
    c->options.repro = arena_printf(arena, "%s/k", c->folder);
}

// Removes the file and the folder, which has nothing else.
static void end(const Case *c, Arena *arena, const char *file) {
    if (file) assert_int_equal(unlink(arena_printf(arena, "%s/%s", c->folder, file)), 0);
    assert_int_equal(rmdir(c->folder), 0);
}

static const char *read_file(const Case *c, Arena *arena, const char *name) {
    FileText file;
    const char *why;
    if (!file_load(arena, arena_printf(arena, "%s/%s", c->folder, name), 0, &file, &why)) fail_msg("%s: %s", name, why);
    return file.text;
}

static DiagCode last_code(const Case *c) {
    int count = diag_count(c->module->sink);
    return count ? diag_view(c->module->sink, count - 1).code : (DiagCode)0;
}

#define HAS(text, piece)                                                                                               \
    do {                                                                                                               \
        if (!strstr(text, piece)) fail_msg("'%s' is not in:\n%s", piece, text);                                        \
    } while (0)

// The point of failure was left to in `select`: the file has what simplify made, and runs select alone.
static void test_internal(void **state) {
    Case c;
    Repro repro;
    begin(&c, *state);
    repro_start(&repro, c.module, &c.options);
    repro_begin(&repro, "simplify");
    repro_begin(&repro, "select");
    c.failure.kind = FAIL_INTERNAL;
    repro_end(&repro, false);
    assert_int_equal(last_code(&c), T_REPRODUCER);
    const char *file = read_file(&c, *state, "k.select.repro.tile");
    HAS(file, "T9901 in select");
    HAS(file, "//   tilec opt --passes=select --verify-each --target=sm_80 --repro-dir=none -o /dev/null ");
    HAS(file, "--exit=70 --match=T9901 -- tilec opt --passes=select ");
    HAS(file, "test k");
    assert_null(strstr(file, "if (true)"));   // simplify did that
    Module *again = parse_module(*state, &c.failure, c.module->sink, "again", file);
    assert_non_null(again);
    end(&c, *state, "k.select.repro.tile");
}

// The passes before cannot run again (there is no such pass): the file has the program as it was, and runs all of them.
static void test_not_again(void **state) {
    Case c;
    Repro repro;
    begin(&c, *state);
    c.options.passes.verify_each = true;
    repro_start(&repro, c.module, &c.options);
    repro_begin(&repro, "no-such-pass");
    repro_begin(&repro, "select");
    diag(c.module->sink, (Span){0}, T_PASS_BROKE, "select", "k");
    repro_end(&repro, false);
    const char *file = read_file(&c, *state, "k.select.repro.tile");
    HAS(file, "T0503 in select");
    HAS(file, "tilec opt --passes=no-such-pass,select --verify-each ");
    HAS(file, "if (true)");
    end(&c, *state, "k.select.repro.tile");
}

static void test_codegen(void **state) {
    Case c;
    Repro repro;
    begin(&c, *state);
    repro_codegen(&repro, c.module, &c.options);
    c.failure.kind = FAIL_INTERNAL;
    repro_end(&repro, false);
    HAS(read_file(&c, *state, "k.codegen.repro.tile"), "//   tilec build --target=sm_80 ");
    end(&c, *state, "k.codegen.repro.tile");
}

// Nothing is written where all went well, where the program is to blame, without memory, and unless it is asked for.
static void test_nothing(void **state) {
    Case c;
    Repro repro;
    for (int i = 0; i < 4; i++) {
        begin(&c, *state);
        if (i == 3) c.options.repro = NULL;
        repro_start(&repro, c.module, &c.options);
        repro_begin(&repro, "select");
        if (i == 1) diag(c.module->sink, (Span){0}, T_TEST_FAILS, "it is wrong");
        c.failure.kind = i == 2 ? FAIL_OUT_OF_MEMORY : i == 3 ? FAIL_INTERNAL : FAIL_NONE;
        repro_end(&repro, i == 0);
        assert_int_equal(last_code(&c), i == 1 ? T_TEST_FAILS : 0);
        end(&c, *state, NULL);
    }
}

// covers T0508
static void test_not_writable(void **state) {
    Case c;
    Repro repro;
    begin(&c, *state);
    c.options.repro = arena_printf(*state, "%s/none/k", c.folder);
    repro_start(&repro, c.module, &c.options);
    repro_begin(&repro, "select");
    c.failure.kind = FAIL_INTERNAL;
    repro_end(&repro, false);
    assert_int_equal(last_code(&c), T_NO_REPRODUCER);
    end(&c, *state, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {IN_ARENA(test_internal), IN_ARENA(test_not_again), IN_ARENA(test_codegen),
                                       IN_ARENA(test_nothing), IN_ARENA(test_not_writable)};
    return run(tests);
}
