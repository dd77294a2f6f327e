#include "runtime/plan/mechanisms.h"
#include "ir/rewrite.h"
#include "ir/schedule.h"
#include "support/strbuf.h"
#include <string.h>

void kernel_cluster(const Func *kernel, int cluster[3]) {
    const Stmt *grid = func_grid(kernel);
    const Attr *shape = attr_get(grid->attrs, ATTR_CLUSTER);
    for (int i = 0; i < 3; i++) cluster[i] = grid->grid.cluster[i] > 0 ? grid->grid.cluster[i] : 1;
    for (int i = 0; i < CLUSTER_NAMES && shape; i++) cluster[i] = (int)shape->args[i].integer;
    if (grid_blocks(grid) > 1) cluster[0] = (int)grid_blocks(grid);
}

const char *kernel_mechanisms(Arena *arena, const Func *kernel) {
    static const OpId telling[] = {OP_TMA_LOAD,   OP_TMA_MULTICAST, OP_CP_ASYNC, OP_WGMMA,     OP_MMA,
                                   OP_PEER_STORE, OP_TMA_STORE,     OP_TMA_ADD,  OP_BULK_LOAD, OP_BULK_STORE};
    const Block *body = &func_grid(kernel)->grid.body;
    StrBuf out;
    sb_init(&out, arena);
    int cluster[3];
    kernel_cluster(kernel, cluster);
    int blocks = cluster[0] * cluster[1] * cluster[2];
    ClusterShapes shapes = grid_cluster_shapes(arena, func_grid(kernel));
    if (shapes.count == 0 && blocks > 1) sb_printf(&out, "; clusters of %d CTAs", blocks);
    VEC_EACH (const ClusterShape, shape, &shapes)
        sb_printf(&out, "%s%d x %d", shape == shapes.items ? "; clusters of " : ", ", shape->extents[0],
                  shape->extents[1]);
    const char *before = "; roles";
    for (int i = 0; i < body->count; i++) {
        const Stmt *role = body->items[i];
        if (role->kind != STMT_ROLE) continue;
        sb_printf(&out, "%s %s ", before, role->role.name);
        if (role->role.count) sb_printf(&out, "%lld x ", (long long)role_members(role));
        sb_printf(&out, "%lld", (long long)role->role.threads);
        if (role->role.regs) sb_printf(&out, " (%lld registers)", (long long)role->role.regs);
        before = ",";
    }
    before = "; by";
    for (int i = 0; i < (int)COUNT_OF(telling); i++) {
        if (!func_calls(kernel, telling[i])) continue;
        sb_printf(&out, "%s %s", before, op_info(telling[i])->text);
        before = ",";
    }
    return out.length ? sb_text(&out) + strlen("; ") : NULL;
}
