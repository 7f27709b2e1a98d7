#include "launcher/launch.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/error.h"

#define MPIRUN_DELAY_US 500000
#define LAUNCHER_S      10 /* mpirun takes up to five to end its ranks */
#define READ_S          3  /* mpirun reads nothing for two seconds while it ends ranks */
#define SECOND_US       1000000
#define POLLS           10 /* a second */
/* Slurm's own steps (batch, interactive ...) have numbers from here on. */
#define SLURM_OWN_STEPS 0xfffffff0L

/* @return the first of two variables that holds a number, -1 if none does */
static long env_number(const char *name, const char *other)
{
    const char *text = getenv(name);

    if (text == NULL) {
        text = getenv(other);
    }
    return text != NULL ? strtol(text, NULL, 10) : -1;
}

ddp_launch_t ddp_launch_read(void)
{
    const long   rank   = env_number("OMPI_COMM_WORLD_RANK", "PMIX_RANK");
    const long   other  = env_number("PMI_RANK", "PMI_RANK");
    const long   step   = env_number("SLURM_STEP_ID", "SLURM_STEPID");
    ddp_launch_t launch = {.is_managed = rank >= 0 || other >= 0,
                           .is_first   = rank <= 0 && other <= 0,
                           .ranks      = env_number("OMPI_COMM_WORLD_SIZE", "PMI_SIZE"),
                           .tasks      = env_number("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"),
                           .is_step    = step >= 0 && step < SLURM_OWN_STEPS,
                           .is_pmix    = rank >= 0,
                           .is_pmi     = other >= 0};

    /* Under mpirun the number is that of its daemon. */
    if (launch.is_step && !launch.is_managed) {
        launch.is_first = env_number("SLURM_PROCID", "SLURM_PROCID") <= 0;
    }
    return launch;
}

static ddp_status_t fail_alone(const ddp_launch_t *launch)
{
    return ddp_fail(
        DDP_ERR_CONFIG,
        "%ld tasks, but MPI joins 1: start with srun --mpi=pmix, or with mpirun inside the allocation",
        launch->tasks);
}

ddp_status_t ddp_launch_check_early(const ddp_launch_t *launch)
{
    return launch->is_step && launch->tasks > 1 && !launch->is_managed ? fail_alone(launch) : DDP_OK;
}

bool ddp_launch_is_doubtful(const ddp_launch_t *launch)
{
    return launch->is_step && launch->tasks > 1 && launch->is_pmi && !launch->is_pmix;
}

ddp_status_t ddp_launch_check(const ddp_launch_t *launch, int size, bool is_one)
{
    if (size > 1 || launch->ranks == 1 || (is_one && !launch->is_step && launch->ranks < 1)) {
        return DDP_OK;
    }
    if (launch->tasks > 1) {
        return fail_alone(launch);
    }
    if (launch->ranks > 1) {
        return ddp_fail(
            DDP_ERR_CONFIG,
            "%ld processes, but MPI joins 1: start with the mpirun of the Open MPI that ddptrain was "
            "built with",
            launch->ranks);
    }
    return DDP_OK;
}

/* Allocates nothing: a child of fork() calls it too. */
bool ddp_launch_is_launcher(pid_t pid)
{
    static const char *const names[] = {"mpirun", "mpiexec", "orterun", "prterun", "orted", "prted"};
    char                     path[40], name[32] = "";
    ssize_t                  length = 0;
    int                      file;

    snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
    file = open(path, O_RDONLY | O_CLOEXEC);
    if (file >= 0) {
        length = read(file, name, sizeof(name) - 1);
        (void)close(file); /* was only read */
    }
    name[length > 0 ? length : 0] = '\0';
    name[strcspn(name, "\n")]     = '\0';
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(name, names[i]) == 0) {
            return true;
        }
    }
    return false;
}

void ddp_launch_end_launcher(void)
{
    const pid_t parent = getppid();

    if (ddp_launch_is_launcher(parent)) {
        (void)kill(parent, SIGTERM);
        usleep(MPIRUN_DELAY_US);
        (void)kill(parent, SIGTERM); /* the second one makes it leave at once */
    }
}

void ddp_launch_await_read(void)
{
    int left = 0;

    for (int i = 0; i < READ_S * POLLS && ioctl(STDERR_FILENO, FIONREAD, &left) == 0 && left > 0; i++) {
        usleep(SECOND_US / POLLS);
    }
}

void ddp_launch_await_end(int seconds)
{
    for (int i = 0; i < seconds * POLLS && ddp_launch_is_launcher(getppid()); i++) {
        usleep(SECOND_US / POLLS);
    }
}

void ddp_launch_end_launcher_later(void)
{
    const pid_t parent = getppid();

    if (!ddp_launch_is_launcher(parent) || fork() != 0) {
        return;
    }
    (void)
        setsid(); /* the launcher kills its ranks with their groups, and waits until their pipes are closed */
    (void)close_range(0, ~0U, 0);
    for (int i = 0; i < LAUNCHER_S * POLLS && ddp_launch_is_launcher(parent); i++) {
        usleep(SECOND_US / POLLS);
    }
    if (ddp_launch_is_launcher(parent)) {
        (void)kill(parent, SIGKILL); /* it is ending itself, and crashes at SIGTERM */
    }
    _exit(EXIT_SUCCESS);
}
