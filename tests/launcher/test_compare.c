#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/compare.h"
#include "tests/support/ddp_test.h"

static ddp_compare_t *make(void)
{
    ddp_compare_t *compare = calloc(1, sizeof(*compare));

    ck_assert_ptr_nonnull(compare);
    compare->results = calloc(DDP_COMPARE_MAX_RESULTS, sizeof(*compare->results));
    ck_assert_ptr_nonnull(compare->results);
    ddp_config_defaults(&compare->config);
    compare->config.train.batch = 100;
    return compare;
}

static void drop(ddp_compare_t *compare)
{
    ddp_compare_free(compare);
    free(compare);
}

/* A result whose steps are median - spread / 2 ... median + spread / 2, so that its quartiles are that far
 * apart. */
static ddp_compare_result_t *measured(ddp_compare_t *compare, ddp_compare_way_t way, size_t devices,
                                      double median, double spread)
{
    ddp_compare_result_t *result = ddp_compare_new(compare, way, devices);

    ck_assert_ptr_nonnull(result);
    if (devices > 1 && (compare->options.n_counts == 0 ||
                        compare->options.counts[compare->options.n_counts - 1] != devices)) {
        compare->options.counts[compare->options.n_counts++] = devices;
    }
    for (int i = -2; i <= 2; i++) { /* quartiles are the second and the fourth */
        ck_assert(ddp_compare_add(&result->step, median + i * spread / 2));
    }
    (void)snprintf(result->weights, sizeof(result->weights), "same");
    return result;
}

static ddp_compare_result_t *failed(ddp_compare_t *compare, ddp_compare_way_t way, size_t devices)
{
    ddp_compare_result_t *result = measured(compare, way, devices, 1, 0);

    result->step.n = 0;
    (void)snprintf(result->error, sizeof(result->error), "exit status 1: no room");
    return result;
}

/* All reasons in one text. */
static const char *conclude(ddp_compare_t *compare)
{
    static char all[DDP_COMPARE_MAX_NOTES * DDP_COMPARE_LINE];
    size_t      used = 0;

    ddp_compare_derive(compare);
    ddp_compare_verdict(compare);
    all[0] = '\0';
    for (size_t i = 0; i < compare->n_reasons; i++) {
        used += (size_t)snprintf(all + used, sizeof(all) - used, "%s\n", compare->reasons[i]);
    }
    return all;
}

static void assert_says(const char *text, const char *wanted)
{
    ck_assert_msg(strstr(text, wanted) != NULL, "'%s' is not in '%s'", wanted, text);
}

START_TEST(median_and_quartiles_interpolate_as_numpy_does)
{
    /* numpy.percentile([4, 1, 7, 2], [25, 50, 75]) is [1.75, 3, 4.75] */
    static const double  values[] = {4, 1, NAN, 7, 2};
    ddp_compare_series_t series   = {0};
    ddp_compare_spread_t spread   = ddp_compare_spread(&series);

    ck_assert(isnan(spread.median) && isnan(spread.q1) && isnan(spread.q3) && spread.n == 0);
    ck_assert(ddp_compare_add(&series, 5));
    spread = ddp_compare_spread(&series);
    ck_assert(spread.median == 5 && spread.q1 == 5 && spread.q3 == 5);
    series.n = 0;
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        ck_assert(ddp_compare_add(&series, values[i]));
    }
    spread = ddp_compare_spread(&series);
    ck_assert(spread.n == 4 && spread.median == 3 && spread.q1 == 1.75 && spread.q3 == 4.75);
    free(series.value);
}
END_TEST

START_TEST(many_values_are_all_kept)
{
    ddp_compare_series_t series = {0};

    for (int i = 1000; i >= 0; i--) {
        ck_assert(ddp_compare_add(&series, i));
    }
    ck_assert_double_eq(ddp_compare_spread(&series).median, 500);
    ck_assert_double_eq(ddp_compare_spread(&series).q3, 750);
    free(series.value);
}
END_TEST

