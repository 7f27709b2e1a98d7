/** @file A small checkpoint, written without the saver: what the tests of reader and writer compare with. */
#ifndef DDP_CHECKPOINT_FILE_H_
#define DDP_CHECKPOINT_FILE_H_

#include <fcntl.h>
#include <math.h>

#include "io/checkpoint_format_internal.h"
#include "io/crc32c_internal.h"
#include "io/file_internal.h"
#include "tests/io/io_test.h"

#define CHECKPOINT_TENSORS 4

/** Four tensors, one of them a running average; sizes on both sides of a page. */
static inline void checkpoint_tensors(ddp_tensor_desc_t tensors[CHECKPOINT_TENSORS])
{
    const ddp_tensor_desc_t all[CHECKPOINT_TENSORS] = {
        {.name = "conv1.weight", .ndim = 4, .shape = {5, 3, 3, 3}, .count = 135},
        {.name = "h.0.attn.c_attn.weight", .ndim = 2, .shape = {96, 65}, .count = 6240},
        {.name = "bn1.running_mean", .ndim = 1, .shape = {7}, .count = 7, .role = DDP_TENSOR_AVERAGE},
        {.name = "fc.bias", .ndim = 1, .shape = {1}, .count = 1},
    };

    memcpy(tensors, all, sizeof(all));
}

/* Odd steps are of a run in half precision. */
static inline ddp_training_state_t checkpoint_state(uint64_t step)
{
    const bool has_scale = step % 2 == 1;

    return (ddp_training_state_t){.step             = step,
                                  .epoch            = 3,
                                  .samples_seen     = 98765,
                                  .seed             = 7,
                                  .micro_batches    = 16,
                                  .isa              = "avx2",
                                  .optimizer        = "adamw",
                                  .n_slots          = 2,
                                  .slot             = {"exp_avg", "exp_avg_sq"},
                                  .data             = "idx 60000 1234abcd",
                                  .config           = "model: {kind: mlp}\n",
                                  .producer         = "ddptrain test",
                                  .best_loss        = 0.25,
                                  .loss_scale       = has_scale ? 4096.0 : 0.0,
                                  .loss_scale_steps = has_scale ? 17 : 0};
}

/** Element i of an array, different in each. */
static inline float checkpoint_value(uint64_t step, size_t tensor, int array, size_t i)
{
    return (float)(step * 1000 + tensor * 100 + (size_t)(array + 1) * 10) + (float)i / 8192.0F;
}

/** Write `path` as docs/checkpoint.md says, in one piece. */
static inline void checkpoint_write(const char *path, uint64_t step)
{
    const uint64_t          steps[CHECKPOINT_TENSORS] = {step, step - 1, step, 0};
    ddp_training_state_t    state                     = checkpoint_state(step);
    ddp_checkpoint_plan_t   plan;
    ddp_tensor_desc_t       tensors[CHECKPOINT_TENSORS];
    ddp_checkpoint_header_t header = {.version = DDP_CHECKPOINT_VERSION, .step = step};
    unsigned char          *file   = NULL;
    FILE                   *out    = fopen(path, "wb");

    checkpoint_tensors(tensors);
    ddp_assert_ok(ddp_checkpoint_plan_make(tensors, steps, CHECKPOINT_TENSORS, &state, &plan));
    file = calloc(1, plan.bytes);
    ck_assert(file != NULL && out != NULL);
    for (size_t e = 0; e < plan.n_extents; e++) {
        const ddp_checkpoint_extent_t *x = &plan.extents[e];

        for (size_t i = 0; x->metadata == NULL && i < x->bytes / sizeof(float); i++) {
            const float value = checkpoint_value(step, x->tensor, x->array, i);

            memcpy(file + x->at + i * sizeof(float), &value, sizeof(value));
        }
        if (x->metadata != NULL) {
            memcpy(file + x->at, x->metadata, x->bytes);
        }
    }
    header.bytes = plan.bytes;
    header.crc = ddp_crc32c(0, file + DDP_CHECKPOINT_HEADER_BYTES, plan.bytes - DDP_CHECKPOINT_HEADER_BYTES);
    ddp_checkpoint_header_write(&header, (char *)file);
    ck_assert_uint_eq(fwrite(file, 1, plan.bytes, out), plan.bytes);
    ck_assert_int_eq(fclose(out), 0);
    ddp_checkpoint_plan_free(&plan);
    free(file);
}

#endif
