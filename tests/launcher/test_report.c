#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launcher/json_lines.h"
#include "launcher/report.h"
#include "tests/support/ddp_test.h"

static ddp_report_run_t *run; /* of the test that runs */

static void set_up(void)
{
    run = calloc(1, sizeof(*run));
    ck_assert_ptr_nonnull(run);
    run->total_steps = NAN;
    run->newest_step = NAN;
    (void)snprintf(run->folder, sizeof(run->folder), "runs/x");
}

static void tear_down(void)
{
    ddp_report_free(run);
    free(run);
}

static ddp_status_t take(const char *text)
{
    ddp_status_t status;
    cJSON       *event = cJSON_Parse(text);

    ck_assert_msg(event != NULL, "no JSON: %s", text);
    status = ddp_report_take(event, run);
    cJSON_Delete(event);
    return status;
}

static bool is_noted(const char *text)
{
    for (size_t i = 0; i < run->n_notes; i++) {
        if (strstr(run->notes[i], text) != NULL) {
            return true;
        }
    }
    return false;
}

START_TEST(few_values_stay_as_they_are)
{
    static ddp_series_t series;

    for (int i = 1; i <= DDP_SERIES_POINTS; i++) {
        ddp_series_add(&series, i, 2.0 * i);
    }
    ddp_series_add(&series, 1000, NAN);
    ddp_series_add(&series, 1000, INFINITY);
    ck_assert_uint_eq(series.n, DDP_SERIES_POINTS);
    ck_assert_uint_eq(series.per_point, 1);
    ck_assert_double_eq(series.last_x, DDP_SERIES_POINTS);
    ck_assert_double_eq(ddp_series_at(&series, 7.5), 14);
    ck_assert_double_eq(ddp_series_at(&series, 1e9), 2.0 * DDP_SERIES_POINTS);
    ck_assert(isnan(ddp_series_at(&series, 0.5)));
    ck_assert_double_eq(ddp_series_median(&series), DDP_SERIES_POINTS + 1);
}
END_TEST

START_TEST(many_values_share_points_and_none_is_lost)
{
    static ddp_series_t series;
    const size_t        many = 100003;
    double              sum  = 0;
    size_t              n    = 0;

    for (size_t i = 1; i <= many; i++) {
        ddp_series_add(&series, (double)i, i == 77777 ? -5 : (double)(i % 10));
    }
    ck_assert_uint_le(series.n, DDP_SERIES_POINTS);
    ck_assert_uint_ge(series.n, DDP_SERIES_POINTS / 2);
    for (size_t i = 0; i < series.n; i++) {
        const ddp_series_point_t *point = &series.point[i];

        ck_assert_double_eq(point->first_x, (double)(n + 1));
        n += point->n;
        sum += point->sum;
        ck_assert_double_eq(point->last_x, (double)n);
        ck_assert_double_eq(point->most, point->n >= 10 ? 9 : point->most);
    }
    ck_assert_uint_eq(n, many);
    ck_assert_uint_eq(series.count, many);
    /* the digits of 1 .. 100003, but that -5 stands for a 7 */
    ck_assert_double_eq(sum, 450000.0 + 1 + 2 + 3 - 12);
    ck_assert_double_eq(series.least, -5);
    ck_assert_double_eq(series.best_x, 77777);
}
END_TEST

START_TEST(lines_that_are_no_json_are_told_apart_and_half_a_line_is_cut)
{
    static const char text[]    = "{\"a\": 1}\r\n\n{\"a\": 2\n{\"a\": NaN}\n{} x\n[1]\n{\"a\": 3}\0\n{\"a\"";
    char              path[]    = "/tmp/ddp_lines_XXXXXX";
    const int         fd        = mkstemp(path);
    const bool        is_good[] = {true, false, false, false, false, true, false, false};
    ddp_json_lines_t *lines     = NULL;
    ddp_json_line_t   line;
    bool              is_end = false;

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, text, sizeof(text) - 1), sizeof(text) - 1);
    ck_assert_int_eq(close(fd), 0);
    ddp_assert_ok(ddp_json_lines_open(path, &lines));
    for (size_t i = 0; i < sizeof(is_good) / sizeof(is_good[0]); i++) {
        ddp_assert_ok(ddp_json_lines_next(lines, &line, &is_end));
        ck_assert(!is_end);
        ck_assert_uint_eq(line.number, i + 1);
        ck_assert_msg((line.json != NULL) == is_good[i], "line %zu", i + 1);
        ck_assert(line.is_cut == (i == 7));
        cJSON_Delete(line.json);
    }
    ddp_assert_ok(ddp_json_lines_next(lines, &line, &is_end));
    ck_assert(is_end);
    ddp_json_lines_close(&lines);
    ddp_json_lines_close(&lines);
    ck_assert_int_eq(unlink(path), 0);
    ddp_assert_fails(ddp_json_lines_open(path, &lines), DDP_ERR_IO, "no such file");
    ddp_assert_fails(ddp_json_lines_open("/dev/zero", &lines), DDP_ERR_IO, "not a regular file");
}
END_TEST

