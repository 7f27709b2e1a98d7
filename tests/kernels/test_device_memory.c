/* What a device holds, and the cap that it does not pass. */
#include <string.h>

#include "kernels/cpu/scratch.h"
#include "kernels/ops.h"
#include "tests/kernels/kernel_test.h"

#define MB ((size_t)1000000)

static ddp_device_t *open_device(const char *name, size_t cap, bool dry)
{
    ddp_device_params_t params = DDP_DEVICE_PARAMS_INIT;
    ddp_device_t       *device = NULL;

    params.name         = name;
    params.memory_bytes = cap;
    params.dry          = dry;
    ddp_assert_ok(ddp_device_create(&params, &device));
    return device;
}

static ddp_status_t take(ddp_device_t *device, const char *label, size_t bytes, void **memory_p)
{
    const ddp_allocator_t *allocator = ddp_device_allocator(device);

    return allocator->acquire(allocator->ctx, label, bytes, memory_p);
}

static void give(ddp_device_t *device, void *memory)
{
    const ddp_allocator_t *allocator = ddp_device_allocator(device);

    allocator->release(allocator->ctx, memory);
}

/* _i: 1 if the device is dry */
START_TEST(a_device_counts_what_it_gave_and_what_was_charged)
{
    ddp_device_t *device     = open_device(NULL, 0, _i == 1);
    void         *memory[40] = {NULL};
    size_t        held       = 0;

    ck_assert_uint_eq(ddp_device_memory(device).held, 0);
    for (size_t i = 0; i < 40; i++) { /* more pieces than are noted at first */
        ddp_assert_ok(take(device, "things", 100 + i, &memory[i]));
        held += 100 + i;
        ck_assert_uint_eq(ddp_device_memory(device).held, held);
    }
    ddp_assert_ok(ddp_device_charge(device, "others", 3 * MB));
    ck_assert_uint_eq(ddp_device_memory(device).held, held + 3 * MB);
    for (size_t i = 0; i < 40; i += 2) { /* in another order than they were taken */
        give(device, memory[i]);
        held -= 100 + i;
        ck_assert_uint_eq(ddp_device_memory(device).held, held + 3 * MB);
    }
    ddp_device_discharge(device, 3 * MB);
    ck_assert_uint_eq(ddp_device_memory(device).held, held);
    ck_assert_uint_eq(ddp_device_memory(device).peak, 40 * 100 + 39 * 40 / 2 + 3 * MB);
    ck_assert_uint_eq(ddp_device_memory(device).cap, 0);
    for (size_t i = 1; i < 40; i += 2) {
        give(device, memory[i]);
    }
    give(device, NULL);
    ck_assert_uint_eq(ddp_device_memory(device).held, 0);
    ddp_device_destroy(&device);
}
END_TEST

START_TEST(a_cap_refuses_by_name_and_takes_nothing)
{
    ddp_device_t *device = open_device("device 1", 512 * MB, _i == 1);
    void         *memory = NULL;
    void         *more   = NULL;

    ddp_assert_ok(ddp_device_charge(device, "parameters", 432 * MB));
    ck_assert_int_eq(ddp_device_charge(device, "moments", 210 * MB), DDP_ERR_NO_MEMORY);
    ck_assert_str_eq(ddp_error_line(), "device 1: moments need 210.0 MB; 80.0 of 512.0 MB are left");
    ck_assert_int_eq(take(device, "activations", 80 * MB + 1, &memory), DDP_ERR_NO_MEMORY);
    ck_assert_str_eq(ddp_error_line(), "device 1: activations need 80.1 MB; 80.0 of 512.0 MB are left");
    ck_assert_ptr_null(memory);
    ck_assert_int_eq(ddp_device_charge(device, "moments", SIZE_MAX), DDP_ERR_NO_MEMORY);
    ck_assert_uint_eq(ddp_device_memory(device).held, 432 * MB);
    ck_assert_uint_eq(ddp_device_memory(device).peak, 432 * MB);
    ck_assert_uint_eq(ddp_device_memory(device).cap, 512 * MB);
    ddp_assert_ok(take(device, "activations", 80 * MB, &memory)); /* to the last byte */
    ck_assert_int_eq(take(device, "inputs", 1, &more), DDP_ERR_NO_MEMORY);
    ck_assert_str_eq(ddp_error_line(), "device 1: inputs need 0.1 MB; 0.0 of 512.0 MB are left");
    give(device, memory);
    ddp_assert_ok(take(device, "inputs", 1, &memory));
    give(device, memory);
    ddp_device_discharge(device, 432 * MB);
    ddp_device_destroy(&device);
}
END_TEST

