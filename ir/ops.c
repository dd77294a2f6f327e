// The op table: rows of ops.def as data.
#include "ir/ir.h"
#include <string.h>

// Trailing fields of an operand are left out on purpose: 0 is no scope, the generic proxy, no flag.
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

// ---- the words of ops.def ----
#define TILE STAGE_BIT_TILE
#define THREAD STAGE_BIT_THREAD
#define HOST STAGE_BIT_HOST
#define REF STAGE_BIT_REF
#define EVERY (TILE | THREAD | HOST | REF)
#define VALUE ACCESS_VALUE
#define READ ACCESS_READ
#define WRITE ACCESS_WRITE
#define UPDATE ACCESS_UPDATE
#define NAME ACCESS_NAME
#define G SCOPE_GLOBAL
#define S SCOPE_SHARED
#define F SCOPE_FRAGMENT
#define L SCOPE_LOCAL
#define GENERIC PROXY_GENERIC
#define ASYNC PROXY_ASYNC
#define UNIFORM OPERAND_UNIFORM
#define OPTIONAL OPERAND_OPTIONAL
#define NAMED OPERAND_NAMED
#define CONST OPERAND_CONST
#define VARIADIC OPERAND_VARIADIC
#define WHOLE OPERAND_WHOLE
#define TRUTH OPERAND_TRUTH
#define WORD OPERAND_WORD

#define PLAIN 0
#define PURE OP_CLASS_PURE
#define MATH (OP_CLASS_PURE | OP_CLASS_MATH)
#define TILE_OP OP_CLASS_TILE
#define REDUCTION OP_CLASS_REDUCTION
#define SCAN OP_CLASS_SCAN
#define ELEMENT_OP OP_CLASS_ELEMENT
#define ATOMIC OP_CLASS_ATOMIC
#define COMMUTES OP_CLASS_COMMUTES
#define INTEGER OP_CLASS_INTEGER
#define TENSOR_MAP OP_CLASS_TENSOR_MAP

// ---- the table ----
#define OPERAND_COUNT(...) ((int)(sizeof((Operand[]){__VA_ARGS__{NULL}}) / sizeof(Operand)) - 1)
#define OPERAND(name_, ...) {#name_, __VA_ARGS__},
#define OPERANDS(...) .operand_count = OPERAND_COUNT(__VA_ARGS__), .operands = {__VA_ARGS__}
const OpInfo op_rows[] = {
#define OP(id_, text_, stages_, result_, by_, done_, feature_, classes_, summary_, ...)                                \
    [OP_##id_] = {.id = OP_##id_,                                                                                      \
                  .text = text_,                                                                                       \
                  .stages = stages_,                                                                                   \
                  .result = RESULT_##result_,                                                                          \
                  .participants = BY_##by_,                                                                            \
                  .completion = DONE_##done_,                                                                          \
                  .feature = FEATURE_##feature_,                                                                       \
                  .classes = (classes_),                                                                               \
                  .summary = summary_,                                                                                 \
                  __VA_ARGS__},
#include "ir/ops.def"
#undef OP
#undef OPERANDS
    [OP_COUNT] = {.id = OP_COUNT},   // no operation: of no class
};

// ---- an op whose row is missing or incomplete does not compile ----
_Static_assert(sizeof op_rows / sizeof op_rows[0] == OP_COUNT + 1, "an op without its row");
#define OPERANDS(...) OPERAND_COUNT(__VA_ARGS__)
#define OP(id_, text_, stages_, result_, by_, done_, feature_, classes_, summary_, ...)                                \
    _Static_assert(sizeof text_ > 1 && sizeof summary_ > 1, #id_ ": a name and a summary");                            \
    _Static_assert((stages_) != 0, #id_ ": stands nowhere");                                                           \
    _Static_assert((__VA_ARGS__) <= OP_MAX_OPERANDS, #id_ ": more operands than OP_MAX_OPERANDS");
#include "ir/ops.def"
#undef OP

const Operand *op_operand(OpId op, int i) {
    const OpInfo *info = op_info(op);
    if (info->operand_count == 0) return NULL;
    return &info->operands[i < info->operand_count ? i : info->operand_count - 1];
}

bool op_must_not_repeat(OpId op) {
    const OpInfo *info = op_info(op);
    bool single = op == OP_LOAD || info->participants != BY_EACH;
    for (int i = 0; i < info->operand_count; i++)
        single |= info->operands[i].access == ACCESS_WRITE || info->operands[i].access == ACCESS_UPDATE;
    return single && !op_is_pure(op);
}

OpId op_named(const char *text) {
    int op = 0;
    while (op < OP_COUNT && strcmp(op_rows[op].text, text) != 0) op++;
    return (OpId)op;
}

bool op_takes_element(OpId op, Type type) {
    if (op == OP_REDUCE_ANY || op == OP_REDUCE_ALL) return type == TYPE_BOOL;
    bool moves = op == OP_COPY || op == OP_FILL;
    if (moves && type_kind(type) == KIND_OPAQUE) return false;
    bool computes = op == OP_GEMM || op == OP_SCAN_SUM || op == OP_SCAN_MAX || op_is(op, OP_CLASS_REDUCTION);
    return !computes || type_is_int(type) || type_is_float(type);
}
