// vectorize: a `vectorized` loop becomes wide accesses and arithmetic on local arrays.
//
//     vectorized (e in 8) x_v[e] = x[i, j + e];           vload(x_v[0], x[i, j], 8);
//
//     vectorized (e in 8) y[j + e] = f(x[j + e], s);      local x_v: f32[8], y_v: f32[8];
//                                                         vload(x_v[0], x[j], 4); vload(x_v[4], x[j + 4], 4);
//                                                         unroll (e in 8) y_v[e] = f(x_v[e], s);
//                                                         vstore(y[j], y_v[0], 4); vstore(y[j + 4], y_v[4], 4);
//
//     vectorized (e in 4) atomic_add(y[j + e], a[e]);     vatomic_add(y[j], a[0], 4);
//
// The author of `vectorized` guarantees that n elements may be accessed together: aligned, and all inside. If an access
// moves with e by other steps than one, the loop becomes an `unroll` loop, and nothing else. The same if the loop reads
// elements that it writes elsewhere, since all loads come first.
#include "passes/analysis/tile_loop.h"
#include "passes/analysis/util.h"
#include "support/numbers.h"

typedef struct Wide {
    TileAccess access;
    Buf *local;   // holds the n elements
} Wide;

typedef struct VectorLoop {
    Arena *arena;
    const Target *target;
    Stmt *stmt;
    Var *e;
    int64_t n;
    VEC(Wide) wides;   // memory accesses with unit stride
} VectorLoop;

// ---- legality ----

static bool adds_element(const Stmt *stmt) {
    return is_call(stmt, OP_ATOMIC_ADD) && ARG(stmt, ATOMIC_ADD, x).region->buf->scope == SCOPE_GLOBAL;
}

static Expr *stored_value(const Stmt *store) {
    return store->kind == STMT_STORE ? store->store.value : ARG(store, ATOMIC_ADD, v).value;
}

static bool only_stores(const Block *body) {
    FOR_EACH_ITEM (stmt, body)
        if (stmt->kind != STMT_STORE && !adds_element(stmt)) return false;
    return body->count > 0;
}

static bool same_place(const TileAccess *a, const TileAccess *b) {
    for (int d = 0; d < a->count; d++)
        if (!expr_equal(a->indices[d], b->indices[d])) return false;
    return a->count == b->count;
}

// A store and another access of its buffer: legal only at exactly the same element.
static bool hazards(const TileAccessVec *accesses) {
    VEC_EACH (const TileAccess, x, accesses)
        VEC_EACH (const TileAccess, y, accesses)
            if (x != y && x->is_store && is_memory(x->buf) && x->buf == y->buf && !same_place(x, y)) return true;
    return false;
}

// Elements of one access, up to the loop's count.
static int64_t width_of(const VectorLoop *v, const TileAccess *access) {
    const Buf *buf = access->buf;
    int64_t most =
        access->adds ? red_elements(v->target, type_text(buf->type)) : v->target->vector_bytes / type_bytes(buf->type);
    return most < v->n ? most : v->n;
}

static bool find_wides(VectorLoop *v) {
    TileLoop loop = {.rank = 1, .iters = {v->e}, .extents = {v->n}, .body = v->stmt->loop.body};
    TileAccessVec accesses = {0};
    tile_accesses(v->arena, &loop, &accesses);
    if (hazards(&accesses)) return false;
    VEC_EACH (const TileAccess, access, &accesses) {
        if (!is_memory(access->buf)) continue;
        StrideKind stride = access_stride(access, v->e);
        bool always = !access->conditional && !access->condition;
        if (access->is_atomic && (!access->adds || width_of(v, access) < 2)) return false;
        if (!always || stride == STRIDE_OTHER) return false;
        if (stride == STRIDE_NONE && access->is_store) return false;
        if (stride == STRIDE_UNIT) vec_push(v->arena, &v->wides, ((Wide){*access, NULL}));
    }
    return true;
}

static bool vector_loop_of(Arena *arena, const Target *target, Stmt *stmt, VectorLoop *v) {
    const Iter *iter = &stmt->loop.iters[0];
    *v = (VectorLoop){.arena = arena, .target = target, .stmt = stmt, .e = iter->var, .n = iter_count(iter)};
    if (stmt->loop.count != 1 || !expr_is_int(iter->begin, 0) || !expr_is_int(iter->step, 1)) return false;
    return is_power_of_two(v->n) && v->n > 1 && only_stores(&stmt->loop.body) && find_wides(v);
}

// ---- accesses ----

static Arg place(VectorLoop *v, Buf *buf, int count, Expr *const *indices, int64_t element) {
    Expr *at[LAYOUT_MAX_RANK];
    EXPECT(arena_failure(v->arena), count >= 1 && count <= LAYOUT_MAX_RANK, "%d indices of '%s'", count, buf->name);
    Subst *first = subst_new(v->arena);
    subst_var(first, v->e, e_int(v->arena, 0));
    for (int d = 0; d < count; d++) at[d] = subst_expr(first, indices[d]);
    at[count - 1] = e_plus(v->arena, at[count - 1], element);
    return arg_region(region_element(v->arena, buf, count, at));
}

