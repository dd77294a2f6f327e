// What a `parallel` loop stores, seen through its names: for passes that give such loops another form.
#pragma once
#include "ir/facts.h"
#include "ir/rewrite.h"

typedef struct Element {
    Buf *buf;
    int count;
    Expr **indices;
} Element;

typedef struct Store {
    Element to;
    Expr *value, *guard;   // NULL: always
} Store;

typedef struct Stores {
    Arena *arena;
    Subst *lets;   // names, and the value that each `var` has so far
    Block names;   // the lets, in order
    bool vars;     // there are some: values are seen through them already, and `names` does not suffice
    VEC(Store) all;
} Stores;

// All stores of the block, of one element the last one; false: it has other effects, or a store that is in another's way. (Variables
// of the block, which have no arithmetic that rounds: as one expression that might be contracted.)
bool collect_stores(Stores *stores, const Block *block);
void look_through(const Stores *stores, Store *store);   // names become their values
bool are_independent(const Stores *stores);              // they read nothing that one of them writes
// The one store of the `parallel` loop, of all of a tile that the compiler may leave out, element by element; false: it does something else.
bool tile_store(Arena *arena, const Stmt *loop, Store *store);
// The load of a value that is an element, or 0, without arithmetic; NULL: it is something else.
const Expr *moved_element(const Expr *value);
// A loop like it that does nothing but to store that to another tile.
Stmt *loop_storing(Arena *arena, const Stmt *loop, const Store *store, Buf *to);
// The last statement of a block whose others are names; NULL.
Stmt *last_behind_names(const Block *block);
// The loop with the iterators of `for` loops that are all that it does for its own; the loop itself where there are none.
Stmt *flattened(Arena *arena, Stmt *loop);

// normal_gathers.c: a `for` loop that copies rows of a tensor to rows of a tile, as a loop over all of their elements; NULL: it is none.
Stmt *rows_as_loop(Arena *arena, const Stmt *rows);
// The stores to shared tiles as a loop each, with iterators in the order of the tile's dims. False: there is nothing
// to do, or a store that is no gather.
bool normal_gathers(Arena *arena, const Facts *facts, const Stmt *written, const Stmt *loop, const Stores *stores,
                    Block *out);
