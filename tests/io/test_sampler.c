#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "io/sampler.h"
#include "tests/support/ddp_test.h"

#define MOST 60001

static unsigned char seen[MOST];

static bool is_permutation(uint64_t seed, uint64_t epoch, size_t samples)
{
    memset(seen, 0, samples);
    for (size_t i = 0; i < samples; i++) {
        const size_t index = ddp_sampler_index(seed, epoch, samples, i);

        if (index >= samples || seen[index] != 0) {
            return false;
        }
        seen[index] = 1;
    }
    return true;
}

START_TEST(every_epoch_is_a_permutation)
{
    static const size_t large[] = {1023, 1024, 1025, 4096, 10000, 60000, 60001};

    for (size_t samples = 1; samples <= 300; samples++) {
        for (uint64_t epoch = 0; epoch < 5; epoch++) {
            ck_assert_msg(is_permutation(samples % 3, epoch, samples), "%zu samples, epoch %d", samples,
                          (int)epoch);
        }
    }
    for (size_t i = 0; i < sizeof(large) / sizeof(large[0]); i++) {
        ck_assert_msg(is_permutation(1, 2, large[i]), "%zu samples", large[i]);
        ck_assert_msg(is_permutation(UINT64_MAX, UINT64_MAX, large[i]), "%zu samples", large[i]);
    }
}
END_TEST

static size_t count_equal(uint64_t seed_a, uint64_t epoch_a, uint64_t seed_b, uint64_t epoch_b)
{
    size_t equal = 0;

    for (size_t i = 0; i < 10000; i++) {
        equal += ddp_sampler_index(seed_a, epoch_a, 10000, i) == ddp_sampler_index(seed_b, epoch_b, 10000, i);
    }
    return equal;
}

START_TEST(seeds_and_epochs_give_unlike_orders_and_equal_ones_the_same)
{
    ck_assert_uint_eq(count_equal(7, 3, 7, 3), 10000);
    /* two random permutations agree in 1 position on average (Poisson) */
    ck_assert_uint_lt(count_equal(0, 0, 0, 1), 12);
    ck_assert_uint_lt(count_equal(0, 0, 1, 0), 12);
    ck_assert_uint_lt(count_equal(0, 1, 1, 0), 12);
    ck_assert_uint_lt(count_equal(0, UINT64_C(1) << 32, 0, 0), 12);
    ck_assert_uint_lt(count_equal(UINT64_C(1) << 32, 0, 0, 0), 12);
}
END_TEST

/* Values of a second implementation, in Python, of Philox and the network: a resumed run of a later version
 * must see the same order. */
START_TEST(the_order_is_the_documented_one)
{
    static const size_t first[6]  = {44950, 56854, 53547, 54890, 41666, 18934};
    static const size_t small[10] = {5, 6, 4, 9, 1, 7, 2, 3, 8, 0};
    const uint64_t      seed      = (UINT64_C(1) << 40) + 3;
    const uint64_t      epoch     = (UINT64_C(1) << 33) + 5;

    for (size_t i = 0; i < 6; i++) {
        ck_assert_uint_eq(ddp_sampler_index(1, 0, 60000, i), first[i]);
    }
    for (size_t i = 0; i < 10; i++) {
        ck_assert_uint_eq(ddp_sampler_index(7, 1, 10, i), small[i]);
    }
    ck_assert_uint_eq(ddp_sampler_index(seed, epoch, 60000, 0), 30911);
    ck_assert_uint_eq(ddp_sampler_index(seed, epoch, 60000, 59999), 51477);
}
END_TEST

/* Chi-square over the 120 orders of 5 samples: mean 119, deviation sqrt(2 * 119) = 15.4; bound at 5 of them.
 */
START_TEST(all_orders_of_a_small_set_are_equally_likely)
{
    const int epochs     = 24000;
    int       count[625] = {0}; /* by the first four values in base 5 */
    double    chi        = 0.0;
    int       orders     = 0;

    for (int epoch = 0; epoch < epochs; epoch++) {
        size_t code = 0;

        for (size_t i = 0; i < 4; i++) {
            code = 5 * code + ddp_sampler_index(5, (uint64_t)epoch, 5, i);
        }
        count[code]++;
    }
    for (size_t code = 0; code < 625; code++) {
        orders += count[code] > 0 ? 1 : 0;
        chi += count[code] > 0 ? pow(count[code] - epochs / 120.0, 2.0) / (epochs / 120.0) : 0.0;
    }
    ck_assert_int_eq(orders, 120);
    ck_assert_double_lt(chi, 119.0 + 5.0 * 15.4);
}
END_TEST

/* Where sample positions of a larger set land, in 16 bins: chi-square with 15 * 16 degrees of freedom or
 * fewer. */
START_TEST(every_position_of_a_large_set_is_uniform)
{
    const int samples       = 16000;
    int       count[16][16] = {{0}};
    double    chi           = 0.0;

    for (int epoch = 0; epoch < 4; epoch++) {
        for (int i = 0; i < samples; i++) {
            count[i / 1000][ddp_sampler_index(9, (uint64_t)epoch, (size_t)samples, (size_t)i) / 1000]++;
        }
    }
    for (int i = 0; i < 16; i++) {
        for (int j = 0; j < 16; j++) {
            chi += pow(count[i][j] - 250.0, 2.0) / 250.0;
        }
    }
    ck_assert_double_lt(chi, 225.0 + 5.0 * sqrt(2.0 * 225.0));
    ck_assert_double_gt(chi, 225.0 - 5.0 * sqrt(2.0 * 225.0)); /* not too even either */
}
END_TEST

START_TEST(batches_cover_each_epoch_and_the_last_is_short)
{
    static const size_t firsts[6] = {0, 4, 8, 0, 4, 8};
    static const size_t counts[6] = {4, 4, 2, 4, 4, 2};

    ck_assert_uint_eq(ddp_sampler_batches(10, 4), 3);
    ck_assert_uint_eq(ddp_sampler_batches(8, 4), 2);
    ck_assert_uint_eq(ddp_sampler_batches(3, 4), 1);
    for (uint64_t step = 0; step < 6; step++) {
        const ddp_batch_range_t range = ddp_sampler_batch(10, 4, step);

        ck_assert_uint_eq(range.epoch, step / 3);
        ck_assert_uint_eq(range.batch_in_epoch, step % 3);
        ck_assert_uint_eq(range.first, firsts[step]);
        ck_assert_uint_eq(range.count, counts[step]);
    }
    ck_assert_uint_eq(ddp_sampler_batch(3, 4, 5).epoch, 5);
    ck_assert_uint_eq(ddp_sampler_batch(3, 4, 5).count, 3);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sampler");
    TCase *tcase = tcase_create("all");

    tcase_add_test(tcase, every_epoch_is_a_permutation);
    tcase_add_test(tcase, seeds_and_epochs_give_unlike_orders_and_equal_ones_the_same);
    tcase_add_test(tcase, the_order_is_the_documented_one);
    tcase_add_test(tcase, all_orders_of_a_small_set_are_equally_likely);
    tcase_add_test(tcase, every_position_of_a_large_set_is_uniform);
    tcase_add_test(tcase, batches_cover_each_epoch_and_the_last_is_short);
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
