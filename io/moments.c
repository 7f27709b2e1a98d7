#include "io/moments_internal.h"

#include <math.h>
#include <string.h>

#include "base/progressed.h"

#define PIECE ((size_t)65536) /* its sum of squares is below 2^32 */

__extension__ typedef unsigned __int128 wide_t;

void ddp_moments_add(ddp_moments_t *moments, size_t channels, const unsigned char *pixels, size_t n)
{
    for (size_t c = 0; c < channels; c++) {
        const size_t rows = n / channels;

        for (size_t first = 0; first < rows; first += PIECE) {
            const unsigned char *piece   = pixels + first * channels + c;
            const size_t         count   = rows - first < PIECE ? rows - first : PIECE;
            uint32_t             sum     = 0;
            uint32_t             squares = 0;

            if (channels == 1) { /* the usual case, which the compiler vectorises */
                for (size_t i = 0; i < count; i++) {
                    sum += piece[i];
                    squares += (uint32_t)piece[i] * piece[i];
                }
            } else {
                for (size_t i = 0; i < count; i++) {
                    sum += piece[i * channels];
                    squares += (uint32_t)piece[i * channels] * piece[i * channels];
                }
            }
            moments[c].count += count;
            moments[c].sum += sum;
            moments[c].squares += squares;
            ddp_progressed();
        }
    }
}

void ddp_moments_get(const ddp_moments_t *moments, double *mean_p, double *std_p)
{
    const double count = (double)moments->count;
    /* n * sum of squares - (sum)^2 cancels: in whole numbers nothing is lost */
    const wide_t spread = (wide_t)moments->count * moments->squares - (wide_t)moments->sum * moments->sum;

    *mean_p = (double)moments->sum / count / 255.0;
    *std_p  = sqrt((double)spread) / count / 255.0;
}

/* Sums over pixels [first, end) of each channel. */
static void add_floats(const float *pixels, size_t channels, size_t first, size_t end, double *sum)
{
    for (size_t i = first; i < end; i++) {
        for (size_t c = 0; c < channels; c++) {
            sum[c] += pixels[i * channels + c];
        }
    }
}

static void add_squares(const float *pixels, size_t channels, size_t first, size_t end, const double *mean,
                        double *squares)
{
    for (size_t i = first; i < end; i++) {
        for (size_t c = 0; c < channels; c++) {
            const double off = pixels[i * channels + c] - mean[c];

            squares[c] += off * off;
        }
    }
}

size_t ddp_moments_floats(const float *pixels, size_t channels, size_t n, double *mean, double *std)
{
    const size_t rows = n / channels;

    for (size_t i = 0; i < n; i++) {
        if (!isfinite(pixels[i])) {
            return i;
        }
        if (i % PIECE == 0) {
            ddp_progressed();
        }
    }
    memset(mean, 0, channels * sizeof(*mean));
    memset(std, 0, channels * sizeof(*std));
    for (size_t first = 0; first < rows; first += PIECE) {
        add_floats(pixels, channels, first, rows - first < PIECE ? rows : first + PIECE, mean);
        ddp_progressed();
    }
    for (size_t c = 0; c < channels; c++) {
        mean[c] /= (double)rows;
    }
    for (size_t first = 0; first < rows; first += PIECE) {
        add_squares(pixels, channels, first, rows - first < PIECE ? rows : first + PIECE, mean, std);
        ddp_progressed();
    }
    for (size_t c = 0; c < channels; c++) {
        std[c] = sqrt(std[c] / (double)rows);
    }
    return n;
}
