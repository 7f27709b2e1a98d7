/**
 * @file What the tests of the stand-in's runtime share. A gate is a host function in a stream that waits
 * until the test opens it: what comes after it in the stream has not run before that.
 */
#ifndef DDP_RUNTIME_TEST_H_
#define DDP_RUNTIME_TEST_H_

#include <cuda_runtime_api.h>
#include <sched.h>
#include <stdatomic.h>

#include "tests/cusim/toy_cuda.h"
#include "tests/support/ddp_test.h"

#define assert_cuda(call) ck_assert_int_eq((call), cudaSuccess)

static inline void CUDART_CB wait_at_gate(void *is_open)
{
    while (!atomic_load((atomic_bool *)is_open)) {
        sched_yield();
    }
}

static inline cudaStream_t new_stream(void)
{
    cudaStream_t stream;

    assert_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
}

static inline float *new_floats(int count)
{
    float *memory = NULL;

    assert_cuda(cudaMalloc((void **)&memory, (size_t)count * sizeof(float)));
    return memory;
}

/* Fills device memory with one number, in the stream. */
static inline void set_floats(float *memory, int count, float value, cudaStream_t stream)
{
    for (int i = 0; i < count; i++) {
        assert_cuda(cudaMemcpyAsync(memory + i, &value, sizeof(value), cudaMemcpyHostToDevice, stream));
    }
}

/* The first number, once the stream has come so far. */
static inline float first_of(const float *memory, cudaStream_t stream)
{
    float value = 0.0F;

    assert_cuda(cudaMemcpyAsync(&value, memory, sizeof(value), cudaMemcpyDeviceToHost, stream));
    assert_cuda(cudaStreamSynchronize(stream));
    return value;
}

#endif /* DDP_RUNTIME_TEST_H_ */
