#include "ir/role_text.h"
#include "ir/build.h"
#include "ir/query.h"
#include "ir/rewrite.h"
#include "support/map.h"

typedef struct Name {   // declared at the top of the grid's text, but for shared memory
    int item, segment;
    const Stmt *stmt;
    bool registers;   // a fragment, a `var`, or a let of such
    bool early;       // a let that reads nothing that is written
    bool needed;      // in another segment
} Name;

struct RoleText {
    Arena *arena;
    const Block *body;
    Map *names;      // Var or Buf -> Name
    Map *outside;    // statements at grid level -> `text` where they are early
    int *segments;   // of each statement; a role is one of its own
    int *pieces;
    struct {
        bool inside, late;   // it names what is not at grid level; what is not early
    } assumed;               // of the assumption that is looked at
    const char *lost;
    Span lost_at;
};

// ---- what a statement uses ----

typedef struct Uses {
    RoleText *text;
    void (*use)(RoleText *text, Name *name, int item, const char *called, Span place);
    int item;
    bool memory, effect;   // it reads what may be written meanwhile; or does more than read
} Uses;

static void use_object(Uses *uses, const void *object, const char *called, Span place) {
    Name *name = map_get(uses->text->names, object);
    if (name) uses->use(uses->text, name, uses->item, called, place);
}

static void use_buf(Uses *uses, const Buf *buf, Span place) {
    const Buf *root = buf_root(buf);
    uses->memory |=
        root->scope == SCOPE_SHARED || (root->scope == SCOPE_GLOBAL && (root->mode != MODE_IN || root->alias_of));
    use_object(uses, root, root->name, place);
}

static bool visit_expr_uses(Visitor *visitor, Expr *e) {
    Uses *uses = visitor->user;
    if (e->kind == EXPR_VAR) use_object(uses, e->var, e->var->name, e->loc);
    if (e->kind == EXPR_LOAD) use_buf(uses, e->load.buf, e->loc);
    uses->effect |= e->kind == EXPR_CALL && !op_is_pure(e->call.op);
    return true;
}

static bool visit_stmt_uses(Visitor *visitor, Stmt *stmt) {
    Uses *uses = visitor->user;
    if (stmt->kind == STMT_ASSIGN) use_object(uses, stmt->let.var, stmt->let.var->name, stmt->loc);
    if (stmt->kind == STMT_STORE) use_buf(uses, stmt->store.buf, stmt->loc);
    return true;
}

static void visit_region_uses(Visitor *visitor, Region *region, const Operand *operand) {
    (void)operand;
    use_buf(visitor->user, region->buf, region->loc);
}

static void find_uses(Uses *uses, const Stmt *stmt) {
    Visitor visitor = {visit_expr_uses, visit_stmt_uses, visit_region_uses, uses};
    visit_stmt(&visitor, (Stmt *)stmt);
}

// ---- names ----

static void mark_registers(RoleText *text, Name *name, int item, const char *called, Span place) {
    (void)called, (void)place;
    Name *let = map_get(text->names, text->body->items[item]->let.var);
    let->registers |= name->registers;
    let->early &= name->early;
}

static void add_name(RoleText *text, int item) {
    const Stmt *stmt = text->body->items[item];
    bool let = stmt->kind == STMT_LET, decl = stmt->kind == STMT_DECL && stmt->decl->scope == SCOPE_FRAGMENT;
    if (!let && !decl && stmt->kind != STMT_VAR) return;
    Name *name = NEW(text->arena, Name);
    *name = (Name){.item = item, .segment = text->segments[item], .stmt = stmt, .registers = !let, .early = let};
    map_put(text->names, decl ? (void *)stmt->decl : (void *)stmt->let.var, name);
    if (!let) return;
    Uses uses = {.text = text, .use = mark_registers, .item = item};
    find_uses(&uses, stmt);
    name->early &= !uses.memory && !uses.effect;
}

static void mark_needed(RoleText *text, Name *name, int item, const char *called, Span place) {
    (void)called, (void)place;
    name->needed |= name->segment != text->segments[item];
}

