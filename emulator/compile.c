// Functions to code: what the emulator runs.
//
// The IR is a tree of shared expressions over variables that are found by pointer. Walking it again for every iteration
// would mean a lookup for every name, and a tree cannot be left in its middle, which a warp does at every barrier. So
// each function becomes, once per launch, a list of instructions over numbered slots (machine.h).
//
// Which values are narrow, that is equal in all lanes of a warp, is decided here: loop counters, block indices and all
// that is computed from them cost one operation instead of 32. A variable is *varying* (wide) when
//
//     it is the index of a thread region, or of a parallel loop's iterations, or what is read from memory,
//     or computed from something varying,
//     or assigned where only some lanes may run: deeper in divergent control flow than its declaration.
//
// The third rule refers to the others through conditions, so the analysis repeats until nothing changes. At block level
// (tile stage) and in references one lane runs and everything is narrow, until a parallel loop or a thread region
// begins.
//
//     thread (t in 64) {                    t wide
//         var n: i64 = 0;                   wide: assigned below in a divergent if
//         for (k in 4) {                    k narrow
//             let x = As[k, t];             wide; index slots: k narrow, t wide
//             if (x > 0) n += 1;            X_IF / X_ENDIF around an X_ASSIGN of the active lanes
//         }
//     }
//
// A reference's loop over independent iterations (each writes elements that carry its own indices, and nothing else
// that outlives it) runs as a parallel loop: 32 iterations at a time. This is what makes references fast.
#include "emulator/machine.h"
#include <string.h>

typedef struct Val {
    int slot;
    bool wide;
} Val;

typedef struct VarInfo {
    int slot, depth;
    bool varying, many;   // many: declared where all lanes run
} VarInfo;

typedef VEC(int) Patches;

typedef struct Join {   // where lanes that are off wait for the others
    struct Join *outer;
    Patches jumps;
} Join;

typedef struct Loop {
    struct Loop *outer;
    bool divergent;   // lanes leave one by one
    int masks;
    Patches exits;
    Join *join;
} Loop;

typedef struct Compiler {
    const Module *module;
    Arena *arena;
    Failure *failure;
    const Target *target;
    Code *code;
    VEC(Instr) instrs;
    VEC(Span) places;
    VEC(Word) consts;
    VEC(Mem) mems;
    Map *vars, *mem_of, *const_of;
    int next, masks, locals;
    bool many, in_thread, changed;
    int64_t first_thread;   // of the current role
    Loop *loop;
    Join *join;
    Span place;
} Compiler;

// ---- emitting ----
static int new_slot(Compiler *c) {
    int slot = c->next++;
    if (c->next > c->code->slots) c->code->slots = c->next;
    return slot;
}

static int new_masks(Compiler *c, int count) {
    int first = c->masks;
    c->masks += count;
    if (c->masks > c->code->masks) c->code->masks = c->masks;
    return first;
}

static Instr *emit(Compiler *c, InstrOp op, Type type, bool wide, int dst, int a, int b) {
    Instr in = {
        .op = (uint8_t)op, .type = (uint8_t)type, .wide = wide, .dst = dst, .a = a, .b = b, .c = -1, .target = -1};
    vec_push(c->arena, &c->instrs, in);
    vec_push(c->arena, &c->places, c->place);
    return &vec_last(&c->instrs);
}

static int here(const Compiler *c) {
    return c->instrs.count;
}

static void patch(Compiler *c, int at) {
    c->instrs.items[at].target = here(c);
}

static void patch_all(Compiler *c, const Patches *jumps) {
    for (int i = 0; i < jumps->count; i++) patch(c, jumps->items[i]);
}

static Val constant(Compiler *c, Word word) {
    const void *key = (const void *)(intptr_t)word.i;
    intptr_t found = (intptr_t)map_get(c->const_of, key);
    if (!found) {
        vec_push(c->arena, &c->consts, word);
        found = c->consts.count;
        map_put(c->const_of, key, (void *)found);
    }
    return (Val){(int)-found, false};
}

static Val constant_int(Compiler *c, int64_t value) {
    return constant(c, (Word){.i = value});
}

static int widen(Compiler *c, Val v) {
    if (v.wide || v.slot < 0) return v.slot;
    int slot = new_slot(c);
    emit(c, X_BROADCAST, TYPE_I64, true, slot, v.slot, -1);
    return slot;
}

static int fit(Compiler *c, Val v, bool wide) {
    return wide ? widen(c, v) : v.slot;
}

// ---- variables ----
static VarInfo *var_info(Compiler *c, const Var *var) {
    VarInfo *info = map_get(c->vars, var);
    if (!info) {
        info = NEW(c->arena, VarInfo);
        info->slot = -1;
        info->many = c->many;
        map_put(c->vars, var, info);
    }
    return info;
}

static int declare_var(Compiler *c, const Var *var) {
    VarInfo *info = var_info(c, var);
    info->slot = new_slot(c);
    return info->slot;
}

