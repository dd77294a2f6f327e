// Channels of a kernel: who fills and who reads their slots, as its statements say.
//
// In: a tile-stage kernel. Out: for each channel its tiles and its groups. A group is a role or, where the operations
// stand outside of roles, the CTA.
#pragma once
#include "ir/query.h"

typedef struct ChannelGroup {
    const Stmt *role;   // NULL: the CTA. Of an array: so many groups with one text
    int members;
    bool produces, receives, skips, enters;
} ChannelGroup;

typedef struct Channel {
    Buf *buf;
    VEC(Buf *) tiles;
    bool by_peers;              // the CTAs of a cluster fill each slot together, each in the memory of all (peer_store)
    VEC(ChannelGroup) groups;   // in the order of the text: of a section, that in which they enter
} Channel;

typedef struct Channels {
    VEC(Channel *) all;
    Map *by_buf;    // Buf -> Channel
    Map *handles;   // Var of a handle -> Channel
} Channels;

Channels channels_of(Arena *arena, const Func *kernel);
bool has_channels(const Func *kernel);
bool roles_share_channels(const Func *kernel);   // two roles use one channel: they meet at mbarriers
bool roles_share_channel(const Func *kernel, const Buf *channel);
bool role_uses_channel(const Func *kernel, const Buf *channel);   // it is not the CTA's
// A group that fills a slot touches the tile more than by one copy before it commits: what it copies has to be there.
bool is_used_before_commit(Arena *arena, const Func *kernel, const Buf *tile);
// The channel of an acquire or receive, or of an operand that is a handle; NULL: of none.
Channel *channel_of_handle(const Channels *channels, const Expr *handle);
int channel_producers(const Channel *channel);
int64_t channel_slot_bytes(const Channel *channel);
int64_t channel_readers(const Channel *channel);   // groups that receive each production
int channel_receivers(const Channel *channel);
int channel_enters(const Channel *channel);   // groups that pass its sections
int channel_rank(const Channel *channel,
                 const Stmt *role);   // of its first member among those that enter; -1: it does not
// The channel's groups are one, which fills and reads: slots are handed on within it.
bool channel_is_own(const Channel *channel);
static inline bool is_acquire(const Stmt *stmt) {
    return stmt->kind == STMT_LET && is_expr_call(stmt->let.value, OP_ACQUIRE);
}
// `let u = receive(..)`; of a handle that one iteration hands to the next `var u: slot = receive(..)`, `u = receive(..)`.
static inline bool is_receive(const Stmt *stmt) {
    bool binds = stmt->kind == STMT_LET || stmt->kind == STMT_VAR || stmt->kind == STMT_ASSIGN;
    return binds && stmt->let.value && is_expr_call(stmt->let.value, OP_RECEIVE);
}
bool receive_updates(const Stmt *receive);   // the group may write the slot, which no other one reads any more
