/* As numpy.savez() does: stored, not packed. What 32 bits cannot hold is in the fields of zip64, which NumPy
 * reads. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <zlib.h>

#include "base/error.h"
#include "base/fault.h"
#include "io/npz_internal.h"

#define NPY_SIZE  128  /* of an array's header: enough for 4 dimensions; data begin at a multiple of 64 */
#define DOS_DATE  0x21 /* 1980-01-01: nothing depends on time */
#define VERSION   20
#define VERSION64 45 /* has zip64 */

typedef struct zip {
    ddp_new_file_t *file; /* borrowed */
    uint64_t        at;   /* bytes written */
    uint32_t        crc;  /* of the entry that is being written */
    uint64_t        most; /* numbers from this one on are in the fields of zip64 */
} zip_t;

typedef struct record {
    unsigned char bytes[64];
    size_t        n;
} record_t;

static void put(record_t *record, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        record->bytes[record->n++] = (unsigned char)(value >> (8 * i));
    }
}

static ddp_status_t append(zip_t *zip, const void *data, size_t bytes)
{
    zip->at += bytes;
    return ddp_new_file_write(zip->file, data, bytes);
}

static ddp_status_t append_data(void *ctx, const void *data, size_t bytes)
{
    zip_t *zip = ctx;

    zip->crc = (uint32_t)crc32_z(zip->crc, data, bytes);
    return append(zip, data, bytes);
}

static void make_header(const ddp_tensor_desc_t *desc, char header[NPY_SIZE])
{
    const char   magic[10] = {'\x93', 'N', 'U', 'M', 'P', 'Y', 1, 0, NPY_SIZE - 10, 0};
    char *const  text      = header + sizeof(magic);
    const size_t room      = NPY_SIZE - sizeof(magic);
    int          n         = snprintf(text, room, "{'descr': '<f4', 'fortran_order': False, 'shape': (");

    for (size_t d = 0; d < desc->ndim; d++) {
        n += snprintf(text + n, room - (size_t)n, "%s%zu%s", d > 0 ? " " : "", desc->shape[d],
                      d + 1 < desc->ndim || desc->ndim == 1 ? "," : "");
    }
    n += snprintf(text + n, room - (size_t)n, "), }");
    memcpy(header, magic, sizeof(magic));
    memset(text + n, ' ', room - (size_t)n);
    header[NPY_SIZE - 1] = '\n';
}

/* A field of a record, or all ones: the number is in that of zip64. */
static void put_small(const zip_t *zip, record_t *record, uint64_t value, size_t bytes)
{
    put(record, value >= zip->most || value >> (8 * bytes) != 0 ? UINT64_MAX : value, bytes);
}

/* The field of zip64: the sizes, if they are large, and, if there is a directory for it, the place. */
static void make_extra(const zip_t *zip, const ddp_zip_entry_t *entry, bool is_directory, record_t *extra)
{
    const bool   has_size  = entry->bytes >= zip->most;
    const bool   has_place = is_directory && entry->local >= zip->most;
    const size_t n         = (has_size ? 16U : 0U) + (has_place ? 8U : 0U);

    extra->n = 0;
    if (n == 0) {
        return;
    }
    put(extra, DDP_ZIP64_EXTRA, 2);
    put(extra, n, 2);
    if (has_size) {
        put(extra, entry->bytes, 8);
        put(extra, entry->bytes, 8);
    }
    if (has_place) {
        put(extra, entry->local, 8);
    }
}

/* What local header and directory have in common: version to "length of the extra field". */
static void put_common(const zip_t *zip, record_t *record, const ddp_zip_entry_t *entry, size_t extra)
{
    put(record, extra > 0 ? VERSION64 : VERSION, 2);
    put(record, 0x800, 2); /* names are UTF-8 */
    put(record, 0, 2);     /* stored */
    put(record, 0, 2);
    put(record, DOS_DATE, 2);
    put(record, entry->crc, 4);
    put_small(zip, record, entry->bytes, 4);
    put_small(zip, record, entry->bytes, 4);
    put(record, strlen(entry->name), 2);
    put(record, extra, 2);
}

static ddp_status_t put_local(zip_t *zip, const ddp_zip_entry_t *entry)
{
    ddp_status_t status = DDP_OK;
    record_t     record = {.n = 0};
    record_t     extra;

    make_extra(zip, entry, false, &extra);
    put(&record, DDP_ZIP_LOCAL, 4);
    put_common(zip, &record, entry, extra.n);
    DDP_TRY(append(zip, record.bytes, record.n));
    DDP_TRY(append(zip, entry->name, strlen(entry->name)));
    DDP_TRY(append(zip, extra.bytes, extra.n));
out:
    return status;
}

