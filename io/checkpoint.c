#include "io/checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "io/checkpoint_format_internal.h"
#include "io/file_internal.h"
#include "io/h5_internal.h"
#include "io/source_internal.h"

#define TEXT_SIZE  256
#define MAX_CONFIG ((hsize_t)1 << 20)

struct ddp_checkpoint {
    char                     path[DDP_SOURCE_PATH_SIZE];
    int                      fd; /* owned; -1: none */
    uint64_t                 bytes;
    ddp_training_state_t     state; /* its texts are the fields below */
    char                     isa[TEXT_SIZE], optimizer[TEXT_SIZE], data[TEXT_SIZE], producer[TEXT_SIZE];
    char                     slot[DDP_CHECKPOINT_MAX_SLOTS][TEXT_SIZE];
    char                    *config;  /* owned */
    ddp_checkpoint_tensor_t *tensors; /* owned, names too */
    size_t                   n;
    size_t                   room; /* of tensors */
};

/* Reading of what ddp_checkpoint_plan_make() wrote. */

static ddp_status_t get_number(const ddp_checkpoint_t *c, hid_t object, const char *name, hid_t type,
                               void *to)
{
    ddp_status_t status    = DDP_OK;
    const hid_t  attribute = H5Aopen(object, name, H5P_DEFAULT);
    hid_t        space     = -1;

    if (attribute < 0) {
        DDP_TRY(ddp_fail_h5(DDP_ERR_FORMAT, "'%s': no attribute '%s'", c->path, name));
    }
    space = H5Aget_space(attribute);
    DDP_REQUIRE(H5Sget_simple_extent_type(space) == H5S_SCALAR, DDP_ERR_FORMAT,
                "'%s': attribute '%s' is not one number", c->path, name);
    if (H5Aread(attribute, type, to) < 0) {
        DDP_TRY(ddp_fail_h5(DDP_ERR_FORMAT, "'%s': attribute '%s'", c->path, name));
    }
out:
    if (space >= 0) {
        (void)H5Sclose(space);
    }
    if (attribute >= 0) {
        (void)H5Aclose(attribute);
    }
    return status;
}

static ddp_status_t get_text(const ddp_checkpoint_t *c, hid_t object, const char *name, char *to)
{
    ddp_status_t status    = DDP_OK;
    const hid_t  attribute = H5Aopen(object, name, H5P_DEFAULT);
    hid_t        type      = -1;

    if (attribute < 0) {
        DDP_TRY(ddp_fail_h5(DDP_ERR_FORMAT, "'%s': no attribute '%s'", c->path, name));
    }
    type = H5Aget_type(attribute);
    DDP_REQUIRE(H5Tget_class(type) == H5T_STRING && H5Tis_variable_str(type) == 0 &&
                    H5Tget_size(type) < TEXT_SIZE,
                DDP_ERR_FORMAT, "'%s': attribute '%s' is no short text", c->path, name);
    if (H5Aread(attribute, type, to) < 0) { /* zeroed, and larger than the text */
        DDP_TRY(ddp_fail_h5(DDP_ERR_FORMAT, "'%s': attribute '%s'", c->path, name));
    }
out:
    if (type >= 0) {
        (void)H5Tclose(type);
    }
    if (attribute >= 0) {
        (void)H5Aclose(attribute);
    }
    return status;
}

