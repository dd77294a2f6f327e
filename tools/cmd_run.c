// tilec run: runs a kernel or program on given tensors, on the emulator or on the device.
#include "runtime/device/device.h"
#include "tools/subject.h"

// What was done, as a line or an object.
static bool tell(const Subject *s, const char *where, const char *text, const char *json) {
    StrBuf out;
    sb_init(&out, s->tool->arena);
    if (option_given(&s->tool->options, OPTION_JSON)) {
        subject_json(s, where, &out);
        sb_printf(&out, ", %s}\n", json);
    } else {
        subject_print(s, &out);
        sb_printf(&out, " on %s: %s\n", where, text);
    }
    return tool_write(s->tool, "-", &out);
}

static bool run_emulated(Subject *s) {
    EmuOptions options = {.seed = (uint64_t)s->seed, .races = true, .target = s->loader.target};
    if (!tool_max_steps(s->tool, &options.max_steps)) return false;
    EmuReport report = {0};
    int count = func_argument_count(s->func);
    const Func *func = emulate_choose(s->module, s->func->name, count, s->args);
    if (!func || !emulate_func(s->module, func, count, s->args, &options, &report)) return false;
    long long blocks = report.blocks, barriers = report.barriers, accesses = report.shared_accesses;
    long long conflicts = report.conflicts;
    Arena *arena = s->tool->arena;
    const char *more =
        arena_printf(arena, ", %lld barriers, %lld shared accesses with %lld conflicts", barriers, accesses, conflicts);
    bool verbose = option_given(&s->tool->options, OPTION_VERBOSE);
    return tell(s, "the emulator",
                arena_printf(arena, "%lld CTAs%s, %.3f s", blocks, verbose ? more : "", report.seconds),
                arena_printf(arena,
                             "\"ctas\": %lld, \"barriers\": %lld, \"shared_accesses\": %lld, \"conflicts\": %lld, "
                             "\"seconds\": %.3f",
                             blocks, barriers, accesses, conflicts, report.seconds));
}

static bool run_on_device(Subject *s, int64_t repeat) {
    const Plan *plan;
    const void *cubin;
    DeviceModule loaded;
    Tool *tool = s->tool;
    if (!subject_code(s, &plan, &cubin) ||
        !device_module_open(tool->arena, tool->sink, plan, cubin, CURRENT_DEVICE, &loaded))
        return false;
    const PlanEntry *entry = plan_entry(plan, s->func->name);
    DeviceRun run = {.loaded = &loaded, .entry = entry};
    double best = 0;
    bool ok = entry != NULL;
    if (!entry) diag(tool->sink, (Span){0}, T_NO_ENTRY, s->func->name);
    for (int64_t i = 0; ok && i < repeat; i++) {
        ok = device_run(tool->arena, tool->sink, &run, func_argument_count(s->func), s->args);
        if (i == 0 || run.seconds < best) best = run.seconds;
    }
    const char *device = device_module_device_name(tool->arena, &loaded);
    device_module_close(&loaded);
    if (ok && run.outside) return tool_usage(tool, "%s", run.outside);
    return ok && tell(s, device, arena_printf(tool->arena, "%.3f us (shortest of %lld)", best * 1e6, (long long)repeat),
                      arena_printf(tool->arena, "\"us\": %.4f, \"runs\": %lld", best * 1e6, (long long)repeat));
}

// With `writes` false only looks whether there are such tensors, before the kernel runs.
static bool save_outputs(Subject *s, bool writes) {
    Tool *tool = s->tool;
    for (int i = 0; i < tool->options.given.count; i++) {
        const GivenOption *given = &tool->options.given.items[i];
        RunArg save;
        if (given->id != OPTION_SAVE) continue;
        if (!subject_pair(tool, given->value, &save)) return false;
        int index = run_param(s->func, save.name);
        if (index < 0 || !s->args[index].tensor) {
            diag(tool->sink, (Span){0}, T_RUN_ARGUMENT, save.name, "there is no such tensor to save");
            return false;
        }
        if (!writes) continue;
        Tensor tensor = run_tensor(&s->args[index]);
        if (!npy_write(tool->arena, tool->sink, save.value, &tensor)) return false;
        if (!option_given(&tool->options, OPTION_JSON)) printf("%s written to %s\n", save.name, save.value);
    }
    return true;
}

bool command_run(Tool *tool, int *code) {
    (void)code;
    Subject s;
    int64_t repeat = 1;
    bool on_gpu;
    if (!tool_place(tool, &on_gpu) || !option_number(&tool->options, tool->sink, OPTION_REPEAT, 1, 1000000, &repeat))
        return false;
    if (!subject_open(tool, on_gpu, &s) || !subject_choose(&s) || !subject_args(&s) || !save_outputs(&s, false))
        return false;
    return (on_gpu ? run_on_device(&s, repeat) : run_emulated(&s)) && save_outputs(&s, true);
}
