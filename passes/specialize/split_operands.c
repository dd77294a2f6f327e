// Left operands that threads convert in registers, in pieces along k: a piece is converted while the one before is
// multiplied.
//
//     mbarrier_wait(W_full[i])                        mbarrier_wait(W_full[i])
//     copy(Ws[i], w)               8 to 16 bits       copy(Ws[i][:, 0 +: 64], w0)
//     arrive(W_empty[i])                              mbarrier_wait(A_full[j])
//     mbarrier_wait(A_full[j])                =>      gemm(w0, As[j][:, 0 +: 64].T, acc)
//     gemm(w, As[j].T, acc)                           copy(Ws[i][:, 64 +: 64], w1)
//     arrive(A_empty[j])                              arrive(W_empty[i])
//                                                     gemm(w1, As[j][:, 64 +: 64].T, acc)
//                                                     arrive(A_empty[j])
//
// An iteration has `convert_pieces` of the target, if steps of k allow. async_mma.c then starts the MMAs, and leaves the
// last ones in flight while the next iteration converts its first piece.
//
// Declined: operands that come from other fragments (a softmax), which must be whole before; operands
// that something else uses.
#include "passes/specialize/builder.h"

typedef struct Split {
    Arena *arena;
    const Target *target;
    const Map *consumes;
    const Block *role;
    Block *block;
    int convert, gemm;   // statements of the block
    Buf *operand;
    int64_t width;   // of a piece
} Split;

// The loop gives each element of the operand, at its own iterators, and does nothing else.
static bool is_elementwise(const Stmt *loop, const Buf *buf) {
    if (!is_loop(loop, LOOP_PARALLEL) || loop->loop.count != 2 || loop->loop.body.count != 1) return false;
    const Stmt *store = loop->loop.body.items[0];
    if (store->kind != STMT_STORE || store->store.buf != buf) return false;
    for (int i = 0; i < 2; i++) {
        const Iter *iter = &loop->loop.iters[i];
        const Expr *at = store->store.indices[i];
        int64_t end;
        if (at->kind != EXPR_VAR || at->var != iter->var || !expr_is_int(iter->begin, 0) || !expr_is_int(iter->step, 1))
            return false;
        if (!expr_const(iter->end, &end) || end != buf_extent(buf, i)) return false;
    }
    return true;
}

bool converts_tile(Arena *arena, const Stmt *stmt, const Buf *buf) {
    CopyOp copy;
    bool shared = false;
    if (match_copy(stmt, &copy)) {
        bool whole = region_is_whole(copy.dst) && region_rank(copy.src) == 2 && !copy.src->transposed;
        return copy.dst->buf == buf && whole && copy.src->buf->scope == SCOPE_SHARED &&
               copy.src->buf->type != buf->type;
    }
    if (!is_elementwise(stmt, buf)) return false;
    FOR_EACH_EFFECT (effect, arena, stmt) {
        if (effect->buf == buf) continue;
        shared |= effect->buf->scope == SCOPE_SHARED;
        if (effect->buf->scope == SCOPE_FRAGMENT && effect->buf->rank > 1) return false;
    }
    return shared;
}

static bool is_converted(Arena *arena, const Block *body, const Buf *operand) {
    FOR_EACH_ITEM (stmt, body)
        if (converts_tile(arena, stmt, operand)) return true;
    return false;
}

bool multiplies_converted(Arena *arena, const Block *body) {
    int products = 0;
    FOR_EACH_ITEM (stmt, body) {
        if (!is_wgmma(stmt)) continue;
        if (!is_converted(arena, body, gemm_of(stmt).a->buf)) return false;
        products++;
    }
    return products > 0;
}

static bool may_stand_between(const Split *s, const Stmt *stmt) {
    return is_scalar(stmt) || map_has(s->consumes, stmt) || is_call(stmt, OP_MBARRIER_WAIT);
}

// The registers of each piece are its own.
static int64_t width_for(const Split *s, const WgmmaInfo *info, int64_t panel) {
    int64_t k = 0;
    FOR_EACH_ITEM (stmt, s->block)
        if (is_wgmma(stmt)) k += region_extent(gemm_of(stmt).a, 1);
    int64_t pieces = larger(s->target->wgmma.convert_pieces, 1);
    return larger(smaller(k / pieces, panel) / info->k * info->k, info->k);
}

// The statement that computes the left operand of the MMA, and the width of pieces. False: it stays whole.
static bool find_pieces(Split *s) {
    const Stmt *gemm = s->block->items[s->gemm];
    GemmOp op = gemm_of(gemm);
    WgmmaInfo info;
    TmaPanels panels;
    int uses = 0;
    if (op.a->buf->scope != SCOPE_FRAGMENT || !region_is_whole(op.a) || op.a->transposed || !op.b->transposed)
        return false;
    if (!gemm_wgmma(s->target, gemm, region_extent(op.acc, 1), &info)) return false;
    if (wgmma_panels_problem(s->arena, gemm, &info, true, &panels)) return false;
    s->operand = op.a->buf;
    int64_t columns = buf_extent(s->operand, 1);
    s->width = width_for(s, &info, panels.columns);
    if (columns <= s->width || columns % s->width || panels.columns % s->width) return false;
    FOR_EACH_ITEM (stmt, s->role) uses += count_effects(s->arena, stmt, s->operand);
    s->convert = s->gemm - 1;
    while (s->convert >= 0 && may_stand_between(s, s->block->items[s->convert])) s->convert--;
    return uses == 2 && s->convert >= 0 && converts_tile(s->arena, s->block->items[s->convert], s->operand);
}

