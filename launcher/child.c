#include "launcher/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/call.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fault.h"
#include "base/utf8.h"
#include "launcher/processes.h"

#define POLL_NS ((int64_t)20 * DDP_NS_PER_MS)
/* mpirun takes up to five seconds to end its ranks; a second signal within the first makes it leave them. */
#define GRACE_NS   ((int64_t)8000 * DDP_NS_PER_MS)
#define CLEANUP_NS ((int64_t)5000 * DDP_NS_PER_MS)
#define NOT_FOUND  127
#define MOST_FDS   1024 /* of this process */

static volatile sig_atomic_t caught;

static void on_signal(int number)
{
    caught = number;
}

int ddp_child_interrupted(void)
{
    return caught;
}

static const int passed_on[] = {SIGINT, SIGTERM, SIGHUP};
#define N_PASSED_ON (sizeof(passed_on) / sizeof(passed_on[0]))

static void catch_signals(void)
{
    static bool      is_caught;
    struct sigaction action;

    if (is_caught) {
        return;
    }
    memset(&action, 0, sizeof(action));
    action.sa_handler = on_signal; /* no SA_RESTART: a sleep ends early */
    (void)sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < N_PASSED_ON; i++) {
        (void)sigaction(passed_on[i], &action, NULL);
    }
    is_caught = true;
}

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

static bool is_kept(const char *variable, bool is_managed, bool is_alone)
{
    static const char *const gone[]  = {"PMIX_", "PMI_", "SLURM_RESTART_COUNT=", "DDPTRAIN_RESTART_COUNT="};
    static const char *const tasks[] = {"SLURM_NTASKS=", "SLURM_NPROCS=", "SLURM_STEP",
                                        "SLURM_PROCID=", "SLURM_LOCALID="};

    if (begins(variable, "OMPI_")) {
        return !is_managed && begins(variable, "OMPI_MCA_");
    }
    for (size_t i = 0; i < sizeof(gone) / sizeof(gone[0]); i++) {
        if (begins(variable, gone[i])) {
            return false;
        }
    }
    for (size_t i = 0; is_alone && i < sizeof(tasks) / sizeof(tasks[0]); i++) {
        if (begins(variable, tasks[i])) {
            return false;
        }
    }
    return true;
}

char **ddp_child_environment(bool is_managed, bool is_alone)
{
    static const char *const root[] = {"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"};
    const size_t             n_root = geteuid() == 0 ? sizeof(root) / sizeof(root[0]) : 0;
    size_t                   n      = 0;
    size_t                   used   = 0;
    char                   **all;
    bool                     is_ok = true;

    while (environ[n] != NULL) {
        n++;
    }
    all = calloc(n + n_root + 1, sizeof(*all));
    for (size_t i = 0; all != NULL && i < n + n_root; i++) {
        const char *variable = i < n ? environ[i] : root[i - n];

        if (i >= n || is_kept(variable, is_managed, is_alone)) {
            all[used] = strdup(variable);
            is_ok     = is_ok && all[used] != NULL;
            used += all[used] != NULL ? 1 : 0;
        }
    }
    if (!is_ok) {
        ddp_child_free_environment(all);
        return NULL;
    }
    return all;
}

void ddp_child_free_environment(char **environment)
{
    for (size_t i = 0; environment != NULL && environment[i] != NULL; i++) {
        free(environment[i]);
    }
    free(environment);
}

ddp_status_t ddp_child_environment_add(char ***environment_p, const char *variable)
{
    ddp_status_t status = DDP_OK;
    char        *copy   = strdup(variable);
    char       **more   = NULL;
    size_t       n      = 0;

    while ((*environment_p)[n] != NULL) {
        n++;
    }
    more = copy != NULL ? realloc(*environment_p, (n + 2) * sizeof(*more)) : NULL;
    if (more == NULL) {
        free(copy);
    }
    DDP_REQUIRE(more != NULL, DDP_ERR_NO_MEMORY, "no memory for an environment");
    more[n]        = copy;
    more[n + 1]    = NULL;
    *environment_p = more;
out:
    return status;
}

bool ddp_child_is_program(const char *name)
{
    const char *path = getenv("PATH");
    char        file[4096];

    if (strchr(name, '/') != NULL) {
        return access(name, X_OK) == 0;
    }
    while (path != NULL && *path != '\0') {
        const int length = (int)strcspn(path, ":");

        (void)snprintf(file, sizeof(file), "%.*s/%s", length, path, name);
        if (access(file, X_OK) == 0) {
            return true;
        }
        path += length + (path[length] == ':' ? 1 : 0);
    }
    return false;
}

static void rest(void)
{
    const struct timespec time = {0, POLL_NS};

    (void)nanosleep(&time, NULL);
}

