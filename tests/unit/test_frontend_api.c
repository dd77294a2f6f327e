// The entry points of the frontend: combinations that fit, choices of tests, tunables, host expressions, --only.
#include "tests/unit/unit.h"

#include "frontend/frontend.h"
#include "ir/build.h"
#include "ir/print.h"
#include <stdio.h>
#include <string.h>

static const char source[] = "const MASK = false;\n"
                             "kernel k[E: type](x: E[M], y: out E[M], s: f32) {\n"
                             "    tune A in {64, 32}, B in {8, 4, 2};\n"
                             "    grid (i in ceildiv(M, A)) threads 32 {\n"
                             "        fragment v: f32[A, B];\n"
                             "        fill(v, MASK ? 1 : 0);\n"
                             "        y[i] = x[i] * s;\n"
                             "    }\n"
                             "}\n"
                             "kernel other(x: out f32[M]) { grid (i in M) threads 32 { x[i] = 1; } }\n"
                             "reference k { for (i in M) y[i] = x[i] * s; }\n"
                             "test k (M = 8, E = f16, s = 2) tolerance 1e-2;\n"
                             "test k (M = 9, E = f16, s = 0.5, B = 4, MASK = false) tolerance 1e-2;\n"
                             "test k (M = 8, E = bf16, s = 2) tolerance 1e-2;\n"
                             "test other (M = 3) tolerance 0;\n";

typedef struct World {
    Arena *arena;
    Failure *failure;
    DiagSink *sink;
    Syntax *syntax;
} World;

static World open_world(Arena *arena, Failure *failure, const char *text) {
    World w = {arena, failure, diag_sink_new(arena), NULL};
    w.syntax = syntax_parse(arena, failure, w.sink, "test.tile", text, strlen(text), NULL);
    assert_non_null(w.syntax);
    return w;
}

static Module *make(World *w, ElaborateOptions options) {
    Module *module = elaborate(w->syntax, w->arena, w->failure, w->sink, &options);
    if (module) return module;
    StrBuf out;
    sb_init(&out, w->arena);
    diag_render(w->sink, 0, DIAG_TEXT, &out);
    fail_msg("%s", sb_text(&out));
    return NULL;
}

static int64_t tuned(const Func *func, const char *name) {
    for (const Attr *attr = func->attrs; attr; attr = attr->next)
        if (attr->id == ATTR_TUNED && strcmp(attr->args[0].text, name) == 0) return attr->args[1].integer;
    return -1;
}

// ---- combinations ----
typedef struct Fits {
    int64_t most;
    int calls, step;   // how far to go on
} Fits;

static int fits(void *user, Module *module, Func *kernel, int combination, int last) {
    Fits *f = user;
    (void)module;
    (void)last;
    f->calls++;
    return tuned(kernel, "A") * tuned(kernel, "B") <= f->most ? combination : combination + f->step;
}

static void test_fits(void **state) {
    Arena *arena = *state;
    Failure failure;
    if (FAILURE_CAUGHT(&failure)) fail_msg("%s", failure.message);
    World w = open_world(arena, &failure, source);
    static const struct {
        int64_t most, a, b;
        int step, calls;
    } rows[] = {{1000, 64, 8, 1, 1}, {256, 64, 4, 1, 2}, {128, 64, 2, 1, 3}, {64, 32, 2, 1, 6},
                {1, 64, 8, 1, 6},    {256, 64, 2, 2, 2}, {64, 32, 2, 5, 2},  {1, 64, 8, 9, 1}};   // none: the first
    Define define = {"E", "f16"};
    for (int i = 0; i < COUNT_OF(rows); i++) {
        Fits f = {.most = rows[i].most, .step = rows[i].step};
        Module *module =
            make(&w, (ElaborateOptions){.define_count = 1, .defines = &define, .fits = fits, .user = &f, .only = "k"});
        assert_int_equal(module->funcs.count, 1);
        assert_int_equal(tuned(module->funcs.items[0], "A"), rows[i].a);
        assert_int_equal(tuned(module->funcs.items[0], "B"), rows[i].b);
        assert_int_equal(f.calls, rows[i].calls);
    }
    Define both[] = {{"E", "f16"}, {"B", "16"}};   // -D comes first, also with what is no candidate
    Module *module = make(&w, (ElaborateOptions){.define_count = 2, .defines = both, .only = "k"});
    assert_int_equal(tuned(module->funcs.items[0], "B"), 16);
}

// ---- choices ----
static void test_choices(void **state) {
    Arena *arena = *state;
    Failure failure;
    if (FAILURE_CAUGHT(&failure)) fail_msg("%s", failure.message);
    World w = open_world(arena, &failure, source);
    const Define *defines = NULL;
    int count = 0;
    static const char *const wanted[] = {"k.E=f16 ", "B=4 k.E=f16 ", "k.E=bf16 ", ""};   // MASK has its default
    assert_int_equal(syntax_test_choices(w.syntax, arena, -1, &defines, &count), 4);
    for (int i = 0; i < 4; i++) {
        StrBuf text;
        sb_init(&text, arena);
        syntax_test_choices(w.syntax, arena, i, &defines, &count);
        for (int d = 0; d < count; d++) sb_printf(&text, "%s=%s ", defines[d].name, defines[d].value);
        assert_string_equal(sb_text(&text), wanted[i]);
        Module *module = make(&w, (ElaborateOptions){.define_count = count, .defines = defines, .test_choice = i + 1});
        assert_int_equal(module->tests.count, 1);
        assert_string_equal(module->tests.items[0]->name, i == 3 ? "other" : "k");
    }
    // Without a choice a kernel for each type, each with its tests.
    Module *module = make(&w, (ElaborateOptions){0});
    assert_non_null(module_func(module, "k__E_f16"));
    assert_non_null(module_reference(module, "k__E_bf16"));
    assert_int_equal(module->tests.count, 3);   // not the one for B = 4
}

