// Source text to a verified module: parse, elaborate, verify. What every command begins with; needs no LLVM.
#pragma once
#include "frontend/frontend.h"
#include "runtime/files.h"
#include "runtime/record.h"

typedef struct Front {
    Arena *arena;   // of the syntax; modules may have another
    Failure *failure;
    DiagSink *sink;
    const Target *target;
    Syntax *syntax;
    double parse_seconds;
    const Record *record;        // tunables that were measured; NULL: none
    const char *record_path;     // for messages
    const RecordValues *shape;   // what the code is made for; NULL: not known
    int test_choice;   // 1 + index: modules have the tests of this choice alone; 0: those that their values serve
} Front;

// Reads and parses a file. False: reported.
bool front_open(Front *front, const char *path);
// Parses a text that did not come from a file; it must outlive the front.
bool front_open_text(Front *front, const char *name, const char *text, size_t length);

// Elaborates with these defines, else those of the tuning record, and verifies. NULL: reported, too large programs as T_NOTHING_FITS with the buffers and
// the largest combination that fits.
Module *front_module(Front *front, Arena *arena, int define_count, const Define *defines, const char *only);

// Its tuned kernels' tunables as defines, beside the user's: "gemm.BM". The number of all.
int front_recorded(Front *front, Arena *arena, int define_count, const Define *defines, const Define **out);
// A hash of a kernel's text as elaborated with the first tunables; "" when there is no such kernel, or it has errors.
const char *front_signature(Front *front, Arena *arena, int define_count, const Define *defines, const char *kernel);
// The defines that are no tunables, into `kept`.
int front_drop_tunables(Front *front, int count, const Define *defines, Define *kept);

double seconds_now(void);   // of a clock that only goes forward
