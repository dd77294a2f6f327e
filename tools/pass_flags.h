// The options for work on the compiler, as PassOptions.
#pragma once
#include "runtime/compile/compile.h"
#include "tools/tool.h"

// Adds the options to those of compile_options. False: reported.
bool pass_flags(Tool *tool, PassOptions *out);
// The folder of reproducers: --repro-dir, else TILEC_REPRO_DIR, else the working directory; NULL: `none`.
const char *repro_folder(Tool *tool);
// FOLDER/NAME of reproducers for a file.
const char *repro_base(Tool *tool, const char *path);
