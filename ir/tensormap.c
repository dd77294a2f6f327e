// Tensor maps: parameters that are made at launch from a tensor argument, and what their attribute says.
#include "ir/ir.h"
#include <stdlib.h>
#include <string.h>

bool param_is_hidden(const Param *param) {
    return param->var && param->var->type == TYPE_TENSORMAP;
}

int func_argument_count(const Func *func) {
    int count = 0;
    for (int i = 0; i < func->params.count; i++) count += !param_is_hidden(&func->params.items[i]);
    return count;
}

const Param *func_argument(const Func *func, int index) {
    for (int i = 0; i < func->params.count; i++)
        if (!param_is_hidden(&func->params.items[i]) && index-- == 0) return &func->params.items[i];
    return NULL;
}

const Param *func_hidden(const Func *func, const Var *map) {
    for (int i = 0; i < func->params.count; i++)
        if (func->params.items[i].var == map && param_is_hidden(&func->params.items[i])) return &func->params.items[i];
    return NULL;
}

// "64,128": extents, innermost first; false when the text is no such list, or has more than an attribute may say.
static bool read_box(const char *text, TensorMap *map) {
    char *end = NULL;
    for (const char *at = text;; at = end + 1) {
        if (map->rank == tma_facts.max_rank) return false;
        long extent = strtol(at, &end, 10);
        if (end == at || extent < 1 || extent > tma_facts.max_box) return false;
        map->box[map->rank++] = (int)extent;
        if (!*end) return true;
        if (*end != ',') return false;
    }
}

bool tensor_map_read(const Func *func, const Param *param, TensorMap *out, const char **why) {
    const Attr *attr = attr_get(param->attrs, ATTR_TMA);
    *out = (TensorMap){0};
    *why = "has no @tma(tensor, \"box\", swizzle)";
    if (!attr || attr->count != 3) return false;
    *why = "names no tensor parameter";
    for (int i = 0; i < func->params.count; i++) {
        Buf *buf = func->params.items[i].buf;
        if (buf && strcmp(buf->name, attr->args[0].text) == 0) out->tensor = buf;
    }
    if (!out->tensor) return false;
    *why = "needs a box of 1 to 5 extents from 1 to 256, innermost first";
    if (!read_box(attr->args[1].text, out)) return false;
    *why = "has a box and a tensor of different ranks";
    if (out->rank != out->tensor->rank) return false;
    *why = "has a swizzle that is not 0, 32, 64 or 128";
    if (!tma_swizzle_valid(attr->args[2].integer)) return false;
    out->swizzle = (int)attr->args[2].integer;
    out->tf32 = attr_get(param->attrs, ATTR_TF32) != NULL;
    *why = "is @tf32, and its tensor is not of f32";
    if (out->tf32 && out->tensor->type != TYPE_F32) return false;
    int64_t row = (int64_t)out->box[0] * type_bits(out->tensor->type) / 8;
    *why = "has a box with rows that are not a multiple of 16 bytes";
    if (row % tma_facts.unit_bytes != 0 || type_kind(out->tensor->type) == KIND_OPAQUE) return false;
    *why = "has a box with rows longer than the swizzle";
    if (out->swizzle && row > out->swizzle) return false;
    *why = NULL;
    return true;
}

int64_t tensor_map_rows(const TensorMap *map) {
    int64_t rows = 1;
    for (int d = 1; d < map->rank; d++) rows *= map->box[d];
    return rows;
}

int64_t tensor_map_row_bytes(const TensorMap *map) {
    return (int64_t)map->box[0] * type_bits(map->tensor->type) / 8;
}

int64_t tensor_map_pitch(const TensorMap *map) {   // rows narrower than the swizzle are padded to it
    return map->swizzle ? map->swizzle : tensor_map_row_bytes(map);
}
