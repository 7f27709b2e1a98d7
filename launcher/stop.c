#include "launcher/stop.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "launcher/run.h"

#define SECOND_NS ((int64_t)1000000000)
/* What is left of a time limit when the run stops: for the last step, the save and the end of MPI. */
#define MARGIN_S     30.0
#define MARGIN_SHARE 0.1 /* of a limit that is shorter than ten margins */

static volatile sig_atomic_t caught;      /* the first signal that asked for a stop */
static volatile sig_atomic_t term_count;  /* SIGTERMs */
static volatile sig_atomic_t term_sender; /* of the last one; 0: none, or of another container */
static struct timespec       first_term;

/* Slurm and mpirun may deliver the same signal twice, or to some ranks only. */
static void on_signal(int number, siginfo_t *info, void *context)
{
    struct timespec now;

    (void)context;
    if (caught == 0) {
        caught = number;
    }
    if (number != SIGTERM) {
        return;
    }
    term_sender = info->si_code == SI_USER ? info->si_pid : 0;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    if (term_count == 0) {
        first_term = now;
        term_count = 1;
    } else if (now.tv_sec - first_term.tv_sec > 1 ||
               (now.tv_sec - first_term.tv_sec) * SECOND_NS + (now.tv_nsec - first_term.tv_nsec) >=
                   SECOND_NS) {
        (void)signal(SIGTERM, SIG_DFL);
        (void)raise(SIGTERM);
    }
}

void ddp_stop_catch_signals(void)
{
    static const int numbers[] = {SIGUSR1, SIGUSR2, SIGTERM};
    struct sigaction action;

    memset(&action, 0, sizeof(action));
    action.sa_sigaction = on_signal;
    action.sa_flags     = SA_RESTART | SA_SIGINFO;
    (void)sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        (void)sigaction(numbers[i], &action, NULL); /* fails for no signal of these */
    }
}

pid_t ddp_stop_sender(void)
{
    return (pid_t)term_sender;
}

ddp_status_t ddp_stop_parse_time(const char *option, const char *text, double *seconds_p)
{
    ddp_status_t status  = DDP_OK;
    const char  *at      = text;
    char        *end     = NULL;
    double       seconds = 0;

    for (int fields = 0; fields < 3; fields++) { /* hours:minutes:seconds, or less of them */
        seconds = seconds * 60 + strtod(at, &end);
        if (end == at || *end != ':') {
            break;
        }
        at = end + 1;
    }
    if (end != at && strchr(text, ':') == NULL && (*end == 'm' || *end == 'h' || *end == 's')) {
        seconds *= *end == 'm' ? 60 : *end == 'h' ? 3600 : 1;
        end++;
    }
    DDP_REQUIRE(end != at && *end == '\0' && seconds > 0 && seconds < 1e9, DDP_ERR_CONFIG,
                "%s '%.80s': a time is expected, more than 0, as 90 (seconds), 30m, 2h or 1:30:00", option,
                text);
    *seconds_p = seconds;
out:
    return status;
}

/* Seconds that this process may still run, 0 or more; < 0: no limit. */
static double seconds_left(const ddp_run_t *run)
{
    const char  *slurm = getenv("SLURM_JOB_END_TIME"); /* seconds since 1970 */
    const double used  = (double)(ddp_clock_ns() - run->start_ns) / 1e9;
    double       left  = -1;

    if (run->options->time_limit_s > 0) {
        left = run->options->time_limit_s > used ? run->options->time_limit_s - used : 0;
    }
    if (slurm != NULL && strtod(slurm, NULL) > 0) {
        const double job = strtod(slurm, NULL) - (double)time(NULL);

        left = left < 0 || job < left ? (job > 0 ? job : 0) : left;
    }
    return left;
}

void ddp_stop_set_limit(ddp_run_t *run)
{
    const double left   = seconds_left(run);
    const double margin = left * MARGIN_SHARE < MARGIN_S ? left * MARGIN_SHARE : MARGIN_S;

    if (ddp_comm_rank(run->comm) == 0 && left >= 0) {
        run->stop.deadline_ns = ddp_clock_ns() + (int64_t)((left - margin) * 1e9);
        ddp_log(DDP_LOG_INFO, "time: stops after %.0f s, if it is not done by then", left - margin);
    }
}

uint32_t ddp_stop_request(const ddp_run_t *run)
{
    switch (caught) {
    case SIGTERM:
        return DDP_STOP_TERM;
    case SIGUSR2:
        return DDP_STOP_USR2;
    case SIGUSR1:
        return DDP_STOP_USR1;
    default:
        return run->stop.deadline_ns > 0 && ddp_clock_ns() >= run->stop.deadline_ns ? DDP_STOP_TIME : 0;
    }
}

const char *ddp_stop_reason(uint32_t request)
{
    static const char *const names[] = {"nothing", "time limit", "SIGUSR1", "SIGUSR2", "SIGTERM"};

    return request < sizeof(names) / sizeof(names[0]) ? names[request] : "a stop";
}
