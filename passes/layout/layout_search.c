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
// The cheapest choice is taken and the search begins anew, until none is cheaper; then from others of the same cost. (Where
// a round takes so many steps that few can follow, it also takes what is cheaper than now among other fragments.)
// Layouts that are given or an instruction's, and fragments that other statements take as they are, stay; loops on them
// may move to another version of such a fragment, but for those that load and store it. Each move is made twice: with
// the loops that take such a fragment as it is, and without. Without conversions there is no search.
//
// What a move changes is near it, and so is its cost: that of the items, and of the fragments that it reaches, a family
// at a time (placement.c). Steps are places and touches of walks, and items whose cost is asked for; the search has so many
// (`search_steps` of the target), and T0536 says where they end it.
#include "ir/query.h"
#include "ir/rewrite.h"
#include "passes/analysis/kernel_walk.h"
#include "passes/analysis/util.h"
#include "passes/layout/layout_inference.h"
#include "support/numbers.h"
#include <stdlib.h>
#include <string.h>

enum {
    MOST_SEEN = 16,
    ROUNDS = 64
};   // choices whose equals the search goes on to; rounds that its steps are to do for

typedef struct Choice {
    const Layout **layouts, **maps;   // of the fragments, of the items
    const Rerun **again;
    int64_t cost;
} Choice;

typedef struct Family {   // fragments that copies join
    FragmentVec fragments;
    Placement *placement;
    int64_t quarters, taken_quarters;   // of conversions: now, and under the choice that is taken
    int stamp;                          // of the last move that changed it
    bool stale;                         // it changed since it was walked
} Family;

typedef struct Member {   // a fragment
    Family *family;
    VEC(int) users;     // items
    bool converts;      // under the choice that is taken
    int stamp, moved;   // of the last move that changed it, and of the last front that has it
    const Layout *moved_to;
} Member;

typedef struct User {   // an item
    int64_t quarters, taken_quarters;
    int stamp, followed, asked;   // of the last move that changed it; of fronts
    bool stale;
} User;

typedef struct Change {   // a move that costs less
    int number;
    int64_t more;
    VEC(Family *) families;
    VEC(int) fragments, items;
    const Layout **layouts, **maps;
    const Rerun **again;
} Change;

typedef struct Maps {   // of loops over as many iterations, and layouts of fragments of as many elements
    int rank;
    const int64_t *extents;
    LayoutVec maps;
} Maps;

typedef struct Search {
    Inference *inference;
    Arena *arena;
    Map *numbers;   // fragment -> its index, from 1
    VEC(Family *) families;
    Member *members;   // by fragment
    User *users;       // by item
    // what the move at hand has changed; `stamp` is its own number
    int stamp;
    VEC(Family *) families_changed;
    VEC(int) fragments_changed, items_changed;
    int64_t cost, steps;
    Choice taken, equal;     // equal.layouts: NULL: none was found
    VEC(Change *) changes;   // in this round of the search
    VEC(Choice) seen;        // taken before
    VEC(Maps) maps;          // under the choice that is taken
    const char *taken_text;
    int asked;                   // rounds of items so far
    VEC(Alternative) declined;   // in this round of the search
} Search;

static int number_of(const Search *s, const Buf *buf) {
    return (int)(intptr_t)map_get(s->numbers, buf) - 1;
}

static int64_t search_steps(const Search *s) {   // at most
    return s->inference->context->target->costs.search_steps;
}

static bool ends_here(const Search *s) {
    return s->steps >= search_steps(s);
}

// ---- choices ----

static Choice choice_now(const Search *s) {
    const Inference *inference = s->inference;
    int fragments = inference->fragments.count, items = inference->items.count;
    Choice choice = {NEW_ARRAY(s->arena, const Layout *, fragments), NEW_ARRAY(s->arena, const Layout *, items),
                     NEW_ARRAY(s->arena, const Rerun *, items), s->cost};
    for (int i = 0; i < fragments; i++) choice.layouts[i] = inference->fragments.items[i]->layout;
    for (int i = 0; i < items; i++) {
        choice.maps[i] = inference->items.items[i]->map;
        choice.again[i] = inference->items.items[i]->again;
    }
    return choice;
}

static void family_changes(Search *s, Family *family) {
    family->stale = true;
    if (family->stamp == s->stamp) return;
    family->stamp = s->stamp;
    vec_push(s->arena, &s->families_changed, family);
}

