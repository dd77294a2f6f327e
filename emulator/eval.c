// The instructions that compute and branch: one agent's run until it blocks.
//
// A wide instruction is a loop over all lanes without a branch, which the C compiler turns into vector code; lanes that
// are off compute values that are never read. Only effects (stores, assignments of mutable variables, errors) look at
// the mask. Where a lane that is off could fail, a harmless value is computed instead.
#include "emulator/approximate.h"
#include "emulator/machine.h"
#include "ir/query.h"
#include <math.h>
#include <string.h>

// A result may be one of the operands (lane l of it of lane l), never overlap them otherwise.
#if defined(__clang__)
#define LANEWISE   // it tests for overlap at run time
#else
#define LANEWISE _Pragma("GCC ivdep")
#endif

// STATEMENT for lane l: of all lanes, or of lane 0.
#define EACH_LANE(STATEMENT)                                                                                           \
    if (in->wide) {                                                                                                    \
        LANEWISE                                                                                                       \
        for (int l = 0; l < LANES; l++) {                                                                              \
            STATEMENT;                                                                                                 \
        }                                                                                                              \
    } else {                                                                                                           \
        const int l = 0;                                                                                               \
        STATEMENT;                                                                                                     \
    }

static Mask true_lanes(const Lanes *condition) {
    Mask mask = 0;
    for (int l = 0; l < LANES; l++) mask |= (Mask)(condition->i[l] != 0) << l;
    return mask;
}

// ---- integers ----
static void wrap(const Instr *in, Lanes *dst) {
    switch (in->type) {
    case TYPE_BOOL: EACH_LANE(dst->i[l] = dst->i[l] != 0) break;
    case TYPE_I8: EACH_LANE(dst->i[l] = (int8_t)(uint64_t)dst->i[l]) break;
    case TYPE_I16: EACH_LANE(dst->i[l] = (int16_t)(uint64_t)dst->i[l]) break;
    case TYPE_I32: EACH_LANE(dst->i[l] = (int32_t)(uint64_t)dst->i[l]) break;
    case TYPE_U8: EACH_LANE(dst->i[l] &= 0xff) break;
    case TYPE_U16: EACH_LANE(dst->i[l] &= 0xffff) break;
    case TYPE_U32: EACH_LANE(dst->i[l] &= 0xffffffff) break;
    default: break;
    }
}

// Functions and conversions of each lane cost more than arithmetic.
static int lanes_of_function(Agent *agent, const Instr *in) {
    if (in->wide) spend(agent, LANES, STEP_FUNCTIONS);
    return in->wide ? LANES : 1;
}

static int64_t quotient(Type type, int64_t a, int64_t b) {
    if (type == TYPE_U64) return (int64_t)((uint64_t)a / (uint64_t)b);
    return b == -1 ? (int64_t)(0 - (uint64_t)a) : a / b;
}

static int64_t remainder_of(Type type, int64_t a, int64_t b) {
    if (type == TYPE_U64) return (int64_t)((uint64_t)a % (uint64_t)b);
    return b == -1 ? 0 : a % b;
}

static void divide(Agent *agent, const Instr *in, Lanes *dst, const Lanes *a, const Lanes *b) {
    Type type = (Type)in->type;
    int lanes = in->wide ? LANES : 1;
    for (int l = 0; l < lanes; l++) {
        int64_t x = a->i[l], y = b->i[l];
        if (y == 0) {
            bool active = in->wide ? agent->mask >> l & 1 : agent->mask != 0;
            if (active) emu_report(agent->cta->machine, agent->pc, T_EMU_DIVISION, thread_text(agent, l));
            dst->i[l] = 0;
        } else if (in->op == X_MOD) {
            dst->i[l] = remainder_of(type, x, y);
        } else {
            dst->i[l] = quotient(type, x, y) + (in->op == X_CEILDIV && remainder_of(type, x, y) != 0);
        }
    }
    wrap(in, dst);
}

static int64_t shift(InstrOp op, Type type, int64_t a, int64_t by) {
    bool out = by < 0 || by >= type_bits(type);
    if (op == X_SHL) return out ? 0 : (int64_t)((uint64_t)a << by);
    if (type == TYPE_U64) return out ? 0 : (int64_t)((uint64_t)a >> by);
    return a >> (out ? 63 : by);
}

