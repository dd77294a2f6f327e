// The rules of the IR. Every violation is reported with its place; nothing is repaired.
//
//  Names
//   1. A variable or buffer is used where it is declared: parameters and dims everywhere, iterators in their loop, the
//      rest after its declaration up to the end of its block. Nothing is declared twice.
//   2. Only `var` scalars are assigned to. Parameters that are inputs are not written.
//  Types
//   3. Operands of arithmetic and comparisons have one type (the right side of a shift: any integer), those of && || !
//      and all conditions are bool, those of & | ^ << >> % and ~ integers or bool. Arms of a selection have one type.
//      What is bound or assigned has the variable's type.
//   4. An access has one index per dim, an integer each (in a thread region a fragment is indexed by its slot).
//      Within buffers that are not global lie constant indices and regions, and indices that are sums of iterators of
//      constant bounds, where no condition stands around them.
//   5. No integer is divided by a constant 0.
//  Where statements stand
//   6. One grid per kernel, at its top; programs hold const, let, if, assume, scratch and launches; references no
//      device code. Thread regions and roles stand inside the grid, thread regions not inside each other,
//      roles neither inside each other, nor in a loop, nor under a condition that is no constant.
//   7. break leaves for and while. Steps are positive constants, thread counts positive.
//   8. Shared, fragment and local buffers have positive constant extents (in references and tests: any) and are
//      declared in the grid; barriers live in shared memory.
//  Operations
//   9. An op stands at the stages of its row: tile ops outside of thread regions and of `parallel`, thread ops inside
//      of thread regions. Its operands are of the kind, memory and constancy that the row says, of the types that
//      its instruction takes, and within their buffers (verify_thread.c).
//  10. The shapes of a tile op fit: equal for copy, [M, K] [K, N] [M, N] for gemm, without the axis for
//      reduce.
//  11. A barrier of the whole CTA does not stand under a condition on the thread index: all threads must arrive.
//      (Whether the lanes of a warp agree at ops of a whole warp only the emulator can tell.)
//  Loops
//  12. Iterations of `parallel` do not conflict where that is plain: a store whose place and guards ignore one of the
//      iterators, an assignment to an outer variable, or two accesses that an example shows to meet
//      (verify_conflicts.c).
//  13. Inside `parallel` an index of a fragment is a parallel variable, a let, or a constant.
//  14. An index of a local array in a kernel is constant once `unroll` loops are expanded.
//  Decisions
//  15. Attributes stand where their row says, with its arguments.
//  16. A layout has the rank of its buffer and covers its extents; a fragment's has (thread, value) inputs.
//  17. Shared buffers with offsets are aligned and do not overlap while both are in use, unless one is an alias.
//      An alias is a shared buffer no larger than the one that it names, and has a layout where tile ops or `parallel`
//      use it.
//  18. At thread stage (after lower-tile-op) there are no fragments and no tile ops.
//  19. A tensormap parameter says with @tma which tensor it maps, and only TMA operations name it; their boxes have the
//      map's type and rank. Operands of wgmma have the types and forms of the instruction.
//  20. Tensors that may be one (@alias of a parameter): an element of the read one is read by the CTA and iteration
//      that writes it, before it does, where that is plain (verify_conflicts.c).
//  21. A handle of a channel is ended once on each path and not used after. A slot is written by the group that fills
//      it, and a channel has groups that fill and groups that receive (verify_channels.c).
#include "ir/verify.h"
#include "ir/build.h"
#include "ir/channels.h"
#include "ir/query.h"
#include "ir/role_text.h"
#include "ir/schedule.h"
#include "ir/verify_impl.h"
#include "layout/distribution.h"
#include <ctype.h>
#include <string.h>

// ---- attributes (15) ----
static bool argument_fits(char letter, const AttrArg *arg) {
    bool of_layout = letter == 'l', of_text = strchr("sSnNt", letter) != NULL;
    return of_layout == (arg->layout != NULL) && of_text == (arg->text != NULL);
}

static void check_group(Verifier *v, const Attr *list, const Attr *group, Span loc) {
    if (group->args[group->count - 1].integer < 0) REPORT(v, loc, T_ATTRIBUTE, attr_name(group->id), "no less than 0");
    for (; list != group; list = list->next)
        if (list->id == ATTR_GROUP && !strcmp(list->args[0].text, group->args[0].text))
            REPORT(v, loc, T_ATTRIBUTE, attr_name(group->id), "of another name: a group has one");
}

// What else its words may be; NULL: they are right.
static const char *words_problem(const Attr *attr) {
    if (attr->id == ATTR_SPLIT) return split_problem(attr);
    return attr->id == ATTR_WORKSPACE ? workspace_problem(attr) : NULL;
}

static void check_attrs(Verifier *v, const Attr *list, char where, Span loc) {
    for (const Attr *attr = list; attr; attr = attr->next) {
        if (!strchr(attr_where(attr->id), where)) REPORT(v, loc, T_ATTRIBUTE_PLACE, attr_name(attr->id));
        const char *pattern = attr_pattern(attr->id);
        bool fits = attr_takes(attr->id, attr->count);
        for (int i = 0; fits && i < attr->count; i++) fits = argument_fits(pattern[i], &attr->args[i]);
        if (!fits) REPORT(v, loc, T_ATTRIBUTE, attr_name(attr->id), *pattern ? pattern : "none");
        bool counts = attr->id != ATTR_LOC && attr->id != ATTR_CONFLICTS && attr->id != ATTR_TUNED && where != 'p';
        int last = attr->count - (attr->id == ATTR_GROUP);   // (a group may have 0 registers)
        for (int i = 0; fits && counts && i < last; i++)
            if (tolower(pattern[i]) == 'i' && attr->args[i].integer < 1)
                REPORT(v, loc, T_ATTRIBUTE, attr_name(attr->id), "positive");
        if (fits && attr->id == ATTR_GROUP) check_group(v, list, attr, loc);
        const char *words = fits ? words_problem(attr) : NULL;
        if (words) REPORT(v, loc, T_ATTRIBUTE, attr_name(attr->id), words);
    }
}

