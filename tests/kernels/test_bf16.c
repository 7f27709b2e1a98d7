/* Products of bfloat16: what is rounded and how, the instruction against its emulation, set against set. That
 * products of rounded numbers are right is in test_gemm.c and test_conv.c. */
#include "tests/kernels/bf16_test.h"

#include "kernels/ops_seq.h"
#include "tests/kernels/conv_layer.h"

#define INSTRUCTION (MODES - 2) /* AVX-512 in bfloat16 */
#define EMULATION   (MODES - 1)

static uint32_t bits_of(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static float float_of(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof(x));
    return x;
}

/* Equal bits, or both a NaN. */
static bool are_equal(const char *what, const float *a, const float *b, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (bits_of(a[i]) != bits_of(b[i]) && !(isnan(a[i]) && isnan(b[i]))) {
            fprintf(stderr, "%s: element %zu of %zu is %a and %a\n", what, i, count, (double)a[i],
                    (double)b[i]);
            return false;
        }
    }
    return true;
}

/* |a - b| / |b| */
static double distance(const float *a, const float *b, size_t count)
{
    double gap  = 0.0;
    double size = 0.0;

    for (size_t i = 0; i < count; i++) {
        gap += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        size += (double)b[i] * (double)b[i];
    }
    return sqrt(gap / size);
}

static float *copy_of(const float *x, size_t count, bool rounded)
{
    float *copy = fixture_new(count);

    memcpy(copy, x, count * sizeof(float));
    if (rounded) {
        bf16_nearest_all(copy, count);
    }
    return copy;
}

/* All three products of a layer; then attention, and a head, forward and backward. */
#define OUTPUTS 9
typedef struct outputs {
    float *x[OUTPUTS];
    size_t count[OUTPUTS];
    size_t n;
} outputs_t;

static float *outputs_new(outputs_t *o, size_t count)
{
    float *x = fixture_new(count);

    ck_assert_uint_lt(o->n, OUTPUTS);
    o->x[o->n]       = x;
    o->count[o->n++] = count;
    return x;
}

static void outputs_free(outputs_t *o)
{
    for (size_t i = 0; i < o->n; i++) {
        fixture_free(o->x[i]);
    }
}

static void run_gemms(ddp_stream_t *stream, ddp_precision_t precision, bool rounded, outputs_t *o)
{
    const size_t m = 37, n = 45, k = 531;
    float       *a0 = fixture_random(m * k, 1, 1.0F);
    float       *b0 = fixture_random(n * k, 2, 1.0F);
    float       *a  = copy_of(a0, m * k, rounded);
    float       *b  = copy_of(b0, n * k, rounded);

    for (int kind = 0; kind < 3; kind++) {
        const ddp_gemm_args_t args = {.transpose_a = kind == 1,
                                      .transpose_b = kind == 2,
                                      .m           = m,
                                      .n           = n,
                                      .k           = k,
                                      .alpha       = 1.0F,
                                      .a           = a,
                                      .lda         = kind == 1 ? m : k,
                                      .b           = b,
                                      .ldb         = kind == 2 ? k : n,
                                      .c           = outputs_new(o, m * n),
                                      .ldc         = n,
                                      .precision   = precision};

        ddp_assert_ok(ddp_op_gemm(stream, &args));
    }
    ddp_assert_ok(ddp_stream_synchronize(stream, -1));
    fixture_free(a0);
    fixture_free(b0);
    fixture_free(a);
    fixture_free(b);
}

