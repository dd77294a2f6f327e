// libnvJitLink: ptxas as a library, found at run time. Serves where CUDA's runtime libraries are installed (as Python
// packages bring them) but its tools are not. About as fast as ptxas on large kernels, faster on small ones.
#include "codegen/assembler.h"
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

typedef struct nvJitLink *Handle;
enum { INPUT_PTX = 2, SUCCESS = 0 };

typedef struct Library {
    int (*create)(Handle *handle, uint32_t count, const char **options);
    int (*add_data)(Handle handle, int kind, const void *data, size_t size, const char *name);
    int (*complete)(Handle handle);
    int (*cubin_size)(Handle handle, size_t *size);
    int (*cubin)(Handle handle, void *cubin);
    int (*error_size)(Handle handle, size_t *size);
    int (*error)(Handle handle, char *log);
    int (*info_size)(Handle handle, size_t *size);
    int (*info)(Handle handle, char *log);
    int (*destroy)(Handle *handle);
    int (*version)(unsigned *major, unsigned *minor);
} Library;

static void *open_library(Arena *arena) {
    static const char *const names[] = {"libnvJitLink.so.13", "libnvJitLink.so.12", "libnvJitLink.so"};
    const char *given = getenv("CUDA_HOME") ? getenv("CUDA_HOME") : getenv("CUDA_PATH");
    const char *root = given ? given : "/usr/local/cuda";
    for (int i = 0; i < (int)(sizeof names / sizeof names[0]); i++) {
        void *library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
        if (library) return library;
    }
    return dlopen(arena_printf(arena, "%s/lib64/libnvJitLink.so", root), RTLD_NOW | RTLD_LOCAL);
}

// The library stays loaded: loading it costs more than assembling a small kernel.
static bool load(Arena *arena, Library *library) {
    static const char *const names[] = {"Create",         "AddData",         "Complete",    "GetLinkedCubinSize",
                                        "GetLinkedCubin", "GetErrorLogSize", "GetErrorLog", "GetInfoLogSize",
                                        "GetInfoLog",     "Destroy",         "Version"};
    void *handle = open_library(arena);
    if (!handle) return false;
    void *symbols[sizeof names / sizeof names[0]];
    _Static_assert(sizeof symbols == sizeof *library, "one name for each function");
    for (int i = 0; i < (int)(sizeof names / sizeof names[0]); i++) {
        char symbol[64] = "nvJitLink";
        symbols[i] = dlsym(handle, strcat(symbol, names[i]));
        if (!symbols[i]) return false;
    }
    memcpy(library, symbols, sizeof *library);
    return true;
}

static const char *log_text(Arena *arena, Handle handle, int (*size_of)(Handle, size_t *),
                            int (*read)(Handle, char *)) {
    size_t size = 0;
    if (size_of(handle, &size) != SUCCESS || size == 0) return "";
    char *text = arena_alloc(arena, size + 1);
    return read(handle, text) == SUCCESS ? text : "";
}

static AssembleStatus read_cubin(Assembly *assembly, const Library *library, Handle handle) {
    size_t size = 0;
    if (library->cubin_size(handle, &size) != SUCCESS || size == 0) return REFUSED;
    uint8_t *data = arena_alloc(assembly->arena, size);
    if (library->cubin(handle, data) != SUCCESS) return REFUSED;
    assembly->data = data;
    assembly->size = size;
    return ASSEMBLED;
}

AssembleStatus run_nvjitlink(Assembly *assembly) {
    Library library;
    if (!load(assembly->arena, &library)) return UNAVAILABLE;
    unsigned major = 0, minor = 0;
    library.version(&major, &minor);
    assembly->assembler = arena_printf(assembly->arena, "nvJitLink %u.%u", major, minor);
    const char *arch = arena_printf(assembly->arena, "-arch=%s", assembly->options->target->name);
    const char *options[5] = {arch, "-O3", "-verbose"};
    uint32_t count = 3;
    if (assembly->options->lines) options[count++] = "-lineinfo";
    if (assembly->few_registers)
        options[count++] = arena_printf(assembly->arena, "-Xptxas=--register-usage-level=%d", FEW_REGISTERS_LEVEL);
    Handle handle = NULL;
    if (library.create(&handle, count, options) != SUCCESS) return REFUSED;
    int status = library.add_data(handle, INPUT_PTX, assembly->ptx, strlen(assembly->ptx) + 1, "tilec");
    if (status == SUCCESS) status = library.complete(handle);
    const char *errors = log_text(assembly->arena, handle, library.error_size, library.error);
    const char *info = log_text(assembly->arena, handle, library.info_size, library.info);
    assembly->log = arena_printf(assembly->arena, "%s%s", errors, info);
    AssembleStatus result = status == SUCCESS ? read_cubin(assembly, &library, handle) : REFUSED;
    library.destroy(&handle);
    return result;
}
