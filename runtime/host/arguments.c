#include "runtime/host/arguments.h"
#include "emulator/values.h"
#include "ir/build.h"
#include "ir/query.h"
#include "support/available.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const Span NOWHERE;

typedef struct Maker {
    Arena *arena;
    DiagSink *sink;
    const Func *func;
    uint64_t seed;
    EmuArg *args;
    HostScope dims;   // dims given by name
    int64_t room;     // bytes of memory for all tensors
    int64_t bytes;    // of the tensors so far
} Maker;

int run_param(const Func *func, const char *name) {
    for (int i = 0; i < func->params.count; i++) {
        const Param *p = &func->params.items[i];
        if (strcmp(p->buf ? p->buf->name : p->var->name, name) == 0) return i;
    }
    return -1;
}

static bool refuse(Maker *m, const char *name, const char *why) {
    diag(m->sink, NOWHERE, T_RUN_ARGUMENT, name, why);
    return false;
}

static EmuTensor *tensor_of(Arena *arena, const Tensor *from) {
    EmuTensor *tensor = NEW(arena, EmuTensor);
    *tensor = (EmuTensor){.type = from->type, .rank = from->rank, .data = from->data, .bytes = from->bytes};
    int64_t stride = 1;
    for (int d = from->rank - 1; d >= 0; d--) {
        tensor->shape[d] = from->shape[d];
        tensor->strides[d] = stride;
        stride *= from->shape[d];
    }
    return tensor;
}

Tensor run_tensor(const EmuArg *arg) {
    Tensor out = {.type = arg->tensor->type, .rank = arg->tensor->rank, .data = arg->tensor->data};
    memcpy(out.shape, arg->tensor->shape, sizeof out.shape);
    out.bytes = arg->tensor->bytes;
    return out;
}

// Its shape alone.
static bool shape_tensor(Maker *m, const char *name, Type type, int rank, const int64_t *shape, Tensor *out) {
    int64_t bytes = type_bytes(type);
    *out = (Tensor){.type = type, .rank = rank};
    for (int d = 0; d < rank; d++) {
        out->shape[d] = shape[d];
        if (shape[d] < 0 || __builtin_mul_overflow(bytes, shape[d], &bytes) || bytes > INT64_MAX / 4)
            return refuse(m, name, "its shape is negative or too large");
    }
    if (bytes > m->room - m->bytes)
        return refuse(m, name,
                      arena_printf(m->arena, "it has %lld bytes, and there is room for %lld", (long long)bytes,
                                   (long long)(m->room - m->bytes)));
    m->bytes += bytes;
    out->bytes = (size_t)bytes;
    return true;
}

// Makes the elements: zeros, iota, poison or random (floats: N(0, 1); integers: 0 to 255).
static void fill(Maker *m, Tensor *t, const char *kind, int index) {
    Random random = {m->seed * 1000003 + (uint64_t)index};
    size_t width = (size_t)type_bytes(t->type);
    bool real = type_is_float(t->type), iota = strcmp(kind, "iota") == 0;
    t->data = arena_alloc(m->arena, t->bytes + 1);
    if (strcmp(kind, "zeros") == 0) return;
    for (int64_t i = 0, n = tensor_elements(t); i < n; i++) {
        Scalar value = {.type = real ? TYPE_F64 : TYPE_I64};
        if (iota) value = scalar_convert(value.type, scalar_integer(TYPE_I64, i));
        else if (strcmp(kind, "poison") == 0) value = real ? scalar_real(TYPE_F64, NAN) : scalar_integer(TYPE_I64, -1);
        else if (real) value.real = random_normal(&random);
        else value.integer = (int64_t)random_below(&random, 256);
        scalar_store(scalar_convert(t->type, value), (uint8_t *)t->data + width * (size_t)i);
    }
}

// Parses "[256x192]" or "[256,192]"; returns the rank, or -1 if malformed.
static int parse_shape(const char *text, int64_t *shape) {
    int rank = 0;
    if (*text != '[') return -1;
    while (*text != ']') {
        char *end;
        errno = 0;
        long long extent = strtoll(text + 1, &end, 10);
        if (end == text + 1 || extent < 0 || errno || rank == LAYOUT_MAX_RANK || !strchr("x,]", *end) || !*end)
            return -1;
        shape[rank++] = extent;
        text = end;
    }
    return text[1] == 0 ? rank : -1;
}

