// Declarations of buffers, and attributes.
#include "frontend/sema.h"
#include <ctype.h>
#include <string.h>

// ---- attributes ----
static int file_of_name(Sema *s, const char *name) {
    int file = 0;
    for (;; file++) {
        const char *known = diag_source_name(s->sink, file);
        if (strcmp(known, name) == 0) return file;
        if (strcmp(known, "<none>") == 0) return diag_add_source(s->sink, arena_strdup(s->arena, name), "", 0);
    }
}

static bool attribute_wrong(Sema *s, const Node *node) {
    AttrId id = attr_named(node->text);
    static const struct {
        char letter;
        const char *text;
    } kinds[] = {{'i', "an integer of 32 bits"},
                 {'s', "a string"},
                 {'S', "a string or nothing"},
                 {'n', "a name"},
                 {'I', "an integer of 32 bits or nothing"},
                 {'N', "a name or nothing"},
                 {'l', "a layout in a string"},
                 {'t', "a tensor"}};
    char *text = arena_strdup(s->arena, "");
    const char *pattern = attr_pattern(id);
    for (int i = 0; pattern[i]; i++)
        for (int k = 0; k < COUNT_OF(kinds); k++)
            if (kinds[k].letter == pattern[i])
                text = arena_printf(s->arena, "%s%s%s", text, i ? ", " : "", kinds[k].text);
    diag(s->sink, node->span, T_ATTRIBUTE, node->text, *text ? text : "nothing");
    return false;
}

static const Layout *read_layout(Sema *s, const Node *node, int element_bits) {
    const char *why = "it is not understood";
    const Layout *layout = layout_parse(s->arena, node->text, element_bits, &why);
    if (!layout) diag(s->sink, node->span, T_LAYOUT_TEXT, why);
    return layout;
}

// Loops, reductions and scans walk the digits of a distribution over threads.
static const Layout *read_distribution(Sema *s, const Node *node) {
    const Layout *layout = read_layout(s, node, 0);
    if (!layout || !layout->bits) return layout;
    diag(s->sink, node->span, T_LAYOUT_TEXT, "one over threads is written in digits, and no digits say this one");
    return NULL;
}

static bool attribute_arg(Sema *s, char letter, const Node *node, AttrArg *out) {
    if (letter == 'i' || letter == 'I') {
        SemaValue value =
            node->kind == N_STRING ? value_poison(node->span) : constant(s, node, "an attribute's number");
        bool fits = value.kind == VALUE_INT && value.integer >= INT64_MIN && value.integer <= INT64_MAX;
        out->integer = fits ? (int64_t)value.integer : 0;
        return fits;
    }
    if (letter == 't' && is_im2col(node) && node->count > 0) node = node->kids[0];   // resolve_view
    if (letter == 'l' && node->kind == N_STRING) out->layout = read_distribution(s, node);
    else out->text = node->text;
    return node->kind == (letter == 'n' || letter == 'N' || letter == 't' ? N_NAME : N_STRING);
}

static bool attribute(Sema *s, const Node *node, char where, Attr *out) {
    AttrId id = attr_named(node->text);
    if (id == ATTR_COUNT) {
        Diag *d = diag(s->sink, node->span, T_UNKNOWN_ATTRIBUTE, node->text);
        if (note_foreign(s, d, FOREIGN_ATTRIBUTE, ast_name_span(node))) return false;
        StrMap *names = strmap_new(s->arena);
        for (int i = 0; i < ATTR_COUNT; i++) strmap_put(names, attr_name((AttrId)i), names);
        const char *near = strmap_nearest(names, node->text);
        diag_suggest(d, ast_name_span(node), near ? arena_printf(s->arena, "@%s", near) : NULL);
        return false;
    }
    if (!strchr(attr_where(id), where)) {
        diag(s->sink, node->span, T_ATTRIBUTE_PLACE, node->text);
        return false;
    }
    const char *pattern = attr_pattern(id);
    *out = (Attr){.id = id, .count = node->count};
    if (!attr_takes(id, node->count)) return attribute_wrong(s, node);
    for (int i = 0; i < node->count; i++) {
        int errors = diag_errors(s->sink);
        if (!attribute_arg(s, pattern[i], node->kids[i], &out->args[i]))
            return diag_errors(s->sink) == errors && attribute_wrong(s, node);
        int64_t number = out->args[i].integer;   // (a tunable may be any; plan has limits for groups)
        bool any = id == ATTR_TUNED || id == ATTR_GROUP || id == ATTR_CLUSTER;
        if (tolower(pattern[i]) == 'i' && !any && (number < INT32_MIN || number > INT32_MAX))
            return attribute_wrong(s, node);
    }
    return true;
}

