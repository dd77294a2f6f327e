// Compiles in another process: what is sent, and what becomes of a process that does not answer as it should.
#include "runtime/worker/compiler.h"
#include "runtime/worker/message.h"
#include "support/diag.h"
#include "tests/unit/unit.h"
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <tilec/tilec.h>
#include <time.h>
#include <unistd.h>

static const char source[] = "kernel zero(x: out f32[N]) { grid (b in N) threads 32 { x[b] = 0; } }";

// ---- messages ----

static CompileRequest full_request(const cpu_set_t *processors) {
    static const TilecDefine defines[] = {{"A", "1"}, {"B", ""}};
    return (CompileRequest){.name = "a.tile",
                            .text = "text\0with a zero",
                            .length = 16,
                            .folder = "/",
                            .target = "sm_80",
                            .record = "r",
                            .record_text = "",
                            .define_count = 2,
                            .defines = defines,
                            .memory_limit = 1LL << 40,
                            .processors = processors};
}

static void test_request(void **state) {
    Arena *arena = *state;
    cpu_set_t processors;
    StrBuf message;
    CompileRequest read;
    memset(&processors, 5, sizeof processors);
    CompileRequest request = full_request(&processors);
    sb_init(&message, arena);
    request_write(&request, &message);
    assert_true(request_read(arena, message.text, message.length, &read));
    assert_string_equal(read.name, "a.tile");
    assert_int_equal(read.length, 16);
    assert_memory_equal(read.text, request.text, 16);
    assert_string_equal(read.record, "r");
    assert_string_equal(read.record_text, "");
    assert_null(read.only);
    assert_int_equal(read.define_count, 2);
    assert_string_equal(read.defines[1].name, "B");
    assert_int_equal(read.memory_limit, 1LL << 40);
    assert_memory_equal(read.processors, &processors, sizeof processors);
    for (size_t cut = 0; cut < message.length; cut++) assert_false(request_read(arena, message.text, cut, &read));
}

// No damaged byte leads out of the message.
static void test_damaged_reply(void **state) {
    Arena *arena = *state;
    static const CompileImport import = {"a.tile", "a\0b", 3};
    CompileReply reply = {.ptx = "ptx",
                          .manifest = "{}",
                          .cubin = "\1\2",
                          .cubin_size = 2,
                          .diagnostics = "d",
                          .diagnostics_size = 1,
                          .import_count = 1,
                          .imports = &import};
    CompileReply read;
    StrBuf message;
    sb_init(&message, arena);
    reply_write(&reply, &message);
    assert_true(reply_read(arena, message.text, message.length, &read));
    assert_int_equal(read.diagnostics[0], 'd');
    assert_string_equal(read.imports[0].path, "a.tile");
    assert_int_equal(read.imports[0].length, 3);
    assert_memory_equal(read.imports[0].text, import.text, 3);
    assert_int_equal(read.cubin_size, 2);
    for (size_t at = 0; at < message.length; at++)
        for (int value = 0; value < 256; value += 51) {
            char *copy = arena_copy(arena, message.text, message.length);
            copy[at] = (char)value;
            reply_read(arena, copy, message.length, &read);
        }
}

// ---- processes ----

typedef struct Compile {
    TilecStatus status;
    int code;   // of the first diagnostic
    char message[200];
} Compile;

static Compile compile_in(TilecContext *context, const TilecCompileOptions *given, const char *name, const char *text) {
    Compile out = {0};
    TilecArtefact *artefact = NULL;
    TilecDiagnostics *diagnostics = NULL;
    TilecDiagnostic first = {.size = sizeof first, .message = ""};
    TilecCompileOptions options = *given;
    options.target = "sm_80";
    options.no_assemble = true;
    out.status = tilec_compile(context, name, text, strlen(text), &options, &artefact, &diagnostics);
    assert_int_equal(out.status == TILEC_OK, artefact != NULL);
    tilec_diagnostics_get(diagnostics, 0, &first);
    out.code = first.code;
    snprintf(out.message, sizeof out.message, "%s", first.message);
    tilec_diagnostics_destroy(diagnostics);
    tilec_artefact_destroy(artefact);
    return out;
}

