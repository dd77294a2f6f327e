// Machine facts as data. Comes in: the name of a target, an instruction or a swizzle. Goes out: rows of tables: limits
// of each architecture, its instructions with their register layouts, measured costs. Passes, emulator and codegen read
// these rows; a number of a machine stands nowhere else. target/README.md is the recipe. The files:
//
//     target.c    the architectures: limits, features, costs
//     mma.c       tensor-core instructions of a warp
//     wgmma.c     tensor-core instructions of a warpgroup
//     tma.c       tensor maps and swizzles
//     red.c       vector reductions to global memory
//     launch_cost the clocks of a launch, from coefficients
//     atoms.def   instructions as atoms of the layout calculator
#pragma once
#include "layout/layout.h"
#include "target/launch_cost.h"
#include <stdbool.h>
#include <stdint.h>

typedef enum {
    FEATURE_BASE,
    FEATURE_CP_ASYNC,
    FEATURE_LDMATRIX,
    FEATURE_STMATRIX,
    FEATURE_LDMATRIX_BYTES,   // m16n16: transposed matrices of 8-bit elements
    FEATURE_MMA,
    FEATURE_MMA_F64,   // of 16 rows
    FEATURE_MMA_FP8,
    FEATURE_MMA_FP8_UNITS,   // multiplied natively; otherwise ptxas converts operands to f16 for each instruction
    FEATURE_MBARRIER,
    FEATURE_TMA,
    FEATURE_WGMMA,
    FEATURE_CLUSTER,
    FEATURE_PDL,
    FEATURE_VECTOR_RED,
    FEATURE_COUNT
} Feature;
const char *feature_text(Feature feature);

// Costs of GEMM loops fed by TMA, measured on a device; inputs of the models in passes/cost/. Clocks are those of a
// multiprocessor; bytes are per clock unless a comment says otherwise.
typedef struct WgmmaCosts {
    // one wgmma instruction
    int64_t k_bytes, columns, column_clocks;   // it covers k_bytes of k, and takes column_clocks per `columns` columns
    int64_t instruction_clocks;                // minimum per instruction, if instructions run one after the other
    // a device that multiplies everywhere
    int64_t power_clocks;      // column_clocks at clock_mhz, as power allows
    int64_t power_bytes;       // that a multiprocessor loads: what their power delays the multiplications (300 to none)
    int64_t load_bytes;        // that a multiprocessor loads from the L2 cache while all do
    int64_t crossing_bytes;    // as many more cost the rows of a box, of 128 bytes, in two lines of that cache
    int64_t straddle_bytes;    // the same, of rows that start within a sector, too
    int64_t multicast_share;   // percent of that which such rows cost if two CTAs of a cluster share them
    int64_t multicast_clocks;   // that CTAs which share loads need more, at the beginning and the end of a launch
    int64_t chosen_clocks;      // that a launch takes more if it chooses the cluster of its kernel
    // one k step, one tile
    int64_t shared_bytes;       // bandwidth of shared memory, shared by TMA and wgmma
    int64_t step_clocks;        // waits and arrivals of a step
    int64_t latency_clocks;     // from the arrival of a slot to its release, without the instructions
    int64_t tail_clocks;        // epilogue: per column of 64 rows
    int64_t scattered_clocks;   // added per column if the epilogue stores from registers
    int64_t sector_clocks;      // added per row of results that ends within a sector of the L2 cache
    // memory
    int64_t memory_clocks;   // latency of a load under full load
    int64_t cache_clocks;    // the same, of a load that the L2 cache has
    int64_t memory_bytes;    // bandwidth of device memory, all multiprocessors
    int64_t traffic_bytes;   // bandwidth of operands, if long pieces of their rows are under way, all multiprocessors
    int64_t split_share;     // percent that it takes longer if CTAs share the steps of a tile
    int64_t stored_bytes;    // bandwidth of results, all multiprocessors
    int64_t short_bytes;     // a piece of so many takes twice the time of a byte of a long one
    int64_t both_limits;     // percent of time that two equal limits of a launch take more than one
    int64_t zero_bytes;      // zeros that TMA fills in beyond a tensor's end, all multiprocessors
    // clusters and split-K
    int64_t cluster_clocks;         // to exchange the partial tiles of a pair of CTAs
    int64_t further_clocks;         // the same, added for each CTA of the cluster behind the second
    int64_t shared_sums_clocks;     // the same, added where warpgroups share a tile: one of them adds up
    int64_t cluster_bytes;          // bandwidth of the L2 cache, all clusters
    int64_t peer_bytes;             // read by a CTA from the shared memory of other CTAs
    int64_t stray_clusters;         // one in this many clusters of 3+ CTAs cannot be co-scheduled
    int64_t second_launch_clocks;   // split-K by workspace: the launch of the reduction kernel
    int64_t workspace_bytes;        // bandwidth to write or read the workspace, all multiprocessors
    int64_t slice_steps;            // the least number of k steps for which a slice of its own pays
    // the variant without TMA and wgmma (passes/cost/cost_fallback.c)
    int64_t element_clocks;   // to load an element for each lane of a warp
    int64_t waited_clocks;    // the same, of a CTA alone
    int64_t products;         // multiply-adds a clock
    // cooperative warpgroups that do other work between products (passes/cost/cost_cooperative.c)
    int64_t strip_bytes;                      // of k, for which 64 rows take 2 clocks per column
    int64_t work_clocks, work_elements;       // clocks of one warpgroup per work_elements elements of other work
    int64_t hidden_clocks, hidden_elements;   // the same, hidden behind products of the next step
    // Of one warpgroup's chain: per convert_elements of left operands that its threads convert in registers; waits of a step.
    int64_t convert_clocks, convert_elements;
    int64_t convert_step_clocks;
    int64_t convert_issue_clocks;   // the same, of all warpgroups together, which share issue slots and shared memory
    int64_t convert_pieces;   // of a step, that are converted and multiplied in turn: more, and each waits for itself
    int64_t tile_clocks;      // per tile, without its steps
    int64_t hidden_share;     // reciprocal of the share of load time that overlaps MMA and is still charged
    int64_t alone_clocks;     // added if a CTA computes a single tile, so that nothing is loaded ahead
    int64_t alias_clocks;     // added if the epilogue is staged in an operand's tile
    int64_t wait_clocks;      // per step, without its work
    int64_t uneven;           // share of a tile, in 1/1024, by which the work of persistent CTAs differs
} WgmmaCosts;

