#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "ddp/comm.h"
#include "ddp/comm_internal.h"
#include "tests/support/ddp_test.h"

/* Long enough for a busy machine, short enough for a test that waits for it. */
#define TIMEOUT_MS 20000

static ddp_comm_t *comm;

static void open_comm(void)
{
    ddp_comm_params_t params = DDP_COMM_PARAMS_INIT;

    params.parent     = MPI_COMM_WORLD;
    params.timeout_ms = TIMEOUT_MS;
    ddp_assert_ok(ddp_comm_create(&params, &comm));
}

static void close_comm(void)
{
    ddp_comm_destroy(&comm);
}

static bool is_sharing(void)
{
    const char *text = getenv("DDP_HOST_SHM");

    return text == NULL || strcmp(text, "0") != 0;
}

/* The machine each rank of MPI_COMM_WORLD is on, by the environment of this test. */
static int machine_of_world_rank(int rank)
{
    const char *text = getenv("DDP_TEST_MACHINES");

    if (!is_sharing()) {
        return rank;
    }
    for (int r = 0; text != NULL && r < rank; r++) {
        text = strchr(text, ',') + 1;
    }
    return text != NULL ? text[0] - '0' : 0;
}

/* Our ranks in the order in which they should be: machine by machine, machines by their lowest rank. */
static void list_in_order(int size, int *world_rank)
{
    int n = 0;

    for (int lead = 0; lead < size; lead++) {
        for (int r = 0; r < size; r++) {
            bool is_listed = false;

            for (int k = 0; k < n; k++) {
                is_listed = is_listed || world_rank[k] == r;
            }
            if (!is_listed && machine_of_world_rank(r) == machine_of_world_rank(lead)) {
                world_rank[n++] = r;
            }
        }
    }
}

START_TEST(ranks_are_numbered_machine_by_machine)
{
    int size     = 0;
    int rank     = 0;
    int machines = 0;
    int locals   = 0;
    int local    = 0;
    int order[64];

    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    list_in_order(size, order);
    ck_assert_int_eq(order[ddp_comm_rank(comm)], rank);
    for (int r = 0; r < size; r++) {
        const bool is_here = machine_of_world_rank(order[r]) == machine_of_world_rank(rank);

        machines += r == 0 || machine_of_world_rank(order[r]) != machine_of_world_rank(order[r - 1]) ? 1 : 0;
        locals += is_here ? 1 : 0;
        local += is_here && r < ddp_comm_rank(comm) ? 1 : 0;
        if (is_here) {
            ck_assert_int_eq(ddp_comm_machine(comm), machines - 1);
        }
    }
    ck_assert_int_eq(ddp_comm_machines(comm), machines);
    ck_assert_int_eq(ddp_comm_local_size(comm), locals);
    ck_assert_int_eq(ddp_comm_local_rank(comm), local);
}
END_TEST

START_TEST(ranks_know_their_place)
{
    int size = 0;

    MPI_Comm_size(MPI_COMM_WORLD, &size);
    ck_assert_int_eq(ddp_comm_size(comm), size);
    ck_assert_int_eq(ddp_comm_timeout_ms(comm), TIMEOUT_MS);
    ck_assert_uint_gt(strlen(ddp_comm_host(comm, size - 1)), 0);
    for (int m = 0, first = 0; m < ddp_comm_machines(comm); m++) {
        ck_assert_int_eq(ddp_comm_machine_first(comm, m), first);
        first += ddp_comm_machine_size(comm, m);
    }
}
END_TEST

START_TEST(ranks_of_the_data_communicator_are_our_ranks)
{
    int rank = -1;

    MPI_Comm_rank(ddp_comm_data_mpi(comm), &rank);
    ddp_assert_all(rank == ddp_comm_rank(comm));
}
END_TEST

