#include "launcher/options.h"

#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "launcher/suggest.h"

typedef enum option_id {
    OPT_SET,
    OPT_OUT,
    OPT_DRY_RUN,
    OPT_LOG,
    OPT_HELP,
    OPT_HELP_CONFIG,
    OPT_VERSION
} option_id_t;

static const struct option_info {
    const char *name;
    const char *argument; /* NULL: takes none */
    option_id_t id;
    const char *help;
} option_table[] = {
    {"--set", "section.key=value", OPT_SET, "set one key of the configuration; may be repeated"},
    {"--out", "DIR", OPT_OUT,
     "folder of the run; must not exist yet. Default: runs/<model>-<data>, or the next number"},
    {"--dry-run", NULL, OPT_DRY_RUN,
     "print configuration, model, buckets and memory; train nothing, write nothing"},
    {"--log", "LEVEL", OPT_LOG, "error, warn, info (default) or debug"},
    {"--help", NULL, OPT_HELP, "this text"},
    {"--help-config", NULL, OPT_HELP_CONFIG, "every key of run.yaml with default, range and meaning"},
    {"--version", NULL, OPT_VERSION, "version"},
};
#define N_OPTIONS (sizeof(option_table) / sizeof(option_table[0]))

static const char *const commands[] = {"train"};
#define N_COMMANDS (sizeof(commands) / sizeof(commands[0]))

void ddp_options_help(FILE *out)
{
    char left[64];

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
    for (size_t i = 0; i < N_OPTIONS; i++) {
        snprintf(left, sizeof(left), "%s%s%s", option_table[i].name,
                 option_table[i].argument != NULL ? " " : "",
                 option_table[i].argument != NULL ? option_table[i].argument : "");
        fprintf(out, "  %-24s %s\n", left, option_table[i].help);
    }
    fputs("\n"
          "Start one process for each core; without mpirun ddptrain is one process. The result is the same "
          "bits\n"
          "for any number of processes. A run's folder holds config.yaml (all keys as used) and "
          "metrics.jsonl (one\n"
          "JSON object a line); the last line on stdout is \"weights <hex>\": equal hex, equal bits.\n"
          "\n"
          "Exit status: 0 done, 1 failed, 2 wrong usage. An error is one line on stderr.\n"
          "More: README.md and docs/ beside the source.\n",
          out);
}

static ddp_status_t unknown_option(const char *name)
{
    const char *names[N_OPTIONS];
    const char *nearest;

    for (size_t i = 0; i < N_OPTIONS; i++) {
        names[i] = option_table[i].name;
    }
    nearest = ddp_suggest(name, names, N_OPTIONS);
    return ddp_fail(DDP_ERR_CONFIG, "unknown option '%.80s'; %s%s%s", name,
                    nearest != NULL ? "did you mean '" : "see ddptrain --help",
                    nearest != NULL ? nearest : "", nearest != NULL ? "'?" : "");
}

static ddp_status_t take_option(ddp_options_t *options, option_id_t id, const char *argument)
{
    switch (id) {
    case OPT_SET:
        if (options->n_sets == DDP_OPTIONS_MAX_SETS) {
            return ddp_fail(DDP_ERR_CONFIG, "more than %d --set: write a run.yaml", DDP_OPTIONS_MAX_SETS);
        }
        options->set[options->n_sets++] = argument;
        break;
    case OPT_OUT:
        if (argument[0] == '\0') {
            return ddp_fail(DDP_ERR_CONFIG, "--out needs the name of a folder");
        }
        options->out = argument;
        break;
    case OPT_LOG:
        if (!ddp_log_parse_level(argument, &options->log)) {
            return ddp_fail(DDP_ERR_CONFIG, "--log '%.80s': allowed are error, warn, info, debug", argument);
        }
        break;
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

/* argv[*i_p] begins with "-"; "--name value" and "--name=value" are the same. */
static ddp_status_t parse_option(int argc, char *const *argv, int *i_p, ddp_options_t *options)
{
    const char  *arg    = strcmp(argv[*i_p], "-h") == 0 ? "--help" : argv[*i_p];
    const size_t length = strcspn(arg, "=");

    for (size_t i = 0; i < N_OPTIONS; i++) {
        const struct option_info *info = &option_table[i];

        if (strlen(info->name) != length || strncmp(arg, info->name, length) != 0) {
            continue;
        }
        if (info->argument == NULL) {
            return arg[length] == '\0' ? take_option(options, info->id, "")
                                       : ddp_fail(DDP_ERR_CONFIG, "%s takes no value", info->name);
        }
        if (arg[length] == '=') {
            return take_option(options, info->id, arg + length + 1);
        }
        if (*i_p + 1 >= argc) {
            return ddp_fail(DDP_ERR_CONFIG, "%s needs a value: %s %s", info->name, info->name,
                            info->argument);
        }
        *i_p += 1;
        return take_option(options, info->id, argv[*i_p]);
    }
    return unknown_option(arg);
}

static ddp_status_t parse_word(const char *word, bool is_first, ddp_options_t *options)
{
    const char *nearest;

    if (is_first && strcmp(word, commands[0]) == 0) {
        return DDP_OK;
    }
    if (strcmp(word, commands[0]) == 0) {
        return ddp_fail(DDP_ERR_CONFIG, "'%s' stands first and once; a file of that name is ./%s", word,
                        word);
    }
    /* a file is what looks like one or is one; anything else was meant as a command */
    if (strpbrk(word, "./") == NULL && access(word, F_OK) != 0) {
        nearest = ddp_suggest(word, commands, N_COMMANDS);
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

ddp_status_t ddp_options_parse(int argc, char *const *argv, ddp_options_t *options)
{
    ddp_status_t status   = DDP_OK;
    bool         is_first = true;

    memset(options, 0, sizeof(*options));
    options->log = DDP_LOG_INFO;
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] == '-' && argv[i][1] != '\0') {
            DDP_TRY(parse_option(argc, argv, &i, options));
        } else {
            DDP_TRY(parse_word(argv[i], is_first, options));
            is_first = false;
        }
    }
out:
    return status;
}
