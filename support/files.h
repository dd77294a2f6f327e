// Files as the compiler wants them: read whole with a limit, written whole or not at all.
#pragma once
#include "support/arena.h"
#include "support/diag.h"
#include <stdbool.h>

// Most bytes of a source file that are read; artefacts and tensors may be larger.
#define SOURCE_LIMIT ((int64_t)16 << 20)

typedef struct FileText {
    const char *text;   // terminated by a zero byte that does not count
    size_t length;
} FileText;

// Reads a file ("-": standard input) into the arena. `limit` 0: no limit. False: *why says why (in `arena`, or static).
bool file_load(Arena *arena, const char *path, int64_t limit, FileText *out, const char **why);
// As file_load; reports to the sink.
bool file_read(Arena *arena, DiagSink *sink, const char *path, int64_t limit, FileText *out);
// Writes a file under a temporary name beside it and renames it, so that a reader never sees half of it. "-": standard
// output. False: reported.
bool file_write(Arena *arena, DiagSink *sink, const char *path, const void *data, size_t bytes);
// Whether file_write could write there now, for whoever has long work before it. False: reported.
bool file_can_write(Arena *arena, DiagSink *sink, const char *path);
// Makes a folder unless it is there. False: reported.
bool folder_make(DiagSink *sink, const char *path);

// "dir/gemm.tile" -> "gemm"
char *path_stem(Arena *arena, const char *path);
// `path` as seen from the folder of the file `from`.
char *path_beside(Arena *arena, const char *from, const char *path);
