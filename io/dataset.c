#include "io/dataset.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/allocator.h"
#include "base/convert.h"
#include "base/error.h"
#include "io/dataset_internal.h"
#include "io/idx_internal.h"
#include "io/moments_internal.h"
#include "io/normalise_internal.h"
#include "io/shapes_internal.h"

#define FASHION_FOLDER  "/usr/share/datasets/fashion-mnist"
#define FASHION_CLASSES 10
#define PATH_SIZE       4096
#define PAGE_BYTES      ((size_t)4096)
#define PIECE_BYTES     ((size_t)512 << 10) /* decoded, then counted while it is in the cache */
#define BLOCK_MAGIC     UINT64_C(0x3154414444504444)
#define FNV_START       UINT64_C(0xcbf29ce484222325)
#define FNV_PRIME       UINT64_C(0x100000001b3)

/* Begins the memory that ranks share; pixels follow on the next page, then labels. */
typedef struct block_header {
    uint64_t magic; /* written last */
    uint64_t identity;
    double   mean[DDP_IDX_MAX_CHANNELS];
    double   std[DDP_IDX_MAX_CHANNELS];
} block_header_t;

_Static_assert(sizeof(block_header_t) <= PAGE_BYTES, "the header has one page");

typedef struct source_file {
    char             path[PATH_SIZE];
    ddp_bytes_info_t seen; /* at open */
} source_file_t;

struct ddp_dataset {
    ddp_dataset_info_t   info;
    ddp_data_kind_t      kind;
    ddp_split_t          split;
    uint64_t             seed;
    source_file_t        images, labels; /* empty for shapes */
    size_t               labels_offset;  /* in the memory */
    uint64_t             identity;       /* equal in every process that opened the same */
    const unsigned char *pixels;         /* borrowed; NULL before load or attach */
    const int32_t       *label;          /* borrowed */
    double               mean[DDP_IDX_MAX_CHANNELS];
    double               std[DDP_IDX_MAX_CHANNELS];
    /* x = pixel * scale + offset, for DDP_NORMALISE_RUN pixels of all channels */
    float scale[DDP_IDX_MAX_CHANNELS * DDP_NORMALISE_RUN];
    float offset[DDP_IDX_MAX_CHANNELS * DDP_NORMALISE_RUN];
};

static const char *split_prefix(ddp_split_t split)
{
    return split == DDP_SPLIT_TRAIN ? "train" : "t10k";
}

static uint64_t hash_number(uint64_t hash, uint64_t number)
{
    for (int byte = 0; byte < 8; byte++) {
        hash = (hash ^ (number >> (8 * byte) & 0xff)) * FNV_PRIME;
    }
    return hash;
}

static size_t image_pixels(const ddp_dataset_info_t *info)
{
    return info->height * info->width * info->channels;
}

/* Where things lie in the memory, and who the data is; info is complete but for memory_bytes. */
static ddp_status_t lay_out(ddp_dataset_t *dataset)
{
    ddp_status_t        status    = DDP_OK;
    ddp_dataset_info_t *info      = &dataset->info;
    const uint64_t      numbers[] = {dataset->kind,
                                     dataset->split,
                                     dataset->seed,
                                     info->samples,
                                     info->height,
                                     info->width,
                                     info->channels,
                                     info->classes,
                                     dataset->images.seen.file_bytes,
                                     (uint64_t)dataset->images.seen.mtime_ns,
                                     dataset->labels.seen.file_bytes,
                                     (uint64_t)dataset->labels.seen.mtime_ns};
    size_t              pixels    = 0;
    size_t              labels    = 0;

    DDP_TRY(ddp_mul_size(info->samples, image_pixels(info), "pixels of the data set", &pixels));
    DDP_TRY(ddp_mul_size(info->samples, sizeof(int32_t), "labels of the data set", &labels));
    DDP_REQUIRE(pixels <= SIZE_MAX / 4 && labels <= SIZE_MAX / 4, DDP_ERR_INVALID_ARG,
                "%zu samples do not fit in memory", info->samples);
    dataset->labels_offset = PAGE_BYTES + (pixels + DDP_ALIGNMENT - 1) / DDP_ALIGNMENT * DDP_ALIGNMENT;
    info->memory_bytes     = (dataset->labels_offset + labels + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    dataset->identity      = FNV_START;
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        dataset->identity = hash_number(dataset->identity, numbers[i]);
    }
out:
    return status;
}

