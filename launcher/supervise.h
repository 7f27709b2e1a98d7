/**
 * @file `ddptrain supervise -- COMMAND`: start a training, and start it again where it left off when it ends
 * by a fault. The parts: the command line and what of it is understood, hosts, what the output tells of a
 * fault, what to do about it, one run of the command, the history. No MPI, and no thread but the main one.
 */
#ifndef DDP_SUPERVISE_H_
#define DDP_SUPERVISE_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/export.h"
#include "base/log.h"
#include "base/status.h"

/* ---- The command line ---- */

/** Pointers are into argv, borrowed. */
typedef struct ddp_supervise_options {
    bool            help;
    ddp_log_level_t log;
    uint64_t        max_restarts; /* within window_s */
    double          window_s;
    uint64_t        max_idle; /* restarts in a row that bring no new checkpoint */
    double          backoff_s, backoff_max_s;
    double          alone_s; /* how long mpirun may outlive its ranks */
    uint64_t        min_ranks;
    const char     *hostfile; /* for mpirun, or NULL */
    const char     *history;  /* or NULL: beside the run's folder */
    const char     *folder;   /* --run: the run's folder, where the command does not tell it; or NULL */
    int             argc;     /* of the command behind "--" */
    char *const    *argv;
} ddp_supervise_options_t;

/** @return DDP_ERR_CONFIG with the option at fault; `*options` is then half filled */
ddp_status_t ddp_supervise_options_parse(int argc, char *const *argv,
                                         ddp_supervise_options_t *options) DDP_NODISCARD;
/** --help. */
void ddp_supervise_help(FILE *out);

/* ---- What is understood of the command ---- */

typedef enum ddp_supervise_kind {
    DDP_SUPERVISE_PROGRAM, /* ddptrain itself */
    DDP_SUPERVISE_MPIRUN,
    DDP_SUPERVISE_SRUN,
    DDP_SUPERVISE_OTHER, /* a script, perhaps */
} ddp_supervise_kind_t;

/** Places are indices into argv, -1: not there. */
typedef struct ddp_supervise_line {
    int                  argc; /* borrowed */
    char *const         *argv;
    ddp_supervise_kind_t kind;
    int                  program;  /* the word that is ddptrain */
    int                  ranks;    /* the value of -np */
    int                  per_host; /* the value of -npernode */
    int                  hostfile; /* the value of --hostfile */
    int                  hosts;    /* the value of --host */
    const char          *unknown; /* a word of mpirun that is not understood: hosts and ranks stay; or NULL */
    const char          *out;     /* of ddptrain, or NULL */
    const char          *resume;  /* of ddptrain, or NULL */
    bool                 is_limited; /* ddptrain has a --time-limit */
} ddp_supervise_line_t;

/**
 * @param [in] argv  borrowed by `line`
 * @return DDP_ERR_CONFIG: ddptrain would refuse its own options, or it would not train
 */
ddp_status_t ddp_supervise_line_read(int argc, char *const *argv, ddp_supervise_line_t *line) DDP_NODISCARD;

/** What of the command is another in this run; NULL and 0: as it is. Texts are borrowed. */
typedef struct ddp_supervise_change {
    const char *hostfile; /* in place of its own, or added */
    const char *hosts;
    const char *out; /* added */
    uint64_t    ranks;
} ddp_supervise_change_t;

/**
 * The words of a run. mpirun gets `-x DDPTRAIN_RESTART_COUNT` too: it hands no other variable to other hosts.
 * @return DDP_ERR_NO_MEMORY. `*argv_p` ends with NULL; ddp_supervise_words_free()
 */
ddp_status_t ddp_supervise_words(const ddp_supervise_line_t *line, const ddp_supervise_change_t *change,
                                 char ***argv_p) DDP_NODISCARD;
void         ddp_supervise_words_free(char **argv);

/* ---- Hosts ---- */

#define DDP_SUPERVISE_HOST 256

typedef struct ddp_supervise_host {
    char     name[DDP_SUPERVISE_HOST];
    uint64_t slots;     /* 0: not told */
    double   failed_s;  /* when it failed last, < 0: never */
    bool     is_listed; /* more than once in a file without slots: each counts one */
    bool     is_dropped;
} ddp_supervise_host_t;

typedef struct ddp_supervise_hosts {
    ddp_supervise_host_t *host; /* owned, [n] */
    size_t                n;
} ddp_supervise_hosts_t;

/** The hosts of Open MPI's hostfile: "name slots=2". @return DDP_ERR_CONFIG, DDP_ERR_IO, DDP_ERR_FORMAT */
ddp_status_t ddp_supervise_hosts_read(const char *path, ddp_supervise_hosts_t *hosts) DDP_NODISCARD;
/** The hosts of "--host a:2,b". */
ddp_status_t ddp_supervise_hosts_parse(const char *list, ddp_supervise_hosts_t *hosts) DDP_NODISCARD;
void         ddp_supervise_hosts_free(ddp_supervise_hosts_t *hosts);
/** By its name; "node3" and "node3.cluster" are one. @return NULL: not among them, or not the only one */
ddp_supervise_host_t *ddp_supervise_hosts_find(const ddp_supervise_hosts_t *hosts, const char *name);
/** How many are not dropped. */
size_t ddp_supervise_hosts_left(const ddp_supervise_hosts_t *hosts);
/** The file without the lines of dropped hosts, to `fd`. */
ddp_status_t ddp_supervise_hosts_write(const ddp_supervise_hosts_t *hosts, const char *path,
                                       int fd) DDP_NODISCARD;
