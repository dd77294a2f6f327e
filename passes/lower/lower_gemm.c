// gemm for one thread: ldmatrix and mma on the tensor cores, or FMAs.
//
// A warp owns warp_m x warp_n of the accumulator, as MT x NT instruction tiles; its register layout was fixed by
// layout-inference (fragment_accumulator). For each k step of the instruction:
//
//     ldmatrix x4   a[i * 8]   for each of the MT row tiles (16 x 16 of A)
//     ldmatrix x4   b[j * 4]   for each pair of column tiles (16 x 16 of B), x2 for an odd last one
//     mma           acc[(i * NT + j) * 4] += a[i * 8] * b[j * 4]
//
// All four operand orders come from one table: ldmatrix gives lane l the row fragment it needs when k is contiguous in
// memory; when the other dim is contiguous the .trans form transposes each 8x8 block. (PTX ISA, ldmatrix; "Matrix fragments
// for mma.m16n8k16".) Operands that ldmatrix cannot read (other widths) are loaded by the instruction's own layout, in runs
// along k. An operand a in registers is used where it is.
//
// 8-bit elements that are contiguous along k are for ldmatrix 16-bit pairs: it gives each lane what the instructions of 8-bit
// types want. Where there are none, operands are converted to 16 bits in registers, exactly, and one load of 32 k feeds two
// instructions. The lane has k = 4 * member + {0,1,2,3} and the instruction takes them for 2 * member + {0,1} | + 8: a
// permutation of k, the same for both operands.
//
// Loops over tiles that end in a gemm: lower_gemm_loop.c.
#include "passes/lower/lower_gemm.h"
#include "ir/build.h"
#include "passes/analysis/util.h"
#include "passes/layout/fragment.h"
#include <string.h>

// ---- what is known about a gemm ----

const MmaInfo *gemm_instruction(const Target *target, const Stmt *gemm) {
    if (!via_is(gemm, VIA_MMA)) return NULL;
    return mma_holding(target, gemm_type(gemm, 0), gemm_type(gemm, 1), gemm_type(gemm, 2));
}

// Bytes of an element of an ldmatrix matrix: as many elements a row as there are rows.
static int matrix_element(void) {
    return matrix_facts.row_bytes / matrix_facts.rows;
}

static bool outer_is_contiguous(const Region *region, int operand) {
    return region->transposed == (operand == 0);
}

static bool is_converted(const MmaInfo *info, const Stmt *gemm, int operand) {
    return strcmp(operand == 0 ? info->a_type : info->b_type, gemm_type(gemm, operand)) != 0;
}

// Pairs of 8-bit elements along k, in shared memory.
static bool has_pairs(const Stmt *gemm, int operand) {
    const Region *region = gemm->call.args[operand].region;
    return region->buf->scope == SCOPE_SHARED && type_bytes(region->buf->type) * 2 == matrix_element() &&
           !outer_is_contiguous(region, operand);
}

int64_t gemm_step(const Target *target, const Stmt *gemm) {
    const MmaInfo *info = gemm_instruction(target, gemm);
    bool pairs = is_converted(info, gemm, 0) && is_converted(info, gemm, 1) && has_pairs(gemm, 0) && has_pairs(gemm, 1);
    bool two = target_has(target, FEATURE_LDMATRIX) && pairs;
    return two && region_extent(gemm->call.args[0].region, 1) % (2 * info->k) == 0 ? 2 * info->k : info->k;
}

bool matrix_load_possible(const Target *target, const Stmt *gemm, int operand) {
    const Region *region = gemm->call.args[operand].region;
    const MmaInfo *info = gemm_instruction(target, gemm);
    if (!target_has(target, FEATURE_LDMATRIX) || region->buf->scope != SCOPE_SHARED) return false;
    if (type_bytes(region->buf->type) == matrix_element()) return true;
    return has_pairs(gemm, operand) && (!is_converted(info, gemm, operand) || gemm_step(target, gemm) > info->k);
}

