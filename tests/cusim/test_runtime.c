/* Streams, events, memory and devices of the stand-in: what CUDA's documentation says of them. */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cusim/runtime_test.h"

enum { COUNT = 100, ROUNDS = 20, MB = 1 << 20 };

START_TEST(a_page_locked_source_is_read_when_the_copy_runs_a_pageable_one_at_the_call)
{
    atomic_bool  is_open  = false;
    cudaStream_t stream   = new_stream();
    float       *device   = new_floats(2);
    float       *pinned   = NULL;
    float        pageable = 1.0F;
    float        back[2];

    assert_cuda(cudaMallocHost((void **)&pinned, sizeof(float)));
    *pinned = 1.0F;
    assert_cuda(cudaLaunchHostFunc(stream, wait_at_gate, &is_open));
    assert_cuda(cudaMemcpyAsync(device, pinned, sizeof(float), cudaMemcpyHostToDevice, stream));
    assert_cuda(cudaMemcpyAsync(device + 1, &pageable, sizeof(float), cudaMemcpyHostToDevice, stream));
    *pinned  = 2.0F;
    pageable = 2.0F;
    atomic_store(&is_open, true);
    assert_cuda(cudaMemcpyAsync(back, device, sizeof(back), cudaMemcpyDeviceToHost, stream));
    ck_assert_float_eq(back[0], 2.0F); /* a pageable destination is waited for */
    ck_assert_float_eq(back[1], 1.0F);
    assert_cuda(cudaFreeHost(pinned));
    assert_cuda(cudaFree(device));
    assert_cuda(cudaStreamDestroy(stream));
}
END_TEST

START_TEST(a_stream_and_an_event_are_not_ready_until_their_work_has_run)
{
    atomic_bool  is_open = false;
    cudaStream_t stream  = new_stream();
    cudaEvent_t  begin, end;
    float        ms = -1.0F;

    assert_cuda(cudaEventCreate(&begin));
    assert_cuda(cudaEventCreate(&end));
    assert_cuda(cudaEventQuery(end)); /* never recorded: nothing to wait for */
    assert_cuda(cudaEventRecord(begin, stream));
    assert_cuda(cudaLaunchHostFunc(stream, wait_at_gate, &is_open));
    assert_cuda(cudaEventRecord(end, stream));
    ck_assert_int_eq(cudaStreamQuery(stream), cudaErrorNotReady);
    ck_assert_int_eq(cudaEventQuery(end), cudaErrorNotReady);
    assert_cuda(cudaGetLastError()); /* "not ready" is no error */
    atomic_store(&is_open, true);
    assert_cuda(cudaEventSynchronize(end));
    assert_cuda(cudaEventQuery(end));
    assert_cuda(cudaEventElapsedTime(&ms, begin, end));
    ck_assert_float_ge(ms, 0.0F);
    assert_cuda(cudaStreamSynchronize(stream));
    assert_cuda(cudaStreamQuery(stream));
    assert_cuda(cudaEventDestroy(begin));
    assert_cuda(cudaEventDestroy(end));
    assert_cuda(cudaStreamDestroy(stream));
}
END_TEST

START_TEST(a_stream_waits_for_the_record_that_was_the_last_when_it_was_told_to)
{
    atomic_bool  is_open = false;
    cudaStream_t a       = new_stream();
    cudaStream_t b       = new_stream();
    cudaStream_t c       = new_stream();
    float       *x       = new_floats(1);
    float       *y       = new_floats(1);
    cudaEvent_t  event;

    assert_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    assert_cuda(cudaStreamWaitEvent(b, event, 0)); /* never recorded: no wait */
    set_floats(y, 1, 10.0F, b);
    assert_cuda(cudaStreamSynchronize(b));
    set_floats(x, 1, 1.0F, a);
    assert_cuda(cudaEventRecord(event, a));
    assert_cuda(cudaStreamWaitEvent(b, event, 0));
    toy_axpy(y, x, 1.0F, 1, b);
    ck_assert_float_eq(first_of(y, b), 11.0F);
    /* The next record comes behind a gate; what waits for it is not ready, whatever runs first. */
    assert_cuda(cudaLaunchHostFunc(a, wait_at_gate, &is_open));
    set_floats(x, 1, 2.0F, a);
    assert_cuda(cudaEventRecord(event, a));
    assert_cuda(cudaStreamWaitEvent(c, event, 0));
    toy_axpy(y, x, 1.0F, 1, c);
    ck_assert_int_eq(cudaStreamQuery(c), cudaErrorNotReady);
    atomic_store(&is_open, true);
    ck_assert_float_eq(first_of(y, c), 13.0F);
    assert_cuda(cudaEventDestroy(event));
    assert_cuda(cudaFree(x));
    assert_cuda(cudaFree(y));
    assert_cuda(cudaStreamDestroy(a));
    assert_cuda(cudaStreamDestroy(b));
    assert_cuda(cudaStreamDestroy(c));
}
END_TEST

