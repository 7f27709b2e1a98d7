/** @file Random changes of training pictures: what is drawn, and the pixels it gives. Private to io. */
#ifndef DDP_AUGMENT_INTERNAL_H_
#define DDP_AUGMENT_INTERNAL_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "io/dataset.h"

/** Pixels of 0 put around a picture. */
#define DDP_AUGMENT_PAD 4

typedef struct ddp_augment_draw {
    size_t top, left; /* of the window in the padded picture, 0 .. 2 * DDP_AUGMENT_PAD */
    bool   is_flipped;
} ddp_augment_draw_t;

/** Pure function; each place equally likely (to within 2^-29), half are flipped. */
ddp_augment_draw_t ddp_augment_draw(uint64_t seed, uint64_t epoch, size_t index);

/**
 * Pixels first .. first + count - 1 of row y of the changed picture, of info->pixel_bytes each.
 * @param [in]  image  [height, width, channels]
 * @param [out] row    [count, channels]
 */
void ddp_augment_row(const ddp_augment_draw_t *draw, const ddp_dataset_info_t *info,
                     const unsigned char *image, size_t y, size_t first, size_t count, unsigned char *row);

#endif
