// Tests of a module: arguments from bindings, inputs, poisoned outputs, the reference's result, the comparison.
//
// Inputs depend on the seed and the parameter's position alone, so every stage of a program sees the same ones. Outputs
// begin as NaN (integers: an odd pattern) and are marked as not initialised: an element that is never written is found
// by its mark, and on a device by its poison.
#include "emulator/launch.h"
#include "emulator/memory.h"
#include "ir/print.h"
#include "ir/query.h"
#include <math.h>
#include <string.h>

enum { TENSOR_ALIGN = 256 };   // as device memory is
enum { EACH_HOLDS = 10 };      // bytes of an element besides its value: two marks, and the reference's value
static const int64_t MOST_TEST_ELEMENTS = (int64_t)1 << 34;

typedef struct Making {
    const Module *module;
    Arena *arena;
    const Test *test;
    const Func *func;
    int64_t *dims;
    bool *bound;
    EmuArg *scalars;   // the arguments before there are tensors, whose extents may name them
    TestCase *out;
    uint64_t seed;
    bool shapes;   // the tensors keep no values
    bool ok;
} Making;

static bool has_name(const Func *func, const char *name) {
    bool found = false;
    for (int i = 0; i < func->dims.count; i++) found |= strcmp(func->dims.items[i]->name, name) == 0;
    for (int i = 0; i < func->params.count; i++)
        found |= func->params.items[i].var && strcmp(func->params.items[i].var->name, name) == 0;
    return found;
}

// The first of the variants with the most names of the test: one may have strides that another has not.
static const Func *test_func(const Module *module, const Test *test) {
    const Func *func = NULL;
    for (int i = 0, most = -1; i < module->funcs.count; i++) {
        const Func *variant = module->funcs.items[i];
        if (strcmp(variant->name, test->name) != 0) continue;
        int count = 0;
        VEC_EACH (Binding, binding, &test->bindings) count += has_name(variant, binding->name);
        if (count <= most) continue;
        most = count;
        func = variant;
    }
    if (!func) diag(module->sink, test->loc, T_EMU_NO_FUNCTION, test->name);
    return func;
}

static const Binding *find_binding(const Test *test, const char *name) {
    for (int i = 0; i < test->bindings.count; i++)
        if (strcmp(test->bindings.items[i].name, name) == 0) return &test->bindings.items[i];
    return NULL;
}

// ---- dims ----
static bool mentioned(const Func *func, const Var *dim) {   // as a tensor's extent, by itself
    for (int i = 0; i < func->params.count; i++) {
        const Buf *buf = func->params.items[i].buf;
        for (int d = 0; buf && d < buf->rank; d++)
            if (buf->shape[d]->kind == EXPR_VAR && buf->shape[d]->var == dim) return true;
    }
    return false;
}

static void bind_named(Making *m) {
    for (int i = 0; i < m->func->dims.count; i++) {
        const Var *dim = m->func->dims.items[i];
        const Binding *binding = find_binding(m->test, dim->name);
        if (binding && binding->value->kind == EXPR_INT) {
            m->dims[i] = binding->value->integer;
            m->bound[i] = true;
        } else if (mentioned(m->func, dim)) {
            diag(m->module->sink, m->test->loc, T_EMU_UNBOUND, dim->name, m->test->name);
            m->ok = false;
        }
    }
}

static int dim_of(const Func *func, const Expr *e) {
    for (int i = 0; e->kind == EXPR_VAR && i < func->dims.count; i++)
        if (func->dims.items[i] == e->var) return i;
    return -1;
}

static int64_t dim_value(Making *m, const Expr *e) {
    int64_t constant;
    int index = dim_of(m->func, e);
    if (index >= 0) return m->dims[index];
    if (expr_const(e, &constant)) return constant;
    Word value = {.i = 0};
    m->ok &= host_value(m->module, m->func, e, m->out->count, m->scalars, m->dims, m->arena, &value);
    return value.i;
}

