#include "runtime/compile/record.h"
#include "support/json.h"
#include "support/map.h"
#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>

static const Span NOWHERE;

enum { RECORD_LIMIT = 16 << 20 };

char *record_path(Arena *arena, const char *source) {
    size_t length = strlen(source), end = strlen(".tile");
    if (strcmp(source, "-") == 0) return NULL;
    bool tile = length > end && strcmp(source + length - end, ".tile") == 0;
    return arena_printf(arena, "%.*s.tune", (int)(tile ? length - end : length), source);
}

// ---- reading ----

static bool read_values(Arena *arena, const Json *object, RecordValues *out) {
    if (!object || object->kind != JSON_OBJECT) return false;
    for (int i = 0; i < object->count; i++) {
        RecordValue value = {object->keys[i], json_integer(&object->items[i], 0)};
        if (object->items[i].kind != JSON_INTEGER) return false;
        vec_push(arena, out, value);
    }
    return true;
}

static bool read_time(const Json *value, double *out) {
    if (!value || (value->kind != JSON_REAL && value->kind != JSON_INTEGER)) return false;
    *out = value->kind == JSON_REAL ? value->real : (double)value->integer;
    return isfinite(*out) && *out > 0;
}

// Sorted by name, so that the order in a line does not matter.
static const char *values_text(Arena *arena, const char *head, const RecordValues *values) {
    RecordValue *sorted = arena_copy(arena, values->items, sizeof *sorted * (size_t)values->count);
    StrBuf text;
    for (int i = 1; i < values->count; i++)
        for (int k = i; k > 0 && strcmp(sorted[k].name, sorted[k - 1].name) < 0; k--) {
            RecordValue other = sorted[k];
            sorted[k] = sorted[k - 1];
            sorted[k - 1] = other;
        }
    sb_init(&text, arena);
    sb_str(&text, head);
    for (int i = 0; i < values->count; i++)
        sb_printf(&text, "%s%s = %lld", text.length ? ", " : "", sorted[i].name, (long long)sorted[i].value);
    return sb_text(&text);
}

const char *record_values_text(Arena *arena, const RecordValues *values) {
    return values_text(arena, "", values);
}

const char *record_problem(Arena *arena, const RecordEntry *entry) {
    return values_text(arena, arena_printf(arena, "%s: ", entry->device), &entry->shape);
}

const char *record_entry_read(Arena *arena, const char *line, size_t length, RecordEntry *out) {
    const char *why;
    const Json *json = json_read(arena, line, length, &why);
    if (!json) return why;
    const struct {
        const char *name, **to;
    } texts[] = {{"kernel", &out->kernel}, {"text", &out->text}, {"target", &out->target}, {"device", &out->device}};
    const struct {
        const char *name;
        double *to;
    } times[] = {{"us", &out->us}, {"us_low", &out->low}, {"us_high", &out->high}};
    for (int i = 0; i < 4; i++)
        if (!(*texts[i].to = json_text(json_get(json, texts[i].name), NULL)))
            return arena_printf(arena, "\"%s\" is missing or no text", texts[i].name);
    for (int i = 0; i < 3; i++)
        if (!read_time(json_get(json, times[i].name), times[i].to))
            return arena_printf(arena, "\"%s\" is missing or no time", times[i].name);
    if (!read_values(arena, json_get(json, "shape"), &out->shape))
        return "\"shape\" is missing or has no whole numbers";
    if (!read_values(arena, json_get(json, "tuned"), &out->tuned))
        return "\"tuned\" is missing or has no whole numbers";
    out->tilec = json_text(json_get(json, "tilec"), "");
    out->driver = json_text(json_get(json, "driver"), "");
    out->clocks = json_text(json_get(json, "clocks"), "");
    out->artefact = json_text(json_get(json, "artefact"), "");
    out->method = json_text(json_get(json, "method"), "");
    out->problem = record_problem(arena, out);
    out->combination = values_text(arena, "", &out->tuned);
    return NULL;
}

