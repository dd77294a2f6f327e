// plan: decides once for each kernel which groups of threads compute it, the order of its tiles and how CTAs come to them, and
// writes that on the grid.
//
//     @order(raster, 8) @claim(static) @group(load, 1, 128, 40) @group(compute, 2, 128, 232) @each
//     grid (bm in ceildiv(M, 128), bn in ceildiv(N, 128)) threads 256 { ... }
//
// Later passes obey: tile-scheduler, select, multi-buffer and warp-specialize read the groups (warp_specialize.h) and ask
// nothing. A kernel without groups is not warp-specialized; if it has products, and no roles of its own, its grid says why:
// `@no_specialize("..")`.
//
// It also gives what groups load its slots (plan_slots.c).
//
// The pass comes behind swap-operands and split-k, which change the tiles and what the CTAs of a cluster share. What comes
// behind it changes nothing that the decision depends on: the tiles, the statements that fill and use them, the fragments,
// and which values the trip counts depend on.
//
// What a source says is kept, and the rest follows from it: the number and registers of compute groups, with `@each` or
// without, and the registers of the others. Groups that cannot be are an error. A target without wgmma, and the variant
// for other shapes, have none.
#include "ir/build.h"
#include "ir/channels.h"
#include "passes/cost/cost.h"
#include "passes/cost/occupancy.h"
#include "passes/grid/tile_order.h"
#include "passes/select/tma_reduce.h"
#include "passes/specialize/ws_analysis.h"
#include "support/numbers.h"
#include <string.h>

static const char *const names[] = {"load", "load_ahead", "transpose", "compute"};
_Static_assert(COUNT_OF(names) == GROUP_COUNT, "a group without its name");

// ---- the attributes ----

static GroupId group_named(const char *name) {
    int id = 0;
    while (id < GROUP_COUNT && strcmp(names[id], name) != 0) id++;
    return (GroupId)id;
}

Groups kernel_groups(const Func *kernel) {
    const Stmt *grid = func_grid(kernel);
    Groups groups = {.each = grid && attr_get(grid->attrs, ATTR_EACH)};
    for (const Attr *attr = grid ? grid->attrs : NULL; attr; attr = attr->next) {
        GroupId id = attr->id == ATTR_GROUP ? group_named(attr->args[0].text) : GROUP_COUNT;
        if (id == GROUP_COUNT) continue;
        groups.of[id] = (ThreadGroup){attr->args[1].integer, attr->args[2].integer, attr->args[3].integer};
    }
    return groups;
}

static void remove_groups(Stmt *grid) {
    while (attr_get(grid->attrs, ATTR_GROUP)) attr_remove(&grid->attrs, ATTR_GROUP);
    attr_remove(&grid->attrs, ATTR_EACH);
}

void drop_groups(Stmt *grid) {
    remove_groups(grid);
    attr_remove(&grid->attrs, ATTR_STAGES);
}

// False: the grid has them.
static bool write_groups(Arena *arena, Stmt *grid, const Groups *asked, const Groups *groups) {
    if (asked->each == groups->each && !memcmp(asked->of, groups->of, sizeof groups->of)) return false;
    remove_groups(grid);
    for (int id = 0; id < GROUP_COUNT; id++) {
        const ThreadGroup *group = &groups->of[id];
        if (group->count == 0) continue;
        Attr *attr = attr_add(arena, &grid->attrs, ATTR_GROUP, 4);
        attr->args[0].text = names[id];
        attr->args[1].integer = group->count;
        attr->args[2].integer = group->threads;
        attr->args[3].integer = group->registers;
    }
    if (groups->each) attr_set_ints(arena, &grid->attrs, ATTR_EACH, 0, NULL);
    return true;
}

// ---- the decision ----

// Where some loads need not wait for the kernel launched before (`@pdl`), a warp of its own issues them.
static bool loads_ahead(const Target *target, const Func *kernel, const Stmt *loop) {
    if (!loop || !attr_get(func_grid(kernel)->attrs, ATTR_PDL) || !target_has(target, FEATURE_PDL)) return false;
    return loaded_bytes(kernel, loop, LOADS_AHEAD) > 0 && loaded_bytes(kernel, loop, LOADS_WAITING) > 0;
}

