// TMA and wgmma on the emulator: every type and form of wgmma against a reference, boxes of TMA of every rank and
// swizzle against what a thread finds in shared memory, and programs with a mistake that must be reported.
//
// Where wgmma expects its operands is stated here as layouts of units of 16 bytes, (row in eight, eights) and so on,
// with the exchange on the unit's number; emulator/wgmma.c computes bytes of addresses.
#include "target/target.h"
#include "tests/unit/emulator_unit.h"
#include <stdlib.h>

// ---- wgmma ----
typedef struct Matrix {
    const char *name, *type, *form;
    int rows, k, bytes;   // of one instruction; bytes of an element
} Matrix;

static int units_of_span(const char *form) {   // that a swizzle exchanges; 0: none
    const char *digits = form + strcspn(form, "0123456789");
    return atoi(digits) / 16;
}

static int step_bytes(const Matrix *op) {   // an instruction's operand lies in its own part
    int span = units_of_span(op->form), row = op->form[0] == 'k' && span > 2 ? span * 16 : 32;
    return op->form[0] == 'k' ? op->rows * row : (op->rows * op->bytes + 127) / 128 * 128 * op->k;
}

// The lead, stride and step of its descriptor.
static const char *described(Arena *arena, const Matrix *op) {
    int span = units_of_span(op->form), groups = (op->rows * op->bytes + 15) / 16;
    int lead = 16, stride = span * 128;
    if (op->form[0] == 'k' && !span) {
        lead = 128;
        stride = 256;
    } else if (op->form[0] == 'm' && span) {   // along m or n: all k of a column of spans, then the next
        lead = op->k * span * 16;
    } else if (op->form[0] == 'm') {
        stride = 128;
        lead = groups * 128;
    }
    return arena_printf(arena, "%s_form = %s, %s_lead = %d, %s_stride = %d, %s_step = %d", op->name, op->form, op->name,
                        lead, op->name, stride, op->name, step_bytes(op));
}

// Statements of a thread that put element (r, k) of the s-th instruction's operand where wgmma looks for it.
static const char *placed(Arena *arena, const Matrix *op) {
    int span = units_of_span(op->form), elements = 16 / op->bytes, groups = (op->rows * op->bytes + 15) / 16;
    const char *major = op->form[0] == 'k' ? "k" : "r", *unit;
    if (op->form[0] == 'k' && span)
        unit = arena_printf(arena, "r %% 8 * %d + r / 8 * %d + k / %d", span, 8 * span, elements);
    else if (op->form[0] == 'k') unit = arena_printf(arena, "r %% 8 + r / 8 * 16 + k / %d * 8", elements);
    else if (span)
        unit = arena_printf(arena, "r / %d %% %d + r / %d / %d * %d + k %% 8 * %d + k / 8 * %d", elements, span,
                            elements, span, op->k * span, span, 8 * span);
    else unit = arena_printf(arena, "r / %d * 8 + k %% 8 + k / 8 * %d", elements, groups * 8);
    const char *mask = arena_printf(arena, "%d", span ? span - 1 : 0);
    return arena_printf(arena,
                        "for (s in 2, r in %d, k in %d) if ((r * %d + k) %% 128 == t) {\n"
                        "    let unit = %s;\n"
                        "    %s[s * %d + (unit ^ unit / 8 %% 8 & %s) * %d + %s %% %d] = %s[r, s * %d + k];\n"
                        "}\n",
                        op->rows, op->k, op->k, unit, op->name, step_bytes(op) / op->bytes, mask, elements, major,
                        elements, op->name[0] == 'a' ? "A" : "B", op->k);
}

static const char *integers(Arena *arena, int n, int k) {   // for a test's block
    return arena_printf(arena,
                        "for (i in 64, k in %d) A[i, k] = (i * 7 + k * 3) %% 11;\n"
                        "for (j in %d, k in %d) B[j, k] = (j * 5 + k) %% 13;\n"
                        "for (i in 64, j in %d) C[i, j] = i - j;",
                        k, n, k, n);
}

