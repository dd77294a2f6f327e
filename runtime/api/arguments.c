#include "runtime/api/arguments.h"
#include "ir/build.h"
#include "runtime/api/dlpack.h"
#include <stdio.h>
#include <string.h>

_Static_assert(TILEC_MAX_RANK == (int)LAYOUT_MAX_RANK, "the public rank is the IR's");

// ---- types ----

static const struct {
    Type type;
    TilecType number;
} types[] = {{TYPE_BOOL, TILEC_BOOL}, {TYPE_I8, TILEC_I8},     {TYPE_I16, TILEC_I16},   {TYPE_I32, TILEC_I32},
             {TYPE_I64, TILEC_I64},   {TYPE_U8, TILEC_U8},     {TYPE_U16, TILEC_U16},   {TYPE_U32, TILEC_U32},
             {TYPE_U64, TILEC_U64},   {TYPE_F16, TILEC_F16},   {TYPE_BF16, TILEC_BF16}, {TYPE_F32, TILEC_F32},
             {TYPE_F64, TILEC_F64},   {TYPE_E4M3, TILEC_E4M3}, {TYPE_E5M2, TILEC_E5M2}};
enum { TYPES = sizeof types / sizeof *types };

TilecType type_to_public(Type type) {
    for (int i = 0; i < TYPES; i++)
        if (types[i].type == type) return types[i].number;
    return TILEC_UNKNOWN_TYPE;
}

bool type_of_public(TilecType type, Type *out) {
    for (int i = 0; i < TYPES; i++) {
        if (types[i].number != type) continue;
        *out = types[i].type;
        return true;
    }
    return false;
}

// ---- making ----

TilecArg tilec_strided_tensor(TilecType type, void *data, int rank, const int64_t *shape, const int64_t *strides) {
    TilecArg arg = {.size = sizeof arg, .kind = TILEC_TENSOR, .type = type, .data = data, .rank = rank};
    arg.device = TILEC_ANY_DEVICE;
    for (int d = 0; d < rank && d < TILEC_MAX_RANK && shape && strides; d++) {
        arg.shape[d] = shape[d];
        arg.strides[d] = strides[d];
    }
    return arg;
}

TilecArg tilec_tensor(TilecType type, void *data, int rank, const int64_t *shape) {
    int64_t strides[TILEC_MAX_RANK] = {0}, stride = 1;
    for (int d = rank - 1; d >= 0 && shape; d--) {
        if (d >= TILEC_MAX_RANK) continue;
        strides[d] = stride;
        if (__builtin_mul_overflow(stride, shape[d], &stride))
            stride = INT64_MAX;   // tilec_launch rejects such a tensor
    }
    return tilec_strided_tensor(type, data, rank, shape, strides);
}

TilecArg tilec_integer(int64_t value) {
    return (TilecArg){.size = sizeof(TilecArg), .kind = TILEC_INTEGER, .integer = value};
}

TilecArg tilec_real(double value) {
    return (TilecArg){.size = sizeof(TilecArg), .kind = TILEC_REAL, .real = value};
}

static const struct {
    uint8_t code, bits;
    TilecType type;
} dlpack_types[] = {{DL_INT, 8, TILEC_I8},     {DL_INT, 16, TILEC_I16},    {DL_INT, 32, TILEC_I32},
                    {DL_INT, 64, TILEC_I64},   {DL_UINT, 8, TILEC_U8},     {DL_UINT, 16, TILEC_U16},
                    {DL_UINT, 32, TILEC_U32},  {DL_UINT, 64, TILEC_U64},   {DL_FLOAT, 16, TILEC_F16},
                    {DL_FLOAT, 32, TILEC_F32}, {DL_FLOAT, 64, TILEC_F64},  {DL_BFLOAT, 16, TILEC_BF16},
                    {DL_BOOL, 8, TILEC_BOOL},  {DL_E4M3FN, 8, TILEC_E4M3}, {DL_E5M2, 8, TILEC_E5M2}};

static TilecType dlpack_type(const struct DLTensor *t) {
    for (size_t i = 0; t->type.lanes == 1 && i < sizeof dlpack_types / sizeof *dlpack_types; i++)
        if (dlpack_types[i].code == t->type.code && dlpack_types[i].bits == t->type.bits) return dlpack_types[i].type;
    return TILEC_UNKNOWN_TYPE;
}

TilecArg tilec_dlpack(const struct DLTensor *tensor) {
    if (!tensor) return (TilecArg){.kind = TILEC_TENSOR};   // its size, 0, is refused
    char *data = tensor->data ? (char *)tensor->data + tensor->byte_offset : NULL;
    TilecType type = dlpack_type(tensor);
    TilecArg arg = tensor->strides ? tilec_strided_tensor(type, data, tensor->rank, tensor->shape, tensor->strides)
                                   : tilec_tensor(type, data, tensor->rank, tensor->shape);
    switch (tensor->device.kind) {
    case DL_CPU: arg.device = TILEC_HOST; break;
    case DL_CUDA: arg.device = tensor->device.index; break;
    case DL_CUDA_HOST:
    case DL_CUDA_MANAGED: arg.device = TILEC_ANY_DEVICE; break;
    default: arg.device = TILEC_OTHER_DEVICE;
    }
    return arg;
}

// ---- reading ----

bool argument_span(const TilecArg *arg, size_t *bytes) {
    Type type;
    int64_t last = 0;
    *bytes = 0;
    if (arg->kind != TILEC_TENSOR || !type_of_public(arg->type, &type) || !arg->data) return false;
    for (int d = 0; d < arg->rank; d++) {
        int64_t reach;
        if (arg->shape[d] <= 0) return false;
        if (arg->shape[d] > 1 &&
            (arg->strides[d] < 0 || __builtin_mul_overflow(arg->shape[d] - 1, arg->strides[d], &reach) ||
             __builtin_add_overflow(last, reach, &last)))
            return false;
    }
    int64_t size;
    if (__builtin_add_overflow(last, 1, &last) || __builtin_mul_overflow(last, (int64_t)type_bytes(type), &size))
        return false;
    *bytes = (size_t)size;
    return true;
}

