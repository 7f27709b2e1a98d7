/*
 * No tape, no model: your own buffers and your own backward; only the reducer and its optimizer.
 * mpirun -np 2 own_gradients fits a line y = a x + b by least squares.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/convert.h"
#include "base/error.h"
#include "ddp/reducer.h"

enum { SAMPLES = 100, MICRO_BATCHES = 8, STEPS = 400 };

/* Sum over samples [first, first + n) of the squared error and its gradient, with the caller's own formulas.
 */
static double gradient(const float *a, const float *b, size_t first, size_t n, float *grad_a, float *grad_b)
{
    double loss = 0;

    *grad_a = 0;
    *grad_b = 0;
    for (size_t i = first; i < first + n; i++) {
        const float x     = (float)i / SAMPLES;
        const float error = *a * x + *b - (3.0F * x - 1.0F);

        loss += (double)(error * error);
        *grad_a += 2 * error * x;
        *grad_b += 2 * error;
    }
    return loss;
}

static ddp_status_t micro_step(ddp_reducer_t *reducer, const ddp_tensor_desc_t *tensors, size_t v,
                               ddp_loss_stats_t *stats)
{
    static const uint8_t used[2]    = {1, 1};
    ddp_status_t         status     = DDP_OK;
    const float         *values     = ddp_reducer_values(reducer); /* of a cpu device: read by pointer */
    float               *grads      = NULL;
    bool                 accumulate = false; /* always false with the exact reduction */
    size_t               first;
    size_t               n;
    float                mine[2]; /* the caller's own buffers */

    ddp_partition(SAMPLES, MICRO_BATCHES, v, &first, &n);
    DDP_TRY(ddp_reducer_micro_begin(reducer, v, &grads, &accumulate));
    *stats = (ddp_loss_stats_t){.weight = (float)n, .counted = (float)n};
    stats->loss =
        (float)gradient(values + tensors[0].offset, values + tensors[1].offset, first, n, &mine[0], &mine[1]);
    DDP_TRY(ddp_reducer_forward_done(reducer, stats, used));
    for (size_t i = 2;
         i-- > 0;) { /* last registered first: its bucket is on its way while the rest is computed */
        memcpy(grads + tensors[i].offset, &mine[i], sizeof(float));
        DDP_TRY(ddp_reducer_ready(reducer, i));
    }
    DDP_TRY(ddp_reducer_micro_end(reducer));
out:
    return status;
}

static ddp_status_t fit(void)
{
    ddp_status_t         status      = DDP_OK;
    ddp_comm_params_t    comm_params = DDP_COMM_PARAMS_INIT;
    ddp_device_params_t  dev_params  = DDP_DEVICE_PARAMS_INIT;
    ddp_reducer_params_t red_params  = DDP_REDUCER_PARAMS_INIT;
    ddp_tensor_desc_t    tensors[2]  = {{.name = "a", .ndim = 1, .shape = {1}},
                                        {.name = "b", .ndim = 1, .shape = {1}}};
    ddp_comm_t          *comm        = NULL;
    ddp_device_t        *device      = NULL;
    ddp_stream_t        *stream      = NULL;
    ddp_reducer_t       *reducer     = NULL;
    ddp_loss_stats_t     stats[MICRO_BATCHES];
    ddp_step_result_t    result;
    size_t               first;
    size_t               count;
    float                a;
    float                b;

    comm_params.parent = MPI_COMM_WORLD;
    DDP_TRY(ddp_comm_create(&comm_params, &comm));
    DDP_TRY(ddp_device_create(&dev_params, &device));
    ddp_comm_attach(comm, device);
    DDP_TRY(ddp_stream_create(device, "compute", &stream));
    DDP_TRY(ddp_layout_make(tensors, 2, &(size_t){0}));
    red_params.comm          = comm;
    red_params.compute       = stream;
    red_params.tensors       = tensors;
    red_params.n_tensors     = 2;
    red_params.micro_batches = MICRO_BATCHES;
    red_params.optim         = (ddp_optim_config_t){.kind = DDP_OPTIM_SGD, .momentum = 0.9};
    DDP_TRY(ddp_reducer_create(&red_params, &reducer)); /* parameters begin at 0 */
    ddp_reducer_range(reducer, &first, &count);
    for (int s = 0; s < STEPS; s++) {
        const ddp_step_t step = {.lr = 0.1F, .samples = SAMPLES};

        DDP_TRY(ddp_reducer_step_begin(reducer, &step));
        for (size_t v = first; v < first + count; v++) {
            DDP_TRY(micro_step(reducer, tensors, v, &stats[v]));
        }
        DDP_TRY(ddp_reducer_step_end(reducer, &result));
    }
    DDP_TRY(ddp_reducer_finish(reducer));
    DDP_TRY(ddp_reducer_read(reducer, DDP_REDUCER_VALUES, tensors[0].offset, 1, &a));
    DDP_TRY(ddp_reducer_read(reducer, DDP_REDUCER_VALUES, tensors[1].offset, 1, &b));
    if (ddp_comm_rank(comm) == 0) {
        printf("a %.4f b %.4f loss %.3g\n", (double)a, (double)b, result.loss);
    }
    DDP_REQUIRE(fabsf(a - 3) < 0.01F && fabsf(b + 1) < 0.01F, DDP_ERR_STATE, "a %g b %g instead of 3 and -1",
                (double)a, (double)b);
out:
    ddp_reducer_destroy(&reducer);
    ddp_stream_destroy(&stream);
    ddp_device_destroy(&device);
    ddp_comm_destroy(&comm);
    return status;
}

int main(int argc, char **argv)
{
    int          provided;
    ddp_status_t status;

    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    status = fit();
    if (status != DDP_OK) {
        fprintf(stderr, "own_gradients: %s\n", ddp_error_line());
        _Exit(EXIT_FAILURE);
    }
    MPI_Finalize();
    return EXIT_SUCCESS;
}
