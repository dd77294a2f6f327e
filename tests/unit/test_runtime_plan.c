// Launch plans: read, written, resolved to actions.
#include "runtime/plan/launch_cache.h"
#include "tests/unit/unit.h"
#include <pthread.h>
#include <string.h>

// Two variants of a kernel, and a program with scratch that calls it.
static const char manifest[] =
    "{\"manifest\": 10, \"producer\": \"test\", \"target\": \"sm_80\", \"entries\": [\n"
    " {\"name\": \"scale\", \"kind\": \"kernel\", \"variants\": [\n"
    "  {\"when\": \"N % 8 == 0 && x_address % 16 == 0\",\n"
    "   \"params\": [{\"name\": \"x\", \"type\": \"f32\", \"mode\": \"in\", \"shape\": [\"M\", \"N\"], \"strides\": [\"ldx\", \"1\"]},\n"
    "              {\"name\": \"y\", \"type\": \"f32\", \"mode\": \"out\", \"shape\": [\"M\", \"N\"]},\n"
    "              {\"name\": \"by\", \"type\": \"f32\"}],\n"
    "   \"maps\": [{\"name\": \"x_map\", \"at\": 0, \"tensor\": \"x\", \"box\": [32, 64], \"swizzle\": 128},\n"
    "             {\"name\": \"y_map\", \"at\": 3, \"tensor\": \"y\", \"box\": [4, 1], \"swizzle\": 0, \"tf32\": true}],\n"
    "   \"dims\": [\"M\", \"N\", \"ldx\"], \"steps\": [{\"do\": \"assume\", \"value\": \"ldx >= N\"}],\n"
    "   \"symbol\": \"scale\", \"grid\": \"ceildiv(M, 4) * ceildiv(N, 128)\", \"threads\": 128, \"shared\": 1024},\n"
    "  {\"params\": [{\"name\": \"x\", \"type\": \"f32\", \"mode\": \"in\", \"shape\": [\"M\", \"N\"], \"strides\": [\"ldx\", \"1\"]},\n"
    "              {\"name\": \"y\", \"type\": \"f32\", \"mode\": \"out\", \"shape\": [\"M\", \"N\"]},\n"
    "              {\"name\": \"by\", \"type\": \"f32\"}],\n"
    "   \"dims\": [\"M\", \"N\", \"ldx\"], \"steps\": [{\"do\": \"let\", \"name\": \"rows\", \"type\": \"i64\", \"value\": \"ceildiv(M, 2)\"}],\n"
    "   \"symbol\": \"scale__1\", \"grid\": \"min(rows, sms())\", \"threads\": 64, \"shared\": 0}]},\n"
    " {\"name\": \"twice\", \"kind\": \"program\", \"variants\": [\n"
    "  {\"params\": [{\"name\": \"x\", \"type\": \"f32\", \"mode\": \"in\", \"alias\": \"y\", \"shape\": [\"M\", \"8\"]},\n"
    "              {\"name\": \"y\", \"type\": \"f32\", \"mode\": \"out\", \"shape\": [\"M\", \"8\"]}],\n"
    "   \"dims\": [\"M\"], \"steps\": [\n"
    "    {\"do\": \"scratch\", \"name\": \"t\", \"type\": \"f32\", \"shape\": [\"2\", \"M\", \"8\"]},\n"
    "    {\"do\": \"fill\", \"tensor\": \"t\", \"value\": \"1.0\"},\n"
    "    {\"do\": \"launch\", \"name\": \"scale\", \"args\": [{\"tensor\": \"x\"},\n"
    "       {\"tensor\": \"t\", \"start\": [\"1\", \"0\", \"0\"], \"extent\": [null, \"M\", \"8\"]}, {\"value\": \"2.0\"}]},\n"
    "    {\"do\": \"if\", \"value\": \"M > 4\", \"then\": [{\"do\": \"launch\", \"name\": \"scale\", \"args\": [\n"
    "       {\"tensor\": \"t\", \"start\": [\"1\", \"0\", \"0\"], \"extent\": [null, \"M\", \"8\"]}, {\"tensor\": \"y\"}, {\"value\": \"0.5\"}]}],\n"
    "       \"else\": []}]}]},\n"
    " {\"name\": \"counted\", \"kind\": \"program\", \"variants\": [\n"
    "  {\"params\": [{\"name\": \"x\", \"type\": \"f32\", \"mode\": \"in\", \"shape\": [\"M\", \"8\"]},\n"
    "              {\"name\": \"y\", \"type\": \"f32\", \"mode\": \"out\", \"shape\": [\"M\", \"8\"]}],\n"
    "   \"dims\": [\"M\"], \"steps\": [\n"
    "    {\"do\": \"scratch\", \"name\": \"t\", \"type\": \"f32\", \"shape\": [\"M\", \"8\"]},\n"
    "    {\"do\": \"scratch\", \"name\": \"n\", \"type\": \"f32\", \"shape\": [\"4\", \"8\"], \"zeroed\": true},\n"
    "    {\"do\": \"launch\", \"name\": \"scale\", \"args\": [{\"tensor\": \"n\"}, {\"tensor\": \"n\"}, {\"value\": \"2.0\"}]}]}]}]}\n";

static const LaunchDevice device = {.multiprocessors = 3, .max_grid = INT32_MAX};

typedef struct Fixture {
    Arena *arena;
    Failure failure;
    DiagSink *sink;
    const Plan *plan;
} Fixture;

static void setup(Fixture *f, Arena *arena) {
    f->arena = arena;
    f->sink = diag_sink_new(arena);
    if (FAILURE_CAUGHT(&f->failure)) fail_msg("%s", f->failure.message);
    f->plan = plan_read(arena, &f->failure, f->sink, manifest, strlen(manifest));
    assert_non_null(f->plan);
}

static LaunchArg tensor(uint64_t address, int64_t rows, int64_t columns) {
    LaunchArg arg = {.is_tensor = true, .address = address, .rank = 2, .shape = {rows, columns}};
    launch_arg_dense(&arg);
    return arg;
}

static LaunchArg real(double value) {
    return (LaunchArg){.scalar = {.type = TYPE_F64, .real = value}};
}

static bool resolve(Fixture *f, const char *name, int count, const LaunchArg *args, Launch *out) {
    return plan_dispatch(f->arena, f->sink, f->plan, plan_entry(f->plan, name), count, args, &device,
                         (LaunchMemory){0x10000, 0}, out);
}

static void test_first_variant(void **state) {
    Fixture f;
    Launch launch;
    setup(&f, *state);
    LaunchArg args[] = {tensor(0x1000, 10, 256), tensor(0x2000, 10, 256), real(0.5)};
    assert_true(resolve(&f, "scale", 3, args, &launch));
    assert_int_equal(launch.actions.count, 1);
    const Action *a = &launch.actions.items[0];
    assert_string_equal(a->variant->symbol, "scale");
    assert_int_equal(a->grid, 3 * 2);
    assert_int_equal(a->param_count, 8);   // x_map, x, y, y_map, by, M, N, ldx
    assert_int_equal(a->params[1], 0x1000);
    assert_int_equal(a->params[2], 0x2000);
    assert_int_equal(a->params[4], 0x3f000000);   // 0.5f
    assert_int_equal(a->params[5], 10);
    assert_int_equal(a->params[7], 256);
}

// A map's request is all in the order of the hardware: the innermost dim first.
static void test_maps(void **state) {
    Fixture f;
    Launch launch;
    setup(&f, *state);
    LaunchArg args[] = {tensor(0x1000, 10, 256), tensor(0x2000, 10, 256), real(0.5)};
    args[0].strides[0] = 320;
    assert_true(resolve(&f, "scale", 3, args, &launch));
    const MapRequest *x = &launch.actions.items[0].maps[0], *y = &launch.actions.items[0].maps[1];
    assert_int_equal(x->type, TYPE_F32);
    assert_int_equal(x->rank, 2);
    assert_int_equal(x->swizzle, 128);
    assert_int_equal(x->address, 0x1000);
    assert_int_equal(x->box[0], 32);
    assert_int_equal(x->extent[0], 256);
    assert_int_equal(x->extent[1], 10);
    assert_int_equal(x->stride[0], 4);
    assert_int_equal(x->stride[1], 320 * 4);
    assert_int_equal(y->address, 0x2000);
    assert_int_equal(y->box[1], 1);
    assert_true(y->tf32 && !x->tf32);
}

// The innermost dim of the argument need not be its last one.
static void test_inner_maps(void **state) {
    static const char text[] =
        "{\"manifest\": 10, \"target\": \"sm_90a\", \"entries\": [{\"name\": \"k\", \"kind\": \"kernel\", "
        "\"variants\": [{\"params\": [{\"name\": \"x\", \"type\": \"f32\", \"shape\": [\"B\", \"M\", \"K\"], "
        "\"strides\": [\"s\", \"1\", \"t\"], \"innermost\": 1}], \"dims\": [\"B\", \"M\", \"K\", \"s\", \"t\"], "
        "\"maps\": [[\"x\", 32, 8, 1]], \"symbol\": \"k\", \"grid\": \"1\", \"threads\": 32}]}]}";
    static const int64_t shape[] = {3, 64, 20}, strides[] = {2048, 1, 72};
    Fixture f;
    Launch launch;
    setup(&f, *state);
    f.plan = plan_read(f.arena, &f.failure, f.sink, text, sizeof text - 1);
    assert_non_null(f.plan);
    LaunchArg arg = {.is_tensor = true, .rank = 3, .address = 0x1000};
    memcpy(arg.shape, shape, sizeof shape);
    memcpy(arg.strides, strides, sizeof strides);
    assert_true(resolve(&f, "k", 1, &arg, &launch));
    const MapRequest *x = &launch.actions.items[0].maps[0];
    static const int order[] = {1, 2, 0};
    for (int d = 0; d < 3; d++) {
        assert_int_equal(x->extent[d], shape[order[d]]);
        assert_int_equal(x->stride[d], strides[order[d]] * 4);
    }
}

// Whether a plan with this map of the tensor x: f32[8, 8] is read.
static bool map_is_read(Fixture *f, const char *map) {
    char *text = arena_printf(f->arena,
                              "{\"manifest\": 10, \"target\": \"sm_90a\", \"entries\": [{\"name\": \"k\", \"kind\": "
                              "\"kernel\", \"variants\": [{\"params\": [{\"name\": \"x\", \"type\": \"f32\", "
                              "\"mode\": \"in\", \"shape\": [\"8\", \"8\"]}, {\"name\": \"n\", \"type\": \"i32\"}], "
                              "\"maps\": [%s], \"dims\": [], \"symbol\": \"k\", \"grid\": \"1\", \"threads\": 1}]}]}",
                              map);
    int before = diag_count(f->sink);
    if (plan_read(f->arena, &f->failure, f->sink, text, strlen(text))) return true;
    assert_int_equal(diag_view(f->sink, before).code, T_BAD_ARTEFACT);
    return false;
}

