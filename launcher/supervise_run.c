/* One run of the command: its stderr passes through here, signals pass on to it. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "base/call.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "launcher/child.h"
#include "launcher/supervise.h"

#define POLL_MS   50
#define SECOND_NS (1000 * DDP_NS_PER_MS)
/* What does not end within 8 s is killed. mpirun takes up to five to end its ranks, and leaves them at a
 * second signal within these. */
#define TERM_NS   (6 * SECOND_NS)
#define GRACE_NS  (8 * SECOND_NS)
#define DRAIN_NS  (2 * SECOND_NS) /* for a reader that takes its time with the last lines */
#define CHUNK     4096            /* what a pipe that can be written to takes without waiting */
#define EXIT_BASE 128             /* of a shell, for signals */
#define N_SIGNALS 5

static const int         numbers[N_SIGNALS] = {SIGUSR1, SIGUSR2, SIGTERM, SIGINT, SIGHUP};
static const char *const names[N_SIGNALS]   = {"SIGUSR1", "SIGUSR2", "SIGTERM", "SIGINT", "SIGHUP"};
/* Written by the handler: how often each came, and which came first. */
static volatile sig_atomic_t arrived[N_SIGNALS];
static volatile sig_atomic_t first;

static void on_signal(int number)
{
    for (int i = 0; i < N_SIGNALS; i++) {
        if (numbers[i] == number) {
            arrived[i] = arrived[i] + 1;
        }
    }
    if (first == 0) {
        first = number;
    }
}

