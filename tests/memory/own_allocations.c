// Refuses each of tilec's own requests for memory (refuse.h) in a compile of an example, on either side of
// runtime/worker/, and in loading and launching an artefact on the fake driver: the right status, nothing left behind
// (memory, files, processes).
//
//     own_allocations launch
//     own_allocations ask|cached|serve FILE.tile [COUNT]     COUNT: a sample, by the seed in TILEC_TEST_SEED
//
// `cached`: what the compile cache has, on disk and, in the same context again, in memory.
//
// Twice: the n-th request alone, and all from the n-th on. A call that goes on without what it asked for (a thread, a
// process ahead of time) gives the same result.
#include "runtime/worker/serve.h"
#include "tests/fake_cuda/artefact.h"
#include "tests/memory/read_text.h"
#include "tests/memory/refuse.h"
#include <dirent.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <tilec/tilec.h>

enum { OUT_OF_MEMORY = 9902, NO_DRIVER = 901 };

typedef struct Scene Scene;

struct Scene {
    TilecStatus (*play)(Scene *scene, TilecDiagnostic *said, bool *same);   // *said: the first diagnostic
    const char *name, *text;                                                // of the source
    size_t length;
    const char *ptx;     // of a compile to which nothing was refused
    const char *cache;   // its folder, or "off"
    int earlier;         // so many compiles in the same context before
    char message[100];
};

static int open_files(void) {
    DIR *folder = opendir("/proc/self/fd");
    int count = 0;
    while (folder && readdir(folder)) count++;
    closedir(folder);
    return count;
}

static void remove_folder(const char *path) {
    char command[200];
    snprintf(command, sizeof command, "rm -rf %s", path);
    if (system(command)) fputs("the folder stays\n", stderr);
}

static bool is_same(Scene *scene, TilecStatus status, const char *ptx) {
    if (!scene->ptx && status == TILEC_OK) scene->ptx = strdup(ptx);
    return status != TILEC_OK || strcmp(ptx, scene->ptx) == 0;
}

static void read_said(Scene *scene, Arena *arena, const CompileReply *reply, TilecDiagnostic *said) {
    DiagSink *sink = diag_sink_new(arena);
    if (!diag_read(sink, reply->diagnostics, reply->diagnostics_size) || diag_count(sink) == 0) return;
    DiagView first = diag_view(sink, 0);
    said->code = (int)first.code;
    snprintf(scene->message, sizeof scene->message, "%s", first.message);
    said->message = scene->message;
}

// The first diagnostic of a reply, unless memory for it is refused.
static void keep_said(Scene *scene, const CompileReply *reply, TilecDiagnostic *said) {
    Failure failure;
    Arena *arena = reply->diagnostics ? arena_new(libc_allocator, &failure) : NULL;
    if (!arena) return;
    if (!FAILURE_CAUGHT(&failure)) read_said(scene, arena, reply, said);
    arena_free(arena);
}

// What is told by a diagnostic has to be kept: what tells it is destroyed.
static void keep(Scene *scene, const TilecDiagnostics *diagnostics, TilecDiagnostic *said) {
    tilec_diagnostics_get(diagnostics, 0, said);
    snprintf(scene->message, sizeof scene->message, "%s", said->message ? said->message : "");
    said->message = scene->message;
}

static TilecStatus ask(Scene *scene, TilecDiagnostic *said, bool *same) {
    TilecContext *context = NULL;
    TilecArtefact *artefact = NULL;
    TilecDiagnostics *diagnostics = NULL;
    TilecCompileOptions options = TILEC_INIT(TilecCompileOptions);
    options.target = "sm_90a";
    options.no_assemble = true;
    options.cache = scene->cache;
    TilecStatus status = tilec_context_create(NULL, &context);
    if (status != TILEC_OK) return status;
    for (int i = 0; i < scene->earlier && status == TILEC_OK; i++) {
        status = tilec_compile(context, scene->name, scene->text, scene->length, &options, &artefact, NULL);
        tilec_artefact_destroy(artefact);
    }
    if (status == TILEC_OK)
        status = tilec_compile(context, scene->name, scene->text, scene->length, &options, &artefact, &diagnostics);
    *same = is_same(scene, status, tilec_artefact_ptx(artefact));
    keep(scene, diagnostics, said);
    tilec_diagnostics_destroy(diagnostics);
    tilec_artefact_destroy(artefact);
    tilec_context_destroy(context);
    return status;
}

