// What a module says of places in its text. Kernels of one name are variants of one text: facts of types are of all of
// them, decisions of the first one.
#include "codegen/codegen.h"
#include "ir/print.h"
#include "ir/query.h"
#include "ir/schedule.h"
#include "passes/cost/occupancy.h"
#include "runtime/compile/layouts.h"
#include "runtime/editor/editor.h"
#include <string.h>

typedef struct Facts {
    Analysis *analysis;
    Arena *arena;
    int file;
} Facts;

static void add_fact(const Facts *f, Span place, const char *text) {
    Analysis *a = f->analysis;
    if (place.file != f->file || place.line == 0) return;
    for (int i = 0; i < a->facts.count; i++) {
        const Fact *known = &a->facts.items[i];
        if (known->line == place.line && known->column == place.column && !strcmp(known->text, text)) return;
    }
    Fact fact = {place.line, place.column, text};
    vec_push(f->arena, &a->facts, fact);
}

static const char *as_code(const Facts *f, const char *text) {
    return arena_printf(f->arena, "```tile\n%s\n```", text);
}

// ---- types ----
static void var_fact(const Facts *f, const Var *var) {
    add_fact(f, var->loc, as_code(f, arena_printf(f->arena, "%s: %s", var->name, type_text(var->type))));
}

static void buffer_fact(const Facts *f, const Buf *buf) {
    static const char *const scopes[] = {
        [SCOPE_GLOBAL] = "", [SCOPE_SHARED] = "shared ", [SCOPE_FRAGMENT] = "fragment ", [SCOPE_LOCAL] = "local "};
    StrBuf text;
    sb_init(&text, f->arena);
    sb_printf(&text, "%s%s: %s", scopes[buf->scope], buf->name, type_text(buf->type));
    Expr **shape = argument_dims(f->arena, buf, buf->shape);
    for (int d = 0; d < buf->rank; d++) {
        sb_str(&text, d ? ", " : "[");
        print_expr(shape[d], &text);
    }
    if (buf->rank) sb_char(&text, ']');
    add_fact(f, buf->loc, as_code(f, sb_text(&text)));
}

static void iter_facts(const Facts *f, int count, const Iter *iters) {
    for (int i = 0; i < count; i++) var_fact(f, iters[i].var);
}

static void statement_types(const Facts *f, const Stmt *stmt) {
    switch (stmt->kind) {
    case STMT_LET:
    case STMT_VAR: var_fact(f, stmt->let.var); break;
    case STMT_DECL: buffer_fact(f, stmt->decl); break;
    case STMT_FOR: iter_facts(f, stmt->loop.count, stmt->loop.iters); break;
    case STMT_GRID: iter_facts(f, stmt->grid.count, stmt->grid.iters); break;
    case STMT_THREAD: iter_facts(f, stmt->thread.count, stmt->thread.iters); break;
    default: break;
    }
}

static void function_types(const Facts *f, const Func *func) {
    for (int i = 0; i < func->params.count; i++) {
        const Param *param = &func->params.items[i];
        if (param->buf) buffer_fact(f, param->buf);
        else var_fact(f, param->var);
    }
    for (int i = 0; i < func->dims.count; i++) var_fact(f, func->dims.items[i]);
    FOR_EACH_STMT (stmt, &func->body) statement_types(f, stmt);
}

void facts_of_types(Analysis *analysis, const Module *module, int file) {
    Facts f = {analysis, analysis->arena, file};
    for (int i = 0; i < module->funcs.count; i++) function_types(&f, module->funcs.items[i]);
    for (int i = 0; i < module->references.count; i++) function_types(&f, module->references.items[i]);
}

// ---- decisions ----
static int variants_of(const Module *module, const Func *kernel) {
    int count = 0;
    for (int i = 0; i < module->funcs.count; i++) count += strcmp(module->funcs.items[i]->name, kernel->name) == 0;
    return count;
}

// "2 of 128 threads, 232 registers each"
static const char *role_text(Arena *arena, const Stmt *role) {
    StrBuf text;
    sb_init(&text, arena);
    if (role->role.count) sb_printf(&text, "%lld of ", (long long)role_members(role));
    sb_printf(&text, "%lld threads", (long long)role->role.threads);
    if (role->role.regs) sb_printf(&text, ", %lld registers each", (long long)role->role.regs);
    return sb_text(&text);
}

static void put_groups(const Func *kernel, StrBuf *text) {
    FOR_EACH_STMT (stmt, &kernel->body) {
        if (stmt->kind == STMT_GRID) {
            const int *cluster = stmt->grid.cluster;
            sb_printf(text, "\n- %s%lld threads", grid_is_persistent(stmt) ? "persistent, " : "",
                      (long long)stmt->grid.threads->integer);
            if (cluster[0] * cluster[1] * cluster[2] > 1)
                sb_printf(text, ", clusters of %d x %d x %d CTAs", cluster[0], cluster[1], cluster[2]);
        }
        if (stmt->kind == STMT_ROLE)
            sb_printf(text, "\n- role `%s`: %s", stmt->role.name, role_text(text->arena, stmt));
    }
}

