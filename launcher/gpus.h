/** @file Which GPU a rank, or a device of train.mode dp, has. */
#ifndef DDP_LAUNCHER_GPUS_H_
#define DDP_LAUNCHER_GPUS_H_

#include <stdio.h>

#include "base/status.h"
#include "kernels/cuda.h"
#include "kernels/device.h"

struct ddp_run;

typedef struct ddp_gpu {
    int                    ordinal; /* of those that its rank sees */
    int                    numa;    /* node of the machine's memory that is nearest to it; -1: not known */
    ddp_cuda_device_info_t info;
} ddp_gpu_t;

/**
 * ddp.device auto becomes cuda where every rank sees a GPU, and cpu where none does; ddp.backend auto, with
 * cuda, nccl where every rank can load it, else host, which rank 0 says. Collective.
 * @return DDP_ERR_CONFIG: some see one and others do not, or cuda was asked for and is not there; the line
 * says why
 */
ddp_status_t ddp_gpus_choose(struct ddp_run *run) DDP_NODISCARD;

/**
 * With ddp.device cuda: a rank takes the GPU of its number on the machine, modulo those that it sees; with
 * train.mode dp the ids of dp.devices are the GPUs'. Fills run->gpus. After ddp_gpus_choose() and the
 * resolution of the configuration. Collective.
 * @return DDP_ERR_CONFIG: two ranks would have the same one (ddp.share_gpu allows it), or there is none of
 * that number
 */
ddp_status_t ddp_gpus_take(struct ddp_run *run) DDP_NODISCARD;

/** Which of run->gpus is this rank's own, or of its first device. */
size_t ddp_gpus_own(const struct ddp_run *run);

/** What this rank's device, or its first one, is made of: all but its name and cap. */
void ddp_gpus_device_params(const struct ddp_run *run, ddp_device_params_t *params);

/** Ranks of this machine, this one included, that have this rank's GPU. */
int ddp_gpus_sharing(const struct ddp_run *run);

/** Bytes of the rank's GPU that it may take: what is free now, divided among those that share it. */
size_t ddp_gpus_free_bytes(const struct ddp_run *run);

/** "GPU-8f2a...", as nvidia-smi has it. */
#define DDP_GPU_UUID_TEXT 48
void ddp_gpu_uuid_text(const ddp_gpu_t *gpu, char text[DDP_GPU_UUID_TEXT]);

/** "cuda 13.0, driver 13.0, 2 devices", "cuda: no driver". Local, without MPI. */
void ddp_gpus_say_version(FILE *out);

#endif
