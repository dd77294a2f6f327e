#include "runtime/worker/compiler.h"
#include "codegen/codegen.h"
#include "codegen/process.h"
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

enum { MOST_IDLE = 8 };

struct Compiler {
    Compiler *next;
    pid_t id, owner;   // owner: a process that the host forks shares the socket, but may not use it
    int socket;
    struct stat program;   // when it was started
    char path[];
};

// ---- where the program is ----

static bool is_program(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode) && access(path, X_OK) == 0;
}

// Next to `file`, or in the `bin` of the folder that `lib`, or a folder of lib, is in.
static const char *program_near(Arena *arena, const char *file) {
    static const char *const places[] = {"tilec", "../bin/tilec", "../../bin/tilec"};
    const char *slash = strrchr(file, '/');
    for (size_t i = 0; slash && i < sizeof places / sizeof *places; i++) {
        const char *path = arena_printf(arena, "%.*s/%s", (int)(slash - file), file, places[i]);
        if (is_program(path)) return path;
    }
    return NULL;
}

const char *compiler_find(Arena *arena) {
    static const char here;   // in the library, or in the program that it is linked into
    const char *found = getenv("TILEC_COMPILER");
    char self[4096];
    Dl_info library;
    if (found && found[0]) return found;
    if (dladdr(&here, &library) && library.dli_fname && (found = program_near(arena, library.dli_fname))) return found;
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    self[length > 0 ? length : 0] = 0;
    found = program_near(arena, self);
    return found ? found : find_program(arena, "tilec");
}

const char *assembler_find(Arena *arena) {
    return find_program(arena, "ptxas");
}

// ---- starting and ending it ----

// Signals as a program expects them, whatever the host ignores or blocks, and a group of its own, which includes ptxas.
static int set_attributes(posix_spawnattr_t *attributes) {
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    int error = posix_spawnattr_setsigmask(attributes, &none);
    if (!error) error = posix_spawnattr_setsigdefault(attributes, &all);
    if (!error) error = posix_spawnattr_setpgroup(attributes, 0);
    return error ? error
                 : posix_spawnattr_setflags(attributes,
                                            POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
}

// Standard input is the socket.
static int spawn_with(Compiler *compiler, int socket, const posix_spawnattr_t *attributes) {
    char *const arguments[] = {compiler->path, (char *)"serve-compiles", NULL};
    posix_spawn_file_actions_t actions;
    int error = posix_spawn_file_actions_init(&actions);
    if (error) return error;
    error = posix_spawn_file_actions_adddup2(&actions, socket, STDIN_FILENO);
    for (int fd = STDOUT_FILENO; fd <= STDERR_FILENO && !error; fd++)
        error = posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", O_WRONLY, 0);
    if (!error) error = posix_spawn(&compiler->id, compiler->path, &actions, attributes, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    return error;
}

static int spawn(Compiler *compiler, int socket) {
    posix_spawnattr_t attributes;
    int error = posix_spawnattr_init(&attributes);
    if (error) return error;
    error = set_attributes(&attributes);
    if (!error) error = spawn_with(compiler, socket, &attributes);
    if (error) compiler->id = 0;
    posix_spawnattr_destroy(&attributes);
    return error;
}

static int start(Compiler *compiler) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair)) return errno;
    compiler->socket = pair[0];
    int above = fcntl(pair[1], F_DUPFD_CLOEXEC, STDERR_FILENO + 1);   // dup2 of 0 to 0 would leave it to be closed
    int error = above < 0 ? errno : spawn(compiler, above);
    if (above >= 0) close(above);
    close(pair[1]);
    return error;
}

static void close_and_kill(Compiler *compiler) {
    if (compiler->socket >= 0) close(compiler->socket);
    compiler->socket = -1;
    if (compiler->id > 0 && compiler->owner == getpid()) kill(-compiler->id, SIGKILL);
}

// Whether it has ended, with its exit status; 0: unknown, a host that ignores its children has taken it away.
static bool has_ended(const Compiler *compiler, bool wait, int *status) {
    *status = 0;
    if (compiler->id <= 0 || compiler->owner != getpid()) return true;
    for (;;) {
        pid_t ended = waitpid(compiler->id, status, wait ? 0 : WNOHANG);
        if (ended >= 0) return ended > 0;
        if (errno != EINTR) return true;
    }
}

