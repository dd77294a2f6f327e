// From diagnostics to one status, which is also the exit code of `tilec`.
#pragma once
#include "support/diag.h"
#include "tilec/tilec.h"

// The status of the first error from diagnostic `first` on; TILEC_OK when there is none.
TilecStatus status_of(const DiagSink *sink, int first);
TilecStatus status_of_code(DiagCode code);
