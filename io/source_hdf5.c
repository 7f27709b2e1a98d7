#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "io/h5_internal.h"
#include "io/h5_table_internal.h"
#include "io/source_internal.h"

/* Pictures and labels as two data sets of one HDF5 file, read by slices straight into their place. */

#define SLICE_BYTES    ((size_t)4 << 20)
#define LABELS_A_PIECE ((size_t)4096)

typedef struct hdf5_source {
    ddp_source_file_t file;
    char              images[DDP_SOURCE_PATH_SIZE];
    char              labels[DDP_SOURCE_PATH_SIZE];
    size_t            first; /* sample of the file with which the split begins */
} hdf5_source_t;

/* Rows first .. first + n - 1, converted to the memory's type. */
static ddp_status_t read_rows(const ddp_h5_table_t *table, hid_t type, size_t first, size_t n, void *data)
{
    const hsize_t start[DDP_H5_MAX_DIMS] = {first};
    hsize_t       count[DDP_H5_MAX_DIMS];

    memcpy(count, table->dims, sizeof(count));
    count[0] = n;
    return ddp_h5_table_read(table, type, start, count, data);
}

static ddp_status_t open_images(hid_t file, const hdf5_source_t *source, ddp_h5_table_t *table,
                                size_t *pixel_bytes_p)
{
    const ddp_h5_wanted_t wanted = {.path  = source->file.path,
                                    .name  = source->images,
                                    .key   = "data.images",
                                    .least = 2,
                                    .most  = DDP_H5_MAX_DIMS,
                                    .limit = UINT32_MAX};
    ddp_status_t          status = DDP_OK;
    H5T_class_t           kind;
    size_t                bytes;

    DDP_TRY(ddp_h5_table_open(file, &wanted, table));
    kind  = H5Tget_class(table->type);
    bytes = H5Tget_size(table->type);
    DDP_REQUIRE((kind == H5T_INTEGER && bytes == 1 && H5Tget_sign(table->type) == H5T_SGN_NONE) ||
                    (kind == H5T_FLOAT && bytes == sizeof(float)),
                DDP_ERR_FORMAT,
                "'%s': data set '%s': expected pixels of uint8 or float32, found %s of %zu bytes",
                table->path, table->name,
                kind == H5T_INTEGER ? "integers"
                : kind == H5T_FLOAT ? "floats"
                                    : "another type",
                bytes);
    DDP_REQUIRE(table->dims[3] <= DDP_SOURCE_MAX_CHANNELS, DDP_ERR_FORMAT,
                "'%s': data set '%s': expected at most %d channels (the last dimension), found %llu",
                table->path, table->name, DDP_SOURCE_MAX_CHANNELS, (unsigned long long)table->dims[3]);
    *pixel_bytes_p = bytes;
out:
    return status;
}

static ddp_status_t open_labels(hid_t file, const hdf5_source_t *source, ddp_h5_table_t *table)
{
    const ddp_h5_wanted_t wanted = {.path  = source->file.path,
                                    .name  = source->labels,
                                    .key   = "data.labels",
                                    .least = 1,
                                    .most  = 1,
                                    .limit = UINT32_MAX};
    ddp_status_t          status = DDP_OK;

    DDP_TRY(ddp_h5_table_open(file, &wanted, table));
    DDP_REQUIRE(H5Tget_class(table->type) == H5T_INTEGER, DDP_ERR_FORMAT,
                "'%s': data set '%s': expected labels of an integer type", table->path, table->name);
out:
    return status;
}

/* Labels first .. first + n - 1, each 0 .. classes - 1. `labels` may be NULL: only check. */
static ddp_status_t read_labels(const ddp_h5_table_t *table, size_t first, size_t n, size_t classes,
                                int32_t *labels, size_t *max_p)
{
    ddp_status_t status = DDP_OK;
    size_t       max    = 0;
    int64_t      piece[LABELS_A_PIECE];

    for (size_t done = 0; done < n; done += LABELS_A_PIECE) {
        const size_t count = n - done < LABELS_A_PIECE ? n - done : LABELS_A_PIECE;

        DDP_TRY(read_rows(table, H5T_NATIVE_INT64, first + done, count, piece));
        for (size_t i = 0; i < count; i++) {
            DDP_REQUIRE(piece[i] >= 0 && (uint64_t)piece[i] < classes, DDP_ERR_FORMAT,
                        "'%s': data set '%s': expected labels 0 .. %zu, found %lld at index %zu", table->path,
                        table->name, classes - 1, (long long)piece[i], first + done + i);
            max = (size_t)piece[i] > max ? (size_t)piece[i] : max;
            if (labels != NULL) {
                labels[done + i] = (int32_t)piece[i];
            }
        }
    }
    *max_p = max;
out:
    return status;
}

