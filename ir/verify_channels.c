// Rule 21: channels. A handle is held on one path from its acquire or receive to its commit or release.
//
// The walk keeps the handles that are held, as a stack: a branch, a loop or a block ends those that it begins, and a
// handle is ended in the block that began it, or in both branches of an `if` of it. A loop may end the handle of a `var` from
// outside and receive the next one: its iterations begin and end alike.
#include "ir/build.h"
#include "ir/channels.h"
#include "ir/verify_impl.h"

typedef struct Held {
    const Stmt *begin;
    Channel *channel;
    bool ended;
    bool was;   // ended, where the innermost loop began
} Held;

typedef struct Walk {
    Verifier *v;
    Channels channels;
    VEC(Held) held;
    bool stores;   // the statement is a peer_store
    int loop;      // handles that were held where the innermost loop began
} Walk;

static void wrong(Walk *w, Span loc, const Channel *channel, const char *what) {
    Verifier *v = w->v;
    REPORT(v, loc, T_IR_CHANNEL, channel->buf->name, what);
}

static bool is_carried(const Held *held) {
    return held->begin->let.var->kind == VAR_MUTABLE;
}

static Held *held_by(Walk *w, const Expr *handle) {
    for (int i = w->held.count - 1; i >= 0; i--)
        if (handle->kind == EXPR_VAR && w->held.items[i].begin->let.var == handle->var) return &w->held.items[i];
    return NULL;
}

// ---- uses of slots ----
static void check_slot(Walk *w, const Buf *tile, const Expr *slot, bool writes, bool stored, Span loc) {
    Channel *channel = map_get(w->channels.by_buf, tile->channel);
    if (!channel) return;
    const Held *held = held_by(w, slot);
    if (!held || held->channel != channel)
        wrong(w, loc, channel, "its tiles are used with a handle of it, the value of acquire or receive");
    else if (held->ended) wrong(w, loc, channel, "a slot is used after commit or release");
    else if (writes && is_receive(held->begin) && !receive_updates(held->begin))
        wrong(w, loc, channel, "a group writes a slot that it has received");
    else if (writes && channel->by_peers && !stored)
        wrong(w, loc, channel, "its slots are filled by peer_store, and by nothing else");
}

static bool check_load(Visitor *visitor, Expr *e) {
    if (e->kind == EXPR_LOAD && e->load.buf->channel)
        check_slot(visitor->user, e->load.buf, e->load.indices[0], false, false, e->loc);
    return true;
}

static void check_operand_slot(Visitor *visitor, Region *region, const Operand *operand) {
    bool writes = operand->access == ACCESS_WRITE || operand->access == ACCESS_UPDATE;
    Walk *w = visitor->user;
    if (region->buf->channel) check_slot(w, region->buf, region->dims[0].start, writes, w->stores, region->loc);
}

static bool check_own(Visitor *visitor, Stmt *stmt) {
    if (stmt->kind == STMT_STORE && stmt->store.buf->channel)
        check_slot(visitor->user, stmt->store.buf, stmt->store.indices[0], true, false, stmt->loc);
    return true;
}

// ---- handles ----
static void begin_handle(Walk *w, const Stmt *stmt) {
    Channel *channel = map_get(w->channels.by_buf, stmt->let.value->call.args[0].region->buf);
    int64_t same = 0;
    if (!channel) return;
    for (int i = 0; i < w->held.count; i++) {
        const Held *held = &w->held.items[i];
        same += !held->ended && held->channel == channel && is_acquire(held->begin) == is_acquire(stmt);
    }
    if (same >= buf_extent(channel->buf, 0)) wrong(w, stmt->loc, channel, "a group holds more slots than it has");
    if (stmt->kind == STMT_ASSIGN) {
        Held *before = held_by(w, &(Expr){.kind = EXPR_VAR, .var = stmt->let.var});
        if (!before || before->channel != channel)
            wrong(w, stmt->loc, channel, "a variable holds slots of one channel");
        else if (!before->ended) wrong(w, stmt->loc, channel, "a handle is not ended");
        if (!before) return;
        before->begin = stmt;
        before->ended = false;
        return;
    }
    Held held = {.begin = stmt, .channel = channel};
    vec_push(w->v->arena, &w->held, held);
}

