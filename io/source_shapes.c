#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "io/shapes_internal.h"
#include "io/source_internal.h"

typedef struct shapes_source {
    uint64_t    seed;
    ddp_split_t split;
} shapes_source_t;

static ddp_status_t open_shapes(const ddp_dataset_params_t *params, ddp_dataset_info_t *info,
                                uint64_t *identity_p, void **ctx_p)
{
    ddp_status_t     status   = DDP_OK;
    const bool       is_train = params->split == DDP_SPLIT_TRAIN;
    shapes_source_t *source   = calloc(1, sizeof(*source));

    DDP_REQUIRE(source != NULL, DDP_ERR_NO_MEMORY, "no memory for a data set");
    source->seed   = params->seed;
    source->split  = params->split;
    info->samples  = is_train ? DDP_SHAPES_TRAIN : DDP_SHAPES_TEST;
    info->samples  = params->samples > 0 ? params->samples : info->samples;
    info->height   = DDP_SHAPES_SIDE;
    info->width    = DDP_SHAPES_SIDE;
    info->channels = 1;
    info->classes  = DDP_SHAPES_CLASSES;
    *identity_p    = ddp_source_hash(*identity_p, params->seed);
    snprintf(info->source, sizeof(info->source), "shapes drawn from seed %" PRIu64 " (%s)", params->seed,
             is_train ? "train" : "test");
    *ctx_p = source;
out:
    return status;
}

static ddp_status_t load_shapes(void *ctx, const ddp_dataset_info_t *info, unsigned char *pixels,
                                int32_t *labels, ddp_moments_t *moments)
{
    const shapes_source_t *source = ctx;

    for (size_t i = 0; i < info->samples; i++) {
        unsigned char *image = pixels + i * DDP_SHAPES_PIXELS;

        labels[i] = ddp_shapes_draw(source->seed, (uint32_t)source->split, i, image);
        ddp_moments_add(moments, 1, image, DDP_SHAPES_PIXELS);
    }
    return DDP_OK;
}

const ddp_source_ops_t ddp_source_shapes = {.open = open_shapes, .load = load_shapes, .close = free};
