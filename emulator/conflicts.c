// Bank conflicts: how many wavefronts a warp's access to shared memory takes beyond the least possible.
//
// Shared memory answers one word of each bank at a time. Accesses of up to 4 bytes are one phase of 32 lanes; of 8
// bytes two phases of half a warp; of 16 bytes four phases of a quarter. In a phase, lanes that want the same word
// share it, and different words of one bank take a wavefront each. ldmatrix has a phase for each matrix: eight rows of
// 16 bytes.
//
// And sectors: how many 32-byte pieces of global memory a warp's access touches. Tensors start at the beginning of one.
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

static void count_phase(Agent *agent, EmuSite *site, const int64_t *bytes_at, int count, int bytes) {
    if (!count) return;
    int extra = wavefronts(agent->cta->machine->target, bytes_at, count, bytes) - 1;
    agent->cta->machine->report->conflicts += extra;
    site->conflicts += extra;
}

static EmuSite *count_access(Agent *agent, const Mem *mem) {
    Machine *machine = agent->cta->machine;
    EmuSite *site = &machine->sites[agent->pc];
    machine->report->shared_accesses++;
    site->accesses++;
    site->buffer = mem->buf->name;
    return site;
}

void conflicts_count(Agent *agent, const Mem *mem, const int64_t *bytes_at, Mask mask, int bytes) {
    int lanes = bytes <= 4 ? LANES : bytes <= 8 ? LANES / 2 : LANES / 4;   // of a phase
    if (!agent->warp || !mask) return;
    EmuSite *site = count_access(agent, mem);
    for (int first = 0; first < LANES; first += lanes) {
        int64_t active[LANES];
        int count = 0;
        for (int l = first; l < first + lanes; l++)
            if (mask >> l & 1) active[count++] = bytes_at[l];
        count_phase(agent, site, active, count, bytes);
    }
}

void conflicts_rows(Agent *agent, const Mem *mem, const int64_t *rows, int count) {
    EmuSite *site = count_access(agent, mem);
    for (int i = 0; i < count; i++) count_phase(agent, site, rows + i * 8, 8, 16);
}

void sectors_count(Agent *agent, const int64_t *bytes_at, Mask mask, int bytes) {
    int size = agent->cta->machine->target->sector_bytes, count = 0;
    int64_t touched[MOST_WORDS];
    if (!agent->warp) return;
    for (Mask m = mask; m; m &= m - 1) {
        int64_t at = bytes_at[__builtin_ctz(m)];
        for (int64_t sector = at / size; sector <= (at + bytes - 1) / size && count < MOST_WORDS; sector++) {
            int k = count;   // mostly the last one again
            while (k > 0 && touched[k - 1] != sector) k--;
            if (!k) touched[count++] = sector;
        }
    }
    agent->cta->machine->report->sectors += count;
}

// ---- sites: instructions that come from one place of the source (an unrolled loop's) are one ----
static bool same_site(const EmuSite *a, Span place, const char *buffer) {
    return a->place.file == place.file && a->place.line == place.line && a->place.column == place.column &&
           a->buffer == buffer;
}

void conflicts_sites(const Machine *machine, Arena *keep) {
    const Code *code = machine->code;
    VEC(EmuSite) sites = {0};
    for (int i = 0; i < machine->report->site_count; i++) vec_push(keep, &sites, machine->report->sites[i]);
    for (int pc = 0; pc < code->count; pc++) {
        const EmuSite *site = &machine->sites[pc];
        int at = 0;
        if (!site->accesses) continue;
        while (at < sites.count && !same_site(&sites.items[at], code->places[pc], site->buffer)) at++;
        if (at == sites.count) vec_push(keep, &sites, ((EmuSite){code->places[pc], site->buffer, 0, 0}));
        sites.items[at].accesses += site->accesses;
        sites.items[at].conflicts += site->conflicts;
    }
    machine->report->site_count = sites.count;
    machine->report->sites = sites.items;
}
