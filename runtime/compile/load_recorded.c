// Applies the tuning record to a module: as defines, or as further tiles of a kernel that the launch chooses from.
#include "ir/build.h"
#include "ir/print.h"
#include "runtime/compile/load_module.h"
#include <stdlib.h>
#include <string.h>

// "BM" is a tunable, and so is "gemm.BM".
static bool names_tunable(const char *define, const Tunable *tunable) {
    size_t length = strlen(tunable->kernel);
    bool own = strncmp(define, tunable->kernel, length) == 0 && define[length] == '.';
    return strcmp(own ? define + length + 1 : define, tunable->name) == 0;
}

int drop_tunables(Loader *loader, int count, const Define *defines, Define *kept) {
    const Tunable *tunables;
    int tunable_count = syntax_tunables(loader->syntax, loader->arena, count, defines, &tunables), kept_count = 0;
    for (int i = 0; i < count; i++) {
        bool tunable = false;
        for (int t = 0; t < tunable_count; t++) tunable |= names_tunable(defines[i].name, &tunables[t]);
        if (!tunable) kept[kept_count++] = defines[i];
    }
    return kept_count;
}

const char *kernel_signature(Loader *loader, Arena *arena, int define_count, const Define *defines,
                             const char *kernel) {
    uint64_t hash = 0xcbf29ce484222325;   // FNV-1a
    StrBuf text;
    sb_init(&text, arena);
    Define *kept = NEW_ARRAY(arena, Define, define_count + 1);
    ElaborateOptions options = {.defines = kept, .only = kernel};
    options.define_count = drop_tunables(loader, define_count, defines, kept);
    int diags = diag_count(loader->sink);
    Module *module = elaborate(loader->syntax, arena, loader->failure, loader->sink, &options);
    diag_truncate(loader->sink, diags);
    for (int i = 0; module && i < module->funcs.count; i++)
        if (strcmp(module->funcs.items[i]->name, kernel) == 0)
            print_func(module, module->funcs.items[i], (PrintOptions){0}, &text);
    for (size_t i = 0; i < text.length; i++) hash = (hash ^ (uint8_t)text.text[i]) * 0x100000001b3;
    const char *types = syntax_types_given(loader->syntax, arena, define_count, defines, kernel);
    return text.length ? arena_printf(arena, "%s%s%016llx", types, *types ? ":" : "", (unsigned long long)hash) : "";
}

static size_t types_length(const char *signature) {
    const char *end = strchr(signature, ':');
    return end ? (size_t)(end - signature) : 0;
}

bool signatures_have_same_types(const char *a, const char *b) {
    size_t length = types_length(a);
    return length == types_length(b) && strncmp(a, b, length) == 0;
}