static bool make_tensor(Maker *m, int index, const RunArg *given) {
    const Buf *buf = m->func->params.items[index].buf;
    static const char *const kinds[] = {"random", "zeros", "iota"};
    int64_t shape[LAYOUT_MAX_RANK];
    Tensor tensor;
    const char *bracket = strchr(given->value, '[');
    bool ok = false, generated = false;
    for (int k = 0; bracket && k < 3; k++) {
        size_t length = strlen(kinds[k]);
        if ((size_t)(bracket - given->value) != length || memcmp(given->value, kinds[k], length) != 0) continue;
        int rank = parse_shape(bracket, shape);
        if (rank < 0) return refuse(m, given->name, "its shape is malformed");
        generated = true;
        ok = shape_tensor(m, given->name, buf->type, rank, shape, &tensor);
        if (ok) fill(m, &tensor, kinds[k], index);
    }
    if (!generated) ok = npy_read(m->arena, m->sink, given->value, buf->type, &tensor);
    if (!ok) return false;
    EmuTensor *made = m->args[index].tensor = tensor_of(m->arena, &tensor);
    const char *why = NULL;
    if (buf->leading) why = merge_leading(m->arena, buf->name, buf->rank, &made->rank, made->shape, made->strides);
    else if (made->rank != buf->rank) why = arena_printf(m->arena, "it has %d dims, not %d", made->rank, buf->rank);
    return !why || refuse(m, given->name, why);
}

static bool make_scalar(Maker *m, int index, const RunArg *given) {
    const Var *var = m->func->params.items[index].var;
    const char *text = given->value;
    char *end;
    EmuArg *arg = &m->args[index];
    if (type_is_float(var->type)) arg->real = strtod(text, &end);
    else if (strcmp(text, "true") == 0 || strcmp(text, "false") == 0) {
        arg->integer = text[0] == 't';
        return true;
    } else {
        errno = 0;
        bool large = var->type == TYPE_U64 && *text != '-';
        arg->integer = large ? (int64_t)strtoull(text, &end, 0) : strtoll(text, &end, 0);
        bool fits = errno == 0 && (large || var->type != TYPE_U64) && int_wrap(var->type, arg->integer) == arg->integer;
        if (end != text && *end == 0 && !fits)
            return refuse(m, given->name, arena_printf(m->arena, "%s has no such number", type_text(var->type)));
    }
    if (end != text && *end == 0) return true;
    return refuse(m, given->name,
                  var->type == TYPE_BOOL     ? "it must be true or false"
                  : type_is_float(var->type) ? "it must be a number"
                                             : "it must be an integer");
}

static bool check_given(Maker *m, const bool *given) {
    for (int i = 0; i < m->func->params.count; i++) {
        const Param *p = &m->func->params.items[i];
        if (given[i] || (p->buf && (p->buf->mode == MODE_OUT || m->dims.names.count > 0))) continue;
        return refuse(m, p->buf ? p->buf->name : p->var->name, "it was not given");
    }
    return true;
}

// M=4096: binds a dim.
static bool give_dim(Maker *m, const RunArg *given) {
    char *end;
    errno = 0;
    HostName name = {given->name, scalar_integer(TYPE_I64, strtoll(given->value, &end, 0))};
    if (end == given->value || *end) return refuse(m, given->name, "it must be an integer");
    if (errno) return refuse(m, given->name, "i64 has no such number");
    if (name.value.integer < 0) return refuse(m, given->name, "an extent is not negative");
    vec_push(m->arena, &m->dims.names, name);
    return true;
}

// Binds the dim if the expression is a single name.
static void bind(Arena *arena, HostScope *scope, const Expr *expr, int64_t value) {
    if (!expr || expr->kind != EXPR_VAR) return;
    HostName name = {expr->var->name, scalar_integer(TYPE_I64, value)};
    vec_push(arena, &scope->names, name);
}

