// Other layouts and maps than those that propagation gives, where they cost less: a part of layout-inference.
//
// The cost of a choice is that of its conversions, where placement.c puts them, and of the items under their maps
// (layout_cost.c), times the iterations of the loops around. Propagation goes forward from anchors, so that layouts
// meet somewhere; the search moves that place:
//
//     copy(x, v); parallel .. t = f(v[i, j]); parallel .. w = bf16(t[i, j]); gemm(w, ..)
//          A                         A  ^                   A  ^             B
//                                       t or v may be B too: another fragment is converted, a smaller one perhaps
//
// From each conversion, of a fragment f to the layout that an item needs, three moves begin. Each goes on to what is
// connected, a round at a time, and what there is after each round is a choice of its own:
//
//     f gets the layout; loops on f follow, then their other fragments, then loops on these ..
//     the item gets the map of f as it is; its other fragments follow ..
//     the loops that store f run once more, under a map for that layout (Rerun); then those that store what they read
//
// The cheapest choice is taken and the search begins anew, until none is cheaper; then from others of the same cost.
// Layouts that are given or an instruction's, and fragments that other statements take as they are, stay. Without
// conversions there is no search.
#include "ir/query.h"
#include "ir/rewrite.h"
#include "passes/layout/layout_inference.h"
#include <string.h>

enum { MOST_SEEN = 16 };   // choices from which the search goes on to others of the same cost

typedef struct Choice {
    const Layout **layouts, **maps;   // of the fragments, of the items
    const Rerun **again;
    int64_t cost;
} Choice;

typedef struct Search {
    Inference *inference;
    Arena *arena;
    Placement *placement;
    Choice taken, best;
    VEC(Choice) seen, equal;   // taken before; of the cost of the one taken
    const char *taken_text;
    VEC(Alternative) declined;   // in this round of the search
} Search;

// ---- choices ----

static Choice choice_now(const Search *s, int64_t cost) {
    const Inference *inference = s->inference;
    int fragments = inference->fragments.count, items = inference->items.count;
    Choice choice = {NEW_ARRAY(s->arena, const Layout *, fragments), NEW_ARRAY(s->arena, const Layout *, items),
                     NEW_ARRAY(s->arena, const Rerun *, items), cost};
    for (int i = 0; i < fragments; i++) choice.layouts[i] = inference->fragments.items[i]->layout;
    for (int i = 0; i < items; i++) {
        choice.maps[i] = inference->items.items[i]->map;
        choice.again[i] = inference->items.items[i]->again;
    }
    return choice;
}

static void choose(const Search *s, const Choice *choice) {
    const Inference *inference = s->inference;
    for (int i = 0; i < inference->fragments.count; i++) inference->fragments.items[i]->layout = choice->layouts[i];
    for (int i = 0; i < inference->items.count; i++) {
        inference->items.items[i]->map = choice->maps[i];
        inference->items.items[i]->again = choice->again[i];
    }
}

static bool is_fixed(const Search *s, const Buf *buf) {
    return map_has(s->inference->fixed, buf);
}

// ---- what a choice that was declined would do ----

static const char *names(const Search *s, bool (*named)(const Search *s, int fragment)) {
    const char *text = NULL;
    for (int f = 0; f < s->inference->fragments.count; f++)
        if (named(s, f)) {
            const char *name = s->inference->fragments.items[f]->name;
            text = text ? arena_printf(s->arena, "%s, '%s'", text, name) : arena_printf(s->arena, "'%s'", name);
        }
    return text;
}

static bool converts(const Search *s, int fragment) {
    return placement_converts(s->placement, s->inference->fragments.items[fragment]);
}

static bool is_stored_by(const Item *item, const Buf *buf) {
    VEC_EACH (const FragmentUse, use, &item->uses)
        if (use->buf == buf && use->is_store) return true;
    return false;
}

static bool runs_again(const Search *s, int fragment) {
    VEC_EACH_PTR (Item, item, &s->inference->items)
        if (item->again && is_stored_by(item, s->inference->fragments.items[fragment])) return true;
    return false;
}

static const char *describe(const Search *s) {
    const char *computed = names(s, runs_again), *converted = names(s, converts);
    if (!computed) return converted ? arena_printf(s->arena, "with %s converted", converted) : "without conversions";
    if (!converted) return arena_printf(s->arena, "with %s computed in both layouts", computed);
    return arena_printf(s->arena, "with %s computed in both layouts and %s converted", computed, converted);
}

