#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/cell.h"
#include "launcher/json_read.h"
#include "launcher/page.h"
#include "launcher/plot.h"
#include "tests/support/ddp_test.h"

static ddp_plot_t make(double least_y, double most_y, bool is_log)
{
    return (ddp_plot_t){.left     = 40,
                        .right    = 340,
                        .top      = 10,
                        .bottom   = 110,
                        .least_x  = 0,
                        .most_x   = 1000,
                        .least_y  = least_y,
                        .most_y   = most_y,
                        .is_log_y = is_log};
}

/* Texts of a scale, each followed by a blank. */
static void read_marks(const ddp_plot_t *plot, bool is_x, char *marks)
{
    char     *got  = NULL;
    size_t    size = 0;
    ddp_svg_t svg  = {open_memstream(&got, &size)};

    ck_assert_ptr_nonnull(svg.out);
    if (is_x) {
        ddp_plot_scale_x(&svg, plot, "step");
    } else {
        ddp_plot_scale_y(&svg, plot);
    }
    ck_assert_int_eq(fclose(svg.out), 0);
    marks[0] = '\0';
    for (char *at = strstr(got, "<text"); at != NULL; at = strstr(at, "<text")) {
        char *end;

        at  = strchr(at, '>') + 1;
        end = strchr(at, '<');
        strncat(marks, at, (size_t)(end - at));
        strcat(marks, " ");
    }
    free(got);
}

START_TEST(data_lie_between_the_borders_and_what_is_outside_at_them)
{
    ddp_plot_t plot = make(2, 4, false);

    ck_assert_double_eq(ddp_plot_x(&plot, 0), 40);
    ck_assert_double_eq(ddp_plot_x(&plot, 250), 115);
    ck_assert_double_eq(ddp_plot_y(&plot, 2), 110);
    ck_assert_double_eq(ddp_plot_y(&plot, 3.5), 35);
    ck_assert_double_eq(ddp_plot_y(&plot, 9), 10);
    ck_assert_double_eq(ddp_plot_y(&plot, -9), 110);
}
END_TEST

START_TEST(equal_factors_are_equally_far_apart_on_a_log_scale)
{
    ddp_plot_t plot = make(0.1, 1000, true);

    ck_assert_double_eq_tol(ddp_plot_y(&plot, 0.1), 110, 1e-9);
    ck_assert_double_eq_tol(ddp_plot_y(&plot, 1), 85, 1e-9);
    ck_assert_double_eq_tol(ddp_plot_y(&plot, 1000), 10, 1e-9);
    ck_assert_double_eq_tol(ddp_plot_y(&plot, -1), 110, 1e-9);
}
END_TEST

START_TEST(marks_are_round_numbers_inside_the_range)
{
    ddp_plot_t plot = make(0, 10, false);
    char       marks[512];

    read_marks(&plot, false, marks);
    ck_assert_str_eq(marks, "0 2 4 6 8 10 ");
    plot = make(2.1, 2.5, false);
    read_marks(&plot, false, marks);
    ck_assert_str_eq(marks, "2.1 2.2 2.3 2.4 2.5 ");
    plot = make(-1, 1, false);
    read_marks(&plot, false, marks);
    ck_assert_str_eq(marks, "-1 -0.5 0 0.5 1 ");
    read_marks(&plot, true, marks);
    ck_assert_str_eq(marks, "0 200 400 600 800 1000 step ");
    plot.least_x = 1;
    plot.most_x  = 50001;
    read_marks(&plot, true, marks);
    ck_assert_str_eq(marks, "10k 20k 30k 40k 50k step ");
}
END_TEST

START_TEST(a_log_scale_has_powers_of_ten)
{
    ddp_plot_t plot = make(0.3, 20, true);
    char       marks[512];

    read_marks(&plot, false, marks);
    ck_assert_str_eq(marks, "0.5 1 2 5 10 20 ");
    plot = make(0.001, 1000, true);
    read_marks(&plot, false, marks);
    ck_assert_str_eq(marks, "0.001 0.01 0.1 1 10 100 1000 ");
    plot = make(1e-12, 1e12, true); /* few enough to be read */
    read_marks(&plot, false, marks);
    ck_assert_uint_le(strlen(marks), 60);
}
END_TEST

