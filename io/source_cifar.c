#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "io/source_internal.h"

/* The binary files of CIFAR-10 and CIFAR-100 (www.cs.toronto.edu/~kriz/cifar.html): records of one label byte
 * (CIFAR-100: coarse, then fine) and 32 x 32 pixels, all red ones, then green, then blue. */

#define SIDE         ((size_t)32)
#define PLANE        (SIDE * SIDE)
#define CHANNELS     ((size_t)3)
#define IMAGE_BYTES  (PLANE * CHANNELS)
#define MAX_FILES    5
#define PIECE        ((size_t)64) /* records read at a time */
#define COARSE       20
#define RECORD_LIMIT (IMAGE_BYTES + 2)

typedef struct cifar_source {
    size_t            label_bytes; /* 1, or 2 with a coarse label in front */
    size_t            file_count;
    size_t            records[MAX_FILES];
    ddp_source_file_t files[MAX_FILES];
} cifar_source_t;

static const char *const train10[MAX_FILES] = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                               "data_batch_4.bin", "data_batch_5.bin"};

static const char *file_name(const ddp_dataset_params_t *params, size_t i)
{
    if (params->kind == DDP_DATA_CIFAR100) {
        return params->split == DDP_SPLIT_TRAIN ? "train.bin" : "test.bin";
    }
    return params->split == DDP_SPLIT_TRAIN ? train10[i] : "test_batch.bin";
}

/* Length and kind of one file; what it holds is seen at load. */
static ddp_status_t check_file(cifar_source_t *source, size_t i, const char *folder, const char *name)
{
    ddp_status_t       status       = DDP_OK;
    ddp_source_file_t *file         = &source->files[i];
    const size_t       record_bytes = IMAGE_BYTES + source->label_bytes;
    ddp_bytes_t       *bytes        = NULL;
    const int          length       = snprintf(file->path, sizeof(file->path), "%s/%s", folder, name);

    DDP_REQUIRE(length >= 0 && (size_t)length < sizeof(file->path), DDP_ERR_IO, "'%s': path too long",
                folder);
    DDP_TRY(ddp_bytes_open(file->path, &bytes));
    file->seen = *ddp_bytes_info(bytes);
    DDP_REQUIRE(!file->seen.is_gzip, DDP_ERR_FORMAT,
                "'%s': offset 0: expected a label, found gzip data; gunzip the file", file->path);
    DDP_REQUIRE(file->seen.file_bytes > 0, DDP_ERR_FORMAT, "'%s': expected records of %zu bytes, found none",
                file->path, record_bytes);
    DDP_REQUIRE(file->seen.file_bytes % record_bytes == 0, DDP_ERR_FORMAT,
                "'%s': truncated, or of another kind: expected a multiple of %zu bytes, found %llu",
                file->path, record_bytes, (unsigned long long)file->seen.file_bytes);
    source->records[i] = (size_t)(file->seen.file_bytes / record_bytes);
out:
    ddp_bytes_close(&bytes);
    return status;
}

static ddp_status_t open_cifar(const ddp_dataset_params_t *params, ddp_dataset_info_t *info,
                               uint64_t *identity_p, void **ctx_p)
{
    ddp_status_t    status    = DDP_OK;
    const bool      is_fine   = params->kind == DDP_DATA_CIFAR100;
    const bool      is_batchy = !is_fine && params->split == DDP_SPLIT_TRAIN;
    cifar_source_t *source    = NULL;
    size_t          there     = 0;

    DDP_REQUIRE(params->path != NULL, DDP_ERR_CONFIG,
                "data.path is missing: the folder with %s of data.kind %s",
                is_fine ? "train.bin and test.bin" : "data_batch_1.bin .. 5 and test_batch.bin",
                is_fine ? "cifar100" : "cifar10");
    source = calloc(1, sizeof(*source));
    DDP_REQUIRE(source != NULL, DDP_ERR_NO_MEMORY, "no memory for a data set");
    source->label_bytes = is_fine ? 2 : 1;
    source->file_count  = is_batchy ? MAX_FILES : 1;
    for (size_t i = 0; i < source->file_count; i++) {
        DDP_TRY(check_file(source, i, params->path, file_name(params, i)));
        there += source->records[i];
        *identity_p = ddp_source_hash_file(*identity_p, &source->files[i]);
    }
    DDP_TRY(ddp_source_samples(params, params->path, there, &info->samples));
    info->height   = SIDE;
    info->width    = SIDE;
    info->channels = CHANNELS;
    info->classes  = is_fine ? 100 : 10;
    ddp_source_name(params, params->path, info);
    *ctx_p = source;
    source = NULL;
out:
    free(source);
    return status;
}

