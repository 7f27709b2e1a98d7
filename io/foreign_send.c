/* Data sets in chunks, packed by gzip and shuffle or not, as h5py and Keras make them; and those that are so
 * small that HDF5 keeps them in its own records. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/error.h"
#include "io/foreign_internal.h"
#include "io/h5_internal.h"
#include "io/h5_table_internal.h"
#include "io/npz_internal.h"

#define SLAB_BYTES     ((uint64_t)1 << 20)   /* that are read at a time, more if a row of chunks has more */
#define MAX_SLAB_BYTES ((uint64_t)128 << 20) /* of the memory that the process has */

/* HDF5 would look for a plugin for any other one, and load it. */
static bool is_known(H5Z_filter_t filter)
{
    return filter == H5Z_FILTER_DEFLATE || filter == H5Z_FILTER_SHUFFLE || filter == H5Z_FILTER_FLETCHER32;
}

ddp_status_t ddp_foreign_check_packed(hid_t array, hid_t layout, const ddp_foreign_record_t *record,
                                      const char *path)
{
    ddp_status_t   status = DDP_OK;
    const uint64_t stored = H5Dget_storage_size(array);

    DDP_REQUIRE(H5Pget_layout(layout) == H5D_CHUNKED || H5Pget_layout(layout) == H5D_COMPACT, DDP_ERR_FORMAT,
                "'%s': '%s' is laid out in a way that is not known here", path, record->text);
    for (int i = 0; i < H5Pget_nfilters(layout); i++) {
        unsigned           flags;
        size_t             n_values = 0;
        char               name[64] = "";
        unsigned           config;
        const H5Z_filter_t filter =
            H5Pget_filter2(layout, (unsigned)i, &flags, &n_values, NULL, sizeof(name), name, &config);

        DDP_REQUIRE(
            is_known(filter), DDP_ERR_FORMAT,
            "'%s': '%s' is packed by filter %d (%.60s), not by gzip; h5repack -f NONE OLD NEW makes a "
            "file that can be read",
            path, record->text, (int)filter, name);
    }
    DDP_REQUIRE(record->bytes / DDP_ZIP_RATIO <= stored, DDP_ERR_FORMAT,
                "'%s': '%s': %" PRIu64 " bytes cannot come of the %" PRIu64 " that are stored", path,
                record->text, record->bytes, stored);
out:
    return status;
}

/* Rows of the first dimension to read at a time: whole chunks, so that none is unpacked twice. */
static ddp_status_t choose_rows(hid_t layout, const ddp_foreign_record_t *record, const char *path,
                                uint64_t *rows_p)
{
    ddp_status_t   status    = DDP_OK;
    const uint64_t row_bytes = record->bytes / record->shape[0];
    uint64_t       rows      = 1;
    hsize_t        chunk[DDP_MAX_DIMS];

    if (H5Pget_layout(layout) == H5D_CHUNKED) {
        DDP_REQUIRE(H5Pget_chunk(layout, DDP_MAX_DIMS, chunk) == (int)record->ndim && chunk[0] > 0,
                    DDP_ERR_FORMAT, "'%s': the chunks of '%s' have other dimensions", path, record->text);
        rows = chunk[0] < record->shape[0] ? chunk[0] : record->shape[0];
    }
    DDP_REQUIRE(rows <= MAX_SLAB_BYTES / row_bytes, DDP_ERR_FORMAT,
                "'%s': the chunks of '%s', %" PRIu64 " rows of it, take more than %" PRIu64
                " MiB; h5repack -f "
                "NONE -l CONTI OLD NEW makes a file that can be read",
                path, record->text, rows, MAX_SLAB_BYTES >> 20);
    if (rows * row_bytes < SLAB_BYTES) {
        rows *= SLAB_BYTES / (rows * row_bytes);
    }
    *rows_p = rows < record->shape[0] ? rows : record->shape[0];
out:
    return status;
}

static ddp_status_t send_block(const void *data, uint64_t bytes)
{
    ddp_status_t               status = DDP_OK;
    const ddp_foreign_record_t record = {
        .magic = DDP_FOREIGN_MAGIC, .what = DDP_FOREIGN_BLOCK, .bytes = bytes};

    DDP_TRY(ddp_foreign_put(&record, sizeof(record)));
    DDP_TRY(ddp_foreign_put(data, (size_t)bytes));
out:
    return status;
}

static ddp_status_t send_rows(ddp_h5_table_t *table, uint64_t row_bytes, uint64_t rows)
{
    ddp_status_t  status   = DDP_OK;
    hsize_t       start[4] = {0, 0, 0, 0};
    hsize_t       count[4] = {rows, table->dims[1], table->dims[2], table->dims[3]};
    const hsize_t all      = table->dims[0];
    void         *data     = malloc((size_t)(rows * row_bytes));

    DDP_REQUIRE(data != NULL, DDP_ERR_NO_MEMORY, "'%s': no memory to read '%s'", table->path, table->name);
    for (; start[0] < all; start[0] += count[0]) {
        count[0] = all - start[0] < rows ? all - start[0] : rows;
        DDP_TRY(ddp_h5_table_read(table, table->type, start, count, data));
        DDP_TRY(send_block(data, count[0] * row_bytes));
    }
out:
    free(data);
    return status;
}

static ddp_status_t send_number(hid_t array, hid_t type, const ddp_foreign_record_t *record, const char *path)
{
    ddp_status_t status = DDP_OK;
    double       number = 0.0; /* of any type */

    if (record->bytes > sizeof(number) || H5Dread(array, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, &number) < 0) {
        DDP_TRY(ddp_fail_h5(DDP_ERR_FORMAT, "'%s': '%s'", path, record->text));
    }
    DDP_TRY(send_block(&number, record->bytes));
out:
    return status;
}

ddp_status_t ddp_foreign_send(hid_t array, hid_t layout, const ddp_foreign_record_t *record, const char *path)
{
    ddp_status_t   status = DDP_OK;
    ddp_h5_table_t table  = DDP_H5_TABLE_EMPTY;
    uint64_t       rows   = 0;

    table.path  = path;
    table.name  = record->text;
    table.id    = array;
    table.type  = H5Dget_type(array);
    table.space = H5Dget_space(array);
    table.ndim  = (int)record->ndim;
    if (table.type < 0 || table.space < 0) {
        DDP_TRY(ddp_fail_h5(DDP_ERR_FORMAT, "'%s': '%s'", path, record->text));
    }
    if (record->ndim == 0) {
        DDP_TRY(send_number(array, table.type, record, path));
        goto out;
    }
    for (uint32_t d = 0; d < record->ndim; d++) {
        table.dims[d] = record->shape[d];
    }
    DDP_TRY(choose_rows(layout, record, path, &rows));
    DDP_TRY(send_rows(&table, record->bytes / record->shape[0], rows));
out:
    table.id = -1; /* the caller's */
    ddp_h5_table_close(&table);
    return status;
}
