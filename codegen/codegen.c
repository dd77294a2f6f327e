// A module: its kernels, their parameters and attributes.
//
//     kernel k(A: bf16[M, K], x: f32)   ->   .entry k(.u64 .ptr .global A, .f32 x, .u64 M, .u64 K)
//     A_map: tensormap @tma(A, ...)     ->   .param .align 64 .b8 A_map[128], read where it is
#include "codegen/gen.h"
#include "ir/rewrite.h"
#include "ir/schedule.h"
#include <llvm-c/Analysis.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

// ---- names and sizes ----

// Not an identifier of PTX (PTX ISA, "Identifiers", "Constants"), or a function that kernels call or that LLVM removes
// (NVVMReflect).
static bool is_reserved(const char *name) {
    static const char *const names[] = {
        "_", "WARP_SZ", "vprintf", "__assertfail", "__nvvm_reflect", "__nvvm_reflect_ocl"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i], name) == 0) return true;
    return false;
}

static bool is_taken(const Module *module, const char *name, const Func *besides) {
    for (int i = 0; i < module->funcs.count; i++) {
        const Func *func = module->funcs.items[i];
        if (strcmp(func->name, name) == 0 && strcmp(func->name, besides->name) != 0) return true;
    }
    return false;
}

const char *kernel_symbol(const Module *module, const Func *kernel, Arena *arena) {
    int earlier = 0;
    for (int i = 0; i < module->funcs.count && module->funcs.items[i] != kernel; i++) {
        const Func *func = module->funcs.items[i];
        earlier += func->kind == FUNC_KERNEL && strcmp(func->name, kernel->name) == 0;
    }
    if (!earlier && !is_reserved(kernel->name)) return arena_strdup(arena, kernel->name);
    const char *bars = "__";
    char *symbol = arena_printf(arena, "%s%s%d", kernel->name, bars, earlier);
    while (is_taken(module, symbol, kernel)) symbol = arena_printf(arena, "%s_", symbol);
    return symbol;
}

Func *kernel_with_symbol(const Module *module, const char *symbol) {
    for (int i = 0; i < module->funcs.count; i++) {
        Func *func = module->funcs.items[i];
        if (func->kind == FUNC_KERNEL && strcmp(kernel_symbol(module, func, module->arena), symbol) == 0) return func;
    }
    return NULL;
}

int64_t kernel_shared_bytes(const Func *kernel) {
    int64_t bytes;
    lay_out_shared(NULL, kernel, NULL, &bytes);
    return bytes;
}

// ---- parameters ----

// The alignment that the variant's condition promises, in bytes.
static int64_t promised_alignment(Gen *gen, const Buf *buf) {
    int64_t align = 256;
    while (align > 1 && !prove_aligned(gen->kernel.facts, buf, align)) align /= 2;
    return align > type_bytes(buf->type) ? align : type_bytes(buf->type);
}

static void set_param_attribute(Gen *gen, int index, const char *name, uint64_t value) {
    unsigned kind = LLVMGetEnumAttributeKindForName(name, strlen(name));
    LLVMAddAttributeAtIndex(gen->kernel.function, (LLVMAttributeIndex)index + 1,
                            LLVMCreateEnumAttribute(gen->llvm.context, kind, value));
}

// Where kernels launched before may still run, an address counts from the wait on (emit_dependency_wait).
static Value wait_slot(Gen *gen, Value pointer) {
    Value slot = stack_slot(gen, LLVMTypeOf(pointer), "");
    LLVMBuildStore(gen->llvm.entry, pointer, slot);
    return slot;
}

static void bind_tensor(Gen *gen, Buf *buf, int index) {
    Value pointer = LLVMGetParam(gen->kernel.function, (unsigned)index);
    LLVMSetValueName2(pointer, buf->name, strlen(buf->name));
    set_param_attribute(gen, index, "align", (uint64_t)promised_alignment(gen, buf));
    // Loads say for themselves that they are read-only: of a `readonly` parameter LLVM would select an ordered load as
    // one.
    if (buf_is_constant(buf)) set_param_attribute(gen, index, "noalias", 0);
    map_put(gen->kernel.tensors, buf, gen->kernel.waits_for_launch ? wait_slot(gen, pointer) : pointer);
}

