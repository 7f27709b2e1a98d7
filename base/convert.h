/** @file Checked integer conversion, checked products, the one function that cuts n samples into parts, and
 * the order of numbers. */
#ifndef DDP_CONVERT_H_
#define DDP_CONVERT_H_

#include <stddef.h>

#include "base/export.h"
#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/** `value` as an int (for MPI counts). @return DDP_ERR_INVALID_ARG above INT_MAX, with `what` in the line. */
DDP_API ddp_status_t ddp_to_int(size_t value, const char *what, int *int_p) DDP_NODISCARD;

/** a * b. @return DDP_ERR_INVALID_ARG on overflow, with `what` in the line. */
DDP_API ddp_status_t ddp_mul_size(size_t a, size_t b, const char *what, size_t *product_p) DDP_NODISCARD;

/**
 * Part `k` of `n` items cut into `parts` contiguous parts whose sizes differ by at most 1, larger first.
 *
 * Pure function; reducer, sampler, evaluation and DataParallel all cut with it. Part k of 10 in 4: sizes 3,
 * 3, 2, 2. With n < parts the last parts are empty.
 * @param [in]  parts    > 0
 * @param [in]  k        < parts
 * @param [out] first_p  index of the first item of the part
 * @param [out] count_p  number of items
 */
static inline void ddp_partition(size_t n, size_t parts, size_t k, size_t *first_p, size_t *count_p)
{
    const size_t base  = n / parts;
    const size_t extra = n % parts;

    *first_p = k * base + (k < extra ? k : extra);
    *count_p = base + (k < extra ? 1 : 0);
}

/** Ascending order of doubles, for qsort(). */
static inline int ddp_ascending(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;

    return (x > y) - (x < y);
}

#ifdef __cplusplus
}
#endif

#endif
