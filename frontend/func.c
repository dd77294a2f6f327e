// Kernels with their variants, programs, references.
#include "frontend/sema.h"
#include "ir/query.h"
#include "ir/rewrite.h"
#include "ir/verify.h"
#include "support/strbuf.h"
#include <ctype.h>
#include <string.h>

int item_named(const Syntax *syntax, const char *name) {
    for (int i = 0; i < syntax->items.count; i++) {
        const Node *node = syntax->items.items[i].node;
        if (ast_is_launchable(node) && strcmp(node->text, name) == 0) return i;
    }
    return -1;
}

// ---- the stage of a kernel ----

// Whether a statement can only stand before lower-tile-op: tile ops, fragments, loops over whole tiles, and outside
// of thread regions what one thread executes.
static bool is_tile_stage(const Block *block, bool in_thread);

static bool stmt_is_tile_stage(const Stmt *stmt, bool in_thread) {
    if (!in_thread && (is_single_thread(stmt) || binds_effect(stmt))) return true;
    switch (stmt->kind) {
    case STMT_DECL:
        return stmt->decl->scope == SCOPE_FRAGMENT || (stmt->decl->scope == SCOPE_SHARED && stmt->decl->layout);
    case STMT_CALL: return !(op_info(stmt->call.op)->stages & STAGE_BIT_THREAD);
    case STMT_FOR:
        return stmt->loop.kind == LOOP_PARALLEL || stmt->loop.kind == LOOP_PIPELINED ||
               is_tile_stage(&stmt->loop.body, in_thread);
    case STMT_WHILE: return is_tile_stage(&stmt->while_.body, in_thread);
    case STMT_IF: return is_tile_stage(&stmt->if_.then, in_thread) || is_tile_stage(&stmt->if_.otherwise, in_thread);
    case STMT_BLOCK: return is_tile_stage(&stmt->block, in_thread);
    case STMT_GRID: return is_tile_stage(&stmt->grid.body, in_thread);
    case STMT_ROLE: return is_tile_stage(&stmt->role.body, in_thread);
    case STMT_THREAD: return is_tile_stage(&stmt->thread.body, true);
    default: return false;
    }
}

static bool is_tile_stage(const Block *block, bool in_thread) {
    for (int i = 0; i < block->count; i++)
        if (stmt_is_tile_stage(block->items[i], in_thread)) return true;
    return false;
}

static bool has_thread(const Block *block) {
    for (int i = 0; i < block->count; i++) {
        const Stmt *stmt = block->items[i];
        if (stmt->kind == STMT_THREAD) return true;
        if (stmt->kind == STMT_GRID && has_thread(&stmt->grid.body)) return true;
        if (stmt->kind == STMT_ROLE && has_thread(&stmt->role.body)) return true;
        if (stmt->kind == STMT_BLOCK && has_thread(&stmt->block)) return true;
        if (stmt->kind == STMT_FOR && has_thread(&stmt->loop.body)) return true;
        if (stmt->kind == STMT_WHILE && has_thread(&stmt->while_.body)) return true;
        if (stmt->kind == STMT_IF && (has_thread(&stmt->if_.then) || has_thread(&stmt->if_.otherwise))) return true;
    }
    return false;
}

static void mark_lowered(const Block *block) {
    for (int i = 0; i < block->count; i++) {
        Stmt *stmt = block->items[i];
        if (stmt->kind == STMT_DECL && stmt->decl->scope == SCOPE_SHARED) stmt->decl->lowered = true;
        if (stmt->kind == STMT_GRID) mark_lowered(&stmt->grid.body);
        if (stmt->kind == STMT_ROLE) mark_lowered(&stmt->role.body);
        if (stmt->kind == STMT_BLOCK) mark_lowered(&stmt->block);
    }
}

// ---- one function ----
typedef struct Frame {
    Sema outer;
    NameScope params, body;
} Frame;

