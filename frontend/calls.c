// Calls of operations: which argument is which operand, and what each becomes (rows of ir/ops.def).
#include "frontend/sema.h"
#include "ir/verify.h"
#include "support/strbuf.h"
#include <string.h>

// ---- which argument is which operand ----
typedef struct Operands {
    const Node *at[OP_MAX_OPERANDS];
    const Node **rest;   // of a variadic operand, which is the last
    int rest_count;
    TileOperand tiles[2];   // the first ones, of a tile operation
    bool is_move;           // a copy or fill of a view that no region says
} Operands;

static int operand_named(const OpInfo *info, const char *name) {
    for (int i = 0; i < info->operand_count; i++)
        if (strcmp(info->operands[i].name, name) == 0) return i;
    return -1;
}

static const char *signature(Sema *s, const OpInfo *info) {
    StrBuf text;
    sb_init(&text, s->arena);
    sb_printf(&text, "%s(", info->text);
    for (int i = 0; i < info->operand_count; i++) {
        const Operand *operand = &info->operands[i];
        bool optional = operand->flags & OPERAND_OPTIONAL;
        sb_printf(&text, "%s%s%s%s%s%s", i ? ", " : "", optional ? "[" : "", operand->name,
                  operand->flags & OPERAND_NAMED ? " = ..." : "", operand->flags & OPERAND_VARIADIC ? "..." : "",
                  optional ? "]" : "");
    }
    sb_str(&text, ")");
    return sb_text(&text);
}

static bool take_named(Sema *s, const OpInfo *info, const Node *arg, Operands *out) {
    int at = operand_named(info, arg->text);
    if (at < 0) {
        Diag *d = diag(s->sink, arg->span, T_UNKNOWN_ARGUMENT, info->text, arg->text);
        if (note_foreign(s, d, FOREIGN_ARGUMENT, arg->span)) return false;
        StrMap *names = strmap_new(s->arena);
        for (int i = 0; i < info->operand_count; i++) strmap_put(names, info->operands[i].name, names);
        const char *meant = strmap_nearest(names, arg->text);
        if (meant) diag_suggest(d, arg->span, meant);
        else diag_note(d, "it is %s", signature(s, info));
        return false;
    }
    if (out->at[at]) {
        diag(s->sink, arg->span, T_DUPLICATE_NAME, arg->text);
        return false;
    }
    out->at[at] = arg->kids[0];
    return true;
}

static bool wrong_count(Sema *s, const OpInfo *info, const Node *call) {
    Diag *d = diag(s->sink, call->span, T_ARGUMENTS, info->text);
    diag_note(d, "it is %s", signature(s, info));
    return false;
}

static bool match_operands(Sema *s, const OpInfo *info, const Node *call, Operands *out) {
    *out = (Operands){.rest = NEW_ARRAY(s->arena, const Node *, call->count + 1)};
    int next = 0;
    for (int i = 0; i < call->count; i++) {
        const Node *arg = call->kids[i];
        if (arg->kind == N_NAMED) {
            if (!take_named(s, info, arg, out)) return false;
            continue;
        }
        while (next < info->operand_count && (info->operands[next].flags & OPERAND_NAMED)) next++;
        if (next >= info->operand_count) return wrong_count(s, info, call);
        if (info->operands[next].flags & OPERAND_VARIADIC) {
            out->rest[out->rest_count++] = arg;
        } else {
            if (out->at[next]) return wrong_count(s, info, call);
            out->at[next++] = arg;
        }
    }
    for (int i = 0; i < info->operand_count; i++) {
        int flags = info->operands[i].flags;
        bool given = out->at[i] || ((flags & OPERAND_VARIADIC) && out->rest_count > 0);
        if (!given && !(flags & OPERAND_OPTIONAL)) return wrong_count(s, info, call);
    }
    return true;
}

// ---- what each operand becomes ----

