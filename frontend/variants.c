// Which compile-time values a kernel or program is made for: -D, then the file's tests; a variant per combination.
#include "frontend/sema.h"
#include "support/strbuf.h"
#include <math.h>
#include <string.h>

bool is_type_param(const Node *cparam) {
    return cparam->kids[0] != NULL;   // `E: type`
}

// `E: type in {bf16, f16}`, at the first variant of the kernel that has a list; NULL: any type.
static const Node *listed_types(Sema *s, const Node *func, const Node *cparam) {
    for (int i = 0; i < s->syntax->items.count; i++) {
        const Node *variant = s->syntax->items.items[i].node;
        if (!ast_is_launchable(variant) || strcmp(variant->text, func->text) != 0) continue;
        for (int k = 0; k < variant->kids[0]->count; k++) {
            const Node *other = variant->kids[0]->kids[k];
            if (strcmp(other->text, cparam->text) == 0 && ast_kid(other, 1)) return ast_kid(other, 1);
        }
    }
    return NULL;
}

Type usual_type(Sema *s, const Node *func, const Node *cparam) {
    const Node *types = listed_types(s, func, cparam);
    return types ? find_type(s, types->kids[0]) : TYPE_NONE;
}

static const char *wanted_value(Sema *s, const Node *func, const Node *cparam) {
    const Node *types = listed_types(s, func, cparam);
    StrBuf text;
    if (!types) return is_type_param(cparam) ? "a type" : "a number";
    sb_init(&text, s->arena);
    for (int i = 0; i < types->count; i++) sb_printf(&text, "%s%s", i ? ", " : "one of ", types->kids[i]->text);
    return sb_text(&text);
}

static bool lists_equal(const Node *a, const Node *b) {
    bool equal = a->count == b->count;
    for (int i = 0; equal && i < a->count; i++) equal = strcmp(a->kids[i]->text, b->kids[i]->text) == 0;
    return equal;
}

static void check_listed(Sema *s, const Node *types, int at) {
    const Node *name = types->kids[at];
    Type type = find_type(s, name);
    if (type != TYPE_NONE && type_kind(type) == KIND_OPAQUE)
        diag(s->sink, name->span, T_NOT_SCALAR_TYPE, type_text(type));
    for (int i = 0; i < at; i++)
        if (strcmp(types->kids[i]->text, name->text) == 0) {
            diag_label(diag(s->sink, name->span, T_DUPLICATE_NAME, name->text), types->kids[i]->span,
                       "first given here");
            return;
        }
}

static void check_type_param(Sema *s, const Node *func, const Node *cparam) {
    const Node *own = ast_kid(cparam, 1), *first = listed_types(s, func, cparam);
    if (is_type_param(cparam) && strcmp(cparam->kids[0]->text, "type") != 0)
        diag(s->sink, cparam->kids[0]->span, T_TYPE_WANTED, cparam->text,
             "of kind `type`, or without a kind for a number");
    for (int i = 0; own && i < own->count; i++) check_listed(s, own, i);
    if (!own || lists_equal(own, first)) return;
    Diag *d = diag(s->sink, own->span, T_TYPE_WANTED, cparam->text, wanted_value(s, func, cparam));
    diag_label(d, first->span, "listed here for all variants");
    diag_note(d, "leave out one of the two lists");
}

void check_type_lists(Sema *s) {
    for (int i = 0; i < s->syntax->items.count; i++) {
        const Node *func = s->syntax->items.items[i].node;
        for (int k = 0; ast_is_launchable(func) && k < func->kids[0]->count; k++)
            check_type_param(s, func, func->kids[0]->kids[k]);
    }
}

static bool takes_type(Sema *s, const Node *func, const Node *cparam, Type type) {
    const Node *types = listed_types(s, func, cparam);
    bool takes = !types;
    for (int i = 0; types && i < types->count; i++) takes |= find_type(s, types->kids[i]) == type;
    return takes && is_type_param(cparam) && type != TYPE_NONE;
}

bool check_type(Sema *s, const Node *func, const Node *cparam, Type type, Span span) {
    bool takes = takes_type(s, func, cparam, type);
    if (!takes) diag(s->sink, span, T_TYPE_WANTED, cparam->text, wanted_value(s, func, cparam));
    return takes;
}

bool values_equal(SemaValue a, SemaValue b) {
    if (a.kind != b.kind) {
        bool numbers = is_untyped(a) && is_untyped(b);
        return numbers &&
               (a.kind == VALUE_INT ? (double)a.integer : a.real) == (b.kind == VALUE_INT ? (double)b.integer : b.real);
    }
    if (a.kind == VALUE_INT) return a.integer == b.integer;
    if (a.kind == VALUE_FLOAT) return memcmp(&a.real, &b.real, sizeof a.real) == 0;
    return a.kind == VALUE_POISON || expr_equal(a.expr, b.expr);
}