// All elements of an array have the size of the first: that of the caller's header.
TilecArg argument_at(const TilecArg *args, size_t index) {
    TilecArg out = {0};
    struct_in(&out, sizeof out, (const char *)args + args->size * index);
    return out;
}

const char *arguments_fault(const TilecArg *args, size_t count) {
    enum { MOST = 4096 };
    if (count > MOST) return "a launch takes at most 4096 arguments";
    if (count && args->size < offsetof(TilecArg, real) + sizeof args->real)
        return "an argument has no size: use tilec_tensor, tilec_dlpack, tilec_integer, tilec_real";
    for (size_t i = 0; i < count; i++) {
        TilecArg arg = argument_at(args, i);
        if (arg.size != args->size) return "an argument has another size than the first";
        if (arg.kind != TILEC_TENSOR && arg.kind != TILEC_INTEGER && arg.kind != TILEC_REAL)
            return "an argument is of an unknown kind";
        if (arg.kind == TILEC_TENSOR && (arg.rank < 0 || arg.rank > TILEC_MAX_RANK)) return "a tensor has 0 to 8 dims";
    }
    return NULL;
}

LaunchArg argument_read(const TilecArg *arg) {
    LaunchArg out = {.is_tensor = arg->kind == TILEC_TENSOR,
                     .address = (uint64_t)(uintptr_t)arg->data,
                     .rank = arg->rank,
                     .scalar = arg->kind == TILEC_REAL ? (Scalar){.type = TYPE_F64, .real = arg->real}
                                                       : (Scalar){.type = TYPE_I64, .integer = arg->integer}};
    memcpy(out.shape, arg->shape, sizeof out.shape);
    memcpy(out.strides, arg->strides, sizeof out.strides);
    return out;
}

// The parameter of an argument; NULL: none, or it takes no such argument, which dispatch reports.
static const PlanParam *param_of(const PlanEntry *entry, size_t index, const TilecArg *arg) {
    const PlanVariant *first = &entry->variants.items[0];
    const PlanParam *p = index < (size_t)first->params.count ? &first->params.items[index] : NULL;
    return p && p->is_tensor == (arg->kind == TILEC_TENSOR) ? p : NULL;
}

static const PlanParam *tensor_param(const PlanEntry *entry, size_t index, const TilecArg *arg) {
    return arg->kind == TILEC_TENSOR ? param_of(entry, index, arg) : NULL;
}

// False: reported. An integer for u64 is its 64 bits.
static bool fits_param(DiagSink *sink, const PlanEntry *entry, const PlanParam *p, const TilecArg *arg) {
    Type type;
    if (arg->kind == TILEC_INTEGER && !type_is_float(p->type) && int_wrap(p->type, arg->integer) != arg->integer) {
        diag(sink, (Span){0}, T_ARGUMENT_RANGE, p->name, entry->name, (long long)arg->integer, type_text(p->type));
        return false;
    }
    if (arg->kind != TILEC_TENSOR || (type_of_public(arg->type, &type) && type == p->type)) return true;
    diag(sink, (Span){0}, T_ARGUMENT_TYPE, p->name, entry->name, tilec_type_name(arg->type), type_text(p->type));
    return false;
}

const LaunchArg *arguments_read(Arena *arena, DiagSink *sink, const PlanEntry *entry, size_t count,
                                const TilecArg *args) {
    LaunchArg *out = NEW_ARRAY(arena, LaunchArg, count + 1);
    for (size_t i = 0; i < count; i++) {
        TilecArg arg = argument_at(args, i);
        const PlanParam *p = param_of(entry, i, &arg);
        out[i] = argument_read(&arg);
        if (p && !fits_param(sink, entry, p, &arg)) return NULL;
    }
    return out;
}

static bool is_empty(const TilecArg *arg) {
    for (int d = 0; d < arg->rank; d++)
        if (arg->shape[d] == 0) return true;
    return false;
}

static const char *place_text(int device, char out[32]) {
    if (device == TILEC_OTHER_DEVICE) return "on a device that is not CUDA's";
    snprintf(out, 32, device == TILEC_HOST ? "in memory of the host" : "on device %d", device);
    return out;
}

// NULL: none. On the host any address will do: the emulator copies.
static const char *address_fault(const TilecArg *arg, const PlanParam *p, int device) {
    if (!arg->data) return "has no address, but elements";
    bool splits = device != TILEC_HOST && (uintptr_t)arg->data % (size_t)type_bytes(p->type) != 0;
    return splits ? "begins at an address that is no multiple of an element's size" : NULL;
}

bool arguments_there(DiagSink *sink, const PlanEntry *entry, size_t count, const TilecArg *args, int device) {
    for (size_t i = 0; i < count; i++) {
        TilecArg arg = argument_at(args, i);
        const PlanParam *p = tensor_param(entry, i, &arg);
        char place[32], here[32];
        if (!p || is_empty(&arg)) continue;
        const char *fault = address_fault(&arg, p, device);
        if (fault) {
            diag(sink, (Span){0}, T_ARGUMENT_ADDRESS, p->name, entry->name, fault);
            return false;
        }
        if (arg.device == TILEC_ANY_DEVICE || arg.device == device) continue;
        diag(sink, (Span){0}, T_ARGUMENT_DEVICE, p->name, entry->name, place_text(arg.device, place),
             device == TILEC_HOST ? "on the host" : place_text(device, here));
        return false;
    }
    return true;
}
