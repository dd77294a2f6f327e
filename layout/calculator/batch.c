#include "layout/calculator/batch.h"
#include "layout/calculator/batch_json.h"
#include "layout/calculator/swizzled.h"
#include "support/fail.h"
#include "support/vec.h"
#include <stdlib.h>
#include <string.h>

enum { MOST_FIELDS = 8, LARGEST_LISTING = 1 << 20 };

// One question: its fields (missing ones are "") and where the answer goes.
typedef struct Question {
    LayoutContext *cx;
    const char *field[MOST_FIELDS];
    StrBuf *out;
} Question;

// ---- operations on layouts, by the kind of their second argument ----

typedef enum { NONE, LAYOUT, TILER, PROFILE, TARGET } Second;

typedef struct Operation {
    const char *name;
    Second second;
    Cute (*unary)(LayoutContext *, Cute);
    Cute (*with_layout)(LayoutContext *, Cute, Cute);
    Cute (*with_tiler)(LayoutContext *, Cute, Tiler);
    Cute (*with_tuple)(LayoutContext *, Cute, Tuple);
} Operation;

static const Operation operations[] = {
    {"coalesce", NONE, cute_coalesce, NULL, NULL, NULL},
    {"filter", NONE, cute_filter, NULL, NULL, NULL},
    {"flatten", NONE, cute_flatten, NULL, NULL, NULL},
    {"right_inverse", NONE, cute_right_inverse, NULL, NULL, NULL},
    {"left_inverse", NONE, cute_left_inverse, NULL, NULL, NULL},
    {"blocked_product", LAYOUT, NULL, cute_blocked_product, NULL, NULL},
    {"raked_product", LAYOUT, NULL, cute_raked_product, NULL, NULL},
    {"composition", TILER, NULL, NULL, cute_compose_tiler, NULL},
    {"logical_divide", TILER, NULL, NULL, cute_logical_divide, NULL},
    {"zipped_divide", TILER, NULL, NULL, cute_zipped_divide, NULL},
    {"tiled_divide", TILER, NULL, NULL, cute_tiled_divide, NULL},
    {"flat_divide", TILER, NULL, NULL, cute_flat_divide, NULL},
    {"logical_product", TILER, NULL, NULL, cute_logical_product, NULL},
    {"zipped_product", TILER, NULL, NULL, cute_zipped_product, NULL},
    {"tiled_product", TILER, NULL, NULL, cute_tiled_product, NULL},
    {"flat_product", TILER, NULL, NULL, cute_flat_product, NULL},
    {"coalesce_by", PROFILE, NULL, NULL, NULL, cute_coalesce_by},
    {"filter_by", PROFILE, NULL, NULL, NULL, cute_filter_by},
    {"complement", TARGET, NULL, NULL, NULL, cute_complement},
};

static void answer_operation(Question *q, const Operation *op) {
    LayoutContext *cx = q->cx;
    Cute a = cute_parse(cx, q->field[1]), result = a;
    if (op->second == NONE && q->field[2][0]) layout_refuse(cx, "%s takes one argument", op->name);
    if (cx->failed) return;
    if (op->second == NONE) {
        result = op->unary(cx, a);
    } else if (op->second == LAYOUT) {
        Cute b = cute_parse(cx, q->field[2]);
        if (!cx->failed) result = op->with_layout(cx, a, b);
    } else if (op->second == TILER) {
        Tiler tiler = tiler_parse(cx, q->field[2]);
        if (!cx->failed) result = op->with_tiler(cx, a, tiler);
    } else {
        bool cosize = op->second == TARGET && !q->field[2][0];   // the default cotarget
        Tuple t = cosize ? tuple_int(cute_cosize(cx, a)) : tuple_parse(cx, q->field[2]);
        if (!cx->failed) result = op->with_tuple(cx, a, t);
    }
    if (!cx->failed) cute_print(q->out, result);
}

