#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "launcher/args.h"
#include "launcher/compare.h"
#include "launcher/stop.h"

#define MOST_STEPS  UINT64_C(1000000)
#define MOST_ROUNDS UINT64_C(1000)

typedef enum option_id {
    OPT_DEVICES,
    OPT_STEPS,
    OPT_WARMUP,
    OPT_ROUNDS,
    OPT_TIMEOUT,
    OPT_OUT,
    OPT_SET,
    OPT_LOG,
    OPT_HELP
} option_id_t;

static const ddp_arg_t option_table[] = {
    [OPT_DEVICES] = {"--devices", "1,2,4",
                     "numbers of devices; one device is always measured (default: 1, 2, 4 ... as there are "
                     "cores)"},
    [OPT_STEPS]   = {"--steps", "N",
                     "of each run, with the warm-up (default: what takes about a minute in all)"},
    [OPT_WARMUP]  = {"--warmup", "N", "first steps, which are left out (default 3)"},
    [OPT_ROUNDS]  = {"--rounds", "N", "how often all runs are repeated, in turn (default 2)"},
    [OPT_TIMEOUT] = {"--timeout", "TIME", "a run without a new step for so long is ended (default 120)"},
    [OPT_OUT]     = {"--out", "DIR", "folder for the results; must not exist yet (default: runs/compare)"},
    [OPT_SET]     = {"--set", "section.key=value", "set one key of the configuration; may be repeated"},
    [OPT_LOG]     = {"--log", "LEVEL", "error, warn, info (default) or debug"},
    [OPT_HELP]    = {"--help", NULL, "this text"},
};
#define N_OPTIONS (sizeof(option_table) / sizeof(option_table[0]))

void ddp_compare_help(FILE *out)
{
    fputs("Train a configuration for some steps on one device, with DataParallel (one process, a thread for "
          "each\n"
          "device) and with DDP (a process for each), and tell which of them to use here, and why.\n"
          "\n"
          "  ddptrain compare run.yaml\n"
          "  ddptrain compare run.yaml --devices 1,2,4 --steps 50 --out report\n"
          "\n"
          "Usage: ddptrain compare [run.yaml] [option...]\n"
          "\n",
          out);
    ddp_args_help(option_table, N_OPTIONS, out);
    fputs("\n"
          "It starts mpirun (or srun) itself: start it once, by itself. A table and a verdict go to stdout; "
          "the folder\n"
          "gets compare.html (one page with charts, needs no network), compare.json, compare.svg, "
          "compare.png where\n"
          "gnuplot is installed, and the runs. Exit status: 0 done, 1 a run failed or was stopped (the "
          "results of the\n"
          "others are written), 2 wrong usage. More: docs/dataparallel.md.\n",
          out);
}

static int ascending(const void *a, const void *b)
{
    const size_t x = *(const size_t *)a;
    const size_t y = *(const size_t *)b;

    return (x > y) - (x < y);
}

static ddp_status_t take_devices(const char *text, ddp_compare_options_t *options)
{
    ddp_status_t status = DDP_OK;
    size_t       n      = 0;
    size_t       counts[DDP_COMPARE_MAX_COUNTS + 1];
    const char  *at  = text;
    char        *end = NULL;

    do {
        const unsigned long long count = strtoull(at, &end, 10);

        DDP_REQUIRE(*at >= '0' && *at <= '9' && (*end == ',' || *end == '\0') && count >= 1 &&
                        count <= DDP_COMPARE_MAX_DEVICES,
                    DDP_ERR_CONFIG,
                    "--devices '%.80s': numbers of devices from 1 to %d are expected, as in 1,2,4", text,
                    DDP_COMPARE_MAX_DEVICES);
        DDP_REQUIRE(n <= DDP_COMPARE_MAX_COUNTS, DDP_ERR_CONFIG, "--devices '%.80s': more than %d numbers",
                    text, DDP_COMPARE_MAX_COUNTS);
        counts[n++] = (size_t)count;
        at          = *end == ',' ? end + 1 : end;
    } while (*end == ',');
    qsort(counts, n, sizeof(counts[0]), ascending);
    options->n_counts = 0;
    for (size_t i = 0; i < n; i++) {
        DDP_REQUIRE(i == 0 || counts[i] != counts[i - 1], DDP_ERR_CONFIG, "--devices '%.80s': %zu twice",
                    text, counts[i]);
        if (counts[i] > 1) {
            DDP_REQUIRE(options->n_counts < DDP_COMPARE_MAX_COUNTS, DDP_ERR_CONFIG,
                        "--devices '%.80s': more than %d numbers", text, DDP_COMPARE_MAX_COUNTS);
            options->counts[options->n_counts++] = counts[i];
        }
    }
    DDP_REQUIRE(options->n_counts > 0, DDP_ERR_CONFIG,
                "--devices '%.80s': there is nothing to compare with one device", text);
out:
    return status;
}

static ddp_status_t take_option(void *ctx, size_t index, const char *value)
{
    ddp_compare_options_t *options = ctx;
    const char            *name    = option_table[index].name;

    switch ((option_id_t)index) {
    case OPT_DEVICES:
        return take_devices(value, options);
    case OPT_STEPS:
        return ddp_args_count(name, value, 1, MOST_STEPS, &options->steps);
    case OPT_WARMUP:
        return ddp_args_count(name, value, 0, MOST_STEPS, &options->warmup);
    case OPT_ROUNDS:
        return ddp_args_count(name, value, 1, MOST_ROUNDS, &options->rounds);
    case OPT_TIMEOUT:
        return ddp_stop_parse_time(name, value, &options->timeout_s);
    case OPT_OUT:
        if (value[0] == '\0') {
            return ddp_fail(DDP_ERR_CONFIG, "--out needs the name of a folder");
        }
        options->run.out = value;
        break;
    case OPT_SET:
        return ddp_options_take_set(&options->run, value);
    case OPT_LOG:
        return ddp_options_take_log(&options->run, value);
    case OPT_HELP:
        options->help = true;
        break;
    }
    return DDP_OK;
}

static ddp_status_t take_word(void *ctx, size_t index, const char *word)
{
    ddp_compare_options_t *options = ctx;

    (void)index;
    return ddp_options_take_file(&options->run, word);
}

ddp_status_t ddp_compare_options_parse(int argc, char *const *argv, ddp_compare_options_t *options)
{
    ddp_status_t          status = DDP_OK;
    const ddp_args_sink_t sink   = {.ctx = options, .option = take_option, .word = take_word};

    *options             = (ddp_compare_options_t){.warmup = 3, .rounds = 2, .timeout_s = 120};
    options->run.command = "compare";
    options->run.log     = DDP_LOG_INFO;
    DDP_TRY(ddp_args_parse(option_table, N_OPTIONS, "ddptrain compare", argc, argv, &sink));
    DDP_REQUIRE(options->steps == 0 || options->steps > options->warmup, DDP_ERR_CONFIG,
                "--steps %" PRIu64 " leaves none after a warm-up of %" PRIu64 " steps (--warmup)",
                options->steps, options->warmup);
out:
    return status;
}