static void run_conv(ddp_stream_t *stream, ddp_precision_t precision, bool rounded, outputs_t *o)
{
    ddp_conv2d_shape_t         shape = SHAPE(3, 9, 8, 5, 19, 3, 3, 2, 1);
    layer_t                    l;
    ddp_conv2d_args_t          forward;
    ddp_conv2d_backward_args_t backward;

    layer_open(&l, stream, shape); /* the scratch of float32 is never the smaller */
    if (rounded) {
        bf16_nearest_all(l.x, l.x_count);
        bf16_nearest_all(l.w, l.w_count);
        bf16_nearest_all(l.dy, l.y_count);
    }
    fixture_free(l.scratch);
    l.s.precision = precision;
    l.scratch     = fixture_new(ddp_conv2d_scratch_bytes(ddp_stream_device(stream), &l.s) / sizeof(float));
    forward       = layer_forward(&l);
    backward      = layer_backward(&l);
    forward.y     = outputs_new(o, l.y_count);
    backward.dx   = outputs_new(o, l.x_count);
    backward.dw   = outputs_new(o, l.w_count);
    backward.db   = NULL; /* no product: of dy as it is */
    ddp_assert_ok(ddp_op_conv2d(stream, &forward));
    ddp_assert_ok(ddp_op_conv2d_backward(stream, &backward));
    ddp_assert_ok(ddp_stream_synchronize(stream, -1));
    layer_close(&l);
}

/* `backward`: its softmax takes dy as it is. */
static void run_attention(ddp_stream_t *stream, ddp_precision_t precision, bool rounded, bool backward,
                          outputs_t *o)
{
    const size_t                  length = 70, heads = 3, channels = 3 * 20;
    const size_t                  count   = 2 * length * channels;
    float                        *qkv0    = fixture_random(3 * count, 1, 1.5F);
    float                        *qkv     = copy_of(qkv0, 3 * count, rounded);
    float                        *dy      = fixture_random(count, 2, 1.0F);
    float                        *log_sum = fixture_new(2 * heads * length);
    ddp_attention_backward_args_t args    = {.forward = {.qkv       = qkv,
                                                         .sequences = 2,
                                                         .length    = length,
                                                         .heads     = heads,
                                                         .channels  = channels,
                                                         .y         = outputs_new(o, count),
                                                         .log_sum   = log_sum,
                                                         .precision = precision},
                                             .dy      = dy};

    ddp_assert_ok(ddp_op_attention(stream, &args.forward));
    if (backward) {
        args.dqkv = outputs_new(o, 3 * count);
        ddp_assert_ok(ddp_op_attention_backward(stream, &args));
    }
    ddp_assert_ok(ddp_stream_synchronize(stream, -1));
    fixture_free(qkv0);
    fixture_free(qkv);
    fixture_free(dy);
    fixture_free(log_sum);
}

static void run_head(ddp_stream_t *stream, ddp_precision_t precision, bool rounded, outputs_t *o)
{
    const size_t                  rows = 65, width = 33, vocab = 1030;
    float                        *x0 = fixture_random(rows * width, 1, 1.0F);
    float                        *w0 = fixture_random(vocab * width, 2, 1.0F);
    float                        *x  = copy_of(x0, rows * width, rounded);
    float                        *w  = copy_of(w0, vocab * width, rounded);
    int32_t                       labels[65];
    ddp_loss_stats_t              stats;
    ddp_head_cross_entropy_args_t args = {.head         = {.x         = x,
                                                           .w         = w,
                                                           .rows      = rows,
                                                           .width     = width,
                                                           .vocab     = vocab,
                                                           .dx        = outputs_new(o, rows * width),
                                                           .dw        = outputs_new(o, vocab * width),
                                                           .precision = precision},
                                          .labels       = labels,
                                          .ignore_index = -1,
                                          .stats        = &stats};

    for (size_t i = 0; i < rows; i++) {
        labels[i] = (int32_t)(i * 101 % vocab);
    }
    ddp_assert_ok(ddp_op_head_cross_entropy(stream, &args));
    ddp_assert_ok(ddp_stream_synchronize(stream, -1));
    outputs_new(o, 1)[0] = stats.loss;
    fixture_free(x0);
    fixture_free(w0);
    fixture_free(x);
    fixture_free(w);
}

