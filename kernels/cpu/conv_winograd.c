/*
 * Winograd's convolution, image by image in rows of tiles. About TILES tiles share the products of a block;
 * how many depends on the layer's shape alone. Sums run over channels (forward, data gradient) or over tiles
 * in their order (weight gradient), whatever block a tile falls in: a sample's results do not depend on the
 * other samples.
 */
#include <string.h>

#include "kernels/cpu/conv_winograd_internal.h"
#include "kernels/cpu/kernels.h"

#define TILES 64 /* fewer use the weights too seldom, more do not stay in the L2 cache */

/* Sizes, and where things lie in the caller's scratch; pieces start at multiples of a cache line. */
typedef struct plan {
    size_t m, n;
    size_t across, down;        /* tiles of an image */
    size_t rows;                /* rows of tiles in a block */
    size_t in_pitch, out_pitch; /* channels in whole vectors */
    size_t in_plane, out_plane, w_plane, wt_plane;
    size_t in_line, out_line; /* floats of a line of pixels in a strip */
    size_t x_at, dx_at, dy_at, in_at, out_at, w_at, floats;
} plan_t;

static size_t place(plan_t *plan, size_t floats)
{
    const size_t at = plan->floats;

    plan->floats = (at + floats + 15) / 16 * 16;
    return at;
}

static plan_t plan_make(const ddp_conv2d_shape_t *s)
{
    plan_t p = {.m = ddp_conv2d_algo(s) == DDP_CONV_WINOGRAD2 ? 2 : 4};

    p.n         = p.m + 2;
    p.across    = (s->out_w + p.m - 1) / p.m;
    p.down      = (s->out_h + p.m - 1) / p.m;
    p.rows      = (TILES + p.across - 1) / p.across;
    p.in_pitch  = conv_round(s->in_c);
    p.out_pitch = conv_round(s->out_c);
    p.in_plane  = winograd_plane(p.rows * p.across * p.in_pitch);
    p.out_plane = winograd_plane(p.rows * p.across * p.out_pitch);
    p.w_plane   = winograd_plane(s->in_c * p.out_pitch);
    p.wt_plane  = winograd_plane(s->out_c * p.in_pitch);
    p.in_line   = (p.across * p.m + 2) * p.in_pitch;
    p.out_line  = p.across * p.m * p.out_pitch;
    p.x_at      = place(&p, p.n * p.in_line);
    p.dx_at     = place(&p, p.n * p.in_line);
    p.dy_at     = place(&p, p.m * p.out_line);
    p.in_at     = place(&p, p.n * p.n * p.in_plane);
    p.out_at    = place(&p, p.n * p.n * p.out_plane);
    p.w_at      = place(&p, p.n * p.n * (p.w_plane + p.wt_plane));
    return p;
}

size_t DDP_ISA_NAME(conv_winograd_scratch_floats)(const ddp_conv2d_shape_t *shape)
{
    return plan_make(shape).floats;
}

/* Lines first .. first + count - 1 of an image, where line 0 and column 0 are the first of the padding. The
 * columns beside the image are zeros already. */
static void strip_load(const ddp_conv_frame_t *line, size_t first, size_t count, size_t pad, size_t height,
                       const float *image, float *strip)
{
    const size_t floats = conv_frame_row(line);

    for (size_t i = 0; i < count; i++) {
        const size_t y = first + i - pad; /* wraps in the padding before */

        if (y < height) {
            DDP_ISA_NAME(conv_frame_copy)(line, image + y * line->w * line->c, strip + i * floats);
        } else {
            memset(strip + i * floats, 0, floats * sizeof(float));
        }
    }
}

/* A run of one operation: the rows of tiles first .. first + count - 1 of all images are in the planes. */
typedef struct block {
    const ddp_conv2d_shape_t *s;
    const plan_t             *p;
    float                    *scratch;
    size_t                    first, count;
} block_t;

static size_t image_of(const block_t *b, size_t r)
{
    return (b->first + r) / b->p->down;
}

/* The first line of results of row r of the block. */
static size_t line_of(const block_t *b, size_t r)
{
    return (b->first + r) % b->p->down * b->p->m;
}

static ddp_winograd_row_t in_row(const plan_t *p)
{
    return (ddp_winograd_row_t){p->m, p->across, p->in_pitch, p->in_line, p->in_plane};
}

static ddp_winograd_row_t out_row(const plan_t *p)
{
    return (ddp_winograd_row_t){p->m, p->across, p->out_pitch, p->out_line, p->out_plane};
}

