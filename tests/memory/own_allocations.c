// Refuses each of tilec's own requests for memory (refuse.h) in a compile of an example, and in loading and launching an
// artefact on the fake driver: the right status, nothing left behind (memory, files, processes, work of the driver).
//
//     own_allocations FILE.tile|launch [COUNT]     COUNT: a sample, by the seed in TILEC_TEST_SEED
//
// Twice: the n-th request alone, and all from the n-th on. A call that goes on without what it asked for (a thread, a
// process ahead of time) gives the same result.
#include "tests/fake_cuda/artefact.h"
#include "tests/memory/refuse.h"
#include <dirent.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <tilec/tilec.h>

typedef struct Scene {
    const char *name, *text;   // of the source; NULL: the launch
    size_t length;
    const char *ptx;   // of a compile to which nothing was refused
} Scene;

static int open_files(void) {
    DIR *folder = opendir("/proc/self/fd");
    int count = 0;
    while (folder && readdir(folder)) count++;
    closedir(folder);
    return count;
}

static TilecStatus compile(Scene *scene, TilecContext *context, TilecDiagnostics **diagnostics, bool *same) {
    TilecArtefact *artefact = NULL;
    TilecCompileOptions options = TILEC_INIT(TilecCompileOptions);
    options.target = "sm_90a";
    TilecStatus status =
        tilec_compile(context, scene->name, scene->text, scene->length, &options, &artefact, diagnostics);
    const char *ptx = tilec_artefact_ptx(artefact);
    if (!scene->ptx) scene->ptx = strdup(ptx);
    *same = status != TILEC_OK || strcmp(ptx, scene->ptx) == 0;
    tilec_artefact_destroy(artefact);
    return status;
}

static TilecStatus launch(TilecContext *context, TilecDiagnostics **diagnostics) {
    TilecArtefact *artefact = NULL;
    TilecModule *module = NULL;
    static float x[100], y[100];
    size_t size;
    int64_t shape[] = {100};
    TilecArg args[] = {tilec_tensor(x, 1, shape), tilec_tensor(y, 1, shape)};
    const void *cubin = artefact_bytes(&size);
    TilecStatus status = tilec_artefact_open(context, cubin, size, &artefact, diagnostics);
    if (status == TILEC_OK) status = tilec_load(artefact, &module, diagnostics);
    if (status == TILEC_OK)
        status = tilec_launch(module, tilec_artefact_find(artefact, "twice"), args, 2, NULL, diagnostics);
    tilec_unload(module);
    tilec_artefact_destroy(artefact);
    return status;
}

// What is wrong with one call under refusals from `first` to `last`; NULL: nothing.
static const char *trouble(Scene *scene, long first, long last, long *requests) {
    static char text[200];
    TilecContext *context = NULL;
    TilecDiagnostics *diagnostics = NULL;
    TilecDiagnostic said = {0};
    bool same = true;
    long blocks = blocks_held();
    int files = open_files();
    refuse_from(first, last);
    TilecStatus status = tilec_context_create(NULL, &context);
    if (status == TILEC_OK)
        status = scene->text ? compile(scene, context, &diagnostics, &same) : launch(context, &diagnostics);
    *requests = requests_made();
    refuse_none();
    tilec_diagnostics_get(diagnostics, 0, &said);
    snprintf(text, sizeof text, "status %d, T%04d %.100s", (int)status, said.code, said.message ? said.message : "");
    tilec_diagnostics_destroy(diagnostics);
    tilec_context_destroy(context);
    if (status != TILEC_OK && (!first || status != TILEC_ERROR_ENVIRONMENT)) return text;
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

static char *read_text(const char *path, size_t *length) {
    static char text[1 << 20];
    FILE *file = fopen(path, "rb");
    *length = file ? fread(text, 1, sizeof text, file) : 0;
    if (file) fclose(file);
    return *length ? text : NULL;
}

int main(int argc, char **argv) {
    const char *seed = getenv("TILEC_TEST_SEED");
    long sample = argc > 2 ? atol(argv[2]) : 0;
    if (argc < 2) return 2;
    Scene scene = {.name = argv[1]};
    if (strcmp(argv[1], "launch") != 0 && !(scene.text = read_text(argv[1], &scene.length))) return 2;
    return refuse_each(&scene, sample, seed ? strtoul(seed, NULL, 16) : 1);
}
