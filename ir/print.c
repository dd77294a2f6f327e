// IR to text. What is printed parses, and prints the same again: so the text says everything that the IR says.
//
// - Names. A Var or Buf prints as its name unless another one that is visible there has it already: then `i_1`, `i_2`.
//   Names are given when a declaration is printed, and taken back at the end of its block.
// - Constants. A literal has no type until it is used, so a constant prints bare only where its use gives it back its
//   type (i64 or f32 where nothing asks, the other operand's, the type of what is stored to); elsewhere as `u32(3)`.
// - Conversions. All are explicit in the IR, so all are printed, and a constant that is converted says its own type:
//   `f32(i64(3))` converts, `f32(3.0)` is a constant.
#include "ir/print_impl.h"
#include "ir/query.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_WIDTH = 110 };

// ---- attributes ----
static void put_attr(Printer *p, const Attr *attr) {
    sb_printf(p->out, "@%s", attr_name(attr->id));
    const char *pattern = attr_pattern(attr->id);
    for (int i = 0; i < attr->count; i++) {
        sb_str(p->out, i ? ", " : "(");
        if (pattern[i] == 'i' || pattern[i] == 'I') sb_printf(p->out, "%lld", (long long)attr->args[i].integer);
        else if (pattern[i] == 'l') put_string(p->out, layout_text(p->arena, attr->args[i].layout));
        else if (pattern[i] == 't' && attr->args[i].view) put_buffer(p, attr->args[i].view);
        else if (pattern[i] == 's' || pattern[i] == 'S')
            put_string(p->out, attr->args[i].text ? attr->args[i].text : "");
        else sb_str(p->out, attr->args[i].text ? attr->args[i].text : "none");
    }
    if (attr->count) sb_char(p->out, ')');
}

static bool same_place(Span a, Span b) {
    return a.line == b.line && (a.line == 0 || (a.file == b.file && a.column == b.column));
}

// @loc only where the place differs from the one around: a place holds for all that is inside.
static bool says_place(const Printer *p, Span loc) {
    return p->options.places && p->module && loc.line > 0 && !same_place(loc, p->place);
}

static void put_loc(Printer *p, Span loc) {
    sb_str(p->out, "@loc(");
    put_string(p->out, diag_source_name(p->module->sink, loc.file));
    sb_printf(p->out, ", %d, %d)", loc.line, loc.column);
}

static void put_attrs_before(Printer *p, const Attr *attrs, Span loc) {
    if (says_place(p, loc)) {
        put_loc(p, loc);
        sb_char(p->out, ' ');
    }
    for (; attrs; attrs = attrs->next) {
        put_attr(p, attrs);
        sb_char(p->out, ' ');
    }
}

static void put_attrs_after(Printer *p, const Attr *attrs) {
    for (; attrs; attrs = attrs->next) {
        sb_char(p->out, ' ');
        put_attr(p, attrs);
    }
}

// ---- statements ----
static void put_stmt(Printer *p, const Stmt *stmt);

static void put_indent(Printer *p) {
    for (int i = 0; i < p->indent; i++) sb_str(p->out, "    ");
}

static void put_dims(Printer *p, int rank, Expr *const *extents) {
    if (rank > 0) put_indices(p, rank, extents);
}

// Statements that may follow a loop's or condition's head on the same line.
static bool is_simple(const Stmt *stmt) {
    return !stmt->attrs && (stmt->kind == STMT_ASSIGN || stmt->kind == STMT_STORE || stmt->kind == STMT_CALL ||
                            stmt->kind == STMT_BREAK);
}

static void put_lines(Printer *p, const Block *block) {
    for (int i = 0; i < block->count; i++) {
        put_indent(p);
        put_stmt(p, block->items[i]);
        sb_char(p->out, '\n');
    }
}