// ---- the pieces ----

static Region *columns_of(const Split *s, const Region *region, int dim, int64_t first) {
    Region *columns = clone_region(s->arena, NULL, region);
    columns->dims[dim].start = e_plus(s->arena, region->dims[dim].start, first);
    columns->dims[dim].extent = e_int(s->arena, s->width);
    columns->dims[dim].tile = s->width;
    return columns;
}

static Stmt *convert_piece(const Split *s, Buf *piece, int64_t first) {
    const Stmt *whole = s->block->items[s->convert];
    Subst *subst = subst_new(s->arena);
    if (is_call(whole, OP_COPY)) {
        const Region *from = copy_of(whole).src;
        Stmt *copy = clone_stmt(s->arena, NULL, whole);
        ARG(copy, COPY, src) = arg_region(columns_of(s, from, from->count - 1, first));
        ARG(copy, COPY, dst) = arg_region(region_whole(s->arena, piece));
        return copy;
    }
    Stmt *loop = clone_stmt(s->arena, NULL, whole);   // with iterators of its own
    Iter *columns = &loop->loop.iters[1];
    Expr *at = e_var(s->arena, columns->var);
    subst_var(subst, columns->var, e_plus(s->arena, at, first));
    columns->end = e_int(s->arena, s->width);
    subst_block(subst, &loop->loop.body);
    Stmt *store = loop->loop.body.items[0];
    store->store.buf = piece;
    store->store.indices[1] = at;
    return loop;
}

static Stmt *gemm_piece(const Split *s, Buf *piece, int64_t first) {
    Stmt *gemm = clone_stmt(s->arena, NULL, s->block->items[s->gemm]);
    const Region *right = gemm_of(gemm).b;
    ARG(gemm, GEMM, a) = arg_region(region_whole(s->arena, piece));
    ARG(gemm, GEMM, b) = arg_region(columns_of(s, right, right->count - 1, first));
    if (first > 0) ARG(gemm, GEMM, accumulate) = (Arg){0};
    return gemm;
}

static Buf *declare_piece(const Split *s, int64_t number, Block *out) {
    int64_t shape[] = {buf_extent(s->operand, 0), s->width};
    const char *name = arena_printf(s->arena, "%s%lld", s->operand->name, (long long)number);
    Buf *piece = buf_new_const(s->arena, name, SCOPE_FRAGMENT, s->operand->type, 2, shape, s->operand->loc);
    block_push(s->arena, out, s_decl(s->arena, piece));
    return piece;
}

static bool is_declaration(const Stmt *stmt, const Buf *buf) {
    return stmt->kind == STMT_DECL && stmt->decl == buf;
}

// Waits come before the first MMA, arrivals behind the last conversion.
static void split(const Split *s) {
    Block out = {0}, arrivals = {0}, waits = {0};
    for (int i = s->convert + 1; i < s->gemm; i++) {
        Stmt *stmt = s->block->items[i];
        block_push(s->arena, map_has(s->consumes, stmt) ? &arrivals : &waits, stmt);
    }
    for (int i = 0; i < s->convert; i++)
        if (!is_declaration(s->block->items[i], s->operand)) block_push(s->arena, &out, s->block->items[i]);
    int64_t count = buf_extent(s->operand, 1) / s->width;
    Buf **pieces = NEW_ARRAY(s->arena, Buf *, count);
    for (int64_t i = 0; i < count; i++) pieces[i] = declare_piece(s, i, &out);
    for (int64_t i = 0; i < count; i++) {
        block_push(s->arena, &out, convert_piece(s, pieces[i], i * s->width));
        if (i == 0) block_append(s->arena, &out, &waits);
        if (i == count - 1) block_append(s->arena, &out, &arrivals);
        block_push(s->arena, &out, gemm_piece(s, pieces[i], i * s->width));
    }
    for (int i = s->gemm + 1; i < s->block->count; i++) block_push(s->arena, &out, s->block->items[i]);
    *s->block = out;
}

static void split_block(Split *s, Block *block) {
    for (int i = 0; i < block->count; i++) {
        if (!is_loop(block->items[i], LOOP_PARALLEL))
            FOR_EACH_BODY (body, block->items[i]) split_block(s, body);
        s->block = block;
        s->gemm = i;
        if (!is_wgmma(block->items[i]) || !find_pieces(s)) continue;
        int behind = block->count - i;
        split(s);
        i = block->count - behind;
    }
}

void split_operands(Arena *arena, const Target *target, Block *role, const Map *consumes) {
    Split s = {.arena = arena, .target = target, .consumes = consumes, .role = role};
    split_block(&s, role);
}
