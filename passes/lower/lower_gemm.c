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
// memory; when the other dim is contiguous the .trans form transposes each 8x8 block. (PTX ISA, ldmatrix; "Matrix
// fragments for mma.m16n8k16".) Operands that ldmatrix cannot read (other widths) are loaded by the instruction's own
// layout, in runs along k. An operand a in registers is used where it is.
//
// 8-bit elements that are contiguous along k are for ldmatrix 16-bit pairs: it gives each lane what the instructions of
// 8-bit types want. Where there are none, operands are converted to 16 bits in registers, exactly, and one load of 32 k
// feeds two instructions. The lane has k = 4 * member + {0,1,2,3} and the instruction takes them for 2 * member + {0,1}
// | + 8: a permutation of k, the same for both operands.
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
    // The matrices of an a tile come row half first, those of a b tile k half first; .trans swaps which side the lanes
    // walk.
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
    return lower_place(gemm->lower, region->buf, region->count, region_indices(gemm->arena, region, at));
}

Block *gemm_counted(Gemm *gemm, LoopKind kind, const char *name, int64_t count, Expr **index, Block *out) {
    return lower_counted(gemm->lower, kind, name, 0, count, place(gemm), index, out);
}

static Expr *times(Gemm *gemm, Expr *a, int64_t b) {
    return e_times(gemm->arena, a, b);
}

static Expr *plus(Gemm *gemm, Expr *a, Expr *b) {
    return e_add(gemm->arena, a, b);
}

static const Region *operand_of(const Gemm *gemm, int operand) {
    return gemm->stmt->call.args[operand].region;
}

// Where slot `slot` of an operand's registers is in the set in use.
static Expr *in_set(Gemm *gemm, int operand, Expr *slot) {
    if (!gemm->set) return slot;
    int64_t size = operand == GEMM_A ? gemm->m_tiles * gemm->a_values : gemm->n_tiles * gemm->b_values;
    return plus(gemm, times(gemm, gemm->set, size), slot);
}

// One tile of an operand, from element (outer, inner) on, to its registers from `slot` on.
typedef struct Load {
    int operand;
    Buf *local;
    Expr *slot, *outer, *inner;
} Load;

static void push_ldmatrix(Gemm *gemm, const Load *load, int count, Block *out) {
    Arena *arena = gemm->arena;
    Expr *outer, *inner, *slot = in_set(gemm, load->operand, load->slot);
    MatrixLoad matrices = matrix_load(gemm->stmt, load->operand, count);
    matrix_lane_exprs(arena, &matrices, gemm->lane, &outer, &inner);
    Region *from = operand_element(gemm, load->operand, plus(gemm, load->outer, outer), plus(gemm, load->inner, inner));
    BLOCK_CALL(arena, out, place(gemm), OP_LDMATRIX, arg_element(arena, load->local, slot), arg_region(from),
               arg_int(arena, count), arg_value(e_bool(arena, matrices.trans)));
}

static Expr *load_element(Gemm *gemm, const Region *element, Expr *beyond) {
    Expr *indices[2 * LAYOUT_MAX_RANK];
    for (int d = 0; d < element->count; d++) indices[d] = element->dims[d].start;
    if (beyond) indices[element->count - 1] = plus(gemm, indices[element->count - 1], beyond);
    return e_load(gemm->arena, element->buf, element->count, indices);
}

// Value v of the instruction's layout lies at (outer, k) = layout(lane, v); a run of them in one access where memory
// has it so.
static void push_elements(Gemm *gemm, const Load *load, const char *text, int values, Block *out) {
    Arena *arena = gemm->arena;
    const char *why;
    const Layout *layout = layout_parse(arena, text, 0, &why);
    int64_t run = operand_run(gemm->stmt, load->operand, layout);
    Expr *v, *e = e_int(arena, 0), *at[2], *slot = in_set(gemm, load->operand, load->slot);
    Block *body = gemm_counted(gemm, LOOP_UNROLL, "v", values / run, &v, out);
    Expr *first = times(gemm, v, run), *in[2] = {gemm->lane, first};
    layout_forward(arena, gemm->lower->facts, layout, in, at);
    bool whole = run > 1 && layout_keeps_runs(operand_of(gemm, load->operand)->buf->layout, run);
    if (run > 1) body = gemm_counted(gemm, whole ? LOOP_VECTORIZED : LOOP_UNROLL, "e", run, &e, body);
    Expr *outer = plus(gemm, load->outer, at[0]), *inner = plus(gemm, load->inner, at[1]);
    const Region *from = operand_element(gemm, load->operand, outer, whole ? inner : plus(gemm, inner, e));
    slot = plus(gemm, plus(gemm, slot, first), e);
    block_store1(arena, body, load->local, slot, load_element(gemm, from, whole ? e : NULL));
}

