// tilec build: compiles files to the kinds of output that --emit names, for one or several targets.
#include "runtime/compile/compile.h"
#include "runtime/compile/layouts.h"
#include "runtime/launcher/launcher.h"
#include "support/map.h"
#include "tools/ask.h"
#include "tools/pass_flags.h"
#include "tools/tool.h"
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct Kind {
    const char *name, *extension;
    Upto upto;   // the last phase that this kind needs
} Kind;

typedef enum { TILE, LLVM, PTX, CUBIN, SASS, MANIFEST, HEADER, LAUNCHER, LAYOUTS, KINDS } KindId;

static const Kind kinds[KINDS] = {
    [TILE] = {"tile", ".tile", UPTO_PASSES},
    [LLVM] = {"llvm", ".ll", UPTO_PTX},
    [PTX] = {"ptx", ".ptx", UPTO_PTX},
    [CUBIN] = {"cubin", ".cubin", UPTO_CUBIN},
    [SASS] = {"sass", ".sass", UPTO_CUBIN},
    [MANIFEST] = {"manifest", ".json", UPTO_PTX},
    [HEADER] = {"header", ".h", UPTO_CUBIN},
    [LAUNCHER] = {"launcher", ".c", UPTO_CUBIN},
    [LAYOUTS] = {"layouts", ".layouts.txt", UPTO_MODULE},
};

typedef struct Build {
    Tool *tool;
    Loader loader;
    CompileOptions options;
    unsigned emit;             // bit per KindId
    const LaunchFor *launch;   // NULL: any
    int variants;              // 0: not given
    int emit_count;
    const char *output;   // NULL: not given
    bool in_folder;       // `output` is a folder
    bool many_targets, many_files;
    const char *path, *stem;
    FileNames read, written;   // by this file, for -MD
    int *code;
} Build;

// What files are written from. NULL where no kind that is asked for needs it.
typedef struct Products {
    const Module *module;
    const Plan *plan;
    const char *ptx, *llvm, *manifest;
    const void *cubin;   // with its plan
    size_t cubin_size;
} Products;

static bool add_kind(Build *b, const char *name, size_t length) {
    for (int i = 0; i < KINDS; i++) {
        if (strlen(kinds[i].name) != length || memcmp(kinds[i].name, name, length) != 0) continue;
        b->emit_count += !(b->emit >> i & 1);
        b->emit |= 1u << i;
        return true;
    }
    diag(b->tool->sink, (Span){0}, T_OPTION_VALUE, "emit", arena_strndup(b->tool->arena, name, length),
         arena_printf(b->tool->arena, "one of %s", option_infos[OPTION_EMIT].values));
    return false;
}

// --emit, else the kind that the extension of -o names, else a cubin.
static bool choose_kinds(Build *b) {
    const char *list = option_text(&b->tool->options, OPTION_EMIT, NULL);
    for (; list; list = list[0] == ',' ? list + 1 : NULL) {
        size_t length = strcspn(list, ",");
        if (!add_kind(b, list, length)) return false;
        list += length;
    }
    if (b->emit) return true;
    size_t name = b->output ? strlen(b->output) : 0;
    for (int i = 0; i < KINDS; i++) {
        size_t end = strlen(kinds[i].extension);
        if (name > end && strcmp(b->output + name - end, kinds[i].extension) == 0)
            return add_kind(b, kinds[i].name, strlen(kinds[i].name));
    }
    return add_kind(b, "cubin", 5);
}

// The path of an output. A single output goes to -o, or without -o to standard output (but the default cubin to a
// file). Several outputs, and those in a folder, are named STEM[.TARGET].EXTENSION.
static const char *path_for(Build *b, KindId kind) {
    Arena *arena = b->tool->arena;
    bool one = b->emit_count == 1 && !b->many_targets && !b->in_folder && !b->many_files;
    if (one && b->output) return b->output;
    if (one && option_given(&b->tool->options, OPTION_EMIT)) return "-";
    const char *named = b->in_folder ? NULL : b->output, *target = b->options.target->name;
    const char *base = b->in_folder ? arena_printf(arena, "%s/%s", b->output, b->stem) : named ? named : b->stem;
    const char *dot = strrchr(base, '.'), *slash = strrchr(base, '/');
    int length = named && dot && (!slash || dot > slash) ? (int)(dot - base) : (int)strlen(base);
    return arena_printf(arena, "%.*s%s%s%s", length, base, b->many_targets ? "." : "", b->many_targets ? target : "",
                        kinds[kind].extension);
}

