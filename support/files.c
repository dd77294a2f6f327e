#include "support/files.h"
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

static const Span NOWHERE;

// Reads to the end of an open file, of which `expected` bytes are known, in growing steps: the size of a pipe is not.
static bool read_all(Arena *arena, int fd, int64_t expected, int64_t limit, FileText *out) {
    enum { ROOM = 2 };   // for the terminator, and for the read that finds the end
    size_t capacity = expected > 0 ? (size_t)expected + ROOM : 64 << 10, length = 0;
    char *text = arena_alloc(arena, capacity);
    for (;;) {
        ssize_t got = read(fd, text + length, capacity - length - 1);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return false;
        length += (size_t)got;
        if (got == 0 || (limit && (int64_t)length > limit)) break;
        if (length + 1 == capacity) {
            text = arena_grow(arena, text, capacity, 2 * capacity);
            capacity *= 2;
        }
    }
    text[length] = 0;
    *out = (FileText){text, length};
    return true;
}

// What the caller has opened, it may wait for: /dev/stdin, or /dev/fd/63 of `<(command)`.
static bool is_descriptor(const char *path) {
    return strcmp(path, "/dev/stdin") == 0 || strncmp(path, "/dev/fd/", 8) == 0 ||
           strncmp(path, "/proc/self/fd/", 14) == 0;
}

static const char *unreadable(const struct stat *info) {
    if (S_ISDIR(info->st_mode)) return "it is a folder";
    if (S_ISFIFO(info->st_mode)) return "it is a named pipe, which may never end; `-` reads standard input";
    bool null = S_ISCHR(info->st_mode) && info->st_rdev == makedev(1, 3);   // /dev/null (Linux, devices.txt)
    return S_ISREG(info->st_mode) || null ? NULL : "it is a device";
}

// Without O_NONBLOCK a named pipe would wait for a writer, and /proc/kmsg, a regular file to stat, for messages.
static int open_to_read(const char *path, struct stat *info, const char **why) {
    bool given = is_descriptor(path), is_stdin = strcmp(path, "-") == 0;
    int fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC | (given ? 0 : O_NONBLOCK));
    *why = NULL;
    if (fd < 0 || fstat(fd, info) != 0) *why = strerror(errno);
    else if (S_ISDIR(info->st_mode) || (!given && !is_stdin)) *why = unreadable(info);
    return fd;
}

bool file_load(Arena *arena, const char *path, int64_t limit, FileText *out, const char **why) {
    struct stat info = {0};
    int fd = open_to_read(path, &info, why);
    *out = (FileText){0};
    bool opened = !*why;
    if (opened && limit && S_ISREG(info.st_mode) && info.st_size > limit) out->length = (size_t)info.st_size;
    else if (opened && !read_all(arena, fd, S_ISREG(info.st_mode) ? info.st_size : 0, limit, out))
        *why = errno == EAGAIN ? "it waits for more, and may never end" : strerror(errno);
    if (fd >= 0 && strcmp(path, "-") != 0) close(fd);
    if (!*why && limit && (int64_t)out->length > limit)
        *why = arena_printf(arena, "it has more than %lld bytes", (long long)limit);
    return !*why;
}

bool file_read(Arena *arena, DiagSink *sink, const char *path, int64_t limit, FileText *out) {
    const char *why;
    if (file_load(arena, path, limit, out, &why)) return true;
    if (limit && (int64_t)out->length > limit)
        diag(sink, NOWHERE, T_FILE_TOO_LARGE, strcmp(path, "-") == 0 ? "<stdin>" : path, (long long)out->length,
             (long long)limit);
    else diag(sink, NOWHERE, T_CANNOT_READ, strcmp(path, "-") == 0 ? "<stdin>" : path, why);
    return false;
}

static bool write_all(int fd, const char *data, size_t bytes) {
    while (bytes > 0) {
        ssize_t put = write(fd, data, bytes);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return false;
        data += put;
        bytes -= (size_t)put;
    }
    return true;
}

static mode_t usual_mode(void) {
    mode_t mask = umask(0);
    umask(mask);
    return 0666 & ~mask;
}

// A device or pipe, which cannot be replaced by rename. A named pipe needs a reader, or a write would wait for ever.
static int open_to_put(const char *path, const struct stat *info, const char **why) {
    int fd = S_ISDIR(info->st_mode) ? (errno = EISDIR, -1) : open(path, O_WRONLY | O_CLOEXEC | O_NONBLOCK);
    bool waits = fd >= 0 && fcntl(fd, F_SETFL, O_WRONLY) == 0;   // then it writes what takes time, too
    if (waits) return fd;
    *why = S_ISFIFO(info->st_mode) && errno == ENXIO ? "nothing reads from this named pipe" : strerror(errno);
    if (fd >= 0) close(fd);
    return -1;
}

