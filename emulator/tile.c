// Tile ops: each is computed on whole operands.
//
// An operand is a View: a region of a buffer, with start indices known. It is read into an array of Words in row-major
// order of its (transposed) shape, the op computes, and the result is written through the destination's view. Outside a
// tensor, or beyond a clipped extent, reading gives 0 and writing does nothing, each index by itself; outside of shared
// memory or a fragment it is an error.
//
// A started (`async`) op computes nothing yet: it is kept with its views, and its elements are marked as being written
// and read. It lands when something waits for it, so a program that does not wait reads old values, which is reported.
#include "emulator/machine.h"
#include "support/numbers.h"
#include <math.h>
#include <string.h>

typedef struct ViewDim {
    int64_t extent;         // of the operand
    int64_t start;          // index in the buffer of its first element
    int64_t clip;           // elements that are there
    int64_t size, stride;   // of the buffer
} ViewDim;

// The windows of an im2col view: where the row that a view begins with lies, and the taps that it reads.
typedef struct Windows {
    const Im2colCode *code;
    int64_t positions[MOST_WINDOWS], taps[MOST_WINDOWS];
} Windows;

typedef struct View {
    const Mem *mem;
    int rank;
    ViewDim dims[MAX_RANK];   // kept ones
    int64_t base;             // offset that the dropped indices give
    bool nothing;             // a dropped index lies outside
    int64_t elements;
    Windows windows;   // code NULL: none
} View;

typedef void (*ViewFn)(Agent *agent, const View *view, int64_t offset, int64_t stride, int64_t count, Word *words);

struct PendingTile {
    const Call *call;
    const Agent *agent;
    int pc;
    View views[4];
    int64_t group;
    bool live, overwrites;   // a gemm that does not accumulate
    bool done;               // its result is there, and not yet awaited
};

// ---- views ----
static bool inside(const ViewDim *dim, int64_t at, bool *clipped) {
    *clipped = at >= dim->clip;
    return !*clipped && (uint64_t)dim->start + (uint64_t)at < (uint64_t)dim->size;
}

// Beyond the last integer there is none.
static int64_t row_number(const ViewDim *dim, int64_t at) {
    int64_t row;
    return __builtin_add_overflow(dim->start, at, &row) ? -1 : row;
}

static void report_outside(Agent *agent, const Mem *mem, int64_t index, int dim_size) {
    Machine *machine = agent->cta->machine;
    const char *at = arena_printf(machine->arena, "%lld", (long long)index);
    const char *size = arena_printf(machine->arena, "%lld", (long long)dim_size);
    emu_report(machine, agent->pc, T_EMU_OUT_OF_RANGE, mem->buf->name, at, size, thread_text(agent, 0));
}

// A view of windows: [rows, channels] or [channels], at one tap of each window. Taps, and rows where windows
// walk over a tensor, begin inside.
static View windows_view(Agent *agent, const Tile *tile, const Mem *mem) {
    View view = {.mem = mem, .elements = 1, .windows.code = tile->im2col};
    int last = tile->count - 1;
    for (int w = 0; w < last - 1; w++) {
        int64_t tap = view.windows.taps[w] = agent->regs[tile->dims[w + 1].start].i[0];
        view.windows.positions[w] = agent->regs[tile->im2col->windows[w].positions].i[0];
        if ((uint64_t)tap >= (uint64_t)tile->im2col->windows[w].taps)
            report_outside(agent, mem, tap, (int)tile->im2col->windows[w].taps);
    }
    int64_t row = agent->regs[tile->dims[0].start].i[0];
    if (row < 0 && !tile->im2col->merged) report_outside(agent, mem, row, (int)mem->shape[tile->im2col->dims[0]]);
    for (int d = 0; d <= last; d += last) {
        int at = tile->im2col->dims[d];
        const TileDim *dim = &tile->dims[d];
        int64_t clip = dim->dropped ? 1 : agent->regs[dim->extent].i[0], extent = dim->dropped ? 1 : dim->tile;
        int64_t size = d ? mem->shape[at] : INT64_MAX, start = agent->regs[dim->start].i[0];
        view.dims[view.rank++] = (ViewDim){extent, start, clip, size, d ? mem->stride[at] : 0};
        view.elements *= extent;
    }
    return view;
}

