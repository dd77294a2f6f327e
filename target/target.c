// Rows of the architectures. Sources: CUDA C++ Programming Guide, table "Technical Specifications per Compute
// Capability" (limits), PTX ISA (instructions and the versions that brought them), LLVM's NVPTX (names); L2
// caches: NVIDIA's architecture white papers.
//
// The PTX version is the lowest with everything the row promises: 7.0 brought cp.async and mma of bf16 and tf32, 8.0
// sm_90a, 8.1 parameters of more than 4,352 bytes, 8.4 mma of fp8, 8.6 sm_100a, 8.7 sm_120a, 8.8 sm_103a and sm_121a.
// Lower versions load with older drivers.
#include "target/target.h"
#include <string.h>

enum { KB = 1024, MB = 1024 * KB };

// Common to all rows: the width of a warp, the register file, the shape of memory.
#define COMMON                                                                                                         \
    .warp_lanes = 32, .max_threads = 1024, .shared_default = 48 * KB, .shared_reserved = KB, .registers_thread = 255,  \
    .registers_multiprocessor = 64 * KB, .partitions = 4, .register_unit = 8, .registers_least = 24,                   \
    .registers_loader = 40, .registers_gatherer = 64, .ring_bytes = 128 * KB, .ring_slots = 8, .banks = 32,            \
    .bank_bytes = 4, .sector_bytes = 32, .line_bytes = 128, .memory_period = 4 * KB, .memory_starts = 8,               \
    .vector_bytes = 16, .max_barriers = 16, .max_grid = INT32_MAX, .param_bytes = 32764,                               \
    .costs = {.arithmetic = 1,                                                                                         \
              .function = 8,                                                                                           \
              .sector = 4,                                                                                             \
              .select = 2,                                                                                             \
              .shuffle = 4,                                                                                            \
              .wavefront = 4,                                                                                          \
              .barrier = 30 * COST_CLOCK,                                                                              \
              .trips = 16,                                                                                             \
              .search_steps = 4 << 20}

// Shared memory of a multiprocessor; a CTA may use all of it except the reserved bytes.
#define SHARED(kilobytes) .shared_multiprocessor = (kilobytes)*KB, .shared_block = ((kilobytes)-1) * KB

// The L2 cache, and the share that stays resident while other data streams through: that of an H200, 32 of 50 MB.
#define L2(megabytes)                                                                                                  \
    .l2_bytes = (megabytes)*MB, .l2_kept = (int64_t)(megabytes)*MB / 8 * 5, .l2_sharers = 4, .l2_added = 3

#define BIT(feature) (1u << FEATURE_##feature)
#define AMPERE (BIT(BASE) | BIT(CP_ASYNC) | BIT(LDMATRIX) | BIT(MMA))
#define ADA (AMPERE | BIT(MMA_FP8))
#define NO_CLUSTERS .max_cluster = 1, .cluster_most = 1
#define CLUSTERS .max_cluster = 8, .cluster_most = 16   // portable; 16 by opt-in
#define HOPPER                                                                                                         \
    (ADA | BIT(STMATRIX) | BIT(MBARRIER) | BIT(TMA) | BIT(CLUSTER) | BIT(PDL) | BIT(MMA_F64) |                         \
     BIT(VECTOR_RED))   // and what came after it
#define BLACKWELL (HOPPER | BIT(LDMATRIX_BYTES))

