// Loads artefacts and launches their kernels; tensors are in device memory of the caller.
#include "runtime/api/api.h"
#include "runtime/api/arguments.h"
#include "runtime/api/status.h"
#include "runtime/device/module.h"
#include <limits.h>
#include <pthread.h>
#include <string.h>

enum { EVERY_DEVICE = -2 };   // as CURRENT_DEVICE, but for a module that loads by its launches

// Of a module for all devices, the modules of those that launches have named.
typedef struct Devices {
    pthread_mutex_t lock;
    TilecModule *first;
} Devices;

struct TilecModule {
    Object object;
    DeviceModule loaded;   // of a module for all devices driver and plan alone
    const TilecArtefact *artefact;
    Devices all, *devices;   // devices: `all`, NULL for a module of one device
    TilecModule *next;       // of one for all
    int ordinal;
};

typedef struct LoadJob {
    Job job;
    const TilecArtefact *artefact;
    int device;
    TilecModule *module;
} LoadJob;

static TilecStatus load(Job *job) {
    LoadJob *l = (LoadJob *)job;
    TilecModule *module = l->module;
    if (FAILURE_CAUGHT(&module->object.failure)) failure_hand_on(&module->object.failure, &job->failure);
    if (module->devices) {
        module->loaded.plan = l->artefact->plan;
        return cuda_open(&module->loaded.driver, job->sink) ? TILEC_OK : status_of(job->sink, 0);
    }
    bool ok = device_module_open(module->object.arena, job->sink, l->artefact->plan, l->artefact->cubin, l->device,
                                 &module->loaded);
    return ok ? TILEC_OK : status_of(job->sink, 0);
}

static void free_module(TilecModule *module) {
    for (TilecModule *m = module->all.first, *next; m; m = next) {
        next = m->next;
        free_module(m);
    }
    if (module->devices) pthread_mutex_destroy(&module->all.lock);
    else device_module_close(&module->loaded);
    object_free(module);
}

// `device`: an ordinal, CURRENT_DEVICE or EVERY_DEVICE.
static TilecStatus load_for(const TilecArtefact *artefact, int device, TilecModule **out,
                            TilecDiagnostics **diagnostics) {
    if (diagnostics) *diagnostics = NULL;
    if (!artefact || !out)
        return misuse(artefact ? artefact->object.host : libc_allocator, diagnostics, "tilec_load takes no NULL");
    *out = NULL;
    LoadJob l = {.job = {.host = artefact->object.host}, .artefact = artefact, .device = device};
    l.module = object_new(artefact->object.host, sizeof *l.module);
    if (!l.module) return TILEC_ERROR_ENVIRONMENT;
    l.module->artefact = artefact;
    l.module->ordinal = device;
    if (device == EVERY_DEVICE) {
        l.module->devices = &l.module->all;
        pthread_mutex_init(&l.module->all.lock, NULL);
    }
    TilecStatus status = job_run(&l.job, load, diagnostics);
    if (status == TILEC_OK) {
        *out = l.module;
        return status;
    }
    free_module(l.module);   // the driver may have loaded the code before memory ended
    return status;
}

TilecStatus tilec_load(const TilecArtefact *artefact, TilecModule **out, TilecDiagnostics **diagnostics) {
    return load_for(artefact, CURRENT_DEVICE, out, diagnostics);
}

TilecStatus tilec_load_on(const TilecArtefact *artefact, int device, TilecModule **out,
                          TilecDiagnostics **diagnostics) {
    if (device >= TILEC_ANY_DEVICE)
        return load_for(artefact, device == TILEC_ANY_DEVICE ? EVERY_DEVICE : device, out, diagnostics);
    if (out) *out = NULL;
    return misuse(artefact ? artefact->object.host : libc_allocator, diagnostics,
                  "a device has an ordinal of 0 or more, or is TILEC_ANY_DEVICE");
}

void tilec_unload(TilecModule *module) {
    if (module) free_module(module);
}

// ---- the module of a device ----

// That of the first tensor that says one, else the one that is current, else the first.
static int device_of(const TilecModule *module, const TilecArg *args, size_t count) {
    const Driver *driver = &module->loaded.driver;
    CudaContext current;
    CudaDevice device;
    for (size_t i = 0; i < count; i++) {
        TilecArg arg = argument_at(args, i);
        if (arg.kind == TILEC_TENSOR && arg.device >= 0) return arg.device;
    }
    bool known = driver->context_current(&current) == 0 && current && driver->context_device(&device) == 0;
    return known ? (int)device : 0;
}

