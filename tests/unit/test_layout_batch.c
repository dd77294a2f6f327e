// Questions by the line: refusals, bad syntax, overflow, and mutations of good lines, which must be answered whatever
// they are.
#include "layout/calculator/batch.h"
#include "layout/calculator/calc.h"
#include "tests/unit/unit.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void refused(Arena *arena, const char *line) {
    char *answer = layout_batch_line(arena, line, strlen(line));
    bool json = *line == '{';
    if (strncmp(answer, json ? "{\"error\":\"" : "error: ", json ? 10 : 7))
        fail_msg("%s: not refused: %s", line, answer);
}

static void answered(Arena *arena, const char *line, const char *expected) {
    assert_string_equal(layout_batch_line(arena, line, strlen(line)), expected);
}

static void inadmissible_compositions_are_refused(void **state) {
    refused(*state, "composition\t(8,8):(8,1)\t6:3");           // C++ prints (3,2):(24,1)
    refused(*state, "composition\t(8,3):(1,9)\t(2,2):(5,6)");   // C++ prints (2,2):(5,6)
    refused(*state, "composition\t(4,8):(1,8)\t6:1");           // runs of 4 do not divide 6
    refused(*state, "composition\t(4,8):(1,8)\t2:6");           // 6 neither divides 4 nor is divided
    answered(*state, "composition\t(8,8):(8,1)\t2:3", "2:24");
    answered(*state, "composition\t(8,8):(8,1)\t3:3", "3:24");
    answered(*state, "composition\t(8,8):(0,1)\t6:3", "(3,2):(0,1)");   // inexact steps of a counter that does not move
}

static void other_refusals_have_reasons(void **state) {
    refused(*state, "complement\t(4,4):(1,2)\t16");
    refused(*state, "left_inverse\t(2,2):(2,3)");
    refused(*state, "zipped_divide\t(8,8):(8,1)\t<_;4>");
    answered(*state, "logical_divide\t(8,8):(8,1)\t<_;4>", "(8,(4,2)):(8,(1,4))");
    refused(*state, "logical_divide\t8:1\t<2;2>");
    refused(*state, "coalesce_by\t8:1\t(1,1)");
    refused(*state, "crd2idx\t(4,8):(1,4)\t(1,2,3)");
    refused(*state, "swizzle\t3,4,2\t1");
    refused(*state, "full\t6\t64\t16\t0\t0");
    refused(*state, "full\t8\t64\t16\t8\t0");
    refused(*state, "{\"op\":\"invert\",\"args\":[{\"ins\":[[\"a\",[[1],[1]]]],\"outs\":[[\"b\",4]]}]}");
    refused(*state, "{\"op\":\"identity1D\",\"args\":[3,\"a\",\"b\"]}");
    refused(*state, "{\"op\":\"apply\",\"args\":[{\"ins\":[[\"a\",[[1]]]],\"outs\":[[\"b\",2]]},[]]}");
    refused(*state, "{\"op\":\"apply\",\"args\":[{\"ins\":[[\"a\",[[1]]]],\"outs\":[[\"b\",2]]},[[\"a\",2]]]}");
}

static void bad_syntax_is_refused(void **state) {
    static const char *const lines[] = {"composition",
                                        "size\t",
                                        "size\t(",
                                        "size\t(4,",
                                        "size\t4",
                                        "size\t4:",
                                        "size\t4:1x",
                                        "size\t(4,4):1",
                                        "size\t-4:1",
                                        "size\t4:-1",
                                        "size\t_:1",
                                        "nope\t4:1",
                                        "coalesce\t4:1\t3",
                                        "swizzle\t1,2\t3",
                                        "{",
                                        "{}",
                                        "{\"op\":1,\"args\":[]}",
                                        "{\"op\":\"apply\"}",
                                        "{\"op\":\"apply\",\"args\":[1]} x",
                                        "{\"op\":\"apply\",\"args\":[1.5]}",
                                        "{\"op\":\"\\x\"}",
                                        "{\"op\":\"apply",
                                        "{\"op\":nul}"};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) refused(*state, lines[i]);
    char deep[400] = "size\t";
    memset(deep + 5, '(', 300);
    refused(*state, deep);
    memset(deep, '[', 300);
    deep[0] = '{';
    refused(*state, deep);
}

