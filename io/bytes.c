#include "io/bytes_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <zlib.h>

#include "base/error.h"
#include "base/progressed.h"
#include "io/file_internal.h"

#define INPUT_BYTES   ((size_t)256 << 10)
#define INFLATE_LIMIT ((size_t)1 << 30) /* zlib counts in unsigned int */

struct ddp_bytes {
    char            *path; /* owned */
    int              fd;
    ddp_bytes_info_t info;
    uint64_t         consumed; /* stored bytes fetched from the file */
    bool             has_ended, is_cut;
    bool             has_stream;
    z_stream         stream;
    unsigned char    input[INPUT_BYTES]; /* gzip only */
};

/* read(2) until `n` bytes or the end of the file */
static ddp_status_t read_stored(ddp_bytes_t *bytes, void *data, size_t n, size_t *got_p)
{
    size_t got = 0;

    while (got < n) {
        ssize_t step =
            read(bytes->fd, (char *)data + got, n - got < DDP_READ_PIECE ? n - got : DDP_READ_PIECE);

        if (step < 0 && errno == EINTR) {
            continue;
        }
        if (step < 0) {
            return ddp_fail_path(bytes->path, errno, "");
        }
        if (step == 0) {
            break;
        }
        got += (size_t)step;
        ddp_progressed();
    }
    bytes->consumed += got;
    *got_p = got;
    return DDP_OK;
}

static ddp_status_t refill(ddp_bytes_t *bytes)
{
    ddp_status_t status = DDP_OK;
    size_t       got    = 0;

    if (bytes->stream.avail_in > 0) {
        return DDP_OK;
    }
    DDP_TRY(read_stored(bytes, bytes->input, INPUT_BYTES, &got));
    bytes->stream.next_in  = bytes->input;
    bytes->stream.avail_in = (uInt)got;
out:
    return status;
}

/* Offset in the file of the next byte that zlib will read. */
static uint64_t stored_offset(const ddp_bytes_t *bytes)
{
    return bytes->consumed - bytes->stream.avail_in;
}

/* A gzip file may be several members, one behind the other; anything else behind one is refused, where gunzip
 * would drop it with a warning. */
static ddp_status_t next_member(ddp_bytes_t *bytes)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(refill(bytes));
    if (bytes->stream.avail_in == 0) {
        bytes->has_ended = true;
        goto out;
    }
    DDP_REQUIRE(
        bytes->stream.next_in[0] == 0x1f, DDP_ERR_FORMAT,
        "'%s': offset %llu: expected the end of the file, found %llu bytes left over behind the gzip data",
        bytes->path, (unsigned long long)stored_offset(bytes),
        (unsigned long long)(bytes->info.file_bytes - stored_offset(bytes)));
    DDP_REQUIRE(inflateReset(&bytes->stream) == Z_OK, DDP_ERR_NO_MEMORY, "'%s': zlib cannot be reset",
                bytes->path);
out:
    return status;
}

static ddp_status_t read_gzip(ddp_bytes_t *bytes, void *data, size_t n, size_t *got_p)
{
    ddp_status_t status = DDP_OK;
    size_t       got    = 0;

    while (got < n && !bytes->has_ended) {
        size_t want = n - got < INFLATE_LIMIT ? n - got : INFLATE_LIMIT;
        int    code;

        DDP_TRY(refill(bytes));
        if (bytes->stream.avail_in == 0) {
            bytes->has_ended = true;
            bytes->is_cut    = true;
            break;
        }
        bytes->stream.next_out  = (Bytef *)data + got;
        bytes->stream.avail_out = (uInt)want;
        code                    = inflate(&bytes->stream, Z_NO_FLUSH);
        got += want - bytes->stream.avail_out;
        DDP_REQUIRE(code == Z_OK || code == Z_STREAM_END || code == Z_BUF_ERROR, DDP_ERR_FORMAT,
                    "'%s': offset %llu: damaged gzip data: %s", bytes->path,
                    (unsigned long long)stored_offset(bytes),
                    bytes->stream.msg != NULL ? bytes->stream.msg : zError(code));
        if (code == Z_STREAM_END) {
            DDP_TRY(next_member(bytes));
        }
    }
    *got_p = got;
out:
    return status;
}

ddp_status_t ddp_bytes_open(const char *path, ddp_bytes_t **bytes_p)
{
    ddp_status_t  status = DDP_OK;
    ddp_bytes_t  *bytes  = calloc(1, sizeof(*bytes));
    unsigned char magic[2];
    struct stat   st;

    DDP_REQUIRE(bytes != NULL, DDP_ERR_NO_MEMORY, "'%s': no memory to read it", path);
    bytes->fd   = -1;
    bytes->path = strdup(path);
    DDP_REQUIRE(bytes->path != NULL, DDP_ERR_NO_MEMORY, "'%s': no memory to read it", path);
    bytes->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe without a writer must not block */
    if (bytes->fd < 0 || fstat(bytes->fd, &st) != 0) {
        DDP_TRY(ddp_fail_path(path, errno, ""));
    }
    DDP_REQUIRE(S_ISREG(st.st_mode), DDP_ERR_IO, "'%s': %s, not a regular file", path,
                S_ISDIR(st.st_mode) ? "a folder" : "a device or pipe");
    bytes->info.file_bytes = (uint64_t)st.st_size;
    bytes->info.mtime_ns   = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
    bytes->info.is_gzip =
        pread(bytes->fd, magic, sizeof(magic), 0) == 2 && magic[0] == 0x1f && magic[1] == 0x8b;
    if (bytes->info.is_gzip) {
        DDP_REQUIRE(inflateInit2(&bytes->stream, MAX_WBITS + 16) == Z_OK, DDP_ERR_NO_MEMORY,
                    "'%s': no memory for zlib", path);
        bytes->has_stream = true;
    }
    *bytes_p = bytes;
    bytes    = NULL;
out:
    ddp_bytes_close(&bytes);
    return status;
}

void ddp_bytes_close(ddp_bytes_t **bytes_p)
{
    ddp_bytes_t *bytes = *bytes_p;

    if (bytes == NULL) {
        return;
    }
    if (bytes->has_stream) {
        (void)inflateEnd(&bytes->stream);
    }
    if (bytes->fd >= 0) {
        (void)close(bytes->fd); /* was only read */
    }
    free(bytes->path);
    free(bytes);
    *bytes_p = NULL;
}

const char *ddp_bytes_path(const ddp_bytes_t *bytes)
{
    return bytes->path;
}

const ddp_bytes_info_t *ddp_bytes_info(const ddp_bytes_t *bytes)
{
    return &bytes->info;
}

ddp_status_t ddp_bytes_read(ddp_bytes_t *bytes, void *data, size_t n, size_t *got_p)
{
    return bytes->info.is_gzip ? read_gzip(bytes, data, n, got_p) : read_stored(bytes, data, n, got_p);
}

bool ddp_bytes_is_cut(const ddp_bytes_t *bytes)
{
    return bytes->is_cut;
}