static bool find_addition(Visitor *visitor, Stmt *stmt) {
    *(bool *)visitor->user |= stmt->kind == STMT_CALL && stmt->call.op == OP_ATOMIC_ADD;
    return true;
}

static bool adds_elements(const Stmt *stmt) {
    bool adds = false;
    Visitor visitor = {.stmt = find_addition, .user = &adds};
    if (stmt->kind == STMT_FOR && stmt->loop.kind == LOOP_PARALLEL) visit_block(&visitor, (Block *)&stmt->loop.body);
    return adds;
}

static bool multiplies(const Stmt *stmt) {
    return is_call(stmt, OP_GEMM);
}

static bool moves_elements(const Stmt *stmt) {
    if (stmt->kind == STMT_CALL) return stmt->call.op == OP_COPY;
    return stmt->kind == STMT_FOR && stmt->loop.kind == LOOP_PARALLEL;
}

// ---- mechanisms ----

// Bits of what a mechanism (via.def) does.
enum {
    MOVE = 1,
    PRODUCT = 2,
    TILE = 4,
    STORE = 8,
    SHARED = 16,
    ADDITION = 32,
    FRAGMENTS = 64,
    LOAD = 128,
    UNLOAD = 256
};
static const struct {
    int what;
    const char *form;
} forms[] = {{MOVE, "copies, transposes and gathers"},
             {PRODUCT, "gemms"},
             {TILE, "copies between a box of a tensor and a shared tile with dims in the same order"},
             {STORE, "copies of fragments to tensors"},
             {SHARED, "copies within shared memory"},
             {ADDITION, "`parallel` loops of atomic_add to a tensor"},
             {FRAGMENTS, "copies between fragments"},
             {LOAD, "copies from shared memory to fragments"},
             {UNLOAD, "copies from fragments to shared memory"}};

static int via_does(Via via) {
    static const int does[] = {
#define VIA(NAME, text, what, meaning) [VIA_##NAME] = (what),
#include "ir/via.def"
#undef VIA
    };
    return does[via];
}

static const char *via_forms(Arena *arena, Via via) {
    const char *text = NULL;
    for (int i = 0; i < (int)COUNT_OF(forms); i++)
        if (via_does(via) & forms[i].what)
            text = text ? arena_printf(arena, "%s, and %s", text, forms[i].form) : forms[i].form;
    return text;
}

static bool via_fits(const Stmt *stmt, Via via) {
    int what = via_does(via);
    return (what & MOVE && moves_elements(stmt)) || (what & PRODUCT && multiplies(stmt)) ||
           (what & TILE && (is_global_to_shared_copy(stmt) || is_shared_to_global_copy(stmt))) ||
           (what & STORE && is_fragment_to_global_copy(stmt)) || (what & ADDITION && adds_elements(stmt)) ||
           (what & LOAD && is_copy_between(stmt, SCOPE_SHARED, SCOPE_FRAGMENT)) ||
           (what & UNLOAD && is_copy_between(stmt, SCOPE_FRAGMENT, SCOPE_SHARED)) ||
           (what & FRAGMENTS && is_copy_between(stmt, SCOPE_FRAGMENT, SCOPE_FRAGMENT)) ||
           (what & SHARED && is_copy_between(stmt, SCOPE_SHARED, SCOPE_SHARED));
}

// A mechanism at what it cannot do would be passed over without a word.
static void check_mechanism(Verifier *v, const Stmt *stmt) {
    const char *text = attr_text(stmt->attrs, ATTR_VIA);
    Via via = via_of(stmt);
    if (text && via == VIA_NONE)
        REPORT(v, stmt->loc, T_ATTRIBUTE, attr_name(ATTR_VIA), "one of the mechanisms in docs/reference/language.md");
    else if (via != VIA_NONE && !via_fits(stmt, via)) {
        v->broken = true;
        Diag *d = diag(v->sink, stmt->loc, T_ATTRIBUTE_PLACE, arena_printf(v->arena, "via(%s)", text));
        diag_note(d, "it stands at %s", via_forms(v->arena, via));
    }
    if (!attr_get(stmt->attrs, ATTR_TF32)) return;
    bool rounds_to_tf32 = is_global_to_shared_copy(stmt) && ARG(stmt, COPY, dst).region->buf->type == TYPE_F32;
    if (!rounds_to_tf32) REPORT(v, stmt->loc, T_ATTRIBUTE_PLACE, attr_name(ATTR_TF32));
}

// Of the threads there are.
static void check_threads(Verifier *v, const Context *c, const Layout *map, Span loc) {
    if (!c->threads || tv_threads(map) == c->threads) return;
    REPORT(v, loc, T_IR_MAP,
           arena_printf(v->arena, "is for %lld threads, of which there are %lld here", (long long)tv_threads(map),
                        (long long)c->threads));
}

static bool values_repeat(const Layout *map) {
    const LayoutInput *values = map->rank_in == 2 ? &map->in[1] : NULL;
    for (int i = 0; values && i < values->count; i++) {
        const LayoutMode *mode = &values->modes[i];
        if (mode->extent == 1) continue;
        if (mode->stride == 0) return true;
        for (int j = 0; j < i; j++) {
            const LayoutMode *other = &values->modes[j];
            if (other->extent > 1 && other->out == mode->out && other->stride == mode->stride) return true;
        }
    }
    return false;
}

// The number of dims of a loop, or of what an operation goes through: those of its first region. -1: it has none.
static int iterated_rank(const Stmt *stmt) {
    if (stmt->kind == STMT_FOR) return stmt->loop.count;
    for (int i = 0; stmt->kind == STMT_CALL && i < stmt->call.count; i++)
        if (stmt->call.args[i].region) return region_rank(stmt->call.args[i].region);
    return -1;
}

