// Rule 17: shared buffers that are in use at the same time have storage of their own.
//
// Time is the order of statements in the text: a buffer is in use from the first statement that names it to the last. A
// loop around both does not matter for buffers whose contents do not outlive an iteration, and those that do are named
// before or after what they overlap.
#include "ir/build.h"
#include "ir/rewrite.h"
#include "ir/verify_impl.h"

typedef struct Use {
    Buf *buf;
    int64_t members;   // of an array of roles, each of which has its own
    int first, last;   // statements, in the order of the text; -1: never
} Use;

typedef struct Uses {
    VEC(Use) items;
    Map *index;   // root Buf -> 1 + index
    Arena *arena;
    int64_t members;   // of the role whose statements are visited
    int now;
} Uses;

static const Buf *root_of(const Buf *buf) {
    while (buf->alias_of) buf = buf->alias_of;
    return buf;
}

static void touch(Uses *uses, const Buf *buf) {
    int at = (int)(intptr_t)map_get(uses->index, root_of(buf)) - 1;
    if (at < 0) return;
    Use *use = &uses->items.items[at];
    if (use->first < 0) use->first = uses->now;
    use->last = uses->now;
}

static bool touch_expr(Visitor *visitor, Expr *e) {
    if (e->kind == EXPR_LOAD) touch(visitor->user, e->load.buf);
    return true;
}

static void touch_region(Visitor *visitor, Region *region, const Operand *operand) {
    (void)operand;
    touch(visitor->user, region->buf);
}

static bool touch_stmt(Visitor *visitor, Stmt *stmt) {
    Uses *uses = visitor->user;
    uses->now++;
    if (stmt->kind == STMT_STORE) touch(uses, stmt->store.buf);
    return true;
}

static bool collect(Visitor *visitor, Stmt *stmt) {
    Uses *uses = visitor->user;
    if (stmt->kind == STMT_ROLE && uses->members == 1) {
        uses->members = role_members(stmt);
        visit_block(visitor, &stmt->role.body);
        uses->members = 1;
        return false;
    }
    if (stmt->kind != STMT_DECL || stmt->decl->scope != SCOPE_SHARED || stmt->decl->offset < 0 || stmt->decl->alias_of)
        return true;
    Use use = {stmt->decl, uses->members, -1, -1};
    vec_push(uses->arena, &uses->items, use);
    map_put(uses->index, stmt->decl, (void *)(intptr_t)uses->items.count);
    return true;
}

static bool overlap(const Use *a, const Use *b) {
    bool bytes = a->buf->offset < b->buf->offset + b->members * buf_space(b->buf) &&
                 b->buf->offset < a->buf->offset + a->members * buf_space(a->buf);
    return bytes && a->first >= 0 && b->first >= 0 && a->first <= b->last && b->first <= a->last;
}

void check_allocation(Verifier *v, const Func *kernel) {
    Uses uses = {.index = map_new(v->arena), .arena = v->arena, .members = 1};
    Visitor collector = {.stmt = collect, .user = &uses};
    visit_block(&collector, (Block *)&kernel->body);
    if (uses.items.count == 0) return;
    Visitor toucher = {touch_expr, touch_stmt, touch_region, &uses};
    visit_block(&toucher, (Block *)&kernel->body);
    for (int i = 0; i < uses.items.count; i++) {
        const Use *use = &uses.items.items[i];
        const Buf *buf = use->buf;
        int align = buf->align > type_bytes(buf->type) ? buf->align : type_bytes(buf->type);
        if (buf->offset % align != 0)
            REPORT(v, buf->loc, T_IR_ALLOCATION, buf->name, "has an @offset that is not a multiple of its alignment");
        for (int k = 0; k < i; k++)
            if (overlap(use, &uses.items.items[k])) {
                REPORT(v, buf->loc, T_IR_ALLOCATION, buf->name,
                       arena_printf(v->arena, "shares bytes with '%s' while both are in use",
                                    uses.items.items[k].buf->name));
            }
    }
}
