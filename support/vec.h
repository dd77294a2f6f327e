// Growing arrays in an arena.
//
//     VEC(Stmt *) stmts = {0};
//     vec_push(arena, &stmts, stmt);
//     for (int i = 0; i < stmts.count; i++) use(stmts.items[i]);
#pragma once
#include "support/arena.h"

#define VEC(Type)                                                                                                      \
    struct {                                                                                                           \
        Type *items;                                                                                                   \
        int count, capacity;                                                                                           \
    }

#define vec_push(arena, vec, item)                                                                                     \
    do {                                                                                                               \
        if ((vec)->count == (vec)->capacity) {                                                                         \
            int grown_ = (vec)->capacity ? 2 * (vec)->capacity : 8;                                                    \
            (vec)->items = arena_grow((arena), (vec)->items, sizeof *(vec)->items * (size_t)(vec)->count,              \
                                      sizeof *(vec)->items * (size_t)grown_);                                          \
            (vec)->capacity = grown_;                                                                                  \
        }                                                                                                              \
        (vec)->items[(vec)->count++] = (item);                                                                         \
    } while (0)

#define vec_pop(vec) ((vec)->items[--(vec)->count])
#define vec_last(vec) ((vec)->items[(vec)->count - 1])
#define COUNT_OF(array) ((int)(sizeof(array) / sizeof(array)[0]))
