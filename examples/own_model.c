/* A model of one's own, trained data-parallel: mpirun -np 2 own_model. It learns which of 4 quadrants a point
 * lies in. */
#include <stdio.h>
#include <stdlib.h>

#include "base/convert.h"
#include "base/error.h"
#include "ddp/reducer.h"
#include "nn/layers.h"

enum { BATCH = 64, MICRO_BATCHES = 8, STEPS = 300 };

static ddp_status_t forward(ddp_tape_t *tape, const size_t *p, ddp_tensor_t *x, const int32_t *labels,
                            ddp_loss_stats_t **stats)
{
    ddp_status_t  status = DDP_OK;
    ddp_tensor_t *h      = NULL;
    ddp_tensor_t *skip   = NULL;

    DDP_TRY(ddp_nn_linear(tape, x, p[0], p[1], DDP_ACT_RELU, &h));
    DDP_TRY(ddp_nn_linear(tape, h, p[2], p[3], DDP_ACT_GELU, &skip));
    DDP_TRY(ddp_nn_add(tape, h, skip, &h));
    DDP_TRY(ddp_nn_linear(tape, h, p[4], p[5], DDP_ACT_NONE, &h));
    DDP_TRY(ddp_nn_cross_entropy(tape, h, labels, NULL, -100, stats));
out:
    return status;
}

static ddp_status_t on_ready(void *reducer, size_t tensor)
{
    return ddp_reducer_ready(reducer, tensor);
}

static void draw(uint64_t step, size_t first, size_t n, float *x, int32_t *labels)
{
    for (size_t i = 0; i < n;
         i++) { /* a pure function of step and position: the same on any number of ranks */
        const uint32_t counter[4] = {(uint32_t)step, (uint32_t)(first + i), 0, 0};
        uint32_t       random[4];

        ddp_philox(7, counter, random);
        x[2 * i]     = (float)random[0] / 2147483648.0F - 1;
        x[2 * i + 1] = (float)random[1] / 2147483648.0F - 1;
        labels[i]    = (x[2 * i] > 0 ? 1 : 0) + (x[2 * i + 1] > 0 ? 2 : 0);
    }
}

static ddp_status_t train(void)
{
    static const size_t  shapes[6][2] = {{32, 2}, {32, 1}, {32, 32}, {32, 1}, {4, 32}, {4, 1}};
    static const char   *names[6]     = {"in.weight", "in.bias",    "mid.weight",
                                         "mid.bias",  "out.weight", "out.bias"};
    ddp_status_t         status       = DDP_OK;
    ddp_comm_params_t    comm_params  = DDP_COMM_PARAMS_INIT;
    ddp_device_params_t  dev_params   = DDP_DEVICE_PARAMS_INIT;
    ddp_tape_params_t    tape_params  = DDP_TAPE_PARAMS_INIT;
    ddp_reducer_params_t red_params   = DDP_REDUCER_PARAMS_INIT;
    ddp_comm_t          *comm         = NULL;
    ddp_device_t        *device       = NULL;
    ddp_stream_t        *stream       = NULL;
    ddp_params_t        *params       = NULL;
    ddp_tape_t          *tape         = NULL;
    ddp_reducer_t       *reducer      = NULL;
    ddp_step_result_t    result       = {.loss = 0};
    size_t               p[6];
    size_t               first;
    size_t               count;
    uint8_t              used[6];
    char                 hash[33];

    comm_params.parent = MPI_COMM_WORLD;
    DDP_TRY(ddp_comm_create(&comm_params, &comm));
    DDP_TRY(ddp_device_create(&dev_params, &device)); /* plain C: the same bits on every machine */
    ddp_comm_attach(comm, device);
    DDP_TRY(ddp_stream_create(device, "compute", &stream));
    DDP_TRY(ddp_params_create(&params));
    for (size_t i = 0; i < 6; i++) {
        DDP_TRY(ddp_params_add(params, names[i], 2 - i % 2, shapes[i],
                               (ddp_init_t){DDP_INIT_UNIFORM, shapes[i / 2 * 2][1]}, &p[i]));
    }
    DDP_TRY(ddp_params_finish(params));
    tape_params.stream = stream;
    tape_params.params = params;
    DDP_TRY(ddp_tape_create(&tape_params, &tape));
    red_params.comm          = comm;
    red_params.compute       = stream;
    red_params.tensors       = ddp_params_descs(params);
    red_params.n_tensors     = ddp_params_count(params);
    red_params.micro_batches = MICRO_BATCHES;
    DDP_TRY(ddp_reducer_create(&red_params, &reducer));
    ddp_tape_set_ready(tape, on_ready, reducer);
    ddp_params_bind(params, ddp_reducer_values(reducer), NULL);
    if (ddp_comm_local_rank(comm) == 0) { /* one copy of the parameters for each machine */
        DDP_TRY(ddp_params_initialize(params, stream, 1));
        DDP_TRY(ddp_stream_synchronize(stream, -1));
    }
    DDP_TRY(ddp_reducer_publish(reducer));
    ddp_reducer_range(reducer, &first, &count);
    for (uint64_t s = 0; s < STEPS; s++) {
        const ddp_step_t step = {.lr = 3e-3F, .samples = BATCH};

        DDP_TRY(ddp_reducer_step_begin(reducer, &step));
        for (size_t v = first; v < first + count; v++) {
            float             x[2 * BATCH];
            int32_t           labels[BATCH];
            float            *grads = NULL;
            ddp_tensor_t     *input = NULL;
            ddp_loss_stats_t *stats = NULL;
            ddp_tape_begin_t  begin = {.training = true, .seed = 1, .step = s};
            size_t            row;
            size_t            n;

            ddp_partition(BATCH, MICRO_BATCHES, v, &row, &n);
            draw(s, row, n, x, labels);
            begin.first_row = row;
            DDP_TRY(ddp_reducer_micro_begin(reducer, v, &grads, &begin.accumulate_grads));
            ddp_params_bind(params, NULL, grads);
            DDP_TRY(ddp_tape_begin(tape, &begin));
            DDP_TRY(ddp_tape_input(tape, x, 2, (size_t[]){n, 2}, &input));
            DDP_TRY(forward(tape, p, input, labels, &stats));
            ddp_tape_used(tape, used);
            DDP_TRY(ddp_reducer_forward_done(reducer, stats, used));
            DDP_TRY(ddp_tape_backward(tape));
            DDP_TRY(ddp_reducer_micro_end(reducer));
            DDP_TRY(ddp_stream_synchronize(stream, -1)); /* x and labels go out of scope */
        }
        DDP_TRY(ddp_reducer_step_end(reducer, &result));
    }
    DDP_TRY(ddp_reducer_finish(reducer));
    ddp_reducer_weights_hash(reducer, hash);
    if (ddp_comm_rank(comm) == 0) {
        printf("accuracy %.3f loss %.4f\nweights %s\n", result.correct / result.counted, result.loss, hash);
    }
    status = result.correct / result.counted > 0.9 ? DDP_OK : ddp_fail(DDP_ERR_STATE, "it did not learn");
out:
    ddp_reducer_destroy(&reducer);
    ddp_tape_destroy(&tape);
    ddp_params_destroy(&params);
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
    status = train();
    if (status != DDP_OK) {
        fprintf(stderr, "own_model: %s\n", ddp_error_line());
        _Exit(EXIT_FAILURE); /* mpirun ends the other ranks; they must not wait in MPI_Finalize */
    }
    MPI_Finalize();
    return EXIT_SUCCESS;
}
