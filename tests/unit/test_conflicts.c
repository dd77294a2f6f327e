// What accesses cost. Bank conflicts, three ways: as swizzle-allocation predicts them for each access
// (passes/analysis/shared_access.h, which counts with layout/cost.h), by the ranks of linear layouts, and as the
// emulator counts them while a program runs. Sectors of global memory, vector widths and shuffles the same way.
#include "tests/unit/emulator_unit.h"

#include "ir/query.h"
#include "layout/calculator/access_cost.h"
#include "layout/calculator/conversion.h"
#include "layout/calculator/linear_text.h"
#include "passes/analysis/shared_access.h"
#include "passes/pass.h"
#include "tools/test_runner.h"
#include <dirent.h>

// ---- predictions, by kernel, lines of the statement and buffer ----

typedef struct Prediction {
    const Func *kernel;
    int line, last;   // a loop's body has more lines
    const char *buffer;
    bool exact;
    AccessCost cost;
} Prediction;
typedef VEC(Prediction) Predictions;

static int last_line(const Stmt *stmt) {
    int last = stmt->loc.line;
    FOR_EACH_STMT_IN (below, stmt)
        if (below->loc.line > last) last = below->loc.line;
    return last;
}

static void predict(Module *module, const Target *target, Predictions *out) {
    PassContext context = {.module = module, .arena = module->arena, .failure = module->failure, .sink = module->sink};
    context.target = target;
    for (int f = 0; f < module->funcs.count; f++) {
        Func *kernel = module->funcs.items[f];
        SharedAccessVec accesses = {0};
        if (kernel->kind == FUNC_KERNEL) shared_accesses(&context, kernel, &accesses);
        for (int i = 0; i < accesses.count; i++) {
            const SharedAccess *access = &accesses.items[i];
            Prediction now = {kernel,
                              access->stmt->loc.line,
                              last_line(access->stmt),
                              access->buf->name,
                              access->exact,
                              access_cost(target, access, access->buf->layout, INT64_MAX)};
            vec_push(module->arena, out, now);
        }
    }
}

// Those of one line and buffer together: all exact, and no conflicts.
typedef struct Found {
    int count;
    bool exact, conflicts;
    const Prediction *last;
} Found;

// `within`: lines of a loop's body count as the loop's.
static Found find_predictions(const Predictions *all, const Func *kernel, int line, const char *buffer, bool within) {
    Found found = {.exact = true};
    for (int i = 0; i < all->count; i++) {
        const Prediction *p = &all->items[i];
        bool inside = p->line == line || (within && p->line < line && line <= p->last);
        if (p->kernel != kernel || !inside || strcmp(p->buffer, buffer) != 0) continue;
        found.count++;
        found.exact &= p->exact;
        found.conflicts |= p->cost.conflicts > 0;
        found.last = p;
    }
    return found;
}

static bool run_to(Module *module, const Target *target, const char *stop_after) {
    PassOptions options = {.stop_after = stop_after, .bisect_limit = -1};
    return run_passes(module, target, &options, NULL);
}

// ---- whole programs: where no conflicts are predicted, none are counted ----

typedef struct Programs {
    Loader loader;
    bool is_example;   // of which every access is predicted, and without conflicts
    int sites;
} Programs;

