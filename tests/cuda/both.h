/** @file An array on the cpu and on the CUDA device of a support_t: operations write both, and they are
 * compared. */
#ifndef DDP_TESTS_CUDA_BOTH_H_
#define DDP_TESTS_CUDA_BOTH_H_

#include "tests/cuda/support.h"

/** Index of `at`, and of the streams of both_stream(). */
enum { ON_CPU, ON_CUDA, SIDES };

typedef struct both {
    void  *at[SIDES]; /* the cpu's is owned, both_free() */
    size_t bytes;
} both_t;

/** `count` numbers of support_fill() on both sides; seed 0: 0xAB in every byte. */
both_t both_floats(support_t *s, size_t count, uint64_t seed);
/** The same bytes on both sides. */
both_t both_bytes(support_t *s, const void *bytes, size_t count);
void   both_free(both_t *both);

static inline ddp_stream_t *both_stream(const support_t *s, int side)
{
    return side == ON_CPU ? s->on_cpu : s->on_cuda;
}

/** support_assert_near() of what the CUDA device has, and the cpu. */
void both_assert_near(support_t *s, const both_t *both, double limit, const char *what);
/** Every bit. */
void both_assert_same(support_t *s, const both_t *both, const char *what);

#endif