// One product of two instructions. `a_form` NULL: a comes from registers.
static const char *product(Arena *arena, const WgmmaInfo *info, const char *shape, const char *a_form,
                           const char *b_form) {
    int bytes = 32 / info->k, k = info->k, n = info->n;
    bool tf32 = strcmp(info->a_type, "tf32") == 0;
    const char *a_type = tf32 ? "f32" : info->a_type, *b_type = tf32 ? "f32" : info->b_type;
    Matrix a = {"a", a_type, a_form, 64, k, bytes}, b = {"b", b_type, b_form, n, k, bytes};
    int a_values = 64 * k / 128, row = 4 / bytes > 0 ? 4 / bytes : 1;   // elements of a register
    const char *registers =
        arena_printf(arena,
                     "unroll (s in 2, i in %d) {\n"
                     "    let column = %d * (t %% 4) + i %% %d + i / %d * %d;\n"
                     "    a[s * %d + i] = A[t / 32 * 16 + t %% 32 / 4 + i / %d %% 2 * 8, s * %d + column];\n}\n",
                     a_values, row, row, 2 * row, 4 * row, a_values, row, k);
    const char *a_decl =
        a_form ? arena_printf(arena, "shared a: %s[%d] @align(1024);", a_type, 2 * step_bytes(&a) / bytes) : "";
    const char *a_local = a_form ? "" : arena_printf(arena, "local a: %s[%d];", a_type, 2 * a_values);
    return arena_printf(
        arena,
        "kernel k(A: %s[64, %d], B: %s[%d, %d], C: inout %s[64, %d]) {\n"
        "  grid (g in 1) threads 128 {\n"
        "    %s\n    shared b: %s[%d] @align(1024);\n"
        "    thread (t in 128) {\n"
        "      local acc: %s[%d]; %s\n"
        "      %s      %s"
        "      unroll (i in %d) acc[i] = C[t / 32 * 16 + t %% 32 / 4 + i / 2 %% 2 * 8, i / 4 * 8 + t %% 4 * 2 + i %% 2];\n"
        "      fence_async();\n      barrier();\n      wgmma_fence();\n"
        "      wgmma(%s, a[0], b[0], acc[0], steps = 2, %s%s%s);\n"
        "      wgmma_commit();\n      wgmma_wait(0);\n"
        "      unroll (i in %d) C[t / 32 * 16 + t %% 32 / 4 + i / 2 %% 2 * 8, i / 4 * 8 + t %% 4 * 2 + i %% 2] = acc[i];\n"
        "    }\n  }\n}\n"
        "reference k { for (i in 64, j in %d) for (k in %d) C[i, j] += %s; }\n"
        "test k () { %s } tolerance %s;\n",
        a_type, 2 * k, b_type, n, 2 * k, info->acc_type, n, a_decl, b_type, 2 * step_bytes(&b) / bytes, info->acc_type,
        n / 2, a_local, a_form ? placed(arena, &a) : registers, placed(arena, &b), n / 2, shape,
        a_form ? described(arena, &a) : "", a_form ? ", " : "", described(arena, &b), n / 2, n, 2 * k,
        info->acc_type[0] == 'i' ? "i32(A[i, k]) * i32(B[j, k])" : "A[i, k] * B[j, k]",
        info->acc_type[0] == 'i' ? integers(arena, n, 2 * k) : "",
        info->acc_type[0] == 'i'   ? "0"
        : info->acc_type[1] == '1' ? "1e-2"
                                   : "2e-3");
}

static void check_product(Arena *arena, const char *types, int n, int k, const char *a_form, const char *b_form) {
    WgmmaInfo info;
    const char *shape = arena_printf(arena, "m64n%dk%d_%s", n, k, types);
    if (!wgmma_named(shape, &info)) fail_msg("no instruction '%s'", shape);
    const char *source = product(arena, &info, shape, a_form, b_form);
    Outcome out = run_source(arena, source, 1);
    if (!out.passed)
        fail_msg("%s, a %s, b %s: %s\n%s\n%s", shape, a_form ? a_form : "registers", b_form, out.last.why, out.text,
                 source);
}

static const char *const forms[] = {"k128", "k64", "k32", "k0", "mn128", "mn64", "mn32", "mn0"};

static void sixteen_bit_types_in_every_form(void **state) {
    static const char *const types[] = {"f32_f16", "f16_f16", "f32_bf16"};
    for (int i = 0; i < 8; i++)
        for (int j = 0; j < 8; j++)
            check_product(*state, types[(i + j) % 3], (i + j) % 2 ? 64 : 192, 16, forms[i], forms[j]);
    for (int j = 0; j < 8; j++) check_product(*state, types[j % 3], 64, 16, NULL, forms[j]);
}

static void other_types_with_k_contiguous(void **state) {
    static const struct {
        const char *types;
        int k;
    } rows[] = {{"f32_tf32", 8}, {"f32_e4m3", 32},      {"f16_e4m3", 32},  {"f32_e5m2", 32}, {"f16_e5m2_e4m3", 32},
                {"i32_i8", 32},  {"f32_e4m3_e5m2", 32}, {"i32_u8_i8", 32}, {"i32_u8", 32}};
    for (int i = 0; i < (int)(sizeof rows / sizeof rows[0]); i++) {
        for (int j = 0; j < 4; j++)
            check_product(*state, rows[i].types, j % 2 ? 32 : 96, rows[i].k, forms[(i + j) % 4], forms[j]);
        check_product(*state, rows[i].types, 8, rows[i].k, NULL, forms[i % 4]);
    }
}

static void every_n(void **state) {
    for (int n = 8; n <= 256; n += 8) check_product(*state, "f32_bf16", n, 16, n % 16 ? NULL : "k128", "k64");
    for (int n = 16; n <= 256; n += 48) check_product(*state, "i32_i8", n, 32, "k128", "k128");
}

// ---- TMA ----
typedef struct Box {
    const char *type;
    int bytes, rank, dims[5], box[5], at[5], swizzle;   // innermost first; `at`: coordinates
} Box;

static const char *listed(Arena *arena, int count, const int *items, bool reversed) {
    StrBuf sb;
    sb_init(&sb, arena);
    for (int i = 0; i < count; i++) sb_printf(&sb, i ? ", %d" : "%d", items[reversed ? count - 1 - i : i]);
    return sb_text(&sb);
}

