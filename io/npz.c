/* Arrays of NumPy in a zip file. Source of the array's header: numpy.lib.format, "Format Version 1.0": magic
 * "\x93NUMPY", version, length of the header, and a Python dictionary {'descr': '<f4', 'fortran_order':
 * False, 'shape': (3, 4), } filled with blanks. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <zlib.h>

#include "base/error.h"
#include "io/file_internal.h"
#include "io/npz_internal.h"

#define NPY_MAGIC  "\223NUMPY"
#define NPY_FIXED  8 /* magic and version */
#define MAX_HEADER 65536
#define PACKED     ((size_t)1 << 16)

struct ddp_npz {
    ddp_zip_entry_t *entries; /* owned */
    size_t           n;
    /* The entry that is being read, from front to back. */
    const ddp_zip_entry_t *entry;    /* NULL: none */
    uint64_t               unpacked; /* bytes of it that were given out */
    uint64_t               taken;    /* packed bytes that were read */
    uint32_t               crc;
    z_stream               stream;
    bool                   is_inflating;
    unsigned char          packed[PACKED];
};

static void end_entry(ddp_npz_t *npz)
{
    if (npz->is_inflating) {
        (void)inflateEnd(&npz->stream);
        npz->is_inflating = false;
    }
    npz->entry = NULL;
}

static ddp_status_t begin_entry(const ddp_weights_t *w, const ddp_zip_entry_t *entry)
{
    ddp_status_t status = DDP_OK;
    ddp_npz_t   *npz    = w->npz;

    end_entry(npz);
    npz->unpacked = 0;
    npz->taken    = 0;
    npz->crc      = 0;
    if (entry->is_deflated) {
        npz->stream = (z_stream){0};
        DDP_REQUIRE(inflateInit2(&npz->stream, -MAX_WBITS) == Z_OK, DDP_ERR_NO_MEMORY, "no memory for '%s'",
                    w->path);
        npz->is_inflating = true;
    }
    npz->entry = entry;
out:
    return status;
}

static ddp_status_t refill(const ddp_weights_t *w)
{
    ddp_status_t   status = DDP_OK;
    ddp_npz_t     *npz    = w->npz;
    const uint64_t rest   = npz->entry->packed - npz->taken;
    const size_t   n      = rest < PACKED ? (size_t)rest : PACKED;

    DDP_REQUIRE(n > 0, DDP_ERR_FORMAT, "'%s': '%s' breaks off", w->path, npz->entry->name);
    DDP_TRY(ddp_read_at(w->path, w->fd, npz->packed, n, npz->entry->at + npz->taken));
    npz->taken += n;
    npz->stream.next_in  = npz->packed;
    npz->stream.avail_in = (uInt)n;
out:
    return status;
}

static ddp_status_t unpack(const ddp_weights_t *w, unsigned char *to, size_t bytes)
{
    ddp_status_t status = DDP_OK;
    z_stream    *stream = &w->npz->stream;

    while (bytes > 0) {
        const size_t most = bytes < ((size_t)1 << 30) ? bytes : (size_t)1 << 30;
        int          code;

        if (stream->avail_in == 0) {
            DDP_TRY(refill(w));
        }
        stream->next_out  = to;
        stream->avail_out = (uInt)most;
        code              = inflate(stream, Z_NO_FLUSH);
        bytes -= most - stream->avail_out;
        to += most - stream->avail_out;
        DDP_REQUIRE(code == Z_OK || (code == Z_STREAM_END && bytes == 0), DDP_ERR_FORMAT,
                    "'%s': '%s' is damaged", w->path, w->npz->entry->name);
    }
out:
    return status;
}

