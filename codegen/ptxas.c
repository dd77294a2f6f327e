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

// Whether ptxas found a mistake in the PTX: "ptxas FILE, line 9; error : ...", "ptxas error : ...". What else ends
// it, or what is no ptxas, says something else or nothing.
static bool names_mistake(const char *log) {
    for (const char *line = log; line && *line; line = strchr(line, '\n')) {
        line += *line == '\n';
        const char *error = strncmp(line, "ptxas ", 6) == 0 ? strstr(line, "error") : NULL, *end = strchr(line, '\n');
        if (error && (!end || error < end)) return true;
    }
    return false;
}

static void report_refusal(Assembly *assembly) {
    enum { LINES = 12, COLUMNS = 300 };
    const char *path = assembler_path(assembly->arena, assembly->options), *target = assembly->options->target->name;
    bool mistake = !path || names_mistake(assembly->log);
    Diag *d = mistake ? diag(assembly->sink, (Span){0}, T_PTXAS_REFUSED, assembly->assembler, target)
                      : diag(assembly->sink, (Span){0}, T_PTXAS_FAILED, path, target, assembly->code,
                             assembly->log[0] ? "named no error in the PTX" : "said nothing");
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
    if (status == KILLED)
        diag(assembly->sink, (Span){0}, T_PTXAS_KILLED, path, assembly->signal, strsignal(assembly->signal));
    if (status == UNAVAILABLE) diag(assembly->sink, (Span){0}, T_PTXAS_START, path, assembly->failed);
    return status;
}

// ---- spills ----
//
// ptxas chooses a number of registers by the CTAs that fit on a multiprocessor, and may then have to spill a few
// values. A kernel that spills is assembled again, until it does not:
//
//     1. for the number of CTAs that shared memory has room for, which ptxas does not know, or else for one less; a
//        kernel with the largest number of registers: without unrolling by ptxas, which keeps more loads in flight
//     2. for half as many CTAs
//     3. with a low --register-usage-level, which applies to all kernels of the cubin
//
enum { ONE_LESS, HALF, FEW_REGISTERS, STEPS };

typedef struct Ask {
    const char *symbol;
    bool rolled;
    int blocks;   // 0: nothing is said
} Ask;

typedef VEC(Ask) AskVec;

typedef struct Try {
    const char *ptx;
    AskVec asks;
    Assembly assembly;   // of the text with what is asked
    AssembleStatus status;
    Cubin cubin;
    int bytes, notes;   // spilled by all kernels; that would be reported
} Try;

static int spilled_bytes(const KernelResources *kernel) {
    return kernel->spill_stores + kernel->spill_loads;
}

static Ask ask_of(const AskVec *asks, const char *symbol) {
    for (int i = 0; i < asks->count; i++)
        if (strcmp(asks->items[i].symbol, symbol) == 0) return asks->items[i];
    return (Ask){.symbol = symbol};
}

// The number behind a word of a kernel's directives; 0: it is not there.
static int directive(Arena *arena, const char *ptx, const char *symbol, const char *word) {
    const char *entry = strstr(ptx, arena_printf(arena, ".entry %s(", symbol)),
               *body = entry ? strstr(entry, "\n{") : NULL;
    const char *at = body ? strstr(entry, word) : NULL;
    return at && at < body ? atoi(at + strlen(word)) : 0;
}

// How many CTAs' registers a multiprocessor has; 1 where a thread can have no more of them.
static int blocks_by_registers(const Target *target, const KernelResources *found, int threads) {
    if (found->registers >= target->registers_thread || threads <= 0) return 1;
    return (int)target_ctas_by_registers(target, found->registers, threads);
}

// How many CTAs shared memory has room for: INT_MAX where the kernel is not known.
static int blocks_in_shared(const AssembleOptions *options, const char *symbol) {
    const Func *kernel = options->module ? kernel_with_symbol(options->module, symbol) : NULL;
    if (!kernel) return INT_MAX;
    return (int)target_ctas_by_shared(options->target, kernel_shared_bytes(kernel));
}

// The number of CTAs per multiprocessor to ask for; `blocks`: unchanged. With two CTAs a few spilled bytes are kept:
// half as many warps cost more (attention of unaligned sequences by mma, head dim 64, H200: 1.33 to 1.51 times the
// time).
static int fewer_blocks(int blocks, int most, int bytes, int step) {
    enum { FEW_BYTES = 64 };
    if (blocks > most) return most > 1 ? most : 1;
    if (blocks == 2 && bytes <= FEW_BYTES) return blocks;
    return bytes > FEW_BYTES ? 1 : step == ONE_LESS ? blocks - 1 : blocks / 2;
}

