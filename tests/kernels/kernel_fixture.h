/**
 * @file What the kernel tests share: a stream for each instruction set of this machine, buffers with guard
 * values on both sides at addresses that are aligned to a float only, and repeatable random values.
 */
#ifndef DDP_KERNEL_FIXTURE_H_
#define DDP_KERNEL_FIXTURE_H_

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/ops.h"
#include "tests/support/ddp_test.h"

/** Number of instruction sets this processor has: loop tests run with _i = 0 .. fixture_isas() - 1. */
int fixture_isas(void);
/** A stream of a device of instruction set `isa`; asserts that it can be had. */
ddp_stream_t *fixture_open(int isa);
/** Wait for the stream and destroy it and its device; asserts that nothing failed. */
void fixture_close(ddp_stream_t *stream);

/** `count` floats between guards, each a NaN at first: reading what was not written is seen. */
float *fixture_new(size_t count);
/** `count` floats uniform in [-scale, scale), the same for the same seed. */
float *fixture_random(size_t count, uint32_t seed, float scale);
/** Zeroed bytes between guards. */
uint8_t *fixture_bytes(size_t count);
/** Assert that the guards are as they were, and free. Accepts NULL. */
void fixture_free(void *data);

/** Next random number in [0, 1) of a repeatable sequence. */
double fixture_next(uint64_t *state);

/** Largest |got - wanted| / (|wanted| + floor); infinite where one is a NaN and the other is not. */
double fixture_error(const float *got, const double *wanted, size_t count, double floor);

#endif
