// Host time of launches through the public API, against the fake driver of this folder: the work of libtilec before
// the driver is called.
//
//     launch_time CUBIN KERNEL [LAUNCHES]        a kernel or program of three matrices [M, K], [N, K], [M, N] of 2 bytes
//
// Shapes that were not launched before ("cold"), a thousand of them again, one after the other ("many"), one of them
// again ("shape": other addresses; "same"). Under callgrind,
// which counts instructions: valgrind --tool=callgrind --toggle-collect=tilec_launch.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tilec/tilec.h>
#include <time.h>

static double microseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return 1e6 * (double)now.tv_sec + 1e-3 * (double)now.tv_nsec;
}

static void *read_file(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END) != 0) return NULL;
    *size = (size_t)ftell(file);
    rewind(file);
    void *bytes = malloc(*size);
    if (fread(bytes, 1, *size, file) != *size) return NULL;
    fclose(file);
    return bytes;
}

static TilecModule *module;
static const TilecKernel *kernel;

static double launch(int64_t m, int64_t n, int64_t k, uintptr_t address) {
    TilecArg args[] = {tilec_tensor(TILEC_BF16, (void *)address, 2, (int64_t[]){m, k}),
                       tilec_tensor(TILEC_BF16, (void *)(address + (1 << 30)), 2, (int64_t[]){n, k}),
                       tilec_tensor(TILEC_BF16, (void *)(address + (2u << 30)), 2, (int64_t[]){m, n})};
    TilecLaunch options = TILEC_INIT(TilecLaunch);
    TilecDiagnostics *diagnostics = NULL;
    double start = microseconds();
    TilecStatus status = tilec_launch(module, kernel, args, 3, &options, &diagnostics);
    double took = microseconds() - start;
    if (status != TILEC_OK) fputs(tilec_diagnostics_text(diagnostics), stderr), exit(1);
    tilec_diagnostics_destroy(diagnostics);
    return took;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void show(const char *what, double *times, int count) {
    qsort(times, (size_t)count, sizeof *times, by_value);
    printf("%-6s %7.2f us (least %.2f)\n", what, times[count / 2], times[0]);
}

int main(int argc, char **argv) {
    enum { MOST = 100000 };
    static double times[MOST];
    size_t size;
    int count = argc > 3 ? atoi(argv[3]) : 1000;
    void *cubin = argc > 2 && count > 0 && count <= MOST ? read_file(argv[1], &size) : NULL;
    TilecContext *context;
    TilecArtefact *artefact;
    if (!cubin || tilec_context_create(NULL, &context) != TILEC_OK ||
        tilec_artefact_open(context, cubin, size, &artefact, NULL) != TILEC_OK ||
        tilec_load(artefact, &module, NULL) != TILEC_OK || !(kernel = tilec_artefact_find(artefact, argv[2])))
        return fputs("launch_time CUBIN KERNEL [LAUNCHES]\n", stderr), 2;
    for (int i = 0; i < count; i++) times[i] = launch(8 + 8 * i, 4096 - 8 * (i % 500), 8192, 1 << 20);
    show("cold", times, count);
    for (int i = 0; i < count; i++) times[i] = launch(8 + 8 * (i % 1000), 4096 - 8 * (i % 500), 8192, 1 << 20);
    show("many", times, count);
    for (int i = 0; i < count; i++) times[i] = launch(4096, 4096, 4096, (uintptr_t)(i + 1) << 20);
    show("shape", times, count);
    for (int i = 0; i < count; i++) times[i] = launch(4096, 4096, 4096, 1 << 20);
    show("same", times, count);
    tilec_unload(module);
    tilec_artefact_destroy(artefact);
    tilec_context_destroy(context);
    free(cubin);
    return 0;
}