// The index of the tensor's element e of row r, as "r / 4 % 2 + 3, r % 4 - 1, e + 5"; and whether it is inside.
static const char *indices(Arena *arena, const Box *b, const char **inside) {
    const char *all = "", *test = "";
    for (int d = 0, row = 1; d < b->rank; d++) {
        const char *index = d ? arena_printf(arena, "r / %d %% %d + %d", row, b->box[d], b->at[d])
                              : arena_printf(arena, "e + %d", b->at[d]);
        if (b->at[d] < 0)
            index = d ? arena_printf(arena, "r / %d %% %d - %d", row, b->box[d], -b->at[d])
                      : arena_printf(arena, "e - %d", -b->at[d]);
        test = arena_printf(arena, "%s%s%s >= 0 && %s < %d", test, d ? " && " : "", index, index, b->dims[d]);
        all = d ? arena_printf(arena, "%s, %s", index, all) : index;
        if (d) row *= b->box[d];
    }
    *inside = test;
    return all;
}

static int rows_of(const Box *b) {
    int rows = 1;
    for (int d = 1; d < b->rank; d++) rows *= b->box[d];
    return rows;
}

// Where element e of row r lies in shared memory.
static const char *lies(Arena *arena, const Box *b) {
    int unit = 16 / b->bytes, pitch = (b->swizzle ? b->swizzle : b->box[0] * b->bytes) / 16;
    int mask = b->swizzle ? b->swizzle / 16 - 1 : 0;
    return arena_printf(arena, "((r * %d + e / %d) ^ (r * %d + e / %d) / 8 %% 8 & %d) * %d + e %% %d", pitch, unit,
                        pitch, unit, mask, unit, unit);
}

static const char *declared(Arena *arena, const Box *b) {
    char *list = (char *)listed(arena, b->rank, b->box, false), *to = list;
    for (char *from = list; *from; from++)
        if (*from != ' ') *to++ = *from;
    *to = 0;
    int pitch = b->swizzle ? b->swizzle : b->box[0] * b->bytes;
    return arena_printf(arena,
                        "map: tensormap @tma(x, \"%s\", %d)) { grid (g in 1) threads 32 { "
                        "shared s: %s[%d] @align(1024), full: mbarrier[1]; thread (t in 32) {\n",
                        list, b->swizzle, b->type, pitch / b->bytes * rows_of(b));
}

static const char *load_of(Arena *arena, const Box *b) {
    const char *inside, *index = indices(arena, b, &inside), *coordinates = listed(arena, b->rank, b->at, false);
    int rows = rows_of(b);
    return arena_printf(arena,
                        "kernel k(x: %s[%s], y: out %s[%d, %d], %s"
                        "  if (t == 0) { mbarrier_init(full[0], 1); fence_mbarrier_init();\n"
                        "    mbarrier_expect(full[0], %d); tma_load(s[0], map, full[0], %s); }\n"
                        "  warp_sync(); mbarrier_wait(full[0], 0);\n"
                        "  for (r in %d, e in %d) if (t == (r + e) %% 32) y[r, e] = s[%s];\n"
                        "} } }\n"
                        "reference k { for (r in %d, e in %d) y[r, e] = %s ? x[%s] : 0; }\n"
                        "test k () tolerance 0;\n",
                        b->type, listed(arena, b->rank, b->dims, true), b->type, rows, b->box[0], declared(arena, b),
                        rows * b->box[0] * b->bytes, coordinates, rows, b->box[0], lies(arena, b), rows, b->box[0],
                        inside, index);
}

static const char *store_of(Arena *arena, const Box *b) {
    const char *inside, *index = indices(arena, b, &inside), *coordinates = listed(arena, b->rank, b->at, false);
    int rows = rows_of(b);
    return arena_printf(arena,
                        "kernel k(x: inout %s[%s], y: %s[%d, %d], %s"
                        "  for (r in %d, e in %d) if (t == (r + e) %% 32) s[%s] = y[r, e];\n"
                        "  fence_async(); warp_sync();\n"
                        "  if (t == 0) { tma_store(map, s[0], %s); bulk_commit(); bulk_wait(0); }\n"
                        "} } }\n"
                        "reference k { for (r in %d, e in %d) if (%s) x[%s] = y[r, e]; }\n"
                        "test k () tolerance 0;\n",
                        b->type, listed(arena, b->rank, b->dims, true), b->type, rows, b->box[0], declared(arena, b),
                        rows, b->box[0], lies(arena, b), coordinates, rows, b->box[0], inside, index);
}

static bool begins_between_units(const Box *b) {
    return b->swizzle && b->at[0] * b->bytes % 16 != 0;
}

static bool begins_below(const Box *b) {
    bool below = false;
    for (int d = 0; d < b->rank; d++) below |= b->at[d] < 0;
    return below;
}

