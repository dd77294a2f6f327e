// Tensor maps at launch: what the driver is asked for, what is refused, and that nothing is asked twice.
#include "runtime/device/tensor_map.h"
#include "tests/unit/unit.h"
#include <string.h>

static struct {
    int calls, type, swizzle, promotion, interleave, fill;
    unsigned rank, box[TENSOR_MAP_RANK], steps[TENSOR_MAP_RANK];
    void *address;
    uint64_t extents[TENSOR_MAP_RANK], strides[TENSOR_MAP_RANK];
} asked;

static CudaResult fake_encode(void *map, int type, unsigned rank, void *address, const uint64_t *extents,
                              const uint64_t *strides, const unsigned *box, const unsigned *element_strides,
                              int interleave, int swizzle, int promotion, int fill) {
    asked.calls++;
    asked.type = type, asked.swizzle = swizzle, asked.promotion = promotion, asked.interleave = interleave;
    asked.fill = fill, asked.rank = rank, asked.address = address;
    memcpy(asked.box, box, rank * sizeof *box);
    memcpy(asked.steps, element_strides, rank * sizeof *element_strides);
    memcpy(asked.extents, extents, rank * sizeof *extents);
    memcpy(asked.strides, strides, (rank - 1) * sizeof *strides);
    memset(map, asked.calls, 128);
    return 0;
}

static struct {
    int calls, lower[MOST_WINDOWS], upper[MOST_WINDOWS];
    unsigned channels, pixels;
} walked;

static CudaResult fake_im2col(void *map, int type, unsigned rank, void *address, const uint64_t *extents,
                              const uint64_t *strides, const int *lower, const int *upper, unsigned channels,
                              unsigned pixels, const unsigned *element_strides, int interleave, int swizzle,
                              int promotion, int fill) {
    unsigned none[TENSOR_MAP_RANK] = {0};
    walked.calls++;
    memcpy(walked.lower, lower, (rank - 2) * sizeof *lower);
    memcpy(walked.upper, upper, (rank - 2) * sizeof *upper);
    walked.channels = channels, walked.pixels = pixels;
    return fake_encode(map, type, rank, address, extents, strides, none, element_strides, interleave, swizzle,
                       promotion, fill);
}

typedef struct Fixture {
    Driver driver;
    DiagSink *sink;
    MapCache *cache;
} Fixture;

static Fixture fixture(Arena *arena) {
    memset(&asked, 0, sizeof asked);
    memset(&walked, 0, sizeof walked);
    return (Fixture){
        {.encode_tiled = fake_encode, .encode_im2col = fake_im2col}, diag_sink_new(arena), map_cache_new(arena)};
}

static MapRequest request_2d(int64_t rows, int64_t columns) {
    return (MapRequest){.type = TYPE_BF16,
                        .rank = 2,
                        .swizzle = 128,
                        .box = {64, 128},
                        .extent = {columns, rows},
                        .stride = {2, columns * 2},
                        .address = 0x1000};
}

static bool encodes(Fixture *f, MapRequest request, TensorMapBytes *out) {
    return map_encode(&f->driver, f->sink, f->cache, &request, out);
}

static void what_is_asked(void **state) {
    Fixture f = fixture(*state);
    TensorMapBytes map;
    assert_true(encodes(&f, request_2d(100, 72), &map));
    assert_int_equal((uintptr_t)&map % 64, 0);
    assert_int_equal(map.bytes[127], 1);
    assert_int_equal(asked.type, 9);        // CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
    assert_int_equal(asked.swizzle, 3);     // CU_TENSOR_MAP_SWIZZLE_128B
    assert_int_equal(asked.promotion, 2);   // CU_TENSOR_MAP_L2_PROMOTION_L2_128B: rows are 144 bytes
    assert_int_equal(asked.interleave, 0);
    assert_int_equal(asked.fill, 0);
    assert_int_equal(asked.rank, 2);
    assert_int_equal((uintptr_t)asked.address, 0x1000);
    assert_int_equal(asked.box[0], 64);
    assert_int_equal(asked.steps[1], 1);
    assert_int_equal(asked.extents[0], 72);
    assert_int_equal(asked.extents[1], 100);
    assert_int_equal(asked.strides[0], 144);
    assert_true(encodes(&f, request_2d(100, 128), &map));
    assert_int_equal(asked.promotion, 3);   // CU_TENSOR_MAP_L2_PROMOTION_L2_256B
}

static void types_and_swizzles(void **state) {
    static const struct {
        Type type;
        int number;
    } rows[] = {{TYPE_U8, 0},  {TYPE_E4M3, 0}, {TYPE_U16, 1}, {TYPE_U32, 2}, {TYPE_I32, 3},
                {TYPE_U64, 4}, {TYPE_I64, 5},  {TYPE_F16, 6}, {TYPE_F32, 7}, {TYPE_F64, 8}};
    Fixture f = fixture(*state);
    TensorMapBytes map;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        MapRequest request = request_2d(64, 64);
        request.type = rows[i].type;
        request.stride[0] = type_bytes(request.type);
        request.stride[1] = 64 * request.stride[0];
        request.swizzle = (int)(i % 4 ? 16 << i % 4 : 0);
        assert_true(encodes(&f, request, &map));
        assert_int_equal(asked.type, rows[i].number);
        assert_int_equal(asked.swizzle, i % 4);
    }
}

static void rounded_to_tf32(void **state) {   // CU_TENSOR_MAP_DATA_TYPE_TFLOAT32
    Fixture f = fixture(*state);
    TensorMapBytes map;
    MapRequest request = request_2d(64, 64);
    request.type = TYPE_F32;
    request.stride[0] = 4, request.stride[1] = 256;
    assert_true(encodes(&f, request, &map));
    assert_int_equal(asked.type, 7);
    request.tf32 = true;   // another map, not the cached one
    assert_true(encodes(&f, request, &map));
    assert_int_equal(asked.type, 11);
}