static void test_bad_maps(void **state) {
    static const char *const bad[] = {
        "{\"name\": \"m\", \"at\": 0, \"tensor\": \"y\", \"box\": [8, 8], \"swizzle\": 0}",
        "{\"name\": \"m\", \"at\": 0, \"tensor\": \"n\", \"box\": [8, 8], \"swizzle\": 0}",
        "{\"name\": \"m\", \"at\": 0, \"tensor\": \"x\", \"box\": [8], \"swizzle\": 0}",
        "{\"name\": \"m\", \"at\": 0, \"tensor\": \"x\", \"box\": [8, 8, 1, 1, 1, 1], \"swizzle\": 0}",
        "{\"name\": \"m\", \"at\": 0, \"tensor\": \"x\", \"box\": [8, 0], \"swizzle\": 0}",
        "{\"name\": \"m\", \"at\": 0, \"tensor\": \"x\", \"box\": [8, 8], \"swizzle\": 48}",
        "{\"name\": \"m\", \"at\": 0, \"tensor\": \"n\", \"box\": [8, 8], \"swizzle\": 0, \"tf32\": true}",
        "{\"name\": \"m\", \"at\": 3, \"tensor\": \"x\", \"box\": [8, 8], \"swizzle\": 0}",
        "[\"x\", 8]",
        "[\"n\", 8, 8]",
        "[\"x\", 8, 8, 1, 1, 1, 1]",
        "[8, 8]",
    };
    Fixture f;
    setup(&f, *state);
    assert_true(map_is_read(&f, "{\"name\": \"m\", \"at\": 2, \"tensor\": \"x\", \"box\": [8, 8], \"swizzle\": 0}"));
    assert_true(map_is_read(&f, "{\"tensor\": \"x\", \"box\": [8, 8], \"swizzle\": 0}"));   // behind the parameters
    assert_true(map_is_read(&f, "[\"x\", 8, 8]"));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (map_is_read(&f, bad[i])) fail_msg("read: %s", bad[i]);
}

// Maps of views of x: bf16[B, H, W, C], by a kernel with this map.
static const Plan *plan_with_map(Fixture *f, const char *map) {
    char *text =
        arena_printf(f->arena,
                     "{\"manifest\": 10, \"target\": \"sm_90a\", \"entries\": [{\"name\": \"k\", \"kind\": "
                     "\"kernel\", \"variants\": [{\"params\": [{\"name\": \"x\", \"type\": \"bf16\", "
                     "\"mode\": \"in\", \"shape\": [\"B\", \"H\", \"W\", \"C\"]}], \"maps\": [{\"name\": \"m\", "
                     "\"at\": 1, \"tensor\": \"x\", \"box\": [64, 128], \"swizzle\": 128, %s}], \"dims\": "
                     "[\"B\", \"H\", \"W\", \"C\"], \"symbol\": \"k\", \"grid\": \"1\", \"threads\": 1}]}]}",
                     map);
    return plan_read(f->arena, &f->failure, f->sink, text, strlen(text));
}

static const MapRequest *view_request(Fixture *f, const char *map) {
    Launch *launch = NEW(f->arena, Launch);
    LaunchArg x = {.is_tensor = true, .address = 0x1000, .rank = 4, .shape = {2, 9, 12, 64}};
    launch_arg_dense(&x);
    const Plan *plan = plan_with_map(f, map);
    assert_non_null(plan);
    assert_true(
        plan_dispatch(f->arena, f->sink, plan, plan_entry(plan, "k"), 1, &x, &device, (LaunchMemory){0}, launch));
    return &launch->actions.items[0].maps[0];
}

