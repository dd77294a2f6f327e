// A cached launch is a row of 64-bit words: the key, then the actions. The key holds everything that a dispatch can
// read; of an address, its remainder modulo plan->address_unit (0: the whole address). Addresses in the actions are
// stored relative to the argument or scratch memory that they point into.
//
//     key       entry, count of arguments, memory for scratch;   a tensor: rank, address, shape, strides;   a scalar: type, bits
//     actions   bytes of both kinds of scratch, count;   a kernel: variant, grid, parameters with their bases, maps;   a fill
//
// Rows are set-associative by a hash of the key. A row is copied out under the lock and decoded after it, so the lock
// is held for a copy of a few hundred bytes, and nothing that may longjmp runs inside.
#include "runtime/plan/launch_cache.h"
#include "support/hash.h"
#include <pthread.h>
#include <stddef.h>
#include <string.h>

enum { SETS = 16, WAYS = 4, ROW_WORDS = 384, REQUEST_WORDS = (sizeof(MapRequest) + 7) / 8 };

typedef struct Row {
    uint64_t hash;
    int key, count;   // words of the key; of key and actions
    uint64_t words[ROW_WORDS];
} Row;

struct LaunchCache {
    pthread_mutex_t lock;
    int64_t hits;
    int next[SETS];   // next row to replace in each set
    Row rows[SETS][WAYS];
};

LaunchCache *launch_cache_new(Arena *arena) {
    LaunchCache *cache = NEW(arena, LaunchCache);
    pthread_mutex_init(&cache->lock, NULL);
    return cache;
}

int64_t launch_cache_hits(LaunchCache *cache) {
    pthread_mutex_lock(&cache->lock);
    int64_t hits = cache->hits;
    pthread_mutex_unlock(&cache->lock);
    return hits;
}

// ---- writing ----

// Words past the end of the row are counted but not written.
static void put(Row *row, uint64_t word) {
    if (row->count < ROW_WORDS) row->words[row->count] = word;
    row->count++;
}

static void put_words(Row *row, const void *from, int count) {
    if (row->count + count <= ROW_WORDS) memcpy(&row->words[row->count], from, sizeof(uint64_t) * (size_t)count);
    row->count += count;
}

static uint64_t as_pointer(const void *pointer) {
    return (uint64_t)(uintptr_t)pointer;
}

static uint64_t hash_of(const Row *row) {
    uint64_t hash = 0;
    for (int i = 0; i < row->key && i < ROW_WORDS; i++) hash = hash_mix(hash, row->words[i]);
    return hash;
}

// As in expressions: the remainder of a signed number.
static uint64_t address_class(const Plan *plan, uint64_t address) {
    return plan->address_unit ? (uint64_t)((int64_t)address % plan->address_unit) : address;
}

static void put_key(Row *row, const Plan *plan, const PlanEntry *entry, int count, const LaunchArg *args,
                    LaunchMemory memory) {
    row->count = 0;
    put(row, as_pointer(entry));
    put(row, (uint64_t)count);
    put(row, address_class(plan, memory.workspace));
    put(row, address_class(plan, memory.zeroed));
    put(row, memory.zeroed != 0);
    for (int i = 0; i < count; i++) {
        const LaunchArg *arg = &args[i];
        if (arg->is_tensor) {
            put(row, (uint64_t)arg->rank);
            put(row, address_class(plan, arg->address));
            put_words(row, arg->shape, arg->rank);
            put_words(row, arg->strides, arg->rank);
        } else {
            uint64_t bits = (uint64_t)arg->scalar.integer;
            if (type_is_float(arg->scalar.type)) memcpy(&bits, &arg->scalar.real, sizeof bits);
            put(row, UINT64_C(1) << 32 | (uint64_t)arg->scalar.type);
            put(row, bits);
        }
    }
    row->key = row->count;
    row->hash = hash_of(row);
}

// ---- bases ----

typedef struct Bases {
    const LaunchArg *args;
    LaunchMemory memory;
} Bases;

static uint64_t address_of(const Bases *bases, int base) {
    switch (base) {
    case BASE_NONE: return 0;
    case BASE_ZEROED: return bases->memory.zeroed;
    case BASE_WORKSPACE: return bases->memory.workspace;
    default: return bases->args[base].address;
    }
}

static void put_based(Row *row, const Bases *bases, uint64_t value, int base) {
    put(row, (uint64_t)base);
    put(row, value - address_of(bases, base));
}