static void put_block(Printer *p, const Block *block) {
    if (block->count == 0) {
        sb_str(p->out, "{ }");
        return;
    }
    int mark = p->order.count;
    sb_str(p->out, "{\n");
    p->indent++;
    put_lines(p, block);
    p->indent--;
    put_indent(p);
    sb_char(p->out, '}');
    forget_texts(p, mark);
}

static size_t line_length(const Printer *p) {
    size_t at = p->out->length;
    while (at > 0 && p->out->text[at - 1] != '\n') at--;
    return p->out->length - at;
}

// One simple statement stays on the line of its loop when it fits there.
static void put_body(Printer *p, const Block *block) {
    bool inline_ = block->count == 1 && is_simple(block->items[0]) && !says_place(p, block->items[0]->loc);
    if (!inline_) {
        put_block(p, block);
        return;
    }
    size_t start = p->out->length;
    put_stmt(p, block->items[0]);
    if (line_length(p) <= LINE_WIDTH) return;
    p->out->length = start;
    p->out->text[start] = 0;
    put_block(p, block);
}

static void put_iter(Printer *p, const Iter *iter) {
    // The bounds are outside the iterator's scope: they are printed before it gets its name.
    StrBuf *out = p->out, bounds;
    sb_init(&bounds, p->arena);
    p->out = &bounds;
    if (!expr_is_int(iter->begin, 0)) {
        put_expr(p, iter->begin, 0, exactly(TYPE_I64));
        sb_str(&bounds, " .. ");
    }
    put_expr(p, iter->end, 0, exactly(TYPE_I64));
    if (!expr_is_int(iter->step, 1)) {
        sb_str(&bounds, " step ");
        put_expr(p, iter->step, 0, exactly(TYPE_I64));
    }
    p->out = out;
    sb_printf(out, "%s in %s", declare_text(p, iter->var, iter->var->name), sb_text(&bounds));
}

static void put_iters(Printer *p, int count, const Iter *iters) {
    for (int i = 0; i < count; i++) {
        if (i) sb_str(p->out, ", ");
        put_iter(p, &iters[i]);
    }
}

static int64_t slots_of(const Buf *buf) {
    int64_t slots = 1;
    for (int i = 0; i < buf->stage_dims && i < buf->rank; i++) slots *= buf_extent(buf, i);
    return slots;
}

// Printed layouts belong to logical shapes: a lowered buffer has its physical shape instead.
static void put_decl(Printer *p, const Stmt *stmt) {
    const Buf *buf = stmt->decl;
    const char *scope = buf->is_scratch                ? "scratch"
                        : buf->scope == SCOPE_SHARED   ? "shared"
                        : buf->scope == SCOPE_FRAGMENT ? "fragment"
                                                       : "local";
    bool logical = buf->layout && !buf->lowered;
    StrBuf dims, *out = p->out;   // before the name is visible
    sb_init(&dims, p->arena);
    p->out = &dims;
    put_dims(p, buf->rank, buf->shape);
    p->out = out;
    sb_printf(out, "%s %s: %s%s", scope, declare_text(p, buf, buf->name), type_text(buf->type), sb_text(&dims));
    if (logical) sb_printf(out, " layout \"%s\"", layout_text(p->arena, buf->layout));
    if (buf->stage_dims > 0 && !attr_get(buf->attrs, ATTR_STAGES) && !(logical && buf->scope == SCOPE_SHARED))
        sb_printf(out, " @stages(%lld)", (long long)slots_of(buf));
    if (buf->alias_of) sb_printf(out, " @alias(%s)", buf_text(p, buf->alias_of));
    if (buf->channel) sb_printf(out, " @channel(%s)", buf_text(p, buf->channel));
    if (buf->offset >= 0) sb_printf(out, " @offset(%lld)", (long long)buf->offset);
    if (buf->align > 0) sb_printf(out, " @align(%d)", buf->align);
    put_attrs_after(p, buf->attrs);
    sb_char(out, ';');
    if (!p->options.comments || buf->scope != SCOPE_SHARED) return;
    if (buf_space(buf) > 0) sb_printf(out, "   // %lld bytes", (long long)buf_space(buf));
}

