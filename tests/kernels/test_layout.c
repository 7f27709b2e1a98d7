#include <string.h>

#include "kernels/layout.h"
#include "tests/support/ddp_test.h"

START_TEST(tensors_lie_in_reverse_order_each_at_a_block_border)
{
    ddp_tensor_desc_t t[3] = {{.name = "a", .ndim = 2, .shape = {3, 100}},
                              {.name = "b", .ndim = 1, .shape = {256}},
                              {.name = "c", .ndim = 4, .shape = {1, 1, 1, 1}}};
    size_t            total;

    ddp_assert_ok(ddp_layout_make(t, 3, &total));
    ck_assert_uint_eq(t[2].count, 1);
    ck_assert_uint_eq(t[2].offset, 0);
    ck_assert_uint_eq(t[1].count, 256);
    ck_assert_uint_eq(t[1].offset, 256);
    ck_assert_uint_eq(t[0].count, 300);
    ck_assert_uint_eq(t[0].offset, 512);
    ck_assert_uint_eq(total, 1024);
}
END_TEST

START_TEST(wrong_shapes_and_names_are_named)
{
    ddp_tensor_desc_t t[2] = {{.name = "a", .ndim = 1, .shape = {3}}, {.name = "b", .ndim = 1, .shape = {0}}};
    size_t            total = 77;

    ddp_assert_fails(ddp_layout_make(t, 0, &total), DDP_ERR_INVALID_ARG, "at least one");
    ddp_assert_fails(ddp_layout_make(t, 2, &total), DDP_ERR_INVALID_ARG, "parameter 'b': dimension 0 is 0");
    t[1].shape[0] = 1;
    t[1].ndim     = 5;
    ddp_assert_fails(ddp_layout_make(t, 2, &total), DDP_ERR_INVALID_ARG, "5 dimensions");
    t[1].ndim     = 3;
    t[1].shape[0] = t[1].shape[1] = t[1].shape[2] = (size_t)1 << 31;
    ddp_assert_fails(ddp_layout_make(t, 2, &total), DDP_ERR_INVALID_ARG, "b");
    t[1].ndim     = 2;
    t[1].shape[1] = (size_t)1 << 30;
    ddp_assert_fails(ddp_layout_make(t, 2, &total), DDP_ERR_INVALID_ARG, "do not fit in memory");
    t[1] = t[0];
    ddp_assert_fails(ddp_layout_make(t, 2, &total), DDP_ERR_INVALID_ARG, "'a' is there twice");
    t[1].name = NULL;
    ddp_assert_fails(ddp_layout_make(t, 2, &total), DDP_ERR_INVALID_ARG, "no name");
    t[1]      = t[0];
    t[1].name = "b";
    t[1].role = (ddp_tensor_role_t)2;
    ddp_assert_fails(ddp_layout_make(t, 2, &total), DDP_ERR_INVALID_ARG, "'b': role 2 is not known");
    t[1].role     = DDP_TENSOR_AVERAGE;
    t[1].momentum = -0.1F;
    ddp_assert_fails(ddp_layout_make(t, 2, &total), DDP_ERR_INVALID_ARG, "'b': momentum -0.1");
    ck_assert_uint_eq(total, 77);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("layout");
    TCase *tcase = tcase_create("core");

    tcase_add_test(tcase, tensors_lie_in_reverse_order_each_at_a_block_border);
    tcase_add_test(tcase, wrong_shapes_and_names_are_named);
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
