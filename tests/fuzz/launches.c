#include "tests/fuzz/launches.h"
#include <stdlib.h>
#include <string.h>

enum { MOST_ARGUMENTS = 12 };

static uint64_t next(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

static void query_kernel(const TilecKernel *kernel) {
    TilecParam param = TILEC_INIT(TilecParam);
    TilecVariant variant = TILEC_INIT(TilecVariant);
    size_t read = strlen(tilec_kernel_name(kernel)) + tilec_kernel_is_program(kernel);
    for (size_t i = 0; tilec_kernel_param(kernel, i, &param); i++) {
        read += strlen(param.name) + strlen(param.type);
        for (int d = 0; d < param.rank; d++) read += strlen(param.shape[d]);
    }
    for (size_t i = 0; tilec_kernel_variant(kernel, i, &variant); i++)
        read += strlen(variant.symbol) + strlen(variant.when);
    if (read == 0) abort();   // a kernel has a name
}

void query_all(const TilecArtefact *artefact) {
    size_t size;
    tilec_artefact_cubin(artefact, &size);
    tilec_artefact_ptx(artefact);
    tilec_artefact_manifest(artefact);
    tilec_artefact_target(artefact);
    for (size_t i = 0; i < tilec_artefact_kernel_count(artefact); i++) query_kernel(tilec_artefact_kernel(artefact, i));
    tilec_artefact_find(artefact, "copy");
}

// Mostly what the parameter wants, of a small extent.
static TilecArg argument(const TilecKernel *kernel, size_t index, uint64_t *state) {
    static const int64_t extents[] = {64, 256, 1, 0, 1000, -1, INT64_MAX, 4096};
    TilecParam param = TILEC_INIT(TilecParam);
    int64_t extent = extents[next(state) % 8];
    if (!tilec_kernel_param(kernel, index, &param) || !param.is_tensor)
        return next(state) % 2 ? tilec_integer(extent) : tilec_real((double)extent);
    TilecArg arg = tilec_tensor(param.element, (void *)(uintptr_t)(1 + next(state) % 64 * 256), param.rank, NULL);
    for (int d = param.rank; d-- > 0;) {
        arg.shape[d] = extent;
        arg.strides[d] = d + 1 == param.rank ? 1 : 64;
    }
    return arg;
}

static void launch(const TilecModule *module, const TilecKernel *kernel, uint64_t *state) {
    TilecArg args[MOST_ARGUMENTS];
    size_t count = 0, bytes;
    for (TilecParam param = TILEC_INIT(TilecParam); count < MOST_ARGUMENTS && tilec_kernel_param(kernel, count, &param);
         count++)
        args[count] = argument(kernel, count, state);
    TilecDiagnostics *diagnostics = NULL;
    if (tilec_workspace_size(module, kernel, args, count, &bytes, NULL) == TILEC_ERROR_INTERNAL) abort();
    if (tilec_zeroed_size(module, kernel, args, count, &bytes, NULL) == TILEC_ERROR_INTERNAL) abort();
    if (tilec_launch(module, kernel, args, count, NULL, &diagnostics) == TILEC_ERROR_INTERNAL) abort();
    tilec_diagnostics_text(diagnostics);
    tilec_diagnostics_destroy(diagnostics);
}

void launch_all(const TilecArtefact *artefact, uint64_t seed) {
    TilecModule *module = NULL;
    if (tilec_load(artefact, &module, NULL) != TILEC_OK) return;
    for (size_t i = 0; i < tilec_artefact_kernel_count(artefact) && i < 8; i++)
        launch(module, tilec_artefact_kernel(artefact, i), &seed);
    tilec_unload(module);
}
