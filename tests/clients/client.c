// A client in C99: compiles, looks at the artefact, selects, runs a kernel on the host, and gets a text for each failure.
#include <stdio.h>
#include <string.h>
#include <tilec/tilec.h>

static const char source[] = "kernel add(x: f32[N], y: f32[N], z: out f32[N]) {\n"
                             "    grid (b in ceildiv(N, 64)) threads 64 {\n"
                             "        parallel (i in 64) z[b * 64 + i] = x[b * 64 + i] + y[b * 64 + i];\n"
                             "    }\n"
                             "}\n";

static int failed(const char *what, const TilecDiagnostics *diagnostics) {
    printf("%s: %s\n", what, tilec_diagnostics_text(diagnostics));
    return 1;
}

static int look(const TilecArtefact *artefact) {
    const TilecKernel *kernel = tilec_artefact_find(artefact, "add");
    TilecParam param = TILEC_INIT(TilecParam);
    TilecVariant variant = TILEC_INIT(TilecVariant);
    TilecSelection selection = TILEC_INIT(TilecSelection);
    int64_t shape[] = {1000};
    TilecArg args[3];
    for (int i = 0; i < 3; i++) args[i] = tilec_tensor(TILEC_F32, NULL, 1, shape);
    if (!tilec_kernel_param(kernel, 2, &param) || param.element != TILEC_F32 || param.mode != TILEC_OUT)
        return failed("param", NULL);
    if (!tilec_kernel_variant(kernel, 0, &variant) || variant.threads != 64) return failed("variant", NULL);
    if (tilec_select(artefact, kernel, args, 3, 100, &selection, NULL) != TILEC_OK || selection.grid != 16)
        return failed("select", NULL);
    return 0;
}

static int compile(TilecContext *context) {
    TilecCompileOptions options = TILEC_INIT(TilecCompileOptions);
    TilecArtefact *artefact = NULL;
    TilecDiagnostics *diagnostics = NULL;
    options.target = "sm_80";
    options.no_assemble = true;
    if (tilec_compile(context, "add.tile", source, strlen(source), &options, &artefact, &diagnostics) != TILEC_OK)
        return failed("compile", diagnostics);
    int bad = look(artefact);
    tilec_artefact_destroy(artefact);
    tilec_diagnostics_destroy(diagnostics);
    if (tilec_compile(context, "bad.tile", "kernel", 6, &options, &artefact, &diagnostics) != TILEC_ERROR_SOURCE)
        return failed("a wrong source", diagnostics);
    bad |= artefact != NULL || !strstr(tilec_diagnostics_text(diagnostics), "bad.tile:1:");
    tilec_diagnostics_destroy(diagnostics);
    return bad;
}

static int emulate(TilecContext *context) {
    float x[100], y[100], z[100] = {0};
    int64_t shape[] = {100};
    TilecCompileOptions options = TILEC_INIT(TilecCompileOptions);
    TilecDiagnostics *diagnostics = NULL;
    for (int i = 0; i < 100; i++) {
        x[i] = (float)i;
        y[i] = 1;
    }
    TilecArg args[] = {tilec_tensor(TILEC_F32, x, 1, shape), tilec_tensor(TILEC_F32, y, 1, shape),
                       tilec_tensor(TILEC_F32, z, 1, shape)};
    if (tilec_emulate(context, "add.tile", source, strlen(source), &options, "add", args, 3, NULL, &diagnostics))
        return failed("emulate", diagnostics);
    tilec_diagnostics_destroy(diagnostics);
    for (int i = 0; i < 100; i++)
        if (z[i] != x[i] + 1) return failed("the result", NULL);
    args[1].type = TILEC_F64;
    if (tilec_emulate(context, "add.tile", source, strlen(source), &options, "add", args, 3, NULL, &diagnostics) !=
        TILEC_ERROR_SOURCE)
        return failed("a wrong type", diagnostics);
    tilec_diagnostics_destroy(diagnostics);
    return 0;
}

int main(void) {
    TilecContext *context = NULL;
    if (tilec_context_create(NULL, &context) != TILEC_OK) return 1;
    int bad = compile(context) || emulate(context);
    tilec_context_destroy(context);
    return bad;
}
