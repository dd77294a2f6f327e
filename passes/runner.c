// The runner: passes in order over all kernels of a module, with everything that is not a pass's own business.
//
// Pass by pass, not kernel by kernel, so that between two passes the module is one consistent text: that is what a dump
// shows, a round trip reads back and the emulator runs. Step 0 is the program as the frontend made it.
//
//     for each pass of the plan
//         for each kernel whose stage the pass takes
//             run it (timed, counted for --opt-bisect-limit); new variants go right after their kernel, those of
//             tiles (@tile_variant) behind the last tile
//         if something changed: verify, print, dump, round-trip, emulate
#include "ir/verify.h"
#include "passes/registry.h"
#include "support/files.h"
#include "support/map.h"
#include <string.h>
#include <time.h>

typedef struct Step {
    const Pass *pass;
    int runs, changes;
    double seconds;
} Step;

typedef struct Runner {
    Module *module;
    const Target *target;
    const PassOptions *options;
    const PassHooks *hooks;
    VEC(Step) steps;
    int executions;   // of passes on kernels, for bisecting
    bool failed;
} Runner;

static const Span no_place = {0};

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

// ---- the plan ----

static void report_unknown(Runner *runner, const char *name) {
    StrMap *names = strmap_new(runner->module->arena);
    for (int i = 0; pass_at(i); i++) strmap_put(names, pass_at(i)->name, NULL);
    diag_suggest(diag(runner->module->sink, no_place, T_UNKNOWN_PASS, name), no_place, strmap_nearest(names, name));
    runner->failed = true;
}

static void check_name(Runner *runner, const char *name) {
    if (name && strcmp(name, "all") && !pass_named(name)) report_unknown(runner, name);
}

static void plan_add(Runner *runner, const Pass *pass) {
    vec_push(runner->module->arena, &runner->steps, ((Step){.pass = pass}));
}

static void plan_list(Runner *runner, const char *list) {
    char *rest, *names = arena_strdup(runner->module->arena, list);
    for (const char *name = strtok_r(names, ",", &rest); name; name = strtok_r(NULL, ",", &rest)) {
        const Pass *pass = pass_named(name);
        if (pass) plan_add(runner, pass);
        else report_unknown(runner, name);
    }
}

// A dump is resumed in its middle, so a needed pass may be absent from the list: it may not come later than its user.
static void check_needed(Runner *runner, int step, const char *needed) {
    bool before = false, later = false;
    for (int i = 0; i < runner->steps.count; i++)
        if (!strcmp(runner->steps.items[i].pass->name, needed)) *(i < step ? &before : &later) = true;
    if (before || !later) return;
    diag(runner->module->sink, no_place, T_PASS_ORDER, runner->steps.items[step].pass->name, needed);
    runner->failed = true;
}

static void check_order(Runner *runner) {
    for (int i = 0; i < runner->steps.count; i++) {
        char *rest, *names = arena_strdup(runner->module->arena, runner->steps.items[i].pass->needs);
        for (const char *name = strtok_r(names, " ", &rest); name; name = strtok_r(NULL, " ", &rest))
            check_needed(runner, i, name);
    }
}

static void make_plan(Runner *runner) {
    if (runner->options->passes) plan_list(runner, runner->options->passes);
    else
        for (int i = 0; pipeline_step(i); i++) plan_add(runner, pipeline_step(i));
    check_name(runner, runner->options->print_before);
    check_name(runner, runner->options->print_after);
    check_name(runner, runner->options->stop_after);
    check_order(runner);
}

// ---- what happens after a pass ----

static PrintOptions print_options(const Runner *runner, bool tests) {
    return (PrintOptions){.places = runner->options->places, .comments = true, .tests = tests};
}

const char *kernel_text(const Module *module, const Func *kernel, PrintOptions options) {
    StrBuf text;
    sb_init(&text, module->arena);
    print_func(module, kernel, options, &text);
    return sb_text(&text);
}

// `when`: "before" or "after" the pass.
static void print_kernels(Runner *runner, const char *when, const char *pass, const bool *changed) {
    const char *only = runner->options->print_kernel;
    for (int i = 0; i < runner->module->funcs.count; i++) {
        const Func *func = runner->module->funcs.items[i];
        if (func->kind != FUNC_KERNEL || (changed && !changed[i]) || (only && strcmp(only, func->name))) continue;
        fprintf(runner->options->talk, "// %s %s (%s)\n%s\n", when, pass, func->name,
                kernel_text(runner->module, func, print_options(runner, false)));
    }
}

// Whether an option that takes a pass or "all" names this one.
static bool selects(const char *option, const char *pass) {
    return option && (!strcmp(option, "all") || !strcmp(option, pass));
}

static void dump(Runner *runner, int step, const char *after) {
    Module *module = runner->module;
    const char *path = arena_printf(module->arena, "%s/%03d-%s.tile", runner->options->dump_dir, step, after);
    StrBuf text;
    sb_init(&text, module->arena);
    print_module(module, print_options(runner, true), &text);
    runner->failed |= !file_write(module->arena, module->sink, path, sb_text(&text), text.length);
}

