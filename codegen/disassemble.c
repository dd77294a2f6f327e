// A cubin as text: nvdisasm, else cuobjdump.
#include "codegen/codegen.h"
#include "codegen/process.h"
#include <string.h>

typedef struct Disassembler {
    const char *program, *option;
} Disassembler;

static const Disassembler disassemblers[] = {{"nvdisasm", "--print-code"}, {"cuobjdump", "--dump-sass"}};

static const char *find_disassembler(Arena *arena, const char **option) {
    for (size_t i = 0; i < sizeof disassemblers / sizeof disassemblers[0]; i++) {
        const char *path = find_program(arena, disassemblers[i].program);
        *option = disassemblers[i].option;
        if (path) return path;
    }
    return NULL;
}

bool disassemble(Arena *arena, Failure *failure, DiagSink *sink, const uint8_t *cubin, size_t size, StrBuf *out) {
    const char *option, *path = find_disassembler(arena, &option);
    if (!path) return diag(sink, (Span){0}, T_NO_DISASSEMBLER), false;
    const char *arguments[] = {path, option, INPUT_FILE, NULL};
    Program program = {.arguments = arguments, .input = cubin, .input_size = size};
    const char *failed = run_program(arena, failure, &program);
    if (failed) return diag(sink, (Span){0}, T_PTXAS_START, path, failed), false;
    if (program.ok) sb_str(out, program.text);
    else
        diag(sink, (Span){0}, T_DISASSEMBLER_REFUSED, path,
             arena_strndup(arena, program.text, strcspn(program.text, "\n")));
    return program.ok;
}
