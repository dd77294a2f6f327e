// Statements: control flow, roles and thread regions.
//
// A `for` becomes a guarded do-while (the guard vanishes where the loop provably runs), an `unroll` or `vectorized`
// loop its copies with the iterator bound to constants. An `if` whose condition folds to a constant has one arm only,
// so a prologue's `if (p < steps)` costs nothing where it is decided.
#include "codegen/gen.h"
#include "ir/query.h"
#include <string.h>

static void emit_stmt(Gen *gen, Stmt *stmt);
static int emit_roles(Gen *gen, const Block *block, int at, int64_t *first);

// ---- variables ----

static void bind_value(Gen *gen, const Var *var, Value value) {
    VarPlace *place = map_get(gen->kernel.vars, var);
    if (!place) map_put(gen->kernel.vars, var, place = NEW(gen->arena, VarPlace));
    *place = (VarPlace){.value = value, .loops = gen->kernel.loops};
}

static void emit_var_decl(Gen *gen, Stmt *stmt) {
    Var *var = stmt->let.var;
    VarPlace *place = map_get(gen->kernel.vars, var);
    LLVMTypeRef type = llvm_value_type(gen, var->type);
    if (!place) {
        place = NEW(gen->arena, VarPlace);
        *place = (VarPlace){.value = stack_slot(gen, type, var->name), .in_memory = true};
        map_put(gen->kernel.vars, var, place);
    }
    Value value = stmt->let.value ? emit_expr(gen, stmt->let.value) : LLVMGetPoison(type);
    LLVMBuildStore(gen->builder, value, place->value);
}

static void emit_let(Gen *gen, Stmt *stmt) {
    Var *var = stmt->let.var;
    Value value = emit_index(gen, stmt->let.value);
    bind_value(gen, var, value);
    facts_bind(gen->kernel.facts, var, stmt->let.value);
    remember_let(gen, var, stmt->let.value);
}

static void emit_assign(Gen *gen, Stmt *stmt) {
    VarPlace *place = map_get(gen->kernel.vars, stmt->let.var);
    EXPECT(gen->failure, place && place->in_memory, "'%s' is not a variable", stmt->let.var->name);
    LLVMBuildStore(gen->builder, emit_expr(gen, stmt->let.value), place->value);
}

// The same place in the shared memory of that CTA of the cluster.
static Value in_block(Gen *gen, Value address, Expr *block) {
    return CALL(gen, "llvm.nvvm.mapa.shared.cluster", LLVMPointerTypeInContext(gen->llvm.context, CLUSTER_SPACE),
                address, emit_i32(gen, block));
}

static void emit_store(Gen *gen, Stmt *stmt) {
    Buf *buf = stmt->store.buf;
    int count = stmt->store.count;
    Expr *const *indices = stmt->store.indices;
    gen->kernel.into_registers = buf->scope == SCOPE_LOCAL;
    Value value = emit_expr(gen, stmt->store.value);
    gen->kernel.into_registers = false;
    if (stmt->store.value->type != buf->type) value = emit_convert(gen, value, stmt->store.value->type, buf->type);
    if (buf->scope == SCOPE_LOCAL) {
        register_set(gen, register_array(gen, buf), register_index(gen, buf, count, indices), value);
        return;
    }
    Value address = memory_address(gen, buf, count, indices, stmt);
    if (attr_get(buf->attrs, ATTR_CTAS)) address = in_block(gen, address, indices[0]);
    Value store = LLVMBuildStore(gen->builder, to_memory(gen, buf->type, value), address);
    LLVMSetAlignment(store, (unsigned)type_bytes(buf->type));
}

// ---- blocks: each has its own view of what is known (address.c) ----

typedef struct ScopeState {
    Map *known;
    int mark;
} ScopeState;

static ScopeState enter_scope(Gen *gen, const void *key) {
    ScopeState state = {gen->address.known, facts_mark(gen->kernel.facts)};
    gen->address.known = map_get(gen->address.scopes, key);
    if (!gen->address.known) map_put(gen->address.scopes, key, gen->address.known = map_new(gen->arena));
    return state;
}