static View view_of(Agent *agent, const Tile *tile) {
    const Mem *mem = machine_mem(agent->cta->machine, tile->mem);
    if (tile->im2col) return windows_view(agent, tile, mem);
    View view = {.mem = mem, .elements = 1};
    for (int d = 0; d < tile->count; d++) {
        const TileDim *dim = &tile->dims[d];
        int64_t start = agent->regs[dim->start].i[0];
        if (dim->dropped) {
            bool out = (uint64_t)start >= (uint64_t)mem->shape[d];
            if (out && mem->scope != SCOPE_GLOBAL) report_outside(agent, mem, start, (int)mem->shape[d]);
            view.nothing |= out;
            view.base += out ? 0 : start * mem->stride[d];
            continue;
        }
        int64_t clip = agent->regs[dim->extent].i[0];
        if (clip < 0) clip = 0;
        int64_t extent = dim->tile > 0 ? dim->tile : clip;   // a program's tensors have dynamic extents
        view.dims[view.rank++] = (ViewDim){extent, start, clip, mem->shape[d], mem->stride[d]};
        view.elements *= extent;
    }
    if (tile->transposed && view.rank >= 2) {
        ViewDim last = view.dims[view.rank - 1];
        view.dims[view.rank - 1] = view.dims[view.rank - 2];
        view.dims[view.rank - 2] = last;
    }
    return view;
}

static void check_local_range(Agent *agent, const View *view) {   // shared memory and fragments: all must be inside
    if (view->mem->scope == SCOPE_GLOBAL) return;
    for (int d = 0; d < view->rank; d++) {
        const ViewDim *dim = &view->dims[d];
        int64_t reach = smaller(dim->clip, dim->extent) - 1, last;
        if (__builtin_add_overflow(dim->start, reach, &last)) last = INT64_MAX;
        if (dim->start < 0) report_outside(agent, view->mem, dim->start, (int)dim->size);
        else if (last >= dim->size) report_outside(agent, view->mem, last, (int)dim->size);
    }
}

// Whether the tensor has the row of a view, and where: its offset is added.
static bool windows_row(const View *view, int64_t row, int64_t *offset) {
    const Windows *windows = &view->windows;
    const Mem *mem = view->mem;
    if (row < 0) return false;
    for (int i = windows->code->count - 1; i >= 0; i--) {
        const WindowCode *w = &windows->code->windows[i];
        int64_t positions = windows->positions[i], position = positions > 0 ? row % positions : 0;
        int64_t index = position * w->stride + windows->taps[i] * w->dilation - w->padding;
        row = positions > 0 ? row / positions : row;
        int dim = windows->code->dims[i + 1];
        if ((uint64_t)index >= (uint64_t)mem->shape[dim]) return false;
        *offset += index * mem->stride[dim];
    }
    int images = windows->code->dims[0];
    *offset += row * mem->stride[images];
    return (uint64_t)row < (uint64_t)mem->shape[images];
}

// Calls `visit` for the part of each row (along the last dim) that is there. Rows outside are skipped.
static void view_rows(Agent *agent, const View *view, Word *words, ViewFn visit) {
    check_local_range(agent, view);
    if (view->nothing || !view->elements) return;
    ViewDim whole = {1, 0, 1, 1, 0};
    const ViewDim *last = view->rank ? &view->dims[view->rank - 1] : &whole;
    int64_t high = smaller(last->clip, last->extent);
    if (last->start <= -high || last->start >= last->size) return;   // a start may be any integer
    int64_t low = larger(-last->start, 0);
    high = smaller(high, last->size - last->start);
    if (low >= high) return;
    int64_t rows = view->elements / last->extent, digits[MAX_RANK] = {0};
    for (int64_t row = 0; row < rows; row++) {
        int64_t offset = view->base + (last->start + low) * last->stride;
        bool there = true, clipped;
        for (int d = 0; d < view->rank - 1 && there; d++) {
            there = inside(&view->dims[d], digits[d], &clipped);
            if (there) offset += (view->dims[d].start + digits[d]) * view->dims[d].stride;
        }
        if (view->windows.code) there = there && windows_row(view, row_number(&view->dims[0], digits[0]), &offset);
        if (there)
            visit(agent, view, offset, last->stride, high - low, words ? words + row * last->extent + low : NULL);
        for (int d = view->rank - 2; d >= 0 && ++digits[d] == view->dims[d].extent; d--) digits[d] = 0;
    }
}

