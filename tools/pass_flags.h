// The options for work on the compiler, as PassOptions.
#pragma once
#include "runtime/compile/compile.h"
#include "tools/tool.h"

// False: reported.
bool pass_flags(Tool *tool, PassOptions *out);
// FOLDER/NAME of reproducers for a file: --repro-dir, else TILEC_REPRO_DIR, else the working directory; NULL: `none`.
const char *repro_base(Tool *tool, const char *path);