static void mark_all(RoleText *text, Name *name, int item, const char *called, Span place) {
    (void)text, (void)item, (void)called, (void)place;
    name->needed = true;
}

static Name *let_at(const RoleText *text, int item) {
    const Stmt *stmt = text->body->items[item];
    Name *name = stmt->kind == STMT_LET ? map_get(text->names, stmt->let.var) : NULL;
    return name && !name->registers ? name : NULL;
}

// What a let at grid level is made of is at grid level, too; and all lets of a segment that one of them cuts.
static void find_needed(RoleText *text) {
    int count = text->body->count;
    bool *cut = NEW_ARRAY(text->arena, bool, count + 1);   // segments
    for (int i = 0; i < count; i++) {
        Uses uses = {.text = text, .use = mark_needed, .item = i};
        find_uses(&uses, text->body->items[i]);
    }
    for (int i = count - 1; i >= 0; i--) {
        const Name *let = let_at(text, i);
        Uses uses = {.text = text, .use = mark_all, .item = i};
        if (!let || !let->needed) continue;
        find_uses(&uses, let->stmt);
        cut[let->segment] |= !let->early;
    }
    for (int i = 0; i < count; i++) {
        Name *let = let_at(text, i);
        if (let) let->needed |= cut[let->segment];
    }
}

// ---- pieces ----

static bool is_outside(const Name *name) {
    return name->needed && !name->registers;
}

static void mark_assumed(RoleText *text, Name *name, int item, const char *called, Span place) {
    (void)item, (void)called, (void)place;
    text->assumed.inside |= !is_outside(name);
    text->assumed.late |= !name->early;
}

// Whether a statement stands at grid level, and may stand before the piece.
static bool stands_outside(RoleText *text, int item, bool *early) {
    const Stmt *stmt = text->body->items[item];
    const Name *let = let_at(text, item);
    *early = let && let->early;
    if (stmt->kind != STMT_ASSUME) return let && let->needed;
    text->assumed.inside = text->assumed.late = false;
    Uses uses = {.text = text, .use = mark_assumed, .item = item};
    find_uses(&uses, stmt);
    *early = !text->assumed.late && !uses.memory && !uses.effect;
    return !text->assumed.inside;
}

static void find_pieces(RoleText *text) {
    int piece = 0;
    for (int i = 0; i < text->body->count; i++) {
        const Stmt *stmt = text->body->items[i];
        bool early, role = stmt->kind == STMT_ROLE, outside = !role && stands_outside(text, i, &early);
        if (outside) map_put(text->outside, stmt, early ? (void *)text : text->outside);
        piece += role;
        text->pieces[i] = piece;
        piece += role || (outside && !early);
    }
}

static void find_lost(RoleText *text, Name *name, int item, const char *called, Span place) {
    if (text->lost || is_outside(name) || text->pieces[name->item] == text->pieces[item]) return;
    text->lost = called;
    text->lost_at = place;
}

RoleText *role_text_new(Arena *arena, const Block *body) {
    RoleText *text = NEW(arena, RoleText);
    *text = (RoleText){.arena = arena, .body = body, .names = map_new(arena), .outside = map_new(arena)};
    text->segments = NEW_ARRAY(arena, int, body->count + 1);
    text->pieces = NEW_ARRAY(arena, int, body->count + 1);
    int segment = 0;
    for (int i = 0; i < body->count; i++) {
        bool role = body->items[i]->kind == STMT_ROLE;
        segment += role;
        text->segments[i] = segment;
        segment += role;
        add_name(text, i);
    }
    find_needed(text);
    find_pieces(text);
    for (int i = 0; i < body->count; i++) {
        Uses uses = {.text = text, .use = find_lost, .item = i};
        find_uses(&uses, body->items[i]);
    }
    return text;
}

bool role_text_is_outside(const RoleText *text, const Stmt *stmt) {
    return map_has(text->outside, stmt);
}

bool role_text_is_early(const RoleText *text, const Stmt *stmt) {
    return map_get(text->outside, stmt) == text;
}

const char *role_text_lost(const RoleText *text, Span *use) {
    *use = text->lost_at;
    return text->lost;
}
