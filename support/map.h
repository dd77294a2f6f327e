// Hash maps in an arena: pointer keys and string keys (over uthash, whose memory comes from the arena).
#pragma once
#include "support/arena.h"
#include <stdbool.h>

typedef struct Map Map;   // pointer -> pointer

Map *map_new(Arena *arena);
void map_put(Map *map, const void *key, void *value);   // replaces
void *map_get(const Map *map, const void *key);         // NULL when absent
bool map_has(const Map *map, const void *key);
void map_remove(Map *map, const void *key);
int map_count(const Map *map);

typedef struct StrMap StrMap;   // string -> pointer; keys are copied

StrMap *strmap_new(Arena *arena);
void strmap_put(StrMap *map, const char *key, void *value);
void *strmap_get(const StrMap *map, const char *key);
bool strmap_has(const StrMap *map, const char *key);
// Calls `visit` for every entry in order of insertion.
void strmap_each(const StrMap *map, void (*visit)(const char *key, void *value, void *user), void *user);
// The key nearest to `name` by edit distance (Damerau-Levenshtein), or NULL when none is near enough to suggest.
const char *strmap_nearest(const StrMap *map, const char *name);
