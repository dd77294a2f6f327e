// Lets what is linked here, with glibc 2.34 or later, run with glibc 2.31: TILEC_PORTABLE, cmake/TilecPortable.cmake.
//
// The archives of LLVM, SQLite and libstdc++, and tilec's own objects ask for functions by name; the linker adds the newest version that it
// finds. Here each function that is newer than 2.31, or has moved to libc.so.6 with a new version, has a definition of its
// own. It is hidden, so that no other library of the process sees it.
//
//   moved        pthread_* and dl* jump to the version that they had in libpthread.so.0 and libdl.so.2. Later glibcs keep it.
//   inlined      stat and its kind were inline functions of the header; the system calls have the same structure.
//   new          what has no older version does what its callers do without it.
#include <fcntl.h>
#include <malloc.h>
#include <stdint.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define HIDDEN __attribute__((visibility("hidden")))

#define FIRST_VERSION "GLIBC_2.2.5"   // of glibc on x86-64
#define MOVED(name)                                                                                                    \
    __asm__(".pushsection .text\n"                                                                                     \
            ".symver first_" #name ", " #name "@" FIRST_VERSION "\n"                                                   \
            ".globl " #name "\n"                                                                                       \
            ".hidden " #name "\n"                                                                                      \
            ".type " #name ", @function\n" #name ": jmp *first_" #name "@GOTPCREL(%rip)\n"                             \
            ".size " #name ", . - " #name "\n"                                                                         \
            ".popsection")

MOVED(pthread_create);
MOVED(pthread_join);
MOVED(pthread_once);
MOVED(pthread_sigmask);
MOVED(pthread_attr_setstacksize);
MOVED(pthread_mutex_trylock);
MOVED(pthread_mutexattr_init);
MOVED(pthread_mutexattr_settype);
MOVED(pthread_mutexattr_destroy);
MOVED(pthread_rwlock_rdlock);
MOVED(pthread_rwlock_wrlock);
MOVED(pthread_rwlock_unlock);
MOVED(__pthread_key_create);
MOVED(dlopen);
MOVED(dlsym);
MOVED(dladdr);
MOVED(dlerror);
MOVED(dlclose);

HIDDEN int fstatat(int folder, const char *restrict path, struct stat *restrict out, int flags) {
    return (int)syscall(SYS_newfstatat, folder, path, out, flags);
}

HIDDEN int stat(const char *restrict path, struct stat *restrict out) {
    return fstatat(AT_FDCWD, path, out, 0);
}

HIDDEN int lstat(const char *restrict path, struct stat *restrict out) {
    return fstatat(AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW);
}

HIDDEN int fstat(int file, struct stat *out) {
    return (int)syscall(SYS_fstat, file, out);
}

#define SAME(name, as)                                                                                                 \
    __asm__(".globl " #name "\n.hidden " #name "\n.set " #name ", " #as)   // the structure is the same
SAME(stat64, stat);
SAME(lstat64, lstat);
SAME(fstat64, fstat);

// LLVM's statistics.
HIDDEN struct mallinfo2 mallinfo2(void) {
    return (struct mallinfo2){0};
}

// libstdc++: whether reference counts need no atomic instructions.
extern char __libc_single_threaded;
HIDDEN char __libc_single_threaded = 0;

// The unwinder then walks the list of libraries, as before 2.35.
HIDDEN int _dl_find_object(void *address, void *out);
HIDDEN int _dl_find_object(void *address, void *out) {
    (void)address;
    (void)out;
    return -1;
}

HIDDEN uint32_t arc4random(void) {
    uint32_t value;
    while (getrandom(&value, sizeof value, 0) != sizeof value) {}
    return value;
}
