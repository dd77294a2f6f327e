// The emulator: what a program means, executed on the CPU.
//
// It checks after every stage of the compiler that the program still computes the same, and for thread-stage programs
// that no schedule of a real machine changes the result. The files are in emulator.h, in the order of a run.
//
// One evaluator executes all of them, because a lane can be three things:
//
//     a thread of a warp                  in a `thread` region
//     an iteration of a parallel loop     at tile stage
//     an iteration of a loop              of a reference, where the iterations are provably independent
//
// Example: one CTA of `thread (t in 64) { As[t] = x[t]; barrier(); y[t] = As[63 - t]; }`
//
//     root   1 lane   runs the grid's body; at the region it starts two warps and waits for them
//     warp 0          X_LOAD x (32 lanes), X_STORE As, barrier: waits
//     warp 1          the same; it is the last to arrive, so both clocks become the maximum of the two, both can run
//     warp 1          X_LOAD As[63 - t]: written by warp 0 in an epoch that warp 1 now knows: no race
//
// Without the barrier the load finds a write in an epoch that its clock lacks, and both places are reported, whichever
// warp the schedule ran first.
//
// What is late on purpose: data of cp.async, of wgmma and of started tile ops moves when something waits for it, not
// before; TMA moves its rows at random moments. What is strict on purpose: shared memory, fragments, local arrays and
// outputs begin uninitialised in every CTA; lanes that take part in a warp-wide operation must all be there; vector
// accesses must be aligned.
//
// Limits. CTAs run one after another unless the kernel loads with an order, or has atomics in a `while`: then as many
// as there are multiprocessors run interleaved. Happens-before between CTAs compares whole CTAs. Plain accesses
// that race are executed in the order of the schedule; weaker orders than that are reported, not simulated. A fence of a
// cluster counts as one of the device. A thread
// that overwrites the source of its own cp.async before waiting for it is not reported (other threads are). Atomics
// order nothing within a CTA. At tile stage accesses to another CTA of the cluster are not checked for races (at
// thread stage they are). Whether a tensor that threads wrote is fenced before TMA reads it in the same launch is not
// looked at, nor whether a role's registers suffice.
#include "emulator/launch.h"
#include <time.h>

typedef struct RunJob {
    const Func *func;
    int count;
    const EmuArg *args;
    const EmuOptions *options;
    Arena *keep;
    EmuReport *report;
    bool ok;
} RunJob;

static void run_job(const Module *module, void *user) {
    RunJob *job = user;
    job->ok = run_func(module, job->func, job->count, job->args, job->options, job->keep, job->report);
}

bool run_timed(const Module *module, const Func *func, int count, const EmuArg *args, const EmuOptions *options,
               Arena *keep, EmuReport *report) {
    EmuReport unused, *filled = report ? report : &unused;
    RunJob job = {func, count, args, options, keep, filled, false};
    struct timespec start, end;
    *filled = (EmuReport){0};
    clock_gettime(CLOCK_MONOTONIC, &start);
    job.ok = in_scratch(module, func->loc, run_job, &job) && job.ok;
    clock_gettime(CLOCK_MONOTONIC, &end);
    filled->seconds = (double)(end.tv_sec - start.tv_sec) + 1e-9 * (double)(end.tv_nsec - start.tv_nsec);
    return job.ok;
}

bool emulate_func(const Module *module, const Func *func, int count, const EmuArg *args, const EmuOptions *options,
                  EmuReport *report) {
    return run_timed(module, func, count, args, options, report ? module->arena : NULL, report);
}

bool emulate_reference(const Module *module, const Func *reference, int count, const EmuArg *args) {
    return run_timed(module, reference, count, args, NULL, NULL, NULL);
}

typedef struct ChooseJob {
    const char *name;
    int count;
    const EmuArg *args;
    const Func *chosen;
} ChooseJob;

static void choose_job(const Module *module, void *user) {
    ChooseJob *job = user;
    job->chosen = choose_variant(module, job->name, job->count, job->args);
}

const Func *emulate_choose(const Module *module, const char *name, int count, const EmuArg *args) {
    ChooseJob job = {name, count, args, NULL};
    return in_scratch(module, (Span){0}, choose_job, &job) ? job.chosen : NULL;
}
