/**
 * @file `ddptrain doctor`: is what a run will find here fit for it? Each rank reads what it sees (facts),
 * rank 0 gets them all, and pure functions judge them. Every measurement has a deadline.
 */
#ifndef DDP_DOCTOR_H_
#define DDP_DOCTOR_H_

#include <stdint.h>

#include "ddp/link.h"
#include "ddp/mpi_probe.h"
#include "launcher/build.h"
#include "launcher/cores.h"
#include "launcher/findings.h"
#include "launcher/launch.h"
#include "launcher/run.h"

/** See ddp_command_t. */
int ddp_doctor_command(int argc, char **argv);

#define DDP_FACTS_TEXT 96
#define DDP_FACTS_NICS 8
#define DDP_FACTS_GPUS 8

/** An interface that is up and no loopback; addresses as text. */
typedef struct ddp_nic_facts {
    char    name[32];
    char    address[48]; /* the first IPv4 one, else the first other one */
    int32_t is_ip4;
    int32_t mbit; /* a second; -1: not known */
    int32_t mtu, numa;
    int32_t is_infiniband;
} ddp_nic_facts_t;

typedef struct ddp_folder_facts {
    char    type[32]; /* "ext4" */
    char    error[256];
    int32_t is_memory;    /* gone with the machine's next start */
    int32_t is_container; /* gone with the container */
    int64_t free_bytes, free_files;
    double  sync_ms; /* to write 1 MiB, have it on the disk, and name it */
    double  write_mb_s;
} ddp_folder_facts_t;

/** What one rank sees. It goes to rank 0 as it is, so there is no pointer in it. */
typedef struct ddp_facts {
    int32_t  rank, machine, pid;
    char     host[DDP_FACTS_TEXT];
    uint64_t boot; /* equal on two hosts: both are on one machine, as containers are */

    char program[DDP_BUILD_TEXT], build[DDP_FACTS_TEXT], hdf5[DDP_FACTS_TEXT], kernel[DDP_FACTS_TEXT];
    ddp_mpi_info_t mpi;

    int32_t  isa, has_bf16;
    uint64_t cores[DDP_CORES_WORDS]; /* that it may run on */
    double   quota;                  /* cores' worth of time that its control group gets; 0: no limit */
    double   load;                   /* processes that want to run, mean of a minute */

    uint64_t memory_bytes, available_bytes; /* UINT64_MAX: not known */
    uint64_t shm_bytes;                     /* free in /dev/shm */
    int32_t  has_memfd;
    char     huge_pages[32]; /* "madvise" */

    uint64_t nofile, nofile_hard, memlock, core, address_space; /* UINT64_MAX: no limit */

    int32_t         n_nics;
    ddp_nic_facts_t nic[DDP_FACTS_NICS];
    char            mpi_interfaces[DDP_FACTS_TEXT]; /* what Open MPI was told to use; "" */

    ddp_cuda_info_t        cuda;
    int32_t                n_gpus;
    int32_t                has_driver_file; /* the kernel has NVIDIA's driver */
    int32_t                gpu_numa[DDP_FACTS_GPUS];
    ddp_cuda_device_info_t gpu[DDP_FACTS_GPUS];
    int32_t                has_nccl, has_cudnn;
    int32_t                nccl_version;
    char                   no_nccl[DDP_CUDA_TEXT_SIZE];
    char                   cudnn[DDP_CUDA_TEXT_SIZE]; /* version, or why it is not used */

    ddp_folder_facts_t folder;    /* of one rank of each machine */
    int32_t            sees_file; /* the one that rank 0 wrote there */
    double             clock_s;   /* its clock, less rank 0's */
    double             clock_error_s;
} ddp_facts_t;

/** What Slurm and mpirun say in the environment, and Slurm's configuration; read on one process before
 * MPI_Init. */
typedef struct ddp_job_facts {
    ddp_launch_t launch;
    char         pmix[DDP_FACTS_TEXT]; /* version; "" */
    char         job[32];              /* Slurm's number of the job; "": none */
    char         slurm[32];            /* version; "" */
    char         fence[32];            /* PMIxCollFence; "": not known */
    long         nodes;                /* of the job; -1 */
    long         tree_width;           /* TreeWidth; -1 */
    bool         has_tasks_per_node;
    bool         is_unbound;                        /* srun was told not to bind */
    long         cpus_per_task, srun_cpus_per_task; /* -1: not said */
} ddp_job_facts_t;

/** Of this process, but for `folder` and what others see. Local, without MPI but for what `mpi` says. */
void ddp_facts_read(ddp_facts_t *facts);
/** Interfaces that are up and no loopback, and InfiniBand devices; the first of them. Local. @return how many
 */
int32_t ddp_nics_read(ddp_nic_facts_t nic[DDP_FACTS_NICS]);
/** @param [in] scontrol  the text of `scontrol show config`; "": not there */
void ddp_job_facts_read(ddp_job_facts_t *job, const char *scontrol);
/** Run scontrol, at most some seconds. Before MPI_Init, as it starts a process. @return "" or its text, owned
 */
char *ddp_job_scontrol(void);

/**
 * Try the folder where a run would save: the nearest that is there of `path` and the folders above it.
 * Writes, syncs and renames a file, which stays until ddp_folder_forget(). On a thread, so that a disk that
 * does not answer is a line after `limit_ms` and no hang.
 * @param [out] token  name of the file, "" where there is none
 * @return false: the thread still waits; the process can only be left without it
 */
#define DDP_FOLDER_TOKEN 64
bool ddp_folder_try(const char *path, int limit_ms, ddp_folder_facts_t *facts, char token[DDP_FOLDER_TOKEN]);
/** Is this file there too? Waits some seconds for a file system that is slow to tell. As ddp_folder_try(). */
bool ddp_folder_sees(const char *path, const char *token, int limit_ms, bool *sees_p);
void ddp_folder_forget(const char *path, const char *token);

/**
 * Judge. @param [in] facts  [n], by rank. Local, pure.
 */
void ddp_judge_program(const ddp_facts_t *facts, int n, ddp_findings_t *findings);
void ddp_judge_ranks(const ddp_facts_t *facts, int n, const ddp_job_facts_t *job, ddp_findings_t *findings);
void ddp_judge_cpu(const ddp_facts_t *facts, int n, ddp_findings_t *findings);
void ddp_judge_memory(const ddp_facts_t *facts, int n, ddp_findings_t *findings);
void ddp_judge_limits(const ddp_facts_t *facts, int n, ddp_findings_t *findings);
void ddp_judge_network(const ddp_facts_t *facts, int n, ddp_findings_t *findings);
/** @param [in] pairs  [machines * machines] as ddp_link_measure_pairs() fills it; the slowest come first */
void ddp_judge_links(const ddp_facts_t *facts, int n, const ddp_link_t *pairs, ddp_findings_t *findings);
void ddp_judge_folder(const ddp_facts_t *facts, int n, const char *path, ddp_findings_t *findings);
void ddp_judge_slurm(const ddp_facts_t *facts, int n, const ddp_job_facts_t *job, ddp_findings_t *findings);
void ddp_judge_gpus(const ddp_facts_t *facts, int n, ddp_findings_t *findings);

/** "rank 3 on node07" */
const char *ddp_facts_name(const ddp_facts_t *facts, char text[DDP_FACTS_TEXT + 32]);
/** Ranks on the machine of rank `r`. */
int ddp_facts_local(const ddp_facts_t *facts, int n, int r);
/** Is it the first rank of its machine? */
bool ddp_facts_leads(const ddp_facts_t *facts, int r);

#endif