static void leave_scope(Gen *gen, ScopeState state) {
    gen->address.known = state.known;
    facts_release(gen->kernel.facts, state.mark);
}

// ---- clusters ----

void await_cluster(Gen *gen) {
    if (gen->cluster.started) return;
    call_named(gen, "llvm.nvvm.barrier.cluster.wait.aligned", gen->types.none, 0, NULL);
    gen->cluster.started = true;
}

// Drops what is known of variables that the statement assigns.
static void forget_assigned(Gen *gen, const Stmt *stmt) {
    if (facts_forget(gen->kernel.facts, stmt)) gen->address.known = map_new(gen->arena);
}

void emit_block(Gen *gen, Block *block) {
    ScopeState state = enter_scope(gen, block);
    int64_t first = gen->kernel.role.first;
    int open_arrays = gen->registers.wgmma.count;
    for (int i = 0; i < block->count && !gen->kernel.abandoned; i++) {
        Stmt *stmt = block->items[i];
        int begin = i;
        if (attr_get(stmt->attrs, ATTR_AWAIT_CLUSTER)) await_cluster(gen);
        if (stmt->kind == STMT_FOR || stmt->kind == STMT_WHILE) forget_assigned(gen, stmt);
        if (is_wgmma(stmt)) {
            i += emit_wgmma(gen, block, i) - 1;
        } else if (stmt->kind == STMT_ROLE) {
            i += emit_roles(gen, block, i, &first) - 1;
        } else {
            first = gen->kernel.role.first;
            emit_stmt(gen, stmt);
        }
        for (; begin <= i; begin++) forget_assigned(gen, block->items[begin]);
    }
    gen->registers.wgmma.count = open_arrays;
    leave_scope(gen, state);
}

// ---- if ----

void emit_if_then(Gen *gen, Value condition, void (*body)(Gen *gen, void *user), void *user) {
    Label then = new_label(gen, "then"), join = new_label(gen, "join");
    LLVMBuildCondBr(gen->builder, condition, then, join);
    LLVMPositionBuilderAtEnd(gen->builder, then);
    body(gen, user);
    go_to(gen, join);
}

static void emit_arm(Gen *gen, Stmt *stmt, bool holds) {
    Block *arm = holds ? &stmt->if_.then : &stmt->if_.otherwise;
    int mark = facts_mark(gen->kernel.facts);
    facts_assume(gen->kernel.facts, stmt->if_.condition, holds);
    emit_block(gen, arm);
    facts_release(gen->kernel.facts, mark);
}

// Addresses that the arm's accesses need and that depend on nothing inside of it.
static void prepare_arm(Gen *gen, const Block *arm) {
    for (int i = 0; i < arm->count; i++) {
        Stmt *stmt = arm->items[i];
        if (stmt->kind == STMT_STORE) {
            prepare_address(gen, stmt->store.buf, stmt->store.count, stmt->store.indices, stmt);
        } else if (stmt->kind == STMT_CALL) {
            for (int a = 0; a < stmt->call.count; a++) {
                if (stmt->call.args[a].region) prepare_place(gen, stmt->call.args[a].region);
            }
        } else {
            return;
        }
    }
}

// One arrival, under one or more conditions, which needs no branch; NULL: the statement is something else.
static const Stmt *predicated_arrival(const Stmt *stmt) {
    const Block *then = &stmt->if_.then;
    if (then->count != 1 || stmt->if_.otherwise.count) return NULL;
    const Stmt *arrive = then->items[0];
    if (arrive->kind == STMT_IF) return predicated_arrival(arrive);
    bool own = is_call(arrive, OP_MBARRIER_ARRIVE) && arrive->call.count == 1;
    bool predicated = (own || is_call(arrive, OP_PEER_ARRIVE)) && attr_get(arrive->attrs, ATTR_PREDICATED);
    return predicated ? arrive : NULL;
}