static void put_let(Printer *p, const Stmt *stmt) {
    const Var *var = stmt->let.var;
    StrBuf value, *out = p->out;
    sb_init(&value, p->arena);
    p->out = &value;
    if (stmt->let.value) put_expr(p, stmt->let.value, 0, stmt->kind == STMT_LET ? anywhere : exactly(var->type));
    p->out = out;
    const char *name = declare_text(p, var, var->name);
    if (stmt->kind == STMT_LET) sb_printf(out, "let %s", name);
    else sb_printf(out, "var %s: %s", name, type_text(var->type));
    if (stmt->let.value) sb_printf(out, " = %s", sb_text(&value));
    sb_char(out, ';');
}

static void put_loop(Printer *p, const Stmt *stmt) {
    static const char *const kinds[] = {[LOOP_SERIAL] = "for",
                                        [LOOP_UNROLL] = "unroll",
                                        [LOOP_VECTORIZED] = "vectorized",
                                        [LOOP_PARALLEL] = "parallel",
                                        [LOOP_PIPELINED] = "pipelined"};
    int mark = p->order.count;
    sb_printf(p->out, "%s (", kinds[stmt->loop.kind]);
    put_iters(p, stmt->loop.count, stmt->loop.iters);
    if (stmt->loop.stages) {
        sb_str(p->out, ", stages = ");
        put_expr(p, stmt->loop.stages, 0, exactly(TYPE_I64));
    }
    sb_str(p->out, ") ");
    put_body(p, &stmt->loop.body);
    forget_texts(p, mark);
}

static void put_if(Printer *p, const Stmt *stmt) {
    sb_str(p->out, "if (");
    put_expr(p, stmt->if_.condition, 0, anywhere);
    sb_str(p->out, ") ");
    const Block *otherwise = &stmt->if_.otherwise;
    if (otherwise->count == 0) {
        put_body(p, &stmt->if_.then);
        return;
    }
    put_block(p, &stmt->if_.then);
    sb_str(p->out, " else ");
    bool chain = otherwise->count == 1 && otherwise->items[0]->kind == STMT_IF && !otherwise->items[0]->attrs &&
                 !says_place(p, otherwise->items[0]->loc);
    if (chain) put_stmt(p, otherwise->items[0]);
    else put_block(p, otherwise);
}

static void put_grid(Printer *p, const Stmt *stmt) {
    int mark = p->order.count;
    sb_str(p->out, "grid (");
    put_iters(p, stmt->grid.count, stmt->grid.iters);
    sb_str(p->out, ") threads ");
    put_expr(p, stmt->grid.threads, 0, exactly(TYPE_I64));
    const int *c = stmt->grid.cluster;
    if (c[0] > 1 || c[1] > 1 || c[2] > 1) {
        sb_printf(p->out, " cluster (%d, %d", c[0], c[1] > 0 ? c[1] : 1);
        if (c[2] > 1) sb_printf(p->out, ", %d", c[2]);
        sb_char(p->out, ')');
    }
    sb_char(p->out, ' ');
    put_block(p, &stmt->grid.body);
    forget_texts(p, mark);
}

static void put_thread(Printer *p, const Stmt *stmt) {
    int mark = p->order.count;
    bool outer = p->in_thread;
    sb_str(p->out, "thread (");
    put_iters(p, stmt->thread.count, stmt->thread.iters);
    sb_str(p->out, ") ");
    p->in_thread = true;
    put_block(p, &stmt->thread.body);
    p->in_thread = outer;
    forget_texts(p, mark);
}

static void put_role(Printer *p, const Stmt *stmt) {
    int mark = p->order.count;
    sb_printf(p->out, "role %s", stmt->role.name);
    if (stmt->role.count) sb_char(p->out, '[');
    put_iters(p, stmt->role.count, stmt->role.iters);
    if (stmt->role.count) sb_char(p->out, ']');
    sb_printf(p->out, " threads %lld ", (long long)stmt->role.threads);
    if (stmt->role.regs) sb_printf(p->out, "regs %lld ", (long long)stmt->role.regs);
    put_block(p, &stmt->role.body);
    forget_texts(p, mark);
}