START_TEST(numbers_of_axes_are_short)
{
    char text[DDP_CELL];

    ck_assert_str_eq(ddp_cell_short(NAN, text), "-");
    ck_assert_str_eq(ddp_cell_short(0, text), "0");
    ck_assert_str_eq(ddp_cell_short(9999, text), "9999");
    ck_assert_str_eq(ddp_cell_short(12345, text), "12.35k");
    ck_assert_str_eq(ddp_cell_short(-2.5e6, text), "-2500k");
    ck_assert_str_eq(ddp_cell_short(1e-5, text), "1e-05");
}
END_TEST

START_TEST(a_page_escapes_what_it_is_told)
{
    static const char *const head[] = {"", "a<b"};
    char                    *got    = NULL;
    size_t                   size   = 0;
    FILE                    *out    = open_memstream(&got, &size);

    ck_assert_ptr_nonnull(out);
    ddp_page_open(out, "x & y", "1 < 2", ".mine{}");
    ddp_page_text(out, "p", "soft", "<script>");
    ddp_page_open_table(out, "t", "say \"it\"", head, 2);
    ddp_page_close_table(out);
    ddp_page_close(out);
    ck_assert_int_eq(fclose(out), 0);
    ck_assert_ptr_nonnull(strstr(got, "<title>x &amp; y</title>"));
    ck_assert_ptr_nonnull(strstr(got, "<h1>1 &lt; 2</h1>"));
    ck_assert_ptr_nonnull(strstr(got, ".mine{}</style>"));
    ck_assert_ptr_nonnull(strstr(got, "<p class=\"soft\">&lt;script&gt;</p>"));
    ck_assert_ptr_nonnull(strstr(got, "aria-label=\"say &quot;it&quot;\"><table id=\"t\">"));
    ck_assert_ptr_nonnull(strstr(got, "<td></td><th scope=\"col\">a&lt;b</th>"));
    ck_assert_ptr_nonnull(strstr(got, "</body>\n</html>\n"));
    free(got);
}
END_TEST

START_TEST(what_json_does_not_have_has_no_value)
{
    cJSON *object  = cJSON_Parse("{\"a\": 2.5, \"b\": \"\\u0007x\", \"c\": [1, null, 3], \"d\": null}");
    char   text[8] = "old";

    ck_assert_ptr_nonnull(object);
    ck_assert_double_eq(ddp_json_number(object, "a"), 2.5);
    ck_assert(isnan(ddp_json_number(object, "b")) && isnan(ddp_json_number(object, "d")));
    ck_assert(isnan(ddp_json_number(object, "nothing")) && isnan(ddp_json_number(NULL, "a")));
    ck_assert_double_eq(ddp_json_at(cJSON_GetObjectItem(object, "c"), 2), 3);
    ck_assert(isnan(ddp_json_at(cJSON_GetObjectItem(object, "c"), 1)));
    ck_assert(isnan(ddp_json_at(cJSON_GetObjectItem(object, "c"), 7)) && isnan(ddp_json_at(NULL, 0)));
    ddp_json_text(object, "a", text, sizeof(text));
    ck_assert_str_eq(text, "old");
    ddp_json_text(object, "b", text, sizeof(text));
    ck_assert_str_eq(text, "?x");
    cJSON_Delete(object);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("plot");
    TCase *tcase = tcase_create("all");

    tcase_add_test(tcase, data_lie_between_the_borders_and_what_is_outside_at_them);
    tcase_add_test(tcase, equal_factors_are_equally_far_apart_on_a_log_scale);
    tcase_add_test(tcase, marks_are_round_numbers_inside_the_range);
    tcase_add_test(tcase, a_log_scale_has_powers_of_ten);
    tcase_add_test(tcase, numbers_of_axes_are_short);
    tcase_add_test(tcase, a_page_escapes_what_it_is_told);
    tcase_add_test(tcase, what_json_does_not_have_has_no_value);
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