// The first line in which two texts differ, from 1, and that line of `a` in *line.
static int first_difference(Arena *arena, const char *a, const char *b, const char **line) {
    int number = 1;
    const char *start = a;
    for (; *a && *a == *b; a++, b++)
        if (*a == '\n') number++, start = a + 1;
    *line = arena_strndup(arena, start, strcspn(start, "\n"));
    return number;
}

static bool same_text(Runner *runner, const char *after, const char *first, const char *second) {
    if (!strcmp(first, second)) return true;
    const char *line;
    int number = first_difference(runner->module->arena, second, first, &line);
    Diag *d = diag(runner->module->sink, no_place, T_ROUNDTRIP, after, number, line);
    first_difference(runner->module->arena, first, second, &line);
    diag_note(d, "it was: %s", line);
    return false;
}

// The kernels that changed, which stand for themselves; NULL: the whole module.
static Module *changed_module(Runner *runner, const bool *changed) {
    const Module *module = runner->module;
    if (!changed) return runner->module;
    Module *out = module_new(module->arena, module->failure, module->sink);
    for (int i = 0; i < module->funcs.count; i++)
        if (changed[i]) vec_push(module->arena, &out->funcs, module->funcs.items[i]);
    return out;
}

static void round_trip(Runner *runner, const char *after, const bool *changed) {
    Module *module = changed_module(runner, changed);
    PrintOptions options = {.places = true, .tests = true};
    StrBuf first, second;
    sb_init(&first, module->arena);
    print_module(module, options, &first);
    const char *name = arena_printf(module->arena, "after %s", after);
    Module *again =
        runner->hooks->parse(runner->hooks->user, module->arena, module->failure, module->sink, name, sb_text(&first));
    if (!again) {
        diag(module->sink, no_place, T_ROUNDTRIP, after, 1, "it does not parse");
        runner->failed = true;
        return;
    }
    sb_init(&second, module->arena);
    print_module(again, options, &second);
    if (!same_text(runner, after, sb_text(&first), sb_text(&second))) runner->failed = true;
}

static void emulate(Runner *runner, const char *after, bool is_input) {
    const char *why = "no reason given";
    if (runner->hooks->emulate(runner->hooks->user, runner->module, after, &why)) return;
    if (is_input) diag(runner->module->sink, no_place, T_TEST_FAILS, why);
    else diag(runner->module->sink, no_place, T_EMULATE_AFTER, after, why);
    runner->failed = true;
}

static void verify(Runner *runner, const char *after, const bool *changed) {
    Module *module = runner->module;
    for (int i = 0; i < module->funcs.count; i++) {
        Func *func = module->funcs.items[i];
        if (!changed[i] || verify_func(module, func, false)) continue;
        diag(module->sink, func->loc, T_PASS_BROKE, after, func->name);
        runner->failed = true;
    }
}

// The checks and dumps after step number `step`. `changed` says which functions did; NULL for step 0, the frontend's.
static void observe(Runner *runner, int step, const char *after, const bool *changed, bool any) {
    const PassOptions *options = runner->options;
    if (changed && options->verify_each) verify(runner, after, changed);
    if (options->talk && selects(options->print_after, after)) print_kernels(runner, "after", after, NULL);
    else if (options->talk && options->print_changed && any) print_kernels(runner, "after", after, changed);
    if (options->dump_dir) dump(runner, step, after);
    if (runner->failed || !any) return;
    if (options->roundtrip_each && runner->hooks && runner->hooks->parse) round_trip(runner, after, changed);
    if (!runner->failed && options->emulate_each && runner->hooks && runner->hooks->emulate)
        emulate(runner, after, changed == NULL);
}

// ---- running ----

static bool is_left_out(const PassOptions *options, const Func *func) {
    for (int i = 0; i < options->left_out_count; i++)
        if (options->left_out[i] == func) return true;
    return false;
}

static bool allowed(Runner *runner, const Pass *pass, const Func *func) {
    if (is_left_out(runner->options, func)) return false;
    if (func->kind != FUNC_KERNEL || func->stage < pass->from || func->stage > pass->to) return false;
    int limit = runner->options->bisect_limit, number = ++runner->executions;
    if (limit < 0) return true;
    if (runner->options->talk)
        fprintf(runner->options->talk, "// bisect: %s %d: %s (%s)\n", number <= limit ? "run" : "skip", number,
                pass->name, func->name);
    return number <= limit;
}

// Whether the kernel is as the pass relies on. A kernel that is already at a lowering's result needs nothing.
static bool check_preconditions(const PassContext *context, const Pass *pass, const Func *func) {
    if (func->stage != pass->from) return true;
    for (int i = 0; i < PRE_COUNT; i++) {
        const Stmt *broken = pass->relies & 1 << i ? precondition_broken((Precondition)i, context, func) : NULL;
        if (!broken) continue;
        diag(context->sink, broken->loc, T_PRECONDITION, pass->name, func->name, precondition_text((Precondition)i));
        return false;
    }
    return true;
}

