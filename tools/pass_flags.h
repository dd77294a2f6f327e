// The options for work on the compiler, as PassOptions.
#pragma once
#include "runtime/compile/compile.h"
#include "tools/tool.h"

// False: reported.
bool pass_flags(Tool *tool, PassOptions *out);
