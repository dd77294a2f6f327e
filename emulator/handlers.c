// Finds and runs the handler of an op (handlers.h).
#include "emulator/machine.h"

static void no_effect(Agent *agent) {
    (void)agent;
}

// Kernels run one after the other here, a prefetch is a hint, and at tile stage a role is one agent.
static const OpHandler other_handlers[OP_COUNT] = {
    [OP_FENCE] = {.effect = race_fence},
    [OP_FENCE_ASYNC] = {.no_operands = race_fence_async},
    [OP_DEPENDENCY_WAIT] = {.no_operands = dependency_wait},
    [OP_LAUNCH_DEPENDENTS] = {.no_operands = no_effect},
    [OP_TMA_PREFETCH] = {.no_operands = no_effect},
    [OP_BULK_PREFETCH] = {.no_operands = no_effect},
    [OP_ORDER_ACQUIRE] = {.no_operands = no_effect},
    [OP_ORDER_RELEASE] = {.no_operands = no_effect},
};

static bool is_handler(const OpHandler *row) {
    return row->with_result || row->effect || row->no_operands;
}

const OpHandler *op_handler(OpId op) {
    static const OpHandler *const families[] = {thread_handlers, barrier_handlers, cluster_handlers,
                                                copy_handlers,   matrix_handlers,  bulk_handlers,
                                                wgmma_handlers,  channel_handlers, other_handlers};
    if (op_is(op, OP_CLASS_TILE)) return &tile_handler;
    for (int i = 0; i < COUNT_OF(families); i++)
        if (is_handler(&families[i][op])) return &families[i][op];
    return NULL;
}

static void unsupported(Agent *agent, const char *what) {
    emu_report(agent->cta->machine, agent->pc, T_EMU_UNSUPPORTED, what);
    agent->cta->machine->stop = true;
}

// regs(x)[r] as an operand of an instruction: lowering makes a local array of the fragment, which this is not yet.
static bool takes_fragments(const Call *call) {
    for (int i = 0; i < call->count; i++)
        if (call->args[i].place && call->args[i].place->regs) return true;
    return false;
}

void run_op(Agent *agent, const Instr *in, const Call *call) {
    const OpHandler *handler = call->handler;
    if (!handler) unsupported(agent, op_info(call->op)->text);
    else if (takes_fragments(call)) unsupported(agent, "regs as an operand");
    else if (handler->with_result) handler->with_result(agent, in, call);
    else if (handler->effect) handler->effect(agent, call);
    else handler->no_operands(agent);
}