// ---- what varies ----
static bool varying(Compiler *c, const Expr *e) {
    switch (e->kind) {
    case EXPR_INT:
    case EXPR_FLOAT: return false;
    case EXPR_VAR: return var_info(c, e->var)->varying;
    case EXPR_LOAD: return true;
    case EXPR_UNARY: return varying(c, e->unary.a);
    case EXPR_BINARY: return varying(c, e->binary.a) || varying(c, e->binary.b);
    case EXPR_SELECT: return varying(c, e->select.condition) || varying(c, e->select.yes) || varying(c, e->select.no);
    case EXPR_CAST:
    case EXPR_BITCAST: return varying(c, e->operand);
    case EXPR_CALL:
        if (!op_is_pure(e->call.op)) return true;
        for (int i = 0; i < e->call.count; i++)
            if (e->call.args[i].value && varying(c, e->call.args[i].value)) return true;
        return false;
    }
    return true;
}

// Whether some lanes may break out of the loop while others stay.
static bool divergent_break(Compiler *c, const Block *block, bool under) {
    for (int i = 0; i < block->count; i++) {
        const Stmt *s = block->items[i];
        if (s->kind == STMT_BREAK && under) return true;
        if (s->kind == STMT_BLOCK && divergent_break(c, &s->block, under)) return true;
        if (s->kind != STMT_IF) continue;
        bool deeper = under || varying(c, s->if_.condition);
        if (divergent_break(c, &s->if_.then, deeper) || divergent_break(c, &s->if_.otherwise, deeper)) return true;
    }
    return false;
}

static bool has_break(const Block *block) {
    for (int i = 0; i < block->count; i++) {
        const Stmt *s = block->items[i];
        if (s->kind == STMT_BREAK) return true;
        if (s->kind == STMT_BLOCK && has_break(&s->block)) return true;
        if (s->kind == STMT_IF && (has_break(&s->if_.then) || has_break(&s->if_.otherwise))) return true;
    }
    return false;
}

static void mark_varying(Compiler *c, const Var *var) {
    VarInfo *info = var_info(c, var);
    if (info->varying || !info->many) return;
    info->varying = true;
    c->changed = true;
}

static void analyse_block(Compiler *c, const Block *block, int depth);

static void analyse_loop(Compiler *c, const Stmt *s, int depth) {
    for (int i = 0; i < s->loop.count; i++) {
        const Iter *iter = &s->loop.iters[i];
        var_info(c, iter->var)->depth = depth;
        if (!varying(c, iter->begin) && !varying(c, iter->end) && !varying(c, iter->step)) continue;
        mark_varying(c, iter->var);
        depth++;
    }
    analyse_block(c, &s->loop.body, depth + divergent_break(c, &s->loop.body, false));
}

static void analyse_stmt(Compiler *c, const Stmt *s, int depth) {
    switch (s->kind) {
    case STMT_LET:
    case STMT_VAR:
        var_info(c, s->let.var)->depth = depth;
        if (s->let.value && varying(c, s->let.value)) mark_varying(c, s->let.var);
        break;
    case STMT_ASSIGN:
        if (varying(c, s->let.value) || depth > var_info(c, s->let.var)->depth) mark_varying(c, s->let.var);
        break;
    case STMT_FOR: analyse_loop(c, s, depth); break;
    case STMT_WHILE: {
        bool diverges = varying(c, s->while_.condition) || divergent_break(c, &s->while_.body, false);
        analyse_block(c, &s->while_.body, depth + diverges);
        break;
    }
    case STMT_IF: {
        int inner = depth + varying(c, s->if_.condition);
        analyse_block(c, &s->if_.then, inner);
        analyse_block(c, &s->if_.otherwise, inner);
        break;
    }
    case STMT_BLOCK: analyse_block(c, &s->block, depth); break;
    default: break;
    }
}

static void analyse_block(Compiler *c, const Block *block, int depth) {
    for (int i = 0; i < block->count; i++) analyse_stmt(c, block->items[i], depth);
}

static void analyse_lanes(Compiler *c, const Block *body) {   // of a region that all lanes run
    do {
        c->changed = false;
        analyse_block(c, body, 0);
    } while (c->changed);
}

// ---- buffers ----
static const Buf *storage_root(const Buf *buf) {
    while (buf->alias_of) buf = buf->alias_of;
    return buf;
}

static int add_mem(Compiler *c, const Buf *buf) {
    Mem mem = {.buf = buf,
               .scope = buf->scope,
               .type = buf->type,
               .rank = buf->rank,
               .bytes = type_bytes(buf->type),
               .unit = 1,
               .local = -1,
               .offset = -1,
               .wide = c->many};
    mem.elements = 1;
    for (int d = buf->rank - 1; d >= 0; d--) {
        mem.shape[d] = buf_extent(buf, d);
        mem.stride[d] = mem.elements;
        mem.dynamic |= mem.shape[d] < 0;
        mem.elements *= mem.shape[d] < 0 ? 1 : mem.shape[d];
        mem.shape_slots[d] = -1;
    }
    if (buf->scope == SCOPE_LOCAL) mem.local = c->locals++;
    mem.written = buf->scope != SCOPE_GLOBAL || buf->is_scratch || buf->mode != MODE_IN || c->code->reference;
    vec_push(c->arena, &c->mems, mem);
    map_put(c->mem_of, buf, (void *)(intptr_t)c->mems.count);
    return c->mems.count - 1;
}

static int mem_index(Compiler *c, const Buf *buf) {
    intptr_t found = (intptr_t)map_get(c->mem_of, buf);
    return found ? (int)found - 1 : add_mem(c, buf);
}

