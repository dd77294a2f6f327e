// tilec_compile: the artefact of an earlier compile, else what runtime/cache/ has, else what a process of runtime/worker/
// makes.
#include "codegen/process.h"
#include "runtime/api/api.h"
#include "runtime/api/recent.h"
#include "runtime/api/status.h"
#include "support/files.h"
#include <string.h>
#include <unistd.h>

typedef struct CompileJob {
    Job job;
    CompilerPool *compilers;
    Compiler *compiler;   // that works for this job
    RecentArtefacts *recent;
    ProgramHashes programs;
    const char *name, *text;
    size_t length;
    TilecCompileOptions options;
    CompileRequest request;
    CompilerOptions asked;
    TilecArtefact **out;
} CompileJob;

// ptxas is searched here: the process's environment is that of its start.
static CompileRequest request_of(const CompileJob *c, const char *folder, const cpu_set_t *processors) {
    const TilecCompileOptions *options = &c->options;
    return (CompileRequest){
        .name = c->name,
        .text = c->text,
        .length = c->length,
        .folder = folder,
        .target = options->target,
        .only = options->only,
        .ptxas = options->ptxas || options->no_assemble ? options->ptxas : find_program(c->job.arena, "ptxas"),
        .record = options->record,
        .repro_dir = options->repro_dir,
        .import_root = options->import_root,
        .define_count = (int64_t)options->define_count,
        .defines = options->defines,
        .optimize = options->optimize ? options->optimize : 1,
        .lines = !options->no_lines,
        .assemble = !options->no_assemble,
        .remarks = options->remarks,
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
    if (compiler_ask(c->compilers, c->job.arena, c->job.sink, &c->asked, &c->request, &c->compiler, reply)) return true;
    if (diag_view(c->job.sink, 0).code == T_COMPILER_CRASHED && c->options.repro_dir) keep_source(c);
    return false;
}

// Hashes of programs are shared by all threads of a context, each of which works with a copy.
static bool key_of(CompileJob *c, const CacheSettings *cache, CacheHash *key) {
    RecentArtefacts *recent = c->recent;
    if (!cache->on) return false;
    pthread_mutex_lock(&recent->lock);
    c->programs = recent->programs;
    pthread_mutex_unlock(&recent->lock);
    bool ok = cache_key(c->job.arena, &cache->store, &c->programs, &c->request, c->asked.path, key);
    pthread_mutex_lock(&recent->lock);
    recent->programs = c->programs;
    pthread_mutex_unlock(&recent->lock);
    return ok;
}

static bool find_recent(CompileJob *c, CacheHash key) {
    TilecArtefact *found = recent_find(c->recent, key);
    if (!found) return false;
    *c->out = found;   // whose holder the job is now
    if (cache_imports_hold(c->job.arena, found->import_count, found->imports) &&
        diag_read(c->job.sink, found->diagnostics, found->diagnostics_size))
        return true;
    *c->out = NULL;
    artefact_release(found);
    return false;
}

static TilecStatus compile_anew(CompileJob *c, const CacheSettings *cache, const CacheHash *key) {
    Job *job = &c->job;
    CompileReply reply = {0};
    const CachedCompile compile = {cache, &c->request, c->asked.path, &c->programs, key, c->asked.until, ask, c};
    if (!cached_compile(job->arena, &compile, &reply)) return status_of(job->sink, 0);
    if (!diag_read(job->sink, reply.diagnostics, reply.diagnostics_size)) return TILEC_ERROR_INTERNAL;
    if (reply.status != TILEC_OK) return (TilecStatus)reply.status;
    TilecStatus status = artefact_make(job, &reply, c->out);
    if (status != TILEC_OK || !key) return status;
    (*c->out)->key = *key;
    recent_keep(c->recent, *c->out);
    return status;
}

static bool make_request(CompileJob *c) {
    enum { FOLDER = 4096 };
    Job *job = &c->job;
    FileText record = {0};
    char *folder = arena_alloc(job->arena, FOLDER);
    cpu_set_t *processors = arena_alloc(job->arena, sizeof *processors);
    if (!getcwd(folder, FOLDER)) folder[0] = 0;
    CPU_ZERO(processors);
    sched_getaffinity(0, sizeof *processors, processors);
    if (c->options.record && !record_load(job->arena, job->sink, c->options.record, true, &record)) return false;
    c->request = request_of(c, folder, processors);
    c->request.record_text = record.text;
    c->request.record_length = record.length;
    return true;
}

static TilecStatus compile_elsewhere(Job *job) {
    CompileJob *c = (CompileJob *)job;
    const TilecCompileOptions *options = &c->options;
    CacheSettings cache = cache_settings(job->arena, options->cache);
    CacheHash key;
    if (!make_request(c)) return status_of(job->sink, 0);
    c->asked.path = options->compiler ? options->compiler : compiler_find(job->arena);
    c->asked.time_limit = options->time_limit;
    c->asked.until = (MessageWait){.cancelled = options->cancelled, .cancelled_user = options->cancelled_user};
    if (options->time_limit > 0) c->asked.until.deadline = milliseconds_now() + options->time_limit;
    bool has_key = key_of(c, &cache, &key);
    if (has_key && find_recent(c, key)) return TILEC_OK;
    return compile_anew(c, &cache, has_key ? &key : NULL);
}

TilecStatus tilec_compile(TilecContext *context, const char *name, const char *text, size_t length,
                          const TilecCompileOptions *options, TilecArtefact **artefact,
                          TilecDiagnostics **diagnostics) {
    Allocator host = context ? context->host : libc_allocator;
    if (artefact) *artefact = NULL;
    if (!context || !name || !text || !options || !artefact)
        return misuse(host, diagnostics, "tilec_compile takes no NULL but for the diagnostics");
    CompileJob c = {.job = {.host = context->host}, .name = name, .text = text, .length = length, .out = artefact};
    c.compilers = &context->compilers;
    c.recent = &context->recent;
    // Fields that an older caller lacks stay zero, the default.
    if (!struct_in(&c.options, sizeof c.options, options))
        return misuse(host, diagnostics, "the options of tilec_compile have no size: use TILEC_INIT");
    bool named = c.options.define_count == 0 || c.options.defines;
    for (size_t i = 0; named && i < c.options.define_count; i++)
        named = c.options.defines[i].name && c.options.defines[i].value;
    if (!named) return misuse(host, diagnostics, "a define of tilec_compile has no name or no value");
    TilecStatus status = artefact_job_run(&c.job, compile_elsewhere, artefact, diagnostics);
    compiler_end(&context->compilers, c.compiler);   // one that did not answer, or not as it should
    return status;
}
