// Rule 17: shared buffers that are in use at the same time have storage of their own. Last, of rule 16: so do elements.
//
// Time is the order of statements in the text: a buffer is in use from the first statement that names it to the last. A
// loop around both does not matter for buffers whose contents do not outlive an iteration, and those that do are named
// before or after what they overlap.
#include "ir/build.h"
#include "ir/rewrite.h"
#include "ir/verify_impl.h"
#include "layout/distribution.h"
#include <stdlib.h>

typedef struct Use {
    Buf *buf;
    int64_t members;   // of an array of roles, each of which has its own
    int first, last;   // statements, in the order of the text; -1: never
} Use;

typedef struct Uses {
    VEC(Use) items;
    Map *index;   // root Buf -> 1 + index
    Arena *arena;
    int64_t members;   // of the role whose statements are visited
    int now;
} Uses;

static const Buf *root_of(const Buf *buf) {
    while (buf->alias_of) buf = buf->alias_of;
    return buf;
}

static void touch(Uses *uses, const Buf *buf) {
    int at = (int)(intptr_t)map_get(uses->index, root_of(buf)) - 1;
    if (at < 0) return;
    Use *use = &uses->items.items[at];
    if (use->first < 0) use->first = uses->now;
    use->last = uses->now;
}

static bool touch_expr(Visitor *visitor, Expr *e) {
    if (e->kind == EXPR_LOAD) touch(visitor->user, e->load.buf);
    return true;
}

static void touch_region(Visitor *visitor, Region *region, const Operand *operand) {
    (void)operand;
    touch(visitor->user, region->buf);
}

static bool touch_stmt(Visitor *visitor, Stmt *stmt) {
    Uses *uses = visitor->user;
    uses->now++;
    if (stmt->kind == STMT_STORE) touch(uses, stmt->store.buf);
    return true;
}

static bool collect(Visitor *visitor, Stmt *stmt) {
    Uses *uses = visitor->user;
    if (stmt->kind == STMT_ROLE && uses->members == 1) {
        uses->members = role_members(stmt);
        visit_block(visitor, &stmt->role.body);
        uses->members = 1;
        return false;
    }
    if (stmt->kind != STMT_DECL || stmt->decl->scope != SCOPE_SHARED || stmt->decl->offset < 0 || stmt->decl->alias_of)
        return true;
    Use use = {stmt->decl, uses->members, -1, -1};
    vec_push(uses->arena, &uses->items, use);
    map_put(uses->index, stmt->decl, (void *)(intptr_t)uses->items.count);
    return true;
}

static bool overlap(const Use *a, const Use *b) {
    bool bytes = a->buf->offset < b->buf->offset + b->members * buf_space(b->buf) &&
                 b->buf->offset < a->buf->offset + a->members * buf_space(a->buf);
    return bytes && a->first >= 0 && b->first >= 0 && a->first <= b->last && b->first <= a->last;
}

void check_allocation(Verifier *v, const Func *kernel) {
    Uses uses = {.index = map_new(v->arena), .arena = v->arena, .members = 1};
    Visitor collector = {.stmt = collect, .user = &uses};
    visit_block(&collector, (Block *)&kernel->body);
    if (uses.items.count == 0) return;
    Visitor toucher = {touch_expr, touch_stmt, touch_region, &uses};
    visit_block(&toucher, (Block *)&kernel->body);
    for (int i = 0; i < uses.items.count; i++) {
        const Use *use = &uses.items.items[i];
        const Buf *buf = use->buf;
        int align = buf->align > type_bytes(buf->type) ? buf->align : type_bytes(buf->type);
        if (buf->offset % align != 0)
            REPORT(v, buf->loc, T_IR_ALLOCATION, buf->name, "has an @offset that is not a multiple of its alignment");
        for (int k = 0; k < i; k++)
            if (overlap(use, &uses.items.items[k])) {
                REPORT(v, buf->loc, T_IR_ALLOCATION, buf->name,
                       arena_printf(v->arena, "shares bytes with '%s' while both are in use",
                                    uses.items.items[k].buf->name));
            }
    }
}

// ---- places of elements (16) ----
enum { MOST_PLACES = 1 << 22 };   // more do not fit into any memory

typedef struct Elements {
    int rank;
    int64_t shape[LAYOUT_MAX_RANK], count;
} Elements;

