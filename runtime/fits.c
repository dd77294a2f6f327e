#include "runtime/fits.h"
#include "ir/build.h"
#include "ir/rewrite.h"
#include "passes/warp_specialize.h"
#include <string.h>

// Registers beside the fragments: addresses, loop counters, operands of a tensor-core instruction.
enum { REGISTER_SLACK = 40, REGISTER_BYTES = 4, SHARED_ALIGN = 128 };

typedef struct Walk {
    Visitor visitor;
    Arena *arena;
    FitsEstimate *out;
    bool async;       // the target copies asynchronously
    int64_t stages;   // of the pipelined loop that we are in; 0: none
} Walk;

static int64_t elements(const Buf *buf) {
    int64_t count = 1;
    for (int d = 0; d < buf->rank; d++) {
        int64_t extent = buf_extent(buf, d);
        count *= extent < 0 ? 1 : extent;
    }
    return count;
}

static void add_buffer(Walk *walk, const Buf *buf) {
    if (buf->scope != SCOPE_SHARED && buf->scope != SCOPE_FRAGMENT) return;
    FitsBuffer entry = {.buf = buf, .stages = 1};
    vec_push(walk->arena, &walk->out->buffers, entry);
}

// `copy` from global memory into a shared buffer within a pipelined loop: the buffer becomes a ring.
static void note_copy(Walk *walk, const Stmt *stmt) {
    const Region *from = stmt->call.args[0].region, *to = stmt->call.args[1].region;
    if (!walk->async || walk->stages < 2 || !from || !to || from->buf->scope != SCOPE_GLOBAL) return;
    for (int i = 0; i < walk->out->buffers.count; i++) {
        FitsBuffer *entry = &walk->out->buffers.items[i];
        if (entry->buf == to->buf && entry->buf->scope == SCOPE_SHARED && entry->buf->type == from->buf->type)
            entry->stages = walk->stages;
    }
}

static bool visit(Visitor *visitor, Stmt *stmt) {
    Walk *walk = visitor->user;
    if (stmt->kind == STMT_DECL) add_buffer(walk, stmt->decl);
    if (stmt->kind == STMT_CALL && stmt->call.op == OP_COPY) note_copy(walk, stmt);
    if (stmt->kind != STMT_FOR || stmt->loop.kind != LOOP_PIPELINED) return true;
    int64_t outer = walk->stages, stages = 0;
    if (stmt->loop.stages) expr_const(stmt->loop.stages, &stages);
    walk->stages = stages;
    visit_block(visitor, &stmt->loop.body);
    walk->stages = outer;
    return false;
}

FitsEstimate fits_estimate(Arena *arena, const Func *kernel, const Target *target) {
    FitsEstimate out = {.threads = 1, .registers = REGISTER_SLACK};
    Walk walk = {.arena = arena, .out = &out, .async = target_has(target, FEATURE_CP_ASYNC)};
    walk.visitor = (Visitor){.stmt = visit, .user = &walk};
    visit_block(&walk.visitor, (Block *)&kernel->body);
    const Stmt *grid = func_grid(kernel);
    if (grid) expr_const(grid->grid.threads, &out.threads);
    if (out.threads < 1) out.threads = 1;
    for (int i = 0; i < out.buffers.count; i++) {
        FitsBuffer *b = &out.buffers.items[i];
        int64_t count = elements(b->buf), bytes = type_bytes(b->buf->type);
        if (b->buf->scope == SCOPE_SHARED) {
            b->bytes = (count * bytes + SHARED_ALIGN - 1) / SHARED_ALIGN * SHARED_ALIGN * b->stages;
            out.shared += b->bytes;
        } else {
            int64_t each = (count + out.threads - 1) / out.threads;
            b->registers = (each * bytes + REGISTER_BYTES - 1) / REGISTER_BYTES;
            out.registers += b->registers;
        }
    }
    out.fits = out.shared <= target->shared_block && out.threads <= target->max_threads &&
               out.registers <= target->registers_thread &&
               out.registers * out.threads <= target->registers_multiprocessor;
    return out;
}

const char *fits_tunables(Arena *arena, const Func *kernel) {
    StrBuf text;
    sb_init(&text, arena);
    for (const Attr *attr = kernel->attrs; attr; attr = attr->next) {
        if (attr->id != ATTR_TUNED || attr->count < 2) continue;
        sb_printf(&text, "%s%s = %lld", text.length ? ", " : "", attr->args[0].text, (long long)attr->args[1].integer);
    }
    return sb_text(&text);
}

static bool is_larger(const FitsEstimate *a, const FitsEstimate *b) {
    return a->registers != b->registers ? a->registers > b->registers : a->shared > b->shared;
}

