// Module -> launch plan: expressions become text, `aligned(A, n)` becomes `A_address % n == 0`.
#include "runtime/plan/build.h"
#include "ir/build.h"
#include "ir/match.h"
#include "ir/print.h"
#include "ir/query.h"
#include "ir/rewrite.h"
#include "ir/schedule.h"
#include "runtime/plan/mechanisms.h"
#include "support/map.h"
#include "support/numbers.h"
#include <inttypes.h>
#include <string.h>

typedef struct Builder {
    const Module *module;
    Arena *arena;
    const Cubin *cubin;
    const Target *target;
    VEC(const char *) names;   // names taken in this variant
    Map *renamed;              // Var -> its replacement with a unique name
} Builder;

static const char *address_name(Arena *arena, const char *tensor) {
    return arena_printf(arena, "%s_address", tensor);
}

static const char *name_of_tensor(const Arg *arg) {
    return arg->region ? arg->region->buf->name : arg->name ? arg->name : "?";
}

static bool is_taken(const Builder *b, const char *name) {
    for (int i = 0; i < b->names.count; i++)
        if (strcmp(b->names.items[i], name) == 0) return true;
    return false;
}

// Names of a module need not be unique (a function inlined twice declares its `let`s twice), and may equal the name of
// a tensor's address. Here each gets a unique one.
static const char *own_name(Builder *b, const Var *var) {
    const char *name = var->name;
    for (int i = 1; is_taken(b, name); i++) name = arena_printf(b->arena, "%s_%d", var->name, i);
    vec_push(b->arena, &b->names, name);
    if (name != var->name) map_put(b->renamed, var, var_new(b->arena, name, var->kind, var->type, var->loc));
    return name;
}

static const char *name_of(const Builder *b, const Var *var) {
    const Var *renamed = map_get(b->renamed, var);
    return renamed ? renamed->name : var->name;
}

static Expr *for_the_host(Mapper *mapper, Expr *expr) {
    const Builder *b = mapper->user;
    Var *renamed = expr->kind == EXPR_VAR ? map_get(b->renamed, expr->var) : NULL;
    if (renamed) return e_var(mapper->arena, renamed);
    if (expr->kind != EXPR_CALL || expr->call.op != OP_ALIGNED) return expr;
    Arena *arena = mapper->arena;
    const char *name = address_name(arena, name_of_tensor(&expr->call.args[0]));
    Expr *address = e_var(arena, var_new(arena, name, VAR_PARAM, TYPE_I64, expr->loc));
    return e_binary(arena, BIN_EQ, e_mod(arena, address, expr->call.args[1].value), e_int(arena, 0));
}

static HostExpr host_expr(Builder *b, const Expr *expr) {
    if (!expr) return (HostExpr){0};
    Mapper mapper = {.arena = b->arena, .expr = for_the_host, .user = b};
    return (HostExpr){.text = expr_text(b->arena, map_expr(&mapper, (Expr *)expr))};
}

static HostExpr *host_exprs(Builder *b, int count, Expr *const *exprs) {
    HostExpr *out = NEW_ARRAY(b->arena, HostExpr, count + 1);
    for (int i = 0; i < count; i++) out[i] = host_expr(b, exprs[i]);
    return out;
}

static void add_terms(Builder *b, const Expr *expr, PlanCondition *out) {
    if (expr->kind == EXPR_BINARY && expr->binary.op == BIN_LOGICAL_AND) {
        add_terms(b, expr->binary.a, out);
        add_terms(b, expr->binary.b, out);
        return;
    }
    HostExpr term = host_expr(b, expr);
    bool binds_less = (expr->kind == EXPR_BINARY && expr->binary.op == BIN_LOGICAL_OR) || expr->kind == EXPR_SELECT;
    if (binds_less) term.text = arena_printf(b->arena, "(%s)", term.text);
    VEC_EACH (HostExpr, other, &out->terms)
        if (strcmp(other->text, term.text) == 0) return;
    vec_push(b->arena, &out->terms, term);
}

static PlanCondition plan_condition(Builder *b, const Expr *expr) {
    PlanCondition condition = {0};
    if (!expr) return condition;
    add_terms(b, expr, &condition);
    condition.text = plan_condition_text(b->arena, &condition);
    return condition;
}