START_TEST(long_lines_are_read_whole_and_too_long_ones_left_out)
{
    char              path[] = "/tmp/ddp_lines_XXXXXX";
    FILE             *file   = fdopen(mkstemp(path), "w");
    ddp_json_lines_t *lines  = NULL;
    ddp_json_line_t   line;
    bool              is_end = false;

    ck_assert_ptr_nonnull(file);
    fprintf(file, "\"%*s\"\n", 3000000, "x");
    fputc('"', file);
    for (size_t i = 0; i < DDP_JSON_LINE_BYTES + 5000000; i += 1000000) {
        fprintf(file, "%*s", 1000000, "x");
    }
    fputs("\"\n17\n", file);
    ck_assert_int_eq(fclose(file), 0);
    ddp_assert_ok(ddp_json_lines_open(path, &lines));
    ddp_assert_ok(ddp_json_lines_next(lines, &line, &is_end));
    ck_assert_ptr_nonnull(line.json);
    ck_assert_uint_eq(strlen(cJSON_GetStringValue(line.json)), 3000000);
    cJSON_Delete(line.json);
    ddp_assert_ok(ddp_json_lines_next(lines, &line, &is_end));
    ck_assert(line.json == NULL && !line.is_cut);
    ddp_assert_ok(ddp_json_lines_next(lines, &line, &is_end));
    ck_assert(line.json != NULL && line.json->valuedouble == 17);
    cJSON_Delete(line.json);
    ddp_json_lines_close(&lines);
    ck_assert_int_eq(unlink(path), 0);
}
END_TEST

START_TEST(phases_of_ranks_do_not_overlap_and_fill_the_step)
{
    ddp_assert_ok(take("{\"event\":\"step\",\"step\":4,\"step_ms\":10,\"forward_ms\":3,\"backward_ms\":4,"
                       "\"exposed_comm_ms\":2,\"data_wait_ms\":1,\"slowest_rank\":2}"));
    ck_assert_uint_eq(run->n_phases, 5);
    ck_assert_str_eq(run->phase[0].name, "data-wait");
    ck_assert_double_eq(run->phase[0].series.last, 1);
    ck_assert_str_eq(run->phase[1].name, "forward"); /* without waiting */
    ck_assert_double_eq(run->phase[1].series.last, 2);
    ck_assert_str_eq(run->phase[4].name, "rest");
    ck_assert_double_eq(run->phase[4].series.last, 1);
    ck_assert(run->last_ranks == 3 && run->last_rank[2] == 1);
}
END_TEST

START_TEST(phases_of_devices_are_those_of_the_event)
{
    ddp_assert_ok(take("{\"event\":\"step\",\"step\":1,\"step_ms\":10,\"forward_ms\":3,\"data_wait_ms\":1,"
                       "\"phases_ms\":{\"scatter\":1.5,\"forward\":3,\"loss\":null}}"));
    ck_assert_uint_eq(run->n_phases, 4);
    ck_assert_double_eq(run->phase[0].series.last, 1.5);
    ck_assert_str_eq(run->phase[3].name, "rest");
    ck_assert_double_eq(run->phase[3].series.last, 5.5);
}
END_TEST

