#include "runtime/api/info.h"
#include "runtime/device/cuda.h"
#include <stdio.h>
#include <string.h>
#if __has_include("layout/calculator/calc.h")
#include "layout/calculator/calc.h"
#define HAVE_LAYOUT_CALCULATOR 1
#endif

int info_layout(int argc, char **argv) {
#ifdef HAVE_LAYOUT_CALCULATOR
    return layout_command(argc, argv, stdin, stdout, stderr);
#else
    (void)argc;
    (void)argv;
    return -1;
#endif
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

static const Target *target_of(const Driver *d, CudaDevice device) {
    int major = 0, minor = 0;
    d->device_attribute(&major, CUDA_MAJOR, device);
    d->device_attribute(&minor, CUDA_MINOR, device);
    return target_for(major, minor);
}

const Target *info_device_target(Arena *arena) {
    Driver driver;
    CudaDevice device;
    if (!cuda_open(&driver, diag_sink_new(arena)) || driver.device_get(&device, 0) != 0) return NULL;
    return target_of(&driver, device);
}

void info_device(Arena *arena, StrBuf *out) {
    Driver driver;
    DiagSink *sink = diag_sink_new(arena);
    int version = 0, count = 0;
    if (!cuda_open(&driver, sink)) {
        sb_printf(out, "driver     none: %s\n", diag_view(sink, 0).message);
        return;
    }
    driver.driver_version(&version);
    driver.device_count(&count);
    sb_printf(out, "driver     CUDA %d.%d\n", version / 1000, version % 1000 / 10);
    for (int i = 0; i < count; i++) {
        CudaDevice device;
        char name[128] = "?";
        int multiprocessors = 0, shared = 0;
        if (driver.device_get(&device, i) != 0) continue;
        driver.device_name(name, sizeof name, device);
        driver.device_attribute(&multiprocessors, CUDA_MULTIPROCESSORS, device);
        driver.device_attribute(&shared, CUDA_SHARED_OPTIN, device);
        const Target *target = target_of(&driver, device);
        sb_printf(out, "device %d   %s, %d multiprocessors, %d KB of shared memory for a CTA, target %s\n", i, name,
                  multiprocessors, shared / 1024, target ? target->name : "none");
    }
}
