#include "kernels/cuda/ops.h"

#include "kernels/cuda/cudnn.h"

const ddp_op_table_t ddp_cuda_ops = {
#define DDP_CUDA_ENTRY(op, args_t) .op = ddp_cuda_##op,
    DDP_OP_LIST(DDP_CUDA_ENTRY)
#undef DDP_CUDA_ENTRY
        .fill             = ddp_cuda_fill,
    .axpy                 = ddp_cuda_axpy,
    .scale                = ddp_cuda_scale,
    .sumsq                = ddp_cuda_sumsq,
    .conv2d_scratch_bytes = ddp_cuda_conv2d_scratch_bytes,
    .op_scratch           = ddp_cuda_op_scratch,
    .kernel_scratch_bytes = ddp_cuda_kernel_scratch_bytes,
};
