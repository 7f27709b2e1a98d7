/* Winograd's transforms; see conv_winograd_internal.h. A map is applied to the columns of a tile, then to the
 * rows of what came out; all loops vanish, so that a tile stays in registers and on the stack. */
#include "kernels/cpu/activation.h"
#include "kernels/cpu/conv_winograd_internal.h"

#define MAX_SIDE 6

typedef enum map { MAP_BT, MAP_B, MAP_AT, MAP_A, MAP_G, MAP_GT } map_t;

DDP_INLINE int side_from(const int m, const map_t map)
{
    return map == MAP_A ? m : map == MAP_G ? 3 : m + 2;
}

DDP_INLINE int side_to(const int m, const map_t map)
{
    return map == MAP_AT ? m : map == MAP_GT ? 3 : m + 2;
}

DDP_INLINE void map_line_2(const map_t map, const vf_t *x, vf_t *y)
{
    switch (map) {
    case MAP_BT:
        y[0] = x[0] - x[2];
        y[1] = x[1] + x[2];
        y[2] = x[2] - x[1];
        y[3] = x[1] - x[3];
        break;
    case MAP_B:
        y[0] = x[0];
        y[1] = x[1] - x[2] + x[3];
        y[2] = x[1] + x[2] - x[0];
        y[3] = -x[3];
        break;
    case MAP_AT:
        y[0] = x[0] + x[1] + x[2];
        y[1] = x[1] - x[2] - x[3];
        break;
    case MAP_A:
        y[0] = x[0];
        y[1] = x[0] + x[1];
        y[2] = x[0] - x[1];
        y[3] = -x[1];
        break;
    case MAP_G:
        y[0] = x[0];
        y[1] = (x[0] + x[2] + x[1]) * vset1(0.5F);
        y[2] = (x[0] + x[2] - x[1]) * vset1(0.5F);
        y[3] = x[2];
        break;
    default:
        y[0] = x[0] + (x[1] + x[2]) * vset1(0.5F);
        y[1] = (x[1] - x[2]) * vset1(0.5F);
        y[2] = x[3] + (x[1] + x[2]) * vset1(0.5F);
        break;
    }
}

DDP_INLINE void map_line_4_input(const map_t map, const vf_t *x, vf_t *y)
{
    const vf_t two  = vset1(2.0F);
    const vf_t four = vset1(4.0F);
    const vf_t five = vset1(5.0F);

    if (map == MAP_BT) {
        const vf_t even  = x[4] - four * x[2];
        const vf_t odd   = x[3] - four * x[1];
        const vf_t even2 = x[4] - x[2];
        const vf_t odd2  = two * (x[3] - x[1]);

        y[0] = four * x[0] - five * x[2] + x[4];
        y[1] = even + odd;
        y[2] = even - odd;
        y[3] = even2 + odd2;
        y[4] = even2 - odd2;
        y[5] = four * x[1] - five * x[3] + x[5];
    } else {
        const vf_t sum        = x[1] + x[2];
        const vf_t difference = x[1] - x[2];
        const vf_t sum2       = x[3] + x[4];
        const vf_t twice      = two * (x[3] - x[4]);

        y[0] = four * x[0];
        y[1] = four * (x[5] - difference) - twice;
        y[2] = -five * x[0] - four * sum - sum2;
        y[3] = difference + twice - five * x[5];
        y[4] = x[0] + sum + sum2;
        y[5] = x[5];
    }
}

DDP_INLINE void map_line_4_output(const map_t map, const vf_t *x, vf_t *y)
{
    const vf_t two   = vset1(2.0F);
    const vf_t four  = vset1(4.0F);
    const vf_t eight = vset1(8.0F);

    if (map == MAP_AT) {
        const vf_t sum         = x[1] + x[2];
        const vf_t difference  = x[1] - x[2];
        const vf_t sum2        = x[3] + x[4];
        const vf_t difference2 = x[3] - x[4];

        y[0] = x[0] + sum + sum2;
        y[1] = difference + two * difference2;
        y[2] = sum + four * sum2;
        y[3] = difference + eight * difference2 + x[5];
    } else {
        const vf_t even  = x[0] + x[2];
        const vf_t odd   = x[1] + x[3];
        const vf_t even2 = x[0] + four * x[2];
        const vf_t odd2  = two * x[1] + eight * x[3];

        y[0] = x[0];
        y[1] = even + odd;
        y[2] = even - odd;
        y[3] = even2 + odd2;
        y[4] = even2 - odd2;
        y[5] = x[3];
    }
}

