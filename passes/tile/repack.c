// repack: operands whose rows TMA cannot load are copied to workspace first.
//
// TMA loads rows that start at multiples of 16 bytes. Where a tensor has others, the threads of the fallback variant load element
// by element, and no wgmma is fed so. A copy of the operand, with rows padded by zeros to whole lines of the cache, costs its bytes read
// and written, and a launch; behind it the kernel with TMA and wgmma runs as ever. A large product is several times as fast.
//
//     kernel gemm(A: bf16[M, K], B: bf16[N, K], C: out bf16[M, N])
//
//     program gemm(A, B, C) cost (..) {                     a variant: `@fallback`, compared with the tiles without facts
//         scratch A_rows: bf16[M, ceildiv(K, 64) * 64], B_rows: bf16[N, ceildiv(K, 64) * 64];
//         gemm__repack(A, A_rows);                          x: bf16[R, W], y: out bf16[R, P]: y[r, w] = w < W ? x[r, w] : 0
//         gemm__repack(B, B_rows);
//         gemm__rows(A_rows, B_rows, C, K);
//     }
//     kernel gemm__rows(A_rows: bf16[M, A_width], B_rows: bf16[N, B_width], C: out bf16[M, N], K: i64)      of some tiles,
//                                                                                                    compared as those of gemm
//
// The last kernel is the tile's, but the last extents of the operands are dims of their own; what was known by those extents alone
// becomes a scalar. Elements beyond a row's end are zeros in the copy, as they are beyond a tensor's end, so a tile has the
// same elements as before: the kernel means the same whatever it does with them. Nothing is known of its other tensors: rows of
// results start anywhere (@via(vector_store)).
//
// PackedVec with one pitch are copied or not together. There are at most two pitches, so up to four programs; the one that copies
// nothing serves where only the results have unaligned rows.
#include "ir/build.h"
#include "ir/query.h"
#include "ir/rewrite.h"
#include "ir/schedule.h"
#include "passes/lower/lower.h"
#include "passes/select/tma.h"
#include "passes/select/tma_reduce.h"
#include "passes/tile/tile.h"
#include <string.h>

enum { MOST_PACKED = 4 };

typedef struct Packed {
    int param;
    Buf *buf;
    int pitch;       // of the different ones, the number of its own
    int iter;        // of the grid, which chooses its tiles
    int64_t bytes;   // of its tiles, for each step
} Packed;

typedef struct PackedVec {
    int count, pitches;
    Packed items[MOST_PACKED];
} PackedVec;

static Packed *operand_of(PackedVec *operands, const Buf *buf) {
    for (int i = 0; i < operands->count; i++)
        if (operands->items[i].buf == buf) return &operands->items[i];
    return NULL;
}

static bool same_pitch(const Buf *a, const Buf *b) {
    return expr_equal(a->shape[1], b->shape[1]);
}

// A tensor with rows of elements, of an extent with a name.
static bool has_rows(const Buf *buf) {
    return buf->is_param && buf->mode == MODE_IN && buf->rank == 2 && !buf->strides && !buf->leading && !buf->im2col &&
           !buf->alias_of && type_bits(buf->type) % 8 == 0 && buf->shape[1]->kind == EXPR_VAR;
}

// The variables that depend on a name of the grid: the name, and lets of it.
static Map *vars_of(Arena *arena, const Func *kernel, int iter) {
    Map *vars = map_new(arena);
    Var *name = func_grid(kernel)->grid.iters[iter].var;
    map_put(vars, name, name);
    FOR_EACH_STMT (stmt, &kernel->body)
        if (stmt->kind == STMT_LET && expr_uses_any(stmt->let.value, vars)) map_put(vars, stmt->let.var, name);
    return vars;
}

static bool begins_at(const Region *region, const Map *vars) {
    bool uses = false;
    for (int d = 0; d < region->count; d++) uses |= expr_uses_any(region->dims[d].start, vars);
    return uses;
}

// The name of the grid that chooses the tiles; -1: both or neither.
static int chooser_of(const Region *from, Map *const vars[2]) {
    bool first = begins_at(from, vars[0]), second = begins_at(from, vars[1]);
    return first == second ? -1 : second;
}

