/* The user block and the checks before HDF5 sees a file. */
#include <string.h>

#include "io/checkpoint_format_internal.h"
#include "tests/fuzz/fuzz_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char                    block[DDP_CHECKPOINT_HEADER_BYTES] = "";
    char                    again[DDP_CHECKPOINT_HEADER_BYTES];
    char                    path[64];
    ddp_checkpoint_header_t header;
    uint64_t                step;
    int                     fd;

    memcpy(block, data, size < sizeof(block) ? size : sizeof(block));
    if (ddp_checkpoint_header_read("fuzz", block, &header) == DDP_OK) {
        ddp_checkpoint_header_write(&header, again);
        if (memcmp(block, again, sizeof(block)) != 0) {
            abort(); /* two texts for one header */
        }
    }
    fd = fuzz_file(data, size, path);
    if (ddp_checkpoint_verify(path, &step) == DDP_OK && size < sizeof(block)) {
        abort();
    }
    (void)close(fd);
    return 0;
}