static void put_launch(Printer *p, const Stmt *stmt) {
    sb_printf(p->out, "%s(", stmt->launch.callee);
    for (int i = 0; i < stmt->launch.count; i++) {
        const Arg *arg = &stmt->launch.args[i];
        const Func *func = stmt->launch.func;
        const Param *param = func ? func_argument(func, i) : NULL;
        const Var *var = param ? param->var : NULL;
        if (i) sb_str(p->out, ", ");
        if (arg->region && arg->region->buf->moved) sb_str(p->out, buf_text(p, arg->region->buf));
        else if (arg->region) put_region(p, arg->region);
        else if (arg->value) put_expr(p, arg->value, 0, var ? exactly(var->type) : anywhere);
    }
    sb_str(p->out, ");");
}

static void put_bare(Printer *p, const Stmt *stmt) {
    switch (stmt->kind) {
    case STMT_LET:
    case STMT_VAR: put_let(p, stmt); break;
    case STMT_ASSIGN:
        sb_printf(p->out, "%s = ", var_text(p, stmt->let.var));
        put_expr(p, stmt->let.value, 0, exactly(stmt->let.var->type));
        sb_char(p->out, ';');
        break;
    case STMT_STORE:
        put_buffer(p, stmt->store.buf);
        put_indices(p, stmt->store.count, stmt->store.indices);
        sb_str(p->out, " = ");
        put_expr(p, stmt->store.value, 0, exactly(stmt->store.buf->type));
        sb_char(p->out, ';');
        break;
    case STMT_DECL: put_decl(p, stmt); break;
    case STMT_FOR: put_loop(p, stmt); break;
    case STMT_WHILE:
        sb_str(p->out, "while (");
        put_expr(p, stmt->while_.condition, 0, anywhere);
        sb_str(p->out, ") ");
        put_body(p, &stmt->while_.body);
        break;
    case STMT_IF: put_if(p, stmt); break;
    case STMT_BREAK: sb_str(p->out, "break;"); break;
    case STMT_BLOCK: put_block(p, &stmt->block); break;
    case STMT_GRID: put_grid(p, stmt); break;
    case STMT_ROLE: put_role(p, stmt); break;
    case STMT_THREAD: put_thread(p, stmt); break;
    case STMT_CALL:
        if (stmt->call.is_async) sb_str(p->out, "async ");
        put_args(p, stmt->call.op, stmt->call.count, stmt->call.args);
        sb_char(p->out, ';');
        break;
    case STMT_LAUNCH: put_launch(p, stmt); break;
    case STMT_ASSUME:
        sb_str(p->out, "assume(");
        put_expr(p, stmt->assume, 0, anywhere);
        sb_str(p->out, ");");
        break;
    }
}

static void put_stmt(Printer *p, const Stmt *stmt) {
    Span outer = p->place;
    put_attrs_before(p, stmt->attrs, stmt->loc);
    if (stmt->loc.line > 0) p->place = stmt->loc;
    int64_t conflicts = attr_int(stmt->attrs, ATTR_CONFLICTS, -1);
    put_bare(p, stmt);
    if (p->options.comments && conflicts >= 0) sb_printf(p->out, "   // bank conflicts: %lld", (long long)conflicts);
    p->place = outer;
}

// ---- functions ----
static void put_shape(Printer *p, const Buf *buf) {
    StrBuf *out = p->out, dims;
    sb_init(&dims, p->arena);
    p->out = &dims;
    put_dims(p, buf->rank, argument_dims(p->arena, buf, buf->shape));
    p->out = out;
    sb_printf(out, buf->leading ? "[..%s" : "[%s", sb_text(&dims) + 1);
}