// The words an operand takes; NULL: any.
static const char *words_of(const OpInfo *info, const char *operand) {
    static const struct {
        const char *operand, *words;
    } table[] = {{"scope", "block cluster device system"},
                 {"what", "reads"},
                 {"precision", "ieee tf32"},
                 {"a_form", "k128 k64 k32 k0 mn128 mn64 mn32 mn0"},
                 {"b_form", "k128 k64 k32 k0 mn128 mn64 mn32 mn0"}};
    if (info->id == OP_BULK_WAIT) return "read";
    if (strcmp(operand, "order") == 0) return info->id == OP_LOAD ? "relaxed acquire early" : "relaxed release";
    for (int i = 0; i < COUNT_OF(table); i++)
        if (strcmp(table[i].operand, operand) == 0) return table[i].words;
    return NULL;
}

static bool is_word_of(const char *words, const char *word) {
    size_t length = strlen(word);
    for (const char *at = words; (at = strstr(at, word)); at += length)
        if ((at == words || at[-1] == ' ') && (at[length] == ' ' || !at[length])) return true;
    return false;
}

static Arg word(Sema *s, const OpInfo *info, const Operand *operand, const Node *node) {
    const char *words = words_of(info, operand->name);
    bool is_text = strcmp(operand->name, "text") == 0;
    if (node->kind != (is_text ? N_STRING : N_NAME) || (words && !is_word_of(words, node->text))) {
        const char *wanted = is_text ? "a text in quotes"
                             : words ? arena_printf(s->arena, "one of: %s", words)
                                     : "a word";
        diag(s->sink, node->span, T_WORD, operand->name, wanted);
        return (Arg){.name = "?"};
    }
    return (Arg){.name = node->text, .is_string = is_text};
}

static bool is_word(const Operand *operand) {
    return (operand->access == ACCESS_NAME && operand->scopes == 0) || strcmp(operand->name, "precision") == 0;
}

// Operands of the tile ops are regions; those of all others are places of elements, or whole buffers.
static bool takes_tiles(OpId op) {
    return op_is(op, OP_CLASS_TILE);
}

static bool is_bar(const Operand *operand) {
    return strcmp(operand->name, "bar") == 0;
}

static bool is_channel(const Operand *operand) {
    return strcmp(operand->name, "channel") == 0;
}

static Region *whole_channel(Sema *s, const Node *node) {
    Buf *channel = channel_named(s, node);
    return channel ? region_whole(s->arena, channel) : NULL;
}

// Ops that put their value into their first operand: the value takes its type.
static bool stores_value(OpId op) {
    return op == OP_FILL || op == OP_STORE || op_is(op, OP_CLASS_ATOMIC);
}

static Expr *scalar_operand(Sema *s, const OpInfo *info, const Operand *operand, const Node *node, Type first) {
    if (operand->flags & OPERAND_CONST) return settle(s, constant(s, node, operand->name));
    if (stores_value(info->id) && first != TYPE_NONE) return value_of_type(s, node, first);
    SemaValue value = expression(s, node);
    bool word = operand->flags & OPERAND_WORD && value.kind == VALUE_INT;
    return word ? to_type(s, value, TYPE_U32) : settle(s, value);
}

// transpose(src, dst) is a spelling of copy(src, dst.T); the IR has copies alone.
static OpId ir_op(const OpInfo *info) {
    return info->id == OP_TRANSPOSE ? OP_COPY : info->id;
}

// A copy or fill may be a loop over elements, where no region says a view.
static bool take_tile(Sema *s, const OpInfo *info, Operands *operands, const TileOperand *tile, Span span, Arg *out) {
    bool moves = ir_op(info) == OP_COPY || info->id == OP_FILL;
    out->region = tile->region;
    if (tile->region) return true;
    operands->is_move = true;
    if (moves && s->context == IN_BLOCK && !s->in_thread) return true;
    const char *why = info->id == OP_GEMM ? shared_map_ask(s, tile->view, tile->tiles) : NULL;
    if (info->id == OP_GEMM && !why && s->maps && s->maps->state == MAPS_SILENT) return false;
    Diag *d = diag(s->sink, span, T_VIEW_OPERAND, info->text, tile->view->buf->name, tile->why);
    if (why) diag_note(d, "the buffer cannot lie so that it is one: %s", why);
    return false;
}