static void end_handle(Walk *w, const Stmt *stmt, int mark) {
    Held *held = held_by(w, stmt->call.args[0].value);
    bool commits = is_call(stmt, OP_COMMIT);
    Verifier *v = w->v;
    if (!held) {
        REPORT(v, stmt->loc, T_IR_OPERAND, "slot", op_info(stmt->call.op)->text, "is no handle that is held here");
        return;
    }
    if (held->ended) wrong(w, stmt->loc, held->channel, "a handle is ended twice");
    else if (commits != is_acquire(held->begin))
        wrong(w, stmt->loc, held->channel, "commit ends an acquire, release a receive");
    else if (held - w->held.items < mark && !is_carried(held))
        wrong(w, stmt->loc, held->channel, "a handle is ended on some paths only");
    held->ended = true;
}

static void leave(Walk *w, int mark) {
    for (int i = mark; i < w->held.count; i++)
        if (!w->held.items[i].ended)
            wrong(w, w->held.items[i].begin->loc, w->held.items[i].channel, "a handle is not ended");
    w->held.count = mark;
}

static void walk(Walk *w, const Block *block, int mark);

// Handles of `var` from outside are as the body found them.
static void check_carried(Walk *w, int mark, Span loc) {
    for (int i = 0; i < mark; i++)
        if (w->held.items[i].ended != w->held.items[i].was)
            wrong(w, loc, w->held.items[i].channel, "a handle is ended on some paths only");
}

static void walk_body(Walk *w, const Block *block, bool loop) {
    int mark = w->held.count, outer = w->loop;
    bool *before = NEW_ARRAY(w->v->arena, bool, mark + 1);
    for (int i = 0; i < mark; i++) before[i] = w->held.items[i].was;
    for (int i = 0; i < mark; i++) w->held.items[i].was = w->held.items[i].ended;
    if (loop) w->loop = mark;
    walk(w, block, mark);
    leave(w, mark);
    if (mark) check_carried(w, mark, block->count ? vec_last(block)->loc : (Span){0});
    for (int i = 0; i < mark; i++) w->held.items[i].was = before[i];
    w->loop = outer;
}

// Both branches end the same handles of the block around.
static void walk_if(Walk *w, const Stmt *stmt, int mark) {
    int count = w->held.count;
    bool *before = NEW_ARRAY(w->v->arena, bool, count + 1), *after = NEW_ARRAY(w->v->arena, bool, count + 1);
    for (int i = 0; i < count; i++) before[i] = w->held.items[i].ended;
    walk(w, &stmt->if_.then, mark);
    leave(w, count);
    for (int i = 0; i < count; i++) after[i] = w->held.items[i].ended, w->held.items[i].ended = before[i];
    walk(w, &stmt->if_.otherwise, mark);
    leave(w, count);
    bool then_breaks = block_breaks(&stmt->if_.then), else_breaks = block_breaks(&stmt->if_.otherwise);
    for (int i = 0; i < count; i++) {
        Held *held = &w->held.items[i];
        bool differ = after[i] != held->ended && !then_breaks && !else_breaks;
        if (differ) wrong(w, stmt->loc, held->channel, "a handle is ended on some paths only");
        held->ended = then_breaks ? held->ended : else_breaks ? after[i] : held->ended || after[i];
    }
}

static void check_break(Walk *w, const Stmt *stmt) {
    check_carried(w, w->loop, stmt->loc);
    for (int i = w->loop; i < w->held.count; i++)
        if (!w->held.items[i].ended)
            wrong(w, stmt->loc, w->held.items[i].channel, "a handle is not ended before the break");
}

static void walk_stmt_uses(Walk *w, const Stmt *stmt) {
    Stmt alone = stmt_alone(stmt);
    w->stores = is_call(stmt, OP_PEER_STORE);
    Visitor visitor = {.expr = check_load, .stmt = check_own, .region = check_operand_slot, .user = w};
    visit_stmt(&visitor, &alone);
}

// ---- sections ----

