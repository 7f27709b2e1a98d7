#include "launcher/build.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

void ddp_build_text(char text[DDP_BUILD_TEXT])
{
    const int   fd    = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    void       *bytes = MAP_FAILED;
    struct stat file  = {0};

    if (fd >= 0 && fstat(fd, &file) == 0 && file.st_size > 0) {
        bytes = mmap(NULL, (size_t)file.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    }
    if (bytes == MAP_FAILED) { /* a program that may be run, but not read */
        snprintf(text, DDP_BUILD_TEXT, "%s", DDP_VERSION);
    } else {
        snprintf(text, DDP_BUILD_TEXT, "%s (%016" PRIx64 ")", DDP_VERSION,
                 XXH3_64bits(bytes, (size_t)file.st_size));
        (void)munmap(bytes, (size_t)file.st_size);
    }
    if (fd >= 0) {
        (void)close(fd);
    }
}