static ddp_status_t get_config(ddp_checkpoint_t *c, hid_t group)
{
    ddp_status_t status = DDP_OK;
    const hid_t  data   = H5Dopen2(group, "config", H5P_DEFAULT);
    hid_t        space  = -1;
    hsize_t      length = 0;

    if (data < 0) {
        DDP_TRY(ddp_fail_h5(DDP_ERR_FORMAT, "'%s': no configuration", c->path));
    }
    space = H5Dget_space(data);
    DDP_REQUIRE(H5Sget_simple_extent_ndims(space) == 1 &&
                    H5Sget_simple_extent_dims(space, &length, NULL) == 1 && length <= MAX_CONFIG,
                DDP_ERR_FORMAT, "'%s': its configuration is no text", c->path);
    c->config = calloc((size_t)length + 1, 1);
    DDP_REQUIRE(c->config != NULL, DDP_ERR_NO_MEMORY, "no memory for '%s'", c->path);
    if (H5Dread(data, H5T_NATIVE_UCHAR, H5S_ALL, H5S_ALL, H5P_DEFAULT, c->config) < 0) {
        DDP_TRY(ddp_fail_h5(DDP_ERR_FORMAT, "'%s': configuration", c->path));
    }
out:
    if (space >= 0) {
        (void)H5Sclose(space);
    }
    if (data >= 0) {
        (void)H5Dclose(data);
    }
    return status;
}

static ddp_status_t open_group(const ddp_checkpoint_t *c, hid_t file, const char *name, hid_t *group_p)
{
    const hid_t group = H5Gopen2(file, name, H5P_DEFAULT);

    if (group < 0) {
        return ddp_fail_h5(DDP_ERR_FORMAT, "'%s': no group '/%s'", c->path, name);
    }
    *group_p = group;
    return DDP_OK;
}

static ddp_status_t read_training(ddp_checkpoint_t *c, hid_t file)
{
    ddp_status_t          status = DDP_OK;
    ddp_training_state_t *state  = &c->state;
    hid_t                 group  = -1;

    DDP_TRY(open_group(c, file, "training", &group));
    DDP_TRY(get_number(c, group, "step", H5T_NATIVE_UINT64, &state->step));
    DDP_TRY(get_number(c, group, "epoch", H5T_NATIVE_UINT64, &state->epoch));
    DDP_TRY(get_number(c, group, "samples_seen", H5T_NATIVE_UINT64, &state->samples_seen));
    DDP_TRY(get_number(c, group, "seed", H5T_NATIVE_UINT64, &state->seed));
    DDP_TRY(get_number(c, group, "micro_batches", H5T_NATIVE_UINT64, &state->micro_batches));
    DDP_TRY(get_number(c, group, "best_loss", H5T_NATIVE_DOUBLE, &state->best_loss));
    if (H5Aexists(group, "loss_scale") > 0) {
        DDP_TRY(get_number(c, group, "loss_scale", H5T_NATIVE_DOUBLE, &state->loss_scale));
        DDP_TRY(get_number(c, group, "loss_scale_steps", H5T_NATIVE_UINT64, &state->loss_scale_steps));
    }
    DDP_TRY(get_text(c, group, "isa", c->isa));
    DDP_TRY(get_text(c, group, "data", c->data));
    DDP_TRY(get_text(c, group, "producer", c->producer));
    DDP_TRY(get_config(c, group));
    state->isa      = c->isa;
    state->data     = c->data;
    state->producer = c->producer;
    state->config   = c->config;
out:
    if (group >= 0) {
        (void)H5Gclose(group);
    }
    return status;
}

