// .npy files. The first byte chooses the type of the parameter.
#include "runtime/host/npy.h"
#include "tests/fuzz/fuzz.h"

void fuzz(Arena *arena, Failure *failure, const uint8_t *data, size_t size) {
    (void)failure;
    if (size == 0) return;
    Tensor tensor;
    if (npy_parse(arena, data + 1, size - 1, (Type)(data[0] % TYPE_COUNT), &tensor)) return;
    StrBuf out;
    sb_init(&out, arena);
    npy_format(&tensor, &out);
}
