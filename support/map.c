#include "support/map.h"
#include "support/numbers.h"
#include <string.h>
#include <strings.h>

// uthash asks for memory through these; every function below that inserts or removes has its map in scope as `map`.
#define uthash_malloc(bytes) arena_alloc(map->arena, (bytes))
#define uthash_free(block, bytes) ((void)(block))
#define uthash_fatal(message) ((void)(message))   // never reached: arena_alloc does not return NULL
#include <uthash.h>

typedef struct Entry {
    const void *key;
    void *value;
    UT_hash_handle hh;
} Entry;

struct Map {
    Arena *arena;
    Entry *entries;
};

Map *map_new(Arena *arena) {
    Map *map = NEW(arena, Map);
    map->arena = arena;
    return map;
}

static Entry *find(const Map *map, const void *key) {
    Entry *entry = NULL;
    HASH_FIND_PTR(map->entries, &key, entry);
    return entry;
}

void map_put(Map *map, const void *key, void *value) {
    Entry *entry = find(map, key);
    if (!entry) {
        entry = NEW(map->arena, Entry);
        entry->key = key;
        HASH_ADD_PTR(map->entries, key, entry);
    }
    entry->value = value;
}

void *map_get(const Map *map, const void *key) {
    Entry *entry = find(map, key);
    return entry ? entry->value : NULL;
}

bool map_has(const Map *map, const void *key) {
    return find(map, key) != NULL;
}

void map_remove(Map *map, const void *key) {
    Entry *entry = find(map, key);
    if (entry) HASH_DEL(map->entries, entry);
}

int map_count(const Map *map) {
    return (int)HASH_COUNT(map->entries);
}

typedef struct StrEntry {
    const char *key;
    void *value;
    UT_hash_handle hh;
} StrEntry;

struct StrMap {
    Arena *arena;
    StrEntry *entries;
};

StrMap *strmap_new(Arena *arena) {
    StrMap *map = NEW(arena, StrMap);
    map->arena = arena;
    return map;
}

static StrEntry *find_str(const StrMap *map, const char *key) {
    StrEntry *entry = NULL;
    HASH_FIND_STR(map->entries, key, entry);
    return entry;
}

void strmap_put(StrMap *map, const char *key, void *value) {
    StrEntry *entry = find_str(map, key);
    if (!entry) {
        entry = NEW(map->arena, StrEntry);
        entry->key = arena_strdup(map->arena, key);
        HASH_ADD_KEYPTR(hh, map->entries, entry->key, strlen(entry->key), entry);
    }
    entry->value = value;
}

void *strmap_get(const StrMap *map, const char *key) {
    StrEntry *entry = find_str(map, key);
    return entry ? entry->value : NULL;
}

bool strmap_has(const StrMap *map, const char *key) {
    return find_str(map, key) != NULL;
}

void strmap_each(const StrMap *map, void (*visit)(const char *key, void *value, void *user), void *user) {
    for (StrEntry *entry = map->entries; entry; entry = entry->hh.next) visit(entry->key, entry->value, user);
}

enum { LONGEST_SUGGESTION = 63 };   // longer names are not worth a suggestion

// Damerau-Levenshtein distance (adjacent transpositions count as one edit), for names of at most LONGEST_SUGGESTION.
static int edit_distance(const char *a, int a_length, const char *b, int b_length) {
    int rows[3][LONGEST_SUGGESTION + 1];   // the row of i is rows[i % 3]
    for (int j = 0; j <= b_length; j++) rows[0][j] = j;
    for (int i = 1; i <= a_length; i++) {
        int *before = rows[(i + 1) % 3], *above = rows[(i + 2) % 3], *row = rows[i % 3];
        row[0] = i;
        for (int j = 1; j <= b_length; j++) {
            row[j] = above[j - 1] + (a[i - 1] != b[j - 1]);
            row[j] = (int)smaller(row[j], smaller(above[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = (int)smaller(row[j], before[j - 2] + 1);
        }
    }
    return rows[a_length % 3][b_length];
}

const char *strmap_nearest(const StrMap *map, const char *name) {
    size_t length = strlen(name);
    if (length > LONGEST_SUGGESTION) return NULL;
    const char *nearest = NULL;
    int best = (length < 3 ? 1 : (int)length / 3) + 1;   // about one edit in three letters still is a typing mistake
    for (StrEntry *entry = map->entries; entry; entry = entry->hh.next) {
        size_t key_length = strlen(entry->key);
        if (key_length > LONGEST_SUGGESTION || key_length == 0) continue;
        if (strcasecmp(name, entry->key) == 0) return entry->key;
        int distance = edit_distance(name, (int)length, entry->key, (int)key_length);
        if (distance < best) best = distance, nearest = entry->key;
    }
    // Sharing no letter at all is no likeness: "x" does not suggest "y".
    return nearest && best >= (int)length ? NULL : nearest;
}
