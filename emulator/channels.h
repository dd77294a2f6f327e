// Channels at tile stage (emulator/channels.c): slots that groups fill and empty.
//
// In: acquire, commit, receive, release, skip, enter and leave of an agent, which is a role or the CTA. Out: agents that
// wait or go on, clocks (race.h) that carry what the others did, and reports of slots that no group received.
#pragma once
#include "emulator/code.h"

typedef struct Cta Cta;

typedef struct ChannelRun ChannelRun;   // of a CTA
typedef struct ChannelCount {   // of an agent: slots that it has filled and received, sections that it has entered
    int64_t filled, received, entered;
} ChannelCount;

struct ChannelCode {
    const Buf *buf;
    int number, slots, groups, producers;   // groups: those that enter a section
    int64_t readers;
    int heard;   // a group skips slots: the first one's number among those of which it matters who knows; -1: none does
    const char **entrants;   // names of the roles that enter, in rank
    int tile_count, *tiles;
    int64_t peer_bytes;   // of a slot that the CTAs of a cluster fill together; 0: one CTA's
};

void channels_begin(Cta *cta);
void channels_end(Cta *cta);   // reports what was filled and not received
ChannelCount *channel_counts(Agent *agent);
const char *channel_wait_text(const Agent *agent);
// A store of another CTA, or of its own, of so many bytes to the slot.
void channel_peer_stored(Agent *agent, Cta *cta, const ChannelCode *channel, int64_t slot, int lane, int bytes);