// What instructions of a warp cost, in quarters of a clock of a multiprocessor: each of its four partitions issues one
// per clock. (CUDA C++ Programming Guide, "Throughput of Native Arithmetic Instructions"; shared memory moves one row
// of its banks per clock.)
typedef struct WarpCosts {
    int64_t arithmetic;   // an addition, a multiplication, a conversion of types
    int64_t function;     // exp2 and its like; a division
    int64_t sector;       // of global memory, from the L2 cache
    int64_t select;       // a selection or permutation of bytes
    int64_t shuffle;      // of 32 bits
    int64_t wavefront;    // of an access to shared memory
    int64_t barrier;      // of a CTA, from the last store before it to the first load behind it: latency
    // What the search for layouts reckons with, no time: iterations of a loop whose extent is known at launch (a loop over
    // K = 1024 in steps of 64), within the bounds that facts give; and the steps that it takes at most (about 0.2 us each).
    int64_t trips, search_steps;
} WarpCosts;
enum { COST_CLOCK = 4 };   // units of WarpCosts in a clock

typedef struct Target {
    const char *name;          // "sm_90a": what --target takes, LLVM's cpu name and ptxas's -arch
    const char *ptx_feature;   // LLVM feature string for the PTX version, "+ptx81"
    const char *summary;       // "Hopper: H100, H200"
    unsigned features;         // bit per Feature
    int warp_lanes;            // 32
    int max_threads;           // per CTA
    int threads_multiprocessor;
    int64_t shared_block;                             // most bytes of a CTA, with opt-in
    int64_t shared_default;                           // the same without opt-in
    int64_t shared_multiprocessor, shared_reserved;   // bytes per multiprocessor; reserved per CTA
    int registers_thread;                             // limit of a thread
    int registers_multiprocessor;
    int register_unit, registers_least;         // setmaxnreg takes multiples of the unit, from the least on
    int registers_loader, registers_gatherer;   // of threads that load by TMA alone; with addresses of their own
    int64_t ring_bytes, ring_slots;   // of tiles that roles load: more on the way gain nothing (docs/notebook/plan.md)
    int partitions;                   // of a multiprocessor; each has its own warps and its share of the registers
    int multiprocessors;              // of the most common device, for cost models
    int gpc_ctas;   // next to each other in a grid, whose loads of one line the L2 cache gets as one; 0: not measured
    int64_t clock_mhz;      // of its multiprocessors where power does not limit it; 0: not measured
    int64_t stream_bytes;   // of device memory, a clock of that, all multiprocessors
    int64_t launch_ns;      // that a kernel takes in addition to its clocks
    WgmmaCosts wgmma;       // of targets with FEATURE_WGMMA
    WarpCosts costs;
    int banks, bank_bytes;          // shared memory
    int sector_bytes, line_bytes;   // global memory
    int64_t l2_bytes,
        l2_kept,      // of the most common device; the share that stays resident while other data streams through
        l2_sharers,   // CTAs that read the same data at about the same time, from which on memory is fast enough
        l2_added;     // how often a byte counts to which CTAs add: it is read, changed and written
    int64_t memory_period;   // rows at a distance of a multiple of this many bytes load the memory channels unequally
    int memory_starts;       // number of different start columns that spread such rows
    int vector_bytes;        // widest load or store of a thread
    int float8_bits;         // of the fraction of a sum of products of 8-bit floats, where they are multiplied as such;
                             // 0: as many as of others
    int max_barriers;        // named barriers
    int64_t max_grid;        // CTAs along x
    int64_t param_bytes;     // most of a kernel's parameters (PTX ISA, "Kernel Function Parameters")
    int max_cluster, cluster_most;   // CTAs of a cluster: portable, and non-portable (opt-in); 1: no clusters
    // A TMA load to an address in the cluster's window of shared memory calls a slow path that checks whose memory it
    // is.
    bool tests_cluster_window;
} Target;

