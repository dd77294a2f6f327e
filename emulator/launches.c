// Launches that overlap: CTAs of a kernel may begin while the previous kernel still runs, up to their own wait for its
// end (PTX ISA, "griddepcontrol"). Kernels run one after the other here. The check: no thread uses global memory (its
// own inputs, or data that others also write) before its own dependency_wait, `@independent` tensors apart.
#include "emulator/machine.h"

void dependency_wait(Agent *agent) {
    Cta *cta = agent->cta;
    if (agent->warp) cta->waited[(agent->first_thread - cta->first_thread) / LANES] |= agent->mask;
}

void dependency_check(Agent *agent, int lane, const Mem *mem, int64_t element, int pc) {
    const Cta *cta = agent->cta;
    Machine *machine = cta->machine;
    if (!cta->waited || !agent->warp || mem->scope != SCOPE_GLOBAL || cta->index < 0) return;
    if (tensor_is_independent(machine->code->func, mem->buf)) return;
    if (cta->waited[(agent->first_thread - cta->first_thread) / LANES] >> lane & 1) return;
    emu_report(machine, pc, T_EMU_DEPENDENCY, thread_text(agent, lane), element_text(machine->arena, mem, element));
    machine->stop = true;
}
