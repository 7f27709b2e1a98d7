/** @file Processes of this host, as Linux shows them in /proc. */
#ifndef DDP_PROCESSES_H_
#define DDP_PROCESSES_H_

#include <stddef.h>
#include <sys/types.h>

/** As in proc(5). */
typedef struct ddp_process {
    pid_t pid, parent, session;
    char  state;    /* 'T' stopped, 't' stopped by a debugger, 'Z' ended and not waited for */
    char  name[64]; /* of the program, cut to 15 characters by the kernel */
} ddp_process_t;

typedef void ddp_process_fn_t(void *ctx, const ddp_process_t *process);

/** Call `fn` for each process there is; one that starts or ends meanwhile may be missing. Any thread. */
void ddp_processes_each(ddp_process_fn_t *fn, void *ctx);

/** Read /proc/PID/`file` as far as it fits, with a zero behind it. Any thread.
 * @return bytes; 0: it is not readable */
size_t ddp_process_read(pid_t pid, const char *file, char *text, size_t size);

#endif
