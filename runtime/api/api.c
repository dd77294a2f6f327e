// The public API: objects with an arena each, entry points that catch failures.
//
// A call works in a temporary arena (Job) with a failure point. Results are copied into the arena of the object that
// the call creates; such an arena has its own failure point, which passes failures on to the job's.
#include "runtime/api/api.h"
#include "runtime/api/recent.h"
#include "runtime/api/status.h"
#include "runtime/plan/container.h"
#include "target/target.h"
#include <string.h>

const char *tilec_version(void) {
    return TILEC_VERSION;
}

const char *tilec_type_name(TilecType type) {
    Type known;
    return type_of_public(type, &known) ? type_text(known) : "unknown";
}

// ---- objects ----

void *object_new(Allocator host, size_t bytes) {
    Object *object = host.resize(host.user, NULL, bytes);
    if (!object) return NULL;
    memset(object, 0, bytes);
    object->host = host;
    object->arena = arena_new(host, &object->failure);
    if (object->arena) return object;
    host.resize(host.user, object, 0);
    return NULL;
}

void object_free(void *memory) {
    Object *object = memory;
    if (!object) return;
    Allocator host = object->host;
    arena_free(object->arena);
    host.resize(host.user, object, 0);
}

// ---- jobs ----

struct TilecDiagnostics {
    Object object;
    VEC(TilecDiagnostic) items;
    const char *text, *json;
};

static void render(TilecDiagnostics *out, const DiagSink *sink) {
    Arena *arena = out->object.arena;
    StrBuf text, json;
    sb_init(&text, arena);
    sb_init(&json, arena);
    diag_render(sink, 0, DIAG_TEXT, &text);
    diag_render(sink, 0, DIAG_JSON, &json);
    out->text = sb_text(&text);
    out->json = sb_text(&json);
    for (int i = 0; i < diag_count(sink); i++) {
        DiagView view = diag_view(sink, i);
        TilecDiagnostic d = {.code = (int)view.code, .severity = (TilecSeverity)view.severity};
        d.line = view.span.line;
        d.column = view.span.column;
        d.end_line = view.span.end_line;
        d.end_column = view.span.end_column;
        d.file = d.line ? arena_strdup(arena, view.file) : "";
        d.message = arena_strdup(arena, view.message);
        d.remedy = view.remedy;
        vec_push(arena, &out->items, d);
    }
}

// The diagnostics of a job as an object; NULL: none, or out of memory.
static TilecDiagnostics *diagnostics_of(const Job *job) {
    if (!job->sink || diag_count(job->sink) == 0) return NULL;
    TilecDiagnostics *out = object_new(job->host, sizeof *out);
    if (!out) return NULL;
    if (FAILURE_CAUGHT(&out->object.failure)) {
        object_free(out);
        return NULL;
    }
    render(out, job->sink);
    return out;
}

static TilecStatus caught(Job *job, TilecStatus (*work)(Job *job)) {
    if (FAILURE_CAUGHT(&job->failure))
        return job->failure.kind == FAIL_INTERNAL ? TILEC_ERROR_INTERNAL : TILEC_ERROR_ENVIRONMENT;
    job->arena = arena_new(job->host, &job->failure);
    if (!job->arena) return TILEC_ERROR_ENVIRONMENT;
    job->sink = diag_sink_new(job->arena);
    return work(job);
}

void report_failure(DiagSink *sink, const char *internal) {
    if (internal) diag(sink, (Span){0}, T_INTERNAL, internal);
    else diag(sink, (Span){0}, T_OUT_OF_MEMORY);
}

// Reports a failure in a new sink: the job's sink may be inconsistent.
static TilecStatus describe_failure(Job *job) {
    report_failure(job->sink, job->text);
    return TILEC_OK;
}

static TilecStatus describe_misuse(Job *job) {
    diag(job->sink, (Span){0}, T_MISUSE, job->text);
    return TILEC_ERROR_USAGE;
}

