/* The process that parses HDF5 of others: what it may take of the machine. No file grows by what it writes,
 * it has so much memory and processor time, and ends with the process that wants to know. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fault.h"
#include "io/foreign_internal.h"

#define MEMORY_BYTES ((rlim_t)512 << 20)
#define OPEN_FILES   16

static void limit(enum __rlimit_resource what, rlim_t most)
{
    const struct rlimit both = {most, most};

    (void)setrlimit(what, &both); /* a limit that is lower already stays */
}

/* Bytes of address space that the process has now. */
static rlim_t address_space(void)
{
    FILE              *file  = fopen("/proc/self/statm", "re");
    unsigned long long pages = 0;

    if (file != NULL) {
        if (fscanf(file, "%20llu", &pages) != 1) {
            pages = 0;
        }
        (void)fclose(file);
    }
    return (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE);
}

static void confine(unsigned long cpu_s)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    (void)signal(SIGXFSZ, SIG_DFL);
    (void)signal(SIGPIPE, SIG_DFL);
    limit(RLIMIT_CORE, 0);
    limit(RLIMIT_FSIZE, 0);
    limit(RLIMIT_CPU, cpu_s);
    limit(RLIMIT_NOFILE, OPEN_FILES);
    limit(RLIMIT_AS, address_space() + MEMORY_BYTES);
}

/* What a hostile file may make of this process; for tests. */
static void misbehave(void)
{
    if (ddp_fault("foreign_dies", 0) != DDP_OK) {
        (void)signal(SIGSEGV, SIG_DFL); /* a sanitizer's handler would tell of it */
        (void)raise(SIGSEGV);
    }
    if (ddp_fault("foreign_hangs", 0) != DDP_OK) {
        (void)pause();
    }
    while (ddp_fault("foreign_spins", 0) != DDP_OK) {
    }
    if (ddp_fault("foreign_eats", 0) != DDP_OK) {
        const size_t piece = (size_t)16 << 20;
        void        *more  = NULL;
        size_t       taken = 0;

        do {
            more = malloc(piece);
            if (more != NULL) {
                memset(more, 1, piece);
                taken += piece;
            }
        } while (more != NULL && taken < 2 * MEMORY_BYTES);
        if (more != NULL) {
            return; /* nothing held it back: the test fails */
        }
        (void)raise(SIGKILL);
    }
    if (ddp_fault("foreign_writes", 0) != DDP_OK) {
        FILE *file = fopen("written", "w");

        if (file == NULL || fputs("x", file) < 0 || fclose(file) != 0) {
            (void)raise(SIGKILL);
        }
    }
}

bool ddp_weights_reader(int argc, char **argv, int *code_p)
{
    struct stat to;

    if (argc != DDP_FOREIGN_ARGS || strcmp(argv[1], DDP_FOREIGN_WORD) != 0 ||
        fstat(DDP_FOREIGN_FD, &to) != 0 || !S_ISFIFO(to.st_mode)) {
        return false;
    }
    confine(strtoul(argv[4], NULL, 10));
    misbehave();
    ddp_foreign_tell(argv[2], strtoull(argv[3], NULL, 10));
    *code_p = 0;
    return true;
}
