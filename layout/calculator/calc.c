#include "layout/calculator/calc.h"
#include "layout/calculator/functions.h"
#include "support/vec.h"
#include <ctype.h>
#include <string.h>

enum { DEEPEST = 64 };

Calc *calc_new(LayoutContext *cx) {
    Calc *calc = NEW(cx->arena, Calc);
    *calc = (Calc){.cx = cx, .names = strmap_new(cx->arena)};
    return calc;
}

void calc_explain(Calc *calc, bool explain) {
    calc->explain = explain;
}

// ---- values ----

CalcValue of_tuple(Tuple t) {
    return (CalcValue){.kind = CALC_TUPLE, .tuple = t};
}
CalcValue of_int(int64_t n) {
    return of_tuple(tuple_int(n));
}
CalcValue of_swizzled(Swizzled a) {
    return (CalcValue){.kind = CALC_LAYOUT, .layout = a};
}
CalcValue of_cute(Cute a) {
    return of_swizzled((Swizzled){{0, 0, 0}, 0, a});
}
CalcValue of_tiler(Tiler t) {
    return (CalcValue){.kind = CALC_TILER, .tiler = t};
}
CalcValue of_linear(Linear a) {
    return (CalcValue){.kind = CALC_LINEAR, .linear = a};
}
CalcValue of_text(const char *text) {
    return (CalcValue){.kind = CALC_TEXT, .text = text};
}

static const char *kind_name(CalcKind kind) {
    static const char *const names[] = {"a tuple", "a layout", "a tiler", "a swizzle", "a linear layout", "a text"};
    return names[kind];
}

static bool mismatch(Calc *c, CalcValue v, const char *wanted) {
    return layout_refuse(c->cx, "expected %s, got %s", wanted, kind_name(v.kind));
}

Swizzled as_swizzled(Calc *c, CalcValue v) {
    if (v.kind == CALC_LAYOUT) return v.layout;
    if (v.kind == CALC_TUPLE) return (Swizzled){{0, 0, 0}, 0, cute_column_major(c->cx, v.tuple)};
    mismatch(c, v, "a layout");
    return (Swizzled){{0, 0, 0}, 0, cute_leaf(1, 0)};
}

Cute as_cute(Calc *c, CalcValue v) {
    Swizzled a = as_swizzled(c, v);
    if (a.swizzle.bits || a.base) layout_refuse(c->cx, "expected a layout without a swizzle");
    return a.layout;
}

Tuple as_tuple(Calc *c, CalcValue v) {
    if (v.kind != CALC_TUPLE) mismatch(c, v, "a tuple");
    return v.kind == CALC_TUPLE ? v.tuple : tuple_int(1);
}

int64_t as_int(Calc *c, CalcValue v) {
    bool good = v.kind == CALC_TUPLE && v.tuple.kind == TUPLE_INT;
    if (!good) mismatch(c, v, "an integer");
    return good ? v.tuple.value : 1;
}

Tiler as_tiler(Calc *c, CalcValue v) {
    if (v.kind == CALC_TILER) return v.tiler;
    if (v.kind == CALC_TUPLE) return tiler_of_shape(c->cx, v.tuple);
    return tiler_layout(as_cute(c, v));
}

Linear as_linear(Calc *c, CalcValue v) {
    if (v.kind != CALC_LINEAR) mismatch(c, v, "a linear layout");
    return v.kind == CALC_LINEAR ? v.linear : linear_empty();
}

const char *as_text(Calc *c, CalcValue v) {
    if (v.kind != CALC_TEXT) mismatch(c, v, "a text in quotes");
    return v.kind == CALC_TEXT ? v.text : "";
}

int as_small(Calc *c, CalcValue v) {
    int64_t n = as_int(c, v);
    if (n > 1024) layout_refuse(c->cx, "%lld is out of range", (long long)n);
    return c->cx->failed ? 1 : (int)n;
}

int as_per_dim(Calc *c, CalcValue v, PerDim values) {
    Tuple t = as_tuple(c, v);
    int rank = tuple_rank(t);
    if (rank > ENCODING_MAX_RANK) layout_refuse(c->cx, "more than %d dims", ENCODING_MAX_RANK);
    for (int i = 0; i < rank && !c->cx->failed; i++) {
        if (tuple_mode(t, i).kind != TUPLE_INT) layout_refuse(c->cx, "expected a flat tuple of integers");
        values[i] = tuple_mode(t, i).value;
    }
    return c->cx->failed ? 1 : rank;
}

static const struct {
    const char *name;
    int least, most;
    CalcFunction *function;
    const char *arguments;
} functions[] = {
#define FUNCTION(name, least, most, arguments) {#name, least, most, f_##name, arguments},
#include "layout/calculator/functions.def"
#undef FUNCTION
};

// ---- parsing ----

static CalcValue expression(Calc *c, Scan *scan);

static bool starts_name(char ch) {
    return isalpha((unsigned char)ch);
}

