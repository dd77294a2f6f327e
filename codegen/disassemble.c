// A cubin as text: nvdisasm, else cuobjdump, on a temporary file.
#include "codegen/codegen.h"
#include "codegen/process.h"
#include <errno.h>
#include <string.h>
#include <unistd.h>

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

bool disassemble(Arena *arena, DiagSink *sink, const uint8_t *cubin, size_t size, StrBuf *out) {
    const char *option, *path = find_disassembler(arena, &option);
    if (!path) return diag(sink, (Span){0}, T_NO_DISASSEMBLER), false;
    char *folder = make_temporary_folder(arena), *file = arena_printf(arena, "%s/kernels.cubin", folder ? folder : "");
    bool ok = false;
    const char *failed = NULL;
    if (!folder || !write_whole_file(file, cubin, size)) failed = arena_strdup(arena, strerror(errno));
    char *arguments[] = {(char *)path, (char *)option, file, NULL};
    StrBuf text;
    sb_init(&text, arena);
    if (!failed) failed = run_program(arena, path, arguments, &text, &ok);
    if (folder) unlink(file), rmdir(folder);
    if (failed) diag(sink, (Span){0}, T_PTXAS_START, path, failed);
    else if (!ok)
        diag(sink, (Span){0}, T_DISASSEMBLER_REFUSED, path,
             arena_strndup(arena, sb_text(&text), strcspn(sb_text(&text), "\n")));
    else sb_str(out, sb_text(&text));
    return ok;
}
