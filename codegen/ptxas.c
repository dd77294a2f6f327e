// PTX to cubin: which assembler, and what its messages say of each kernel.
#include "codegen/assembler.h"
#include "codegen/process.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// ---- messages ----
//
//     ptxas info    : Compiling entry function 'gemm' for 'sm_80'
//     ptxas info    : Function properties for gemm
//         0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
//     ptxas info    : Used 166 registers, used 1 barriers, 1024 bytes smem, 368 bytes cmem[0]

typedef VEC(KernelResources) ResourceVec;

// The number before `word` in a line: "12 bytes spill stores"; `otherwise` when the word is not there.
static long long number_before(const char *line, const char *word, long long otherwise) {
    const char *at = strstr(line, word);
    if (!at || at == line) return otherwise;
    const char *start = at;
    while (start > line && start[-1] >= '0' && start[-1] <= '9') start--;
    return start < at ? strtoll(start, NULL, 10) : otherwise;
}

static const char *quoted_after(Arena *arena, const char *line, const char *word) {
    const char *at = strstr(line, word);
    if (!at) return NULL;
    at += strlen(word);
    if (*at == '\'') at++;
    return arena_strndup(arena, at, strcspn(at, "' \n"));
}

static KernelResources *resources_of(Arena *arena, ResourceVec *kernels, const char *symbol) {
    for (int i = 0; i < kernels->count; i++) {
        if (strcmp(kernels->items[i].symbol, symbol) == 0) return &kernels->items[i];
    }
    vec_push(arena, kernels, ((KernelResources){.symbol = symbol}));
    return &vec_last(kernels);
}

// Notes C7500 to C7599: ptxas had to add waits or run matrix instructions one after the other.
static void report_note(Assembly *assembly, const char *line, const char *symbol) {
    const char *at = strstr(line, "(C75");
    if (!at) return;
    const char *name = quoted_after(assembly->arena, line, "function ");
    diag(assembly->sink, (Span){0}, T_PTXAS_NOTE, name ? name : symbol ? symbol : "?", at);
}

static void read_line(Assembly *assembly, const char *line, ResourceVec *kernels, const char **symbol) {
    const char *entry = quoted_after(assembly->arena, line, "Compiling entry function ");
    if (entry) {
        *symbol = entry;
        resources_of(assembly->arena, kernels, entry);
    }
    report_note(assembly, line, *symbol);
    if (!*symbol) return;
    KernelResources *kernel = resources_of(assembly->arena, kernels, *symbol);
    kernel->registers = (int)number_before(line, " registers", kernel->registers);
    kernel->barriers = (int)number_before(line, " barriers", kernel->barriers);
    kernel->stack = (int)number_before(line, " bytes stack frame", kernel->stack);
    kernel->spill_stores = (int)number_before(line, " bytes spill stores", kernel->spill_stores);
    kernel->spill_loads = (int)number_before(line, " bytes spill loads", kernel->spill_loads);
    kernel->shared_static = number_before(line, " bytes smem", kernel->shared_static);
}

void read_assembler_log(Assembly *assembly, Cubin *out) {
    ResourceVec kernels = {0};
    const char *symbol = NULL;
    for (const char *line = assembly->log; line && *line;) {
        size_t length = strcspn(line, "\n");
        read_line(assembly, arena_strndup(assembly->arena, line, length), &kernels, &symbol);
        line += length + (line[length] != 0);
    }
    out->kernel_count = kernels.count;
    out->kernels = kernels.items;
}

// ---- which assembler ----

static void report_refusal(Assembly *assembly) {
    enum { LINES = 12, COLUMNS = 300 };
    Diag *d = diag(assembly->sink, (Span){0}, T_PTXAS_REFUSED, assembly->assembler, assembly->options->target->name);
    const char *line = assembly->log;
    for (int i = 0; i < LINES && line && *line; i++) {
        size_t length = strcspn(line, "\n");
        if (length) diag_note(d, "%.*s", length < COLUMNS ? (int)length : COLUMNS, line);
        line += length + (line[length] != 0);
    }
}

const char *assembler_path(Arena *arena, const AssembleOptions *options) {
    return options->ptxas ? options->ptxas : find_program(arena, "ptxas");
}

// The one that was asked for, else ptxas, else the library.
static AssembleStatus run_assembler(Assembly *assembly) {
    const char *path = assembler_path(assembly->arena, assembly->options);
    if (!path) return run_nvjitlink(assembly);
    AssembleStatus status = run_ptxas(assembly, path);
    if (status == UNAVAILABLE) diag(assembly->sink, (Span){0}, T_PTXAS_START, path, assembly->failed);
    return status;
}

