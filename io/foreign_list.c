/* An HDF5 file of others, in the process that parses it: hard links, floats and nothing else. What is refused
 * here is what such files are abused for: links and external storage that name other files, virtual data
 * sets, filters that must be loaded. Numbers that lie in the file as they are, the other process reads
 * without HDF5. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "io/foreign_internal.h"
#include "io/h5_internal.h"

#define MAX_DEPTH 16

typedef struct walk {
    const char *path;
    uint64_t    from; /* the first tensor that is sent; DDP_FOREIGN_LIST: none, all are told of */
    int         depth;
    uint64_t    n;
    char        prefix[DDP_WEIGHTS_NAME_SIZE]; /* "group.group." */
} walk_t;

ddp_status_t ddp_foreign_put(const void *data, size_t bytes)
{
    const char *from = data;

    while (bytes > 0) {
        const ssize_t n = write(DDP_FOREIGN_FD, from, bytes);

        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return ddp_fail(DDP_ERR_IO, "nobody reads");
        }
        from += n;
        bytes -= (size_t)n;
    }
    return DDP_OK;
}

static ddp_weights_type_t type_of(hid_t type)
{
    static const ddp_weights_type_t by_size[] = {
        [2] = DDP_WEIGHTS_F16, [4] = DDP_WEIGHTS_F32, [8] = DDP_WEIGHTS_F64};
    const size_t size  = H5Tget_size(type);
    const hid_t  known = size == 4 ? H5T_IEEE_F32LE : H5T_IEEE_F64LE;

    if (H5Tget_class(type) != H5T_FLOAT || (size != 2 && size != 4 && size != 8)) {
        return DDP_WEIGHTS_OTHER;
    }
    if (size == 2) { /* HDF5 1.10 has no name for binary16 */
        size_t sign;
        size_t exponent;
        size_t exponent_bits;
        size_t fraction;
        size_t fraction_bits;

        if (H5Tget_fields(type, &sign, &exponent, &exponent_bits, &fraction, &fraction_bits) < 0 ||
            sign != 15 || exponent != 10 || exponent_bits != 5 || fraction != 0 || fraction_bits != 10 ||
            H5Tget_ebias(type) != 15 || H5Tget_order(type) != H5T_ORDER_LE) {
            return DDP_WEIGHTS_OTHER;
        }
        return by_size[size];
    }
    return H5Tequal(type, known) > 0 ? by_size[size] : DDP_WEIGHTS_OTHER;
}

/* Where its numbers are: at a place, or packed. */
static ddp_status_t find_bytes(const walk_t *walk, hid_t array, hid_t layout, ddp_foreign_record_t *record)
{
    ddp_status_t status = DDP_OK;
    haddr_t      at;

    if (H5Pget_layout(layout) != H5D_CONTIGUOUS) {
        record->is_packed = 1;
        return ddp_foreign_check_packed(array, layout, record, walk->path);
    }
    at = H5Dget_offset(array);
    DDP_REQUIRE(at != HADDR_UNDEF, DDP_ERR_FORMAT, "'%s': '%s' has no data", walk->path, record->text);
    record->at = at;
out:
    return status;
}