static void boxes_land_where_the_swizzle_puts_them(void **state) {
    static const Box boxes[] = {
        {"f32", 4, 1, {100}, {64}, {40}, 0},
        {"f32", 4, 1, {100}, {32}, {-8}, 128},
        {"bf16", 2, 2, {200, 30}, {64, 16}, {64, 8}, 128},
        {"bf16", 2, 2, {200, 30}, {64, 16}, {152, 20}, 128},   // over both edges
        {"bf16", 2, 2, {200, 30}, {24, 16}, {-8, -3}, 128},    // rows narrower than the swizzle; below zero
        {"f16", 2, 2, {40, 9}, {32, 8}, {8, 1}, 64},
        {"f16", 2, 2, {40, 9}, {8, 8}, {33, 4}, 64},   // between two units
        {"f16", 2, 2, {40, 9}, {8, 8}, {32, 4}, 64},
        {"f16", 2, 2, {40, 50}, {16, 40}, {0, 0}, 32},
        {"e4m3", 1, 2, {304, 12}, {128, 8}, {240, 1}, 128},
        {"f32", 4, 2, {256, 4}, {256, 2}, {0, 3}, 0},   // rows of a KB
        {"f32", 4, 3, {36, 7, 5}, {32, 4, 3}, {8, 5, -1}, 128},
        {"bf16", 2, 3, {72, 6, 3}, {64, 4, 2}, {1000, 0, 0}, 128},   // all outside
        {"bf16", 2, 4, {24, 5, 4, 3}, {16, 2, 3, 2}, {8, 4, -2, 2}, 32},
        {"f32", 4, 5, {12, 3, 4, 3, 2}, {8, 2, 2, 3, 2}, {4, -1, 3, 1, 1}, 64},
    };
    for (int i = 0; i < (int)(sizeof boxes / sizeof boxes[0]); i++) {
        const char *load = load_of(*state, &boxes[i]), *store = store_of(*state, &boxes[i]);
        if (begins_between_units(&boxes[i])) {
            expect_report(*state, load, "T0744");
            expect_report(*state, store, "T0744");
            continue;
        }
        expect_pass(*state, load);
        if (begins_below(&boxes[i]))
            expect_report(*state, store, "T0738");   // stores may leave the tensor at its end alone
        else expect_pass(*state, store);
    }
}

static void boxes_are_waited_for(void **state) {
    static const Box box = {"bf16", 2, 2, {200, 30}, {64, 16}, {64, 8}, 128};
    const char *load = load_of(*state, &box), *store = store_of(*state, &box);
    expect_report(*state, without(*state, load, "tma_load", "mbarrier_wait(full[0], 0);", ""), "T0708");
    expect_report(
        *state,
        without(*state, load, "tma_load", "mbarrier_wait(full[0], 0);", "if (t == 0) mbarrier_wait(full[0], 0);"),
        "T0701");
    expect_report(*state, without(*state, load, "tma_load", "warp_sync();", ""), "T0701");   // on the barrier itself
    expect_report(*state, without(*state, load, "warp_sync", "mbarrier_wait", "s[t] = 0; mbarrier_wait"), "T0709");
    expect_report(*state, without(*state, load, "tma_load", "s[0], map", "s[8], map"), "T0703");   // too long
    expect_report(*state, without(*state, store, "for (r", "fence_async();", ""), "T0726");
    expect_report(*state, without(*state, store, "for (r", "warp_sync();", ""), "T0701");
    expect_report(*state, without(*state, store, "tma_store", "bulk_wait(0);", ""), "T0724");
    expect_report(*state, without(*state, store, "tma_store", "bulk_commit();", ""), "T0724");
    expect_report(*state, without(*state, store, "tma_store", "bulk_wait(0);", "s[0] = 0; bulk_wait(0);"), "T0701");
    expect_report(*state, without(*state, store, "tma_store", "bulk_wait(0);", "bulk_wait(0, read); x[8, 64] = 0;"),
                  "T0701");   // the tensor is still being written
    expect_report(*state, without(*state, store, "tma_store", "bulk_wait(0);", "bulk_wait(0, read); s[0] = x[8, 64];"),
                  "T0701");
    expect_pass(*state, without(*state, store, "tma_store", "bulk_wait(0);", "bulk_wait(0, read); s[0] = 0;"));
}

// Consecutive elements come, are doubled, and go.
static const char line[] = "kernel k(x: bf16[512], y: inout bf16[512]) {\n"
                           "    grid (g in 1) threads 32 {\n"
                           "        shared s: bf16[512] @align(128), full: mbarrier[1];\n"
                           "        thread (t in 32) {\n"
                           "            if (t == 0) {\n"
                           "                mbarrier_init(full[0], 1);\n"
                           "                fence_mbarrier_init();\n"
                           "                mbarrier_expect(full[0], 1008);\n"
                           "                bulk_load(s[8], x[8], full[0], 504);\n"
                           "            }\n"
                           "            warp_sync();\n"
                           "            mbarrier_wait(full[0], 0);\n"
                           "            for (j in t + 8 .. 512 step 32) s[j] = s[j] * 2;\n"
                           "            fence_async();\n"
                           "            warp_sync();\n"
                           "            if (t == 0) {\n"
                           "                bulk_store(y[8], s[8], 504);\n"
                           "                bulk_commit();\n"
                           "                bulk_wait(0);\n"
                           "            }\n"
                           "        }\n"
                           "    }\n"
                           "}\n"
                           "reference k { for (j in 8 .. 512) y[j] = 2 * x[j]; }\n"
                           "test k () tolerance 0;\n";