// There are several values of tunables and several groups of threads, which plan looks at.
static bool is_among(const Attr *attrs, const Attr *attr) {
    for (; attrs; attrs = attrs->next)
        if (attrs->id == attr->id && attr->id != ATTR_GROUP && attr->id != ATTR_CLUSTER &&
            (attr->id != ATTR_TUNED || strcmp(attrs->args[0].text, attr->args[0].text) == 0))
            return true;
    return false;
}

Attr *attributes(Sema *s, const Node *list, char where, Span *loc) {
    Attr *first = NULL, **last = &first;
    for (int i = 0; list && i < list->count; i++) {
        Attr attr;
        if (!attribute(s, list->kids[i], where, &attr)) continue;
        if (is_among(first, &attr)) {
            diag(s->sink, list->kids[i]->span, T_DUPLICATE_NAME, list->kids[i]->text);
            continue;
        }
        if (attr.id == ATTR_LOC) {
            int line = (int)attr.args[1].integer, column = (int)attr.args[2].integer;
            int file = line ? file_of_name(s, attr.args[0].text) : 0;
            *loc = (Span){file, line, column, line, column + 1};
            continue;
        }
        *last = arena_copy(s->arena, &attr, sizeof attr);
        last = &(*last)->next;
    }
    return first;
}

void options_differ(Sema *s, const Node *list) {
    for (int i = 0; i < list->count; i++)
        for (int k = 0; k < i && list->kids[i]->kind != N_ATTR; k++)
            if (list->kids[k]->kind != N_ATTR && strcmp(list->kids[k]->text, list->kids[i]->text) == 0)
                diag(s->sink, list->kids[i]->span, T_DUPLICATE_NAME, list->kids[i]->text);
}

// ---- buffers ----

// @offset, @align, @alias, @channel and @stages are fields of the buffer.
static void take_fields(Sema *s, Buf *buf, const Node *node) {
    const char *alias = attr_text(buf->attrs, ATTR_ALIAS);
    buf->offset = attr_int(buf->attrs, ATTR_OFFSET, -1);
    buf->align = (int)attr_int(buf->attrs, ATTR_ALIGN, 0);
    if (alias) {
        Symbol *symbol = find(s, alias);
        if (symbol && symbol->kind == SYMBOL_BUF) buf->alias_of = symbol->buf;
        else diag(s->sink, node->span, T_NOT_BUFFER, arena_printf(s->arena, "'%s'", alias));
    }
    int64_t slots = attr_int(buf->attrs, ATTR_STAGES, 0), leading = 1;
    while (slots && leading < slots && buf->stage_dims < buf->rank) {
        leading *= buf_extent(buf, buf->stage_dims);
        buf->stage_dims++;
    }
    if (slots == 1 && buf->rank && buf_extent(buf, 0) == 1) buf->stage_dims = 1;
    if (slots && leading != slots) diag(s->sink, node->span, T_STAGES, (long long)slots, buf->name);
    const char *ring = attr_text(buf->attrs, ATTR_CHANNEL);
    const Symbol *channel = ring ? find(s, ring) : NULL;
    if (channel && channel->kind == SYMBOL_BUF && channel->buf->type == TYPE_CHANNEL)
        channel_add_tile(s, channel->buf, buf);
    else if (ring) diag(s->sink, node->span, T_NOT_CHANNEL, ring);
    static const AttrId fields[] = {ATTR_ALIAS, ATTR_CHANNEL, ATTR_OFFSET, ATTR_ALIGN, ATTR_STAGES};
    for (int i = 0; i < COUNT_OF(fields); i++) attr_remove(&buf->attrs, fields[i]);
}

