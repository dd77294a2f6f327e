#include "runtime/device/module.h"
#include "support/fail.h"
#include <limits.h>
#include <stdio.h>
#include <string.h>

static const Span NOWHERE;

// More dynamic shared memory than the default needs a function attribute.
static bool load_kernel(Arena *arena, DiagSink *sink, DeviceModule *l, const PlanVariant *variant) {
    DeviceKernel kernel = {.variant = variant};
    const Driver *d = &l->driver;
    if (!cuda_check(d, sink, d->module_function(&kernel.function, l->module, variant->symbol), "cuModuleGetFunction"))
        return false;
    if (!cuda_check(d, sink, d->function_set(kernel.function, CUDA_FUNCTION_SHARED, (int)variant->shared_bytes),
                    "cuFuncSetAttribute (dynamic shared memory)"))
        return false;
    // An SM runs kernels at the same time only where its shared memory is divided alike.
    if (variant->pdl && !cuda_check(d, sink, d->function_set(kernel.function, CUDA_FUNCTION_CARVEOUT, 100),
                                    "cuFuncSetAttribute (shared memory carveout)"))
        return false;
    const int *c = variant->cluster;
    if (c[0] * c[1] * c[2] > CUDA_CLUSTER_PORTABLE &&
        !cuda_check(d, sink, d->function_set(kernel.function, CUDA_FUNCTION_CLUSTER_ANY, 1),
                    "cuFuncSetAttribute (cluster size)"))
        return false;
    vec_push(arena, &l->kernels, kernel);
    return true;
}

// Code for sm_90 runs on 9.0 and later 9.x; code for sm_90a on 9.0 only.
static bool check_target(DiagSink *sink, const DeviceModule *l) {
    int major = 0, minor = 0, number = 0;
    char suffix = 0;
    l->driver.device_attribute(&major, CUDA_MAJOR, l->hold.device);
    l->driver.device_attribute(&minor, CUDA_MINOR, l->hold.device);
    if (sscanf(l->plan->target, "sm_%d%c", &number, &suffix) < 1) return true;   // the driver reports it
    bool fits = number / 10 == major && (suffix == 'a' ? number % 10 == minor : number % 10 <= minor);
    if (!fits) diag(sink, NOWHERE, T_WRONG_DEVICE, l->plan->target, major, minor);
    return fits;
}

static bool load(Arena *arena, DiagSink *sink, const void *cubin, DeviceModule *l) {
    const Driver *d = &l->driver;
    int grid = INT_MAX;
    if (!check_target(sink, l)) return false;
    if (!cuda_check(d, sink, d->device_attribute(&l->device.multiprocessors, CUDA_MULTIPROCESSORS, l->hold.device),
                    "cuDeviceGetAttribute") ||
        !cuda_check(d, sink, d->device_attribute(&grid, CUDA_MAX_GRID_X, l->hold.device), "cuDeviceGetAttribute"))
        return false;
    l->device.max_grid = grid;
    if (!cuda_check(d, sink, d->module_load(&l->module, cubin), "cuModuleLoadData")) return false;
    for (int e = 0; e < l->plan->entries.count; e++) {
        const PlanEntry *entry = &l->plan->entries.items[e];
        for (int v = 0; v < entry->variants.count; v++)
            if (entry->variants.items[v].symbol && !load_kernel(arena, sink, l, &entry->variants.items[v]))
                return false;
    }
    return true;
}

typedef struct LoadThere {
    Arena *arena;
    DiagSink *sink;
    const void *cubin;
    DeviceModule *module;
    CudaContext before;
} LoadThere;

static bool load_there(void *user) {
    LoadThere *l = user;
    return cuda_enter(&l->module->driver, l->sink, &l->module->hold, &l->before) &&
           load(l->arena, l->sink, l->cubin, l->module);
}

static void leave_there(void *user) {
    LoadThere *l = user;
    cuda_leave(&l->module->driver, &l->module->hold, l->before);
}

bool device_module_open(Arena *arena, DiagSink *sink, const Plan *plan, const void *cubin, int device,
                        DeviceModule *out) {
    *out = (DeviceModule){
        .plan = plan, .maps = map_cache_new(arena), .cache = launch_cache_new(arena), .zeroed = zeroed_pool_new(arena)};
    if (!cubin) {
        diag(sink, NOWHERE, T_NO_CUBIN);
        return false;
    }
    if (!cuda_open(&out->driver, sink)) return false;
    if (!(device == CURRENT_DEVICE ? cuda_hold(&out->driver, sink, &out->hold)
                                   : cuda_hold_device(&out->driver, sink, device, &out->hold)))
        return false;
    LoadThere there = {arena, sink, cubin, out, out->hold.context};
    if (fail_scope(arena_failure(arena), load_there, leave_there, &there)) return true;
    device_module_close(out);
    return false;
}