void ddp_supervise_catch_signals(void)
{
    struct sigaction action;
    struct sigaction old;

    memset(&action, 0, sizeof(action));
    action.sa_handler = on_signal; /* no SA_RESTART: a wait ends early */
    (void)sigemptyset(&action.sa_mask);
    for (int i = 0; i < N_SIGNALS; i++) {
        /* nohup(1) and a shell's background jobs have them ignored, and mean it */
        if (sigaction(numbers[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN) {
            (void)sigaction(numbers[i], &action, NULL);
        }
    }
}

int ddp_supervise_asked(void)
{
    return first;
}

const char *ddp_supervise_signal_name(int number)
{
    for (int i = 0; i < N_SIGNALS; i++) {
        if (numbers[i] == number) {
            return names[i];
        }
    }
    return "a signal";
}

typedef struct runner {
    const char          *program; /* the name of its ranks; NULL: they are not looked for */
    int64_t              alone_limit_ns;
    int64_t              looked_ns; /* when they were looked for last */
    int64_t              ranks_ns;  /* when there were some last; 0: never */
    pid_t                pid;
    ddp_supervise_kind_t kind;
    int     passed[N_SIGNALS]; /* of `arrived`: of earlier runs there are none, or there were no more */
    int64_t term_ns;           /* the first SIGTERM; 0: none */
    int64_t told_ns;           /* when it was told to end at once; 0: not yet */
    bool    is_termed;         /* ... or since, by SIGTERM */
    int     from;              /* its stderr; -1: closed */
    bool    is_deaf;           /* nobody reads this process's stderr */
    char    chunk[CHUNK];      /* read, and not yet written */
    size_t  begin, end;
    char    line[1024]; /* the line that is being read */
    size_t  length;
    ddp_supervise_clue_t *clue;
} runner_t;

/* End it at once: it is told, then told by SIGTERM, then killed. srun asks back at the first SIGINT. */
static void end_at_once(runner_t *runner, int number)
{
    if (runner->told_ns == 0) {
        number            = runner->kind == DDP_SUPERVISE_SRUN ? SIGTERM : number;
        runner->told_ns   = ddp_clock_ns();
        runner->is_termed = number == SIGTERM;
        (void)kill(runner->pid, number);
    }
}

static void press_on(runner_t *runner)
{
    const int64_t since = ddp_clock_ns() - runner->told_ns;

    if (runner->told_ns == 0) {
        return;
    }
    if (since >= GRACE_NS) {
        (void)kill(-runner->pid, SIGKILL);
    } else if (since >= TERM_NS && !runner->is_termed) {
        runner->is_termed = true;
        (void)kill(runner->pid, SIGTERM); /* a shell in a script's background ignores SIGINT */
    }
}

static void pass_on(runner_t *runner, int number)
{
    const int64_t now = ddp_clock_ns();

    switch (number) {
    case SIGUSR1:
    case SIGUSR2:
        (void)kill(runner->pid, number);
        break;
    case SIGTERM:
        if (runner->term_ns == 0) {
            runner->term_ns = now;
            (void)kill(runner->pid, runner->kind == DDP_SUPERVISE_MPIRUN ? SIGUSR1 : SIGTERM);
        } else if (now - runner->term_ns >= SECOND_NS) {
            end_at_once(runner, SIGTERM);
        }
        break;
    default:
        end_at_once(runner, number);
    }
}

static void look_at_signals(runner_t *runner)
{
    for (int i = 0; i < N_SIGNALS; i++) {
        if (runner->passed[i] != arrived[i]) {
            runner->passed[i] = arrived[i];
            pass_on(runner, numbers[i]);
        }
    }
    press_on(runner);
}

/* A launcher that hangs behind its ranks would be waited for for ever. */
static void look_at_ranks(runner_t *runner)
{
    const int64_t now = ddp_clock_ns();

    if (runner->program == NULL || now - runner->looked_ns < SECOND_NS / 2) {
        return;
    }
    runner->looked_ns = now;
    if (ddp_child_count(runner->pid, runner->program) > 0) {
        runner->ranks_ns = now;
    } else if (runner->ranks_ns != 0 && now - runner->ranks_ns > runner->alone_limit_ns) {
        ddp_log(DDP_LOG_WARN, "supervise: mpirun does not end %.0f s after its ranks: it is killed",
                (double)(now - runner->ranks_ns) / 1e9);
        (void)kill(-runner->pid, SIGKILL);
        runner->program = NULL;
    }
}

/* What was read, line by line, to who looks for clues. A progress bar's lines end with its next "\r". */
static void listen(runner_t *runner, const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        if (text[i] != '\n' && text[i] != '\r') {
            if (runner->length + 1 < sizeof(runner->line)) {
                runner->line[runner->length++] = text[i];
            }
            continue;
        }
        runner->line[runner->length] = '\0';
        runner->length               = 0;
        ddp_supervise_clue_read(runner->clue, runner->line);
    }
}

/* Read a chunk, or write what was read; never both, so that a reader who is slow makes the command slow, as
 * it would without us. @return false: nothing to do for now */
static bool pump(runner_t *runner, int wait_ms)
{
    const bool    is_full = runner->begin < runner->end;
    struct pollfd ready   = {is_full ? STDERR_FILENO : runner->from, is_full ? POLLOUT : POLLIN, 0};
    ssize_t       n       = 0;

    if (poll(&ready, 1, wait_ms) != 1) { /* where `from` is -1 this is only the wait */
        return false;
    }
    if (is_full) {
        n = write(STDERR_FILENO, runner->chunk + runner->begin, runner->end - runner->begin);
        if (n < 0 && (errno == EINTR || errno == EAGAIN)) {
            return false;
        }
        runner->is_deaf = runner->is_deaf || n < 0;
        runner->begin   = n < 0 ? runner->end : runner->begin + (size_t)n;
        return true;
    }
    n = read(runner->from, runner->chunk, sizeof(runner->chunk));
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) {
        return false;
    }
    if (n <= 0) { /* a terminal whose other end is closed says EIO */
        (void)close(runner->from);
        runner->from = -1;
        return true;
    }
    listen(runner, runner->chunk, (size_t)n);
    runner->begin = 0;
    runner->end   = runner->is_deaf ? 0 : (size_t)n;
    return true;
}