START_TEST(speedup_efficiency_and_imbalance_follow_from_one_device)
{
    ddp_compare_t        *compare = make();
    ddp_compare_result_t *dp;

    (void)measured(compare, DDP_COMPARE_ONE, 1, 10, 0);
    dp = measured(compare, DDP_COMPARE_DP, 3, 5, 0);
    for (size_t d = 0; d < 3; d++) {
        dp->device[d].total   = d == 0 ? 60 : 20 + 10 * (double)d; /* the others: 30, 40 */
        dp->device[d].busy_ms = d == 0 ? 4 : 2;
    }
    (void)snprintf(dp->weights, sizeof(dp->weights), "other");
    ddp_compare_derive(compare);
    ck_assert_double_eq_tol(dp->speedup, 2, 1e-12);
    ck_assert_double_eq_tol(dp->efficiency, 2.0 / 3, 1e-12);
    ck_assert_double_eq_tol(dp->samples_per_s, 20000, 1e-9);
    ck_assert_double_eq_tol(dp->memory_ratio, 60.0 / 35, 1e-12);
    ck_assert_double_eq_tol(dp->busy_ratio, 2, 1e-12);
    ck_assert(!dp->is_equal);
    ck_assert(compare->results[0].is_equal && compare->results[0].speedup == 1);
    drop(compare);
}
END_TEST

START_TEST(numbers_are_short_and_a_nan_is_a_dash)
{
    char text[DDP_CELL];

    ck_assert_str_eq(ddp_cell_ms(NAN, text), "-");
    ck_assert_str_eq(ddp_cell_ms(1.234, text), "1.23");
    ck_assert_str_eq(ddp_cell_ms(9.996, text), "10.0");
    ck_assert_str_eq(ddp_cell_ms(1234.5, text), "1234");
    ck_assert_str_eq(ddp_cell_bytes(NAN, text), "-");
    ck_assert_str_eq(ddp_cell_bytes(0, text), "0 B");
    ck_assert_str_eq(ddp_cell_bytes(1536, text), "1.5 KiB");
    ck_assert_str_eq(ddp_cell_bytes(1023.0 * 1024 * 1024, text), "1.0 GiB");
    ck_assert_str_eq(ddp_cell_bytes(512.0 * 1024 * 1024, text), "512 MiB");
}
END_TEST

START_TEST(ddp_faster_everywhere_is_ddp_from_two_devices_on)
{
    ddp_compare_t *compare = make();
    const char    *reasons;

    (void)measured(compare, DDP_COMPARE_ONE, 1, 10, 0.2);
    (void)measured(compare, DDP_COMPARE_DP, 2, 8, 0.2);
    (void)measured(compare, DDP_COMPARE_DDP, 2, 5, 0.2);
    (void)measured(compare, DDP_COMPARE_DP, 4, 7, 0.2);
    (void)measured(compare, DDP_COMPARE_DDP, 4, 2.5, 0.2);
    reasons = conclude(compare);
    ck_assert_str_eq(compare->headline, "Use DDP, from 2 devices on");
    assert_says(reasons, "2 devices: DDP is 1.60 times as fast: a step takes 5.00 ms instead of 8.00 ms.");
    assert_says(reasons, "4 devices: DDP is 2.80 times as fast");
    assert_says(reasons, "the fastest, DDP on 4 ranks, is 4.00 times as fast: 100 %");
    assert_says(reasons, "All 5 of them end with the same weights, bit for bit");
    drop(compare);
}
END_TEST

