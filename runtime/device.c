#include "runtime/device.h"
#include <string.h>

enum { GUARD_BYTES = 256, GUARD_PATTERN = 0xA5 };   // on both sides; keeps the 256-byte alignment of cuMemAlloc

LaunchArg launch_arg_of(const EmuArg *arg, const PlanParam *param) {
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

typedef struct Upload {
    CudaAddress block;   // guard, tensor, guard
    size_t bytes;        // of the tensor
} Upload;

static bool upload(DiagSink *sink, const Driver *d, const EmuTensor *tensor, Upload *out) {
    out->bytes = tensor->bytes;
    size_t whole = tensor->bytes + 2 * GUARD_BYTES;
    return cuda_check(d, sink, d->allocate(&out->block, whole), "cuMemAlloc") &&
           cuda_check(d, sink, d->set8(out->block, GUARD_PATTERN, whole, NULL), "cuMemset") &&
           cuda_check(d, sink, d->context_synchronize(), "cuMemset") &&
           cuda_check(d, sink, d->to_device(out->block + GUARD_BYTES, tensor->data, tensor->bytes), "cuMemcpyHtoD");
}

static bool guard_intact(const uint8_t *guard) {
    for (int i = 0; i < GUARD_BYTES; i++)
        if (guard[i] != GUARD_PATTERN) return false;
    return true;
}

static bool download(DiagSink *sink, const Driver *d, const Upload *from, EmuTensor *tensor, bool *intact) {
    uint8_t before[GUARD_BYTES], after[GUARD_BYTES];
    CudaAddress data = from->block + GUARD_BYTES;
    if (!cuda_check(d, sink, d->to_host(tensor->data, data, tensor->bytes), "cuMemcpyDtoH") ||
        !cuda_check(d, sink, d->to_host(before, from->block, GUARD_BYTES), "cuMemcpyDtoH") ||
        !cuda_check(d, sink, d->to_host(after, data + tensor->bytes, GUARD_BYTES), "cuMemcpyDtoH"))
        return false;
    *intact = guard_intact(before) && guard_intact(after);
    // What the kernel did not write still holds the poison, which no result equals.
    tensor->initialised = NULL;   // a device keeps no marks: what it did not write shows by its poison
    return true;
}

static bool launch_timed(Arena *arena, DiagSink *sink, const Loaded *l, const PlanEntry *entry, int count,
                         const LaunchArg *args, double *seconds) {
    const Driver *d = &l->driver;
    CudaEvent from = NULL, to = NULL;
    float milliseconds = 0;
    bool ok = cuda_check(d, sink, d->event_create(&from, 0), "cuEventCreate") &&
              cuda_check(d, sink, d->event_create(&to, 0), "cuEventCreate") &&
              cuda_check(d, sink, d->event_record(from, NULL), "cuEventRecord") &&
              loaded_launch(arena, sink, l, entry, count, args, NULL, 0, 0) &&
              cuda_check(d, sink, d->event_record(to, NULL), "cuEventRecord") &&
              cuda_check(d, sink, d->context_synchronize(), entry->name) &&
              cuda_check(d, sink, d->event_elapsed(&milliseconds, from, to), "cuEventElapsedTime");
    if (from) d->event_destroy(from);
    if (to) d->event_destroy(to);
    *seconds = (double)milliseconds * 1e-3;
    return ok;
}

bool device_run(Arena *arena, DiagSink *sink, const Loaded *loaded, const PlanEntry *entry, int count,
                const EmuArg *args, const char **why, double *seconds) {
    const PlanVariant *first = &entry->variants.items[0];
    LaunchArg *launch = NEW_ARRAY(arena, LaunchArg, count + 1);
    Upload *uploads = NEW_ARRAY(arena, Upload, count + 1);
    bool ok = true;
    for (int i = 0; ok && i < count; i++) {
        static const PlanParam unknown = {.type = TYPE_I64};
        launch[i] = launch_arg_of(&args[i], i < first->params.count ? &first->params.items[i] : &unknown);
        if (!args[i].tensor) continue;
        ok = upload(sink, &loaded->driver, args[i].tensor, &uploads[i]);
        launch[i].address = uploads[i].block + GUARD_BYTES;
    }
    ok = ok && launch_timed(arena, sink, loaded, entry, count, launch, seconds);
    for (int i = 0; i < count; i++) {
        bool intact = true;
        if (uploads[i].block && ok) ok = download(sink, &loaded->driver, &uploads[i], args[i].tensor, &intact);
        if (!intact) *why = arena_printf(arena, "it wrote outside '%s'", first->params.items[i].name);
        if (uploads[i].block) loaded->driver.release(uploads[i].block);
    }
    return ok;
}