static bool add_operand(PackedVec *operands, const Func *kernel, const Stmt *copy, Map *const vars[2]) {
    const Region *from = copy_of(copy).src;
    Packed *known = operand_of(operands, from->buf);
    int iter = chooser_of(from, vars), pitch = operands->pitches;
    if (known) known->bytes += region_bytes(copy_of(copy).dst);
    if (known) return known->iter == iter;
    if (iter < 0 || operands->count == MOST_PACKED || !has_rows(from->buf)) return false;
    Packed operand = {.buf = from->buf, .iter = iter, .bytes = region_bytes(copy_of(copy).dst)};
    for (int i = operands->count - 1; i >= 0; i--)
        if (same_pitch(operands->items[i].buf, from->buf)) pitch = operands->items[i].pitch;
    operand.pitch = pitch;
    if (pitch == operands->pitches) operands->pitches++;
    while (kernel->params.items[operand.param].buf != from->buf) operand.param++;
    operands->items[operands->count++] = operand;
    return operands->pitches <= MOST_REPACKED_PITCHES;
}

// Whether it reads tiles of other tensors: a thread would have their elements in registers, one by one, besides its results.
static bool reads_others(PackedVec *operands, const Func *kernel) {
    VEC_EACH (const Param, param, &kernel->params) {
        const Buf *buf = param->buf;
        if (buf && buf->rank > 1 && buf->mode != MODE_OUT && !operand_of(operands, buf)) return true;
    }
    return false;
}

static bool add_copies(PackedVec *operands, const Func *kernel, const Buf *of, Map *const vars[2]) {
    FOR_EACH_STMT (stmt, &kernel->body) {
        if (!is_global_to_shared_copy(stmt) || copy_of(stmt).src->buf != of) continue;
        if (!add_operand(operands, kernel, stmt, vars)) return false;
    }
    return true;
}

// All that the kernel copies to shared memory, in the order of its parameters. False: it is not of this form.
static bool find_operands(Arena *arena, const Target *target, const Func *kernel, PackedVec *operands) {
    const Stmt *grid = func_grid(kernel);
    *operands = (PackedVec){0};
    if (!grid || kernel->stage != STAGE_TILE || kernel->when || grid->grid.count != 2) return false;
    if (func_cluster(kernel) > 1 || grid_claim(grid).kind == CLAIM_DYNAMIC) return false;
    Map *const vars[] = {vars_of(arena, kernel, 0), vars_of(arena, kernel, 1)};
    FOR_EACH_STMT (stmt, &kernel->body) {
        if (is_addition(stmt) || is_shared_to_global_copy(stmt)) return false;
        if (is_global_to_shared_copy(stmt) && (!copy_of(stmt).src->buf->is_param || tma_load_problem(target, stmt)))
            return false;
    }
    VEC_EACH (const Param, param, &kernel->params)
        if (param->buf && !add_copies(operands, kernel, param->buf, vars)) return false;
    return operands->count > 0 && !reads_others(operands, kernel);
}

RepackStores repack_stores(Arena *arena, const Target *target, const Func *kernel) {
    PackedVec operands;
    if (!find_operands(arena, target, kernel, &operands)) return REPACK_NEVER;
    FOR_EACH_STMT (stmt, &kernel->body)
        if (is_fragment_to_global_copy(stmt) && rows_store(target, stmt) == VIA_PLAIN) return REPACK_SCATTERED;
    return REPACK_VECTORS;
}

// ---- names ----

static bool names_value(const Func *func, const char *name) {
    if (func_dim(func, name)) return true;
    VEC_EACH (const Param, param, &func->params)
        if (strcmp(param->buf ? param->buf->name : param->var->name, name) == 0) return true;
    return false;
}

static const char *free_value(Arena *arena, const Func *func, const char *of, const char *what) {
    const char *name = arena_printf(arena, "%s_%s", of, what);
    for (int n = 1; names_value(func, name); n++) name = arena_printf(arena, "%s_%s_%d", of, what, n);
    return name;
}

static const char *free_func(Arena *arena, const Module *module, const char *wanted) {
    const char *name = wanted;
    for (int n = 1; module_func(module, name); n++) name = arena_printf(arena, "%s_%d", wanted, n);
    return name;
}

// ---- facts ----

