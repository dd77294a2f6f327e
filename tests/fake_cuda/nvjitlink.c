// A libnvJitLink that assembles nothing: its cubin is an ELF file of one empty section. For tests of what is said where
// it serves in the place of ptxas.
#include <elf.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define DEFINE(name, parameters)                                                                                       \
    EXPORT int nvJitLink##name parameters;                                                                             \
    int nvJitLink##name parameters

typedef struct File {
    Elf64_Ehdr header;
    Elf64_Shdr names;
} File;

// Those of which success is all that is asked; the parameters do not matter.
#define SUCCEED(name)                                                                                                  \
    DEFINE(name, (void)) {                                                                                             \
        return 0;                                                                                                      \
    }
SUCCEED(Create)
SUCCEED(AddData)
SUCCEED(Complete)
SUCCEED(Destroy)

static int no_text(size_t *size) {
    *size = 0;
    return 0;
}

DEFINE(GetErrorLogSize, (void *handle, size_t *size)) {
    (void)handle;
    return no_text(size);
}

DEFINE(GetInfoLogSize, (void *handle, size_t *size)) {
    (void)handle;
    return no_text(size);
}

SUCCEED(GetErrorLog)
SUCCEED(GetInfoLog)

DEFINE(GetLinkedCubinSize, (void *handle, size_t *size)) {
    (void)handle;
    *size = sizeof(File);
    return 0;
}

DEFINE(GetLinkedCubin, (void *handle, void *cubin)) {
    File file = {.header.e_shoff = offsetof(File, names), .header.e_shentsize = sizeof file.names, .header.e_shnum = 1};
    (void)handle;
    memcpy(file.header.e_ident, ELFMAG, SELFMAG);
    file.header.e_ident[EI_CLASS] = ELFCLASS64;
    file.header.e_ident[EI_DATA] = ELFDATA2LSB;
    memcpy(cubin, &file, sizeof file);
    return 0;
}

DEFINE(Version, (unsigned *major, unsigned *minor)) {
    *major = 13;
    *minor = 9;
    return 0;
}
