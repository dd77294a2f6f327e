// Livelocks: CTAs that spin on a value that no CTA is left to store. They are distinguished from CTAs that compute for
// long without storing anything while others spin.
//
// The next steps of an agent follow from its own state (pc, registers, masks) and from memory. So while memory does not
// change, an agent that returns to an earlier state loops forever; and if all agents that can run loop, memory does not
// change. Barriers delay agents without changing their state, so the order in which agents run does not matter.
//
// All agents run side by side, an instruction each, in laps. In a lap an agent keeps its state after 1, 2, 4, 8, ... of
// its instructions, and is back when it reaches the stored state again (Brent's method to find a period). A lap ends
// when all agents that ran in it are back: a deadlock; or when memory, a copy, or the set of agents changed: none. An
// agent that reaches a barrier where no other agent will arrive ends only its own lap.
//
// Limit: an agent that counts its loads never returns to a state. It is stopped after very many instructions without a
// change.
// moved nothing.
#include "emulator/machine.h"
#include <string.h>

enum { LAPS = 4, LONGEST_LAP = 1 << 20 };   // instructions of all agents
static const uint64_t PATIENCE = 1 << 20, MOST_STILL = (uint64_t)1 << 30;

struct Lap {   // of an agent: the state that it kept
    int pc;
    Mask mask;
    const LoopState *parallel;
    Lanes *regs;
    Mask *masks;
    LoopState *loops;
    bool ran, back;   // in this lap
    uint64_t steps;   // in this lap; when they reach `next` another state is kept
    uint64_t next;
};

static size_t regs_bytes(const Code *code) {
    return sizeof(Lanes) * (size_t)(code->slots + 1);
}

static size_t masks_bytes(const Code *code) {
    return sizeof(Mask) * (size_t)(code->masks + 1);
}

static size_t loops_bytes(const Code *code) {
    return sizeof(LoopState) * (size_t)(code->parallel_count + 1);
}

static Lap *lap_of(Agent *agent) {
    const Code *code = agent->cta->machine->code;
    Arena *arena = agent->cta->machine->arena;
    if (agent->lap) return agent->lap;
    Lap *lap = agent->lap = NEW(arena, Lap);
    lap->regs = arena_alloc(arena, regs_bytes(code));
    lap->masks = arena_alloc(arena, masks_bytes(code));
    lap->loops = arena_alloc(arena, loops_bytes(code));
    return lap;
}

static void keep(const Agent *agent, const Code *code) {
    Lap *lap = agent->lap;
    lap->pc = agent->pc;
    lap->mask = agent->mask;
    lap->parallel = agent->parallel;
    memcpy(lap->regs, agent->regs, regs_bytes(code));
    memcpy(lap->masks, agent->masks, masks_bytes(code));
    memcpy(lap->loops, agent->loops, loops_bytes(code));
}

static bool is_back(const Agent *agent, const Code *code) {
    const Lap *lap = agent->lap;
    return lap->pc == agent->pc && lap->mask == agent->mask && lap->parallel == agent->parallel &&
           memcmp(lap->regs, agent->regs, regs_bytes(code)) == 0 &&
           memcmp(lap->masks, agent->masks, masks_bytes(code)) == 0 &&
           memcmp(lap->loops, agent->loops, loops_bytes(code)) == 0;
}

static void step(Agent *agent) {
    const Code *code = agent->cta->machine->code;
    Lap *lap = agent->lap;
    if (!lap->ran) {
        keep(agent, code);
        lap->ran = true;
    }
    agent_run(agent, 1);
    lap->back = lap->back || is_back(agent, code);
    if (lap->back || ++lap->steps < lap->next) return;
    keep(agent, code);
    lap->next *= 2;
}

// The n-th agent of all resident CTAs, including agents that do not run; NULL: no more.
static Agent *next_agent(const Machine *machine, int *cta, int *agent) {
    for (; *cta < machine->cta_count; ++*cta, *agent = 0)
        if (machine->ctas[*cta].live && *agent < machine->ctas[*cta].agent_count)
            return machine->ctas[*cta].agents[(*agent)++];
    return NULL;
}

// An instruction of each that can run. Whether all that ran in the lap are back.
static bool all_step(Machine *machine, uint64_t moves) {
    bool back = true;
    int c = 0, a = 0;
    for (Agent *agent; (agent = next_agent(machine, &c, &a));) {
        if (agent->status == AGENT_READY) step(agent);
        if (machine->stop || machine->moves != moves) return false;
        back &= !agent->lap->ran || agent->lap->back;
    }
    return back;
}

static bool all_go_round(Machine *machine) {
    uint64_t moves = machine->moves;
    if (machine->bulk_count) return false;
    for (int n = 0; n < LAPS; n++) {
        int c = 0, a = 0;
        for (Agent *agent; (agent = next_agent(machine, &c, &a));) {
            Lap *lap = lap_of(agent);
            lap->ran = lap->back = false;
            lap->steps = 0;
            lap->next = 1;
        }
        uint64_t end = machine->steps + LONGEST_LAP;
        while (machine->steps < end) {
            if (all_step(machine, moves)) return true;
            if (machine->stop || machine->moves != moves) return false;
        }
    }
    return false;
}

static const Agent *spinning_agent(const Machine *machine) {
    int c = 0, a = 0;
    Agent *agent;
    while ((agent = next_agent(machine, &c, &a)))
        if (agent->status == AGENT_READY) break;
    return agent;
}

bool livelocked(Machine *machine) {
    if (!machine->code->spins) return false;
    if (machine->moves != machine->seen_moves) {
        machine->seen_moves = machine->moves;
        machine->still_since = machine->steps;
        machine->next_look = machine->steps + PATIENCE;
    }
    if (machine->steps < machine->next_look) return false;
    bool round = all_go_round(machine);
    const Agent *agent = spinning_agent(machine);
    uint64_t still = machine->steps - machine->still_since;
    machine->next_look = machine->steps + still;
    if (machine->stop || !agent || machine->moves != machine->seen_moves || !(round || still > MOST_STILL))
        return false;
    if (round)
        emu_report(machine, agent->pc, T_EMU_DEADLOCK, thread_text(agent, 0), "a value that it loads again and again");
    else emu_report(machine, agent->pc, T_EMU_ENDLESS, (long long)machine->steps);
    return machine->stop = true;
}