/* Which of the `n` samples of the file are those of this split. */
static ddp_status_t split_samples(const ddp_dataset_params_t *params, hdf5_source_t *source, size_t n,
                                  size_t *there_p)
{
    ddp_status_t status = DDP_OK;
    double       share  = params->val_fraction;
    size_t       test;

    DDP_REQUIRE(share >= 0.0 && share < 1.0, DDP_ERR_CONFIG, "data.val_fraction is %g; 0 <= value < 1",
                share);
    *there_p = n;
    if (share > 0.0) {
        DDP_REQUIRE(n >= 2, DDP_ERR_FORMAT, "'%s': 1 sample cannot be split into training and test samples",
                    source->file.path);
        test          = (size_t)llround(share * (double)n);
        test          = test < 1 ? 1 : test >= n ? n - 1 : test;
        source->first = params->split == DDP_SPLIT_TEST ? n - test : 0;
        *there_p      = params->split == DDP_SPLIT_TEST ? test : n - test;
    }
out:
    return status;
}

static ddp_status_t read_headers(const ddp_dataset_params_t *params, hdf5_source_t *source, hid_t file,
                                 ddp_dataset_info_t *info)
{
    ddp_status_t   status = DDP_OK;
    ddp_h5_table_t images = DDP_H5_TABLE_EMPTY;
    ddp_h5_table_t labels = DDP_H5_TABLE_EMPTY;
    size_t         max    = 0;
    size_t         there  = 0;

    DDP_TRY(open_images(file, source, &images, &info->pixel_bytes));
    DDP_TRY(open_labels(file, source, &labels));
    DDP_REQUIRE(images.dims[0] == labels.dims[0], DDP_ERR_FORMAT,
                "'%s': data set '%s': expected %llu labels, as many as there are in '%s', found %llu",
                source->file.path, source->labels, (unsigned long long)images.dims[0], source->images,
                (unsigned long long)labels.dims[0]);
    DDP_TRY(read_labels(&labels, 0, (size_t)labels.dims[0], DDP_SOURCE_MAX_CLASSES, NULL, &max));
    DDP_TRY(split_samples(params, source, (size_t)images.dims[0], &there));
    DDP_TRY(ddp_source_samples(params, source->file.path, there, &info->samples));
    /* features [n, f] are a picture of one line */
    info->height   = images.ndim == 2 ? 1 : (size_t)images.dims[1];
    info->width    = images.ndim == 2 ? (size_t)images.dims[1] : (size_t)images.dims[2];
    info->channels = (size_t)images.dims[3];
    info->classes  = max + 1;
out:
    ddp_h5_table_close(&labels);
    ddp_h5_table_close(&images);
    return status;
}

static ddp_status_t copy_name(char *to, const char *name, const char *key)
{
    ddp_status_t status = DDP_OK;

    DDP_REQUIRE(strlen(name) < DDP_SOURCE_PATH_SIZE && name[0] != '\0', DDP_ERR_CONFIG,
                "%s is empty or too long", key);
    memcpy(to, name, strlen(name) + 1);
out:
    return status;
}

