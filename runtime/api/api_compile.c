// tilec_compile, in a file of its own: the rest of the API needs no LLVM.
#include "runtime/api/api.h"
#include "runtime/api/status.h"
#include "runtime/compile/compile.h"
#include <string.h>

typedef struct CompileJob {
    Job job;
    const char *name, *text;
    size_t length;
    TilecCompileOptions options;
    TilecArtefact **out;
} CompileJob;

static CompileOptions options_of(const CompileJob *c, const Target *target) {
    CompileOptions options = compile_options(target);
    Define *defines = NEW_ARRAY(c->job.arena, Define, c->options.define_count + 1);
    for (size_t i = 0; i < c->options.define_count; i++)
        defines[i] = (Define){c->options.defines[i].name, c->options.defines[i].value};
    options.defines = defines;
    options.define_count = (int)c->options.define_count;
    options.only = c->options.only;
    if (c->options.optimize) options.optimize = c->options.optimize;   // 0 stands for the default
    options.lines = !c->options.no_lines;
    options.ptxas = c->options.ptxas;
    options.upto = c->options.no_assemble ? UPTO_PTX : UPTO_CUBIN;
    options.passes.talk = NULL;
    return options;
}

static TilecStatus compile_source(Job *job) {
    CompileJob *c = (CompileJob *)job;
    const Target *target = c->options.target ? target_named(c->options.target) : NULL;
    if (!target) {
        diag(job->sink, (Span){0}, T_UNKNOWN_TARGET, c->options.target ? c->options.target : "");
        return TILEC_ERROR_USAGE;
    }
    CompileOptions options = options_of(c, target);
    Loader loader = {.arena = job->arena, .failure = &job->failure, .sink = job->sink, .target = target};
    Compiled compiled;
    Record record;
    loader.record_path = c->options.record;
    loader.record = c->options.record ? &record : NULL;
    if ((loader.record && !record_read(job->arena, job->sink, loader.record_path, true, &record)) ||
        !loader_open_text(&loader, c->name, c->text, c->length) || !compile(&loader, job->arena, &options, &compiled)) {
        TilecStatus status = status_of(job->sink, 0);
        return status == TILEC_OK ? TILEC_ERROR_INTERNAL : status;
    }
    return artefact_make(job, compiled.ptx, compiled.manifest, compiled.packed, compiled.packed_size, c->out);
}

TilecStatus tilec_compile(TilecContext *context, const char *name, const char *text, size_t length,
                          const TilecCompileOptions *options, TilecArtefact **artefact,
                          TilecDiagnostics **diagnostics) {
    if (!context || !name || !text || !options || !artefact || options->size < sizeof options->size)
        return TILEC_ERROR_USAGE;
    *artefact = NULL;
    if (diagnostics) *diagnostics = NULL;
    CompileJob c = {.job = {.host = context->host}, .name = name, .text = text, .length = length, .out = artefact};
    size_t known = options->size < sizeof c.options ? options->size : sizeof c.options;
    memcpy(&c.options, options, known);   // fields that an older caller lacks stay zero, the default
    if (c.options.define_count > 0 && !c.options.defines) return TILEC_ERROR_USAGE;
    for (size_t i = 0; i < c.options.define_count; i++)
        if (!c.options.defines[i].name || !c.options.defines[i].value) return TILEC_ERROR_USAGE;
    return job_run(&c.job, compile_source, diagnostics);
}