DDP_INLINE void map_line_4_weights(const map_t map, const vf_t *x, vf_t *y)
{
    const vf_t sixth        = vset1(1.0F / 6.0F);
    const vf_t twelfth      = vset1(1.0F / 12.0F);
    const vf_t twentyfourth = vset1(1.0F / 24.0F);

    if (map == MAP_G) {
        const vf_t even  = (x[0] + x[2]) * -sixth;
        const vf_t odd   = x[1] * sixth;
        const vf_t even2 = x[0] * twentyfourth + x[2] * sixth;
        const vf_t odd2  = x[1] * twelfth;

        y[0] = x[0] * vset1(0.25F);
        y[1] = even - odd;
        y[2] = even + odd;
        y[3] = even2 + odd2;
        y[4] = even2 - odd2;
        y[5] = x[2];
    } else {
        const vf_t sum  = (x[1] + x[2]) * sixth;
        const vf_t sum2 = x[3] + x[4];

        y[0] = x[0] * vset1(0.25F) - sum + sum2 * twentyfourth;
        y[1] = (x[2] - x[1]) * sixth + (x[3] - x[4]) * twelfth;
        y[2] = sum2 * sixth - sum + x[5];
    }
}

DDP_INLINE void map_line(const int m, const map_t map, const vf_t *x, vf_t *y)
{
    if (m == 2) {
        map_line_2(map, x, y);
    } else if (map == MAP_BT || map == MAP_B) {
        map_line_4_input(map, x, y);
    } else if (map == MAP_AT || map == MAP_A) {
        map_line_4_output(map, x, y);
    } else {
        map_line_4_weights(map, x, y);
    }
}

/* The map on each column of vectors at `from`; t is [side_to][side_from]. */
DDP_INLINE void map_columns(const int m, const map_t map, const float *from, size_t line, size_t column,
                            vf_t *t)
{
    const int side = side_from(m, map);
    vf_t      x[MAX_SIDE];
    vf_t      y[MAX_SIDE];

    DDP_UNROLL
    for (int j = 0; j < side; j++) {
        DDP_UNROLL
        for (int i = 0; i < side; i++) {
            x[i] = vload(from + (size_t)i * line + (size_t)j * column);
        }
        map_line(m, map, x, y);
        DDP_UNROLL
        for (int i = 0; i < side_to(m, map); i++) {
            t[i * side + j] = y[i];
        }
    }
}

/* From n * n, m * m or 3 * 3 vectors to the planes. */
DDP_INLINE void spread(const int m, const map_t map, const float *from, size_t line, size_t column,
                       float *planes, size_t plane)
{
    vf_t t[MAX_SIDE * MAX_SIDE];
    vf_t y[MAX_SIDE];

    map_columns(m, map, from, line, column, t);
    DDP_UNROLL
    for (int i = 0; i < m + 2; i++) {
        map_line(m, map, t + i * side_from(m, map), y);
        DDP_UNROLL
        for (int j = 0; j < m + 2; j++) {
            vstore(planes, y[j]);
            planes += plane;
        }
    }
}

/* From the planes to n * n, m * m or 3 * 3 vectors: result[i * side + j]. */
DDP_INLINE void gather(const int m, const map_t map, const float *planes, size_t plane, vf_t *result)
{
    const int side = side_to(m, map);
    vf_t      t[MAX_SIDE * MAX_SIDE];

    map_columns(m, map, planes, (size_t)(m + 2) * plane, plane, t);
    DDP_UNROLL
    for (int i = 0; i < side; i++) {
        map_line(m, map, t + i * (m + 2), result + i * side);
    }
}

DDP_INLINE void spread_row(const int m, const map_t map, const ddp_winograd_row_t *row, const float *image,
                           float *planes)
{
    for (size_t tile = 0; tile < row->tiles; tile++) {
        const float *from = image + tile * (size_t)m * row->pitch;
        float       *to   = planes + tile * row->pitch;

        for (size_t c = 0; c < row->pitch; c += VL) {
            spread(m, map, from + c, row->line, row->pitch, to + c, row->plane);
        }
    }
}

void DDP_ISA_NAME(winograd_input)(const ddp_winograd_row_t *row, const float *x, float *planes)
{
    if (row->m == 4) {
        spread_row(4, MAP_BT, row, x, planes);
    } else {
        spread_row(2, MAP_BT, row, x, planes);
    }
}

void DDP_ISA_NAME(winograd_output_grad)(const ddp_winograd_row_t *row, const float *dy, float *planes)
{
    if (row->m == 4) {
        spread_row(4, MAP_A, row, dy, planes);
    } else {
        spread_row(2, MAP_A, row, dy, planes);
    }
}

DDP_INLINE void add_row(const int m, const ddp_winograd_row_t *row, const float *planes, float *dx)
{
    const int side = m + 2;
    vf_t      result[MAX_SIDE * MAX_SIDE];

    for (size_t tile = 0; tile < row->tiles; tile++) {
        for (size_t c = 0; c < row->pitch; c += VL) {
            float *to = dx + tile * (size_t)m * row->pitch + c;

            gather(m, MAP_B, planes + tile * row->pitch + c, row->plane, result);
            DDP_UNROLL
            for (int i = 0; i < side; i++) {
                DDP_UNROLL
                for (int j = 0; j < side; j++) {
                    float *at = to + (size_t)i * row->line + (size_t)j * row->pitch;

                    vstore(at, vload(at) + result[i * side + j]);
                }
            }
        }
    }
}

