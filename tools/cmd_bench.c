// tilec bench: measures the device time of a kernel or program for given shapes.
#include "tools/bench.h"
#include "tools/bench_flags.h"
#include <string.h>

typedef struct Report {
    const Subject *subject;
    const PlanEntry *entry;
    const char *device;
    Spread time;
    double bytes, flops;   // flops 0: unknown
    bool warm;
} Report;

static void print_text(const Report *r, StrBuf *out) {
    subject_print(r->subject, out);
    sb_printf(out, " on %s, %s L2 cache\n", r->device, r->warm ? "warm" : "cold");
    sb_printf(out, "  %.2f us  [%.2f, %.2f]  %.1f GB/s", r->time.median * 1e6, r->time.low * 1e6, r->time.high * 1e6,
              r->bytes / r->time.median * 1e-9);
    if (r->flops > 0) sb_printf(out, "  %.1f TFLOP/s", r->flops / r->time.median * 1e-12);
    sb_printf(out, "  (median of %d, 95 %% interval", r->time.samples);
    if (r->time.graph) sb_printf(out, "; graphs of %d launches", r->time.launches);
    sb_str(out, ")\n");
}

static void print_json(const Report *r, StrBuf *out) {
    subject_json(r->subject, r->device, out);
    sb_printf(
        out,
        ", \"cache\": \"%s\", \"samples\": %d, \"launches\": %d, \"graph\": %s, \"us\": %.4f, \"us_low\": %.4f, \"us_high\": %.4f",
        r->warm ? "warm" : "cold", r->time.samples, r->time.launches, r->time.graph ? "true" : "false",
        r->time.median * 1e6, r->time.low * 1e6, r->time.high * 1e6);
    sb_printf(out, ", \"gb_per_s\": %.3f", r->bytes / r->time.median * 1e-9);
    if (r->flops > 0) sb_printf(out, ", \"tflop_per_s\": %.3f", r->flops / r->time.median * 1e-12);
    sb_str(out, "}\n");
}

// Of the first variant that says: others may multiply without `gemm`.
static double flops_of(Tool *tool, const Subject *s) {
    double flops = 0;
    for (int i = 0; i < s->module->funcs.count && flops == 0; i++) {
        const Func *func = s->module->funcs.items[i];
        if (strcmp(func->name, s->func->name) == 0) flops = bench_flops(tool->arena, func, s->args);
    }
    return flops;
}

static bool count_flops(Tool *tool, const Subject *s, double *flops) {
    const char *text = option_text(&tool->options, OPTION_FLOPS, NULL), *why;
    *flops = text ? 0 : flops_of(tool, s);
    if (!text || bench_value(tool->arena, tool->failure, s->func, s->args, text, flops, &why)) return true;
    diag(tool->sink, (Span){0}, T_OPTION_VALUE, "flops", text,
         arena_printf(tool->arena, "an expression such as 2 * M * N * K: %s", why));
    return false;
}

static bool measure(Tool *tool, Report *r, const BenchOptions *options) {
    const Subject *s = r->subject;
    const Plan *plan;
    const void *cubin;
    DeviceModule loaded;
    if (!subject_code((Subject *)s, &plan, &cubin)) return false;
    r->entry = plan_entry(plan, s->func->name);
    if (!r->entry) {
        diag(tool->sink, (Span){0}, T_NO_ENTRY, s->func->name);
        return false;
    }
    if (!device_module_open(tool->arena, tool->sink, plan, cubin, CURRENT_DEVICE, &loaded)) return false;
    r->device = device_module_device_name(tool->arena, &loaded);
    bool ok = bench_launch(tool->arena, tool->sink, &loaded, r->entry, func_argument_count(s->func), s->args, options,
                           &r->time);
    device_module_close(&loaded);
    return ok;
}

bool command_bench(Tool *tool, int *code) {
    Subject s;
    BenchOptions options;
    Driver driver;
    StrBuf text;
    (void)code;
    if (!bench_flags(tool, 50, &options) || !subject_open(tool, true, &s) || !cuda_open(&driver, tool->sink))
        return false;
    if (!subject_choose(&s) || !subject_args(&s)) return false;
    Report r = {.subject = &s, .warm = options.warm, .bytes = bench_bytes(s.func, s.args)};
    if (!count_flops(tool, &s, &r.flops) || !measure(tool, &r, &options)) return false;
    sb_init(&text, tool->arena);
    if (option_given(&tool->options, OPTION_JSON)) print_json(&r, &text);
    else print_text(&r, &text);
    return tool_write(tool, "-", &text);
}
