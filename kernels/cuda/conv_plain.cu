/*
 * Convolution as a product whose operands are looked up in the images (no copy of patches in memory):
 *   y[pixel, o]      = sum over (tap, c) of x[pixel moved by the tap, c] w[o, c, tap]
 *   dx[pixel, c]     = sum over (tap, o) of dy[where the tap came from, o] w[o, c, tap]
 *   dw[o, (tap, c)]  = sum over pixels of dy[pixel, o] x[pixel moved by the tap, c]
 * The last has few elements and long sums: these are cut into parts, which are added up in order.
 */
#include "base/error.h"
#include "kernels/cuda/activation.h"
#include "kernels/cuda/conv_plain.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/precision.h"
#include "kernels/cuda/tile.h"

#define MANY_BLOCKS 512 /* fill a large device */
#define LEAST_PART  256 /* pixels of a part of dw's sums */

/* All below 2^31. */
struct geometry {
    unsigned in_h, in_w, in_c, out_c, kernel_h, kernel_w, stride, pad, out_h, out_w;
};

static geometry geometry_of(const ddp_conv2d_shape_t *s)
{
    const geometry g = {(unsigned)s->in_h,     (unsigned)s->in_w,     (unsigned)s->in_c,   (unsigned)s->out_c,
                        (unsigned)s->kernel_h, (unsigned)s->kernel_w, (unsigned)s->stride, (unsigned)s->pad,
                        (unsigned)s->out_h,    (unsigned)s->out_w};

    return g;
}

struct pixel {
    unsigned image, y, x;
};

/* Pixel i of images of height x width. */
static __device__ inline pixel pixel_of(size_t i, unsigned height, unsigned width)
{
    const unsigned at    = (unsigned)i;
    const unsigned image = at / (height * width);
    const unsigned in    = at - image * height * width;
    const pixel    p     = {image, in / width, in % width};

    return p;
}

/* A tap of the kernel and a channel. */
struct tap {
    unsigned y, x, channel;
};

static __device__ inline tap tap_of(size_t i, unsigned channels, unsigned kernel_w)
{
    const unsigned at   = (unsigned)i / channels;
    const tap      here = {at / kernel_w, at % kernel_w, (unsigned)i % channels};

    return here;
}

static __device__ inline size_t weight_at(const geometry &g, unsigned o, unsigned c, const tap &t)
{
    return (((size_t)o * g.in_c + c) * g.kernel_h + t.y) * g.kernel_w + t.x;
}

/* Lines: pixels of y. Depth: taps and channels. */
template <ddp_precision_t P> struct patches {
    typedef pixel     line_t;
    typedef tap       depth_t;
    static const bool is_deep = true;

    geometry     g;
    const float *x;

    __device__ line_t line(size_t i) const
    {
        return pixel_of(i, g.out_h, g.out_w);
    }
    __device__ depth_t depth(size_t l) const
    {
        return tap_of(l, g.in_c, g.kernel_w);
    }
    /* What the tap sees from a pixel of the result; 0 in the padding. */
    __device__ float at(const line_t &from, const depth_t &t) const
    {
        const unsigned iy = from.y * g.stride + t.y - g.pad; /* wraps below 0 */
        const unsigned ix = from.x * g.stride + t.x - g.pad;

        if (iy >= g.in_h || ix >= g.in_w) {
            return 0.0F;
        }
        return ddp_round(P, x[(((size_t)from.image * g.in_h + iy) * g.in_w + ix) * g.in_c + t.channel]);
    }
};

/* An operand the other way round: its lines are the depths. */
template <class Operand> struct turned {
    typedef typename Operand::depth_t line_t;
    typedef typename Operand::line_t  depth_t;
    static const bool                 is_deep = !Operand::is_deep;

    Operand operand;

    __device__ line_t line(size_t i) const
    {
        return operand.depth(i);
    }
    __device__ depth_t depth(size_t l) const
    {
        return operand.line(l);
    }
    __device__ float at(const line_t &line, const depth_t &depth) const
    {
        return operand.at(depth, line);
    }
};

