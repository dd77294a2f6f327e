#include "tools/bench.h"
#include "runtime/device/device.h"
#include <math.h>
#include <stdlib.h>

enum { WARM_UP = 5, MOST_LAUNCHES = 20, MOST_IN_GRAPH = 200, FLUSH_LEAST = 1 << 20 };
static const double SAMPLE_SECONDS = 1e-3;   // length of a warm sample: much longer than the resolution of an event
static const double SHORT_SECONDS =
    100e-6;   // below it the host may enqueue launches more slowly than the device runs them

typedef struct Bench {
    const DeviceModule *loaded;
    DiagSink *sink;
    Launch launch;
    LaunchMemory memory;
    CudaAddress flush;
    size_t flush_words;
    CudaEvent from, to;
    CudaStream stream;
    CudaGraphExec graph;   // NULL: launches are enqueued one by one
    bool warm;
    int launches;   // per sample
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

// Allocates scratch; zeroed scratch is cleared here, and kernels leave it zero.
static bool prepare_scratch(Bench *b, Arena *arena, const PlanEntry *entry, const DeviceArgs *args) {
    const Driver *d = &b->loaded->driver;
    const DeviceModule *l = b->loaded;
    size_t zeroed = (size_t)b->launch.zeroed, rest = (size_t)b->launch.workspace - zeroed;
    return (!zeroed || (cuda_check(d, b->sink, d->allocate(&b->memory.zeroed, zeroed), "cuMemAlloc") &&
                        cuda_check(d, b->sink, d->set8(b->memory.zeroed, 0, zeroed, NULL), "cuMemset") &&
                        cuda_check(d, b->sink, d->context_synchronize(), "cuMemset"))) &&
           (!rest || cuda_check(d, b->sink, d->allocate(&b->memory.workspace, rest), "cuMemAlloc")) &&
           plan_dispatch(arena, b->sink, l->plan, entry, args->count, args->launch, &l->device, b->memory, &b->launch);
}

// Dispatches the launch; allocates scratch and the buffer that evicts the L2 cache.
static bool prepare(Bench *b, Arena *arena, const PlanEntry *entry, const DeviceArgs *args) {
    const Driver *d = &b->loaded->driver;
    const DeviceModule *l = b->loaded;
    int cache = 0;
    if (!plan_dispatch(arena, b->sink, l->plan, entry, args->count, args->launch, &l->device, b->memory, &b->launch) ||
        !cuda_check(d, b->sink, d->device_attribute(&cache, CUDA_L2_BYTES, l->hold.device), "cuDeviceGetAttribute"))
        return false;
    size_t bytes = cache > FLUSH_LEAST ? 2 * (size_t)cache : FLUSH_LEAST;
    b->flush_words = bytes / sizeof(uint32_t);
    return cuda_check(d, b->sink, d->allocate(&b->flush, bytes), "cuMemAlloc") &&
           cuda_check(d, b->sink, d->event_create(&b->from, 0), "cuEventCreate") &&
           cuda_check(d, b->sink, d->event_create(&b->to, 0), "cuEventCreate") &&
           (b->launch.workspace == 0 || prepare_scratch(b, arena, entry, args));
}

static bool run(Bench *b, int launches) {
    for (int i = 0; i < launches; i++)
        if (!device_module_run(b->sink, b->loaded, &b->launch, b->stream)) return false;
    return true;
}

// Captures b->launches launches as one graph. (Relaxed capture: no other stream of the process is involved.)
static bool capture(Bench *b) {
    const Driver *d = &b->loaded->driver;
    CudaGraph graph = NULL;
    if (!cuda_check(d, b->sink, d->stream_create(&b->stream, CUDA_STREAM_NON_BLOCKING), "cuStreamCreate") ||
        !cuda_check(d, b->sink, d->capture_begin(b->stream, CUDA_CAPTURE_RELAXED), "cuStreamBeginCapture"))
        return false;
    bool ok = run(b, b->launches);
    ok = cuda_check(d, b->sink, d->capture_end(b->stream, &graph), "cuStreamEndCapture") && ok;
    ok = ok && cuda_check(d, b->sink, d->graph_instantiate(&b->graph, graph, 0), "cuGraphInstantiate");
    if (graph) d->graph_destroy(graph);
    return ok;
}

static bool timed(Bench *b) {
    const Driver *d = &b->loaded->driver;
    return b->graph ? cuda_check(d, b->sink, d->graph_launch(b->graph, b->stream), "cuGraphLaunch")
                    : run(b, b->launches);
}

static bool sample(Bench *b, double *seconds) {
    const Driver *d = &b->loaded->driver;
    float milliseconds = 0;
    bool ok = cuda_check(d, b->sink, d->set32(b->flush, 0, b->flush_words, b->stream), "cuMemset") &&
              (!b->warm || run(b, 1)) && cuda_check(d, b->sink, d->event_record(b->from, b->stream), "cuEventRecord") &&
              timed(b) && cuda_check(d, b->sink, d->event_record(b->to, b->stream), "cuEventRecord") &&
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
    bool graph = b->warm && rough < SHORT_SECONDS && b->loaded->driver.has_graphs;
    if (b->warm)
        b->launches = (int)fmax(1, fmin(graph ? MOST_IN_GRAPH : MOST_LAUNCHES, SAMPLE_SECONDS / fmax(rough, 1e-6)));
    if (graph && (!capture(b) || !sample(b, &rough))) return false;   // the first replay uploads the graph
    for (int i = 0; i < options->samples; i++)
        if (!sample(b, &samples[i])) return false;
    *out = spread_of(options->samples, samples);
    out->launches = b->launches;
    out->graph = graph;
    return true;
}

bool bench_launch(Arena *arena, DiagSink *sink, const DeviceModule *loaded, const PlanEntry *entry, int count,
                  const EmuArg *args, const BenchOptions *options, Spread *out) {
    const Driver *d = &loaded->driver;
    Bench b = {.loaded = loaded, .sink = sink, .warm = options->warm};
    DeviceArgs there;
    bool ok = device_upload(arena, sink, loaded, entry, false, count, args, &there) &&
              prepare(&b, arena, entry, &there) && measure(&b, arena, options, out);
    if (b.graph) d->graph_exec_destroy(b.graph);
    if (b.stream) d->stream_destroy(b.stream);
    if (b.from) d->event_destroy(b.from);
    if (b.to) d->event_destroy(b.to);
    if (b.flush) d->release(b.flush);
    if (b.memory.workspace) d->release(b.memory.workspace);
    if (b.memory.zeroed) d->release(b.memory.zeroed);
    device_free(loaded, &there);
    return ok;
}
