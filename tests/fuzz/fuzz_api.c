// Calls of the public API: each byte is a call on a handful of objects, any of which may be NULL. Most inputs share a
// context, and with it the process that compiles, whose start would take most of the time.
#include "tests/fake_cuda/artefact.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/launches.h"
#include <stdlib.h>

static const char *const sources[] = {
    "kernel copy(x: f32[N], y: out f32[N]) { grid (b in ceildiv(N, 128)) threads 128 {"
    " parallel (i in 128) { y[b * 128 + i] = x[b * 128 + i]; } } }",
    "kernel fill(y: out f32[N]) { tune BM in {64, 128}; grid (b in ceildiv(N, BM)) threads 64 {"
    " parallel (i in BM) { y[b * BM + i] = 1.0; } } }\n"
    "program twice(y: out f32[N]) { fill(y); fill(y); }",
    "",
    "test t { }",
    "kernel",
};
static const char *const targets[] = {"sm_80", "sm_90a", NULL, "sm_1"};
static const char *const names[] = {"N", "", "BM", NULL};

typedef struct Objects {
    TilecContext *context;
    TilecArtefact *artefact;
    TilecModule *module;
    TilecDiagnostics *diagnostics;
} Objects;

typedef struct Bytes {
    const uint8_t *at, *end;
} Bytes;

static unsigned next(Bytes *bytes) {
    return bytes->at < bytes->end ? *bytes->at++ : 0;
}

static void expect(TilecStatus status) {
    if (status == TILEC_ERROR_INTERNAL) abort();
    if (!*tilec_status_text(status)) abort();
}

static void drop(Objects *o) {
    tilec_unload(o->module);
    tilec_artefact_destroy(o->artefact);
    o->module = NULL;
    o->artefact = NULL;
}

static TilecDiagnostics **fresh(Objects *o, Bytes *bytes) {
    tilec_diagnostics_destroy(o->diagnostics);
    o->diagnostics = NULL;
    return next(bytes) % 4 ? &o->diagnostics : NULL;
}

static void compile(Objects *o, Bytes *bytes) {
    drop(o);
    const char *source = sources[next(bytes) % 5];
    TilecDefine define = {names[next(bytes) % 4], next(bytes) % 2 ? "64" : NULL};
    TilecCompileOptions options = TILEC_INIT(TilecCompileOptions);
    options.target = targets[next(bytes) % 4];
    options.defines = next(bytes) % 2 ? &define : NULL;
    options.define_count = next(bytes) % 3;
    options.define_count = options.define_count > 1 ? 1 : options.define_count;
    options.no_assemble = true;
    options.only = names[next(bytes) % 4];
    options.record = next(bytes) % 8 ? NULL : "/nonexistent";
    options.time_limit = next(bytes) % 64 ? 0 : 1;
    if (next(bytes) % 4 == 0) options.size = next(bytes) % (sizeof options / 8) * 8;   // an older header's
    expect(tilec_compile(o->context, next(bytes) % 8 ? "input.tile" : NULL, next(bytes) % 8 ? source : NULL,
                         strlen(source), &options, next(bytes) % 8 ? &o->artefact : NULL, fresh(o, bytes)));
}

static void open(Objects *o, Bytes *bytes) {
    drop(o);
    size_t size;
    const void *file = artefact_bytes(&size);
    if (next(bytes) % 4 == 0) size = next(bytes);
    expect(tilec_artefact_open(o->context, next(bytes) % 8 ? file : NULL, size, next(bytes) % 8 ? &o->artefact : NULL,
                               fresh(o, bytes)));
}

static void load(Objects *o, Bytes *bytes) {
    tilec_unload(o->module);
    o->module = NULL;
    expect(tilec_load(o->artefact, &o->module, fresh(o, bytes)));
}

static void launch(Objects *o, Bytes *bytes) {
    TilecArg args[4];
    for (int i = 0; i < 4; i++) {
        int64_t shape[TILEC_MAX_RANK] = {next(bytes), 3, 5, 7};
        args[i] = next(bytes) % 4 ? tilec_tensor((TilecType)(next(bytes) % 17), (void *)(uintptr_t)(next(bytes) * 256u),
                                                 (int)(next(bytes) % 10) - 1, shape)
                                  : tilec_integer((int64_t)next(bytes) << next(bytes) % 56);
    }
    TilecLaunch options = TILEC_INIT(TilecLaunch);
    options.workspace = next(bytes) % 2 ? (void *)(uintptr_t)(next(bytes) * 64u) : NULL;
    options.workspace_size = next(bytes) * 64u;
    const TilecKernel *kernel = tilec_artefact_kernel(o->artefact, next(bytes) % 8);
    expect(tilec_launch(o->module, kernel, next(bytes) % 8 ? args : NULL, next(bytes) % 5,
                        next(bytes) % 2 ? &options : NULL, fresh(o, bytes)));
}

static void query(Objects *o, Bytes *bytes) {
    TilecDiagnostic diagnostic = TILEC_INIT(TilecDiagnostic);
    tilec_diagnostics_get(o->diagnostics, next(bytes), &diagnostic);
    tilec_diagnostics_text(o->diagnostics);
    tilec_diagnostics_json(o->diagnostics);
    query_all(o->artefact);
}

static TilecContext *new_context(void) {
    TilecContext *context;
    expect(tilec_context_create(NULL, &context));
    return context;
}

void fuzz(Arena *arena, Failure *failure, const uint8_t *data, size_t size) {
    (void)arena, (void)failure;
    Bytes bytes = {data, data + size};
    static TilecContext *shared;
    unsigned choice = next(&bytes) % 64;   // 0: none
    TilecContext *own = choice == 1 ? new_context() : NULL;
    if (!shared) shared = new_context();
    Objects o = {.context = choice > 1 ? shared : own};
    while (bytes.at < bytes.end) {
        static void (*const calls[])(Objects *, Bytes *) = {compile, open, load, launch, query, open, load, launch};
        calls[next(&bytes) % 8](&o, &bytes);
    }
    drop(&o);
    tilec_diagnostics_destroy(o.diagnostics);
    tilec_context_destroy(own);
}
