/* Files of all kinds, from tensors of any kind. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "io/checkpoint_format_internal.h"
#include "io/crc32c_internal.h"
#include "io/weights_internal.h"

ddp_status_t ddp_weights_each_piece(ddp_weights_t *weights, size_t tensor, ddp_weights_piece_fn_t *piece,
                                    void *ctx)
{
    ddp_status_t status = DDP_OK;
    const size_t count  = weights->tensors[tensor].desc.count;
    float       *values = malloc(DDP_WEIGHTS_CHUNK * sizeof(*values));

    DDP_REQUIRE(values != NULL, DDP_ERR_NO_MEMORY, "no memory for '%s'", weights->path);
    for (size_t first = 0; first < count; first += DDP_WEIGHTS_CHUNK) {
        const size_t n = count - first < DDP_WEIGHTS_CHUNK ? count - first : DDP_WEIGHTS_CHUNK;

        DDP_TRY(ddp_weights_read(weights, tensor, first, n, values));
        DDP_TRY(piece(ctx, values, n * sizeof(*values)));
    }
out:
    free(values);
    return status;
}

/* A checkpoint in the making; the sum is over all that is written. */
typedef struct output {
    ddp_new_file_t *file; /* borrowed */
    uint32_t        crc;
} output_t;

static ddp_status_t append(void *ctx, const void *data, size_t bytes)
{
    output_t *output = ctx;

    output->crc = ddp_crc32c(output->crc, data, bytes);
    return ddp_new_file_write(output->file, data, bytes);
}

/* Names are links of one group, and '/' would be a group of its own. */
static ddp_status_t describe(const ddp_weights_t *w, const ddp_weights_choice_t *choice,
                             ddp_tensor_desc_t *tensors)
{
    ddp_status_t status = DDP_OK;

    for (size_t i = 0; i < choice->n; i++) {
        tensors[i] = w->tensors[choice->chosen[i]].desc;
        DDP_REQUIRE(strchr(tensors[i].name, '/') == NULL && strcmp(tensors[i].name, ".") != 0, DDP_ERR_FORMAT,
                    "'%s': '%s' can be no name in a checkpoint", w->path, tensors[i].name);
        DDP_REQUIRE(tensors[i].ndim > 0, DDP_ERR_FORMAT,
                    "'%s': '%s' is a single number without a dimension, which no model has", w->path,
                    tensors[i].name);
    }
out:
    return status;
}

/* Nothing but weights. A run's own configuration, if there is one, tells what model they are of. */
static ddp_training_state_t make_state(const ddp_weights_t *w, const char *producer)
{
    const ddp_training_state_t *from = w->checkpoint != NULL ? ddp_checkpoint_state(w->checkpoint) : NULL;

    return (ddp_training_state_t){.isa       = "none",
                                  .optimizer = "none",
                                  .data      = "none",
                                  .config    = from != NULL ? from->config : "# converted: weights alone\n",
                                  .producer  = producer,
                                  .best_loss = NAN};
}

ddp_status_t ddp_weights_write_checkpoint(ddp_weights_t *weights, const ddp_weights_choice_t *choice,
                                          ddp_new_file_t *file)
{
    ddp_status_t               status                             = DDP_OK;
    const ddp_training_state_t state                              = make_state(weights, choice->producer);
    output_t                   output                             = {file, 0};
    ddp_checkpoint_plan_t      plan                               = {0};
    ddp_checkpoint_header_t    header                             = {.version = DDP_CHECKPOINT_VERSION};
    ddp_tensor_desc_t         *tensors                            = calloc(choice->n, sizeof(*tensors));
    uint64_t                  *steps                              = calloc(choice->n, sizeof(*steps));
    char                       block[DDP_CHECKPOINT_HEADER_BYTES] = "";

    DDP_REQUIRE(tensors != NULL && steps != NULL, DDP_ERR_NO_MEMORY, "no memory for '%s'", weights->path);
    DDP_TRY(describe(weights, choice, tensors));
    DDP_TRY(ddp_checkpoint_plan_make(tensors, steps, choice->n, &state, &plan));
    DDP_TRY(ddp_new_file_write(file, block, sizeof(block)));
    for (size_t i = 0; i < plan.n_extents; i++) {
        const ddp_checkpoint_extent_t *extent = &plan.extents[i];

        DDP_TRY(extent->array == DDP_CHECKPOINT_METADATA
                    ? append(&output, extent->metadata, (size_t)extent->bytes)
                    : ddp_weights_each_piece(weights, choice->chosen[extent->tensor], append, &output));
    }
    header.bytes = plan.bytes;
    header.crc   = output.crc;
    ddp_checkpoint_header_write(&header, block);
    DDP_TRY(ddp_new_file_patch(file, 0, block, sizeof(block)));
out:
    ddp_checkpoint_plan_free(&plan);
    free(steps);
    free(tensors);
    return status;
}

/* What goes into the file. @param [out] chosen  [count] */
static ddp_status_t choose(const ddp_weights_t *w, bool moments, size_t *chosen, size_t *n_p)
{
    ddp_status_t status = DDP_OK;
    size_t       n      = 0;

    for (size_t i = 0; i < w->n; i++) {
        if (w->tensors[i].array == DDP_CHECKPOINT_VALUES || moments) {
            DDP_REQUIRE(w->tensors[i].type != DDP_WEIGHTS_OTHER, DDP_ERR_FORMAT, "'%s': '%s' holds no floats",
                        w->path, w->tensors[i].desc.name);
            chosen[n++] = i;
        }
    }
    DDP_REQUIRE(n > 0, DDP_ERR_FORMAT, "'%s': no tensors to write", w->path);
    *n_p = n;
out:
    return status;
}

ddp_status_t ddp_weights_write(ddp_weights_t *weights, const char *path, ddp_weights_kind_t kind,
                               bool moments, const char *producer)
{
    ddp_status_t         status = DDP_OK;
    size_t              *chosen = malloc((weights->n + 1) * sizeof(*chosen));
    ddp_weights_choice_t choice = {chosen, 0, producer};
    ddp_new_file_t      *file   = NULL;

    DDP_REQUIRE(chosen != NULL, DDP_ERR_NO_MEMORY, "no memory for '%s'", weights->path);
    DDP_TRY(choose(weights, moments && kind != DDP_WEIGHTS_CHECKPOINT, chosen, &choice.n));
    DDP_TRY(ddp_new_file_create(path, &file));
    if (kind == DDP_WEIGHTS_SAFETENSORS) {
        DDP_TRY(ddp_safetensors_write(weights, &choice, file));
    } else if (kind == DDP_WEIGHTS_NPZ) {
        DDP_TRY(ddp_npz_write(weights, &choice, file));
    } else {
        DDP_TRY(ddp_weights_write_checkpoint(weights, &choice, file));
    }
    DDP_TRY(ddp_new_file_finish(file));
    DDP_TRY(ddp_new_file_publish(file, NULL));
out:
    ddp_new_file_close(&file);
    free(chosen);
    return status;
}
