// tilec_compile and tilec_emulate. A compile gives the artefact of an earlier compile, else what runtime/cache/ has, else what a process of runtime/worker/
// makes.
#include "runtime/api/api.h"
#include "runtime/api/arguments.h"
#include "runtime/api/recent.h"
#include "runtime/api/status.h"
#include "support/files.h"
#include "target/target.h"
#include <limits.h>
#include <string.h>
#include <unistd.h>

typedef struct CompileJob {
    Job job;
    CompilerPool *compilers;
    Compiler *compiler;   // that works for this job
    RecentArtefacts *recent;
    ProgramHashes programs;
    CacheSettings cache;
    CacheHash key;   // of the request, if it has one
    bool has_key;
    const char *name, *text;
    size_t length;
    TilecCompileOptions options;
    CompileRequest request;
    CompilerOptions asked;
    bool asks;            // a compiler, which nothing that is kept spares
    int64_t start;        // milliseconds_now
    const char *how;      // the result was had
    const char *kernel;   // NULL: compiled for any launch; else for one, with
    const TilecArg *args;
    size_t count;
    TilecArtefact **out;
} CompileJob;

static CompileRequest request_of(const CompileJob *c, const char *folder, const cpu_set_t *processors) {
    const TilecCompileOptions *options = &c->options;
    return (CompileRequest){
        .name = c->name,
        .text = c->text,
        .length = c->length,
        .folder = folder,
        .target = options->target,
        .only = options->only,
        .ptxas = options->ptxas || options->no_assemble ? options->ptxas : assembler_find(c->job.arena),
        .record = options->record,
        .repro_dir = options->repro_dir,
        .import_root = options->import_root,
        .define_count = (int64_t)options->define_count,
        .defines = options->defines,
        .optimize = options->optimize ? options->optimize : 1,
        .lines = !options->no_lines,
        .assemble = !options->no_assemble,
        .remarks = options->remarks,
        .pdl = options->pdl,
        .independent = options->independent,
        .phases = options->progress != NULL,
        .declarations = options->declarations,
        .print_after = options->print_after,
        .layouts = options->layouts,
        .memory_limit = options->memory_limit,
        .processors = processors,
    };
}

// The source of a compile that crashed, with the command that shows it.
static void keep_source(CompileJob *c) {
    static const char mark[] = "crash";
    Job *job = &c->job;
    const TilecCompileOptions *options = &c->options;
    StrBuf text;
    sb_init(&text, job->arena);
    const char *path =
        arena_printf(job->arena, "%s/%s.%s.repro.tile", options->repro_dir, path_stem(job->arena, c->name), mark);
    sb_printf(&text, "// A crash of tilec %s, shown by:\n//   tilec build --target=%s%s", tilec_version(),
              options->target, options->no_assemble ? " --emit=ptx" : "");
    for (size_t i = 0; i < options->define_count; i++)
        sb_printf(&text, " -D %s=%s", options->defines[i].name, options->defines[i].value);
    sb_printf(&text, " -o /dev/null %s\n\n", path);
    sb_bytes(&text, c->text, c->length);
    if (file_write(job->arena, job->sink, path, text.text, text.length))
        diag(job->sink, (Span){0}, T_REPRODUCER, mark, path);
}

// False: reported.
static bool ask(void *user, CompileReply *reply) {
    CompileJob *c = user;
    c->asks = true;
    if (compiler_ask(c->compilers, c->job.arena, c->job.sink, &c->asked, &c->request, &c->compiler, reply)) return true;
    if (diag_view(c->job.sink, 0).code == T_COMPILER_CRASHED && c->options.repro_dir) keep_source(c);
    return false;
}

// Hashes of programs are shared by all threads of a context, each of which works with a copy.
static bool key_of(CompileJob *c) {
    RecentArtefacts *recent = c->recent;
    if (!c->cache.on) return false;
    pthread_mutex_lock(&recent->lock);
    c->programs = recent->programs;
    pthread_mutex_unlock(&recent->lock);
    bool ok = cache_key(c->job.arena, &c->cache.store, &c->programs, &c->request, c->asked.path, &c->key);
    pthread_mutex_lock(&recent->lock);
    recent->programs = c->programs;
    pthread_mutex_unlock(&recent->lock);
    return ok;
}