// Makes the tensors that were not given: their shapes follow from bound dims.
static bool infer_tensors(Maker *m, const bool *given) {
    HostScope scope = m->dims;
    for (int i = 0; i < m->func->params.count; i++) {
        const Param *p = &m->func->params.items[i];
        if (p->buf && given[i])
            for (int d = 0; d < p->buf->rank; d++)
                bind(m->arena, &scope, p->buf->shape[d],
                     m->args[i].tensor->shape[moved_dim(p->buf->moved, p->buf->rank, d)]);
        if (!p->var) continue;
        HostName name = {p->var->name, scalar_integer(TYPE_I64, m->args[i].integer)};
        if (type_is_float(p->var->type)) name.value = scalar_real(TYPE_F64, m->args[i].real);
        vec_push(m->arena, &scope.names, name);
    }
    for (int i = 0; i < m->func->params.count; i++) {
        const Buf *buf = m->func->params.items[i].buf;
        int64_t shape[LAYOUT_MAX_RANK];
        Tensor tensor;
        if (!buf || given[i]) continue;
        for (int d = 0; d < buf->rank; d++) {
            Scalar extent;
            const char *why = NULL;
            if (!host_eval(m->arena, &scope, buf->shape[d], &extent, &why))
                return refuse(m, buf->name,
                              arena_printf(m->arena, "its shape is not known (%s): give zeros[...]", why));
            shape[moved_dim(buf->moved, buf->rank, d)] = extent.integer;
        }
        if (!shape_tensor(m, buf->name, buf->type, buf->rank, shape, &tensor)) return false;
        m->args[i].tensor = tensor_of(m->arena, &tensor);
    }
    for (int i = 0; i < m->func->params.count; i++) {   // once there is room for all of them
        const Buf *buf = m->func->params.items[i].buf;
        if (!buf || given[i]) continue;
        Tensor tensor = run_tensor(&m->args[i]);
        fill(m, &tensor, buf->mode == MODE_OUT ? "poison" : "random", i);
        m->args[i].tensor->data = tensor.data;
    }
    return true;
}

static bool check_names(Maker *m, int count, const RunArg *given) {
    for (int i = 0; i < count; i++)
        for (int j = 0; j < i; j++)
            if (strcmp(given[i].name, given[j].name) == 0) return refuse(m, given[i].name, "it is given twice");
    return true;
}

// A dim that is given by name, and a tensor whose extent it is.
static bool check_dim(Maker *m, const HostName *dim, const Buf *buf, const EmuTensor *tensor) {
    for (int d = 0; d < buf->rank; d++) {
        const Expr *extent = buf->shape[d];
        int at = moved_dim(buf->moved, buf->rank, d);
        bool same = extent->kind == EXPR_VAR && strcmp(extent->var->name, dim->name) == 0;
        if (!same || tensor->shape[at] == dim->value.integer) continue;
        return refuse(m, dim->name,
                      arena_printf(m->arena, "it is %lld, and dim %d of '%s' is %lld", (long long)dim->value.integer,
                                   at, buf->name, (long long)tensor->shape[at]));
    }
    return true;
}

static bool check_dims(Maker *m, const bool *given) {
    for (int i = 0; i < m->func->params.count; i++) {
        const Buf *buf = m->func->params.items[i].buf;
        VEC_EACH (const HostName, dim, &m->dims.names)
            if (buf && given[i] && !check_dim(m, dim, buf, m->args[i].tensor)) return false;
    }
    return true;
}

bool run_make_args(Arena *arena, DiagSink *sink, const Func *func, int given_count, const RunArg *given, uint64_t seed,
                   EmuArg **args) {
    Maker m = {.arena = arena, .sink = sink, .func = func, .seed = seed, .dims.multiprocessors = 1};
    m.room = memory_available() / 8 * 7;
    bool *seen = NEW_ARRAY(arena, bool, func->params.count + 1);
    *args = m.args = NEW_ARRAY(arena, EmuArg, func->params.count + 1);
    if (!check_names(&m, given_count, given)) return false;
    for (int i = 0; i < given_count; i++) {
        int index = run_param(func, given[i].name);
        bool is_dim = index < 0 && func_dim(func, given[i].name);
        if (index < 0 && !is_dim)
            return refuse(&m, given[i].name, arena_printf(arena, "'%s' has no such parameter", func->name));
        if (!is_dim) seen[index] = true;
        bool tensor = !is_dim && func->params.items[index].buf;
        bool ok = is_dim   ? give_dim(&m, &given[i])
                  : tensor ? make_tensor(&m, index, &given[i])
                           : make_scalar(&m, index, &given[i]);
        if (!ok) return false;
    }
    return check_given(&m, seen) && check_dims(&m, seen) && infer_tensors(&m, seen);
}
