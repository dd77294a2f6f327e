// Rule 9, what the operands of an operation must be so that an instruction can do it: constants within limits, equal
// types, elements within their buffers. Tables, one row for each operand.
#include "ir/build.h"
#include "ir/linear.h"
#include "ir/match.h"
#include "ir/query.h"
#include "ir/rewrite.h"
#include "ir/schedule.h"
#include "ir/verify_impl.h"
#include <string.h>

#define AT(NAME, operand) OP_##NAME, OPERAND_INDEX(NAME, operand)

// ---- constants ----
typedef struct Limit {
    OpId op;
    size_t at;
    int64_t low, high, unit;   // a multiple of unit
    bool power;                // of two
} Limit;

static const Limit limits[] = {
    {AT(ALIGNED, n), 1, MOST_ALIGNED, 1, false},
    {AT(BARRIER, id), 0, NAMED_BARRIERS - 1, 1, false},
    {AT(BARRIER, count), WARP_LANES, MOST_BLOCK_THREADS, WARP_LANES, false},
    {AT(BARRIER_ARRIVE, id), 0, NAMED_BARRIERS - 1, 1, false},
    {AT(BARRIER_ARRIVE, count), WARP_LANES, MOST_BLOCK_THREADS, WARP_LANES, false},
    {AT(CP_ASYNC_WAIT, n), 0, INT32_MAX, 1, false},
    {AT(BULK_WAIT, n), 0, INT32_MAX, 1, false},
    {AT(WGMMA_WAIT, n), 0, 7, 1, false},
    {AT(WGMMA, steps), 1, MOST_UNROLLED, 1, false},
    {AT(VLOAD, n), 1, INT32_MAX, 1, false},
    {AT(ULOAD, n), 1, INT32_MAX, 1, false},
    {AT(VSTORE, n), 1, INT32_MAX, 1, false},
    {AT(VATOMIC_ADD, n), 1, INT32_MAX, 1, false},
    {AT(RECAST, n), 1, INT32_MAX, 1, false},
    {AT(CP_ASYNC, n), 1, INT32_MAX, 1, false},
    {AT(LDMATRIX, count), 1, 4, 1, true},
    {AT(LDMATRIX, trans), 0, 1, 1, false},
    {AT(LDMATRIX_BYTES, count), 1, 2, 1, false},
    {AT(STMATRIX, count), 1, 4, 1, true},
    {AT(STMATRIX, trans), 0, 1, 1, false},
    {AT(SHFL_XOR, mask), 0, WARP_LANES - 1, 1, false},
    {AT(SHFL_UP, delta), 0, WARP_LANES - 1, 1, false},
    {AT(SHFL_DOWN, delta), 0, WARP_LANES - 1, 1, false},
    {AT(SHFL_IDX, lane), 0, WARP_LANES - 1, 1, false},
    {AT(MBARRIER_INIT, count), 1, MOST_ARRIVALS, 1, false},
    {AT(MBARRIER_ARRIVE, count), 1, MOST_ARRIVALS, 1, false},
    {AT(PEER_ARRIVE, count), 1, MOST_ARRIVALS, 1, false},
    {AT(MBARRIER_EXPECT, bytes), 0, MOST_ARRIVALS, 1, false},
};

// What a constant operand is outside of; NULL: the limits hold.
static const char *beyond(Arena *arena, const Limit *limit, int64_t high, int64_t value) {
    bool within = value >= limit->low && value <= high && value % limit->unit == 0;
    if (limit->power) within = within && (value & (value - 1)) == 0;
    if (within) return NULL;
    const char *multiple = limit->unit > 1 ? arena_printf(arena, "a multiple of %lld ", (long long)limit->unit) : "";
    return arena_printf(arena, "must be %s%sfrom %lld to %lld, not %lld", multiple,
                        limit->power ? "a power of two " : "", (long long)limit->low, (long long)high,
                        (long long)value);
}

