#include "base/thread.h"

#include <signal.h>

#include "base/call.h"
#include "base/error.h"

ddp_status_t ddp_thread_start(void *(*run)(void *), void *arg, pthread_t *thread_p)
{
    ddp_status_t status = DDP_OK;
    pthread_t    thread;
    sigset_t     all;
    sigset_t     before;

    (void)sigfillset(&all);
    DDP_TRY_PTHREAD(pthread_sigmask(SIG_SETMASK, &all, &before));
    status = ddp_from_pthread(pthread_create(&thread, NULL, run, arg), "pthread_create()");
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL); /* cannot fail where the first did not */
    if (status == DDP_OK) {
        *thread_p = thread;
    }
out:
    return status;
}