// ---- expressions ----
static Val expr(Compiler *c, const Expr *e);
static Val call_expr(Compiler *c, const Expr *e);

static Type arithmetic_type(const Compiler *c, Type type) {
    return type_is_float(type) && c->code->reference ? TYPE_F64 : type_compute(type);
}

// Evaluating it where it is not needed has no effect and cannot fail.
static bool harmless(const Expr *e) {
    switch (e->kind) {
    case EXPR_INT:
    case EXPR_FLOAT:
    case EXPR_VAR: return true;
    case EXPR_LOAD: return false;
    case EXPR_UNARY: return harmless(e->unary.a);
    case EXPR_BINARY:
        if ((e->binary.op == BIN_DIV || e->binary.op == BIN_MOD) && !type_is_float(e->type) &&
            (e->binary.b->kind != EXPR_INT || e->binary.b->integer == 0))
            return false;
        return harmless(e->binary.a) && harmless(e->binary.b);
    case EXPR_SELECT: return harmless(e->select.condition) && harmless(e->select.yes) && harmless(e->select.no);
    case EXPR_CAST:
    case EXPR_BITCAST: return harmless(e->operand);
    case EXPR_CALL:
        if (!op_is_pure(e->call.op) || e->call.op == OP_CEILDIV || e->call.op == OP_ALIGNED) return false;
        for (int i = 0; i < e->call.count; i++)
            if (e->call.args[i].value && !harmless(e->call.args[i].value)) return false;
        return true;
    }
    return false;
}

// Reuses the operands' slots for the result: stack discipline keeps the register file small.
static Val result(Compiler *c, int mark, bool wide) {
    c->next = mark;
    return (Val){new_slot(c), wide};
}

static Val unary_instr(Compiler *c, InstrOp op, Type type, const Expr *operand) {
    int mark = c->next;
    Val a = expr(c, operand), out = result(c, mark, a.wide);
    emit(c, op, type, a.wide, out.slot, a.slot, -1);
    return out;
}

static Val binary_instr(Compiler *c, InstrOp op, Type type, const Expr *x, const Expr *y) {
    int mark = c->next;
    Val a = expr(c, x), b = expr(c, y);
    bool wide = a.wide || b.wide;
    int left = fit(c, a, wide), right = fit(c, b, wide);
    Val out = result(c, mark, wide);
    emit(c, op, type, wide, out.slot, left, right);
    return out;
}

// The masked or jumping half of a lazy expression: dst = value where `condition` (negated when asked) holds.
static void assign_where(Compiler *c, int dst, bool wide, Val condition, const Expr *value) {
    int mark = c->next;
    if (!condition.wide) {
        int jump = here(c);
        emit(c, X_JUMP_FALSE, TYPE_BOOL, false, -1, condition.slot, -1);
        Val v = expr(c, value);
        emit(c, X_MOVE, value->type, wide, dst, fit(c, v, wide), -1);
        patch(c, jump);
    } else {
        int masks = new_masks(c, 2), jump = here(c);
        emit(c, X_IF, TYPE_BOOL, true, -1, condition.slot, masks);
        Val v = expr(c, value);
        emit(c, X_ASSIGN, value->type, true, dst, widen(c, v), -1);
        patch(c, jump);
        emit(c, X_ENDIF, TYPE_BOOL, true, -1, -1, masks);
        c->masks = masks;
    }
    c->next = mark;
}

static Val negated(Compiler *c, Val v) {
    int slot = new_slot(c);
    emit(c, X_NOT, TYPE_BOOL, v.wide, slot, v.slot, -1);
    return (Val){slot, v.wide};
}

static Val logical_expr(Compiler *c, const Expr *e) {
    bool is_and = e->binary.op == BIN_LOGICAL_AND;
    if (harmless(e->binary.b)) return binary_instr(c, is_and ? X_AND : X_OR, TYPE_BOOL, e->binary.a, e->binary.b);
    bool wide = c->many && (varying(c, e->binary.a) || varying(c, e->binary.b));
    int dst = new_slot(c), mark = c->next;
    Val a = expr(c, e->binary.a);
    emit(c, X_MOVE, TYPE_BOOL, wide, dst, fit(c, a, wide), -1);
    assign_where(c, dst, wide, is_and ? a : negated(c, a), e->binary.b);
    c->next = mark;
    return (Val){dst, wide};
}

static Val select_expr(Compiler *c, const Expr *e) {
    int dst = new_slot(c), mark = c->next;
    Val condition = expr(c, e->select.condition);
    if (harmless(e->select.yes) && harmless(e->select.no)) {
        Val yes = expr(c, e->select.yes), no = expr(c, e->select.no);
        bool wide = condition.wide || yes.wide || no.wide;
        int a = fit(c, condition, wide), b = fit(c, yes, wide), third = fit(c, no, wide);
        emit(c, X_SELECT, e->type, wide, dst, a, b)->c = third;
        c->next = mark;
        return (Val){dst, wide};
    }
    bool wide = c->many && varying(c, e);
    assign_where(c, dst, wide, condition, e->select.yes);
    assign_where(c, dst, wide, negated(c, condition), e->select.no);
    c->next = mark;
    return (Val){dst, wide};
}