static const KernelResources *resources_in(const Cubin *cubin, const char *symbol) {
    for (int i = 0; i < cubin->kernel_count; i++)
        if (strcmp(cubin->kernels[i].symbol, symbol) == 0) return &cubin->kernels[i];
    return NULL;
}

// How many blocks shared memory has room for: INT_MAX where the kernel is not known.
static int blocks_in_shared(const AssembleOptions *options, const char *symbol) {
    const Func *kernel = options->module ? kernel_with_symbol(options->module, symbol) : NULL;
    if (!kernel) return INT_MAX;
    return (int)(options->target->shared_multiprocessor /
                 (kernel_shared_bytes(kernel) + options->target->shared_reserved));
}

// How many blocks a multiprocessor is to hold, by registers, for the kernel to be assembled without a spill: one less than ptxas
// made room for, or one where it spilled much, or `most`. 0: as it is. A few bytes beside two blocks stay: half of the warps cost more
// (attention of unaligned sequences by mma, head dim 64, H200: 1.33 to 1.51 times the time).
static int fewer_blocks(const Target *target, const KernelResources *found, int threads, int most) {
    enum { FEW_BYTES = 64 };
    int spilled = found->spill_stores + found->spill_loads, unit = target->register_unit;
    if (!spilled || found->registers >= target->registers_thread || threads <= 0) return 0;
    int blocks = target->registers_multiprocessor / ((found->registers + unit - 1) / unit * unit * threads);
    bool few = spilled <= FEW_BYTES;
    if (!few || blocks <= 1 || most <= 1) return 1;
    if (blocks > most) return most;
    return blocks > 2 ? blocks - 1 : 0;
}

// ptxas saves registers for more blocks at once, and may spill a few for that, though it does not know whether shared memory
// has room for them. The text with `.minnctapersm` where it did, for fewer blocks; NULL: there is nothing to ask.
static const char *for_fewer_blocks(Arena *arena, const AssembleOptions *options, const char *ptx, const Cubin *cubin) {
    StrBuf text;
    const char *rest = ptx;
    sb_init(&text, arena);
    for (const char *entry = strstr(ptx, ".entry "); entry; entry = strstr(entry + 1, ".entry ")) {
        const char *symbol = quoted_after(arena, entry, ".entry "), *body = strstr(entry, "\n{");
        const KernelResources *found =
            body ? resources_in(cubin, arena_strndup(arena, symbol, strcspn(symbol, "("))) : NULL;
        if (!found) continue;
        const char *directives = arena_strndup(arena, entry, (size_t)(body - entry));
        if (strstr(directives, ".minnctapersm") || strstr(directives, ".maxnreg")) continue;
        const char *threads = strstr(directives, ".reqntid ");
        int blocks = fewer_blocks(options->target, found, threads ? atoi(threads + strlen(".reqntid ")) : 0,
                                  blocks_in_shared(options, found->symbol));
        if (!blocks) continue;
        sb_printf(&text, "%.*s\n.minnctapersm %d", (int)(body - rest), rest, blocks);
        rest = body;
    }
    if (rest == ptx) return NULL;
    sb_str(&text, rest);
    return sb_text(&text);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

bool assemble(Arena *arena, Failure *failure, DiagSink *sink, const char *ptx, const AssembleOptions *options,
              Cubin *out) {
    *out = (Cubin){0};
    Assembly assembly = {.arena = arena,
                         .failure = failure,
                         .sink = sink,
                         .ptx = ptx,
                         .options = options,
                         .log = "",
                         .started = options->started};
    int errors = diag_errors(sink), said = diag_count(sink);
    double start = now();
    AssembleStatus status = run_assembler(&assembly);
    if (status == ASSEMBLED) {
        read_assembler_log(&assembly, out);
        const char *again = for_fewer_blocks(arena, options, ptx, out);
        diag_truncate(sink, said);   // read below, whichever it is
        if (again) {
            assembly.ptx = again;
            status = run_assembler(&assembly);
        }
    }
    out->seconds = now() - start;
    out->log = assembly.log;
    out->assembler = assembly.assembler;
    if (status == UNAVAILABLE && diag_errors(sink) == errors) diag(sink, (Span){0}, T_NO_PTXAS);
    if (status == REFUSED) report_refusal(&assembly);
    if (status != ASSEMBLED) return false;
    out->data = assembly.data;
    out->size = assembly.size;
    read_assembler_log(&assembly, out);
    return true;
}
