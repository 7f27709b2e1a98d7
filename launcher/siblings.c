#include "launcher/siblings.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* @return bytes, with a zero behind them; 0: not readable */
static size_t read_file(pid_t pid, const char *name, char *text, size_t size)
{
    char   path[64];
    size_t bytes = 0;
    FILE  *file;

    snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
    file = fopen(path, "re");
    if (file != NULL) {
        bytes = fread(text, 1, size - 1, file);
        (void)fclose(file); /* was only read */
    }
    text[bytes] = '\0';
    return bytes;
}

/* What proc(5) calls state and ppid. */
static bool read_state(pid_t pid, char *state_p, int *parent_p)
{
    char        line[1024];
    const char *at = NULL;

    if (read_file(pid, "stat", line, sizeof(line)) > 0) {
        at = strrchr(line, ')'); /* a name may hold anything */
    }
    return at != NULL && sscanf(at + 1, " %c %d", state_p, parent_p) == 2;
}

/* -1: it has none */
static long rank_of(pid_t pid)
{
    static const char name[] = "PMIX_RANK=";
    static char       text[128 * 1024]; /* of one thread: the watchdog's */
    const size_t      bytes = read_file(pid, "environ", text, sizeof(text));

    for (size_t at = 0; at < bytes; at += strlen(text + at) + 1) {
        if (strncmp(text + at, name, sizeof(name) - 1) == 0) {
            return strtol(text + at + sizeof(name) - 1, NULL, 10);
        }
    }
    return -1;
}

static void look_at(ddp_siblings_t *seen, pid_t pid, long mine)
{
    char state  = 0;
    int  parent = 0;
    long rank;

    if (pid == getpid() || !read_state(pid, &state, &parent) || parent != (int)getppid()) {
        return;
    }
    rank = rank_of(pid);
    if (rank < 0) {
        return;
    }
    if (state != 'T' && state != 't') {
        seen->is_lowest = seen->is_lowest && rank > mine;
    } else if (seen->stopped_rank < 0 || rank < seen->stopped_rank) {
        seen->stopped_rank = rank;
        seen->stopped_pid  = pid;
    }
}

ddp_siblings_t ddp_siblings_look(void)
{
    ddp_siblings_t       seen = {.stopped_rank = -1, .is_lowest = true};
    const char          *text = getenv("PMIX_RANK");
    const long           mine = text != NULL ? strtol(text, NULL, 10) : -1;
    DIR                 *all  = mine >= 0 ? opendir("/proc") : NULL;
    const struct dirent *entry;

    while (all != NULL && (entry = readdir(all)) != NULL) {
        if (isdigit((unsigned char)entry->d_name[0])) {
            look_at(&seen, (pid_t)strtol(entry->d_name, NULL, 10), mine);
        }
    }
    if (all != NULL) {
        (void)closedir(all); /* was only read */
    }
    return seen;
}