static void put_param(Printer *p, const Param *param) {
    static const char *const modes[] = {[MODE_IN] = "", [MODE_OUT] = "out ", [MODE_INOUT] = "inout "};
    const Buf *buf = param->buf;
    if (!buf) {
        sb_printf(p->out, "%s: %s", var_text(p, param->var), type_text(param->var->type));
    } else {
        sb_printf(p->out, "%s: %s%s", buf_text(p, buf), modes[buf->mode], type_text(buf->type));
        put_shape(p, buf);
        if (buf->strides) {
            sb_str(p->out, " strides ");
            put_indices(p, buf->rank, argument_dims(p->arena, buf, buf->strides));
        }
    }
    if (buf && buf->alias_of) sb_printf(p->out, " @alias(%s)", buf_text(p, buf->alias_of));
    put_attrs_after(p, param->attrs);
}

static void declare_params(Printer *p, const Func *func) {
    for (int i = 0; i < func->dims.count; i++) declare_text(p, func->dims.items[i], func->dims.items[i]->name);
    for (int i = 0; i < func->params.count; i++) {
        const Param *param = &func->params.items[i];
        if (param->buf) declare_text(p, param->buf, param->buf->name);
        else declare_text(p, param->var, param->var->name);
    }
}

// On one line where that fits; else filled into lines.
static void put_params(Printer *p, const Func *func) {
    sb_char(p->out, '(');
    size_t head = line_length(p), start = head;
    for (int i = 0; i < func->params.count; i++) {
        StrBuf *out = p->out, text;
        sb_init(&text, p->arena);
        p->out = &text;
        put_param(p, &func->params.items[i]);
        p->out = out;
        bool fits = line_length(p) + text.length + 2 <= LINE_WIDTH || line_length(p) == start;
        if (i) sb_str(out, fits ? ", " : ",\n");
        for (size_t k = 0; i && !fits && k < head; k++) sb_char(out, ' ');
        sb_str(out, sb_text(&text));
    }
    sb_char(p->out, ')');
}

// A function's attributes have a line of their own.
static void put_func_attrs(Printer *p, const Func *func) {
    size_t start = p->out->length;
    put_attrs_before(p, func->attrs, func->loc);
    if (p->out->length > start) p->out->text[p->out->length - 1] = '\n';
}

// A condition, broken before a term of its top-level && where a line would get too long; `level` is that of what it
// stands in.
static void put_terms(Printer *p, const Expr *e, int level, size_t indent) {
    bool chain = e->kind == EXPR_BINARY && e->binary.op == BIN_LOGICAL_AND;
    if (chain) put_terms(p, e->binary.a, LEVEL_AND, indent);
    const Expr *term = chain ? e->binary.b : e;
    StrBuf *out = p->out, text;
    sb_init(&text, p->arena);
    p->out = &text;
    put_expr(p, term, chain ? LEVEL_AND + 1 : level, anywhere);
    p->out = out;
    bool fits = line_length(p) + text.length + 8 <= LINE_WIDTH;
    if (chain) sb_str(out, fits ? " && " : " &&\n");
    for (size_t i = 0; chain && !fits && i < indent; i++) sb_char(out, ' ');
    sb_str(out, sb_text(&text));
}

static void put_when(Printer *p, const Expr *when) {
    StrBuf whole;
    sb_init(&whole, p->arena);
    StrBuf *out = p->out;
    p->out = &whole;
    put_expr(p, when, 0, anywhere);
    p->out = out;
    bool fits = line_length(p) + whole.length + 10 <= LINE_WIDTH;
    sb_str(out, fits ? " when (" : "\n    when (");
    put_terms(p, when, 0, strlen("    when ("));
    sb_char(out, ')');
}

