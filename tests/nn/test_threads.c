/* Several devices in one process, each in its own thread, that train the same model with parameters of their
 * own. Under the thread sanitizer this shows what they share: the model, and nothing that is written. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nn/model.h"
#include "tests/nn/nn_program.h"
#include "tests/support/ddp_test.h"

#define THREADS    4
#define STEPS      3
#define SAMPLES    3
#define LENGTH     16
#define MAX_IMAGE  (16 * 16 * 3)
#define VOCAB      256
#define RATE       0.05F
#define COUNT(all) (sizeof(all) / sizeof((all)[0]))

static const ddp_model_config_t models[] = {
    {.kind     = DDP_MODEL_MLP,
     .height   = 9,
     .width    = 7,
     .channels = 1,
     .classes  = 5,
     .n_hidden = 2,
     .hidden   = {33, 20},
     .dropout  = 0.2F},
    {.kind = DDP_MODEL_CNN, .height = 12, .width = 12, .channels = 1, .classes = 5, .dropout = 0.2F},
    {.kind = DDP_MODEL_RESNET, .depth = 20, .height = 16, .width = 16, .channels = 3, .classes = 5},
    {.kind     = DDP_MODEL_GPT2,
     .layers   = 2,
     .heads    = 2,
     .channels = 64,
     .context  = 32,
     .vocab    = VOCAB,
     .dropout  = 0.2F}};

/* One device and what it did. */
typedef struct lane {
    const ddp_params_t *params; /* of the model: to clone */
    ddp_model_t        *model;  /* shared */
    size_t              which;  /* model */
    size_t              number;
    pthread_barrier_t  *all; /* NULL: alone */
    float              *values;
    ddp_loss_stats_t    stats[STEPS];
    ddp_device_memory_t memory;
    ddp_status_t        status;
    char                line[DDP_ERROR_LINE_SIZE];
} lane_t;

typedef struct replica {
    ddp_device_t *device;
    ddp_stream_t *stream;
    ddp_params_t *params;
    ddp_tape_t   *tape;
    float         images[SAMPLES * MAX_IMAGE];
    int32_t       tokens[SAMPLES * LENGTH], targets[SAMPLES * LENGTH];
} replica_t;

/* Devices that differ: instruction set, precision, blocks run again. */
static ddp_status_t open_replica(const lane_t *lane, replica_t *r)
{
    const size_t        isas   = (size_t)nn_isas();
    ddp_status_t        status = DDP_OK;
    ddp_device_params_t device = DDP_DEVICE_PARAMS_INIT;
    ddp_tape_params_t   tape   = DDP_TAPE_PARAMS_INIT;

    device.isa = (ddp_isa_t)(isas - 1 - lane->number % isas);
    DDP_TRY(ddp_device_create(&device, &r->device));
    DDP_TRY(ddp_stream_create(r->device, "compute", &r->stream));
    DDP_TRY(ddp_params_clone(lane->params, &r->params));
    DDP_TRY(ddp_params_allocate(r->params, ddp_device_allocator(r->device)));
    DDP_TRY(ddp_params_initialize(r->params, r->stream, lane->number));
    tape.stream = r->stream;
    tape.params = r->params;
    DDP_TRY(ddp_tape_create(&tape, &r->tape));
    ddp_tape_set_recompute(r->tape, lane->number % 2 == 1);
    ddp_tape_set_precision(r->tape, lane->number == 3 ? DDP_PRECISION_BF16 : DDP_PRECISION_FLOAT32);
    nn_noise(r->images, COUNT(r->images), (uint32_t)lane->number);
    for (size_t i = 0; i < COUNT(r->tokens); i++) {
        r->tokens[i]  = (int32_t)((i * 37 + lane->number) % VOCAB);
        r->targets[i] = (int32_t)(i % 5);
    }
out:
    return status;
}