static void set_layout(Search *s, Buf *buf, const Layout *layout) {
    int fragment = number_of(s, buf);
    Member *member = &s->members[fragment];
    buf->layout = layout;
    family_changes(s, member->family);
    if (member->stamp == s->stamp) return;
    member->stamp = s->stamp;
    vec_push(s->arena, &s->fragments_changed, fragment);
}

static void set_maps(Search *s, Item *item, const Layout *map, const Rerun *again) {
    User *user = &s->users[item->number];
    item->map = map;
    item->again = again;
    user->stale = true;
    VEC_EACH (const FragmentUse, use, &item->uses) family_changes(s, s->members[number_of(s, use->buf)].family);
    if (user->stamp == s->stamp) return;
    user->stamp = s->stamp;
    vec_push(s->arena, &s->items_changed, item->number);
}

static int64_t quarters_of_item(Search *s, const Item *item) {
    int64_t sum = item_quarters(s->inference, item, item->map);
    for (const Rerun *run = item->again; run; run = run->next) sum += item_quarters(s->inference, item, run->map);
    s->steps++;
    return item->trips * sum;
}

static void walk_family(Search *s, Family *family) {
    int64_t before = placement_steps(family->placement);
    family->quarters = placement_quarters(family->placement);
    family->stale = false;
    s->steps += placement_steps(family->placement) - before;
}

// Of what there is now.
static int64_t cost_now(Search *s) {
    s->cost = s->taken.cost;
    VEC_EACH_PTR (Family, family, &s->families_changed) {
        if (family->stale) walk_family(s, family);
        s->cost += family->quarters - family->taken_quarters;
    }
    VEC_EACH (const int, i, &s->items_changed) {
        User *user = &s->users[*i];
        if (user->stale) user->quarters = quarters_of_item(s, s->inference->items.items[*i]);
        user->stale = false;
        s->cost += user->quarters - user->taken_quarters;
    }
    return s->cost;
}

static void forget_changes(Search *s) {
    s->families_changed.count = s->fragments_changed.count = s->items_changed.count = 0;
    s->stamp++;
}

// Back to the choice that is taken.
static void undo(Search *s) {
    Inference *inference = s->inference;
    VEC_EACH (const int, f, &s->fragments_changed) inference->fragments.items[*f]->layout = s->taken.layouts[*f];
    VEC_EACH (const int, i, &s->items_changed) {
        inference->items.items[*i]->map = s->taken.maps[*i];
        inference->items.items[*i]->again = s->taken.again[*i];
    }
    forget_changes(s);
}

static void choose(const Search *s, const Choice *choice) {
    const Inference *inference = s->inference;
    for (int i = 0; i < inference->fragments.count; i++) inference->fragments.items[i]->layout = choice->layouts[i];
    for (int i = 0; i < inference->items.count; i++) {
        inference->items.items[i]->map = choice->maps[i];
        inference->items.items[i]->again = choice->again[i];
    }
}

// From here on moves are compared with what there is now.
static void take(Search *s) {
    s->taken = choice_now(s);
    s->taken.cost = 0;
    VEC_EACH_PTR (Family, family, &s->families) {
        walk_family(s, family);
        s->taken.cost += family->taken_quarters = family->quarters;
        VEC_EACH_PTR (Buf, buf, &family->fragments)
            s->members[number_of(s, buf)].converts = placement_converts(family->placement, buf);
    }
    VEC_EACH_PTR (Item, item, &s->inference->items)
        s->taken.cost += s->users[item->number].taken_quarters = quarters_of_item(s, item);
    s->maps.count = s->declined.count = s->changes.count = 0;
    s->equal = (Choice){0};
    forget_changes(s);
}

static bool is_fixed(const Search *s, const Buf *buf) {
    return map_has(s->inference->fixed, buf);
}

static bool same_runs(const Rerun *a, const Rerun *b) {
    for (; a && b; a = a->next, b = b->next)
        if (!layout_equal(a->map, b->map)) return false;
    return !a && !b;
}

static bool same_choice(const Search *s, const Choice *a, const Choice *b) {
    for (int i = 0; i < s->inference->fragments.count; i++)
        if (!layout_equal(a->layouts[i], b->layouts[i])) return false;
    for (int i = 0; i < s->inference->items.count; i++)
        if (!layout_equal(a->maps[i], b->maps[i]) || !same_runs(a->again[i], b->again[i])) return false;
    return true;
}

