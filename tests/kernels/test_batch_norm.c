/* Batch normalisation. */
#include "kernels/ops_norm.h"
#include "tests/kernels/kernel_fixture.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define EPS          1e-5

typedef struct shape {
    size_t rows, c;
    bool   relu, has_residual;
} shape_t;

/* Channels within, of and beyond a vector and a group of them; rows within and beyond a chunk. */
static const shape_t shapes[] = {{2, 1, false, false},  {7, 3, true, true},     {50, 5, true, false},
                                 {33, 16, true, true},  {130, 17, false, true}, {64, 40, true, false},
                                 {21, 67, true, true},  {9, 130, true, false},  {3, 900, true, true},
                                 {6500, 1, true, true}, {801, 16, true, false}, {250, 100, true, true}};

typedef struct layer {
    shape_t shape;
    float  *x, *residual, *dy, *gamma, *beta;                                                 /* given */
    float  *y, *mean, *rstd, *mean_sum, *var_sum, *dx, *dresidual, *dgamma, *dbeta;           /* got */
    double *y64, *mean64, *rstd64, *var64, *dx64, *dresidual64, *dgamma64, *dbeta64, *column; /* wanted */
} layer_t;

static double *doubles(size_t count)
{
    return calloc(count + 1, sizeof(double));
}

/* Mean and biased variance of column j of x, or of `column` if there is one. */
static void column_moments(const layer_t *l, size_t j, const double *column, double *mean, double *variance)
{
    const size_t rows = l->shape.rows;

    *mean     = 0.0;
    *variance = 0.0;
    for (size_t i = 0; i < rows; i++) {
        *mean += (column != NULL ? column[i] : (double)l->x[i * l->shape.c + j]) / (double)rows;
    }
    for (size_t i = 0; i < rows; i++) {
        const double d = (column != NULL ? column[i] : (double)l->x[i * l->shape.c + j]) - *mean;

        *variance += d * d / (double)rows;
    }
}

/* sum of dy * y where y64 is not 0: what dx differentiates, with the decisions of RELU held */
static double column_loss(const layer_t *l, size_t j)
{
    double loss = 0.0;
    double mean;
    double variance;

    column_moments(l, j, l->column, &mean, &variance);
    for (size_t i = 0; i < l->shape.rows; i++) {
        const size_t at = i * l->shape.c + j;

        if (!l->shape.relu || l->y64[at] > 0.0) {
            loss += (double)l->dy[at] * (l->column[i] - mean) / sqrt(variance + EPS) * (double)l->gamma[j];
        }
    }
    return loss;
}

static void want_column(layer_t *l, size_t j)
{
    const double h = 1e-5;
    const size_t c = l->shape.c;
    double       mean;
    double       variance;

    column_moments(l, j, NULL, &mean, &variance);
    l->mean64[j] = mean;
    l->rstd64[j] = 1.0 / sqrt(variance + EPS);
    l->var64[j]  = variance * (double)l->shape.rows / ((double)l->shape.rows - 1.0);
    for (size_t i = 0; i < l->shape.rows; i++) {
        const size_t at = i * c + j;
        const double n  = ((double)l->x[at] - mean) * l->rstd64[j];
        double       y  = n * (double)l->gamma[j] + (double)l->beta[j];

        y += l->shape.has_residual ? (double)l->residual[at] : 0.0;
        ck_assert_msg(!l->shape.relu || fabs(y) > 1e-6, "a value too near to 0 to test RELU");
        l->y64[at]         = l->shape.relu && y < 0.0 ? 0.0 : y;
        l->dresidual64[at] = l->shape.relu && y < 0.0 ? 0.0 : (double)l->dy[at];
        l->dbeta64[j] += l->dresidual64[at];
        l->dgamma64[j] += l->dresidual64[at] * n;
        l->column[i] = (double)l->x[at];
    }
    for (size_t i = 0; i<l->shape.rows; i += l->shape.rows> 1000 ? 97 : 1) {
        const double kept = l->column[i];

        l->column[i]       = kept + h;
        l->dx64[i * c + j] = column_loss(l, j);
        l->column[i]       = kept - h;
        l->dx64[i * c + j] -= column_loss(l, j);
        l->dx64[i * c + j] /= 2.0 * h;
        l->column[i] = kept;
    }
}

