/* When buckets were ready, launched and done, and who was waited for. */
#include <string.h>

#include "base/clock.h"
#include "tests/ddp/toy.h"
#include "tests/support/ddp_test.h"

#define MOST    16       /* buckets */
#define DELAY   20000000 /* ns that toy.c lets a rank sleep; in the even steps before forward */
#define ALMOST  (DELAY * 3 / 4)
#define DELAYED 1

static void open_toy(toy_t *toy, int delayed, float clip_norm)
{
    toy_params_t params = TOY_PARAMS_INIT;

    params.rank_to_delay             = delayed;
    params.reducer.bucket_cap_bytes  = 1024;
    params.reducer.tail_bucket_bytes = 0;
    params.reducer.clip_norm         = clip_norm;
    ddp_assert_all(toy_create(&params, toy) == DDP_OK);
}

START_TEST(a_bucket_is_ready_then_launched_then_done)
{
    for (int clip = 0; clip < 2; clip++) {
        ddp_bucket_times_t times[MOST];
        ddp_step_result_t  result;
        toy_t              toy;
        size_t             n = 0;

        open_toy(&toy, -1, clip != 0 ? 0.5F : 0.0F);
        for (size_t samples = 64; samples > 0; samples /= 8) { /* with one sample most ranks have nothing */
            const int64_t start = ddp_clock_ns();
            int64_t       passed;
            bool          ordered = true;

            ddp_assert_all(toy_step(&toy, 0.1F, samples, NULL, &result) == DDP_OK);
            passed = ddp_clock_ns() - start;
            n      = ddp_reducer_bucket_times(toy.reducer, times, MOST);
            for (size_t b = 0; b < n; b++) {
                ordered = ordered && times[b].ready_ns >= 0 && times[b].launched_ns >= times[b].ready_ns &&
                          times[b].done_ns >= times[b].launched_ns && times[b].done_ns <= passed &&
                          (b == 0 || (times[b].ready_ns >= times[b - 1].ready_ns &&
                                      times[b].launched_ns >= times[b - 1].launched_ns &&
                                      times[b].done_ns >= times[b - 1].done_ns));
            }
            ddp_assert_all(ordered);
            ddp_assert_all(result.exposed_comm_ns >= 0 && result.exposed_comm_ns <= passed);
            ddp_assert_all(result.spread_ns >= 0);
        }
        ddp_assert_all(n == 6);
        memset(times, 0x5a, sizeof(times));
        ddp_assert_all(ddp_reducer_bucket_times(toy.reducer, times, 2) == 6);
        ddp_assert_all(times[2].ready_ns == INT64_C(0x5a5a5a5a5a5a5a5a));
        toy_destroy(&toy);
    }
}
END_TEST

/* Does this step's result tell of the rank that slept? */
static bool tells(const toy_t *toy, const ddp_step_result_t *result)
{
    const bool         is_late  = ddp_comm_rank(toy->comm) == DELAYED;
    const bool         is_alone = ddp_comm_local_size(toy->comm) == 1; /* others' gradients come by wire */
    ddp_bucket_times_t times[MOST];

    ddp_reducer_bucket_times(toy->reducer, times, MOST);
    if (is_alone && (result->slowest_rank != ddp_comm_rank(toy->comm) || result->spread_ns != 0)) {
        return false;
    }
    if (!is_alone && (result->slowest_rank != DELAYED || result->spread_ns < ALMOST)) {
        return false;
    }
    if (is_late) {
        return times[0].ready_ns >= ALMOST;
    }
    return times[0].done_ns >= ALMOST && result->exposed_comm_ns >= ALMOST &&
           (is_alone || times[0].launched_ns - times[0].ready_ns >= ALMOST);
}

/* A busy machine delays the others too: once in many steps they are on time. */
START_TEST(a_rank_that_was_waited_for_is_named)
{
    ddp_step_result_t result;
    toy_t             toy;
    bool              was_told = false;

    open_toy(&toy, DELAYED, 0.0F);
    for (int s = 0; s < 200 && ddp_comm_size(toy.comm) > DELAYED && !ddp_test_all(was_told); s++) {
        ddp_assert_all(toy_step(&toy, 0.1F, 64, NULL, &result) == DDP_OK);
        was_told = was_told || (toy.step % 2 == 0 && tells(&toy, &result));
    }
    ddp_assert_all(was_told || ddp_comm_size(toy.comm) <= DELAYED);
    toy_destroy(&toy);
}
END_TEST

/* Eight micro-batches: on three ranks of one machine 0-1 2 | 3 4-5 | 6-7, so 2, 2 and 1 open subtrees, of
 * which each owner reads its slice; between machines the partial sums of the other's half go one way, totals
 * of the own half the other. */
START_TEST(traffic_is_what_owners_take_from_others)
{
    static const uint64_t subtrees[3][3] = {{1}, {1, 1}, {2, 2, 1}};
    uint64_t              from[3]        = {9, 9, 9};
    uint64_t              all[3][3]      = {{0}};
    ddp_step_result_t     result;
    toy_t                 toy;
    bool                  is_right = true;

    open_toy(&toy, -1, 0.0F);
    ddp_assert_all(toy_step(&toy, 0.1F, 64, NULL, &result) == DDP_OK);
    ddp_reducer_traffic(toy.reducer, from);
    ddp_assert_all(ddp_comm_allgather(toy.comm, from, sizeof(from), all) == DDP_OK);
    for (int r = 0; r < ddp_comm_size(toy.comm);
         r++) { /* of whose gradients everything but his slice is read */
        const int      size  = ddp_comm_size(toy.comm);
        const uint64_t bytes = toy.total * sizeof(float);
        uint64_t       taken = 0;

        for (int me = 0; me < size; me++) {
            taken += all[me][r];
            is_right = is_right && (all[me][r] == 0) == (me == r);
        }
        if (ddp_comm_machines(toy.comm) > 1) {
            is_right = is_right && taken == bytes;
        } else {
            is_right = is_right && taken <= subtrees[size - 1][r] * bytes &&
                       taken % subtrees[size - 1][r] == 0 && (size == 1 || 3 * taken >= bytes);
        }
    }
    if (ddp_comm_size(toy.comm) == 2 && ddp_comm_machines(toy.comm) == 1) {
        is_right = is_right && all[0][1] + all[1][0] == toy.total * sizeof(float);
    }
    if (ddp_comm_size(toy.comm) == 3) {
        is_right = is_right && all[1][0] == 2 * all[1][2] && all[0][1] == 2 * all[0][2] &&
                   all[2][0] == all[2][1] &&
                   all[0][2] + all[1][2] + all[2][0] / 2 == toy.total * sizeof(float);
    }
    ddp_assert_all(is_right);
    toy_destroy(&toy);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("reducer times");
    TCase *tcase = tcase_create("steps");

    tcase_add_test(tcase, a_bucket_is_ready_then_launched_then_done);
    tcase_add_test(tcase, a_rank_that_was_waited_for_is_named);
    tcase_add_test(tcase, traffic_is_what_owners_take_from_others);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    return ddp_test_run_mpi(&argc, &argv, make_suite);
}
