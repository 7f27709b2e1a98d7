#include <string.h>

#include "base/error.h"
#include "launcher/args.h"
#include "launcher/report.h"

typedef enum option_id { OPT_OUT, OPT_TENSORBOARD, OPT_TRACE, OPT_LOG, OPT_HELP } option_id_t;

static const ddp_arg_t option_table[] = {
    [OPT_OUT]         = {"--out", "FILE.html",
                         "the page (default: report.html in the run's folder, of several runs "
                                 "in this one)"},
    [OPT_TENSORBOARD] = {"--tensorboard", "DIR",
                         "also an event file for TensorBoard; of several runs a folder each"},
    [OPT_TRACE] =
        {"--trace", "FILE.json",
         "also the timeline of the last step (train.trace: true), for Perfetto or chrome://tracing"},
    [OPT_LOG]  = {"--log", "LEVEL", "error, warn, info (default) or debug"},
    [OPT_HELP] = {"--help", NULL, "this text"},
};
#define N_OPTIONS (sizeof(option_table) / sizeof(option_table[0]))

void ddp_report_help(FILE *out)
{
    fputs("What became of a run, as one page with charts that needs no network: how it ended and how to go "
          "on, loss, "
          "throughput,\n"
          "where a step's time goes, slow ranks, checkpoints, restarts, environment and configuration.\n"
          "\n"
          "  ddptrain report runs/mlp-shapes\n"
          "  ddptrain report runs/a runs/b --out both.html    loss and throughput of several runs in one "
          "chart\n"
          "\n"
          "Usage: ddptrain report RUN... [option...]\n"
          "\n",
          out);
    ddp_args_help(option_table, N_OPTIONS, out);
    fputs("\n"
          "RUN is a run's folder, with its metrics.jsonl; the run may still be going on, or have broken off. "
          "Nothing "
          "of it is\n"
          "changed. What became of each run goes to stdout too. Exit status: 0 done, 1 a run cannot be read "
          "or a file "
          "not\n"
          "written, 2 wrong usage. More: docs/metrics.md.\n",
          out);
}

static bool ends_in(const char *path, const char *ending)
{
    const size_t length = strlen(path);

    return length > strlen(ending) && strcmp(path + length - strlen(ending), ending) == 0;
}

static ddp_status_t take_option(void *ctx, size_t index, const char *value)
{
    ddp_report_options_t *options = ctx;
    const char           *name    = option_table[index].name;

    switch ((option_id_t)index) {
    case OPT_OUT: /* what ends otherwise may be something that should not be written over */
        if (!ends_in(value, ".html")) {
            return ddp_fail(DDP_ERR_CONFIG, "%s '%.80s': the name of a page ends in .html", name, value);
        }
        options->out = value;
        break;
    case OPT_TENSORBOARD:
        if (value[0] == '\0') {
            return ddp_fail(DDP_ERR_CONFIG, "%s needs the name of a folder", name);
        }
        options->tensorboard = value;
        break;
    case OPT_TRACE:
        if (!ends_in(value, ".json")) {
            return ddp_fail(DDP_ERR_CONFIG, "%s '%.80s': the name of a trace ends in .json", name, value);
        }
        options->trace = value;
        break;
    case OPT_LOG:
        if (!ddp_log_parse_level(value, &options->log)) {
            return ddp_fail(DDP_ERR_CONFIG, "--log '%.80s': allowed are error, warn, info, debug", value);
        }
        break;
    case OPT_HELP:
        options->help = true;
        break;
    }
    return DDP_OK;
}

static ddp_status_t take_word(void *ctx, size_t index, const char *word)
{
    ddp_report_options_t *options = ctx;

    if (index == DDP_REPORT_MAX_RUNS) {
        return ddp_fail(DDP_ERR_CONFIG, "more than %d runs in one page", DDP_REPORT_MAX_RUNS);
    }
    options->run[options->n_runs++] = word;
    return DDP_OK;
}

ddp_status_t ddp_report_options_parse(int argc, char *const *argv, ddp_report_options_t *options)
{
    ddp_status_t          status = DDP_OK;
    const ddp_args_sink_t sink   = {.ctx = options, .option = take_option, .word = take_word};

    *options = (ddp_report_options_t){.log = DDP_LOG_INFO};
    DDP_TRY(ddp_args_parse(option_table, N_OPTIONS, "ddptrain report", argc, argv, &sink));
    DDP_REQUIRE(options->help || options->n_runs > 0, DDP_ERR_CONFIG,
                "a run's folder is needed: ddptrain report RUN");
    DDP_REQUIRE(options->trace == NULL || options->n_runs == 1, DDP_ERR_CONFIG,
                "--trace is of one run, not of %zu", options->n_runs);
out:
    return status;
}