static void note_global(Agent *agent, const View *view, int64_t offset, int64_t stride, int64_t count, bool write) {
    if (view->mem->scope != SCOPE_GLOBAL || !view->mem->cells || !agent->cta->machine->options.races) return;
    for (int64_t n = 0; n < count; n++)
        race_global(agent, 0, view->mem, offset + n * stride, 1, write ? TOUCH_WRITE : TOUCH_READ, agent->pc);
}

// Roles run at the same time: each is a thread to the others.
static void note_role(Agent *agent, const View *view, int64_t offset, int64_t stride, int64_t count, bool write) {
    const Mem *mem = view->mem;
    if (!agent->role || mem->scope != SCOPE_SHARED || !agent->cta->machine->options.races) return;
    Touch touch = write ? TOUCH_WRITE : TOUCH_READ;
    for (int64_t n = 0; n < count; n++)
        race_shared(agent, 0, mem->offset + (offset + n * stride) * mem->bytes, mem->bytes, touch, mem, agent->pc);
}

static void read_row(Agent *agent, const View *view, int64_t offset, int64_t stride, int64_t count, Word *words) {
    const Mem *mem = view->mem;
    bool dense = stride == 1;   // then one look at all
    for (int64_t n = 0; n < (dense ? 1 : count) && mem_state(agent->cta, mem); n++)
        if (!state_readable(agent, mem, offset + n * stride, dense ? count : 1, 0)) break;
    note_global(agent, view, offset, stride, count, false);
    note_role(agent, view, offset, stride, count, false);
    elements_load(mem->type, mem_data(agent->cta, mem) + offset * mem->bytes, stride, count, words);
}

static void write_row(Agent *agent, const View *view, int64_t offset, int64_t stride, int64_t count, Word *words) {
    const Mem *mem = view->mem;
    bool dense = stride == 1;
    for (int64_t n = 0; n < (dense ? 1 : count) && mem_state(agent->cta, mem); n++) {
        if (!state_writable(agent, mem, offset + n * stride, dense ? count : 1, 0)) break;
        state_set(agent->cta, mem, offset + n * stride, dense ? count : 1, STATE_READY);
    }
    note_global(agent, view, offset, stride, count, true);
    note_role(agent, view, offset, stride, count, true);
    elements_store(mem->type, mem_data(agent->cta, mem) + offset * mem->bytes, stride, count, words);
}

static Word *scratch(Machine *machine, int which, int64_t count) {
    if (machine->scratch_size[which] < count) {
        machine->scratch_size[which] = count;
        machine->scratch[which] = NEW_ARRAY(machine->arena, Word, count);
    }
    return machine->scratch[which];
}

static Word *view_read(Agent *agent, const View *view, int which) {
    Word *words = scratch(agent->cta->machine, which, view->elements);
    memset(words, 0, sizeof *words * (size_t)view->elements);   // all types: 0
    view_rows(agent, view, words, read_row);
    return words;
}

static void view_write(Agent *agent, const View *view, Word *words) {
    view_rows(agent, view, words, write_row);
}

// ---- ops ----
static void op_copy(Agent *agent, const View *src, const View *dst) {
    Machine *machine = agent->cta->machine;
    EXPECT(machine->failure, src->elements == dst->elements, "a copy between %lld and %lld elements",
           (long long)src->elements, (long long)dst->elements);
    Word *words = view_read(agent, src, 0);
    words_convert(dst->mem->type, src->mem->type, src->elements, words);
    view_write(agent, dst, words);
}

static void op_fill(Agent *agent, const View *dst, const CallArg *value) {
    Word word = word_convert(dst->mem->type, value->type, agent->regs[value->slot].w[0]);
    Word *words = scratch(agent->cta->machine, 0, dst->elements);
    for (int64_t n = 0; n < dst->elements; n++) words[n] = word;
    view_write(agent, dst, words);
}