static Func *begin(Sema *s, Frame *frame, FuncKind kind, const char *name, const Node *node, const ChoiceVec *choices,
                   CodeContext context) {
    frame->outer = *s;
    s->func = NEW(s->arena, Func);
    Span loc = node->span;
    *s->func = (Func){.kind = kind, .name = name};
    s->placed = false;
    if (kind != FUNC_REFERENCE) {
        Span given = {.line = -1};
        s->scope = s->file;
        s->func->attrs = attributes(s, node->attrs, 'k', &given);
        if (given.line >= 0) s->placed = true, s->place = loc = given;
    }
    s->func->loc = loc;
    s->block = &s->func->body;
    s->context = context;
    s->choices = (ChoiceVec){0};
    for (int i = 0; i < choices->count; i++)   // of another variant's names this one may lack some
        if (compile_time_name(node, choices->items[i].name)) vec_push(s->arena, &s->choices, choices->items[i]);
    s->grids = s->loops = s->picked = s->constant = s->skipped = 0;
    s->in_parallel = s->in_thread = s->in_pipelined = false;
    s->inlining = NULL;
    s->scope = s->file;
    scope_open(s, &frame->params);
    parameters(s, node);
    scope_open(s, &frame->body);
    if (context != IN_REFERENCE && context != IN_FILL) bind_choices(s);
    return s->func;
}

static void end(Sema *s, Frame *frame) {
    frame->outer.made = s->made;
    frame->outer.expansions = s->expansions;
    *s = frame->outer;
}

// Names in the box of a tensor map ("64,BN") become the constants that they stand for, tunables among them.
static void resolve_box(Sema *s, Attr *tma, Span span) {
    StrBuf out;
    sb_init(&out, s->arena);
    for (const char *at = tma->args[1].text; *at;) {
        size_t length = strcspn(at, ",");
        const char *word = arena_printf(s->arena, "%.*s", (int)length, at);
        if (word[0] == '_' || isalpha((unsigned char)word[0])) {
            Node name = {.kind = N_NAME, .text = word, .span = span};
            SemaValue value = constant(s, &name, "a box's extent");
            if (is_poison(value)) return;
            word = constant_text(s->arena, value);
        }
        sb_str(&out, word);
        if (*(at += length) == ',') sb_printf(&out, "%c", *at++);
    }
    tma->args[1].text = sb_text(&out);
}

static void resolve_boxes(Sema *s, const Node *params) {
    for (int i = 0; i < s->func->params.count && i < params->count; i++) {
        const Param *param = &s->func->params.items[i];
        Attr *tma = (Attr *)attr_get(param->attrs, ATTR_TMA);
        if (!tma || !param->var) continue;
        resolve_box(s, tma, param->var->loc);
        resolve_view(s, params->kids[i], tma);
    }
}

// A variant is not made for compile-time values that its condition excludes, where another one follows.
static bool is_excluded(Sema *s, const Node *node) {
    bool followed = false, found = false;
    for (int i = 0; i < s->syntax->items.count; i++) {
        const Node *other = s->syntax->items.items[i].node;
        followed |= found && ast_is_launchable(other) && strcmp(other->text, node->text) == 0;
        found |= other == node;
    }
    return followed && node->kids[2] && choices_exclude(s);
}

// Written there, or in a macro that is called there.
static bool has_grid(const Sema *s, const Node *node) {
    if (!node) return false;
    if (node->kind == N_GRID || (node->kind == N_CALL && strmap_has(s->syntax->inlines, node->text))) return true;
    for (int i = 0; i < node->count; i++)
        if (has_grid(s, node->kids[i])) return true;
    return false;
}

