// What C, CUDA and Python spell in another way: hints for syntax errors, and names. Those for syntax errors work on the text
// around the unexpected token, since such a text has no syntax tree.
#include "frontend/parse.h"
#include "frontend/sema.h"
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

typedef const char *Pair[2];   // a word, and what to say of it

static const char *second_of(const Pair *pairs, size_t count, Word word) {
    for (size_t i = 0; i < count; i++)
        if (is_word(word, pairs[i][0])) return pairs[i][1];
    return NULL;
}

// Of the word before the unexpected token.
static const char *hint_behind(Word word) {
    static const Pair hints[] = {{"for", "write for (i in n)"},
                                 {"while", "a condition stands in brackets: while (x > 0) { .. }"},
                                 {"if", "a condition stands in brackets: if (x > 0) { .. }"},
                                 {"import", "write import \"path.tile\";"},
                                 {"__shared__", "write shared NAME: f32[extent, ...]"},
                                 {"frag", "write fragment NAME: f32[extent, ...]"},
                                 {"return", "a kernel has no return: put the statements behind it under an `if`"}};
    return second_of(hints, COUNT_OF(hints), word);
}

// Of the unexpected token.
static const char *hint_for_word(Word word) {
    static const char kernel[] = "write kernel NAME(x: f32[N], y: out f32[N]) { grid (i in n) threads 128 { .. } }";
    static const Pair hints[] = {
        {"const", "what a kernel only reads needs no word: write NAME: f32[extent, ...]"},
        {"__shared__", "write shared NAME: f32[extent, ...]"},
        {"__global__", kernel},
        {"def", kernel},
        {"void", kernel},
        {"__device__", "write fn NAME(x: f32) -> f32 { return ..; }"},
        {"template", "compile-time names stand in brackets: kernel NAME[SIZE, T: type](x: T[N])"}};
    return second_of(hints, COUNT_OF(hints), word);
}

static const char *hint_for_name(Arena *arena, const char *start, const char *at, Word got, const char **fix) {
    static const Pair operators[] = {{"and", "&&"}, {"or", "||"}, {"not", "!"}};
    *fix = second_of(operators, COUNT_OF(operators), got);
    if (*fix) return arena_printf(arena, "write '%s'", *fix);
    Word before = word_before(start, at);
    if (before.length && before.text + before.length == at && isdigit((unsigned char)*before.text))
        return "numbers have no suffix: convert with f32(x) where the type matters";
    if (ends_in_cast(arena, start, at)) return "a conversion is a call: f32(x)";
    const char *last = at;
    while (last > start && last[-1] == ' ') last--;
    if (is_word(got, "if") && last > start && last[-1] != '\n') return "a value by a condition is condition ? a : b";
    const char *hint = hint_for_word(got);
    if (hint) return hint;
    if (!is_c_type(arena, before)) return hint_behind(before);
    const char *end = before.text;
    while (end > start && end[-1] == ' ') end--;
    if (end > start && end[-1] == '(' && is_word(word_before(start, end - 1), "for")) return "write for (i in n)";
    return "write let NAME = value, or var NAME: f32 = value where it changes later";
}

// `tl.load(`, `x.to(`: a call of a member.
static const char *hint_for_member(Arena *arena, const char *start, const char *at) {
    static const char *const casts[] = {"to", "astype", "cast"};
    Word name = word_before(start, at);
    if (!name.length || name.text == start || name.text[-1] != '.') return NULL;
    for (size_t i = 0; i < COUNT_OF(casts); i++)
        if (is_word(name, casts[i])) return "a conversion is a call: f32(x)";
    const char *text = arena_strndup(arena, name.text, name.length), *meant = c_name_meant(text);
    static const Pair members[] = {
        {"load", "an element is x[i]; a tile comes by copy(x[i, j], tile), 0 where x has none"},
        {"store", "an element is y[i] = v; a tile goes by copy(tile, y[i, j]), but for what is outside of y"}};
    const char *hint = second_of(members, COUNT_OF(members), name);
    if (!hint) hint = c_name_hint(text);
    return hint ? hint : arena_printf(arena, "a name has no module before it: write %s(..)", meant ? meant : text);
}

// Between brackets: `x[0:n]`.
static bool in_square_brackets(const Parse *p) {
    return p->opened && p->text[parse_offset(p, p->open[p->opened - 1])] == '[';
}

static const char *hint_for_sign(const Parse *p, const char *start, const char *at, const char *end) {
    bool doubled = at + 1 < end && at[1] == at[0];
    if (*at == '+' && doubled) return "write x += 1";
    if (*at == '-' && doubled) return "write x -= 1";
    if (at > start && *at == '*' && at[-1] == '*')
        return "there is no power operator: write x * x, or exp2(y * log2(x))";
    Word name = word_before(start, at);
    if (*at == '(') return hint_for_member(p->arena, start, at);
    if (*at == ':' && in_square_brackets(p)) return "a part is start +: extent, as in x[0 +: 128]";
    if (*at == '*' && is_c_type(p->arena, name)) return "a tensor names its extents: x: f32[M, N]";
    if (*at == '*' || *at == '&') return "there are no pointers: an element is x[i], in calls too";
    if (*at == '-' && at + 1 < end && at[1] == '>') return "there are no pointers: an element is x[i]";
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
    return hint_for_sign(p, start, at, end);
}

