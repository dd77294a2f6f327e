// The command that explains diagnostics: the table's row, then the page of docs/reference/diagnostics, wrapped for a terminal.
#include "tools/explain.h"
#include "support/json.h"
#include "tools/tool.h"
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 80 };

// Without its title, which says what the row does.
static const char *page_text(int number) {
    char code[16];
    snprintf(code, sizeof code, "T%04d", number);
    for (const DiagnosticPage *page = DIAGNOSTIC_PAGES; page->code; page++)
        if (strcmp(page->code, code) == 0) return strchr(page->text, '\n') + 1;
    return "";
}

// Prints the words of a line of a paragraph from a column on; returns the column behind them.
static int print_words(const char *at, const char *end, int column) {
    while (at < end) {
        const char *space = memchr(at, ' ', (size_t)(end - at));
        int length = (int)((space ? space : end) - at);
        bool fits = column + 1 + length <= WIDTH;
        if (column) putchar(fits ? ' ' : '\n');
        column = (column && fits ? column + 1 : 0) + length;
        printf("%.*s", length, at);
        at += length + 1;
    }
    return column;
}

// Paragraphs are filled, and code is indented instead of fenced.
static void print_page(const char *text) {
    bool in_code = false;
    int column = 0;
    for (const char *end; *text; text = end + (*end != 0)) {
        end = strchrnul(text, '\n');
        bool fence = strncmp(text, "```", 3) == 0, filled = !in_code && !fence && end > text;
        if (column && (!filled || strncmp(text, "- ", 2) == 0)) putchar('\n'), column = 0;
        if (filled) column = print_words(text, end, column);
        else if (!fence) printf("%s%.*s\n", end > text ? "    " : "", (int)(end - text), text);
        in_code ^= fence;
    }
    if (column) putchar('\n');
}

// `page` is markdown.
static bool explain_json(Tool *tool, int number, const DiagExplanation *row, const char *page) {
    const char *const members[][2] = {
        {"severity", row->severity}, {"message", row->message}, {"remedy", row->remedy}, {"page", page}};
    StrBuf out;
    sb_init(&out, tool->arena);
    sb_printf(&out, "{\"code\": \"T%04d\"", number);
    for (int i = 0; i < COUNT_OF(members); i++) {
        sb_printf(&out, ", \"%s\": ", members[i][0]);
        json_quote(&out, members[i][1]);
    }
    sb_str(&out, "}\n");
    return tool_write(tool, "-", &out);
}

static bool explain(Tool *tool, int number) {
    DiagExplanation row;
    if (!diag_explain(number, tool->arena, &row)) return false;
    const char *page = page_text(number);
    if (option_given(&tool->options, OPTION_JSON)) return explain_json(tool, number, &row, page);
    printf("T%04d (%s): %s\n%s\n", number, row.severity, row.message, row.remedy);
    print_page(page);
    printf("\n");
    return true;
}

// "T0201", "t201" or "201"
bool command_explain(Tool *tool, int *code) {
    (void)code;
    if (tool->options.operands.count == 0) return tool_usage(tool, "give a code, as in `tilec explain T0201`");
    bool ok = true;
    for (int i = 0; i < tool->options.operands.count; i++) {
        const char *word = tool->options.operands.items[i], *digits = word + (word[0] == 'T' || word[0] == 't');
        char *end;
        long number = strtol(digits, &end, 10);
        bool known = end != digits && *end == 0 && explain(tool, (int)number);
        if (!known) diag(tool->sink, (Span){0}, T_UNKNOWN_CODE, word);
        ok = ok && known;
    }
    return ok;
}
