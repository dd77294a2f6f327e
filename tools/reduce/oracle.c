#include "tools/reduce/oracle.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

enum { MOST_SAID = 1 << 20 };   // bytes of a run's output that are looked at

static const Span NOWHERE;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

// ---- opening and closing ----

static bool cannot(Oracle *o, DiagCode code, const char *what, int error) {
    diag(o->sink, NOWHERE, code, what, strerror(error));
    o->stopped = true;
    return false;
}

// The argument with the file's name for each `{}`.
static const char *fill(Arena *arena, const char *argument, const char *path, bool *filled) {
    StrBuf text;
    sb_init(&text, arena);
    for (const char *brace; (brace = strstr(argument, "{}")); argument = brace + 2) {
        sb_bytes(&text, argument, (size_t)(brace - argument));
        sb_str(&text, path);
        *filled = true;
    }
    sb_str(&text, argument);
    return sb_text(&text);
}

static char **make_arguments(Arena *arena, const char *const *command, const char *path) {
    VEC(const char *) arguments = {0};
    bool filled = false;
    for (int i = 0; command[i]; i++) vec_push(arena, &arguments, fill(arena, command[i], path, &filled));
    if (!filled) vec_push(arena, &arguments, path);
    vec_push(arena, &arguments, NULL);
    return (char **)arguments.items;
}

static bool make_file(Oracle *o, Run *run, const char *path) {
    static const char end[] = ".tile";
    run->path = arena_printf(o->arena, "%s.XXXXXX%s", path, end);
    int fd = mkostemps(run->path, (int)strlen(end), O_CLOEXEC);
    if (fd < 0) {
        run->path = NULL;
        return cannot(o, T_CANNOT_WRITE, path, errno);
    }
    run->arguments = make_arguments(o->arena, o->command, run->path);
    sb_init(&run->said, o->arena);
    return close(fd) == 0;
}

static bool compile_patterns(Oracle *o) {
    for (int i = 0; i < o->patterns.count; i++) {
        regex_t pattern;
        if (regcomp(&pattern, o->patterns.items[i], REG_EXTENDED | REG_NOSUB | REG_NEWLINE)) {
            diag(o->sink, NOWHERE, T_OPTION_VALUE, "match", o->patterns.items[i], "an extended regular expression");
            return false;
        }
        vec_push(o->arena, &o->compiled, pattern);
    }
    return true;
}

bool oracle_open(Oracle *o, const char *path) {
    sigset_t taken;
    sigemptyset(&taken);
    const int signals[] = {SIGCHLD, SIGINT, SIGTERM, SIGHUP};
    for (int i = 0; i < COUNT_OF(signals); i++) sigaddset(&taken, signals[i]);
    o->signals = -1;
    for (int i = 0; i < MOST_RUNS; i++) o->runs[i].said_fd = -1;
    sigprocmask(SIG_BLOCK, &taken, &o->mask);
    signal(SIGCHLD, SIG_DFL);               // with SIG_IGN, which a parent may leave behind, no run would have an end
    setenv("TILEC_REPRO_DIR", "none", 1);   // thousands of runs fail: none of them is to be kept
    o->signals = signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK);
    if (o->signals < 0) return cannot(o, T_CANNOT_RUN, o->command[0], errno);
    for (int i = 0; i < o->jobs; i++)
        if (!make_file(o, &o->runs[i], path)) return false;
    return compile_patterns(o);
}

static void close_said(Run *run) {
    if (run->said_fd >= 0) close(run->said_fd);
    run->said_fd = -1;
}

// The whole group: a command may be a script whose children go on.
static void stop(Run *run) {
    if (run->id) {
        kill(-run->id, SIGKILL);
        while (waitpid(run->id, NULL, 0) < 0 && errno == EINTR) continue;
    }
    run->id = 0;
    close_said(run);
}

void oracle_close(Oracle *o) {
    for (int i = 0; i < MOST_RUNS; i++) {
        stop(&o->runs[i]);
        if (o->runs[i].path) unlink(o->runs[i].path);
    }
    for (int i = 0; i < o->compiled.count; i++) regfree(&o->compiled.items[i]);
    if (o->signals >= 0) close(o->signals);
    sigprocmask(SIG_SETMASK, &o->mask, NULL);
}

// ---- starting a run ----

static bool write_candidate(Oracle *o, const Run *run) {
    int fd = open(run->path, O_WRONLY | O_TRUNC | O_CLOEXEC);
    const char *at = run->candidate.text, *end = at + run->candidate.length;
    while (fd >= 0 && at < end) {
        ssize_t put = write(fd, at, (size_t)(end - at));
        if (put < 0 && errno != EINTR) break;
        if (put > 0) at += put;
    }
    int error = errno;
    bool ok = fd >= 0 && at == end && close(fd) == 0;
    return ok || cannot(o, T_CANNOT_WRITE, run->path, error);
}