static bool take_pair(Sema *s, const OpInfo *info, Operands *operands, Arg *args) {
    TileOperand *tiles = operands->tiles;
    if (!region_pair(s, operands->at[0], operands->at[1], info->id == OP_TRANSPOSE, &tiles[0], &tiles[1])) return false;
    for (int i = 0; i < 2; i++)
        if (!take_tile(s, info, operands, &tiles[i], operands->at[i]->span, &args[i])) return false;
    return true;
}

// What has to be made first, elements of another type or of another CTA, is read into a fragment. So is any view of what
// is in registers, or goes there: the threads of a reduction or scan read shared memory by themselves.
static bool is_made_first(const OpInfo *info, int at, const TileOperand *tile) {
    bool read = info->operands[at].access == ACCESS_READ && info->id != OP_FILL;
    if (!read || tile->region) return false;
    bool in_registers = tile->view->buf->scope == SCOPE_FRAGMENT || op_is(info->id, OP_CLASS_REDUCTION) ||
                        op_is(info->id, OP_CLASS_SCAN);
    return tile->view->is_cast || tile->view->cta || in_registers;
}

static bool take_alone(Sema *s, const OpInfo *info, Operands *operands, int at, Arg *out) {
    TileOperand tile;
    Span span = operands->at[at]->span;
    if (!region_alone(s, operands->at[at], info->text, &tile)) return false;
    if (is_made_first(info, at, &tile)) tile.region = region_whole(s->arena, move_to_fragment(s, &tile, span));
    if (at < COUNT_OF(operands->tiles)) operands->tiles[at] = tile;
    return take_tile(s, info, operands, &tile, operands->at[at]->span, out);
}

// Of the elements of the first operand.
static Type first_type(const Operands *operands, const Arg *args) {
    if (args[0].region) return args[0].region->buf->type;
    return operands->tiles[0].view ? view_type(operands->tiles[0].view) : TYPE_NONE;
}

static bool build_args(Sema *s, const OpInfo *info, Operands *operands, Arg *args) {
    bool pair = ir_op(info) == OP_COPY;
    if (pair && !take_pair(s, info, operands, args)) return false;
    for (int i = pair ? 2 : 0; i < info->operand_count; i++) {
        const Operand *operand = &info->operands[i];
        const Node *node = operands->at[i];
        if (!node) continue;
        if (is_word(operand)) args[i] = word(s, info, operand, node);
        else if (operand->access == ACCESS_VALUE)
            args[i].value = scalar_operand(s, info, operand, node, first_type(operands, args));
        else if (is_channel(operand)) args[i].region = whole_channel(s, node);
        else if (takes_tiles(info->id) && !is_bar(operand)) {
            if (!take_alone(s, info, operands, i, &args[i])) return false;
            continue;
        } else args[i].region = region_element_of(s, node, !op_is(info->id, OP_CLASS_ELEMENT));
        if (!args[i].value && !args[i].region && !args[i].name) return false;
    }
    for (int i = 0; i < operands->rest_count; i++) {
        Arg *arg = &args[info->operand_count - 1 + i];
        arg->value = settle(s, expression(s, operands->rest[i]));
    }
    return true;
}

// Before their shapes are compared: a number in the place of a tile is most often an operand in another order.
static bool are_tiles(Sema *s, const OpInfo *info, const Operands *operands) {
    for (int i = 0; i < info->operand_count; i++) {
        const Operand *operand = &info->operands[i];
        const Node *node = operands->at[i];
        bool tile = operand->access != ACCESS_VALUE && !is_word(operand) && !is_bar(operand) && !is_channel(operand);
        if (!node || !tile ||
            (node->kind != N_INT && node->kind != N_FLOAT && node->kind != N_UNARY && node->kind != N_BINARY))
            continue;
        Diag *d = diag(s->sink, node->span, T_NOT_BUFFER, arena_printf(s->arena, "operand '%s'", operand->name));
        bool computed = node->kind == N_UNARY || node->kind == N_BINARY;
        if (computed)
            diag_note(d, "a tile is computed by a loop over its elements: parallel (i in n) y[i] = 2 * x[i];");
        else diag_note(d, "it is %s", signature(s, info));
        return false;
    }
    return true;
}