START_TEST(without_a_cap_what_no_memory_can_hold_is_refused)
{
    ddp_device_t *device = open_device(NULL, 0, _i == 1);
    void         *memory = NULL;

    ddp_assert_ok(ddp_device_charge(device, "some", MB));
    ddp_assert_fails(ddp_device_charge(device, "more", SIZE_MAX), DDP_ERR_NO_MEMORY,
                     "cpu: more: 18446744073709551615 bytes do not fit in memory");
    ck_assert_int_eq(take(device, "too much", SIZE_MAX - 2 * MB, &memory), DDP_ERR_NO_MEMORY);
    ck_assert_uint_eq(ddp_device_memory(device).held, MB); /* the system's refusal counts nothing */
    ddp_device_discharge(device, MB);
    ddp_device_destroy(&device);
}
END_TEST

START_TEST(memory_of_a_device_is_zeroed_and_aligned)
{
    static const char zeros[1000];
    ddp_device_t     *device = open_device(NULL, 0, false);
    void             *memory = NULL;

    for (int i = 0; i < 2; i++) {
        ddp_assert_ok(take(device, "things", sizeof(zeros), &memory));
        ck_assert_uint_eq((size_t)memory % DDP_ALIGNMENT, 0);
        ck_assert_mem_eq(memory, zeros, sizeof(zeros));
        memset(memory, 1, sizeof(zeros));
        give(device, memory);
    }
    ddp_device_destroy(&device);
}
END_TEST

/* A product large enough to be packed. */
static ddp_status_t multiply(ddp_stream_t *stream, float *x, size_t side)
{
    const ddp_gemm_args_t gemm   = {.m     = side,
                                    .n     = side,
                                    .k     = side,
                                    .alpha = 1.0F,
                                    .a     = x,
                                    .lda   = side,
                                    .b     = x + side * side,
                                    .ldb   = side,
                                    .c     = x + 2 * side * side,
                                    .ldc   = side};
    ddp_status_t          status = ddp_op_gemm(stream, &gemm);

    return status != DDP_OK ? status : ddp_stream_synchronize(stream, -1);
}

START_TEST(buffers_of_kernels_are_held_by_their_device)
{
    const size_t  side = 40;
    static float  x[3 * 40 * 40];
    ddp_device_t *devices[2] = {open_device("device 0", 0, false), open_device("device 1", MB, false)};
    ddp_stream_t *streams[2] = {NULL, NULL};

    for (int i = 0; i < 2; i++) {
        ddp_assert_ok(ddp_stream_create(devices[i], "test", &streams[i]));
    }
    ddp_assert_ok(multiply(streams[0], x, side));
    ck_assert_uint_gt(ddp_device_memory(devices[0]).held, MB);
    ck_assert_uint_eq(ddp_device_memory(devices[0]).held, ddp_cpu_scratch_held(devices[0]));
    ck_assert_uint_eq(ddp_device_memory(devices[1]).held, 0); /* the thread's other device has its own */
    ddp_assert_fails(multiply(streams[1], x, side), DDP_ERR_NO_MEMORY, "device 1: buffers of kernels need ");
    for (int i = 0; i < 2; i++) {
        ddp_stream_destroy(&streams[i]);
        ddp_device_destroy(&devices[i]);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("device memory");
    TCase *tcase = tcase_create("there or dry");

    tcase_add_loop_test(tcase, a_device_counts_what_it_gave_and_what_was_charged, 0, 2);
    tcase_add_loop_test(tcase, a_cap_refuses_by_name_and_takes_nothing, 0, 2);
    tcase_add_loop_test(tcase, without_a_cap_what_no_memory_can_hold_is_refused, 0, 2);
    tcase_add_test(tcase, memory_of_a_device_is_zeroed_and_aligned);
    tcase_add_test(tcase, buffers_of_kernels_are_held_by_their_device);
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
