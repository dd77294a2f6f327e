// malloc and its kin for a whole process, LLVM and the C library included (LD_PRELOAD): counts the requests of a process
// named `tilec`, and refuses some. Counter and numbers are in a file that the test maps too: TILEC_REFUSE names it.
#include "tests/memory/preloaded.h"
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *block, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

static Refusal *refusal;

__attribute__((constructor(101))) static void open_file(void) {
    const char *path = getenv("TILEC_REFUSE");
    if (!path || strcmp(program_invocation_short_name, "tilec") != 0) return;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    void *mapped = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof *refusal, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0) close(fd);
    if (mapped != MAP_FAILED) refusal = mapped;
}

static bool refused(void) {
    if (!refusal) return false;
    long number = ++refusal->requests;
    if (number < refusal->first || number > refusal->last) return false;
    errno = ENOMEM;
    return true;
}

void *malloc(size_t bytes) {
    return refused() ? NULL : __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes) {
    return refused() ? NULL : __libc_calloc(count, bytes);
}

void *realloc(void *block, size_t bytes) {
    return (bytes || !block) && refused() ? NULL : __libc_realloc(block, bytes);
}

void *memalign(size_t alignment, size_t bytes) {
    return refused() ? NULL : __libc_memalign(alignment, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes) {
    return memalign(alignment, bytes);
}

int posix_memalign(void **out, size_t alignment, size_t bytes) {
    *out = memalign(alignment, bytes);
    return *out ? 0 : ENOMEM;
}
