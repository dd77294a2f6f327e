// The smallest embedder: the header stands alone, the library links and finds the compiler, and an internal name of
// tilec is free to use.
#include <stdio.h>
#include <string.h>
#include <tilec/tilec.h>

static const char source[] = "kernel zero(x: out f32[N]) { grid (b in N) threads 32 { x[b] = 0; } }";

void arena_free(void) {
}

int main(void) {
    TilecContext *context = NULL;
    TilecArtefact *artefact = NULL;
    TilecDiagnostics *diagnostics = NULL;
    TilecCompileOptions options = TILEC_INIT(TilecCompileOptions);
    options.target = "sm_80";
    options.no_assemble = true;
    arena_free();
    TilecStatus status = tilec_context_create(NULL, &context);
    if (status == TILEC_OK)
        status = tilec_compile(context, "zero.tile", source, strlen(source), &options, &artefact, &diagnostics);
    printf("tilec %s: %s\n%s", tilec_version(), tilec_status_text(status), tilec_diagnostics_text(diagnostics));
    tilec_diagnostics_destroy(diagnostics);
    tilec_artefact_destroy(artefact);
    tilec_context_destroy(context);
    return (int)status;
}
