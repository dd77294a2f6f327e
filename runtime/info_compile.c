// The part of runtime/info.h that needs passes and codegen.
#include "codegen/codegen.h"
#include "passes/pass.h"
#include "runtime/info.h"

void info_passes_document(StrBuf *out) {
    passes_document(out);
}

void info_passes(StrBuf *out) {
    const Pass *pass;
    for (int i = 0; (pass = pass_at(i)); i++) sb_printf(out, "%-20s %s\n", pass->name, pass->summary);
}

// Assembles the smallest kernel there is.
void info_assembler(Arena *arena, Failure *failure, const char *ptxas, StrBuf *out) {
    static const char ptx[] = ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry empty() { ret; }\n";
    DiagSink *sink = diag_sink_new(arena);
    AssembleOptions options = {.target = target_named("sm_80"), .ptxas = ptxas};
    Cubin cubin = {0};
    if (assemble(arena, failure, sink, ptx, &options, &cubin)) sb_printf(out, "assembler  %s\n", cubin.assembler);
    else sb_printf(out, "assembler  none: %s\n", diag_count(sink) ? diag_view(sink, 0).message : "?");
}
