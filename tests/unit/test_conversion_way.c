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

// Of maps that bits do not say: no more than vectors without conflicts take, 128 bytes of a warp at a time.
static void a_price_by_loops_is_a_lower_bound(void **state) {
    static const Type types[] = {TYPE_I8, TYPE_F16, TYPE_F32, TYPE_F64};
    for (int i = 0; i < COUNT_OF(types); i++) {
        Arena *arena = *state;
        PassContext context = {.arena = arena, .target = target_named("sm_90a")};
        const WarpCosts *costs = &context.target->costs;
        const Buf *rows = fragment_of(arena, types[i], "(32,24):(1@0,1@1)");
        const Buf *columns = fragment_of(arena, types[i], "((8,4),(8,3)):((3@1,8@0),(1@0,1@1))");
        ConversionWay way = conversion_between(&context, rows, columns);
        int64_t tile = 32 * 24 * type_bytes(types[i]);
        assert_int_equal(way.clocks, 0);
        assert_int_equal(way.quarters, 2 * tile / 128 * costs->wavefront + costs->barrier);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {IN_ARENA(a_price_by_loops_is_a_lower_bound)};
    return run(tests);
}
