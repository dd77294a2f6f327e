// Operations with effects: their operands, and the table that says how each is emitted. Each family has its own file,
// which ends with its rows: sync.c, memory.c, mma.c, async.c, cluster.c. (wgmma.c takes runs of statements, see
// emit_block.)
#include "codegen/gen.h"
#include <string.h>

// ---- operands ----

OpCall call_of(const Stmt *stmt) {
    return (OpCall){stmt->call.op, stmt->call.count, stmt->call.args, TYPE_NONE, stmt->attrs, stmt->loc};
}

bool has_arg(const OpCall *call, int index) {
    return index < call->count && (call->args[index].value || call->args[index].region || call->args[index].name);
}

Expr *arg_expr(Gen *gen, const OpCall *call, int index) {
    EXPECT(gen->failure, index < call->count && call->args[index].value, "%s without operand %d",
           op_info(call->op)->text, index);
    return call->args[index].value;
}

Region *arg_place(Gen *gen, const OpCall *call, int index) {
    EXPECT(gen->failure, index < call->count && call->args[index].region, "%s without operand %d",
           op_info(call->op)->text, index);
    return call->args[index].region;
}

int64_t arg_const(Gen *gen, const OpCall *call, int index) {
    int64_t value = 0;
    Value constant = emit_index(gen, arg_expr(gen, call, index));
    EXPECT(gen->failure, value_const(constant, &value), "operand %d of %s is not a constant", index,
           op_info(call->op)->text);
    return LLVMTypeOf(constant) == gen->types.i1 ? value & 1 : value;
}

const char *arg_word(Gen *gen, const OpCall *call, int index) {
    EXPECT(gen->failure, index < call->count && call->args[index].name, "%s without word %d", op_info(call->op)->text,
           index);
    return call->args[index].name;
}

Value emit_value_as(Gen *gen, Expr *expr, Type type) {
    return to_memory(gen, type, emit_convert(gen, emit_expr(gen, expr), expr->type, type));
}

// ---- debugging ----

// How vprintf takes a value: integers as 64 bits, floats as f64.
static Value print_value(Gen *gen, Expr *expr, const char **format) {
    Value value = emit_expr(gen, expr);
    if (type_is_float(expr->type)) {
        *format = "%g";
        return emit_convert(gen, value, expr->type, TYPE_F64);
    }
    *format = type_kind(expr->type) == KIND_UINT ? "%llu" : "%lld";
    return emit_convert(gen, value, expr->type, type_kind(expr->type) == KIND_UINT ? TYPE_U64 : TYPE_I64);
}

static void format_text(StrBuf *out, const char *text) {
    for (; *text; text++) {
        if (*text == '%') sb_char(out, '%');
        sb_char(out, *text);
    }
}

static void emit_print(Gen *gen, const OpCall *call) {
    StrBuf format;
    sb_init(&format, gen->arena);
    format_text(&format, ARG_WORD(gen, call, PRINT, text));
    LLVMTypeRef room = LLVMArrayType2(gen->types.i64, (uint64_t)(call->count > 1 ? call->count - 1 : 1));
    Value buffer = stack_slot(gen, room, "print");
    for (int i = 1; i < call->count; i++) {
        if (!has_arg(call, i)) continue;
        const char *piece;
        Value value = print_value(gen, arg_expr(gen, call, i), &piece);
        sb_printf(&format, " %s", piece);
        Value offset = const_i64(gen, i - 1);
        LLVMBuildStore(gen->builder, value, LLVMBuildGEP2(gen->builder, gen->types.i64, buffer, &offset, 1, ""));
    }
    sb_char(&format, '\n');
    CALL(gen, "vprintf", gen->types.i32, string_constant(gen, sb_text(&format)), buffer);
}

static void emit_assert_failure(Gen *gen, void *user) {
    const OpCall *call = user;
    const char *text = HAS_ARG(call, ASSERT, text) ? CALL_ARG(call, ASSERT, text).name : "assertion failed";
    const char *file = diag_source_name(gen->module->sink, call->loc.file);
    CALL(gen, "__assertfail", gen->types.none, string_constant(gen, text), string_constant(gen, file),
         const_i32(gen, call->loc.line), string_constant(gen, gen->kernel.func->name), const_i64(gen, 1));
    call_named(gen, "llvm.trap", gen->types.none, 0, NULL);
}

static void emit_assert(Gen *gen, const OpCall *call) {
    Value failed = LLVMBuildNot(gen->builder, emit_expr(gen, ARG_EXPR(gen, call, ASSERT, condition)), "");
    emit_if_then(gen, failed, emit_assert_failure, (void *)call);
}

static const OpEmitter debug_emitters[OP_COUNT] = {
    [OP_PRINT] = {.statement = emit_print},
    [OP_ASSERT] = {.statement = emit_assert},
};

// ---- all ----

static const OpEmitter *emitter_of(OpId op) {
    static const OpEmitter *const families[] = {sync_emitters,  memory_emitters,  mma_emitters,
                                                async_emitters, cluster_emitters, debug_emitters};
    for (int i = 0; i < COUNT_OF(families); i++) {
        const OpEmitter *row = &families[i][op];
        if (row->statement || row->value || row->intrinsic) return row;
    }
    return NULL;
}

bool op_has_code(OpId op) {
    return op_is_pure(op) || op_info(op)->feature == FEATURE_WGMMA || emitter_of(op);
}

bool op_supported(Gen *gen, const OpCall *call) {
    const OpInfo *info = op_info(call->op);
    Feature feature = info->feature;
    if (call->op == OP_MMA) {
        const MmaInfo *row = mma_named(ARG_WORD(gen, call, MMA, shape));
        if (row) feature = row->feature;
    }
    if (call->op == OP_VATOMIC_ADD) {
        const RedInfo *row =
            red_of(type_text(ARG_PLACE(gen, call, VATOMIC_ADD, dst)->buf->type), ARG_CONST(gen, call, VATOMIC_ADD, n));
        if (row) feature = row->feature;
    }
    for (int i = 0; i < call->count; i++)   // a memory scope
        if (call->args[i].name && !call->args[i].is_string && strcmp(call->args[i].name, "cluster") == 0)
            feature = FEATURE_CLUSTER;
    if (feature == FEATURE_BASE || target_has(gen->target, feature)) return true;
    bool *reported = &gen->kernel.reported[call->op];
    if (*reported) return false;
    *reported = true;
    Diag *d = diag(gen->sink, call->loc, T_NEEDS_FEATURE, info->text, feature_text(feature), gen->target->name);
    if (feature == FEATURE_MBARRIER)
        diag_note(d, "channels between roles are made of mbarriers: a variant of the kernel for this target has none");
    return false;
}

Value emit_op(Gen *gen, const OpCall *call) {
    if (!op_supported(gen, call))
        return call->type == TYPE_NONE ? NULL : LLVMGetPoison(llvm_value_type(gen, call->type));
    const OpEmitter *row = emitter_of(call->op);
    EXPECT(gen->failure, row, "%s at thread stage", op_info(call->op)->text);
    if (row->value) return row->value(gen, call);
    if (row->statement) row->statement(gen, call);
    else call_named(gen, row->intrinsic, gen->types.none, 0, NULL);
    return NULL;
}
