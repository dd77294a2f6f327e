#include "layout/cost.h"
#include <string.h>

enum { MOST_BANKS = 256, PHASE_WORDS = 256 };   // a phase asks for at most a word of each bank, or one lane's words

int phase_lanes(int lanes, int bytes, MemoryShape memory) {
    int64_t row = (int64_t)memory.banks * memory.bank_bytes;
    int64_t fit = row / (bytes > memory.bank_bytes ? bytes : memory.bank_bytes);
    return fit < 1 ? 1 : fit < lanes ? (int)fit : lanes;
}

// Wavefronts of one phase: the most distinct words that one bank has to give.
static int64_t busiest_bank(const int64_t *addresses, int lanes, int bytes, MemoryShape memory) {
    int words = bytes > memory.bank_bytes ? bytes / memory.bank_bytes : 1, count = 0;
    int64_t asked[PHASE_WORDS], busiest = 0;
    uint16_t load[MOST_BANKS] = {0};
    for (int i = 0; i < lanes * words; i++) {
        if (addresses[i / words] < 0) continue;
        int64_t word = addresses[i / words] / memory.bank_bytes + i % words;
        int bank = (int)(word % memory.banks), before = 0;
        if (load[bank])   // else no word like it can have been there
            while (before < count && asked[before] != word) before++;
        if (load[bank] && before < count) continue;
        asked[count++] = word;
        if (++load[bank] > busiest) busiest = load[bank];
    }
    return busiest;
}

SharedCost shared_cost_counted(const int64_t *addresses, int lanes, int bytes, MemoryShape memory) {
    SharedCost cost = {0, 0};
    if (memory.banks > MOST_BANKS || bytes > PHASE_WORDS * memory.bank_bytes) return cost;
    int step = phase_lanes(lanes, bytes, memory);
    for (int first = 0; first < lanes; first += step) {
        int count = lanes - first < step ? lanes - first : step;
        int64_t wavefronts = busiest_bank(addresses + first, count, bytes, memory);
        cost.phases += wavefronts > 0;
        cost.wavefronts += wavefronts;
    }
    return cost;
}
