// Channels at tile stage.
//
// A slot is full and free in rank. The n-th time that a slot is full ends when all producers have committed, and the
// n-th time that it is free again when all readers have released. Each group counts for itself, so which phase it waits
// for is known, and no wait here depends on a parity: those are of lower-channels, whose mbarriers the emulator checks
// in rank. But a parity is what a group has in the end, so it must know of each time that its slot was full before,
// also where it has skipped them: it hears of that through those who received them, not through those who filled the
// slot, since a later filling may land first.
//
// A slot that is acquired is empty: its elements are undefined until they are written. What a group started (async)
// into a slot lands at its commit. What it started that reads a slot has read it at its release, but its result is not
// there before it is awaited.
#include "emulator/channels.h"
#include "emulator/compile.h"
#include "emulator/machine.h"
#include <string.h>

typedef struct SlotRun {
    int64_t full, free;          // how often it has been
    int64_t commits, releases;   // of groups, in this phase
    int64_t bytes;               // that CTAs of the cluster have stored, in this phase
    uint32_t first_epoch;        // of its unit, where groups skip
    int64_t undefined;           // the production for which its elements were last made undefined
    Clock *committed, *released;
    int commit_pc, receive_pc;
} SlotRun;

struct ChannelRun {
    SlotRun *slots;
    int64_t sections;   // that are over
    Clock *left;
    int leave_pc;
};

// ---- compilation ----
static ChannelCode *code_of(Compiler *c, const Channel *channel, int number) {
    ChannelCode *code = NEW(c->arena, ChannelCode);
    *code = (ChannelCode){.buf = channel->buf,
                          .number = number,
                          .slots = (int)buf_extent(channel->buf, 0),
                          .producers = channel_producers(channel),
                          .readers = channel_readers(channel),
                          .tile_count = channel->tiles.count};
    code->entrants = NEW_ARRAY(c->arena, const char *, channel->groups.count + 1);
    bool skipped = false;
    for (int i = 0; i < channel->groups.count; i++) {
        const ChannelGroup *group = &channel->groups.items[i];
        skipped |= group->skips;
        if (group->enters) code->entrants[code->groups++] = group->role ? group->role->role.name : NULL;
    }
    code->heard = skipped ? c->code->heard_slots : -1;
    if (skipped) c->code->heard_slots += code->slots;
    code->tiles = NEW_ARRAY(c->arena, int, channel->tiles.count + 1);
    for (int i = 0; i < channel->tiles.count; i++) code->tiles[i] = compile_mem(c, channel->tiles.items[i]);
    if (channel->by_peers) code->peer_bytes = channel_slot_bytes(channel);
    return code;
}

void compile_channels(Compiler *c) {
    Code *code = c->code;
    if (code->func->kind != FUNC_KERNEL || !has_channels(code->func)) return;
    c->channels = channels_of(c->arena, code->func);
    code->channels = NEW_ARRAY(c->arena, ChannelCode *, c->channels.all.count + 1);
    VEC_EACH_PTR (Channel, channel, &c->channels.all) {
        code->channels[code->channel_count] = code_of(c, channel, code->channel_count);
        code->channel_count++;
    }
}

static const Channel *operand_channel(Compiler *c, const Arg *arg) {
    if (arg->value) return channel_of_handle(&c->channels, arg->value);
    const Buf *buf = arg->region ? arg->region->buf : NULL;
    return buf ? map_get(c->channels.by_buf, buf->channel ? buf->channel : buf) : NULL;
}

const ChannelCode *compile_call_channel(Compiler *c, int count, const Arg *args) {
    const Channel *channel = c->code->channel_count && count ? operand_channel(c, &args[0]) : NULL;
    for (int i = 0; channel && i < c->code->channel_count; i++)
        if (c->code->channels[i]->buf == channel->buf) return c->code->channels[i];
    return NULL;
}

// ---- state ----
static ChannelRun *run_of(const Cta *cta, const ChannelCode *code) {
    return &cta->channels[code->number];
}

static void drop(Cta *cta, Clock **clock) {
    if (cta->machine->races) clock_drop(cta, clock);
}