/* Shape and place of a data set of floats. */
static ddp_status_t describe(const walk_t *walk, hid_t array, hid_t space, hid_t layout,
                             ddp_foreign_record_t *record)
{
    ddp_status_t status = DDP_OK;
    const int    ndim   = H5Sget_simple_extent_ndims(space);
    hsize_t      dims[H5S_MAX_RANK];

    DDP_REQUIRE(ndim >= 0 && ndim <= DDP_MAX_DIMS, DDP_ERR_FORMAT,
                "'%s': '%s' has %d dimensions, at most %d are taken", walk->path, record->text, ndim,
                DDP_MAX_DIMS);
    DDP_REQUIRE(H5Sget_simple_extent_type(space) != H5S_NULL &&
                    H5Sget_simple_extent_dims(space, dims, NULL) == ndim,
                DDP_ERR_FORMAT, "'%s': '%s' has no elements", walk->path, record->text);
    DDP_REQUIRE(H5Pget_layout(layout) != H5D_VIRTUAL && H5Pget_external_count(layout) == 0, DDP_ERR_FORMAT,
                "'%s': '%s' lies in another file: refused", walk->path, record->text);
    record->ndim  = (uint32_t)ndim;
    record->bytes = ddp_weights_type_bytes((ddp_weights_type_t)record->type);
    for (int d = 0; d < ndim; d++) {
        DDP_REQUIRE(dims[d] > 0 && dims[d] <= (uint64_t)INT64_MAX / record->bytes, DDP_ERR_FORMAT,
                    "'%s': '%s' has no elements, or more than can be", walk->path, record->text);
        record->shape[d] = dims[d];
        record->bytes *= dims[d];
    }
    DDP_TRY(find_bytes(walk, array, layout, record));
out:
    return status;
}

static ddp_status_t take_array(walk_t *walk, hid_t group, const char *name, ddp_foreign_record_t *record)
{
    ddp_status_t status = DDP_OK;
    const hid_t  array  = H5Dopen2(group, name, H5P_DEFAULT);
    hid_t        type   = -1;
    hid_t        space  = -1;
    hid_t        layout = -1;

    if (array < 0) {
        DDP_TRY(ddp_fail_h5(DDP_ERR_FORMAT, "'%s': '%s'", walk->path, record->text));
    }
    type   = H5Dget_type(array);
    space  = H5Dget_space(array);
    layout = H5Dget_create_plist(array);
    if (type < 0 || space < 0 || layout < 0) {
        DDP_TRY(ddp_fail_h5(DDP_ERR_FORMAT, "'%s': '%s'", walk->path, record->text));
    }
    record->type = (uint32_t)type_of(type);
    if (record->type != DDP_WEIGHTS_OTHER) {
        DDP_TRY(describe(walk, array, space, layout, record));
    }
    record->index = walk->n++;
    DDP_REQUIRE(walk->n <= DDP_FOREIGN_TENSORS, DDP_ERR_FORMAT, "'%s': more than %d data sets", walk->path,
                DDP_FOREIGN_TENSORS);
    if (walk->from == DDP_FOREIGN_LIST) {
        DDP_TRY(ddp_foreign_put(record, sizeof(*record)));
    } else if (record->index >= walk->from && record->is_packed != 0) {
        DDP_TRY(ddp_foreign_put(record, sizeof(*record)));
        DDP_TRY(ddp_foreign_send(array, layout, record, walk->path));
    }
out:
    (void)H5Tclose(type);
    (void)H5Sclose(space);
    (void)H5Pclose(layout);
    (void)H5Dclose(array);
    return status;
}

static ddp_status_t take_group(walk_t *walk, hid_t group, const char *name);

static ddp_status_t take_link(walk_t *walk, hid_t group, const char *name, const H5L_info_t *link)
{
    ddp_status_t         status = DDP_OK;
    ddp_foreign_record_t record = {.magic = DDP_FOREIGN_MAGIC, .what = DDP_FOREIGN_TENSOR};
    H5O_info_t           info;
    int                  length;

    length = snprintf(record.text, sizeof(record.text), "%s%s", walk->prefix, name);
    DDP_REQUIRE(length > 0 && (size_t)length < sizeof(record.text), DDP_ERR_FORMAT,
                "'%s': a name of more than %zu bytes", walk->path, sizeof(record.text) - 1);
    DDP_REQUIRE(link->type == H5L_TYPE_HARD, DDP_ERR_FORMAT, "'%s': '%s' is a soft or external link: refused",
                walk->path, record.text);
    if (H5Oget_info_by_name2(group, name, &info, H5O_INFO_BASIC, H5P_DEFAULT) < 0) {
        DDP_TRY(ddp_fail_h5(DDP_ERR_FORMAT, "'%s': '%s'", walk->path, record.text));
    }
    if (info.type == H5O_TYPE_DATASET) {
        DDP_TRY(take_array(walk, group, name, &record));
    } else if (info.type == H5O_TYPE_GROUP) {
        DDP_TRY(take_group(walk, group, name));
    }
out:
    return status;
}