static void overflow_and_zero_are_refused(void **state) {
    refused(*state, "size\t9223372036854775808:1");
    refused(*state, "size\t(4611686018427387904,2):(0,0)");
    refused(*state, "cosize\t3:4611686018427387904");
    refused(*state, "size\t(4,0):(1,4)");
    refused(*state, "complement\t4:1\t0");
    refused(*state, "idx2crd\t(0,4)\t3");
    refused(*state, "eval\t(65536,65536):(1,0)");
    refused(*state, "logical_product\t(2147483648,2147483648):(1,2147483648)\t4:1");
    refused(*state, "crd2idx\t4:4611686018427387904\t4");
    answered(*state, "size\t4611686018427387904:0", "4611686018427387904");
    refused(*state, "{\"op\":\"strided1D\",\"args\":[4611686018427387904,4,\"a\",\"b\"]}");
    refused(
        *state,
        "{\"op\":\"multiply\",\"args\":[{\"ins\":[],\"outs\":[[\"a\",4611686018427387904]]},{\"ins\":[],\"outs\":[[\"a\",2]]}]}");
}

static void blank_lines_and_comments_keep_step(void **state) {
    answered(*state, "", "");
    answered(*state, "# op\tin1\n", "");
    answered(*state, "size\t_4:_1\r\n", "4");
    answered(*state, "size\t( 4 , 2 ) : ( 1 , 4 )", "8");
}

static void all_operations_of_the_tabs_answer(void **state) {
    answered(*state, "slice\t(4,8):(1,4)\t(1,_)", "1 + (8):(4)");   // a slice is a tuple, as C++ has it
    answered(*state, "slice\t((2,3),6,(6,5,6)):((0,0),0,(30,6,1))\t((_,_),_,47)", "163 + (2,3,6):(0,0,0)");
    answered(*state, "slice\t(4,8):(1,4)\t(1,2)", "9 + ():()");
    answered(*state, "flat_product\t2:1\t4:1", "(2,4):(1,2)");
    answered(*state, "flat_product\t(1,4,3):(12,3,1)\t<16>", "((1),16,4,3):((12),1,3,1)");
    answered(*state, "flat_divide\t(4,4):(1,4)\t<4>", "((4),1,4):((1),0,4)");
    answered(*state, "tiled_divide\t(2):(1)\t<(1,1):(2,2)>", "(((1,1)),(2)):(((2,2)),(1))");
    answered(*state, "tiled_divide\t(4,4):(1,4)\t()", "((),4,4):((),1,4)");   // nothing is tiled
    answered(*state, "blocked_product\t2:1\t(2):(1)", "((2,(2))):((1,(2)))");
    answered(*state, "raked_product\t(8):(1)\t3:0", "((3,(8))):((0,(1)))");
    answered(*state, "raked_product\t8:2\t6:1", "error: block and repetitions do not have the same rank");
    answered(*state, "logical_divide\t(3,5):(20,4)\t2", "(2,(2,5)):(20,(40,4))");
    answered(*state, "logical_divide\t(3,5):(1,4)\t2", "(2,(2,5)):(1,(2,4))");
    answered(*state, "logical_product\t16:3\t16:2", "(16,(2,8)):(3,(2,48))");
    answered(*state, "right_inverse\t(3,3,2):(2,2,1)\t", "(2,3):(9,3)");
    answered(*state, "filter_by\t((2,2),4):((0,1),4)\t(1,1)", "(2,4):(1,4)");
    answered(*state, "complement\t4:1\t(3,7)", "4:4");
    answered(*state, "complement\t4:2\t", "2:1");
    answered(*state, "full\t256\t64\t16\t1\t0", "0,0,72\t1,32,512\t72");
    answered(*state, "zipped_divide\t((4,2),8):((1,4),8)\t<_;4>",
             "((4,4),(2,2)):((1,8),(4,32))");   // `_` on a mode of rank 2
}

static void sizes_are_asked_by_name(void **state) {
    answered(*state, "{\"op\":\"getInDimSize\",\"args\":[{\"ins\":[[\"a\",[[1],[0]]]],\"outs\":[[\"b\",2]]},\"a\"]}",
             "{\"result\":4}");
    answered(*state, "{\"op\":\"getTotalOutDimSizeLog2\",\"args\":[{\"ins\":[],\"outs\":[[\"b\",2],[\"c\",8]]}]}",
             "{\"result\":4}");
    answered(*state, "{\"op\":\"isTrivialOver\",\"args\":[{\"ins\":[[\"a\",[[1]]]],\"outs\":[[\"a\",2]]},[\"a\"]]}",
             "{\"result\":true}");
    refused(*state, "{\"op\":\"getOutDimSize\",\"args\":[{\"ins\":[],\"outs\":[]},\"x\"]}");
}