void channels_begin(Cta *cta) {
    const Code *code = cta->machine->code;
    Arena *arena = cta->machine->arena;
    if (code->channel_count && !cta->channels) {
        cta->channels = NEW_ARRAY(arena, ChannelRun, code->channel_count);
        for (int i = 0; i < code->channel_count; i++)
            cta->channels[i].slots = NEW_ARRAY(arena, SlotRun, code->channels[i]->slots);
    }
    for (int i = 0; i < code->channel_count; i++) {
        ChannelRun *run = &cta->channels[i];
        drop(cta, &run->left);
        for (int s = 0; s < code->channels[i]->slots; s++) {
            drop(cta, &run->slots[s].committed);
            drop(cta, &run->slots[s].released);
            run->slots[s] = (SlotRun){.undefined = -1, .commit_pc = -1, .receive_pc = -1};
        }
        *run = (ChannelRun){.slots = run->slots, .leave_pc = -1};
    }
}

ChannelCount *channel_counts(Agent *agent) {
    const Machine *machine = agent->cta->machine;
    if (!agent->channels) agent->channels = NEW_ARRAY(machine->arena, ChannelCount, machine->code->channel_count + 1);
    return agent->channels;
}

// ---- what agents tell each other ----
static void tell(Agent *agent, Clock **clock) {
    if (!clocked(agent)) return;
    clock_arrive(agent->cta, clock, agent->first_thread);
    clock_tick(agent->cta, agent->first_thread / LANES);
}

static void hear(Agent *agent, Clock *clock) {
    if (clocked(agent)) clock_depart(agent->cta, clock, agent->first_thread, false);
}

static void wait_here(Agent *agent, const ChannelCode *code, int64_t number) {
    agent->status = AGENT_CHANNEL;
    agent->channel = code;
    agent->channel_number = number;
    agent->wait_pc = agent->pc;
    agent->pc--;
}

static void wake(const Cta *cta) {
    for (int i = 0; i < cta->agent_count; i++)
        if (cta->agents[i]->status == AGENT_CHANNEL) cta->agents[i]->status = AGENT_READY;
}

// ---- slots ----
static void give_handle(Agent *agent, const Instr *in, int64_t slot) {
    for (int l = 0; l < LANES; l++) agent->regs[in->dst].i[l] = slot;
}

static void undefine(const Cta *cta, const ChannelCode *code, int64_t slot) {
    for (int i = 0; i < code->tile_count; i++) {
        const Mem *mem = machine_mem(cta->machine, code->tiles[i]);
        int64_t elements = mem->elements / code->slots;
        state_set(cta, mem, slot * elements, elements, STATE_NONE);
    }
}

static void acquire(Agent *agent, const Instr *in, const Call *call) {
    const ChannelCode *code = call->channel;
    ChannelCount *count = &channel_counts(agent)[code->number];
    int64_t number = count->filled, slot = number % code->slots;
    SlotRun *run = &run_of(agent->cta, code)->slots[slot];
    if (code->peer_bytes ? count->received + code->slots <= number : run->free < number / code->slots) {
        wait_here(agent, code, number);
        return;
    }
    hear(agent, run->released);
    if (!code->peer_bytes && run->undefined < number) undefine(agent->cta, code, slot);
    run->undefined = number;
    count->filled++;
    give_handle(agent, in, slot);
}

static int unit_of_slot(const Cta *cta, const ChannelCode *code, int64_t slot) {
    return cta->rank * cta->machine->code->heard_slots + code->heard + (int)slot;
}

// Who hears of the commits learns that the slot is full once more.
static void publish(const Agent *agent, const ChannelCode *code, SlotRun *run, int64_t slot) {
    int unit = unit_of_slot(agent->cta, code, slot);
    if (!run->full) run->first_epoch = unit_epoch(agent->cta, UNIT_SLOT, unit);
    unit_tell(agent->cta, &run->committed, UNIT_SLOT, unit);
    unit_next(agent->cta, UNIT_SLOT, unit);
}

// Whether the group knows that the slot has been full so many times.
static bool knows_of(const Agent *agent, const ChannelCode *code, const SlotRun *run, int64_t slot, int64_t times) {
    if (code->heard < 0 || !clocked(agent) || !times) return true;
    uint32_t known = unit_known(agent, 0, UNIT_SLOT, unit_of_slot(agent->cta, code, slot));
    return run->full && (int64_t)known + 1 - run->first_epoch >= times;
}