static bool is_seen(const Search *s, const Choice *choice) {
    VEC_EACH (const Choice, seen, &s->seen)
        if (same_choice(s, seen, choice)) return true;
    return false;
}

// ---- what a choice that was declined would do ----

static const char *names(const Search *s, const bool *named) {
    enum { MOST_NAMES = 8 };
    StrBuf text;
    int count = 0;
    sb_init(&text, s->arena);
    for (int f = 0; f < s->inference->fragments.count; f++)
        if (named[f] && count++ < MOST_NAMES)
            sb_printf(&text, "%s'%s'", count > 1 ? ", " : "", s->inference->fragments.items[f]->name);
    if (count > MOST_NAMES) sb_printf(&text, " and %d more", count - MOST_NAMES);
    return count ? sb_text(&text) : NULL;
}

static const char *names_converted(const Search *s) {
    bool *named = NEW_ARRAY(s->arena, bool, s->inference->fragments.count);
    VEC_EACH_PTR (Buf, buf, &s->inference->fragments) {
        const Member *member = &s->members[number_of(s, buf)];
        bool walked = member->family->stamp == s->stamp;
        named[number_of(s, buf)] = walked ? placement_converts(member->family->placement, buf) : member->converts;
    }
    return names(s, named);
}

static const char *names_computed_again(const Search *s) {
    bool *named = NEW_ARRAY(s->arena, bool, s->inference->fragments.count);
    VEC_EACH_PTR (Item, item, &s->inference->items) {
        if (!item->again) continue;
        VEC_EACH (const FragmentUse, use, &item->uses) named[number_of(s, use->buf)] |= use->is_store;
    }
    return names(s, named);
}

static const char *describe(const Search *s) {
    const char *computed = names_computed_again(s), *converted = names_converted(s);
    if (!computed) return converted ? arena_printf(s->arena, "with %s converted", converted) : "without conversions";
    if (!converted) return arena_printf(s->arena, "with %s computed in both layouts", computed);
    return arena_printf(s->arena, "with %s computed in both layouts and %s converted", computed, converted);
}

static void decline(Search *s, const Buf *buf, int64_t more) {
    Alternative *known = NULL;
    VEC_EACH (Alternative, declined, &s->declined)
        if (declined->buf == buf) known = declined;
    if (known && more >= known->more) return;
    Alternative declined = {buf, describe(s), more};
    if (more == 0 && strcmp(declined.text, s->taken_text) == 0) return;   // the same by other names
    if (known) *known = declined;
    else vec_push(s->arena, &s->declined, declined);
}

static void keep_change(Search *s) {
    Change *change = NEW(s->arena, Change);
    *change = (Change){.number = s->changes.count,
                       .more = s->cost - s->taken.cost,
                       .layouts = NEW_ARRAY(s->arena, const Layout *, s->fragments_changed.count),
                       .maps = NEW_ARRAY(s->arena, const Layout *, s->items_changed.count),
                       .again = NEW_ARRAY(s->arena, const Rerun *, s->items_changed.count)};
    VEC_EACH_PTR (Family, family, &s->families_changed) vec_push(s->arena, &change->families, family);
    VEC_EACH (const int, f, &s->fragments_changed) {
        change->layouts[change->fragments.count] = s->inference->fragments.items[*f]->layout;
        vec_push(s->arena, &change->fragments, *f);
    }
    VEC_EACH (const int, i, &s->items_changed) {
        change->maps[change->items.count] = s->inference->items.items[*i]->map;
        change->again[change->items.count] = s->inference->items.items[*i]->again;
        vec_push(s->arena, &change->items, *i);
    }
    vec_push(s->arena, &s->changes, change);
}

// What there is now is a choice: one that costs less, or an alternative to the conversion of `buf`.
static void consider(Search *s, const Buf *buf) {
    int64_t cost = cost_now(s);
    if (cost < s->taken.cost) {
        keep_change(s);
        return;
    }
    if (cost == s->taken.cost && !s->equal.layouts) {
        Choice equal = choice_now(s);
        if (!is_seen(s, &equal)) s->equal = equal;
    }
    decline(s, buf, cost - s->taken.cost);
}

// ---- moves to what is connected ----

typedef struct Front {
    Search *s;
    int number;
    VEC(int) fragments, items;   // that got their layouts and maps in the last round that had any
    bool anchors_stay, met_anchor;
} Front;

static Front front_of(Search *s) {
    return (Front){.s = s, .number = s->stamp};
}

