// The word at a place, and what may stand there.
#include "ir/build.h"
#include "runtime/editor/editor.h"
#include "support/utf8.h"
#include <ctype.h>
#include <string.h>

static bool is_before(int line, int column, int other_line, int other_column) {
    return line < other_line || (line == other_line && column < other_column);
}

// The end of a name counts as the name: there the cursor is after it was typed.
static bool span_has(Span span, int line, int column) {
    return !is_before(line, column, span.line, span.column) && !is_before(span.end_line, span.end_column, line, column);
}

const NameUse *editor_use_at(const Outline *outline, int file, int line, int column) {
    if (!outline) return NULL;
    VEC_EACH (const NameUse, use, &outline->uses)
        if (use->span.file == file && span_has(use->span, line, column)) return use;
    return NULL;
}

const char *name_kind_text(NameKind kind) {
    static const char *const texts[] = {
        [NAME_KERNEL] = "kernel",     [NAME_PROGRAM] = "program",     [NAME_FN] = "fn",
        [NAME_MACRO] = "macro",       [NAME_CONST] = "const",         [NAME_COMPILE_TIME] = "compile-time name",
        [NAME_DIM] = "dim",           [NAME_PARAMETER] = "parameter", [NAME_TUNABLE] = "tunable",
        [NAME_BUFFER] = "buffer",     [NAME_CHANNEL] = "channel",     [NAME_VARIABLE] = "variable",
        [NAME_ITERATOR] = "iterator", [NAME_ROLE] = "role",
    };
    return texts[kind];
}

// ---- the word at a place ----
typedef struct PlacedWord {
    const char *text;
    int column;       // of its first byte
    bool attribute;   // '@' stands in front
} PlacedWord;

static bool in_word(char c) {
    return isalnum((unsigned char)c) || c == '_';
}

// Also of no letters, where one may begin. False: the place is outside of the text.
static bool word_at(Arena *arena, const char *text, size_t length, int line, int column, PlacedWord *out) {
    const char *start;
    size_t size;
    if (!text_line(text, length, line, &start, &size) || column < 1 || (size_t)column > size + 1) return false;
    const char *first = start + column - 1, *last = first;
    while (first > start && in_word(first[-1])) first--;
    while (last < start + size && in_word(*last)) last++;
    *out = (PlacedWord){arena_strndup(arena, first, (size_t)(last - first)), (int)(first - start) + 1,
                        first > start && first[-1] == '@'};
    return true;
}

// ---- hover ----
static void begin_paragraph(StrBuf *out) {
    if (out->length) sb_str(out, "\n\n");
}

static void put_operation(OpId op, StrBuf *out) {
    const OpInfo *info = op_info(op);
    begin_paragraph(out);
    sb_printf(out, "```tile\n%s(", info->text);
    for (int i = 0; i < info->operand_count; i++) sb_printf(out, "%s%s", i ? ", " : "", info->operands[i].name);
    sb_printf(out, ")\n```\n%s", info->summary);
}

static void put_facts(const Analysis *analysis, int line, int column, StrBuf *out) {
    if (!analysis) return;
    VEC_EACH (const Fact, fact, &analysis->facts) {
        if (fact->line != line || fact->column != column || strstr(sb_text(out), fact->text)) continue;
        begin_paragraph(out);
        sb_str(out, fact->text);
    }
}

static void put_name(const Analysis *now, const Analysis *facts, const DeclaredName *name, StrBuf *out) {
    sb_printf(out, "%s `%s`", name_kind_text(name->kind), name->text);
    if (name->span.file != 0) sb_printf(out, " of `%s`", diag_source_name(now->sink, name->span.file));
    if (name->span.file != 0) return;
    put_facts(now, name->span.line, name->span.column, out);
    put_facts(facts, name->span.line, name->span.column, out);
}

bool editor_hover(const Analysis *now, const Analysis *facts, const char *text, size_t length, int line, int column,
                  StrBuf *out) {
    PlacedWord word;
    if (!word_at(now->arena, text, length, line, column, &word)) return false;
    const NameUse *use = editor_use_at(now->outline, 0, line, column);
    AttrId attribute = attr_named(word.text);
    if (word.attribute && attribute != ATTR_COUNT) {
        sb_printf(out, "`@%s`: %s", word.text, attr_meaning(attribute));
    } else if (use) {
        put_name(now, facts, &now->outline->declared.items[use->declared], out);
    } else if (op_named(word.text) != OP_COUNT) {
        put_operation(op_named(word.text), out);
        put_facts(facts, line, word.column, out);
    } else if (type_named(word.text) != TYPE_NONE) {
        sb_printf(out, "type `%s`: %s", word.text, type_description(type_named(word.text)));
    } else {
        put_facts(facts, line, word.column, out);   // a loop: what its accesses cost
    }
    return out->length > 0;
}

// ---- completion ----
static bool is_visible(const DeclaredName *name, int line, int column) {
    if (name->scope.line == 0) return true;
    return name->scope.file == 0 && span_has(name->scope, line, column);
}

static void add(Arena *arena, SuggestionVec *out, SuggestionKind kind, const char *label, const char *detail) {
    Suggestion completion = {.kind = kind, .label = label, .detail = detail};
    vec_push(arena, out, completion);
}

static void add_names(Arena *arena, const Outline *outline, int line, int column, SuggestionVec *out) {
    VEC_EACH (const DeclaredName, name, &outline->declared) {
        bool known = !is_visible(name, line, column);
        for (int i = 0; i < out->count && !known; i++) known = !strcmp(out->items[i].label, name->text);
        Suggestion completion = {SUGGEST_NAME, name->kind, name->text, name_kind_text(name->kind)};
        if (!known) vec_push(arena, out, completion);
    }
}

void editor_complete(Arena *arena, const Outline *outline, const char *text, size_t length, int line, int column,
                     SuggestionVec *out) {
    PlacedWord word;
    bool attributes = word_at(arena, text, length, line, column, &word) && word.attribute;
    for (int i = 0; attributes && i < ATTR_COUNT; i++)
        add(arena, out, SUGGEST_ATTRIBUTE, attr_name((AttrId)i), attr_meaning((AttrId)i));
    if (attributes) return;
    if (outline) add_names(arena, outline, line, column, out);
    for (int i = 0; i < OP_COUNT; i++)
        add(arena, out, SUGGEST_OPERATION, op_info((OpId)i)->text, op_info((OpId)i)->summary);
    for (int i = 0; i < TYPE_COUNT; i++) add(arena, out, SUGGEST_TYPE, type_text((Type)i), type_description((Type)i));
    const char *const *words;
    int count = syntax_keywords(arena, &words);
    for (int i = 0; i < count; i++) add(arena, out, SUGGEST_KEYWORD, words[i], "keyword");
}