/* which: 0 .. 3 */
static void run_operation(int which, ddp_stream_t *stream, ddp_precision_t precision, bool rounded,
                          bool backward, outputs_t *o)
{
    *o = (outputs_t){.n = 0};
    switch (which) {
    case 0:
        run_gemms(stream, precision, rounded, o);
        break;
    case 1:
        run_conv(stream, precision, rounded, o);
        break;
    case 2:
        run_attention(stream, precision, rounded, backward, o);
        break;
    default:
        run_head(stream, precision, rounded, o);
        break;
    }
}

static const char *const operations[] = {"gemm", "conv", "attention", "head"};

START_TEST(inputs_of_every_product_are_rounded_and_nothing_else_is)
{
    ddp_precision_t precision;
    ddp_stream_t   *stream = mode_open(_i, &precision);
    outputs_t       as_given;
    outputs_t       before;

    for (int which = 0; which < 4 && stream != NULL && precision == DDP_PRECISION_BF16; which++) {
        run_operation(which, stream, precision, false, false, &as_given);
        run_operation(which, stream, precision, true, false, &before);
        for (size_t i = 0; i < as_given.n; i++) {
            ck_assert(are_equal(operations[which], as_given.x[i], before.x[i], as_given.count[i]));
        }
        outputs_free(&as_given);
        outputs_free(&before);
    }
    if (stream != NULL) {
        fixture_close(stream);
    }
}
END_TEST

/* A rounding error is at most 2^-9 of a factor. Gradients of attention and head multiply what products gave,
 * once more rounded. */
START_TEST(results_are_as_near_to_those_of_float32_as_eight_bits_let_them_be)
{
    ddp_precision_t precision;
    ddp_stream_t   *stream = mode_open(_i, &precision);
    outputs_t       exact;
    outputs_t       rounded;

    for (int which = 0; which < 4 && stream != NULL && precision == DDP_PRECISION_BF16; which++) {
        run_operation(which, stream, DDP_PRECISION_FLOAT32, false, true, &exact);
        run_operation(which, stream, precision, false, true, &rounded);
        for (size_t i = 0; i < exact.n; i++) {
            const double far = distance(rounded.x[i], exact.x[i], exact.count[i]);

            ck_assert_msg(far < 0x1p-8, "%s, output %zu: %g", operations[which], i, far);
            ck_assert_msg(far > 1e-6, "%s, output %zu: %g, not rounded", operations[which], i, far);
        }
        outputs_free(&exact);
        outputs_free(&rounded);
    }
    if (stream != NULL) {
        fixture_close(stream);
    }
}
END_TEST

START_TEST(every_operation_has_the_bits_of_the_instruction_without_it)
{
    ddp_precision_t precision;
    ddp_stream_t   *with    = mode_open(INSTRUCTION, &precision);
    ddp_stream_t   *without = mode_open(EMULATION, &precision);
    outputs_t       a;
    outputs_t       b;

    for (int which = 0; which < 4 && with != NULL; which++) {
        run_operation(which, with, precision, false, true, &a);
        run_operation(which, without, precision, false, true, &b);
        for (size_t i = 0; i < a.n; i++) {
            ck_assert(are_equal(operations[which], a.x[i], b.x[i], a.count[i]));
        }
        outputs_free(&a);
        outputs_free(&b);
    }
    if (with != NULL) {
        ck_assert(!ddp_device_has_bf16(ddp_stream_device(without)));
        fixture_close(with);
        fixture_close(without);
    }
}
END_TEST

/* Numbers of every kind: any bits, tiny ones with denormal products, sums at the border of the normal ones,
 * huge ones whose sums overflow, and some that are not finite. */
