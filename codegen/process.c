#include "codegen/process.h"
#include "support/fail.h"
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
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
//
// Nothing here allocates from the arena while the program runs, so leaving for want of memory leaves no zombie; the files
// are closed on that way too.

const char INPUT_FILE[] = "<", OUTPUT_FILE[] = ">";

enum { INPUT, OUTPUT, TEXT, FILES };

typedef struct Files {
    int fd[FILES];
} Files;

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8u
#endif

static int memory_file(void) {
    int fd = memfd_create("tilec", MFD_CLOEXEC | MFD_NOEXEC_SEAL);   // (some systems allow no other)
    if (fd < 0 && errno == EINVAL) fd = memfd_create("tilec", MFD_CLOEXEC);
    if (fd < 0 || fd > STDERR_FILENO) return fd;
    int above = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);   // the host has closed its standard streams
    close(fd);
    return above;
}

static bool write_all(int fd, const char *data, size_t size) {
    while (size) {
        ssize_t count = write(fd, data, size);
        if (count < 0 && errno != EINTR) return false;
        if (count > 0) data += count, size -= (size_t)count;
    }
    return true;
}

static void close_files(const Files *files) {
    for (int i = 0; i < FILES; i++)
        if (files->fd[i] >= 0) close(files->fd[i]);
}

static bool open_files(Files *files, const Program *program) {
    *files = (Files){{-1, -1, -1}};
    for (int i = 0; i < FILES; i++)
        if ((files->fd[i] = memory_file()) < 0) return false;
    return write_all(files->fd[INPUT], program->input, program->input_size);
}

static void *read_file(Arena *arena, int fd, size_t *size) {
    struct stat info;
    *size = 0;
    if (fstat(fd, &info)) return arena_alloc(arena, 1);
    char *data = arena_alloc(arena, (size_t)info.st_size + 1);
    while (*size < (size_t)info.st_size) {
        ssize_t count = pread(fd, data + *size, (size_t)info.st_size - *size, (off_t)*size);
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) break;
        *size += (size_t)count;
    }
    return data;
}

// ptxas spends a fifth of its time on a small kernel in page faults and in asking for memory piece by piece. Both are
// settings of its C library: larger pieces, of huge pages.
static const char *const MEMORY_SETTING = "GLIBC_TUNABLES=glibc.malloc.hugetlb=1:glibc.malloc.top_pad=33554432";

// Ours with that setting, unless the host has its own. The caller frees it.
static char **make_environment(void) {
    size_t count = 0, name = strcspn(MEMORY_SETTING, "=") + 1;
    bool set = false;
    for (; environ[count]; count++) set |= strncmp(environ[count], MEMORY_SETTING, name) == 0;
    char **copy = malloc((count + 2) * sizeof *copy);
    if (!copy) return NULL;
    memcpy(copy, environ, count * sizeof *copy);
    copy[count] = set ? NULL : (char *)MEMORY_SETTING;
    copy[count + 1] = NULL;
    return copy;
}

// Zero, or why the list has no room: a program with only some of these would write to the host's own streams.
static int add_actions(posix_spawn_file_actions_t *actions, const Files *files) {
    int error = posix_spawn_file_actions_addopen(actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    if (!error) error = posix_spawn_file_actions_adddup2(actions, files->fd[TEXT], STDOUT_FILENO);
    if (!error) error = posix_spawn_file_actions_adddup2(actions, files->fd[TEXT], STDERR_FILENO);
    for (int i = INPUT; i <= OUTPUT && !error; i++)   // stay open in the program
        error = posix_spawn_file_actions_adddup2(actions, files->fd[i], files->fd[i]);
    return error;
}

static int spawn(char *const *arguments, char *const *environment, const Files *files, pid_t *process) {
    posix_spawn_file_actions_t actions;
    int error = posix_spawn_file_actions_init(&actions);
    if (error) return error;
    error = add_actions(&actions, files);
    if (!error) error = posix_spawn(process, arguments[0], &actions, NULL, arguments, environment);
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

static char *const *make_arguments(Arena *arena, const Program *program, const Files *files) {
    int count = 0;
    while (program->arguments[count]) count++;
    char **arguments = NEW_ARRAY(arena, char *, count + 1);
    for (int i = 0; i < count; i++) {
        const char *argument = program->arguments[i];
        int file = argument == INPUT_FILE ? INPUT : argument == OUTPUT_FILE ? OUTPUT : FILES;
        arguments[i] = file < FILES ? arena_printf(arena, "/dev/fd/%d", files->fd[file]) : (char *)argument;
    }
    return arguments;
}

static const char *run_on_files(Arena *arena, Program *program, const Files *files) {
    char *const *arguments = make_arguments(arena, program, files);
    char **environment = make_environment();
    pid_t process;
    int error = environment ? spawn(arguments, environment, files, &process) : ENOMEM;
    int status = error ? 0 : wait_for(process);
    free(environment);
    if (error) return arena_strdup(arena, strerror(error));
    size_t length;
    program->ok = status == 0;
    program->output = read_file(arena, files->fd[OUTPUT], &program->output_size);
    program->text = read_file(arena, files->fd[TEXT], &length);
    if (WIFSIGNALED(status))
        program->text = arena_printf(arena, "%sended by signal %d\n", program->text, WTERMSIG(status));
    return NULL;
}

const char *run_program(Arena *arena, Failure *failure, Program *program) {
    Files files;
    if (!open_files(&files, program)) {
        int error = errno;
        close_files(&files);
        return arena_strdup(arena, strerror(error));
    }
    jmp_buf callers;
    memcpy(&callers, &failure->point, sizeof callers);
    if (setjmp(failure->point)) {
        close_files(&files);
        memcpy(&failure->point, &callers, sizeof callers);
        longjmp(failure->point, 1);
    }
    const char *failed = run_on_files(arena, program, &files);
    memcpy(&failure->point, &callers, sizeof callers);
    close_files(&files);
    return failed;
}