static bool ends_with(const char *text, const char *end) {
    size_t length = strlen(text), tail = strlen(end);
    return length >= tail && strcmp(text + length - tail, end) == 0;
}

static LayoutsForm layouts_form(const char *path) {
    if (ends_with(path, ".html")) return LAYOUTS_HTML;
    return ends_with(path, ".svg") ? LAYOUTS_SVG : LAYOUTS_TEXT;
}

// The layouts report needs a compile of its own that stops before lowering, which removes the layouts.
static bool make_layouts(Build *b, Arena *arena, StrBuf *text) {
    Compiled compiled;
    CompileOptions options = b->options;
    options.upto = UPTO_PASSES;
    options.passes = (PassOptions){.stop_after = "swizzle-allocation", .bisect_limit = -1};
    if (!compile(&b->loader, arena, &options, &compiled)) return false;
    emit_layouts(compiled.module, options.target, b->stem, layouts_form(path_for(b, LAYOUTS)), text);
    return true;
}

static void comment_entry(const PlanEntry *entry, StrBuf *out) {
    const PlanVariant *v = &entry->variants.items[0];
    sb_printf(out, "//   %s %s(", entry->is_program ? "program" : "kernel", entry->name);
    for (int i = 0; i < v->params.count; i++) {
        const PlanParam *p = &v->params.items[i];
        static const char *const modes[] = {[MODE_IN] = "", [MODE_OUT] = "out ", [MODE_INOUT] = "inout "};
        sb_printf(out, "%s%s: %s%s", i ? ", " : "", p->name, modes[p->mode], type_text(p->type));
        for (int d = 0; d < p->rank; d++) sb_printf(out, "%s%s", d ? ", " : "[", p->shape[d].text);
        if (p->is_tensor) sb_char(out, ']');
    }
    sb_str(out, ")\n");
}

// A C header with the cubin as an array, for programs that embed it.
static void emit_header(const Build *b, const Plan *plan, const uint8_t *cubin, size_t size, StrBuf *out) {
    const char *name = b->many_targets ? arena_printf(out->arena, "%s_%s", b->stem, plan->target) : b->stem;
    const char *c = launcher_c_name(out->arena, name);
    sb_printf(out,
              "// Made by tilec %s for %s. Open it with tilec_artefact_open(context, %s_cubin, %s_cubin_size, ...):\n",
              plan->producer, plan->target, c, c);
    for (int i = 0; i < plan->entries.count; i++) comment_entry(&plan->entries.items[i], out);
    sb_printf(out, "#pragma once\n#include <stddef.h>\n\nstatic const size_t %s_cubin_size = %zu;\n", c, size);
    sb_printf(out, "static const unsigned char %s_cubin[%zu] __attribute__((aligned(16))) = {", c, size);
    for (size_t i = 0; i < size; i++) sb_printf(out, "%s%u,", i % 24 == 0 ? "\n    " : "", cubin[i]);
    sb_str(out, "\n};\n");
}

static bool write_output(Build *b, const char *path, KindId kind, const StrBuf *text) {
    vec_push(b->tool->arena, &b->written, path);
    const char *members = arena_printf(b->tool->arena, "\"kind\": \"%s\", \"target\": \"%s\", ", kinds[kind].name,
                                       b->options.target->name);
    return tool_product(b->tool, path, members, text);
}