static Compile compile(const TilecCompileOptions *options, const char *name, const char *text) {
    TilecContext *context;
    assert_int_equal(tilec_context_create(NULL, &context), TILEC_OK);
    Compile out = compile_in(context, options, name, text);
    tilec_context_destroy(context);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);   // nothing is left behind
    return out;
}

static void write_script(int fd, const char *script, mode_t mode) {
    assert_true(fd >= 0);
    dprintf(fd, "#!/bin/sh\n%s\n", script);
    fchmod(fd, mode);
    close(fd);
}

// A program in the place of the compiler, which reads nothing.
static Compile compile_with(const char *script, TilecCompileOptions options) {
    char path[] = "/tmp/tilec_XXXXXX";
    write_script(mkstemp(path), script, 0700);
    options.compiler = path;
    if (!options.repro_dir) options.repro_dir = "/tmp";
    Compile out = compile(&options, "a.tile", source);
    unlink(path);
    return out;
}

static Compile compile_with_script(const char *script, int64_t time_limit) {
    TilecCompileOptions options = TILEC_INIT(TilecCompileOptions);
    options.time_limit = time_limit;
    return compile_with(script, options);
}

static void test_no_compiler(void **state) {   // covers T0820
    (void)state;
    TilecCompileOptions options = TILEC_INIT(TilecCompileOptions);
    static const char *const paths[] = {"/nowhere/tilec", "/", "/dev/null", ""};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        options.compiler = paths[i];
        Compile done = compile(&options, "a.tile", source);
        assert_int_equal(done.status, TILEC_ERROR_ENVIRONMENT);
        assert_int_equal(done.code, 820);
    }
    static const char *const scripts[] = {"exit 0", "exit 1", "exec 0<&-; sleep 0.1; exit 2",
                                          "printf 'tilec of another version, which has a longer name' >&0; exit 0"};
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++) {
        Compile done = compile_with_script(scripts[i], 0);
        assert_int_equal(done.status, TILEC_ERROR_ENVIRONMENT);
        assert_int_equal(done.code, 820);
    }
}

static void test_ended(void **state) {
    (void)state;
    static const char *const crashes[] = {"BUS", "ABRT", "ILL", "FPE"};
    for (size_t i = 0; i < sizeof crashes / sizeof *crashes; i++) {
        char script[40];
        snprintf(script, sizeof script, "kill -%s $$", crashes[i]);
        Compile done = compile_with_script(script, 0);
        assert_int_equal(done.status, TILEC_ERROR_INTERNAL);
        assert_int_equal(done.code, 822);
    }
    Compile done = compile_with_script("kill -KILL $$", 0);   // covers T0821
    assert_int_equal(done.status, TILEC_ERROR_ENVIRONMENT);
    assert_int_equal(done.code, 821);
    done = compile_with_script("kill -SEGV $$", 0);   // covers T0822
    assert_int_equal(done.status, TILEC_ERROR_INTERNAL);
    assert_int_equal(done.code, 822);
    assert_non_null(strstr(done.message, "signal 11"));
    assert_int_equal(access("/tmp/a.crash.repro.tile", F_OK), 0);
    unlink("/tmp/a.crash.repro.tile");
    done = compile_with_script("exit 3", 0);
    assert_int_equal(done.status, TILEC_ERROR_ENVIRONMENT);
    assert_int_equal(done.code, 9902);
}

// The text of a crash has the defines; a folder that is not there is no second error.
static void test_crash_kept(void **state) {
    (void)state;
    static const TilecDefine defines[] = {{"BLOCK", "64"}, {"E", "bf16"}};
    TilecCompileOptions options = TILEC_INIT(TilecCompileOptions);
    char text[400] = "";
    options.define_count = 2;
    options.defines = defines;
    assert_int_equal(compile_with("kill -SEGV $$", options).code, 822);
    FILE *file = fopen("/tmp/a.crash.repro.tile", "r");
    assert_non_null(file);
    assert_true(fread(text, 1, sizeof text - 1, file) > 0);
    fclose(file);
    unlink("/tmp/a.crash.repro.tile");
    assert_non_null(strstr(text, "-D BLOCK=64 -D E=bf16"));
    assert_non_null(strstr(text, source));
    options.repro_dir = "/nowhere/at/all";
    assert_int_equal(compile_with("kill -SEGV $$", options).code, 822);
}

