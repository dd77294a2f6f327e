// Matrix instructions of warpgroups: one piece of assembly for each run of wgmma statements.
//
// wgmma works on registers while the program goes on. Only ptxas knows that; to LLVM the instructions are text with
// operands. What keeps LLVM from using a register too early, or from copying it into another:
//
//     1. An accumulator is tied: the assembly reads and writes it in the same register. So the elements of a local
//        array become phis of the loop around, and no move is needed.
//     2. A wait reads and writes all registers that can be in flight, and so does a fence: what uses them later depends
//        on the wait, what defines them earlier comes before the fence. That is every local array of a wgmma whose
//        declaration is open (a role's arrays do not live through the waits of another).
//     3. Statements next to each other become one piece of assembly. LLVM's time grows faster than the number of
//        pieces times their operands, and nothing can come between.
//
//     wgmma_fence();                                        wgmma.fence
//     wgmma(m64n256k16_f32_bf16, As[s], Bs[s], acc[0],      add xa, A, 0;  add xb, B, 0;  descriptors; wgmma.mma_async
//           steps = 4, ..., accumulate = k > 0);       =>   add xa, A, 2;  add xb, B, 2;  ...                          4 times
//     wgmma_commit();                                       wgmma.commit_group
//     wgmma_wait(1);                                        wgmma.wait_group 1
//
// A descriptor is 64 bits: (PTX ISA, "Matrix descriptor format")
//
//     bits 0..13  address >> 4        16..29  leading offset >> 4        32..45  stride offset >> 4        62..63  swizzle
//
// Only the address varies, so the low word is computed outside and each instruction adds to it; the address is masked
// first, since in a cluster the upper bits of a shared address hold the CTA's rank.
//
// Limits: what a wait ties is whole arrays, whichever groups are pending; an array that is indexed by registers of two
// runs that wait for different groups is therefore used no earlier than the source says, but could be.
#include "codegen/gen.h"
#include <string.h>

bool is_wgmma(const Stmt *stmt) {
    return stmt->kind == STMT_CALL && op_info(stmt->call.op)->feature == FEATURE_WGMMA;
}

// ---- the operands of a piece of assembly ----

enum { REGISTER_BITS = 32, A_REGISTERS = 4 };   // an instruction's A from registers, of any type, has four of them

typedef struct Tied {   // a register that the assembly reads and writes: operand number is its place in the list
    RegisterArray *array;
    int64_t index;   // of its first element
} Tied;

typedef struct Asm {
    Gen *gen;
    StrBuf text;
    VEC(Tied) tied;
    VEC(Value) inputs;   // operands after the tied ones
    VEC(char) kinds;     // their constraints
    Map *numbers;        // RegisterArray -> int[registers]: operand number + 1
    int declared;        // descriptor words so far
} Asm;

static int64_t per_register(const RegisterArray *array) {
    return array->bits < REGISTER_BITS ? REGISTER_BITS / array->bits : 1;
}

static int *numbers_of(Asm *code, RegisterArray *array) {
    int *numbers = map_get(code->numbers, array);
    if (numbers) return numbers;
    int64_t count = array->count / per_register(array);
    numbers = NEW_ARRAY(code->gen->arena, int, count + 1);
    map_put(code->numbers, array, numbers);
    return numbers;
}

static void tie(Asm *code, RegisterArray *array, int64_t first, int64_t registers) {
    int *numbers = numbers_of(code, array);
    int64_t step = per_register(array);
    EXPECT(code->gen->failure, first % step == 0 && first / step + registers <= array->count / step,
           "wgmma registers %lld.. of a local array with %lld elements", (long long)first, (long long)array->count);
    for (int64_t i = 0; i < registers; i++) {
        int *number = &numbers[first / step + i];
        if (*number) continue;
        vec_push(code->gen->arena, &code->tied, ((Tied){array, first + i * step}));
        *number = code->tied.count;
    }
}

static int add_input(Asm *code, Value value, char kind) {
    vec_push(code->gen->arena, &code->inputs, value);
    vec_push(code->gen->arena, &code->kinds, kind);
    return code->tied.count + code->inputs.count - 1;
}

static bool is_float_register(const RegisterArray *array) {
    return array->type == TYPE_F32;
}

static Value get_register(Gen *gen, RegisterArray *array, int64_t index) {
    Value value = register_get_bits(gen, array, index, REGISTER_BITS);
    return build_bitcast(gen, value, is_float_register(array) ? gen->types.f32 : gen->types.i32);
}

// ---- one wgmma statement ----