// Which thread does which iterations.
static void check_map(Verifier *v, const Context *c, const Stmt *stmt) {
    const Layout *map = attr_layout(stmt->attrs, ATTR_MAP);
    if (!map) return;
    int rank = iterated_rank(stmt);
    if (values_repeat(map)) {
        REPORT(v, stmt->loc, T_IR_MAP, "gives a thread the same iteration several times");
    } else if (map->rank_in != 2 || (rank >= 0 && map->rank_out != rank)) {
        REPORT(v, stmt->loc, T_IR_MAP, "has other inputs than thread and value, or another number of dims");
    } else {
        check_threads(v, c, map, stmt->loc);
    }
}

// ---- buffers (8, 16, 18) ----
static void check_layout(Verifier *v, const Buf *buf) {
    const Layout *layout = buf->layout;
    bool tv = buf->scope == SCOPE_FRAGMENT;
    int rank = tv ? layout->rank_out : layout->rank_in + buf->stage_dims;
    if (rank != buf->rank || (tv && layout->rank_in != 2)) {
        REPORT(v, buf->loc, T_LAYOUT_RANK, buf->name, buf->rank, rank);
        return;
    }
    for (int i = tv ? 0 : buf->stage_dims; i < buf->rank; i++) {
        int64_t covers = tv ? layout->out_shape[i] : layout_extent_in(layout, i - buf->stage_dims),
                extent = buf_extent(buf, i);
        if (extent <= covers) continue;
        REPORT(v, buf->loc, T_IR_LAYOUT, buf->name,
               arena_printf(v->arena, "covers %lld of the %lld elements along dim %d", (long long)covers,
                            (long long)extent, i));
        return;
    }
    if (v->written) check_places(v, buf);
}

static void check_alias(Verifier *v, const Buf *buf) {
    const Buf *root = buf_root(buf);
    bool shared = buf->scope == SCOPE_SHARED;
    if (root->scope != buf->scope || !(shared || buf->is_param))
        REPORT(v, buf->loc, T_IR_PLACE, buf->name, "in the storage of another buffer: only shared ones have an @alias");
    else if (shared && buf_space(buf) > buf_space(root))
        REPORT(v, buf->loc, T_IR_ALLOCATION, buf->name,
               arena_printf(v->arena, "has %lld bytes, more than the %lld of '%s', whose storage it shares",
                            (long long)buf_space(buf), (long long)buf_space(root), root->name));
}

static void check_buffer(Verifier *v, const Context *c, const Buf *buf) {
    check_attrs(v, buf->attrs, 'd', buf->loc);
    if (buf->align < 0 || (buf->align & (buf->align - 1)))
        REPORT(v, buf->loc, T_ATTRIBUTE, attr_name(ATTR_ALIGN), "a power of two");
    if (attr_get(buf->attrs, ATTR_ZEROED) && !buf->is_scratch)
        REPORT(v, buf->loc, T_ATTRIBUTE_PLACE, attr_name(ATTR_ZEROED));
    if (buf->rank < 1 || buf->rank > LAYOUT_MAX_RANK) {
        REPORT(v, buf->loc, T_DIMS_COUNT, buf->name, LAYOUT_MAX_RANK);
        return;
    }
    bool dynamic = buf->scope == SCOPE_GLOBAL || c->kind == FUNC_REFERENCE;
    for (int i = 0; i < buf->rank; i++) {
        check_expr(v, c, buf->shape[i]);
        int64_t extent = buf_extent(buf, i);
        if (!dynamic && buf->shape[i]->kind != EXPR_INT) REPORT(v, buf->loc, T_NOT_CONSTANT, "an extent");
        else if (!dynamic && extent < 1) REPORT(v, buf->loc, T_EXTENT_POSITIVE, (long long)extent);
    }
    if (buf->strides)
        for (int i = 0; i < buf->rank; i++) check_expr(v, c, buf->strides[i]);
    bool opaque = type_kind(buf->type) == KIND_OPAQUE;
    if (opaque && buf->scope != SCOPE_SHARED && buf->scope != SCOPE_GLOBAL)
        REPORT(v, buf->loc, T_NOT_SCALAR_TYPE, type_text(buf->type));
    bool here = buf->scope == SCOPE_GLOBAL ? buf->is_scratch && c->kind == FUNC_PROGRAM
                : c->kind == FUNC_KERNEL   ? c->grid && (buf->scope == SCOPE_LOCAL ? c->thread : !c->parallel)
                                           : c->kind == FUNC_REFERENCE && buf->scope == SCOPE_LOCAL;
    if (!here && !buf->is_param) {
        map_put(v->misplaced, buf, v);
        REPORT(v, buf->loc, T_IR_PLACE, buf->name,
               "here: shared and fragment belong in a grid, outside of parallel loops; local in a thread region; "
               "scratch in a program");
    }
    if (buf->scope == SCOPE_FRAGMENT && v->func->stage == STAGE_THREAD)
        REPORT(v, buf->loc, T_IR_PLACE, buf->name, "at thread stage");
    if (buf->layout && !buf->lowered) check_layout(v, buf);
    if (buf->alias_of && !v->broken) check_alias(v, buf);
}

// ---- statements ----
static void check_block(Verifier *v, Context c, const Block *block);

static void check_iters(Verifier *v, const Context *c, int count, const Iter *iters) {
    for (int i = 0; i < count; i++) {
        check_copied(v, c, iters[i].begin, "a bound", iters[i].var->loc);
        check_copied(v, c, iters[i].end, "a bound", iters[i].var->loc);
        int64_t step;
        if (!iters[i].step || !expr_const(iters[i].step, &step) || step < 1)
            REPORT(v, iters[i].var->loc, T_STEP,
                   (long long)(iters[i].step && iters[i].step->kind == EXPR_INT ? iters[i].step->integer : 0));
        if (!type_is_int(iters[i].var->type))
            REPORT(v, iters[i].var->loc, T_IR_TYPE, iters[i].var->name, type_text(iters[i].var->type));
        declare_name(v, iters[i].var, iters[i].var->name, iters[i].var->loc);
    }
}