// Two warpgroups start with all that a thread may have. Else the loading threads give up what the others need.
static void set_registers(Arena *arena, const Target *target, const Func *kernel, const Specialization *how,
                          const Groups *asked, int64_t *loading, int64_t *computing) {
    const ThreadGroup *load = &asked->of[GROUP_LOAD], *compute = &asked->of[GROUP_COMPUTE];
    int64_t most = how->gathers ? target->registers_gatherer : target->registers_loader;
    int64_t needed =
        needed_registers(arena, target, kernel, how->sharers) + (how->loop ? PINGPONG_ROOM : COOPERATIVE_ROOM);
    if (compute->registers) needed = compute->registers;
    bool stays = (how->loop && how->consumers == 1) || (compute->count && !compute->registers);
    *loading = stays ? 0 : producer_registers(target, how->consumers, how->producers, most, needed);
    if (load->count) *loading = load->registers;
    bool some = *loading > 0 && *loading <= target->registers_thread;
    *computing = some ? consumer_registers(target, how->consumers, how->producers, *loading) : 0;
    if (compute->count) *computing = compute->registers;
}

// One warp is enough to load. Where the transposer has no warpgroup of its own, it takes the other warps. The warps of a
// warpgroup have equally many registers (PTX ISA, "setmaxnreg").
static Groups groups_of(Arena *arena, const Target *target, const Func *kernel, const Specialization *how,
                        const Groups *asked) {
    int64_t all = target_warpgroup(target), warp = target->warp_lanes, loading, computing;
    bool shared = how->transposes && how->producers == 1, ahead = loads_ahead(target, kernel, how->loop);
    set_registers(arena, target, kernel, how, asked, &loading, &computing);
    Groups groups = {.each = how->kind == WS_PINGPONG};
    groups.of[GROUP_LOAD] = (ThreadGroup){1, shared ? warp : ahead ? all - warp : all, loading};
    if (ahead) groups.of[GROUP_LOAD_AHEAD] = (ThreadGroup){1, warp, loading};
    if (how->transposes) groups.of[GROUP_TRANSPOSE] = (ThreadGroup){1, shared ? all - warp : all, loading};
    groups.of[GROUP_COMPUTE] = (ThreadGroup){how->consumers, all, computing};
    return groups;
}

// ---- what a source says ----

static const char *registers_problem(Arena *arena, const Target *target, const Func *kernel, const Specialization *how,
                                     const Groups *groups) {
    int64_t loading = groups->of[GROUP_LOAD].registers, computing = groups->of[GROUP_COMPUTE].registers;
    int64_t warpgroups = how->producers + how->consumers, all = warpgroups * initial_registers(target, (int)warpgroups);
    int64_t least = target->registers_least, needed = needed_registers(arena, target, kernel, how->sharers);
    bool units = loading % target->register_unit == 0 && computing % target->register_unit == 0;
    bool enough = loading >= least && computing >= larger(least, needed);
    bool few = loading <= target->registers_thread && computing <= target->registers_thread;
    if (loading == 0 && computing == 0) return NULL;
    if (units && enough && few && how->producers * loading + how->consumers * computing <= all) return NULL;
    return arena_printf(
        arena, "registers are 0, or multiples of %d from %lld to %d; `compute` needs %lld, and %lld are in all",
        target->register_unit, (long long)least, target->registers_thread, (long long)larger(least, needed),
        (long long)(all * target_warpgroup(target)));
}

static const char *groups_problem(Arena *arena, const Stmt *grid, const Groups *asked, const Groups *groups) {
    for (const Attr *attr = grid->attrs; attr; attr = attr->next) {
        if (attr->id != ATTR_GROUP) continue;
        const char *name = attr->args[0].text;
        GroupId id = group_named(name);
        if (id == GROUP_COUNT || groups->of[id].count == 0)
            return arena_printf(arena, "nothing is for '%s' to do", name);
        const ThreadGroup *group = &groups->of[id];
        if (memcmp(group, &asked->of[id], sizeof *group))
            return arena_printf(arena, "it would be @group(%s, %lld, %lld, %lld)", name, (long long)group->count,
                                (long long)group->threads, (long long)group->registers);
    }
    return NULL;
}

// ---- the pass ----

// Products of roles and channels that the source has are as it wants them.
static bool wants_roles(const Func *kernel) {
    return block_calls(&kernel->body, OP_GEMM) && !func_has_roles(kernel) && !has_channels(kernel);
}

static bool leave_whole(PassContext *context, const Func *kernel, Stmt *grid, const Specialization *how) {
    const char *why = how->why;
    bool able = target_has(context->target, FEATURE_WGMMA) && !attr_get(kernel->attrs, ATTR_FALLBACK);
    bool asked = attr_get(grid->attrs, ATTR_GROUP) || attr_get(grid->attrs, ATTR_EACH);
    if (asked && able) return diag(context->sink, grid->loc, T_GROUPS, why), false;
    drop_groups(grid);
    if (!able || !wants_roles(kernel)) return asked;
    REMARK(context, how->at.line ? how->at : kernel->loc, T_NOT_SPECIALIZED, why);
    if (attr_get(grid->attrs, ATTR_NO_SPECIALIZE)) return false;
    attr_set_text(context->arena, &grid->attrs, ATTR_NO_SPECIALIZE, why);
    return true;
}

