/* What of a command line is understood: who starts the ranks, how many and where, and ddptrain's own options.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "launcher/commands.h"
#include "launcher/options.h"
#include "launcher/supervise.h"

#define NUMBER 24

static const char *last_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash != NULL ? slash + 1 : path;
}

static bool is_one_of(const char *word, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(word, names[i]) == 0) {
            return true;
        }
    }
    return false;
}
#define IS_ONE_OF(word, names) is_one_of(word, names, sizeof(names) / sizeof((names)[0]))

/* "build/ddptrain", "ddptrain_standin"; no "ddptrain-job.sh", and no folder of that name */
static bool is_program(const char *word)
{
    const char *name = last_name(word);
    struct stat st;

    return strncmp(name, "ddptrain", 8) == 0 && strpbrk(name, "-.=") == NULL &&
           !(stat(word, &st) == 0 && S_ISDIR(st.st_mode));
}

static ddp_supervise_kind_t kind_of(const char *word)
{
    static const char *const mpirun[] = {"mpirun", "mpiexec", "orterun", "prterun"};

    if (IS_ONE_OF(last_name(word), mpirun)) {
        return DDP_SUPERVISE_MPIRUN;
    }
    if (strcmp(last_name(word), "srun") == 0) {
        return DDP_SUPERVISE_SRUN;
    }
    return is_program(word) ? DDP_SUPERVISE_PROGRAM : DDP_SUPERVISE_OTHER;
}

/* How many words follow an option of Open MPI's mpirun; -1: not known. Options have one dash or two. */
static int arguments(const char *option)
{
    static const char *const none[] = {"oversubscribe",
                                       "nooversubscribe",
                                       "allow-run-as-root",
                                       "tag-output",
                                       "timestamp-output",
                                       "quiet",
                                       "q",
                                       "verbose",
                                       "v",
                                       "report-bindings",
                                       "display-map",
                                       "display-devel-map",
                                       "display-allocation",
                                       "bynode",
                                       "byslot",
                                       "nolocal",
                                       "pernode",
                                       "use-hwthread-cpus",
                                       "debug-daemons",
                                       "leave-session-attached",
                                       "do-not-launch",
                                       "no-local",
                                       "enable-recovery",
                                       "bycore",
                                       "bind-to-core",
                                       "bind-to-none",
                                       "bind-to-socket",
                                       "merge-stderr-to-stdout",
                                       "xml",
                                       "novm"};
    static const char *const one[]  = {"np",
                                       "n",
                                       "c",
                                       "H",
                                       "host",
                                       "hostfile",
                                       "machinefile",
                                       "default-hostfile",
                                       "x",
                                       "map-by",
                                       "rank-by",
                                       "bind-to",
                                       "wdir",
                                       "wd",
                                       "prefix",
                                       "tune",
                                       "am",
                                       "output-filename",
                                       "timeout",
                                       "N",
                                       "npernode",
                                       "npersocket",
                                       "rankfile",
                                       "rf",
                                       "stdin",
                                       "path",
                                       "cpu-set",
                                       "cpu-list",
                                       "preload-files",
                                       "personality",
                                       "ppr"};
    static const char *const two[]  = {"mca", "gmca"};
    const char              *name   = option + strspn(option, "-");

    if (IS_ONE_OF(name, none)) {
        return 0;
    }
    if (IS_ONE_OF(name, one)) {
        return 1;
    }
    return IS_ONE_OF(name, two) ? 2 : -1;
}

static int *place_of(ddp_supervise_line_t *line, const char *option)
{
    static const char *const ranks[]    = {"np", "n", "c"};
    static const char *const files[]    = {"hostfile", "machinefile", "default-hostfile"};
    static const char *const hosts[]    = {"host", "H"};
    static const char *const per_host[] = {"npernode", "N"};
    const char              *name       = option + strspn(option, "-");

    return IS_ONE_OF(name, ranks)      ? &line->ranks
           : IS_ONE_OF(name, files)    ? &line->hostfile
           : IS_ONE_OF(name, hosts)    ? &line->hosts
           : IS_ONE_OF(name, per_host) ? &line->per_host
                                       : NULL;
}

static bool is_count(const char *word)
{
    return word[0] >= '1' && word[0] <= '9' && word[strspn(word, "0123456789")] == '\0' && strlen(word) < 10;
}