static void load_a(Gemm *gemm, Expr *kk, Block *out) {
    if (operand_of(gemm, GEMM_A)->buf->scope == SCOPE_FRAGMENT) return;
    Expr *i;
    Block *body = gemm_counted(gemm, LOOP_UNROLL, "i", gemm->m_tiles, &i, out);
    Load load = {GEMM_A, gemm->a, times(gemm, i, gemm->a_values), plus(gemm, gemm->row0, times(gemm, i, gemm->info->m)),
                 times(gemm, kk, gemm->step)};
    if (matrix_load_possible(gemm->lower->target, gemm->stmt, GEMM_A)) push_ldmatrix(gemm, &load, 4, body);
    else push_elements(gemm, &load, gemm->info->a_layout, gemm->a_values, body);
}

// Tile number `j` of b; with ldmatrix two at a time.
static Load load_of_b(Gemm *gemm, Expr *j, int64_t tiles, Expr *kk) {
    return (Load){GEMM_B, gemm->b, times(gemm, j, tiles * gemm->b_values),
                  plus(gemm, gemm->column0, times(gemm, j, tiles * gemm->info->n)), times(gemm, kk, gemm->step)};
}

static void load_b(Gemm *gemm, Expr *kk, Block *out) {
    Expr *j;
    bool matrices = matrix_load_possible(gemm->lower->target, gemm->stmt, GEMM_B);
    int64_t tiles = matrices ? 2 : 1, loads = gemm->n_tiles / tiles;
    if (loads > 0) {
        Block *body = gemm_counted(gemm, LOOP_UNROLL, "j", loads, &j, out);
        Load load = load_of_b(gemm, j, tiles, kk);
        if (matrices) push_ldmatrix(gemm, &load, 4, body);
        else push_elements(gemm, &load, gemm->info->b_layout, gemm->b_values, body);
    }
    if (loads * tiles == gemm->n_tiles) return;
    Load last = load_of_b(gemm, e_int(gemm->arena, loads * tiles), 1, kk);
    push_ldmatrix(gemm, &last, 2, out);
}

void gemm_load(Gemm *gemm, Expr *kk, Block *out) {
    load_a(gemm, kk, out);
    load_b(gemm, kk, out);
}

// Registers of tile `tile` of an operand, of the set in use, to registers of the instruction's type from `to` on.
static void convert_tile(Gemm *gemm, int operand, Expr *tile, Expr *to, Block *out) {
    Arena *arena = gemm->arena;
    Buf *from = operand == GEMM_A ? gemm->a : gemm->b, *wide = operand == GEMM_A ? gemm->wide_a : gemm->wide_b;
    int64_t values = operand == GEMM_A ? gemm->a_values : gemm->b_values;
    Expr *v;
    Block *body = gemm_counted(gemm, LOOP_UNROLL, "v", values, &v, out);
    Expr *source = v;
    if (gemm->step > gemm->info->k &&
        operand == GEMM_A) {   // a row's 4 values in a register; the instruction wants 2 and 2
        Expr *pair = e_rem(arena, v, 2), *row = e_rem(arena, e_over(arena, v, 2), 2);
        Expr *high = e_rem(arena, e_over(arena, v, 4), 2), *half = e_over(arena, v, 8);
        source =
            plus(gemm, plus(gemm, times(gemm, half, 8), times(gemm, row, 4)), plus(gemm, times(gemm, high, 2), pair));
    }
    Expr *value = e_load1(arena, from, in_set(gemm, operand, plus(gemm, times(gemm, tile, values), source)));
    block_store1(arena, body, wide, plus(gemm, to, v), e_cast(arena, wide->type, value));
}

// All tiles of b, which every row of tiles needs.
void gemm_convert(Gemm *gemm, Block *out) {
    Expr *j;
    if (!gemm->wide_b) return;
    Block *body = gemm_counted(gemm, LOOP_UNROLL, "j", gemm->n_tiles, &j, out);
    convert_tile(gemm, GEMM_B, j, times(gemm, j, gemm->b_values), body);
}

