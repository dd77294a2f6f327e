// Tuning records.
#include "runtime/compile/record.h"
#include "tests/fuzz/fuzz.h"

void fuzz(Arena *arena, Failure *failure, const uint8_t *data, size_t size) {
    (void)failure;
    DiagSink *sink = diag_sink_new(arena);
    Record record;
    record_parse(arena, sink, "input.tune", arena_strndup(arena, (const char *)data, size), &record);
    for (int i = 0; i < record.entries.count; i++) {
        const RecordEntry *entry = &record.entries.items[i];
        RecordKey key = {entry->kernel, entry->text, entry->target, i % 2 ? NULL : &entry->shape};
        bool stale;
        record_choose(arena, &record, &key, &stale);
        record_places(arena, &record, &key, &stale);
        StrBuf out;
        sb_init(&out, arena);
        record_entry_write(entry, &out);
    }
}
