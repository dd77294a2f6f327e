// Analyses of a whole kernel that several passes use (analyses.def), cached from one pass to the next.
//
// The first pass that needs one computes it. The runner drops it when a pass changes the kernel and does not keep it;
// --verify-each computes those that were kept again and compares. A pass that changes what it has an analysis of, and
// needs it afterwards, drops it itself.
#pragma once
#include "passes/analysis/kernel_walk.h"
#include "passes/pass.h"

// As bits 1 << ANALYSIS_x.
typedef enum {
#define ANALYSIS(NAME, text, compute, same) ANALYSIS_##NAME,
#include "passes/analyses.def"
#undef ANALYSIS
    ANALYSIS_COUNT
} Analysis;

struct Analyses {
    int valid;   // bits
    ThreadScopeVec scopes;
};

// Of the kernel that the pass runs on. They hold until the pass changes it.
const ThreadScopeVec *kernel_scopes(PassContext *context, const Func *kernel);

const char *analysis_text(Analysis which);
void keep_analyses(Analyses *analyses, int keeps);   // drops all others
// The first of the valid analyses that is not what it would be if computed now; ANALYSIS_COUNT: all are.
Analysis stale_analysis(PassContext *context);
void report_stale_analysis(PassContext *context, const char *pass);   // T0510, if there is one
