// Source lines: `.loc` directives, by which profilers and debuggers find the place in the .tile source.
//
// LLVM's emission kind "debug directives only" gives .file and .loc and nothing else; the C API has no name for it.
#include "codegen/gen.h"
#include <string.h>

enum { EMISSION_DIRECTIVES_ONLY = 3 };

// PTX has no escapes in the name of a .file.
static const char *plain_path(Gen *gen, const char *path) {
    char *plain = arena_strdup(gen->arena, path);
    for (char *c = plain; *c; c++)
        if (*c == '"' || *c == '\\' || (unsigned char)*c < ' ' || *c == 0x7f) *c = '_';
    return plain;
}

static LLVMMetadataRef file_of(Gen *gen, int index) {
    void *key = (void *)(intptr_t)(index + 1);
    LLVMMetadataRef file = map_get(gen->debug_lines.files, key);
    if (file) return file;
    const char *path = plain_path(gen, diag_source_name(gen->module->sink, index));
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    size_t folder = slash ? (size_t)(slash - path) : 0;
    file = LLVMDIBuilderCreateFile(gen->debug_lines.builder, name, strlen(name), path, folder);
    map_put(gen->debug_lines.files, key, file);
    return file;
}

void debug_lines_init(Gen *gen) {
    if (!gen->options->lines) return;
    gen->debug_lines.builder = LLVMCreateDIBuilder(gen->llvm.module);
    gen->debug_lines.files = map_new(gen->arena);
    LLVMDIBuilderCreateCompileUnit(gen->debug_lines.builder, LLVMDWARFSourceLanguageC, file_of(gen, 0), "tilec", 5, 1,
                                   "", 0, 0, "", 0, (LLVMDWARFEmissionKind)EMISSION_DIRECTIVES_ONLY, 0, 0, 0, "", 0, "",
                                   0);
    Value version = const_i32(gen, LLVMDebugMetadataVersion());
    const char *flag = "Debug Info Version";
    LLVMAddModuleFlag(gen->llvm.module, LLVMModuleFlagBehaviorWarning, flag, strlen(flag),
                      LLVMValueAsMetadata(version));
}

void debug_lines_kernel(Gen *gen, const Func *kernel) {
    gen->debug_lines.scope = NULL;
    if (!gen->debug_lines.builder) return;
    LLVMMetadataRef file = file_of(gen, kernel->loc.file);
    LLVMMetadataRef type = LLVMDIBuilderCreateSubroutineType(gen->debug_lines.builder, file, NULL, 0, LLVMDIFlagZero);
    unsigned line = kernel->loc.line > 0 ? (unsigned)kernel->loc.line : 1;
    gen->debug_lines.scope =
        LLVMDIBuilderCreateFunction(gen->debug_lines.builder, file, kernel->name, strlen(kernel->name), "", 0, file,
                                    line, type, 0, 1, line, LLVMDIFlagZero, 1);
    LLVMSetSubprogram(gen->kernel.function, gen->debug_lines.scope);
}

// Code without a place of its own (made by a pass) keeps the place of what is before it.
void debug_lines_at(Gen *gen, Span loc) {
    if (loc.line > 0) gen->kernel.place = loc;
    if (!gen->debug_lines.scope || loc.line <= 0) return;
    LLVMMetadataRef scope = gen->debug_lines.scope;
    if (loc.file != gen->kernel.func->loc.file) {   // a macro from another file
        LLVMMetadataRef file = file_of(gen, loc.file);
        scope = LLVMDIBuilderCreateLexicalBlockFile(gen->debug_lines.builder, scope, file, 0);
    }
    LLVMMetadataRef place = LLVMDIBuilderCreateDebugLocation(gen->llvm.context, (unsigned)loc.line,
                                                             (unsigned)(loc.column > 0 ? loc.column : 0), scope, NULL);
    LLVMSetCurrentDebugLocation2(gen->builder, place);
}

void debug_lines_done(Gen *gen) {
    if (gen->debug_lines.builder) LLVMDIBuilderFinalize(gen->debug_lines.builder);
}