/* @return the first word that is no option of mpirun */
static int read_mpirun(ddp_supervise_line_t *line)
{
    int i = 1;

    while (i < line->argc && line->argv[i][0] == '-') {
        const int n     = arguments(line->argv[i]);
        int      *place = place_of(line, line->argv[i]);

        if (n < 0 || i + n >= line->argc || (place != NULL && *place >= 0)) {
            line->unknown = line->argv[i];
            return i;
        }
        if (place != NULL) {
            *place = i + 1;
        }
        if ((place == &line->ranks || place == &line->per_host) && !is_count(line->argv[i + 1])) {
            line->unknown = line->argv[i + 1];
        }
        i += 1 + n;
    }
    for (int word = i; word < line->argc; word++) {
        if (strcmp(line->argv[word], ":") == 0) { /* several programs */
            line->unknown = line->argv[word];
        }
    }
    return i;
}

/* ddptrain's own options, by its own parser. */
static ddp_status_t read_program(ddp_supervise_line_t *line)
{
    ddp_status_t         status  = DDP_OK;
    const ddp_command_t *command = NULL;
    ddp_options_t        options;

    if (line->program + 1 < line->argc) {
        command = ddp_command_find(line->argv[line->program + 1]);
    }
    DDP_REQUIRE(command == NULL || command->run == NULL, DDP_ERR_CONFIG,
                "supervise is for training, and ddptrain %s does not train", command->name);
    DDP_TRY(ddp_options_parse(line->argc - line->program, line->argv + line->program, &options));
    line->out        = options.out;
    line->resume     = options.resume;
    line->is_limited = options.time_limit_s > 0;
out:
    return status;
}

ddp_status_t ddp_supervise_line_read(int argc, char *const *argv, ddp_supervise_line_t *line)
{
    ddp_status_t status = DDP_OK;
    int          i      = 0;

    *line = (ddp_supervise_line_t){.argc     = argc,
                                   .argv     = argv,
                                   .kind     = kind_of(argv[0]),
                                   .program  = -1,
                                   .ranks    = -1,
                                   .per_host = -1,
                                   .hostfile = -1,
                                   .hosts    = -1};
    if (line->kind == DDP_SUPERVISE_MPIRUN) {
        i = read_mpirun(line);
    }
    while (i < argc && !is_program(argv[i])) {
        i++;
    }
    if (i < argc && (line->unknown == NULL || strcmp(line->unknown, ":") != 0)) {
        line->program = i;
        DDP_TRY(read_program(line));
    }
out:
    return status;
}

typedef struct words {
    char **word; /* owned */
    int    n;
    bool   is_ok;
} words_t;

static void add(words_t *words, const char *word)
{
    words->word[words->n] = strdup(word);
    words->is_ok          = words->is_ok && words->word[words->n] != NULL;
    words->n += words->word[words->n] != NULL ? 1 : 0;
}

void ddp_supervise_words_free(char **argv)
{
    for (size_t i = 0; argv != NULL && argv[i] != NULL; i++) {
        free(argv[i]);
    }
    free(argv);
}

ddp_status_t ddp_supervise_words(const ddp_supervise_line_t *line, const ddp_supervise_change_t *change,
                                 char ***argv_p)
{
    ddp_status_t status = DDP_OK;
    words_t      words  = {.word = calloc((size_t)line->argc + 8, sizeof(char *)), .is_ok = true};
    char         number[NUMBER];

    DDP_REQUIRE(words.word != NULL, DDP_ERR_NO_MEMORY, "no memory for a command line");
    (void)snprintf(number, sizeof(number), "%llu", (unsigned long long)change->ranks);
    for (int i = 0; i < line->argc; i++) {
        const bool is_file = i == line->hostfile && change->hostfile != NULL;
        const bool is_list = i == line->hosts && change->hosts != NULL;

        add(&words, is_file                                 ? change->hostfile
                    : is_list                               ? change->hosts
                    : i == line->ranks && change->ranks > 0 ? number
                                                            : line->argv[i]);
        if (i == 0 && line->kind == DDP_SUPERVISE_MPIRUN) {
            add(&words, "-x");
            add(&words, "DDPTRAIN_RESTART_COUNT");
        }
        if (i == 0 && line->kind == DDP_SUPERVISE_MPIRUN && line->hostfile < 0 && change->hostfile != NULL) {
            add(&words, "--hostfile");
            add(&words, change->hostfile);
        }
    }
    if (change->out != NULL) {
        add(&words, "--out");
        add(&words, change->out);
    }
    DDP_REQUIRE(words.is_ok, DDP_ERR_NO_MEMORY, "no memory for a command line");
    *argv_p    = words.word;
    words.word = NULL;
out:
    ddp_supervise_words_free(words.word);
    return status;
}
