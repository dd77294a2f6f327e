// Combinations of tunables that differ in the slots of the main loop alone. Of a ping-pong tile the search prefers the most slots that
// fit, with and without room for the partial sums of split-K, so it visits those: of the seven depths of gemm.tile two or three.
//
// That the last tunable is the number of slots, and which values it has, the combinations show until another tunable changes.
#include "ir/query.h"
#include "passes/cost/search_internal.h"
#include "passes/specialize/builder.h"
#include <string.h>

static bool is_tunable(const Attr *attr) {
    return attr->id == ATTR_TUNED && attr->count > 1;
}

static const Attr *last_tunable(const Func *kernel) {
    const Attr *last = NULL;
    for (const Attr *attr = kernel->attrs; attr; attr = attr->next)
        if (is_tunable(attr)) last = attr;
    return last;
}

// The values of all other tunables.
static const char *other_tunables(const TileSearch *search, const Func *kernel) {
    const Attr *last = last_tunable(kernel);
    StrBuf text;
    sb_init(&text, search->arena);
    for (const Attr *attr = kernel->attrs; attr; attr = attr->next)
        if (is_tunable(attr) && attr != last) sb_printf(&text, "%lld,", (long long)attr->args[1].integer);
    return sb_text(&text);
}

static void learn(const TileSearch *search, SlotDepths *depths, const Func *kernel, const RingSize *ring) {
    const char *others = other_tunables(search, kernel);
    int64_t value = last_tunable(kernel)->args[1].integer;
    if (depths->others && strcmp(depths->others, others) != 0) {
        depths->known = true;
        return;
    }
    depths->others = others;
    depths->differ |= ring->slots != value;
    vec_push(search->arena, &depths->values, value);
}

// Bytes of shared memory with so many slots.
static int64_t bytes_of(const RingSize *ring, int64_t slots, bool split) {
    int64_t more = slots - ring->slots, slot = ring->slot + pingpong_barriers(slots) - pingpong_barriers(slots - 1);
    return (split ? ring->split : ring->shared) + more * slot;
}

// The place of the most slots that fit, -1: none do.
static int deepest(const TileSearch *search, const SlotDepths *depths, const RingSize *ring, bool split) {
    int best = -1;
    for (int i = 0; i < depths->values.count; i++) {
        int64_t slots = depths->values.items[i];
        if (bytes_of(ring, slots, split) > search->target->shared_block) continue;
        if (best < 0 || slots > depths->values.items[best]) best = i;
    }
    return best;
}

// Of a tile that is none by now, fewer slots may be one.
static int next_smaller(const SlotDepths *depths, int at) {
    int next = at + 1;
    while (next < depths->values.count && depths->values.items[next] >= depths->values.items[at]) next++;
    return next;
}

int next_combination(const TileSearch *search, TileChoice *choice, const Func *kernel, const RingSize *ring,
                     int combination) {
    SlotDepths *depths = &choice->depths;
    if (!depths->known && last_tunable(kernel)) learn(search, depths, kernel, ring);
    int count = depths->values.count;
    if (!depths->known || depths->differ || count < 2 || ring->other) return combination + 1;
    int at = combination % count, first = combination - at, next = count;
    if (!ring->shared) return first + next_smaller(depths, at);
    int wanted[] = {deepest(search, depths, ring, false), ring->split ? deepest(search, depths, ring, true) : -1};
    for (int i = 0; i < COUNT_OF(wanted); i++)
        if (wanted[i] > at && wanted[i] < next) next = wanted[i];
    return first + next;
}
