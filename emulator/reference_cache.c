// Results of references. Tests run again after each pass, but passes change only kernels: each reference runs a single
// time.
//
// A result is used again for the same text and equal arguments. It depends on nothing else. A test's inputs are made a
// single time, too: a pass keeps the parameters. The result of a whole test depends on the module's text: one that has
// passed without a diagnostic is not run again while that stays the same (after the last pass, the module is what the
// test command runs).
#include "emulator/launch.h"
#include "ir/print.h"
#include <string.h>

enum { MOST_BYTES = 1 << 27 };   // of all results

typedef struct CachedResult {
    const char *reference;
    int count;
    EmuArg *before, *after;   // the arguments before the run and after it
} CachedResult;

typedef struct CachedCase {
    const Test *test;
    const char *signature;
    EmuOptions options;
    TestCase made;
} CachedCase;

typedef struct PassedTest {
    const Test *test;
    EmuOptions options;
    EmuTestResult result;
} PassedTest;

struct EmuReferenceCache {
    Arena *arena;
    const Module *module;
    char *text;   // of the module, when the tests in `passed` ran
    size_t capacity;
    VEC(PassedTest) passed;
    VEC(CachedResult) list;
    VEC(CachedCase) cases;
    size_t bytes;
};

EmuReferenceCache *emu_reference_cache_new(Arena *arena) {
    EmuReferenceCache *cache = NEW(arena, EmuReferenceCache);
    cache->arena = arena;
    return cache;
}

static size_t bytes_of(int count, const EmuArg *args) {
    size_t bytes = 0;
    for (int i = 0; i < count; i++)
        if (args[i].tensor) bytes += args[i].tensor->bytes + tensor_reach(args[i].tensor);
    return bytes;
}

static EmuArg *copy_args(Arena *arena, int count, const EmuArg *args) {
    EmuArg *copy = arena_copy(arena, args, sizeof *args * (size_t)(count + 1));
    for (int i = 0; i < count; i++)
        if (args[i].tensor) copy[i].tensor = tensor_copy(arena, args[i].tensor);
    return copy;
}

static TestCase copy_case(Arena *arena, const TestCase *from) {
    return (TestCase){from->count, copy_args(arena, from->count, from->args),
                      copy_args(arena, from->count, from->want)};
}

static bool same_tensor(const EmuTensor *a, const EmuTensor *b) {
    size_t extents = sizeof a->shape[0] * (size_t)a->rank;
    return a->type == b->type && a->rank == b->rank && a->bytes == b->bytes &&
           memcmp(a->shape, b->shape, extents) == 0 && memcmp(a->strides, b->strides, extents) == 0 &&
           memcmp(a->data, b->data, a->bytes) == 0 && memcmp(a->initialised, b->initialised, tensor_reach(a)) == 0;
}

static bool same_args(int count, const EmuArg *a, const EmuArg *b) {
    for (int i = 0; i < count; i++) {
        if (!a[i].tensor != !b[i].tensor) return false;
        bool same = a[i].tensor ? same_tensor(a[i].tensor, b[i].tensor)
                                : a[i].integer == b[i].integer && memcmp(&a[i].real, &b[i].real, sizeof a[i].real) == 0;
        if (!same) return false;
    }
    return true;
}

static const CachedResult *find(const EmuReferenceCache *cache, const char *reference, int count, const EmuArg *args) {
    for (int i = 0; i < cache->list.count; i++) {
        const CachedResult *result = &cache->list.items[i];
        if (result->count == count && strcmp(result->reference, reference) == 0 &&
            same_args(count, result->before, args))
            return result;
    }
    return NULL;
}

static void copy_result(const CachedResult *result, const EmuArg *args) {
    for (int i = 0; i < result->count; i++) {
        const EmuTensor *from = result->after[i].tensor, *to = args[i].tensor;
        if (!from) continue;
        memcpy(to->data, from->data, from->bytes);
        memcpy(to->initialised, from->initialised, tensor_reach(from));
    }
}

static bool run_reference(const Module *module, const Func *reference, int count, const EmuArg *args,
                          const EmuOptions *options) {
    EmuReport unused = {0};
    EmuOptions host = host_options(options);
    return run_func(module, reference, count, args, &host, NULL, &unused);
}

