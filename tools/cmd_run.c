// tilec run: a kernel or program on given tensors, on the emulator or on the device.
#include "runtime/device.h"
#include "runtime/info.h"
#include "runtime/run.h"
#include "runtime/test.h"
#include "tools/tool.h"
#include <string.h>
#ifndef TILEC_NO_CODEGEN
#include "runtime/compile.h"
#endif

typedef struct RunCommand {
    Tool *tool;
    Front front;
    const char *path;
    bool on_gpu;
    int64_t seed, repeat;
    int define_count;
    const Define *defines;
    Module *module;
    const Func *func;
    EmuArg *args;
} RunCommand;

// "NAME=VALUE", split.
static bool split(Tool *tool, const char *text, RunArg *out) {
    const char *equals = strchr(text, '=');
    if (!equals || equals == text || !equals[1]) return tool_usage(tool, "'%s' is not NAME=VALUE", text);
    *out = (RunArg){arena_strndup(tool->arena, text, (size_t)(equals - text)), equals + 1};
    return true;
}

// The one that --only names, else the first program, else the first kernel.
static const Func *choose_func(RunCommand *r) {
    const char *only = option_text(&r->tool->options, OPTION_ONLY, NULL);
    const Func *found = only ? module_func(r->module, only) : NULL;
    for (int i = 0; !only && i < r->module->funcs.count; i++) {
        const Func *func = r->module->funcs.items[i];
        if (!found || (found->kind == FUNC_KERNEL && func->kind == FUNC_PROGRAM)) found = func;
    }
    if (!found) diag(r->tool->sink, (Span){0}, T_NO_ENTRY, only ? only : "");
    return found;
}

static bool make_args(RunCommand *r) {
    const Options *o = &r->tool->options;
    int count = o->operands.count - 1;
    RunArg *given = NEW_ARRAY(r->tool->arena, RunArg, count + 1);
    for (int i = 0; i < count; i++)
        if (!split(r->tool, o->operands.items[i + 1], &given[i])) return false;
    return run_make_args(r->tool->arena, r->tool->sink, r->func, count, given, (uint64_t)r->seed, &r->args);
}

static bool run_emulated(RunCommand *r) {
    EmuOptions options = {.seed = (uint64_t)r->seed, .races = true, .target = r->front.target};
    EmuReport report = {0};
    int count = func_argument_count(r->func);
    const Func *func = emulate_choose(r->module, r->func->name, count, r->args);
    if (!func || !emulate_func(r->module, func, count, r->args, &options, &report)) return false;
    if (option_given(&r->tool->options, OPTION_VERBOSE))
        fprintf(stderr, "blocks %lld, barriers %lld, shared accesses %lld with %lld conflicts, %.3f s\n",
                (long long)report.blocks, (long long)report.barriers, (long long)report.shared_accesses,
                (long long)report.conflicts, report.seconds);
    return true;
}

// The code: from --artefact, else compiled now.
static bool get_artefact(RunCommand *r, const Plan **plan, const void **cubin) {
    Tool *tool = r->tool;
    const char *path = option_text(&tool->options, OPTION_ARTEFACT, NULL);
    size_t size;
    if (path) return artefact_read(tool->arena, tool->failure, tool->sink, path, plan, cubin, &size);
#ifdef TILEC_NO_CODEGEN
    diag(tool->sink, (Span){0}, T_NO_PREPARED, r->path);
    return false;
#else
    Compiled compiled;
    CompileOptions options = compile_options(r->front.target);
    options.define_count = r->define_count;
    options.defines = r->defines;
    options.ptxas = option_text(&tool->options, OPTION_PTXAS, NULL);
    if (!compile(&r->front, tool->arena, &options, &compiled)) return false;
    *cubin = compiled.packed;
    *plan = plan_read(tool->arena, tool->failure, tool->sink, compiled.manifest, strlen(compiled.manifest));
    return *plan != NULL;
#endif
}

static bool run_on_device(RunCommand *r) {
    const Plan *plan;
    const void *cubin;
    Loaded loaded;
    Tool *tool = r->tool;
    if (!get_artefact(r, &plan, &cubin) || !loaded_open(tool->arena, tool->sink, plan, cubin, &loaded)) return false;
    const PlanEntry *entry = plan_entry(plan, r->func->name);
    DeviceRun run = {.loaded = &loaded, .entry = entry};
    double best = 0;
    bool ok = entry != NULL;
    if (!entry) diag(tool->sink, (Span){0}, T_NO_ENTRY, r->func->name);
    for (int64_t i = 0; ok && i < r->repeat; i++) {
        ok = device_run(tool->arena, tool->sink, &run, func_argument_count(r->func), r->args);
        if (i == 0 || run.seconds < best) best = run.seconds;
    }
    loaded_close(&loaded);
    if (ok && run.outside) return tool_usage(tool, "%s", run.outside);
    if (ok && (r->repeat > 1 || option_given(&tool->options, OPTION_VERBOSE)))
        fprintf(stderr, "%s: %.3f us on the device (shortest of %lld)\n", r->func->name, best * 1e6,
                (long long)r->repeat);
    return ok;
}

static bool save_outputs(RunCommand *r) {
    Tool *tool = r->tool;
    for (int i = 0; i < tool->options.given.count; i++) {
        const GivenOption *given = &tool->options.given.items[i];
        RunArg save;
        if (given->id != OPTION_SAVE) continue;
        if (!split(tool, given->value, &save)) return false;
        int index = run_param(r->func, save.name);
        if (index < 0 || !r->args[index].tensor) {
            diag(tool->sink, (Span){0}, T_RUN_ARGUMENT, save.name, "there is no such tensor to save");
            return false;
        }
        Tensor tensor = run_tensor(&r->args[index]);
        if (!npy_write(tool->arena, tool->sink, save.value, &tensor)) return false;
    }
    return true;
}

bool command_run(Tool *tool, int *code) {
    (void)code;
    RunCommand r = {.tool = tool, .seed = 1, .repeat = 1};
    const Options *o = &tool->options;
    if (o->operands.count == 0) return tool_usage(tool, "no input file was given");
    int on = option_choice(o, tool->sink, OPTION_ON, "emu gpu", 0);
    if (on < 0 || !option_number(o, tool->sink, OPTION_SEED, 0, INT64_MAX, &r.seed) ||
        !option_number(o, tool->sink, OPTION_REPEAT, 1, 1000000, &r.repeat) ||
        !tool_defines(tool, &r.define_count, &r.defines))
        return false;
    r.on_gpu = on == 1;
    r.path = o->operands.items[0];
    const Target *device = r.on_gpu ? info_device_target(tool->arena) : NULL;
    bool chosen = option_given(o, OPTION_TARGET);
    r.front = tool_front(tool, device && !chosen ? device : tool_target(tool, r.on_gpu ? "sm_90a" : "sm_80"));
    if (!r.front.target || !front_open(&r.front, r.path)) return false;
    r.module = front_module(&r.front, tool->arena, r.define_count, r.defines, option_text(o, OPTION_ONLY, NULL));
    if (!r.module || !(r.func = choose_func(&r)) || !make_args(&r)) return false;
    return (r.on_gpu ? run_on_device(&r) : run_emulated(&r)) && save_outputs(&r);
}
