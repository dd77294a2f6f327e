#include "tools/reduce/edits.h"
#include "support/map.h"
#include <stdlib.h>
#include <string.h>

// ---- making and applying edits ----

typedef VEC(Change) Changes;

static void change(SourceTree *tree, Changes *changes, int from, int to, const char *text) {
    if (from < to) vec_push(tree->arena, changes, ((Change){from, to, text}));
}

static int by_place(const void *a, const void *b) {
    const Change *x = a, *y = b;
    if (x->from != y->from) return x->from < y->from ? -1 : 1;
    return x->to == y->to ? 0 : x->to > y->to ? -1 : 1;   // the outer one first
}

// Adds an edit. A change inside of another one goes.
static void finish(SourceTree *tree, Changes *changes, Edits *out) {
    if (changes->count == 0) return;
    qsort(changes->items, (size_t)changes->count, sizeof *changes->items, by_place);
    Change *last = changes->items;
    for (int i = 1; i < changes->count; i++) {
        Change next = changes->items[i];
        if (next.from >= last->to) *++last = next;
    }
    vec_push(tree->arena, out, ((Edit){(int)(last - changes->items) + 1, changes->items}));
}

static void edit_one(SourceTree *tree, Edits *out, int from, int to, const char *text) {
    Changes changes = {0};
    change(tree, &changes, from, to, text);
    finish(tree, &changes, out);
}

static void add_tokens(const SourceTree *tree, int from, int to, StrBuf *out) {
    for (int i = from; i < to; i++) {
        const Token *token = &tree->tokens.items[i];
        sb_bytes(out, tree->text + token->start - token->blank, (size_t)(token->blank + token->length));
    }
}

void edit_apply(const SourceTree *tree, const Edit *edit, StrBuf *out) {
    int at = 0;
    for (int i = 0; i < edit->count; i++) {
        const Change *c = &edit->changes[i];
        add_tokens(tree, at, c->from, out);
        sb_printf(out, " %s ", c->text);
        at = c->to;
    }
    add_tokens(tree, at, tree->tokens.count, out);
    int end = tree->tokens.count ? vec_last(&tree->tokens).start + vec_last(&tree->tokens).length : 0;
    sb_bytes(out, tree->text + end, (size_t)(tree->length - end));
}

// ---- deleting ----

// Items first..last of a group, with the commas that separate them from the others.
static void cut(const SourceNode *group, int first, int last, int *from, int *to) {
    *from = group->kids.items[first]->from;
    *to = group->kids.items[last]->to;
    if (group->block) return;
    if (last + 1 < group->kids.count) *to = group->kids.items[last + 1]->from;
    else if (first > 0) *from = group->kids.items[first - 1]->to;
}

// From the end, since what comes later uses what comes before.
static void delete_runs(SourceTree *tree, const SourceNode *group, Edits *out) {
    int count = group->kids.count;
    for (int size = count; size > 0; size /= 2)
        for (int end = count; end > 0; end -= size) {
            int from, to;
            cut(group, end > size ? end - size : 0, end - 1, &from, &to);
            edit_one(tree, out, from, to, "");
        }
}

void edits_delete(SourceTree *tree, Edits *out) {
    for (int i = 0; i < tree->groups.count; i++) delete_runs(tree, tree->groups.items[i], out);
}

// ---- unwrapping ----

// The names of `(i in N, j in M)` become 0 in the tokens from..to-1.
static void fix_iterators(SourceTree *tree, const SourceNode *head, int from, int to, Changes *changes) {
    for (int i = 0; i < head->kids.count; i++) {
        int name = head->kids.items[i]->from;
        if (!token_is(tree, name + 1, "in")) continue;
        for (int t = from; t < to; t++)
            if (token_same(tree, t, name)) change(tree, changes, t, t + 1, "0");
    }
}

static void unwrap(SourceTree *tree, const SourceNode *item, const SourceNode *block, Edits *out) {
    Changes changes = {0};
    change(tree, &changes, item->from, block->from + 1, "");
    change(tree, &changes, block->to - 1, item->to, "");
    for (int i = 0; i < item->kids.count; i++) {
        const SourceNode *kid = item->kids.items[i];
        if (kid->kind == NODE_GROUP && !kid->block) fix_iterators(tree, kid, block->from + 1, block->to - 1, &changes);
    }
    finish(tree, &changes, out);
}

void edits_unwrap(SourceTree *tree, Edits *out) {
    for (int i = 0; i < tree->items.count; i++) {
        const SourceNode *item = tree->items.items[i];
        for (int k = 0; k < item->kids.count; k++)
            if (item->kids.items[k]->block) unwrap(tree, item, item->kids.items[k], out);
    }
}

// ---- names ----

