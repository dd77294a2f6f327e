// Tensor-core operations of a warp: ldmatrix, stmatrix and mma.
//
// The fragments of an mma come from the target's thread-value layouts, (lane, value) -> coordinates: compiled once into
// tables of places in a small dense matrix. Executing is then gather, multiply, scatter.
//
//     c of m16n8: ((4,8),(2,2)):((2@1,1@0),(1@1,8@0))     lane 5 = (1, 1), value 2 = (0, 1)  ->  row 1 + 8, column 2
#include "emulator/machine.h"
#include "emulator/products.h"
#include <string.h>

enum { MOST_ELEMENTS = 64 * 64 };

typedef struct FragmentCode {
    int values;   // of a lane
    int rows, columns;
    const int16_t *at;   // [value][lane]: row * columns + column
    bool tf32;
} FragmentCode;

struct MmaCode {
    int m, n, k;
    bool float8;            // its operands are floats of 8 bits
    FragmentCode a, b, c;   // b as (n, k)
};

// ---- tables ----
static FragmentCode fragment_code(Arena *arena, Failure *failure, const char *text, const char *type, int rows,
                                  int columns) {
    const char *why = "";
    const Layout *layout = layout_parse(arena, text, 0, &why);
    EXPECT(failure, layout && layout->rank_in == 2 && layout->rank_out == 2, "the fragment layout '%s': %s", text, why);
    int values = (int)layout_extent_in(layout, 1);
    EXPECT(failure, layout_extent_in(layout, 0) == LANES && rows * columns <= MOST_ELEMENTS, "the fragment layout '%s'",
           text);
    int16_t *at = NEW_ARRAY(arena, int16_t, values * LANES);
    for (int v = 0; v < values; v++)
        for (int l = 0; l < LANES; l++) {
            int64_t in[2] = {l, v}, out[2];
            layout_eval(layout, in, out);
            at[v * LANES + l] = (int16_t)(out[0] * columns + out[1]);
        }
    return (FragmentCode){values, rows, columns, at, strcmp(type, "tf32") == 0};
}

const MmaCode *mma_compile(Arena *arena, Failure *failure, const MmaInfo *info) {
    MmaCode *code = NEW(arena, MmaCode);
    *code = (MmaCode){.m = info->m, .n = info->n, .k = info->k, .float8 = info->feature == FEATURE_MMA_FP8};
    code->a = fragment_code(arena, failure, info->a_layout, info->a_type, info->m, info->k);
    code->b = fragment_code(arena, failure, info->b_layout, info->b_type, info->n, info->k);
    code->c = fragment_code(arena, failure, info->c_layout, info->c_type, info->m, info->n);
    return code;
}

// ---- mma ----
static bool gather(Agent *agent, const Place *place, const FragmentCode *code, Word *matrix, Lanes **lanes) {
    const Mem *mem = machine_mem(agent->cta->machine, place->mem);
    int64_t element = local_offset(agent, place, 0, code->values);
    if (element < 0) return false;
    *lanes = &agent->locals[mem->local].data[element];
    for (int v = 0; v < code->values; v++) {
        if (!local_ready(agent, mem, element + v, agent->full)) return false;
        const Lanes *value = *lanes + v;
        const int16_t *at = code->at + v * LANES;
        for (int l = 0; l < LANES; l++) matrix[at[l]] = value->w[l];
    }
    for (int i = 0; code->tf32 && i < code->rows * code->columns; i++) matrix[i].f = to_tf32(matrix[i].f);
    return true;
}

// Ada and the Blackwell of sm_120 multiply 8-bit floats as such; Hopper's mma converts them to f16.
static bool is_narrow(const Machine *machine, const MmaCode *code) {
    return code->float8 && target_has(machine->target, FEATURE_MMA_FP8_UNITS);
}