static void lines_are_waited_for(void **state) {
    expect_pass(*state, line);
    expect_report(*state, without(*state, line, "bulk_load", "mbarrier_wait(full[0], 0);", ""), "T0708");
    expect_report(*state, without(*state, line, "bulk_load", "warp_sync();", ""), "T0701");   // on the barrier itself
    expect_report(*state, without(*state, line, "init();", "1008", "992"), "T07");
    expect_report(*state, without(*state, line, "init();", "1008", "1024"), "T0705");
    expect_report(*state, without(*state, line, "warp_sync", "mbarrier_wait", "s[t + 8] = 0; mbarrier_wait"), "T0709");
    expect_report(*state, without(*state, line, "bulk_load", "s[8], x", "s[t + 16], x"), "T0703");   // too long
    expect_report(*state, without(*state, line, "bulk_load", "x[8]", "x[16]"), "T0703");
    expect_report(*state, without(*state, line, "bulk_load", "x[8]", "x[4]"), "T0711");   // no multiple of 16 bytes
    expect_report(*state, without(*state, line, "for (j", "fence_async();", ""), "T0726");
    expect_report(*state, without(*state, line, "for (j", "warp_sync();", ""), "T0701");
    expect_report(*state, without(*state, line, "bulk_store", "bulk_wait(0);", ""), "T0724");
    expect_report(*state, without(*state, line, "bulk_store", "bulk_commit();", ""), "T0724");
    expect_report(*state, without(*state, line, "bulk_store", "bulk_wait(0);", "s[8] = 0; bulk_wait(0);"), "T0701");
    expect_report(*state, without(*state, line, "bulk_store", "bulk_wait(0);", "bulk_wait(0, read); s[8] = y[8];"),
                  "T0701");
    expect_pass(*state, without(*state, line, "bulk_store", "bulk_wait(0);", "bulk_wait(0, read); s[8] = 0;"));
}

// From one tensor to another: between accesses of the asynchronous units no fence is needed.
static const char tma_round_trip[] =
    "kernel k(x: f32[16, 32], y: out f32[16, 32], x_map: tensormap @tma(x, \"32,16\", 128),\n"
    "         y_map: tensormap @tma(y, \"32,16\", 128)) {\n"
    "    grid (g in 1) threads 32 {\n"
    "        shared s: f32[16, 32] @align(1024), full: mbarrier[1];\n"
    "        thread (t in 32) {\n"
    "            if (t == 0) {\n"
    "                mbarrier_init(full[0], 1);\n"
    "                fence_mbarrier_init();\n"
    "                mbarrier_expect(full[0], 2048);\n"
    "                tma_load(s[0, 0], x_map, full[0], 0, 0);\n"
    "                mbarrier_wait(full[0], 0);\n"
    "                tma_store(y_map, s[0, 0], 0, 0);\n"
    "                bulk_commit();\n"
    "                bulk_wait(0, read);\n"
    "            }\n"
    "        }\n"
    "    }\n"
    "}\n"
    "reference k { for (i in 16, j in 32) y[i, j] = x[i, j]; }\n"
    "test k () tolerance 0;\n";

static void units_see_each_other(void **state) {
    expect_pass(*state, tma_round_trip);
    expect_report(*state, without(*state, tma_round_trip, "tma_load", "mbarrier_wait(full[0], 0);", ""), "T0708");
    expect_report(
        *state,
        without(*state, tma_round_trip, "tma_store", "bulk_wait(0, read);", "tma_load(s[0, 0], x_map, full[0], 0, 0);"),
        "T07");
}

// ---- mistakes ----
// A ring of two stages: warp 4 loads, a warpgroup adds what it finds and hands the stage back.
static const char ring[] =
    "kernel k(x: bf16[64, K], w: bf16[8, K], y: out f32[64, 8], x_map: tensormap @tma(x, \"16,64\", 32),\n"
    "         w_map: tensormap @tma(w, \"16,8\", 32)) {\n"
    "    grid (g in 1) threads 160 {\n"
    "        shared a: bf16[2, 64, 16] @align(1024), b: bf16[2, 8, 16] @align(1024);\n"
    "        shared full: mbarrier[2], empty: mbarrier[2];\n"
    "        thread (t in 160) {\n"
    "            if (t == 0) {\n"
    "                for (s in 2) { mbarrier_init(full[s], 1); mbarrier_init(empty[s], 1); }\n"
    "                fence_mbarrier_init();\n"
    "            }\n"
    "            barrier();\n"
    "        }\n"
    "        role multiply threads 128 {\n"
    "            thread (t in 128) {\n"
    "                local acc: f32[4];\n"
    "                for (k in ceildiv(K, 16)) {\n"
    "                    mbarrier_wait(full[k % 2], k / 2 % 2);\n"
    "                    wgmma_fence();\n"
    "                    wgmma(m64n8k16_f32_bf16, a[k % 2, 0, 0], b[k % 2, 0, 0], acc[0], steps = 1, a_form = k32,\n"
    "                          a_lead = 16, a_stride = 256, a_step = 32, b_form = k32, b_lead = 16, b_stride = 256,\n"
    "                          b_step = 32, accumulate = k != 0);\n"
    "                    wgmma_commit();\n"
    "                    wgmma_wait(0);\n"
    "                    if (t == 0) mbarrier_arrive(empty[k % 2]);\n"
    "                }\n"
    "                unroll (i in 4) y[t / 32 * 16 + t % 32 / 4 + i / 2 * 8, t % 4 * 2 + i % 2] = acc[i];\n"
    "            }\n"
    "        }\n"
    "        role load threads 32 {\n"
    "            thread (t in 32) {\n"
    "                if (t == 0) {\n"
    "                    for (k in ceildiv(K, 16)) {\n"
    "                        mbarrier_wait(empty[k % 2], k / 2 % 2 ^ 1);\n"
    "                        mbarrier_expect(full[k % 2], 2304);\n"
    "                        tma_load(a[k % 2, 0, 0], x_map, full[k % 2], k * 16, 0);\n"
    "                        tma_load(b[k % 2, 0, 0], w_map, full[k % 2], k * 16, 0);\n"
    "                    }\n"
    "                }\n"
    "            }\n"
    "        }\n"
    "    }\n"
    "}\n"
    "reference k { for (i in 64, j in 8) { y[i, j] = 0; for (k in K) y[i, j] += x[i, k] * w[j, k]; } }\n"
    "test k (K = 16) tolerance 1e-3;\n"
    "test k (K = 136) tolerance 1e-3;\n";