// The terms of a LaunchCost by number, in the order of COST_TERMS.
enum { COST_TERM_COUNT = sizeof(LaunchCost) / sizeof(int64_t) };
const char *cost_term_name(int term);
int cost_term_named(const char *name);   // COST_TERM_COUNT: none
int64_t *cost_term(LaunchCost *cost, int term);

const Target *target_named(const char *name);   // NULL when unknown
const Target *target_at(int index);             // NULL past the end; for listing
// How many CTAs' registers, of so many a thread, and how many CTAs' shared memory a multiprocessor has.
int64_t target_ctas_by_registers(const Target *target, int registers, int threads);
int64_t target_ctas_by_shared(const Target *target, int64_t bytes);
// Number of CTAs that share a tile of `threads` threads: 1 if one CTA holds them all, 0 if no cluster does.
int target_cluster(const Target *target, int64_t threads);
static inline int target_warpgroup(const Target *t) {
    return t->partitions * t->warp_lanes;
}   // threads: a warp of each
static inline bool target_has(const Target *t, Feature f) {
    return t->features >> f & 1;
}

// A tensor-core instruction of one warp: c[m, n] += a[m, k] * b[k, n]. Register layouts are thread-value layouts in the
// notation of layout/layout.h: (lane, value) -> coordinates (m, k), (n, k) and (m, n). (PTX ISA, "Matrix fragments for
// mma".)
typedef struct MmaInfo {
    const char *name;   // the word in `mma(m16n8k16_f32_bf16, ...)`
    int m, n, k;
    const char *a_type, *b_type, *c_type;   // type texts
    const char *a_layout;                   // (lane, value) -> (m, k)
    const char *b_layout;                   // (lane, value) -> (n, k)
    const char *c_layout;                   // (lane, value) -> (m, n)
    Feature feature;
} MmaInfo;
const MmaInfo *mma_named(const char *name);
const MmaInfo *mma_at(int index);
const MmaInfo *mma_find(const Target *target, const char *a_type, const char *b_type,
                        const char *c_type);   // NULL: none
// The same, or one for a wider type that holds both operands' exactly: they are converted in registers. Of several, the
// one whose rows and steps exceed m and k of the tile by the least.
const MmaInfo *mma_holding(const Target *target, const char *a_type, const char *b_type, const char *c_type, int64_t m,
                           int64_t k);

// An addition to consecutive elements of global memory by one instruction (red.c).
typedef struct RedInfo {
    const char *type;   // text
    int elements;
    const char *suffix;   // of the instruction, behind `add.`
    Feature feature;
} RedInfo;
const RedInfo *red_of(const char *type, int64_t elements);      // NULL: there is none
int64_t red_elements(const Target *target, const char *type);   // the most at once; 1: an element at a time