Choice *choice_named(ChoiceVec *choices, const char *name) {
    for (int i = 0; i < choices->count; i++)
        if (strcmp(choices->items[i].name, name) == 0) return &choices->items[i];
    return NULL;
}

static bool choices_equal(const ChoiceVec *a, const ChoiceVec *b) {
    for (int i = 0; i < a->count; i++)
        if (a->items[i].type != b->items[i].type || !values_equal(a->items[i].value, b->items[i].value)) return false;
    return true;
}

const char *constant_text(Arena *arena, SemaValue value) {
    if (value.kind == VALUE_EXPR && value.expr->type == TYPE_BOOL) return value.expr->integer ? "true" : "false";
    if (value.kind == VALUE_EXPR) {
        bool is_float = value.expr->kind == EXPR_FLOAT;
        SemaValue inner =
            is_float ? value_float(value.expr->real, value.span) : value_int(value.expr->integer, value.span);
        return arena_printf(arena, "%s(%s)", type_text(value.expr->type), constant_text(arena, inner));
    }
    if (value.kind == VALUE_INT && value.integer > INT64_MAX)
        return arena_printf(arena, "%llu", (unsigned long long)value.integer);
    if (value.kind == VALUE_INT) return arena_printf(arena, "%lld", (long long)value.integer);
    if (isinf(value.real)) return value.real > 0 ? "inf" : "-inf";
    if (isnan(value.real)) return "nan";
    return arena_printf(arena, "%a", value.real);
}

// ---- one value ----

// A define's value, or a test's or a call's expression, for a compile-time name. False after a report.
static bool choose(Sema *s, const Node *func, const Node *cparam, const Node *node, Choice *out) {
    if (is_type_param(cparam)) {
        if (node->kind == N_NAME) out->type = type_by_name(s, node->text);
        return check_type(s, func, cparam, out->type, node->span);
    }
    out->value = constant(s, node, "a compile-time value");
    return !is_poison(out->value);
}

static bool choose_defined(Sema *s, const Node *func, const Node *cparam, const Define *define, Choice *out) {
    out->value = define_value(s, define, cparam->span, &out->type);
    bool fine = is_type_param(cparam) ? takes_type(s, func, cparam, out->type) : out->type == TYPE_NONE;
    if (!fine && !strmap_has(s->wrong_defines, define->name)) {
        diag(s->sink, cparam->span, T_DEFINE_VALUE, define->name, define->value, wanted_value(s, func, cparam));
        strmap_put(s->wrong_defines, define->name, s);
    }
    return fine && (out->type != TYPE_NONE || !is_poison(out->value));
}

static const Node *binding_of(const Node *test, const char *name) {
    const Node *list = test->kids[0];
    for (int i = 0; i < list->count; i++)
        if (strcmp(list->kids[i]->text, name) == 0) return list->kids[i]->kids[0];
    return NULL;
}

// ---- combinations ----
typedef VEC(ChoiceVec) Combinations;

static void add_combination(Sema *s, Combinations *all, const ChoiceVec *one) {
    for (int i = 0; i < all->count; i++)
        if (choices_equal(&all->items[i], one)) return;
    vec_push(s->arena, all, *one);
}

// The values that one test (NULL: none) gives; false when one is missing.
static bool combination(Sema *s, const Node *func, const Node *test, ChoiceVec *out, const Node **missing) {
    const Node *cparams = func->kids[0];
    *missing = NULL;
    for (int i = 0; i < cparams->count; i++) {
        const Node *cparam = cparams->kids[i];
        Choice choice = {.name = cparam->text, .type = TYPE_NONE, .value = value_poison(cparam->span)};
        const Define *define = define_of_own(s, func->text, cparam->text);
        const Node *bound = test ? binding_of(test, cparam->text) : NULL;
        if (define && !choose_defined(s, func, cparam, define, &choice)) return false;
        if (!define && bound && !choose(s, func, cparam, bound, &choice)) return false;
        if (!define && !bound) choice.type = usual_type(s, func, cparam);
        if (!define && !bound && choice.type == TYPE_NONE) return *missing = cparam, false;
        vec_push(s->arena, out, choice);
    }
    return true;
}

// One parameter takes all values of a name: of the type that the first typed one has, else floats where one is a float.
static void agree_on_type(Sema *s, Combinations *all, int at) {
    Type type = TYPE_NONE;
    bool floats = false;
    VEC_EACH (ChoiceVec, one, all) {
        SemaValue value = one->items[at].value;
        if (type == TYPE_NONE && value.kind == VALUE_EXPR) type = value_type(s, value);
        floats |= value.kind == VALUE_FLOAT;
    }
    VEC_EACH (ChoiceVec, one, all) {
        SemaValue *value = &one->items[at].value;
        if (is_poison(*value)) continue;   // of a name for types
        if (type != TYPE_NONE) *value = value_expr(s, to_type(s, *value, type), value->span);
        else if (floats && value->kind == VALUE_INT) *value = value_float((double)value->integer, value->span);
    }
}

