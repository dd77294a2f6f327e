// A cached launch is a row of 64-bit words: the key, then the actions. The key holds everything that a dispatch can
// read; of an address, its remainder modulo plan->address_unit (0: the whole address). Addresses in the actions are
// stored relative to the argument or scratch memory that they point into.
//
//     key       entry, count of arguments, memory for scratch;   a tensor: rank, address, shape, strides;   a scalar: type, bits
//     actions   bytes of both kinds of scratch, count;   a kernel: variant, grid, parameters with their bases, maps;   a fill
//
// Rows stand one behind the other in a ring, which the newest overwrites where it is full: a thousand launches of a
// gemm fit. They are found by a set-associative table of their hashes. A row is copied out under the lock and decoded
// after it, so the lock is held for a copy of a few hundred bytes, and nothing that may longjmp runs inside. Pages of
// the ring that no row has reached take no memory.
#include "runtime/plan/launch_cache.h"
#include "support/hash.h"
#include <pthread.h>
#include <string.h>

enum { SETS = 1024, WAYS = 4, ROW_WORDS = 384, RING_WORDS = 1 << 18, REQUEST_WORDS = (sizeof(MapRequest) + 7) / 8 };

typedef struct Row {
    uint64_t hash;
    int key, count;   // words of the key; of key and actions
    uint64_t words[ROW_WORDS];
} Row;

// Where a row is: `start` counts the words written before it, those that are overwritten included.
typedef struct Place {
    uint64_t hash, start;
    int key, count;   // 0: none
} Place;

struct LaunchCache {
    pthread_mutex_t lock;
    int64_t hits;
    uint64_t written;     // words so far
    uint64_t *ring;       // RING_WORDS
    uint8_t next[SETS];   // next place to replace in each set
    Place places[SETS][WAYS];
};

LaunchCache *launch_cache_new(Arena *arena) {
    LaunchCache *cache = NEW(arena, LaunchCache);
    cache->ring = arena_alloc(arena, sizeof *cache->ring * RING_WORDS);
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
    action_room(arena, &action);
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

// The words of a place; NULL: they are overwritten.
static const uint64_t *words_at(const LaunchCache *cache, const Place *place) {
    return cache->written - place->start <= RING_WORDS ? &cache->ring[place->start % RING_WORDS] : NULL;
}

// Looks up the key of `row` and copies the cached row there.
static bool find(LaunchCache *cache, Row *row) {
    const Place *set = cache->places[row->hash % SETS];
    bool found = false;
    pthread_mutex_lock(&cache->lock);
    for (int i = 0; i < WAYS && !found; i++) {
        const Place *place = &set[i];
        const uint64_t *words = words_at(cache, place);
        found = words && place->count && place->hash == row->hash && place->key == row->key &&
                memcmp(words, row->words, sizeof *words * (size_t)row->key) == 0;
        if (!found) continue;
        memcpy(row->words, words, sizeof *words * (size_t)place->count);
        row->count = place->count;
        cache->hits++;
    }
    pthread_mutex_unlock(&cache->lock);
    return found;
}

// Takes the next words of the ring; a row does not go over its end.
static uint64_t take_words(LaunchCache *cache, int count) {
    uint64_t left = RING_WORDS - cache->written % RING_WORDS;
    if (left < (uint64_t)count) cache->written += left;
    uint64_t start = cache->written;
    cache->written += (uint64_t)count;
    return start;
}

static void remember(LaunchCache *cache, const Row *row) {
    int set = (int)(row->hash % SETS);
    pthread_mutex_lock(&cache->lock);
    Place place = {row->hash, take_words(cache, row->count), row->key, row->count};
    memcpy(&cache->ring[place.start % RING_WORDS], row->words, sizeof row->words[0] * (size_t)row->count);
    cache->places[set][cache->next[set]] = place;
    cache->next[set] = (uint8_t)((cache->next[set] + 1) % WAYS);
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
