// Launches: from arguments to a machine that runs.
//
// In: a function with arguments; or a test. Out: the tensors' contents, a report.
//
// Files in order: test.c, reference_cache.c, emulator.c, launch.c, launches.c (launches that overlap).
#pragma once
#include "emulator/code.h"

typedef struct Machine Machine;

// ---- launch.c ----
bool launch_callee(Machine *caller, const LaunchCode *code, Agent *agent);   // a program's kernel or program
// Dims of func by the arguments' shapes and strides, in order of func->dims; false with *why when they do not fit.
bool bind_dims(const Module *module, const Func *func, int count, const EmuArg *args, int64_t *dims, Arena *arena,
               const char **why);
bool host_value(const Module *module, const Func *func, const Expr *expr, int count, const EmuArg *args,
                const int64_t *dims, Arena *arena, Word *out);
EmuOptions host_options(const EmuOptions *options);   // for references and fill blocks: only limits
bool run_func(const Module *module, const Func *func, int count, const EmuArg *args, const EmuOptions *options,
              Arena *keep, EmuReport *report);   // keep: memory of the report; NULL: no sites
// Adds all kernels of that name that accept the arguments, and those that programs of that name launch, to
// options->launches. False: there are none, or something was reported.
bool add_launches(const Module *module, const char *name, int count, const EmuArg *args, const EmuOptions *options,
                  EmuReport *report);
const Func *choose_variant(const Module *module, const char *name, int count, const EmuArg *args);

// ---- emulator.c ----
bool run_timed(const Module *module, const Func *func, int count, const EmuArg *args, const EmuOptions *options,
               Arena *keep, EmuReport *report);   // in scratch memory
// Runs `job` with a module whose arena lives as long as the job, and hands failures on. False: there was no memory, which
// is reported at `place`.
bool in_scratch(const Module *module, Span place, void (*job)(const Module *module, void *user), void *user);

// ---- reference_cache.c ----
// Fills the reference's tensors, from the cache where it has them. False: the reference reported something.
bool cached_reference(const Module *module, const Func *reference, int count, const EmuArg *args,
                      const EmuOptions *options);
// A test's inputs, which depend on its function's parameters alone, not on what passes make of its body. False: they were
// not made before.
bool cached_case(const EmuReferenceCache *cache, Arena *arena, const Test *test, const char *signature,
                 const EmuOptions *options, TestCase *out);
void cache_case(EmuReferenceCache *cache, const Test *test, const char *signature, const EmuOptions *options,
                const TestCase *made);
// The result of a test that has passed at this stage of the module (emu_reference_cache_stage), with the same options.
// False: there is none.
bool cached_test(const EmuReferenceCache *cache, const Module *module, const Test *test, const EmuOptions *options,
                 EmuTestResult *result);
// Keeps the result of a test that has passed without a diagnostic.
void cache_test(EmuReferenceCache *cache, const Module *module, const Test *test, const EmuOptions *options,
                const EmuTestResult *result);

// ---- test.c ----
size_t tensor_reach(const EmuTensor *tensor);   // its elements in memory, with those between rows
EmuTensor *tensor_copy(Arena *arena, const EmuTensor *from);