// Conflicts that examples have, and explain: of the parts that blocks of a cluster read from each other (gemm.tile,
// gemm_split_k.tile, convolutions that are split likewise, long rows of cross_entropy.tile), of sums in f32 on their way to TMA
// (gemm_split_k.tile), of queries of several heads that threads store, one time a CTA, into the panels that wgmma takes
// (attention.tile, head dim 80), of weights and sums that a role hands to another as its threads hold them, element by
// element (attention_backward.tile, attention_backward_ordered.tile), of the ends of rows behind a tensor's last whole box, stored element by
// element (gemm*.tile, @via(vector_store)), and of a triangular system whose blocks are read by rows and by columns (gated_delta_rule.tile).
static bool is_explained(const Func *kernel, const char *buffer) {
    bool split = strcmp(kernel->name, "gemm") == 0 || strcmp(kernel->name, "whole_gemm") == 0 ||
                 strncmp(kernel->name, "convolution", strlen("convolution")) == 0;
    bool sums = strcmp(kernel->name, "gemm_split_k_sums") == 0 ||
                strncmp(kernel->name, "add_partials", strlen("add_partials")) == 0;
    bool solves = strncmp(kernel->name, "delta_solve", strlen("delta_solve")) == 0 ||
                  strcmp(kernel->name, "gated_delta_rule") == 0;
    if (solves && (strcmp(buffer, "T") == 0 || strcmp(buffer, "M") == 0 || strcmp(buffer, "Z") == 0)) return true;
    if (strncmp(kernel->name, "attention_pieces", strlen("attention_pieces")) == 0 && strcmp(buffer, "Qs") == 0)
        return true;
    bool by_elements = strcmp(kernel->name, "keys__D_256") == 0 ||
                       strncmp(kernel->name, "gradients__", strlen("gradients__")) == 0 ||
                       strncmp(kernel->name, "attention_backward", strlen("attention_backward")) == 0;
    static const char *const handed[] = {"p", "a", "a_1", "added"};
    for (int i = 0; by_elements && i < COUNT_OF(handed); i++)
        if (strcmp(buffer, handed[i]) == 0) return true;
    if (strncmp(buffer, "row_stage", strlen("row_stage")) == 0 || strncmp(buffer, "row_tail", strlen("row_tail")) == 0)
        return true;
    if (strcmp(kernel->name, "cross_entropy") == 0 && strcmp(buffer, "partial") == 0) return true;
    return (split && strcmp(buffer, "slice") == 0) || (sums && strcmp(buffer, "stage") == 0);
}

static void check_site(Programs *p, const Predictions *predictions, const Func *kernel, const EmuSite *site) {
    if (p->is_example && is_explained(kernel, site->buffer)) return;
    Found found = find_predictions(predictions, kernel, site->place.line, site->buffer, false);
    if (found.count == 0 && p->is_example)
        found = find_predictions(predictions, kernel, site->place.line, site->buffer, true);
    bool free = found.count > 0 && !found.conflicts && (found.exact || p->is_example);
    if (p->is_example && !free)
        fail_msg("%s:%u: %s is not predicted to be free", kernel->name, site->place.line, site->buffer);
    if (!free) return;
    p->sites++;
    if (site->conflicts)
        fail_msg("%s:%u: %lld conflicts in %lld accesses of %s", kernel->name, site->place.line,
                 (long long)site->conflicts, (long long)site->accesses, site->buffer);
}

static void check_test(Programs *p, Module *module, const Predictions *predictions, const Test *test) {
    EmuOptions options = {.seed = 1, .target = p->loader.target};
    EmuReport report = {0};
    TestCase made;
    assert_true(test_case_make(module, test, &options, &made));
    const Func *func = emulate_choose(module, test->name, made.count, made.args);
    assert_non_null(func);
    assert_true(emulate_func(module, func, made.count, made.args, &options, &report));
    int64_t counted = 0;
    for (int i = 0; i < report.site_count; i++) {
        const EmuSite *site = &report.sites[i];
        counted += site->conflicts;
        if (p->is_example && site->conflicts && !is_explained(func, site->buffer))
            fail_msg("%s: %u: %lld conflicts of %s", func->name, site->place.line, (long long)site->conflicts,
                     site->buffer);
    }
    assert_int_equal(counted, report.conflicts);
    if (func->kind != FUNC_KERNEL) return;   // a program: the variants of its kernels are chosen inside
    for (int i = 0; i < report.site_count; i++) check_site(p, predictions, func, &report.sites[i]);
}

