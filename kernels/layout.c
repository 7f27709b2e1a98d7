#include "kernels/layout.h"

#include <stdint.h>
#include <string.h>

#include "base/convert.h"
#include "base/error.h"

static ddp_status_t count_elements(ddp_tensor_desc_t *tensor)
{
    ddp_status_t status = DDP_OK;
    size_t       count  = 1;

    DDP_REQUIRE(tensor->name != NULL, DDP_ERR_INVALID_ARG, "a parameter has no name");
    DDP_REQUIRE(tensor->ndim >= 1 && tensor->ndim <= DDP_MAX_DIMS, DDP_ERR_INVALID_ARG,
                "parameter '%s': %zu dimensions; 1 to %d are possible", tensor->name, tensor->ndim,
                DDP_MAX_DIMS);
    DDP_REQUIRE(tensor->role == DDP_TENSOR_PARAMETER || tensor->role == DDP_TENSOR_AVERAGE,
                DDP_ERR_INVALID_ARG, "tensor '%s': role %d is not known", tensor->name, (int)tensor->role);
    DDP_REQUIRE(tensor->momentum >= 0.0F && tensor->momentum <= 1.0F, DDP_ERR_INVALID_ARG,
                "tensor '%s': momentum %g is not in [0, 1]", tensor->name, (double)tensor->momentum);
    for (size_t i = 0; i < tensor->ndim; i++) {
        DDP_REQUIRE(tensor->shape[i] > 0, DDP_ERR_INVALID_ARG, "parameter '%s': dimension %zu is 0",
                    tensor->name, i);
        DDP_TRY(ddp_mul_size(count, tensor->shape[i], tensor->name, &count));
    }
    DDP_REQUIRE(count <= PTRDIFF_MAX / sizeof(float) - DDP_BLOCK, DDP_ERR_INVALID_ARG,
                "parameter '%s': %zu elements do not fit in memory", tensor->name, count);
    tensor->count = count;
out:
    return status;
}

ddp_status_t ddp_layout_make(ddp_tensor_desc_t *tensors, size_t n, size_t *total_p)
{
    ddp_status_t status = DDP_OK;
    size_t       total  = 0;

    DDP_REQUIRE(n > 0, DDP_ERR_INVALID_ARG, "a model needs at least one parameter");
    for (size_t i = n; i-- > 0;) {
        DDP_TRY(count_elements(&tensors[i]));
        for (size_t j = i + 1; j < n; j++) {
            DDP_REQUIRE(strcmp(tensors[i].name, tensors[j].name) != 0, DDP_ERR_INVALID_ARG,
                        "parameter '%s' is there twice", tensors[i].name);
        }
        tensors[i].offset = total;
        total += ddp_block_round(tensors[i].count);
        DDP_REQUIRE(total <= PTRDIFF_MAX / sizeof(float), DDP_ERR_INVALID_ARG,
                    "parameters up to '%s': %zu elements do not fit in memory", tensors[i].name, total);
    }
    *total_p = total;
out:
    return status;
}
