/** @file What kernel tests share: one device per instruction set, drawn numbers, buffers with guards. */
#ifndef DDP_KERNEL_TEST_H_
#define DDP_KERNEL_TEST_H_

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/device.h"
#include "tests/support/ddp_test.h"

/** Floats on either side of a guarded buffer. */
#define GUARD       64
#define GUARD_VALUE 12345.678F

typedef struct bench {
    ddp_device_t *device;
    ddp_stream_t *stream;
} bench_t;

/** A device of one set, with one stream. @return false if this processor lacks the set. */
static inline bool bench_open(bench_t *bench, ddp_isa_t isa)
{
    ddp_device_params_t params = DDP_DEVICE_PARAMS_INIT;

    if (isa > ddp_isa_detect()) {
        return false;
    }
    params.isa = isa;
    ddp_assert_ok(ddp_device_create(&params, &bench->device));
    ddp_assert_ok(ddp_stream_create(bench->device, "test", &bench->stream));
    return true;
}

static inline void bench_close(bench_t *bench)
{
    ddp_stream_destroy(&bench->stream);
    ddp_device_destroy(&bench->device);
}

/** Uniform in [-1, 1), the same on every run. */
static inline float drawn(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (float)((double)(*state >> 33) / (double)(UINT64_C(1) << 30) - 1.0);
}

/** `count` floats with guards on both sides, `shift` floats off the allocation's alignment. Free with
 * guarded_free(). */
static inline float *guarded_new(size_t count, size_t shift, uint64_t seed)
{
    float *all = malloc((count + 2 * GUARD + shift) * sizeof(float));

    ck_assert_ptr_nonnull(all);
    for (size_t i = 0; i < count + 2 * GUARD + shift; i++) {
        const bool inside = i >= GUARD + shift && i < GUARD + shift + count;

        all[i] = inside ? drawn(&seed) : GUARD_VALUE;
    }
    return all + GUARD + shift;
}

static inline bool guards_are_whole(const float *inside, size_t count, size_t shift)
{
    const float *all   = inside - GUARD - shift;
    bool         whole = true;

    for (size_t i = 0; i < GUARD; i++) {
        whole = whole && all[shift + i] == GUARD_VALUE && inside[count + i] == GUARD_VALUE;
    }
    return whole;
}

static inline void guarded_free(float *inside, size_t shift)
{
    free(inside - GUARD - shift);
}

#endif
