// Machine facts as data: limits of each architecture, its instructions and their register layouts. Passes, emulator and
// codegen read these rows; no pass knows a number of a machine by heart.
#pragma once
#include "layout/layout.h"
#include <stdbool.h>
#include <stdint.h>

typedef enum {
    FEATURE_BASE,
    FEATURE_CP_ASYNC,
    FEATURE_LDMATRIX,
    FEATURE_STMATRIX,
    FEATURE_MMA,
    FEATURE_MMA_FP8,
    FEATURE_MMA_FP8_UNITS,   // multiplied as they are; else ptxas converts them to f16, for each instruction anew
    FEATURE_MBARRIER,
    FEATURE_TMA,
    FEATURE_WGMMA,
    FEATURE_CLUSTER,
    FEATURE_PDL,
    FEATURE_VECTOR_RED,
    FEATURE_COUNT
} Feature;
const char *feature_text(Feature feature);

// Of wgmma in a loop that TMA feeds, measured on a device (passes/cost/cost_pingpong.c).
typedef struct WgmmaCosts {
    int64_t k_bytes, columns,
        column_clocks;            // an instruction takes k_bytes of k, and column_clocks for so many columns
    int64_t shared_bytes;         // of shared memory in a clock, TMA's and the instructions' together
    int64_t step_clocks;          // for the waits and arrivals of a step
    int64_t latency_clocks;       // from the tile's arrival to its release, beside the instructions
    int64_t instruction_clocks;   // of each of them at least, one after the other
    int64_t tail_clocks;          // for the results of 64 rows, for each column
    int64_t scattered_clocks;     // as well, where they are stored from registers
    int64_t memory_clocks;        // from asking for a tile in memory to having it, where all multiprocessors ask
    int64_t zero_bytes;           // behind a tensor's end that TMA fills in a clock, for all multiprocessors together
    int64_t cluster_clocks;       // for blocks of a cluster to meet with their parts of a tile
    int64_t cluster_bytes;        // that the L2 cache gives all clusters in a clock
    int64_t memory_bytes;         // that memory gives all multiprocessors in a clock
    int64_t apart_clocks;         // for a second launch, of what adds up parts of tiles
    int64_t apart_bytes;          // of such parts that are written or read in a clock, by all
    int64_t peer_bytes;           // of other blocks' shared memory that a block reads in a clock
    int64_t stray_clusters;       // of so many clusters of three or more one finds no place
    // where warpgroups share a point and do other work between products (passes/cost/cost_cooperative.c):
    int64_t strip_bytes;                      // of k, for which a strip of rows takes 2 clocks a column
    int64_t work_clocks, work_elements;       // for so many elements of other work, by one warpgroup
    int64_t beside_clocks, beside_elements;   // the same where products of the next step run beside it
    int64_t tile_clocks;                     // besides the steps of a point
    int64_t hidden_share;                     // of the clocks of loads beside products one in so many counts
    int64_t alone_clocks;                     // as well, where a point is a block, and nothing is loaded before it
    int64_t alias_clocks;                   // as well, where results leave by way of a tile
    int64_t wait_clocks;                      // besides the work of a step
} WgmmaCosts;

typedef struct Target {
    const char *name;          // "sm_90a": what --target takes, LLVM's cpu name and ptxas's -arch
    const char *ptx_feature;   // LLVM feature string for the PTX version, "+ptx80"
    const char *summary;       // "Hopper: H100, H200"
    unsigned features;         // bit per Feature
    int warp_lanes;            // 32
    int max_threads;           // per block
    int64_t shared_block;      // bytes a block may have (opt-in)
    int64_t shared_default;    // bytes without opting in
    int64_t shared_multiprocessor, shared_reserved;   // bytes per multiprocessor; reserved per block
    int registers_thread;                             // most a thread can have
    int registers_multiprocessor;
    int register_unit, registers_least;   // what setmaxnreg takes: multiples of the unit, from the least on
    int partitions;                 // of a multiprocessor: each runs every fourth warp, with its share of the registers
    int multiprocessors;            // of the usual device, for cost models
    WgmmaCosts wgmma;               // for those with the feature
    int banks, bank_bytes;          // shared memory
    int sector_bytes, line_bytes;   // global memory
    int64_t l2_bytes, l2_kept;      // of the usual device; what stays in it beside what streams through
    int64_t memory_period;          // rows so many bytes apart, or a multiple, load the memory's channels unequally
    int memory_starts;              // different columns that spread such rows
    int vector_bytes;               // widest load or store of a thread
    int max_barriers;               // named barriers
    int64_t max_grid;               // blocks along x
    int max_cluster, cluster_most;   // blocks of a cluster, of any launch and with leave; 1: there are no clusters
    bool
        tests_cluster_window;   // a TMA load to an address in the cluster's window tests whose it is, and calls what serves another's
} Target;