static void item_moves(Front *front, Item *item, const Layout *map) {
    set_maps(front->s, item, map, NULL);
    front->s->users[item->number].followed = front->number;
    vec_push(front->s->arena, &front->items, item->number);
}

static bool item_follows(Front *front, Item *item, const FragmentUse *use, const Layout *layout) {
    if (item->fixed || !item->map || front->s->users[item->number].followed == front->number) return false;
    const Layout *map = map_following(front->s->inference, item, use, layout);
    if (!map) return false;
    item_moves(front, item, map);
    return true;
}

// A fixed fragment keeps its layout: what is on it moves to another version of it.
static void fragment_moves(Front *front, Buf *buf, const Layout *layout) {
    int fragment = number_of(front->s, buf);
    if (!is_fixed(front->s, buf)) set_layout(front->s, buf, layout);
    front->s->members[fragment].moved = front->number;
    front->s->members[fragment].moved_to = layout;
    vec_push(front->s->arena, &front->fragments, fragment);
}

static bool has_moved(const Front *front, const Buf *buf) {
    return front->s->members[number_of(front->s, buf)].moved == front->number;
}

static void fragments_follow(Front *front, const Item *item) {
    VEC_EACH (const FragmentUse, use, &item->uses) {
        if (has_moved(front, use->buf) || (front->anchors_stay && is_fixed(front->s, use->buf))) continue;
        const Layout *layout = layout_following(front->s->inference, item, use);
        if (layout && !layout_equal(layout, use->buf->layout)) fragment_moves(front, use->buf, layout);
    }
}

static int by_number(const void *a, const void *b) {
    return *(const int *)a - *(const int *)b;
}

// It takes a fixed fragment as that is.
static bool is_anchor(const Search *s, const Item *item) {
    VEC_EACH (const FragmentUse, use, &item->uses) {
        const Buf *buf = use->buf;
        if (item->map && is_fixed(s, buf) &&
            layout_equal(required_layout(s->inference, item, use, item->map), buf->layout))
            return true;
    }
    return false;
}

// What moves it to and from memory always stays: the layout is that of the source, or an instruction's.
static bool stays(Front *front, const Item *item) {
    bool anchor = is_anchor(front->s, item);
    front->met_anchor |= anchor;
    return anchor && (front->anchors_stay || item->has_memory);
}

// The items on fragments that have moved.
static bool items_round(Front *front) {
    Search *s = front->s;
    VEC(int) asked = {0};
    s->asked++;
    VEC_EACH (const int, f, &front->fragments)
        VEC_EACH (const int, i, &s->members[*f].users) {
            if (s->users[*i].asked == s->asked) continue;
            s->users[*i].asked = s->asked;
            vec_push(s->arena, &asked, *i);
        }
    front->fragments.count = 0;
    s->steps += asked.count;
    if (asked.count > 1) qsort(asked.items, (size_t)asked.count, sizeof(int), by_number);
    int before = front->items.count;
    VEC_EACH (const int, i, &asked) {
        Item *item = s->inference->items.items[*i];
        if (stays(front, item)) continue;
        VEC_EACH (const FragmentUse, use, &item->uses) {
            const Layout *moved_to = s->members[number_of(s, use->buf)].moved_to;
            if (has_moved(front, use->buf) && item_follows(front, item, use, moved_to)) break;
        }
    }
    return front->items.count > before;
}

// One round: the items on fragments that have moved, then the fragments of items that have.
static bool next_round(Front *front) {
    if (ends_here(front->s)) return false;
    if (items_round(front)) return true;
    VEC(int) items = {front->items.items, front->items.count, front->items.capacity};
    if (items.count > 1) qsort(items.items, (size_t)items.count, sizeof(int), by_number);
    VEC_EACH (const int, i, &items) fragments_follow(front, front->s->inference->items.items[*i]);
    front->items.count = 0;
    return front->fragments.count > 0;
}

// True: the same move is to be made again, without the items that take a fixed fragment as it is.
static bool consider_rounds(Front *front, const Buf *buf) {
    Search *s = front->s;
    do consider(s, buf);
    while (next_round(front));
    undo(s);
    bool again = front->met_anchor && !front->anchors_stay;
    *front = front_of(s);
    front->anchors_stay = again;
    return again;
}

static void move_fragment(Search *s, Buf *buf, const Layout *layout) {
    Front front = front_of(s);
    if (ends_here(s)) return;
    do fragment_moves(&front, buf, layout);
    while (consider_rounds(&front, buf));
}