#define CHANGED(what, by) without(*state, ring, "kernel", what, by)

static void rings_hand_stages_over(void **state) {
    expect_pass(*state, ring);
    expect_report(*state, CHANGED("mbarrier_arrive(empty[k % 2]);", "{}"), "T0705");   // deadlock
    expect_report(*state, CHANGED("mbarrier_wait(empty[k % 2], k / 2 % 2 ^ 1);", ""), "T07");
    // a stage is given back before the product has read it: no schedule shows it in the result
    expect_report(*state,
                  CHANGED("wgmma_wait(0);\n                    if (t == 0) mbarrier_arrive(empty[k % 2]);",
                          "if (t == 0) mbarrier_arrive(empty[k % 2]);\n wgmma_wait(0);"),
                  "T0701");
    expect_pass(*state,
                CHANGED("mbarrier_arrive(empty[k % 2])", "mbarrier_arrive(empty[1 - k % 2])"));   // waits for more
    expect_report(*state, CHANGED("if (t == 0) mbarrier_arrive(empty", "if (t < 2) mbarrier_arrive(empty"), "T07");
    expect_report(*state, CHANGED("a[k % 2, 0, 0], x_map", "a[0, 0, 0], x_map"), "T07");         // another stage
    expect_report(*state, CHANGED("b[k % 2, 0, 0], w_map", "a[k % 2, 0, 0], w_map"), "T0701");   // both to one place
    expect_report(*state, CHANGED("mbarrier_wait(full[k % 2], k / 2 % 2)", "mbarrier_wait(full[k % 2], 1)"), "T07");
    expect_report(*state,
                  CHANGED("mbarrier_wait(full[k % 2], k / 2 % 2)", "if (t < 32) mbarrier_wait(full[k % 2], k / 2 % 2)"),
                  "T0701");   // not for all warps
    expect_report(*state, CHANGED("2304", "2048"), "T0725");
    expect_report(*state, CHANGED("2304", "2560"), "T0705");
    expect_report(*state, CHANGED("mbarrier_expect(full[k % 2], 2304);", "mbarrier_arrive(full[k % 2]);"), "T0725");
    expect_report(*state, CHANGED("fence_mbarrier_init();", ""), "T0734");
    expect_report(*state,
                  CHANGED("                fence_mbarrier_init();\n            }\n            barrier();\n",
                          "}\n barrier();\n if (t == 0) fence_mbarrier_init();\n"),
                  "T0734");   // too late
    expect_report(*state, CHANGED("if (t == 0) {\n                    for (k", "{\n                    for (k"), "T07");
}

static void registers_belong_to_the_product(void **state) {
    expect_report(*state, CHANGED("wgmma_wait(0);", "wgmma_wait(1);"), "T0729");
    expect_report(*state, CHANGED("wgmma_commit();", ""), "T07");
    expect_report(*state, CHANGED("wgmma_fence();", ""), "T0730");
    expect_report(*state, CHANGED("wgmma_fence();", "if (k == 0) wgmma_fence();"), "T0730");
    expect_report(*state, CHANGED("accumulate = k != 0", "accumulate = true"), "T0702");   // nothing was stored yet
    expect_report(*state, CHANGED("wgmma_wait(0);", "acc[0] = 0; wgmma_wait(0);"), "T0729");
    expect_report(*state, CHANGED("wgmma_wait(0);", "if (t >= 32) wgmma_wait(0);"), "T07");
    expect_report(*state, CHANGED("wgmma_commit();", "if (t >= 32) wgmma_commit();"), "T07");
    expect_report(*state, CHANGED("wgmma(m64", "if (t >= 32) wgmma(m64"), "T07");   // a warp stays away
    expect_report(*state, CHANGED("wgmma(m64", "if (t != 5) wgmma(m64"), "T0704");
    expect_report(*state, CHANGED("a[k % 2, 0, 0], b", "a[(k + t / 32) % 2, 0, 0], b"), "T0732");
    expect_report(
        *state,
        CHANGED("role multiply threads 128 {\n            thread (t in 128)",
                "role idle threads 32 { thread (t in 32) { } } role multiply threads 128 {\n thread (t in 128)"),
        "T0732");   // four warps, but not of one aligned group
}

// A in registers, B stored by threads: core matrices of 8 rows by 16 bytes.
static const char stored[] =
    "kernel k(x: bf16[64, 16], w: bf16[8, 16], y: out f32[64, 8]) {\n"
    "    grid (g in 1) threads 128 {\n"
    "        shared b: bf16[2, 8, 8] @align(1024);\n"
    "        thread (t in 128) {\n"
    "            local acc: f32[4], a: bf16[8];\n"
    "            for (n in 2) {\n"
    "                b[t / 64, t / 8 % 8, t % 8] = w[t / 8 % 8, t / 64 * 8 + t % 8];\n"
    "                unroll (i in 8) a[i] = x[t / 32 * 16 + t % 32 / 4 + i / 2 % 2 * 8, t % 4 * 2 + i % 2 + i / 4 * 8];\n"
    "                fence_async();\n"
    "                barrier();\n"
    "                wgmma_fence();\n"
    "                wgmma(m64n8k16_f32_bf16, a[0], b[0, 0, 0], acc[0], steps = 1, b_form = k0, b_lead = 128,\n"
    "                      b_stride = 256, b_step = 32, accumulate = n == 1);\n"
    "                wgmma_commit();\n"
    "                wgmma_wait(0);\n"
    "                barrier();\n"
    "            }\n"
    "            unroll (i in 4) y[t / 32 * 16 + t % 32 / 4 + i / 2 * 8, t % 4 * 2 + i % 2] = acc[i];\n"
    "        }\n"
    "    }\n"
    "}\n"
    "reference k { for (i in 64, j in 8) { y[i, j] = 0; for (k in 16) y[i, j] += 2 * x[i, k] * w[j, k]; } }\n"
    "test k () tolerance 1e-3;\n";

