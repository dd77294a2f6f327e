#include "runtime/bench.h"
#include "runtime/device.h"
#include <math.h>
#include <stdlib.h>

enum { WARM_UP = 5, MOST_LAUNCHES = 20, FLUSH_LEAST = 1 << 20 };
static const double SAMPLE_SECONDS = 1e-3;   // of a warm sample: long beside an event's resolution

typedef struct Bench {
    const Loaded *loaded;
    DiagSink *sink;
    Launch launch;
    CudaAddress workspace, flush;
    size_t flush_words;
    CudaEvent from, to;
    bool warm;
    int launches;   // of a sample
} Bench;

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

Spread spread_of(int count, double *samples) {
    qsort(samples, (size_t)count, sizeof *samples, by_value);
    double half = 1.96 * sqrt(count) / 2, middle = count / 2.0;
    int low = (int)fmax(0, floor(middle - half)), high = (int)fmin(count - 1, ceil(middle + half));
    return (Spread){.median = (samples[(count - 1) / 2] + samples[count / 2]) / 2,
                    .low = samples[low],
                    .high = samples[high],
                    .samples = count};
}

// Memory for scratch and for what displaces the cache.
static bool prepare(Bench *b, Arena *arena, const PlanEntry *entry, const DeviceArgs *args) {
    const Driver *d = &b->loaded->driver;
    const Loaded *l = b->loaded;
    int cache = 0;
    if (!plan_resolve(arena, b->sink, l->plan, entry, args->count, args->launch, &l->device, 0, &b->launch) ||
        !cuda_check(d, b->sink, d->device_attribute(&cache, CUDA_L2_BYTES, l->hold.device), "cuDeviceGetAttribute"))
        return false;
    size_t bytes = cache > FLUSH_LEAST ? 2 * (size_t)cache : FLUSH_LEAST, scratch = (size_t)b->launch.workspace;
    b->flush_words = bytes / sizeof(uint32_t);
    return cuda_check(d, b->sink, d->allocate(&b->flush, bytes), "cuMemAlloc") &&
           cuda_check(d, b->sink, d->event_create(&b->from, 0), "cuEventCreate") &&
           cuda_check(d, b->sink, d->event_create(&b->to, 0), "cuEventCreate") &&
           (scratch == 0 || (cuda_check(d, b->sink, d->allocate(&b->workspace, scratch), "cuMemAlloc") &&
                             plan_resolve(arena, b->sink, l->plan, entry, args->count, args->launch, &l->device,
                                          b->workspace, &b->launch)));
}

static bool sample(Bench *b, double *seconds) {
    const Driver *d = &b->loaded->driver;
    float milliseconds = 0;
    if (!cuda_check(d, b->sink, d->set32(b->flush, 0, b->flush_words, NULL), "cuMemset") ||
        (b->warm && !loaded_run(b->sink, b->loaded, &b->launch, NULL)) ||
        !cuda_check(d, b->sink, d->event_record(b->from, NULL), "cuEventRecord"))
        return false;
    for (int i = 0; i < b->launches; i++)
        if (!loaded_run(b->sink, b->loaded, &b->launch, NULL)) return false;
    bool ok = cuda_check(d, b->sink, d->event_record(b->to, NULL), "cuEventRecord") &&
              cuda_check(d, b->sink, d->context_synchronize(), "the launch") &&
              cuda_check(d, b->sink, d->event_elapsed(&milliseconds, b->from, b->to), "cuEventElapsedTime");
    *seconds = (double)milliseconds * 1e-3 / b->launches;
    return ok;
}

static bool measure(Bench *b, Arena *arena, const BenchOptions *options, Spread *out) {
    double *samples = NEW_ARRAY(arena, double, options->samples), rough = 0;
    b->launches = 1;
    for (int i = 0; i < WARM_UP; i++)
        if (!sample(b, &rough)) return false;
    if (b->warm) b->launches = (int)fmax(1, fmin(MOST_LAUNCHES, SAMPLE_SECONDS / fmax(rough, 1e-6)));
    for (int i = 0; i < options->samples; i++)
        if (!sample(b, &samples[i])) return false;
    *out = spread_of(options->samples, samples);
    return true;
}

bool bench_launch(Arena *arena, DiagSink *sink, const Loaded *loaded, const PlanEntry *entry, int count,
                  const EmuArg *args, const BenchOptions *options, Spread *out) {
    const Driver *d = &loaded->driver;
    Bench b = {.loaded = loaded, .sink = sink, .warm = options->warm};
    DeviceArgs there;
    bool ok = device_upload(arena, sink, loaded, entry, false, count, args, &there) &&
              prepare(&b, arena, entry, &there) && measure(&b, arena, options, out);
    if (b.from) d->event_destroy(b.from);
    if (b.to) d->event_destroy(b.to);
    if (b.flush) d->release(b.flush);
    if (b.workspace) d->release(b.workspace);
    device_free(loaded, &there);
    return ok;
}
