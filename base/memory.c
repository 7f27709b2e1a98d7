#include "base/memory.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define PATH_SIZE 1024

static bool read_number(const char *folder, const char *name, uint64_t *value_p)
{
    char               path[PATH_SIZE + 64];
    unsigned long long value = 0;
    FILE              *file;
    bool               is_read;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    file = fopen(path, "re");
    if (file == NULL) {
        return false;
    }
    is_read = fscanf(file, "%llu", &value) == 1; /* "max" is no number */
    (void)fclose(file);                          /* was only read */
    if (is_read) {
        *value_p = value;
    }
    return is_read;
}

/* Sum of the lines of `path` that begin with one of two keys. */
static uint64_t sum_of_keys(const char *path, const char *key_a, const char *key_b)
{
    char     line[256];
    uint64_t sum  = 0;
    FILE    *file = fopen(path, "re");

    if (file == NULL) {
        return 0;
    }
    while (fgets(line, sizeof(line), file) != NULL) {
        char              *end = line + strcspn(line, " \t");
        unsigned long long value;

        value = *end != '\0' ? strtoull(end, NULL, 10) : 0;
        *end  = '\0';
        if (strcmp(line, key_a) == 0 || strcmp(line, key_b) == 0) {
            sum += value;
        }
    }
    (void)fclose(file); /* was only read */
    return sum;
}

/* Room under the limit of one control group; file pages can be given back, so they count as room. */
static uint64_t room_of_group(const char *folder, const char *limit_name, const char *usage_name,
                              const char *key_a, const char *key_b)
{
    char     path[PATH_SIZE + 64];
    uint64_t limit = 0;
    uint64_t usage = 0;
    uint64_t cache;

    if (!read_number(folder, limit_name, &limit) || !read_number(folder, usage_name, &usage)) {
        return UINT64_MAX;
    }
    snprintf(path, sizeof(path), "%s/memory.stat", folder);
    cache = sum_of_keys(path, key_a, key_b);
    usage = usage > cache ? usage - cache : 0;
    return limit > usage ? limit - usage : 0;
}

/* The group of this process and all groups above it, up to `top`. */
static uint64_t room_of_groups(const char *top, const char *group, bool is_v2)
{
    char     folder[PATH_SIZE];
    uint64_t least = UINT64_MAX;

    snprintf(folder, sizeof(folder), "%s%s", top, strcmp(group, "/") == 0 ? "" : group);
    while (strlen(folder) >= strlen(top)) {
        const uint64_t room =
            is_v2 ? room_of_group(folder, "memory.max", "memory.current", "inactive_file", "active_file")
                  : room_of_group(folder, "memory.limit_in_bytes", "memory.usage_in_bytes",
                                  "total_inactive_file", "total_active_file");
        char *slash = strrchr(folder, '/');

        least = room < least ? room : least;
        if (slash == NULL) {
            break;
        }
        *slash = '\0';
    }
    return least;
}

static uint64_t room_by_groups(const char *root)
{
    char     path[PATH_SIZE], line[PATH_SIZE], top[PATH_SIZE];
    uint64_t least = UINT64_MAX;
    FILE    *file;

    snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
    file = fopen(path, "re");
    if (file == NULL) {
        return least;
    }
    while (fgets(line, sizeof(line), file) != NULL) { /* "4:memory:/job" or "0::/job" */
        char    *controllers = strchr(line, ':');
        char    *group       = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
        bool     is_v2       = false;
        uint64_t room;

        if (group == NULL) {
            continue;
        }
        *group++ = '\0';
        controllers++;
        group[strcspn(group, "\n")] = '\0';
        is_v2                       = controllers[0] == '\0';
        if (!is_v2 && strcmp(controllers, "memory") != 0) {
            continue;
        }
        snprintf(top, sizeof(top), "%s/sys/fs/cgroup%s", root, is_v2 ? "" : "/memory");
        room  = room_of_groups(top, group, is_v2);
        least = room < least ? room : least;
    }
    (void)fclose(file); /* was only read */
    return least;
}

uint64_t ddp_memory_available(const char *root)
{
    char     path[PATH_SIZE];
    uint64_t free_bytes;
    uint64_t room = room_by_groups(root);

    snprintf(path, sizeof(path), "%s/proc/meminfo", root);
    free_bytes = sum_of_keys(path, "MemAvailable:", "MemAvailable:") * 1024;
    if (free_bytes == 0) {
        free_bytes = UINT64_MAX; /* not told */
    }
    return free_bytes < room ? free_bytes : room;
}

uint64_t ddp_memory_address_space(const char *root)
{
    char          path[PATH_SIZE];
    struct rlimit limit;
    uint64_t      used;

    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
        return UINT64_MAX;
    }
    snprintf(path, sizeof(path), "%s/proc/self/status", root);
    used = sum_of_keys(path, "VmSize:", "VmSize:") * 1024;
    return limit.rlim_cur > used ? limit.rlim_cur - used : 0;
}