/* @param [out] entry  for the directory */
static ddp_status_t put_array(zip_t *zip, ddp_weights_t *w, size_t tensor, ddp_zip_entry_t *entry)
{
    ddp_status_t             status = DDP_OK;
    const ddp_tensor_desc_t *desc   = &w->tensors[tensor].desc;
    char                     header[NPY_SIZE];
    record_t                 crc = {.n = 0};

    entry->local = zip->at;
    entry->bytes = NPY_SIZE + desc->count * sizeof(float);
    snprintf(entry->name, sizeof(entry->name), "%s.npy", desc->name);
    make_header(desc, header);
    zip->crc = 0;
    DDP_TRY(put_local(zip, entry));
    DDP_TRY(append_data(zip, header, sizeof(header)));
    DDP_TRY(ddp_weights_each_piece(w, tensor, append_data, zip));
    entry->crc = zip->crc;
    put(&crc, entry->crc, 4);
    DDP_TRY(ddp_new_file_patch(zip->file, entry->local + 14, crc.bytes, crc.n));
out:
    return status;
}

static ddp_status_t put_directory(zip_t *zip, const ddp_zip_entry_t *entries, size_t n)
{
    ddp_status_t status = DDP_OK;

    for (size_t i = 0; i < n; i++) {
        record_t record = {.n = 0};
        record_t extra;

        make_extra(zip, &entries[i], true, &extra);
        put(&record, DDP_ZIP_CENTRAL, 4);
        put(&record, extra.n > 0 ? VERSION64 : VERSION, 2);
        put_common(zip, &record, &entries[i], extra.n);
        put(&record, 0, 8); /* no comment, disk 0, attributes */
        put(&record, 0, 2);
        put_small(zip, &record, entries[i].local, 4);
        DDP_TRY(append(zip, record.bytes, record.n));
        DDP_TRY(append(zip, entries[i].name, strlen(entries[i].name)));
        DDP_TRY(append(zip, extra.bytes, extra.n));
    }
out:
    return status;
}

/* Where the directory is. @param [in] at, n  its first byte, its entries; it ends here */
static ddp_status_t put_end(zip_t *zip, uint64_t at, uint64_t n)
{
    ddp_status_t   status = DDP_OK;
    const uint64_t bytes  = zip->at - at;
    const uint64_t here   = zip->at;
    record_t       large  = {.n = 0};
    record_t       end    = {.n = 0};

    if (at >= zip->most || bytes >= zip->most || n >= zip->most || n >= UINT16_MAX) {
        put(&large, DDP_ZIP64_END, 4);
        put(&large, DDP_ZIP64_END_BYTES - 12, 8);
        put(&large, VERSION64, 2);
        put(&large, VERSION64, 2);
        put(&large, 0, 8); /* disk 0 */
        put(&large, n, 8);
        put(&large, n, 8);
        put(&large, bytes, 8);
        put(&large, at, 8);
        DDP_TRY(append(zip, large.bytes, large.n));
        large.n = 0;
        put(&large, DDP_ZIP64_LOCATOR, 4);
        put(&large, 0, 4);
        put(&large, here, 8);
        put(&large, 1, 4); /* disks */
        DDP_TRY(append(zip, large.bytes, large.n));
    }
    put(&end, DDP_ZIP_END, 4);
    put(&end, 0, 4);
    put_small(zip, &end, n, 2);
    put_small(zip, &end, n, 2);
    put_small(zip, &end, bytes, 4);
    put_small(zip, &end, at, 4);
    put(&end, 0, 2);
    DDP_TRY(append(zip, end.bytes, end.n));
out:
    return status;
}

ddp_status_t ddp_npz_write(ddp_weights_t *weights, const ddp_weights_choice_t *choice, ddp_new_file_t *file)
{
    ddp_status_t     status  = DDP_OK;
    zip_t            zip     = {file, 0, 0, UINT32_MAX};
    ddp_zip_entry_t *entries = calloc(choice->n, sizeof(*entries));
    uint64_t         at;

    DDP_REQUIRE(entries != NULL, DDP_ERR_NO_MEMORY, "no memory for '%s'", weights->path);
    if (ddp_fault("npz_large", 0) != DDP_OK) {
        zip.most = 0; /* as if each number were beyond 32 bits */
    }
    for (size_t i = 0; i < choice->n; i++) {
        DDP_TRY(put_array(&zip, weights, choice->chosen[i], &entries[i]));
    }
    at = zip.at;
    DDP_TRY(put_directory(&zip, entries, choice->n));
    DDP_TRY(put_end(&zip, at, choice->n));
out:
    free(entries);
    return status;
}