/* x -> V */
static void block_input(const block_t *b, const float *x)
{
    const ddp_conv2d_shape_t *s     = b->s;
    const plan_t             *p     = b->p;
    const ddp_winograd_row_t  row   = in_row(p);
    float                    *strip = b->scratch + p->x_at;
    const ddp_conv_frame_t    line  = {.h     = 1,
                                       .w     = s->in_w,
                                       .c     = s->in_c,
                                       .pitch = p->in_pitch,
                                       .left  = s->pad,
                                       .right = p->across * p->m + 2 - s->pad - s->in_w};

    for (size_t r = 0; r < b->count; r++) {
        strip_load(&line, line_of(b, r), p->n, s->pad, s->in_h,
                   x + image_of(b, r) * s->in_h * s->in_w * s->in_c, strip);
        DDP_ISA_NAME(winograd_input)(&row, strip, b->scratch + p->in_at + r * p->across * p->in_pitch);
    }
}

/* dy -> M */
static void block_output_grad(const block_t *b, const float *dy)
{
    const ddp_conv2d_shape_t *s    = b->s;
    const plan_t             *p    = b->p;
    const ddp_winograd_row_t  row  = out_row(p);
    const ddp_conv_frame_t    line = {
           .h = 1, .w = s->out_w, .c = s->out_c, .pitch = p->out_pitch, .right = p->across * p->m - s->out_w};
    const bool ready = line.right == 0 && s->out_c == p->out_pitch;

    for (size_t r = 0; r < b->count; r++) {
        const float *image = dy + image_of(b, r) * s->out_h * s->out_w * s->out_c;
        const float *strip = b->scratch + p->dy_at;

        if (ready && line_of(b, r) + p->m <= s->out_h) { /* in place */
            strip = image + line_of(b, r) * p->out_line;
        } else {
            strip_load(&line, line_of(b, r), p->m, 0, s->out_h, image, b->scratch + p->dy_at);
        }
        DDP_ISA_NAME(winograd_output_grad)
        (&row, strip, b->scratch + p->out_at + r * p->across * p->out_pitch);
    }
}

/* M -> y */
static void block_output(const block_t *b, const ddp_conv2d_args_t *args)
{
    const ddp_conv2d_shape_t *s      = b->s;
    const plan_t             *p      = b->p;
    const ddp_winograd_row_t  row    = out_row(p);
    ddp_winograd_target_t     target = {
            .width = s->out_w, .c = s->out_c, .bias = args->bias, .relu = args->act == DDP_ACT_RELU};

    for (size_t r = 0; r < b->count; r++) {
        const size_t line = line_of(b, r);

        target.lines = s->out_h - line;
        target.y     = args->y + (image_of(b, r) * s->out_h + line) * s->out_w * s->out_c;
        DDP_ISA_NAME(winograd_output)
        (&row, b->scratch + p->out_at + r * p->across * p->out_pitch, &target);
    }
}

/* Line `line` of dx (counted with the padding), if it is one, gets its values. */
static void dx_line(const ddp_conv2d_shape_t *s, size_t pitch, size_t line, const float *sums, float *dx,
                    bool accumulate)
{
    const size_t y  = line - s->pad;
    float       *to = dx + y * s->in_w * s->in_c;

    if (y >= s->in_h) { /* also where it wrapped */
        return;
    }
    sums += s->pad * pitch;
    if (!accumulate && pitch == s->in_c) {
        memcpy(to, sums, s->in_w * pitch * sizeof(float));
        return;
    }
    for (size_t x = 0; x < s->in_w; x++, to += s->in_c, sums += pitch) {
        for (size_t c = 0; c < s->in_c; c++) {
            to[c] = accumulate ? to[c] + sums[c] : sums[c];
        }
    }
}

/* V -> dx. Rows of tiles overlap by two lines, which wait in the strip for the next row. */
static void block_input_grad(const block_t *b, const ddp_conv2d_backward_args_t *args)
{
    const ddp_conv2d_shape_t *s     = b->s;
    const plan_t             *p     = b->p;
    const ddp_winograd_row_t  row   = in_row(p);
    float                    *strip = b->scratch + p->dx_at;

    for (size_t r = 0; r < b->count; r++) {
        float       *dx    = args->dx + image_of(b, r) * s->in_h * s->in_w * s->in_c;
        const size_t line  = line_of(b, r);
        const bool   last  = line + p->m >= s->out_h;
        const size_t lines = last ? p->n : p->m;
        const size_t kept  = line == 0 ? 0 : 2;

        memset(strip + kept * p->in_line, 0, (p->n - kept) * p->in_line * sizeof(float));
        DDP_ISA_NAME(winograd_input_grad)(&row, b->scratch + p->in_at + r * p->across * p->in_pitch, strip);
        for (size_t i = 0; i < lines; i++) {
            dx_line(s, p->in_pitch, line + i, strip + i * p->in_line, dx, args->accumulate_dx);
        }
        memmove(strip, strip + p->m * p->in_line, 2 * p->in_line * sizeof(float));
    }
}

