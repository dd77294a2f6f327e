#include "layout/distribution.h"
#include "support/numbers.h"

static int64_t power_of_two_above(int64_t n) {
    int64_t p = 1;
    while (p < n) p *= 2;
    return p;
}

static int64_t power_of_two_in(int64_t n) {   // the largest that divides n
    return n & -n;
}

// ---- queries ----

int64_t tv_threads(const Layout *tv) {
    return layout_extent_in(tv, TV_THREAD);
}

int64_t tv_values(const Layout *tv) {
    return layout_extent_in(tv, TV_VALUE);
}

bool tv_is_replica(const Layout *tv, int64_t thread) {
    const LayoutInput *threads = &tv->in[TV_THREAD];
    for (int i = 0; i < threads->count && !tv->bits; thread /= threads->modes[i++].extent)
        if (threads->modes[i].stride == 0 && thread % threads->modes[i].extent) return true;
    return false;
}

int64_t tv_replicas(const Layout *tv) {
    int64_t replicas = 1;
    for (int i = 0; i < tv->in[TV_THREAD].count; i++)
        if (tv->in[TV_THREAD].modes[i].stride == 0) replicas *= tv->in[TV_THREAD].modes[i].extent;
    return replicas;
}

// ---- making one ----

static void replicate_rest(Layout *tv, int64_t threads, int64_t used) {
    if (used < threads) layout_add(tv, TV_THREAD, threads / used, 0, 0);
}

// Of `left` threads, those that can work side by side on `wanted` places: their number divides `left`.
static int64_t taken(int64_t wanted, int64_t left) {
    if (left % wanted == 0) return wanted;
    if (wanted >= left) return left;
    int64_t below = power_of_two_above(wanted + 1) / 2;
    return smaller(below, power_of_two_in(left));
}

// Threads along the fast dim: all of its vectors when their number is a power of two; a power of two that divides it
// when the other dims have work for the remaining threads; else padded up.
static int64_t fast_dim_threads(int64_t vectors, int64_t others, int64_t threads, int64_t limit) {
    int64_t exact = power_of_two_in(vectors), padded = power_of_two_above(vectors);
    int64_t chosen = exact != padded && exact >= 4 && others * exact >= threads ? exact : padded;
    return taken(limit > 0 ? smaller(chosen, limit) : chosen, threads);
}

const Layout *tv_blocked(Arena *arena, int rank, const int64_t *shape, int64_t threads, int fast, int64_t vector,
                         int64_t fast_threads) {
    Layout *tv = layout_new(arena, 2, rank);
    int64_t along[LAYOUT_MAX_RANK], others = 1;
    for (int d = 0; d < rank; d++) others *= d == fast ? 1 : shape[d];
    int64_t vectors = ceil_div(shape[fast], vector), left = threads;
    along[fast] = fast_dim_threads(vectors, others, threads, fast_threads);
    left /= along[fast];
    layout_add(tv, TV_THREAD, along[fast], vector, fast);
    for (int d = rank - 1; d >= 0; d--) {
        if (d == fast) continue;
        along[d] = taken(power_of_two_above(shape[d]), left);
        left /= along[d];
        layout_add(tv, TV_THREAD, along[d], 1, d);
    }
    replicate_rest(tv, threads, threads / left);
    layout_add(tv, TV_VALUE, vector, 1, fast);
    layout_add(tv, TV_VALUE, ceil_div(vectors, along[fast]), vector * along[fast], fast);
    for (int d = rank - 1; d >= 0; d--)
        if (d != fast) layout_add(tv, TV_VALUE, ceil_div(shape[d], along[d]), along[d], d);
    return layout_finish(tv);
}

const Layout *tv_in_stretches(Arena *arena, const Layout *tv, int fast, int64_t group) {
    Layout *out = layout_new(arena, 2, tv->rank_out);
    const LayoutMode *threads = &tv->in[TV_THREAD].modes[0], *repeats = NULL;
    for (int i = 0; i < tv->in[TV_VALUE].count; i++) {
        const LayoutMode *mode = &tv->in[TV_VALUE].modes[i];
        if (mode->out == fast && mode->extent > 1 && mode->stride == threads->stride * threads->extent) repeats = mode;
    }
    if (!repeats || threads->out != fast || threads->extent <= group || threads->extent % group != 0) return tv;
    int64_t step = threads->stride * group;
    layout_add(out, TV_THREAD, group, threads->stride, fast);
    layout_add(out, TV_THREAD, threads->extent / group, step * repeats->extent, fast);
    for (int input = 0; input < 2; input++) {
        for (int i = input == TV_THREAD; i < tv->in[input].count; i++) {
            const LayoutMode *mode = &tv->in[input].modes[i];
            layout_add(out, input, mode->extent, mode == repeats ? step : mode->stride, mode->out);
        }
    }
    return layout_finish(out);
}

