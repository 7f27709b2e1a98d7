/* Batch normalisation, and a hundred steps of ResNet-20, next to PyTorch's; the values and how they were
 * made: tests/data/make_resnet.py. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/ops_norm.h"
#include "nn/model.h"
#include "tests/nn/nn_values.h"
#include "tests/support/ddp_test.h"

#define STEPS   100
#define N       8
#define SIZE    8
#define CLASSES 10
#define PIXELS  ((size_t)SIZE * SIZE * 3)
#define SAMPLE  37 /* every SAMPLE-th entry of a convolution's gradient is in the file */
#define BUCKETS 1024
#define N_KEPT  4

static const size_t kept_steps[N_KEPT] = {1, 5, 20, 100};

static void open_file(void)
{
    nn_values_open(DDP_TEST_DATA_DIR "/resnet.bin");
}

/* The end of MurmurHash3. */
static uint32_t mix(uint32_t x)
{
    x ^= x >> 16;
    x *= 0x85ebca6bU;
    x ^= x >> 13;
    x *= 0xc2b2ae35U;
    return x ^ x >> 16;
}

static uint32_t hashed(uint32_t stream, uint32_t i)
{
    return mix(i * 0x9e3779b1U + mix(stream + 1));
}

/* In [-1, 1), a multiple of 2^-23. */
static double drawn(uint32_t stream, uint32_t i)
{
    return ((double)(hashed(stream, i) >> 8) - 0x1p23) * 0x1p-23;
}

typedef struct run {
    nn_world_t   world;
    ddp_model_t *model;
    nn_adamw_t   optim;
    float        images[N * PIXELS];
    int32_t      labels[N];
    double       losses[STEPS];
    double       factor; /* how much further from float64 than PyTorch's float32 we may be */
} run_t;

/* The step's batch: each class has a picture of its own, with noise. */
static void make_batch(run_t *run, uint32_t seed)
{
    for (uint32_t n = 0; n < N; n++) {
        run->labels[n] = (int32_t)(hashed(1000 + 2 * seed, n) % CLASSES);
        for (uint32_t i = 0; i < PIXELS; i++) {
            const double picture = drawn(999, (uint32_t)run->labels[n] * (uint32_t)PIXELS + i);

            run->images[n * PIXELS + i] =
                (float)(0.75 * picture + drawn(1001 + 2 * seed, n * (uint32_t)PIXELS + i));
        }
    }
}

static void make_weights(const run_t *run)
{
    uint32_t stream = 0;

    for (size_t i = 0; i < ddp_params_count(run->world.params); i++) {
        const ddp_tensor_desc_t *desc  = &ddp_params_descs(run->world.params)[i];
        float                   *value = ddp_params_value(run->world.params, i);
        const bool               is_fc = strncmp(desc->name, "fc.", 3) == 0;
        const double             start = strstr(desc->name, ".weight") != NULL ? 1.0 : 0.0;

        if (desc->role == DDP_TENSOR_AVERAGE) {
            continue;
        }
        for (uint32_t j = 0; j < desc->count; j++) {
            const double x     = drawn(stream, j);
            const double bound = sqrt(6.0 / (double)(desc->shape[0] * desc->shape[2] * desc->shape[3]));

            value[j] = (float)(desc->ndim == 4 ? x * bound : is_fc ? x * 0.125 : x * 0.25 + start);
        }
        stream++;
    }
}

static void open_run(run_t *run, ddp_isa_t isa, ddp_conv_algo_t conv)
{
    const ddp_model_config_t config = {.kind     = DDP_MODEL_RESNET,
                                       .depth    = 20,
                                       .height   = SIZE,
                                       .width    = SIZE,
                                       .channels = 3,
                                       .classes  = CLASSES,
                                       .conv     = conv};

    nn_world_open(&run->world, isa);
    ck_assert_msg(ddp_model_create(&config, run->world.params, &run->model) == DDP_OK, "%s",
                  ddp_error_line());
    nn_world_start(&run->world, 1);
    nn_world_wait(&run->world);
    nn_adamw_open(&run->optim, run->world.params);
    run->optim.config = (ddp_optim_config_t){.kind = DDP_OPTIM_SGD, .momentum = 0.9, .weight_decay = 0x1p-13};
    run->factor       = conv == DDP_CONV_DIRECT ? 2.0 : 4.0;
    make_weights(run);
}