TilecStatus misuse(Allocator host, TilecDiagnostics **diagnostics, const char *why) {
    Job job = {.host = host, .text = why};
    job_run(&job, describe_misuse, diagnostics);
    return TILEC_ERROR_USAGE;
}

bool struct_out(void *out, size_t size, const void *value, size_t value_size) {
    if (!out || size < sizeof size) return false;
    memcpy((char *)out + sizeof size, (const char *)value + sizeof size,
           (size < value_size ? size : value_size) - sizeof size);
    return true;
}

bool struct_in(void *value, size_t value_size, const void *in) {
    size_t size;
    memcpy(&size, in, sizeof size);
    if (size < sizeof size) return false;
    memcpy(value, in, size < value_size ? size : value_size);
    return true;
}

TilecStatus job_run(Job *job, TilecStatus (*work)(Job *job), TilecDiagnostics **diagnostics) {
    TilecStatus status = caught(job, work);
    if (diagnostics) *diagnostics = NULL;
    if (job->failure.kind != FAIL_NONE) {
        arena_free(job->arena);
        Job message = {.host = job->host};
        if (job->failure.kind == FAIL_INTERNAL) message.text = job->failure.message;
        caught(&message, describe_failure);
        if (diagnostics && message.failure.kind == FAIL_NONE && message.arena) *diagnostics = diagnostics_of(&message);
        arena_free(message.arena);
        return status;
    }
    if (diagnostics) *diagnostics = diagnostics_of(job);
    arena_free(job->arena);
    return status;
}

// ---- diagnostics ----

size_t tilec_diagnostics_count(const TilecDiagnostics *diagnostics) {
    return diagnostics ? (size_t)diagnostics->items.count : 0;
}

bool tilec_diagnostics_get(const TilecDiagnostics *diagnostics, size_t index, TilecDiagnostic *out) {
    if (!out || index >= tilec_diagnostics_count(diagnostics)) return false;
    return struct_out(out, out->size, &diagnostics->items.items[index], sizeof *out);
}

const char *tilec_diagnostics_text(const TilecDiagnostics *diagnostics) {
    return diagnostics ? diagnostics->text : "";
}

const char *tilec_diagnostics_json(const TilecDiagnostics *diagnostics) {
    return diagnostics ? diagnostics->json : "";
}

void tilec_diagnostics_destroy(TilecDiagnostics *diagnostics) {
    object_free(diagnostics);
}

// ---- context ----

TilecStatus tilec_context_create(const TilecAllocator *allocator, TilecContext **out) {
    Allocator host = libc_allocator;
    TilecAllocator given = {0};
    if (!out || (allocator && (!struct_in(&given, sizeof given, allocator) || !given.resize))) return TILEC_ERROR_USAGE;
    if (allocator) host = (Allocator){given.resize, given.user};
    TilecContext *context = host.resize(host.user, NULL, sizeof *context);
    *out = context;
    if (!context) return TILEC_ERROR_ENVIRONMENT;
    context->host = host;
    pool_open(&context->compilers, host);
    recent_open(&context->recent);
    return TILEC_OK;
}

void tilec_context_destroy(TilecContext *context) {
    if (!context) return;
    Allocator host = context->host;
    pool_close(&context->compilers);
    recent_close(&context->recent);
    host.resize(host.user, context, 0);
}

// ---- artefacts ----

_Noreturn void failure_hand_on(const Failure *from, Failure *to) {
    to->kind = from->kind;
    memcpy(to->message, from->message, sizeof to->message);
    longjmp(to->point, 1);
}

TilecArtefact *artefact_hold(TilecArtefact *artefact) {
    atomic_fetch_add(&artefact->holders, 1);
    return artefact;
}

void artefact_release(TilecArtefact *artefact) {
    if (artefact && atomic_fetch_sub(&artefact->holders, 1) == 1) object_free(artefact);
}

