/** @file Threads of the libraries: signals are for the program's own. */
#ifndef DDP_THREAD_H_
#define DDP_THREAD_H_

#include <pthread.h>

#include "base/export.h"
#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * pthread_create() of a thread that takes no signals: SIGTERM and its kin are for the thread that trains, and
 * here would break off calls that write. The caller's own mask is as before.
 *
 * Collective: no. Blocking: no. Thread: any.
 * @param [out] thread_p  to be joined by the caller; written on success
 * @param [in]  arg       borrowed by `run`
 * @return DDP_ERR_SYSTEM: there is no thread
 */
DDP_API ddp_status_t ddp_thread_start(void *(*run)(void *), void *arg, pthread_t *thread_p) DDP_NODISCARD;

#ifdef __cplusplus
}
#endif

#endif