static PlanCost *plan_cost(Builder *b, const FuncCost *cost) {
    if (!cost) return NULL;
    PlanCost *out = NEW(b->arena, PlanCost);
    for (int i = 0; i < COST_EXTENTS; i++) out->extents[i] = host_expr(b, cost->extents[i]);
    out->terms = cost->terms;
    for (int i = 0; i < COST_TERM_COUNT; i++) {
        int64_t value = *cost_term(&out->terms, i);
        EXPECT(b->module->failure, value >= 0 && value <= INT32_MAX, "the cost '%s' is %" PRId64, cost_term_name(i),
               value);
    }
    return out;
}

static PlanParam plan_tensor(Builder *b, const Buf *buf) {
    PlanParam p = {.name = buf->name, .type = buf->type, .is_tensor = true, .mode = buf->mode, .rank = buf->rank};
    if (buf->alias_of) p.alias = buf->alias_of->name;
    p.shape = host_exprs(b, buf->rank, argument_dims(b->arena, buf, buf->shape));
    p.moved = buf->moved;
    p.leading = buf->leading;
    if (p.leading) p.shape[0].text = arena_printf(b->arena, "%s%s", plan_leading, p.shape[0].text);
    if (buf->strides) p.strides = host_exprs(b, buf->rank, argument_dims(b->arena, buf, buf->strides));
    return p;
}

static PlanRegion *plan_region(Builder *b, const Region *region) {
    PlanRegion *out = NEW(b->arena, PlanRegion);
    out->tensor = region->buf->name;
    out->transposed = region->transposed;
    if (region_is_whole(region)) return out;
    out->count = region->count;
    out->start = NEW_ARRAY(b->arena, HostExpr, region->count + 1);
    out->extent = NEW_ARRAY(b->arena, HostExpr, region->count + 1);
    for (int d = 0; d < region->count; d++) {
        out->start[d] = host_expr(b, region->dims[d].start);
        out->extent[d] = host_expr(b, region->dims[d].extent);
    }
    return out;
}

static PlanArg plan_arg(Builder *b, const Arg *arg) {
    if (arg->region) return (PlanArg){.region = plan_region(b, arg->region)};
    return (PlanArg){.value = host_expr(b, arg->value)};
}

static void plan_block(Builder *b, const Block *block, PlanSteps *out);

// The step of a statement; NULL: the grid, or no work for the host.
static PlanStep *plan_stmt(Builder *b, const Stmt *stmt) {
    PlanStep *step = NEW(b->arena, PlanStep);
    FillOp fill;
    switch (stmt->kind) {
    case STMT_LET:
        step->kind = DO_LET;
        step->value = host_expr(b, stmt->let.value);
        step->name = own_name(b, stmt->let.var);
        step->type = stmt->let.var->type;
        return step;
    case STMT_ASSUME:
        step->kind = DO_ASSUME;
        step->value = host_expr(b, stmt->assume);
        return step;
    case STMT_DECL:
        if (stmt->decl->scope != SCOPE_GLOBAL) return NULL;
        step->kind = DO_SCRATCH;
        step->scratch = NEW(b->arena, PlanParam);
        *step->scratch = plan_tensor(b, stmt->decl);
        step->scratch->zeroed = attr_get(stmt->decl->attrs, ATTR_ZEROED) != NULL;
        vec_push(b->arena, &b->names, stmt->decl->name);
        return step;
    case STMT_IF:
        step->kind = DO_IF;
        step->value = host_expr(b, stmt->if_.condition);
        plan_block(b, &stmt->if_.then, &step->then);
        plan_block(b, &stmt->if_.otherwise, &step->otherwise);
        return step;
    case STMT_LAUNCH:
        step->kind = DO_LAUNCH;
        step->name = stmt->launch.callee;
        for (int i = 0; i < stmt->launch.count; i++) {
            PlanArg arg = plan_arg(b, &stmt->launch.args[i]);
            vec_push(b->arena, &step->args, arg);
        }
        return step;
    case STMT_CALL:
        if (!match_fill(stmt, &fill)) return NULL;
        step->kind = DO_FILL;
        step->region = plan_region(b, fill.dst);
        step->value = host_expr(b, fill.value);
        return step;
    default: return NULL;
    }
}