static void wait_millisecond(void) {
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static void end_and_wait(CompilerPool *pool, Compiler *compiler) {
    int status;
    close_and_kill(compiler);
    has_ended(compiler, true, &status);
    pool->host.resize(pool->host.user, compiler, 0);
}

// The kernel takes tens of milliseconds to free a process's memory, more on a busy machine; a host that cancels does not
// wait for that.
void compiler_end(CompilerPool *pool, Compiler *compiler) {
    enum { MOST = 4 };
    int status;
    if (!compiler) return;
    close_and_kill(compiler);
    bool ended = has_ended(compiler, false, &status);
    for (int64_t end = milliseconds_now() + MOST; !ended && milliseconds_now() < end;) {
        wait_millisecond();
        ended = has_ended(compiler, false, &status);
    }
    if (ended) {
        pool->host.resize(pool->host.user, compiler, 0);
        return;
    }
    pthread_mutex_lock(&pool->lock);
    compiler->next = pool->killed;
    pool->killed = compiler;
    pthread_mutex_unlock(&pool->lock);
}

// Frees those that were killed; `wait`: all, else what has ended.
static void take_killed(CompilerPool *pool, bool wait) {
    int status;
    pthread_mutex_lock(&pool->lock);
    for (Compiler **at = &pool->killed, *c; (c = *at);) {
        if (!has_ended(c, wait, &status)) {
            at = &c->next;
            continue;
        }
        *at = c->next;
        pool->host.resize(pool->host.user, c, 0);
    }
    pthread_mutex_unlock(&pool->lock);
}

static Compiler *new_compiler(CompilerPool *pool, Arena *arena, DiagSink *sink, const char *path) {
    size_t length = strlen(path) + 1;
    Compiler *compiler = pool->host.resize(pool->host.user, NULL, sizeof *compiler + length);
    if (!compiler) fail_out_of_memory(arena_failure(arena));
    *compiler = (Compiler){.socket = -1, .owner = getpid()};
    memcpy(compiler->path, path, length);
    int error = is_program(path) && stat(path, &compiler->program) == 0 ? start(compiler) : ENOENT;
    if (!error) return compiler;
    end_and_wait(pool, compiler);
    if (error == ENOMEM) fail_out_of_memory(arena_failure(arena));
    diag(sink, (Span){0}, T_NO_COMPILER, path, strerror(error));
    return NULL;
}

// ---- those that are kept ----

void pool_open(CompilerPool *pool, Allocator host) {
    *pool = (CompilerPool){.host = host};
    pthread_mutex_init(&pool->lock, NULL);
}

void pool_close(CompilerPool *pool) {
    for (Compiler *c = pool->idle, *next; c; c = next) {
        next = c->next;
        end_and_wait(pool, c);
    }
    take_killed(pool, true);
    pthread_mutex_destroy(&pool->lock);
}

static Compiler *take_idle(CompilerPool *pool) {
    pthread_mutex_lock(&pool->lock);
    Compiler *compiler = pool->idle;
    if (compiler) pool->idle = compiler->next, pool->count--;
    pthread_mutex_unlock(&pool->lock);
    return compiler;
}

static void keep(CompilerPool *pool, Compiler *compiler) {
    pthread_mutex_lock(&pool->lock);
    bool room = pool->count < MOST_IDLE;
    if (room) {
        compiler->next = pool->idle;
        pool->idle = compiler;
        pool->count++;
    }
    pthread_mutex_unlock(&pool->lock);
    if (!room) end_and_wait(pool, compiler);
}

// The program that was started is the one that is there now.
static bool is_current(const Compiler *compiler) {
    const struct stat *was = &compiler->program;
    struct stat now;
    return stat(compiler->path, &now) == 0 && now.st_dev == was->st_dev && now.st_ino == was->st_ino &&
           now.st_ctim.tv_sec == was->st_ctim.tv_sec && now.st_ctim.tv_nsec == was->st_ctim.tv_nsec;
}

// Waits for a request, is this process's, and is the program that is asked for.
static bool serves(const Compiler *compiler, const char *path) {
    struct pollfd state = {.fd = compiler->socket, .events = POLLIN};
    return compiler->owner == getpid() && strcmp(compiler->path, path) == 0 && is_current(compiler) &&
           poll(&state, 1, 0) == 0;
}

static Compiler *take_compiler(CompilerPool *pool, Arena *arena, DiagSink *sink, const char *path) {
    take_killed(pool, false);
    for (Compiler *compiler; (compiler = take_idle(pool)); end_and_wait(pool, compiler))
        if (serves(compiler, path)) return compiler;
    return new_compiler(pool, arena, sink, path);
}

// ---- asking ----

// It closed the socket, so it has ended or does so now.
static void await_end(const Compiler *compiler) {
    enum { MOST = 1000 };
    for (int i = 0; i < MOST; i++) {
        siginfo_t info = {0};
        if (waitid(P_PID, (id_t)compiler->id, &info, WEXITED | WNOWAIT | WNOHANG) || info.si_pid) return;
        wait_millisecond();
    }
}

static void report_death(Arena *arena, DiagSink *sink, Compiler *compiler) {
    int status;
    await_end(compiler);
    close_and_kill(compiler);
    has_ended(compiler, true, &status);
    compiler->id = -1;
    int signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    if (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_NO_MEMORY) fail_out_of_memory(arena_failure(arena));
    bool crashed = signal == SIGSEGV || signal == SIGBUS || signal == SIGABRT || signal == SIGILL || signal == SIGFPE;
    if (signal) diag(sink, (Span){0}, crashed ? T_COMPILER_CRASHED : T_COMPILER_KILLED, signal, strsignal(signal));
    else diag(sink, (Span){0}, T_NO_COMPILER, compiler->path, "it ended without an answer");
}

static bool report_end(Arena *arena, DiagSink *sink, Compiler *compiler, MessageEnd end, int64_t time_limit) {
    if (end == MESSAGE_CLOSED) report_death(arena, sink, compiler);
    if (end == MESSAGE_LATE) diag(sink, (Span){0}, T_TIME_LIMIT, (long long)time_limit);
    if (end == MESSAGE_CANCELLED) diag(sink, (Span){0}, T_CANCELLED);
    if (end == MESSAGE_OTHER_VERSION) diag(sink, (Span){0}, T_NO_COMPILER, compiler->path, "it is of another version");
    return false;
}

// A process that could not do what it was asked for may lack memory, or have lost some: it is not asked again.
static bool is_good_as_new(int64_t status) {
    return status != TILEC_ERROR_ENVIRONMENT && status != TILEC_ERROR_INTERNAL;
}

// Waits for the reply, and tells phases as they come.
static MessageEnd receive_reply(Arena *arena, const Compiler *compiler, const CompilerOptions *options,
                                Message *reply) {
    MessageEnd end;
    while ((end = message_receive(arena, compiler->socket, &options->until, reply)) == MESSAGE_COMPLETE &&
           reply->kind == MESSAGE_PHASE)
        if (options->progress) options->progress(options->progress_user, reply->data);
    return end;
}

bool compiler_ask(CompilerPool *pool, Arena *arena, DiagSink *sink, const CompilerOptions *options,
                  const CompileRequest *request, Compiler **used, CompileReply *reply) {
    StrBuf message;
    Message answer;
    const char *path = options->path;
    if (!path) {
        diag(sink, (Span){0}, T_NO_COMPILER, "tilec", "it was not found");
        return false;
    }
    sb_init(&message, arena);
    request_write(request, &message);
    Compiler *compiler = *used = take_compiler(pool, arena, sink, path);
    if (!compiler) return false;
    MessageEnd end = message_send(compiler->socket, &options->until, MESSAGE_WHOLE, message.text, message.length);
    if (end == MESSAGE_COMPLETE) end = receive_reply(arena, compiler, options, &answer);
    if (end == MESSAGE_COMPLETE && !reply_read(arena, answer.data, answer.size, reply)) end = MESSAGE_OTHER_VERSION;
    if (end != MESSAGE_COMPLETE) return report_end(arena, sink, compiler, end, options->time_limit);
    if (!is_good_as_new(reply->status)) return true;
    *used = NULL;
    keep(pool, compiler);
    return true;
}