static void emit_predicated(Gen *gen, const Stmt *stmt, const Stmt *arrive, Value condition) {
    OpCall call = call_of(arrive);
    for (const Stmt *inner = stmt->if_.then.items[0]; inner != arrive; inner = inner->if_.then.items[0])
        condition = LLVMBuildAnd(gen->builder, condition, emit_expr(gen, inner->if_.condition), "");
    if (call.op == OP_PEER_ARRIVE) emit_peer_arrival_if(gen, &call, condition);
    else emit_arrival_if(gen, &call, condition);
}

static void emit_if(Gen *gen, Stmt *stmt) {
    Value condition = emit_expr(gen, stmt->if_.condition);
    int64_t constant;
    if (value_const(condition, &constant)) {
        emit_arm(gen, stmt, constant != 0);
        return;
    }
    const Stmt *arrive = predicated_arrival(stmt);
    if (arrive) {
        emit_predicated(gen, stmt, arrive, condition);
        return;
    }
    prepare_arm(gen, &stmt->if_.then);
    bool has_else = stmt->if_.otherwise.count > 0;
    Label then = new_label(gen, "then"), join = new_label(gen, "join");
    Label otherwise = has_else ? new_label(gen, "else") : join;
    LLVMBuildCondBr(gen->builder, condition, then, otherwise);
    LLVMPositionBuilderAtEnd(gen->builder, then);
    gen->kernel.conditions++;
    prefetch_elected(gen, &stmt->if_.then);
    emit_arm(gen, stmt, true);
    if (has_else) {
        LLVMBuildBr(gen->builder, join);
        LLVMMoveBasicBlockAfter(otherwise, LLVMGetInsertBlock(gen->builder));
        LLVMPositionBuilderAtEnd(gen->builder, otherwise);
        emit_arm(gen, stmt, false);
    }
    gen->kernel.conditions--;
    go_to(gen, join);
}

// ---- loops ----

// What comes inside: the next iterator's loop, or the body.
static void emit_nest(Gen *gen, Stmt *stmt, int depth);

static bool unroll_bounds(Gen *gen, const Iter *iter, int64_t *begin, int64_t *end, int64_t *step) {
    return value_const(emit_index(gen, iter->begin), begin) && value_const(emit_index(gen, iter->end), end) &&
           value_const(emit_index(gen, iter->step), step);
}

enum { UNROLL_LIMIT = 1 << 14 };

static void emit_rolled(Gen *gen, Stmt *stmt, int depth, int64_t begin, int64_t end, int64_t step, int64_t copies) {
    const Iter *iter = &stmt->loop.iters[depth];
    LLVMBuilderRef b = gen->builder;
    Label loop = new_label(gen, "rolled"), done = new_label(gen, "done"), before = LLVMGetInsertBlock(b);
    go_to(gen, loop);
    gen->kernel.loops++;
    Value first = LLVMBuildPhi(b, gen->types.i32, iter->var->name);
    for (int64_t i = 0; i < copies; i++) {
        Value index = LLVMBuildAdd(b, first, const_i32(gen, i * step), "");
        if (LLVMIsAInstruction(index)) LLVMSetNSW(index, 1);
        bind_value(gen, iter->var, index);
        emit_nest(gen, stmt, depth + 1);
    }
    gen->kernel.loops--;
    Value next = LLVMBuildNSWAdd(b, first, const_i32(gen, copies * step), "");
    LLVMAddIncoming(first, (Value[]){const_i32(gen, begin), next}, (Label[]){before, LLVMGetInsertBlock(b)}, 2);
    LLVMBuildCondBr(b, LLVMBuildICmp(b, LLVMIntSLT, next, const_i32(gen, end), ""), loop, done);
    LLVMMoveBasicBlockAfter(done, LLVMGetInsertBlock(b));
    LLVMPositionBuilderAtEnd(b, done);
}

