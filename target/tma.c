// Tensor maps. (CUDA driver API, cuTensorMapEncodeTiled; PTX ISA, "Tensor swizzling modes", "Async proxy".)
#include "target/target.h"

const TmaFacts tma_facts = {.max_rank = 5,
                            .hidden_products = 1 << 20,
                            .max_box = 256,
                            .unit_bytes = 16,
                            .spans = {128, 64, 32},
                            .swizzle_rows = 8,
                            .max_pixels = 1024,
                            .max_stride = 8,
                            .corner_bits = {16, 8, 5},
                            .map_align = 64,
                            .shared_align = 128,
                            .fetch_bytes = 256,
                            .max_transaction = (1 << 20) - 1,
                            .descriptor_bytes = 1 << 18,
                            .evict_first = 0x12F0000000000000,
                            .evict_normal = 0x1000000000000000,
                            .evict_last = 0x14F0000000000000};

bool tma_swizzle_valid(int64_t bytes) {
    bool valid = bytes == 0;
    for (int i = 0; i < TMA_SPANS; i++) valid |= bytes == tma_facts.spans[i];
    return valid;
}

// Units of 16 bytes change places: their number takes the exclusive or of address bits 7 and up, three of them for a
// swizzle of 128 bytes, two for 64, one for 32. It is the address that counts, not the place in the box.
int64_t tma_swizzled(int64_t byte, int swizzle) {
    int64_t mask = swizzle / tma_facts.unit_bytes - 1;
    return swizzle > 0 ? byte ^ (byte >> 7 & mask) * tma_facts.unit_bytes : byte;
}
