#include "passes/analyses.h"
#include "support/vec.h"

static void compute_scopes(PassContext *context, const Func *kernel, Analyses *out) {
    out->scopes = (ThreadScopeVec){0};
    thread_scopes(context->arena, (Func *)kernel, &out->scopes);
}

static bool same_scopes(const Analyses *a, const Analyses *b) {
    if (a->scopes.count != b->scopes.count) return false;
    for (int i = 0; i < a->scopes.count; i++) {
        const ThreadScope *x = &a->scopes.items[i], *y = &b->scopes.items[i];
        if (x->role != y->role || x->body != y->body || x->threads != y->threads) return false;
    }
    return true;
}

static const struct {
    const char *text;
    void (*compute)(PassContext *context, const Func *kernel, Analyses *out);
    bool (*same)(const Analyses *a, const Analyses *b);
} rows[] = {
#define ANALYSIS(NAME, text, compute, same) [ANALYSIS_##NAME] = {text, compute, same},
#include "passes/analyses.def"
#undef ANALYSIS
};
_Static_assert(COUNT_OF(rows) == ANALYSIS_COUNT, "an analysis without its row");

const char *analysis_text(Analysis which) {
    return rows[which].text;
}

Analysis stale_analysis(PassContext *context) {
    for (int i = 0; i < ANALYSIS_COUNT; i++) {
        Analyses now = {0};
        if (!(context->analyses->valid & 1 << i)) continue;
        rows[i].compute(context, context->kernel, &now);
        if (!rows[i].same(context->analyses, &now)) return (Analysis)i;
    }
    return ANALYSIS_COUNT;
}

void report_stale_analysis(PassContext *context, const char *pass) {
    Analysis stale = stale_analysis(context);
    if (stale == ANALYSIS_COUNT) return;
    diag(context->sink, context->kernel->loc, T_STALE_ANALYSIS, pass, analysis_text(stale), context->kernel->name);
}

static const Analyses *get(PassContext *context, const Func *kernel, Analysis which) {
    Analyses *analyses = context->analyses;
    EXPECT(context->failure, kernel == context->kernel, "an analysis of '%s' in a pass over '%s'", kernel->name,
           context->kernel->name);
    if (!(analyses->valid & 1 << which)) rows[which].compute(context, kernel, analyses);
    analyses->valid |= 1 << which;
#ifndef NDEBUG   // the pass dropped what it changed
    EXPECT(context->failure, stale_analysis(context) == ANALYSIS_COUNT, "stale: %s", analysis_text(which));
#endif
    return analyses;
}

const ThreadScopeVec *kernel_scopes(PassContext *context, const Func *kernel) {
    return &get(context, kernel, ANALYSIS_SCOPES)->scopes;
}

void keep_analyses(Analyses *analyses, int keeps) {
    analyses->valid &= keeps;
}
