// The options that bench and tune share.
#pragma once
#include "tools/bench.h"
#include "tools/subject.h"

// False: reported.
static inline bool bench_flags(Tool *tool, int64_t samples, BenchOptions *out) {
    const Options *o = &tool->options;
    int cache = option_choice(o, tool->sink, OPTION_CACHE, 0);
    if (cache < 0 || !option_number(o, tool->sink, OPTION_SAMPLES, 1, 100000, &samples)) return false;
    *out = (BenchOptions){.samples = (int)samples, .warm = cache == 1};
    return true;
}
