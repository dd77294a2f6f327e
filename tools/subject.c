#include "tools/subject.h"
#include "runtime/api/info.h"
#include "support/json.h"
#include "tools/bench.h"
#include "tools/test_runner.h"
#include <string.h>
#ifndef TILEC_NO_CODEGEN
#include "tools/ask.h"
#endif

bool subject_pair(Tool *tool, const char *text, RunArg *out) {
    const char *equals = strchr(text, '=');
    if (!equals || equals == text || !equals[1]) return tool_usage(tool, "'%s' is not NAME=VALUE", text);
    *out = (RunArg){arena_strndup(tool->arena, text, (size_t)(equals - text)), equals + 1};
    return true;
}

bool subject_open(Tool *tool, bool on_gpu, Subject *out) {
    const Options *o = &tool->options;
    *out = (Subject){.tool = tool, .seed = 1, .optimize = 1};
    if (o->operands.count == 0) return tool_usage(tool, "no input file was given");
    if (!option_number(o, tool->sink, OPTION_SEED, 0, INT64_MAX, &out->seed) ||
        !option_number(o, tool->sink, OPTION_OPTIMIZE, 0, 2, &out->optimize) ||
        !tool_defines(tool, &out->define_count, &out->defines))
        return false;
    out->path = o->operands.items[0];
    out->only = option_text(o, OPTION_ONLY, NULL);
    const Target *device = on_gpu ? info_device_target(tool->arena) : NULL;
    bool chosen = option_given(o, OPTION_TARGET);
    out->loader = tool_loader(tool, device && !chosen ? device : tool_target(tool, on_gpu ? "sm_90a" : "sm_80"));
    return out->loader.target && loader_open(&out->loader, out->path);
}

// Prefers a variant that is a kernel: the gemms of a program cannot be counted.
static const Func *entry_named(const Module *module, const char *name) {
    for (int i = 0; i < module->funcs.count; i++) {
        const Func *func = module->funcs.items[i];
        if (func->kind == FUNC_KERNEL && strcmp(func->name, name) == 0) return func;
    }
    return module_func(module, name);
}

const char *subject_types(Subject *s) {
    const Define *types;
    int count = s->only
                    ? syntax_usual_types(s->loader.syntax, s->tool->arena, s->define_count, s->defines, s->only, &types)
                    : 0;
    const char *open = NULL;
    Define *all = NEW_ARRAY(s->tool->arena, Define, s->define_count + count + 1);
    for (int i = 0; i < s->define_count; i++) all[i] = s->defines[i];
    for (int i = 0; i < count; i++) {
        if (types[i].value) all[s->define_count++] = types[i];
        else open = types[i].name;
    }
    s->defines = all;
    return open;
}

bool subject_choose(Subject *s) {
    const char *only = s->only, *open = subject_types(s);
    s->module = load_module(&s->loader, s->tool->arena, s->define_count, s->defines, only);
    if (!s->module) return false;
    const Func *found = only ? entry_named(s->module, only) : NULL;
    for (int i = 0; !only && i < s->module->funcs.count; i++) {
        const Func *func = entry_named(s->module, s->module->funcs.items[i]->name);
        if (!found || (found->kind == FUNC_KERNEL && func->kind == FUNC_PROGRAM)) found = func;
    }
    Diag *d = found ? NULL : diag(s->tool->sink, (Span){0}, T_NO_ENTRY, only ? only : "");
    if (d && open) diag_note(d, "it is made for the types of its tests: choose one, as in -D %s=f16", open);
    s->func = found;
    return found != NULL;
}

static bool is_scalar_param(const Func *func, const char *name) {
    VEC_EACH (const Param, param, &func->params)
        if (param->var && strcmp(param->var->name, name) == 0) return true;
    return false;
}

static bool names_argument(const RunArg *given, int count, const char *name) {
    for (int i = 0; i < count; i++)
        if (strcmp(given[i].name, name) == 0) return true;
    return false;
}

