// Copies by TMA and gemms by wgmma, for one thread.
//
// One thread starts a copy, a box at a time: a panel of the tile, one swizzle span wide (tma.h). The tensor map is a parameter
// that launches fill in; it is made here, from the panel and the tensor, so that the two cannot disagree.
//
// A gemm is a run of instructions for each strip of 64 rows and each panel along k. How an operand lies in its panels is the
// instruction's to know (PTX ISA, "Matrix descriptor"; "Strides"):
//
//     k contiguous    rows of a panel are rows of the operand: 8 of them are `stride` bytes; the next k is `step` = the
//                     instruction's k in bytes, within the row
//     m contiguous    rows of a panel are k: 8 of them are `stride` bytes, `step` is the instruction's k rows; the next panel
//                     along m (or n) is `lead` bytes away
#include "ir/build.h"
#include "passes/lower.h"
#include "passes/tma.h"
#include "passes/util.h"
#include "support/strbuf.h"
#include <string.h>

// ---- tensor maps ----

static Var *tensor_map(Lower *lower, const Buf *tensor, const TmaPanels *panels) {
    Arena *arena = lower->arena;
    Func *kernel = lower->kernel;
    StrBuf box;
    sb_init(&box, arena);
    sb_printf(&box, "%lld,%lld", (long long)panels->columns, (long long)panels->rows);
    for (int d = 2; d < tensor->rank; d++) sb_str(&box, ",1");
    int taken = 0;
    for (int i = 0; i < kernel->params.count; i++) {
        const Attr *attr = attr_get(kernel->params.items[i].attrs, ATTR_TMA);
        if (!attr || strcmp(attr->args[0].text, tensor->name)) continue;
        if (!strcmp(attr->args[1].text, sb_text(&box)) && attr->args[2].integer == panels->swizzle)
            return kernel->params.items[i].var;
        taken++;
    }
    const char *name =
        taken ? arena_printf(arena, "%s_map%d", tensor->name, taken) : arena_printf(arena, "%s_map", tensor->name);
    Param param = {.var = var_new(arena, name, VAR_PARAM, TYPE_TENSORMAP, kernel->loc)};
    Attr *attr = NEW(arena, Attr);
    *attr = (Attr){.id = ATTR_TMA, .count = 3};
    attr->args[0].text = tensor->name;
    attr->args[1].text = sb_text(&box);
    attr->args[2].integer = panels->swizzle;
    param.attrs = attr;
    vec_push(arena, &kernel->params, param);
    return param.var;
}

// ---- TMA ----

// Panel `panel` of a tile from its row `row` on: `leading` slots, then the physical coordinates of tma_layout.
static Region *panel_place(Lower *lower, const Region *tile, Expr *panel, Expr *row) {
    Arena *arena = lower->arena;
    Expr *indices[2 * LAYOUT_MAX_RANK];
    int count = 0;
    for (int d = 0; d < tile->buf->stage_dims; d++) indices[count++] = lower_expr(lower, tile->dims[d].start);
    indices[count++] = panel;
    indices[count++] = row;
    indices[count++] = e_int(arena, 0);
    return region_element(arena, lower_physical(lower, tile->buf), count, indices);
}

void lower_tma(Lower *lower, const Stmt *copy, Block *out) {
    Arena *arena = lower->arena;
    const Region *from = copy->call.args[0].region, *to = copy->call.args[1].region, *bar = copy->call.args[2].region;
    TmaPanels panels;
    const char *why;
    if (!tma_panels(to->buf, &panels, &why)) return;
    Var *map = tensor_map(lower, from->buf, &panels);
    for (int64_t p = 0; p < panels.count; p++) {
        Arg args[3 + TENSOR_MAP_RANK] = {arg_region(panel_place(lower, to, e_int(arena, p), e_int(arena, 0))),
                                         arg_value(e_var(arena, map)), arg_region(lower_element(lower, bar))};
        for (int d = 0; d < from->count; d++) {
            Expr *start = lower_expr(lower, from->dims[from->count - 1 - d].start);
            if (d == 0)
                start = simplify_expr(arena, lower->facts, e_add(arena, start, e_int(arena, p * panels.columns)));
            args[3 + d] = arg_value(start);
        }
        Stmt *load = s_call(arena, OP_TMA_LOAD, 3 + from->count, args);
        load->loc = copy->loc;
        block_push(arena, out, load);
    }
}