/* Place and shape of an array of `group`; it must be plain float32 that lies in the file in one piece. */
static ddp_status_t inspect_array(const ddp_checkpoint_t *c, hid_t array, const char *name,
                                  ddp_tensor_desc_t *desc, uint64_t *at_p)
{
    ddp_status_t status = DDP_OK;
    const hid_t  type   = H5Dget_type(array);
    const hid_t  space  = H5Dget_space(array);
    const hid_t  layout = H5Dget_create_plist(array);
    const int    ndim   = H5Sget_simple_extent_ndims(space);
    hsize_t      dims[DDP_MAX_DIMS];
    haddr_t      at = HADDR_UNDEF;

    DDP_REQUIRE(ndim >= 1 && ndim <= DDP_MAX_DIMS, DDP_ERR_FORMAT,
                "'%s': '%s' has %d dimensions, not 1 .. %d", c->path, name, ndim, DDP_MAX_DIMS);
    DDP_REQUIRE(H5Tequal(type, H5T_IEEE_F32LE) > 0 && H5Pget_layout(layout) == H5D_CONTIGUOUS &&
                    H5Pget_external_count(layout) == 0,
                DDP_ERR_FORMAT, "'%s': '%s' is not contiguous float32", c->path, name);
    at = H5Dget_offset(array);
    DDP_REQUIRE(H5Sget_simple_extent_dims(space, dims, NULL) == ndim && at != HADDR_UNDEF, DDP_ERR_FORMAT,
                "'%s': '%s' has no place in the file", c->path, name);
    desc->ndim  = (size_t)ndim;
    desc->count = 1;
    for (int d = 0; d < ndim; d++) {
        desc->shape[d] = dims[d];
        DDP_REQUIRE(dims[d] > 0 && dims[d] <= c->bytes / desc->count, DDP_ERR_FORMAT,
                    "'%s': '%s' is larger than the file", c->path, name);
        desc->count *= dims[d];
    }
    DDP_REQUIRE(at <= c->bytes && desc->count <= (c->bytes - at) / sizeof(float), DDP_ERR_FORMAT,
                "'%s': '%s' reaches beyond the end of the file", c->path, name);
    *at_p = at;
out:
    (void)H5Tclose(type);
    (void)H5Sclose(space);
    (void)H5Pclose(layout);
    return status;
}

static ddp_status_t add_tensor(ddp_checkpoint_t *c, hid_t group, const char *name)
{
    ddp_status_t             status    = DDP_OK;
    const hid_t              array     = H5Dopen2(group, name, H5P_DEFAULT);
    ddp_checkpoint_tensor_t *tensor    = &c->tensors[c->n];
    uint64_t                 is_buffer = 0;

    if (array < 0) {
        DDP_TRY(ddp_fail_h5(DDP_ERR_FORMAT, "'%s': '/model/%s'", c->path, name));
    }
    DDP_REQUIRE(c->n < c->room, DDP_ERR_FORMAT, "'%s': more tensors than links in '/model'", c->path);
    DDP_TRY(inspect_array(c, array, name, &tensor->desc, &tensor->value_at));
    DDP_TRY(get_number(c, array, "is_buffer", H5T_NATIVE_UINT64, &is_buffer));
    DDP_TRY(get_number(c, array, "step", H5T_NATIVE_UINT64, &tensor->steps));
    tensor->desc.role = is_buffer != 0 ? DDP_TENSOR_AVERAGE : DDP_TENSOR_PARAMETER;
    tensor->desc.name = strdup(name);
    DDP_REQUIRE(tensor->desc.name != NULL, DDP_ERR_NO_MEMORY, "no memory for '%s'", c->path);
    c->n++;
out:
    if (array >= 0) {
        (void)H5Dclose(array);
    }
    return status;
}

/* Of H5Literate. */
static herr_t on_link(hid_t group, const char *name, const H5L_info_t *link, void *checkpoint)
{
    ddp_status_t status = DDP_OK;

    (void)link;
    status = add_tensor(checkpoint, group, name);
    return status == DDP_OK ? 0 : 1; /* 1 ends the iteration */
}

static ddp_status_t read_model(ddp_checkpoint_t *c, hid_t file)
{
    ddp_status_t status = DDP_OK;
    H5G_info_t   info;
    hid_t        group = -1;
    herr_t       ended;

    DDP_TRY(open_group(c, file, "model", &group));
    if (H5Gget_info(group, &info) < 0) {
        DDP_TRY(ddp_fail_h5(DDP_ERR_FORMAT, "'%s': '/model'", c->path));
    }
    DDP_REQUIRE(info.nlinks > 0 && info.nlinks <= c->bytes / sizeof(float), DDP_ERR_FORMAT,
                "'%s': no tensors in '/model'", c->path);
    c->room    = info.nlinks;
    c->tensors = calloc(c->room, sizeof(*c->tensors));
    DDP_REQUIRE(c->tensors != NULL, DDP_ERR_NO_MEMORY, "no memory for '%s'", c->path);
    ended = H5Literate(group, H5_INDEX_CRT_ORDER, H5_ITER_INC, NULL, on_link, c);
    if (ended < 0) {
        DDP_TRY(ddp_fail_h5(DDP_ERR_FORMAT, "'%s': '/model'", c->path));
    }
    status = ended > 0 ? DDP_ERR_FORMAT : DDP_OK; /* add_tensor() recorded the line */
out:
    if (group >= 0) {
        (void)H5Gclose(group);
    }
    return status;
}