bool cached_reference(const Module *module, const Func *reference, int count, const EmuArg *args,
                      const EmuOptions *options) {
    EmuReferenceCache *cache = options ? options->reference_cache : NULL;
    size_t bytes = 2 * bytes_of(count, args);
    if (!cache || cache->bytes + bytes > MOST_BYTES) return run_reference(module, reference, count, args, options);
    StrBuf text;
    sb_init(&text, module->arena);
    print_func(module, reference, (PrintOptions){0}, &text);
    const CachedResult *known = find(cache, sb_text(&text), count, args);
    if (known) {
        copy_result(known, args);
        return true;
    }
    CachedResult result = {arena_strdup(cache->arena, sb_text(&text)), count, copy_args(cache->arena, count, args),
                           NULL};
    if (!run_reference(module, reference, count, args, options)) return false;
    result.after = copy_args(cache->arena, count, args);
    cache->bytes += bytes;
    vec_push(cache->arena, &cache->list, result);
    return true;
}

// ---- tests ----
static void remember_text(EmuReferenceCache *cache, const Module *module, const char *text, size_t length) {
    if (length >= cache->capacity) {
        cache->capacity = 2 * length + 1;
        cache->text = arena_alloc(cache->arena, cache->capacity);
    }
    memcpy(cache->text, text, length + 1);
    cache->module = module;
    cache->passed.count = 0;
}

typedef struct StageJob {
    EmuReferenceCache *cache;
    const Module *outer;
} StageJob;

static void stage_job(const Module *module, void *user) {
    StageJob *job = user;
    StrBuf text;
    sb_init(&text, module->arena);
    print_module(module, (PrintOptions){.places = true, .tests = true}, &text);
    if (job->cache->module != job->outer || strcmp(job->cache->text, sb_text(&text)) != 0)
        remember_text(job->cache, job->outer, sb_text(&text), text.length);
}

void emu_reference_cache_stage(EmuReferenceCache *cache, const Module *module) {
    StageJob job = {cache, module};
    if (!in_scratch(module, (Span){0}, stage_job, &job)) cache->module = NULL;
}

static bool same_options(const EmuOptions *a, const EmuOptions *b) {
    return a->seed == b->seed && a->approximate == b->approximate && a->max_blocks == b->max_blocks &&
           a->multiprocessors == b->multiprocessors && a->races == b->races && a->target == b->target &&
           a->max_steps == b->max_steps;
}

bool cached_case(const EmuReferenceCache *cache, Arena *arena, const Test *test, const char *signature,
                 const EmuOptions *options, TestCase *out) {
    for (int i = 0; i < cache->cases.count; i++) {
        const CachedCase *known = &cache->cases.items[i];
        if (known->test != test || strcmp(known->signature, signature) != 0 || !same_options(&known->options, options))
            continue;
        *out = copy_case(arena, &known->made);
        return true;
    }
    return false;
}

void cache_case(EmuReferenceCache *cache, const Test *test, const char *signature, const EmuOptions *options,
                const TestCase *made) {
    size_t bytes = bytes_of(made->count, made->args) + bytes_of(made->count, made->want);
    if (cache->bytes + bytes > MOST_BYTES) return;
    cache->bytes += bytes;
    CachedCase known = {test, arena_strdup(cache->arena, signature), *options, copy_case(cache->arena, made)};
    vec_push(cache->arena, &cache->cases, known);
}

bool cached_test(const EmuReferenceCache *cache, const Module *module, const Test *test, const EmuOptions *options,
                 EmuTestResult *result) {
    for (int i = 0; cache->module == module && i < cache->passed.count; i++) {
        const PassedTest *passed = &cache->passed.items[i];
        if (passed->test != test || !same_options(&passed->options, options)) continue;
        *result = passed->result;
        return true;
    }
    return false;
}

void cache_test(EmuReferenceCache *cache, const Module *module, const Test *test, const EmuOptions *options,
                const EmuTestResult *result) {
    if (cache->module == module) vec_push(cache->arena, &cache->passed, ((PassedTest){test, *options, *result}));
}
