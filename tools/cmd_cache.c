// tilec cache: what is in the compile cache.
#include "runtime/cache/cache.h"
#include "tools/tool.h"
#include <string.h>

static bool print_counts(Tool *tool, const CacheStore *store, const StoreCounts *counts, bool verified) {
    StrBuf out;
    sb_init(&out, tool->arena);
    sb_printf(&out, "folder   %s\nentries  %lld\nsize     %.1f of at most %.0f MiB\n", store->folder,
              (long long)counts->entries, (double)counts->bytes / (1 << 20), (double)store->limit / (1 << 20));
    if (verified) sb_printf(&out, "damaged  %lld, deleted\n", (long long)counts->broken);
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
    return diag_errors(tool->sink) == 0;
}

static bool print_path(Tool *tool, const CacheStore *store) {
    (void)tool;
    printf("%s\n", store->folder);
    return true;
}

bool command_cache(Tool *tool, int *code) {
    (void)code;
    static const struct {
        const char *name;
        bool (*run)(Tool *tool, const CacheStore *store);
    } actions[] = {{"stat", stat_cache}, {"verify", verify_cache}, {"clear", clear_cache}, {"path", print_path}};
    const char *name = tool->options.operands.count == 1 ? tool->options.operands.items[0] : "";
    CacheSettings cache = cache_settings(tool->arena, NULL);
    for (int i = 0; i < COUNT_OF(actions); i++) {
        if (strcmp(actions[i].name, name) != 0) continue;
        if (cache.store.folder) return actions[i].run(tool, &cache.store);
        puts("off");
        return true;
    }
    return tool_usage(tool, "one of stat, verify, clear, path is taken here");
}
