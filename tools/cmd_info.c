// The commands that print information: targets, docs, layout, doctor.
#include "runtime/api/info.h"
#include "runtime/api/status.h"
#include "runtime/editor/editor.h"
#include "support/json.h"
#include "tools/tool.h"
#include <string.h>
#ifndef TILEC_NO_CODEGEN
#include "runtime/compile/compile.h"
#endif

static void target_text(const Target *t) {
    printf("%-9s %-40s %5lld KB %8d %7d ", t->name, t->summary, (long long)(t->shared_block / 1024), t->max_threads,
           t->registers_thread);
    for (int f = 1; f < FEATURE_COUNT; f++)
        if (target_has(t, (Feature)f)) printf(" %s", feature_text((Feature)f));
    printf("\n");
}

static void target_json(Tool *tool, const Target *t) {
    StrBuf out;
    sb_init(&out, tool->arena);
    sb_str(&out, "{\"name\": ");
    json_quote(&out, t->name);
    sb_str(&out, ", \"devices\": ");
    json_quote(&out, t->summary);
    sb_printf(&out, ", \"shared_bytes\": %lld, \"threads\": %d, \"registers\": %d, \"features\": [",
              (long long)t->shared_block, t->max_threads, t->registers_thread);
    for (int f = 1, shown = 0; f < FEATURE_COUNT; f++) {
        if (!target_has(t, (Feature)f)) continue;
        sb_str(&out, shown++ ? ", " : "");
        json_quote(&out, feature_text((Feature)f));
    }
    printf("%s]}\n", sb_text(&out));
}

bool command_targets(Tool *tool, int *code) {
    (void)code;
    const Target *t;
    bool json = option_given(&tool->options, OPTION_JSON);
    if (!json) printf("%-9s %-40s %8s %8s %7s  %s\n", "target", "devices", "shared", "threads", "regs", "features");
    for (int i = 0; (t = target_at(i)); i++)
        if (json) target_json(tool, t);
        else target_text(t);
    return true;
}

bool command_docs(Tool *tool, int *code) {
    (void)code;
    int count = tool->options.operands.count;
    const char *what = count ? tool->options.operands.items[0] : "";
    StrBuf text;
    sb_init(&text, tool->arena);
    if (strcmp(what, "man") == 0 && count == 2) {
        const char *command = tool->options.operands.items[1];
        if (!help_manual_of(command, &text)) return tool_usage(tool, "there is no command '%s'", command);
    } else if (count > 1) return tool_usage(tool, "only `man` takes a command");
    else if (strcmp(what, "cli") == 0) help_markdown(&text);
    else if (strcmp(what, "man") == 0) help_manual(&text);
    else if (strcmp(what, "bash") == 0) help_bash(&text);
    else if (strcmp(what, "zsh") == 0) help_zsh(&text);
    else if (strcmp(what, "fish") == 0) help_fish(&text);
#ifndef TILEC_NO_CODEGEN
    else if (strcmp(what, "passes") == 0) passes_document(&text);
    else if (strcmp(what, "operations") == 0) ir_document_operations(&text);
    else if (strcmp(what, "attributes") == 0) ir_document_attributes(&text);
    else if (strcmp(what, "textmate") == 0) editor_textmate(&text);
#endif
    else return tool_usage(tool, "give one of cli, man, bash, zsh, fish, passes, operations, attributes, textmate");
    return tool_product(tool, "-", "", &text);
}

bool command_layout(Tool *tool, int *code) {
    VEC(char *) args = {0};
    vec_push(tool->arena, &args, "tilec layout");
    for (int i = 0; i < tool->options.operands.count; i++)
        vec_push(tool->arena, &args, (char *)tool->options.operands.items[i]);
    *code = info_layout(args.count, args.items);
    if (*code < 0) return tool_usage(tool, "this tilec was built without the layout calculator");
    return *code == 0;
}

bool command_doctor(Tool *tool, int *code) {
    (void)code;
    StrBuf text;
    sb_init(&text, tool->arena);
    tool_versions(tool, &text);
    info_device(tool->arena, &text);
    return tool_pairs(tool, &text);
}
