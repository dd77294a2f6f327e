// Texts generated from the tables of commands and options.
#include "tools/options.h"
#include <ctype.h>
#include <string.h>

enum { WIDTH = 100, INDENT = 30 };

// `text` wrapped into lines, indented to column `indent`.
static void wrapped(const char *text, int indent, StrBuf *out) {
    int column = indent;
    for (const char *word = text; *word;) {
        int length = (int)strcspn(word, " ");
        if (column > indent && column + 1 + length > WIDTH) {
            sb_printf(out, "\n%*s", indent, "");
            column = indent;
        } else if (column > indent) {
            sb_char(out, ' ');
            column++;
        }
        sb_bytes(out, word, (size_t)length);
        column += length;
        word += length + (word[length] == ' ');
    }
    sb_char(out, '\n');
}

// "-o FILE, --output=FILE"
static void option_form(const OptionInfo *o, StrBuf *out) {
    if (o->letter) sb_printf(out, o->argument ? "-%c %s, " : "-%c%s, ", o->letter, o->argument ? o->argument : "");
    sb_printf(out, "--%s", o->name);
    if (o->argument) sb_printf(out, "=%s", o->argument);
}

static void option_help(const OptionInfo *o, StrBuf *out) {
    size_t start = out->length;
    sb_str(out, "  ");
    option_form(o, out);
    int column = (int)(out->length - start);
    if (column + 2 > INDENT) sb_printf(out, "\n%*s", INDENT, "");
    else sb_printf(out, "%*s", INDENT - column, "");
    wrapped(o->help, INDENT, out);
}

static bool takes(Command command, const OptionInfo *o, OptionGroup group) {
    return o->group == group && option_is_of(o, command);
}

static void options_of(Command command, OptionGroup group, const char *title, StrBuf *out) {
    bool any = false;
    for (int i = 0; i < OPTION_COUNT; i++) {
        if (!takes(command, &option_infos[i], group)) continue;
        if (!any) sb_printf(out, "\n%s:\n", title);
        any = true;
        option_help(&option_infos[i], out);
    }
}

void help_overview(StrBuf *out) {
    sb_str(out,
           "tilec: a compiler for GPU tile kernels\n\n"
           "  tilec FILE.tile -o FILE.cubin --target=sm_90a     compiles\n"
           "  tilec test FILE.tile                              runs the tests of a file on the CPU emulator\n"
           "  tilec opt FILE.tile --print-after=all             prints the program after each pass\n\nCommands:\n");
    for (int i = 0; i < COMMAND_COUNT; i++) {
        sb_printf(out, "  %-10s", command_infos[i].name);
        wrapped(command_infos[i].summary, 12, out);
    }
    sb_str(out, "\n`tilec COMMAND --help` lists the options of a command.\n"
                "Exit codes: 0 ok, 1 the source, an argument or a test is wrong, 2 usage, 3 environment,\n"
                "4 does not fit the target, 5 device fault, 70 internal error.\n");
}

void help_command(Command command, StrBuf *out) {
    const CommandInfo *info = &command_infos[command];
    sb_printf(out, "tilec %s %s\n  %s\n", info->name, info->operands, info->summary);
    options_of(command, GROUP_USER, "Options", out);
    options_of(command, GROUP_DEVELOPER, "For work on the compiler", out);
}

// ---- docs/reference/cli.md ----

static void markdown_options(Command command, OptionGroup group, StrBuf *out) {
    for (int i = 0; i < OPTION_COUNT; i++) {
        const OptionInfo *o = &option_infos[i];
        if (!takes(command, o, group)) continue;
        sb_str(out, "- `");
        option_form(o, out);
        sb_printf(out, "`: %s\n", o->help);
    }
}