// ---- tensors ----
static EmuTensor *new_tensor(Arena *arena, Type type, int rank, const int64_t *shape, const int64_t *strides) {
    EmuTensor *tensor = NEW(arena, EmuTensor);
    *tensor = (EmuTensor){.type = type, .rank = rank};
    int64_t reach = 1;
    for (int d = 0; d < rank; d++) {
        tensor->shape[d] = shape[d];
        tensor->strides[d] = strides[d];
        if (shape[d] <= 0) reach = 0;
        else if (reach) reach += (shape[d] - 1) * strides[d];
    }
    tensor->bytes = (size_t)(reach * type_bytes(type));
    arena_expect(arena, tensor->bytes + (size_t)reach * EACH_HOLDS);
    uint8_t *data = arena_alloc(arena, tensor->bytes + TENSOR_ALIGN);
    tensor->data = data + (TENSOR_ALIGN - (uintptr_t)data % TENSOR_ALIGN) % TENSOR_ALIGN;
    tensor->initialised = NEW_ARRAY(arena, uint8_t, reach + 1);
    return tensor;
}

size_t tensor_reach(const EmuTensor *tensor) {
    return tensor->bytes / (size_t)type_bytes(tensor->type);
}

EmuTensor *tensor_copy(Arena *arena, const EmuTensor *from) {
    EmuTensor *tensor = new_tensor(arena, from->type, from->rank, from->shape, from->strides);
    memcpy(tensor->data, from->data, from->bytes);
    memcpy(tensor->initialised, from->initialised, tensor_reach(from));
    return tensor;
}

// Of the argument. A stride that is not given is dense, from the innermost dim on.
static bool tensor_shape(Making *m, const Buf *buf, int64_t *shape, int64_t *strides) {
    int64_t dense = 1;
    int moved = buf->moved ? 0 : moved_by_strides(buf->rank, buf->leading, buf->shape, buf->strides);
    for (int i = buf->rank - 1; i >= 0; i--) {
        int d = moved_dim(moved, buf->rank, i), at = moved_dim(buf->moved, buf->rank, d);
        int64_t step = dense;
        shape[at] = dim_value(m, buf->shape[d]);
        if (buf->strides) {
            int index = dim_of(m->func, buf->strides[d]);
            if (index >= 0 && !m->bound[index]) {
                m->dims[index] = dense;
                m->bound[index] = true;
            }
            step = dim_value(m, buf->strides[d]);
        }
        strides[at] = step;
        int64_t most = MOST_TEST_ELEMENTS / (shape[at] > 0 ? shape[at] : 1);
        if (!m->ok || shape[at] < 0 || step < 0 || dense > most || step > most) {
            if (m->ok) diag(m->module->sink, m->test->loc, T_EMU_TOO_LARGE, buf->name, m->test->name);
            return m->ok = false;
        }
        if (shape[at] && step * shape[at] > dense) dense = step * shape[at];
        else dense *= shape[at] ? shape[at] : 1;
    }
    return true;
}

// Calls `visit` for the offset of every element.
static void each_element(const EmuTensor *t, void (*visit)(void *user, int64_t offset), void *user) {
    int64_t index[MAX_RANK] = {0};
    for (int d = 0; d < t->rank; d++)
        if (t->shape[d] <= 0) return;
    for (;;) {
        int64_t offset = 0;
        for (int d = 0; d < t->rank; d++) offset += index[d] * t->strides[d];
        visit(user, offset);
        int d = t->rank - 1;
        while (d >= 0 && ++index[d] == t->shape[d]) index[d--] = 0;
        if (d < 0) return;
    }
}

typedef struct Filling {
    EmuTensor *tensor;
    Random random;
} Filling;

static void fill_normal(void *user, int64_t offset) {
    Filling *f = user;
    Type type = f->tensor->type;
    element_store(type, (uint8_t *)f->tensor->data + offset * type_bytes(type), (Word){.f = random_normal(&f->random)});
    f->tensor->initialised[offset] = STATE_READY;
}

static void poison(EmuTensor *tensor) {
    memset(tensor->data, type_is_float(tensor->type) ? 0xff : 0xa5, tensor->bytes);
}

