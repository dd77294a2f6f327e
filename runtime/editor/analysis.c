// A text through the frontend, and on demand through the passes.
#include "runtime/compile/compile.h"
#include "runtime/editor/editor.h"
#include <stdlib.h>
#include <string.h>

// The text is the first source of the sink; a const given by -D would come later.
enum { TEXT_FILE = 0 };

static void run_passes_on(Analysis *analysis, Loader *loader, const Target *target) {
    CompileOptions options = compile_options(target);
    options.upto = UPTO_PASSES;
    options.passes.stop_after = "swizzle-allocation";
    options.passes.remarks = true;
    loader->target = target;
    Module *module = load_module(loader, analysis->arena, 0, NULL, NULL);
    if (module && run_pipeline(module, &options)) facts_of_passes(analysis, module, target, TEXT_FILE);
}

typedef struct Task {
    Analysis *analysis;
    const EditorText *text;
} Task;

static bool analyse(void *user) {
    const Task *task = user;
    Analysis *analysis = task->analysis;
    const EditorText *text = task->text;
    Loader loader = {.arena = analysis->arena,
                     .failure = &analysis->failure,
                     .sink = analysis->sink,
                     .import_root = text->import_root};
    if (!loader_open_text(&loader, text->path, text->text, text->length)) return false;
    analysis->outline = syntax_outline(loader.syntax, analysis->arena);
    Module *module = load_module(&loader, analysis->arena, 0, NULL, NULL);
    if (!module) return false;
    facts_of_types(analysis, module, TEXT_FILE);
    if (text->target) run_passes_on(analysis, &loader, text->target);
    return true;
}

static void after_analysis(void *user) {
    Analysis *analysis = ((const Task *)user)->analysis;
    if (analysis->failure.kind != FAIL_INTERNAL) return;
    diag(analysis->sink, (Span){0}, T_INTERNAL, arena_strdup(analysis->arena, analysis->failure.message));
}

Analysis *editor_analyse(const EditorText *text) {
    Analysis *analysis = calloc(1, sizeof(Analysis));
    if (!analysis) return NULL;
    if (FAILURE_CAUGHT(&analysis->failure)) {
        if (analysis->failure.kind == FAIL_INTERNAL) return analysis;   // it is one of the diagnostics
        editor_free(analysis);
        return NULL;
    }
    analysis->arena = arena_new(libc_allocator, &analysis->failure);
    if (!analysis->arena) fail_out_of_memory(&analysis->failure);
    analysis->sink = diag_sink_new(analysis->arena);
    Task task = {analysis, text};
    fail_scope(&analysis->failure, analyse, after_analysis, &task);
    return analysis;
}

void editor_free(Analysis *analysis) {
    if (!analysis) return;
    arena_free(analysis->arena);
    free(analysis);
}
