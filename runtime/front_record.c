// The tuning record's part in choosing tunables.
#include "ir/print.h"
#include "runtime/front.h"
#include <stdlib.h>
#include <string.h>

// "BM" is a tunable, and so is "gemm.BM".
static bool names_tunable(const char *define, const Tunable *tunable) {
    size_t length = strlen(tunable->kernel);
    bool own = strncmp(define, tunable->kernel, length) == 0 && define[length] == '.';
    return strcmp(own ? define + length + 1 : define, tunable->name) == 0;
}

int front_drop_tunables(Front *front, int count, const Define *defines, Define *kept) {
    const Tunable *tunables;
    int tunable_count = syntax_tunables(front->syntax, front->arena, &tunables), kept_count = 0;
    for (int i = 0; i < count; i++) {
        bool tunable = false;
        for (int t = 0; t < tunable_count; t++) tunable |= names_tunable(defines[i].name, &tunables[t]);
        if (!tunable) kept[kept_count++] = defines[i];
    }
    return kept_count;
}

const char *front_signature(Front *front, Arena *arena, int define_count, const Define *defines, const char *kernel) {
    uint64_t hash = 0xcbf29ce484222325;   // FNV-1a
    StrBuf text;
    sb_init(&text, arena);
    Define *kept = NEW_ARRAY(arena, Define, define_count + 1);
    ElaborateOptions options = {.defines = kept, .only = kernel};
    options.define_count = front_drop_tunables(front, define_count, defines, kept);
    int diags = diag_count(front->sink);
    Module *module = elaborate(front->syntax, arena, front->failure, front->sink, &options);
    diag_truncate(front->sink, diags);
    for (int i = 0; module && i < module->funcs.count; i++)
        if (strcmp(module->funcs.items[i]->name, kernel) == 0)
            print_func(module, module->funcs.items[i], (PrintOptions){0}, &text);
    for (size_t i = 0; i < text.length; i++) hash = (hash ^ (uint8_t)text.text[i]) * 0x100000001b3;
    return text.length ? arena_printf(arena, "%016llx", (unsigned long long)hash) : "";
}

typedef struct Choosing {
    Front *front;
    Arena *arena;
    int tunable_count, define_count;
    const Tunable *tunables;
    const Define *defines;
} Choosing;

static const RecordValue *value_of(const RecordEntry *entry, const char *name) {
    for (int i = 0; i < entry->tuned.count; i++)
        if (strcmp(entry->tuned.items[i].name, name) == 0) return &entry->tuned.items[i];
    return NULL;
}

// Whether the text still has these values. *agrees: the user's -D say nothing else.
static bool is_candidate(const Choosing *c, const RecordEntry *entry, bool *agrees) {
    int own = 0;
    *agrees = true;
    for (int t = 0; t < c->tunable_count; t++) {
        const Tunable *tunable = &c->tunables[t];
        if (strcmp(tunable->kernel, entry->kernel) != 0) continue;
        const RecordValue *value = value_of(entry, tunable->name);
        bool listed = false, given = false;
        own++;
        for (int i = 0; i < c->define_count; i++) {
            if (!names_tunable(c->defines[i].name, tunable)) continue;
            given = true;
            *agrees &= value && strtoll(c->defines[i].value, NULL, 0) == value->value;
        }
        for (int i = 0; value && i < tunable->count; i++) listed |= tunable->values[i] == value->value;
        if (!value || (!listed && !given)) return false;
    }
    return own > 0 && own == entry->tuned.count;
}

// What the record says of a kernel. NULL: nothing.
static const RecordEntry *recorded(const Choosing *c, const char *kernel) {
    Front *front = c->front;
    Record usable = {0};
    bool stale = false, changed, agrees;
    for (int i = 0; i < front->record->entries.count; i++) {
        const RecordEntry *entry = &front->record->entries.items[i];
        if (strcmp(entry->kernel, kernel) != 0 || strcmp(entry->target, front->target->name) != 0) continue;
        if (!is_candidate(c, entry, &agrees)) stale = true;
        else if (agrees) vec_push(c->arena, &usable.entries, *entry);
    }
    RecordKey key = {.kernel = kernel, .target = front->target->name, .shape = front->shape};
    if (usable.entries.count > 0) key.text = front_signature(front, c->arena, c->define_count, c->defines, kernel);
    const RecordEntry *chosen = record_choose(c->arena, &usable, &key, &changed);
    if (!chosen && (stale || changed)) diag(front->sink, (Span){0}, T_STALE_RECORD, front->record_path, kernel);
    return chosen;
}

int front_recorded(Front *front, Arena *arena, int define_count, const Define *defines, const Define **out) {
    Choosing c = {.front = front, .arena = arena, .define_count = define_count, .defines = defines};
    VEC(Define) all = {0};
    *out = defines;
    if (!front->record || !front->target || front->record->entries.count == 0) return define_count;
    for (int i = 0; i < define_count; i++) vec_push(arena, &all, defines[i]);
    c.tunable_count = syntax_tunables(front->syntax, arena, &c.tunables);
    for (int t = 0; t < c.tunable_count; t++) {
        const char *kernel = c.tunables[t].kernel;
        bool seen = false;
        for (int i = 0; i < t; i++) seen |= strcmp(c.tunables[i].kernel, kernel) == 0;
        const RecordEntry *entry = seen ? NULL : recorded(&c, kernel);
        for (int i = 0; entry && i < entry->tuned.count; i++) {
            const RecordValue *value = &entry->tuned.items[i];
            Define define = {arena_printf(arena, "%s.%s", kernel, value->name),
                             arena_printf(arena, "%lld", (long long)value->value)};
            vec_push(arena, &all, define);
        }
    }
    *out = all.items;
    return all.count;
}