// The .c goes to `path`, the .h next to it; both are named after it.
static bool make_launcher(Build *b, Arena *arena, const Products *p, StrBuf *text) {
    const char *path = path_for(b, LAUNCHER), *stem = path_stem(arena, path);
    StrBuf header;
    if (!ends_with(path, ".c"))
        return tool_usage(b->tool, "a launcher is two files: -o NAME.c writes NAME.c and NAME.h");
    sb_init(&header, arena);
    launcher_header(p->plan, stem, &header);
    return launcher_source(b->tool->sink, p->plan, stem, p->cubin, p->cubin_size, text) &&
           write_output(b, arena_printf(arena, "%.*sh", (int)strlen(path) - 1, path), LAUNCHER, &header);
}

static bool make(Build *b, Arena *arena, const Products *p, KindId kind, StrBuf *text) {
    switch (kind) {
    case TILE: print_module(p->module, (PrintOptions){.places = b->options.passes.places, .tests = true}, text); break;
    case LLVM: sb_str(text, p->llvm); break;
    case PTX: sb_str(text, p->ptx); break;
    case CUBIN: sb_bytes(text, p->cubin, p->cubin_size); break;
    case SASS: return disassemble(arena, b->tool->failure, b->tool->sink, p->cubin, p->cubin_size, text);
    case MANIFEST: sb_str(text, p->manifest); break;
    case HEADER: emit_header(b, p->plan, p->cubin, p->cubin_size, text); break;
    case LAUNCHER: return make_launcher(b, arena, p, text);
    case LAYOUTS: return make_layouts(b, arena, text);
    case KINDS: break;
    }
    return true;
}

static bool write_products(Build *b, Arena *arena, const Products *products) {
    for (int i = 0; i < KINDS; i++) {
        if (!(b->emit >> i & 1)) continue;
        StrBuf text;
        sb_init(&text, arena);
        if (!make(b, arena, products, (KindId)i, &text)) return false;
        const char *path = path_for(b, (KindId)i);
        bool json = option_given(&b->tool->options, OPTION_JSON);
        if (i == CUBIN && strcmp(path, "-") == 0 && (json || isatty(STDOUT_FILENO)))
            return tool_usage(b->tool, "a cubin is not for %s: give -o", json ? "JSON" : "the terminal");
        if (!write_output(b, path, (KindId)i, &text)) return false;
    }
    return true;
}

// ---- -MD ----

static void depfile_name(StrBuf *out, const char *path) {
    for (; *path; path++) {
        if (*path == ' ' || *path == '#') sb_char(out, '\\');
        if (*path == '$') sb_char(out, '$');
        sb_char(out, *path);
    }
}

static bool write_rule(Build *b, const char *path, const char *output) {
    StrBuf text;
    sb_init(&text, b->tool->arena);
    depfile_name(&text, output);
    sb_char(&text, ':');
    VEC_EACH_PTR (const char, file, &b->read) {
        sb_str(&text, " \\\n  ");
        depfile_name(&text, file);
    }
    sb_char(&text, '\n');
    return tool_write(b->tool, path, &text);
}

// What was read is the same for all outputs of a file.
static bool write_depfiles(Build *b) {
    const char *given = option_text(&b->tool->options, OPTION_DEPFILE, NULL);
    if (!given && !option_given(&b->tool->options, OPTION_DEPENDENCIES)) return true;
    VEC_EACH_PTR (const char, output, &b->written) {
        if (strcmp(output, "-") == 0) return tool_usage(b->tool, "-MD and --depfile need an output with a name");
        if (!write_rule(b, given ? given : arena_printf(b->tool->arena, "%s.d", output), output)) return false;
        if (given) return true;
    }
    return true;
}

static void talk(Build *b, const Compiled *compiled) {
    StrBuf text;
    sb_init(&text, b->tool->arena);
    if (compiled->plan) report_resources(compiled->plan, &text);
    if (compiled->cubin.assembler) sb_printf(&text, "assembled by %s\n", compiled->cubin.assembler);
    int kernels = 0;
    for (int i = 0; i < compiled->module->funcs.count; i++)
        kernels += compiled->module->funcs.items[i]->kind == FUNC_KERNEL;
    report_times(&compiled->times, kernels, &text);
    fputs(sb_text(&text), stderr);
}

