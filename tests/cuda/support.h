/**
 * @file A cpu device and a CUDA device side by side: an operation runs on both, and the results are compared.
 */
#ifndef DDP_TESTS_CUDA_SUPPORT_H_
#define DDP_TESTS_CUDA_SUPPORT_H_

#include <stdbool.h>

#include "kernels/device.h"
#include "kernels/ops.h"

#define SUPPORT_BUFFERS 64
/** Bytes behind each buffer of the CUDA device that nothing may write to. */
#define SUPPORT_GUARD 64

typedef struct support_buffer {
    void  *memory; /* owned, of the device */
    size_t bytes;
} support_buffer_t;

typedef struct support {
    ddp_device_t    *cpu, *cuda;
    ddp_stream_t    *on_cpu, *on_cuda;
    support_buffer_t buffers[SUPPORT_BUFFERS];
    size_t           n_buffers;
} support_t;

/** Every function fails the test where something is not as it should be. */
void support_open(support_t *s);
/** Frees the buffers, after a look at what lies behind them. */
void support_close(support_t *s);
/** A buffer of the CUDA device; `host` NULL: every byte 0xAB. Freed by support_close(). */
void *support_upload(support_t *s, const void *host, size_t bytes);
/** After all work of the stream. */
void support_download(support_t *s, void *host, const void *device, size_t bytes);

/** Numbers in [-1, 1) that are the same each time. */
void support_fill(float *x, size_t count, uint64_t seed);
/** |a - b| <= limit * (largest |b|): whether it holds; where one of them is no number it does not. */
bool support_is_near(float a, float b, double limit, double largest);
/** It holds for each. @param [in] what  for the failure's line */
void support_assert_near(const float *a, const float *b, size_t count, double limit, const char *what);
void support_assert_same(const void *a, const void *b, size_t bytes, const char *what);

#endif
