#include "runtime/compile/compile.h"
#include "ir/print.h"
#include "ir/rewrite.h"
#include "ir/verify.h"
#include "runtime/compile/repro.h"
#include "runtime/plan/build.h"
#include "runtime/plan/container.h"
#include "support/json.h"
#include <string.h>

#ifdef NDEBUG
enum { VERIFY_EACH = 0 };
#else
enum { VERIFY_EACH = 1 };
#endif

CompileOptions compile_options(const Target *target) {
    return (CompileOptions){.target = target,
                            .optimize = 1,
                            .lines = true,
                            .upto = UPTO_CUBIN,
                            .passes = {.verify_each = VERIFY_EACH, .bisect_limit = -1, .talk = stderr}};
}

static Module *hook_parse(void *user, Arena *arena, Failure *failure, DiagSink *sink, const char *name,
                          const char *text) {
    (void)user;
    return parse_module(arena, failure, sink, name, text);
}

// "gemm (M = 256, N = 512): it differs by 0.3"
static const char *test_failure(Arena *arena, const Test *test, const EmuTestResult *result) {
    StrBuf text;
    sb_init(&text, arena);
    test_print_label(test, &text);
    sb_printf(&text, "): %s", result->why ? result->why : "it fails");
    return sb_text(&text);
}

typedef struct Pipeline {
    Module *module;
    const CompileOptions *options;
    PassOptions passes;
    EmuOptions emulation;
    Repro repro;
    bool ok;
} Pipeline;

static bool hook_emulate(void *user, Module *module, const char *after_pass, const char **why) {
    const Pipeline *pipeline = user;
    (void)after_pass;
    emu_reference_cache_stage(pipeline->emulation.reference_cache, module);
    for (int i = 0; i < module->tests.count; i++) {
        EmuTestResult result = {0};
        if (emulate_test(module, module->tests.items[i], &pipeline->emulation, &result) && result.passed) continue;
        *why = test_failure(module->arena, module->tests.items[i], &result);
        return false;
    }
    return true;
}

static void hook_begin(void *user, const char *pass) {
    Pipeline *pipeline = user;
    repro_begin(&pipeline->repro, pass);
}

static bool run_hooked(void *user) {
    Pipeline *p = user;
    PassHooks hooks = {.parse = hook_parse, .emulate = hook_emulate, .begin = hook_begin, .user = p};
    return p->ok = run_passes(p->module, p->options->target, &p->passes, &hooks);
}

static void after_passes(void *user) {
    Pipeline *p = user;
    repro_end(&p->repro, p->ok);
}

// The kernels that no test may launch; none where a test cannot run.
static void leave_out_untested(Pipeline *p) {
    Module *module = p->module;
    EmuLaunches launches = {.arena = module->arena};
    VEC_EACH_PTR (Test, test, &module->tests)
        if (!emulate_launches(module, test, &p->emulation, &launches)) return;
    const Func **left_out = NEW_ARRAY(module->arena, const Func *, module->funcs.count + 1);
    VEC_EACH_PTR (Func, func, &module->funcs) {
        bool launched = func->kind != FUNC_KERNEL;
        VEC_EACH_PTR (const Func, kernel, &launches.kernels) launched |= kernel == func;
        if (!launched) left_out[p->passes.left_out_count++] = func;
    }
    p->passes.left_out = left_out;
}

bool run_pipeline(Module *module, const CompileOptions *options) {
    Pipeline p = {.module = module, .options = options, .passes = options->passes};
    p.emulation = (EmuOptions){.seed = options->seed,
                               .max_steps = options->max_steps,
                               .races = true,
                               .target = options->target,
                               .reference_cache = options->reference_cache ? options->reference_cache
                                                                           : emu_reference_cache_new(module->arena)};
    if (options->tested_only) leave_out_untested(&p);
    repro_start(&p.repro, module, options);
    return fail_scope(module->failure, run_hooked, after_passes, &p);
}

static void begin(const CompileOptions *options, const char *phase) {
    if (options->phases.begin) options->phases.begin(options->phases.user, phase);
}

// `print` passes its arguments on the stack, so the stack frame of such a kernel is no sign of spills.
static bool prints(const Compiled *out, const char *symbol) {
    const Func *kernel = kernel_with_symbol(out->module, symbol);
    return kernel && func_calls(kernel, OP_PRINT);
}

// Warns of each kernel whose registers ptxas spilled to local memory.
static void warn_spills(const Compiled *out) {
    for (int i = 0; i < out->cubin.kernel_count; i++) {
        const KernelResources *k = &out->cubin.kernels[i];
        if (k->spill_stores || k->spill_loads || (k->stack && !prints(out, k->symbol)))
            diag(out->module->sink, (Span){0}, T_SPILLS, k->symbol, k->spill_stores, k->spill_loads, k->stack);
    }
}

