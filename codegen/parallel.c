// Compiles kernels in parallel: a large kernel, or a few small ones, form a unit, which is one LLVM module in a context
// of the thread that compiles it.
//
// A thread has its own arena, failure point and sink; the IR is only read. A unit that fails on a thread, for any
// reason, is compiled again by the caller, so reports and failures equal those of a compile without threads, in the
// order of the kernels.
#include "codegen/gen.h"
#include "ir/rewrite.h"
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

// ---- units ----

enum { WORTH_A_UNIT = 300 };   // some 12 ms

static bool weigh(Visitor *visitor, Stmt *stmt) {
    int64_t *weight = visitor->user, copies = 1, body = 0;
    ++*weight;
    if (stmt->kind != STMT_FOR || stmt->loop.kind != LOOP_UNROLL) return true;
    for (int i = 0; i < stmt->loop.count; i++) {
        int64_t begin, end, step;
        const Iter *iter = &stmt->loop.iters[i];
        if (!expr_const(iter->begin, &begin) || !expr_const(iter->end, &end) || !expr_const(iter->step, &step))
            return true;
        copies *= end > begin ? (int64_t)(((uint64_t)end - (uint64_t)begin - 1) / (uint64_t)step) + 1 : 0;
    }
    Visitor inner = {.stmt = weigh, .user = &body};
    visit_block(&inner, &stmt->loop.body);
    *weight += copies * body;
    return false;
}

// Number of statements after unrolling, roughly proportional to the compile time.
static int64_t weight_of(const Func *func) {
    int64_t weight = 0;
    Visitor visitor = {.stmt = weigh, .user = &weight};
    Block body = func->body;
    if (func->kind == FUNC_KERNEL) visit_block(&visitor, &body);
    return weight;
}

// A unit has an overhead of more than a millisecond, so small kernels share one. The division depends on the program
// only, never on the machine, since it shows in the labels of the PTX.
int make_units(const Module *module, bool emit_llvm, Unit **units) {
    Arena *arena = module->arena;
    int count = 0, functions = module->funcs.count;
    int64_t *weights = NEW_ARRAY(arena, int64_t, functions), left = 0, weight = 0;
    for (int i = 0; i < functions; i++) left += weights[i] = weight_of(module->funcs.items[i]);
    *units = NEW_ARRAY(arena, Unit, functions + 1);
    for (int i = 0; i < functions && !emit_llvm; i++) {
        weight += weights[i];
        left -= weights[i];
        if (weight < WORTH_A_UNIT || left < WORTH_A_UNIT) continue;
        (*units)[count].end = i + 1;
        (*units)[count].weight = weight;
        (*units)[++count].first = i + 1;
        weight = 0;
    }
    (*units)[count].end = functions;
    (*units)[count].weight = weight;
    (*units)[0].alone = count == 0;
    (*units)[0].emit_llvm = emit_llvm;
    return count + 1;
}

// ---- threads ----

enum { MOST_THREADS = 64, STACK_BYTES = 8 << 20 };

typedef struct Pool Pool;

typedef struct CompileThread {
    Pool *pool;
    pthread_t thread;
    Failure failure;
    Arena *arena;   // NULL: no memory, nothing was done
} CompileThread;

struct Pool {
    const Common *common;
    Unit **units;   // in the order in which they are begun
    int count;
    atomic_int next;
    CompileThread *threads;
    int thread_count;
};

static void *work(void *user) {
    CompileThread *self = user;
    Pool *pool = self->pool;
    self->arena = arena_new(libc_allocator, &self->failure);
    if (!self->arena) return NULL;
    // The loop goes on after a unit that failed, unless memory is short.
    if (FAILURE_CAUGHT(&self->failure) && self->failure.kind == FAIL_OUT_OF_MEMORY) return NULL;
    for (;;) {
        int i = atomic_fetch_add(&pool->next, 1);
        if (i >= pool->count) return NULL;
        DiagSink *sink = diag_sink_new(self->arena);
        compile_unit(pool->common, self->arena, &self->failure, sink, pool->units[i]);
        if (diag_count(sink)) pool->units[i]->ptx = NULL;   // to be said again, where it is heard
    }
}

static int processors(void) {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set);
}

// Starts up to `wanted` threads, which see no signals: these are for the host's own. How many there are.
static int start_threads(int wanted, CompileThread *threads) {
    sigset_t all, before;
    pthread_attr_t attributes;
    if (pthread_attr_init(&attributes)) return 0;
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int count = 0;
    while (count < wanted && pthread_create(&threads[count].thread, &attributes, work, &threads[count]) == 0) count++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return count;
}

static void free_arenas(void *user) {
    const Pool *pool = user;
    for (int i = 0; i < pool->thread_count; i++) arena_free(pool->threads[i].arena);
}

// The texts, from the threads' arenas to the caller's.
static bool keep_texts(void *user) {
    const Pool *pool = user;
    for (int i = 0; i < pool->count; i++)
        if (pool->units[i]->ptx) pool->units[i]->ptx = arena_strdup(pool->common->module->arena, pool->units[i]->ptx);
    return true;
}

static int heavier_first(const void *a, const void *b) {
    const Unit *x = *(const Unit *const *)a, *y = *(const Unit *const *)b;
    return x->weight != y->weight ? (x->weight < y->weight) - (x->weight > y->weight) : (x > y) - (x < y);
}

// The longest first, so that none is begun late.
static Unit **in_order(Arena *arena, int count, Unit *units) {
    Unit **order = NEW_ARRAY(arena, Unit *, count);
    for (int i = 0; i < count; i++) order[i] = &units[i];
    qsort(order, (size_t)count, sizeof *order, heavier_first);
    return order;
}

static void compile_side_by_side(const Common *common, int count, Unit *units) {
    Pool pool = {.common = common, .units = in_order(common->module->arena, count, units), .count = count};
    int wanted = processors() < count ? processors() : count;
    if (wanted > MOST_THREADS) wanted = MOST_THREADS;
    if (wanted < 2) return;
    CompileThread *threads = NEW_ARRAY(common->module->arena, CompileThread, wanted);
    for (int i = 0; i < wanted; i++) threads[i].pool = &pool;
    int started = start_threads(wanted - 1, threads + 1);
    if (started) work(&threads[0]);
    for (int i = 1; i <= started; i++) pthread_join(threads[i].thread, NULL);
    pool.threads = threads;
    pool.thread_count = started + 1;
    fail_scope(common->module->failure, keep_texts, free_arenas, &pool);
}

bool compile_units(const Common *common, int count, Unit *units) {
    const Module *module = common->module;
    bool ok = true;
    compile_side_by_side(common, count, units);
    for (int i = 0; i < count; i++) {
        if (!units[i].ptx) compile_unit(common, module->arena, module->failure, module->sink, &units[i]);
        ok &= units[i].ptx != NULL;
    }
    return ok;
}