static int spawn(Oracle *o, Run *run, int said) {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    int error = posix_spawn_file_actions_init(&actions);
    if (error) return error;
    error = posix_spawnattr_init(&attributes);
    if (error) {
        posix_spawn_file_actions_destroy(&actions);
        return error;
    }
    error = posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    if (!error) error = posix_spawn_file_actions_adddup2(&actions, said, STDOUT_FILENO);
    if (!error) error = posix_spawn_file_actions_adddup2(&actions, said, STDERR_FILENO);
    if (!error) error = posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
    if (!error) error = posix_spawnattr_setsigmask(&attributes, &o->mask);
    if (!error) error = posix_spawnp(&run->id, run->arguments[0], &actions, &attributes, run->arguments, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return error;
}

static bool start(Oracle *o, Run *run) {
    int ends[2];
    if (!write_candidate(o, run)) return false;
    if (pipe2(ends, O_CLOEXEC)) return cannot(o, T_CANNOT_RUN, o->command[0], errno);
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    run->said_fd = ends[0];
    int error = spawn(o, run, ends[1]);
    close(ends[1]);
    if (error) run->id = 0;
    if (error) return cannot(o, T_CANNOT_RUN, o->command[0], error);
    if (run->said.length) run->said.length = 0, run->said.text[0] = 0;
    run->deadline = now() + o->timeout;
    return true;
}

// ---- its end ----

static void read_said(Run *run) {
    char piece[4096];
    for (ssize_t got; run->said_fd >= 0 && (got = read(run->said_fd, piece, sizeof piece)) != 0;) {
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return;
        for (ssize_t i = 0; i < got; i++)
            if (!piece[i]) piece[i] = ' ';
        if (run->said.length < MOST_SAID) sb_bytes(&run->said, piece, (size_t)got);
    }
    close_said(run);
}

static bool matches(const Oracle *o, const char *said) {
    for (int i = 0; i < o->compiled.count; i++)
        if (regexec(&o->compiled.items[i], said, 0, NULL, 0)) return false;
    return true;
}

// A shell's number for the end: 128 and more are signals.
static bool judge(Oracle *o, Run *run, int status, bool late) {
    int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    o->count++;
    o->last_late = late;
    o->last_code = code;
    o->last_said = sb_text(&run->said);
    if (late || o->hang) return late && o->hang && matches(o, o->last_said);
    return (o->exit_code < 0 || o->exit_code == code) && matches(o, o->last_said);
}

// Whether a run has come to its end; then *shows says what came of it.
static bool ended(Oracle *o, Run *run, bool *shows) {
    siginfo_t info = {0};
    bool late = now() >= run->deadline;
    int status = 0;
    if (!late && (waitid(P_PID, (id_t)run->id, &info, WEXITED | WNOHANG | WNOWAIT) || !info.si_pid)) return false;
    kill(-run->id, SIGKILL);   // before its number is free again
    while (waitpid(run->id, &status, 0) < 0 && errno == EINTR) continue;
    run->id = 0;
    read_said(run);
    close_said(run);
    *shows = judge(o, run, status, late);
    return true;
}

// ---- many runs ----

static void take_signals(Oracle *o) {
    struct signalfd_siginfo info;
    while (read(o->signals, &info, sizeof info) == (ssize_t)sizeof info)
        if (info.ssi_signo != SIGCHLD) o->stopped = true;
}

// Until a run ends, says something, or is late.
static void wait_for_any(Oracle *o) {
    struct pollfd files[1 + MOST_RUNS] = {{.fd = o->signals, .events = POLLIN}};
    double first = now() + 1e3;
    for (int i = 0; i < o->jobs; i++) {
        Run *run = &o->runs[i];
        files[1 + i] = (struct pollfd){.fd = run->said_fd, .events = POLLIN};
        if (run->id && run->deadline < first) first = run->deadline;
    }
    double left = first - now();
    poll(files, (nfds_t)(1 + o->jobs), left > 0 ? (int)(1e3 * left) + 1 : 0);
    take_signals(o);
    for (int i = 0; i < o->jobs; i++)
        if (files[1 + i].revents) read_said(&o->runs[i]);
}

// Runs the next candidates while there is room and none before them shows the failure. Returns whether anything runs.
static bool fill_runs(Oracle *o, const Candidates *c, int *next, int end) {
    bool any = false;
    for (int i = 0; i < o->jobs && !o->stopped; i++) {
        Run *run = &o->runs[i];
        for (; !run->id && *next < end && !o->stopped; ++*next) {
            run->candidate = c->get(c->user, *next);
            run->index = *next;
            if (run->candidate.text) start(o, run);
        }
        any |= run->id != 0;
    }
    return any && !o->stopped;
}

int oracle_first(Oracle *o, const Candidates *c) {
    int best = c->to, next = c->from;
    while (fill_runs(o, c, &next, best)) {
        wait_for_any(o);
        for (int i = 0; i < o->jobs; i++) {
            Run *run = &o->runs[i];
            bool shows;
            if (!run->id || !ended(o, run, &shows)) continue;
            if (!shows) c->rejected(c->user, &run->candidate);
            else if (run->index < best) best = run->index;
        }
        for (int i = 0; i < o->jobs; i++)
            if (o->runs[i].index > best) stop(&o->runs[i]);
    }
    for (int i = 0; i < o->jobs; i++) stop(&o->runs[i]);
    return best < c->to ? best : -1;
}