static uint64_t random_state = 88172645463325252ULL;

static uint32_t below(uint32_t n) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)(random_state >> 20) % n;
}

// Deletes, repeats or replaces a few bytes.
static void mutate(char *line, size_t capacity) {
    static const char bytes[] = "0123456789(),:;<>_[]{}\"\t -9998";
    for (int changes = 1 + (int)below(3); changes-- > 0;) {
        size_t length = strlen(line);
        if (length < 2 || length + 2 > capacity) return;
        char *at = line + below((uint32_t)length);
        switch (below(3)) {
        case 0: memmove(at, at + 1, strlen(at)); break;
        case 1: memmove(at + 1, at, strlen(at) + 1); break;
        default: *at = bytes[below(sizeof bytes - 1)]; break;
        }
    }
}

static void mutated_lines_of(const char *name) {
    char path[512], line[8192];
    snprintf(path, sizeof path, "%s/tests/golden/%s", TILEC_SOURCE_DIR, name);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        Failure failure;
        assert_false(FAILURE_CAUGHT(&failure));
        Arena *arena = arena_new(libc_allocator, &failure);
        for (int i = 0; i < 20; i++) {
            char *roomy = arena_alloc(arena, strlen(line) + 16);
            strcpy(roomy, line);
            mutate(roomy, strlen(line) + 16);
            assert_non_null(layout_batch_line(arena, roomy, strlen(roomy)));
        }
        arena_free(arena);
    }
    fclose(file);
}

static void mutated_lines_are_answered(void **state) {
    (void)state;
    mutated_lines_of("cute.tsv");
    mutated_lines_of("linear.jsonl");
}

static void mutated_expressions_are_answered(void **state) {
    static const char *const good[] = {
        "composition((16,8):(1,16), <8:1;4:2>)",
        "C = ((4,8),(2,2)):((32,1),(16,8)); linear(C, (16,8))",
        "Sw<3,3,3> o (8,64):(64,1)",
        "bank_swizzle(64,128,16,8)",
        "mma((32,32), 2, (16,8), (1,1))",
        "copy_tv(((4,8),(2,2)):((32,1),(16,8)), (16,8), 2)",
        "nvmma((64,64), 128, 16, 1)",
        "invert({register: [(1),(2)]} -> (dim0: 4))",
        "optimal_swizzle(blocked((32,32),(1,4),(8,4),(1,1),(1,0)), blocked((32,32),(4,1),(4,8),(1,1),(0,1)), 16)",
        "tiled_copy((32,8):(8,1), (1,8):(0,1))",
        "operand_tv(\"C\", (16,8,16), ((4,8),(2,2,2)):((32,1),(16,8,128)), 4:1, ((4,8),(2,2)):((32,1),(16,8)), (2,2,1):(1,2,0))"};
    (void)state;
    for (int round = 0; round < 2000; round++)
        for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
            Failure failure;
            assert_false(FAILURE_CAUGHT(&failure));
            Arena *arena = arena_new(libc_allocator, &failure);
            LayoutContext cx = layout_context(arena);
            char text[512];
            strcpy(text, good[i]);
            if (round) mutate(text, sizeof text);
            Calc *calc = calc_new(&cx);
            CalcValue value = calc_run(calc, text);
            if (!round && cx.failed) fail_msg("%s: %s", text, cx.reason);
            if (!cx.failed) assert_non_null(calc_text(calc, value, round % 2));
            arena_free(arena);
        }
}

// ---- the command ----

static int command(Arena *arena, char **argv, const char *input, char **out, char **err) {
    size_t out_size, err_size;
    char *out_text, *err_text, *source = arena_strdup(arena, input);
    FILE *in = fmemopen(source, strlen(source) + !*source, "r"), *o = open_memstream(&out_text, &out_size),
         *e = open_memstream(&err_text, &err_size);
    int argc = 0;
    while (argv[argc]) argc++;
    int code = layout_command(argc, argv, in, o, e);
    fclose(in);
    fclose(o);
    fclose(e);
    *out = arena_strdup(arena, out_text);
    *err = arena_strdup(arena, err_text);
    free(out_text);
    free(err_text);
    return code;
}

#define RUN(input, ...) command(*state, (char *[]){"layout", __VA_ARGS__, NULL}, input, &out, &err)

