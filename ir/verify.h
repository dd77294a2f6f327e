// The verifier: the specification of the IR, as rules (listed at the top of verify.c). Used after the frontend (where a
// violation is the user's error, with place and remedy) and after every pass (where it is an internal error).
//
// `written`: the text is as a person wrote it. Passes put what a condition says into what stands under it (n = 0 under
// `if (n == 0)`), so there a wrong index or a conflict is no mistake of a pass: it may never be reached.
#pragma once
#include "ir/ir.h"

// Checks everything; reports every violation to the module's sink. True when there is none.
bool verify_module(const Module *module, bool written);
bool verify_func(const Module *module, const Func *func, bool written);
void report_in_parallel(DiagSink *sink, Span loc, const OpInfo *info);
// `name` is read, or has an effect, where the host computes: outside of a grid.
void report_on_host(DiagSink *sink, Span loc, const char *name);
