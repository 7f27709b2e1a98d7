#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "nn/sample.h"
#include "tests/support/ddp_test.h"

#define VOCAB 7
#define DRAWS 20000

static const float logits[VOCAB] = {0.5F, 2.0F, -1.0F, 2.0F, 1.0F, -30.0F, 0.0F};

/* softmax(logits / temperature) of those that are allowed, in float64 */
static void probabilities(double temperature, const bool *allowed, double *p)
{
    double sum = 0.0;

    for (size_t i = 0; i < VOCAB; i++) {
        p[i] = allowed[i] ? exp((double)logits[i] / temperature) : 0.0;
        sum += p[i];
    }
    for (size_t i = 0; i < VOCAB; i++) {
        p[i] /= sum;
    }
}

/* How often each token is drawn is within five standard errors of its probability. */
static void check_draws(const ddp_sample_params_t *params, const bool *allowed)
{
    size_t drawn[VOCAB] = {0};
    double p[VOCAB];

    probabilities(params->temperature, allowed, p);
    for (uint64_t i = 0; i < DRAWS; i++) {
        int32_t token = -1;

        ddp_assert_ok(ddp_sample(logits, VOCAB, params, i, &token));
        ck_assert(token >= 0 && token < VOCAB);
        drawn[token]++;
    }
    for (size_t i = 0; i < VOCAB; i++) {
        const double error = sqrt(p[i] * (1.0 - p[i]) / DRAWS);

        ck_assert_msg(fabs((double)drawn[i] / DRAWS - p[i]) <= 5.0 * error, "token %zu: %zu times, not %g", i,
                      drawn[i], p[i] * DRAWS);
    }
}

START_TEST(tokens_are_drawn_with_their_probability)
{
    static const bool   all[VOCAB] = {true, true, true, true, true, true, true};
    ddp_sample_params_t params     = DDP_SAMPLE_PARAMS_INIT;

    check_draws(&params, all);
    params.temperature = 0.5;
    params.seed        = 3;
    check_draws(&params, all);
    params.temperature = 4.0;
    params.top_k       = VOCAB + 5;
    check_draws(&params, all);
}
END_TEST

START_TEST(top_k_takes_the_largest_and_of_equals_the_first)
{
    static const bool   one[VOCAB]  = {[1] = true};
    static const bool   two[VOCAB]  = {[1] = true, [3] = true};
    static const bool   four[VOCAB] = {[0] = true, [1] = true, [3] = true, [4] = true};
    ddp_sample_params_t params      = DDP_SAMPLE_PARAMS_INIT;

    params.top_k = 1;
    check_draws(&params, one);
    params.top_k = 2;
    check_draws(&params, two);
    params.top_k       = 4;
    params.temperature = 1.7;
    check_draws(&params, four);
}
END_TEST

/* Of 500 logits with many equal ones, those that are ever drawn are the k largest, counted one by one. */
START_TEST(top_k_of_many_is_that_of_a_count)
{
    float               many[500];
    bool                is_drawn[500] = {false};
    ddp_sample_params_t params        = DDP_SAMPLE_PARAMS_INIT;

    for (size_t i = 0; i < 500; i++) {
        many[i] = (float)(i * 7919 % 101) / 50.0F;
    }
    params.top_k       = 37;
    params.temperature = 1e6; /* all the same */
    for (uint64_t i = 0; i < 2000; i++) {
        int32_t token = -1;

        ddp_assert_ok(ddp_sample(many, 500, &params, i, &token));
        is_drawn[token] = true;
    }
    for (size_t i = 0; i < 500; i++) {
        size_t before = 0;

        for (size_t j = 0; j < 500; j++) {
            before += many[j] > many[i] || (many[j] == many[i] && j < i) ? 1 : 0;
        }
        ck_assert_msg(is_drawn[i] == (before < 37), "token %zu is number %zu", i, before);
    }
}
END_TEST

/* e^2 e^2 e^1 e^0.5 e^0 e^-1 of 20.5: 0.361 0.361 0.133 0.080 ... */
START_TEST(top_p_takes_the_fewest_that_make_up_the_share)
{
    static const bool   one[VOCAB]   = {[1] = true};
    static const bool   two[VOCAB]   = {[1] = true, [3] = true};
    static const bool   three[VOCAB] = {[1] = true, [3] = true, [4] = true};
    ddp_sample_params_t params       = DDP_SAMPLE_PARAMS_INIT;

    params.top_p = 1e-9;
    check_draws(&params, one);
    params.top_p = 0.36;
    check_draws(&params, one);
    params.top_p = 0.37;
    check_draws(&params, two);
    params.top_p = 0.73;
    check_draws(&params, three);
    params.top_k = 2; /* of these two alone 0.5 is the half */
    params.top_p = 0.73;
    check_draws(&params, two);
    params.top_p = 0.49;
    check_draws(&params, one);
}
END_TEST

