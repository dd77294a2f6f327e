// join-products: products of slices that lie next to each other are one product.
//
//     gemm(As[:, 0 +: 32], Bs[0 +: 32, :], acc);
//     gemm(As[:, 32 +: 32], Bs[32 +: 32, :], acc);         =>      gemm(As, Bs, acc);
//
// Slices along k follow each other, so that terms are added in the same order; slices of the rows or columns of the
// accumulator may come in any order. How a product is cut is the compiler's choice: wgmma takes whole tiles of 64 rows, a
// kernel is ping-pong's with one accumulator, and asynchronous products are counted.
//
// Statements between two of them may be anything that neither uses the accumulator nor changes an operand.
#include "ir/build.h"
#include "ir/match.h"
#include "ir/query.h"
#include "passes/analysis/live_ranges.h"
#include "passes/analysis/util.h"
#include "passes/pass.h"
#include "passes/tile/neighbours.h"
#include "passes/tile/tile.h"
#include <string.h>

typedef struct Joiner {
    Arena *arena;
    Subst *names;
} Joiner;

// Along which dims of a, b and the accumulator the slices follow each other: cut in k, in rows, in columns.
enum { A, B, ACC, OPERANDS };
typedef enum { CUT_K, CUT_M, CUT_N, CUT_COUNT } Cut;
static const int cut_dims[CUT_COUNT][OPERANDS] = {{1, 0, REGIONS_EQUAL}, {0, REGIONS_EQUAL, 0}, {REGIONS_EQUAL, 1, 1}};

typedef struct Slices {
    const Region *of[OPERANDS];
} Slices;

static Slices slices_of(const Stmt *product) {
    GemmOp gemm = gemm_of(product);
    return (Slices){{gemm.a, gemm.b, gemm.acc}};
}

// CUT_COUNT: the second ones do not follow the first.
static Cut cut_between(const Joiner *j, const Slices *first, const Slices *second) {
    int dims[OPERANDS];
    for (int i = 0; i < OPERANDS; i++) dims[i] = next_dim(j->arena, j->names, first->of[i], second->of[i]);
    Cut cut = 0;
    while (cut < CUT_COUNT && memcmp(dims, cut_dims[cut], sizeof dims) != 0) cut++;
    return cut;
}

static Arg united(const Joiner *j, Cut cut, const Slices *first, const Slices *second, int operand) {
    const Region *x = first->of[operand], *y = second->of[operand];
    int dim = cut_dims[cut][operand];
    int64_t extent = dim == REGIONS_EQUAL ? 0 : region_extent(x, dim) + region_extent(y, dim);
    return arg_region(region_widened(j->arena, j->names, x, dim, extent));
}

static bool same_value(const Expr *a, const Expr *b) {
    return a && b ? expr_equal(a, b) : a == b;
}

// The second one becomes both.
static bool join_two(const Joiner *j, const Stmt *first, Stmt *second) {
    GemmOp x = gemm_of(first), y = gemm_of(second);
    Slices low = slices_of(first), high = slices_of(second);
    Cut cut = cut_between(j, &low, &high);
    if (cut == CUT_COUNT) {   // terms are added in their order, rows and columns are not
        Slices other = low;
        low = high, high = other;
        cut = cut_between(j, &low, &high);
        if (cut == CUT_K) return false;
    }
    bool adds = gemm_adds(&y);
    if (cut == CUT_COUNT || !same_value(x.precision, y.precision)) return false;
    if (cut == CUT_K ? !adds : !same_value(x.accumulate, y.accumulate)) return false;
    ARG(second, GEMM, a) = united(j, cut, &low, &high, A);
    ARG(second, GEMM, b) = united(j, cut, &low, &high, B);
    ARG(second, GEMM, acc) = united(j, cut, &low, &high, ACC);
    if (y.accumulate) ARG(second, GEMM, accumulate) = (Arg){0};
    if (x.accumulate) call_set_arg(j->arena, second, OPERAND_INDEX(GEMM, accumulate), arg_value(x.accumulate));
    return true;
}

static bool changes(const Expr *expr, const void *unused) {   // where it stands may matter
    (void)unused;
    return !expr_is_stable(expr);
}

static bool is_plain_product(const Stmt *stmt) {
    return is_call(stmt, OP_GEMM) && !stmt->attrs && !stmt->call.is_async && !stmt_any_own_expr(stmt, changes, NULL);
}

// A product may come behind the statement.
static bool may_pass(Arena *arena, const Stmt *product, const Stmt *stmt) {
    GemmOp gemm = gemm_of(product);
    return !stmt_breaks(stmt) && !stmt_touches(arena, stmt, gemm.acc->buf) && !stmt_writes(arena, stmt, gemm.a->buf) &&
           !stmt_writes(arena, stmt, gemm.b->buf);
}

static bool join_first(const Joiner *j, Block *block, int at) {
    const Stmt *first = block->items[at];
    for (int i = at + 1; i < block->count; i++) {
        Stmt *second = block->items[i];
        if (is_plain_product(second) && join_two(j, first, second)) {
            block_remove(block, at);
            return true;
        }
        if (!may_pass(j->arena, first, second)) return false;
    }
    return false;
}

static bool join_block(const Joiner *j, Block *block) {
    bool changed = false;
    for (int i = 0; i < block->count; i++) {
        if (is_plain_product(block->items[i]) && join_first(j, block, i)) {
            changed = true;
            i = -1;   // the new product may be another one's neighbour
            continue;
        }
        if (!is_compound(block->items[i])) continue;
        FOR_EACH_BODY (body, block->items[i]) changed |= join_block(j, body);
    }
    return changed;
}

bool join_products(Arena *arena, Func *kernel) {
    if (!has_free_form(kernel)) return false;
    Joiner j = {arena, stable_names(arena, kernel)};
    return join_block(&j, &kernel->body);
}

bool pass_join_products(PassContext *context, Func *kernel) {
    return join_products(context->arena, kernel);
}