static bool check_choice(void *user, const TestChoice *choice) {
    Programs *p = user;
    Predictions predictions = {0};
    Module *module = load_module(&p->loader, p->loader.arena, choice->define_count, choice->defines, NULL);
    if (!module) fail_msg("%s", diag_view(p->loader.sink, 0).message);
    assert_true(run_to(module, p->loader.target, "swizzle-allocation"));
    predict(module, p->loader.target, &predictions);
    assert_true(run_to(module, p->loader.target, NULL));
    for (int i = 0; i < predictions.count && p->is_example; i++) {
        const Prediction *q = &predictions.items[i];
        if (q->cost.conflicts && !is_explained(q->kernel, q->buffer))
            fail_msg("%s:%u: %s is predicted to conflict", q->kernel->name, q->line, q->buffer);
    }
    for (int t = 0; t < module->tests.count; t++) check_test(p, module, &predictions, module->tests.items[t]);
    return true;
}

static int check_file(const char *path, const char *target, bool is_example) {
    Failure failure;
    if (FAILURE_CAUGHT(&failure)) fail_msg("%s", failure.message);
    Programs p = {.is_example = is_example};
    Arena *arena = arena_new(libc_allocator, &failure);
    p.loader = (Loader){.arena = arena, .failure = &failure, .sink = diag_sink_new(arena)};
    p.loader.target = target_named(target);
    assert_true(loader_open(&p.loader, path));
    assert_true(test_choices(&p.loader, 0, NULL, check_choice, &p));
    arena_free(arena);
    return p.sites;
}

static void check_folder(Arena *arena, const char *folder, const char *target, bool are_examples) {
    DIR *dir = opendir(folder);
    int sites = 0;
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir));) {
        size_t length = strlen(entry->d_name);
        if (length < 6 || strcmp(entry->d_name + length - 5, ".tile") != 0) continue;
        sites += check_file(arena_printf(arena, "%s/%s", folder, entry->d_name), target, are_examples);
    }
    closedir(dir);
    assert_true(sites > 40);
}

static void examples_have_no_conflicts(void **state) {
    check_folder(*state, TILEC_SOURCE_DIR "/examples", "sm_80", true);
    check_folder(*state, TILEC_SOURCE_DIR "/examples", "sm_90a", true);
}

static void programs_have_none_where_none_are_predicted(void **state) {
    check_folder(*state, TILEC_SOURCE_DIR "/tests/programs", "sm_80", false);
}

// ---- fixed layouts, good and bad: as many conflicts an access as predicted ----

static uint64_t next(uint64_t *random) {
    *random = *random * 6364136223846793005u + 1442695040888963407u;
    return *random >> 33;
}

static const char *random_layout(Arena *arena, uint64_t *random, int rows, int columns, int bits) {
    int vector = 128 / bits, bytes = rows * columns * bits / 8;
    switch (next(random) % 3) {
    case 0: return arena_printf(arena, "(%d,%d):(%d,1)", rows, columns, columns + vector * (int)(next(random) % 4));
    case 1: return arena_printf(arena, "(%d,%d):(1,%d)", rows, columns, rows);
    default: {
        int swizzle = 1 + (int)(next(random) % 3), base = 3 + (int)(next(random) % 4);
        int shift = swizzle + (int)(next(random) % 3);
        if (bytes % (1 << (swizzle + base + shift))) return "(16,32):(32,1)";
        return arena_printf(arena, "Sw<%d,%d,%d> o (%d,%d):(%d,1)", swizzle, base, shift, rows, columns, columns);
    }
    }
}

static const char fixed[] = "kernel k(x: %s[32, 64], y: out %s[32, 64], z: out %s[64, 32]) {\n"
                            "    grid (i in 2, j in 2) threads %d {\n"
                            "        shared s: %s[16, 32] layout \"%s\";\n"
                            "        fragment f: %s[16, 32];\n"
                            "        copy(x[i * 16, j * 32], f);\n"
                            "        copy(f, s);\n"
                            "        copy(s, y[i * 16, j * 32]);\n"
                            "        copy(s.T, z[j * 32, i * 16]);\n"
                            "    }\n"
                            "}\n"
                            "reference k { for (i in 32, j in 64) { y[i, j] = x[i, j]; z[j, i] = x[i, j]; } }\n"
                            "test k () { for (i in 32, j in 64) x[i, j] = (i * 5 + j) %% 50; } tolerance 0;\n";

typedef struct Tally {
    int checked, conflicting;
} Tally;