// NULL: excluded.
static Func *build_variant(Sema *s, const Node *node, const char *name, const ChoiceVec *choices) {
    Frame frame;
    bool kernel = node->kind == N_KERNEL;
    Func *func =
        begin(s, &frame, kernel ? FUNC_KERNEL : FUNC_PROGRAM, name, node, choices, kernel ? IN_KERNEL : IN_PROGRAM);
    if (is_excluded(s, node)) {
        end(s, &frame);
        return NULL;
    }
    NameScope inner;
    scope_open(s, &inner);
    if (kernel && !has_grid(s, node->kids[3])) diag(s->sink, node->span, T_NO_GRID, name);
    else statements(s, node->kids[3]);
    resolve_boxes(s, node->kids[1]);
    end(s, &frame);
    if (kernel && has_thread(&func->body) && !is_tile_stage(&func->body, false)) {
        func->stage = STAGE_THREAD;
        mark_lowered(&func->body);
    }
    return func;
}

// Again where a product asks for a shared buffer in other coordinates.
static Func *build(Sema *s, const Node *node, const char *name, const ChoiceVec *choices) {
    SharedMaps *maps = NEW(s->arena, SharedMaps), *outer = s->maps;
    int errors = diag_errors(s->sink), diagnostics = diag_count(s->sink);
    Func *func;
    s->maps = maps;
    for (bool again = true; again;) {
        maps->declarations = map_new(s->arena);
        func = build_variant(s, node, name, choices);
        again = shared_maps_again(s, maps, errors);
        if (!again) break;
        diag_truncate(s->sink, diagnostics);
        reconsider_consts(s);
    }
    s->maps = outer;
    return func;
}

// ---- tunables: the first combination that fits, the last name varying fastest ----
void tune_statement(Sema *s, const Node *node) {
    for (int i = 0; i < node->count; i++) {
        const Node *tunable = node->kids[i], *list = tunable->kids[0];
        const Define *define = define_of_own(s, s->func->name, tunable->text);
        int pick = s->picks && s->picked < s->pick_count ? s->picks[s->picked] : 0;
        s->picked++;
        Type type = TYPE_NONE;
        SemaValue value = define ? define_value(s, define, tunable->span, &type)
                                 : constant(s, list->kids[pick < list->count ? pick : 0], "a tunable");
        if (type != TYPE_NONE) diag(s->sink, tunable->span, T_DEFINE_VALUE, define->name, define->value, "a number");
        declare_value(s, tunable->text, value, tunable->span);
        if (value.kind != VALUE_INT || value.integer > INT64_MAX) continue;
        Attr attr = {
            .id = ATTR_TUNED, .count = 2, .args = {{.text = tunable->text}, {.integer = (int64_t)value.integer}}};
        Attr **last = &s->func->attrs;
        while (*last) last = &(*last)->next;
        *last = arena_copy(s->arena, &attr, sizeof attr);
    }
}

// Candidates per tunable of a kernel, in order of the text.
static int tunable_sizes(Sema *s, const Node *kernel, int **out) {
    VEC(int) sizes = {0};
    const Node *block = kernel->kids[3];
    for (int i = 0; i < block->count; i++)
        for (int k = 0; block->kids[i]->kind == N_TUNE && k < block->kids[i]->count; k++) {
            const Node *tunable = block->kids[i]->kids[k];
            vec_push(s->arena, &sizes, define_of_own(s, kernel->text, tunable->text) ? 1 : tunable->kids[0]->count);
        }
    *out = sizes.items;
    return sizes.count;
}

// False: there is no combination of that number.
static bool pick(int count, const int *sizes, int combination, int *picks) {
    for (int i = count - 1; i >= 0; i--) {
        picks[i] = combination % sizes[i];
        combination /= sizes[i];
    }
    return combination == 0;
}

