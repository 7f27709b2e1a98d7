#include "io/idx_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "io/file_internal.h"

#define TYPE_UINT8     0x08
#define TYPE_INT32     0x0c
#define MAX_DIMS       4
#define DEFLATE_MOST   1032 /* no deflate stream expands by more */
#define LABELS_A_PIECE 4096

static uint32_t big_endian(const unsigned char *bytes)
{
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

/* `n` bytes at decoded offset `offset`, or a line that says where they end */
static ddp_status_t read_exactly(ddp_idx_t *idx, void *data, size_t n, size_t offset, size_t expected_end)
{
    ddp_status_t status = DDP_OK;
    size_t       got    = 0;

    DDP_TRY(ddp_bytes_read(idx->bytes, data, n, &got));
    DDP_REQUIRE(got == n, DDP_ERR_FORMAT, "'%s': truncated: expected %zu bytes, found %zu%s",
                ddp_bytes_path(idx->bytes), expected_end, offset + got,
                ddp_bytes_is_cut(idx->bytes) ? " where the gzip data breaks off" : "");
out:
    return status;
}

/* Type and number of dimensions are right for the role. */
static ddp_status_t check_magic(const char *path, ddp_idx_role_t role, const unsigned char *magic)
{
    ddp_status_t status    = DDP_OK;
    const bool   is_images = role == DDP_IDX_IMAGES;

    DDP_REQUIRE(magic[0] == 0 && magic[1] == 0, DDP_ERR_FORMAT,
                "'%s': offset 0: expected 0x0000, with which IDX files begin, found 0x%02x%02x", path,
                magic[0], magic[1]);
    DDP_REQUIRE(magic[2] == TYPE_UINT8 || (!is_images && magic[2] == TYPE_INT32), DDP_ERR_FORMAT,
                "'%s': offset 2: expected type %s for %s, found 0x%02x", path,
                is_images ? "0x08 (uint8)" : "0x08 (uint8) or 0x0c (int32)", is_images ? "images" : "labels",
                magic[2]);
    DDP_REQUIRE(is_images ? (magic[3] == 3 || magic[3] == 4) : magic[3] == 1, DDP_ERR_FORMAT,
                "'%s': offset 3: expected %s of %s, found %d", path,
                is_images ? "3 or 4 dimensions" : "1 dimension", is_images ? "images" : "labels", magic[3]);
out:
    return status;
}

static ddp_status_t check_dims(ddp_idx_t *idx, const char *path, const size_t *dims, size_t ndim,
                               size_t *payload_p)
{
    static const char *const names[MAX_DIMS] = {"samples", "height", "width", "channels"};
    ddp_status_t             status          = DDP_OK;

    for (size_t d = 0; d < ndim; d++) {
        DDP_REQUIRE(dims[d] > 0, DDP_ERR_FORMAT, "'%s': offset %zu: expected 1 or more %s, found 0 (zero %s)",
                    path, 4 + 4 * d, names[d], names[d]);
        DDP_REQUIRE(!__builtin_mul_overflow(*payload_p, dims[d], payload_p), DDP_ERR_FORMAT,
                    "'%s': offset %zu: expected dimensions that fit in memory, found %zu %s", path, 4 + 4 * d,
                    dims[d], names[d]);
    }
    DDP_REQUIRE(*payload_p <= SIZE_MAX / 4, DDP_ERR_FORMAT,
                "'%s': offset 4: expected dimensions that fit in memory, found %zu bytes", path, *payload_p);
    DDP_REQUIRE(dims[3] <= DDP_SOURCE_MAX_CHANNELS, DDP_ERR_FORMAT,
                "'%s': offset 16: expected at most %d channels (the last dimension), found %zu", path,
                DDP_SOURCE_MAX_CHANNELS, dims[3]);
    idx->items    = dims[0];
    idx->height   = dims[1];
    idx->width    = dims[2];
    idx->channels = dims[3];
out:
    return status;
}

/* What the header promises can be in a file of this size: known before memory is taken for it. */
static ddp_status_t check_length(const ddp_idx_t *idx, size_t payload)
{
    ddp_status_t            status   = DDP_OK;
    const ddp_bytes_info_t *info     = ddp_bytes_info(idx->bytes);
    const char             *path     = ddp_bytes_path(idx->bytes);
    const uint64_t          expected = (uint64_t)payload + idx->header_bytes;

    if (info->is_gzip) {
        DDP_REQUIRE(
            expected / DEFLATE_MOST <= info->file_bytes, DDP_ERR_FORMAT,
            "'%s': offset 4: truncated, or wrong dimensions: %llu bytes expected, which a gzip file of %llu "
            "bytes cannot hold",
            path, (unsigned long long)expected, (unsigned long long)info->file_bytes);
        goto out;
    }
    DDP_REQUIRE(info->file_bytes >= expected, DDP_ERR_FORMAT,
                "'%s': truncated: expected %llu bytes, found %llu", path, (unsigned long long)expected,
                (unsigned long long)info->file_bytes);
    DDP_REQUIRE(info->file_bytes == expected, DDP_ERR_FORMAT,
                "'%s': offset %llu: expected the end of the file, found %llu bytes left over", path,
                (unsigned long long)expected, (unsigned long long)(info->file_bytes - expected));
out:
    return status;
}

ddp_status_t ddp_idx_open(const char *path, ddp_idx_role_t role, ddp_idx_t *idx)
{
    ddp_status_t  status                   = DDP_OK;
    unsigned char header[4 + 4 * MAX_DIMS] = {0};
    size_t        dims[MAX_DIMS]           = {1, 1, 1, 1};
    ddp_idx_t     opened                   = {.bytes = NULL};
    size_t        payload                  = 1;
    size_t        ndim;

    memset(idx, 0, sizeof(*idx));
    DDP_TRY(ddp_bytes_open(path, &opened.bytes));
    DDP_TRY(read_exactly(&opened, header, 4, 0, 8));
    DDP_TRY(check_magic(path, role, header));
    ndim                = header[3];
    opened.header_bytes = 4 + 4 * ndim;
    DDP_TRY(read_exactly(&opened, header + 4, 4 * ndim, 4, opened.header_bytes));
    for (size_t d = 0; d < ndim; d++) {
        dims[d] = big_endian(header + 4 + 4 * d);
    }
    payload = header[2] == TYPE_INT32 ? 4 : 1;
    DDP_TRY(check_dims(&opened, path, dims, ndim, &payload));
    opened.item_bytes = payload / opened.items;
    DDP_TRY(check_length(&opened, payload));
    *idx         = opened;
    opened.bytes = NULL;
out:
    ddp_idx_close(&opened);
    return status;
}

void ddp_idx_close(ddp_idx_t *idx)
{
    ddp_bytes_close(&idx->bytes);
}

ddp_status_t ddp_idx_read(ddp_idx_t *idx, void *data, size_t n)
{
    const size_t end    = idx->header_bytes + idx->items * idx->item_bytes;
    const size_t offset = idx->header_bytes + idx->bytes_read;
    ddp_status_t status = read_exactly(idx, data, n, offset, end);

    idx->bytes_read += n;
    return status;
}

ddp_status_t ddp_idx_read_labels(ddp_idx_t *idx, size_t n, size_t classes, int32_t *labels, int32_t *max_p)
{
    ddp_status_t  status = DDP_OK;
    int32_t       max    = 0;
    unsigned char piece[4 * LABELS_A_PIECE];

    for (size_t first = 0; first < n; first += LABELS_A_PIECE) {
        const size_t count = n - first < LABELS_A_PIECE ? n - first : LABELS_A_PIECE;

        DDP_TRY(ddp_idx_read(idx, piece, count * idx->item_bytes));
        for (size_t i = 0; i < count; i++) {
            const int32_t label =
                idx->item_bytes == 4 ? (int32_t)big_endian(piece + 4 * i) : (int32_t)piece[i];

            DDP_REQUIRE(label >= 0 && (size_t)label < classes, DDP_ERR_FORMAT,
                        "'%s': offset %zu: expected labels 0 .. %zu, found %d at index %zu",
                        ddp_bytes_path(idx->bytes), idx->header_bytes + (first + i) * idx->item_bytes,
                        classes - 1, (int)label, first + i);
            max = label > max ? label : max;
            if (labels != NULL) {
                labels[first + i] = label;
            }
        }
    }
    if (max_p != NULL) {
        *max_p = max;
    }
out:
    return status;
}

ddp_status_t ddp_idx_finish(ddp_idx_t *idx)
{
    ddp_status_t status = DDP_OK;
    size_t       got    = 0;
    char         extra;

    DDP_TRY(ddp_bytes_read(idx->bytes, &extra, 1, &got)); /* makes zlib reach the checksums */
    DDP_REQUIRE(got == 0, DDP_ERR_FORMAT,
                "'%s': decoded offset %zu: expected the end of the data, found bytes left over",
                ddp_bytes_path(idx->bytes), idx->header_bytes + idx->items * idx->item_bytes);
    DDP_REQUIRE(!ddp_bytes_is_cut(idx->bytes), DDP_ERR_FORMAT,
                "'%s': truncated: expected gzip's checksum behind the data, found the end of the file",
                ddp_bytes_path(idx->bytes));
out:
    return status;
}

ddp_status_t ddp_idx_find(const char *folder, ddp_idx_role_t role, const char *prefix, char *path,
                          size_t path_size)
{
    static const char *const forms[2][4] = {{"images-idx3", "images.idx3", "images-idx4", "images.idx4"},
                                            {"labels-idx1", "labels.idx1", "labels-idx1", "labels.idx1"}};
    static const char *const ends[2]     = {"", ".gz"};
    ddp_status_t             status      = DDP_OK;
    struct stat              st;

    if (stat(folder, &st) != 0) {
        DDP_TRY(ddp_fail_path(folder, errno, ""));
    }
    DDP_REQUIRE(S_ISDIR(st.st_mode), DDP_ERR_IO,
                "'%s': not a folder; data.path is the folder of the IDX files", folder);
    for (size_t form = 0; form < 4; form++) {
        for (size_t end = 0; end < 2; end++) {
            const int length =
                snprintf(path, path_size, "%s/%s-%s-ubyte%s", folder, prefix, forms[role][form], ends[end]);

            DDP_REQUIRE(length >= 0 && (size_t)length < path_size, DDP_ERR_IO, "'%s': path too long", folder);
            if (stat(path, &st) == 0 || errno != ENOENT) {
                goto out; /* there, or a fault that opening it will name */
            }
        }
    }
    status = ddp_fail(DDP_ERR_IO, "'%s': no file %s-%s-ubyte or %s-%s-ubyte.gz in this folder", folder,
                      prefix, forms[role][0], prefix, forms[role][0]);
out:
    return status;
}