bool file_write(Arena *arena, DiagSink *sink, const char *path, const void *data, size_t bytes) {
    if (strcmp(path, "-") == 0) {
        bool ok = write_all(STDOUT_FILENO, data, bytes);
        if (!ok) diag(sink, NOWHERE, T_CANNOT_WRITE, "<stdout>", strerror(errno));
        return ok;
    }
    struct stat info;
    bool there = stat(path, &info) == 0;
    if (there && !S_ISREG(info.st_mode)) {
        const char *why = NULL;
        int fd = open_to_put(path, &info, &why);
        bool ok = fd >= 0 && write_all(fd, data, bytes);
        if (!ok) diag(sink, NOWHERE, T_CANNOT_WRITE, path, why ? why : strerror(errno));
        if (fd >= 0) close(fd);
        return ok;
    }
    char *temporary = arena_printf(arena, "%s.XXXXXX", path);
    int fd = mkostemp(temporary, O_CLOEXEC);
    bool ok = fd >= 0 && write_all(fd, data, bytes);
    ok = ok && fchmod(fd, there ? info.st_mode & 07777 : usual_mode()) == 0;   // mkostemp creates private files
    int error = errno;
    if (fd >= 0 && close(fd) != 0 && ok) ok = (error = errno, false);
    if (ok && rename(temporary, path) != 0) ok = (error = errno, false);
    if (ok) return true;
    if (fd >= 0) unlink(temporary);
    diag(sink, NOWHERE, T_CANNOT_WRITE, path, strerror(error));
    return false;
}

bool file_can_write(Arena *arena, DiagSink *sink, const char *path) {
    struct stat info;
    bool there = stat(path, &info) == 0;
    if (strcmp(path, "-") == 0) return true;
    if (there && !S_ISREG(info.st_mode)) {
        const char *why = NULL;
        int fd = open_to_put(path, &info, &why);
        if (fd < 0) diag(sink, NOWHERE, T_CANNOT_WRITE, path, why);
        else close(fd);
        return fd >= 0;
    }
    char *temporary = arena_printf(arena, "%s.XXXXXX", path);
    int fd = mkostemp(temporary, O_CLOEXEC);
    if (fd < 0) diag(sink, NOWHERE, T_CANNOT_WRITE, path, strerror(errno));
    else close(fd), unlink(temporary);
    return fd >= 0;
}

int folder_lock(Arena *arena, const char *path) {
    int fd = open(path_beside(arena, path, "."), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    while (fd >= 0 && flock(fd, LOCK_EX) != 0) {
        if (errno == EINTR) continue;
        close(fd);
        fd = -1;
    }
    return fd;
}

bool folder_make(DiagSink *sink, const char *path) {
    if (mkdir(path, 0777) == 0 || errno == EEXIST) return true;
    diag(sink, NOWHERE, T_CANNOT_WRITE, path, strerror(errno));
    return false;
}

static int by_name(const FTSENT **a, const FTSENT **b) {
    return strcmp((*a)->fts_name, (*b)->fts_name);
}

static bool has_ending(const char *name, const char *ending) {
    size_t length = strlen(name), size = strlen(ending);
    return length > size && strcmp(name + length - size, ending) == 0;
}

static void add_entry(Arena *arena, DiagSink *sink, const FTSENT *entry, const char *ending, FileNames *out) {
    bool failed = entry->fts_info == FTS_DNR || entry->fts_info == FTS_ERR || entry->fts_info == FTS_NS;
    if (failed) diag(sink, NOWHERE, T_CANNOT_READ, entry->fts_path, strerror(entry->fts_errno));
    if (entry->fts_info == FTS_F && has_ending(entry->fts_name, ending))
        vec_push(arena, out, arena_strdup(arena, entry->fts_path));
}

bool files_named(Arena *arena, DiagSink *sink, const char *path, const char *ending, FileNames *out) {
    struct stat info;
    if (strcmp(path, "-") == 0 || stat(path, &info) != 0 || !S_ISDIR(info.st_mode)) {
        vec_push(arena, out, path);
        return true;
    }
    int before = diag_errors(sink);
    char *roots[] = {arena_strdup(arena, path), NULL};
    FTS *tree = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, by_name);
    for (FTSENT *entry; tree && (entry = fts_read(tree));) add_entry(arena, sink, entry, ending, out);
    if (tree) fts_close(tree);
    else diag(sink, NOWHERE, T_CANNOT_READ, path, strerror(errno));
    return diag_errors(sink) == before;
}

char *path_stem(Arena *arena, const char *path) {
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    if (strcmp(name, "-") == 0 || strcmp(name, "<stdin>") == 0) return arena_strdup(arena, "stdin");
    const char *dot = strrchr(name, '.');
    return arena_strndup(arena, name, dot && dot != name ? (size_t)(dot - name) : strlen(name));
}

char *path_beside(Arena *arena, const char *from, const char *path) {
    const char *slash = strrchr(from, '/');
    if (!slash || path[0] == '/') return arena_strdup(arena, path);
    return arena_printf(arena, "%.*s/%s", (int)(slash - from), from, path);
}

char *path_canonical(Arena *arena, const char *path) {
    char *real = realpath(path, NULL);
    char *copy = arena_strdup(arena, real ? real : path);
    free(real);
    return copy;
}

bool path_is_within(const char *path, const char *folder) {
    size_t length = strlen(folder);
    while (length && folder[length - 1] == '/') length--;
    return path[0] == '/' && strncmp(path, folder, length) == 0 && path[length] == '/';
}

bool path_is_regular(const char *path, const char **why) {
    struct stat info;
    bool there = stat(path, &info) == 0, regular = there && S_ISREG(info.st_mode);
    if (!regular) *why = !there ? strerror(errno) : S_ISDIR(info.st_mode) ? "it is a folder" : "it is no regular file";
    return regular;
}