// Of 7 x 7 at every second pixel, with a border of 3: the first tap is at -3, then 5 or 6 times 2 further. That place,
// from the last pixel on, is the upper corner.
static void test_view_maps(void **state) {
    Fixture f;
    setup(&f, *state);
    const MapRequest *walks =
        view_request(&f, "\"im2col\": {\"lower\": [-3, -3], \"upper\": [\"((W + 1) / 2 - 1) * 2 - (W - 1) - 3\", "
                         "\"((H + 1) / 2 - 1) * 2 - (H - 1) - 3\"], \"strides\": [2, 2]}");
    assert_int_equal(walks->windows, 2);
    assert_int_equal(walks->rank, 4);
    assert_true(walks->lower[0] == -3 && walks->upper[0] == -4 && walks->upper[1] == -3 && walks->steps[1] == 2);
    assert_true(walks->box[0] == 64 && walks->box[1] == 128 && walks->extent[1] == 12 && walks->stride[3] == 13824);
    const MapRequest *merged = view_request(&f, "\"merged\": true");
    assert_int_equal(merged->windows, 0);
    assert_int_equal(merged->rank, 2);
    assert_true(merged->extent[0] == 64 && merged->extent[1] == 216 && merged->stride[1] == 128);
    const MapRequest *far =
        view_request(&f, "\"im2col\": {\"lower\": [0, 0], \"upper\": [\"1 << 40\", \"-(1 << 40)\"], "
                         "\"strides\": [1, 1]}");   // the encoder refuses both
    assert_true(far->upper[0] == INT32_MAX && far->upper[1] == INT32_MAX);
    const Plan *zero =
        plan_with_map(&f, "\"im2col\": {\"lower\": [0, 0], \"upper\": [\"1 / (W - 12)\", \"0\"], \"strides\": [1, 1]}");
    LaunchArg x = {.is_tensor = true, .address = 0x1000, .rank = 4, .shape = {2, 9, 12, 64}};
    launch_arg_dense(&x);
    int before = diag_count(f.sink);
    assert_false(
        plan_dispatch(f.arena, f.sink, zero, plan_entry(zero, "k"), 1, &x, &device, (LaunchMemory){0}, &(Launch){0}));
    assert_int_equal(diag_view(f.sink, before).code, T_HOST_VALUE);
    static const char *const bad[] = {
        "\"merged\": false",
        "\"merged\": true, \"im2col\": {\"lower\": [0, 0], \"upper\": [\"0\", \"0\"], \"strides\": [1, 1]}",
        "\"im2col\": {\"lower\": [0], \"upper\": [\"0\"], \"strides\": [1]}",
        "\"im2col\": {\"lower\": [0, 0], \"upper\": [\"0\", \"0\"], \"strides\": [1, 9]}",
        "\"im2col\": {\"lower\": [0, 0], \"upper\": [\"0\", \"Z\"], \"strides\": [1, 1]}",
        "\"im2col\": {\"lower\": [0], \"upper\": [\"0\", \"0\"], \"strides\": [1, 1]}",
        "\"im2col\": {}",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (plan_with_map(&f, bad[i])) fail_msg("read: %s", bad[i]);
}

static void test_second_variant(void **state) {
    Fixture f;
    Launch launch;
    setup(&f, *state);
    LaunchArg odd[] = {tensor(0x1000, 10, 255), tensor(0x2000, 10, 255), real(1)};
    assert_true(resolve(&f, "scale", 3, odd, &launch));
    assert_string_equal(launch.actions.items[0].variant->symbol, "scale__1");
    assert_int_equal(launch.actions.items[0].grid, 3);   // 5 rows, 3 multiprocessors
    LaunchArg unaligned[] = {tensor(0x1004, 2, 256), tensor(0x2000, 2, 256), real(1)};
    assert_true(resolve(&f, "scale", 3, unaligned, &launch));
    assert_string_equal(launch.actions.items[0].variant->symbol, "scale__1");
}

static void test_strides(void **state) {
    Fixture f;
    Launch launch;
    setup(&f, *state);
    LaunchArg args[] = {tensor(0x1000, 4, 256), tensor(0x2000, 4, 256), real(1)};
    args[0].strides[0] = 300;
    assert_true(resolve(&f, "scale", 3, args, &launch));
    assert_int_equal(launch.actions.items[0].params[7], 300);
    args[0].strides[0] = 100;   // violates the contract of the chosen variant
    assert_false(resolve(&f, "scale", 3, args, &launch));
    assert_int_equal(diag_view(f.sink, 0).code, T_ASSUME_FAILED);   // covers T0907
    args[0].strides[0] = 256;
    args[1].strides[0] = 512;   // y has no strides: it must be dense
    assert_false(resolve(&f, "scale", 3, args, &launch));
    args[1].shape[0] = args[0].shape[0] = 1;   // with one row no stride matters
    assert_true(resolve(&f, "scale", 3, args, &launch));
}

static void test_empty_grid(void **state) {
    Fixture f;
    Launch launch;
    setup(&f, *state);
    LaunchArg args[] = {tensor(0x1000, 0, 256), tensor(0x2000, 0, 256), real(1)};
    assert_true(resolve(&f, "scale", 3, args, &launch));
    assert_int_equal(launch.actions.count, 0);
}

static void refuses(Fixture *f, DiagCode code, int count, const LaunchArg *args) {
    Launch launch;
    int before = diag_count(f->sink);
    assert_false(resolve(f, "scale", count, args, &launch));
    assert_int_equal(diag_view(f->sink, before).code, code);
}

static void test_refuses(void **state) {
    Fixture f;
    setup(&f, *state);
    LaunchArg good[] = {tensor(0x1000, 4, 8), tensor(0x2000, 4, 8), real(1)};
    refuses(&f, T_ARGUMENT_COUNT, 2, good);   // covers T0904
    LaunchArg kinds[] = {tensor(0x1000, 4, 8), real(1), real(1)};
    refuses(&f, T_ARGUMENT_KIND, 3, kinds);   // covers T0905
    LaunchArg shapes[] = {tensor(0x1000, 4, 8), tensor(0x2000, 5, 8), real(1)};
    refuses(&f, T_NO_VARIANT, 3, shapes);   // covers T0906
    LaunchArg rank[] = {tensor(0x1000, 4, 8), tensor(0x2000, 4, 8), real(1)};
    rank[1].rank = 1;
    refuses(&f, T_NO_VARIANT, 3, rank);
    LaunchArg huge[] = {tensor(0x1000, INT64_C(1) << 40, 8), tensor(0x2000, INT64_C(1) << 40, 8), real(1)};
    refuses(&f, T_GRID_SIZE, 3, huge);   // covers T0913
}

// Arguments of another kind or rank than the parameter's.
static void test_refuses_kinds(void **state) {
    Fixture f;
    setup(&f, *state);
    LaunchArg x = tensor(0x1000, 4, 8), row = x;
    row.rank = 1;
    refuses(&f, T_ARGUMENT_KIND, 3, (LaunchArg[]){x, tensor(0x2000, 4, 8), tensor(0x3000, 4, 8)});
    refuses(&f, T_NO_VARIANT, 3, (LaunchArg[]){row, tensor(0x2000, 4, 8), real(1)});
    x.strides[1] = 2;
    refuses(&f, T_NO_VARIANT, 3, (LaunchArg[]){x, tensor(0x2000, 4, 8), real(1)});   // `strides [ldx, 1]`
}

static bool separate(Fixture *f, LaunchArg x, LaunchArg y) {
    return plan_arguments_separate(f->sink, plan_entry(f->plan, "scale"), 3, (LaunchArg[]){x, y, real(1)});
}

// Tensors that share memory are refused, also one for both; interleaved rows are not.
static void test_arguments_separate(void **state) {
    Fixture f;
    setup(&f, *state);
    assert_true(separate(&f, tensor(0x1000, 4, 8), tensor(0x1080, 4, 8)));
    assert_true(separate(&f, tensor(0x1080, 4, 8), tensor(0x1000, 4, 8)));
    assert_true(separate(&f, tensor(0x1000, 0, 8), tensor(0x1000, 4, 8)));
    assert_true(separate(&f, tensor(0, 4, 8), tensor(0, 4, 4)));
    assert_int_equal(diag_count(f.sink), 0);
    assert_false(separate(&f, tensor(0x1000, 4, 8), tensor(0x107c, 4, 8)));
    assert_int_equal(diag_view(f.sink, 0).code, T_ARGUMENTS_OVERLAP);   // covers T0928
    assert_false(separate(&f, tensor(0x1004, 4, 8), tensor(0x1000, 4, 8)));
    assert_false(separate(&f, tensor(0x1000, 4, 8), tensor(0x1000, 5, 8)));
    assert_false(separate(&f, tensor(0x1000, 4, 8), tensor(0x1000, 4, 8)));
    LaunchArg rows[] = {tensor(0x1000, 4, 8), tensor(0x1020, 4, 8)};
    rows[0].strides[0] = rows[1].strides[0] = 16;
    assert_true(separate(&f, rows[0], rows[1]));
    rows[1].address = rows[0].address;
    assert_false(separate(&f, rows[0], rows[1]));
}

// What is not compared: rows of another rank, arguments that are too few, and tensors that are both read.
static void test_arguments_compared(void **state) {
    Fixture f;
    setup(&f, *state);
    LaunchArg x = tensor(0x1000, 4, 8), flat = {.is_tensor = true, .address = 0x1000, .rank = 1, .shape = {32}};
    launch_arg_dense(&flat);
    const PlanEntry *scale = plan_entry(f.plan, "scale");
    VEC_EACH (PlanVariant, variant, &((PlanEntry *)scale)->variants) variant->params.items[1].alias = "x";
    assert_true(separate(&f, x, tensor(0x1000, 4, 8)));   // named by the other one
    assert_false(separate(&f, x, flat));
    assert_true(plan_arguments_separate(f.sink, scale, 2, (LaunchArg[]){x, flat}));   // dispatch counts them
    assert_true(separate(&f, x, tensor(0, 4, 8)));
    LaunchArg wide = tensor(0x1010, 4, 8), column = tensor(0x1000, 4, 1), same = tensor(0x1000, 4, 1);
    wide.strides[0] = 9;
    assert_true(separate(&f, x, wide));   // has gaps, in which the other may lie
    same.strides[1] = 7;                  // of one element
    assert_true(separate(&f, column, same));
    VEC_EACH (PlanVariant, variant, &((PlanEntry *)scale)->variants) {
        variant->params.items[1].alias = "by";
        assert_false(separate(&f, x, tensor(0x1000, 4, 8)));
    }
    VEC_EACH (PlanVariant, variant, &((PlanEntry *)scale)->variants) variant->params.items[1].mode = MODE_IN;
    assert_true(separate(&f, x, tensor(0x1000, 4, 8)));
}

// With an alias in all variants one tensor may be both, in the same strides; a part of it may not.
static void test_aliases(void **state) {
    Fixture f;
    setup(&f, *state);
    VEC_EACH (PlanVariant, variant, &((PlanEntry *)plan_entry(f.plan, "scale"))->variants) {
        assert_false(separate(&f, tensor(0x1000, 4, 8), tensor(0x1000, 4, 8)));
        variant->params.items[0].alias = "y";
    }
    assert_true(separate(&f, tensor(0x1000, 4, 8), tensor(0x1000, 4, 8)));
    assert_true(separate(&f, tensor(0x1000, 4, 8), tensor(0x1080, 4, 8)));
    assert_false(separate(&f, tensor(0x1000, 4, 8), tensor(0x1020, 4, 8)));
    assert_false(separate(&f, tensor(0x1000, 4, 8), tensor(0x1000, 8, 4)));
    LaunchArg wide = tensor(0x1000, 4, 8);
    wide.strides[0] = 16;
    assert_false(separate(&f, wide, tensor(0x1000, 4, 8)));
}

// Shapes and strides that 64 bits cannot count are refused, whatever they would wrap to; strides that no address
// depends on may be anything.
static void test_refuses_uncountable(void **state) {
    const int64_t large = INT64_C(1) << 32;
    Fixture f;
    Launch launch;
    setup(&f, *state);
    LaunchArg many[] = {tensor(0x1000, large, large), tensor(0x2000, large, large), real(1)};
    refuses(&f, T_NO_VARIANT, 3, many);
    for (int i = 0; i < 2; i++) many[i].strides[0] = many[i].strides[1] = 0;
    refuses(&f, T_NO_VARIANT, 3, many);
    LaunchArg far[] = {tensor(0x1000, 4, 8), tensor(0x2000, 4, 8), real(1)};
    far[0].strides[0] = INT64_MAX / 8;
    refuses(&f, T_NO_VARIANT, 3, far);
    far[0].strides[0] = INT64_MIN;
    refuses(&f, T_NO_VARIANT, 3, far);
    LaunchArg two[] = {tensor(0x1000, 2, 2), tensor(0x2000, 2, 2), real(1)};
    two[0].strides[0] = -(INT64_C(1) << 61);   // times 4 bytes: the one number that has no positive
    refuses(&f, T_NO_VARIANT, 3, two);
    two[0].strides[0] = two[0].strides[1] = INT64_C(1) << 60;   // each fits, both do not
    refuses(&f, T_NO_VARIANT, 3, two);
    LaunchArg row[] = {tensor(0x1000, 1, 8), tensor(0x2000, 1, 8), real(1)};
    row[0].strides[0] = INT64_MAX / 2;
    assert_true(resolve(&f, "scale", 3, row, &launch));
    LaunchArg none[] = {tensor(0x1000, 0, INT64_MAX), tensor(0x2000, 0, INT64_MAX), real(1)};
    none[0].strides[0] = INT64_MAX;
    assert_true(resolve(&f, "scale", 3, none, &launch));
}

static void test_program(void **state) {
    Fixture f;
    Launch launch;
    setup(&f, *state);
    LaunchArg args[] = {tensor(0x1000, 10, 8), tensor(0x2000, 10, 8)};
    assert_true(resolve(&f, "twice", 2, args, &launch));
    assert_int_equal(launch.workspace, 768);   // 2 * 10 * 8 * 4 bytes, rounded up to 256
    assert_int_equal(launch.actions.count, 3);
    const Action *fill = &launch.actions.items[0];
    assert_null(fill->variant);
    assert_int_equal(fill->address, 0x10000);
    assert_int_equal(fill->count, 160);
    assert_int_equal(fill->pattern, 0x3f800000);
    assert_int_equal(launch.actions.items[1].params[2], 0x10000 + 320);
    assert_int_equal(launch.actions.items[2].params[1], 0x10000 + 320);
    args[0] = tensor(0x1000, 3, 8), args[1] = tensor(0x2000, 3, 8);
    assert_true(resolve(&f, "twice", 2, args, &launch));
    assert_int_equal(launch.actions.count, 2);
}

// What kernels leave zero lies apart, or in the workspace, where it is filled first.
static void test_zeroed(void **state) {
    Fixture f;
    Launch launch;
    setup(&f, *state);
    LaunchArg args[] = {tensor(0x1000, 10, 8), tensor(0x2000, 10, 8)};
    const LaunchMemory distance = {.workspace = 0x10000, .zeroed = 0x20000}, all = {.workspace = 0x10000};
    const PlanEntry *counted = plan_entry(f.plan, "counted");
    assert_true(plan_dispatch(f.arena, f.sink, f.plan, counted, 2, args, &device, distance, &launch));
    assert_int_equal(launch.workspace, 512);
    assert_int_equal(launch.zeroed, 256);
    assert_int_equal(launch.actions.count, 1);
    assert_int_equal(launch.actions.items[0].params[1], 0x20000);
    assert_true(plan_dispatch(f.arena, f.sink, f.plan, counted, 2, args, &device, all, &launch));
    assert_int_equal(launch.workspace, 768);
    assert_int_equal(launch.zeroed, 256);
    assert_int_equal(launch.actions.count, 2);
    assert_null(launch.actions.items[0].variant);
    assert_int_equal(launch.actions.items[0].address, 0x10000 + 512);
    assert_int_equal(launch.actions.items[0].count, 32);
    assert_int_equal(launch.actions.items[0].pattern, 0);
    assert_int_equal(launch.actions.items[1].params[1], 0x10000 + 512);
}

static void test_round_trip(void **state) {
    Fixture f;
    StrBuf first, second;
    setup(&f, *state);
    sb_init(&first, f.arena);
    sb_init(&second, f.arena);
    plan_write(f.plan, &first);
    const Plan *again = plan_read(f.arena, &f.failure, f.sink, sb_text(&first), first.length);
    assert_non_null(again);
    plan_write(again, &second);
    assert_string_equal(sb_text(&first), sb_text(&second));
}

// A program that does nothing is one, too.
static void test_empty_variant(void **state) {
    static const char text[] =
        "{\"manifest\": 10, \"producer\": \"test\", \"target\": \"sm_90a\", \"entries\": [{\"name\": \"k\", \"kind\": \"kernel\","
        " \"variants\": [{\"when\": \"n > 2\", \"params\": [{\"name\": \"n\", \"type\": \"i64\"}], \"steps\": []},"
        " {\"params\": [{\"name\": \"n\", \"type\": \"i64\"}], \"symbol\": \"k\", \"grid\": \"1\", \"threads\": 32}]}]}";
    Fixture f;
    StrBuf out;
    setup(&f, *state);
    sb_init(&out, f.arena);
    const Plan *plan = plan_read(f.arena, &f.failure, f.sink, text, sizeof text - 1);
    assert_non_null(plan);
    plan_write(plan, &out);
    plan = plan_read(f.arena, &f.failure, f.sink, sb_text(&out), out.length);
    assert_non_null(plan);
    assert_null(plan->entries.items[0].variants.items[0].symbol);
    assert_non_null(plan->entries.items[0].variants.items[1].symbol);
}

// Values of tunables have the names of the variant before, if those are the same.
static void test_tuned_values(void **state) {
#define TUNED(VALUES) "{\"tuned\":" VALUES ",\"symbol\":\"k\",\"grid\":\"1\",\"threads\":32}"
#define PLAN(VARIANTS)                                                                                                 \
    "{\"manifest\": 10, \"target\": \"sm_80\", \"entries\": [{\"name\": \"k\", \"kind\": \"kernel\", "                 \
    "\"variants\": [" VARIANTS "]}]}"
    static const char text[] =
        PLAN(TUNED("{\"A\":1,\"B\":2}") "," TUNED("{\"A\":3,\"B\":4}") "," TUNED("{\"A\":5}") "," TUNED("{\"B\":6}"));
    static const char nameless[] = PLAN(TUNED("{\"A\":1}") "," TUNED("[1,2]"));
    Fixture f;
    StrBuf out;
    setup(&f, *state);
    sb_init(&out, f.arena);
    const Plan *plan = plan_read(f.arena, &f.failure, f.sink, text, sizeof text - 1);
    assert_non_null(plan);
    plan_write(plan, &out);
    assert_non_null(strstr(sb_text(&out), "\"tuned\":[3,4]"));
    assert_non_null(strstr(sb_text(&out), "\"tuned\":{\"B\":6}"));
    plan = plan_read(f.arena, &f.failure, f.sink, sb_text(&out), out.length);
    assert_non_null(plan);
    const PlanVariant *second = &plan->entries.items[0].variants.items[1];
    assert_int_equal(second->tuned.count, 2);
    assert_string_equal(second->tuned.items[1].name, "B");
    assert_int_equal(second->tuned.items[1].value, 4);
    assert_null(plan_read(f.arena, &f.failure, f.sink, nameless, sizeof nameless - 1));
#undef TUNED
#undef PLAN
}

// Grids that differ in the values of tunables are said one time, in their names; so are equal numbers of threads.
static void test_grids_of_tunables(void **state) {
#define VARIANT(VALUES, SYMBOL, GRID) "{\"tuned\":" VALUES ",\"symbol\":\"" SYMBOL "\",\"shared\":0" GRID "}"
#define GRID(TEXT, THREADS) ",\"grid\":\"" TEXT "\",\"threads\":" THREADS
#define ARGUMENTS "\"params\":[],\"dims\":[\"M\",\"BM2\",\"BN\"],"
    static const char text[] =
        "{\"manifest\": 10, \"target\": \"sm_80\", \"entries\": [{\"name\": \"k\", \"kind\": \"kernel\", \"variants\": ["
        "{" ARGUMENTS
        "\"tuned\":{\"BM\":64,\"BN\":128},\"symbol\":\"k\"" GRID("ceildiv(M, 64) * BM2 * 128", "32") "}," VARIANT(
            "{\"BM\":32,\"BN\":32}", "k__1",
            GRID("ceildiv(M, {BM}) * BM2 * {BN}", "32")) "," VARIANT("{\"BM\":16,\"BN\":8}", "k__2",
                                                                     "") "," VARIANT("{\"BM\":16,\"BN\":8}", "k__3",
                                                                                     GRID("ceildiv(BN, {BN})",
                                                                                          "64")) "]}]}";
    static const char *const grids[] = {"ceildiv(M, 64) * BM2 * 128", "ceildiv(M, 32) * BM2 * 32",
                                        "ceildiv(M, 16) * BM2 * 8", "ceildiv(BN, 8)"};
    Fixture f;
    StrBuf out;
    setup(&f, *state);
    const Plan *plan = plan_read(f.arena, &f.failure, f.sink, text, sizeof text - 1);
    for (int round = 0; round < 2; round++) {   // as it is read, and as it is written
        assert_non_null(plan);
        for (int i = 0; i < COUNT_OF(grids); i++) {
            const PlanVariant *v = &plan->entries.items[0].variants.items[i];
            assert_string_equal(v->grid.text, grids[i]);
            assert_int_equal(v->threads, i < 3 ? 32 : 64);
        }
        sb_init(&out, f.arena);
        plan_write(plan, &out);
        plan = plan_read(f.arena, &f.failure, f.sink, sb_text(&out), out.length);
    }
    assert_non_null(strstr(sb_text(&out), "\"grid\":\"ceildiv(M, {BM}) * BM2 * {BN}\",\"threads\":32"));
    assert_null(strstr(sb_text(&out), "ceildiv(M, 32)"));
    static const char none[] =
        "{\"manifest\": 10, \"target\": \"sm_80\", \"entries\": [{\"name\": \"k\", \"kind\": \"kernel\", "
        "\"variants\": [" VARIANT("{}", "k", "") "]}]}";
    assert_null(plan_read(f.arena, &f.failure, f.sink, none, sizeof none - 1));
#undef VARIANT
#undef GRID
#undef ARGUMENTS
}

// A plan that is cut off or has a byte changed is refused or read, never more.
static void test_damaged(void **state) {
    Fixture f;
    setup(&f, *state);
    for (size_t at = 0; at < sizeof manifest - 2; at += 7) {   // (it ends with a line's end)
        char *copy = arena_strdup(f.arena, manifest);
        copy[at] = copy[at] == '1' ? 'q' : '1';
        plan_read(f.arena, &f.failure, f.sink, copy, strlen(copy));   // covers T0909
        assert_null(plan_read(f.arena, &f.failure, f.sink, manifest, at));
    }
}

// Plans that are good JSON: what is missing or does not agree is refused before a launch stumbles over it.
static void test_inconsistent(void **state) {
#define X "{\"name\": \"x\", \"type\": \"f32\", \"shape\": [\"8\"]}"
#define KERNEL "\"dims\": [], \"symbol\": \"k\", \"grid\": \"1\", \"threads\": 1}"
#define FIRST "{\"when\": \"1 > 2\", \"params\": [" X "], " KERNEL
    static const char *const variants[] = {
        "{\"params\": [{\"name\": \"x\", \"type\": \"f32\", \"shape\": [null]}], " KERNEL,
        "{\"params\": [{\"name\": \"x\", \"type\": \"f32\", \"shape\": [\"8\"], \"strides\": [1]}], " KERNEL,
        "{\"params\": [" X "], \"steps\": [{\"do\": \"fill\", \"tensor\": \"x\", \"value\": \"1\", \"start\": [null], "
        "\"extent\": [\"8\"]}], " KERNEL,
        FIRST ", {\"params\": [" X ", {\"name\": \"n\", \"type\": \"i32\"}], " KERNEL,
        FIRST ", {\"params\": [], " KERNEL,
        FIRST ", {\"params\": [{\"name\": \"x\", \"type\": \"f32\"}], " KERNEL,
    };
    Fixture f;
    setup(&f, *state);
    for (size_t i = 0; i < sizeof variants / sizeof variants[0]; i++) {
        const char *text = arena_printf(f.arena,
                                        "{\"manifest\": 10, \"target\": \"sm_80\", \"entries\": [{\"name\": \"k\", "
                                        "\"kind\": \"kernel\", \"variants\": [%s]}]}",
                                        variants[i]);
        int before = diag_count(f.sink);
        if (plan_read(f.arena, &f.failure, f.sink, text, strlen(text))) fail_msg("read: %s", text);
        assert_int_equal(diag_view(f.sink, before).code, T_BAD_ARTEFACT);
    }
#undef X
#undef KERNEL
#undef FIRST
}

static void test_host_eval(void **state) {
    Fixture f;
    Launch launch;
    setup(&f, *state);
    const char *text =
        "{\"manifest\": 10, \"target\": \"sm_80\", \"entries\": [{\"name\": \"f\", \"kind\": \"kernel\", \"variants\": "
        "[{\"params\": [{\"name\": \"n\", \"type\": \"i64\"}], \"dims\": [], \"symbol\": \"f\", \"grid\": "
        "\"100 / n\", \"threads\": 1}]}]}";
    f.plan = plan_read(f.arena, &f.failure, f.sink, text, strlen(text));
    assert_non_null(f.plan);
    LaunchArg n = {.scalar = {.type = TYPE_I64, .integer = 7}};
    assert_true(resolve(&f, "f", 1, &n, &launch));
    assert_int_equal(launch.actions.items[0].grid, 14);
    n.scalar.integer = 0;
    assert_false(resolve(&f, "f", 1, &n, &launch));
    assert_int_equal(diag_view(f.sink, diag_count(f.sink) - 1).code, T_HOST_VALUE);   // covers T0908
}

// What a variant reads of the arguments is not read again for the next one if both name, type and measure them alike.
static void test_alike(void **state) {
    static const struct {
        const char *params, *dims;
        bool alike;
    } second[] = {
        {"{\"name\": \"x\", \"type\": \"f32\", \"shape\": [\"N\"], \"strides\": [\"2\"]}", "\"N\"", true},
        {"{\"name\": \"y\", \"type\": \"f32\", \"shape\": [\"N\"], \"strides\": [\"2\"]}", "\"N\"", false},
        {"{\"name\": \"x\", \"type\": \"f16\", \"shape\": [\"N\"], \"strides\": [\"2\"]}", "\"N\"", false},
        {"{\"name\": \"x\", \"type\": \"f32\", \"shape\": [\"N\", \"2\"], \"strides\": [\"2\", \"1\"]}", "\"N\"",
         false},
        {"{\"name\": \"x\", \"type\": \"f32\", \"shape\": [\"8\"], \"strides\": [\"2\"]}", "\"N\"", false},
        {"{\"name\": \"x\", \"type\": \"f32\", \"shape\": [\"N\"], \"strides\": [\"4\"]}", "\"N\"", false},
        {"{\"name\": \"x\", \"type\": \"f32\", \"shape\": [\"N\"]}", "\"N\"", false},
        {"{\"name\": \"x\", \"type\": \"f32\", \"shape\": [\"N\"], \"strides\": [\"2\"]}", "\"N\", \"M\"", false},
        {"{\"name\": \"x\", \"type\": \"f32\", \"shape\": [\"M\"], \"strides\": [\"2\"]}", "\"M\"", false},
    };
    Fixture f;
    setup(&f, *state);
    for (size_t i = 0; i < sizeof second / sizeof second[0]; i++) {
        const char *text = arena_printf(
            f.arena,
            "{\"manifest\": 10, \"target\": \"sm_80\", \"entries\": [{\"name\": \"k\", \"kind\": \"kernel\","
            "\"variants\": [{\"params\": [%s], \"dims\": [\"N\"], \"symbol\": \"k\", \"grid\": \"1\","
            "\"threads\": 1}, {\"params\": [%s], \"dims\": [%s], \"symbol\": \"k\", \"grid\": \"1\","
            "\"threads\": 1}]}]}",
            second[0].params, second[i].params, second[i].dims);
        const Plan *plan = plan_read(f.arena, &f.failure, f.sink, text, strlen(text));
        assert_non_null(plan);
        assert_int_equal(plan->entries.items[0].variants.items[1].names, second[i].alike ? 0 : 1);
    }
}

// Whether a launch with n = 7, m = -9, u = 4294967280, x = -2.5, b = true finds that the condition holds.
static DiagCode assumed(Fixture *f, const char *condition) {
    Launch launch;
    char *text =
        arena_printf(f->arena,
                     "{\"manifest\": 10, \"target\": \"sm_80\", \"entries\": [{\"name\": \"p\", \"kind\": \"program\","
                     "\"variants\": [{\"params\": [{\"name\": \"n\", \"type\": \"i64\"}, {\"name\": \"m\","
                     "\"type\": \"i32\"}, {\"name\": \"u\", \"type\": \"u32\"}, {\"name\": \"x\", \"type\": \"f32\"},"
                     "{\"name\": \"b\", \"type\": \"bool\"}], \"dims\": [],"
                     "\"steps\": [{\"do\": \"assume\", \"value\": \"%s\"}]}]}]}",
                     condition);
    f->plan = plan_read(f->arena, &f->failure, f->sink, text, strlen(text));
    if (!f->plan) fail_msg("not read: %s", condition);
    LaunchArg args[] = {{.scalar = {.type = TYPE_I64, .integer = 7}},
                        {.scalar = {.type = TYPE_I64, .integer = -9}},
                        {.scalar = {.type = TYPE_I64, .integer = 4294967280}},
                        real(-2.5),
                        {.scalar = {.type = TYPE_BOOL, .integer = 1}}};
    int before = diag_count(f->sink);
    return resolve(f, "p", 5, args, &launch) ? 0 : diag_view(f->sink, before).code;
}

// The host computes with the arithmetic of the language: sums wrap, integers divide toward zero (docs/reference/language.md).
static void test_host_arithmetic(void **state) {
    static const char *const hold[] = {"n + 2147483647 == 2147483654",
                                       "m + (-2147483640) == 2147483647",
                                       "u + 20 == 4",
                                       "n - 8 == -1",
                                       "m * 954437177 == -1",
                                       "u * 2 == 4294967264",
                                       "m / 2 == -4",
                                       "m % 2 == -1",
                                       "u / 16 == 268435455",
                                       "u % 7 == 2",
                                       "m / (n - 8) == 9",
                                       "m % (n - 8) == 0",
                                       "(n & 5) == 5",
                                       "(m & 15) == 7",
                                       "(n | 8) == 15",
                                       "(n ^ 2) == 5",
                                       "n << 2 == 28",
                                       "m >> 1 == -5",
                                       "u >> 4 == 268435455",
                                       "m >> (n + 33) == -1",
                                       "u >> (n + 33) == 0",
                                       "n << (n * 10) == 0",
                                       "m << n == -1152",
                                       "n >> (n - 8) == 0",
                                       "~n == -8",
                                       "~m == 8",
                                       "-n == -7",
                                       "-m == 9",
                                       "-x == 2.5",
                                       "!(n == 8)",
                                       "n != 8",
                                       "n < 8",
                                       "n <= 7",
                                       "n > 6",
                                       "n >= 7",
                                       "m < 0",
                                       "u > 5",
                                       "!(u < 5)",
                                       "u <= 4294967280",
                                       "u >= 16",
                                       "u != 0",
                                       "n <= min(7, n + 1)",
                                       "!(n <= min(n, 6))",
                                       "!(n <= min(6, n))",
                                       "!(m <= min(n, -10))",
                                       "x + 1.0 == -1.5",
                                       "x - 1.0 == -3.5",
                                       "x * x == 6.25",
                                       "x / 2.0 == -1.25",
                                       "x != 0.0",
                                       "x < 0.0",
                                       "x <= -2.5",
                                       "!(x > 0.0)",
                                       "!(x >= 0.0)",
                                       "abs(x) == 2.5",
                                       "abs(m) == 9",
                                       "abs(n) == 7",
                                       "exp(x + 2.5) == 1.0",
                                       "exp2(x + 5.5) == 8.0",
                                       "log(x + 3.5) == 0.0",
                                       "log2(x * x + 1.75) == 3.0",
                                       "sqrt(x * x) == 2.5",
                                       "rsqrt(x + 6.5) == 0.5",
                                       "tanh(x + 2.5) == 0.0",
                                       "sin(x + 2.5) == 0.0",
                                       "cos(x + 2.5) == 1.0",
                                       "floor(x) == -3.0",
                                       "ceil(x) == -2.0",
                                       "round(x) == -2.0",
                                       "relu(x) == 0.0",
                                       "relu(-x) == 2.5",
                                       "min(x, 1.0) == -2.5",
                                       "max(x, 1.0) == 1.0",
                                       "min(nan, x) == -2.5",
                                       "min(x, nan) == -2.5",
                                       "max(nan, x) == -2.5",
                                       "max(x, nan) == -2.5",
                                       "bitcast(u32, min(-x * 0.0, x * 0.0)) == 2147483648",
                                       "bitcast(u32, max(x * 0.0, -x * 0.0)) == 0",
                                       "fma(x, 2.0, 1.0) == -4.0",
                                       "min(n, 3) == 3",
                                       "max(n, 3) == 7",
                                       "max(m, 3) == 3",
                                       "min(u, 3) == 3",
                                       "ceildiv(n, 2) == 4",
                                       "ceildiv(n, 7) == 1",
                                       "ceildiv(m, 2) == -4",
                                       "sms() == 3",
                                       "(n > 5 ? n : 0) == 7",
                                       "(n > 9 ? n : 0) == 0",
                                       "i32(x) == -2",
                                       "f32(m) == -9.0",
                                       "u8(n + 250) == 1",
                                       "bool(n)",
                                       "!bool(n - 7)",
                                       "f64(x) == -2.5",
                                       "bitcast(u32, x) == 3223322624",
                                       "bitcast(f32, u - 3229614064) == 1.0",
                                       "b && n > 0",
                                       "b || n < 0",
                                       "!(b && n < 0)",
                                       "n < 0 || b",
                                       "b == true"};
    Fixture f;
    setup(&f, *state);
    for (size_t i = 0; i < sizeof hold / sizeof hold[0]; i++) {
        setup(&f, *state);   // a sink lists a hundred errors
        if (assumed(&f, hold[i])) fail_msg("does not hold: %s", hold[i]);
        assert_int_equal(assumed(&f, arena_printf(f.arena, "!(%s)", hold[i])), T_ASSUME_FAILED);
    }
    assert_int_equal(assumed(&f, "n % (n - 7) == 0"), T_HOST_VALUE);
    assert_int_equal(assumed(&f, "ceildiv(u, u - 4294967280) == 0"), T_HOST_VALUE);
}

// Either operand decides, `!=` of truths, and what `ieee` leaves to the host as it is.
static void test_host_logic(void **state) {
    static const char *const hold[] = {"!(n < 8 && n < 7)", "n < 0 || n == 7",         "b != (n == 8)",
                                       "ieee(x) == -2.5",   "u64(-3) == abs(u64(-3))", "ieee(n) == 7"};
    Fixture f;
    setup(&f, *state);
    for (int i = 0; i < COUNT_OF(hold); i++) {
        if (assumed(&f, hold[i])) fail_msg("does not hold: %s", hold[i]);
        assert_int_equal(assumed(&f, arena_printf(f.arena, "!(%s)", hold[i])), T_ASSUME_FAILED);
    }
}

// A program of one step, resolved for a [4, 8] tensor x: the first code reported.
static DiagCode program_step(Fixture *f, const char *step) {
    Launch launch;
    char *text =
        arena_printf(f->arena,
                     "{\"manifest\": 10, \"target\": \"sm_80\", \"entries\": [{\"name\": \"p\", \"kind\": \"program\","
                     "\"variants\": [{\"params\": [{\"name\": \"x\", \"type\": \"f32\", \"mode\": \"out\", \"shape\":"
                     "[\"4\", \"8\"]}], \"dims\": [], \"steps\": [%s]}]}]}",
                     step);
    f->plan = plan_read(f->arena, &f->failure, f->sink, text, strlen(text));
    assert_non_null(f->plan);
    LaunchArg x = tensor(0x1000, 4, 8);
    int before = diag_count(f->sink);
    bool ok = resolve(f, "p", 1, &x, &launch);
    return ok ? 0 : diag_view(f->sink, before).code;
}

static void test_program_refuses(void **state) {
    Fixture f;
    setup(&f, *state);
    assert_int_equal(program_step(&f, "{\"do\": \"fill\", \"tensor\": \"x\", \"value\": \"1\"}"), 0);
    assert_int_equal(program_step(&f,
                                  "{\"do\": \"fill\", \"tensor\": \"x\", \"value\": \"1\", \"start\": [\"0\", \"0\"],"
                                  "\"extent\": [\"4\", \"7\"]}"),
                     T_HOST_REGION);   // covers T0914
    assert_int_equal(program_step(&f,
                                  "{\"do\": \"fill\", \"tensor\": \"x\", \"value\": \"1\", \"start\": [\"2\", \"0\"],"
                                  "\"extent\": [\"4\", \"8\"]}"),
                     T_HOST_VALUE);
    const char *row = "{\"do\": \"fill\", \"tensor\": \"x\", \"value\": \"1\", \"start\": [\"%s\", \"0\"], "
                      "\"extent\": [null, \"8\"]}";
    assert_int_equal(program_step(&f, arena_printf(f.arena, row, "3")), 0);
    assert_int_equal(program_step(&f, arena_printf(f.arena, row, "4")), T_HOST_VALUE);
    assert_int_equal(program_step(&f, arena_printf(f.arena, row, "-1")), T_HOST_VALUE);
    assert_int_equal(program_step(&f, arena_printf(f.arena, row, "1 << 62")), T_HOST_VALUE);
    assert_int_equal(program_step(&f, "{\"do\": \"launch\", \"name\": \"q\", \"args\": []}"),
                     T_NO_ENTRY);   // covers T0903
    assert_int_equal(program_step(&f, "{\"do\": \"launch\", \"name\": \"p\", \"args\": [{\"tensor\": \"x\"}]}"),
                     T_BAD_ARTEFACT);   // a program that calls itself
    assert_int_equal(program_step(&f, "{\"do\": \"assume\", \"value\": \"1 > 2\"}"), T_ASSUME_FAILED);
    // a value that the host cannot compute, wherever a step has one
    static const char *const zero_divisors[] = {
        "{\"do\": \"assume\", \"value\": \"4 / (sms() - 3) > 2\"}",
        "{\"do\": \"let\", \"name\": \"n\", \"type\": \"i64\", \"value\": \"4 / (sms() - 3)\"}",
        "{\"do\": \"if\", \"value\": \"4 / (sms() - 3) > 2\", \"then\": [], \"else\": []}",
        "{\"do\": \"fill\", \"tensor\": \"x\", \"value\": \"4 / (sms() - 3)\"}",
        "{\"do\": \"fill\", \"tensor\": \"x\", \"value\": \"1\", \"start\": [\"4 / (sms() - 3)\", \"0\"], \"extent\": [\"4\", \"8\"]}",
        "{\"do\": \"fill\", \"tensor\": \"x\", \"value\": \"1\", \"start\": [\"0\", \"0\"], \"extent\": [\"4 / (sms() - 3)\", \"8\"]}",
        "{\"do\": \"scratch\", \"name\": \"t\", \"type\": \"f64\", \"shape\": [\"4 / (sms() - 3)\"]}",
        "{\"do\": \"launch\", \"name\": \"p\", \"args\": [{\"value\": \"4 / (sms() - 3)\"}]}",
    };
    for (size_t i = 0; i < sizeof zero_divisors / sizeof zero_divisors[0]; i++)
        assert_int_equal(program_step(&f, zero_divisors[i]), T_HOST_VALUE);
    assert_int_equal(program_step(&f, "{\"do\": \"scratch\", \"name\": \"t\", \"type\": \"f64\", \"shape\":"
                                      "[\"1 << 40\", \"1 << 40\"]}"),
                     T_HOST_VALUE);
    assert_int_equal(program_step(&f, "{\"do\": \"scratch\", \"name\": \"t\", \"type\": \"f64\", \"shape\":"
                                      "[\"0\", \"1 << 40\", \"1 << 40\"]}"),
                     0);
}

static void test_regions_refused(void **state) {
    Fixture f;
    setup(&f, *state);
    assert_int_equal(program_step(&f, "{\"do\": \"fill\", \"tensor\": \"z\", \"value\": \"1\"}"), T_BAD_ARTEFACT);
    assert_int_equal(program_step(&f, "{\"do\": \"fill\", \"tensor\": \"x\", \"value\": \"1\", \"start\": [\"0\"], "
                                      "\"extent\": [\"4\"]}"),
                     T_BAD_ARTEFACT);
    assert_int_equal(program_step(&f,
                                  "{\"do\": \"fill\", \"tensor\": \"x\", \"value\": \"1\", \"start\": [\"0\", \"0\"], "
                                  "\"extent\": [\"sms() - 4\", \"8\"]}"),
                     T_HOST_VALUE);
    assert_int_equal(program_step(&f, "{\"do\": \"launch\", \"name\": \"p\", \"args\": [{\"tensor\": \"z\"}]}"),
                     T_BAD_ARTEFACT);
    assert_int_equal(program_step(&f, "{\"do\": \"scratch\", \"name\": \"t\", \"type\": \"f64\", \"shape\": [\"0\"], "
                                      "\"zeroed\": true}"),
                     0);   // of which nothing is filled
}

// Transposed regions: the last two dims, with their strides; a vector stays as it is.
static void test_transposed_region(void **state) {
    Fixture f;
    Launch launch;
    setup(&f, *state);
    const char *text =
        "{\"manifest\": 10, \"target\": \"sm_80\", \"entries\": [{\"name\": \"k\", \"kind\": \"kernel\", \"variants\": [{"
        "\"params\": [{\"name\": \"x\", \"type\": \"f32\", \"shape\": [\"M\", \"N\"], \"strides\": [\"a\", \"b\"]}, "
        "{\"name\": \"r\", \"type\": \"f32\", \"shape\": [\"L\"]}], \"dims\": [\"M\", \"N\", \"a\", \"b\", \"L\"], "
        "\"symbol\": \"k\", \"grid\": \"1\", \"threads\": 1}]}, {\"name\": \"p\", \"kind\": \"program\", \"variants\": [{"
        "\"params\": [{\"name\": \"x\", \"type\": \"f32\", \"shape\": [\"4\", \"8\"]}], \"dims\": [], \"steps\": [{"
        "\"do\": \"launch\", \"name\": \"k\", \"args\": [{\"tensor\": \"x\", \"transposed\": true}, {\"tensor\": \"x\", "
        "\"start\": [\"1\", \"0\"], \"extent\": [null, \"8\"], \"transposed\": true}]}]}]}]}";
    f.plan = plan_read(f.arena, &f.failure, f.sink, text, strlen(text));
    assert_non_null(f.plan);
    LaunchArg x = tensor(0x1000, 4, 8);
    assert_true(resolve(&f, "p", 1, &x, &launch));
    const uint64_t *params = launch.actions.items[0].params;   // x, r, M, N, a, b, L
    const uint64_t want[] = {0x1000, 0x1020, 8, 4, 1, 8, 8};
    for (int i = 0; i < COUNT_OF(want); i++) assert_int_equal(params[i], want[i]);
    StrBuf out;
    sb_init(&out, f.arena);
    plan_write(f.plan, &out);
    assert_non_null(strstr(sb_text(&out), "transposed"));
}

// ---- conditions that several variants have ----

static void read_kernel(Fixture *f, const char *variants) {
    char *text = arena_printf(
        f->arena,
        "{\"manifest\": 10, \"target\": \"sm_80\", \"entries\": [{\"name\": \"f\", \"kind\": \"kernel\", \"variants\": [%s]}]}",
        variants);
    f->plan = plan_read(f->arena, &f->failure, f->sink, text, strlen(text));
    assert_non_null(f->plan);
}

static const char *symbol_of(Fixture *f, int count, const LaunchArg *args) {
    Launch launch;
    assert_true(resolve(f, "f", count, args, &launch));
    return launch.actions.items[0].variant->symbol;
}

// ---- any number of leading dims ----

static LaunchArg shaped(uint64_t address, int rank, const int64_t *shape) {
    LaunchArg arg = {.is_tensor = true, .address = address, .rank = rank};
    memcpy(arg.shape, shape, sizeof *shape * (size_t)rank);
    launch_arg_dense(&arg);
    return arg;
}

static void test_leading_dims(void **state) {
    Fixture f;
    Launch launch;
    setup(&f, *state);
    read_kernel(&f, "{\"params\": [{\"name\": \"x\", \"type\": \"f32\", \"mode\": \"in\", \"shape\": [\"..B\", \"M\"]},"
                    "{\"name\": \"y\", \"type\": \"f32\", \"mode\": \"out\", \"shape\": [\"..B\", \"M\"]}],"
                    "\"dims\": [\"B\", \"M\"], \"symbol\": \"a\", \"grid\": \"B + 1\", \"threads\": 32}");
    static const struct {
        int rank;
        int64_t shape[4], batches;
    } rows[] = {{1, {5}, 1}, {2, {4, 5}, 4}, {3, {2, 3, 5}, 6}, {4, {2, 1, 3, 5}, 6}, {3, {0, 3, 5}, 0}};
    for (int i = 0; i < COUNT_OF(rows); i++) {
        LaunchArg args[] = {shaped(0x1000, rows[i].rank, rows[i].shape), shaped(0x2000, rows[i].rank, rows[i].shape)};
        assert_true(resolve(&f, "f", 2, args, &launch));
        const Action *a = &launch.actions.items[0];
        assert_int_equal(a->grid, rows[i].batches + 1);
        assert_int_equal(a->params[2], rows[i].batches);
        assert_int_equal(a->params[3], 5);
    }
    const int64_t shape[] = {2, 3, 5}, other[] = {3, 2, 5};
    LaunchArg args[] = {shaped(0x1000, 3, shape), shaped(0x2000, 3, other)};
    assert_false(resolve(&f, "f", 2, args, &launch));   // as many batches, but others
    args[1] = shaped(0x2000, 3, shape);
    args[0].strides[0] = 20;
    assert_false(resolve(&f, "f", 2, args, &launch));   // not one in memory
    args[0] = (LaunchArg){.is_tensor = true, .address = 0x1000};
    assert_false(resolve(&f, "f", 2, args, &launch));
}

// What has no value in one condition has none in the next, either.
static void test_shared_conditions(void **state) {
    Fixture f;
    setup(&f, *state);
    read_kernel(
        &f, "{\"when\": \"100 / n > 3 && n < 64\", \"params\": [{\"name\": \"n\", \"type\": \"i64\"}], \"dims\": [],"
            "\"symbol\": \"a\", \"grid\": \"1\", \"threads\": 1},"
            "{\"when\": \"100 / n > 1 && n < 64\", \"params\": [{\"name\": \"n\", \"type\": \"i64\"}], \"dims\": [],"
            "\"symbol\": \"b\", \"grid\": \"1\", \"threads\": 1},"
            "{\"params\": [{\"name\": \"n\", \"type\": \"i64\"}], \"dims\": [], \"symbol\": \"c\", \"grid\": \"1\","
            "\"threads\": 1}");
    const PlanEntry *entry = plan_entry(f.plan, "f");
    for (int i = 0; i < 3; i++) assert_int_equal(entry->variants.items[i].names, 0);
    assert_int_equal(entry->shared, 3);   // n, 100 / n, n < 64
    static const struct {
        int64_t n;
        const char *symbol;
    } rows[] = {{20, "a"}, {50, "b"}, {100, "c"}, {0, "c"}, {-1, "c"}};
    for (int i = 0; i < COUNT_OF(rows); i++) {
        LaunchArg n = {.scalar = {.type = TYPE_I64, .integer = rows[i].n}};
        assert_string_equal(symbol_of(&f, 1, &n), rows[i].symbol);
    }
}

#define N_PARAM "\"params\": [{\"name\": \"n\", \"type\": \"i64\"}], \"dims\": [], "
#define CALLED(SYMBOL) "\"symbol\": \"" SYMBOL "\", \"grid\": \"1\", \"threads\": 1}"

static const Plan *read_compared(Fixture *f, const char *variants) {
    const char *text =
        arena_printf(f->arena,
                     "{\"manifest\": 10, \"target\": \"sm_80\", \"terms\": [\"tile_rows\", \"step\", \"tail\"],"
                     "\"entries\": [{\"name\": \"f\", \"kind\": \"kernel\", \"variants\": [%s]}], "
                     "\"texts\": [\"n\", \"1\", \"n < 64\", \"8 / (n - 3)\"]}",
                     variants);
    return f->plan = plan_read(f->arena, &f->failure, f->sink, text, strlen(text));
}

// Of those that are compared the cheapest that serves is taken, of equals the first; what stands behind them serves the
// rest. Texts are given by number, parameters once. It is the same after another round through the text.
static void test_compared(void **state) {
    static const char variants[] =
        "{\"when\": [2], \"compare\": 3, \"cost\": [0, 1, 1, 1, 1, 1, 1, 10, 50], " N_PARAM CALLED(
            "small") ","
                     "{\"cost\": [0, 1, 1, 1, 1, 1, 16, 20, 200], \"when\": [\"n % 2 == 0\", 2], " CALLED(
                         "large") ","
                                  "{\"when\": [], \"cost\": [0, 1, 1, 3, 1, 1, 16, 20, 221], " CALLED(
                                      "odd") ",{" CALLED("rest");
    static const struct {
        int64_t n;
        const char *symbol;
    } rows[] = {{1, "small"}, {16, "large"}, {17, "odd"}, {63, "odd"}, {62, "large"}, {64, "odd"}, {3, "small"}};
    Fixture f;
    StrBuf out;
    setup(&f, *state);
    assert_non_null(read_compared(&f, variants));
    for (int round = 0; round < 2; round++) {
        assert_int_equal(plan_entry(f.plan, "f")->variants.items[0].compared, 3);
        assert_int_equal(plan_entry(f.plan, "f")->variants.items[3].names, 0);
        for (int i = 0; i < COUNT_OF(rows); i++) {
            LaunchArg n = {.scalar = {.type = TYPE_I64, .integer = rows[i].n}};
            assert_string_equal(symbol_of(&f, 1, &n), rows[i].symbol);
        }
        sb_init(&out, f.arena);
        plan_write(f.plan, &out);
        f.plan = plan_read(f.arena, &f.failure, f.sink, sb_text(&out), out.length);
        assert_non_null(f.plan);
    }
}

// Conditions and costs may begin with the texts of the variant before, if it has the same arguments, and terms may be its.
static void test_begins_as_before(void **state) {
#define FIRST_VARIANT                                                                                                  \
    "{\"when\": [2, \"n % 2 == 0\"], \"compare\": 2, \"cost\": [0, 1, 1, 1, 1, 1, 1, 10, 50], " N_PARAM CALLED("even")
    static const char *const bad[] = {
        "{\"when\": [-1, 2], " N_PARAM CALLED("a"),
        FIRST_VARIANT ", {\"when\": [-3], \"cost\": [-6, 1], " CALLED("b"),
        FIRST_VARIANT ", {\"cost\": [-7, 1], " CALLED("b"),
        FIRST_VARIANT ", {\"cost\": [-4, 1], " CALLED("b"),
        FIRST_VARIANT ", {\"cost\": [-6, 1], " N_PARAM CALLED("b"),
        FIRST_VARIANT ", {\"cost\": [-6, 1, -3], " CALLED("b"),
        FIRST_VARIANT ", {\"cost\": [-6, -40], " CALLED("b"),
        FIRST_VARIANT ", {\"cost\": [-6, 1, -2, 1], " CALLED("b"),
    };
    Fixture f;
    setup(&f, *state);
    assert_non_null(read_compared(&f, FIRST_VARIANT ", {\"when\": [-1], \"cost\": [-6, 1, 20, 50], " CALLED("any")));
    const PlanVariant *second = &plan_entry(f.plan, "f")->variants.items[1];
    assert_string_equal(second->when.text, "n < 64");
    assert_string_equal(second->cost->extents[0].text, "n");
    assert_int_equal(second->cost->terms.step, 20);
    assert_non_null(read_compared(&f, FIRST_VARIANT ", {\"when\": [-1], \"cost\": [-6, 3, -1, 60], " CALLED("any")));
    second = &plan_entry(f.plan, "f")->variants.items[1];
    assert_int_equal(second->cost->terms.tile_rows, 3);
    assert_int_equal(second->cost->terms.step, 10);
    assert_int_equal(second->cost->terms.tail, 60);
    for (int i = 0; i < COUNT_OF(bad); i++) {
        int before = diag_count(f.sink);
        if (read_compared(&f, bad[i])) fail_msg("read: %s", bad[i]);
        assert_int_equal(diag_view(f.sink, before).code, T_BAD_ARTEFACT);
    }
#undef FIRST_VARIANT
}

// What has no condition is said to have none; what says nothing has that of the variant before. A shape alone is the variant before in
// another cluster: the same kernel, with costs of its own.
static void test_clusters(void **state) {
#define OF(cluster)                                                                                                       \
    "{\"when\": [2], \"compare\": 4, \"cost\": [0, 1, 1, 1, 1, 1, 1, 10, 50, 2, 1], " N_PARAM                             \
    "\"symbol\": \"k\", \"grid\": \"cluster_extent(0) * 10 + cluster_extent(1)\", \"threads\": 1, \"cluster\": [" cluster \
    "]}"
#define TWO OF("2, 1")
    static const char *const bad[] = {
        "[2, 1], " TWO, TWO ", [2]", TWO ", [2, 0]", TWO ", [3, 1]", TWO ", [16, 2]",
        OF("0, 1"),     OF("6, 1"),  OF("16, 4"),    OF("2, 17, 1"), TWO ", {" CALLED("other") ", [2, 1]",
    };
    Fixture f;
    Launch launch;
    StrBuf out;
    setup(&f, *state);
    const char *terms = "\"terms\": [\"tile_rows\", \"step\", \"tail\", \"cluster_rows\", \"cluster_columns\"],";
    const char *texts = "\"texts\": [\"n\", \"1\", \"n < 64\"]}";
    const char *frame = "{\"manifest\": 10, \"target\": \"sm_90a\", %s \"entries\": [{\"name\": \"f\", \"kind\": "
                        "\"kernel\", \"variants\": [%s]}], %s";
    const char *text =
        arena_printf(f.arena, frame, terms, TWO ", [1, 4], [1, 1], {\"cost\": [-6, -5], " CALLED("other"), texts);
    f.plan = plan_read(f.arena, &f.failure, f.sink, text, strlen(text));
    for (int round = 0; round < 2; round++) {
        assert_non_null(f.plan);
        const PlanVariant *v = plan_entry(f.plan, "f")->variants.items;
        assert_true(v[1].same_kernel && v[2].same_kernel && !v[3].same_kernel && !v[3].sets_cluster);
        assert_int_equal(v[1].cost->terms.cluster_columns, 4);
        assert_int_equal(v[0].cost->terms.cluster_columns, 1);
        LaunchCost splits = {.split = 2};   // CTAs along the first name share steps, along the second loads
        PlanCost steps = {.terms = splits};
        PlanVariant shared = {.cost = &steps};
        plan_set_cluster(f.arena, &shared, (const int[2]){2, 4});
        assert_true(shared.cost->terms.split == 2 && shared.cost->terms.cluster_rows == 4);
        assert_int_equal(shared.cost->terms.cluster_columns, 1);
        assert_string_equal(v[3].when.text, "n < 64");
        assert_int_equal(plan_cluster_logs(&v[1]), 2 << 8);
        LaunchArg n = {.scalar = {.type = TYPE_I64, .integer = 1}};
        assert_true(resolve(&f, "f", 1, &n, &launch));
        const Action *a = &launch.actions.items[0];
        assert_int_equal(a->grid, 10 * a->variant->cluster[0] + a->variant->cluster[1]);
        assert_int_equal(a->param_count, 2);
        assert_int_equal(a->params[1], plan_cluster_logs(a->variant));
        sb_init(&out, f.arena);
        plan_write(f.plan, &out);
        f.plan = plan_read(f.arena, &f.failure, f.sink, sb_text(&out), out.length);
    }
    for (int i = 0; i < COUNT_OF(bad); i++) {
        int before = diag_count(f.sink);
        text = arena_printf(f.arena, frame, terms, bad[i], texts);
        if (plan_read(f.arena, &f.failure, f.sink, text, strlen(text))) fail_msg("read: %s", bad[i]);
        assert_int_equal(diag_view(f.sink, before).code, T_BAD_ARTEFACT);
    }
#undef TWO
#undef OF
}

// A launch knows what its variant costs; one without a cost does not.
static void test_predicted_clocks(void **state) {
    Fixture f;
    Launch launch;
    setup(&f, *state);
    read_compared(&f, "{\"when\": [2], \"cost\": [0, 1, 1, 1, 1, 1, 1, 1, 50], " N_PARAM CALLED(
                          "a") ", {\"when\": [], " CALLED("b"));
    LaunchArg n = {.scalar = {.type = TYPE_I64, .integer = 1}};
    assert_true(resolve(&f, "f", 1, &n, &launch));
    assert_true(launch.clocks == 51);
    assert_true(plan_microseconds(f.plan, &launch, &n) == 0);   // of a machine that is not known
    ((Plan *)f.plan)->machine = (PlanMachine){.clock_mhz = 17, .launch_ns = 2000, .memory_bytes = 1};
    assert_true(plan_microseconds(f.plan, &launch, &n) == 5);
    n.scalar.integer = 64;
    assert_true(resolve(&f, "f", 1, &n, &launch));
    assert_true(launch.clocks < 0);
    assert_true(plan_microseconds(f.plan, &launch, &n) == 0);
}

static void test_wrong_costs(void **state) {
    static const char *const variants[] = {
        "{\"compare\": 2, \"cost\": [0, 1, 1, 1, 1, 1], " N_PARAM CALLED("a"),                     // of one
        "{\"compare\": 2, \"cost\": [0, 1, 1, 1, 1, 1], " N_PARAM CALLED("a") ", {" CALLED("b"),   // without a cost
        "{\"compare\": 0, \"cost\": [0, 1, 1, 1, 1, 1], " N_PARAM CALLED("a"),
        "{\"cost\": [0, 1, 1, 1, 1], " N_PARAM CALLED("a"),
        "{\"cost\": [0, 1, 1, 4, 1, 1], " N_PARAM CALLED("a"),   // no such text
        "{\"cost\": [0, 1, 1, -1, 1, 1], " N_PARAM CALLED("a"),
        "{\"cost\": [0, 1, 1, null, 1, 1], " N_PARAM CALLED("a"),
        "{\"cost\": [0, 1, 1, 1, 1, 1, -5], " N_PARAM CALLED("a"),
        "{\"cost\": [0, 1, 1, 1, 1, 1, 5, 5, 5, 5], " N_PARAM CALLED("a"),   // no such term
        "{\"when\": [4], " N_PARAM CALLED("a"),
        "{\"when\": [null], " N_PARAM CALLED("a"),
        "{" CALLED("a"),   // the first one without parameters takes none; see below
    };
    Fixture f;
    setup(&f, *state);
    for (int i = 0; i < COUNT_OF(variants) - 1; i++) {
        int before = diag_count(f.sink);
        if (read_compared(&f, variants[i])) fail_msg("read: %s", variants[i]);
        assert_int_equal(diag_view(f.sink, before).code, T_BAD_ARTEFACT);
    }
    assert_non_null(read_compared(&f, variants[COUNT_OF(variants) - 1]));
    assert_int_equal(plan_entry(f.plan, "f")->variants.items[0].params.count, 0);
}

// Shapes, strides and conditions without a value are reasons, as are names that nothing gives.
static void test_variants_without_values(void **state) {
    static const char *const variants[] = {
        "\"params\": [{\"name\": \"n\", \"type\": \"i64\"}, {\"name\": \"x\", \"type\": \"f32\", \"shape\": [\"8 / n\"]}], "
        "\"dims\": []",
        "\"params\": [{\"name\": \"n\", \"type\": \"i64\"}, {\"name\": \"x\", \"type\": \"f32\", \"shape\": [\"8\"], "
        "\"strides\": [\"1 / n\"]}], \"dims\": []",
        "\"params\": [{\"name\": \"n\", \"type\": \"i64\"}, {\"name\": \"x\", \"type\": \"f32\", \"shape\": [\"8\"]}], "
        "\"dims\": [\"K\"]",
    };
    Fixture f;
    Launch launch;
    setup(&f, *state);
    LaunchArg args[] = {{.scalar = {.type = TYPE_I64}},
                        {.is_tensor = true, .address = 0x1000, .rank = 1, .shape = {8}}};
    launch_arg_dense(&args[1]);
    for (int i = 0; i < COUNT_OF(variants); i++) {
        read_kernel(&f, arena_printf(f.arena, "{%s, \"symbol\": \"a\", \"grid\": \"1\", \"threads\": 1}", variants[i]));
        int before = diag_count(f.sink);
        assert_false(resolve(&f, "f", 2, args, &launch));
        assert_int_equal(diag_view(f.sink, before).code, T_NO_VARIANT);
    }
}

// Each condition is named, up to a dozen.
static void test_conditions_named(void **state) {
    enum { VARIANTS = 14 };
    Fixture f;
    Launch launch;
    StrBuf variants, said;
    setup(&f, *state);
    sb_init(&variants, f.arena);
    sb_init(&said, f.arena);
    for (int i = 0; i < VARIANTS; i++)
        sb_printf(
            &variants,
            "%s{\"when\": \"n > %d\", \"params\": [{\"name\": \"n\", \"type\": \"i64\"}], \"dims\": [], \"symbol\": "
            "\"a\", \"grid\": \"1\", \"threads\": 1}",
            i ? "," : "", 100 + i);
    read_kernel(&f, sb_text(&variants));
    LaunchArg n = {.scalar = {.type = TYPE_I64, .integer = 7}};
    assert_false(resolve(&f, "f", 1, &n, &launch));
    diag_render(f.sink, 0, DIAG_TEXT, &said);
    assert_non_null(strstr(sb_text(&said), "it needs n > 100"));
    assert_non_null(strstr(sb_text(&said), "it needs n > 111"));
    assert_null(strstr(sb_text(&said), "n > 112"));
}

// One text, other names: nothing is taken over from the variant before.
static void test_names_differ(void **state) {
    Fixture f;
    setup(&f, *state);
    read_kernel(&f,
                "{\"when\": \"M > N\", \"params\": [{\"name\": \"x\", \"type\": \"f32\", \"shape\": [\"M\", \"N\"]}],"
                "\"dims\": [\"M\", \"N\"], \"symbol\": \"a\", \"grid\": \"1\", \"threads\": 1},"
                "{\"when\": \"M > N\", \"params\": [{\"name\": \"x\", \"type\": \"f32\", \"shape\": [\"N\", \"M\"]}],"
                "\"dims\": [\"M\", \"N\"], \"symbol\": \"b\", \"grid\": \"1\", \"threads\": 1}");
    assert_int_equal(plan_entry(f.plan, "f")->variants.items[1].names, 1);
    LaunchArg tall = tensor(0x1000, 3, 2), wide = tensor(0x1000, 2, 3);
    assert_string_equal(symbol_of(&f, 1, &tall), "a");
    assert_string_equal(symbol_of(&f, 1, &wide), "b");
}

// ---- launches that are remembered ----

static void expect_same_action(const Action *a, const Action *b) {
    assert_ptr_equal(a->variant, b->variant);
    assert_int_equal(a->grid, b->grid);
    assert_int_equal(a->address, b->address);
    assert_int_equal(a->count, b->count);
    assert_int_equal(a->width, b->width);
    assert_int_equal(a->pattern, b->pattern);
    assert_int_equal(a->param_count, b->param_count);
    for (int i = 0; i < a->param_count; i++) assert_int_equal(a->params[i], b->params[i]);
    for (int i = 0; a->variant && i < a->variant->maps.count; i++) {
        const MapRequest *x = &a->maps[i], *y = &b->maps[i];
        assert_int_equal(x->address, y->address);
        assert_true(x->type == y->type && x->rank == y->rank && x->swizzle == y->swizzle && x->tf32 == y->tf32);
        for (int d = 0; d < x->rank; d++)
            assert_true(x->box[d] == y->box[d] && x->extent[d] == y->extent[d] && x->stride[d] == y->stride[d]);
    }
}

typedef struct Caller {
    const Plan *plan;
    LaunchCache *cache;
    uint64_t random;
} Caller;

static int64_t one_of(Caller *c, int64_t count) {
    c->random ^= c->random << 13;
    c->random ^= c->random >> 7;
    c->random ^= c->random << 17;
    return (int64_t)(c->random >> 8) % count;
}

// A launch that may have been before, at addresses and with strides that decide the variant: resolved, and from the
// memo.
static void call_twice(Caller *c, Arena *arena) {
    DiagSink *sinks[2] = {diag_sink_new(arena), diag_sink_new(arena)};
    Launch launches[2];
    bool program = one_of(c, 3) == 0, ok[2];
    int64_t rows = one_of(c, 4), columns = program ? 8 : 255 + one_of(c, 2);
    LaunchArg args[3] = {tensor(0x1000 * (uint64_t)one_of(c, 9) + (uint64_t)one_of(c, 3) * 8, rows, columns),
                         tensor(0x1000 * (uint64_t)one_of(c, 9) + (uint64_t)one_of(c, 3) * 4, rows, columns),
                         real((double)one_of(c, 3))};
    if (one_of(c, 4) == 0) args[0].strides[0] += one_of(c, 3) - 1;   // one too small is refused
    LaunchMemory memory = {.workspace = 0x100000 * (uint64_t)one_of(c, 3) + 4 * (uint64_t)one_of(c, 2),
                           .zeroed = program ? 0x200000 * (uint64_t)one_of(c, 3) : 0};
    const PlanEntry *entry = plan_entry(c->plan, !program ? "scale" : one_of(c, 2) ? "twice" : "counted");
    int count = program ? 2 : 3;
    ok[0] = plan_dispatch(arena, sinks[0], c->plan, entry, count, args, &device, memory, &launches[0]);
    ok[1] =
        launch_cache_dispatch(arena, sinks[1], c->cache, c->plan, entry, count, args, &device, memory, &launches[1]);
    assert_int_equal(ok[0], ok[1]);
    assert_int_equal(diag_count(sinks[0]), diag_count(sinks[1]));
    if (!ok[0]) return;
    assert_int_equal(launches[0].workspace, launches[1].workspace);
    assert_int_equal(launches[0].zeroed, launches[1].zeroed);
    assert_int_equal(launches[0].actions.count, launches[1].actions.count);
    for (int i = 0; i < launches[0].actions.count; i++)
        expect_same_action(&launches[0].actions.items[i], &launches[1].actions.items[i]);
}

static void *call_often(void *user) {
    Failure failure;
    Arena *arena = arena_new(libc_allocator, &failure);
    if (FAILURE_CAUGHT(&failure)) fail_msg("%s", failure.message);
    for (int i = 0; i < 3000; i++) call_twice(user, arena);
    arena_free(arena);
    return NULL;
}

static void test_launch_cache(void **state) {
    Fixture f;
    setup(&f, *state);
    assert_int_equal(f.plan->address_unit, 16);
    Caller callers[3];
    pthread_t threads[2];
    LaunchCache *cache = launch_cache_new(f.arena);
    for (int i = 0; i < 3; i++) callers[i] = (Caller){f.plan, cache, 88172645463325252u + (unsigned)i};
    call_often(&callers[2]);
    int64_t hits = launch_cache_hits(cache);
    assert_in_range(hits, 200, 2700);   // some were known, some were not
    for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&threads[i], NULL, call_often, &callers[i]), 0);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    assert_true(launch_cache_hits(cache) > hits);
}