static void test_time_limit(void **state) {   // covers T0823
    (void)state;
    Compile done = compile_with_script("sleep 100", 50);
    assert_int_equal(done.status, TILEC_ERROR_ENVIRONMENT);
    assert_int_equal(done.code, 823);
}

static bool at_third(void *user) {
    return ++*(int *)user == 3;
}

static void test_cancelled(void **state) {   // covers T0933
    (void)state;
    int asked = 0;
    TilecCompileOptions options = TILEC_INIT(TilecCompileOptions);
    options.cancelled = at_third;
    options.cancelled_user = &asked;
    Compile done = compile_with("sleep 100", options);
    assert_int_equal(done.status, TILEC_CANCELLED);
    assert_int_equal(done.code, 933);
    assert_int_equal(asked, 3);
}

// A request larger than the buffer of the socket, which the other side does not read.
static void test_unread_request(void **state) {
    (void)state;
    enum { BYTES = 1 << 24 };
    char path[] = "/tmp/tilec_XXXXXX";
    int64_t bytes = BYTES;
    void *data = calloc(1, BYTES);
    TilecArg arg = tilec_tensor(TILEC_U8, data, 1, &bytes);
    TilecContext *context;
    assert_int_equal(tilec_context_create(NULL, &context), TILEC_OK);
    write_script(mkstemp(path), "sleep 100", 0700);
    for (int limited = 0; limited < 2; limited++) {
        int asked = 0;
        TilecCompileOptions options = TILEC_INIT(TilecCompileOptions);
        options.compiler = path;
        options.time_limit = limited ? 50 : 0;
        options.cancelled = limited ? NULL : at_third;
        options.cancelled_user = &asked;
        assert_int_equal(tilec_emulate(context, "a.tile", source, strlen(source), &options, "f", &arg, 1, NULL, NULL),
                         limited ? TILEC_ERROR_ENVIRONMENT : TILEC_CANCELLED);
    }
    tilec_context_destroy(context);
    unlink(path);
    free(data);
}

static bool runs(pid_t process) {
    char path[64], state = 'Z';
    snprintf(path, sizeof path, "/proc/%d/stat", (int)process);
    FILE *file = fopen(path, "r");
    if (file && fscanf(file, "%*d %*s %c", &state) != 1) state = 'Z';
    if (file) fclose(file);
    return state != 'Z';
}

// A cancelled compile returns soon, and its ptxas is gone. The time is the best of some, for a busy machine.
static bool when_there(void *user) {
    return access(user, F_OK) == 0;
}

static void test_cancelled_assembler(void **state) {
    (void)state;
    char folder[] = "/tmp/tilec_XXXXXX", ptxas[64], started[64], script[300];
    double best = 1e9;
    assert_non_null(mkdtemp(folder));
    snprintf(ptxas, sizeof ptxas, "%s/ptxas", folder);
    snprintf(started, sizeof started, "%s/started", folder);
    snprintf(script, sizeof script, "#!/bin/sh\necho $$ > %s.new; mv %s.new %s; sleep 100\n", started, started,
             started);
    FILE *file = fopen(ptxas, "w");
    fputs(script, file);
    fclose(file);
    chmod(ptxas, 0700);
    for (int i = 0; i < 5; i++) {
        TilecCompileOptions options = TILEC_INIT(TilecCompileOptions);
        options.target = "sm_80";
        options.ptxas = ptxas;
        options.cancelled = when_there;
        options.cancelled_user = started;
        TilecContext *context;
        TilecArtefact *artefact;
        assert_int_equal(tilec_context_create(NULL, &context), TILEC_OK);
        TilecStatus status = tilec_compile(context, "a.tile", source, strlen(source), &options, &artefact, NULL);
        struct stat info;
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        assert_int_equal(status, TILEC_CANCELLED);
        assert_int_equal(stat(started, &info), 0);
        double seconds =
            (double)(now.tv_sec - info.st_ctim.tv_sec) + 1e-9 * (double)(now.tv_nsec - info.st_ctim.tv_nsec);
        if (seconds < best) best = seconds;
        int id = 0, milliseconds = 10000;
        file = fopen(started, "r");
        assert_int_equal(fscanf(file, "%d", &id), 1);
        fclose(file);
        while (runs(id) && milliseconds--) usleep(1000);   // its signal is on the way
        assert_true(milliseconds > 0);
        unlink(started);
        tilec_context_destroy(context);
    }
    print_message("cancelled within %.1f ms\n", 1e3 * best);
    assert_true(best < 0.05);
    unlink(ptxas);
    rmdir(folder);
}

