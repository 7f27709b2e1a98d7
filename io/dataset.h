/**
 * @file Data sets of labelled images: IDX files (gzipped or not), Fashion-MNIST, the binary files of CIFAR-10
 * and CIFAR-100, data sets of an HDF5 file, and the drawn set `shapes`.
 *
 * Opening reads headers only; the decoded samples (uint8 pixels, labels) go into memory the caller gives, so
 * that the ranks of a machine can share one copy: one of them loads, the others attach. Not collective;
 * thread: any one at a time, fetch from any.
 */
#ifndef DDP_DATASET_H_
#define DDP_DATASET_H_

#include <stddef.h>
#include <stdint.h>

#include "base/export.h"
#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ddp_dataset ddp_dataset_t;

typedef enum ddp_data_kind {
    DDP_DATA_FASHION_MNIST = 0,
    DDP_DATA_IDX           = 1,
    DDP_DATA_SHAPES        = 2,
    DDP_DATA_CIFAR10       = 3,
    DDP_DATA_CIFAR100      = 4,
    DDP_DATA_HDF5          = 5
} ddp_data_kind_t;
typedef enum ddp_split { DDP_SPLIT_TRAIN = 0, DDP_SPLIT_TEST = 1 } ddp_split_t;

typedef struct ddp_dataset_params {
    size_t          struct_size;
    ddp_data_kind_t kind;
    const char *path; /* folder with the four IDX files of MNIST's names, .gz or not; NULL: where Debian puts
                         Fashion-MNIST. The classes of kind idx are one more than the largest label of either
                         split. cifar10: data_batch_1.bin .. data_batch_5.bin, test_batch.bin; cifar100:
                         train.bin, test.bin, of whose two labels the fine one is used. hdf5: the file */
    ddp_split_t split;
    uint64_t    seed; /* shapes */
    size_t samples; /* shapes: number to draw (default 20000 train, 4000 test); others: use only the first; 0:
                       default, all */
    const char *images;  /* hdf5: name of a data set [n, height, width], [n, height, width, channels] or
                            [n, features] (height 1), of uint8 or float32 (used as it is, not divided by 255),
                            contiguous or chunked; NULL: "images" */
    const char *labels;  /* hdf5: name of a data set [n] of any integer type; NULL: "labels" */
    double val_fraction; /* hdf5: the last samples of the data set, this share of them, are the test split;
                            0: all of it is the split asked for */
} ddp_dataset_params_t;
#define DDP_DATASET_PARAMS_INIT                                                                              \
    {                                                                                                        \
        .struct_size = sizeof(ddp_dataset_params_t)                                                          \
    }

typedef struct ddp_dataset_info {
    size_t samples, height, width, channels, classes;
    size_t pixel_bytes;  /* in memory: 1, uint8; 4, float32 */
    size_t memory_bytes; /* that ddp_dataset_load() fills */
    char   source[512];  /* for the user: "/usr/share/datasets/fashion-mnist (train)" */
} ddp_dataset_info_t;

/** Random changes of a training sample. pad-crop-flip: 4 pixels of 0 (black) put around the picture, a window
 * of its own size cut out at one of 9 x 9 places, mirrored left to right in half the cases; as is usual for
 * CIFAR (He et al. 2016, section 4.2). */
typedef enum ddp_augment { DDP_AUGMENT_NONE = 0, DDP_AUGMENT_PAD_CROP_FLIP = 1 } ddp_augment_t;

/** true if Fashion-MNIST is found at `path` (NULL: Debian's folder). */
DDP_API int ddp_dataset_fashion_mnist_exists(const char *path);

/**
 * Read and check the headers.
 * @return DDP_ERR_IO (no such file ...), DDP_ERR_FORMAT (magic, type, dimensions, image and label counts
 * differ, zero samples): one line with file, offset, expected and found
 */
DDP_API ddp_status_t              ddp_dataset_open(const ddp_dataset_params_t *params,
                                                   ddp_dataset_t             **dataset_p) DDP_NODISCARD;
DDP_API void                      ddp_dataset_close(ddp_dataset_t **dataset_p);
DDP_API const ddp_dataset_info_t *ddp_dataset_info(const ddp_dataset_t *dataset);

/**
 * Decode everything into `memory` and use it. Measures mean and standard deviation of each channel.
 * @param [out] memory  [memory_bytes], DDP_ALIGNMENT-aligned; borrowed until close
 * @return DDP_ERR_FORMAT: truncated or damaged (with the offset), bytes left over, or a label out of range
 * (with its index), or
 * a pixel that is not finite (with its sample)
 */
DDP_API ddp_status_t ddp_dataset_load(ddp_dataset_t *dataset, void *memory) DDP_NODISCARD;
/** Use memory that another process of this machine loaded from the same files. DDP_ERR_STATE if it was not.
 */
DDP_API ddp_status_t ddp_dataset_attach(ddp_dataset_t *dataset, const void *memory) DDP_NODISCARD;

/** Mean and standard deviation in use of channel c, uint8 pixels counted 0 .. 1. After load or attach. */
DDP_API void ddp_dataset_moments(const ddp_dataset_t *dataset, size_t channel, double *mean_p, double *std_p);
/** Normalise with these (of the training set) instead of its own; [channels] each. A deviation of 0 (all
 * pixels alike) counts as 1. DDP_ERR_INVALID_ARG: not finite, or a deviation below 0; nothing changed. */
DDP_API ddp_status_t ddp_dataset_set_moments(ddp_dataset_t *dataset, const double *mean,
                                             const double *std) DDP_NODISCARD;

/**
 * Normalised samples: x = (pixel / 255 - mean) / std; (pixel - mean) / std of float32. Thread: any, several
 * at once.
 * @param [in]  index   [n], each < samples
 * @param [out] images  [n, height, width, channels] float32
 * @param [out] labels  [n] int32
 */
DDP_API void ddp_dataset_fetch(const ddp_dataset_t *dataset, const size_t *index, size_t n, float *images,
                               int32_t *labels);

/** DDP_ERR_CONFIG: the pictures are too small (below 8 x 8) for this augmentation. */
DDP_API ddp_status_t ddp_augment_check(ddp_augment_t augment, const ddp_dataset_info_t *info) DDP_NODISCARD;

/**
 * As ddp_dataset_fetch(), augmented. What happens to a sample is a pure function of (seed, epoch, its index),
 * so it does not matter which rank or thread fetches it. Thread: any, several at once.
 * @param [in] augment  passed ddp_augment_check(); DDP_AUGMENT_NONE: as ddp_dataset_fetch()
 */
DDP_API void ddp_dataset_fetch_augmented(const ddp_dataset_t *dataset, ddp_augment_t augment, uint64_t seed,
                                         uint64_t epoch, const size_t *index, size_t n, float *images,
                                         int32_t *labels);

#ifdef __cplusplus
}
#endif

#endif
