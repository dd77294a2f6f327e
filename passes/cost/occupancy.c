// Estimates the resources of a kernel from its tile-stage text.
#include "passes/cost/occupancy.h"
#include "ir/channels.h"
#include "ir/schedule.h"
#include "passes/analysis/live_ranges.h"
#include "passes/pipeline/async_copy_legality.h"
#include "support/numbers.h"

// Registers besides the fragments: addresses and loop counters; in a gemm, operands of a tensor-core instruction.
enum { REGISTER_SLACK = 24, GEMM_SLACK = 40, REGISTER_BYTES = 4, SHARED_ALIGN = 128 };

typedef struct Walk {
    Arena *arena;
    const Target *target;
    Occupancy *out;
    int64_t stages;     // of the enclosing pipelined loop, or of the grid
    bool looped;        // in such a loop, or in a serial one
    const Stmt *role;   // NULL: the CTA
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
    OccupancyBuffer entry = {.buf = buf, .stages = 1, .role = buf->scope == SCOPE_FRAGMENT ? walk->role : NULL};
    entry.members = walk->role ? role_members(walk->role) : 1;
    vec_push(walk->arena, &walk->out->buffers, entry);
}

static OccupancyBuffer *entry_of(Walk *walk, const Buf *buf) {
    VEC_EACH (OccupancyBuffer, entry, &walk->out->buffers)
        if (entry->buf == buf) return entry;
    return NULL;
}

// An asynchronous copy into a shared buffer in a pipelined loop or for each tile of a grid: the buffer is multi-buffered.
static void note_move(Walk *walk, const Buf *from, const Buf *to) {
    if (!target_has(walk->target, FEATURE_CP_ASYNC) || walk->stages < 2 || from->scope != SCOPE_GLOBAL) return;
    OccupancyBuffer *entry = entry_of(walk, to);
    if (entry && to->scope == SCOPE_SHARED && to->type == from->type) entry->stages = walk->stages;
}

static void note_copy(Walk *walk, const Stmt *stmt) {
    CopyOp copy = copy_of(stmt);
    note_move(walk, copy.src->buf, copy.dst->buf);
    OccupancyBuffer *entry = entry_of(walk, copy.dst->buf);
    if (entry) entry->is_loaded |= copy.src->buf->scope != SCOPE_FRAGMENT;
}

// `a[i, j] = x[index[i], j]`, or of `condition ? x[..] : 0`, whose type may have been widened: a gather.
static void note_gather(Walk *walk, const Stmt *store) {
    const Expr *value = store->store.value;
    while (value->kind == EXPR_CAST || value->kind == EXPR_SELECT)
        value = value->kind == EXPR_CAST ? value->operand : value->select.yes;
    if (value->kind == EXPR_LOAD) note_move(walk, value->load.buf, store->store.buf);
}

static void note_read(Walk *walk, const Buf *buf) {
    OccupancyBuffer *entry = entry_of(walk, buf);
    if (entry) entry->is_kept = true;
}

_Static_assert(OPERAND_INDEX(GEMM, a) == 0 && OPERAND_INDEX(GEMM, b) == 1, "the loop over operands of a gemm");

// mma reads operand b from shared memory. Operand a may be in registers, but computed 8-bit elements are in other
// threads than mma needs, so they are staged too. (For wgmma they are permuted within the thread.)
static void note_by_shared(Walk *walk, const Stmt *gemm) {
    for (int i = 0; i < 2; i++) {
        OccupancyBuffer *entry = entry_of(walk, gemm->call.args[i].region->buf);
        if (entry) entry->by_shared |= i == 1 || (type_bytes(entry->buf->type) == 1 && !entry->is_loaded);
    }
}

// A fragment that only reductions read is consumed while it is computed: its elements are never live at the same time.
static void note_operands(Walk *walk, const Stmt *stmt) {
    bool reduces = is_reduction(stmt);
    for (int i = 0; i < stmt->call.count; i++)
        if (stmt->call.args[i].region && !(reduces && i == 0)) note_read(walk, stmt->call.args[i].region->buf);
    if (stmt->call.op != OP_GEMM) return;
    walk->out->registers = GEMM_SLACK;
    if (!target_has(walk->target, FEATURE_WGMMA)) note_by_shared(walk, stmt);
}

