// What C, CUDA and Python spell in another way: hints for syntax errors, and names. Those for syntax errors work on the text
// around the unexpected token, since such a text has no syntax tree.
#include "frontend/parse.h"
#include "ir/ir.h"
#include <ctype.h>
#include <string.h>

typedef struct Word {
    const char *text;
    size_t length;
} Word;

static bool in_word(char c) {
    return isalnum((unsigned char)c) || c == '_';
}

static bool is_word(Word word, const char *text) {
    return strlen(text) == word.length && strncmp(word.text, text, word.length) == 0;
}

// The word that ends before `end`, spaces skipped; empty: none.
static Word word_before(const char *start, const char *end) {
    while (end > start && (end[-1] == ' ' || end[-1] == '\n')) end--;
    const char *first = end;
    while (first > start && in_word(first[-1])) first--;
    return (Word){first, (size_t)(end - first)};
}

static Word word_at(const char *at, const char *end) {
    const char *last = at;
    while (last < end && in_word(*last)) last++;
    return (Word){at, (size_t)(last - at)};
}

static bool is_c_type(Arena *arena, Word word) {
    static const char *const names[] = {"float", "double", "int", "long", "unsigned", "char", "half", "auto", "size_t"};
    for (size_t i = 0; i < COUNT_OF(names); i++)
        if (is_word(word, names[i])) return true;
    return word.length > 0 && type_named(arena_strndup(arena, word.text, word.length)) != TYPE_NONE;
}

// `(float)` ends before `end`.
static bool ends_in_cast(Arena *arena, const char *start, const char *end) {
    while (end > start && end[-1] == ' ') end--;
    if (end == start || end[-1] != ')') return false;
    Word type = word_before(start, end - 1);
    return type.text > start && type.text[-1] == '(' && is_c_type(arena, type);
}

// By the word before the unexpected token.
static const char *hint_behind(Word before) {
    static const char *const hints[][2] = {
        {"for", "write for (i in n)"},
        {"__shared__", "write shared NAME: f32[extent, ...]"},
        {"return", "a kernel has no return: put the statements behind it under an `if`"}};
    for (size_t i = 0; i < COUNT_OF(hints); i++)
        if (is_word(before, hints[i][0])) return hints[i][1];
    return NULL;
}

static const char *hint_for_name(Arena *arena, const char *start, const char *at, Word got, const char **fix) {
    static const char *const operators[][2] = {{"and", "&&"}, {"or", "||"}, {"not", "!"}};
    for (size_t i = 0; i < COUNT_OF(operators); i++) {
        if (!is_word(got, operators[i][0])) continue;
        *fix = operators[i][1];
        return arena_printf(arena, "write '%s'", *fix);
    }
    Word before = word_before(start, at);
    if (before.length && before.text + before.length == at && isdigit((unsigned char)*before.text))
        return "numbers have no suffix: convert with f32(x) where the type matters";
    if (ends_in_cast(arena, start, at)) return "a conversion is a call: f32(x)";
    const char *last = at;
    while (last > start && last[-1] == ' ') last--;
    if (is_word(got, "if") && last > start && last[-1] != '\n') return "a value by a condition is condition ? a : b";
    if (is_word(got, "const")) return "what a kernel only reads needs no word: write NAME: f32[extent, ...]";
    if (!is_c_type(arena, before)) return hint_behind(before);
    const char *end = before.text;
    while (end > start && end[-1] == ' ') end--;
    if (end > start && end[-1] == '(' && is_word(word_before(start, end - 1), "for")) return "write for (i in n)";
    return "write let NAME = value, or var NAME: f32 = value where it changes later";
}

static const char *hint_for_sign(const char *start, const char *at, const char *end) {
    bool doubled = at + 1 < end && at[1] == at[0];
    if (*at == '+' && doubled) return "write x += 1";
    if (*at == '-' && doubled) return "write x -= 1";
    if (at > start && *at == '*' && at[-1] == '*')
        return "there is no power operator: write x * x, or exp2(y * log2(x))";
    Word name = word_before(start, at);
    if (*at == ';') return hint_behind(name);
    bool after_let = *at == ':' && name.length && is_word(word_before(start, name.text), "let");
    return after_let ? "a let has the type of its value: write var NAME: f32 = value, or let NAME = f32(value)" : NULL;
}

const char *c_spelling_hint(Parse *p, Span got, const char **fix) {
    *fix = NULL;
    size_t offset = parse_offset(p, got);
    const char *start = p->text, *at = start + offset, *end = start + p->length;
    if (offset >= p->length) return NULL;
    if (in_word(*at)) return hint_for_name(p->arena, start, at, word_at(at, end), fix);
    if (*at == '(' && ends_in_cast(p->arena, start, at)) return "a conversion is a call: f32(x)";
    return hint_for_sign(start, at, end);
}

static const char *const names_meant[][2] = {
    {"float", "f32"},
    {"double", "f64"},
    {"half", "f16"},
    {"__half", "f16"},
    {"int", "i32"},
    {"long", "i64"},
    {"size_t", "i64"},
    {"unsigned", "u32"},
    {"char", "i8"},
    {"float32", "f32"},
    {"float16", "f16"},
    {"bfloat16", "bf16"},
    {"fabs", "abs"},
    {"fabsf", "abs"},
    {"fmaxf", "max"},
    {"fminf", "min"},
    {"fmax", "max"},
    {"fmin", "min"},
    {"maximum", "max"},
    {"minimum", "min"},
    {"fmaf", "fma"},
    {"expf", "exp"},
    {"__expf", "exp"},
    {"exp2f", "exp2"},
    {"logf", "log"},
    {"__logf", "log"},
    {"log2f", "log2"},
    {"sqrtf", "sqrt"},
    {"rsqrtf", "rsqrt"},
    {"tanhf", "tanh"},
    {"floorf", "floor"},
    {"ceilf", "ceil"},
    {"rintf", "round"},
    {"printf", "print"},
    {"cdiv", "ceildiv"},
    {"INFINITY", "inf"},
    {"NAN", "nan"},
    {"True", "true"},
    {"False", "false"},
    {"__syncthreads", "barrier"},
    {"__syncwarp", "warp_sync"},
    {"__threadfence", "fence"},
    {"atomicAdd", "atomic_add"},
    {"atomicMax", "atomic_max"},
    {"atomicMin", "atomic_min"},
    {"atomicCAS", "atomic_cas"},
    {"atomicExch", "atomic_exch"},
    {"__shfl_xor_sync", "shfl_xor"},
    {"__shfl_sync", "shfl_idx"},
    {"__shfl_down_sync", "shfl_down"},
    {"__shfl_up_sync", "shfl_up"},
    {"__any_sync", "vote_any"},
    {"__all_sync", "vote_all"},
};

const char *c_name_meant(const char *name) {
    for (size_t i = 0; i < COUNT_OF(names_meant); i++)
        if (strcmp(name, names_meant[i][0]) == 0) return names_meant[i][1];
    return NULL;
}