static bool has_extents(const Layout *map, const Item *item) {
    if (map->rank_out != item->loop.rank) return false;
    for (int d = 0; d < item->loop.rank; d++)
        if (map->out_shape[d] != item->loop.extents[d]) return false;
    return true;
}

static void add_layout(const Search *s, const Layout *layout, LayoutVec *out) {
    VEC_EACH_PTR (const Layout, known, out)
        if (layout_equal(known, layout)) return;
    vec_push(s->arena, out, layout);
}

// The maps of loops over as many iterations, and the layouts of fragments of as many elements.
static const LayoutVec *maps_for(Search *s, const Item *item) {
    VEC_EACH (const Maps, known, &s->maps)
        if (known->rank == item->loop.rank &&
            !memcmp(known->extents, item->loop.extents, sizeof(int64_t) * known->rank))
            return &known->maps;
    Maps found = {.rank = item->loop.rank, .extents = item->loop.extents};
    VEC_EACH_PTR (Item, other, &s->inference->items)
        if (other->map && has_extents(other->map, item)) add_layout(s, other->map, &found.maps);
    VEC_EACH_PTR (Buf, buf, &s->inference->fragments)
        if (has_extents(buf->layout, item)) add_layout(s, buf->layout, &found.maps);
    vec_push(s->arena, &s->maps, found);
    return &vec_last(&s->maps).maps;
}

static void move_item(Search *s, Item *item, const FragmentUse *use) {
    Front front = front_of(s);
    while (item_follows(&front, item, use, use->buf->layout) && consider_rounds(&front, use->buf)) {}
    if (item->kind != ITEM_LOOP || item->fixed || !item->map) return;
    const LayoutVec maps = *maps_for(s, item);
    VEC_EACH_PTR (const Layout, map, &maps) {
        if (layout_equal(map, item->map)) continue;
        if (ends_here(s)) return;
        front = front_of(s);
        do item_moves(&front, item, map);
        while (consider_rounds(&front, use->buf));
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
            set_maps(s, item, item->map, run);
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
    undo(s);
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
        if (ends_here(s)) return;
        if (is_conversion(item)) moves_of_copy(s, item);
        else if (item->map || item->kind == ITEM_SCALAR)
            VEC_EACH (const FragmentUse, use, &item->uses) moves_of_use(s, item, use);
    }
}

// Of equal ones the first that was found.
static int by_cost(const void *a, const void *b) {
    const Change *one = *(Change *const *)a, *other = *(Change *const *)b;
    if (one->more != other->more) return one->more < other->more ? -1 : 1;
    return one->number - other->number;
}

static bool is_far(const Search *s, const Change *change) {
    VEC_EACH_PTR (Family, family, &change->families)
        if (family->stamp == s->stamp) return false;
    return true;
}

// The best of them; if `all`, then each that no better one comes near: what they save adds up.
static void make_changes(Search *s, bool all) {
    if (s->changes.count > 1) qsort(s->changes.items, (size_t)s->changes.count, sizeof(Change *), by_cost);
    VEC_EACH_PTR (Change, change, &s->changes) {
        if (change != s->changes.items[0] && !(all && is_far(s, change))) continue;
        VEC_EACH_PTR (Family, family, &change->families) family->stamp = s->stamp;
        for (int i = 0; i < change->fragments.count; i++)
            s->inference->fragments.items[change->fragments.items[i]]->layout = change->layouts[i];
        for (int i = 0; i < change->items.count; i++) {
            Item *item = s->inference->items.items[change->items.items[i]];
            item->map = change->maps[i];
            item->again = change->again[i];
        }
    }
}

// All moves from the choice that there is. True: it was not the cheapest.
static bool search_round(Search *s) {
    int64_t before = s->steps;
    take(s);
    s->taken_text = describe(s);
    vec_push(s->arena, &s->seen, s->taken);
    all_moves(s);
    make_changes(s, s->steps - before > search_steps(s) / ROUNDS);
    return s->changes.count > 0;
}

// Goes down from choice to choice; the last one costs less than all that are a move away.
static void descend(Search *s) {
    while (search_round(s))
        if (ends_here(s)) return;
}