// acc[m, n] += sum over k of a[m, k] b[k, n], products and sums in TYPE; rows of b are walked, so that the inner loop
// is over consecutive elements.
#define GEMM(NAME, TYPE, FIELD)                                                                                        \
    static void NAME(Machine *machine, int64_t m, int64_t n, int64_t k, const Word *a, const Word *b, Word *acc) {     \
        TYPE *row = (TYPE *)scratch(machine, 3, n * (k + 1)), *right = row + n;                                        \
        for (int64_t i = 0; i < n * k; i++) right[i] = (TYPE)b[i].FIELD;                                               \
        for (int64_t i = 0; i < m; i++) {                                                                              \
            for (int64_t j = 0; j < n; j++) row[j] = (TYPE)acc[i * n + j].FIELD;                                       \
            for (int64_t p = 0; p < k; p++) {                                                                          \
                TYPE left = (TYPE)a[i * k + p].FIELD;                                                                  \
                const TYPE *from = right + p * n;                                                                      \
                for (int64_t j = 0; j < n; j++) row[j] += left * from[j];                                              \
            }                                                                                                          \
            for (int64_t j = 0; j < n; j++) acc[i * n + j].FIELD = row[j];                                             \
        }                                                                                                              \
    }
GEMM(gemm_f32, float, f)
GEMM(gemm_f64, double, f)
GEMM(gemm_int, uint64_t, i)

static void op_gemm(Agent *agent, const Call *call, const View *a, const View *b, const View *acc, bool overwrites) {
    Machine *machine = agent->cta->machine;
    EXPECT(machine->failure, a->rank >= 2 && b->rank >= 2 && acc->rank >= 2, "gemm of operands below rank 2");
    int64_t m = a->dims[a->rank - 2].extent, k = a->dims[a->rank - 1].extent, n = b->dims[b->rank - 1].extent;
    EXPECT(machine->failure, b->elements == k * n && acc->elements == m * n, "gemm of [%lld, %lld] and [%lld, %lld]",
           (long long)m, (long long)k, (long long)b->dims[b->rank - 2].extent, (long long)n);
    Word *left = view_read(agent, a, 0), *right = view_read(agent, b, 1);
    Word *sum = overwrites ? scratch(machine, 2, acc->elements) : view_read(agent, acc, 2);
    if (overwrites) memset(sum, 0, sizeof *sum * (size_t)acc->elements);
    if (type_is_float(acc->mem->type)) {   // its operands may be integers
        words_convert(type_compute(acc->mem->type), a->mem->type, a->elements, left);
        words_convert(type_compute(acc->mem->type), b->mem->type, b->elements, right);
    }
    if (CALL_ARG(call, GEMM, precision).name && strcmp(CALL_ARG(call, GEMM, precision).name, "tf32") == 0) {
        if (a->mem->type == TYPE_F32)
            for (int64_t i = 0; i < a->elements; i++) left[i].f = to_tf32(left[i].f);
        if (b->mem->type == TYPE_F32)
            for (int64_t i = 0; i < b->elements; i++) right[i].f = to_tf32(right[i].f);
    }
    if (!type_is_float(acc->mem->type)) gemm_int(machine, m, n, k, left, right, sum);
    else if (acc->mem->type == TYPE_F64) gemm_f64(machine, m, n, k, left, right, sum);
    else gemm_f32(machine, m, n, k, left, right, sum);
    if (!type_is_float(acc->mem->type))
        for (int64_t i = 0; i < acc->elements; i++) sum[i].i = int_wrap(acc->mem->type, sum[i].i);
    view_write(agent, acc, sum);
}