static void the_command_prints_draws_and_refuses(void **state) {
    char *out, *err;
    assert_int_equal(RUN("", "composition((16,8):(1,16), <8:1;4:2>)"), 0);
    assert_string_equal(out, "(8,4):(1,32)\n");
    assert_int_equal(RUN("", "A = (4,2):(1,4)", "--static", "coalesce(A)"), 0);
    assert_string_equal(out, "_8:_1\n");
    assert_int_equal(RUN("", "--table", "(2,2):(1,2)"), 0);
    assert_string_equal(
        out, "(2,2):(1,2)\n      0   1 \n    +---+---+\n 0  | 0 | 2 |\n    +---+---+\n 1  | 1 | 3 |\n    +---+---+\n");
    assert_int_equal(RUN("size\t4:1\nnope\n", "--batch"), 0);
    assert_string_equal(out, "4\nerror: unknown operation 'nope'\n");
    assert_int_equal(RUN("", "--svg", "--view=banks", "(8,64):(64,1)"), 0);
    assert_non_null(strstr(out, "wavefronts 8, without conflicts 1"));
    assert_int_equal(RUN("", "--svg", "--view=banks", "Sw<3,3,3> o (8,64):(64,1)"), 0);
    assert_non_null(strstr(out, "wavefronts 1, without conflicts 1"));
    assert_int_equal(RUN("", "--html", "--view=owners", "--tile=(16,8)", "((4,8),(2,2)):((32,1),(16,8))"), 0);
    assert_non_null(strstr(out, "(9,3): thread 5, value 3"));
    assert_non_null(strstr(out, ">T5 V3<"));
    assert_int_equal(RUN("", "--svg", "mma((16,8), 2, (16,8), (1,1))"), 0);   // the same, as a linear layout
    assert_non_null(strstr(out, "register 3, lane 5, warp 0, block 0: dim0 9, dim1 3"));
    assert_non_null(strstr(out, ">T5 V3<"));
    assert_int_equal(RUN("", "--table", "linear(Sw<1,0,1> o (2,2):(2,1))"), 0);
    assert_non_null(strstr(out, " 1  | 3 | 2 |"));
    assert_int_equal(RUN("", "--table", "invert(linear(Sw<1,0,1> o (2,2):(2,1)))"), 0);   // offset -> coordinates
    assert_non_null(strstr(out, " 1  | 3 | 2 |"));
    assert_int_equal(RUN("", "--table", "{register: [(1)], lane: [(0),(2)]} -> (dim0: 4)"), 0);
    assert_non_null(strstr(out, "| T0 V0 | T0 V1 | T2 V0 | T2 V1 |"));
    assert_non_null(strstr(out, "4 copies not shown"));
    assert_int_equal(RUN("", "--view=banks", "{a: [(1)]} -> (b: 2)"), 1);
    assert_int_equal(RUN("", "--svg", "identity1d(4194304, \"a\", \"b\")"), 1);
    assert_int_equal(RUN("", "--view=banks", "--bits=32", "--access=4", "(2,4):(4,1)"), 0);
    assert_non_null(strstr(out, " 1  | 4 | 5 | 6 | 7 |"));
    assert_int_equal(RUN("", "--view=banks", "--bits=32", "--access=8", "(2,4):(4,1)"), 0);   // a cell is an access
    assert_non_null(strstr(out, " 1  | 4-5 | 6-7 |"));
    assert_int_equal(RUN("", "--view=owners", "4:1"), 1);
    assert_int_equal(RUN("", "size(4"), 1);
    assert_int_equal(RUN("", "--nope"), 2);
    assert_int_equal(command(*state, (char *[]){"layout", NULL}, "", &out, &err), 2);
    assert_int_equal(RUN("", "--expand=/does/not/exist"), 3);
    assert_int_equal(RUN("", "--help"), 0);
    assert_non_null(strstr(out, "composition(a, b or tiler)"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_ARENA(inadmissible_compositions_are_refused),
        IN_ARENA(other_refusals_have_reasons),
        IN_ARENA(bad_syntax_is_refused),
        IN_ARENA(overflow_and_zero_are_refused),
        IN_ARENA(blank_lines_and_comments_keep_step),
        IN_ARENA(all_operations_of_the_tabs_answer),
        IN_ARENA(sizes_are_asked_by_name),
        IN_ARENA(mutated_lines_are_answered),

        IN_ARENA(mutated_expressions_are_answered),
        IN_ARENA(the_command_prints_draws_and_refuses),
    };
    return run(tests);
}
