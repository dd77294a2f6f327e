// Where fragments are converted: the last part of layout-inference, when layouts and maps are known.
//
// A fragment has a home, its layout. An item may need it in another one: then it uses another version of the fragment, a
// fragment of its own with that layout. A walk over the scope knows which versions hold the fragment's value at each
// statement, and converts where the one that is needed does not:
//
//     copy(x, v)                             versions that hold the value of v: home
//     parallel (i) y[i] = v'[i] + w[i];      v' = v before it: home and v'
//     for (k in n) { .. v'[i] .. }           both still do: no conversion
//     parallel (i) v'[i] = ..;               v' alone; v = v' only where home is read
//
// So a value is converted once for all its readers, behind a write only if it is read in another layout, and from the
// version from which it costs least. A copy between fragments makes both hold one value: after copy(a, b), what b is
// converted to may come from a, and nothing is left to do where it is there already.
//
//     loop that does not write the fragment   converted before the loop, if the loop reads it in each iteration
//     loop that writes it                     one version holds the value where iterations begin and end: that in which
//                                             the loop uses it throughout, else home. It is converted before the loop,
//                                             and behind it where it is read
//     `if` that writes it                     where no version has the value behind both branches, both end with home
//     loop with a `break`                     home, or the loop's version, holds the value behind each write
//
// A walk finds what that costs, or also changes the program. It goes by places: the statements on its fragments, and what
// they stand in. A search walks a family of fragments at a time, those that copies join, since no other takes part.
#include "ir/build.h"
#include "ir/rewrite.h"
#include "passes/analysis/kernel_walk.h"
#include "passes/analysis/util.h"
#include "passes/layout/conversion_way.h"
#include "passes/layout/fragment.h"
#include "passes/layout/layout_inference.h"
#include "support/numbers.h"
#include <string.h>

typedef struct Touch {   // of a fragment by a statement
    const Stmt *stmt;
    Item *item;   // NULL: a statement that takes the fragment in its layout
    const FragmentUse *use;
    int fragment;
    bool reads, writes;
} Touch;

typedef struct Place Place;
typedef VEC(Place *) PlaceVec;
struct Place {   // of a statement on the walk
    Stmt *stmt;
    Item *item;             // NULL: a statement that takes fragments in their layouts, or none
    int first, own, last;   // its touches and those below; own: end of those of the statement itself
    Block *blocks[2];
    PlaceVec bodies[2];
};

typedef struct Version {
    int fragment;
    const Layout *layout;
    Buf *buf;   // NULL: not made yet
    int next;   // of the same fragment, by number; 0: none
} Version;

// Which versions hold which values at a place of the program.
typedef struct State {
    int *value;      // of each fragment, by number; 0: it has none
    bool *current;   // of each version: it holds its fragment's value
} State;

typedef struct Carried {
    int fragment;
    const Layout *layout;   // in which it is where an iteration begins and ends
    bool enters;
} Carried;
typedef VEC(Carried) CarriedVec;

struct Placement {
    Inference *inference;
    Arena *arena;
    FragmentVec fragments;   // those that it places
    Map *numbers;            // fragment -> its index, from 1
    VEC(Touch) touches;
    PlaceVec places;         // of the scope's body
    const Stmt **declared;   // by fragment
    VEC(Version) versions;   // first each fragment itself, in their order
    int capacity;            // most versions that there can be
    // the walk
    int last_value;
    int64_t trips, quarters;   // of the loops around; the cost so far, in units of WarpCosts
    int64_t steps;             // of all walks: places and touches
    bool *costs;               // by fragment: conversions of it do
    const Place *loop;         // the one around; NULL: none
    const CarriedVec *carried;
    // changes
    bool apply, changed;
    bool *converted;       // by fragment: some version of it is made from another one
    Map *before, *after;   // Stmt -> Block
    VEC(Stmt *) dropped;
};

static int number_of(const Placement *p, const Buf *buf) {   // -1: not one of them
    return (int)(intptr_t)map_get(p->numbers, buf) - 1;
}

static Buf *fragment_at(const Placement *p, int fragment) {
    return p->fragments.items[fragment];
}

static const Layout *home_of(const Placement *p, int fragment) {
    return fragment_at(p, fragment)->layout;
}

// ---- touches ----

static void add_touch(Placement *p, Touch touch) {
    vec_push(p->arena, &p->touches, touch);
}

static bool is_first_use(const Item *item, const FragmentUse *use) {
    for (const FragmentUse *before = item->uses.items; before < use; before++)
        if (before->buf == use->buf) return false;
    return true;
}

