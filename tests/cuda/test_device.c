/* The CUDA device itself: memory, streams, events, copies and waits. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "kernels/cuda.h"
#include "tests/cuda/support.h"
#include "tests/support/ddp_test.h"

#define COUNT 5000

START_TEST(what_the_machine_has_is_told)
{
    ddp_cuda_info_t        info;
    ddp_cuda_device_info_t device;
    size_t                 zeros = 0;

    ddp_cuda_probe(&info);
    ck_assert(info.is_built);
    ck_assert_int_ge(info.devices, 1);
    ck_assert_str_eq(info.reason, "");
    ddp_assert_ok(ddp_cuda_describe(0, &device));
    ck_assert(device.name[0] != '\0' && device.bus[0] != '\0');
    ck_assert_uint_gt(device.memory_bytes, 0);
    ck_assert_uint_le(device.free_bytes, device.memory_bytes);
    for (size_t i = 0; i < sizeof(device.uuid); i++) {
        zeros += device.uuid[i] == 0;
    }
    ck_assert_uint_lt(zeros, sizeof(device.uuid));
    ddp_assert_fails(ddp_cuda_describe(info.devices, &device), DDP_ERR_INVALID_ARG, "there is no device");
    ddp_assert_fails(ddp_cuda_describe(-1, &device), DDP_ERR_INVALID_ARG, "there is no device -1");
}
END_TEST

START_TEST(a_device_that_is_not_there_is_named)
{
    ddp_device_params_t params = DDP_DEVICE_PARAMS_INIT;
    ddp_device_t       *device = NULL;

    params.kind    = DDP_DEVICE_CUDA;
    params.ordinal = 99;
    ddp_assert_fails(ddp_device_create(&params, &device), DDP_ERR_INVALID_ARG, "there is no device 99");
    ck_assert_ptr_null(device);
}
END_TEST

START_TEST(a_dry_device_needs_no_gpu)
{
    ddp_device_params_t    params    = DDP_DEVICE_PARAMS_INIT;
    ddp_device_t          *device    = NULL;
    ddp_stream_t          *stream    = NULL;
    void                  *memory    = NULL;
    const ddp_allocator_t *allocator = NULL;

    params.kind    = DDP_DEVICE_CUDA;
    params.ordinal = 99;
    params.dry     = true;
    ddp_assert_ok(ddp_device_create(&params, &device));
    ddp_assert_ok(ddp_stream_create(device, "dry", &stream));
    allocator = ddp_device_allocator(device);
    ddp_assert_ok(allocator->acquire(allocator->ctx, "a lot", (size_t)1 << 50, &memory));
    ddp_assert_ok(ddp_op_fill(stream, memory, (size_t)1 << 40, 1.0F));
    ddp_assert_ok(ddp_stream_synchronize(stream, -1));
    ck_assert_uint_eq(ddp_device_memory(device).peak, (size_t)1 << 50);
    allocator->release(allocator->ctx, memory);
    ddp_stream_destroy(&stream);
    ddp_device_destroy(&device);
}
END_TEST

START_TEST(new_memory_is_zero_and_counted)
{
    support_t              s;
    void                  *memory = NULL;
    unsigned char          bytes[COUNT];
    const ddp_allocator_t *allocator = NULL;

    support_open(&s);
    allocator = ddp_device_allocator(s.cuda);
    ck_assert(!ddp_device_is_host_memory(s.cuda));
    ddp_assert_ok(allocator->acquire(allocator->ctx, "zeros", COUNT, &memory));
    ck_assert_uint_eq((uintptr_t)memory % DDP_ALIGNMENT, 0);
    ck_assert_uint_eq(ddp_device_memory(s.cuda).held, COUNT);
    memset(bytes, 1, sizeof(bytes));
    support_download(&s, bytes, memory, COUNT);
    for (size_t i = 0; i < COUNT; i++) {
        ck_assert_uint_eq(bytes[i], 0);
    }
    allocator->release(allocator->ctx, memory);
    ck_assert_uint_eq(ddp_device_memory(s.cuda).held, 0);
    support_close(&s);
}
END_TEST

START_TEST(page_locked_memory_is_the_hosts)
{
    support_t              s;
    void                  *memory = NULL;
    float                 *on_device;
    float                  x[COUNT];
    const ddp_allocator_t *allocator;

    support_open(&s);
    support_fill(x, COUNT, 7);
    allocator = ddp_device_host_allocator(s.cuda);
    ddp_assert_ok(allocator->acquire(allocator->ctx, "a page-locked buffer", sizeof(x), &memory));
    ck_assert_uint_eq(*(unsigned char *)memory, 0);
    memcpy(memory, x, sizeof(x));
    on_device = support_upload(&s, NULL, sizeof(x));
    ddp_assert_ok(ddp_stream_copy(s.on_cuda, on_device, memory, sizeof(x)));
    ddp_assert_ok(ddp_stream_synchronize(s.on_cuda, -1));
    memset(memory, 0, sizeof(x));
    ddp_assert_ok(ddp_stream_copy(s.on_cuda, memory, on_device, sizeof(x)));
    ddp_assert_ok(ddp_stream_synchronize(s.on_cuda, -1));
    support_assert_same(memory, x, sizeof(x), "what came back");
    allocator->release(allocator->ctx, memory);
    support_close(&s);
}
END_TEST

/* With the stand-in's orders a missing wait gives the other value. */
START_TEST(an_event_orders_two_streams)
{
    support_t     s;
    ddp_stream_t *other = NULL;
    ddp_event_t  *event = NULL;
    float        *x;
    float        *y;
    float         result[COUNT];

    support_open(&s);
    ddp_assert_ok(ddp_stream_create_urgent(s.cuda, "urgent", &other));
    ddp_assert_ok(ddp_event_create(s.cuda, &event));
    x = support_upload(&s, NULL, sizeof(result));
    y = support_upload(&s, NULL, sizeof(result));
    ddp_assert_ok(ddp_stream_wait_event(other, event)); /* never recorded: no wait */
    for (int round = 1; round <= 3; round++) {
        ddp_assert_ok(ddp_op_fill(s.on_cuda, x, COUNT, (float)round));
        ddp_assert_ok(ddp_event_record(event, s.on_cuda));
        ddp_assert_ok(ddp_stream_wait_event(other, event));
        ddp_assert_ok(ddp_stream_copy(other, y, x, sizeof(result)));
        ddp_assert_ok(ddp_event_record(event, other));
        ddp_assert_ok(ddp_stream_wait_event(s.on_cuda, event));
    }
    ddp_assert_ok(ddp_op_fill(s.on_cuda, x, COUNT, -1.0F));
    ddp_assert_ok(ddp_event_synchronize(event, -1));
    support_download(&s, result, y, sizeof(result));
    for (size_t i = 0; i < COUNT; i++) {
        ck_assert(result[i] == 3.0F);
    }
    ddp_event_destroy(&event);
    ddp_stream_destroy(&other);
    support_close(&s);
}
END_TEST

