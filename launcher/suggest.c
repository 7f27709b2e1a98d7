#include "launcher/suggest.h"

#include <string.h>

#define LONGEST_NAME 64

/* Edit distance in which a swap of neighbours counts as one edit ("trian" is one edit from "train"). */
static size_t edits(const char *a, const char *b)
{
    const size_t n = strlen(a);
    const size_t m = strlen(b);
    size_t       row[3][LONGEST_NAME + 1];

    if (n > LONGEST_NAME || m > LONGEST_NAME) {
        return LONGEST_NAME;
    }
    for (size_t j = 0; j <= m; j++) {
        row[0][j] = j;
    }
    for (size_t i = 1; i <= n; i++) {
        size_t       *now    = row[i % 3];
        const size_t *last   = row[(i + 2) % 3];
        const size_t *before = row[(i + 1) % 3];

        now[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t best = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);

            best = last[j] + 1 < best ? last[j] + 1 : best;
            best = now[j - 1] + 1 < best ? now[j - 1] + 1 : best;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && before[j - 2] + 1 < best) {
                best = before[j - 2] + 1;
            }
            now[j] = best;
        }
    }
    return row[n % 3][m];
}

const char *ddp_suggest(const char *typed, const char *const *names, size_t n)
{
    const char *nearest = NULL;
    size_t      fewest  = LONGEST_NAME;

    for (size_t i = 0; i < n; i++) {
        const size_t length  = strlen(names[i]);
        const size_t allowed = length / 3 > 2 ? length / 3 : 2;
        const size_t needed  = edits(typed, names[i]);

        if (needed < fewest && needed <= allowed && needed < length) {
            fewest  = needed;
            nearest = names[i];
        }
    }
    return nearest;
}
