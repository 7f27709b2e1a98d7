/* A build without CUDA: what ddp/nccl.c and the other sources of the `nccl` path define in one with it. */
#include <stdio.h>

#include "base/error.h"
#include "ddp/nccl.h"
#include "ddp/reducer_path_internal.h"

static const char reason[] = "this ddptrain was built without CUDA (DDP_ENABLE_CUDA=ON)";

void ddp_nccl_probe(ddp_nccl_info_t *info)
{
    *info = (ddp_nccl_info_t){.is_there = false};
    (void)snprintf(info->reason, sizeof(info->reason), "built without CUDA");
}

ddp_status_t ddp_nccl_create(const ddp_nccl_params_t *params, ddp_nccl_t **nccl_p)
{
    (void)params;
    (void)nccl_p;
    return ddp_fail(DDP_ERR_UNSUPPORTED, "nccl: %s", reason);
}

void ddp_nccl_destroy(ddp_nccl_t **nccl_p)
{
    (void)nccl_p;
}

const ddp_reducer_path_t *ddp_reducer_nccl_path(void)
{
    return NULL;
}
