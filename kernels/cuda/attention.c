/* Attention by cuDNN where it takes the case, else by our own kernels. */
#include "kernels/cuda/attention_plain.h"
#include "kernels/cuda/cudnn.h"
#include "kernels/cuda/ops.h"

ddp_status_t ddp_cuda_attention(ddp_stream_t *stream, const ddp_attention_args_t *args)
{
    return ddp_cudnn_takes_attention(ddp_stream_device(stream), args)
               ? ddp_cudnn_attention(stream, args)
               : ddp_cuda_attention_plain(stream, args);
}

ddp_status_t ddp_cuda_attention_backward(ddp_stream_t *stream, const ddp_attention_backward_args_t *args)
{
    return ddp_cudnn_takes_attention(ddp_stream_device(stream), &args->forward)
               ? ddp_cudnn_attention_backward(stream, args)
               : ddp_cuda_attention_backward_plain(stream, args);
}