static void kernel_fact(const Facts *f, const Module *module, const Func *kernel, const Target *target) {
    StrBuf text;
    sb_init(&text, f->arena);
    int variants = variants_of(module, kernel);
    const char *tunables = tunables_text(f->arena, kernel);
    sb_printf(&text, "%s", target->name);
    if (variants > 1) sb_printf(&text, ", the first of %d variants", variants);
    if (tunables[0]) sb_printf(&text, ": %s", tunables);
    put_groups(kernel, &text);
    sb_printf(&text, "\n- %lld bytes of shared memory", (long long)kernel_shared_bytes(kernel));
    add_fact(f, kernel->loc, sb_text(&text));
}

// The statement as the dump after swizzle-allocation has it, without what is in its body.
static void statement_fact(const Facts *f, const Stmt *stmt) {
    bool shown = stmt->kind == STMT_DECL || (stmt->kind == STMT_CALL && stmt->attrs);
    if (!shown) return;
    StrBuf text;
    sb_init(&text, f->arena);
    print_stmt(stmt, 0, &text);
    while (text.length && sb_text(&text)[text.length - 1] == '\n') text.length--, text.text[text.length] = 0;
    add_fact(f, stmt->kind == STMT_DECL ? stmt->decl->loc : stmt->loc, as_code(f, sb_text(&text)));
}

// At the role's name in the text.
static void role_fact(const Facts *f, const Stmt *role) {
    VEC_EACH (const DeclaredName, name, &f->analysis->outline->declared)
        if (name->kind == NAME_ROLE && name->span.line == role->loc.line)
            add_fact(f, name->span, role_text(f->arena, role));
}

// What each access of shared memory costs, at its statement.
static void access_facts(const Facts *f, Module *module, Func *kernel, const Target *target) {
    PassContext context = {
        .module = module, .arena = f->arena, .failure = module->failure, .sink = module->sink, .target = target};
    SharedAccessVec accesses = {0};
    if (kernel->stage != STAGE_TILE) return;
    shared_accesses(&context, kernel, &accesses);
    VEC_EACH (const SharedAccess, access, &accesses) {
        AccessWords words = access_words(f->arena, target, access);
        add_fact(
            f, access->stmt->loc,
            arena_printf(f->arena, "`%s`: %s, bank conflicts: %s", access->buf->name, words.what, words.conflicts));
    }
}

static void add_hint(const Facts *f, Span place, const char *text) {
    InlayHint hint = {place.end_line, place.end_column, text};
    if (place.file == f->file && place.line) vec_push(f->arena, &f->analysis->hints, hint);
}

// The registers of each thread that a fragment takes.
static void register_hint(const Facts *f, const Stmt *stmt) {
    const Buf *buf = stmt->decl;
    if (stmt->kind != STMT_DECL || buf->scope != SCOPE_FRAGMENT || !buf->layout || buf->layout->rank_in < 2) return;
    int64_t registers = (layout_extent_in(buf->layout, 1) * type_bits(buf->type) + 31) / 32;
    add_hint(f, buf->loc,
             arena_printf(f->arena, " (%lld register%s)", (long long)registers, registers == 1 ? "" : "s"));
}

// What stands behind each tunable: the values of the variants, each once.
static void tunable_hints(const Facts *f, const Module *module, const Func *kernel, const DeclaredName *name) {
    StrBuf text;
    sb_init(&text, f->arena);
    VEC(int64_t) seen = {0};
    for (int i = 0; i < module->funcs.count; i++) {
        const Func *func = module->funcs.items[i];
        if (strcmp(func->name, kernel->name) != 0) continue;
        for (const Attr *attr = func->attrs; attr; attr = attr->next) {
            if (attr->id != ATTR_TUNED || strcmp(attr->args[0].text, name->text) != 0) continue;
            int64_t value = attr->args[1].integer;
            bool known = false;
            for (int k = 0; k < seen.count; k++) known |= seen.items[k] == value;
            if (known) continue;
            vec_push(f->arena, &seen, value);
            sb_printf(&text, "%s%lld", seen.count > 1 ? ", " : " = ", (long long)value);
        }
    }
    if (!seen.count) return;
    add_hint(f, name->span, sb_text(&text));
}

static void kernel_hints(const Facts *f, const Module *module, const Func *kernel) {
    VEC_EACH (const DeclaredName, name, &f->analysis->outline->declared) {
        bool own = name->scope.line == kernel->loc.line && name->scope.column == kernel->loc.column;
        if (name->kind == NAME_TUNABLE && name->span.file == f->file && own) tunable_hints(f, module, kernel, name);
    }
}

void facts_of_passes(Analysis *analysis, Module *module, const Target *target, int file) {
    Facts f = {analysis, analysis->arena, file};
    const char *last = "";
    for (int i = 0; i < module->funcs.count; i++) {
        Func *kernel = module->funcs.items[i];
        if (kernel->kind != FUNC_KERNEL || strcmp(kernel->name, last) == 0) continue;
        last = kernel->name;
        kernel_fact(&f, module, kernel, target);
        kernel_hints(&f, module, kernel);
        access_facts(&f, module, kernel, target);
        FOR_EACH_STMT (stmt, &kernel->body) {
            statement_fact(&f, stmt);
            if (stmt->kind == STMT_ROLE) role_fact(&f, stmt);
            register_hint(&f, stmt);
        }
    }
}
