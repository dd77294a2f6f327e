#include "tools/tool.h"
#include "runtime/api/status.h"
#include "runtime/compile/compile.h"
#include "support/json.h"
#include "tilec_commit.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const Span NOWHERE;

static DiagFormat format_of(const Tool *tool) {
    const char *color = option_text(&tool->options, OPTION_COLOR, "auto");
    if (strcmp(option_text(&tool->options, OPTION_DIAGNOSTICS, "text"), "json") == 0) return DIAG_JSON;
    if (strcmp(color, "always") == 0) return DIAG_TEXT_COLOR;
    const char *no_color = getenv("NO_COLOR");
    bool allowed = strcmp(color, "auto") == 0 && !(no_color && no_color[0]) && isatty(STDERR_FILENO);
    return allowed ? DIAG_TEXT_COLOR : DIAG_TEXT;
}

void tool_versions(Tool *tool, StrBuf *out) {
    const char *commit = &TILEC_COMMIT[strlen("commit:")];
    sb_printf(out, "tilec      %s\n", tilec_version());
    if (commit[0]) sb_printf(out, "commit     %s\n", commit);
#ifndef TILEC_NO_CODEGEN
    report_llvm(tool->arena, out);
    report_assembler(tool->arena, tool->failure, option_text(&tool->options, OPTION_PTXAS, NULL), out);
#else
    (void)tool;
#endif
}

void tool_flush(Tool *tool) {
    if (tool->lost) return;
    if (fflush(stdout) != 0) tool->lost = errno;
    else if (ferror(stdout))
        tool->lost = write(STDOUT_FILENO, "\n", 1) < 0 ? errno : EIO;   // a printf failed: why is lost
}

void tool_show(Tool *tool) {
    StrBuf text;
    sb_init(&text, tool->arena);
    diag_render(tool->sink, tool->shown, format_of(tool), &text);
    tool->shown = diag_count(tool->sink);
    tool_flush(tool);   // results before messages
    fputs(sb_text(&text), stderr);
}

bool tool_usage(Tool *tool, const char *format, ...) {
    va_list args;
    va_start(args, format);
    diag(tool->sink, NOWHERE, T_OPERAND, arena_vprintf(tool->arena, format, args));
    va_end(args);
    return false;
}

const char *tool_file(Tool *tool) {
    if (tool->options.operands.count == 1) return tool->options.operands.items[0];
    if (tool->options.operands.count == 0) tool_usage(tool, "no input file was given");
    else tool_usage(tool, "one input file is taken, not %d", tool->options.operands.count);
    return NULL;
}

bool tool_defines(Tool *tool, int *count, const Define **defines) {
    VEC(Define) out = {0};
    for (int i = 0; i < tool->options.given.count; i++) {
        const GivenOption *given = &tool->options.given.items[i];
        if (given->id != OPTION_DEFINE) continue;
        const char *equals = strchr(given->value, '=');
        if (!equals || equals == given->value || !equals[1]) {
            diag(tool->sink, NOWHERE, T_BAD_DEFINE, given->value);
            return false;
        }
        Define define = {arena_strndup(tool->arena, given->value, (size_t)(equals - given->value)), equals + 1};
        vec_push(tool->arena, &out, define);
    }
    *count = out.count;
    *defines = out.items;
    return true;
}

static bool read_value(Tool *tool, const char *item, RecordValue *out) {
    const char *equals = strchr(item, '=');
    if (!equals || equals == item) {
        diag(tool->sink, NOWHERE, T_OPTION_VALUE, "for", item, "NAME=VALUE");
        return false;
    }
    out->name = arena_strndup(tool->arena, item, (size_t)(equals - item));
    return option_read_number(tool->sink, OPTION_FOR, equals + 1, INT64_MIN, INT64_MAX, &out->value);
}

const LaunchFor *tool_launch(Tool *tool, bool *ok) {
    const char *given = option_text(&tool->options, OPTION_FOR, NULL);
    *ok = true;
    if (!given) return NULL;
    RecordValues *values = NEW(tool->arena, RecordValues);
    char *text = arena_strdup(tool->arena, given), *rest = NULL;
    for (char *item = strtok_r(text, ",", &rest); item && *ok; item = strtok_r(NULL, ",", &rest)) {
        RecordValue value = {0};
        *ok = read_value(tool, item, &value);
        vec_push(tool->arena, values, value);
    }
    LaunchFor *launch = NEW(tool->arena, LaunchFor);
    *launch = (LaunchFor){.kernel = option_text(&tool->options, OPTION_ONLY, NULL), .values = values};
    return *ok ? launch : NULL;
}

static const Target *find_target(Tool *tool, const char *name) {
    const Target *target = target_named(name);
    if (target) return target;
    Diag *d = diag(tool->sink, NOWHERE, T_UNKNOWN_TARGET, name);
    size_t length = strlen(name);
    for (int i = 0; (target = target_at(i)); i++)   // suggests sm_90 for sm_9, sm_90a for sm_90b
        if (length > 3 && strncmp(target->name, name, length - 1) == 0) {
            diag_suggest(d, NOWHERE, target->name);
            break;
        }
    return NULL;
}

