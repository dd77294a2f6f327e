// One PTX text of several: what stands at the head of a text and what it declares of the outside once, source files with one
// numbering. Labels need nothing, since they are their functions' own; other names are told apart by whoever made them.
//
//     .version .target .address_size               the head: the first text's
//     .extern .shared ... shared$[];               outside: once; a function's declaration ends with a line ";"
//     .visible .entry ... { ... .loc 1 2 3 ... }   as it is, but for the number of the file
//     .section .debug_macinfo { }  .file 1 "..."   the tail: once
#include "codegen/gen.h"
#include "support/strbuf.h"
#include "support/vec.h"
#include <stdlib.h>
#include <string.h>

typedef struct Join {
    Arena *arena;
    StrBuf body, directives;   // directives: of files
    StrMap *outside;           // declarations that are there
    VEC(char *) files;         // `"path"` as quoted, by number - 1
    VEC(int) numbers;          // of the text in work: its number of a file - 1 -> ours
    const char *section;
} Join;

static bool starts(const char *line, const char *with) {
    return strncmp(line, with, strlen(with)) == 0;
}

static size_t line_length(const char *line) {
    const char *end = strchr(line, '\n');
    return end ? (size_t)(end - line) + 1 : strlen(line);
}

static int file_number(Join *join, char *path) {
    for (int i = 0; i < join->files.count; i++)
        if (strcmp(join->files.items[i], path) == 0) return i + 1;
    vec_push(join->arena, &join->files, path);
    sb_printf(&join->directives, "\t.file\t%d %s\n", join->files.count, path);
    return join->files.count;
}

// The files of a text stand at its end, and are needed before.
static void read_files(Join *join, const char *text) {
    static const char mark[] = "\n\t.file\t";
    join->numbers.count = 0;
    for (const char *at = strstr(text, mark); at; at = strstr(at + 1, mark)) {
        char *path;
        long number = strtol(at + strlen(mark), &path, 10);
        if (number < 1) continue;   // DWARF 5's name of the unit, which no place says
        path += strspn(path, " ");
        while (join->numbers.count < number) vec_push(join->arena, &join->numbers, 0);
        join->numbers.items[number - 1] = file_number(join, arena_strndup(join->arena, path, strcspn(path, "\n")));
    }
}

// "\t.loc\t1 2 3"
static void add_place(Join *join, const char *line, size_t length) {
    static const char mark[] = "\t.loc\t";
    char *rest;
    long number = strtol(line + strlen(mark), &rest, 10);
    bool known = number > 0 && number <= join->numbers.count;
    sb_printf(&join->body, "%s%d", mark, known ? join->numbers.items[number - 1] : (int)number);
    sb_bytes(&join->body, rest, length - (size_t)(rest - line));
}

// A declaration, to its end: of a variable the line, of a function all until ";". Its length.
static size_t add_outside(Join *join, const char *line, size_t length) {
    if (starts(line, ".extern .func")) {
        const char *end = strstr(line, "\n;\n");
        if (end) length = (size_t)(end - line) + 3;
    }
    if (line[length] == '\n') length++;   // the empty line behind it
    char *text = arena_strndup(join->arena, line, length);
    if (!strmap_has(join->outside, text)) sb_str(&join->body, text);
    strmap_put(join->outside, text, text);
    return length;
}

static void add_text(Join *join, const char *text, bool first) {
    static const char last_of_head[] = ".address_size 64\n\n";
    const char *body = strstr(text, last_of_head);
    body = body ? body + strlen(last_of_head) : text;
    if (first) sb_bytes(&join->body, text, (size_t)(body - text));
    read_files(join, text);
    size_t length;
    for (const char *line = body; *line; line += length) {
        length = line_length(line);
        if (starts(line, "\t.loc\t")) add_place(join, line, length);
        else if (starts(line, ".extern ")) length = add_outside(join, line, length);
        else if (starts(line, "\t.section\t")) join->section = arena_strndup(join->arena, line, length);
        else if (starts(line, "\t.file\t")) continue;
        else sb_bytes(&join->body, line, length);
    }
}

const char *join_ptx(Arena *arena, int count, const Unit *units) {
    if (count == 1) return units[0].ptx;
    Join join = {.arena = arena, .outside = strmap_new(arena)};
    sb_init(&join.body, arena);
    sb_init(&join.directives, arena);
    for (int i = 0; i < count; i++) add_text(&join, units[i].ptx, i == 0);
    if (join.section) sb_str(&join.body, join.section);
    sb_str(&join.body, sb_text(&join.directives));
    return sb_text(&join.body);
}