// Named layouts are those of the last two dims of a shared buffer: the rows of MMA operands in swizzled panels, and rows
// at a pitch.
static bool is_named(const Node *node, const char *name) {
    return node && node->kind == N_CALL && strcmp(node->text, name) == 0;
}

static const Layout *layout_refused(Sema *s, const Node *node, const char *why) {
    diag(s->sink, node->span, T_LAYOUT_NAME, node->text, why);
    return NULL;
}

static const Layout *in_panels(Sema *s, const Node *node, const Buf *buf, int64_t rows, int64_t columns) {
    int64_t span;
    const char *why = NULL;
    if (!constant_int(s, node->kids[0], "the bytes of a swizzled row", 0, INT32_MAX, &span)) return NULL;
    if (span != 0 && !tma_swizzle_valid(span))
        return layout_refused(s, node, "its rows are swizzled in 128, 64 or 32 bytes, or not (0)");
    if (span == 0) return layout_padded(s->arena, rows, columns, columns);
    const Layout *layout =
        layout_bank_swizzle(s->arena, rows, columns, type_bits(buf->type), (int)span / SWIZZLE_CHUNK_BYTES, &why);
    return layout ? layout : layout_refused(s, node, why);
}

static const Layout *at_pitch(Sema *s, const Node *node, int64_t rows, int64_t columns) {
    int64_t pitch;
    if (!constant_int(s, node->kids[0], "a pitch", 1, INT32_MAX, &pitch)) return NULL;
    bool fits = pitch >= columns && pitch * rows <= INT32_MAX;
    return fits ? layout_padded(s->arena, rows, columns, pitch)
                : layout_refused(s, node, "its pitch is at least a row, in elements");
}

// Of an mn_major layout the buffer has its last two dims exchanged already.
static const Layout *named_layout(Sema *s, const Node *node, const Buf *buf) {
    bool padded = is_named(node, "padded"), panels = is_named(node, "k_major") || is_named(node, "mn_major");
    if (!padded && !panels) return layout_refused(s, node, "named layouts are k_major, mn_major and padded");
    if (buf->scope != SCOPE_SHARED) return layout_refused(s, node, "it is one of shared buffers");
    if (buf->rank < 2) return layout_refused(s, node, "it needs two dims");
    if (node->count != 1 || node->kids[0]->kind == N_NAMED)
        return layout_refused(s, node, padded ? "it takes a pitch" : "it takes the bytes of a swizzled row");
    int64_t rows = buf_extent(buf, buf->rank - 2), columns = buf_extent(buf, buf->rank - 1);
    return padded ? at_pitch(s, node, rows, columns) : in_panels(s, node, buf, rows, columns);
}

void take_layout(Sema *s, Buf *buf, const Node *node) {
    if (!node) return;
    bool fragment = buf->scope == SCOPE_FRAGMENT;
    if (node->kind == N_CALL) buf->layout = named_layout(s, node, buf);
    else buf->layout = fragment ? read_distribution(s, node) : read_layout(s, node, type_bits(buf->type));
    if (!buf->layout) return;
    buf->given = true;
    int rank = fragment ? buf->layout->rank_out : buf->layout->rank_in;
    bool fits = fragment ? rank == buf->rank && buf->layout->rank_in == 2 : rank <= buf->rank;
    if (buf->scope == SCOPE_SHARED) buf->stage_dims = fits ? buf->rank - rank : 0;
    if (!fits) diag(s->sink, node->span, T_LAYOUT_RANK, buf->name, buf->rank, rank);
}

static bool is_extent(Sema *s, const Node *node, int64_t extent) {
    if (extent < 1) diag(s->sink, node->span, T_EXTENT_POSITIVE, (long long)extent);
    return extent >= 1;
}