static void emit_unrolled(Gen *gen, Stmt *stmt, int depth, int64_t begin, int64_t end, int64_t step) {
    const Iter *iter = &stmt->loop.iters[depth];
    EXPECT(gen->failure, step > 0, "loop over '%s' with step %lld", iter->var->name, (long long)step);
    int64_t trips = trip_count(begin, end, step);
    if (trips > UNROLL_LIMIT) {
        if (!gen->kernel.abandoned) diag(gen->sink, stmt->loc, T_IR_UNROLL, (long long)trips, UNROLL_LIMIT);
        gen->kernel.abandoned = true;
    }
    bool small = begin >= INT32_MIN && end <= INT32_MAX / 2;
    int64_t copies = attr_int(stmt->attrs, ATTR_ROLLED, 0);
    if (copies && small && depth == 0) {
        emit_rolled(gen, stmt, depth, begin, end, step, copies);
        return;
    }
    gen->kernel.break_to =
        depth == stmt->loop.count - 1 && block_breaks(&stmt->loop.body) ? new_label(gen, "after") : NULL;
    Label after = gen->kernel.break_to;
    gen->kernel.conditions += after != NULL;
    for (int64_t trip = 0; trip < trips && !gen->kernel.abandoned; trip++) {
        int64_t i = begin + trip * step;
        bind_value(gen, iter->var, i >= INT32_MIN && i <= INT32_MAX ? const_i32(gen, i) : const_i64(gen, i));
        emit_nest(gen, stmt, depth + 1);
    }
    gen->kernel.conditions -= after != NULL;
    if (after) go_to(gen, after);
}

typedef struct IterBits {
    int bits;     // 32 when it still fits after the last step
    bool exact;   // nor does it pass the end of 64 bits
} IterBits;

typedef struct IterValues {
    Value index, begin, end, step;
} IterValues;

static IterBits iter_bits(Gen *gen, const Iter *iter) {
    Range begin = range_of(gen->kernel.facts, iter->begin), end = range_of(gen->kernel.facts, iter->end);
    Range step = range_of(gen->kernel.facts, iter->step);
    bool narrow = begin.low >= INT32_MIN && begin.high <= INT32_MAX && end.low >= INT32_MIN && step.high <= INT32_MAX &&
                  end.high <= INT32_MAX - step.high + 1;
    return (IterBits){narrow ? 32 : 64, end.high <= INT64_MAX - step.high + 1};
}

// The next value of an iterator, and whether it is below the end. Where it may not fit, the rest tells. A loop of constants over more
// than half of i64 is over at its last value: ptxas 13.0 takes `i < end` of such a loop for false at once.
static Value emit_next(Gen *gen, const IterValues *at, bool exact, Value *more) {
    LLVMBuilderRef b = gen->builder;
    Value next = LLVMBuildAdd(b, at->index, at->step, "");
    if (exact && LLVMIsAInstruction(next)) LLVMSetNSW(next, 1);
    int64_t begin, end, step, range;
    bool known = value_const(at->begin, &begin) && value_const(at->end, &end) && value_const(at->step, &step);
    if (known && __builtin_sub_overflow(end, begin, &range)) {
        uint64_t last = (uint64_t)begin + (uint64_t)(trip_count(begin, end, step) - 1) * (uint64_t)step;
        *more = LLVMBuildICmp(b, LLVMIntNE, at->index, const_i64(gen, (int64_t)last), "");
    } else if (exact) {
        *more = LLVMBuildICmp(b, LLVMIntSLT, next, at->end, "");
    } else {
        *more = LLVMBuildICmp(b, LLVMIntULT, at->step, LLVMBuildSub(b, at->end, at->index, ""), "");
    }
    return next;
}