static void close_replica(replica_t *r)
{
    if (r->stream != NULL) {
        ddp_ignore(ddp_stream_synchronize(r->stream, 60000), "it ends here in any case");
    }
    ddp_tape_destroy(&r->tape);
    ddp_params_destroy(&r->params);
    ddp_stream_destroy(&r->stream);
    ddp_device_destroy(&r->device);
}

static ddp_status_t run_forward(const lane_t *lane, replica_t *r, const ddp_model_config_t *config,
                                ddp_loss_stats_t **stats_p)
{
    const size_t  shape[4] = {SAMPLES, config->height, config->width, config->channels};
    ddp_status_t  status   = DDP_OK;
    ddp_tensor_t *x        = NULL;

    if (config->kind == DDP_MODEL_GPT2) {
        return ddp_model_forward_tokens(lane->model, r->tape, r->tokens, r->targets, SAMPLES, LENGTH,
                                        stats_p);
    }
    DDP_TRY(ddp_tape_input(r->tape, r->images, 4, shape, &x));
    DDP_TRY(ddp_model_forward(lane->model, r->tape, x, &x));
    DDP_TRY(ddp_nn_cross_entropy(r->tape, x, r->targets, NULL, -1, stats_p));
out:
    return status;
}

/* Train, with gradient descent as the optimizer. */
static ddp_status_t train(lane_t *lane, replica_t *r, const ddp_model_config_t *config)
{
    const size_t      total  = ddp_params_total(lane->params);
    const size_t      first  = ddp_params_count(lane->params) - 1; /* lies first */
    ddp_status_t      status = DDP_OK;
    ddp_loss_stats_t *stats  = NULL;

    for (size_t step = 0; step < STEPS; step++) {
        const ddp_tape_begin_t begin = {
            .training = true, .seed = 7, .step = step, .first_row = lane->number * SAMPLES};

        DDP_TRY(ddp_tape_begin(r->tape, &begin));
        DDP_TRY(run_forward(lane, r, config, &stats));
        DDP_TRY(ddp_tape_backward(r->tape));
        DDP_TRY(ddp_op_axpy(r->stream, -RATE / SAMPLES, ddp_params_grad(r->params, first),
                            ddp_params_value(r->params, first), total));
        DDP_TRY(ddp_stream_synchronize(r->stream, 60000));
        lane->stats[step] = *stats;
    }
    lane->memory = ddp_device_memory(r->device);
    memcpy(lane->values, ddp_params_value(r->params, first), total * sizeof(float));
out:
    return status;
}

static void *run_lane(void *argument)
{
    lane_t    *lane = argument;
    replica_t *r    = calloc(1, sizeof(*r));

    lane->status = r != NULL ? DDP_OK : DDP_ERR_NO_MEMORY;
    if (lane->all != NULL) {
        (void)pthread_barrier_wait(lane->all);
    }
    if (lane->status == DDP_OK) {
        lane->status = open_replica(lane, r);
    }
    if (lane->status == DDP_OK) {
        lane->status = train(lane, r, &models[lane->which]);
    }
    snprintf(lane->line, sizeof(lane->line), "%s", ddp_error_line());
    if (r != NULL) {
        close_replica(r);
    }
    free(r);
    return NULL;
}

