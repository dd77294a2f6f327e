// Attributes: the table of attrs.def, and short linked lists of them.
#include "ir/ir.h"
#include <string.h>

typedef struct AttrRow {
    const char *text, *pattern, *where, *meaning;
} AttrRow;

static const AttrRow rows[] = {
#define ATTR(NAME, text, pattern, where, meaning) [ATTR_##NAME] = {text, pattern, where, meaning},
#include "ir/attrs.def"
#undef ATTR
};

_Static_assert(sizeof rows / sizeof rows[0] == ATTR_COUNT, "an attribute without its row");

#define ATTR(NAME, text, pattern, where, meaning)                                                                      \
    _Static_assert(sizeof pattern - 1 <= ATTR_MAX_ARGS, "@" text " has more arguments than an Attr holds");
#include "ir/attrs.def"
#undef ATTR

const char *attr_name(AttrId id) {
    return rows[id].text;
}

const char *attr_pattern(AttrId id) {
    return rows[id].pattern;
}

bool attr_takes(AttrId id, int count) {
    size_t most = strlen(rows[id].pattern), least = strcspn(rows[id].pattern, "ISN");
    return count >= (int)least && count <= (int)most;
}

const char *attr_where(AttrId id) {
    return rows[id].where;
}

const char *attr_meaning(AttrId id) {
    return rows[id].meaning;
}

AttrId attr_named(const char *text) {
    int id = 0;
    while (id < ATTR_COUNT && strcmp(rows[id].text, text) != 0) id++;
    return (AttrId)id;
}

const Attr *attr_get(const Attr *list, AttrId id) {
    while (list && list->id != id) list = list->next;
    return list;
}

int64_t attr_int(const Attr *list, AttrId id, int64_t otherwise) {
    const Attr *attr = attr_get(list, id);
    return attr && attr->count > 0 ? attr->args[0].integer : otherwise;
}

const char *attr_text(const Attr *list, AttrId id) {
    const Attr *attr = attr_get(list, id);
    return attr && attr->count > 0 ? attr->args[0].text : NULL;
}

const Layout *attr_layout(const Attr *list, AttrId id) {
    const Attr *attr = attr_get(list, id);
    return attr && attr->count > 0 ? attr->args[0].layout : NULL;
}

// The attribute to fill, without arguments: the present one (so that setting again keeps the order), or a new one at
// the end. Lists are never shared between statements (clones copy them), so changing in place is safe.
static Attr *attr_fresh(Arena *arena, Attr **list, AttrId id) {
    while (*list && (*list)->id != id) list = &(*list)->next;
    if (!*list) *list = NEW(arena, Attr);
    Attr *next = (*list)->next;
    **list = (Attr){.id = id, .next = next};
    return *list;
}

void attr_set_ints(Arena *arena, Attr **list, AttrId id, int count, const int64_t *values) {
    Attr *attr = attr_fresh(arena, list, id);
    attr->count = count;
    for (int i = 0; i < count; i++) attr->args[i].integer = values[i];
}

void attr_set_int(Arena *arena, Attr **list, AttrId id, int64_t value) {
    attr_set_ints(arena, list, id, 1, &value);
}

Attr *attr_add(Arena *arena, Attr **list, AttrId id, int count) {
    while (*list) list = &(*list)->next;
    *list = NEW(arena, Attr);
    **list = (Attr){.id = id, .count = count};
    return *list;
}

void attr_set_text(Arena *arena, Attr **list, AttrId id, const char *text) {
    Attr *attr = attr_fresh(arena, list, id);
    attr->count = 1;
    attr->args[0].text = arena_strdup(arena, text);
}

void attr_set_layout(Arena *arena, Attr **list, AttrId id, const Layout *layout) {
    Attr *attr = attr_fresh(arena, list, id);
    attr->count = 1;
    attr->args[0].layout = layout;
}

void attr_remove(Attr **list, AttrId id) {
    while (*list && (*list)->id != id) list = &(*list)->next;
    if (*list) *list = (*list)->next;
}

// ---- mechanisms ----
static const char *const via_names[] = {
    [VIA_NONE] = NULL,
#define VIA(NAME, text, what, meaning) [VIA_##NAME] = text,
#include "ir/via.def"
#undef VIA
};
_Static_assert(sizeof via_names / sizeof via_names[0] == VIA_COUNT, "a mechanism without its row");

const char *via_text(Via via) {
    return via_names[via];
}

Via via_named(const char *text) {
    int via = VIA_NONE + 1;
    while (via < VIA_COUNT && strcmp(via_names[via], text) != 0) via++;
    return via < VIA_COUNT ? (Via)via : VIA_NONE;
}

Via via_of(const Stmt *stmt) {
    const char *text = attr_text(stmt->attrs, ATTR_VIA);
    return text ? via_named(text) : VIA_NONE;
}

void via_set(Arena *arena, Stmt *stmt, Via via) {
    if (via == VIA_NONE) attr_remove(&stmt->attrs, ATTR_VIA);
    else attr_set_text(arena, &stmt->attrs, ATTR_VIA, via_names[via]);
}
