#include "codegen/process.h"
#include "support/fail.h"
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
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
// Nothing here allocates from the arena while the program runs, so leaving for want of memory leaves no zombie; the
// files are closed on that way too.
//
// A program that is started ahead has to wait for its input somewhere. Not at a pipe: ptxas reads its input twice. Not
// at another file: ptxas reads its options first, but spends half of its start behind that. So it waits where it opens
// the input: a process that opens a file with a write lease sleeps until the lease is given back (fcntl(2), "Leases").
// The kernel takes it away after /proc/sys/fs/lease-break-time, 45 s by default; the program then finds nothing and
// says so.

const char INPUT_FILE[] = "<", OUTPUT_FILE[] = ">";

enum { INPUT, OUTPUT, TEXT, FILES };

struct Process {
    int fd[FILES];
    int lease;   // a second descriptor of INPUT that holds the lease; -1: there is none
    pid_t id;    // 0: not started, or its end was seen
};

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8u
#endif

static int above_stdio(int fd) {
    if (fd < 0 || fd > STDERR_FILENO) return fd;
    int above = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);   // the host has closed its standard streams
    close(fd);
    return above;
}

static int memory_file(void) {
    int fd = memfd_create("tilec", MFD_CLOEXEC | MFD_NOEXEC_SEAL);   // (some systems allow no other)
    if (fd < 0 && errno == EINVAL) fd = memfd_create("tilec", MFD_CLOEXEC);
    return above_stdio(fd);
}

static bool write_all(int fd, const char *data, size_t size) {
    while (size) {
        ssize_t count = write(fd, data, size);
        if (count < 0 && errno != EINTR) return false;
        if (count > 0) data += count, size -= (size_t)count;
    }
    return true;
}

static void close_file(int *fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

// Lets the program open its input. By name: closing alone would not do while a process that the host forked holds a
// copy.
static void end_lease(Process *process) {
    if (process->lease >= 0) fcntl(process->lease, F_SETLEASE, F_UNLCK);
    close_file(&process->lease);
}

static void close_files(Process *process) {
    end_lease(process);
    for (int i = 0; i < FILES; i++) close_file(&process->fd[i]);
}

static bool open_files(Process *process) {
    *process = (Process){.fd = {-1, -1, -1}, .lease = -1};
    for (int i = 0; i < FILES; i++)
        if ((process->fd[i] = memory_file()) < 0) return false;
    return true;
}

// A lease wants a descriptor that only reads and has no owner: its owner would be sent a signal when the program opens
// the file.
static bool begin_lease(Process *process) {
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", process->fd[INPUT]);
    process->lease = above_stdio(open(path, O_RDONLY | O_CLOEXEC));
    if (process->lease < 0) return false;
    return fcntl(process->lease, F_SETLEASE, F_WRLCK) == 0 && fcntl(process->lease, F_SETOWN, 0) == 0;
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
static int add_actions(posix_spawn_file_actions_t *actions, const Process *process) {
    int error = posix_spawn_file_actions_addopen(actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    if (!error) error = posix_spawn_file_actions_adddup2(actions, process->fd[TEXT], STDOUT_FILENO);
    if (!error) error = posix_spawn_file_actions_adddup2(actions, process->fd[TEXT], STDERR_FILENO);
    for (int i = INPUT; i <= OUTPUT && !error; i++)   // stay open in the program
        error = posix_spawn_file_actions_adddup2(actions, process->fd[i], process->fd[i]);
    return error;
}

static int spawn(Process *process, char *const *arguments, char *const *environment) {
    posix_spawn_file_actions_t actions;
    int error = posix_spawn_file_actions_init(&actions);
    if (error) return error;
    error = add_actions(&actions, process);
    if (!error) error = posix_spawn(&process->id, arguments[0], &actions, NULL, arguments, environment);
    posix_spawn_file_actions_destroy(&actions);
    return error;
}

// The exit status; 0 when a host that ignores its children has taken it away (what was written then decides).
static int wait_for(Process *process) {
    int status = 0;
    pid_t id = process->id;
    process->id = 0;
    while (waitpid(id, &status, 0) < 0) {
        if (errno != EINTR) return 0;
    }
    return status;
}

static char *const *make_arguments(Arena *arena, const Process *process, const char *const *given) {
    int count = 0;
    while (given[count]) count++;
    char **arguments = NEW_ARRAY(arena, char *, count + 1);
    for (int i = 0; i < count; i++) {
        const char *argument = given[i];
        int file = argument == INPUT_FILE ? INPUT : argument == OUTPUT_FILE ? OUTPUT : FILES;
        arguments[i] = file < FILES ? arena_printf(arena, "/dev/fd/%d", process->fd[file]) : (char *)argument;
    }
    return arguments;
}

// Zero, or why not.
static int start(Arena *arena, Process *process, const char *const *given) {
    char *const *arguments = make_arguments(arena, process, given);
    char **environment = make_environment();
    int error = environment ? spawn(process, arguments, environment) : ENOMEM;
    if (error) process->id = 0;
    free(environment);
    return error;
}

// With its input there: lets it run, and takes what came of it.
static void finish(Arena *arena, Process *process, Program *program) {
    end_lease(process);
    int status = wait_for(process);
    size_t length;
    program->ok = status == 0;
    program->output = read_file(arena, process->fd[OUTPUT], &program->output_size);
    program->text = read_file(arena, process->fd[TEXT], &length);
    program->code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
    program->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    if (program->signal) program->text = arena_printf(arena, "%sended by signal %d\n", program->text, program->signal);
}

typedef struct Run {
    Arena *arena;
    const char *const *arguments;
    Program *program;
    Process *process;
    int error;
    bool stays;   // started ahead
} Run;

static bool give_input(const Run *run) {
    return write_all(run->process->fd[INPUT], run->program->input, run->program->input_size);
}

static void after_run(void *user) {
    const Run *run = user;
    if (!run->stays) close_files(run->process);
}

static bool run_now(void *user) {
    Run *run = user;
    run->error =
        open_files(run->process) && give_input(run) ? start(run->arena, run->process, run->program->arguments) : errno;
    if (!run->error) finish(run->arena, run->process, run->program);
    return !run->error;
}

const char *run_program(Arena *arena, Failure *failure, Program *program) {
    Process process;
    Run run = {.arena = arena, .program = program, .process = &process};
    return fail_scope(failure, run_now, after_run, &run) ? NULL : arena_strdup(arena, strerror(run.error));
}

// ---- started ahead ----

static bool run_ahead(void *user) {
    Run *run = user;
    run->stays =
        open_files(run->process) && begin_lease(run->process) && start(run->arena, run->process, run->arguments) == 0;
    return run->stays;
}

Process *start_program(Arena *arena, Failure *failure, const char *const *arguments) {
    Run run = {.arena = arena, .arguments = arguments, .process = NEW(arena, Process)};
    return fail_scope(failure, run_ahead, after_run, &run) ? run.process : NULL;
}

static bool run_on(void *user) {
    Run *run = user;
    bool given = give_input(run);
    run->error = given ? 0 : errno;
    if (given) finish(run->arena, run->process, run->program);
    else stop_program(run->process);
    return given;
}

const char *finish_program(Arena *arena, Failure *failure, Process *process, Program *program) {
    Run run = {.arena = arena, .program = program, .process = process};
    return fail_scope(failure, run_on, after_run, &run) ? NULL : arena_strdup(arena, strerror(run.error));
}

void stop_program(Process *process) {
    if (!process) return;
    end_lease(process);   // what it finds is no program text
    if (process->id) wait_for(process);
    close_files(process);
}