static void make_tensor(Making *m, int index, const Buf *buf) {
    int64_t shape[MAX_RANK], strides[MAX_RANK];
    if (!m->ok || !tensor_shape(m, buf, shape, strides)) return;
    EmuTensor *tensor = new_tensor(m->arena, buf->type, buf->rank, shape, strides);
    m->out->args[index].tensor = tensor;
    if (m->shapes) return;
    poison(tensor);
    if (buf->mode != MODE_OUT && type_is_float(buf->type)) {
        Filling filling = {tensor, {m->seed * 1000003 + (uint64_t)index}};
        each_element(tensor, fill_normal, &filling);
    }
}

static void make_scalar(Making *m, int index, const Var *var) {
    const Binding *binding = find_binding(m->test, var->name);
    EmuArg *arg = &m->out->args[index];
    if (!binding) {
        diag(m->module->sink, m->test->loc, T_EMU_UNBOUND, var->name, m->test->name);
        m->ok = false;
        return;
    }
    if (binding->value->kind == EXPR_FLOAT) {
        arg->real = binding->value->real;
        arg->integer = word_convert(TYPE_I64, TYPE_F64, (Word){.f = arg->real}).i;
    } else {
        arg->integer = binding->value->integer;
        arg->real = (double)arg->integer;
    }
}

// ---- filling, and what must be filled ----
typedef struct Missing {
    const EmuTensor *tensor;
    int64_t count;
} Missing;

static void count_missing(void *user, int64_t offset) {
    Missing *missing = user;
    missing->count += missing->tensor->initialised[offset] != STATE_READY;
}

// What lies behind the extents of a tensor in a layout of its own has no name; a read of it is reported as such.
static void check_filled(Making *m) {
    for (int i = 0; i < m->out->count && m->ok; i++) {
        const Param *param = func_argument(m->func, i);
        const Buf *buf = param->buf;
        if (!buf || buf->mode == MODE_OUT || attr_get(param->attrs, ATTR_LAYOUT)) continue;
        Missing missing = {m->out->args[i].tensor, 0};
        each_element(missing.tensor, count_missing, &missing);
        if (!missing.count) continue;
        diag(m->module->sink, m->test->loc, T_EMU_NOT_FILLED, buf->name, m->test->name, (long long)missing.count);
        m->ok = false;
    }
}

// The reference's own tensors: floats as f64, with the inputs' values.
typedef struct TilePadding {
    const EmuTensor *from;
    EmuTensor *to;
} TilePadding;

static void promote_element(void *user, int64_t offset) {
    TilePadding *w = user;
    if (w->from->initialised[offset] != STATE_READY) return;
    Type from = w->from->type, to = w->to->type;
    Word word = element_load(from, (const uint8_t *)w->from->data + offset * type_bytes(from));
    element_store(to, (uint8_t *)w->to->data + offset * type_bytes(to), word);
    w->to->initialised[offset] = STATE_READY;
}

static void make_want(Making *m) {
    for (int i = 0; i < m->out->count; i++) {
        m->out->want[i] = m->out->args[i];
        const EmuTensor *from = m->out->args[i].tensor;
        if (!from) continue;
        Type type = type_is_float(from->type) ? TYPE_F64 : from->type;
        TilePadding w = {from, new_tensor(m->arena, type, from->rank, from->shape, from->strides)};
        each_element(from, promote_element, &w);
        m->out->want[i].tensor = w.to;
    }
}

