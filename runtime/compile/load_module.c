#include "runtime/compile/load_module.h"
#include "ir/print.h"
#include "passes/grid/workspace.h"
#include "runtime/compile/prune_variants.h"
#include <string.h>
#include <sys/stat.h>
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

static const char *path_identity(void *user, Arena *arena, const char *path) {
    (void)user;
    return path_canonical(arena, path);
}

static const char *read_import(void *user, Arena *arena, const char *from, const char *path, const char **resolved,
                               const char **identity, size_t *length, const char **why) {
    Loader *loader = user;
    FileText file;
    *resolved = path_beside(arena, from, path);
    *identity = path_identity(user, arena, *resolved);
    const char *root = loader->import_root ? path_identity(user, arena, loader->import_root) : NULL;
    struct stat info;
    if (root && (stat(root, &info) != 0 || !S_ISDIR(info.st_mode))) {   // "", too, as an unset variable gives it
        *why = arena_printf(arena, "the import root '%s' is no folder", loader->import_root);
        return NULL;
    }
    if (root && !path_is_within(*identity, root)) {
        *why = "it is outside of the import root";
        return NULL;
    }
    if (!path_is_regular(*identity, why)) return NULL;
    if (!file_load(arena, *identity, SOURCE_LIMIT, &file, why)) return NULL;
    ImportedFile import = {*resolved, file};
    vec_push(loader->arena, &loader->imports, import);
    *length = file.length;
    return file.text;
}

bool loader_open(Loader *loader, const char *path) {
    FileText source;
    if (!file_read(loader->arena, loader->sink, path, SOURCE_LIMIT, &source)) return false;
    return loader_open_text(loader, strcmp(path, "-") == 0 ? "<stdin>" : path, source.text, source.length);
}

bool loader_open_text(Loader *loader, const char *name, const char *text, size_t length) {
    const ImportReader reader = {.read = read_import, .identity = path_identity, .user = loader};
    double start = seconds_now();
    loader->syntax = syntax_parse(loader->arena, loader->failure, loader->sink, name, text, length, &reader);
    loader->parse_seconds = seconds_now() - start;
    return loader->syntax != NULL;
}

// Tries every combination of the file's tunables, to name the largest that fits.
static void search_all(Loader *loader, Arena *arena, int count, const Define *defines, TileSearch *search) {
    Define *kept = NEW_ARRAY(arena, Define, count + 1);
    ElaborateOptions options = {.defines = kept, .only = search->kernel, .fits = tile_search_check, .user = search};
    options.define_count = drop_tunables(loader, count, defines, kept);
    search->try_all = true;
    int before = diag_count(loader->sink);
    elaborate(loader->syntax, arena, loader->failure, loader->sink, &options);
    diag_truncate(loader->sink, before);
}

static void report_too_large(Loader *loader, Arena *arena, int count, const Define *defines, TileSearch *search) {
    const char *kernel = search->kernel, *tried = search->smallest_tunables;
    StrBuf table;
    sb_init(&table, loader->arena);
    occupancy_table(&search->smallest, loader->target, &table);
    Diag *d = diag(loader->sink, search->loc, T_NOTHING_FITS, kernel, loader->target->name);
    diag_note(d, "%s%s\n%s", tried[0] ? "the smallest tried is " : "what it takes:", tried, sb_text(&table));
    if (search->tried > MOST_FITTED)
        diag_note(d, "there are more combinations, of which the first %d are tried", MOST_FITTED);
    TileSearch all = {.arena = arena, .target = loader->target};
    all.kernel = kernel, all.variant = search->variant;
    search_all(loader, arena, count, defines, &all);
    if (all.largest_tunables && all.largest_tunables[0])
        diag_note(d, "the largest combination that fits is %s", all.largest_tunables);
    else if (tried[0]) diag_note(d, "no combination of the file's values fits");
}

// Elaborates once for each tile that the search keeps, and merges the modules. NULL: reported.
static Module *elaborate_tiles(Loader *loader, Arena *arena, const ElaborateOptions *options, TileSearch *search) {
    Module **modules = NEW_ARRAY(arena, Module *, search->tile_count);
    ElaborateOptions each = *options;
    for (search->tile_index = 0; search->tile_index < search->tile_count; search->tile_index++) {
        each.again = search->tile_index > 0;
        Module *module = elaborate(loader->syntax, arena, loader->failure, loader->sink, &each);
        if (!module) return NULL;
        modules[search->tile_index] = module;
    }
    merge_tile_variants(search, modules[0], modules + 1);
    return modules[0];
}