static void add_digits(Layout *tv, const Layout *from, int input) {
    for (int i = 0; i < from->in[input].count; i++) {
        const LayoutMode *mode = &from->in[input].modes[i];
        layout_add(tv, input, mode->extent, mode->stride, mode->out);
    }
}

const Layout *tv_of_instruction(Arena *arena, const Layout *instruction, const int64_t *shape, const int64_t *warps,
                                int64_t threads) {
    Layout *tv = layout_new(arena, 2, 2);
    add_digits(tv, instruction, TV_THREAD);
    for (int d = 0; d < 2; d++) layout_add(tv, TV_THREAD, warps[d], shape[d] / warps[d], d);
    replicate_rest(tv, threads, tv_threads(instruction) * warps[0] * warps[1]);
    add_digits(tv, instruction, TV_VALUE);
    for (int d = 1; d >= 0; d--) {
        int64_t step = instruction->out_shape[d];
        layout_add(tv, TV_VALUE, shape[d] / warps[d] / step, step, d);
    }
    return layout_finish(tv);
}

// ---- projections ----

static int dim_of_output(int rank, const int *dims, int out) {   // -1: the access does not use it
    for (int d = 0; d < rank; d++)
        if (dims[d] == out) return d;
    return -1;
}

const Layout *tv_project(Arena *arena, const Layout *tv, int rank, const int *dims, const int64_t *held) {
    Layout *projected = layout_new(arena, 2, rank);
    for (int input = 0; input < 2; input++) {
        for (int i = 0; i < tv->in[input].count; i++) {
            const LayoutMode *mode = &tv->in[input].modes[i];
            int dim = mode->stride == 0 ? -1 : dim_of_output(rank, dims, mode->out);
            if (dim >= 0) layout_add(projected, input, mode->extent, mode->stride, dim);
            else if (input == TV_THREAD) layout_add(projected, input, mode->extent, 0, 0);
        }
    }
    for (int d = 0; d < rank && held; d++)
        if (dims[d] < 0) layout_add(projected, TV_VALUE, held[d], 1, d);
    return layout_finish(projected);
}

static bool covers(const Layout *tv, const int64_t *shape) {
    for (int d = 0; d < tv->rank_out; d++)
        if (tv->out_shape[d] < shape[d]) return false;
    return true;
}

const Layout *tv_covering(Arena *arena, const Layout *tv, const int64_t *shape) {
    if (covers(tv, shape)) return tv;
    Layout *whole = layout_new(arena, 2, tv->rank_out);
    for (int input = 0; input < 2; input++)
        for (int i = 0; i < tv->in[input].count; i++) {
            const LayoutMode *mode = &tv->in[input].modes[i];
            layout_add(whole, input, mode->extent, mode->stride, mode->out);
        }
    for (int d = 0; d < tv->rank_out; d++)
        layout_add(whole, TV_VALUE, (shape[d] + tv->out_shape[d] - 1) / tv->out_shape[d], tv->out_shape[d], d);
    return layout_finish(whole);
}

const Layout *tv_reduce(Arena *arena, const Layout *tv, int axis) {
    int dims[LAYOUT_MAX_RANK], rank = 0;
    for (int d = 0; d < tv->rank_out; d++)
        if (d != axis) dims[rank++] = d;
    if (rank == 0) dims[rank++] = -1;
    return tv_project(arena, tv, rank, dims, NULL);
}

