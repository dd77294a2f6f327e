// Messages between the library and the process that compiles. The first byte chooses the side.
#include "runtime/worker/message.h"
#include "tests/fuzz/fuzz.h"

void fuzz(Arena *arena, Failure *failure, const uint8_t *data, size_t size) {
    (void)failure;
    if (size == 0) return;
    CompileRequest request;
    CompileReply reply;
    StrBuf out;
    sb_init(&out, arena);
    if (data[0] % 2) {
        if (request_read(arena, (const char *)data + 1, size - 1, &request)) request_write(&request, &out);
    } else if (reply_read(arena, (const char *)data + 1, size - 1, &reply)) {
        reply_write(&reply, &out);
    }
}