/* Find and open one file. On success the caller closes `idx`. */
static ddp_status_t open_source(source_file_t *file, const char *folder, ddp_idx_role_t role,
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
static ddp_status_t reopen_source(const source_file_t *file, ddp_idx_role_t role, ddp_idx_t *idx)
{
    ddp_status_t            status = DDP_OK;
    const ddp_bytes_info_t *info;

    DDP_TRY(ddp_idx_open(file->path, role, idx));
    info = ddp_bytes_info(idx->bytes);
    DDP_REQUIRE(info->file_bytes == file->seen.file_bytes && info->mtime_ns == file->seen.mtime_ns,
                DDP_ERR_FORMAT, "'%s': changed since it was opened: expected %llu bytes, found %llu",
                file->path, (unsigned long long)file->seen.file_bytes, (unsigned long long)info->file_bytes);
out:
    return status;
}

/* Classes of a user's files: one more than the largest label of either split, so that both agree on them. */
static ddp_status_t count_classes(const char *folder, size_t *classes_p)
{
    ddp_status_t   status = DDP_OK;
    source_file_t *file   = malloc(sizeof(*file));
    ddp_idx_t      idx    = {.bytes = NULL};
    size_t         most   = 0;

    DDP_REQUIRE(file != NULL, DDP_ERR_NO_MEMORY, "no memory to read labels");
    for (int split = DDP_SPLIT_TRAIN; split <= DDP_SPLIT_TEST; split++) {
        int32_t max = 0;

        if (ddp_idx_find(folder, DDP_IDX_LABELS, split_prefix((ddp_split_t)split), file->path,
                         sizeof(file->path)) != DDP_OK) {
            ddp_error_clear(); /* a folder with one split only is fine here */
            continue;
        }
        DDP_TRY(ddp_idx_open(file->path, DDP_IDX_LABELS, &idx));
        DDP_TRY(ddp_idx_read_labels(&idx, idx.items, DDP_IDX_MAX_CLASSES, NULL, &max));
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

static ddp_status_t open_idx(ddp_dataset_t *dataset, const ddp_dataset_params_t *params, const char *folder)
{
    ddp_status_t        status = DDP_OK;
    ddp_dataset_info_t *info   = &dataset->info;
    ddp_idx_t           images = {.bytes = NULL};
    ddp_idx_t           labels = {.bytes = NULL};

    DDP_TRY(open_source(&dataset->images, folder, DDP_IDX_IMAGES, params->split, &images));
    DDP_TRY(open_source(&dataset->labels, folder, DDP_IDX_LABELS, params->split, &labels));
    DDP_REQUIRE(labels.items == images.items, DDP_ERR_FORMAT,
                "'%s': offset 4: expected %zu labels, as many as there are images, found %zu",
                dataset->labels.path, images.items, labels.items);
    DDP_REQUIRE(params->samples <= images.items, DDP_ERR_CONFIG, "'%s': %zu samples asked for, %zu there",
                dataset->images.path, params->samples, images.items);
    info->samples  = params->samples > 0 ? params->samples : images.items;
    info->height   = images.height;
    info->width    = images.width;
    info->channels = images.channels;
    info->classes  = FASHION_CLASSES;
    if (params->kind == DDP_DATA_IDX) {
        DDP_TRY(count_classes(folder, &info->classes));
    }
    snprintf(info->source, sizeof(info->source), "%s (%s)", folder,
             params->split == DDP_SPLIT_TRAIN ? "train" : "test");
out:
    ddp_idx_close(&labels);
    ddp_idx_close(&images);
    return status;
}

static void open_shapes(ddp_dataset_t *dataset, const ddp_dataset_params_t *params)
{
    ddp_dataset_info_t *info     = &dataset->info;
    const bool          is_train = params->split == DDP_SPLIT_TRAIN;

    info->samples  = is_train ? DDP_SHAPES_TRAIN : DDP_SHAPES_TEST;
    info->samples  = params->samples > 0 ? params->samples : info->samples;
    info->height   = DDP_SHAPES_SIDE;
    info->width    = DDP_SHAPES_SIDE;
    info->channels = 1;
    info->classes  = DDP_SHAPES_CLASSES;
    dataset->seed  = params->seed;
    snprintf(info->source, sizeof(info->source), "shapes drawn from seed %llu (%s)",
             (unsigned long long)params->seed, is_train ? "train" : "test");
}

int ddp_dataset_fashion_mnist_exists(const char *path)
{
    const char *folder = path != NULL ? path : FASHION_FOLDER;
    char        file[PATH_SIZE];

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

static ddp_status_t open_kind(ddp_dataset_t *dataset, const ddp_dataset_params_t *params)
{
    ddp_status_t status = DDP_OK;

    switch (params->kind) {
    case DDP_DATA_FASHION_MNIST:
        if (params->path == NULL && !ddp_dataset_fashion_mnist_exists(NULL)) {
            return ddp_fail(DDP_ERR_IO, "'" FASHION_FOLDER "': Fashion-MNIST is not there; apt-get install "
                                        "dataset-fashion-mnist, or give data.path, or data.kind shapes");
        }
        return open_idx(dataset, params, params->path != NULL ? params->path : FASHION_FOLDER);
    case DDP_DATA_IDX:
        DDP_REQUIRE(params->path != NULL, DDP_ERR_CONFIG,
                    "data.path is missing: the folder with the IDX files of data.kind idx");
        return open_idx(dataset, params, params->path);
    case DDP_DATA_SHAPES:
        open_shapes(dataset, params);
        return DDP_OK;
    }
    status = ddp_fail(DDP_ERR_INVALID_ARG, "data set of kind %d is unknown", (int)params->kind);
out:
    return status;
}

ddp_status_t ddp_dataset_open(const ddp_dataset_params_t *params, ddp_dataset_t **dataset_p)
{
    ddp_status_t   status  = DDP_OK;
    ddp_dataset_t *dataset = NULL;

    DDP_REQUIRE(params->struct_size == sizeof(*params), DDP_ERR_INVALID_ARG,
                "data set parameters not made with DDP_DATASET_PARAMS_INIT");
    DDP_REQUIRE(params->split == DDP_SPLIT_TRAIN || params->split == DDP_SPLIT_TEST, DDP_ERR_INVALID_ARG,
                "split %d is unknown", (int)params->split);
    dataset = calloc(1, sizeof(*dataset));
    DDP_REQUIRE(dataset != NULL, DDP_ERR_NO_MEMORY, "no memory for a data set");
    dataset->kind  = params->kind;
    dataset->split = params->split;
    DDP_TRY(open_kind(dataset, params));
    DDP_TRY(lay_out(dataset));
    *dataset_p = dataset;
    dataset    = NULL;
out:
    ddp_dataset_close(&dataset);
    return status;
}

void ddp_dataset_close(ddp_dataset_t **dataset_p)
{
    free(*dataset_p);
    *dataset_p = NULL;
}

const ddp_dataset_info_t *ddp_dataset_info(const ddp_dataset_t *dataset)
{
    return &dataset->info;
}

static ddp_status_t load_images(const ddp_dataset_t *dataset, unsigned char *pixels, ddp_moments_t *moments)
{
    ddp_status_t status = DDP_OK;
    ddp_idx_t    idx    = {.bytes = NULL};
    const size_t total  = dataset->info.samples * image_pixels(&dataset->info);
    const size_t piece  = PIECE_BYTES / dataset->info.channels * dataset->info.channels;

    DDP_TRY(reopen_source(&dataset->images, DDP_IDX_IMAGES, &idx));
    for (size_t done = 0; done < total; done += piece) {
        const size_t count = total - done < piece ? total - done : piece;

        DDP_TRY(ddp_idx_read(&idx, pixels + done, count));
        ddp_moments_add(moments, dataset->info.channels, pixels + done, count);
    }
    if (dataset->info.samples == idx.items) {
        DDP_TRY(ddp_idx_finish(&idx));
    }
out:
    ddp_idx_close(&idx);
    return status;
}

static ddp_status_t load_labels(const ddp_dataset_t *dataset, int32_t *labels)
{
    ddp_status_t status = DDP_OK;
    ddp_idx_t    idx    = {.bytes = NULL};

    DDP_TRY(reopen_source(&dataset->labels, DDP_IDX_LABELS, &idx));
    DDP_TRY(ddp_idx_read_labels(&idx, dataset->info.samples, dataset->info.classes, labels, NULL));
    if (dataset->info.samples == idx.items) {
        DDP_TRY(ddp_idx_finish(&idx));
    }
out:
    ddp_idx_close(&idx);
    return status;
}

static void load_shapes(const ddp_dataset_t *dataset, unsigned char *pixels, int32_t *labels,
                        ddp_moments_t *moments)
{
    for (size_t i = 0; i < dataset->info.samples; i++) {
        unsigned char *image = pixels + i * DDP_SHAPES_PIXELS;

        labels[i] = ddp_shapes_draw(dataset->seed, (uint32_t)dataset->split, i, image);
        ddp_moments_add(moments, 1, image, DDP_SHAPES_PIXELS);
    }
}

static void fill_tables(ddp_dataset_t *dataset)
{
    const size_t channels = dataset->info.channels;

    for (size_t i = 0; i < channels * DDP_NORMALISE_RUN; i++) {
        const double mean = dataset->mean[i % channels];
        const double std  = dataset->std[i % channels] > 0.0 ? dataset->std[i % channels] : 1.0;

        dataset->scale[i]  = (float)(1.0 / (255.0 * std));
        dataset->offset[i] = (float)(-mean / std);
    }
}

static void use_memory(ddp_dataset_t *dataset, const void *memory)
{
    const block_header_t *header = memory;

    dataset->pixels = (const unsigned char *)memory + PAGE_BYTES;
    dataset->label  = (const int32_t *)(const void *)((const char *)memory + dataset->labels_offset);
    memcpy(dataset->mean, header->mean, sizeof(dataset->mean));
    memcpy(dataset->std, header->std, sizeof(dataset->std));
    fill_tables(dataset);
}

ddp_status_t ddp_dataset_load(ddp_dataset_t *dataset, void *memory)
{
    ddp_status_t    status                        = DDP_OK;
    block_header_t *header                        = memory;
    unsigned char  *pixels                        = (unsigned char *)memory + PAGE_BYTES;
    ddp_moments_t   moments[DDP_IDX_MAX_CHANNELS] = {{0}};
    int32_t        *labels                        = NULL;

    DDP_REQUIRE(memory != NULL && (uintptr_t)memory % DDP_ALIGNMENT == 0, DDP_ERR_INVALID_ARG,
                "memory of a data set is NULL or not aligned to %d bytes", DDP_ALIGNMENT);
    labels = (int32_t *)(void *)((char *)memory + dataset->labels_offset);
    memset(header, 0, sizeof(*header));
    if (dataset->kind == DDP_DATA_SHAPES) {
        load_shapes(dataset, pixels, labels, moments);
    } else {
        DDP_TRY(load_labels(dataset, labels)); /* the quick check first */
        DDP_TRY(load_images(dataset, pixels, moments));
    }
    for (size_t c = 0; c < dataset->info.channels; c++) {
        ddp_moments_get(&moments[c], &header->mean[c], &header->std[c]);
    }
    header->identity = dataset->identity;
    header->magic    = BLOCK_MAGIC;
    use_memory(dataset, memory);
out:
    return status;
}

ddp_status_t ddp_dataset_attach(ddp_dataset_t *dataset, const void *memory)
{
    ddp_status_t          status = DDP_OK;
    const block_header_t *header = memory;

    DDP_REQUIRE(header != NULL && header->magic == BLOCK_MAGIC, DDP_ERR_STATE,
                "%s: the memory to attach to holds no loaded data set", dataset->info.source);
    DDP_REQUIRE(header->identity == dataset->identity, DDP_ERR_STATE,
                "%s: the memory to attach to was loaded from other data", dataset->info.source);
    use_memory(dataset, memory);
out:
    return status;
}

bool ddp_dataset_is_loaded(const ddp_dataset_t *dataset)
{
    return dataset->pixels != NULL;
}

void ddp_dataset_moments(const ddp_dataset_t *dataset, size_t channel, double *mean_p, double *std_p)
{
    *mean_p = dataset->mean[channel];
    *std_p  = dataset->std[channel];
}

ddp_status_t ddp_dataset_set_moments(ddp_dataset_t *dataset, const double *mean, const double *std)
{
    ddp_status_t status = DDP_OK;
    const size_t bytes  = dataset->info.channels * sizeof(double);

    for (size_t c = 0; c < dataset->info.channels; c++) {
        DDP_REQUIRE(
            __builtin_isfinite(mean[c]) && __builtin_isfinite(std[c]) && std[c] >= 0.0, DDP_ERR_INVALID_ARG,
            "mean %g and standard deviation %g of channel %zu cannot be normalised with", mean[c], std[c], c);
    }
    memcpy(dataset->mean, mean, bytes);
    memcpy(dataset->std, std, bytes);
    fill_tables(dataset);
out:
    return status;
}

void ddp_dataset_fetch(const ddp_dataset_t *dataset, const size_t *index, size_t n, float *images,
                       int32_t *labels)
{
    const size_t pixels = image_pixels(&dataset->info);
    const size_t period = dataset->info.channels * DDP_NORMALISE_RUN;

    for (size_t i = 0; i < n; i++) {
        if (i + 1 < n) { /* samples lie anywhere: have the next one on its way */
            for (size_t line = 0; line < pixels; line += DDP_ALIGNMENT) {
                __builtin_prefetch(dataset->pixels + index[i + 1] * pixels + line);
            }
        }
        labels[i] = dataset->label[index[i]];
        ddp_normalise(dataset->pixels + index[i] * pixels, pixels, dataset->scale, dataset->offset, period,
                      images + i * pixels);
    }
}
