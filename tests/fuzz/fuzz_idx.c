/* IDX files, gzip or not, in both roles. */
#include <string.h>

#include "io/idx_internal.h"
#include "tests/fuzz/fuzz_file.h"

#define MAX_READ 4096

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static unsigned char pixels[MAX_READ];
    static int32_t       labels[MAX_READ];
    ddp_idx_t            idx;
    char                 path[64];
    const int            fd = fuzz_file(data, size, path);

    memset(&idx, 0, sizeof(idx));
    if (ddp_idx_open(path, DDP_IDX_IMAGES, &idx) == DDP_OK) {
        const size_t n = idx.item_bytes < MAX_READ ? idx.item_bytes : MAX_READ;

        if (ddp_idx_read(&idx, pixels, n) == DDP_OK && ddp_idx_finish(&idx) == DDP_OK && idx.items == 0) {
            abort(); /* read out of nothing */
        }
        ddp_idx_close(&idx);
    }
    memset(&idx, 0, sizeof(idx));
    if (ddp_idx_open(path, DDP_IDX_LABELS, &idx) == DDP_OK) {
        const size_t n = idx.items < MAX_READ ? idx.items : MAX_READ;

        if (ddp_idx_read_labels(&idx, n, 10, labels, NULL) == DDP_OK) {
            for (size_t i = 0; i < n; i++) {
                if (labels[i] < 0 || labels[i] >= 10) {
                    abort();
                }
            }
        }
        ddp_idx_close(&idx);
    }
    (void)close(fd);
    return 0;
}
