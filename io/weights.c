#include "io/weights.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/utf8.h"
#include "io/file_internal.h"
#include "io/weights_internal.h"

#define OUR_MAGIC   "ddptrain-checkpoint "
#define HDF5_MAGIC  "\211HDF\r\n\032\n"
#define MAX_TENSORS ((size_t)1 << 20)

const char *ddp_weights_kind_name(ddp_weights_kind_t kind)
{
    static const char *const names[] = {[DDP_WEIGHTS_CHECKPOINT]  = "checkpoint",
                                        [DDP_WEIGHTS_HDF5]        = "HDF5",
                                        [DDP_WEIGHTS_SAFETENSORS] = "safetensors",
                                        [DDP_WEIGHTS_NPZ]         = "npz"};

    return names[kind];
}

bool ddp_weights_kind_of_ending(const char *path, ddp_weights_kind_t *kind_p)
{
    static const struct {
        const char        *ending;
        ddp_weights_kind_t kind;
    } endings[]         = {{".h5", DDP_WEIGHTS_CHECKPOINT},
                           {".hdf5", DDP_WEIGHTS_CHECKPOINT},
                           {".safetensors", DDP_WEIGHTS_SAFETENSORS},
                           {".npz", DDP_WEIGHTS_NPZ}};
    const size_t length = strlen(path);

    for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++) {
        const size_t n = strlen(endings[i].ending);

        if (length > n && strcmp(path + length - n, endings[i].ending) == 0) {
            *kind_p = endings[i].kind;
            return true;
        }
    }
    return false;
}

size_t ddp_weights_type_bytes(ddp_weights_type_t type)
{
    static const size_t bytes[] = {[DDP_WEIGHTS_F32]   = 4,
                                   [DDP_WEIGHTS_F64]   = 8,
                                   [DDP_WEIGHTS_F16]   = 2,
                                   [DDP_WEIGHTS_BF16]  = 2,
                                   [DDP_WEIGHTS_OTHER] = 0};

    return bytes[type];
}

/* BatchNorm's, under PyTorch's names. */
static bool is_average(const char *name)
{
    const char *dot  = strrchr(name, '.');
    const char *last = dot != NULL ? dot + 1 : name;

    return strcmp(last, "running_mean") == 0 || strcmp(last, "running_var") == 0;
}

/* A name is printed, and written into files of other kinds. */
static ddp_status_t check_name(const ddp_weights_t *w, const char *name)
{
    ddp_status_t         status = DDP_OK;
    const unsigned char *text   = (const unsigned char *)name;
    const size_t         n      = strlen(name);
    size_t               length = 0;

    DDP_REQUIRE(n > 0 && n < DDP_WEIGHTS_NAME_SIZE, DDP_ERR_FORMAT,
                "'%s': tensor %zu: its name is empty or longer than %d bytes", w->path, w->n,
                DDP_WEIGHTS_NAME_SIZE - 1);
    for (size_t i = 0; i < n; i += length) {
        const bool is_c1 = text[i] == 0xc2 && text[i + 1] < 0xa0; /* U+0080 .. U+009F */

        length = ddp_utf8_length(name + i, n - i);
        DDP_REQUIRE(length > 0, DDP_ERR_FORMAT, "'%s': tensor %zu: its name is not UTF-8", w->path, w->n);
        DDP_REQUIRE(text[i] >= ' ' && text[i] != 127 && !is_c1, DDP_ERR_FORMAT,
                    "'%s': tensor %zu: a control character in its name", w->path, w->n);
    }
out:
    return status;
}

/* Product of the dimensions, which must fill the tensor's bytes: a shape of any size is no danger. */
static ddp_status_t check_shape(const ddp_weights_t *w, ddp_weights_tensor_t *tensor, const uint64_t *shape,
                                size_t ndim, uint64_t bytes)
{
    ddp_status_t   status = DDP_OK;
    const size_t   width  = ddp_weights_type_bytes(tensor->type);
    const uint64_t room   = bytes / width;
    uint64_t       count  = 1;

    DDP_REQUIRE(ndim <= DDP_MAX_DIMS, DDP_ERR_FORMAT, "'%s': '%s' has %zu dimensions, at most %d are taken",
                w->path, tensor->desc.name, ndim, DDP_MAX_DIMS);
    for (size_t d = 0; d < ndim; d++) {
        DDP_REQUIRE(shape[d] > 0, DDP_ERR_FORMAT, "'%s': '%s' has no elements", w->path, tensor->desc.name);
        DDP_REQUIRE(shape[d] <= room / count, DDP_ERR_FORMAT,
                    "'%s': '%s': its shape is larger than its %" PRIu64 " bytes", w->path, tensor->desc.name,
                    bytes);
        count *= shape[d];
        tensor->desc.shape[d] = (size_t)shape[d];
    }
    DDP_REQUIRE(count * width == bytes, DDP_ERR_FORMAT,
                "'%s': '%s': its shape fills %" PRIu64 " of its %" PRIu64 " bytes", w->path,
                tensor->desc.name, count * width, bytes);
    tensor->desc.ndim  = ndim;
    tensor->desc.count = (size_t)count;
out:
    return status;
}