/* Moments have the shapes of their parameters. */
static ddp_status_t read_moment(ddp_checkpoint_t *c, hid_t group, int slot, ddp_checkpoint_tensor_t *tensor)
{
    ddp_status_t      status = DDP_OK;
    const hid_t       array  = H5Dopen2(group, tensor->desc.name, H5P_DEFAULT);
    ddp_tensor_desc_t desc   = {0};

    if (array < 0) {
        DDP_TRY(
            ddp_fail_h5(DDP_ERR_FORMAT, "'%s': no %s of '%s'", c->path, c->slot[slot], tensor->desc.name));
    }
    DDP_TRY(inspect_array(c, array, tensor->desc.name, &desc, &tensor->slot_at[slot]));
    DDP_REQUIRE(desc.ndim == tensor->desc.ndim &&
                    memcmp(desc.shape, tensor->desc.shape, desc.ndim * sizeof(desc.shape[0])) == 0,
                DDP_ERR_FORMAT, "'%s': %s of '%s' has another shape", c->path, c->slot[slot],
                tensor->desc.name);
out:
    if (array >= 0) {
        (void)H5Dclose(array);
    }
    return status;
}

static ddp_status_t read_slot(ddp_checkpoint_t *c, hid_t optimizer, int slot)
{
    ddp_status_t status = DDP_OK;
    hid_t        group  = -1;

    DDP_TRY(open_group(c, optimizer, c->slot[slot], &group));
    for (size_t i = 0; i < c->n; i++) {
        if (c->tensors[i].desc.role != DDP_TENSOR_AVERAGE) {
            DDP_TRY(read_moment(c, group, slot, &c->tensors[i]));
        }
    }
out:
    if (group >= 0) {
        (void)H5Gclose(group);
    }
    return status;
}

static ddp_status_t read_optimizer(ddp_checkpoint_t *c, hid_t file)
{
    ddp_status_t status = DDP_OK;
    hid_t        group  = -1;
    H5G_info_t   info;

    DDP_TRY(open_group(c, file, "optimizer", &group));
    DDP_TRY(get_text(c, group, "algorithm", c->optimizer));
    if (H5Gget_info(group, &info) < 0) {
        DDP_TRY(ddp_fail_h5(DDP_ERR_FORMAT, "'%s': '/optimizer'", c->path));
    }
    DDP_REQUIRE(info.nlinks <= DDP_CHECKPOINT_MAX_SLOTS, DDP_ERR_FORMAT,
                "'%s': %llu kinds of moments, at most %d are known", c->path, (unsigned long long)info.nlinks,
                DDP_CHECKPOINT_MAX_SLOTS);
    c->state.optimizer = c->optimizer;
    c->state.n_slots   = info.nlinks;
    for (size_t i = 0; i < info.nlinks; i++) {
        if (H5Lget_name_by_idx(group, ".", H5_INDEX_CRT_ORDER, H5_ITER_INC, i, c->slot[i], TEXT_SIZE,
                               H5P_DEFAULT) < 0) {
            DDP_TRY(ddp_fail_h5(DDP_ERR_FORMAT, "'%s': '/optimizer'", c->path));
        }
        c->state.slot[i] = c->slot[i];
        DDP_TRY(read_slot(c, group, (int)i));
    }
out:
    if (group >= 0) {
        (void)H5Gclose(group);
    }
    return status;
}

static ddp_status_t read_structure(ddp_checkpoint_t *c)
{
    ddp_status_t status = DDP_OK;
    hid_t        file   = -1;

    ddp_h5_lock();
    DDP_TRY(ddp_h5_open(c->path, &file));
    DDP_TRY(read_training(c, file));
    DDP_TRY(read_model(c, file));
    DDP_TRY(read_optimizer(c, file));
out:
    if (file >= 0) {
        (void)H5Fclose(file);
    }
    ddp_h5_unlock();
    return status;
}

