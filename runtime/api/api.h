// What the files of the public API share. Not for other folders.
#pragma once
#include "runtime/plan/plan.h"
#include "support/diag.h"
#include "support/fail.h"
#include "tilec/tilec.h"

// The head of every object that owns memory.
typedef struct Object {
    Allocator host;
    Failure failure;
    Arena *arena;
} Object;

void *object_new(Allocator host, size_t bytes);   // zeroed, with an arena; NULL: no memory
void object_free(void *object);

struct TilecContext {
    Allocator host;
};

struct TilecKernel {
    const PlanEntry *entry;
};

struct TilecArtefact {
    Object object;
    const char *ptx, *manifest;
    const void *cubin;
    size_t cubin_size;
    const Plan *plan;
    TilecKernel *kernels;   // one per entry of the plan
};

// One call: temporary memory and its diagnostics. Calls with arguments embed it as their first member.
typedef struct Job {
    Allocator host;
    Failure failure;
    Arena *arena;
    DiagSink *sink;
    const char *text;
} Job;

// Runs `work` with an arena, a sink and a failure point, and frees all but what `work` handed out.
TilecStatus job_run(Job *job, TilecStatus (*work)(Job *job), TilecDiagnostics **diagnostics);

// What was caught in an object's arena leaves through the job's failure point.
_Noreturn void failure_hand_on(const Failure *from, Failure *to);

// An artefact object of its own memory.
TilecStatus artefact_make(Job *job, const char *ptx, const char *manifest, const void *cubin, size_t cubin_size,
                          TilecArtefact **out);
