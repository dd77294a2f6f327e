// `cost (M, N, 1, K, K * 2, 0, tile_rows = 128, ..)`: the extents of a problem, then terms by name.
#include "frontend/sema.h"

static bool take_term(Sema *s, const Node *arg, LaunchCost *terms) {
    int term = cost_term_named(arg->text);
    if (term == COST_TERM_COUNT) {
        diag(s->sink, arg->span, T_UNKNOWN_ARGUMENT, "cost", arg->text);
        return false;
    }
    return constant_int(s, arg->kids[0], arg->text, 0, INT32_MAX, cost_term(terms, term));
}

FuncCost *cost_clause(Sema *s, const Node *args) {
    FuncCost *cost = NEW(s->arena, FuncCost);
    int extents = 0;
    for (int i = 0; i < args->count; i++) {
        const Node *arg = args->kids[i];
        if (arg->kind == N_NAMED && !take_term(s, arg, &cost->terms)) return NULL;
        if (arg->kind == N_NAMED) continue;
        if (extents < COST_EXTENTS) cost->extents[extents] = to_type(s, expression(s, arg), TYPE_I64);
        extents++;
    }
    if (extents == COST_EXTENTS) return cost;
    diag_note(diag(s->sink, args->span, T_ARGUMENTS, "cost"), "it takes %d extents, then terms by name", COST_EXTENTS);
    return NULL;
}