static void copy_origin(TilecArtefact *artefact, const CompileReply *reply) {
    Arena *arena = artefact->object.arena;
    CompileImport *imports = NEW_ARRAY(arena, CompileImport, reply->import_count + 1);
    if (reply->diagnostics) artefact->diagnostics = arena_copy(arena, reply->diagnostics, reply->diagnostics_size);
    artefact->diagnostics_size = reply->diagnostics_size;
    artefact->bytes = strlen(artefact->listing) + strlen(artefact->layouts) + strlen(reply->ptx) +
                      strlen(reply->manifest) + reply->cubin_size + reply->diagnostics_size;
    for (int64_t i = 0; i < reply->import_count; i++) {
        const CompileImport *import = &reply->imports[i];
        imports[i] = (CompileImport){arena_strdup(arena, import->path), NULL, import->length};
        imports[i].text = arena_strndup(arena, import->text, import->length);
        artefact->bytes += import->length;
    }
    artefact->imports = imports;
    artefact->import_count = reply->import_count;
}

static void adopt(TilecArtefact *artefact, Job *job, const CompileReply *reply) {
    Arena *arena = artefact->object.arena;
    artefact->ptx = arena_strdup(arena, reply->ptx);
    artefact->manifest = arena_strdup(arena, reply->manifest);
    artefact->listing = arena_strdup(arena, reply->listing ? reply->listing : "");
    artefact->layouts = arena_strdup(arena, reply->layouts ? reply->layouts : "");
    if (reply->cubin) artefact->cubin = arena_copy(arena, reply->cubin, reply->cubin_size);
    artefact->cubin_size = reply->cubin_size;
    copy_origin(artefact, reply);
    artefact->plan =
        plan_read(arena, &artefact->object.failure, job->sink, artefact->manifest, strlen(artefact->manifest));
    if (!artefact->plan) return;
    int count = artefact->plan->entries.count;
    artefact->kernels = NEW_ARRAY(arena, TilecKernel, count + 1);
    for (int i = 0; i < count; i++) artefact->kernels[i].entry = &artefact->plan->entries.items[i];
}

TilecStatus artefact_make(Job *job, const CompileReply *reply, TilecArtefact **out) {
    TilecArtefact *artefact = *out = object_new(job->host, sizeof *artefact);
    if (!artefact) fail_out_of_memory(&job->failure);
    artefact->holders = 1;
    if (FAILURE_CAUGHT(&artefact->object.failure)) failure_hand_on(&artefact->object.failure, &job->failure);
    adopt(artefact, job, reply);
    return artefact->plan ? TILEC_OK : status_of(job->sink, 0);
}

TilecStatus artefact_job_run(Job *job, TilecStatus (*work)(Job *job), TilecArtefact **out,
                             TilecDiagnostics **diagnostics) {
    *out = NULL;
    TilecStatus status = job_run(job, work, diagnostics);
    if (status == TILEC_OK) return status;
    artefact_release(*out);
    *out = NULL;
    return status;
}

typedef struct OpenJob {
    Job job;
    const void *cubin;
    size_t size;
    TilecArtefact **out;
} OpenJob;

static TilecStatus open_artefact(Job *job) {
    OpenJob *open = (OpenJob *)job;
    const char *why = NULL;
    size_t length;
    const char *plan = container_plan(open->cubin, open->size, &length, &why);
    if (!plan) {
        diag(job->sink, (Span){0}, T_BAD_ARTEFACT, why);
        return TILEC_ERROR_SOURCE;
    }
    CompileReply contents = {.ptx = "", .manifest = arena_strndup(job->arena, plan, length)};
    contents.cubin = open->cubin;
    contents.cubin_size = open->size;
    return artefact_make(job, &contents, open->out);
}

