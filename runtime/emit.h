// Texts made from a compile, beside PTX and manifest.
#pragma once
#include "runtime/plan.h"
#include "support/strbuf.h"

// A C header with the cubin as an array, for programs that embed it: tilec_artefact_open(context, NAME_cubin, ...).
void emit_header(const Plan *plan, const char *name, const uint8_t *cubin, size_t size, StrBuf *out);
