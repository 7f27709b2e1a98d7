#include "launcher/options.h"

#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "launcher/args.h"
#include "launcher/commands.h"
#include "launcher/stop.h"

typedef enum option_id {
    OPT_SET,
    OPT_MODE,
    OPT_DEVICES,
    OPT_DEVICE_MEMORY,
    OPT_OUT,
    OPT_RESUME,
    OPT_INIT,
    OPT_ALLOW,
    OPT_TIME_LIMIT,
    OPT_DRY_RUN,
    OPT_LOG,
    OPT_HELP,
    OPT_HELP_CONFIG,
    OPT_VERSION
} option_id_t;

static const ddp_arg_t option_table[] = {
    [OPT_SET] = {"--set", "section.key=value", "set one key of the configuration; may be repeated"},
    [OPT_MODE] =
        {"--mode", "ddp|dp",
         "train.mode: a process for each device (the default), or one with a thread for each device"},
    [OPT_DEVICES]       = {"--devices", "0,1", "dp.devices: with --mode dp, the devices to use"},
    [OPT_DEVICE_MEMORY] = {"--device-memory", "SIZE",
                           "dp.device_memory: with --mode dp, what a device may hold, 512M or 0:512M,1:256M"},
    [OPT_OUT]           = {"--out", "DIR",
                           "folder of the run; must not exist yet, but for --resume. Default: runs/<model>-<data>, or "
                                     "the next number"},
    [OPT_RESUME] =
        {"--resume", "auto|FILE",
         "go on from a checkpoint: this file, or the newest whole one of --out, or of the newest run "
         "with this model and data"},
    [OPT_INIT]  = {"--init", "FILE", "begin with the weights of a checkpoint"},
    [OPT_ALLOW] = {"--allow-missing", "PATTERN",
                   "with --init: parameters that may be missing on either side, as 'fc.*'; may be repeated"},
    [OPT_TIME_LIMIT] =
        {"--time-limit", "TIME",
         "save and stop with status 75 before so much time has passed: 90 (seconds), 30m, 2h, 1:30:00"},
    [OPT_DRY_RUN]     = {"--dry-run", NULL,
                         "print configuration, model, buckets and memory; train nothing, write nothing"},
    [OPT_LOG]         = {"--log", "LEVEL", "error, warn, info (default) or debug"},
    [OPT_HELP]        = {"--help", NULL, "this text"},
    [OPT_HELP_CONFIG] = {"--help-config", NULL, "every key of run.yaml with default, range and meaning"},
    [OPT_VERSION]     = {"--version", NULL, "version"},
};
#define N_OPTIONS (sizeof(option_table) / sizeof(option_table[0]))

void ddp_options_help(FILE *out)
{
    fputs(
        "ddptrain trains a neural network on several processes at once, each with a share of every batch.\n"
        "\n"
        "  mpirun -np 2 ddptrain                  train the default on two cores: a small convolutional\n"
        "                                         network on Fashion-MNIST (or on drawn shapes without it)\n"
        "  mpirun -np 2 ddptrain run.yaml         train what run.yaml says\n"
        "  ddptrain --help-config > run.yaml      write a run.yaml with every key at its default\n"
        "\n"
        "Usage: ddptrain [train] [run.yaml] [option...]\n"
        "\n",
        out);
    ddp_args_help(option_table, N_OPTIONS, out);
    fputs("\nCommands, each with a --help of its own:\n\n", out);
    for (size_t i = 0; i < ddp_n_commands; i++) {
        fprintf(out, "  %-24s %s\n", ddp_commands[i].name, ddp_commands[i].help);
    }
    fputs("\n"
          "Start one process for each core or GPU; without mpirun ddptrain is one process. With "
          "ddp.reduction exact (the default,\n"
          "but for GPUs with NCCL) the result is the same bits for any number. A run's folder holds "
          "config.yaml (all keys\n"
          "as used), checkpoints and metrics.jsonl (one JSON object a line); the last line on stdout is "
          "\"weights <hex>\": equal hex, equal bits.\n"
          "\n"
          "Exit status: 0 done, 1 failed, 2 wrong usage, 75 stopped after saving (SIGUSR1, SIGUSR2, SIGTERM "
          "or a\n"
          "time limit): start it again with --resume auto. An error is one line on stderr.\n"
          "More: README.md and docs/ beside the source.\n",
          out);
}

ddp_status_t ddp_options_take_set(ddp_options_t *options, const char *assignment)
{
    if (options->n_sets == DDP_OPTIONS_MAX_SETS) {
        return ddp_fail(DDP_ERR_CONFIG, "more than %d --set: write a run.yaml", DDP_OPTIONS_MAX_SETS);
    }
    options->set[options->n_sets++] = assignment;
    return DDP_OK;
}

ddp_status_t ddp_options_take_log(ddp_options_t *options, const char *level)
{
    if (!ddp_log_parse_level(level, &options->log)) {
        return ddp_fail(DDP_ERR_CONFIG, "--log '%.80s': allowed are error, warn, info, debug", level);
    }
    return DDP_OK;
}

