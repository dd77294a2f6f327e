// Questions by the line, for tools and tests: `tilec layout --batch`.
//
// A line is tab-separated, `op in1 in2`, or a JSON object, {"op": ..., "args": [...]}; further columns and members are
// ignored. The answer to the first is the result's text or `error: reason`; to the second {"result": ...} or
// {"error": "reason"}, where the result null says that there is none (not divisible, not trivial). A blank line or a
// comment (#) is answered by an empty line, so answers and questions stay in step.
//
// Tab-separated operations: size cosize coalesce coalesce_by filter composition complement right_inverse left_inverse
// logical_divide zipped_divide tiled_divide flat_divide logical_product zipped_product tiled_product flat_product
// blocked_product raked_product crd2idx idx2crd slice eval swizzle swizzle_eval, and TileLang's full, half and quarter
// bank layouts: `full rows columns bits i j` gives the columns `index shape element` of golden/swizzle.tsv.
// JSON operations: those of layout/linear.h and layout/calculator/encoding.h, by the names of golden/linear.jsonl.
#pragma once
#include "support/arena.h"
#include <stdbool.h>
#include <stdio.h>

// The answer, without a line end. `line` may end in one.
char *layout_batch_line(Arena *arena, const char *line, size_t length);

// Answers every line of `in` on `out`. False when `out` cannot be written, or when failure->kind says that the work
// could not go on; `failure` needs no initialisation.
struct Failure;
bool layout_batch(struct Failure *failure, FILE *in, FILE *out);