// In the place of a module for all devices the one of the device that a launch with these arguments takes, which is loaded the first time.
static TilecStatus choose_device(const TilecModule **module, const TilecArg *args, size_t count,
                                 TilecDiagnostics **diagnostics) {
    const TilecModule *given = *module;
    TilecModule *found;
    TilecStatus status = TILEC_OK;
    if (!given->devices) return status;
    int ordinal = device_of(given, args, count);
    pthread_mutex_lock(&given->devices->lock);
    for (found = given->devices->first; found && found->ordinal != ordinal;) found = found->next;
    if (!found && (status = load_for(given->artefact, ordinal, &found, diagnostics)) == TILEC_OK) {
        found->next = given->devices->first;
        given->devices->first = found;
    }
    pthread_mutex_unlock(&given->devices->lock);
    *module = found;
    return status;
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

static TilecStatus sizes(Job *job) {
    LaunchJob *l = (LaunchJob *)job;
    Launch planned;
    const LaunchArg *args = arguments_read(job->arena, job->sink, l->entry, l->count, l->args);
    bool ok = args && device_module_dispatch(job->arena, job->sink, l->loaded, l->entry, (int)l->count, args,
                                             (LaunchMemory){0}, &planned);
    *(l->bytes ? l->bytes : l->zeroed) = !ok ? 0 : (size_t)(l->bytes ? planned.workspace : planned.zeroed);
    return ok ? TILEC_OK : status_of(job->sink, 0);
}

static TilecStatus launch(Job *job) {
    LaunchJob *l = (LaunchJob *)job;
    const TilecLaunch *options = &l->launch;
    GivenMemory given = {.at.workspace = (uint64_t)(uintptr_t)options->workspace,
                         .at.zeroed = (uint64_t)(uintptr_t)options->zeroed,
                         .workspace_size = (int64_t)options->workspace_size,
                         .zeroed_size = (int64_t)options->zeroed_size,
                         .allocate = options->allocate,
                         .release = options->release,
                         .user = options->allocate_user};
    const LaunchArg *args = arguments_read(job->arena, job->sink, l->entry, l->count, l->args);
    bool ok = args && arguments_there(job->sink, l->entry, l->count, l->args, l->loaded->hold.device) &&
              device_module_launch(job->arena, job->sink, l->loaded, l->entry, (int)l->count, args,
                                   (CudaStream)options->stream, &given);
    return ok ? TILEC_OK : status_of(job->sink, 0);
}

// NULL: the call can be made; else what is wrong with it.
static const char *fault_of(const Plan *plan, const TilecKernel *kernel, const TilecArg *args, size_t count) {
    if (!plan || !kernel || (count > 0 && !args)) return "a launch takes no NULL but for options and diagnostics";
    if (!plan_has(plan, kernel->entry)) return "the kernel is of another artefact";
    return arguments_fault(args, count);
}

static Allocator host_of(const TilecModule *module) {
    return module ? module->object.host : libc_allocator;
}

static LaunchJob launch_job(const TilecModule *module, const TilecKernel *kernel, const TilecArg *args, size_t count) {
    return (LaunchJob){.job = {.host = module->object.host},
                       .loaded = &module->loaded,
                       .entry = kernel->entry,
                       .count = count,
                       .args = args};
}

static TilecStatus ask_sizes(const TilecModule *module, const TilecKernel *kernel, const TilecArg *args, size_t count,
                             size_t *bytes, size_t *zeroed, TilecDiagnostics **diagnostics) {
    const char *fault = fault_of(module ? module->loaded.plan : NULL, kernel, args, count);
    if (!fault && !bytes && !zeroed) fault = "there is nowhere to write the size to";
    if (fault) return misuse(host_of(module), diagnostics, fault);
    TilecStatus status = choose_device(&module, args, count, diagnostics);
    if (status != TILEC_OK) return status;
    LaunchJob l = launch_job(module, kernel, args, count);
    l.bytes = bytes;
    l.zeroed = zeroed;
    return job_run(&l.job, sizes, diagnostics);
}

TilecStatus tilec_workspace_size(const TilecModule *module, const TilecKernel *kernel, const TilecArg *args,
                                 size_t arg_count, size_t *bytes, TilecDiagnostics **diagnostics) {
    return ask_sizes(module, kernel, args, arg_count, bytes, NULL, diagnostics);
}

TilecStatus tilec_zeroed_size(const TilecModule *module, const TilecKernel *kernel, const TilecArg *args,
                              size_t arg_count, size_t *bytes, TilecDiagnostics **diagnostics) {
    return ask_sizes(module, kernel, args, arg_count, NULL, bytes, diagnostics);
}

TilecStatus tilec_launch(const TilecModule *module, const TilecKernel *kernel, const TilecArg *args, size_t arg_count,
                         const TilecLaunch *options, TilecDiagnostics **diagnostics) {
    const char *fault = fault_of(module ? module->loaded.plan : NULL, kernel, args, arg_count);
    if (fault) return misuse(host_of(module), diagnostics, fault);
    TilecStatus status = choose_device(&module, args, arg_count, diagnostics);
    if (status != TILEC_OK) return status;
    LaunchJob l = launch_job(module, kernel, args, arg_count);
    if (options && !struct_in(&l.launch, sizeof l.launch, options)) fault = "the launch has no size: use TILEC_INIT";
    if (!fault && !l.launch.allocate != !l.launch.release) fault = "a launch has `allocate` and `release`, or neither";
    if (fault) return misuse(host_of(module), diagnostics, fault);
    return job_run(&l.job, launch, diagnostics);
}

// ---- devices ----

typedef struct DeviceJob {
    Job job;
    int ordinal;
    TilecDevice out;
} DeviceJob;

static TilecStatus describe_device(Job *job) {
    DeviceJob *j = (DeviceJob *)job;
    Driver driver;
    CudaDevice device;
    if (!cuda_open(&driver, job->sink) ||
        !cuda_check(&driver, job->sink, driver.device_get(&device, j->ordinal), "cuDeviceGet") ||
        !cuda_check(&driver, job->sink, driver.device_attribute(&j->out.multiprocessors, CUDA_MULTIPROCESSORS, device),
                    "cuDeviceGetAttribute"))
        return status_of(job->sink, 0);
    const Target *target = cuda_device_target(&driver, device);
    j->out.target = target ? target->name : "";
    return TILEC_OK;
}

TilecStatus tilec_device(TilecContext *context, int ordinal, TilecDevice *out, TilecDiagnostics **diagnostics) {
    Allocator host = context ? context->host : libc_allocator;
    if (!context || !out || out->size < sizeof out->size)
        return misuse(host, diagnostics, "tilec_device takes a context, and a device with its size: use TILEC_INIT");
    DeviceJob j = {.job = {.host = host}, .ordinal = ordinal};
    TilecStatus status = job_run(&j.job, describe_device, diagnostics);
    if (status == TILEC_OK) struct_out(out, out->size, &j.out, sizeof j.out);
    return status;
}

// ---- selecting ----

typedef struct SelectJob {
    Job job;
    const Plan *plan;
    const PlanEntry *entry;
    size_t count;
    const TilecArg *args;
    LaunchDevice device;
    TilecSelection out;
} SelectJob;

static int variant_index(const PlanEntry *entry, const PlanVariant *variant) {
    for (int i = 0; i < entry->variants.count; i++)
        if (&entry->variants.items[i] == variant) return i;
    return 0;
}

static TilecStatus choose(Job *job) {
    SelectJob *s = (SelectJob *)job;
    Launch planned;
    const LaunchArg *args = arguments_read(job->arena, job->sink, s->entry, s->count, s->args);
    if (!args || !plan_dispatch(job->arena, job->sink, s->plan, s->entry, (int)s->count, args, &s->device,
                                (LaunchMemory){0}, &planned))
        return status_of(job->sink, 0);
    s->out.launches = planned.actions.count;
    s->out.workspace = planned.workspace;
    s->out.variant = variant_index(s->entry, planned.variant);
    s->out.microseconds = plan_microseconds(s->plan, &planned, args);
    s->out.symbol = "";
    for (int i = planned.actions.count - 1; i >= 0; i--) {
        const Action *action = &planned.actions.items[i];
        if (!action->variant) continue;
        s->out.symbol = action->variant->symbol;
        s->out.grid = action->grid;
        s->out.threads = action->variant->threads;
        s->out.shared_bytes = action->variant->shared_bytes;
    }
    return TILEC_OK;
}

TilecStatus tilec_select(const TilecArtefact *artefact, const TilecKernel *kernel, const TilecArg *args,
                         size_t arg_count, int multiprocessors, TilecSelection *out, TilecDiagnostics **diagnostics) {
    Allocator host = artefact ? artefact->object.host : libc_allocator;
    const char *fault = fault_of(artefact ? artefact->plan : NULL, kernel, args, arg_count);
    if (!fault && (!out || out->size < sizeof out->size)) fault = "the selection has no size: use TILEC_INIT";
    if (!fault && multiprocessors < 1) fault = "a device has at least one multiprocessor";
    if (fault) return misuse(host, diagnostics, fault);
    SelectJob s = {.job = {.host = host}, .plan = artefact->plan, .entry = kernel->entry, .count = arg_count};
    s.args = args;
    s.device = (LaunchDevice){.multiprocessors = multiprocessors, .max_grid = INT_MAX};
    TilecStatus status = job_run(&s.job, choose, diagnostics);
    if (status == TILEC_OK) struct_out(out, out->size, &s.out, sizeof s.out);
    return status;
}