void help_markdown(StrBuf *out) {
    sb_str(
        out,
        "# The command line\n\n<!-- Made by `tilec docs cli` from tools/commands.def and tools/options.def. -->\n\n"
        "`tilec FILE` stands for `tilec build FILE`. `-` is standard input or output. Results go to standard output or "
        "to files, which are written atomically; messages go to standard error.\n\n"
        "| exit code | meaning |\n|---|---|\n| 0 | ok |\n| 1 | the source, an argument or a test is wrong |\n| 2 | usage |\n"
        "| 3 | environment: a file, the assembler, the driver, memory |\n| 4 | does not fit the target |\n"
        "| 5 | device fault |\n| 70 | internal error |\n");
    for (int i = 0; i < COMMAND_COUNT; i++) {
        const CommandInfo *info = &command_infos[i];
        sb_printf(out, "\n## tilec %s%s%s\n\n%s\n\n", info->name, info->operands[0] ? " " : "", info->operands,
                  info->summary);
        markdown_options((Command)i, GROUP_USER, out);
        markdown_options((Command)i, GROUP_DEVELOPER, out);
    }
}

// ---- the manual, man(7) ----

static void roff_text(const char *text, StrBuf *out) {
    for (; *text; text++) {
        if (*text == '-') sb_str(out, "\\-");
        else if (*text == '\\') sb_str(out, "\\e");
        else if (*text != '`') sb_char(out, *text);
    }
}

static void manual_option(const OptionInfo *option, StrBuf *out) {
    StrBuf form;
    sb_init(&form, out->arena);
    option_form(option, &form);
    sb_str(out, ".TP\n.B ");
    roff_text(sb_text(&form), out);
    sb_char(out, '\n');
    roff_text(option->help, out);
    sb_char(out, '\n');
}

static void manual_synopsis(const CommandInfo *info, StrBuf *out) {
    sb_printf(out, ".B tilec %s\n[option...] ", info->name);
    roff_text(info->operands, out);
    sb_str(out, "\n.br\n");
}

static void manual_end(StrBuf *out) {
    sb_str(
        out,
        ".SH EXIT STATUS\n0 ok, 1 the source, an argument or a test is wrong, 2 usage, 3 environment, 4 does not fit the "
        "target, 5 device fault, 70 internal error.\n");
}

void help_manual(StrBuf *out) {
    sb_str(out, ".TH TILEC 1\n.SH NAME\ntilec \\- compiler for GPU tile kernels\n.SH SYNOPSIS\n");
    for (int i = 0; i < COMMAND_COUNT; i++) manual_synopsis(&command_infos[i], out);
    sb_str(out, ".SH COMMANDS\nEach command has a page of its own: tilec-build(1).\n");
    for (int i = 0; i < COMMAND_COUNT; i++) {
        sb_printf(out, ".TP\n.B %s\n", command_infos[i].name);
        roff_text(command_infos[i].summary, out);
        sb_char(out, '\n');
    }
    sb_str(out, ".SH OPTIONS\n");
    for (int i = 0; i < OPTION_COUNT; i++) manual_option(&option_infos[i], out);
    manual_end(out);
}

bool help_manual_of(const char *name, StrBuf *out) {
    int command = 0;
    while (command < COMMAND_COUNT && strcmp(command_infos[command].name, name) != 0) command++;
    if (command == COMMAND_COUNT) return false;
    const CommandInfo *info = &command_infos[command];
    sb_str(out, ".TH TILEC-");
    for (const char *at = name; *at; at++) sb_char(out, (char)toupper((unsigned char)*at));
    sb_printf(out, " 1\n.SH NAME\ntilec-%s \\- ", name);
    roff_text(info->summary, out);
    sb_str(out, "\n.SH SYNOPSIS\n");
    manual_synopsis(info, out);
    sb_str(out, ".SH OPTIONS\n");
    for (int i = 0; i < OPTION_COUNT; i++)
        if (option_is_of(&option_infos[i], (Command)command)) manual_option(&option_infos[i], out);
    manual_end(out);
    return true;
}
