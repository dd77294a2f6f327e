// Expressions and calls to instructions.
#include "emulator/approximate.h"
#include "emulator/compile.h"
#include <string.h>

// ---- expressions ----
static Val ieee_expr(Compiler *c, const Expr *e) {
    bool outer = c->exact;
    c->exact = true;
    Val out = compile_value(c, e);
    c->exact = outer;
    return out;
}

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
    Val a = compile_value(c, operand), out = result(c, mark, a.wide);
    emit(c, op, type, a.wide, out.slot, a.slot, -1);
    return out;
}

static Val binary_instr(Compiler *c, InstrOp op, Type type, const Expr *x, const Expr *y) {
    int mark = c->next;
    Val a = compile_value(c, x), b = compile_value(c, y);
    bool wide = a.wide || b.wide;
    int left = fit(c, a, wide), right = fit(c, b, wide);
    Val out = result(c, mark, wide);
    emit(c, op, type, wide, out.slot, left, right);
    return out;
}

// The masked or jumping half of a lazy expression: dst = value where `condition` (or its negation) holds.
static void assign_where(Compiler *c, int dst, bool wide, Val condition, const Expr *value) {
    int mark = c->next;
    if (!condition.wide) {
        int jump = here(c);
        emit(c, X_JUMP_FALSE, TYPE_BOOL, false, -1, condition.slot, -1);
        Val v = compile_value(c, value);
        emit(c, X_MOVE, value->type, wide, dst, fit(c, v, wide), -1);
        patch(c, jump);
    } else {
        int masks = new_masks(c, 2), jump = here(c);
        emit(c, X_IF, TYPE_BOOL, true, -1, condition.slot, masks);
        Val v = compile_value(c, value);
        emit(c, X_ASSIGN, value->type, true, dst, to_wide(c, v), -1);
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
    bool wide = c->many && (compile_varies(c, e->binary.a) || compile_varies(c, e->binary.b));
    int dst = new_slot(c), mark = c->next;
    Val a = compile_value(c, e->binary.a);
    emit(c, X_MOVE, TYPE_BOOL, wide, dst, fit(c, a, wide), -1);
    assign_where(c, dst, wide, is_and ? a : negated(c, a), e->binary.b);
    c->next = mark;
    return (Val){dst, wide};
}

static Val select_expr(Compiler *c, const Expr *e) {
    int dst = new_slot(c), mark = c->next;
    Val condition = compile_value(c, e->select.condition);
    if (harmless(e->select.yes) && harmless(e->select.no)) {
        Val yes = compile_value(c, e->select.yes), no = compile_value(c, e->select.no);
        bool wide = condition.wide || yes.wide || no.wide;
        int a = fit(c, condition, wide), b = fit(c, yes, wide), third = fit(c, no, wide);
        emit(c, X_SELECT, e->type, wide, dst, a, b)->c = third;
        c->next = mark;
        return (Val){dst, wide};
    }
    bool wide = c->many && compile_varies(c, e);
    assign_where(c, dst, wide, condition, e->select.yes);
    assign_where(c, dst, wide, negated(c, condition), e->select.no);
    c->next = mark;
    return (Val){dst, wide};
}

// Lowered kernels compute f32 by the machine's approximations.
static bool is_approximate(const Compiler *c, Type type) {
    return type != TYPE_F64 && !c->exact && !c->code->reference && c->code->func->stage == STAGE_THREAD;
}

static Val binary_expr(Compiler *c, const Expr *e) {
    static const uint8_t ints[] = {X_ADD, X_SUB, X_MUL, X_DIV, X_MOD, X_AND, X_OR, X_XOR,
                                   X_SHL, X_SHR, X_EQ,  X_NE,  X_LT,  X_LE,  X_GT, X_GE};
    static const uint8_t floats[] = {X_FADD, X_FSUB, X_FMUL, X_FDIV, X_FMOD, 0,     0,     0,
                                     0,      0,      X_FEQ,  X_FNE,  X_FLT,  X_FLE, X_FGT, X_FGE};
    if (e->binary.op >= BIN_LOGICAL_AND) return logical_expr(c, e);
    Type type = e->binary.a->type;
    uint8_t op = type_is_float(type) ? floats[e->binary.op] : ints[e->binary.op];
    Type computed = arithmetic_type(c, type);
    Val out = binary_instr(c, (InstrOp)op, computed, e->binary.a, e->binary.b);
    if (op == X_FDIV) vec_last(&c->instrs).approximate = is_approximate(c, computed);
    return out;
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
    if (cast_keeps(c, e)) return compile_value(c, e->operand);
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

Place *compile_place(Compiler *c, const Buf *buf, int count, Expr *const *indices) {
    Place *place = NEW(c->arena, Place);
    place->mem = compile_mem(c, buf);
    place->rank = count;
    place->strict = c->code->reference || c->in_thread || buf->scope != SCOPE_GLOBAL;
    bool regs = buf->scope == SCOPE_FRAGMENT && c->in_thread;
    EXPECT(c->failure, count <= MAX_RANK && count == (regs ? 1 : buf->rank),
           "an access to '%s' of rank %d has %d indices", buf->name, buf->rank, count);
    for (int d = 0; d < count; d++) {
        Val v = compile_value(c, indices[d]);
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
    const Place *place = compile_place(c, e->load.buf, e->load.count, e->load.indices);
    Val out = result(c, mark, c->many);
    InstrOp op = e->load.buf->scope == SCOPE_LOCAL ? X_LOCAL_LOAD : X_LOAD;
    emit(c, op, e->type, c->many, out.slot, -1, -1)->extra = place;
    return out;
}

Val compile_value(Compiler *c, const Expr *e) {
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
void compile_value_to(Compiler *c, const Expr *e, int slot, bool wide) {
    int mark = c->next, before = here(c);
    Val v = compile_value(c, e);
    const Instr *last = here(c) > before ? &vec_last(&c->instrs) : NULL;
    bool fresh = last && v.slot >= mark && v.wide == wide && last->dst == v.slot && last->op != X_MOVE;
    if (fresh) vec_last(&c->instrs).dst = slot;   // X_MOVE: the last part of a lazy expression
    else emit(c, X_MOVE, e->type, wide, slot, fit(c, v, wide), -1);
    c->next = mark;
}

// ---- calls ----
static const Im2colCode *compile_im2col(Compiler *c, const Buf *view) {
    Im2colCode *code = NEW(c->arena, Im2colCode);
    code->count = view->im2col->count;
    code->merged = im2col_is_merged(view);
    memcpy(code->dims, view->im2col->dims, sizeof code->dims);
    for (int i = 0; i < code->count; i++) {
        const Window *w = &view->im2col->windows[i];
        int positions = fit(c, compile_value(c, w->positions), c->many);
        code->windows[i] = (WindowCode){positions, w->taps, w->stride, w->padding, w->dilation};
    }
    return code;
}

static const Tile *new_tile(Compiler *c, const Region *region) {
    Tile *tile = NEW(c->arena, Tile);
    if (region->buf->im2col) tile->im2col = compile_im2col(c, region->buf);
    tile->mem = compile_mem(c, buf_viewed(region->buf));
    tile->count = region->count;
    tile->transposed = region->transposed;
    for (int d = 0; d < region->count; d++) {
        const RegionDim *dim = &region->dims[d];
        tile->dims[d].start = compile_value(c, dim->start).slot;
        tile->dims[d].dropped = !dim->extent;
        tile->dims[d].extent = dim->extent ? compile_value(c, dim->extent).slot : -1;
        tile->dims[d].tile = dim->extent ? dim->tile : 1;
    }
    return tile;
}

static const Place *region_place(Compiler *c, const Region *region) {
    Expr *starts[MAX_RANK];
    for (int d = 0; d < region->count && d < MAX_RANK; d++) starts[d] = region->dims[d].start;
    return compile_place(c, region->buf, region->count, starts);
}

static bool takes_tiles(OpId op) {
    return op_is(op, OP_CLASS_TILE);
}

static const MapCode *compile_map(Compiler *c, const Var *var) {
    const Func *func = c->code->func;
    const Param *param = func_hidden(func, var);
    TensorMap map;
    const char *why = "is no parameter";
    for (int i = 0; i < c->code->map_count; i++)
        if (c->code->maps[i]->var == var) return c->code->maps[i];
    EXPECT(c->failure, param && tensor_map_read(func, param, &map, &why), "the tensor map '%s' %s", var->name, why);
    MapCode *code = NEW(c->arena, MapCode);
    *code = (MapCode){.var = var,
                      .name = var->name,
                      .mem = compile_mem(c, map.tensor),
                      .rank = map.rank,
                      .box_rank = map.box_rank,
                      .offsets = map.offsets,
                      .merged = map.view && !map.offsets,
                      .swizzle = map.swizzle,
                      .tf32 = map.tf32,
                      .rows = tensor_map_rows(&map),
                      .row_bytes = tensor_map_row_bytes(&map),
                      .pitch = tensor_map_pitch(&map)};
    memcpy(code->box, map.box, sizeof map.box);
    if (!c->code->maps) c->code->maps = NEW_ARRAY(c->arena, const MapCode *, func->params.count);
    c->code->maps[c->code->map_count++] = code;
    return code;
}

static CallArg compile_arg(Compiler *c, OpId op, const Arg *arg) {
    CallArg out = {.given = arg->value || arg->region || arg->name, .slot = -1, .type = TYPE_NONE, .name = arg->name};
    if (arg->value && arg->value->type == TYPE_TENSORMAP) {
        const Buf *view = attr_get(func_hidden(c->code->func, arg->value->var)->attrs, ATTR_TMA)->args[0].view;
        out.map = compile_map(c, arg->value->var);
        if (view && out.map->offsets) out.im2col = compile_im2col(c, view);
    } else if (arg->value) {
        out.has_value = true;
        out.type = arg->value->type;
        out.constant = expr_const(arg->value, &out.number);
        out.slot = fit(c, compile_value(c, arg->value), c->many);
    }
    if (arg->region && op == OP_ALIGNED) out.number = compile_mem(c, arg->region->buf);
    else if (arg->region && takes_tiles(op) && !c->many && arg->region->buf->type != TYPE_MBARRIER)
        out.tile = new_tile(c, arg->region);
    else if (arg->region) out.place = region_place(c, arg->region);
    return out;
}

// Pieces that land each for itself, of as many bytes as a row of a box has, or of the unit of such copies.
static const MapCode *compile_line(Compiler *c, const Call *call) {
    const CallArg *args = call->args;
    bool load = call->op == OP_BULK_LOAD;
    int mem = args[load ? 1 : 0].place->mem;
    int64_t element = c->mems.items[mem].bytes, bytes = args[load ? 3 : 2].number * element;
    int64_t piece = bytes % tma_facts.shared_align ? tma_facts.unit_bytes : tma_facts.shared_align;
    MapCode *code = NEW(c->arena, MapCode);
    *code = (MapCode){.name = op_info(call->op)->text,
                      .mem = mem,
                      .rank = 1,
                      .box = {(int)(piece / element)},
                      .rows = bytes / piece,
                      .row_bytes = piece,
                      .pitch = piece,
                      .linear = true};
    return code;
}

// CTAs that wait for others: they look for something to come, and then at what came with it, or look until something
// comes.
static void note_spinning(Compiler *c, OpId op) {
    if (op == OP_LOAD || (op_is_atomic(op) && c->whiles)) c->code->spins = true;
}

static void watch_registers(Compiler *c, Call *call) {
    call->wgmma = wgmma_compile(c->arena, c->failure, call);
    for (int i = 0; i < call->count; i++) {
        Mem *mem = call->args[i].place ? &c->mems.items[call->args[i].place->mem] : NULL;
        if (mem && mem->scope == SCOPE_LOCAL) mem->watched = true;
    }
}

static bool uses_async_unit(OpId op) {
    Feature feature = op_info(op)->feature;
    return feature == FEATURE_MBARRIER || feature == FEATURE_TMA || feature == FEATURE_WGMMA ||
           op_is(op, OP_CLASS_TENSOR_MAP);
}

Val compile_call(Compiler *c, OpId op, int count, const Arg *args, bool is_async, Type type) {
    int mark = c->next;
    Call *call = NEW(c->arena, Call);
    call->op = op;
    call->handler = op_handler(op);
    call->is_async = is_async;
    call->count = count;
    call->args = NEW_ARRAY(c->arena, CallArg, count + 1);
    note_spinning(c, op);
    for (int i = 0; i < count; i++) call->args[i] = compile_arg(c, op, &args[i]);
    call->channel = compile_call_channel(c, count, args);
    if (op == OP_MMA) {
        const char *shape = CALL_ARG(call, MMA, shape).name;
        const MmaInfo *info = shape ? mma_named(shape) : NULL;
        EXPECT(c->failure, info, "unknown instruction '%s'", shape ? shape : "");
        call->mma = mma_compile(c->arena, c->failure, info);
    }
    c->code->bulk |= uses_async_unit(op);
    if (op == OP_DEPENDENCY_WAIT) c->code->dependent = true;
    if (op == OP_BULK_LOAD || op == OP_BULK_STORE) call->line = compile_line(c, call);
    if (op == OP_WGMMA) watch_registers(c, call);
    Val out = result(c, mark, c->many);
    emit(c, X_CALL, type == TYPE_NONE ? TYPE_I64 : type, c->many, out.slot, -1, -1)->extra = call;
    return out;
}

static Val fma_expr(Compiler *c, const Expr *e) {
    int mark = c->next;
    Val v[3];
    bool wide = false;
    for (int i = 0; i < 3; i++) {
        v[i] = compile_value(c, e->call.args[i].value);
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
    case OP_MIN: return binary_instr(c, floating ? X_FMIN : X_MIN, type, ARG(e, MIN, a).value, ARG(e, MIN, b).value);
    case OP_MAX: return binary_instr(c, floating ? X_FMAX : X_MAX, type, ARG(e, MAX, a).value, ARG(e, MAX, b).value);
    case OP_CEILDIV: return binary_instr(c, X_CEILDIV, type, ARG(e, CEILDIV, a).value, ARG(e, CEILDIV, b).value);
    case OP_ABS: return unary_instr(c, floating ? X_FABS : X_ABS, type, ARG(e, ABS, x).value);
    case OP_IEEE: return ieee_expr(c, ARG(e, IEEE, x).value);
    case OP_FMA: return fma_expr(c, e);
    case OP_WARPGROUP: {   // (of several threads only lowered programs)
        int64_t count = 1;
        expr_const(ARG(e, WARPGROUP, count).value, &count);
        return constant_int(c, count - 1);
    }
    case OP_CLUSTER_EXTENT: {   // of the shape that runs where nothing chooses
        const Attr *shape = attr_get(func_grid(c->code->func)->attrs, ATTR_CLUSTER);
        return constant_int(c, shape->args[expr_is_int(ARG(e, CLUSTER_EXTENT, name).value, 1)].integer);
    }
    case OP_SMS: {
        int slot = new_slot(c);
        emit(c, X_SMS, TYPE_I64, false, slot, -1, -1);
        return (Val){slot, false};
    }
    case OP_ALIGNED: {
        int slot = new_slot(c);
        int64_t bytes = 1;
        expr_const(ARG(e, ALIGNED, n).value, &bytes);
        int mem = compile_mem(c, ARG(e, ALIGNED, tensor).region->buf);
        emit(c, X_ALIGNED, TYPE_BOOL, false, slot, -1, -1);
        vec_last(&c->instrs).c = mem;
        vec_last(&c->instrs).target = (int)bytes;
        return (Val){slot, false};
    }
    default: break;
    }
    if (!op_is_pure(op)) return compile_call(c, op, e->call.count, args, false, e->type);
    Val out = unary_instr(c, X_MATH, type, args[0].value);
    vec_last(&c->instrs).c = (int)op;
    vec_last(&c->instrs).b = (int)args[0].value->type;
    vec_last(&c->instrs).approximate = op_is_approximate(op) && is_approximate(c, type);
    return out;
}
