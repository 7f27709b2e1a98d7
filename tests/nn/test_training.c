/* Twenty steps of mlp and cnn against PyTorch; the values and how they were made:
 * tests/data/make_training.py. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/optim.h"
#include "nn/model.h"
#include "tests/nn/nn_program.h"
#include "tests/support/ddp_test.h"

#define STEPS   20
#define BATCHES 5
#define SAMPLE  11 /* every SAMPLE-th weight is in the file */
#define N_KEPT  3

/* One array of the file. */
typedef struct header {
    char     name[48];
    uint32_t type; /* 0 float32, 1 float64, 2 int32 */
    uint32_t ndim;
    uint32_t shape[4];
} header_t;

static unsigned char *file_bytes;
static size_t         file_size;
static const size_t   kept_steps[N_KEPT] = {1, 5, 20};

static void read_file(void)
{
    FILE *file = fopen(DDP_TEST_DATA_DIR "/training.bin", "rb");
    long  size;

    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(fseek(file, 0, SEEK_END), 0);
    size = ftell(file);
    ck_assert_int_gt(size, 0);
    rewind(file);
    file_size  = (size_t)size;
    file_bytes = malloc(file_size);
    ck_assert_uint_eq(fread(file_bytes, 1, file_size, file), file_size);
    fclose(file);
}

static void drop_file(void)
{
    free(file_bytes);
}

/** The array `model`.`kind`: its elements, aligned, to be freed. */
static void *load(const char *model, const char *kind, uint32_t type, size_t *count_p)
{
    static const size_t type_size[] = {4, 8, 4};
    char                name[128];
    size_t              at = 0;

    snprintf(name, sizeof(name), "%s.%s", model, kind);
    while (at + sizeof(header_t) <= file_size) {
        header_t header;
        size_t   count;
        void    *copy;

        memcpy(&header, file_bytes + at, sizeof(header));
        at += sizeof(header);
        count = (size_t)header.shape[0] * header.shape[1] * header.shape[2] * header.shape[3];
        if (strcmp(header.name, name) == 0) {
            ck_assert_uint_eq(header.type, type);
            copy = malloc(count * type_size[type]);
            memcpy(copy, file_bytes + at, count * type_size[type]);
            *count_p = count;
            return copy;
        }
        at += count * type_size[header.type];
    }
    ck_abort_msg("%s is not in the file", name);
    return NULL;
}

/* One training run. */
typedef struct run {
    const char        *name; /* "mlp" */
    const char        *kind; /* "mlp.adamw" */
    size_t             batch;
    double             factor; /* how much further from float64 than PyTorch's float32 we may be */
    ddp_isa_t          isa;
    ddp_optim_config_t optim;
    float              lr;
    nn_world_t         world;
    ddp_model_t       *model;
    float             *images;
    int32_t           *labels;
    float             *slot[2]; /* flat, as the parameters */
    double             losses[STEPS];
} run_t;

static void open_run(run_t *run, const ddp_model_config_t *config)
{
    size_t count = 0;

    nn_world_open(&run->world, run->isa);
    ck_assert_int_eq(ddp_model_create(config, run->world.params, &run->model), DDP_OK);
    nn_world_start(&run->world, 1);
    nn_world_wait(&run->world);
    run->images = load(run->name, "images", 0, &count);
    ck_assert_uint_eq(count, BATCHES * run->batch * config->height * config->width);
    run->labels = load(run->name, "labels", 2, &count);
    ck_assert_uint_eq(count, BATCHES * run->batch);
    for (size_t i = 0; i < ddp_params_count(run->world.params); i++) {
        const ddp_tensor_desc_t *desc = &ddp_params_descs(run->world.params)[i];
        char                     name[64];
        float                   *start;

        snprintf(name, sizeof(name), "start.%s", desc->name);
        start = load(run->name, name, 0, &count);
        ck_assert_uint_eq(count, desc->count);
        memcpy(ddp_params_value(run->world.params, i), start, count * sizeof(float));
        free(start);
    }
    for (size_t i = 0; i < 2; i++) {
        run->slot[i] = aligned_alloc(DDP_ALIGNMENT, ddp_params_total(run->world.params) * sizeof(float));
        memset(run->slot[i], 0, ddp_params_total(run->world.params) * sizeof(float));
    }
}

static void close_run(run_t *run)
{
    free(run->slot[0]);
    free(run->slot[1]);
    free(run->images);
    free(run->labels);
    ddp_model_destroy(&run->model);
    nn_world_close(&run->world);
}