// May run in another thread, and with another current context, than the open.
void device_module_close(DeviceModule *loaded) {
    const Driver *d = &loaded->driver;
    if (loaded->module) {
        CudaContext before = cuda_switch(d, &loaded->hold);
        zeroed_pool_free(d, loaded->zeroed);
        d->module_unload(loaded->module);
        if (before != loaded->hold.context) d->context_set(before);
    }
    loaded->module = NULL;
    cuda_release(d, &loaded->hold);
}

const char *device_module_device_name(Arena *arena, const DeviceModule *loaded) {
    char name[128] = "?";
    loaded->driver.device_name(name, sizeof name, loaded->hold.device);
    name[sizeof name - 1] = 0;
    return arena_strdup(arena, name);
}

static CudaFunction function_of(const DeviceModule *l, const PlanVariant *variant) {
    for (int i = 0; i < l->kernels.count; i++)
        if (l->kernels.items[i].variant == variant) return l->kernels.items[i].function;
    return NULL;
}

static bool encode_maps(DiagSink *sink, const DeviceModule *l, const Action *a) {
    TensorMapBytes *maps = a->map_room;
    for (int i = 0; i < a->variant->maps.count; i++) {
        if (!map_encode(&l->driver, sink, l->maps, &a->maps[i], &maps[i])) return false;
        a->slots[a->variant->maps.items[i].at] = &maps[i];
    }
    return true;
}

static bool run_kernel(DiagSink *sink, const DeviceModule *l, const Action *a, CudaStream stream) {
    for (int i = 0; i < a->param_count; i++)
        a->slots[i] = &a->params[i];   // little endian: the scalar is in the low bytes
    if (!encode_maps(sink, l, a)) return false;
    // The kernel itself waits for earlier kernels (griddepcontrol.wait), so it may start early.
    const int *cluster = a->variant->cluster;
    CudaLaunchAttribute attributes[2];
    CudaLaunch launch = {.grid = {(unsigned)a->grid, 1, 1},
                         .block = {(unsigned)a->variant->threads, 1, 1},
                         .shared_bytes = (unsigned)a->variant->shared_bytes,
                         .stream = stream,
                         .attributes = attributes};
    if (a->grid <= (int64_t)a->variant->pdl * l->device.multiprocessors)
        attributes[launch.attribute_count++] = (CudaLaunchAttribute){.id = CUDA_LAUNCH_PDL, .value.pdl = 1};
    // (Clusters of one CTA are placed otherwise than CTAs, and take up to 1.6 times as long.)
    unsigned ctas = (unsigned)(cluster[0] * cluster[1]);
    if (a->variant->sets_cluster && ctas > 1)
        attributes[launch.attribute_count++] =
            (CudaLaunchAttribute){.id = CUDA_LAUNCH_CLUSTER, .value.cluster = {ctas, 1, 1}};
    CudaResult result = l->driver.launch(&launch, function_of(l, a->variant), a->slots, NULL);
    return cuda_check(&l->driver, sink, result, a->variant->symbol);
}

// 8-byte elements with different halves are set as two columns of a matrix of 4-byte words.
static bool run_fill(DiagSink *sink, const DeviceModule *l, const Action *a, CudaStream stream) {
    const Driver *d = &l->driver;
    size_t count = (size_t)a->count;
    unsigned low = (unsigned)a->pattern, high = (unsigned)(a->pattern >> 32);
    CudaResult result;
    if (a->width == 1) result = d->set8(a->address, (unsigned char)low, count, stream);
    else if (a->width == 2) result = d->set16(a->address, (unsigned short)low, count, stream);
    else if (a->width == 4) result = d->set32(a->address, low, count, stream);
    else if (low == high) result = d->set32(a->address, low, 2 * count, stream);
    else {
        result = d->set32_2d(a->address, 8, low, 1, count, stream);
        if (result == 0) result = d->set32_2d(a->address + 4, 8, high, 1, count, stream);
    }
    return cuda_check(d, sink, result, "cuMemset");
}

bool device_module_run(DiagSink *sink, const DeviceModule *loaded, const Launch *launch, CudaStream stream) {
    for (int i = 0; i < launch->actions.count; i++) {
        const Action *action = &launch->actions.items[i];
        bool ok = action->variant ? run_kernel(sink, loaded, action, stream) : run_fill(sink, loaded, action, stream);
        if (!ok) return false;
    }
    return true;
}

bool device_module_dispatch(Arena *arena, DiagSink *sink, const DeviceModule *loaded, const PlanEntry *entry, int count,
                            const LaunchArg *args, LaunchMemory memory, Launch *out) {
    return launch_cache_dispatch(arena, sink, loaded->cache, loaded->plan, entry, count, args, &loaded->device, memory,
                                 out);
}

static bool is_enough(DiagSink *sink, const PlanEntry *entry, const char *what, int64_t need, int64_t given) {
    if (need > given) diag(sink, NOWHERE, T_WORKSPACE_SMALL, entry->name, (long long)need, what, (long long)given);
    return need <= given;
}

// An address of which the alignment of scratch can be counted on.
static bool is_aligned(DiagSink *sink, const char *what, uint64_t address) {
    if (address % WORKSPACE_ALIGN != 0) diag(sink, NOWHERE, T_MISUSE, what);
    return address % WORKSPACE_ALIGN == 0;
}