static bool make_case(const Module *module, const Test *test, const EmuOptions *options, TestCase *out) {
    const Func *func = test_func(module, test);
    if (!func) return false;
    Making m = {.module = module,
                .arena = module->arena,
                .test = test,
                .func = func,
                .out = out,
                .seed = options ? options->seed : 0,
                .shapes = options && options->launches,
                .ok = true};
    m.dims = NEW_ARRAY(m.arena, int64_t, func->dims.count + 1);
    m.bound = NEW_ARRAY(m.arena, bool, func->dims.count + 1);
    out->count = func_argument_count(func);
    out->args = NEW_ARRAY(m.arena, EmuArg, out->count + 1);
    m.scalars = NEW_ARRAY(m.arena, EmuArg, out->count + 1);
    out->want = NEW_ARRAY(m.arena, EmuArg, out->count + 1);
    bind_named(&m);
    for (int i = 0; i < out->count && m.ok; i++)
        if (!func_argument(func, i)->buf) make_scalar(&m, i, func_argument(func, i)->var);
    memcpy(m.scalars, out->args, (size_t)out->count * sizeof *out->args);
    for (int i = 0; i < out->count && m.ok; i++)
        if (func_argument(func, i)->buf) make_tensor(&m, i, func_argument(func, i)->buf);
    if (m.shapes) return m.ok;
    if (m.ok && test->fill) {
        EmuReport unused = {0};
        EmuOptions host = host_options(options);
        m.ok = run_func(module, test->fill, out->count, out->args, &host, NULL, &unused);
    }
    if (m.ok) check_filled(&m);
    if (m.ok) make_want(&m);
    return m.ok;
}

static bool run_reference(const Module *module, const Test *test, const EmuOptions *options, TestCase *test_case) {
    const Func *reference = module_reference(module, test->name);
    if (!reference) {
        diag(module->sink, test->loc, T_EMU_NO_REFERENCE, test->name);
        return false;
    }
    return cached_reference(module, reference, test_case->count, test_case->want, options);
}

// ---- comparison ----
typedef struct Comparing {
    const EmuTensor *got, *want;
    double sum_squares, rms, tolerance, worst;
    int64_t finite, bad, first_bad, unwritten, first_unwritten, missing;
    bool measuring;
} Comparing;

static double element_real(const EmuTensor *t, Type rounded, int64_t offset) {
    Word word = element_load(t->type, (const uint8_t *)t->data + offset * type_bytes(t->type));
    if (type_is_float(t->type)) return t->type == rounded ? word.f : word_convert(rounded, TYPE_F64, word).f;
    return t->type == TYPE_U64 ? (double)(uint64_t)word.i : (double)word.i;
}

static double error_of(double got, double want, double rms) {
    if (isnan(want) || isnan(got)) return isnan(want) && isnan(got) ? 0 : INFINITY;
    if (got == want) return 0;
    if (isinf(want) || isinf(got)) return INFINITY;
    return fabs(got - want) /
           (fabs(want) + rms);   // the denominator is not 0: want is not, or rms is not, or got differs
}

static uint64_t element_bits(const EmuTensor *t, int64_t offset) {
    return (uint64_t)element_load(t->type, (const uint8_t *)t->data + offset * type_bytes(t->type)).i;
}

// Exact, also beyond 2^53.
static double integer_error(const Comparing *c, int64_t offset, double want) {
    uint64_t a = element_bits(c->got, offset), b = element_bits(c->want, offset);
    bool above = c->got->type == TYPE_U64 ? a > b : (int64_t)a > (int64_t)b;
    return a == b ? 0 : (double)(above ? a - b : b - a) / (fabs(want) + c->rms);
}

static void compare_element(void *user, int64_t offset) {
    Comparing *c = user;
    double want = element_real(c->want, c->got->type, offset);   // rounded once
    if (c->measuring) {
        c->missing += c->want->initialised && c->want->initialised[offset] != STATE_READY;
        if (!isfinite(want)) return;
        c->sum_squares += want * want;
        c->finite++;
        return;
    }
    if (c->got->initialised && c->got->initialised[offset] != STATE_READY) {
        if (!c->unwritten++) c->first_unwritten = offset;
        return;
    }
    double got = element_real(c->got, c->got->type, offset);
    if (isinf(got) && got == element_real(c->want, TYPE_F64, offset)) return;   // e5m2: moved, where rounding saturates
    double error = type_is_float(c->got->type) ? error_of(got, want, c->rms) : integer_error(c, offset, want);
    if (error > c->worst) c->worst = error;
    if (!(error <= c->tolerance) && !c->bad++) c->first_bad = offset;
}

