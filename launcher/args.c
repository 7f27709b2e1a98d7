#include "launcher/args.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "launcher/suggest.h"

#define MAX_ARGS 64

void ddp_args_help(const ddp_arg_t *table, size_t n, FILE *out)
{
    char left[64];

    for (size_t i = 0; i < n; i++) {
        snprintf(left, sizeof(left), "%s%s%s", table[i].name, table[i].argument != NULL ? " " : "",
                 table[i].argument != NULL ? table[i].argument : "");
        fprintf(out, "  %-24s %s\n", left, table[i].help);
    }
}

static ddp_status_t unknown_option(const ddp_arg_t *table, size_t n, const char *command, const char *name)
{
    const char *names[MAX_ARGS];
    const char *nearest;

    n = n < MAX_ARGS ? n : MAX_ARGS;
    for (size_t i = 0; i < n; i++) {
        names[i] = table[i].name;
    }
    nearest = ddp_suggest(name, names, n);
    if (nearest != NULL) {
        return ddp_fail(DDP_ERR_CONFIG, "unknown option '%.80s'; did you mean '%s'?", name, nearest);
    }
    return ddp_fail(DDP_ERR_CONFIG, "unknown option '%.80s'; see %s --help", name, command);
}

/* argv[*i_p] begins with "-". */
static ddp_status_t parse_option(const ddp_arg_t *table, size_t n, const char *command, int argc,
                                 char *const *argv, int *i_p, const ddp_args_sink_t *sink)
{
    const char  *arg    = strcmp(argv[*i_p], "-h") == 0 ? "--help" : argv[*i_p];
    const size_t length = strcspn(arg, "=");

    for (size_t i = 0; i < n; i++) {
        if (strlen(table[i].name) != length || strncmp(arg, table[i].name, length) != 0) {
            continue;
        }
        if (table[i].argument == NULL) {
            return arg[length] == '\0' ? sink->option(sink->ctx, i, "")
                                       : ddp_fail(DDP_ERR_CONFIG, "%s takes no value", table[i].name);
        }
        if (arg[length] == '=') {
            return sink->option(sink->ctx, i, arg + length + 1);
        }
        if (*i_p + 1 >= argc) {
            return ddp_fail(DDP_ERR_CONFIG, "%s needs a value: %s %s", table[i].name, table[i].name,
                            table[i].argument);
        }
        *i_p += 1;
        return sink->option(sink->ctx, i, argv[*i_p]);
    }
    return unknown_option(table, n, command, arg);
}

ddp_status_t ddp_args_parse(const ddp_arg_t *table, size_t n, const char *command, int argc,
                            char *const *argv, const ddp_args_sink_t *sink)
{
    ddp_status_t status = DDP_OK;
    size_t       words  = 0;

    for (int i = 1; i < argc; i++) {
        if (argv[i][0] == '-' && argv[i][1] != '\0') {
            DDP_TRY(parse_option(table, n, command, argc, argv, &i, sink));
        } else {
            DDP_TRY(sink->word(sink->ctx, words, argv[i]));
            words++;
        }
    }
out:
    return status;
}

ddp_status_t ddp_args_count(const char *name, const char *text, uint64_t least, uint64_t most,
                            uint64_t *value_p)
{
    ddp_status_t   status = DDP_OK;
    char          *end    = NULL;
    const uint64_t value  = strtoull(text, &end, 10);

    DDP_REQUIRE(text[0] >= '0' && text[0] <= '9' && *end == '\0' && value >= least && value <= most,
                DDP_ERR_CONFIG, "%s '%.80s': a whole number from %" PRIu64 " to %" PRIu64, name, text, least,
                most);
    *value_p = value;
out:
    return status;
}
