// The threads of a grid, and roles that trade registers.
#include "ir/build.h"
#include "ir/query.h"
#include "ir/rewrite.h"

static int64_t rounded(int64_t threads, int64_t to) {
    return (threads + to - 1) / to * to;
}

// ---- arrays of roles ----
int64_t role_members(const Stmt *role) {
    return role->role.count ? iter_count(role->role.iters) : 1;
}

int64_t role_span(const Stmt *role) {
    return role_members(role) * role->role.threads;
}

static Stmt *member(Arena *arena, const Stmt *role, int64_t number) {
    Subst *subst = subst_new(arena);
    subst_var(subst, role->role.iters[0].var, e_int(arena, number));
    Stmt *copy = arena_copy(arena, role, sizeof *role);
    copy->role.name = arena_printf(arena, "%s%lld", role->role.name, (long long)number);
    copy->role.count = 0;
    copy->role.body = (Block){0};
    clone_block(arena, subst, &role->role.body, &copy->role.body);
    return copy;
}

static void expand(Arena *arena, const Block *block, Block *out) {
    FOR_EACH_ITEM (stmt, block) {
        bool array = stmt->kind == STMT_ROLE && stmt->role.count;
        if (!array) block_push(arena, out, stmt);
        for (int64_t m = 0; array && m < role_members(stmt); m++) block_push(arena, out, member(arena, stmt, m));
    }
}

const Func *roles_expanded(Arena *arena, const Func *kernel) {
    const Stmt *grid = func_grid(kernel);
    bool any = false;
    if (!grid) return kernel;
    FOR_EACH_ITEM (stmt, &grid->grid.body) any |= stmt->kind == STMT_ROLE && stmt->role.count;
    if (!any) return kernel;
    Func *out = arena_copy(arena, kernel, sizeof *kernel);
    out->body = (Block){0};
    FOR_EACH_ITEM (stmt, &kernel->body) {
        Stmt *copy = stmt == grid ? arena_copy(arena, stmt, sizeof *stmt) : stmt;
        if (stmt == grid) copy->grid.body = (Block){0}, expand(arena, &grid->grid.body, &copy->grid.body);
        block_push(arena, &out->body, copy);
    }
    return out;
}

// ---- threads ----
static int64_t region_threads(const Stmt *stmt) {
    int64_t count = 1, extent = 0;
    for (int i = 0; i < stmt->thread.count; i++)
        if (expr_const(stmt->thread.iters[i].end, &extent) && __builtin_mul_overflow(count, extent, &count))
            return INT64_MAX;
    return count;
}

// The most threads that a region or a group of roles in this block has.
static int64_t most_threads(const Block *block) {
    int64_t most = 0, side_by_side = 0;
    for (int i = 0; i < block->count; i++) {
        const Stmt *stmt = block->items[i];
        int64_t count = 0;
        side_by_side = stmt->kind == STMT_ROLE ? side_by_side + role_span(stmt) : 0;
        if (stmt->kind == STMT_ROLE) count = side_by_side;
        if (stmt->kind == STMT_THREAD) count = region_threads(stmt);
        if (stmt->kind == STMT_FOR) count = most_threads(&stmt->loop.body);
        if (stmt->kind == STMT_WHILE) count = most_threads(&stmt->while_.body);
        if (stmt->kind == STMT_BLOCK) count = most_threads(&stmt->block);
        if (stmt->kind == STMT_IF) {
            int64_t then = most_threads(&stmt->if_.then), otherwise = most_threads(&stmt->if_.otherwise);
            count = then > otherwise ? then : otherwise;
        }
        if (count > most) most = count;
    }
    return most;
}

int64_t grid_threads(const Stmt *grid) {
    int64_t declared = 1, threads = most_threads(&grid->grid.body);
    if (!threads && grid->grid.threads && expr_const(grid->grid.threads, &declared)) threads = declared;
    return threads ? threads : 1;
}

// ---- registers ----
static int64_t warpgroup_threads(const Target *target) {   // a warp of each partition
    return (int64_t)target->partitions * target->warp_lanes;
}

int64_t registers_at_launch(const Target *target, int64_t threads) {
    int64_t share = target->registers_multiprocessor / rounded(threads, warpgroup_threads(target));
    if (share > target->registers_thread) share = target->registers_thread;
    return share / target->register_unit * target->register_unit;
}

int roles_of_warpgroups(const Target *target, const Block *block, int at) {
    int64_t threads = 0;
    for (int i = at; i < block->count; i++) {
        const Stmt *stmt = block->items[i];
        if (stmt->kind != STMT_ROLE || stmt->role.regs != block->items[at]->role.regs) return 0;
        threads += role_span(stmt);
        if (threads % warpgroup_threads(target) == 0) return i - at + 1;
    }
    return 0;
}

const char *roles_cannot_trade(Arena *arena, const Target *target, const Block *block, int64_t threads) {
    int64_t group = warpgroup_threads(target), at_launch = registers_at_launch(target, threads);
    int64_t first = 0, wanted = 0, most = threads * at_launch;
    int concurrent = 0;                                    // roles of the present warpgroups that are left
    if (!target_has(target, FEATURE_WGMMA)) return NULL;   // registers do not change hands
    for (int i = 0; i < block->count; i++) {
        const Stmt *stmt = block->items[i];
        int64_t count = stmt->kind == STMT_ROLE ? role_span(stmt) : 0;
        int64_t regs = count && stmt->role.regs ? stmt->role.regs : at_launch;
        if (count && concurrent == 0 && first % group == 0) concurrent = roles_of_warpgroups(target, block, i);
        if (regs != at_launch && concurrent == 0)
            return arena_printf(arena, "'%s' is no whole warpgroups", stmt->role.name);
        if (regs != at_launch && (regs % target->register_unit || regs < target->registers_least))
            return arena_printf(arena, "'%s' wants %lld, not a multiple of %d from %d on", stmt->role.name,
                                (long long)regs, target->register_unit, target->registers_least);
        if (concurrent > 0) concurrent--;
        wanted += count * (regs - at_launch);
        first += count;
    }
    if (wanted <= 0) return NULL;
    return arena_printf(arena, "they want %lld, the CTA has %lld", (long long)(most + wanted), (long long)most);
}
