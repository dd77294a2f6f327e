#include "runtime/api/status.h"

// Each range of codes (support/diagnostics.def) has a status; the exceptions come first.
TilecStatus status_of_code(DiagCode code) {
    switch (code) {
    case T_CANNOT_READ:
    case T_CANNOT_WRITE:
    case T_CANNOT_RUN:
    case T_NO_DRIVER:
    case T_NO_PTXAS:
    case T_PTXAS_START:
    case T_PTXAS_FAILED:
    case T_PTXAS_KILLED:
    case T_CUBIN_BROKEN:
    case T_NO_DISASSEMBLER:
    case T_DISASSEMBLER_REFUSED:
    case T_NOT_COMPILED:
    case T_TUNING_RECORD:
    case T_NO_COMPILER:
    case T_COMPILER_KILLED:
    case T_TIME_LIMIT:
    case T_OUT_OF_MEMORY: return TILEC_ERROR_ENVIRONMENT;
    case T_CANCELLED: return TILEC_CANCELLED;
    case T_CUDA: return TILEC_ERROR_DEVICE;
    case T_WRONG_DEVICE:
    case T_NEEDS_FEATURE: return TILEC_ERROR_TARGET;
    case T_MISUSE:
    case T_CUT_SHORT:
    case T_UNKNOWN_PASS:
    case T_PASS_ORDER: return TILEC_ERROR_USAGE;
    case T_PTXAS_REFUSED:
    case T_PASS_BROKE:
    case T_ROUNDTRIP:
    case T_EMULATE_AFTER:
    case T_HIDDEN_CHANGE:
    case T_COMPILER_CRASHED:
    case T_INTERNAL: return TILEC_ERROR_INTERNAL;
    default: break;
    }
    if (code >= T_UNKNOWN_OPTION && code <= T_UNKNOWN_CODE) return TILEC_ERROR_USAGE;
    if (code >= 600 && code < 700) return TILEC_ERROR_TARGET;
    return TILEC_ERROR_SOURCE;
}

// The first error's; but a bug in tilec is one whatever the verifier says of its result before.
TilecStatus status_of(const DiagSink *sink, int first) {
    TilecStatus status = TILEC_OK;
    for (int i = first; i < diag_count(sink) && status != TILEC_ERROR_INTERNAL; i++) {
        DiagView view = diag_view(sink, i);
        TilecStatus own = view.severity == SEVERITY_ERROR ? status_of_code(view.code) : TILEC_OK;
        if (status == TILEC_OK || own == TILEC_ERROR_INTERNAL) status = own;
    }
    return status;
}

const char *tilec_status_text(TilecStatus status) {
    switch (status) {
    case TILEC_OK: return "ok";
    case TILEC_ERROR_SOURCE: return "the source, an argument or a test is wrong";
    case TILEC_ERROR_USAGE: return "wrong use";
    case TILEC_ERROR_ENVIRONMENT: return "something outside is missing";
    case TILEC_ERROR_TARGET: return "does not fit the target";
    case TILEC_ERROR_DEVICE: return "device fault";
    case TILEC_CANCELLED: return "cancelled";
    case TILEC_ERROR_INTERNAL: return "internal error";
    }
    return "unknown status";
}