START_TEST(a_wrong_parameter_is_refused)
{
    ddp_comm_params_t params = DDP_COMM_PARAMS_INIT;
    ddp_comm_t       *none   = NULL;

    ddp_assert_fails(ddp_comm_create(&params, &none), DDP_ERR_INVALID_ARG, "MPI_COMM_NULL");
    params.parent      = MPI_COMM_WORLD;
    params.struct_size = 1;
    ddp_assert_fails(ddp_comm_create(&params, &none), DDP_ERR_INVALID_ARG, "DDP_COMM_PARAMS_INIT");
    ck_assert_ptr_null(none);
    ddp_comm_destroy(&none);
    ddp_comm_destroy(NULL);
}
END_TEST

START_TEST(a_wrong_parameter_of_one_rank_reaches_all)
{
    const int         rank   = ddp_comm_rank(comm);
    const int         last   = ddp_comm_size(comm) - 1;
    ddp_comm_params_t params = DDP_COMM_PARAMS_INIT;
    ddp_comm_t       *none   = NULL;
    ddp_status_t      status;

    params.parent     = MPI_COMM_WORLD;
    params.timeout_ms = rank == last ? -5 : TIMEOUT_MS;
    status            = ddp_comm_create(&params, &none);
    ddp_assert_all(status == (rank == last ? DDP_ERR_INVALID_ARG : DDP_ERR_REMOTE));
    ddp_assert_all(none == NULL && strstr(ddp_error_line(), "timeout_ms is -5") != NULL);
}
END_TEST

START_TEST(agree_of_ok_is_ok)
{
    ddp_assert_ok(ddp_comm_agree(comm, DDP_OK));
    ddp_assert_ok(ddp_comm_barrier(comm));
}
END_TEST

START_TEST(agree_gives_all_the_failing_ranks_line)
{
    const int    size = ddp_comm_size(comm);
    char         wanted[64];
    ddp_status_t status;

    for (int culprit = 0; culprit < size; culprit++) {
        const bool is_me = ddp_comm_rank(comm) == culprit;

        status = ddp_comm_agree(comm, is_me ? ddp_fail(DDP_ERR_IO, "file 'x' is gone") : DDP_OK);
        snprintf(wanted, sizeof(wanted), "rank %d on %s: file 'x' is gone", culprit,
                 ddp_comm_host(comm, culprit));
        ddp_assert_all(status == (is_me ? DDP_ERR_IO : DDP_ERR_REMOTE));
        ddp_assert_all(strcmp(ddp_error_line(), is_me ? "file 'x' is gone" : wanted) == 0);
    }
    ddp_assert_ok(ddp_comm_barrier(comm)); /* it still works */
}
END_TEST

START_TEST(agree_prefers_the_cause_to_its_echo)
{
    const int    rank = ddp_comm_rank(comm);
    const int    last = ddp_comm_size(comm) - 1;
    ddp_status_t mine = DDP_OK;
    ddp_status_t status;

    if (last < 2) {
        return;
    }
    if (rank == 1) {
        mine = ddp_fail(DDP_ERR_REMOTE, "echo");
    }
    if (rank == last) {
        mine = ddp_fail(DDP_ERR_INVALID_ARG, "cause");
    }
    status = ddp_comm_agree(comm, mine);
    ddp_assert_all(rank != 0 || (status == DDP_ERR_REMOTE && strstr(ddp_error_line(), ": cause") != NULL) ||
                   last == 1);
}
END_TEST

START_TEST(broadcast_gives_the_roots_bytes_to_all)
{
    static const size_t sizes[] = {0, 1, 1000, 262144, 600001};
    unsigned char      *data    = malloc(600001);
    size_t              wrong   = 0;

    for (int root = 0; root < ddp_comm_size(comm); root++) {
        for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
            for (size_t i = 0; i < sizes[s]; i++) {
                data[i] = ddp_comm_rank(comm) == root ? (unsigned char)(i * 7 + s + (size_t)root) : 0;
            }
            ddp_assert_ok(ddp_comm_broadcast(comm, data, sizes[s], root));
            for (size_t i = 0; i < sizes[s]; i++) {
                wrong += data[i] != (unsigned char)(i * 7 + s + (size_t)root) ? 1 : 0;
            }
        }
    }
    free(data);
    ddp_assert_all(wrong == 0);
    ddp_assert_fails(ddp_comm_broadcast(comm, NULL, 0, 99), DDP_ERR_INVALID_ARG, "rank 99");
    ddp_assert_fails(ddp_comm_broadcast(comm, NULL, 4, 0), DDP_ERR_INVALID_ARG, "null");
}
END_TEST