typedef struct Name {
    int token;         // the first
    VEC(int) places;   // all of them
} Name;

typedef VEC(Name) Names;

// Equal tokens together, in order of the first.
static Names find_names(SourceTree *tree, TokenKind kind) {
    Names names = {0};
    StrMap *known = strmap_new(tree->arena);   // to 1 + the index in `names`
    for (int i = 0; i < tree->tokens.count; i++) {
        if (tree->tokens.items[i].kind != kind) continue;
        char *text = token_text(tree, i);
        intptr_t n = (intptr_t)strmap_get(known, text);
        if (!n) {
            vec_push(tree->arena, &names, ((Name){.token = i}));
            strmap_put(known, text, (void *)(n = names.count));
        }
        vec_push(tree->arena, &names.items[n - 1].places, i);
    }
    return names;
}

// The innermost item around each token.
static const SourceNode **find_items(SourceTree *tree) {
    const SourceNode **items = NEW_ARRAY(tree->arena, const SourceNode *, tree->tokens.count + 1);
    for (int i = 0; i < tree->items.count; i++)   // inner ones come later
        for (int t = tree->items.items[i]->from; t < tree->items.items[i]->to; t++) items[t] = tree->items.items[i];
    return items;
}

typedef VEC(const SourceNode *) Items;

static bool has(const Items *items, const SourceNode *item) {
    for (int i = 0; i < items->count; i++)
        if (items->items[i] == item) return true;
    return false;
}

// Neighbours go as one run, with one comma.
static void delete_items(SourceTree *tree, const Items *items, Changes *changes) {
    for (int i = 0; i < items->count; i++) {
        const SourceNode *group = items->items[i]->parent;
        int first = items->items[i]->index, last = first, from, to;
        while (first > 0 && has(items, group->kids.items[first - 1])) first--;
        while (last + 1 < group->kids.count && has(items, group->kids.items[last + 1])) last++;
        cut(group, first, last, &from, &to);
        change(tree, changes, from, to, "");
    }
}

// The statement around an item, or the item itself where the statement goes on with a block: a parameter, an iterator.
static const SourceNode *statement_of(const SourceNode *item) {
    while (!item->parent->block) {
        const SourceNode *outer = item->parent->parent;
        for (int i = 0; outer->parent->block && i < outer->kids.count; i++)
            if (outer->kids.items[i]->block) return item;
        item = outer;
    }
    return item;
}

static void delete_uses(SourceTree *tree, const Name *name, const SourceNode **items, bool statements, Edits *out) {
    Changes changes = {0};
    Items uses = {0};
    for (int i = 0; i < name->places.count; i++) {
        const SourceNode *item = items[name->places.items[i]];
        if (item && statements) item = statement_of(item);
        if (item && !has(&uses, item)) vec_push(tree->arena, &uses, item);
    }
    delete_items(tree, &uses, &changes);
    finish(tree, &changes, out);
}

// The part of an item that begins at a token; NULL: none does.
static const SourceNode *kid_at(const SourceNode *item, int token) {
    for (int i = 0; i < item->kids.count; i++)
        if (item->kids.items[i]->from == token) return item->kids.items[i];
    return NULL;
}

static const SourceNode *brackets_at(const SourceTree *tree, const SourceNode *item, int token, const char *bracket) {
    const SourceNode *kid = kid_at(item, token);
    return kid && kid->brackets && !kid->block && token_is(tree, token, bracket) ? kid : NULL;
}

// The arguments behind a name: `k(...)`, and `k[...](...)` for a kernel with compile-time names.
static const SourceNode *arguments_after(const SourceTree *tree, const SourceNode *item, int token) {
    const SourceNode *names = brackets_at(tree, item, token + 1, "[");
    return brackets_at(tree, item, names ? names->to : token + 1, "(");
}

// The indices behind a name, `x[...]`, or its extents where it is declared, `x: out f32[...]`.
static const SourceNode *indices_after(const SourceTree *tree, const SourceNode *item, int token) {
    bool declared = token_is(tree, token + 1, ":");
    for (token++; declared && token < item->to && tree->text[tree->tokens.items[token].start] != '[';) token++;
    return brackets_at(tree, item, token, "[");
}

typedef const SourceNode *(*ListAfter)(const SourceTree *tree, const SourceNode *item, int token);

