#include "io/augment_internal.h"

#include <string.h>

#include "base/error.h"
#include "kernels/ops.h"

#define AUGMENT_KEY UINT64_C(0x6175676d656e74) /* apart from other uses of the same seed */
#define PLACES      (2 * DDP_AUGMENT_PAD + 1)
#define LEAST_SIDE  8

ddp_status_t ddp_augment_check(ddp_augment_t augment, const ddp_dataset_info_t *info)
{
    ddp_status_t status = DDP_OK;

    DDP_REQUIRE(augment == DDP_AUGMENT_NONE || augment == DDP_AUGMENT_PAD_CROP_FLIP, DDP_ERR_INVALID_ARG,
                "augmentation %d is unknown", (int)augment);
    DDP_REQUIRE(augment == DDP_AUGMENT_NONE || (info->height >= LEAST_SIDE && info->width >= LEAST_SIDE),
                DDP_ERR_CONFIG,
                "%s: pictures of %zu x %zu are too small for data.augment pad-crop-flip, which needs %d x %d",
                info->source, info->height, info->width, LEAST_SIDE, LEAST_SIDE);
out:
    return status;
}

ddp_augment_draw_t ddp_augment_draw(uint64_t seed, uint64_t epoch, size_t index)
{
    const uint32_t     counter[4] = {(uint32_t)index, (uint32_t)((uint64_t)index >> 32), (uint32_t)epoch,
                                     (uint32_t)(epoch >> 32)};
    uint32_t           random[4];
    ddp_augment_draw_t draw;

    ddp_philox(seed ^ AUGMENT_KEY, counter, random);
    draw.top        = (size_t)((uint64_t)random[0] * PLACES >> 32);
    draw.left       = (size_t)((uint64_t)random[1] * PLACES >> 32);
    draw.is_flipped = random[2] >> 31 != 0;
    return draw;
}

void ddp_augment_row(const ddp_augment_draw_t *draw, const ddp_dataset_info_t *info,
                     const unsigned char *image, size_t y, size_t first, size_t count, unsigned char *row)
{
    const size_t bytes    = info->channels * info->pixel_bytes; /* of a pixel */
    const size_t padded_y = y + draw->top;

    memset(row, 0, count * bytes); /* 0.0F too */
    if (padded_y < DDP_AUGMENT_PAD || padded_y - DDP_AUGMENT_PAD >= info->height) {
        return;
    }
    image += (padded_y - DDP_AUGMENT_PAD) * info->width * bytes;
    for (size_t i = 0; i < count; i++) {
        const size_t x        = draw->is_flipped ? info->width - 1 - (first + i) : first + i;
        const size_t padded_x = x + draw->left;

        if (padded_x >= DDP_AUGMENT_PAD && padded_x - DDP_AUGMENT_PAD < info->width) {
            memcpy(row + i * bytes, image + (padded_x - DDP_AUGMENT_PAD) * bytes, bytes);
        }
    }
}