START_TEST(ddp_faster_from_four_devices_on_lets_dataparallel_do_for_two)
{
    ddp_compare_t *compare = make();
    const char    *reasons;

    (void)measured(compare, DDP_COMPARE_ONE, 1, 10, 0.2);
    (void)measured(compare, DDP_COMPARE_DP, 2, 5.6, 0.2);
    (void)measured(compare, DDP_COMPARE_DDP, 2, 5.5, 0.3);
    (void)measured(compare, DDP_COMPARE_DP, 4, 5, 0.2);
    (void)measured(compare, DDP_COMPARE_DDP, 4, 3, 0.2);
    reasons = conclude(compare);
    ck_assert_str_eq(compare->headline, "Use DDP from 4 devices on; for fewer DataParallel may do");
    assert_says(reasons,
                "2 devices: no difference that this measurement can see: a step of DataParallel takes "
                "5.60 ms, of DDP 5.50 ms, and the middle half of the steps spreads over 0.30 ms.");
    drop(compare);
}
END_TEST

START_TEST(a_difference_within_the_spread_is_none)
{
    ddp_compare_t *compare = make();

    (void)measured(compare, DDP_COMPARE_ONE, 1, 10, 0.2);
    (void)measured(compare, DDP_COMPARE_DP, 2, 6, 0.5);
    (void)measured(compare, DDP_COMPARE_DDP, 2, 5.5, 0.1);
    (void)conclude(compare);
    ck_assert_str_eq(compare->headline,
                     "Either way will do: on 2 devices there is no difference that this measurement can see");
    drop(compare);
    compare = make(); /* and a little more than the spread is one */
    (void)measured(compare, DDP_COMPARE_ONE, 1, 10, 0.2);
    (void)measured(compare, DDP_COMPARE_DP, 2, 6, 0.4);
    (void)measured(compare, DDP_COMPARE_DDP, 2, 5.5, 0.1);
    (void)conclude(compare);
    ck_assert_str_eq(compare->headline, "Use DDP, from 2 devices on");
    drop(compare);
}
END_TEST

START_TEST(a_busy_machine_is_noticed)
{
    ddp_compare_t *compare = make();

    (void)measured(compare, DDP_COMPARE_ONE, 1, 10, 2.4);
    (void)measured(compare, DDP_COMPARE_DP, 2, 6, 0.1);
    (void)measured(compare, DDP_COMPARE_DDP, 2, 5.5, 0.1);
    ck_assert_ptr_null(strstr(conclude(compare), "something else"));
    drop(compare);
    compare = make();
    (void)measured(compare, DDP_COMPARE_ONE, 1, 10, 2.6);
    (void)measured(compare, DDP_COMPARE_DP, 2, 6, 0.1);
    (void)measured(compare, DDP_COMPARE_DDP, 2, 5.5, 0.1);
    assert_says(conclude(compare), "spreads over up to 26 % of their median: something else runs on");
    drop(compare);
}
END_TEST

START_TEST(dataparallel_faster_is_said_too)
{
    ddp_compare_t *compare = make();

    (void)measured(compare, DDP_COMPARE_ONE, 1, 10, 0.2);
    (void)measured(compare, DDP_COMPARE_DP, 2, 5, 0.2);
    (void)measured(compare, DDP_COMPARE_DDP, 2, 6, 0.2);
    assert_says(conclude(compare),
                "2 devices: DataParallel is 1.20 times as fast: a step takes 5.00 ms instead of 6.00 ms.");
    ck_assert_str_eq(compare->headline, "Use DataParallel: on 2 devices it was the faster way");
    drop(compare);
}
END_TEST

START_TEST(nothing_faster_than_one_device_is_one_device)
{
    ddp_compare_t *compare = make();
    const char    *reasons;

    (void)measured(compare, DDP_COMPARE_ONE, 1, 10, 0.2);
    (void)measured(compare, DDP_COMPARE_DP, 2, 14, 0.2);
    (void)measured(compare, DDP_COMPARE_DDP, 2, 11, 0.2);
    reasons = conclude(compare);
    ck_assert_str_eq(compare->headline,
                     "Use one device: on up to 2 devices nothing was faster by more than the spread");
    assert_says(reasons,
                "A step of one device takes 10.0 ms, of the fastest with more of them, DDP on 2 ranks, "
                "11.0 ms.");
    drop(compare);
}
END_TEST