void record_parse(Arena *arena, DiagSink *sink, const char *path, const char *text, Record *out) {
    StrMap *seen = strmap_new(arena);
    *out = (Record){0};
    for (int number = 1; *text; number++) {
        size_t length = strcspn(text, "\n");
        RecordEntry entry = {0};
        const char *why = length ? record_entry_read(arena, text, length, &entry) : NULL;
        if (why) diag(sink, NOWHERE, T_BAD_RECORD, path, number, why);
        if (length && !why) {
            char *key = arena_printf(arena, "%s\n%s\n%s\n%s\n%s", entry.kernel, entry.text, entry.target, entry.problem,
                                     entry.combination);
            uintptr_t at = (uintptr_t)strmap_get(seen, key);   // 1 + index
            if (at) out->entries.items[at - 1] = entry;
            else {
                vec_push(arena, &out->entries, entry);
                strmap_put(seen, key, (void *)(uintptr_t)out->entries.count);
            }
        }
        text += length + (text[length] == '\n');
    }
}

bool record_load(Arena *arena, DiagSink *sink, const char *path, bool named, FileText *out) {
    struct stat info;
    *out = (FileText){0};
    if (!named && stat(path, &info) != 0 && errno == ENOENT) return true;
    return file_read(arena, sink, path, RECORD_LIMIT, out);
}

bool record_read(Arena *arena, DiagSink *sink, const char *path, bool named, Record *out) {
    FileText file;
    *out = (Record){0};
    if (!record_load(arena, sink, path, named, &file)) return false;
    if (file.text) record_parse(arena, sink, path, file.text, out);
    return true;
}

// ---- writing ----

static void write_values(const char *name, const RecordValues *values, StrBuf *out) {
    sb_printf(out, ", \"%s\": {", name);
    for (int i = 0; i < values->count; i++) {
        sb_str(out, i ? ", " : "");
        json_quote(out, values->items[i].name);
        sb_printf(out, ": %lld", (long long)values->items[i].value);
    }
    sb_char(out, '}');
}

void record_entry_write(const RecordEntry *e, StrBuf *out) {
    const char *texts[][2] = {{"kernel", e->kernel}, {"text", e->text}, {"target", e->target}, {"device", e->device}};
    for (int i = 0; i < 4; i++) {
        sb_printf(out, "%s\"%s\": ", i ? ", " : "{", texts[i][0]);
        json_quote(out, texts[i][1]);
    }
    write_values("shape", &e->shape, out);
    write_values("tuned", &e->tuned, out);
    sb_printf(out, ", \"us\": %.4f, \"us_low\": %.4f, \"us_high\": %.4f, \"tilec\": ", e->us, e->low, e->high);
    json_quote(out, e->tilec);
    const char *more[][2] = {
        {"driver", e->driver}, {"clocks", e->clocks}, {"artefact", e->artefact}, {"method", e->method}};
    for (int i = 0; i < 4; i++) {
        if (!more[i][1] || !more[i][1][0]) continue;
        sb_printf(out, ", \"%s\": ", more[i][0]);
        json_quote(out, more[i][1]);
    }
    sb_str(out, "}\n");
}

// ---- choosing ----

static double distance(const RecordValues *a, const RecordValues *b) {
    const double OTHER_NAME = 64;
    double sum = a->count == b->count ? 0 : OTHER_NAME;
    for (int i = 0; i < a->count; i++) {
        double ratio = NAN;
        for (int k = 0; k < b->count; k++)
            if (strcmp(a->items[i].name, b->items[k].name) == 0)
                ratio = fmax((double)a->items[i].value, 0.5) / fmax((double)b->items[k].value, 0.5);
        sum += isnan(ratio) ? OTHER_NAME : fabs(log2(ratio));
    }
    return sum;
}

typedef VEC(const RecordEntry *) Entries;