static void plan_block(Builder *b, const Block *block, PlanSteps *out) {
    for (int i = 0; i < block->count; i++) {
        const Stmt *stmt = block->items[i];
        if (stmt->kind == STMT_BLOCK) {
            plan_block(b, &stmt->block, out);
            continue;
        }
        PlanStep *step = plan_stmt(b, stmt);
        if (step) vec_push(b->arena, out, step);
    }
}

static const KernelResources *resources_of(const Builder *b, const char *symbol) {
    for (int i = 0; b->cubin && i < b->cubin->kernel_count; i++)
        if (strcmp(b->cubin->kernels[i].symbol, symbol) == 0) return &b->cubin->kernels[i];
    return NULL;
}

// How many CTAs a multiprocessor has room for; 0 registers of a thread: not known.
static int resident_ctas(const Target *target, int threads, int registers, int64_t shared) {
    int64_t ctas = smaller(target->threads_multiprocessor / threads, target_ctas_by_shared(target, shared));
    return (int)(registers > 0 ? smaller(ctas, target_ctas_by_registers(target, registers, threads)) : ctas);
}

static void plan_kernel(Builder *b, const Func *kernel, PlanVariant *v) {
    const Stmt *grid = func_grid(kernel);
    Expr *blocks = e_int(b->arena, 1);
    for (int i = 0; i < grid->grid.count; i++) blocks = e_mul(b->arena, blocks, grid->grid.iters[i].end);
    if (grid_blocks(grid) > 1) blocks = e_mul(b->arena, blocks, e_int(b->arena, grid_blocks(grid)));
    v->symbol = kernel_symbol(b->module, kernel, b->arena);
    v->grid = host_expr(b, blocks);
    v->threads = (int)(grid_threads(func_grid(kernel)) / grid_blocks(func_grid(kernel)));
    kernel_cluster(kernel, v->cluster);
    v->sets_cluster = chooses_cluster(grid);
    v->how = kernel_mechanisms(b->arena, kernel);
    v->shared_bytes = kernel_shared_bytes(kernel);
    v->registers = -1;
    const KernelResources *found = resources_of(b, v->symbol);
    if (func_calls(kernel, OP_DEPENDENCY_WAIT))
        v->pdl = resident_ctas(b->target, v->threads, found ? found->registers : 0, v->shared_bytes);
    if (!found) return;
    v->registers = found->registers;
    v->spill_stores = found->spill_stores;
    v->spill_loads = found->spill_loads;
    v->stack = found->stack;
    v->barriers = found->barriers;
}

static PlanMap plan_map(Builder *b, const Func *func, int at) {
    TensorMap map;
    const char *why = NULL;
    const Param *param = &func->params.items[at];
    EXPECT(b->module->failure, tensor_map_read(func, param, &map, &why), "'%s' %s", param->var->name, why);
    PlanMap out = {.at = at, .tensor = map.tensor->name, .box_rank = map.box_rank};
    memcpy(out.box, map.box, sizeof out.box);
    out.swizzle = map.swizzle;
    out.tf32 = map.tf32;
    out.windows = map.offsets;
    out.merged = map.view && !map.offsets;
    if (!out.windows) return out;
    out.upper = NEW_ARRAY(b->arena, HostExpr, out.windows);
    for (int i = 0; i < out.windows; i++) {
        int window = out.windows - 1 - i;
        out.lower[i] = -(int)map.view->im2col->windows[window].padding;
        out.strides[i] = (int)map.view->im2col->windows[window].stride;
        out.upper[i] = host_expr(b, tensor_map_corner(b->arena, map.view, window));
    }
    return out;
}

