// Expressions of `tilec layout` and their values, and those that it refuses with the reason.
#include "layout/calculator/calc.h"
#include "tests/unit/unit.h"
#include <string.h>

typedef struct Row {
    const char *expression, *expected;
} Row;

static const Row accepted[] = {
    {"size((4,(2,3)))", "24"},
    {"rank((4,8,2))", "3"},
    {"rank(8)", "1"},
    {"mode((4,8):(8,1), 1)", "8:1"},
    {"make_layout((4,8))", "(4,8):(1,4)"},
    {"make_layout((4,8),(8,1))", "(4,8):(8,1)"},
    {"complement((2,2):(1,4), 32)", "(2,4):(2,8)"},
    {"complement((2,2):(1,4))", "2:2"},
    {"Sw<2,3,3> o ((8,64):(64,1))", "Sw<2,3,3> o ((8,64)):((64,1))"},
    {"eval((4,2):(2,1))", "0,2,4,6,1,3,5,7"},
    {"recast(Sw<2,3,3>, 8, 16)", "Sw<2,2,3>"},
    {"bank_swizzle(8, 64, 16, 8)", "Sw<3,3,3> o (8,64):(64,1)"},
    {"linear(Sw<2,3,3> o ((8,64):(64,1)))", "{dim0: [(72),(144),(256),(1),(2),(4),(8),(16),(32)]} -> (offset: 512)"},
    {"linear((32,4):(4,1), (8,16))",
     "{lane: [(4,0),(0,1),(0,2),(0,4),(0,8)], register: [(1,0),(2,0)]} -> (dim0: 8, dim1: 16)"},
    {"divide_left(identity1d(4,\"a\",\"b\"), identity1d(2,\"a\",\"b\"))", "{a: [(1)]} -> (b: 2)"},
    {"divide_right(identity1d(2,\"a\",\"b\"), identity1d(4,\"a\",\"b\"))", "none"},
    {"divide_left(strided1d(4,2,\"a\",\"b\"), identity1d(2,\"a\",\"b\"))", "none"},
    {"divide_right(strided1d(4,2,\"a\",\"b\"), identity1d(2,\"a\",\"b\"))", "{a: [(2)]} -> (b: 4)"},
    {"apply(identity1d(4,\"a\",\"b\"), 3)", "3"},
    {"reshape_ins(identity1d(8,\"a\",\"b\"), \"x\", 2, \"y\", 4)", "{x: [(1)], y: [(2),(4)]} -> (b: 8)"},
    {"reshape_outs(identity1d(8,\"a\",\"b\"), \"x\", 2, \"y\", 4)", "{a: [(1,0),(0,1),(0,2)]} -> (x: 2, y: 4)"},
    {"transpose_outs(multiply(identity1d(2,\"r\",\"d0\"), identity1d(4,\"l\",\"d1\")), \"d1\", \"d0\")",
     "{r: [(0,1)], l: [(1,0),(2,0)]} -> (d1: 4, d0: 2)"},
    {"dot((16,16), 0, 2, 2, (16,8), (1,1))",
     "{register: [(0,1),(8,0),(0,8)], lane: [(0,2),(0,4),(1,0),(2,0),(4,0)], warp: [], block: []} -> (dim0: 16, dim1: 16)"},
    {"dot((16,8), 1, 2, 2, (16,8), (1,1))",
     "{register: [(1,0),(8,0)], lane: [(2,0),(4,0),(0,1),(0,2),(0,4)], warp: [], block: []} -> (dim0: 16, dim1: 8)"},
    {"tma((64,128), 16, 128)", "Sw<3,3,3> o (64,(64,2)):(64,(1,4096))"},
    {"tma_box((64,128), 16, 128)", "(64,64)"},
    {"tma_box((512,64), 16, 128)", "(256,64)"},
    {"im2col((1,1), (3,3), (1,1))", "((-1,-1),(-1,-1))"},
    {"im2col((2), (5), (2))", "((-2),(-6))"},
    {"tile(row_major((256,64)), (64,32), (1,1))", "4128 + (64,32):(64,1)"},
    {"tile(Sw<3,3,3> o (64,64):(64,1), (8,64), (3,0))", "Sw<3,3,3> o 1536 + (8,64):(64,1)"},
    {"vectorize(row_major((16,8)), (1,2))", "((1,2),(16,4)):((0,1),(8,2))"},
    {"distribute(row_major((128,32)), row_major((8,4)), 5)", "33 + (16,8):(256,4)"},
    {"distribute(row_major((128,32)), (8,4), 5)", "160 + (16,8):(256,4)"},
    {"upcast(row_major((8,64)), 2)", "(8,32):(32,1)"},
    {"upcast((2,2):(1,4), 4)", "(1,2):(1,1)"},
    {"downcast((4,8):(8,1), 2)", "(4,16):(16,1)"},
    {"recast(Sw<3,3,3> o (8,64):(64,1), 16, 32)", "Sw<3,2,3> o (8,32):(32,1)"},
    {"wavefronts(Sw<3,4,3> o 32:128, 4)", "4, without conflicts 1"},
    {"wavefronts(32:128, 4)", "32, without conflicts 1"},
    {"wavefronts(32:0, 4)", "1, without conflicts 1"},
    {"wavefronts(32:16, 16)", "4, without conflicts 4"},
    {"sectors(32:4, 4)", "4"},
    {"sectors(32:64, 8)", "32"},
    {"slice(blocked((16,1), (1,4), (8,4), (2,1), (1,0)), \"dim1\")",
     "{register: [], lane: [(0),(0),(1),(2),(4)], warp: [(8)], block: []} -> (dim0: 16)"},
    {"slice(blocked((1,16), (1,4), (8,4), (2,1), (1,0)), \"dim0\")",
     "{register: [(1),(2)], lane: [(4),(8),(0),(0),(0)], warp: [(0)], block: []} -> (dim0: 16)"},
    {"dot_blocked((16,16), 0, (2,2), (4,8), (2,1), (1,0))",
     "{register: [(0,1),(0,2),(0,4),(0,8),(1,0)], lane: [(0,0),(0,0),(0,0),(2,0),(4,0)], warp: [(8,0)], block: []} -> (dim0: 16, dim1: 16)"},
    {"blocked((64,64), (1,4), (8,4), (2,1), (1,0), (2,1), (2,1), (1,0))",
     "{register: [(0,1),(0,2),(0,16),(0,32),(16,0)], lane: [(0,4),(0,8),(1,0),(2,0),(4,0)], warp: [(8,0)], block: [(32,0)]} -> (dim0: 64, dim1: 64)"},
    {"blocked((8,16), (1,4), (8,4), (1,1), (1,0), (2,1), (1,1), (1,0))",
     "{register: [(0,1),(0,2)], lane: [(0,4),(0,8),(1,0),(2,0),(4,0)], warp: [], block: [(0,0)]} -> (dim0: 8, dim1: 16)"},
    {"nvmma((8,64), 128, 8, 0, 1)",
     "{offset: [(0,1),(0,2),(0,4),(0,0),(0,8),(0,16),(0,32),(1,8),(2,16),(4,32)], block: []} -> (dim0: 8, dim1: 64)"},
    {"ldmatrix(mma((16,64), 2, (16,8), (1,1)), nvmma((16,64), 128, 16), 16)",
     "{register: [(1,0),(512,0),(8,0),(16,0),(32,0)], lane: [(2,0),(4,0),(72,0),(144,0),(288,0)], warp: [], block: []} -> (offset: 1024, block: 1)"},
    {"ldmatrix(blocked((16,64), (1,8), (4,8), (1,1), (1,0)), nvmma((16,64), 128, 16), 16)", "none"},
    {"free_variables({r: [(1),(2)], l: [(2),(4),(6)]} -> (d: 8))", "(0,5)"},
    {"consecutive({r: [(1),(2),(8)], l: [(4)]} -> (d: 16))", "4"},
    {"rank({r: [(1),(2)], l: [(2),(4),(6)]} -> (d: 8))", "3"},
    {"injective({r: [(1),(2)], l: [(2),(4),(6)]} -> (d: 8))", "0"},
    {"injective((4,8):(8,1))", "1"},
    {"injective((4,8):(4,1))", "0"},
    {"equal(identity1d(4,\"a\",\"b\"), strided1d(4,1,\"a\",\"b\"))", "1"},
    {"equal(identity1d(4,\"a\",\"b\"), zeros1d(4,\"a\",\"b\",4))", "0"},
    {"sublayout({r: [(0,1),(8,0)], l: [(0,2)]} -> (d0: 16, d1: 8), \"l\", \"d1\")", "{l: [(2)]} -> (d1: 8)"},
    {"quotient({r: [(1,0)], block: [(0,1)]} -> (d: 2, block: 2), \"block\")", "{r: [(1)]} -> (d: 2)"},
    {"quotient({r: [(0,1)], block: [(1,0)]} -> (d: 2, block: 2), \"block\")", "none"},
    {"surjective(zeros1d(4,\"a\",\"b\",2))", "0"},
    {"code(multiply(identity1d(4,\"a\",\"b\"), identity1d(2,\"c\",\"b\")))", "b = a ^ (c << 2)"},
    {"code(zeros1d(4,\"a\",\"b\",2))", "b = 0"},
    {"convert(identity1d(32,\"lane\",\"dim0\"), identity1d(32,\"lane\",\"dim0\"))", "nothing moves"},
    {"convert(multiply(identity1d(2,\"register\",\"dim0\"), identity1d(32,\"lane\",\"dim0\")), multiply(identity1d(32,\"lane\",\"dim0\"), identity1d(2,\"register\",\"dim0\")))",
     "by shuffles: 2 per thread"},
    {"convert(multiply(identity1d(32,\"lane\",\"dim0\"), identity1d(2,\"warp\",\"dim0\")), multiply(identity1d(2,\"warp\",\"dim0\"), identity1d(32,\"lane\",\"dim0\")))",
     "through shared memory"},
    {"optimal_swizzle(multiply(identity1d(8,\"register\",\"dim0\"), identity1d(32,\"lane\",\"dim0\")), multiply(identity1d(32,\"lane\",\"dim0\"), identity1d(8,\"register\",\"dim0\")), 16)",
     "{vector: [], bank: [(32),(64),(128),(4),(8),(16)], segment: [(33),(66)], reps: []} -> (dim0: 256)"},
    {"blocked((16,16), (1,4), (8,4), (2,1), (1,0))",
     "{register: [(0,1),(0,2)], lane: [(0,4),(0,8),(1,0),(2,0),(4,0)], warp: [(8,0)], block: []} -> (dim0: 16, dim1: 16)"},
    {"mma((16,16), 2, (16,8), (2,1))",
     "{register: [(0,1),(8,0),(0,8)], lane: [(0,2),(0,4),(1,0),(2,0),(4,0)], warp: [(0,0)], block: []} -> (dim0: 16, dim1: 16)"},
    {"mma((16,16), 3, (16,16,16), (4,1))",
     "{register: [(0,1),(8,0),(0,8)], lane: [(0,2),(0,4),(1,0),(2,0),(4,0)], warp: [(0,0),(0,0)], block: []} -> (dim0: 16, dim1: 16)"},
    {"swizzled((64,64), 8, 1, 8, (1,0))",
     "{offset: [(0,1),(0,2),(0,4),(0,8),(0,16),(0,32),(1,8),(2,16),(4,32),(8,0),(16,0),(32,0)], block: []} -> (dim0: 64, dim1: 64)"},
    {"nvmma((64,64), 128, 16)",
     "{offset: [(0,1),(0,2),(0,4),(0,8),(0,16),(0,32),(1,8),(2,16),(4,32),(8,0),(16,0),(32,0)], block: []} -> (dim0: 64, dim1: 64)"},
    {"nvmma((64,64), 128, 16, 1)",
     "{offset: [(1,0),(2,0),(4,0),(8,0),(16,0),(32,0),(8,1),(16,2),(32,4),(0,8),(0,16),(0,32)], block: []} -> (dim0: 64, dim1: 64)"},
    {"nvmma((64,64), 0, 16)",
     "{offset: [(0,1),(0,2),(0,4),(0,8),(0,16),(0,32),(1,0),(2,0),(4,0),(8,0),(16,0),(32,0)], block: []} -> (dim0: 64, dim1: 64)"},
    {"tiled_copy((8,4):(4,1), (1,8))", "((4,8),8):((64,1),8)"},
    {"operand_tv(\"A\", (16,8,16), ((4,8),(2,2,2)):((32,1),(16,8,128)), ((4,8),(2,2)):((16,1),(8,64)), ((4,8),(2,2)):((32,1),(16,8)), (2,2,1))",
     "((4,8,2,2),((2,2,2),(1,1))):((64,1,16,0),((32,8,256),(0,0)))"},
    {"operand_tv(\"B\", (16,8,16), ((4,8),(2,2,2)):((32,1),(16,8,128)), ((4,8),(2,2)):((16,1),(8,64)), ((4,8),(2,2)):((32,1),(16,8)), (2,2,1))",
     "((4,8,2,2),((2,2),(1,1))):((32,1,0,8),((16,128),(0,0)))"},
    {"operand_tv(\"C\", (16,8,16), ((4,8),(2,2,2)):((32,1),(16,8,128)), ((4,8),(2,2)):((16,1),(8,64)), ((4,8),(2,2)):((32,1),(16,8)), (2,2,1))",
     "((4,8,2,2),((2,2),(1,1))):((64,1,16,256),((32,8),(0,0)))"},
    {"copy_tiler((32,4):(4,1), (16,8), 4)", "<(4,4):(4,1);8:1>"},
    {"copy_tv((32,4):(4,1), (16,8), 4)", "((4,8),4):((1,16),4)"},
    {"crd2idx((4,8):(8,1), (3,7))", "31"},
    {"crd2idx((4,8):(8,1), 9)", "10"},
    {"idx2crd((4,8), 13)", "(1,3)"},
    {"idx2crd((4,8), (1,13))", "(1,13)"},
    {"slice((4,8):(8,1), (_,3))", "3 + (4):(8)"},
    {"slice((4,8):(8,1), _)", "(4,8):(8,1)"},
    {"slice((4,8):(8,1), 5)", "9 + ():()"},
    {"left_inverse((4,8):(8,1))", "(8,4):(4,1)"},
    {"right_inverse((4,1,8):(8,0,1))", "(8,4):(4,1)"},
    {"left_inverse(65537:2)", "(2,65537):(0,1)"},
    {"coalesce((2,(1,6)):(1,(6,2)), 1)", "12:1"},
    {"filter((4,8):(0,1), (1,1))", "(1,8):(0,1)"},
    {"with_shape((4,8):(8,1), (8,4))", "((4,2),4):((8,1),2)"},
    {"row_major((4,(2,3)))", "(4,(2,3)):(6,(3,1))"},
    {"padded(4, 8, 2)", "(4,8):(10,1)"},
    {"<4;8>", "<4;8>"},
    {"<(4,8):(1,4);8>", "<(4,8):(1,4);8>"},
    {"cute(identity1d(8,\"a\",\"b\"))", "8:1"},
    {"cute(multiply(identity1d(8,\"a\",\"b\"), identity1d(8,\"c\",\"d\")))", "(8,8):(1,8)"},
    {"cute(zeros1d(4,\"a\",\"b\"))", "4:0"},
    {"flatten((2,(1,6)):(1,(6,2)))", "(2,1,6):(1,6,2)"},
};

