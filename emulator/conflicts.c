// Bank conflicts: how many wavefronts a warp's access to shared memory takes beyond the least possible.
//
// Shared memory answers one word of each bank at a time. Accesses of up to 4 bytes are one phase of 32 lanes; of 8 bytes
// two phases of half a warp; of 16 bytes four phases of a quarter. In a phase, lanes that want the same word share it, and
// different words of one bank take a wavefront each. ldmatrix has a phase for each matrix: eight rows of 16 bytes.
#include "emulator/machine.h"

enum { MOST_BANKS = 64, MOST_WORDS = 64 };

// Wavefronts of a phase: `count` pieces of `bytes` bytes.
static int wavefronts(const Target *target, const int64_t *bytes_at, int count, int bytes) {
    int64_t words[MOST_WORDS];
    uint8_t used[MOST_BANKS] = {0};
    int total = 0, most = 0;
    for (int i = 0; i < count; i++) {
        int64_t first = bytes_at[i] / target->bank_bytes, last = (bytes_at[i] + bytes - 1) / target->bank_bytes;
        for (int64_t word = first; word <= last && total < MOST_WORDS; word++) {
            int bank = (int)(word % target->banks);
            bool seen = false;
            for (int k = 0; used[bank] && k < total && !seen; k++) seen = words[k] == word;
            if (seen) continue;
            words[total++] = word;
            if (++used[bank] > most) most = used[bank];
        }
    }
    return most;
}

static void count_phase(Agent *agent, const int64_t *bytes_at, int count, int bytes) {
    if (!count) return;
    agent->cta->machine->report->conflicts += wavefronts(agent->cta->machine->target, bytes_at, count, bytes) - 1;
}

void conflicts_count(Agent *agent, const int64_t *bytes_at, Mask mask, int bytes) {
    int lanes = bytes <= 4 ? LANES : bytes <= 8 ? LANES / 2 : LANES / 4;   // of a phase
    if (!agent->warp || !mask) return;
    agent->cta->machine->report->shared_accesses++;
    for (int first = 0; first < LANES; first += lanes) {
        int64_t active[LANES];
        int count = 0;
        for (int l = first; l < first + lanes; l++)
            if (mask >> l & 1) active[count++] = bytes_at[l];
        count_phase(agent, active, count, bytes);
    }
}

void conflicts_rows(Agent *agent, const int64_t *rows, int count) {
    agent->cta->machine->report->shared_accesses++;
    for (int i = 0; i < count; i++) count_phase(agent, rows + i * 8, 8, 16);
}