// The entries of the key with the nearest shape.
static Entries nearest(Arena *arena, const Record *record, const RecordKey *key, bool *stale) {
    Entries out = {0};
    double least = INFINITY;
    *stale = false;
    for (int i = 0; i < record->entries.count; i++) {
        const RecordEntry *e = &record->entries.items[i];
        if (strcmp(e->kernel, key->kernel) != 0 || strcmp(e->target, key->target) != 0) continue;
        if (strcmp(e->text, key->text) != 0) {
            *stale = true;
            continue;
        }
        double far = key->shape ? distance(key->shape, &e->shape) : 0;
        if (far > least) continue;
        if (far < least) out.count = 0;
        least = far;
        vec_push(arena, &out, e);
    }
    if (out.count > 0) *stale = false;
    return out;
}

static double least_of_problem(const Entries *entries, const char *problem) {
    double least = INFINITY;
    for (int i = 0; i < entries->count; i++)
        if (strcmp(entries->items[i]->problem, problem) == 0) least = fmin(least, entries->items[i]->us);
    return least;
}

const RecordEntry *record_choose(Arena *arena, const Record *record, const RecordKey *key, bool *stale) {
    Entries entries = nearest(arena, record, key, stale);
    double *relative = NEW_ARRAY(arena, double, entries.count + 1), best_mean = 0;
    const RecordEntry *best = NULL;
    int best_problems = 0;
    for (int i = 0; i < entries.count; i++)
        relative[i] = log(entries.items[i]->us / least_of_problem(&entries, entries.items[i]->problem));
    for (int i = 0; i < entries.count; i++) {
        double sum = 0;
        int problems = 0;
        for (int k = 0; k < entries.count; k++) {
            if (strcmp(entries.items[k]->combination, entries.items[i]->combination) != 0) continue;
            sum += relative[k];
            problems++;
        }
        double mean = sum / problems;
        if (best && (problems < best_problems || (problems == best_problems && mean >= best_mean))) continue;
        best = entries.items[i];
        best_problems = problems;
        best_mean = mean;
    }
    return best;
}

// ---- places ----

static const RecordValue *value_named(const RecordValues *values, const char *name) {
    for (int i = 0; i < values->count; i++)
        if (strcmp(values->items[i].name, name) == 0) return &values->items[i];
    return NULL;
}

int64_t record_least(int64_t measured) {
    enum { NEAR_FRACTION = 8 };
    return measured > 0 ? measured - measured / NEAR_FRACTION : measured;
}

bool record_is_near(const RecordValues *measured, const RecordValues *shape) {
    for (int i = 0; i < measured->count; i++) {
        const RecordValue *have = value_named(shape, measured->items[i].name);
        int64_t most = measured->items[i].value;
        if (!have || have->value > most || have->value < record_least(most)) return false;
    }
    return true;
}

static double volume(const RecordValues *shape) {
    double sum = 0;
    for (int i = 0; i < shape->count; i++) sum += log2(fmax((double)shape->items[i].value, 1));
    return sum;
}

static bool same_values(const RecordValues *a, const RecordValues *b) {
    for (int i = 0; i < a->count; i++) {
        const RecordValue *other = value_named(b, a->items[i].name);
        if (!other || other->value != a->items[i].value) return false;
    }
    return a->count == b->count;
}

static bool has_place(const RecordPlaces *places, const RecordValues *shape) {
    for (int i = 0; i < places->count; i++)
        if (same_values(places->items[i].shape, shape)) return true;
    return false;
}

RecordPlaces record_places(Arena *arena, const Record *record, const RecordKey *key, bool *stale) {
    RecordPlaces out = {0};
    RecordKey all = *key;
    all.shape = NULL;
    Entries entries = nearest(arena, record, &all, stale);
    for (int i = 0; i < entries.count; i++) {
        RecordPlace place = {.shape = &entries.items[i]->shape};
        bool other;
        if (has_place(&out, place.shape)) continue;
        all.shape = place.shape;
        place.entry = record_choose(arena, record, &all, &other);
        vec_push(arena, &out, place);
        for (int at = out.count - 1; at > 0 && volume(out.items[at - 1].shape) > volume(place.shape); at--) {
            out.items[at] = out.items[at - 1];
            out.items[at - 1] = place;
        }
    }
    return out;
}
