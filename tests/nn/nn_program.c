#include "tests/nn/nn_program.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/ddp_test.h"

#define STEP_H     1e-6 /* of the central difference: its error is about 1e-16 / STEP_H of the loss */
#define MIN_MARGIN 1e-5 /* so that neither STEP_H nor float32 rounding changes a decision */
#define MAX_PARAMS 16

int nn_isas(void)
{
    return (int)ddp_isa_detect() + 1;
}

void nn_noise(float *values, size_t count, uint32_t seed)
{
    for (size_t i = 0; i < count; i++) {
        const uint32_t counter[4] = {(uint32_t)i, 0, 0, 77};
        uint32_t       random[4];

        ddp_philox(seed, counter, random);
        values[i] = (float)random[0] * 0x1p-31F - 1.0F;
    }
}

void nn_world_open(nn_world_t *world, ddp_isa_t isa)
{
    ddp_device_params_t device = DDP_DEVICE_PARAMS_INIT;

    memset(world, 0, sizeof(*world));
    device.isa = isa;
    ck_assert_int_eq(ddp_device_create(&device, &world->device), DDP_OK);
    ck_assert_int_eq(ddp_stream_create(world->device, "compute", &world->stream), DDP_OK);
    ck_assert_int_eq(ddp_params_create(&world->params), DDP_OK);
}

void nn_world_start(nn_world_t *world, uint64_t seed)
{
    ddp_tape_params_t tape = DDP_TAPE_PARAMS_INIT;

    tape.stream = world->stream;
    tape.params = world->params;
    ck_assert_int_eq(ddp_params_allocate(world->params, ddp_device_allocator(world->device)), DDP_OK);
    ck_assert_int_eq(ddp_params_initialize(world->params, world->stream, seed), DDP_OK);
    ck_assert_int_eq(ddp_tape_create(&tape, &world->tape), DDP_OK);
}

void nn_world_wait(nn_world_t *world)
{
    ck_assert_msg(ddp_stream_synchronize(world->stream, 60000) == DDP_OK, "%s", ddp_error_line());
}

void nn_world_close(nn_world_t *world)
{
    nn_world_wait(world);
    ddp_tape_destroy(&world->tape);
    ddp_params_destroy(&world->params);
    ddp_stream_destroy(&world->stream);
    ddp_device_destroy(&world->device);
}

static void add_averages(const nn_program_t *program, size_t step, ddp_params_t *params)
{
    static const char *const names[2] = {"mean", "var"};
    const size_t *const      shape    = program->params[program->steps[step].weight].shape;
    size_t                   index    = 0;

    for (size_t i = 0; i < 2; i++) {
        const ddp_init_t init = {.kind = i == 0 ? DDP_INIT_ZERO : DDP_INIT_ONE};
        char             name[32];

        snprintf(name, sizeof(name), "norm%zu.running_%s", step, names[i]);
        ck_assert_int_eq(ddp_params_add_average(params, name, 1, shape, init, 0.1F, &index), DDP_OK);
    }
}

/* Which averages step `i` has. */
static size_t averages_of(const nn_program_t *program, size_t i)
{
    size_t index = program->n_params;

    while (i > 0) {
        index += program->steps[--i].op == NN_NORM ? 2 : 0;
    }
    return index;
}

void nn_program_start(const nn_program_t *program, nn_world_t *world, uint64_t seed)
{
    size_t index = 0;

    for (size_t i = 0; i < program->n_params; i++) {
        const nn_param_t *param = &program->params[i];
        const ddp_init_t  init  = {.kind   = param->fan_in == 0 ? DDP_INIT_ZERO : DDP_INIT_UNIFORM,
                                   .fan_in = param->fan_in};

        ck_assert_int_eq(ddp_params_add(world->params, param->name, param->ndim, param->shape, init, &index),
                         DDP_OK);
        ck_assert_uint_eq(index, i);
    }
    for (size_t i = 0; i < program->n_steps; i++) {
        if (program->steps[i].op == NN_NORM) {
            add_averages(program, i, world->params);
        }
    }
    ck_assert_int_eq(ddp_params_finish(world->params), DDP_OK);
    nn_world_start(world, seed);
    for (size_t i = 0; i < program->n_params; i++) {
        if (program->params[i].fan_in == 0) {
            ck_assert_int_eq(ddp_op_fill(world->stream, ddp_params_value(world->params, i),
                                         ddp_params_descs(world->params)[i].count, 0.25F),
                             DDP_OK);
        }
    }
}

static ddp_status_t run_norm(const nn_program_t *program, size_t i, ddp_tape_t *tape, ddp_tensor_t **values,
                             ddp_tensor_t **y_p)
{
    const nn_step_t       *step     = &program->steps[i];
    const size_t           averages = averages_of(program, i);
    const ddp_batch_norm_t norm     = {(size_t)step->weight, (size_t)step->bias, averages, averages + 1,
                                       (float)NN_EPS};

    return ddp_nn_batch_norm(tape, values[step->x], &norm, step->x2 > 0 ? values[step->x2] : NULL, step->act,
                             y_p);
}

