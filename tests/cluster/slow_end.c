/* LD_PRELOAD library: a rank is for DDP_SLOW_END seconds about to end, so that a fault meets it there. */
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

typedef int finalize_fn_t(void);

int MPI_Finalize(void);

int MPI_Finalize(void)
{
    const char    *seconds = getenv("DDP_SLOW_END");
    finalize_fn_t *real    = NULL;

    /* a pointer to an object is one to a function on POSIX */
    *(void **)(void *)&real = dlsym(RTLD_NEXT, "MPI_Finalize");
    if (seconds != NULL) {
        (void)sleep((unsigned)strtoul(seconds, NULL, 10));
    }
    return real();
}