static void stores_are_fenced_for_products(void **state) {
    expect_pass(*state, stored);
    expect_pass(*state, without(*state, stored, "wgmma_wait", "barrier();", ""));   // a wait is for the whole warpgroup
    expect_report(*state, without(*state, stored, "kernel", "fence_async();", ""), "T0726");
    expect_report(
        *state,
        without(*state, stored, "kernel", "fence_async();\n                barrier();", "barrier();\nfence_async();"),
        "T0726");   // too late: others were told before
    expect_report(*state, without(*state, stored, "kernel", "barrier();", ""), "T0701");
    expect_report(*state, without(*state, stored, "kernel", "wgmma_fence();", ""), "T0730");
    expect_report(
        *state, without(*state, stored, "kernel", "wgmma_wait(0);", "b[t / 64, t / 8 % 8, t % 8] = 0; wgmma_wait(0);"),
        "T0701");
    expect_report(*state, without(*state, stored, "kernel", "wgmma_wait(0);", "a[0] = 0; wgmma_wait(0);"), "T0729");
}

// ---- random programs against the definition ----
//
// Straight-line programs of 64 threads on two areas of shared memory, and what they mean as a graph: a node for each
// event, one more for what a unit does by itself. A copy follows the event that starts it; a wait follows the copy; all
// events of a thread follow each other; a barrier is all threads'. Wrong are accesses to one area (not both reads)
// without a path between them, and a unit's access after a thread's store without a fence of that thread on the way
// from one to the other.
typedef enum { READS, WRITES, FENCES, BARRIERS, LOADS, AWAITS, STORES, DONE, KINDS } Kind;

typedef struct Event {
    Kind kind;
    int thread, area;   // AWAITS: the event of the load
} Event;

enum { MOST_EVENTS = 12, NODES = 2 * MOST_EVENTS, PROGRAMS = 600 };

typedef struct Graph {
    int count;   // of events; node count + i is what the unit does for event i
    Event events[MOST_EVENTS];
    bool path[NODES][NODES];
} Graph;

static int below(uint64_t *state, int bound) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (int)((*state >> 33) % (uint64_t)bound);
}

static void random_events(uint64_t *random, Graph *g) {
    static const int threads[] = {0, 1, 33, 40};   // of each warp the first one copies
    static const Kind kinds[] = {READS,    WRITES, WRITES, FENCES, FENCES, BARRIERS, BARRIERS, BARRIERS,
                                 BARRIERS, LOADS,  AWAITS, AWAITS, STORES, STORES,   DONE,     DONE};
    g->count = 2 + below(random, MOST_EVENTS - 1);
    for (int i = 0; i < g->count; i++) {
        Event *e = &g->events[i];
        *e = (Event){kinds[below(random, COUNT_OF(kinds))], threads[below(random, 4)], below(random, 2)};
        if (e->kind >= LOADS && e->kind != AWAITS) e->thread = e->thread < 32 ? 0 : 33;
        if (e->kind != AWAITS) continue;
        int loads[MOST_EVENTS], count = 0;
        for (int k = 0; k < i; k++)
            if (g->events[k].kind == LOADS) loads[count++] = k;
        if (count) e->area = loads[below(random, count)];
        else e->kind = FENCES;
    }
}

static void find_paths(Graph *g) {
    int n = g->count;
    memset(g->path, 0, sizeof g->path);
    for (int i = 0; i < n; i++) {
        const Event *x = &g->events[i];
        g->path[i][n + i] = true;
        for (int k = i + 1; k < n; k++) {
            const Event *y = &g->events[k];
            bool shared = x->kind == BARRIERS || y->kind == BARRIERS;
            g->path[i][k] |= shared || x->thread == y->thread;
            g->path[n + i][k] |= x->kind == LOADS && y->kind == AWAITS && y->area == i;
            g->path[n + i][k] |= x->kind == STORES && y->kind == DONE && y->thread == x->thread;
        }
    }
    for (int via = 0; via < 2 * n; via++)
        for (int a = 0; a < 2 * n; a++)
            for (int b = 0; b < 2 * n; b++) g->path[a][b] |= g->path[a][via] && g->path[via][b];
}

// The access of a node: its area, or -1.
static int access_of(const Graph *g, int node, bool *writes) {
    const Event *e = &g->events[node % g->count];
    bool unit = node >= g->count;
    *writes = unit ? e->kind == LOADS : e->kind == WRITES;
    if (unit) return e->kind == LOADS || e->kind == STORES ? e->area : -1;
    return e->kind == READS || e->kind == WRITES ? e->area : -1;
}

