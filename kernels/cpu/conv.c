/*
 * 2-d convolution. Direct: an image is a matrix whose rows overlap, so all three products of a layer run on
 * the image itself (in a frame of zeros, in cache), without im2col. Winograd: conv_winograd.c.
 *
 * In bfloat16 the frames hold pairs of what is summed over: of channels in forward and in the data gradient,
 * of images in the weight gradient. Then the products are those of float32 with lanes for numbers.
 */
#include <string.h>

#include "kernels/cpu/bf16_internal.h"
#include "kernels/cpu/conv_winograd_internal.h"
#include "kernels/cpu/kernels.h"

/* Where things lie in the caller's scratch; pieces start at multiples of a cache line. */
typedef struct plan {
    const ddp_bf16_pieces_t *pieces;  /* NULL: float32 */
    size_t                   in, out; /* lanes of a pixel's channels where they are summed over */
    ddp_conv_frame_t         x;       /* image for forward: zeros as padding asks */
    ddp_conv_frame_t         pixels;  /* the same for the weight gradient */
    ddp_conv_frame_t         dy; /* output gradient for the data gradient: zeros where taps reach outside */
    ddp_conv_frame_t         columns; /* output gradient for the weight gradient: whole vectors of channels */
    bool   copies_x, copies_dy, copies_columns; /* else the caller's memory has that form already */
    size_t x_at, dy_at, columns_at, forward_at, classes_at, dw_at, floats;
} plan_t;

static size_t smallest_after(size_t have, size_t want)
{
    return want > have ? want - have : 0;
}

/* Frame along one axis of dy: zeros before and after so that every tap of every input position lands in it.
 */
static void frame_axis(size_t in, size_t kernel, size_t stride, size_t pad, size_t out, size_t *before,
                       size_t *after)
{
    *before = (smallest_after(pad, kernel - 1) + stride - 1) / stride;
    *after  = smallest_after(out, (in - 1 + pad) / stride + 1);
}

static size_t place(plan_t *plan, size_t floats)
{
    const size_t at = plan->floats;

    plan->floats = (at + floats + 15) / 16 * 16;
    return at;
}

static plan_t plan_make(const ddp_conv2d_shape_t *s)
{
    const size_t taps    = s->kernel_h * s->kernel_w;
    const bool   rounded = s->precision != DDP_PRECISION_FLOAT32;
    plan_t       p       = {.in = s->in_c, .out = s->out_c};

    if (rounded) {
        p.pieces = bf16_pieces(s->precision);
        p.in     = (s->in_c + 1) / 2;
        p.out    = (s->out_c + 1) / 2;
    }
    p.x      = (ddp_conv_frame_t){s->in_h, s->in_w, s->in_c, p.in, s->pad, s->pad, s->pad, s->pad};
    p.pixels = (ddp_conv_frame_t){s->in_h, s->in_w, s->in_c, s->in_c, s->pad, s->pad, s->pad, s->pad};
    p.dy     = (ddp_conv_frame_t){.h = s->out_h, .w = s->out_w, .c = s->out_c, .pitch = p.out};
    frame_axis(s->in_h, s->kernel_h, s->stride, s->pad, s->out_h, &p.dy.top, &p.dy.bottom);
    frame_axis(s->in_w, s->kernel_w, s->stride, s->pad, s->out_w, &p.dy.left, &p.dy.right);
    p.columns =
        (ddp_conv_frame_t){.h = s->out_h, .w = s->out_w, .c = s->out_c, .pitch = conv_round(s->out_c)};
    p.copies_x       = rounded || s->pad > 0;
    p.copies_dy      = rounded || p.dy.top + p.dy.bottom + p.dy.left + p.dy.right > 0;
    p.copies_columns = rounded || p.columns.pitch != s->out_c;
    p.x_at           = place(&p, p.copies_x ? conv_frame_floats(&p.pixels) : 0); /* the larger of both */
    p.dy_at          = place(&p, p.copies_dy ? conv_frame_floats(&p.dy) : 0);
    p.columns_at     = place(&p, p.copies_columns ? conv_frame_floats(&p.columns) : 0);
    p.forward_at     = place(&p, taps * s->in_c * conv_round(s->out_c));
    p.dw_at          = p.forward_at; /* forward's weights and the gradient are never needed together */
    p.classes_at     = place(&p, taps * s->out_c * conv_round(s->in_c));
    return p;
}

