/** @file The commands of the program, `ddptrain <command> ...`: one table. */
#ifndef DDP_COMMANDS_H_
#define DDP_COMMANDS_H_

#include <stddef.h>

#include "base/export.h"
#include "base/status.h"

typedef struct ddp_command {
    const char *name;
    const char *help; /* one line */
    /** Everything after main() has settled the streams. argv[0] is the command. NULL: train, which is main()
     * itself. @return exit status: 0 done, 1 failed, 2 wrong usage; a failure has said its line */
    int (*run)(int argc, char **argv);
} ddp_command_t;

extern const ddp_command_t ddp_commands[];
extern const size_t        ddp_n_commands;

/** @return NULL if `word` is none */
const ddp_command_t *ddp_command_find(const char *word);

/** The name of the command nearest to `word`, NULL if none is near. */
const char *ddp_command_suggest(const char *word);

#endif
