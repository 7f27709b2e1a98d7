/* Mean squared error, a block of threads a row. 8 bytes an element and 4 more for the gradient; bound by
 * memory. */
#include "base/error.h"
#include "kernels/cuda/entropy.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/scratch.h"

#define MOST_THREADS 256
/* Up to this width a warp has enough of a row. */
#define WARP_WIDTH 1024

static __global__ void mse_kernel(ddp_mse_args_t a, ddp_cuda_row_loss_t *row)
{
    __shared__ double part[MOST_THREADS / DDP_CUDA_WARP];
    const size_t      first  = blockIdx.x * a.width;
    const float       weight = a.weights == NULL ? 1.0F : a.weights[blockIdx.x];
    const double      share  = (double)weight / (double)a.width;
    const float       factor = (float)(2.0 * share);
    double            sum    = 0.0;

    for (size_t j = threadIdx.x; j < a.width; j += blockDim.x) {
        const float d = a.y[first + j] - a.target[first + j];

        sum += (double)d * (double)d;
        if (a.dy != NULL) {
            a.dy[first + j] = factor * d;
        }
    }
    sum = ddp_block_sum(sum, part);
    if (threadIdx.x == 0) {
        row[blockIdx.x] = {share * sum, weight, 0, 1};
    }
}

size_t ddp_cuda_mse_scratch(const ddp_mse_args_t *args)
{
    return args->rows * sizeof(ddp_cuda_row_loss_t);
}

ddp_status_t ddp_cuda_mse(ddp_stream_t *stream, const ddp_mse_args_t *args)
{
    ddp_status_t         status = DDP_OK;
    void                *memory = NULL;
    ddp_cuda_row_loss_t *row    = NULL;

    DDP_TRY(ddp_cuda_scratch(stream, DDP_CUDA_SCRATCH_OP, ddp_cuda_mse_scratch(args), &memory));
    row = static_cast<ddp_cuda_row_loss_t *>(memory);
    if (args->rows > 0) {
        LAUNCH(mse_kernel, (unsigned)args->rows, args->width <= WARP_WIDTH ? DDP_CUDA_WARP : MOST_THREADS, 0,
               ddp_cuda_stream(stream), *args, row);
    }
    DDP_TRY(ddp_cuda_launched(stream, "mse"));
    DDP_TRY(ddp_cuda_sum_losses(stream, row, args->rows, args->stats));
out:
    return status;
}
