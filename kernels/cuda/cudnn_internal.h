/** @file cuDNN of one device, as the operations use it. Private to kernels/cuda/cudnn_*.c. */
#ifndef DDP_CUDA_CUDNN_INTERNAL_H_
#define DDP_CUDA_CUDNN_INTERNAL_H_

#include "base/error.h"
#include "kernels/cuda/cudnn.h"
#include "kernels/cuda/cudnn_graphs.h"

#define DDP_CUDNN_ALIGNMENT 16 /* bytes; of all memory that a graph names */

typedef struct ddp_cudnn {
    ddp_cudnn_table_t  table;
    ddp_cudnn_target_t target;
    ddp_cudnn_cache_t *cache; /* owned; NULL: the device does without cuDNN */
    int                major; /* of its compute capability */
    bool               is_exact;
    size_t turn_bytes; /* attention backward takes sequences in turns that need no more workspace */
    char   reason[DDP_ERROR_LINE_SIZE]; /* why it does without, or "" */
} ddp_cudnn_t;

/** Opened at the first call. @return DDP_ERR_UNSUPPORTED with the reason: not to be had */
ddp_status_t ddp_cudnn_of(const ddp_device_t *device, ddp_cudnn_t **cudnn_p) DDP_NODISCARD;

/** cuDNN's type for inputs of this precision; float for all but bfloat16 and half. */
cudnnDataType_t ddp_cudnn_type(ddp_precision_t precision);

static inline bool ddp_cudnn_is_aligned(const void *memory)
{
    return (uintptr_t)memory % DDP_CUDNN_ALIGNMENT == 0;
}

/** Pieces of one block of scratch, one after the other. With `memory` NULL they are only counted. */
typedef struct ddp_cudnn_pieces {
    void  *memory; /* borrowed, 256-byte aligned */
    size_t bytes;  /* taken */
} ddp_cudnn_pieces_t;

/** @return NULL if nothing is wanted, or counted only */
void *ddp_cudnn_piece(ddp_cudnn_pieces_t *pieces, size_t bytes);

#endif