// ---- operations with other results ----

static void answer_size(Question *q) {
    Cute a = cute_parse(q->cx, q->field[1]);
    int64_t size = q->cx->failed ? 0 : cute_size(q->cx, a);
    tuple_print_integer(q->out, size);
}

static void answer_cosize(Question *q) {
    Cute a = cute_parse(q->cx, q->field[1]);
    int64_t size = q->cx->failed ? 0 : cute_cosize(q->cx, a);
    tuple_print_integer(q->out, size);
}

static void answer_crd2idx(Question *q) {
    Cute a = cute_parse(q->cx, q->field[1]);
    Tuple coord = tuple_parse(q->cx, q->field[2]);
    int64_t index = q->cx->failed ? 0 : cute_crd2idx(q->cx, a, coord);
    tuple_print_integer(q->out, index);
}

static void answer_idx2crd(Question *q) {
    Tuple shape = tuple_parse(q->cx, q->field[1]), index = tuple_parse(q->cx, q->field[2]);
    if (!q->cx->failed) tuple_print(q->out, cute_idx2crd(q->cx, shape, index));
}

static void answer_slice(Question *q) {
    Cute a = cute_parse(q->cx, q->field[1]);
    Tuple coord = tuple_parse(q->cx, q->field[2]);
    if (q->cx->failed) return;
    int64_t offset;
    Cute slice = cute_slice(q->cx, a, coord, &offset);
    if (offset) sb_printf(q->out, "%lld + ", (long long)offset);
    cute_print(q->out, slice);
}

static void list_offsets(Question *q, Swizzle s, Cute a) {
    int64_t size = cute_size(q->cx, a);
    if (size > LARGEST_LISTING) layout_refuse(q->cx, "more than %d values", LARGEST_LISTING);
    for (int64_t i = 0; i < size && !q->cx->failed; i++) {
        if (i) sb_char(q->out, ',');
        tuple_print_integer(q->out, swizzle_apply(s, cute_at(a, i)));
    }
}

static void answer_eval(Question *q) {
    Cute a = cute_parse(q->cx, q->field[1]);
    if (!q->cx->failed) list_offsets(q, (Swizzle){0, 0, 0}, a);
}

static Swizzle parse_swizzle(LayoutContext *cx, const char *text) {
    Scan scan = scan_text(cx, text);
    Swizzle s = scan_swizzle(&scan);
    scan_end(&scan);
    return s;
}

static void answer_swizzle_eval(Question *q) {
    Swizzle s = parse_swizzle(q->cx, q->field[1]);
    Cute a = cute_parse(q->cx, q->field[2]);
    if (!q->cx->failed) list_offsets(q, s, a);
}

static void answer_swizzle(Question *q) {
    Swizzle s = parse_swizzle(q->cx, q->field[1]);
    Scan scan = scan_text(q->cx, q->field[2]);
    bool first = true;
    do {
        int64_t offset = scan_integer(&scan);
        if (q->cx->failed) return;
        if (!first) sb_char(q->out, ',');
        tuple_print_integer(q->out, swizzle_apply(s, offset));
        first = false;
    } while (scan_accept(&scan, ','));
    scan_end(&scan);
}

static void answer_bank(Question *q) {
    int64_t n[5];
    for (int i = 0; i < 5; i++) {
        Scan scan = scan_text(q->cx, q->field[i + 1]);
        n[i] = scan_integer(&scan);
        scan_end(&scan);
    }
    if (n[2] > 128) layout_refuse(q->cx, "the element's width is a power of two up to 128 bits");
    if (q->cx->failed) return;
    BankTile tile = {n[0], n[1], (int)n[2], q->field[0][0] == 'f' ? 8 : q->field[0][0] == 'h' ? 4 : 2};
    if (!bank_check(q->cx, tile)) return;
    if (n[3] >= tile.rows || n[4] >= tile.columns) {
        layout_refuse(q->cx, "the element is outside the tile");
        return;
    }
    int64_t index[3], shape[3];
    bank_index(tile, n[3], n[4], index);
    bank_shape(tile, shape);
    sb_printf(q->out, "%lld,%lld,%lld\t%lld,%lld,%lld\t%lld", (long long)index[0], (long long)index[1],
              (long long)index[2], (long long)shape[0], (long long)shape[1], (long long)shape[2],
              (long long)bank_element(tile, n[3], n[4]));
}