static const char *index_text(Arena *arena, const EmuTensor *t, int64_t offset) {
    StrBuf sb;
    sb_init(&sb, arena);
    for (int d = 0; d < t->rank; d++) {
        int64_t stride = t->strides[d] > 0 ? t->strides[d] : 1;
        sb_printf(&sb, d ? ", %lld" : "%lld", (long long)(offset / stride));
        offset %= stride;
    }
    return sb_text(&sb);
}

static const char *failure_text(Arena *arena, const char *name, const Comparing *c) {
    if (c->missing)
        return arena_printf(arena, "the reference leaves %lld elements of '%s' unwritten", (long long)c->missing, name);
    if (c->unwritten)
        return arena_printf(arena, "%s[%s] was never written (%lld such elements)", name,
                            index_text(arena, c->got, c->first_unwritten), (long long)c->unwritten);
    return arena_printf(
        arena, "%s[%s] is %.9g, the reference says %.9g (%lld of %lld elements beyond tolerance %g, worst %.3g)", name,
        index_text(arena, c->got, c->first_bad), element_real(c->got, c->got->type, c->first_bad),
        element_real(c->want, c->got->type, c->first_bad), (long long)c->bad, (long long)c->finite, c->tolerance,
        c->worst);
}

static bool compare_case(const Module *module, Arena *texts, const Test *test, const TestCase *test_case,
                         EmuTestResult *result) {
    const Func *func = test_func(module, test);
    result->passed = func != NULL;
    result->why = func ? NULL : "there is no such kernel or program";
    result->worst = 0;
    for (int i = 0; func && i < test_case->count; i++) {
        const Buf *buf = func_argument(func, i)->buf;
        if (!buf || buf->mode == MODE_IN) continue;
        Comparing c = {
            .got = test_case->args[i].tensor, .want = test_case->want[i].tensor, .tolerance = test->tolerance};
        c.measuring = true;
        each_element(c.want, compare_element, &c);
        c.measuring = false;
        c.rms = c.finite ? sqrt(c.sum_squares / (double)c.finite) : 0;
        each_element(c.want, compare_element, &c);
        if (c.worst > result->worst) result->worst = c.worst;
        if (!c.bad && !c.unwritten && !c.missing) continue;
        if (result->passed) result->why = failure_text(texts, buf->name, &c);
        result->passed = false;
    }
    return result->passed;
}

// ---- whole tests ----
static const Func *test_target(const Module *module, const Test *test, const TestCase *test_case) {
    return choose_variant(module, test->name, test_case->count, test_case->args);
}

typedef struct TestJob {
    const Module *outer;
    const Test *test;
    const EmuOptions *options;
    EmuTestResult *result;
} TestJob;

static int argument_of(const Func *func, const Buf *buf) {
    int i = 0;
    while (func_argument(func, i)->buf != buf) i++;
    return i;
}

const char *test_case_share(const Module *module, const Test *test, int n, TestCase *test_case) {
    const Func *func = test_func(module, test);
    for (int i = 0; func && i < test_case->count; i++) {
        const Buf *buf = func_argument(func, i)->buf;
        if (!buf || !buf->alias_of || --n > 0) continue;
        test_case->args[argument_of(func, buf->alias_of)].tensor = test_case->args[i].tensor;
        return arena_printf(module->arena, "with '%s' and '%s' as one tensor, ", buf->name, buf->alias_of->name);
    }
    return NULL;
}

// Its parameters as text, of which the inputs are made.
static const char *signature(const Module *module, const Func *func) {
    Func head = {.kind = func->kind, .name = func->name, .dims = func->dims, .params = func->params};
    StrBuf text;
    sb_init(&text, module->arena);
    print_func(module, &head, (PrintOptions){0}, &text);
    return sb_text(&text);
}

static bool make_or_copy_case(const Module *module, const TestJob *job, TestCase *out) {
    EmuReferenceCache *cache = job->options ? job->options->reference_cache : NULL;
    if (!cache) return make_case(module, job->test, job->options, out);
    const Func *func = test_func(module, job->test);
    const char *params = func ? signature(module, func) : NULL;
    if (params && cached_case(cache, module->arena, job->test, params, job->options, out)) return true;
    int diagnostics = diag_count(module->sink);
    if (!func || !make_case(module, job->test, job->options, out)) return false;
    if (diag_count(module->sink) == diagnostics) cache_case(cache, job->test, params, job->options, out);
    return true;
}

