// gemm for one thread: ldmatrix and mma on the tensor cores, or FMAs.
//
// A warp owns warp_m x warp_n of the accumulator, as MT x NT instruction tiles; its register layout was fixed by
// layout-inference (fragment_accumulator). For each k step of the instruction:
//
//     ldmatrix x4   a[i * 8]   for each of the MT row tiles (16 x 16 of A)
//     ldmatrix x4   b[j * 4]   for each pair of column tiles (16 x 16 of B), x2 for an odd last one
//     mma           acc[(i * NT + j) * 4] += a[i * 8] * b[j * 4]
//
// All four operand orders come from one table. ldmatrix gives lane l the row fragment that it needs if k is contiguous
// in memory; if the other dim is contiguous, the .trans form transposes each 8x8 matrix. (PTX ISA, ldmatrix; "Matrix
// fragments for mma.m16n8k16".) Operands that ldmatrix cannot read (other widths) are loaded by the instruction's own
// layout, in runs along k. Operand a in registers is used in place.
//
// For ldmatrix, 8-bit elements that are contiguous along k are 16-bit pairs: each lane gets the operands of 8-bit
// instructions. Without 8-bit instructions, operands are converted to 16 bits in registers, exactly, and one load of 32
// k feeds two instructions. The lane holds k = 4 * member + {0,1,2,3} and the instruction uses them as 2 * member +
// {0,1} | + 8: a permutation of k, the same for both operands.
//
// Loops over tiles that end in a gemm: lower_gemm_loop.c.
#include "passes/lower/lower_gemm.h"
#include "ir/build.h"
#include "passes/analysis/util.h"
#include "passes/layout/fragment.h"
#include <string.h>

// ---- properties of a gemm ----

const MmaInfo *gemm_instruction(const Target *target, const Stmt *gemm) {
    return via_is(gemm, VIA_MMA) ? gemm_mma(target, gemm) : NULL;
}

// Bytes of an element of an ldmatrix matrix: a row has as many elements as the matrix has rows.
static int matrix_element(void) {
    return matrix_facts.row_bytes / matrix_facts.rows;
}

static bool outer_is_contiguous(const Region *region, int operand) {
    return region->transposed == (operand == 0);
}

static bool is_converted(const MmaInfo *info, const Stmt *gemm, int operand) {
    return strcmp(operand == 0 ? info->a_type : info->b_type, gemm_type(gemm, operand)) != 0;
}

static bool rows_start_at(const Region *region, int64_t unit) {
    return region->buf->scope == SCOPE_SHARED && region_keeps_runs(region, unit);
}

static bool has_matrix_rows(const Region *region) {
    return rows_start_at(region, matrix_facts.row_bytes / type_bytes(region->buf->type));
}

// Pairs of 8-bit elements along k, in shared memory.
static bool has_pairs(const Stmt *gemm, int operand) {
    const Region *region = gemm->call.args[operand].region;
    return type_bytes(region->buf->type) * 2 == matrix_element() && !outer_is_contiguous(region, operand) &&
           has_matrix_rows(region);
}

int64_t gemm_step(const Target *target, const Stmt *gemm) {
    const MmaInfo *info = gemm_instruction(target, gemm);
    bool pairs = is_converted(info, gemm, 0) && is_converted(info, gemm, 1) && has_pairs(gemm, 0) && has_pairs(gemm, 1);
    bool two = target_has(target, FEATURE_LDMATRIX) && pairs;
    return two && region_extent(gemm_of(gemm).a, 1) % (2 * info->k) == 0 ? 2 * info->k : info->k;
}

bool matrix_load_possible(const Target *target, const Stmt *gemm, int operand) {
    const Region *region = gemm->call.args[operand].region;
    const MmaInfo *info = gemm_instruction(target, gemm);
    int64_t step = gemm_step(target, gemm);
    if (!target_has(target, FEATURE_LDMATRIX) || region_extent(gemm_of(gemm).a, 1) % step) return false;
    if (is_converted(info, gemm, operand)) return has_pairs(gemm, operand) && step > info->k;
    bool whole = type_bytes(region->buf->type) == matrix_element() && has_matrix_rows(region);
    return whole || has_pairs(gemm, operand);
}