START_TEST(events_out_of_order_and_lines_that_are_none_are_refused)
{
    ddp_assert_ok(take("{\"event\":\"step\",\"step\":4,\"loss\":1}"));
    ddp_assert_fails(take("{\"event\":\"step\",\"step\":4,\"loss\":2}"), DDP_ERR_FORMAT, "after a later one");
    ddp_assert_fails(take("{\"event\":\"step\",\"loss\":2}"), DDP_ERR_FORMAT, "");
    ddp_assert_fails(take("{\"step\":5}"), DDP_ERR_FORMAT, "no event");
    ddp_assert_fails(take("[5]"), DDP_ERR_FORMAT, "no event");
    ddp_assert_fails(take("{\"event\":\"straggler\",\"step\":5,\"compute_ms\":3}"), DDP_ERR_FORMAT, "");
    ddp_assert_ok(take("{\"event\":\"from a later version\"}"));
    ddp_assert_ok(take("{\"event\":\"step\",\"step\":5,\"loss\":null}"));
    ck_assert_uint_eq(run->field[DDP_REPORT_LOSS].count, 1);
    ck_assert_double_eq(run->field[DDP_REPORT_LOSS].last, 1);
}
END_TEST

START_TEST(a_start_tells_hosts_and_what_changed)
{
    ddp_assert_ok(
        take("{\"event\":\"start\",\"hosts\":[\"a\",\"a\",\"b\"],\"ranks\":3,\"machines\":2,\"config\":"
             "{\"train.batch\":\"64\",\"train.seed\":\"1\"},\"time\":100}"));
    ddp_assert_ok(take("{\"event\":\"step\",\"step\":7,\"time\":160}"));
    ddp_assert_ok(
        take("{\"event\":\"start\",\"hosts\":[\"b\"],\"ranks\":1,\"config\":{\"train.batch\":\"32\","
             "\"train.seed\":\"1\"},\"time\":200,\"gpus\":[{\"name\":\"H\"},{\"name\":\"H\"}]}"));
    ck_assert_uint_eq(run->n_starts, 2);
    ck_assert_str_eq(run->start[0].hosts, "a (2), b (1)");
    ck_assert_str_eq(run->start[0].changes, "");
    ck_assert_double_eq(run->start[0].end_s, 160);
    ck_assert_double_eq(run->start[1].step, 7);
    ck_assert_str_eq(run->start[1].changes, "train.batch: 32 (was 64)");
    ck_assert_str_eq(run->start[1].gpus, "2 x H");
}
END_TEST

START_TEST(of_many_starts_the_oldest_and_the_newest_are_kept)
{
    char text[128];

    for (int i = 1; i <= 200; i++) {
        (void)snprintf(text, sizeof(text), "{\"event\":\"start\",\"ranks\":%d}", i);
        ddp_assert_ok(take(text));
    }
    ck_assert_uint_eq(run->all_starts, 200);
    ck_assert_uint_eq(run->n_starts, DDP_REPORT_MAX_STARTS);
    ck_assert_double_eq(run->start[9].ranks, 10);
    ck_assert_double_eq(run->start[10].ranks, 200 - DDP_REPORT_MAX_STARTS + 11);
    ck_assert_double_eq(run->start[DDP_REPORT_MAX_STARTS - 1].ranks, 200);
}
END_TEST

START_TEST(a_map_of_ranks_keeps_all_times_in_few_columns)
{
    char text[512];

    for (int i = 1; i <= 1000; i++) {
        (void)snprintf(text, sizeof(text),
                       "{\"event\":\"straggler\",\"step\":%d,\"slowest_rank\":2,\"compute_ms\":[1,2,6],"
                       "\"wait_ms\":[0,0.5,0],\"comm_ms\":[5,4,1]}",
                       i);
        ddp_assert_ok(take(text));
    }
    ck_assert_uint_le(run->heat.n, DDP_REPORT_COLUMNS);
    ck_assert_uint_gt(run->heat.n, DDP_REPORT_COLUMNS / 2);
    ck_assert_double_eq(run->heat.computed[2], 6000);
    ck_assert_double_eq(run->heat.waited[1], 500);
    ck_assert_double_eq(run->heat.communicated[2], 1000);
    ck_assert_double_eq(run->heat.slowest[2], 1000);
    ck_assert_double_eq(ddp_report_heat_median(&run->heat, 0), 2.5 * (double)run->heat.count[0]);
    ddp_report_words(run, 0);
    ck_assert(is_noted("Rank 2 was the slowest in 100 % of the reports and worked 2.40 times as long"));
    /* a rank more */
    ddp_assert_ok(take("{\"event\":\"straggler\",\"step\":1001,\"compute_ms\":[null,1,1,1,null,3]}"));
    ck_assert_uint_eq(run->heat.ranks, 6);
    ck_assert_double_eq(run->heat.computed[2], 6001);
    ck_assert_double_eq(run->heat.told[4], 0);
}
END_TEST

