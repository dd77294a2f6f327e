// tilec test: runs the tests of files, on the emulator (after the passes) or on the device.
#include "runtime/api/info.h"
#include "tools/test_jobs.h"
#include "tools/tool.h"
#include <string.h>
#ifndef TILEC_NO_CODEGEN
#include "runtime/compile/compile.h"
#include "tools/ask.h"
#include "tools/pass_flags.h"
#endif

typedef struct TestRun {
    Tool *tool;
    Loader loader;
    const char *path;
    TestOptions options;
    TestCounts counts;
    TestOutcomes outcomes;
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
    options.tested_only =
        run->loader.test_choice > 1;   // what is wrong with a kernel that they do not launch, a build says
    bool none = options.passes.passes && options.passes.passes[0] == 0;
    if (options.passes.emulate_each)
        *reference_cache = options.reference_cache = emu_reference_cache_new(module->arena);
    return none || run_pipeline(module, &options);
}

// What a launch needs of a choice, from the compile cache where it has it.
typedef struct Code {
    const char *manifest;
    const void *cubin;
    size_t size;
} Code;

static bool compile_inside(TestRun *run, Arena *arena, const TestChoice *choice, Code *out) {
    CompileOptions options = run->compile;
    Compiled compiled;
    options.repro = repro_base(run->tool, run->path);
    options.defines = choice->defines;
    options.define_count = choice->define_count;
    if (!compile(&run->loader, arena, &options, &compiled)) return false;
    *out = (Code){compiled.manifest, compiled.packed, compiled.packed_size};
    return true;
}

static bool compile_or_find(TestRun *run, Arena *arena, const TestChoice *choice, Code *out) {
    Ask asked;
    if (!ask_open(run->tool, run->path, run->loader.target, &asked)) return false;
    TilecDefine *defines = NEW_ARRAY(arena, TilecDefine, choice->define_count + 1);
    for (int i = 0; i < choice->define_count; i++)
        defines[i] = (TilecDefine){choice->defines[i].name, choice->defines[i].value};
    asked.request.defines = defines;
    asked.request.define_count = choice->define_count;
    bool ok = ask(run->tool, &asked);
    if (ok)
        *out = (Code){arena_strdup(arena, asked.reply.manifest),
                      arena_copy(arena, asked.reply.cubin, asked.reply.cubin_size), asked.reply.cubin_size};
    ask_end(&asked);
    return ok;
}

static bool compile_choice(TestRun *run, Arena *arena, const TestChoice *choice, Code *out) {
    return options_look_inside(&run->tool->options) ? compile_inside(run, arena, choice, out)
                                                    : compile_or_find(run, arena, choice, out);
}

static bool get_artefact(void *user, Loader *loader, Arena *arena, const TestChoice *choice, const Plan **plan,
                         const void **cubin) {
    TestRun *run = user;
    Code code;
    (void)loader;
    if (run->prepared) return read_compiled(run, arena, choice, plan, cubin);
    if (!compile_choice(run, arena, choice, &code)) return false;
    *cubin = code.cubin;
    *plan = plan_read(arena, run->tool->failure, run->tool->sink, code.manifest, strlen(code.manifest));
    return *plan != NULL;
}