START_TEST(more_devices_than_cores_do_not_decide)
{
    ddp_compare_t *compare = make();
    const char    *reasons;

    compare->room = 2;
    (void)measured(compare, DDP_COMPARE_ONE, 1, 10, 0.2);
    (void)measured(compare, DDP_COMPARE_DP, 2, 5, 0.2);
    (void)measured(compare, DDP_COMPARE_DDP, 2, 6, 0.2);
    (void)measured(compare, DDP_COMPARE_DP, 4, 8, 0.2);
    (void)measured(compare, DDP_COMPARE_DDP, 4, 4, 0.2);
    reasons = conclude(compare);
    ck_assert_str_eq(compare->headline, "Use DataParallel: on 2 devices it was the faster way");
    assert_says(reasons, "4 devices: DDP is 2.00 times as fast");
    assert_says(reasons, "the fastest, DataParallel on 2 devices, is 2.00 times as fast");
    compare->room = 1; /* none of them has a core for each device */
    (void)conclude(compare);
    ck_assert_str_eq(compare->headline, "Use DDP from 4 devices on; for fewer DataParallel may do");
    drop(compare);
}
END_TEST

START_TEST(memory_of_device_0_as_the_limit_is_told_with_numbers)
{
    ddp_compare_t        *compare = make();
    ddp_compare_result_t *dp;
    ddp_compare_result_t *ddp;
    const char           *reasons;
    const double          mib = 1048576;

    (void)measured(compare, DDP_COMPARE_ONE, 1, 10, 0.2);
    dp  = measured(compare, DDP_COMPARE_DP, 2, 8, 0.2);
    ddp = measured(compare, DDP_COMPARE_DDP, 2, 5, 0.2);
    for (size_t d = 0; d < 2; d++) {
        dp->device[d].total  = (d == 0 ? 300 : 120) * mib;
        ddp->device[d].total = (d == 0 ? 140 : 150) * mib;
    }
    reasons = conclude(compare);
    assert_says(reasons,
                "With DataParallel device 0 is the limit: of 2 devices it holds 300 MiB, 2.5 times as "
                "much as the others do in the mean.");
    assert_says(reasons, "Where memory is the limit, use DDP: its fullest rank holds 150 MiB where "
                         "DataParallel's device 0 holds 300 MiB.");
    for (size_t d = 0; d < 2; d++) {
        dp->device[d].total = 150 * mib;
    }
    ck_assert_ptr_null(strstr(conclude(compare), "limit"));
    drop(compare);
}
END_TEST

START_TEST(what_failed_is_named_and_the_rest_is_judged)
{
    ddp_compare_t *compare = make();
    const char    *reasons;

    (void)measured(compare, DDP_COMPARE_ONE, 1, 10, 0.2);
    (void)measured(compare, DDP_COMPARE_DP, 2, 6, 0.2);
    (void)measured(compare, DDP_COMPARE_DDP, 2, 5.9, 0.2);
    (void)failed(compare, DDP_COMPARE_DP, 4);
    (void)measured(compare, DDP_COMPARE_DDP, 4, 3, 0.2);
    reasons = conclude(compare);
    ck_assert_str_eq(compare->headline, "Use DDP from 4 devices on; for fewer DataParallel may do");
    assert_says(reasons, "4 devices: DataParallel could not be measured (exit status 1: no room).");
    assert_says(reasons, "All 4 of them end with the same weights");
    drop(compare);
    compare = make();
    (void)failed(compare, DDP_COMPARE_ONE, 1);
    (void)measured(compare, DDP_COMPARE_DP, 2, 6, 0.2);
    (void)failed(compare, DDP_COMPARE_DDP, 2);
    reasons = conclude(compare);
    ck_assert_str_eq(compare->headline, "Use DataParallel for 2 devices: DDP could not be measured");
    assert_says(reasons,
                "One device could not be measured (exit status 1: no room): there are no speed-ups.");
    drop(compare);
    compare = make();
    (void)failed(compare, DDP_COMPARE_ONE, 1);
    (void)failed(compare, DDP_COMPARE_DP, 2);
    (void)failed(compare, DDP_COMPARE_DDP, 2);
    (void)conclude(compare);
    ck_assert_str_eq(compare->headline, "No verdict: nothing could be measured on more than one device");
    drop(compare);
}
END_TEST