static void test_tunables(void **state) {
    Arena *arena = *state;
    Failure failure;
    if (FAILURE_CAUGHT(&failure)) fail_msg("%s", failure.message);
    World w = open_world(arena, &failure, source);
    const Tunable *tunables;
    assert_int_equal(syntax_tunables(w.syntax, arena, 0, NULL, &tunables), 2);
    assert_string_equal(tunables[1].kernel, "k");
    assert_string_equal(tunables[1].name, "B");
    assert_int_equal(tunables[1].count, 3);
    assert_int_equal(tunables[1].values[2], 2);
}

// ---- host expressions ----
static void test_host(void **state) {
    Arena *arena = *state;
    Failure failure;
    if (FAILURE_CAUGHT(&failure)) fail_msg("%s", failure.message);
    DiagSink *sink = diag_sink_new(arena);
    Var *vars[2] = {NULL, var_new(arena, "s", VAR_PARAM, TYPE_F64, (Span){0})};
    const char *const names[] = {"M", "s"};
    Expr *e = parse_host_expr(arena, &failure, sink, "ceildiv(M, 64) * 2 > 6 && s < 0.5", names, 2, vars);
    assert_non_null(e);
    assert_int_equal(e->type, TYPE_BOOL);
    assert_string_equal(expr_text(arena, e), "ceildiv(M, 64) * 2 > 6 && s < 0.5");
    assert_int_equal(vars[0]->type, TYPE_I64);
    assert_null(parse_host_expr(arena, &failure, sink, "K + 1", names, 2, vars));
    assert_null(parse_host_expr(arena, &failure, sink, "M +", names, 2, vars));
    assert_null(parse_host_expr(arena, &failure, sink, "M M", names, 2, vars));
    assert_int_equal(diag_errors(sink), 3);
}

// ---- several errors at once ----
static void test_recovery(void **state) {
    Arena *arena = *state;
    Failure failure;
    if (FAILURE_CAUGHT(&failure)) fail_msg("%s", failure.message);
    const char *text = "kernel k(x: out f32[M]) {\n"
                       "    grid (i in M) threads 32 {\n"
                       "        let a = ;\n"
                       "        x[i] = 1\n"
                       "        x[i] = 2;\n"
                       "        for j in 4 { x[j] = 1; }\n"
                       "        let b = 3;\n"
                       "    }\n"
                       "}\n"
                       "kernel l(x out f32[M]) { }\n"
                       "kernel m(x: out f32[M]) { grid (i in M) threads 32 { x[i] = $; } }\n";
    DiagSink *sink = diag_sink_new(arena);
    assert_null(syntax_parse(arena, &failure, sink, "test.tile", text, strlen(text), NULL));
    static const struct {
        DiagCode code;
        int line;
    } wanted[] = {{T_SYNTAX, 3}, {T_MISSING_SEMICOLON, 4}, {T_SYNTAX, 6}, {T_SYNTAX, 10}, {T_BAD_CHARACTER, 11}};
    assert_int_equal(diag_count(sink), COUNT_OF(wanted));
    for (int i = 0; i < COUNT_OF(wanted); i++) {
        assert_int_equal(diag_view(sink, i).code, wanted[i].code);
        assert_int_equal(diag_view(sink, i).span.line, wanted[i].line);
    }
}

// ---- declarations ----
static void test_declarations(void **state) {
    Arena *arena = *state;
    Failure failure;
    World w = open_world(
        arena, &failure,
        "const N = 8 + 0x10;\n"
        "kernel f[D, E: type](x: E[M, D / 2] strides [s, 1] @alias(y), n: i64, y: out E[ceildiv(M, 2), (n < 4 ? n : -N)])"
        " when (M > 4) { tune A in {1, 2}, B in {3}; grid (i in M) threads 32 { } }\n"
        "kernel f[D, E: type](x: E[M, D / 2], n: i64, y: out E[M, n]) { grid (i in M) threads 32 { } }\n"
        "program p(x: f32) { }\n");
    StrBuf out;
    sb_init(&out, arena);
    syntax_declarations(w.syntax, &out);
    assert_string_equal(
        sb_text(&out),
        "{\"consts\": [{\"name\": \"N\", \"value\": \"(8 + 0x10)\"}],\n \"kernels\": [\n"
        "  {\"name\": \"f\", \"kind\": \"kernel\", \"names\": [{\"name\": \"D\", \"kind\": \"number\"}, "
        "{\"name\": \"E\", \"kind\": \"type\"}], \"tunables\": [\"A\", \"B\"],\n"
        "   \"params\": [{\"name\": \"x\", \"type\": \"E\", \"mode\": \"in\", \"shape\": [\"M\", \"(D / 2)\"], "
        "\"strides\": [\"s\", \"1\"], \"alias\": \"y\"}, {\"name\": \"n\", \"type\": \"i64\"}, "
        "{\"name\": \"y\", \"type\": \"E\", \"mode\": \"out\", \"shape\": [\"ceildiv(M, 2)\", "
        "\"((n < 4) ? n : (-N))\"]}]},\n"
        "  {\"name\": \"p\", \"kind\": \"program\", \"names\": [], \"tunables\": [],\n"
        "   \"params\": [{\"name\": \"x\", \"type\": \"f32\"}]}]}");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_ARENA(test_fits), IN_ARENA(test_choices),  IN_ARENA(test_tunables),
        IN_ARENA(test_host), IN_ARENA(test_recovery), IN_ARENA(test_declarations),
    };
    return run(tests);
}