static ddp_status_t give_up(void *ctx, int64_t waited_ns)
{
    (void)waited_ns;
    (*(int *)ctx)++;
    return ddp_fail(DDP_ERR_REMOTE, "a peer is gone");
}

START_TEST(timed_events_tell_when_their_points_were_reached)
{
    support_t     s;
    ddp_event_t  *point[3] = {NULL, NULL, NULL};
    ddp_event_t  *plain    = NULL;
    float        *x;
    int64_t       whole = 0;
    int64_t       part[2];
    const int64_t start = ddp_clock_ns();

    support_open(&s);
    x = support_upload(&s, NULL, COUNT * sizeof(float));
    ddp_assert_ok(ddp_event_create(s.cuda, &plain));
    for (int i = 0; i < 3; i++) {
        ddp_assert_ok(ddp_event_create_timed(s.cuda, &point[i]));
    }
    ddp_assert_fails(ddp_event_elapsed(point[0], point[1], &whole), DDP_ERR_INVALID_ARG, "never recorded");
    for (int i = 0; i < 3; i++) {
        ddp_assert_ok(ddp_event_record(point[i], s.on_cuda));
        ddp_assert_ok(ddp_op_fill(s.on_cuda, x, COUNT, 1.0F));
    }
    ddp_assert_ok(ddp_event_record(plain, s.on_cuda));
    ddp_assert_ok(ddp_event_synchronize(point[2], -1));
    ddp_assert_ok(ddp_event_elapsed(point[0], point[1], &part[0]));
    ddp_assert_ok(ddp_event_elapsed(point[1], point[2], &part[1]));
    ddp_assert_ok(ddp_event_elapsed(point[0], point[2], &whole));
    ck_assert_int_gt(part[0], 0);
    ck_assert_int_gt(part[1], 0);
    ck_assert_int_le(llabs(part[0] + part[1] - whole), whole / 1000 + 10);
    ck_assert_int_le(whole, ddp_clock_ns() - start);
    ddp_assert_fails(ddp_event_elapsed(point[0], plain, &whole), DDP_ERR_INVALID_ARG, "not timed");
    for (int i = 0; i < 3; i++) {
        ddp_event_destroy(&point[i]);
    }
    ddp_event_destroy(&plain);
    support_close(&s);
}
END_TEST

static ddp_status_t no_work(void *args)
{
    (void)args;
    return DDP_OK;
}

START_TEST(work_of_the_host_is_refused)
{
    support_t s;

    support_open(&s);
    ddp_assert_fails(ddp_stream_submit(s.on_cuda, "counting", no_work, NULL, 0), DDP_ERR_UNSUPPORTED,
                     "'counting' is work of the host");
    support_close(&s);
}
END_TEST

/* Nobody looks at the deadline of a wait that is over at once, so the stream is kept busy. */
START_TEST(a_wait_asks_the_idle_function)
{
    support_t    s;
    int          calls  = 0;
    ddp_status_t status = DDP_OK;
    float       *x;

    support_open(&s);
    x = support_upload(&s, NULL, COUNT * sizeof(float));
    ddp_device_set_idle(s.cuda, give_up, &calls);
    for (int i = 0; i < 1000 && status == DDP_OK; i++) {
        for (int k = 0; k < 20; k++) {
            ddp_assert_ok(ddp_op_fill(s.on_cuda, x, COUNT, 1.0F));
        }
        status = ddp_stream_synchronize(s.on_cuda, -1);
    }
    ck_assert_int_eq(status, DDP_ERR_REMOTE);
    ck_assert_int_eq(calls, 1);
    ddp_device_set_idle(s.cuda, NULL, NULL);
    ddp_assert_ok(ddp_stream_synchronize(s.on_cuda, -1)); /* the stream has not failed */
    support_close(&s);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cuda device");
    TCase *tcase = tcase_create("device");

    tcase_add_test(tcase, what_the_machine_has_is_told);
    tcase_add_test(tcase, a_device_that_is_not_there_is_named);
    tcase_add_test(tcase, a_dry_device_needs_no_gpu);
    tcase_add_test(tcase, new_memory_is_zero_and_counted);
    tcase_add_test(tcase, page_locked_memory_is_the_hosts);
    tcase_add_test(tcase, an_event_orders_two_streams);
    tcase_add_test(tcase, timed_events_tell_when_their_points_were_reached);
    tcase_add_test(tcase, work_of_the_host_is_refused);
    tcase_add_test(tcase, a_wait_asks_the_idle_function);
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