void report_hidden_change(const PassContext *context, const char *pass, const char *before) {
    if (strcmp(before, kernel_text(context->module, context->kernel, (PrintOptions){0})) != 0)
        diag(context->sink, context->kernel->loc, T_HIDDEN_CHANGE, pass, context->kernel->name);
}

static bool run_on(Runner *runner, Step *step, Func *func, PassContext *context) {
    if (!check_preconditions(context, step->pass, func)) return runner->failed = true, false;
    int errors = diag_errors(runner->module->sink);
    const char *before = runner->options->verify_each ? kernel_text(runner->module, func, (PrintOptions){0}) : NULL;
    double start = now();
    bool changed = step->pass->run(context, func);
    step->seconds += now() - start;
    step->runs++;
    step->changes += changed;
    bool failed = diag_errors(runner->module->sink) > errors;   // a kernel that is given up may be half changed
    if (before && !changed && !failed) report_hidden_change(context, step->pass->name, before);
    if (failed) runner->failed = true;
    return changed;
}

// Puts `func` after the function at `at`.
static void insert_func(Module *module, int at, Func *func) {
    vec_push(module->arena, &module->funcs, func);
    Func **items = module->funcs.items;
    memmove(items + at + 2, items + at + 1, sizeof *items * (size_t)(module->funcs.count - at - 2));
    items[at + 1] = func;
}

typedef VEC(bool) Flags;

static const Func *next_variant(const Module *module, int at) {
    const Func *next = at + 1 < module->funcs.count ? module->funcs.items[at + 1] : NULL;
    return next && strcmp(module->funcs.items[at]->name, next->name) == 0 ? next : NULL;
}

// Those of tiles are compared with each other, and with programs that stand there for the same arguments.
static void mark_added(Module *module, Func *variant, bool is_last, const Func *next) {
    if (!is_last || (next && attr_get(next->attrs, ATTR_FALLBACK)))
        attr_set_ints(module->arena, &variant->attrs, ATTR_TILE_VARIANT, 0, NULL);
    else attr_remove(&variant->attrs, ATTR_TILE_VARIANT);
}

// Runs one pass over all kernels. Variants that it adds do not go through this pass again.
static bool run_step(Runner *runner, Step *step, Flags *changed) {
    Module *module = runner->module;
    bool any = false;
    VEC(Func *) added = {0};   // of the tiles so far
    for (int i = 0; i < module->funcs.count && !runner->failed; i++) {
        PassContext context = {.module = module,
                               .arena = module->arena,
                               .failure = module->failure,
                               .sink = module->sink,
                               .target = runner->target,
                               .remarks = runner->options->remarks,
                               .kernel = module->funcs.items[i]};
        Func *func = module->funcs.items[i];
        vec_push(module->arena, changed, false);
        if (allowed(runner, step->pass, func)) vec_last(changed) = run_on(runner, step, func, &context);
        any |= vec_last(changed);
        VEC_EACH_PTR (Func, variant, &context.variants) vec_push(module->arena, &added, variant);
        const Func *next = next_variant(module, i);
        if (next && attr_get(func->attrs, ATTR_TILE_VARIANT)) continue;
        VEC_EACH_PTR (Func, variant, &added) {
            mark_added(module, variant, variant == vec_last(&added), next);
            insert_func(module, i++, variant);
            vec_push(module->arena, changed, true);
        }
        added.count = 0;
    }
    return any;
}

static void print_times(const Runner *runner) {
    double total = 0;
    for (int i = 0; i < runner->steps.count; i++) total += runner->steps.items[i].seconds;
    fprintf(runner->options->talk, "  ms      %%     runs changed  pass\n");
    for (int i = 0; i < runner->steps.count; i++) {
        const Step *step = &runner->steps.items[i];
        fprintf(runner->options->talk, "%8.3f %5.1f %6d %7d  %s\n", 1e3 * step->seconds,
                total > 0 ? 100 * step->seconds / total : 0, step->runs, step->changes, step->pass->name);
    }
    fprintf(runner->options->talk, "%8.3f 100.0                 all passes\n", 1e3 * total);
}

bool run_passes(Module *module, const Target *target, const PassOptions *options, const PassHooks *hooks) {
    Runner runner = {.module = module, .target = target, .options = options, .hooks = hooks};
    make_plan(&runner);
    if (runner.failed) return false;
    observe(&runner, 0, "frontend", NULL, true);
    for (int i = 0; i < runner.steps.count && !runner.failed; i++) {
        Step *step = &runner.steps.items[i];
        Flags changed = {0};
        if (options->talk && selects(options->print_before, step->pass->name))
            print_kernels(&runner, "before", step->pass->name, NULL);
        if (hooks && hooks->begin) hooks->begin(hooks->user, step->pass->name);
        bool any = run_step(&runner, step, &changed);
        if (!runner.failed) observe(&runner, i + 1, step->pass->name, changed.items, any);
        if (options->stop_after && !strcmp(options->stop_after, step->pass->name)) break;
    }
    if (!runner.failed && options->roundtrip_each && hooks && hooks->parse) round_trip(&runner, "all passes", NULL);
    if (options->time_passes && options->talk) print_times(&runner);
    return !runner.failed;
}