// A compile-time name that is a scalar parameter needs its value once: -D gives the argument too.
bool subject_args(Subject *s) {
    const Options *o = &s->tool->options;
    int count = o->operands.count - 1;
    RunArg *given = NEW_ARRAY(s->tool->arena, RunArg, count + s->define_count + 1);
    for (int i = 0; i < count; i++)
        if (!subject_pair(s->tool, o->operands.items[i + 1], &given[i])) return false;
    for (int i = 0; i < s->define_count; i++) {
        const Define *define = &s->defines[i];
        if (is_scalar_param(s->func, define->name) && !names_argument(given, count, define->name))
            given[count++] = (RunArg){define->name, define->value};
    }
    return run_make_args(s->tool->arena, s->tool->sink, s->func, count, given, (uint64_t)s->seed, &s->args);
}

bool subject_code(Subject *s, const Plan **plan, const void **cubin) {
    Tool *tool = s->tool;
    const char *path = option_text(&tool->options, OPTION_ARTEFACT, NULL);
    size_t size;
    if (path) return artefact_read(tool->arena, tool->failure, tool->sink, path, plan, cubin, &size);
#ifdef TILEC_NO_CODEGEN
    diag(tool->sink, (Span){0}, T_NOT_COMPILED, s->path);
    return false;
#else
    Ask asked;
    RecordValues shape = bench_shape(tool->arena, s->func, s->args);
    if (!ask_open(tool, s->path, s->loader.target, &asked) || !ask_record(tool, s->path, &asked)) return false;
    TilecDefine *defines = NEW_ARRAY(tool->arena, TilecDefine, s->define_count + 1);
    for (int i = 0; i < s->define_count; i++) defines[i] = (TilecDefine){s->defines[i].name, s->defines[i].value};
    asked.request.define_count = s->define_count;
    asked.request.defines = defines;
    asked.request.for_shape = true;
    asked.request.shape_count = shape.count;
    asked.request.shape = shape.items;
    bool ok = ask(tool, &asked);
    if (ok) {
        const char *manifest = arena_strdup(tool->arena, asked.reply.manifest);
        *cubin = arena_copy(tool->arena, asked.reply.cubin, asked.reply.cubin_size);
        *plan = plan_read(tool->arena, tool->failure, tool->sink, manifest, strlen(manifest));
    }
    ask_end(&asked);
    return ok && *plan != NULL;
#endif
}

// ---- what it is ----

static void print_shape(const Tensor *tensor, StrBuf *out) {
    sb_char(out, '[');
    for (int d = 0; d < tensor->rank; d++) sb_printf(out, "%s%lld", d ? ", " : "", (long long)tensor->shape[d]);
    sb_char(out, ']');
}

void subject_print(const Subject *subject, StrBuf *out) {
    const Func *func = subject->func;
    sb_printf(out, "%s (", func->name);
    for (int i = 0, shown = 0; i < func->params.count; i++) {
        if (!subject->args[i].tensor) continue;
        Tensor tensor = run_tensor(&subject->args[i]);
        sb_printf(out, "%s%s: %s", shown++ ? ", " : "", func->params.items[i].buf->name, type_text(tensor.type));
        print_shape(&tensor, out);
    }
    sb_char(out, ')');
}

void subject_json(const Subject *subject, const char *device, StrBuf *out) {
    const Func *func = subject->func;
    sb_str(out, "{\"name\": ");
    json_quote(out, func->name);
    sb_str(out, ", \"device\": ");
    json_quote(out, device);
    sb_str(out, ", \"tensors\": {");
    for (int i = 0, shown = 0; i < func->params.count; i++) {
        if (!subject->args[i].tensor) continue;
        Tensor tensor = run_tensor(&subject->args[i]);
        sb_str(out, shown++ ? ", " : "");
        json_quote(out, func->params.items[i].buf->name);
        sb_str(out, ": ");
        print_shape(&tensor, out);
    }
    sb_char(out, '}');
}