static void layer_open(layer_t *l, shape_t shape)
{
    const size_t count = shape.rows * shape.c;

    *l = (layer_t){.shape       = shape,
                   .x           = fixture_random(count, 1, 2.0F),
                   .residual    = fixture_random(count, 5, 1.0F),
                   .dy          = fixture_random(count, 2, 1.0F),
                   .gamma       = fixture_random(shape.c, 3, 0.5F),
                   .beta        = fixture_random(shape.c, 4, 0.5F),
                   .y           = fixture_new(count),
                   .mean        = fixture_new(shape.c),
                   .rstd        = fixture_new(shape.c),
                   .mean_sum    = fixture_new(shape.c),
                   .var_sum     = fixture_new(shape.c),
                   .dx          = fixture_new(count),
                   .dresidual   = fixture_new(count),
                   .dgamma      = fixture_new(shape.c),
                   .dbeta       = fixture_new(shape.c),
                   .y64         = doubles(count),
                   .mean64      = doubles(shape.c),
                   .rstd64      = doubles(shape.c),
                   .var64       = doubles(shape.c),
                   .dx64        = doubles(count),
                   .dresidual64 = doubles(count),
                   .dgamma64    = doubles(shape.c),
                   .dbeta64     = doubles(shape.c),
                   .column      = doubles(shape.rows)};
    for (size_t j = 0; j < shape.c; j++) {
        l->gamma[j] += 1.0F;
    }
    for (size_t i = 0; i < count; i++) {
        l->x[i] += 3.0F; /* a mean that is not 0 */
    }
    for (size_t j = 0; j < shape.c; j++) {
        want_column(l, j);
    }
}

static void layer_close(layer_t *l)
{
    float *const  buffers[] = {l->x,    l->residual, l->dy,      l->gamma, l->beta,      l->y,      l->mean,
                               l->rstd, l->mean_sum, l->var_sum, l->dx,    l->dresidual, l->dgamma, l->dbeta};
    double *const wanted[]  = {l->y64,         l->mean64,   l->rstd64,  l->var64, l->dx64,
                               l->dresidual64, l->dgamma64, l->dbeta64, l->column};

    for (size_t i = 0; i < COUNT(buffers); i++) {
        fixture_free(buffers[i]);
    }
    for (size_t i = 0; i < COUNT(wanted); i++) {
        free(wanted[i]);
    }
}

static ddp_batch_norm_args_t forward_args(const layer_t *l)
{
    return (ddp_batch_norm_args_t){.x        = l->x,
                                   .rows     = l->shape.rows,
                                   .c        = l->shape.c,
                                   .gamma    = l->gamma,
                                   .beta     = l->beta,
                                   .eps      = (float)EPS,
                                   .residual = l->shape.has_residual ? l->residual : NULL,
                                   .act      = l->shape.relu ? DDP_ACT_RELU : DDP_ACT_NONE,
                                   .y        = l->y,
                                   .mean     = l->mean,
                                   .rstd     = l->rstd,
                                   .mean_sum = l->mean_sum,
                                   .var_sum  = l->var_sum};
}

static ddp_batch_norm_backward_args_t backward_args(const layer_t *l)
{
    return (ddp_batch_norm_backward_args_t){.x         = l->x,
                                            .dy        = l->dy,
                                            .rows      = l->shape.rows,
                                            .c         = l->shape.c,
                                            .gamma     = l->gamma,
                                            .beta      = l->beta,
                                            .mean      = l->mean,
                                            .rstd      = l->rstd,
                                            .act       = l->shape.relu ? DDP_ACT_RELU : DDP_ACT_NONE,
                                            .y         = l->shape.has_residual ? l->y : NULL,
                                            .dx        = l->dx,
                                            .dresidual = l->shape.has_residual ? l->dresidual : NULL,
                                            .dgamma    = l->dgamma,
                                            .dbeta     = l->dbeta};
}

