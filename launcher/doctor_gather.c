/* What all ranks see, on rank 0; and what is measured between machines. */
#include "launcher/doctor_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fault.h"

#define CLOCK_ROUNDS   8
#define FOLDER_MOST_MS 10000
#define LOOK_MS        3000

/* Others wait for this rank meanwhile. */
static int folder_limit_ms(const ddp_run_t *run)
{
    const int half = ddp_comm_timeout_ms(run->comm) / 2;

    return half < FOLDER_MOST_MS ? half : FOLDER_MOST_MS;
}

/* Rank 0 writes, the first ranks of other machines look. */
static ddp_status_t try_folder(ddp_run_t *run, const char *path, ddp_facts_t *mine)
{
    ddp_status_t status                  = DDP_OK;
    char         token[DDP_FOLDER_TOKEN] = "";
    bool         sees                    = false;
    const int    limit                   = folder_limit_ms(run);

    if (ddp_comm_rank(run->comm) == 0) {
        run->checkpoints.is_held = !ddp_folder_try(path, limit, &mine->folder, token);
    }
    DDP_TRY(ddp_comm_broadcast(run->comm, token, sizeof(token), 0));
    if (ddp_comm_rank(run->comm) > 0 && ddp_comm_local_rank(run->comm) == 0 && token[0] != '\0') {
        run->checkpoints.is_held = !ddp_folder_sees(path, token, limit < LOOK_MS ? limit : LOOK_MS, &sees);
        mine->sees_file          = sees ? 1 : 0;
    }
    DDP_TRY(ddp_comm_barrier(run->comm));
    if (ddp_comm_rank(run->comm) == 0) {
        ddp_folder_forget(path, token);
    }
out:
    return status;
}

static double wall_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* The other's clock against the middle of the time that the question took: the shortest of some tries is the
 * best. */
static ddp_status_t ask_clock(ddp_run_t *run, int rank, ddp_facts_t *facts)
{
    ddp_status_t status = DDP_OK;
    double       least  = INFINITY;
    double       time   = 0;

    for (int round = 0; round < CLOCK_ROUNDS; round++) {
        const int64_t start = ddp_clock_ns();
        double        passed;
        double        now;

        DDP_TRY(ddp_comm_pass(run->comm, &time, sizeof(time), 0, rank));
        time = wall_s();
        DDP_TRY(ddp_comm_pass(run->comm, &time, sizeof(time), rank, 0));
        now    = wall_s();
        passed = (double)(ddp_clock_ns() - start) / 1e9;
        if (passed < least && facts != NULL) {
            least                = passed;
            facts->clock_s       = time - (now - passed / 2);
            facts->clock_error_s = passed / 2;
        }
    }
out:
    return status;
}

/* With the first rank of each other machine in turn. @param [in,out] all  [size] on rank 0, else NULL */
static ddp_status_t compare_clocks(ddp_run_t *run, ddp_facts_t *all)
{
    ddp_status_t status = DDP_OK;
    const int    size   = ddp_comm_size(run->comm);

    if (all == NULL) {
        if (ddp_comm_machine(run->comm) > 0 && ddp_comm_local_rank(run->comm) == 0) {
            DDP_TRY(ask_clock(run, ddp_comm_rank(run->comm), NULL));
        }
    } else {
        for (int r = 1; r < size; r++) {
            if (ddp_facts_leads(all, r)) {
                DDP_TRY(ask_clock(run, r, &all[r]));
            }
        }
    }
    DDP_TRY(ddp_comm_barrier(run->comm));
out:
    return status;
}

static ddp_status_t collect(ddp_run_t *run, ddp_facts_t *mine, ddp_facts_t *all)
{
    ddp_status_t status = DDP_OK;
    const int    rank   = ddp_comm_rank(run->comm);

    if (rank == 0) {
        all[0] = *mine;
    }
    for (int r = 1; r < ddp_comm_size(run->comm); r++) {
        DDP_TRY(ddp_comm_pass(run->comm, rank == 0 ? &all[r] : mine, sizeof(*mine), r, 0));
    }
    DDP_TRY(ddp_comm_barrier(run->comm));
out:
    return status;
}

ddp_status_t ddp_doctor_gather(ddp_run_t *run, const char *folder, ddp_facts_t **all_p)
{
    ddp_status_t status = DDP_OK;
    const int    rank   = ddp_comm_rank(run->comm);
    ddp_facts_t *mine   = calloc(1, sizeof(*mine));
    ddp_facts_t *all    = rank == 0 ? calloc((size_t)ddp_comm_size(run->comm), sizeof(*all)) : NULL;

    status = mine != NULL && (rank > 0 || all != NULL)
                 ? DDP_OK
                 : ddp_fail(DDP_ERR_NO_MEMORY, "no memory for what %d ranks see", ddp_comm_size(run->comm));
    DDP_TRY(ddp_comm_agree(run->comm, status));
    ddp_facts_read(mine);
    mine->rank    = rank;
    mine->machine = ddp_comm_machine(run->comm);
    if (ddp_fault("doctor_stop", rank) != DDP_OK) {
        (void)pause(); /* as a rank that was stopped */
    }
    DDP_TRY(try_folder(run, folder, mine));
    DDP_TRY(collect(run, mine, all));
    DDP_TRY(compare_clocks(run, all));
    *all_p = all;
    all    = NULL;
out:
    free(mine);
    free(all);
    return status;
}