static bool is_direct(const ddp_conv2d_shape_t *shape)
{
    return ddp_conv2d_algo(shape) == DDP_CONV_DIRECT;
}

size_t DDP_ISA_NAME(conv2d_scratch_bytes)(const ddp_conv2d_shape_t *shape)
{
    const size_t floats =
        is_direct(shape) ? plan_make(shape).floats : DDP_ISA_NAME(conv_winograd_scratch_floats)(shape);

    return floats * sizeof(float);
}

static void run_product(const plan_t *plan, const ddp_conv_product_t *product)
{
    if (plan->pieces != NULL) {
        plan->pieces->conv_product(product);
    } else {
        DDP_ISA_NAME(conv_product)(product);
    }
}

/* The image in the form a product over channels wants: in place, or copied into its frame. */
static const float *in_frame(const plan_t *plan, const ddp_conv_frame_t *frame, bool copies,
                             const float *image, float *framed)
{
    if (!copies) {
        return image;
    }
    if (plan->pieces != NULL) {
        DDP_ISA_NAME(conv_frame_pair_channels)(plan->pieces, frame, image, framed);
    } else {
        DDP_ISA_NAME(conv_frame_copy)(frame, image, framed);
    }
    return framed;
}

/* The image in the form a product over pixels wants; `next` is paired with it, where there are pairs. */
static const float *in_pixel_frame(const plan_t *plan, const ddp_conv_frame_t *frame, bool copies,
                                   const float *image, const float *next, float *framed)
{
    if (plan->pieces == NULL) {
        return in_frame(plan, frame, copies, image, framed);
    }
    DDP_ISA_NAME(conv_frame_pair_images)(plan->pieces, frame, image, next, framed);
    return framed;
}

static void run_forward(const ddp_conv2d_args_t *args)
{
    const ddp_conv2d_shape_t *s       = &args->shape;
    const plan_t              plan    = plan_make(s);
    float                    *scratch = args->scratch;
    float                    *frame   = scratch + plan.x_at;
    const size_t              pitch   = conv_round(s->out_c);
    const size_t              row     = conv_frame_row(&plan.x);
    ddp_conv_product_t        product = {.m         = s->out_w,
                                         .n         = s->out_c,
                                         .k         = s->kernel_w * plan.in,
                                         .segments  = s->kernel_h,
                                         .repeats   = s->out_h,
                                         .a_row     = s->stride * plan.in,
                                         .a_step    = 1,
                                         .a_segment = row,
                                         .a_repeat  = s->stride * row,
                                         .b         = scratch + plan.forward_at,
                                         .b_step    = pitch,
                                         .b_segment = s->kernel_w * plan.in * pitch,
                                         .c_row     = s->out_c,
                                         .c_repeat  = s->out_w * s->out_c,
                                         .bias      = args->bias,
                                         .relu      = args->act == DDP_ACT_RELU};

    if (s->kernel_h == 1 && s->kernel_w == 1 && s->stride == 1 && s->pad == 0) { /* rows follow each other */
        product.m *= s->out_h;
        product.repeats = 1;
    }
    DDP_ISA_NAME(conv_pack_forward)(s, args->w, scratch + plan.forward_at);
    if (plan.pieces != NULL) {
        DDP_ISA_NAME(conv_pair_rows)
        (plan.pieces, scratch + plan.forward_at, s->kernel_h * s->kernel_w, s->in_c, pitch);
    }
    if (plan.copies_x) {
        DDP_ISA_NAME(conv_frame_clear)(&plan.x, frame);
    }
    for (size_t i = 0; i < s->n; i++) {
        product.a = in_frame(&plan, &plan.x, plan.copies_x, args->x + i * s->in_h * s->in_w * s->in_c, frame);
        product.c = args->y + i * s->out_h * s->out_w * s->out_c;
        run_product(&plan, &product);
        ddp_cpu_progress_point();
    }
}

ddp_status_t DDP_ISA_NAME(conv2d)(const ddp_conv2d_args_t *args)
{
    if (args->shape.n == 0) {
        return DDP_OK;
    }
    if (is_direct(&args->shape)) {
        run_forward(args);
    } else {
        DDP_ISA_NAME(conv_winograd)(args);
    }
    return DDP_OK;
}

