// Combinations of tunables that differ in the slots of the main loop alone. Of a ping-pong tile the search prefers the most slots that
// fit, with and without room for the partial sums of split-K, so it visits those: of the seven depths of gemm.tile two or three. Where the
// roles cannot be, it visits those with fewer slots, as the reason may be space. (A single slot has no roles: more may have.)
//
// The last name varies fastest. Its first group of combinations shows whether it is the number of slots and nothing else: each loop has
// as many, and shared memory grows by one slot for each.
#include "passes/cost/search_internal.h"
#include "passes/specialize/warp_specialize.h"

static int64_t last_value(const Func *kernel) {
    int64_t value = 0;
    for (const Attr *attr = kernel->attrs; attr; attr = attr->next)
        if (attr->id == ATTR_TUNED && attr->count > 1) value = attr->args[1].integer;
    return value;
}

// Bytes of shared memory with so many slots.
static int64_t bytes_of(const RingSize *ring, int64_t slots, bool split) {
    int64_t barriers = split ? 0 : pingpong_barriers(slots) - pingpong_barriers(ring->slots);
    return (split ? ring->split : ring->shared) + (slots - ring->slots) * ring->slot + barriers;
}

static bool is_as_predicted(const RingSize *first, const RingSize *ring) {
    if (!ring->shared || !first->shared) return true;
    bool splits = first->split == 0 ? ring->split == 0 : ring->split == bytes_of(first, ring->slots, true);
    return splits && ring->slot == first->slot && ring->shared == bytes_of(first, ring->slots, false);
}

static void learn(const TileSearch *search, SlotDepths *depths, const Func *kernel, const RingSize *ring) {
    depths->differ |= ring->slots != last_value(kernel) || !is_as_predicted(&depths->ring, ring);
    for (int i = 0; i < depths->slots.count; i++) depths->differ |= depths->slots.items[i] == ring->slots;
    vec_push(search->arena, &depths->slots, ring->slots);
    if (ring->shared && !depths->ring.shared) depths->ring = *ring;
}

// The place of the most slots that fit, -1: none do.
static int deepest(const TileSearch *search, const SlotDepths *depths, const RingSize *ring, bool split) {
    int best = -1;
    for (int i = 0; i < depths->slots.count; i++) {
        int64_t slots = depths->slots.items[i];
        if (bytes_of(ring, slots, split) > search->target->shared_block) continue;
        if (best < 0 || slots > depths->slots.items[best]) best = i;
    }
    return best;
}

// Where shared memory is too small, the next that takes less.
static int next_smaller(const SlotDepths *depths, int at) {
    int next = at + 1;
    while (next < depths->slots.count && depths->slots.items[next] >= depths->slots.items[at]) next++;
    return next;
}

int next_combination(const TileSearch *search, TileChoice *choice, const Func *kernel, const RingSize *ring,
                     int combination, int last) {
    SlotDepths *depths = &choice->depths;
    bool learning = depths->slots.count < last;
    if (learning) learn(search, depths, kernel, ring);
    if (learning || depths->differ || ring->other || last < 2) return combination + 1;
    int at = combination % last, first = combination - at, next = last;
    if (ring->too_large || (ring->refused && ring->slots > 1)) return first + next_smaller(depths, at);
    if (!ring->shared) return combination + 1;
    int wanted[] = {deepest(search, depths, ring, false), ring->split ? deepest(search, depths, ring, true) : -1};
    for (int i = 0; i < COUNT_OF(wanted); i++)
        if (wanted[i] > at && wanted[i] < next) next = wanted[i];
    return first + next;
}
