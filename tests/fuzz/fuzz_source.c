// Text of any stage: parse, elaborate, render diagnostics; a module that comes out reads back as it prints.
#include "frontend/frontend.h"
#include "ir/print.h"
#include "tests/fuzz/fuzz.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void render(const DiagSink *sink, Arena *arena) {
    for (DiagFormat format = DIAG_TEXT; format <= DIAG_JSON; format++) {
        StrBuf out;
        sb_init(&out, arena);
        diag_render(sink, 0, format, &out);
    }
}

static const char *printed(const Module *module) {
    StrBuf out;
    sb_init(&out, module->arena);
    print_module(module, (PrintOptions){.tests = true, .places = true}, &out);
    return sb_text(&out);
}

static void round_trip(Arena *arena, Failure *failure, const Module *module) {
    const char *text = printed(module);
    DiagSink *sink = diag_sink_new(arena);
    Module *again = *text ? parse_module(arena, failure, sink, "printed", text) : NULL;
    if (!*text || (again && strcmp(printed(again), text) == 0)) return;
    fprintf(stderr, "%s\n---- reads back as ----\n%s\n", text, again ? printed(again) : "nothing");
    abort();
}

void fuzz(Arena *arena, Failure *failure, const uint8_t *data, size_t size) {
    DiagSink *sink = diag_sink_new(arena);
    Syntax *syntax = syntax_parse(arena, failure, sink, "input.tile", (const char *)data, size, NULL);
    ElaborateOptions options = {0};
    Module *module = syntax ? elaborate(syntax, arena, failure, sink, &options) : NULL;
    render(sink, arena);
    if (!module && diag_errors(sink) == 0) abort();   // what fails says why
    if (module) round_trip(arena, failure, module);
}
