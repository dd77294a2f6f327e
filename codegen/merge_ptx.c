// Merges PTX texts: one head, external declarations without duplicates, one numbering of source files. Labels are local
// to functions; other names already differ between units (string_constant, kernel_symbol).
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

typedef struct Merge {
    Arena *arena;
    StrBuf body, directives;   // directives: of files
    StrMap *outside;           // declarations that are there
    VEC(char *) files;         // `"path"` as quoted, by number - 1
    VEC(int) numbers;          // of the text in work: its number of a file - 1 -> ours
    const char *section;
} Merge;

static bool starts(const char *line, const char *with) {
    return strncmp(line, with, strlen(with)) == 0;
}

static size_t line_length(const char *line) {
    const char *end = strchr(line, '\n');
    return end ? (size_t)(end - line) + 1 : strlen(line);
}

// ptxas copies a file's time and size into the line table, and asks the file system for what the directive leaves out:
// two builds of one source would differ.
static const char stamp[] = ", 1, 1";

static int file_number(Merge *merge, char *path) {
    for (int i = 0; i < merge->files.count; i++)
        if (strcmp(merge->files.items[i], path) == 0) return i + 1;
    vec_push(merge->arena, &merge->files, path);
    sb_printf(&merge->directives, "\t.file\t%d %s%s\n", merge->files.count, path, stamp);
    return merge->files.count;
}

// The .file directives stand at the end of a text; the .loc directives before use their numbers.
static void read_files(Merge *merge, const char *text) {
    static const char mark[] = "\n\t.file\t";
    merge->numbers.count = 0;
    for (const char *at = strstr(text, mark); at; at = strstr(at + 1, mark)) {
        char *path;
        long number = strtol(at + strlen(mark), &path, 10);
        if (number < 1) continue;   // DWARF 5's name of the unit, which no place says
        path += strspn(path, " ");
        while (merge->numbers.count < number) vec_push(merge->arena, &merge->numbers, 0);
        merge->numbers.items[number - 1] = file_number(merge, arena_strndup(merge->arena, path, strcspn(path, "\n")));
    }
}

// "\t.loc\t1 2 3"
static void add_place(Merge *merge, const char *line, size_t length) {
    static const char mark[] = "\t.loc\t";
    char *rest;
    long number = strtol(line + strlen(mark), &rest, 10);
    bool known = number > 0 && number <= merge->numbers.count;
    sb_printf(&merge->body, "%s%d", mark, known ? merge->numbers.items[number - 1] : (int)number);
    sb_bytes(&merge->body, rest, length - (size_t)(rest - line));
}

// A declaration, to its end: of a variable the line, of a function all until ";". Its length.
static size_t add_outside(Merge *merge, const char *line, size_t length) {
    if (starts(line, ".extern .func")) {
        const char *end = strstr(line, "\n;\n");
        if (end) length = (size_t)(end - line) + 3;
    }
    if (line[length] == '\n') length++;   // the empty line behind it
    char *text = arena_strndup(merge->arena, line, length);
    if (!strmap_has(merge->outside, text)) sb_str(&merge->body, text);
    strmap_put(merge->outside, text, text);
    return length;
}

static void add_text(Merge *merge, const char *text, bool first) {
    static const char last_of_head[] = ".address_size 64\n\n";
    const char *body = strstr(text, last_of_head);
    body = body ? body + strlen(last_of_head) : text;
    if (first) sb_bytes(&merge->body, text, (size_t)(body - text));
    read_files(merge, text);
    size_t length;
    for (const char *line = body; *line; line += length) {
        length = line_length(line);
        if (starts(line, "\t.loc\t")) add_place(merge, line, length);
        else if (starts(line, ".extern ")) length = add_outside(merge, line, length);
        else if (starts(line, "\t.section\t")) merge->section = arena_strndup(merge->arena, line, length);
        else if (starts(line, "\t.file\t")) continue;
        else sb_bytes(&merge->body, line, length);
    }
}

const char *merge_ptx(Arena *arena, int count, const Unit *units) {
    Merge merge = {.arena = arena, .outside = strmap_new(arena)};
    sb_init(&merge.body, arena);
    sb_init(&merge.directives, arena);
    for (int i = 0; i < count; i++) add_text(&merge, units[i].ptx, i == 0);
    if (merge.section) sb_str(&merge.body, merge.section);
    sb_str(&merge.body, sb_text(&merge.directives));
    return sb_text(&merge.body);
}
