// Channels: declarations, blocks that are a whole production or consumption, and names of a slot's tiles.
//
// The IR has one form, which a source may write too. What is on the left becomes:
//
//     channel ring (As: bf16[64, 32], n: i32) slots 3;     shared ring: channel[3];
//                                                          shared As: bf16[3, 64, 32] @channel(ring) @stages(3);
//                                                          shared n: i32[3] @channel(ring) @stages(3);
//     produce ring { copy(A[i, 0], As); n = 7; }           let slot = acquire(ring);
//                                                          copy(A[i, 0], As[slot, :, :]); n[slot] = 7;
//                                                          commit(slot);
//     let u = receive(ring); gemm(u.As, ...);              let u = receive(ring); gemm(As[u, :, :], ...);
#include "frontend/sema.h"
#include "ir/query.h"
#include <string.h>

// ---- names ----
static ChannelTiles *tiles_of(Sema *s, const Buf *channel) {
    ChannelTiles *tiles = map_get(s->tiles, channel);
    if (tiles) return tiles;
    tiles = NEW(s->arena, ChannelTiles);
    tiles->views = map_new(s->arena);
    map_put(s->tiles, channel, tiles);
    return tiles;
}

void channel_add_tile(Sema *s, Buf *channel, Buf *tile) {
    tile->channel = channel;
    tile->stage_dims = 1;
    vec_push(s->arena, &tiles_of(s, channel)->all, tile);
}

Buf *channel_named(Sema *s, const Node *node) {
    Symbol *symbol = node->kind == N_NAME ? find_or_report(s, node) : NULL;
    if (node->kind == N_NAME && !symbol) return NULL;
    if (symbol && symbol->kind == SYMBOL_BUF && symbol->buf->type == TYPE_CHANNEL) return symbol->buf;
    bool reported = symbol && symbol->kind == SYMBOL_VALUE && is_poison(symbol->value);
    if (!reported) diag(s->sink, node->span, T_NOT_CHANNEL, symbol ? symbol->name : "this");
    return NULL;
}

void channel_holds(Sema *s, Var *var, const Expr *value) {
    if (value->type == TYPE_SLOT && value->kind == EXPR_CALL) map_put(s->held, var, value->call.args[0].region->buf);
}

// ---- tiles of a slot, as views ----
static const Node *handle_of(const Node *node) {
    return node->kind == N_DOT ? node->kids[0] : node;
}

bool is_held(Sema *s, const Node *node) {
    const Node *handle = handle_of(node);
    if (handle->kind != N_NAME || (node->kind == N_DOT && strcmp(node->text, "T") == 0)) return false;
    const Symbol *symbol = find(s, handle->text);
    return symbol && symbol->kind == SYMBOL_VAR && symbol->var->type == TYPE_SLOT;
}

// The slot's part of a tile: its first dim is the slots. A scalar has no other.
static const View *slot_view(Sema *s, const ChannelTiles *tiles, Buf *tile, Var *slot) {
    ViewSlice slices[LAYOUT_MAX_RANK] = {{.start = e_var(s->arena, slot)}};
    const View *other = map_get(tiles->views, tile), *of = other ? other : view_of_buffer(s, tile);
    for (int d = 1; d < of->rank; d++)
        slices[d] = (ViewSlice){.start = e_int(s->arena, 0), .count = of->shape[d], .step = 1};
    return view_slice(s, of, slices);
}

static Buf *tile_named(const ChannelTiles *tiles, const char *name) {
    VEC_EACH_PTR (Buf, tile, &tiles->all)
        if (strcmp(tile->name, name) == 0) return tile;
    return NULL;
}

static const char *nearest_tile(Sema *s, const ChannelTiles *tiles, const char *name) {
    StrMap *names = strmap_new(s->arena);
    VEC_EACH_PTR (Buf, tile, &tiles->all) strmap_put(names, tile->name, tile);
    return strmap_nearest(names, name);
}

// `As` of `slot.As`.
static Span member_span(const Node *dot) {
    Span span = dot->span;
    span.line = span.end_line;
    span.column = span.end_column - (int)strlen(dot->text);
    return span;
}

// NULL: the channel has no such tile.
static Buf *held_buffer(Sema *s, const Node *node) {
    Buf *channel = map_get(s->held, find(s, handle_of(node)->text)->var);
    const ChannelTiles *tiles = channel ? tiles_of(s, channel) : NULL;
    if (!tiles) return NULL;
    if (node->kind == N_DOT) return tile_named(tiles, node->text);
    return tiles->all.count == 1 ? tiles->all.items[0] : NULL;
}

