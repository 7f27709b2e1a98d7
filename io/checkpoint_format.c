/* The skeleton: HDF5 lays the file out and writes its metadata into a sparse file in memory; what lies
 * between the arrays is kept. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
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

/* Arrays of this size and more begin at a multiple of it, so that writers do not share pages. */
#define ALIGNMENT 4096

/* What one skeleton is made with. */
typedef struct skeleton {
    const ddp_tensor_desc_t    *tensors; /* borrowed, as all */
    const uint64_t             *steps;
    size_t                      n;
    const ddp_training_state_t *state;
    char                        path[DDP_SOURCE_PATH_SIZE];
    hid_t                       file, links, groups, arrays; /* owned; < 0: none */
    ddp_checkpoint_extent_t    *found;                       /* owned, [n * (1 + n_slots)] */
    size_t                      n_found;
} skeleton_t;

static ddp_status_t put_u64(hid_t object, const char *name, uint64_t value)
{
    const hid_t  space     = H5Screate(H5S_SCALAR);
    const hid_t  attribute = H5Acreate2(object, name, H5T_STD_U64LE, space, H5P_DEFAULT, H5P_DEFAULT);
    ddp_status_t status    = DDP_OK;

    if (attribute < 0 || H5Awrite(attribute, H5T_NATIVE_UINT64, &value) < 0) {
        status = ddp_fail_h5(DDP_ERR_IO, "attribute '%s'", name);
    }
    (void)H5Aclose(attribute);
    (void)H5Sclose(space);
    return status;
}

static ddp_status_t put_double(hid_t object, const char *name, double value)
{
    const hid_t  space     = H5Screate(H5S_SCALAR);
    const hid_t  attribute = H5Acreate2(object, name, H5T_IEEE_F64LE, space, H5P_DEFAULT, H5P_DEFAULT);
    ddp_status_t status    = DDP_OK;

    if (attribute < 0 || H5Awrite(attribute, H5T_NATIVE_DOUBLE, &value) < 0) {
        status = ddp_fail_h5(DDP_ERR_IO, "attribute '%s'", name);
    }
    (void)H5Aclose(attribute);
    (void)H5Sclose(space);
    return status;
}

/* A fixed-length UTF-8 string; those of variable length are what readers crash on. */
static ddp_status_t put_text(hid_t object, const char *name, const char *value)
{
    const hid_t  type      = H5Tcopy(H5T_C_S1);
    const hid_t  space     = H5Screate(H5S_SCALAR);
    hid_t        attribute = -1;
    ddp_status_t status    = DDP_OK;

    if (H5Tset_size(type, strlen(value) + 1) >= 0 && H5Tset_cset(type, H5T_CSET_UTF8) >= 0) {
        attribute = H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    }
    if (attribute < 0 || H5Awrite(attribute, type, value) < 0) {
        status = ddp_fail_h5(DDP_ERR_IO, "attribute '%s'", name);
    }
    (void)H5Aclose(attribute);
    (void)H5Sclose(space);
    (void)H5Tclose(type);
    return status;
}

static ddp_status_t make_group(skeleton_t *s, const char *name, hid_t *group_p)
{
    ddp_status_t status = DDP_OK;
    const hid_t  group  = H5Gcreate2(s->file, name, s->links, s->groups, H5P_DEFAULT);

    if (group < 0) {
        DDP_TRY(ddp_fail_h5(DDP_ERR_IO, "group '%s'", name));
    }
    *group_p = group;
out:
    return status;
}

/* An array of a tensor's shape in `group`, whose place is noted. @param [out] array_p  to be closed */
static ddp_status_t make_array(skeleton_t *s, hid_t group, size_t tensor, int which, hid_t *array_p)
{
    const ddp_tensor_desc_t *desc   = &s->tensors[tensor];
    ddp_status_t             status = DDP_OK;
    hsize_t                  dims[DDP_MAX_DIMS];
    hid_t                    space = -1;
    hid_t                    array = -1;
    haddr_t                  at    = HADDR_UNDEF;

    for (size_t d = 0; d < desc->ndim; d++) {
        dims[d] = desc->shape[d];
    }
    space = H5Screate_simple((int)desc->ndim, dims, NULL);
    if (space >= 0) {
        array = H5Dcreate2(group, desc->name, H5T_IEEE_F32LE, space, s->links, s->arrays, H5P_DEFAULT);
    }
    if (array >= 0) {
        at = H5Dget_offset(array);
    }
    if (at == HADDR_UNDEF) {
        DDP_TRY(ddp_fail_h5(DDP_ERR_IO, "array '%s'", desc->name));
    }
    s->found[s->n_found++] = (ddp_checkpoint_extent_t){at, desc->count * sizeof(float), tensor, which, NULL};
    *array_p               = array;
    array                  = -1;
out:
    if (array >= 0) {
        (void)H5Dclose(array);
    }
    if (space >= 0) {
        (void)H5Sclose(space);
    }
    return status;
}