/* The next bytes of the entry; behind the last one its checksum must be right. */
static ddp_status_t next(const ddp_weights_t *w, void *to, size_t bytes)
{
    ddp_status_t status = DDP_OK;
    ddp_npz_t   *npz    = w->npz;

    DDP_REQUIRE(bytes <= npz->entry->bytes - npz->unpacked, DDP_ERR_FORMAT, "'%s': '%s' is cut short",
                w->path, npz->entry->name);
    if (npz->entry->is_deflated) {
        DDP_TRY(unpack(w, to, bytes));
    } else {
        DDP_TRY(ddp_read_at(w->path, w->fd, to, bytes, npz->entry->at + npz->unpacked));
    }
    npz->unpacked += bytes;
    npz->crc = (uint32_t)crc32_z(npz->crc, to, bytes);
    DDP_REQUIRE(npz->unpacked < npz->entry->bytes || npz->crc == npz->entry->crc, DDP_ERR_FORMAT,
                "'%s': '%s': its checksum is %08" PRIx32 ", not %08" PRIx32, w->path, npz->entry->name,
                npz->crc, npz->entry->crc);
out:
    return status;
}

static ddp_status_t skip(const ddp_weights_t *w, uint64_t bytes)
{
    ddp_status_t  status = DDP_OK;
    unsigned char nothing[4096];

    while (bytes > 0) {
        const size_t n = bytes < sizeof(nothing) ? (size_t)bytes : sizeof(nothing);

        DDP_TRY(next(w, nothing, n));
        bytes -= n;
    }
out:
    return status;
}

/* The value of a key in the header's dictionary: the text behind "'key':". */
static ddp_status_t find_key(const ddp_weights_t *w, const char *header, const char *key,
                             const char **value_p)
{
    const char *at = strstr(header, key);

    if (at == NULL) {
        return ddp_fail(DDP_ERR_FORMAT, "'%s': '%s': no %s in its header", w->path, w->npz->entry->name, key);
    }
    at += strlen(key);
    *value_p = at + strspn(at, " ");
    return DDP_OK;
}

/* "(3, 4)", "(3,)", "()" */
static ddp_status_t parse_shape(const ddp_weights_t *w, const char *text, uint64_t *shape, size_t *ndim_p)
{
    size_t n = 0;

    text += *text == '(' ? 1 : 0;
    while (text[0] >= '0' && text[0] <= '9' && n < DDP_MAX_DIMS + 1) {
        char *end = NULL;

        errno      = 0;
        shape[n++] = strtoull(text, &end, 10);
        text       = end + strspn(end, "L");
        if (errno != 0 || (*text != ',' && *text != ')')) {
            break;
        }
        text += *text == ',' ? 1 : 0;
        text += strspn(text, " ");
    }
    if (*text != ')') {
        return ddp_fail(DDP_ERR_FORMAT,
                        "'%s': '%s': its shape cannot be read, or has more than %d dimensions", w->path,
                        w->npz->entry->name, DDP_MAX_DIMS);
    }
    *ndim_p = n;
    return DDP_OK;
}

static ddp_weights_type_t parse_type(const char *text)
{
    static const struct {
        const char        *name;
        ddp_weights_type_t type;
    } types[] = {{"'<f4'", DDP_WEIGHTS_F32}, {"'<f8'", DDP_WEIGHTS_F64}, {"'<f2'", DDP_WEIGHTS_F16}};

    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        if (strncmp(text, types[i].name, strlen(types[i].name)) == 0) {
            return types[i].type;
        }
    }
    return DDP_WEIGHTS_OTHER;
}

/* Header of the entry that was begun. @param [out] header  [MAX_HEADER + 1] */
static ddp_status_t read_header(const ddp_weights_t *w, char *header)
{
    ddp_status_t  status = DDP_OK;
    unsigned char start[NPY_FIXED + 4];
    size_t        length;
    size_t        width;

    DDP_TRY(next(w, start, NPY_FIXED + 2));
    DDP_REQUIRE(memcmp(start, NPY_MAGIC, 6) == 0 && start[6] >= 1 && start[6] <= 3, DDP_ERR_FORMAT,
                "'%s': '%s' is no array of NumPy", w->path, w->npz->entry->name);
    width  = start[6] == 1 ? 2 : 4;
    length = start[NPY_FIXED] | (size_t)start[NPY_FIXED + 1] << 8;
    if (width == 4) {
        DDP_TRY(next(w, start + NPY_FIXED + 2, 2));
        length |= (size_t)start[NPY_FIXED + 2] << 16 | (size_t)start[NPY_FIXED + 3] << 24;
    }
    DDP_REQUIRE(length <= MAX_HEADER, DDP_ERR_FORMAT, "'%s': '%s': a header of %zu bytes", w->path,
                w->npz->entry->name, length);
    DDP_TRY(next(w, header, length));
    header[length] = '\0';
    DDP_REQUIRE(strlen(header) == length, DDP_ERR_FORMAT, "'%s': '%s': zeros in its header", w->path,
                w->npz->entry->name);
out:
    return status;
}