// CTAs that load together, where a step loads for longer than it multiplies.
static int64_t neighbours_of(PassContext *context, const Func *kernel, const Specialization *how) {
    if (how->kind != WS_PINGPONG) return 0;
    PingpongCost cost = cost_pingpong(context->arena, context->target, kernel, 1);
    return cost.fetch > larger(cost.step, cost.power) ? context->target->gpc_ctas : 0;
}

// CTAs of a cluster that reach each other are neighbours (cluster_grid.c); roles of the source stand in no loop over tiles but their own.
static bool write_schedule(PassContext *context, const Func *kernel, Stmt *grid, const Specialization *how) {
    if (func_cluster(kernel) > 1 || attr_get(kernel->attrs, ATTR_FALLBACK)) return false;
    Arena *arena = context->arena;
    Schedule schedule = schedule_of(arena, kernel, how, neighbours_of(context, kernel, how));
    if (func_has_roles(kernel) && !has_tile_loops(grid) && schedule.claim.kind == CLAIM_STATIC) {
        REMARK(context, grid->loc, T_GRID_HINT, "persistent", "the roles have loops of their own");
        schedule.claim = (TileClaim){0};
    }
    if (kernel->stage != STAGE_TILE && schedule.claim.kind == CLAIM_DYNAMIC) {
        REMARK(context, grid->loc, T_GRID_HINT, "claim",
               "its statements are those of threads, and no one claims for all");
        schedule.claim = (TileClaim){0};
    }
    bool orders = set_order(arena, grid, schedule.order);
    return set_claim(arena, grid, schedule.claim) || orders;
}

// Of the loop that has most of them.
static Span stages_span(const Stmt *grid) {
    const Stmt *most = NULL;
    FOR_EACH_STMT (stmt, &grid->grid.body)
        if (is_pipelined(stmt) && (!most || loop_stages(stmt) > loop_stages(most))) most = stmt;
    return most ? most->loc : (Span){0};
}

// Threads store the accumulators whose mechanism the source leaves open.
static void store_unstaged(PassContext *context, Func *kernel) {
    FOR_EACH_STMT_MUT (stmt, &kernel->body) {
        TmaStore store;
        const char *why;
        if (via_of(stmt) != VIA_NONE || !stores_tile(context->arena, context->target, kernel, stmt, &store, &why))
            continue;
        REMARK(context, stmt->loc, T_STORED_BY_THREADS, "shared memory has no room for its staging: use fewer stages");
        via_set(context->arena, stmt, VIA_VECTOR);
    }
}

bool pass_plan(PassContext *context, Func *kernel) {
    Arena *a = context->arena;
    const Target *target = context->target;
    Stmt *grid = (Stmt *)func_grid(kernel);
    if (!grid) return false;
    Specialization how = {.kind = WS_NONE};
    if (kernel->stage == STAGE_TILE) how = specialization_of(a, target, kernel);
    StoreFit fit = how.kind == WS_NONE ? FITS_STAGED : specialized_fits(a, target, kernel, &how);
    if (fit == FITS_UNSTAGED) store_unstaged(context, kernel);
    if (fit == FITS_NOT && how.kind == WS_COOPERATIVE)
        how = (Specialization){.why = "its tiles with slots need more shared memory than a CTA has: use fewer stages",
                               .at = stages_span(grid)};
    bool scheduled = write_schedule(context, kernel, grid, &how);
    if (kernel->stage != STAGE_TILE) return scheduled;
    if (how.kind == WS_NONE || attr_get(kernel->attrs, ATTR_FALLBACK))
        return leave_whole(context, kernel, grid, &how) || scheduled;
    Groups asked = kernel_groups(kernel), groups = groups_of(a, target, kernel, &how, &asked);
    const char *why = groups_problem(a, grid, &asked, &groups);
    if (!why) why = registers_problem(a, target, kernel, &how, &groups);
    if (why) return diag(context->sink, grid->loc, T_GROUPS, why), false;
    bool added = plan_slots(a, target, kernel, &how, &groups);
    return write_groups(a, grid, &asked, &groups) || scheduled || added || fit == FITS_UNSTAGED;
}
