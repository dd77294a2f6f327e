// Running ptxas: two temporary files, its messages through a pipe.
#include "codegen/assembler.h"
#include "codegen/process.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct Files {
    char *folder, *ptx, *cubin;
} Files;

static bool make_files(Assembly *assembly, Files *files) {
    files->folder = make_temporary_folder(assembly->arena);
    if (!files->folder) return false;
    files->ptx = arena_printf(assembly->arena, "%s/kernels.ptx", files->folder);
    files->cubin = arena_printf(assembly->arena, "%s/kernels.cubin", files->folder);
    return write_whole_file(files->ptx, assembly->ptx, strlen(assembly->ptx));
}

static void remove_files(const Files *files) {
    if (!files->folder) return;
    unlink(files->ptx);
    unlink(files->cubin);
    rmdir(files->folder);
}

static bool read_cubin(Assembly *assembly, const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) return false;
    struct stat info;
    bool ok = fstat(fileno(file), &info) == 0 && info.st_size > 0;
    if (ok) {
        size_t size = (size_t)info.st_size;
        uint8_t *data = malloc(size);   // not the arena: it may leave, and the file is open
        ok = data && fread(data, 1, size, file) == size;
        fclose(file);
        if (ok) assembly->data = arena_copy(assembly->arena, data, size);
        assembly->size = size;
        free(data);
        return ok;
    }
    fclose(file);
    return false;
}

static AssembleStatus run_on_files(Assembly *assembly, const char *path, const Files *files, StrBuf *log) {
    char *arch = arena_printf(assembly->arena, "-arch=%s", assembly->options->target->name);
    char *arguments[] = {
        (char *)path, arch, "-v", files->ptx, "-o", files->cubin, assembly->options->lines ? "-lineinfo" : NULL, NULL};
    bool ok = false;
    assembly->failed = run_program(assembly->arena, path, arguments, log, &ok);
    if (assembly->failed) return UNAVAILABLE;
    return ok && read_cubin(assembly, files->cubin) ? ASSEMBLED : REFUSED;
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
    Files files = {0};
    StrBuf log;
    sb_init(&log, assembly->arena);
    AssembleStatus status = UNAVAILABLE;
    if (make_files(assembly, &files)) status = run_on_files(assembly, path, &files, &log);
    else assembly->failed = strerror(errno);
    remove_files(&files);
    assembly->log = sb_text(&log);
    assembly->assembler = status == ASSEMBLED ? version_in(assembly) : "ptxas";
    return status;
}