static void check_limits(Verifier *v, const Context *c, const OpInfo *info, int count, const Arg *args, Span loc) {
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        const Limit *limit = &limits[i];
        int64_t value = 0, high = limit->high;
        if (limit->op != info->id || (int)limit->at >= count || !args[limit->at].value) continue;
        const Expr *given = args[limit->at].value;
        bool threads = limit->unit == WARP_LANES && c->block_threads > 0;
        if (threads) high = (c->block_threads + WARP_LANES - 1) / WARP_LANES * WARP_LANES;
        const char *why = expr_const(given, &value) ? beyond(v->arena, limit, high, value) : NULL;
        if (why && high == WARP_LANES - 1 && may_be_excluded(v, c)) continue;   // lanes are computed, and unrolled
        if (why) report_operand(v, info, (int)limit->at, why, loc);
    }
}

// ---- elements: how many an operand has from its place on ----
typedef struct Extent {
    OpId op;
    size_t at, as;   // the operand; another one that has its type, or itself
    size_t count;    // the operand that says how many elements or matrices there are; 0: the instruction's shape
    enum { ELEMENTS, MATRICES, BYTE_MATRICES, SHAPE, BITS } unit;   // BITS: as many as those elements of operand 0 have
} Extent;

static const Extent extents[] = {
    {AT(VLOAD, dst), OPERAND_INDEX(VLOAD, src), OPERAND_INDEX(VLOAD, n), ELEMENTS},
    {AT(VLOAD, src), OPERAND_INDEX(VLOAD, src), OPERAND_INDEX(VLOAD, n), ELEMENTS},
    {AT(ULOAD, dst), OPERAND_INDEX(ULOAD, src), OPERAND_INDEX(ULOAD, n), ELEMENTS},
    {AT(VSTORE, dst), OPERAND_INDEX(VSTORE, dst), OPERAND_INDEX(VSTORE, n), ELEMENTS},
    {AT(VSTORE, src), OPERAND_INDEX(VSTORE, dst), OPERAND_INDEX(VSTORE, n), ELEMENTS},
    {AT(VATOMIC_ADD, src), OPERAND_INDEX(VATOMIC_ADD, dst), OPERAND_INDEX(VATOMIC_ADD, n), ELEMENTS},
    {AT(CP_ASYNC, dst), OPERAND_INDEX(CP_ASYNC, src), OPERAND_INDEX(CP_ASYNC, n), ELEMENTS},
    {AT(BULK_LOAD, dst), OPERAND_INDEX(BULK_LOAD, src), OPERAND_INDEX(BULK_LOAD, n), ELEMENTS},
    {AT(BULK_STORE, src), OPERAND_INDEX(BULK_STORE, dst), OPERAND_INDEX(BULK_STORE, n), ELEMENTS},
    {AT(LDMATRIX, dst), OPERAND_INDEX(LDMATRIX, src), OPERAND_INDEX(LDMATRIX, count), MATRICES},
    {AT(LDMATRIX_BYTES, dst), OPERAND_INDEX(LDMATRIX_BYTES, src), OPERAND_INDEX(LDMATRIX_BYTES, count), BYTE_MATRICES},
    {AT(STMATRIX, src), OPERAND_INDEX(STMATRIX, dst), OPERAND_INDEX(STMATRIX, count), MATRICES},
    {AT(RECAST, dst), OPERAND_INDEX(RECAST, dst), OPERAND_INDEX(RECAST, n), ELEMENTS},
    {AT(RECAST, src), OPERAND_INDEX(RECAST, src), OPERAND_INDEX(RECAST, n), BITS},
    {AT(MMA, a), OPERAND_INDEX(MMA, a), 0, SHAPE},
    {AT(MMA, b), OPERAND_INDEX(MMA, b), 0, SHAPE},
    {AT(MMA, c), OPERAND_INDEX(MMA, c), 0, SHAPE},
    {AT(WGMMA, a), OPERAND_INDEX(WGMMA, a), OPERAND_INDEX(WGMMA, steps), SHAPE},
    {AT(WGMMA, acc), OPERAND_INDEX(WGMMA, acc), 0, SHAPE},
};