static void nothing_is_asked_twice(void **state) {
    Fixture f = fixture(*state);
    TensorMapBytes first, again;
    assert_true(encodes(&f, request_2d(8, 64), &first));
    assert_true(encodes(&f, request_2d(8, 64), &again));
    assert_int_equal(asked.calls, 1);
    assert_memory_equal(&first, &again, sizeof first);
    for (int i = 0; i < 200; i++) assert_true(encodes(&f, request_2d(9 + i, 64), &again));   // more than are kept
    assert_int_equal(asked.calls, 201);
    assert_true(encodes(&f, request_2d(208, 64), &again));
    assert_int_equal(asked.calls, 201);
    assert_true(encodes(&f, request_2d(8, 64), &again));
    assert_int_equal(asked.calls, 202);
}

// The driver describes no tensor without elements, and looks at strides that no address depends on.
static void empty_and_thin(void **state) {
    Fixture f = fixture(*state);
    TensorMapBytes map;
    MapRequest empty = request_2d(0, 72);
    empty.address = 0;
    assert_true(encodes(&f, empty, &map));
    assert_int_equal(asked.extents[1], 1);
    assert_true(asked.address != NULL);
    MapRequest thin = request_2d(1, 9);
    assert_true(encodes(&f, thin, &map));
    assert_int_equal(asked.strides[0], 32);
}

static void refused(Fixture *f, MapRequest request, const char *why) {
    TensorMapBytes map;
    int before = diag_count(f->sink);
    assert_false(encodes(f, request, &map));
    assert_int_equal(diag_view(f->sink, before).code, T_NO_TENSOR_MAP);
    if (!strstr(diag_view(f->sink, before).message, why)) fail_msg("%s", diag_view(f->sink, before).message);
}

static void what_is_refused(void **state) {
    Fixture f = fixture(*state);
    MapRequest request = request_2d(64, 64);
    request.address += 8;
    refused(&f, request, "address");
    request = request_2d(64, 65);
    refused(&f, request, "multiple of 16 bytes");
    request = request_2d(64, 64);
    request.stride[0] = 4;
    refused(&f, request, "contiguous");
    request.stride[0] = 2, request.stride[1] = -128;
    refused(&f, request, "negative");
    request = request_2d(INT64_C(1) << 32, 64);
    refused(&f, request, "2^32");
    assert_int_equal(asked.calls, 0);
    f.driver.encode_tiled = NULL;
    refused(&f, request_2d(64, 64), "older than CUDA 12");
}

// 64 channels of 128 pixels of [2, 9, 14, 64], for a filter of 3 x 3 with a border of 1: the first place of its first tap
// is -1, the last one W - 1 - 1.
static MapRequest request_im2col(void) {
    return (MapRequest){.type = TYPE_BF16,
                        .rank = 4,
                        .swizzle = 128,
                        .box = {64, 128},
                        .extent = {64, 14, 9, 2},
                        .stride = {2, 128, 1792, 16128},
                        .address = 0x1000,
                        .windows = 2,
                        .lower = {-1, -1},
                        .upper = {-1, -1},
                        .steps = {1, 1}};
}

static void im2col_is_asked(void **state) {
    Fixture f = fixture(*state);
    TensorMapBytes map;
    MapRequest request = request_im2col();
    request.steps[0] = 2, request.upper[0] = -2, request.lower[1] = -3;
    assert_true(encodes(&f, request, &map));
    assert_true(encodes(&f, request, &map));
    assert_int_equal(walked.calls, 1);
    assert_int_equal(asked.rank, 4);
    assert_int_equal(walked.channels, 64);
    assert_int_equal(walked.pixels, 128);
    assert_true(walked.lower[0] == -1 && walked.lower[1] == -3 && walked.upper[0] == -2 && walked.upper[1] == -1);
    assert_true(asked.steps[0] == 1 && asked.steps[1] == 2 && asked.steps[2] == 1 && asked.steps[3] == 1);
    assert_int_equal(asked.extents[1], 14);
    assert_int_equal(asked.strides[2], 16128);
    request.upper[1] = -2;   // another map
    assert_true(encodes(&f, request, &map));
    assert_int_equal(walked.calls, 2);
    request.extent[3] = 0;
    assert_true(encodes(&f, request, &map));
    assert_int_equal(asked.extents[1], 1);
}

// Corners of two windows have 8 bits, of three 5; some place is between them.
static void im2col_is_refused(void **state) {
    Fixture f = fixture(*state);
    TensorMapBytes map;
    MapRequest request = request_im2col();
    request.upper[0] = 127;
    assert_true(encodes(&f, request, &map));
    request.upper[0] = 128;
    refused(&f, request, "windows");
    request = request_im2col();
    request.lower[1] = -129;
    refused(&f, request, "windows");
    request = request_im2col();
    request.upper[1] = -10;   // 9 - 1 - 10 lies before -1
    refused(&f, request, "windows");
    request = request_im2col();
    f.driver.encode_im2col = NULL;
    refused(&f, request, "older than CUDA 12");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_ARENA(what_is_asked),          IN_ARENA(types_and_swizzles), IN_ARENA(rounded_to_tf32),
        IN_ARENA(nothing_is_asked_twice), IN_ARENA(empty_and_thin),     IN_ARENA(what_is_refused),
        IN_ARENA(im2col_is_asked),        IN_ARENA(im2col_is_refused),
    };
    return run(tests);
}