START_TEST(a_draw_belongs_to_seed_and_position)
{
    ddp_sample_params_t params = DDP_SAMPLE_PARAMS_INIT;
    size_t              same   = 0;
    int32_t             a = -1, b = -1;

    for (uint64_t i = 0; i < 500; i++) {
        params.seed = 1;
        ddp_assert_ok(ddp_sample(logits, VOCAB, &params, i << 33, &a));
        ddp_assert_ok(ddp_sample(logits, VOCAB, &params, i << 33, &b));
        ck_assert_int_eq(a, b);
        params.seed = 2;
        ddp_assert_ok(ddp_sample(logits, VOCAB, &params, i << 33, &b));
        same += a == b ? 1 : 0;
    }
    ck_assert_uint_lt(same, 250); /* two draws agree with probability 0.29 */
}
END_TEST

START_TEST(temperature_0_is_the_largest)
{
    ddp_sample_params_t params = DDP_SAMPLE_PARAMS_INIT;
    const float         last[] = {-3.0F, -2.0F};
    int32_t             token  = -1;

    params.temperature = 0.0;
    for (uint64_t i = 0; i < 20; i++) {
        ddp_assert_ok(ddp_sample(logits, VOCAB, &params, i, &token));
        ck_assert_int_eq(token, 1);
    }
    ddp_assert_ok(ddp_sample(last, 2, &params, 0, &token));
    ck_assert_int_eq(token, 1);
    ddp_assert_ok(ddp_sample(last, 1, &params, 0, &token));
    ck_assert_int_eq(token, 0);
}
END_TEST

START_TEST(large_logits_and_small_temperatures_do_not_overflow)
{
    ddp_sample_params_t params = DDP_SAMPLE_PARAMS_INIT;
    const float         wide[] = {-3e38F, 3e38F, 0.0F};
    int32_t             token  = -1;

    for (int i = 0; i < 3; i++) {
        params.temperature = i == 0 ? 1.0 : i == 1 ? 1e-300 : 1e30;
        ddp_assert_ok(ddp_sample(wide, 3, &params, 1, &token));
        ck_assert_int_eq(token, 1);
    }
}
END_TEST

START_TEST(what_cannot_be_drawn_from_is_refused)
{
    ddp_sample_params_t params = DDP_SAMPLE_PARAMS_INIT;
    float               bad[3] = {0.0F, 1.0F, NAN};
    int32_t             token  = -1;

    ddp_assert_fails(ddp_sample(bad, 3, &params, 0, &token), DDP_ERR_NOT_FINITE,
                     "the logit of token 2 is nan");
    bad[2] = INFINITY;
    ddp_assert_fails(ddp_sample(bad, 3, &params, 0, &token), DDP_ERR_NOT_FINITE, "token 2 is inf");
    ddp_assert_fails(ddp_sample(bad, 0, &params, 0, &token), DDP_ERR_INVALID_ARG, "a vocabulary of 0");
    params.top_p = 0.0;
    ddp_assert_fails(ddp_sample(bad, 2, &params, 0, &token), DDP_ERR_INVALID_ARG, "top_p is 0");
    params.top_p       = 1.0;
    params.temperature = -1.0;
    ddp_assert_fails(ddp_sample(bad, 2, &params, 0, &token), DDP_ERR_INVALID_ARG, "temperature is -1");
    params.temperature = (double)NAN;
    ddp_assert_fails(ddp_sample(bad, 2, &params, 0, &token), DDP_ERR_INVALID_ARG, "temperature is");
    params.struct_size = 3;
    ddp_assert_fails(ddp_sample(bad, 2, &params, 0, &token), DDP_ERR_INVALID_ARG, "DDP_SAMPLE_PARAMS_INIT");
    ck_assert_int_eq(token, -1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sample");
    TCase *tcase = tcase_create("all");

    tcase_add_test(tcase, tokens_are_drawn_with_their_probability);
    tcase_add_test(tcase, top_k_takes_the_largest_and_of_equals_the_first);
    tcase_add_test(tcase, top_k_of_many_is_that_of_a_count);
    tcase_add_test(tcase, top_p_takes_the_fewest_that_make_up_the_share);
    tcase_add_test(tcase, a_draw_belongs_to_seed_and_position);
    tcase_add_test(tcase, temperature_0_is_the_largest);
    tcase_add_test(tcase, large_logits_and_small_temperatures_do_not_overflow);
    tcase_add_test(tcase, what_cannot_be_drawn_from_is_refused);
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