// What the item writes depends on what was there.
static bool updates(const Item *item) {
    ReduceOp reduce;
    if (match_reduce(item->stmt, &reduce)) return reduce.accumulate && expr_is_int(reduce.accumulate, 1);
    return item->kind != ITEM_LOOP && item->kind != ITEM_SCAN;
}

// Accesses of the fragment by the item, in order: after a store of all elements, reads do not count.
static void find_accesses(const Item *item, Touch *touch) {
    bool replaced = false;
    VEC_EACH (const FragmentUse, use, &item->uses) {
        if (use->buf != touch->use->buf) continue;
        replaced |= item->kind == ITEM_LOOP && use->is_store && !use->keeps;
        touch->reads |= !replaced && (!use->is_store || use->keeps || updates(item));
        touch->writes |= use->is_store;
    }
}

static void touch_by_item(Placement *p, Item *item) {
    VEC_EACH (const FragmentUse, use, &item->uses) {
        if (number_of(p, use->buf) < 0 || !is_first_use(item, use)) continue;
        Touch touch = {item->stmt, item, use, number_of(p, use->buf), false, false};
        find_accesses(item, &touch);
        add_touch(p, touch);
    }
    int b = item->kind == ITEM_GEMM ? number_of(p, gemm_of(item->stmt).b->buf) : -1;
    if (b >= 0) add_touch(p, (Touch){item->stmt, NULL, NULL, b, true, false});   // stage-through-shared moves it
}

static bool has_body(const Stmt *stmt) {
    return stmt->kind != STMT_THREAD && !is_loop(stmt, LOOP_PARALLEL) && stmt_bodies((Stmt *)stmt, (Block *[2]){0}) > 0;
}

// Products write their accumulators until a wait: it stands for all of them.
static bool ends_products(const Stmt *stmt) {
    return is_call(stmt, OP_WGMMA_WAIT) || is_call(stmt, OP_AWAIT);
}

static bool starts_product(const Item *item) {
    return item->kind == ITEM_GEMM && item->stmt->call.is_async;
}

static void touch_by_effects(Placement *p, const Stmt *stmt) {
    FOR_EACH_EFFECT (effect, p->arena, stmt) {
        int fragment = number_of(p, effect->buf);
        if (fragment < 0) continue;
        add_touch(p,
                  (Touch){stmt, NULL, NULL, fragment, effect->access != ACCESS_WRITE, effect->access != ACCESS_READ});
    }
    if (!ends_products(stmt)) return;
    VEC_EACH_PTR (Item, item, &p->inference->items) {
        int fragment = starts_product(item) ? number_of(p, gemm_of(item->stmt).acc->buf) : -1;
        if (fragment >= 0) add_touch(p, (Touch){stmt, NULL, NULL, fragment, true, true});
    }
}

static void touch_by_stmt(Placement *p, Stmt *stmt, Item *item) {
    int fragment = stmt->kind == STMT_DECL ? number_of(p, stmt->decl) : -1;
    if (fragment >= 0) {
        p->declared[fragment] = stmt;
        add_touch(p, (Touch){.stmt = stmt, .fragment = fragment});
    } else if (item) {
        touch_by_item(p, item);
    } else if (!has_body(stmt)) {
        touch_by_effects(p, stmt);
    }
}

// A loop without touches is not on the walk; a `break` is, and what it stands in.
static bool is_on_walk(const Placement *p, const Place *place) {
    if (place->last > place->first || place->stmt->kind == STMT_BREAK) return true;
    return !map_has(p->inference->trips, place->stmt) && place->bodies[0].count + place->bodies[1].count > 0;
}

static bool has_requirements(const Item *item) {
    return item->map || item->kind == ITEM_SCALAR;
}

static void find_places(Placement *p, Block *block, PlaceVec *out) {
    FOR_EACH_ITEM (stmt, block) {
        if (stmt->kind == STMT_ROLE) continue;   // another scope
        Item *item = map_get(p->inference->item_of, stmt);
        Place *place = NEW(p->arena, Place);
        *place = (Place){.stmt = stmt, .item = item && has_requirements(item) ? item : NULL, .first = p->touches.count};
        touch_by_stmt(p, stmt, place->item);
        place->own = p->touches.count;
        if (has_body(stmt)) stmt_bodies(stmt, place->blocks);
        for (int i = 0; i < 2 && place->blocks[i]; i++) find_places(p, place->blocks[i], &place->bodies[i]);
        place->last = p->touches.count;
        if (is_on_walk(p, place)) vec_push(p->arena, out, place);
    }
}

// ---- questions about a statement and all below it ----

