// Kernels that tilec_add_kernel compiled for two targets: opens both, and says the first bytes of a hash of them.
#include "scale.sm_80.h"
#include "scale.sm_90a.h"
#include <stdio.h>
#include <string.h>
#include <tilec/tilec.h>

static int is_for(TilecContext *context, const void *cubin, size_t size, const char *target) {
    TilecArtefact *artefact;
    if (tilec_artefact_open(context, cubin, size, &artefact, NULL) != TILEC_OK) return 0;
    int same = strcmp(tilec_artefact_target(artefact), target) == 0 && tilec_artefact_find(artefact, "scale") != NULL;
    tilec_artefact_destroy(artefact);
    return same;
}

int main(void) {
    TilecContext *context;
    if (tilec_context_create(NULL, &context) != TILEC_OK) return 1;
    int ok = is_for(context, scale_sm_80_cubin, scale_sm_80_cubin_size, "sm_80") &&
             is_for(context, scale_sm_90a_cubin, scale_sm_90a_cubin_size, "sm_90a");
    tilec_context_destroy(context);
    unsigned sum = 0;
    for (size_t i = 0; i < scale_sm_80_cubin_size; i++) sum = sum * 31 + scale_sm_80_cubin[i];
    printf("%u\n", sum);
    return !ok;
}
