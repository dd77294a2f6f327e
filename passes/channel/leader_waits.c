// Which slots the first group of an array waits for alone: a section tells the others.
//
//     role compute[g in 3] threads 128 {           group 0                     group 1
//         let k = receive(Ks);                     waits for Ks #n
//         enter(mma);                              enters the n-th section
//         gemm(q, k.T, s);                         ..
//         let v = receive(Vs);                     waits for Vs #n
//         gemm(p, v, o);                           ..
//         leave(mma);                              leaves                      enters: both slots are full
//
// The groups pass their sections in turn, the first one first. So what it received before it left its n-th section has been full
// since before the others enter their n-th, if they receive the same slot there: if control flow is the same in all groups. A
// receive must lie in a section, or before one with nothing in between that uses the slot, and all groups must receive each slot.
//
// A source may promise so where control flow differs (`@leader`); the emulator reports what is read early. Control flow
// is the same where no condition or bound of a statement with a channel depends on the group's number, on registers or
// shared memory. Scalars of a channel that each group receives are the same for all.
#include "ir/build.h"
#include "ir/channels.h"
#include "passes/channel/numbers.h"

typedef struct Flow {
    Arena *arena;
    const Channels *channels;
    Map *differs;   // variables that may have another value in another group
    bool changed, differ;
} Flow;

// ---- values ----

static bool all_receive(const Channel *channel) {
    return channel && channel_readers(channel) == channel_receivers(channel);
}

static bool is_same_load(const Flow *f, const Expr *e) {
    const Buf *buf = e->load.buf;
    if (buf->is_param && buf->mode == MODE_IN) return true;
    return buf->channel && all_receive(map_get(f->channels->by_buf, buf->channel));
}

static bool is_own(const Expr *e, const void *what) {
    const Flow *f = what;
    switch (e->kind) {
    case EXPR_VAR: return map_has(f->differs, e->var);
    case EXPR_LOAD: return !is_same_load(f, e);
    case EXPR_CALL: return !expr_is_pure(e) && e->call.op != OP_RECEIVE && e->call.op != OP_ACQUIRE;
    default: return false;
    }
}

static bool may_differ(const Flow *f, const Expr *e) {
    return e && any_expr(e, is_own, f);
}

static void note(Flow *f, const Var *var, bool differs) {
    if (!differs || map_has(f->differs, var)) return;
    map_put(f->differs, var, (void *)var);
    f->changed = true;
}

// ---- statements ----

static bool uses_channel(const Stmt *stmt, void *user) {
    (void)user;
    return is_acquire(stmt) || is_receive(stmt) || is_call(stmt, OP_ENTER) || is_call(stmt, OP_SKIP) ||
           stmt->kind == STMT_BREAK;
}

static bool control_differs(const Flow *f, const Stmt *stmt) {
    if (stmt->kind == STMT_IF) return may_differ(f, stmt->if_.condition);
    if (stmt->kind == STMT_WHILE) return may_differ(f, stmt->while_.condition);
    for (int i = 0; stmt->kind == STMT_FOR && i < stmt->loop.count; i++)
        if (may_differ(f, stmt->loop.iters[i].begin) || may_differ(f, stmt->loop.iters[i].end)) return true;
    return false;
}

// `inside`: only some groups may come here.
static void follow(Flow *f, const Block *block, bool inside) {
    FOR_EACH_ITEM (stmt, block) {
        bool diverges = inside || control_differs(f, stmt);
        bool binds = stmt->kind == STMT_LET || stmt->kind == STMT_VAR || stmt->kind == STMT_ASSIGN;
        if (binds) note(f, stmt->let.var, diverges || may_differ(f, stmt->let.value));
        for (int i = 0; stmt->kind == STMT_FOR && i < stmt->loop.count; i++) note(f, stmt->loop.iters[i].var, diverges);
        f->differ |= diverges && uses_channel(stmt, NULL);
        FOR_EACH_BODY (body, stmt) follow(f, body, diverges);
    }
}

static bool flow_is_same(Arena *arena, const Channels *channels, const Stmt *role) {
    Flow f = {.arena = arena, .channels = channels, .differs = map_new(arena), .changed = true};
    map_put(f.differs, role->role.iters[0].var, role->role.iters[0].var);
    while (f.changed) {
        f.changed = false;
        follow(&f, &role->role.body, false);
    }
    return !f.differ;
}

// ---- sections ----

static bool is_section_of(const Channels *channels, const Stmt *stmt, OpId op, const Stmt *role) {
    if (!is_call(stmt, op)) return false;
    Channel *channel = map_get(channels->by_buf, call_region(stmt, 0)->buf);
    return channel && channel_enters(channel) == role_members(role) && channel_rank(channel, role) == 0;
}

static bool may_stand_before(const Stmt *stmt) {
    return is_receive(stmt) || stmt->kind == STMT_ASSUME || (stmt->kind == STMT_LET && expr_is_stable(stmt->let.value));
}

static bool is_told(const Channels *channels, const Block *block, int at, const Stmt *role) {
    int before = at - 1, behind = at + 1;
    if (!all_receive(map_get(channels->by_buf, block->items[at]->let.value->call.args[0].region->buf))) return false;
    while (before >= 0 && !is_call(block->items[before], OP_ENTER) && !is_call(block->items[before], OP_LEAVE))
        before--;
    if (before >= 0 && is_section_of(channels, block->items[before], OP_ENTER, role)) return true;
    while (behind < block->count && may_stand_before(block->items[behind])) behind++;
    return behind < block->count && is_section_of(channels, block->items[behind], OP_ENTER, role);
}

Map *waits_of_leader(Arena *arena, const Channels *channels, const Stmt *role) {
    Map *waits = map_new(arena);
    if (!role || role_members(role) < 2) return waits;
    bool same = flow_is_same(arena, channels, role);
    FOR_EACH_STMT (stmt, &role->role.body)
        if (is_receive(stmt) && (same || attr_get(stmt->attrs, ATTR_LEADER)) &&
            is_told(channels, BLOCK_OF(stmt), INDEX_OF(stmt), role))
            map_put(waits, stmt, (Stmt *)stmt);
    return waits;
}