#define EACH_TOUCH(touch, p, from, to)                                                                                 \
    for (const Touch *touch##_all = (p)->touches.items, *touch = touch##_all ? touch##_all + (from) : NULL,            \
                     *touch##_end = touch##_all ? touch##_all + (to) : NULL;                                           \
         touch < touch##_end; touch++)

static bool writes_within(const Placement *p, const Place *place, int fragment) {
    EACH_TOUCH(touch, p, place->first, place->last)
    if (touch->fragment == fragment && touch->writes) return true;
    return false;
}

static bool declares_within(const Placement *p, const Place *place, int fragment) {
    EACH_TOUCH(touch, p, place->first, place->last)
    if (touch->fragment == fragment && touch->stmt->kind == STMT_DECL) return true;
    return false;
}

static bool read_outside(const Placement *p, const Place *place, int fragment) {
    for (int i = 0; i < p->touches.count; i++) {
        const Touch *touch = &p->touches.items[i];
        if ((i < place->first || i >= place->last) && touch->fragment == fragment && touch->reads) return true;
    }
    return false;
}

// The value that the fragment has before the loop is read in it: its first statement on it does not replace the value
// in each iteration.
static bool enters(const Placement *p, const Place *loop, int fragment) {
    EACH_TOUCH(touch, p, loop->first, loop->last) {
        if (touch->fragment != fragment) continue;
        if (touch->reads || !touch->writes) return true;
        VEC_EACH_PTR (Place, place, &loop->bodies[0])
            if (place->stmt == touch->stmt) return false;
        return true;
    }
    return false;
}

static const Layout *needed_by(const Placement *p, const Touch *touch, const Layout *map) {
    if (!touch->item) return home_of(p, touch->fragment);
    return required_layout(p->inference, touch->item, touch->use, map);
}

// The layout in which all statements within use the fragment; home if they differ.
static const Layout *common_layout(const Placement *p, const Place *place, int fragment) {
    const Layout *common = NULL;
    EACH_TOUCH(touch, p, place->first, place->last) {
        if (touch->fragment != fragment) continue;
        const Layout *needed = needed_by(p, touch, touch->item ? touch->item->map : NULL);
        if (common && !layout_equal(common, needed)) return home_of(p, fragment);
        common = needed;
    }
    return common;
}

// ---- versions ----

// From the fragment itself on.
#define EACH_VERSION(i, p, fragment)                                                                                   \
    for (int i = (fragment), i##_more = 1; i##_more; i##_more = i = (p)->versions.items[i].next)

static int version_of(Placement *p, int fragment, const Layout *layout) {
    Version *last = NULL;
    EACH_VERSION(i, p, fragment) {
        last = &p->versions.items[i];
        if (layout_equal(last->layout, layout)) return i;
    }
    EXPECT(arena_failure(p->arena), p->versions.count < p->capacity, "more versions of fragments than uses");
    last->next = p->versions.count;
    vec_push(p->arena, &p->versions, ((Version){fragment, layout, NULL, 0}));
    return last->next;
}

static Block *block_of(Placement *p, Map *map, const Stmt *stmt) {
    Block *block = map_get(map, stmt);
    if (!block) map_put(map, stmt, block = NEW(p->arena, Block));
    return block;
}

static Block *declarations(Placement *p, int fragment) {
    const Stmt *declared = p->declared[fragment];
    return declared ? block_of(p, p->after, declared) : block_of(p, p->before, p->inference->body->items[0]);
}

static Buf *version_buf(Placement *p, int version) {
    Version *made = &p->versions.items[version];
    const Buf *home = fragment_at(p, made->fragment);
    if (made->buf) return made->buf;
    made->buf = buf_new(p->arena, home->name, SCOPE_FRAGMENT, home->type, home->rank, home->shape, home->loc);
    made->buf->layout = made->layout;
    block_push(p->arena, declarations(p, made->fragment), s_decl(p->arena, made->buf));
    return made->buf;
}

static State copy_state(const Placement *p, const State *state) {
    int fragments = p->fragments.count;
    State copy = {NEW_ARRAY(p->arena, int, fragments), NEW_ARRAY(p->arena, bool, p->capacity)};
    memcpy(copy.value, state->value, sizeof *copy.value * (size_t)fragments);
    memcpy(copy.current, state->current, sizeof *copy.current * (size_t)p->capacity);
    return copy;
}

static bool holds(const Placement *p, const State *state, int version, int value) {
    return state->current[version] && state->value[p->versions.items[version].fragment] == value;
}

static void forget_versions(const Placement *p, State *state, int fragment) {
    EACH_VERSION(i, p, fragment) state->current[i] = false;
}

static void forget(const Placement *p, State *state, int fragment) {
    forget_versions(p, state, fragment);
    state->value[fragment] = 0;
}

// ---- conversions ----

typedef struct Where {
    const Stmt *before;   // NULL:
    Block *end_of;
} Where;

static Where before(const Stmt *stmt) {
    return (Where){stmt, NULL};
}

static Where end_of(Block *block) {
    return (Where){NULL, block};
}

static Block *block_at(Placement *p, Where where) {
    return where.before ? block_of(p, p->before, where.before) : where.end_of;
}

// In units of WarpCosts.
static int64_t cost_between(Placement *p, int from, const Buf *to, const Layout *layout) {
    Buf source = *fragment_at(p, p->versions.items[from].fragment), destination = *to;
    source.layout = p->versions.items[from].layout;
    destination.layout = layout;
    return conversion_quarters(p->inference, &source, &destination);
}

// Of all versions that hold the value, that from which it costs least. -1: none, as behind an `if` that alone uses it.
static int cheapest_source(Placement *p, const State *state, int fragment, const Buf *to, const Layout *layout,
                           int64_t *least) {
    int best = -1;
    for (int i = 0; i < p->versions.count; i++) {
        if (!holds(p, state, i, state->value[fragment])) continue;
        int64_t cost = cost_between(p, i, to, layout);
        if (best >= 0 && cost >= *least) continue;
        best = i;
        *least = cost;
    }
    return best;
}

// Within a thread the copy is lowered as a loop; else stage-through-shared replaces it.
static Stmt *push_whole_copy(Arena *arena, Buf *from, Buf *to, Span loc, Block *out) {
    Stmt *copy = BLOCK_CALL(arena, out, loc, OP_COPY, arg_region(region_whole(arena, from)),
                            arg_region(region_whole(arena, to)));
    if (fragment_same_thread(arena, to->layout, from->layout, e_int(arena, 0)))
        attr_set_layout(arena, &copy->attrs, ATTR_MAP, to->layout);
    return copy;
}

// For the remark that stage-through-shared makes.
static void note_alternative(const Placement *p, int fragment, Stmt *copy) {
    VEC_EACH (const Alternative, alternative, &p->inference->alternatives) {
        if (alternative->buf != fragment_at(p, fragment) || stmt_layout(copy)) continue;
        const char *text = arena_printf(p->arena, "%s: %lld clocks more", alternative->text,
                                        (long long)ceil_div(alternative->more, COST_CLOCK));
        attr_set_text(p->arena, &copy->attrs, ATTR_INSTEAD, text);
    }
}

// The version with this layout holds the fragment's value from here on.
static int make_current(Placement *p, State *state, int fragment, const Layout *layout, Where where, Span loc) {
    int version = version_of(p, fragment, layout);
    int64_t cost = 0;
    if (!state->value[fragment] || holds(p, state, version, state->value[fragment])) return version;
    int from = cheapest_source(p, state, fragment, fragment_at(p, fragment), layout, &cost);
    state->current[version] = true;
    if (from < 0) return version;
    p->quarters += p->trips * cost;
    p->converted[fragment] = true;
    p->costs[fragment] |= cost > 0;
    p->changed = true;
    if (!p->apply) return version;
    Buf *source = version_buf(p, from), *target = version_buf(p, version);
    note_alternative(p, fragment, push_whole_copy(p->arena, source, target, loc, block_at(p, where)));
    return version;
}

static bool writes_own(const Placement *p, const Place *place, int fragment) {
    EACH_TOUCH(touch, p, place->first, place->own)
    if (touch->fragment == fragment && touch->writes) return true;
    return false;
}

// The version that a statement reads: another fragment with the same value serves as well, unless it writes that one.
static int version_read(Placement *p, State *state, const Place *place, const Touch *touch, const Layout *layout,
                        Where where) {
    int value = state->value[touch->fragment], own = version_of(p, touch->fragment, layout);
    if (touch->writes || !value || holds(p, state, own, value))
        return make_current(p, state, touch->fragment, layout, where, touch->stmt->loc);
    for (int i = 0; i < p->versions.count; i++)
        if (holds(p, state, i, value) && layout_equal(p->versions.items[i].layout, layout) &&
            !writes_own(p, place, p->versions.items[i].fragment))
            return i;
    return make_current(p, state, touch->fragment, layout, where, touch->stmt->loc);
}

// ---- statements ----

static void substitute(Item *item, Subst *subst) {
    if (item->stmt->kind == STMT_IF) item->stmt->if_.condition = subst_expr(subst, item->stmt->if_.condition);
    else subst_stmt(subst, item->stmt);
}

static void write_value(Placement *p, State *state, int fragment, int value, int version) {
    forget_versions(p, state, fragment);
    state->value[fragment] = value;
    state->current[version] = true;
}

// The fragments that the item uses under the map: those that it reads hold their values.
static Subst *versions_under(Placement *p, State *state, const Place *place, const Layout *map) {
    Subst *subst = p->apply ? subst_new(p->arena) : NULL;
    EACH_TOUCH(touch, p, place->first, place->own) {
        const Layout *needed = needed_by(p, touch, map);
        int version = touch->reads ? version_read(p, state, place, touch, needed, before(place->stmt))
                                   : version_of(p, touch->fragment, needed);
        if (!p->apply || version == touch->fragment) continue;
        subst_buf(subst, fragment_at(p, touch->fragment), version_buf(p, version));
        p->changed = true;
    }
    return subst;
}

static void write_versions(Placement *p, State *state, const Place *place) {
    const Item *item = place->item;
    EACH_TOUCH(touch, p, place->first, place->own) {
        if (!touch->writes) continue;
        const Layout *layout = needed_by(p, touch, item->map);
        write_value(p, state, touch->fragment, ++p->last_value, version_of(p, touch->fragment, layout));
        for (const Rerun *run = item->again; run; run = run->next)
            state->current[version_of(p, touch->fragment, needed_by(p, touch, run->map))] = true;
    }
}

// The loop for other versions of what it stores, just before it.
static void push_rerun(Placement *p, const Item *item, const Layout *map, Subst *subst) {
    Stmt *run = clone_stmt(p->arena, subst, item->stmt);
    attr_set_layout(p->arena, &run->attrs, ATTR_MAP, map);
    attr_remove(&run->attrs, ATTR_VECTOR);
    if (item->has_memory && vector_under(item, map) > 1)
        attr_set_int(p->arena, &run->attrs, ATTR_VECTOR, vector_under(item, map));
    block_push(p->arena, block_of(p, p->before, item->stmt), run);
}

static void place_item(Placement *p, State *state, const Place *place) {
    Item *item = place->item;
    VEC(Subst *) again = {0};
    Subst *subst = versions_under(p, state, place, item->map);
    for (const Rerun *run = item->again; run; run = run->next)
        vec_push(p->arena, &again, versions_under(p, state, place, run->map));
    write_versions(p, state, place);
    if (!p->apply) return;
    Subst **at = again.items;
    for (const Rerun *run = item->again; run; run = run->next) push_rerun(p, item, run->map, *at++);
    substitute(item, subst);
}

// A copy between whole fragments: from the version of the source from which it costs least. Afterwards both hold one
// value if they have one type.
static void place_copy(Placement *p, State *state, Item *item) {
    CopyOp copy = copy_of(item->stmt);
    int from = number_of(p, copy.src->buf), to = number_of(p, copy.dst->buf), value = state->value[from];
    bool same = copy.src->buf->type == copy.dst->buf->type && value != 0;
    if (same && holds(p, state, to, value)) {
        vec_push(p->arena, &p->dropped, item->stmt);
        return;
    }
    if (value) {
        int64_t cost;
        int source = cheapest_source(p, state, from, copy.dst->buf, home_of(p, to), &cost);
        if (source >= 0) {
            p->quarters += p->trips * cost;
            p->costs[from] |= cost > 0;
        }
        if (p->apply && source >= 0 && source != from) {
            ARG(item->stmt, COPY, src).region = region_whole(p->arena, version_buf(p, source));
            p->changed = true;
        }
    }
    write_value(p, state, to, same ? value : ++p->last_value, to);
}

// A statement that takes fragments as they are.
static void place_other(Placement *p, State *state, const Place *place) {
    const Stmt *stmt = place->stmt;
    EACH_TOUCH(touch, p, place->first, place->own) {
        if (stmt->kind == STMT_DECL) forget(p, state, touch->fragment);
        if (touch->reads) make_current(p, state, touch->fragment, home_of(p, touch->fragment), before(stmt), stmt->loc);
        if (touch->writes) write_value(p, state, touch->fragment, ++p->last_value, touch->fragment);
    }
}

static void place_all(Placement *p, State *state, const PlaceVec *places);

// ---- branches ----

static bool leaves(const Block *block) {
    return block->count > 0 && vec_last(block)->kind == STMT_BREAK;
}

static bool any_in_both(const Placement *p, const State *a, const State *b, int fragment) {
    EACH_VERSION(i, p, fragment)
    if (a->current[i] && b->current[i]) return true;
    return false;
}

static void keep_common(const Placement *p, State *a, State *b, int fragment) {
    EACH_VERSION(i, p, fragment) a->current[i] = b->current[i] = a->current[i] && b->current[i];
}

static void end_with_home(Placement *p, State *state, int fragment, const Stmt *stmt, Block *branch) {
    make_current(p, state, fragment, home_of(p, fragment), end_of(branch), stmt->loc);
}

// Behind the `if`, or in the next iteration of the loop around it, in which the reader may stand in the `if` itself.
static bool read_again(const Placement *p, const Place *place, int fragment) {
    return read_outside(p, place, fragment) || (p->loop && !declares_within(p, p->loop, fragment));
}

// One branch leaves the fragment without a value, as before: what the other one wrote is read only where that branch
// ran. It is no other fragment's value, so that a copy of one behind the `if` is made.
static void keep_known(Placement *p, State *a, const State *b, int fragment) {
    bool known = a->value[fragment];
    a->value[fragment] = ++p->last_value;
    if (known) return;
    EACH_VERSION(i, p, fragment) a->current[i] = b->current[i];
}

// What holds of the fragment behind both branches of the `if`, in a.
static void merge(Placement *p, const Place *place, State *a, State *b, int fragment) {
    bool differ = a->value[fragment] != b->value[fragment];
    if (!a->value[fragment] != !b->value[fragment]) {
        keep_known(p, a, b, fragment);
        return;
    }
    if (a->value[fragment] && !any_in_both(p, a, b, fragment) && read_again(p, place, fragment)) {
        end_with_home(p, a, fragment, place->stmt, place->blocks[0]);
        end_with_home(p, b, fragment, place->stmt, place->blocks[1]);
    }
    keep_common(p, a, b, fragment);
    if (differ) a->value[fragment] = ++p->last_value;
}

static void place_if(Placement *p, State *state, const Place *place) {
    State other = copy_state(p, state);
    bool *touched = NEW_ARRAY(p->arena, bool, p->fragments.count);
    place_all(p, state, &place->bodies[0]);
    place_all(p, &other, &place->bodies[1]);
    if (leaves(place->blocks[0])) *state = other;
    if (leaves(place->blocks[0]) || leaves(place->blocks[1])) return;
    EACH_TOUCH(touch, p, place->first, place->last) touched[touch->fragment] = true;
    for (int f = 0; f < p->fragments.count; f++)
        if (touched[f] && !declares_within(p, place, f)) merge(p, place, state, &other, f);
}

// ---- loops ----

// What each iteration reads in another layout, and the loop does not write, is converted before it.
static void convert_before(Placement *p, State *state, const Place *loop, const PlaceVec *places) {
    VEC_EACH_PTR (Place, place, places) {
        EACH_TOUCH(touch, p, place->first, place->own) {
            bool stays = !writes_within(p, loop, touch->fragment) && !declares_within(p, loop, touch->fragment);
            if (touch->reads && stays && !(touch->item && is_conversion(touch->item)))
                version_read(p, state, place, touch, needed_by(p, touch, touch->item ? touch->item->map : NULL),
                             before(loop->stmt));
        }
        if (place->stmt->kind == STMT_IF) continue;
        for (int i = 0; i < 2; i++) convert_before(p, state, loop, &place->bodies[i]);
    }
}

// `runs`: at least one iteration. What the loop leaves without one is what was there before.
static void find_carried(Placement *p, State *state, const Place *loop, bool runs, CarriedVec *out) {
    for (int f = 0; f < p->fragments.count; f++) {
        if (!writes_within(p, loop, f) || declares_within(p, loop, f)) continue;
        Carried carried = {f, common_layout(p, loop, f), enters(p, loop, f)};
        if (carried.enters || (!runs && read_outside(p, loop, f)))
            make_current(p, state, f, carried.layout, before(loop->stmt), loop->stmt->loc);
        vec_push(p->arena, out, carried);
    }
    VEC_EACH (const Carried, carried, out)
        write_value(p, state, carried->fragment, ++p->last_value, version_of(p, carried->fragment, carried->layout));
}

// A `break` of the loop itself: it may leave before what the loop writes.
static bool breaks(const Block *block) {
    FOR_EACH_ITEM (stmt, block) {
        if (stmt->kind == STMT_BREAK) return true;
        if (stmt->kind == STMT_IF && (breaks(&stmt->if_.then) || breaks(&stmt->if_.otherwise))) return true;
        if (stmt->kind == STMT_BLOCK && breaks(&stmt->block)) return true;
    }
    return false;
}

// Each iteration is sure to come about, once at least and to its end.
static bool surely_runs(const Stmt *loop) {
    if (loop->kind != STMT_FOR || breaks(&loop->loop.body)) return false;
    for (int i = 0; i < loop->loop.count; i++)
        if (iter_count(&loop->loop.iters[i]) <= 0) return false;
    return true;
}

// The carried versions hold what comes out of an iteration.
static void end_iteration(Placement *p, State *state, const Place *loop, const CarriedVec *all, Where where) {
    VEC_EACH (const Carried, carried, all)
        if (carried->enters || read_outside(p, loop, carried->fragment))
            make_current(p, state, carried->fragment, carried->layout, where, loop->stmt->loc);
}

static void place_loop(Placement *p, State *state, const Place *loop) {
    const Place *outer_loop = p->loop;
    const CarriedVec *outer_carried = p->carried;
    int64_t outer_trips = p->trips;
    CarriedVec carried = {0};
    convert_before(p, state, loop, &loop->bodies[0]);
    find_carried(p, state, loop, surely_runs(loop->stmt), &carried);
    State within = copy_state(p, state);
    p->trips = loop_trips(p->inference->trips, loop->stmt, p->trips);
    p->loop = loop;
    p->carried = &carried;
    place_all(p, &within, &loop->bodies[0]);
    if (!leaves(loop->blocks[0])) end_iteration(p, &within, loop, &carried, end_of(loop->blocks[0]));
    p->trips = outer_trips;
    p->loop = outer_loop;
    p->carried = outer_carried;
}

// ---- the walk ----

static void place_one(Placement *p, State *state, const Place *place) {
    p->steps += 1 + place->own - place->first;
    if (place->item && is_conversion(place->item)) place_copy(p, state, place->item);
    else if (place->item) place_item(p, state, place);
    else if (place->first < place->own) place_other(p, state, place);
    if (place->stmt->kind == STMT_BREAK && p->loop) end_iteration(p, state, p->loop, p->carried, before(place->stmt));
    if (place->stmt->kind == STMT_IF) {
        place_if(p, state, place);
    } else if (map_has(p->inference->trips, place->stmt)) {
        place_loop(p, state, place);
    } else {
        for (int i = 0; i < 2; i++) place_all(p, state, &place->bodies[i]);
    }
}

// The statements of a block, at whose end the fragments that it declares are gone, though others hold their values.
static void place_all(Placement *p, State *state, const PlaceVec *places) {
    VEC_EACH_PTR (Place, place, places) place_one(p, state, place);
    VEC_EACH_PTR (Place, place, places)
        if (place->stmt->kind == STMT_DECL) forget(p, state, p->touches.items[place->first].fragment);
}

Placement *placement_new(Inference *inference, const FragmentVec *fragments) {
    Placement *p = NEW(inference->arena, Placement);
    *p = (Placement){.inference = inference, .arena = inference->arena, .fragments = *fragments};
    p->numbers = map_new(p->arena);
    p->declared = NEW_ARRAY(p->arena, const Stmt *, fragments->count);
    p->converted = NEW_ARRAY(p->arena, bool, fragments->count);
    p->costs = NEW_ARRAY(p->arena, bool, fragments->count);
    for (int f = 0; f < fragments->count; f++) map_put(p->numbers, fragment_at(p, f), (void *)(intptr_t)(f + 1));
    find_places(p, inference->body, &p->places);
    p->capacity = fragments->count + p->touches.count * MOST_RUNS;
    p->versions.items = NEW_ARRAY(p->arena, Version, p->capacity);
    p->versions.capacity = p->capacity;
    return p;
}

static void walk(Placement *p) {
    int fragments = p->fragments.count;
    State state = {NEW_ARRAY(p->arena, int, fragments), NEW_ARRAY(p->arena, bool, p->capacity)};
    p->versions.count = p->dropped.count = p->last_value = 0;
    for (int f = 0; f < fragments; f++) {
        vec_push(p->arena, &p->versions, ((Version){f, home_of(p, f), fragment_at(p, f), 0}));
        p->converted[f] = p->costs[f] = false;
    }
    p->trips = 1;
    p->quarters = 0;
    place_all(p, &state, &p->places);
}

// The walks of a search are many: what each allocates goes behind it.
static bool walk_in(void *user, Arena *arena) {
    Placement *p = user;
    Arena *lasting = p->arena;
    p->arena = p->inference->arena = arena;
    walk(p);
    p->arena = p->inference->arena = lasting;
    p->dropped.count = p->dropped.capacity = 0;
    return true;
}

int64_t placement_quarters(Placement *p) {
    Arena *lasting = p->arena;
    p->arena = p->inference->arena;   // of the caller, which may be another one than at first
    arena_scope(p->inference->context->failure, walk_in, p);
    p->arena = lasting;
    return p->quarters;
}

int64_t placement_steps(const Placement *p) {
    return p->steps;
}

bool placement_converts(const Placement *p, const Buf *buf) {
    return p->costs[number_of(p, buf)];
}

bool placement_takes(const Placement *p, const Buf *buf) {
    EACH_TOUCH(touch, p, 0, p->touches.count)
    if (touch->fragment == number_of(p, buf) && !touch->item && (touch->reads || touch->writes)) return true;
    return false;
}

// ---- changing the program ----

static const PlaceVec *block_with(const PlaceVec *places, const Stmt *stmt) {
    const PlaceVec *found = NULL;
    VEC_EACH_PTR (Place, place, places) {
        if (place->stmt == stmt) return places;
        for (int i = 0; i < 2 && !found; i++) found = block_with(&place->bodies[i], stmt);
    }
    return found;
}

// The first statement on the fragment, among those next to its declaration, stores a part of it, or may not be executed:
// what else there is has no value yet.
static bool begins_incomplete(const Placement *p, int fragment) {
    const PlaceVec *block = p->declared[fragment] ? block_with(&p->places, p->declared[fragment]) : &p->places;
    VEC_EACH_PTR (Place, place, block) {
        if (place->stmt == p->declared[fragment]) continue;
        EACH_TOUCH(touch, p, place->first, place->last) {
            if (touch->fragment != fragment) continue;
            bool nested = touch >= p->touches.items + place->own;
            return nested || (touch->use && touch->use->is_store && touch->use->keeps);
        }
    }
    return false;
}

// A conversion copies all elements, so that all need a value.
static void fill_versions(Placement *p, int fragment) {
    VEC_EACH (const Version, version, &p->versions) {
        if (version->fragment != fragment || !version->buf) continue;
        Stmt *fill = BLOCK_CALL(p->arena, declarations(p, fragment), version->buf->loc, OP_FILL,
                                arg_region(region_whole(p->arena, version->buf)),
                                arg_value(e_zero(p->arena, version->buf->type)));
        attr_set_layout(p->arena, &fill->attrs, ATTR_MAP, version->buf->layout);
    }
}

static bool is_dropped(const Placement *p, const Stmt *stmt) {
    VEC_EACH_PTR (Stmt, dropped, &p->dropped)
        if (dropped == stmt) return true;
    return false;
}

static void push_with_conversions(StmtMapper *mapper, Stmt *stmt, Block *out) {
    Placement *p = mapper->user;
    Block *first = map_get(p->before, stmt), *then = map_get(p->after, stmt);
    if (first) block_append(mapper->arena, out, first);
    if (!is_dropped(p, stmt)) block_push(mapper->arena, out, stmt);
    if (then) block_append(mapper->arena, out, then);
    mapper->changed |= first || then || is_dropped(p, stmt);
}

// ---- fragments that nothing reads any more ----

typedef struct Used {
    Map *any, *read;   // buffers
} Used;

static Used buffers_used(Arena *arena, const Block *body) {
    Used used = {map_new(arena), map_new(arena)};
    FOR_EACH_ITEM (stmt, body)
        FOR_EACH_EFFECT (effect, arena, stmt) {
            map_put(used.any, effect->buf, effect->buf);
            if (effect->access != ACCESS_WRITE) map_put(used.read, effect->buf, effect->buf);
        }
    return used;
}

static bool is_unread(const Used *used, const Stmt *stmt) {
    FillOp fill;
    const Buf *written = NULL;
    if (stmt->kind == STMT_DECL) return stmt->decl->scope == SCOPE_FRAGMENT && !map_has(used->any, stmt->decl);
    if (is_fragment_copy(stmt)) written = copy_of(stmt).dst->buf;
    else if (match_fill(stmt, &fill)) written = fill.dst->buf;
    return written && written->scope == SCOPE_FRAGMENT && !map_has(used->read, written);
}

static void drop_unread(StmtMapper *mapper, Stmt *stmt, Block *out) {
    if (is_unread(mapper->user, stmt)) mapper->changed = true;
    else block_push(mapper->arena, out, stmt);
}

static void drop_unread_copies(Arena *arena, Block *body) {
    Used used;
    StmtMapper mapper = {.arena = arena, .stmt = drop_unread, .user = &used};
    do {
        mapper.changed = false;
        used = buffers_used(arena, body);
    } while (rewrite_block(&mapper, body));
}

bool place_conversions(Inference *inference) {
    Placement *p = placement_new(inference, &inference->fragments);
    p->apply = true;
    p->before = map_new(p->arena);
    p->after = map_new(p->arena);
    walk(p);
    for (int f = 0; f < p->fragments.count; f++)
        if (p->converted[f] && begins_incomplete(p, f)) fill_versions(p, f);
    StmtMapper insert = {.arena = p->arena, .stmt = push_with_conversions, .user = p};
    bool changed = rewrite_block(&insert, inference->body) || p->changed;
    if (changed) drop_unread_copies(p->arena, inference->body);
    return changed;
}
