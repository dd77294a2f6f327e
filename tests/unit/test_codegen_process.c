// Running programs: what goes in and comes out, every way to fail, and that nothing stays behind: no file, no open
// descriptor, no child.
#include "codegen/process.h"
#include "tests/unit/unit.h"
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int open_descriptors(void) {
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    assert_non_null(folder);
    while (readdir(folder)) count++;
    closedir(folder);
    return count;
}

static void expect_no_child(void) {
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
}

// Runs a script of the shell: $0 is its input, $1 its output.
static Program shell(Arena *arena, Failure *failure, const char *script, const void *input, size_t size) {
    const char *arguments[] = {"/bin/sh", "-c", script, INPUT_FILE, OUTPUT_FILE, NULL};
    Program program = {.arguments = arguments, .input = input, .input_size = size};
    assert_null(run_program(arena, failure, &program));
    program.arguments = NULL;   // they are this function's
    return program;
}

#define SHELL(script, input) shell(*state, &failure, script, input, strlen(input))

// A test in which nothing leaves by `failure`, and which leaves nothing behind.
#define START                                                                                                          \
    Failure failure;                                                                                                   \
    if (FAILURE_CAUGHT(&failure)) fail_msg("left: %s", failure.message);                                               \
    int before = open_descriptors()
#define END                                                                                                            \
    expect_no_child();                                                                                                 \
    assert_int_equal(open_descriptors(), before)

static void test_files(void **state) {
    START;
    Program p = SHELL("tr a-z A-Z <$0 >$1; echo said; echo told >&2", "text");
    assert_true(p.ok);
    assert_int_equal(p.output_size, 4);
    assert_memory_equal(p.output, "TEXT", 4);
    assert_string_equal(p.text, "said\ntold\n");
    p = SHELL("cat $0; read x || echo nothing to read", "again and again");   // its standard input is empty
    assert_string_equal(p.text, "again and againnothing to read\n");
    assert_int_equal(p.output_size, 0);
    END;
}

// More than a pipe holds, both ways and in messages.
static void test_large(void **state) {
    START;
    enum { SIZE = 8 << 20 };
    char *input = malloc(SIZE);
    for (int i = 0; i < SIZE; i++) input[i] = (char)(1 + i % 251);
    Program p = shell(*state, &failure, "cat $0 >$1; cat $0", input, SIZE);
    assert_int_equal(p.output_size, SIZE);
    assert_memory_equal(p.output, input, SIZE);
    assert_memory_equal(p.text, input, SIZE);
    assert_int_equal(p.text[SIZE], 0);
    free(input);
    END;
}

static void test_fails(void **state) {
    START;
    Program p = SHELL("echo refused; exit 7", "");
    assert_false(p.ok);
    assert_string_equal(p.text, "refused\n");
    p = SHELL("echo so far; kill -9 $$", "");
    assert_false(p.ok);
    assert_string_equal(p.text, "so far\nended by signal 9\n");
    END;
}

static void test_missing(void **state) {
    START;
    const char *arguments[] = {"/nowhere/ptxas", INPUT_FILE, NULL};
    Program program = {.arguments = arguments, .input = "", .input_size = 0};
    assert_string_equal(run_program(*state, &failure, &program), strerror(ENOENT));
    arguments[0] = "/";
    assert_string_equal(run_program(*state, &failure, &program), strerror(EACCES));
    END;
}

// A host that takes its children's ends itself, or ignores them.
static void test_ignored_children(void **state) {
    START;
    void (*handler)(int) = signal(SIGCHLD, SIG_IGN);
    Program p = SHELL("sleep 0.1; echo late >$1", "");
    signal(SIGCHLD, handler);
    assert_true(p.ok);
    assert_memory_equal(p.output, "late\n", 5);
    END;
}

// Descriptors 0 to 2 are free in a daemon: the program's files must not become its standard streams.
static void test_closed_streams(void **state) {
    START;
    int in = dup(STDIN_FILENO), out = dup(STDOUT_FILENO);
    close(STDIN_FILENO);
    close(STDOUT_FILENO);
    Program p = SHELL("cat $0 >$1; cat; echo said", "text");
    dup2(in, STDIN_FILENO);
    dup2(out, STDOUT_FILENO);
    close(in);
    close(out);
    assert_memory_equal(p.output, "text", 4);
    assert_string_equal(p.text, "said\n");
    END;
}

static void test_environment(void **state) {
    START;
    unsetenv("GLIBC_TUNABLES");
    assert_non_null(strstr(SHELL("echo $GLIBC_TUNABLES", "").text, "hugetlb"));
    assert_null(getenv("GLIBC_TUNABLES"));   // the host's is as it was
    setenv("GLIBC_TUNABLES", "glibc.malloc.check=0", 1);
    assert_string_equal(SHELL("echo $GLIBC_TUNABLES", "").text, "glibc.malloc.check=0\n");
    unsetenv("GLIBC_TUNABLES");
    END;
}

// ---- started ahead ----

