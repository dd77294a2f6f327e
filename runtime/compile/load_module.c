#include "runtime/compile/load_module.h"
#include "ir/print.h"
#include "runtime/compile/prune_variants.h"
#include <string.h>
#include <time.h>

double seconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void test_print_label(const Test *test, StrBuf *out) {
    sb_printf(out, "%s (", test->name);
    for (int i = 0; i < test->bindings.count; i++) {
        sb_printf(out, "%s%s = ", i ? ", " : "", test->bindings.items[i].name);
        print_expr(test->bindings.items[i].value, out);
    }
}

static const char *read_import(void *user, Arena *arena, const char *from, const char *path, const char **resolved,
                               size_t *length, const char **why) {
    (void)user;
    FileText file;
    *resolved = path_beside(arena, from, path);
    if (!file_load(arena, *resolved, SOURCE_LIMIT, &file, why)) return NULL;
    *length = file.length;
    return file.text;
}

bool front_open(Front *front, const char *path) {
    FileText source;
    if (!file_read(front->arena, front->sink, path, SOURCE_LIMIT, &source)) return false;
    return front_open_text(front, strcmp(path, "-") == 0 ? "<stdin>" : path, source.text, source.length);
}

bool front_open_text(Front *front, const char *name, const char *text, size_t length) {
    static const ImportReader reader = {.read = read_import};
    double start = seconds_now();
    front->syntax = syntax_parse(front->arena, front->failure, front->sink, name, text, length, &reader);
    front->parse_seconds = seconds_now() - start;
    return front->syntax != NULL;
}

// Every combination of the file's tunables, to name the largest that would fit.
static void search_all(Front *front, Arena *arena, int count, const Define *defines, FitsSearch *search) {
    Define *kept = NEW_ARRAY(arena, Define, count + 1);
    ElaborateOptions options = {.defines = kept, .only = search->kernel, .fits = fits_check, .user = search};
    options.define_count = front_drop_tunables(front, count, defines, kept);
    search->try_all = true;
    int before = diag_count(front->sink);
    elaborate(front->syntax, arena, front->failure, front->sink, &options);
    diag_truncate(front->sink, before);
}

static void report_too_large(Front *front, Arena *arena, int count, const Define *defines, FitsSearch *search) {
    const char *kernel = search->kernel, *tried = search->smallest_tunables;
    StrBuf table;
    sb_init(&table, front->arena);
    fits_table(&search->smallest, front->target, &table);
    Diag *d = diag(front->sink, search->loc, T_NOTHING_FITS, kernel, front->target->name);
    diag_note(d, "%s%s\n%s", tried[0] ? "the smallest tried is " : "what it takes:", tried, sb_text(&table));
    FitsSearch all = {.arena = arena, .target = front->target};
    all.kernel = kernel, all.variant = search->variant;
    search_all(front, arena, count, defines, &all);
    if (all.largest_tunables && all.largest_tunables[0])
        diag_note(d, "the largest combination that fits is %s", all.largest_tunables);
    else if (tried[0]) diag_note(d, "no combination of the file's values fits");
}

// An elaboration for each tile that kernels keep; they become one module. NULL: reported.
static Module *elaborate_rounds(Front *front, Arena *arena, const ElaborateOptions *options, FitsSearch *search) {
    Module **modules = NEW_ARRAY(arena, Module *, search->rounds);
    for (search->round = 0; search->round < search->rounds; search->round++) {
        Module *module = elaborate(front->syntax, arena, front->failure, front->sink, options);
        if (!module) return NULL;
        modules[search->round] = module;
    }
    fits_merge(search, modules[0], modules + 1);
    return modules[0];
}

static Module *elaborate_fitting(Front *front, Arena *arena, int define_count, const Define *defines,
                                 const char *only) {
    FitsSearch search = {.arena = arena, .target = front->target};
    ElaborateOptions options = {.define_count = define_count, .defines = defines, .only = only};
    options.test_choice = front->test_choice;
    if (front->target) {
        options.fits = fits_check;
        options.user = &search;
    }
    int diags = diag_count(front->sink);
    Module *module = elaborate(front->syntax, arena, front->failure, front->sink, &options);
    if (fits_decide(&search)) {
        diag_truncate(front->sink, diags);
        module = elaborate_rounds(front, arena, &options, &search);
    }
    if (search.tried > 0 && !search.settled) {   // whatever elaborate said of it, we know more
        diag_truncate(front->sink, diags);
        report_too_large(front, arena, define_count, defines, &search);
        return NULL;
    }
    if (module && front->target) keep_served(module, front->target);
    return module;   // what has no tunables is measured by the passes
}

// Elaborates without a word, to know of which kernels a launch chooses among tiles.
static FitsSearch find_choices(Front *front, Arena *arena, int define_count, const Define *defines, const char *only) {
    FitsSearch search = {.arena = arena, .target = front->target};
    ElaborateOptions options = {
        .define_count = define_count, .defines = defines, .only = only, .fits = fits_check, .user = &search};
    int diags = diag_count(front->sink);
    elaborate(front->syntax, arena, front->failure, front->sink, &options);
    diag_truncate(front->sink, diags);
    fits_decide(&search);
    return search;
}

static bool has_kernel(const Module *module, const char *name) {
    for (int i = 0; i < module->funcs.count; i++)
        if (module->funcs.items[i]->kind == FUNC_KERNEL && strcmp(module->funcs.items[i]->name, name) == 0) return true;
    return false;
}

static void report_stale(Front *front, int diags, const char *kernel) {
    diag_truncate(front->sink, diags);   // what was measured once does not even fit
    diag(front->sink, (Span){0}, T_STALE_RECORD, front->record_path, kernel);
}

Module *front_module(Front *front, Arena *arena, int define_count, const Define *defines, const char *only) {
    memset(&front->tiles, 0, sizeof front->tiles);
    if (!front_has_record(front)) return elaborate_fitting(front, arena, define_count, defines, only);
    FitsSearch search = find_choices(front, arena, define_count, defines, only);
    FrontRecorded recorded = front_recorded(front, arena, define_count, defines, &search);
    int diags = diag_count(front->sink);
    Module *module = elaborate_fitting(front, arena, recorded.define_count, recorded.defines, only);
    if (!module && recorded.define_count > define_count) {
        const char *name = recorded.defines[define_count].name;
        report_stale(front, diags, arena_strndup(arena, name, strcspn(name, ".")));
        module = elaborate_fitting(front, arena, define_count, defines, only);
    }
    for (int i = 0; module && i < recorded.tiles.count; i++) {
        const FrontTile *tile = &recorded.tiles.items[i];
        if (!has_kernel(module, tile->kernel)) continue;
        diags = diag_count(front->sink);
        Module *with = elaborate_fitting(front, arena, tile->define_count, tile->defines, tile->kernel);
        if (with) diag_truncate(front->sink, diags), front_add_tile(front, module, tile, with);
        else report_stale(front, diags, tile->kernel);
    }
    return module;
}
