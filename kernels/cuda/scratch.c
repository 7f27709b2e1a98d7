#include "kernels/cuda/scratch.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/cudnn.h"
#include "kernels/cuda/device_internal.h"
#include "kernels/cuda/ops.h"

static const char *const label[DDP_CUDA_SCRATCH_USES] = {"scratch of kernels", "scratch of products"};

/* The tests want to know what was not reserved. */
static bool is_fixed(const ddp_cuda_lane_t *lane)
{
    const char *asked = getenv("DDP_CUDA_SCRATCH");

    return lane->is_reserved && asked != NULL && strcmp(asked, "fixed") == 0;
}

static ddp_status_t grow(ddp_stream_t *stream, ddp_cuda_scratch_use_t use, size_t bytes)
{
    ddp_status_t           status    = DDP_OK;
    const ddp_allocator_t *allocator = ddp_device_allocator(stream->device);
    ddp_cuda_lane_t       *lane      = ddp_cuda_lane_of(stream);
    ddp_cuda_room_t       *room      = &lane->room[use];
    const size_t           had       = room->n > 0 ? room->block[room->n - 1].bytes : 0;
    void                  *memory    = NULL;

    DDP_REQUIRE(!is_fixed(lane), DDP_ERR_STATE, "%s: %s: %zu bytes are needed, %zu were reserved",
                stream->device->name, label[use], bytes, had);
    bytes = bytes < 2 * had ? 2 * had : bytes;
    DDP_REQUIRE(room->n < DDP_CUDA_SCRATCH_BLOCKS, DDP_ERR_NO_MEMORY, "%s: %s grew %zu times",
                stream->device->name, label[use], room->n);
    DDP_TRY(allocator->acquire(allocator->ctx, label[use], bytes, &memory));
    room->block[room->n++] = (ddp_device_block_t){memory, bytes};
out:
    return status;
}

ddp_status_t ddp_cuda_scratch(ddp_stream_t *stream, ddp_cuda_scratch_use_t use, size_t bytes, void **memory_p)
{
    ddp_status_t     status = DDP_OK;
    ddp_cuda_room_t *room   = &ddp_cuda_lane_of(stream)->room[use];

    if (bytes > 0 && (room->n == 0 || room->block[room->n - 1].bytes < bytes)) {
        DDP_TRY(grow(stream, use, bytes));
    }
    *memory_p = bytes > 0 ? room->block[room->n - 1].memory : NULL;
out:
    return status;
}

ddp_status_t ddp_cuda_stream_reserve(ddp_stream_t *stream, const ddp_scratch_t *scratch)
{
    ddp_status_t status = DDP_OK;
    void        *memory = NULL;

    DDP_TRY(ddp_cuda_scratch(stream, DDP_CUDA_SCRATCH_OP, scratch->op, &memory));
    DDP_TRY(ddp_cuda_scratch(stream, DDP_CUDA_SCRATCH_PRODUCT, scratch->product, &memory));
    ddp_cuda_lane_of(stream)->is_reserved = true;
out:
    return status;
}

void ddp_cuda_scratch_free(ddp_stream_t *stream)
{
    const ddp_allocator_t *allocator = ddp_device_allocator(stream->device);

    for (int use = 0; use < DDP_CUDA_SCRATCH_USES; use++) {
        ddp_cuda_room_t *room = &ddp_cuda_lane_of(stream)->room[use];

        while (room->n > 0) {
            allocator->release(allocator->ctx, room->block[--room->n].memory);
        }
    }
}

size_t ddp_cuda_kernel_scratch_bytes(const ddp_device_t *device, size_t vocab)
{
    (void)vocab;
    return device->dry_scratch.op + device->dry_scratch.product;
}

static ddp_scratch_t op_only(size_t bytes)
{
    return (ddp_scratch_t){.op = bytes};
}

ddp_scratch_t ddp_cuda_op_scratch(const ddp_device_t *device, ddp_op_id_t id, const void *args)
{
    switch (id) {
    case DDP_OP_ID_gemm:
        return (ddp_scratch_t){.product = ddp_cuda_gemm_scratch(args)};
    case DDP_OP_ID_bias_grad:
        return op_only(ddp_cuda_bias_grad_scratch(args));
    case DDP_OP_ID_conv2d_backward:
        return op_only(ddp_cuda_conv2d_backward_scratch(args));
    case DDP_OP_ID_cross_entropy:
        return op_only(ddp_cuda_cross_entropy_scratch(args));
    case DDP_OP_ID_mse:
        return op_only(ddp_cuda_mse_scratch(args));
    case DDP_OP_ID_embedding_backward:
        return op_only(ddp_cuda_embedding_backward_scratch(args));
    case DDP_OP_ID_layer_norm_backward:
        return op_only(ddp_cuda_layer_norm_backward_scratch(args));
    case DDP_OP_ID_batch_norm:
        return op_only(ddp_cuda_batch_norm_scratch(args));
    case DDP_OP_ID_batch_norm_backward:
        return op_only(ddp_cuda_batch_norm_backward_scratch(args));
    case DDP_OP_ID_attention: /* its backward may follow, and needs more */
        return op_only(ddp_cudnn_attention_scratch_bytes(device, args));
    case DDP_OP_ID_head_cross_entropy:
        return ddp_cuda_head_cross_entropy_scratch(args);
    case DDP_OP_ID_head_logits:
        return (ddp_scratch_t){
            .product = ddp_cuda_head_product_scratch(&((const ddp_head_logits_args_t *)args)->head)};
    case DDP_OP_ID_head_backward:
        return (ddp_scratch_t){
            .product = ddp_cuda_head_product_scratch(&((const ddp_head_backward_args_t *)args)->head)};
    default: /* the others take none */
        return (ddp_scratch_t){.op = 0};
    }
}