START_TEST(weights_that_differ_are_named)
{
    ddp_compare_t        *compare = make();
    ddp_compare_result_t *ddp;

    (void)measured(compare, DDP_COMPARE_ONE, 1, 10, 0.2);
    (void)measured(compare, DDP_COMPARE_DP, 2, 6, 0.2);
    ddp = measured(compare, DDP_COMPARE_DDP, 2, 5, 0.2);
    (void)snprintf(ddp->weights, sizeof(ddp->weights), "other");
    assert_says(conclude(compare),
                "The weights of 1 of these 3 differ from those of one device (the first: DDP on 2 ranks)");
    drop(compare);
}
END_TEST

START_TEST(weights_that_change_from_round_to_round_are_equal_to_none)
{
    ddp_compare_t        *compare = make();
    ddp_compare_result_t *one     = measured(compare, DDP_COMPARE_ONE, 1, 10, 0.2);
    ddp_compare_result_t *dp      = measured(compare, DDP_COMPARE_DP, 2, 6, 0.2);

    (void)measured(compare, DDP_COMPARE_DDP, 2, 5, 0.2);
    (void)snprintf(one->weights, sizeof(one->weights), DDP_COMPARE_UNSTEADY);
    (void)snprintf(dp->weights, sizeof(dp->weights), DDP_COMPARE_UNSTEADY);
    assert_says(conclude(compare), "The weights of 3 of these 3 differ from those of one device");
    ck_assert(!dp->is_equal);
    drop(compare);
}
END_TEST

/* Write a run's metrics.jsonl. */
static void write_metrics(const char *folder, const char *text)
{
    char  path[300];
    FILE *file;

    (void)snprintf(path, sizeof(path), "%s/metrics.jsonl", folder);
    file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_ge(fputs(text, file), 0);
    ck_assert_int_eq(fclose(file), 0);
}

#define STEP(n, ms)                                                                                          \
    "{\"event\":\"step\",\"step\":" #n ",\"step_ms\":" #ms ",\"exposed_comm_ms\":3,\"comm_ms\":2,"           \
    "\"phases_ms\":{\"forward\":4,\"backward\":5}}\n"
#define START                                                                                                \
    "{\"event\":\"start\",\"hosts\":[\"a\",\"b\"],\"isa\":\"avx2\",\"data\":\"d<\",\"parameters\":7,"        \
    "\"config\":{\"model.kind\":\"mlp\"}}\n"
#define TRACE                                                                                                \
    "{\"event\":\"trace\",\"spans\":[[\"forward\",0,0,1500],[\"forward\",1,100,900],[\"x\",2,0,1],"          \
    "[\"x\",-1,0,1],[3,0,0,1],[\"x\",0,5,1],7]}\n"
#define END                                                                                                  \
    "{\"event\":\"end\",\"weights\":\"abc\",\"device_busy_ms\":[8,9],\"moved_bytes\":{\"a\":5,\"b\":6},"     \
    "\"links\":[[0,1,5],[1,0,6],[0,99,1],[0,-1,1],[0]],\"device_memory_bytes\":["                            \
    "{\"parameters\":1,\"gradients\":2,\"moments\":3,\"activations\":4,\"outputs\":5,\"scratch\":6,"         \
    "\"inputs\":7,\"total\":28,\"peak\":30},{\"parameters\":1,\"total\":9}]}\n"

