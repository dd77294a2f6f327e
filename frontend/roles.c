// Roles, and arrays of roles.
//
//     role compute[g in 2] threads 128 { .. }      two groups with one text, in which g is the number of the group
//
// The array stays one statement where one text serves all its members. Else each member is a role of its own, in which
// the index is a constant: where something has to be constant that the index decides, where the index has a part in
// whether a member uses a channel (how many groups fill and receive its slots is known from the text), and where code
// of threads has shared memory of its own, which nothing numbers by members.
#include "frontend/sema.h"
#include "ir/channels.h"

enum { NAME, THREADS, REGISTERS, BODY, COUNT, INDEX };

// ---- members that differ ----

// Whether the statement happens is known, with what is known of names.
static bool is_known(Subst *names, const Stmt *stmt) {
    int64_t value, end;
    if (stmt->kind == STMT_IF) return expr_const(subst_expr(names, stmt->if_.condition), &value);
    if (stmt->kind == STMT_WHILE) return expr_const(subst_expr(names, stmt->while_.condition), &value);
    for (int i = 0; stmt->kind == STMT_FOR && i < stmt->loop.count; i++) {
        const Iter *iter = &stmt->loop.iters[i];
        if (expr_const(subst_expr(names, iter->begin), &value) && expr_const(subst_expr(names, iter->end), &end) &&
            end <= value)
            return true;
    }
    return false;
}

static bool uses_channel(const Stmt *stmt, void *user) {
    (void)user;
    return is_acquire(stmt) || is_receive(stmt) || is_call(stmt, OP_ENTER);
}

static bool is_thread_region(const Stmt *stmt, void *user) {
    (void)user;
    return stmt->kind == STMT_THREAD;
}

// It is known of this member, and not of all. (What depends on data too is asked when it runs.)
static bool differs(Arena *arena, const Stmt *role, int64_t number) {
    Subst *all = subst_new(arena), *member = subst_new(arena);
    subst_var(member, role->role.iters[0].var, e_int(arena, number));
    FOR_EACH_STMT (stmt, &role->role.body) {
        if (stmt->kind == STMT_LET) subst_let(all, stmt->let.var, stmt->let.value);
        if (stmt->kind == STMT_LET) subst_let(member, stmt->let.var, stmt->let.value);
        if (below_any(stmt, uses_channel, NULL) && is_known(member, stmt) && !is_known(all, stmt)) return true;
    }
    return false;
}

// Code of threads has shared memory of its own, and so has a channel.
static bool has_own_memory(const Stmt *role) {
    bool threads = block_any(&role->role.body, is_thread_region, NULL);
    FOR_EACH_STMT (stmt, &role->role.body) {
        if (stmt->kind != STMT_DECL || stmt->decl->scope != SCOPE_SHARED) continue;
        if (threads || stmt->decl->alias_of || stmt->decl->type == TYPE_CHANNEL) return true;
    }
    return false;
}

static bool differ(Arena *arena, const Stmt *role) {
    bool any = has_own_memory(role);
    for (int64_t m = 0; m < role_members(role); m++) any |= differs(arena, role, m);
    return any;
}

// ---- statements ----

static Stmt *role_of(Sema *s, const Node *node, const char *name) {
    Stmt *stmt = stmt_new(s->arena, STMT_ROLE, place_of(s, node->span));
    stmt->role.name = name;
    constant_int(s, node->kids[THREADS], "the number of threads", 1, 1024, &stmt->role.threads);
    if (node->kids[REGISTERS])
        constant_int(s, node->kids[REGISTERS], "the number of registers", 1, 512, &stmt->role.regs);
    return stmt;
}

static void one_role(Sema *s, const Node *node, const char *name) {
    Stmt *stmt = role_of(s, node, name);
    body(s, node->kids[BODY], &stmt->role.body);
    emit(s, stmt);
}

static Stmt *array_of(Sema *s, const Node *node, int64_t count) {
    const Node *index = node->kids[INDEX];
    NameScope scope;
    Stmt *stmt = role_of(s, node, node->text);
    scope_open(s, &scope);
    Var *var = declare_var(s, index->text, VAR_ITER, TYPE_I64, index->span);
    map_put(s->naturals, var, var);
    stmt->role.count = 1;
    stmt->role.iters = NEW(s->arena, Iter);
    *stmt->role.iters = (Iter){var, e_int(s->arena, 0), e_int(s->arena, count), e_int(s->arena, 1)};
    body(s, node->kids[BODY], &stmt->role.body);
    scope_close(s);
    return stmt;
}

static void each_member(Sema *s, const Node *node, int64_t count) {
    const Node *index = node->kids[INDEX];
    for (int64_t g = 0; g < count; g++) {
        NameScope scope;
        scope_open(s, &scope);
        declare_value(s, index->text, value_int(g, index->span), index->span);
        one_role(s, node, arena_printf(s->arena, "%s%lld", node->text, (long long)g));
        scope_close(s);
    }
}

void role(Sema *s, const Node *node) {
    enum { MOST = 32 };
    int64_t count = 0;
    if (!ast_kid(node, INDEX)) {
        one_role(s, node, node->text);
        return;
    }
    if (!constant_int(s, node->kids[COUNT], "the number of roles", 1, MOST, &count)) return;
    int errors = diag_errors(s->sink), diagnostics = diag_count(s->sink);
    Stmt *array = count > 1 || s->verbatim ? array_of(s, node, count) : NULL;
    bool shared = array && diag_errors(s->sink) == errors && !differ(s->arena, array);
    if (array && (shared || s->verbatim)) {
        emit(s, array);
        return;
    }
    diag_truncate(s->sink, diagnostics);
    forget_unknown_names(s);
    reconsider_consts(s);
    each_member(s, node, count);
}