// The n-th run: of tensors apart (0), or with two of them one. False: it failed, or there is none.
static bool run_case(const Module *module, const TestJob *job, int n, EmuTestResult *result, const char **shared) {
    TestCase test_case = {0};
    *shared = "";
    result->why = "its inputs cannot be made";
    if (!make_or_copy_case(module, job, &test_case)) return false;
    if (n > 0 && !(*shared = test_case_share(module, job->test, n, &test_case))) return false;
    result->why = "no variant takes its arguments";
    const Func *func = test_target(module, job->test, &test_case);
    if (!func) return false;
    result->why = "the emulator reported errors";
    Arena *keep = job->outer->arena;
    if (!run_timed(module, func, test_case.count, test_case.args, job->options, keep, &result->report)) return false;
    result->why = "its reference does not run";
    return run_reference(module, job->test, job->options, &test_case) &&
           compare_case(module, keep, job->test, &test_case, result);
}

// Once for each two tensors that may be one.
static bool run_shared(const Module *module, const TestJob *job) {
    EmuTestResult result = {0};
    const char *shared;
    int n = 1;
    while (run_case(module, job, n, &result, &shared)) n++;
    if (shared) job->result->why = arena_printf(job->outer->arena, "%s%s", shared, result.why);
    return job->result->passed = !shared;
}

static void test_job(const Module *module, void *user) {
    TestJob *job = user;
    EmuTestResult *result = job->result;
    EmuReferenceCache *cache = job->options ? job->options->reference_cache : NULL;
    int diagnostics = diag_count(module->sink);
    if (cache && cached_test(cache, job->outer, job->test, job->options, result)) return;
    const char *none;
    bool passed = run_case(module, job, 0, result, &none) && run_shared(module, job);
    if (cache && passed && diag_count(module->sink) == diagnostics)
        cache_test(cache, job->outer, job->test, job->options, result);
}

bool emulate_test(const Module *module, const Test *test, const EmuOptions *options, EmuTestResult *result) {
    TestJob job = {module, test, options, result};
    *result = (EmuTestResult){0};
    if (in_scratch(module, test->loc, test_job, &job)) return result->passed;
    result->why = "there is no memory for it";
    return result->passed = false;
}

// ---- what a test launches ----
typedef struct LaunchesJob {
    const Test *test;
    EmuOptions options;
    bool ok;
} LaunchesJob;

// As run_case and run_shared do.
static void launches_job(const Module *module, void *user) {
    LaunchesJob *job = user;
    EmuReport unused = {0};
    const char *shared = "";
    job->ok = true;
    for (int n = 0; job->ok && shared; n++) {
        TestCase test_case = {0};
        job->ok = make_case(module, job->test, &job->options, &test_case);
        if (job->ok && n > 0) shared = test_case_share(module, job->test, n, &test_case);
        if (job->ok && shared)
            job->ok = add_launches(module, job->test->name, test_case.count, test_case.args, &job->options, &unused);
    }
}

bool emulate_launches(const Module *module, const Test *test, const EmuOptions *options, EmuLaunches *launches) {
    LaunchesJob job = {.test = test, .options = *options};
    int said = diag_count(module->sink);
    job.options.launches = launches;
    bool known = in_scratch(module, test->loc, launches_job, &job) && job.ok;
    diag_truncate(module->sink, said);   // the test says it again when it runs
    return known;
}

bool test_case_make(const Module *module, const Test *test, const EmuOptions *options, TestCase *out) {
    return make_case(module, test, options, out);
}

bool test_case_reference(const Module *module, const Test *test, const EmuOptions *options, TestCase *test_case) {
    return run_reference(module, test, options, test_case);
}

bool test_case_compare(const Module *module, const Test *test, const TestCase *test_case, EmuTestResult *result) {
    return compare_case(module, module->arena, test, test_case, result);
}