static ddp_status_t put_model(skeleton_t *s)
{
    ddp_status_t status = DDP_OK;
    hid_t        group  = -1;
    hid_t        array  = -1;

    DDP_TRY(make_group(s, "model", &group));
    for (size_t i = 0; i < s->n; i++) {
        DDP_TRY(make_array(s, group, i, DDP_CHECKPOINT_VALUES, &array));
        DDP_TRY(put_u64(array, "is_buffer", s->tensors[i].role == DDP_TENSOR_AVERAGE ? 1 : 0));
        DDP_TRY(put_u64(array, "step", s->steps[i]));
        (void)H5Dclose(array);
        array = -1;
    }
out:
    if (array >= 0) {
        (void)H5Dclose(array);
    }
    if (group >= 0) {
        (void)H5Gclose(group);
    }
    return status;
}

static ddp_status_t put_slot(skeleton_t *s, int slot)
{
    ddp_status_t status = DDP_OK;
    hid_t        group  = -1;
    hid_t        array  = -1;
    char         name[64];

    snprintf(name, sizeof(name), "optimizer/%s", s->state->slot[slot]);
    DDP_TRY(make_group(s, name, &group));
    for (size_t i = 0; i < s->n; i++) {
        if (s->tensors[i].role != DDP_TENSOR_AVERAGE) {
            DDP_TRY(make_array(s, group, i, slot, &array));
            (void)H5Dclose(array);
        }
    }
out:
    if (group >= 0) {
        (void)H5Gclose(group);
    }
    return status;
}

static ddp_status_t put_optimizer(skeleton_t *s)
{
    ddp_status_t status = DDP_OK;
    hid_t        group  = -1;

    DDP_TRY(make_group(s, "optimizer", &group));
    DDP_TRY(put_text(group, "algorithm", s->state->optimizer));
    for (size_t i = 0; i < s->state->n_slots; i++) {
        DDP_TRY(put_slot(s, (int)i));
    }
out:
    if (group >= 0) {
        (void)H5Gclose(group);
    }
    return status;
}

/* The configuration may be longer than an attribute should be. */
static ddp_status_t put_config(hid_t group, const skeleton_t *s)
{
    ddp_status_t  status = DDP_OK;
    const hsize_t length = strlen(s->state->config);
    const hid_t   space  = H5Screate_simple(1, &length, NULL);
    const hid_t data = H5Dcreate2(group, "config", H5T_STD_U8LE, space, H5P_DEFAULT, s->arrays, H5P_DEFAULT);

    if (data < 0 || H5Dwrite(data, H5T_NATIVE_UCHAR, H5S_ALL, H5S_ALL, H5P_DEFAULT, s->state->config) < 0) {
        status = ddp_fail_h5(DDP_ERR_IO, "configuration");
    }
    (void)H5Dclose(data);
    (void)H5Sclose(space);
    return status;
}

static ddp_status_t put_training(skeleton_t *s)
{
    const ddp_training_state_t *state  = s->state;
    ddp_status_t                status = DDP_OK;
    hid_t                       group  = -1;

    DDP_TRY(make_group(s, "training", &group));
    DDP_TRY(put_u64(group, "format_version", DDP_CHECKPOINT_VERSION));
    DDP_TRY(put_u64(group, "step", state->step));
    DDP_TRY(put_u64(group, "epoch", state->epoch));
    DDP_TRY(put_u64(group, "samples_seen", state->samples_seen));
    DDP_TRY(put_u64(group, "seed", state->seed));
    DDP_TRY(put_u64(group, "micro_batches", state->micro_batches));
    DDP_TRY(put_double(group, "best_loss", isnan(state->best_loss) ? NAN : state->best_loss));
    if (state->loss_scale > 0) {
        DDP_TRY(put_double(group, "loss_scale", state->loss_scale));
        DDP_TRY(put_u64(group, "loss_scale_steps", state->loss_scale_steps));
    }
    DDP_TRY(put_text(group, "isa", state->isa));
    DDP_TRY(put_text(group, "data", state->data));
    DDP_TRY(put_text(group, "producer", state->producer));
    DDP_TRY(put_config(group, s));
out:
    if (group >= 0) {
        (void)H5Gclose(group);
    }
    return status;
}

