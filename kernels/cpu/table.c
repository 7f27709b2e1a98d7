#include "kernels/cpu/table.h"

#include "kernels/cpu/kernels.h"

const ddp_cpu_kernels_t DDP_ISA_NAME(kernels) = {
    .name = DDP_ISA_TEXT,
    .gemm = DDP_ISA_NAME(gemm),
};