static const Target targets[] = {
    {COMMON, NO_CLUSTERS, SHARED(164), .name = "sm_80", .threads_multiprocessor = 2048, .ptx_feature = "+ptx81",
     .summary = "Ampere: A100, A30", .features = AMPERE, .multiprocessors = 108, L2(40)},
    {COMMON, NO_CLUSTERS, SHARED(100), .name = "sm_86", .threads_multiprocessor = 1536, .ptx_feature = "+ptx81",
     .summary = "Ampere: A10, A40, RTX 30", .features = AMPERE, .multiprocessors = 84, L2(6)},
    {COMMON, NO_CLUSTERS, SHARED(100), .name = "sm_89", .threads_multiprocessor = 1536, .ptx_feature = "+ptx84",
     .summary = "Ada: L4, L40, RTX 40", .features = ADA | BIT(MMA_FP8_UNITS), .multiprocessors = 128, L2(48),
     .float8_bits = 13},
    {COMMON, CLUSTERS, SHARED(228), .name = "sm_90", .threads_multiprocessor = 2048, .ptx_feature = "+ptx86",
     .summary = "Hopper without its own instructions", .features = HOPPER, .multiprocessors = 132, L2(50)},
    {COMMON, CLUSTERS, SHARED(228), .name = "sm_90a", .threads_multiprocessor = 2048, .ptx_feature = "+ptx86",
     .summary = "Hopper: H100, H200", .features = HOPPER | BIT(WGMMA), .multiprocessors = 132, .gpc_ctas = 16, L2(50),
     .clock_mhz = 1980, .stream_bytes = 2150, .launch_ns = 2200, .float8_bits = 13,
     .wgmma = {.k_bytes = 32,
               .strip_bytes = 128,
               .work_clocks = 3,
               .work_elements = 174,
               .convert_clocks = 560,
               .convert_step_clocks = 160,
               .convert_issue_clocks = 310,
               .convert_elements = 4096,
               .convert_pieces = 2,
               .hidden_clocks = 7,
               .hidden_elements = 900,
               .tile_clocks = 2500,
               .hidden_share = 8,
               .alone_clocks = 3000,
               .alias_clocks = 2600,
               .wait_clocks = 120,
               .uneven = 128,
               .columns = 64,
               .column_clocks = 33,
               .shared_bytes = 160,
               .step_clocks = 12,
               .latency_clocks = 80,
               .power_clocks = 47,
               .power_bytes = 800,
               .load_bytes = 52,
               .crossing_bytes = 72,
               .straddle_bytes = 89,
               .multicast_share = 42,
               .multicast_clocks = 1120,
               .chosen_clocks = 220,
               .instruction_clocks = 35,
               .tail_clocks = 4,
               .scattered_clocks = 22,
               .sector_clocks = 14,
               .memory_clocks = 2420,
               .cache_clocks = 900,
               .zero_bytes = 3650,
               .traffic_bytes = 3584,
               .split_share = 5,
               .stored_bytes = 2500,
               .short_bytes = 388,
               .both_limits = 29,
               .cluster_clocks = 1500,
               .further_clocks = 280,
               .shared_sums_clocks = 1000,
               .cluster_bytes = 4550,
               .memory_bytes = 1775,
               .second_launch_clocks = 3370,
               .workspace_bytes = 1750,
               .slice_steps = 8,
               .element_clocks = 10,
               .waited_clocks = 20,
               .products = 470,
               .peer_bytes = 44,
               .stray_clusters = 8}},
    {COMMON, CLUSTERS, SHARED(228), .name = "sm_100a", .threads_multiprocessor = 2048, .ptx_feature = "+ptx86",
     .summary = "Blackwell: B200", .features = BLACKWELL, .multiprocessors = 148, L2(126)},
    {COMMON, CLUSTERS, SHARED(228), .name = "sm_103a", .threads_multiprocessor = 2048, .ptx_feature = "+ptx88",
     .summary = "Blackwell: B300", .features = BLACKWELL, .multiprocessors = 148, L2(126)},
    {COMMON, CLUSTERS, SHARED(100), .name = "sm_120a", .threads_multiprocessor = 1536, .ptx_feature = "+ptx87",
     .summary = "Blackwell: RTX 50, RTX PRO 6000", .features = BLACKWELL | BIT(MMA_FP8_UNITS), .multiprocessors = 170,
     .tests_cluster_window = true, L2(96)},
    {COMMON, CLUSTERS, SHARED(100), .name = "sm_121a", .threads_multiprocessor = 1536, .ptx_feature = "+ptx88",
     .summary = "Blackwell: GB10", .features = BLACKWELL | BIT(MMA_FP8_UNITS), .multiprocessors = 48,
     .tests_cluster_window = true, L2(24)},
};

enum { TARGETS = sizeof targets / sizeof targets[0] };

// The most CTAs that leave each a quarter of the largest number of threads: several CTAs then share a multiprocessor,
// and memory accesses of one overlap arithmetic and waits of the others. A non-portable size is taken only if a CTA
// would otherwise fill the multiprocessor alone.
int target_cluster(const Target *target, int64_t threads) {
    if (threads <= target->max_threads) return 1;
    if (!target_has(target, FEATURE_CLUSTER)) return 0;
    int chosen = 0;
    for (int blocks = 2; blocks <= target->cluster_most; blocks *= 2) {
        if (threads > (int64_t)blocks * target->max_threads || threads % (blocks * target->warp_lanes) != 0) continue;
        int64_t least = blocks > target->max_cluster ? target->max_threads / 2 : target->max_threads / 4;
        if (chosen == 0 || threads >= blocks * least) chosen = blocks;
    }
    return chosen;
}

const Target *target_at(int index) {
    return index >= 0 && index < TARGETS ? &targets[index] : NULL;
}

const Target *target_named(const char *name) {
    for (int i = 0; i < TARGETS; i++)
        if (strcmp(targets[i].name, name) == 0) return &targets[i];
    return NULL;
}

const char *feature_text(Feature feature) {
    static const char *const texts[] = {
        [FEATURE_BASE] = "base",
        [FEATURE_CP_ASYNC] = "cp.async",
        [FEATURE_LDMATRIX] = "ldmatrix",
        [FEATURE_STMATRIX] = "stmatrix",
        [FEATURE_LDMATRIX_BYTES] = "ldmatrix.b8",
        [FEATURE_MMA] = "mma",
        [FEATURE_MMA_F64] = "mma.f64 of 16 rows",
        [FEATURE_MMA_FP8] = "mma.fp8",
        [FEATURE_MMA_FP8_UNITS] = "native fp8",
        [FEATURE_MBARRIER] = "mbarrier",
        [FEATURE_TMA] = "TMA",
        [FEATURE_WGMMA] = "wgmma",
        [FEATURE_CLUSTER] = "clusters",
        [FEATURE_PDL] = "PDL",
        [FEATURE_VECTOR_RED] = "red.vector",
    };
    _Static_assert(sizeof texts / sizeof texts[0] == FEATURE_COUNT, "a feature without its name");
    return texts[feature];
}

int64_t target_ctas_by_registers(const Target *target, int registers, int threads) {
    int unit = target->register_unit;
    return target->registers_multiprocessor / ((int64_t)((registers + unit - 1) / unit * unit) * threads);
}

int64_t target_ctas_by_shared(const Target *target, int64_t bytes) {
    return target->shared_multiprocessor / (bytes + target->shared_reserved);
}