static Val binary_expr(Compiler *c, const Expr *e) {
    static const uint8_t ints[] = {X_ADD, X_SUB, X_MUL, X_DIV, X_MOD, X_AND, X_OR, X_XOR,
                                   X_SHL, X_SHR, X_EQ,  X_NE,  X_LT,  X_LE,  X_GT, X_GE};
    static const uint8_t floats[] = {X_FADD, X_FSUB, X_FMUL, X_FDIV, X_FMOD, 0,     0,     0,
                                     0,      0,      X_FEQ,  X_FNE,  X_FLT,  X_FLE, X_FGT, X_FGE};
    if (e->binary.op >= BIN_LOGICAL_AND) return logical_expr(c, e);
    Type type = e->binary.a->type;
    uint8_t op = type_is_float(type) ? floats[e->binary.op] : ints[e->binary.op];
    return binary_instr(c, (InstrOp)op, arithmetic_type(c, type), e->binary.a, e->binary.b);
}

static Val unary_expr(Compiler *c, const Expr *e) {
    InstrOp op = e->unary.op == UNARY_NOT ? X_NOT : e->unary.op == UNARY_BITNOT ? X_BITNOT : X_NEG;
    if (op == X_NEG && type_is_float(e->type)) op = X_FNEG;
    return unary_instr(c, op, arithmetic_type(c, e->type), e->unary.a);
}

// In a reference every tensor is f64 and only what the source converts itself is rounded: an implicit promotion of an
// element (to f32, for arithmetic) must not round it.
static bool cast_keeps(const Compiler *c, const Expr *e) {
    return c->code->reference && type_is_float(e->type) && type_is_float(e->operand->type) &&
           type_bits(e->type) >= type_bits(e->operand->type);
}

static Val cast_expr(Compiler *c, const Expr *e) {
    if (cast_keeps(c, e)) return expr(c, e->operand);
    Val out = unary_instr(c, e->kind == EXPR_CAST ? X_CAST : X_BITCAST, e->type, e->operand);
    vec_last(&c->instrs).b = (int)e->operand->type;
    return out;
}

// Where the slots of a fragment are, by its thread-value layout.
static const RegsCode *new_regs(Compiler *c, const Mem *mem) {
    RegsCode *regs = NEW(c->arena, RegsCode);
    const Layout *layout = mem->buf->layout;
    regs->known = layout && layout->rank_in == 2 && layout->rank_out == mem->rank;
    if (!regs->known) return regs;
    regs->threads = layout_extent_in(layout, 0);
    regs->values = layout_extent_in(layout, 1);
    int32_t *at = NEW_ARRAY(c->arena, int32_t, regs->threads * regs->values);
    for (int64_t v = 0; v < regs->values; v++)
        for (int64_t t = 0; t < regs->threads; t++) {
            int64_t in[2] = {t, v}, out[MAX_RANK], offset = 0;
            layout_eval(layout, in, out);
            for (int d = 0; d < mem->rank; d++)
                offset = offset < 0 || out[d] >= mem->shape[d] ? -1 : offset + out[d] * mem->stride[d];
            at[v * regs->threads + t] = (int32_t)offset;
        }
    regs->at = at;
    return regs;
}

static Place *new_place(Compiler *c, const Buf *buf, int count, Expr *const *indices) {
    Place *place = NEW(c->arena, Place);
    place->mem = mem_index(c, buf);
    place->rank = count;
    place->strict = c->code->reference || c->in_thread || buf->scope != SCOPE_GLOBAL;
    bool regs = buf->scope == SCOPE_FRAGMENT && c->in_thread;
    EXPECT(c->failure, count <= MAX_RANK && count == (regs ? 1 : buf->rank),
           "an access to '%s' of rank %d has %d indices", buf->name, buf->rank, count);
    for (int d = 0; d < count; d++) {
        Val v = expr(c, indices[d]);
        place->index[d] = v.slot;
        place->varying[d] = v.wide;
        place->any_varying |= v.wide;
    }
    if (regs) {   // one slot is another element in every thread
        place->regs = new_regs(c, &c->mems.items[place->mem]);
        place->any_varying = true;
    }
    return place;
}

static Val load_expr(Compiler *c, const Expr *e) {
    int mark = c->next;
    const Place *place = new_place(c, e->load.buf, e->load.count, e->load.indices);
    Val out = result(c, mark, c->many);
    InstrOp op = e->load.buf->scope == SCOPE_LOCAL ? X_LOCAL_LOAD : X_LOAD;
    emit(c, op, e->type, c->many, out.slot, -1, -1)->extra = place;
    return out;
}

static Val expr(Compiler *c, const Expr *e) {
    Span outer = c->place;
    if (e->loc.line) c->place = e->loc;
    Val out = {0, false};
    switch (e->kind) {
    case EXPR_INT: out = constant_int(c, e->integer); break;
    case EXPR_FLOAT: out = constant(c, (Word){.f = e->real}); break;
    case EXPR_VAR: {
        VarInfo *info = var_info(c, e->var);
        EXPECT(c->failure, info->slot >= 0, "'%s' is used before its declaration", e->var->name);
        out = (Val){info->slot, info->varying};
        break;
    }
    case EXPR_LOAD: out = load_expr(c, e); break;
    case EXPR_UNARY: out = unary_expr(c, e); break;
    case EXPR_BINARY: out = binary_expr(c, e); break;
    case EXPR_SELECT: out = select_expr(c, e); break;
    case EXPR_CAST:
    case EXPR_BITCAST: out = cast_expr(c, e); break;
    case EXPR_CALL: out = call_expr(c, e); break;
    }
    c->place = outer;
    return out;
}