// Codegen takes only kernels of the thread stage (--stop-after may leave others), and a file of functions has none.
static bool all_lowered(const Module *module) {
    int kernels = 0;
    for (int i = 0; i < module->funcs.count; i++) {
        const Func *func = module->funcs.items[i];
        kernels += func->kind == FUNC_KERNEL;
        if (func->kind != FUNC_KERNEL || func->stage == STAGE_THREAD) continue;
        diag(module->sink, func->loc, T_CUT_SHORT, func->name);
        return false;
    }
    if (kernels == 0) diag(module->sink, (Span){0}, T_NO_KERNEL);
    return kernels > 0;
}

// The facts that codegen goes by: the pipeline's last pass, which a list of passes or a bisection may have left out.
static bool annotate(const CompileOptions *options, Module *module) {
    PassOptions annotation = {.passes = "annotate-kernel", .bisect_limit = -1};
    return run_passes(module, options->target, &annotation, NULL);
}

static bool generate(const CompileOptions *options, Compiled *out) {
    CodegenOptions codegen = {.target = options->target, .optimize = options->optimize, .lines = options->lines};
    CodegenResult result = {0};
    if (!codegen_module(out->module, &codegen, options->llvm, &result)) return false;
    out->ptx = result.ptx;
    out->llvm = result.llvm;
    out->times.llvm = result.seconds;
    out->times.build = result.build_seconds;
    out->times.optimize = result.optimize_seconds;
    out->times.emit = result.emit_seconds;
    return true;
}

static bool assemble_and_pack(const CompileOptions *options, const AssembleOptions *assembling, Compiled *out) {
    Module *module = out->module;
    bool with_cubin = options->upto == UPTO_CUBIN;
    if (with_cubin) {
        begin(options, "ptxas");
        if (!assemble(module->arena, module->failure, module->sink, out->ptx, assembling, &out->cubin)) return false;
        out->times.assemble = out->cubin.seconds;
        warn_spills(out);
    }
    StrBuf manifest;
    sb_init(&manifest, module->arena);
    out->plan = plan_build(module, options->target, with_cubin ? &out->cubin : NULL);
    plan_write(out->plan, &manifest);
    out->manifest = sb_text(&manifest);
    if (!with_cubin) return true;
    const char *why = NULL;
    out->packed = container_pack(module->arena, out->cubin.data, out->cubin.size, out->manifest, manifest.length,
                                 &out->packed_size, &why);
    if (!out->packed) diag(module->sink, (Span){0}, T_CUBIN_BROKEN, out->cubin.assembler, why);
    return out->packed != NULL;
}

typedef struct Job {
    Loader *loader;
    const CompileOptions *options;
    Compiled *out;
    AssembleOptions assembling;
    Repro repro;
    bool ok;
} Job;

static bool passes_to_plan(void *user) {
    Job *job = user;
    const CompileOptions *options = job->options;
    Compiled *out = job->out;
    double start = seconds_now();
    begin(options, "passes");
    if (!run_pipeline(out->module, options)) return false;
    limit_recorded_tiles(job->loader, out->module);
    if (job->loader->launch && !keep_chosen(out->module, options->target, job->loader->launch, true)) return false;
    out->times.passes = seconds_now() - start;
    if (options->upto == UPTO_PASSES) return true;
    if (!all_lowered(out->module) || !annotate(options, out->module)) return false;
    repro_codegen(&job->repro, out->module, options);
    begin(options, "codegen");
    return job->ok = generate(options, out) && assemble_and_pack(options, &job->assembling, out);
}

static void after_compile(void *user) {
    Job *job = user;
    stop_assembler(job->assembling.started);
    repro_end(&job->repro, job->ok);
}

static void overlap_launches(Module *module) {
    VEC_EACH_PTR (Func, func, &module->funcs) {
        Stmt *grid = (Stmt *)func_grid(func);
        if (grid) attr_set_ints(module->arena, &grid->attrs, ATTR_PDL, 0, NULL);
    }
}

static bool mark_independent(Module *module, const char *name) {
    bool found = false;
    VEC_EACH_PTR (Func, func, &module->funcs) {
        for (int i = 0; func->kind == FUNC_KERNEL && i < func->params.count; i++) {
            Param *param = &func->params.items[i];
            const Buf *buf = param->buf;
            if (!buf || buf->mode != MODE_IN || strcmp(buf->name, name) != 0) continue;
            attr_set_ints(module->arena, &param->attrs, ATTR_INDEPENDENT, 0, NULL);
            found = true;
        }
    }
    return found;
}

// The programs of the module are asked again whether they write one of them.
static bool mark_all_independent(Module *module, const char *names) {
    for (const char *at = names; at && *at;) {
        size_t length = strcspn(at, ",");
        const char *name = arena_printf(module->arena, "%.*s", (int)length, at);
        if (!mark_independent(module, name)) {
            diag(module->sink, (Span){0}, T_INDEPENDENT, name, "no kernel reads a tensor of that name");
            return false;
        }
        at += length + (at[length] == ',');
    }
    return !names || verify_module(module, true);
}