static void int_minmax(const Instr *in, Lanes *dst, const Lanes *a, const Lanes *b) {
    bool is_min = in->op == X_MIN;
    uint64_t flip = in->type == TYPE_U64 ? (uint64_t)1 << 63 : 0;   // orders unsigned as signed
    EACH_LANE(int64_t x = a->i[l]; int64_t y = b->i[l];
              bool less = (int64_t)((uint64_t)x ^ flip) < (int64_t)((uint64_t)y ^ flip);
              dst->i[l] = less == is_min ? x : y)
}

static void int_compare(const Instr *in, Lanes *dst, const Lanes *a, const Lanes *b) {
    uint64_t flip = in->type == TYPE_U64 ? (uint64_t)1 << 63 : 0;
#define ORDER(OP) EACH_LANE(dst->i[l] = (int64_t)((uint64_t)a->i[l] ^ flip) OP(int64_t)((uint64_t)b->i[l] ^ flip)) break
    switch (in->op) {
    case X_EQ: EACH_LANE(dst->i[l] = a->i[l] == b->i[l]) break;
    case X_NE: EACH_LANE(dst->i[l] = a->i[l] != b->i[l]) break;
    case X_LT: ORDER(<);
    case X_LE: ORDER(<=);
    case X_GT: ORDER(>);
    default: ORDER(>=);
    }
#undef ORDER
}

// The next value of an iterator; beyond the last of the type, where a loop ends in any case, that one.
static int64_t stepped(int64_t value, int64_t step) {
    return __builtin_add_overflow(value, step, &value) ? INT64_MAX : value;
}

static void int_op(Agent *agent, const Instr *in, Lanes *dst, const Lanes *a, const Lanes *b) {
    switch (in->op) {
    case X_ADD: EACH_LANE(dst->i[l] = (int64_t)((uint64_t)a->i[l] + (uint64_t)b->i[l])) break;
    case X_STEP: EACH_LANE(dst->i[l] = stepped(a->i[l], b->i[l])) return;
    case X_SUB: EACH_LANE(dst->i[l] = (int64_t)((uint64_t)a->i[l] - (uint64_t)b->i[l])) break;
    case X_MUL: EACH_LANE(dst->i[l] = (int64_t)((uint64_t)a->i[l] * (uint64_t)b->i[l])) break;
    case X_DIV:
    case X_MOD:
    case X_CEILDIV: divide(agent, in, dst, a, b); return;
    case X_AND: EACH_LANE(dst->i[l] = a->i[l] & b->i[l]) return;
    case X_OR: EACH_LANE(dst->i[l] = a->i[l] | b->i[l]) return;
    case X_XOR: EACH_LANE(dst->i[l] = a->i[l] ^ b->i[l]) return;
    case X_SHL:
    case X_SHR: EACH_LANE(dst->i[l] = shift((InstrOp)in->op, (Type)in->type, a->i[l], b->i[l])) break;
    case X_MIN:
    case X_MAX: int_minmax(in, dst, a, b); return;
    case X_NEG: EACH_LANE(dst->i[l] = (int64_t)(0 - (uint64_t)a->i[l])) break;
    case X_NOT: EACH_LANE(dst->i[l] = !a->i[l]) return;
    case X_BITNOT: EACH_LANE(dst->i[l] = ~a->i[l]) break;
    case X_ABS:
        EACH_LANE(uint64_t x = (uint64_t)a->i[l];
                  dst->i[l] = (int64_t)(a->i[l] < 0 && in->type != TYPE_U64 ? 0 - x : x))
        break;
    default: int_compare(in, dst, a, b); return;
    }
    if (in->type != TYPE_I64 && in->type != TYPE_U64) wrap(in, dst);
}

// ---- floats: f32 operations are those of doubles, rounded (53 >= 2 * 24 + 2 bits make that exact) ----
#define FLOATING(VALUE)                                                                                                \
    if (in->type == TYPE_F64) {                                                                                        \
        EACH_LANE(dst->f[l] = (VALUE))                                                                                 \
    } else {                                                                                                           \
        EACH_LANE(dst->f[l] = (double)(float)(VALUE))                                                                  \
    }                                                                                                                  \
    break

