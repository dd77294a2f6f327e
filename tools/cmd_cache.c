// tilec cache: what is in the compile cache.
#include "runtime/cache/cache.h"
#include "tools/tool.h"
#include <string.h>

static bool print_counts(Tool *tool, const CacheStore *store, const StoreCounts *counts, bool verified) {
    StrBuf out;
    sb_init(&out, tool->arena);
    bool json = option_given(&tool->options, OPTION_JSON);
    long long bytes = counts->bytes, limit = store->limit, broken = counts->broken;
    sb_printf(&out, "folder   %s\nentries  %lld\n", store->folder, (long long)counts->entries);
    if (json) sb_printf(&out, "bytes  %lld\nlimit_bytes  %lld\n", bytes, limit);
    else sb_printf(&out, "size     %.1f of at most %.0f MiB\n", (double)bytes / (1 << 20), (double)limit / (1 << 20));
    if (verified) sb_printf(&out, json ? "damaged  %lld\n" : "damaged  %lld, deleted\n", broken);
    return tool_pairs(tool, &out);
}

static bool stat_cache(Tool *tool, const CacheStore *store) {
    StoreCounts counts = store_count(tool->arena, store);
    return print_counts(tool, store, &counts, false);
}

static bool verify_cache(Tool *tool, const CacheStore *store) {
    StoreCounts counts = store_verify(tool->arena, store);
    return print_counts(tool, store, &counts, true);
}

static bool clear_cache(Tool *tool, const CacheStore *store) {
    if (!store_clear(tool->arena, store)) diag(tool->sink, (Span){0}, T_CANNOT_WRITE, store->folder, "an entry stays");
    if (diag_errors(tool->sink) > 0) return false;
    return !option_given(&tool->options, OPTION_JSON) || stat_cache(tool, store);
}

static bool print_folder(Tool *tool, const char *folder) {
    StrBuf out;
    sb_init(&out, tool->arena);
    sb_printf(&out, option_given(&tool->options, OPTION_JSON) ? "folder  %s\n" : "%s\n", folder);
    return tool_pairs(tool, &out);
}

static bool print_path(Tool *tool, const CacheStore *store) {
    return print_folder(tool, store->folder);
}

bool command_cache(Tool *tool, int *code) {
    (void)code;
    static const struct {
        const char *name;
        bool (*run)(Tool *tool, const CacheStore *store);
    } actions[] = {{"stat", stat_cache}, {"verify", verify_cache}, {"clear", clear_cache}, {"path", print_path}};
    const char *name = tool->options.operands.count == 1 ? tool->options.operands.items[0] : "";
    CacheSettings cache = cache_settings(tool->arena, NULL);
    if (cache.bad_size)
        return tool_usage(tool, "TILEC_CACHE_SIZE is '%s', which is no number of MiB above 0", cache.bad_size);
    for (int i = 0; i < COUNT_OF(actions); i++) {
        if (strcmp(actions[i].name, name) != 0) continue;
        if (cache.store.folder) return actions[i].run(tool, &cache.store);
        return print_folder(tool, "off");
    }
    return tool_usage(tool, "one of stat, verify, clear, path is taken here");
}
