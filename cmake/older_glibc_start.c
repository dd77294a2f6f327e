// The start of a program for glibc 2.31 (older_glibc.c). Before 2.34 the program passed a function that runs its constructors;
// today's start files pass none, and leave them to glibc. A later glibc calls this function too, and no other.
typedef void Constructor(int argc, char **argv, char **environment);
typedef int Main(int argc, char **argv, char **environment);

#define HIDDEN __attribute__((visibility("hidden")))

extern HIDDEN Constructor *__preinit_array_start[], *__preinit_array_end[], *__init_array_start[], *__init_array_end[];
extern void _init(void);

static void construct(int argc, char **argv, char **environment) {
    for (Constructor **next = __preinit_array_start; next < __preinit_array_end; next++)
        (*next)(argc, argv, environment);
    _init();
    for (Constructor **next = __init_array_start; next < __init_array_end; next++) (*next)(argc, argv, environment);
}

int first_start(Main *main, int argc, char **argv, Constructor *init, void (*fini)(void), void (*end)(void),
                void *stack);
__asm__(".symver first_start, __libc_start_main@GLIBC_2.2.5");

HIDDEN int __libc_start_main(Main *main, int argc, char **argv, Constructor *init, void (*fini)(void),
                             void (*end)(void), void *stack);
int __libc_start_main(Main *main, int argc, char **argv, Constructor *init, void (*fini)(void), void (*end)(void),
                      void *stack) {
    (void)init;
    return first_start(main, argc, argv, construct, fini, end, stack);
}
