#include <string.h>

#include "launcher/progress.h"
#include "tests/support/ddp_test.h"

START_TEST(the_bar_shows_share_loss_rate_and_time_left)
{
    const ddp_progress_state_t state = {.step          = 50,
                                        .total_steps   = 200,
                                        .epoch         = 1,
                                        .epochs        = 3,
                                        .loss          = 0.51237,
                                        .samples_per_s = 12345.6,
                                        .seconds_left  = 125.4};
    char                       text[160];

    ddp_progress_text(&state, text, sizeof(text));
    ck_assert_str_eq(text,
                     "epoch 1/3 [######..................]  25%  loss 0.5124  12346 samples/s  2:05 left");
}
END_TEST

START_TEST(a_run_counted_in_steps_has_no_number_of_epochs_and_ends_full)
{
    const ddp_progress_state_t state = {
        .step = 7, .total_steps = 7, .epoch = 2, .loss = 1, .samples_per_s = 10, .seconds_left = 0};
    char text[160];

    ddp_progress_text(&state, text, sizeof(text));
    ck_assert_str_eq(text, "epoch 2 [########################] 100%  loss 1.0000  10 samples/s  0:00 left");
}
END_TEST

START_TEST(nothing_is_drawn_where_there_is_no_terminal)
{
    ddp_progress_t             progress = {.is_terminal = false};
    const ddp_progress_state_t state    = {.step = 1, .total_steps = 2};

    ddp_progress_draw(&progress, &state);
    ck_assert(!progress.is_drawn);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("progress");
    TCase *tcase = tcase_create("all");

    tcase_add_test(tcase, the_bar_shows_share_loss_rate_and_time_left);
    tcase_add_test(tcase, a_run_counted_in_steps_has_no_number_of_epochs_and_ends_full);
    tcase_add_test(tcase, nothing_is_drawn_where_there_is_no_terminal);
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
