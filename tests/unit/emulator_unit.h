// What the emulator's unit tests share: a program as text, run with all its tests.
#pragma once
#include "tests/unit/unit.h"

#include "emulator/emulator.h"
#include "frontend/frontend.h"
#include <stdio.h>
#include <string.h>

typedef struct Outcome {
    bool passed;   // all tests
    EmuTestResult last;
    const char *text;   // the diagnostics
} Outcome;

static inline Module *module_of(Arena *arena, Failure *failure, const char *source) {
    DiagSink *sink = diag_sink_new(arena);
    Module *module = parse_module(arena, failure, sink, "test.tile", source);
    if (module) return module;
    StrBuf sb;
    sb_init(&sb, arena);
    diag_render(sink, 0, DIAG_TEXT, &sb);
    fail_msg("%s", sb_text(&sb));
    return NULL;
}

static inline Outcome run_source_with(Arena *arena, const char *source, EmuOptions options) {
    Failure failure;
    if (FAILURE_CAUGHT(&failure)) fail_msg("%s", failure.message);
    Module *module = module_of(arena, &failure, source);
    Outcome out = {.passed = module->tests.count > 0};
    for (int i = 0; i < module->tests.count; i++)
        out.passed &= emulate_test(module, module->tests.items[i], &options, &out.last);
    StrBuf sb;
    sb_init(&sb, arena);
    diag_render(module->sink, 0, DIAG_TEXT, &sb);
    out.text = sb_text(&sb);
    return out;
}

static inline Outcome run_source(Arena *arena, const char *source, uint64_t seed) {
    return run_source_with(arena, source, (EmuOptions){.seed = seed, .races = true});
}

enum { SEEDS = 6 };

static inline void expect_pass(Arena *arena, const char *source) {
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        Outcome out = run_source(arena, source, seed);
        if (!out.passed) fail_msg("seed %d: %s\n%s", (int)seed, out.last.why, out.text);
    }
}

// Fails under every schedule, with this text among the diagnostics.
static inline void expect_report(Arena *arena, const char *source, const char *code) {
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        Outcome out = run_source(arena, source, seed);
        if (out.passed || !strstr(out.text, code))
            fail_msg("seed %d: expected %s, got %s:\n%s", (int)seed, code, out.passed ? "a pass" : out.last.why,
                     out.text);
    }
}

// Fails in the comparison, with this text.
static inline void expect_wrong(Arena *arena, const char *source, const char *why) {
    Outcome out = run_source(arena, source, 1);
    if (out.passed || !out.last.why || !strstr(out.last.why, why))
        fail_msg("expected '%s', got %s\n%s", why, out.passed ? "a pass" : out.last.why, out.text);
}

// The source with the first `what` after `after` left out (or `by` in its place).
static inline const char *without(Arena *arena, const char *source, const char *after, const char *what,
                                  const char *by) {
    const char *at = strstr(source, after);
    at = at ? strstr(at, what) : NULL;
    if (!at) fail_msg("'%s' is not there", what);
    return arena_printf(arena, "%.*s%s%s", (int)(at - source), source, by, at + strlen(what));
}
