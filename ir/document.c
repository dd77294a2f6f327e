// docs/reference/operations.md and attributes.md from the tables: `tilec docs operations`, `tilec docs attributes`.
#include "ir/document.h"
#include "ir/ir.h"

// `text` in a cell of a table.
static void put_cell(StrBuf *out, const char *text) {
    for (; *text; text++) {
        if (*text == '|') sb_char(out, '\\');
        sb_char(out, *text);
    }
}

static void put_operand(StrBuf *out, const Operand *operand) {
    bool optional = operand->flags & OPERAND_OPTIONAL;
    sb_printf(out, "%s%s%s%s%s", optional ? "[" : "", operand->name, operand->flags & OPERAND_NAMED ? " = .." : "",
              operand->flags & OPERAND_VARIADIC ? "..." : "", optional ? "]" : "");
}

static const char *participants_text(Participants who) {
    static const char *const texts[] = {
        [BY_EACH] = "thread",      [BY_ELECTED] = "one thread", [BY_WARP] = "warp",      [BY_WARPGROUP] = "warpgroup",
        [BY_ROLE] = "role or CTA", [BY_BLOCK] = "CTA",          [BY_CLUSTER] = "cluster"};
    return texts[who];
}

static const char *completion_text(Completion completion) {
    static const char *const texts[] = {[DONE_NOW] = "",
                                        [DONE_CP_GROUP] = "`cp_async_wait`",
                                        [DONE_BULK_GROUP] = "`bulk_wait`",
                                        [DONE_MBARRIER] = "`mbarrier_wait`",
                                        [DONE_WGMMA_GROUP] = "`wgmma_wait`"};
    return texts[completion];
}

// A row: signature, by whom, waited for by, what the target must have, meaning.
static void document_operation(const OpInfo *op, StrBuf *out) {
    sb_printf(out, "| `%s(", op->text);
    for (int i = 0; i < op->operand_count; i++) {
        if (i) sb_str(out, ", ");
        put_operand(out, &op->operands[i]);
    }
    sb_printf(out, ")` | %s | %s | %s | ", participants_text(op->participants), completion_text(op->completion),
              op->feature == FEATURE_BASE ? "" : feature_text(op->feature));
    put_cell(out, op->summary);
    sb_str(out, " |\n");
}

enum { GROUPS = 4 };

static int group_of(const OpInfo *op) {
    int stages = op->stages & (STAGE_BIT_TILE | STAGE_BIT_THREAD);
    return op->classes & OP_CLASS_PURE ? 0 : stages == STAGE_BIT_TILE ? 1 : stages == STAGE_BIT_THREAD ? 3 : 2;
}

void ir_document_operations(StrBuf *out) {
    static const char *const titles[GROUPS] = {"Scalar functions", "Tile stage", "Tile stage and thread stage",
                                               "Thread stage"};
    sb_str(
        out,
        "# Operations\n\n"
        "Made from `ir/ops.def` by `tilec docs operations`; do not edit. [language.md](language.md) says how the\n"
        "operations work together, [numerics.md](numerics.md) how exact they are.\n\n"
        "`[..]`: may be left out. `name = ..`: given by its name. By: who executes the operation together. Wait: what\n"
        "waits for its end, where it is asynchronous. Needs: what the target must have (`tilec targets`).\n");
    for (int group = 0; group < GROUPS; group++) {
        sb_printf(out, "\n## %s\n\n| operation | by | wait | needs | meaning |\n|---|---|---|---|---|\n",
                  titles[group]);
        for (int op = 0; op < OP_COUNT; op++)
            if (group_of(&op_rows[op]) == group) document_operation(&op_rows[op], out);
    }
}

// Letters of attrs.def: 's' is a string among the arguments, a statement among the places.
static const char *argument_text(char letter) {
    switch (letter) {
    case 'i': return "integer";
    case 's': return "string";
    case 'S': return "[string]";
    case 'I': return "[integer]";
    case 'N': return "[name]";
    case 'n': return "name";
    case 'e': return "expression";
    case 'l': return "layout";
    default: return "tensor";
    }
}

static const char *place_text(char letter) {
    switch (letter) {
    case 'k': return "kernels";
    case 'd': return "buffers";
    case 's': return "statements";
    default: return "parameters";
    }
}

static const char *const meanings[] = {
#define ATTR(NAME, text, pattern, where, meaning) [ATTR_##NAME] = meaning,
#include "ir/attrs.def"
#undef ATTR
};

void ir_document_attributes(StrBuf *out) {
    sb_str(
        out,
        "# Attributes\n\n"
        "Made from `ir/attrs.def` by `tilec docs attributes`; do not edit. Attributes are decisions of passes, before a\n"
        "statement or declaration and after a declarator: `@name(arguments)`. They print and read back. An unknown one\n"
        "is an error.\n\n| attribute | on | meaning |\n|---|---|---|\n");
    for (int id = 0; id < ATTR_COUNT; id++) {
        const char *pattern = attr_pattern((AttrId)id), *where = attr_where((AttrId)id);
        sb_printf(out, "| `@%s%s", attr_name((AttrId)id), *pattern ? "(" : "");
        for (int i = 0; pattern[i]; i++) sb_printf(out, "%s%s", i ? ", " : "", argument_text(pattern[i]));
        sb_printf(out, "%s` | ", *pattern ? ")" : "");
        for (int i = 0; where[i]; i++) sb_printf(out, "%s%s", i ? ", " : "", place_text(where[i]));
        sb_str(out, " | ");
        put_cell(out, meanings[id]);
        sb_str(out, " |\n");
    }
}