// An i64 that fits 32 bits arrives as two halves. Were it one i64 that is cut and extended again, LLVM would make a
// mask of that, and no longer see that a product with it is 32 x 32 -> 64 bits.
static bool is_narrow_param(Gen *gen, Var *var) {
    return var->type == TYPE_I64 && known_of(gen, e_var(gen->arena, var)).narrow;
}

static LLVMTypeRef scalar_param_type(Gen *gen, Var *var) {
    if (var->type == TYPE_TENSORMAP) return gen->types.pointer;
    return is_narrow_param(gen, var) ? LLVMVectorType(gen->types.i32, 2) : memory_type(gen, var->type);
}

// A tensor map is passed by value, and instructions take its address in the parameter space: without grid_constant LLVM
// would make a copy in local memory, which they do not accept.
static void bind_tensor_map(Gen *gen, Var *var, int index) {
    VarPlace *place = NEW(gen->arena, VarPlace);
    LLVMAttributeIndex param = (LLVMAttributeIndex)index + 1;
    place->value = LLVMGetParam(gen->kernel.function, (unsigned)index);
    LLVMSetValueName2(place->value, var->name, strlen(var->name));
    const char *constant = "nvvm.grid_constant";
    unsigned byval = LLVMGetEnumAttributeKindForName("byval", strlen("byval"));
    LLVMTypeRef type = LLVMArrayType2(gen->types.i64, (uint64_t)type_bytes(TYPE_TENSORMAP) / 8);
    LLVMAddAttributeAtIndex(gen->kernel.function, param, LLVMCreateTypeAttribute(gen->llvm.context, byval, type));
    LLVMAddAttributeAtIndex(gen->kernel.function, param,
                            LLVMCreateStringAttribute(gen->llvm.context, constant, (unsigned)strlen(constant), "", 0));
    set_param_attribute(gen, index, "align", (uint64_t)tma_facts.map_align);
    map_put(gen->kernel.vars, var, place);
}

static void bind_scalar(Gen *gen, Var *var, int index) {
    VarPlace *place = NEW(gen->arena, VarPlace);
    Value value = LLVMGetParam(gen->kernel.function, (unsigned)index);
    LLVMSetValueName2(value, var->name, strlen(var->name));
    place->value = is_narrow_param(gen, var) ? LLVMBuildExtractElement(gen->builder, value, const_i32(gen, 0), "")
                                             : from_memory(gen, var->type, value);
    map_put(gen->kernel.vars, var, place);
}

static void bind_params(Gen *gen, const Func *kernel) {
    int index = 0;
    for (int i = 0; i < kernel->params.count; i++, index++) {
        Param *param = &kernel->params.items[i];
        if (param->buf) bind_tensor(gen, param->buf, index);
        else if (param->var->type == TYPE_TENSORMAP) bind_tensor_map(gen, param->var, index);
        else bind_scalar(gen, param->var, index);
    }
    for (int i = 0; i < kernel->dims.count; i++, index++) bind_scalar(gen, kernel->dims.items[i], index);
    if (gen->cluster.chosen) gen->cluster.logs = LLVMGetParam(gen->kernel.function, (unsigned)index);
}

static LLVMTypeRef kernel_type(Gen *gen, const Func *kernel) {
    int count = kernel->params.count + kernel->dims.count;
    LLVMTypeRef *types = NEW_ARRAY(gen->arena, LLVMTypeRef, count + 2);
    for (int i = 0; i < kernel->params.count; i++) {
        Param *param = &kernel->params.items[i];
        types[i] = param->buf ? gen->types.global_pointer : scalar_param_type(gen, param->var);
    }
    for (int i = 0; i < kernel->dims.count; i++) {
        types[kernel->params.count + i] = scalar_param_type(gen, kernel->dims.items[i]);
    }
    if (gen->cluster.chosen) types[count++] = gen->types.i32;
    return LLVMFunctionType(gen->types.none, types, (unsigned)count, 0);
}

// In the order of kernel_type; each begins at a multiple of its alignment.
static int64_t param_bytes(const Func *kernel) {
    int64_t bytes = chooses_cluster(func_grid(kernel)) ? type_bytes(TYPE_I64) : 0;
    for (int i = 0; i < kernel->params.count + kernel->dims.count; i++) {
        const Param *param = i < kernel->params.count ? &kernel->params.items[i] : NULL;
        Type type = !param       ? kernel->dims.items[i - kernel->params.count]->type
                    : param->buf ? TYPE_I64
                                 : param->var->type;
        int64_t align = type == TYPE_TENSORMAP ? tma_facts.map_align : type_bytes(type);
        bytes = (bytes + align - 1) / align * align + type_bytes(type);
    }
    return bytes;
}

