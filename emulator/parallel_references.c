// Which loops of a reference run as parallel loops: those whose iterations provably do not see each other.
//
// The proof is syntactic. In the body of `for (i in .., j in ..)`
//
//     a variable that is assigned, or a local array that is stored to, is declared in the body;
//     a tensor that is stored to has i and j, as they are, among its indices, at the same places in every access,
//         so that each iteration has elements of its own;
//     nothing breaks out of the loop, and no call has an effect;
//     a local array has as many elements in each iteration;
//     the bounds of j do not depend on i.
#include "emulator/code.h"
#include "ir/query.h"

typedef struct Stored {
    const Buf *buf;
    int at[MAX_RANK];   // dim at which each of the loop's indices stands
} Stored;

typedef struct Scan {
    const Stmt *loop;
    const void *own[256];   // variables and buffers declared in the body
    int own_count;
    Stored stored[32];
    int stored_count;
    bool refused;
} Scan;

static bool owned(const Scan *scan, const void *object) {
    for (int i = 0; i < scan->own_count; i++)
        if (scan->own[i] == object) return true;
    return false;
}

static void own(Scan *scan, const void *object) {
    if (scan->own_count < COUNT_OF(scan->own)) scan->own[scan->own_count++] = object;
    else scan->refused = true;
}

static int index_place(const Var *var, int count, Expr *const *indices) {
    for (int d = 0; d < count; d++)
        if (indices[d]->kind == EXPR_VAR && indices[d]->var == var) return d;
    return -1;
}

// ---- first walk: what the body declares and stores ----
static void scan_store(Scan *scan, const Stmt *s) {
    const Buf *buf = s->store.buf;
    if (owned(scan, buf)) return;
    if (buf->scope != SCOPE_GLOBAL || scan->stored_count == COUNT_OF(scan->stored)) {
        scan->refused = true;
        return;
    }
    Stored *stored = &scan->stored[scan->stored_count++];
    stored->buf = buf;
    for (int i = 0; i < scan->loop->loop.count; i++) {
        stored->at[i] = index_place(scan->loop->loop.iters[i].var, s->store.count, s->store.indices);
        if (stored->at[i] < 0) scan->refused = true;
    }
}

static void scan_block(Scan *scan, const Block *block, bool inner_loop);

static void scan_stmt(Scan *scan, const Stmt *s, bool inner_loop) {
    switch (s->kind) {
    case STMT_LET:
    case STMT_VAR: own(scan, s->let.var); break;
    case STMT_ASSIGN: scan->refused |= !owned(scan, s->let.var); break;
    case STMT_STORE: scan_store(scan, s); break;
    case STMT_DECL: own(scan, s->decl); break;
    case STMT_FOR:
        for (int i = 0; i < s->loop.count; i++) own(scan, s->loop.iters[i].var);
        scan_block(scan, &s->loop.body, true);
        break;
    case STMT_WHILE: scan_block(scan, &s->while_.body, true); break;
    case STMT_IF:
        scan_block(scan, &s->if_.then, inner_loop);
        scan_block(scan, &s->if_.otherwise, inner_loop);
        break;
    case STMT_BREAK: scan->refused |= !inner_loop; break;
    case STMT_BLOCK: scan_block(scan, &s->block, inner_loop); break;
    case STMT_CALL: scan->refused |= s->call.op != OP_ASSERT; break;
    default: scan->refused = true; break;
    }
}

static void scan_block(Scan *scan, const Block *block, bool inner_loop) {
    for (int i = 0; i < block->count && !scan->refused; i++) scan_stmt(scan, block->items[i], inner_loop);
}

// ---- second walk: every read of a stored tensor is of the iteration's own elements ----
static void check_expr(Scan *scan, const Expr *e);

static void check_exprs(Scan *scan, int count, Expr *const *exprs) {
    for (int i = 0; i < count; i++) check_expr(scan, exprs[i]);
}

static void check_access(Scan *scan, const Buf *buf, int count, Expr *const *indices) {
    for (int k = 0; k < scan->stored_count; k++) {
        if (scan->stored[k].buf != buf) continue;
        for (int i = 0; i < scan->loop->loop.count; i++)
            if (index_place(scan->loop->loop.iters[i].var, count, indices) != scan->stored[k].at[i])
                scan->refused = true;
    }
    check_exprs(scan, count, indices);
}

