#include <stdlib.h>

#include "base/error.h"
#include "io/idx_internal.h"
#include "io/source_internal.h"

#define FASHION_FOLDER  "/usr/share/datasets/fashion-mnist"
#define FASHION_CLASSES 10
#define PIECE_BYTES     ((size_t)512 << 10) /* decoded, then counted while it is in the cache */

typedef struct idx_source {
    ddp_source_file_t images, labels;
} idx_source_t;

static const char *split_prefix(ddp_split_t split)
{
    return split == DDP_SPLIT_TRAIN ? "train" : "t10k";
}

/* Find and open one file. On success the caller closes `idx`. */
static ddp_status_t open_source(ddp_source_file_t *file, const char *folder, ddp_idx_role_t role,
                                ddp_split_t split, ddp_idx_t *idx)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(ddp_idx_find(folder, role, split_prefix(split), file->path, sizeof(file->path)));
    DDP_TRY(ddp_idx_open(file->path, role, idx));
    file->seen = *ddp_bytes_info(idx->bytes);
out:
    return status;
}

/* Open again what open_source() found; it must not have changed since. */
static ddp_status_t reopen_source(const ddp_source_file_t *file, ddp_idx_role_t role, ddp_idx_t *idx)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(ddp_idx_open(file->path, role, idx));
    DDP_TRY(ddp_source_same(file, idx->bytes));
out:
    return status;
}

/* Classes of a user's files: one more than the largest label of either split, so that both agree on them. */
static ddp_status_t count_classes(const char *folder, size_t *classes_p)
{
    ddp_status_t       status = DDP_OK;
    ddp_source_file_t *file   = malloc(sizeof(*file));
    ddp_idx_t          idx    = {.bytes = NULL};
    size_t             most   = 0;

    DDP_REQUIRE(file != NULL, DDP_ERR_NO_MEMORY, "no memory to read labels");
    for (int split = DDP_SPLIT_TRAIN; split <= DDP_SPLIT_TEST; split++) {
        int32_t max = 0;

        if (ddp_idx_find(folder, DDP_IDX_LABELS, split_prefix((ddp_split_t)split), file->path,
                         sizeof(file->path)) != DDP_OK) {
            ddp_error_clear(); /* a folder with one split only is fine here */
            continue;
        }
        DDP_TRY(ddp_idx_open(file->path, DDP_IDX_LABELS, &idx));
        DDP_TRY(ddp_idx_read_labels(&idx, idx.items, DDP_SOURCE_MAX_CLASSES, NULL, &max));
        DDP_TRY(ddp_idx_finish(&idx));
        ddp_idx_close(&idx);
        most = (size_t)max + 1 > most ? (size_t)max + 1 : most;
    }
    *classes_p = most;
out:
    ddp_idx_close(&idx);
    free(file);
    return status;
}

static ddp_status_t open_files(idx_source_t *source, const ddp_dataset_params_t *params, const char *folder,
                               ddp_dataset_info_t *info)
{
    ddp_status_t status = DDP_OK;
    ddp_idx_t    images = {.bytes = NULL};
    ddp_idx_t    labels = {.bytes = NULL};

    DDP_TRY(open_source(&source->images, folder, DDP_IDX_IMAGES, params->split, &images));
    DDP_TRY(open_source(&source->labels, folder, DDP_IDX_LABELS, params->split, &labels));
    DDP_REQUIRE(labels.items == images.items, DDP_ERR_FORMAT,
                "'%s': offset 4: expected %zu labels, as many as there are images, found %zu",
                source->labels.path, images.items, labels.items);
    DDP_TRY(ddp_source_samples(params, source->images.path, images.items, &info->samples));
    info->height   = images.height;
    info->width    = images.width;
    info->channels = images.channels;
    info->classes  = FASHION_CLASSES;
    if (params->kind == DDP_DATA_IDX) {
        DDP_TRY(count_classes(folder, &info->classes));
    }
    ddp_source_name(params, folder, info);
out:
    ddp_idx_close(&labels);
    ddp_idx_close(&images);
    return status;
}

