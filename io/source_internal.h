/** @file Where the samples of a data set come from: one table of operations for each kind. Private to io. */
#ifndef DDP_SOURCE_INTERNAL_H_
#define DDP_SOURCE_INTERNAL_H_

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "io/bytes_internal.h"
#include "io/dataset.h"
#include "io/moments_internal.h"

#define DDP_SOURCE_PATH_SIZE 4096

/** Bounds on what a file may ask for. */
#define DDP_SOURCE_MAX_CHANNELS 64
#define DDP_SOURCE_MAX_CLASSES  65536

typedef struct ddp_source_ops {
    /**
     * Read headers only; fill `info` but for memory_bytes.
     * @param [in,out] identity_p  mix into it, by ddp_source_hash(), what makes this data this data
     * @param [out]    ctx_p       for the two below; NULL on failure
     */
    ddp_status_t (*open)(const ddp_dataset_params_t *params, ddp_dataset_info_t *info, uint64_t *identity_p,
                         void **ctx_p);
    /**
     * Decode all samples.
     * @param [out]    pixels   [samples, height, width, channels] of info->pixel_bytes each
     * @param [out]    labels   [samples], each below info->classes
     * @param [in,out] moments  [channels], zeros; uint8 pixels are added to them, others not
     */
    ddp_status_t (*load)(void *ctx, const ddp_dataset_info_t *info, unsigned char *pixels, int32_t *labels,
                         ddp_moments_t *moments);
    /** Accepts NULL. */
    void (*close)(void *ctx);
} ddp_source_ops_t;

extern const ddp_source_ops_t ddp_source_idx; /* fashion-mnist too */
extern const ddp_source_ops_t ddp_source_shapes;
extern const ddp_source_ops_t ddp_source_cifar;
extern const ddp_source_ops_t ddp_source_hdf5;

/** A file as it was at open. */
typedef struct ddp_source_file {
    char             path[DDP_SOURCE_PATH_SIZE];
    ddp_bytes_info_t seen;
} ddp_source_file_t;

#define DDP_SOURCE_HASH_START UINT64_C(0xcbf29ce484222325)

/** FNV-1a of one more number. */
uint64_t ddp_source_hash(uint64_t hash, uint64_t number);
/** Of a file's size and time. */
uint64_t ddp_source_hash_file(uint64_t hash, const ddp_source_file_t *file);

/** The file just opened again is the one that was seen. @return DDP_ERR_FORMAT: changed since */
ddp_status_t ddp_source_same(const ddp_source_file_t *file, const ddp_bytes_t *bytes) DDP_NODISCARD;

/** How many samples to use: params->samples, or all that are there. @return DDP_ERR_CONFIG: fewer there */
ddp_status_t ddp_source_samples(const ddp_dataset_params_t *params, const char *path, size_t there,
                                size_t *samples_p) DDP_NODISCARD;

/** "FOLDER (train)". */
void ddp_source_name(const ddp_dataset_params_t *params, const char *place, ddp_dataset_info_t *info);

#endif