/* Lines: channels of y. Depth: taps and channels of x. */
template <ddp_precision_t P> struct weights {
    typedef unsigned  line_t;
    typedef tap       depth_t;
    static const bool is_deep = true;

    geometry     g;
    const float *w;

    __device__ line_t line(size_t i) const
    {
        return (unsigned)i;
    }
    __device__ depth_t depth(size_t l) const
    {
        return tap_of(l, g.in_c, g.kernel_w);
    }
    __device__ float at(line_t o, const depth_t &t) const
    {
        return ddp_round(P, w[weight_at(g, o, t.channel, t)]);
    }
};

/* Lines: channels of x. Depth: taps and channels of y. */
template <ddp_precision_t P> struct weights_back {
    typedef unsigned  line_t;
    typedef tap       depth_t;
    static const bool is_deep = false;

    geometry     g;
    const float *w;

    __device__ line_t line(size_t i) const
    {
        return (unsigned)i;
    }
    __device__ depth_t depth(size_t l) const
    {
        return tap_of(l, g.out_c, g.kernel_w);
    }
    __device__ float at(line_t c, const depth_t &t) const
    {
        return ddp_round(P, w[weight_at(g, t.channel, c, t)]);
    }
};

/* Lines: pixels of x. Depth: taps and channels of y. */
template <ddp_precision_t P> struct patches_back {
    typedef pixel     line_t;
    typedef tap       depth_t;
    static const bool is_deep = true;

    geometry     g;
    const float *dy;

    __device__ line_t line(size_t i) const
    {
        return pixel_of(i, g.in_h, g.in_w);
    }
    __device__ depth_t depth(size_t l) const
    {
        return tap_of(l, g.out_c, g.kernel_w);
    }
    __device__ float at(const line_t &to, const depth_t &t) const
    {
        const unsigned dy_y = to.y + g.pad - t.y; /* wraps below 0 */
        const unsigned dy_x = to.x + g.pad - t.x;
        const unsigned oy   = dy_y / g.stride;
        const unsigned ox   = dy_x / g.stride;

        if (dy_y % g.stride != 0 || dy_x % g.stride != 0 || oy >= g.out_h || ox >= g.out_w) {
            return 0.0F;
        }
        return ddp_round(P, dy[(((size_t)to.image * g.out_h + oy) * g.out_w + ox) * g.out_c + t.channel]);
    }
};

/* Lines: channels of y. Depth: pixels of y. */
template <ddp_precision_t P> struct results {
    typedef unsigned  line_t;
    typedef size_t    depth_t;
    static const bool is_deep = false;

    geometry     g;
    const float *dy;

    __device__ line_t line(size_t i) const
    {
        return (unsigned)i;
    }
    __device__ depth_t depth(size_t l) const
    {
        return l * g.out_c;
    }
    __device__ float at(line_t o, depth_t from) const
    {
        return ddp_round(P, dy[from + o]);
    }
};

struct forward_out {
    float       *y;
    const float *bias;
    ddp_act_t    act;
    unsigned     out_c;

    __device__ void put(size_t i, size_t o, float sum) const
    {
        y[i * out_c + o] = ddp_act(act, bias != NULL ? sum + bias[o] : sum);
    }
};

struct dx_out {
    float   *dx;
    unsigned in_c;
    bool     accumulate;

    __device__ void put(size_t i, size_t c, float sum) const
    {
        const size_t at = i * in_c + c;

        dx[at] = accumulate ? dx[at] + sum : sum;
    }
};

/* Element (o, taps and channels) of dw. */
static __device__ inline void put_dw(const geometry &g, float *dw, bool accumulate, size_t o, size_t j,
                                     float sum)
{
    const tap    t  = tap_of(j, g.in_c, g.kernel_w);
    const size_t at = weight_at(g, (unsigned)o, t.channel, t);

    dw[at] = accumulate ? dw[at] + sum : sum;
}

struct dw_out {
    geometry g;
    float   *dw, *part; /* one of them */
    bool     accumulate;

    __device__ void put(size_t o, size_t j, float sum) const
    {
        if (part != NULL) {
            part[o * ((size_t)g.kernel_h * g.kernel_w * g.in_c) + j] = sum;
        } else {
            put_dw(g, dw, accumulate, o, j, sum);
        }
    }
};