START_TEST(the_legacy_stream_is_in_order_with_blocking_streams_only)
{
    atomic_bool  is_open = false;
    cudaStream_t blocking, apart = new_stream();
    float       *x = new_floats(1);
    float       *y = new_floats(1);

    assert_cuda(cudaStreamCreate(&blocking));
    set_floats(x, 1, 1.0F, blocking);
    set_floats(y, 1, 1.0F, apart);
    assert_cuda(cudaStreamSynchronize(apart));
    toy_axpy(x, x, 1.0F, 1, NULL); /* after what is in `blocking` */
    ck_assert_float_eq(first_of(x, NULL), 2.0F);
    assert_cuda(cudaLaunchHostFunc(blocking, wait_at_gate, &is_open));
    toy_axpy(x, y, 1.0F, 1, NULL);
    ck_assert_int_eq(cudaStreamQuery(NULL), cudaErrorNotReady);
    assert_cuda(cudaStreamQuery(apart));
    atomic_store(&is_open, true);
    ck_assert_float_eq(first_of(x, NULL), 3.0F);
    assert_cuda(cudaFree(x));
    assert_cuda(cudaFree(y));
    assert_cuda(cudaStreamDestroy(blocking));
    assert_cuda(cudaStreamDestroy(apart));
}
END_TEST

START_TEST(streams_have_priorities_in_the_range_of_the_device)
{
    int          least, greatest, priority;
    cudaStream_t stream;

    assert_cuda(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    ck_assert_int_lt(greatest, least); /* a smaller number goes first */
    assert_cuda(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest));
    assert_cuda(cudaStreamGetPriority(stream, &priority));
    ck_assert_int_eq(priority, greatest);
    assert_cuda(cudaStreamDestroy(stream));
    ck_assert_int_eq(cudaStreamDestroy(stream), cudaErrorInvalidResourceHandle);
    ck_assert_int_eq(cudaGetLastError(), cudaErrorInvalidResourceHandle);
}
END_TEST

START_TEST(memory_is_new_and_bounded_and_comes_back)
{
    size_t       before, after, total;
    cudaStream_t stream = new_stream();
    float       *x      = new_floats(COUNT);
    void        *too_much;

    ck_assert(isnan(first_of(x, stream)));
    assert_cuda(cudaMemGetInfo(&before, &total));
    ck_assert_uint_eq(total, 64 * MB); /* CUSIM_MEMORY_MB */
    ck_assert_int_eq(cudaMalloc(&too_much, 64 * MB), cudaErrorMemoryAllocation);
    ck_assert_int_eq(cudaGetLastError(), cudaErrorMemoryAllocation);
    assert_cuda(cudaMalloc(&too_much, 60 * MB));
    assert_cuda(cudaMemGetInfo(&after, &total));
    ck_assert_uint_eq(after, before - 60 * MB);
    assert_cuda(cudaFree(too_much));
    assert_cuda(cudaMemGetInfo(&after, &total));
    ck_assert_uint_eq(after, before);
    ck_assert_int_eq(cudaFree(x + 1), cudaErrorInvalidValue);
    assert_cuda(cudaFree(x));
    ck_assert_int_eq(cudaFree(x), cudaErrorInvalidValue);
    ck_assert_int_eq(cudaGetLastError(), cudaErrorInvalidValue);
    assert_cuda(cudaStreamDestroy(stream));
}
END_TEST

START_TEST(memory_of_the_user_is_page_locked_while_it_is_registered)
{
    struct cudaPointerAttributes attributes;
    float                       *host = calloc(COUNT, sizeof(float));

    ck_assert_ptr_nonnull(host);
    assert_cuda(cudaPointerGetAttributes(&attributes, host));
    ck_assert_int_eq(attributes.type, cudaMemoryTypeUnregistered);
    assert_cuda(cudaHostRegister(host, COUNT * sizeof(float), cudaHostRegisterDefault));
    assert_cuda(cudaPointerGetAttributes(&attributes, host + 3));
    ck_assert_int_eq(attributes.type, cudaMemoryTypeHost);
    ck_assert_int_eq(cudaHostRegister(host, sizeof(float), 0), cudaErrorHostMemoryAlreadyRegistered);
    ck_assert_int_eq(cudaFreeHost(host), cudaErrorInvalidValue);
    assert_cuda(cudaHostUnregister(host));
    ck_assert_int_eq(cudaHostUnregister(host), cudaErrorHostMemoryNotRegistered);
    ck_assert_int_eq(cudaGetLastError(), cudaErrorHostMemoryNotRegistered);
    free(host);
}
END_TEST

