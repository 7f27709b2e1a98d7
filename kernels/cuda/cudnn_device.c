/* cuDNN as a part of a device. */
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "kernels/cuda/cudnn_internal.h"
#include "kernels/cuda/device_internal.h"

#define PIECE_ALIGNMENT ((size_t)256)
/* 64 sequences of GPT-2 124M need 201 MB. */
#define TURN_BYTES ((size_t)224 << 20)

static ddp_status_t open_library(const ddp_device_t *device, ddp_cudnn_t *cudnn)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(ddp_cudnn_table_open(&cudnn->table));
    DDP_TRY(ddp_cuda_enter(device));
    DDP_TRY_CUDA(device,
                 cudaDeviceGetAttribute(&cudnn->major, cudaDevAttrComputeCapabilityMajor, device->ordinal));
    DDP_TRY(ddp_cudnn_target_open(&cudnn->table, &cudnn->target));
    DDP_TRY(ddp_cudnn_cache_create(&cudnn->target, &cudnn->cache));
out:
    return status;
}

static void destroy(void *part)
{
    ddp_cudnn_t *cudnn = part;

    ddp_cudnn_cache_destroy(&cudnn->cache);
    ddp_cudnn_target_close(&cudnn->target);
    free(cudnn);
}

ddp_status_t ddp_cudnn_of(const ddp_device_t *device, ddp_cudnn_t **cudnn_p)
{
    ddp_status_t     status = DDP_OK;
    ddp_status_t     opened = DDP_OK;
    ddp_cuda_part_t *part   = &ddp_cuda_of(device)->parts[DDP_CUDA_PART_CUDNN];
    ddp_cudnn_t     *cudnn  = part->part;

    if (cudnn == NULL) {
        cudnn = calloc(1, sizeof(*cudnn));
        DDP_REQUIRE(cudnn != NULL, DDP_ERR_NO_MEMORY, "no memory for cuDNN");
        *part             = (ddp_cuda_part_t){cudnn, destroy};
        cudnn->is_exact   = device->is_exact;
        cudnn->turn_bytes = TURN_BYTES;
        opened            = open_library(device, cudnn);
        if (opened != DDP_OK) {
            (void)snprintf(cudnn->reason, sizeof(cudnn->reason), "%s", ddp_error_line());
        }
        if (opened != DDP_OK && opened != DDP_ERR_STATE && !device->dry) {
            ddp_log(DDP_LOG_WARN,
                    "%s: convolutions and attention are computed by plain kernels, which are slow: %s",
                    device->name, cudnn->reason);
        }
    }
    DDP_REQUIRE(cudnn->cache != NULL, DDP_ERR_UNSUPPORTED, "%s", cudnn->reason);
    *cudnn_p = cudnn;
out:
    return status;
}

const char *ddp_cudnn_absent(const ddp_device_t *device)
{
    ddp_cudnn_t       *cudnn  = NULL;
    const ddp_status_t status = ddp_cudnn_of(device, &cudnn);

    if (status == DDP_OK) {
        return NULL;
    }
    cudnn = ddp_cuda_of(device)->parts[DDP_CUDA_PART_CUDNN].part;
    return cudnn != NULL ? cudnn->reason : ddp_status_text(status);
}

cudnnDataType_t ddp_cudnn_type(ddp_precision_t precision)
{
    switch (precision) {
    case DDP_PRECISION_BF16:
        return CUDNN_DATA_BFLOAT16;
    case DDP_PRECISION_FP16:
        return CUDNN_DATA_HALF;
    case DDP_PRECISION_FLOAT32:
    case DDP_PRECISION_TF32:
        break;
    }
    return CUDNN_DATA_FLOAT;
}

void *ddp_cudnn_piece(ddp_cudnn_pieces_t *pieces, size_t bytes)
{
    char *at = pieces->memory;

    at = at == NULL || bytes == 0 ? NULL : at + pieces->bytes;
    pieces->bytes += (bytes + PIECE_ALIGNMENT - 1) / PIECE_ALIGNMENT * PIECE_ALIGNMENT;
    return at;
}
