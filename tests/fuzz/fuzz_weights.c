/* safetensors and npz: what opens is read and adopted. HDF5 is for another
 * process, which is no matter of this program. */
#include <string.h>

#include "base/error.h"
#include "io/weights.h"
#include "tests/fuzz/fuzz_file.h"

#define MAX_READ 4096

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static float               values[MAX_READ];
    const ddp_weights_params_t params  = DDP_WEIGHTS_PARAMS_INIT; /* no reader */
    ddp_weights_t             *weights = NULL;
    char                       path[64];
    int                        fd;

    if (memmem(data, size, "HDF\r\n", 5) != NULL || size < 9) {
        return 0;
    }
    fd = fuzz_file(data, size, path);
    if (ddp_weights_open(path, &params, &weights) == DDP_OK) {
        for (size_t i = 0; i < ddp_weights_count(weights); i++) {
            const ddp_weights_tensor_t *tensor = &ddp_weights_tensors(weights)[i];
            const size_t                n = tensor->desc.count < MAX_READ ? tensor->desc.count : MAX_READ;

            if (ddp_weights_read(weights, i, 0, n, values) != DDP_OK) {
                break;
            }
        }
        ddp_ignore(ddp_weights_adopt(weights, false, NULL, NULL), "refused or not, no harm may come of it");
    }
    ddp_weights_close(&weights);
    (void)close(fd);
    return 0;
}