static float wild(uint64_t *state, int kind)
{
    const uint32_t sign     = fixture_next(state) < 0.5 ? 0U : 0x80000000U;
    const uint32_t fraction = (uint32_t)(fixture_next(state) * 0x1p23);
    const double   draw     = fixture_next(state);

    switch (kind) {
    case 0:
        return float_of((uint32_t)(fixture_next(state) * 0x1p16) << 16 | fraction >> 7);
    case 1: /* 2^-70 .. 2^-56: products around 2^-126 */
        return float_of(sign | (57U + (uint32_t)(draw * 14.0)) << 23 | fraction);
    case 2: /* few bits, so that sums hit 2^-126 from both sides */
        return float_of(sign | (50U + (uint32_t)(draw * 14.0)) << 23 | (fraction & 0x600000U));
    case 3: /* 2^55 .. 2^65 */
        return float_of(sign | (182U + (uint32_t)(draw * 10.0)) << 23 | fraction);
    default: /* denormal, zero, infinite, NaN among ordinary ones */
        return draw < 0.02   ? float_of(sign | fraction)
               : draw < 0.03 ? float_of(sign | 0x7f800000U)
               : draw < 0.04 ? float_of(sign | 0x7f800000U | fraction)
               : draw < 0.06 ? float_of(sign)
                             : float_of(sign | (120U + fraction % 10U) << 23 | fraction);
    }
}

static void fill_wild(float *x, size_t count, uint64_t seed, int kind)
{
    uint64_t state = seed;

    for (size_t i = 0; i < count; i++) {
        x[i] = wild(&state, kind);
    }
}

START_TEST(numbers_of_any_kind_give_the_bits_of_the_instruction_without_it)
{
    ddp_precision_t precision;
    ddp_stream_t   *with    = mode_open(INSTRUCTION, &precision);
    ddp_stream_t   *without = mode_open(EMULATION, &precision);
    const size_t    m = 45, n = 53, k = 600;
    float          *a = fixture_new(m * k), *b = fixture_new(n * k), *c = fixture_new(m * n);
    float          *d = fixture_new(m * n), *bias = fixture_new(n);

    /* long sums of wild numbers are all NaN or all huge: short ones too */
    for (size_t depth = 1; depth <= k && with != NULL; depth = depth < 5 ? depth + 1 : depth * 5 - 1) {
        for (int kind = 0; kind < 15; kind++) {
            ddp_gemm_args_t args = {.transpose_a = kind % 3 == 1,
                                    .transpose_b = kind % 3 == 2,
                                    .m           = m,
                                    .n           = n,
                                    .k           = depth,
                                    .alpha       = 1.0F,
                                    .beta        = kind % 2 == 0 ? 1.0F : 0.0F,
                                    .a           = a,
                                    .lda         = kind % 3 == 1 ? m : depth,
                                    .b           = b,
                                    .ldb         = kind % 3 == 2 ? depth : n,
                                    .ldc         = n,
                                    .bias        = kind % 4 == 0 ? bias : NULL,
                                    .precision   = precision};

            fill_wild(a, m * k, depth + 1, kind / 3);
            fill_wild(b, n * k, depth + 2, kind / 3);
            fill_wild(c, m * n, depth + 3, kind / 3);
            fill_wild(bias, n, depth + 4, kind / 3);
            memcpy(d, c, m * n * sizeof(float));
            args.c = c;
            ddp_assert_ok(ddp_op_gemm(with, &args));
            args.c = d;
            ddp_assert_ok(ddp_op_gemm(without, &args));
            ddp_assert_ok(ddp_stream_synchronize(with, -1));
            ddp_assert_ok(ddp_stream_synchronize(without, -1));
            ck_assert(are_equal("gemm", c, d, m * n));
        }
    }
    if (with != NULL) {
        fixture_close(with);
        fixture_close(without);
    }
    fixture_free(a);
    fixture_free(b);
    fixture_free(c);
    fixture_free(d);
    fixture_free(bias);
}
END_TEST

