// Results of references. Tests run again after each pass, but passes change only kernels: each reference runs a single
// time.
//
// A result is used again for the same text and equal arguments. It depends on nothing else. So does the result of a
// whole test: one that has passed without a diagnostic is not run again while the module's text stays the same (after
// the last pass, the module is what the test command runs).
#include "emulator/launch.h"
#include "ir/print.h"
#include <string.h>

enum { MOST_BYTES = 1 << 27 };   // of all results

typedef struct CachedResult {
    const char *reference;
    int count;
    EmuArg *before, *after;   // the arguments before the run and after it
} CachedResult;

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
    size_t bytes;
};

EmuReferenceCache *emu_reference_cache_new(Arena *arena) {
    EmuReferenceCache *cache = NEW(arena, EmuReferenceCache);
    cache->arena = arena;
    return cache;
}

static size_t elements_of(const EmuTensor *tensor) {
    return tensor->bytes / (size_t)type_bytes(tensor->type);
}

static size_t bytes_of(int count, const EmuArg *args) {
    size_t bytes = 0;
    for (int i = 0; i < count; i++)
        if (args[i].tensor) bytes += args[i].tensor->bytes + elements_of(args[i].tensor);
    return bytes;
}

static EmuArg *copy_args(Arena *arena, int count, const EmuArg *args) {
    EmuArg *copy = arena_copy(arena, args, sizeof *args * (size_t)(count + 1));
    for (int i = 0; i < count; i++) {
        if (!args[i].tensor) continue;
        EmuTensor *tensor = copy[i].tensor = arena_copy(arena, args[i].tensor, sizeof *tensor);
        tensor->data = arena_copy(arena, tensor->data, tensor->bytes);
        tensor->initialised = arena_copy(arena, tensor->initialised, elements_of(tensor));
    }
    return copy;
}

static bool same_tensor(const EmuTensor *a, const EmuTensor *b) {
    size_t extents = sizeof a->shape[0] * (size_t)a->rank;
    return a->type == b->type && a->rank == b->rank && a->bytes == b->bytes &&
           memcmp(a->shape, b->shape, extents) == 0 && memcmp(a->strides, b->strides, extents) == 0 &&
           memcmp(a->data, b->data, a->bytes) == 0 && memcmp(a->initialised, b->initialised, elements_of(a)) == 0;
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
        memcpy(to->initialised, from->initialised, elements_of(from));
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

static bool same_options(const EmuOptions *a, const EmuOptions *b) {
    return a->seed == b->seed && a->approximate == b->approximate && a->max_blocks == b->max_blocks &&
           a->multiprocessors == b->multiprocessors && a->races == b->races && a->target == b->target &&
           a->max_steps == b->max_steps;
}

bool cached_test(EmuReferenceCache *cache, const Module *module, Arena *scratch, const Test *test,
                 const EmuOptions *options, EmuTestResult *result) {
    StrBuf text;
    sb_init(&text, scratch);
    print_module(module, (PrintOptions){.places = true, .tests = true}, &text);
    if (cache->module != module || strcmp(cache->text, sb_text(&text)) != 0) {
        remember_text(cache, module, sb_text(&text), text.length);
        return false;
    }
    for (int i = 0; i < cache->passed.count; i++) {
        const PassedTest *passed = &cache->passed.items[i];
        if (passed->test != test || !same_options(&passed->options, options)) continue;
        *result = passed->result;
        return true;
    }
    return false;
}

void cache_test(EmuReferenceCache *cache, const Test *test, const EmuOptions *options, const EmuTestResult *result) {
    vec_push(cache->arena, &cache->passed, ((PassedTest){test, *options, *result}));
}