static void note_block(Walk *walk, const Block *block) {
    FOR_EACH_STMT (stmt, block) {
        if (stmt->kind == STMT_ROLE) {
            walk->role = stmt;
            note_block(walk, &stmt->role.body);
            walk->role = NULL;
            SKIP_BODY(stmt);
            continue;
        }
        if (stmt->kind == STMT_CALL) note_operands(walk, stmt);
        if (stmt->kind == STMT_DECL && !stmt->decl->alias_of) add_buffer(walk, stmt->decl);
        if (is_call(stmt, OP_COPY)) note_copy(walk, stmt);
        if (stmt->kind == STMT_STORE) note_gather(walk, stmt);
        bool pipelined = is_loop(stmt, LOOP_PIPELINED), serial = is_loop(stmt, LOOP_SERIAL) && !walk->looped;
        if (!pipelined && !serial) continue;
        Walk outer = *walk;
        walk->looped = true;
        walk->stages = pipelined ? loop_stages(stmt) : 1;
        note_block(walk, &stmt->loop.body);
        walk->looped = outer.looped;
        walk->stages = outer.stages;
        SKIP_BODY(stmt);
    }
}

static void count_bytes(Walk *walk, OccupancyBuffer *b) {
    int64_t bytes = elements(b->buf) * type_bytes(b->buf->type);
    EXPECT(arena_failure(walk->arena), b->stages >= 1 && bytes > 0, "%lld bytes of '%s'", (long long)bytes,
           b->buf->name);
    if (b->buf->scope == SCOPE_SHARED || b->by_shared)
        b->bytes = (bytes + SHARED_ALIGN - 1) / SHARED_ALIGN * SHARED_ALIGN * b->stages * b->members;
    walk->out->shared += b->bytes;
}

static void count_registers(const Func *kernel, OccupancyBuffer *b, int64_t threads) {
    if (b->role) threads = b->role->role.threads;
    int64_t each = (elements(b->buf) + threads - 1) / threads;
    b->is_kept |= block_loads(&kernel->body, b->buf);
    if (b->is_kept) b->registers = (each * type_bytes(b->buf->type) + REGISTER_BYTES - 1) / REGISTER_BYTES;
}

// Of the fragments that belong to the role, those that are live at a time; NULL: to the CTA, whose threads hold them in all roles.
static int64_t fragment_registers(const Walk *walk, const Func *kernel, const Stmt *role) {
    const Block *block = role ? &role->role.body : &kernel->body;
    LiveVec ranges = {0};
    VEC_EACH (const OccupancyBuffer, b, &walk->out->buffers) {
        if (b->role != role || !b->registers) continue;
        vec_push(walk->arena, &ranges, ((Live){live_range(walk->arena, block, b->buf), b->registers}));
    }
    return most_live(&ranges, block);
}

// A role that says its registers has them: no allowance, which it may not need.
static int64_t role_registers(const Walk *walk, const Func *kernel, const Stmt *role, int64_t common) {
    int64_t own = fragment_registers(walk, kernel, role);
    return role->role.regs ? larger(role->role.regs, own) : common + own;
}

// Returns the registers of all threads of the CTA.
static int64_t sum_registers(const Walk *walk, const Func *kernel, int64_t block_threads) {
    Occupancy *out = walk->out;
    int64_t common = out->registers + fragment_registers(walk, kernel, NULL), sum = 0, most = 0;
    FOR_EACH_STMT (role, &kernel->body) {
        if (role->kind != STMT_ROLE) continue;
        int64_t registers = role_registers(walk, kernel, role, common);
        most = larger(most, registers);
        sum += registers * role_span(role);
    }
    out->registers = most ? most : common;
    return most ? sum : common * block_threads;
}