// As a launch reads it, where a kind needs it.
static const Plan *read_plan(Build *b, Arena *arena, const char *manifest) {
    Tool *tool = b->tool;
    bool needed = manifest && b->emit & (1u << HEADER | 1u << LAUNCHER);
    return needed ? plan_read(arena, tool->failure, tool->sink, manifest, strlen(manifest)) : NULL;
}

// Builds all outputs for the target in b->options.
static bool build_target(void *user, Arena *arena) {
    Build *b = user;
    Compiled compiled = {0};
    bool only_layouts = b->emit == 1u << LAYOUTS;
    if (!only_layouts && !compile(&b->loader, arena, &b->options, &compiled)) return false;
    if (!only_layouts && option_given(&b->tool->options, OPTION_VERBOSE)) talk(b, &compiled);
    const Products products = {.module = compiled.module,
                               .plan = read_plan(b, arena, compiled.manifest),
                               .ptx = compiled.ptx,
                               .llvm = compiled.llvm,
                               .manifest = compiled.manifest,
                               .cubin = compiled.packed,
                               .cubin_size = compiled.packed_size};
    return write_products(b, arena, &products);
}

static bool build_inside(Build *b, const Target **targets) {
    Tool *tool = b->tool;
    if (!pass_flags(tool, &b->options.passes) || !tool_max_steps(tool, &b->options.max_steps)) return false;
    b->options.repro = repro_base(tool, b->path);
    b->options.llvm = b->emit >> LLVM & 1;
    b->loader = tool_loader(tool, targets[0]);
    if (!loader_open(&b->loader, b->path) || !tool_record(tool, b->path, &b->loader)) return false;
    b->loader.launch = b->launch, b->loader.problem = launch_problem;
    b->loader.variants = b->variants;
    b->loader.shape = b->launch ? b->launch->values : NULL;
    for (int i = 0; targets[i]; i++) {
        b->options.target = b->loader.target = targets[i];
        if (!arena_scope(tool->failure, build_target, b)) return false;
    }
    for (int i = 0; i < b->loader.imports.count; i++) vec_push(tool->arena, &b->read, b->loader.imports.items[i].path);
    return true;
}

// The products alone are wanted, not how they come about: then the compile cache may have them.
static bool wants_products(const Build *b) {
    const unsigned kept = 1u << PTX | 1u << CUBIN | 1u << SASS | 1u << MANIFEST | 1u << HEADER | 1u << LAUNCHER;
    return !(b->emit & ~kept) && !options_look_inside(&b->tool->options);
}

static bool write_reply(Build *b, Arena *arena, const CompileReply *reply) {
    Products products = {.ptx = reply->ptx, .manifest = reply->manifest};
    products.cubin = reply->cubin;
    products.cubin_size = reply->cubin_size;
    products.plan = read_plan(b, arena, reply->manifest);
    return write_products(b, arena, &products);
}

static bool build_products(Build *b, const Target **targets) {
    Tool *tool = b->tool;
    Ask asked;
    if (!ask_open(tool, b->path, targets[0], &asked) || !ask_record(tool, b->path, &asked)) return false;
    asked.request.assemble = b->options.upto == UPTO_CUBIN;
    asked.request.repro_dir = repro_folder(tool);
    asked.request.variants = b->variants;
    if (b->launch) {
        asked.request.for_launch = asked.request.for_shape = true;
        asked.request.kernel = b->launch->kernel;
        asked.request.shape_count = b->launch->values->count;
        asked.request.shape = b->launch->values->items;
    }
    for (int i = 0; targets[i]; i++) {
        b->options.target = targets[i];
        asked.request.target = targets[i]->name;
        bool ok = ask(tool, &asked);
        if (!ok) *b->code = (int)asked.reply.status;
        ok = ok && write_reply(b, tool->arena, &asked.reply);
        for (int64_t k = 0; ok && i == 0 && k < asked.reply.import_count; k++)
            vec_push(tool->arena, &b->read, arena_strdup(tool->arena, asked.reply.imports[k].path));
        ask_end(&asked);
        if (!ok) return false;
    }
    return true;
}

