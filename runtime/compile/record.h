// The tuning record as a text, which builds read: what `tilec tune` measured (tools/measurements.h). A JSON object a line:
//
//     {"kernel": "gemm", "text": "8c1f...", "target": "sm_90a", "device": "NVIDIA H200", "shape": {"M": 4096, ...},
//      "tuned": {"BM": 128, ...}, "us": 171.20, "us_low": 170.93, "us_high": 171.61, "tilec": "0.1.0", ...}
//
// `text` is a hash of the elaborated kernel: edits of comments, tests and other kernels keep an entry valid, edits of
// the kernel make it stale. A damaged line is skipped with a warning.
//
// One combination for all shapes (the kernel keeps one tile): take the entries of the nearest shape (distance: the sum
// of |log2| of the ratios of dims; if the shape is unknown, all entries). Each pair of shape and device is a problem.
// The combination that was measured for the most problems wins; ties go to the least geometric mean of times relative
// to each problem's best, then to the first line.
//
// One combination for each shape (the launch chooses among tiles): a measured combination covers the shapes near it, in
// which no value is larger than the measured one and none is more than an eighth smaller. With the same tile, such a
// problem has at most as many tiles and K steps as the measured one; larger problems were not measured. If several
// shapes are near, the smallest wins.
#pragma once
#include "support/files.h"
#include "support/vec.h"

typedef struct RecordValue {
    const char *name;
    int64_t value;
} RecordValue;
typedef VEC(RecordValue) RecordValues;

typedef struct RecordEntry {
    const char *kernel, *text, *target, *device, *tilec;
    const char *driver, *clocks, *artefact, *method;   // how it was measured; "": not said
    RecordValues shape, tuned;                         // shape: values of dims and integer scalars
    double us, low, high;
    const char *problem, *combination;   // keys for comparison: device and shape; tunables
} RecordEntry;

typedef struct Record {
    VEC(RecordEntry) entries;   // one per problem and combination: the last line wins
} Record;

typedef struct RecordKey {
    const char *kernel, *text, *target;
    const RecordValues *shape;   // NULL: unknown
} RecordKey;

// "gemm.tile" -> "gemm.tune"; NULL for standard input.
char *record_path(Arena *arena, const char *source);
// Reads a record. A missing file is an empty record; it is reported only if the user named it.
// False: reported.
bool record_read(Arena *arena, DiagSink *sink, const char *path, bool named, Record *out);
// Its text only; NULL: it is missing.
bool record_load(Arena *arena, DiagSink *sink, const char *path, bool named, FileText *out);
// Parses a record from text; `path` is for messages.
void record_parse(Arena *arena, DiagSink *sink, const char *path, const char *text, Record *out);
// Reads a line. NULL: it is valid; else the error.
const char *record_entry_read(Arena *arena, const char *line, size_t length, RecordEntry *out);
const char *record_values_text(Arena *arena, const RecordValues *values);   // "K = 4096, M = 4096", sorted by name
const char *record_problem(Arena *arena, const RecordEntry *entry);         // "NVIDIA H200: K = 4096, M = 4096"
void record_entry_write(const RecordEntry *entry, StrBuf *out);             // appends a line

// The least value that is near a measured one; the largest is the measured one.
int64_t record_least(int64_t measured);
// Whether `shape` is near `measured`.
bool record_is_near(const RecordValues *measured, const RecordValues *shape);

typedef struct RecordPlace {   // a measured shape, and the entry whose combination covers the shapes near it
    const RecordValues *shape;
    const RecordEntry *entry;
} RecordPlace;
typedef VEC(RecordPlace) RecordPlaces;

// All measured shapes, smallest first: the first near one wins.
RecordPlaces record_places(Arena *arena, const Record *record, const RecordKey *key, bool *stale);

// The entry whose combination wins; NULL: none. *stale: the only entries for this kernel are of another text.
const RecordEntry *record_choose(Arena *arena, const Record *record, const RecordKey *key, bool *stale);