static void close_run(run_t *run)
{
    nn_adamw_close(&run->optim);
    ddp_model_destroy(&run->model);
    nn_world_close(&run->world);
}

static void backward(run_t *run, size_t step)
{
    const ddp_tape_begin_t begin    = {.training = true, .step = step};
    const size_t           shape[4] = {N, SIZE, SIZE, 3};
    ddp_tape_t            *tape     = run->world.tape;
    ddp_tensor_t          *x        = NULL;
    ddp_tensor_t          *logits   = NULL;
    ddp_loss_stats_t      *stats    = NULL;

    ck_assert_int_eq(ddp_tape_begin(tape, &begin), DDP_OK);
    ck_assert_int_eq(ddp_tape_input(tape, run->images, 4, shape, &x), DDP_OK);
    ck_assert_msg(ddp_model_forward(run->model, tape, x, &logits) == DDP_OK, "%s", ddp_error_line());
    ck_assert_int_eq(ddp_nn_cross_entropy(tape, logits, run->labels, NULL, -1, &stats), DDP_OK);
    ck_assert_int_eq(ddp_tape_backward(tape), DDP_OK);
    nn_world_wait(&run->world);
    run->losses[step] = (double)stats->loss / N;
}

/* Winograd's transforms cost some bits: half of what later steps are allowed, 2e-5. */
static void check_gradients(const run_t *run)
{
    const double bound = 0.5e-5 * run->factor;

    for (size_t i = 0; i < ddp_params_count(run->world.params); i++) {
        const ddp_tensor_desc_t *desc  = &ddp_params_descs(run->world.params)[i];
        const float             *grad  = ddp_params_grad(run->world.params, i);
        const size_t             every = desc->ndim == 4 ? SAMPLE : 1;
        double                   worst = 0;
        double                  *largest;
        float                   *wanted;

        if (desc->role == DDP_TENSOR_AVERAGE) {
            continue;
        }
        largest = nn_values_load("grad.largest.", desc->name, NN_FLOAT64, 1);
        wanted  = nn_values_load("grad.", desc->name, NN_FLOAT32, (desc->count + every - 1) / every);
        for (size_t j = 0; j < desc->count; j += every) {
            const double error = fabs((double)grad[j] - (double)wanted[j / every]);

            worst = isnan(error) ? INFINITY : fmax(worst, error);
        }
        ck_assert_msg(worst <= bound * *largest, "%s: gradient off by %g, largest entry %g", desc->name,
                      worst, *largest);
        free(largest);
        free(wanted);
    }
}

/* The distance from the float64 weights whose sketch is given. */
static double weights_distance(const run_t *run, const double *wanted)
{
    double   sketch[BUCKETS] = {0};
    double   sum             = 0.0;
    uint32_t at              = (uint32_t)100 << 24;

    for (size_t i = 0; i < ddp_params_count(run->world.params); i++) {
        const ddp_tensor_desc_t *desc = &ddp_params_descs(run->world.params)[i];

        for (size_t j = 0; j < desc->count && desc->role == DDP_TENSOR_PARAMETER; j++) {
            const uint32_t h = mix(at++);
            const double   w = (double)ddp_params_value(run->world.params, i)[j];

            sketch[h % BUCKETS] += h >> 31 != 0 ? -w : w;
        }
    }
    for (size_t i = 0; i < BUCKETS; i++) {
        sum += (sketch[i] - wanted[i]) * (sketch[i] - wanted[i]);
    }
    return sqrt(sum);
}

