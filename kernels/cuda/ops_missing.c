/* Operations that have no kernel for CUDA yet: one line here each until they have. */
#include "base/error.h"
#include "kernels/cuda/ops.h"

#define DDP_CUDA_MISSING(op, args_t)                                                                         \
    ddp_status_t ddp_cuda_##op(ddp_stream_t *stream, const args_t *args)                                     \
    {                                                                                                        \
        (void)stream;                                                                                        \
        (void)args;                                                                                          \
        return ddp_fail(DDP_ERR_UNSUPPORTED, "cuda: no kernel for " #op);                                    \
    }

DDP_CUDA_MISSING(cross_entropy, ddp_cross_entropy_args_t)
DDP_CUDA_MISSING(mse, ddp_mse_args_t)
DDP_CUDA_MISSING(embedding, ddp_embedding_args_t)
DDP_CUDA_MISSING(embedding_backward, ddp_embedding_backward_args_t)
DDP_CUDA_MISSING(layer_norm, ddp_layer_norm_args_t)
DDP_CUDA_MISSING(layer_norm_backward, ddp_layer_norm_backward_args_t)
DDP_CUDA_MISSING(attention, ddp_attention_args_t)
DDP_CUDA_MISSING(attention_backward, ddp_attention_backward_args_t)
DDP_CUDA_MISSING(attention_cached, ddp_attention_cached_args_t)
DDP_CUDA_MISSING(attention_keep, ddp_attention_cached_args_t)
DDP_CUDA_MISSING(head_cross_entropy, ddp_head_cross_entropy_args_t)
DDP_CUDA_MISSING(head_logits, ddp_head_logits_args_t)
DDP_CUDA_MISSING(head_backward, ddp_head_backward_args_t)
DDP_CUDA_MISSING(batch_norm, ddp_batch_norm_args_t)
DDP_CUDA_MISSING(batch_norm_backward, ddp_batch_norm_backward_args_t)
DDP_CUDA_MISSING(global_avg_pool, ddp_global_avg_pool_args_t)
DDP_CUDA_MISSING(global_avg_pool_backward, ddp_global_avg_pool_backward_args_t)

size_t ddp_cuda_kernel_scratch_bytes(const ddp_device_t *device, size_t vocab)
{
    (void)device, (void)vocab;
    return 0;
}