const View *held_tile(Sema *s, const Node *node) {
    Var *slot = find(s, handle_of(node)->text)->var;
    Buf *channel = map_get(s->held, slot), *tile = held_buffer(s, node);
    const char *name = node->kind == N_DOT ? node->text : NULL;
    const ChannelTiles *tiles = channel ? tiles_of(s, channel) : NULL;
    if (tile) return slot_view(s, tiles, tile, slot);
    Diag *d = diag(s->sink, node->span, T_UNKNOWN_TILE, channel ? channel->name : slot->name, name ? name : slot->name);
    if (tiles && name) diag_suggest(d, member_span(node), nearest_tile(s, tiles, name));
    return NULL;
}

bool is_held_scalar(Sema *s, const Node *node) {
    const Buf *tile = node->kind == N_DOT && is_held(s, node) ? held_buffer(s, node) : NULL;
    return tile && tile->rank == 1;
}

// ---- declarations ----
static Buf *declare_channel(Sema *s, const char *name, int64_t slots, const Node *node) {
    Buf *channel = buf_new_const(s->arena, name, SCOPE_SHARED, TYPE_CHANNEL, 1, &slots, place_of(s, node->span));
    channel->mode = MODE_INOUT;
    emit(s, s_decl(s->arena, channel));
    return channel;
}

static Buf *declare_tile(Sema *s, const Node *node, const char *name, Buf *channel) {
    Expr *shape[LAYOUT_MAX_RANK] = {channel->shape[0]};
    const Node *dims = node->kids[1];
    Type type = find_type(s, node->kids[0]);
    if (dims && dims->count >= LAYOUT_MAX_RANK) {
        diag(s->sink, node->span, T_DIMS_COUNT, name, LAYOUT_MAX_RANK - 1);
        return NULL;
    }
    if (type == TYPE_NONE || (dims && !read_extents(s, node, dims, false, shape + 1))) return NULL;
    Span loc = place_of(s, node->span);
    Attr *attrs = attributes(s, node->attrs, 'd', &loc);
    bool exchanged = dims && layout_exchanges(node->kids[2], dims->count);
    int rank = dims ? dims->count + 1 : 1;
    if (exchanged) exchange_last(shape + 1, dims->count);
    const Layout *map = shared_map_of(s, node, rank, shape);
    Buf *tile = map ? shared_map_buffer(s, map, name, type, loc)
                    : buf_new(s->arena, name, SCOPE_SHARED, type, rank, shape, loc);
    tile->mode = MODE_INOUT;
    tile->attrs = attrs;
    channel_add_tile(s, channel, tile);
    const View *other = exchanged ? view_transpose(s, view_of_buffer(s, tile))
                        : map     ? view_through(s, tile, map, shape)
                                  : NULL;
    if (other) map_put(tiles_of(s, channel)->views, tile, (void *)other);
    else if (!attrs && !node->kids[2]) shared_map_declared(s, tile, node);
    take_layout(s, tile, node->kids[2]);
    emit(s, s_decl(s->arena, tile));
    return tile;
}

typedef struct Options {
    int64_t slots, readers;
    Attr *attrs;
} Options;

static Options channel_options(Sema *s, const Node *list, bool tiles) {
    Options options = {.slots = 1};
    bool given = false;
    Node attrs = {.kind = N_LIST};
    options_differ(s, list);
    for (int i = 0; i < list->count; i++) {
        const Node *option = list->kids[i];
        if (option->kind == N_ATTR) {
            ast_push(s->arena, &attrs, list->kids[i]);
            continue;
        }
        bool slots = strcmp(option->text, "slots") == 0;
        int64_t *into = slots ? &options.slots : &options.readers;
        given |= slots;
        constant_int(s, option->kids[0], slots ? "the number of slots" : "the number of readers", 1, 64, into);
    }
    if (tiles != given) diag(s->sink, list->span, T_CHANNEL_SLOTS, tiles ? "needs" : "has no");
    Span loc = {0};
    options.attrs = attributes(s, &attrs, 'd', &loc);
    return options;
}

void channel_statement(Sema *s, const Node *node) {
    const Node *tiles = node->kids[0];
    Options options = channel_options(s, node->kids[1], tiles != NULL);
    Buf *channel = declare_channel(s, node->text, options.slots, node);
    channel->attrs = options.attrs;
    if (options.readers) attr_set_int(s->arena, &channel->attrs, ATTR_READERS, options.readers);
    declare_buf(s, channel, node->span);
    if (tiles && tiles->kind == N_DECL) declare_tile(s, tiles, node->text, channel);
    for (int i = 0; tiles && tiles->kind != N_DECL && i < tiles->count; i++)
        declare_tile(s, tiles->kids[i], tiles->kids[i]->text, channel);
}

