// tilec tune: times all combinations of a kernel's tunables on the device and adds the results to the tuning record.
#include "tools/bench_flags.h"
#include "tools/tune.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_COMBINATIONS = 10000, BAR = 24, SHOWN = 5 };

typedef struct Tuning {
    Tool *tool;
    Subject subject;
    TuneJob job;
    VEC(Tunable) tunables;   // of the kernel, without those that -D fixes
    const char *record;
    bool named;
} Tuning;

// ---- combinations ----

static bool is_defined(const Subject *s, const char *kernel, const char *name) {
    size_t length = strlen(kernel);
    for (int i = 0; i < s->define_count; i++) {
        const char *define = s->defines[i].name;
        bool own = strncmp(define, kernel, length) == 0 && define[length] == '.';
        if (strcmp(own ? define + length + 1 : define, name) == 0) return true;
    }
    return false;
}

static bool nothing(Tuning *t, const char *why) {
    diag(t->tool->sink, (Span){0}, T_NOTHING_TO_TUNE, t->subject.path, why);
    return false;
}

// Chooses the kernel (--only, else the first with tunables) and counts its combinations.
static bool choose_kernel(Tuning *t) {
    Subject *s = &t->subject;
    const Tunable *all;
    int count = syntax_tunables(s->loader.syntax, t->tool->arena, &all);
    int64_t combinations = 1;
    if (!s->only && count > 0) s->only = all[0].kernel;
    for (int i = 0; i < count; i++) {
        bool seen = strcmp(all[i].kernel, s->only) != 0 || is_defined(s, all[i].kernel, all[i].name);
        for (int k = 0; k < t->tunables.count; k++) seen |= strcmp(t->tunables.items[k].name, all[i].name) == 0;
        if (seen) continue;
        vec_push(t->tool->arena, &t->tunables, all[i]);
        combinations *= all[i].count;
        if (combinations > MOST_COMBINATIONS)
            return nothing(t, arena_printf(t->tool->arena, "more than %d combinations", MOST_COMBINATIONS));
    }
    if (count == 0) return nothing(t, "no kernel has tunables");
    if (combinations < 2) return nothing(t, arena_printf(t->tool->arena, "'%s' has one combination", s->only));
    t->job.count = (int)combinations;
    return true;
}

// Lists combinations in source order; the last tunable varies fastest.
static void list_combinations(Tuning *t) {
    Arena *arena = t->tool->arena;
    t->job.results = NEW_ARRAY(arena, TuneResult, t->job.count);
    for (int i = 0; i < t->job.count; i++) {
        TuneResult *result = &t->job.results[i];
        StrBuf text;
        sb_init(&text, arena);
        for (int k = 0, below = t->job.count, rest = i; k < t->tunables.count; k++) {
            const Tunable *tunable = &t->tunables.items[k];
            below /= tunable->count;
            RecordValue value = {tunable->name, tunable->values[rest / below]};
            rest %= below;
            vec_push(arena, &result->tuned, value);
            sb_printf(&text, "%s%s = %lld", k ? ", " : "", value.name, (long long)value.value);
        }
        result->text = sb_text(&text);
    }
}

static double tolerance_of(const Module *module, const char *kernel) {
    const double USUAL = 1e-2;
    for (int i = 0; i < module->tests.count; i++)
        if (strcmp(module->tests.items[i]->name, kernel) == 0) return module->tests.items[i]->tolerance;
    return USUAL;
}

// ---- output ----

static int by_time(const void *a, const void *b) {
    const TuneResult *x = *(const TuneResult *const *)a, *y = *(const TuneResult *const *)b;
    if (x->time.median != y->time.median) return x->time.median < y->time.median ? -1 : 1;
    return x < y ? -1 : x > y;   // equal times: the first
}

typedef VEC(const TuneResult *) Results;

static Results measured(const Tuning *t, int done) {
    Results out = {0};
    for (int i = 0; i < done; i++)
        if (t->job.results[i].time.samples > 0) vec_push(t->tool->arena, &out, &t->job.results[i]);
    if (out.count) qsort(out.items, (size_t)out.count, sizeof *out.items, by_time);
    return out;
}

static void show_progress(void *user, int done) {
    const Tuning *t = user;
    static const char bar[] = "########################........................";
    const TuneResult *best = NULL;
    int full = done * BAR / t->job.count;
    for (int i = 0; i < done; i++) {
        const TuneResult *result = &t->job.results[i];
        if (result->time.samples && (!best || result->time.median < best->time.median)) best = result;
    }
    fprintf(stderr, "\r\033[K[%.*s] %d/%d", BAR, bar + BAR - full, done, t->job.count);
    if (best) fprintf(stderr, "  best %.2f us (%s)", best->time.median * 1e6, best->text);
    if (done == t->job.count) fputs("\r\033[K", stderr);
}

static void report(const Tuning *t, const Results *best, StrBuf *out) {
    int large = 0, discarded = 0;
    for (int i = 0; i < t->job.count; i++) {
        large += t->job.results[i].too_large;
        discarded += t->job.results[i].why != NULL;
    }
    sb_printf(out, "%s on %s: %d combinations, %d measured, %d too large, %d discarded\n", t->subject.func->name,
              t->job.device, t->job.count, best->count, large, discarded);
    for (int i = 0; i < best->count && i < SHOWN; i++)
        sb_printf(out, "  %.2f us  [%.2f, %.2f]  %s\n", best->items[i]->time.median * 1e6,
                  best->items[i]->time.low * 1e6, best->items[i]->time.high * 1e6, best->items[i]->text);
}

