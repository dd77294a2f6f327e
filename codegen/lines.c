// Source lines: `.loc` directives, by which profilers and debuggers find the place in the .tile source.
//
// LLVM's emission kind "debug directives only" gives .file and .loc and nothing else; the C API has no name for it.
#include "codegen/gen.h"
#include <string.h>

enum { EMISSION_DIRECTIVES_ONLY = 3 };

static LLVMMetadataRef file_of(Gen *gen, int index) {
    void *key = (void *)(intptr_t)(index + 1);
    LLVMMetadataRef file = map_get(gen->lines.files, key);
    if (file) return file;
    const char *path = diag_source_name(gen->module->sink, index);
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    size_t folder = slash ? (size_t)(slash - path) : 0;
    file = LLVMDIBuilderCreateFile(gen->lines.builder, name, strlen(name), path, folder);
    map_put(gen->lines.files, key, file);
    return file;
}

void lines_init(Gen *gen) {
    if (!gen->options->lines) return;
    gen->lines.builder = LLVMCreateDIBuilder(gen->llvm);
    gen->lines.files = map_new(gen->arena);
    LLVMDIBuilderCreateCompileUnit(gen->lines.builder, LLVMDWARFSourceLanguageC, file_of(gen, 0), "tilec", 5, 1, "", 0,
                                   0, "", 0, (LLVMDWARFEmissionKind)EMISSION_DIRECTIVES_ONLY, 0, 0, 0, "", 0, "", 0);
    Value version = const_i32(gen, LLVMDebugMetadataVersion());
    const char *flag = "Debug Info Version";
    LLVMAddModuleFlag(gen->llvm, LLVMModuleFlagBehaviorWarning, flag, strlen(flag), LLVMValueAsMetadata(version));
}

void lines_kernel(Gen *gen, const Func *kernel) {
    gen->lines.scope = NULL;
    if (!gen->lines.builder) return;
    LLVMMetadataRef file = file_of(gen, kernel->loc.file);
    LLVMMetadataRef type = LLVMDIBuilderCreateSubroutineType(gen->lines.builder, file, NULL, 0, LLVMDIFlagZero);
    unsigned line = kernel->loc.line > 0 ? (unsigned)kernel->loc.line : 1;
    gen->lines.scope = LLVMDIBuilderCreateFunction(gen->lines.builder, file, kernel->name, strlen(kernel->name), "", 0,
                                                   file, line, type, 0, 1, line, LLVMDIFlagZero, 1);
    LLVMSetSubprogram(gen->function, gen->lines.scope);
}

// Code without a place of its own (made by a pass) keeps the place of what is before it.
void lines_at(Gen *gen, Span loc) {
    if (!gen->lines.scope || loc.line <= 0) return;
    LLVMMetadataRef scope = gen->lines.scope;
    if (loc.file != gen->func->loc.file) {   // a macro from another file
        LLVMMetadataRef file = file_of(gen, loc.file);
        scope = LLVMDIBuilderCreateLexicalBlockFile(gen->lines.builder, scope, file, 0);
    }
    LLVMMetadataRef place = LLVMDIBuilderCreateDebugLocation(gen->context, (unsigned)loc.line,
                                                             (unsigned)(loc.column > 0 ? loc.column : 0), scope, NULL);
    LLVMSetCurrentDebugLocation2(gen->builder, place);
}

void lines_done(Gen *gen) {
    if (gen->lines.builder) LLVMDIBuilderFinalize(gen->lines.builder);
}