static const struct {
    const char *name;
    void (*answer)(Question *);
} others[] = {
    {"size", answer_size},       {"cosize", answer_cosize},
    {"crd2idx", answer_crd2idx}, {"idx2crd", answer_idx2crd},
    {"slice", answer_slice},     {"eval", answer_eval},
    {"swizzle", answer_swizzle}, {"swizzle_eval", answer_swizzle_eval},
    {"full", answer_bank},       {"half", answer_bank},
    {"quarter", answer_bank},
};

static void answer_fields(Question *q) {
    for (int i = 0; i < COUNT_OF(others); i++)
        if (!strcmp(q->field[0], others[i].name)) {
            others[i].answer(q);
            return;
        }
    for (int i = 0; i < COUNT_OF(operations); i++)
        if (!strcmp(q->field[0], operations[i].name)) {
            answer_operation(q, &operations[i]);
            return;
        }
    layout_refuse(q->cx, "unknown operation '%.40s'", q->field[0]);
}

// ---- lines ----

static char *answer_tabs(Arena *arena, char *line) {
    LayoutContext cx = layout_context(arena);
    StrBuf out;
    sb_init(&out, arena);
    Question q = {.cx = &cx, .out = &out};
    for (int i = 0; i < MOST_FIELDS; i++) q.field[i] = "";
    char *at = line;
    for (int i = 0; i < MOST_FIELDS && at; i++) {
        q.field[i] = at;
        at = strchr(at, '\t');
        if (at) *at++ = 0;
    }
    answer_fields(&q);
    return cx.failed ? arena_printf(arena, "error: %s", cx.reason) : arena_strdup(arena, sb_text(&out));
}

char *layout_batch_line(Arena *arena, const char *line, size_t length) {
    while (length && (line[length - 1] == '\n' || line[length - 1] == '\r')) length--;
    size_t blank = 0;
    while (blank < length && line[blank] == ' ') blank++;
    if (blank == length || *line == '#') return arena_strdup(arena, "");
    if (line[blank] == '{') return batch_json(arena, line, length);
    if (memchr(line, 0, length)) return arena_strdup(arena, "error: a zero byte in the line");
    return answer_tabs(arena, arena_strndup(arena, line, length));
}

// Answers up to `lines` lines in one arena: creating one costs as much as answering a question.
static bool answer_some(Arena *arena, int lines, char **line, size_t *capacity, FILE *in, FILE *out) {
    for (int i = 0; i < lines; i++) {
        ssize_t length = getline(line, capacity, in);
        if (length < 0) return false;
        fputs(layout_batch_line(arena, *line, (size_t)length), out);
        putc('\n', out);
    }
    return true;
}

bool layout_batch(Failure *failure, FILE *in, FILE *out) {
    enum { LINES_PER_ARENA = 64 };
    char *line = NULL;   // changed through its address only, so it survives leaving early
    size_t capacity = 0;
    Arena *volatile arena = NULL;
    if (FAILURE_CAUGHT(failure)) {
        arena_free(arena);
        free(line);
        return false;
    }
    for (bool more = true; more;) {
        arena = arena_new(libc_allocator, failure);
        if (!arena) fail_out_of_memory(failure);
        more = answer_some(arena, LINES_PER_ARENA, &line, &capacity, in, out);
        arena_free(arena);
        arena = NULL;
    }
    free(line);
    return fflush(out) == 0 && !ferror(out);
}