// Runs the source and compares each access of `s` in the first variant, which whole tiles take.
static void check_fixed(Arena *arena, Failure *failure, const char *source, const char *layout, Tally *tally) {
    const Target *target = target_named("sm_80");
    Module *module = module_of(arena, failure, source);
    Predictions predictions = {0};
    EmuOptions options = {.seed = 1, .races = true, .target = target};
    EmuTestResult result;
    assert_true(run_to(module, target, "swizzle-allocation"));
    predict(module, target, &predictions);
    assert_true(run_to(module, target, NULL));
    if (!emulate_test(module, module->tests.items[0], &options, &result)) fail_msg("%s\n%s", result.why, source);
    for (int i = 0; i < result.report.site_count; i++) {
        const EmuSite *site = &result.report.sites[i];
        Found found = find_predictions(&predictions, module->funcs.items[0], site->place.line, "s", false);
        if (found.count != 1) continue;
        const AccessCost *cost = &found.last->cost;
        tally->checked++;
        tally->conflicting += site->conflicts > 0;
        if (cost->conflicts * site->accesses != site->conflicts * cost->accesses)
            fail_msg("%s line %u: predicted %lld in %lld, counted %lld in %lld\n%s", layout, site->place.line,
                     (long long)cost->conflicts, (long long)cost->accesses, (long long)site->conflicts,
                     (long long)site->accesses, source);
    }
}

static void fixed_layouts_cost_what_is_predicted(void **state) {
    static const char *const types[] = {"f32", "f16", "i8"};
    static const int bits[] = {32, 16, 8};
    uint64_t random = 5;
    Tally tally = {0};
    Failure failure;
    if (FAILURE_CAUGHT(&failure)) fail_msg("%s", failure.message);
    for (int trial = 0; trial < 60; trial++) {
        const char *layout = random_layout(*state, &random, 16, 32, bits[trial % 3]), *e = types[trial % 3];
        const char *source = arena_printf(*state, fixed, e, e, e, 32 << trial % 4, e, layout, e);
        check_fixed(*state, &failure, source, layout, &tally);
    }
    assert_true(tally.checked > 150 && tally.conflicting > 40);
}

// ---- random linear layouts: ranks, enumeration and the emulator ----

static const char linear_read[] = "kernel k(y: out f32[32]) {\n"
                                  "    grid (b in 1) threads 32 {\n"
                                  "        shared s: %s[1024];\n"
                                  "        thread (lane in 32) {\n"
                                  "            local v: %s[%d];\n"
                                  "            unroll (i in 32) s[i * 32 + lane] = 1;\n"
                                  "            barrier();\n"
                                  "            vload(v[0], s[%s], %d);\n"
                                  "            y[lane] = v[0];\n"
                                  "        }\n"
                                  "    }\n"
                                  "}\n"
                                  "reference k { for (i in 32) y[i] = 1; }\n"
                                  "test k () tolerance 0;\n";

enum { OFFSET_BITS = 10, LANE_BITS = 5 };

// (register, lane) -> offset: 2^run registers are consecutive, lanes go anywhere, also to one place.
static Linear random_access(LayoutContext *cx, uint64_t *random, int run) {
    const LinearDim ins[] = {{"register", run}, {"lane", LANE_BITS}}, out = {"offset", OFFSET_BITS};
    uint64_t columns[16];
    for (int i = 0; i < run; i++) columns[i] = (uint64_t)1 << i;
    for (int i = run; i < run + LANE_BITS; i++)
        columns[i] = next(random) % 4 ? next(random) % (1 << OFFSET_BITS) >> run << run : 0;
    return linear_make(cx, ins, 2, &out, 1, columns);
}

static SharedCost counted_cost(Linear access, int bytes, int element_bytes, MemoryShape memory) {
    int64_t addresses[1 << LANE_BITS];
    for (int lane = 0; lane < 1 << LANE_BITS; lane++) {
        int64_t in[] = {0, lane}, out;
        linear_apply(access, in, &out);
        addresses[lane] = out * element_bytes;
    }
    return shared_cost_counted(addresses, 1 << LANE_BITS, bytes, memory);
}