static void emit_serial(Gen *gen, Stmt *stmt, int depth) {
    const Iter *iter = &stmt->loop.iters[depth];
    LLVMBuilderRef b = gen->builder;
    IterBits iter_is = iter_bits(gen, iter);
    int bits = iter_is.bits;
    // The bounds must be computed before facts_iter makes them part of what is known inside.
    Value begin = fit_bits(gen, emit_index(gen, iter->begin), bits, known_of(gen, iter->begin).nonnegative);
    Value end = fit_bits(gen, emit_index(gen, iter->end), bits, known_of(gen, iter->end).nonnegative);
    Value step = fit_bits(gen, emit_index(gen, iter->step), bits, true);
    Label loop = new_label(gen, "loop"), done = new_label(gen, "done"), before = LLVMGetInsertBlock(b);
    LLVMBuildCondBr(b, LLVMBuildICmp(b, LLVMIntSLT, begin, end, ""), loop, done);
    LLVMPositionBuilderAtEnd(b, loop);
    gen->kernel.loops++;
    Value index = LLVMBuildPhi(b, LLVMTypeOf(begin), iter->var->name);
    bind_value(gen, iter->var, index);
    facts_iter(gen->kernel.facts, iter);
    gen->kernel.break_to = done;   // a break leaves the innermost loop
    emit_nest(gen, stmt, depth + 1);
    gen->kernel.loops--;
    Value more, next = emit_next(gen, &(IterValues){index, begin, end, step}, iter_is.exact, &more);
    LLVMAddIncoming(index, (Value[]){begin, next}, (Label[]){before, LLVMGetInsertBlock(b)}, 2);
    LLVMBuildCondBr(b, more, loop, done);
    LLVMMoveBasicBlockAfter(done, LLVMGetInsertBlock(b));
    LLVMPositionBuilderAtEnd(b, done);
}

static void emit_nest(Gen *gen, Stmt *stmt, int depth) {
    if (depth == stmt->loop.count) {
        emit_block(gen, &stmt->loop.body);
        return;
    }
    const Iter *iter = &stmt->loop.iters[depth];
    ScopeState state = enter_scope(gen, iter);
    int64_t begin, end, step;
    bool unrolls = (stmt->loop.kind == LOOP_UNROLL || stmt->loop.kind == LOOP_VECTORIZED) &&
                   unroll_bounds(gen, iter, &begin, &end, &step);
    int mark = facts_mark(gen->kernel.facts);
    if (unrolls) {
        int conditions = gen->kernel.conditions;
        if (gen->kernel.unrolled++ == 0) gen->kernel.conditions = 0;
        facts_iter(gen->kernel.facts, iter);
        emit_unrolled(gen, stmt, depth, begin, end, step);
        gen->kernel.unrolled--;
        gen->kernel.conditions = conditions;
    } else {
        emit_serial(gen, stmt, depth);
    }
    facts_release(gen->kernel.facts, mark);
    leave_scope(gen, state);
}

static void emit_for(Gen *gen, Stmt *stmt) {
    EXPECT(gen->failure, stmt->loop.kind != LOOP_PARALLEL, "a parallel loop at thread stage (line %d)", stmt->loc.line);
    Label outer = gen->kernel.break_to;
    emit_nest(gen, stmt, 0);
    gen->kernel.break_to = outer;
}

static void emit_while(Gen *gen, Stmt *stmt) {
    Label head = new_label(gen, "while"), body = new_label(gen, "body"), done = new_label(gen, "done");
    go_to(gen, head);
    gen->kernel.loops++;
    LLVMBuildCondBr(gen->builder, emit_expr(gen, stmt->while_.condition), body, done);
    LLVMPositionBuilderAtEnd(gen->builder, body);
    Label outer = gen->kernel.break_to;
    gen->kernel.break_to = done;
    int mark = facts_mark(gen->kernel.facts);
    facts_assume(gen->kernel.facts, stmt->while_.condition, true);
    gen->kernel.conditions++;
    emit_block(gen, &stmt->while_.body);
    gen->kernel.conditions--;
    facts_release(gen->kernel.facts, mark);
    gen->kernel.break_to = outer;
    gen->kernel.loops--;
    LLVMBuildBr(gen->builder, head);
    LLVMMoveBasicBlockAfter(done, LLVMGetInsertBlock(gen->builder));
    LLVMPositionBuilderAtEnd(gen->builder, done);
}

// What follows a break is never reached; it goes to a block without predecessors, which the passes drop.
static void emit_break(Gen *gen) {
    EXPECT(gen->failure, gen->kernel.break_to, "a break outside a loop");
    LLVMBuildBr(gen->builder, gen->kernel.break_to);
    LLVMPositionBuilderAtEnd(gen->builder, new_label(gen, "unreached"));
}

