// Why ranks count conflicts. Let w be the word address as a linear function of the bits that vary within a phase (lane
// bits and the words of a vector). It takes 2^rank(w) distinct values, and its lowest bits, the bank, take
// 2^rank(bank) values, each equally often. So each bank that is asked at all is asked for 2^(rank(w) - rank(bank))
// words: that many wavefronts, in every phase, because phases differ by a constant. The same argument counts sectors:
// 2^rank(address / sector).
#include "layout/calculator/access_cost.h"

static int log2_floor(int64_t n) {
    return 63 - __builtin_clzll((unsigned long long)n);
}

// The byte-address bits of lane bits [0, lanes) and of the vector's own bytes, as columns. Returns their number.
static int address_columns(Linear a, int element_bits, int64_t width, int lanes, uint64_t *columns) {
    int lane = linear_find_in(a, "lane"), count = 0;
    uint64_t mask = ((uint64_t)1 << a.outs[0].bits) - 1;
    for (int bit = 0; bit < lanes; bit++) {
        uint64_t bits = (a.columns[linear_in_shift(a, lane) + bit] & mask) * (uint64_t)element_bits;
        columns[count++] = bits / 8;
    }
    for (int64_t byte = 1; byte < width * element_bits / 8; byte *= 2) columns[count++] = (uint64_t)byte;
    return count;
}

static bool check_conversion(LayoutContext *cx, Linear a, int element_bits, int64_t width) {
    if (linear_find_in(a, "lane") < 0 || linear_find_in(a, "register") < 0 || a.out_count < 1)
        return layout_refuse(cx, "a conversion maps register and lane to an offset");
    if (element_bits < 1 || width < 1 || (width & (width - 1)) || (element_bits & (element_bits - 1)))
        return layout_refuse(cx, "widths are powers of two");
    return true;
}

static int rank_of_high(const uint64_t *columns, int count, uint64_t unit, uint64_t modulus) {
    uint64_t quotients[128];
    for (int i = 0; i < count; i++) quotients[i] = modulus ? columns[i] / unit % modulus : columns[i] / unit;
    return bits_rank(quotients, count);
}

SharedCost shared_cost_linear(LayoutContext *cx, Linear a, int element_bits, int64_t width, MemoryShape memory) {
    if (!check_conversion(cx, a, element_bits, width)) return (SharedCost){0, 0};
    int lane_bits = a.ins[linear_find_in(a, "lane")].bits, bytes = (int)(width * element_bits / 8);
    int active = log2_floor(phase_lanes(1 << lane_bits, bytes, memory));
    uint64_t columns[128];
    int count = address_columns(a, element_bits, width, active, columns);
    int words = rank_of_high(columns, count, (uint64_t)memory.bank_bytes, 0);
    int banks = rank_of_high(columns, count, (uint64_t)memory.bank_bytes, (uint64_t)memory.banks);
    int64_t phases = (int64_t)1 << (lane_bits - active);
    return (SharedCost){phases, phases << (words - banks)};
}

int64_t sectors_linear(LayoutContext *cx, Linear a, int element_bits, int64_t width, MemoryShape memory) {
    if (!check_conversion(cx, a, element_bits, width)) return 0;
    uint64_t columns[128];
    int count = address_columns(a, element_bits, width, a.ins[linear_find_in(a, "lane")].bits, columns);
    return (int64_t)1 << rank_of_high(columns, count, (uint64_t)memory.sector_bytes, 0);
}

int64_t vector_width_linear(Linear a, int64_t most) {
    if (!a.in_count || !a.out_count) return 1;
    int64_t run = linear_consecutive(a);
    return run < most ? run : most;
}

int64_t sectors_counted(LayoutContext *cx, const int64_t *addresses, int lanes, int bytes, MemoryShape memory) {
    int per_lane = (bytes + memory.sector_bytes - 1) / memory.sector_bytes;
    int64_t *seen = NEW_ARRAY(cx->arena, int64_t, lanes * per_lane), count = 0;
    for (int i = 0; i < lanes * per_lane; i++) {
        if (addresses[i / per_lane] < 0) continue;
        int64_t sector = addresses[i / per_lane] / memory.sector_bytes + i % per_lane, j = 0;
        while (j < count && seen[j] != sector) j++;
        if (j == count) seen[count++] = sector;
    }
    return count;
}
