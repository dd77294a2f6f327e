#include "runtime/worker/serve.h"
#include "runtime/api/arguments.h"
#include "runtime/api/status.h"
#include "runtime/compile/compile.h"
#include "runtime/compile/layouts.h"
#include "runtime/compile/repro.h"
#include "runtime/worker/compiler.h"
#include "runtime/worker/emulate.h"
#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
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
    options.optimize = (int)request->optimize;
    options.lines = request->lines;
    options.pdl = request->pdl;
    options.independent = request->independent;
    options.ptxas = request->ptxas;
    options.upto = request->assemble ? UPTO_CUBIN : UPTO_PTX;
    options.passes.remarks = request->remarks;
    options.passes.talk = NULL;
    options.phases = answer->phases;
    options.repro = repro_path(arena, request->repro_dir, request->name);
    return options;
}

static const LaunchFor *launch_of(Answer *answer, const RecordValues *values) {
    const CompileRequest *request = answer->request;
    LaunchFor *launch = NEW(answer->job.arena, LaunchFor);
    *launch = (LaunchFor){.kernel = request->kernel, .count = (int)request->arg_count, .values = values};
    launch->multiprocessors = (int)request->multiprocessors;
    LaunchArg *args = NEW_ARRAY(answer->job.arena, LaunchArg, launch->count + 1);
    for (int i = 0; i < launch->count; i++) args[i] = argument_read(&request->args[i].arg);
    if (request->args && !request->for_shape) launch->args = args;
    return launch;
}

static Loader loader_of(Answer *answer, const Target *target, Record *record, RecordValues *shape) {
    const CompileRequest *request = answer->request;
    Job *job = &answer->job;
    Loader loader = {.arena = job->arena, .failure = &job->failure, .sink = job->sink, .target = target};
    loader.import_root = request->import_root;
    loader.variants = (int)request->variants;
    if (request->record) {
        record_parse(job->arena, job->sink, request->record, request->record_text, record);
        loader.record_path = request->record;
        loader.record = record;
    }
    for (int64_t i = 0; i < request->shape_count; i++) vec_push(job->arena, shape, request->shape[i]);
    if (request->for_shape) loader.shape = shape;
    if (request->for_launch) loader.launch = launch_of(answer, shape), loader.problem = launch_problem;
    return loader;
}

static void add_imports(Answer *answer, const Loader *loader) {
    int count = loader->imports.count;
    CompileImport *imports = NEW_ARRAY(answer->arena, CompileImport, count + 1);
    for (int i = 0; i < count; i++) {
        const ImportedFile *import = &loader->imports.items[i];
        imports[i].path = arena_strdup(answer->arena, import->path);
        imports[i].text = arena_strndup(answer->arena, import->file.text, import->file.length);
        imports[i].length = import->file.length;
    }
    answer->reply.imports = imports;
    answer->reply.import_count = count;
}

static void add_products(Answer *answer, const Compiled *compiled) {
    CompileReply *reply = &answer->reply;
    reply->ptx = arena_strdup(answer->arena, compiled->ptx);
    reply->manifest = arena_strdup(answer->arena, compiled->manifest);
    reply->cubin_size = compiled->packed_size;
    if (compiled->packed) reply->cubin = arena_copy(answer->arena, compiled->packed, compiled->packed_size);
}

// A plan without kernels, with what the source declares.
static TilecStatus declare_source(Answer *answer, Loader *loader) {
    const CompileRequest *request = answer->request;
    StrBuf declarations, manifest;
    if (!loader_open_text(loader, request->name, request->text, request->length)) return status_of(answer->job.sink, 0);
    sb_init(&declarations, answer->arena);
    sb_init(&manifest, answer->arena);
    syntax_declarations(loader->syntax, &declarations);
    const Plan plan = {
        .producer = TILEC_VERSION, .target = loader->target->name, .declarations = sb_text(&declarations)};
    plan_write(&plan, &manifest);
    add_imports(answer, loader);
    answer->reply.manifest = sb_text(&manifest);
    answer->reply.ptx = "";
    return TILEC_OK;
}

static const char *const layouts_forms[] = {[LAYOUTS_TEXT] = "text", [LAYOUTS_SVG] = "svg", [LAYOUTS_HTML] = "html"};

// False: reported. A compile of its own, since later passes remove the layouts.
static bool add_layouts(Answer *answer, Loader *loader, const CompileOptions *options) {
    const char *asked = answer->request->layouts;
    LayoutsForm form = LAYOUTS_TEXT;
    while (form < COUNT_OF(layouts_forms) && strcmp(layouts_forms[form], asked) != 0) form++;
    if (form == COUNT_OF(layouts_forms)) {
        diag(answer->job.sink, (Span){0}, T_MISUSE, "the option `layouts` is one of text, svg, html");
        return false;
    }
    CompileOptions upto = *options;
    Compiled compiled;
    StrBuf out;
    upto.upto = UPTO_PASSES;
    upto.passes = (PassOptions){.stop_after = "swizzle-allocation", .bisect_limit = -1};
    int said = diag_count(answer->job.sink);
    if (!compile(loader, answer->job.arena, &upto, &compiled)) return false;
    diag_truncate(answer->job.sink, said);   // the whole compile says it again
    sb_init(&out, answer->arena);
    const char *name = path_stem(answer->job.arena, answer->request->name);
    emit_layouts(compiled.module, options->target, name, form, &out);
    answer->reply.layouts = sb_text(&out);
    return true;
}

typedef struct Listed {
    Answer *answer;
    Loader *loader;
    CompileOptions *options;
    Compiled *out;
    char *text;
    size_t size;
} Listed;

static bool compile_listed(void *user) {
    const Listed *l = user;
    return compile(l->loader, l->answer->job.arena, l->options, l->out);
}

