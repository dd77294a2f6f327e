// Statements to instructions: branches by jumps where all lanes agree, by masks where they may not.
#include "emulator/compile.h"

static void let_stmt(Compiler *c, const Stmt *s) {
    VarInfo *info = var_info(c, s->let.var);
    int slot = info->slot;
    if (s->kind != STMT_ASSIGN) {
        slot = declare_var(c, s->let.var);
        if (s->let.value) compile_value_to(c, s->let.value, slot, info->varying);
        else emit(c, X_MOVE, s->let.var->type, info->varying, slot, constant_int(c, 0).slot, -1);
        return;
    }
    EXPECT(c->failure, slot >= 0, "'%s' is assigned before its declaration", s->let.var->name);
    if (!info->varying && !c->many) {
        compile_value_to(c, s->let.value, slot, false);
        return;
    }
    int mark = c->next;
    Val v = compile_value(c, s->let.value);
    if (info->varying) emit(c, X_ASSIGN, s->let.var->type, true, slot, to_wide(c, v), -1);
    else emit(c, X_MOVE, s->let.var->type, false, slot, v.slot, -1);
    c->next = mark;
}

static void store_stmt(Compiler *c, const Stmt *s) {
    int mark = c->next;
    const Place *place = compile_place(c, s->store.buf, s->store.count, s->store.indices);
    int value = fit(c, compile_value(c, s->store.value), c->many);
    InstrOp op = s->store.buf->scope == SCOPE_LOCAL ? X_LOCAL_STORE : X_STORE;
    emit(c, op, s->store.value->type, c->many, -1, value, -1)->extra = place;
    c->next = mark;
}

static void decl_stmt(Compiler *c, const Stmt *s) {
    int index = compile_mem(c, s->decl);
    c->mems.items[index].wide = c->many;
    for (int d = 0; c->mems.items[index].dynamic && d < s->decl->rank; d++) {
        int slot = new_slot(c);
        compile_value_to(c, s->decl->shape[d], slot, false);
        c->mems.items[index].shape_slots[d] = slot;
    }
    bool own = s->decl->scope == SCOPE_LOCAL || !c->many;   // shared memory is the CTA's, not a warp's
    if (own) emit(c, X_DECLARE, TYPE_I64, c->many, -1, -1, -1)->c = index;
}

static void push_join(Compiler *c, Join *join) {
    *join = (Join){.outer = c->join};
    c->join = join;
}

static void pop_join(Compiler *c, Join *join) {   // what waited goes on here
    patch_all(c, &join->jumps);
    c->join = join->outer;
}

static void masked_if(Compiler *c, const Stmt *s, Val condition) {
    bool breaks =
        c->loop && c->loop->divergent && (compile_has_break(&s->if_.then) || compile_has_break(&s->if_.otherwise));
    int masks = new_masks(c, 2), slot = to_wide(c, condition), test = here(c);
    Join join;
    emit(c, X_IF, TYPE_BOOL, true, -1, slot, masks);
    push_join(c, &join);
    compile_block(c, &s->if_.then);
    patch(c, test);
    pop_join(c, &join);
    if (s->if_.otherwise.count) {
        int other = here(c);
        emit(c, X_ELSE, TYPE_BOOL, true, -1, -1, masks);
        push_join(c, &join);
        compile_block(c, &s->if_.otherwise);
        patch(c, other);
        pop_join(c, &join);
    }
    if (breaks) vec_push(c->arena, &c->join->jumps, here(c));
    Instr *end = emit(c, X_ENDIF, TYPE_BOOL, true, -1, -1, masks);
    if (breaks) end->c = c->loop->masks + 1;
    c->masks = masks;
}

static void if_stmt(Compiler *c, const Stmt *s) {
    int mark = c->next;
    bool breaks = compile_has_break(&s->if_.then) || compile_has_break(&s->if_.otherwise);
    Val condition = compile_value(c, s->if_.condition);
    if (condition.wide || (breaks && c->loop && c->loop->divergent)) {
        masked_if(c, s, condition);
        c->next = mark;
        return;
    }
    int test = here(c);
    emit(c, X_JUMP_FALSE, TYPE_BOOL, false, -1, condition.slot, -1);
    compile_block(c, &s->if_.then);
    if (s->if_.otherwise.count) {
        int over = here(c);
        emit(c, X_JUMP, TYPE_BOOL, false, -1, -1, -1);
        patch(c, test);
        compile_block(c, &s->if_.otherwise);
        patch(c, over);
    } else {
        patch(c, test);
    }
    c->next = mark;
}

