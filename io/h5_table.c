#include "io/h5_table_internal.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/progressed.h"
#include "io/h5_internal.h"

/* A prime much larger than the chunks that fit, as H5Pset_chunk_cache() asks for. */
#define CACHE_SLOTS 12421

void ddp_h5_table_close(ddp_h5_table_t *table)
{
    if (table->space >= 0) {
        (void)H5Sclose(table->space);
    }
    if (table->type >= 0) {
        (void)H5Tclose(table->type);
    }
    if (table->id >= 0) {
        (void)H5Dclose(table->id);
    }
    table->id = table->type = table->space = -1;
}

static ddp_status_t read_chunk(ddp_h5_table_t *table)
{
    ddp_status_t status = DDP_OK;
    hid_t        layout = H5Dget_create_plist(table->id);
    hsize_t      chunk[DDP_H5_MAX_DIMS];

    if (layout < 0) {
        DDP_TRY(ddp_fail_h5(DDP_ERR_FORMAT, "'%s': data set '%s'", table->path, table->name));
    }
    if (H5Pget_layout(layout) == H5D_CHUNKED && H5Pget_chunk(layout, DDP_H5_MAX_DIMS, chunk) > 0) {
        table->chunk = chunk[0];
    }
out:
    if (layout >= 0) {
        (void)H5Pclose(layout);
    }
    return status;
}

static ddp_status_t open_handles(hid_t file, const ddp_h5_wanted_t *wanted, ddp_h5_table_t *table)
{
    ddp_status_t status = DDP_OK;
    hid_t        access = H5Pcreate(H5P_DATASET_ACCESS);

    if (access < 0 ||
        (wanted->cache_bytes > 0 && H5Pset_chunk_cache(access, CACHE_SLOTS, wanted->cache_bytes, 1.0) < 0)) {
        DDP_TRY(ddp_fail_h5(DDP_ERR_FORMAT, "'%s': data set '%s'", table->path, table->name));
    }
    table->id = H5Dopen2(file, table->name, access);
    if (table->id < 0) {
        DDP_TRY(ddp_fail_h5(DDP_ERR_FORMAT, "'%s': no data set '%s' (%s names it)", table->path, table->name,
                            table->key));
    }
    table->type  = H5Dget_type(table->id);
    table->space = H5Dget_space(table->id);
    table->ndim  = table->space >= 0 ? H5Sget_simple_extent_ndims(table->space) : -1;
    if (table->type < 0 || table->ndim < 0) {
        DDP_TRY(ddp_fail_h5(DDP_ERR_FORMAT, "'%s': data set '%s'", table->path, table->name));
    }
out:
    if (access >= 0) {
        (void)H5Pclose(access);
    }
    return status;
}

ddp_status_t ddp_h5_table_open(hid_t file, const ddp_h5_wanted_t *wanted, ddp_h5_table_t *table)
{
    ddp_status_t status = DDP_OK;
    const int    least  = wanted->least;
    char         range[32];

    snprintf(range, sizeof(range), wanted->most > least ? "%d to %d" : "%d", least, wanted->most);
    *table      = (ddp_h5_table_t)DDP_H5_TABLE_EMPTY;
    table->path = wanted->path;
    table->name = wanted->name;
    table->key  = wanted->key;
    DDP_TRY(open_handles(file, wanted, table));
    DDP_REQUIRE(table->ndim >= least && table->ndim <= wanted->most, DDP_ERR_FORMAT,
                "'%s': data set '%s': expected %s dimension%s, found %d", table->path, table->name, range,
                wanted->most > 1 ? "s" : "", table->ndim);
    if (H5Sget_simple_extent_dims(table->space, table->dims, NULL) < 0) {
        DDP_TRY(ddp_fail_h5(DDP_ERR_FORMAT, "'%s': data set '%s'", table->path, table->name));
    }
    for (int d = 0; d < table->ndim; d++) {
        DDP_REQUIRE(table->dims[d] > 0 && table->dims[d] <= wanted->limit, DDP_ERR_FORMAT,
                    "'%s': data set '%s': expected 1 .. %llu in dimension %d, found %llu", table->path,
                    table->name, (unsigned long long)wanted->limit, d, (unsigned long long)table->dims[d]);
    }
    DDP_TRY(read_chunk(table));
out:
    if (status != DDP_OK) {
        ddp_h5_table_close(table);
    }
    return status;
}

ddp_status_t ddp_h5_table_read(const ddp_h5_table_t *table, hid_t type, const hsize_t *start,
                               const hsize_t *count, void *data)
{
    ddp_status_t status = DDP_OK;
    hid_t        memory = H5Screate_simple(table->ndim, count, NULL);

    if (memory < 0 || H5Sselect_hyperslab(table->space, H5S_SELECT_SET, start, NULL, count, NULL) < 0 ||
        H5Dread(table->id, type, memory, table->space, H5P_DEFAULT, data) < 0) {
        DDP_TRY(ddp_fail_h5(DDP_ERR_FORMAT, "'%s': data set '%s': rows %llu .. %llu", table->path,
                            table->name, (unsigned long long)start[0],
                            (unsigned long long)(start[0] + count[0] - 1)));
    }
    ddp_progressed();
out:
    if (memory >= 0) {
        (void)H5Sclose(memory);
    }
    return status;
}
