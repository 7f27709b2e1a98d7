/* What is computed: torch.nn.DataParallel's numbers, closed forms, and how a batch is cut. */
#include <math.h>
#include <string.h>

#include "dp_compat/data_parallel.h"
#include "nn/layers.h"
#include "nn/params.h"
#include "tests/dp_compat/dp_values.h"
#include "tests/support/ddp_test.h"

#define MOST_SAMPLES 64
#define IGNORED      (-100)

/** A net of PyTorch's example, or a linear layer alone. */
typedef struct net {
    ddp_device_t *device;
    ddp_stream_t *stream;
    ddp_params_t *params;
    ddp_dp_t     *dp;
    size_t        p[8]; /* weight, bias, gamma, beta, mean, variance, weight, bias */
    bool          is_linear;
    size_t        in, classes;
    float         x[MOST_SAMPLES][TORCH_IN];
    int32_t       labels[MOST_SAMPLES];
    const double *outputs;                      /* gathered, or NULL */
    double        distance;                     /* of what the loss saw from that */
    size_t        sizes[16], n_sizes, rows[16]; /* as fetch was asked for them */
} net_t;

static ddp_status_t fetch(void *ctx, const ddp_micro_t *micro, ddp_dp_input_t *inputs)
{
    net_t *net = ctx;

    net->rows[net->n_sizes]    = micro->first_row;
    net->sizes[net->n_sizes++] = micro->n;
    inputs[0]                  = (ddp_dp_input_t){net->x[micro->first_row], sizeof(net->x[0]), false};
    inputs[1] = (ddp_dp_input_t){net->labels + micro->first_row, sizeof(net->labels[0]), true};
    return DDP_OK;
}

static ddp_status_t forward(void *ctx, ddp_tape_t *tape, const ddp_micro_t *micro, const void *const *inputs,
                            ddp_tensor_t **output_p)
{
    const net_t           *net    = ctx;
    const ddp_batch_norm_t norm   = {net->p[2], net->p[3], net->p[4], net->p[5], 1e-5F};
    ddp_status_t           status = DDP_OK;
    ddp_tensor_t          *x      = NULL;

    DDP_TRY(ddp_tape_input(tape, inputs[0], 2, (size_t[]){micro->n, TORCH_IN}, &x));
    if (!net->is_linear) {
        DDP_TRY(ddp_nn_linear(tape, x, net->p[0], net->p[1], DDP_ACT_NONE, &x));
        DDP_TRY(ddp_nn_batch_norm(tape, x, &norm, NULL, DDP_ACT_RELU, &x));
    }
    DDP_TRY(ddp_nn_linear(tape, x, net->p[6], net->p[7], DDP_ACT_NONE, output_p));
out:
    return status;
}

/* Outside of the replicas it runs on this thread, and its part of the gathered outputs is there. */
static ddp_status_t loss(void *ctx, ddp_tape_t *tape, const ddp_micro_t *micro, const void *const *inputs,
                         ddp_tensor_t *output, ddp_loss_stats_t **stats_p)
{
    net_t *net = ctx;

    for (size_t i = 0; net->outputs != NULL && i < output->count; i++) {
        const double expected = net->outputs[micro->first_row * TORCH_CLASSES + i];

        net->distance = fmax(net->distance, fabs((double)output->data[i] - expected));
    }
    return ddp_nn_cross_entropy(tape, output, inputs[1], NULL, IGNORED, stats_p);
}

static void add(net_t *net, size_t i, const char *name, size_t rows, size_t columns)
{
    const ddp_init_t drawn = {.kind = DDP_INIT_UNIFORM, .fan_in = 4};

    ddp_assert_ok(
        ddp_params_add(net->params, name, columns > 0 ? 2 : 1, (size_t[]){rows, columns}, drawn, &net->p[i]));
}

static void add_average(net_t *net, size_t i, const char *name)
{
    ddp_assert_ok(ddp_params_add_average(net->params, name, 1, (size_t[]){TORCH_HIDDEN},
                                         (ddp_init_t){.kind = DDP_INIT_ZERO}, 0.1F, &net->p[i]));
}

