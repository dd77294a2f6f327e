// Walking, mapping, cloning, effects, on a small kernel built by hand:
//
//     kernel k(A: f32[n], B: out f32[n]) {
//         grid (b in n) threads 64 {
//             shared s: f32[64];
//             let base = b * 64;
//             copy(A[base +: 64], s);
//             for (i in 4, j in i .. 4) { B[base + j] = s[i] + s[i]; }
//         }
//     }
#include "ir/build.h"
#include "ir/print.h"
#include "ir/rewrite.h"
#include "tests/unit/unit.h"
#include <string.h>

typedef struct Kernel {
    Arena *arena;
    Func *func;
    Buf *a, *b, *s;
    Var *n, *block, *base, *i, *j;
    Stmt *grid, *copy, *loop;
} Kernel;

static Var *index_var(Arena *arena, const char *name, VarKind kind) {
    return var_new(arena, name, kind, TYPE_I64, (Span){0});
}

static Buf *tensor(Kernel *k, const char *name, Mode mode) {
    Expr *n = e_var(k->arena, k->n);
    Buf *buf = buf_new(k->arena, name, SCOPE_GLOBAL, TYPE_F32, 1, &n, (Span){0});
    buf->is_param = true;
    buf->mode = mode;
    Param param = {.buf = buf};
    vec_push(k->arena, &k->func->params, param);
    return buf;
}

static Kernel build(Arena *arena) {
    Kernel k = {.arena = arena, .func = NEW(arena, Func)};
    k.func->name = "k";
    k.n = index_var(arena, "n", VAR_DIM);
    vec_push(arena, &k.func->dims, k.n);
    k.a = tensor(&k, "A", MODE_IN);
    k.b = tensor(&k, "B", MODE_OUT);
    k.s = buf_new_const(arena, "s", SCOPE_SHARED, TYPE_F32, 1, (int64_t[]){64}, (Span){0});
    k.block = index_var(arena, "b", VAR_ITER);
    k.base = index_var(arena, "base", VAR_LET);
    k.i = index_var(arena, "i", VAR_ITER);
    k.j = index_var(arena, "j", VAR_ITER);

    k.grid = stmt_new(arena, STMT_GRID, (Span){0});
    k.grid->grid.count = 1;
    k.grid->grid.iters = NEW(arena, Iter);
    k.grid->grid.iters[0] = (Iter){k.block, e_int(arena, 0), e_var(arena, k.n), e_int(arena, 1)};
    k.grid->grid.threads = e_int(arena, 64);
    block_push(arena, &k.func->body, k.grid);

    Block *body = &k.grid->grid.body;
    block_push(arena, body, s_decl(arena, k.s));
    block_push(arena, body, s_let(arena, k.base, e_mul(arena, e_var(arena, k.block), e_int(arena, 64))));
    RegionDim from = {e_var(arena, k.base), e_int(arena, 64), 64};
    Arg args[] = {arg_region(region_new(arena, k.a, &from, false, (Span){0})), arg_region(region_whole(arena, k.s))};
    block_push(arena, body, k.copy = s_call(arena, OP_COPY, 2, args));

    k.loop = s_for(arena, LOOP_SERIAL, k.i, e_int(arena, 0), e_int(arena, 4));
    k.loop->loop.count = 2;
    k.loop->loop.iters = NEW_ARRAY(arena, Iter, 2);
    k.loop->loop.iters[0] = (Iter){k.i, e_int(arena, 0), e_int(arena, 4), e_int(arena, 1)};
    k.loop->loop.iters[1] = (Iter){k.j, e_var(arena, k.i), e_int(arena, 4), e_int(arena, 1)};
    Expr *read = e_load1(arena, k.s, e_var(arena, k.i));
    Expr *place = e_add(arena, e_var(arena, k.base), e_var(arena, k.j));
    block_push(arena, &k.loop->loop.body, s_store1(arena, k.b, place, e_add(arena, read, read)));
    block_push(arena, body, k.loop);
    return k;
}