static bool has_fact(const Expr *all, const Expr *fact) {
    if (all && is_binary(all, BIN_LOGICAL_AND)) return has_fact(all->binary.a, fact) || has_fact(all->binary.b, fact);
    return all && expr_equal(all, fact);
}

static void add_fact(Arena *a, Expr **all, Expr *fact) {
    if (!has_fact(*all, fact)) *all = e_both(a, *all, fact);
}

static void add_small(Arena *a, Expr **all, Expr *extent) {
    add_fact(a, all, e_lt(a, extent, e_int(a, (int64_t)INT32_MAX + 1)));
}

// (Programs see to it that kernels have no empty tensor map.)
static void add_map_facts(Arena *a, Expr **all, const Buf *buf) {
    for (int d = 0; d < buf->rank; d++) {
        add_fact(a, all, e_lt(a, e_int(a, 0), buf->shape[d]));
        add_small(a, all, buf->shape[d]);
    }
}

// Of the address, and of where rows start.
static void add_rows_facts(Arena *a, Expr **all, Buf *buf) {
    int64_t elements = tma_facts.unit_bytes / type_bytes(buf->type);
    add_fact(a, all, aligned_fact(a, buf, tma_facts.unit_bytes));
    add_fact(a, all, e_eq(a, e_rem(a, buf->shape[1], elements), e_int(a, 0)));
}

// ---- the kernel ----

static bool is_bound(const Func *func, const Var *dim) {
    VEC_EACH (const Param, param, &func->params)
        for (int d = 0; param->buf && d < param->buf->rank; d++)
            if (expr_is_var(param->buf->shape[d], dim)) return true;
    return false;
}

// Dims that no tensor's extent tells any more become scalars, behind all parameters.
static void pass_dims(Arena *arena, Func *func) {
    int kept = 0;
    for (int i = 0; i < func->dims.count; i++) {
        Var *dim = func->dims.items[i];
        if (is_bound(func, dim)) {
            func->dims.items[kept++] = dim;
            continue;
        }
        dim->kind = VAR_PARAM;
        vec_push(arena, &func->params, ((Param){.var = dim}));
    }
    func->dims.count = kept;
}

Func *repack_rows(Arena *a, const Target *target, const Module *module, const Func *kernel) {
    PackedVec operands;
    Func *func = clone_func(a, kernel);
    EXPECT(arena_failure(a), find_operands(a, target, func, &operands), "'%s' cannot be repacked", kernel->name);
    func->name = free_func(a, module, arena_printf(a, "%s__rows", kernel->name));
    func->cost = NULL;
    for (int i = 0; i < operands.count; i++) {
        Buf *buf = operands.items[i].buf;
        Var *width = var_new(a, free_value(a, func, buf->name, "width"), VAR_DIM, TYPE_I64, func->loc);
        Expr *shape[] = {buf->shape[0], e_var(a, width)};
        buf->shape = arena_copy(a, shape, sizeof shape);
        vec_push(a, &func->dims, width);
        // What is said of the argument is not true of its copy, which is written right before.
        buf->name = free_value(a, func, buf->name, "rows");
        attr_remove(&func->params.items[operands.items[i].param].attrs, ATTR_INDEPENDENT);
    }
    for (int i = 0; i < kernel->dims.count; i++) add_small(a, &func->when, e_var(a, func->dims.items[i]));
    for (int i = 0; i < operands.count; i++) add_rows_facts(a, &func->when, operands.items[i].buf);
    pass_dims(a, func);
    FOR_EACH_STMT_MUT (stmt, &func->body)
        if (is_fragment_to_global_copy(stmt)) via_set(a, stmt, rows_store(target, stmt));
    const AttrId others[] = {ATTR_SPLIT, ATTR_TILE_VARIANT, ATTR_WITH_FALLBACK};
    for (int i = 0; i < COUNT_OF(others); i++) attr_remove(&func->attrs, others[i]);
    attr_set_ints(a, &func->attrs, ATTR_GIVEN_FACTS, 0, NULL);
    return func;
}

// ---- the copy ----

