/* The directory of a zip file. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "io/file_internal.h"
#include "io/npz_internal.h"

#define MAX_ENTRIES   ((uint64_t)1 << 20)
#define MAX_DIRECTORY ((uint64_t)256 << 20)
#define MAX_COMMENT   65535
#define IS_IN_ZIP64   0xFFFFFFFFU
#define ENCRYPTED     1

typedef struct directory {
    uint64_t at, bytes, n;
} directory_t;

static uint64_t number(const unsigned char *from, size_t bytes)
{
    uint64_t value = 0;

    while (bytes > 0) {
        value = value << 8 | from[--bytes];
    }
    return value;
}

static ddp_status_t damaged(const ddp_weights_t *w, const char *what)
{
    return ddp_fail(DDP_ERR_FORMAT, "'%s': a damaged zip file: %s", w->path, what);
}

/* The larger numbers, where the small record has no room for them. @param [in] end  offset of that record */
static ddp_status_t read_zip64_end(const ddp_weights_t *w, uint64_t end, directory_t *directory)
{
    ddp_status_t  status = DDP_OK;
    unsigned char locator[20];
    unsigned char record[DDP_ZIP64_END_BYTES];

    if (end < sizeof(locator)) {
        return damaged(w, "no zip64 locator");
    }
    DDP_TRY(ddp_read_at(w->path, w->fd, locator, sizeof(locator), end - sizeof(locator)));
    if (number(locator, 4) != DDP_ZIP64_LOCATOR) {
        return damaged(w, "no zip64 locator");
    }
    DDP_TRY(ddp_read_at(w->path, w->fd, record, sizeof(record), number(locator + 8, 8) & INT64_MAX));
    if (number(record, 4) != DDP_ZIP64_END) {
        return damaged(w, "no zip64 record");
    }
    *directory = (directory_t){number(record + 48, 8), number(record + 40, 8), number(record + 32, 8)};
out:
    return status;
}

/* The record at the end, behind which a comment may stand. */
static ddp_status_t find_directory(const ddp_weights_t *w, directory_t *directory)
{
    ddp_status_t   status = DDP_OK;
    const size_t   most   = DDP_ZIP_END_BYTES + MAX_COMMENT;
    const size_t   tail   = w->bytes < most ? (size_t)w->bytes : most;
    unsigned char *bytes  = malloc(tail + 1);
    size_t         at     = tail;
    bool           found  = false;

    DDP_REQUIRE(bytes != NULL, DDP_ERR_NO_MEMORY, "no memory for '%s'", w->path);
    DDP_TRY(ddp_read_at(w->path, w->fd, bytes, tail, w->bytes - tail));
    while (at >= DDP_ZIP_END_BYTES && !found) {
        const unsigned char *record = bytes + at - DDP_ZIP_END_BYTES;

        found = number(record, 4) == DDP_ZIP_END && number(record + 20, 2) == tail - at;
        if (found) {
            *directory =
                (directory_t){number(record + 16, 4), number(record + 12, 4), number(record + 10, 2)};
        }
        at--;
    }
    if (!found) {
        DDP_TRY(damaged(w, "its directory is missing; cut short?"));
    }
    if (directory->at == IS_IN_ZIP64 || directory->bytes == IS_IN_ZIP64 || directory->n == 0xFFFF) {
        DDP_TRY(read_zip64_end(w, w->bytes - tail + at + 1 - DDP_ZIP_END_BYTES, directory));
    }
    if (directory->at > w->bytes || directory->bytes > w->bytes - directory->at ||
        directory->bytes > MAX_DIRECTORY || directory->n > MAX_ENTRIES ||
        directory->n > directory->bytes / DDP_ZIP_CENTRAL_BYTES) {
        DDP_TRY(damaged(w, "its directory lies outside of it"));
    }
out:
    free(bytes);
    return status;
}

/* Values that stand as 0xFFFFFFFF in an entry of the directory are in this field, in this order. */
static ddp_status_t take_zip64(const ddp_weights_t *w, const unsigned char *extra, size_t bytes,
                               ddp_zip_entry_t *entry)
{
    uint64_t *const values[] = {&entry->bytes, &entry->packed, &entry->local};

    while (bytes >= 4) {
        const size_t   n    = (size_t)number(extra + 2, 2);
        const unsigned kind = (unsigned)number(extra, 2);
        size_t         used = 0;

        if (n > bytes - 4) {
            return damaged(w, "an extra field is too long");
        }
        for (size_t i = 0; kind == DDP_ZIP64_EXTRA && i < 3; i++) {
            if (*values[i] == IS_IN_ZIP64) {
                if (used + 8 > n) {
                    return damaged(w, "a zip64 field is too short");
                }
                *values[i] = number(extra + 4 + used, 8);
                used += 8;
            }
        }
        extra += 4 + n;
        bytes -= 4 + n;
    }
    return DDP_OK;
}