/* A terminal of its own in front of this process's, as it is: mpirun's ranks look for one and draw a bar. */
static ddp_status_t open_terminal(int *ours_p, int *its_p)
{
    ddp_status_t   status = DDP_OK;
    const int      ours   = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    int            its    = -1;
    struct termios mode;
    struct winsize size;
    char           name[64];

    DDP_TRY_SYS(ours);
    DDP_TRY_SYS(grantpt(ours));
    DDP_TRY_SYS(unlockpt(ours));
    DDP_TRY(ptsname_r(ours, name, sizeof(name)) == 0 ? DDP_OK
                                                     : ddp_fail(DDP_ERR_SYSTEM, "no terminal's name"));
    its = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
    DDP_TRY_SYS(its);
    DDP_TRY_SYS(tcgetattr(its, &mode));
    cfmakeraw(&mode); /* the outer one makes "\r\n" of "\n" already */
    DDP_TRY_SYS(tcsetattr(its, TCSANOW, &mode));
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0) {
        (void)ioctl(its, TIOCSWINSZ, &size);
    }
    *ours_p = ours;
    *its_p  = its;
out:
    if (status != DDP_OK && ours >= 0) {
        (void)close(ours);
    }
    if (status != DDP_OK && its >= 0) {
        (void)close(its);
    }
    return status;
}

static ddp_status_t open_channel(int *ours_p, int *its_p)
{
    ddp_status_t status = DDP_OK;
    int          ends[2];

    if (isatty(STDERR_FILENO) != 0 && open_terminal(ours_p, its_p) == DDP_OK) {
        return DDP_OK;
    }
    DDP_TRY_SYS(pipe2(ends, O_CLOEXEC));
    *ours_p = ends[0];
    *its_p  = ends[1];
out:
    return status;
}

static ddp_status_t start(runner_t *runner, char *const *argv, char *const *environment)
{
    ddp_status_t status = DDP_OK;
    ddp_child_t  child  = {.argv = argv, .environment = environment, .err = -1};

    DDP_TRY(open_channel(&runner->from, &child.err));
    status = ddp_child_start(&child, &runner->pid);
    (void)close(child.err);
    if (status != DDP_OK) {
        (void)close(runner->from);
    }
out:
    return status;
}

static bool write_text(const char *text)
{
    return write(STDERR_FILENO, text, strlen(text)) == (ssize_t)strlen(text);
}

/* What is still on its way; whoever could hold the other end open is gone. */
static void drain(runner_t *runner)
{
    const int64_t end = ddp_clock_ns() + DRAIN_NS;

    while (ddp_clock_ns() < end && (runner->from >= 0 || runner->begin < runner->end)) {
        if (!pump(runner, runner->begin < runner->end ? POLL_MS : 0) && runner->begin == runner->end) {
            break;
        }
    }
    if (runner->from >= 0) {
        (void)close(runner->from);
    }
    if (runner->length > 0 && isatty(STDERR_FILENO) != 0) {
        (void)write_text("\r\033[K"); /* the bar of a run that was killed */
    }
    listen(runner, "\n", 1);
}

ddp_status_t ddp_supervise_run(char *const *argv, char *const *environment, ddp_supervise_kind_t kind,
                               const char *program, double alone_s, ddp_supervise_end_t *end)
{
    ddp_status_t  status = DDP_OK;
    const int64_t begun  = ddp_clock_ns();
    runner_t      runner = {.kind = kind, .from = -1, .clue = &end->clue};
    int           how    = 0;

    *end = (ddp_supervise_end_t){0};
    if (kind == DDP_SUPERVISE_MPIRUN && program != NULL) {
        runner.program        = program;
        runner.alone_limit_ns = (int64_t)(alone_s * 1e9);
    }
    DDP_TRY(start(&runner, argv, environment));
    while (waitpid(runner.pid, &how, WNOHANG) == 0) {
        look_at_signals(&runner);
        look_at_ranks(&runner);
        (void)pump(&runner, POLL_MS);
    }
    end->seconds = (double)(ddp_clock_ns() - begun) / 1e9;
    ddp_child_clean_up();
    drain(&runner);
    end->code  = WIFSIGNALED(how) ? EXIT_BASE + WTERMSIG(how) : WEXITSTATUS(how);
    end->asked = ddp_supervise_asked();
    if (WIFSIGNALED(how)) {
        end->clue.host[0] =
            '\0'; /* the launcher itself: what its ranks say of each other is the consequence */
    }
out:
    return status;
}
