#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "kernels/cuda.h"
#include "kernels/cuda/cudnn_table.h"

bool ddp_cuda_cudnn(char text[DDP_CUDA_TEXT_SIZE])
{
    ddp_cudnn_table_t table;
    size_t            version;

    if (ddp_cudnn_table_open(&table) != DDP_OK) {
        (void)snprintf(text, DDP_CUDA_TEXT_SIZE, "%.*s", DDP_CUDA_TEXT_SIZE - 1, ddp_error_line());
        ddp_error_clear();
        return false;
    }
    version = table.version();
    (void)snprintf(text, DDP_CUDA_TEXT_SIZE, "%zu.%zu.%zu", version / 10000, version / 100 % 100,
                   version % 100);
    return true;
}
