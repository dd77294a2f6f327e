// Launches that overlap: a kernel's blocks may begin while the kernel launched before it still runs, where it waits for
// that one's end itself (PTX ISA, "griddepcontrol"). Kernels run one after the other here; what is checked is that no
// thread uses global memory, its own inputs or what others also write, ahead of its own dependency_wait.
#include "emulator/machine.h"

void dependency_wait(Agent *agent) {
    Cta *cta = agent->cta;
    if (agent->warp) cta->waited[(agent->first_thread - cta->first_thread) / LANES] |= agent->mask;
}

void dependency_check(Agent *agent, int lane, const Mem *mem, int64_t element, int pc) {
    const Cta *cta = agent->cta;
    Machine *machine = cta->machine;
    if (!cta->waited || !agent->warp || mem->scope != SCOPE_GLOBAL || cta->index < 0) return;
    if (cta->waited[(agent->first_thread - cta->first_thread) / LANES] >> lane & 1) return;
    emu_report(machine, pc, T_EMU_DEPENDENCY, thread_text(agent, lane), element_text(machine->arena, mem, element));
    machine->stop = true;
}
