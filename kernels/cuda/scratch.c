#include "kernels/cuda/scratch.h"

#include "kernels/cuda/device_internal.h"
#include "kernels/cuda/gemm_plan.h"
#include "kernels/cuda/head.h"
#include "kernels/cuda/ops.h"

_Static_assert(sizeof(((ddp_stream_t *)NULL)->scratch) == DDP_CUDA_SCRATCH_USES * sizeof(ddp_device_block_t),
               "a stream has scratch for every use");

ddp_status_t ddp_cuda_scratch(ddp_stream_t *stream, ddp_cuda_scratch_use_t use, size_t bytes, void **memory_p)
{
    static const char *const label[DDP_CUDA_SCRATCH_USES] = {"scratch of kernels", "scratch of products"};
    ddp_status_t             status                       = DDP_OK;
    const ddp_allocator_t   *allocator                    = ddp_device_allocator(stream->device);
    ddp_device_block_t      *scratch                      = &stream->scratch[use];

    if (scratch->bytes < bytes) {
        allocator->release(allocator->ctx, scratch->memory);
        *scratch = (ddp_device_block_t){NULL, 0};
        DDP_TRY(allocator->acquire(allocator->ctx, label[use], bytes, &scratch->memory));
        scratch->bytes = bytes;
    }
    *memory_p = bytes > 0 ? scratch->memory : NULL;
out:
    return status;
}

void ddp_cuda_scratch_free(ddp_stream_t *stream)
{
    const ddp_allocator_t *allocator = ddp_device_allocator(stream->device);

    for (int use = 0; use < DDP_CUDA_SCRATCH_USES; use++) {
        allocator->release(allocator->ctx, stream->scratch[use].memory);
        stream->scratch[use] = (ddp_device_block_t){NULL, 0};
    }
}

size_t ddp_cuda_kernel_scratch_bytes(const ddp_device_t *device, size_t vocab)
{
    const size_t logits = vocab > 0 ? ddp_cuda_head_scratch_bytes(vocab) : 0;
    const size_t head   = logits + logits / 2; /* their gradients, in half precision, for a product */

    return DDP_CUDA_GEMM_WORKSPACE + (head > device->dry_scratch ? head : device->dry_scratch);
}
