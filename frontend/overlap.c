// Tile operations whose source and destination overlap.
//
// Lowering reads and writes element by element, so one thread could write what another has not read yet. The language
// says that an operation reads its sources before it writes. Where a source may overlap the destination it is copied
// first:
//
//     transpose(S, S);      =>      fragment S_read: f32[64, 64];
//                                   copy(S, S_read);
//                                   transpose(S_read, S);
//
// Numbers that are read from the destination, also those that say where a region begins, are read first.
// Nothing is copied where the two are provably disjoint, and where each element is read and written at one place.
#include "frontend/sema.h"
#include "ir/facts.h"
#include "ir/rewrite.h"

static int64_t dim_length(const RegionDim *dim) {
    return dim->extent ? dim->tile : 1;
}

static bool ends_before(Sema *s, const Facts *facts, const RegionDim *a, const RegionDim *b) {
    return prove(facts, e_ge(s->arena, b->start, e_plus(s->arena, a->start, dim_length(a))));
}

static bool are_disjoint(Sema *s, const Facts *facts, const Region *a, const Region *b) {
    for (int d = 0; d < a->count; d++)
        if (ends_before(s, facts, &a->dims[d], &b->dims[d]) || ends_before(s, facts, &b->dims[d], &a->dims[d]))
            return true;
    return false;
}

static bool are_one_place(Sema *s, const Facts *facts, const Region *a, const Region *b) {
    if (a->transposed != b->transposed) return false;
    for (int d = 0; d < a->count; d++) {
        const RegionDim *x = &a->dims[d], *y = &b->dims[d];
        if (!x->extent != !y->extent || !prove(facts, e_eq(s->arena, x->start, y->start))) return false;
    }
    return true;
}

// Element by element: what is read there is written there.
static bool works_in_place(OpId op) {
    return op == OP_COPY || op_is(op, OP_CLASS_SCAN);
}

static Region *read_first(Sema *s, OpId op, Region *source, Span span) {
    int64_t shape[LAYOUT_MAX_RANK];
    int rank = region_rank(source);
    const Buf *from = source->buf;
    Scope scope = op == OP_GEMM && from->scope == SCOPE_SHARED ? SCOPE_SHARED : SCOPE_FRAGMENT;
    for (int d = 0; d < rank; d++) shape[d] = region_extent(source, d);
    const char *name = arena_printf(s->arena, "%s_read", from->name);
    Buf *copy = buf_new_const(s->arena, name, scope, from->type, rank, shape, place_of(s, span));
    Stmt *declaration = s_decl(s->arena, copy);
    declaration->loc = copy->loc;
    emit(s, declaration);
    emit(s, s_copy(s->arena, source, region_whole(s->arena, copy), copy->loc));
    return region_whole(s->arena, copy);
}

// A value that reads the destination is read once.
static Expr *value_first(Sema *s, Expr *value, Span span) {
    Var *var = var_new(s->arena, "value", VAR_LET, value->type, place_of(s, span));
    Stmt *stmt = s_let(s->arena, var, value);
    stmt->loc = var->loc;
    emit(s, stmt);
    return e_var(s->arena, var);
}

// Where a region begins and ends, too: another thread may have written the element that says it.
static void bounds_first(Sema *s, Arg *arg, const Buf *written, Span span) {
    const Region *region = arg->region;
    Region *fixed = NULL;
    for (int d = 0; region && d < region->count; d++) {
        const RegionDim *dim = &region->dims[d];
        bool start = expr_uses_buf(dim->start, written), extent = dim->extent && expr_uses_buf(dim->extent, written);
        if (!start && !extent) continue;
        if (!fixed) fixed = clone_region(s->arena, NULL, region);
        if (start) fixed->dims[d].start = value_first(s, dim->start, span);
        if (extent) fixed->dims[d].extent = value_first(s, dim->extent, span);
    }
    if (fixed) arg->region = fixed;
}

void separate_operands(Sema *s, OpId op, int count, Arg *args, Span span) {
    if (s->context != IN_BLOCK || s->verbatim || !op_is(op, OP_CLASS_TILE)) return;
    for (int w = 0; w < count; w++)
        for (int r = 0; r < count; r++) {
            const Region *written = args[w].region, *read = args[r].region;
            Expr *value = args[r].value;
            if (written && value && expr_uses_buf(value, written->buf)) args[r].value = value_first(s, value, span);
            if (written && op_operand(op, w)->access != ACCESS_READ) bounds_first(s, &args[r], written->buf, span);
            if (r == w || !written || !read || written->buf != read->buf || region_rank(read) == 0) continue;
            if (op_operand(op, w)->access == ACCESS_READ || op_operand(op, r)->access != ACCESS_READ) continue;
            const Facts *facts = facts_new(s->arena, s->func);
            if (are_disjoint(s, facts, written, read)) continue;
            if (works_in_place(op) && are_one_place(s, facts, written, read)) continue;
            args[r].region = read_first(s, op, args[r].region, span);
        }
}
