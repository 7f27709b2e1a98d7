/* Files of a folder, and whether they are whole: all that needs no HDF5. */
#include <dirent.h>
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
#include "io/crc32c_internal.h"
#include "io/file_internal.h"
#include "io/source_internal.h"

#define READ_BYTES ((size_t)4 << 20)

void ddp_checkpoint_name(uint64_t step, char name[DDP_CHECKPOINT_NAME_SIZE])
{
    snprintf(name, DDP_CHECKPOINT_NAME_SIZE, "ckpt-%012" PRIu64 ".h5", step);
}

/* The name that ddp_checkpoint_name() gives, and no other: what else lies in the folder is somebody else's.
 */
static bool is_name(const char *text, uint64_t *step_p)
{
    char name[DDP_CHECKPOINT_NAME_SIZE];

    if (sscanf(text, "ckpt-%19" SCNu64, step_p) != 1) {
        return false;
    }
    ddp_checkpoint_name(*step_p, name);
    return strcmp(name, text) == 0;
}

static int newest_first(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a;
    const uint64_t y = *(const uint64_t *)b;

    return x > y ? -1 : x < y;
}

static ddp_status_t append(uint64_t **steps, size_t n, uint64_t step)
{
    uint64_t *grown = *steps;

    if ((n & (n - 1)) == 0) { /* full at each power of two */
        grown = realloc(*steps, (n == 0 ? 1 : 2 * n) * sizeof(*grown));
        if (grown == NULL) {
            return ddp_fail(DDP_ERR_NO_MEMORY, "no memory for a list of checkpoints");
        }
        *steps = grown;
    }
    grown[n] = step;
    return DDP_OK;
}

ddp_status_t ddp_checkpoint_list(const char *folder, uint64_t **steps_p, size_t *n_p)
{
    ddp_status_t         status = DDP_OK;
    DIR                 *open   = opendir(folder);
    const struct dirent *entry  = NULL;
    uint64_t            *steps  = NULL;
    size_t               n      = 0;
    uint64_t             step   = 0;

    if (open == NULL && errno != ENOENT) {
        DDP_TRY(ddp_fail_path(folder, errno, ""));
    }
    while (open != NULL && (errno = 0, entry = readdir(open)) != NULL) {
        if (is_name(entry->d_name, &step)) {
            DDP_TRY(append(&steps, n, step));
            n++;
        }
    }
    DDP_REQUIRE(open == NULL || errno == 0, DDP_ERR_IO, "'%s': %s", folder, ddp_errno_text(errno));
    if (n > 0) {
        qsort(steps, n, sizeof(*steps), newest_first);
    }
    *steps_p = steps;
    *n_p     = n;
    steps    = NULL;
out:
    if (open != NULL) {
        (void)closedir(open);
    }
    free(steps);
    return status;
}

static ddp_status_t sum_file(const char *path, int fd, uint64_t end, uint32_t *crc_p)
{
    ddp_status_t status = DDP_OK;
    uint32_t     crc    = 0;
    uint8_t     *part   = malloc(READ_BYTES);

    DDP_REQUIRE(part != NULL, DDP_ERR_NO_MEMORY, "no memory to check '%s'", path);
    for (uint64_t at = DDP_CHECKPOINT_HEADER_BYTES; at < end;) {
        const size_t bytes = end - at < READ_BYTES ? (size_t)(end - at) : READ_BYTES;

        DDP_TRY(ddp_read_at(path, fd, part, bytes, at));
        crc = ddp_crc32c(crc, part, bytes);
        at += bytes;
    }
    *crc_p = crc;
out:
    free(part);
    return status;
}

static ddp_status_t verify(const char *path, int fd, uint64_t *step_p)
{
    ddp_status_t            status = DDP_OK;
    ddp_checkpoint_header_t header;
    char                    block[DDP_CHECKPOINT_HEADER_BYTES];
    struct stat             file;
    uint32_t                crc = 0;

    if (fstat(fd, &file) != 0) {
        DDP_TRY(ddp_fail_path(path, errno, ""));
    }
    DDP_REQUIRE(S_ISREG(file.st_mode) && file.st_size > DDP_CHECKPOINT_HEADER_BYTES, DDP_ERR_FORMAT,
                "'%s': not a checkpoint of ddptrain: %s", path,
                S_ISREG(file.st_mode) ? "too short" : ddp_no_file_text(file.st_mode));
    DDP_TRY(ddp_read_at(path, fd, block, sizeof(block), 0));
    DDP_TRY(ddp_checkpoint_header_read(path, block, &header));
    DDP_REQUIRE(header.version == DDP_CHECKPOINT_VERSION, DDP_ERR_FORMAT,
                "'%s': format version %u, this build reads %d", path, header.version, DDP_CHECKPOINT_VERSION);
    DDP_REQUIRE(header.bytes == (uint64_t)file.st_size, DDP_ERR_FORMAT,
                "'%s': %s: expected %" PRIu64 " bytes, found %lld", path,
                (uint64_t)file.st_size < header.bytes ? "cut short" : "extended", header.bytes,
                (long long)file.st_size);
    DDP_TRY(sum_file(path, fd, header.bytes, &crc));
    DDP_REQUIRE(crc == header.crc, DDP_ERR_FORMAT,
                "'%s': damaged: expected crc32c %08" PRIx32 ", found %08" PRIx32, path, header.crc, crc);
    if (step_p != NULL) {
        *step_p = header.step;
    }
out:
    return status;
}

ddp_status_t ddp_checkpoint_verify(const char *path, uint64_t *step_p)
{
    ddp_status_t status = DDP_OK;
    const int    fd     = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe must not be waited for */

    if (fd < 0) {
        return ddp_fail_path(path, errno, "");
    }
    status = verify(path, fd, step_p);
    (void)close(fd);
    return status;
}

ddp_status_t ddp_checkpoint_open_newest(const char *folder, ddp_checkpoint_skipped_fn_t *skipped, void *ctx,
                                        ddp_checkpoint_t **checkpoint_p)
{
    ddp_status_t      status     = DDP_OK;
    uint64_t         *steps      = NULL;
    size_t            n          = 0;
    ddp_checkpoint_t *checkpoint = NULL;
    char              name[DDP_CHECKPOINT_NAME_SIZE];
    char              path[DDP_SOURCE_PATH_SIZE];

    DDP_TRY(ddp_checkpoint_list(folder, &steps, &n));
    for (size_t i = 0; i < n && checkpoint == NULL; i++) {
        int length;

        ddp_checkpoint_name(steps[i], name);
        length = snprintf(path, sizeof(path), "%s/%s", folder, name);
        DDP_REQUIRE(length >= 0 && (size_t)length < sizeof(path), DDP_ERR_IO, "'%s': path too long", folder);
        if (ddp_checkpoint_open(path, &checkpoint) != DDP_OK && skipped != NULL) {
            skipped(ctx, path, ddp_error_line());
        }
    }
    DDP_REQUIRE(n == 0 || checkpoint != NULL, DDP_ERR_FORMAT,
                "'%s': none of its %zu checkpoints can be used; the newest: %s", folder, n, ddp_error_line());
    *checkpoint_p = checkpoint;
out:
    free(steps);
    return status;
}
