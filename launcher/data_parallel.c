#include "launcher/data_parallel.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

/* What every sample has: pixels or tokens, and labels or targets. */
enum { INPUT_SAMPLES, INPUT_TARGETS, N_INPUTS };

static void set_inputs(const ddp_run_t *run, const void *samples, const int32_t *targets,
                       ddp_dp_input_t *inputs)
{
    inputs[INPUT_SAMPLES] = (ddp_dp_input_t){.data = samples, .row_bytes = run->data.sample_bytes};
    inputs[INPUT_TARGETS] =
        (ddp_dp_input_t){.data = targets, .row_bytes = ddp_eval_label_bytes(run), .is_target = true};
}

/* ddp_dp_fetch_fn_t */
static ddp_status_t fetch(void *ctx, const ddp_micro_t *micro, ddp_dp_input_t *inputs)
{
    ddp_run_t        *run    = ctx;
    ddp_status_t      status = DDP_OK;
    ddp_micro_batch_t data;

    DDP_TRY(ddp_run_next(run, micro, &data));
    if (run->train != NULL) {
        set_inputs(run, data.images, data.labels, inputs);
    } else {
        set_inputs(run, data.inputs, data.targets, inputs);
    }
out:
    return status;
}

/* ddp_dp_forward_fn_t */
static ddp_status_t forward(void *ctx, ddp_tape_t *tape, const ddp_micro_t *micro, const void *const *inputs,
                            ddp_tensor_t **output_p)
{
    const ddp_run_t *run = ctx;

    return ddp_run_output(run, run->model, tape, inputs[INPUT_SAMPLES], micro->n, output_p);
}

/* ddp_dp_loss_fn_t */
static ddp_status_t loss(void *ctx, ddp_tape_t *tape, const ddp_micro_t *micro, const void *const *inputs,
                         ddp_tensor_t *output, ddp_loss_stats_t **stats_p)
{
    const ddp_run_t *run = ctx;

    (void)micro;
    return ddp_run_output_loss(run, run->model, tape, output, inputs[INPUT_TARGETS], stats_p);
}

/* For each tape of a replica. */
static void set_tape(void *ctx, ddp_tape_t *tape)
{
    ddp_run_set_tape(ctx, tape);
}

ddp_status_t ddp_run_dp_create(ddp_run_t *run)
{
    ddp_status_t    status = DDP_OK;
    ddp_dp_params_t params = DDP_DP_PARAMS_INIT;

    params.params        = run->params;
    params.device_ids    = run->devices.id;
    params.n_devices     = run->devices.n;
    params.output_device = run->devices.output;
    params.device_memory = run->devices.memory;
    params.seed          = run->config.train.seed;
    params.n_inputs      = N_INPUTS;
    params.loss_at       = (ddp_dp_loss_t)run->config.dp.loss;
    params.fetch         = fetch;
    params.forward       = forward;
    params.loss          = loss;
    params.set_tape      = set_tape;
    params.ctx           = run;
    params.tape          = run->memory.tape;
    params.loss_tape     = run->memory.loss_tape;
    params.scratch       = run->memory.scratch;
    params.timeout_ms    = (int)(run->config.ddp.timeout_s * 1000);
    params.reducer       = ddp_run_reducer_params(run);
    DDP_TRY(ddp_dp_create(&params, &run->dp));
    run->reducer = ddp_dp_reducer(run->dp);
    run->tape    = ddp_dp_tape(run->dp);
out:
    return status;
}

void ddp_run_dp_measure(const ddp_run_t *run, const ddp_step_result_t *result, ddp_measure_t *measure_p)
{
    ddp_measure_t          measure = {.steps = 1, .comm_ns = result->comm_ns};
    ddp_dp_report_t        report;
    ddp_dp_device_report_t devices[DDP_DP_MAX_DEVICES];

    ddp_dp_report(run->dp, &report, devices);
    measure.forward_ns  = report.phase_ns[DDP_DP_FORWARD];
    measure.backward_ns = report.phase_ns[DDP_DP_BACKWARD];
    measure.exposed_ns =
        report.step_ns - measure.forward_ns - measure.backward_ns - report.phase_ns[DDP_DP_LOSS];
    for (size_t p = 0; p < DDP_DP_PHASES; p++) {
        measure.phase_ns[p] = report.phase_ns[p];
        for (size_t d = 0; d < run->devices.n; d++) {
            measure.busy_ns[d] += devices[d].busy_ns[p];
            measure.moved[p] += devices[d].received_bytes[p];
        }
    }
    *measure_p = measure;
}

static size_t output_index(const ddp_run_t *run)
{
    size_t i = 0;

    while (run->devices.id[i] != run->devices.output) {
        i++;
    }
    return i;
}