static Word combine(OpId op, Type type, Word a, Word b) {
    Type computed = type_compute(type);
    bool floating = type_is_float(type);
    Word out;
    switch (op) {
    case OP_REDUCE_MAX:
    case OP_SCAN_MAX:
        if (floating) out.f = number_max(a.f, b.f);
        else if (type == TYPE_U64) out.i = (uint64_t)a.i > (uint64_t)b.i ? a.i : b.i;
        else out.i = a.i > b.i ? a.i : b.i;
        return out;
    case OP_REDUCE_MIN:
        if (floating) out.f = number_min(a.f, b.f);
        else if (type == TYPE_U64) out.i = (uint64_t)a.i < (uint64_t)b.i ? a.i : b.i;
        else out.i = a.i < b.i ? a.i : b.i;
        return out;
    case OP_REDUCE_ANY: return (Word){.i = a.i || b.i};
    case OP_REDUCE_ALL: return (Word){.i = a.i && b.i};
    case OP_REDUCE_PROD:
        if (floating) out.f = computed == TYPE_F64 ? a.f * b.f : (float)(a.f * b.f);
        else out.i = int_wrap(type, (int64_t)((uint64_t)a.i * (uint64_t)b.i));
        return out;
    default:
        if (floating) out.f = computed == TYPE_F64 ? a.f + b.f : (float)(a.f + b.f);
        else out.i = int_wrap(type, (int64_t)((uint64_t)a.i + (uint64_t)b.i));
        return out;
    }
}

// The partial result, of `partials`, to which term n of `extent` is added. Neighbours share one.
static int64_t partial_of(int64_t n, int64_t extent, int64_t partials) {
    return n * partials / extent;
}

// Elements before and after the axis: an operand is [outer, axis, inner].
static void split_axis(const View *view, int64_t axis, int64_t *outer, int64_t *inner) {
    *outer = *inner = 1;
    for (int d = 0; d < view->rank; d++)
        if (d < axis) *outer *= view->dims[d].extent;
        else if (d > axis) *inner *= view->dims[d].extent;
}

static void op_reduce(Agent *agent, const Call *call, const View *src, const View *dst) {
    Machine *machine = agent->cta->machine;
    int64_t axis = CALL_ARG(call, REDUCE_SUM, axis).number, outer, inner;
    EXPECT(machine->failure, axis >= 0 && axis < src->rank, "a reduction over axis %lld", (long long)axis);
    split_axis(src, axis, &outer, &inner);
    int64_t partials = dst->rank == src->rank ? dst->dims[axis].extent : 1;
    EXPECT(machine->failure, dst->elements == outer * partials * inner, "a reduction into %lld elements",
           (long long)dst->elements);
    bool accumulate = CALL_ARG(call, REDUCE_SUM, accumulate).has_value && CALL_ARG(call, REDUCE_SUM, accumulate).number;
    Type type = dst->mem->type;
    Word *in = view_read(agent, src, 0), *out = scratch(machine, 1, dst->elements);
    words_convert(type_compute(type), src->mem->type, src->elements, in);
    if (accumulate) out = view_read(agent, dst, 1);
    int64_t extent = src->dims[axis].extent;
    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 0; i < inner; i++) {
            const Word *column = in + o * extent * inner + i;
            for (int64_t n = 0; n < extent; n++) {
                int64_t partial = partial_of(n, extent, partials);
                bool first = n == 0 || partial_of(n - 1, extent, partials) != partial;
                Word *sum = out + (o * partials + partial) * inner + i;
                *sum = first && !accumulate ? column[n * inner] : combine(call->op, type, *sum, column[n * inner]);
            }
        }
    view_write(agent, dst, out);
}

static void op_scan(Agent *agent, const Call *call, const View *src, const View *dst) {
    Machine *machine = agent->cta->machine;
    int64_t axis = CALL_ARG(call, SCAN_SUM, axis).number, outer, inner;
    EXPECT(machine->failure, axis >= 0 && axis < src->rank && src->elements == dst->elements, "a scan over axis %lld",
           (long long)axis);
    split_axis(src, axis, &outer, &inner);
    Word *words = view_read(agent, src, 0);
    words_convert(type_compute(dst->mem->type), src->mem->type, src->elements, words);
    int64_t extent = src->dims[axis].extent;
    for (int64_t o = 0; o < outer; o++)
        for (int64_t n = 1; n < extent; n++)
            for (int64_t i = 0; i < inner; i++) {
                Word *at = words + (o * extent + n) * inner + i;
                *at = combine(call->op, dst->mem->type, at[-inner], *at);
            }
    view_write(agent, dst, words);
}

