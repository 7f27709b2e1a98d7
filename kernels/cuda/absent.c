/* A build without CUDA: what kernels/cuda/ defines in one with it. */
#include "base/error.h"
#include "kernels/backend_internal.h"
#include "kernels/cuda.h"
#include "kernels/ranges.h"

ddp_status_t ddp_cuda_backend(const ddp_backend_t **backend_p)
{
    *backend_p = NULL;
    return ddp_fail(DDP_ERR_UNSUPPORTED, "this ddptrain was built without CUDA (DDP_ENABLE_CUDA=ON)");
}

void ddp_cuda_probe(ddp_cuda_info_t *info)
{
    *info = (ddp_cuda_info_t){.reason = "built without CUDA"};
}

bool ddp_cuda_cudnn(char text[DDP_CUDA_TEXT_SIZE])
{
    text[0] = '\0';
    return false;
}

ddp_status_t ddp_cuda_describe(int ordinal, ddp_cuda_device_info_t *info)
{
    const ddp_backend_t *backend = NULL;

    (void)ordinal;
    (void)info;
    return ddp_cuda_backend(&backend);
}

void ddp_range_open(const char *name, int64_t number)
{
    (void)name;
    (void)number;
}

void ddp_range_close(void)
{
}
