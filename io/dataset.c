#include "io/dataset.h"

#include <stdlib.h>
#include <string.h>

#include "base/allocator.h"
#include "base/convert.h"
#include "base/error.h"
#include "io/augment_internal.h"
#include "io/dataset_internal.h"
#include "io/moments_internal.h"
#include "io/normalise_internal.h"
#include "io/source_internal.h"

#define PAGE_BYTES  ((size_t)4096)
#define BLOCK_MAGIC UINT64_C(0x3154414444504444)

/* Begins the memory that ranks share; pixels follow on the next page, then labels. */
typedef struct block_header {
    uint64_t magic; /* written last */
    uint64_t identity;
    double   mean[DDP_SOURCE_MAX_CHANNELS];
    double   std[DDP_SOURCE_MAX_CHANNELS];
} block_header_t;

_Static_assert(sizeof(block_header_t) <= PAGE_BYTES, "the header has one page");

struct ddp_dataset {
    ddp_dataset_info_t      info;
    const ddp_source_ops_t *source;
    void                   *ctx;           /* owned, of the source */
    size_t                  labels_offset; /* in the memory */
    uint64_t                identity;      /* equal in every process that opened the same */
    const unsigned char    *pixels;        /* borrowed; NULL before load or attach */
    const int32_t          *label;         /* borrowed */
    double                  mean[DDP_SOURCE_MAX_CHANNELS];
    double                  std[DDP_SOURCE_MAX_CHANNELS];
    /* x = pixel * scale + offset, for DDP_NORMALISE_RUN pixels of all channels */
    float scale[DDP_SOURCE_MAX_CHANNELS * DDP_NORMALISE_RUN];
    float offset[DDP_SOURCE_MAX_CHANNELS * DDP_NORMALISE_RUN];
};

static size_t image_pixels(const ddp_dataset_info_t *info)
{
    return info->height * info->width * info->channels;
}

static const ddp_source_ops_t *find_source(ddp_data_kind_t kind)
{
    switch (kind) {
    case DDP_DATA_FASHION_MNIST:
    case DDP_DATA_IDX:
        return &ddp_source_idx;
    case DDP_DATA_SHAPES:
        return &ddp_source_shapes;
    case DDP_DATA_CIFAR10:
    case DDP_DATA_CIFAR100:
        return &ddp_source_cifar;
    case DDP_DATA_HDF5:
        return &ddp_source_hdf5;
    }
    return NULL;
}

/* Where things lie in the memory, and who the data is; info is complete but for memory_bytes. */
static ddp_status_t lay_out(ddp_dataset_t *dataset, const ddp_dataset_params_t *params)
{
    ddp_status_t        status    = DDP_OK;
    ddp_dataset_info_t *info      = &dataset->info;
    const uint64_t      numbers[] = {params->kind, params->split,  info->samples, info->height,
                                     info->width,  info->channels, info->classes};
    size_t              pixels    = 0;
    size_t              labels    = 0;

    DDP_TRY(ddp_mul_size(info->samples, image_pixels(info) * info->pixel_bytes, "pixels of the data set",
                         &pixels));
    DDP_TRY(ddp_mul_size(info->samples, sizeof(int32_t), "labels of the data set", &labels));
    DDP_REQUIRE(pixels <= SIZE_MAX / 4 && labels <= SIZE_MAX / 4, DDP_ERR_INVALID_ARG,
                "%zu samples do not fit in memory", info->samples);
    dataset->labels_offset = PAGE_BYTES + (pixels + DDP_ALIGNMENT - 1) / DDP_ALIGNMENT * DDP_ALIGNMENT;
    info->memory_bytes     = (dataset->labels_offset + labels + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        dataset->identity = ddp_source_hash(dataset->identity, numbers[i]);
    }
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
    dataset->source = find_source(params->kind);
    DDP_REQUIRE(dataset->source != NULL, DDP_ERR_INVALID_ARG, "data set of kind %d is unknown",
                (int)params->kind);
    dataset->identity         = DDP_SOURCE_HASH_START;
    dataset->info.pixel_bytes = 1;
    DDP_TRY(dataset->source->open(params, &dataset->info, &dataset->identity, &dataset->ctx));
    DDP_TRY(lay_out(dataset, params));
    *dataset_p = dataset;
    dataset    = NULL;
out:
    ddp_dataset_close(&dataset);
    return status;
}

void ddp_dataset_close(ddp_dataset_t **dataset_p)
{
    ddp_dataset_t *dataset = *dataset_p;

    if (dataset == NULL) {
        return;
    }
    if (dataset->source != NULL) {
        dataset->source->close(dataset->ctx);
    }
    free(dataset);
    *dataset_p = NULL;
}

const ddp_dataset_info_t *ddp_dataset_info(const ddp_dataset_t *dataset)
{
    return &dataset->info;
}

