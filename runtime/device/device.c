#include "runtime/device/device.h"
#include <string.h>

enum { GUARD_BYTES = 256, GUARD_PATTERN = 0xA5 };   // size on each side; preserves the 256-byte alignment of cuMemAlloc

static LaunchArg launch_arg_of(const EmuArg *arg, const PlanParam *param) {
    LaunchArg out = {0};
    if (!arg->tensor) {
        out.scalar = type_is_float(param->type) ? (Scalar){.type = TYPE_F64, .real = arg->real}
                                                : (Scalar){.type = TYPE_I64, .integer = arg->integer};
        return out;
    }
    out.is_tensor = true;
    out.rank = arg->tensor->rank;
    memcpy(out.shape, arg->tensor->shape, sizeof out.shape);
    memcpy(out.strides, arg->tensor->strides, sizeof out.strides);
    return out;
}

struct Upload {
    CudaAddress block;     // guard, tensor, guard
    size_t bytes, guard;   // of the tensor; of each guard
};

static bool upload(DiagSink *sink, const Driver *d, const EmuTensor *tensor, Upload *out) {
    size_t whole = tensor->bytes + 2 * out->guard;
    out->bytes = tensor->bytes;
    return cuda_check(d, sink, d->allocate(&out->block, whole ? whole : 1), "cuMemAlloc") &&
           cuda_check(d, sink, d->set8(out->block, GUARD_PATTERN, whole, NULL), "cuMemset") &&
           cuda_check(d, sink, d->context_synchronize(), "cuMemset") &&
           cuda_check(d, sink, d->to_device(out->block + out->guard, tensor->data, tensor->bytes), "cuMemcpyHtoD");
}

static bool download(DiagSink *sink, const Driver *d, const Upload *from, EmuTensor *tensor, bool *intact) {
    uint8_t guards[2 * GUARD_BYTES];
    CudaAddress data = from->block + from->guard;
    if (!cuda_check(d, sink, d->to_host(tensor->data, data, tensor->bytes), "cuMemcpyDtoH") ||
        !cuda_check(d, sink, d->to_host(guards, from->block, from->guard), "cuMemcpyDtoH") ||
        !cuda_check(d, sink, d->to_host(guards + from->guard, data + tensor->bytes, from->guard), "cuMemcpyDtoH"))
        return false;
    for (size_t i = 0; i < 2 * from->guard; i++) *intact &= guards[i] == GUARD_PATTERN;
    tensor->initialised = NULL;   // unwritten elements still have their poison value
    return true;
}

static bool launch_timed(Arena *arena, DiagSink *sink, DeviceRun *run, int count, const LaunchArg *args) {
    const Driver *d = &run->loaded->driver;
    CudaEvent from = NULL, to = NULL;
    float milliseconds = 0;
    bool ok = cuda_check(d, sink, d->event_create(&from, 0), "cuEventCreate") &&
              cuda_check(d, sink, d->event_create(&to, 0), "cuEventCreate") &&
              cuda_check(d, sink, d->event_record(from, NULL), "cuEventRecord") &&
              device_module_launch(arena, sink, run->loaded, run->entry, count, args, NULL, &(GivenMemory){0}) &&
              cuda_check(d, sink, d->event_record(to, NULL), "cuEventRecord") &&
              cuda_check(d, sink, d->context_synchronize(), run->entry->name) &&
              cuda_check(d, sink, d->event_elapsed(&milliseconds, from, to), "cuEventElapsedTime");
    if (from) d->event_destroy(from);
    if (to) d->event_destroy(to);
    run->seconds = (double)milliseconds * 1e-3;
    return ok;
}

// Tensors that are one have one address.
static CudaAddress address_there(const EmuArg *args, int at, const DeviceArgs *out) {
    for (int i = 0; i < at; i++)
        if (args[i].tensor == args[at].tensor) return out->launch[i].address;
    return 0;
}

bool device_upload(Arena *arena, DiagSink *sink, const DeviceModule *loaded, const PlanEntry *entry, bool guards,
                   int count, const EmuArg *args, DeviceArgs *out) {
    static const PlanParam unknown = {.type = TYPE_I64};
    const PlanVariant *first = &entry->variants.items[0];
    *out = (DeviceArgs){.count = count, .launch = NEW_ARRAY(arena, LaunchArg, count + 1)};
    out->uploads = NEW_ARRAY(arena, Upload, count + 1);
    for (int i = 0; i < count; i++) {
        Upload *to = &out->uploads[i];
        out->launch[i] = launch_arg_of(&args[i], i < first->params.count ? &first->params.items[i] : &unknown);
        if (!args[i].tensor || (out->launch[i].address = address_there(args, i, out))) continue;
        to->guard = guards ? GUARD_BYTES : 0;
        if (!upload(sink, &loaded->driver, args[i].tensor, to)) return false;
        out->launch[i].address = to->block + to->guard;
    }
    return true;
}

void device_free(const DeviceModule *loaded, DeviceArgs *args) {
    for (int i = 0; i < args->count; i++)
        if (args->uploads[i].block) loaded->driver.release(args->uploads[i].block);
    args->count = 0;
}

bool device_run(Arena *arena, DiagSink *sink, DeviceRun *run, int count, const EmuArg *args) {
    DeviceArgs there;
    bool ok = device_upload(arena, sink, run->loaded, run->entry, !run->no_guards, count, args, &there) &&
              launch_timed(arena, sink, run, count, there.launch);
    run->outside = NULL;
    for (int i = 0; ok && i < count; i++) {
        bool intact = true;
        if (there.uploads[i].block)
            ok = download(sink, &run->loaded->driver, &there.uploads[i], args[i].tensor, &intact);
        if (!intact)
            run->outside =
                arena_printf(arena, "it wrote outside '%s'", run->entry->variants.items[0].params.items[i].name);
    }
    device_free(run->loaded, &there);
    return ok;
}
