#include <string.h>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/table.h"
#include "kernels/cpu/vec.h"

typedef uint8_t vb_t __attribute__((vector_size(VL)));

/* The part of one window that lies in the image: rows [row, row_end), columns likewise; `first` is the
 * position of (row, column) in the window. */
typedef struct window {
    size_t row, row_end;
    size_t column, column_end;
    size_t first;
} window_t;

static void window_clip(const ddp_pool2d_args_t *a, size_t out_row, size_t out_column, window_t *w)
{
    const size_t top  = out_row * a->stride; /* pad rows below the image's row 0 */
    const size_t left = out_column * a->stride;

    w->row        = top > a->pad ? top - a->pad : 0;
    w->column     = left > a->pad ? left - a->pad : 0;
    w->row_end    = top + a->kernel - a->pad < a->in_h ? top + a->kernel - a->pad : a->in_h;
    w->column_end = left + a->kernel - a->pad < a->in_w ? left + a->kernel - a->pad : a->in_w;
    w->first      = (w->row + a->pad - top) * a->kernel + (w->column + a->pad - left);
}

DDP_INLINE vf_t load_lanes(const float *p, size_t lanes)
{
    return lanes == VL ? vload(p) : vload_masked(p, vmask_first(lanes));
}

DDP_INLINE void store_lanes(float *p, vf_t x, size_t lanes)
{
    if (lanes == VL) {
        vstore(p, x);
    } else {
        vstore_masked(p, x, vmask_first(lanes));
    }
}

DDP_INLINE void store_index(uint8_t *p, vi_t index, size_t lanes)
{
    vb_t byte = __builtin_convertvector(index, vb_t);

    if (lanes == VL) {
        memcpy(p, &byte, VL);
    } else {
        memcpy(p, &byte, lanes);
    }
}

DDP_INLINE vi_t load_index(const uint8_t *p, size_t lanes)
{
    vb_t byte = {0};

    if (lanes == VL) {
        memcpy(&byte, p, VL);
    } else {
        memcpy(&byte, p, lanes);
    }
    return __builtin_convertvector(byte, vi_t);
}

/* The larger one stays; of equals the first; a NaN replaces all and is replaced by a NaN only. */
DDP_INLINE void take_larger(vf_t v, int32_t position, vf_t *best, vi_t *index)
{
    const vi_t wins = (v > *best) | (v != v);

    *best  = vselect(wins, v, *best);
    *index = (vset1i(position) & wins) | (*index & ~wins);
}

/* One window of the image x, `lanes` channels from channel c on. */
DDP_INLINE void max_lanes(const ddp_pool2d_args_t *a, const window_t *w, const float *x, float *y,
                          uint8_t *index, size_t c, size_t lanes)
{
    vf_t best  = vset1(-INFINITY);
    vi_t where = vset1i((int32_t)w->first);

    for (size_t i = w->row; i < w->row_end; i++) {
        for (size_t j = w->column; j < w->column_end; j++) {
            const size_t position = w->first + (i - w->row) * a->kernel + (j - w->column);

            take_larger(load_lanes(x + (i * a->in_w + j) * a->c + c, lanes), (int32_t)position, &best,
                        &where);
        }
    }
    store_lanes(y + c, best, lanes);
    store_index(index + c, where, lanes);
}

DDP_INLINE void average_lanes(const ddp_pool2d_args_t *a, const window_t *w, const float *x, float *y,
                              size_t c, size_t lanes)
{
    vf_t sum = vset1(0.0F);

    for (size_t i = w->row; i < w->row_end; i++) {
        for (size_t j = w->column; j < w->column_end; j++) {
            sum += load_lanes(x + (i * a->in_w + j) * a->c + c, lanes);
        }
    }
    store_lanes(y + c, sum / vset1((float)(a->kernel * a->kernel)), lanes);
}

static void pool_window(const ddp_pool2d_args_t *a, const window_t *w, const float *x, float *y,
                        uint8_t *index)
{
    for (size_t c = 0; c < a->c; c += VL) {
        const size_t lanes = a->c - c < VL ? a->c - c : VL;

        if (a->is_max) {
            max_lanes(a, w, x, y, index, c, lanes);
        } else {
            average_lanes(a, w, x, y, c, lanes);
        }
    }
}

/* 2 x 2, stride 2, no padding: x is the window's first pixel, next the pixel below it. */
static void max_2x2(const float *x, const float *next, float *y, uint8_t *index, size_t channels)
{
    for (size_t c = 0; c < channels; c += VL) {
        const size_t lanes = channels - c < VL ? channels - c : VL;
        vf_t         best  = load_lanes(x + c, lanes);
        vi_t         where = vset1i(0);

        take_larger(load_lanes(x + c + channels, lanes), 1, &best, &where);
        take_larger(load_lanes(next + c, lanes), 2, &best, &where);
        take_larger(load_lanes(next + c + channels, lanes), 3, &best, &where);
        store_lanes(y + c, best, lanes);
        store_index(index + c, where, lanes);
    }
}

static bool is_max_2x2(const ddp_pool2d_args_t *a)
{
    return a->is_max && a->kernel == 2 && a->stride == 2 && a->pad == 0;
}

static void pool_row(const ddp_pool2d_args_t *a, const float *x, float *y, uint8_t *index, size_t out_row)
{
    window_t w;

    for (size_t j = 0; j < a->out_w; j++) {
        const size_t at = (out_row * a->out_w + j) * a->c;

        if (is_max_2x2(a)) {
            const float *first = x + (2 * out_row * a->in_w + 2 * j) * a->c;

            max_2x2(first, first + a->in_w * a->c, y + at, index + at, a->c);
        } else {
            window_clip(a, out_row, j, &w);
            pool_window(a, &w, x, y + at, a->is_max ? index + at : NULL);
        }
    }
}

