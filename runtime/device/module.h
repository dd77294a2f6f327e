// An artefact's code on the device, and running launches of its plan.
#pragma once
#include "runtime/device/cuda.h"
#include "runtime/device/tensor_map.h"
#include "runtime/device/zeroed_pool.h"
#include "runtime/plan/launch_cache.h"

// The code of one kernel variant.
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

// Loads a cubin into the current context (or device 0's). False: reported; nothing is left loaded.
bool device_module_open(Arena *arena, DiagSink *sink, const Plan *plan, const void *cubin, DeviceModule *out);
void device_module_close(DeviceModule *loaded);
const char *device_module_device_name(Arena *arena, const DeviceModule *loaded);   // "NVIDIA H200"

// Sends the actions to a stream, in order. False: reported; earlier actions may have been sent.
bool device_module_run(DiagSink *sink, const DeviceModule *loaded, const Launch *launch, CudaStream stream);

// plan_dispatch for the loaded plan and device, from what was resolved before where that is known.
bool device_module_dispatch(Arena *arena, DiagSink *sink, const DeviceModule *loaded, const PlanEntry *entry, int count,
                            const LaunchArg *args, LaunchMemory memory, Launch *out);

// What a caller gives for scratch, as LaunchMemory has it, with the sizes in bytes. Where the workspace is 0, it comes from the
// stream's pool for the time of the launch; where both are, what kernels leave zero is kept with the stream, if it can be.
typedef struct GivenMemory {
    LaunchMemory at;
    int64_t workspace_size, zeroed_size;
} GivenMemory;

// Resolves and runs. `arena` holds what resolving makes and can be freed afterwards.
bool device_module_launch(Arena *arena, DiagSink *sink, const DeviceModule *loaded, const PlanEntry *entry, int count,
                          const LaunchArg *args, CudaStream stream, const GivenMemory *given);