// What a launch is asked for with.
typedef struct AskedLaunch {
    Arena *arena;
    DiagSink *sink;
    const DeviceModule *loaded;
    const PlanEntry *entry;
    int count;
    const LaunchArg *args;
    CudaStream stream;
    const GivenMemory *given;
} AskedLaunch;

// A launch whose workspace comes from the stream's pool and is released on all paths.
typedef struct PoolLaunch {
    AskedLaunch asked;
    LaunchMemory at;
    bool pooled;
    CudaResult released;
} PoolLaunch;

static bool dispatch_asked(const AskedLaunch *l, LaunchMemory at, Launch *out) {
    return device_module_dispatch(l->arena, l->sink, l->loaded, l->entry, l->count, l->args, at, out);
}

static bool launch_there(void *user) {
    const PoolLaunch *l = user;
    Launch launch;
    return is_aligned(l->asked.sink, "scratch of `allocate` is not 256-byte aligned", l->at.workspace) &&
           dispatch_asked(&l->asked, l->at, &launch) &&
           device_module_run(l->asked.sink, l->asked.loaded, &launch, l->asked.stream);
}

static void give_back(void *user) {
    PoolLaunch *l = user;
    const GivenMemory *given = l->asked.given;
    if (!l->pooled) return;
    if (given->release) given->release(given->user, (void *)(uintptr_t)l->at.workspace, l->asked.stream);
    else l->released = l->asked.loaded->driver.release_async(l->at.workspace, l->asked.stream);
}

static bool allocate(PoolLaunch *l, int64_t bytes) {
    const AskedLaunch *asked = &l->asked;
    const Driver *d = &asked->loaded->driver;
    const GivenMemory *given = asked->given;
    if (!given->allocate)
        return cuda_check(d, asked->sink, d->allocate_async(&l->at.workspace, (size_t)bytes, asked->stream),
                          "cuMemAllocAsync");
    l->at.workspace = (uint64_t)(uintptr_t)given->allocate(given->user, (size_t)bytes, asked->stream);
    if (!l->at.workspace)
        diag(asked->sink, NOWHERE, T_WORKSPACE_SMALL, asked->entry->name, (long long)bytes, "workspace", 0LL);
    return l->at.workspace != 0;
}

static bool launch_from_pool(PoolLaunch *l, int64_t bytes) {
    const AskedLaunch *asked = &l->asked;
    l->pooled = bytes > 0;
    if (l->pooled && !allocate(l, bytes)) return false;
    bool ok = fail_scope(arena_failure(asked->arena), launch_there, give_back, l);
    return cuda_check(&asked->loaded->driver, asked->sink, l->released, "cuMemFreeAsync") && ok;
}

static bool launch_here(const AskedLaunch *l) {
    Launch launch;
    const GivenMemory *given = l->given;
    LaunchMemory at = given->at;
    if (!dispatch_asked(l, at, &launch)) return false;
    if (!plan_arguments_separate(l->sink, l->entry, l->count, l->args)) return false;
    if (at.workspace && !is_enough(l->sink, l->entry, "workspace", launch.workspace, given->workspace_size))
        return false;
    if (at.zeroed && !is_enough(l->sink, l->entry, "zeroed workspace", launch.zeroed, given->zeroed_size)) return false;
    if (at.workspace && launch.workspace && !is_aligned(l->sink, "the workspace is not 256-byte aligned", at.workspace))
        return false;
    if (launch.zeroed && !is_aligned(l->sink, "the zeroed memory is not 256-byte aligned", at.zeroed)) return false;
    if (at.workspace || launch.workspace == 0) return device_module_run(l->sink, l->loaded, &launch, l->stream);
    if (!at.zeroed && launch.zeroed > 0 &&
        !zeroed_pool_take(&l->loaded->driver, l->sink, l->loaded->zeroed, l->stream, launch.zeroed, &at.zeroed))
        return false;
    PoolLaunch there = {.asked = *l, .at = at};
    return launch_from_pool(&there, launch.workspace - (at.zeroed && !given->at.zeroed ? launch.zeroed : 0));
}

typedef struct EnteredLaunch {
    AskedLaunch asked;
    CudaContext before;
} EnteredLaunch;

static bool launch_entered(void *user) {
    return launch_here(&((const EnteredLaunch *)user)->asked);
}

static void leave(void *user) {
    const EnteredLaunch *e = user;
    cuda_leave(&e->asked.loaded->driver, &e->asked.loaded->hold, e->before);
}

bool device_module_launch(Arena *arena, DiagSink *sink, const DeviceModule *loaded, const PlanEntry *entry, int count,
                          const LaunchArg *args, CudaStream stream, const GivenMemory *given) {
    EnteredLaunch e = {{arena, sink, loaded, entry, count, args, stream, given}, NULL};
    if (!cuda_enter(&loaded->driver, sink, &loaded->hold, &e.before)) return false;
    if (!loaded->hold.switches) return launch_entered(&e);
    return fail_scope(arena_failure(arena), launch_entered, leave, &e);
}