// Computes e into a variable's slot: the last instruction's target is moved there when it made the value.
static void expr_to(Compiler *c, const Expr *e, int slot, bool wide) {
    int mark = c->next, before = here(c);
    Val v = expr(c, e);
    const Instr *last = here(c) > before ? &vec_last(&c->instrs) : NULL;
    bool fresh = last && v.slot >= mark && v.wide == wide && last->dst == v.slot && last->op != X_MOVE;
    if (fresh) vec_last(&c->instrs).dst = slot;   // X_MOVE: the last part of a lazy expression
    else emit(c, X_MOVE, e->type, wide, slot, fit(c, v, wide), -1);
    c->next = mark;
}

// ---- calls ----
static const Tile *new_tile(Compiler *c, const Region *region) {
    Tile *tile = NEW(c->arena, Tile);
    tile->mem = mem_index(c, region->buf);
    tile->count = region->count;
    tile->transposed = region->transposed;
    for (int d = 0; d < region->count; d++) {
        const RegionDim *dim = &region->dims[d];
        tile->dims[d].start = expr(c, dim->start).slot;
        tile->dims[d].dropped = !dim->extent;
        tile->dims[d].extent = dim->extent ? expr(c, dim->extent).slot : -1;
        tile->dims[d].tile = dim->extent ? dim->tile : 1;
    }
    return tile;
}

static const Place *region_place(Compiler *c, const Region *region) {
    Expr *starts[MAX_RANK];
    for (int d = 0; d < region->count && d < MAX_RANK; d++) starts[d] = region->dims[d].start;
    return new_place(c, region->buf, region->count, starts);
}

static bool takes_tiles(OpId op) {
    return op >= OP_COPY && op <= OP_AWAIT;
}

static CallArg compile_arg(Compiler *c, OpId op, const Arg *arg) {
    CallArg out = {.given = arg->value || arg->region || arg->name, .slot = -1, .type = TYPE_NONE, .name = arg->name};
    if (arg->value) {
        out.has_value = true;
        out.type = arg->value->type;
        out.constant = expr_const(arg->value, &out.number);
        out.slot = fit(c, expr(c, arg->value), c->many);
    }
    if (arg->region && op == OP_ALIGNED) out.number = mem_index(c, arg->region->buf);
    else if (arg->region && takes_tiles(op) && !c->many) out.tile = new_tile(c, arg->region);
    else if (arg->region) out.place = region_place(c, arg->region);
    return out;
}

static void poll_check(Compiler *c, OpId op, const Arg *args) {   // blocks that wait for others
    if (op == OP_LOAD && args[1].name && strcmp(args[1].name, "acquire") == 0) c->code->polls = true;
}

static Val emit_call(Compiler *c, OpId op, int count, const Arg *args, bool is_async, Type type) {
    int mark = c->next;
    Call *call = NEW(c->arena, Call);
    call->op = op;
    call->is_async = is_async;
    call->count = count;
    call->args = NEW_ARRAY(c->arena, CallArg, count + 1);
    poll_check(c, op, args);
    for (int i = 0; i < count; i++) call->args[i] = compile_arg(c, op, &args[i]);
    if (op == OP_MMA) {
        const MmaInfo *info = args[0].name ? mma_named(args[0].name) : NULL;
        EXPECT(c->failure, info, "unknown instruction '%s'", args[0].name ? args[0].name : "");
        call->mma = mma_compile(c->arena, c->failure, info);
    }
    Val out = result(c, mark, c->many);
    emit(c, X_CALL, type == TYPE_NONE ? TYPE_I64 : type, c->many, out.slot, -1, -1)->extra = call;
    return out;
}

static Val fma_expr(Compiler *c, const Expr *e) {
    int mark = c->next;
    Val v[3];
    bool wide = false;
    for (int i = 0; i < 3; i++) {
        v[i] = expr(c, e->call.args[i].value);
        wide |= v[i].wide;
    }
    int slots[3];
    for (int i = 0; i < 3; i++) slots[i] = fit(c, v[i], wide);
    Val out = result(c, mark, wide);
    emit(c, X_FMA, arithmetic_type(c, e->type), wide, out.slot, slots[0], slots[1])->c = slots[2];
    return out;
}

static Val call_expr(Compiler *c, const Expr *e) {
    OpId op = e->call.op;
    const Arg *args = e->call.args;
    bool floating = type_is_float(e->type);
    Type type = arithmetic_type(c, e->type);
    switch (op) {
    case OP_MIN: return binary_instr(c, floating ? X_FMIN : X_MIN, type, args[0].value, args[1].value);
    case OP_MAX: return binary_instr(c, floating ? X_FMAX : X_MAX, type, args[0].value, args[1].value);
    case OP_CEILDIV: return binary_instr(c, X_CEILDIV, type, args[0].value, args[1].value);
    case OP_ABS: return unary_instr(c, floating ? X_FABS : X_ABS, type, args[0].value);
    case OP_IEEE: return expr(c, args[0].value);
    case OP_FMA: return fma_expr(c, e);
    case OP_SMS: {
        int slot = new_slot(c);
        emit(c, X_SMS, TYPE_I64, false, slot, -1, -1);
        return (Val){slot, false};
    }
    case OP_ALIGNED: {
        int slot = new_slot(c);
        int64_t bytes = 1;
        expr_const(args[1].value, &bytes);
        int mem = mem_index(c, args[0].region->buf);
        emit(c, X_ALIGNED, TYPE_BOOL, false, slot, -1, -1);
        vec_last(&c->instrs).c = mem;
        vec_last(&c->instrs).target = (int)bytes;
        return (Val){slot, false};
    }
    default: break;
    }
    if (!op_is_pure(op)) return emit_call(c, op, e->call.count, args, false, e->type);
    Val out = unary_instr(c, X_MATH, type, args[0].value);
    vec_last(&c->instrs).c = (int)op;
    vec_last(&c->instrs).b = (int)args[0].value->type;
    return out;
}

