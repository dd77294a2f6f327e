// tilec tune: times all combinations of a kernel's tunables on the device, adds the results to the tuning record of the host, and
// writes them next to the file, for builds. With several devices, a process for each measures its share; then this one, which
// finds all in the record but what such a process left.
#include "runtime/device/cuda.h"
#include "support/json.h"
#include "tools/bench_flags.h"
#include "tools/tune.h"
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_COMBINATIONS = 10000, MOST_DEVICES = 64, BAR = 24, SHOWN = 5 };

typedef struct Shard {   // every `count`-th combination, from `first` on
    int64_t first, count;
} Shard;

typedef struct Tuning {
    Tool *tool;
    Subject subject;
    TuneJob job;
    VEC(Tunable) tunables;   // of the kernel, without those that -D fixes
    int combinations;
    Shard shard;
    const char *record;   // the text that builds read
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
    int count = syntax_tunables(s->loader.syntax, t->tool->arena, s->define_count, s->defines, &all);
    int64_t combinations = 1;
    if (!s->only && count > 0) s->only = all[0].kernel;
    subject_types(s);   // the lists of tunables may depend on them
    count = syntax_tunables(s->loader.syntax, t->tool->arena, s->define_count, s->defines, &all);
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
    t->combinations = (int)combinations;
    return true;
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

static TuneResult combination(const Tuning *t, int number) {
    Arena *arena = t->tool->arena;
    TuneResult out = {0};
    StrBuf text;
    sb_init(&text, arena);
    for (int k = 0, below = t->combinations, rest = number; k < t->tunables.count; k++) {
        const Tunable *tunable = &t->tunables.items[k];
        below /= tunable->count;
        RecordValue value = {tunable->name, tunable->values[rest / below]};
        rest %= below;
        vec_push(arena, &out.tuned, value);
        vec_push(arena, &out.all, value);
        sb_printf(&text, "%s%s = %lld", k ? ", " : "", value.name, (long long)value.value);
    }
    out.text = sb_text(&text);
    add_fixed(t, &out.all);
    return out;
}

// Lists the combinations of the shard in source order; the last tunable varies fastest.
static void list_combinations(Tuning *t) {
    t->job.results = NEW_ARRAY(t->tool->arena, TuneResult, t->combinations);
    for (int64_t i = t->shard.first; i < t->combinations; i += t->shard.count)
        t->job.results[t->job.count++] = combination(t, (int)i);
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

static void result_json(const Tuning *t, const TuneResult *result, StrBuf *out) {
    RecordEntry entry = t->job.entry;
    entry.tuned = result->all;
    entry.us = result->time.median * 1e6;
    entry.low = result->time.low * 1e6;
    entry.high = result->time.high * 1e6;
    record_entry_write(&entry, out);
}

static void report(const Tuning *t, const Results *best, StrBuf *out) {
    int large = 0, discarded = 0, known = 0;
    for (int i = 0; i < t->job.count; i++) {
        large += t->job.results[i].too_large;
        discarded += t->job.results[i].why != NULL;
        known += t->job.results[i].known;
    }
    sb_printf(out, "%s on %s: %d combinations, %d measured%s, %d too large, %d discarded\n", t->subject.func->name,
              t->job.entry.device, t->job.count, best->count,
              known ? arena_printf(t->tool->arena, " (%d before)", known) : "", large, discarded);
    for (int i = 0; i < best->count && i < SHOWN; i++)
        sb_printf(out, "  %.2f us  [%.2f, %.2f]  %s\n", best->items[i]->time.median * 1e6,
                  best->items[i]->time.low * 1e6, best->items[i]->time.high * 1e6, best->items[i]->text);
}

// ---- the record ----

static bool is_measured(const Tuning *t, const Results *best, const RecordEntry *old) {
    for (int i = 0; i < best->count; i++)
        if (strcmp(old->combination, record_values_text(t->tool->arena, &best->items[i]->all)) == 0) return true;
    return false;
}

// A shard leaves what others have measured.
static bool is_replaced(const Tuning *t, const Results *best, const RecordEntry *old) {
    const RecordEntry *now = &t->job.entry;
    if (strcmp(old->kernel, now->kernel) != 0 || strcmp(old->target, now->target) != 0) return false;
    if (!signatures_have_same_types(old->text, now->text)) return false;
    if (strcmp(old->text, now->text) != 0) return true;
    return strcmp(old->problem, now->problem) == 0 && (t->shard.count == 1 || is_measured(t, best, old));
}

// Keeps entries of other kernels and shapes; drops stale entries of this kernel.
static bool merge_record(Tuning *t, const Results *best) {
    Tool *tool = t->tool;
    Record old;
    StrBuf text, now;
    if (!record_read(tool->arena, tool->sink, t->record, false, &old)) return false;
    sb_init(&text, tool->arena);
    sb_init(&now, tool->arena);
    for (int i = 0; i < old.entries.count; i++)
        if (!is_replaced(t, best, &old.entries.items[i])) record_entry_write(&old.entries.items[i], &text);
    for (int i = 0; i < best->count; i++) result_json(t, best->items[i], &text);
    if (!tool_write(tool, t->record, &text)) return false;
    if (option_given(&tool->options, OPTION_JSON)) return true;
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

// ---- shards and devices ----

static bool read_shard(Tool *tool, Shard *out) {
    const char *text = option_text(&tool->options, OPTION_SHARD, "0/1");
    char *end;
    out->first = strtoll(text, &end, 10);
    out->count = *end == '/' ? strtoll(end + 1, &end, 10) : 0;
    if (*end == 0 && out->first >= 0 && out->first < out->count) return true;
    return tool_usage(tool, "--shard is K/N, with 0 <= K < N");
}

typedef VEC(int) Devices;

// --devices; none: the first, in this process.
static bool read_devices(Tool *tool, const Driver *driver, Devices *out) {
    const char *text = option_text(&tool->options, OPTION_DEVICES, NULL);
    int count = 0;
    char *end;
    if (!text) return true;
    if (!cuda_check(driver, tool->sink, driver->device_count(&count), "cuDeviceGetCount")) return false;
    if (strcmp(text, "all") == 0) {
        for (int i = 0; i < count; i++) vec_push(tool->arena, out, i);
        return true;
    }
    for (;; text = end + 1) {
        long device = strtol(text, &end, 10);
        if (end == text || device < 0 || device >= count || (*end && *end != ','))
            return tool_usage(tool, "--devices is `all` or a list of numbers below %d", count);
        vec_push(tool->arena, out, (int)device);
        if (!*end) return true;
    }
}

// CUDA_VISIBLE_DEVICES for one device of those that this process sees.
static const char *only_device(Arena *arena, int device) {
    const char *seen = getenv("CUDA_VISIBLE_DEVICES");
    for (int i = 0; seen && i < device; i++) seen = strchr(seen, ',') ? strchr(seen, ',') + 1 : NULL;
    return seen ? arena_printf(arena, "CUDA_VISIBLE_DEVICES=%.*s", (int)strcspn(seen, ","), seen)
                : arena_printf(arena, "CUDA_VISIBLE_DEVICES=%d", device);
}

// The environment with a variable changed.
static char **environment_with(Arena *arena, const char *variable) {
    size_t name = strcspn(variable, "=") + 1;
    VEC(char *) out = {0};
    for (char **at = environ; *at; at++)
        if (strncmp(*at, variable, name) != 0) vec_push(arena, &out, *at);
    vec_push(arena, &out, arena_strdup(arena, variable));
    vec_push(arena, &out, NULL);
    return out.items;
}

// This command, for the share of one of `count` devices. 0: no process, reported.
static pid_t start_share(Tuning *t, int device, int at, int count) {
    Tool *tool = t->tool;
    Arena *arena = tool->arena;
    VEC(char *) words = {0};
    vec_push(arena, &words, arena_strdup(arena, "tilec"));
    vec_push(arena, &words, arena_strdup(arena, "tune"));
    for (int i = 0; i < tool->options.given.count; i++) {
        const GivenOption *given = &tool->options.given.items[i];
        const OptionInfo *info = &option_infos[given->id];
        if (given->id == OPTION_DEVICES || given->id == OPTION_SHARD) continue;
        vec_push(arena, &words, arena_printf(arena, given->value ? "--%s=%s" : "--%s", info->name, given->value));
    }
    long long first = t->shard.first + t->shard.count * at, all = t->shard.count * count;
    vec_push(arena, &words, arena_printf(arena, "--shard=%lld/%lld", first, all));
    for (int i = 0; i < tool->options.operands.count; i++)
        vec_push(arena, &words, arena_strdup(arena, tool->options.operands.items[i]));
    vec_push(arena, &words, NULL);
    posix_spawn_file_actions_t actions;
    pid_t child = 0;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    int error = posix_spawn(&child, "/proc/self/exe", &actions, NULL, words.items,
                            environment_with(arena, only_device(arena, device)));
    posix_spawn_file_actions_destroy(&actions);
    if (error) diag(tool->sink, (Span){0}, T_CANNOT_RUN, "tilec", strerror(error));
    return error ? 0 : child;
}

// Lets a process for each device measure its share. What one of them does not do is left to this process.
static bool measure_shares(Tuning *t, const Devices *devices) {
    pid_t children[MOST_DEVICES];
    int count = devices->count < MOST_DEVICES ? devices->count : MOST_DEVICES, started = 0, status;
    while (started < count && (children[started] = start_share(t, devices->items[started], started, count))) started++;
    for (int i = 0; i < started; i++)
        while (waitpid(children[i], &status, 0) < 0 && errno == EINTR) {}
    return started == count;
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
    job->anew = option_given(&tool->options, OPTION_ANEW);
    job->entry = (RecordEntry){
        .kernel = s->func->name,
        .text = kernel_signature(&s->loader, tool->arena, s->define_count, s->defines, s->func->name),
        .target = job->target,
        .shape = bench_shape(tool->arena, s->func, s->args),
        .method = arena_printf(tool->arena, "%s, %d samples", job->bench.warm ? "warm" : "cold", job->bench.samples),
        .tilec = TILEC_VERSION};
    return true;
}

static bool measure_and_write(Tuning *t) {
    Tool *tool = t->tool;
    StrBuf text;
    t->job.user = t;
    t->job.progress = isatty(STDERR_FILENO) ? show_progress : NULL;
    if (!tune_run(&t->job)) return false;
    t->job.entry.problem = record_problem(tool->arena, &t->job.entry);
    for (int i = 0; i < t->job.count; i++)
        if (t->job.results[i].why)
            diag(tool->sink, (Span){0}, T_TUNE_DISCARDED, t->job.results[i].text, t->job.results[i].why);
    Results best = measured(t, t->job.count);
    if (best.count == 0) {
        diag(tool->sink, (Span){0}, T_NOTHING_TUNED, t->subject.func->name);
        return false;
    }
    sb_init(&text, tool->arena);
    if (option_given(&tool->options, OPTION_JSON))
        for (int i = 0; i < best.count; i++) result_json(t, best.items[i], &text);
    else report(t, &best, &text);
    return tool_write(tool, "-", &text) && write_record(t, &best);
}

static bool tune_file(Tool *tool, Measurements *record) {
    Tuning t = {.tool = tool, .job = {.record = record}};
    Driver driver;
    Devices devices = {0};
    if (!bench_flags(tool, 15, &t.job.bench) || !read_shard(tool, &t.shard) || !subject_open(tool, true, &t.subject) ||
        !cuda_open(&driver, tool->sink) || !read_devices(tool, &driver, &devices) || !prepare(&t))
        return false;
    if (devices.count == 1 && putenv(arena_strdup(tool->arena, only_device(tool->arena, devices.items[0]))) != 0)
        fail_out_of_memory(tool->failure);
    return (devices.count < 2 || measure_shares(&t, &devices)) && measure_and_write(&t);
}

static bool merge(Tool *tool, Measurements *record) {
    const Options *o = &tool->options;
    int64_t count;
    StrBuf text;
    sb_init(&text, tool->arena);
    if (o->operands.count == 0) return tool_usage(tool, "--merge takes the records to add");
    for (int i = 0; i < o->operands.count; i++) {
        if (!measurements_merge(record, tool->arena, o->operands.items[i], &count)) return false;
        if (option_given(o, OPTION_JSON)) {
            sb_printf(&text, "{\"record\": ");
            json_quote(&text, o->operands.items[i]);
            sb_printf(&text, ", \"measurements\": %lld}\n", (long long)count);
        } else sb_printf(&text, "%lld measurements of %s\n", (long long)count, o->operands.items[i]);
    }
    return tool_write(tool, "-", &text);
}

static bool export(Tool *tool, Measurements *record) {
    StrBuf text;
    sb_init(&text, tool->arena);
    if (tool->options.operands.count) return tool_usage(tool, "--export takes no file but -o");
    return measurements_export(record, tool->arena, &text) &&
           tool_write(tool, option_text(&tool->options, OPTION_OUTPUT, "-"), &text);
}

bool command_tune(Tool *tool, int *code) {
    (void)code;
    bool merges = option_given(&tool->options, OPTION_MERGE), exports = option_given(&tool->options, OPTION_EXPORT);
    if (merges && exports) return tool_usage(tool, "--merge and --export are two commands");
    Measurements *record = measurements_open(tool->arena, tool->sink, measurements_path(tool->arena));
    if (!record) return false;
    bool ok = merges ? merge(tool, record) : exports ? export(tool, record) : tune_file(tool, record);
    measurements_close(record);
    return ok;
}