// Tells the programs of a listing, whose form print_kernels of passes/runner.c has.
static void tell_dumps(const CompileJob *c, const char *listing) {
    static const char head[] = "// after ", next_head[] = "\n// after ";
    const TilecCompileOptions *o = &c->options;
    if (!o->dump || !listing) return;
    for (char *at = arena_strdup(c->job.arena, listing), *next; at && strncmp(at, head, strlen(head)) == 0; at = next) {
        char *pass = at + strlen(head), *kernel = strstr(pass, " ("), *end = strstr(pass, ")\n");
        if (!kernel || !end) return;
        *kernel = *end = 0;
        next = strstr(end + 2, next_head);
        if (next) *next++ = 0;
        o->dump(o->dump_user, pass, kernel + 2, end + 2);
    }
}

static bool find_recent(CompileJob *c, CacheHash key) {
    TilecArtefact *found = recent_find(c->recent, key);
    if (!found) return false;
    *c->out = found;   // whose holder the job is now
    if (cache_imports_hold(c->job.arena, found->import_count, found->imports) &&
        diag_read(c->job.sink, found->diagnostics, found->diagnostics_size)) {
        tell_dumps(c, found->listing);
        return true;
    }
    *c->out = NULL;
    artefact_release(found);
    return false;
}

static TilecStatus take_reply(CompileJob *c, const CompileReply *reply) {
    Job *job = &c->job;
    if (!reply_diagnostics(reply, job->sink)) return TILEC_ERROR_INTERNAL;
    tell_dumps(c, reply->listing);
    if (reply->status != TILEC_OK) return (TilecStatus)reply->status;
    TilecStatus status = artefact_make(job, reply, c->out);
    if (status != TILEC_OK || !c->has_key) return status;
    (*c->out)->key = c->key;
    recent_keep(c->recent, *c->out);
    return status;
}

static CachedCompile cached(CompileJob *c) {
    return (CachedCompile){
        &c->cache, &c->request, c->asked.path, &c->programs, c->has_key ? &c->key : NULL, c->asked.until, ask, c};
}

// What is kept of an earlier compile, in memory or on disk.
static bool find_kept(CompileJob *c) {
    CompileReply reply = {0};
    c->has_key = key_of(c);
    const CachedCompile compile = cached(c);
    c->how = "from the context's memory";
    if (c->has_key && find_recent(c, c->key)) return true;
    c->how = "from the compile cache";
    return cache_find(c->job.arena, &compile, &reply) && take_reply(c, &reply) == TILEC_OK;
}

static TilecStatus compile_anew(CompileJob *c) {
    CompileReply reply = {0};
    const CachedCompile compile = cached(c);
    if (!cached_compile(c->job.arena, &compile, &reply)) return status_of(c->job.sink, 0);
    if (c->asks) c->how = "compiled";
    return take_reply(c, &reply);
}

// So many of the processors that the calling thread may use, from the one on that it runs on: compiles of several threads
// take different ones.
static void limit_processors(cpu_set_t *set, int most) {
    cpu_set_t chosen;
    int start = sched_getcpu();
    if (most <= 0 || start < 0) return;
    CPU_ZERO(&chosen);
    for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&chosen) < most; i++) {
        int processor = (start + i) % CPU_SETSIZE;
        if (CPU_ISSET(processor, set)) CPU_SET(processor, &chosen);
    }
    *set = chosen;
}