START_TEST(devices_differ_and_reach_each_other_only_as_peers)
{
    struct cudaDeviceProp first, second;
    int                   count, can;
    float                *here   = new_floats(1), *there;
    cudaStream_t          stream = new_stream(), other;

    assert_cuda(cudaGetDeviceCount(&count));
    ck_assert_int_eq(count, 2); /* CUSIM_DEVICES */
    ck_assert_int_eq(cudaSetDevice(2), cudaErrorInvalidDevice);
    assert_cuda(cudaGetDeviceProperties(&first, 0));
    assert_cuda(cudaGetDeviceProperties(&second, 1));
    ck_assert_int_ne(memcmp(first.uuid.bytes, second.uuid.bytes, sizeof(first.uuid.bytes)), 0);
    ck_assert_int_ne(first.pciBusID, second.pciBusID);
    assert_cuda(cudaSetDevice(1));
    there = new_floats(1);
    other = new_stream();
    set_floats(there, 1, 4.0F, other);
    assert_cuda(cudaStreamSynchronize(other));
    (void)cudaGetLastError();
    toy_axpy(there, there, 1.0F, 1, stream); /* a stream of device 0 */
    ck_assert_int_eq(cudaGetLastError(), cudaErrorInvalidResourceHandle);
    toy_axpy(here, there, 1.0F, 1, other); /* memory of device 0 */
    ck_assert_int_eq(cudaGetLastError(), cudaErrorIllegalAddress);
    assert_cuda(cudaSetDevice(0));
    assert_cuda(cudaMemcpyPeerAsync(here, 0, there, 1, sizeof(float), stream));
    ck_assert_float_eq(first_of(here, stream), 4.0F);
    assert_cuda(cudaSetDevice(1));
    assert_cuda(cudaDeviceCanAccessPeer(&can, 1, 0));
    ck_assert_int_eq(can, 1);
    assert_cuda(cudaDeviceEnablePeerAccess(0, 0));
    ck_assert_int_eq(cudaDeviceEnablePeerAccess(0, 0), cudaErrorPeerAccessAlreadyEnabled);
    ck_assert_int_eq(cudaGetLastError(), cudaErrorPeerAccessAlreadyEnabled);
    toy_axpy(here, there, 1.0F, 1, other);
    ck_assert_float_eq(first_of(here, other), 8.0F);
    assert_cuda(cudaFree(there));
    assert_cuda(cudaStreamDestroy(other));
    assert_cuda(cudaSetDevice(0));
    assert_cuda(cudaFree(here));
    assert_cuda(cudaStreamDestroy(stream));
}
END_TEST

typedef struct worker {
    int   device;
    float result;
} worker_t;

static void *train(void *worker_p)
{
    worker_t    *worker = worker_p;
    cudaStream_t compute, copies;
    cudaEvent_t  done;
    float       *x, *y;

    assert_cuda(cudaSetDevice(worker->device));
    compute = new_stream();
    copies  = new_stream();
    x       = new_floats(COUNT);
    y       = new_floats(COUNT);
    assert_cuda(cudaEventCreateWithFlags(&done, cudaEventDisableTiming));
    set_floats(x, COUNT, (float)(worker->device + 1), compute);
    set_floats(y, COUNT, 0.0F, compute);
    for (int i = 0; i < ROUNDS; i++) {
        toy_axpy(y, x, 1.0F, COUNT, compute);
        assert_cuda(cudaEventRecord(done, compute));
        assert_cuda(cudaStreamWaitEvent(copies, done, 0));
        worker->result = first_of(y, copies);
    }
    assert_cuda(cudaFree(x));
    assert_cuda(cudaFree(y));
    assert_cuda(cudaStreamDestroy(compute));
    assert_cuda(cudaStreamDestroy(copies));
    return NULL;
}

START_TEST(threads_use_devices_of_their_own_at_the_same_time)
{
    worker_t  workers[2] = {{.device = 0}, {.device = 1}};
    pthread_t threads[2];

    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(pthread_create(&threads[i], NULL, train, &workers[i]), 0);
    }
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
        ck_assert_float_eq(workers[i].result, (float)(ROUNDS * (i + 1)));
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("runtime");
    TCase *tcase = tcase_create("core");

    setenv("CUSIM_DEVICES", "2", 1);
    setenv("CUSIM_MEMORY_MB", "64", 1);
    tcase_add_test(tcase, a_page_locked_source_is_read_when_the_copy_runs_a_pageable_one_at_the_call);
    tcase_add_test(tcase, a_stream_and_an_event_are_not_ready_until_their_work_has_run);
    tcase_add_test(tcase, a_stream_waits_for_the_record_that_was_the_last_when_it_was_told_to);
    tcase_add_test(tcase, the_legacy_stream_is_in_order_with_blocking_streams_only);
    tcase_add_test(tcase, streams_have_priorities_in_the_range_of_the_device);
    tcase_add_test(tcase, memory_is_new_and_bounded_and_comes_back);
    tcase_add_test(tcase, memory_of_the_user_is_page_locked_while_it_is_registered);
    tcase_add_test(tcase, devices_differ_and_reach_each_other_only_as_peers);
    tcase_add_test(tcase, threads_use_devices_of_their_own_at_the_same_time);
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
