// Gathers by a table that the kernel makes itself, in shared memory or registers:
//
//     parallel (i in 64) {
//         let s = sorted[block * 64 + i];
//         row[i] = s < total ? s / top : -1;
//     }
//     pipelined (k in steps, stages = 3) {
//         parallel (i in 64, j in 64) As[i, j] = x[row[i], k * 64 + j];
//
// Its copies cannot start before the table is there, and other warps than those that made it cannot start them at all. So the
// gather computes the element of the table by itself, x[s < total ? s / top : -1, ..], where s is sorted[..]; hoist-indices
// then keeps it in registers.
//
// One loop or copy writes the table, all of it, before the gather in a block around it; what it writes depends on tensors that nothing
// writes, and on no `var`. Other statements go on reading the table.
#include "passes/analysis/tile_loop.h"
#include "passes/analysis/util.h"
#include "passes/tile/tile.h"
#include "support/map.h"

typedef struct Table {
    const Buf *buf;
    TileLoop loop;   // that writes it
    Expr *value;     // over the loop's iterators
} Table;

typedef struct Tables {
    Arena *arena;
    Func *kernel;
    VEC(Table) known;   // where the walk is
    Map *read;          // tables that some gather has computed
    bool pipelined, changed;
} Tables;

// ---- tables ----

static bool has_one_writer(const Tables *t, const Buf *buf) {
    int writes = 0;
    FOR_EACH_STMT (stmt, &t->kernel->body) {
        if (stmt->kind == STMT_DECL && stmt->decl->alias_of == buf) return false;
        Stmt alone = stmt_alone(stmt);
        FOR_EACH_EFFECT (effect, t->arena, &alone) writes += effect->buf == buf && effect->access != ACCESS_READ;
    }
    return writes == 1;
}

static bool covers(const TileLoop *loop, const Stmt *store) {
    const Buf *buf = store->store.buf;
    bool all = loop->rank == buf->rank && !loop->clip;
    for (int d = 0; all && d < buf->rank; d++)
        all = expr_is_var(store->store.indices[d], loop->iters[d]) && loop->extents[d] == buf_extent(buf, d);
    return all;
}

static bool changes(const Expr *expr, const void *what) {
    return is_computed(expr, what) || (expr->kind == EXPR_VAR && expr->var->kind == VAR_MUTABLE);
}

static void note_tables(Tables *t, Stmt *stmt) {
    TileLoop loop;
    Subst *lets = subst_new(t->arena);
    if (!tile_loop_of(t->arena, stmt, &loop) || (stmt->kind == STMT_CALL && stmt->call.is_async)) return;
    FOR_EACH_ITEM (each, &loop.body) {
        if (each->kind == STMT_LET) {
            subst_var(lets, each->let.var, subst_expr(lets, each->let.value));
            continue;
        }
        if (each->kind != STMT_STORE) return;
        const Buf *buf = each->store.buf;
        bool index = buf->scope != SCOPE_GLOBAL && !type_is_float(buf->type) && !buf->alias_of;
        Expr *value = subst_expr(lets, each->store.value);
        if (!index || !covers(&loop, each) || any_expr(value, changes, NULL) || !has_one_writer(t, buf)) continue;
        vec_push(t->arena, &t->known, ((Table){buf, loop, e_cast(t->arena, buf->type, value)}));
    }
}

// ---- gathers ----

static Expr *read_table(Mapper *mapper, Expr *expr) {
    const Tables *t = mapper->user;
    if (expr->kind != EXPR_LOAD) return expr;
    VEC_EACH (const Table, table, &t->known) {
        if (table->buf != expr->load.buf) continue;
        Subst *at = subst_new(t->arena);
        for (int d = 0; d < expr->load.count; d++) subst_var(at, table->loop.iters[d], expr->load.indices[d]);
        return subst_expr(at, table->value);
    }
    return expr;
}

static void read_tables(Tables *t, Stmt *loop) {
    TileLoop moved = {.body = loop->loop.body};
    if (!tile_move(t->arena, &moved)) return;
    Mapper mapper = {.arena = t->arena, .expr = read_table, .user = t};
    Stmt *store = clone_stmt(t->arena, subst_new(t->arena), moved.body.items[0]);
    store->store.value = map_expr(&mapper, store->store.value);
    if (expr_equal(store->store.value, moved.body.items[0]->store.value)) return;
    if (any_expr(store->store.value, is_computed, NULL) || indices_nest(store)) return;
    FOR_EACH_EFFECT (effect, t->arena, moved.body.items[0]) map_put(t->read, effect->buf, effect->buf);
    loop->loop.body = (Block){0};
    block_push(t->arena, &loop->loop.body, store);
    t->changed = true;
}

static void walk(Tables *t, Block *block) {
    int mark = t->known.count;
    FOR_EACH_ITEM (stmt, block) {
        bool gathers = is_loop(stmt, LOOP_PARALLEL);
        if (gathers && t->pipelined) read_tables(t, stmt);
        if (gathers || stmt->kind == STMT_CALL) {
            note_tables(t, stmt);
            continue;
        }
        bool outer = t->pipelined;
        t->pipelined |= is_loop(stmt, LOOP_PIPELINED);
        FOR_EACH_BODY (body, stmt) walk(t, body);
        t->pipelined = outer;
    }
    t->known.count = mark;
}

// ---- what is left of the tables ----

static bool is_read(const Tables *t, const Buf *buf) {
    FOR_EACH_STMT (stmt, &t->kernel->body) {
        Stmt alone = stmt_alone(stmt);
        FOR_EACH_EFFECT (effect, t->arena, &alone)
            if (effect->buf == buf && effect->access != ACCESS_WRITE) return true;
    }
    return false;
}

static bool only_lets(const Block *block) {
    FOR_EACH_ITEM (stmt, block)
        if (stmt->kind != STMT_LET) return false;
    return true;
}

// The stores and copies, and loops without others.
static void drop_table(StmtMapper *mapper, Stmt *stmt, Block *out) {
    const Tables *t = mapper->user;
    const Buf *buf = is_call(stmt, OP_COPY)     ? copy_of(stmt).dst->buf
                     : stmt->kind == STMT_STORE ? stmt->store.buf
                                                : NULL;
    bool store = buf && buf->scope != SCOPE_GLOBAL && map_has(t->read, buf) && !is_read(t, buf);
    bool empty = is_loop(stmt, LOOP_PARALLEL) && only_lets(&stmt->loop.body);
    if (!store && !empty) block_push(mapper->arena, out, stmt);
}

bool read_side_tables(Arena *arena, Func *kernel) {
    Tables tables = {.arena = arena, .kernel = kernel, .read = map_new(arena)};
    walk(&tables, &kernel->body);
    if (tables.changed)
        rewrite_block(&(StmtMapper){.arena = arena, .stmt = drop_table, .user = &tables}, &kernel->body);
    return tables.changed;
}