// What there is now is a choice: the best one so far, or an alternative to the conversion of `buf`.
static void consider(Search *s, const Buf *buf) {
    int64_t cost = placement_quarters(s->placement);
    if (cost < s->best.cost) {
        s->best = choice_now(s, cost);
        return;
    }
    int64_t more = cost - s->taken.cost;
    if (more == 0) vec_push(s->arena, &s->equal, choice_now(s, cost));
    const char *text = describe(s);
    if (more == 0 && strcmp(text, s->taken_text) == 0) return;   // the same by other names
    VEC_EACH (Alternative, known, &s->declined) {
        if (known->buf != buf) continue;
        if (more < known->more) *known = (Alternative){buf, text, more};
        return;
    }
    Alternative declined = {buf, text, more};
    vec_push(s->arena, &s->declined, declined);
}

// ---- moves to what is connected ----

typedef struct Front {
    Search *s;
    Map *fragments, *items;   // that have their new layouts and maps
    bool moved;               // in this round
} Front;

static Front front_of(Search *s) {
    return (Front){s, map_new(s->arena), map_new(s->arena), false};
}

static bool item_follows(Front *front, Item *item, const FragmentUse *use) {
    if (item->fixed || !item->map || map_has(front->items, item)) return false;
    const Layout *map = map_following(front->s->inference, item, use, use->buf->layout);
    if (!map) return false;
    item->map = map;
    item->again = NULL;
    map_put(front->items, item, item);
    return front->moved = true;
}

static void fragments_follow(Front *front, const Item *item) {
    VEC_EACH (const FragmentUse, use, &item->uses) {
        if (is_fixed(front->s, use->buf) || map_has(front->fragments, use->buf)) continue;
        const Layout *layout = layout_following(front->s->inference, item, use);
        if (!layout || layout_equal(layout, use->buf->layout)) continue;
        use->buf->layout = layout;
        map_put(front->fragments, use->buf, use->buf);
        front->moved = true;
    }
}

// One round: the items on fragments that have moved, then the fragments of items that have.
static bool next_round(Front *front) {
    front->moved = false;
    VEC_EACH_PTR (Item, item, &front->s->inference->items)
        VEC_EACH (const FragmentUse, use, &item->uses)
            if (map_has(front->fragments, use->buf) && item_follows(front, item, use)) break;
    if (front->moved) return true;
    VEC_EACH_PTR (Item, item, &front->s->inference->items)
        if (map_has(front->items, item)) fragments_follow(front, item);
    return front->moved;
}

static void consider_rounds(Front *front, const Buf *buf) {
    do consider(front->s, buf);
    while (next_round(front));
    choose(front->s, &front->s->taken);
}

static void move_fragment(Search *s, Buf *buf, const Layout *layout) {
    Front front = front_of(s);
    if (is_fixed(s, buf)) return;
    buf->layout = layout;
    map_put(front.fragments, buf, buf);
    consider_rounds(&front, buf);
}

static bool has_extents(const Layout *map, const Item *item) {
    if (map->rank_out != item->loop.rank) return false;
    for (int d = 0; d < item->loop.rank; d++)
        if (map->out_shape[d] != item->loop.extents[d]) return false;
    return true;
}

typedef VEC(const Layout *) LayoutVec;

static void add_layout(const Search *s, const Layout *layout, LayoutVec *out) {
    VEC_EACH_PTR (const Layout, known, out)
        if (layout_equal(known, layout)) return;
    vec_push(s->arena, out, layout);
}

// The maps of loops over as many iterations, and the layouts of fragments of as many elements.
static LayoutVec maps_for(const Search *s, const Item *item) {
    LayoutVec maps = {0};
    VEC_EACH_PTR (Item, other, &s->inference->items)
        if (other->map && has_extents(other->map, item)) add_layout(s, other->map, &maps);
    VEC_EACH_PTR (Buf, buf, &s->inference->fragments)
        if (has_extents(buf->layout, item)) add_layout(s, buf->layout, &maps);
    return maps;
}