static int64_t emulated_conflicts(Arena *arena, LayoutContext *cx, Linear access, const char *element, int count) {
    const char *lane = "lane", *offset = "offset";
    const char *code = linear_code(cx, linear_sublayout(cx, access, &lane, 1, &offset, 1), 0);
    Outcome outcome = run_source(arena, arena_printf(arena, linear_read, element, element, count, code, count), 1);
    if (!outcome.passed) fail_msg("%s", outcome.text);
    return outcome.last.report.conflicts;
}

static void ranks_enumeration_and_the_emulator_agree(void **state) {
    static const struct {
        const char *element;
        int bytes, most_run;
    } types[] = {{"f32", 4, 2}, {"f16", 2, 3}, {"f64", 8, 1}};
    const Target *target = target_named("sm_80");
    const MemoryShape memory = {target->banks, target->bank_bytes, target->sector_bytes};
    uint64_t random = 17;
    int conflicting = 0;
    for (int trial = 0; trial < 150; trial++) {
        int type = trial % 3, run = (int)(next(&random) % (uint64_t)(types[type].most_run + 1)),
            bytes = types[type].bytes;
        LayoutContext cx = layout_context(*state);
        Linear access = random_access(&cx, &random, run);
        SharedCost ranks = shared_cost_linear(&cx, access, 8 * bytes, 1 << run, memory);
        SharedCost counted = counted_cost(access, bytes << run, bytes, memory);
        int64_t emulated = emulated_conflicts(*state, &cx, access, types[type].element, 1 << run);
        assert_false(cx.failed);
        assert_int_equal(ranks.wavefronts, counted.wavefronts);
        assert_int_equal(ranks.phases, counted.phases);
        assert_int_equal(emulated, ranks.wavefronts - ranks.phases);
        conflicting += emulated > 0;
    }
    assert_in_range(conflicting, 40, 140);
}

// ---- global memory: sectors of a request, and how wide it may be ----

static const char global_read[] = "kernel k(x: f32[1024], y: out f32[32]) {\n"
                                  "    grid (b in 1) threads 32 {\n"
                                  "        thread (lane in 32) {\n"
                                  "            local v: f32[%d];\n"
                                  "            vload(v[0], x[%s], %d);\n"
                                  "            y[lane] = v[0];\n"
                                  "        }\n"
                                  "    }\n"
                                  "}\n"
                                  "reference k { for (lane in 32) y[lane] = x[%s]; }\n"
                                  "test k () tolerance 0;\n";

static Outcome emulated_read(Arena *arena, LayoutContext *cx, Linear access, int width) {
    const char *lane = "lane", *offset = "offset";
    const char *code = linear_code(cx, linear_sublayout(cx, access, &lane, 1, &offset, 1), 0);
    return run_source(arena, arena_printf(arena, global_read, width, code, width, code), 1);
}

static void sectors_and_widths_agree_with_the_emulator(void **state) {
    enum { SECTORS_OF_Y = 32 * 4 / 32 };
    const Target *target = target_named("sm_80");
    const MemoryShape memory = {target->banks, target->bank_bytes, target->sector_bytes};
    uint64_t random = 23;
    int spread = 0, narrow = 0;
    for (int trial = 0; trial < 60; trial++) {
        LayoutContext cx = layout_context(*state);
        int run = (int)(next(&random) % 3), width = 1 << run;
        Linear access = random_access(&cx, &random, run);
        int64_t addresses[32];
        for (int lane = 0; lane < 32; lane++)
            addresses[lane] = (int64_t)linear_apply_packed(access, (uint64_t)lane << run) * 4;
        int64_t ranks = sectors_linear(&cx, access, 32, width, memory),
                counted = sectors_counted(&cx, addresses, 32, 4 * width, memory);
        Outcome read = emulated_read(*state, &cx, access, width);
        if (!read.passed) fail_msg("%s", read.text);
        assert_int_equal(ranks, counted);
        assert_int_equal(read.last.report.sectors, counted + SECTORS_OF_Y);
        spread += counted > 16;
        // The predicted width is aligned for every lane; twice that is not, or runs into other registers' places.
        if (vector_width_linear(access, 4) == width && width < 4) {
            bool aligned = true;
            for (int lane = 0; lane < 32; lane++) aligned = aligned && addresses[lane] % (8 * width) == 0;
            Outcome wide = emulated_read(*state, &cx, access, 2 * width);
            assert_int_equal(wide.passed, aligned);
            narrow += !aligned;
        }
        assert_false(cx.failed);
    }
    assert_true(spread > 5 && narrow > 5);
}

