/* Streams captured into graphs on the stand-in. */
#include "tests/cusim/runtime_test.h"
#include <stdlib.h>

static cudaStream_t first, second;
static cudaEvent_t  forked, joined;
static float       *x, *y;

START_TEST(a_graph_of_two_streams_runs_again_and_again_in_its_order)
{
    cudaGraph_t     graph;
    cudaGraphExec_t exec;

    set_floats(x, 1, 1.0F, first);
    set_floats(y, 1, 0.0F, first);
    assert_cuda(cudaStreamSynchronize(first));
    assert_cuda(cudaStreamBeginCapture(first, cudaStreamCaptureModeThreadLocal));
    toy_axpy(x, x, 1.0F, 1, first); /* x doubles */
    assert_cuda(cudaEventRecord(forked, first));
    assert_cuda(cudaStreamWaitEvent(second, forked, 0));
    toy_axpy(y, x, 1.0F, 1, second); /* y += x */
    assert_cuda(cudaEventRecord(joined, second));
    assert_cuda(cudaStreamWaitEvent(first, joined, 0));
    assert_cuda(cudaStreamEndCapture(first, &graph));
    assert_cuda(cudaGraphInstantiate(&exec, graph, 0));
    assert_cuda(cudaGraphDestroy(graph));
    ck_assert_float_eq(first_of(x, first), 1.0F); /* nothing has run yet */
    for (int i = 0; i < 3; i++) {
        assert_cuda(cudaGraphLaunch(exec, i == 1 ? second : first));
    }
    assert_cuda(cudaStreamSynchronize(second));
    ck_assert_float_eq(first_of(x, first), 8.0F);
    ck_assert_float_eq(first_of(y, first), 2.0F + 4.0F + 8.0F);
    assert_cuda(cudaGraphExecDestroy(exec));
}
END_TEST

START_TEST(a_stream_that_does_not_come_back_spoils_the_capture)
{
    cudaGraph_t graph;

    assert_cuda(cudaStreamBeginCapture(first, cudaStreamCaptureModeThreadLocal));
    assert_cuda(cudaEventRecord(forked, first));
    assert_cuda(cudaStreamWaitEvent(second, forked, 0));
    toy_axpy(y, x, 1.0F, 1, second);
    ck_assert_int_eq(cudaStreamEndCapture(first, &graph), cudaErrorStreamCaptureUnjoined);
    ck_assert_ptr_null(graph);
    ck_assert_int_eq(cudaGetLastError(), cudaErrorStreamCaptureUnjoined);
}
END_TEST

START_TEST(waiting_for_a_stream_that_is_captured_spoils_the_capture)
{
    cudaGraph_t                  graph;
    enum cudaStreamCaptureStatus status;

    assert_cuda(cudaStreamBeginCapture(first, cudaStreamCaptureModeThreadLocal));
    assert_cuda(cudaStreamIsCapturing(first, &status));
    ck_assert_int_eq(status, cudaStreamCaptureStatusActive);
    ck_assert_int_eq(cudaStreamQuery(first), cudaErrorStreamCaptureUnsupported);
    ck_assert_int_eq(cudaStreamEndCapture(first, &graph), cudaErrorStreamCaptureInvalidated);
    assert_cuda(cudaStreamIsCapturing(first, &status));
    ck_assert_int_eq(status, cudaStreamCaptureStatusNone);
    (void)cudaGetLastError();
}
END_TEST

/* Calls that wait, or allocate, are no work of the stream. */
START_TEST(a_call_that_is_no_work_spoils_the_capture)
{
    cudaGraph_t graph;
    void       *memory = NULL;
    cudaError_t error  = cudaSuccess;

    assert_cuda(cudaStreamBeginCapture(first, cudaStreamCaptureModeThreadLocal));
    toy_axpy(x, x, 1.0F, 1, first);
    switch (_i) {
    case 0:
        error = cudaMalloc(&memory, 4);
        break;
    case 1:
        error = cudaFree(y);
        break;
    case 2:
        error = cudaHostAlloc(&memory, 4, cudaHostAllocDefault);
        break;
    case 3:
        error = cudaDeviceSynchronize();
        break;
    default:
        error = cudaEventQuery(forked);
        break;
    }
    ck_assert_int_eq(error, cudaErrorStreamCaptureUnsupported);
    ck_assert_int_eq(cudaStreamEndCapture(first, &graph), cudaErrorStreamCaptureInvalidated);
    (void)cudaGetLastError();
    assert_cuda(cudaMalloc(&memory, 4)); /* afterwards all is as before */
    assert_cuda(cudaFree(memory));
}
END_TEST

START_TEST(a_planted_fault_spoils_every_capture)
{
    cudaGraph_t graph;

    ck_assert_int_eq(setenv("CUSIM_CAPTURE_FAULT", "1", 1), 0);
    assert_cuda(cudaStreamBeginCapture(first, cudaStreamCaptureModeThreadLocal));
    ck_assert_int_eq(cudaStreamEndCapture(first, &graph), cudaErrorStreamCaptureInvalidated);
    ck_assert_int_eq(unsetenv("CUSIM_CAPTURE_FAULT"), 0);
    (void)cudaGetLastError();
}
END_TEST

static void set_up(void)
{
    first  = new_stream();
    second = new_stream();
    x      = new_floats(1);
    y      = new_floats(1);
    assert_cuda(cudaEventCreateWithFlags(&forked, cudaEventDisableTiming));
    assert_cuda(cudaEventCreateWithFlags(&joined, cudaEventDisableTiming));
}

static void tear_down(void)
{
    assert_cuda(cudaFree(x));
    assert_cuda(cudaFree(y));
    assert_cuda(cudaStreamDestroy(first));
    assert_cuda(cudaStreamDestroy(second));
}

int main(void)
{
    Suite *suite = suite_create("graph");
    TCase *tcase = tcase_create("core");

    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, a_graph_of_two_streams_runs_again_and_again_in_its_order);
    tcase_add_test(tcase, a_stream_that_does_not_come_back_spoils_the_capture);
    tcase_add_test(tcase, waiting_for_a_stream_that_is_captured_spoils_the_capture);
    tcase_add_loop_test(tcase, a_call_that_is_no_work_spoils_the_capture, 0, 5);
    tcase_add_test(tcase, a_planted_fault_spoils_every_capture);
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