/** The list without dropped hosts, "a:2,b". @return NULL: no memory; the caller frees it */
char *ddp_supervise_hosts_list(const ddp_supervise_hosts_t *hosts, const char *list);
/**
 * Ranks for the hosts that are left: as many as they have slots, or, where there were more ranks than slots
 * or slots are not told, the same share.
 * @param [in] ranks     asked for with all hosts
 * @param [in] per_host  the most for one host, 0: no such limit
 */
uint64_t ddp_supervise_hosts_ranks(const ddp_supervise_hosts_t *hosts, uint64_t ranks, uint64_t per_host);

/* ---- What the output tells of a fault ---- */

#define DDP_SUPERVISE_LINE 512

typedef struct ddp_supervise_clue {
    int  weight; /* of the host: what tells it better counts more; 0: none */
    int  line_weight;
    char line[DDP_SUPERVISE_LINE]; /* what ddptrain said, or mpirun where ddptrain said nothing; "" */
    char host[DDP_SUPERVISE_HOST]; /* where it happened; "" */
    bool is_unstarted;             /* mpirun could not start its daemons everywhere, and does not say where */
} ddp_supervise_clue_t;

/** Look at one line of stderr, in order. */
void ddp_supervise_clue_read(ddp_supervise_clue_t *clue, const char *line);
/** Do two lines tell the same, apart from pids? */
bool ddp_supervise_clue_is_same(const char *a, const char *b);

/* ---- What to do ---- */

typedef enum ddp_supervise_next {
    DDP_SUPERVISE_RESTART,
    DDP_SUPERVISE_DONE, /* the command has done what it was to do, or was asked to stop */
    DDP_SUPERVISE_GIVE_UP,
} ddp_supervise_next_t;

#define DDP_SUPERVISE_REASON 256

/** How a run ended. */
typedef struct ddp_supervise_end {
    int                  code;  /* as a shell tells it: 128 + the signal that killed it */
    int                  asked; /* the signal by which this process was asked to stop, 0: none */
    double               seconds;
    ddp_supervise_clue_t clue;
} ddp_supervise_end_t;

/** What is remembered from run to run; zeroed at the start, but for `step` and `restart_s`. */
typedef struct ddp_supervise_past {
    uint64_t restarts;                 /* in all */
    uint64_t idle;                     /* restarts in a row that brought no new checkpoint */
    uint64_t failures;                 /* in a row, without a new checkpoint between them */
    int64_t  step;                     /* of the newest checkpoint after the last run; -1: none */
    bool     is_same;                  /* all `failures` told the same */
    char     line[DDP_SUPERVISE_LINE]; /* what the last one told */
    double  *restart_s;                /* owned, [max_restarts], a ring: when each was */
} ddp_supervise_past_t;

/** What surrounds the command, and decides what a code means. */
typedef struct ddp_supervise_place {
    bool in_slurm;   /* a job script gets the status, and asks for a requeue */
    bool is_limited; /* the command has a limit of time */
    bool is_seen;    /* the folder is known, so checkpoints tell of progress */
} ddp_supervise_place_t;

/**
 * @param [in]  now_s   any clock that does not go back
 * @param [in]  step    of the newest checkpoint now; -1: none
 * @param [in]  random  0 <= random < 1, for the jitter
 * @param [out] wait_s  before the restart
 * @param [out] reason  [DDP_SUPERVISE_REASON] why it is done or given up
 */
ddp_supervise_next_t ddp_supervise_decide(const ddp_supervise_options_t *options,
                                          const ddp_supervise_place_t *place, ddp_supervise_past_t *past,
                                          const ddp_supervise_end_t *end, double now_s, int64_t step,
                                          double random, double *wait_s, char *reason);

/* ---- One run of the command ---- */

/** From now on USR1, USR2, TERM, INT and HUP are caught. Once, before the first run. */
void ddp_supervise_catch_signals(void);
/** The first signal that asked for a stop, 0: none. */
int ddp_supervise_asked(void);
/** "SIGUSR1" */
const char *ddp_supervise_signal_name(int number);

/**
 * Run it to its end. Its stdout is this process's; its stderr is passed on as it comes, a terminal's as a
 * terminal's. Signals are passed on: SIGTERM to mpirun as SIGUSR1, since mpirun kills its ranks at SIGTERM; a
 * second one, a second later or more, ends it at once, as SIGINT and SIGHUP do. When this returns, nothing of
 * it runs on this machine. Blocking.
 * An mpirun whose ranks on this machine have ended, and which does not end itself, is killed: Open MPI's
 * hangs now and then where a rank is killed as it connects.
 * @param [in] argv, environment  NULL-terminated
 * @param [in] program            the name of mpirun's ranks, NULL: not known
 * @param [in] alone_s            how long mpirun may outlive them
 * @return DDP_ERR_SYSTEM: it could not be started
 */
ddp_status_t ddp_supervise_run(char *const *argv, char *const *environment, ddp_supervise_kind_t kind,
                               const char *program, double alone_s, ddp_supervise_end_t *end) DDP_NODISCARD;

/* ---- The history: a line of JSON for each run ---- */

typedef struct ddp_supervise_record {
    uint64_t                     attempt;
    const ddp_supervise_end_t   *end;
    int64_t                      step;  /* -1: none */
    uint64_t                     ranks; /* 0: not known */
    const ddp_supervise_hosts_t *hosts;
    const char                  *next; /* "restart", "done", "give up" */
    const char                  *reason;
    double                       wait_s;
} ddp_supervise_record_t;

/** Append a line; what fails is a warning. Written before what comes `next`, so `hosts` are those of the run.
 */
void ddp_supervise_record(const char *path, const ddp_supervise_record_t *record);

/** Everything. @return exit status */
int ddp_supervise_command(int argc, char **argv);

#endif
