// Running ptxas.
//
// Kernels are assembled side by side, as many as there are processors (--split-compile, CUDA 13): a launch plan has several,
// and each costs far more than all that comes before. The machine code is the same, instruction for instruction (all of
// examples/ on sm_80 and sm_90a), in half the time. How many threads there are is not said, so that the cubin, which
// records the options, does not depend on the machine.
#include "codegen/assembler.h"
#include "codegen/process.h"
#include <string.h>

static AssembleStatus run(Assembly *assembly, const char *path, bool side_by_side) {
    const char *arguments[12] = {path, arena_printf(assembly->arena, "-arch=%s", assembly->options->target->name),
                                 "-v", INPUT_FILE,
                                 "-o", OUTPUT_FILE};
    int count = 6;
    if (assembly->options->lines) arguments[count++] = "-lineinfo";
    if (side_by_side) {
        arguments[count++] = "-split-compile";
        arguments[count++] = "0";   // one thread a processor
    }
    Program program = {.arguments = arguments, .input = assembly->ptx, .input_size = strlen(assembly->ptx)};
    assembly->failed = run_program(assembly->arena, assembly->failure, &program);
    if (assembly->failed) return UNAVAILABLE;
    assembly->log = program.text;
    assembly->data = program.output;
    assembly->size = program.output_size;
    return program.ok && program.output_size > 0 ? ASSEMBLED : REFUSED;
}

static bool several_kernels(const char *ptx) {
    const char *first = strstr(ptx, ".entry ");
    return first && strstr(first + 1, ".entry ");
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
    bool several = several_kernels(assembly->ptx);
    AssembleStatus status = run(assembly, path, several);
    if (status == REFUSED && several && strstr(assembly->log, "Unknown option")) status = run(assembly, path, false);
    assembly->assembler = status == ASSEMBLED ? version_in(assembly) : "ptxas";
    return status;
}
