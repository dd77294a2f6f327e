// Constructors of variables, buffers, operands, statements and blocks; those of expressions are in build.c.
#include "ir/build.h"
#include "support/numbers.h"
#include <string.h>

// ---- variables, buffers, regions, operands ----
Var *var_new(Arena *arena, const char *name, VarKind kind, Type type, Span loc) {
    Var *var = NEW(arena, Var);
    *var = (Var){.name = name, .kind = kind, .type = type, .loc = loc};
    return var;
}

Buf *buf_new(Arena *arena, const char *name, Scope scope, Type type, int rank, Expr *const *shape, Span loc) {
    Buf *buf = NEW(arena, Buf);
    *buf = (Buf){.name = name, .scope = scope, .type = type, .rank = rank, .offset = -1, .loc = loc};
    buf->shape = NEW_ARRAY(arena, Expr *, rank);   // shape NULL: the caller fills it in
    for (int i = 0; shape && i < rank; i++) buf->shape[i] = shape[i];
    return buf;
}

Buf *buf_new_const(Arena *arena, const char *name, Scope scope, Type type, int rank, const int64_t *shape, Span loc) {
    Expr **extents = NEW_ARRAY(arena, Expr *, rank);
    for (int i = 0; i < rank; i++) extents[i] = e_int(arena, shape[i]);
    return buf_new(arena, name, scope, type, rank, extents, loc);
}

Buf *buf_viewed(const Buf *buf) {
    return buf->im2col ? buf->alias_of : (Buf *)buf;
}

const char *buf_source_name(const Buf *buf) {
    while (buf->made_of) buf = buf->made_of;
    return buf->name;
}

const Buf *buf_root(const Buf *buf) {
    while (buf->alias_of) buf = buf->alias_of;
    return buf;
}

bool buf_is_constant(const Buf *buf) {
    return buf->scope == SCOPE_GLOBAL && buf->is_param && buf->mode == MODE_IN && !buf->alias_of;
}

int64_t buf_extent(const Buf *buf, int dim) {
    int64_t extent;
    return expr_const(buf->shape[dim], &extent) ? extent : -1;
}

int64_t buf_elements(const Buf *buf) {
    int64_t elements = 1;
    for (int d = 0; d < buf->rank; d++) elements *= buf_extent(buf, d);
    return elements;
}

int buf_slot_rank(const Buf *buf) {
    return buf->rank - buf->stage_dims;
}

int64_t buf_slots(const Buf *buf) {
    int64_t slots = 1;
    for (int d = 0; d < buf->stage_dims; d++) slots *= buf_extent(buf, d);
    return slots;
}

int64_t buf_slot_bytes(const Buf *buf) {
    int64_t bits = type_bits(buf->type);
    for (int d = buf->stage_dims; d < buf->rank; d++) bits *= buf_extent(buf, d);
    return bits / 8;
}

// Dims before the layout's are those of slots; a lowered buffer's shape is the image already.
static int64_t space(const Buf *buf, int from) {
    bool image = buf->layout && !buf->lowered;
    int64_t elements = image ? layout_size_out(buf->layout) : 1;
    for (int d = from; d < (image ? buf->rank - buf->layout->rank_in : buf->rank); d++) elements *= buf_extent(buf, d);
    return elements * type_bytes(buf->type);
}

int64_t buf_slot_space(const Buf *buf) {
    return space(buf, buf->stage_dims);
}

int64_t buf_space(const Buf *buf) {
    return space(buf, 0);
}

int64_t buf_outermost(const Buf *buf) {
    bool image = buf->layout && !buf->lowered && buf->layout->rank_in == buf->rank;
    return buf->rank == 0 ? 1 : image ? buf->layout->out_shape[0] : buf_extent(buf, 0);
}

int64_t buf_outermost_aligned(const Buf *buf, int64_t align) {
    int64_t outermost = buf_outermost(buf), each = buf_space(buf) / outermost;
    while (each % 2 == 0 && align > 1) each /= 2, align /= 2;
    return round_up(outermost, align);
}

Region *region_new(Arena *arena, Buf *buf, const RegionDim *dims, bool transposed, Span loc) {
    Region *region = NEW(arena, Region);
    *region = (Region){.buf = buf, .count = buf->rank, .transposed = transposed, .loc = loc};
    region->dims = arena_copy(arena, dims, sizeof *dims * (size_t)buf->rank);
    for (int i = 0; i < region->count; i++) {
        RegionDim *dim = &region->dims[i];
        if (!dim->tile && dim->extent) expr_const(dim->extent, &dim->tile);
    }
    return region;
}

void place_transposition(Region *src, Region *dst) {
    bool exchanges = src->transposed != dst->transposed;
    bool to_memory = src->buf->scope == SCOPE_FRAGMENT && dst->buf->scope != SCOPE_FRAGMENT;
    src->transposed = exchanges && !to_memory;
    dst->transposed = exchanges && to_memory;
}

