#include "runtime/emit.h"
#include "ir/print.h"
#include "ir/rewrite.h"
#include <ctype.h>

static const char *c_name(Arena *arena, const char *name) {
    char *out = arena_printf(arena, "%s%s", isdigit((unsigned char)name[0]) ? "_" : "", name);
    for (char *c = out; *c; c++)
        if (!isalnum((unsigned char)*c)) *c = '_';
    return out;
}

static void comment_entry(const PlanEntry *entry, StrBuf *out) {
    const PlanVariant *v = &entry->variants.items[0];
    sb_printf(out, "//   %s %s(", entry->is_program ? "program" : "kernel", entry->name);
    for (int i = 0; i < v->params.count; i++) {
        const PlanParam *p = &v->params.items[i];
        static const char *const modes[] = {[MODE_IN] = "", [MODE_OUT] = "out ", [MODE_INOUT] = "inout "};
        sb_printf(out, "%s%s: %s%s", i ? ", " : "", p->name, modes[p->mode], type_text(p->type));
        for (int d = 0; d < p->rank; d++) sb_printf(out, "%s%s", d ? ", " : "[", p->shape[d].text);
        if (p->is_tensor) sb_char(out, ']');
    }
    sb_str(out, ")\n");
}

void emit_header(const Plan *plan, const char *name, const uint8_t *cubin, size_t size, StrBuf *out) {
    const char *c = c_name(out->arena, name);
    sb_printf(out,
              "// Made by tilec %s for %s. Open it with tilec_artefact_open(context, %s_cubin, %s_cubin_size, ...):\n",
              plan->producer, plan->target, c, c);
    for (int i = 0; i < plan->entries.count; i++) comment_entry(&plan->entries.items[i], out);
    sb_printf(out, "#pragma once\n#include <stddef.h>\n\nstatic const size_t %s_cubin_size = %zu;\n", c, size);
    sb_printf(out, "static const _Alignas(16) unsigned char %s_cubin[%zu] = {", c, size);
    for (size_t i = 0; i < size; i++) sb_printf(out, "%s%u,", i % 24 == 0 ? "\n    " : "", cubin[i]);
    sb_str(out, "\n};\n");
}

// ---- layouts ----

typedef struct Table {
    StrBuf *out;
} Table;

static void layout_row(StrBuf *out, const Buf *buf) {
    sb_printf(out, "  %-9s%s: %s[", buf->scope == SCOPE_SHARED ? "shared" : "fragment", buf->name,
              type_text(buf->type));
    for (int d = 0; d < buf->rank; d++) {
        if (d) sb_str(out, ", ");
        print_expr(buf->shape[d], out);
    }
    sb_str(out, "]");
    if (buf->offset >= 0 && buf->scope == SCOPE_SHARED) sb_printf(out, " at byte %lld", (long long)buf->offset);
    sb_printf(out, "\n           %s\n", buf->layout ? layout_text(out->arena, buf->layout) : "no layout");
}

static bool layout_stmt(Visitor *visitor, Stmt *stmt) {
    Table *table = visitor->user;
    if (stmt->kind == STMT_DECL && (stmt->decl->scope == SCOPE_SHARED || stmt->decl->scope == SCOPE_FRAGMENT))
        layout_row(table->out, stmt->decl);
    return true;
}

void emit_layouts(const Module *module, StrBuf *out) {
    for (int i = 0; i < module->funcs.count; i++) {
        Func *func = module->funcs.items[i];
        if (func->kind != FUNC_KERNEL) continue;
        sb_printf(out, "kernel %s%s\n", func->name, attr_get(func->attrs, ATTR_GENERAL) ? " (general)" : "");
        Table table = {out};
        Visitor visitor = {.stmt = layout_stmt, .user = &table};
        visit_block(&visitor, &func->body);
    }
}
