/** @file libFuzzer's entry, and its input as a file in memory. */
#ifndef DDP_TESTS_FUZZ_FILE_H_
#define DDP_TESTS_FUZZ_FILE_H_

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/** What each program defines. @return 0 */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/** @param [out] path  [64]. @return its descriptor, to be closed */
static inline int fuzz_file(const uint8_t *data, size_t size, char *path)
{
    const int fd = memfd_create("fuzz", MFD_CLOEXEC);

    if (fd < 0 || write(fd, data, size) != (ssize_t)size) {
        abort();
    }
    snprintf(path, 64, "/proc/self/fd/%d", fd);
    return fd;
}

#endif