// The indices of a grid or a parallel loop are counted all at once: no range depends on another index.
static void check_product(Verifier *v, int count, const Iter *iters) {
    for (int i = 1; i < count; i++)
        for (int j = 0; j < i; j++) {
            const Iter *iter = &iters[i];
            const char *other = iters[j].var->name;
            if (!expr_uses_var(iter->begin, iters[j].var) && !expr_uses_var(iter->end, iters[j].var)) continue;
            REPORT(v, iter->var->loc, T_GRID_RANGE, iter->var->name,
                   arena_printf(v->arena, "have a range without '%s', an index next to it", other));
        }
}

static void check_binding(Verifier *v, const Context *c, const Stmt *stmt) {
    Var *var = stmt->let.var;
    if (stmt->let.value) {
        check_expr(v, c, stmt->let.value);
        bool handle = is_acquire(stmt) || is_receive(stmt);
        if (type_kind(stmt->let.value->type) == KIND_OPAQUE && !handle)
            REPORT(v, stmt->loc, T_NOT_SCALAR_TYPE, type_text(stmt->let.value->type));
        if (stmt->let.value->type != var->type)
            REPORT(v, stmt->loc, T_OPERAND_TYPES, "=", type_text(var->type), type_text(stmt->let.value->type));
    }
    if (stmt->kind == STMT_LET) {
        declare_name(v, var, var->name, stmt->loc);
        Depends depends = expr_depends(v, stmt->let.value);
        bool integral = type_is_int(var->type) && !v->broken;
        depends.ranged = integral && value_known(v, stmt->let.value, &depends.low);
        depends.high = depends.low;
        set_depends(v, var, depends);
        return;
    }
    if (stmt->let.value && expr_depends(v, stmt->let.value).warp)
        REPORT(v, stmt->loc, T_IR_PLACE, op_info(OP_ANY)->text, "in a variable: name it by `let`");
    if (var->kind != VAR_MUTABLE) REPORT(v, stmt->loc, T_NOT_ASSIGNABLE, var->name);
    if (stmt->kind == STMT_VAR) {
        declare_name(v, var, var->name, stmt->loc);
        map_put(v->inner, var, c->parallel || c->thread ? v : NULL);
        return;
    }
    check_visible(v, var, var->name, stmt->loc);
    if (map_get(v->inner, var)) return;
    if (c->parallel) REPORT(v, stmt->loc, T_IR_CONFLICT, var->name, "every iteration assigns it");
    if (!c->thread) return;
    v->broken = true;
    diag_note(diag(v->sink, stmt->loc, T_IR_PLACE, var->name,
                   "to be assigned in a thread region: each thread would have its own"),
              "outside of a region a variable is the CTA's: hand the value over by shared memory");
}

// The iterators that a value names; all of them when it may hold anything.
static uint64_t named_iterators(const Verifier *v, const Expr *e) {
    Depends depends = expr_depends(v, e);
    return depends.unknown ? ~(uint64_t)0 : depends.iterators;
}

// An iterator that neither place nor guard of a store names: several iterations write one element.
static void check_conflict(Verifier *v, const Context *c, const Stmt *stmt) {
    uint64_t named = c->guards;
    for (int i = 0; i < stmt->store.count; i++) named |= named_iterators(v, stmt->store.indices[i]);
    if ((named & c->parallel_iterators) != c->parallel_iterators && !map_has(v->misplaced, stmt->store.buf))
        REPORT(v, stmt->loc, T_IR_CONFLICT, stmt->store.buf->name,
               "an iterator names neither the element nor a condition around the store");
}

static void check_store(Verifier *v, const Context *c, const Stmt *stmt) {
    const Buf *buf = stmt->store.buf;
    check_indices(v, c, buf, stmt->store.count, stmt->store.indices, stmt->loc);
    check_expr(v, c, stmt->store.value);
    if (buf->scope == SCOPE_FRAGMENT && is_block_level(c))
        check_copied(v, c, stmt->store.value, "what each thread stores", stmt->loc);
    Type value = stmt->store.value->type;
    if (type_kind(value) == KIND_OPAQUE || type_kind(buf->type) == KIND_OPAQUE)
        REPORT(v, stmt->loc, T_NOT_CONVERTIBLE, type_text(value), type_text(buf->type));
    if (buf->is_param && buf->mode == MODE_IN && !v->fills) REPORT(v, stmt->loc, T_READ_ONLY, buf->name);
    if (c->parallel && (v->written || !may_be_excluded(v, c))) check_conflict(v, c, stmt);
}

static void set_range(Depends *depends, const Iter *iter) {
    int64_t end, step, span;
    depends->ranged = expr_const(iter->begin, &depends->low) && expr_const(iter->end, &end) &&
                      expr_const(iter->step, &step) && step > 0 && end > depends->low &&
                      !__builtin_sub_overflow(end - 1, depends->low, &span);
    if (depends->ranged) depends->high = end - 1 - span % step;
}

// What the values of an iterator depend on; a parallel one is itself something to depend on.
static void enter_iter(Verifier *v, Context *c, const Iter *iter, LoopKind kind) {
    Depends begin = expr_depends(v, iter->begin), end = expr_depends(v, iter->end);
    bool unrolled = kind == LOOP_UNROLL || kind == LOOP_VECTORIZED;
    Depends depends = {.iterators = begin.iterators | end.iterators, .thread = begin.thread || end.thread};
    depends.varies = !unrolled || begin.varies || end.varies;
    depends.unknown = begin.unknown || end.unknown;
    set_range(&depends, iter);
    c->divergent |= depends.thread;
    if (kind == LOOP_PARALLEL && v->parallel_count < 64) {
        uint64_t bit = (uint64_t)1 << v->parallel_count++;
        int64_t first, last, step;
        bool single = expr_const(iter->begin, &first) && expr_const(iter->end, &last) &&
                      expr_const(iter->step, &step) &&
                      (last <= first || (uint64_t)last - (uint64_t)first <= (uint64_t)step);
        if (!single) c->parallel_iterators |= bit;
        depends.iterators |= bit;
    }
    set_depends(v, iter->var, depends);
}