static ddp_status_t open_hdf5(const ddp_dataset_params_t *params, ddp_dataset_info_t *info,
                              uint64_t *identity_p, void **ctx_p)
{
    ddp_status_t   status = DDP_OK;
    hdf5_source_t *source = NULL;
    ddp_bytes_t   *bytes  = NULL;
    hid_t          file   = -1;

    ddp_h5_quiet();
    DDP_REQUIRE(params->path != NULL, DDP_ERR_CONFIG, "data.path is missing: the file of data.kind hdf5");
    source = calloc(1, sizeof(*source));
    DDP_REQUIRE(source != NULL, DDP_ERR_NO_MEMORY, "no memory for a data set");
    DDP_TRY(copy_name(source->file.path, params->path, "data.path"));
    DDP_TRY(copy_name(source->images, params->images != NULL ? params->images : "images", "data.images"));
    DDP_TRY(copy_name(source->labels, params->labels != NULL ? params->labels : "labels", "data.labels"));
    DDP_TRY(ddp_bytes_open(params->path, &bytes)); /* names what is wrong with a path better than HDF5 does */
    source->file.seen = *ddp_bytes_info(bytes);
    DDP_TRY(ddp_h5_open(params->path, &file));
    DDP_TRY(read_headers(params, source, file, info));
    *identity_p = ddp_source_hash_file(*identity_p, &source->file);
    *identity_p = ddp_source_hash(*identity_p, source->first);
    for (const char *c = source->images; *c != '\0'; c++) {
        *identity_p = ddp_source_hash(*identity_p, (unsigned char)*c);
    }
    for (const char *c = source->labels; *c != '\0'; c++) {
        *identity_p = ddp_source_hash(*identity_p, (unsigned char)*c);
    }
    ddp_source_name(params, params->path, info);
    *ctx_p = source;
    source = NULL;
out:
    if (file >= 0) {
        (void)H5Fclose(file);
    }
    ddp_bytes_close(&bytes);
    free(source);
    return status;
}

/* Slices of whole chunks: no chunk is read twice. */
static ddp_status_t load_images(const ddp_h5_table_t *images, const hdf5_source_t *source,
                                const ddp_dataset_info_t *info, unsigned char *pixels, ddp_moments_t *moments)
{
    ddp_status_t status    = DDP_OK;
    const size_t row       = info->height * info->width * info->channels;
    const size_t row_bytes = row * info->pixel_bytes;
    const size_t chunk     = (size_t)images->chunk;
    const size_t end       = source->first + info->samples;
    size_t       slice     = SLICE_BYTES / row_bytes / chunk * chunk;
    size_t       first     = source->first;

    slice = slice > 0 ? slice : chunk;
    while (first < end) {
        const size_t next = (first / slice + 1) * slice; /* where a slice begins again */
        const size_t n    = (next < end ? next : end) - first;

        DDP_TRY(read_rows(images, info->pixel_bytes == 1 ? H5T_NATIVE_UINT8 : H5T_NATIVE_FLOAT, first, n,
                          pixels));
        if (info->pixel_bytes == 1) {
            ddp_moments_add(moments, info->channels, pixels, n * row);
        }
        pixels += n * row_bytes;
        first += n;
    }
out:
    return status;
}

static ddp_status_t load_hdf5(void *ctx, const ddp_dataset_info_t *info, unsigned char *pixels,
                              int32_t *labels, ddp_moments_t *moments)
{
    ddp_status_t         status      = DDP_OK;
    const hdf5_source_t *source      = ctx;
    ddp_bytes_t         *bytes       = NULL;
    ddp_h5_table_t       image_table = DDP_H5_TABLE_EMPTY;
    ddp_h5_table_t       label_table = DDP_H5_TABLE_EMPTY;
    hid_t                file        = -1;
    size_t               pixel_bytes = 0;
    size_t               max;

    ddp_h5_quiet();
    DDP_TRY(ddp_bytes_open(source->file.path, &bytes));
    DDP_TRY(ddp_source_same(&source->file, bytes));
    DDP_TRY(ddp_h5_open(source->file.path, &file));
    DDP_TRY(open_images(file, source, &image_table, &pixel_bytes));
    DDP_TRY(open_labels(file, source, &label_table));
    DDP_TRY(read_labels(&label_table, source->first, info->samples, info->classes, labels, &max));
    DDP_TRY(load_images(&image_table, source, info, pixels, moments));
out:
    ddp_h5_table_close(&label_table);
    ddp_h5_table_close(&image_table);
    if (file >= 0) {
        (void)H5Fclose(file);
    }
    ddp_bytes_close(&bytes);
    return status;
}

const ddp_source_ops_t ddp_source_hdf5 = {.open = open_hdf5, .load = load_hdf5, .close = free};