// What it counts for beyond the one instruction that it is.
static bool spend_on(Agent *agent, const Call *call, const View *views) {
    int64_t elements = 0, depth = call->op == OP_GEMM ? views[0].dims[views[0].rank - 1].extent : 0;
    for (int i = 0; i < 3; i++) elements += views[i].mem ? views[i].elements : 0;
    return spend(agent, elements, STEP_ELEMENTS) && spend(agent, views[2].elements * depth, STEP_PRODUCTS);
}

static void perform(Agent *agent, const Call *call, const View *views, bool overwrites) {
    if (!spend_on(agent, call, views)) return;
    switch (call->op) {
    case OP_COPY: op_copy(agent, &views[0], &views[1]); break;
    case OP_FILL: op_fill(agent, &views[0], &CALL_ARG(call, FILL, value)); break;
    case OP_GEMM: op_gemm(agent, call, &views[0], &views[1], &views[2], overwrites); break;
    case OP_SCAN_SUM:
    case OP_SCAN_MAX: op_scan(agent, call, &views[0], &views[1]); break;
    default: op_reduce(agent, call, &views[0], &views[1]); break;
    }
}

// ---- started ops ----
static int written_operand(OpId op) {
    return op == OP_FILL ? 0 : op == OP_GEMM ? 2 : 1;
}

static void mark_writing(Agent *agent, const View *view, int64_t offset, int64_t stride, int64_t count, Word *words) {
    (void)words;
    for (int64_t n = 0; n < count; n++) {
        if (!state_writable(agent, view->mem, offset + n * stride, 1, 0)) return;
        state_set(agent->cta, view->mem, offset + n * stride, 1, STATE_WRITING);
    }
}

static void mark_reading(Agent *agent, const View *view, int64_t offset, int64_t stride, int64_t count, Word *words) {
    (void)words;
    for (int64_t n = 0; n < count; n++) {
        if (!state_readable(agent, view->mem, offset + n * stride, 1, 0)) return;
        state_set(agent->cta, view->mem, offset + n * stride, 1, STATE_READY | STATE_READING);
    }
}

static void mark_ready(Agent *agent, const View *view, int64_t offset, int64_t stride, int64_t count, Word *words) {
    (void)words;
    for (int64_t n = 0; n < count; n++) state_set(agent->cta, view->mem, offset + n * stride, 1, STATE_READY);
}

static bool intersect(const View *a, const View *b) {
    if (!a->mem || a->mem != b->mem) return false;
    if (a->nothing || b->nothing || a->rank != b->rank) return true;
    for (int d = 0; d < a->rank; d++) {
        const ViewDim *x = &a->dims[d], *y = &b->dims[d];
        if (x->start + x->extent <= y->start || y->start + y->extent <= x->start) return false;
    }
    return a->base == b->base;
}

// Started gemms on one accumulator run in order: the last of them (this one) needs no wait for those before.
static bool accumulates_on(const Cta *cta, const View *acc) {
    for (int i = 0; i < cta->pending_count - 1; i++)
        if (cta->pending[i].live && cta->pending[i].call->op == OP_GEMM && intersect(&cta->pending[i].views[2], acc))
            return true;
    return false;
}

static void start_async(Agent *agent, const Call *call, const View *views, bool overwrites) {
    Cta *cta = agent->cta;
    if (cta->pending_count == cta->pending_capacity) {
        int grown = cta->pending_capacity ? 2 * cta->pending_capacity : 8;
        cta->pending = arena_grow(cta->machine->arena, cta->pending, sizeof(PendingTile) * (size_t)cta->pending_count,
                                  sizeof(PendingTile) * (size_t)grown);
        cta->pending_capacity = grown;
    }
    PendingTile *p = &cta->pending[cta->pending_count++];
    *p = (PendingTile){.call = call,
                       .agent = agent,
                       .pc = agent->pc,
                       .group = agent->cp_async.committed[0],
                       .live = true,
                       .overwrites = overwrites};
    memcpy(p->views, views, sizeof p->views);
    int written = written_operand(call->op);
    for (int i = 0; i < 3; i++)
        if (views[i].mem && i != written && views[i].mem->scope != SCOPE_GLOBAL)
            view_rows(agent, &views[i], NULL, mark_reading);
    if (call->op == OP_GEMM && accumulates_on(cta, &views[2])) return;
    if (call->op == OP_GEMM && !overwrites)
        view_read(agent, &views[2], 2);   // the accumulator must be there when it starts
    view_rows(agent, &views[written], NULL, mark_writing);
}