static void float_op(const Instr *in, Lanes *dst, const Lanes *a, const Lanes *b) {
    switch (in->op) {
    case X_FADD: FLOATING(a->f[l] + b->f[l]);
    case X_FSUB: FLOATING(a->f[l] - b->f[l]);
    case X_FMUL: FLOATING(a->f[l] * b->f[l]);
    case X_FDIV: FLOATING(a->f[l] / b->f[l]);
    case X_FMOD: FLOATING(fmod(a->f[l], b->f[l]));
    case X_FMIN: EACH_LANE(dst->f[l] = number_min(a->f[l], b->f[l])) break;
    case X_FMAX: EACH_LANE(dst->f[l] = number_max(a->f[l], b->f[l])) break;
    case X_FEQ: EACH_LANE(dst->i[l] = a->f[l] == b->f[l]) break;
    case X_FNE: EACH_LANE(dst->i[l] = a->f[l] != b->f[l]) break;
    case X_FLT: EACH_LANE(dst->i[l] = a->f[l] < b->f[l]) break;
    case X_FLE: EACH_LANE(dst->i[l] = a->f[l] <= b->f[l]) break;
    case X_FGT: EACH_LANE(dst->i[l] = a->f[l] > b->f[l]) break;
    case X_FGE: EACH_LANE(dst->i[l] = a->f[l] >= b->f[l]) break;
    case X_FNEG: EACH_LANE(dst->f[l] = -a->f[l]) break;
    default: EACH_LANE(dst->f[l] = fabs(a->f[l])) break;
    }
}

static void quotient_op(Agent *agent, const Instr *in, Lanes *dst, const Lanes *a, const Lanes *b) {
    uint64_t seed = agent->cta->machine->options.approximate;
    int lanes = lanes_of_function(agent, in);
    for (int l = 0; l < lanes; l++) dst->f[l] = approximate_quotient(seed, a->f[l], b->f[l]);
}

static void fma_op(const Instr *in, Lanes *dst, const Lanes *a, const Lanes *b, const Lanes *c) {
    if (in->type == TYPE_F64) {
        EACH_LANE(dst->f[l] = fma(a->f[l], b->f[l], c->f[l]))
    } else if (in->type == TYPE_F32) {
        EACH_LANE(dst->f[l] = fmaf((float)a->f[l], (float)b->f[l], (float)c->f[l]))
    } else {
        EACH_LANE(dst->i[l] = (int64_t)((uint64_t)a->i[l] * (uint64_t)b->i[l] + (uint64_t)c->i[l]))
        wrap(in, dst);
    }
}

static double math(OpId op, double x) {
    switch (op) {
    case OP_EXP: return exp(x);
    case OP_EXP2: return exp2(x);
    case OP_LOG: return log(x);
    case OP_LOG2: return log2(x);
    case OP_SQRT: return sqrt(x);
    case OP_RSQRT: return 1 / sqrt(x);
    case OP_TANH: return tanh(x);
    case OP_SIN: return sin(x);
    case OP_COS: return cos(x);
    case OP_FLOOR: return floor(x);
    case OP_CEIL: return ceil(x);
    case OP_RELU: return x <= 0 ? 0 : x;
    default: return rint(x);
    }
}

static void math_op(Agent *agent, const Instr *in, Lanes *dst, const Lanes *a) {
    bool integer = !type_is_float((Type)in->b);
    int lanes = lanes_of_function(agent, in);
    for (int l = 0; l < lanes; l++) {
        if (in->wide && !(agent->mask >> l & 1)) continue;
        Word x = integer ? word_convert(TYPE_F32, (Type)in->b, a->w[l]) : a->w[l];
        double value = math((OpId)in->c, x.f);
        if (in->approximate) value = approximate(agent->cta->machine->options.approximate, (OpId)in->c, x.f, value);
        dst->f[l] = in->type == TYPE_F64 ? value : (double)(float)value;
    }
}

// ---- moves and conversions ----
static void cast_op(Agent *agent, const Instr *in, Lanes *dst, const Lanes *a) {
    Type to = (Type)in->type, from = (Type)in->b;
    if (!type_is_float(from) && !type_is_float(to)) {
        EACH_LANE(dst->i[l] = a->i[l])
        wrap(in, dst);
        return;
    }
    if (type_is_float(from) && to == TYPE_F64) {
        EACH_LANE(dst->f[l] = a->f[l])
        return;
    }
    if (type_is_float(from) && to == TYPE_F32) {
        EACH_LANE(dst->f[l] = (double)(float)a->f[l])
        return;
    }
    int lanes = lanes_of_function(agent, in);
    for (int l = 0; l < lanes; l++)
        if (!in->wide || agent->mask >> l & 1) dst->w[l] = word_convert(to, from, a->w[l]);
}

static void bitcast_op(const Instr *in, Lanes *dst, const Lanes *a) {
    Type to = (Type)in->type, from = (Type)in->b;
    int lanes = in->wide ? LANES : 1;
    for (int l = 0; l < lanes; l++) {
        uint8_t bits[8] = {0};
        element_store(from, bits, a->w[l]);
        dst->w[l] = element_load(to, bits);
    }
}