static double averages_distance(const run_t *run, const char *step)
{
    size_t  count = 0;
    size_t  at    = 0;
    double  sum   = 0.0;
    double *wanted;

    for (size_t i = 0; i < ddp_params_count(run->world.params); i++) {
        const ddp_tensor_desc_t *desc = &ddp_params_descs(run->world.params)[i];

        count += desc->role == DDP_TENSOR_AVERAGE ? desc->count : 0;
    }
    wanted = nn_values_load("averages.", step, NN_FLOAT64, count);
    for (size_t i = 0; i < ddp_params_count(run->world.params); i++) {
        const ddp_tensor_desc_t *desc = &ddp_params_descs(run->world.params)[i];

        for (size_t j = 0; j < desc->count && desc->role == DDP_TENSOR_AVERAGE; j++, at++) {
            const double error = (double)ddp_params_value(run->world.params, i)[j] - wanted[at];

            sum += error * error;
        }
    }
    free(wanted);
    return sqrt(sum);
}

/* `factor` times PyTorch's float32 distance from its float64 run; of the loss, which crosses the other curve
 * now and then, its largest distance so far, and four roundings of a float32 sum. */
static void check_kept_step(const run_t *run, size_t k)
{
    const size_t step       = kept_steps[k];
    double      *losses64   = nn_values_load("", "losses64", NN_FLOAT64, STEPS);
    double      *losses32   = nn_values_load("", "losses32", NN_FLOAT64, STEPS);
    double      *weights32  = nn_values_load("weights.", "distances32", NN_FLOAT64, N_KEPT);
    double      *averages32 = nn_values_load("averages.", "distances32", NN_FLOAT64, N_KEPT);
    double       largest    = 0.0;
    double      *sketch;
    double       ours[3];
    char         name[16];

    snprintf(name, sizeof(name), "%zu", step);
    sketch  = nn_values_load("weights.sketch", name, NN_FLOAT64, BUCKETS);
    ours[0] = weights_distance(run, sketch);
    ours[1] = averages_distance(run, name);
    ours[2] = fabs(run->losses[step - 1] - losses64[step - 1]);
    for (size_t i = 0; i < step; i++) {
        largest = fmax(largest, fabs(losses32[i] - losses64[i]));
    }
    ck_assert_msg(ours[0] <= run->factor * weights32[k], "step %zu: weights off by %g, PyTorch's by %g", step,
                  ours[0], weights32[k]);
    ck_assert_msg(ours[1] <= run->factor * averages32[k], "step %zu: averages off by %g, PyTorch's by %g",
                  step, ours[1], averages32[k]);
    ck_assert_msg(ours[2] <= run->factor * largest + losses64[step - 1] * 0x1p-22,
                  "step %zu: loss off by %g, PyTorch's by %g", step, ours[2], largest);
    free(losses64);
    free(losses32);
    free(weights32);
    free(averages32);
    free(sketch);
}

static void train(ddp_isa_t isa, ddp_conv_algo_t conv)
{
    run_t   *run   = malloc(sizeof(*run));
    int32_t *seeds = nn_values_load("", "seeds", NN_INT32, STEPS);
    size_t   kept  = 0;

    open_run(run, isa, conv);
    for (size_t step = 0; step < STEPS; step++) {
        make_batch(run, (uint32_t)seeds[step]);
        backward(run, step);
        if (step == 0) {
            check_gradients(run);
        }
        nn_adamw_update(&run->optim, &run->world, step + 1, 0x1p-8F, N);
        if (kept < N_KEPT && kept_steps[kept] == step + 1) {
            check_kept_step(run, kept++);
        }
    }
    ck_assert_uint_eq(kept, N_KEPT);
    close_run(run);
    free(seeds);
    free(run);
}

START_TEST(a_hundred_steps_stay_near_pytorch)
{
    train((ddp_isa_t)_i, DDP_CONV_DIRECT);
}
END_TEST

START_TEST(a_hundred_steps_with_winograd_stay_near_pytorch)
{
    train((ddp_isa_t)_i, DDP_CONV_AUTO);
}
END_TEST

#define ROWS 60
#define C    19

static void check_values(const char *name, const float *got, size_t count, double bound)
{
    double *wanted  = nn_values_load("bn.", name, NN_FLOAT64, count);
    double  largest = 0;
    double  worst   = 0;

    for (size_t i = 0; i < count; i++) {
        const double error = fabs((double)got[i] - wanted[i]);

        largest = fmax(largest, fabs(wanted[i]));
        worst   = isnan(error) ? INFINITY : fmax(worst, error);
    }
    ck_assert_msg(worst <= bound * largest, "%s: off by %g, largest value %g", name, worst, largest);
    free(wanted);
}

