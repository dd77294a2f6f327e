// What run, bench and tune work on: a kernel or program of a file, with arguments made from NAME=VALUE operands.
#pragma once
#include "runtime/host/arguments.h"
#include "runtime/plan/plan.h"
#include "tools/tool.h"

typedef struct Subject {
    Tool *tool;
    Loader loader;
    const char *path;
    int64_t seed, optimize;   // --seed, --optimize
    int define_count;
    const Define *defines;
    const char *only;   // --only; NULL: not given
    Module *module;
    const Func *func;   // the one that `only` names, else the first program, else the first kernel
    EmuArg *args;
} Subject;

// Reads the file that is the first operand, for the device or the emulator. False: reported.
bool subject_open(Tool *tool, bool on_gpu, Subject *out);
// The module with the function. False: reported.
bool subject_choose(Subject *subject);
// Its arguments, from the operands after the first. False: reported.
bool subject_args(Subject *subject);
// Its code: from --artefact, else compiled now. False: reported.
bool subject_code(Subject *subject, const Plan **plan, const void **cubin);
// "NAME=VALUE", split. False: reported.
bool subject_pair(Tool *tool, const char *text, RunArg *out);
