#include "ir/match.h"
#include "ir/build.h"
#include <string.h>

static const Arg absent;

void call_operands(const Stmt *call, void *operands) {
    const OpInfo *info = op_info(call->call.op);
    for (int i = 0; i < info->operand_count; i++) {
        const Arg *arg = i < call->call.count ? &call->call.args[i] : &absent;
        const void *member = arg;
        if (info->operands[i].access == ACCESS_VALUE) member = arg->value;
        else if (info->operands[i].access != ACCESS_NAME) member = arg->region;
        memcpy((char *)operands + (size_t)i * sizeof member, &member, sizeof member);
    }
}

ReduceOp reduce_of(const Stmt *stmt) {
    ReduceOp operands;
    call_operands(stmt, &operands);
    return operands;
}

ScanOp scan_of(const Stmt *stmt) {
    ScanOp operands;
    call_operands(stmt, &operands);
    return operands;
}

bool match_reduce(const Stmt *stmt, ReduceOp *out) {
    if (is_reduction(stmt)) return *out = reduce_of(stmt), true;
    return false;
}

bool gemm_adds(const GemmOp *gemm) {
    return !gemm->accumulate || expr_is_int(gemm->accumulate, 1);
}

bool is_copy_between(const Stmt *stmt, Scope from, Scope to) {
    if (!is_call(stmt, OP_COPY)) return false;
    const Region *src = ARG(stmt, COPY, src).region, *dst = ARG(stmt, COPY, dst).region;
    return src && dst && src->buf->scope == from && dst->buf->scope == to;
}

const char *gemm_type(const Stmt *gemm, int operand) {
    Type type = gemm->call.args[operand].region->buf->type;
    const char *precision = ARG(gemm, GEMM, precision).name;
    bool fewer =
        operand < (int)OPERAND_INDEX(GEMM, acc) && type == TYPE_F32 && precision && strcmp(precision, "tf32") == 0;
    return fewer ? "tf32" : type_text(type);
}

bool loads_stored(const Expr *expr, const Stmt *store) {
    bool same = expr->kind == EXPR_LOAD && expr->load.buf == store->store.buf;
    for (int d = 0; same && d < store->store.count; d++)
        same = expr_equal(expr->load.indices[d], store->store.indices[d]);
    return same;
}

Expr *scale_of(const Stmt *stmt) {
    const Expr *value = stmt->kind == STMT_STORE ? stmt->store.value : NULL;
    if (!value || !is_binary(value, BIN_MUL)) return NULL;
    bool left = loads_stored(value->binary.a, stmt), right = loads_stored(value->binary.b, stmt);
    if (left == right) return NULL;
    return left ? value->binary.b : value->binary.a;
}
