// tilec reduce: makes a program that shows a failure small, with any command as the judge of what shows it.
//
// Hierarchical delta debugging (Misherghi and Su, 2006): families of edits (tools/reduce/edits.h) go from the outer
// brackets inwards and from halves to single pieces. The first edit that leaves the failure is kept, and the family
// goes on with what came of it, at the same index; rounds over all families end with one that keeps nothing. What was
// rejected is never run again. Runs are made ahead, as if the ones before would be rejected, so the result is the same
// for any number of jobs.
#include "support/files.h"
#include "support/hash.h"
#include "support/json.h"
#include "support/map.h"
#include "tools/reduce/edits.h"
#include "tools/reduce/oracle.h"
#include "tools/tool.h"
#include <string.h>
#include <time.h>
#include <unistd.h>

static const EditFamily families[] = {edits_delete, edits_unwrap,   edits_names,    edits_numbers,
                                      edits_hoist,  edits_elements, edits_constants};

typedef struct Reducer {
    Tool *tool;
    Oracle oracle;
    const char *path, *output;
    FileText input, best;
    bool verbatim;   // white space and comments matter
    StrMap *rejected;
    EditFamily family;
    int index;             // of the next edit of the family
    double start, shown;   // seconds: the beginning, the last report
    // While candidates are made:
    Arena *arena;
    SourceTree *tree;
    Edits edits;
    FileText forms[3];   // of the input
} Reducer;