static void land(Agent *agent, PendingTile *p) {
    int pc = agent->pc;
    agent->pc = p->pc;   // faults are the op's, not the wait's
    for (int i = 0; i < 3; i++)
        if (p->views[i].mem && (p->views[i].mem->scope != SCOPE_GLOBAL || i == written_operand(p->call->op)))
            view_rows(agent, &p->views[i], NULL, mark_ready);
    if (!p->done) perform(agent, p->call, p->views, p->overwrites);
    agent->pc = pc;
    p->live = false;
}

static void forget_landed(Cta *cta) {
    int kept = 0;
    for (int i = 0; i < cta->pending_count; i++)
        if (cta->pending[i].live) cta->pending[kept++] = cta->pending[i];
    cta->pending_count = kept;
}

// Lands what was started and writes x, or reads it: in order, since a later one may build on an earlier one.
static void op_await(Agent *agent, const Call *call, const View *x) {
    Cta *cta = agent->cta;
    bool reads = CALL_ARG(call, AWAIT, what).name && strcmp(CALL_ARG(call, AWAIT, what).name, "reads") == 0;
    for (int i = 0; i < cta->pending_count; i++) {
        PendingTile *p = &cta->pending[i];
        for (int k = 0; k < 3 && p->live; k++)
            if ((k == written_operand(p->call->op)) != reads && intersect(&p->views[k], x)) land(agent, p);
    }
    forget_landed(cta);
}

static bool touches_slot(const View *view, const Mem *mem, int64_t slot) {
    if (view->mem != mem || view->nothing) return false;
    int64_t tile = mem->elements / mem->shape[0];
    return view->base / tile == slot;
}

void tile_land_slot(Agent *agent, const Mem *mem, int64_t slot) {
    Cta *cta = agent->cta;
    for (int i = 0; i < cta->pending_count; i++) {
        PendingTile *p = &cta->pending[i];
        if (p->agent == agent && touches_slot(&p->views[written_operand(p->call->op)], mem, slot)) land(agent, p);
    }
    forget_landed(cta);
}

// It has done its work, and its result is still its own.
static void finish(Agent *agent, PendingTile *p) {
    int written = written_operand(p->call->op);
    if (p->done) return;
    land(agent, p);
    p->live = p->done = true;
    for (int k = 0; k < 3; k++)
        if (k != written) p->views[k].mem = NULL;   // what it has read is not its own any more
    view_rows(agent, &p->views[written], NULL, mark_writing);
}

void tile_finish_reads(Agent *agent, const Mem *mem, int64_t slot) {
    const Cta *cta = agent->cta;
    int last = -1;
    for (int i = 0; i < cta->pending_count; i++)
        for (int k = 0; k < 3; k++)
            if (cta->pending[i].agent == agent && touches_slot(&cta->pending[i].views[k], mem, slot)) last = i;
    for (int i = 0; i <= last; i++)   // in order, since one may build on those before
        if (cta->pending[i].agent == agent) finish(agent, &cta->pending[i]);
}

// At tile stage the CTA, or a role, is one agent and its started copies are in groups as a thread's are.
void tile_commit(Agent *agent) {
    agent->cp_async.committed[0]++;
}

void tile_wait(Agent *agent, int64_t pending_groups) {
    Cta *cta = agent->cta;
    for (int i = 0; i < cta->pending_count; i++) {
        PendingTile *p = &cta->pending[i];
        if (p->agent == agent && p->group < agent->cp_async.committed[0] - pending_groups) land(agent, p);
    }
    forget_landed(cta);
}

// Products that the agent started, but for the last few.
void tile_wait_products(Agent *agent, int64_t pending) {
    Cta *cta = agent->cta;
    int64_t started = 0;
    for (int i = 0; i < cta->pending_count; i++)
        started += cta->pending[i].agent == agent && cta->pending[i].call->op == OP_GEMM;
    for (int i = 0; i < cta->pending_count && started > pending; i++) {
        PendingTile *p = &cta->pending[i];
        if (p->agent != agent || p->call->op != OP_GEMM) continue;
        land(agent, p);
        started--;
    }
    forget_landed(cta);
}