START_TEST(batch_normalisation_equals_pytorch)
{
    static float y[ROWS * C], dx[ROWS * C], dresidual[ROWS * C];
    static float mean[C], rstd[C], mean_sum[C], var_sum[C], dgamma[C], dbeta[C];
    float       *x        = nn_values_load("bn.", "x", NN_FLOAT32, (size_t)ROWS * C);
    float       *residual = nn_values_load("bn.", "residual", NN_FLOAT32, (size_t)ROWS * C);
    float       *dy       = nn_values_load("bn.", "dy", NN_FLOAT32, (size_t)ROWS * C);
    float       *gamma    = nn_values_load("bn.", "gamma", NN_FLOAT32, C);
    float       *beta     = nn_values_load("bn.", "beta", NN_FLOAT32, C);
    float       *old_mean = nn_values_load("bn.", "mean", NN_FLOAT32, C);
    float       *old_var  = nn_values_load("bn.", "var", NN_FLOAT32, C);
    nn_world_t   world;

    ddp_batch_norm_args_t          forward  = {.x        = x,
                                               .rows     = ROWS,
                                               .c        = C,
                                               .gamma    = gamma,
                                               .beta     = beta,
                                               .eps      = 1e-5F,
                                               .residual = residual,
                                               .act      = DDP_ACT_RELU,
                                               .y        = y,
                                               .mean     = mean,
                                               .rstd     = rstd,
                                               .mean_sum = mean_sum,
                                               .var_sum  = var_sum};
    ddp_batch_norm_backward_args_t backward = {.x         = x,
                                               .dy        = dy,
                                               .rows      = ROWS,
                                               .c         = C,
                                               .gamma     = gamma,
                                               .beta      = beta,
                                               .mean      = mean,
                                               .rstd      = rstd,
                                               .act       = DDP_ACT_RELU,
                                               .y         = y,
                                               .dx        = dx,
                                               .dresidual = dresidual,
                                               .dgamma    = dgamma,
                                               .dbeta     = dbeta};

    nn_world_open(&world, (ddp_isa_t)_i);
    ddp_assert_ok(ddp_op_batch_norm(world.stream, &forward));
    ddp_assert_ok(ddp_op_batch_norm_backward(world.stream, &backward));
    nn_world_wait(&world);
    check_values("y", y, (size_t)ROWS * C, 1e-6);
    check_values("dx", dx, (size_t)ROWS * C, 1e-6);
    check_values("dresidual", dresidual, (size_t)ROWS * C, 0);
    check_values("dgamma", dgamma, C, 1e-6);
    check_values("dbeta", dbeta, C, 1e-6);
    for (size_t j = 0; j < C; j++) {
        mean_sum[j] = 0.9F * old_mean[j] + 0.1F * mean_sum[j];
        var_sum[j]  = 0.9F * old_var[j] + 0.1F * var_sum[j];
    }
    check_values("new_mean", mean_sum, C, 1e-6);
    check_values("new_var", var_sum, C, 1e-6);
    forward.running_mean = old_mean;
    forward.running_var  = old_var;
    forward.residual     = NULL;
    forward.act          = DDP_ACT_NONE;
    forward.mean_sum = forward.var_sum = NULL;
    ddp_assert_ok(ddp_op_batch_norm(world.stream, &forward));
    nn_world_wait(&world);
    check_values("eval", y, (size_t)ROWS * C, 1e-6);
    nn_world_close(&world);
    free(x);
    free(residual);
    free(dy);
    free(gamma);
    free(beta);
    free(old_mean);
    free(old_var);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("resnet steps");
    TCase *tcase = tcase_create("all");

    tcase_add_unchecked_fixture(tcase, open_file, nn_values_close);
    tcase_add_loop_test(tcase, batch_normalisation_equals_pytorch, 0, nn_isas());
    tcase_add_loop_test(tcase, a_hundred_steps_stay_near_pytorch, 0, nn_isas());
    tcase_add_loop_test(tcase, a_hundred_steps_with_winograd_stay_near_pytorch, 0, nn_isas());
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