// grid (b in ceildiv(P, COLUMNS), r in ceildiv(R, ROWS)) threads 256 {
//     fragment v: T[ROWS, COLUMNS];
//     copy(x[r * ROWS, b * COLUMNS], v);          zeros beyond W
//     copy(v, y[r * ROWS, b * COLUMNS]);
// }
static void push_copy(Arena *a, Func *func, Buf *x, Buf *y, int64_t columns) {
    enum { ROWS = 64, THREADS = 256 };
    const int64_t extents[] = {ROWS, columns};
    Buf *v = buf_new_const(a, "v", SCOPE_FRAGMENT, x->type, 2, extents, func->loc);
    Var *b = var_new(a, "b", VAR_ITER, TYPE_I64, func->loc), *r = var_new(a, "r", VAR_ITER, TYPE_I64, func->loc);
    Expr *rows = e_int(a, ROWS), *width = e_int(a, columns);
    Stmt *grid = stmt_new(a, STMT_GRID, func->loc);
    Iter iters[] = {iter_new(a, b, e_call2(a, OP_CEILDIV, y->shape[1], width)),
                    iter_new(a, r, e_call2(a, OP_CEILDIV, y->shape[0], rows))};
    grid->grid.iters = arena_copy(a, iters, sizeof iters);
    grid->grid.count = COUNT_OF(iters);
    grid->grid.threads = e_int(a, THREADS);
    set_cluster(grid, 1);
    RegionDim dims[] = {{e_mul(a, e_var(a, r), rows), rows, ROWS}, {e_mul(a, e_var(a, b), width), width, columns}};
    block_push(a, &grid->grid.body, s_decl(a, v));
    block_push(a, &grid->grid.body, s_copy(a, region_new(a, x, dims, false, func->loc), region_whole(a, v), func->loc));
    block_push(a, &grid->grid.body, s_copy(a, region_whole(a, v), region_new(a, y, dims, false, func->loc), func->loc));
    block_push(a, &func->body, grid);
}

static Buf *copy_param(Arena *a, Func *func, const char *name, Type type, Mode mode, Var *rows, Var *width) {
    Expr *shape[] = {e_var(a, rows), e_var(a, width)};
    Buf *buf = buf_new(a, name, SCOPE_GLOBAL, type, 2, shape, func->loc);
    buf->mode = mode;
    buf->is_param = true;
    vec_push(a, &func->params, ((Param){.buf = buf}));
    return buf;
}

static int64_t line_elements(const Target *target, Type type) {
    return target->line_bytes / type_bytes(type);
}

static Func *copy_kernel(Arena *a, const Target *target, const Module *module, const Func *kernel, Type type) {
    Func *func = clone_func(a, kernel);
    func->name = free_func(a, module, arena_printf(a, "%s__repack_%s", kernel->name, type_text(type)));
    func->params.count = func->dims.count = 0;
    func->attrs = NULL;
    func->cost = NULL;
    func->body = (Block){0};
    static const char *const names[] = {"R", "W", "P"};
    Var *dims[COUNT_OF(names)];
    for (int i = 0; i < COUNT_OF(names); i++) {
        dims[i] = var_new(a, names[i], VAR_DIM, TYPE_I64, func->loc);
        vec_push(a, &func->dims, dims[i]);
        add_small(a, &func->when, e_var(a, dims[i]));
    }
    Buf *x = copy_param(a, func, "x", type, MODE_IN, dims[0], dims[1]);
    Buf *y = copy_param(a, func, "y", type, MODE_OUT, dims[0], dims[2]);
    attr_set_ints(a, &func->attrs, ATTR_GIVEN_FACTS, 0, NULL);
    push_copy(a, func, x, y, line_elements(target, type));
    return func;
}

// ---- the programs ----

static void push_launch(Arena *a, Func *program, Func *callee, int count, const Arg *args) {
    Stmt *stmt = stmt_new(a, STMT_LAUNCH, program->loc);
    stmt->launch.callee = callee->name;
    stmt->launch.func = callee;
    stmt->launch.args = arena_copy(a, args, sizeof *args * (size_t)count);
    stmt->launch.count = count;
    EXPECT(arena_failure(a), count == callee->params.count, "'%s' is launched with %d of %d arguments", callee->name,
           count, callee->params.count);
    block_push(a, &program->body, stmt);
}