// ---- whole productions, consumptions and sections ----
static Stmt *channel_call(Sema *s, OpId op, Arg operand, Span span) {
    Stmt *stmt = s_call(s->arena, op, 1, &operand);
    stmt->loc = place_of(s, span);
    emit(s, stmt);
    return stmt;
}

static Var *begin(Sema *s, OpId op, Buf *channel, Span span) {
    Arg operand = arg_region(region_whole(s->arena, channel));
    Expr *value = e_call(s->arena, op, 1, &operand);
    Var *var = var_new(s->arena, "slot", VAR_LET, TYPE_SLOT, place_of(s, span));
    Stmt *stmt = s_let(s->arena, var, value);
    stmt->loc = var->loc;
    emit(s, stmt);
    channel_holds(s, var, value);
    return var;
}

static void end(Sema *s, OpId op, Var *slot, Span span) {
    channel_call(s, op, arg_value(e_var(s->arena, slot)), span);
}

static Span last_place(const Node *block) {
    return (Span){block->span.file, block->span.end_line, block->span.end_column > 1 ? block->span.end_column - 1 : 1,
                  block->span.end_line, block->span.end_column};
}

void channel_block(Sema *s, const Node *node) {
    Buf *channel = channel_named(s, node->kids[0]);
    const Node *block = node->kids[1];
    if (!channel) return;
    NameScope scope;
    Arg whole = arg_region(region_whole(s->arena, channel));
    bool produces = node->kind == N_PRODUCE;
    Var *slot = NULL;
    if (node->kind == N_ORDERED) channel_call(s, OP_ENTER, whole, node->span);
    else slot = begin(s, produces ? OP_ACQUIRE : OP_RECEIVE, channel, node->span);
    scope_open(s, &scope);
    const ChannelTiles *tiles = tiles_of(s, channel);
    VEC_EACH_PTR (Buf, tile, &tiles->all) {
        bool named = strcmp(tile->name, channel->name) == 0;   // as the channel, which is a macro's parameter perhaps
        if (slot)
            declare_view(s, named ? node->kids[0]->text : tile->name, slot_view(s, tiles, tile, slot), node->span);
    }
    body(s, block, s->block);
    scope_close(s);
    if (slot) end(s, produces ? OP_COMMIT : OP_RELEASE, slot, last_place(block));
    else channel_call(s, OP_LEAVE, whole, last_place(block));
}

// ---- scalars ----
bool is_send(const Node *call) {
    return strcmp(call->text, "send") == 0;
}

bool is_take(const Node *call) {
    return strcmp(call->text, "take") == 0;
}

// The channel of a scalar that the call names; NULL: there is none, reported.
static Buf *scalar_channel(Sema *s, const Node *call, int operands, Buf **tile) {
    if (call->count != operands) {
        Diag *d = diag(s->sink, call->span, T_ARGUMENTS, call->text);
        diag_note(d, "it is %s(channel%s)", call->text, operands > 1 ? ", x" : "");
        return NULL;
    }
    Buf *channel = channel_named(s, call->kids[0]);
    if (!channel) return NULL;
    const ChannelTiles *tiles = tiles_of(s, channel);
    *tile = tiles->all.count == 1 ? tiles->all.items[0] : NULL;
    if (*tile && (*tile)->rank == 1) return channel;
    diag(s->sink, call->span, T_UNKNOWN_TILE, channel->name, "x, one scalar");
    return NULL;
}

void send_statement(Sema *s, const Node *call) {
    Buf *tile, *channel = scalar_channel(s, call, 2, &tile);
    if (!channel) return;
    Expr *value = value_of_type(s, call->kids[1], tile->type);
    Var *slot = begin(s, OP_ACQUIRE, channel, call->span);
    Expr *index = e_var(s->arena, slot);
    Stmt *store = s_store(s->arena, tile, 1, &index, value);
    store->loc = place_of(s, call->span);
    emit(s, store);
    end(s, OP_COMMIT, slot, call->span);
}

SemaValue take_expression(Sema *s, const Node *call) {
    Buf *tile, *channel = scalar_channel(s, call, 1, &tile);
    if (!channel) return value_poison(call->span);
    Var *slot = begin(s, OP_RECEIVE, channel, call->span);
    Expr *index = e_var(s->arena, slot);
    Var *var = var_new(s->arena, "taken", VAR_LET, tile->type, place_of(s, call->span));
    Stmt *load = s_let(s->arena, var, e_load(s->arena, tile, 1, &index));
    load->loc = var->loc;
    emit(s, load);
    end(s, OP_RELEASE, slot, call->span);
    return value_expr(s, e_var(s->arena, var), call->span);
}