static const uint64_t MOST_PARALLEL = (uint64_t)1 << 31;

// Zero when the bounds are no constants, or there are none.
static uint64_t constant_trips(const Iter *iter) {
    int64_t begin, end, step;
    if (!expr_const(iter->begin, &begin) || !expr_const(iter->end, &end) || end <= begin ||
        !expr_const(iter->step, &step) || step < 1)
        return 0;
    return ((uint64_t)end - (uint64_t)begin - 1) / (uint64_t)step + 1;
}

// What a kernel expands, each iteration a copy, and what it spreads over a CTA's threads, with maps that count them.
static void check_trips(Verifier *v, const Context *c, const Stmt *stmt) {
    LoopKind kind = stmt->loop.kind;
    bool expands = kind == LOOP_UNROLL || kind == LOOP_VECTORIZED;
    uint64_t all = 1;
    for (int i = 0; i < stmt->loop.count && c->kind == FUNC_KERNEL; i++) {
        uint64_t trips = constant_trips(&stmt->loop.iters[i]);
        if (expands && trips > MOST_UNROLLED)
            REPORT(v, stmt->loc, T_IR_UNROLL, (long long)(trips > INT64_MAX ? INT64_MAX : trips), MOST_UNROLLED);
        all = trips > 0 && trips > MOST_PARALLEL / all ? MOST_PARALLEL + 1 : trips > 0 ? all * trips : all;
    }
    if (kind == LOOP_PARALLEL && all > MOST_PARALLEL) REPORT(v, stmt->loc, T_IR_PARALLEL, (long long)MOST_PARALLEL);
}

static bool breaks(const Block *block) {
    FOR_EACH_STMT (stmt, block)
        if (stmt->kind == STMT_BREAK) return true;
    return false;
}

// As `for (tile in tiles)` is read; tile-scheduler puts other loops in its place.
static void check_tile_loop(Verifier *v, Context *c, const Stmt *stmt) {
    const Iter *iter = stmt->loop.iters;
    bool one = stmt->loop.kind == LOOP_SERIAL && stmt->loop.count == 1 && expr_is_int(iter->begin, 0) &&
               expr_is_int(iter->end, 1) && expr_is_int(iter->step, 1);
    if (!one) REPORT(v, stmt->loc, T_ATTRIBUTE_PLACE, attr_name(ATTR_TILES));
    else if (c->thread) REPORT(v, stmt->loc, T_IR_PLACE, "for (tile in tiles)", "inside a thread region");
    else if (c->parallel) REPORT(v, stmt->loc, T_IR_PLACE, "for (tile in tiles)", "inside a parallel loop");
    else if (c->tiles) REPORT(v, stmt->loc, T_IR_PLACE, "for (tile in tiles)", "inside another one");
    c->tiles = true;
}

static void check_loop(Verifier *v, Context c, const Stmt *stmt) {
    int mark = v->declared.count, parallel_count = v->parallel_count;
    LoopKind kind = stmt->loop.kind;
    check_iters(v, &c, stmt->loop.count, stmt->loop.iters);
    if (kind == LOOP_PARALLEL) check_product(v, stmt->loop.count, stmt->loop.iters);
    if (stmt->loop.stages) check_expr(v, &c, stmt->loop.stages);
    if (kind == LOOP_PARALLEL && c.thread) REPORT(v, stmt->loc, T_IR_PLACE, "parallel", "inside a thread region");
    if (kind == LOOP_PARALLEL && c.parallel && !c.thread) {
        v->broken = true;
        diag_note(diag(v->sink, stmt->loc, T_IR_PLACE, "parallel", "inside a parallel loop"),
                  "one loop has all iterators, parallel (i in n, j in m); what one iteration does in order is a `for`");
    }
    bool tiles = attr_get(stmt->attrs, ATTR_TILES);
    if (tiles) check_tile_loop(v, &c, stmt);
    check_trips(v, &c, stmt);
    for (int i = 0; i < stmt->loop.count; i++) enter_iter(v, &c, &stmt->loop.iters[i], kind);
    c.parallel |= kind == LOOP_PARALLEL;
    c.breakable = (kind == LOOP_SERIAL || kind == LOOP_UNROLL) && !tiles;
    c.nested = true;
    c.conditional |= c.breakable && breaks(&stmt->loop.body);
    for (int i = 0; i < stmt->loop.count; i++) c.uncertain |= constant_trips(&stmt->loop.iters[i]) == 0;
    check_block(v, c, &stmt->loop.body);
    v->parallel_count = parallel_count;
    undeclare_names(v, mark);
}

// All threads may evaluate its condition, each for itself: they leave it one after the other.
static bool is_wait(const Stmt *stmt) {
    return stmt->kind == STMT_WHILE && stmt->while_.body.count == 0 && !expr_writes_memory(stmt->while_.condition);
}

static void check_conditional(Verifier *v, Context c, const Stmt *stmt) {
    bool loop = stmt->kind == STMT_WHILE;
    Expr *condition = loop ? stmt->while_.condition : stmt->if_.condition;
    bool broken = v->broken;
    v->broken = false;
    check_condition(v, &c, condition);
    int64_t holds = -1;
    if (!v->broken) value_known(v, condition, &holds);
    v->broken |= broken;
    if (is_block_level(&c) && !is_wait(stmt)) check_copied(v, &c, condition, "a condition of the block", stmt->loc);
    Depends depends = expr_depends(v, condition);
    c.divergent |= depends.thread && !depends.unknown;   // threads may load equal values
    c.by_warp |= depends.warp;
    c.guards |= named_iterators(v, condition);
    c.conditional = true;
    c.nested |= loop || holds == -1;
    c.undecided |= holds == -1 && !depends.varies;
    if (loop) {
        c.breakable = true;
        check_block(v, c, &stmt->while_.body);
        return;
    }
    Context then = c, otherwise = c;
    then.dead |= holds == 0;
    otherwise.dead |= holds == 1;
    check_block(v, then, &stmt->if_.then);
    check_block(v, otherwise, &stmt->if_.otherwise);
}

