// tilec opt: runs passes on a file of any stage and prints the result; tilec passes: lists the passes.
#include "runtime/compile/compile.h"
#include "tools/pass_flags.h"
#include "tools/tool.h"
#include <string.h>

static bool optimise(Tool *tool, Loader *loader, CompileOptions *options, StrBuf *out) {
    Module *module = load_module(loader, tool->arena, options->define_count, options->defines, options->only);
    if (!module) return false;
    bool none = options->passes.passes && options->passes.passes[0] == 0;
    if (!none && !run_pipeline(module, options)) return false;
    print_module(module, (PrintOptions){.places = options->passes.places, .comments = true, .tests = true}, out);
    return true;
}

bool command_opt(Tool *tool, int *code) {
    (void)code;
    StrBuf text;
    const char *path = tool_file(tool);
    const Target *target = path ? tool_target(tool, "sm_90a") : NULL;
    if (!target) return false;
    CompileOptions options = compile_options(target);
    if (!tool_defines(tool, &options.define_count, &options.defines) || !pass_flags(tool, &options.passes) ||
        !tool_max_steps(tool, &options.max_steps))
        return false;
    options.only = option_text(&tool->options, OPTION_ONLY, NULL);
    options.repro = repro_base(tool, path);
    Loader loader = tool_loader(tool, target);
    sb_init(&text, tool->arena);
    return tool_variants(tool, &loader.variants) && loader_open(&loader, path) &&
           optimise(tool, &loader, &options, &text) &&
           tool_product(tool, option_text(&tool->options, OPTION_OUTPUT, "-"), "", &text);
}

bool command_passes(Tool *tool, int *code) {
    (void)code;
    StrBuf text;
    sb_init(&text, tool->arena);
    report_passes(option_given(&tool->options, OPTION_JSON), &text);
    return tool_write(tool, "-", &text);
}
