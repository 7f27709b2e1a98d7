#include "tests/kernels/conv_layer.h"

#include "tests/kernels/bf16_test.h"

void layer_open(layer_t *l, ddp_stream_t *stream, ddp_conv2d_shape_t shape)
{
    ddp_assert_ok(ddp_conv2d_shape_fill(&shape));
    l->s       = shape;
    l->x_count = shape.n * shape.in_h * shape.in_w * shape.in_c;
    l->w_count = shape.out_c * shape.in_c * shape.kernel_h * shape.kernel_w;
    l->y_count = shape.n * shape.out_h * shape.out_w * shape.out_c;
    l->x       = fixture_random(l->x_count, 1, 1.0F);
    l->w       = fixture_random(l->w_count, 2, 1.0F);
    l->bias    = fixture_random(shape.out_c, 3, 1.0F);
    l->dy      = fixture_random(l->y_count, 4, 1.0F);
    if (shape.precision != DDP_PRECISION_FLOAT32) {
        bf16_nearest_all(l->x, l->x_count);
        bf16_nearest_all(l->w, l->w_count);
        bf16_nearest_all(l->dy, l->y_count);
    }
    l->y       = fixture_new(l->y_count);
    l->dx      = fixture_new(l->x_count);
    l->dw      = fixture_new(l->w_count);
    l->db      = fixture_new(shape.out_c);
    l->scratch = fixture_new(ddp_conv2d_scratch_bytes(ddp_stream_device(stream), &shape) / sizeof(float));
    l->y_want  = calloc(l->y_count + 1, sizeof(double));
    l->dx_want = calloc(l->x_count + 1, sizeof(double));
    l->dw_want = calloc(l->w_count + 1, sizeof(double));
    l->db_want = calloc(shape.out_c, sizeof(double));
    ck_assert(l->y_want != NULL && l->dx_want != NULL && l->dw_want != NULL && l->db_want != NULL);
    l->y_size  = (double)(shape.in_c * shape.kernel_h * shape.kernel_w + 1);
    l->dx_size = (double)(shape.out_c * shape.kernel_h * shape.kernel_w);
    l->dw_size = l->db_size = (double)(shape.n * shape.out_h * shape.out_w + 1);
}

void layer_close(layer_t *l)
{
    float *buffers[] = {l->x, l->w, l->bias, l->dy, l->y, l->dx, l->dw, l->db, l->scratch};

    for (size_t i = 0; i < sizeof(buffers) / sizeof(buffers[0]); i++) {
        fixture_free(buffers[i]);
    }
    free(l->y_want);
    free(l->dx_want);
    free(l->dw_want);
    free(l->db_want);
}

/* One product x * w of the sum for one output element, and its share in all three results. */
static void plain_tap(layer_t *l, size_t image, size_t oy, size_t ox, size_t o, size_t ky, size_t kx)
{
    const ddp_conv2d_shape_t *s  = &l->s;
    const size_t              iy = oy * s->stride + ky - s->pad; /* wraps below 0 */
    const size_t              ix = ox * s->stride + kx - s->pad;
    const size_t              to = ((image * s->out_h + oy) * s->out_w + ox) * s->out_c + o;

    if (iy >= s->in_h || ix >= s->in_w) {
        return;
    }
    for (size_t c = 0; c < s->in_c; c++) {
        const size_t from = ((image * s->in_h + iy) * s->in_w + ix) * s->in_c + c;
        const size_t at   = ((o * s->in_c + c) * s->kernel_h + ky) * s->kernel_w + kx;

        l->y_want[to] += (double)l->x[from] * (double)l->w[at];
        l->dx_want[from] += (double)l->dy[to] * (double)l->w[at];
        l->dw_want[at] += (double)l->dy[to] * (double)l->x[from];
    }
}

void layer_plain_loop(layer_t *l, bool bias)
{
    const ddp_conv2d_shape_t *s = &l->s;

    for (size_t at = 0; at < l->y_count; at++) {
        const size_t o  = at % s->out_c;
        const size_t ox = at / s->out_c % s->out_w;
        const size_t oy = at / s->out_c / s->out_w % s->out_h;

        l->y_want[at] += bias ? (double)l->bias[o] : 0.0;
        l->db_want[o] += (double)l->dy[at];
        for (size_t tap = 0; tap < s->kernel_h * s->kernel_w; tap++) {
            plain_tap(l, at / s->out_c / s->out_w / s->out_h, oy, ox, o, tap / s->kernel_w,
                      tap % s->kernel_w);
        }
    }
}

bool layer_close_enough(const char *what, const float *got, const double *want, size_t count, double size)
{
    const double bound = 1e-7 * (size + 8.0);

    for (size_t i = 0; i < count; i++) {
        if (!(fabs((double)got[i] - want[i]) <= bound)) {
            fprintf(stderr, "%s[%zu]: %.9g instead of %.9g (bound %g)\n", what, i, (double)got[i], want[i],
                    bound);
            return false;
        }
    }
    return true;
}

ddp_conv2d_args_t layer_forward(const layer_t *l)
{
    return (ddp_conv2d_args_t){
        .shape = l->s, .x = l->x, .w = l->w, .bias = l->bias, .y = l->y, .scratch = l->scratch};
}

ddp_conv2d_backward_args_t layer_backward(const layer_t *l)
{
    return (ddp_conv2d_backward_args_t){.shape   = l->s,
                                        .x       = l->x,
                                        .w       = l->w,
                                        .dy      = l->dy,
                                        .dx      = l->dx,
                                        .dw      = l->dw,
                                        .db      = l->db,
                                        .scratch = l->scratch};
}

void layer_run(ddp_stream_t *stream, const layer_t *l)
{
    const ddp_conv2d_args_t          forward  = layer_forward(l);
    const ddp_conv2d_backward_args_t backward = layer_backward(l);

    ddp_assert_ok(ddp_op_conv2d(stream, &forward));
    ddp_assert_ok(ddp_op_conv2d_backward(stream, &backward));
    ddp_assert_ok(ddp_stream_synchronize(stream, -1));
}

static void make_coarse(float *x, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        x[i] = (float)((int)(x[i] * 8.0F)) / 8.0F;
    }
}

void layer_make_coarse(layer_t *l)
{
    make_coarse(l->x, l->x_count);
    make_coarse(l->w, l->w_count);
    make_coarse(l->dy, l->y_count);
    make_coarse(l->bias, l->s.out_c);
}

double layer_loss(ddp_stream_t *stream, const layer_t *l)
{
    const ddp_conv2d_args_t forward = layer_forward(l);
    double                  loss    = 0.0;

    ddp_assert_ok(ddp_op_conv2d(stream, &forward));
    ddp_assert_ok(ddp_stream_synchronize(stream, -1));
    for (size_t i = 0; i < l->y_count; i++) {
        loss += (double)l->y[i] * (double)l->dy[i];
    }
    return loss;
}
