// Loops over statements (ir/query.h) and calls with named operands (ir/match.h).
#include "ir/build.h"
#include "ir/query.h"
#include "tests/unit/unit.h"

static Stmt *assignment(Arena *arena, int64_t number) {
    Var *var = var_new(arena, "x", VAR_LET, TYPE_I64, (Span){0});
    return s_let(arena, var, e_int(arena, number));
}

// A tree of `depth` levels: each holds a let, an `if` of which both branches go on (the second one with a let alone), a
// let.
static void grow(Arena *arena, Block *block, int depth, int64_t *number) {
    block_push(arena, block, assignment(arena, (*number)++));
    if (depth == 0) return;
    Stmt *branch = s_if(arena, e_bool(arena, true));
    block_push(arena, block, branch);
    grow(arena, &branch->if_.then, depth - 1, number);
    block_push(arena, &branch->if_.otherwise, assignment(arena, (*number)++));
    block_push(arena, block, assignment(arena, (*number)++));
}

typedef VEC(const Stmt *) Visited;

static bool keep(Visitor *visitor, Stmt *stmt) {
    Visited *visited = visitor->user;
    assert_true(visited->count < visited->capacity);
    return visited->items[visited->count++] = stmt, true;
}

// The same statements in the same order as the recursive walk, also where the tree is deeper than what a walk
// remembers.
static void loops_visit_in_order(void **state) {
    Arena *arena = *state;
    enum { MOST = 2000 };
    const int depths[] = {0, 1, 5, WALK_LEVELS - 1, WALK_LEVELS, WALK_LEVELS + 1, 3 * WALK_LEVELS + 7, 300};
    for (int i = 0; i < COUNT_OF(depths); i++) {
        Block block = {0};
        int64_t number = 0;
        grow(arena, &block, depths[i], &number);
        Visited visited = {NEW_ARRAY(arena, const Stmt *, MOST), 0, MOST};
        Visitor visitor = {.stmt = keep, .user = &visited};
        visit_block(&visitor, &block);
        assert_int_equal(visited.count, number + depths[i]);
        int at = 0;
        FOR_EACH_STMT (stmt, &block) {
            assert_ptr_equal(stmt, visited.items[at++]);
            assert_ptr_equal(BLOCK_OF(stmt)->items[INDEX_OF(stmt)], stmt);
        }
        assert_int_equal(at, visited.count);
    }
}

static void loops_skip_and_stop(void **state) {
    Arena *arena = *state;
    Block block = {0};
    int64_t number = 0;
    grow(arena, &block, 3, &number);
    int all = 0, outer = 0, first = 0;
    FOR_EACH_STMT (stmt, &block) {
        outer++;
        if (stmt->kind == STMT_IF) SKIP_BODY(stmt);
    }
    assert_int_equal(outer, block.count);
    FOR_EACH_STMT (stmt, &block) {
        first++;
        if (stmt->kind == STMT_IF) break;
    }
    assert_int_equal(first, 2);
    FOR_EACH_STMT_IN (stmt, block.items[1]) {
        if (all == 0) assert_ptr_equal(stmt, block.items[1]);
        all++;
    }
    assert_int_equal(all, number + 3 - 2);   // but for the first and the last let
    FOR_EACH_STMT_MUT (stmt, &block)
        if (stmt->kind == STMT_LET) stmt->let.value = e_int(arena, 7);
    FOR_EACH_STMT (stmt, &block)
        if (stmt->kind == STMT_LET) assert_true(expr_is_int(stmt->let.value, 7));
    FOR_EACH_STMT (stmt, &(Block){0}) fail_msg("an empty block has a statement");
}

static Region *tile(Arena *arena, Scope scope) {
    return region_whole(arena, buf_new_const(arena, "t", scope, TYPE_F32, 1, (int64_t[]){64}, (Span){0}));
}

static void operands_have_names(void **state) {
    Arena *arena = *state;
    Region *from = tile(arena, SCOPE_GLOBAL), *to = tile(arena, SCOPE_SHARED), *bar = tile(arena, SCOPE_SHARED);
    Stmt *copy = s_call(arena, OP_COPY, 2, (Arg[]){arg_region(from), arg_region(to)});
    CopyOp found;
    GemmOp other;
    assert_true(match_copy(copy, &found) && !match_gemm(copy, &other));
    assert_ptr_equal(found.src, from);
    assert_ptr_equal(found.dst, to);
    assert_true(!found.bar && !found.ctas);   // absent ones read as nothing
    assert_true(is_global_to_shared_copy(copy) && !is_shared_to_global_copy(copy));
    Arg args[] = {arg_region(from), arg_region(to), arg_region(bar), {0}, {0}, arg_value(e_bool(arena, true))};
    Stmt *started = s_call(arena, OP_COPY, COUNT_OF(args), args);
    assert_ptr_equal(copy_of(started).bar, bar);
    assert_ptr_equal(ARG(started, COPY, bar).region, bar);
    assert_true(expr_is_int(copy_of(started).evict_first, 1));
    Stmt *wait = s_call(arena, OP_AWAIT, 2, (Arg[]){arg_region(to), arg_name("reads")});
    assert_string_equal(await_of(wait).what->name, "reads");
    assert_ptr_equal(await_of(wait).x->region, to);
}

// Every operand of every row is at the place that its name has.
static void names_are_places(void **state) {
    (void)state;
#define OPERAND(operand, ...)                                                                                          \
    assert_string_equal(op_operand(op, place)->name, #operand);                                                        \
    place++;
#define OPERANDS(...) __VA_ARGS__
#define OP(NAME, text, stages, result, by, done, feature, classes, summary, operands)                                  \
    do {                                                                                                               \
        OpId op = OP_##NAME;                                                                                           \
        int place = 0;                                                                                                 \
        operands assert_int_equal(op_info(op)->operand_count, place);                                                  \
        assert_int_equal(sizeof(NAME##_Operands), (size_t)(place + 1) * sizeof(void *));                               \
    } while (0);
#include "ir/ops.def"
#undef OP
#undef OPERANDS
#undef OPERAND
}

static void mechanisms_have_names(void **state) {
    Arena *arena = *state;
    Stmt *copy = s_call(arena, OP_COPY, 2,
                        (Arg[]){arg_region(tile(arena, SCOPE_GLOBAL)), arg_region(tile(arena, SCOPE_SHARED))});
    assert_int_equal(via_of(copy), VIA_NONE);
    for (int via = VIA_NONE + 1; via < VIA_COUNT; via++) {
        via_set(arena, copy, (Via)via);
        assert_true(via_is(copy, (Via)via));
        assert_string_equal(attr_text(copy->attrs, ATTR_VIA), via_text((Via)via));
    }
    attr_set_text(arena, &copy->attrs, ATTR_VIA, "pigeon");
    assert_int_equal(via_of(copy), VIA_NONE);
    via_set(arena, copy, VIA_NONE);
    assert_null(attr_get(copy->attrs, ATTR_VIA));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_ARENA(loops_visit_in_order), IN_ARENA(loops_skip_and_stop),   IN_ARENA(operands_have_names),
        IN_ARENA(names_are_places),     IN_ARENA(mechanisms_have_names),
    };
    return run(tests);
}
