#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "io/weights.h"
#include "launcher/build.h"
#include "launcher/commands.h"
#include "launcher/gpus.h"
#include "launcher/start.h"

/* --help and its like need no MPI. */
static int say_text(const ddp_options_t *options, bool is_first)
{
    char build[DDP_BUILD_TEXT];

    if (!is_first) {
        return EXIT_SUCCESS;
    }
    if (options->help) {
        ddp_options_help(stdout);
    } else if (options->help_config) {
        ddp_config_help(stdout);
    } else {
        ddp_build_text(build);
        printf("ddptrain %s\n", build);
        ddp_gpus_say_version(stdout);
    }
    if (fflush(stdout) != 0) {
        ddp_log(DDP_LOG_ERROR, "stdout: cannot be written");
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}

/* A closed stream must not lend its number to the next file or socket: what is printed would end up in it.
 * For reading only, so that writing to it still fails. A pipe without a reader, or a limit of the size of
 * files, must not end a training without a word. Who starts this process may ignore SIGCHLD, and then how
 * its children end would be lost: a failed run would count as one that is done. */
static void settle_streams(void)
{
    int fd;

    do {
        fd = open("/dev/null", O_RDONLY);
    } while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0) {
        (void)close(fd);
    }
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGXFSZ, SIG_IGN);
    (void)signal(SIGCHLD, SIG_DFL);
}

int main(int argc, char **argv)
{
    static ddp_run_t     run; /* large */
    const ddp_command_t *command = argc > 1 ? ddp_command_find(argv[1]) : NULL;
    ddp_options_t        options;
    ddp_status_t         early;
    int                  code;

    if (ddp_weights_reader(argc, argv, &code)) {
        return code;
    }
    if (command != NULL && command->run != NULL) {
        settle_streams();
        return command->run(argc - 1, argv + 1);
    }
    early = ddp_options_parse(argc, argv, &options);
    if (early == DDP_OK && (options.help || options.help_config || options.version)) {
        return say_text(&options, ddp_launch_read().is_first);
    }
    settle_streams();
    return ddp_start(&run, &options, early, ddp_run_command, argc, argv);
}