static void matrix_multiply(Agent *agent, const Call *call) {
    const MmaCode *code = call->mma;
    Word a[MOST_ELEMENTS], b[MOST_ELEMENTS], c[MOST_ELEMENTS];
    Lanes *lanes = NULL;
    if (!whole_warp(agent, "mma") || !gather(agent, CALL_ARG(call, MMA, a).place, &code->a, a, &lanes) ||
        !gather(agent, CALL_ARG(call, MMA, b).place, &code->b, b, &lanes) ||
        !gather(agent, CALL_ARG(call, MMA, c).place, &code->c, c, &lanes))
        return;
    if (!spend(agent, code->m * code->n * code->k, STEP_PRODUCTS)) return;
    Type type = machine_mem(agent->cta->machine, CALL_ARG(call, MMA, c).place->mem)->type;
    const Machine *machine = agent->cta->machine;
    Summing how = summing_of(machine->options.approximate, machine->target, is_narrow(machine, code));
    if (!type_is_float(type)) multiply_integers(code->m, code->n, code->k, a, b, c);
    else if (type == TYPE_F64) multiply_doubles(code->m, code->n, code->k, a, b, c);
    else multiply_floats(&how, code->m, code->n, code->k, a, b, c);
    bool narrow = type != TYPE_F32 && type != TYPE_F64;
    for (int v = 0; v < code->c.values; v++) {
        const int16_t *at = code->c.at + v * LANES;
        for (int l = 0; l < LANES; l++) {
            Word word = c[at[l]];
            if (narrow) word = word_convert(type, type_is_float(type) ? TYPE_F32 : TYPE_I64, word);
            lanes[v].w[l] = word;
        }
    }
}

// ---- ldmatrix, stmatrix: 8 rows of 16 bytes a matrix; lane l holds 4 bytes of row l / 4, transposed: of column
// l / 4 of 16 bits ----
typedef struct MatrixMove {
    const Mem *mem, *array_mem;
    LocalArray *array;
    int64_t element;   // of the local array
    int count, row_elements, lane_elements;
    bool trans, load;
    int64_t rows[LANES];   // element at which each row begins
} MatrixMove;

static bool matrix_setup(Agent *agent, const Call *call, MatrixMove *move) {
    move->load = call->op == OP_LDMATRIX;
    const Place *to = CALL_ARG(call, LDMATRIX, dst).place, *from = CALL_ARG(call, LDMATRIX, src).place;
    const Place *local = move->load ? to : from, *place = move->load ? from : to;
    const Machine *machine = agent->cta->machine;
    move->mem = machine_mem(machine, place->mem);
    move->array_mem = machine_mem(machine, local->mem);
    move->count = (int)CALL_ARG(call, LDMATRIX, count).number;
    move->trans = CALL_ARG(call, LDMATRIX, trans).number != 0;
    move->row_elements = 16 / move->mem->bytes;
    move->lane_elements = 4 / move->mem->bytes;
    EXPECT(machine->failure,
           move->count >= 1 && move->count <= 4 && move->mem->bytes <= 4 && (!move->trans || move->mem->bytes <= 2),
           "%s of %d matrices of '%s'", op_info(call->op)->text, move->count, move->mem->buf->name);
    if (!whole_warp(agent, op_info(call->op)->text)) return false;
    int64_t spans[LANES];
    for (int l = 0; l < LANES; l++) spans[l] = move->row_elements;
    int lanes = 8 * move->count;
    Mask mask = lanes == LANES ? UINT32_MAX : ((Mask)1 << lanes) - 1;
    if (place_offsets(agent, place, mask, spans, move->rows) != mask) return false;
    for (int l = 0; l < lanes; l++)
        if (!access_aligned(agent, move->mem, move->rows[l], 16, l)) return false;
    move->array = &agent->locals[move->array_mem->local];
    move->element = local_offset(agent, local, 0, move->count * move->lane_elements);
    return move->element >= 0;
}

static void matrix_note(Agent *agent, const MatrixMove *move) {
    int64_t bytes[LANES];
    for (int r = 0; r < 8 * move->count; r++) {
        bytes[r] = move->mem->offset + move->rows[r] * move->mem->bytes;
        if (agent->cta->machine->options.races)
            race_shared(agent, r, bytes[r], 16, move->load ? TOUCH_READ : TOUCH_WRITE, move->mem, agent->pc);
        if (move->load) state_readable(agent, move->mem, move->rows[r], move->row_elements, r);
        else {
            state_writable(agent, move->mem, move->rows[r], move->row_elements, r);
            state_set(agent->cta, move->mem, move->rows[r], move->row_elements, STATE_READY);
        }
    }
    conflicts_rows(agent, move->mem, bytes, move->count);
}