/* _i: which model. The threads run first: what is made when it is first needed is not there yet. */
START_TEST(devices_in_threads_give_the_bits_of_each_alone)
{
    pthread_barrier_t all;
    pthread_t         threads[THREADS];
    lane_t            together[THREADS], alone;
    ddp_params_t     *params = NULL;
    ddp_model_t      *model  = NULL;
    size_t            bytes;

    ddp_assert_ok(ddp_params_create(&params));
    ddp_assert_ok(ddp_model_create(&models[_i], params, &model));
    bytes = ddp_params_total(params) * sizeof(float);
    ck_assert_int_eq(pthread_barrier_init(&all, NULL, THREADS), 0);
    for (size_t i = 0; i < THREADS; i++) {
        together[i] = (lane_t){.params = params,
                               .model  = model,
                               .which  = (size_t)_i,
                               .number = i,
                               .all    = &all,
                               .values = malloc(bytes)};
        ck_assert_int_eq(pthread_create(&threads[i], NULL, run_lane, &together[i]), 0);
    }
    for (size_t i = 0; i < THREADS; i++) {
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    }
    for (size_t i = 0; i < THREADS; i++) {
        ck_assert_msg(together[i].status == DDP_OK, "thread %zu: %s", i, together[i].line);
        alone = (lane_t){
            .params = params, .model = model, .which = (size_t)_i, .number = i, .values = malloc(bytes)};
        (void)run_lane(&alone);
        ck_assert_msg(alone.status == DDP_OK, "%s", alone.line);
        ck_assert_mem_eq(alone.stats, together[i].stats, sizeof(alone.stats));
        ck_assert(alone.stats[0].loss != alone.stats[STEPS - 1].loss && alone.stats[0].loss > 0.0F);
        ck_assert_mem_eq(alone.values, together[i].values, bytes);
        ck_assert_mem_eq(&alone.memory, &together[i].memory, sizeof(alone.memory));
        free(alone.values);
        free(together[i].values);
    }
    ck_assert_int_eq(pthread_barrier_destroy(&all), 0);
    ddp_model_destroy(&model);
    ddp_params_destroy(&params);
}
END_TEST

/* A thread's error: made, then read when all others have made theirs. */
typedef struct failing {
    pthread_barrier_t *all;
    size_t             number;
    ddp_status_t       status;
    char               line[DDP_ERROR_LINE_SIZE];
} failing_t;

static ddp_status_t fail_late(void *args)
{
    return ddp_fail(DDP_ERR_INVALID_ARG, "work of thread %zu", *(const size_t *)args);
}

static void *run_failing(void *argument)
{
    failing_t          *f      = argument;
    ddp_device_params_t params = DDP_DEVICE_PARAMS_INIT;
    ddp_device_t       *device = NULL;
    ddp_stream_t       *stream = NULL;

    f->status = ddp_device_create(&params, &device);
    if (f->status == DDP_OK) {
        f->status = ddp_stream_create(device, "failing", &stream);
    }
    (void)pthread_barrier_wait(f->all);
    if (f->status == DDP_OK) {
        ddp_ignore(ddp_stream_submit(stream, "fail", fail_late, &f->number, sizeof(f->number)),
                   "told when it is waited for");
        (void)pthread_barrier_wait(f->all);
        f->status = ddp_stream_synchronize(stream, -1);
        (void)pthread_barrier_wait(f->all);
        snprintf(f->line, sizeof(f->line), "%s", ddp_error_line());
    }
    ddp_stream_destroy(&stream);
    ddp_device_destroy(&device);
    return NULL;
}

START_TEST(each_thread_has_its_own_error)
{
    pthread_barrier_t all;
    pthread_t         threads[THREADS];
    failing_t         failing[THREADS];
    char              expected[32];

    ck_assert_int_eq(pthread_barrier_init(&all, NULL, THREADS), 0);
    for (size_t i = 0; i < THREADS; i++) {
        failing[i] = (failing_t){.all = &all, .number = i};
        ck_assert_int_eq(pthread_create(&threads[i], NULL, run_failing, &failing[i]), 0);
    }
    for (size_t i = 0; i < THREADS; i++) {
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
        snprintf(expected, sizeof(expected), "work of thread %zu", i);
        ck_assert_int_eq(failing[i].status, DDP_ERR_INVALID_ARG);
        ck_assert_str_eq(failing[i].line, expected);
    }
    ck_assert_int_eq(pthread_barrier_destroy(&all), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("threads");
    TCase *tcase = tcase_create("all");

    tcase_add_loop_test(tcase, devices_in_threads_give_the_bits_of_each_alone, 0, COUNT(models));
    tcase_add_test(tcase, each_thread_has_its_own_error);
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
