#include "ir/channels.h"
#include "ir/build.h"

typedef struct Finder {
    Arena *arena;
    Channels *out;
} Finder;

static ChannelGroup *group_of(Finder *f, Channel *channel, const Stmt *role) {
    for (int i = 0; i < channel->groups.count; i++)
        if (channel->groups.items[i].role == role) return &channel->groups.items[i];
    ChannelGroup group = {.role = role, .members = role ? (int)role_members(role) : 1};
    vec_push(f->arena, &channel->groups, group);
    return &vec_last(&channel->groups);
}

static Channel *named(Finder *f, const Expr *call) {
    return map_get(f->out->by_buf, call->call.args[0].region->buf);
}

static void find_uses(Finder *f, const Stmt *stmt, const Stmt *role) {
    const Buf *stored = is_call(stmt, OP_PEER_STORE) ? ARG(stmt, PEER_STORE, x).region->buf : NULL;
    if (stored && stored->channel) ((Channel *)map_get(f->out->by_buf, stored->channel))->by_peers = true;
    bool handle = is_acquire(stmt) || is_receive(stmt);
    Channel *channel = handle ? named(f, stmt->let.value) : NULL;
    if (channel) {
        map_put(f->out->handles, stmt->let.var, channel);
        ChannelGroup *group = group_of(f, channel, role);
        group->produces |= is_acquire(stmt);
        group->receives |= is_receive(stmt);
    }
    if (!is_call(stmt, OP_ENTER) && !is_call(stmt, OP_SKIP)) return;
    channel = map_get(f->out->by_buf, stmt->call.args[0].region->buf);
    ChannelGroup *group = channel ? group_of(f, channel, role) : NULL;
    if (group && is_call(stmt, OP_ENTER)) group->enters = true;
    else if (group) group->receives = group->skips = true;
}

static void find_channel(Finder *f, Buf *buf) {
    if (buf->channel && map_has(f->out->by_buf, buf->channel)) {
        Channel *channel = map_get(f->out->by_buf, buf->channel);
        vec_push(f->arena, &channel->tiles, buf);
    }
    if (buf->type != TYPE_CHANNEL) return;
    Channel *channel = NEW(f->arena, Channel);
    channel->buf = buf;
    vec_push(f->arena, &f->out->all, channel);
    map_put(f->out->by_buf, buf, channel);
}

bool receive_updates(const Stmt *receive) {
    const Expr *call = receive->let.value;
    int64_t update;
    return call->call.count > 1 && call->call.args[1].value && expr_const(call->call.args[1].value, &update) && update;
}

bool has_channels(const Func *kernel) {
    FOR_EACH_STMT (stmt, &kernel->body)
        if (stmt->kind == STMT_DECL && stmt->decl->type == TYPE_CHANNEL) return true;
    return false;
}

static bool uses_channel(const Stmt *stmt, void *channel) {
    bool begins = is_acquire(stmt) || is_receive(stmt);
    bool calls = is_call(stmt, OP_ENTER) || is_call(stmt, OP_SKIP);
    const Arg *operand = begins ? stmt->let.value->call.args : calls ? stmt->call.args : NULL;
    return operand && operand->region->buf == channel;
}

bool roles_share_channel(const Func *kernel, const Buf *channel) {
    int roles = 0;
    FOR_EACH_STMT (stmt, &kernel->body)
        if (stmt->kind == STMT_ROLE && block_any(&stmt->role.body, uses_channel, (Buf *)channel))
            roles += (int)role_members(stmt);
    return roles > 1;
}

bool role_uses_channel(const Func *kernel, const Buf *channel) {
    FOR_EACH_STMT (stmt, &kernel->body)
        if (stmt->kind == STMT_ROLE && block_any(&stmt->role.body, uses_channel, (Buf *)channel)) return true;
    return false;
}

bool roles_share_channels(const Func *kernel) {
    FOR_EACH_STMT (stmt, &kernel->body)
        if (stmt->kind == STMT_DECL && stmt->decl->type == TYPE_CHANNEL && roles_share_channel(kernel, stmt->decl))
            return true;
    return false;
}

static int effects_before_commit(Arena *arena, const Block *block, int at, const Buf *tile) {
    const Var *handle = block->items[at]->let.var;
    int effects = 0;
    for (int i = at + 1; i < block->count; i++) {
        const Stmt *stmt = block->items[i];
        if (is_call(stmt, OP_COMMIT) && ARG(stmt, COMMIT, slot).value->var == handle) break;
        if (stmt_uses_var(stmt, handle)) effects += count_effects(arena, stmt, tile);
    }
    return effects;
}

bool is_used_before_commit(Arena *arena, const Func *kernel, const Buf *tile) {
    FOR_EACH_STMT (stmt, &kernel->body)
        if (is_acquire(stmt) && stmt->let.value->call.args[0].region->buf == tile->channel &&
            effects_before_commit(arena, BLOCK_OF(stmt), INDEX_OF(stmt), tile) > 1)
            return true;
    return false;
}

Channels channels_of(Arena *arena, const Func *kernel) {
    Channels out = {.by_buf = map_new(arena), .handles = map_new(arena)};
    Finder f = {arena, &out};
    if (!has_channels(kernel)) return out;
    FOR_EACH_STMT (stmt, &kernel->body)
        if (stmt->kind == STMT_DECL) find_channel(&f, stmt->decl);
    FOR_EACH_STMT (stmt, &kernel->body) {
        if (stmt->kind != STMT_ROLE) {
            find_uses(&f, stmt, NULL);
            continue;
        }
        FOR_EACH_STMT (inner, &stmt->role.body) find_uses(&f, inner, stmt);
        SKIP_BODY(stmt);
    }
    return out;
}

Channel *channel_of_handle(const Channels *channels, const Expr *handle) {
    return handle->kind == EXPR_VAR ? map_get(channels->handles, handle->var) : NULL;
}

#define channel_members(group, what) ((group)->what ? (group)->members : 0)
#define COUNT_GROUPS(channel, what)                                                                                    \
    int count = 0;                                                                                                     \
    for (int i = 0; i < (channel)->groups.count; i++) count += channel_members(&(channel)->groups.items[i], what);     \
    return count
int channel_producers(const Channel *channel) {
    COUNT_GROUPS(channel, produces);
}

int channel_receivers(const Channel *channel) {
    COUNT_GROUPS(channel, receives);
}

int channel_enters(const Channel *channel) {
    COUNT_GROUPS(channel, enters);
}

int64_t channel_slot_bytes(const Channel *channel) {
    int64_t bytes = 0;
    VEC_EACH_PTR (Buf, tile, &channel->tiles) bytes += buf_slot_bytes(tile);
    return bytes;
}

int64_t channel_readers(const Channel *channel) {
    return attr_int(channel->buf->attrs, ATTR_READERS, channel_receivers(channel));
}

int channel_rank(const Channel *channel, const Stmt *role) {
    int rank = 0;
    for (int i = 0; i < channel->groups.count; i++) {
        const ChannelGroup *group = &channel->groups.items[i];
        if (group->role == role) return group->enters ? rank : -1;
        rank += channel_members(group, enters);
    }
    return -1;
}

bool channel_is_own(const Channel *channel) {
    const ChannelGroup *group = &channel->groups.items[0];
    return channel->groups.count == 1 && group->members == 1 && group->produces && group->receives;
}