START_TEST(a_map_of_ranks_takes_any_numbers)
{
    ddp_assert_ok(
        take("{\"event\":\"straggler\",\"step\":1,\"slowest_rank\":1e30,\"compute_ms\":[-4,null,\"x\",{}],"
             "\"wait_ms\":[1e308],\"comm_ms\":7}"));
    ck_assert_uint_eq(run->heat.ranks, 4);
    ck_assert_double_eq(run->heat.computed[0], 0);
    ck_assert_double_eq(run->heat.waited[0], DDP_SERIES_MOST);
    ck_assert_double_eq(run->heat.told[1], 0);
    ck_assert_double_eq(ddp_report_heat_median(&run->heat, 0), DDP_SERIES_MOST);
    ddp_assert_fails(take("{\"event\":\"straggler\",\"step\":1e16,\"compute_ms\":[1]}"), DDP_ERR_FORMAT, "");
    ddp_assert_fails(take("{\"event\":\"straggler\",\"step\":2,\"compute_ms\":[]}"), DDP_ERR_FORMAT, "");
}
END_TEST

START_TEST(the_end_is_told_in_words)
{
    ddp_assert_ok(take("{\"event\":\"start\",\"ranks\":2,\"total_steps\":30,\"time\":100}"));
    ddp_assert_ok(take("{\"event\":\"step\",\"step\":30,\"step_ms\":4,\"time\":190}"));
    ddp_assert_ok(take("{\"event\":\"end\",\"steps\":30,\"time\":190.5}"));
    ddp_report_words(run, 1e9);
    ck_assert_str_eq(run->headline, "Done: 30 steps in 1 min 30 s");
    ck_assert(!is_noted("--resume"));
}
END_TEST

START_TEST(a_run_that_stopped_tells_how_to_go_on)
{
    ddp_assert_ok(take("{\"event\":\"start\",\"ranks\":2,\"total_steps\":30}"));
    ddp_assert_ok(take("{\"event\":\"stop\",\"step\":12}"));
    (void)snprintf(run->newest, sizeof(run->newest), "ckpt-000000000012.h5");
    (void)snprintf(run->folder, sizeof(run->folder), "my run");
    ddp_report_words(run, 1e9);
    ck_assert_str_eq(run->headline, "Stopped early, after step 12 of 30, with its state saved");
    ck_assert(is_noted("Go on from ckpt-000000000012.h5, on any number of ranks: mpirun -np 2 ddptrain 'my "
                       "run'/config.yaml --out 'my run' --resume auto"));
}
END_TEST

START_TEST(a_failure_says_why_and_a_new_start_forgets_it)
{
    ddp_assert_ok(take("{\"event\":\"start\",\"ranks\":1,\"mode\":\"dp\",\"total_steps\":30}"));
    ddp_assert_ok(take("{\"event\":\"step\",\"step\":3}"));
    ddp_assert_ok(take("{\"event\":\"fail\",\"error\":\"rank 1 is gone\"}"));
    ddp_report_words(run, 1e9);
    ck_assert_str_eq(run->headline, "Failed after step 3 of 30 or soon after it: rank 1 is gone");
    ck_assert(is_noted("There is no checkpoint"));
    ck_assert_str_eq(run->start[0].ended, "rank 1 is gone");
    ddp_assert_ok(take("{\"event\":\"start\",\"ranks\":1,\"total_steps\":30}"));
    ddp_assert_ok(take("{\"event\":\"step\",\"step\":4}"));
    run->last_s = 1000;
    ddp_report_words(run, 1e9);
    ck_assert_str_eq(run->headline, "Broke off after step 4 of 30 or soon after it");
    run->is_locked = true;
    ddp_report_words(run, 1e9);
    ck_assert_str_eq(run->headline, "Going on: step 4 of 30");
    run->is_locked = false;
    ddp_report_words(run, 1010); /* just written to */
    ck_assert_str_eq(run->headline, "Going on: step 4 of 30");
    ck_assert(is_noted("metrics.jsonl was written to 10 s ago"));
}
END_TEST

