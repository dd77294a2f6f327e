// Running CUDA's programs (ptxas, nvdisasm) from a library: no shell, no state of the process changed, and nothing left
// behind however it ends, since what they read and write are files in memory.
#pragma once
#include "support/arena.h"
#include "support/fail.h"

// In PATH, then in CUDA's usual folders; NULL: not there. With CUDA_HOME or CUDA_PATH set, only these of the folders.
const char *find_program(Arena *arena, const char *name);

// Stand among the arguments of a program for the names of its files.
extern const char INPUT_FILE[], OUTPUT_FILE[];

typedef struct Program {
    const char *const *arguments;   // the first is its path, NULL ends them
    const void *input;              // what INPUT_FILE holds
    size_t input_size;
    // What came of it, in the arena:
    bool ok;              // it ended with 0
    int code;             // with which it ended
    int signal;           // that ended it; 0: none
    const char *text;     // all that it wrote to standard output and standard error
    const void *output;   // what it wrote to OUTPUT_FILE
    size_t output_size;
} Program;

// Runs the program and waits for it. NULL, or why it could not be started.
const char *run_program(Arena *arena, Failure *failure, Program *program);

// A program that is loaded while its input is made: started, it waits where it opens INPUT_FILE. NULL: it cannot be
// started, or nothing here makes it wait; run_program, later, says why. Each one is to be finished or stopped, which an
// arena does not do.
typedef struct Process Process;
Process *start_program(Arena *arena, Failure *failure, const char *const *arguments);
// As run_program, but for the arguments, which it has.
const char *finish_program(Arena *arena, Failure *failure, Process *process, Program *program);
void stop_program(
    Process *process);   // without input, and whatever it says of that; NULL and a finished one are allowed