START_TEST(a_run_is_read_as_its_metrics_tell)
{
    ddp_compare_t        *compare  = make();
    ddp_compare_result_t *result   = ddp_compare_new(compare, DDP_COMPARE_DP, 2);
    char                  folder[] = "/tmp/ddp-compare-XXXXXX";
    char                  path[64];

    ck_assert_ptr_nonnull(mkdtemp(folder));
    (void)snprintf(path, sizeof(path), "%s/metrics.jsonl", folder);
    write_metrics(folder, START STEP(1, 90) STEP(2, 80) STEP(3, 10) STEP(4, 12) TRACE END);
    ddp_assert_ok(ddp_compare_read(folder, 2, compare, result));
    ck_assert_uint_eq(result->step.n, 2); /* two are left out */
    ddp_compare_derive(compare);
    ck_assert_double_eq(result->spread.median, 11);
    ck_assert_double_eq(result->exposed_ms, 3);
    ck_assert(isnan(result->data_ms));
    ck_assert_uint_eq(result->n_phases, 2);
    ck_assert_str_eq(result->phases[1].name, "backward");
    ck_assert_double_eq(result->phases[1].ms, 5);
    ck_assert_double_eq(result->moved_bytes, 11);
    ck_assert_uint_eq(result->n_links, 2);
    ck_assert(result->links[1].from == 1 && result->links[1].to == 0 && result->links[1].bytes == 6);
    ck_assert_uint_eq(result->n_spans, 2);
    ck_assert(result->spans[1].device == 1 && result->spans[1].end_ms == 0.9);
    ck_assert_double_eq(result->device[0].bytes[DDP_COMPARE_OTHER], 13);
    ck_assert_double_eq(result->device[0].peak, 30);
    ck_assert_double_eq(result->device[1].peak, 9);
    ck_assert(isnan(result->device[1].bytes[DDP_COMPARE_MOMENTS]));
    ck_assert_double_eq(result->device[1].busy_ms, 9);
    ck_assert_str_eq(result->weights, "abc");
    ck_assert_str_eq(compare->title, "mlp on d<");
    ck_assert_str_eq(compare->host, "a");
    ck_assert_int_eq(remove(path), 0);
    ck_assert_int_eq(remove(folder), 0);
    drop(compare);
}
END_TEST

START_TEST(a_run_that_breaks_off_or_is_none_is_an_error)
{
    ddp_compare_t        *compare  = make();
    ddp_compare_result_t *result   = ddp_compare_new(compare, DDP_COMPARE_DDP, 2);
    char                  folder[] = "/tmp/ddp-compare-XXXXXX";
    char                  path[64];

    ck_assert_ptr_nonnull(mkdtemp(folder));
    (void)snprintf(path, sizeof(path), "%s/metrics.jsonl", folder);
    ddp_assert_fails(ddp_compare_read(folder, 0, compare, result), DDP_ERR_IO, "no such file");
    write_metrics(folder, "");
    ddp_assert_fails(ddp_compare_read(folder, 0, compare, result), DDP_ERR_FORMAT, "breaks off");
    write_metrics(folder, START STEP(1, 5));
    ddp_assert_fails(ddp_compare_read(folder, 0, compare, result), DDP_ERR_FORMAT, "breaks off");
    write_metrics(folder, START "{\"event\":\"st");
    ddp_assert_fails(ddp_compare_read(folder, 0, compare, result), DDP_ERR_FORMAT, "a line is no event");
    write_metrics(folder, START "[1]\n" END);
    ddp_assert_fails(ddp_compare_read(folder, 0, compare, result), DDP_ERR_FORMAT, "a line is no event");
    ck_assert_int_eq(remove(path), 0);
    ck_assert_int_eq(remove(folder), 0);
    drop(compare);
}
END_TEST