void gemm_multiply(Gemm *gemm, Expr *kk, int64_t from, int64_t to, Block *out) {
    Arena *arena = gemm->arena;
    bool a_in_registers = operand_of(gemm, GEMM_A)->buf->scope == SCOPE_FRAGMENT;
    Expr *i, *j, *p = e_int(arena, 0);
    int64_t pieces = gemm->step / gemm->info->k;
    Block *body = lower_counted(gemm->lower, LOOP_UNROLL, "i", from, to, place(gemm), &i, out);
    Expr *a_tile = a_in_registers ? plus(gemm, times(gemm, i, gemm->k_steps), kk) : i;
    if (gemm->wide_a) {   // a row of tiles at a time
        a_tile = e_int(arena, 0);
        convert_tile(gemm, GEMM_A, i, a_tile, body);
    }
    body = gemm_counted(gemm, LOOP_UNROLL, "j", gemm->n_tiles, &j, body);
    if (pieces > 1) body = gemm_counted(gemm, LOOP_UNROLL, "p", pieces, &p, body);
    Expr *a = plus(gemm, times(gemm, a_tile, gemm->a_values), times(gemm, p, gemm->a_values / pieces));
    Expr *b = plus(gemm, times(gemm, j, gemm->b_values), times(gemm, p, gemm->b_values / pieces));
    Expr *c = times(gemm, plus(gemm, times(gemm, i, gemm->n_tiles), j), gemm->c_values);
    BLOCK_CALL(arena, body, place(gemm), OP_MMA, arg_name(gemm->info->name),
               gemm->wide_a     ? arg_element(arena, gemm->wide_a, a)
               : a_in_registers ? arg_element(arena, gemm->a, a)
                                : arg_element(arena, gemm->a, in_set(gemm, GEMM_A, a)),
               gemm->wide_b ? arg_element(arena, gemm->wide_b, b)
                            : arg_element(arena, gemm->b, in_set(gemm, GEMM_B, b)),
               arg_element(arena, gemm->acc, c));
}

static Expr *bound(Gemm *gemm, const char *name, Expr *value, Block *out) {
    value = lower_simple(gemm->lower, value);
    if (value->kind == EXPR_INT || value->kind == EXPR_VAR) return value;
    Expr *var = block_let(gemm->arena, out, name, value, place(gemm));
    facts_bind(gemm->lower->facts, var->var, value);
    return var;
}

static void warp_corner(Gemm *gemm, const Attr *split, Block *out) {
    Arena *arena = gemm->arena;
    int64_t warps_m = split->args[0].integer, warps_n = split->args[1].integer;
    Expr *warp = e_over(arena, lower_thread(gemm->lower), gemm->lower->target->warp_lanes);
    gemm->lane = bound(gemm, "lane", lower_lane(gemm->lower), out);
    Expr *m = e_rem(arena, warp, warps_m), *n = e_rem(arena, e_over(arena, warp, warps_m), warps_n);
    gemm->row0 = bound(gemm, "row0", times(gemm, m, gemm->m_tiles * gemm->info->m), out);
    gemm->column0 = bound(gemm, "column0", times(gemm, n, gemm->n_tiles * gemm->info->n), out);
}

static int layout_values(Arena *arena, const char *text) {
    const char *why;
    return (int)layout_extent_in(layout_parse(arena, text, 0, &why), TV_VALUE);
}

static void count_tiles(Gemm *gemm, const Attr *split) {
    const Region *acc = operand_of(gemm, GEMM_ACC);
    gemm->m_tiles = region_extent(acc, 0) / split->args[0].integer / gemm->info->m;
    gemm->n_tiles = region_extent(acc, 1) / split->args[1].integer / gemm->info->n;
    gemm->step = gemm_step(gemm->lower->target, gemm->stmt);
    gemm->k_steps = region_extent(operand_of(gemm, GEMM_A), 1) / gemm->step;
    int pieces = (int)(gemm->step / gemm->info->k);
    gemm->a_values = layout_values(gemm->arena, gemm->info->a_layout) * pieces;
    gemm->b_values = layout_values(gemm->arena, gemm->info->b_layout) * pieces;
    gemm->c_values = layout_values(gemm->arena, gemm->info->c_layout);
}