// Elements of the matrix that each thread holds.
static int64_t shape_elements(const Extent *extent, const Arg *args) {
    WgmmaInfo group;
    const MmaInfo *warp = extent->op == OP_MMA ? mma_named(args[OPERAND_INDEX(MMA, shape)].name) : NULL;
    if (warp && extent->at == OPERAND_INDEX(MMA, a)) return (int64_t)warp->m * warp->k / WARP_LANES;
    if (warp && extent->at == OPERAND_INDEX(MMA, b)) return (int64_t)warp->n * warp->k / WARP_LANES;
    if (warp) return (int64_t)warp->m * warp->n / WARP_LANES;
    enum { GROUP = 4 * WARP_LANES };
    if (extent->op != OP_WGMMA || !wgmma_named(args[OPERAND_INDEX(WGMMA, shape)].name, &group)) return 0;
    return (int64_t)group.m * (extent->at == OPERAND_INDEX(WGMMA, a) ? group.k : group.n) / GROUP;
}

static int64_t elements_of(const Extent *extent, const Arg *args, Type type) {
    int64_t count = 1;
    if (extent->count && (!args[extent->count].value || !expr_const(args[extent->count].value, &count))) return 0;
    if (extent->unit == MATRICES) return count * 32 / type_bits(type);
    if (extent->unit == BYTE_MATRICES) return count * matrix_facts.byte_rows * matrix_facts.byte_rows / WARP_LANES;
    if (extent->unit == BITS)
        return (count * type_bits(args[0].region->buf->type) + type_bits(type) - 1) / type_bits(type);
    return extent->unit == SHAPE ? count * shape_elements(extent, args) : count;
}

// The place among the buffer's elements, as far as it is constant: at least this.
static int64_t first_element(const Region *region) {
    int64_t at = 0, index;
    for (int i = 0; i < region->count; i++)
        at = at * buf_extent(region->buf, i) + (expr_const(region->dims[i].start, &index) ? index : 0);
    return at;
}

static void check_extent(Verifier *v, const OpInfo *info, const Extent *extent, const Arg *args, Span loc) {
    const Region *region = args[extent->at].region;
    const Buf *buf = region->buf;
    int at = (int)extent->at;
    Type type = args[extent->as].region->buf->type;
    if (type_kind(buf->type) == KIND_OPAQUE || type != buf->type) {
        report_operand(v, info, at,
                       arena_printf(v->arena, "has type %s, the other side %s", type_text(buf->type), type_text(type)),
                       loc);
        return;
    }
    int64_t all = 1, first = first_element(region), count = elements_of(extent, args, buf->type);
    for (int i = 0; i < buf->rank; i++) all *= buf_extent(buf, i);
    if (buf->scope != SCOPE_LOCAL && buf->scope != SCOPE_SHARED) return;   // what a tensor or a thread has is not known
    if (extent->op == OP_WGMMA && buf->scope == SCOPE_SHARED) return;      // by descriptors
    int64_t unit = extent->op == OP_WGMMA && type_bits(type) < 32 ? 32 / type_bits(type) : 1;
    if (first % unit)
        report_operand(v, info, at, arena_printf(v->arena, "starts inside a register of %d elements", (int)unit), loc);
    else if (first + count > all)
        report_operand(v, info, at,
                       arena_printf(v->arena, "is elements %lld to %lld of '%s', which has %lld", (long long)first,
                                    (long long)(first + count - 1), buf->name, (long long)all),
                       loc);
}

// ---- alignment in shared memory ----
typedef struct Aligned {
    OpId op;
    size_t at;
    size_t count;   // the operand that says how many elements are one access; 0: rows of matrices, bulk copies
} Aligned;

