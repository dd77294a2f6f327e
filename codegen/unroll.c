// Which `unroll` loops need to be expanded.
//
// `unroll` asks for straight-line code. It must be given where the iterator decides which registers are meant: in the
// index of a local array, or in an operand that has to be a constant. Elsewhere (a thread's share of a large copy, say)
// many copies cost registers for as many addresses, all live at once, and win nothing beyond a few: such a loop becomes
// a loop over a few copies.
//
//     unroll (q in 64) As[q * 4 + t / 64, ...] = A[...]            rolls
//     unroll (q in 64) { let r = q * 2; x[...] = bf16(acc[r]); }   does not: r is an index of acc
#include "codegen/gen.h"
#include "ir/rewrite.h"

typedef struct Search {
    Map *derived;   // variables whose value the iterator decides
    bool found;     // a place that needs the iterator as a constant
} Search;

static bool find_derived(Visitor *visitor, Expr *expr) {
    Search *search = visitor->user;
    search->found |= expr->kind == EXPR_VAR && map_has(search->derived, expr->var);
    return !search->found;
}

static bool depends(Search *search, Expr *expr) {
    Search inner = {.derived = search->derived};
    Visitor visitor = {.expr = find_derived, .user = &inner};
    if (expr) visit_expr(&visitor, expr);
    return inner.found;
}

static void search_indices(Search *search, const Buf *buf, int count, Expr *const *indices) {
    if (buf->scope != SCOPE_LOCAL) return;
    for (int i = 0; i < count; i++) search->found |= depends(search, indices[i]);
}

static bool search_expr(Visitor *visitor, Expr *expr) {
    Search *search = visitor->user;
    if (expr->kind == EXPR_LOAD) search_indices(search, expr->load.buf, expr->load.count, expr->load.indices);
    return !search->found;
}

static void search_region(Visitor *visitor, Region *region, const Operand *operand) {
    (void)operand;
    Search *search = visitor->user;
    if (region->buf->scope != SCOPE_LOCAL) return;
    for (int i = 0; i < region->count; i++) search->found |= depends(search, region->dims[i].start);
}

static void search_constants(Search *search, const Stmt *call) {
    const OpInfo *info = op_info(call->call.op);
    for (int i = 0; i < call->call.count && i < info->operand_count; i++) {
        if (info->operands[i].flags & OPERAND_CONST) search->found |= depends(search, call->call.args[i].value);
    }
}

static bool search_stmt(Visitor *visitor, Stmt *stmt) {
    Search *search = visitor->user;
    switch (stmt->kind) {
    case STMT_LET:
        if (depends(search, stmt->let.value)) map_put(search->derived, stmt->let.var, search);
        break;
    case STMT_STORE: search_indices(search, stmt->store.buf, stmt->store.count, stmt->store.indices); break;
    case STMT_FOR:
        for (int i = 0; i < stmt->loop.count; i++) {
            const Iter *iter = &stmt->loop.iters[i];
            search->found |= depends(search, iter->begin) || depends(search, iter->end) || depends(search, iter->step);
        }
        break;
    case STMT_CALL: search_constants(search, stmt); break;
    case STMT_BREAK: search->found = true; break;
    default: break;
    }
    return !search->found;
}

bool must_expand(Gen *gen, Stmt *loop, const Var *var) {
    intptr_t known = (intptr_t)map_get(gen->kernel.expansions, var);
    if (known) return known == 1;
    Search search = {.derived = map_new(gen->arena)};
    map_put(search.derived, var, &search);
    Visitor visitor = {.expr = search_expr, .stmt = search_stmt, .region = search_region, .user = &search};
    visit_block(&visitor, &loop->loop.body);
    map_put(gen->kernel.expansions, var, (void *)(intptr_t)(search.found ? 1 : 2));
    return search.found;
}