// ---- statements ----
static void block(Compiler *c, const Block *body);

static void let_stmt(Compiler *c, const Stmt *s) {
    VarInfo *info = var_info(c, s->let.var);
    int slot = info->slot;
    if (s->kind != STMT_ASSIGN) {
        slot = declare_var(c, s->let.var);
        if (s->let.value) expr_to(c, s->let.value, slot, info->varying);
        else emit(c, X_MOVE, s->let.var->type, info->varying, slot, constant_int(c, 0).slot, -1);
        return;
    }
    EXPECT(c->failure, slot >= 0, "'%s' is assigned before its declaration", s->let.var->name);
    if (!info->varying && !c->many) {
        expr_to(c, s->let.value, slot, false);
        return;
    }
    int mark = c->next;
    Val v = expr(c, s->let.value);
    if (info->varying) emit(c, X_ASSIGN, s->let.var->type, true, slot, widen(c, v), -1);
    else emit(c, X_MOVE, s->let.var->type, false, slot, v.slot, -1);
    c->next = mark;
}

static void store_stmt(Compiler *c, const Stmt *s) {
    int mark = c->next;
    const Place *place = new_place(c, s->store.buf, s->store.count, s->store.indices);
    int value = fit(c, expr(c, s->store.value), c->many);
    InstrOp op = s->store.buf->scope == SCOPE_LOCAL ? X_LOCAL_STORE : X_STORE;
    emit(c, op, s->store.value->type, c->many, -1, value, -1)->extra = place;
    c->next = mark;
}

