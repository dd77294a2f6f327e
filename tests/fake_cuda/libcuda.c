// A CUDA driver without a device: enough of libcuda to test loading and launching where there is none. Device memory is
// host memory; a launch checks what it can and writes down what it got, one line each, into the file FAKE_CUDA_LOG.
// FAKE_CUDA_FAIL names a function that fails with error 700; FAKE_CUDA_DEVICES is the
// number of devices (1), FAKE_CUDA_MAJOR their compute capability (9).0, FAKE_CUDA_CLOCK their clock, FAKE_CUDA_VERSION that of the driver; with FAKE_CUDA_CAPTURING all streams are being
// captured. A tensor map made here begins with the address and the first extent. What depends on how many blocks a
// launch has: FAKE_CUDA_WRONG of them spoil the tensor that was made last, FAKE_CUDA_FAULT of them fail, and with
// FAKE_CUDA_TIMED each takes a microsecond. A launch of a kernel `mapped` notes them from its second parameter.
// With FAKE_CUDA_PARAMS nothing is written to memory, and a launch notes its kernel and its parameters, of which the program's
// fake_cuda_param_count says how many there are: 8 bytes of each, but of tensor maps, whose bits are in *maps.
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

enum { OK = 0, NO_CONTEXT = 201, FAULT = 700 };

// Their addresses stand for contexts: device 0's primary one, which is there while it is retained, and one that a
// caller made (fake_cuda_own). A thread has one of them current, or none.
static int context, own;
static _Atomic int retained;
static _Thread_local void *current;

EXPORT void *fake_cuda_own(void);
void *fake_cuda_own(void) {
    return &own;
}

static _Atomic int modules, pooled;   // pooled: allocations in order of a stream

EXPORT int fake_cuda_modules(void);
int fake_cuda_modules(void) {   // those that are loaded
    return modules;
}

EXPORT int fake_cuda_pooled(void);
int fake_cuda_pooled(void) {
    return pooled;
}

static int is_alive(const void *any) {
    return any == &own || (any && retained > 0);
}

static int is_usable(void) {
    return is_alive(current);
}

static int result_of(const char *name) {
    const char *fails = getenv("FAKE_CUDA_FAIL");
    return fails && strcmp(fails, name) == 0 ? FAULT : OK;
}

static unsigned blocks;         // of the last launch
static unsigned char *newest;   // the last allocation of more than a guard zone on each side
enum { GUARD = 256, LARGE = 1 << 20 };

static int has_blocks(const char *name) {
    const char *number = getenv(name);
    return number && (unsigned)atoi(number) == blocks;
}

static void note(const char *format, uint64_t a, uint64_t b, uint64_t c) {
    const char *path = getenv("FAKE_CUDA_LOG");
    FILE *log = path ? fopen(path, "a") : NULL;
    if (!log) return;
    fprintf(log, format, (unsigned long long)a, (unsigned long long)b, (unsigned long long)c);
    fclose(log);
}

static int is_idle(void) {
    return getenv("FAKE_CUDA_PARAMS") != NULL;
}

static void note_params(const char *kernel, void **params) {
    int (*count)(const char *, uint64_t *) = NULL;
    void *found = dlsym(RTLD_DEFAULT, "fake_cuda_param_count");
    uint64_t maps = 0;
    if (!is_idle() || !found) return;
    memcpy(&count, &found, sizeof found);
    int most = count(kernel, &maps);
    note(" kernel", 0, 0, 0);
    for (const char *c = kernel; *c; c++) note("%c", (uint64_t)*c, 0, 0);
    for (int i = 0; i < most; i++)
        if (!(maps >> i & 1)) note(" %llx", *(uint64_t *)params[i], 0, 0);
}

