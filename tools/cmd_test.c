// tilec test: runs the tests of files, on the emulator (after the passes) or on the device.
#include "runtime/api/info.h"
#include "tools/test_runner.h"
#include "tools/tool.h"
#include <string.h>
#ifndef TILEC_NO_CODEGEN
#include "runtime/compile/compile.h"
#include "tools/pass_flags.h"
#endif

typedef struct TestRun {
    Tool *tool;
    Loader loader;
    const char *path;
    TestOptions options;
    const char *prepare, *prepared;   // folders
#ifndef TILEC_NO_CODEGEN
    CompileOptions compile;
#endif
} TestRun;

static bool read_compiled(TestRun *run, Arena *arena, const TestChoice *choice, const Plan **plan, const void **cubin) {
    size_t size;
    const char *path = test_compiled_path(arena, run->prepared, run->path, choice->index);
    return artefact_read(arena, run->tool->failure, run->tool->sink, path, plan, cubin, &size);
}

#ifdef TILEC_NO_CODEGEN

static bool lower(void *user, Module *module, EmuReferenceCache **reference_cache) {
    (void)user;
    (void)module;
    (void)reference_cache;
    return true;
}

static bool get_artefact(void *user, Loader *loader, Arena *arena, const TestChoice *choice, const Plan **plan,
                         const void **cubin) {
    TestRun *run = user;
    (void)loader;
    if (run->prepared) return read_compiled(run, arena, choice, plan, cubin);
    diag(run->tool->sink, (Span){0}, T_NOT_COMPILED, run->path);
    return false;
}

static bool read_flags(TestRun *run) {
    if (!run->prepare) return true;
    diag(run->tool->sink, (Span){0}, T_NOT_COMPILED, run->path);
    return false;
}

static bool prepare(TestRun *run) {
    (void)run;
    return false;
}

#else

static bool lower(void *user, Module *module, EmuReferenceCache **reference_cache) {
    TestRun *run = user;
    CompileOptions options = run->compile;
    options.repro = repro_base(run->tool, run->path);
    bool none = options.passes.passes && options.passes.passes[0] == 0;
    if (options.passes.emulate_each)
        *reference_cache = options.reference_cache = emu_reference_cache_new(module->arena);
    return none || run_pipeline(module, &options);
}

static bool compile_choice(TestRun *run, Arena *arena, const TestChoice *choice, Compiled *out) {
    CompileOptions options = run->compile;
    options.repro = repro_base(run->tool, run->path);
    options.defines = choice->defines;
    options.define_count = choice->define_count;
    return compile(&run->loader, arena, &options, out);
}

static bool get_artefact(void *user, Loader *loader, Arena *arena, const TestChoice *choice, const Plan **plan,
                         const void **cubin) {
    TestRun *run = user;
    Compiled compiled;
    (void)loader;
    if (run->prepared) return read_compiled(run, arena, choice, plan, cubin);
    if (!compile_choice(run, arena, choice, &compiled)) return false;
    *cubin = compiled.packed;
    *plan = plan_read(arena, run->tool->failure, run->tool->sink, compiled.manifest, strlen(compiled.manifest));
    return *plan != NULL;
}

static bool compile_only_choice(void *user, const TestChoice *choice) {
    TestRun *run = user;
    Compiled compiled;
    Arena *arena = run->tool->arena;
    return compile_choice(run, arena, choice, &compiled) &&
           file_write(arena, run->tool->sink, test_compiled_path(arena, run->prepare, run->path, choice->index),
                      compiled.packed, compiled.packed_size);
}

static bool prepare(TestRun *run) {
    return folder_make(run->tool->sink, run->prepare) &&
           test_choices(&run->loader, run->options.define_count, run->options.defines, compile_only_choice, run);
}

static bool read_flags(TestRun *run) {
    Tool *tool = run->tool;
    int64_t optimize = 1;
    run->compile = compile_options(run->loader.target);
    if (!pass_flags(tool, &run->compile.passes)) return false;
    if (!option_number(&tool->options, tool->sink, OPTION_OPTIMIZE, 0, 2, &optimize)) return false;
    run->compile.optimize = (int)optimize;
    run->compile.seed = run->options.seed;
    run->compile.max_steps = run->options.max_steps;
    run->compile.only = run->options.only;
    run->compile.ptxas = option_text(&tool->options, OPTION_PTXAS, NULL);
    return true;
}

#endif

// The default target is sm_80 on the emulator, and the target of the device on a device.
static const Target *choose_target(Tool *tool, bool on_gpu) {
    const Target *device =
        on_gpu && !option_given(&tool->options, OPTION_TARGET) ? info_device_target(tool->arena) : NULL;
    return device ? device : tool_target(tool, on_gpu ? "sm_90a" : "sm_80");
}

static bool test_one(TestRun *run, const char *path, TestCounts *counts) {
    run->path = path;
    run->loader = tool_loader(run->tool, run->loader.target);
    if (!loader_open(&run->loader, path)) return false;
    return run->prepare ? prepare(run) : test_file(&run->loader, &run->options, counts);
}

bool command_test(Tool *tool, int *code) {
    TestRun run = {.tool = tool};
    const Options *o = &tool->options;
    int on = option_choice(o, tool->sink, OPTION_DEVICE, 0);
    int64_t seed = 1;
    if (on < 0 || !option_number(o, tool->sink, OPTION_SEED, 0, INT64_MAX, &seed)) return false;
    int64_t max_steps;
    if (!tool_max_steps(tool, &max_steps)) return false;
    if (o->operands.count == 0) return tool_usage(tool, "no input file was given");
    run.prepare = option_text(o, OPTION_COMPILE_ONLY, NULL);
    run.prepared = option_text(o, OPTION_COMPILED, NULL);
    run.options = (TestOptions){.on_gpu = on == 1, .seed = (uint64_t)seed, .max_steps = max_steps, .out = stdout};
    run.options.verbose = option_given(o, OPTION_VERBOSE);
    run.options.no_guards = option_given(o, OPTION_NO_GUARDS);
    run.options.only = option_text(o, OPTION_ONLY, NULL);
    run.options.hooks = (TestHooks){lower, get_artefact, &run};
    run.loader.target = choose_target(tool, on == 1);
    if (!run.loader.target || !tool_defines(tool, &run.options.define_count, &run.options.defines)) return false;
    if (!read_flags(&run)) return false;
    TestCounts counts = {0};
    bool ok = true;
    for (int i = 0; i < o->operands.count; i++) {
        ok = test_one(&run, o->operands.items[i], &counts) && ok;
        tool_show(tool);
    }
    bool none_ran = !ok && counts.passed + counts.failed == 0;
    if (!run.prepare && !none_ran) printf("%d passed, %d failed\n", counts.passed, counts.failed);
    *code = counts.failed > 0;
    return ok && *code == 0;
}
