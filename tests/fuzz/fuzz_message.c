// Messages between the library and the process that compiles. The first byte chooses the side. A message that is read is
// one again when it is written.
#include "runtime/worker/message.h"
#include "tests/fuzz/fuzz.h"
#include <stdlib.h>

void fuzz(Arena *arena, Failure *failure, const uint8_t *data, size_t size) {
    (void)failure;
    if (size == 0) return;
    const char *message = (const char *)data + 1;
    CompileRequest request;
    CompileReply reply;
    StrBuf out;
    sb_init(&out, arena);
    if (data[0] % 2 && request_read(arena, message, size - 1, &request)) {
        request_write(&request, &out);
        if (!request_read(arena, out.text, out.length, &request)) abort();
    } else if (data[0] % 2 == 0 && reply_read(arena, message, size - 1, &reply)) {
        reply_write(&reply, &out);
        if (!reply_read(arena, out.text, out.length, &reply)) abort();
    }
}
