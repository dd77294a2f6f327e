#include "tools/test_runner.h"
#include "runtime/device/device.h"
#include "runtime/plan/container.h"
#include "runtime/plan/mechanisms.h"
#include "support/json.h"
#include "support/map.h"
#include <string.h>

static const Span NOWHERE;

char *test_compiled_path(Arena *arena, const char *folder, const char *source, int choice) {
    return arena_printf(arena, "%s/%s.%d.cubin", folder, path_stem(arena, source), choice);
}

bool artefact_read(Arena *arena, Failure *failure, DiagSink *sink, const char *path, const Plan **plan,
                   const void **cubin, size_t *size) {
    FileText file;
    size_t length;
    const char *why = NULL;
    if (!file_read(arena, sink, path, 0, &file)) return false;
    const char *manifest = container_plan((const uint8_t *)file.text, file.length, &length, &why);
    if (!manifest) {
        diag(sink, NOWHERE, T_BAD_ARTEFACT, why);
        return false;
    }
    *cubin = file.text;
    *size = file.length;
    return (*plan = plan_read(arena, failure, sink, manifest, length)) != NULL;
}

// ---- choices ----

static bool names(const Define *defines, int count, const char *name) {
    for (int i = 0; i < count; i++)
        if (strcmp(defines[i].name, name) == 0) return true;
    return false;
}

// The value that a test requires of a name overrides the user's.
static TestChoice merge(Arena *arena, int index, int own_count, const Define *own, int count, const Define *defines) {
    Define *all = NEW_ARRAY(arena, Define, own_count + count + 1);
    TestChoice choice = {.index = index, .defines = all};
    for (int i = 0; i < own_count; i++) all[choice.define_count++] = own[i];
    for (int i = 0; i < count; i++)
        if (!names(own, own_count, defines[i].name)) all[choice.define_count++] = defines[i];
    return choice;
}

bool test_choices(Loader *loader, int define_count, const Define *defines,
                  bool (*visit)(void *user, const TestChoice *choice), void *user) {
    int count = 1;
    for (int i = 0; i < count; i++) {
        const Define *own = NULL;
        int own_count = 0;
        count = syntax_test_choices(loader->syntax, loader->arena, i, &own, &own_count);
        if (i >= count) break;
        TestChoice choice = merge(loader->arena, i, own_count, own, define_count, defines);
        loader->test_choice = i + 1;   // load_module keeps the tests of this choice
        if (!visit(user, &choice)) return false;
    }
    return true;
}

// ---- running ----

typedef struct Run {
    Loader *loader;
    const TestOptions *options;
    TestCounts *counts;
    const char *path;
    Arena *arena;   // of the choice at hand
    Module *module;
    EmuReferenceCache *reference_cache;   // reference results known so far
    const TestChoice *choice;
    Map *reported;         // tests that failed before they were lowered
    DeviceModule loaded;   // device only
    bool ok;               // this choice
    bool complete;         // every choice so far
} Run;

// `gemm.E` is for one kernel, instead of `E`.
static bool is_overridden(const Run *run, const Test *test, const Define *define) {
    for (int i = 0; i < run->choice->define_count; i++) {
        const Define *other = &run->choice->defines[i];
        const char *name = syntax_define_for(run->loader->syntax, test, other);
        if (name && other->name != name && strcmp(name, define->name) == 0) return true;
    }
    return false;
}

static void print_label(const Run *run, const Test *test, StrBuf *out) {
    test_print_label(test, out);
    int shown = test->bindings.count;
    for (int i = 0; i < run->choice->define_count; i++) {
        const Define *define = &run->choice->defines[i];
        const char *name = syntax_define_for(run->loader->syntax, test, define);
        if (name && !is_overridden(run, test, define))
            sb_printf(out, "%s%s = %s", shown++ ? ", " : "", name, define->value);
    }
    sb_char(out, ')');
}

void test_outcome_json(const TestOutcome *outcome, StrBuf *out) {
    sb_str(out, "{\"file\": ");
    json_quote(out, outcome->file);
    sb_str(out, ", \"test\": ");
    json_quote(out, outcome->name);
    sb_printf(out, ", \"passed\": %s, \"seconds\": %.3f", outcome->passed ? "true" : "false", outcome->seconds);
    if (outcome->passed) sb_printf(out, ", \"worst\": %.6g, \"tolerance\": %.6g", outcome->worst, outcome->tolerance);
    if (outcome->error) sb_str(out, ", \"error\": true");
    if (outcome->why) sb_str(out, ", \"why\": "), json_quote(out, outcome->why);
    sb_str(out, "}\n");
}