/* The n * n products of a block, one for each plane. `product` is that of plane 0. */
static void run_planes(const plan_t *p, ddp_conv_product_t product, size_t a_plane, size_t b_plane,
                       size_t c_plane)
{
    product.segments = product.repeats = 1;
    for (size_t plane = 0; plane < p->n * p->n; plane++) {
        DDP_ISA_NAME(conv_product)(&product);
        product.a += a_plane;
        product.b += b_plane;
        product.c += c_plane;
        if (plane % p->n == 0) {
            ddp_cpu_progress_point();
        }
    }
}

/* M = V U */
static void products_forward(const block_t *b)
{
    const plan_t            *p       = b->p;
    const ddp_conv_product_t product = {.m      = b->count * p->across,
                                        .n      = p->out_pitch,
                                        .k      = b->s->in_c,
                                        .a      = b->scratch + p->in_at,
                                        .a_row  = p->in_pitch,
                                        .a_step = 1,
                                        .b      = b->scratch + p->w_at,
                                        .b_step = p->out_pitch,
                                        .c      = b->scratch + p->out_at,
                                        .c_row  = p->out_pitch};

    run_planes(p, product, p->in_plane, p->w_plane, p->out_plane);
}

/* V = M Ut: x's own transform is not needed any more */
static void products_input_grad(const block_t *b)
{
    const plan_t            *p       = b->p;
    const ddp_conv_product_t product = {.m      = b->count * p->across,
                                        .n      = p->in_pitch,
                                        .k      = b->s->out_c,
                                        .a      = b->scratch + p->out_at,
                                        .a_row  = p->out_pitch,
                                        .a_step = 1,
                                        .b      = b->scratch + p->w_at + p->n * p->n * p->w_plane,
                                        .b_step = p->in_pitch,
                                        .c      = b->scratch + p->in_at,
                                        .c_row  = p->in_pitch};

    run_planes(p, product, p->out_plane, p->wt_plane, p->in_plane);
}

/* U (+)= Vt M */
static void products_weights_grad(const block_t *b)
{
    const plan_t            *p       = b->p;
    const ddp_conv_product_t product = {.m          = b->s->in_c,
                                        .n          = p->out_pitch,
                                        .k          = b->count * p->across,
                                        .a          = b->scratch + p->in_at,
                                        .a_row      = 1,
                                        .a_step     = p->in_pitch,
                                        .b          = b->scratch + p->out_at,
                                        .b_step     = p->out_pitch,
                                        .c          = b->scratch + p->w_at,
                                        .c_row      = p->out_pitch,
                                        .accumulate = b->first > 0};

    run_planes(p, product, p->in_plane, p->out_plane, p->w_plane);
}

void DDP_ISA_NAME(conv_winograd)(const ddp_conv2d_args_t *args)
{
    const ddp_conv2d_shape_t *s     = &args->shape;
    const plan_t              p     = plan_make(s);
    block_t                   b     = {.s = s, .p = &p, .scratch = args->scratch};
    const size_t              total = s->n * p.down;

    DDP_ISA_NAME(winograd_weights)(s, p.m, false, args->w, b.scratch + p.w_at);
    memset(b.scratch + p.x_at, 0, p.n * p.in_line * sizeof(float));
    for (b.first = 0; b.first < total; b.first += p.rows) {
        b.count = total - b.first < p.rows ? total - b.first : p.rows;
        block_input(&b, args->x);
        products_forward(&b);
        block_output(&b, args);
        ddp_cpu_progress_point();
    }
}

void DDP_ISA_NAME(conv_winograd_backward)(const ddp_conv2d_backward_args_t *args)
{
    const ddp_conv2d_shape_t *s     = &args->shape;
    const plan_t              p     = plan_make(s);
    block_t                   b     = {.s = s, .p = &p, .scratch = args->scratch};
    const size_t              total = s->n * p.down;

    if (args->dx != NULL) {
        DDP_ISA_NAME(winograd_weights)
        (s, p.m, true, args->w, b.scratch + p.w_at + p.n * p.n * p.w_plane);
    }
    memset(b.scratch + p.x_at, 0, p.n * p.in_line * sizeof(float));
    memset(b.scratch + p.dy_at, 0, p.m * p.out_line * sizeof(float));
    for (b.first = 0; b.first < total; b.first += p.rows) {
        b.count = total - b.first < p.rows ? total - b.first : p.rows;
        block_output_grad(&b, args->dy);
        if (args->dw != NULL) {
            block_input(&b, args->x);
            products_weights_grad(&b);
        }
        if (args->dx != NULL) {
            products_input_grad(&b);
            block_input_grad(&b, args);
        }
        ddp_cpu_progress_point();
    }
    if (args->dw != NULL) {
        DDP_ISA_NAME(winograd_weights_grad)(s, p.m, b.scratch + p.w_at, args->dw, args->accumulate_dw);
    }
}