// What an argument lacks, in each position; numbers out of range; tuples of another shape.
static const Row refused[] = {
    {"mode((4,8):(8,1), 2)", "there is no mode 2"},
    {"mode((4,8):(8,1), -1)", "syntax: expected a number at column 19, found '-1)'"},
    {"composition(Sw<2,3,3>, Sw<1,1,1> o ((8,64):(64,1)))", "the layout has a swizzle already"},
    {"flatten(Sw<2,3,3> o ((8,64):(64,1)))", "expected a layout without a swizzle"},
    {"invert((4,8))", "expected a linear layout, got a tuple"},
    {"identity1d(4, 8, \"b\")", "expected a text in quotes, got a tuple"},
    {"logical_divide((8,8):(8,1), Sw<2,3,3> o (8:1))", "expected a layout without a swizzle"},
    {"blocked_product(Sw<2,3,3> o (8:1), 4:1)", "expected a layout without a swizzle"},
    {"raked_product(\"a\", 4:1)", "expected a layout, got a text"},
    {"composition(\"a\", 4)", "expected a layout, got a text"},
    {"size(\"a\")", "expected a layout, got a text"},
    {"eval((257,256))", "more than 65536 values"},
    {"recast(Sw<2,3,3>, 8, 2048)", "widths are at most 1024 bits"},
    {"recast(Sw<2,3,3>, 2048, 8)", "widths are at most 1024 bits"},
    {"recast(Sw<2,0,3>, 8, 16)", "recast: the swizzle would tear elements of 16 bits apart"},
    {"recast(Sw<2,3,3>, 0, 16)", "recast: element widths are powers of two"},
    {"recast(Sw<2,3,3>, 8, 12)", "recast: element widths are powers of two"},
    {"bank_swizzle(8, 64, 2000, 8)", "2000 is out of range"},
    {"bank_swizzle(0, 64, 16, 8)", "rows and columns are at least 1"},
    {"bank_swizzle(8, 0, 16, 8)", "rows and columns are at least 1"},
    {"bank_swizzle(8, 64, 0, 8)", "the element's width is a power of two up to 128 bits"},
    {"bank_swizzle(8, 64, 16, 3)", "a panel has 8, 4 or 2 chunks of 16 bytes"},
    {"bank_swizzle(8, \"a\", 16, 3)", "expected an integer, got a text"},
    {"linear((2,2,2,2,2,2,2,2,2))", "more than 8 modes"},
    {"linear((3,2))", "not linear: extent 3 is not a power of two"},
    {"linear(\"a\")", "expected a layout, got a text"},
    {"linear((32,4):(4,1), (2,2,2,2,2,2,2,2,2))", "tiles have at most 8 dims"},
    {"multiply(identity1d(4,\"a\",\"b\"), 3)", "expected a linear layout, got a tuple"},
    {"divide_left(identity1d(4,\"a\",\"b\"), 3)", "expected a linear layout, got a tuple"},
    {"apply(identity1d(4,\"a\",\"b\"), 4)", "an input value is outside its size"},
    {"apply(identity1d(4,\"a\",\"b\"), -1)", "syntax: expected a number at column 30, found '-1)'"},
    {"apply(identity1d(4,\"a\",\"b\"), (1,2))", "apply needs one value per input"},
    {"apply(multiply(identity1d(4,\"a\",\"b\"), identity1d(2,\"c\",\"b\")), (1,_))",
     "an input value is outside its size"},
    {"reshape_ins(identity1d(8,\"a\",\"b\"), \"x\", 3, \"y\", 4)", "size 3 is not a power of two"},
    {"reshape_ins(identity1d(8,\"a\",\"b\"), \"x\", 0)", "size 0 is not a power of two"},
    {"reshape_ins(identity1d(8,\"a\",\"b\"), \"x\", 2, \"y\", 2)", "reshape: the sizes' product changes"},
    {"reshape_ins(identity1d(8,\"a\",\"b\"), 2, 8)", "expected a text in quotes, got a tuple"},
    {"transpose_ins(identity1d(8,\"a\",\"b\"), \"c\")", "transpose: the names are not a permutation of the dims"},
    {"transpose_ins(identity1d(8,\"a\",\"b\"), 1)", "expected a text in quotes, got a tuple"},
    {"reshape_outs(identity1d(8,\"a\",\"b\"), \"x\", 3)", "size 3 is not a power of two"},
    {"transpose_outs(identity1d(8,\"a\",\"b\"), \"c\")", "transpose: the names are not a permutation of the dims"},
    {"tma((64,40), 16, 128)", "the contiguous extent 40 is not a multiple of the swizzle's 64 elements"},
    {"tma_box((300,64), 16, 128)", "boxes of 19200 bytes do not start at multiples of 1024"},
    {"im2col((1,1), (3), (1,1))", "padding, filter and dilation have one number for each spatial dim"},
    {"im2col((1,1,1,1), (3,3,3,3), (1,1,1,1))", "im2col has 1 to 3 spatial dims"},
    {"dot((16,16), 1, 2, 3, (16,8,16), (4,1))", "wgmma takes its second operand from shared memory"},
    {"zeros1d(4,\"a\",\"b\",0)", "size 0 is not a power of two"},
    {"zeros1d(3,\"a\",\"b\")", "size 3 is not a power of two"},
    {"convert(identity1d(32,\"lane\",\"dim0\"), identity1d(16,\"lane\",\"dim0\"))",
     "source and destination lay out different tensors"},
    {"convert(identity1d(32,\"lane\",\"dim0\"), 4)", "expected a linear layout, got a tuple"},
    {"optimal_swizzle(identity1d(32,\"lane\",\"dim0\"), identity1d(32,\"lane\",\"dim0\"), 0)",
     "the element's width is a power of two up to 128 bits"},
    {"optimal_swizzle(identity1d(32,\"x\",\"dim0\"), identity1d(32,\"lane\",\"dim0\"), 16)",
     "a register layout has inputs register and lane"},
    {"optimal_swizzle(identity1d(32,\"lane\",\"dim0\"), identity1d(32,\"lane\",\"dim0\"), 4000)",
     "4000 is out of range"},
    {"blocked((16,16), (1,4), (8,4), (2,1), (1,1))", "order is not a permutation of the dims"},
    {"blocked((16,16), (1,3), (8,4), (2,1), (1,0))", "sizePerThread: 3 is not a power of two"},
    {"blocked((16,16), (1,(2,2)), (8,4), (2,1), (1,0))", "expected a flat tuple of integers"},
    {"blocked((2,2,2,2,2,2,2,2,2), 1, 1, 1, 1)", "more than 8 dims"},
    {"blocked(\"a\", (1,4), (8,4), (2,1), (1,0))", "expected a tuple, got a text"},
    {"mma((16,16), 2000, (16,8), (2,1))", "2000 is out of range"},
    {"mma(16, 2, (16,8), 2)", "mma encodings have rank 2 or more"},
    {"mma((16,16), 4, (16,8), (2,1))", "mma version 4 is not supported"},
    {"swizzled((64,64), 8, 1, 8, (1,1))", "order is not a permutation of the dims"},
    {"swizzled((64,64), 3, 1, 8, (1,0))", "vec, perPhase, maxPhase: 3 is not a power of two"},
    {"nvmma((64,64), 100, 16)", "swizzleBytes is 0, 32, 64 or 128"},
    {"nvmma((64,64), 128, 128)", "elemBits is a power of two from 4 to 64"},
    {"nvmma(64, 128, 16)", "the tensor is smaller than the swizzle's tile of 8 rows"},
    {"nvmma((4,4), 128, 16)", "the contiguous dim has 4 elements, the swizzle 64"},
    {"tiled_copy((8,4):(4,1), \"a\")", "expected a layout, got a text"},
    {"operand_tv(\"AB\", (16,8,16), 1, 1, 1, 1)", "expected \"A\", \"B\" or \"C\", and (m,n,k)"},
    {"operand_tv(\"D\", (16,8,16), 1, 1, 1, 1)", "expected \"A\", \"B\" or \"C\", and (m,n,k)"},
    {"operand_tv(\"\", (16,8,16), 1, 1, 1, 1)", "expected \"A\", \"B\" or \"C\", and (m,n,k)"},
    {"operand_tv(\"A\", (16,8), 1, 1, 1, 1)", "expected \"A\", \"B\" or \"C\", and (m,n,k)"},
    {"operand_tv(\"A\", (16,8,16), \"a\", 1, 1, 1)", "expected a layout, got a text"},
    {"operand_tv(\"A\", (16,8,16), ((4,8),(2,2,2)):((32,1),(16,8,128)), ((4,8),(2,2)):((16,1),(8,64)), ((4,8),(2,2)):((32,1),(16,8)), (2,2,1,1))",
     "atoms are laid out over at most M, N and K"},
    {"copy_tv(\"a\", (16,8), 4)", "expected a layout, got a text"},
    {"copy_tiler(\"a\", (16,8), 4)", "expected a layout, got a text"},
    {"crd2idx((4,8):(8,1), _)", "a coordinate has no '_'; use slice"},
    {"idx2crd((4,8), (1,2,3))", "the coordinate's nesting does not fit the shape"},
    {"idx2crd((4,8), _)", "'_' is not a coordinate"},
    {"idx2crd(8, (1,2))", "the coordinate's nesting does not fit the shape"},
    {"idx2crd(_, 2)", "'_' is not a coordinate"},
    {"slice((4,8):(8,1), (1,2,3))", "the coordinate's nesting does not fit the shape"},
    {"with_shape((4,8):(8,1), (8,5))", "the new shape has another size"},
    {"4:4611686018427387904", "overflow: a size or offset exceeds 2^62"},
    {"(1,2,3,4", "syntax: expected ')' at the end of the text"},
    {"cute(3)", "expected a linear layout, got a tuple"},
    {"nothing(3)", "there is no function 'nothing'"},
    {"upcast((4,8):(6,1), 4)", "4:6 has no form in elements 4 times as wide"},
    {"upcast(6:1, 4)", "6:1 has no form in elements 4 times as wide"},
    {"recast(8:1, 0, 24)", "one width is a multiple of the other"},
    {"recast(8:1, 16, 24)", "one width is a multiple of the other"},
    {"upcast(tile(8:1, 2, 1), 4)", "the layout starts within an element of the other type"},
    {"distribute(8:1, 4:2, 1)", "the layout of the threads does not number them from 0"},
    {"recast(<8>, 8, 16)", "expected a layout, got a tiler"},
    {"distribute(8:1, 4, 4)", "there is no such thread"},
    {"wavefronts(64:4, 4)", "a warp has 32 lanes"},
    {"wavefronts(32:4, 3)", "a lane moves 1, 2, 4, 8 or 16 bytes"},
    {"wavefronts(32:4, 8)", "lane 1's address is not a multiple of its bytes"},
    {"slice(identity1d(4,\"a\",\"b\"), \"b\")", "slice: there is no dim 'b' of size 1"},
    {"sublayout(identity1d(4,\"a\",\"b\"), \"c\")", "there is no dim 'c'"},
    {"quotient(identity1d(4,\"a\",\"b\"), \"a\")", "there is no output 'a'"},
    {"blocked((8,16), (1,4), (8,4), (1,1), (1,0), (2,1))",
     "a cluster has CTAs, how they split the tensor, and their order"},
    {"size(1,2)", "usage: size(layout or tuple)"},
    {"size()", "usage: size(layout or tuple)"},
    {"((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((1))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))",
     "syntax: nested deeper than 64"},
    {"size(1,1,1,1,1,1,1,1,1,1,1,1,1)", "too many arguments"},
};