static ddp_status_t make_room(ddp_weights_t *w)
{
    ddp_status_t          status = DDP_OK;
    const size_t          room   = w->room == 0 ? 64 : w->room * 2;
    ddp_weights_tensor_t *more   = NULL;

    if (w->n < w->room) {
        return DDP_OK;
    }
    DDP_REQUIRE(room <= MAX_TENSORS, DDP_ERR_FORMAT, "'%s': more than %zu tensors", w->path, MAX_TENSORS);
    more = realloc(w->tensors, room * sizeof(*more));
    DDP_REQUIRE(more != NULL, DDP_ERR_NO_MEMORY, "no memory for '%s'", w->path);
    w->tensors = more;
    w->room    = room;
out:
    return status;
}

ddp_status_t ddp_weights_add(ddp_weights_t *weights, const char *name, ddp_weights_type_t type,
                             const uint64_t *shape, size_t ndim, uint64_t bytes, uint64_t ratio, uint64_t at)
{
    ddp_status_t         status = DDP_OK;
    ddp_weights_tensor_t tensor = {.type = type, .array = DDP_CHECKPOINT_VALUES, .at = at};

    DDP_TRY(check_name(weights, name));
    DDP_TRY(make_room(weights));
    tensor.desc.name = name;
    tensor.desc.role = is_average(name) ? DDP_TENSOR_AVERAGE : DDP_TENSOR_PARAMETER;
    DDP_REQUIRE(bytes / ratio <= weights->bytes, DDP_ERR_FORMAT,
                "'%s': '%s': %" PRIu64 " bytes are more than the file can hold", weights->path, name, bytes);
    if (type != DDP_WEIGHTS_OTHER) {
        DDP_TRY(check_shape(weights, &tensor, shape, ndim, bytes));
    }
    tensor.desc.name = strdup(name);
    DDP_REQUIRE(tensor.desc.name != NULL, DDP_ERR_NO_MEMORY, "no memory for '%s'", weights->path);
    weights->tensors[weights->n++] = tensor;
out:
    return status;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

ddp_status_t ddp_weights_check_names(const ddp_weights_t *weights)
{
    ddp_status_t status = DDP_OK;
    const char **names  = malloc((weights->n + 1) * sizeof(*names));

    DDP_REQUIRE(names != NULL, DDP_ERR_NO_MEMORY, "no memory for '%s'", weights->path);
    for (size_t i = 0; i < weights->n; i++) {
        names[i] = weights->tensors[i].desc.name;
    }
    qsort(names, weights->n, sizeof(*names), by_name);
    for (size_t i = 1; i < weights->n; i++) {
        DDP_REQUIRE(strcmp(names[i - 1], names[i]) != 0, DDP_ERR_FORMAT, "'%s': two tensors are named '%s'",
                    weights->path, names[i]);
    }
out:
    free(names);
    return status;
}

/* Ours is read through the same table: the arrays of a checkpoint lie in its file in one piece each. */
static ddp_status_t read_checkpoint(ddp_weights_t *w)
{
    ddp_status_t                   status = DDP_OK;
    const ddp_training_state_t    *state  = NULL;
    const ddp_checkpoint_tensor_t *all    = NULL;
    char                           name[DDP_WEIGHTS_NAME_SIZE];

    DDP_TRY(ddp_checkpoint_open(w->path, &w->checkpoint));
    state = ddp_checkpoint_state(w->checkpoint);
    all   = ddp_checkpoint_tensors(w->checkpoint);
    for (int array = DDP_CHECKPOINT_VALUES; array < (int)state->n_slots; array++) {
        for (size_t i = 0; i < ddp_checkpoint_count(w->checkpoint); i++) {
            const ddp_tensor_desc_t *desc = &all[i].desc;
            uint64_t                 shape[DDP_MAX_DIMS];

            if (array >= 0 && desc->role == DDP_TENSOR_AVERAGE) {
                continue;
            }
            for (size_t d = 0; d < desc->ndim; d++) {
                shape[d] = desc->shape[d];
            }
            snprintf(name, sizeof(name), "%s%s%s%s", array >= 0 ? "optimizer." : "",
                     array >= 0 ? state->slot[array] : "", array >= 0 ? "." : "", desc->name);
            DDP_TRY(ddp_weights_add(w, name, DDP_WEIGHTS_F32, shape, desc->ndim, desc->count * sizeof(float),
                                    1, array >= 0 ? all[i].slot_at[array] : all[i].value_at));
            w->tensors[w->n - 1].desc.role = desc->role;
            w->tensors[w->n - 1].array     = array;
        }
    }
out:
    return status;
}

/* HDF5's signature is at offset 0, 512, 1024, 2048, ... */
static ddp_status_t find_hdf5(const ddp_weights_t *w, bool *is_hdf5_p)
{
    ddp_status_t status = DDP_OK;
    char         magic[8];

    *is_hdf5_p = false;
    for (uint64_t at = 0; at + sizeof(magic) <= w->bytes && !*is_hdf5_p; at = at == 0 ? 512 : at * 2) {
        DDP_TRY(ddp_read_at(w->path, w->fd, magic, sizeof(magic), at));
        *is_hdf5_p = memcmp(magic, HDF5_MAGIC, sizeof(magic)) == 0;
    }
out:
    return status;
}

static bool ends_with_safetensors(const char *path)
{
    ddp_weights_kind_t kind;

    return ddp_weights_kind_of_ending(path, &kind) && kind == DDP_WEIGHTS_SAFETENSORS;
}

static ddp_status_t read_kind(ddp_weights_t *w, const ddp_weights_params_t *params)
{
    ddp_status_t status    = DDP_OK;
    bool         is_hdf5   = false;
    char         start[32] = "";

    DDP_TRY(
        ddp_read_at(w->path, w->fd, start, w->bytes < sizeof(start) ? (size_t)w->bytes : sizeof(start), 0));
    if (strncmp(start, OUR_MAGIC, sizeof(OUR_MAGIC) - 1) == 0) {
        status = read_checkpoint(w);
        if (status != DDP_ERR_FORMAT || !params->unverified) {
            goto out;
        }
        ddp_checkpoint_close(&w->checkpoint);
        DDP_REQUIRE(w->n == 0, DDP_ERR_FORMAT, "'%s': damaged", w->path);
    }
    DDP_TRY(find_hdf5(w, &is_hdf5));
    if (is_hdf5) {
        w->kind = DDP_WEIGHTS_HDF5;
        DDP_TRY(ddp_foreign_read(w, params));
    } else if (memcmp(start, "PK\003\004", 4) == 0 || memcmp(start, "PK\005\006", 4) == 0) {
        w->kind = DDP_WEIGHTS_NPZ;
        DDP_TRY(ddp_npz_read(w));
    } else {
        DDP_REQUIRE(start[8] == '{' || ends_with_safetensors(w->path), DDP_ERR_FORMAT,
                    "'%s': neither HDF5 nor safetensors nor npz", w->path);
        w->kind = DDP_WEIGHTS_SAFETENSORS;
        DDP_TRY(ddp_safetensors_read(w));
    }
    DDP_TRY(ddp_weights_check_names(w));
    DDP_REQUIRE(w->n > 0, DDP_ERR_FORMAT, "'%s': no tensors in it", w->path);
out:
    return status;
}

ddp_status_t ddp_weights_open(const char *path, const ddp_weights_params_t *params, ddp_weights_t **weights_p)
{
    ddp_status_t   status = DDP_OK;
    ddp_weights_t *w      = calloc(1, sizeof(*w));
    struct stat    file;

    DDP_REQUIRE(w != NULL, DDP_ERR_NO_MEMORY, "no memory for '%s'", path);
    w->fd = -1;
    DDP_REQUIRE(params->struct_size == sizeof(*params), DDP_ERR_INVALID_ARG,
                "weights: parameters not made with DDP_WEIGHTS_PARAMS_INIT");
    DDP_REQUIRE(strlen(path) < sizeof(w->path), DDP_ERR_IO, "'%.80s...': path too long", path);
    memcpy(w->path, path, strlen(path) + 1);
    w->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* O_NONBLOCK: a pipe without a writer */
    if (w->fd < 0 || fstat(w->fd, &file) != 0) {
        DDP_TRY(ddp_fail_path(path, errno, ""));
    }
    DDP_REQUIRE(S_ISREG(file.st_mode), DDP_ERR_IO, "'%s': %s", path, ddp_no_file_text(file.st_mode));
    w->bytes = (uint64_t)file.st_size;
    DDP_TRY(read_kind(w, params));
    *weights_p = w;
    w          = NULL;
out:
    ddp_weights_close(&w);
    return status;
}

void ddp_weights_close(ddp_weights_t **weights_p)
{
    ddp_weights_t *w = *weights_p;

    if (w == NULL) {
        return;
    }
    for (size_t i = 0; i < w->n; i++) {
        free((char *)(uintptr_t)w->tensors[i].desc.name); /* from strdup() */
    }
    free(w->tensors);
    ddp_checkpoint_close(&w->checkpoint);
    ddp_npz_close(&w->npz);
    ddp_foreign_close(&w->foreign);
    if (w->fd >= 0) {
        (void)close(w->fd);
    }
    free(w);
    *weights_p = NULL;
}

ddp_weights_kind_t ddp_weights_kind(const ddp_weights_t *weights)
{
    return weights->kind;
}

const ddp_checkpoint_t *ddp_weights_checkpoint(const ddp_weights_t *weights)
{
    return weights->checkpoint;
}

size_t ddp_weights_count(const ddp_weights_t *weights)
{
    return weights->n;
}

const ddp_weights_tensor_t *ddp_weights_tensors(const ddp_weights_t *weights)
{
    return weights->tensors;
}

size_t ddp_weights_find(const ddp_weights_t *weights, const char *name)
{
    size_t i = 0;

    while (i < weights->n && strcmp(weights->tensors[i].desc.name, name) != 0) {
        i++;
    }
    return i;
}