static bool cluster_fits(const Stmt *grid) {
    int blocks = 1;
    for (int i = 0; i < 3; i++) {
        int extent = grid->grid.cluster[i];
        if (extent > MOST_CLUSTER || (extent > 1 && i >= grid->grid.count)) return false;
        blocks *= extent > 1 ? extent : 1;
    }
    return blocks <= MOST_CLUSTER;
}

static void refuse_second(Verifier *v, const Stmt *grid, AttrId id, const char *option) {
    const Attr *attr = attr_get(grid->attrs, id);
    if (!attr || !attr_get(attr->next, id)) return;
    v->broken = true;
    diag_note(diag(v->sink, grid->loc, T_ATTRIBUTE_PLACE, attr_name(id)), "%s", option);
}

static void check_schedule(Verifier *v, const Stmt *grid) {
    const Attr *order = attr_get(grid->attrs, ATTR_ORDER), *claim = attr_get(grid->attrs, ATTR_CLAIM);
    const char *of_order = order ? order_problem(order, grid->grid.count) : NULL;
    const char *of_claim = claim ? claim_problem(claim) : NULL;
    if (of_order) REPORT(v, grid->loc, T_ATTRIBUTE, attr_name(ATTR_ORDER), of_order);
    if (of_claim) REPORT(v, grid->loc, T_ATTRIBUTE, attr_name(ATTR_CLAIM), of_claim);
    const Attr *cluster = attr_get(grid->attrs, ATTR_CLUSTER);
    const char *of_cluster = cluster ? cluster_problem(cluster, grid) : NULL;
    if (of_cluster) REPORT(v, grid->loc, T_ATTRIBUTE, attr_name(ATTR_CLUSTER), of_cluster);
    refuse_second(v, grid, ATTR_ORDER, "`raster` is @order(raster, R): leave one of them out");
    refuse_second(v, grid, ATTR_CLAIM, "`persistent` is @claim(static): leave one of them out");
}

static void check_role_text(Verifier *v, const Block *body) {
    Span use;
    const char *lost = role_text_lost(role_text_new(v->arena, body), &use);
    if (!lost) return;
    v->broken = true;
    diag_note(
        diag(v->sink, use, T_IR_PLACE, lost,
             "here: roles, and the text before and behind them, have registers of their own"),
        "declare it where it is used; a value goes through shared memory: shared s: f32[1]; s[0] = x; and s[0] there");
}

static void check_grid(Verifier *v, Context c, const Stmt *stmt) {
    if (c.kind != FUNC_KERNEL || c.grid || c.thread || v->grids++) REPORT(v, stmt->loc, T_ONE_GRID);
    int mark = v->declared.count;
    check_expr(v, &c, stmt->grid.threads);
    int64_t threads = 0;
    if (!expr_const(stmt->grid.threads, &threads) || threads < 1)
        REPORT(v, stmt->loc, T_NOT_CONSTANT, "the number of threads");
    check_iters(v, &c, stmt->grid.count, stmt->grid.iters);
    check_product(v, stmt->grid.count, stmt->grid.iters);
    for (int i = 0; i < stmt->grid.count; i++) {
        const Iter *iter = &stmt->grid.iters[i];
        if (!expr_is_int(iter->begin, 0) || !expr_is_int(iter->step, 1))
            REPORT(v, stmt->loc, T_GRID_RANGE, iter->var->name, "start at 0 and step by 1");
    }
    if (!cluster_fits(stmt)) REPORT(v, stmt->loc, T_CLUSTER, MOST_CLUSTER);
    check_schedule(v, stmt);
    bool roles = false;   // statements next to them may be theirs
    for (int i = 0; i < stmt->grid.body.count; i++) roles |= stmt->grid.body.items[i]->kind == STMT_ROLE;
    if (grid_blocks(stmt) == 1 && !roles) expr_const(stmt->grid.threads, &c.threads);
    if (roles && v->func->stage == STAGE_TILE) check_role_text(v, &stmt->grid.body);
    c.grid = true;
    if (threads > 1) c.declared_threads = threads;
    c.block_threads = grid_threads(stmt);
    check_block(v, c, &stmt->grid.body);
    undeclare_names(v, mark);
}

static void check_role(Verifier *v, Context c, const Stmt *stmt) {
    c.role = true;
    if (stmt->role.threads % WARP_LANES)
        REPORT(v, stmt->loc, T_ROLE_THREADS, stmt->role.name, (long long)stmt->role.threads, WARP_LANES);
    c.threads = c.declared_threads = stmt->role.threads;
    int mark = v->declared.count;
    check_iters(v, &c, stmt->role.count, stmt->role.iters);
    if (stmt->role.count > 1 || role_members(stmt) < 1) REPORT(v, stmt->loc, T_NOT_CONSTANT, "the number of roles");
    check_block(v, c, &stmt->role.body);
    undeclare_names(v, mark);
}

// All names together, each from 0: threads of a CTA, or of a cluster that shares a tile.
static void check_extents(Verifier *v, const Context *c, const Stmt *region) {
    enum { MOST_THREADS = MOST_BLOCK_THREADS * MOST_CLUSTER };
    int64_t extent = 0, all = 1;
    for (int i = 0; i < region->thread.count; i++) {
        const Iter *iter = &region->thread.iters[i];
        bool plain = expr_is_int(iter->begin, 0) && expr_is_int(iter->step, 1) && expr_const(iter->end, &extent);
        if (!plain) REPORT(v, iter->var->loc, T_NOT_CONSTANT, "the number of threads");
        else if (extent < 1 || extent > MOST_THREADS || (all *= extent) > MOST_THREADS)
            REPORT(v, iter->var->loc, T_OUT_OF_BOUNDS, "the number of threads", 1LL, (long long)MOST_THREADS);
        if (!plain || extent < 1 || extent > MOST_THREADS || all > MOST_THREADS) return;
    }
    if (c->declared_threads && all > c->declared_threads)
        REPORT(v, region->loc, T_REGION_THREADS, (long long)all, c->role ? "role" : "grid",
               (long long)c->declared_threads);
}