static void move_item(Search *s, Item *item, const FragmentUse *use) {
    Front front = front_of(s);
    if (item_follows(&front, item, use)) consider_rounds(&front, use->buf);
    if (item->kind != ITEM_LOOP || item->fixed || !item->map) return;
    const LayoutVec maps = maps_for(s, item);
    VEC_EACH_PTR (const Layout, map, &maps) {
        if (layout_equal(map, item->map)) continue;
        front = front_of(s);
        item->map = map;
        item->again = NULL;
        map_put(front.items, item, item);
        consider_rounds(&front, use->buf);
    }
}

// ---- loops that run once more ----

static bool must_not_repeat(const Expr *expr, const void *what) {
    (void)what;
    return expr_must_not_repeat(expr);
}

// It stores whole fragments and does nothing else.
static bool may_run_again(const Item *item) {
    bool stores = item->kind == ITEM_LOOP && item->map && !item->unreplicated && !item->loop.is_async;
    if (!stores || is_conversion(item)) return false;
    VEC_EACH (const FragmentUse, use, &item->uses)
        if (use->is_store && use->keeps) return false;
    VEC_EACH (const TileAccess, access, &item->accesses)
        if (access->is_atomic || (access->is_store && access->buf->scope != SCOPE_FRAGMENT)) return false;
    FOR_EACH_STMT (stmt, &item->loop.body)
        if (stmt->kind == STMT_CALL || stmt_any_own_expr(stmt, must_not_repeat, NULL)) return false;
    return true;
}

static bool runs_under(const Item *item, const Layout *map) {
    if (layout_equal(item->map, map)) return true;
    for (const Rerun *run = item->again; run; run = run->next)
        if (layout_equal(run->map, map)) return true;
    return false;
}

typedef struct Wanted {
    Buf *buf;
    const Layout *layout;
} Wanted;
typedef VEC(Wanted) WantedVec;

// What the loop reads under the map in another layout than there is.
static void want_operands(Search *s, const Item *item, const Layout *map, WantedVec *next) {
    VEC_EACH (const FragmentUse, use, &item->uses) {
        const Layout *needed = required_layout(s->inference, item, use, map);
        if (use->is_store || layout_equal(needed, use->buf->layout)) continue;
        Wanted wanted = {use->buf, needed};
        vec_push(s->arena, next, wanted);
    }
}

static void run_for(Search *s, const Wanted *wanted, WantedVec *next) {
    VEC_EACH_PTR (Item, item, &s->inference->items) {
        VEC_EACH (const FragmentUse, use, &item->uses) {
            if (!use->is_store || use->buf != wanted->buf || !may_run_again(item)) continue;
            const Layout *map = map_following(s->inference, item, use, wanted->layout);
            if (!map || runs_under(item, map)) break;
            Rerun *run = NEW(s->arena, Rerun);
            *run = (Rerun){map, item->again};
            item->again = run;
            want_operands(s, item, map, next);
            break;
        }
    }
}

static int runs_of_all(const Search *s, bool *too_many) {
    int all = 0;
    VEC_EACH_PTR (Item, item, &s->inference->items) {
        int runs = 1;
        for (const Rerun *run = item->again; run; run = run->next) runs++;
        *too_many |= runs > MOST_RUNS;
        all += runs;
    }
    return all;
}

static void run_again(Search *s, Buf *buf, const Layout *layout) {
    WantedVec wanted = {0};
    bool too_many = false;
    vec_push(s->arena, &wanted, ((Wanted){buf, layout}));
    for (int runs = runs_of_all(s, &too_many); wanted.count > 0;) {
        WantedVec next = {0};
        VEC_EACH (const Wanted, one, &wanted) run_for(s, one, &next);
        int now = runs_of_all(s, &too_many);
        if (now == runs || too_many) break;
        consider(s, buf);
        runs = now;
        wanted = next;
    }
    choose(s, &s->taken);
}

// ---- the search ----

static void moves_of_copy(Search *s, const Item *item) {
    CopyOp copy = copy_of(item->stmt);
    Buf *from = copy.src->buf, *to = copy.dst->buf;
    if (layout_equal(from->layout, to->layout)) return;
    move_fragment(s, from, to->layout);
    move_fragment(s, to, from->layout);
}