static void fill_tables(ddp_dataset_t *dataset)
{
    const size_t channels = dataset->info.channels;
    const double unit     = dataset->info.pixel_bytes == 1 ? 255.0 : 1.0;

    for (size_t i = 0; i < channels * DDP_NORMALISE_RUN; i++) {
        const double mean = dataset->mean[i % channels];
        const double std  = dataset->std[i % channels] > 0.0 ? dataset->std[i % channels] : 1.0;

        dataset->scale[i]  = (float)(1.0 / (unit * std));
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

static ddp_status_t measure_floats(const ddp_dataset_info_t *info, const float *pixels,
                                   block_header_t *header)
{
    ddp_status_t status = DDP_OK;
    const size_t n      = info->samples * image_pixels(info);
    const size_t bad    = ddp_moments_floats(pixels, info->channels, n, header->mean, header->std);

    DDP_REQUIRE(bad == n, DDP_ERR_FORMAT, "%s: a value of sample %zu is not finite", info->source,
                bad / image_pixels(info));
out:
    return status;
}

ddp_status_t ddp_dataset_load(ddp_dataset_t *dataset, void *memory)
{
    ddp_status_t    status                           = DDP_OK;
    block_header_t *header                           = memory;
    unsigned char  *pixels                           = (unsigned char *)memory + PAGE_BYTES;
    ddp_moments_t   moments[DDP_SOURCE_MAX_CHANNELS] = {{0}};
    int32_t        *labels                           = NULL;

    DDP_REQUIRE(memory != NULL && (uintptr_t)memory % DDP_ALIGNMENT == 0, DDP_ERR_INVALID_ARG,
                "memory of a data set is NULL or not aligned to %d bytes", DDP_ALIGNMENT);
    labels = (int32_t *)(void *)((char *)memory + dataset->labels_offset);
    memset(header, 0, sizeof(*header));
    DDP_TRY(dataset->source->load(dataset->ctx, &dataset->info, pixels, labels, moments));
    if (dataset->info.pixel_bytes == 1) {
        for (size_t c = 0; c < dataset->info.channels; c++) {
            ddp_moments_get(&moments[c], &header->mean[c], &header->std[c]);
        }
    } else {
        DDP_TRY(measure_floats(&dataset->info, (const float *)(const void *)pixels, header));
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

static void normalise(const ddp_dataset_t *dataset, const unsigned char *pixels, size_t n, float *x)
{
    const size_t period = dataset->info.channels * DDP_NORMALISE_RUN;

    if (dataset->info.pixel_bytes == 1) {
        ddp_normalise(pixels, n, dataset->scale, dataset->offset, period, x);
    } else {
        ddp_normalise_floats((const float *)(const void *)pixels, n, dataset->scale, dataset->offset, period,
                             x);
    }
}

/* A sample changed by `draw`, in pieces of one run of pixels. */
static void fetch_changed(const ddp_dataset_t *dataset, const ddp_augment_draw_t *draw,
                          const unsigned char *image, float *x)
{
    const ddp_dataset_info_t *info = &dataset->info;
    float                     piece[DDP_SOURCE_MAX_CHANNELS * DDP_NORMALISE_RUN]; /* or as many bytes */

    for (size_t y = 0; y < info->height; y++) {
        for (size_t first = 0; first < info->width; first += DDP_NORMALISE_RUN) {
            const size_t left  = info->width - first;
            const size_t count = left < DDP_NORMALISE_RUN ? left : DDP_NORMALISE_RUN;

            ddp_augment_row(draw, info, image, y, first, count, (unsigned char *)piece);
            normalise(dataset, (const unsigned char *)piece, count * info->channels, x);
            x += count * info->channels;
        }
    }
}

void ddp_dataset_fetch_augmented(const ddp_dataset_t *dataset, ddp_augment_t augment, uint64_t seed,
                                 uint64_t epoch, const size_t *index, size_t n, float *images,
                                 int32_t *labels)
{
    const size_t pixels = image_pixels(&dataset->info);
    const size_t bytes  = pixels * dataset->info.pixel_bytes;

    for (size_t i = 0; i < n; i++) {
        const unsigned char *image = dataset->pixels + index[i] * bytes;

        if (i + 1 < n) { /* samples lie anywhere: have the next one on its way */
            for (size_t line = 0; line < bytes; line += DDP_ALIGNMENT) {
                __builtin_prefetch(dataset->pixels + index[i + 1] * bytes + line);
            }
        }
        labels[i] = dataset->label[index[i]];
        if (augment == DDP_AUGMENT_NONE) {
            normalise(dataset, image, pixels, images + i * pixels);
        } else {
            const ddp_augment_draw_t draw = ddp_augment_draw(seed, epoch, index[i]);

            fetch_changed(dataset, &draw, image, images + i * pixels);
        }
    }
}

void ddp_dataset_fetch(const ddp_dataset_t *dataset, const size_t *index, size_t n, float *images,
                       int32_t *labels)
{
    ddp_dataset_fetch_augmented(dataset, DDP_AUGMENT_NONE, 0, 0, index, n, images, labels);
}