static void fill(Cta *cta, SlotRun *run) {
    run->full++;
    run->commits = run->bytes = 0;
    wake(cta);
}

static int64_t handle_of(const Agent *agent, const Call *call) {
    return agent->regs[CALL_ARG(call, COMMIT, slot).slot].i[0];
}

static void commit(Agent *agent, const Call *call) {
    const ChannelCode *code = call->channel;
    int64_t slot = handle_of(agent, call);
    SlotRun *run = &run_of(agent->cta, code)->slots[slot];
    run->commit_pc = agent->pc;
    for (int i = 0; i < code->tile_count; i++)
        tile_land_slot(agent, machine_mem(agent->cta->machine, code->tiles[i]), slot);
    if (code->peer_bytes) return;
    tell(agent, &run->committed);
    if (++run->commits < code->producers) return;
    if (code->heard >= 0 && clocked(agent)) publish(agent, code, run, slot);
    fill(agent->cta, run);
}

static void report_untimely(const Agent *agent, const ChannelCode *code, int commit_pc, int64_t number, bool late) {
    Diag *d = emu_report_pair(agent->cta->machine, agent->pc, commit_pc, T_EMU_OVERTAKEN, thread_text(agent, 0),
                              (long long)number, code->buf->name,
                              late ? "late: its slot has been filled again"
                                   : "early: nothing tells it that the productions before have been in its slot");
    if (d) diag_label(d, code->buf->loc, "the channel");
    agent->cta->machine->stop = true;
}

static void receive(Agent *agent, const Instr *in, const Call *call) {
    const ChannelCode *code = call->channel;
    ChannelCount *count = &channel_counts(agent)[code->number];
    int64_t number = count->received, slot = number % code->slots;
    SlotRun *run = &run_of(agent->cta, code)->slots[slot];
    bool known = knows_of(agent, code, run, slot, number / code->slots);
    if (!known || run->full > number / code->slots + 1) {
        report_untimely(agent, code, run->commit_pc, number, known);
        return;
    }
    if (run->full <= number / code->slots) {
        wait_here(agent, code, number);
        return;
    }
    hear(agent, run->committed);
    run->receive_pc = agent->pc;
    count->received++;
    give_handle(agent, in, slot);
}

static void release(Agent *agent, const Call *call) {
    const ChannelCode *code = call->channel;
    int64_t slot = handle_of(agent, call);
    SlotRun *run = &run_of(agent->cta, code)->slots[slot];
    for (int i = 0; i < code->tile_count; i++)
        tile_finish_reads(agent, machine_mem(agent->cta->machine, code->tiles[i]), slot);
    tell(agent, &run->released);
    if (++run->releases < code->readers) return;
    run->releases = 0;
    run->free++;
    wake(agent->cta);
}

static void skip(Agent *agent, const Call *call) {
    int64_t count = agent->regs[CALL_ARG(call, SKIP, n).slot].i[0];
    channel_counts(agent)[call->channel->number].received += count > 0 ? count : 0;
}

void channel_peer_stored(Agent *agent, Cta *cta, const ChannelCode *code, int64_t slot, int lane, int bytes) {
    SlotRun *run = &run_of(cta, code)->slots[slot];
    if (clocked(agent)) clock_arrive(cta, &run->committed, agent->first_thread + lane);
    run->bytes += bytes;
    if (run->bytes == code->peer_bytes) fill(cta, run);
}

// ---- sections ----
static int rank_of(const Agent *agent, const ChannelCode *code) {
    for (int i = 0; i < code->groups; i++)
        if (agent->role && code->entrants[i] && strcmp(code->entrants[i], agent->role->name) == 0) return i;
    return 0;
}

static void enter(Agent *agent, const Call *call) {
    const ChannelCode *code = call->channel;
    ChannelCount *count = &channel_counts(agent)[code->number];
    ChannelRun *run = run_of(agent->cta, code);
    int64_t section = count->entered * code->groups + rank_of(agent, code);
    if (run->sections < section) {
        wait_here(agent, code, section);
        return;
    }
    hear(agent, run->left);
    count->entered++;
}