// A choice of the same cost, from which others are a move away. False: none is new.
static bool take_equal(Search *s) {
    if (!s->equal.layouts) return false;
    choose(s, &s->equal);
    return true;
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

// ---- families ----

static int root_of(int *parents, int fragment) {
    while (parents[fragment] != fragment) fragment = parents[fragment] = parents[parents[fragment]];
    return fragment;
}

static void find_families(Search *s) {
    const Inference *inference = s->inference;
    int fragments = inference->fragments.count, *parents = NEW_ARRAY(s->arena, int, fragments);
    Family **by_root = NEW_ARRAY(s->arena, Family *, fragments);
    for (int f = 0; f < fragments; f++) parents[f] = f;
    VEC_EACH_PTR (Item, item, &inference->items) {
        if (!is_conversion(item)) continue;
        int a = number_of(s, item->uses.items[0].buf), b = number_of(s, item->uses.items[1].buf);
        parents[root_of(parents, a)] = root_of(parents, b);
    }
    for (int f = 0; f < fragments; f++) {
        Family **family = &by_root[root_of(parents, f)];
        if (!*family) vec_push(s->arena, &s->families, *family = NEW(s->arena, Family));
        s->members[f].family = *family;
        vec_push(s->arena, &(*family)->fragments, inference->fragments.items[f]);
    }
    VEC_EACH_PTR (Family, family, &s->families) family->placement = placement_new(s->inference, &family->fragments);
}

static void find_users(Search *s) {
    VEC_EACH_PTR (Item, item, &s->inference->items)
        VEC_EACH (const FragmentUse, use, &item->uses) {
            Member *member = &s->members[number_of(s, use->buf)];
            if (member->users.count == 0 || vec_last(&member->users) != item->number)
                vec_push(s->arena, &member->users, item->number);
        }
}

static void number_all(Search *s) {
    const Inference *inference = s->inference;
    s->numbers = map_new(s->arena);
    s->members = NEW_ARRAY(s->arena, Member, inference->fragments.count);
    s->users = NEW_ARRAY(s->arena, User, inference->items.count);
    s->stamp = 1;
    for (int f = 0; f < inference->fragments.count; f++)
        map_put(s->numbers, inference->fragments.items[f], (void *)(intptr_t)(f + 1));
    for (int i = 0; i < inference->items.count; i++) inference->items.items[i]->number = i;
}

static void count_trips(Inference *inference, const Block *block, int64_t trips) {
    FOR_EACH_ITEM (stmt, block) {
        Item *item = map_get(inference->item_of, stmt);
        if (item) item->trips = trips;
        if (stmt->kind == STMT_ROLE || is_loop(stmt, LOOP_PARALLEL) || stmt->kind == STMT_THREAD) continue;
        int64_t within = loop_trips(inference->trips, stmt, trips);
        FOR_EACH_BODY (body, stmt) count_trips(inference, body, within);
    }
}

static void report_end(const Search *s) {
    const Inference *inference = s->inference;
    if (ends_here(s))
        REMARK(inference->context, inference->kernel->loc, T_LAYOUT_SEARCH, inference->kernel->name,
               (long long)s->steps);
}

static bool search_in(void *user, Arena *arena) {
    Search *s = user;
    Inference *inference = s->inference;
    Arena *lasting = inference->arena;
    Choice lowest = {.cost = INT64_MAX};
    s->arena = inference->arena = arena;
    number_all(s);
    find_families(s);
    find_users(s);
    do {
        descend(s);
        if (s->changes.count > 0) take(s);   // the end came before a round without changes
        if (s->taken.cost >= lowest.cost) continue;
        lowest = s->taken;
        keep_declined(s, lasting);
    } while (s->seen.count < MOST_SEEN && !ends_here(s) && take_equal(s));
    keep_choice(s, &lowest, lasting);
    inference->arena = lasting;
    return true;
}

// Some fragment is needed in another layout than it has.
static bool has_conversions(const Inference *inference, const Placement *placement) {
    VEC_EACH_PTR (Buf, buf, &inference->fragments)
        if (placement_converts(placement, buf)) return true;
    return false;
}

void search_layouts(Inference *inference) {
    Search s = {.inference = inference};
    Placement *whole = placement_new(inference, &inference->fragments);
    placement_quarters(whole);
    if (!has_conversions(inference, whole)) return;
    count_trips(inference, inference->body, 1);
    VEC_EACH_PTR (Buf, buf, &inference->fragments)
        if (placement_takes(whole, buf)) map_put(inference->fixed, buf, buf);
    arena_scope(inference->context->failure, search_in, &s);
    report_end(&s);
}