static void check_thread(Verifier *v, Context c, const Stmt *stmt) {
    if (!c.grid || c.thread || c.parallel)
        REPORT(v, stmt->loc, T_IR_PLACE, "thread", c.grid ? "inside another region" : "outside of a grid");
    int mark = v->declared.count;
    check_iters(v, &c, stmt->thread.count, stmt->thread.iters);
    check_extents(v, &c, stmt);
    for (int i = 0; i < stmt->thread.count; i++) {
        Depends depends = {.varies = true, .thread = true};
        set_range(&depends, &stmt->thread.iters[i]);
        set_depends(v, stmt->thread.iters[i].var, depends);
    }
    c.thread = true;
    check_block(v, c, &stmt->thread.body);
    undeclare_names(v, mark);
}

static void check_launch(Verifier *v, const Context *c, const Stmt *stmt) {
    if (c->kind != FUNC_PROGRAM) REPORT(v, stmt->loc, T_IR_PLACE, stmt->launch.callee, "outside of a program");
    const Func *func = stmt->launch.func;
    if (func && func_argument_count(func) != stmt->launch.count) {
        REPORT(v, stmt->loc, T_ARGUMENTS, stmt->launch.callee);
        return;
    }
    for (int i = 0; i < stmt->launch.count; i++) {
        const Arg *arg = &stmt->launch.args[i];
        const Param *param = func ? func_argument(func, i) : NULL;
        if (arg->value) check_expr(v, c, arg->value);
        if (arg->region) check_region(v, c, arg->region);
        bool fits = !param || (param->buf ? arg->region && arg->region->buf->type == param->buf->type &&
                                                param_takes_rank(param->buf, arg->region->buf->rank)
                                          : arg->value != NULL);
        if (!fits && param->buf)
            REPORT(v, stmt->loc, T_LAUNCH_TENSOR, stmt->launch.callee, param->buf->name, type_text(param->buf->type),
                   param->buf->rank);
        else if (!fits) REPORT(v, stmt->loc, T_ARGUMENTS, stmt->launch.callee);
        bool writes = param && param->buf && param->buf->mode != MODE_IN && arg->region;
        if (writes && arg->region->buf->is_param && arg->region->buf->mode == MODE_IN)
            REPORT(v, stmt->loc, T_READ_ONLY, arg->region->buf->name);
    }
}

// Which statements a kind of function may hold, and where (6).
static void check_place(Verifier *v, const Context *c, const Stmt *stmt) {
    bool program = stmt->kind == STMT_LET || stmt->kind == STMT_IF || stmt->kind == STMT_ASSUME ||
                   stmt->kind == STMT_LAUNCH || stmt->kind == STMT_DECL || stmt->kind == STMT_BLOCK ||
                   stmt->kind == STMT_CALL;
    bool device = stmt->kind == STMT_GRID || stmt->kind == STMT_ROLE || stmt->kind == STMT_THREAD;
    if (c->kind == FUNC_PROGRAM && !program) REPORT(v, stmt->loc, T_MISPLACED, "a program");
    else if (c->kind == FUNC_REFERENCE && device) REPORT(v, stmt->loc, T_MISPLACED, "a reference");
    bool works =
        stmt->kind == STMT_STORE || stmt->kind == STMT_CALL || stmt->kind == STMT_FOR || stmt->kind == STMT_WHILE;
    if (c->kind == FUNC_KERNEL && !c->grid && works) REPORT(v, stmt->loc, T_MISPLACED, "a kernel outside of its grid");
}

// Each warp has an answer of its own: what stands below may touch nothing that warps share.
#define OF_A_WARP "under a condition that each warp has of its own, any(..)"

static bool is_of_warp(const Stmt *stmt) {
    switch (stmt->kind) {
    case STMT_LET:
    case STMT_IF:
    case STMT_BLOCK:
    case STMT_FOR:
    case STMT_ASSUME: return true;
    case STMT_DECL: return stmt->decl->scope == SCOPE_FRAGMENT;
    case STMT_STORE: return stmt->store.buf->scope == SCOPE_FRAGMENT;
    case STMT_CALL: break;
    default: return false;
    }
    bool tiles = is_call(stmt, OP_COPY) || is_call(stmt, OP_FILL) || is_reduction(stmt);
    for (int i = 0; i < stmt->call.count; i++) {
        const Region *region = stmt->call.args[i].region;
        if (region && region->buf->scope != SCOPE_FRAGMENT) return false;
    }
    return tiles;
}

static void check_of_warp(Verifier *v, const Context *c, const Stmt *stmt) {
    if (!c->by_warp || c->thread || c->dead || is_of_warp(stmt)) return;
    REPORT(v, stmt->loc, T_IR_PLACE, stmt->kind == STMT_CALL ? op_info(stmt->call.op)->text : "a statement", OF_A_WARP);
}

