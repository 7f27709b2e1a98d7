/** @file The command line. */
#ifndef DDP_OPTIONS_H_
#define DDP_OPTIONS_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/export.h"
#include "base/log.h"
#include "base/status.h"
#include "launcher/config.h"

#define DDP_OPTIONS_MAX_SETS  64
#define DDP_OPTIONS_MAX_ALLOW 16

/** Pointers are into argv, borrowed. */
typedef struct ddp_options {
    const char     *command; /* what is run, to compare between ranks: "train" */
    bool            help, help_config, version, dry_run;
    const char     *base;         /* a checkpoint's configuration, instead of a file; or NULL */
    const char     *file;         /* run.yaml, or NULL */
    const char     *out;          /* --out, or NULL */
    const char     *resume;       /* --resume: "auto" or a file, or NULL */
    const char     *init;         /* --init: a file, or NULL */
    double          time_limit_s; /* --time-limit; 0: none */
    const char     *mode, *devices, *device_memory; /* short for --set; or NULL */
    size_t          n_allow;
    const char     *allow[DDP_OPTIONS_MAX_ALLOW]; /* --allow-missing: patterns of names */
    ddp_log_level_t log;
    size_t          n_sets;
    const char     *set[DDP_OPTIONS_MAX_SETS]; /* "section.key=value", in order */
} ddp_options_t;

/** @return DDP_ERR_CONFIG with the option and the nearest one that exists; `*options` is then half filled */
ddp_status_t ddp_options_parse(int argc, char *const *argv, ddp_options_t *options) DDP_NODISCARD;

/** --mode, --devices, --device-memory into the configuration, after all else. @return DDP_ERR_CONFIG: also
 * where devices are given, but not train.mode dp */
ddp_status_t ddp_options_apply(const ddp_options_t *options, ddp_config_t *config) DDP_NODISCARD;

/** What commands of their own take over: --set, --log, and a word that has to be a run.yaml. */
ddp_status_t ddp_options_take_set(ddp_options_t *options, const char *assignment) DDP_NODISCARD;
ddp_status_t ddp_options_take_log(ddp_options_t *options, const char *level) DDP_NODISCARD;
ddp_status_t ddp_options_take_file(ddp_options_t *options, const char *word) DDP_NODISCARD;

/** --help. */
void ddp_options_help(FILE *out);

#endif