// Which variants ran, and what they are made of.
static void kernels_text(const Run *run, const EmuReport *report, StrBuf *out) {
    for (int i = 0; i < report->kernels.count; i++) {
        const Func *kernel = report->kernels.items[i];
        const char *how = kernel_mechanisms(run->arena, kernel);
        const char *fallback = attr_get(kernel->attrs, ATTR_FALLBACK) ? " (fallback)" : "";
        sb_printf(out, "%s%s%s%s%s", i ? ", " : "; ", kernel->name, fallback, how ? ": " : "", how ? how : "");
    }
}

static void outcome_text(const Run *run, const TestOutcome *outcome, const EmuTestResult *result, StrBuf *out) {
    sb_printf(out, "%s  %s", outcome->passed ? "ok  " : "FAIL", outcome->name);
    if (outcome->passed)
        sb_printf(out, "  worst %.2g of %.2g, %.2f s", outcome->worst, outcome->tolerance, outcome->seconds);
    if (outcome->passed && run->options->verbose && !run->options->on_gpu) {
        sb_printf(out, "; %lld CTAs, %lld barriers, %lld conflicts in %lld shared accesses",
                  (long long)result->report.blocks, (long long)result->report.barriers,
                  (long long)result->report.conflicts, (long long)result->report.shared_accesses);
        kernels_text(run, &result->report, out);
    }
    if (!outcome->passed) sb_printf(out, "  %s", outcome->why ? outcome->why : "see the errors");
    sb_char(out, '\n');
}

static void report(Run *run, const Test *test, const EmuTestResult *result, double seconds) {
    Arena *arena = run->loader->arena;
    StrBuf name, line;
    sb_init(&name, arena);
    print_label(run, test, &name);
    const TestOutcome outcome = {.file = run->path,
                                 .name = sb_text(&name),
                                 .passed = result->passed,
                                 .why = !result->passed && result->why ? arena_strdup(arena, result->why) : NULL,
                                 .worst = result->worst,
                                 .tolerance = test->tolerance,
                                 .seconds = seconds};
    sb_init(&line, run->arena);
    if (run->options->json) test_outcome_json(&outcome, &line);
    else outcome_text(run, &outcome, result, &line);
    fputs(sb_text(&line), run->options->out);
    fflush(run->options->out);
    if (run->options->outcomes) vec_push(arena, run->options->outcomes, outcome);
    if (result->passed) run->counts->passed++;
    else run->counts->failed++;
}

static EmuOptions emulation(const Run *run) {
    return (EmuOptions){.seed = run->options->seed,
                        .max_steps = run->options->max_steps,
                        .races = true,
                        .target = run->loader->target,
                        .reference_cache = run->reference_cache};
}

static void emulate_one(Run *run, const Test *test, EmuTestResult *result) {
    EmuOptions options = emulation(run);
    if (!emulate_test(run->module, test, &options, result)) result->passed = false;
}

// A device error ends the run: after a fault, every call in the context fails.
static void launch_case(Run *run, const Test *test, const PlanEntry *entry, TestCase *test_case,
                        EmuTestResult *result) {
    DeviceRun device = {.loaded = &run->loaded, .entry = entry, .no_guards = run->options->no_guards};
    run->ok = device_run(run->arena, run->loader->sink, &device, test_case->count, test_case->args);
    if (!run->ok) return;
    if (!test_case_compare(run->module, test, test_case, result)) result->passed = false;
    if (!device.outside) return;
    result->passed = false;
    result->why = device.outside;
}

// With tensors apart (n is 0), then with two of them one where the source allows it.
static bool launch_nth(Run *run, const Test *test, const PlanEntry *entry, int n, EmuTestResult *result) {
    TestCase test_case = {0};
    EmuOptions options = emulation(run);
    const char *shared = "";
    if (!test_case_make(run->module, test, &options, &test_case) ||
        !test_case_reference(run->module, test, &options, &test_case))
        return false;
    if (n > 0 && !(shared = test_case_share(run->module, test, n, &test_case))) return false;
    launch_case(run, test, entry, &test_case, result);
    if (run->ok && !result->passed) result->why = arena_printf(run->arena, "%s%s", shared, result->why);
    return run->ok && result->passed;
}

