/* Element-wise kernels of the CUDA device against the cpu's. */
#include <check.h>
#include <stdlib.h>

#include "tests/cuda/support.h"
#include "tests/support/ddp_test.h"

static const size_t counts[] = {0, 1, 255, 256, 1000};

START_TEST(fill_writes_what_it_is_told_and_no_more)
{
    const size_t count = counts[_i];
    support_t    s;
    float        y[1000];
    float       *on_device;

    support_open(&s);
    on_device = support_upload(&s, NULL, count * sizeof(float));
    ddp_assert_ok(ddp_op_fill(s.on_cuda, on_device, count, 2.5F));
    support_download(&s, y, on_device, count * sizeof(float));
    for (size_t i = 0; i < count; i++) {
        ck_assert(y[i] == 2.5F);
    }
    support_close(&s);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cuda vector");
    TCase *tc    = tcase_create("vector");

    tcase_add_loop_test(tc, fill_writes_what_it_is_told_and_no_more, 0,
                        (int)(sizeof(counts) / sizeof(*counts)));
    suite_add_tcase(suite, tc);
    return ddp_test_run(suite);
}