static void check_stmt(Verifier *v, const Context *c, const Stmt *stmt) {
    check_of_warp(v, c, stmt);
    check_attrs(v, stmt->attrs, 's', stmt->loc);
    check_mechanism(v, stmt);
    check_map(v, c, stmt);
    check_place(v, c, stmt);
    switch (stmt->kind) {
    case STMT_LET:
    case STMT_VAR:
    case STMT_ASSIGN: check_binding(v, c, stmt); break;
    case STMT_STORE: check_store(v, c, stmt); break;
    case STMT_DECL:
        check_buffer(v, c, stmt->decl);
        if (stmt->decl->alias_of) check_visible(v, stmt->decl->alias_of, stmt->decl->alias_of->name, stmt->loc);
        declare_name(v, stmt->decl, stmt->decl->name, stmt->loc);
        break;
    case STMT_FOR: check_loop(v, *c, stmt); break;
    case STMT_WHILE:
    case STMT_IF: check_conditional(v, *c, stmt); break;
    case STMT_BREAK:
        if (!c->breakable) REPORT(v, stmt->loc, T_BREAK_OUTSIDE);
        break;
    case STMT_BLOCK: check_block(v, *c, &stmt->block); break;
    case STMT_GRID: check_grid(v, *c, stmt); break;
    case STMT_ROLE:
        if (!c->grid || c->thread || c->nested || c->role || stmt->role.threads < 1)
            REPORT(v, stmt->loc, T_IR_PLACE, stmt->role.name,
                   c->role ? "inside another role"
                           : "here: a role must be at block level in a grid, in no loop and under no condition");
        check_role(v, *c, stmt);
        break;
    case STMT_THREAD: check_thread(v, *c, stmt); break;
    case STMT_CALL: check_call(v, c, stmt->call.op, stmt->call.count, stmt->call.args, stmt->loc); break;
    case STMT_LAUNCH: check_launch(v, c, stmt); break;
    case STMT_ASSUME:
        check_condition(v, c, stmt->assume);
        check_copied(v, c, stmt->assume, "an assumption", stmt->loc);
        break;
    }
}

static void check_block(Verifier *v, Context c, const Block *block) {
    int mark = v->declared.count;
    for (int i = 0; i < block->count; i++) check_stmt(v, &c, block->items[i]);
    undeclare_names(v, mark);
}

// ---- functions ----
static void check_hidden(Verifier *v, const Func *func, const Param *param) {
    if (func->kind == FUNC_REFERENCE) return;   // its tensors are f64, whatever the kernel's map says of them
    TensorMap map;
    const char *why = "is not a tensormap";
    if (param->var && type_kind(param->var->type) == KIND_OPAQUE && !param_is_hidden(param))
        REPORT(v, param->var->loc, T_NOT_SCALAR_TYPE, type_text(param->var->type));
    if (!param_is_hidden(param) && !attr_get(param->attrs, ATTR_TMA)) return;
    const char *name = param->var ? param->var->name : param->buf->name;
    Span loc = param->var ? param->var->loc : param->buf->loc;
    if (!param_is_hidden(param) || !tensor_map_read(func, param, &map, &why))
        REPORT(v, loc, T_IR_TENSOR_MAP, name, why);
    else if (func->kind == FUNC_PROGRAM) REPORT(v, loc, T_IR_TENSOR_MAP, name, "is a parameter of a program");
}

static void check_independent(Verifier *v, const Func *func, const Param *param) {
    if (func->kind == FUNC_REFERENCE || !attr_get(param->attrs, ATTR_INDEPENDENT)) return;
    const Buf *buf = param->buf;
    const char *problem = !buf                         ? "it is no tensor"
                          : func->kind == FUNC_PROGRAM ? "it is a parameter of a program, not of a kernel"
                          : buf->mode != MODE_IN       ? "the kernel writes it"
                          : buf->alias_of              ? "it may be a tensor that the kernel writes"
                                                       : NULL;
    if (problem)
        REPORT(v, buf ? buf->loc : param->var->loc, T_INDEPENDENT, buf ? buf->name : param->var->name, problem);
}

static void check_func(Verifier *v, const Func *func) {
    Context c = {.kind = func->kind};
    v->func = func;
    check_attrs(v, func->attrs, 'k', func->loc);
    for (int i = 0; i < func->dims.count; i++) {
        declare_name(v, func->dims.items[i], func->dims.items[i]->name, func->loc);
        set_depends(v, func->dims.items[i], (Depends){.varies = true});
    }
    for (int i = 0; i < func->params.count; i++) {
        const Param *param = &func->params.items[i];
        check_attrs(v, param->attrs, 'p', func->loc);
        check_hidden(v, func, param);
        check_independent(v, func, param);
        if (param->var) declare_name(v, param->var, param->var->name, param->var->loc);
        if (param->buf) declare_name(v, param->buf, param->buf->name, param->buf->loc);
    }
    for (int i = 0; i < func->params.count; i++)
        if (func->params.items[i].buf) check_buffer(v, &c, func->params.items[i].buf);
    if (func->when) check_condition(v, &c, func->when);
    for (int i = 0; func->cost && i < COST_EXTENTS; i++) check_expr(v, &c, func->cost->extents[i]);
    check_block(v, c, &func->body);
    if (func->kind == FUNC_KERNEL && v->grids == 0) REPORT(v, func->loc, T_NO_GRID, func->name);
    if (func->kind == FUNC_KERNEL) check_allocation(v, func);
    if (func->kind == FUNC_KERNEL && func->stage == STAGE_TILE && !v->broken) check_conflicts(v, func);
    if (func->kind == FUNC_KERNEL && !v->broken) check_channels(v, func);
    if (func->kind == FUNC_PROGRAM) check_launches(v, func);
}

static bool verify_one(const Module *module, const Func *func, bool fills, bool written) {
    Verifier v = {.module = module, .arena = module->arena, .sink = module->sink, .fills = fills, .written = written};
    v.visible = map_new(v.arena);
    v.depends = map_new(v.arena);
    v.inner = map_new(v.arena);
    v.misplaced = map_new(v.arena);
    check_func(&v, func);
    return !v.broken;
}

bool verify_func(const Module *module, const Func *func, bool written) {
    return verify_one(module, func, false, written);
}

bool verify_module(const Module *module, bool written) {
    bool holds = true;
    VEC_EACH_PTR (Func, func, &module->funcs) holds &= verify_one(module, func, false, written);
    VEC_EACH_PTR (Func, reference, &module->references) holds &= verify_one(module, reference, false, written);
    VEC_EACH_PTR (Test, test, &module->tests)
        if (test->fill) holds &= verify_one(module, test->fill, true, written);
    return holds;
}