static void put_action(Row *row, const Bases *bases, const Action *action) {
    put(row, as_pointer(action->variant));
    if (!action->variant) {
        put_based(row, bases, action->address, action->base);
        put(row, (uint64_t)action->count);
        put(row, (uint64_t)action->width);
        put(row, action->pattern);
        return;
    }
    put(row, (uint64_t)action->grid);
    put(row, (uint64_t)action->param_count);
    for (int i = 0; i < action->param_count; i++) put_based(row, bases, action->params[i], action->bases[i]);
    for (int i = 0; i < action->variant->maps.count; i++) {
        uint64_t words[REQUEST_WORDS] = {0};
        MapRequest request = action->maps[i];
        request.address -= address_of(bases, request.base);
        memcpy(words, &request, sizeof request);
        put_words(row, words, REQUEST_WORDS);
    }
}

static void put_launch(Row *row, const Bases *bases, const Launch *launch) {
    put(row, (uint64_t)launch->workspace);
    put(row, (uint64_t)launch->zeroed);
    put(row, (uint64_t)launch->actions.count);
    for (int i = 0; i < launch->actions.count; i++) put_action(row, bases, &launch->actions.items[i]);
}

// ---- reading ----

typedef struct Words {
    const uint64_t *next;
} Words;

static uint64_t take(Words *words) {
    return *words->next++;
}

static uint64_t take_based(Words *words, const Bases *bases, int *base) {
    *base = (int)take(words);
    return take(words) + address_of(bases, *base);
}

static Action take_action(Arena *arena, Words *words, const Bases *bases) {
    Action action = {.variant = (const PlanVariant *)(uintptr_t)take(words)};
    if (!action.variant) {
        action.address = take_based(words, bases, &action.base);
        action.count = (int64_t)take(words);
        action.width = (int)take(words);
        action.pattern = take(words);
        return action;
    }
    int maps = action.variant->maps.count;
    action.grid = (int64_t)take(words);
    action.param_count = (int)take(words);
    action.params = NEW_ARRAY(arena, uint64_t, action.param_count);
    action.bases = NEW_ARRAY(arena, int, action.param_count);
    action.maps = NEW_ARRAY(arena, MapRequest, maps + 1);
    for (int i = 0; i < action.param_count; i++) action.params[i] = take_based(words, bases, &action.bases[i]);
    for (int i = 0; i < maps; i++, words->next += REQUEST_WORDS) {
        memcpy(&action.maps[i], words->next, sizeof action.maps[i]);
        action.maps[i].address += address_of(bases, action.maps[i].base);
    }
    return action;
}

static void take_launch(Arena *arena, const Row *row, const Bases *bases, Launch *out) {
    Words words = {row->words + row->key};
    *out = (Launch){.workspace = (int64_t)take(&words)};
    out->zeroed = (int64_t)take(&words);
    for (int i = (int)take(&words); i > 0; i--) {
        Action action = take_action(arena, &words, bases);
        vec_push(arena, &out->actions, action);
    }
}

// ---- the table ----

// Looks up the key of `row` and copies the cached row there.
static bool find(LaunchCache *cache, Row *row) {
    Row *set = cache->rows[row->hash % SETS];
    bool found = false;
    pthread_mutex_lock(&cache->lock);
    for (int i = 0; i < WAYS && !found; i++) {
        const Row *other = &set[i];
        found = other->hash == row->hash && other->key == row->key &&
                memcmp(other->words, row->words, sizeof row->words[0] * (size_t)row->key) == 0;
        if (!found) continue;
        memcpy(row->words, other->words, sizeof row->words[0] * (size_t)other->count);
        row->count = other->count;
        cache->hits++;
    }
    pthread_mutex_unlock(&cache->lock);
    return found;
}

static void remember(LaunchCache *cache, const Row *row) {
    int set = (int)(row->hash % SETS);
    pthread_mutex_lock(&cache->lock);
    memcpy(&cache->rows[set][cache->next[set]], row, offsetof(Row, words) + sizeof row->words[0] * (size_t)row->count);
    cache->next[set] = (cache->next[set] + 1) % WAYS;
    pthread_mutex_unlock(&cache->lock);
}

bool launch_cache_dispatch(Arena *arena, DiagSink *sink, LaunchCache *cache, const Plan *plan, const PlanEntry *entry,
                           int count, const LaunchArg *args, const LaunchDevice *device, LaunchMemory memory,
                           Launch *out) {
    Row row;
    const Bases bases = {args, memory};
    put_key(&row, plan, entry, count, args, memory);
    if (row.count <= ROW_WORDS && find(cache, &row)) {
        take_launch(arena, &row, &bases, out);
        return true;
    }
    if (!plan_dispatch(arena, sink, plan, entry, count, args, device, memory, out)) return false;
    put_launch(&row, &bases, out);
    if (row.count <= ROW_WORDS) remember(cache, &row);
    return true;
}