// Moves the n elements between memory and local[first ...], by the widest accesses of the target.
static void move_wide(VectorLoop *v, const TileAccess *access, Buf *local, Expr *first, Block *out) {
    int64_t width = width_of(v, access);
    OpId op = access->adds ? OP_VATOMIC_ADD : access->is_store ? OP_VSTORE : OP_VLOAD;
    EXPECT(arena_failure(v->arena), width > 0 && v->n % width == 0, "%lld elements by %lld", (long long)v->n,
           (long long)width);
    for (int64_t at = 0; at < v->n; at += width) {
        Arg memory = place(v, access->buf, access->count, access->indices, at);
        Arg registers = place(v, local, 1, &first, at);
        BLOCK_CALL(v->arena, out, v->stmt->loc, op, access->is_store ? memory : registers,
                   access->is_store ? registers : memory, arg_int(v->arena, width));
    }
}

// ---- the whole loop is one move ----

static bool is_local_run(const VectorLoop *v, const Buf *buf, int count, Expr *const *indices) {
    int64_t factor;
    return buf->scope == SCOPE_LOCAL && count == 1 && linear_in(indices[0], v->e, &factor) && factor == 1;
}

static bool push_move(VectorLoop *v, Block *out) {
    const Stmt *store = v->stmt->loop.body.items[0];
    const Expr *value = stored_value(store);
    if (v->stmt->loop.body.count != 1 || v->wides.count != 1 || value->kind != EXPR_LOAD) return false;
    if (value->type != v->wides.items[0].access.buf->type) return false;
    bool stores = v->wides.items[0].access.is_store;
    Buf *local = stores ? value->load.buf : store->store.buf;
    int count = stores ? value->load.count : store->store.count;
    Expr **indices = stores ? value->load.indices : store->store.indices;
    if (!is_local_run(v, local, count, indices)) return false;
    move_wide(v, &v->wides.items[0].access, local, indices[0], out);
    return true;
}

// ---- moves around arithmetic ----

static const Wide *wide_of(const VectorLoop *v, const Expr *load, const Stmt *store) {
    VEC_EACH (const Wide, wide, &v->wides)
        if (load ? wide->access.load == load : wide->access.store == store) return wide;
    return NULL;
}

static Expr *local_load(Mapper *mapper, Expr *expr) {
    VectorLoop *v = mapper->user;
    const Wide *wide = expr->kind == EXPR_LOAD ? wide_of(v, expr, NULL) : NULL;
    return wide ? e_load1(v->arena, wide->local, e_var(v->arena, v->e)) : expr;
}

// All loads, or all stores.
static void move_all(VectorLoop *v, bool stores, Block *out) {
    VEC_EACH (const Wide, wide, &v->wides)
        if (wide->access.is_store == stores) move_wide(v, &wide->access, wide->local, e_int(v->arena, 0), out);
}

static void push_arithmetic(VectorLoop *v, Block *out) {
    Arena *arena = v->arena;
    VEC_EACH (Wide, wide, &v->wides) {
        const char *name = arena_printf(arena, "%s_v", wide->access.buf->name);
        wide->local = block_local(arena, out, name, wide->access.buf->type, v->n, v->stmt->loc);
    }
    move_all(v, false, out);
    Mapper mapper = {.arena = arena, .expr = local_load, .user = v};
    FOR_EACH_STMT_MUT (store, &v->stmt->loop.body) {
        const Wide *wide = wide_of(v, NULL, store);
        Expr *value = map_expr(&mapper, stored_value(store));
        if (!wide) store->store.value = value;
        else *store = *s_store1(arena, wide->local, e_var(arena, v->e), e_cast(arena, wide->local->type, value));
    }
    v->stmt->loop.kind = LOOP_UNROLL;
    block_push(arena, out, v->stmt);
    move_all(v, true, out);
}

static void vectorize_stmt(StmtMapper *mapper, Stmt *stmt, Block *out) {
    VectorLoop v;
    bool vectorized = is_loop(stmt, LOOP_VECTORIZED);
    mapper->changed |= vectorized;
    if (!vectorized || !vector_loop_of(mapper->arena, mapper->user, stmt, &v) || v.wides.count == 0) {
        if (vectorized) stmt->loop.kind = LOOP_UNROLL;
        block_push(mapper->arena, out, stmt);
    } else if (!push_move(&v, out)) {
        push_arithmetic(&v, out);
    }
}

bool pass_vectorize(PassContext *context, Func *kernel) {
    StmtMapper mapper = {.arena = context->arena, .stmt = vectorize_stmt, .user = (Target *)context->target};
    return rewrite_block(&mapper, &kernel->body);
}