START_TEST(allgather_gives_all_what_each_gave)
{
    static const size_t sizes[] = {1, 24, 300007};
    const size_t        size    = (size_t)ddp_comm_size(comm);
    const size_t        rank    = (size_t)ddp_comm_rank(comm);
    unsigned char      *mine    = malloc(300007);
    unsigned char      *all     = malloc(300007 * size);
    size_t              wrong   = 0;

    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        for (size_t i = 0; i < sizes[s]; i++) {
            mine[i] = (unsigned char)(i * 13 + rank);
        }
        ddp_assert_ok(ddp_comm_allgather(comm, mine, sizes[s], all));
        for (size_t r = 0; r < size; r++) {
            for (size_t i = 0; i < sizes[s]; i++) {
                wrong += all[r * sizes[s] + i] != (unsigned char)(i * 13 + r) ? 1 : 0;
            }
        }
    }
    free(all);
    free(mine);
    ddp_assert_all(wrong == 0);
}
END_TEST

START_TEST(different_calls_at_the_same_time_are_an_error_on_all)
{
    char         bytes[8] = {0};
    ddp_status_t status =
        ddp_comm_rank(comm) == 0 ? ddp_comm_barrier(comm) : ddp_comm_broadcast(comm, bytes, sizeof(bytes), 0);

    if (ddp_comm_size(comm) == 1) {
        return;
    }
    ddp_assert_all(status == DDP_ERR_STATE);
    ddp_assert_all(strstr(ddp_error_line(), "(broadcast of 8 bytes), rank 0 on ") != NULL);
    ddp_assert_all(ddp_comm_barrier(comm) == DDP_ERR_STATE); /* and it stays one */
}
END_TEST

START_TEST(shared_memory_is_seen_by_the_machine_and_zero)
{
    const size_t bytes  = 300000;
    const int    locals = ddp_comm_local_size(comm);
    const int    local  = ddp_comm_local_rank(comm);
    void        *memory = NULL;
    int         *values;
    int          wrong = 0;

    ddp_assert_ok(ddp_comm_shared(comm, "a test", bytes, &memory));
    values = memory;
    ck_assert_uint_eq((size_t)memory % 4096, 0);
    for (size_t i = 0; i < bytes / sizeof(int); i++) {
        wrong += values[i] != 0 ? 1 : 0;
    }
    ddp_assert_ok(ddp_comm_barrier(comm));
    values[local] = 100 + local;
    ddp_assert_ok(ddp_comm_barrier(comm));
    for (int l = 0; l < locals; l++) {
        wrong += values[l] != 100 + l ? 1 : 0;
    }
    ddp_assert_all(wrong == 0);
}
END_TEST

START_TEST(each_rank_gets_its_own_part)
{
    void        *mine = NULL;
    float       *values;
    const size_t count = 1025;
    int          wrong = 0;

    ddp_assert_ok(ddp_comm_shared_each(comm, "a test", count * sizeof(float), &mine));
    ck_assert_uint_eq((size_t)mine % 4096, 0);
    values = mine;
    for (size_t i = 0; i < count; i++) {
        values[i] = (float)ddp_comm_rank(comm);
    }
    ddp_assert_ok(ddp_comm_barrier(comm));
    for (size_t i = 0; i < count; i++) {
        wrong += values[i] != (float)ddp_comm_rank(comm) ? 1 : 0;
    }
    ddp_assert_all(wrong == 0);
}
END_TEST

START_TEST(shared_memory_of_no_bytes_or_too_many_is_refused)
{
    void *memory = NULL;

    ddp_assert_fails(ddp_comm_shared(comm, "nothing", 0, &memory), DDP_ERR_INVALID_ARG, "nothing");
    ddp_assert_all(ddp_comm_shared(comm, "the moon", (size_t)1 << 50, &memory) != DDP_OK);
    ck_assert_msg(strstr(ddp_error_line(), "shared memory for the moon: 1125899906.8 MB needed, ") != NULL,
                  "%s", ddp_error_line());
    ck_assert_ptr_null(memory);
    ddp_assert_ok(ddp_comm_barrier(comm)); /* and all goes on */
}
END_TEST