static bool is_last_write(const Graph *g, int write, int before, int area) {
    bool writes;
    for (int node = 0; node < 2 * g->count; node++)
        if (access_of(g, node, &writes) == area && writes && g->path[write][node] && g->path[node][before])
            return false;
    return true;
}

static bool fenced(const Graph *g, int write, int unit) {
    for (int f = 0; f < g->count; f++)
        if (g->events[f].kind == FENCES && g->events[f].thread == g->events[write].thread && f > write &&
            g->path[f][unit])
            return true;
    return false;
}

typedef enum { RIGHT, UNFENCED, UNORDERED, VERDICTS } Verdict;

static Verdict verdict(const Graph *g) {
    Verdict worst = RIGHT;
    for (int a = 0; a < 2 * g->count; a++)
        for (int b = 0; b < 2 * g->count; b++) {
            bool a_writes, b_writes;
            int area = access_of(g, a, &a_writes);
            if (a == b || area < 0 || access_of(g, b, &b_writes) != area || !(a_writes || b_writes)) continue;
            if (!g->path[a][b] && !g->path[b][a]) return UNORDERED;
            if (a < g->count && a_writes && b >= g->count && g->path[a][b] && is_last_write(g, a, b, area) &&
                !fenced(g, a, b))
                worst = UNFENCED;
        }
    return worst;
}

static const char *events_text(Arena *arena, const Graph *g) {
    StrBuf sb;
    sb_init(&sb, arena);
    for (int i = 0; i < g->count; i++) {
        const Event *e = &g->events[i];
        if (e->kind == BARRIERS) sb_str(&sb, "barrier();\n");
        else sb_printf(&sb, "if (t == %d) { ", e->thread);
        switch (e->kind) {
        case READS: sb_printf(&sb, "v += s[%d, 0]; }\n", e->area); break;
        case WRITES: sb_printf(&sb, "s[%d, 0] = 1; }\n", e->area); break;
        case FENCES: sb_str(&sb, "fence_async(); }\n"); break;
        case LOADS:
            sb_printf(&sb, "mbarrier_expect(full[%d], 128); tma_load(s[%d, 0], x_map, full[%d], 0); }\n", i, e->area,
                      i);
            break;
        case AWAITS: sb_printf(&sb, "mbarrier_wait(full[%d], 0); }\n", e->area); break;
        case STORES: sb_printf(&sb, "tma_store(z_map, s[%d, 0], 0, %d); bulk_commit(); }\n", e->area, i); break;
        case DONE: sb_str(&sb, "bulk_wait(0, read); }\n"); break;
        default: break;
        }
    }
    sb_str(&sb, "if (t == 0 || t == 33) bulk_wait(0, read);\nbarrier();\n");   // nothing is left behind
    for (int i = 0; i < g->count; i++)
        if (g->events[i].kind == LOADS) sb_printf(&sb, "if (t == 0) mbarrier_wait(full[%d], 0);\n", i);
    return sb_text(&sb);
}

static void programs_are_wrong_exactly_by_definition(void **state) {
    uint64_t random = 11;
    int seen[VERDICTS] = {0};
    for (int n = 0; n < PROGRAMS; n++) {
        Graph g;
        random_events(&random, &g);
        find_paths(&g);
        const char *source =
            arena_printf(*state,
                         "kernel k(x: f32[32], y: out f32[64], z: inout f32[%d, 32],\n"
                         "         x_map: tensormap @tma(x, \"32\", 0), z_map: tensormap @tma(z, \"32,1\", 0)) {\n"
                         "  grid (b in 1) threads 64 {\n"
                         "    shared s: f32[2, 32] @align(128), full: mbarrier[%d];\n"
                         "    thread (t in 64) {\n"
                         "      var v: f32 = 0;\n"
                         "      s[t / 32, t %% 32] = 0;\n"
                         "      fence_async();\n"
                         "      if (t == 0) { for (i in %d) mbarrier_init(full[i], 1); fence_mbarrier_init(); }\n"
                         "      barrier();\n%s"
                         "      y[t] = v;\n"
                         "    }\n"
                         "  }\n"
                         "}\n"
                         "reference k { for (i in 64) y[i] = 1; }\n"
                         "test k () tolerance 1e9;\n",
                         MOST_EVENTS, MOST_EVENTS, MOST_EVENTS, events_text(*state, &g));
        Verdict expected = verdict(&g);
        Outcome out = run_source(*state, source, (uint64_t)n);
        bool fits = out.passed == (expected == RIGHT) && (expected != UNFENCED || strstr(out.text, "T0726"));
        if (!fits) fail_msg("expected verdict %d: %s\n%s\n%s", expected, out.last.why, source, out.text);
        seen[expected]++;
    }
    for (int i = 0; i < VERDICTS; i++) assert_in_range(seen[i], PROGRAMS / 40, PROGRAMS);   // all kinds are there
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_ARENA(sixteen_bit_types_in_every_form),
        IN_ARENA(other_types_with_k_contiguous),
        IN_ARENA(every_n),
        IN_ARENA(boxes_land_where_the_swizzle_puts_them),
        IN_ARENA(boxes_are_waited_for),
        IN_ARENA(lines_are_waited_for),
        IN_ARENA(units_see_each_other),
        IN_ARENA(rings_hand_stages_over),
        IN_ARENA(registers_belong_to_the_product),
        IN_ARENA(stores_are_fenced_for_products),
        IN_ARENA(programs_are_wrong_exactly_by_definition),
    };
    return run(tests);
}