static void end_listing(void *user) {
    Listed *l = user;
    if (l->options->passes.talk) fclose(l->options->passes.talk);
}

// A compile that lists the program after passes, where that is asked for. False: reported.
static bool compile_listing(Answer *answer, Loader *loader, CompileOptions *options, Compiled *out) {
    Listed listed = {.answer = answer, .loader = loader, .options = options, .out = out};
    options->passes.print_after = answer->request->print_after;
    if (options->passes.print_after) options->passes.talk = open_memstream(&listed.text, &listed.size);
    bool ok = fail_scope(&answer->job.failure, compile_listed, end_listing, &listed);
    if (listed.text) answer->reply.listing = arena_strndup(answer->arena, listed.text, listed.size);
    free(listed.text);
    return ok;
}

static TilecStatus compile_source(Answer *answer) {
    const CompileRequest *request = answer->request;
    Job *job = &answer->job;
    const Target *target = request->target ? target_named(request->target) : NULL;
    if (!target) {
        diag(job->sink, (Span){0}, T_UNKNOWN_TARGET, request->target ? request->target : "");
        return TILEC_ERROR_USAGE;
    }
    CompileOptions options = options_of(answer, target);
    Compiled compiled;
    Record record = {0};
    RecordValues shape = {0};
    Loader loader = loader_of(answer, target, &record, &shape);
    if (request->emulation.kernel) return emulate_source(answer, &loader, &options);
    if (request->declarations) return declare_source(answer, &loader);
    if (!loader_open_text(&loader, request->name, request->text, request->length) ||
        (request->layouts && !add_layouts(answer, &loader, &options)) ||
        !compile_listing(answer, &loader, &options, &compiled)) {
        TilecStatus status = status_of(job->sink, 0);
        return status == TILEC_OK ? TILEC_ERROR_INTERNAL : status;
    }
    add_imports(answer, &loader);
    add_products(answer, &compiled);
    return TILEC_OK;
}

static void add_diagnostics(Answer *answer, const DiagSink *sink) {
    StrBuf bytes;
    sb_init(&bytes, answer->arena);
    diag_write(sink, &bytes);
    answer->reply.diagnostics = bytes.text;
    answer->reply.diagnostics_size = bytes.length;
}

static bool compile_into(void *user) {
    Answer *answer = user;
    answer->reply.status = compile_source(answer);
    return true;
}

// What was said before an internal error helps to find it: that there is a reproducer, for example.
static void after_compile(void *user) {
    Answer *answer = user;
    const Failure *failure = &answer->job.failure;
    if (failure->kind == FAIL_OUT_OF_MEMORY) return;
    if (failure->kind == FAIL_INTERNAL) {
        answer->reply.status = TILEC_ERROR_INTERNAL;
        report_failure(answer->job.sink, arena_strdup(answer->job.arena, failure->message));
    }
    add_diagnostics(answer, answer->job.sink);
}

static TilecStatus answer_in_job(Job *job) {
    Answer *answer = (Answer *)job;
    fail_scope(&job->failure, compile_into, after_compile, answer);
    return (TilecStatus)answer->reply.status;
}

// The status alone, where there is no memory for more.
static void report_no_memory(Answer *answer) {
    answer->reply = (CompileReply){.status = TILEC_ERROR_ENVIRONMENT};
    if (FAILURE_CAUGHT(&answer->job.failure)) return;
    DiagSink *sink = diag_sink_new(answer->arena);
    report_failure(sink, NULL);
    add_diagnostics(answer, sink);
}

void answer_request(const CompileRequest *request, PhaseHook phases, Answer *out) {
    *out = (Answer){.job = {.host = libc_allocator}, .request = request, .reply.status = TILEC_ERROR_ENVIRONMENT};
    out->phases = phases;
    out->arena = arena_new(libc_allocator, &out->job.failure);
    if (!out->arena) return;
    job_run(&out->job, answer_in_job, NULL);
    if (out->job.failure.kind == FAIL_OUT_OF_MEMORY) report_no_memory(out);
}

void answer_free(Answer *answer) {
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

// A reader that is gone is noticed when the reply is sent.
static void tell_phase(void *user, const char *phase) {
    message_send(*(const int *)user, &(MessageWait){0}, MESSAGE_PHASE, phase, strlen(phase));
}

static bool compile_and_reply(Arena *arena, int socket, const CompileRequest *request, const struct rlimit *memory) {
    Answer answer;
    StrBuf message;
    if (request->folder[0] && chdir(request->folder)) return false;
    if (request->processors) sched_setaffinity(0, sizeof *request->processors, request->processors);
    limit_memory(request->memory_limit, memory);
    answer_request(request, (PhaseHook){request->phases ? tell_phase : NULL, &socket}, &answer);
    limit_memory(0, memory);
    sb_init(&message, arena);
    reply_write(&answer.reply, &message);
    bool sent =
        message_send(socket, &(MessageWait){0}, MESSAGE_WHOLE, message.text, message.length) == MESSAGE_COMPLETE;
    answer_free(&answer);
    return sent;
}

static bool serve_one(int socket, const struct rlimit *memory) {
    Failure failure;
    Arena *arena = arena_new(libc_allocator, &failure);
    CompileRequest request;
    Message message;
    if (!arena || FAILURE_CAUGHT(&failure)) _exit(EXIT_NO_MEMORY);
    MessageEnd end = message_receive(arena, socket, &(MessageWait){0}, &message);
    if (end == MESSAGE_OTHER_VERSION)
        message_send(socket, &(MessageWait){0}, MESSAGE_WHOLE, "", 0);   // which names ours
    bool done = end == MESSAGE_COMPLETE && request_read(arena, message.data, message.size, &request) &&
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