// Which of two addresses is less is more than what is left of them: each is another launch.
static void test_launch_cache_addresses(void **state) {
    Fixture f;
    setup(&f, *state);
    const char *params = "\"params\": [{\"name\": \"x\", \"type\": \"f32\", \"shape\": [\"M\", \"N\"]},"
                         "{\"name\": \"y\", \"type\": \"f32\", \"shape\": [\"M\", \"N\"]}], \"dims\": [\"M\", \"N\"],"
                         "\"grid\": \"1\", \"threads\": 1";
    read_kernel(
        &f,
        arena_printf(
            f.arena,
            "{\"when\": \"x_address < y_address && x_address %% 8 == 0\", %s, \"symbol\": \"a\"}, {%s, \"symbol\": \"b\"}",
            params, params));
    assert_int_equal(f.plan->address_unit, 0);
    LaunchCache *cache = launch_cache_new(f.arena);
    LaunchArg args[] = {tensor(0x1000, 4, 8), tensor(0x2000, 4, 8)};
    for (int i = 0; i < 6; i++) {
        Launch launch;
        LaunchArg swapped[] = {args[i % 2], args[1 - i % 2]};
        assert_true(launch_cache_dispatch(f.arena, f.sink, cache, f.plan, plan_entry(f.plan, "f"), 2, swapped, &device,
                                          (LaunchMemory){0}, &launch));
        assert_string_equal(launch.actions.items[0].variant->symbol, i % 2 ? "b" : "a");
    }
    assert_int_equal(launch_cache_hits(cache), 4);
}