const Target *target_named(const char *name);   // NULL when unknown
const Target *target_at(int index);             // NULL past the end; for listing
// Blocks among which a point of `threads` threads is divided: 1 when one block holds them all, 0 when no cluster does.
int target_cluster(const Target *target, int64_t threads);
static inline int target_warpgroup(const Target *t) {
    return t->partitions * t->warp_lanes;
}   // threads: a warp of each
static inline bool target_has(const Target *t, Feature f) {
    return t->features >> f & 1;
}

// A tensor-core instruction of one warp: c[m, n] += a[m, k] * b[k, n]. Register layouts are thread-value layouts in the
// notation of layout/layout.h: (lane, value) -> coordinates (m, k), (n, k) and (m, n). (PTX ISA, "Matrix fragments for mma".)
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
// The same, or one for a wider type that holds both operands' exactly: they are converted in registers.
const MmaInfo *mma_holding(const Target *target, const char *a_type, const char *b_type, const char *c_type);

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
// to 256 in steps of 8 (8-bit integers above 32: of 16), with k 32 bytes long. The word is `m64n256k16_f32_bf16`; fp8 may
// mix, with b's type last: `m64n128k32_f32_e4m3_e5m2`. (PTX ISA, "wgmma.mma_async", matrix shapes.)
typedef struct WgmmaInfo {
    int m, n, k;
    char acc_type[8], a_type[8], b_type[8];   // type texts
    bool can_transpose;                       // operands with m or n contiguous (16-bit types)
    const char *a_layout;                     // of a in registers: (thread of the warpgroup, value) -> (m, k)
    // The same where k comes in another order, in which a thread holds of a what it holds of an accumulator: pairs of columns, 8
    // apart; and that order, k -> place in memory of b. NULL: a_layout is so already.
    const char *a_paired, *k_paired;
    char acc_layout[64];   // (thread of the warpgroup, value) -> (m, n)
} WgmmaInfo;
enum { WGMMA_ROWS = 64 };   // m of all of them
enum {
    WGMMA_ROOM = 30
};   // registers beside an instruction's accumulators that threads must start with (ptxas, C7602)
bool wgmma_named(const char *name, WgmmaInfo *out);   // false: there is no such instruction
// The instruction with these operands and this n; false when the target has none.
bool wgmma_find(const Target *target, const char *a_type, const char *b_type, const char *acc_type, int n,
                WgmmaInfo *out);

// How an operand of wgmma lies in shared memory (PTX ISA, "Matrix descriptor").
typedef struct WgmmaForm {
    const char *name;   // the word of a_form and b_form: k128, mn64, ...
    int swizzle;        // bytes: 128, 64, 32; 0: none
    bool k_major;       // k is contiguous, else m or n
} WgmmaForm;
const WgmmaForm *wgmma_form(const char *name);   // NULL: unknown

// The matrices that ldmatrix and stmatrix move: one thread each gives the address of a row. (PTX ISA, "ldmatrix", "stmatrix".)
typedef struct MatrixFacts {
    int rows, row_bytes;
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
    int shared_align;   // bytes, of a box in shared memory
    // L2 may fetch up to so many bytes where fewer are asked for: what whole tiles want. But where rows do not begin at multiples of
    // that it takes reads in halves of such lines from 4.5 to 4.1 TB/s (H200, rows of 1152 bytes in boxes of 128 bytes).
    int fetch_bytes;
    int64_t max_transaction;    // bytes that one phase of an mbarrier can expect
    int64_t descriptor_bytes;   // offsets in a matrix descriptor are below this, in units of unit_bytes
    int64_t evict_first, evict_normal,
        evict_last;   // cache policies of a copy, as createpolicy makes them for all of its bytes
    // Multiply-adds of a block by mma that hide what a load takes longer by TMA than by cp.async (measured, passes/select/tma_simple.c).
    int64_t hidden_products;
} TmaFacts;
extern const TmaFacts tma_facts;
bool tma_swizzle_valid(int64_t bytes);             // 0, 32, 64, 128
int64_t tma_swizzled(int64_t byte, int swizzle);   // where the byte with this shared-memory address lies