static const char *scan_word(Scan *scan) {
    const char *start = scan->at;
    while (isalnum((unsigned char)*scan->at) || *scan->at == '_') scan->at++;
    return arena_strndup(scan->cx->arena, start, (size_t)(scan->at - start));
}

static CalcValue call(Calc *c, Scan *scan, const char *name) {
    CalcValue values[MOST_ARGS];
    int count = 0;
    if (!scan_accept(scan, ')')) {
        do {
            if (count == MOST_ARGS) layout_refuse(c->cx, "too many arguments");
            else values[count++] = expression(c, scan);
        } while (scan_accept(scan, ','));
        scan_expect(scan, ')');
    }
    if (c->cx->failed) return of_int(1);
    for (int i = 0; i < COUNT_OF(functions); i++) {
        if (strcmp(name, functions[i].name)) continue;
        if (count < functions[i].least || count > functions[i].most)
            return layout_refuse(c->cx, "usage: %s%s", name, functions[i].arguments), of_int(1);
        return functions[i].function(c, values, count);
    }
    return layout_refuse(c->cx, "there is no function '%.40s'", name), of_int(1);
}

// `(a, b)`: a tuple of tuples, or the layout of those modes.
static CalcValue list(Calc *c, Scan *scan) {
    VEC(CalcValue) items = {0};
    bool layouts = false;
    if (!scan_accept(scan, ')')) {
        do {
            CalcValue item = expression(c, scan);
            layouts |= item.kind == CALC_LAYOUT;
            vec_push(c->cx->arena, &items, item);
        } while (scan_accept(scan, ','));
        scan_expect(scan, ')');
    }
    if (c->cx->failed) return of_int(1);
    Cute *modes = NEW_ARRAY(c->cx->arena, Cute, items.count);
    Tuple *tuples = NEW_ARRAY(c->cx->arena, Tuple, items.count);
    for (int i = 0; i < items.count; i++) {
        if (layouts) modes[i] = as_cute(c, items.items[i]);
        else tuples[i] = as_tuple(c, items.items[i]);
    }
    if (layouts) return of_cute((Cute){.rank = items.count, .modes = modes});
    return of_tuple((Tuple){.kind = TUPLE_LIST, .count = items.count, .items = tuples});
}

static CalcValue tiler(Calc *c, Scan *scan) {
    VEC(Tiler) items = {0};
    do {
        CalcValue item = expression(c, scan);
        vec_push(c->cx->arena, &items, as_tiler(c, item));
    } while (scan_accept(scan, ';') || scan_accept(scan, ','));
    scan_expect(scan, '>');
    return of_tiler(tiler_tuple(c->cx, items.items, items.count));
}

static CalcValue quoted(Scan *scan) {
    const char *start = scan->at;
    while (*scan->at && *scan->at != '"') scan->at++;
    const char *text = arena_strndup(scan->cx->arena, start, (size_t)(scan->at - start));
    scan_expect(scan, '"');
    return of_text(text);
}

static CalcValue swizzle_literal(Scan *scan) {
    Swizzle s = scan_swizzle(scan);
    scan_expect(scan, '>');
    return (CalcValue){.kind = CALC_SWIZZLE, .swizzle = s};
}

static CalcValue primary(Calc *c, Scan *scan) {
    scan_space(scan);
    if (*scan->at == '{') return of_linear(linear_scan(scan));
    if (scan_accept(scan, '"')) return quoted(scan);
    if (scan_accept(scan, '<')) return tiler(c, scan);
    if (scan_accept(scan, '(')) return list(c, scan);
    if (!starts_name(*scan->at)) return of_tuple(scan_tuple(scan));
    const char *name = scan_word(scan);
    if (!strcmp(name, "Sw") && scan_accept(scan, '<')) return swizzle_literal(scan);
    if (scan_accept(scan, '(')) return call(c, scan, name);
    CalcValue *value = strmap_get(c->names, name);
    if (!value) layout_refuse(c->cx, "there is no value '%.40s'", name);
    return value ? *value : of_int(1);
}

// primary [: stride] [o expression]
static CalcValue expression(Calc *c, Scan *scan) {
    if (++c->depth > DEEPEST) layout_refuse(c->cx, "syntax: nested deeper than %d", DEEPEST);
    CalcValue value = c->cx->failed ? of_int(1) : primary(c, scan);
    if (value.kind == CALC_TUPLE && scan_accept(scan, ':')) {
        CalcValue stride = primary(c, scan);
        if (!c->cx->failed) value = of_cute(cute_make(c->cx, value.tuple, as_tuple(c, stride)));
    }
    scan_space(scan);
    if (!c->cx->failed && scan->at[0] == 'o' && !isalnum((unsigned char)scan->at[1]) && scan->at[1] != '_') {
        scan->at++;
        CalcValue both[] = {value, expression(c, scan)};
        if (!c->cx->failed) value = f_composition(c, both, 2);
    }
    c->depth--;
    return value;
}

