// Reports: diagnostics of an execution. The same fault at the same place is reported once, and after MOST_REPORTS the
// run stops: what follows is usually their consequence. It also stops after MOST_REPEATED of those that were known.
#include "emulator/machine.h"

static Span place_of(const Machine *machine, int pc) {
    return pc >= 0 && pc < machine->code->count ? machine->code->places[pc] : machine->code->func->loc;
}

static bool known(Machine *machine, DiagCode code, int pc, int other_pc) {
    uintptr_t key = ((uintptr_t)code * 1000003 + (uintptr_t)(pc + 1)) * 1000003 + (uintptr_t)(other_pc + 1);
    if (map_has(machine->reported, (const void *)key)) return true;
    map_put(machine->reported, (const void *)key, machine);
    return false;
}

static Diag *report_v(Machine *machine, int pc, int other_pc, DiagCode code, va_list args) {
    if (machine->stop) return NULL;
    if (known(machine, code, pc, other_pc)) {
        machine->stop = ++machine->repeated == MOST_REPEATED;
        return NULL;
    }
    if (++machine->reports >= MOST_REPORTS) machine->stop = true;
    return diag_v(machine->sink, place_of(machine, pc), code, args);
}

Diag *emu_report(Machine *machine, int pc, DiagCode code, ...) {
    va_list args;
    va_start(args, code);
    Diag *d = report_v(machine, pc, -1, code, args);
    va_end(args);
    return d;
}

Diag *emu_report_pair(Machine *machine, int pc, int other_pc, DiagCode code, ...) {
    va_list args;
    va_start(args, code);
    Diag *d = report_v(machine, pc, other_pc, code, args);
    va_end(args);
    if (d && other_pc >= 0) diag_label(d, place_of(machine, other_pc), "the other access");
    return d;
}

// Whether the instruction closes a loop around the one at pc, which some text of the program says.
static bool closes_loop(const Code *code, int at, int pc) {
    InstrOp op = (InstrOp)code->instrs[at].op;
    bool back = op == X_JUMP || op == X_FOR_NEXT || op == X_LOOP_NEXT || op == X_PARALLEL_NEXT;
    return back && code->instrs[at].target <= pc && pc <= at;
}

void report_endless(Machine *machine, int pc) {
    const Code *code = machine->code;
    Diag *d = emu_report(machine, pc, T_EMU_ENDLESS, (long long)machine->most_steps);
    Span last = place_of(machine, pc);
    for (int at = pc; d && pc >= 0 && at < code->count; at++) {
        Span loop = code->places[at];
        if (!closes_loop(code, at, pc) || (loop.line == last.line && loop.column == last.column)) continue;
        diag_label(d, last = loop, "in this loop");
    }
    if (d && machine->ctas_wanted > 1)
        diag_note(d, "%lld of the launch's %lld CTAs had ended", (long long)machine->ctas_ended,
                  (long long)machine->ctas_wanted);
    machine->stop = true;
}

bool spend(Agent *agent, int64_t work, int64_t of_a_step) {
    Machine *machine = agent->cta->machine;
    machine->steps += (uint64_t)(work / of_a_step);
    if (machine->steps <= machine->most_steps) return true;
    report_endless(machine, agent->pc);
    return false;
}

static const char *cta_text(const Cta *cta) {
    return arena_printf(cta->machine->arena, "CTA %lld", (long long)cta->index);
}

const char *thread_index_text(const Cta *cta, int thread) {   // thread: in the cluster
    int block = (int)cta->machine->code->padded_threads, rank = block ? thread / block : 0;
    return arena_printf(cta->machine->arena, "thread %d of CTA %lld", block ? thread % block : thread,
                        (long long)cta->members[rank].index);
}

const char *thread_text(const Agent *agent, int lane) {
    const Cta *cta = agent->cta;
    Arena *arena = cta->machine->arena;
    if (agent->warp) return thread_index_text(cta, agent->first_thread + lane);
    if (agent->parallel) {
        int64_t rest = agent->parallel->base + lane, index[MAX_RANK] = {0};
        const ParallelCode *code = agent->parallel->code;
        for (int d = code->count - 1; d >= 0; d--) {
            index[d] = agent->parallel->begin[d] + rest % agent->parallel->extent[d] * agent->parallel->step[d];
            rest /= agent->parallel->extent[d];
        }
        StrBuf sb;
        sb_init(&sb, arena);
        sb_str(&sb, "iteration (");
        for (int d = 0; d < code->count; d++) sb_printf(&sb, d ? ", %lld" : "%lld", (long long)index[d]);
        sb_printf(&sb, ") of CTA %lld", (long long)cta->index);
        return sb_text(&sb);
    }
    if (cta->index < 0) return cta->machine->code->func->name;
    if (agent->role) return arena_printf(arena, "role %s of CTA %lld", agent->role->name, (long long)cta->index);
    return cta_text(cta);
}
