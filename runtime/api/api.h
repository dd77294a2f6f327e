// The public API, include/tilec/tilec.h: what its files share. tools/tune.c, which reads artefacts directly, includes
// it too.
//
// In: calls of an embedder. Out: objects that own their memory, a TilecStatus, diagnostics.
// The files of runtime/api/:
//
//     api              objects, diagnostics, contexts, artefacts
//     api_compile      tilec_compile
//     recent           artefacts compiled last, in memory
//     api_launch       tilec_load, tilec_launch, tilec_select
//     arguments        TilecArg: made, checked against parameters, turned into what a launch takes
//     status           diagnostic codes -> TilecStatus
//     info             facts about the machine, for `tilec doctor` and the layout calculator
#pragma once
#include "runtime/cache/cache.h"
#include "runtime/plan/plan.h"
#include "runtime/worker/compiler.h"
#include "support/diag.h"
#include "support/fail.h"
#include "tilec/tilec.h"
#include <stdatomic.h>

// First member of every object that owns memory.
typedef struct Object {
    Allocator host;
    Failure failure;
    Arena *arena;
} Object;

void *object_new(Allocator host, size_t bytes);   // zero-filled, with an arena; NULL: out of memory
void object_free(void *object);

enum { MOST_RECENT = 64 };

typedef struct RecentArtefacts {
    pthread_mutex_t lock;
    int count;
    size_t bytes;
    TilecArtefact *items[MOST_RECENT];   // the one asked for last is first
    ProgramHashes programs;
} RecentArtefacts;

struct TilecContext {
    Allocator host;
    CompilerPool compilers;
    RecentArtefacts recent;
};

struct TilecKernel {
    const PlanEntry *entry;
};

// Immutable, and shared by all who got it.
struct TilecArtefact {
    Object object;
    atomic_int holders;
    const char *ptx, *manifest;
    const void *cubin;
    size_t cubin_size;
    const char *listing, *layouts;
    const Plan *plan;
    TilecKernel *kernels;   // one per entry of the plan
    // Of one that was compiled: where it came from, and what was said then.
    CacheHash key;
    size_t bytes;   // of all these
    const char *diagnostics;
    size_t diagnostics_size;
    int64_t import_count;
    const CompileImport *imports;
};

TilecArtefact *artefact_hold(TilecArtefact *artefact);
void artefact_release(TilecArtefact *artefact);   // the last one frees it; NULL is allowed

// One API call: temporary memory and diagnostics. Calls with arguments embed it as their first member.
typedef struct Job {
    Allocator host;
    Failure failure;
    Arena *arena;
    DiagSink *sink;
    const char *text;
} Job;

// Runs `work` with an arena, a sink and a failure point; frees all memory but the objects that `work` created.
TilecStatus job_run(Job *job, TilecStatus (*work)(Job *job), TilecDiagnostics **diagnostics);

void report_failure(DiagSink *sink, const char *internal);   // NULL: out of memory

// What a call returns that is itself wrong, with its text.
TilecStatus misuse(Allocator host, TilecDiagnostics **diagnostics, const char *why);

// Structures that begin with `size` cross the border to a caller who may know less of their fields, or more. Out: all
// that it knows but the size; false: it says no size. In: what it does not know stays as it is.
bool struct_out(void *out, size_t size, const void *value, size_t value_size);
bool struct_in(void *value, size_t value_size, const void *in);

TilecType type_to_public(Type type);
bool type_of_public(TilecType type, Type *out);   // false: there is no such type

// Passes a failure that was caught in an object's arena on to the failure point of the job.
_Noreturn void failure_hand_on(const Failure *from, Failure *to);

// Creates an artefact that owns copies of what is in the reply. `*out` is set at once: a failure of the job leaves by
// another point than one of the artefact, so the caller that runs the job frees it.
TilecStatus artefact_make(Job *job, const CompileReply *reply, TilecArtefact **out);

// Runs a job that makes an artefact; `*out` is NULL where the status is not TILEC_OK.
TilecStatus artefact_job_run(Job *job, TilecStatus (*work)(Job *job), TilecArtefact **out,
                             TilecDiagnostics **diagnostics);
