#include "runtime/api/info.h"
#include "runtime/device/cuda.h"
#include <stdio.h>
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

const Target *info_device_target(Arena *arena) {
    Driver driver;
    CudaDevice device;
    if (!cuda_open(&driver, diag_sink_new(arena)) || driver.device_get(&device, 0) != 0) return NULL;
    return cuda_device_target(&driver, device);
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
        const Target *target = cuda_device_target(&driver, device);
        sb_printf(out, "device %d   %s, %d multiprocessors, %d KB of shared memory for a CTA, target %s\n", i, name,
                  multiprocessors, shared / 1024, target ? target->name : "none");
    }
}