static void run(ddp_stream_t *stream, const ddp_batch_norm_args_t *forward,
                const ddp_batch_norm_backward_args_t *backward)
{
    ddp_assert_ok(ddp_op_batch_norm(stream, forward));
    ddp_assert_ok(ddp_op_batch_norm_backward(stream, backward));
    ddp_assert_ok(ddp_stream_synchronize(stream, -1));
}

static void check_array(const layer_t *l, const char *what, const float *got, const double *wanted,
                        size_t count, double offset, double bound)
{
    double worst = 0.0;

    for (size_t i = 0; i < count; i++) {
        const double error = fabs((double)got[i] - offset - wanted[i]) / (fabs(wanted[i]) + 1.0);

        worst = isnan(error) ? INFINITY : fmax(worst, error);
    }
    ck_assert_msg(worst <= bound, "%zu x %zu: %s off by %g", l->shape.rows, l->shape.c, what, worst);
}

/* dx where it is known. */
static void check_dx(const layer_t *l, const float *dx, double offset)
{
    const size_t c     = l->shape.c;
    double       worst = 0.0;

    for (size_t i = 0; i<l->shape.rows; i += l->shape.rows> 1000 ? 97 : 1) {
        for (size_t j = 0; j < c; j++) {
            const double error = fabs((double)dx[i * c + j] - offset - l->dx64[i * c + j]);

            worst = isnan(error) ? INFINITY
                                 : fmax(worst, error / (fabs(l->dx64[i * c + j]) + 1.0 + l->rstd64[j]));
        }
    }
    ck_assert_msg(worst <= 4e-6, "%zu x %zu: dx off by %g", l->shape.rows, c, worst);
}

/* `offset` was there before, where the results were to be added to it. */
static void check_layer(const layer_t *l, double offset)
{
    const size_t count = l->shape.rows * l->shape.c;
    const double terms = sqrt((double)l->shape.rows); /* of a sum of so many */

    check_array(l, "y", l->y, l->y64, count, 0.0, 4e-6);
    check_array(l, "mean", l->mean, l->mean64, l->shape.c, 0.0, 2e-7);
    check_array(l, "rstd", l->rstd, l->rstd64, l->shape.c, 0.0, 2e-6);
    check_array(l, "mean_sum", l->mean_sum, l->mean64, l->shape.c, offset, 1e-6);
    check_array(l, "var_sum", l->var_sum, l->var64, l->shape.c, offset, 2e-6);
    check_array(l, "dgamma", l->dgamma, l->dgamma64, l->shape.c, offset, 4e-7 * terms + 2e-6);
    check_array(l, "dbeta", l->dbeta, l->dbeta64, l->shape.c, offset, 4e-7 * terms + 1e-6);
    check_dx(l, l->dx, offset);
    if (l->shape.has_residual) {
        check_array(l, "dresidual", l->dresidual, l->dresidual64, count, offset, 5e-7);
    }
}

static void fill(float *y, size_t count, float value)
{
    for (size_t i = 0; i < count; i++) {
        y[i] = value;
    }
}

/* What results are added to. */
static void layer_fill(layer_t *l, float value)
{
    const size_t count = l->shape.rows * l->shape.c;

    fill(l->mean_sum, l->shape.c, value);
    fill(l->var_sum, l->shape.c, value);
    fill(l->dgamma, l->shape.c, value);
    fill(l->dbeta, l->shape.c, value);
    fill(l->dx, count, value);
    fill(l->dresidual, count, value);
}

