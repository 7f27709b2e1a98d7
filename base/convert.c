#include "base/convert.h"

#include <limits.h>

#include "base/error.h"

ddp_status_t ddp_to_int(size_t value, const char *what, int *int_p)
{
    if (value > INT_MAX) {
        return ddp_fail(DDP_ERR_INVALID_ARG, "%s: %zu is more than %d", what, value, INT_MAX);
    }
    *int_p = (int)value;
    return DDP_OK;
}

ddp_status_t ddp_mul_size(size_t a, size_t b, const char *what, size_t *product_p)
{
    size_t product;

    if (__builtin_mul_overflow(a, b, &product)) {
        return ddp_fail(DDP_ERR_INVALID_ARG, "%s: %zu times %zu does not fit in memory", what, a, b);
    }
    *product_p = product;
    return DDP_OK;
}
