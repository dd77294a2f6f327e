// Source text to a verified module: parse, elaborate, verify. What every command begins with; needs no LLVM.
#pragma once
#include "frontend/frontend.h"
#include "runtime/files.h"

typedef struct Front {
    Arena *arena;   // of the syntax; modules may have another
    Failure *failure;
    DiagSink *sink;
    const Target *target;
    Syntax *syntax;
    double parse_seconds;
    int test_choice;   // 1 + index: modules have the tests of this choice alone; 0: those that their values serve
} Front;

// Reads and parses a file. False: reported.
bool front_open(Front *front, const char *path);
// Parses a text that did not come from a file; it must outlive the front.
bool front_open_text(Front *front, const char *name, const char *text, size_t length);

// Elaborates with these defines and verifies. NULL: reported, too large programs as T_NOTHING_FITS with the buffers and
// the largest combination that fits.
Module *front_module(Front *front, Arena *arena, int define_count, const Define *defines, const char *only);

double seconds_now(void);   // of a clock that only goes forward