// ---- kernels ----

static void set_attribute(Gen *gen, const char *key, const char *value) {
    LLVMAttributeRef attribute =
        LLVMCreateStringAttribute(gen->llvm.context, key, (unsigned)strlen(key), value, (unsigned)strlen(value));
    LLVMAddAttributeAtIndex(gen->kernel.function, (LLVMAttributeIndex)LLVMAttributeFunctionIndex, attribute);
}

// One of the shapes that a launch chooses among is a CTA alone.
static bool runs_alone(Gen *gen, const Stmt *grid) {
    ClusterShapes shapes = grid_cluster_shapes(gen->arena, grid);
    VEC_EACH (const ClusterShape, shape, &shapes)
        if (shape->extents[0] * shape->extents[1] == 1) return true;
    return false;
}

static void set_launch_attributes(Gen *gen, const Stmt *grid) {
    set_attribute(gen, "nvvm.reqntid",
                  arena_printf(gen->arena, "%lld,1,1", (long long)(gen->kernel.threads / gen->cluster.ctas)));
    int64_t min_blocks = attr_int(grid->attrs, ATTR_MIN_BLOCKS, 0);
    if (min_blocks > 0) set_attribute(gen, "nvvm.minctasm", arena_printf(gen->arena, "%lld", (long long)min_blocks));
    if (trades_registers(gen, grid)) {   // ptxas must know what there is to trade
        set_attribute(
            gen, "nvvm.maxnreg",
            arena_printf(gen->arena, "%lld", (long long)registers_at_launch(gen->target, gen->kernel.threads)));
    }
    const int *cluster = grid->grid.cluster;
    EXPECT(gen->failure, cluster[1] <= 1 && cluster[2] <= 1, "a cluster of %d x %d x %d", cluster[0], cluster[1],
           cluster[2]);   // cluster-grid made it one dim
    int64_t ctas = gen->cluster.ctas > 1 ? gen->cluster.ctas : cluster[0];
    // 0: the launch says it, but there is one. (Else barriers ask whether there is.)
    if (gen->cluster.chosen && runs_alone(gen, grid)) return;
    if (gen->cluster.chosen) set_attribute(gen, "nvvm.cluster_dim", "0,0,0");
    else if (ctas > 1) set_attribute(gen, "nvvm.cluster_dim", arena_printf(gen->arena, "%lld,1,1", (long long)ctas));
}

static const Stmt *grid_of(Gen *gen, const Func *kernel) {
    const Stmt *grid = func_grid(kernel);
    EXPECT(gen->failure, grid, "kernel '%s' has no grid", kernel->name);
    return grid;
}

static void start_kernel(Gen *gen, const Func *kernel, const Stmt *grid) {
    Arena *arena = gen->arena;
    int64_t threads = grid_threads(grid), bytes;
    gen->kernel = (KernelState){.func = kernel,
                                .facts = facts_new(arena, kernel),
                                .vars = map_new(arena),
                                .tensors = map_new(arena),
                                .threads = threads,
                                .grid_extent = grid->grid.iters[0].end,
                                .role = {0, threads, 0, NULL},
                                .waits_for_launch = attr_get(kernel->attrs, ATTR_WAITS_FOR_LAUNCH),
                                .has_mma = attr_get(kernel->attrs, ATTR_HAS_MMA)};
    gen->address = (AddressState){.shared_symbol = gen->address.shared_symbol,
                                  .shared_offsets = map_new(arena),
                                  .scopes = map_new(arena),
                                  .known = map_new(arena),
                                  .offsets = map_new(arena),
                                  .ready = map_new(arena),
                                  .lets = map_new(arena)};
    facts_carried(gen->kernel.facts, kernel);
    gen->registers = (RegisterState){.arrays = map_new(arena)};
    gen->cluster = (ClusterState){.ctas = grid_blocks(grid),
                                  .started = grid_blocks(grid) == 1,
                                  .chosen = chooses_cluster(grid),
                                  .scope = attr_get(kernel->attrs, ATTR_CLUSTER_SCOPE)};
    lay_out_shared(arena, kernel, gen->address.shared_offsets, &bytes);
    if (gen->cluster.ctas > gen->target->cluster_most) {
        diag(gen->sink, grid->loc, T_CLUSTER_TOO_LARGE, kernel->name, (int)gen->cluster.ctas, gen->target->name,
             gen->target->cluster_most);
        gen->kernel.abandoned = true;
    }
}

