#include "tools/pass_flags.h"
#include "runtime/compile/repro.h"
#include <stdlib.h>
#include <string.h>

bool pass_flags(Tool *tool, PassOptions *out) {
    const Options *o = &tool->options;
    int64_t limit = -1;
    if (!option_number(o, tool->sink, OPTION_BISECT, 0, 1000000, &limit)) return false;
    const char *passes = option_text(o, OPTION_PASSES, NULL);
    *out = (PassOptions){
        .passes = passes && strcmp(passes, "none") == 0 ? "" : passes,
        .print_before = option_text(o, OPTION_PRINT_BEFORE, NULL),
        .print_kernel = option_text(o, OPTION_PRINT_KERNEL, NULL),
        .print_after = option_text(o, OPTION_PRINT_AFTER, NULL),
        .stop_after = option_text(o, OPTION_STOP_AFTER, NULL),
        .dump_dir = option_text(o, OPTION_DUMP_DIR, NULL),
        .print_changed = option_given(o, OPTION_PRINT_CHANGED),
        .verify_each = out->verify_each || option_given(o, OPTION_VERIFY_EACH),
        .roundtrip_each = option_given(o, OPTION_ROUNDTRIP_EACH),
        .emulate_each = option_given(o, OPTION_EMULATE_EACH),
        .time_passes = option_given(o, OPTION_TIME_PASSES),
        .remarks = option_given(o, OPTION_REMARKS),
        .places = option_given(o, OPTION_PRINT_LOCS),
        .bisect_limit = (int)limit,
        .talk = stderr,
    };
    return !out->dump_dir || folder_make(tool->sink, out->dump_dir);
}

const char *repro_folder(Tool *tool) {
    const char *variable = getenv("TILEC_REPRO_DIR");
    const char *folder = option_text(&tool->options, OPTION_REPRO_DIR, variable && variable[0] ? variable : ".");
    return strcmp(folder, "none") == 0 ? NULL : folder;
}

const char *repro_base(Tool *tool, const char *path) {
    return repro_path(tool->arena, repro_folder(tool), path);
}