static void decl_stmt(Compiler *c, const Stmt *s) {
    int index = mem_index(c, s->decl);
    c->mems.items[index].wide = c->many;
    for (int d = 0; c->mems.items[index].dynamic && d < s->decl->rank; d++) {
        int slot = new_slot(c);
        expr_to(c, s->decl->shape[d], slot, false);
        c->mems.items[index].shape_slots[d] = slot;
    }
    bool own = s->decl->scope == SCOPE_LOCAL || !c->many;   // shared memory is the block's, not a warp's
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
    bool breaks = c->loop && c->loop->divergent && (has_break(&s->if_.then) || has_break(&s->if_.otherwise));
    int masks = new_masks(c, 2), slot = widen(c, condition), test = here(c);
    Join join;
    emit(c, X_IF, TYPE_BOOL, true, -1, slot, masks);
    push_join(c, &join);
    block(c, &s->if_.then);
    patch(c, test);
    pop_join(c, &join);
    if (s->if_.otherwise.count) {
        int other = here(c);
        emit(c, X_ELSE, TYPE_BOOL, true, -1, -1, masks);
        push_join(c, &join);
        block(c, &s->if_.otherwise);
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
    bool breaks = has_break(&s->if_.then) || has_break(&s->if_.otherwise);
    Val condition = expr(c, s->if_.condition);
    if (condition.wide || (breaks && c->loop && c->loop->divergent)) {
        masked_if(c, s, condition);
        c->next = mark;
        return;
    }
    int test = here(c);
    emit(c, X_JUMP_FALSE, TYPE_BOOL, false, -1, condition.slot, -1);
    block(c, &s->if_.then);
    if (s->if_.otherwise.count) {
        int over = here(c);
        emit(c, X_JUMP, TYPE_BOOL, false, -1, -1, -1);
        patch(c, test);
        block(c, &s->if_.otherwise);
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
    Val v = expr(c, e);
    if (e->kind != EXPR_VAR || e->var->kind != VAR_MUTABLE) return v;
    Val copy = {new_slot(c), v.wide};
    emit(c, X_MOVE, e->type, v.wide, copy.slot, v.slot, -1);
    return copy;
}

static void uniform_for(Compiler *c, const Stmt *s, int depth) {
    const Iter *iter = &s->loop.iters[depth];
    Loop loop;
    int var = declare_var(c, iter->var);
    expr_to(c, iter->begin, var, false);
    Val end = loop_bound(c, iter->end), step = loop_bound(c, iter->step);
    loop_push(c, &loop, false);
    int test = here(c);
    emit(c, X_FOR_TEST, TYPE_I64, false, -1, var, end.slot);
    int body = here(c);
    for_iters(c, s, depth + 1);
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
    expr_to(c, iter->begin, var, wide);
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
    emit(c, X_ADD, TYPE_I64, wide, var, var, by);
    emit(c, X_LOOP_NEXT, TYPE_BOOL, true, -1, -1, loop.masks)->target = head;
    patch(c, test);
    emit(c, X_LOOP_EXIT, TYPE_BOOL, true, -1, -1, loop.masks);
    loop_pop(c, &loop);
}

static void for_iters(Compiler *c, const Stmt *s, int depth) {
    if (depth == s->loop.count) {
        block(c, &s->loop.body);
        return;
    }
    int mark = c->next;
    bool wide = c->many && var_info(c, s->loop.iters[depth].var)->varying;
    bool innermost = depth + 1 == s->loop.count;
    if (wide || (c->many && innermost && divergent_break(c, &s->loop.body, false))) divergent_for(c, s, depth);
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
        code->iters[i].begin = expr(c, iter->begin).slot;
        code->iters[i].end = expr(c, iter->end).slot;
        code->iters[i].step = expr(c, iter->step).slot;
    }
    c->many = true;
    for (int i = 0; i < s->loop.count; i++) {
        var_info(c, s->loop.iters[i].var)->varying = true;
        code->iters[i].var = declare_var(c, s->loop.iters[i].var);
    }
    analyse_lanes(c, &s->loop.body);
    int start = here(c);
    emit(c, X_PARALLEL, TYPE_I64, true, -1, -1, -1)->extra = code;
    int body = here(c);
    block(c, &s->loop.body);
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
    bool divergent = c->many && (varying(c, s->while_.condition) || divergent_break(c, &s->while_.body, false));
    Loop loop;
    Join join;
    int mark = c->next;
    loop_push(c, &loop, divergent);
    if (divergent) emit(c, X_LOOP, TYPE_BOOL, true, -1, -1, loop.masks);
    int head = here(c);
    Val condition = expr(c, s->while_.condition);
    int slot = fit(c, condition, divergent), test = here(c);
    emit(c, divergent ? X_LOOP_TEST : X_JUMP_FALSE, TYPE_BOOL, divergent, -1, slot, divergent ? loop.masks : -1);
    c->next = mark;
    if (divergent) push_join(c, &join);
    block(c, &s->while_.body);
    if (divergent) pop_join(c, &join);
    emit(c, divergent ? X_LOOP_NEXT : X_JUMP, TYPE_BOOL, divergent, -1, -1, divergent ? loop.masks : -1)->target = head;
    patch(c, test);
    patch_all(c, &loop.exits);
    if (divergent) emit(c, X_LOOP_EXIT, TYPE_BOOL, true, -1, -1, loop.masks);
    loop_pop(c, &loop);
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
    analyse_lanes(c, &s->thread.body);
    int start = here(c);
    emit(c, X_SPAWN, TYPE_I64, false, -1, -1, -1)->extra = spawn;
    block(c, &s->thread.body);
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
        block(c, &s->role.body);
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
        expr_to(c, s->grid.iters[i].end, grid->extents[i], false);
    }
    grid->slots = c->next;
    emit(c, X_GRID, TYPE_I64, false, -1, -1, -1);
    grid->body = here(c);
    block(c, &s->grid.body);
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
            code->args[i].number = mem_index(c, arg->region->buf);
        } else {
            code->args[i].has_value = true;
            code->args[i].type = arg->value->type;
            code->args[i].slot = expr(c, arg->value).slot;
        }
    }
    emit(c, X_LAUNCH, TYPE_I64, false, -1, -1, -1)->extra = code;
    c->next = mark;
}

static void assume_stmt(Compiler *c, const Stmt *s) {
    int mark = c->next;
    Val v = expr(c, s->assume);
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
    case STMT_BLOCK: block(c, &s->block); break;
    case STMT_GRID: grid_stmt(c, s); break;
    case STMT_ROLE: break;   // role_stmts
    case STMT_THREAD: thread_stmt(c, s); break;
    case STMT_CALL: {
        int mark = c->next;
        emit_call(c, s->call.op, s->call.count, s->call.args, s->call.is_async, TYPE_NONE);
        c->next = mark;
        break;
    }
    case STMT_LAUNCH: launch_stmt(c, s); break;
    case STMT_ASSUME: assume_stmt(c, s); break;
    }
}

static void block(Compiler *c, const Block *body) {
    int mark = c->next;
    for (int i = 0; i < body->count; i++) {
        if (body->items[i]->kind == STMT_ROLE) i += role_stmts(c, body, i) - 1;
        else stmt(c, body->items[i]);
    }
    c->next = mark;
}

// ---- storage: places of shared buffers and fragments in the block's memory ----
static int64_t round_up(int64_t value, int64_t to) {
    return (value + to - 1) / to * to;
}

// At thread stage a shared buffer that still has a layout is accessed by logical indices: element -> physical element.
static const int32_t *physical_table(Compiler *c, Mem *mem) {
    const Buf *buf = mem->buf;
    if (!buf->layout || buf->lowered || mem->rank - buf->stage_dims != buf->layout->rank_in) return NULL;
    int64_t tile = layout_size_in(buf->layout), image = layout_size_out(buf->layout), stages = mem->elements / tile;
    if (stages * tile != mem->elements) return NULL;
    int32_t *table = NEW_ARRAY(c->arena, int32_t, mem->elements);
    for (int64_t n = 0; n < mem->elements; n++) {
        int64_t in[MAX_RANK], rest = n % tile;
        for (int d = mem->rank - 1, k = buf->layout->rank_in - 1; k >= 0; d--, k--) {
            in[k] = rest % mem->shape[d];
            rest /= mem->shape[d];
        }
        table[n] = (int32_t)(n / tile * image + layout_linear(buf->layout, in));
    }
    return table;
}

