#include "codegen/process.h"
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

static const char *program_in(Arena *arena, const char *folder, size_t length, const char *below, const char *name) {
    if (!length) return NULL;
    const char *path = arena_printf(arena, "%.*s%s/%s", (int)length, folder, below, name);
    return is_program(path) ? path : NULL;
}

const char *find_program(Arena *arena, const char *name) {
    const char *found;
    for (const char *at = getenv("PATH"); at;) {
        size_t length = strcspn(at, ":");
        if ((found = program_in(arena, at, length, "", name))) return found;
        at = at[length] ? at + length + 1 : NULL;
    }
    const char *roots[] = {getenv("CUDA_HOME"), getenv("CUDA_PATH"), "/usr/local/cuda", "/opt/cuda", "/usr/lib/cuda"};
    int count = roots[0] || roots[1] ? 2 : (int)(sizeof roots / sizeof roots[0]);   // a folder that is given is the one
    for (int i = 0; i < count; i++) {
        if (roots[i] && (found = program_in(arena, roots[i], strlen(roots[i]), "/bin", name))) return found;
    }
    return NULL;
}

// ---- running it ----

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

// The exit status; 0 when a host that ignores its children has taken it away (what was written then decides).
static int wait_for(pid_t process) {
    int status = 0;
    while (waitpid(process, &status, 0) < 0) {
        if (errno != EINTR) return 0;
    }
    return status;
}

const char *run_program(Arena *arena, const char *path, char *const *arguments, StrBuf *text, bool *ok) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC)) return arena_strdup(arena, strerror(errno));
    pid_t process;
    int error = spawn(path, arguments, ends[1], &process);
    close(ends[1]);
    if (!error) read_all(ends[0], text);
    close(ends[0]);
    if (error) return arena_strdup(arena, strerror(error));
    int status = wait_for(process);
    if (WIFSIGNALED(status)) sb_printf(text, "ended by signal %d\n", WTERMSIG(status));
    *ok = status == 0;
    return NULL;
}

// ---- files ----

char *make_temporary_folder(Arena *arena) {
    const char *root = getenv("TMPDIR");
    return mkdtemp(arena_printf(arena, "%s/tilec-XXXXXX", root && *root ? root : P_tmpdir));
}

bool write_whole_file(const char *path, const void *data, size_t size) {
    FILE *file = fopen(path, "wb");
    if (!file) return false;
    bool ok = fwrite(data, 1, size, file) == size;
    return fclose(file) == 0 && ok;
}