START_TEST(shared_memory_of_unequal_sizes_is_refused)
{
    const bool   is_alone = ddp_comm_local_size(comm) == 1; /* nobody to differ from */
    void        *memory   = NULL;
    ddp_status_t status = ddp_comm_shared(comm, "a test", 1000 + (size_t)ddp_comm_local_rank(comm), &memory);

    ddp_assert_all(status == (is_alone ? DDP_OK : DDP_ERR_STATE));
    ddp_assert_all(is_alone || strstr(ddp_error_line(), "shared memory of 1001 bytes") != NULL);
}
END_TEST

START_TEST(a_flag_wakes_whoever_waits_for_it)
{
    const int   rank   = ddp_comm_rank(comm);
    const int   locals = ddp_comm_local_size(comm);
    const int   first  = rank - ddp_comm_local_rank(comm);
    ddp_flag_t *flags;
    void       *memory = NULL;

    ddp_assert_ok(ddp_comm_shared(comm, "flags", (size_t)locals * sizeof(ddp_flag_t), &memory));
    flags = memory;
    for (uint64_t step = 1; step <= 200; step++) { /* a token goes round the machine */
        const int        before = (rank - first + locals - 1) % locals;
        const ddp_wait_t wait   = {first + before, "token", step, (size_t)-1};

        if (rank == first) {
            ddp_comm_flag_set(comm, &flags[0], step);
            ddp_assert_ok(ddp_comm_wait_flag(comm, &flags[before], step, wait));
        } else {
            ddp_assert_ok(ddp_comm_wait_flag(comm, &flags[before], step, wait));
            ddp_comm_flag_set(comm, &flags[rank - first], step);
        }
    }
    ck_assert(ddp_comm_flag_reached(&flags[0], 200));
    ck_assert(!ddp_comm_flag_reached(&flags[0], 201));
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite   = suite_create("comm");
    TCase *create  = tcase_create("create");
    TCase *control = tcase_create("control plane");
    TCase *memory  = tcase_create("shared memory");

    tcase_add_checked_fixture(create, open_comm, close_comm);
    tcase_add_checked_fixture(control, open_comm, close_comm);
    tcase_add_checked_fixture(memory, open_comm, close_comm);
    tcase_add_test(create, ranks_know_their_place);
    tcase_add_test(create, ranks_are_numbered_machine_by_machine);
    tcase_add_test(create, ranks_of_the_data_communicator_are_our_ranks);
    tcase_add_test(create, a_wrong_parameter_is_refused);
    tcase_add_test(create, a_wrong_parameter_of_one_rank_reaches_all);
    tcase_add_test(control, agree_of_ok_is_ok);
    tcase_add_test(control, agree_gives_all_the_failing_ranks_line);
    tcase_add_test(control, agree_prefers_the_cause_to_its_echo);
    tcase_add_test(control, broadcast_gives_the_roots_bytes_to_all);
    tcase_add_test(control, allgather_gives_all_what_each_gave);
    tcase_add_test(control, different_calls_at_the_same_time_are_an_error_on_all);
    tcase_add_test(memory, shared_memory_is_seen_by_the_machine_and_zero);
    tcase_add_test(memory, each_rank_gets_its_own_part);
    tcase_add_test(memory, shared_memory_of_no_bytes_or_too_many_is_refused);
    tcase_add_test(memory, shared_memory_of_unequal_sizes_is_refused);
    tcase_add_test(memory, a_flag_wakes_whoever_waits_for_it);
    suite_add_tcase(suite, create);
    suite_add_tcase(suite, control);
    suite_add_tcase(suite, memory);
    return suite;
}

int main(int argc, char **argv)
{
    return ddp_test_run_mpi(&argc, &argv, make_suite);
}
