// tilec fmt: files in the one form of tools/format.h. What does not parse stays as it is.
#include "support/files.h"
#include "support/json.h"
#include "tools/format.h"
#include "tools/tool.h"
#include <string.h>

static int first_difference(FileText text, const StrBuf *formatted) {
    const char *a = text.text, *b = sb_text(formatted);
    int line = 1;
    for (; *a && *a == *b; a++, b++) line += *a == '\n';
    return line;
}

// `line`: of the first difference; 0: there is none.
static bool tell(Tool *tool, const char *path, int line) {
    StrBuf out;
    sb_init(&out, tool->arena);
    sb_str(&out, "{\"file\": ");
    json_quote(&out, path);
    sb_printf(&out, ", \"formatted\": %s", line ? "false" : "true");
    if (line) sb_printf(&out, ", \"line\": %d", line);
    sb_str(&out, "}\n");
    return tool_write(tool, "-", &out);
}

// *differs: the file is not in its form. False: reported.
static bool format_file(Tool *tool, const char *path, bool check, bool *differs) {
    FileText text;
    StrBuf out;
    bool standard = strcmp(path, "-") == 0;
    if (!file_read(tool->arena, tool->sink, path, SOURCE_LIMIT, &text) ||
        !syntax_check(tool->arena, tool->failure, tool->sink, standard ? "<stdin>" : path, text.text, text.length))
        return false;
    sb_init(&out, tool->arena);
    format_source(source_parse(tool->arena, text.text, (int)text.length), &out);
    *differs = out.length != text.length || memcmp(sb_text(&out), text.text, text.length) != 0;
    if (option_given(&tool->options, OPTION_JSON) && (check || !standard)) {
        if (*differs && !check && !tool_write(tool, path_canonical(tool->arena, path), &out)) return false;
        return tell(tool, path, *differs ? first_difference(text, &out) : 0);
    }
    if (check && *differs) printf("%s:%d: not formatted\n", path, first_difference(text, &out));
    if (check || (!*differs && !standard)) return true;
    return tool_product(tool, standard ? path : path_canonical(tool->arena, path), "", &out);
}

bool command_fmt(Tool *tool, int *code) {
    bool check = option_given(&tool->options, OPTION_CHECK), ok = true;
    FileNames names = {0};
    int count = tool->options.operands.count;
    for (int i = 0; i < count; i++)
        if (!files_named(tool->arena, tool->sink, tool->options.operands.items[i], ".tile", &names)) return false;
    if (count == 0) vec_push(tool->arena, &names, "-");
    for (int i = 0; i < names.count; i++) {
        bool differs = false;
        if (!format_file(tool, names.items[i], check, &differs)) ok = false;
        if (check && differs) *code = 1;
    }
    return ok;
}