ddp_status_t ddp_options_take_file(ddp_options_t *options, const char *word)
{
    const char *nearest;

    /* a file is what looks like one or is one; anything else was meant as a command */
    if (strpbrk(word, "./") == NULL && access(word, F_OK) != 0) {
        nearest = ddp_command_suggest(word);
        return ddp_fail(DDP_ERR_CONFIG, "'%.80s' is neither a command nor a file; %s%s%s", word,
                        nearest != NULL ? "did you mean '" : "see ddptrain --help",
                        nearest != NULL ? nearest : "", nearest != NULL ? "'?" : "");
    }
    if (options->file != NULL) {
        return ddp_fail(DDP_ERR_CONFIG, "two files, '%.80s' and '%.80s': one run.yaml is allowed",
                        options->file, word);
    }
    options->file = word;
    return DDP_OK;
}

static ddp_status_t apply(ddp_config_t *config, const char *section, const char *name, const char *option,
                          const char *text)
{
    ddp_status_t status = DDP_OK;

    if (text != NULL) {
        status = ddp_config_parse(config, ddp_config_find(section, name), text);
    }
    if (status != DDP_OK) {
        ddp_error_prefix("%s", option);
    }
    return status;
}

ddp_status_t ddp_options_apply(const ddp_options_t *options, ddp_config_t *config)
{
    ddp_status_t status = DDP_OK;
    const char  *option = options->devices != NULL ? "--devices" : "--device-memory";

    DDP_TRY(apply(config, "train", "mode", "--mode", options->mode));
    DDP_TRY(apply(config, "dp", "devices", "--devices", options->devices));
    DDP_TRY(apply(config, "dp", "device_memory", "--device-memory", options->device_memory));
    DDP_REQUIRE((options->devices == NULL && options->device_memory == NULL) ||
                    config->train.mode == DDP_MODE_DP,
                DDP_ERR_CONFIG,
                "%s is for --mode dp; with train.mode ddp, mpirun -np says how many cores are used", option);
out:
    return status;
}

static ddp_status_t take_option(void *ctx, size_t index, const char *argument)
{
    ddp_options_t *options = ctx;

    switch ((option_id_t)index) {
    case OPT_SET:
        return ddp_options_take_set(options, argument);
    case OPT_MODE:
        options->mode = argument;
        break;
    case OPT_DEVICES:
        options->devices = argument;
        break;
    case OPT_DEVICE_MEMORY:
        options->device_memory = argument;
        break;
    case OPT_OUT:
        if (argument[0] == '\0') {
            return ddp_fail(DDP_ERR_CONFIG, "--out needs the name of a folder");
        }
        options->out = argument;
        break;
    case OPT_RESUME:
        options->resume = argument;
        break;
    case OPT_INIT:
        options->init = argument;
        break;
    case OPT_ALLOW:
        if (options->n_allow == DDP_OPTIONS_MAX_ALLOW) {
            return ddp_fail(DDP_ERR_CONFIG, "more than %d --allow-missing", DDP_OPTIONS_MAX_ALLOW);
        }
        options->allow[options->n_allow++] = argument;
        break;
    case OPT_TIME_LIMIT:
        return ddp_stop_parse_time("--time-limit", argument, &options->time_limit_s);
    case OPT_LOG:
        return ddp_options_take_log(options, argument);
    case OPT_DRY_RUN:
        options->dry_run = true;
        break;
    case OPT_HELP:
        options->help = true;
        break;
    case OPT_HELP_CONFIG:
        options->help_config = true;
        break;
    case OPT_VERSION:
        options->version = true;
        break;
    }
    return DDP_OK;
}

static ddp_status_t take_word(void *ctx, size_t index, const char *word)
{
    if (index == 0 && strcmp(word, "train") == 0) {
        return DDP_OK;
    }
    if (ddp_command_find(word) != NULL) {
        return ddp_fail(DDP_ERR_CONFIG, "'%s' stands first and once; a file of that name is ./%s", word,
                        word);
    }
    return ddp_options_take_file(ctx, word);
}

ddp_status_t ddp_options_parse(int argc, char *const *argv, ddp_options_t *options)
{
    ddp_status_t          status = DDP_OK;
    const ddp_args_sink_t sink   = {.ctx = options, .option = take_option, .word = take_word};

    *options = (ddp_options_t){.command = "train", .log = DDP_LOG_INFO};
    DDP_TRY(ddp_args_parse(option_table, N_OPTIONS, "ddptrain", argc, argv, &sink));
    DDP_REQUIRE(options->resume == NULL || options->init == NULL, DDP_ERR_CONFIG,
                "--resume goes on with a run and --init begins one: give one of them");
    DDP_REQUIRE(options->n_allow == 0 || options->init != NULL, DDP_ERR_CONFIG,
                "--allow-missing is for --init only: a run that goes on needs all of its state");
out:
    return status;
}
