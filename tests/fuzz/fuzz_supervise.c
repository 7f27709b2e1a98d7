/* What `ddptrain supervise` reads: the output of a run, a hostfile, a list of hosts, a command line. */
#include <string.h>

#include "base/error.h"
#include "launcher/supervise.h"
#include "tests/fuzz/fuzz_file.h"

#define MOST_WORDS 64

/* Read is as good as written: the copy without dropped hosts has only the others in it. */
static void take_hosts(const char *text, const char *path)
{
    ddp_supervise_hosts_t hosts = {0};
    ddp_supervise_hosts_t left  = {0};
    char                 *list  = NULL;

    if (ddp_supervise_hosts_parse(text, &hosts) == DDP_OK) {
        hosts.host[0].is_dropped = true;
        list                     = ddp_supervise_hosts_list(&hosts, text);
        if (list == NULL || strlen(list) > strlen(text)) {
            abort();
        }
        if (hosts.n > 1 && (ddp_supervise_hosts_parse(list, &left) != DDP_OK || left.n != hosts.n - 1 ||
                            ddp_supervise_hosts_ranks(&hosts, 7, 3) > 7)) {
            abort();
        }
        ddp_supervise_hosts_free(&left);
        free(list);
    }
    ddp_supervise_hosts_free(&hosts);
    ddp_ignore(ddp_supervise_hosts_read(path, &hosts), "refused or not, no harm may come of it");
    ddp_supervise_hosts_free(&hosts);
}

static void take_words(char *text)
{
    static char                  mpirun[] = "mpirun";
    char                        *argv[MOST_WORDS + 1];
    int                          argc   = 0;
    char                       **words  = NULL;
    const ddp_supervise_change_t change = {.hostfile = "h", .hosts = "a", .out = "o", .ranks = 1};
    ddp_supervise_line_t         line;

    argv[argc++] = mpirun;
    for (char *word = strtok(text, " \n"); word != NULL && argc < MOST_WORDS; word = strtok(NULL, " \n")) {
        argv[argc++] = word;
    }
    argv[argc] = NULL;
    if (ddp_supervise_line_read(argc, argv, &line) == DDP_OK) {
        if (ddp_supervise_words(&line, &change, &words) != DDP_OK) {
            abort();
        }
        ddp_supervise_words_free(words);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ddp_supervise_clue_t clue = {0};
    char                 path[64];
    const int            fd   = fuzz_file(data, size, path);
    char                *text = calloc(size + 1, 1);
    char                *copy = calloc(size + 1, 1);

    if (text == NULL || copy == NULL) {
        abort();
    }
    memcpy(text, data, size);
    memcpy(copy, data, size);
    take_hosts(text, path);
    for (char *line = strtok(copy, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        ddp_supervise_clue_read(&clue, line);
        (void)ddp_supervise_clue_is_same(clue.line, line);
    }
    take_words(text);
    free(text);
    free(copy);
    (void)close(fd);
    return 0;
}