START_TEST(times_and_paths_are_what_people_and_shells_read)
{
    char text[64];

    ck_assert_str_eq(ddp_report_duration(4.25, text), "4.2 s");
    ck_assert_str_eq(ddp_report_duration(59.4, text), "59 s");
    ck_assert_str_eq(ddp_report_duration(61, text), "1 min 1 s");
    ck_assert_str_eq(ddp_report_duration(7384, text), "2 h 3 min");
    ck_assert_str_eq(ddp_report_duration(200000, text), "2 d 7 h");
    ck_assert_str_eq(ddp_report_duration(NAN, text), "-");
    ck_assert_str_eq(ddp_report_duration(-1, text), "-");
    ck_assert_str_eq(ddp_report_time(1700000000, text), "2023-11-14 22:13 UTC");
    ck_assert_str_eq(ddp_report_time(NAN, text), "-");
    ck_assert_str_eq(ddp_report_time(1e300, text), "-");
    ck_assert_str_eq(ddp_report_quoted("runs/a-2", text, sizeof(text)), "runs/a-2");
    ck_assert_str_eq(ddp_report_quoted("it's $HOME", text, sizeof(text)), "'it'\\''s $HOME'");
    ck_assert_str_eq(ddp_report_quoted("-x", text, sizeof(text)), "'./-x'");
}
END_TEST

START_TEST(options_are_checked)
{
    static char         *good[]  = {"report", "a", "--out=x.html", "b", NULL};
    static char         *many[]  = {"report", "1", "2", "3", "4", "5", "6", "7", "8", "9", NULL};
    static char         *none[]  = {"report", NULL};
    static char         *page[]  = {"report", "a", "--out", "run.yaml", NULL};
    static char         *trace[] = {"report", "a", "b", "--trace", "t.json", NULL};
    ddp_report_options_t options;

    ddp_assert_ok(ddp_report_options_parse(4, good, &options));
    ck_assert_uint_eq(options.n_runs, 2);
    ck_assert_str_eq(options.out, "x.html");
    ddp_assert_fails(ddp_report_options_parse(10, many, &options), DDP_ERR_CONFIG, "more than 8 runs");
    ddp_assert_fails(ddp_report_options_parse(1, none, &options), DDP_ERR_CONFIG, "a run's folder is needed");
    ddp_assert_fails(ddp_report_options_parse(4, page, &options), DDP_ERR_CONFIG, "ends in .html");
    ddp_assert_fails(ddp_report_options_parse(5, trace, &options), DDP_ERR_CONFIG,
                     "--trace is of one run, not of 2");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("report");
    TCase *tcase = tcase_create("all");

    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, few_values_stay_as_they_are);
    tcase_add_test(tcase, many_values_share_points_and_none_is_lost);
    tcase_add_test(tcase, lines_that_are_no_json_are_told_apart_and_half_a_line_is_cut);
    tcase_add_test(tcase, long_lines_are_read_whole_and_too_long_ones_left_out);
    tcase_add_test(tcase, phases_of_ranks_do_not_overlap_and_fill_the_step);
    tcase_add_test(tcase, phases_of_devices_are_those_of_the_event);
    tcase_add_test(tcase, events_out_of_order_and_lines_that_are_none_are_refused);
    tcase_add_test(tcase, a_start_tells_hosts_and_what_changed);
    tcase_add_test(tcase, of_many_starts_the_oldest_and_the_newest_are_kept);
    tcase_add_test(tcase, a_map_of_ranks_keeps_all_times_in_few_columns);
    tcase_add_test(tcase, a_map_of_ranks_takes_any_numbers);
    tcase_add_test(tcase, the_end_is_told_in_words);
    tcase_add_test(tcase, a_run_that_stopped_tells_how_to_go_on);
    tcase_add_test(tcase, a_failure_says_why_and_a_new_start_forgets_it);
    tcase_add_test(tcase, times_and_paths_are_what_people_and_shells_read);
    tcase_add_test(tcase, options_are_checked);
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