// ---- shuffles: a schedule with as many as predicted moves everything ----

enum { REGISTERS = 4, WARP = 32, ELEMENTS = REGISTERS * WARP };

// Transfers between lanes, coloured: of one colour no lane sends two or receives two. edge[lane][colour] is the
// register sent, or received, and the partner; -1: none.
typedef struct Rounds {
    int sends[WARP][ELEMENTS], receives[WARP][ELEMENTS];   // partner
    int value[WARP][ELEMENTS], place[WARP][ELEMENTS];      // register at the sender, at the receiver
} Rounds;

static int free_colour(const int *row) {
    int colour = 0;
    while (row[colour] >= 0) colour++;
    return colour;
}

// Adds a transfer in Koenig's way: where the ends have no common free colour, the path of their two colours that
// starts at the receiver changes colours first.
static void add_transfer(Rounds *r, int from, int to, int value, int place) {
    int a = free_colour(r->sends[from]), b = free_colour(r->receives[to]);
    if (a != b) {
        int ends[2 * WARP][4], count = 0, lane = to, colour = a;
        for (bool receiving = true;; receiving = !receiving, colour = a + b - colour) {
            int other = receiving ? r->receives[lane][colour] : r->sends[lane][colour];
            if (other < 0) break;
            int sender = receiving ? other : lane, receiver = receiving ? lane : other;
            memcpy(ends[count++], (int[]){sender, receiver, r->value[sender][colour], r->place[receiver][colour]},
                   sizeof *ends);
            lane = other;
        }
        colour = a;
        for (int i = 0; i < count; i++, colour = a + b - colour)
            r->sends[ends[i][0]][colour] = r->receives[ends[i][1]][colour] = -1;
        colour = b;
        for (int i = 0; i < count; i++, colour = a + b - colour) {
            r->sends[ends[i][0]][colour] = ends[i][1];
            r->receives[ends[i][1]][colour] = ends[i][0];
            r->value[ends[i][0]][colour] = ends[i][2];
            r->place[ends[i][1]][colour] = ends[i][3];
        }
    }
    r->sends[from][a] = to;
    r->receives[to][a] = from;
    r->value[from][a] = value;
    r->place[to][a] = place;
}

// Every lane of the source holds its four elements by number; `own` says which it keeps where, then come the rounds.
static const char shuffling[] =
    "kernel k(own: i32[128], send: i32[128], lanes: i32[128], place: i32[128], want: i32[128], y: out i32[128]) {\n"
    "    grid (b in 1) threads 32 {\n"
    "        thread (lane in 32) {\n"
    "            local v: i32[4], o: i32[4];\n"
    "            unroll (s in 4) v[s] = i32(s + 4 * lane);\n"
    "            unroll (r in 4) {\n"
    "                o[r] = -1;\n"
    "                unroll (s in 4) if (own[r * 32 + lane] == i32(s)) o[r] = v[s];\n"
    "            }\n"
    "            unroll (k in %d) {\n"
    "                var t: i32 = 0;\n"
    "                unroll (s in 4) if (send[k * 32 + lane] == i32(s)) t = v[s];\n"
    "                let got = shfl_idx(t, lanes[k * 32 + lane]);\n"
    "                unroll (r in 4) if (place[k * 32 + lane] == i32(r)) o[r] = got;\n"
    "            }\n"
    "            unroll (r in 4) y[r * 32 + lane] = o[r];\n"
    "        }\n"
    "    }\n"
    "}\n"
    "reference k { for (i in 128) y[i] = want[i]; }\n"
    "test k () {\n";