int combinations(Sema *s, const Node *node, const ChoiceVec **out) {
    Combinations all = {0};
    const Node *missing = NULL;
    NameScope *scope = s->scope;
    s->scope = s->file;
    int before = diag_errors(s->sink), tests = 0;
    for (int i = 0; i < s->syntax->items.count; i++) {
        const SyntaxItem *item = &s->syntax->items.items[i];
        bool mine = item->node->kind == N_TEST && !item->imported && strcmp(item->node->text, node->text) == 0;
        ChoiceVec one = {0};
        if (!mine) continue;
        tests++;
        if (combination(s, node, item->node, &one, &missing)) add_combination(s, &all, &one);
        else if (missing) diag(s->sink, item->node->span, T_UNBOUND, missing->text);
    }
    ChoiceVec plain = {0};
    if (tests == 0 && combination(s, node, NULL, &plain, &missing)) add_combination(s, &all, &plain);
    if (all.count == 0 && diag_errors(s->sink) == before && missing)
        diag(s->sink, missing->span, T_NO_COMPILE_VALUE, missing->text, missing->text);
    for (int i = 0; all.count > 0 && i < all.items[0].count; i++) agree_on_type(s, &all, i);
    s->scope = scope;
    *out = all.items;
    return diag_errors(s->sink) > before ? 0 : all.count;
}

// A value that is wrong is reported where the kernel is made.
const char *syntax_types_given(Syntax *syntax, Arena *arena, int count, const Define *defines, const char *kernel) {
    ElaborateOptions options = {.define_count = count, .defines = defines};
    Sema *s = sema_new(syntax, arena, syntax->failure, syntax->sink, &options);
    int at = item_named(syntax, kernel), diags = diag_count(syntax->sink);
    const Node *func = at < 0 ? NULL : syntax->items.items[at].node;
    StrBuf text;
    sb_init(&text, arena);
    for (int i = 0; func && i < func->kids[0]->count; i++) {
        const Node *cparam = func->kids[0]->kids[i];
        const Define *define = is_type_param(cparam) ? define_of_own(s, kernel, cparam->text) : NULL;
        Type type = define ? type_named(define->value) : TYPE_NONE;
        if (type == TYPE_NONE || type == usual_type(s, func, cparam)) continue;
        sb_printf(&text, "%s%s=%s", text.length ? "," : "", cparam->text, type_text(type));
    }
    diag_truncate(syntax->sink, diags);
    return sb_text(&text);
}

bool types_differ(int count, const ChoiceVec *all) {
    for (int i = 1; i < count; i++)
        for (int k = 0; k < all[i].count; k++)
            if (all[i].items[k].type != all[0].items[k].type) return true;
    return false;
}

int syntax_usual_types(Syntax *syntax, Arena *arena, int count, const Define *defines, const char *kernel,
                       const Define **out) {
    ElaborateOptions options = {.define_count = count, .defines = defines};
    Sema *s = sema_new(syntax, arena, syntax->failure, syntax->sink, &options);
    int at = item_named(syntax, kernel), diags = diag_count(syntax->sink);
    const Node *func = at < 0 ? NULL : syntax->items.items[at].node;
    const ChoiceVec *all;
    VEC(Define) types = {0};
    int made = func ? combinations(s, func, &all) : 0;
    bool several = made > 1 && types_differ(made, all);
    for (int i = 0; several && i < func->kids[0]->count; i++) {
        const Node *cparam = func->kids[0]->kids[i];
        if (!is_type_param(cparam) || define_of_own(s, kernel, cparam->text)) continue;
        Type type = usual_type(s, func, cparam);
        Define define = {arena_printf(arena, "%s.%s", kernel, cparam->text),
                         type == TYPE_NONE ? NULL : type_text(type)};
        vec_push(arena, &types, define);
    }
    diag_truncate(syntax->sink, diags);
    *out = types.items;
    return types.count;
}

static void put_word(StrBuf *name, const char *text) {
    for (; *text; text++) {
        bool plain = (*text >= '0' && *text <= '9') || (*text >= 'a' && *text <= 'z') || (*text >= 'A' && *text <= 'Z');
        sb_char(name, plain ? *text : *text == '-' ? 'm' : '_');
    }
}

// A name of its own for a specialisation: k__D_64, k__E_f16.
const char *mangled(Sema *s, const char *name, const ChoiceVec *choices, bool types_only) {
    StrBuf text;
    sb_init(&text, s->arena);
    sb_str(&text, name);
    for (int i = 0; i < choices->count; i++) {
        const Choice *choice = &choices->items[i];
        if (types_only && choice->type == TYPE_NONE) continue;
        sb_printf(&text, "__%s_", choice->name);
        put_word(&text, choice->type != TYPE_NONE ? type_text(choice->type) : constant_text(s->arena, choice->value));
    }
    return sb_text(&text);
}
