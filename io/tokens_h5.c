#include "io/tokens_h5_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "io/bytes_internal.h"
#include "io/h5_internal.h"
#include "io/h5_table_internal.h"

/* Sequences are fetched in any order: chunks that were unpacked are kept for the next one. */
#define CACHE_BYTES ((size_t)32 << 20)

struct ddp_tokens_h5 {
    char          *path, *name; /* owned */
    hid_t          file;        /* owned; < 0: none */
    ddp_h5_table_t table;       /* owned */
};

static ddp_status_t open_array(ddp_tokens_h5_t *h5)
{
    const ddp_h5_wanted_t wanted = {.path        = h5->path,
                                    .name        = h5->name,
                                    .key         = "data.tokens",
                                    .least       = 1,
                                    .most        = 2,
                                    .limit       = INT64_MAX,
                                    .cache_bytes = CACHE_BYTES};
    ddp_status_t          status = DDP_OK;

    DDP_TRY(ddp_h5_open(h5->path, &h5->file));
    DDP_TRY(ddp_h5_table_open(h5->file, &wanted, &h5->table));
    DDP_REQUIRE(H5Tget_class(h5->table.type) == H5T_INTEGER, DDP_ERR_FORMAT,
                "'%s': data set '%s': expected tokens of an integer type", h5->path, h5->name);
out:
    return status;
}

ddp_status_t ddp_tokens_h5_open(const char *path, const char *name, ddp_tokens_h5_t **h5_p, uint64_t *rows_p,
                                uint64_t *count_p)
{
    ddp_status_t     status = DDP_OK;
    ddp_tokens_h5_t *h5     = calloc(1, sizeof(*h5));
    ddp_bytes_t     *bytes  = NULL;

    DDP_REQUIRE(h5 != NULL, DDP_ERR_NO_MEMORY, "no memory for token data");
    h5->file  = -1;
    h5->table = (ddp_h5_table_t)DDP_H5_TABLE_EMPTY;
    h5->path  = strdup(path);
    h5->name  = strdup(name);
    DDP_REQUIRE(h5->path != NULL && h5->name != NULL, DDP_ERR_NO_MEMORY, "no memory for token data");
    DDP_TRY(ddp_bytes_open(path, &bytes)); /* names what is wrong with a path better than HDF5 does */
    ddp_h5_lock();
    status = open_array(h5);
    ddp_h5_unlock();
    if (status == DDP_OK) {
        *rows_p  = h5->table.ndim == 2 ? h5->table.dims[0] : 1;
        *count_p = h5->table.dims[h5->table.ndim - 1];
        *h5_p    = h5;
        h5       = NULL;
    }
out:
    ddp_bytes_close(&bytes);
    ddp_tokens_h5_close(&h5);
    return status;
}

void ddp_tokens_h5_close(ddp_tokens_h5_t **h5_p)
{
    ddp_tokens_h5_t *h5 = *h5_p;

    if (h5 == NULL) {
        return;
    }
    ddp_h5_lock();
    ddp_h5_table_close(&h5->table);
    if (h5->file >= 0) {
        (void)H5Fclose(h5->file); /* was only read */
    }
    ddp_h5_unlock();
    free(h5->name);
    free(h5->path);
    free(h5);
    *h5_p = NULL;
}

ddp_status_t ddp_tokens_h5_read(ddp_tokens_h5_t *h5, uint64_t row, uint64_t first, size_t n, int32_t *tokens)
{
    const bool    has_rows = h5->table.ndim == 2;
    const hsize_t start[2] = {has_rows ? row : first, first};
    const hsize_t count[2] = {has_rows ? 1 : n, n};
    ddp_status_t  status;

    ddp_h5_lock();
    status = ddp_h5_table_read(&h5->table, H5T_NATIVE_INT32, start, count, tokens);
    ddp_h5_unlock();
    return status;
}

const char *ddp_tokens_h5_name(const ddp_tokens_h5_t *h5)
{
    return h5->name;
}
