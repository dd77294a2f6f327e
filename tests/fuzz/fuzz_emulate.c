// Text of any stage, whose tests run on the emulator for a limited number of steps. A test may fail.
#include "emulator/emulator.h"
#include "frontend/frontend.h"
#include "tests/fuzz/fuzz.h"

enum { MOST_STEPS = 20000, MOST_TESTS = 2 };

void fuzz(Arena *arena, Failure *failure, const uint8_t *data, size_t size) {
    DiagSink *sink = diag_sink_new(arena);
    Syntax *syntax = syntax_parse(arena, failure, sink, "input.tile", (const char *)data, size, NULL);
    ElaborateOptions options = {0};
    Module *module = syntax ? elaborate(syntax, arena, failure, sink, &options) : NULL;
    EmuOptions emulation = {
        .seed = size, .races = true, .target = target_named("sm_90a"), .max_steps = MOST_STEPS, .max_blocks = 2};
    for (int i = 0; module && i < module->tests.count && i < MOST_TESTS; i++) {
        EmuTestResult result;
        emulate_test(module, module->tests.items[i], &emulation, &result);
    }
}