static const Aligned aligned[] = {
    {AT(VLOAD, src), OPERAND_INDEX(VLOAD, n)},
    {AT(VSTORE, dst), OPERAND_INDEX(VSTORE, n)},
    {AT(CP_ASYNC, dst), OPERAND_INDEX(CP_ASYNC, n)},
    {AT(BULK_LOAD, dst), 0},
    {AT(BULK_STORE, src), 0},
    {AT(LDMATRIX, src), 0},
    {AT(LDMATRIX_BYTES, src), 0},
    {AT(STMATRIX, dst), 0},
};

// Bytes beyond a multiple of `unit` at which an access begins, as far as that is certain: rows begin at multiples, and so
// does all of the index but its constant.
static int64_t bytes_beyond(Arena *arena, const Region *region, int64_t unit) {
    const Buf *buf = region->buf;
    int last = region->count - 1;
    int64_t size = type_bytes(buf->type);
    if (last > 0 && buf_extent(buf, last) * size % unit) return 0;
    LinearSum sum = linear_of(arena, region->dims[last].start);
    for (int i = 0; i < sum.count; i++)
        if (sum.terms[i].factor % unit * size % unit) return 0;
    return sum.full ? 0 : (sum.constant % unit * size % unit + unit) % unit;
}

// The layout of a tile that has not got its physical shape yet may move its elements.
static void check_alignment(Verifier *v, const OpInfo *info, const Aligned *row, const Arg *args, Span loc) {
    enum { ROW = 16 };   // bytes (PTX ISA, "ldmatrix", "cp.async.bulk")
    const Region *region = args[row->at].region;
    const Buf *buf = region->buf;
    int64_t count = 0, unit = ROW;
    if (buf->scope != SCOPE_SHARED || buf->layout || region->count == 0 || type_bits(buf->type) % 8) return;
    if (row->count) unit = expr_const(args[row->count].value, &count) ? count * type_bytes(buf->type) : 1;
    if (unit < 2 || unit > ROW || (unit & (unit - 1))) return;
    int64_t beyond = bytes_beyond(v->arena, region, unit);
    if (beyond)
        report_operand(v, info, (int)row->at,
                       arena_printf(v->arena, "begins %lld bytes beyond a multiple of the %lld that it is aligned to",
                                    (long long)beyond, (long long)unit),
                       loc);
}

// ---- CTAs of a cluster ----
static Expr *rank_of_one(Mapper *mapper, Expr *expr) {
    return is_expr_call(expr, OP_CLUSTER_RANK) ? e_int(mapper->arena, 0) : expr;
}

// In a cluster of one CTA, which is none, its own rank is 0.
static void check_rank(Verifier *v, const OpInfo *info, size_t at, const Arg *args, Span loc) {
    const Stmt *grid = v->func->kind == FUNC_KERNEL ? func_grid(v->func) : NULL;
    int64_t ctas = grid ? cluster_largest(grid) : 1, rank;
    Expr *given = args[at].value;
    if (!grid || !given) return;
    if (ctas == 1) given = map_expr(&(Mapper){.arena = v->arena, .expr = rank_of_one}, given);
    if (expr_const(given, &rank) && (rank < 0 || rank >= ctas))
        report_operand(v, info, (int)at,
                       arena_printf(v->arena, "is CTA %lld of a cluster of %lld", (long long)rank, (long long)ctas),
                       loc);
}

// Only where the launch chooses are the extents no constants of the source.
static void check_cluster_extent(Verifier *v, const OpInfo *info, const Arg *args, Span loc) {
    const Stmt *grid = v->func->kind == FUNC_KERNEL ? func_grid(v->func) : NULL;
    int64_t name = 0;
    if (!grid || !chooses_cluster(grid)) report_operand(v, info, 0, "needs a grid with `@cluster`", loc);
    else if (expr_const(args[0].value, &name) && (name < 0 || name >= CLUSTER_NAMES))
        report_operand(v, info, 0, "is 0 or 1, the number of one of the grid's first names", loc);
}