static void remember(FitsSearch *search, const FitsEstimate *estimate, const char *tunables) {
    search->tried++;
    if (estimate->fits) {
        search->settled = true;
        if (search->largest_tunables && !is_larger(estimate, &search->largest)) return;
        search->largest = *estimate;
        search->largest_tunables = tunables;
    } else if (!search->smallest_tunables || estimate->shared < search->smallest.shared) {
        search->smallest = *estimate;
        search->smallest_tunables = tunables;
    }
}

// ---- kernels that will be parted into roles ----
//
// One warpgroup computes a point, so a larger tile loads less for each product, up to what its registers hold; and a longer
// ring hides more. Which tile divides the work best over the multiprocessors is not known before the shapes are.

typedef struct Choice {
    bool decided;
    const char *tunables;   // NULL: none of the combinations is parted; the first that fits does
    int64_t tile, ring;     // registers of the fragments, bytes of shared memory
} Choice;

static bool is_parted(const FitsSearch *search, const Func *kernel, const FitsEstimate *estimate) {
    const char *why;
    int64_t shared = estimate->shared + specialized_staging(search->target, kernel);
    return can_specialize(search->arena, search->target, kernel, &why) && shared <= search->target->shared_block &&
           specialized_registers(search->target, kernel) <= specialized_register_limit(search->target);
}

static Choice *choice_of(FitsSearch *search, const char *kernel) {
    if (!search->choices) search->choices = strmap_new(search->arena);
    Choice *choice = strmap_get(search->choices, kernel);
    if (!choice) strmap_put(search->choices, kernel, choice = NEW(search->arena, Choice));
    return choice;
}

static void compare(FitsSearch *search, Choice *choice, const Func *kernel) {
    FitsEstimate estimate = fits_estimate(search->arena, kernel, search->target);
    if (!is_parted(search, kernel, &estimate)) return;
    int64_t tile = specialized_registers(search->target, kernel);
    if (choice->tunables && (tile < choice->tile || (tile == choice->tile && estimate.shared <= choice->ring))) return;
    *choice = (Choice){.tunables = fits_tunables(search->arena, kernel), .tile = tile, .ring = estimate.shared};
}

static void decide(const char *kernel, void *value, void *user) {
    Choice *choice = value;
    (void)kernel;
    *(bool *)user |= !choice->decided;
    choice->decided = true;
}

bool fits_decide(FitsSearch *search) {
    bool more = false;
    if (search->choices) strmap_each(search->choices, decide, &more);
    return more;
}

bool fits_check(void *user, Module *module, Func *kernel) {
    FitsSearch *search = user;
    (void)module;
    if (target_has(search->target, FEATURE_WGMMA) && !search->try_all) {
        Choice *choice = choice_of(search, kernel->name);
        if (!choice->decided) {
            compare(search, choice, kernel);
            return false;
        }
        if (choice->tunables) return strcmp(choice->tunables, fits_tunables(search->arena, kernel)) == 0;
    }
    if (search->kernel && strcmp(search->kernel, kernel->name) != 0 && !search->try_all) {
        if (!search->settled) return true;   // an earlier kernel does not fit: nothing else matters
        *search = (FitsSearch){.arena = search->arena, .target = search->target};
    }
    if (!search->kernel) search->kernel = arena_strdup(search->arena, kernel->name);
    search->loc = kernel->loc;
    if (strcmp(search->kernel, kernel->name) != 0) return true;
    FitsEstimate estimate = fits_estimate(search->arena, kernel, search->target);
    remember(search, &estimate, fits_tunables(search->arena, kernel));
    return estimate.fits && !search->try_all;
}

static void table_row(const FitsBuffer *b, StrBuf *out) {
    bool shared = b->buf->scope == SCOPE_SHARED;
    sb_printf(out, "  %-9s%s: %s[", shared ? "shared" : "fragment", b->buf->name, type_text(b->buf->type));
    for (int d = 0; d < b->buf->rank; d++) sb_printf(out, "%s%lld", d ? ", " : "", (long long)buf_extent(b->buf, d));
    sb_str(out, "]");
    if (b->stages > 1) sb_printf(out, " x %lld stages", (long long)b->stages);
    if (shared) sb_printf(out, ": %lld bytes\n", (long long)b->bytes);
    else sb_printf(out, ": %lld registers a thread\n", (long long)b->registers);
}

void fits_table(const FitsEstimate *e, const Target *t, StrBuf *out) {
    for (int i = 0; i < e->buffers.count; i++) table_row(&e->buffers.items[i], out);
    if (e->threads > t->max_threads)
        sb_printf(out, "  threads of a block: %lld; %s has %d\n", (long long)e->threads, t->name, t->max_threads);
    sb_printf(out, "  shared memory of a block: %lld bytes; %s has %lld\n", (long long)e->shared, t->name,
              (long long)t->shared_block);
    sb_printf(out, "  registers of a thread: about %lld; %s has %d, and %d for the %lld threads of a block",
              (long long)e->registers, t->name, t->registers_thread, t->registers_multiprocessor,
              (long long)e->threads);
}
