// `tilec layout`: the calculator and the batch on the command line.
#include "layout/calculator/batch.h"
#include "layout/calculator/calc.h"
#include "support/fail.h"
#include "support/files.h"
#include "support/json.h"
#include <stdlib.h>
#include <string.h>

enum { EXIT_GOOD = 0, EXIT_WRONG = 1, EXIT_USAGE = 2, EXIT_ENVIRONMENT = 3, EXIT_BUG = 70 };

typedef enum { AS_TEXT, AS_TABLE, AS_SVG, AS_HTML } Format;
typedef enum { VIEW_VALUES, VIEW_OWNERS, VIEW_BANKS } View;

typedef struct Options {
    Format format;
    bool batch, help, static_mark, explain, view_given, json;
    View view;
    const char *tile, *script;   // texts
    int bits, access;
    const char *expressions[64];
    int count;
} Options;

static const char usage[] =
    "usage: tilec layout [options] EXPRESSION...\n"
    "       tilec layout --batch < questions\n"
    "\n"
    "Evaluates layout expressions; each may define names for the next, the last one is shown.\n"
    "\n"
    "    tilec layout 'composition((16,8):(1,16), <8:1;4:2>)'\n"
    "    tilec layout --svg --view=owners --tile='(16,8)' '((4,8),(2,2)):((32,1),(16,8))'\n"
    "    tilec layout --html --view=banks --bits=16 'Sw<3,3,3> o (8,64):(64,1)'\n"
    "\n"
    "    --table, --svg, --html  draw instead of printing\n"
    "    --view=values           offsets (the default)\n"
    "    --view=owners           threads and values of a thread-value layout over --tile=(M,N);\n"
    "                            linear layouts of registers and lanes are shown so without asking\n"
    "    --view=banks            banks of shared memory, for elements of --bits=16 and --access=16 bytes per lane\n"
    "    --explain               of convert(a, b): where each bit comes from, accesses and wavefronts;\n"
    "                            with --svg, --html, --table: source, shared memory and destination\n"
    "    --static                print integers as CuTe's static ones, _8\n"
    "    --json                  an object with the kind of the value, and its text or drawing; errors are objects too\n"
    "    --expand=FILE           a text in which {{expressions}} are replaced by their values\n"
    "    --batch                 one question per line of standard input, one answer per line\n"
    "\n"
    "functions:\n";

// ---- options ----

static bool take_value(const char *arg, const char *name, const char **value) {
    size_t length = strlen(name);
    if (strncmp(arg, name, length) || arg[length] != '=') return false;
    *value = arg + length + 1;
    return true;
}

static bool take_number(const char *arg, const char *name, int *number, int most, bool *bad) {
    const char *value;
    char *end;
    if (!take_value(arg, name, &value)) return false;
    long n = strtol(value, &end, 10);
    *bad = *bad || !*value || *end || n < 1 || n > most;
    *number = (int)n;
    return true;
}

static bool take_view(const char *arg, Options *o, bool *bad) {
    const char *value;
    static const char *const names[] = {"values", "owners", "banks"};
    if (!take_value(arg, "--view", &value)) return false;
    int view = 0;
    while (view < 3 && strcmp(value, names[view])) view++;
    *bad = *bad || view == 3;
    o->view = view == 3 ? VIEW_VALUES : (View)view;
    o->view_given = true;
    return true;
}

// The first argument that is wrong, or NULL.
static const char *read_options(int argc, char **argv, Options *o) {
    bool only_expressions = false;
    for (int i = 1; i < argc; i++) {
        const char *arg = argv[i];
        bool bad = false;
        if (only_expressions || arg[0] != '-') {
            if (o->count == (int)(sizeof o->expressions / sizeof o->expressions[0])) return arg;
            o->expressions[o->count++] = arg;
        } else if (!strcmp(arg, "--")) only_expressions = true;
        else if (!strcmp(arg, "--batch")) o->batch = true;
        else if (!strcmp(arg, "--help") || !strcmp(arg, "-h")) o->help = true;
        else if (!strcmp(arg, "--explain")) o->explain = true;
        else if (!strcmp(arg, "--static")) o->static_mark = true;
        else if (!strcmp(arg, "--json")) o->json = true;
        else if (!strcmp(arg, "--table")) o->format = AS_TABLE;
        else if (!strcmp(arg, "--svg")) o->format = AS_SVG;
        else if (!strcmp(arg, "--html")) o->format = AS_HTML;
        else if (!take_view(arg, o, &bad) && !take_value(arg, "--tile", &o->tile) &&
                 !take_value(arg, "--expand", &o->script) && !take_number(arg, "--bits", &o->bits, 128, &bad) &&
                 !take_number(arg, "--access", &o->access, 16, &bad))
            return arg;
        if (bad) return arg;
    }
    return NULL;
}

// ---- work ----

static Drawing drawing_of(LayoutContext *cx, const Options *o, Swizzled a) {
    if (o->view == VIEW_BANKS) return draw_banks(cx, a, o->bits, o->access, nvidia_memory);
    if (o->view == VIEW_VALUES) return draw_values(cx, a);
    if (!o->tile) layout_refuse(cx, "--view=owners needs --tile=(M,N)");
    Tuple tile = cx->failed ? tuple_int(1) : tuple_parse(cx, o->tile);
    return draw_owners(cx, a.layout, tile);
}