// The call's operands in the table's order; NULL after a report.
static Arg *operands_of(Sema *s, const OpInfo *info, const Node *call, int *count, Operands *operands) {
    if (!match_operands(s, info, call, operands)) return NULL;
    *count = info->operand_count;
    bool variadic = *count && (info->operands[*count - 1].flags & OPERAND_VARIADIC);
    if (variadic) *count += operands->rest_count - 1;
    Arg *args = NEW_ARRAY(s->arena, Arg, *count + 1);
    if (takes_tiles(info->id) && !are_tiles(s, info, operands)) return NULL;
    s->copied++;   // of a tile op each thread evaluates the operands, for each element
    bool fine = build_args(s, info, operands, args);
    s->copied--;
    return fine ? args : NULL;
}

// ---- scalar functions ----
static Expr *float_operand(Sema *s, SemaValue v) {
    Type type = value_type(s, v);
    if (s->verbatim && v.kind == VALUE_EXPR) return v.expr;
    return to_type(s, v, type_is_float(type) ? type_compute(type) : s->context == IN_REFERENCE ? TYPE_F64 : TYPE_F32);
}

static bool numeric(Sema *s, const OpInfo *info, const Operand *operand, SemaValue v) {
    Type type = value_type(s, v);
    if ((type_is_float(type) && !(operand->flags & OPERAND_WHOLE)) || type_is_int(type)) return true;
    diag(s->sink, v.span, T_OPERAND_TYPE, info->text, value_text(s, v));
    return false;
}

static SemaValue pure_call(Sema *s, const OpInfo *info, const Node *call) {
    Operands operands;
    if (!match_operands(s, info, call, &operands)) return value_poison(call->span);
    SemaValue values[OP_MAX_OPERANDS], folded;
    Expr *out[OP_MAX_OPERANDS];
    for (int i = 0; i < info->operand_count; i++) {
        values[i] = value_after(s, i, values, operands.at[i]);
        if (is_poison(values[i]) || !numeric(s, info, &info->operands[i], values[i])) return value_poison(call->span);
    }
    if (fold_call(s, info->id, info->operand_count, values, call->span, &folded)) return folded;
    if (info->result == RESULT_PROMOTE) {
        if (!promote(s, info->operand_count, values, out, info->text, call->span)) return value_poison(call->span);
        if (info->id == OP_CEILDIV && is_zero_divisor(s, out[1])) {
            diag(s->sink, call->span, T_ZERO_DIVISOR, "ceildiv");
            return value_poison(call->span);
        }
    } else if (info->result == RESULT_FLOATING) {
        out[0] = float_operand(s, values[0]);
    } else {
        Type type = value_type(s, values[0]);   // abs, ieee: below f32 they compute in f32
        out[0] = s->verbatim ? settle(s, values[0]) : to_type(s, values[0], type_compute(type));
    }
    Arg args[OP_MAX_OPERANDS] = {0};
    for (int i = 0; i < info->operand_count; i++) args[i].value = out[i];
    if (!s->verbatim || s->constant)
        return value_expr(s, e_call(s->arena, info->id, info->operand_count, args), call->span);
    Expr *e = NEW(s->arena, Expr);   // as e_call does it, unfolded
    *e = (Expr){.kind = EXPR_CALL,
                .type = info->result == RESULT_FLOATING && !type_is_float(out[0]->type) ? TYPE_F32 : out[0]->type};
    e->call.op = info->id;
    e->call.count = info->operand_count;
    e->call.args = arena_copy(s->arena, args, sizeof *args * (size_t)info->operand_count);
    return value_expr(s, e, call->span);
}