template <ddp_precision_t P>
static __global__ void __launch_bounds__(DDP_TILE_THREADS)
    forward_kernel(geometry g, const float *x, const float *w, forward_out out, size_t pixels,
                   unsigned across)
{
    const patches<P> a = {g, x};
    const weights<P> b = {g, w};

    ddp_tile(a, b, out, (size_t)(blockIdx.x / across) * DDP_TILE, pixels,
             (size_t)(blockIdx.x % across) * DDP_TILE, g.out_c, 0, (size_t)g.kernel_h * g.kernel_w * g.in_c);
}

template <ddp_precision_t P>
static __global__ void __launch_bounds__(DDP_TILE_THREADS)
    dx_kernel(geometry g, const float *dy, const float *w, dx_out out, size_t pixels, unsigned across)
{
    const patches_back<P> a = {g, dy};
    const weights_back<P> b = {g, w};

    ddp_tile(a, b, out, (size_t)(blockIdx.x / across) * DDP_TILE, pixels,
             (size_t)(blockIdx.x % across) * DDP_TILE, g.in_c, 0, (size_t)g.kernel_h * g.kernel_w * g.out_c);
}

/* How the sums of dw are cut: the same for a shape on every device. */
struct cut {
    size_t parts, length; /* pixels of a part */
};

/* Block (part, tile). */
template <ddp_precision_t P>
static __global__ void __launch_bounds__(DDP_TILE_THREADS)
    dw_kernel(geometry g, const float *dy, const float *x, dw_out out, size_t pixels, cut c, unsigned tiles,
              unsigned across)
{
    const results<P>         a       = {g, dy};
    const turned<patches<P>> b       = {{g, x}};
    const size_t             columns = (size_t)g.kernel_h * g.kernel_w * g.in_c;
    const size_t             part    = blockIdx.x / tiles;
    const unsigned           tile    = blockIdx.x % tiles;
    const size_t             first   = part * c.length;
    const size_t             end     = first + c.length < pixels ? first + c.length : pixels;
    dw_out                   to      = out;

    to.part = out.part != NULL ? out.part + part * g.out_c * columns : NULL;
    ddp_tile(a, b, to, (size_t)(tile / across) * DDP_TILE, g.out_c, (size_t)(tile % across) * DDP_TILE,
             columns, first, end);
}

static __global__ void add_parts_kernel(geometry g, const float *part, size_t parts, float *dw,
                                        bool accumulate)
{
    const size_t columns = (size_t)g.kernel_h * g.kernel_w * g.in_c;
    const size_t count   = g.out_c * columns;

    DDP_CUDA_EACH(e, count)
    {
        float sum = part[e];

        for (size_t p = 1; p < parts; p++) {
            sum += part[p * count + e];
        }
        put_dw(g, dw, accumulate, e / columns, e % columns, sum);
    }
}

static size_t taps_of(const ddp_conv2d_shape_t *s)
{
    return s->kernel_h * s->kernel_w;
}

static cut cut_of(const ddp_conv2d_shape_t *s)
{
    const size_t pixels = s->n * s->out_h * s->out_w;
    const size_t tiles  = ddp_tiles(s->out_c) * ddp_tiles(taps_of(s) * s->in_c);
    const size_t most   = pixels / LEAST_PART;
    size_t       parts  = tiles < MANY_BLOCKS ? MANY_BLOCKS / tiles : 1;
    cut          c;

    parts    = parts < most ? parts : most;
    parts    = parts > 0 ? parts : 1;
    c.length = (pixels + parts - 1) / parts;
    c.parts  = parts;
    return c;
}

size_t ddp_cuda_conv2d_plain_scratch_bytes(const ddp_conv2d_shape_t *s)
{
    const cut c = cut_of(s);

    return c.parts > 1 ? c.parts * s->out_c * s->in_c * taps_of(s) * sizeof(float) : 0;
}