MatrixLoad matrix_load(const Stmt *gemm, int operand, int count) {
    const Region *region = gemm->call.args[operand].region;
    return (MatrixLoad){.is_b = operand == 1,
                        .trans = outer_is_contiguous(region, operand),
                        .count = count,
                        .pack = matrix_element() / type_bytes(region->buf->type)};
}

int64_t operand_run(const Stmt *gemm, int operand, const Layout *layout) {
    const LayoutMode *first = &layout->in[TV_VALUE].modes[0];
    bool along_k = first->out == 1 && first->stride == 1;
    return along_k && !outer_is_contiguous(gemm->call.args[operand].region, operand) ? first->extent : 1;
}

void matrix_lane(const MatrixLoad *load, int lane, int *outer, int *inner) {
    if (load->count == 2) lane %= 16;
    int low = lane % 8, middle = lane / 8 % 2 * 8, high = lane / 16 * 8;
    // The matrices of an a tile come row half first, those of a b tile k half first; .trans swaps which side the lanes walk.
    bool row_half_first = !load->is_b;
    int first = row_half_first == !load->trans ? low + middle : low + high;
    int second = row_half_first == !load->trans ? high : middle;
    *outer = load->trans ? second : first;
    *inner = (load->trans ? first : second) * load->pack;
}

void matrix_lane_exprs(Arena *arena, const MatrixLoad *load, Expr *lane, Expr **outer, Expr **inner) {
    Expr *eight = e_int(arena, 8), *sixteen = e_int(arena, 16);
    if (load->count == 2) lane = e_mod(arena, lane, sixteen);
    Expr *low = e_mod(arena, lane, eight);
    Expr *middle = e_mul(arena, e_rem(arena, e_div(arena, lane, eight), 2), eight);
    Expr *high = e_mul(arena, e_div(arena, lane, sixteen), eight);
    bool by_middle = !load->is_b == !load->trans;
    Expr *first = by_middle ? e_mod(arena, lane, sixteen) : e_add(arena, low, high);
    Expr *second = by_middle ? high : middle;
    *outer = load->trans ? second : first;
    *inner = e_times(arena, load->trans ? first : second, load->pack);
}

// ---- emitting ----

static Span place(const Gemm *gemm) {
    return gemm->stmt->loc;
}

// Physical place of operand element (outer, inner k) in shared memory.
static Region *operand_element(Gemm *gemm, int operand, Expr *outer, Expr *inner) {
    const Region *region = gemm->stmt->call.args[operand].region;
    Expr *at[2] = {operand == 0 ? outer : inner, operand == 0 ? inner : outer};
    int count;
    Expr **indices = region_indices(gemm->arena, region, at);
    indices = lower_indices(gemm->lower, region->buf, region->count, indices, &count);
    return region_element(gemm->arena, lower_physical(gemm->lower, region->buf), count, indices);
}

static Stmt *ranged(Gemm *gemm, LoopKind kind, const char *name, int64_t from, int64_t to, Expr **index) {
    Var *var = var_new(gemm->arena, name, VAR_ITER, TYPE_I64, place(gemm));
    Stmt *loop = s_for(gemm->arena, kind, var, e_int(gemm->arena, from), e_int(gemm->arena, to));
    loop->loc = place(gemm);
    *index = e_var(gemm->arena, var);
    facts_iter(gemm->lower->facts, &loop->loop.iters[0]);
    return loop;
}

Stmt *gemm_counted(Gemm *gemm, LoopKind kind, const char *name, int64_t count, Expr **index) {
    return ranged(gemm, kind, name, 0, count, index);
}

static Expr *times(Gemm *gemm, Expr *a, int64_t b) {
    return e_times(gemm->arena, a, b);
}
static Expr *plus(Gemm *gemm, Expr *a, Expr *b) {
    return e_add(gemm->arena, a, b);
}

