#include "runtime/worker/emulate.h"
#include "runtime/api/arguments.h"
#include "runtime/api/status.h"
#include "runtime/plan/build.h"
#include <limits.h>
#include <string.h>

typedef struct Run {
    Answer *answer;
    const Emulation *asked;
    Module *module;
    const Plan *plan;
    const PlanEntry *entry;
    TilecArg *args;
    const LaunchArg *launch;
    EmuArg *emulated;
} Run;

// The plan of the source as it is, for the rules of a launch. False: reported.
static bool make_plan(Run *run, const Target *target) {
    Job *job = &run->answer->job;
    StrBuf manifest;
    sb_init(&manifest, job->arena);
    plan_write(plan_build(run->module, target, NULL), &manifest);
    run->plan = plan_read(job->arena, &job->failure, job->sink, sb_text(&manifest), manifest.length);
    run->entry = run->plan ? plan_entry(run->plan, run->asked->kernel) : NULL;
    if (run->plan && !run->entry) diag(job->sink, (Span){0}, T_NO_ENTRY, run->asked->kernel);
    return run->entry != NULL;
}

static bool check_arguments(Run *run) {
    Job *job = &run->answer->job;
    size_t count = (size_t)run->asked->count;
    const LaunchDevice device = {.multiprocessors = EMU_MULTIPROCESSORS, .max_grid = INT_MAX};
    Launch planned;
    run->args = NEW_ARRAY(job->arena, TilecArg, count + 1);
    for (size_t i = 0; i < count; i++) run->args[i] = run->asked->args[i].arg;
    const char *fault = arguments_fault(run->args, count);
    if (fault) diag(job->sink, (Span){0}, T_MISUSE, fault);
    if (fault || !(run->launch = arguments_read(job->arena, job->sink, run->entry, count, run->args))) return false;
    return plan_dispatch(job->arena, job->sink, run->plan, run->entry, (int)count, run->launch, &device,
                         (LaunchMemory){0}, &planned) &&
           arguments_there(job->sink, run->entry, count, run->args, TILEC_HOST) &&
           plan_arguments_separate(job->sink, run->entry, (int)count, run->launch);
}

static bool is_empty(const TilecArg *arg) {
    for (int d = 0; d < arg->rank; d++)
        if (arg->shape[d] == 0) return true;
    return false;
}

// What the kernel is to write holds no value before.
static EmuTensor *tensor_of(Run *run, const SentArgument *sent, const PlanParam *param) {
    Arena *arena = run->answer->job.arena;
    EmuTensor *tensor = NEW(arena, EmuTensor);
    *tensor = (EmuTensor){.type = param->type, .rank = sent->arg.rank, .bytes = sent->size};
    memcpy(tensor->shape, sent->arg.shape, sizeof tensor->shape);
    memcpy(tensor->strides, sent->arg.strides, sizeof tensor->strides);
    tensor->data = sent->size ? arena_copy(arena, sent->data, sent->size) : arena_alloc(arena, 1);
    if (param->mode == MODE_OUT)
        tensor->initialised = arena_alloc(arena, sent->size / (size_t)type_bytes(param->type) + 1);
    return tensor;
}

// A tensor for two arguments, or two views of one memory, which are only read.
static EmuTensor *view_of(Run *run, EmuTensor *known, const SentArgument *sent, const PlanParam *param) {
    bool same = known->rank == sent->arg.rank;
    for (int d = 0; same && d < known->rank; d++)
        same = known->shape[d] == sent->arg.shape[d] && known->strides[d] == sent->arg.strides[d];
    if (param->mode != MODE_OUT) known->initialised = NULL;
    if (same) return known;
    EmuTensor *view = NEW(run->answer->job.arena, EmuTensor);
    *view = *known;
    view->type = param->type;
    view->rank = sent->arg.rank;
    memcpy(view->shape, sent->arg.shape, sizeof view->shape);
    memcpy(view->strides, sent->arg.strides, sizeof view->strides);
    return view;
}

// False: reported, a tensor with elements came without them.
static bool make_arguments(Run *run) {
    const Emulation *asked = run->asked;
    run->emulated = NEW_ARRAY(run->answer->job.arena, EmuArg, asked->count + 1);
    for (int64_t i = 0; i < asked->count; i++) {
        const SentArgument *sent = &asked->args[i];
        const PlanParam *param = &run->entry->variants.items[0].params.items[i];
        EmuArg *arg = &run->emulated[i];
        size_t bytes;
        Scalar value = param->is_tensor ? (Scalar){0} : scalar_convert(param->type, run->launch[i].scalar);
        arg->integer = value.integer;
        arg->real = value.real;
        if (!param->is_tensor) continue;
        EmuTensor *known = sent->same >= 0 ? run->emulated[sent->same].tensor : NULL;
        bool counted = argument_span(&sent->arg, &bytes);
        if (counted ? bytes != (known ? known->bytes : sent->size) : !is_empty(&sent->arg)) {
            diag(run->answer->job.sink, (Span){0}, T_MISUSE,
                 "a tensor has negative strides, or more bytes than can be sent");
            return false;
        }
        arg->tensor = known ? view_of(run, known, sent, param) : tensor_of(run, sent, param);
    }
    return true;
}

static void add_outputs(Run *run) {
    CompileReply *reply = &run->answer->reply;
    Arena *arena = run->answer->arena;
    SentOutput *outputs = NEW_ARRAY(arena, SentOutput, run->asked->count + 1);
    for (int64_t i = 0; i < run->asked->count; i++) {
        const PlanParam *param = &run->entry->variants.items[0].params.items[i];
        const EmuTensor *tensor = run->emulated[i].tensor;
        if (!tensor || param->mode == MODE_IN || !tensor->bytes) continue;
        SentOutput output = {i, arena_copy(arena, tensor->data, tensor->bytes), tensor->bytes};
        outputs[reply->output_count++] = output;
    }
    reply->outputs = outputs;
    reply->ptx = reply->manifest = "";
}

static bool emulate(Run *run, const Target *target) {
    const Emulation *asked = run->asked;
    int count = (int)asked->count;
    EmuOptions options = {
        .seed = (uint64_t)asked->seed, .max_steps = asked->max_steps, .races = true, .target = target};
    options.multiprocessors = EMU_MULTIPROCESSORS;
    EmuReport report = {0};
    const Func *func = emulate_choose(run->module, asked->kernel, count, run->emulated);
    return func && emulate_func(run->module, func, count, run->emulated, &options, &report);
}

TilecStatus emulate_source(Answer *answer, Loader *loader, const CompileOptions *options) {
    Job *job = &answer->job;
    const CompileRequest *request = answer->request;
    Run run = {.answer = answer, .asked = &request->emulation};
    bool ok = loader_open_text(loader, request->name, request->text, request->length);
    if (ok) run.module = load_module(loader, job->arena, options->define_count, options->defines, run.asked->kernel);
    ok = run.module && make_plan(&run, options->target) && check_arguments(&run) && make_arguments(&run) &&
         emulate(&run, options->target);
    if (ok) add_outputs(&run);
    TilecStatus status = status_of(job->sink, 0);
    return ok || status != TILEC_OK ? status : TILEC_ERROR_INTERNAL;
}