static const Pair names_meant[] = {
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
    {"fill_", "fill"},
    {"clear", "fill"},
    {"bool_", "bool"},
    {"float64", "f64"},
    {"int8", "i8"},
    {"int16", "i16"},
    {"int32", "i32"},
    {"int64", "i64"},
    {"uint8", "u8"},
    {"uint16", "u16"},
    {"uint32", "u32"},
    {"uint64", "u64"},
    {"float8_e4m3fn", "e4m3"},
    {"float8e4nv", "e4m3"},
    {"float8_e5m2", "e5m2"},
    {"float8e5", "e5m2"},
    {"__nv_bfloat16", "bf16"},
    {"device_print", "print"},
    {"static_assert", "assume"},
    {"device_assert", "assert"},
    {"debug_barrier", "barrier"},
    {"syncthreads", "barrier"},
    {"sync_threads", "barrier"},
    {"atomicAnd", "atomic_and"},
    {"atomicOr", "atomic_or"},
    {"atomicXor", "atomic_xor"},
    {"atomicInc", "atomic_inc"},
    {"atomic_xchg", "atomic_exch"},
    {"cumsum", "scan_sum"},
    {"cummax", "scan_max"},
    {"trans", "transpose"},
    {"permute_dims", "permute"},
};

// What has no name of its own here, and how it is written.
static const char index_of_cta[] = "a CTA's index is a name of its grid: grid (i in n, j in m) threads 128";
static const char index_of_thread[] =
    "indices of elements are names of a loop, parallel (i in n), those of threads of thread (t in n)";
static const char threads_of_cta[] = "a CTA has the threads that its grid says: grid (i in n) threads 128";
static const char extents_of_grid[] =
    "the extents of a grid are what it is written with: let n = ceildiv(N, 128); grid (i in n)";
static const char lanes[] = "in thread (t in n), t % 32 is the lane and t / 32 the warp";
static const char indices[] = "indices are names of a loop: parallel (i in n) y[i] = x[i];";
static const char products[] = "gemm(a, b, acc) adds the product of two tiles to a fragment";
static const char vectors[] =
    "there are no vectors: a copy, or parallel (i in n) y[i] = x[i]; has wide accesses by itself";
static const char conversion[] = "a conversion is a call: f32(x)";
static const char selection[] = "write condition ? a : b";
static const char filled[] = "write fragment NAME: f32[M, N]; fill(NAME, 0);";
static const char sums[] = "write reduce_sum(tile, sums, axis = 0); in loops, s += x[i]";
static const char shared_tile[] = "write shared NAME: f32[M, N];";
static const char fragment_tile[] = "write fragment NAME: f32[M, N];";
static const char masks[] =
    "elements outside of a tensor read 0 and are not written; else write m ? x[i] : 0, or if (m) y[i] = v;";
static const char compile_time[] = "compile-time names stand in brackets: kernel NAME[BLOCK](x: f32[N])";
static const Pair names_hinted[] = {
    {"blockIdx", index_of_cta},
    {"program_id", index_of_cta},
    {"bid", index_of_cta},
    {"threadIdx", index_of_thread},
    {"thread_idx", index_of_thread},
    {"tid", index_of_thread},
    {"blockDim", threads_of_cta},
    {"gridDim", extents_of_grid},
    {"num_programs", extents_of_grid},
    {"warpSize", lanes},
    {"laneId", lanes},
    {"lane_id", lanes},
    {"arange", indices},
    {"range", "a loop counts by itself: for (i in n), or for (i in a .. b step s)"},
    {"dot", products},
    {"matmul", products},
    {"float2", vectors},
    {"float4", vectors},
    {"int2", vectors},
    {"int4", vectors},
    {"uint4", vectors},
    {"half2", vectors},
    {"__half2", vectors},
    {"make_float4", vectors},
    {"static_cast", conversion},
    {"cast", conversion},
    {"__float2half", conversion},
    {"__half2float", conversion},
    {"where", selection},
    {"select", selection},
    {"zeros", filled},
    {"full", filled},
    {"sum", sums},
    {"alloc_shared", shared_tile},
    {"alloc_fragment", fragment_tile},
    {"constexpr", compile_time},
    {"__ldg", "write x[i]: a tensor that is only read needs no more"},
    {"pow", "write x * x, or exp2(y * log2(x))"},
    {"powf", "write x * x, or exp2(y * log2(x))"},
    {"sigmoid", "write 1 / (1 + exp(-x))"},
    {"isnan", "write x != x"},
    {"clamp", "write min(max(x, low), high)"},
    {"nullptr", "there are no pointers: tensors are parameters, x: f32[N]"},
};

// Of arguments that an operation here does not have.
static const Pair arguments_hinted[] = {
    {"mask", masks},
    {"other", masks},
    {"boundary_check", masks},
    {"axis", "over an axis: reduce_sum(tile, sums, axis = 0), or reduce_max, reduce_min, scan_sum"},
    {"dim", "write axis = n"},
    {"axes", "write axis = n"},
    {"keepdims", "a result has one dim less than its operand, or the extent 1 there: so is the tile that it goes to"},
    {"out_dtype", "the type of a result is that of the tile that it goes to"},
};

static Word word_of(const char *text) {
    return (Word){text, strlen(text)};
}

const char *c_name_meant(const char *name) {
    return second_of(names_meant, COUNT_OF(names_meant), word_of(name));
}

const char *c_name_hint(const char *name) {
    return second_of(names_hinted, COUNT_OF(names_hinted), word_of(name));
}

const char *c_argument_hint(const char *name) {
    return second_of(arguments_hinted, COUNT_OF(arguments_hinted), word_of(name));
}
