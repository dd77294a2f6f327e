// How much memory there is: the least of what the machine has free, what the control groups of the process have left (both
// versions of them, as containers limit memory), and the limits of the process.
#include "support/available.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { LONGEST = 4096, LONGEST_NAME = 64 };

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

// The number behind `key` in a file of lines "key number"; "" is a file of one number. -1: it is not there, or "max".
static int64_t number_in(const char *folder, const char *name, const char *key) {
    char path[LONGEST + LONGEST_NAME], line[256];
    int64_t number = -1;
    int length = snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = length < (int)sizeof path ? fopen(path, "re") : NULL;
    while (file && number < 0 && fgets(line, sizeof line, file)) {
        const char *at = line + strlen(key);
        if (strncmp(line, key, strlen(key)) == 0 && strspn(at, " \t0123456789") > 0 && at[0] != '\n')
            number = strtoll(at, NULL, 10);
    }
    if (file) fclose(file);
    return number;
}

// What a group has left; of the cache of files it uses, the system takes back what it needs.
static int64_t left_in(const char *folder, const char *limit_name, const char *usage_name) {
    int64_t limit = number_in(folder, limit_name, ""), usage = number_in(folder, usage_name, "");
    int64_t cache = number_in(folder, "memory.stat", "inactive_file ");
    if (limit < 0 || usage < 0) return INT64_MAX;
    return limit > usage ? limit - usage + (cache > 0 ? cache : 0) : 0;
}

// The groups from this one up to the root, of which each limits those below.
static int64_t left_along(const char *root, char *group, const char *limit_name, const char *usage_name) {
    int64_t left = INT64_MAX;
    for (;;) {
        char folder[LONGEST];
        if (snprintf(folder, sizeof folder, "%s%s", root, group) < (int)sizeof folder)
            left = least(left, left_in(folder, limit_name, usage_name));
        char *slash = strrchr(group, '/');
        if (!slash) return left;
        *slash = 0;
    }
}

static int64_t left_in_groups(void) {
    char line[LONGEST];
    int64_t left = INT64_MAX;
    FILE *file = fopen("/proc/self/cgroup", "re");
    while (file && fgets(line, sizeof line, file)) {   // "4:memory:/group" of version 1, "0::/group" of version 2
        line[strcspn(line, "\n")] = 0;
        char *names = strchr(line, ':'), *group = names ? strchr(names + 1, ':') : NULL;
        if (!group) continue;
        *group++ = 0;
        if (strcmp(names + 1, "memory") == 0)
            left = least(left,
                         left_along("/sys/fs/cgroup/memory", group, "memory.limit_in_bytes", "memory.usage_in_bytes"));
        else if (names[1] == 0) left = least(left, left_along("/sys/fs/cgroup", group, "memory.max", "memory.current"));
    }
    if (file) fclose(file);
    return left;
}

static int64_t left_of_limit(int resource, const char *used) {
    struct rlimit limit;
    if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return INT64_MAX;
    int64_t kilobytes = number_in("/proc/self", "status", used), most = (int64_t)limit.rlim_cur;
    return kilobytes < 0 ? most : most > kilobytes * 1024 ? most - kilobytes * 1024 : 0;
}

int64_t memory_available(void) {
    int64_t free = number_in("/proc", "meminfo", "MemAvailable:"), available = free < 0 ? INT64_MAX : free * 1024;
    available = least(available, left_in_groups());
    available = least(available, left_of_limit(RLIMIT_AS, "VmSize:"));
    return least(available, left_of_limit(RLIMIT_DATA, "VmData:"));
}