static ddp_status_t parse(ddp_compare_options_t *options, char *a, char *b, char *c, char *d)
{
    char *argv[] = {"compare", a, b, c, d, NULL};
    int   argc   = 1;

    while (argv[argc] != NULL) {
        argc++;
    }
    return ddp_compare_options_parse(argc, argv, options);
}

START_TEST(devices_are_sorted_and_one_is_always_there)
{
    ddp_compare_options_t options;

    ddp_assert_ok(parse(&options, "--devices", "4,1,2", "run.yaml", "--steps=9"));
    ck_assert_uint_eq(options.n_counts, 2);
    ck_assert(options.counts[0] == 2 && options.counts[1] == 4 && options.steps == 9);
    ck_assert_str_eq(options.run.file, "run.yaml");
    ck_assert(options.warmup == 3 && options.rounds == 2 && options.timeout_s == 120);
}
END_TEST

START_TEST(wrong_options_are_one_line)
{
    static const struct {
        char *option, *value;
        char *text;
    } wrong[] = {
        {"--devices", "1", "there is nothing to compare with one device"},
        {"--devices", "", "numbers of devices from 1 to 64 are expected, as in 1,2,4"},
        {"--devices", "1,2,", "numbers of devices from 1 to 64 are expected"},
        {"--devices", "2,0", "numbers of devices from 1 to 64 are expected"},
        {"--devices", "2,65", "numbers of devices from 1 to 64 are expected"},
        {"--devices", "2;4", "numbers of devices from 1 to 64 are expected"},
        {"--devices", "-2", "numbers of devices from 1 to 64 are expected"},
        {"--devices", "2,4,2", "2 twice"},
        {"--devices", "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18", "more than 16 numbers"},
        {"--steps", "0", "a whole number from 1"},
        {"--steps", "1e3", "a whole number from 1"},
        {"--steps", "3", "leaves none after a warm-up of 3 steps"},
        {"--rounds", "0", "a whole number from 1 to 1000"},
        {"--timeout", "soon", "--timeout 'soon': a time is expected"},
        {"--out", "", "--out needs the name of a folder"},
        {"--stepz", "3", "did you mean '--steps'?"},
    };
    ddp_compare_options_t options;

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        ddp_assert_fails(parse(&options, wrong[i].option, wrong[i].value, NULL, NULL), DDP_ERR_CONFIG,
                         wrong[i].text);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("compare");
    TCase *tcase = tcase_create("all");

    tcase_add_test(tcase, median_and_quartiles_interpolate_as_numpy_does);
    tcase_add_test(tcase, many_values_are_all_kept);
    tcase_add_test(tcase, speedup_efficiency_and_imbalance_follow_from_one_device);
    tcase_add_test(tcase, numbers_are_short_and_a_nan_is_a_dash);
    tcase_add_test(tcase, ddp_faster_everywhere_is_ddp_from_two_devices_on);
    tcase_add_test(tcase, ddp_faster_from_four_devices_on_lets_dataparallel_do_for_two);
    tcase_add_test(tcase, a_difference_within_the_spread_is_none);
    tcase_add_test(tcase, a_busy_machine_is_noticed);
    tcase_add_test(tcase, dataparallel_faster_is_said_too);
    tcase_add_test(tcase, nothing_faster_than_one_device_is_one_device);
    tcase_add_test(tcase, more_devices_than_cores_do_not_decide);
    tcase_add_test(tcase, memory_of_device_0_as_the_limit_is_told_with_numbers);
    tcase_add_test(tcase, what_failed_is_named_and_the_rest_is_judged);
    tcase_add_test(tcase, weights_that_differ_are_named);
    tcase_add_test(tcase, weights_that_change_from_round_to_round_are_equal_to_none);
    tcase_add_test(tcase, a_run_is_read_as_its_metrics_tell);
    tcase_add_test(tcase, a_run_that_breaks_off_or_is_none_is_an_error);
    tcase_add_test(tcase, devices_are_sorted_and_one_is_always_there);
    tcase_add_test(tcase, wrong_options_are_one_line);
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