/* One entry of the directory. @param [in,out] at_p  where in it */
static ddp_status_t take_entry(const ddp_weights_t *w, const unsigned char *directory, size_t bytes,
                               size_t *at_p, ddp_zip_entry_t *entry)
{
    ddp_status_t         status = DDP_OK;
    const unsigned char *record = directory + *at_p;
    const size_t         room   = bytes - *at_p;
    size_t               name;
    size_t               extra;
    size_t               length;
    unsigned             method;

    if (room < DDP_ZIP_CENTRAL_BYTES || number(record, 4) != DDP_ZIP_CENTRAL) {
        return damaged(w, "its directory is cut short");
    }
    name   = (size_t)number(record + 28, 2);
    extra  = (size_t)number(record + 30, 2);
    length = DDP_ZIP_CENTRAL_BYTES + name + extra + (size_t)number(record + 32, 2);
    method = (unsigned)number(record + 10, 2);
    if (length > room || name == 0 || name >= sizeof(entry->name)) {
        return damaged(w, "a name is empty or too long");
    }
    memcpy(entry->name, record + DDP_ZIP_CENTRAL_BYTES, name);
    entry->name[name] = '\0';
    entry->crc        = (uint32_t)number(record + 16, 4);
    entry->packed     = number(record + 20, 4);
    entry->bytes      = number(record + 24, 4);
    entry->local      = number(record + 42, 4);
    DDP_TRY(take_zip64(w, record + DDP_ZIP_CENTRAL_BYTES + name, extra, entry));
    DDP_REQUIRE(strlen(entry->name) == name, DDP_ERR_FORMAT, "'%s': a zero in a name", w->path);
    DDP_REQUIRE((number(record + 8, 2) & ENCRYPTED) == 0 && (method == 0 || method == 8), DDP_ERR_FORMAT,
                "'%s': '%s' is encrypted or packed in another way than deflate", w->path, entry->name);
    entry->is_deflated = method == 8;
    *at_p += length;
out:
    return status;
}

/* Where its data begin is known from its local header, which must be of the same name. */
static ddp_status_t find_data(const ddp_weights_t *w, ddp_zip_entry_t *entry)
{
    ddp_status_t  status = DDP_OK;
    const size_t  length = strlen(entry->name);
    unsigned char header[DDP_ZIP_LOCAL_BYTES];
    char          name[sizeof(entry->name)];

    if (entry->local > w->bytes) {
        return damaged(w, "an entry lies behind its end");
    }
    DDP_TRY(ddp_read_at(w->path, w->fd, header, sizeof(header), entry->local));
    if (number(header, 4) != DDP_ZIP_LOCAL || number(header + 26, 2) != length) {
        return damaged(w, "an entry is not where the directory says");
    }
    DDP_TRY(ddp_read_at(w->path, w->fd, name, length, entry->local + sizeof(header)));
    entry->at = entry->local + sizeof(header) + length + number(header + 28, 2);
    if (memcmp(name, entry->name, length) != 0 || entry->at > w->bytes ||
        entry->packed > w->bytes - entry->at) {
        return damaged(w, "an entry is not where the directory says");
    }
    DDP_REQUIRE(entry->is_deflated ? entry->bytes / DDP_ZIP_RATIO <= entry->packed
                                   : entry->bytes == entry->packed,
                DDP_ERR_FORMAT, "'%s': '%s': %" PRIu64 " bytes cannot come of %" PRIu64, w->path, entry->name,
                entry->bytes, entry->packed);
out:
    return status;
}

static int by_place(const void *a, const void *b)
{
    const uint64_t x = ((const ddp_zip_entry_t *)a)->local;
    const uint64_t y = ((const ddp_zip_entry_t *)b)->local;

    return x < y ? -1 : x > y;
}

ddp_status_t ddp_zip_list(const ddp_weights_t *weights, ddp_zip_entry_t **entries_p, size_t *n_p)
{
    ddp_status_t     status    = DDP_OK;
    directory_t      directory = {0};
    unsigned char   *bytes     = NULL;
    ddp_zip_entry_t *entries   = NULL;
    size_t           at        = 0;

    DDP_TRY(find_directory(weights, &directory));
    bytes   = malloc((size_t)directory.bytes + 1);
    entries = calloc((size_t)directory.n + 1, sizeof(*entries));
    DDP_REQUIRE(bytes != NULL && entries != NULL, DDP_ERR_NO_MEMORY, "no memory for '%s'", weights->path);
    DDP_TRY(ddp_read_at(weights->path, weights->fd, bytes, (size_t)directory.bytes, directory.at));
    for (size_t i = 0; i < directory.n; i++) {
        DDP_TRY(take_entry(weights, bytes, (size_t)directory.bytes, &at, &entries[i]));
        DDP_TRY(find_data(weights, &entries[i]));
    }
    qsort(entries, (size_t)directory.n, sizeof(*entries), by_place); /* read from front to back */
    for (size_t i = 1; i < directory.n; i++) {
        DDP_REQUIRE(entries[i - 1].at + entries[i - 1].packed <= entries[i].local, DDP_ERR_FORMAT,
                    "'%s': '%s' and '%s' overlap", weights->path, entries[i - 1].name, entries[i].name);
    }
    *entries_p = entries;
    *n_p       = (size_t)directory.n;
    entries    = NULL;
out:
    free(entries);
    free(bytes);
    return status;
}
