/* A hundred steps of GPT-2 on bytes next to PyTorch's; the values and how they were made:
 * tests/data/make_gpt2_steps.py. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nn/model.h"
#include "tests/nn/nn_values.h"
#include "tests/support/ddp_test.h"

#define STEPS   100
#define N       2
#define T       72 /* more than one block of rows in attention */
#define VOCAB   256
#define BUCKETS 2048
#define N_KEPT  4

static const size_t             kept_steps[N_KEPT] = {1, 5, 20, 100};
static const ddp_model_config_t config             = {
                .kind = DDP_MODEL_GPT2, .channels = 256, .layers = 4, .heads = 4, .context = T, .vocab = VOCAB};

/* The end of MurmurHash3. */
static uint32_t mix(uint32_t x)
{
    x ^= x >> 16;
    x *= 0x85ebca6bU;
    x ^= x >> 13;
    x *= 0xc2b2ae35U;
    return x ^ x >> 16;
}

typedef struct run {
    nn_world_t   world;
    ddp_model_t *model;
    nn_adamw_t   adamw;
    int32_t      tokens[STEPS][N][T], targets[STEPS][N][T];
    double       losses[STEPS];
} run_t;

static void make_text(run_t *run)
{
    for (uint32_t at = 0; at < STEPS * N; at++) {
        uint32_t draw = ((uint32_t)200 << 24) + at * (T + 1);
        int32_t  byte = (int32_t)(mix(draw) % VOCAB);

        for (uint32_t t = 0; t < T; t++) {
            run->tokens[at / N][at % N][t]  = byte;
            byte                            = (5 * byte + 17 * (int32_t)(mix(++draw) >> 30) + 3) % VOCAB;
            run->targets[at / N][at % N][t] = byte;
        }
    }
}

static void make_weights(const run_t *run)
{
    for (uint32_t i = 0; i < ddp_params_count(run->world.params); i++) {
        const ddp_tensor_desc_t *desc  = &ddp_params_descs(run->world.params)[i];
        float                   *value = ddp_params_value(run->world.params, i);
        const float scale = strstr(desc->name, "c_proj") != NULL ? 0x1p-29F : 0x1p-28F; /* up to 2^-6, 2^-5 */

        for (uint32_t j = 0; j < desc->count && desc->ndim == 2; j++) {
            value[j] = (float)((int32_t)(mix((i << 24) + j) >> 8) - (1 << 23)) * scale;
        }
    }
}

static void open_run(run_t *run, ddp_isa_t isa)
{
    nn_world_open(&run->world, isa);
    ck_assert_msg(ddp_model_create(&config, run->world.params, &run->model) == DDP_OK, "%s",
                  ddp_error_line());
    nn_world_start(&run->world, 1);
    nn_world_wait(&run->world);
    nn_adamw_open(&run->adamw, run->world.params);
    run->adamw.config.eps = 0x1p-20;
    make_text(run);
    make_weights(run);
}

static void close_run(run_t *run)
{
    nn_adamw_close(&run->adamw);
    ddp_model_destroy(&run->model);
    nn_world_close(&run->world);
}

static void train_step(run_t *run, size_t step)
{
    const ddp_tape_begin_t begin = {.training = true, .step = step};
    ddp_tape_t            *tape  = run->world.tape;
    ddp_loss_stats_t      *stats = NULL;

    ck_assert_int_eq(ddp_tape_begin(tape, &begin), DDP_OK);
    ck_assert_msg(ddp_model_forward_tokens(run->model, tape, run->tokens[step][0], run->targets[step][0], N,
                                           T, &stats) == DDP_OK,
                  "%s", ddp_error_line());
    ck_assert_int_eq(ddp_tape_backward(tape), DDP_OK);
    nn_world_wait(&run->world);
    run->losses[step] = (double)stats->loss / (double)stats->weight;
    nn_adamw_update(&run->adamw, &run->world, step + 1, 0x1p-10F, stats->weight);
}

/** The distance from the float64 weights whose sketch is given: make_gpt2_steps.py. */
static double distance(const run_t *run, const double *wanted)
{
    double   sketch[BUCKETS] = {0};
    double   sum             = 0.0;
    uint32_t at              = (uint32_t)100 << 24;

    for (size_t i = 0; i < ddp_params_count(run->world.params); i++) {
        const ddp_tensor_desc_t *desc = &ddp_params_descs(run->world.params)[i];
        const bool               out  = strstr(desc->name, "c_attn.bias") != NULL;

        for (size_t j = 0; j < desc->count; j++) {
            const uint32_t h = mix(at++);
            const double   w = out ? 0.0 : (double)ddp_params_value(run->world.params, i)[j];

            sketch[h % BUCKETS] += h >> 31 != 0 ? -w : w;
        }
    }
    for (size_t i = 0; i < BUCKETS; i++) {
        sum += (sketch[i] - wanted[i]) * (sketch[i] - wanted[i]);
    }
    return sqrt(sum);
}

/** Twice PyTorch's float32 distance from its float64 run; of the loss, which crosses the other curve now and
 * then, its largest distance so far, and the rounding of a float32 sum of losses. */
static void check_kept_step(const run_t *run, size_t k)
{
    const size_t step        = kept_steps[k];
    double      *losses64    = nn_values_load("", "losses64", NN_FLOAT64, STEPS);
    double      *losses32    = nn_values_load("", "losses32", NN_FLOAT64, STEPS);
    double      *distances32 = nn_values_load("", "distances32", NN_FLOAT64, N_KEPT);
    double      *sketch;
    char         name[16];
    double       ours;
    double       loss_error = fabs(run->losses[step - 1] - losses64[step - 1]);
    double       largest    = 0.0;

    snprintf(name, sizeof(name), "%zu", step);
    sketch = nn_values_load("sketch", name, NN_FLOAT64, BUCKETS);
    ours   = distance(run, sketch);
    for (size_t i = 0; i < step; i++) {
        largest = fmax(largest, fabs(losses32[i] - losses64[i]));
    }
    ck_assert_msg(ours <= 2.0 * distances32[k], "step %zu: weights off by %g, PyTorch by %g", step, ours,
                  distances32[k]);
    ck_assert_msg(loss_error <= 2.0 * largest + losses64[step - 1] * 0x1p-22,
                  "step %zu: loss off by %g, PyTorch by %g", step, loss_error, largest);
    free(losses64);
    free(losses32);
    free(distances32);
    free(sketch);
}

START_TEST(a_hundred_steps_stay_near_pytorch)
{
    /* the longest run is that of the fastest set: a plain step takes long */
    const size_t steps = _i == DDP_ISA_PLAIN ? 5 : _i < (int)ddp_isa_detect() ? 20 : STEPS;
    run_t       *run   = malloc(sizeof(*run));
    size_t       kept  = 0;

    nn_values_open(DDP_TEST_DATA_DIR "/gpt2_steps.bin");
    open_run(run, (ddp_isa_t)_i);
    for (size_t step = 0; step < steps; step++) {
        train_step(run, step);
        if (kept_steps[kept] == step + 1) {
            check_kept_step(run, kept++);
        }
    }
    ck_assert_uint_eq(kept_steps[kept - 1], steps);
    close_run(run);
    nn_values_close();
    free(run);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gpt2 steps");
    TCase *tcase = tcase_create("all");

    tcase_add_loop_test(tcase, a_hundred_steps_stay_near_pytorch, 0, nn_isas());
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