// Asks more of ptxas for a kernel that spills. False: there is nothing more to ask.
static bool ask_more(const Try *best, const KernelResources *found, int step, Ask *ask) {
    const AssembleOptions *options = best->assembly.options;
    Arena *arena = best->assembly.arena;
    int threads = directive(arena, best->ptx, found->symbol, ".reqntid ");
    int blocks = blocks_by_registers(options->target, found, threads);
    Ask before = *ask;
    if (blocks <= 1) ask->rolled = true;
    else if (!directive(arena, best->ptx, found->symbol, ".minnctapersm ") &&
             !directive(arena, best->ptx, found->symbol, ".maxnreg ")) {
        int fewer = fewer_blocks(blocks, blocks_in_shared(options, found->symbol), spilled_bytes(found), step);
        if (fewer < blocks) ask->blocks = fewer;
    }
    return ask->rolled != before.rolled || ask->blocks != before.blocks;
}

static const char *with_asks(Arena *arena, const char *ptx, const AskVec *asks) {
    StrBuf text;
    const char *rest = ptx;
    if (asks->count == 0) return ptx;
    sb_init(&text, arena);
    for (const char *entry = strstr(ptx, ".entry "); entry; entry = strstr(entry + 1, ".entry ")) {
        const char *symbol = entry + strlen(".entry "), *body = strstr(entry, "\n{");
        if (!body) break;
        Ask ask = ask_of(asks, arena_strndup(arena, symbol, strcspn(symbol, "(")));
        sb_printf(&text, "%.*s", (int)(body - rest), rest);
        if (ask.blocks) sb_printf(&text, "\n.minnctapersm %d", ask.blocks);
        if (ask.rolled) sb_str(&text, "\n.pragma \"nounroll\";");
        rest = body;
    }
    sb_str(&text, rest);
    return sb_text(&text);
}

// One assembly; what its messages would report is counted alone.
static void run_try(Try *try) {
    DiagSink *sink = try->assembly.sink;
    int before = diag_count(sink);
    try->assembly.ptx = with_asks(try->assembly.arena, try->ptx, &try->asks);
    try->status = run_assembler(&try->assembly);
    if (try->status != ASSEMBLED) return;
    read_assembler_log(&try->assembly, &try->cubin);
    try->notes = diag_count(sink) - before;
    diag_truncate(sink, before);   // those of the try that serves are read again
    for (int i = 0; i < try->cubin.kernel_count; i++) try->bytes += spilled_bytes(&try->cubin.kernels[i]);
}

// Another assembly, in place of the best so far if it is better.
static void try_again(Try *best, int step) {
    Try other = {.ptx = best->ptx, .assembly = best->assembly};
    bool more = other.assembly.few_registers = step == FEW_REGISTERS;
    for (int i = 0; i < best->cubin.kernel_count; i++) {
        const KernelResources *found = &best->cubin.kernels[i];
        Ask ask = ask_of(&best->asks, found->symbol);
        if (step != FEW_REGISTERS && spilled_bytes(found)) more |= ask_more(best, found, step, &ask);
        vec_push(best->assembly.arena, &other.asks, ask);
    }
    if (!more) return;
    int said = diag_count(best->assembly.sink);
    run_try(&other);
    diag_truncate(best->assembly.sink, said);   // one that did not work out need not be known
    if (other.status == ASSEMBLED && other.bytes < best->bytes && other.notes <= best->notes) *best = other;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

bool assemble(Arena *arena, Failure *failure, DiagSink *sink, const char *ptx, const AssembleOptions *options,
              Cubin *out) {
    *out = (Cubin){0};
    Try best = {.ptx = ptx,
                .assembly = {.arena = arena,
                             .failure = failure,
                             .sink = sink,
                             .options = options,
                             .log = "",
                             .started = options->started}};
    Assembly *assembly = &best.assembly;
    int errors = diag_errors(sink);
    double start = now();
    run_try(&best);
    for (int step = 0; step < STEPS && best.status == ASSEMBLED && best.bytes; step++) try_again(&best, step);
    out->seconds = now() - start;
    out->log = assembly->log;
    out->assembler = assembly->assembler;
    if (best.status == UNAVAILABLE && diag_errors(sink) == errors) diag(sink, (Span){0}, T_NO_PTXAS);
    if (best.status == REFUSED) report_refusal(assembly);
    if (best.status != ASSEMBLED) return false;
    if (!assembler_path(arena, options)) diag(sink, (Span){0}, T_OTHER_ASSEMBLER, assembly->assembler);
    out->data = assembly->data;
    out->size = assembly->size;
    read_assembler_log(assembly, out);
    return true;
}