const Target **tool_targets(Tool *tool, const char *otherwise) {
    VEC(const Target *) out = {0};
    const char *names = option_text(&tool->options, OPTION_TARGET, otherwise);
    while (names) {
        size_t length = strcspn(names, ",");
        const Target *target = find_target(tool, arena_strndup(tool->arena, names, length));
        if (!target) return NULL;
        bool twice = false;
        for (int i = 0; i < out.count; i++) twice |= out.items[i] == target;
        if (!twice) vec_push(tool->arena, &out, target);
        names = names[length] ? names + length + 1 : NULL;
    }
    vec_push(tool->arena, &out, NULL);
    return out.items;
}

const Target *tool_target(Tool *tool, const char *otherwise) {
    const Target **targets = tool_targets(tool, otherwise);
    if (!targets || !targets[1]) return targets ? targets[0] : NULL;
    tool_usage(tool, "one target is taken here, not several");
    return NULL;
}

bool tool_write(Tool *tool, const char *path, const StrBuf *text) {
    return file_write(tool->arena, tool->sink, path, sb_text(text), text->length);
}

bool tool_product(Tool *tool, const char *path, const char *members, const StrBuf *text) {
    StrBuf out;
    bool named = strcmp(path, "-") != 0;
    if (!option_given(&tool->options, OPTION_JSON)) return tool_write(tool, path, text);
    if (named && !tool_write(tool, path, text)) return false;
    sb_init(&out, tool->arena);
    sb_printf(&out, "{%s\"%s\": ", members, named ? "file" : "text");
    json_quote(&out, named ? path : sb_text(text));
    sb_printf(&out, ", \"bytes\": %zu}\n", text->length);
    return tool_write(tool, "-", &out);
}

bool tool_pairs(Tool *tool, const StrBuf *lines) {
    StrBuf out;
    int shown = 0;
    if (!option_given(&tool->options, OPTION_JSON)) return tool_write(tool, "-", lines);
    sb_init(&out, tool->arena);
    for (const char *line = sb_text(lines); *line; line += strcspn(line, "\n"), line += *line == '\n') {
        const char *gap = strstr(line, "  "), *value = gap ? gap + strspn(gap, " ") : NULL;
        if (!value) continue;
        sb_str(&out, shown++ ? ", " : "{");
        json_quote(&out, arena_strndup(tool->arena, line, (size_t)(gap - line)));
        sb_str(&out, ": ");
        size_t length = strcspn(value, "\n");
        if (strspn(value, "0123456789") == length) sb_bytes(&out, value, length);
        else json_quote(&out, arena_strndup(tool->arena, value, length));
    }
    sb_str(&out, "}\n");
    return tool_write(tool, "-", &out);
}

Loader tool_loader(Tool *tool, const Target *target) {
    return (Loader){.arena = tool->arena,
                    .failure = tool->failure,
                    .sink = tool->sink,
                    .target = target,
                    .import_root = option_text(&tool->options, OPTION_IMPORT_ROOT, NULL)};
}

const char *tool_record_path(Tool *tool, const char *source, bool *named) {
    const char *variable = getenv("TILEC_RECORD");
    const char *path = option_text(&tool->options, OPTION_RECORD, variable && variable[0] ? variable : NULL);
    *named = path != NULL;
    if (!path) return record_path(tool->arena, source);
    return strcmp(path, "none") == 0 ? NULL : path;
}

bool tool_max_steps(Tool *tool, int64_t *steps) {
    const char *variable = getenv("TILEC_MAX_STEPS");
    const char *text = option_text(&tool->options, OPTION_MAX_STEPS, variable && variable[0] ? variable : NULL);
    *steps = 0;
    return !text || option_read_number(tool->sink, OPTION_MAX_STEPS, text, 1, INT64_MAX, steps);
}

bool tool_variants(Tool *tool, int *count) {
    int64_t number = 0;
    if (!option_number(&tool->options, tool->sink, OPTION_VARIANTS, 1, 23, &number)) return false;
    *count = (int)number;
    return true;
}

bool tool_place(Tool *tool, bool *on_gpu) {
    static const OptionId of_device[] = {OPTION_ARTEFACT, OPTION_REPEAT, OPTION_COMPILE_ONLY, OPTION_COMPILED,
                                         OPTION_NO_GUARDS};
    int on = option_choice(&tool->options, tool->sink, OPTION_DEVICE, 0);
    *on_gpu = on == 1;
    for (int i = 0; on == 0 && i < COUNT_OF(of_device); i++)
        if (option_given(&tool->options, of_device[i]))
            return tool_usage(tool, "--%s takes --device=gpu too", option_infos[of_device[i]].name);
    return on >= 0;
}

bool tool_record(Tool *tool, const char *source, Loader *loader) {
    bool named;
    Record *record = NEW(tool->arena, Record);
    loader->record_path = tool_record_path(tool, source, &named);
    if (!loader->record_path) return true;
    loader->record = record;
    return record_read(tool->arena, tool->sink, loader->record_path, named, record);
}
