// Loads artefacts and launches their kernels; tensors are in device memory of the caller.
#include "runtime/api/api.h"
#include "runtime/api/status.h"
#include "runtime/device/module.h"
#include <string.h>

struct TilecModule {
    Object object;
    DeviceModule loaded;
};

typedef struct LoadJob {
    Job job;
    const TilecArtefact *artefact;
    TilecModule *module;
} LoadJob;

static TilecStatus load(Job *job) {
    LoadJob *l = (LoadJob *)job;
    TilecModule *module = l->module;
    if (FAILURE_CAUGHT(&module->object.failure)) failure_hand_on(&module->object.failure, &job->failure);
    bool ok =
        device_module_open(module->object.arena, job->sink, l->artefact->plan, l->artefact->cubin, &module->loaded);
    return ok ? TILEC_OK : status_of(job->sink, 0);
}

TilecStatus tilec_load(const TilecArtefact *artefact, TilecModule **out, TilecDiagnostics **diagnostics) {
    if (diagnostics) *diagnostics = NULL;
    if (!artefact || !out) return TILEC_ERROR_USAGE;
    *out = NULL;
    LoadJob l = {.job = {.host = artefact->object.host}, .artefact = artefact};
    l.module = object_new(artefact->object.host, sizeof *l.module);
    if (!l.module) return TILEC_ERROR_ENVIRONMENT;
    TilecStatus status = job_run(&l.job, load, diagnostics);
    if (status == TILEC_OK) {
        *out = l.module;
        return status;
    }
    device_module_close(&l.module->loaded);   // out of memory after the driver loaded the code
    object_free(l.module);
    return status;
}

void tilec_unload(TilecModule *module) {
    if (!module) return;
    device_module_close(&module->loaded);
    object_free(module);
}

// ---- arguments ----

TilecArg tilec_strided_tensor(void *data, int rank, const int64_t *shape, const int64_t *strides) {
    TilecArg arg = {.kind = TILEC_TENSOR, .data = data, .rank = rank};
    for (int d = 0; d < rank && d < TILEC_MAX_RANK && shape && strides; d++) {
        arg.shape[d] = shape[d];
        arg.strides[d] = strides[d];
    }
    return arg;
}

TilecArg tilec_tensor(void *data, int rank, const int64_t *shape) {
    int64_t strides[TILEC_MAX_RANK] = {0}, stride = 1;
    for (int d = rank - 1; d >= 0 && shape; d--) {
        if (d >= TILEC_MAX_RANK) continue;
        strides[d] = stride;
        if (__builtin_mul_overflow(stride, shape[d], &stride))
            stride = INT64_MAX;   // tilec_launch rejects such a tensor
    }
    return tilec_strided_tensor(data, rank, shape, strides);
}

TilecArg tilec_integer(int64_t value) {
    return (TilecArg){.kind = TILEC_INTEGER, .integer = value};
}

TilecArg tilec_real(double value) {
    return (TilecArg){.kind = TILEC_REAL, .real = value};
}

_Static_assert(TILEC_MAX_RANK == (int)LAYOUT_MAX_RANK, "the public rank is the IR's");

static LaunchArg *launch_args(Arena *arena, size_t count, const TilecArg *args) {
    LaunchArg *out = NEW_ARRAY(arena, LaunchArg, count + 1);
    for (size_t i = 0; i < count; i++) {
        const TilecArg *from = &args[i];
        out[i].is_tensor = from->kind == TILEC_TENSOR;
        out[i].scalar = from->kind == TILEC_REAL ? (Scalar){.type = TYPE_F64, .real = from->real}
                                                 : (Scalar){.type = TYPE_I64, .integer = from->integer};
        out[i].address = (uint64_t)(uintptr_t)from->data;
        out[i].rank = from->rank;
        memcpy(out[i].shape, from->shape, sizeof out[i].shape);
        memcpy(out[i].strides, from->strides, sizeof out[i].strides);
    }
    return out;
}

// ---- launching ----