static bool compile_only_choice(void *user, const TestChoice *choice) {
    TestRun *run = user;
    Code code;
    Arena *arena = run->tool->arena;
    return compile_choice(run, arena, choice, &code) &&
           file_write(arena, run->tool->sink, test_compiled_path(arena, run->prepare, run->path, choice->index),
                      code.cubin, code.size);
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

// What the first error says of those from `first` on; NULL: there is none.
static const char *first_error(const Tool *tool, int first) {
    for (int i = first; i < diag_count(tool->sink); i++) {
        DiagView view = diag_view(tool->sink, i);
        if (view.severity == SEVERITY_ERROR) return arena_strdup(tool->arena, view.message);
    }
    return NULL;
}

static void add_error(TestRun *run, const char *path, const char *why) {
    TestOutcome outcome = {.file = path, .name = "", .error = true, .why = why};
    StrBuf line;
    sb_init(&line, run->tool->arena);
    test_outcome_json(&outcome, &line);
    if (run->options.json) fputs(sb_text(&line), run->options.out);
    vec_push(run->tool->arena, &run->outcomes, outcome);
}

static bool test_path(void *user, const char *path) {
    TestRun *run = user;
    int said = diag_count(run->tool->sink);
    run->path = path;
    run->loader = tool_loader(run->tool, run->loader.target);
    bool ok = loader_open(&run->loader, path);
    if (run->prepare) return ok && prepare(run);
    ok = ok && test_file(&run->loader, path, &run->options, &run->counts);
    if (!ok) add_error(run, path, first_error(run->tool, said));
    return ok;
}

static bool test_here(TestRun *run, const FileNames *files) {
    bool ok = true;
    VEC_EACH_PTR (const char, file, files) {
        ok = test_path(run, file) && ok;
        tool_show(run->tool);
    }
    return ok;
}

static bool test_there(TestRun *run, const FileNames *files, int jobs, int *code) {
    TestJobs all = {
        .tool = run->tool, .files = files, .count = jobs, .test = test_path, .user = run, .outcomes = &run->outcomes};
    bool ok = test_in_processes(&all);
    VEC_EACH (TestOutcome, outcome, &run->outcomes) {
        run->counts.passed += outcome->passed;
        run->counts.failed += !outcome->passed && !outcome->error;
    }
    *code = all.status;
    return ok && all.status == 0;
}

static void print_counts(const TestRun *run) {
    int errors = 0;
    VEC_EACH (TestOutcome, outcome, &run->outcomes) errors += outcome->error;
    printf(run->options.json ? "{\"passed\": %d, \"failed\": %d, \"errors\": %d}\n"
           : errors          ? "%d passed, %d failed, %d with errors\n"
                             : "%d passed, %d failed\n",
           run->counts.passed, run->counts.failed, errors);
}

static bool write_junit(TestRun *run) {
    const char *path = option_text(&run->tool->options, OPTION_JUNIT, NULL);
    StrBuf text;
    if (!path) return true;
    sb_init(&text, run->tool->arena);
    junit_write(&run->outcomes, &text);
    return tool_write(run->tool, path, &text);
}

// The operands, and the files of those that are folders.
static bool list_files(Tool *tool, FileNames *out) {
    if (tool->options.operands.count == 0) return tool_usage(tool, "no input file was given");
    VEC_EACH_PTR (const char, path, &tool->options.operands) {
        if (strcmp(path, "-") == 0) vec_push(tool->arena, out, path);
        else {
            int before = out->count;
            if (!files_named(tool->arena, tool->sink, path, ".tile", out)) return false;
            if (out->count == before) return tool_usage(tool, "the folder '%s' has no .tile file", path);
        }
    }
    return true;
}

static bool read_options(TestRun *run, int64_t *jobs) {
    Tool *tool = run->tool;
    const Options *o = &tool->options;
    bool on_gpu;
    int64_t seed = 1, max_steps;
    if (!tool_place(tool, &on_gpu) || !option_number(o, tool->sink, OPTION_SEED, 0, INT64_MAX, &seed) ||
        !tool_max_steps(tool, &max_steps) || !option_number(o, tool->sink, OPTION_JOBS, 1, 1024, jobs))
        return false;
    run->prepare = option_text(o, OPTION_COMPILE_ONLY, NULL);
    run->prepared = option_text(o, OPTION_COMPILED, NULL);
    run->options = (TestOptions){.on_gpu = on_gpu,
                                 .seed = (uint64_t)seed,
                                 .max_steps = max_steps,
                                 .only = option_text(o, OPTION_ONLY, NULL),
                                 .hooks = {lower, get_artefact, run},
                                 .verbose = option_given(o, OPTION_VERBOSE),
                                 .no_guards = option_given(o, OPTION_NO_GUARDS),
                                 .out = stdout,
                                 .json = option_given(o, OPTION_JSON),
                                 .outcomes = &run->outcomes};
    return true;
}

bool command_test(Tool *tool, int *code) {
    TestRun run = {.tool = tool};
    FileNames files = {0};
    int64_t jobs = 1;
    if (!read_options(&run, &jobs) || !list_files(tool, &files)) return false;
    run.loader.target = choose_target(tool, run.options.on_gpu);
    if (!run.loader.target || !tool_defines(tool, &run.options.define_count, &run.options.defines)) return false;
    if (!read_flags(&run)) return false;
    bool ok = jobs > 1 && files.count > 1 ? test_there(&run, &files, (int)jobs, code) : test_here(&run, &files);
    bool none_ran = !ok && run.counts.passed + run.counts.failed == 0;
    if (!run.prepare && !none_ran) print_counts(&run);
    if (!write_junit(&run)) return false;
    if (!*code) *code = run.counts.failed > 0;
    return ok && *code == 0;
}
