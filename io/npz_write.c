/* As numpy.savez() does: stored, not packed. Sizes beyond 4 GB would need zip64: refused. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <zlib.h>

#include "base/error.h"
#include "io/npz_internal.h"

#define NPY_SIZE  128  /* of an array's header: enough for 4 dimensions; data begin at a multiple of 64 */
#define DOS_DATE  0x21 /* 1980-01-01: nothing depends on time */
#define MAX_BYTES UINT32_MAX
#define VERSION   20

typedef struct zip {
    ddp_new_file_t *file; /* borrowed */
    uint64_t        at;   /* bytes written */
    uint32_t        crc;  /* of the entry that is being written */
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

/* What local header and directory have in common: version to "length of the extra field". */
static void put_common(record_t *record, uint32_t crc, uint32_t bytes, size_t name)
{
    put(record, VERSION, 2);
    put(record, 0x800, 2); /* names are UTF-8 */
    put(record, 0, 2);     /* stored */
    put(record, 0, 2);
    put(record, DOS_DATE, 2);
    put(record, crc, 4);
    put(record, bytes, 4);
    put(record, bytes, 4);
    put(record, name, 2);
    put(record, 0, 2);
}

static ddp_status_t put_local(zip_t *zip, const char *name, uint32_t bytes)
{
    ddp_status_t status = DDP_OK;
    record_t     record = {.n = 0};

    put(&record, DDP_ZIP_LOCAL, 4);
    put_common(&record, 0, bytes, strlen(name));
    DDP_TRY(append(zip, record.bytes, record.n));
    DDP_TRY(append(zip, name, strlen(name)));
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
    DDP_REQUIRE(zip->at + entry->bytes + sizeof(entry->name) * 4 < MAX_BYTES, DDP_ERR_FORMAT,
                "'%s': more than 4 GB for an npz file: write .safetensors", w->path);
    make_header(desc, header);
    zip->crc = 0;
    DDP_TRY(put_local(zip, entry->name, (uint32_t)entry->bytes));
    DDP_TRY(append_data(zip, header, sizeof(header)));
    DDP_TRY(ddp_weights_each_piece(w, tensor, append_data, zip));
    entry->crc = zip->crc;
    put(&crc, entry->crc, 4);
    DDP_TRY(ddp_new_file_patch(zip->file, entry->local + 14, crc.bytes, crc.n));
out:
    return status;
}

static ddp_status_t put_directory(zip_t *zip, const ddp_weights_t *w, const ddp_zip_entry_t *entries,
                                  size_t n)
{
    ddp_status_t   status = DDP_OK;
    const uint64_t begin  = zip->at;
    record_t       end    = {.n = 0};

    for (size_t i = 0; i < n; i++) {
        record_t record = {.n = 0};

        put(&record, DDP_ZIP_CENTRAL, 4);
        put(&record, VERSION, 2);
        put_common(&record, entries[i].crc, (uint32_t)entries[i].bytes, strlen(entries[i].name));
        put(&record, 0, 8); /* no comment, disk 0, attributes */
        put(&record, 0, 2);
        put(&record, entries[i].local, 4);
        DDP_TRY(append(zip, record.bytes, record.n));
        DDP_TRY(append(zip, entries[i].name, strlen(entries[i].name)));
    }
    DDP_REQUIRE(zip->at < MAX_BYTES && n < 0xFFFF, DDP_ERR_FORMAT,
                "'%s': more than 4 GB or 65534 arrays for an npz file: write .safetensors", w->path);
    put(&end, DDP_ZIP_END, 4);
    put(&end, 0, 4);
    put(&end, n, 2);
    put(&end, n, 2);
    put(&end, zip->at - begin, 4);
    put(&end, begin, 4);
    put(&end, 0, 2);
    DDP_TRY(append(zip, end.bytes, end.n));
out:
    return status;
}

ddp_status_t ddp_npz_write(ddp_weights_t *weights, const ddp_weights_choice_t *choice, ddp_new_file_t *file)
{
    ddp_status_t     status  = DDP_OK;
    zip_t            zip     = {file, 0, 0};
    ddp_zip_entry_t *entries = calloc(choice->n, sizeof(*entries));

    DDP_REQUIRE(entries != NULL, DDP_ERR_NO_MEMORY, "no memory for '%s'", weights->path);
    for (size_t i = 0; i < choice->n; i++) {
        DDP_TRY(put_array(&zip, weights, choice->chosen[i], &entries[i]));
    }
    DDP_TRY(put_directory(&zip, weights, entries, choice->n));
out:
    free(entries);
    return status;
}