/* Which processes: what is 0 or NULL does not matter. */
typedef struct which {
    pid_t       parent, session;
    const char *begin; /* how the name begins */
    const char *only;  /* the name */
    const char *but;   /* what is not the name */
} which_t;

typedef struct signalling {
    const which_t *which;
    int            number;
    size_t         n; /* so far */
} signalling_t;

static void signal_one(void *signalling_p, const ddp_process_t *process)
{
    signalling_t  *signalling = signalling_p;
    const which_t *which      = signalling->which;

    if (process->state != 'Z' && (which->parent == 0 || which->parent == process->parent) &&
        (which->session == 0 || which->session == process->session) &&
        (which->begin == NULL || begins(process->name, which->begin)) &&
        (which->only == NULL || strcmp(process->name, which->only) == 0) &&
        (which->but == NULL || strcmp(process->name, which->but) != 0)) {
        (void)kill(process->pid, signalling->number);
        signalling->n++;
    }
}

/* Send `number` to each of these that runs; 0 only looks.
 * @return how many there are */
static size_t signal_these(const which_t *which, int number)
{
    signalling_t signalling = {.which = which, .number = number};

    ddp_processes_each(signal_one, &signalling);
    return signalling.n;
}

/* End all of a session. Killed, srun would leave its tasks. */
static void end_session(pid_t session)
{
    const which_t srun     = {.session = session, .only = "srun"};
    const which_t others   = {.session = session, .but = "srun"};
    const int64_t begun    = ddp_clock_ns();
    bool          is_asked = false;

    while (ddp_clock_ns() - begun < GRACE_NS + CLEANUP_NS) {
        const bool is_late = ddp_clock_ns() - begun > GRACE_NS;

        if (signal_these(&srun, is_late    ? SIGKILL
                                : is_asked ? 0
                                           : SIGTERM) +
                signal_these(&others, SIGKILL) ==
            0) {
            return;
        }
        is_asked = true;
        rest();
    }
}

/* In a process of its own, and out of reach of what is sent to the parent's group: the kernel kills the child
 * with its parent, but not what the child has started. */
static void guard(pid_t parent, pid_t session)
{
    sigset_t all;

    (void)setsid();
    (void)prctl(PR_SET_NAME, "ddptrain-guard");
    (void)sigfillset(&all);
    (void)sigprocmask(SIG_SETMASK, &all, NULL);
    (void)prctl(PR_SET_PDEATHSIG, SIGCONT); /* comes also where this process is stopped */
    for (int fd = 0; fd < MOST_FDS; fd++) { /* nobody waits for an end of a pipe because of this process */
        (void)close(fd);
    }
    while (getppid() == parent) {
        (void)sigwaitinfo(&all, NULL);
    }
    end_session(session);
    _exit(EXIT_SUCCESS);
}

/* In the new process: a session of its own, so that a terminal's Ctrl-C does not come twice, and that all it
 * starts is known by it. */
static void become(const ddp_child_t *child, pid_t parent, int log)
{
    const char *slash   = strrchr(child->argv[0], '/');
    const bool  is_srun = strcmp(slash != NULL ? slash + 1 : child->argv[0], "srun") == 0;
    const int   nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);

    (void)setsid();
    (void)prctl(PR_SET_PDEATHSIG, is_srun ? SIGTERM : SIGKILL); /* killed, srun would leave its tasks */
    if (getppid() != parent) {
        _exit(EXIT_FAILURE);
    }
    for (size_t i = 0; i < N_PASSED_ON; i++) {
        (void)signal(passed_on[i], SIG_DFL);
    }
    (void)signal(SIGUSR1, SIG_DFL);
    (void)signal(SIGUSR2, SIG_DFL);
    (void)signal(SIGPIPE, SIG_DFL);
    (void)dup2(nothing, STDIN_FILENO);
    if (log >= 0) {
        (void)dup2(log, STDOUT_FILENO);
    }
    (void)dup2(log >= 0 ? log : child->err, STDERR_FILENO);
    (void)execvpe(child->argv[0], child->argv, child->environment);
    (void)dprintf(STDERR_FILENO, "ddptrain: %s: %s\n", child->argv[0], ddp_errno_text(errno));
    _exit(NOT_FOUND);
}