MatrixLoad matrix_load(const Target *target, const Stmt *gemm, int operand, int count) {
    const Region *region = gemm->call.args[operand].region;
    int pack = matrix_element() / type_bytes(region->buf->type);
    return (MatrixLoad){.is_b = operand == 1,
                        .trans = outer_is_contiguous(region, operand),
                        .count = count,
                        .across = (int)gemm_step(target, gemm) / (matrix_facts.rows * pack),
                        .pack = pack};
}

int64_t operand_run(const Stmt *gemm, int operand, const Layout *layout) {
    const LayoutMode *first = &layout->in[TV_VALUE].modes[0];
    const Region *region = gemm->call.args[operand].region;
    bool along_k = layout->in[TV_VALUE].count > 0 && first->out == 1 && first->stride == 1;
    if (!along_k || outer_is_contiguous(region, operand) || !rows_start_at(region, first->extent)) return 1;
    return region_extent(gemm_of(gemm).a, 1) % first->extent == 0 ? first->extent : 1;
}

// The matrices of an a tile come row half first, those of a b tile k half first; .trans swaps the order of the lanes.
// With one matrix along k they come one below the other.
void matrix_lane(Arena *arena, const MatrixLoad *load, Expr *lane, Expr **outer, Expr **inner) {
    Expr *eight = e_int(arena, 8), *sixteen = e_int(arena, 16);
    lane = e_rem(arena, lane, (int64_t)8 * load->count);
    Expr *low = e_mod(arena, lane, eight);
    if (load->across == 1) {
        *outer = load->trans ? e_sub(arena, lane, low) : lane;
        *inner = load->trans ? low : e_int(arena, 0);
        return;
    }
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

static bool in_fragment(const GemmOperand *operand) {
    return operand->region->buf->scope == SCOPE_FRAGMENT;
}

// Physical address of operand element (outer, inner k) in shared memory.
static Region *operand_element(Gemm *gemm, int operand, Expr *outer, Expr *inner) {
    const Region *region = gemm->operands[operand].region;
    Expr *at[2] = {operand == GEMM_A ? outer : inner, operand == GEMM_A ? inner : outer};
    return lower_place(gemm->lower, region->buf, region->count, region_indices(gemm->arena, region, at));
}

Block *gemm_counted(Gemm *gemm, LoopKind kind, const char *name, int64_t count, Expr **index, Block *out) {
    return lower_counted(gemm->lower, kind, name, 0, count, place(gemm), index, out);
}

// Index of slot `slot` of an operand's registers in the current set.
static Expr *in_set(const Gemm *gemm, const GemmOperand *operand, Expr *slot) {
    if (!gemm->set) return slot;
    return e_add(gemm->arena, e_times(gemm->arena, gemm->set, operand->tiles * operand->values), slot);
}

// A load of several tiles of an operand, from element (outer, inner) on, to its registers from `slot` on.
typedef struct Load {
    int operand;
    Expr *slot, *outer, *inner;
} Load;

static void push_ldmatrix(Gemm *gemm, const Load *load, int count, Block *out) {
    Arena *arena = gemm->arena;
    Expr *outer, *inner;
    MatrixLoad matrices = matrix_load(gemm->lower->target, gemm->stmt, load->operand, count);
    matrix_lane(arena, &matrices, gemm->lane, &outer, &inner);
    Region *from =
        operand_element(gemm, load->operand, e_add(arena, load->outer, outer), e_add(arena, load->inner, inner));
    BLOCK_CALL(arena, out, place(gemm), OP_LDMATRIX,
               arg_element(arena, gemm->operands[load->operand].local, load->slot), arg_region(from),
               arg_int(arena, count), arg_value(e_bool(arena, matrices.trans)));
}

// Where a run of values of an operand, from `slot` on, is loaded: within the tile's k. Beyond it they are zero.
static Block *within_k(Gemm *gemm, const Buf *local, Expr *slot, int64_t run, Expr *k, Block *out) {
    Arena *arena = gemm->arena;
    int64_t end = region_extent(gemm->operands[GEMM_A].region, 1);
    if (end % gemm->step == 0) return out;
    Expr *e;
    Block *zeros = gemm_counted(gemm, LOOP_UNROLL, "e", run, &e, out);
    block_store1(arena, zeros, (Buf *)local, e_add(arena, slot, e), e_zero(arena, local->type));
    return block_if(arena, out, e_lt(arena, k, e_int(arena, end)));
}

// Value v of the instruction's layout is at (outer, k) = layout(lane, v); consecutive values are one access if memory
// allows.
static void push_elements(Gemm *gemm, const Load *load, Block *out) {
    Arena *arena = gemm->arena;
    const GemmOperand *operand = &gemm->operands[load->operand];
    int64_t run = operand_run(gemm->stmt, load->operand, operand->layout);
    EXPECT(gemm->lower->context->failure, operand->values % run == 0, "%lld values in runs of %lld",
           (long long)operand->values, (long long)run);
    Expr *v, *e = e_int(arena, 0), *at[2];
    Block *body = gemm_counted(gemm, LOOP_UNROLL, "v", operand->values / run, &v, out);
    Expr *first = e_times(arena, v, run), *in[2] = {gemm->lane, first};
    layout_forward(arena, gemm->lower->facts, operand->layout, in, at);
    bool whole = run > 1 && layout_keeps_runs(operand->region->buf->layout, run);
    Expr *outer = e_add(arena, load->outer, at[0]), *inner = e_add(arena, load->inner, at[1]);
    first = e_add(arena, load->slot, first);
    body = within_k(gemm, operand->local, first, run, inner, body);
    if (run > 1) body = gemm_counted(gemm, whole ? LOOP_VECTORIZED : LOOP_UNROLL, "e", run, &e, body);
    Region *from = operand_element(gemm, load->operand, outer, whole ? inner : e_add(arena, inner, e));
    RegionDim *last = &from->dims[from->count - 1];
    if (whole) last->start = e_add(arena, last->start, e);
    block_store1(arena, body, operand->local, e_add(arena, first, e), e_load_at(arena, from));
}

// Tiles number i * tiles .. (i + 1) * tiles of an operand in k step kk.
static Load load_of(const Gemm *gemm, int operand, Expr *i, int64_t tiles, Expr *kk) {
    Arena *arena = gemm->arena;
    const GemmOperand *o = &gemm->operands[operand];
    return (Load){operand, in_set(gemm, o, e_times(arena, i, tiles * o->values)),
                  e_add(arena, o->corner, e_times(arena, i, tiles * o->extent)), e_times(arena, kk, gemm->step)};
}

// ldmatrix loads up to four matrices: one or two tiles of a, two or four of b.
static void load_operand(Gemm *gemm, int operand, Expr *kk, Block *out) {
    const GemmOperand *o = &gemm->operands[operand];
    bool matrices = matrix_load_possible(gemm->lower->target, gemm->stmt, operand);
    int64_t each = 4, tiles, loads, done;   // matrices of a tile, tiles of a load
    Expr *i;
    if (matrices) each = o->extent / 8 * matrix_load(gemm->lower->target, gemm->stmt, operand, 4).across;
    tiles = 4 / each, loads = o->tiles / tiles, done = loads * tiles;
    if (in_fragment(o)) return;
    if (loads > 0) {
        Block *body = gemm_counted(gemm, LOOP_UNROLL, operand == GEMM_A ? "i" : "j", loads, &i, out);
        Load load = load_of(gemm, operand, i, tiles, kk);
        if (matrices) push_ldmatrix(gemm, &load, 4, body);
        else push_elements(gemm, &load, body);
    }
    for (int count = 2; count > 0; count /= 2) {
        if ((o->tiles - done) * each < count) continue;
        Load last = load_of(gemm, operand, e_int(gemm->arena, done), 1, kk);
        push_ldmatrix(gemm, &last, count, out);
        done += count / each;
    }
}

void gemm_load(Gemm *gemm, Expr *kk, Block *out) {
    load_operand(gemm, GEMM_A, kk, out);
    load_operand(gemm, GEMM_B, kk, out);
}

// Converts tile `tile` of an operand, in the current set, to registers of the instruction's type from `to` on.
static void convert_tile(Gemm *gemm, int operand, Expr *tile, Expr *to, Block *out) {
    Arena *arena = gemm->arena;
    const GemmOperand *o = &gemm->operands[operand];
    Expr *v;
    Block *body = gemm_counted(gemm, LOOP_UNROLL, "v", o->values, &v, out);
    Expr *source = v;
    if (gemm->step > gemm->info->k &&
        operand == GEMM_A) {   // 4 values of a row in one register; the instruction needs 2 and 2
        Expr *pair = e_rem(arena, v, 2), *row = e_rem(arena, e_over(arena, v, 2), 2);
        Expr *high = e_rem(arena, e_over(arena, v, 4), 2), *half = e_over(arena, v, 8);
        source = e_add(arena, e_add(arena, e_times(arena, half, 8), e_times(arena, row, 4)),
                       e_add(arena, e_times(arena, high, 2), pair));
    }
    Expr *slot = in_set(gemm, o, e_add(arena, e_times(arena, tile, o->values), source));
    block_store1(arena, body, o->wide, e_add(arena, to, v),
                 e_cast(arena, o->wide->type, e_load1(arena, o->local, slot)));
}

// Converts all tiles of b, which every row of tiles uses.
void gemm_convert(Gemm *gemm, Block *out) {
    const GemmOperand *b = &gemm->operands[GEMM_B];
    Expr *j;
    if (!b->wide) return;
    Block *body = gemm_counted(gemm, LOOP_UNROLL, "j", b->tiles, &j, out);
    convert_tile(gemm, GEMM_B, j, e_times(gemm->arena, j, b->values), body);
}

// Registers of piece p of a tile, as operand of the instruction.
static Arg multiplied(const Gemm *gemm, const GemmOperand *o, Expr *tile, Expr *p) {
    Arena *arena = gemm->arena;
    int64_t pieces = gemm->step / gemm->info->k;
    Expr *slot = e_add(arena, e_times(arena, tile, o->values), e_times(arena, p, o->values / pieces));
    if (o->wide) return arg_element(arena, o->wide, slot);
    return arg_element(arena, o->local, in_fragment(o) ? slot : in_set(gemm, o, slot));
}

// The tile of a in registers for row i of tiles and step kk: of all columns of its fragment, by which its layout is.
static Expr *tile_in_registers(const Gemm *gemm, Expr *i, Expr *kk) {
    Arena *arena = gemm->arena;
    const Region *a = gemm->operands[GEMM_A].region;
    int64_t first = a->dims[1].start->integer / gemm->step, columns = buf_extent(a->buf, 1) / gemm->step;
    return e_add(arena, e_times(arena, i, columns), e_plus(arena, kk, first));
}

void gemm_multiply(Gemm *gemm, Expr *kk, int64_t from, int64_t to, Block *out) {
    Arena *arena = gemm->arena;
    const GemmOperand *a = &gemm->operands[GEMM_A], *b = &gemm->operands[GEMM_B];
    Expr *i, *j, *p = e_int(arena, 0);
    Block *body = lower_counted(gemm->lower, LOOP_UNROLL, "i", from, to, place(gemm), &i, out);
    Expr *a_tile = in_fragment(a) ? tile_in_registers(gemm, i, kk) : i;
    if (a->wide) {   // one row of tiles at a time
        a_tile = e_int(arena, 0);
        convert_tile(gemm, GEMM_A, i, a_tile, body);
    }
    body = gemm_counted(gemm, LOOP_UNROLL, "j", b->tiles, &j, body);
    if (gemm->step > gemm->info->k) body = gemm_counted(gemm, LOOP_UNROLL, "p", gemm->step / gemm->info->k, &p, body);
    Expr *c = e_times(arena, e_add(arena, e_times(arena, i, b->tiles), j), gemm->c_values);
    BLOCK_CALL(arena, body, place(gemm), OP_MMA, arg_name(gemm->info->name), multiplied(gemm, a, a_tile, p),
               multiplied(gemm, b, j, p), arg_element(arena, gemm->acc, c));
}

// Declares the operand's registers; its instruction tiles are split over `warps` warps; this is number `warp`.
static void begin_operand(Gemm *gemm, int operand, int64_t warps, int sets, Block *body) {
    Arena *arena = gemm->arena;
    GemmOperand *o = &gemm->operands[operand];
    const MmaInfo *info = gemm->info;
    bool is_a = operand == GEMM_A;
    Buf *buf = o->region->buf;
    o->layout = instruction_layout(arena, is_a ? info->a_layout : info->b_layout);
    o->extent = is_a ? info->m : info->n;
    o->tiles = region_extent(gemm_of(gemm->stmt).acc, operand) / warps / o->extent;
    EXPECT(gemm->lower->context->failure,
           o->tiles > 0 && o->tiles * warps * o->extent == region_extent(gemm_of(gemm->stmt).acc, operand),
           "%lld warps do not divide the tiles of '%s'", (long long)warps, buf->name);
    o->values = layout_extent_in(o->layout, TV_VALUE) * (gemm->step / info->k);
    o->local = in_fragment(o)
                   ? lower_local(gemm->lower, buf)
                   : block_local(arena, body, is_a ? "a" : "b", buf->type, sets * o->tiles * o->values, place(gemm));
    const char *type = is_a ? info->a_type : info->b_type;
    if (is_converted(info, gemm->stmt, operand))   // for one tile of a, for all tiles of b
        o->wide =
            block_local(arena, body, is_a ? "wide_a" : "wide_b", strcmp(type, "tf32") ? type_named(type) : TYPE_F32,
                        (is_a ? 1 : o->tiles) * o->values, place(gemm));
}

void gemm_begin(Gemm *gemm, int sets, Block *body) {
    Arena *arena = gemm->arena;
    const Target *target = gemm->lower->target;
    const Attr *split = attr_get(gemm->stmt->attrs, ATTR_WARPS);
    GemmOperand *a = &gemm->operands[GEMM_A], *b = &gemm->operands[GEMM_B];
    EXPECT(gemm->lower->context->failure, split, "a gemm by mma has no @warps");
    int64_t warps_m = split->args[0].integer, warps_n = split->args[1].integer;
    gemm->step = gemm_step(target, gemm->stmt);
    int64_t k = region_extent(a->region, 1);
    EXPECT(gemm->lower->context->failure, gemm->step % gemm->info->k == 0 && (k % gemm->step == 0 || !in_fragment(a)),
           "%lld of k in steps of %lld", (long long)k, (long long)gemm->step);
    EXPECT(gemm->lower->context->failure, warps_m * warps_n * target->warp_lanes <= gemm->lower->threads,
           "%lld x %lld warps of %lld threads", (long long)warps_m, (long long)warps_n,
           (long long)gemm->lower->threads);
    gemm->k_steps = (k + gemm->step - 1) / gemm->step;
    gemm->c_values = layout_extent_in(instruction_layout(arena, gemm->info->c_layout), TV_VALUE);
    begin_operand(gemm, GEMM_A, warps_m, sets, body);
    begin_operand(gemm, GEMM_B, warps_n, sets, body);
    Expr *warp = e_over(arena, lower_thread(gemm->lower), target->warp_lanes);
    Expr *m = e_rem(arena, warp, warps_m), *n = e_rem(arena, e_over(arena, warp, warps_m), warps_n);
    gemm->lane = lower_named(gemm->lower, "lane", lower_lane(gemm->lower), place(gemm), body);
    a->corner = lower_named(gemm->lower, "row0", e_times(arena, m, a->tiles * a->extent), place(gemm), body);
    b->corner = lower_named(gemm->lower, "column0", e_times(arena, n, b->tiles * b->extent), place(gemm), body);
}

static void lower_mma(Gemm *gemm, Block *out) {
    Block *block = block_nested(gemm->arena, out, (Span){0});
    Expr *kk;
    gemm_begin(gemm, 1, block);
    Block *body = gemm_counted(gemm, LOOP_UNROLL, "kk", gemm->k_steps, &kk, block);
    gemm_load(gemm, kk, body);
    gemm_convert(gemm, body);
    gemm_multiply(gemm, kk, 0, gemm->operands[GEMM_A].tiles, body);
}

// ---- without tensor cores ----

static Expr *multiply_add(Arena *arena, Type type, Expr *a, Expr *b, Expr *c) {
    a = e_cast(arena, type, a);
    b = e_cast(arena, type, b);
    if (!type_is_float(type)) return e_add(arena, c, e_mul(arena, a, b));
    return E_CALL(arena, OP_FMA, arg_value(a), arg_value(b), arg_value(c));
}

// for (k) unroll (r) acc[r] += a[row(t, r), k] * b[k, column(t, r)]; the back end merges equal loads.
static void lower_fma(Gemm *gemm, const Buf *fragment, Block *out) {
    Arena *arena = gemm->arena;
    Lower *lower = gemm->lower;
    Type type = type_compute(gemm->acc->type);
    Expr *k, *r, *at[2];
    Block *body = gemm_counted(gemm, LOOP_SERIAL, "k", region_extent(gemm->operands[GEMM_A].region, 1), &k, out);
    body = gemm_counted(gemm, LOOP_UNROLL, "r", tv_values(fragment->layout), &r, body);
    Expr *in[2] = {lower_thread(lower), r};
    layout_forward(arena, lower->facts, fragment->layout, in, at);
    Expr *a = e_load_at(arena, operand_element(gemm, GEMM_A, at[0], k));
    Expr *b = e_load_at(arena, operand_element(gemm, GEMM_B, at[1], k));
    Expr *sum = multiply_add(arena, type, a, b, e_cast(arena, type, e_load1(arena, gemm->acc, r)));
    body = block_if(arena, body, lower_inside(lower, fragment->layout, fragment, r));
    block_store1(arena, body, gemm->acc, r, e_cast(arena, gemm->acc->type, sum));
}

// Starts from zeros unless it accumulates.
static void clear_accumulator(Gemm *gemm, Expr *accumulate, const Layout *layout, Block *out) {
    Arena *arena = gemm->arena;
    Expr *r;
    if (!accumulate) return;
    Block *body = block_if(arena, out, e_unary(arena, UNARY_NOT, lower_expr(gemm->lower, accumulate)));
    body = gemm_counted(gemm, LOOP_UNROLL, "r", tv_values(layout), &r, body);
    block_store1(arena, body, gemm->acc, r, e_zero(arena, gemm->acc->type));
}

Gemm gemm_new(Lower *lower, Stmt *stmt) {
    GemmOp gemm = gemm_of(stmt);
    EXPECT(lower->context->failure, gemm.acc->buf->layout, "the accumulator '%s' has no layout", gemm.acc->buf->name);
    return (Gemm){.lower = lower,
                  .arena = lower->arena,
                  .stmt = stmt,
                  .info = gemm_instruction(lower->target, stmt),
                  .acc = lower_local(lower, gemm.acc->buf),
                  .operands = {{.region = gemm.a}, {.region = gemm.b}}};
}

void lower_gemm(Lower *lower, Stmt *stmt, Block *out) {
    Gemm gemm = gemm_new(lower, stmt);
    const Buf *acc = gemm_of(stmt).acc->buf;
    int mark = facts_mark(lower->facts);
    clear_accumulator(&gemm, gemm_of(stmt).accumulate, acc->layout, out);
    if (gemm.info) lower_mma(&gemm, out);
    else lower_fma(&gemm, acc, out);
    facts_release(lower->facts, mark);
}
