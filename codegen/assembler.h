// What ptxas.c and nvjitlink.c share: one assembly of PTX to a cubin. Not for other folders.
#pragma once
#include "codegen/codegen.h"

typedef enum { ASSEMBLED, REFUSED, KILLED, UNAVAILABLE } AssembleStatus;

typedef struct Assembly {
    Arena *arena;
    Failure *failure;
    DiagSink *sink;
    const char *ptx;
    const AssembleOptions *options;
    bool few_registers;    // of registers: ptxas leaves out what takes many
    Process *started;      // ahead; NULL: none, or taken
    const uint8_t *data;   // the cubin
    size_t size;
    const char *assembler;   // name and version
    const char *log;
    int code;             // REFUSED: with which it ended
    int signal;           // KILLED: by which
    const char *failed;   // UNAVAILABLE: why it could not be run
} Assembly;

enum { FEW_REGISTERS_LEVEL = 2 };   // --register-usage-level; 5 is the default

const char *assembler_path(Arena *arena, const AssembleOptions *options);   // of ptxas; NULL: there is none
AssembleStatus run_ptxas(Assembly *assembly, const char *path);
AssembleStatus run_nvjitlink(Assembly *assembly);
// What the messages say of each kernel; notes about serialised matrix instructions become diagnostics.
void read_assembler_log(Assembly *assembly, Cubin *out);