static void values(void **state) {
    for (size_t i = 0; i < sizeof accepted / sizeof accepted[0]; i++) {
        LayoutContext cx = layout_context(*state);
        Calc *calc = calc_new(&cx);
        CalcValue value = calc_run(calc, accepted[i].expression);
        if (cx.failed) fail_msg("%s: %s", accepted[i].expression, cx.reason);
        assert_string_equal(calc_text(calc, value, false), accepted[i].expected);
    }
}

static void reasons(void **state) {
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        LayoutContext cx = layout_context(*state);
        calc_run(calc_new(&cx), refused[i].expression);
        if (!cx.failed) fail_msg("not refused: %s", refused[i].expression);
        assert_string_equal(cx.reason, refused[i].expected);
    }
}

// ---- views and element types, against what they mean ----

// The offsets of a value of the calculator, in a map of `most` places: how often each occurs.
static void count_places(void **state, const char *expression, int *places, int64_t most) {
    LayoutContext cx = layout_context(*state);
    CalcValue value = calc_run(calc_new(&cx), expression);
    if (cx.failed) fail_msg("%s: %s", expression, cx.reason);
    for (int64_t i = 0; i < cute_size(&cx, value.layout.layout); i++) {
        int64_t at = swizzled_at(value.layout, i);
        assert_in_range(at, 0, most - 1);
        places[at]++;
    }
}