Region *region_whole(Arena *arena, Buf *buf) {
    RegionDim dims[LAYOUT_MAX_RANK] = {0};
    for (int i = 0; i < buf->rank; i++)
        dims[i] = (RegionDim){.start = e_int(arena, 0), .extent = buf->shape[i], .tile = buf_extent(buf, i)};
    return region_new(arena, buf, dims, false, buf->loc);
}

int64_t region_bytes(const Region *region) {
    int64_t bits = type_bits(region->buf->type);
    for (int d = 0, rank = region_rank(region); d < rank; d++) bits *= region_extent(region, d);
    return bits / 8;
}

Region *region_element(Arena *arena, Buf *buf, int count, Expr *const *indices) {
    RegionDim dims[LAYOUT_MAX_RANK] = {0};
    for (int i = 0; i < count; i++) dims[i] = (RegionDim){.start = indices[i], .tile = 1};
    return region_new(arena, buf, dims, false, buf->loc);
}

Arg arg_value(Expr *value) {
    return (Arg){.value = value};
}

Arg arg_region(Region *region) {
    return (Arg){.region = region};
}

Arg arg_name(const char *name) {
    return (Arg){.name = name};
}

Arg arg_int(Arena *arena, int64_t value) {
    return arg_value(e_int(arena, value));
}

Arg arg_element(Arena *arena, Buf *buf, Expr *index) {
    return arg_region(region_element(arena, buf, 1, &index));
}

// ---- statements ----
Stmt *stmt_new(Arena *arena, StmtKind kind, Span loc) {
    Stmt *stmt = NEW(arena, Stmt);
    stmt->kind = kind;
    stmt->loc = loc;
    return stmt;
}

static Stmt *bind(Arena *arena, StmtKind kind, Var *var, Expr *value) {
    Stmt *stmt = stmt_new(arena, kind, var->loc);
    stmt->let.var = var;
    stmt->let.value = value;
    return stmt;
}

Stmt *s_let(Arena *arena, Var *var, Expr *value) {
    return bind(arena, STMT_LET, var, value);
}

Stmt *s_var(Arena *arena, Var *var, Expr *value) {
    return bind(arena, STMT_VAR, var, value);
}

Stmt *s_assign(Arena *arena, Var *var, Expr *value) {
    return bind(arena, STMT_ASSIGN, var, value);
}

Stmt *s_store(Arena *arena, Buf *buf, int count, Expr *const *indices, Expr *value) {
    Stmt *stmt = stmt_new(arena, STMT_STORE, value->loc);
    stmt->store.buf = buf;
    stmt->store.count = count;
    stmt->store.indices = arena_copy(arena, indices, sizeof *indices * (size_t)count);
    stmt->store.value = value;
    return stmt;
}

Stmt *s_store1(Arena *arena, Buf *buf, Expr *index, Expr *value) {
    return s_store(arena, buf, 1, &index, value);
}

Stmt *s_store_at(Arena *arena, const Region *element, Expr *value) {
    Expr *indices[LAYOUT_MAX_RANK];
    for (int d = 0; d < element->count; d++) indices[d] = element->dims[d].start;
    return s_store(arena, element->buf, element->count, indices, value);
}

Stmt *s_decl(Arena *arena, Buf *buf) {
    Stmt *stmt = stmt_new(arena, STMT_DECL, buf->loc);
    stmt->decl = buf;
    return stmt;
}

Stmt *s_for(Arena *arena, LoopKind kind, Var *var, Expr *begin, Expr *end) {
    Stmt *stmt = stmt_new(arena, STMT_FOR, var->loc);
    stmt->loop.kind = kind;
    stmt->loop.count = 1;
    stmt->loop.iters = NEW(arena, Iter);
    stmt->loop.iters[0] = (Iter){.var = var, .begin = begin, .end = end, .step = e_int(arena, 1)};
    return stmt;
}

Iter iter_new(Arena *arena, Var *var, Expr *end) {
    return (Iter){.var = var, .begin = e_int(arena, 0), .end = end, .step = e_int(arena, 1)};
}

void iter_insert(Arena *arena, Iter **iters, int *count, int at, Iter iter) {
    Iter *all = NEW_ARRAY(arena, Iter, *count + 1);
    EXPECT(arena_failure(arena), at <= *count, "iterator %d of %d", at, *count);
    for (int i = 0; i < *count; i++) all[i < at ? i : i + 1] = (*iters)[i];
    all[at] = iter;
    *iters = all;
    ++*count;
}

Expr *grid_tiles(Arena *arena, const Stmt *grid) {
    Expr *tiles = e_int(arena, 1);
    for (int i = 0; i < grid->grid.count; i++) tiles = e_mul(arena, tiles, grid->grid.iters[i].end);
    return tiles;
}

