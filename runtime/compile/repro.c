#include "runtime/compile/repro.h"
#include "frontend/frontend.h"
#include "ir/print.h"
#include "runtime/api/status.h"
#include "support/files.h"
#include <string.h>

static const Span NOWHERE;

const char *repro_path(Arena *arena, const char *folder, const char *source) {
    if (!folder) return NULL;
    const char *stem = path_stem(arena, source);
    return strcmp(folder, ".") == 0 ? stem : arena_printf(arena, "%s/%s", folder, stem);
}

static const char *print_program(Arena *arena, const Module *module) {
    StrBuf text;
    sb_init(&text, arena);
    print_module(module, (PrintOptions){.comments = true, .tests = true}, &text);
    return sb_text(&text);
}

void repro_start(Repro *repro, Module *module, const CompileOptions *options) {
    *repro = (Repro){.module = module, .options = options, .first = diag_count(module->sink)};
    if (!options->repro) return;
    repro->program = print_program(module->arena, module);
    sb_init(&repro->begun, module->arena);
}

void repro_begin(Repro *repro, const char *pass) {
    if (!repro->program) return;
    if (repro->stage) sb_printf(&repro->begun, "%s,", repro->stage);
    repro->stage = pass;
}

void repro_codegen(Repro *repro, Module *module, const CompileOptions *options) {
    *repro = (Repro){.module = module, .options = options, .first = diag_count(module->sink)};
    if (options->repro) repro->stage = "codegen";
}

// The program as the failing stage got it. NULL: it cannot be made again.
static const char *program_before(const Repro *repro) {
    if (!repro->program) return print_program(repro->module->arena, repro->module);
    Failure failure;   // what failed may fail again
    Arena *arena = arena_new(arena_host(repro->module->arena), &failure);
    const char *text = NULL;
    if (!arena) return NULL;
    if (!FAILURE_CAUGHT(&failure)) {
        Module *module = parse_module(arena, &failure, diag_sink_new(arena), "reproducer", repro->program);
        PassOptions passes = {.passes = sb_text(&repro->begun), .bisect_limit = repro->options->passes.bisect_limit};
        if (module && run_passes(module, repro->options->target, &passes, NULL))
            text = arena_strdup(repro->module->arena, print_program(arena, module));
    }
    arena_free(arena);
    return text;
}

// The first diagnostic of a broken promise; 0: there is none.
static DiagCode broken(const Repro *repro) {
    const Module *module = repro->module;
    for (int i = repro->first; i < diag_count(module->sink); i++) {
        DiagView view = diag_view(module->sink, i);
        if (view.severity == SEVERITY_ERROR && status_of_code(view.code) == TILEC_ERROR_INTERNAL) return view.code;
    }
    return module->failure->kind == FAIL_INTERNAL ? T_INTERNAL : (DiagCode)0;
}

// "tilec opt --passes=select --verify-each --target=sm_80 -o /dev/null". `before`: the passes that are still to run.
static const char *command(const Repro *repro, const char *before) {
    const PassOptions *passes = &repro->options->passes;
    Arena *arena = repro->module->arena;
    const char *target = repro->options->target->name;
    if (!repro->program)
        return arena_printf(arena, "tilec build%s --target=%s --repro-dir=none -o /dev/null",
                            repro->options->upto == UPTO_CUBIN ? "" : " --emit=ptx", target);
    return arena_printf(arena, "tilec opt --passes=%s%s%s%s%s --target=%s --repro-dir=none -o /dev/null", before,
                        repro->stage, passes->verify_each ? " --verify-each" : "",
                        passes->roundtrip_each ? " --roundtrip-each" : "",
                        passes->emulate_each ? " --emulate-each" : "", target);
}

static void put_file(const Repro *repro, DiagCode code, const char *path, StrBuf *out) {
    const char *program = program_before(repro);
    const char *run = command(repro, program ? "" : sb_text(&repro->begun));
    sb_printf(out, "// A failure of tilec %s, T%04d in %s, shown by:\n//   %s %s\n", tilec_version(), (int)code,
              repro->stage, run, path);
    sb_printf(out, "// This makes it smaller:\n//   tilec reduce %s --exit=%d --match=T%04d -- %s {}\n\n", path,
              (int)TILEC_ERROR_INTERNAL, (int)code, run);
    sb_str(out, program ? program : repro->program);
}

void repro_end(Repro *repro, bool ok) {
    Module *module = repro->module;
    if (ok || !repro->stage || module->failure->kind == FAIL_OUT_OF_MEMORY) return;
    DiagCode code = broken(repro);
    if (!code) return;
    StrBuf text;
    sb_init(&text, module->arena);
    const char *path = arena_printf(module->arena, "%s.%s.repro.tile", repro->options->repro, repro->stage);
    DiagSink *sink = diag_sink_new(module->arena);
    put_file(repro, code, path, &text);
    if (file_write(module->arena, sink, path, sb_text(&text), text.length))
        diag(module->sink, NOWHERE, T_REPRODUCER, repro->stage, path);
    else diag(module->sink, NOWHERE, T_NO_REPRODUCER, diag_view(sink, 0).message);
}
