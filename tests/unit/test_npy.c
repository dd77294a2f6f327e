// .npy files: what is read of them, and why others are refused. A file is its magic, version, header length and header.
#include "runtime/host/npy.h"
#include "tests/unit/unit.h"
#include <string.h>

typedef struct File {
    uint8_t bytes[512];
    size_t length;
} File;

static File file_of(int version, const char *header, const void *data, size_t size) {
    File f = {.bytes = "\x93NUMPY"};
    size_t length = strlen(header), start = version >= 2 ? 12 : 10;
    f.bytes[6] = (uint8_t)version;
    f.bytes[8] = (uint8_t)length;
    memcpy(f.bytes + start, header, length);
    if (size) memcpy(f.bytes + start + length, data, size);
    f.length = start + length + size;
    return f;
}

static const float values[] = {1.5f, -2, 3, 4, 5, 6};

static void read_as(void **state, int version, const char *header, Type type, const void *want, size_t bytes) {
    Tensor t;
    File f = file_of(version, header, values, sizeof values);
    const char *why = npy_parse(*state, f.bytes, f.length, type, &t);
    if (why) fail_msg("%s: %s", header, why);
    assert_int_equal(t.type, type);
    assert_int_equal(t.bytes, bytes);
    assert_memory_equal(t.data, want, bytes);
}

static void test_read(void **state) {
    const double doubles[] = {1.5, -2, 3, 4, 5, 6};
    read_as(state, 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", TYPE_F32, values, sizeof values);
    read_as(state, 2, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", TYPE_F32, values, sizeof values);
    read_as(state, 3, "{'descr': \"<f4\", 'fortran_order': False, 'shape': (6,)}", TYPE_F32, values, sizeof values);
    read_as(state, 1, "{'descr': '<f4', 'fortran_order': True, 'shape': (6,)}", TYPE_F32, values, sizeof values);
    read_as(state, 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)}", TYPE_F64, doubles, sizeof doubles);
    read_as(state, 1, "{'descr': '<f4', 'fortran_order': False, 'shape': ()}", TYPE_F32, values, sizeof *values);
    read_as(state, 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (0, 9223372036854775807)}", TYPE_F32, values,
            0);
}

static void refused(void **state, const char *header, Type type, const char *want) {
    Tensor t;
    File f = file_of(1, header, values, sizeof values);
    const char *why = npy_parse(*state, f.bytes, f.length, type, &t);
    if (!why) fail_msg("not refused: %s", header);
    assert_string_equal(why, want);
}

static void test_refused(void **state) {
    refused(state, "{'descr': '>f4', 'fortran_order': False, 'shape': (6,)}", TYPE_F32, "its elements are big endian");
    refused(state, "{'descr': '<f4', 'fortran_order': False, 'shape': (6,)}", TYPE_I32,
            "its elements are '<f4'; i32 is wanted");
    refused(state, "{'descr': '<i4', 'fortran_order': False, 'shape': (6,)}", TYPE_F32,
            "its elements are '<i4'; f32 is wanted");
    refused(state, "{'descr': '<a_very_long_name', 'fortran_order': False, 'shape': (6,)}", TYPE_F32,
            "its elements are '<a_very_long_na'; f32 is wanted");
    refused(state, "{'shape': (6,), 'fortran_order': False, 'descr': '", TYPE_F32,
            "its elements are ''; f32 is wanted");
    refused(state, "{'descr': '<f4', 'fortran_order': False, 'shape': 6}", TYPE_F32, "its shape is damaged");
    refused(state, "{'descr': '<f4', 'fortran_order': False, 'shape': (-6,)}", TYPE_F32, "its shape is damaged");
    refused(state, "{'descr': '<f4', 'fortran_order': False, 'shape': (x)}", TYPE_F32, "its shape is damaged");
    refused(state, "{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1)}", TYPE_F32,
            "it has too many dims");
    refused(state, "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296)}", TYPE_F32,
            "its shape is too large");
    refused(state, "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3)}", TYPE_F32, "it is in Fortran order");
    refused(state, "{'descr': '<f4', 'fortran_order': False, 'shape': (7,)}", TYPE_F32, "its data are cut off");
    refused(state, "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296,)}", TYPE_F32,
            "its data are cut off");
    refused(state, "{'descr': '<f4', 'shape': (6,)}", TYPE_F32, "its header is damaged");
    refused(state, "{'descr': '<f4', 'fortran_order': False}", TYPE_F32, "its header is damaged");
    refused(state, "{'fortran_order': False, 'shape': (6,)}", TYPE_F32, "its header is damaged");
}

static void test_cut_off(void **state) {
    Tensor t;
    File f = file_of(2, "{'descr': '<f4', 'fortran_order': False, 'shape': (6,)}", values, sizeof values);
    assert_string_equal(npy_parse(*state, f.bytes, 9, TYPE_F32, &t), "it does not begin as one");
    assert_string_equal(npy_parse(*state, f.bytes, 11, TYPE_F32, &t), "its header is cut off");
    assert_string_equal(npy_parse(*state, f.bytes, 40, TYPE_F32, &t), "its header is cut off");
    f.bytes[11] = 1;   // a header of 16 MiB
    assert_string_equal(npy_parse(*state, f.bytes, f.length, TYPE_F32, &t), "its header is cut off");
    f.bytes[0] = 0;
    assert_string_equal(npy_parse(*state, f.bytes, f.length, TYPE_F32, &t), "it does not begin as one");
}

int main(void) {
    const struct CMUnitTest tests[] = {IN_ARENA(test_read), IN_ARENA(test_refused), IN_ARENA(test_cut_off)};
    return run(tests);
}