// One item in all lists behind the name that have as many of them as the first.
static void delete_in_lists(SourceTree *tree, const Name *name, const SourceNode **items, ListAfter list_after,
                            Edits *out) {
    Items lists = {0};
    for (int i = 0; i < name->places.count; i++) {
        const SourceNode *item = items[name->places.items[i]];
        const SourceNode *list = item ? list_after(tree, item, name->places.items[i]) : NULL;
        if (list && (lists.count == 0 || lists.items[0]->kids.count == list->kids.count))
            vec_push(tree->arena, &lists, list);
    }
    for (int at = 0; lists.count > 1 && at < lists.items[0]->kids.count; at++) {
        Changes changes = {0};
        Items arguments = {0};
        for (int i = 0; i < lists.count; i++) vec_push(tree->arena, &arguments, lists.items[i]->kids.items[at]);
        delete_items(tree, &arguments, &changes);
        finish(tree, &changes, out);
    }
}

static const char *join_tokens(SourceTree *tree, int from, int to) {
    StrBuf text;
    sb_init(&text, tree->arena);
    bool many = to - from > 1;
    if (many) sb_char(&text, '(');
    for (int i = from; i < to; i++) sb_printf(&text, "%s%s", i > from ? " " : "", token_text(tree, i));
    if (many) sb_char(&text, ')');
    return sb_text(&text);
}

// The first token of the value that `NAME = ...` or `NAME: type = ...` gives; 0: none.
static int value_after(const SourceTree *tree, int name) {
    if (token_is(tree, name + 1, "=")) return name + 2;
    return token_is(tree, name + 1, ":") && token_is(tree, name + 3, "=") ? name + 4 : 0;
}

// The value from..to-1 in the place of a name, whose declarations go.
static void put_value(SourceTree *tree, const Name *name, const SourceNode **items, int from, int to, Edits *out) {
    Changes changes = {0};
    Items declarations = {0};
    const char *value = join_tokens(tree, from, to);
    for (int i = 0; i < name->places.count; i++) {
        int place = name->places.items[i];
        bool declares = items[place] && (value_after(tree, place) || token_is(tree, place + 1, "in"));
        if (declares) vec_push(tree->arena, &declarations, items[place]);
        else change(tree, &changes, place, place + 1, value);
    }
    delete_items(tree, &declarations, &changes);
    finish(tree, &changes, out);
}

// `let NAME = value;`, `test k (NAME = value)`, `tune NAME in {value, value};`
static void inline_values(SourceTree *tree, const Name *name, const SourceNode **items, Edits *out) {
    for (int i = 0; i < name->places.count; i++) {
        int at = name->places.items[i], value = value_after(tree, at);
        const SourceNode *item = items[at];
        if (!item) continue;
        if (value) put_value(tree, name, items, value, item->to - token_is(tree, item->to - 1, ";"), out);
        const SourceNode *values = token_is(tree, at + 1, "in") ? brackets_at(tree, item, at + 2, "{") : NULL;
        for (int v = 0; values && v < values->kids.count; v++)
            put_value(tree, name, items, values->kids.items[v]->from, values->kids.items[v]->to, out);
    }
}

void edits_names(SourceTree *tree, Edits *out) {
    Names names = find_names(tree, TOKEN_WORD);
    const SourceNode **items = find_items(tree);
    for (int i = 0; i < names.count; i++) {
        const Name *name = &names.items[i];
        if (name->places.count == 1) continue;
        delete_uses(tree, name, items, true, out);
        delete_uses(tree, name, items, false, out);
        delete_in_lists(tree, name, items, arguments_after, out);
        delete_in_lists(tree, name, items, indices_after, out);
        inline_values(tree, name, items, out);
    }
}

// ---- numbers ----

// A decimal or hexadecimal integer that fits; -1: another token.
static int64_t integer_of(SourceTree *tree, int token) {
    if (tree->tokens.items[token].kind != TOKEN_NUMBER) return -1;
    char *text = token_text(tree, token), *end;
    bool hex = text[0] == '0' && (text[1] | 32) == 'x';
    unsigned long long value = strtoull(text, &end, hex ? 16 : 10);
    return *end || value > INT64_MAX ? -1 : (int64_t)value;
}

static const char *number(SourceTree *tree, int64_t value) {
    return arena_printf(tree->arena, "%lld", (long long)value);
}

static void set_number(SourceTree *tree, const Name *name, int64_t value, Edits *out) {
    Changes changes = {0};
    for (int i = 0; i < name->places.count; i++)
        change(tree, &changes, name->places.items[i], name->places.items[i] + 1, number(tree, value));
    finish(tree, &changes, out);
}

// All numbers from `least` on, halved: extents stay multiples of each other.
static void halve(SourceTree *tree, int64_t least, Edits *out) {
    Changes changes = {0};
    for (int i = 0; i < tree->tokens.count; i++) {
        int64_t value = integer_of(tree, i);
        if (value >= least) change(tree, &changes, i, i + 1, number(tree, value / 2));
    }
    finish(tree, &changes, out);
}