typedef struct LaunchJob {
    Job job;
    const DeviceModule *loaded;
    const PlanEntry *entry;
    size_t count;
    const TilecArg *args;
    TilecLaunch launch;
    size_t *bytes, *zeroed;   // non-NULL: compute only this size
} LaunchJob;

static TilecStatus launch(Job *job) {
    LaunchJob *l = (LaunchJob *)job;
    LaunchArg *args = launch_args(job->arena, l->count, l->args);
    bool ok;
    if (l->bytes || l->zeroed) {
        Launch planned;
        ok = device_module_dispatch(job->arena, job->sink, l->loaded, l->entry, (int)l->count, args, (LaunchMemory){0},
                                    &planned);
        if (l->bytes) *l->bytes = ok ? (size_t)planned.workspace : 0;
        if (l->zeroed) *l->zeroed = ok ? (size_t)planned.zeroed : 0;
    } else {
        GivenMemory given = {.at.workspace = (uint64_t)(uintptr_t)l->launch.workspace,
                             .at.zeroed = (uint64_t)(uintptr_t)l->launch.zeroed,
                             .workspace_size = (int64_t)l->launch.workspace_size,
                             .zeroed_size = (int64_t)l->launch.zeroed_size};
        ok = device_module_launch(job->arena, job->sink, l->loaded, l->entry, (int)l->count, args,
                                  (CudaStream)l->launch.stream, &given);
    }
    return ok ? TILEC_OK : status_of(job->sink, 0);
}

static bool usable(const TilecModule *module, const TilecKernel *kernel, const TilecArg *args, size_t count) {
    if (!module || !kernel || (count > 0 && !args) || count > 4096) return false;
    if (!plan_has(module->loaded.plan, kernel->entry)) return false;
    for (size_t i = 0; i < count; i++)
        if (args[i].kind == TILEC_TENSOR && (args[i].rank < 0 || args[i].rank > TILEC_MAX_RANK)) return false;
    return true;
}

static LaunchJob launch_job(const TilecModule *module, const TilecKernel *kernel, const TilecArg *args, size_t count) {
    return (LaunchJob){.job = {.host = module->object.host},
                       .loaded = &module->loaded,
                       .entry = kernel->entry,
                       .count = count,
                       .args = args};
}

static TilecStatus sizes(const TilecModule *module, const TilecKernel *kernel, const TilecArg *args, size_t count,
                         size_t *bytes, size_t *zeroed, TilecDiagnostics **diagnostics) {
    if (diagnostics) *diagnostics = NULL;
    if (!usable(module, kernel, args, count) || (!bytes && !zeroed)) return TILEC_ERROR_USAGE;
    LaunchJob l = launch_job(module, kernel, args, count);
    l.bytes = bytes;
    l.zeroed = zeroed;
    return job_run(&l.job, launch, diagnostics);
}

TilecStatus tilec_workspace_size(const TilecModule *module, const TilecKernel *kernel, const TilecArg *args,
                                 size_t arg_count, size_t *bytes, TilecDiagnostics **diagnostics) {
    return sizes(module, kernel, args, arg_count, bytes, NULL, diagnostics);
}

TilecStatus tilec_zeroed_size(const TilecModule *module, const TilecKernel *kernel, const TilecArg *args,
                              size_t arg_count, size_t *bytes, TilecDiagnostics **diagnostics) {
    return sizes(module, kernel, args, arg_count, NULL, bytes, diagnostics);
}

TilecStatus tilec_launch(const TilecModule *module, const TilecKernel *kernel, const TilecArg *args, size_t arg_count,
                         const TilecLaunch *options, TilecDiagnostics **diagnostics) {
    if (diagnostics) *diagnostics = NULL;
    if (!usable(module, kernel, args, arg_count) || (options && options->size < sizeof options->size))
        return TILEC_ERROR_USAGE;
    LaunchJob l = launch_job(module, kernel, args, arg_count);
    if (options) memcpy(&l.launch, options, options->size < sizeof l.launch ? options->size : sizeof l.launch);
    return job_run(&l.job, launch, diagnostics);
}