#define DEFINE(name, parameters, ...)                                                                                  \
    EXPORT int name parameters;                                                                                        \
    int name parameters {                                                                                              \
        __VA_ARGS__                                                                                                    \
        return result_of(#name);                                                                                       \
    }

static int setting(const char *name, int usual) {
    return getenv(name) ? atoi(getenv(name)) : usual;
}

// A program with one device of many says which.
DEFINE(cuInit, (unsigned flags), (void)flags; const char *visible = getenv("CUDA_VISIBLE_DEVICES");
       if (visible && !strchr(visible, ',')) note("visible %llu\n", strtoull(visible, NULL, 10), 0, 0);)
DEFINE(cuDriverGetVersion, (int *version), *version = setting("FAKE_CUDA_VERSION", 13000);)
DEFINE(cuGetErrorString, (int error, const char **text), *text = error ? "a made-up fault" : "no error";)
DEFINE(cuGetErrorName, (int error, const char **text), *text = error ? "CUDA_ERROR_FAKE" : "CUDA_SUCCESS";)
DEFINE(cuDeviceGetCount, (int *count), *count = setting("FAKE_CUDA_DEVICES", 1);)
DEFINE(cuDeviceGet, (int *device, int ordinal), *device = ordinal;)
DEFINE(cuDeviceGetName, (char *name, int length, int device), (void)device; snprintf(name, (size_t)length, "Fake");)
DEFINE(cuDeviceGetAttribute, (int *value, int attribute, int device), (void)device;
       *value = attribute == 75   ? setting("FAKE_CUDA_MAJOR", 9)
                : attribute == 76 ? 0
                : attribute == 13 ? setting("FAKE_CUDA_CLOCK", 1980000)
                : attribute == 36 ? 2619000
                : attribute == 16 ? 132
                : attribute == 5  ? 0x7fffffff
                                  : 232448;)
DEFINE(cuDevicePrimaryCtxRetain, (void **out, int device), (void)device;
       if (result_of("cuDevicePrimaryCtxRetain")) return FAULT; *out = &context; retained++;)
DEFINE(cuDevicePrimaryCtxRelease_v2, (int device), (void)device; if (retained == 0) return NO_CONTEXT; retained--;)
DEFINE(cuDevicePrimaryCtxGetState, (int device, unsigned *flags, int *active), (void)device; *flags = 0;
       *active = retained > 0;)
DEFINE(cuCtxGetCurrent, (void **out), *out = current;)
DEFINE(cuCtxSetCurrent, (void *to), current = to;)
DEFINE(cuCtxGetDevice, (int *device), *device = 0; if (!current) return NO_CONTEXT;)
DEFINE(cuCtxGetApiVersion, (void *any, unsigned *version), *version = 3020; if (!is_alive(any)) return NO_CONTEXT;)
DEFINE(cuCtxSynchronize, (void), )
DEFINE(cuModuleLoadData, (void **module, const void *image), if (!is_usable()) return NO_CONTEXT;
       if (memcmp(image, "\177ELF", 4) || result_of("cuModuleLoadData")) return FAULT; *module = (void *)image;
       modules++;)
DEFINE(cuModuleUnload, (void *module), (void)module; if (!is_usable()) return NO_CONTEXT; modules--;)
DEFINE(cuModuleGetFunction, (void **function, void *module, const char *name), (void)module; *function = (void *)name;)
DEFINE(cuFuncSetAttribute, (void *function, int attribute, int value), (void)function; (void)attribute; (void)value;)
typedef struct LaunchAttribute {
    unsigned id, padding, value[16];
} LaunchAttribute;
typedef struct Launch {
    unsigned grid[3], block[3], shared;
    void *stream;
    LaunchAttribute *attributes;
    unsigned attribute_count;
} Launch;
DEFINE(cuLaunchKernelEx, (const Launch *launch, void *function, void **params, void **extra), (void)extra;
       if (!is_usable()) return NO_CONTEXT; if (!function) abort();
       note("launch grid %llu block %llu shared %llu", launch->grid[0], launch->block[0], launch->shared);
       blocks = launch->grid[0]; if (has_blocks("FAKE_CUDA_FAULT")) return FAULT;
       if (has_blocks("FAKE_CUDA_WRONG") && newest) newest[GUARD] ^= 0x55; if (strcmp(function, "mapped") == 0)
           note(" map %llx of %llu", ((uint64_t *)params[1])[0], ((uint64_t *)params[1])[1], 0);
       for (unsigned i = 0; i < launch->attribute_count; i++)
           note(" attribute %llu %llu", launch->attributes[i].id, launch->attributes[i].value[0], 0);
       note_params(function, params); note(" stream %llx\n", (uint64_t)(uintptr_t)launch->stream, 0, 0);)
DEFINE(cuTensorMapEncodeTiled,
       (void *map, int type, unsigned rank, void *address, const uint64_t *extents, const uint64_t *strides,
        const unsigned *box, const unsigned *element_strides, int interleave, int swizzle, int promotion, int fill),
       (void)strides;
       (void)element_strides; (void)interleave; (void)promotion; (void)fill;
       memcpy(map, (uint64_t[16]){(uint64_t)(uintptr_t)address, extents[0]}, 128);
       note("map type %llu rank %llu box %llu", (uint64_t)type, rank, box[0]);
       note(" swizzle %llu\n", (uint64_t)swizzle, 0, 0);)
DEFINE(cuTensorMapEncodeIm2col,
       (void *map, int type, unsigned rank, void *address, const uint64_t *extents, const uint64_t *strides,
        const int *lower, const int *upper, unsigned channels, unsigned pixels, const unsigned *element_strides,
        int interleave, int swizzle, int promotion, int fill),
       (void)strides;
       (void)interleave; (void)promotion; (void)fill;
       memcpy(map, (uint64_t[16]){(uint64_t)(uintptr_t)address, extents[0]}, 128);
       note("im2col type %llu rank %llu channels %llu", (uint64_t)type, rank, channels);
       note(" pixels %llu corners %llu %llu", pixels, (uint64_t)-lower[0], (uint64_t)-upper[0]);
       note(" step %llu swizzle %llu\n", element_strides[1], (uint64_t)swizzle, 0);)
DEFINE(cuMemAlloc_v2, (uint64_t * address, size_t bytes),
       *address = (uint64_t)(uintptr_t)aligned_alloc(256, (bytes + 255) / 256 * 256);
       newest = bytes > 2 * GUARD && bytes < LARGE ? (unsigned char *)(uintptr_t)*address : NULL;)
DEFINE(cuMemFree_v2, (uint64_t address), newest = NULL; free((void *)(uintptr_t)address);)
DEFINE(cuMemAllocAsync, (uint64_t * address, size_t bytes, void *stream), (void)stream;
       if (result_of("cuMemAllocAsync")) return FAULT;
       *address = (uint64_t)(uintptr_t)aligned_alloc(256, (bytes + 255) / 256 * 256);
       note("workspace %llu\n", bytes, 0, 0); pooled++;)
DEFINE(cuMemFreeAsync, (uint64_t address, void *stream), (void)stream; pooled--; free((void *)(uintptr_t)address);)
DEFINE(cuMemcpyHtoD_v2, (uint64_t to, const void *from, size_t bytes), memcpy((void *)(uintptr_t)to, from, bytes);)
DEFINE(cuMemcpyDtoH_v2, (void *to, uint64_t from, size_t bytes), memcpy(to, (void *)(uintptr_t)from, bytes);)
DEFINE(cuMemsetD8Async, (uint64_t address, unsigned char value, size_t count, void *stream), (void)stream;
       if (!is_idle()) memset((void *)(uintptr_t)address, value, count);)
DEFINE(cuMemsetD16Async, (uint64_t address, unsigned short value, size_t count, void *stream), (void)stream;
       for (size_t i = 0; i < count && !is_idle(); i++)((unsigned short *)(uintptr_t)address)[i] = value;)
DEFINE(cuMemsetD32Async, (uint64_t address, unsigned value, size_t count, void *stream), (void)stream;
       note("fill %llu x %llx\n", count, value, 0);
       for (size_t i = 0; i < count && !is_idle(); i++)((unsigned *)(uintptr_t)address)[i] = value;)
DEFINE(cuMemsetD2D32Async, (uint64_t address, size_t pitch, unsigned value, size_t width, size_t height, void *stream),
       (void)stream;
       (void)width;
       for (size_t i = 0; i < height && !is_idle(); i++) * (unsigned *)(uintptr_t)(address + i * pitch) = value;)
DEFINE(cuEventCreate, (void **event, unsigned flags), (void)flags; *event = &context;)
DEFINE(cuEventRecord, (void *event, void *stream), (void)event; (void)stream;)
DEFINE(cuEventSynchronize, (void *event), (void)event;)
DEFINE(cuEventElapsedTime, (float *ms, void *from, void *to), (void)from; (void)to;
       *ms = getenv("FAKE_CUDA_TIMED") ? (float)blocks / 1000 : 1;)
DEFINE(cuEventDestroy_v2, (void *event), (void)event;)
DEFINE(cuStreamCreate, (void **stream, unsigned flags), (void)flags; *stream = &context;)
DEFINE(cuStreamDestroy_v2, (void *stream), (void)stream;)
DEFINE(cuStreamBeginCapture_v2, (void *stream, int mode), (void)stream; (void)mode; note("capture\n", 0, 0, 0);)
DEFINE(cuStreamEndCapture, (void *stream, void **graph), (void)stream; *graph = &context;)
DEFINE(cuStreamIsCapturing, (void *stream, int *status), (void)stream; *status = getenv("FAKE_CUDA_CAPTURING") != NULL;)
DEFINE(cuStreamGetId, (void *stream, unsigned long long *number), *number = (uintptr_t)stream % 256;)
DEFINE(cuGraphInstantiateWithFlags, (void **exec, void *graph, unsigned long long flags), (void)graph; (void)flags;
       *exec = &context;)
DEFINE(cuGraphLaunch, (void *exec, void *stream), (void)exec; (void)stream; note("replay\n", 0, 0, 0);)
DEFINE(cuGraphExecDestroy, (void *exec), (void)exec;)
DEFINE(cuGraphDestroy, (void *graph), (void)graph;)