void DDP_ISA_NAME(winograd_input_grad)(const ddp_winograd_row_t *row, const float *planes, float *dx)
{
    if (row->m == 4) {
        add_row(4, row, planes, dx);
    } else {
        add_row(2, row, planes, dx);
    }
}

/* One vector of channels of a tile; `lines` and `columns` of it lie in the image. */
DDP_INLINE void store_tile(const int m, const ddp_winograd_target_t *target, size_t lines, size_t columns,
                           size_t c, const vf_t *result, float *y)
{
    const bool    whole = target->c - c >= VL;
    const vmask_t mask  = vmask_first(whole ? VL : target->c - c);
    const vf_t    bias  = target->bias != NULL ? vload_masked(target->bias + c, mask) : vset1(0.0F);

    DDP_UNROLL
    for (int i = 0; i < m; i++) {
        DDP_UNROLL
        for (int j = 0; j < m; j++) {
            float     *to  = y + ((size_t)i * target->width + (size_t)j) * target->c + c;
            const vf_t sum = result[i * m + j] + bias;
            const vf_t x   = target->relu ? vrelu(sum) : sum;

            if ((size_t)i >= lines || (size_t)j >= columns) {
                continue;
            }
            if (whole) {
                vstore(to, x);
            } else {
                vstore_masked(to, x, mask);
            }
        }
    }
}

DDP_INLINE void store_row(const int m, const ddp_winograd_row_t *row, const float *planes,
                          const ddp_winograd_target_t *target)
{
    vf_t result[MAX_SIDE * MAX_SIDE];

    for (size_t tile = 0; tile < row->tiles; tile++) {
        const size_t first = tile * (size_t)m;

        for (size_t c = 0; c < target->c; c += VL) {
            gather(m, MAP_AT, planes + tile * row->pitch + c, row->plane, result);
            store_tile(m, target, target->lines, target->width - first, c, result,
                       target->y + first * target->c);
        }
    }
}

void DDP_ISA_NAME(winograd_output)(const ddp_winograd_row_t *row, const float *planes,
                                   const ddp_winograd_target_t *target)
{
    if (row->m == 4) {
        store_row(4, row, planes, target);
    } else {
        store_row(2, row, planes, target);
    }
}

/* How far apart weights lie whose channel of one kind differs by one. */
typedef struct weight_view {
    size_t rows, row;       /* channels that are summed over, distance in w */
    size_t columns, column; /* channels in vectors, distance in w */
} weight_view_t;

static weight_view_t view_of(const ddp_conv2d_shape_t *s, bool transposed)
{
    return transposed ? (weight_view_t){s->out_c, s->in_c * 9, s->in_c, 9}
                      : (weight_view_t){s->in_c, 9, s->out_c, s->in_c * 9};
}

void DDP_ISA_NAME(winograd_weights)(const ddp_conv2d_shape_t *shape, size_t m, bool transposed,
                                    const float *w, float *planes)
{
    const weight_view_t v     = view_of(shape, transposed);
    const size_t        pitch = conv_round(v.columns);
    const size_t        plane = winograd_plane(v.rows * pitch);

    for (size_t r = 0; r < v.rows; r++) {
        for (size_t c = 0; c < v.columns; c += VL) {
            const size_t lanes        = v.columns - c < VL ? v.columns - c : VL;
            float        taps[9 * VL] = {0.0F};

            for (size_t lane = 0; lane < lanes; lane++) {
                const float *from = w + r * v.row + (c + lane) * v.column;

                for (size_t t = 0; t < 9; t++) {
                    taps[t * VL + lane] = from[t];
                }
            }
            if (m == 4) {
                spread(4, MAP_G, taps, (size_t)3 * VL, VL, planes + r * pitch + c, plane);
            } else {
                spread(2, MAP_G, taps, (size_t)3 * VL, VL, planes + r * pitch + c, plane);
            }
        }
    }
}

void DDP_ISA_NAME(winograd_weights_grad)(const ddp_conv2d_shape_t *shape, size_t m, const float *planes,
                                         float *dw, bool accumulate)
{
    const weight_view_t v     = view_of(shape, false);
    const size_t        pitch = conv_round(v.columns);
    const size_t        plane = winograd_plane(v.rows * pitch);
    vf_t                taps[9];

    for (size_t r = 0; r < v.rows; r++) {
        for (size_t c = 0; c < v.columns; c += VL) {
            const size_t lanes = v.columns - c < VL ? v.columns - c : VL;

            if (m == 4) {
                gather(4, MAP_GT, planes + r * pitch + c, plane, taps);
            } else {
                gather(2, MAP_GT, planes + r * pitch + c, plane, taps);
            }
            for (size_t lane = 0; lane < lanes; lane++) {
                float *to = dw + r * v.row + (c + lane) * v.column;

                for (size_t t = 0; t < 9; t++) {
                    to[t] = accumulate ? to[t] + taps[t][lane] : taps[t][lane];
                }
            }
        }
    }
}
