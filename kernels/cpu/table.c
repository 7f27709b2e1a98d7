#include "kernels/cpu/table.h"

#include "kernels/cpu/kernels.h"

const ddp_cpu_kernels_t DDP_ISA_NAME(kernels) = {
    .name                 = DDP_ISA_TEXT,
    .gemm                 = DDP_ISA_NAME(gemm),
    .bias_grad            = DDP_ISA_NAME(bias_grad),
    .act                  = DDP_ISA_NAME(act),
    .act_backward         = DDP_ISA_NAME(act_backward),
    .conv2d_scratch_bytes = DDP_ISA_NAME(conv2d_scratch_bytes),
    .conv2d               = DDP_ISA_NAME(conv2d),
    .conv2d_backward      = DDP_ISA_NAME(conv2d_backward),
    .pool2d               = DDP_ISA_NAME(pool2d),
    .pool2d_backward      = DDP_ISA_NAME(pool2d_backward),
    .nhwc_to_nchw         = DDP_ISA_NAME(nhwc_to_nchw),
    .cross_entropy        = DDP_ISA_NAME(cross_entropy),
    .mse                  = DDP_ISA_NAME(mse),
    .fill                 = DDP_ISA_NAME(fill),
    .axpy                 = DDP_ISA_NAME(axpy),
    .scale                = DDP_ISA_NAME(scale),
    .sumsq                = DDP_ISA_NAME(sumsq),
    .dropout              = DDP_ISA_NAME(dropout),
    .uniform              = DDP_ISA_NAME(uniform),
    .tree_sum             = DDP_ISA_NAME(tree_sum),
    .tree_update          = DDP_ISA_NAME(tree_update),
    .block_add            = DDP_ISA_NAME(block_add),
};