START_TEST(batch_norm_equals_its_definition_and_finite_differences)
{
    ddp_stream_t *stream = fixture_open(_i);

    for (size_t k = 0; k < COUNT(shapes); k++) {
        ddp_batch_norm_args_t          forward;
        ddp_batch_norm_backward_args_t backward;
        layer_t                        l;

        layer_open(&l, shapes[k]);
        forward  = forward_args(&l);
        backward = backward_args(&l);
        run(stream, &forward, &backward);
        check_layer(&l, 0.0);
        forward.accumulate_mean = forward.accumulate_var = true;
        backward.accumulate_dx = backward.accumulate_dresidual = true;
        backward.accumulate_dgamma = backward.accumulate_dbeta = true;
        layer_fill(&l, 2.0F);
        run(stream, &forward, &backward);
        check_layer(&l, 2.0);
        layer_close(&l);
    }
    fixture_close(stream);
}
END_TEST

/* y over x, dx over dy or dresidual over dy: the same bits. */
START_TEST(results_may_lie_where_operands_are)
{
    ddp_stream_t *stream = fixture_open(_i);

    for (size_t k = 0; k < COUNT(shapes); k++) {
        const size_t                   bytes = shapes[k].rows * shapes[k].c * sizeof(float);
        ddp_batch_norm_args_t          forward;
        ddp_batch_norm_backward_args_t backward;
        layer_t                        l;
        float                         *own_dx;
        float                         *own_y;

        layer_open(&l, shapes[k]);
        own_dx   = l.dx;
        own_y    = l.y;
        forward  = forward_args(&l);
        backward = backward_args(&l);
        run(stream, &forward, &backward);
        if (shapes[k].has_residual) {
            backward.dresidual = l.dy;
            backward.dx        = fixture_new(shapes[k].rows * shapes[k].c);
        } else {
            backward.dx = l.dy;
        }
        ddp_assert_ok(ddp_op_batch_norm_backward(stream, &backward));
        forward.y = l.x;
        ddp_assert_ok(ddp_op_batch_norm(stream, &forward));
        ddp_assert_ok(ddp_stream_synchronize(stream, -1));
        ck_assert_mem_eq(backward.dx, own_dx, bytes);
        ck_assert_mem_eq(l.x, own_y, bytes);
        if (shapes[k].has_residual) {
            ck_assert_mem_eq(l.dy, l.dresidual, bytes);
            fixture_free(backward.dx);
        }
        layer_close(&l);
    }
    fixture_close(stream);
}
END_TEST

START_TEST(evaluation_uses_the_statistics_it_is_given)
{
    ddp_stream_t *stream = fixture_open(_i);

    for (size_t k = 0; k < COUNT(shapes); k++) {
        const size_t          c   = shapes[k].c;
        float                *var = fixture_random(c, 9, 0.5F);
        float                *at  = fixture_random(c, 8, 1.0F);
        ddp_batch_norm_args_t args;
        layer_t               l;

        layer_open(&l, shapes[k]);
        args              = forward_args(&l);
        args.mean_sum     = NULL;
        args.var_sum      = NULL;
        args.running_mean = at;
        args.running_var  = var;
        for (size_t j = 0; j < c; j++) {
            var[j] += 1.0F;
        }
        ddp_assert_ok(ddp_op_batch_norm(stream, &args));
        ddp_assert_ok(ddp_stream_synchronize(stream, -1));
        for (size_t i = 0; i < shapes[k].rows * c; i++) {
            const size_t j = i % c;
            double       y = ((double)l.x[i] - (double)at[j]) / sqrt((double)var[j] + EPS);

            y = y * (double)l.gamma[j] + (double)l.beta[j];
            y += shapes[k].has_residual ? (double)l.residual[i] : 0.0;
            l.y64[i] = shapes[k].relu ? fmax(y, 0.0) : y;
        }
        check_array(&l, "y", l.y, l.y64, shapes[k].rows * c, 0.0, 2e-6);
        ck_assert_mem_eq(l.mean, at, c * sizeof(float));
        args.rows = 1; /* needs no variance */
        ddp_assert_ok(ddp_op_batch_norm(stream, &args));
        layer_close(&l);
        fixture_free(var);
        fixture_free(at);
    }
    fixture_close(stream);
}
END_TEST

