// Modules, functions and regions: small questions about the data structures.
#include "ir/build.h"
#include "ir/ir.h"
#include <string.h>

Module *module_new(Arena *arena, Failure *failure, DiagSink *sink) {
    Module *module = NEW(arena, Module);
    *module = (Module){.arena = arena, .failure = failure, .sink = sink};
    return module;
}

Func *module_func(const Module *module, const char *name) {
    for (int i = 0; i < module->funcs.count; i++)
        if (strcmp(module->funcs.items[i]->name, name) == 0) return module->funcs.items[i];
    return NULL;
}

// Whether a launch that compares `a` goes on to `b`, the next function: the last of those that are compared has no
// @tile_variant.
static bool is_compared_with(const Func *a, const Func *b) {
    bool both = !attr_get(a->attrs, ATTR_TUNED_FOR) == !attr_get(b->attrs, ATTR_TUNED_FOR);   // measured, or not
    return both && a->cost && attr_get(a->attrs, ATTR_TILE_VARIANT) && b->cost && strcmp(a->name, b->name) == 0;
}

int module_compared(const Module *module, int at) {
    int count = 1;
    while (at + count < module->funcs.count &&
           is_compared_with(module->funcs.items[at + count - 1], module->funcs.items[at + count]))
        count++;
    return count;
}

Func *module_reference(const Module *module, const char *name) {
    for (int i = 0; i < module->references.count; i++)
        if (strcmp(module->references.items[i]->name, name) == 0) return module->references.items[i];
    return NULL;
}

Var *func_dim(const Func *func, const char *name) {
    for (int i = 0; i < func->dims.count; i++)
        if (strcmp(func->dims.items[i]->name, name) == 0) return func->dims.items[i];
    return NULL;
}

// The grid stands at the top, possibly inside plain blocks or below conditions on the launch.
static const Stmt *find_grid(const Block *block) {
    for (int i = 0; i < block->count; i++) {
        const Stmt *stmt = block->items[i], *found = NULL;
        if (stmt->kind == STMT_GRID) found = stmt;
        if (stmt->kind == STMT_BLOCK) found = find_grid(&stmt->block);
        if (stmt->kind == STMT_IF && !(found = find_grid(&stmt->if_.then))) found = find_grid(&stmt->if_.otherwise);
        if (found) return found;
    }
    return NULL;
}

const Stmt *func_grid(const Func *kernel) {
    return find_grid(&kernel->body);
}

int grid_cluster(const Stmt *grid) {
    return grid->grid.cluster[0] * grid->grid.cluster[1] * grid->grid.cluster[2];
}

void set_cluster(Stmt *grid, int ctas) {
    grid->grid.cluster[0] = ctas;
    grid->grid.cluster[1] = grid->grid.cluster[2] = 1;
}

int64_t grid_blocks(const Stmt *grid) {
    return grid ? attr_int(grid->attrs, ATTR_CTAS, 1) : 1;
}

// ---- regions ----
int region_rank(const Region *region) {
    int rank = 0;
    for (int i = 0; i < region->count; i++) rank += region->dims[i].extent != NULL;
    return rank;
}

int64_t region_extent(const Region *region, int dim) {
    int rank = region_rank(region);
    if (region->transposed && rank >= 2 && dim >= rank - 2) dim = rank - 1 + rank - 2 - dim;
    for (int i = 0; i < region->count; i++)
        if (region->dims[i].extent && dim-- == 0) return region->dims[i].tile;
    return 1;
}

static bool is_whole_from(const Region *region, int first) {
    for (int i = first; i < region->count; i++) {
        const RegionDim *dim = &region->dims[i];
        if (!dim->extent || !expr_is_int(dim->start, 0) || !expr_equal(dim->extent, region->buf->shape[i]))
            return false;
        if (dim->tile > 0 && dim->extent->kind == EXPR_INT && dim->extent->integer != dim->tile) return false;
    }
    return true;
}

bool region_is_whole(const Region *region) {
    return is_whole_from(region, 0);
}

bool region_is_whole_slot(const Region *region) {
    return region->count == region->buf->rank && is_whole_from(region, region->buf->stage_dims);
}