// T[R, W up to whole lines]
static Buf *push_scratch(Arena *a, const Target *target, Func *program, const Buf *of) {
    int64_t line = line_elements(target, of->type);
    Expr *lines = e_call2(a, OP_CEILDIV, of->shape[1], e_int(a, line));
    Expr *shape[] = {of->shape[0], e_mul(a, lines, e_int(a, line))};
    Buf *scratch = buf_new(a, free_value(a, program, of->name, "rows"), SCOPE_GLOBAL, of->type, 2, shape, program->loc);
    scratch->is_scratch = true;
    block_push(a, &program->body, s_decl(a, scratch));
    return scratch;
}

static Func *copy_of_type(const Repacked *repacked, Type type) {
    VEC_EACH_PTR (Func, copy, &repacked->copies)
        if (copy->params.items[0].buf->type == type) return copy;
    return NULL;
}

// The kernel's dims and scalars by name: those of the program, which is another clone of the same kernel.
static Arg value_named(Arena *a, const Func *program, const char *name) {
    Var *value = func_dim(program, name);
    EXPECT(arena_failure(a), value, "'%s' has no dim %s", program->name, name);
    return arg_value(e_var(a, value));
}

static void push_rows_launch(Arena *a, Func *program, Func *rows, const PackedVec *operands, Buf *const *copies) {
    Arg *args = NEW_ARRAY(a, Arg, rows->params.count + 1);
    for (int i = 0; i < program->params.count; i++) {
        Param *param = &program->params.items[i];
        args[i] = param->buf ? arg_region(region_whole(a, param->buf)) : arg_value(e_var(a, param->var));
    }
    for (int i = 0; i < operands->count; i++)
        if (copies[i]) args[operands->items[i].param] = arg_region(region_whole(a, copies[i]));
    for (int i = program->params.count; i < rows->params.count; i++)
        args[i] = value_named(a, program, rows->params.items[i].var->name);
    push_launch(a, program, rows, rows->params.count, args);
}

// `pitches`: bits of those whose operands are copied.
static Func *program_of(Arena *a, const Target *target, const Func *kernel, const Repacked *repacked, int pitches) {
    PackedVec operands;
    Func *program = clone_func(a, kernel);
    Buf *copies[MOST_PACKED] = {0};
    find_operands(a, target, program, &operands);
    program->kind = FUNC_PROGRAM;
    program->attrs = NULL;
    program->body = (Block){0};
    attr_set_ints(a, &program->attrs, ATTR_FALLBACK, 0, NULL);
    VEC_EACH (Param, param, &program->params) attr_remove(&param->attrs, ATTR_INDEPENDENT);
    for (int i = 0; i < operands.count; i++) {
        Buf *buf = operands.items[i].buf;
        bool copied = pitches >> operands.items[i].pitch & 1;
        if (!copied) add_rows_facts(a, &program->when, buf);
        add_map_facts(a, &program->when, buf);
        if (copied) copies[i] = push_scratch(a, target, program, buf);
    }
    for (int i = 0; i < operands.count; i++) {
        if (!copies[i]) continue;
        const Arg args[] = {arg_region(region_whole(a, operands.items[i].buf)), arg_region(region_whole(a, copies[i]))};
        push_launch(a, program, copy_of_type(repacked, copies[i]->type), COUNT_OF(args), args);
    }
    push_rows_launch(a, program, repacked->rows, &operands, copies);
    return program;
}

Repacked repack(Arena *arena, const Target *target, const Module *module, const Func *kernel, Func *rows) {
    PackedVec operands;
    Repacked repacked = {.rows = rows};
    find_operands(arena, target, kernel, &operands);
    for (int i = 0; i < operands.count; i++) {
        Type type = operands.items[i].buf->type;
        if (!copy_of_type(&repacked, type))
            vec_push(arena, &repacked.copies, copy_kernel(arena, target, module, kernel, type));
    }
    for (int pitches = 0; pitches < 1 << operands.pitches; pitches++)
        repacked.programs[repacked.count++] = program_of(arena, target, kernel, &repacked, pitches);
    return repacked;
}

RepackBytes repack_bytes(Arena *arena, const Target *target, const Func *kernel, int pitches) {
    PackedVec operands;
    RepackBytes bytes = {0};
    find_operands(arena, target, kernel, &operands);
    for (int i = 0; i < operands.count; i++) {
        if (!(pitches >> operands.items[i].pitch & 1)) continue;
        bytes.of[operands.items[i].iter] += operands.items[i].bytes;
        bytes.launches++;
    }
    return bytes;
}