static CalcValue statement(Calc *c, Scan *scan) {
    scan_space(scan);
    const char *start = scan->at;
    const char *name = NULL;
    if (starts_name(*scan->at)) {
        name = scan_word(scan);
        scan_space(scan);
        if (*scan->at == '=') scan->at++;
        else name = NULL, scan->at = start;
    }
    CalcValue value = expression(c, scan);
    if (name && !c->cx->failed) strmap_put(c->names, name, arena_copy(c->cx->arena, &value, sizeof value));
    return value;
}

CalcValue calc_run(Calc *c, const char *text) {
    Scan scan = scan_text(c->cx, text);
    c->depth = 0;
    CalcValue value = statement(c, &scan);
    while (scan_accept(&scan, ';')) {
        scan_space(&scan);
        if (*scan.at) value = statement(c, &scan);
    }
    scan_end(&scan);
    return value;
}

// ---- text ----

static void print_tiler(StrBuf *out, Tiler t) {
    if (t.kind == TILER_ANY) {
        sb_char(out, '_');
    } else if (t.kind == TILER_LAYOUT) {
        if (t.is_integer) tuple_print_integer(out, t.layout.shape);
        else cute_print(out, t.layout);
    } else {
        for (int i = 0; i < t.count; i++) {
            sb_char(out, i ? ';' : '<');
            print_tiler(out, t.items[i]);
        }
        sb_char(out, '>');
    }
}

// Marks every number as static: `_8`.
static char *with_marks(Arena *arena, const char *text) {
    StrBuf out;
    sb_init(&out, arena);
    for (const char *at = text; *at; at++) {
        bool starts = isdigit((unsigned char)*at) && (at == text || !isalnum((unsigned char)at[-1]));
        if (starts) sb_char(&out, '_');
        sb_char(&out, *at);
    }
    return arena_strdup(arena, sb_text(&out));
}

char *calc_text(Calc *c, CalcValue v, bool static_mark) {
    StrBuf out;
    sb_init(&out, c->cx->arena);
    switch (v.kind) {
    case CALC_TUPLE: tuple_print(&out, v.tuple); break;
    case CALC_LAYOUT: swizzled_print(&out, v.layout); break;
    case CALC_TILER: print_tiler(&out, v.tiler); break;
    case CALC_SWIZZLE: swizzle_print(&out, v.swizzle); break;
    case CALC_LINEAR: linear_print(&out, v.linear); break;
    case CALC_TEXT: sb_str(&out, v.text); break;
    }
    bool marks = static_mark && (v.kind == CALC_TUPLE || v.kind == CALC_LAYOUT || v.kind == CALC_TILER);
    return marks ? with_marks(c->cx->arena, sb_text(&out)) : arena_strdup(c->cx->arena, sb_text(&out));
}

// One placeholder's text.
static char *placeholder(Calc *c, const char *text) {
    LayoutContext *cx = c->cx;
    if (!strncmp(text, "table:", 6)) return draw_table(cx, as_swizzled(c, calc_run(c, text + 6)), true);
    if (!strncmp(text, "plain:", 6)) return calc_text(c, calc_run(c, text + 6), false);
    if (!strncmp(text, "let ", 4)) return calc_run(c, text + 4), arena_strdup(cx->arena, "");
    if (!strncmp(text, "cover:", 6)) {
        Scan scan = scan_text(cx, text + 6);
        CalcValue rows = expression(c, &scan);
        scan_expect(&scan, ',');
        CalcValue columns = expression(c, &scan);
        scan_expect(&scan, ',');
        Tuple tile = as_tuple(c, expression(c, &scan));
        if (tuple_rank(tile) != 2) layout_refuse(cx, "cover: expected a tile of two modes");
        if (cx->failed) return arena_strdup(cx->arena, "");
        return draw_coverage(cx, as_cute(c, rows), as_cute(c, columns), tuple_product(cx, tuple_mode(tile, 0)),
                             tuple_product(cx, tuple_mode(tile, 1)));
    }
    return calc_text(c, calc_run(c, text), true);
}

char *calc_expand(Calc *c, const char *text) {
    StrBuf out;
    sb_init(&out, c->cx->arena);
    while (!c->cx->failed) {
        const char *open = strstr(text, "{{"), *close = open ? strstr(open, "}}") : NULL;
        if (!close) break;
        sb_bytes(&out, text, (size_t)(open - text));
        char *inner = arena_strndup(c->cx->arena, open + 2, (size_t)(close - open - 2));
        sb_str(&out, placeholder(c, inner));
        text = close + 2;
        bool whole_lines = !strncmp(inner, "let ", 4) || !strncmp(inner, "table:", 6) || !strncmp(inner, "cover:", 6);
        if (whole_lines && *text == '\n') text++;   // what they give ends its own lines
    }
    sb_str(&out, text);
    return arena_strdup(c->cx->arena, sb_text(&out));
}

char *calc_help(Arena *arena) {
    StrBuf out;
    sb_init(&out, arena);
    for (int i = 0; i < COUNT_OF(functions); i++)
        sb_printf(&out, "    %s%s\n", functions[i].name, functions[i].arguments);
    return out.text;
}