// ---- roles and thread regions ----

// Adjacent roles run side by side: their threads are numbered one after the other, each role from a whole warp on. A
// thread region's threads are the first ones of its role (or CTA).

int64_t whole_warps(const Gen *gen, int64_t threads) {
    int64_t lanes = gen->target->warp_lanes;
    return (threads + lanes - 1) / lanes * lanes;
}

static int64_t thread_extent(Gen *gen, const Stmt *stmt) {
    int64_t count = 1, extent = 0;
    for (int i = 0; i < stmt->thread.count; i++) {
        bool constant = expr_const(stmt->thread.iters[i].end, &extent);
        EXPECT(gen->failure, constant, "a thread region without a constant number of threads");
        count *= extent;
    }
    return count;
}

static bool roles_set_registers(const Block *block) {
    for (int i = 0; i < block->count; i++) {
        const Stmt *stmt = block->items[i];
        if (stmt->kind == STMT_ROLE && stmt->role.regs) return true;
        if (stmt->kind == STMT_BLOCK && roles_set_registers(&stmt->block)) return true;
    }
    return false;
}

bool trades_registers(const Gen *gen, const Stmt *grid) {
    return target_has(gen->target, FEATURE_WGMMA) && roles_set_registers(&grid->grid.body);
}

static void check_trade(Gen *gen, const Stmt *grid) {
    const char *why = roles_cannot_trade(gen->arena, gen->target, &grid->grid.body, gen->kernel.threads);
    if (why) diag(gen->sink, grid->loc, T_ROLE_REGISTERS, why);
}

static void set_registers(Gen *gen, int64_t regs) {
    int64_t at_launch = registers_at_launch(gen->target, gen->kernel.threads);
    if (!regs || regs == at_launch || !target_has(gen->target, FEATURE_WGMMA)) return;
    const char *name =
        regs > at_launch ? "llvm.nvvm.setmaxnreg.inc.sync.aligned.u32" : "llvm.nvvm.setmaxnreg.dec.sync.aligned.u32";
    CALL(gen, name, gen->types.none, const_i32(gen, regs));
}

// Whether the thread is among `count` from `first` on: by its warp where that decides, so that no warp diverges.
static Value is_among(Gen *gen, int64_t first, int64_t count) {
    int64_t lanes = gen->target->warp_lanes;
    bool whole = gen->kernel.warp && first % lanes == 0 && count % lanes == 0;
    Value index = whole ? gen->kernel.warp : gen->kernel.thread;
    int64_t unit = whole ? lanes : 1;
    index = LLVMBuildSub(gen->builder, index, const_i32(gen, first / unit), "");
    return LLVMBuildICmp(gen->builder, LLVMIntULT, index, const_i32(gen, count / unit), "");
}

typedef struct Roles {   // that fill warpgroups together, one in most cases
    Stmt **stmts;
    int count;
    int64_t first, regs;   // thread; 0: they keep what they have
} Roles;

// The member's number, from the warp's, which is equal for its lanes.
static void bind_member(Gen *gen, const Stmt *role, int64_t first) {
    int64_t lanes = gen->target->warp_lanes;
    Value warp = LLVMBuildSub(gen->builder, gen->kernel.warp, const_i32(gen, first / lanes), "");
    gen->kernel.role.member = LLVMBuildUDiv(gen->builder, warp, const_i32(gen, role->role.threads / lanes), "");
    bind_value(gen, role->role.iters[0].var, gen->kernel.role.member);
    facts_iter(gen->kernel.facts, &role->role.iters[0]);
}

static void emit_role_body(Gen *gen, void *user) {
    const Roles *role = user;
    Stmt *stmt = role->stmts[0];
    ScopeState state = enter_scope(gen, &stmt->role);
    if (role->regs) set_registers(gen, role->regs);
    if (stmt->role.count) bind_member(gen, stmt, role->first);
    emit_block(gen, &stmt->role.body);
    leave_scope(gen, state);
}

