#include "runtime/worker/serve.h"
#include "runtime/api/status.h"
#include "runtime/compile/compile.h"
#include "runtime/worker/compiler.h"
#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

// ---- one compile ----

static CompileOptions options_of(const Answer *answer, const Target *target) {
    const CompileRequest *request = answer->request;
    Arena *arena = answer->job.arena;
    CompileOptions options = compile_options(target);
    Define *defines = NEW_ARRAY(arena, Define, request->define_count + 1);
    for (int64_t i = 0; i < request->define_count; i++)
        defines[i] = (Define){request->defines[i].name, request->defines[i].value};
    options.defines = defines;
    options.define_count = (int)request->define_count;
    options.only = request->only;
    if (request->optimize) options.optimize = (int)request->optimize;   // 0 stands for the default
    options.lines = request->lines;
    options.ptxas = request->ptxas;
    options.upto = request->assemble ? UPTO_CUBIN : UPTO_PTX;
    options.passes.talk = NULL;
    if (request->repro_dir)
        options.repro = arena_printf(arena, "%s/%s", request->repro_dir, path_stem(arena, request->name));
    return options;
}

static TilecStatus compile_source(Job *job) {
    Answer *answer = (Answer *)job;
    const CompileRequest *request = answer->request;
    const Target *target = request->target ? target_named(request->target) : NULL;
    if (!target) {
        diag(job->sink, (Span){0}, T_UNKNOWN_TARGET, request->target ? request->target : "");
        return TILEC_ERROR_USAGE;
    }
    CompileOptions options = options_of(answer, target);
    Loader loader = {.arena = job->arena, .failure = &job->failure, .sink = job->sink, .target = target};
    Compiled compiled;
    Record record;
    loader.import_root = request->import_root;
    loader.record_path = request->record;
    loader.record = request->record ? &record : NULL;
    if ((loader.record && !record_read(job->arena, job->sink, loader.record_path, true, &record)) ||
        !loader_open_text(&loader, request->name, request->text, request->length) ||
        !compile(&loader, job->arena, &options, &compiled)) {
        TilecStatus status = status_of(job->sink, 0);
        return status == TILEC_OK ? TILEC_ERROR_INTERNAL : status;
    }
    answer->reply.ptx = arena_strdup(answer->arena, compiled.ptx);
    answer->reply.manifest = arena_strdup(answer->arena, compiled.manifest);
    answer->reply.cubin_size = compiled.packed_size;
    if (compiled.packed) answer->reply.cubin = arena_copy(answer->arena, compiled.packed, compiled.packed_size);
    return TILEC_OK;
}

static void add_diagnostics(Answer *answer) {
    CompileReply *reply = &answer->reply;
    size_t count = tilec_diagnostics_count(answer->diagnostics);
    if (!count || FAILURE_CAUGHT(&answer->job.failure)) return;   // the status alone then
    TilecDiagnostic *items = NEW_ARRAY(answer->arena, TilecDiagnostic, count);
    for (size_t i = 0; i < count; i++) {
        items[i].size = sizeof items[i];
        tilec_diagnostics_get(answer->diagnostics, i, &items[i]);
    }
    reply->diagnostics = items;
    reply->count = (int64_t)count;
    reply->text = tilec_diagnostics_text(answer->diagnostics);
    reply->json = tilec_diagnostics_json(answer->diagnostics);
}

void answer_request(const CompileRequest *request, Answer *out) {
    *out = (Answer){.job = {.host = libc_allocator}, .request = request, .reply.status = TILEC_ERROR_ENVIRONMENT};
    out->arena = arena_new(libc_allocator, &out->job.failure);
    if (!out->arena) return;
    TilecStatus status = job_run(&out->job, compile_source, &out->diagnostics);
    if (status != TILEC_OK) out->reply = (CompileReply){0};
    out->reply.status = status;
    add_diagnostics(out);
}

void answer_free(Answer *answer) {
    tilec_diagnostics_destroy(answer->diagnostics);
    arena_free(answer->arena);
}

// ---- a process that does nothing else ----

// The library's end of the socket is closed while a compile runs: its result and that of ptxas have no reader.
static void *watch(void *user) {
    struct pollfd socket = {.fd = *(const int *)user, .events = POLLRDHUP};
    while (poll(&socket, 1, -1) < 0) continue;
    if (getpgrp() == getpid()) kill(0, SIGKILL);
    _exit(TILEC_OK);
}

static void limit_memory(int64_t bytes, const struct rlimit *usual) {
    struct rlimit limit = *usual;
    if (bytes > 0 && (rlim_t)bytes < limit.rlim_cur) limit.rlim_cur = (rlim_t)bytes;
    setrlimit(RLIMIT_DATA, &limit);
}

static bool compile_and_reply(Arena *arena, int socket, const CompileRequest *request, const struct rlimit *memory) {
    Answer answer;
    StrBuf message;
    if (request->folder[0] && chdir(request->folder)) return false;
    sched_setaffinity(0, sizeof *request->processors, request->processors);
    limit_memory(request->memory_limit, memory);
    answer_request(request, &answer);
    limit_memory(0, memory);
    sb_init(&message, arena);
    reply_write(&answer.reply, &message);
    bool sent = message_send(socket, message.text, message.length);
    answer_free(&answer);
    return sent;
}

static bool serve_one(int socket, const struct rlimit *memory) {
    Failure failure;
    Arena *arena = arena_new(libc_allocator, &failure);
    CompileRequest request;
    const char *data;
    size_t size;
    if (!arena || FAILURE_CAUGHT(&failure)) _exit(EXIT_NO_MEMORY);
    MessageEnd end = message_receive(arena, socket, &(MessageWait){0}, &data, &size);
    if (end == MESSAGE_OTHER_VERSION) message_send(socket, "", 0);   // which names ours
    bool done = end == MESSAGE_COMPLETE && request_read(arena, data, size, &request) &&
                compile_and_reply(arena, socket, &request, memory);
    arena_free(arena);
    malloc_trim(0);
    return done;
}

bool can_serve(int fd) {
    struct stat info;
    return fstat(fd, &info) == 0 && S_ISSOCK(info.st_mode);
}

int serve_compiles(int socket) {
    pthread_t watcher;
    struct rlimit memory;
    getrlimit(RLIMIT_DATA, &memory);
    if (pthread_create(&watcher, NULL, watch, &socket)) return EXIT_NO_MEMORY;
    while (serve_one(socket, &memory)) continue;
    return TILEC_OK;
}