// Where slot `slot` of an operand's registers is in the set in use.
static Expr *in_set(Gemm *gemm, int operand, Expr *slot) {
    if (!gemm->set) return slot;
    int64_t size = operand == 0 ? gemm->m_tiles * gemm->a_values : gemm->n_tiles * gemm->b_values;
    return plus(gemm, times(gemm, gemm->set, size), slot);
}

static void push_ldmatrix(Gemm *gemm, int operand, MatrixLoad load, Buf *local, Expr *slot, Expr *outer0, Expr *inner0,
                          Block *out) {
    Arena *arena = gemm->arena;
    Expr *outer, *inner;
    slot = in_set(gemm, operand, slot);
    matrix_lane_exprs(arena, &load, gemm->lane, &outer, &inner);
    Region *from = operand_element(gemm, operand, plus(gemm, outer0, outer), plus(gemm, inner0, inner));
    BLOCK_CALL(arena, out, place(gemm), OP_LDMATRIX, arg_element(arena, local, slot), arg_region(from),
               arg_int(arena, load.count), arg_value(e_bool(arena, load.trans)));
}

// Value v of the instruction's layout lies at (outer, k) = layout(lane, v); a run of them in one access where memory has it so.
static void push_elements(Gemm *gemm, int operand, const char *layout_text_, int values, Buf *local, Expr *slot,
                          Expr *outer0, Expr *inner0, Block *out) {
    Arena *arena = gemm->arena;
    const char *why;
    const Layout *layout = layout_parse(arena, layout_text_, 0, &why);
    int64_t run = operand_run(gemm->stmt, operand, layout);
    Expr *v, *e, *at[2];
    slot = in_set(gemm, operand, slot);
    int mark = facts_mark(gemm->lower->facts);
    Stmt *loop = gemm_counted(gemm, LOOP_UNROLL, "v", values / run, &v);
    Expr *first = times(gemm, v, run), *in[2] = {gemm->lane, first};
    layout_forward(arena, gemm->lower->facts, layout, in, at);
    Region *from = operand_element(gemm, operand, plus(gemm, outer0, at[0]), plus(gemm, inner0, at[1]));
    bool whole = run > 1 && layout_keeps_runs(gemm->stmt->call.args[operand].region->buf->layout, run);
    Stmt *elements = gemm_counted(gemm, whole ? LOOP_VECTORIZED : LOOP_UNROLL, "e", run, &e);
    if (run == 1) e = e_int(arena, 0);
    if (!whole)
        from = operand_element(gemm, operand, plus(gemm, outer0, at[0]), plus(gemm, plus(gemm, inner0, at[1]), e));
    Expr *indices[2 * LAYOUT_MAX_RANK];
    for (int d = 0; d < from->count; d++) indices[d] = from->dims[d].start;
    if (whole) indices[from->count - 1] = plus(gemm, indices[from->count - 1], e);
    Expr *value = e_load(arena, from->buf, from->count, indices);
    Stmt *store = s_store1(arena, local, plus(gemm, plus(gemm, slot, first), e), value);
    block_push(arena, run > 1 ? &elements->loop.body : &loop->loop.body, store);
    if (run > 1) block_push(arena, &loop->loop.body, elements);
    facts_release(gemm->lower->facts, mark);
    block_push(arena, out, loop);
}

static void load_a(Gemm *gemm, Expr *kk, Block *out) {
    const Region *region = gemm->stmt->call.args[0].region;
    if (region->buf->scope == SCOPE_FRAGMENT) return;
    int mark = facts_mark(gemm->lower->facts);
    Expr *i;
    Stmt *loop = gemm_counted(gemm, LOOP_UNROLL, "i", gemm->m_tiles, &i);
    Expr *row = plus(gemm, gemm->row0, times(gemm, i, gemm->info->m)), *slot = times(gemm, i, gemm->a_values);
    Expr *k0 = times(gemm, kk, gemm->step);
    if (matrix_load_possible(gemm->lower->target, gemm->stmt, 0)) {
        MatrixLoad load = matrix_load(gemm->stmt, 0, 4);
        push_ldmatrix(gemm, 0, load, gemm->a, slot, row, k0, &loop->loop.body);
    } else {
        push_elements(gemm, 0, gemm->info->a_layout, gemm->a_values, gemm->a, slot, row, k0, &loop->loop.body);
    }
    facts_release(gemm->lower->facts, mark);
    block_push(gemm->arena, out, loop);
}