static void put_table(StrBuf *out, const char *name, const int *values) {
    for (int i = 0; i < ELEMENTS; i++) sb_printf(out, "%s[%d] = %d;%s", name, i, values[i], i % 8 == 7 ? "\n" : " ");
}

static int64_t emulated_shuffles(Arena *arena, Linear source, Linear destination, int64_t rounds) {
    int own[ELEMENTS], send[ELEMENTS] = {0}, lanes[ELEMENTS] = {0}, place[ELEMENTS], want[ELEMENTS], holder[ELEMENTS];
    Rounds *schedule = arena_alloc(arena, sizeof *schedule);
    memset(schedule, 0xff, sizeof *schedule);
    for (int in = 0; in < ELEMENTS; in++) holder[linear_apply_packed(source, (uint64_t)in)] = in;
    for (int i = 0; i < ELEMENTS; i++) {
        int r = i / WARP, lane = i % WARP, from = holder[linear_apply_packed(destination, (uint64_t)(r + 4 * lane))];
        own[i] = from / 4 == lane ? from % 4 : -1;
        want[i] = from;
        place[i] = -1;
        if (own[i] < 0) add_transfer(schedule, from / 4, lane, from % 4, r);
    }
    for (int lane = 0; lane < WARP; lane++)
        for (int k = 0; k < ELEMENTS; k++) {
            if (schedule->sends[lane][k] < 0 && schedule->receives[lane][k] < 0) continue;
            assert_true(k < rounds);
            if (schedule->sends[lane][k] >= 0) send[k * WARP + lane] = schedule->value[lane][k];
            if (schedule->receives[lane][k] < 0) continue;
            lanes[k * WARP + lane] = schedule->receives[lane][k];
            place[k * WARP + lane] = schedule->place[lane][k];
        }
    StrBuf text;
    sb_init(&text, arena);
    sb_printf(&text, shuffling, (int)rounds);
    put_table(&text, "own", own), put_table(&text, "send", send), put_table(&text, "lanes", lanes);
    put_table(&text, "place", place), put_table(&text, "want", want);
    sb_str(&text, "} tolerance 0;\n");
    Outcome outcome = run_source(arena, sb_text(&text), 1);
    if (!outcome.passed) fail_msg("%s %s", outcome.text, outcome.last.why);
    return outcome.last.report.shuffles;
}

static void shuffles_agree_with_the_emulator(void **state) {
    const LinearDim ins[] = {{"register", 2}, {"lane", 5}}, out = {"element", 7};
    uint64_t random = 5;
    int seen[REGISTERS + 1] = {0};
    for (int trial = 0; trial < 40; trial++) {
        LayoutContext cx = layout_context(*state);
        uint64_t from[7], to[7];
        for (int i = 0; i < 7; i++) from[i] = to[i] = (uint64_t)1 << i;
        for (int change = (int)(next(&random) % 4); change > 0; change--) {
            int x = (int)(next(&random) % 7), y = (int)(next(&random) % 7);
            uint64_t swap = to[x];
            to[x] = to[y];
            to[y] = swap;
            if (x != y && next(&random) % 2) to[x] ^= to[y];
        }
        Linear source = linear_make(&cx, ins, 2, &out, 1, from), destination = linear_make(&cx, ins, 2, &out, 1, to);
        int64_t predicted = conversion_by_rank(&cx, source, destination).shuffles;
        if (predicted) assert_int_equal(emulated_shuffles(*state, source, destination, predicted), predicted);
        seen[predicted]++;
    }
    assert_true(seen[0] && seen[2] && seen[3] && seen[4]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_ARENA(examples_have_no_conflicts),
        IN_ARENA(programs_have_none_where_none_are_predicted),
        IN_ARENA(fixed_layouts_cost_what_is_predicted),
        IN_ARENA(ranks_enumeration_and_the_emulator_agree),
        IN_ARENA(sectors_and_widths_agree_with_the_emulator),
        IN_ARENA(shuffles_agree_with_the_emulator),
    };
    return run(tests);
}