static void shrink_single(SourceTree *tree, int token, Edits *out) {
    int64_t value = integer_of(tree, token), tries[] = {0, 1, 2, value / 2};
    for (int i = 0; i < COUNT_OF(tries); i++)
        if (value < 0 ? i == 0 && tree->tokens.items[token].length > 1 : tries[i] < value)
            edit_one(tree, out, token, token + 1, number(tree, tries[i]));
}

void edits_numbers(SourceTree *tree, Edits *out) {
    Names names = find_names(tree, TOKEN_NUMBER);
    for (int i = 0; i < names.count; i++) {
        int64_t value = integer_of(tree, names.items[i].token);
        if (value > 1) halve(tree, value, out);
    }
    for (int i = 0; i < names.count; i++) {
        int64_t value = integer_of(tree, names.items[i].token), small = 1;
        for (; small < value; small *= 2) set_number(tree, &names.items[i], small, out);
        if (value > 2 && small != value) set_number(tree, &names.items[i], value / 2, out);
    }
    for (int i = 0; i < tree->tokens.count; i++)
        if (tree->tokens.items[i].kind == TOKEN_NUMBER) shrink_single(tree, i, out);
}

// ---- within a statement ----

// Each item in the place of its list and of the word in front of it.
void edits_hoist(SourceTree *tree, Edits *out) {
    for (int i = 0; i < tree->groups.count; i++) {
        const SourceNode *list = tree->groups.items[i];
        if (!list->brackets || list->block) continue;
        bool word = list->from > list->parent->from && tree->tokens.items[list->from - 1].kind == TOKEN_WORD;
        for (int k = 0; k < list->kids.count; k++) {
            Changes changes = {0};
            change(tree, &changes, list->from - word, list->kids.items[k]->from, "");
            change(tree, &changes, list->kids.items[k]->to, list->to, "");
            finish(tree, &changes, out);
        }
    }
}

enum { LONGEST_RUN = 8 };

void edits_elements(SourceTree *tree, Edits *out) {
    for (int i = 0; i < tree->items.count; i++) {
        const SourceNode *item = tree->items.items[i];
        int count = item->kids.count, size = count - 1 < LONGEST_RUN ? count - 1 : LONGEST_RUN;
        for (; size > 0; size--)
            for (int first = count - size; first >= 0; first--)
                edit_one(tree, out, item->kids.items[first]->from, item->kids.items[first + size - 1]->to, "");
    }
}

// Two values after each other, as in `threads 128`, belong to two expressions; a name and its brackets to one.
static bool ends_expression(const SourceTree *tree, const SourceNode *element, const SourceNode *next) {
    static const char *const ends[] = {"=", ":", "?", "in", "..", "+:", "step", ";", "->", "return"};
    for (int i = 0; i < COUNT_OF(ends); i++)
        if (token_is(tree, element->from, ends[i]) || (next && token_is(tree, next->from, ends[i]))) return true;
    if (!next || next->block || element->block) return true;
    bool value = element->kind == NODE_GROUP || tree->tokens.items[element->from].kind != TOKEN_SYMBOL;
    return value && next->kind == NODE_TOKEN && tree->tokens.items[next->from].kind != TOKEN_SYMBOL;
}

void edits_constants(SourceTree *tree, Edits *out) {
    for (int i = 0; i < tree->items.count; i++) {
        const SourceNode *item = tree->items.items[i];
        for (int first = 0, last; first < item->kids.count; first = last + 1) {
            for (last = first; last + 1 < item->kids.count; last++)
                if (ends_expression(tree, item->kids.items[last], item->kids.items[last + 1])) break;
            int from = item->kids.items[first]->from, to = item->kids.items[last]->to;
            if (to == from + 1 && tree->tokens.items[from].kind != TOKEN_WORD) continue;
            edit_one(tree, out, from, to, "0");
            edit_one(tree, out, from, to, "1");
        }
    }
}

// ---- the end ----

static const char *short_name(SourceTree *tree, const Names *taken) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    for (int i = 0;; i++) {
        const char *name = arena_printf(tree->arena, i < 52 ? "%c" : "%c%d", letters[i % 52], i / 52);
        int n = 0;
        while (n < taken->count && !token_is(tree, taken->items[n].token, name)) n++;
        if (n == taken->count) return name;
    }
}

void edits_rename(SourceTree *tree, Edits *out) {
    Names names = find_names(tree, TOKEN_WORD);
    const char *name = short_name(tree, &names);
    for (int i = 0; i < names.count; i++) {
        if ((size_t)tree->tokens.items[names.items[i].token].length <= strlen(name)) continue;
        Changes changes = {0};
        for (int p = 0; p < names.items[i].places.count; p++)
            change(tree, &changes, names.items[i].places.items[p], names.items[i].places.items[p] + 1, name);
        finish(tree, &changes, out);
    }
}