static void loop_push(Compiler *c, Loop *loop, bool divergent) {
    *loop = (Loop){.outer = c->loop, .divergent = divergent};
    if (divergent) loop->masks = new_masks(c, 3);
    c->loop = loop;
}

static void loop_pop(Compiler *c, Loop *loop) {
    if (loop->divergent) c->masks = loop->masks;
    c->loop = loop->outer;
}

static void break_stmt(Compiler *c) {
    Loop *loop = c->loop;
    EXPECT(c->failure, loop, "a break outside of a loop");
    if (!loop->divergent) {
        vec_push(c->arena, &loop->exits, here(c));
        emit(c, X_JUMP, TYPE_BOOL, false, -1, -1, -1);
        return;
    }
    vec_push(c->arena, &c->join->jumps, here(c));
    emit(c, X_BREAK, TYPE_BOOL, true, -1, -1, loop->masks);
}

static void for_iters(Compiler *c, const Stmt *s, int depth);

static Val loop_bound(Compiler *c, const Expr *e) {   // kept apart from a variable that the body may change
    Val v = compile_value(c, e);
    if (e->kind != EXPR_VAR || e->var->kind != VAR_MUTABLE) return v;
    Val copy = {new_slot(c), v.wide};
    emit(c, X_MOVE, e->type, v.wide, copy.slot, v.slot, -1);
    return copy;
}

static void uniform_for(Compiler *c, const Stmt *s, int depth) {
    const Iter *iter = &s->loop.iters[depth];
    Loop loop;
    int var = declare_var(c, iter->var);
    compile_value_to(c, iter->begin, var, false);
    Val end = loop_bound(c, iter->end), step = loop_bound(c, iter->step);
    loop_push(c, &loop, false);
    int test = here(c);
    emit(c, X_FOR_TEST, TYPE_I64, false, -1, var, end.slot);
    int body = here(c);
    for_iters(c, s, depth + 1);
    c->place = s->loc;
    emit(c, X_FOR_NEXT, TYPE_I64, false, var, step.slot, end.slot)->target = body;
    patch(c, test);
    patch_all(c, &loop.exits);
    loop_pop(c, &loop);
}

// A loop that lanes leave one by one: test and step as in a while loop.
static void divergent_for(Compiler *c, const Stmt *s, int depth) {
    const Iter *iter = &s->loop.iters[depth];
    bool wide = var_info(c, iter->var)->varying;
    Loop loop;
    Join join;
    int var = declare_var(c, iter->var);
    compile_value_to(c, iter->begin, var, wide);
    Val end = loop_bound(c, iter->end), step = loop_bound(c, iter->step), index = {var, wide};
    int last = fit(c, end, wide), by = fit(c, step, wide), more = new_slot(c);
    loop_push(c, &loop, true);
    emit(c, X_LOOP, TYPE_BOOL, true, -1, -1, loop.masks);
    int head = here(c);
    emit(c, X_LT, TYPE_I64, wide, more, index.slot, last);
    if (!wide) emit(c, X_BROADCAST, TYPE_BOOL, true, more, more, -1);
    int test = here(c);
    emit(c, X_LOOP_TEST, TYPE_BOOL, true, -1, more, loop.masks);
    push_join(c, &join);
    for_iters(c, s, depth + 1);
    pop_join(c, &join);
    c->place = s->loc;
    emit(c, X_STEP, TYPE_I64, wide, var, var, by);
    emit(c, X_LOOP_NEXT, TYPE_BOOL, true, -1, -1, loop.masks)->target = head;
    patch(c, test);
    emit(c, X_LOOP_EXIT, TYPE_BOOL, true, -1, -1, loop.masks);
    loop_pop(c, &loop);
}

static void for_iters(Compiler *c, const Stmt *s, int depth) {
    if (depth == s->loop.count) {
        compile_block(c, &s->loop.body);
        return;
    }
    int mark = c->next;
    bool wide = c->many && var_info(c, s->loop.iters[depth].var)->varying;
    bool innermost = depth + 1 == s->loop.count;
    if (wide || (c->many && innermost && compile_divergent_break(c, &s->loop.body, false))) divergent_for(c, s, depth);
    else uniform_for(c, s, depth);
    c->next = mark;
}