static TilecStatus serve(Scene *scene, TilecDiagnostic *said, bool *same) {
    CompileRequest request = {.name = scene->name,
                              .text = scene->text,
                              .length = scene->length,
                              .target = "sm_90a",
                              .lines = true,
                              .assemble = true};
    Answer answer;
    answer_request(&request, (PhaseHook){0}, &answer);
    TilecStatus status = (TilecStatus)answer.reply.status;
    *same = is_same(scene, status, answer.reply.ptx);
    keep_said(scene, &answer.reply, said);
    answer_free(&answer);
    return status;
}

static TilecStatus launch(Scene *scene, TilecDiagnostic *said, bool *same) {
    static float x[100], y[100];
    TilecContext *context = NULL;
    TilecArtefact *artefact = NULL;
    TilecModule *module = NULL;
    TilecDiagnostics *diagnostics = NULL;
    size_t size;
    int64_t shape[] = {100};
    TilecArg args[] = {tilec_tensor(TILEC_F32, x, 1, shape), tilec_tensor(TILEC_F32, y, 1, shape)};
    const void *cubin = artefact_bytes(&size);
    TilecStatus status = tilec_context_create(NULL, &context);
    *same = true;
    if (status == TILEC_OK) status = tilec_artefact_open(context, cubin, size, &artefact, &diagnostics);
    if (status == TILEC_OK) status = tilec_load(artefact, &module, &diagnostics);
    if (status == TILEC_OK)
        status = tilec_launch(module, tilec_artefact_find(artefact, "twice"), args, 2, NULL, &diagnostics);
    keep(scene, diagnostics, said);
    tilec_diagnostics_destroy(diagnostics);
    tilec_unload(module);
    tilec_artefact_destroy(artefact);
    tilec_context_destroy(context);
    return status;
}

// What is wrong with one call under refusals from `first` to `last`; NULL: nothing.
static const char *trouble(Scene *scene, long first, long last, long *requests) {
    static char text[200];
    TilecDiagnostic said = TILEC_INIT(TilecDiagnostic);
    bool same = true;
    long blocks = blocks_held();
    int files = open_files();
    refuse_from(first, last);
    TilecStatus status = scene->play(scene, &said, &same);
    *requests = requests_made();
    refuse_none();
    snprintf(text, sizeof text, "status %d, T%04d %s", (int)status, said.code, scene->message);
    bool told = said.code == 0 || said.code == OUT_OF_MEMORY || said.code == NO_DRIVER || status == TILEC_OK;
    if (status != TILEC_OK && (!first || status != TILEC_ERROR_ENVIRONMENT || !told)) return text;
    if (!same) return "another result";
    if (blocks_held() != blocks) return "memory is left";
    if (open_files() != files) return "files are left open";
    return waitpid(-1, NULL, WNOHANG) == -1 ? NULL : "a process is left";
}

static int report(const Scene *scene, const char *what, long first, const char *why) {
    if (why) printf("%s, request %ld%s: %s\n", scene->name, first, what, why);
    fflush(stdout);
    return why != NULL;
}

static int refuse_each(Scene *scene, long sample, unsigned long seed) {
    long all, asked, done = 0;
    int wrong = report(scene, " of none refused", 0, trouble(scene, 0, -1, &all));
    wrong += report(scene, " of none refused", 0, trouble(scene, 0, -1, &all));   // once more: what is kept is there
    long step = sample && all > sample ? all / sample : 1, first = 1 + (long)(seed % (unsigned long)step);
    for (long n = first; n <= all && !(wrong && !done); n += step, done++) {
        wrong += report(scene, " alone", n, trouble(scene, n, n, &asked));
        wrong += report(scene, " and all after it", n, trouble(scene, n, LONG_MAX, &asked));
    }
    printf("%s: %ld of %ld requests refused, alone and with all after them: %d wrong\n", scene->name, done, all, wrong);
    free((char *)scene->ptx);
    return wrong || !done;
}

int main(int argc, char **argv) {
    const char *seed = getenv("TILEC_TEST_SEED"), *what = argc > 1 ? argv[1] : "";
    long sample = argc > 3 ? atol(argv[3]) : 0;
    char folder[] = "/tmp/tilec_XXXXXX";
    Scene scene = {.name = argc > 2 ? argv[2] : "launch", .cache = "off"};
    bool cached = strcmp(what, "cached") == 0 && mkdtemp(folder);
    if (cached) scene.cache = folder, scene.earlier = 1;
    if (strcmp(what, "launch") == 0) scene.play = launch;
    else if (argc > 2) scene.play = strcmp(what, "serve") == 0 ? serve : ask;
    if (!scene.play || (argc > 2 && !(scene.text = read_text(argv[2], &scene.length)))) return 2;
    int code = refuse_each(&scene, sample, seed ? strtoul(seed, NULL, 16) : 1);
    if (cached) remove_folder(folder);
    return code;
}