// The rows that were copied here, at the same place in another CTA.
static void give_row(Agent *agent, const View *view, int64_t offset, int64_t stride, int64_t count, Word *words) {
    Cta *peer = agent->receiver;
    int bytes = view->mem->bytes;
    (void)words;
    for (int64_t n = 0; n < count; n++) {
        int64_t at = offset + n * stride;
        if (agent->cta->machine->races) race_peer(agent, 0, peer, view->mem, at, TOUCH_WRITE);
        if (!state_writable_in(agent, peer, view->mem, at, 1, 0)) return;
        memcpy(mem_data(peer, view->mem) + at * bytes, mem_data(agent->cta, view->mem) + at * bytes, (size_t)bytes);
        state_set(peer, view->mem, at, 1, STATE_READY);
    }
}

static void copy_to_peer(Agent *agent, Cta *peer, const Call *call, const View *view) {
    MBarrier *barrier = mbarrier_of(agent, peer, CALL_ARG(call, COPY, bar).place, 0, true);
    if (!barrier) return;
    int64_t bytes = view->elements * view->mem->bytes;
    mbarrier_started(agent, barrier, bytes);
    agent->receiver = peer;
    view_rows(agent, view, NULL, give_row);
    mbarrier_landed(agent, peer, barrier, bytes);
}

// Its bytes complete on an mbarrier, as those of a copy by TMA, which land late only where there are threads.
static void copy_to_barrier(Agent *agent, const Call *call, const View *views) {
    MBarrier *barrier = mbarrier_of(agent, agent->cta, CALL_ARG(call, COPY, bar).place, 0, true);
    if (!barrier) return;
    int64_t bytes = views[1].elements * views[1].mem->bytes;
    mbarrier_started(agent, barrier, bytes);
    perform(agent, call, views, false);
    mbarrier_landed(agent, agent->cta, barrier, bytes);
    const CallArg *others = &CALL_ARG(call, COPY, ctas);
    int64_t mask = others->has_value ? agent->regs[others->slot].i[0] : 0;
    for (int rank = 0; mask >> rank && !agent->cta->machine->stop; rank++) {
        Cta *peer = mask >> rank & 1 && rank != agent->cta->rank ? cluster_peer(agent, rank, 0) : NULL;
        if (peer) copy_to_peer(agent, peer, call, &views[1]);
    }
}

void tile_role_ends(Agent *agent) {   // what it left can only be awaited
    Cta *cta = agent->cta;
    for (int i = 0; i < cta->pending_count; i++)
        if (cta->pending[i].agent == agent) cta->pending[i].agent = NULL;
}

void tile_land_all(Agent *agent) {   // at the end of the CTA: no access can tell the difference
    Cta *cta = agent->cta;
    for (int i = 0; i < cta->pending_count; i++) land(agent, &cta->pending[i]);
    cta->pending_count = 0;
}

static bool overwrites(const Agent *agent, const Call *call) {
    return call->op == OP_GEMM && CALL_ARG(call, GEMM, accumulate).has_value &&
           !agent->regs[CALL_ARG(call, GEMM, accumulate).slot].i[0];
}

static void tile_op(Agent *agent, const Call *call) {
    View views[4];
    memset(views, 0, sizeof views);
    int count = 0;
    EXPECT(agent->cta->machine->failure, !agent->warp && !agent->parallel, "the tile op '%s' inside of threads",
           op_info(call->op)->text);
    for (int i = 0; i < call->count && count < 3; i++)
        if (call->args[i].tile) views[count++] = view_of(agent, call->args[i].tile);
    if (call->op == OP_AWAIT) op_await(agent, call, &views[0]);
    else if (call->op == OP_COPY && CALL_ARG(call, COPY, bar).place) copy_to_barrier(agent, call, views);
    else if (call->is_async) start_async(agent, call, views, overwrites(agent, call));
    else perform(agent, call, views, overwrites(agent, call));
}

const OpHandler tile_handler = {.effect = tile_op};