/* Parameters and samples come from device 0, outputs go to the output device and their gradients come back,
 * gradients go to device 0. */
static void fill_links(const ddp_run_t *run, const ddp_dp_device_report_t *devices, ddp_use_t *use)
{
    const size_t n      = use->n;
    const size_t output = output_index(run);

    for (size_t d = 0; d < n; d++) {
        const uint64_t *received = devices[d].received_bytes;
        const uint64_t *sent     = devices[d].sent_bytes;

        if (d > 0) {
            use->link[d * n] += received[DDP_DP_REPLICATE] + received[DDP_DP_SCATTER];
            use->link[d] += sent[DDP_DP_REDUCE];
        }
        if (d != output) {
            use->link[d * n + output] += received[DDP_DP_LOSS];
            use->link[output * n + d] += sent[DDP_DP_GATHER];
        }
    }
}

ddp_status_t ddp_run_dp_use(const ddp_run_t *run, const ddp_measure_t *sum, ddp_use_t *use_p)
{
    ddp_status_t           status = DDP_OK;
    const size_t           n      = run->devices.n;
    ddp_use_t              use    = {.n = n, .pss = ddp_own_pss(), .peak_rss = ddp_own_peak_rss()};
    ddp_dp_report_t        report;
    ddp_dp_device_report_t devices[DDP_DP_MAX_DEVICES];

    use.device = calloc(n, sizeof(*use.device));
    use.link   = calloc(n * n, sizeof(*use.link));
    DDP_REQUIRE(use.device != NULL && use.link != NULL, DDP_ERR_NO_MEMORY, "no memory for %zu devices", n);
    ddp_dp_report(run->dp, &report, devices);
    for (size_t d = 0; d < n; d++) {
        use.device[d] = (ddp_device_use_t){.id = devices[d].id, .memory = devices[d].memory};
        if (sum->steps > 0) {
            use.device[d].busy_ms = (double)sum->busy_ns[d] / (double)sum->steps / 1e6;
        }
    }
    fill_links(run, devices, &use);
    *use_p = use;
    use    = (ddp_use_t){.n = 0};
out:
    ddp_use_free(&use);
    return status;
}

ddp_status_t ddp_run_dp_spans(const ddp_run_t *run, ddp_span_t **spans_p, size_t *n_p)
{
    ddp_status_t   status = DDP_OK;
    const size_t   n      = ddp_dp_spans(run->dp, NULL, 0);
    ddp_dp_span_t *from   = calloc(n > 0 ? n : 1, sizeof(*from));
    ddp_span_t    *spans  = calloc(n > 0 ? n : 1, sizeof(*spans));

    DDP_REQUIRE(from != NULL && spans != NULL, DDP_ERR_NO_MEMORY, "no memory for a trace");
    ddp_dp_spans(run->dp, from, n);
    for (size_t i = 0; i < n; i++) {
        spans[i] = (ddp_span_t){.phase    = (int32_t)from[i].phase,
                                .device   = (int32_t)from[i].device,
                                .start_us = (double)from[i].start_ns / 1e3,
                                .end_us   = (double)from[i].end_ns / 1e3};
    }
    *n_p     = n;
    *spans_p = spans;
    spans    = NULL;
out:
    free(from);
    free(spans);
    return status;
}

/* ddp_dp_fetch_fn_t: a chunk of the test samples. Each device has a place of its own, which is read until the
 * next round. */
static ddp_status_t fetch_chunk(void *ctx, const ddp_micro_t *micro, ddp_dp_input_t *inputs)
{
    ddp_run_t   *run    = ctx;
    ddp_status_t status = DDP_OK;
    const size_t row    = micro->micro_batch % run->devices.n * run->eval.rows;
    void        *x      = (char *)run->eval.x + row * run->data.sample_bytes;
    int32_t     *y      = run->eval.y + row * ddp_eval_label_bytes(run) / sizeof(int32_t);

    DDP_TRY(ddp_eval_fetch(run, micro->micro_batch, x, y));
    set_inputs(run, x, y, inputs);
out:
    return status;
}

ddp_status_t ddp_run_dp_eval(ddp_run_t *run)
{
    ddp_status_t status  = DDP_OK;
    size_t      *samples = calloc(run->eval.chunks, sizeof(*samples));

    DDP_REQUIRE(samples != NULL, DDP_ERR_NO_MEMORY, "no memory for evaluation");
    for (size_t i = 0; i < run->eval.chunks; i++) {
        samples[i] = ddp_eval_samples(run, i);
    }
    DDP_TRY(ddp_dp_evaluate(run->dp, fetch_chunk, run, samples, run->eval.chunks, run->eval.mine));
out:
    free(samples);
    return status;
}
