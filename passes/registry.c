// The registry: passes.def as tables, and docs/reference/passes.md from them.
#include "passes/registry.h"
#include <ctype.h>
#include <string.h>

// The words of the column `relies`.
#define NOTHING 0
#define STAGES (1 << PRE_STAGES)
#define VIA (1 << PRE_VIA)
#define NO_CHANNELS (1 << PRE_NO_CHANNELS)
#define FLAT_GRID (1 << PRE_FLAT_GRID)
#define LAYOUTS (1 << PRE_LAYOUTS)
#define MAPS (1 << PRE_MAPS)
#define SCRATCH (1 << PRE_SCRATCH)
#define SHARED (1 << PRE_SHARED)
#define NO_TILE_OPS (1 << PRE_NO_TILE_OPS)

static const Pass passes[] = {
#define PASS(suffix, name, from, to, needs, relies, results, summary)                                                  \
    {name, STAGE_##from, STAGE_##to, needs, relies, results, summary, pass_##suffix},
#include "passes/passes.def"
};

static const PassFn steps[] = {
#define STEP(suffix) pass_##suffix,
#include "passes/passes.def"
};

const Pass *pass_at(int index) {
    return index >= 0 && index < COUNT_OF(passes) ? &passes[index] : NULL;
}

const Pass *pass_named(const char *name) {
    for (int i = 0; i < COUNT_OF(passes); i++)
        if (!strcmp(passes[i].name, name)) return &passes[i];
    return NULL;
}

const Pass *pipeline_step(int index) {
    if (index < 0 || index >= COUNT_OF(steps)) return NULL;
    for (int i = 0; i < COUNT_OF(passes); i++)
        if (passes[i].run == steps[index]) return &passes[i];
    return NULL;
}

static const char *stage_text(Stage stage) {
    return stage == STAGE_TILE ? "tile" : "thread";
}

// A lowering has a stage on either side of it; other passes work at every stage from `from` to `to`.
static void document_pass(const Pass *pass, StrBuf *out) {
    sb_printf(out, "## %s\n\n%c%s\n\n", pass->name, toupper((unsigned char)pass->summary[0]), pass->summary + 1);
    if (pass->from == pass->to) sb_printf(out, "- stage: %s\n", stage_text(pass->from));
    else sb_printf(out, "- stage: %s to %s\n", stage_text(pass->from), stage_text(pass->to));
    if (*pass->needs) sb_printf(out, "- after: %s\n", pass->needs);
    for (int i = 0, bits = pass->relies; bits; i++, bits >>= 1)
        if (bits & 1) sb_printf(out, "- relies on: %s\n", precondition_text((Precondition)i));
    sb_printf(out, "- results: %s\n\n", *pass->results ? pass->results : "the same, to the bit");
}

void passes_document(StrBuf *out) {
    sb_str(
        out,
        "# Passes\n\n"
        "Made from `passes/passes.def` by `tilec docs passes`; do not edit. What the program looks like between "
        "the\npasses is in [lesson 5](../tutorial/05-stages.md); how to write one in [passes/README.md](../../passes/README.md).\n\n"
        "The pipeline:\n\n");
    for (int i = 0; i < COUNT_OF(steps); i++) sb_printf(out, "%2d. `%s`\n", i + 1, pipeline_step(i)->name);
    sb_str(out, "\n");
    for (int i = 0; i < COUNT_OF(passes); i++) document_pass(&passes[i], out);
}