// Places in ops.def's row.
enum {
    W_SHAPE,
    W_A,
    W_B,
    W_ACC,
    W_STEPS,
    W_A_FORM,
    W_A_LEAD,
    W_A_STRIDE,
    W_A_STEP,
    W_B_FORM,
    W_B_LEAD,
    W_B_STRIDE,
    W_B_STEP,
    W_ACCUMULATE
};

typedef struct Descriptor {   // an operand in shared memory
    int low;                  // operand number of the low word
    uint32_t high;
    int64_t step;      // from one instruction to the next, in units of 16 bytes
    bool transposed;   // m or n contiguous
} Descriptor;

static WgmmaInfo shape_of(Gen *gen, const OpCall *call) {
    WgmmaInfo info;
    EXPECT(gen->failure, wgmma_named(arg_word(gen, call, W_SHAPE), &info), "wgmma shape '%s'",
           arg_word(gen, call, W_SHAPE));
    return info;
}

static int64_t steps_of(Gen *gen, const OpCall *call) {
    return has_arg(call, W_STEPS) ? arg_const(gen, call, W_STEPS) : 1;
}

static int64_t number_or_zero(Gen *gen, const OpCall *call, int index) {
    return has_arg(call, index) ? arg_const(gen, call, index) : 0;
}

// The swizzle as the descriptor has it.
static uint32_t swizzle_mode(const WgmmaForm *form) {
    switch (form->swizzle) {
    case 128: return 1;
    case 64: return 2;
    case 32: return 3;
    default: return 0;
    }
}

// `form` is the place of an operand's form among the arguments; lead, stride and step follow it.
static Descriptor descriptor_of(Asm *code, const OpCall *call, int operand, int form) {
    enum { LEAD_SHIFT = 16, MODE_SHIFT = 30 };
    const int64_t unit = tma_facts.unit_bytes, field = tma_facts.descriptor_bytes / unit - 1;
    Gen *gen = code->gen;
    const WgmmaForm *how = wgmma_form(arg_word(gen, call, form));
    EXPECT(gen->failure, how, "wgmma operand form '%s'", arg_word(gen, call, form));
    uint32_t lead = (uint32_t)(number_or_zero(gen, call, form + 1) / unit & field);
    uint32_t stride = (uint32_t)(number_or_zero(gen, call, form + 2) / unit & field);
    Value low = place_units(gen, arg_place(gen, call, operand));
    low = LLVMBuildAdd(gen->builder, low, const_i32(gen, (int64_t)lead << LEAD_SHIFT), "");
    return (Descriptor){.low = add_input(code, low, 'r'),
                        .high = stride | swizzle_mode(how) << MODE_SHIFT,
                        .step = number_or_zero(gen, call, form + 3) / unit,
                        .transposed = !how->k_major};
}

static void write_descriptor(Asm *code, const Descriptor *d, char name, int64_t step) {
    sb_printf(&code->text, "add.u32 low, $%d, %lld;\nmov.b32 high, 0x%x;\nmov.b64 %c, {low, high};\n", d->low,
              (long long)(d->step * step), d->high, name);
}

// {$0, $1, ...}
static void write_registers(Asm *code, RegisterArray *array, int64_t first, int64_t count) {
    int *numbers = numbers_of(code, array);
    for (int64_t i = 0; i < count; i++) {
        sb_printf(&code->text, "%s$%d", i ? "," : "{", numbers[first / per_register(array) + i] - 1);
    }
    sb_char(&code->text, '}');
}

// The scale of the accumulator: a predicate, as an operand of the assembly or the constants 0 and 1.
static const char *scale_text(Asm *code, const OpCall *call) {
    Gen *gen = code->gen;
    if (!has_arg(call, W_ACCUMULATE)) return "1";
    Value accumulate = emit_expr(gen, arg_expr(gen, call, W_ACCUMULATE));
    int64_t constant;
    if (value_const(accumulate, &constant)) return constant ? "1" : "0";
    return arena_printf(gen->arena, "$%d", add_input(code, accumulate, 'b'));
}

static const char *ptx_type(const char *type) {
    static const char *const names[][2] = {{"i8", "s8"}, {"i32", "s32"}};
    for (int i = 0; i < COUNT_OF(names); i++) {
        if (strcmp(names[i][0], type) == 0) return names[i][1];
    }
    return type;
}

typedef struct Product {   // a wgmma statement, ready to be written
    WgmmaInfo info;
    RegisterArray *acc, *a;   // a NULL: in shared memory
    int64_t acc_first, a_first, acc_registers;
    Descriptor a_place, b_place;
    const char *scale;
} Product;

