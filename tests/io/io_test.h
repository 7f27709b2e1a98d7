/** @file Files that tests of io make: a temporary folder, IDX files whole or broken, gzip or not. */
#ifndef DDP_IO_TEST_H_
#define DDP_IO_TEST_H_

#include <ftw.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <zlib.h>

#include "tests/support/ddp_test.h"

#define IO_TEST_PATH 512

/** Bytes of a file in the making. */
typedef struct io_bytes {
    unsigned char data[4096];
    size_t        n;
} io_bytes_t;

static inline int io_test_remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static inline void io_test_remove(const char *folder)
{
    ck_assert_int_eq(nftw(folder, io_test_remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}

/** Make a folder in $TMPDIR or /tmp; `folder` is [IO_TEST_PATH]. */
static inline void io_test_make(char *folder)
{
    const char *top = getenv("TMPDIR");

    snprintf(folder, IO_TEST_PATH, "%s/ddp-io-XXXXXX", top != NULL ? top : "/tmp");
    ck_assert_ptr_nonnull(mkdtemp(folder));
}

static inline void io_test_write(const char *folder, const char *name, const void *data, size_t n)
{
    char  path[2 * IO_TEST_PATH];
    FILE *file;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    file = fopen(path, "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(data, 1, n, file), n);
    ck_assert_int_eq(fclose(file), 0);
}

static inline void io_test_delete(const char *folder, const char *name)
{
    char path[2 * IO_TEST_PATH];

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    ck_assert_int_eq(unlink(path), 0);
}

/** One gzip member with `from`'s bytes, appended to `to`. */
static inline void io_test_gzip(const io_bytes_t *from, io_bytes_t *to)
{
    z_stream stream = {.next_in = (Bytef *)from->data, .avail_in = (uInt)from->n};

    ck_assert_int_eq(deflateInit2(&stream, 9, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    stream.next_out  = to->data + to->n;
    stream.avail_out = (uInt)(sizeof(to->data) - to->n);
    ck_assert_int_eq(deflate(&stream, Z_FINISH), Z_STREAM_END);
    to->n += stream.total_out;
    ck_assert_int_eq(deflateEnd(&stream), Z_OK);
}

/** An IDX header. */
static inline void io_test_header(io_bytes_t *bytes, int type, int ndim, const uint32_t *dims)
{
    bytes->n                = 0;
    bytes->data[bytes->n++] = 0;
    bytes->data[bytes->n++] = 0;
    bytes->data[bytes->n++] = (unsigned char)type;
    bytes->data[bytes->n++] = (unsigned char)ndim;
    for (int d = 0; d < ndim; d++) {
        for (int shift = 24; shift >= 0; shift -= 8) {
            bytes->data[bytes->n++] = (unsigned char)(dims[d] >> shift);
        }
    }
}

/** Images of uint8 whose byte i is (7 i + 3) mod 256. */
static inline void io_test_images(io_bytes_t *bytes, int ndim, const uint32_t *dims)
{
    size_t total = 1;

    io_test_header(bytes, 0x08, ndim, dims);
    for (int d = 0; d < ndim; d++) {
        total *= dims[d];
    }
    for (size_t i = 0; i < total; i++) {
        bytes->data[bytes->n++] = (unsigned char)(7 * i + 3);
    }
}

static inline void io_test_labels(io_bytes_t *bytes, uint32_t n, const unsigned char *labels)
{
    io_test_header(bytes, 0x08, 1, &n);
    memcpy(bytes->data + bytes->n, labels, n);
    bytes->n += n;
}

#endif