static void check_threads(Gen *gen, const Stmt *grid) {
    if (gen->kernel.threads <= (int64_t)gen->cluster.ctas * gen->target->max_threads) return;
    diag(gen->sink, grid->loc, T_TILE_THREADS, (long long)gen->kernel.threads, gen->target->name);
    gen->kernel.abandoned = true;
}

static void check_params(Gen *gen, const Func *kernel) {
    int64_t bytes = param_bytes(kernel);
    if (bytes <= gen->target->param_bytes) return;
    diag(gen->sink, kernel->loc, T_PARAM_BYTES, kernel->name, (long long)bytes, gen->target->name,
         (long long)gen->target->param_bytes);
    gen->kernel.abandoned = true;
}

static void open_body(Gen *gen) {
    Label entry = new_label(gen, "entry"), start = new_label(gen, "start");
    LLVMPositionBuilderAtEnd(gen->builder, entry);
    Value jump = LLVMBuildBr(gen->builder, start);
    LLVMPositionBuilderBefore(gen->llvm.entry, jump);
    LLVMPositionBuilderAtEnd(gen->builder, start);
}

// The warp's index from its first lane: so ptxas knows that branches by it do not part the lanes of a warp, and that
// what is computed from it fits uniform registers.
static Value uniform_warp(Gen *gen) {
    int lanes = gen->target->warp_lanes;
    Value warp = LLVMBuildUDiv(gen->builder, gen->kernel.thread, const_i32(gen, lanes), "");
    return CALL(gen, "llvm.nvvm.shfl.sync.idx.i32", gen->types.i32, const_i32(gen, -1), warp, const_i32(gen, 0),
                const_i32(gen, lanes - 1));
}

// Where shared memory begins, in a register that LLVM cannot trace: else it names the symbol anew in every block, and
// for TMA and wgmma ptxas makes the CTA's place in its cluster part of each such address, in the innermost loop too.
static Value shared_base(Gen *gen) {
    Value base = LLVMBuildPtrToInt(gen->builder, gen->address.shared_symbol, gen->types.i64, "");
    Value opaque = build_asm(gen, "mov.b64 $0, $1;", "=l,l", gen->types.i64, 1, &base);
    return LLVMBuildIntToPtr(gen->builder, opaque, gen->types.shared_pointer, "");
}

// The thread's index among those of all CTAs of the tile. A CTA may write to another's shared memory only while that
// one runs: each arrives at the start, and waits for the others before the statement with @await_cluster.
static void start_cluster(Gen *gen) {
    Value rank = call_named(gen, "llvm.nvvm.read.ptx.sreg.cluster.ctarank", gen->types.i32, 0, NULL);
    Value first = LLVMBuildMul(gen->builder, rank, const_i32(gen, gen->kernel.threads / gen->cluster.ctas), "");
    gen->kernel.thread = LLVMBuildAdd(gen->builder, first, gen->kernel.thread, "");
    call_named(gen, "llvm.nvvm.barrier.cluster.arrive.relaxed.aligned", gen->types.none, 0, NULL);
}

static void emit_kernel(Gen *gen, const Func *kernel) {
    const Stmt *grid = grid_of(gen, kernel);
    start_kernel(gen, kernel, grid);
    check_threads(gen, grid);
    check_params(gen, kernel);
    if (gen->kernel.abandoned) return;   // LLVM takes minutes to declare as many parameters
    const char *symbol = kernel_symbol(gen->module, kernel, gen->arena);
    gen->kernel.function = LLVMAddFunction(gen->llvm.module, symbol, kernel_type(gen, kernel));
    LLVMSetFunctionCallConv(gen->kernel.function, LLVMPTXKernelCallConv);
    LLVMSetCurrentDebugLocation2(gen->builder, NULL);
    LLVMSetCurrentDebugLocation2(gen->llvm.entry, NULL);
    debug_lines_kernel(gen, kernel);
    debug_lines_at(gen, kernel->loc);
    set_launch_attributes(gen, grid);
    open_body(gen);
    gen->kernel.thread = call_named(gen, "llvm.nvvm.read.ptx.sreg.tid.x", gen->types.i32, 0, NULL);
    if (gen->cluster.ctas > 1) start_cluster(gen);
    gen->kernel.warp = func_has_roles(kernel) ? uniform_warp(gen) : NULL;
    gen->address.shared = gen->common->has_wgmma ? shared_base(gen) : gen->address.shared_symbol;
    gen->address.shared_units = gen->common->has_wgmma ? shared_units(gen, gen->address.shared) : NULL;
    bind_params(gen, kernel);
    prefetch_tensor_maps(gen, kernel);
    Block body = kernel->body;
    emit_block(gen, &body);
    await_cluster(gen);
    LLVMBuildRetVoid(gen->builder);
}