static Elements elements_of(const Buf *buf) {
    Elements elements = {.rank = buf->rank - buf->stage_dims, .count = 1};
    for (int d = 0; d < elements.rank; d++) {
        elements.shape[d] = buf_extent(buf, buf->stage_dims + d);
        bool fits = elements.shape[d] > 0 && elements.count <= MOST_PLACES / elements.shape[d];
        elements.count = fits ? elements.count * elements.shape[d] : 0;
    }
    return elements;
}

static void coordinates_of(const Elements *elements, int64_t element, int64_t *at) {
    for (int d = elements->rank - 1; d >= 0; d--) {
        at[d] = element % elements->shape[d];
        element /= elements->shape[d];
    }
}

static const char *element_text(Arena *arena, const Elements *elements, int64_t element) {
    int64_t at[LAYOUT_MAX_RANK];
    const char *text = "";
    coordinates_of(elements, element, at);
    for (int d = 0; d < elements->rank; d++)
        text = arena_printf(arena, "%s%s%lld", text, d ? ", " : "", (long long)at[d]);
    return arena_printf(arena, "[%s]", text);
}

typedef struct Placed {
    int64_t place, element;
} Placed;

static int by_place(const void *a, const void *b) {
    const Placed *x = a, *y = b;
    if (x->place != y->place) return x->place < y->place ? -1 : 1;
    return x->element < y->element ? -1 : x->element > y->element;
}

static void check_shared_places(Verifier *v, const Buf *buf, const Elements *elements) {
    Placed *placed = NEW_ARRAY(v->arena, Placed, elements->count);
    for (int64_t i = 0; i < elements->count; i++) {
        int64_t at[LAYOUT_MAX_RANK];
        coordinates_of(elements, i, at);
        placed[i] = (Placed){layout_linear(buf->layout, at), i};
    }
    qsort(placed, (size_t)elements->count, sizeof *placed, by_place);
    for (int64_t i = 1; i < elements->count; i++) {
        if (placed[i].place != placed[i - 1].place) continue;
        REPORT(v, buf->loc, T_IR_LAYOUT, buf->name,
               arena_printf(v->arena, "puts elements %s and %s at one place",
                            element_text(v->arena, elements, placed[i - 1].element),
                            element_text(v->arena, elements, placed[i].element)));
        return;
    }
}

static const char *twice_text(Arena *arena, const char *element, int64_t thread, int64_t other) {
    if (thread == other)
        return arena_printf(arena, "gives element %s to thread %lld twice", element, (long long)thread);
    return arena_printf(arena, "gives element %s to threads %lld and %lld, which do not have all the same", element,
                        (long long)thread, (long long)other);
}

// Some thread holds an element, and others only as its replicas.
static void check_held(Verifier *v, const Buf *buf, const Elements *elements) {
    int64_t threads = tv_threads(buf->layout), values = tv_values(buf->layout);
    int64_t *holder = NEW_ARRAY(v->arena, int64_t, elements->count);   // from 1
    for (int64_t i = 0; values <= MOST_PLACES / threads && i < threads * values; i++) {
        int64_t out[LAYOUT_MAX_RANK], element = 0;
        bool inside = !tv_is_replica(buf->layout, i / values);
        layout_eval(buf->layout, (int64_t[]){i / values, i % values}, out);
        for (int d = 0; d < elements->rank; d++) {
            inside &= out[d] >= 0 && out[d] < elements->shape[d];
            element = element * elements->shape[d] + out[d];
        }
        if (inside && holder[element]) {
            REPORT(v, buf->loc, T_IR_LAYOUT, buf->name,
                   twice_text(v->arena, element_text(v->arena, elements, element), holder[element] - 1, i / values));
            return;
        }
        if (inside) holder[element] = i / values + 1;
    }
    for (int64_t i = 0; i < elements->count; i++) {
        if (holder[i]) continue;
        REPORT(v, buf->loc, T_IR_LAYOUT, buf->name,
               arena_printf(v->arena, "gives element %s to no thread", element_text(v->arena, elements, i)));
        return;
    }
}

void check_places(Verifier *v, const Buf *buf) {
    Elements elements = elements_of(buf);
    if (elements.count && buf->scope == SCOPE_FRAGMENT) check_held(v, buf, &elements);
    else if (elements.count) check_shared_places(v, buf, &elements);
}
