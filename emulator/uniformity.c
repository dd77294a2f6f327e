// What varies between the lanes of a warp (the rules are in compile.c).
#include "emulator/compile.h"

bool compile_varies(Compiler *c, const Expr *e) {
    switch (e->kind) {
    case EXPR_INT:
    case EXPR_FLOAT: return false;
    case EXPR_VAR: return var_info(c, e->var)->varying;
    case EXPR_LOAD: return true;
    case EXPR_UNARY: return compile_varies(c, e->unary.a);
    case EXPR_BINARY: return compile_varies(c, e->binary.a) || compile_varies(c, e->binary.b);
    case EXPR_SELECT:
        return compile_varies(c, e->select.condition) || compile_varies(c, e->select.yes) ||
               compile_varies(c, e->select.no);
    case EXPR_CAST:
    case EXPR_BITCAST: return compile_varies(c, e->operand);
    case EXPR_CALL:
        if (!op_is_pure(e->call.op)) return true;
        for (int i = 0; i < e->call.count; i++)
            if (e->call.args[i].value && compile_varies(c, e->call.args[i].value)) return true;
        return false;
    }
    return true;
}

// Whether some lanes may break out of the loop while others stay.
bool compile_divergent_break(Compiler *c, const Block *block, bool under) {
    for (int i = 0; i < block->count; i++) {
        const Stmt *s = block->items[i];
        if (s->kind == STMT_BREAK && under) return true;
        if (s->kind == STMT_BLOCK && compile_divergent_break(c, &s->block, under)) return true;
        if (s->kind != STMT_IF) continue;
        bool deeper = under || compile_varies(c, s->if_.condition);
        if (compile_divergent_break(c, &s->if_.then, deeper) || compile_divergent_break(c, &s->if_.otherwise, deeper))
            return true;
    }
    return false;
}

bool compile_has_break(const Block *block) {
    for (int i = 0; i < block->count; i++) {
        const Stmt *s = block->items[i];
        if (s->kind == STMT_BREAK) return true;
        if (s->kind == STMT_BLOCK && compile_has_break(&s->block)) return true;
        if (s->kind == STMT_IF && (compile_has_break(&s->if_.then) || compile_has_break(&s->if_.otherwise)))
            return true;
    }
    return false;
}

static void mark_varying(Compiler *c, const Var *var) {
    VarInfo *info = var_info(c, var);
    if (info->varying || !info->many) return;
    info->varying = true;
    c->changed = true;
}

static void analyse_block(Compiler *c, const Block *block, int depth);

static void analyse_loop(Compiler *c, const Stmt *s, int depth) {
    for (int i = 0; i < s->loop.count; i++) {
        const Iter *iter = &s->loop.iters[i];
        var_info(c, iter->var)->depth = depth;
        if (!compile_varies(c, iter->begin) && !compile_varies(c, iter->end) && !compile_varies(c, iter->step))
            continue;
        mark_varying(c, iter->var);
        depth++;
    }
    analyse_block(c, &s->loop.body, depth + compile_divergent_break(c, &s->loop.body, false));
}

static void analyse_stmt(Compiler *c, const Stmt *s, int depth) {
    switch (s->kind) {
    case STMT_LET:
    case STMT_VAR:
        var_info(c, s->let.var)->depth = depth;
        if (s->let.value && compile_varies(c, s->let.value)) mark_varying(c, s->let.var);
        break;
    case STMT_ASSIGN:
        if (compile_varies(c, s->let.value) || depth > var_info(c, s->let.var)->depth) mark_varying(c, s->let.var);
        break;
    case STMT_FOR: analyse_loop(c, s, depth); break;
    case STMT_WHILE: {
        bool diverges = compile_varies(c, s->while_.condition) || compile_divergent_break(c, &s->while_.body, false);
        analyse_block(c, &s->while_.body, depth + diverges);
        break;
    }
    case STMT_IF: {
        int inner = depth + compile_varies(c, s->if_.condition);
        analyse_block(c, &s->if_.then, inner);
        analyse_block(c, &s->if_.otherwise, inner);
        break;
    }
    case STMT_BLOCK: analyse_block(c, &s->block, depth); break;
    default: break;
    }
}

static void analyse_block(Compiler *c, const Block *block, int depth) {
    for (int i = 0; i < block->count; i++) analyse_stmt(c, block->items[i], depth);
}

void compile_analyse(Compiler *c, const Block *body) {   // of a region that all lanes run
    do {
        c->changed = false;
        analyse_block(c, body, 0);
    } while (c->changed);
}
