#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "launcher/args.h"
#include "launcher/options.h"
#include "launcher/stop.h"
#include "launcher/supervise.h"

#define MOST_RESTARTS UINT64_C(100000)
#define MOST_RANKS    UINT64_C(1000000)

typedef enum option_id {
    OPT_RESTARTS,
    OPT_WINDOW,
    OPT_IDLE,
    OPT_BACKOFF,
    OPT_BACKOFF_MAX,
    OPT_ALONE,
    OPT_HOSTFILE,
    OPT_MIN_RANKS,
    OPT_RUN,
    OPT_HISTORY,
    OPT_LOG,
    OPT_HELP
} option_id_t;

static const ddp_arg_t option_table[] = {
    [OPT_RESTARTS]    = {"--max-restarts", "N", "within the window, then it gives up (default 10)"},
    [OPT_WINDOW]      = {"--window", "TIME", "over which restarts and failures of a host count (default 1h)"},
    [OPT_IDLE]        = {"--max-idle", "N",
                         "restarts in a row without a new checkpoint, then it gives up (default 3)"},
    [OPT_BACKOFF]     = {"--backoff", "TIME",
                         "before a restart; doubles while there is no new checkpoint (default 1)"},
    [OPT_BACKOFF_MAX] = {"--backoff-max", "TIME", "the longest of these waits (default 60)"},
    [OPT_ALONE]       = {"--launcher-timeout", "TIME",
                         "an mpirun that does not end so long after its ranks is killed (default 60)"},
    [OPT_HOSTFILE]    = {"--hostfile", "FILE",
                         "for mpirun; a host that fails twice within the window is left out"},
    [OPT_MIN_RANKS]   = {"--min-ranks", "N", "no host is left out if fewer ranks would be left (default 1)"},
    [OPT_RUN]         = {"--run", "DIR", "the run's folder, where a script hides ddptrain's --out"},
    [OPT_HISTORY]     = {"--history", "FILE", "a line of JSON for each start (default: DIR.supervise.jsonl)"},
    [OPT_LOG]         = {"--log", "LEVEL", "error, warn, info (default) or debug"},
    [OPT_HELP]        = {"--help", NULL, "this text"},
};
#define N_OPTIONS (sizeof(option_table) / sizeof(option_table[0]))

void ddp_supervise_help(FILE *out)
{
    fputs("Start a training, and when it ends by a fault start it again where it left off.\n"
          "\n"
          "  ddptrain supervise -- mpirun -np 4 ddptrain run.yaml --out my/run\n"
          "  ddptrain supervise --hostfile hosts -- mpirun -np 16 ddptrain run.yaml --out my/run\n"
          "  ddptrain supervise -- srun -K --mpi=pmix ddptrain run.yaml --out my/run\n"
          "\n"
          "Usage: ddptrain supervise [option...] -- command...\n"
          "\n",
          out);
    ddp_args_help(option_table, N_OPTIONS, out);
    fputs(
        "\n"
        "The command's output passes through. SIGUSR1, SIGUSR2 and SIGTERM stop the run with its state saved "
        "(75);\n"
        "a second SIGTERM, SIGINT and SIGHUP end it at once. Wrong usage (2) is not tried again. Exit "
        "status: that of\n"
        "the last run, 0 done, 2 wrong usage, 75 stopped and saved. More: docs/supervise.md.\n",
        out);
}

static ddp_status_t take_path(const char *name, const char *text, const char **path_p)
{
    ddp_status_t status = DDP_OK;

    DDP_REQUIRE(text[0] != '\0', DDP_ERR_CONFIG, "%s needs a name", name);
    *path_p = text;
out:
    return status;
}

static ddp_status_t take_option(void *ctx, size_t index, const char *value)
{
    ddp_supervise_options_t *options = ctx;
    const char              *name    = option_table[index].name;
    ddp_options_t            log     = {0};
    ddp_status_t             status  = DDP_OK;

    switch ((option_id_t)index) {
    case OPT_RESTARTS:
        return ddp_args_count(name, value, 0, MOST_RESTARTS, &options->max_restarts);
    case OPT_WINDOW:
        return ddp_stop_parse_time(name, value, &options->window_s);
    case OPT_IDLE:
        return ddp_args_count(name, value, 1, MOST_RESTARTS, &options->max_idle);
    case OPT_BACKOFF:
        return ddp_stop_parse_time(name, value, &options->backoff_s);
    case OPT_BACKOFF_MAX:
        return ddp_stop_parse_time(name, value, &options->backoff_max_s);
    case OPT_ALONE:
        return ddp_stop_parse_time(name, value, &options->alone_s);
    case OPT_HOSTFILE:
        return take_path(name, value, &options->hostfile);
    case OPT_MIN_RANKS:
        return ddp_args_count(name, value, 1, MOST_RANKS, &options->min_ranks);
    case OPT_RUN:
        return take_path(name, value, &options->folder);
    case OPT_HISTORY:
        return take_path(name, value, &options->history);
    case OPT_LOG:
        status       = ddp_options_take_log(&log, value);
        options->log = log.log;
        return status;
    case OPT_HELP:
        options->help = true;
        break;
    }
    return DDP_OK;
}

static ddp_status_t take_word(void *ctx, size_t index, const char *word)
{
    (void)ctx;
    (void)index;
    return ddp_fail(DDP_ERR_CONFIG,
                    "'%.80s': the command goes behind --, as in ddptrain supervise -- %.80s ...", word, word);
}

ddp_status_t ddp_supervise_options_parse(int argc, char *const *argv, ddp_supervise_options_t *options)
{
    ddp_status_t          status = DDP_OK;
    const ddp_args_sink_t sink   = {.ctx = options, .option = take_option, .word = take_word};
    int                   own    = 1;

    while (own < argc && strcmp(argv[own], "--") != 0) {
        own++;
    }
    *options = (ddp_supervise_options_t){.log           = DDP_LOG_INFO,
                                         .max_restarts  = 10,
                                         .window_s      = 3600,
                                         .max_idle      = 3,
                                         .backoff_s     = 1,
                                         .backoff_max_s = 60,
                                         .alone_s       = 60,
                                         .min_ranks     = 1};
    DDP_TRY(ddp_args_parse(option_table, N_OPTIONS, "ddptrain supervise", own, argv, &sink));
    options->argc = argc - own > 1 ? argc - own - 1 : 0;
    options->argv = argv + argc - options->argc;
    DDP_REQUIRE(options->help || options->argc > 0, DDP_ERR_CONFIG,
                "supervise needs a command: ddptrain supervise -- mpirun -np 4 ddptrain run.yaml --out DIR");
    if (options->backoff_max_s < options->backoff_s) {
        options->backoff_max_s = options->backoff_s;
    }
out:
    return status;
}