static void leave(Agent *agent, const Call *call) {
    ChannelRun *run = run_of(agent->cta, call->channel);
    run->sections++;
    run->leave_pc = agent->pc;
    tell(agent, &run->left);
    wake(agent->cta);
}

// ---- reports ----
static int line_of(const Agent *agent, int pc) {
    return pc >= 0 ? agent->cta->machine->code->places[pc].line : 0;
}

static const char *at_line(const Agent *agent, const char *what, int pc) {
    return pc < 0 ? "" : arena_printf(agent->cta->machine->arena, "; %s on line %d", what, line_of(agent, pc));
}

static const char *full_text(const Agent *agent, const SlotRun *run, int64_t slot) {
    const ChannelCode *code = agent->channel;
    Arena *arena = agent->cta->machine->arena;
    long long number = (long long)agent->channel_number;
    if (code->peer_bytes)
        return arena_printf(arena, "production %lld of channel %s, of which %lld of %lld bytes have come", number,
                            code->buf->name, (long long)run->bytes, (long long)code->peer_bytes);
    return arena_printf(arena, "production %lld of channel %s, in slot %lld, which %lld of %d groups have committed%s",
                        number, code->buf->name, (long long)slot, (long long)run->commits, code->producers,
                        at_line(agent, "it was last committed", run->commit_pc));
}

static const char *free_text(const Agent *agent, const SlotRun *run, int64_t slot) {
    const ChannelCode *code = agent->channel;
    return arena_printf(agent->cta->machine->arena,
                        "slot %lld of channel %s, for production %lld, which %lld of %lld groups have released%s",
                        (long long)slot, code->buf->name, (long long)agent->channel_number, (long long)run->releases,
                        (long long)code->readers, at_line(agent, "it was last received", run->receive_pc));
}

const char *channel_wait_text(const Agent *agent) {
    const ChannelCode *code = agent->channel;
    const ChannelRun *run = run_of(agent->cta, code);
    OpId op = ((const Call *)agent->cta->machine->code->instrs[agent->wait_pc].extra)->op;
    int64_t slot = agent->channel_number % code->slots;
    if (op == OP_ENTER)
        return arena_printf(agent->cta->machine->arena, "section %lld of channel %s, where %lld are over%s",
                            (long long)agent->channel_number, code->buf->name, (long long)run->sections,
                            at_line(agent, "one was last left", run->leave_pc));
    return op == OP_ACQUIRE ? free_text(agent, &run->slots[slot], slot) : full_text(agent, &run->slots[slot], slot);
}

static bool has_elements(const Cta *cta, const ChannelCode *code, int64_t slot) {
    for (int i = 0; i < code->tile_count; i++) {
        const Mem *mem = machine_mem(cta->machine, code->tiles[i]);
        const uint8_t *state = mem_state(cta, mem);
        int64_t count = mem->elements / code->slots * mem->unit;
        for (int64_t n = slot * count; n < (slot + 1) * count; n++)
            if (state[n] != STATE_NONE) return true;
    }
    return false;
}

// Every production into which something was written is received by all groups that receive it.
static void check_received(const Cta *cta, const ChannelCode *code) {
    for (int s = 0; s < code->slots; s++) {
        const SlotRun *run = &cta->channels[code->number].slots[s];
        if ((run->full <= run->free && !run->releases) || !has_elements(cta, code, s)) continue;
        emu_report_pair(cta->machine, run->commit_pc, run->receive_pc, T_EMU_UNRECEIVED, s, code->buf->name,
                        (long long)run->full, (long long)run->free);
        return;
    }
}

void channels_end(Cta *cta) {
    const Code *code = cta->machine->code;
    for (int i = 0; i < code->channel_count; i++) check_received(cta, code->channels[i]);
}

const OpHandler channel_handlers[OP_COUNT] = {
    [OP_ACQUIRE] = {.with_result = acquire}, [OP_COMMIT] = {.effect = commit}, [OP_RECEIVE] = {.with_result = receive},
    [OP_RELEASE] = {.effect = release},      [OP_SKIP] = {.effect = skip},     [OP_ENTER] = {.effect = enter},
    [OP_LEAVE] = {.effect = leave},
};
