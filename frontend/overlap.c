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

void separate_operands(Sema *s, OpId op, int count, Arg *args, Span span) {
    if (s->context != IN_BLOCK || s->verbatim || !op_is(op, OP_CLASS_TILE)) return;
    for (int w = 0; w < count; w++)
        for (int r = 0; r < count; r++) {
            const Region *written = args[w].region, *read = args[r].region;
            Expr *value = args[r].value;
            if (written && value && expr_uses_buf(value, written->buf)) args[r].value = value_first(s, value, span);
            if (r == w || !written || !read || written->buf != read->buf || region_rank(read) == 0) continue;
            if (op_operand(op, w)->access == ACCESS_READ || op_operand(op, r)->access != ACCESS_READ) continue;
            const Facts *facts = facts_new(s->arena, s->func);
            if (are_disjoint(s, facts, written, read)) continue;
            if (works_in_place(op) && are_one_place(s, facts, written, read)) continue;
            args[r].region = read_first(s, op, args[r].region, span);
        }
}
