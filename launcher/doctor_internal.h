/** @file The collective parts of `ddptrain doctor`. */
#ifndef DDP_DOCTOR_INTERNAL_H_
#define DDP_DOCTOR_INTERNAL_H_

#include "launcher/doctor.h"

/** Open MPI heeds the choice of an interface only where messages go by its own TCP. */
#define DDP_DOCTOR_FIX_NETWORK                                                                               \
    "see that the machine is up, and name the interface to use: ddp.interfaces, or mpirun --mca pml ob1 "    \
    "--mca "                                                                                                 \
    "btl_tcp_if_include NAME"

/** What all ranks see. Collective. @param [out] all_p  [size], rank 0's to free; NULL on others */
ddp_status_t ddp_doctor_gather(ddp_run_t *run, const char *folder, ddp_facts_t **all_p) DDP_NODISCARD;

/** Latency and rate between machines. Collective. @param [in] all, findings  rank 0's; NULL on others */
ddp_status_t ddp_doctor_measure_links(ddp_run_t *run, const ddp_facts_t *all,
                                      ddp_findings_t *findings) DDP_NODISCARD;

/**
 * Can this configuration run here: as far as a run goes before it takes memory. Collective.
 * @param [in] folder  as ddp_folder_facts_t of rank 0; NULL on others
 * @param [in,out] findings  rank 0's; NULL on others. What does not fit is a finding, no error
 * @return an error only where ranks do not answer
 */
ddp_status_t ddp_doctor_check_run(ddp_run_t *run, const ddp_folder_facts_t *folder,
                                  ddp_findings_t *findings) DDP_NODISCARD;

#endif