static void load_b_matrices(Gemm *gemm, Expr *k0, Block *out) {
    MatrixLoad load = matrix_load(gemm->stmt, 1, 4);
    int64_t pairs = gemm->n_tiles / 2;
    Expr *j;
    if (pairs > 0) {
        int mark = facts_mark(gemm->lower->facts);
        Stmt *loop = gemm_counted(gemm, LOOP_UNROLL, "j", pairs, &j);
        Expr *column = plus(gemm, gemm->column0, times(gemm, j, 2 * gemm->info->n));
        push_ldmatrix(gemm, 1, load, gemm->b, times(gemm, j, 2 * gemm->b_values), column, k0, &loop->loop.body);
        facts_release(gemm->lower->facts, mark);
        block_push(gemm->arena, out, loop);
    }
    if (gemm->n_tiles % 2 == 0) return;
    load.count = 2;
    j = e_int(gemm->arena, 2 * pairs);
    push_ldmatrix(gemm, 1, load, gemm->b, times(gemm, j, gemm->b_values),
                  plus(gemm, gemm->column0, times(gemm, j, gemm->info->n)), k0, out);
}

static void load_b(Gemm *gemm, Expr *kk, Block *out) {
    Expr *k0 = times(gemm, kk, gemm->step), *j;
    if (matrix_load_possible(gemm->lower->target, gemm->stmt, 1)) {
        load_b_matrices(gemm, k0, out);
        return;
    }
    int mark = facts_mark(gemm->lower->facts);
    Stmt *loop = gemm_counted(gemm, LOOP_UNROLL, "j", gemm->n_tiles, &j);
    push_elements(gemm, 1, gemm->info->b_layout, gemm->b_values, gemm->b, times(gemm, j, gemm->b_values),
                  plus(gemm, gemm->column0, times(gemm, j, gemm->info->n)), k0, &loop->loop.body);
    facts_release(gemm->lower->facts, mark);
    block_push(gemm->arena, out, loop);
}

void gemm_load(Gemm *gemm, Expr *kk, Block *out) {
    load_a(gemm, kk, out);
    load_b(gemm, kk, out);
}

// Registers of tile `tile` of an operand, of the set in use, to registers of the instruction's type from `to` on.
static void convert_tile(Gemm *gemm, int operand, Expr *tile, Expr *to, Block *out) {
    Arena *arena = gemm->arena;
    Buf *from = operand == 0 ? gemm->a : gemm->b, *wide = operand == 0 ? gemm->wide_a : gemm->wide_b;
    int64_t values = operand == 0 ? gemm->a_values : gemm->b_values;
    Expr *v;
    int mark = facts_mark(gemm->lower->facts);
    Stmt *each = gemm_counted(gemm, LOOP_UNROLL, "v", values, &v);
    Expr *source = v;
    if (gemm->step > gemm->info->k && operand == 0) {   // a row's 4 values in a register; the instruction wants 2 and 2
        Expr *two = e_int(arena, 2), *pair = e_mod(arena, v, two), *row = e_mod(arena, e_div(arena, v, two), two),
             *high = e_mod(arena, e_over(arena, v, 4), two), *half = e_over(arena, v, 8);
        source =
            plus(gemm, plus(gemm, times(gemm, half, 8), times(gemm, row, 4)), plus(gemm, times(gemm, high, 2), pair));
    }
    Expr *value = e_load1(arena, from, in_set(gemm, operand, plus(gemm, times(gemm, tile, values), source)));
    block_store1(arena, &each->loop.body, wide, plus(gemm, to, v), e_cast(arena, wide->type, value));
    facts_release(gemm->lower->facts, mark);
    block_push(arena, out, each);
}

