/** @file Attention by our own kernels: for every shape, precision and dropout. Private. */
#ifndef DDP_CUDA_ATTENTION_PLAIN_H_
#define DDP_CUDA_ATTENTION_PLAIN_H_

#include "kernels/ops_seq.h"

#ifdef __cplusplus
extern "C" {
#endif

ddp_status_t ddp_cuda_attention_plain(ddp_stream_t *stream, const ddp_attention_args_t *args) DDP_NODISCARD;
ddp_status_t ddp_cuda_attention_backward_plain(ddp_stream_t                        *stream,
                                               const ddp_attention_backward_args_t *args) DDP_NODISCARD;

#ifdef __cplusplus
}
#endif

#endif