// ---- the module ----

static void declare_shared(Gen *gen) {
    int64_t align = (int64_t)tma_facts.spans[0] * tma_facts.swizzle_rows;   // the period of the widest swizzle
    gen->address.shared_symbol =
        LLVMAddGlobalInAddressSpace(gen->llvm.module, LLVMArrayType2(gen->types.i8, 0), "shared$", 3);
    LLVMSetAlignment(gen->address.shared_symbol, (unsigned)align);
}

static void verify(Gen *gen) {
    char *message = NULL;
    if (!LLVMVerifyModule(gen->llvm.module, LLVMReturnStatusAction, &message)) {
        LLVMDisposeMessage(message);
        return;
    }
    fail_internal(gen->failure, __FILE__, __LINE__, "bad LLVM IR: %s", take_message(gen, message));
}

static void emit_kernels(Gen *gen) {
    const Module *module = gen->module;
    debug_lines_init(gen);
    declare_shared(gen);
    for (int i = gen->unit->first; i < gen->unit->end; i++) {
        if (module->funcs.items[i]->kind == FUNC_KERNEL) emit_kernel(gen, module->funcs.items[i]);
    }
    debug_lines_done(gen);
}

static void compile(Gen *gen, void *user) {
    Unit *unit = user;
    double start = now();
    types_init(gen);
    target_machine(gen);
    int errors = diag_errors(gen->sink);
    emit_kernels(gen);
    if (diag_errors(gen->sink) > errors) return;   // LLVM need not like what was made all the same
    verify(gen);
    double built = now();
    run_llvm_passes(gen);
    double optimized = now();
    if (unit->emit_llvm) unit->llvm = take_message(gen, LLVMPrintModuleToString(gen->llvm.module));
    unit->ptx = emit_ptx(gen);
    unit->build = built - start;
    unit->optimize = optimized - built;
    unit->emit = now() - optimized;
}

void compile_unit(const Common *common, Arena *arena, Failure *failure, DiagSink *sink, Unit *unit) {
    Gen *gen = NEW(arena, Gen);
    gen->common = common;
    gen->module = common->module;
    gen->unit = unit;
    gen->options = common->options;
    gen->target = common->options->target;
    gen->arena = arena;
    gen->failure = failure;
    gen->sink = sink;
    gen->llvm.strings = strmap_new(arena);
    with_llvm(gen, compile, unit);
}

// What the code generator's level depends on: of all kernels, so that each is compiled alike whether alone or not.
static Common common_of(const Module *module, const CodegenOptions *options) {
    Common common = {.module = module, .options = options};
    for (int i = 0; i < module->funcs.count; i++) {
        common.has_wgmma |= func_calls(module->funcs.items[i], OP_WGMMA);
        common.coalesces |= attr_get(module->funcs.items[i]->attrs, ATTR_COALESCE) != NULL;
    }
    return common;
}

bool codegen_module(const Module *module, const CodegenOptions *options, bool emit_llvm, CodegenResult *result) {
    double start = now();
    *result = (CodegenResult){0};
    Unit *units;
    int count = make_units(module, emit_llvm, &units);
    Common common = common_of(module, options);
    if (!compile_units(&common, count, units)) return false;
    for (int i = 0; i < count; i++) {
        result->build_seconds += units[i].build;
        result->optimize_seconds += units[i].optimize;
        result->emit_seconds += units[i].emit;
    }
    result->llvm = units[0].llvm;
    result->ptx = merge_ptx(module->arena, count, units);
    result->seconds = now() - start;
    return true;
}

const char *llvm_version(Arena *arena) {
    unsigned major, minor, patch;
    LLVMGetVersion(&major, &minor, &patch);
    return arena_printf(arena, "%u.%u.%u", major, minor, patch);
}
