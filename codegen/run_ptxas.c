// Running ptxas.
//
// Kernels are assembled side by side, as many as there are processors (--split-compile, CUDA 13): a launch plan has
// several, and each costs far more than all that comes before. The machine code is the same, instruction for
// instruction (all of examples/ on sm_80 and sm_90a), in half the time. How many threads there are is not said, so that
// the cubin, which records the options, does not depend on the machine.
//
// A small kernel takes 20 ms, of which 6 are the start of ptxas. So ptxas is started before there is PTX, and loads
// while codegen runs. If that fails for any reason, ptxas is run again from the beginning.
#include "codegen/assembler.h"
#include "codegen/process.h"
#include <string.h>

enum { ARGUMENTS = 12 };

static void make_arguments(Arena *arena, const char *path, const AssembleOptions *options, bool few_registers,
                           bool side_by_side, const char *arguments[ARGUMENTS]) {
    const char *const all[] = {
        path, arena_printf(arena, "-arch=%s", options->target->name), "-v", INPUT_FILE, "-o", OUTPUT_FILE};
    int count = (int)(sizeof all / sizeof all[0]);
    memcpy(arguments, all, sizeof all);
    if (options->lines) arguments[count++] = "-lineinfo";
    if (few_registers) {
        arguments[count++] = "--register-usage-level";
        arguments[count++] = arena_printf(arena, "%d", FEW_REGISTERS_LEVEL);
    }
    if (side_by_side) {
        arguments[count++] = "-split-compile";
        arguments[count++] = "0";   // one thread a processor
    }
    arguments[count] = NULL;
}

// The answer of a program that has run, if `failed` is NULL.
static AssembleStatus take(Assembly *assembly, const Program *program, const char *failed) {
    assembly->failed = failed;
    if (failed) return UNAVAILABLE;
    assembly->log = program->text;
    assembly->data = program->output;
    assembly->size = program->output_size;
    assembly->code = program->code;
    assembly->signal = program->signal;
    if (program->signal) return KILLED;
    return program->ok && program->output_size > 0 ? ASSEMBLED : REFUSED;
}

static AssembleStatus run(Assembly *assembly, const char *path, bool side_by_side) {
    const char *arguments[ARGUMENTS];
    make_arguments(assembly->arena, path, assembly->options, assembly->few_registers, side_by_side, arguments);
    Program program = {.arguments = arguments, .input = assembly->ptx, .input_size = strlen(assembly->ptx)};
    const char *failed = run_program(assembly->arena, assembly->failure, &program);
    return take(assembly, &program, failed);
}

Process *start_assembler(Arena *arena, Failure *failure, const AssembleOptions *options) {
    const char *path = assembler_path(arena, options), *arguments[ARGUMENTS];
    if (!path) return NULL;
    make_arguments(arena, path, options, false, true, arguments);
    return start_program(arena, failure, arguments);
}

void stop_assembler(Process *process) {
    stop_program(process);
}

static AssembleStatus run_started(Assembly *assembly) {
    Program program = {.input = assembly->ptx, .input_size = strlen(assembly->ptx)};
    Process *process = assembly->started;
    assembly->started = NULL;
    if (!process) return UNAVAILABLE;
    const char *failed = finish_program(assembly->arena, assembly->failure, process, &program);
    return take(assembly, &program, failed);
}

// The cubin names the tools that made it: "Cuda compilation tools, release 13.0, V13.0.88".
static const char *version_in(Assembly *assembly) {
    static const char mark[] = ", V";
    for (size_t i = 0; i + sizeof mark + 16 < assembly->size; i++) {
        const char *at = (const char *)assembly->data + i;
        if (memcmp(at, mark, sizeof mark - 1) != 0) continue;
        size_t length = strspn(at + sizeof mark - 1, "0123456789.");
        if (length >= 4) return arena_printf(assembly->arena, "ptxas %.*s", (int)length, at + sizeof mark - 1);
    }
    return "ptxas";
}

AssembleStatus run_ptxas(Assembly *assembly, const char *path) {
    AssembleStatus status = run_started(assembly);
    if (status != ASSEMBLED) status = run(assembly, path, true);
    if (status == REFUSED && strstr(assembly->log, "Unknown option")) status = run(assembly, path, false);
    assembly->assembler = status == ASSEMBLED ? version_in(assembly) : "ptxas";
    return status;
}