static void net_open(net_t *net, bool is_linear, size_t devices, ddp_dp_loss_t loss_at)
{
    static const int    ids[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    ddp_device_params_t cpu    = DDP_DEVICE_PARAMS_INIT;
    ddp_dp_params_t     params = DDP_DP_PARAMS_INIT;

    memset(net, 0, sizeof(*net));
    net->is_linear = is_linear;
    cpu.isa        = ddp_isa_detect();
    ddp_assert_ok(ddp_device_create(&cpu, &net->device));
    ddp_assert_ok(ddp_stream_create(net->device, "compute", &net->stream));
    ddp_assert_ok(ddp_params_create(&net->params));
    if (!is_linear) {
        add(net, 0, "0.weight", TORCH_HIDDEN, TORCH_IN);
        add(net, 1, "0.bias", TORCH_HIDDEN, 0);
        add(net, 2, "1.weight", TORCH_HIDDEN, 0);
        add(net, 3, "1.bias", TORCH_HIDDEN, 0);
        add_average(net, 4, "1.running_mean");
        add_average(net, 5, "1.running_var");
    }
    add(net, 6, "3.weight", TORCH_CLASSES, is_linear ? TORCH_IN : TORCH_HIDDEN);
    add(net, 7, "3.bias", TORCH_CLASSES, 0);
    ddp_assert_ok(ddp_params_finish(net->params));
    params.params                = net->params;
    params.device_ids            = ids;
    params.n_devices             = devices;
    params.seed                  = 3;
    params.loss_at               = loss_at;
    params.fetch                 = fetch;
    params.forward               = forward;
    params.loss                  = loss;
    params.ctx                   = net;
    params.reducer.compute       = net->stream;
    params.reducer.micro_batches = devices;
    params.reducer.optim         = (ddp_optim_config_t){.kind = DDP_OPTIM_SGD};
    ddp_assert_ok(ddp_dp_create(&params, &net->dp));
}

static void net_close(net_t *net)
{
    ddp_dp_destroy(&net->dp);
    ddp_params_destroy(&net->params);
    ddp_stream_destroy(&net->stream);
    ddp_device_destroy(&net->device);
}

static ddp_step_result_t net_step(net_t *net, size_t samples, const size_t *sizes)
{
    const ddp_step_t  step = {.lr = (float)TORCH_LR, .samples = samples, .part_samples = sizes};
    ddp_step_result_t result;

    net->n_sizes = 0;
    ddp_assert_ok(ddp_dp_step(net->dp, &step, &result));
    ddp_assert_ok(ddp_reducer_finish(ddp_dp_reducer(net->dp)));
    return result;
}

/* All parameters in the order of PyTorch's state dict. */
static void compare_state(const net_t *net, const double *expected)
{
    size_t at = 0;

    for (size_t i = 0; i < 8; i++) {
        const ddp_tensor_desc_t *desc = &ddp_params_descs(net->params)[net->p[i]];

        for (size_t j = 0; j < desc->count; j++, at++) {
            ck_assert_double_eq_tol((double)ddp_params_value(net->params, net->p[i])[j], expected[at], 5e-6);
        }
    }
}

/** A step of PyTorch's. */
typedef struct torch_step {
    size_t        devices;
    ddp_dp_loss_t loss_at;
    const size_t *sizes;
    double        loss;
    const double *outputs, *end;
} torch_step_t;

START_TEST(a_step_has_the_numbers_of_torch_dataparallel)
{
    const torch_step_t steps[5] = {
        {1, DDP_DP_LOSS_OUTSIDE, torch_outside_1_sizes, torch_outside_1_loss, NULL, torch_outside_1_end},
        {2, DDP_DP_LOSS_OUTSIDE, torch_outside_2_sizes, torch_outside_2_loss, torch_outside_2_outputs,
         torch_outside_2_end},
        {4, DDP_DP_LOSS_OUTSIDE, torch_outside_4_sizes, torch_outside_4_loss, torch_outside_4_outputs,
         torch_outside_4_end},
        {4, DDP_DP_LOSS_INSIDE, torch_outside_4_sizes, torch_outside_4_loss, NULL, torch_outside_4_end},
        {4, DDP_DP_LOSS_INSIDE_MEAN, torch_inside_4_sizes, torch_inside_4_loss, NULL, torch_inside_4_end},
    };
    const torch_step_t *torch = &steps[_i];
    net_t               net;
    size_t              at = 0;

    net_open(&net, false, torch->devices, torch->loss_at);
    for (size_t i = 0; i < TORCH_SAMPLES; i++) {
        for (size_t j = 0; j < TORCH_IN; j++) {
            net.x[i][j] = (float)torch_x[i * TORCH_IN + j];
        }
        net.labels[i] = torch_labels[i];
    }
    for (size_t i = 0; i < 8; i++) {
        float *value = ddp_params_value(net.params, net.p[i]);

        for (size_t j = 0; j < ddp_params_descs(net.params)[net.p[i]].count; j++) {
            value[j] = (float)torch_begin[at++];
        }
    }
    ddp_assert_ok(ddp_reducer_publish(ddp_dp_reducer(net.dp)));
    net.outputs = torch->outputs;
    ck_assert_double_eq_tol(net_step(&net, TORCH_SAMPLES, torch->sizes).loss, torch->loss, 1e-6);
    ck_assert_double_lt(net.distance, 5e-6);
    compare_state(&net, torch->end);
    net_close(&net);
}
END_TEST

/* Softmax regression in float64: the gradient of sample i with respect to W is (p - onehot) x^T. */
static void sample_gradient(const double *w, const net_t *net, size_t i, double *grad)
{
    double p[TORCH_CLASSES];
    double sum = 0;

    for (size_t c = 0; c < TORCH_CLASSES; c++) {
        double logit = w[TORCH_CLASSES * TORCH_IN + c];

        for (size_t j = 0; j < TORCH_IN; j++) {
            logit += w[c * TORCH_IN + j] * (double)net->x[i][j];
        }
        p[c] = exp(logit);
        sum += p[c];
    }
    for (size_t c = 0; c < TORCH_CLASSES; c++) {
        const double d = p[c] / sum - (net->labels[i] == (int32_t)c ? 1 : 0);

        for (size_t j = 0; j < TORCH_IN; j++) {
            grad[c * TORCH_IN + j] = d * (double)net->x[i][j];
        }
        grad[TORCH_CLASSES * TORCH_IN + c] = d;
    }
}

#define LINEAR (TORCH_CLASSES * TORCH_IN + TORCH_CLASSES)

static void read_weights(const net_t *net, double *w)
{
    for (size_t k = 0; k < LINEAR; k++) {
        w[k] = k < TORCH_CLASSES * TORCH_IN
                   ? (double)ddp_params_value(net->params, net->p[6])[k]
                   : (double)ddp_params_value(net->params, net->p[7])[k - TORCH_CLASSES * TORCH_IN];
    }
}

/* Samples that count in part k. */
static size_t count_in(const net_t *net, size_t first, size_t n)
{
    size_t count = 0;

    for (size_t i = first; i < first + n; i++) {
        count += net->labels[i] != IGNORED ? 1 : 0;
    }
    return count;
}

/* Loop: OUTSIDE, INSIDE: (1/N) sum over all. INSIDE_MEAN: (1/K) sum_k (1/n_k) sum over part k. The third part
 * has only ignored labels, so it has no mean: K is 3. */
START_TEST(averages_over_uneven_parts_and_ignored_labels)
{
    const bool   is_mean  = _i == 2;
    const size_t sizes[4] = {4, 3, 2, 1};
    double       w[LINEAR], after[LINEAR], expected[LINEAR] = {0};
    size_t       first = 0;
    net_t        net;

    net_open(&net, true, 4, (ddp_dp_loss_t)_i);
    for (size_t i = 0; i < 10; i++) {
        for (size_t j = 0; j < TORCH_IN; j++) {
            net.x[i][j] = sinf((float)(7 * i + 3 * j));
        }
        net.labels[i] = i == 1 || i == 7 || i == 8 ? IGNORED : (int32_t)(i % TORCH_CLASSES);
    }
    read_weights(&net, w);
    (void)net_step(&net, 10, sizes);
    read_weights(&net, after);
    for (size_t k = 0; k < 4; first += sizes[k++]) {
        for (size_t i = first; i < first + sizes[k]; i++) {
            const double share =
                is_mean ? 3.0 * (double)count_in(&net, first, sizes[k]) : (double)count_in(&net, 0, 10);
            double grad[LINEAR];

            sample_gradient(w, &net, i, grad);
            for (size_t j = 0; j < LINEAR && net.labels[i] != IGNORED; j++) {
                expected[j] += grad[j] / share;
            }
        }
    }
    for (size_t j = 0; j < LINEAR; j++) {
        ck_assert_double_eq_tol(after[j], w[j] - TORCH_LR * expected[j], 1e-6);
    }
    net_close(&net);
}
END_TEST

/* torch uses fewer devices than it could, and unequal chunks: (9, 4) is 3 3 3, (9, 8) is 2 2 2 2 1. */
START_TEST(parts_are_balanced_and_none_is_empty)
{
    const size_t *row     = torch_chunks[_i];
    const size_t  batch   = row[0];
    const size_t  devices = row[1];
    const size_t  busy    = batch < devices ? batch : devices;
    size_t        torch   = 0;
    size_t        at      = 0;
    net_t         net;

    net_open(&net, true, devices, DDP_DP_LOSS_OUTSIDE);
    (void)net_step(&net, batch, NULL);
    ck_assert_uint_eq(net.n_sizes, busy);
    for (size_t k = 0; k < busy; k++) {
        ck_assert_uint_eq(net.sizes[k], batch / busy + (k < batch % busy ? 1 : 0));
        ck_assert_uint_eq(net.rows[k], at);
        at += net.sizes[k];
        torch += row[2 + k];
    }
    ck_assert_uint_eq(at, batch);
    ck_assert_uint_eq(torch, batch);
    if (batch % devices == 0 || batch < devices) { /* then both cut alike */
        ck_assert_int_eq(memcmp(net.sizes, row + 2, busy * sizeof(*row)), 0);
    }
    net_close(&net);
}
END_TEST

START_TEST(an_empty_batch_is_refused)
{
    ddp_step_result_t result;
    net_t             net;

    net_open(&net, true, 2, DDP_DP_LOSS_OUTSIDE);
    ddp_assert_fails(ddp_dp_step(net.dp, &(ddp_step_t){.lr = 0.1F, .samples = 0}, &result),
                     DDP_ERR_INVALID_ARG, "at least one sample");
    net_close(&net);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("dp semantics");
    TCase *tcase = tcase_create("numbers");

    tcase_add_loop_test(tcase, a_step_has_the_numbers_of_torch_dataparallel, 0, 5);
    tcase_add_loop_test(tcase, averages_over_uneven_parts_and_ignored_labels, 0, 3);
    tcase_add_loop_test(tcase, parts_are_balanced_and_none_is_empty, 0, 7);
    tcase_add_test(tcase, an_empty_batch_is_refused);
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
