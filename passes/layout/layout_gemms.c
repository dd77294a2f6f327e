// Strict layouts: what instructions dictate of the accumulators and register operands of gemms, over how many warps.
#include "ir/build.h"
#include "passes/layout/fragment.h"
#include "passes/layout/layout_inference.h"
#include "passes/lower/lower.h"
#include "passes/select/tma.h"

int find_group(Inference *inference, int i) {
    while (inference->items.items[i]->group != i) i = inference->items.items[i]->group;
    return i;
}

// Items that touch a common fragment belong together: their rows are split over warps in one way.
static void join_groups(Inference *inference) {
    Map *first = map_new(inference->arena);
    for (int i = 0; i < inference->items.count; i++) {
        Item *item = inference->items.items[i];
        for (int u = 0; u < item->uses.count; u++) {
            Item *other = map_get(first, item->uses.items[u].buf);
            if (!other) {
                map_put(first, item->uses.items[u].buf, item);
                continue;
            }
            int root = find_group(inference, i), other_root = find_group(inference, other->group);
            inference->items.items[root]->group = other_root;
        }
    }
}

static bool reduces_rows(const Item *item) {
    return item->kind == ITEM_REDUCE && item->stmt->call.args[0].region->buf->rank == 2 &&
           expr_is_int(item->stmt->call.args[2].value, 1);
}

static bool has_register_operand(const Item *item) {
    return item->kind == ITEM_GEMM && item->stmt->call.args[0].region->buf->scope == SCOPE_FRAGMENT;
}

// A warp should own whole rows when a row is reduced or when rows feed a further gemm from registers.
static bool group_wants_rows(Inference *inference, int root) {
    for (int i = 0; i < inference->items.count; i++)
        if (find_group(inference, i) == root &&
            (reduces_rows(inference->items.items[i]) || has_register_operand(inference->items.items[i])))
            return true;
    return false;
}

// Splits of the warps over [m, n]: most warps busy, then whole rows as far as wanted, then the least operand traffic.
static bool choose_warps(Item *item, int64_t warps, bool rows) {
    int64_t best = INT64_MAX;
    for (int64_t wm = 1; wm <= warps; wm++) {
        for (int64_t wn = 1; wm * wn <= warps; wn++) {
            if (warps % (wm * wn) != 0) continue;
            if (item->m % (wm * item->mma->m) != 0 || item->n % (wn * item->mma->n) != 0) continue;
            int64_t unused = warps / (wm * wn), traffic = item->m / wm + item->n / wn;
            int64_t cost = unused * 1000000 + (rows ? wn * 1000 + traffic : traffic * 2 + (item->n / wn % 16 != 0));
            if (cost >= best) continue;
            best = cost;
            item->warps_m = wm;
            item->warps_n = wn;
        }
    }
    return best != INT64_MAX;
}

static void infer_mma(Inference *inference, Item *item, bool rows) {
    int64_t warps = inference->threads / inference->context->target->warp_lanes;
    const Attr *fixed = attr_get(item->stmt->attrs, ATTR_WARPS);
    if (fixed) {
        item->warps_m = fixed->args[0].integer;
        item->warps_n = fixed->args[1].integer;
    } else if (!choose_warps(item, warps, rows)) {
        via_set(inference->arena, item->stmt, VIA_FMA);
        item->mma = NULL;
        return;
    }
    item->map = fragment_accumulator(inference->arena, item->mma, item->m, item->n, item->warps_m, item->warps_n,
                                     inference->threads);
    set_layout(inference, item->stmt->call.args[2].region->buf, item->map);
    if (has_register_operand(item) && item->warps_n == 1)
        set_layout(
            inference, item->stmt->call.args[0].region->buf,
            fragment_operand_a(inference->arena, item->mma, item->m, item->k, item->warps_m, inference->threads));
}

static int64_t warpgroups(const Inference *inference) {
    return inference->threads / target_warpgroup(inference->context->target);
}

const Layout *wgmma_operand(const Inference *inference, const Item *item) {
    bool paired = wgmma_pairs(inference->arena, inference->kernel, item->stmt, &item->wgmma);
    return (paired ? fragment_wgmma_paired : fragment_wgmma_a)(inference->arena, &item->wgmma, item->m, item->k,
                                                               warpgroups(inference), inference->threads);
}

static void infer_wgmma(Inference *inference, Item *item) {
    item->map =
        fragment_wgmma(inference->arena, &item->wgmma, item->m, item->n, warpgroups(inference), inference->threads);
    set_layout(inference, item->stmt->call.args[2].region->buf, item->map);
    if (has_register_operand(item))
        set_layout(inference, item->stmt->call.args[0].region->buf, wgmma_operand(inference, item));
}

// Without tensor cores each thread computes a small block: four columns (one vector) by some rows.
static void infer_fma(Inference *inference, Item *item) {
    int64_t shape[] = {item->m, item->n};
    int64_t vector = item->n % 4 == 0 ? 4 : 1;
    Buf *acc = item->stmt->call.args[2].region->buf;
    set_layout(inference, acc, tv_blocked(inference->arena, 2, shape, inference->threads, 1, vector, 0));
    item->map = acc->layout;
}

void infer_strict(Inference *inference) {
    join_groups(inference);
    for (int i = 0; i < inference->items.count; i++) {
        Item *item = inference->items.items[i];
        if (item->kind != ITEM_GEMM) continue;
        if (item->mma) infer_mma(inference, item, group_wants_rows(inference, find_group(inference, i)));
        else if (item->is_wgmma) infer_wgmma(inference, item);
        if (!item->map) infer_fma(inference, item);
    }
}