static char *rendered(LayoutContext *cx, const Options *o, const Drawing *drawings, int count) {
    if (cx->failed) return NULL;
    if (o->format == AS_SVG) return draw_svgs(cx, drawings, count);
    if (o->format == AS_HTML) return draw_html(cx, drawings, count);
    StrBuf out;
    sb_init(&out, cx->arena);
    for (int i = 0; i < count; i++) sb_str(&out, draw_text(cx, drawings[i]));
    return out.text;
}

static char *shown(Calc *calc, LayoutContext *cx, const Options *o, CalcValue value) {
    if (o->format == AS_TEXT && !o->view_given)
        return arena_printf(cx->arena, "%s\n", calc_text(calc, value, o->static_mark));
    if (value.conversion) {
        Drawing drawings[CONVERT_DRAWINGS];
        int count = convert_draw(cx, value.conversion, drawings);
        return rendered(cx, o, drawings, count);
    }
    if (value.kind == CALC_TUPLE)
        value = calc_run(calc, arena_printf(cx->arena, "make_layout(%s)", calc_text(calc, value, false)));
    if (value.kind != CALC_LAYOUT && value.kind != CALC_LINEAR)
        return layout_refuse(cx, "only layouts can be drawn"), NULL;
    if (value.kind == CALC_LINEAR && o->view == VIEW_BANKS)
        return layout_refuse(cx, "--view=banks needs shape:stride, and perhaps a swizzle; see cute(...)"), NULL;
    if (value.kind == CALC_LAYOUT && o->format <= AS_TABLE && o->view == VIEW_VALUES)
        return draw_table(cx, value.layout, o->static_mark);
    Drawing d = value.kind == CALC_LINEAR ? draw_linear(cx, value.linear) : drawing_of(cx, o, value.layout);
    return rendered(cx, o, &d, 1);
}

// {"kind": "layout", "value": "(4,8):(8,1)"}; of an integer the value is a number.
static char *as_json(Arena *arena, CalcKind kind, char *text) {
    static const char *const names[] = {"tuple", "layout", "tiler", "swizzle", "linear", "text"};
    StrBuf out;
    sb_init(&out, arena);
    size_t length = strlen(text);
    if (length && text[length - 1] == '\n') text[--length] = 0;
    bool integer = kind == CALC_TUPLE && strspn(text + (text[0] == '-'), "0123456789") == length - (text[0] == '-');
    sb_printf(&out, "{\"kind\": \"%s\", \"value\": ", integer ? "integer" : names[kind]);
    if (integer) sb_str(&out, text);
    else json_quote(&out, text);
    sb_str(&out, "}\n");
    return arena_strdup(arena, sb_text(&out));
}

static int refused(Arena *arena, const Options *o, const char *reason, FILE *out, FILE *err) {
    StrBuf text;
    sb_init(&text, arena);
    if (o->json) sb_str(&text, "{\"error\": "), json_quote(&text, reason), sb_str(&text, "}\n");
    else sb_printf(&text, "layout: error: %s\n", reason);
    fputs(sb_text(&text), o->json ? out : err);
    return EXIT_WRONG;
}

static int answer(Arena *arena, const Options *o, FILE *out, FILE *err) {
    LayoutContext cx = layout_context(arena);
    Calc *calc = calc_new(&cx);
    calc_explain(calc, o->explain);
    char *text = NULL;
    if (o->script) {
        FileText source;
        const char *why;
        if (!file_load(arena, o->script, 0, &source, &why))
            return fprintf(err, "layout: cannot read '%s': %s\n", o->script, why), EXIT_ENVIRONMENT;
        text = calc_expand(calc, source.text);
        if (!cx.failed && o->json) text = as_json(arena, CALC_TEXT, text);
    } else {
        CalcValue value = {0};
        for (int i = 0; i < o->count && !cx.failed; i++) value = calc_run(calc, o->expressions[i]);
        if (!cx.failed) text = shown(calc, &cx, o, value);
        if (!cx.failed && o->json) text = as_json(arena, value.kind, text);
    }
    if (cx.failed) return refused(arena, o, cx.reason, out, err);
    fputs(text, out);
    if (fflush(out) || ferror(out)) return fputs("layout: cannot write\n", err), EXIT_ENVIRONMENT;
    return EXIT_GOOD;
}

static int failed(const Failure *failure, FILE *err) {
    if (failure->kind == FAIL_NONE) return fputs("layout: cannot write\n", err), EXIT_ENVIRONMENT;
    if (failure->kind == FAIL_OUT_OF_MEMORY) return fputs("layout: out of memory\n", err), EXIT_ENVIRONMENT;
    return fprintf(err, "layout: %s\n", failure->message), EXIT_BUG;
}

int layout_command(int argc, char **argv, FILE *in, FILE *out, FILE *err) {
    Options o = {.bits = 16, .access = 16};
    const char *wrong = read_options(argc, argv, &o);
    if (wrong) return fprintf(err, "layout: '%s' is not understood; see tilec layout --help\n", wrong), EXIT_USAGE;
    Failure failure;
    if (o.batch) return layout_batch(&failure, in, out) ? EXIT_GOOD : failed(&failure, err);
    Arena *volatile arena = NULL;
    if (FAILURE_CAUGHT(&failure)) {
        arena_free(arena);
        return failed(&failure, err);
    }
    arena = arena_new(libc_allocator, &failure);
    if (!arena) return fputs("layout: out of memory\n", err), EXIT_ENVIRONMENT;
    int code = EXIT_USAGE;
    if (o.help) fprintf(out, "%s%s", usage, calc_help(arena)), code = EXIT_GOOD;
    else if (!o.count && !o.script) fputs("layout: no expression; see tilec layout --help\n", err);
    else code = answer(arena, &o, out, err);
    arena_free(arena);
    return code;
}
