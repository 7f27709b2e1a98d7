/* How inputs of products are rounded on the CUDA device. */
#include <check.h>
#include <math.h>
#include <stdlib.h>

#include "kernels/cuda/gemm.h"
#include "tests/cuda/rounding.h"
#include "tests/cuda/support.h"
#include "tests/support/ddp_test.h"

#define WAYS       2
#define PRECISIONS 4

static const char *const way_names[WAYS] = {"plain", "cublaslt"};

/* Products of one factor with 1: the rounding itself. Tensor cores of TF32 need not round ties to even, so
 * the library is not asked. */
static size_t rounding_cases(ddp_precision_t precision, float *x)
{
    static const float anywhere[] = {0.0F,         -0.0F,         1.0F,        65504.0F,  65519.0F,
                                     65520.0F,     1e6F,          -70000.0F,   6.1e-5F,   0x1.8p-24F,
                                     0x1p-25F,     3e-6F,         -0x1.4p-23F, 0x1p-100F, 3e38F,
                                     0x1.ffcp-15F, 0x1.fffffep0F, INFINITY,    -INFINITY};
    const int          half       = rounding_bits(precision);
    size_t             n          = 0;

    for (; n < sizeof(anywhere) / sizeof(anywhere[0]); n++) {
        x[n] = anywhere[n];
    }
    for (int odd = 0; odd < 4; odd++) { /* half way between two neighbours, and a little beside it */
        const float tie = 1.0F + ldexpf((float)odd, 1 - half) + ldexpf(1.0F, -half);

        x[n++] = tie;
        x[n++] = -tie;
        x[n++] = nextafterf(tie, 3.0F);
        x[n++] = nextafterf(tie, 0.0F);
    }
    return n;
}

START_TEST(inputs_are_rounded_to_the_nearest_and_of_two_to_the_even_one)
{
    const ddp_precision_t precision = (ddp_precision_t)(_i / WAYS);
    ddp_gemm_args_t       args      = {
                   .n = 1, .k = 1, .alpha = 1.0F, .lda = 1, .ldb = 1, .ldc = 1, .precision = precision};
    static const float one[1] = {1.0F};
    float              x[64];
    float              y[64];
    support_t          s;

    if (precision == DDP_PRECISION_TF32 && _i % WAYS == 1) {
        return;
    }
    args.m = rounding_cases(precision, x);
    setenv("DDP_CUDA_GEMM", way_names[_i % WAYS], 1);
    support_open(&s);
    args.a = support_upload(&s, x, args.m * sizeof(float));
    args.b = support_upload(&s, one, sizeof(one));
    args.c = support_upload(&s, NULL, args.m * sizeof(float));
    ddp_assert_ok(ddp_op_gemm(s.on_cuda, &args));
    support_download(&s, y, args.c, args.m * sizeof(float));
    for (size_t i = 0; i < args.m; i++) {
        const double wanted = isinf(x[i]) ? (double)x[i] : rounding_nearest(precision, (double)x[i]);

        ck_assert_msg((double)y[i] == wanted, "precision %d: %a became %a, not %a", (int)precision,
                      (double)x[i], (double)y[i], wanted);
    }
    support_close(&s);
    unsetenv("DDP_CUDA_GEMM");
}
END_TEST

/* What the library is given: rows of 16-bit numbers, and zeros up to the next multiple of 8. */
START_TEST(a_matrix_is_converted_row_by_row)
{
    const bool           is_bf16 = _i / 2 == 0;
    const size_t         ld      = _i % 2 == 0 ? 24 : 21; /* rows aligned or not */
    ddp_cuda_cast_args_t cast    = {.precision = is_bf16 ? DDP_PRECISION_BF16 : DDP_PRECISION_FP16,
                                    .rows      = 7,
                                    .columns   = 19,
                                    .ld        = ld,
                                    .pitch     = 24};
    float                x[7 * 24];
    uint16_t             y[7 * 24];
    support_t            s;

    support_open(&s);
    support_fill(x, 7 * ld, 5);
    cast.x = support_upload(&s, x, (6 * ld + 19) * sizeof(float));
    cast.y = support_upload(&s, NULL, sizeof(y));
    ddp_assert_ok(ddp_cuda_cast(s.on_cuda, &cast));
    support_download(&s, y, cast.y, sizeof(y));
    for (size_t at = 0; at < sizeof(y) / sizeof(y[0]); at++) {
        const size_t column = at % 24;
        const double wanted =
            column < 19 ? rounding_nearest(cast.precision, (double)x[at / 24 * ld + column]) : 0.0;

        ck_assert_msg(rounding_of_bits(cast.precision, y[at]) == wanted, "row %zu, column %zu", at / 24,
                      column);
    }
    support_close(&s);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cuda precision");
    TCase *tc    = tcase_create("precision");

    tcase_add_loop_test(tc, inputs_are_rounded_to_the_nearest_and_of_two_to_the_even_one, 0,
                        WAYS * PRECISIONS);
    tcase_add_loop_test(tc, a_matrix_is_converted_row_by_row, 0, 4);
    suite_add_tcase(suite, tc);
    return ddp_test_run(suite);
}
