// Conversions: where an item needs a fragment in another layout than it has, a second fragment, copied from and to the first one
// around the item.
#include "ir/build.h"
#include "ir/rewrite.h"
#include "passes/analysis/util.h"
#include "passes/layout/fragment.h"
#include "passes/layout/layout_inference.h"
#include "passes/lower/lower.h"

static Block *conversions(Inference *inference, Map *map, Stmt *stmt) {
    Block *block = map_get(map, stmt);
    if (!block) map_put(map, stmt, block = NEW(inference->arena, Block));
    return block;
}

// Within the threads it is a loop like others; else stage-through-shared replaces it.
static Stmt *whole_copy(Arena *arena, Buf *from, Buf *to) {
    Arg args[] = {arg_region(region_whole(arena, from)), arg_region(region_whole(arena, to))};
    Stmt *copy = s_call(arena, OP_COPY, 2, args);
    if (fragment_same_thread(arena, to->layout, from->layout, e_int(arena, 0)))
        attr_set_text(arena, &copy->attrs, ATTR_MAP, layout_text(arena, to->layout));
    return copy;
}

// A second fragment in the layout that the item needs, copied from and to the first one around it.
static void convert(Inference *inference, Item *item, Buf *buf, const Layout *required, bool reads, bool writes) {
    Arena *arena = inference->arena;
    Buf *other = buf_new(arena, buf->name, SCOPE_FRAGMENT, buf->type, buf->rank, buf->shape, item->stmt->loc);
    other->layout = required;
    Block *before = conversions(inference, inference->before, item->stmt);
    block_push(arena, before, s_decl(arena, other));
    if (reads) block_push(arena, before, whole_copy(arena, buf, other));
    if (writes) block_push(arena, conversions(inference, inference->after, item->stmt), whole_copy(arena, other, buf));
    Subst *subst = subst_new(arena);
    subst_buf(subst, buf, other);
    Block one = {.items = &item->stmt, .count = 1, .capacity = 1};
    if (item->stmt->kind == STMT_IF) item->stmt->if_.condition = subst_expr(subst, item->stmt->if_.condition);
    else subst_block(subst, &one);
    inference->changed = true;
    if (inference->context->remarks)
        diag(inference->context->sink, item->stmt->loc, T_LAYOUT_CONVERSION, buf->name, layout_text(arena, buf->layout),
             layout_text(arena, required));
}

// Some layout in which every thread holds every element: the buffer's own if it is one.
static const Layout *replicated(Inference *inference, const Buf *buf) {
    int64_t shape[LAYOUT_MAX_RANK];
    if (tv_replicas(buf->layout) == tv_threads(buf->layout)) return buf->layout;
    for (int d = 0; d < buf->rank; d++) shape[d] = buf_extent(buf, d);
    return tv_replicated(inference->arena, buf->rank, shape, inference->threads);
}

static const Layout *reduced_layout(Inference *inference, const Item *item) {
    const Arg *args = item->stmt->call.args;
    const Buf *src = args[REDUCE_SRC].region->buf, *dst = args[REDUCE_DST].region->buf;
    const Layout *result = reduce_result(inference->arena, item->stmt, item->map);
    int axis = reduce_op_axis(item->stmt);
    if (!result)
        diag(inference->context->sink, item->stmt->loc, T_REDUCE_PARTIALS, (long long)buf_extent(dst, axis),
             (long long)tv_threads_along(item->map, axis), axis, src->name);
    return result ? result : dst->layout;
}

static const Layout *required_layout(Inference *inference, const Item *item, const FragmentUse *use) {
    Arena *arena = inference->arena;
    const Buf *buf = use->buf;
    if (item->kind == ITEM_LOOP) return layout_for_use(inference, item, use);
    if (item->kind == ITEM_REDUCE) return use->is_store ? reduced_layout(inference, item) : item->map;
    if (item->kind == ITEM_SCAN) return item->map;
    if (item->kind == ITEM_SCALAR) return replicated(inference, buf);
    if (use->is_store) return item->map;
    if (item->is_wgmma) return wgmma_operand(inference, item);
    if (!item->mma || item->warps_n != 1) return buf->layout;   // stage-through-shared takes it through shared memory
    return fragment_operand_a(arena, item->mma, item->m, item->k, item->warps_m, inference->threads);
}

static bool is_conversion(const Item *item) {
    return item->kind == ITEM_LOOP && item->stmt->kind == STMT_CALL && item->stmt->call.op == OP_COPY &&
           item->uses.count == 2 && item->stmt->call.args[0].region->buf->scope == SCOPE_FRAGMENT &&
           item->stmt->call.args[1].region->buf->scope == SCOPE_FRAGMENT &&
           region_is_whole(item->stmt->call.args[0].region) && region_is_whole(item->stmt->call.args[1].region);
}

// What the item writes depends on what was there.
static bool updates(const Item *item) {
    if (item->kind == ITEM_REDUCE) {
        const Expr *accumulate = item->stmt->call.args[3].value;
        return accumulate && expr_is_int(accumulate, 1);
    }
    return item->kind != ITEM_LOOP && item->kind != ITEM_SCAN;
}

void convert_where_layouts_meet(Inference *inference) {
    for (int i = 0; i < inference->items.count; i++) {
        Item *item = inference->items.items[i];
        if ((!item->map && item->kind != ITEM_SCALAR) || is_conversion(item)) continue;
        for (int u = 0; u < item->uses.count; u++) {
            const FragmentUse *use = &item->uses.items[u];
            bool reads = false, writes = false, first = true, written = false;   // written: nothing older is read
            for (int v = 0; v < item->uses.count; v++) {
                const FragmentUse *other = &item->uses.items[v];
                if (other->buf != use->buf) continue;
                first &= v >= u;
                written |= item->kind == ITEM_LOOP && other->is_store && !other->keeps;
                reads |= !written && (!other->is_store || other->keeps || updates(item));
                writes |= other->is_store;
            }
            const Layout *required = required_layout(inference, item, use);
            if (!first || layout_equal(required, use->buf->layout)) continue;
            convert(inference, item, use->buf, required, reads, writes);
        }
    }
}

void push_with_conversions(StmtMapper *mapper, Stmt *stmt, Block *out) {
    Inference *inference = mapper->user;
    Block *before = map_get(inference->before, stmt), *after = map_get(inference->after, stmt);
    if (before) block_append(mapper->arena, out, before);
    block_push(mapper->arena, out, stmt);
    if (after) block_append(mapper->arena, out, after);
}