static Func *build_fitting(Sema *s, const Node *node, const char *name, const ChoiceVec *choices) {
    int *sizes, count = tunable_sizes(s, node, &sizes), before = diag_errors(s->sink);
    int *picks = NEW_ARRAY(s->arena, int, count + 1);
    s->picks = picks;
    s->pick_count = count;
    Func *first = build(s, node, name, choices), *func = first;
    bool choosing = first && s->options->fits && diag_errors(s->sink) == before;
    bool fits = !choosing;
    if (choosing && count == 0) func = clone_func(s->arena, first);   // which `fits` may change
    for (int combination = 0, tried = 0; !fits; tried++) {
        int diags = diag_count(s->sink), asked = combination;
        if (!verify_func(s->module, func, true)) {           // the source is wrong, whatever fits
            if (count == 0) diag_truncate(s->sink, diags);   // (verified with all of the module)
            break;
        }
        combination = s->options->fits(s->options->user, s->module, func, asked, count > 0 ? sizes[count - 1] : 0);
        fits = combination == asked;
        if (!fits) diag_truncate(s->sink, diags);
        if (fits || tried == MOST_FITTED || !pick(count, sizes, combination, picks)) break;
        func = build(s, node, name, choices);
        if (diag_errors(s->sink) > before) break;
    }
    s->picks = NULL;
    return fits || diag_errors(s->sink) > before ? func : first;   // none fits: the first, and what follows says why
}

// ---- declarations ----
bool make_function(Sema *s, int item, const char *name, const ChoiceVec *choices, bool called) {
    const Node *node = s->syntax->items.items[item].node;
    Made made = {.item = item_named(s->syntax, node->text), .variant = item, .node = node, .choices = *choices};
    Making making = {s->making, node};
    int before = diag_errors(s->sink);
    made.called = called;
    s->making = &making;
    made.func = node->kind == N_KERNEL ? build_fitting(s, node, name, choices) : build(s, node, name, choices);
    s->making = making.outer;
    made.broken = diag_errors(s->sink) > before;
    if (made.func) vec_push(s->arena, &s->made, made);
    return !made.broken;
}

bool calls(const Node *node, const char *name) {
    if (!node) return false;
    if (node->kind == N_CALL && strcmp(node->text, name) == 0) return true;
    for (int i = 0; i < node->count; i++)
        if (calls(node->kids[i], name)) return true;
    return false;
}

// A kernel whose compile-time values only programs give is made only for their calls, and so is a program that is a
// variant of one.
static bool only_called(Sema *s, const Node *node) {
    bool open = false, called = false, kernel = false;
    for (int i = 0; i < node->kids[0]->count; i++) {
        const Node *cparam = node->kids[0]->kids[i];
        open |= !define_of_own(s, node->text, cparam->text) && usual_type(s, node, cparam) == TYPE_NONE;
    }
    if (!open) return false;
    for (int i = 0; i < s->syntax->items.count; i++) {
        const Node *other = s->syntax->items.items[i].node;
        if (other->kind == N_TEST && strcmp(other->text, node->text) == 0) return false;
        called |= other->kind == N_PROGRAM && calls(other, node->text);
        kernel |= other->kind == N_KERNEL && strcmp(other->text, node->text) == 0;
    }
    return called && kernel;
}

void elaborate_item(Sema *s, int item) {
    const Node *node = s->syntax->items.items[item].node;
    if (s->item_done[item] || only_called(s, node)) return;
    s->item_done[item] = true;
    const ChoiceVec *all;
    int count = combinations(s, node, &all);
    bool differ = types_differ(count, all);
    for (int i = 0; i < count; i++)
        if (!make_function(s, item, differ ? mangled(s, node->text, &all[i], true) : node->text, &all[i], false)) break;
}

Func *elaborate_scalar(Sema *s, const Node *target, const ChoiceVec *choices, const char *name, const Node *block,
                       CodeContext context) {
    Frame frame;
    Func *func = begin(s, &frame, FUNC_REFERENCE, name, target, choices, context);
    func->loc = block->span;
    statements(s, block);
    end(s, &frame);
    return func;
}

void elaborate_reference(Sema *s, const Node *node) {
    for (int i = 0; i < s->made.count; i++) {
        Made made = s->made.items[i];
        bool mine = strcmp(made.node->text, node->text) == 0 && !made.called && !made.broken;
        if (!mine || module_reference(s->module, made.func->name)) continue;
        Func *func = elaborate_scalar(s, made.node, &made.choices, made.func->name, node->kids[0], IN_REFERENCE);
        vec_push(s->arena, &s->module->references, func);
    }
}