int ddp_dataset_fashion_mnist_exists(const char *path)
{
    const char *folder = path != NULL ? path : FASHION_FOLDER;
    char        file[DDP_SOURCE_PATH_SIZE];

    for (int split = DDP_SPLIT_TRAIN; split <= DDP_SPLIT_TEST; split++) {
        for (int role = DDP_IDX_IMAGES; role <= DDP_IDX_LABELS; role++) {
            if (ddp_idx_find(folder, (ddp_idx_role_t)role, split_prefix((ddp_split_t)split), file,
                             sizeof(file)) != DDP_OK) {
                ddp_error_clear(); /* "no" is an answer */
                return 0;
            }
        }
    }
    return 1;
}

static ddp_status_t open_idx(const ddp_dataset_params_t *params, ddp_dataset_info_t *info,
                             uint64_t *identity_p, void **ctx_p)
{
    ddp_status_t  status = DDP_OK;
    const char   *folder = params->path;
    idx_source_t *source = NULL;

    if (folder == NULL) {
        DDP_REQUIRE(params->kind == DDP_DATA_FASHION_MNIST, DDP_ERR_CONFIG,
                    "data.path is missing: the folder with the IDX files of data.kind idx");
        DDP_REQUIRE(ddp_dataset_fashion_mnist_exists(NULL), DDP_ERR_IO,
                    "'" FASHION_FOLDER "': Fashion-MNIST is not there; apt-get install "
                    "dataset-fashion-mnist, or give data.path, or data.kind shapes");
        folder = FASHION_FOLDER;
    }
    source = calloc(1, sizeof(*source));
    DDP_REQUIRE(source != NULL, DDP_ERR_NO_MEMORY, "no memory for a data set");
    DDP_TRY(open_files(source, params, folder, info));
    *identity_p = ddp_source_hash_file(*identity_p, &source->images);
    *identity_p = ddp_source_hash_file(*identity_p, &source->labels);
    *ctx_p      = source;
    source      = NULL;
out:
    free(source);
    return status;
}

static ddp_status_t load_images(const idx_source_t *source, const ddp_dataset_info_t *info,
                                unsigned char *pixels, ddp_moments_t *moments)
{
    ddp_status_t status = DDP_OK;
    ddp_idx_t    idx    = {.bytes = NULL};
    const size_t total  = info->samples * info->height * info->width * info->channels;
    const size_t piece  = PIECE_BYTES / info->channels * info->channels;

    DDP_TRY(reopen_source(&source->images, DDP_IDX_IMAGES, &idx));
    for (size_t done = 0; done < total; done += piece) {
        const size_t count = total - done < piece ? total - done : piece;

        DDP_TRY(ddp_idx_read(&idx, pixels + done, count));
        ddp_moments_add(moments, info->channels, pixels + done, count);
    }
    if (info->samples == idx.items) {
        DDP_TRY(ddp_idx_finish(&idx));
    }
out:
    ddp_idx_close(&idx);
    return status;
}

static ddp_status_t load_labels(const idx_source_t *source, const ddp_dataset_info_t *info, int32_t *labels)
{
    ddp_status_t status = DDP_OK;
    ddp_idx_t    idx    = {.bytes = NULL};

    DDP_TRY(reopen_source(&source->labels, DDP_IDX_LABELS, &idx));
    DDP_TRY(ddp_idx_read_labels(&idx, info->samples, info->classes, labels, NULL));
    if (info->samples == idx.items) {
        DDP_TRY(ddp_idx_finish(&idx));
    }
out:
    ddp_idx_close(&idx);
    return status;
}

static ddp_status_t load_idx(void *ctx, const ddp_dataset_info_t *info, unsigned char *pixels,
                             int32_t *labels, ddp_moments_t *moments)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(load_labels(ctx, info, labels)); /* the quick check first */
    DDP_TRY(load_images(ctx, info, pixels, moments));
out:
    return status;
}

const ddp_source_ops_t ddp_source_idx = {.open = open_idx, .load = load_idx, .close = free};
