#include <cuda_runtime_api.h>
#include <stdlib.h>

#include "tests/cusim/toy_cuda.h"
#include "tests/support/ddp_test.h"

#define assert_cuda(call) ck_assert_int_eq((call), cudaSuccess)

enum { COUNT = 1000, ROWS = 5, WIDTH = 77 };

static cudaStream_t stream;

/* Device memory with the values first, first + 1, ... */
static float *numbers(int count, float first)
{
    float *host   = malloc((size_t)count * sizeof(float));
    float *device = NULL;

    ck_assert_ptr_nonnull(host);
    for (int i = 0; i < count; i++) {
        host[i] = first + (float)i;
    }
    assert_cuda(cudaMalloc((void **)&device, (size_t)count * sizeof(float)));
    assert_cuda(cudaMemcpyAsync(device, host, (size_t)count * sizeof(float), cudaMemcpyHostToDevice, stream));
    free(host);
    return device;
}

START_TEST(a_kernel_runs_in_the_order_of_its_stream)
{
    static float y_host[COUNT];
    float       *x = numbers(COUNT, 1.0F);
    float       *y = numbers(COUNT, 10.0F);

    for (int i = 0; i < 3; i++) {
        toy_axpy(y, x, 2.0F, COUNT, stream);
    }
    assert_cuda(cudaMemcpyAsync(y_host, y, sizeof(y_host), cudaMemcpyDeviceToHost, stream));
    assert_cuda(cudaStreamSynchronize(stream));
    for (int i = 0; i < COUNT; i++) {
        ck_assert_float_eq(y_host[i], 10.0F + (float)i + 6.0F * (1.0F + (float)i));
    }
    assert_cuda(cudaFree(x));
    assert_cuda(cudaFree(y));
}
END_TEST

START_TEST(threads_of_a_block_share_memory_and_warps_shuffle)
{
    float  sums_host[ROWS];
    float *x    = numbers(ROWS * WIDTH, 0.0F);
    float *sums = numbers(ROWS, 0.0F);

    toy_row_sums(sums, x, ROWS, WIDTH, stream);
    assert_cuda(cudaMemcpyAsync(sums_host, sums, sizeof(sums_host), cudaMemcpyDeviceToHost, stream));
    assert_cuda(cudaStreamSynchronize(stream));
    for (int r = 0; r < ROWS; r++) { /* the sum of a row of whole numbers is exact */
        ck_assert_float_eq(sums_host[r], (float)(WIDTH * (WIDTH - 1) / 2 + r * WIDTH * WIDTH));
    }
    assert_cuda(cudaFree(x));
    assert_cuda(cudaFree(sums));
}
END_TEST

static void set_up(void)
{
    assert_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
}

static void tear_down(void)
{
    assert_cuda(cudaStreamDestroy(stream));
}

int main(void)
{
    Suite *suite = suite_create("launch");
    TCase *tcase = tcase_create("core");

    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, a_kernel_runs_in_the_order_of_its_stream);
    tcase_add_test(tcase, threads_of_a_block_share_memory_and_warps_shuffle);
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