/* [channels, height, width] to [height, width, channels] */
static void interleave(const unsigned char *planes, unsigned char *pixels)
{
    for (size_t i = 0; i < PLANE; i++) {
        for (size_t c = 0; c < CHANNELS; c++) {
            pixels[i * CHANNELS + c] = planes[c * PLANE + i];
        }
    }
}

static ddp_status_t check_labels(const cifar_source_t *source, const ddp_dataset_info_t *info,
                                 const char *path, size_t record, const unsigned char *labels)
{
    const size_t record_bytes = IMAGE_BYTES + source->label_bytes;

    for (size_t i = 0; i < source->label_bytes; i++) {
        const size_t limit = i + 1 == source->label_bytes ? info->classes : COARSE;

        if (labels[i] >= limit) {
            return ddp_fail(
                DDP_ERR_FORMAT, "'%s': offset %zu: expected %slabels 0 .. %zu, found %d at index %zu", path,
                record * record_bytes + i, limit == COARSE ? "coarse " : "", limit - 1, labels[i], record);
        }
    }
    return DDP_OK;
}

/* The first `n` records of file `i`. */
static ddp_status_t load_file(const cifar_source_t *source, size_t i, const ddp_dataset_info_t *info,
                              size_t n, unsigned char *pixels, int32_t *labels)
{
    ddp_status_t             status       = DDP_OK;
    const ddp_source_file_t *file         = &source->files[i];
    const size_t             record_bytes = IMAGE_BYTES + source->label_bytes;
    ddp_bytes_t             *bytes        = NULL;
    unsigned char           *records      = malloc(PIECE * RECORD_LIMIT);

    DDP_REQUIRE(records != NULL, DDP_ERR_NO_MEMORY, "no memory to read '%s'", file->path);
    DDP_TRY(ddp_bytes_open(file->path, &bytes));
    DDP_TRY(ddp_source_same(file, bytes));
    for (size_t first = 0; first < n; first += PIECE) {
        const size_t count = n - first < PIECE ? n - first : PIECE;
        size_t       got   = 0;

        DDP_TRY(ddp_bytes_read(bytes, records, count * record_bytes, &got));
        DDP_REQUIRE(got == count * record_bytes, DDP_ERR_FORMAT,
                    "'%s': truncated: expected %llu bytes, found %zu", file->path,
                    (unsigned long long)file->seen.file_bytes, first * record_bytes + got);
        for (size_t r = 0; r < count; r++) {
            const unsigned char *record = records + r * record_bytes;

            DDP_TRY(check_labels(source, info, file->path, first + r, record));
            labels[first + r] = record[source->label_bytes - 1];
            interleave(record + source->label_bytes, pixels + (first + r) * IMAGE_BYTES);
        }
    }
out:
    ddp_bytes_close(&bytes);
    free(records);
    return status;
}

static ddp_status_t load_cifar(void *ctx, const ddp_dataset_info_t *info, unsigned char *pixels,
                               int32_t *labels, ddp_moments_t *moments)
{
    ddp_status_t          status = DDP_OK;
    const cifar_source_t *source = ctx;
    size_t                done   = 0;

    for (size_t i = 0; i < source->file_count && done < info->samples; i++) {
        const size_t left = info->samples - done;
        const size_t n    = left < source->records[i] ? left : source->records[i];

        DDP_TRY(load_file(source, i, info, n, pixels + done * IMAGE_BYTES, labels + done));
        ddp_moments_add(moments, CHANNELS, pixels + done * IMAGE_BYTES, n * IMAGE_BYTES);
        done += n;
    }
out:
    return status;
}

const ddp_source_ops_t ddp_source_cifar = {.open = open_cifar, .load = load_cifar, .close = free};
