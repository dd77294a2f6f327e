// Files are read as a whole, with a size limit, and written atomically.
#pragma once
#include "support/arena.h"
#include "support/diag.h"
#include "support/vec.h"
#include <stdbool.h>

// The size limit of source files; artefacts and tensors have none.
#define SOURCE_LIMIT ((int64_t)16 << 20)

typedef struct FileText {
    const char *text;   // zero-terminated; the terminator is not in `length`
    size_t length;
} FileText;

// Reads a file ("-": standard input) into the arena. `limit` 0: none. False: *why is the reason (in `arena`, or
// static). Never waits, and so takes no named pipe and no device but /dev/null; what the caller has opened (/dev/fd/N)
// is his.
bool file_load(Arena *arena, const char *path, int64_t limit, FileText *out, const char **why);
// As file_load; reports to the sink.
bool file_read(Arena *arena, DiagSink *sink, const char *path, int64_t limit, FileText *out);
// Writes a temporary file in the same folder and renames it, so that readers never see a partial file. "-": standard
// output. A device is written to, and a named pipe that something reads. False: reported.
bool file_write(Arena *arena, DiagSink *sink, const char *path, const void *data, size_t bytes);
// Whether file_write can write to `path`: a check before long work. False: reported.
bool file_can_write(Arena *arena, DiagSink *sink, const char *path);
// Waits for the lock of the folder that `path` lies in, and takes it; closing the result gives it back, and so does the
// end of the process. -1: there is no such lock there (some network file systems).
int folder_lock(Arena *arena, const char *path);
// Creates a folder unless it exists. False: reported.
bool folder_make(DiagSink *sink, const char *path);

typedef VEC(const char *) FileNames;
// Adds `path`, or, where it is a folder, the files in it and its subfolders whose names end in `ending`, in the order of
// their names. Links to folders are not followed. False: reported.
bool files_named(Arena *arena, DiagSink *sink, const char *path, const char *ending, FileNames *out);

// "dir/gemm.tile" -> "gemm"; of standard input "stdin"
char *path_stem(Arena *arena, const char *path);
// `path` relative to the folder of the file `from`.
char *path_beside(Arena *arena, const char *from, const char *path);
char *path_canonical(Arena *arena, const char *path);   // without links, . and ..; itself where there is no such file
bool path_is_within(const char *path, const char *folder);   // both canonical
bool path_is_regular(const char *path, const char **why);    // false: *why; a pipe or a device may never end
