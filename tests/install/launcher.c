// The smallest program that launches only: it opens artefacts, and has no compiler. An internal name of tilec is free to use.
#include <stdio.h>
#include <tilec/tilec.h>

void arena_free(void) {
}

int main(void) {
    TilecContext *context = NULL;
    TilecArtefact *artefact = NULL;
    TilecDiagnostics *diagnostics = NULL;
    TilecModule *module = NULL;
    arena_free();
    if (tilec_context_create(NULL, &context) != TILEC_OK) return 1;
    TilecStatus status = tilec_artefact_open(context, "no cubin", 8, &artefact, &diagnostics);
    printf("tilec %s: %s\n%s", tilec_version(), tilec_status_text(status), tilec_diagnostics_text(diagnostics));
    tilec_diagnostics_destroy(diagnostics);
    if (status == TILEC_OK) status = tilec_load(artefact, &module, NULL);
    if (module) tilec_launch(module, tilec_artefact_find(artefact, "none"), NULL, 0, NULL, NULL);
    tilec_unload(module);
    tilec_artefact_destroy(artefact);
    tilec_context_destroy(context);
    return status == TILEC_ERROR_SOURCE ? 0 : 1;
}
