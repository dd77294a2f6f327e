// tilec run: runs a kernel or program on given tensors, on the emulator or on the device.
#include "runtime/device/device.h"
#include "tools/subject.h"

static bool run_emulated(Subject *s) {
    EmuOptions options = {.seed = (uint64_t)s->seed, .races = true, .target = s->loader.target};
    if (!tool_max_steps(s->tool, &options.max_steps)) return false;
    EmuReport report = {0};
    int count = func_argument_count(s->func);
    const Func *func = emulate_choose(s->module, s->func->name, count, s->args);
    if (!func || !emulate_func(s->module, func, count, s->args, &options, &report)) return false;
    if (option_given(&s->tool->options, OPTION_VERBOSE))
        fprintf(stderr, "CTAs %lld, barriers %lld, shared accesses %lld with %lld conflicts, %.3f s\n",
                (long long)report.blocks, (long long)report.barriers, (long long)report.shared_accesses,
                (long long)report.conflicts, report.seconds);
    return true;
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
    device_module_close(&loaded);
    if (ok && run.outside) return tool_usage(tool, "%s", run.outside);
    if (ok && (repeat > 1 || option_given(&tool->options, OPTION_VERBOSE)))
        fprintf(stderr, "%s: %.3f us on the device (shortest of %lld)\n", s->func->name, best * 1e6, (long long)repeat);
    return ok;
}

static bool save_outputs(Subject *s) {
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
        Tensor tensor = run_tensor(&s->args[index]);
        if (!npy_write(tool->arena, tool->sink, save.value, &tensor)) return false;
    }
    return true;
}

bool command_run(Tool *tool, int *code) {
    (void)code;
    Subject s;
    int64_t repeat = 1;
    int on = option_choice(&tool->options, tool->sink, OPTION_DEVICE, 0);
    if (on < 0 || !option_number(&tool->options, tool->sink, OPTION_REPEAT, 1, 1000000, &repeat)) return false;
    if (!subject_open(tool, on == 1, &s) || !subject_choose(&s) || !subject_args(&s)) return false;
    return (on == 1 ? run_on_device(&s, repeat) : run_emulated(&s)) && save_outputs(&s);
}