// ---- phases and threads ----

static void add_phase(void *user, const char *phase) {
    strcat(strcat(user, phase), " ");
}

static void test_phases(void **state) {
    (void)state;
    char said[200] = "";
    TilecCompileOptions options = TILEC_INIT(TilecCompileOptions);
    options.progress = add_phase;
    options.progress_user = said;
    assert_int_equal(compile(&options, "a.tile", source).status, TILEC_OK);
    assert_string_equal(said, "elaborate passes codegen ");
    said[0] = 0;
    assert_int_equal(compile(&options, "a.tile", "kernel").status, TILEC_ERROR_SOURCE);
    assert_string_equal(said, "");
}

static void keep_line(void *user, const char *line) {
    snprintf(user, 200, "%s", line);
}

static TilecStatus compile_and_log(TilecContext *context, const char *text, const char *cache, char *line) {
    TilecCompileOptions options = TILEC_INIT(TilecCompileOptions);
    TilecArtefact *artefact;
    options.target = "sm_80";
    options.no_assemble = true;
    options.cache = cache;
    options.log = keep_line;
    options.log_user = line;
    line[0] = 0;
    TilecStatus status = tilec_compile(context, "a.tile", text, strlen(text), &options, &artefact, NULL);
    tilec_artefact_destroy(artefact);
    return status;
}

static void test_log(void **state) {
    (void)state;
    char folder[] = "/tmp/tilec_XXXXXX", line[200], remove[100];
    TilecContext *contexts[2];
    assert_non_null(mkdtemp(folder));
    for (int i = 0; i < 2; i++) assert_int_equal(tilec_context_create(NULL, &contexts[i]), TILEC_OK);
    assert_int_equal(compile_and_log(contexts[0], source, folder, line), TILEC_OK);
    assert_memory_equal(line, "a.tile for sm_80: compiled, ", 28);
    assert_int_equal(compile_and_log(contexts[0], source, folder, line), TILEC_OK);
    assert_memory_equal(line, "a.tile for sm_80: from the context's memory, ", 45);
    assert_int_equal(compile_and_log(contexts[1], source, folder, line), TILEC_OK);
    assert_memory_equal(line, "a.tile for sm_80: from the compile cache, ", 42);
    assert_int_equal(compile_and_log(contexts[1], "kernel", folder, line), TILEC_ERROR_SOURCE);
    assert_memory_equal(line, "a.tile for sm_80: the source, an argument or a test is wrong, ", 62);
    for (int i = 0; i < 2; i++) tilec_context_destroy(contexts[i]);
    snprintf(remove, sizeof remove, "rm -r %s", folder);
    assert_int_equal(system(remove), 0);
}

// The mask that the compiling process has.
static int processors_of_compiler(int threads) {
    char path[] = "/tmp/tilec_XXXXXX", script[300], text[64];
    int fd = mkstemp(path), count = 0;
    assert_true(fd >= 0);
    snprintf(script, sizeof script, "#!/bin/sh\nnproc > %s.n\n", path);
    dprintf(fd, "%s", script);
    fchmod(fd, 0700);
    close(fd);
    TilecCompileOptions options = TILEC_INIT(TilecCompileOptions);
    options.threads = threads;
    options.target = "sm_80";
    options.ptxas = path;   // which fails
    TilecContext *context;
    TilecArtefact *artefact;
    assert_int_equal(tilec_context_create(NULL, &context), TILEC_OK);
    tilec_compile(context, "a.tile", source, strlen(source), &options, &artefact, NULL);
    tilec_context_destroy(context);
    snprintf(text, sizeof text, "%s.n", path);
    FILE *file = fopen(text, "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%d", &count), 1);
    fclose(file);
    unlink(text);
    unlink(path);
    return count;
}

static void test_threads(void **state) {
    (void)state;
    cpu_set_t mine;
    sched_getaffinity(0, sizeof mine, &mine);
    assert_int_equal(processors_of_compiler(0), CPU_COUNT(&mine));
    assert_int_equal(processors_of_compiler(1), 1);
    assert_int_equal(processors_of_compiler(100000), CPU_COUNT(&mine));
}