static double seconds(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static int lines(FileText text) {
    int count = text.length > 0 && text.text[text.length - 1] != '\n';
    for (size_t i = 0; i < text.length; i++) count += text.text[i] == '\n';
    return count;
}

// ---- candidates ----

static FileText taken(const StrBuf *text) {
    return (FileText){sb_text(text), text->length};
}

static FileText formatted(Arena *arena, FileText text) {
    StrBuf out;
    sb_init(&out, arena);
    source_format(source_parse(arena, text.text, (int)text.length), &out);
    return taken(&out);
}

// 128 bits of the text: two different ones are taken for the same never.
static const char *key_of(Arena *arena, FileText text) {
    uint64_t a = text.length, b = ~a;
    for (size_t i = 0; i < text.length; i++) {
        a = hash_mix(a, (unsigned char)text.text[i]);
        b = hash_mix(b, a);
    }
    return arena_printf(arena, "%016llx%016llx", (unsigned long long)a, (unsigned long long)b);
}

static Candidate candidate(Reducer *r, FileText text) {
    Candidate c = {.text = text.text, .length = text.length, .key = key_of(r->arena, text)};
    bool same = r->best.text && text.length == r->best.length && !memcmp(text.text, r->best.text, text.length);
    if (same || strmap_has(r->rejected, c.key)) c.text = NULL;
    return c;
}

static void reject(void *user, const Candidate *c) {
    Reducer *r = user;
    strmap_put(r->rejected, c->key, "");
}

static FileText edited(Reducer *r, int index) {
    StrBuf out;
    sb_init(&out, r->arena);
    edit_apply(r->tree, &r->edits.items[index], &out);
    return r->verbatim ? taken(&out) : formatted(r->arena, taken(&out));
}

static Candidate get_edited(void *user, int index) {
    return candidate(user, edited(user, index));
}

static Candidate get_form(void *user, int index) {
    Reducer *r = user;
    return candidate(r, r->forms[index]);
}

// ---- what is kept ----

static void report(Reducer *r) {
    double now = seconds();
    if (now < r->shown + 2) return;
    r->shown = now;
    fprintf(stderr, "%7.1f s %7d runs %6d lines %8zu bytes\n", now - r->start, r->oracle.count, lines(r->best),
            r->best.length);
}

static bool keep(Reducer *r, FileText text) {
    r->best = (FileText){arena_strndup(r->tool->arena, text.text, text.length), text.length};
    report(r);
    bool written = file_write(r->arena, r->tool->sink, r->output, text.text, text.length);
    r->oracle.stopped |= !written;
    return written;
}

// One step of a family: false at its end.
static bool step(void *user, Arena *arena) {
    Reducer *r = user;
    if (r->oracle.stopped) return false;
    r->arena = arena;
    r->tree = source_parse(arena, r->best.text, (int)r->best.length);
    r->edits = (Edits){0};
    r->family(r->tree, &r->edits);
    Candidates all = {r->index, r->edits.count, get_edited, reject, r};
    r->index = oracle_first(&r->oracle, &all);
    return r->index >= 0 && keep(r, edited(r, r->index));
}

// Whether anything was kept.
static bool run_family(Reducer *r, EditFamily family) {
    bool any = false;
    r->family = family;
    r->index = 0;
    while (arena_scope(r->tool->failure, step, r)) any = true;
    return any;
}

static bool run_round(Reducer *r) {
    bool any = false;
    for (int i = 0; i < COUNT_OF(families); i++) any |= run_family(r, families[i]);
    return any;
}

// ---- the input ----

enum { MOST_IMPORTS = 1000 };

// The text with those that it imports in the place of their imports, each once. What cannot be read stays an import.
static void put_imports(Reducer *r, const char *path, FileText text, StrMap *done, int *left, StrBuf *out) {
    SourceTree *tree = source_parse(r->arena, text.text, (int)text.length);
    int at = 0;
    for (int i = 0; i + 2 < tree->tokens.count; i++) {
        const char *why, *name = token_text(tree, i + 1);
        FileText imported;
        if (!token_is(tree, i, "import") || tree->tokens.items[i + 1].kind != TOKEN_STRING || --*left < 0) continue;
        const char *file = path_beside(r->arena, path, arena_strndup(r->arena, name + 1, strlen(name) - 2));
        bool again = strmap_has(done, file);
        if (!again && !file_load(r->arena, file, SOURCE_LIMIT, &imported, &why)) continue;
        int start = tree->tokens.items[i].start;
        sb_bytes(out, text.text + at, (size_t)(start - at));
        at = tree->tokens.items[i + 2].start + 1;
        strmap_put(done, file, "");
        if (!again) put_imports(r, file, imported, done, left, out);
    }
    sb_bytes(out, text.text + at, text.length - (size_t)at);
}

static void not_shown(Reducer *r) {
    Oracle *o = &r->oracle;
    const char *end = o->last_late ? arena_printf(r->arena, "runs longer than %g s", o->timeout)
                                   : arena_printf(r->arena, "exits with %d", o->last_code);
    Diag *d = diag(r->tool->sink, (Span){0}, T_NO_FAILURE, r->path, end);
    int line = (int)strcspn(o->last_said, "\n");
    if (line) diag_note(d, "it says: %.*s", line < 200 ? line : 200, o->last_said);
}

// The first of these forms that shows the failure: without imports and formatted, without imports, as it stands.
static bool begin(void *user, Arena *arena) {
    Reducer *r = user;
    StrBuf whole;
    int left = MOST_IMPORTS;
    r->arena = arena;
    sb_init(&whole, arena);
    put_imports(r, r->path, r->input, strmap_new(arena), &left, &whole);
    r->forms[0] = formatted(arena, taken(&whole));
    r->forms[1] = taken(&whole);
    r->forms[2] = r->input;
    Candidates forms = {0, COUNT_OF(r->forms), get_form, reject, r};
    int form = oracle_first(&r->oracle, &forms);
    if (form < 0 && !r->oracle.stopped) not_shown(r);
    r->verbatim = form > 0;
    return form >= 0 && keep(r, r->forms[form]);
}

static bool format_best(void *user, Arena *arena) {
    Reducer *r = user;
    r->arena = arena;
    r->forms[0] = formatted(arena, r->best);
    Candidates form = {0, 1, get_form, reject, r};
    r->verbatim = oracle_first(&r->oracle, &form) < 0;
    return !r->verbatim && keep(r, r->forms[0]);
}

static bool reduce(void *user) {
    Reducer *r = user;
    if (!oracle_open(&r->oracle, r->output) || !arena_scope(r->tool->failure, begin, r)) return false;
    do
        while (run_round(r)) continue;
    while (r->verbatim && arena_scope(r->tool->failure, format_best, r));
    run_family(r, edits_rename);
    return true;
}

static void after_reduce(void *user) {
    Reducer *r = user;
    oracle_close(&r->oracle);
}

// ---- the command ----

// FILE.tile -> FILE.reduced.tile, in its folder
static const char *default_output(Arena *arena, const char *path) {
    return path_beside(arena, path, arena_printf(arena, "%s.reduced.tile", path_stem(arena, path)));
}

static void read_patterns(Tool *tool, Oracle *oracle) {
    for (int i = 0; i < tool->options.given.count; i++)
        if (tool->options.given.items[i].id == OPTION_MATCH)
            vec_push(tool->arena, &oracle->patterns, tool->options.given.items[i].value);
}

static bool read_flags(Reducer *r) {
    Tool *tool = r->tool;
    const Options *o = &tool->options;
    int64_t jobs = sysconf(_SC_NPROCESSORS_ONLN), timeout = 10, code = -1;
    if (!option_number(o, tool->sink, OPTION_JOBS, 1, MOST_RUNS, &jobs)) return false;
    if (!option_number(o, tool->sink, OPTION_TIMEOUT, 1, 1000000, &timeout)) return false;
    if (!option_number(o, tool->sink, OPTION_EXIT, 0, 255, &code)) return false;
    if (o->operands.count < 2) return tool_usage(tool, "a file and a command are taken: tilec reduce FILE -- COMMAND");
    bool hang = option_given(o, OPTION_HANG);
    if (hang && code >= 0) return tool_usage(tool, "--hang and --exit exclude each other");
    r->oracle = (Oracle){.arena = tool->arena, .sink = tool->sink, .timeout = (double)timeout, .hang = hang};
    r->oracle.jobs = jobs < 1 ? 1 : jobs > MOST_RUNS ? MOST_RUNS : (int)jobs;
    read_patterns(tool, &r->oracle);
    r->oracle.exit_code = code < 0 && r->oracle.patterns.count == 0 ? 0 : (int)code;
    vec_push(tool->arena, &tool->options.operands, NULL);
    r->oracle.command = tool->options.operands.items + 1;
    r->path = tool->options.operands.items[0];
    r->output = option_text(o, OPTION_OUTPUT, default_output(tool->arena, r->path));
    if (strcmp(r->output, "-") == 0) return tool_usage(tool, "the result goes to a file: give -o FILE.tile");
    return true;
}

static void tell(const Reducer *r) {
    StrBuf out;
    double time = seconds() - r->start;
    if (!option_given(&r->tool->options, OPTION_JSON)) {
        fprintf(stderr, "%s%s: %d of %d lines, %zu of %zu bytes, %d runs in %.1f s\n",
                r->oracle.stopped ? "stopped; the best so far is " : "", r->output, lines(r->best), lines(r->input),
                r->best.length, r->input.length, r->oracle.count, time);
        return;
    }
    sb_init(&out, r->tool->arena);
    sb_str(&out, "{\"file\": ");
    json_quote(&out, r->output);
    sb_printf(
        &out,
        ", \"lines\": %d, \"of_lines\": %d, \"bytes\": %zu, \"of_bytes\": %zu, \"runs\": %d, \"seconds\": %.1f, \"stopped\": %s}\n",
        lines(r->best), lines(r->input), r->best.length, r->input.length, r->oracle.count, time,
        r->oracle.stopped ? "true" : "false");
    fputs(sb_text(&out), stdout);
}

bool command_reduce(Tool *tool, int *code) {
    Reducer r = {.tool = tool, .rejected = strmap_new(tool->arena), .start = seconds(), .shown = seconds()};
    if (!read_flags(&r) || !file_read(tool->arena, tool->sink, r.path, SOURCE_LIMIT, &r.input)) return false;
    if (!file_can_write(tool->arena, tool->sink, r.output)) return false;
    bool ok = fail_scope(tool->failure, reduce, after_reduce, &r);
    if (r.best.text) tell(&r);
    if (r.oracle.stopped) *code = 1;
    return ok && !r.oracle.stopped;
}