static ddp_status_t run_step(const nn_program_t *program, size_t i, ddp_tape_t *tape, ddp_tensor_t **values,
                             ddp_tensor_t **y_p)
{
    const nn_step_t *step   = &program->steps[i];
    ddp_tensor_t    *x      = values[step->x];
    const size_t     weight = (size_t)step->weight;
    const size_t     bias   = step->bias == NN_NONE ? DDP_NO_PARAM : (size_t)step->bias;

    switch (step->op) {
    case NN_LINEAR:
        return ddp_nn_linear(tape, x, weight, bias, step->act, y_p);
    case NN_CONV:
        return ddp_nn_conv2d(tape, x, weight, bias, step->stride, step->pad, step->act, y_p);
    case NN_ACT:
        return ddp_nn_act(tape, x, step->act, y_p);
    case NN_MAX_POOL:
        return ddp_nn_max_pool2d(tape, x, step->kernel, step->stride, step->pad, y_p);
    case NN_AVG_POOL:
        return ddp_nn_avg_pool2d(tape, x, step->kernel, step->stride, step->pad, y_p);
    case NN_FLATTEN:
        return ddp_nn_flatten(tape, x, y_p);
    case NN_DROPOUT:
        return ddp_nn_dropout(tape, x, step->p, y_p);
    case NN_ADD:
        return ddp_nn_add(tape, x, values[step->x2], y_p);
    case NN_NORM:
        return run_norm(program, i, tape, values, y_p);
    case NN_GLOBAL_POOL:
        return ddp_nn_global_avg_pool(tape, x, y_p);
    }
    return DDP_ERR_INVALID_ARG;
}

ddp_status_t nn_program_steps(const nn_program_t *program, ddp_tape_t *tape, size_t first, size_t last,
                              ddp_tensor_t *values[NN_MAX_STEPS + 1])
{
    ddp_status_t status = DDP_OK;

    for (size_t i = first; i < last && status == DDP_OK; i++) {
        status = run_step(program, i, tape, values, &values[i + 1]);
    }
    return status;
}

ddp_loss_stats_t *nn_program_forward(const nn_program_t *program, nn_world_t *world, const float *input,
                                     ddp_tensor_t *values[NN_MAX_STEPS + 1])
{
    ddp_loss_stats_t *stats = NULL;
    ddp_tensor_t     *last  = NULL;

    ck_assert_int_eq(ddp_tape_input(world->tape, input, program->ndim, program->shape, &values[0]), DDP_OK);
    ddp_assert_ok(nn_program_steps(program, world->tape, 0, program->n_steps, values));
    last = values[program->n_steps];
    if (program->labels != NULL) {
        ck_assert_int_eq(
            ddp_nn_cross_entropy(world->tape, last, program->labels, program->weights, -1, &stats), DDP_OK);
    } else {
        ck_assert_int_eq(ddp_nn_mse(world->tape, last, program->target, program->weights, &stats), DDP_OK);
    }
    return stats;
}

/* float64 copies of the parameters, and what dropout multiplied with. */
typedef struct copies {
    double *params[MAX_PARAMS];
    double *masks[NN_MAX_STEPS];
} copies_t;

static void take_copies(const nn_program_t *program, const nn_world_t *world, ddp_tensor_t *const *values,
                        copies_t *copies)
{
    memset(copies, 0, sizeof(*copies));
    for (size_t i = 0; i < program->n_params; i++) {
        const size_t count = ddp_params_descs(world->params)[i].count;
        const float *value = ddp_params_value(world->params, i);

        copies->params[i] = calloc(count, sizeof(double));
        for (size_t j = 0; j < count; j++) {
            copies->params[i][j] = (double)value[j];
        }
    }
    for (size_t i = 0; i < program->n_steps; i++) {
        const nn_step_t    *step = &program->steps[i];
        const ddp_tensor_t *x    = values[step->x];
        const ddp_tensor_t *y    = values[i + 1];

        if (step->op != NN_DROPOUT) {
            continue;
        }
        copies->masks[i] = calloc(y->count, sizeof(double));
        for (size_t j = 0; j < y->count; j++) {
            copies->masks[i][j] = x->data[j] != 0.0F && y->data[j] == 0.0F ? 0 : 1 / (1 - (double)step->p);
        }
    }
}

static void free_copies(copies_t *copies)
{
    for (size_t i = 0; i < MAX_PARAMS; i++) {
        free(copies->params[i]);
    }
    for (size_t i = 0; i < NN_MAX_STEPS; i++) {
        free(copies->masks[i]);
    }
}

