// Running CUDA's programs (ptxas, nvdisasm) from a library: no shell, no state of the process changed.
#pragma once
#include "support/arena.h"
#include "support/strbuf.h"
#include <stdbool.h>

// In PATH, then in CUDA's usual folders; NULL: not there. With CUDA_HOME or CUDA_PATH set, only these of the folders.
const char *find_program(Arena *arena, const char *name);

// Runs the program at `path` with `arguments` (ended by NULL, the first is the program) and waits for it; all that it writes is
// added to `text`. NULL, and *ok says whether it ended with 0; else why it could not be started.
const char *run_program(Arena *arena, const char *path, char *const *arguments, StrBuf *text, bool *ok);

// A folder of its own below TMPDIR; NULL: errno says why.
char *make_temporary_folder(Arena *arena);
bool write_whole_file(const char *path, const void *data, size_t size);