static const char *const tiles[] = {"(16,32):(32,1)",
                                    "(16,32):(1,16)",
                                    "(16,32):(64,1)",
                                    "((4,4),(8,4)):((8,128),(1,32))",
                                    "Sw<2,3,3> o (16,32):(32,1)",
                                    "(16,32):(96,3)"};
enum { PLACES = 4096 };

// The tiles, and the pieces of the threads, are each place of the whole once.
static void tiles_and_parts_are_the_whole(void **state) {
    for (size_t t = 0; t < sizeof tiles / sizeof tiles[0]; t++) {
        int whole[PLACES] = {0}, tiled[PLACES] = {0}, pieces[PLACES] = {0}, vectors[PLACES] = {0};
        count_places(state, tiles[t], whole, PLACES);
        for (int i = 0; i < 4; i++)
            for (int j = 0; j < 4; j++)
                count_places(state, arena_printf(*state, "tile(%s, (4,8), (%d,%d))", tiles[t], i, j), tiled, PLACES);
        for (int thread = 0; thread < 32; thread++)
            count_places(state, arena_printf(*state, "distribute(%s, row_major((8,4)), %d)", tiles[t], thread), pieces,
                         PLACES);
        count_places(state, arena_printf(*state, "vectorize(%s, (2,4))", tiles[t]), vectors, PLACES);
        assert_memory_equal(whole, tiled, sizeof whole);
        assert_memory_equal(whole, pieces, sizeof whole);
        assert_memory_equal(whole, vectors, sizeof whole);
    }
}