static void put_cost(Printer *p, const FuncCost *cost) {
    LaunchCost terms = cost->terms;
    sb_str(p->out, "\n    cost (");
    for (int i = 0; i < COST_EXTENTS; i++) {
        if (i) sb_str(p->out, ", ");
        put_expr(p, cost->extents[i], 0, exactly(TYPE_I64));
    }
    for (int i = 0; i < COST_TERM_COUNT; i++)
        if (*cost_term(&terms, i))
            sb_printf(p->out, ", %s = %lld", cost_term_name(i), (long long)*cost_term(&terms, i));
    sb_char(p->out, ')');
}

static void put_func(Printer *p, const Func *func) {
    static const char *const kinds[] = {
        [FUNC_KERNEL] = "kernel", [FUNC_PROGRAM] = "program", [FUNC_REFERENCE] = "reference"};
    int mark = p->order.count;
    declare_params(p, func);
    Span outer = p->place;
    if (func->kind != FUNC_REFERENCE) put_func_attrs(p, func);
    sb_printf(p->out, "%s %s", kinds[func->kind], func->name);
    if (func->kind != FUNC_REFERENCE) put_params(p, func);
    if (func->when) put_when(p, func->when);
    if (func->cost) put_cost(p, func->cost);
    sb_char(p->out, ' ');
    if (func->kind != FUNC_REFERENCE) p->place = func->loc;
    put_block(p, &func->body);
    sb_char(p->out, '\n');
    p->place = outer;
    forget_texts(p, mark);
}

static void put_test(Printer *p, const Test *test) {
    sb_printf(p->out, "test %s (", test->name);
    for (int i = 0; i < test->bindings.count; i++) {
        const Binding *binding = &test->bindings.items[i];
        sb_printf(p->out, "%s%s = ", i ? ", " : "", binding->name);
        put_expr(p, binding->value, 0, exactly(binding->value->type));
    }
    sb_char(p->out, ')');
    if (test->fill) {
        int mark = p->order.count;
        declare_params(p, test->fill);
        sb_char(p->out, ' ');
        put_block(p, &test->fill->body);
        forget_texts(p, mark);
    }
    sb_str(p->out, " tolerance ");
    put_real(p->out, TYPE_F64, test->tolerance);
    sb_str(p->out, ";\n");
}

// ---- entry points ----
static Printer printer(const Module *module, PrintOptions options, StrBuf *out) {
    Printer p = {.arena = out->arena, .out = out, .module = module, .options = options};
    p.names = map_new(out->arena);
    p.taken = strmap_new(out->arena);
    return p;
}

void print_module(const Module *module, PrintOptions options, StrBuf *out) {
    Printer p = printer(module, options, out);
    for (int i = 0; i < module->funcs.count; i++) {
        if (i) sb_char(out, '\n');
        put_func(&p, module->funcs.items[i]);
    }
    for (int i = 0; options.tests && i < module->references.count; i++) {
        sb_char(out, '\n');
        put_func(&p, module->references.items[i]);
    }
    if (options.tests && module->tests.count) sb_char(out, '\n');
    for (int i = 0; options.tests && i < module->tests.count; i++) put_test(&p, module->tests.items[i]);
}

void print_func(const Module *module, const Func *func, PrintOptions options, StrBuf *out) {
    Printer p = printer(module, options, out);
    put_func(&p, func);
}

void print_stmt(const Stmt *stmt, int indent, StrBuf *out) {
    Printer p = printer(NULL, (PrintOptions){0}, out);
    p.indent = indent;
    put_indent(&p);
    put_stmt(&p, stmt);
    sb_char(out, '\n');
}

void print_expr(const Expr *expr, StrBuf *out) {
    Printer p = printer(NULL, (PrintOptions){0}, out);
    put_expr(&p, expr, 0, anywhere);
}

char *expr_text(Arena *arena, const Expr *expr) {
    StrBuf out;
    sb_init(&out, arena);
    print_expr(expr, &out);
    return out.text;
}

char *region_text(Arena *arena, const Region *region) {
    StrBuf out;
    sb_init(&out, arena);
    Printer p = printer(NULL, (PrintOptions){0}, &out);
    put_region(&p, region);
    return out.text;
}