Stmt *s_if(Arena *arena, Expr *condition) {
    Stmt *stmt = stmt_new(arena, STMT_IF, condition->loc);
    stmt->if_.condition = condition;
    return stmt;
}

Stmt *s_if_only(Arena *arena, Expr *condition, Stmt *only) {
    Stmt *stmt = s_if(arena, condition);
    stmt->loc = only->loc;
    block_push(arena, &stmt->if_.then, only);
    return stmt;
}

Stmt *s_assume(Arena *arena, Expr *condition, Span loc) {
    Stmt *stmt = stmt_new(arena, STMT_ASSUME, loc);
    stmt->assume = condition;
    return stmt;
}

Stmt *s_block(Arena *arena) {
    return stmt_new(arena, STMT_BLOCK, (Span){0});
}

Stmt *s_call(Arena *arena, OpId op, int count, const Arg *args) {
    Stmt *stmt = stmt_new(arena, STMT_CALL, (Span){0});
    stmt->call.op = op;
    stmt->call.count = count;
    stmt->call.args = arena_copy(arena, args, sizeof *args * (size_t)count);
    return stmt;
}

Stmt *s_copy(Arena *arena, Region *src, Region *dst, Span loc) {
    Stmt *copy = s_call(arena, OP_COPY, 2, (Arg[]){arg_region(src), arg_region(dst)});
    copy->loc = loc;
    return copy;
}

// ---- blocks ----
void block_push(Arena *arena, Block *block, Stmt *stmt) {
    vec_push(arena, block, stmt);
}

void block_insert(Arena *arena, Block *block, int at, Stmt *stmt) {
    vec_push(arena, block, stmt);
    memmove(&block->items[at + 1], &block->items[at], sizeof(Stmt *) * (size_t)(block->count - 1 - at));
    block->items[at] = stmt;
}

void block_remove(Block *block, int at) {
    block->count--;
    memmove(&block->items[at], &block->items[at + 1], sizeof(Stmt *) * (size_t)(block->count - at));
}

void block_append(Arena *arena, Block *to, const Block *from) {
    for (int i = 0, count = from->count; i < count; i++) vec_push(arena, to, from->items[i]);
}

void call_set_arg(Arena *arena, Stmt *call, int operand, Arg arg) {
    EXPECT(arena_failure(arena), op_operand(call->call.op, operand), "'%s' has no operand %d",
           op_info(call->call.op)->text, operand);
    if (operand >= call->call.count) {
        Arg *args = NEW_ARRAY(arena, Arg, operand + 1);
        for (int i = 0; i < call->call.count; i++) args[i] = call->call.args[i];
        call->call.args = args;
        call->call.count = operand + 1;
    }
    call->call.args[operand] = arg;
}

Stmt *block_call(Arena *arena, Block *block, Span loc, OpId op, int count, const Arg *args) {
    Stmt *call = s_call(arena, op, count, args);
    call->loc = loc;
    block_push(arena, block, call);
    return call;
}

Stmt *block_barrier(Arena *arena, Block *block, Span loc) {
    return BLOCK_CALL(arena, block, loc, OP_BARRIER, (Arg){0}, (Arg){0});
}

void block_publish_mbarriers(Arena *arena, Block *block, bool cluster, Span loc) {
    block_call(arena, block, loc, OP_FENCE_MBARRIER_INIT, 0, NULL);
    if (cluster) block_call(arena, block, loc, OP_CLUSTER_BARRIER, 0, NULL);
    else block_barrier(arena, block, loc);
}

Expr *block_let(Arena *arena, Block *block, const char *name, Expr *value, Span loc) {
    Var *var = var_new(arena, name, VAR_LET, value->type, loc);
    block_push(arena, block, s_let(arena, var, value));
    return e_var(arena, var);
}

Expr *block_name(Arena *arena, Block *block, const char *name, Expr *value, Span loc) {
    bool simple = value->kind == EXPR_VAR || value->kind == EXPR_INT;
    return simple ? value : block_let(arena, block, name, value, loc);
}

Buf *block_local(Arena *arena, Block *block, const char *name, Type type, int64_t count, Span loc) {
    Buf *local = buf_new_const(arena, name, SCOPE_LOCAL, type, 1, &count, loc);
    block_push(arena, block, s_decl(arena, local));
    return local;
}

void block_store1(Arena *arena, Block *block, Buf *buf, Expr *index, Expr *value) {
    block_push(arena, block, s_store1(arena, buf, index, value));
}

Block *block_nested(Arena *arena, Block *block, Span loc) {
    Stmt *nested = stmt_new(arena, STMT_BLOCK, loc);
    block_push(arena, block, nested);
    return &nested->block;
}

Block *block_if(Arena *arena, Block *block, Expr *condition) {
    if (!condition) return block;
    Stmt *only = s_if(arena, condition);
    block_push(arena, block, only);
    return &only->if_.then;
}