static const char *text_of(Arena *arena, const Func *func) {
    StrBuf out;
    sb_init(&out, arena);
    print_func(NULL, func, (PrintOptions){0}, &out);
    return sb_text(&out);
}

typedef struct Counts {
    int exprs, stmts, regions;
} Counts;

static bool count_expr(Visitor *visitor, Expr *e) {
    (void)e;
    return ((Counts *)visitor->user)->exprs++, true;
}

static bool count_stmt(Visitor *visitor, Stmt *stmt) {
    (void)stmt;
    return ((Counts *)visitor->user)->stmts++, true;
}

static void count_region(Visitor *visitor, Region *region, const Operand *operand) {
    (void)region;
    assert_true(operand->access == ACCESS_READ || operand->access == ACCESS_WRITE);
    ((Counts *)visitor->user)->regions++;
}

static void visits_reach_everything(void **state) {
    Kernel k = build(*state);
    Counts counts = {0};
    Visitor visitor = {count_expr, count_stmt, count_region, &counts};
    visit_block(&visitor, &k.func->body);
    assert_int_equal(counts.stmts, 6);
    assert_int_equal(counts.regions, 2);
    assert_int_equal(counts.exprs, 4 + 1 + 3 + 4 + 6 + 3 + 5);   // grid, decl, let, copy, loop bounds, index, value
}

static Expr *twice_constants(Mapper *mapper, Expr *e) {
    return e->kind == EXPR_INT && e->integer == 64 ? e_int(mapper->arena, 128) : e;
}

static void maps_change_what_they_must(void **state) {
    Kernel k = build(*state);
    Expr *same = e_add(k.arena, e_var(k.arena, k.i), e_int(k.arena, 7));
    Mapper mapper = {.arena = k.arena, .expr = twice_constants};
    assert_ptr_equal(map_expr(&mapper, same), same);
    assert_false(mapper.changed);
    map_block(&mapper, &k.func->body);
    assert_true(mapper.changed);
    assert_int_equal(k.grid->grid.threads->integer, 128);
    assert_int_equal(k.copy->call.args[0].region->dims[0].extent->integer, 128);
}

static void drop_copies(StmtMapper *mapper, Stmt *stmt, Block *out) {
    if (stmt->kind == STMT_CALL) return;
    block_push(mapper->arena, out, stmt);
    if (stmt->kind == STMT_STORE) block_push(mapper->arena, out, s_block(mapper->arena));
}

static void statements_are_replaced(void **state) {
    Kernel k = build(*state);
    StmtMapper mapper = {.arena = k.arena, .stmt = drop_copies};
    rewrite_block(&mapper, &k.func->body);
    assert_int_equal(k.grid->grid.body.count, 3);
    assert_int_equal(k.loop->loop.body.count, 2);
}

static void substitution_is_simultaneous(void **state) {
    Kernel k = build(*state);
    Subst *subst = subst_new(k.arena);
    Expr *i = e_var(k.arena, k.i), *j = e_var(k.arena, k.j), *one = e_int(k.arena, 1);
    subst_var(subst, k.i, e_add(k.arena, i, one));
    subst_var(subst, k.j, i);
    Expr *e = subst_expr(subst, e_sub(k.arena, j, i));
    assert_true(expr_equal(e, e_sub(k.arena, i, e_add(k.arena, i, one))));
    Buf *other = buf_new_const(k.arena, "t", SCOPE_SHARED, TYPE_F32, 1, (int64_t[]){64}, (Span){0});
    Subst *bufs = subst_new(k.arena);
    subst_buf(bufs, k.s, other);
    assert_true(block_uses_buf(&k.func->body, k.s));
    subst_block(bufs, &k.func->body);
    assert_false(block_uses_buf(&k.func->body, k.s));
    assert_true(block_uses_buf(&k.func->body, other));
    assert_ptr_equal(k.grid->grid.body.items[0]->decl, other);
}