// ---- expressions ----
static bool is_literal(const Node *node) {
    if (node->kind == N_UNARY && node->op == UNARY_NEG) node = node->kids[0];
    return node->kind == N_INT || node->kind == N_FLOAT ||
           (node->kind == N_NAME && (strcmp(node->text, "inf") == 0 || strcmp(node->text, "nan") == 0));
}

static SemaValue conversion(Sema *s, Type type, const Node *call) {
    if (call->count != 1 || call->kids[0]->kind == N_NAMED) {
        Diag *d = diag(s->sink, call->span, T_ARGUMENTS, call->text);
        diag_note(d, "it is %s(x)", call->text);
        return value_poison(call->span);
    }
    return cast(s, type, expression(s, call->kids[0]), is_literal(call->kids[0]), call->span);
}

static SemaValue bitcast(Sema *s, const Node *call) {
    if (call->count != 2 || call->kids[0]->kind != N_NAME) {
        Diag *d = diag(s->sink, call->span, T_ARGUMENTS, "bitcast");
        diag_note(d, "it is bitcast(T, x)");
        return value_poison(call->span);
    }
    Type type = find_type(s, call->kids[0]);
    SemaValue value = expression(s, call->kids[1]);
    if (type == TYPE_NONE || is_poison(value)) return value_poison(call->span);
    Expr *e = settle(s, value);
    if (type == TYPE_BOOL || e->type == TYPE_BOOL) {
        diag(s->sink, call->span, T_OPERAND_TYPE, "bitcast", type_text(TYPE_BOOL));
        return value_poison(call->span);
    }
    if (type_bits(type) != type_bits(e->type) || type_kind(type) == KIND_OPAQUE || type_kind(e->type) == KIND_OPAQUE) {
        Diag *d = diag(s->sink, call->span, T_BITCAST, type_text(e->type), type_bits(e->type), type_text(type),
                       type_bits(type));
        if (s->context == IN_REFERENCE && e->type == TYPE_F64)
            diag_note(d, "floats are f64 in a reference: convert first, as in bitcast(u32, f32(x))");
        return value_poison(call->span);
    }
    if (!s->verbatim) return value_expr(s, e_bitcast(s->arena, type, e), call->span);
    Expr *made = NEW(s->arena, Expr);
    *made = (Expr){.kind = EXPR_BITCAST, .type = type, .operand = e};
    return value_expr(s, made, call->span);
}

// bits(T): of an element, as a literal.
static SemaValue bits_of_type(Sema *s, const Node *call) {
    bool named = call->count == 1 && call->kids[0]->kind == N_NAME;
    Type type = named ? find_type(s, call->kids[0]) : TYPE_NONE;
    if (named && type == TYPE_NONE) return value_poison(call->span);
    if (!named || type_kind(type) == KIND_OPAQUE) {
        Diag *d = diag(s->sink, call->span, T_ARGUMENTS, "bits");
        diag_note(d, "it is bits(T), of a type of numbers");
        return value_poison(call->span);
    }
    return value_int(type_bits(type), call->span);
}

static SemaValue op_call(Sema *s, const OpInfo *info, const Node *call) {
    if (info->result == RESULT_NONE) {
        diag(s->sink, call->span, T_NO_VALUE, call->text);
        return value_poison(call->span);
    }
    bool scalars =
        op_is_pure(info->id) && info->id != OP_ALIGNED && info->id != OP_SMS && info->id != OP_CLUSTER_EXTENT;
    if (scalars) return pure_call(s, info, call);
    int count;
    Operands operands;
    Arg *args = operands_of(s, info, call, &count, &operands);
    if (!args) return value_poison(call->span);
    Expr *e = e_call(s->arena, info->id, count, args);
    bool bound = s->copied > 0 && !s->verbatim && s->context == IN_BLOCK && op_must_not_repeat(info->id);
    if (!bound) return value_expr(s, e, call->span);
    e->loc = place_of(s, call->span);
    Var *var = var_new(s->arena, "got", VAR_LET, e->type, e->loc);
    Stmt *stmt = s_let(s->arena, var, e);
    stmt->loc = var->loc;
    emit(s, stmt);
    return value_expr(s, e_var(s->arena, var), call->span);
}

