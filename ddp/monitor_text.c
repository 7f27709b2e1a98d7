/* What is said of a fault. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ddp/monitor_internal.h"

const char *ddp_stage_name(int phase)
{
    static const char *const names[DDP_STAGES] = {
#define DDP_STAGE_NAME(name, text) text,
        DDP_STAGE_TABLE(DDP_STAGE_NAME)
#undef DDP_STAGE_NAME
    };

    return phase >= 0 && phase < (int)DDP_STAGES ? names[phase] : "unknown stage";
}

/* "killed by signal 9 (Killed)", "out of memory: ...", "exit status 3" */
static const char *how_text(const ddp_verdict_t *verdict, char *text, size_t size)
{
    text[0] = '\0';
    if (verdict->is_out_of_memory) {
        snprintf(text, size, ", killed by the kernel: out of memory");
    } else if (verdict->signal != 0) {
        snprintf(text, size, ", killed by signal %d (%s)", verdict->signal, strsignal(verdict->signal));
    } else if (verdict->code >= 0) {
        snprintf(text, size, ", exit status %d", verdict->code);
    }
    return text;
}

/* "backward of step 17, bucket 2" */
static const char *where_text(const ddp_verdict_t *verdict, char *text, size_t size)
{
    int used = snprintf(text, size, "%s", ddp_stage_name((int)verdict->phase));

    if (verdict->step > 0) {
        used += snprintf(text + used, size - (size_t)used, " %s step %llu",
                         verdict->phase >= DDP_STAGE_FORWARD && verdict->phase <= DDP_STAGE_UPDATE ? "of"
                                                                                                   : "after",
                         (unsigned long long)verdict->step);
    }
    if (verdict->bucket != DDP_NO_BUCKET) {
        snprintf(text + used, size - (size_t)used, ", bucket %u", verdict->bucket);
    }
    return text;
}

/* Whole ones, where there are some. */
static double round_seconds(double seconds)
{
    return seconds >= 2 ? floor(seconds) : floor(seconds * 10) / 10;
}

void ddp_verdict_text(const ddp_comm_t *comm, const ddp_verdict_t *verdict, char *text, size_t size)
{
    const int    pid     = (int)comm->members[verdict->rank].pid;
    const double seconds = round_seconds(verdict->seconds);
    char         name[DDP_NAME_SIZE], other[DDP_NAME_SIZE], how[96], where[96];

    ddp_comm_name(comm, verdict->rank, name, sizeof(name));
    where_text(verdict, where, sizeof(where));
    switch (verdict->kind) {
    case DDP_FAULT_ENDED:
        snprintf(text, size, "%s has ended (pid %d%s)%s: in %s", name, pid,
                 how_text(verdict, how, sizeof(how)),
                 verdict->is_whole_machine ? ", as all ranks of its host" : "", where);
        break;
    case DDP_FAULT_STOPPED:
        snprintf(text, size, "%s made no progress for %g s: it is stopped (pid %d, SIGSTOP) in %s", name,
                 seconds, pid, where);
        break;
    case DDP_FAULT_SILENT:
        snprintf(text, size,
                 "%s gave no sign of life for %g s (pid %d): its host is gone, or the link to it is cut, or "
                 "all its ranks are stopped; last seen in %s",
                 name, seconds, pid, where);
        break;
    case DDP_FAULT_STUCK:
        snprintf(text, size, "%s made no progress for %g s: it hangs (pid %d) in %s", name, seconds, pid,
                 where);
        break;
    case DDP_FAULT_CIRCLE:
        snprintf(
            text, size, "%s made no progress for %g s (pid %d) in %s: it waits for %s, which waits for it",
            name, seconds, pid, where,
            ddp_comm_name(comm, verdict->other >= 0 ? verdict->other : verdict->rank, other, sizeof(other)));
        break;
    case DDP_FAULT_LAUNCHER:
        snprintf(text, size, "mpirun, or its daemon on %s, has ended: %s (pid %d) was in %s",
                 ddp_comm_host(comm, verdict->rank), name, pid, where);
        break;
    default:
        snprintf(text, size, "%s (pid %d) fails in %s", name, pid, where);
        break;
    }
}
