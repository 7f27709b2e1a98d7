/** @file What a head takes of the stream's scratch. Private. */
#ifndef DDP_CUDA_HEAD_H_
#define DDP_CUDA_HEAD_H_

#include <stddef.h>

/** Rows whose logits exist at a time: products of so many rows and a vocabulary fill a device. */
#define DDP_CUDA_HEAD_ROWS ((size_t)1024)

/** The logits of a part, bytes; the rows' losses (16 bytes each) come on top. */
size_t ddp_cuda_head_scratch_bytes(size_t vocab);

#endif