/* A mean of 1e4 deviations, the first rows far from the others, and a mean that moves from chunk to chunk. */
START_TEST(variances_keep_their_digits_beside_large_means)
{
    static const size_t channels[] = {3, 16, 70};
    ddp_stream_t       *stream     = fixture_open(_i);

    for (size_t k = 0; k < 3 * COUNT(channels); k++) {
        const size_t          c    = channels[k / 3];
        const size_t          rows = 20000;
        layer_t               l    = {.shape = {rows, c, false, false}};
        ddp_batch_norm_args_t args;

        l.x     = fixture_random(rows * c, 1, 1.0F);
        l.gamma = fixture_random(c, 2, 1.0F);
        l.beta  = fixture_random(c, 2, 1.0F);
        l.y     = fixture_new(rows * c);
        l.mean  = fixture_new(c);
        l.rstd  = fixture_new(c);
        for (size_t i = 0; i < rows * c; i++) {
            l.x[i] += k % 3 == 0 ? 1e4F : k % 3 == 1 ? (i < 6144 ? 1000.0F : 0.0F) : (float)(i / c) - 4000.0F;
        }
        args = forward_args(&l);
        ddp_assert_ok(ddp_op_batch_norm(stream, &args));
        ddp_assert_ok(ddp_stream_synchronize(stream, -1));
        for (size_t j = 0; j < c; j++) {
            double mean;
            double variance;

            column_moments(&l, j, NULL, &mean, &variance);
            ck_assert_double_le(fabs((double)l.mean[j] - mean), 1.2e-7 * (fabs(mean) + sqrt(variance)));
            ck_assert_double_le(fabs((double)l.rstd[j] * sqrt(variance + EPS) - 1.0), 1e-6);
        }
        fixture_free(l.x);
        fixture_free(l.gamma);
        fixture_free(l.beta);
        fixture_free(l.y);
        fixture_free(l.mean);
        fixture_free(l.rstd);
    }
    fixture_close(stream);
}
END_TEST

START_TEST(a_nan_reaches_its_channel_only)
{
    ddp_stream_t                  *stream = fixture_open(_i);
    ddp_batch_norm_args_t          forward;
    ddp_batch_norm_backward_args_t backward;
    layer_t                        l;

    layer_open(&l, (shape_t){33, 20, true, false});
    l.x[5 * 20 + 17] = NAN;
    forward          = forward_args(&l);
    backward         = backward_args(&l);
    run(stream, &forward, &backward);
    for (size_t i = 0; i < 33 * 20; i++) {
        ck_assert_int_eq(isnan(l.y[i]), i % 20 == 17);
        ck_assert_int_eq(isnan(l.dx[i]), i % 20 == 17);
    }
    for (size_t j = 0; j < 20; j++) {
        ck_assert_int_eq(isnan(l.var_sum[j]), j == 17);
        ck_assert_int_eq(isnan(l.dgamma[j]), j == 17);
    }
    layer_close(&l);
    fixture_close(stream);
}
END_TEST