static void check_expr(Scan *scan, const Expr *e) {
    if (!e || scan->refused) return;
    switch (e->kind) {
    case EXPR_LOAD: check_access(scan, e->load.buf, e->load.count, e->load.indices); break;
    case EXPR_UNARY: check_expr(scan, e->unary.a); break;
    case EXPR_BINARY:
        check_expr(scan, e->binary.a);
        check_expr(scan, e->binary.b);
        break;
    case EXPR_SELECT:
        check_expr(scan, e->select.condition);
        check_expr(scan, e->select.yes);
        check_expr(scan, e->select.no);
        break;
    case EXPR_CAST:
    case EXPR_BITCAST: check_expr(scan, e->operand); break;
    case EXPR_CALL:
        scan->refused |= !op_is_pure(e->call.op);
        for (int i = 0; i < e->call.count; i++) check_expr(scan, e->call.args[i].value);
        break;
    default: break;
    }
}

// Another value in each iteration.
static bool differs(const Expr *e, const void *what) {
    const Scan *scan = what;
    if (e->kind == EXPR_LOAD) return owned(scan, e->load.buf);
    if (e->kind != EXPR_VAR) return false;
    for (int i = 0; i < scan->loop->loop.count; i++)
        if (scan->loop->loop.iters[i].var == e->var) return true;
    return owned(scan, e->var);
}

static void check_block(Scan *scan, const Block *block);

static void check_stmt(Scan *scan, const Stmt *s) {
    switch (s->kind) {
    case STMT_LET:
    case STMT_VAR:
    case STMT_ASSIGN: check_expr(scan, s->let.value); break;
    case STMT_STORE:
        check_access(scan, s->store.buf, s->store.count, s->store.indices);
        check_expr(scan, s->store.value);
        break;
    case STMT_DECL:
        check_exprs(scan, s->decl->rank, s->decl->shape);
        for (int d = 0; d < s->decl->rank; d++) scan->refused |= any_expr(s->decl->shape[d], differs, scan);
        break;
    case STMT_FOR:
        for (int i = 0; i < s->loop.count; i++) {
            check_expr(scan, s->loop.iters[i].begin);
            check_expr(scan, s->loop.iters[i].end);
        }
        check_block(scan, &s->loop.body);
        break;
    case STMT_WHILE:
        check_expr(scan, s->while_.condition);
        check_block(scan, &s->while_.body);
        break;
    case STMT_IF:
        check_expr(scan, s->if_.condition);
        check_block(scan, &s->if_.then);
        check_block(scan, &s->if_.otherwise);
        break;
    case STMT_BLOCK: check_block(scan, &s->block); break;
    case STMT_CALL:
        for (int i = 0; i < s->call.count; i++) check_expr(scan, s->call.args[i].value);
        break;
    default: break;
    }
}

static void check_block(Scan *scan, const Block *block) {
    for (int i = 0; i < block->count && !scan->refused; i++) check_stmt(scan, block->items[i]);
}

// ---- the loop ----
static bool mentions(const Expr *e,
                     const Stmt *loop) {   // one of the loop's indices; only simple bounds are looked into
    switch (e->kind) {
    case EXPR_INT: return false;
    case EXPR_VAR:
        for (int i = 0; i < loop->loop.count; i++)
            if (loop->loop.iters[i].var == e->var) return true;
        return false;
    case EXPR_BINARY: return mentions(e->binary.a, loop) || mentions(e->binary.b, loop);
    case EXPR_CALL:
        for (int i = 0; i < e->call.count; i++)
            if (!e->call.args[i].value || mentions(e->call.args[i].value, loop)) return true;
        return !op_is_pure(e->call.op);
    default: return true;
    }
}

bool loop_independent(const Stmt *loop) {
    if (loop->loop.kind != LOOP_SERIAL || loop->loop.count > MAX_RANK) return false;
    for (int i = 1; i < loop->loop.count; i++) {
        const Iter *iter = &loop->loop.iters[i];
        if (mentions(iter->begin, loop) || mentions(iter->end, loop) || iter->step->kind != EXPR_INT) return false;
    }
    Scan scan = {.loop = loop};
    scan_block(&scan, &loop->loop.body, false);
    if (!scan.refused) check_block(&scan, &loop->loop.body);
    return !scan.refused;
}
