// The subject of run, bench and tune: a kernel or program of a file, with arguments from NAME=VALUE operands.
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
    const Func *func;   // the function `only`, else the first program, else the first kernel
    EmuArg *args;
} Subject;

// Reads the first operand, a file, for the device or the emulator. False: reported.
bool subject_open(Tool *tool, bool on_gpu, Subject *out);
// Of the function `only`: adds the usual types to the defines where tests have several. Returns a name of types that has no usual one,
// as "kernel.E"; NULL: none.
const char *subject_types(Subject *subject);
// Sets `module` and `func`. False: reported.
bool subject_choose(Subject *subject);
// Sets `args`, from the operands after the first. False: reported.
bool subject_args(Subject *subject);
// The code: read from --artefact, else compiled. False: reported.
bool subject_code(Subject *subject, const Plan **plan, const void **cubin);
// "gemm (A: bf16[64, 64], ...)"
void subject_print(const Subject *subject, StrBuf *out);
// The start of an object: {"name": "gemm", "device": "NVIDIA H200", "tensors": {"A": [64, 64], ...}
void subject_json(const Subject *subject, const char *device, StrBuf *out);
// Splits "NAME=VALUE". False: reported.
bool subject_pair(Tool *tool, const char *text, RunArg *out);