static void emit_role(Gen *gen, Stmt *stmt, int64_t first, int64_t regs) {
    Role outer = gen->kernel.role;
    Roles one = {&stmt, 1, first, regs};
    int barrier = gen->target->max_barriers - 1 - gen->kernel.role_count;
    gen->kernel.role = (Role){first, stmt->role.threads, barrier, NULL};
    gen->kernel.role_count += (int)role_members(stmt);
    debug_lines_at(gen, stmt->loc);
    emit_if_then(gen, is_among(gen, first, role_span(stmt)), emit_role_body, &one);
    gen->kernel.role = outer;
}

// A warpgroup changes its registers as a whole, so before control divides into its roles.
static void emit_sharing_roles(Gen *gen, void *user) {
    const Roles *roles = user;
    int64_t first = roles->first;
    set_registers(gen, roles->regs);
    for (int i = 0; i < roles->count; i++) {
        emit_role(gen, roles->stmts[i], first, 0);
        first += whole_warps(gen, role_span(roles->stmts[i]));
    }
}

// The role at `at`, and those that share its warpgroup: how many. `first`: its first thread, then the one after them.
static int emit_roles(Gen *gen, const Block *block, int at, int64_t *first) {
    Roles roles = {block->items + at, 1, *first, block->items[at]->role.regs};
    if (roles.regs) roles.count = roles_of_warpgroups(gen->target, block, at);
    if (roles.count < 1) roles.count = 1;
    for (int i = 0; i < roles.count; i++) *first += whole_warps(gen, role_span(roles.stmts[i]));
    if (roles.count == 1) emit_role(gen, roles.stmts[0], roles.first, roles.regs);
    else emit_if_then(gen, is_among(gen, roles.first, *first - roles.first), emit_sharing_roles, &roles);
    return roles.count;
}

// The thread's number in its role, or in its member of an array.
static Value role_thread(Gen *gen) {
    const Role *role = &gen->kernel.role;
    bool plain = role->member && role->first % role->count == 0;   // the remainder is that of the thread's own number
    Value thread =
        plain ? gen->kernel.thread : LLVMBuildSub(gen->builder, gen->kernel.thread, const_i32(gen, role->first), "");
    return role->member ? LLVMBuildURem(gen->builder, thread, const_i32(gen, role->count), "") : thread;
}

static void emit_thread_body(Gen *gen, void *user) {
    Stmt *stmt = user;
    Value rest = role_thread(gen);
    ScopeState state = enter_scope(gen, &stmt->thread);
    for (int i = 0; i < stmt->thread.count; i++) {   // the first runs fastest, as in a grid
        const Iter *iter = &stmt->thread.iters[i];
        bool last = i == stmt->thread.count - 1;
        Value extent = fit_bits(gen, emit_index(gen, iter->end), 32, true);
        bind_value(gen, iter->var, last ? rest : LLVMBuildURem(gen->builder, rest, extent, ""));
        if (!last) rest = LLVMBuildUDiv(gen->builder, rest, extent, "");
        facts_iter(gen->kernel.facts, iter);
    }
    emit_block(gen, &stmt->thread.body);
    leave_scope(gen, state);
}

static void emit_thread(Gen *gen, Stmt *stmt) {
    int64_t extent = thread_extent(gen, stmt);
    if (extent == gen->kernel.role.count) {
        emit_thread_body(gen, stmt);
        return;
    }
    Value among = gen->kernel.role.member
                      ? LLVMBuildICmp(gen->builder, LLVMIntULT, role_thread(gen), const_i32(gen, extent), "")
                      : is_among(gen, gen->kernel.role.first, extent);
    emit_if_then(gen, among, emit_thread_body, stmt);
}

