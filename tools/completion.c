// Completion for shells, from the tables of commands and options: commands, options of a command, values of an option.
#include "tools/options.h"
#include <string.h>

static bool lists_values(const OptionInfo *option) {
    return option->values && strncmp(option->values, "tilec ", 6) == 0;
}

static bool takes_list(const OptionInfo *option) {   // "NAME,...": values may follow one another
    return option->argument && strchr(option->argument, ',');
}

// The values as words of a shell.
static void put_values(const OptionInfo *option, const char *open, StrBuf *out) {
    if (lists_values(option)) sb_printf(out, "%s%s | awk '$1 != \"target\" { print $1 }')", open, option->values);
    else sb_str(out, option->values);
}

// Operands that are words: those of "stat|verify|clear|path" and "cli|man [COMMAND]|bash", none of "FILE|FOLDER...".
static void put_operands(Command command, StrBuf *out) {
    for (const char *at = command_infos[command].operands; *at; at += strcspn(at, "|"), at += *at == '|') {
        size_t length = strspn(at, "abcdefghijklmnopqrstuvwxyz");
        if (length) sb_char(out, ' '), sb_bytes(out, at, length);
    }
}

// A text in single quotes. `escaped`: bytes that the shell's notation has a backslash before.
static void put_quoted(const char *text, const char *escaped, StrBuf *out) {
    sb_char(out, '\'');
    for (; *text; text++) {
        if (*text == '\'') sb_str(out, "'\\''");
        else if (strchr(escaped, *text)) sb_printf(out, "\\%c", *text);
        else sb_char(out, *text);
    }
    sb_char(out, '\'');
}

// ---- bash ----
static void bash_options(Command command, StrBuf *out) {
    sb_printf(out, "    %s) words=\"", command_infos[command].name);
    for (int o = 0; o < OPTION_COUNT; o++)
        if (option_is_of(&option_infos[o], command))
            sb_printf(out, " --%s%s", option_infos[o].name, option_infos[o].argument ? "=" : "");
    put_operands(command, out);
    sb_str(out, "\" ;;\n");
}

// Bash splits at '=': the option is a word of its own, the sign the next one.
void help_bash(StrBuf *out) {
    sb_str(out, "# Completion of tilec for bash; made by `tilec docs bash`.\n_tilec() {\n"
                "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} option= words= front=\n"
                "    if [ \"$word\" = = ]; then option=$before word=\n"
                "    elif [ \"$before\" = = ]; then option=${COMP_WORDS[COMP_CWORD-2]}; fi\n"
                "    case $option in\n");
    for (int o = 0; o < OPTION_COUNT; o++) {
        const OptionInfo *option = &option_infos[o];
        if (!option->values) continue;
        sb_printf(out, "    --%s) words=\"", option->name);
        put_values(option, "$(", out);
        sb_str(out, "\"");
        if (takes_list(option)) sb_str(out, "; case $word in *,*) front=${word%,*}, word=${word##*,} ;; esac");
        sb_str(out, " ;;\n");
    }
    sb_str(
        out,
        "    esac\n"
        "    if [ -n \"$words\" ]; then COMPREPLY=($(compgen -P \"$front\" -W \"$words\" -- \"$word\")); return; fi\n"
        "    if [ -n \"$option\" ]; then COMPREPLY=($(compgen -f -- \"$word\")); return; fi\n"
        "    case ${COMP_WORDS[1]} in\n");
    for (int i = 0; i < COMMAND_COUNT; i++) bash_options((Command)i, out);
    sb_str(out, "    esac\n    if [ \"$COMP_CWORD\" -eq 1 ]; then words=\"");
    for (int i = 0; i < COMMAND_COUNT; i++) sb_printf(out, "%s%s", i ? " " : "", command_infos[i].name);
    sb_str(out, "\"; fi\n    COMPREPLY=($(compgen -W \"$words\" -- \"$word\") $(compgen -f -- \"$word\"))\n}\n"
                "complete -o nospace -F _tilec tilec\n");
}