static void assign_op(const Agent *agent, Lanes *dst, const Lanes *a) {
    if (agent->mask == UINT32_MAX) {
        memmove(dst, a, sizeof *dst);
        return;
    }
    for (int l = 0; l < LANES; l++)
        if (agent->mask >> l & 1) dst->i[l] = a->i[l];
}

static void broadcast_op(Lanes *dst, const Lanes *a) {
    int64_t value = a->i[0];
    for (int l = 0; l < LANES; l++) dst->i[l] = value;
}

// ---- parallel loops: LANES iterations at a time, the last index fastest ----
static void parallel_lanes(Agent *agent, LoopState *loop) {
    const ParallelCode *code = loop->code;
    int64_t digits[MAX_RANK], rest = loop->base, left = loop->total - loop->base;
    for (int d = code->count - 1; d >= 0; d--) {
        digits[d] = rest % loop->extent[d];
        rest /= loop->extent[d];
    }
    int lanes = left < LANES ? (int)left : LANES;
    for (int l = 0; l < lanes; l++) {
        for (int d = 0; d < code->count; d++)
            agent->regs[code->iters[d].var].i[l] = loop->begin[d] + digits[d] * loop->step[d];
        for (int d = code->count - 1; d >= 0 && ++digits[d] == loop->extent[d]; d--) digits[d] = 0;
    }
    agent->mask = lanes == LANES ? UINT32_MAX : ((Mask)1 << lanes) - 1;
}

static void parallel_start(Agent *agent, const Instr *in) {
    const ParallelCode *code = in->extra;
    LoopState *loop = &agent->loops[code->state];
    loop->code = code;
    loop->base = 0;
    loop->total = 1;
    loop->pc = agent->pc;
    for (int d = 0; d < code->count; d++) {
        loop->begin[d] = agent->regs[code->iters[d].begin].i[0];
        loop->step[d] = agent->regs[code->iters[d].step].i[0];
        loop->extent[d] = trip_count(loop->begin[d], agent->regs[code->iters[d].end].i[0], loop->step[d]);
        if (__builtin_mul_overflow(loop->total, loop->extent[d], &loop->total)) loop->total = INT64_MAX;
    }
    if (loop->total <= 0) {
        agent->pc = in->target;
        return;
    }
    if (code->checked) {
        agent->parallel = loop;
        agent->cta->machine->loop_seq++;
    }
    parallel_lanes(agent, loop);
    agent->pc++;
}

static void parallel_next(Agent *agent, const Instr *in) {
    const ParallelCode *code = in->extra;
    LoopState *loop = &agent->loops[code->state];
    loop->base += LANES;
    if (loop->base < loop->total) {
        parallel_lanes(agent, loop);
        agent->pc = in->target;
        return;
    }
    agent->parallel = NULL;
    agent->mask = agent->full;
    agent->pc++;
}

// ---- lanes that go different ways ----
static void branch(Agent *agent, const Instr *in) {   // sets the mask and the next instruction
    Mask *save = &agent->masks[in->b];
    int next = agent->pc + 1;
    switch (in->op) {
    case X_IF: {
        Mask yes = agent->mask & true_lanes(&agent->regs[in->a]);
        save[0] = agent->mask;
        save[1] = agent->mask & ~yes;
        agent->mask = yes;
        break;
    }
    case X_ELSE: agent->mask = save[1]; break;
    case X_ENDIF: agent->mask = in->c >= 0 ? save[0] & ~agent->masks[in->c] : save[0]; break;
    case X_LOOP:
        save[0] = agent->mask;
        save[1] = 0;   // left by break
        break;
    case X_LOOP_TEST:
        agent->mask &= true_lanes(&agent->regs[in->a]);
        save[2] = agent->mask;
        break;
    case X_LOOP_NEXT:
        agent->mask = save[2] & ~save[1];
        next = in->target;
        break;
    case X_LOOP_EXIT: agent->mask = save[0]; break;
    default:   // X_BREAK
        save[1] |= agent->mask;
        agent->mask = 0;
        break;
    }
    agent->pc = !agent->mask && in->target >= 0 ? in->target : next;
}

static bool aligned(const Agent *agent, const Instr *in) {
    const Mem *mem = machine_mem(agent->cta->machine, in->c);
    return mem->tensor && (uintptr_t)mem->tensor->data % (uintptr_t)in->target == 0;
}

