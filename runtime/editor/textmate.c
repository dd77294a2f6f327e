// The TextMate grammar of the language, which VS Code, Sublime Text and others color programs by: made from the tables.
#include "ir/ir.h"
#include "runtime/editor/editor.h"
#include "support/json.h"
#include <string.h>

static void put_rule(StrBuf *out, const char *name, const char *pattern) {
    sb_printf(out, "    { \"name\": \"%s\", \"match\": ", name);
    json_quote(out, pattern);
    sb_str(out, " },\n");
}

static void put_alternative(StrBuf *pattern, const char *word) {
    sb_printf(pattern, "%s%s", pattern->length > strlen("\\b(") ? "|" : "", word);
}

static void put_words(StrBuf *out, Arena *arena) {
    StrBuf pattern;
    const char *const *words;
    sb_init(&pattern, arena);
    sb_str(&pattern, "\\b(");
    int count = syntax_keywords(arena, &words);
    for (int i = 0; i < count; i++) put_alternative(&pattern, words[i]);
    sb_str(&pattern, ")\\b");
    put_rule(out, "keyword.control.tile", sb_text(&pattern));
}

static void put_types(StrBuf *out, Arena *arena) {
    StrBuf pattern;
    sb_init(&pattern, arena);
    sb_str(&pattern, "\\b(");
    for (int i = 0; i < TYPE_COUNT; i++) put_alternative(&pattern, type_text((Type)i));
    sb_str(&pattern, ")\\b");
    put_rule(out, "storage.type.tile", sb_text(&pattern));
}

static void put_operations(StrBuf *out, Arena *arena) {
    StrBuf pattern;
    sb_init(&pattern, arena);
    sb_str(&pattern, "\\b(");
    for (int i = 0; i < OP_COUNT; i++) put_alternative(&pattern, op_info((OpId)i)->text);
    sb_str(&pattern, ")(?=\\s*\\()");
    put_rule(out, "support.function.tile", sb_text(&pattern));
}

void editor_textmate(StrBuf *out) {
    sb_str(
        out,
        "{\n  \"name\": \"tile\",\n  \"scopeName\": \"source.tile\",\n  \"fileTypes\": [\"tile\"],\n  \"patterns\": [\n");
    put_rule(out, "comment.line.double-slash.tile", "//.*$");
    put_rule(out, "string.quoted.double.tile", "\"(?:[^\"\\\\]|\\\\.)*\"");
    put_rule(out, "entity.other.attribute-name.tile", "@[A-Za-z_][A-Za-z_0-9]*");
    put_rule(out, "entity.name.function.tile", "(?<=\\b(?:kernel|program|reference) )[A-Za-z_][A-Za-z_0-9]*");
    put_rule(out, "entity.name.function.tile", "(?<=\\b(?:fn|test|macro) )[A-Za-z_][A-Za-z_0-9]*(?=\\s*\\()");
    put_operations(out, out->arena);
    put_types(out, out->arena);
    put_words(out, out->arena);
    put_rule(out, "constant.language.tile", "\\b(true|false|inf|nan)\\b");
    sb_str(out, "    { \"name\": \"constant.numeric.tile\", \"match\": ");
    json_quote(out, "\\b(0[xX][0-9a-fA-F.]+([pP][+-]?[0-9]+)?|[0-9]+(\\.[0-9]+)?([eE][+-]?[0-9]+)?)\\b");
    sb_str(out, " }\n  ]\n}\n");
}
