// C code that launches the kernels of a plan: `tilec build --emit=launcher`.
//
//     Plan + cubin ──► STEM.h    a module with the code, and for each entry  ENTRY_launch(module, stream, workspace, ...)
//                      STEM.c    the cubin, and runtime/plan/dispatch.c's decisions for this plan as code
//
// The code is C99 and C++11, and calls the CUDA driver alone. It decides as plan_dispatch does: variants in order, each with
// its shapes and its condition, then assumptions, scratch, regions, grids. The files of runtime/launcher/:
//
//     launcher              a plan as C
//     expression            an expression of a plan as C
//     launcher_text.c.in    what all launchers have in common, as text
#pragma once
#include "runtime/plan/plan.h"
#include "support/diag.h"

void launcher_header(const Plan *plan, const char *stem, StrBuf *out);
// `stem` names the header, too. False: reported, an expression has no C form.
bool launcher_source(DiagSink *sink, const Plan *plan, const char *stem, const void *cubin, size_t size, StrBuf *out);

const char *launcher_c_name(Arena *arena, const char *name);   // a name of the language as one of C and C++