// A thousand launches are known when they come again. Of ten thousand the last ones are.
static void test_launch_cache_many(void **state) {
    Fixture f;
    setup(&f, *state);
    Launch launch;
    LaunchCache *cache = launch_cache_new(f.arena);
    int64_t hits[3];
    const int64_t counts[] = {1000, 10000, 10000};
    for (int round = 0; round < 3; round++) {
        int64_t before = launch_cache_hits(cache), count = counts[round];
        for (int64_t i = 0; i < 2 * count; i++) {
            int64_t rows = 1 + i % count;
            LaunchArg args[] = {tensor(0x1000, rows, 256), tensor(0x2000, rows, 256), real(0.5 + round)};
            assert_true(launch_cache_dispatch(f.arena, f.sink, cache, f.plan, plan_entry(f.plan, "scale"), 3, args,
                                              &device, (LaunchMemory){0}, &launch));
            assert_int_equal(launch.actions.items[0].params[5], rows);
        }
        hits[round] = launch_cache_hits(cache) - before;
    }
    assert_in_range(hits[0], 950, 1000);
    assert_true(hits[1] < 5000 && hits[2] < 5000);
}

// Of many launches the last are known, and one that is too long for a row is resolved each time.
static void test_launch_cache_bounds(void **state) {
    Fixture f;
    setup(&f, *state);
    Launch launch;
    LaunchCache *cache = launch_cache_new(f.arena);
    for (int64_t i = 0; i < 2000; i++) {
        LaunchArg args[] = {tensor(0x1000, 1 + i / 2, 256), tensor(0x2000, 1 + i / 2, 256), real(0.5)};
        assert_true(launch_cache_dispatch(f.arena, f.sink, cache, f.plan, plan_entry(f.plan, "scale"), 3, args, &device,
                                          (LaunchMemory){0}, &launch));
        assert_int_equal(launch.actions.items[0].params[5], 1 + i / 2);
        assert_int_equal(launch_cache_hits(cache), (i + 1) / 2);
    }
    StrBuf steps;
    sb_init(&steps, f.arena);
    for (int i = 0; i < 100; i++)
        sb_printf(&steps, "%s{\"do\": \"fill\", \"tensor\": \"x\", \"value\": \"%d\"}", i ? "," : "", i);
    for (int i = 0; i < 2; i++) assert_int_equal(program_step(&f, sb_text(&steps)), 0);
    LaunchArg x = tensor(0x1000, 4, 8);
    for (int i = 0; i < 2; i++) {
        assert_true(launch_cache_dispatch(f.arena, f.sink, cache, f.plan, plan_entry(f.plan, "p"), 1, &x, &device,
                                          (LaunchMemory){0}, &launch));
        assert_int_equal(launch.actions.count, 100);
    }
    assert_int_equal(launch_cache_hits(cache), 1000);
}