// A block leaves each section that it enters, and no other one.
static void check_sections(Walk *w, const Block *block) {
    Map *inside = map_new(w->v->arena);
    FOR_EACH_ITEM (stmt, block) {
        bool enters = is_call(stmt, OP_ENTER), leaves = is_call(stmt, OP_LEAVE);
        Channel *channel = enters || leaves ? map_get(w->channels.by_buf, ARG(stmt, ENTER, channel).region->buf) : NULL;
        if (stmt_breaks(stmt) && map_count(inside))
            wrong(w, stmt->loc, w->channels.all.items[0], "a break leaves a section that is not left");
        if (!channel) continue;
        bool was = map_has(inside, channel);
        if (was == enters)
            wrong(w, stmt->loc, channel,
                  enters ? "a section is entered twice" : "a section is left that this block has not entered");
        if (enters) map_put(inside, channel, channel);
        else map_remove(inside, channel);
    }
    VEC_EACH_PTR (Channel, channel, &w->channels.all)
        if (map_has(inside, channel))
            wrong(w, channel->buf->loc, channel, "a section is not left in the block that enters it");
}

static bool is_unbound(const Stmt *stmt) {
    return is_call(stmt, OP_ACQUIRE) || is_call(stmt, OP_RECEIVE);
}

static void walk(Walk *w, const Block *block, int mark) {
    check_sections(w, block);
    FOR_EACH_ITEM (stmt, block) {
        walk_stmt_uses(w, stmt);
        if (is_unbound(stmt)) {
            const Channel *channel = map_get(w->channels.by_buf, stmt->call.args[0].region->buf);
            if (channel) wrong(w, stmt->loc, channel, "the handle is dropped: bind it, `let f = ...`, and end it");
            continue;
        }
        if (is_acquire(stmt) || is_receive(stmt)) begin_handle(w, stmt);
        else if (is_call(stmt, OP_COMMIT) || is_call(stmt, OP_RELEASE)) end_handle(w, stmt, mark);
        else if (stmt->kind == STMT_BREAK) check_break(w, stmt);
        else if (stmt->kind == STMT_IF) walk_if(w, stmt, mark);
        else if (stmt->kind == STMT_BLOCK) walk(w, &stmt->block, mark);
        else {
            bool loop = stmt->kind == STMT_FOR || stmt->kind == STMT_WHILE;
            FOR_EACH_BODY (body, stmt) walk_body(w, body, loop);
        }
    }
}

// ---- groups ----
static void check_peers(Walk *w, const Channel *channel) {
    Span loc = channel->buf->loc;
    if (!channel->by_peers) return;
    if (!channel_is_own(channel))
        wrong(w, loc, channel, "one group fills and reads the slots that CTAs of a cluster fill");
    if (buf_extent(channel->buf, 0) < 2) wrong(w, loc, channel, "slots that CTAs of a cluster fill are at least two");
}

static void check_groups(Walk *w, const Channel *channel) {
    int receivers = channel_receivers(channel), enters = channel_enters(channel),
        producers = channel_producers(channel);
    bool cta = false, roles = false;
    for (int i = 0; i < channel->groups.count; i++) {
        const ChannelGroup *group = &channel->groups.items[i];
        cta |= !group->role;
        roles |= group->role != NULL;
        if (group->produces && group->receives && !channel_is_own(channel))
            wrong(w, channel->buf->loc, channel, "a group fills and reads slots that other groups use, too");
    }
    Span loc = channel->buf->loc;
    if (cta && roles) wrong(w, loc, channel, "it is used both in roles and outside of them");
    if (enters && channel->tiles.count) wrong(w, loc, channel, "sections are of a channel without tiles");
    if (!enters && !channel->tiles.count && channel->groups.count)
        wrong(w, loc, channel, "it has neither tiles nor sections");
    if ((producers > 0) != (receivers > 0))
        wrong(w, loc, channel, producers ? "no group receives" : "no group fills it");
    if (channel_readers(channel) > receivers && receivers)
        wrong(w, loc, channel, "it has fewer groups that receive than readers");
}

void check_channels(Verifier *v, const Func *kernel) {
    if (!has_channels(kernel)) return;
    Walk w = {.v = v, .channels = channels_of(v->arena, kernel)};
    VEC_EACH_PTR (Channel, channel, &w.channels.all) {
        check_groups(&w, channel);
        check_peers(&w, channel);
    }
    walk_body(&w, &kernel->body, false);
}