const Layout *tv_split_axis(Arena *arena, const Layout *tv, int axis, int64_t splits) {
    Layout *split = layout_new(arena, 2, tv->rank_out + 1);
    int64_t left = splits;
    for (int input = 0; input < 2; input++) {
        for (int i = 0; i < tv->in[input].count; i++) {
            const LayoutMode *mode = &tv->in[input].modes[i];
            bool along = input == TV_THREAD && mode->stride != 0 && mode->out == axis;
            int64_t taken = along ? smaller(left, mode->extent) : 1;
            if (left % taken != 0 || mode->extent % taken != 0) return NULL;
            layout_add(split, input, taken, splits / left, tv->rank_out);
            layout_add(split, input, mode->extent / taken, mode->stride * taken, mode->out);
            left /= taken;
        }
    }
    return left == 1 ? layout_finish(split) : NULL;
}

const Layout *tv_partial_reduce(Arena *arena, const Layout *tv, int axis, int64_t splits) {
    const Layout *split = tv_split_axis(arena, tv, axis, splits);
    int dims[LAYOUT_MAX_RANK];
    for (int d = 0; d < tv->rank_out; d++) dims[d] = d == axis ? tv->rank_out : d;
    return split ? tv_project(arena, split, tv->rank_out, dims, NULL) : NULL;
}

int64_t tv_threads_along(const Layout *tv, int axis) {
    int64_t threads = 1;
    for (int i = 0; i < tv->in[TV_THREAD].count; i++) {
        const LayoutMode *mode = &tv->in[TV_THREAD].modes[i];
        if (mode->stride != 0 && mode->out == axis) threads *= mode->extent;
    }
    return threads;
}

int64_t tv_misses(const Layout *tv, int dim, int64_t extent, bool *twice) {
    const LayoutMode *digits[2 * LAYOUT_MAX_MODES];
    int count = 0;
    *twice = false;
    if (tv->bits || tv->rank_in != 2) return -1;
    for (int in = TV_THREAD; in <= TV_VALUE; in++)
        for (int i = 0; i < tv->in[in].count; i++) {
            const LayoutMode *mode = &tv->in[in].modes[i];
            if (mode->out != dim || mode->extent == 1 || mode->stride == 0 || mode->stride >= extent) continue;
            int at = count++;
            for (; at > 0 && digits[at - 1]->stride > mode->stride; at--) digits[at] = digits[at - 1];
            digits[at] = mode;
        }
    int64_t reached = 1;
    for (int i = 0; i < count && reached < extent; i++) {
        *twice = digits[i]->stride < reached;
        if (digits[i]->stride != reached) return *twice ? digits[i]->stride : reached;
        reached = digits[i]->extent > extent / reached ? extent : reached * digits[i]->extent;
    }
    return reached < extent ? reached : -1;
}

const Layout *tv_without_replicas(Arena *arena, const Layout *tv) {
    Layout *spread = layout_new(arena, 2, tv->rank_out);
    int64_t reach = tv->out_shape[0];
    for (int input = 0; input < 2; input++) {
        for (int i = 0; i < tv->in[input].count; i++) {
            const LayoutMode *mode = &tv->in[input].modes[i];
            bool replica = input == TV_THREAD && mode->stride == 0;
            layout_add(spread, input, mode->extent, replica ? reach : mode->stride, replica ? 0 : mode->out);
            if (replica) reach *= mode->extent;
        }
    }
    return layout_finish(spread);
}

// ---- threads as warps and lanes ----

ThreadDigits tv_thread_digits(const Layout *tv, int64_t lanes) {
    const LayoutInput *threads = &tv->in[TV_THREAD];
    ThreadDigits digits = {.count = threads->count};
    int64_t weight = 1;
    for (int i = 0; i < threads->count; i++) {
        int64_t extent = threads->modes[i].extent, within = 1;
        bool bits = (weight & (weight - 1)) == 0;   // of the lane's number
        while (bits && weight * within < lanes && extent % (2 * within) == 0) within *= 2;
        digits.items[i] = (ThreadDigit){&threads->modes[i], weight, within, extent / within};
        weight *= extent;
    }
    return digits;
}

int64_t tv_partials_along(const Layout *tv, int axis, int64_t lanes) {
    ThreadDigits digits = tv_thread_digits(tv, lanes);
    int64_t partials = 1;
    for (int i = 0; i < digits.count; i++)
        if (digits.items[i].mode->stride != 0 && digits.items[i].mode->out == axis) partials *= digits.items[i].above;
    return partials;
}
