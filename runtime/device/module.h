// An artefact's code on the device, and launches of its plan.
//
// In: a plan (runtime/plan/), a cubin, arguments in device memory, a stream. Out: kernels and fills in that stream.
// The files of runtime/device/:
//
//     cuda             the CUDA driver, loaded at run time; contexts
//     module           loads a cubin, runs the actions of a launch
//     tensor_map       encodes and caches TMA tensor maps
//     zeroed_pool      scratch that stays zero between launches, one per stream
//     device           copies host tensors to the device and back (test, run, bench)
#pragma once
#include "runtime/device/cuda.h"
#include "runtime/device/tensor_map.h"
#include "runtime/device/zeroed_pool.h"
#include "runtime/plan/launch_cache.h"

// The device function of a kernel variant.
typedef struct DeviceKernel {
    const PlanVariant *variant;
    CudaFunction function;
} DeviceKernel;

typedef struct DeviceModule {
    Driver driver;
    CudaDeviceHold hold;
    CudaModule module;
    const Plan *plan;
    LaunchDevice device;
    MapCache *maps;
    LaunchCache *cache;
    ZeroedPool *zeroed;
    VEC(DeviceKernel) kernels;
} DeviceModule;

enum { CURRENT_DEVICE = -1 };

// Loads a cubin into the primary context of a device, by its ordinal; CURRENT_DEVICE: into the current context, else the
// primary one of device 0. False: reported; nothing stays loaded.
bool device_module_open(Arena *arena, DiagSink *sink, const Plan *plan, const void *cubin, int device,
                        DeviceModule *out);
void device_module_close(DeviceModule *loaded);
const char *device_module_device_name(Arena *arena, const DeviceModule *loaded);   // "NVIDIA H200"

// Enqueues the actions in a stream, in order. False: reported; earlier actions may be enqueued.
bool device_module_run(DiagSink *sink, const DeviceModule *loaded, const Launch *launch, CudaStream stream);

// plan_dispatch for the plan and device of the module, through its launch cache.
bool device_module_dispatch(Arena *arena, DiagSink *sink, const DeviceModule *loaded, const PlanEntry *entry, int count,
                            const LaunchArg *args, LaunchMemory memory, Launch *out);

// Scratch memory of the caller, with sizes in bytes. Workspace 0: allocated from the stream's memory pool for this
// launch. Both 0: zeroed scratch comes from the stream's zeroed pool, if possible.
typedef struct GivenMemory {
    LaunchMemory at;
    int64_t workspace_size, zeroed_size;
    // The caller's allocator in stream order, in the place of the stream's pool; NULL: none.
    void *(*allocate)(void *user, size_t bytes, void *stream);
    void (*release)(void *user, void *memory, void *stream);
    void *user;
} GivenMemory;

// Dispatches and runs. `arena`: temporary memory, may be freed after the call.
bool device_module_launch(Arena *arena, DiagSink *sink, const DeviceModule *loaded, const PlanEntry *entry, int count,
                          const LaunchArg *args, CudaStream stream, const GivenMemory *given);
