// The tables commands.def and options.def as data, and the parsed command line.
#pragma once
#include "support/diag.h"
#include "support/vec.h"
#include <stdbool.h>
#include <stdint.h>

typedef enum {
#define COMMAND(NAME, text, operands, summary) COMMAND_##NAME,
#include "tools/commands.def"
#undef COMMAND
    COMMAND_COUNT,
    // Commands that tilec-gpu lacks have numbers too, for the table of options.
    COMMAND_LACKING = 16,
#ifdef TILEC_NO_CODEGEN
    COMMAND_BUILD = COMMAND_LACKING,
    COMMAND_OPT,
    COMMAND_PASSES,
    COMMAND_TUNE,
    COMMAND_LSP,
#endif
} Command;

typedef enum {
#define OPTION(NAME, text, letter, argument, values, commands, group, help) OPTION_##NAME,
#include "tools/options.def"
#undef OPTION
    OPTION_COUNT
} OptionId;

typedef enum { GROUP_USER, GROUP_DEVELOPER } OptionGroup;

typedef struct CommandInfo {
    const char *name, *operands, *summary;
} CommandInfo;

// Values that a command of tilec lists, as the first word of a line.
#define VALUES_TARGETS "tilec targets"
#define VALUES_PASSES "tilec passes"

typedef struct OptionInfo {
    const char *name;
    char letter;            // 0: none
    const char *argument;   // NULL: a flag
    const char *values;     // the words that it is one of; NULL: any text
    unsigned commands;      // one bit per Command
    OptionGroup group;
    const char *help;
} OptionInfo;

static inline bool option_is_of(const OptionInfo *option, Command command) {
    return option->commands >> command & 1;
}

extern const CommandInfo command_infos[COMMAND_COUNT];
extern const OptionInfo option_infos[OPTION_COUNT];

typedef struct GivenOption {
    OptionId id;
    const char *value;
} GivenOption;

typedef struct Options {
    Command command;
    bool named;               // the command was given; else it is the default
    VEC(GivenOption) given;   // in order
    VEC(const char *) operands;
} Options;

// Reads a command line; @FILE stands for the words in a file. False: reported.
bool options_parse(Arena *arena, DiagSink *sink, int argc, char **argv, Options *out);

bool option_given(const Options *options, OptionId id);
// -v or an option for work on the compiler: it shows how a result comes about, so a kept one does not do.
bool options_look_inside(const Options *options);
const char *option_text(const Options *options, OptionId id, const char *otherwise);   // the last value given
// A number in low..high. False: reported.
bool option_number(const Options *options, DiagSink *sink, OptionId id, int64_t low, int64_t high, int64_t *value);
bool option_read_number(DiagSink *sink, OptionId id, const char *text, int64_t low, int64_t high, int64_t *value);
// The index of the value in the option's values; `otherwise`: the default; -1: reported.
int option_choice(const Options *options, DiagSink *sink, OptionId id, int otherwise);

// ---- derived texts (help.c) ----
void help_overview(StrBuf *out);
void help_command(Command command, StrBuf *out);
void help_markdown(StrBuf *out);                         // docs/reference/cli.md
void help_manual(StrBuf *out);                           // tilec.1, in mdoc's older cousin man(7)
bool help_manual_of(const char *command, StrBuf *out);   // tilec-COMMAND.1; false: there is no such command
// completion.c: completion for shells
void help_bash(StrBuf *out);
void help_zsh(StrBuf *out);
void help_fish(StrBuf *out);
