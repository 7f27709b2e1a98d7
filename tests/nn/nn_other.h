/** @file For networks that run on two tapes: the second one, and gradients compared bit for bit. */
#ifndef DDP_TESTS_NN_OTHER_H_
#define DDP_TESTS_NN_OTHER_H_

#include <stdlib.h>
#include <string.h>

#include "tests/nn/nn_program.h"
#include "tests/support/ddp_test.h"

static inline float *nn_grads_copy(const nn_world_t *world)
{
    const size_t bytes = ddp_params_total(world->params) * sizeof(float);
    float       *copy  = malloc(bytes);

    memcpy(copy, ddp_params_grad(world->params, ddp_params_count(world->params) - 1), bytes);
    return copy;
}

static inline void nn_grads_spoil(const nn_world_t *world)
{
    memset(ddp_params_grad(world->params, ddp_params_count(world->params) - 1), 0xff,
           ddp_params_total(world->params) * sizeof(float));
}

static inline bool nn_grads_equal(const nn_world_t *world, const float *expected)
{
    const ddp_tensor_desc_t *descs = ddp_params_descs(world->params);

    for (size_t i = 0; i < ddp_params_count(world->params); i++) { /* padding is nobody's */
        if (memcmp(ddp_params_grad(world->params, i), expected + descs[i].offset,
                   descs[i].count * sizeof(float)) != 0) {
            return false;
        }
    }
    return true;
}

/* Another tape with a clone of the world's parameters, bound to the same memory. */
typedef struct nn_other {
    ddp_params_t *params;
    ddp_tape_t   *tape;
} nn_other_t;

static inline void nn_other_open(nn_other_t *other, const nn_world_t *world)
{
    const size_t      last = ddp_params_count(world->params) - 1;
    ddp_tape_params_t tape = DDP_TAPE_PARAMS_INIT;

    ddp_assert_ok(ddp_params_clone(world->params, &other->params));
    ddp_params_bind(other->params, ddp_params_value(world->params, last),
                    ddp_params_grad(world->params, last));
    tape.stream = world->stream;
    tape.params = other->params;
    ddp_assert_ok(ddp_tape_create(&tape, &other->tape));
}

static inline void nn_other_close(nn_other_t *other)
{
    ddp_tape_destroy(&other->tape);
    ddp_params_destroy(&other->params);
}

#endif