TilecStatus tilec_artefact_open(TilecContext *context, const void *cubin, size_t size, TilecArtefact **artefact,
                                TilecDiagnostics **diagnostics) {
    if (!context || !cubin || !artefact)
        return misuse(context ? context->host : libc_allocator, diagnostics, "tilec_artefact_open takes no NULL");
    OpenJob open = {.job = {.host = context->host}, .cubin = cubin, .size = size, .out = artefact};
    return artefact_job_run(&open.job, open_artefact, artefact, diagnostics);
}

void tilec_artefact_destroy(TilecArtefact *artefact) {
    artefact_release(artefact);
}

const char *tilec_artefact_ptx(const TilecArtefact *artefact) {
    return artefact ? artefact->ptx : "";
}

const void *tilec_artefact_cubin(const TilecArtefact *artefact, size_t *size) {
    if (size) *size = artefact ? artefact->cubin_size : 0;
    return artefact ? artefact->cubin : NULL;
}

const char *tilec_artefact_manifest(const TilecArtefact *artefact) {
    return artefact ? artefact->manifest : "";
}

const char *tilec_artefact_listing(const TilecArtefact *artefact) {
    return artefact ? artefact->listing : "";
}

const char *tilec_artefact_layouts(const TilecArtefact *artefact) {
    return artefact ? artefact->layouts : "";
}

const char *tilec_artefact_target(const TilecArtefact *artefact) {
    return artefact ? artefact->plan->target : "";
}

bool tilec_artefact_one_launch(const TilecArtefact *artefact) {
    return artefact && artefact->plan->one_launch;
}

size_t tilec_artefact_kernel_count(const TilecArtefact *artefact) {
    return artefact ? (size_t)artefact->plan->entries.count : 0;
}

const TilecKernel *tilec_artefact_kernel(const TilecArtefact *artefact, size_t index) {
    return index < tilec_artefact_kernel_count(artefact) ? &artefact->kernels[index] : NULL;
}

const TilecKernel *tilec_artefact_find(const TilecArtefact *artefact, const char *name) {
    for (size_t i = 0; name && i < tilec_artefact_kernel_count(artefact); i++)
        if (strcmp(artefact->kernels[i].entry->name, name) == 0) return &artefact->kernels[i];
    return NULL;
}

const char *tilec_kernel_name(const TilecKernel *kernel) {
    return kernel ? kernel->entry->name : "";
}

bool tilec_kernel_is_program(const TilecKernel *kernel) {
    return kernel && kernel->entry->is_program;
}

size_t tilec_kernel_param_count(const TilecKernel *kernel) {
    return kernel ? (size_t)kernel->entry->variants.items[0].params.count : 0;
}

size_t tilec_kernel_variant_count(const TilecKernel *kernel) {
    return kernel ? (size_t)kernel->entry->variants.count : 0;
}

bool tilec_kernel_param(const TilecKernel *kernel, size_t index, TilecParam *out) {
    if (!out || index >= tilec_kernel_param_count(kernel)) return false;
    const PlanParam *p = &kernel->entry->variants.items[0].params.items[index];
    TilecParam param = {.name = p->name, .type = type_text(p->type), .is_tensor = p->is_tensor, .rank = p->rank};
    param.mode = (TilecMode)p->mode;
    param.element = type_to_public(p->type);
    for (int d = 0; d < p->rank; d++) param.shape[d] = p->shape[d].text;
    return struct_out(out, out->size, &param, sizeof param);
}

bool tilec_kernel_variant(const TilecKernel *kernel, size_t index, TilecVariant *out) {
    if (!out || index >= tilec_kernel_variant_count(kernel)) return false;
    const PlanVariant *v = &kernel->entry->variants.items[index];
    TilecVariant variant = {.symbol = v->symbol ? v->symbol : "", .when = v->when.text ? v->when.text : ""};
    variant.threads = v->threads;
    variant.shared_bytes = v->shared_bytes;
    variant.registers = v->symbol ? v->registers : -1;
    variant.spill_bytes = v->spill_stores + v->spill_loads;
    variant.stack_bytes = v->stack;
    return struct_out(out, out->size, &variant, sizeof variant);
}