// Extents: constants in kernels; anything computable in references, fills and for a program's scratch.
bool read_extents(Sema *s, const Node *node, const Node *dims, bool dynamic, Expr **shape) {
    int64_t elements = 1;
    for (int i = 0; i < dims->count; i++) {
        int64_t extent;
        if (dynamic) {
            if (!index_value(s, dims->kids[i], &shape[i])) return false;
            if (expr_const(shape[i], &extent) && !is_extent(s, dims->kids[i], extent)) return false;
            continue;
        }
        if (!constant_int(s, dims->kids[i], "an extent", INT64_MIN, INT64_MAX, &extent)) return false;
        if (!is_extent(s, dims->kids[i], extent)) return false;
        shape[i] = e_int(s->arena, extent);
        if (__builtin_mul_overflow(elements, extent, &elements) || elements > INT32_MAX) {
            diag(s->sink, node->span, T_BUFFER_SIZE, node->text);
            return false;
        }
    }
    return true;
}

// `shared t: f16[M, K] layout mn_major(128)` is the transpose of a buffer [K, M], whose rows are along m.
bool layout_exchanges(const Node *layout, int rank) {
    return is_named(layout, "mn_major") && rank >= 2;
}

void exchange_last(Expr **shape, int count) {
    Expr *last = shape[count - 1];
    shape[count - 1] = shape[count - 2];
    shape[count - 2] = last;
}

static void declaration(Sema *s, AstScope scope, const Node *node) {
    static const Scope scopes[] = {[DECL_SHARED] = SCOPE_SHARED,
                                   [DECL_FRAGMENT] = SCOPE_FRAGMENT,
                                   [DECL_LOCAL] = SCOPE_LOCAL,
                                   [DECL_SCRATCH] = SCOPE_GLOBAL};
    const Node *dims = node->kids[1];
    Type type = find_type(s, node->kids[0]);
    if (type == TYPE_NONE) type = TYPE_F32;
    if (!dims || dims->count > LAYOUT_MAX_RANK) {
        diag(s->sink, node->span, T_DIMS_COUNT, node->text, LAYOUT_MAX_RANK);
        dims = NULL;
    }
    Expr *shape[LAYOUT_MAX_RANK] = {e_int(s->arena, 1)};
    bool dynamic = scope == DECL_SCRATCH || s->context == IN_REFERENCE || s->context == IN_FILL;
    bool fine = dims && read_extents(s, node, dims, dynamic, shape);
    if (!fine) {   // reported: what uses it says nothing new
        declare_value(s, node->text, value_poison(node->span), node->span);
        return;
    }
    Span loc = place_of(s, node->span);
    Attr *attrs = attributes(s, node->attrs, 'd', &loc);
    bool exchanged = layout_exchanges(node->kids[2], dims->count);
    if (exchanged) exchange_last(shape, dims->count);
    bool shared = scope == DECL_SHARED;
    const Layout *map = shared ? shared_map_of(s, node, dims->count, shape) : NULL;
    Buf *buf = map ? shared_map_buffer(s, map, node->text, type, loc)
                   : buf_new(s->arena, node->text, scopes[scope], type, dims->count, shape, loc);
    if (shared && !map && !attrs && !node->kids[2]) shared_map_declared(s, buf, node);
    buf->is_scratch = scope == DECL_SCRATCH;
    buf->mode = MODE_INOUT;
    buf->attrs = attrs;
    take_fields(s, buf, node);
    take_layout(s, buf, node->kids[2]);
    if (exchanged) declare_view(s, node->text, view_transpose(s, view_of_buffer(s, buf)), node->span);
    else if (map) declare_view(s, node->text, view_through(s, buf, map, shape), node->span);
    else declare_buf(s, buf, node->span);
    emit(s, s_decl(s->arena, buf));
}

void declarations(Sema *s, const Node *node) {
    for (int i = 0; i < node->count; i++) declaration(s, (AstScope)node->op, node->kids[i]);
}