// A later compile of a context takes the process of an earlier one, in the caller's folder of then.
static void test_kept(void **state) {
    (void)state;
    TilecContext *context;
    TilecCompileOptions options = TILEC_INIT(TilecCompileOptions);
    char folder[] = "/tmp/tilec_XXXXXX";
    int here = open(".", O_RDONLY);
    assert_non_null(mkdtemp(folder));
    assert_int_equal(tilec_context_create(NULL, &context), TILEC_OK);
    assert_int_equal(compile_in(context, &options, "a.tile", source).status, TILEC_OK);
    assert_int_equal(chdir(folder), 0);
    FILE *file = fopen("one.tile", "w");
    fputs("const ONE = 1;", file);
    fclose(file);
    char text[200];
    snprintf(text, sizeof text, "import \"one.tile\"; %s", source);
    assert_int_equal(compile_in(context, &options, "a.tile", text).status, TILEC_OK);
    assert_int_equal(compile_in(context, &options, "a.tile", "kernel").status, TILEC_ERROR_SOURCE);
    assert_int_equal(compile_in(context, &options, "a.tile", source).status, TILEC_OK);
    remove("one.tile");
    assert_int_equal(fchdir(here), 0);
    close(here);
    rmdir(folder);

    pid_t child = fork();   // shares the context, and is to have processes of its own
    if (child == 0) {
        Compile done = compile_in(context, &options, "a.tile", source);
        tilec_context_destroy(context);
        _exit(done.status == TILEC_OK ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(compile_in(context, &options, "a.tile", source).status, TILEC_OK);
    tilec_context_destroy(context);
}

// The process of the last compile; 0: this kernel does not list children.
static pid_t compiling_process(void) {
    char path[64];
    int id = 0;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)getpid(), (int)getpid());
    FILE *file = fopen(path, "r");
    if (!file || fscanf(file, "%d", &id) != 1) id = 0;
    if (file) fclose(file);
    return id;
}

static int children(void) {
    char path[64];
    int count = 0, id;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)getpid(), (int)getpid());
    FILE *file = fopen(path, "r");
    while (file && fscanf(file, "%d", &id) == 1) count++;
    if (file) fclose(file);
    return count;
}

// Another program under the name, or under another name, is another compiler; one that is gone is none.
static void test_other_program(void **state) {
    (void)state;
    TilecContext *context;
    TilecCompileOptions options = TILEC_INIT(TilecCompileOptions);
    char folder[] = "/tmp/tilec_XXXXXX", first[64], second[64], script[300];
    options.cache = "off";
    assert_non_null(mkdtemp(folder));
    snprintf(first, sizeof first, "%s/first", folder);
    snprintf(second, sizeof second, "%s/second", folder);
    snprintf(script, sizeof script, "exec %s \"$@\"", getenv("TILEC_COMPILER"));
    write_script(open(first, O_WRONLY | O_CREAT, 0700), script, 0700);
    write_script(open(second, O_WRONLY | O_CREAT, 0700), script, 0700);
    assert_int_equal(tilec_context_create(NULL, &context), TILEC_OK);
    options.compiler = first;
    assert_int_equal(compile_in(context, &options, "a.tile", source).status, TILEC_OK);
    options.compiler = second;
    assert_int_equal(compile_in(context, &options, "a.tile", source).status, TILEC_OK);
    assert_int_equal(unlink(second), 0);
    write_script(open(second, O_WRONLY | O_CREAT, 0700), "exit 0", 0700);
    assert_int_equal(compile_in(context, &options, "a.tile", source).code, 820);
    write_script(open(second, O_WRONLY | O_TRUNC), script, 0600);   // not executable
    assert_int_equal(compile_in(context, &options, "a.tile", source).code, 820);
    chmod(second, 0700);
    assert_int_equal(compile_in(context, &options, "a.tile", source).status, TILEC_OK);
    assert_int_equal(unlink(second), 0);
    assert_int_equal(compile_in(context, &options, "a.tile", source).code, 820);
    tilec_context_destroy(context);
    unlink(first);
    rmdir(folder);
}