/* One class of input positions of one image: a convolution of stride 1 over dy, with some of the taps. */
static void class_run(const ddp_conv2d_backward_args_t *args, const plan_t *plan, const ddp_conv_class_t *y,
                      const ddp_conv_class_t *x, const float *dy, const float *weights, float *dx)
{
    const ddp_conv2d_shape_t *s     = &args->shape;
    const size_t              pitch = conv_round(s->in_c);
    const size_t              row   = conv_frame_row(&plan->dy);
    const bool                empty = y->taps == 0 || x->taps == 0;
    ddp_conv_product_t        p     = {.m          = x->count,
                                       .n          = s->in_c,
                                       .k          = x->taps * plan->out,
                                       .segments   = empty ? 0 : y->taps,
                                       .repeats    = y->count,
                                       .a          = empty ? dy : dy + y->origin * row + x->origin * plan->out,
                                       .a_row      = plan->out,
                                       .a_step     = 1,
                                       .a_segment  = row,
                                       .a_repeat   = row,
                                       .b          = weights,
                                       .b_step     = pitch,
                                       .b_segment  = x->taps * plan->out * pitch,
                                       .c          = dx + (y->first * s->in_w + x->first) * s->in_c,
                                       .c_row      = s->stride * s->in_c,
                                       .c_repeat   = s->stride * s->in_w * s->in_c,
                                       .accumulate = args->accumulate_dx};

    run_product(plan, &p);
}

/* @return lanes of the packed weights */
static size_t pack_class(const plan_t *plan, const ddp_conv2d_shape_t *s, size_t row, size_t column,
                         const float *w, float *packed)
{
    const size_t pitch  = conv_round(s->in_c);
    const size_t floats = DDP_ISA_NAME(conv_pack_class)(s, row, column, w, packed);

    return plan->pieces == NULL ? floats
                                : DDP_ISA_NAME(conv_pair_rows)(plan->pieces, packed,
                                                               floats / (s->out_c * pitch), s->out_c, pitch);
}

static void run_dx(const ddp_conv2d_backward_args_t *args, const plan_t *plan)
{
    const ddp_conv2d_shape_t *s       = &args->shape;
    float                    *scratch = args->scratch;
    float                    *frame   = scratch + plan->dy_at;
    float                    *weights = scratch + plan->classes_at;

    for (size_t r = 0; r < s->stride; r++) {
        for (size_t q = 0; q < s->stride; q++) {
            weights += pack_class(plan, s, r, q, args->w, weights);
        }
    }
    if (plan->copies_dy) {
        DDP_ISA_NAME(conv_frame_clear)(&plan->dy, frame);
    }
    for (size_t i = 0; i < s->n; i++) {
        const float *dy =
            in_frame(plan, &plan->dy, plan->copies_dy, args->dy + i * s->out_h * s->out_w * s->out_c, frame);

        weights = scratch + plan->classes_at;
        for (size_t r = 0; r < s->stride; r++) {
            const ddp_conv_class_t y = conv_class(r, s->in_h, s->kernel_h, s->stride, s->pad, plan->dy.top);

            for (size_t q = 0; q < s->stride; q++) {
                const ddp_conv_class_t x =
                    conv_class(q, s->in_w, s->kernel_w, s->stride, s->pad, plan->dy.left);

                class_run(args, plan, &y, &x, dy, weights, args->dx + i * s->in_h * s->in_w * s->in_c);
                weights += y.taps * x.taps * plan->out * conv_round(s->in_c);
            }
        }
        ddp_cpu_progress_point();
    }
}

