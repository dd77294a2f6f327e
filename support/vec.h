// Growing arrays in an arena.
//
//     VEC(Stmt *) stmts = {0};
//     vec_push(arena, &stmts, stmt);
//     for (int i = 0; i < stmts.count; i++) use(stmts.items[i]);
//     VEC_EACH_PTR(Stmt, stmt, &stmts) use(stmt);
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

// Loops over a vector that does not grow meanwhile. Of structures: VEC_EACH(Edge, edge, &edges) has an Edge *edge. Of
// pointers: VEC_EACH_PTR(Stmt, stmt, &stmts) has a Stmt *stmt.
#define VEC_END(vec) ((vec)->count ? (vec)->items + (vec)->count : (vec)->items)
#define VEC_EACH(Type, item, vec)                                                                                      \
    for (Type *item = (vec)->items, *item##_end = VEC_END(vec); item != item##_end; item++)
#define VEC_EACH_PTR(Type, item, vec)                                                                                  \
    for (Type * item, **item##_at = (vec)->items, **item##_end = VEC_END(vec);                                         \
         item##_at != item##_end && (item = *item##_at, 1); item##_at++)

#define vec_pop(vec) ((vec)->items[--(vec)->count])
#define vec_last(vec) ((vec)->items[(vec)->count - 1])
#define COUNT_OF(array) ((int)(sizeof(array) / sizeof(array)[0]))