// ---- wgmma ----

typedef struct Described {   // of a gemm, in shared memory
    const Region *region;
    TmaPanels panels;
    bool k_major;
    int64_t element, lead, stride, step;   // bytes
} Described;

static Described operand_of(const Stmt *gemm, const WgmmaInfo *info, int at) {
    Described operand = {.region = gemm->call.args[at].region};
    const char *why;
    tma_panels(operand.region->buf, &operand.panels, &why);
    const TmaPanels *panels = &operand.panels;
    operand.k_major = operand.region->transposed == (at == 1);
    operand.element = type_bytes(operand.region->buf->type);
    operand.stride = (int64_t)8 * panels->swizzle;
    operand.lead = operand.k_major ? tma_facts.unit_bytes : panels->rows * panels->swizzle;
    operand.step = info->k * (operand.k_major ? operand.element : panels->swizzle);
    return operand;
}

// Where the operand's rows (of m or n) from `outer` and its k from `k` start.
static Arg operand_place(Lower *lower, const Described *o, int64_t outer, int64_t k) {
    int64_t row = o->k_major ? outer : k, column = o->k_major ? k : outer;
    return arg_region(
        panel_place(lower, o->region, e_int(lower->arena, column / o->panels.columns), e_int(lower->arena, row / 8)));
}

static Arg form_of(Lower *lower, const Described *o) {
    return arg_name(arena_printf(lower->arena, "%s%d", o->k_major ? "k" : "mn", o->panels.swizzle));
}

static void push_op(Lower *lower, const Stmt *gemm, OpId op, int count, const Arg *args, Block *out) {
    Stmt *call = s_call(lower->arena, op, count, args);
    call->loc = gemm->loc;
    block_push(lower->arena, out, call);
}

static Arg number(Lower *lower, int64_t value) {
    return arg_value(e_int(lower->arena, value));
}

static void push_run(Lower *lower, const Stmt *gemm, const WgmmaInfo *info, const Described *a, const Described *b,
                     int64_t strip, int64_t k, int64_t steps, Block *out) {
    Arena *arena = lower->arena;
    Buf *acc = lower_local(lower, gemm->call.args[2].region->buf);
    Expr *first = e_int(arena, strip * info->m * info->n / target_warpgroup(lower->target));
    const char *shape = arena_printf(arena, "m%dn%dk%d_%s_%s%s%s", info->m, info->n, info->k, info->acc_type,
                                     info->a_type, strcmp(info->a_type, info->b_type) ? "_" : "",
                                     strcmp(info->a_type, info->b_type) ? info->b_type : "");
    Arg args[] = {arg_name(shape),
                  operand_place(lower, a, strip * info->m, k),
                  operand_place(lower, b, 0, k),
                  arg_region(region_element(arena, acc, 1, &first)),
                  number(lower, steps),
                  form_of(lower, a),
                  number(lower, a->lead),
                  number(lower, a->stride),
                  number(lower, a->step),
                  form_of(lower, b),
                  number(lower, b->lead),
                  number(lower, b->stride),
                  number(lower, b->step),
                  {0}};
    push_op(lower, gemm, OP_WGMMA, COUNT_OF(args), args, out);
}

void lower_wgmma(Lower *lower, const Stmt *gemm, Block *out) {
    WgmmaInfo info;
    const char *why;
    if (!wgmma_serves(lower->target, gemm, &info, &why)) return;
    Described a = operand_of(gemm, &info, 0), b = operand_of(gemm, &info, 1);
    int64_t m = region_extent(gemm->call.args[2].region, 0), k = region_extent(gemm->call.args[0].region, 1), run = k;
    if (a.k_major) run = a.panels.columns;
    if (b.k_major && b.panels.columns < run) run = b.panels.columns;
    push_op(lower, gemm, OP_WGMMA_FENCE, 0, NULL, out);
    for (int64_t at = 0; at < k; at += run)
        for (int64_t strip = 0; strip < m / info.m; strip++)
            push_run(lower, gemm, &info, &a, &b, strip, at, run / info.k, out);
    push_op(lower, gemm, OP_WGMMA_COMMIT, 0, NULL, out);
    Arg none = number(lower, 0);
    if (!gemm->call.is_async) push_op(lower, gemm, OP_WGMMA_WAIT, 1, &none, out);
}