static void move_one(Agent *agent, const MatrixMove *move, int matrix, Word *words) {
    uint8_t *data = mem_data(agent->cta, move->mem);
    int n = move->row_elements, bytes = move->mem->bytes, packed = bytes < 2 ? 2 / bytes : 1;
    if (move->load)
        for (int r = 0; r < 8; r++)
            elements_load(move->mem->type, data + move->rows[matrix * 8 + r] * bytes, 1, n, words + r * n);
    for (int e = 0; e < move->lane_elements; e++) {
        int64_t slot = move->element + matrix * move->lane_elements + e;
        Lanes *lanes = &move->array->data[slot];
        if (!move->load) local_ready(agent, move->array_mem, slot, agent->full);
        for (int l = 0; l < LANES; l++) {
            int column = l % 4 * move->lane_elements + e;   // transposed: 16 bits are one, of `packed` elements
            Word *at =
                move->trans ? &words[column / packed * n + l / 4 * packed + e % packed] : &words[l / 4 * n + column];
            if (move->load) lanes->w[l] = *at;
            else *at = lanes->w[l];
        }
        if (move->load) move->array->init[slot] = UINT32_MAX;
    }
    if (!move->load)
        for (int r = 0; r < 8; r++)
            elements_store(move->mem->type, data + move->rows[matrix * 8 + r] * bytes, 1, n, words + r * n);
}

static void matrix_move(Agent *agent, const Call *call) {
    MatrixMove move;
    Word words[8 * 16];
    if (!matrix_setup(agent, call, &move)) return;
    spend(agent, 8 * 16 * move.count, STEP_BYTES);
    matrix_note(agent, &move);
    for (int i = 0; i < move.count; i++) move_one(agent, &move, i, words);
}

// ---- ldmatrix_bytes: matrices of 16 rows of 16 bytes; lane l holds 4 bytes of column l / 4, then of column l / 4 + 8 ----
static void byte_matrices(Agent *agent, const Call *call) {
    const Place *to = CALL_ARG(call, LDMATRIX_BYTES, dst).place, *from = CALL_ARG(call, LDMATRIX_BYTES, src).place;
    Machine *machine = agent->cta->machine;
    MatrixMove move = {
        .mem = machine_mem(machine, from->mem), .array_mem = machine_mem(machine, to->mem), .load = true};
    int n = matrix_facts.byte_rows, count = (int)CALL_ARG(call, LDMATRIX_BYTES, count).number, lanes = n * count;
    int64_t spans[LANES];
    EXPECT(machine->failure, count >= 1 && lanes <= LANES && move.mem->bytes == 1,
           "ldmatrix_bytes of %d matrices of '%s'", count, move.mem->buf->name);
    if (!whole_warp(agent, op_info(call->op)->text)) return;
    move.count = lanes / matrix_facts.rows, move.row_elements = n;
    for (int l = 0; l < LANES; l++) spans[l] = n;
    Mask mask = lanes == LANES ? UINT32_MAX : ((Mask)1 << lanes) - 1;
    if (place_offsets(agent, from, mask, spans, move.rows) != mask) return;
    for (int l = 0; l < lanes; l++)
        if (!access_aligned(agent, move.mem, move.rows[l], n, l)) return;
    move.array = &agent->locals[move.array_mem->local];
    move.element = local_offset(agent, to, 0, n * lanes / LANES);
    if (move.element < 0) return;
    spend(agent, n * lanes, STEP_BYTES);
    matrix_note(agent, &move);
    Word words[LANES * 16];
    for (int r = 0; r < lanes; r++)
        elements_load(move.mem->type, mem_data(agent->cta, move.mem) + move.rows[r], 1, n, words + r * n);
    for (int e = 0; e < n * lanes / LANES; e++) {
        Lanes *values = &move.array->data[move.element + e];
        int matrix = e / 8, column = e / 4 % 2 * 8, row = e % 4;
        for (int l = 0; l < LANES; l++) values->w[l] = words[(matrix * n + l % 4 * 4 + row) * n + column + l / 4];
        move.array->init[move.element + e] = UINT32_MAX;
    }
}

const OpHandler matrix_handlers[OP_COUNT] = {
    [OP_LDMATRIX] = {.effect = matrix_move},
    [OP_LDMATRIX_BYTES] = {.effect = byte_matrices},
    [OP_STMATRIX] = {.effect = matrix_move},
    [OP_MMA] = {.effect = matrix_multiply},
};