static void backward(run_t *run, size_t step, const ddp_model_config_t *config)
{
    const size_t           first    = step % BATCHES * run->batch;
    const size_t           shape[4] = {run->batch, config->height, config->width, 1};
    const ddp_tape_begin_t begin    = {.training = true, .step = step};
    ddp_tape_t            *tape     = run->world.tape;
    ddp_tensor_t          *x        = NULL;
    ddp_tensor_t          *logits   = NULL;
    ddp_loss_stats_t      *stats    = NULL;

    ck_assert_int_eq(ddp_tape_begin(tape, &begin), DDP_OK);
    ck_assert_int_eq(ddp_tape_input(tape, run->images + first * shape[1] * shape[2], 4, shape, &x), DDP_OK);
    ck_assert_msg(ddp_model_forward(run->model, tape, x, &logits) == DDP_OK, "%s", ddp_error_line());
    ck_assert_int_eq(ddp_nn_cross_entropy(tape, logits, run->labels + first, NULL, -100, &stats), DDP_OK);
    ck_assert_int_eq(ddp_tape_backward(tape), DDP_OK);
    nn_world_wait(&run->world);
    run->losses[step] = (double)stats->loss / (double)stats->weight;
}

static void update(run_t *run, size_t step)
{
    static const int32_t op[1] = {0};

    for (size_t i = 0; i < ddp_params_count(run->world.params); i++) {
        const ddp_tensor_desc_t *desc    = &ddp_params_descs(run->world.params)[i];
        const float             *grad    = ddp_params_grad(run->world.params, i);
        const ddp_tree_program_t program = {.op = op, .length = 1, .source = &grad};
        const ddp_update_t       args    = {.config     = &run->optim,
                                            .lr         = run->lr,
                                            .grad_scale = 1.0F / (float)run->batch,
                                            .step       = step + 1,
                                            .param      = ddp_params_value(run->world.params, i),
                                            .slot = {run->slot[0] + desc->offset, run->slot[1] + desc->offset}};

        ddp_tree_update(run->isa, &program, &args, ddp_block_round(desc->count) / DDP_BLOCK);
    }
}

static void check_gradients(const run_t *run)
{
    for (size_t i = 0; i < ddp_params_count(run->world.params); i++) {
        const ddp_tensor_desc_t *desc    = &ddp_params_descs(run->world.params)[i];
        const float             *grad    = ddp_params_grad(run->world.params, i);
        double                   largest = 0, worst = 0;
        size_t                   count = 0;
        char                     name[64];
        float                   *expected;

        snprintf(name, sizeof(name), "grad.%s", desc->name);
        expected = load(run->name, name, 0, &count);
        ck_assert_uint_eq(count, desc->count);
        for (size_t j = 0; j < count; j++) {
            const double error = fabs((double)grad[j] - (double)expected[j]);

            largest = fmax(largest, fabs((double)expected[j]));
            worst   = isnan(error) ? INFINITY : fmax(worst, error);
        }
        free(expected);
        ck_assert_msg(worst <= 1e-5 * largest, "%s %s: gradient off by %g, largest entry %g", run->kind,
                      desc->name, worst, largest);
    }
}

/** The distance of the sampled weights from PyTorch's float64 run, and the length of its weights. */
static double distance(const run_t *run, size_t step, double *length_p)
{
    double sum = 0, length = 0;

    for (size_t i = 0; i < ddp_params_count(run->world.params); i++) {
        const ddp_tensor_desc_t *desc  = &ddp_params_descs(run->world.params)[i];
        const float             *value = ddp_params_value(run->world.params, i);
        size_t                   count = 0;
        char                     name[64];
        double                  *expected;

        snprintf(name, sizeof(name), "step%zu.%s", step, desc->name);
        expected = load(run->kind, name, 1, &count);
        ck_assert_uint_eq(count, (desc->count + SAMPLE - 1) / SAMPLE);
        for (size_t j = 0; j < count; j++) {
            const double error = (double)value[j * SAMPLE] - expected[j];

            sum += error * error;
            length += expected[j] * expected[j];
        }
        free(expected);
    }
    *length_p = sqrt(length);
    return sqrt(sum);
}

/**
 * At steps 1, 5 and 20 loss and weights may be `factor` times as far from PyTorch's float64 run as its
 * float32 run is, and a floor more, because one step of luck must not decide: 2^-24 of the weights' length,
 * which is what rounding them to float32 costs at most, and 2^-22 of the loss, four roundings of a float32
 * sum.
 */