static void moves_of_use(Search *s, Item *item, const FragmentUse *use) {
    const Layout *needed = required_layout(s->inference, item, use, item->map);
    if (layout_equal(needed, use->buf->layout)) return;
    move_fragment(s, use->buf, needed);
    move_item(s, item, use);
    if (!use->is_store) run_again(s, use->buf, needed);
}

static void all_moves(Search *s) {
    VEC_EACH_PTR (Item, item, &s->inference->items) {
        if (is_conversion(item)) moves_of_copy(s, item);
        else if (item->map || item->kind == ITEM_SCALAR)
            VEC_EACH (const FragmentUse, use, &item->uses) moves_of_use(s, item, use);
    }
}

static bool same_choice(const Search *s, const Choice *a, const Choice *b) {
    for (int i = 0; i < s->inference->fragments.count; i++)
        if (!layout_equal(a->layouts[i], b->layouts[i])) return false;
    for (int i = 0; i < s->inference->items.count; i++)
        if (a->again[i] != b->again[i] || !a->maps[i] != !b->maps[i] ||
            (a->maps[i] && !layout_equal(a->maps[i], b->maps[i])))
            return false;
    return true;
}

static bool is_seen(const Search *s, const Choice *choice) {
    VEC_EACH (const Choice, seen, &s->seen)
        if (same_choice(s, seen, choice)) return true;
    return false;
}

// A choice of the same cost, from which others are a move away. False: none is new.
static bool take_equal(Search *s) {
    VEC_EACH (const Choice, equal, &s->equal) {
        if (is_seen(s, equal)) continue;
        s->best = *equal;
        return true;
    }
    return false;
}

// Some fragment is needed in another layout than it has.
static bool has_conversions(const Search *s) {
    for (int f = 0; f < s->inference->fragments.count; f++)
        if (converts(s, f)) return true;
    return false;
}

// All moves from the best choice so far.
static void search_round(Search *s) {
    s->taken = s->best;
    s->declined.count = s->equal.count = 0;
    choose(s, &s->taken);
    placement_quarters(s->placement);
    s->taken_text = describe(s);
    vec_push(s->arena, &s->seen, s->taken);
    all_moves(s);
}

// Goes down from choice to choice; the last one costs less than all that are a move away.
static void descend(Search *s) {
    do search_round(s);
    while (s->best.cost < s->taken.cost);
}

static const Rerun *copy_reruns(Arena *arena, const Rerun *run) {
    if (!run) return NULL;
    Rerun *copy = NEW(arena, Rerun);
    *copy = (Rerun){layout_copy(arena, run->map), copy_reruns(arena, run->next)};
    return copy;
}

// The layouts that were found, out of the search's arena.
static void keep_choice(const Search *s, const Choice *choice, Arena *arena) {
    choose(s, choice);
    VEC_EACH_PTR (Buf, buf, &s->inference->fragments) buf->layout = layout_copy(arena, buf->layout);
    VEC_EACH_PTR (Item, item, &s->inference->items) {
        item->map = layout_copy(arena, item->map);
        item->again = copy_reruns(arena, item->again);
    }
}

static void keep_declined(const Search *s, Arena *arena) {
    s->inference->alternatives.count = 0;
    VEC_EACH (const Alternative, declined, &s->declined) {
        Alternative kept = {declined->buf, arena_strdup(arena, declined->text), declined->more};
        vec_push(arena, &s->inference->alternatives, kept);
    }
}

static bool search_in(void *user, Arena *arena) {
    Search *s = user;
    Inference *inference = s->inference;
    Arena *lasting = inference->arena;
    Choice lowest = {.cost = INT64_MAX};
    s->arena = inference->arena = arena;
    s->best = choice_now(s, placement_quarters(s->placement));
    do {
        descend(s);
        if (s->taken.cost >= lowest.cost) continue;
        lowest = s->taken;
        keep_declined(s, lasting);
    } while (s->seen.count < MOST_SEEN && take_equal(s));
    keep_choice(s, &lowest, lasting);
    inference->arena = lasting;
    return true;
}

void search_layouts(Inference *inference) {
    Search s = {.inference = inference, .placement = placement_new(inference)};
    placement_quarters(s.placement);
    if (!has_conversions(&s)) return;
    VEC_EACH_PTR (Buf, buf, &inference->fragments)
        if (placement_takes(s.placement, buf)) map_put(inference->fixed, buf, buf);
    arena_scope(inference->context->failure, search_in, &s);
}