static void launch_one(Run *run, const Test *test, EmuTestResult *result) {
    const PlanEntry *entry = plan_entry(run->loaded.plan, test->name);
    if (!entry) diag(run->loader->sink, NOWHERE, T_NO_ENTRY, test->name);
    for (int n = 0; entry && launch_nth(run, test, entry, n, result);) n++;
}

static bool is_left_out(const Run *run, const Test *test) {
    return (run->options->only && strcmp(run->options->only, test->name) != 0) || map_has(run->reported, test);
}

static void run_tests(Run *run) {
    if (run->reference_cache) emu_reference_cache_stage(run->reference_cache, run->module);
    for (int i = 0; run->ok && i < run->module->tests.count; i++) {
        const Test *test = run->module->tests.items[i];
        if (is_left_out(run, test)) continue;
        EmuTestResult result = {0};
        double start = seconds_now();
        if (run->options->on_gpu) launch_one(run, test, &result);
        else emulate_one(run, test, &result);
        report(run, test, &result, seconds_now() - start);
    }
}

// Iterations that meet show here whatever threads have them later.
static void test_source(Run *run) {
    for (int i = 0; i < run->module->tests.count; i++) {
        const Test *test = run->module->tests.items[i];
        EmuTestResult result = {0};
        double start = seconds_now();
        if (is_left_out(run, test)) continue;
        emulate_one(run, test, &result);
        if (result.passed) continue;
        map_put(run->reported, test, run);
        report(run, test, &result, seconds_now() - start);
    }
}

static void run_loaded(Run *run) {
    const TestHooks *hooks = &run->options->hooks;
    const Plan *plan;
    const void *cubin;
    run->ok = hooks->artefact(hooks->user, run->loader, run->arena, run->choice, &plan, &cubin) &&
              device_module_open(run->arena, run->loader->sink, plan, cubin, CURRENT_DEVICE, &run->loaded);
    if (!run->ok) return;
    run_tests(run);
    device_module_close(&run->loaded);
}

// Elaborates a choice, lowers or compiles it, and runs its tests.
static bool run_in_arena(void *user, Arena *arena) {
    Run *run = user;
    const TestHooks *hooks = &run->options->hooks;
    const TestChoice *choice = run->choice;
    bool on_gpu = run->options->on_gpu;
    run->arena = arena;
    run->reference_cache = NULL;
    run->module = load_module(run->loader, arena, choice->define_count, choice->defines, run->options->only);
    run->reported = map_new(arena);
    if (run->module && !on_gpu && hooks->lower && emulate_has_scatters(arena, run->module)) test_source(run);
    run->ok = run->module && (on_gpu || !hooks->lower || hooks->lower(hooks->user, run->module, &run->reference_cache));
    if (run->ok && on_gpu) run_loaded(run);
    else if (run->ok) run_tests(run);
    return run->ok;
}

// After a choice fails to compile the others still run; after a device error none does.
static bool run_choice(void *user, const TestChoice *choice) {
    Run *run = user;
    run->choice = choice;
    bool ok = arena_scope(run->loader->failure, run_in_arena, run);
    run->complete &= ok;
    return ok || !run->options->on_gpu;
}

static bool elaborate_alone(void *user, Arena *arena) {
    const Run *run = user;
    const TestOptions *options = run->options;
    return load_module(run->loader, arena, options->define_count, options->defines, options->only) != NULL;
}

bool test_file(Loader *loader, const char *path, const TestOptions *options, TestCounts *counts) {
    Run run = {.loader = loader, .options = options, .counts = counts, .path = path, .complete = true};
    TestCounts before = *counts;
    test_choices(loader, options->define_count, options->defines, run_choice, &run);
    if (run.complete && counts->passed == before.passed && counts->failed == before.failed) {
        diag(loader->sink, NOWHERE, T_NO_TESTS, path,
             options->only ? arena_printf(loader->arena, " of '%s'", options->only) : "");
        run.complete = arena_scope(loader->failure, elaborate_alone, &run);   // reports errors in the file
    }
    return run.complete;
}