ddp_status_t ddp_child_start(const ddp_child_t *child, pid_t *pid_p)
{
    ddp_status_t status = DDP_OK;
    const pid_t  parent = getpid();
    int          log    = -1;
    pid_t        pid    = -1;
    pid_t        other  = -1;

    if (child->log != NULL) {
        log = open(child->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    }
    DDP_REQUIRE(log >= 0 || child->log == NULL, DDP_ERR_IO, "'%s': %s", child->log, ddp_errno_text(errno));
    /* what it leaves behind when it dies becomes a child of this process, which then finds it */
    DDP_TRY_SYS(prctl(PR_SET_CHILD_SUBREAPER, 1));
    pid = fork();
    DDP_REQUIRE(pid >= 0, DDP_ERR_SYSTEM, "no process for '%s': %s", child->argv[0], ddp_errno_text(errno));
    if (pid == 0) {
        become(child, parent, log);
    }
    other = fork();
    if (other == 0) {
        guard(parent, pid);
    }
    status = other > 0 ? ddp_fault("guard", 0)
                       : ddp_fail(DDP_ERR_SYSTEM, "no process to guard '%s': %s", child->argv[0],
                                  ddp_errno_text(errno));
    if (status != DDP_OK) {
        ddp_child_clean_up(); /* the command, and what it has begun */
        goto out;
    }
    *pid_p = pid;
out:
    if (log >= 0) {
        (void)close(log);
    }
    return status;
}

size_t ddp_child_count(pid_t parent, const char *name)
{
    return signal_these(&(which_t){.parent = parent, .begin = name}, 0);
}

/* Also what comes up when its parent dies. */
void ddp_child_clean_up(void)
{
    const int64_t end = ddp_clock_ns() + CLEANUP_NS;
    pid_t         pid;

    while (ddp_clock_ns() < end) {
        do {
            pid = waitpid(-1, NULL, WNOHANG);
        } while (pid > 0);
        if (pid < 0) {
            return; /* no children */
        }
        (void)signal_these(&(which_t){.parent = getpid()}, SIGKILL);
        rest();
    }
}

typedef struct watch {
    const ddp_child_t *child;
    pid_t              pid;
    off_t              size; /* of the progress file */
    int64_t            grown_ns;
    int64_t            asked_ns; /* when it was asked to end; 0: not yet */
    int                number;   /* the signal it was asked by */
    bool               is_stuck, is_killed;
} watch_t;

/* Ask it to end, and if that does not help, make it. */
static void end(watch_t *watch, int number)
{
    const int64_t now = ddp_clock_ns();

    if (watch->asked_ns == 0) {
        watch->asked_ns = now;
        watch->number   = number;
        (void)kill(watch->pid, number);
    } else if (!watch->is_killed && now - watch->asked_ns > GRACE_NS) {
        watch->is_killed = true;
        (void)kill(-watch->pid, SIGKILL);
    }
}

static bool is_growing(watch_t *watch)
{
    const int64_t now = ddp_clock_ns();
    struct stat   file;

    if (stat(watch->child->progress, &file) == 0 && file.st_size != watch->size) {
        watch->size     = file.st_size;
        watch->grown_ns = now;
    }
    return (double)(now - watch->grown_ns) / 1e9 < watch->child->timeout_s;
}

ddp_status_t ddp_child_run(const ddp_child_t *child, ddp_child_end_t *end_p, int *code_p)
{
    ddp_status_t status = DDP_OK;
    watch_t      watch  = {.child = child, .grown_ns = ddp_clock_ns()};
    int          how    = 0;

    catch_signals();
    DDP_TRY(ddp_child_start(child, &watch.pid));
    while (waitpid(watch.pid, &how, WNOHANG) == 0) {
        if (caught != 0) {
            end(&watch, caught);
        } else if (watch.is_stuck || !is_growing(&watch)) {
            watch.is_stuck = true;
            end(&watch, SIGTERM);
        }
        rest();
    }
    ddp_child_clean_up();
    *code_p = WIFSIGNALED(how) ? WTERMSIG(how) : WEXITSTATUS(how);
    *end_p  = WIFSIGNALED(how) ? DDP_CHILD_KILLED : DDP_CHILD_EXITED;
    if (caught != 0) {
        *end_p  = DDP_CHILD_INTERRUPTED;
        *code_p = caught;
    } else if (watch.is_stuck) {
        *end_p = DDP_CHILD_STUCK;
    }
out:
    return status;
}

void ddp_child_last_line(const char *path, char *text, size_t size)
{
    FILE  *file     = fopen(path, "re");
    char  *line     = NULL;
    size_t room     = 0;
    bool   is_found = false;

    (void)snprintf(text, size, "it said nothing");
    while (file != NULL && getline(&line, &room, file) > 0) {
        const bool is_mine = strncmp(line, "ddptrain", 8) == 0;

        line[strcspn(line, "\n")] = '\0';
        if (is_mine || (!is_found && line[strspn(line, " -")] != '\0')) {
            (void)snprintf(text, size, "%s", line);
            is_found = true;
        }
    }
    ddp_utf8_clean(text);
    free(line);
    if (file != NULL) {
        (void)fclose(file);
    }
}
