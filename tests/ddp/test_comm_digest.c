#include <mpi.h>
#include <stdio.h>
#include <string.h>

#include "ddp/comm.h"
#include "tests/support/ddp_test.h"

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

static int last(void)
{
    return ddp_comm_size(comm) - 1;
}

static bool is_last(void)
{
    return ddp_comm_rank(comm) == last();
}

/* All ranks got this very line. */
static void assert_line(ddp_status_t status, const char *line)
{
    ddp_assert_all(status == DDP_ERR_MISMATCH);
    ck_assert_str_eq(ddp_error_line(), line);
    ddp_assert_ok(ddp_comm_barrier(comm)); /* the communicator is still good */
}

START_TEST(equal_fields_pass)
{
    const ddp_field_t fields[] = {{"lr", "0.1"}, {"seed", "1"}};

    ddp_assert_ok(ddp_comm_check_equal(comm, fields, 2));
    ddp_assert_ok(ddp_comm_check_equal(comm, fields, 0));
}
END_TEST

START_TEST(a_different_value_is_named)
{
    const ddp_field_t fields[] = {{"seed", "1"}, {"optimizer.lr", is_last() ? "0.01" : "0.001"}};
    char              line[256];

    snprintf(line, sizeof(line), "rank %d on %s has optimizer.lr %s, rank %d on %s has %s",
             last() == 1 ? 1 : last(), ddp_comm_host(comm, last()), "0.01", 0, ddp_comm_host(comm, 0),
             "0.001");
    assert_line(ddp_comm_check_equal(comm, fields, 2), line);
}
END_TEST

START_TEST(the_majority_is_right)
{
    const ddp_field_t fields[] = {{"batch", ddp_comm_rank(comm) == 0 ? "64" : "128"}};
    char              line[256];

    if (ddp_comm_size(comm) < 3) {
        return;
    }
    snprintf(line, sizeof(line), "rank 0 on %s has batch 64, rank 1 on %s has 128", ddp_comm_host(comm, 0),
             ddp_comm_host(comm, 1));
    assert_line(ddp_comm_check_equal(comm, fields, 1), line);
}
END_TEST

START_TEST(a_missing_and_a_surplus_field_are_named)
{
    const ddp_field_t fields[] = {{"a", "1"}, {"b", "2"}};
    char              line[256];

    snprintf(line, sizeof(line), "rank %d on %s has no b, rank 0 on %s has 2", last(),
             ddp_comm_host(comm, last()), ddp_comm_host(comm, 0));
    assert_line(ddp_comm_check_equal(comm, fields, is_last() ? 1 : 2), line);
    if (ddp_comm_size(comm) < 3) {
        return;
    }
    snprintf(line, sizeof(line), "rank %d on %s has b 2, rank 0 on %s has none", last(),
             ddp_comm_host(comm, last()), ddp_comm_host(comm, 0));
    assert_line(ddp_comm_check_equal(comm, fields, is_last() ? 2 : 1), line);
}
END_TEST

START_TEST(fields_do_not_run_into_each_other)
{
    const ddp_field_t mine[] = {{is_last() ? "ab" : "a", is_last() ? "c" : "bc"}};

    ddp_assert_all(ddp_comm_check_equal(comm, mine, 1) == DDP_ERR_MISMATCH);
}
END_TEST

START_TEST(another_order_is_a_mismatch)
{
    const ddp_field_t fields[] = {{"a", "1"}, {"b", "2"}};
    const ddp_field_t turned[] = {{"b", "2"}, {"a", "1"}};

    assert_line(ddp_comm_check_equal(comm, is_last() ? turned : fields, 2),
                "ranks give the same values in different order");
}
END_TEST

START_TEST(long_values_are_cut_around_the_difference)
{
    char              value[3001];
    const ddp_field_t fields[] = {{"names", value}};
    const char       *line;

    memset(value, 'x', sizeof(value) - 1);
    value[sizeof(value) - 1] = '\0';
    value[2000]              = is_last() ? 'B' : 'A';
    ddp_assert_all(ddp_comm_check_equal(comm, fields, 1) == DDP_ERR_MISMATCH);
    line = ddp_error_line();
    ck_assert_msg(strstr(line, "has names ...xxxxxxxxxxxxxxxxBxxx") != NULL, "%s", line);
    ck_assert_msg(strstr(line, "has ...xxxxxxxxxxxxxxxxAxxx") != NULL, "%s", line);
    ck_assert_uint_lt(strlen(line), 300);
}
END_TEST

/* Of those that have it. */
START_TEST(alike_need_not_be_complete_nor_in_order)
{
    const ddp_field_t fields[] = {{"a", "1"}, {"b", "2"}, {"c", "3"}};
    const ddp_field_t turned[] = {{"c", "3"}, {"a", "1"}};
    const ddp_field_t wrong[]  = {{"c", "3"}, {"a", "4"}};
    char              line[256];

    ddp_assert_ok(ddp_comm_check_alike(comm, fields, 3));
    ddp_assert_ok(ddp_comm_check_alike(comm, is_last() ? turned : fields, is_last() ? 2 : 3));
    ddp_assert_ok(ddp_comm_check_alike(comm, fields, is_last() ? 0 : 1));
    snprintf(line, sizeof(line), "rank %d on %s has a 4, rank 0 on %s has 1", last(),
             ddp_comm_host(comm, last()), ddp_comm_host(comm, 0));
    assert_line(ddp_comm_check_alike(comm, is_last() ? wrong : fields, is_last() ? 2 : 3), line);
    if (ddp_comm_size(comm) < 3) {
        return;
    }
    snprintf(line, sizeof(line), "rank 1 on %s has a 1, rank %d on %s has 4", ddp_comm_host(comm, 1), last(),
             ddp_comm_host(comm, last()));
    ddp_assert_all(ddp_comm_check_alike(comm, is_last() ? wrong : fields, ddp_comm_rank(comm) == 0 ? 0 : 2) ==
                   DDP_ERR_MISMATCH);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("comm_digest");
    TCase *equal = tcase_create("check equal");

    tcase_add_checked_fixture(equal, open_comm, close_comm);
    tcase_add_test(equal, equal_fields_pass);
    tcase_add_test(equal, a_different_value_is_named);
    tcase_add_test(equal, the_majority_is_right);
    tcase_add_test(equal, a_missing_and_a_surplus_field_are_named);
    tcase_add_test(equal, fields_do_not_run_into_each_other);
    tcase_add_test(equal, another_order_is_a_mismatch);
    tcase_add_test(equal, alike_need_not_be_complete_nor_in_order);
    tcase_add_test(equal, long_values_are_cut_around_the_difference);
    suite_add_tcase(suite, equal);
    return suite;
}

int main(int argc, char **argv)
{
    return ddp_test_run_mpi(&argc, &argv, make_suite);
}