static void parallel_for(Compiler *c, const Stmt *s, bool checked) {
    int mark = c->next;
    ParallelCode *code = NEW(c->arena, ParallelCode);
    code->count = s->loop.count;
    code->state = c->code->parallel_count++;
    code->checked = checked;
    EXPECT(c->failure, code->count <= MAX_RANK, "a parallel loop over %d indices", code->count);
    for (int i = 0; i < s->loop.count; i++) {
        const Iter *iter = &s->loop.iters[i];
        code->iters[i].begin = compile_value(c, iter->begin).slot;
        code->iters[i].end = compile_value(c, iter->end).slot;
        code->iters[i].step = compile_value(c, iter->step).slot;
    }
    c->many = true;
    for (int i = 0; i < s->loop.count; i++) {
        var_info(c, s->loop.iters[i].var)->varying = true;
        code->iters[i].var = declare_var(c, s->loop.iters[i].var);
    }
    compile_analyse(c, &s->loop.body);
    int start = here(c);
    emit(c, X_PARALLEL, TYPE_I64, true, -1, -1, -1)->extra = code;
    int body = here(c);
    compile_block(c, &s->loop.body);
    c->place = s->loc;
    Instr *next = emit(c, X_PARALLEL_NEXT, TYPE_I64, true, -1, -1, -1);
    next->target = body;
    next->extra = code;
    patch(c, start);
    c->many = false;
    c->next = mark;
}

static void for_stmt(Compiler *c, const Stmt *s) {
    bool parallel = s->loop.kind == LOOP_PARALLEL;
    if (!c->many && parallel) parallel_for(c, s, true);
    else if (!c->many && c->code->reference && loop_independent(s)) parallel_for(c, s, false);
    else for_iters(c, s, 0);
}

static void while_stmt(Compiler *c, const Stmt *s) {
    bool divergent =
        c->many && (compile_varies(c, s->while_.condition) || compile_divergent_break(c, &s->while_.body, false));
    Loop loop;
    Join join;
    int mark = c->next;
    c->whiles++;
    loop_push(c, &loop, divergent);
    if (divergent) emit(c, X_LOOP, TYPE_BOOL, true, -1, -1, loop.masks);
    int head = here(c);
    Val condition = compile_value(c, s->while_.condition);
    int slot = fit(c, condition, divergent), test = here(c);
    emit(c, divergent ? X_LOOP_TEST : X_JUMP_FALSE, TYPE_BOOL, divergent, -1, slot, divergent ? loop.masks : -1);
    c->next = mark;
    if (divergent) push_join(c, &join);
    compile_block(c, &s->while_.body);
    if (divergent) pop_join(c, &join);
    c->place = s->loc;
    emit(c, divergent ? X_LOOP_NEXT : X_JUMP, TYPE_BOOL, divergent, -1, -1, divergent ? loop.masks : -1)->target = head;
    patch(c, test);
    patch_all(c, &loop.exits);
    if (divergent) emit(c, X_LOOP_EXIT, TYPE_BOOL, true, -1, -1, loop.masks);
    loop_pop(c, &loop);
    c->whiles--;
}

static void thread_stmt(Compiler *c, const Stmt *s) {
    EXPECT(c->failure, !c->many, "a thread region inside another");
    SpawnCode *spawn = NEW(c->arena, SpawnCode);
    spawn->count = s->thread.count;
    spawn->threads = 1;
    int mark = c->next;
    c->many = c->in_thread = true;
    for (int i = 0; i < s->thread.count; i++) {
        const Iter *iter = &s->thread.iters[i];
        int64_t extent = 0;
        EXPECT(c->failure, expr_const(iter->end, &extent) && extent > 0, "a thread region without a constant extent");
        spawn->extents[i] = extent;
        spawn->threads *= extent;
        spawn->vars[i] = declare_var(c, iter->var);
        var_info(c, iter->var)->varying = true;
    }
    spawn->slots = mark;
    if (c->first_thread + spawn->threads > c->code->block_threads)
        c->code->block_threads = c->first_thread + spawn->threads;
    c->code->threads = true;
    compile_analyse(c, &s->thread.body);
    int start = here(c);
    emit(c, X_SPAWN, TYPE_I64, false, -1, -1, -1)->extra = spawn;
    compile_block(c, &s->thread.body);
    emit(c, X_END, TYPE_I64, false, -1, -1, -1);
    patch(c, start);
    c->many = c->in_thread = false;
    c->next = mark;
}

static int64_t round_to_warp(int64_t threads) {
    return (threads + LANES - 1) / LANES * LANES;
}

