#include "passes/cost/search_internal.h"
#include "passes/tile/tile.h"

int64_t cost_rate(int64_t amount, int64_t per_clock) {
    enum { UNIT = 1 << 20 };   // target/launch_cost.h
    return per_clock > 0 ? (amount * UNIT + per_clock / 2) / per_clock : 0;
}

// Of short pieces of rows, memory delivers fewer bytes.
void add_traffic(const Target *target, int64_t row_bytes, int64_t column_bytes, int64_t run, LaunchCost *terms) {
    const WgmmaCosts *machine = &target->wgmma;
    if (run <= 0) return;
    terms->row_bytes = row_bytes;
    terms->column_bytes = column_bytes;
    terms->traffic = cost_rate(run + machine->short_bytes, run * machine->traffic_bytes);
    terms->both = machine->both_limits;
}

bool is_swapped(const TileCandidate *tile) {
    return tile->cost.product[0] != tile->m && tile->cost.product[1] == tile->m;
}

LaunchCost launch_cost(const Target *target, const TileCandidate *tile) {
    const PingpongCost *cost = &tile->cost;
    const WgmmaCosts *machine = &target->wgmma;
    LaunchCost terms = {.tile_rows = tile->m,
                        .tile_columns = tile->n,
                        .tile_depth = cost->k,
                        .step = cost->step,
                        .stream = larger(cost->step, cost->stream),
                        .tail = cost->tail,
                        .hidden = tile->split == 1 && cost->hidden,
                        .padding = cost_rate(cost->bytes, machine->zero_bytes),
                        .power = cost->power,
                        .fetch = cost->fetch,
                        .first_rows = cost->lines[0],
                        .second_rows = cost->lines[1],
                        .crossing = cost_rate(machine->crossing_bytes, machine->load_bytes),
                        .cluster_rows = cost->cluster[0],
                        .cluster_columns = cost->cluster[1],
                        .stray = machine->stray_clusters,
                        .multicast = cost->cluster[0] ? cost_rate(machine->multicast_share, 100) : 0,
                        .meeting = cost->cluster[0] ? machine->multicast_clocks : 0,
                        .straddle = cost_rate(machine->straddle_bytes, machine->load_bytes),
                        .rest = target->launch_ns * target->clock_mhz / 1000};
    bool swapped = is_swapped(tile);
    terms.stored = cost_rate(cost->result, machine->stored_bytes);
    if (tile->shapes || tile->splits) terms.tail += machine->chosen_clocks;
    add_traffic(target, cost->row_bytes[swapped], cost->row_bytes[!swapped], cost->run, &terms);
    if (tile->split > 1) {   // CTAs that read the same tile do so at different times
        terms.split = tile->split;
        terms.traffic += terms.traffic * machine->split_share / 100;
        terms.exchange = machine->cluster_clocks + (tile->rate > 0 ? machine->shared_sums_clocks : 0);
        terms.alone = tile->rate > 0 ? machine->alone_clocks : 0;
        terms.further = machine->further_clocks;
        terms.sums = cost->sums;
        terms.load = cost_rate(cost->loaded, machine->cluster_bytes);
    } else if (tile->split == BY_WORKSPACE) {
        terms.step = terms.stream;
        terms.tail = tile->n * (machine->tail_clocks + machine->scattered_clocks);
        terms.slice_steps = machine->slice_steps;
        terms.read = cost_rate(cost->bytes, machine->memory_bytes);
        terms.sum = cost_rate(2 * (int64_t)sizeof(float), machine->workspace_bytes);   // written and read
        terms.launch = machine->second_launch_clocks;
    }
    return terms;
}

void add_copies(const Target *target, const int64_t bytes[2], int launches, LaunchCost *terms) {
    terms->copied_rows =
        cost_rate(2 * bytes[0] / larger(terms->tile_rows, 1), target->stream_bytes);   // read and written
    terms->copied_columns = cost_rate(2 * bytes[1] / larger(terms->tile_columns, 1), target->stream_bytes);
    terms->launch += launches * target->launch_ns * target->clock_mhz / 1000;
}