// A host without file descriptors gets a diagnostic, and a compiler as soon as there are enough.
static void test_few_descriptors(void **state) {
    (void)state;
    struct rlimit before, few;
    TilecCompileOptions options = TILEC_INIT(TilecCompileOptions);
    int last = open("/dev/null", O_RDONLY), failed = 0;
    close(last);
    options.cache = "off";
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    for (int more = 0; more < 8; more++) {
        few = before;
        few.rlim_cur = (rlim_t)(last + more);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
        Compile done = compile(&options, "a.tile", source);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
        failed += done.status != TILEC_OK;
        if (done.status != TILEC_OK) assert_int_equal(done.status, TILEC_ERROR_ENVIRONMENT);
    }
    assert_in_range(failed, 3, 7);   // two ends of a socket and a copy of one, at least
}

// More compiles at a time than processes are kept.
typedef struct Meeting {
    TilecContext *context;
    pthread_barrier_t all;
} Meeting;

static void meet(void *user, const char *phase) {
    if (strcmp(phase, "passes") == 0) pthread_barrier_wait(&((Meeting *)user)->all);
}

static void *compile_and_meet(void *user) {
    Meeting *at = user;
    TilecCompileOptions options = TILEC_INIT(TilecCompileOptions);
    options.cache = "off";
    options.progress = meet;
    options.progress_user = at;
    return compile_in(at->context, &options, "a.tile", source).status == TILEC_OK ? at : NULL;
}

static void test_many_at_a_time(void **state) {
    (void)state;
    enum { THREADS = 10, KEPT = 8 };
    Meeting at;
    pthread_t threads[THREADS];
    assert_int_equal(tilec_context_create(NULL, &at.context), TILEC_OK);
    assert_int_equal(pthread_barrier_init(&at.all, NULL, THREADS), 0);
    for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&threads[i], NULL, compile_and_meet, &at), 0);
    for (int i = 0; i < THREADS; i++) {
        void *done;
        assert_int_equal(pthread_join(threads[i], &done), 0);
        assert_ptr_equal(done, &at);
    }
    assert_true(children() <= KEPT);
    pthread_barrier_destroy(&at.all);
    tilec_context_destroy(at.context);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
}

// Where the compiler is: as the variable says, next to this program, or on PATH.
static void test_find(void **state) {
    Arena *arena = *state;
    char folder[] = "/tmp/tilec_XXXXXX", program[64];
    const char *given = arena_strdup(arena, getenv("TILEC_COMPILER")), *path = arena_strdup(arena, getenv("PATH"));
    assert_non_null(mkdtemp(folder));
    snprintf(program, sizeof program, "%s/tilec", folder);
    assert_string_equal(compiler_find(arena), given);
    setenv("TILEC_COMPILER", "", 1);
    setenv("PATH", folder, 1);
    const char *near = compiler_find(arena);   // of a build tree, which may have one in a folder above
    write_script(open(program, O_WRONLY | O_CREAT, 0700), "exit 0", 0600);
    assert_true(!near == !compiler_find(arena));
    chmod(program, 0700);
    assert_string_equal(compiler_find(arena), near ? near : program);
    unsetenv("TILEC_COMPILER");
    assert_string_equal(compiler_find(arena), near ? near : program);
    unlink(program);
    rmdir(folder);
    if (!near) {
        TilecCompileOptions options = TILEC_INIT(TilecCompileOptions);
        assert_int_equal(compile(&options, "a.tile", source).code, 820);
    }
    setenv("TILEC_COMPILER", given, 1);
    setenv("PATH", path, 1);
}

// One that ended while nobody asked it is replaced.
static void test_replaced(void **state) {
    (void)state;
    TilecContext *context;
    TilecCompileOptions options = TILEC_INIT(TilecCompileOptions);
    assert_int_equal(tilec_context_create(NULL, &context), TILEC_OK);
    assert_int_equal(compile_in(context, &options, "a.tile", source).status, TILEC_OK);
    siginfo_t info;
    pid_t process = compiling_process();
    if (process > 0 && kill(process, SIGKILL) == 0) waitid(P_PID, (id_t)process, &info, WEXITED | WNOWAIT);
    assert_int_equal(compile_in(context, &options, "a.tile", source).status, TILEC_OK);
    tilec_context_destroy(context);
}