// For one launch: of all tiles, not only of those that an artefact for any launch keeps. NULL: the launch takes none of them by costs
// of its extents, or an error.
static Module *elaborate_for_launch(Loader *loader, Arena *arena, const ElaborateOptions *options, const char *wanted,
                                    TileSearch *search) {
    const char *kernel;
    TileProblem problem;
    int diags = diag_count(loader->sink);
    if (!tile_search_probe(search, wanted)) return NULL;
    Module *module = elaborate_tiles(loader, arena, options, search);
    bool known = module && loader->problem(module, loader->target, loader->launch, &kernel, &problem);
    diag_truncate(loader->sink, diags);
    if (!known || strcmp(kernel, wanted) != 0) return NULL;
    tile_search_keep(search, wanted, &problem);
    module = elaborate_tiles(loader, arena, options, search);
    if (!module) diag_truncate(loader->sink, diags);
    return module;
}

static Module *elaborate_fitting(Loader *loader, Arena *arena, int define_count, const Define *defines,
                                 const char *only) {
    TileSearch search = {.arena = arena, .target = loader->target, .most = loader->variants};
    ElaborateOptions options = {.define_count = define_count, .defines = defines, .only = only};
    options.test_choice = loader->test_choice;
    if (loader->target) {
        options.fits = tile_search_check;
        options.user = &search;
    }
    int diags = diag_count(loader->sink);
    Module *module = elaborate(loader->syntax, arena, loader->failure, loader->sink, &options);
    if (tile_search_decide(&search)) {
        diag_truncate(loader->sink, diags);
        const char *wanted = loader->launch ? loader->launch->kernel : NULL;
        if (loader->launch && !wanted && module && module->funcs.count > 0) wanted = module->funcs.items[0]->name;
        module = wanted ? elaborate_for_launch(loader, arena, &options, wanted, &search) : NULL;
        if (!module) tile_search_keep_all(&search);
        if (!module) module = elaborate_tiles(loader, arena, &options, &search);
    }
    if (search.tried > 0 && !search.settled) {   // replaces the message of elaborate
        diag_truncate(loader->sink, diags);
        report_too_large(loader, arena, define_count, defines, &search);
        return NULL;
    }
    if (module && loader->target) prune_variants(module, loader->target);
    return module;   // a kernel without tunables is checked by swizzle-allocation
}

// Elaborates without diagnostics, to find the kernels that keep several tiles.
static TileSearch find_choices(Loader *loader, Arena *arena, int define_count, const Define *defines,
                               const char *only) {
    TileSearch search = {.arena = arena, .target = loader->target, .most = loader->variants};
    ElaborateOptions options = {
        .define_count = define_count, .defines = defines, .only = only, .fits = tile_search_check, .user = &search};
    int diags = diag_count(loader->sink);
    elaborate(loader->syntax, arena, loader->failure, loader->sink, &options);
    diag_truncate(loader->sink, diags);
    tile_search_decide(&search);
    return search;
}

static bool has_kernel(const Module *module, const char *name) {
    for (int i = 0; i < module->funcs.count; i++)
        if (module->funcs.items[i]->kind == FUNC_KERNEL && strcmp(module->funcs.items[i]->name, name) == 0) return true;
    return false;
}

static void report_stale(Loader *loader, int diags, const char *kernel) {
    diag_truncate(loader->sink, diags);   // the recorded combination does not fit any more
    diag(loader->sink, (Span){0}, T_STALE_RECORD, loader->record_path, kernel);
}

static Module *load_variants(Loader *loader, Arena *arena, int define_count, const Define *defines, const char *only) {
    memset(&loader->tiles, 0, sizeof loader->tiles);
    if (!loader_has_record(loader)) return elaborate_fitting(loader, arena, define_count, defines, only);
    TileSearch search = find_choices(loader, arena, define_count, defines, only);
    RecordedDefines recorded = recorded_defines(loader, arena, define_count, defines, &search);
    int diags = diag_count(loader->sink);
    Module *module = elaborate_fitting(loader, arena, recorded.define_count, recorded.defines, only);
    if (!module && recorded.define_count > define_count) {
        const char *name = recorded.defines[define_count].name;
        report_stale(loader, diags, arena_strndup(arena, name, strcspn(name, ".")));
        module = elaborate_fitting(loader, arena, define_count, defines, only);
    }
    for (int i = 0; module && i < recorded.tiles.count; i++) {
        const RecordedTile *tile = &recorded.tiles.items[i];
        if (!has_kernel(module, tile->kernel)) continue;
        diags = diag_count(loader->sink);
        Module *with = elaborate_fitting(loader, arena, tile->define_count, tile->defines, tile->kernel);
        if (with) diag_truncate(loader->sink, diags), add_recorded_tile(loader, module, tile, with);
        else report_stale(loader, diags, tile->kernel);
    }
    return module;
}

Module *load_module(Loader *loader, Arena *arena, int define_count, const Define *defines, const char *only) {
    Module *module = load_variants(loader, arena, define_count, defines, only);
    if (module) add_workspaces(module);
    return module;
}