// All tiles of b, which every row of tiles needs.
void gemm_convert(Gemm *gemm, Block *out) {
    Expr *j;
    if (!gemm->wide_b) return;
    int mark = facts_mark(gemm->lower->facts);
    Stmt *tiles = gemm_counted(gemm, LOOP_UNROLL, "j", gemm->n_tiles, &j);
    convert_tile(gemm, 1, j, times(gemm, j, gemm->b_values), &tiles->loop.body);
    facts_release(gemm->lower->facts, mark);
    block_push(gemm->arena, out, tiles);
}

void gemm_multiply(Gemm *gemm, Expr *kk, int64_t from, int64_t to, Block *out) {
    Arena *arena = gemm->arena;
    bool a_in_registers = gemm->stmt->call.args[0].region->buf->scope == SCOPE_FRAGMENT;
    int mark = facts_mark(gemm->lower->facts);
    Expr *i, *j, *p;
    int64_t pieces = gemm->step / gemm->info->k;
    Stmt *rows = ranged(gemm, LOOP_UNROLL, "i", from, to, &i);
    Stmt *columns = gemm_counted(gemm, LOOP_UNROLL, "j", gemm->n_tiles, &j);
    Stmt *halves = gemm_counted(gemm, LOOP_UNROLL, "p", pieces, &p);
    if (pieces == 1) p = e_int(arena, 0);
    Expr *a_tile = a_in_registers ? plus(gemm, times(gemm, i, gemm->k_steps), kk) : i;
    if (gemm->wide_a) {   // a row of tiles at a time
        convert_tile(gemm, 0, i, e_int(arena, 0), &rows->loop.body);
        a_tile = e_int(arena, 0);
    }
    Expr *a_slot = plus(gemm, times(gemm, a_tile, gemm->a_values), times(gemm, p, gemm->a_values / pieces));
    Expr *b_slot = plus(gemm, times(gemm, j, gemm->b_values), times(gemm, p, gemm->b_values / pieces));
    Expr *slots[3] = {a_in_registers || gemm->wide_a ? a_slot : in_set(gemm, 0, a_slot),
                      gemm->wide_b ? b_slot : in_set(gemm, 1, b_slot),
                      times(gemm, plus(gemm, times(gemm, i, gemm->n_tiles), j), gemm->c_values)};
    Buf *locals[3] = {gemm->wide_a ? gemm->wide_a : gemm->a, gemm->wide_b ? gemm->wide_b : gemm->b, gemm->acc};
    Arg args[4] = {arg_name(gemm->info->name)};
    for (int o = 0; o < 3; o++) args[o + 1] = arg_element(arena, locals[o], slots[o]);
    block_call(arena, pieces > 1 ? &halves->loop.body : &columns->loop.body, place(gemm), OP_MMA, 4, args);
    if (pieces > 1) block_push(arena, &columns->loop.body, halves);
    block_push(arena, &rows->loop.body, columns);
    facts_release(gemm->lower->facts, mark);
    block_push(arena, out, rows);
}

static Expr *bound(Gemm *gemm, const char *name, Expr *value, Block *out) {
    Arena *arena = gemm->arena;
    value = simplify_expr(arena, gemm->lower->facts, value);
    if (value->kind == EXPR_INT || value->kind == EXPR_VAR) return value;
    Var *var = var_new(arena, name, VAR_LET, TYPE_I64, place(gemm));
    block_push(arena, out, s_let(arena, var, value));
    facts_bind(gemm->lower->facts, var, value);
    return e_var(arena, var);
}

static void warp_corner(Gemm *gemm, Block *out) {
    Arena *arena = gemm->arena;
    const Attr *split = attr_get(gemm->stmt->attrs, ATTR_WARPS);
    int64_t warps_m = split->args[0].integer, warps_n = split->args[1].integer;
    int64_t lanes = gemm->lower->target->warp_lanes;
    Expr *thread = lower_thread(gemm->lower), *warp = e_over(arena, thread, lanes);
    gemm->lane = bound(gemm, "lane", e_rem(arena, thread, lanes), out);
    Expr *m = e_rem(arena, warp, warps_m);
    Expr *n = e_rem(arena, e_over(arena, warp, warps_m), warps_n);
    gemm->row0 = bound(gemm, "row0", times(gemm, m, gemm->m_tiles * gemm->info->m), out);
    gemm->column0 = bound(gemm, "column0", times(gemm, n, gemm->n_tiles * gemm->info->n), out);
}

