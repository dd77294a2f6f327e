// Source text to a verified module: parse, elaborate, verify. What every command begins with; needs no LLVM.
#pragma once
#include "frontend/frontend.h"
#include "passes/cost/search.h"
#include "runtime/compile/record.h"
#include "support/files.h"

// A tile that was measured, as variants of a kernel that stand before the others and serve the shapes near those it was
// measured at.
typedef struct RecordedTile {
    const char *kernel;
    const RecordEntry *entry;   // its combination
    RecordPlaces places;        // all of the kernel's: which of them are its own, `entry` says
    int define_count;           // the user's and the tile's
    const Define *defines;
} RecordedTile;

typedef struct Loader {
    Arena *arena;   // of the syntax; modules may have another
    Failure *failure;
    DiagSink *sink;
    const Target *target;
    Syntax *syntax;
    double parse_seconds;
    const Record *record;        // tunables that were measured; NULL: none
    const char *record_path;     // for messages
    const RecordValues *shape;   // what the code is made for; NULL: not known
    VEC(RecordedTile) tiles;     // that the last load_module added
    int test_choice;   // 1 + index: modules have the tests of this choice alone; 0: those that their values serve
} Loader;

// Reads and parses a file. False: reported.
bool loader_open(Loader *loader, const char *path);
// Parses a text that did not come from a file; it must outlive the front.
bool loader_open_text(Loader *loader, const char *name, const char *text, size_t length);

// Elaborates with these defines, else those of the tuning record, and verifies. NULL: reported, too large programs as
// T_NOTHING_FITS with the buffers and the largest combination that fits.
Module *load_module(Loader *loader, Arena *arena, int define_count, const Define *defines, const char *only);

// What the record says, beside the user's defines. Kernels of which a launch chooses among tiles (tile_search_chooses) have the model's
// and those of the record; others one combination. Where the shape is known, so is the combination.
typedef struct RecordedDefines {
    int define_count;
    const Define *defines;   // the user's, then "gemm.BM"
    VEC(RecordedTile) tiles;
} RecordedDefines;

RecordedDefines recorded_defines(Loader *loader, Arena *arena, int define_count, const Define *defines,
                                 const TileSearch *search);
// Whether the record may say something of this file's kernels.
bool loader_has_record(const Loader *loader);
// Adds the tile's kernels, elaborated with its defines as `with`, before the module's.
void add_recorded_tile(Loader *loader, Module *module, const RecordedTile *tile, const Module *with);
// After the passes: says in their `when` for which shapes they are. Not before, or the passes would make of it other code than
// what was measured.
void limit_recorded_tiles(const Loader *loader, Module *module);
// A hash of a kernel's text as elaborated with the first tunables; "" when there is no such kernel, or it has errors.
const char *kernel_signature(Loader *loader, Arena *arena, int define_count, const Define *defines, const char *kernel);
// The defines that are no tunables, into `kept`.
int drop_tunables(Loader *loader, int count, const Define *defines, Define *kept);

void test_print_label(const Test *test, StrBuf *out);   // "gemm (M = 256, N = 512": the caller adds the rest and ")"

double seconds_now(void);   // of a clock that only goes forward
