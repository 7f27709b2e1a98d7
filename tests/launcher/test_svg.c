#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "launcher/svg.h"
#include "tests/support/ddp_test.h"

static void assert_xml(const char *text, const char *wanted)
{
    char  *got  = NULL;
    size_t size = 0;
    FILE  *out  = open_memstream(&got, &size);

    ck_assert_ptr_nonnull(out);
    ddp_xml_text(out, text);
    ck_assert_int_eq(fclose(out), 0);
    ck_assert_str_eq(got, wanted);
    free(got);
}

START_TEST(text_is_escaped_and_what_is_no_utf8_is_a_question_mark)
{
    assert_xml("", "");
    assert_xml("a < b & 'c' > \"d\"", "a &lt; b &amp; &#39;c&#39; &gt; &quot;d&quot;");
    assert_xml("?\x01\x7f\xff\xc3", "?????");
    assert_xml("\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80", "\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80");
    assert_xml("\xc0\xaf\xed\xa0\x80", "?????"); /* too long a form; half of a pair */
}
END_TEST

START_TEST(cleaned_text_keeps_its_length)
{
    char text[] = "a\tb\xff\xc3\xa4";

    ddp_utf8_clean(text);
    ck_assert_str_eq(text, "a?b?\xc3\xa4");
}
END_TEST

START_TEST(a_step_between_marks_is_1_2_or_5_times_a_power_of_ten)
{
    ck_assert_double_eq_tol(ddp_svg_tick(10, 5), 2, 1e-12);
    ck_assert_double_eq_tol(ddp_svg_tick(11, 5), 5, 1e-12);
    ck_assert_double_eq_tol(ddp_svg_tick(99, 5), 20, 1e-12);
    ck_assert_double_eq_tol(ddp_svg_tick(101, 5), 50, 1e-12);
    ck_assert_double_eq_tol(ddp_svg_tick(0.4, 5), 0.1, 1e-12);
    ck_assert_double_eq_tol(ddp_svg_tick(30000, 5), 10000, 1e-9);
}
END_TEST

START_TEST(a_drawing_is_what_its_calls_say)
{
    char                 *got      = NULL;
    size_t                size     = 0;
    ddp_svg_t             svg      = {open_memstream(&got, &size)};
    const double          xy[2][2] = {{0, 1}, {2.5, 3}};
    const ddp_svg_frame_t frame    = {.width = 30, .height = 20, .id = "x", .title = "a & b", .text = "c"};

    ck_assert_ptr_nonnull(svg.out);
    ddp_svg_open(&svg, &frame);
    ddp_svg_path(&svg, "line", xy, 2);
    ddp_svg_rect(&svg, "bar", 1, 2, 3, 4, "5 < 6");
    ddp_svg_text(&svg, "label", 1, 2, DDP_SVG_END, "%d%%", 7);
    ddp_svg_close(&svg);
    ck_assert_int_eq(fclose(svg.out), 0);
    ck_assert_str_eq(got,
                     "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 30 20\" role=\"img\" id=\"x\" "
                     "aria-labelledby=\"x-title x-text\">\n<title id=\"x-title\">a &amp; b</title>\n"
                     "<desc id=\"x-text\">c</desc>\n"
                     "<polyline class=\"line\" points=\"0.00,1.00 2.50,3.00\"/>\n"
                     "<rect class=\"bar\" x=\"1.00\" y=\"2.00\" width=\"3.00\" height=\"4.00\"><title>5 &lt; "
                     "6</title></rect>\n"
                     "<text class=\"label\" x=\"1.00\" y=\"2.00\" text-anchor=\"end\">7%</text>\n</svg>\n");
    free(got);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("svg");
    TCase *tcase = tcase_create("all");

    tcase_add_test(tcase, text_is_escaped_and_what_is_no_utf8_is_a_question_mark);
    tcase_add_test(tcase, cleaned_text_keeps_its_length);
    tcase_add_test(tcase, a_step_between_marks_is_1_2_or_5_times_a_power_of_ten);
    tcase_add_test(tcase, a_drawing_is_what_its_calls_say);
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
