/** @file What the command lines of all commands have in common: tables of options, "--name value" or
 * "--name=value". */
#ifndef DDP_ARGS_H_
#define DDP_ARGS_H_

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/export.h"
#include "base/status.h"

typedef struct ddp_arg {
    const char *name;     /* "--out" */
    const char *argument; /* "DIR"; NULL: takes none */
    const char *help;     /* one line; several words */
} ddp_arg_t;

/** Where what is found goes. */
typedef struct ddp_args_sink {
    void *ctx;
    /** Option `index` of the table; `value` is "" where it takes none, else a pointer into argv. */
    ddp_status_t (*option)(void *ctx, size_t index, const char *value);
    /** An argument that is no option; `index` counts them from 0. */
    ddp_status_t (*word)(void *ctx, size_t index, const char *word);
} ddp_args_sink_t;

/**
 * Go through argv[1] .. argv[argc - 1] in order; "-h" is "--help", and "-" is a word.
 * @param [in] command  for the lines: where --help is found, e.g. "ddptrain" or "ddptrain convert"
 * @return DDP_ERR_CONFIG: an option that is not in the table (with the nearest one that is), without its
 * value, or with one too many; else what the sink returned
 */
ddp_status_t ddp_args_parse(const ddp_arg_t *table, size_t n, const char *command, int argc,
                            char *const *argv, const ddp_args_sink_t *sink) DDP_NODISCARD;

/** An option's value as a whole number. @return DDP_ERR_CONFIG: it is not one from `least` to `most` */
ddp_status_t ddp_args_count(const char *name, const char *text, uint64_t least, uint64_t most,
                            uint64_t *value_p) DDP_NODISCARD;

/** A line for each option. */
void ddp_args_help(const ddp_arg_t *table, size_t n, FILE *out);

#endif