/* The first folder that takes a file. */
static ddp_status_t make_path(skeleton_t *s)
{
    const char *const folders[] = {getenv("DDPTRAIN_TMP"), "/dev/shm", getenv("TMPDIR"), "/tmp"};
    int               error     = ENOENT;

    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
        int fd = -1;

        if (folders[i] == NULL || strlen(folders[i]) + 32 > sizeof(s->path)) {
            continue;
        }
        snprintf(s->path, sizeof(s->path), "%s/.ddptrain-XXXXXX", folders[i]);
        fd = mkostemp(s->path, O_CLOEXEC);
        if (fd >= 0) {
            (void)close(fd);
            return DDP_OK;
        }
        error = errno;
    }
    s->path[0] = '\0';
    return ddp_fail(DDP_ERR_IO,
                    "no folder for the checkpoint's outline: DDPTRAIN_TMP, /dev/shm, TMPDIR and /tmp: %s",
                    ddp_errno_text(error));
}

/* Nothing in the file may depend on time, and readers of HDF5 1.8 and later understand it. */
static ddp_status_t create_file(skeleton_t *s)
{
    const unsigned order  = H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED;
    const hid_t    create = H5Pcreate(H5P_FILE_CREATE);
    const hid_t    access = H5Pcreate(H5P_FILE_ACCESS);
    ddp_status_t   status = DDP_OK;

    s->links  = H5Pcreate(H5P_LINK_CREATE);
    s->groups = H5Pcreate(H5P_GROUP_CREATE);
    s->arrays = H5Pcreate(H5P_DATASET_CREATE);
    if (H5Pset_userblock(create, DDP_CHECKPOINT_HEADER_BYTES) < 0 ||
        H5Pset_link_creation_order(create, order) < 0 || H5Pset_obj_track_times(create, false) < 0 ||
        H5Pset_alignment(access, ALIGNMENT, ALIGNMENT) < 0 ||
        H5Pset_libver_bounds(access, H5F_LIBVER_V18, H5F_LIBVER_V110) < 0 ||
        H5Pset_file_locking(access, false, true) < 0 || H5Pset_link_creation_order(s->groups, order) < 0 ||
        H5Pset_obj_track_times(s->groups, false) < 0 || H5Pset_layout(s->arrays, H5D_CONTIGUOUS) < 0 ||
        H5Pset_alloc_time(s->arrays, H5D_ALLOC_TIME_EARLY) < 0 ||
        H5Pset_fill_time(s->arrays, H5D_FILL_TIME_NEVER) < 0 ||
        H5Pset_obj_track_times(s->arrays, false) < 0) {
        DDP_TRY(ddp_fail_h5(DDP_ERR_IO, "'%s'", s->path));
    }
    s->file = H5Fcreate(s->path, H5F_ACC_TRUNC, create, access);
    if (s->file < 0) {
        DDP_TRY(ddp_fail_h5(DDP_ERR_IO, "'%s'", s->path));
    }
out:
    (void)H5Pclose(create);
    (void)H5Pclose(access);
    return status;
}

static ddp_status_t close_file(skeleton_t *s)
{
    const hid_t file = s->file;

    s->file = -1;
    return H5Fclose(file) < 0 ? ddp_fail_h5(DDP_ERR_IO, "'%s'", s->path) : DDP_OK;
}

static int by_place(const void *a, const void *b)
{
    const uint64_t x = ((const ddp_checkpoint_extent_t *)a)->at;
    const uint64_t y = ((const ddp_checkpoint_extent_t *)b)->at;

    return x < y ? -1 : x > y;
}