typedef struct Choosing {
    Loader *loader;
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

// Whether the source still lists these values. *agrees: they do not contradict the -D defines.
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

// The entries for a kernel that the source and -D allow. *stale: the source does not allow some entry.
static Record usable_entries(const Choosing *c, const char *kernel, bool *stale) {
    Record usable = {0};
    bool agrees;
    const char *types = syntax_types_given(c->loader->syntax, c->arena, c->define_count, c->defines, kernel);
    const char *own = arena_printf(c->arena, "%s:", types);
    *stale = false;
    for (int i = 0; i < c->loader->record->entries.count; i++) {
        const RecordEntry *entry = &c->loader->record->entries.items[i];
        if (strcmp(entry->kernel, kernel) != 0 || strcmp(entry->target, c->loader->target->name) != 0) continue;
        if (!signatures_have_same_types(entry->text, own)) continue;
        if (!is_candidate(c, entry, &agrees)) *stale = true;
        else if (agrees) vec_push(c->arena, &usable.entries, *entry);
    }
    return usable;
}

// Appends the values of an entry to the defines; returns the new count.
static int with_values(const Choosing *c, int count, const Define *defines, const RecordEntry *entry,
                       const Define **out) {
    Define *all = NEW_ARRAY(c->arena, Define, count + entry->tuned.count);
    for (int i = 0; i < count; i++) all[i] = defines[i];
    for (int i = 0; i < entry->tuned.count; i++) {
        const RecordValue *value = &entry->tuned.items[i];
        all[count++] = (Define){arena_printf(c->arena, "%s.%s", entry->kernel, value->name),
                                arena_printf(c->arena, "%lld", (long long)value->value)};
    }
    *out = all;
    return count;
}

static bool has_tile(const RecordedDefines *out, const RecordEntry *entry) {
    for (int i = 0; i < out->tiles.count; i++) {
        const RecordEntry *other = out->tiles.items[i].entry;
        if (strcmp(other->kernel, entry->kernel) == 0 && strcmp(other->combination, entry->combination) == 0)
            return true;
    }
    return false;
}

static void add_tiles(const Choosing *c, const RecordPlaces *places, RecordedDefines *out) {
    for (int i = 0; i < places->count; i++) {
        const RecordEntry *entry = places->items[i].entry;
        RecordedTile tile = {.kernel = entry->kernel, .entry = entry, .places = *places};
        if (has_tile(out, entry)) continue;
        tile.define_count = with_values(c, c->define_count, c->defines, entry, &tile.defines);
        vec_push(c->arena, &out->tiles, tile);
    }
}

static const RecordEntry *near_entry(const RecordPlaces *places, const RecordValues *shape) {
    for (int i = 0; i < places->count; i++)
        if (record_is_near(places->items[i].shape, shape)) return places->items[i].entry;
    return NULL;
}

static bool all_given(const Choosing *c, const char *kernel) {
    for (int t = 0; t < c->tunable_count; t++) {
        bool given = false;
        for (int i = 0; i < c->define_count; i++) given |= names_tunable(c->defines[i].name, &c->tunables[t]);
        if (!given && strcmp(c->tunables[t].kernel, kernel) == 0) return false;
    }
    return true;
}

// Adds what the record has for a kernel. `chooses`: the kernel keeps several tiles, from which the launch chooses.
static void add_kernel(const Choosing *c, const char *kernel, bool chooses, RecordedDefines *out) {
    Loader *loader = c->loader;
    bool stale, changed;
    if (all_given(c, kernel)) return;
    Record usable = usable_entries(c, kernel, &stale);
    RecordKey key = {.kernel = kernel, .target = loader->target->name, .shape = loader->shape};
    if (usable.entries.count > 0) key.text = kernel_signature(loader, c->arena, c->define_count, c->defines, kernel);
    const RecordEntry *chosen = record_choose(c->arena, &usable, &key, &changed);
    if (!chosen && (stale || changed)) diag(loader->sink, (Span){0}, T_STALE_RECORD, loader->record_path, kernel);
    if (chosen && chooses) {
        RecordPlaces places = record_places(c->arena, &usable, &key, &changed);
        chosen = loader->shape ? near_entry(&places, loader->shape) : NULL;
        if (!loader->shape) add_tiles(c, &places, out);
    }
    if (chosen) out->define_count = with_values(c, out->define_count, out->defines, chosen, &out->defines);
}

bool loader_has_record(const Loader *loader) {
    return loader->record && loader->target && loader->record->entries.count > 0;
}

RecordedDefines recorded_defines(Loader *loader, Arena *arena, int define_count, const Define *defines,
                                 const TileSearch *search) {
    Choosing c = {.loader = loader, .arena = arena, .define_count = define_count, .defines = defines};
    RecordedDefines out = {.define_count = define_count, .defines = defines};
    c.tunable_count = syntax_tunables(loader->syntax, arena, define_count, defines, &c.tunables);
    for (int t = 0; t < c.tunable_count; t++) {
        const char *kernel = c.tunables[t].kernel;
        bool seen = false;
        for (int i = 0; i < t; i++) seen |= strcmp(c.tunables[i].kernel, kernel) == 0;
        if (!seen) add_kernel(&c, kernel, tile_search_chooses(search, kernel), &out);
    }
    return out;
}

// ---- recorded tiles as variants ----

// The condition that a dim or scalar is near a measured value. NULL: it is a constant of the kernel.
static Expr *is_near_value(Arena *arena, const Func *kernel, const RecordValue *measured) {
    Var *var = func_dim(kernel, measured->name);
    for (int i = 0; i < kernel->params.count && !var; i++) {
        Var *param = kernel->params.items[i].var;
        if (param && strcmp(param->name, measured->name) == 0) var = param;
    }
    if (!var) return NULL;
    Expr *value = e_cast(arena, TYPE_I64, e_var(arena, var));
    int64_t most = measured->value, least = record_least(most);
    if (least == most) return e_binary(arena, BIN_EQ, value, e_int(arena, most));
    return e_and(arena, e_binary(arena, BIN_LE, e_int(arena, least), value),
                 e_binary(arena, BIN_LE, value, e_int(arena, most)));
}

static Expr *is_near(Arena *arena, const Func *kernel, const RecordValues *shape) {
    Expr *all = e_bool(arena, true);
    for (int i = 0; i < shape->count; i++) {
        Expr *one = is_near_value(arena, kernel, &shape->items[i]);
        if (one) all = e_and(arena, all, one);
    }
    return all;
}

// Whether some shape is near both.
static bool intersect(const RecordValues *a, const RecordValues *b) {
    for (int i = 0; i < a->count; i++) {
        const RecordValue *x = &a->items[i];
        for (int k = 0; k < b->count; k++) {
            const RecordValue *y = &b->items[k];
            if (strcmp(x->name, y->name) != 0) continue;
            if (record_least(x->value) > y->value || record_least(y->value) > x->value) return false;
        }
    }
    return true;
}

static bool is_own(const RecordedTile *tile, int place) {
    return strcmp(tile->places.items[place].entry->combination, tile->entry->combination) == 0;
}

// The condition that the shape is near one of the tile's shapes, and not near a smaller shape of another tile.
static Expr *covers(Arena *arena, const Func *kernel, const RecordedTile *tile) {
    Expr *some = NULL;
    for (int i = 0; i < tile->places.count; i++) {
        if (!is_own(tile, i)) continue;
        const RecordValues *shape = tile->places.items[i].shape;
        Expr *here = is_near(arena, kernel, shape);
        for (int k = 0; k < i; k++)
            if (!is_own(tile, k) && intersect(shape, tile->places.items[k].shape))
                here =
                    e_and(arena, here, e_unary(arena, UNARY_NOT, is_near(arena, kernel, tile->places.items[k].shape)));
        some = some ? e_binary(arena, BIN_LOGICAL_OR, some, here) : here;
    }
    return some;
}

static bool is_kernel_of(const Func *func, const RecordedTile *tile) {
    return func->kind == FUNC_KERNEL && strcmp(func->name, tile->kernel) == 0;
}

void add_recorded_tile(Loader *loader, Module *module, const RecordedTile *tile, const Module *with) {
    Module merged = *module;
    bool added = false;
    int variants = 0;
    VEC_EACH_PTR (Func, func, &with->funcs) variants += is_kernel_of(func, tile);
    memset(&merged.funcs, 0, sizeof merged.funcs);
    for (int i = 0; i < module->funcs.count; i++) {
        Func *func = module->funcs.items[i];
        bool here = !added && is_kernel_of(func, tile) && !attr_get(func->attrs, ATTR_TUNED_FOR);
        for (int k = 0; here && k < with->funcs.count; k++) {
            Func *variant = with->funcs.items[k];
            if (!is_kernel_of(variant, tile)) continue;
            attr_set_ints(module->arena, &variant->attrs, ATTR_TILE_VARIANT, 0, NULL);
            attr_set_ints(module->arena, &variant->attrs, ATTR_TUNED_FOR, 0, NULL);
            attr_remove(&variant->attrs, ATTR_WITH_FALLBACK);   // the other tiles serve what it does not
            if (variants == 1) variant->cost = NULL;            // where it was measured it is taken
            vec_push(module->arena, &merged.funcs, variant);
        }
        added |= here;
        vec_push(module->arena, &merged.funcs, func);
    }
    *module = merged;
    vec_push(module->arena, &loader->tiles, *tile);
}

static bool is_of_tile(const Func *kernel, const RecordedTile *tile) {
    if (strcmp(kernel->name, tile->kernel) != 0) return false;
    for (const Attr *attr = kernel->attrs; attr; attr = attr->next) {
        if (attr->id != ATTR_TUNED) continue;
        const RecordValue *value = value_of(tile->entry, attr->args[0].text);
        if (!value || value->value != attr->args[1].integer) return false;
    }
    return true;
}

void limit_recorded_tiles(const Loader *loader, Module *module) {
    for (int i = 0; i < module->funcs.count; i++) {
        Func *func = module->funcs.items[i];
        if (!attr_get(func->attrs, ATTR_TUNED_FOR)) continue;
        for (int t = 0; t < loader->tiles.count; t++) {
            const RecordedTile *tile = &loader->tiles.items[t];
            if (!is_of_tile(func, tile)) continue;
            Expr *near = covers(module->arena, func, tile);
            func->when = func->when ? e_and(module->arena, near, func->when) : near;
        }
    }
}