// All about transposition and signs behind the scale: what an operand's type and place allow.
static void write_tail(Asm *code, const Product *p) {
    if (p->info.acc_type[0] == 'i') return;
    sb_str(&code->text, ", 1, 1");
    if (!p->info.can_transpose) return;
    if (!p->a) sb_printf(&code->text, ", %d", p->a_place.transposed);
    sb_printf(&code->text, ", %d", p->b_place.transposed);
}

static void write_product(Asm *code, const Product *p, int64_t step) {
    if (!p->a) write_descriptor(code, &p->a_place, 'a', step);
    write_descriptor(code, &p->b_place, 'b', step);
    sb_printf(&code->text, "wgmma.mma_async.sync.aligned.m%dn%dk%d.%s.%s.%s ", p->info.m, p->info.n, p->info.k,
              ptx_type(p->info.acc_type), ptx_type(p->info.a_type), ptx_type(p->info.b_type));
    write_registers(code, p->acc, p->acc_first, p->acc_registers);
    sb_str(&code->text, ", ");
    if (p->a) write_registers(code, p->a, p->a_first + step * A_REGISTERS * per_register(p->a), A_REGISTERS);
    else sb_char(&code->text, 'a');
    sb_printf(&code->text, ", b, %s", step == 0 ? p->scale : "1");
    write_tail(code, p);
    sb_str(&code->text, ";\n");
}

static void write_wgmma(Asm *code, const OpCall *call) {
    Gen *gen = code->gen;
    Product p = {.info = shape_of(gen, call)};
    Region *acc = arg_place(gen, call, W_ACC), *a = arg_place(gen, call, W_A);
    int64_t steps = steps_of(gen, call);
    p.acc = register_array(gen, acc->buf);
    p.acc_first = place_register_index(gen, acc);
    p.acc_registers = (int64_t)p.info.m * p.info.n / target_warpgroup(gen->target) / per_register(p.acc);
    if (a->buf->scope == SCOPE_LOCAL) {
        p.a = register_array(gen, a->buf);
        p.a_first = place_register_index(gen, a);
    } else {
        p.a_place = descriptor_of(code, call, W_A, W_A_FORM);
    }
    p.b_place = descriptor_of(code, call, W_B, W_B_FORM);
    p.scale = scale_text(code, call);
    EXPECT(gen->failure, p.info.can_transpose || !(p.a_place.transposed || p.b_place.transposed),
           "wgmma of %s with m or n contiguous", p.info.a_type);
    for (int64_t step = 0; step < steps; step++) write_product(code, &p, step);
}

// ---- a run of statements ----

static RegisterArray *wgmma_array(Gen *gen, const Buf *buf) {
    while (buf->alias_of) buf = buf->alias_of;
    EXPECT(gen->failure, attr_get(buf->attrs, ATTR_WGMMA_REGISTERS), "wgmma on '%s' without @%s", buf->name,
           attr_name(ATTR_WGMMA_REGISTERS));
    return register_array(gen, buf);
}

// Before operands can be numbered: ties the registers of each product, and for a wait or fence all that can be in
// flight.
static void tie_operands(Asm *code, const OpCall *call) {
    Gen *gen = code->gen;
    if (call->op == OP_WGMMA_WAIT || call->op == OP_WGMMA_FENCE) {
        for (int i = 0; i < gen->registers.wgmma.count; i++) {
            RegisterArray *array = register_array(gen, gen->registers.wgmma.items[i]);
            tie(code, array, 0, array->count / per_register(array));
        }
    }
    if (call->op != OP_WGMMA) return;
    WgmmaInfo info = shape_of(gen, call);
    Region *acc = arg_place(gen, call, W_ACC), *a = arg_place(gen, call, W_A);
    RegisterArray *array = wgmma_array(gen, acc->buf);
    int64_t elements = (int64_t)info.m * info.n / target_warpgroup(gen->target);
    tie(code, array, place_register_index(gen, acc), elements / per_register(array));
    if (a->buf->scope == SCOPE_LOCAL) {
        tie(code, wgmma_array(gen, a->buf), place_register_index(gen, a), A_REGISTERS * steps_of(gen, call));
    }
}

static void write_statement(Asm *code, const OpCall *call) {
    switch (call->op) {
    case OP_WGMMA_FENCE: sb_str(&code->text, "wgmma.fence.sync.aligned;\n"); return;
    case OP_WGMMA_COMMIT: sb_str(&code->text, "wgmma.commit_group.sync.aligned;\n"); return;
    case OP_WGMMA_WAIT:
        sb_printf(&code->text, "wgmma.wait_group.sync.aligned %lld;\n", (long long)arg_const(code->gen, call, 0));
        return;
    default: write_wgmma(code, call); return;
    }
}