START_TEST(an_input_is_rounded_to_nearest_even_and_a_nan_stays_one)
{
    static const uint32_t cases[][2] = {
        {0x3f800000, 0x3f800000},                           /* 1 */
        {0x3f808000, 0x3f800000},                           /* half way: to the even one below */
        {0x3f808001, 0x3f810000}, {0x3f818000, 0x3f820000}, /* half way: to the even one above */
        {0x3f817fff, 0x3f810000}, {0xbfffffff, 0xc0000000}, /* up to the next power of 2 */
        {0x7f7fffff, 0x7f800000},                           /* the largest number becomes infinite */
        {0x7f7f7fff, 0x7f7f0000}, {0xff800000, 0xff800000},
        {0x00800000, 0x00800000}, {0x007fffff, 0x00000000}, /* denormal */
        {0x00000001, 0x00000000}, {0x80000000, 0x80000000},
    };
    static const uint32_t nans[]    = {0x7f800001, 0x7fffffff, 0xffc00000};
    ddp_precision_t       precision = DDP_PRECISION_BF16;
    ddp_stream_t         *stream    = mode_open(_i, &precision);
    float                 one[1]    = {1.0F};
    float                 y[1];
    float                 x;
    ddp_gemm_args_t       args = {
              .m = 1, .n = 1, .k = 1, .alpha = 1.0F, .a = &x, .lda = 1, .b = one, .ldb = 1, .c = y, .ldc = 1};

    args.precision = precision;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]) && stream != NULL; i++) {
        x = float_of(cases[i][0]);
        if (precision == DDP_PRECISION_FLOAT32) {
            continue;
        }
        ddp_assert_ok(ddp_op_gemm(stream, &args));
        ddp_assert_ok(ddp_stream_synchronize(stream, -1));
        /* a sum begins with +0, and +0 + -0 is +0 */
        ck_assert_msg(y[0] == float_of(cases[i][1]), "%08x: %08x instead of %08x", cases[i][0], bits_of(y[0]),
                      cases[i][1]);
    }
    for (size_t i = 0; i < sizeof(nans) / sizeof(nans[0]) && stream != NULL; i++) {
        x = float_of(nans[i]);
        ddp_assert_ok(ddp_op_gemm(stream, &args));
        ddp_assert_ok(ddp_stream_synchronize(stream, -1));
        ck_assert(isnan(y[0]));
    }
    if (stream != NULL) {
        fixture_close(stream);
    }
}
END_TEST

/* Products of eight bits by eight are exact, so that no FMA is needed for the same sums. */
START_TEST(all_sets_have_the_same_bits_of_a_product)
{
    ddp_precision_t precision;
    outputs_t       plain;
    outputs_t       other;

    for (int mode = 1; mode < MODES; mode += 2) {
        ddp_stream_t *stream = mode_open(mode, &precision);

        if (stream == NULL) {
            break;
        }
        run_operation(0, stream, precision, false, false, mode == 1 ? &plain : &other);
        fixture_close(stream);
        for (size_t i = 0; i < plain.n && mode > 1; i++) {
            ck_assert(are_equal("gemm", plain.x[i], other.x[i], plain.count[i]));
        }
        if (mode > 1) {
            outputs_free(&other);
        }
    }
    outputs_free(&plain);
}
END_TEST

START_TEST(an_unknown_way_of_bf16_is_named)
{
    setenv("DDP_BF16", "fast", 1);
    ddp_assert_fails(ddp_isa_check(), DDP_ERR_UNSUPPORTED, "DDP_BF16=fast: no such way; use emulate");
    setenv("DDP_BF16", "emulate", 1);
    ddp_assert_ok(ddp_isa_check());
    unsetenv("DDP_BF16");
    ddp_assert_ok(ddp_isa_check());
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("bf16");
    TCase *tcase = tcase_create("all sets");

    tcase_add_loop_test(tcase, an_input_is_rounded_to_nearest_even_and_a_nan_stays_one, 0, MODES);
    tcase_add_loop_test(tcase, inputs_of_every_product_are_rounded_and_nothing_else_is, 0, MODES);
    tcase_add_loop_test(tcase, results_are_as_near_to_those_of_float32_as_eight_bits_let_them_be, 0, MODES);
    tcase_add_test(tcase, every_operation_has_the_bits_of_the_instruction_without_it);
    tcase_add_test(tcase, numbers_of_any_kind_give_the_bits_of_the_instruction_without_it);
    tcase_add_test(tcase, all_sets_have_the_same_bits_of_a_product);
    tcase_add_test(tcase, an_unknown_way_of_bf16_is_named);
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
