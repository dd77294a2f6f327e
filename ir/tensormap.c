// Tensor maps: parameters that are made at launch from a tensor argument, and what their attribute says.
#include "ir/build.h"
#include "support/strbuf.h"
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

bool tensor_is_independent(const Func *func, const Buf *tensor) {
    const Buf *root = tensor;
    for (int i = 0; i < func->params.count; i++) {
        const Param *param = &func->params.items[i];
        if (param->buf == tensor) return attr_get(param->attrs, ATTR_INDEPENDENT);
        if (param->buf && param->buf == tensor->alias_of) root = param->buf;
    }
    return root != tensor && tensor_is_independent(func, root);
}

// ---- im2col ----
//
// A map in im2col mode walks the places of the windows' first taps: along W by its stride from the lower corner to the
// upper one, then one step along H, and so on. Offsets move all of them to another tap. (PTX ISA, "im2col mode".)

static const char *window_problem(const Window *window, int bits) {
    int64_t half = INT64_C(1) << (bits - 1);
    if (window->stride > tma_facts.max_stride) return "TMA moves windows by at most 8";
    if (window->padding > half || -window->padding >= half) return "TMA has no room for that padding";
    return (window->taps - 1) * window->dilation >= 2 * half ? "TMA has no room for that many taps" : NULL;
}

const char *tensor_map_view_problem(const Buf *view) {
    const char *why = view->alias_of->moved ? "TMA needs the channels of an im2col view next to each other" : NULL;
    if (im2col_is_merged(view)) return NULL;
    for (int i = 0; !why && i < view->im2col->count; i++)
        why = window_problem(&view->im2col->windows[i], tma_facts.corner_bits[view->im2col->count - 1]);
    return why;
}

Expr *tensor_map_corner(Arena *arena, const Buf *view, int window) {
    const Window *w = &view->im2col->windows[window];
    // (positions - 1) * stride - padding, minus the dim's last index
    Expr *walked =
        e_sub(arena, e_times(arena, w->positions, w->stride), view->alias_of->shape[view->im2col->dims[window + 1]]);
    return e_plus(arena, walked, 1 - w->stride - w->padding);
}

void tensor_map_corner_range(const Buf *view, int64_t *low, int64_t *high) {
    int64_t half = INT64_C(1) << (tma_facts.corner_bits[view->im2col->count - 1] - 1);
    *low = -half;
    *high = half - 1;
}

// ---- boxes ----

const char *tensor_map_box(Arena *arena, const Region *region, const int64_t *extents) {
    StrBuf box;
    sb_init(&box, arena);
    for (int d = region->count - 1, own = region_rank(region) - 1; d >= 0; d--) {
        bool kept = region->dims[d].extent;
        if (!kept && region->buf->im2col) continue;
        sb_printf(&box, "%s%lld", box.length ? "," : "", kept ? (long long)extents[own--] : 1);
    }
    return sb_text(&box);
}

static int view_coordinates(Arena *arena, const Region *region, Expr *column, Expr *row, bool loads, Expr **out) {
    const Buf *view = region->buf;
    int count = 0, windows = view->im2col->count;
    Expr *places[TENSOR_MAP_RANK];
    out[count++] = column;
    if (im2col_is_merged(view)) return out[count++] = row, count;
    im2col_first(arena, view, row, places);
    for (int d = windows; d >= 0; d--) out[count++] = places[d];
    for (int i = windows - 1; loads && i >= 0; i--)
        out[count++] = e_times(arena, region->dims[i + 1].start, view->im2col->windows[i].dilation);
    return count;
}

int tensor_map_coordinates(Arena *arena, const Region *region, int64_t columns, Expr *rows, bool loads, Expr **out) {
    int last = region->count - 1, count = 0;
    Expr *column = e_plus(arena, region->dims[last].start, columns);
    if (region->buf->im2col) {
        Expr *row = region->dims[0].start;
        return view_coordinates(arena, region, column, rows ? e_add(arena, row, rows) : row, loads, out);
    }
    out[count++] = column;
    for (int d = last - 1; d >= 0; d--) {
        const RegionDim *dim = &region->dims[d];
        out[count++] = rows && dim->extent ? e_add(arena, dim->start, rows) : dim->start;
    }
    return count;
}

// ---- the attribute ----

// "64,128": extents, innermost first; false when the text is no such list, or has more than an attribute may say.
static bool read_box(const char *text, TensorMap *map) {
    char *end = NULL;
    for (const char *at = text;; at = end + 1) {
        if (map->box_rank == tma_facts.max_rank) return false;
        long extent = strtol(at, &end, 10),
             most = map->offsets && map->box_rank ? tma_facts.max_pixels : tma_facts.max_box;
        if (end == at || extent < 1 || extent > most) return false;
        map->box[map->box_rank++] = (int)extent;
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
    if ((out->view = attr->args[0].view) && (*why = tensor_map_view_problem(out->view))) return false;
    bool merged = out->view && im2col_is_merged(out->view);
    out->offsets = out->view && !merged ? out->view->im2col->count : 0;
    out->rank = merged ? 2 : out->tensor->rank;
    *why = "needs a box of 1 to 5 extents from 1 to 256, innermost first";
    if (!read_box(attr->args[1].text, out)) return false;
    *why = out->view ? "has a box that is not channels and rows" : "has a box and a tensor of different ranks";
    if (out->box_rank != (out->view ? 2 : out->rank)) return false;
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
    for (int d = 1; d < map->box_rank; d++) rows *= map->box[d];
    return rows;
}

int64_t tensor_map_row_bytes(const TensorMap *map) {
    return (int64_t)map->box[0] * type_bits(map->tensor->type) / 8;
}

int64_t tensor_map_pitch(const TensorMap *map) {   // rows narrower than the swizzle are padded to it
    return map->swizzle ? map->swizzle : tensor_map_row_bytes(map);
}