static int layout_values(Arena *arena, const char *text) {
    const char *why;
    return (int)layout_extent_in(layout_parse(arena, text, 0, &why), TV_VALUE);
}

static Buf *operand_registers(Gemm *gemm, const char *name, Type type, int64_t count, Block *out) {
    Buf *local = buf_new_const(gemm->arena, name, SCOPE_LOCAL, type, 1, &count, place(gemm));
    block_push(gemm->arena, out, s_decl(gemm->arena, local));
    return local;
}

static void count_tiles(Gemm *gemm) {
    const Arg *args = gemm->stmt->call.args;
    const Attr *split = attr_get(gemm->stmt->attrs, ATTR_WARPS);
    gemm->m_tiles = region_extent(args[2].region, 0) / split->args[0].integer / gemm->info->m;
    gemm->n_tiles = region_extent(args[2].region, 1) / split->args[1].integer / gemm->info->n;
    gemm->step = gemm_step(gemm->lower->target, gemm->stmt);
    gemm->k_steps = region_extent(args[0].region, 1) / gemm->step;
    int pieces = (int)(gemm->step / gemm->info->k);
    gemm->a_values = layout_values(gemm->arena, gemm->info->a_layout) * pieces;
    gemm->b_values = layout_values(gemm->arena, gemm->info->b_layout) * pieces;
    gemm->c_values = layout_values(gemm->arena, gemm->info->c_layout);
}

void gemm_begin(Gemm *gemm, int sets, Block *body) {
    const Arg *args = gemm->stmt->call.args;
    count_tiles(gemm);
    gemm->acc = lower_local(gemm->lower, args[2].region->buf);
    gemm->a =
        args[0].region->buf->scope == SCOPE_FRAGMENT
            ? lower_local(gemm->lower, args[0].region->buf)
            : operand_registers(gemm, "a", args[0].region->buf->type, sets * gemm->m_tiles * gemm->a_values, body);
    gemm->b = operand_registers(gemm, "b", args[1].region->buf->type, sets * gemm->n_tiles * gemm->b_values, body);
    Type a_type = type_named(gemm->info->a_type), b_type = type_named(gemm->info->b_type);
    if (is_converted(gemm->info, gemm->stmt, 0))
        gemm->wide_a = operand_registers(gemm, "wide_a", a_type, gemm->a_values, body);
    if (is_converted(gemm->info, gemm->stmt, 1))
        gemm->wide_b = operand_registers(gemm, "wide_b", b_type, gemm->n_tiles * gemm->b_values, body);
    warp_corner(gemm, body);
}

static void lower_mma(Gemm *gemm, Block *out) {
    Stmt *block = s_block(gemm->arena);
    int mark = facts_mark(gemm->lower->facts);
    gemm_begin(gemm, 1, &block->block);
    Expr *kk;
    Stmt *steps = gemm_counted(gemm, LOOP_UNROLL, "kk", gemm->k_steps, &kk);
    gemm_load(gemm, kk, &steps->loop.body);
    gemm_convert(gemm, &steps->loop.body);
    gemm_multiply(gemm, kk, 0, gemm->m_tiles, &steps->loop.body);
    block_push(gemm->arena, &block->block, steps);
    facts_release(gemm->lower->facts, mark);
    block_push(gemm->arena, out, block);
}

// ---- without tensor cores ----