SemaValue call_expression(Sema *s, const Node *call) {
    const Node *inlined = strmap_get(s->syntax->inlines, call->text);
    if (is_view(s, call)) {
        diag(s->sink, call->span, T_NOT_A_VALUE, "a view");
        return value_poison(call->span);
    }
    if (inlined && inlined->kind == N_FN) return inline_fn(s, inlined, call);
    if (inlined) {
        diag(s->sink, call->span, T_NO_VALUE, call->text);
        return value_poison(call->span);
    }
    if (strcmp(call->text, "bitcast") == 0) return bitcast(s, call);
    if (strcmp(call->text, "bits") == 0) return bits_of_type(s, call);
    Type type = type_by_name(s, call->text);
    if (type != TYPE_NONE) return conversion(s, type, call);
    OpId op = op_named(call->text);
    if (op != OP_COUNT) return op_call(s, op_info(op), call);
    if (is_take(call)) return take_expression(s, call);
    unknown_function(s, call);
    return value_poison(call->span);
}

// ---- statements ----

static void op_statement(Sema *s, const OpInfo *info, const Node *call, bool is_async) {
    if (op_is_pure(info->id)) {
        diag(s->sink, call->span, T_NO_EFFECT, call->text);
        return;
    }
    if (s->context == IN_BLOCK && s->in_parallel &&
        op_is(info->id, OP_CLASS_TILE)) {   // before its operands are judged
        report_in_parallel(s->sink, call->span, info);
        return;
    }
    bool scalars = s->context == IN_REFERENCE || s->context == IN_FILL;
    if (scalars && op_is(info->id, OP_CLASS_TILE)) {
        Diag *d = diag(s->sink, call->span, T_IR_PLACE, info->text,
                       arena_printf(s->arena, "in %s", context_text(s->context)));
        diag_note(d, "scalars are computed there: a loop over elements is for (i in N) y[i] = x[i];");
        return;
    }
    int count;
    Operands operands;
    Arg *args = operands_of(s, info, call, &count, &operands);
    if (!args) return;
    if (operands.is_move && !is_async) {
        bool fills = info->id == OP_FILL;
        move_tiles(s, fills ? NULL : &operands.tiles[0], args[1].value, &operands.tiles[!fills], call->span);
        return;
    }
    if (operands.is_move) {
        const TileOperand *tile = &operands.tiles[operands.tiles[0].region != NULL];
        diag(s->sink, call->span, T_VIEW_OPERAND, "async", tile->view->buf->name, tile->why);
        return;
    }
    OpId op = ir_op(info);
    if (!check_tile_op(s, op, args, call->span)) return;
    if (!is_async) separate_operands(s, op, count, args, call->span);
    Stmt *stmt = s_call(s->arena, op, count, args);
    stmt->loc = place_of(s, call->span);
    stmt->call.is_async = is_async;
    emit(s, stmt);
}

void call_statement(Sema *s, const Node *call, bool is_async) {
    const Node *inlined = strmap_get(s->syntax->inlines, call->text);
    OpId op = op_named(call->text);
    if (s->context == IN_PROGRAM && strmap_has(s->syntax->launchables, call->text)) {
        launch_statement(s, call);
    } else if (is_async && inlined) {
        diag(s->sink, call->span, T_NOT_ASYNC, call->text);
    } else if (inlined && inlined->kind == N_MACRO) {
        inline_macro(s, inlined, call);
    } else if (inlined || type_by_name(s, call->text) != TYPE_NONE || strcmp(call->text, "bitcast") == 0 ||
               strcmp(call->text, "bits") == 0) {
        diag(s->sink, call->span, T_NO_EFFECT, call->text);
    } else if (op != OP_COUNT) {
        op_statement(s, op_info(op), call, is_async);
    } else if (is_send(call) && !is_async) {
        send_statement(s, call);
    } else {
        unknown_function(s, call);
    }
}
