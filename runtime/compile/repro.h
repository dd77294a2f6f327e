// Reproducers: where a pass or codegen breaks a promise of tilec, the program that it was given, as a file.
//
//     gemm.select.repro.tile     its first lines say how the failure is seen, and how `tilec reduce` makes the file smaller
//
// Nothing is kept while all goes well but the text of the program before the first pass: the passes before the one that
// failed run again, on that text, once it has failed.
#pragma once
#include "runtime/compile/compile.h"

typedef struct Repro {
    Module *module;
    const CompileOptions *options;   // `repro`: where it goes
    int first;                       // diagnostics that were there before
    const char *program;             // the module before the first pass, as text; NULL for codegen
    StrBuf begun;                    // the passes before the last one, each with a comma behind it
    const char *stage;               // the last one, or "codegen"; NULL: none yet
} Repro;

// FOLDER/NAME, for CompileOptions.repro, of a source's reproducers; NULL for no folder.
const char *repro_path(Arena *arena, const char *folder, const char *source);

// Before the first pass. Does nothing, as the others, where options->repro is NULL.
void repro_start(Repro *repro, Module *module, const CompileOptions *options);
void repro_begin(Repro *repro, const char *pass);
// In the place of both for codegen, whose input is the module itself.
void repro_codegen(Repro *repro, Module *module, const CompileOptions *options);
// After the last: writes the file where a promise was broken, be it that diagnostics say so or that the failure point
// was left to, and says so in a remark.
void repro_end(Repro *repro, bool ok);