static long long nanoseconds(void) {
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static Process *shell_ahead(Arena *arena, Failure *failure, const char *script) {
    const char *arguments[] = {"/bin/sh", "-c", script, INPUT_FILE, OUTPUT_FILE, NULL};
    return start_program(arena, failure, arguments);
}

// It works before it has input, and waits where it opens that; its opening sends us no signal.
static void test_ahead(void **state) {
    START;
    Process *process = shell_ahead(*state, &failure, "date +%s%N; cat $0 $0 >$1");
    if (!process) {
        print_message("no leases here\n");
        return;
    }
    usleep(200000);
    long long given = nanoseconds();
    Program p = {.input = "text", .input_size = 4};
    assert_null(finish_program(*state, &failure, process, &p));
    assert_true(p.ok);
    assert_memory_equal(p.output, "texttext", 8);
    assert_true(strtoll(p.text, NULL, 10) < given);
    stop_program(process);   // nothing to stop
    END;
}

static void test_ahead_without_input(void **state) {
    START;
    stop_program(NULL);
    for (int i = 0; i < 3; i++) stop_program(shell_ahead(*state, &failure, "cat $0"));
    const char *missing[] = {"/nowhere/ptxas", INPUT_FILE, NULL};
    assert_null(start_program(*state, &failure, missing));
    Process *process = shell_ahead(*state, &failure, "echo no; exit 3");   // does not care for its input
    Program p = {.input = "text", .input_size = 4};
    if (process) assert_null(finish_program(*state, &failure, process, &p));
    if (process) assert_string_equal(p.text, "no\n");
    assert_false(p.ok);
    END;
}

// What the host forks meanwhile has copies of our descriptors: it must not keep the program waiting.
static void test_ahead_with_a_copy(void **state) {
    START;
    Process *process = shell_ahead(*state, &failure, "cat $0 >$1");
    pid_t copy = fork();
    if (copy == 0) {
        sleep(20);
        _exit(0);
    }
    Program p = {.input = "text", .input_size = 4};
    if (process) assert_null(finish_program(*state, &failure, process, &p));
    if (process) assert_memory_equal(p.output, "text", 4);
    assert_int_equal(waitpid(copy, NULL, WNOHANG), 0);   // still there
    kill(copy, SIGKILL);
    waitpid(copy, NULL, 0);
    END;
}

// ---- no memory, many threads ----

static void *until_it_ends(void *user, void *block, size_t bytes) {
    int *left = user;
    if (bytes && (*left)-- == 0) return NULL;
    return libc_allocator.resize(NULL, block, bytes);
}

static void now_or_ahead(Arena *arena, Failure *failure) {
    static const char script[] = "head -c 3000000 /dev/zero >$1; head -c 3000000 /dev/zero";
    shell(arena, failure, script, "", 0);
    Program p = {.input = "", .input_size = 0};
    Process *process = shell_ahead(arena, failure, script);
    if (process) assert_null(finish_program(arena, failure, process, &p));
}

static bool has_memory(int allocations) {
    Failure failure;
    Arena *volatile arena = NULL;
    volatile bool done = false;
    if (!FAILURE_CAUGHT(&failure)) {
        arena = arena_new((Allocator){until_it_ends, &allocations}, &failure);
        if (arena) now_or_ahead(arena, &failure);
        done = arena != NULL;
    }
    arena_free(arena);
    return done;
}

static void test_no_memory(void **state) {
    (void)state;
    int before = open_descriptors(), allocations = 0;
    for (; !has_memory(allocations); allocations++) {
        expect_no_child();
        assert_int_equal(open_descriptors(), before);
    }
    assert_in_range(allocations, 3, 100);
}

static void *run_often(void *user) {
    Failure failure;
    Arena *arena = arena_new(libc_allocator, &failure);
    bool same = !FAILURE_CAUGHT(&failure);
    for (int i = 0; i < 20 && same; i++) {
        const char *input = arena_printf(arena, "%d of thread %p", i, user);
        Program p = shell(arena, &failure, "cat $0 >$1; cat $0", input, strlen(input));
        same =
            p.output_size == strlen(input) && memcmp(p.output, input, p.output_size) == 0 && strcmp(p.text, input) == 0;
    }
    arena_free(arena);
    return same ? user : NULL;
}

static void test_threads(void **state) {
    (void)state;
    int before = open_descriptors();
    pthread_t threads[8];
    char names[8];
    for (int i = 0; i < 8; i++) assert_int_equal(pthread_create(&threads[i], NULL, run_often, &names[i]), 0);
    for (int i = 0; i < 8; i++) {
        void *result;
        pthread_join(threads[i], &result);
        assert_ptr_equal(result, &names[i]);
    }
    END;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_ARENA(test_files),
        IN_ARENA(test_large),
        IN_ARENA(test_fails),
        IN_ARENA(test_missing),
        IN_ARENA(test_ignored_children),
        IN_ARENA(test_closed_streams),
        IN_ARENA(test_environment),
        IN_ARENA(test_ahead),
        IN_ARENA(test_ahead_without_input),
        IN_ARENA(test_ahead_with_a_copy),
        IN_ARENA(test_no_memory),
        IN_ARENA(test_threads),
    };
    return run(tests);
}