static bool make_request(CompileJob *c) {
    enum { FOLDER = 4096 };
    Job *job = &c->job;
    FileText record = {0};
    char *folder = arena_alloc(job->arena, FOLDER);
    cpu_set_t *processors = arena_alloc(job->arena, sizeof *processors);
    if (c->length > SOURCE_LIMIT) {   // a wrong length may go beyond what can be read
        diag(job->sink, (Span){0}, T_FILE_TOO_LARGE, c->name,
             (long long)(c->length > INT64_MAX ? INT64_MAX : c->length), (long long)SOURCE_LIMIT);
        return false;
    }
    if (!getcwd(folder, FOLDER)) folder[0] = 0;
    CPU_ZERO(processors);
    sched_getaffinity(0, sizeof *processors, processors);
    limit_processors(processors, c->options.threads);
    if (c->options.record && !record_load(job->arena, job->sink, c->options.record, true, &record)) return false;
    c->request = request_of(c, folder, processors);
    c->request.record_text = record.text;
    c->request.record_length = record.length;
    c->asked.path = c->options.compiler ? c->options.compiler : compiler_find(job->arena);
    c->asked.time_limit = c->options.time_limit;
    c->asked.progress = c->options.progress;
    c->asked.progress_user = c->options.progress_user;
    c->asked.until = (MessageWait){.cancelled = c->options.cancelled, .cancelled_user = c->options.cancelled_user};
    int64_t now = milliseconds_now(), limit = c->options.time_limit;
    if (limit > 0) c->asked.until.deadline = limit > INT64_MAX - now ? INT64_MAX : now + limit;
    return true;
}

static TilecStatus log_end(const CompileJob *c, TilecStatus status) {
    const TilecCompileOptions *o = &c->options;
    if (o->log)
        o->log(o->log_user,
               arena_printf(c->job.arena, "%s for %s: %s, %lld ms", c->name, o->target ? o->target : "no target",
                            status == TILEC_OK ? c->how : tilec_status_text(status),
                            (long long)(milliseconds_now() - c->start)));
    return status;
}

// Of addresses the alignment alone, so that other tensors of the shape find what was compiled.
static void ask_for_launch(CompileJob *c) {
    enum { ALIGNED = 256 };
    SentArgument *args = NEW_ARRAY(c->job.arena, SentArgument, c->count + 1);
    for (size_t i = 0; i < c->count; i++) {
        args[i] = (SentArgument){.arg = argument_at(c->args, i), .same = -1};
        args[i].arg.data = (void *)((uintptr_t)args[i].arg.data % ALIGNED);
        args[i].arg.device = TILEC_ANY_DEVICE;
    }
    c->request.for_launch = true;
    c->request.kernel = c->kernel;
    c->request.multiprocessors = c->options.multiprocessors > 0 ? c->options.multiprocessors : 0;
    c->request.arg_count = (int64_t)c->count;
    c->request.args = args;
}

// Whether a launch with these arguments takes the artefact; false: reported. Types are not sent, and one for any launch knows none.
static bool serves_launch(CompileJob *c) {
    const Plan *plan = (*c->out)->plan;
    const PlanEntry *entry = plan_entry(plan, c->kernel);
    if (!entry) {
        diag(c->job.sink, (Span){0}, T_NO_ENTRY, c->kernel);
        return false;
    }
    int usual = target_named(plan->target)->multiprocessors, given = c->options.multiprocessors;
    const LaunchDevice device = {.multiprocessors = given > 0 ? given : usual, .max_grid = INT_MAX};
    Launch planned;
    const LaunchArg *args = arguments_read(c->job.arena, c->job.sink, entry, c->count, c->args);
    return args && (plan->one_launch || plan_dispatch(c->job.arena, c->job.sink, plan, entry, (int)c->count, args,
                                                      &device, (LaunchMemory){0}, &planned));
}

static TilecStatus compile_elsewhere(Job *job) {
    CompileJob *c = (CompileJob *)job;
    c->cache = cache_settings(job->arena, c->options.cache);
    c->start = milliseconds_now();
    if (!make_request(c)) return log_end(c, status_of(job->sink, 0));
    bool kept = find_kept(c);
    if (!kept && c->kernel) {   // of the whole nothing is kept
        ask_for_launch(c);
        kept = find_kept(c);
    }
    TilecStatus status = kept ? TILEC_OK : compile_anew(c);
    if (status == TILEC_OK && c->kernel && !serves_launch(c)) status = status_of(job->sink, 0);
    return log_end(c, status);
}