static double difference(const nn_program_t *program, const float *input, copies_t *copies, size_t param,
                         size_t at)
{
    nn_reference_t       up, down;
    double *const        entry = &copies->params[param][at];
    const double         value = *entry;
    const double *const *p     = (const double *const *)copies->params;
    const double *const *masks = (const double *const *)copies->masks;

    *entry = value + STEP_H;
    nn_reference_run(program, input, p, masks, &up);
    *entry = value - STEP_H;
    nn_reference_run(program, input, p, masks, &down);
    *entry = value;
    return (up.loss - down.loss) / (2 * STEP_H);
}

static void check_param(const nn_program_t *program, const nn_world_t *world, const float *input,
                        copies_t *copies, size_t param, size_t every, double tolerance)
{
    const ddp_tensor_desc_t *desc    = &ddp_params_descs(world->params)[param];
    const float             *grad    = ddp_params_grad(world->params, param);
    double                   largest = 0, worst = 0;
    size_t                   at = 0;

    for (size_t j = 0; j < desc->count; j++) {
        largest = fmax(largest, fabs((double)grad[j]));
    }
    for (size_t k = 0; k < desc->count + every - 1; k += every) { /* the last entry too */
        const size_t j     = k < desc->count ? k : desc->count - 1;
        const double error = fabs((double)grad[j] - difference(program, input, copies, param, j));

        at    = error > worst || isnan(error) ? j : at;
        worst = isnan(error) ? INFINITY : fmax(worst, error);
    }
    ck_assert_msg(largest > 0, "parameter %s: its gradient is 0", desc->name);
    ck_assert_msg(worst <= tolerance * largest, "parameter %s entry %zu: off by %g, largest entry %g",
                  desc->name, at, worst, largest);
    for (size_t j = desc->count; j < ddp_block_round(desc->count); j++) {
        ck_assert_msg(grad[j] == 0.0F, "parameter %s: padding was written", desc->name);
    }
}

static void check_forward(const ddp_tensor_t *last, const ddp_loss_stats_t *stats,
                          const nn_reference_t *reference)
{
    double largest = 0, worst = 0;

    for (size_t j = 0; j < last->count; j++) {
        largest = fmax(largest, fabs(reference->logits[j]));
        worst   = fmax(worst, fabs((double)last->data[j] - reference->logits[j]));
    }
    ck_assert_msg(worst <= 1e-5 * largest, "forward is off by %g, largest value %g", worst, largest);
    ck_assert_double_eq_tol((double)stats->loss, reference->loss, 1e-5 * (1 + fabs(reference->loss)));
    ck_assert_double_eq_tol((double)stats->weight, reference->weight, 1e-5);
}

void nn_check_program(const nn_program_t *program, ddp_isa_t isa, uint64_t seed, size_t every,
                      double tolerance)
{
    const ddp_tape_begin_t  begin = {.training = true, .seed = seed, .step = 3, .first_row = 5};
    ddp_tensor_t           *values[NN_MAX_STEPS + 1];
    nn_world_t              world;
    copies_t                copies;
    nn_reference_t         *reference = calloc(1, sizeof(*reference));
    const ddp_loss_stats_t *stats;
    float                  *input;
    size_t                  count = 1;

    for (size_t i = 0; i < program->ndim; i++) {
        count *= program->shape[i];
    }
    input = calloc(count, sizeof(float));
    nn_noise(input, count, (uint32_t)seed + 1);
    nn_world_open(&world, isa);
    nn_program_start(program, &world, seed);
    ck_assert_int_eq(ddp_tape_begin(world.tape, &begin), DDP_OK);
    stats = nn_program_forward(program, &world, input, values);
    nn_world_wait(&world);
    take_copies(program, &world, values, &copies);
    nn_reference_run(program, input, (const double *const *)copies.params,
                     (const double *const *)copies.masks, reference);
    ck_assert_msg(reference->margin > MIN_MARGIN, "margin %g is too small, choose another seed",
                  reference->margin);
    check_forward(values[program->n_steps], stats, reference);
    ck_assert_msg(ddp_tape_backward(world.tape) == DDP_OK, "%s", ddp_error_line());
    nn_world_wait(&world);
    ck_assert(values[0]->grad == NULL && !values[0]->has_grad); /* nobody wants the gradient of an input */
    for (size_t i = 0; i < program->n_params; i++) {
        check_param(program, &world, input, &copies, i, every, tolerance);
    }
    free_copies(&copies);
    nn_world_close(&world);
    free(reference);
    free(input);
}

void nn_check_program_on_all_isas(const nn_program_t *program, uint64_t seed, size_t every, double tolerance)
{
    for (int isa = 0; isa < nn_isas(); isa++) {
        nn_check_program(program, (ddp_isa_t)isa, seed, every, tolerance);
    }
}