// ---- the record ----

static bool is_replaced(const RecordEntry *old, const RecordEntry *now) {
    return strcmp(old->kernel, now->kernel) == 0 && strcmp(old->target, now->target) == 0 &&
           (strcmp(old->text, now->text) != 0 || strcmp(old->problem, now->problem) == 0);
}

// Tunables that -D fixes belong to the combination too.
static void add_fixed(const Tuning *t, RecordValues *tuned) {
    for (const Attr *attr = t->subject.func->attrs; attr; attr = attr->next) {
        bool seen = attr->id != ATTR_TUNED;
        for (int i = 0; !seen && i < tuned->count; i++) seen = strcmp(tuned->items[i].name, attr->args[0].text) == 0;
        RecordValue value = {attr->args[0].text, attr->args[1].integer};
        if (!seen) vec_push(t->tool->arena, tuned, value);
    }
}

// Keeps entries of other kernels and shapes; drops stale entries of this kernel.
static bool merge_record(Tuning *t, const Results *best) {
    Tool *tool = t->tool;
    Subject *s = &t->subject;
    Record old;
    StrBuf text, now;
    RecordEntry entry = {.kernel = s->func->name, .target = t->job.target, .device = t->job.device};
    if (!record_read(tool->arena, tool->sink, t->record, false, &old)) return false;
    entry.text = kernel_signature(&s->loader, tool->arena, s->define_count, s->defines, entry.kernel);
    entry.shape = bench_shape(tool->arena, s->func, s->args);
    entry.tilec = TILEC_VERSION;
    entry.problem = record_problem(tool->arena, &entry);
    sb_init(&text, tool->arena);
    sb_init(&now, tool->arena);
    for (int i = 0; i < old.entries.count; i++)
        if (!is_replaced(&old.entries.items[i], &entry)) record_entry_write(&old.entries.items[i], &text);
    for (int i = 0; i < best->count; i++) {
        const TuneResult *result = best->items[i];
        entry.tuned = result->tuned;
        add_fixed(t, &entry.tuned);
        entry.us = result->time.median * 1e6;
        entry.low = result->time.low * 1e6;
        entry.high = result->time.high * 1e6;
        record_entry_write(&entry, &text);
    }
    if (!tool_write(tool, t->record, &text)) return false;
    sb_printf(&now, "written to %s\n", t->record);
    return tool_write(tool, "-", &now);
}

// No other process writes a record between our reading and writing.
static bool write_record(Tuning *t, const Results *best) {
    int lock = folder_lock(t->tool->arena, t->record);
    bool ok = merge_record(t, best);
    if (lock >= 0) close(lock);
    return ok;
}

// ---- the command ----

static bool prepare(Tuning *t) {
    Tool *tool = t->tool;
    Subject *s = &t->subject;
    FileText source;
    int64_t threads = sysconf(_SC_NPROCESSORS_ONLN);
    if (strcmp(s->path, "-") == 0) return tool_usage(tool, "a file is tuned, not standard input");
    t->record = tool_record_path(tool, s->path, &t->named);
    if (!t->record) return tool_usage(tool, "--record=none leaves nothing to write into");
    if (!option_number(&tool->options, tool->sink, OPTION_JOBS, 1, 1024, &threads) || !choose_kernel(t) ||
        !subject_choose(s) || !subject_args(s) || !file_read(tool->arena, tool->sink, s->path, SOURCE_LIMIT, &source))
        return false;
    list_combinations(t);
    if (!file_can_write(tool->arena, tool->sink, t->record)) return false;   // report it before measuring
    TuneJob *job = &t->job;
    job->arena = tool->arena;
    job->failure = tool->failure;
    job->sink = tool->sink;
    job->path = s->path;
    job->source = source.text;
    job->length = source.length;
    job->target = s->loader.target->name;
    job->ptxas = option_text(&tool->options, OPTION_PTXAS, NULL);
    job->define_count = s->define_count;
    job->defines = s->defines;
    job->func = s->func;
    job->args = s->args;
    job->tolerance = tolerance_of(s->module, s->func->name);
    job->threads = threads < 1 ? 1 : (int)threads;
    return true;
}

bool command_tune(Tool *tool, int *code) {
    Tuning t = {.tool = tool};
    Driver driver;
    StrBuf text;
    (void)code;
    if (!bench_flags(tool, 15, &t.job.bench) || !subject_open(tool, true, &t.subject) ||
        !cuda_open(&driver, tool->sink) || !prepare(&t))
        return false;
    t.job.user = &t;
    t.job.progress = isatty(STDERR_FILENO) ? show_progress : NULL;
    if (!tune_run(&t.job)) return false;
    for (int i = 0; i < t.job.count; i++)
        if (t.job.results[i].why)
            diag(tool->sink, (Span){0}, T_TUNE_DISCARDED, t.job.results[i].text, t.job.results[i].why);
    Results best = measured(&t, t.job.count);
    if (best.count == 0) {
        diag(tool->sink, (Span){0}, T_NOTHING_TUNED, t.subject.func->name);
        return false;
    }
    sb_init(&text, tool->arena);
    report(&t, &best, &text);
    return tool_write(tool, "-", &text) && write_record(&t, &best);
}
