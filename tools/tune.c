#include "tools/tune.h"
#include "runtime/api/api.h"
#include "runtime/cache/hash.h"
#include "runtime/device/device.h"
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct Candidate {
    TilecDefine *defines;
    TilecStatus status;
    TilecArtefact *artefact;
    TilecDiagnostics *diagnostics;
    bool compiled;
} Candidate;

typedef struct Tune {
    TuneJob *job;
    TilecContext *context;
    Candidate *candidates;
    pthread_mutex_t lock;
    pthread_cond_t ready;
    int next;   // candidate to compile
    bool stop;
    Driver driver;
    CudaDeviceHold hold;
    EmuArg *want;   // the first result
    int at;         // candidate to measure
    const char *why;
} Tune;

// ---- compiling ----

static void compile_one(Tune *t, Candidate *c) {
    const TuneJob *job = t->job;
    TilecCompileOptions options = TILEC_INIT(TilecCompileOptions);
    options.target = job->target;
    options.defines = c->defines;
    options.define_count = (size_t)job->define_count + (size_t)job->results[0].tuned.count;
    options.only = job->func->name;
    options.ptxas = job->ptxas;
    options.no_lines = true;   // the code stays what it is where comments change
    c->status = tilec_compile(t->context, job->path, job->source, job->length, &options, &c->artefact, &c->diagnostics);
}

