/* How a save is getting on: every writing thread says in shared memory what it is at and when it last got on.
 * The training thread of rank 0 looks at that; it never waits for the disk itself. */
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "io/saver_internal.h"

/* How long rank 0 looks before it tells the others that it still does. */
#define STEP_NS   ((int64_t)200000000)
#define POLL_US   500
#define MOST_NS   ((int64_t)30000000000)
#define SECOND_NS 1e9
#define MEGABYTE  1e6

void ddp_saver_stage(ddp_save_writer_t *writer, ddp_save_stage_t stage)
{
    if (writer != NULL) {
        atomic_store(&writer->stage, (int)stage);
        atomic_store(&writer->moved_ns, ddp_clock_ns());
    }
}

void ddp_saver_moved(ddp_save_writer_t *writer, uint64_t bytes)
{
    atomic_fetch_add(&writer->written, bytes);
    atomic_store(&writer->moved_ns, ddp_clock_ns());
}

int64_t ddp_saver_timeout_ns(const ddp_saver_t *saver)
{
    return saver->params.timeout_ms * (int64_t)1000000;
}

int64_t ddp_saver_hang_ns(const ddp_saver_t *saver)
{
    const int64_t half = ddp_saver_timeout_ns(saver) / 2;

    return half < MOST_NS ? half : MOST_NS;
}

int64_t ddp_saver_silence_ns(const ddp_saver_t *saver)
{
    int64_t last = 0;

    for (int r = 0; r < saver->n_writers; r++) {
        const int64_t moved = atomic_load(&saver->writers[r].moved_ns);

        last = moved > last ? moved : last;
    }
    return ddp_clock_ns() - last;
}

/* Has a rank something to do for a job? Rank 0 makes and finishes the file. */
static bool is_at_work(const ddp_saver_t *saver, int rank, uint64_t number)
{
    return atomic_load(&saver->writers[rank].ended) < number ||
           (rank == 0 && atomic_load(&saver->shared->closed) < number);
}

bool ddp_saver_is_busy(const ddp_saver_t *saver)
{
    bool is_busy = false;

    for (int r = 0; r < saver->n_writers; r++) {
        is_busy = is_busy || is_at_work(saver, r, saver->number);
    }
    return is_busy;
}

/* Who holds the job up: not one that waits for another. */
static int find_culprit(const ddp_saver_t *saver, uint64_t number)
{
    int rank = 0;

    for (int r = saver->n_writers - 1; r >= 0; r--) {
        if (is_at_work(saver, r, number) && atomic_load(&saver->writers[r].stage) != DDP_SAVE_RESTS) {
            rank = r;
        }
    }
    return rank;
}

void ddp_saver_describe(const ddp_saver_t *saver, uint64_t number, int64_t silence_ns,
                        char text[DDP_ERROR_LINE_SIZE])
{
    static const char *const stages[] = {
        [DDP_SAVE_RESTS]        = "a wait",
        [DDP_SAVE_MKDIR]        = "mkdir",
        [DDP_SAVE_OPEN]         = "open",
        [DDP_SAVE_FALLOCATE]    = "fallocate",
        [DDP_SAVE_PWRITE]       = "pwrite",
        [DDP_SAVE_CLOSE]        = "close",
        [DDP_SAVE_FSYNC]        = "fsync",
        [DDP_SAVE_RENAME]       = "rename",
        [DDP_SAVE_UNLINK]       = "unlink",
        [DDP_SAVE_FSYNC_FOLDER] = "fsync of the folder",
        [DDP_SAVE_TIDY]         = "links and old files",
    };
    const int rank      = find_culprit(saver, number);
    uint64_t  written   = 0;
    char      whose[32] = "";
    char      much[64]  = "";

    for (int r = 0; r < saver->n_writers; r++) {
        written += atomic_load(&saver->writers[r].written);
    }
    if (saver->n_writers > 1) { /* rank 0's machine has the first ranks */
        snprintf(whose, sizeof(whose), " of rank %d", rank);
    }
    if (saver->shared->bytes > 0) {
        const double all    = (double)saver->shared->bytes / MEGABYTE;
        const int    digits = all < 10 ? 3 : 0;

        snprintf(much, sizeof(much), ", %.*f of %.*f MB written", digits, (double)written / MEGABYTE, digits,
                 all);
    }
    snprintf(text, DDP_ERROR_LINE_SIZE, "%s on %s: no progress for %.3g s, in %s%s%s", saver->shared->what,
             saver->host, (double)silence_ns / SECOND_NS, stages[atomic_load(&saver->writers[rank].stage)],
             whose, much);
}

ddp_save_sight_t ddp_saver_look(ddp_saver_t *saver, int64_t patience_ns)
{
    char    line[DDP_ERROR_LINE_SIZE];
    int64_t silence;

    if (!ddp_saver_is_busy(saver)) {
        return DDP_SAVE_IDLE;
    }
    silence = ddp_saver_silence_ns(saver);
    if (silence < ddp_saver_hang_ns(saver)) {
        saver->warn_ns = ddp_saver_hang_ns(saver);
        return DDP_SAVE_BUSY;
    }
    if (silence >= patience_ns) { /* the caller says it */
        saver->warn_ns = 2 * silence;
        return DDP_SAVE_HANGS;
    }
    if (silence >= saver->warn_ns) {
        saver->warn_ns = 2 * silence;
        ddp_saver_describe(saver, saver->number, silence, line);
        ddp_log(DDP_LOG_WARN, "%s", line);
    }
    return DDP_SAVE_BUSY;
}

ddp_status_t ddp_saver_wait(ddp_saver_t *saver, int64_t patience_ns, bool *hangs_p)
{
    ddp_status_t status = DDP_OK;
    uint8_t      sight  = DDP_SAVE_BUSY;

    while (sight == DDP_SAVE_BUSY) {
        const int64_t end = ddp_clock_ns() + STEP_NS;

        if (saver->rank == 0) {
            sight = (uint8_t)ddp_saver_look(saver, patience_ns);
        }
        while (saver->rank == 0 && sight == DDP_SAVE_BUSY && ddp_clock_ns() < end) {
            (void)usleep(POLL_US);
            sight = (uint8_t)ddp_saver_look(saver, patience_ns);
        }
        DDP_TRY(ddp_comm_broadcast(saver->params.comm, &sight, sizeof(sight), 0));
    }
    *hangs_p = sight == DDP_SAVE_HANGS;
out:
    return status;
}