/* Extents in the order of the file, metadata between the arrays. `extents` has room for 2 n_found + 1. */
static ddp_status_t list_extents(skeleton_t *s, ddp_checkpoint_plan_t *plan, size_t *metadata_bytes_p)
{
    ddp_status_t status = DDP_OK;
    uint64_t     at     = DDP_CHECKPOINT_HEADER_BYTES;
    size_t       bytes  = 0;

    qsort(s->found, s->n_found, sizeof(s->found[0]), by_place);
    for (size_t i = 0; i <= s->n_found; i++) {
        const uint64_t end = i < s->n_found ? s->found[i].at : plan->bytes;

        DDP_REQUIRE(end >= at, DDP_ERR_STATE, "'%s': arrays overlap at offset %llu", s->path,
                    (unsigned long long)end);
        if (end > at) {
            plan->extents[plan->n_extents++] =
                (ddp_checkpoint_extent_t){at, end - at, 0, DDP_CHECKPOINT_METADATA, NULL};
            bytes += (size_t)(end - at);
        }
        if (i < s->n_found) {
            plan->extents[plan->n_extents++] = s->found[i];
            at                               = end + s->found[i].bytes;
        }
    }
    *metadata_bytes_p = bytes;
out:
    return status;
}

static ddp_status_t read_metadata(skeleton_t *s, ddp_checkpoint_plan_t *plan)
{
    ddp_status_t status = DDP_OK;
    const int    fd     = open(s->path, O_RDONLY | O_CLOEXEC);
    struct stat  file;
    size_t       bytes = 0;
    uint8_t     *to    = NULL;

    if (fd < 0 || fstat(fd, &file) != 0) {
        DDP_TRY(ddp_fail(DDP_ERR_IO, "'%s': %s", s->path, ddp_errno_text(errno)));
    }
    plan->bytes = (uint64_t)file.st_size;
    for (size_t i = 0; i < s->n_found; i++) { /* the last array may end the file without being written */
        const uint64_t end = s->found[i].at + s->found[i].bytes;

        plan->bytes = end > plan->bytes ? end : plan->bytes;
    }
    plan->extents = calloc(2 * s->n_found + 1, sizeof(*plan->extents));
    DDP_REQUIRE(plan->extents != NULL, DDP_ERR_NO_MEMORY, "no memory for a checkpoint's outline");
    DDP_TRY(list_extents(s, plan, &bytes));
    plan->metadata = malloc(bytes);
    DDP_REQUIRE(plan->metadata != NULL, DDP_ERR_NO_MEMORY, "no memory for a checkpoint's outline");
    to = plan->metadata;
    for (size_t i = 0; i < plan->n_extents; i++) {
        ddp_checkpoint_extent_t *extent = &plan->extents[i];

        if (extent->array == DDP_CHECKPOINT_METADATA) {
            DDP_TRY(ddp_read_at(s->path, fd, to, (size_t)extent->bytes, extent->at));
            extent->metadata = to;
            to += extent->bytes;
        }
    }
out:
    if (fd >= 0) {
        (void)close(fd);
    }
    return status;
}

static void discard(skeleton_t *s)
{
    const hid_t lists[] = {s->links, s->groups, s->arrays};

    if (s->file >= 0) {
        (void)H5Fclose(s->file);
    }
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        if (lists[i] >= 0) {
            (void)H5Pclose(lists[i]);
        }
    }
    if (s->path[0] != '\0') {
        (void)unlink(s->path);
    }
    free(s->found);
}

ddp_status_t ddp_checkpoint_plan_make(const ddp_tensor_desc_t *tensors, const uint64_t *steps, size_t n,
                                      const ddp_training_state_t *state, ddp_checkpoint_plan_t *plan_p)
{
    ddp_status_t          status = DDP_OK;
    ddp_checkpoint_plan_t plan   = {0};
    skeleton_t            s      = {tensors, steps, n, state, "", -1, -1, -1, -1, NULL, 0};

    ddp_h5_lock(); /* loader threads may read tokens meanwhile */
    s.found = calloc(n * (1 + state->n_slots), sizeof(*s.found));
    DDP_REQUIRE(s.found != NULL, DDP_ERR_NO_MEMORY, "no memory for a checkpoint's outline");
    DDP_TRY(make_path(&s));
    DDP_TRY(create_file(&s));
    DDP_TRY(put_training(&s)); /* first, so that the metadata stands at the file's beginning */
    DDP_TRY(put_model(&s));
    DDP_TRY(put_optimizer(&s));
    DDP_TRY(close_file(&s));
    DDP_TRY(read_metadata(&s, &plan));
    *plan_p = plan;
    plan    = (ddp_checkpoint_plan_t){0};
out:
    ddp_checkpoint_plan_free(&plan);
    discard(&s);
    ddp_h5_unlock();
    return status;
}

void ddp_checkpoint_plan_free(ddp_checkpoint_plan_t *plan)
{
    free(plan->metadata);
    free(plan->extents);
    *plan = (ddp_checkpoint_plan_t){0};
}