// A tensor-core instruction of one warpgroup: acc[m, n] += a[m, k] * b[n, k], m = 64. Too many for rows: every n from 8
// to 256 in steps of 8 (8-bit integers above 32: of 16), with k 32 bytes long. The word is `m64n256k16_f32_bf16`; fp8
// may mix, with b's type last: `m64n128k32_f32_e4m3_e5m2`. (PTX ISA, "wgmma.mma_async", matrix shapes.)
typedef struct WgmmaInfo {
    int m, n, k;
    char acc_type[8], a_type[8], b_type[8];   // type texts
    bool can_transpose;                       // operands with m or n contiguous (16-bit types)
    const char *a_layout;                     // of a in registers: (thread of the warpgroup, value) -> (m, k)
    // The same where k comes in another order, in which a thread holds of a what it holds of an accumulator: pairs of
    // columns, 8 apart; and that order, k -> place in memory of b. NULL: a_layout is so already.
    const char *a_paired, *k_paired;
    char acc_layout[64];   // (thread of the warpgroup, value) -> (m, n)
} WgmmaInfo;
enum { WGMMA_ROWS = 64, WGMMA_COLUMNS = 256 };   // m of all of them; most n
enum { FRAGMENT_COLUMNS = 8 };                   // of an accumulator, that lanes of a warp hold side by side
enum { WGMMA_ROOM = 30 };   // registers that a thread must have at launch besides the accumulators (ptxas, C7602)
bool wgmma_named(const char *name, WgmmaInfo *out);   // false: there is no such instruction
// The instruction with these operands and this n, or two next to each other, the first with the most columns, if a thread has
// registers for as many. False when the target has none; then m, n and k are what the extents must be multiples of (0: these types
// have none).
bool wgmma_find(const Target *target, const char *a_type, const char *b_type, const char *acc_type, int n,
                WgmmaInfo *out);

// How an operand of wgmma lies in shared memory (PTX ISA, "Matrix descriptor").
typedef struct WgmmaForm {
    const char *name;   // the word of a_form and b_form: k128, mn64, ...
    int swizzle;        // bytes: 128, 64, 32; 0: none
    bool k_major;       // k is contiguous, else m or n
} WgmmaForm;
const WgmmaForm *wgmma_form(const char *name);   // NULL: unknown

// The matrices that ldmatrix and stmatrix move: one thread each gives the address of a row. (PTX ISA, "ldmatrix",
// "stmatrix".)
typedef struct MatrixFacts {
    int rows, row_bytes;
    int byte_rows;   // of a matrix of 8-bit elements, which is square (ldmatrix_bytes)
} MatrixFacts;
extern const MatrixFacts matrix_facts;

// What a tensor map can say, and the fields of mbarriers and matrix descriptors that go with it.
enum { TMA_SPANS = 3 };
typedef struct TmaFacts {
    int max_rank, max_box;   // dims; elements of a box along one of them
    int unit_bytes;          // addresses, strides and rows of a box are multiples of it; what the swizzle moves
    int spans
        [TMA_SPANS];   // bytes of a row that the swizzles take, the widest first; a pattern repeats after swizzle_rows
    int swizzle_rows;
    // Im2col: rows of a box; the largest stride; by the number of windows, the bits of an offset from the first tap and,
    // with a sign, of a corner. (CUDA driver API, cuTensorMapEncodeIm2col; PTX ISA, "im2col mode".)
    int max_pixels, max_stride, corner_bits[3];
    int map_align;      // bytes, of a tensor map
    int shared_align;   // bytes, of a box in shared memory
    // L2 promotion: L2 fetches up to this many bytes if fewer are read, which suits whole tiles. If rows do not start
    // at multiples of it, bandwidth falls from 4.5 to 4.1 TB/s (H200, rows of 1152 bytes in boxes of 128 bytes).
    int fetch_bytes;
    int64_t max_transaction;    // bytes that one phase of an mbarrier can expect
    int64_t descriptor_bytes;   // offsets in a matrix descriptor are below this, in units of unit_bytes
    int64_t evict_first, evict_normal,
        evict_last;   // cache policies of a copy, as createpolicy makes them for all of its bytes
    // Multiply-adds of a CTA by mma that hide the longer latency of TMA compared to cp.async (measured;
    // passes/select/tma_simple.c).
    int64_t hidden_products;
} TmaFacts;
extern const TmaFacts tma_facts;
bool tma_swizzle_valid(int64_t bytes);             // 0, 32, 64, 128
int64_t tma_swizzled(int64_t byte, int swizzle);   // where the byte with this shared-memory address lies