/* Rows of dw[r] are (column tap, channel): contiguous in the image; the sum runs over the output's pixels. */
static void run_dw(const ddp_conv2d_backward_args_t *args, const plan_t *plan)
{
    const ddp_conv2d_shape_t *s       = &args->shape;
    float                    *scratch = args->scratch;
    const size_t              pitch   = conv_round(s->out_c);
    const size_t              row     = conv_frame_row(&plan->pixels);
    const size_t              rows    = s->kernel_w * s->in_c;
    const size_t              image   = s->in_h * s->in_w * s->in_c;
    const size_t              result  = s->out_h * s->out_w * s->out_c;
    const size_t              step    = plan->pieces != NULL ? 2 : 1;
    ddp_conv_product_t        product = {.m         = rows,
                                         .n         = s->out_c,
                                         .k         = s->out_w,
                                         .segments  = s->out_h,
                                         .repeats   = s->kernel_h,
                                         .a_row     = 1,
                                         .a_step    = s->stride * s->in_c,
                                         .a_segment = s->stride * row,
                                         .a_repeat  = row,
                                         .b_step    = pitch,
                                         .b_segment = s->out_w * pitch,
                                         .c         = scratch + plan->dw_at,
                                         .c_row     = pitch,
                                         .c_repeat  = rows * pitch};

    if (plan->copies_x) {
        DDP_ISA_NAME(conv_frame_clear)(&plan->pixels, scratch + plan->x_at);
    }
    if (plan->copies_columns) {
        DDP_ISA_NAME(conv_frame_clear)(&plan->columns, scratch + plan->columns_at);
    }
    for (size_t i = 0; i < s->n; i += step) {
        const float *x    = args->x + i * image;
        const float *dy   = args->dy + i * result;
        const bool   both = i + 1 < s->n;

        product.a = in_pixel_frame(plan, &plan->pixels, plan->copies_x, x, both ? x + image : NULL,
                                   scratch + plan->x_at);
        product.b = in_pixel_frame(plan, &plan->columns, plan->copies_columns, dy, both ? dy + result : NULL,
                                   scratch + plan->columns_at);
        product.accumulate = i > 0;
        run_product(plan, &product);
        ddp_cpu_progress_point();
    }
    DDP_ISA_NAME(conv_unpack)(s, scratch + plan->dw_at, args->dw, args->accumulate_dw);
}

/* Sums per image, then over images: float32 keeps enough of either. Comes last and has all scratch. */
static void run_db(const ddp_conv2d_backward_args_t *args)
{
    const ddp_conv2d_shape_t *s      = &args->shape;
    float                    *total  = args->scratch;
    const size_t              pixels = s->out_h * s->out_w;

    memset(total, 0, conv_round(s->out_c) * sizeof(float));
    for (size_t i = 0; i < s->n; i++) {
        for (size_t c = 0; c < s->out_c; c += VL) {
            const vmask_t mask = vmask_first(s->out_c - c < VL ? s->out_c - c : VL);
            const float  *dy   = args->dy + i * pixels * s->out_c + c;
            vf_t          sum  = vset1(0.0F);

            for (size_t p = 0; p < pixels; p++) {
                sum += vload_masked(dy + p * s->out_c, mask);
            }
            vstore(total + c, vload(total + c) + sum);
        }
    }
    for (size_t c = 0; c < s->out_c; c++) {
        args->db[c] = args->accumulate_dw ? args->db[c] + total[c] : total[c];
    }
}

/* A batch without images: its gradients are 0. */
static void run_empty(const ddp_conv2d_backward_args_t *args)
{
    const ddp_conv2d_shape_t *s = &args->shape;

    if (args->dw != NULL && !args->accumulate_dw) {
        memset(args->dw, 0, s->out_c * s->in_c * s->kernel_h * s->kernel_w * sizeof(float));
    }
    if (args->db != NULL && !args->accumulate_dw) {
        memset(args->db, 0, s->out_c * sizeof(float));
    }
}

/* dx first: once dw is there, its owner may change w. */
static void run_direct(const ddp_conv2d_backward_args_t *args)
{
    const plan_t plan = plan_make(&args->shape);

    if (args->dx != NULL) {
        run_dx(args, &plan);
    }
    if (args->dw != NULL) {
        run_dw(args, &plan);
    }
}

ddp_status_t DDP_ISA_NAME(conv2d_backward)(const ddp_conv2d_backward_args_t *args)
{
    if (args->shape.n == 0) {
        run_empty(args);
        return DDP_OK;
    }
    if (is_direct(&args->shape)) {
        run_direct(args);
    } else if (args->dx != NULL || args->dw != NULL) {
        DDP_ISA_NAME(conv_winograd_backward)(args);
    }
    if (args->db != NULL) {
        run_db(args);
    }
    return DDP_OK;
}