// A block runs, so the grid is not empty: no factor of its extent is zero. (Facts about ceildiv and min go to their
// operands.)
static void assume_positive(Gen *gen, Expr *extent) {
    if (extent->kind == EXPR_BINARY && extent->binary.op == BIN_MUL) {
        assume_positive(gen, extent->binary.a);
        assume_positive(gen, extent->binary.b);
    } else if (is_expr_call(extent, OP_CEILDIV)) {
        assume_positive(gen, ARG(extent, CEILDIV, a).value);
    } else if (is_expr_call(extent, OP_MIN)) {
        assume_positive(gen, ARG(extent, MIN, a).value);
        assume_positive(gen, ARG(extent, MIN, b).value);
    } else if (extent->kind == EXPR_VAR) {
        facts_assume(gen->kernel.facts, e_lt(gen->arena, e_int(gen->arena, 0), extent), true);
    }
}

// The CTA's number is the grid's one iterator (tile-scheduler); it is below what the machine can launch.
static void emit_grid(Gen *gen, Stmt *stmt) {
    EXPECT(gen->failure, stmt->grid.count == 1, "a grid of %d dims", stmt->grid.count);
    const Iter *iter = stmt->grid.iters;
    Value number = call_named(gen, "llvm.nvvm.read.ptx.sreg.ctaid.x", gen->types.i32, 0, NULL);
    if (gen->cluster.ctas > 1) number = LLVMBuildUDiv(gen->builder, number, const_i32(gen, gen->cluster.ctas), "");
    ScopeState state = enter_scope(gen, &stmt->grid);
    check_trade(gen, stmt);
    bind_value(gen, iter->var, number);
    assume_positive(gen, iter->end);
    facts_iter(gen->kernel.facts, iter);
    Expr *limit = e_int(gen->arena, gen->target->max_grid);
    facts_assume(gen->kernel.facts, e_lt(gen->arena, e_var(gen->arena, iter->var), limit), true);
    emit_block(gen, &stmt->grid.body);
    leave_scope(gen, state);
}

// ---- all statements ----

static void emit_decl(Gen *gen, Stmt *stmt) {
    EXPECT(gen->failure, stmt->decl->scope != SCOPE_FRAGMENT, "fragment '%s' at thread stage", stmt->decl->name);
    if (stmt->decl->scope == SCOPE_LOCAL) declare_register_array(gen, stmt->decl);
}

static void emit_call(Gen *gen, const Stmt *stmt) {
    OpCall call = call_of(stmt);
    emit_op(gen, &call);
}

// LLVM's time grows faster than the number of statements.
static void count_statement(Gen *gen, const Stmt *stmt) {
    enum { MOST_STATEMENTS = 1 << 14 };
    if (gen->kernel.statements++ != MOST_STATEMENTS) return;
    diag(gen->sink, stmt->loc.line > 0 ? stmt->loc : gen->kernel.func->loc, T_CODE_SIZE, gen->kernel.func->name,
         MOST_STATEMENTS);
    gen->kernel.abandoned = true;
}

static void emit_stmt(Gen *gen, Stmt *stmt) {
    debug_lines_at(gen, stmt->loc);
    count_statement(gen, stmt);
    switch (stmt->kind) {
    case STMT_LET: emit_let(gen, stmt); return;
    case STMT_VAR: emit_var_decl(gen, stmt); return;
    case STMT_ASSIGN: emit_assign(gen, stmt); return;
    case STMT_STORE: emit_store(gen, stmt); return;
    case STMT_DECL: emit_decl(gen, stmt); return;
    case STMT_FOR: emit_for(gen, stmt); return;
    case STMT_WHILE: emit_while(gen, stmt); return;
    case STMT_IF: emit_if(gen, stmt); return;
    case STMT_BREAK: emit_break(gen); return;
    case STMT_BLOCK: emit_block(gen, &stmt->block); return;
    case STMT_GRID: emit_grid(gen, stmt); return;
    case STMT_ROLE: return;   // emit_block
    case STMT_THREAD: emit_thread(gen, stmt); return;
    case STMT_CALL: emit_call(gen, stmt); return;
    case STMT_ASSUME: facts_assume(gen->kernel.facts, stmt->assume, true); return;
    case STMT_LAUNCH: break;
    }
    fail_internal(gen->failure, __FILE__, __LINE__, "a launch inside a kernel");
}
