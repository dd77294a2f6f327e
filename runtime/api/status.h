// Diagnostic codes -> TilecStatus, which is also the exit code of `tilec`.
#pragma once
#include "support/diag.h"
#include "tilec/tilec.h"

// The status of the first error at or after diagnostic `first`; TILEC_OK: no error.
TilecStatus status_of(const DiagSink *sink, int first);
TilecStatus status_of_code(DiagCode code);