// Roles that stand side by side run at the same time, on consecutive warps.
static int role_stmts(Compiler *c, const Block *body, int at) {
    int count = 0;
    while (at + count < body->count && body->items[at + count]->kind == STMT_ROLE) count++;
    ForkCode *fork = NEW(c->arena, ForkCode);
    fork->count = count;
    fork->block = body;
    fork->roles = NEW_ARRAY(c->arena, RoleCode, count);
    int start = here(c);
    emit(c, X_FORK, TYPE_I64, false, -1, -1, -1)->extra = fork;
    int64_t first = 0;
    for (int i = 0; i < count; i++) {
        const Stmt *s = body->items[at + i];
        int barrier = NAMED_BARRIERS + c->code->role_count++;
        fork->roles[i] = (RoleCode){s->role.name, s->role.threads, first, here(c), c->next, barrier};
        c->first_thread = first;
        first += round_to_warp(s->role.threads);
        if (first > c->code->block_threads) c->code->block_threads = first;
        compile_block(c, &s->role.body);
        emit(c, X_END, TYPE_I64, false, -1, -1, -1);
    }
    c->first_thread = 0;
    patch(c, start);
    return count;
}

static void grid_stmt(Compiler *c, const Stmt *s) {
    GridCode *grid = &c->code->grid;
    EXPECT(c->failure, s->grid.count <= MAX_RANK, "a grid of %d dims", s->grid.count);
    grid->found = true;
    grid->count = s->grid.count;
    expr_const(s->grid.threads, &grid->threads);
    if (grid->threads > c->code->block_threads && c->code->func->stage == STAGE_TILE)
        c->code->block_threads = grid->threads;
    for (int i = 0; i < s->grid.count; i++) {
        grid->vars[i] = declare_var(c, s->grid.iters[i].var);
        grid->extents[i] = new_slot(c);
        compile_value_to(c, s->grid.iters[i].end, grid->extents[i], false);
    }
    grid->slots = c->next;
    emit(c, X_GRID, TYPE_I64, false, -1, -1, -1);
    grid->body = here(c);
    compile_block(c, &s->grid.body);
    emit(c, X_END, TYPE_I64, false, -1, -1, -1);
}

static void launch_stmt(Compiler *c, const Stmt *s) {
    int mark = c->next;
    LaunchCode *code = NEW(c->arena, LaunchCode);
    code->callee = s->launch.callee;
    code->count = s->launch.count;
    code->args = NEW_ARRAY(c->arena, CallArg, s->launch.count + 1);
    for (int i = 0; i < s->launch.count; i++) {
        const Arg *arg = &s->launch.args[i];
        code->args[i] = (CallArg){.given = true, .slot = -1, .name = arg->name};
        if (arg->region) {
            code->args[i].number = compile_mem(c, arg->region->buf);
        } else {
            code->args[i].has_value = true;
            code->args[i].type = arg->value->type;
            code->args[i].slot = compile_value(c, arg->value).slot;
        }
    }
    emit(c, X_LAUNCH, TYPE_I64, false, -1, -1, -1)->extra = code;
    c->next = mark;
}

static void assume_stmt(Compiler *c, const Stmt *s) {
    int mark = c->next;
    Val v = compile_value(c, s->assume);
    emit(c, X_ASSUME, TYPE_BOOL, v.wide, -1, v.slot, -1);
    c->next = mark;
}

static void stmt(Compiler *c, const Stmt *s) {
    if (s->loc.line) c->place = s->loc;
    switch (s->kind) {
    case STMT_LET:
    case STMT_VAR:
    case STMT_ASSIGN: let_stmt(c, s); break;
    case STMT_STORE: store_stmt(c, s); break;
    case STMT_DECL: decl_stmt(c, s); break;
    case STMT_FOR: for_stmt(c, s); break;
    case STMT_WHILE: while_stmt(c, s); break;
    case STMT_IF: if_stmt(c, s); break;
    case STMT_BREAK: break_stmt(c); break;
    case STMT_BLOCK: compile_block(c, &s->block); break;
    case STMT_GRID: grid_stmt(c, s); break;
    case STMT_ROLE: break;   // role_stmts
    case STMT_THREAD: thread_stmt(c, s); break;
    case STMT_CALL: {
        int mark = c->next;
        compile_call(c, s->call.op, s->call.count, s->call.args, s->call.is_async, TYPE_NONE);
        c->next = mark;
        break;
    }
    case STMT_LAUNCH: launch_stmt(c, s); break;
    case STMT_ASSUME: assume_stmt(c, s); break;
    }
}

void compile_block(Compiler *c, const Block *body) {
    int mark = c->next;
    for (int i = 0; i < body->count; i++) {
        if (body->items[i]->kind == STMT_ROLE) i += role_stmts(c, body, i) - 1;
        else stmt(c, body->items[i]);
    }
    c->next = mark;
}