static void check_kept_step(const run_t *run, size_t k)
{
    size_t       n           = 0;
    const size_t step        = kept_steps[k];
    double      *losses64    = load(run->kind, "losses64", 1, &n);
    double      *losses32    = load(run->kind, "losses32", 1, &n);
    double      *distances32 = load(run->kind, "distances32", 1, &n);
    double       length      = 0;
    const double ours        = distance(run, step, &length);
    const double bound       = run->factor * distances32[k] + length * 0x1p-24;
    const double loss_error  = fabs(run->losses[step - 1] - losses64[step - 1]);
    const double loss_bound =
        run->factor * fabs(losses32[step - 1] - losses64[step - 1]) + losses64[step - 1] * 0x1p-22;

    free(losses64);
    free(losses32);
    free(distances32);
    ck_assert_msg(ours <= bound, "%s on %s, step %zu: weights off by %g, bound %g", run->kind,
                  ddp_isa_name(run->isa), step, ours, bound);
    ck_assert_msg(loss_error <= loss_bound, "%s on %s, step %zu: loss off by %g, bound %g", run->kind,
                  ddp_isa_name(run->isa), step, loss_error, loss_bound);
}

static void train(run_t run, const ddp_model_config_t *config)
{
    size_t kept = 0;

    open_run(&run, config);
    for (size_t step = 0; step < STEPS; step++) {
        backward(&run, step, config);
        if (step == 0) {
            check_gradients(&run);
        }
        update(&run, step);
        if (kept < N_KEPT && kept_steps[kept] == step + 1) {
            check_kept_step(&run, kept++);
        }
    }
    ck_assert_uint_eq(kept, N_KEPT);
    close_run(&run);
}

static const ddp_model_config_t mlp = {.kind     = DDP_MODEL_MLP,
                                       .height   = 12,
                                       .width    = 12,
                                       .channels = 1,
                                       .classes  = 10,
                                       .n_hidden = 2,
                                       .hidden   = {32, 32}};
static const ddp_model_config_t cnn = {
    .kind = DDP_MODEL_CNN, .height = 12, .width = 12, .channels = 1, .classes = 10};

static void train_on_all_isas(run_t run, const ddp_model_config_t *config)
{
    for (int isa = 0; isa < nn_isas(); isa++) {
        run.isa = (ddp_isa_t)isa;
        train(run, config);
    }
}

static const ddp_optim_config_t adamw = DDP_OPTIM_CONFIG_ADAMW;
static const ddp_optim_config_t sgd   = {.kind = DDP_OPTIM_SGD, .momentum = 0.9, .weight_decay = 0x1p-10};

START_TEST(twenty_steps_of_the_mlp_with_adamw_stay_near_pytorch)
{
    train_on_all_isas(
        (run_t){.name = "mlp", .kind = "mlp.adamw", .batch = 16, .factor = 2, .optim = adamw, .lr = 0x1p-8F},
        &mlp);
}
END_TEST

START_TEST(twenty_steps_of_the_mlp_with_sgd_stay_near_pytorch)
{
    train_on_all_isas(
        (run_t){.name = "mlp", .kind = "mlp.sgd", .batch = 16, .factor = 2, .optim = sgd, .lr = 0x1p-5F},
        &mlp);
}
END_TEST

/*
 * Direct, because AdamW divides by the size of a gradient: weights whose gradient is exactly 0 (inputs that
 * no sample activates) stay where they are in PyTorch, but move by up to lr where Winograd's rounding leaves
 * 1e-9 of it.
 */
START_TEST(twenty_steps_of_the_cnn_with_adamw_stay_near_pytorch)
{
    ddp_model_config_t config = cnn;

    config.conv = DDP_CONV_DIRECT;
    train_on_all_isas(
        (run_t){.name = "cnn", .kind = "cnn.adamw", .batch = 8, .factor = 2, .optim = adamw, .lr = 0x1p-8F},
        &config);
}
END_TEST

/* Winograd's transforms cost some bits: 4 instead of 2. */
START_TEST(twenty_steps_of_the_cnn_with_sgd_stay_near_pytorch)
{
    ddp_model_config_t config = cnn;

    for (int conv = DDP_CONV_DIRECT; conv <= DDP_CONV_WINOGRAD4; conv++) {
        config.conv = (ddp_conv_algo_t)conv;
        train_on_all_isas((run_t){.name   = "cnn",
                                  .kind   = "cnn.sgd",
                                  .batch  = 8,
                                  .factor = conv == DDP_CONV_DIRECT ? 2 : 4,
                                  .optim  = sgd,
                                  .lr     = 0x1p-5F},
                          &config);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("training");
    TCase *tcase = tcase_create("all");

    tcase_add_unchecked_fixture(tcase, read_file, drop_file);
    tcase_add_test(tcase, twenty_steps_of_the_mlp_with_adamw_stay_near_pytorch);
    tcase_add_test(tcase, twenty_steps_of_the_mlp_with_sgd_stay_near_pytorch);
    tcase_add_test(tcase, twenty_steps_of_the_cnn_with_adamw_stay_near_pytorch);
    tcase_add_test(tcase, twenty_steps_of_the_cnn_with_sgd_stay_near_pytorch);
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