// ---- zsh ----
static void zsh_option(const OptionInfo *option, StrBuf *out) {
    StrBuf spec;
    sb_init(&spec, out->arena);
    sb_printf(&spec, "--%s%s[", option->name, option->argument ? "=" : "");
    for (const char *at = option->help; *at && *at != '.' && *at != ';'; at++)
        if (!strchr("[]`:", *at)) sb_char(&spec, *at);
    sb_char(&spec, ']');
    if (option->argument) sb_printf(&spec, ":%s:", option->argument);
    if (option->values) {   // braces: evaluated when it is asked for
        sb_str(&spec, takes_list(option) ? "{_sequence compadd - " : "{compadd - ");
        put_values(option, "$(", &spec);
        sb_char(&spec, '}');
    } else if (option->argument) {
        sb_str(&spec, "_files");
    }
    sb_str(out, " \\\n            ");
    put_quoted(sb_text(&spec), "", out);
}

void help_zsh(StrBuf *out) {
    sb_str(out, "#compdef tilec\n# Completion of tilec for zsh; made by `tilec docs zsh`.\n_tilec() {\n"
                "    local -a commands\n    commands=(");
    for (int i = 0; i < COMMAND_COUNT; i++) {
        sb_str(out, "\n        ");
        put_quoted(arena_printf(out->arena, "%s:%s", command_infos[i].name, command_infos[i].summary), "", out);
    }
    sb_str(
        out,
        ")\n    if (( CURRENT == 2 )); then _describe command commands; _files; return; fi\n    case $words[2] in\n");
    for (int i = 0; i < COMMAND_COUNT; i++) {
        sb_printf(out, "    %s) _arguments", command_infos[i].name);
        for (int o = 0; o < OPTION_COUNT; o++)
            if (option_is_of(&option_infos[o], (Command)i)) zsh_option(&option_infos[o], out);
        StrBuf words;
        sb_init(&words, out->arena);
        put_operands((Command)i, &words);
        if (words.length) sb_printf(out, " \\\n            '2:what:(%s)' ;;\n", sb_text(&words) + 1);
        else sb_str(out, " \\\n            '*:file:_files' ;;\n");
    }
    sb_str(out, "    *) _files ;;\n    esac\n}\n_tilec \"$@\"\n");
}

// ---- fish ----
static void fish_option(const OptionInfo *option, StrBuf *out) {
    sb_str(out, "complete -c tilec -n '__fish_seen_subcommand_from");
    for (int i = 0; i < COMMAND_COUNT; i++)
        if (option_is_of(option, (Command)i)) sb_printf(out, " %s", command_infos[i].name);
    sb_printf(out, "' -l %s", option->name);
    if (option->letter) sb_printf(out, " -s %c", option->letter);
    if (option->argument) sb_str(out, option->values ? " -x" : " -r");
    if (option->values) {
        StrBuf values;
        sb_init(&values, out->arena);
        put_values(option, "(", &values);
        sb_str(out, " -a ");
        put_quoted(sb_text(&values), "", out);
    }
    sb_str(out, " -d ");
    put_quoted(arena_strndup(out->arena, option->help, strcspn(option->help, ".;")), "\\", out);
    sb_char(out, '\n');
}

static void fish_operands(Command command, StrBuf *out) {
    StrBuf words;
    sb_init(&words, out->arena);
    put_operands(command, &words);
    if (!words.length) return;
    sb_printf(out, "complete -c tilec -f -n '__fish_seen_subcommand_from %s' -a '%s'\n", command_infos[command].name,
              sb_text(&words) + 1);
}

void help_fish(StrBuf *out) {
    sb_str(out, "# Completion of tilec for fish; made by `tilec docs fish`.\n");
    for (int i = 0; i < COMMAND_COUNT; i++) {
        sb_printf(out, "complete -c tilec -n __fish_use_subcommand -a %s -d ", command_infos[i].name);
        put_quoted(command_infos[i].summary, "\\", out);
        sb_char(out, '\n');
        fish_operands((Command)i, out);
    }
    for (int o = 0; o < OPTION_COUNT; o++) fish_option(&option_infos[o], out);
}
