#include "tests/memory/refuse.h"
#include <errno.h>
#include <pthread.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

static atomic_long requests, first_refused, last_refused, blocks;

void refuse_from(long first, long last) {
    requests = 0;
    first_refused = first;
    last_refused = last;
}

void refuse_none(void) {
    refuse_from(0, -1);
}

long requests_made(void) {
    return requests;
}

long blocks_held(void) {
    return blocks;
}

static bool refused(void) {
    long number = ++requests;
    return number >= first_refused && number <= last_refused;
}

static void *held(void *block) {
    if (block) ++blocks;
    return block;
}

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *block, size_t bytes);
void __real_free(void *block);
char *__real_realpath(const char *path, char *out);
void *__real_dlopen(const char *name, int mode);
int __real_memfd_create(const char *name, unsigned flags);
int __real_pthread_attr_init(pthread_attr_t *attributes);
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*work)(void *), void *user);
int __real_posix_spawnattr_init(posix_spawnattr_t *attributes);
int __real_posix_spawn_file_actions_init(posix_spawn_file_actions_t *actions);
int __real_posix_spawn_file_actions_adddup2(posix_spawn_file_actions_t *actions, int from, int to);
int __real_posix_spawn_file_actions_addopen(posix_spawn_file_actions_t *actions, int fd, const char *path, int flags,
                                            mode_t mode);
int __real_posix_spawn(pid_t *id, const char *path, const posix_spawn_file_actions_t *actions,
                       const posix_spawnattr_t *attributes, char *const *arguments, char *const *environment);

void *__wrap_malloc(size_t bytes) {
    return refused() ? NULL : held(__real_malloc(bytes));
}

void *__wrap_calloc(size_t count, size_t bytes) {
    return refused() ? NULL : held(__real_calloc(count, bytes));
}

void *__wrap_realloc(void *block, size_t bytes) {
    if (refused()) return NULL;
    return block ? __real_realloc(block, bytes) : held(__real_realloc(block, bytes));
}

void __wrap_free(void *block) {
    if (block) --blocks;
    __real_free(block);
}

char *__wrap_realpath(const char *path, char *out) {
    return refused() ? (errno = ENOMEM, NULL) : out ? __real_realpath(path, out) : held(__real_realpath(path, out));
}

void *__wrap_dlopen(const char *name, int mode) {
    return refused() ? NULL : __real_dlopen(name, mode);
}

int __wrap_memfd_create(const char *name, unsigned flags) {
    return refused() ? (errno = ENOMEM, -1) : __real_memfd_create(name, flags);
}

int __wrap_pthread_attr_init(pthread_attr_t *attributes) {
    return refused() ? ENOMEM : __real_pthread_attr_init(attributes);
}

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*work)(void *), void *user) {
    return refused() ? EAGAIN : __real_pthread_create(thread, attributes, work, user);
}

int __wrap_posix_spawnattr_init(posix_spawnattr_t *attributes) {
    return refused() ? ENOMEM : __real_posix_spawnattr_init(attributes);
}

int __wrap_posix_spawn_file_actions_init(posix_spawn_file_actions_t *actions) {
    return refused() ? ENOMEM : __real_posix_spawn_file_actions_init(actions);
}

int __wrap_posix_spawn_file_actions_adddup2(posix_spawn_file_actions_t *actions, int from, int to) {
    return refused() ? ENOMEM : __real_posix_spawn_file_actions_adddup2(actions, from, to);
}

int __wrap_posix_spawn_file_actions_addopen(posix_spawn_file_actions_t *actions, int fd, const char *path, int flags,
                                            mode_t mode) {
    return refused() ? ENOMEM : __real_posix_spawn_file_actions_addopen(actions, fd, path, flags, mode);
}

int __wrap_posix_spawn(pid_t *id, const char *path, const posix_spawn_file_actions_t *actions,
                       const posix_spawnattr_t *attributes, char *const *arguments, char *const *environment) {
    return refused() ? ENOMEM : __real_posix_spawn(id, path, actions, attributes, arguments, environment);
}