ddp_status_t DDP_ISA_NAME(pool2d)(const ddp_pool2d_args_t *args)
{
    const size_t in_image  = args->in_h * args->in_w * args->c;
    const size_t out_image = args->out_h * args->out_w * args->c;

    for (size_t n = 0; n < args->n; n++) {
        for (size_t i = 0; i < args->out_h; i++) {
            pool_row(args, args->x + n * in_image, args->y + n * out_image,
                     args->is_max ? args->index + n * out_image : NULL, i);
        }
        ddp_cpu_progress_point();
    }
    return DDP_OK;
}

/* Add one window's gradient to the image dx. */
static void unpool_window(const ddp_pool2d_args_t *a, const window_t *w, const float *dy,
                          const uint8_t *index, float *dx)
{
    const vf_t share = vset1((float)(a->kernel * a->kernel));

    for (size_t c = 0; c < a->c; c += VL) {
        const size_t lanes = a->c - c < VL ? a->c - c : VL;
        const vf_t   d     = load_lanes(dy + c, lanes);
        const vi_t   where = a->is_max ? load_index(index + c, lanes) : vset1i(0);

        for (size_t i = w->row; i < w->row_end; i++) {
            for (size_t j = w->column; j < w->column_end; j++) {
                const size_t position = w->first + (i - w->row) * a->kernel + (j - w->column);
                float       *to       = dx + (i * a->in_w + j) * a->c + c;
                const vf_t   add =
                    a->is_max ? vselect(where == vset1i((int32_t)position), d, vset1(0.0F)) : d / share;

                store_lanes(to, load_lanes(to, lanes) + add, lanes);
            }
        }
    }
}

DDP_INLINE void put_where(float *to, vi_t where, int32_t position, vf_t d, bool accumulate, size_t lanes)
{
    const vf_t put = vselect(where == vset1i(position), d, vset1(0.0F));

    store_lanes(to, accumulate ? load_lanes(to, lanes) + put : put, lanes);
}

/* Windows do not overlap: each pixel is written once, and not read unless it is added to. */
static void unmax_2x2(const float *dy, const uint8_t *index, float *dx, float *next, size_t channels,
                      bool accumulate)
{
    for (size_t c = 0; c < channels; c += VL) {
        const size_t lanes = channels - c < VL ? channels - c : VL;
        const vf_t   d     = load_lanes(dy + c, lanes);
        const vi_t   where = load_index(index + c, lanes);

        put_where(dx + c, where, 0, d, accumulate, lanes);
        put_where(dx + c + channels, where, 1, d, accumulate, lanes);
        put_where(next + c, where, 2, d, accumulate, lanes);
        put_where(next + c + channels, where, 3, d, accumulate, lanes);
    }
}

/* What no window covers where a side is odd: the last row and the last column. */
static void clear_uncovered(const ddp_pool2d_args_t *a, float *dx)
{
    const size_t row  = a->in_w * a->c;
    const size_t wide = 2 * a->out_w * a->c;
    const size_t rows = 2 * a->out_h;

    for (size_t i = 0; i < rows; i++) {
        memset(dx + i * row + wide, 0, (row - wide) * sizeof(*dx));
    }
    memset(dx + rows * row, 0, (a->in_h - rows) * row * sizeof(*dx));
}

static void unpool_image_2x2(const ddp_pool2d_backward_args_t *args, const float *dy, const uint8_t *index,
                             float *dx)
{
    const ddp_pool2d_args_t *a = &args->forward;

    if (!args->accumulate) {
        clear_uncovered(a, dx);
    }
    for (size_t i = 0; i < a->out_h; i++) {
        for (size_t j = 0; j < a->out_w; j++) {
            const size_t at    = (i * a->out_w + j) * a->c;
            float       *first = dx + (2 * i * a->in_w + 2 * j) * a->c;

            unmax_2x2(dy + at, index + at, first, first + a->in_w * a->c, a->c, args->accumulate);
        }
    }
}

static void unpool_image(const ddp_pool2d_backward_args_t *args, const float *dy, const uint8_t *index,
                         float *dx)
{
    const ddp_pool2d_args_t *a = &args->forward;
    window_t                 w;

    if (!args->accumulate) {
        memset(dx, 0, a->in_h * a->in_w * a->c * sizeof(*dx));
    }
    for (size_t i = 0; i < a->out_h; i++) {
        for (size_t j = 0; j < a->out_w; j++) {
            const size_t at = (i * a->out_w + j) * a->c;

            window_clip(a, i, j, &w);
            unpool_window(a, &w, dy + at, a->is_max ? index + at : NULL, dx);
        }
    }
}

ddp_status_t DDP_ISA_NAME(pool2d_backward)(const ddp_pool2d_backward_args_t *args)
{
    const ddp_pool2d_args_t *a         = &args->forward;
    const size_t             in_image  = a->in_h * a->in_w * a->c;
    const size_t             out_image = a->out_h * a->out_w * a->c;

    for (size_t n = 0; n < a->n; n++) {
        const float   *dy    = args->dy + n * out_image;
        const uint8_t *index = a->is_max ? a->index + n * out_image : NULL;

        if (is_max_2x2(a)) {
            unpool_image_2x2(args, dy, index, args->dx + n * in_image);
        } else {
            unpool_image(args, dy, index, args->dx + n * in_image);
        }
        ddp_cpu_progress_point();
    }
    return DDP_OK;
}