static bool build_file(Build *b, const char *path, const Target **targets) {
    bool named;
    const char *record = tool_record_path(b->tool, path, &named);
    b->path = path;
    b->stem = path_stem(b->tool->arena, path);
    b->read = b->written = (FileNames){0};
    vec_push(b->tool->arena, &b->read, path);
    if (record && access(record, R_OK) == 0) vec_push(b->tool->arena, &b->read, record);
    return (wants_products(b) ? build_products(b, targets) : build_inside(b, targets)) && write_depfiles(b);
}

// Each file has outputs of its own.
static bool check_files(Build *b) {
    const Options *o = &b->tool->options;
    StrMap *stems = strmap_new(b->tool->arena);
    if (o->operands.count == 0) return tool_usage(b->tool, "no input file was given");
    if (o->operands.count == 1) return true;
    if (b->output && !b->in_folder) return tool_usage(b->tool, "with several files -o is a folder: `-o FOLDER/`");
    if (option_given(o, OPTION_DEPFILE)) return tool_usage(b->tool, "--depfile is for one file, -MD for several");
    VEC_EACH_PTR (const char, file, &o->operands) {
        const char *stem = path_stem(b->tool->arena, file), *other = strmap_get(stems, stem);
        if (other) return tool_usage(b->tool, "%s and %s would have the same outputs", other, file);
        strmap_put(stems, stem, (void *)file);
    }
    return true;
}

static bool choose_output(Build *b) {
    struct stat info;
    b->output = option_text(&b->tool->options, OPTION_OUTPUT, NULL);
    size_t length = b->output ? strlen(b->output) : 0;
    bool slash = length > 1 && b->output[length - 1] == '/';
    b->in_folder = slash || (b->output && stat(b->output, &info) == 0 && S_ISDIR(info.st_mode));
    if (slash) b->output = arena_strndup(b->tool->arena, b->output, length - 1);
    b->many_files = b->tool->options.operands.count > 1;
    return !b->in_folder || folder_make(b->tool->sink, b->output);
}

bool command_build(Tool *tool, int *code) {
    Build b = {.tool = tool, .code = code};
    const Target **targets = tool_targets(tool, "sm_90a");
    int64_t optimize = 1;
    bool launch_good;
    if (!targets || option_choice(&tool->options, tool->sink, OPTION_DEPENDENCIES, 0) < 0 || !choose_output(&b) ||
        !check_files(&b) || !choose_kinds(&b))
        return false;
    b.many_targets = targets[1] != NULL;
    b.options = compile_options(NULL);
    if (!option_number(&tool->options, tool->sink, OPTION_OPTIMIZE, 0, 2, &optimize)) return false;
    if (!tool_defines(tool, &b.options.define_count, &b.options.defines)) return false;
    b.launch = tool_launch(tool, &launch_good);
    if (!launch_good || !tool_variants(tool, &b.variants)) return false;
    b.options.optimize = (int)optimize;
    b.options.only = option_text(&tool->options, OPTION_ONLY, NULL);
    b.options.lines = !option_given(&tool->options, OPTION_NO_LINES);
    b.options.pdl = option_given(&tool->options, OPTION_PDL);
    b.options.independent = option_text(&tool->options, OPTION_INDEPENDENT, NULL);
    b.options.ptxas = option_text(&tool->options, OPTION_PTXAS, NULL);
    b.options.upto = UPTO_PASSES;
    for (int i = 0; i < KINDS; i++)
        if ((b.emit >> i & 1) && kinds[i].upto > b.options.upto) b.options.upto = kinds[i].upto;
    VEC_EACH_PTR (const char, file, &tool->options.operands)
        if (!build_file(&b, file, targets)) return false;
    return true;
}
