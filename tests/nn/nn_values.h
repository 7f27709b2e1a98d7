/** @file Values that PyTorch made, and training steps to compare with them: files of tests/data/make_gpt2.py.
 */
#ifndef DDP_TESTS_NN_VALUES_H_
#define DDP_TESTS_NN_VALUES_H_

#include <stddef.h>
#include <stdint.h>

#include "kernels/optim.h"
#include "tests/nn/nn_program.h"

typedef enum nn_type { NN_FLOAT32 = 0, NN_FLOAT64 = 1, NN_INT32 = 2 } nn_type_t;

/** Read a file whole; one at a time. */
void nn_values_open(const char *path);
void nn_values_close(void);
/** The array "<kind><name>": `count` elements, aligned, to be freed. */
void *nn_values_load(const char *kind, const char *name, nn_type_t type, size_t count);

/** AdamW's moments of all parameters, flat as they are. */
typedef struct nn_adamw {
    ddp_optim_config_t config;
    float             *slot[2]; /* owned */
} nn_adamw_t;

/** PyTorch's defaults. */
void nn_adamw_open(nn_adamw_t *adamw, const ddp_params_t *params);
void nn_adamw_close(nn_adamw_t *adamw);
/** Update `step` (from 1) of all parameters by their gradients / weight, and of running averages, by
 * `config`: that of another optimizer may be put there. */
void nn_adamw_update(nn_adamw_t *adamw, const nn_world_t *world, uint64_t step, float lr, float weight);

#endif