Occupancy occupancy_estimate(Arena *arena, const Func *kernel, const Target *target) {
    Occupancy out = {.threads = 1, .registers = REGISTER_SLACK};
    const Stmt *grid = func_grid(kernel);
    Walk walk = {.arena = arena, .target = target, .out = &out, .stages = grid ? grid_stages(grid) : 1};
    note_block(&walk, &kernel->body);
    if (grid) expr_const(grid->grid.threads, &out.threads);
    if (out.threads < 1) out.threads = 1;
    int64_t blocks = grid && attr_get(grid->attrs, ATTR_CTAS) ? grid_blocks(grid) : target_cluster(target, out.threads);
    int64_t block_threads = blocks > 0 ? out.threads / blocks : out.threads;
    VEC_EACH (OccupancyBuffer, b, &out.buffers) {
        count_bytes(&walk, b);
        if (b->buf->scope == SCOPE_FRAGMENT) count_registers(kernel, b, out.threads);
    }
    int64_t all = sum_registers(&walk, kernel, block_threads);
    out.fits = out.shared <= target->shared_block && block_threads <= target->max_threads &&
               out.registers <= target->registers_thread && all <= target->registers_multiprocessor;
    return out;
}

const char *tunables_text(Arena *arena, const Func *kernel) {
    StrBuf text;
    sb_init(&text, arena);
    for (const Attr *attr = kernel->attrs; attr; attr = attr->next) {
        if (attr->id != ATTR_TUNED || attr->count < 2) continue;
        sb_printf(&text, "%s%s = %lld", text.length ? ", " : "", attr->args[0].text, (long long)attr->args[1].integer);
    }
    return sb_text(&text);
}

static void table_row(const OccupancyBuffer *b, StrBuf *out) {
    bool shared = b->buf->scope == SCOPE_SHARED;
    sb_printf(out, "  %-9s%s: %s[", shared ? "shared" : "fragment", b->buf->name, type_text(b->buf->type));
    for (int d = 0; d < b->buf->rank; d++) sb_printf(out, "%s%lld", d ? ", " : "", (long long)buf_extent(b->buf, d));
    sb_str(out, "]");
    if (b->stages > 1) sb_printf(out, " x %lld stages", (long long)b->stages);
    if (shared) sb_printf(out, ": %lld bytes\n", (long long)b->bytes);
    else if (b->by_shared)
        sb_printf(out, ": %lld registers per thread, %lld bytes staged for a gemm\n", (long long)b->registers,
                  (long long)b->bytes);
    else sb_printf(out, ": %lld registers per thread\n", (long long)b->registers);
}

void occupancy_table(const Occupancy *e, const Target *t, StrBuf *out) {
    for (int i = 0; i < e->buffers.count; i++) table_row(&e->buffers.items[i], out);
    if (e->threads > t->max_threads)
        sb_printf(out, "  threads of a tile: %lld; a CTA of %s has %d, a cluster %d CTAs\n", (long long)e->threads,
                  t->name, t->max_threads, target_has(t, FEATURE_CLUSTER) ? t->cluster_most : 1);
    sb_printf(out, "  shared memory of a CTA: %lld bytes; %s has %lld\n", (long long)e->shared, t->name,
              (long long)t->shared_block);
    sb_printf(out, "  registers of a thread at a time: about %lld; %s has %d, and %d for the %lld threads of a CTA",
              (long long)e->registers, t->name, t->registers_thread, t->registers_multiprocessor,
              (long long)e->threads);
}

// ---- hardware features ----

static bool is_missing(const Expr *expr, const void *target) {
    return expr->kind == EXPR_CALL && !target_has(target, op_info(expr->call.op)->feature);
}

bool kernel_is_supported(const Func *kernel, const Target *target) {
    FOR_EACH_STMT (stmt, &kernel->body)
        if (stmt->kind == STMT_CALL && !target_has(target, op_info(stmt->call.op)->feature)) return false;
    if (roles_share_channels(kernel) && !target_has(target, FEATURE_MBARRIER)) return false;
    return func_cluster(kernel) <= target->cluster_most && !block_any_expr(&kernel->body, is_missing, target);
}