START_TEST(a_batch_without_rows_gives_zeros)
{
    ddp_stream_t                  *stream = fixture_open(_i);
    float                         *x      = fixture_random(4, 1, 1.0F);
    float                         *got    = fixture_new(4 * 5);
    ddp_batch_norm_args_t          f = {.c = 5, .gamma = x, .beta = x, .mean_sum = got, .var_sum = got + 5};
    ddp_batch_norm_backward_args_t b = {.c = 5, .dgamma = got + 10, .dbeta = got + 15};

    ddp_assert_ok(ddp_op_batch_norm(stream, &f));
    ddp_assert_ok(ddp_op_batch_norm_backward(stream, &b));
    ddp_assert_ok(ddp_stream_synchronize(stream, -1));
    for (size_t i = 0; i < 20; i++) {
        ck_assert_float_eq(got[i], 0.0F);
    }
    fill(got, 20, 7.0F);
    f.accumulate_mean = f.accumulate_var = b.accumulate_dgamma = b.accumulate_dbeta = true;
    ddp_assert_ok(ddp_op_batch_norm(stream, &f));
    ddp_assert_ok(ddp_op_batch_norm_backward(stream, &b));
    ddp_assert_ok(ddp_stream_synchronize(stream, -1));
    for (size_t i = 0; i < 20; i++) {
        ck_assert_float_eq(got[i], 7.0F);
    }
    fixture_free(x);
    fixture_free(got);
    fixture_close(stream);
}
END_TEST

START_TEST(arguments_that_do_not_fit_are_invalid)
{
    ddp_stream_t                  *stream = fixture_open(_i);
    ddp_batch_norm_args_t          f;
    ddp_batch_norm_backward_args_t b;
    layer_t                        l;

    layer_open(&l, (shape_t){7, 3, true, true});
    f = forward_args(&l);
#define REFUSES(op, change, text)                                                                            \
    do {                                                                                                     \
        f = forward_args(&l);                                                                                \
        b = backward_args(&l);                                                                               \
        change;                                                                                              \
        ddp_assert_fails(op, DDP_ERR_INVALID_ARG, text);                                                     \
    } while (0)
#define FORWARD  ddp_op_batch_norm(stream, &f)
#define BACKWARD ddp_op_batch_norm_backward(stream, &b)
    REFUSES(FORWARD, f.rows = 1, "a single value in each of 3 channels has no variance");
    REFUSES(FORWARD, f.act = DDP_ACT_GELU, "only no activation or relu");
    REFUSES(FORWARD, f.eps = -1.0F, "eps -1 is below 0");
    REFUSES(FORWARD, f.running_mean = l.mean, "running_mean and running_var are both given, or neither");
    REFUSES(FORWARD, f.rstd = NULL, "mean and rstd are both given, or neither");
    REFUSES(FORWARD, f.var_sum = NULL, "mean_sum and var_sum are both given, or neither");
    REFUSES(FORWARD, f.c = 0, "no channels");
    REFUSES(FORWARD, f.beta = NULL, "no memory for beta");
    REFUSES(BACKWARD, b.dresidual = b.dx, "dx can not be dresidual");
    REFUSES(BACKWARD, (b.dx = l.dy, b.accumulate_dx = true), "dx can not be dy and accumulate");
    REFUSES(BACKWARD, (b.dresidual = l.dy, b.accumulate_dresidual = true),
            "dresidual can not be dy and accumulate");
    REFUSES(BACKWARD, b.rstd = NULL, "no memory for rstd");
    layer_close(&l);
    fixture_close(stream);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("batch_norm");
    TCase *tcase = tcase_create("each instruction set");

    tcase_add_loop_test(tcase, batch_norm_equals_its_definition_and_finite_differences, 0, fixture_isas());
    tcase_add_loop_test(tcase, results_may_lie_where_operands_are, 0, fixture_isas());
    tcase_add_loop_test(tcase, evaluation_uses_the_statistics_it_is_given, 0, fixture_isas());
    tcase_add_loop_test(tcase, variances_keep_their_digits_beside_large_means, 0, fixture_isas());
    tcase_add_loop_test(tcase, a_nan_reaches_its_channel_only, 0, fixture_isas());
    tcase_add_loop_test(tcase, a_batch_without_rows_gives_zeros, 0, fixture_isas());
    tcase_add_loop_test(tcase, arguments_that_do_not_fit_are_invalid, 0, fixture_isas());
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
