// The CUDA driver, loaded at run time: dlopen of libcuda.so.1. The build needs no CUDA header.
//
// A Driver is a table of functions, one per row of CUDA_FUNCTIONS. Handles are opaque pointers. A result other than 0
// is an error; cuda_check reports it.
#pragma once
#include "support/arena.h"
#include "support/diag.h"
#include "target/target.h"
#include <stdbool.h>

typedef int CudaResult;
typedef int CudaDevice;
typedef struct CudaContextObject *CudaContext;
typedef struct CudaModuleObject *CudaModule;
typedef struct CudaFunctionObject *CudaFunction;
typedef struct CudaStreamObject *CudaStream;
typedef struct CudaEventObject *CudaEvent;
typedef struct CudaGraphObject *CudaGraph;
typedef struct CudaGraphExecObject *CudaGraphExec;
typedef uint64_t CudaAddress;

// CUlaunchAttribute and CUlaunchConfig (CUDA driver API).
typedef struct CudaLaunchAttribute {
    int id, unused;
    union {
        char bytes[64];
        int pdl;               // of CUDA_LAUNCH_PDL
        unsigned cluster[3];   // of CUDA_LAUNCH_CLUSTER
    } value;
} CudaLaunchAttribute;

typedef struct CudaLaunch {
    unsigned grid[3], block[3], shared_bytes;
    CudaStream stream;
    CudaLaunchAttribute *attributes;
    unsigned attribute_count;
} CudaLaunch;

// X(name in Driver, symbol, parameters)
#define CUDA_FUNCTIONS(X)                                                                                              \
    X(init, "cuInit", (unsigned flags))                                                                                \
    X(driver_version, "cuDriverGetVersion", (int *version))                                                            \
    X(error_string, "cuGetErrorString", (CudaResult result, const char **text))                                        \
    X(error_name, "cuGetErrorName", (CudaResult result, const char **text))                                            \
    X(device_count, "cuDeviceGetCount", (int *count))                                                                  \
    X(device_get, "cuDeviceGet", (CudaDevice * device, int ordinal))                                                   \
    X(device_name, "cuDeviceGetName", (char *name, int length, CudaDevice device))                                     \
    X(device_attribute, "cuDeviceGetAttribute", (int *value, int attribute, CudaDevice device))                        \
    X(primary_retain, "cuDevicePrimaryCtxRetain", (CudaContext * context, CudaDevice device))                          \
    X(primary_release, "cuDevicePrimaryCtxRelease_v2", (CudaDevice device))                                            \
    X(primary_state, "cuDevicePrimaryCtxGetState", (CudaDevice device, unsigned *flags, int *active))                  \
    X(context_current, "cuCtxGetCurrent", (CudaContext * context))                                                     \
    X(context_set, "cuCtxSetCurrent", (CudaContext context))                                                           \
    X(context_version, "cuCtxGetApiVersion", (CudaContext context, unsigned *version))                                 \
    X(context_device, "cuCtxGetDevice", (CudaDevice * device))                                                         \
    X(context_synchronize, "cuCtxSynchronize", (void))                                                                 \
    X(module_load, "cuModuleLoadData", (CudaModule * module, const void *image))                                       \
    X(module_unload, "cuModuleUnload", (CudaModule module))                                                            \
    X(module_function, "cuModuleGetFunction", (CudaFunction * function, CudaModule module, const char *name))          \
    X(function_set, "cuFuncSetAttribute", (CudaFunction function, int attribute, int value))                           \
    X(launch, "cuLaunchKernelEx", (const CudaLaunch *launch, CudaFunction function, void **params, void **extra))      \
    X(allocate, "cuMemAlloc_v2", (CudaAddress * address, size_t bytes))                                                \
    X(release, "cuMemFree_v2", (CudaAddress address))                                                                  \
    X(allocate_async, "cuMemAllocAsync", (CudaAddress * address, size_t bytes, CudaStream stream))                     \
    X(release_async, "cuMemFreeAsync", (CudaAddress address, CudaStream stream))                                       \
    X(to_device, "cuMemcpyHtoD_v2", (CudaAddress to, const void *from, size_t bytes))                                  \
    X(to_host, "cuMemcpyDtoH_v2", (void *to, CudaAddress from, size_t bytes))                                          \
    X(set8, "cuMemsetD8Async", (CudaAddress address, unsigned char value, size_t count, CudaStream stream))            \
    X(set16, "cuMemsetD16Async", (CudaAddress address, unsigned short value, size_t count, CudaStream stream))         \
    X(set32, "cuMemsetD32Async", (CudaAddress address, unsigned value, size_t count, CudaStream stream))               \
    X(set32_2d, "cuMemsetD2D32Async",                                                                                  \
      (CudaAddress address, size_t pitch, unsigned value, size_t width, size_t height, CudaStream stream))             \
    X(event_create, "cuEventCreate", (CudaEvent * event, unsigned flags))                                              \
    X(event_record, "cuEventRecord", (CudaEvent event, CudaStream stream))                                             \
    X(event_synchronize, "cuEventSynchronize", (CudaEvent event))                                                      \
    X(event_elapsed, "cuEventElapsedTime", (float *milliseconds, CudaEvent from, CudaEvent to))                        \
    X(event_destroy, "cuEventDestroy_v2", (CudaEvent event))

