/* In a build for GPUs: a test of the device is a skip where there is none. */
#include <stdio.h>
#include <stdlib.h>

#include "kernels/cuda.h"
#include "tests/support/ddp_test.h"

static __attribute__((constructor)) void skip_without_device(void)
{
    const char     *required = getenv("DDP_TEST_REQUIRE_GPU");
    ddp_cuda_info_t info;

    ddp_cuda_probe(&info);
    if (info.devices == 0 && (required == NULL || *required != '1')) {
        printf("no GPU: %s\n", info.reason);
        exit(DDP_TEST_SKIP);
    }
}
