/** @file `ddptrain inspect`: what is in a file of weights, and where two of them differ. Never calls MPI. */
#ifndef DDP_INSPECT_H_
#define DDP_INSPECT_H_

#include "io/weights.h"

/** See ddp_command_t. */
int ddp_inspect_command(int argc, char **argv);

/** Length of a tensor, the square root of the sum of the squares, added up in float64. */
ddp_status_t ddp_inspect_norm(ddp_weights_t *weights, size_t tensor, double *norm_p) DDP_NODISCARD;

/** "float32" */
const char *ddp_inspect_type(ddp_weights_type_t type);

typedef struct ddp_inspect_difference {
    size_t compared, different, only_a, only_b;
    bool   is_training_different; /* of two checkpoints: step, seed, ... */
    double most;                  /* largest |a - b| of the tensors of equal shape */
    char   first[512];            /* what differs first; "" */
} ddp_inspect_difference_t;

/** Compare by name, bit for bit; a checkpoint's moments if both have some. */
ddp_status_t ddp_inspect_compare(ddp_weights_t *a, ddp_weights_t *b,
                                 ddp_inspect_difference_t *difference_p) DDP_NODISCARD;

#endif
