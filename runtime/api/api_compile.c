// tilec_compile: asks a process of runtime/worker/.
#include "codegen/process.h"
#include "runtime/api/api.h"
#include "runtime/api/status.h"
#include "support/files.h"
#include <string.h>
#include <unistd.h>

typedef struct CompileJob {
    Job job;
    CompilerPool *compilers;
    Compiler *compiler;   // that works for this job
    const char *name, *text;
    size_t length;
    TilecCompileOptions options;
    CompileReply reply;
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
        .optimize = options->optimize,
        .lines = !options->no_lines,
        .assemble = !options->no_assemble,
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

static TilecStatus compile_elsewhere(Job *job) {
    CompileJob *c = (CompileJob *)job;
    enum { FOLDER = 4096 };
    char *folder = arena_alloc(job->arena, FOLDER);
    cpu_set_t processors;
    if (!getcwd(folder, FOLDER)) folder[0] = 0;
    CPU_ZERO(&processors);
    sched_getaffinity(0, sizeof processors, &processors);
    CompileRequest request = request_of(c, folder, &processors);
    CompilerOptions options = {.path = c->options.compiler,
                               .time_limit = c->options.time_limit,
                               .cancelled = c->options.cancelled,
                               .cancelled_user = c->options.cancelled_user};
    if (!compiler_ask(c->compilers, job->arena, job->sink, &options, &request, &c->compiler, &c->reply)) {
        if (diag_view(job->sink, 0).code == T_COMPILER_CRASHED && c->options.repro_dir) keep_source(c);
        return status_of(job->sink, 0);
    }
    TilecStatus status = (TilecStatus)c->reply.status;
    if (status == TILEC_OK)
        status = artefact_make(job, c->reply.ptx, c->reply.manifest, c->reply.cubin, c->reply.cubin_size, c->out);
    if (diag_count(job->sink) == 0) job->reply = &c->reply;
    return status;
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
