// The dims of arguments as their parameters have them.
//
// Leading dims as one: `A: bf16[..B, M, K]` takes [4, 6, M, K] with B = 24, and [M, K] with B = 1.
//
// The innermost dim as the last one: `A: bf16[M, K] strides [1, lda]` takes [M, K], and is [K, M] strides [lda, 1] in the
// kernel (Buf.moved), whose text says `A.T` for that.
#include "ir/build.h"
#include "ir/query.h"
#include <string.h>

bool param_takes_rank(const Buf *param, int rank) {
    return param->leading ? rank >= param->rank - 1 : rank == param->rank;
}

static bool any_empty(int count, const int64_t *shape) {
    for (int d = 0; d < count; d++)
        if (shape[d] == 0) return true;
    return false;
}

// The stride of all together, from the innermost on; *gap: the dim that does not continue the next one, else -1.
static int64_t common_stride(int count, const int64_t *shape, const int64_t *strides, int *gap) {
    int64_t extent = 1, stride = 0;
    *gap = -1;
    for (int d = count - 1; d >= 0 && *gap < 0; d--) {
        if (shape[d] == 1) continue;
        int64_t end;
        bool follows = extent == 1 || (!__builtin_mul_overflow(extent, stride, &end) && strides[d] == end);
        if (!follows) *gap = d;
        if (extent == 1) stride = strides[d];
        if (__builtin_mul_overflow(extent, shape[d], &extent)) *gap = d;
    }
    return stride;
}

const char *merge_leading(Arena *arena, const char *name, int rank, int *given, int64_t *shape, int64_t *strides) {
    int count = *given - rank + 1, gap;
    if (count < 0) return arena_printf(arena, "'%s' has %d dims; it needs %d or more", name, *given, rank - 1);
    bool empty = any_empty(count, shape);
    int64_t extent = empty ? 0 : 1, stride = common_stride(count, shape, strides, &gap);
    if (gap >= 0 && !empty)
        return arena_printf(arena, "dims %d and %d of '%s' are not one in memory", gap, gap + 1, name);
    for (int d = 0; d < count; d++) extent *= empty ? 0 : shape[d];
    memmove(shape + 1, shape + count, sizeof *shape * (size_t)(rank - 1));
    memmove(strides + 1, strides + count, sizeof *strides * (size_t)(rank - 1));
    if (extent == 1) stride = rank > 1 ? (int64_t)((uint64_t)shape[1] * (uint64_t)strides[1]) : 1;   // of no address
    shape[0] = extent;
    strides[0] = stride;
    *given = rank;
    return NULL;
}

const char *leading_differ(Arena *arena, const LeadingDims *a, const LeadingDims *b) {
    bool same = a->count == b->count;
    for (int d = 0; same && d < a->count; d++) same = a->shape[d] == b->shape[d];
    return same ? NULL : arena_printf(arena, "the leading dims of '%s' and '%s' differ", a->name, b->name);
}

int moved_dim(int moved, int rank, int d) {
    if (!moved || d < moved - 1) return d;
    return d == rank - 1 ? moved - 1 : d + 1;
}

int moved_by_strides(int rank, bool leading, Expr *const *shape, Expr *const *strides) {
    int last = rank - 1, dim = -1;
    if (!strides || rank < 2 || expr_is_int(strides[last], 1)) return 0;
    for (int d = leading; d < last; d++)
        if (expr_is_int(strides[d], 1) && !expr_is_int(shape[d], 1)) dim = d;
    return dim + 1;
}

Expr **argument_dims(Arena *arena, const Buf *param, Expr *const *dims) {
    Expr **out = NEW_ARRAY(arena, Expr *, param->rank);
    for (int d = 0; d < param->rank; d++) out[moved_dim(param->moved, param->rank, d)] = dims[d];
    return out;
}
