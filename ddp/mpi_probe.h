/** @file What this MPI is, and whether its messages arrive: asked before a communicator is made. */
#ifndef DDP_MPI_PROBE_H_
#define DDP_MPI_PROBE_H_

#include <mpi.h>
#include <stdint.h>

#include "base/export.h"
#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ddp_mpi_info {
    char    library[96];                  /* its own words, "Open MPI v4.1.4, ..."; one line */
    int32_t header_major, header_minor;   /* of the headers that ddptrain was compiled with; 0: another MPI */
    int32_t library_major, library_minor; /* of the library that is loaded; 0: another MPI */
    int32_t thread_level;                 /* MPI_THREAD_FUNNELED and so on */
    int32_t yields;                       /* mpi_yield_when_idle; -1: not known */
    char    path[16];       /* how messages go: "ob1" (by BTLs), "cm" (libfabric), "ucx"; "": not known */
    char    interfaces[96]; /* btl_tcp_if_include; "": not set */
} ddp_mpi_info_t;

/** After MPI_Init. Local; never fails: what is not known stays empty. */
DDP_API void ddp_mpi_probe(ddp_mpi_info_t *info);

/**
 * A message from every rank to rank 0, and an answer back. What ddp_comm_create() asks of MPI has no
 * deadline; this has, so that machines that do not reach each other (the commonest fault of a new cluster)
 * are named. `parent` must be idle, and is not fit for use after an error. Collective. Blocking: `limit_ms`
 * on rank 0, a second more on others.
 * @return DDP_ERR_TIMEOUT: on rank 0 with the ranks that were not heard, on another that no answer came to
 * its host. DDP_ERR_REMOTE: rank 0 did not hear some other rank
 */
DDP_API ddp_status_t ddp_mpi_roll_call(MPI_Comm parent, int limit_ms) DDP_NODISCARD;

#ifdef __cplusplus
}
#endif

#endif