void gemm_begin(Gemm *gemm, int sets, Block *body) {
    Arena *arena = gemm->arena;
    const Attr *split = attr_get(gemm->stmt->attrs, ATTR_WARPS);
    EXPECT(gemm->lower->context->failure, split, "a gemm by mma has no @warps");
    count_tiles(gemm, split);
    Buf *a = operand_of(gemm, GEMM_A)->buf, *b = operand_of(gemm, GEMM_B)->buf;
    int64_t a_count = gemm->m_tiles * gemm->a_values, b_count = gemm->n_tiles * gemm->b_values;
    gemm->acc = lower_local(gemm->lower, operand_of(gemm, GEMM_ACC)->buf);
    gemm->a = a->scope == SCOPE_FRAGMENT ? lower_local(gemm->lower, a)
                                         : block_local(arena, body, "a", a->type, sets * a_count, place(gemm));
    gemm->b = block_local(arena, body, "b", b->type, sets * b_count, place(gemm));
    Type a_type = type_named(gemm->info->a_type), b_type = type_named(gemm->info->b_type);
    if (is_converted(gemm->info, gemm->stmt, GEMM_A))
        gemm->wide_a = block_local(arena, body, "wide_a", a_type, gemm->a_values, place(gemm));
    if (is_converted(gemm->info, gemm->stmt, GEMM_B))
        gemm->wide_b = block_local(arena, body, "wide_b", b_type, b_count, place(gemm));
    warp_corner(gemm, split, body);
}

static void lower_mma(Gemm *gemm, Block *out) {
    Stmt *block = s_block(gemm->arena);
    Expr *kk;
    gemm_begin(gemm, 1, &block->block);
    Block *body = gemm_counted(gemm, LOOP_UNROLL, "kk", gemm->k_steps, &kk, &block->block);
    gemm_load(gemm, kk, body);
    gemm_convert(gemm, body);
    gemm_multiply(gemm, kk, 0, gemm->m_tiles, body);
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

// for (k) unroll (r) acc[r] += a[row(t, r), k] * b[k, column(t, r)]; equal loads of the values are one load for the
// back end.
static void lower_fma(Gemm *gemm, Block *out) {
    Arena *arena = gemm->arena;
    Lower *lower = gemm->lower;
    const Buf *fragment = operand_of(gemm, GEMM_ACC)->buf;
    Type type = type_compute(gemm->acc->type);
    Expr *k, *r, *at[2];
    Block *body = gemm_counted(gemm, LOOP_SERIAL, "k", region_extent(operand_of(gemm, GEMM_A), 1), &k, out);
    body = gemm_counted(gemm, LOOP_UNROLL, "r", tv_values(fragment->layout), &r, body);
    Expr *in[2] = {lower_thread(lower), r};
    layout_forward(arena, lower->facts, fragment->layout, in, at);
    Expr *a = load_element(gemm, operand_element(gemm, GEMM_A, at[0], k), NULL);
    Expr *b = load_element(gemm, operand_element(gemm, GEMM_B, at[1], k), NULL);
    Expr *sum = multiply_add(gemm, type, a, b, e_cast(arena, type, e_load1(arena, gemm->acc, r)));
    body = block_if(arena, body, lower_inside(lower, fragment->layout, fragment, r));
    block_store1(arena, body, gemm->acc, r, e_cast(arena, gemm->acc->type, sum));
}

// Where it does not accumulate it starts from zeros.
static void clear_accumulator(Gemm *gemm, Block *out) {
    Arena *arena = gemm->arena;
    Expr *accumulate = gemm->stmt->call.args[GEMM_ACCUMULATE].value, *r;
    if (!accumulate) return;
    Block *body = block_if(arena, out, e_unary(arena, UNARY_NOT, lower_expr(gemm->lower, accumulate)));
    body = gemm_counted(gemm, LOOP_UNROLL, "r", tv_values(operand_of(gemm, GEMM_ACC)->buf->layout), &r, body);
    block_store1(arena, body, gemm->acc, r, e_zero(arena, gemm->acc->type));
}

void lower_gemm(Lower *lower, Stmt *stmt, Block *out) {
    Gemm gemm = {.lower = lower, .arena = lower->arena, .stmt = stmt};
    gemm.info = gemm_instruction(lower->target, stmt);
    EXPECT(lower->context->failure, operand_of(&gemm, GEMM_ACC)->buf->layout, "the accumulator '%s' has no layout",
           operand_of(&gemm, GEMM_ACC)->buf->name);
    gemm.acc = lower_local(lower, operand_of(&gemm, GEMM_ACC)->buf);
    int mark = facts_mark(lower->facts);
    clear_accumulator(&gemm, out);
    if (gemm.info) lower_mma(&gemm, out);
    else lower_fma(&gemm, out);
    facts_release(lower->facts, mark);
}
