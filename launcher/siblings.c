#include "launcher/siblings.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launcher/processes.h"

#define ENVIRON_BYTES ((size_t)128 * 1024)

typedef struct look {
    ddp_siblings_t *seen;
    char           *text; /* [ENVIRON_BYTES], owned */
    long            mine;
} look_t;

/* -1: it has none */
static long rank_of(const look_t *look, pid_t pid)
{
    static const char name[] = "PMIX_RANK=";
    const size_t      bytes  = ddp_process_read(pid, "environ", look->text, ENVIRON_BYTES);

    for (size_t at = 0; at < bytes; at += strlen(look->text + at) + 1) {
        if (strncmp(look->text + at, name, sizeof(name) - 1) == 0) {
            return strtol(look->text + at + sizeof(name) - 1, NULL, 10);
        }
    }
    return -1;
}

static void look_at(void *look_p, const ddp_process_t *process)
{
    const look_t   *look = look_p;
    ddp_siblings_t *seen = look->seen;
    long            rank = -1;

    if (process->pid != getpid() && process->parent == getppid()) {
        rank = rank_of(look, process->pid);
    }
    if (rank < 0) {
        return;
    }
    if (process->state != 'T' && process->state != 't') {
        seen->is_lowest = seen->is_lowest && rank > look->mine;
    } else if (seen->stopped_rank < 0 || rank < seen->stopped_rank) {
        seen->stopped_rank = rank;
        seen->stopped_pid  = process->pid;
    }
}

ddp_siblings_t ddp_siblings_look(void)
{
    ddp_siblings_t seen = {.stopped_rank = -1, .is_lowest = true};
    const char    *text = getenv("PMIX_RANK");
    look_t         look = {.seen = &seen, .mine = text != NULL ? strtol(text, NULL, 10) : -1};

    look.text = look.mine >= 0 ? malloc(ENVIRON_BYTES) : NULL;
    if (look.text != NULL) {
        ddp_processes_each(look_at, &look);
    }
    free(look.text);
    return seen;
}