// A change of the terms or of the number of extents raises the format, and this test changes with it: so a reader of
// another version refuses the plan by its format.
static void test_format_of_costs(void **state) {
    Fixture f;
    StrBuf terms, said;
    setup(&f, *state);
    sb_init(&terms, f.arena);
    sb_init(&said, f.arena);
    for (int i = 0; i < COST_TERM_COUNT; i++) sb_printf(&terms, "%s ", cost_term_name(i));
    assert_string_equal(
        sb_text(&terms),
        "tile_rows tile_columns tile_depth step stream tail hidden padding power rest fetch "
        "first_rows second_rows crossing straddle row_bytes column_bytes traffic stored both cluster_rows "
        "cluster_columns multicast meeting balanced uneven split exchange further sums "
        "stray load copied_rows "
        "copied_columns resident slice_steps read sum launch alone ");
    assert_int_equal(COST_EXTENTS, 6);
    assert_int_equal(MANIFEST_FORMAT, 10);
    static const char before[] = "{\"manifest\": 5, \"target\": \"sm_80\", \"entries\": []}";
    assert_null(plan_read(f.arena, &f.failure, f.sink, before, strlen(before)));
    diag_render(f.sink, 0, DIAG_TEXT, &said);
    assert_non_null(strstr(sb_text(&said), "its plan has format 5, that of another version; this one reads format 10"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_ARENA(test_first_variant),
        IN_ARENA(test_second_variant),
        IN_ARENA(test_strides),
        IN_ARENA(test_empty_grid),
        IN_ARENA(test_refuses),
        IN_ARENA(test_arguments_separate),
        IN_ARENA(test_aliases),
        IN_ARENA(test_program),
        IN_ARENA(test_round_trip),
        IN_ARENA(test_empty_variant),

        IN_ARENA(test_tuned_values),
        IN_ARENA(test_grids_of_tunables),
        IN_ARENA(test_damaged),
        IN_ARENA(test_host_eval),
        IN_ARENA(test_host_arithmetic),
        IN_ARENA(test_host_logic),
        IN_ARENA(test_alike),
        IN_ARENA(test_program_refuses),
        IN_ARENA(test_maps),
        IN_ARENA(test_inner_maps),
        IN_ARENA(test_bad_maps),
        IN_ARENA(test_view_maps),
        IN_ARENA(test_leading_dims),
        IN_ARENA(test_shared_conditions),
        IN_ARENA(test_compared),
        IN_ARENA(test_begins_as_before),
        IN_ARENA(test_clusters),
        IN_ARENA(test_predicted_clocks),
        IN_ARENA(test_wrong_costs),
        IN_ARENA(test_format_of_costs),
        IN_ARENA(test_names_differ),
        IN_ARENA(test_launch_cache),
        IN_ARENA(test_launch_cache_addresses),
        IN_ARENA(test_launch_cache_many),
        IN_ARENA(test_launch_cache_bounds),
        IN_ARENA(test_zeroed),
        IN_ARENA(test_inconsistent),
        IN_ARENA(test_refuses_kinds),
        IN_ARENA(test_arguments_compared),
        IN_ARENA(test_regions_refused),
        IN_ARENA(test_transposed_region),
        IN_ARENA(test_variants_without_values),
        IN_ARENA(test_conditions_named),
        IN_ARENA(test_refuses_uncountable),
    };
    return run(tests);
}