// NULL: the call can be made, and c->options are set; else what is wrong with it.
static const char *fault_of(CompileJob *c, const TilecCompileOptions *options) {
    // Fields that an older caller lacks stay zero, the default.
    if (!struct_in(&c->options, sizeof c->options, options)) return "the options have no size: use TILEC_INIT";
    const TilecCompileOptions *o = &c->options;
    if (o->optimize < 0 || o->optimize > 2) return "the option `optimize` is 0, 1 or 2";
    if (o->time_limit < 0 || o->memory_limit < 0 || o->threads < 0 || o->multiprocessors < 0)
        return "a number of the options is below 0";
    bool named = o->define_count == 0 || o->defines;
    for (size_t i = 0; named && i < o->define_count; i++) named = o->defines[i].name && o->defines[i].value;
    return named ? NULL : "a define has no name or no value";
}

static TilecStatus run_compile(TilecContext *context, CompileJob *c, const TilecCompileOptions *options,
                               TilecDiagnostics **diagnostics) {
    c->job.host = context->host;
    c->compilers = &context->compilers;
    c->recent = &context->recent;
    const char *fault = fault_of(c, options);
    if (!fault) fault = arguments_fault(c->args, c->count);
    if (fault) return misuse(context->host, diagnostics, fault);
    TilecStatus status = artefact_job_run(&c->job, compile_elsewhere, c->out, diagnostics);
    compiler_end(&context->compilers, c->compiler);   // one that did not answer, or not as it should
    return status;
}

TilecStatus tilec_compile(TilecContext *context, const char *name, const char *text, size_t length,
                          const TilecCompileOptions *options, TilecArtefact **artefact,
                          TilecDiagnostics **diagnostics) {
    if (artefact) *artefact = NULL;
    if (!context || !name || !text || !options || !artefact)
        return misuse(context ? context->host : libc_allocator, diagnostics,
                      "tilec_compile takes no NULL but for the diagnostics");
    CompileJob c = {.name = name, .text = text, .length = length, .out = artefact};
    return run_compile(context, &c, options, diagnostics);
}

TilecStatus tilec_compile_for(TilecContext *context, const char *name, const char *text, size_t length,
                              const TilecCompileOptions *options, const char *kernel, const TilecArg *args,
                              size_t arg_count, TilecArtefact **artefact, TilecDiagnostics **diagnostics) {
    if (artefact) *artefact = NULL;
    if (!context || !name || !text || !options || !kernel || (arg_count && !args) || !artefact)
        return misuse(context ? context->host : libc_allocator, diagnostics,
                      "tilec_compile_for takes no NULL but for the diagnostics");
    CompileJob c = {.name = name, .text = text, .length = length, .out = artefact};
    c.kernel = kernel;
    c.args = args;
    c.count = arg_count;
    return run_compile(context, &c, options, diagnostics);
}

// ---- emulation ----

typedef struct EmulateJob {
    CompileJob compile;   // the request, and who answers it
    const char *kernel;
    const TilecArg *args;
    size_t count;
    TilecEmulation emulation;
} EmulateJob;

static const SentArgument *send_arguments(EmulateJob *e) {
    Job *job = &e->compile.job;
    SentArgument *out = NEW_ARRAY(job->arena, SentArgument, e->count + 1);
    for (size_t i = 0; i < e->count; i++) {
        SentArgument *sent = &out[i];
        *sent = (SentArgument){.arg = argument_at(e->args, i), .same = -1};
        bool is_here = sent->arg.device == TILEC_HOST || sent->arg.device == TILEC_ANY_DEVICE;
        if (!is_here || !argument_span(&sent->arg, &sent->size)) continue;   // another place is refused, unread
        for (size_t k = 0; k < i && sent->same < 0; k++)
            if (out[k].arg.kind == TILEC_TENSOR && out[k].arg.data == sent->arg.data && out[k].size == sent->size)
                sent->same = (int64_t)k;
        if (sent->same < 0) sent->data = sent->arg.data;
    }
    return out;
}