/* Of H5Literate. */
static herr_t on_link(hid_t group, const char *name, const H5L_info_t *link, void *walk)
{
    return take_link(walk, group, name, link) == DDP_OK ? 0 : 1; /* 1 ends the iteration */
}

static ddp_status_t take_links(walk_t *walk, hid_t group)
{
    const herr_t ended = H5Literate(group, H5_INDEX_NAME, H5_ITER_INC, NULL, on_link, walk);

    if (ended < 0) {
        return ddp_fail_h5(DDP_ERR_FORMAT, "'%s': group '%s'", walk->path, walk->prefix);
    }
    return ended > 0 ? DDP_ERR_FORMAT : DDP_OK; /* on_link() recorded the line */
}

/* A group may contain itself. */
static ddp_status_t take_group(walk_t *walk, hid_t group, const char *name)
{
    ddp_status_t status = DDP_OK;
    const size_t length = strlen(walk->prefix);
    hid_t        inner  = -1;

    DDP_REQUIRE(walk->depth < MAX_DEPTH, DDP_ERR_FORMAT, "'%s': more than %d groups one in another",
                walk->path, MAX_DEPTH);
    DDP_REQUIRE(length + strlen(name) + 2 <= sizeof(walk->prefix), DDP_ERR_FORMAT,
                "'%s': a name of more than %zu bytes", walk->path, sizeof(walk->prefix) - 1);
    inner = H5Gopen2(group, name, H5P_DEFAULT);
    if (inner < 0) {
        DDP_TRY(ddp_fail_h5(DDP_ERR_FORMAT, "'%s': group '%s'", walk->path, name));
    }
    snprintf(walk->prefix + length, sizeof(walk->prefix) - length, "%s.", name);
    walk->depth++;
    status = take_links(walk, inner);
    walk->depth--;
    walk->prefix[length] = '\0';
out:
    (void)H5Gclose(inner);
    return status;
}

/* A file laid out as ours: the model alone, its names without the group's. */
static ddp_status_t take_file(walk_t *walk, hid_t file)
{
    ddp_status_t status = DDP_OK;
    H5L_info_t   link;
    hid_t        model = -1;

    if (H5Lexists(file, "model", H5P_DEFAULT) > 0 && H5Lget_info(file, "model", &link, H5P_DEFAULT) >= 0 &&
        link.type == H5L_TYPE_HARD) {
        model = H5Gopen2(file, "model", H5P_DEFAULT);
    }
    status = take_links(walk, model >= 0 ? model : file);
    if (model >= 0) {
        (void)H5Gclose(model);
    }
    return status;
}

void ddp_foreign_tell(const char *path, uint64_t from)
{
    walk_t               walk   = {.path = path, .from = from};
    ddp_foreign_record_t record = {.magic = DDP_FOREIGN_MAGIC, .what = DDP_FOREIGN_END};
    ddp_status_t         status = DDP_OK;
    hid_t                file   = -1;

    ddp_h5_quiet();
    (void)H5PLset_loading_state(0); /* no plugins */
    DDP_TRY(ddp_h5_open(path, &file));
    DDP_TRY(take_file(&walk, file));
out:
    if (status != DDP_OK) {
        record.what = DDP_FOREIGN_FAILED;
        snprintf(record.text, sizeof(record.text), "%s", ddp_error_line());
    }
    ddp_ignore(ddp_foreign_put(&record, sizeof(record)), "the parent sees that nothing came");
}