// Wider elements are those that hold a narrow one; each narrow one lies in a wider one.
static void element_types_share_their_memory(void **state) {
    for (size_t t = 0; t + 1 < sizeof tiles / sizeof tiles[0]; t++)   // not (96,3): 3 and 2 do not divide one another
        for (int n = 2; n <= 4; n *= 2) {
            int narrow[PLACES] = {0}, wide[PLACES] = {0}, pieces[PLACES] = {0};
            count_places(state, tiles[t], narrow, PLACES);
            count_places(state, arena_printf(*state, "upcast(%s, %d)", tiles[t], n), wide, PLACES / n);
            count_places(state, arena_printf(*state, "downcast(upcast(%s, %d), %d)", tiles[t], n, n), pieces, PLACES);
            for (int at = 0; at < PLACES; at++) {
                if (narrow[at]) assert_int_equal(wide[at / n], 1);
                assert_int_equal(pieces[at], wide[at / n]);
            }
        }
}

// The thread whose number stands at a coordinate has the element there, whatever the order of the threads.
static void threads_stand_where_their_layout_says(void **state) {
    static const char *const orders[] = {"(8,4):(4,1)", "(8,4):(1,8)", "((2,4),4):((16,1),4)"};
    for (size_t o = 0; o < sizeof orders / sizeof orders[0]; o++)
        for (int row = 0; row < 8; row++)
            for (int column = 0; column < 4; column++) {
                LayoutContext cx = layout_context(*state);
                const char *text = arena_printf(*state, "distribute((8,4):(4,1), %s, crd2idx(%s, (%d,%d)))", orders[o],
                                                orders[o], row, column);
                CalcValue value = calc_run(calc_new(&cx), text);
                if (cx.failed) fail_msg("%s: %s", text, cx.reason);
                assert_int_equal(swizzled_at(value.layout, 0), row * 4 + column);
            }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_ARENA(values),
        IN_ARENA(reasons),
        IN_ARENA(tiles_and_parts_are_the_whole),
        IN_ARENA(element_types_share_their_memory),
        IN_ARENA(threads_stand_where_their_layout_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
