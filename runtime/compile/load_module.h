// Source text -> verified module: parse, elaborate with the chosen tunables, prune variants, verify. Every command
// starts here.
#pragma once
#include "frontend/frontend.h"
#include "passes/cost/search.h"
#include "runtime/compile/chosen.h"
#include "runtime/compile/record.h"
#include "support/files.h"

// A measured tile of the tuning record. Its variants of the kernel are tried before those of the cost model, for shapes
// near the measured ones.
typedef struct RecordedTile {
    const char *kernel;
    const RecordEntry *entry;   // the tunables that were measured
    RecordPlaces places;        // all measured shapes of the kernel, those of other tiles too
    int define_count;           // the -D defines, then the tile's tunables
    const Define *defines;
} RecordedTile;

typedef struct ImportedFile {
    const char *path;   // as it was opened
    FileText file;
} ImportedFile;

typedef struct Loader {
    Arena *arena;   // for the syntax tree; load_module takes the arena of the module
    Failure *failure;
    DiagSink *sink;
    const Target *target;
    Syntax *syntax;
    double parse_seconds;
    const Record *record;        // the tuning record; NULL: none
    const char *record_path;     // its path, for messages
    const char *import_root;     // imports outside of this folder are refused; NULL: none is
    const RecordValues *shape;   // the only shape that the code will run with; NULL: any
    int variants;                // TileSearch.most
    const LaunchFor *launch;     // the only launch that is compiled for; NULL: any
    LaunchProblem *problem;      // launch_problem, which programs without a code generator lack; with a launch
    VEC(RecordedTile) tiles;     // added by the last load_module
    VEC(ImportedFile) imports;   // all that were read
    int test_choice;   // 1 + index: keep only the tests of this choice; 0: the tests that fit the chosen values
} Loader;

// Reads and parses a file. False: reported.
bool loader_open(Loader *loader, const char *path);
// Parses a text that did not come from a file; it must outlive the front.
bool loader_open_text(Loader *loader, const char *name, const char *text, size_t length);

// Elaborates with `defines`, then with the values of the tuning record, then with those that the tile search chooses;
// verifies. NULL: reported; if no combination of tunables fits the target, as T_NOTHING_FITS with the buffers and the
// largest that does.
Module *load_module(Loader *loader, Arena *arena, int define_count, const Define *defines, const char *only);

// What the record adds to the user's defines: for a kernel with several tiles (tile_search_chooses) tiles, chosen at
// launch; for other kernels, and if the shape is known, one combination as defines.
typedef struct RecordedDefines {
    int define_count;
    const Define *defines;   // the -D defines, then those of the record: "gemm.BM"
    VEC(RecordedTile) tiles;
} RecordedDefines;

RecordedDefines recorded_defines(Loader *loader, Arena *arena, int define_count, const Define *defines,
                                 const TileSearch *search);
// Whether there is a record with entries, and a target to look them up for.
bool loader_has_record(const Loader *loader);
// Inserts the kernels of `with`, which was elaborated with the tile's defines, before the kernels of their name.
void add_recorded_tile(Loader *loader, Module *module, const RecordedTile *tile, const Module *with);
// After the passes: restricts recorded tiles to shapes near the measured ones, by their `when`. Earlier, the passes
// would use these bounds and generate other code than what was measured.
void limit_recorded_tiles(const Loader *loader, Module *module);
// A hash of the kernel's text, elaborated with the first value of each tunable, behind the types that -D gives: "E=f16:0123..".
// "": no such kernel, or it has errors.
const char *kernel_signature(Loader *loader, Arena *arena, int define_count, const Define *defines, const char *kernel);
bool signatures_have_same_types(const char *a, const char *b);   // else they are of kernels that stand side by side
// Copies the defines that are not tunables to `kept`, and returns their number.
int drop_tunables(Loader *loader, int count, const Define *defines, Define *kept);

void test_print_label(const Test *test, StrBuf *out);   // "gemm (M = 256, N = 512": the caller adds the rest and ")"

double seconds_now(void);   // of the monotonic clock
