/* Which path a reducer takes: what was asked for, what the device is, and what all ranks have. */
#include <stdlib.h>

#include "base/error.h"
#include "base/log.h"
#include "ddp/nccl.h"
#include "ddp/reducer_path_internal.h"

static bool is_cuda(const ddp_reducer_params_t *params)
{
    return params->compute != NULL && ddp_device_kind(ddp_stream_device(params->compute)) == DDP_DEVICE_CUDA;
}

/* Every rank can load NCCL. */
static ddp_status_t ask_all(ddp_comm_t *comm, bool *is_there_p)
{
    ddp_status_t    status = DDP_OK;
    uint8_t        *all    = calloc((size_t)ddp_comm_size(comm), 1);
    uint8_t         mine   = 0;
    ddp_nccl_info_t info;

    ddp_nccl_probe(&info);
    mine = info.is_there;
    DDP_TRY(ddp_comm_agree(comm, all != NULL ? DDP_OK : ddp_fail(DDP_ERR_NO_MEMORY, "no memory for ranks")));
    DDP_TRY(ddp_comm_allgather(comm, &mine, 1, all));
    *is_there_p = true;
    for (int r = 0; r < ddp_comm_size(comm); r++) {
        *is_there_p = *is_there_p && all[r] != 0;
    }
    if (!*is_there_p && !mine) {
        ddp_log(DDP_LOG_WARN, "nccl: %s; gradients go through host memory (ddp.backend host)", info.reason);
    }
out:
    free(all);
    return status;
}

ddp_reduction_t ddp_reducer_reduction(const ddp_reducer_params_t *params)
{
    if (params->reduction != DDP_REDUCTION_AUTO) {
        return params->reduction;
    }
    return is_cuda(params) && params->backend != DDP_REDUCER_HOST ? DDP_REDUCTION_FAST : DDP_REDUCTION_EXACT;
}

static ddp_status_t check_options(const ddp_reducer_params_t *params)
{
    ddp_status_t status = DDP_OK;

    DDP_REQUIRE(params->wire == DDP_WIRE_FLOAT32 || params->reduction != DDP_REDUCTION_EXACT,
                DDP_ERR_INVALID_ARG,
                "ddp.wire bf16 rounds at every hop; use float32 with ddp.reduction exact");
    DDP_REQUIRE(params->exchange <= DDP_EXCHANGE_DIRECT || params->reduction != DDP_REDUCTION_EXACT,
                DDP_ERR_INVALID_ARG,
                "ddp.exchange %s adds in an order of its own; use direct with ddp.reduction exact",
                ddp_exchange_name(params->exchange));
    DDP_REQUIRE(params->max_ctas >= 0 && params->max_ctas <= 32, DDP_ERR_INVALID_ARG,
                "nccl: %d multiprocessors; 1 .. 32, or 0: NCCL's choice", params->max_ctas);
out:
    return status;
}

ddp_status_t ddp_reducer_choose(ddp_reducer_params_t *params, const ddp_reducer_path_t **path_p)
{
    ddp_status_t status = DDP_OK;
    bool         nccl   = params->backend == DDP_REDUCER_NCCL;

    DDP_REQUIRE(!nccl || is_cuda(params), DDP_ERR_INVALID_ARG,
                "ddp.backend nccl is for CUDA devices; use host on the cpu");
    DDP_REQUIRE(!nccl || ddp_reducer_nccl_path() != NULL, DDP_ERR_UNSUPPORTED,
                "ddp.backend nccl: this ddptrain was built without CUDA (DDP_ENABLE_CUDA=ON); use host");
    params->reduction = ddp_reducer_reduction(params);
    if (params->backend == DDP_REDUCER_AUTO && is_cuda(params) && ddp_reducer_nccl_path() != NULL) {
        DDP_TRY(ask_all(params->comm, &nccl));
    }
    DDP_TRY(check_options(params));
    *path_p = nccl              ? ddp_reducer_nccl_path()
              : is_cuda(params) ? &ddp_reducer_staged_path
                                : &ddp_reducer_host_path;
out:
    return status;
}
