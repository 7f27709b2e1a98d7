/* Sums over ranks against a plain loop in rank order, which every rank can run itself. Over several machines,
 * where no order is promised, values are such that it makes no difference. */
#include <math.h>
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#include "ddp/comm.h"
#include "kernels/device.h"
#include "tests/support/ddp_test.h"

#define GUARD 12345.0F

static ddp_comm_t *comm;

static void open_comm(void)
{
    ddp_comm_params_t params = DDP_COMM_PARAMS_INIT;

    params.parent     = MPI_COMM_WORLD;
    params.timeout_ms = 20000;
    ddp_assert_ok(ddp_comm_create(&params, &comm));
}

static void close_comm(void)
{
    ddp_comm_destroy(&comm);
}

/* On one machine values whose sum depends on the order of the additions, else small whole numbers. */
static float value_of(int rank, size_t i)
{
    uint32_t x = (uint32_t)i * 2654435761U + (uint32_t)rank * 40503U + 12345U;

    x ^= x >> 15;
    x *= 2246822519U;
    x ^= x >> 13;
    if (ddp_comm_machines(comm) > 1) {
        return (float)(x % 1000) - 500.0F;
    }
    return ldexpf((float)(x & 0xffffffU) - 8388608.0F, (int)(x >> 28) - 20);
}

static void fill(float *buffer, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        buffer[i] = value_of(ddp_comm_rank(comm), i);
    }
}

static size_t count_wrong(const float *buffer, size_t count)
{
    size_t wrong = 0;

    for (size_t i = 0; i < count; i++) {
        float sum = value_of(0, i);

        for (int r = 1; r < ddp_comm_size(comm); r++) {
            sum += value_of(r, i);
        }
        wrong += memcmp(&sum, &buffer[i], sizeof(sum)) != 0 ? 1 : 0;
    }
    return wrong;
}

/* No meeting between the sum and the look at it: the sum must be there for this rank when the call returns.
 */
static bool is_right_at_once(float *buffer, size_t count)
{
    return ddp_comm_allreduce_sum(comm, buffer, count) == DDP_OK && count_wrong(buffer, count) == 0;
}

static const size_t counts[] = {0, 1, 3, 257, 65536, 65537, 200001};
#define N_COUNTS (sizeof(counts) / sizeof(counts[0]))

START_TEST(sum_of_private_memory_is_the_sum_in_rank_order)
{
    float *memory = malloc((counts[N_COUNTS - 1] + 2) * sizeof(float));

    for (size_t c = 0; c < N_COUNTS; c++) {
        float *buffer = memory + 1;

        memory[0]         = GUARD;
        buffer[counts[c]] = GUARD;
        fill(buffer, counts[c]);
        ddp_assert_all(is_right_at_once(buffer, counts[c]));
        ddp_assert_all(memory[0] == GUARD && buffer[counts[c]] == GUARD);
    }
    free(memory);
}
END_TEST

START_TEST(sum_in_a_window_is_the_sum_in_rank_order)
{
    void *memory = NULL;

    ddp_assert_ok(
        ddp_comm_shared_each(comm, "gradients", (counts[N_COUNTS - 1] + 65) * sizeof(float), &memory));
    for (size_t c = 0; c < N_COUNTS; c++) {
        float *buffer = (float *)memory + 64;

        buffer[-1]        = GUARD;
        buffer[counts[c]] = GUARD;
        fill(buffer, counts[c]);
        ddp_assert_all(is_right_at_once(buffer, counts[c]));
        ddp_assert_all(buffer[-1] == GUARD && buffer[counts[c]] == GUARD);
    }
}
END_TEST

START_TEST(ranks_may_give_memory_of_different_kinds)
{
    const size_t count   = 70001;
    float       *own     = malloc(count * sizeof(float));
    void        *memory  = NULL;
    float       *buffer  = own;
    const bool   is_even = ddp_comm_rank(comm) % 2 == 0;

    ddp_assert_ok(ddp_comm_shared_each(comm, "gradients", count * sizeof(float), &memory));
    if (is_even) {
        buffer = memory;
    }
    for (int round = 0; round < 3; round++) {
        fill(buffer, count);
        ddp_assert_all(ddp_comm_allreduce_sum(comm, buffer, count) == DDP_OK);
        ddp_assert_all(count_wrong(buffer, count) == 0);
    }
    free(own);
}
END_TEST

/* More than goes between machines at a time, and a rest. */
START_TEST(a_sum_of_many_megabytes_is_right)
{
    const size_t count  = 2100007;
    float       *buffer = malloc((count + 1) * sizeof(float));

    for (int offset = 0; offset < 2 && ddp_comm_machines(comm) > 1;
         offset++) { /* aligned for kernels, and not */
        fill(buffer + offset, count);
        ddp_assert_all(is_right_at_once(buffer + offset, count));
    }
    free(buffer);
}
END_TEST

START_TEST(unequal_counts_are_a_mismatch_on_one_machine)
{
    float        buffer[8] = {0};
    ddp_status_t status;

    if (ddp_comm_machines(comm) > 1 || ddp_comm_size(comm) == 1) {
        return;
    }
    status = ddp_comm_allreduce_sum(comm, buffer, ddp_comm_rank(comm) == 1 ? 8 : 7);
    ddp_assert_all(status == DDP_ERR_MISMATCH);
    ddp_assert_all(strstr(ddp_error_line(), "all-reduce of 8 elements on rank 1, of 7 on rank 0") != NULL);
}
END_TEST

START_TEST(a_null_buffer_is_invalid)
{
    ddp_assert_fails(ddp_comm_allreduce_sum(comm, NULL, 4), DDP_ERR_INVALID_ARG, "null");
    ddp_assert_ok(ddp_comm_allreduce_sum(comm, NULL, 0));
}
END_TEST

START_TEST(sums_go_on_with_a_device_attached)
{
    ddp_device_params_t params = DDP_DEVICE_PARAMS_INIT;
    ddp_device_t       *device = NULL;
    float               buffer[1000];

    ddp_assert_ok(ddp_device_create(&params, &device));
    ddp_comm_attach(comm, device);
    for (int round = 0; round < 20; round++) {
        fill(buffer, 1000);
        ddp_assert_all(ddp_comm_allreduce_sum(comm, buffer, 1000) == DDP_OK);
        ddp_assert_all(count_wrong(buffer, 1000) == 0);
    }
    ddp_device_destroy(&device);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("comm_allreduce");
    TCase *sum   = tcase_create("sum");

    tcase_add_checked_fixture(sum, open_comm, close_comm);
    tcase_add_test(sum, sum_of_private_memory_is_the_sum_in_rank_order);
    tcase_add_test(sum, sum_in_a_window_is_the_sum_in_rank_order);
    tcase_add_test(sum, ranks_may_give_memory_of_different_kinds);
    tcase_add_test(sum, a_sum_of_many_megabytes_is_right);
    tcase_add_test(sum, unequal_counts_are_a_mismatch_on_one_machine);
    tcase_add_test(sum, a_null_buffer_is_invalid);
    tcase_add_test(sum, sums_go_on_with_a_device_attached);
    suite_add_tcase(suite, sum);
    return suite;
}

int main(int argc, char **argv)
{
    return ddp_test_run_mpi(&argc, &argv, make_suite);
}