// A host that ends, in whatever way, leaves no process.
static void test_host_ends(void **state) {
    (void)state;
    int to_us[2], milliseconds = 10000;
    pid_t process = 0;
    assert_int_equal(pipe(to_us), 0);
    pid_t host = fork();
    if (host == 0) {
        TilecContext *context;
        TilecCompileOptions options = TILEC_INIT(TilecCompileOptions);
        if (tilec_context_create(NULL, &context) == TILEC_OK) compile_in(context, &options, "a.tile", source);
        process = compiling_process();
        if (write(to_us[1], &process, sizeof process) < 0) _exit(1);
        raise(SIGKILL);
    }
    close(to_us[1]);
    assert_int_equal(read(to_us[0], &process, sizeof process), sizeof process);
    close(to_us[0]);
    waitpid(host, NULL, 0);
    while (process > 0 && runs(process) && milliseconds--) usleep(1000);
    assert_true(milliseconds > 0);
}

// A host that ignores its children, and has signals blocked.
static void test_careless_host(void **state) {
    (void)state;
    sigset_t all, before;
    TilecCompileOptions options = TILEC_INIT(TilecCompileOptions);
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    signal(SIGCHLD, SIG_IGN);
    Compile done = compile(&options, "a.tile", source);
    signal(SIGCHLD, SIG_DFL);
    sigprocmask(SIG_SETMASK, &before, NULL);
    assert_int_equal(done.status, TILEC_OK);
}

#ifndef __SANITIZE_ADDRESS__   // whose shadow memory is over every limit
static void test_memory_limit(void **state) {
    (void)state;
    TilecCompileOptions options = TILEC_INIT(TilecCompileOptions);
    for (int64_t limit = 1; limit <= 1LL << 40; limit *= 4) {
        options.memory_limit = limit;
        Compile done = compile(&options, "a.tile", source);
        if (done.status == TILEC_OK) continue;
        assert_int_equal(done.status, TILEC_ERROR_ENVIRONMENT);
        assert_true(done.code == 9902 || done.code == 0);
        assert_true(limit < 1LL << 30);
    }
}
#endif

static void test_import_root(void **state) {
    (void)state;
    TilecCompileOptions options = TILEC_INIT(TilecCompileOptions);
    char folder[] = "/tmp/tilec_XXXXXX", path[100], name[100];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/one.tile", folder);
    snprintf(name, sizeof name, "%s/a.tile", folder);
    FILE *file = fopen(path, "w");
    fputs("const ONE = 1;", file);
    fclose(file);
    char text[200];
    snprintf(text, sizeof text, "import \"../%s/./one.tile\"; %s", folder + strlen("/tmp/"), source);
    options.import_root = folder;
    assert_int_equal(compile(&options, name, text).status, TILEC_OK);
    options.import_root = "/usr";
    assert_int_equal(compile(&options, name, text).code, 109);
    options.import_root = "/";
    assert_int_equal(compile(&options, name, text).status, TILEC_OK);
    remove(path);
    rmdir(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {IN_ARENA(test_request),
                                       IN_ARENA(test_damaged_reply),
                                       cmocka_unit_test(test_no_compiler),
                                       cmocka_unit_test(test_ended),
                                       cmocka_unit_test(test_crash_kept),
                                       cmocka_unit_test(test_time_limit),
                                       cmocka_unit_test(test_cancelled),
                                       cmocka_unit_test(test_unread_request),
                                       cmocka_unit_test(test_cancelled_assembler),
                                       cmocka_unit_test(test_phases),
                                       cmocka_unit_test(test_log),
                                       cmocka_unit_test(test_threads),
                                       cmocka_unit_test(test_kept),
                                       cmocka_unit_test(test_replaced),
                                       cmocka_unit_test(test_other_program),
                                       cmocka_unit_test(test_few_descriptors),
                                       cmocka_unit_test(test_many_at_a_time),
                                       IN_ARENA(test_find),
                                       cmocka_unit_test(test_host_ends),
                                       cmocka_unit_test(test_careless_host),
#ifndef __SANITIZE_ADDRESS__
                                       cmocka_unit_test(test_memory_limit),
#endif
                                       cmocka_unit_test(test_import_root)};
    return run(tests);
}
