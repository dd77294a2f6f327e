// Running ptxas: two temporary files, its messages through a pipe.
#include "codegen/assembler.h"
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

// ---- finding it ----

static bool is_program(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode) && access(path, X_OK) == 0;
}

static const char *program_in(Arena *arena, const char *folder, size_t length, const char *below) {
    if (!length) return NULL;
    const char *path = arena_printf(arena, "%.*s%s/ptxas", (int)length, folder, below);
    return is_program(path) ? path : NULL;
}

// In PATH, then in CUDA's usual folders.
const char *find_ptxas(Arena *arena) {
    const char *found;
    for (const char *at = getenv("PATH"); at;) {
        size_t length = strcspn(at, ":");
        if ((found = program_in(arena, at, length, ""))) return found;
        at = at[length] ? at + length + 1 : NULL;
    }
    const char *roots[] = {getenv("CUDA_HOME"), getenv("CUDA_PATH"), "/usr/local/cuda", "/opt/cuda", "/usr/lib/cuda"};
    int count = roots[0] || roots[1] ? 2 : (int)(sizeof roots / sizeof roots[0]);   // a folder that is given is the one
    for (int i = 0; i < count; i++) {
        if (roots[i] && (found = program_in(arena, roots[i], strlen(roots[i]), "/bin"))) return found;
    }
    return NULL;
}

// ---- files ----

typedef struct Files {
    char *folder, *ptx, *cubin;
} Files;

static bool write_file(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    if (!file) return false;
    size_t length = strlen(text);
    bool ok = fwrite(text, 1, length, file) == length;
    return fclose(file) == 0 && ok;
}

static bool make_files(Assembly *assembly, Files *files) {
    const char *root = getenv("TMPDIR");
    files->folder = arena_printf(assembly->arena, "%s/tilec-XXXXXX", root && *root ? root : P_tmpdir);
    if (!mkdtemp(files->folder)) return false;
    files->ptx = arena_printf(assembly->arena, "%s/kernels.ptx", files->folder);
    files->cubin = arena_printf(assembly->arena, "%s/kernels.cubin", files->folder);
    return write_file(files->ptx, assembly->ptx);
}

static void remove_files(const Files *files) {
    if (files->ptx) unlink(files->ptx);
    if (files->cubin) unlink(files->cubin);
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

// ---- the process ----

static void read_all(int fd, StrBuf *out) {
    char buffer[4096];
    for (;;) {
        ssize_t count = read(fd, buffer, sizeof buffer);
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) return;
        sb_bytes(out, buffer, (size_t)count);
    }
}

static int spawn(const char *path, char *const *arguments, int output, pid_t *process) {
    posix_spawn_file_actions_t actions;
    int error = posix_spawn_file_actions_init(&actions);
    if (error) return error;
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, output, STDERR_FILENO);
    error = posix_spawn(process, path, &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    return error;
}

// The exit status; 0 when a host that ignores its children has taken it away (the output file then decides).
static int wait_for(pid_t process) {
    int status = 0;
    while (waitpid(process, &status, 0) < 0) {
        if (errno != EINTR) return 0;
    }
    return status;
}

static AssembleStatus run_program(Assembly *assembly, const char *path, const Files *files, StrBuf *log) {
    char *arch = arena_printf(assembly->arena, "-arch=%s", assembly->options->target->name);
    char *arguments[] = {
        (char *)path, arch, "-v", files->ptx, "-o", files->cubin, assembly->options->lines ? "-lineinfo" : NULL, NULL};
    int ends[2];
    if (pipe2(ends, O_CLOEXEC)) {
        assembly->failed = strerror(errno);
        return UNAVAILABLE;
    }
    pid_t process;
    int error = spawn(path, arguments, ends[1], &process);
    close(ends[1]);
    if (error) {
        close(ends[0]);
        assembly->failed = strerror(error);
        return UNAVAILABLE;
    }
    read_all(ends[0], log);
    close(ends[0]);
    int status = wait_for(process);
    if (WIFSIGNALED(status)) sb_printf(log, "ended by signal %d\n", WTERMSIG(status));
    return status == 0 && read_cubin(assembly, files->cubin) ? ASSEMBLED : REFUSED;
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
    if (make_files(assembly, &files)) status = run_program(assembly, path, &files, &log);
    else assembly->failed = strerror(errno);
    remove_files(&files);
    assembly->log = sb_text(&log);
    assembly->assembler = status == ASSEMBLED ? version_in(assembly) : "ptxas";
    return status;
}