static void clones_share_nothing_that_changes(void **state) {
    Kernel k = build(*state);
    via_set(k.arena, k.copy, VIA_PLAIN);
    const char *before = text_of(k.arena, k.func);
    Func *copy = clone_func(k.arena, k.func);
    assert_string_equal(text_of(k.arena, copy), before);
    assert_ptr_not_equal(copy->params.items[0].buf, k.a);
    assert_ptr_not_equal(copy->dims.items[0], k.n);
    assert_false(block_uses_buf(&copy->body, k.a) || block_uses_buf(&copy->body, k.s) ||
                 block_uses_buf(&copy->body, k.b));
    Stmt *loop = copy->body.items[0]->grid.body.items[3];
    assert_ptr_not_equal(loop->loop.iters[0].var, k.i);
    assert_ptr_equal(loop->loop.iters[1].begin->var, loop->loop.iters[0].var);   // j begins at the clone's i

    // Whatever is done to the clone leaves the original alone.
    Mapper mapper = {.arena = k.arena, .expr = twice_constants};
    map_block(&mapper, &copy->body);
    via_set(k.arena, copy->body.items[0]->grid.body.items[2], VIA_CP_ASYNC);
    block_remove(&loop->loop.body, 0);
    copy->body.items[0]->grid.body.items[0]->decl->offset = 16;
    assert_string_equal(text_of(k.arena, k.func), before);
}

static void free_names_stay_in_clones(void **state) {
    Kernel k = build(*state);
    Subst *subst = subst_new(k.arena);
    subst_var(subst, k.base, e_add(k.arena, e_var(k.arena, k.base), e_int(k.arena, 1)));
    Stmt *copy = clone_stmt(k.arena, subst, k.loop);
    assert_ptr_equal(copy->loop.body.items[0]->store.buf, k.b);
    const Expr *place = copy->loop.body.items[0]->store.indices[0];
    assert_true(expr_uses_var(place, k.base) && !expr_uses_var(place, k.j));
    assert_true(expr_reads_memory(copy->loop.body.items[0]->store.value));
    assert_false(expr_reads_memory(place));
}

static int count_effects(const EffectVec *effects, const Buf *buf, Access access) {
    int count = 0;
    for (int i = 0; i < effects->count; i++)
        count += effects->items[i].buf == buf && effects->items[i].access == access;
    return count;
}

static void effects_follow_the_table(void **state) {
    Kernel k = build(*state);
    EffectVec effects = {0};
    stmt_effects(k.arena, k.grid, &effects);
    assert_int_equal(effects.count, 5);
    assert_int_equal(count_effects(&effects, k.a, ACCESS_READ), 1);
    assert_int_equal(count_effects(&effects, k.s, ACCESS_WRITE), 1);
    assert_int_equal(count_effects(&effects, k.s, ACCESS_READ), 2);
    assert_int_equal(count_effects(&effects, k.b, ACCESS_WRITE), 1);

    // An alias is its storage; a reduction that accumulates reads what it writes.
    Buf *alias = buf_new_const(k.arena, "t", SCOPE_SHARED, TYPE_F32, 1, (int64_t[]){1}, (Span){0});
    alias->alias_of = k.s;
    for (int accumulate = 0; accumulate < 2; accumulate++) {
        Arg args[] = {arg_region(region_whole(k.arena, k.s)), arg_region(region_whole(k.arena, alias)),
                      arg_value(e_int(k.arena, 0)), arg_value(e_bool(k.arena, accumulate))};
        EffectVec reduced = {0};
        stmt_effects(k.arena, s_call(k.arena, OP_REDUCE_SUM, 4, args), &reduced);
        assert_int_equal(count_effects(&reduced, k.s, accumulate ? ACCESS_UPDATE : ACCESS_WRITE), 1);
        assert_int_equal(count_effects(&reduced, alias, ACCESS_WRITE), 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_ARENA(visits_reach_everything),           IN_ARENA(maps_change_what_they_must),
        IN_ARENA(statements_are_replaced),           IN_ARENA(substitution_is_simultaneous),
        IN_ARENA(clones_share_nothing_that_changes), IN_ARENA(free_names_stay_in_clones),
        IN_ARENA(effects_follow_the_table),
    };
    return run(tests);
}