// ---- single operations ----
static void check_cp_async(Verifier *v, const OpInfo *info, int count, const Arg *args, Span loc) {
    enum { LEAST = 4, MOST = 16 };
    size_t n_at = OPERAND_INDEX(CP_ASYNC, n), valid_at = OPERAND_INDEX(CP_ASYNC, valid);
    int64_t n = 0, valid = 0;
    if (!expr_const(args[n_at].value, &n)) return;   // reported
    int64_t bytes = n * type_bytes(args[OPERAND_INDEX(CP_ASYNC, dst)].region->buf->type);
    if (n < 1 || bytes < LEAST || bytes > MOST || (bytes & (bytes - 1)))
        report_operand(v, info, (int)n_at, arena_printf(v->arena, "is %lld bytes, not 4, 8 or 16", (long long)bytes),
                       loc);
    const Expr *given = count > (int)valid_at ? args[valid_at].value : NULL;
    if (given && expr_const(given, &valid) && (valid < 0 || valid > n))
        report_operand(v, info, (int)valid_at,
                       arena_printf(v->arena, "must be from 0 to n, %lld, not %lld", (long long)n, (long long)valid),
                       loc);
}

static void check_uload(Verifier *v, const OpInfo *info, const Arg *args, Span loc) {
    size_t n_at = OPERAND_INDEX(ULOAD, n), src_at = OPERAND_INDEX(ULOAD, src);
    int64_t n = 0, bytes = type_bytes(args[src_at].region->buf->type);
    if (bytes > 4) report_operand(v, info, (int)src_at, "has elements of more than 32 bits", loc);
    if (!expr_const(args[n_at].value, &n) || n < 1 || n * bytes == tma_facts.unit_bytes) return;
    report_operand(v, info, (int)n_at, arena_printf(v->arena, "is %lld bytes, not 16", (long long)(n * bytes)), loc);
}

// A register holds whole elements of a matrix, two of 16 bits or fewer, larger ones.
static void check_matrices(Verifier *v, const OpInfo *info, const Arg *args, Span loc) {
    Type type = args[OPERAND_INDEX(LDMATRIX, dst)].region->buf->type;
    if (type == TYPE_BOOL || type_bits(type) > 32)
        report_operand(v, info, OPERAND_INDEX(LDMATRIX, dst), "has elements of more than 32 bits, or bool", loc);
}

static void check_byte_matrices(Verifier *v, const OpInfo *info, const Arg *args, Span loc) {
    Type type = args[OPERAND_INDEX(LDMATRIX_BYTES, dst)].region->buf->type;
    if (type == TYPE_BOOL || type_bits(type) != 8)
        report_operand(v, info, OPERAND_INDEX(LDMATRIX_BYTES, dst), "has no elements of 8 bits", loc);
}

static void check_mma(Verifier *v, const OpInfo *info, const Arg *args, Span loc) {
    const MmaInfo *row = mma_named(args[OPERAND_INDEX(MMA, shape)].name);
    if (!row) {
        report_operand(v, info, OPERAND_INDEX(MMA, shape), "names no instruction", loc);
        return;
    }
    const char *types[] = {[OPERAND_INDEX(MMA, a)] = row->a_type,
                           [OPERAND_INDEX(MMA, b)] = row->b_type,
                           [OPERAND_INDEX(MMA, c)] = row->c_type};
    for (size_t at = OPERAND_INDEX(MMA, a); at <= OPERAND_INDEX(MMA, c); at++) {
        Type type = args[at].region->buf->type;
        if (!type_fits(type, types[at]))
            report_operand(v, info, (int)at,
                           arena_printf(v->arena, "has type %s, the instruction takes %s", type_text(type), types[at]),
                           loc);
    }
}