static int64_t storage_bytes(const Mem *mem) {
    const Buf *buf = mem->buf;
    if (!buf->layout || buf->lowered) return mem->elements * mem->bytes;
    int64_t tile = layout_size_in(buf->layout), image = layout_size_out(buf->layout);
    int64_t stages = tile ? (mem->elements + tile - 1) / tile : 1;
    return (image > tile ? image : tile) * stages * mem->bytes;
}

static void place_shared(Compiler *c, bool allocated) {
    int64_t top = 0;
    for (int pass = 0; pass < 3; pass++) {   // what has an offset; what has none; aliases
        for (int i = 0; i < c->mems.count; i++) {
            Mem *mem = &c->mems.items[i];
            if (mem->scope != SCOPE_SHARED || mem->offset >= 0) continue;
            bool alias = mem->buf->alias_of && !(allocated && mem->buf->offset >= 0);
            if (pass == 0 && allocated && mem->buf->offset >= 0) mem->offset = mem->buf->offset;
            else if (pass == 1 && !alias) mem->offset = round_up(top, 1024);
            else if (pass == 2) mem->offset = c->mems.items[mem_index(c, storage_root(mem->buf))].offset;
            if (mem->offset >= 0 && mem->offset + storage_bytes(mem) > top) top = mem->offset + storage_bytes(mem);
        }
    }
    c->code->shared_bytes = round_up(top, 16);
}

static void place_fragments(Compiler *c) {
    int64_t bytes = 0, elements = 0;
    for (int i = 0; i < c->mems.count; i++) {
        Mem *mem = &c->mems.items[i];
        if (mem->scope != SCOPE_FRAGMENT) continue;
        mem->offset = bytes;
        mem->first_state = elements;
        bytes += round_up(mem->elements * mem->bytes, 16);
        elements += mem->elements;
    }
    c->code->fragment_bytes = bytes;
    c->code->fragment_elements = elements;
}

static void place_storage(Compiler *c) {
    for (int i = 0; i < c->mems.count; i++)   // roots of aliases that nothing names
        if (c->mems.items[i].buf->alias_of) mem_index(c, storage_root(c->mems.items[i].buf));
    place_shared(c, c->code->func->stage == STAGE_THREAD);
    place_fragments(c);
    int granule = 8;
    for (int i = 0; i < c->mems.count; i++) {
        const Mem *mem = &c->mems.items[i];
        while (mem->scope == SCOPE_SHARED && (mem->bytes % granule || mem->offset % granule)) granule /= 2;
    }
    c->code->granule = granule;
    for (int i = 0; i < c->mems.count; i++) {
        Mem *mem = &c->mems.items[i];
        if (mem->scope != SCOPE_SHARED) continue;
        mem->unit = mem->bytes / granule;
        if (c->code->func->stage == STAGE_THREAD) mem->table = physical_table(c, mem);
    }
}

// ---- functions ----
static Compiler *compiler_new(const Module *module, const Func *func, const Target *target, Arena *arena) {
    Compiler *c = NEW(arena, Compiler);
    *c = (Compiler){.module = module,
                    .arena = arena,
                    .failure = module->failure,
                    .target = target,
                    .vars = map_new(arena),
                    .mem_of = map_new(arena),
                    .const_of = map_new(arena)};
    c->code = NEW(arena, Code);
    c->code->func = func;
    c->code->reference = func->kind == FUNC_REFERENCE;
    c->code->slot_of = map_new(arena);
    c->code->granule = 8;
    constant_int(c, 0);
    for (int i = 0; i < func->params.count; i++) {
        const Param *param = &func->params.items[i];
        if (param->buf) mem_index(c, param->buf);
        else map_put(c->code->slot_of, param->var, (void *)(intptr_t)(declare_var(c, param->var) + 1));
    }
    for (int i = 0; i < func->dims.count; i++) {
        const Var *dim = func->dims.items[i];
        map_put(c->code->slot_of, dim, (void *)(intptr_t)(declare_var(c, dim) + 1));
    }
    return c;
}

static Code *finish(Compiler *c) {
    emit(c, X_END, TYPE_I64, false, -1, -1, -1);
    place_storage(c);
    Code *code = c->code;
    code->instrs = c->instrs.items;
    code->places = c->places.items;
    code->count = c->instrs.count;
    code->consts = c->consts.items;
    code->const_count = c->consts.count;
    code->mems = c->mems.items;
    code->mem_count = c->mems.count;
    code->mem_of = c->mem_of;
    code->local_count = c->locals;
    return code;
}

Code *compile_func(const Module *module, const Func *func, const Target *target, Arena *arena) {
    Compiler *c = compiler_new(module, func, target, arena);
    c->place = func->loc;
    block(c, &func->body);
    return finish(c);
}

Code *compile_expr(const Module *module, const Func *func, const Expr *e, Arena *arena) {
    Compiler *c = compiler_new(module, func, NULL, arena);
    c->place = func->loc;
    c->code->result = new_slot(c);
    expr_to(c, e, c->code->result, false);
    return finish(c);
}
