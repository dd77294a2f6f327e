// Prices of conversions between layouts of fragments.
#include "ir/build.h"
#include "passes/layout/conversion_way.h"
#include "target/target.h"
#include "tests/unit/unit.h"

static Buf *fragment_of(Arena *arena, Type type, const char *layout) {
    const char *why = "no reason";
    Buf *buf = buf_new_const(arena, "v", SCOPE_FRAGMENT, type, 2, (int64_t[]){32, 24}, (Span){0});
    buf->layout = layout_parse(arena, layout, type_bits(type), &why);
    if (!buf->layout) fail_msg("%s: %s", layout, why);
    return buf;
}

// No less than vectors without conflicts take, 128 bytes of a warp at a time. By loops where columns are 8 x 3 of the one
// and 3 x 8 of the other.
static void prices_have_a_lower_bound(void **state) {
    static const Type types[] = {TYPE_I8, TYPE_F16, TYPE_F32, TYPE_F64};
    static const struct {
        const char *from, *to;
        bool by_loops;
    } pairs[] = {{"(32,24):(1@0,1@1)", "((8,4),(8,3)):((3@1,8@0),(1@0,1@1))", false},
                 {"((8,4),(3,8)):((1@1,1@0),(8@1,4@0))", "((8,4),(3,8)):((3@1,1@0),(1@1,4@0))", true}};
    for (int i = 0; i < COUNT_OF(types) * COUNT_OF(pairs); i++) {
        Arena *arena = *state;
        Type type = types[i / COUNT_OF(pairs)];
        PassContext context = {.arena = arena, .target = target_named("sm_90a")};
        const WarpCosts *costs = &context.target->costs;
        const Buf *from = fragment_of(arena, type, pairs[i % COUNT_OF(pairs)].from);
        const Buf *to = fragment_of(arena, type, pairs[i % COUNT_OF(pairs)].to);
        ConversionWay way = conversion_between(&context, from, to);
        int64_t least = 2 * 32 * 24 * type_bytes(type) / 128 * costs->wavefront + costs->barrier;
        assert_int_equal(way.by_loops, pairs[i % COUNT_OF(pairs)].by_loops);
        assert_false(way.within_warps);
        assert_true(way.quarters >= least && way.clocks * COST_CLOCK >= way.quarters);
        assert_non_null(way.scratch);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {IN_ARENA(prices_have_a_lower_bound)};
    return run(tests);
}
