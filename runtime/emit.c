#include "runtime/emit.h"
#include "ir/print.h"
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