static ddp_status_t check_counts(const ddp_conv2d_shape_t *s)
{
    const size_t most = INT32_MAX;
    const bool   fits = s->n * s->in_h * s->in_w <= most && s->n * s->out_h * s->out_w <= most &&
                      s->in_h + 2 * s->pad <= most && s->in_w + 2 * s->pad <= most && s->stride <= most &&
                      taps_of(s) * s->in_c <= most && taps_of(s) * s->out_c <= most &&
                      ddp_tiles(s->n * s->out_h * s->out_w) * ddp_tiles(s->out_c) <= most &&
                      ddp_tiles(s->n * s->in_h * s->in_w) * ddp_tiles(s->in_c) <= most &&
                      ddp_tiles(taps_of(s) * s->in_c) * ddp_tiles(s->out_c) <= most;

    return fits ? DDP_OK
                : ddp_fail(DDP_ERR_UNSUPPORTED,
                           "conv2d: %zu images of %zux%zu are too many for the plain kernels; use smaller "
                           "micro-batches",
                           s->n, s->in_h, s->in_w);
}

ddp_status_t ddp_cuda_conv2d_plain(ddp_stream_t *stream, const ddp_conv2d_args_t *args)
{
    const ddp_conv2d_shape_t *s      = &args->shape;
    const size_t              pixels = s->n * s->out_h * s->out_w;
    const size_t              across = ddp_tiles(s->out_c);
    const size_t              blocks = ddp_tiles(pixels) * across;
    const geometry            g      = geometry_of(s);
    const forward_out         out    = {args->y, args->bias, args->act, g.out_c};
    const ddp_status_t        status = check_counts(s);

    if (status != DDP_OK) {
        return status;
    }
    if (blocks > 0) {
        DDP_WITH_PRECISION(s->precision, LAUNCH(forward_kernel<P>, (unsigned)blocks, DDP_TILE_THREADS, 0,
                                                ddp_cuda_stream(stream), g, args->x, args->w, out, pixels,
                                                (unsigned)across));
    }
    return ddp_cuda_launched(stream, "conv2d");
}

static void launch_dx(ddp_stream_t *stream, const ddp_conv2d_backward_args_t *args)
{
    const ddp_conv2d_shape_t *s      = &args->shape;
    const size_t              pixels = s->n * s->in_h * s->in_w;
    const size_t              across = ddp_tiles(s->in_c);
    const size_t              blocks = ddp_tiles(pixels) * across;
    const geometry            g      = geometry_of(s);
    const dx_out              out    = {args->dx, g.in_c, args->accumulate_dx};

    if (blocks > 0) {
        DDP_WITH_PRECISION(s->precision, LAUNCH(dx_kernel<P>, (unsigned)blocks, DDP_TILE_THREADS, 0,
                                                ddp_cuda_stream(stream), g, args->dy, args->w, out, pixels,
                                                (unsigned)across));
    }
}

static void launch_dw(ddp_stream_t *stream, const ddp_conv2d_backward_args_t *args)
{
    const ddp_conv2d_shape_t *s      = &args->shape;
    const size_t              pixels = s->n * s->out_h * s->out_w;
    const size_t              across = ddp_tiles(taps_of(s) * s->in_c);
    const size_t              tiles  = ddp_tiles(s->out_c) * across;
    const cut                 c      = cut_of(s);
    const geometry            g      = geometry_of(s);
    float *const              part   = c.parts > 1 ? (float *)args->scratch : NULL;
    const dw_out              out    = {g, args->dw, part, args->accumulate_dw};

    DDP_WITH_PRECISION(s->precision, LAUNCH(dw_kernel<P>, (unsigned)(tiles * c.parts), DDP_TILE_THREADS, 0,
                                            ddp_cuda_stream(stream), g, args->dy, args->x, out, pixels, c,
                                            (unsigned)tiles, (unsigned)across));
    if (part != NULL) {
        LAUNCH(add_parts_kernel, ddp_cuda_blocks(stream, s->out_c * taps_of(s) * s->in_c), DDP_CUDA_THREADS,
               0, ddp_cuda_stream(stream), g, part, c.parts, args->dw, args->accumulate_dw);
    }
}

ddp_status_t ddp_cuda_conv2d_backward_plain(ddp_stream_t *stream, const ddp_conv2d_backward_args_t *args)
{
    const ddp_status_t status = check_counts(&args->shape);

    if (status != DDP_OK) {
        return status;
    }
    if (args->dx != NULL) {
        launch_dx(stream, args);
    }
    if (args->dw != NULL) {
        launch_dw(stream, args);
    }
    return ddp_cuda_launched(stream, "conv2d backward");
}