// Elements alone: what lies between them is not the tensor's.
static void take_elements(const TilecArg *arg, const char *from) {
    int64_t index[TILEC_MAX_RANK] = {0}, offset = 0;
    Type type;
    size_t width = type_of_public(arg->type, &type) ? (size_t)type_bytes(type) : 0;
    for (int d = 0; d >= 0;) {
        memcpy((char *)arg->data + (size_t)offset * width, from + (size_t)offset * width, width);
        for (d = arg->rank - 1; d >= 0; d--) {
            offset += arg->strides[d];
            if (++index[d] < arg->shape[d]) break;
            offset -= arg->strides[d] * arg->shape[d];
            index[d] = 0;
        }
    }
}

static void take_outputs(const EmulateJob *e, const CompileReply *reply) {
    for (int64_t i = 0; i < reply->output_count; i++) {
        const SentOutput *output = &reply->outputs[i];
        const SentArgument *sent = &e->compile.request.emulation.args[output->index];
        take_elements(&sent->arg, output->data);
    }
}

static bool outputs_fit(const EmulateJob *e, const CompileReply *reply) {
    for (int64_t i = 0; i < reply->output_count; i++) {
        const SentOutput *output = &reply->outputs[i];
        if (output->index < 0 || (uint64_t)output->index >= e->count ||
            output->size != e->compile.request.emulation.args[output->index].size)
            return false;
    }
    return true;
}

static TilecStatus ask_emulator(EmulateJob *e) {
    CompileJob *c = &e->compile;
    Job *job = &c->job;
    CompileReply reply = {0};
    if (!make_request(c)) return status_of(job->sink, 0);
    c->request.emulation = (Emulation){.kernel = e->kernel,
                                       .seed = (int64_t)e->emulation.seed,
                                       .max_steps = e->emulation.max_steps,
                                       .count = (int64_t)e->count,
                                       .args = send_arguments(e)};
    if (!ask(c, &reply)) return status_of(job->sink, 0);
    if (!reply_diagnostics(&reply, job->sink) || !outputs_fit(e, &reply)) return TILEC_ERROR_INTERNAL;
    if (reply.status == TILEC_OK) take_outputs(e, &reply);
    return (TilecStatus)reply.status;
}

static TilecStatus emulate_elsewhere(Job *job) {
    EmulateJob *e = (EmulateJob *)job;
    e->compile.start = milliseconds_now();
    e->compile.how = "emulated";
    return log_end(&e->compile, ask_emulator(e));
}

TilecStatus tilec_emulate(TilecContext *context, const char *name, const char *text, size_t length,
                          const TilecCompileOptions *options, const char *kernel, const TilecArg *args,
                          size_t arg_count, const TilecEmulation *emulation, TilecDiagnostics **diagnostics) {
    Allocator host = context ? context->host : libc_allocator;
    if (!context || !name || !text || !options || !kernel || (arg_count && !args))
        return misuse(host, diagnostics, "tilec_emulate takes no NULL but for `emulation` and the diagnostics");
    EmulateJob e = {.compile = {.job = {.host = host}, .name = name, .text = text, .length = length}};
    e.kernel = kernel;
    e.args = args;
    e.count = arg_count;
    e.compile.compilers = &context->compilers;
    const char *fault = fault_of(&e.compile, options);
    if (!fault) fault = arguments_fault(args, arg_count);
    if (!fault && emulation && !struct_in(&e.emulation, sizeof e.emulation, emulation))
        fault = "the emulation has no size: use TILEC_INIT";
    if (!fault && e.emulation.max_steps < 0) fault = "the emulation has a number of steps below 0";
    if (fault) return misuse(host, diagnostics, fault);
    if (!e.compile.options.target) e.compile.options.target = "sm_80";
    TilecStatus status = job_run(&e.compile.job, emulate_elsewhere, diagnostics);
    compiler_end(&context->compilers, e.compile.compiler);
    return status;
}