ddp_status_t ddp_checkpoint_open(const char *path, ddp_checkpoint_t **checkpoint_p)
{
    ddp_status_t      status = DDP_OK;
    ddp_checkpoint_t *c      = calloc(1, sizeof(*c));
    struct stat       file;

    DDP_REQUIRE(c != NULL, DDP_ERR_NO_MEMORY, "no memory for '%s'", path);
    c->fd = -1;
    DDP_REQUIRE(strlen(path) < sizeof(c->path), DDP_ERR_IO, "'%s': path too long", path);
    memcpy(c->path, path, strlen(path) + 1);
    DDP_TRY(ddp_checkpoint_verify(path, NULL));
    c->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (c->fd < 0 || fstat(c->fd, &file) != 0) {
        DDP_TRY(ddp_fail_path(path, errno, ""));
    }
    c->bytes = (uint64_t)file.st_size;
    DDP_TRY(read_structure(c));
    *checkpoint_p = c;
    c             = NULL;
out:
    ddp_checkpoint_close(&c);
    return status;
}

void ddp_checkpoint_close(ddp_checkpoint_t **checkpoint_p)
{
    ddp_checkpoint_t *c = *checkpoint_p;

    if (c == NULL) {
        return;
    }
    for (size_t i = 0; i < c->n; i++) {
        free((char *)(uintptr_t)c->tensors[i].desc.name); /* from strdup() */
    }
    if (c->fd >= 0) {
        (void)close(c->fd);
    }
    free(c->tensors);
    free(c->config);
    free(c);
    *checkpoint_p = NULL;
}

const char *ddp_checkpoint_path(const ddp_checkpoint_t *checkpoint)
{
    return checkpoint->path;
}

const ddp_training_state_t *ddp_checkpoint_state(const ddp_checkpoint_t *checkpoint)
{
    return &checkpoint->state;
}

size_t ddp_checkpoint_count(const ddp_checkpoint_t *checkpoint)
{
    return checkpoint->n;
}

const ddp_checkpoint_tensor_t *ddp_checkpoint_tensors(const ddp_checkpoint_t *checkpoint)
{
    return checkpoint->tensors;
}

size_t ddp_checkpoint_find(const ddp_checkpoint_t *checkpoint, const char *name)
{
    size_t i = 0;

    while (i < checkpoint->n && strcmp(checkpoint->tensors[i].desc.name, name) != 0) {
        i++;
    }
    return i;
}

ddp_status_t ddp_checkpoint_read(const ddp_checkpoint_t *checkpoint, size_t tensor, int array, size_t first,
                                 size_t count, float *to)
{
    ddp_status_t                   status = DDP_OK;
    const ddp_checkpoint_tensor_t *t      = NULL;
    uint64_t                       at;

    DDP_REQUIRE(tensor < checkpoint->n, DDP_ERR_INVALID_ARG, "'%s': no tensor %zu", checkpoint->path, tensor);
    t = &checkpoint->tensors[tensor];
    DDP_REQUIRE(first <= t->desc.count && count <= t->desc.count - first, DDP_ERR_INVALID_ARG,
                "'%s': elements %zu .. of '%s' do not exist", checkpoint->path, first, t->desc.name);
    DDP_REQUIRE(array == DDP_CHECKPOINT_VALUES ||
                    (array >= 0 && (size_t)array < checkpoint->state.n_slots && t->slot_at[array] != 0),
                DDP_ERR_INVALID_ARG, "'%s': '%s' has no moments %d", checkpoint->path, t->desc.name, array);
    at = array == DDP_CHECKPOINT_VALUES ? t->value_at : t->slot_at[array];
    DDP_TRY(
        ddp_read_at(checkpoint->path, checkpoint->fd, to, count * sizeof(float), at + first * sizeof(float)));
out:
    return status;
}