// "=f,=f,..,r,r,b,0,1,..,~{memory}": outputs, inputs, and the inputs that are tied to outputs.
static const char *constraints_of(Asm *code) {
    StrBuf out;
    sb_init(&out, code->gen->arena);
    for (int i = 0; i < code->tied.count; i++) {
        sb_str(&out, is_float_register(code->tied.items[i].array) ? "=f," : "=r,");
    }
    for (int i = 0; i < code->kinds.count; i++) sb_printf(&out, "%c,", code->kinds.items[i]);
    for (int i = 0; i < code->tied.count; i++) sb_printf(&out, "%d,", i);
    sb_str(&out, "~{memory}");
    return sb_text(&out);
}

static void emit_asm(Asm *code) {
    Gen *gen = code->gen;
    int tied = code->tied.count, inputs = code->inputs.count;
    Value *args = NEW_ARRAY(gen->arena, Value, tied + inputs + 1);
    LLVMTypeRef *types = NEW_ARRAY(gen->arena, LLVMTypeRef, tied + 1);
    for (int i = 0; i < inputs; i++) args[i] = code->inputs.items[i];
    for (int i = 0; i < tied; i++) {
        args[inputs + i] = get_register(gen, code->tied.items[i].array, code->tied.items[i].index);
        types[i] = LLVMTypeOf(args[inputs + i]);
    }
    LLVMTypeRef result = tied == 0   ? gen->types.none
                         : tied == 1 ? types[0]
                                     : LLVMStructTypeInContext(gen->llvm.context, types, (unsigned)tied, 0);
    const char *text = arena_printf(gen->arena, "{\n.reg .b64 a, b;\n.reg .b32 low, high;\n%s}", sb_text(&code->text));
    Value out = build_asm(gen, text, constraints_of(code), result, inputs + tied, args);
    for (int i = 0; i < tied; i++) {
        Value value = tied == 1 ? out : LLVMBuildExtractValue(gen->builder, out, (unsigned)i, "");
        register_set_bits(gen, code->tied.items[i].array, code->tied.items[i].index, REGISTER_BITS, value);
    }
}

// ptxas schedules a wait like any other instruction, and moves it up past all arithmetic of its basic block that does
// not touch the registers in flight: past the work that should overlap the product. An instruction that is never
// executed, which ptxas cannot prove, stays behind that work, and waits do not pass it. (Seen in the SASS of ptxas
// 13.0. A warp barrier does not hold waits; a trap serialises.) Without straight-line code before the wait there is
// nothing to hold.
//
// Measured on an H200, attention with head dim 128, speed relative to no anchor:
//
//     8-bit floats                             1.00 to 1.11
//     bf16, two warpgroups                     0.97 to 1.05   (slots are freed later, which costs something)
//     bf16, two warpgroups, lazy rescaling     1.04 to 1.09
//     bf16, three warpgroups                   0.97 to 0.99   (products of one always overlap work of the others)
//
// So only chains of 8-bit products have the anchor: their work between products takes longest.
static bool follows_work(const Gen *gen, const Block *block, int at) {
    enum { FEW = 2 };   // warpgroups
    if (block->items[at]->call.op != OP_WGMMA_WAIT || at == 0) return false;
    if (gen->kernel.role.count > (int64_t)FEW * target_warpgroup(gen->target)) return false;
    bool chained = false;
    for (int i = 0; i < gen->registers.wgmma.count; i++) chained |= type_bits(gen->registers.wgmma.items[i]->type) == 8;
    if (!chained) return false;
    const Stmt *before = block->items[at - 1];
    return before->kind == STMT_BLOCK || before->kind == STMT_STORE ||
           (before->kind == STMT_FOR && before->loop.kind == LOOP_UNROLL);
}

static void write_anchor(Asm *code) {
    int zero = add_input(code, hidden_zero(code->gen), 'r');
    sb_printf(&code->text, ".reg .pred never;\nsetp.ne.u32 never, $%d, 0;\n@never nanosleep.u32 0;\n", zero);
}

int emit_wgmma(Gen *gen, const Block *block, int at) {
    Asm code = {.gen = gen, .numbers = map_new(gen->arena)};
    int count = 0;
    bool supported = true;
    sb_init(&code.text, gen->arena);
    debug_lines_at(gen, block->items[at]->loc);
    for (; at + count < block->count && is_wgmma(block->items[at + count]); count++) {
        OpCall call = call_of(block->items[at + count]);
        supported = supported && op_supported(gen, &call);
        if (supported) tie_operands(&code, &call);
    }
    if (!supported) return count;
    if (follows_work(gen, block, at)) write_anchor(&code);
    for (int i = 0; i < count; i++) {
        OpCall call = call_of(block->items[at + i]);
        write_statement(&code, &call);
    }
    emit_asm(&code);
    return count;
}
