#include "base/file_open.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

ddp_status_t ddp_file_open(const char *path, FILE **file_p)
{
    ddp_status_t status = DDP_OK;
    const int    fd     = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    FILE        *file   = NULL;
    struct stat  st;

    DDP_REQUIRE(fd >= 0 && fstat(fd, &st) == 0, DDP_ERR_IO, "'%s': %s", path, ddp_errno_text(errno));
    DDP_REQUIRE(S_ISREG(st.st_mode), DDP_ERR_IO, "'%s': %s, not a regular file", path,
                S_ISDIR(st.st_mode) ? "a folder" : "a device or pipe");
    file = fdopen(fd, "rb");
    DDP_REQUIRE(file != NULL, DDP_ERR_IO, "'%s': %s", path, ddp_errno_text(errno));
    *file_p = file;
out:
    if (file == NULL && fd >= 0) {
        (void)close(fd);
    }
    return status;
}
