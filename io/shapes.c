#include "io/shapes_internal.h"

#include "kernels/ops.h"

/* Compiled with -ffp-contract=off; + - * / and sqrt are then the same everywhere. */

#define SHAPES_KEY  UINT64_C(0x73686170657321) /* apart from other uses of the same seed */
#define NOISE_BLOCK 16                         /* first counter of the noise, behind those of the figure */

typedef struct figure {
    float center_x, center_y;
    float cosine, sine;
    float radius, side, half_line;
    float period, phase_x, phase_y; /* of stripes and checker */
    float ground, contrast;
} figure_t;

/* Distance in pixels from the figure's edge, < 0 inside; (x, y) from its centre, upright. */
typedef float (*distance_fn)(const figure_t *figure, float x, float y);

static float absolute(float x)
{
    return x < 0.0f ? -x : x;
}

static float larger(float a, float b)
{
    return a > b ? a : b;
}

static float smaller(float a, float b)
{
    return a < b ? a : b;
}

static float disc(const figure_t *figure, float x, float y)
{
    return __builtin_sqrtf(x * x + y * y) - figure->radius;
}

static float ring(const figure_t *figure, float x, float y)
{
    return absolute(disc(figure, x, y) + figure->half_line) - figure->half_line;
}

static float square(const figure_t *figure, float x, float y)
{
    return larger(absolute(x), absolute(y)) - figure->side;
}

static float frame(const figure_t *figure, float x, float y)
{
    return absolute(square(figure, x, y) + figure->half_line) - figure->half_line;
}

static float triangle(const figure_t *figure, float x, float y)
{
    return larger(0.8660254f * absolute(x) + 0.5f * y, -y) - 0.5f * figure->radius;
}

static float bar(float along, float across, const figure_t *figure)
{
    return larger(absolute(along) - figure->radius, absolute(across) - figure->half_line);
}

static float plus(const figure_t *figure, float x, float y)
{
    return smaller(bar(x, y, figure), bar(y, x, figure));
}

static float cross(const figure_t *figure, float x, float y)
{
    return plus(figure, 0.70710678f * (x - y), 0.70710678f * (x + y));
}

/* Endless stripes, half of each period inside. */
static float stripes(float across, float period, float phase)
{
    const float turns    = across / period + phase + 64.0f; /* > 0: the cast below rounds down */
    const float fraction = turns - (float)(int)turns;

    return (absolute(fraction - 0.5f) - 0.25f) * period;
}

static float level_stripes(const figure_t *figure, float x, float y)
{
    return larger(square(figure, x, y), stripes(y, figure->period, figure->phase_y));
}

static float upright_stripes(const figure_t *figure, float x, float y)
{
    return larger(square(figure, x, y), stripes(x, figure->period, figure->phase_x));
}

static float checker(const figure_t *figure, float x, float y)
{
    const float a = stripes(x, figure->period, figure->phase_x);
    const float b = stripes(y, figure->period, figure->phase_y);

    return larger(square(figure, x, y),
                  larger(smaller(a, b), -larger(a, b))); /* in one of them, not in both */
}

static void draw_numbers(uint64_t key, uint32_t split, uint64_t index, uint32_t block, uint32_t random[4])
{
    const uint32_t counter[4] = {block, split, (uint32_t)index, (uint32_t)(index >> 32)};

    ddp_philox(key, counter, random);
}

static float uniform(uint32_t random, float low, float high)
{
    return low + (high - low) * ((float)(random >> 8) * 0x1p-24f);
}

static void draw_figure(uint64_t key, uint32_t split, uint64_t index, figure_t *figure)
{
    uint32_t random[12];
    float    room;
    float    tangent;

    for (uint32_t block = 0; block < 3; block++) {
        draw_numbers(key, split, index, block, random + 4 * (size_t)block);
    }
    figure->radius    = uniform(random[0], 6.0f, 10.5f);
    figure->side      = 0.85f * figure->radius;
    figure->half_line = uniform(random[1], 0.7f, 1.3f);
    room              = 12.5f - figure->radius;
    figure->center_x  = 13.5f + uniform(random[2], -room, room);
    figure->center_y  = 13.5f + uniform(random[3], -room, room);
    /* the tangent of half the angle gives cosine and sine without libm: up to 17 degrees either way */
    tangent          = uniform(random[4], -0.15f, 0.15f);
    figure->cosine   = (1.0f - tangent * tangent) / (1.0f + tangent * tangent);
    figure->sine     = 2.0f * tangent / (1.0f + tangent * tangent);
    figure->period   = uniform(random[5], 4.0f, 6.0f);
    figure->phase_x  = uniform(random[6], 0.0f, 1.0f);
    figure->phase_y  = uniform(random[7], 0.0f, 1.0f);
    figure->contrast = uniform(random[8], 0.35f, 0.8f);
    figure->ground   = uniform(random[9], 0.1f, 0.9f - figure->contrast);
    if (random[10] & 1) { /* dark on bright: the mean picture of every class is then grey */
        figure->ground   = 1.0f - figure->ground;
        figure->contrast = -figure->contrast;
    }
}

static unsigned char to_pixel(float value)
{
    const float scaled = 255.0f * value + 0.5f;

    return (unsigned char)smaller(larger(scaled, 0.0f), 255.0f);
}

int32_t ddp_shapes_draw(uint64_t seed, uint32_t split, uint64_t index, unsigned char *pixels)
{
    static const distance_fn figures[DDP_SHAPES_CLASSES] = {
        disc, ring, square, frame, triangle, plus, cross, level_stripes, upright_stripes, checker};
    const uint64_t key   = seed ^ SHAPES_KEY;
    const int32_t  label = (int32_t)(index % DDP_SHAPES_CLASSES);
    uint32_t       random[4];
    figure_t       figure;

    draw_figure(key, split, index, &figure);
    for (uint32_t p = 0; p < DDP_SHAPES_PIXELS; p++) {
        const float    dx       = (float)(p % DDP_SHAPES_SIDE) - figure.center_x;
        const float    dy       = (float)(p / DDP_SHAPES_SIDE) - figure.center_y;
        const float    x        = figure.cosine * dx + figure.sine * dy;
        const float    y        = figure.cosine * dy - figure.sine * dx;
        const float    coverage = smaller(larger(0.5f - figures[label](&figure, x, y), 0.0f), 1.0f);
        const uint32_t half     = p % 8; /* each number of a block serves two pixels */
        uint32_t       bits;
        float          noise;

        if (half == 0) {
            draw_numbers(key, split, index, NOISE_BLOCK + p / 8, random);
        }
        bits      = random[half / 2] >> (16 * (half % 2));
        noise     = (float)((int)(bits & 255) + (int)(bits >> 8 & 255) - 255) * (0.25f / 255.0f);
        pixels[p] = to_pixel(figure.ground + figure.contrast * coverage + noise);
    }
    return label;
}