static void check_red(Verifier *v, const OpInfo *info, const Arg *args, Span loc) {
    Type type = args[OPERAND_INDEX(VATOMIC_ADD, dst)].region->buf->type;
    int64_t n = 0;
    if (expr_const(args[OPERAND_INDEX(VATOMIC_ADD, n)].value, &n) && !red_of(type_text(type), n))
        report_operand(v, info, OPERAND_INDEX(VATOMIC_ADD, n), "names no instruction for these elements", loc);
}

// What is added and compared is a number of at least 16 bits, or an integer; other elements can be exchanged only.
static void check_atomic(Verifier *v, const OpInfo *info, const Arg *args, Span loc) {
    Type type = args[OPERAND_INDEX(ATOMIC_ADD, x)].region->buf->type;
    bool exchanged = info->id == OP_ATOMIC_EXCH || info->id == OP_ATOMIC_CAS;
    bool small = type == TYPE_BOOL || (type_is_float(type) && type_bits(type) < 16);
    if (type_kind(type) == KIND_OPAQUE || (small && !exchanged))
        report_operand(v, info, OPERAND_INDEX(ATOMIC_ADD, x),
                       arena_printf(v->arena, "has type %s, which it does not take", type_text(type)), loc);
}

// Whole elements of either side, with as many bits in registers as in memory.
static void check_recast(Verifier *v, const OpInfo *info, const Arg *args, Span loc) {
    Type dst = args[OPERAND_INDEX(RECAST, dst)].region->buf->type,
         src = args[OPERAND_INDEX(RECAST, src)].region->buf->type;
    int64_t n = 0;
    if (dst == TYPE_BOOL || src == TYPE_BOOL)
        report_operand(v, info, OPERAND_INDEX(RECAST, src), "has elements bool", loc);
    else if (expr_const(args[OPERAND_INDEX(RECAST, n)].value, &n) && n * type_bits(dst) % type_bits(src))
        report_operand(v, info, OPERAND_INDEX(RECAST, n), "are no whole elements of src", loc);
}

void check_thread_op(Verifier *v, const Context *c, const OpInfo *info, int count, const Arg *args, Span loc) {
    if (info->id == OP_CLUSTER_EXTENT) check_cluster_extent(v, info, args, loc);
    if (c->dead || c->undecided) return;   // a macro for several sizes
    check_limits(v, c, info, count, args, loc);
    if (op_is(info->id, OP_CLASS_ATOMIC)) check_atomic(v, info, args, loc);
    if (info->id == OP_ANY && args[0].region->buf->type != TYPE_BOOL)
        REPORT(v, loc, T_NOT_CONDITION, type_text(args[0].region->buf->type));
    if (info->id == OP_CP_ASYNC) check_cp_async(v, info, count, args, loc);
    if (info->id == OP_ULOAD) check_uload(v, info, args, loc);
    if (info->id == OP_LDMATRIX || info->id == OP_STMATRIX) check_matrices(v, info, args, loc);
    if (info->id == OP_LDMATRIX_BYTES) check_byte_matrices(v, info, args, loc);
    if (info->id == OP_MMA) check_mma(v, info, args, loc);
    if (info->id == OP_VATOMIC_ADD) check_red(v, info, args, loc);
    if (info->id == OP_RECAST) check_recast(v, info, args, loc);
    if (info->id == OP_PEER) check_rank(v, info, OPERAND_INDEX(PEER, rank), args, loc);
    if (info->id == OP_PEER_STORE) check_rank(v, info, OPERAND_INDEX(PEER_STORE, rank), args, loc);
    if (info->id == OP_PEER_ARRIVE) check_rank(v, info, OPERAND_INDEX(PEER_ARRIVE, rank), args, loc);
    for (size_t i = 0; i < sizeof extents / sizeof extents[0] && !v->broken; i++)
        if (extents[i].op == info->id) check_extent(v, info, &extents[i], args, loc);
    for (size_t i = 0; i < sizeof aligned / sizeof aligned[0] && !v->broken; i++)
        if (aligned[i].op == info->id) check_alignment(v, info, &aligned[i], args, loc);
}