static ddp_status_t take_array(ddp_weights_t *w, size_t index, char *header)
{
    ddp_status_t           status = DDP_OK;
    const ddp_zip_entry_t *entry  = &w->npz->entries[index];
    const size_t           length = strlen(entry->name);
    char                   name[sizeof(entry->name)];
    const char            *value = NULL;
    ddp_weights_type_t     type  = DDP_WEIGHTS_OTHER;
    uint64_t               shape[DDP_MAX_DIMS + 1];
    size_t                 ndim = 0;

    DDP_REQUIRE(length > 4 && strcmp(entry->name + length - 4, ".npy") == 0, DDP_ERR_FORMAT,
                "'%s': '%s' is no .npy: not an npz file", w->path, entry->name);
    memcpy(name, entry->name, length - 4);
    name[length - 4] = '\0';
    DDP_TRY(begin_entry(w, entry));
    DDP_TRY(read_header(w, header));
    DDP_TRY(find_key(w, header, "'descr':", &value));
    type = parse_type(value);
    DDP_REQUIRE(strncmp(value, "'>f", 3) != 0, DDP_ERR_FORMAT, "'%s': '%s' is big-endian", w->path, name);
    DDP_TRY(find_key(w, header, "'shape':", &value));
    if (type != DDP_WEIGHTS_OTHER) {
        DDP_TRY(parse_shape(w, value, shape, &ndim));
        DDP_TRY(find_key(w, header, "'fortran_order':", &value));
        DDP_REQUIRE(strncmp(value, "False", 5) == 0 || ndim < 2, DDP_ERR_FORMAT,
                    "'%s': '%s' is in Fortran's order: save numpy.ascontiguousarray() of it", w->path, name);
    }
    DDP_TRY(ddp_weights_add(w, name, type, shape, ndim, entry->bytes - w->npz->unpacked,
                            entry->is_deflated ? DDP_ZIP_RATIO : 1, index));
out:
    return status;
}

ddp_status_t ddp_npz_read(ddp_weights_t *weights)
{
    ddp_status_t status = DDP_OK;
    char        *header = malloc(MAX_HEADER + 1);

    weights->npz = calloc(1, sizeof(*weights->npz));
    DDP_REQUIRE(weights->npz != NULL && header != NULL, DDP_ERR_NO_MEMORY, "no memory for '%s'",
                weights->path);
    DDP_TRY(ddp_zip_list(weights, &weights->npz->entries, &weights->npz->n));
    for (size_t i = 0; i < weights->npz->n; i++) {
        DDP_TRY(take_array(weights, i, header));
    }
out:
    free(header);
    return status;
}

ddp_status_t ddp_npz_get(ddp_weights_t *weights, size_t tensor, size_t first, size_t count, void *to)
{
    ddp_status_t                status = DDP_OK;
    ddp_npz_t                  *npz    = weights->npz;
    const ddp_weights_tensor_t *t      = &weights->tensors[tensor];
    const ddp_zip_entry_t      *entry  = &npz->entries[t->at];
    const size_t                width  = ddp_weights_type_bytes(t->type);
    const uint64_t              data   = entry->bytes - t->desc.count * width; /* its header ends here */
    const uint64_t              at     = data + first * width;

    if (npz->entry != entry || npz->unpacked > at) {
        DDP_TRY(begin_entry(weights, entry));
    }
    DDP_TRY(skip(weights, at - npz->unpacked));
    DDP_TRY(next(weights, to, count * width));
out:
    if (status != DDP_OK) {
        end_entry(npz);
    }
    return status;
}

void ddp_npz_close(ddp_npz_t **npz_p)
{
    ddp_npz_t *npz = *npz_p;

    if (npz == NULL) {
        return;
    }
    end_entry(npz);
    free(npz->entries);
    free(npz);
    *npz_p = NULL;
}