static void *compile_all(void *user) {
    Tune *t = user;
    pthread_mutex_lock(&t->lock);
    while (t->next < t->job->count && !t->stop) {
        Candidate *c = &t->candidates[t->next++];
        pthread_mutex_unlock(&t->lock);
        compile_one(t, c);
        pthread_mutex_lock(&t->lock);
        c->compiled = true;
        pthread_cond_broadcast(&t->ready);
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

static void wait_for(Tune *t, Candidate *c) {
    pthread_mutex_lock(&t->lock);
    while (!c->compiled) pthread_cond_wait(&t->ready, &t->lock);
    pthread_mutex_unlock(&t->lock);
}

static TilecDefine *defines_of(const TuneJob *job, const TuneResult *result) {
    TilecDefine *out = NEW_ARRAY(job->arena, TilecDefine, job->define_count + result->tuned.count);
    int count = 0;
    for (int i = 0; i < job->define_count; i++)
        out[count++] = (TilecDefine){job->defines[i].name, job->defines[i].value};
    for (int i = 0; i < result->tuned.count; i++) {
        const RecordValue *value = &result->tuned.items[i];
        out[count++] = (TilecDefine){arena_printf(job->arena, "%s.%s", job->func->name, value->name),
                                     arena_printf(job->arena, "%lld", (long long)value->value)};
    }
    return out;
}

// ---- results ----

static bool is_written(const TuneJob *job, int i) {
    const Buf *buf = job->func->params.items[i].buf;
    return buf && buf->mode != MODE_IN;
}

// Copies the arguments; outputs get memory of their own.
static EmuArg *copy_args(Arena *arena, const TuneJob *job, const EmuArg *args) {
    EmuArg *out = NEW_ARRAY(arena, EmuArg, job->func->params.count + 1);
    for (int i = 0; i < job->func->params.count; i++) {
        out[i] = args[i];
        if (!is_written(job, i)) continue;
        out[i].tensor = arena_copy(arena, args[i].tensor, sizeof *args[i].tensor);
        out[i].tensor->data = arena_alloc(arena, args[i].tensor->bytes + 1);
        memcpy(out[i].tensor->data, args[i].tensor->data, args[i].tensor->bytes);
    }
    return out;
}

static double element(const EmuTensor *tensor, int64_t i) {
    return scalar_double(scalar_load(tensor->type, (const uint8_t *)tensor->data + i * type_bytes(tensor->type)));
}

static double rms_of(const EmuTensor *tensor) {
    int64_t count = (int64_t)tensor->bytes / type_bytes(tensor->type);
    double squares = 0;
    for (int64_t i = 0; i < count; i++) squares += element(tensor, i) * element(tensor, i);
    return sqrt(squares / (double)count);
}

// The largest |got - want| / (|want| + rms(want)). Equal bits are equal, NaN too.
static double worst_of(const EmuTensor *got, const EmuTensor *want) {
    size_t width = (size_t)type_bytes(want->type);
    double rms = -1, worst = 0;
    for (int64_t i = 0; (size_t)i * width < want->bytes; i++) {
        if (memcmp((char *)got->data + (size_t)i * width, (char *)want->data + (size_t)i * width, width) == 0) continue;
        if (rms < 0) rms = rms_of(want);
        double a = element(got, i), b = element(want, i), off = fabs(a - b) / (fabs(b) + rms);
        if (a != b && !(off <= worst)) worst = isnan(off) ? INFINITY : off;
    }
    return worst;
}

static const char *difference(const Tune *t, const EmuArg *got) {
    for (int i = 0; i < t->job->func->params.count; i++) {
        if (!is_written(t->job, i)) continue;
        double worst = worst_of(got[i].tensor, t->want[i].tensor);
        if (!(worst <= t->job->tolerance))
            return arena_printf(t->job->arena, "'%s' differs by %.2g from the first result; %.2g is allowed",
                                t->job->func->params.items[i].buf->name, worst, t->job->tolerance);
    }
    return NULL;
}

// ---- measuring ----

static bool measure(Tune *t, Arena *arena, DiagSink *sink, const DeviceModule *loaded) {
    TuneJob *job = t->job;
    const PlanEntry *entry = plan_entry(loaded->plan, job->func->name);
    DeviceRun run = {.loaded = loaded, .entry = entry};
    int count = func_argument_count(job->func);
    EmuArg *args = copy_args(arena, job, job->args);
    if (!device_run(arena, sink, &run, count, args)) return false;
    t->why = run.outside ? arena_strdup(job->arena, run.outside) : t->want ? difference(t, args) : NULL;
    if (t->why) return false;
    TuneResult *result = &job->results[t->at];
    if (!result->known && !bench_launch(arena, sink, loaded, entry, count, job->args, &job->bench, &result->time))
        return false;
    if (!t->want) t->want = copy_args(job->arena, job, args);
    return true;
}

static bool load_and_measure(void *user, Arena *arena) {
    Tune *t = user;
    const TilecArtefact *artefact = t->candidates[t->at].artefact;
    DiagSink *sink = diag_sink_new(arena);
    DeviceModule loaded;
    bool ok = device_module_open(arena, sink, artefact->plan, artefact->cubin, CURRENT_DEVICE, &loaded);
    if (ok) {
        ok = measure(t, arena, sink, &loaded);
        device_module_close(&loaded);
    }
    if (ok || t->why) return true;
    t->why = arena_strdup(t->job->arena, diag_view(sink, 0).message);
    cuda_release(&t->driver, &t->hold);   // a fault is permanent in its context
    return cuda_hold(&t->driver, t->job->sink, &t->hold);
}

// ---- the record ----

static RecordEntry entry_of(const Tune *t, const TilecArtefact *artefact) {
    RecordEntry out = t->job->entry;
    char hash[HASH_TEXT + 1];
    size_t size;
    const void *cubin = tilec_artefact_cubin(artefact, &size);
    cache_hash_text(cache_hash(cubin, size), hash);
    out.artefact = arena_strndup(t->job->arena, hash, HASH_TEXT / 2);
    out.tuned = t->job->results[t->at].all;
    return out;
}

static bool is_known(const Tune *t, RecordEntry *entry, TuneResult *result) {
    if (t->job->anew || !measurements_find(t->job->record, t->job->arena, entry)) return false;
    result->time = (Spread){entry->us * 1e-6, entry->low * 1e-6, entry->high * 1e-6, .samples = t->job->bench.samples};
    return result->known = true;
}

// A failure is not kept: it may have been the machine's.
static bool keep(const Tune *t, RecordEntry *entry, const TuneResult *result) {
    if (t->why) return true;
    entry->us = result->time.median * 1e6;
    entry->low = result->time.low * 1e6;
    entry->high = result->time.high * 1e6;
    return measurements_add(t->job->record, t->job->arena, entry);
}

// What is known runs only for its outputs, with which those that follow are compared.
static bool know_or_measure(Tune *t, const Candidate *c, TuneResult *result) {
    RecordEntry entry = entry_of(t, c->artefact);
    if (is_known(t, &entry, result) && t->want) return true;
    return arena_scope(t->job->failure, load_and_measure, t) && (result->known || keep(t, &entry, result));
}

// Measures one candidate. False: the device or the record is not usable any more.
static bool take(Tune *t) {
    Candidate *c = &t->candidates[t->at];
    TuneResult *result = &t->job->results[t->at];
    TilecDiagnostic first = TILEC_INIT(TilecDiagnostic);
    bool ok = true;
    wait_for(t, c);
    result->too_large = c->status == TILEC_ERROR_TARGET;
    t->why = NULL;
    if (c->status == TILEC_OK) ok = know_or_measure(t, c, result);
    else if (!result->too_large)
        t->why = tilec_diagnostics_get(c->diagnostics, 0, &first) ? arena_strdup(t->job->arena, first.message)
                                                                  : tilec_status_text(c->status);
    result->why = t->why;
    tilec_artefact_destroy(c->artefact);
    tilec_diagnostics_destroy(c->diagnostics);
    c->artefact = NULL;
    c->diagnostics = NULL;
    return ok;
}

static bool take_all(Tune *t) {
    for (t->at = 0; t->at < t->job->count; t->at++) {
        if (!take(t)) return false;
        if (t->job->progress) t->job->progress(t->job->user, t->at + 1);
    }
    return true;
}

static bool with_threads(Tune *t) {
    enum { MOST_THREADS = 64 };
    pthread_t threads[MOST_THREADS];
    int count = 0, wanted = t->job->threads < MOST_THREADS ? t->job->threads : MOST_THREADS;
    while (count < wanted && pthread_create(&threads[count], NULL, compile_all, t) == 0) count++;
    if (count == 0) compile_all(t);   // no thread could be created
    bool ok = take_all(t);
    pthread_mutex_lock(&t->lock);
    t->stop = true;
    pthread_mutex_unlock(&t->lock);
    for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < t->job->count; i++) {   // not measured, after a device failure
        tilec_artefact_destroy(t->candidates[i].artefact);
        tilec_diagnostics_destroy(t->candidates[i].diagnostics);
    }
    return ok;
}

// What a time depends on besides the code.
static void name_device(const Tune *t) {
    char name[128] = "?";
    int version = 0, clock = 0, memory_clock = 0;
    RecordEntry *entry = &t->job->entry;
    t->driver.device_name(name, sizeof name, t->hold.device);
    t->driver.driver_version(&version);
    t->driver.device_attribute(&clock, CUDA_CLOCK, t->hold.device);
    t->driver.device_attribute(&memory_clock, CUDA_MEMORY_CLOCK, t->hold.device);
    entry->device = arena_strdup(t->job->arena, name);
    entry->driver = arena_printf(t->job->arena, "CUDA %d.%d", version / 1000, version % 1000 / 10);
    entry->clocks = arena_printf(t->job->arena, "%d MHz, %d MHz", clock / 1000, memory_clock / 1000);
}

bool tune_run(TuneJob *job) {
    Tune t = {.job = job, .lock = PTHREAD_MUTEX_INITIALIZER, .ready = PTHREAD_COND_INITIALIZER};
    if (!cuda_open(&t.driver, job->sink) || !cuda_hold(&t.driver, job->sink, &t.hold)) return false;
    name_device(&t);
    t.candidates = NEW_ARRAY(job->arena, Candidate, job->count + 1);
    for (int i = 0; i < job->count; i++) t.candidates[i].defines = defines_of(job, &job->results[i]);
    if (tilec_context_create(NULL, &t.context) != TILEC_OK) fail_out_of_memory(job->failure);
    bool ok = with_threads(&t);
    tilec_context_destroy(t.context);
    cuda_release(&t.driver, &t.hold);
    return ok;
}