// CUDA graphs: optional, drivers before CUDA 11.4 lack some of these.
#define CUDA_GRAPH_FUNCTIONS(X)                                                                                        \
    X(stream_create, "cuStreamCreate", (CudaStream * stream, unsigned flags))                                          \
    X(stream_destroy, "cuStreamDestroy_v2", (CudaStream stream))                                                       \
    X(capture_begin, "cuStreamBeginCapture_v2", (CudaStream stream, int mode))                                         \
    X(capture_end, "cuStreamEndCapture", (CudaStream stream, CudaGraph * graph))                                       \
    X(graph_instantiate, "cuGraphInstantiateWithFlags",                                                                \
      (CudaGraphExec * exec, CudaGraph graph, unsigned long long flags))                                               \
    X(graph_launch, "cuGraphLaunch", (CudaGraphExec exec, CudaStream stream))                                          \
    X(graph_exec_destroy, "cuGraphExecDestroy", (CudaGraphExec exec))                                                  \
    X(graph_destroy, "cuGraphDestroy", (CudaGraph graph))

// Identification of streams: optional, drivers before CUDA 12 lack it.
#define CUDA_STREAM_FUNCTIONS(X)                                                                                       \
    X(stream_is_capturing, "cuStreamIsCapturing", (CudaStream stream, int *status))                                    \
    X(stream_number, "cuStreamGetId", (CudaStream stream, unsigned long long *number))

// cuTensorMapEncodeTiled, cuTensorMapEncodeIm2col: optional, drivers before CUDA 12 lack it. Enumerations of the driver API are integers here.
typedef CudaResult (*CudaEncodeTiled)(void *map, int type, unsigned rank, void *address, const uint64_t *extents,
                                      const uint64_t *strides, const unsigned *box, const unsigned *element_strides,
                                      int interleave, int swizzle, int promotion, int fill);

typedef CudaResult (*CudaEncodeIm2col)(void *map, int type, unsigned rank, void *address, const uint64_t *extents,
                                       const uint64_t *strides, const int *lower, const int *upper, unsigned channels,
                                       unsigned pixels, const unsigned *element_strides, int interleave, int swizzle,
                                       int promotion, int fill);

typedef struct Driver {
    void *library;
    CudaEncodeTiled encode_tiled;     // NULL: not in this driver
    CudaEncodeIm2col encode_im2col;   // the same
    bool has_graphs, has_stream_ids;
#define X(name, symbol, parameters) CudaResult(*name) parameters;
    CUDA_FUNCTIONS(X)
    CUDA_GRAPH_FUNCTIONS(X)
    CUDA_STREAM_FUNCTIONS(X)
#undef X
} Driver;

enum {   // CUdevice_attribute, CUfunction_attribute (CUDA driver API)
    CUDA_MAX_GRID_X = 5,
    CUDA_CLOCK = 13,   // kHz
    CUDA_MULTIPROCESSORS = 16,
    CUDA_MEMORY_CLOCK = 36,   // kHz
    CUDA_L2_BYTES = 38,
    CUDA_MAJOR = 75,
    CUDA_MINOR = 76,
    CUDA_SHARED_OPTIN = 97,
    CUDA_FUNCTION_SHARED = 8,
    CUDA_FUNCTION_CARVEOUT = 9,   // CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, in percent
    CUDA_STREAM_NON_BLOCKING = 1,
    CUDA_CAPTURE_RELAXED = 2,
    CUDA_FUNCTION_CLUSTER_ANY = 14,   // CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
    CUDA_CLUSTER_PORTABLE = 8,
    CUDA_LAUNCH_CLUSTER = 4,   // CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
    CUDA_LAUNCH_PDL = 6,       // CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
};

// Opens the driver. False: T_NO_DRIVER reported. The library stays open, since a driver cannot be unloaded.
bool cuda_open(Driver *driver, DiagSink *sink);
// True: `result` is success. False: T_CUDA reported, with the name of the call, `what`.
bool cuda_check(const Driver *driver, DiagSink *sink, CudaResult result, const char *what);

// A context to work in: the current one, else the primary context of device 0, made current. A primary context is
// retained, even if it was current: its other holders may release it.
typedef struct CudaDeviceHold {
    CudaDevice device;
    CudaContext context;
    bool retained;   // false: a context that the caller created and keeps alive
    bool switches;   // work in it makes it current, and then again what was
} CudaDeviceHold;
bool cuda_hold(const Driver *driver, DiagSink *sink, CudaDeviceHold *hold);
// The primary context of a device, by its ordinal; it does not become current.
bool cuda_hold_device(const Driver *driver, DiagSink *sink, int ordinal, CudaDeviceHold *hold);
// Makes the held context current: in a thread without a current context, or, where the hold switches, in any until
// cuda_leave with the same *before.
bool cuda_enter(const Driver *driver, DiagSink *sink, const CudaDeviceHold *hold, CudaContext *before);
void cuda_leave(const Driver *driver, const CudaDeviceHold *hold, CudaContext before);
// Makes the held context current if it is retained; returns the previous one, for context_set.
CudaContext cuda_switch(const Driver *driver, const CudaDeviceHold *hold);
// The best target for a device; NULL: none.
const Target *cuda_device_target(const Driver *driver, CudaDevice device);
// If the context is destroyed with this hold, this thread has no current context afterwards.
void cuda_release(const Driver *driver, CudaDeviceHold *hold);