bool compile(Loader *loader, Arena *arena, const CompileOptions *options, Compiled *out) {
    double start = seconds_now();
    *out = (Compiled){.times.parse = loader->parse_seconds};
    begin(options, "elaborate");
    out->module = load_module(loader, arena, options->define_count, options->defines, options->only);
    out->times.elaborate = seconds_now() - start;
    if (!out->module || options->upto == UPTO_MODULE) return out->module != NULL;
    if (loader->launch && !keep_chosen(out->module, options->target, loader->launch, false)) return false;
    if (options->pdl) overlap_launches(out->module);
    if (!mark_all_independent(out->module, options->independent)) return false;
    Job job = {.loader = loader, .options = options, .out = out};
    job.assembling = (AssembleOptions){options->target, out->module, options->ptxas, options->lines, NULL};
    if (options->upto == UPTO_CUBIN)
        job.assembling.started = start_assembler(arena, out->module->failure, &job.assembling);
    return fail_scope(out->module->failure, passes_to_plan, after_compile, &job);
}

static void report_kernel(const PlanVariant *v, StrBuf *out) {
    sb_printf(out, "\n    %d threads, %lld bytes of shared memory", v->threads, (long long)v->shared_bytes);
    if (v->registers >= 0)
        sb_printf(out, ", %d registers, %d barrier%s, spills %d + %d bytes, stack %d bytes", v->registers, v->barriers,
                  v->barriers == 1 ? "" : "s", v->spill_stores, v->spill_loads, v->stack);
    if (v->how) sb_printf(out, "\n    %s", v->how);
    sb_printf(out, "\n    grid %s", v->grid.text);
}

static void report_launches(const PlanSteps *steps, StrBuf *out) {
    for (int i = 0; i < steps->count; i++)
        if (steps->items[i]->kind == DO_LAUNCH) sb_printf(out, " %s", steps->items[i]->name);
}

// A variant of a kernel that is a program has no symbol; one in another cluster is the kernel before, which names its clusters.
static void report_variant(const PlanVariant *v, StrBuf *out) {
    if (v->same_kernel) return;
    sb_printf(out, "  %s", v->symbol ? v->symbol : "program:");
    if (!v->symbol) report_launches(&v->steps, out);
    for (int i = 0; i < v->tuned.count; i++)
        sb_printf(out, "%s%s = %lld", i ? ", " : "  ", v->tuned.items[i].name, (long long)v->tuned.items[i].value);
    if (v->recorded) sb_str(out, " (measured)");
    if (v->symbol) report_kernel(v, out);
    sb_char(out, '\n');
    if (v->when.text) sb_printf(out, "    when %s\n", v->when.text);
}

void report_resources(const Plan *plan, StrBuf *out) {
    for (int i = 0; i < plan->entries.count; i++) {
        const PlanEntry *entry = &plan->entries.items[i];
        sb_printf(out, "%s %s for %s\n", entry->is_program ? "program" : "kernel", entry->name, plan->target);
        for (int v = 0; !entry->is_program && v < entry->variants.count; v++)
            report_variant(&entry->variants.items[v], out);
    }
}

void report_times(const CompileTimes *t, int kernels, StrBuf *out) {
    double own = t->parse + t->elaborate + t->passes + t->llvm;
    sb_printf(out,
              "%.1f ms from source to PTX for %d kernel%s: parse %.1f, elaborate %.1f, passes %.1f, "
              "LLVM %.1f (of all threads: build %.1f, optimize %.1f, emit %.1f); ptxas %.1f ms\n",
              own * 1e3, kernels, kernels == 1 ? "" : "s", t->parse * 1e3, t->elaborate * 1e3, t->passes * 1e3,
              t->llvm * 1e3, t->build * 1e3, t->optimize * 1e3, t->emit * 1e3, t->assemble * 1e3);
}

// ---- for `tilec passes` and `tilec doctor` ----

static void pass_json(const Pass *pass, StrBuf *out) {
    sb_str(out, "{\"name\": ");
    json_quote(out, pass->name);
    sb_str(out, ", \"summary\": ");
    json_quote(out, pass->summary);
    sb_str(out, "}\n");
}

void report_passes(bool json, StrBuf *out) {
    const Pass *pass;
    for (int i = 0; (pass = pass_at(i)); i++)
        if (json) pass_json(pass, out);
        else sb_printf(out, "%-20s %s\n", pass->name, pass->summary);
}

void report_llvm(Arena *arena, StrBuf *out) {
    sb_printf(out, "LLVM       %s\n", llvm_version(arena));
}

void report_assembler(Arena *arena, Failure *failure, const char *ptxas, StrBuf *out) {
    static const char ptx[] = ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry empty() { ret; }\n";
    DiagSink *sink = diag_sink_new(arena);
    AssembleOptions options = {.target = target_named("sm_80"), .ptxas = ptxas};
    Cubin cubin = {0};
    if (assemble(arena, failure, sink, ptx, &options, &cubin)) sb_printf(out, "assembler  %s\n", cubin.assembler);
    else sb_printf(out, "assembler  none: %s\n", diag_count(sink) ? diag_view(sink, 0).message : "?");
}