// Tensors and their addresses keep their names; scalars and dims are renamed if theirs is taken.
static void name_arguments(Builder *b, const Func *func) {
    b->names.count = 0;
    b->renamed = map_new(b->arena);
    for (int i = 0; i < func->params.count; i++) {
        const Buf *buf = func->params.items[i].buf;
        if (!buf) continue;
        vec_push(b->arena, &b->names, buf->name);
        vec_push(b->arena, &b->names, address_name(b->arena, buf->name));
    }
    for (int i = 0; i < func->params.count; i++)
        if (func->params.items[i].var) own_name(b, func->params.items[i].var);
    for (int i = 0; i < func->dims.count; i++) own_name(b, func->dims.items[i]);
}

static PlanVariant plan_variant(Builder *b, const Func *func) {
    name_arguments(b, func);
    PlanVariant v = {.when = plan_condition(b, func->when), .cost = plan_cost(b, func->cost)};
    for (int i = 0; i < func->params.count; i++) {
        const Param *from = &func->params.items[i];
        if (param_is_hidden(from)) {
            PlanMap map = plan_map(b, func, i);
            vec_push(b->arena, &v.maps, map);
            continue;
        }
        PlanParam p =
            from->buf ? plan_tensor(b, from->buf) : (PlanParam){.name = name_of(b, from->var), .type = from->var->type};
        p.layout = attr_text(from->attrs, ATTR_LAYOUT);
        vec_push(b->arena, &v.params, p);
    }
    for (int i = 0; i < func->dims.count; i++) {
        const char *name = name_of(b, func->dims.items[i]);
        vec_push(b->arena, &v.dims, name);
    }
    plan_block(b, &func->body, &v.steps);
    for (const Attr *attr = func->attrs; attr; attr = attr->next) {
        v.recorded |= attr->id == ATTR_TUNED_FOR;
        PlanTuned tuned = {attr->args[0].text, attr->count > 1 ? attr->args[1].integer : 0};
        if (attr->id == ATTR_TUNED && tuned.name) vec_push(b->arena, &v.tuned, tuned);
    }
    if (func->kind == FUNC_KERNEL) plan_kernel(b, func, &v);
    return v;
}

// A kernel whose cluster the launch chooses, by cost: a variant for each shape.
static void add_shapes(Builder *b, const Func *func, PlanEntry *entry, int first) {
    const Stmt *grid = func->kind == FUNC_KERNEL && func->cost ? func_grid(func) : NULL;
    ClusterShapes shapes = {0};
    if (grid) shapes = grid_cluster_shapes(b->arena, grid);
    for (int i = 1; i < shapes.count; i++) {
        PlanVariant variant = vec_last(&entry->variants);
        variant.same_kernel = true;
        plan_set_cluster(b->arena, &variant, shapes.items[i].extents);
        variant.compared = 1;
        vec_push(b->arena, &entry->variants, variant);
        entry->variants.items[first].compared++;
    }
}

const Plan *plan_build(const Module *module, const Target *target, const Cubin *cubin) {
    Builder b = {.module = module, .arena = module->arena, .cubin = cubin, .target = target};
    Plan *plan = NEW(b.arena, Plan);
    plan->producer = TILEC_VERSION;
    plan->target = target->name;
    plan->one_launch = module->one_launch;
    plan->machine = (PlanMachine){target->clock_mhz, target->launch_ns, target->stream_bytes};
    for (int i = 0, compared = 1, first = 0; i < module->funcs.count; i++) {
        const Func *func = module->funcs.items[i];
        PlanEntry *last = plan->entries.count ? &vec_last(&plan->entries) : NULL;
        if (!last || strcmp(last->name, func->name) != 0) {
            PlanEntry entry = {.name = func->name, .is_program = func->kind == FUNC_PROGRAM};
            vec_push(b.arena, &plan->entries, entry);
            last = &vec_last(&plan->entries);
        }
        last->is_program &= func->kind == FUNC_PROGRAM;   // a kernel may have a variant that is a program
        PlanVariant variant = plan_variant(&b, func);
        variant.compared = compared > 1 ? 1 : module_compared(module, i);   // the first of them says how many
        bool begins = compared <= 1;
        compared = compared > 1 ? compared - 1 : variant.compared;
        vec_push(b.arena, &last->variants, variant);
        if (begins) first = last->variants.count - 1;
        add_shapes(&b, func, last, first);
    }
    VEC_EACH (PlanEntry, entry, &plan->entries) plan_set_names(entry);
    return plan;
}
