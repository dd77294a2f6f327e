// Text of any stage to PTX. The first byte chooses the target and the optimization level.
#include "runtime/worker/serve.h"
#include "tests/fuzz/fuzz.h"
#include <stdlib.h>

static const char *const targets[] = {"sm_80", "sm_90a", "sm_120a", "sm_100a"};

void fuzz(Arena *arena, Failure *failure, const uint8_t *data, size_t size) {
    (void)arena, (void)failure;
    if (size == 0) return;
    CompileRequest request = {.name = "input.tile",
                              .text = (const char *)data + 1,
                              .length = size - 1,
                              .folder = ".",
                              .target = targets[data[0] % 4],
                              .optimize = data[0] / 4 % 3,
                              .lines = data[0] / 16 % 2};
    Answer answer = {0};
    answer_request(&request, (PhaseHook){0}, &answer);
    if (answer.reply.status == TILEC_ERROR_INTERNAL) abort();
    answer_free(&answer);
}
