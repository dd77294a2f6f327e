#include "tools/options.h"
#include "support/files.h"
#include "support/map.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const Span NOWHERE;

const CommandInfo command_infos[] = {
#define COMMAND(NAME, text, operands, summary) [COMMAND_##NAME] = {text, operands, summary},
#include "tools/commands.def"
#undef COMMAND
};

enum {   // the words of options.def's column `commands`
    BUILD = 1 << COMMAND_BUILD,
    TEST = 1 << COMMAND_TEST,
    RUN = 1 << COMMAND_RUN,
    BENCH = 1 << COMMAND_BENCH,
    TUNE = 1 << COMMAND_TUNE,
    OPT = 1 << COMMAND_OPT,
    REDUCE = 1 << COMMAND_REDUCE,
    DOCTOR = 1 << COMMAND_DOCTOR,
    FMT = 1 << COMMAND_FMT,
    LAYOUT = 1 << COMMAND_LAYOUT,
    LSP = 1 << COMMAND_LSP,
    TARGETS = 1 << COMMAND_TARGETS,
    PASSES = 1 << COMMAND_PASSES,
    CACHE = 1 << COMMAND_CACHE,
    ALL = ~0,
};

const OptionInfo option_infos[] = {
#define OPTION(NAME, text, letter, argument, values, commands, group, help)                                            \
    [OPTION_##NAME] = {text, letter, argument, values, (unsigned)(commands), GROUP_##group, help},
#include "tools/options.def"
#undef OPTION
};

typedef struct Parser {
    Arena *arena;
    DiagSink *sink;
    Options *out;
    int argc, at;
    char **argv;
} Parser;

static bool applies(const Parser *p, int id) {
    return option_is_of(&option_infos[id], p->out->command);
}

static bool unknown_option(Parser *p, const char *text) {
    StrMap *names = strmap_new(p->arena);
    for (int i = 0; i < OPTION_COUNT; i++)
        if (applies(p, i)) strmap_put(names, arena_printf(p->arena, "--%s", option_infos[i].name), "");
    diag_suggest(diag(p->sink, NOWHERE, T_UNKNOWN_OPTION, text), NOWHERE, strmap_nearest(names, text));
    return false;
}

static bool give(Parser *p, int id, const char *value) {
    GivenOption given = {(OptionId)id, value};
    vec_push(p->arena, &p->out->given, given);
    return true;
}

// The option's argument, when it is not attached: the next word.
static bool give_next(Parser *p, int id, const char *text) {
    if (p->at + 1 >= p->argc) {
        diag(p->sink, NOWHERE, T_OPTION_ARGUMENT, text, "needs an argument");
        return false;
    }
    return give(p, id, p->argv[++p->at]);
}

static bool parse_long(Parser *p, const char *text) {
    const char *equals = strchr(text, '=');
    size_t length = equals ? (size_t)(equals - text) : strlen(text);
    for (int i = 0; i < OPTION_COUNT; i++) {
        const OptionInfo *info = &option_infos[i];
        if (!applies(p, i) || strlen(info->name) + 2 != length || memcmp(info->name, text + 2, length - 2)) continue;
        if (info->argument) return equals ? give(p, i, equals + 1) : give_next(p, i, text);
        if (!equals) return give(p, i, "");
        diag(p->sink, NOWHERE, T_OPTION_ARGUMENT, arena_strndup(p->arena, text, length), "takes no argument");
        return false;
    }
    return unknown_option(p, arena_strndup(p->arena, text, length));
}

// -v, -o FILE, -oFILE, -O2
static bool parse_short(Parser *p, const char *text) {
    for (int i = 0; i < OPTION_COUNT; i++) {
        const OptionInfo *info = &option_infos[i];
        if (!applies(p, i) || info->letter != text[1]) continue;
        if (!info->argument && text[2] == 0) return give(p, i, "");
        if (!info->argument) break;
        return text[2] ? give(p, i, text + 2) : give_next(p, i, text);
    }
    return unknown_option(p, text);
}

// The first word if it names a command; else `build`, and the word is its file. `help` stands for --help.
static bool find_command(Parser *p) {
    Options *out = p->out;
    StrMap *names = strmap_new(p->arena);
    const char *word = p->at < p->argc ? p->argv[p->at] : "--help";
    out->command = COMMAND_BUILD < COMMAND_COUNT ? COMMAND_BUILD : COMMAND_TEST;
    if (word[0] == '-' && strcmp(word, "-") != 0) return true;
    if (strcmp(word, "help") == 0) {
        p->at++;
        return give(p, OPTION_HELP, "") && find_command(p);
    }
    for (int i = 0; i < COMMAND_COUNT; i++) {
        strmap_put(names, command_infos[i].name, "");
        if (strcmp(word, command_infos[i].name) != 0) continue;
        out->command = (Command)i;
        out->named = true;
        p->at++;
        return true;
    }
    if (strcmp(word, "-") == 0 || strpbrk(word, "./") || access(word, F_OK) == 0) return true;
    Diag *d = diag(p->sink, NOWHERE, T_UNKNOWN_COMMAND, word);
    const char *near = strmap_nearest(names, word);
    if (near) diag_note(d, "did you mean `tilec %s`?", near);
    return false;
}

// ---- response files ----

typedef VEC(char *) Words;

// The next word of a response file: blanks end it, but in quotes; a backslash takes the next character as it is.
static const char *next_word(Arena *arena, const char *at, Words *out) {
    StrBuf word;
    char quote = 0;
    sb_init(&word, arena);
    at += strspn(at, " \t\r\n");
    if (!*at) return at;
    for (; *at && (quote || !strchr(" \t\r\n", *at)); at++) {
        if (*at == '\\' && at[1] && quote != '\'') sb_char(&word, *++at);
        else if (*at == quote) quote = 0;
        else if (!quote && (*at == '"' || *at == '\'')) quote = *at;
        else sb_char(&word, *at);
    }
    vec_push(arena, out, (char *)sb_text(&word));
    return at;
}

// The words, with those of FILE in the place of @FILE: before a `--`, where there is such a file. They are not looked at again.
static Words expand(Arena *arena, int argc, char **argv) {
    Words out = {0};
    bool plain = argc > 1 && strcmp(argv[1], command_infos[COMMAND_LAYOUT].name) == 0;
    for (int i = 0; i < argc; i++) {
        FileText file;
        const char *why;
        plain |= strcmp(argv[i], "--") == 0;
        if (plain || argv[i][0] != '@' || !file_load(arena, argv[i] + 1, SOURCE_LIMIT, &file, &why))
            vec_push(arena, &out, argv[i]);
        else
            for (const char *at = file.text; *at;) at = next_word(arena, at, &out);
    }
    return out;
}

bool options_parse(Arena *arena, DiagSink *sink, int argc, char **argv, Options *out) {
    *out = (Options){0};
    Words words = expand(arena, argc, argv);
    Parser p = {.arena = arena, .sink = sink, .out = out, .argc = words.count, .at = 1, .argv = words.items};
    if (!find_command(&p)) return false;
    bool only_operands = out->command == COMMAND_LAYOUT;   // the calculator parses its own options
    for (; p.at < p.argc; p.at++) {
        const char *word = p.argv[p.at];
        bool operand = only_operands || word[0] != '-' || word[1] == 0;
        if (!operand && strcmp(word, "--") == 0) only_operands = true;
        else if (operand) vec_push(arena, &out->operands, word);
        else if (word[1] == '-' ? !parse_long(&p, word) : !parse_short(&p, word)) return false;
    }
    return true;
}

bool option_given(const Options *options, OptionId id) {
    return option_text(options, id, NULL) != NULL;
}

bool options_look_inside(const Options *options) {
    VEC_EACH (GivenOption, given, &options->given)
        if (given->id == OPTION_VERBOSE || option_infos[given->id].group == GROUP_DEVELOPER) return true;
    return false;
}

const char *option_text(const Options *options, OptionId id, const char *otherwise) {
    for (int i = options->given.count - 1; i >= 0; i--)
        if (options->given.items[i].id == id) return options->given.items[i].value;
    return otherwise;
}

bool option_number(const Options *options, DiagSink *sink, OptionId id, int64_t low, int64_t high, int64_t *value) {
    const char *text = option_text(options, id, NULL);
    return !text || option_read_number(sink, id, text, low, high, value);
}

bool option_read_number(DiagSink *sink, OptionId id, const char *text, int64_t low, int64_t high, int64_t *value) {
    char *end, want[96];
    errno = 0;
    long long number = strtoll(text, &end, 10);
    bool begins = text[0] == '-' || (text[0] >= '0' && text[0] <= '9');   // strtoll skips blanks
    if (begins && end != text && *end == 0 && errno == 0 && number >= low && number <= high) {
        *value = number;
        return true;
    }
    snprintf(want, sizeof want, "a number from %lld to %lld", (long long)low, (long long)high);
    diag(sink, NOWHERE, T_OPTION_VALUE, option_infos[id].name, text, want);
    return false;
}

int option_choice(const Options *options, DiagSink *sink, OptionId id, int otherwise) {
    const char *text = option_text(options, id, NULL), *words = option_infos[id].values;
    if (!text) return otherwise;
    int index = 0;
    for (const char *word = words; *word; index++) {
        size_t length = strcspn(word, " ");
        if (strlen(text) == length && memcmp(text, word, length) == 0) return index;
        word += length + (word[length] == ' ');
    }
    char want[96];
    snprintf(want, sizeof want, "one of %s", words);
    diag(sink, NOWHERE, T_OPTION_VALUE, option_infos[id].name, text, want);
    return -1;
}
