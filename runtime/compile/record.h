// The tuning record: what `tilec tune` measured, for later builds. Text, a JSON object a line:
//
//     {"kernel": "gemm", "text": "8c1f...", "target": "sm_90a", "device": "NVIDIA H200", "shape": {"M": 4096, ...},
//      "tuned": {"BM": 128, ...}, "us": 171.20, "us_low": 170.93, "us_high": 171.61, "tilec": "0.1.0"}
//
// `text` is a hash of the kernel as it is elaborated, so that comments, tests and other kernels may change; a kernel whose
// text changed has no lines. Lines that are damaged are reported as warnings and passed over.
//
// Which combination is taken where one has to serve all shapes: the lines of the nearest shape (the sum of |log2| of
// the ratios of dims; where no shape is known every line) fall into problems, one for each shape and device. The
// combination that was measured for most of them is taken, among those the one with the least geometric mean of its
// times relative to each problem's best, then the first.
//
// Where a launch can choose, a measured shape's combination serves the shapes near it, and no others: those of which no value
// is larger and none more than an eighth smaller. (With the same tile such a problem has no more points, and no more steps, than
// the measured one; of larger ones nothing is known.) Of several measured shapes the smallest counts.
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
    RecordValues shape, tuned;   // shape: dims and integer scalars
    double us, low, high;
    const char *problem, *combination;   // of device and shape; of tuned: for comparing
} RecordEntry;

typedef struct Record {
    VEC(RecordEntry) entries;   // of several lines for one problem and combination the last
} Record;

typedef struct RecordKey {
    const char *kernel, *text, *target;
    const RecordValues *shape;   // NULL: not known
} RecordKey;

// "gemm.tile" -> "gemm.tune"; NULL for standard input.
char *record_path(Arena *arena, const char *source);
// Reads a record. A file that is not there is an empty record, and reported only when it was named by the user.
// False: reported.
bool record_read(Arena *arena, DiagSink *sink, const char *path, bool named, Record *out);
// The same by hand, from text; `path` stands in messages.
void record_parse(Arena *arena, DiagSink *sink, const char *path, const char *text, Record *out);
const char *record_problem(Arena *arena, const RecordEntry *entry);   // its device and shape
void record_entry_write(const RecordEntry *entry, StrBuf *out);       // a line

// The least value that is near one that was measured; the largest is that one itself.
int64_t record_least(int64_t measured);
// Whether what was measured at `measured` speaks for `shape`.
bool record_is_near(const RecordValues *measured, const RecordValues *shape);

typedef struct RecordPlace {   // a measured shape, and the entry whose combination serves those near it
    const RecordValues *shape;
    const RecordEntry *entry;
} RecordPlace;
typedef VEC(RecordPlace) RecordPlaces;

// All measured shapes, the smaller first: the first near one is the one that counts.
RecordPlaces record_places(Arena *arena, const Record *record, const RecordKey *key, bool *stale);

// The entry whose combination is to be taken; NULL: there is none. *stale: entries for this kernel are of another text.
const RecordEntry *record_choose(Arena *arena, const Record *record, const RecordKey *key, bool *stale);
