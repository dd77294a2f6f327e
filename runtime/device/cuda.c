#include "runtime/device/cuda.h"
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static const Span NOWHERE;

bool cuda_check(const Driver *driver, DiagSink *sink, CudaResult result, const char *what) {
    if (result == 0) return true;
    const char *text = "?", *name = "?";
    char message[256];
    driver->error_string(result, &text);
    driver->error_name(result, &name);
    snprintf(message, sizeof message, "%s (%s)", text ? text : "?", name ? name : "?");
    diag(sink, NOWHERE, T_CUDA, what, message);
    return false;
}

static bool no_driver(DiagSink *sink, const char *why) {
    diag(sink, NOWHERE, T_NO_DRIVER, why);
    return false;
}

static void open_optional(Driver *driver) {
    bool all = true;
#define X(name, symbol, parameters)                                                                                    \
    {                                                                                                                  \
        void *found = dlsym(driver->library, symbol);                                                                  \
        memcpy(&driver->name, &found, sizeof found);                                                                   \
        if (!found) all = false;                                                                                       \
    }
    CUDA_GRAPH_FUNCTIONS(X)
    driver->has_graphs = all;
    all = true;
    CUDA_STREAM_FUNCTIONS(X)
    driver->has_stream_ids = all;
#undef X
}

bool cuda_open(Driver *driver, DiagSink *sink) {
    static const char *const names[] = {
#define X(name, symbol, parameters) symbol,
        CUDA_FUNCTIONS(X)
#undef X
    };
    memset(driver, 0, sizeof *driver);
    driver->library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!driver->library) return no_driver(sink, "libcuda.so.1 was not found");
    void *found[sizeof names / sizeof names[0]];
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        found[i] = dlsym(driver->library, names[i]);
        if (!found[i]) return no_driver(sink, "it is too old (an entry point of CUDA 11.2 is missing)");
    }
    size_t next = 0;   // data pointers to function pointers, by their bytes: ISO C has no cast for it
#define X(name, symbol, parameters) memcpy(&driver->name, &found[next++], sizeof(void *));
    CUDA_FUNCTIONS(X)
#undef X
    void *tiled = dlsym(driver->library, "cuTensorMapEncodeTiled");
    void *im2col = dlsym(driver->library, "cuTensorMapEncodeIm2col");
    memcpy(&driver->encode_tiled, &tiled, sizeof tiled);
    memcpy(&driver->encode_im2col, &im2col, sizeof im2col);
    open_optional(driver);
    int devices = 0;
    CudaResult result = driver->init(0);
    if (result == 0) result = driver->device_count(&devices);
    if (result != 0) {
        const char *text = NULL;
        driver->error_string(result, &text);
        return no_driver(sink, text ? text : "cuInit failed");
    }
    return devices > 0 || no_driver(sink, "there is no device");
}

// Retains the context if it is the primary one of its device. If another thread released the last hold while the
// context was current here, retaining re-creates it under the same handle.
static bool retain_primary(const Driver *driver, CudaDeviceHold *hold) {
    unsigned flags = 0, version = 0;
    int active = 0;
    CudaContext primary = NULL;
    if (driver->primary_state(hold->device, &flags, &active) != 0) return false;
    if (!active && driver->context_version(hold->context, &version) == 0)
        return false;   // a live context that is not the primary one
    if (driver->primary_retain(&primary, hold->device) != 0) return false;
    if (primary == hold->context) return true;
    driver->primary_release(hold->device);
    return false;
}

bool cuda_hold(const Driver *driver, DiagSink *sink, CudaDeviceHold *hold) {
    *hold = (CudaDeviceHold){0};
    if (!cuda_check(driver, sink, driver->context_current(&hold->context), "cuCtxGetCurrent")) return false;
    if (hold->context) {
        if (!cuda_check(driver, sink, driver->context_device(&hold->device), "cuCtxGetDevice")) return false;
        hold->retained = retain_primary(driver, hold);
        return true;
    }
    if (!cuda_check(driver, sink, driver->device_get(&hold->device, 0), "cuDeviceGet") ||
        !cuda_check(driver, sink, driver->primary_retain(&hold->context, hold->device), "cuDevicePrimaryCtxRetain"))
        return false;
    hold->retained = true;
    if (cuda_check(driver, sink, driver->context_set(hold->context), "cuCtxSetCurrent")) return true;
    cuda_release(driver, hold);
    return false;
}

bool cuda_hold_device(const Driver *driver, DiagSink *sink, int ordinal, CudaDeviceHold *hold) {
    *hold = (CudaDeviceHold){.switches = true};
    if (!cuda_check(driver, sink, driver->device_get(&hold->device, ordinal), "cuDeviceGet")) return false;
    hold->retained =
        cuda_check(driver, sink, driver->primary_retain(&hold->context, hold->device), "cuDevicePrimaryCtxRetain");
    return hold->retained;
}

bool cuda_enter(const Driver *driver, DiagSink *sink, const CudaDeviceHold *hold, CudaContext *before) {
    *before = hold->context;
    if (!hold->retained) return true;   // the caller sets its contexts
    if (!cuda_check(driver, sink, driver->context_current(before), "cuCtxGetCurrent")) return false;
    if (*before == hold->context || (*before && !hold->switches)) return true;
    return cuda_check(driver, sink, driver->context_set(hold->context), "cuCtxSetCurrent");
}

void cuda_leave(const Driver *driver, const CudaDeviceHold *hold, CudaContext before) {
    if (hold->switches && before != hold->context) driver->context_set(before);
}

CudaContext cuda_switch(const Driver *driver, const CudaDeviceHold *hold) {
    CudaContext current = NULL;
    driver->context_current(&current);
    if (hold->retained && current != hold->context) driver->context_set(hold->context);
    return current;
}

void cuda_release(const Driver *driver, CudaDeviceHold *hold) {
    unsigned flags = 0;
    int active = 0;
    CudaContext current = NULL;
    if (!hold->retained) return;
    hold->retained = false;
    driver->primary_release(hold->device);
    bool ended = driver->primary_state(hold->device, &flags, &active) == 0 && !active;
    if (ended && driver->context_current(&current) == 0 && current == hold->context) driver->context_set(NULL);
}

// sm_90a for 9.0, sm_86 for 8.7: the row of this architecture, else the highest lower one of the same generation. (Code
// for an architecture with the suffix `a` runs only on that architecture.)
static const Target *target_for(int major, int minor) {
    const Target *best = NULL, *t;
    int best_minor = -1;
    for (int i = 0; (t = target_at(i)); i++) {
        int number = 0;
        char suffix = 0;
        if (sscanf(t->name, "sm_%d%c", &number, &suffix) < 1 || number / 10 != major) continue;
        int own = number % 10;
        if (own > minor || (suffix == 'a' && own != minor)) continue;
        if (own > best_minor || (own == best_minor && suffix == 'a')) {
            best = t;
            best_minor = own;
        }
    }
    return best;
}

const Target *cuda_device_target(const Driver *d, CudaDevice device) {
    int major = 0, minor = 0;
    d->device_attribute(&major, CUDA_MAJOR, device);
    d->device_attribute(&minor, CUDA_MINOR, device);
    return target_for(major, minor);
}