static Expr *multiply_add(Gemm *gemm, Type type, Expr *a, Expr *b, Expr *c) {
    Arena *arena = gemm->arena;
    a = e_cast(arena, type, a);
    b = e_cast(arena, type, b);
    if (!type_is_float(type)) return e_add(arena, c, e_mul(arena, a, b));
    Arg args[3] = {arg_value(a), arg_value(b), arg_value(c)};
    return e_call(arena, OP_FMA, 3, args);
}

static Expr *operand_load(Gemm *gemm, int operand, Expr *outer, Expr *k) {
    Region *element = operand_element(gemm, operand, outer, k);
    Expr *indices[2 * LAYOUT_MAX_RANK];
    for (int d = 0; d < element->count; d++) indices[d] = element->dims[d].start;
    return e_load(gemm->arena, element->buf, element->count, indices);
}

// for (k) unroll (r) acc[r] += a[row(t, r), k] * b[k, column(t, r)]; equal loads of the values are one load for the
// back end.
static void lower_fma(Gemm *gemm, Block *out) {
    Arena *arena = gemm->arena;
    Lower *lower = gemm->lower;
    const Arg *args = gemm->stmt->call.args;
    const Buf *fragment = args[2].region->buf;
    Buf *acc = lower_local(lower, args[2].region->buf);
    int mark = facts_mark(lower->facts);
    Expr *k, *r, *at[2];
    Stmt *steps = gemm_counted(gemm, LOOP_SERIAL, "k", region_extent(args[0].region, 1), &k);
    Stmt *values = gemm_counted(gemm, LOOP_UNROLL, "r", tv_values(fragment->layout), &r);
    Expr *in[2] = {lower_thread(lower), r};
    layout_forward(arena, lower->facts, fragment->layout, in, at);
    Expr *a = operand_load(gemm, 0, at[0], k), *b = operand_load(gemm, 1, at[1], k);
    Expr *sum = multiply_add(gemm, type_compute(acc->type), a, b,
                             e_cast(arena, type_compute(acc->type), e_load1(arena, acc, r)));
    Stmt *update = s_store1(arena, acc, r, e_cast(arena, acc->type, sum));
    Expr *inside = NULL;
    for (int d = 0; d < 2; d++) {
        if (fragment->layout->out_shape[d] <= buf_extent(fragment, d)) continue;
        Expr *test = e_lt(arena, at[d], fragment->shape[d]);
        inside = inside ? e_and(arena, inside, test) : test;
    }
    if (inside) {
        Stmt *only = s_if(arena, simplify_expr(arena, lower->facts, inside));
        block_push(arena, &only->if_.then, update);
        update = only;
    }
    block_push(arena, &values->loop.body, update);
    block_push(arena, &steps->loop.body, values);
    facts_release(lower->facts, mark);
    block_push(arena, out, steps);
}

// Where it does not accumulate it starts from zeros.
static void clear_accumulator(Gemm *gemm, Block *out) {
    Arena *arena = gemm->arena;
    const Arg *args = gemm->stmt->call.args;
    if (!args[GEMM_ACCUMULATE].value) return;
    Buf *acc = lower_local(gemm->lower, args[GEMM_ACC].region->buf);
    Expr *r;
    Stmt *unless = s_if(arena, e_unary(arena, UNARY_NOT, lower_expr(gemm->lower, args[GEMM_ACCUMULATE].value)));
    Stmt *values = gemm_counted(gemm, LOOP_UNROLL, "r", tv_values(args[GEMM_ACC].region->buf->layout), &r);
    block_store1(arena, &values->loop.body, acc, r, e_zero(arena, acc->type));
    block_push(arena, &unless->if_.then, values);
    block_push(arena, out, unless);
}

void lower_gemm(Lower *lower, Stmt *stmt, Block *out) {
    Gemm gemm = {.lower = lower, .arena = lower->arena, .stmt = stmt};
    gemm.info = gemm_instruction(lower->target, stmt);
    int mark = facts_mark(lower->facts);
    clear_accumulator(&gemm, out);
    facts_release(lower->facts, mark);
    if (gemm.info) lower_mma(&gemm, out);
    else lower_fma(&gemm, out);
}
