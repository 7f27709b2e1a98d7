#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "launcher/run.h"
#include "launcher/siblings.h"

#define MACHINE_DELAY_US 200000
#define RANK_DELAY_US    50000
#define LONGEST_DELAY_US 900000
#define EARLY_DELAY_US   3000000
#define DRAIN_MS         65000

/* What a rank tells the others about its failure. */
typedef struct verdict {
    int is_cause; /* its own failure, not news of another's */
    int code;
} verdict_t;

static bool is_news(ddp_status_t status)
{
    return status == DDP_ERR_REMOTE || status == DDP_ERR_TIMEOUT;
}

static int exit_code(ddp_status_t status)
{
    return status == DDP_ERR_CONFIG ? 2 : 1;
}

/* Set-up steps end in agreement, so all ranks fail together and can choose one that speaks. */
static bool choose_speaker(ddp_run_t *run, ddp_status_t status, bool *is_mine_p, int *code_p)
{
    const verdict_t mine = {.is_cause = is_news(status) ? 0 : 1, .code = exit_code(status)};
    verdict_t       all[1024];
    const int       size    = ddp_comm_size(run->comm);
    int             speaker = 0;

    if (size > (int)(sizeof(all) / sizeof(all[0])) ||
        ddp_comm_allgather(run->comm, &mine, sizeof(mine), all) != DDP_OK) {
        return false;
    }
    for (int r = size - 1; r >= 0; r--) {
        speaker = all[r].is_cause != 0 ? r : speaker;
    }
    *is_mine_p = speaker == ddp_comm_rank(run->comm);
    *code_p    = all[speaker].code;
    return true;
}

/* In training nobody waits for anybody any more. Who caused the end speaks at once; ranks that only heard of
 * it speak one after another, and the first has said it for its machine. */
static void speak_once(ddp_run_t *run, ddp_status_t status, const char *line)
{
    const char *saved = status == DDP_ERR_NOT_FINITE ? ddp_checkpoints_drain(run) : "";
    char        hint[DDP_WATCH_HINT_SIZE + 16];

    if (run->watch.monitor == NULL &&
        (is_news(status) || status == DDP_ERR_NOT_FINITE || status == DDP_ERR_MISMATCH)) {
        int delay =
            ddp_comm_machine(run->comm) * MACHINE_DELAY_US + ddp_comm_local_rank(run->comm) * RANK_DELAY_US;

        usleep((useconds_t)(delay < LONGEST_DELAY_US ? delay : LONGEST_DELAY_US));
    }
    if (status == DDP_ERR_NOT_FINITE && ddp_comm_rank(run->comm) != 0) {
        ddp_monitor_await(run->watch.monitor, DRAIN_MS); /* all know it; rank 0 may be writing a checkpoint */
    }
    if (!ddp_monitor_may_speak(run->watch.monitor, !is_news(status))) {
        return;
    }
    ddp_watch_hint(run, hint, sizeof(hint));
    if (run->spoken == NULL || atomic_exchange(run->spoken, 1) == 0) {
        ddp_log(DDP_LOG_ERROR, "%s%s%s%s", line, saved[0] != '\0' ? "; saved before: " : "", saved,
                is_news(status) ? hint : "");
        if (status != DDP_ERR_IO && !run->checkpoints.is_held) { /* else the disk is the cause */
            ddp_event_fail(run, line);
        }
    }
}

/* Before there is a monitor: mpirun would wait for a host that does not answer. */
static void end_launcher(const ddp_run_t *run, ddp_status_t status)
{
    if (status == DDP_ERR_TIMEOUT && run->watch.monitor == NULL && run->launch.is_managed &&
        ddp_siblings_look().is_lowest) {
        ddp_launch_end_launcher_later();
    }
}

int ddp_run_fail(ddp_run_t *run, ddp_status_t status, bool *may_finalize_p)
{
    char line[DDP_ERROR_LINE_SIZE];
    bool is_mine = true;
    int  code    = exit_code(status);

    memcpy(line, ddp_error_line(), sizeof(line));
    if (line[0] == '\0') {
        snprintf(line, sizeof(line), "%s", ddp_status_text(status));
    }
    ddp_progress_clear(&run->progress);
    *may_finalize_p = false;
    if (run->comm == NULL) {
        /* too early to ask the others: the first rank's exit ends the job while the rest still hold back */
        usleep((useconds_t)((run->launch.is_first ? 0 : EARLY_DELAY_US) +
                            (is_news(status) ? MACHINE_DELAY_US : 0)));
        ddp_log(DDP_LOG_ERROR, "%s", line);
        end_launcher(run, status);
        return code;
    }
    if (!run->is_training && status != DDP_ERR_TIMEOUT && choose_speaker(run, status, &is_mine, &code)) {
        *may_finalize_p = true;
        if (is_mine) {
            ddp_log(DDP_LOG_ERROR, "%s", line);
        }
        return code;
    }
    speak_once(run, status, line);
    end_launcher(run, status);
    return code;
}