static void assume_op(Agent *agent, const Instr *in) {
    Mask holds = in->wide ? true_lanes(&agent->regs[in->a]) : agent->regs[in->a].i[0] ? UINT32_MAX : 0;
    if (!(agent->mask & ~holds)) return;
    emu_report(agent->cta->machine, agent->pc, T_EMU_ASSUME);
    agent->cta->machine->stop = true;
}

// ---- the run ----
static void control(Agent *agent, const Instr *in) {   // everything that does not go on with the next instruction
    Lanes *r = agent->regs;
    switch (in->op) {
    case X_JUMP: agent->pc = in->target; break;
    case X_JUMP_FALSE: agent->pc = r[in->a].i[0] ? agent->pc + 1 : in->target; break;
    case X_FOR_TEST: agent->pc = r[in->a].i[0] < r[in->b].i[0] ? agent->pc + 1 : in->target; break;
    case X_FOR_NEXT:
        r[in->dst].i[0] = stepped(r[in->dst].i[0], r[in->a].i[0]);
        agent->pc = r[in->dst].i[0] < r[in->b].i[0] ? in->target : agent->pc + 1;
        break;
    case X_PARALLEL: parallel_start(agent, in); break;
    case X_PARALLEL_NEXT: parallel_next(agent, in); break;
    case X_FORK:
        agent_fork(agent, in->extra);
        agent->pc = in->target;
        break;
    case X_SPAWN:
        agent_spawn(agent, in->extra, agent->pc + 1);
        agent->pc = in->target;
        break;
    case X_GRID: agent->status = AGENT_GRID; break;
    case X_END: agent_end(agent); break;
    default: branch(agent, in); break;
    }
}

void agent_run(Agent *agent, int64_t budget) {
    Machine *machine = agent->cta->machine;
    const Instr *code = machine->code->instrs;
    Lanes *r = agent->regs;
    uint64_t most = machine->most_steps - machine->steps + 1;   // then the place is where the limit was reached
    if (most < (uint64_t)budget) budget = (int64_t)most;
    int64_t left = budget;
    while (agent->status == AGENT_READY && left-- > 0 && !machine->stop) {
        const Instr *in = &code[agent->pc];
        if (in->op >= X_JUMP && in->op <= X_END && in->op != X_LAUNCH) {
            control(agent, in);
            continue;
        }
        Lanes *dst = in->dst == -1 ? NULL : &r[in->dst];
        const Lanes *a = &r[in->a], *b = &r[in->b];
        switch ((InstrOp)in->op) {
        case X_MOVE: EACH_LANE(dst->i[l] = a->i[l]) break;
        case X_BROADCAST: broadcast_op(dst, a); break;
        case X_ASSIGN: assign_op(agent, dst, a); break;
        case X_FMA: fma_op(in, dst, a, b, &r[in->c]); break;
        case X_MATH: math_op(agent, in, dst, a); break;
        case X_SELECT: EACH_LANE(dst->i[l] = a->i[l] ? b->i[l] : r[in->c].i[l]) break;
        case X_CAST: cast_op(agent, in, dst, a); break;
        case X_BITCAST: bitcast_op(in, dst, a); break;
        case X_SMS: dst->i[0] = machine->options.multiprocessors; break;
        case X_ALIGNED: dst->i[0] = aligned(agent, in); break;
        case X_DECLARE: mem_declare(agent, in->c); break;
        case X_LOAD: access_load(agent, in, in->extra, dst); break;
        case X_STORE: access_store(agent, in, in->extra, a, (Type)in->type); break;
        case X_LOCAL_LOAD: local_load(agent, in, in->extra, dst); break;
        case X_LOCAL_STORE:
            local_store(agent, in, in->extra, a, (Type)in->type);
            machine->moves++;
            break;
        case X_CALL: {
            const Call *call = in->extra;
            machine->moves += !op_is_atomic(call->op) && !op_only_looks(call->op);
            run_op(agent, in, call);
            break;
        }
        case X_LAUNCH: machine->stop |= !launch_callee(machine, in->extra, agent); break;
        case X_ASSUME: assume_op(agent, in); break;
        default:
            if (in->approximate) quotient_op(agent, in, dst, a, b);
            else if (in->op >= X_FADD) float_op(in, dst, a, b);
            else int_op(agent, in, dst, a, b);
            break;
        }
        agent->pc++;
    }
    machine->steps += (uint64_t)(budget - left);
}
